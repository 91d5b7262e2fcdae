// SPDX-License-Identifier: Apache-2.0
//! Switches, hosts and traffic for these tests.

use rustix::net::{AddressFamily, SocketType, bind, connect, socket, sockopt};
use slipswitch_tests::harness::{
    Host, Kind, Mode, Netns, Switch, patient, wait_until, without_privilege, without_tool,
};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long something may take that should be there at once.
pub const SOON: Duration = Duration::from_secs(10);

/// Returns false, after saying so, where switches with hosts cannot be made.
pub fn is_possible() -> bool {
    !without_privilege() && !without_tool(&["ip", "ping", "fping", "tcpdump", "nsenter"])
}

/// A switch with a NORMAL bridge `br0`; `None`, after saying so, where tests cannot make one.
pub fn switch() -> Option<Switch> {
    if !is_possible() {
        return None;
    }
    let switch = Switch::start(Kind::under_test(), Mode::Real);
    switch.vsctl("add-br br0 -- set bridge br0 datapath_type=netdev");
    Some(switch)
}

/// The same with two hosts, 10.0.0.1 on port h1 and 10.0.0.2 on port h2.
pub fn pair() -> Option<(Switch, Host, Host)> {
    let switch = switch()?;
    let a = switch.host_on("br0", "h1", "10.0.0.1/24");
    let b = switch.host_on("br0", "h2", "10.0.0.2/24");
    Some((switch, a, b))
}

/// Waits until flows between a host and an address are stable: the first packets teach the switch
/// addresses, and earlier megaflows are replaced.
#[track_caller]
pub fn warm(from: &Host, to: &str) {
    assert!(from.reaches(to, SOON), "{to} does not answer");
    from.ping(to, 15);
}

/// The verbose lines of the megaflows that hold all of `parts`.
pub fn megaflows(switch: &Switch, parts: &[&str]) -> Vec<String> {
    let text = switch.appctl("dpctl/dump-flows -m");
    text.lines().filter(|l| parts.iter().all(|p| l.contains(p))).map(str::to_owned).collect()
}

/// Waits until a megaflow's line holds all of `parts`.
#[track_caller]
pub fn sees(switch: &Switch, parts: &[&str]) {
    let seen = wait_until(SOON, || !megaflows(switch, parts).is_empty());
    assert!(seen, "no megaflow with {parts:?}:\n{}", megaflows(switch, &[]).join("\n"));
}

/// Packets on the megaflows that hold all of `parts`.
pub fn packets(switch: &Switch, parts: &[&str]) -> u64 {
    let count = |line: &String| -> u64 {
        let digits = line.split("packets:").nth(1).unwrap_or_default();
        digits.split(',').next().and_then(|n| n.parse().ok()).unwrap_or(0)
    };
    megaflows(switch, parts).iter().map(count).sum()
}

/// Waits until IPv4 from both of these ports runs in the kernel.
#[track_caller]
pub fn in_kernel(switch: &Switch, ports: [&str; 2]) {
    let is_there = |port: &str| {
        let port = format!("in_port({port})");
        !megaflows(switch, &[&port, "eth_type(0x0800)", "dp:tcx"]).is_empty()
    };
    let both = wait_until(SOON, || ports.into_iter().all(is_there));
    assert!(both, "{}", megaflows(switch, &[]).join("\n"));
}

/// Sends `length` bytes by TCP from one host to another, and compares what arrives.
pub fn tcp(from: &Host, to: &Host, length: usize) {
    tcp_to(&from.netns, &to.netns, to.address(), length);
}

/// Likewise from one namespace to an address of another.
pub fn tcp_to(from: &Netns, to: &Netns, address: &str, length: usize) {
    let address = address.to_owned();
    let target = address.clone();
    let listener = to
        .with(move || TcpListener::bind((address.as_str(), 0)).expect("the address is the host's"));
    let port = listener.local_addr().expect("it is bound").port();
    let receiver = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("someone connects");
        stream.set_read_timeout(Some(patient(SOON))).expect("not zero");
        let mut got = Vec::with_capacity(length);
        let end = stream.read_to_end(&mut got);
        (got, end.is_ok())
    });
    let sender = from.spawn(move || {
        let address =
            format!("{}:{port}", if target.contains(':') { format!("[{target}]") } else { target });
        let address = address.parse().expect("an address");
        let mut stream = TcpStream::connect_timeout(&address, patient(SOON))
            .expect("the switch carries the connection");
        stream.set_write_timeout(Some(patient(SOON))).expect("not zero");
        stream.write_all(&pattern(length)).expect("the switch carries data");
    });
    if let Err(panic) = sender.join() {
        std::panic::resume_unwind(panic);
    }
    let (got, whole) = receiver.join().expect("the receiver does not fail");
    assert!(whole, "the connection broke off");
    assert_eq!(got.len(), length);
    assert!(got == pattern(length), "the data arrived changed");
}

