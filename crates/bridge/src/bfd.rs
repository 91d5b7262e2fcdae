// SPDX-License-Identifier: Apache-2.0
//! BFD on a port: joins the session of the crate `protocols` with the port's packets.

use crate::protocol::{Protocol, Round};
use crate::received::Received;
use clock::Millis;
use flow::extract::FRAG_LATER;
use flow::{Field, Key, Mask};
use openflow::PortNo;
use packet::build::Frame;
use packet::{Ipv4Header, Packet, ethertype, ip_proto};
use protocols::bfd::{ControlPacket, Level, Line, Moment, Session, TTL};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use zerocopy::network_endian::{U16, U32};

pub use protocols::bfd::{Settings as SessionSettings, Status};

/// The UDP port of control packets (RFC 5881, 4).
const UDP_PORT: u16 = 3784;
/// The lowest UDP source port, and the number of them (RFC 5881, 4).
const FIRST_SOURCE: u16 = 49152;
const SOURCES: u16 = 16384;
/// Type of service of control packets: internetwork control (RFC 791, 3.1).
const TOS: u8 = 0xc0;
/// Most packets in one call of [`Protocol::run`]: the answer to a poll, a packet that is due, and the
/// first of a new poll.
const MOST_PACKETS: usize = 3;

/// 20 lines a minute, of all sessions.
static LIMIT: vlog::RateLimit = vlog::RateLimit::new(20, 20);
static NEXT_SOURCE: AtomicU16 = AtomicU16::new(0);

/// Settings of BFD on a port (`Interface:bfd`).
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Settings {
    /// Settings of the session.
    pub session: SessionSettings,
    /// Addresses of control packets.
    pub path: Path,
}

/// The addresses of control packets, and further marks by which they are recognised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// Packets that are sent through a tunnel carry its flag for control packets (`oam`).
    pub is_oam: bool,
    /// Only packets with the tunnel key 0 are control packets (`check_tnl_key`).
    pub checks_tunnel_key: bool,
    /// Ethernet source of packets that are sent; `None` for the port's address.
    pub local_source: Option<[u8; 6]>,
    /// Ethernet destination of packets that are sent.
    pub local_destination: [u8; 6],
    /// Ethernet destination of received control packets; `None` for any.
    pub remote_destination: Option<[u8; 6]>,
    /// IP source of packets that are sent. Unless it is [`Path::SOURCE`], control packets are those
    /// that are sent to it.
    pub source: Ipv4Addr,
    /// IP destination of packets that are sent.
    pub destination: Ipv4Addr,
}

impl Path {
    /// The usual IP source.
    pub const SOURCE: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);
    /// The usual IP destination.
    pub const DESTINATION: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 0);
    /// The usual Ethernet destination.
    pub const ETHERNET: [u8; 6] = [0x00, 0x23, 0x20, 0x00, 0x00, 0x01];

    /// Returns true for control packets. Makes exact in `mask` the bits on which that depends: where
    /// a field is another one, only the highest bit that differs.
    fn claims(&self, key: &Key, mask: &mut Mask) -> bool {
        if let Some(destination) = self.remote_destination {
            mask.set_exact(Field::EthDst);
            if key.dl_dst != destination {
                return false;
            }
        }
        if key.packet_type.get() != 0 || key.dl_type.get() != ethertype::IPV4 {
            return false;
        }
        mask.0.nw_proto = u8::MAX;
        if key.nw_proto != ip_proto::UDP || key.nw_frag & FRAG_LATER != 0 {
            return false;
        }
        let seen = deciding_bits(key.tp_dst.get().into(), UDP_PORT.into()) as u16;
        mask.0.tp_dst.set(mask.0.tp_dst.get() | seen);
        if key.tp_dst.get() != UDP_PORT {
            return false;
        }
        if self.source != Path::SOURCE {
            let own = self.source.to_bits();
            let seen = deciding_bits(key.nw_dst.get(), own);
            mask.0.nw_dst.set(mask.0.nw_dst.get() | seen);
            if key.nw_dst.get() != own {
                return false;
            }
        }
        if self.checks_tunnel_key {
            mask.set_exact(Field::TunId);
            return key.tunnel.id.get() == 0;
        }
        true
    }

    fn frame(&self, mac: [u8; 6], udp_source: u16, packet: &ControlPacket) -> Packet {
        let ip = Ipv4Header {
            version_ihl: 0x45,
            tos: TOS,
            total_len: U16::ZERO,
            id: U16::ZERO,
            fragment: U16::ZERO,
            ttl: TTL,
            proto: 0,
            checksum: U16::ZERO,
            src: U32::new(self.source.to_bits()),
            dst: U32::new(self.destination.to_bits()),
        };
        Frame::ethernet(self.local_destination, self.local_source.unwrap_or(mac))
            .ipv4_header(ip)
            .udp(udp_source, UDP_PORT)
            .payload(&packet.encode())
            .packet()
    }
}

