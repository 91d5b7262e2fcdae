// SPDX-License-Identifier: Apache-2.0
//! A datapath over real veth pairs, in a network namespace of its own. Needs root.

use super::carded::{self, Carded};
use super::fast::{Fast, Flower};
use super::peer::{self, Peer};
use super::{FLOW_LIMIT, Fixture, LARGE_MTU, LARGE_MTU_OF_ONE_BUFFER, MTU, PORTS, Ran, finished};
use crate::harness::{Netns, patient, skip, without_root};
use clock::Clock;
use conntrack::Table;
use datapath::offload::ProviderSlot;
use datapath::{Datapath, LookupStats, PortKind, PortNo, PortSpec, Tier};
use datapath_bpf::ct_memory::BpfMemory;
use datapath_bpf::grace::Grace;
use datapath_model::Card;
use datapath_userspace::{Config, ConnectionTable, Makers, UserspaceDatapath};
use packet::Packet;
use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Longest wait for a packet to go through, of [`patient`].
const ARRIVAL: Duration = Duration::from_secs(5);

/// Connections of a chunk of the table that BPF shares.
const CONNS: usize = 4096;

/// The userspace datapath with `AF_PACKET` ports, alone or below BPF; the test sits at the other
/// ends of the pairs.
pub struct Veth {
    clock: Clock,
    datapath: Arc<dyn Datapath>,
    userspace: Arc<UserspaceDatapath>,
    fast: Option<Fast>,
    peers: Vec<Mutex<Peer>>,
    large_mtu: u32,
}

impl Veth {
    /// Runs `test` with a new fixture, on a thread that is in the fixture's namespace. `tier` is
    /// the fastest that its ports are at. Where this cannot be it says so and does nothing.
    ///
    /// # Panics
    ///
    /// When the fixture does not have the tier.
    pub fn run(tier: Tier, test: impl FnOnce(Veth) + Send) {
        Veth::run_under(tier, Vec::new(), |fixture, _| test(fixture));
    }

    /// The same, under a card that sees all packets first.
    pub fn run_under_card(tier: Tier, test: impl FnOnce(Carded<Veth>) + Send) {
        Veth::run_under(tier, vec![carded::slot()], |fixture, card| {
            test(Carded::new(fixture, card.expect("a card is asked for")));
        });
    }

    fn run_under(
        tier: Tier,
        above: Vec<ProviderSlot>,
        test: impl FnOnce(Veth, Option<Arc<Card>>) + Send,
    ) {
        let uses_bpf = uses_bpf(tier);
        if without_root() || tier == Tier::Tc && Flower::is_absent() {
            return;
        }
        Netns::new().with(|| match Veth::new(tier, uses_bpf, above) {
            Ok((fixture, card)) => test(fixture, card),
            Err(why) => skip(&why.to_string()),
        });
    }