/// Connects from a port of the namespace that the thread is in. The port may have been in use a moment
/// ago. A read waits [`SOON`].
pub fn connect_from(port: u16, target: SocketAddr) -> TcpStream {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    sockopt::set_socket_reuseaddr(&socket, true).expect("it can be");
    bind(&socket, &SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port)).expect("the port is free");
    connect(&socket, &target).expect("it connects");
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(patient(SOON))).expect("not zero");
    stream
}

/// A TCP connection whose data is counted where it arrives, and thrown away.
pub struct Stream {
    stream: TcpStream,
    reader: JoinHandle<u64>,
}

impl Stream {
    /// Connects from one host to `target`, which leads to `listening`, an address of the other
    /// (both with a port).
    pub fn new(from: &Host, to: &Host, listening: &str, target: &str) -> Stream {
        let target = target.parse().expect("an address");
        let open = || TcpStream::connect_timeout(&target, patient(SOON)).expect("it connects");
        Stream::connected(from, to, listening, open)
    }

    /// Connects from a port of one IPv4 host to an address of the other.
    pub fn from_port(from: &Host, to: &Host, port: u16, target: &str) -> Stream {
        let address: SocketAddr = target.parse().expect("an address");
        Stream::connected(from, to, target, || connect_from(port, address))
    }

    fn connected(
        from: &Host,
        to: &Host,
        listening: &str,
        open: impl FnOnce() -> TcpStream + Send,
    ) -> Stream {
        let listening = listening.to_owned();
        let listener =
            to.netns.with(move || TcpListener::bind(listening).expect("the host's address"));
        let reader = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("someone connects");
            stream.set_read_timeout(Some(patient(SOON))).expect("not zero");
            std::io::copy(&mut stream, &mut std::io::sink()).expect("data goes on")
        });
        let stream = from.netns.with(open);
        Stream { stream, reader }
    }

    /// Sends this many bytes.
    pub fn write(&mut self, bytes: usize) {
        self.stream.write_all(&vec![5; bytes]).expect("data goes on");
    }

    /// Ends, and says how many bytes arrived.
    pub fn finish(self) -> u64 {
        drop(self.stream);
        self.reader.join().expect("it does not fail")
    }
}

