//! The userspace datapath over real veth pairs, in a network namespace of its own. Needs root.

use super::{FLOW_LIMIT, Fixture, LARGE_MTU, MTU, PORTS, finished};
use clock::Clock;
use datapath::{Datapath, LookupStats, PortNo, PortSpec};
use datapath_userspace::{Config, UserspaceDatapath};
use netdev::{Kind, OpenSpec, Opened, PacketPool};
use packet::Packet;
use std::io::Write;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// Longest wait for a packet to go through.
const PATIENCE: Duration = Duration::from_secs(5);
/// So long a frame that the kernel has counted may take.
const QUIET: Duration = Duration::from_millis(500);

/// A network namespace that goes when this is dropped.
struct Namespace(String);

impl Namespace {
    fn new() -> Namespace {
        let name = format!("slip-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        ip(&["netns", "add", &name], "");
        Namespace(name)
    }

    /// Moves the calling thread into it.
    fn enter(&self) {
        let path = format!("/run/netns/{}", self.0);
        let file = std::fs::File::open(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
        rustix::thread::move_into_link_name_space(
            file.as_fd(),
            Some(rustix::thread::LinkNameSpaceType::Network),
        )
        .expect("root may enter a network namespace");
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let deleted = Command::new("ip").args(["netns", "del", &self.0]).status();
        if !deleted.is_ok_and(|s| s.success()) {
            eprintln!("could not remove network namespace {}", self.0);
        }
    }
}

/// Runs `ip`, which must succeed.
fn ip(args: &[&str], input: &str) {
    let mut child = Command::new("ip")
        .args(args)
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("ip (Debian package iproute2) is installed");
    child.stdin.take().expect("piped").write_all(input.as_bytes()).expect("ip reads its input");
    let output = child.wait_with_output().expect("ip ends");
    assert!(output.status.success(), "ip {args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The userspace datapath with `AF_PACKET` ports; the test sits at the other ends of the pairs.
pub struct UserspaceVeth {
    clock: Clock,
    datapath: Arc<dyn Datapath>,
    userspace: Arc<UserspaceDatapath>,
    peers: Vec<Mutex<Peer>>,
    _namespace: Namespace,
}

struct Peer {
    device: Opened,
    pool: PacketPool,
    received: Vec<Packet>,
    /// All that were ever received.
    total: u64,
}

impl Peer {
    /// True when everything that the kernel counts as sent to this end is here.
    fn has_all(&self) -> bool {
        let counted = self.device.device.stats().ok().and_then(|s| s.rx_packets);
        counted.is_none_or(|n| self.total >= n)
    }

    /// Takes what is there now; returns whether there was anything.
    fn drain(&mut self) -> bool {
        let before = self.received.len();
        for queue in &mut self.device.queues {
            while queue
                .recv(&mut self.received, &mut self.pool, 64)
                .expect("the peer device is there")
                > 0
            {}
        }
        self.total += (self.received.len() - before) as u64;
        self.received.len() > before
    }
}

impl UserspaceVeth {
    /// Runs `test` with a new fixture, on a thread that is in the fixture's namespace. Without
    /// root it says so and does nothing.
    pub fn run(test: impl FnOnce(UserspaceVeth) + Send + 'static) {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: veth pairs need root");
            return;
        }
        let thread = std::thread::Builder::new()
            .name("veth-case".to_owned())
            .spawn(move || test(UserspaceVeth::new()));
        if let Err(panic) = thread.expect("a thread can be started").join() {
            std::panic::resume_unwind(panic);
        }
    }

    fn new() -> UserspaceVeth {
        let namespace = Namespace::new();
        namespace.enter();
        // The kernel must not talk on the links by itself.
        std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1")
            .expect("root may set sysctls");
        let mut batch = String::new();
        for i in 1..=PORTS {
            let mtu = if i == 1 { LARGE_MTU } else { MTU };
            batch += &format!("link add p{i} mtu {mtu} type veth peer name h{i} mtu {LARGE_MTU}\n");
            batch += &format!("link set p{i} up\nlink set h{i} up\n");
        }
        ip(&["-batch", "-"], &batch);
        let clock = Clock::new();
        let config = Config { max_flows: FLOW_LIMIT, ..Config::default() };
        let userspace = UserspaceDatapath::new("netdev@veth", clock.clone(), config);
        let datapath: Arc<dyn Datapath> = userspace.clone();
        let mut peers = Vec::new();
        for i in 1..=PORTS {
            let spec = PortSpec {
                name: format!("p{i}"),
                kind: "system".to_owned(),
                ..PortSpec::default()
            };
            datapath.add_port(&spec).unwrap_or_else(|e| panic!("p{i}: {e}"));
            let device =
                netdev::open(&OpenSpec::new(format!("h{i}"), Kind::System)).expect("a peer opens");
            let peer = Peer { device, pool: PacketPool::default(), received: Vec::new(), total: 0 };
            peers.push(Mutex::new(peer));
        }
        UserspaceVeth { clock, datapath, userspace, peers, _namespace: namespace }
    }

    /// The datapath, with what the contract does not have.
    pub fn userspace(&self) -> &Arc<UserspaceDatapath> {
        &self.userspace
    }

    /// Packets that were looked up first, which is once for each that came in; later passes count
    /// more.
    fn processed(&self) -> u64 {
        let LookupStats { hits, misses, lost, .. } = self.datapath.lookups();
        hits + misses + lost
    }
}

impl Drop for UserspaceVeth {
    fn drop(&mut self) {
        self.datapath.shutdown();
    }
}

impl Fixture for UserspaceVeth {
    fn datapath(&self) -> &Arc<dyn Datapath> {
        &self.datapath
    }

    fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The kernel drops a tagged frame with less than two bytes behind its tag and inner type
    /// (`skb_vlan_untag`).
    fn carries(&self, frame: &[u8]) -> bool {
        let tagged = matches!(frame.get(12..14), Some([0x81, 0] | [0x88, 0xa8]));
        !tagged || frame.len() >= 20
    }

    fn inject(&self, port: PortNo, packet: Packet) {
        self.inject_all(port, vec![packet]);
    }

    fn send(&self, port: PortNo, packets: Vec<Packet>) {
        let peer = self.peers[port.0 as usize - 1]
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let report = peer.device.sender.send(&packets);
        assert_eq!(report.sent, packets.len() as u64, "the peer could not send: {report:?}");
    }

    fn inject_all(&self, port: PortNo, packets: Vec<Packet>) {
        let wanted = self.processed() + packets.len() as u64;
        self.send(port, packets);
        let start = Instant::now();
        // Counters are published when a batch is done.
        while self.processed() < wanted {
            assert!(start.elapsed() < PATIENCE, "a packet did not arrive at the datapath");
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    fn collect(&self, port: PortNo) -> Vec<Vec<u8>> {
        let mut peer = self.peers[port.0 as usize - 1]
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        // What was sent is counted by the kernel at once, and may be delivered a moment later.
        peer.drain();
        let mut last = Instant::now();
        while !peer.has_all() && last.elapsed() < QUIET {
            if peer.drain() {
                last = Instant::now();
            } else {
                std::thread::sleep(Duration::from_micros(100));
            }
        }
        finished(&std::mem::take(&mut peer.received))
    }
}