    /// On a thread that is in the fixture's namespace.
    fn new(
        tier: Tier,
        uses_bpf: bool,
        above: Vec<ProviderSlot>,
    ) -> Result<(Veth, Option<Arc<Card>>), datapath_bpf::Unavailable> {
        let is_split = tier != Tier::Xdp || datapath_bpf::load::have_frags();
        let large_mtu = match tier {
            // Filters have no flow to a port with a smaller MTU.
            Tier::Tc => MTU,
            _ if is_split => LARGE_MTU,
            _ => LARGE_MTU_OF_ONE_BUFFER,
        };
        add_links(large_mtu);
        if tier == Tier::Xdp {
            (1..=PORTS).for_each(prepare_for_xdp);
        }
        let clock = Clock::new();
        let config = Config { max_flows: FLOW_LIMIT, ..Config::default() };
        let memory = uses_bpf.then(|| BpfMemory::open(None, CONNS)).transpose()?;
        let memory = memory.map(|(memory, _)| Arc::new(memory));
        let table = memory.clone().map(|memory| {
            let table = Table::open(memory, [3, 5]).expect("the memory is new");
            let barrier = Box::new(Grace::new().expect("BPF is there"));
            ConnectionTable { table: Arc::new(table), barrier, makers: Makers::Daemon }
        });
        let table = table.unwrap_or_default();
        let userspace =
            UserspaceDatapath::with_connections("netdev@veth", clock.clone(), config, table);
        let has_card = !above.is_empty();
        let over = |memory: Arc<BpfMemory>| {
            let flower = (tier == Tier::Tc).then(datapath_tc::provider_slot);
            let above = above.into_iter().chain(flower).collect();
            Fast::over(&userspace, clock.clone(), tier, above, &memory)
        };
        let fast = memory.map(over).transpose()?;
        let placed = fast.as_ref().filter(|_| has_card).map(Fast::placed);
        let card = placed.map(|placed| carded::begin(placed, &userspace, clock.clone()));
        let datapath: Arc<dyn Datapath> = match &fast {
            Some(fast) => fast.placed().clone(),
            None => userspace.clone(),
        };
        let fixture = Veth {
            clock,
            datapath,
            userspace,
            fast,
            // Before the ports, so that nothing of what BPF sends is missed.
            peers: (1..=PORTS).map(|i| Mutex::new(Peer::open(&format!("h{i}")))).collect(),
            large_mtu,
        };
        (1..=PORTS).for_each(|i| fixture.add_port(i, tier));
        Ok((fixture, card))
    }

    fn add_port(&self, i: usize, tier: Tier) {
        let mut spec =
            PortSpec { name: format!("p{i}"), kind: PortKind::System, ..PortSpec::default() };
        if matches!(tier, Tier::Xdp | Tier::Tc) {
            spec.other_config.insert("tier".to_owned(), tier.name().to_owned());
        }
        let number = self.datapath.add_port(&spec).unwrap_or_else(|e| panic!("p{i}: {e}"));
        if let Some(fast) = &self.fast {
            fast.check_port(number);
        }
    }

    /// The userspace datapath, with what the contract does not have.
    pub fn userspace(&self) -> &Arc<UserspaceDatapath> {
        &self.userspace
    }

    /// Packets that were looked up first, which is once for each that came in; later passes count
    /// more.
    fn processed(&self) -> u64 {
        if let Some(fast) = &self.fast {
            fast.bring_up_to_date();
        }
        let LookupStats { hits, misses, lost, .. } = self.datapath.lookups();
        hits + misses + lost
    }

    fn peer(&self, port: PortNo) -> MutexGuard<'_, Peer> {
        let peer = &self.peers[port.0 as usize - 1];
        peer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Packets on the wire of what is sent as `packets`: before XDP a packet is whole.
    fn frames(&self, packets: &[Packet]) -> u64 {
        match &self.fast {
            Some(fast) if fast.tier() == Tier::Xdp => finished(packets).len() as u64,
            _ => packets.len() as u64,
        }
    }
}

/// Returns true when the fixture puts BPF over its userspace datapath to have this tier.
///
/// # Panics
///
/// When the fixture does not have the tier: the suite would run in userspace under its name.
fn uses_bpf(tier: Tier) -> bool {
    match tier {
        // Filters come before BPF, which takes the packets that they leave.
        Tier::Xdp | Tier::Tcx | Tier::Tc => true,
        Tier::Userspace => false,
        Tier::Kernel => panic!("veth pairs have no tier {}", tier.name()),
    }
}

pub(super) fn add_links(large_mtu: u32) {
    // The kernel must not talk on the links by itself.
    std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1")
        .expect("root may set sysctls");
    let mut batch = String::new();
    for i in 1..=PORTS {
        let mtu = if i == 1 { large_mtu } else { MTU };
        batch += &format!("link add p{i} mtu {mtu} type veth peer name h{i} mtu {large_mtu}\n");
        batch += &format!("link set p{i} up\nlink set h{i} up\n");
    }
    run("ip", &["-batch", "-"], &batch);
}

