// SPDX-License-Identifier: Apache-2.0
//! Devices without a kernel object, for tests of the whole switch without privileges.
//!
//! A dummy receives packets by [`Dummy::receive`] and writes the packets that it sends to capture
//! files. With a registered receiver ([`Dummy::on_receive`]) packets are processed in order on the
//! thread that called `receive`; all their effects precede the return of the call. Without a
//! receiver they wait in the receive queues for [`Queue::recv`].
//!
//! A dummy that is administratively down still passes packets, as in Open vSwitch. Only its state
//! changes, which bonds, for example, depend on.
//!
//! Open devices are found by name ([`lookup`], [`all`]), for the `netdev-dummy/*` commands.
//!
//! `options:pstream=punix:PATH` or `ptcp:PORT[:HOST]` listens for and `options:stream=unix:PATH`
//! or `tcp:HOST:PORT` connects to another dummy; frames then travel in both directions, each
//! preceded by its length in 2 bytes, most significant first ([`conn`]). Such frames arrive on
//! a thread of the connection.

pub mod conn;

use crate::device::{Device, Opened, Queue, SendReport, Sender};
use crate::finish;
use crate::headers;
use crate::open_error::OpenError;
use crate::pcap::PcapWriter;
use crate::policer::Policing;
use crate::pool::PacketPool;
use crate::spec::{Kind, OpenSpec};
use crate::status::{DeviceStats, DriverInfo, Features, Status};
use conn::Connection;
use packet::{Packet, ethertype};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// Maximum number of packets that wait in a queue; more are dropped, as by a real device.
const QUEUE_LIMIT: usize = 100;

/// Lowest 32 bits of the next device's Ethernet address aa:55:...
static NEXT_MAC: AtomicU32 = AtomicU32::new(0xaa55_0000);

/// Open dummies by name.
static REGISTRY: Mutex<BTreeMap<String, Weak<Dummy>>> = Mutex::new(BTreeMap::new());

/// A receiver of packets: called with the number of the receive queue and the packets.
pub type Receiver = Arc<dyn Fn(usize, Vec<Packet>) + Send + Sync>;

/// A dummy device. Any thread may use it.
pub struct Dummy {
    name: String,
    ifindex: Option<u32>,
    state: Mutex<State>,
}

struct State {
    admin_up: bool,
    mac: [u8; 6],
    mtu: u32,
    ip4: Vec<Ipv4Addr>,
    stats: Counters,
    receiver: Option<Receiver>,
    waiting: Vec<VecDeque<Packet>>,
    /// Packets and bytes received by each queue of `waiting`.
    received: Vec<(u64, u64)>,
    rx_pcap: Option<Arc<Mutex<PcapWriter>>>,
    tx_pcap: Option<Arc<Mutex<PcapWriter>>>,
    connection: Option<Arc<Connection>>,
}

#[derive(Clone, Copy, Default)]
struct Counters {
    rx_packets: u64,
    rx_bytes: u64,
    rx_dropped: u64,
    rx_errors: u64,
    tx_packets: u64,
    tx_bytes: u64,
    tx_dropped: u64,
}

/// Locks, also after a panic of a holder: every change below leaves whole values.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the open dummy with this name.
pub fn lookup(name: &str) -> Option<Arc<Dummy>> {
    lock(&REGISTRY).get(name).and_then(Weak::upgrade)
}

/// Returns all open dummies, sorted by name.
pub fn all() -> Vec<Arc<Dummy>> {
    lock(&REGISTRY).values().filter_map(Weak::upgrade).collect()
}

/// Blocks until no frame is on its way between dummies of this process, or `limit` is over.
pub fn wait_until_idle(limit: Duration) {
    conn::wait_until_idle(&all(), limit);
}