impl Default for Path {
    fn default() -> Path {
        Path {
            is_oam: false,
            checks_tunnel_key: false,
            local_source: None,
            local_destination: Path::ETHERNET,
            remote_destination: None,
            source: Path::SOURCE,
            destination: Path::DESTINATION,
        }
    }
}

/// Returns the bits that decide whether `value` is `wanted`: all if it is, otherwise the highest that
/// differs.
fn deciding_bits(value: u32, wanted: u32) -> u32 {
    match (value ^ wanted).checked_ilog2() {
        None => u32::MAX,
        Some(highest) => 1 << highest,
    }
}

/// BFD on one port. Any thread may use it.
pub struct Monitor {
    name: String,
    port: PortNo,
    received: Received,
    udp_source: u16,
    state: Mutex<State>,
}

struct State {
    session: Session,
    settings: Settings,
    /// Address of the port.
    mac: [u8; 6],
    /// Packets that a patch or tunnel port had received at the last run.
    noted: u64,
}

impl fmt::Debug for Monitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Monitor({} {})", self.name, self.port)
    }
}

impl Monitor {
    /// Returns BFD for a port, with a session that is down.
    pub(crate) fn new(
        name: &str,
        port: PortNo,
        received: Received,
        settings: &Settings,
        now: Millis,
    ) -> Monitor {
        let at = Moment { now, received: received.packets() };
        let count = NEXT_SOURCE.fetch_add(1, Ordering::Relaxed) % SOURCES;
        // Hard to guess, since each process has other keys for this hash.
        let discriminator = RandomState::new().hash_one((name, port.0, count)) as u32;
        let session = Session::new(name, &settings.session, discriminator, at);
        Monitor {
            name: name.to_owned(),
            port,
            udp_source: FIRST_SOURCE + count,
            state: Mutex::new(State {
                session,
                settings: settings.clone(),
                mac: [0; 6],
                noted: at.received,
            }),
            received,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner) // no operation panics midway
    }

    fn moment(&self, state: &State, now: Millis) -> Moment {
        let received = if state.session.counts_received() { self.received.packets() } else { 0 };
        Moment { now, received }
    }

    /// Puts settings into force. Returns true when they are other ones than before: then
    /// [`Protocol::run`] is due, and translation must follow.
    pub(crate) fn configure(&self, settings: &Settings, now: Millis) -> bool {
        let mut state = self.lock();
        if state.settings == *settings {
            return false;
        }
        state.settings = settings.clone();
        let at = Moment { now, received: self.received.packets() };
        state.session.configure(&settings.session, at);
        let lines = state.session.take_lines();
        drop(state);
        log(lines);
        true
    }

    /// Sets the port's address.
    pub(crate) fn set_mac(&self, mac: [u8; 6]) {
        self.lock().mac = mac;
    }

    /// Overrides whether the port may carry traffic; `None` ends that (`bfd/set-forwarding`).
    pub fn force_forwarding(&self, forced: Option<bool>) {
        self.lock().session.force_forwarding(forced);
    }

    /// Returns true when the port may carry traffic.
    pub fn is_forwarding(&self, now: Millis) -> bool {
        self.lock().session.is_forwarding(now)
    }

    /// Returns the results.
    pub fn status(&self, now: Millis) -> Status {
        self.lock().session.status(now)
    }

    /// Returns the text of `bfd/show` for the port, without a heading.
    pub fn details(&self, now: Millis) -> String {
        self.lock().session.details(now)
    }

    /// Returns true when [`Monitor::status`] may have changed since the previous call.
    pub(crate) fn take_changed(&self) -> bool {
        self.lock().session.take_changed()
    }
}