/// The other end of port `i` finishes checksums, segments and tags before it sends, and receives
/// what XDP redirects.
fn prepare_for_xdp(i: usize) {
    let name = format!("h{i}");
    let off = ["tx", "tso", "gso", "txvlan", "tx-vlan-stag-hw-insert"];
    let mut args = vec!["-K", &name];
    off.iter().for_each(|feature| args.extend([feature, "off"]));
    args.extend(["gro", "on"]);
    run("ethtool", &args, "");
}

impl Drop for Veth {
    fn drop(&mut self) {
        match &self.fast {
            Some(fast) => fast.placed().cleanup(),
            None => self.datapath.shutdown(),
        }
    }
}

impl Fixture for Veth {
    fn datapath(&self) -> &Arc<dyn Datapath> {
        &self.datapath
    }

    fn large_mtu(&self) -> u32 {
        self.large_mtu
    }

    fn clock(&self) -> &Clock {
        &self.clock
    }

    /// BPF has the kernel's clock.
    fn pass(&self, millis: u64) {
        self.clock.advance(millis);
        if self.fast.is_some() {
            std::thread::sleep(Duration::from_millis(millis));
        }
    }

    /// The lookup programs are changed when the same was found to be needed twice.
    fn maintain(&self) {
        if let Some(fast) = &self.fast {
            (0..3).for_each(|_| fast.placed().maintain());
        }
    }

    fn ran(&self) -> Option<Ran> {
        self.fast.as_ref().map(Fast::ran)
    }

    fn refused_by_flower(&self) -> BTreeSet<String> {
        self.fast.as_ref().map(Fast::refused_by_flower).unwrap_or_default()
    }

    fn carries(&self, frame: &[u8]) -> bool {
        peer::carries(frame)
    }

    fn inject(&self, port: PortNo, packet: Packet) {
        self.inject_all(port, vec![packet]);
    }

    fn send(&self, port: PortNo, packets: Vec<Packet>) {
        if let Some(fast) = &self.fast {
            fast.note_sent(self.frames(&packets));
        }
        self.peer(port).send(&packets);
    }

    fn inject_all(&self, port: PortNo, packets: Vec<Packet>) {
        if let Some(fast) = &self.fast {
            fast.offer_to_flower();
        }
        let wanted = self.processed() + self.frames(&packets);
        let before = self.fast.as_ref().map(|fast| fast.in_base(&packets));
        self.send(port, packets);
        let start = Instant::now();
        let wait = |done: &dyn Fn() -> bool| {
            while !done() {
                assert!(
                    start.elapsed() < patient(ARRIVAL),
                    "a packet did not arrive at the datapath"
                );
                std::thread::sleep(Duration::from_micros(50));
            }
        };
        // Counters are published when a batch is done.
        wait(&|| self.processed() >= wanted);
        if let Some(fast) = &self.fast {
            fast.wait_for_programs();
            wait(&|| fast.is_idle());
            fast.note_fallen_back(before.unwrap_or_default());
        }
    }

    fn collect(&self, port: PortNo) -> Vec<Vec<u8>> {
        self.peer(port).collect()
    }
}

/// Runs a command of iproute2 or ethtool in the calling thread's namespace; it must succeed.
fn run(command: &str, args: &[&str], input: &str) {
    let mut child = Command::new(command)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|e| panic!("{command}: {e} (Debian packages iproute2, ethtool)"));
    child.stdin.take().expect("piped").write_all(input.as_bytes()).expect("it reads its input");
    let output = child.wait_with_output().expect("it ends");
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command} {args:?}: {words}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "veth pairs have no tier ovs")]
    fn a_tier_that_the_fixture_lacks_is_refused() {
        Veth::run(Tier::Kernel, |_| ());
    }

    #[test]
    #[should_panic(expected = "veth pairs have no tier ovs")]
    fn a_tier_that_the_fixture_lacks_is_refused_under_a_card() {
        Veth::run_under_card(Tier::Kernel, |_| ());
    }
}