impl Dummy {
    /// Registers the receiver of packets and passes it the packets that wait. With `None`, packets
    /// wait in the queues again. The receiver runs on the thread that called [`Dummy::receive`],
    /// without a lock, so it may send on this device.
    pub fn on_receive(&self, receiver: Option<Receiver>) {
        let waiting: Vec<(usize, Vec<Packet>)> = {
            let mut s = lock(&self.state);
            s.receiver = receiver.clone();
            match &receiver {
                Some(_) => s.take_waiting(),
                None => Vec::new(),
            }
        };
        if let Some(receiver) = receiver {
            for (queue, packets) in waiting {
                receiver(queue, packets);
            }
        }
    }

    /// Receives `packets` on receive queue `queue`; a queue that does not exist counts as 0.
    /// Returns the number of packets accepted. As in Open vSwitch, a dummy that is down accepts
    /// packets too. Frames shorter than an Ethernet header are dropped and counted.
    pub fn receive(&self, queue: usize, packets: Vec<Packet>) -> usize {
        let (receiver, queue, taken) = {
            let mut s = lock(&self.state);
            let queue = if queue < s.waiting.len() { queue } else { 0 };
            let mut taken = Vec::with_capacity(packets.len());
            for p in packets {
                if p.len() < headers::ETH_HEADER {
                    s.stats.rx_errors += 1;
                    continue;
                }
                if let Some(pcap) = &s.rx_pcap {
                    log_frame(pcap, &self.name, p.data());
                }
                taken.push(p);
            }
            if s.receiver.is_some() {
                s.count_received(queue, &taken);
            }
            (s.receiver.clone(), queue, taken)
        };
        let n = taken.len();
        if let Some(receiver) = receiver {
            if n > 0 {
                receiver(queue, taken);
            }
            return n;
        }
        let mut s = lock(&self.state);
        let State { waiting, stats, .. } = &mut *s;
        let Some(list) = waiting.get_mut(queue) else { return 0 };
        let room = QUEUE_LIMIT.saturating_sub(list.len());
        stats.rx_dropped += n.saturating_sub(room) as u64;
        list.extend(taken.into_iter().take(room));
        n.min(room)
    }

    /// Returns the number of receive queues.
    pub fn n_queues(&self) -> usize {
        lock(&self.state).waiting.len()
    }