/// Sends bursts of packets from 10.0.0.1 to 10.0.0.2, each burst of a new flow. Checks that all
/// packets arrive, and that the first packet of each flow arrives first.
#[track_caller]
pub fn bursts_of_new_flows(switch: &Switch, a: &Host, b: &Host) {
    const FLOWS: usize = 100;
    const BURST: usize = 20;
    /// Packets that may be on their way, far fewer than may wait for the daemon: on a slow machine
    /// it takes long for each.
    const AHEAD: usize = 5 * BURST;
    // Each pair of ports is a megaflow.
    switch.appctl("upcall/disable-megaflows");
    let receiver = b.netns.with(|| UdpSocket::bind("10.0.0.2:0").expect("the host's address"));
    receiver.set_read_timeout(Some(patient(Duration::from_secs(2)))).expect("not zero");
    let target = receiver.local_addr().expect("it is bound");
    let arrived = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&arrived);
    let reader = std::thread::spawn(move || {
        let mut flows: Vec<Vec<u8>> = vec![Vec::new(); FLOWS];
        let mut data = [0; 2];
        while let Ok(2) = receiver.recv(&mut data) {
            flows[usize::from(data[0])].push(data[1]);
            count.fetch_add(1, Ordering::Relaxed);
        }
        flows
    });
    a.netns.with(|| {
        for flow in 0..FLOWS {
            let sent = flow * BURST;
            let follows = || sent <= arrived.load(Ordering::Relaxed) + AHEAD;
            assert!(wait_until(SOON, follows), "{arrived:?} of {sent} packets arrived");
            let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
            for packet in 0..BURST {
                let sent = socket.send_to(&[flow as u8, packet as u8], target);
                assert_eq!(sent.expect("there is room"), 2);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    });
    let flows = reader.join().expect("it does not fail");
    for (flow, packets) in flows.iter().enumerate() {
        assert_eq!(packets.first(), Some(&0), "flow {flow}: {packets:?}");
    }
    let arrived: usize = flows.iter().map(Vec::len).sum();
    assert_eq!(arrived, FLOWS * BURST);
}

/// Data in which a lost, doubled or moved byte shows.
fn pattern(length: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(length as u64);
    (0..length).map(|_| random.u8(..)).collect()
}

/// Sends UDP datagrams of the given lengths, one at a time; true for those that arrive whole.
pub fn udp(from: &Host, to: &Host, lengths: &[usize]) -> Vec<bool> {
    let address = to.address().to_owned();
    let receiver = to
        .netns
        .with(move || UdpSocket::bind((address.as_str(), 0)).expect("the address is the host's"));
    receiver.set_read_timeout(Some(patient(Duration::from_secs(1)))).expect("not zero");
    let target = receiver.local_addr().expect("it is bound");
    let any = if target.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" };
    let sender = from.netns.with(move || UdpSocket::bind(any).expect("a socket"));
    let mut buffer = vec![0; 65_536];
    let mut arrive = |length: usize| {
        let data = pattern(length);
        // The first datagram may meet a device that has just come up.
        (0..3).any(|_| {
            sender.send_to(&data, target).is_ok()
                && matches!(receiver.recv(&mut buffer), Ok(n) if buffer.get(..n) == Some(data.as_slice()))
        })
    };
    lengths.iter().map(|l| arrive(*l)).collect()
}

/// Sends a datagram for each length of a segment by one call that leaves the segmentation to a device
/// (`UDP_SEGMENT`). Returns true when all datagrams arrive unchanged; `None` when the kernel refuses
/// the call. The first call may meet a path that is not resolved yet, and is repeated.
pub fn udp_segments(from: &Netns, to: &Netns, address: &str) -> Option<bool> {
    const SEGMENT: usize = 1300;
    const SEGMENTS: usize = 20;
    // include/uapi/linux/udp.h
    const UDP_SEGMENT: libc::c_int = 103;
    let bound = address.to_owned();
    let receiver = to.with(move || UdpSocket::bind((bound.as_str(), 0)).expect("its address"));
    receiver.set_read_timeout(Some(patient(Duration::from_secs(1)))).expect("not zero");
    let target = receiver.local_addr().expect("it is bound");
    let sender = from.with(|| UdpSocket::bind("0.0.0.0:0").expect("a socket"));
    let size = SEGMENT as libc::c_int;
    // SAFETY: the kernel reads the bytes of `size`, which lives through the call.
    let set = unsafe {
        libc::setsockopt(
            sender.as_raw_fd(),
            libc::SOL_UDP,
            UDP_SEGMENT,
            (&raw const size).cast(),
            size_of_val(&size) as libc::socklen_t,
        )
    };
    assert_eq!(set, 0, "every kernel that is supported has UDP_SEGMENT");
    let data = pattern(SEGMENT * SEGMENTS);
    let mut buffer = vec![0; 65_536];
    for _ in 0..3 {
        match sender.send_to(&data, target) {
            Err(error) if error.raw_os_error() == Some(libc::EIO) => return None,
            sent => sent.expect("there is room"),
        };
        let arrives =
            |segment| matches!(receiver.recv(&mut buffer), Ok(n) if &buffer[..n] == segment);
        if data.chunks(SEGMENT).all(arrives) {
            return Some(true);
        }
    }
    Some(false)
}

/// A background stream of numbered datagrams from one host to another, some 1,500 a second.
pub struct Numbered {
    is_over: Arc<AtomicBool>,
    sender: JoinHandle<u64>,
    receiver: JoinHandle<Vec<u32>>,
}

/// The fate of numbered datagrams.
#[derive(Clone, Copy, Debug)]
pub struct Counts {
    /// Sent in all.
    pub sent: u64,
    /// Not arrived.
    pub lost: u64,
    /// Arrived more than once.
    pub twice: u64,
}

impl Numbered {
    /// Starts to send.
    pub fn start(from: &Host, to: &Host) -> Numbered {
        let address = to.address().to_owned();
        let socket = to.netns.with(move || UdpSocket::bind((address, 0)).expect("its address"));
        socket.set_read_timeout(Some(Duration::from_millis(100))).expect("not zero");
        let target = socket.local_addr().expect("it is bound");
        let is_over = Arc::new(AtomicBool::new(false));
        let end = is_over.clone();
        let receiver = std::thread::spawn(move || {
            let (mut seen, mut bytes) = (Vec::new(), [0; 4]);
            let mut quiet = 0;
            while quiet < 5 {
                match socket.recv(&mut bytes) {
                    Ok(_) => seen.push(u32::from_be_bytes(bytes)),
                    Err(_) if end.load(Ordering::Relaxed) => quiet += 1,
                    Err(_) => {}
                }
            }
            seen
        });
        let socket = from.netns.with(|| UdpSocket::bind("0.0.0.0:0").expect("a socket"));
        let end = is_over.clone();
        let sender = std::thread::spawn(move || {
            let mut sent = 0u32;
            while !end.load(Ordering::Relaxed) {
                if socket.send_to(&sent.to_be_bytes(), target).is_ok() {
                    sent += 1;
                }
                std::thread::sleep(Duration::from_micros(500));
            }
            u64::from(sent)
        });
        Numbered { is_over, sender, receiver }
    }

    /// Ends when all that is on its way has had time to arrive.
    pub fn finish(self) -> Counts {
        self.is_over.store(true, Ordering::Relaxed);
        let sent = self.sender.join().expect("it sends");
        let mut seen = self.receiver.join().expect("it receives");
        let arrived = seen.len() as u64;
        seen.sort_unstable();
        seen.dedup();
        let once = seen.len() as u64;
        Counts { sent, lost: sent.saturating_sub(once), twice: arrived - once }
    }
}