impl Protocol for Monitor {
    fn reason(&self) -> &'static str {
        "bfd"
    }

    fn watches_path(&self) -> bool {
        true
    }

    fn claims(&self, key: &Key, mask: &mut Mask) -> bool {
        self.lock().settings.path.claims(key, mask)
    }

    fn is_oam(&self) -> bool {
        self.lock().settings.path.is_oam
    }

    fn receive(&self, _port: PortNo, packet: &Packet, now: Millis) -> bool {
        let Some((payload, ttl)) = control_payload(packet.data()) else { return false };
        let mut state = self.lock();
        let at = self.moment(&state, now);
        state.session.set_debugged(is_debugged());
        state.session.receive(payload, ttl, at);
        let lines = state.session.take_lines();
        drop(state);
        log(lines);
        true
    }

    fn run(&self, now: Millis) -> Round {
        let mut state = self.lock();
        let at = self.moment(&state, now);
        if matches!(self.received, Received::Virtual(_)) {
            // As in Open vSwitch devices do not report to BFD that they have received packets.
            let received = self.received.packets();
            if std::mem::replace(&mut state.noted, received) != received {
                state.session.note_received(now);
            }
        }
        state.session.set_debugged(is_debugged());
        let mut frames = Vec::new();
        for _ in 0..MOST_PACKETS {
            let packet = state.session.run(at);
            let settings = &state.settings;
            let frame = packet.map(|p| settings.path.frame(state.mac, self.udp_source, &p));
            frames.extend(frame.map(|frame| (self.port, frame)));
            if state.session.deadline() > now {
                break;
            }
        }
        let next = Some(state.session.deadline());
        let is_changed = state.session.is_changed();
        let lines = state.session.take_lines();
        drop(state);
        log(lines);
        Round { frames, next, is_changed }
    }
}

fn is_debugged() -> bool {
    tracing::enabled!(target: "bfd", tracing::Level::DEBUG)
}

fn log(lines: Vec<Line>) {
    for Line { level, text } in lines {
        match level {
            Level::Debug => vlog::debug_rl!(LIMIT, target: "bfd", "{text}"),
            Level::Info => vlog::info_rl!(LIMIT, target: "bfd", "{text}"),
            Level::Warn => vlog::warn_rl!(LIMIT, target: "bfd", "{text}"),
        }
    }
}