    /// Returns the state of the connection to another dummy: "connected", "disconnected" or
    /// "unknown" (no `stream` or `pstream` option), as `netdev-dummy/conn-state` prints it.
    pub fn connection_state(&self) -> &'static str {
        match &lock(&self.state).connection {
            None => "unknown",
            Some(c) if c.is_connected() => "connected",
            Some(_) => "disconnected",
        }
    }

    /// Returns true when frames are on their way to another dummy, or arrive from one.
    fn is_busy(&self) -> bool {
        // The state stays unlocked meanwhile: the frames need it.
        let connection = lock(&self.state).connection.clone();
        connection.is_some_and(|connection| connection.is_busy())
    }

    /// Returns the options that `dpif/show` lists.
    pub fn shown_options(&self) -> Vec<(&'static str, String)> {
        let connection = lock(&self.state).connection.as_ref().map(|c| c.option());
        let ifindex = self.ifindex.map(|n| ("ifindex", n.to_string()));
        ifindex.into_iter().chain(connection).collect()
    }

    /// Adds an IPv4 address to the device (`netdev-dummy/ip4addr`), for which it answers ARP requests.
    pub fn add_ip4(&self, address: Ipv4Addr) {
        let mut state = lock(&self.state);
        if !state.ip4.contains(&address) {
            state.ip4.push(address);
        }
    }

    /// Applies `pcap`, `rxq_pcap`, `tx_pcap`, `stream` and `pstream` of `options`, also to an open
    /// device. Absent keys disable their function. The call truncates capture files, so the caller
    /// makes it only when options changed.
    ///
    /// # Errors
    ///
    /// [`OpenError::BadOption`]. The valid options are applied.
    pub fn configure(
        self: &Arc<Self>,
        options: &BTreeMap<String, String>,
    ) -> Result<(), OpenError> {
        let mut result = Ok(());
        let mut create = |key: &str| {
            let path = options.get(key)?;
            match PcapWriter::create(Path::new(path)) {
                Ok(w) => Some(Arc::new(Mutex::new(w))),
                Err(e) => {
                    result = Err(OpenError::BadOption {
                        name: self.name.clone(),
                        option: key.to_owned(),
                        reason: format!("could not create \"{path}\": {e}"),
                    });
                    None
                }
            }
        };
        let both = create("pcap");
        let (rx, tx) = match both {
            Some(both) => (Some(both.clone()), Some(both)),
            None => (create("rxq_pcap"), create("tx_pcap")),
        };
        // The old connection must release its address first.
        lock(&self.state).connection = None;
        let connection = Connection::from_options(self, options);
        let mut s = lock(&self.state);
        s.rx_pcap = rx;
        s.tx_pcap = tx;
        match connection {
            Ok(c) => s.connection = c.map(Arc::new),
            Err((option, reason)) => {
                s.connection = None;
                result = Err(OpenError::BadOption { name: self.name.clone(), option, reason });
            }
        }
        result
    }

    /// Sends the frames into which one packet was cut: all of them, or none.
    fn transmit_all(&self, s: &mut State, frames: &[Packet]) -> SendReport {
        let mut report = SendReport::default();
        match frames.iter().find(|f| !s.takes(f.data())) {
            Some(unfit) => self.transmit(s, unfit.data(), &mut report), // which counts it
            None => frames.iter().for_each(|f| self.transmit(s, f.data(), &mut report)),
        }
        SendReport::of_one(&report)
    }

    /// Sends one frame after its offload work is finished.
    fn transmit(&self, s: &mut State, frame: &[u8], report: &mut SendReport) {
        let Some(kind) = headers::ethertype(frame) else {
            report.dropped_malformed += 1;
            s.stats.tx_dropped += 1;
            return;
        };
        if frame.len() > s.longest(kind) {
            report.dropped_too_long += 1;
            s.stats.tx_dropped += 1;
            return;
        }
        s.stats.tx_packets += 1;
        s.stats.tx_bytes += frame.len() as u64;
        if let Some(pcap) = &s.tx_pcap {
            log_frame(pcap, &self.name, frame);
        }
        if let Some(connection) = &s.connection {
            connection.send(frame);
        }
        report.sent += 1;
    }
}

impl State {
    /// Returns the maximum bytes of a frame with this EtherType.
    fn longest(&self, kind: u16) -> usize {
        // As in OVS's dummies: a customer tag fits in addition to the MTU, a service tag does not.
        let tag = if kind == ethertype::VLAN { headers::VLAN_TAG } else { 0 };
        self.mtu as usize + headers::ETH_HEADER + tag
    }

    /// Returns true when the bytes are an Ethernet frame and not too long.
    fn takes(&self, frame: &[u8]) -> bool {
        headers::ethertype(frame).is_some_and(|kind| frame.len() <= self.longest(kind))
    }

    fn take_waiting(&mut self) -> Vec<(usize, Vec<Packet>)> {
        let mut all = Vec::new();
        for (i, list) in self.waiting.iter_mut().enumerate() {
            let packets: Vec<Packet> = list.drain(..).collect();
            if !packets.is_empty() {
                all.push((i, packets));
            }
        }
        for (queue, packets) in &all {
            self.count_received(*queue, packets);
        }
        all
    }

    /// Counts packets that a queue passes on.
    fn count_received(&mut self, queue: usize, packets: &[Packet]) {
        let bytes = packets.iter().map(|packet| packet.len() as u64).sum::<u64>();
        let packets = packets.len() as u64;
        self.stats.rx_packets += packets;
        self.stats.rx_bytes += bytes;
        if let Some(received) = self.received.get_mut(queue) {
            received.0 += packets;
            received.1 += bytes;
        }
    }

    /// Answers an ARP request (RFC 826) that the switch *sends* to an address of this device.
    fn arp_reply(&self, frame: &[u8]) -> Option<Packet> {
        let mut replies = self.ip4.iter().filter_map(|ip| headers::arp_reply(frame, *ip, self.mac));
        replies.next().map(|f| Packet::from_slice(&f))
    }
}

fn log_frame(pcap: &Mutex<PcapWriter>, name: &str, frame: &[u8]) {
    if let Err(e) = lock(pcap).write(frame) {
        tracing::warn!(target: "netdev_dummy", "{name}: could not write to the capture file: {e}");
    }
}

struct DummyQueue {
    device: Arc<Dummy>,
    number: usize,
}

impl Queue for DummyQueue {
    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn recv(
        &mut self,
        out: &mut Vec<Packet>,
        _pool: &mut PacketPool,
        max: usize,
    ) -> io::Result<usize> {
        let mut s = lock(&self.device.state);
        let Some(list) = s.waiting.get_mut(self.number) else { return Ok(0) };
        let n = list.len().min(max);
        let packets: Vec<Packet> = list.drain(..n).collect();
        s.count_received(self.number, &packets);
        out.extend(packets);
        Ok(n)
    }
}

impl Sender for Dummy {
    fn send(&self, packets: &[Packet]) -> SendReport {
        let mut report = SendReport::default();
        let mut replies = Vec::new();
        {
            let mut guard = lock(&self.state);
            let s = &mut *guard;
            for p in packets {
                if let Some(reply) = s.arp_reply(p.data()) {
                    replies.push(reply);
                }
                if finish::is_finished(p) {
                    self.transmit(s, p.data(), &mut report);
                    continue;
                }
                match finish::finish(p) {
                    Ok(frames) => report += self.transmit_all(s, &frames),
                    Err(_) => report.dropped_malformed += 1,
                }
            }
        }
        if !replies.is_empty() {
            self.receive(0, replies);
        }
        report
    }
}

impl Device for Dummy {
    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> Kind {
        Kind::Dummy
    }

    fn ifindex(&self) -> Option<u32> {
        self.ifindex
    }

    fn status(&self) -> io::Result<Status> {
        let s = lock(&self.state);
        Ok(Status {
            admin_up: s.admin_up,
            link_up: s.admin_up,
            mac: s.mac,
            mtu: s.mtu,
            mtu_range: None,
            ifindex: self.ifindex,
            current_name: self.name.clone(),
            is_away: false,
            speed_bps: None,
            duplex: None,
            features: Features::default(),
            driver: DriverInfo::default(),
            link_resets: 0,
            promiscuous: true,
            link_kind: Some("dummy".to_owned()),
            extra: Vec::new(),
        })
    }

    fn stats(&self) -> io::Result<DeviceStats> {
        let c = lock(&self.state).stats;
        // Open vSwitch's dummies report packets and bytes only. The others are reported when not
        // zero.
        let counted = |n: u64| (n > 0).then_some(n);
        Ok(DeviceStats {
            rx_packets: Some(c.rx_packets),
            tx_packets: Some(c.tx_packets),
            rx_bytes: Some(c.rx_bytes),
            tx_bytes: Some(c.tx_bytes),
            rx_errors: counted(c.rx_errors),
            rx_dropped: counted(c.rx_dropped),
            tx_dropped: counted(c.tx_dropped),
            ..DeviceStats::default()
        })
    }

    /// The counters of Open vSwitch's dummies, which try how such counters are carried.
    fn custom_counters(&self) -> Vec<(String, u64)> {
        let s = lock(&self.state);
        let whole = ["rx_custom_packets_1", "rx_custom_packets_2"];
        let whole = whole.map(|name| (name.to_owned(), s.stats.rx_packets));
        let sent = (s.stats.tx_packets, s.stats.tx_bytes);
        let of_queue = |direction: &str, (queue, (packets, bytes)): (usize, (u64, u64))| {
            [("bytes", bytes), ("packets", packets)]
                .map(|(unit, value)| (format!("{direction}_q{queue}_{unit}"), value))
        };
        let received = s.received.iter().copied().enumerate().flat_map(|q| of_queue("rx", q));
        whole.into_iter().chain(received).chain(of_queue("tx", (0, sent))).collect()
    }