/// Returns the UDP payload of a frame, without padding, and the TTL. `None` when the frame has no
/// whole UDP header over IPv4.
fn control_payload(frame: &[u8]) -> Option<(&[u8], u8)> {
    const UDP_HEADER: usize = 8;
    let (key, layers) = flow::extract::extract(frame, 0);
    let is_udp = key.dl_type.get() == ethertype::IPV4 && key.nw_proto == ip_proto::UDP;
    let from = usize::from(layers.l4.filter(|_| is_udp)?) + UDP_HEADER;
    let to = frame.len().checked_sub(usize::from(layers.l2_pad))?;
    Some((frame.get(from..to)?, key.nw_ttl))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::extract::key_of;
    use std::sync::Arc;

    fn settings() -> Settings {
        let session = SessionSettings { min_rx: 100, ..SessionSettings::default() };
        Settings { session, path: Path::default() }
    }

    fn monitor(settings: &Settings) -> Monitor {
        let received = Received::Virtual(Arc::default());
        let monitor = Monitor::new("p1", PortNo(1), received, settings, Millis(10));
        monitor.set_mac([2, 0, 0, 0, 0, 1]);
        monitor
    }

    fn udp(to: u16) -> Key {
        let frame = Frame::ethernet([2, 0, 0, 0, 0, 9], [2, 0, 0, 0, 0, 8]);
        let ip = frame.ipv4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2), 64);
        key_of(&ip.udp(7, to).finish(), 1)
    }

    fn seen(path: &Path, key: &Key) -> (bool, Mask) {
        let mut mask = Mask::WILDCARD;
        (path.claims(key, &mut mask), mask)
    }

    #[test]
    fn control_packets_are_recognised_by_as_few_bits_as_possible() {
        let path = Path::default();
        let (is_claimed, mask) = seen(&path, &udp(UDP_PORT));
        assert_eq!((is_claimed, mask.0.tp_dst.get(), mask.0.nw_dst.get()), (true, 0xffff, 0));
        let (is_claimed, mask) = seen(&path, &udp(UDP_PORT ^ 0x0111));
        assert_eq!((is_claimed, mask.0.tp_dst.get(), mask.0.nw_proto), (false, 0x0100, 255));
        let mut tcp = udp(UDP_PORT);
        tcp.nw_proto = ip_proto::TCP;
        let (is_claimed, mask) = seen(&path, &tcp);
        assert_eq!((is_claimed, mask.0.tp_dst.get(), mask.0.nw_proto), (false, 0, 255));
    }

    #[test]
    fn addresses_and_the_tunnel_key_are_checked() {
        let key = udp(UDP_PORT);
        let path = Path { remote_destination: Some([2, 0, 0, 0, 0, 7]), ..Path::default() };
        let (is_claimed, mask) = seen(&path, &key);
        assert_eq!((is_claimed, mask.0.dl_dst, mask.0.nw_proto), (false, [255; 6], 0));
        let path = Path { remote_destination: Some(key.dl_dst), ..Path::default() };
        assert!(seen(&path, &key).0);
        let path = Path { source: Ipv4Addr::new(10, 0, 0, 2), ..Path::default() };
        let (is_claimed, mask) = seen(&path, &key);
        assert_eq!((is_claimed, mask.0.nw_dst.get()), (true, u32::MAX));
        let path = Path { source: Ipv4Addr::new(10, 0, 4, 2), ..Path::default() };
        let (is_claimed, mask) = seen(&path, &key);
        assert_eq!((is_claimed, mask.0.nw_dst.get()), (false, 0x400), "a flow depends on it");
        let path = Path { checks_tunnel_key: true, ..Path::default() };
        let (is_claimed, mask) = seen(&path, &key);
        assert_eq!((is_claimed, mask.0.tunnel.id.get()), (true, u64::MAX));
        let mut keyed = key;
        keyed.tunnel.id.set(1);
        assert!(!seen(&path, &keyed).0);
    }

    #[test]
    fn two_monitors_come_up_by_their_frames() {
        let ends = [monitor(&settings()), monitor(&settings())];
        for ms in 0..300 {
            let now = Millis(10 + ms * 10);
            for from in 0..2 {
                for (port, frame) in ends[from].run(now).frames {
                    assert_eq!(port, PortNo(1));
                    let mut mask = Mask::WILDCARD;
                    assert!(ends[1 - from].claims(&key_of(frame.data(), 1), &mut mask));
                    assert!(ends[1 - from].receive(PortNo(1), &frame, now));
                }
            }
        }
        let now = Millis(3010);
        assert!(ends[0].is_forwarding(now) && ends[1].is_forwarding(now));
        assert!(ends[0].take_changed() && !ends[0].take_changed());
        assert!(!ends[0].run(now).is_changed);
        assert!(!ends[0].configure(&settings(), now));
    }

    #[test]
    fn a_frame_has_the_settings_addresses() {
        let path = Path {
            local_source: Some([2, 0, 0, 0, 0, 5]),
            local_destination: [2, 0, 0, 0, 0, 6],
            source: Ipv4Addr::new(1, 2, 3, 4),
            destination: Ipv4Addr::new(5, 6, 7, 8),
            ..Path::default()
        };
        let round = monitor(&Settings { path, ..settings() }).run(Millis(10));
        let [(_, frame)] = &round.frames[..] else { panic!("{round:?}") };
        let key = key_of(frame.data(), 1);
        assert_eq!((key.dl_src, key.dl_dst), ([2, 0, 0, 0, 0, 5], [2, 0, 0, 0, 0, 6]));
        assert_eq!((key.nw_src.get(), key.nw_dst.get()), (0x0102_0304, 0x0506_0708));
        assert_eq!((key.nw_ttl, key.nw_tos, key.tp_dst.get()), (255, 0xc0, 3784));
        assert!(key.tp_src.get() >= FIRST_SOURCE);
        assert_eq!(frame.len(), 14 + 20 + 8 + 24);
        let usual = monitor(&settings()).run(Millis(10));
        let key = key_of(usual.frames[0].1.data(), 1);
        assert_eq!((key.dl_src, key.dl_dst), ([2, 0, 0, 0, 0, 1], Path::ETHERNET));
    }

    #[test]
    fn cut_off_frames_are_no_control_packets() {
        let round = monitor(&settings()).run(Millis(10));
        let frame = round.frames[0].1.data();
        let (payload, ttl) = control_payload(frame).unwrap();
        assert_eq!((payload.len(), ttl), (24, 255));
        let padded = [frame, &[0; 10]].concat();
        assert_eq!(control_payload(&padded), Some((payload, 255)));
        for len in 0..frame.len() {
            assert_eq!(control_payload(&frame[..len]), None, "{len}");
        }
    }
}