    fn set_mtu(&self, mtu: u32) -> io::Result<()> {
        if !(68..=65_535).contains(&mtu) {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        lock(&self.state).mtu = mtu;
        Ok(())
    }

    fn set_mac(&self, mac: [u8; 6]) -> io::Result<()> {
        lock(&self.state).mac = mac;
        Ok(())
    }

    fn set_admin_up(&self, up: bool) -> io::Result<()> {
        lock(&self.state).admin_up = up;
        Ok(())
    }

    fn set_policing(&self, policing: Policing) -> io::Result<()> {
        if policing.is_on() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(())
    }

    /// Returns one queue, as OVS's dummies have.
    fn transmit_queues(&self) -> Vec<u32> {
        vec![0]
    }
}

impl Drop for Dummy {
    fn drop(&mut self) {
        let mut registry = lock(&REGISTRY);
        // A new device of the same name may be registered already.
        if registry.get(&self.name).is_some_and(|w| w.strong_count() == 0) {
            registry.remove(&self.name);
        }
    }
}

/// Opens a dummy; down, MTU 1500, with the next address of aa:55:aa:55:00:00 and up.
pub(crate) fn open(spec: &OpenSpec) -> Result<Opened, OpenError> {
    let ifindex = match spec.options.get("ifindex") {
        None => None,
        Some(text) => match text.parse::<u32>() {
            Ok(n) if n > 0 && i32::try_from(n).is_ok() => Some(n),
            _ => {
                return Err(OpenError::BadOption {
                    name: spec.name.clone(),
                    option: "ifindex".to_owned(),
                    reason: format!("\"{text}\" is not a number from 1 to 2147483647"),
                });
            }
        },
    };
    let n_rxq = spec.n_rxq.clamp(1, 1024);
    let device = {
        let mut registry = lock(&REGISTRY);
        if registry.get(&spec.name).is_some_and(|w| w.strong_count() > 0) {
            return Err(OpenError::Busy { name: spec.name.clone() });
        }
        let [a, b, c, d] = NEXT_MAC.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let device = Arc::new(Dummy {
            name: spec.name.clone(),
            ifindex,
            state: Mutex::new(State {
                admin_up: false,
                mac: [0xaa, 0x55, a, b, c, d],
                mtu: 1500,
                ip4: Vec::new(),
                stats: Counters::default(),
                receiver: None,
                waiting: (0..n_rxq).map(|_| VecDeque::new()).collect(),
                received: (0..n_rxq).map(|_| (0, 0)).collect(),
                rx_pcap: None,
                tx_pcap: None,
                connection: None,
            }),
        });
        registry.insert(spec.name.clone(), Arc::downgrade(&device));
        device
    };
    device.configure(&spec.options)?;
    let queues = (0..n_rxq)
        .map(|number| Box::new(DummyQueue { device: device.clone(), number }) as Box<dyn Queue>)
        .collect();
    Ok(Opened { queues, sender: device.clone(), device })
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::{Gso, Offload};

    /// Returns a datagram that is cut into segments with `size` bytes of payload.
    fn datagram(payload: usize, size: u16) -> Packet {
        let length = |headers: usize| ((headers + payload) as u16).to_be_bytes();
        let mut p = Packet::from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0]);
        p.extend(&length(28));
        p.extend(&[0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0x30, 0x39, 0, 53]);
        p.extend(&length(8));
        p.extend(&[0, 0]);
        p.resize(42 + payload);
        let gso = Some((Gso::UdpL4, size, 42));
        p.offload = Offload { csum: Some((34, 6)), gso, ..Offload::default() };
        p
    }

    #[test]
    fn a_packet_is_sent_with_all_its_segments_or_not_at_all() {
        let opened = open(&OpenSpec::new("all-or-none", Kind::Dummy)).expect("a dummy");
        let sent = |packet: Packet| {
            let report = opened.sender.send(&[packet]);
            let stats = opened.device.stats().expect("always");
            (report.sent, report.dropped_too_long, stats.tx_packets, stats.tx_dropped)
        };
        assert_eq!(sent(datagram(2500, 1000)), (1, 0, Some(3), None));
        // The last segment alone would fit.
        assert_eq!(sent(datagram(3100, 1500)), (0, 1, Some(3), Some(1)));
    }
}
