// SPDX-License-Identifier: Apache-2.0
//! Veth pairs: Slipswitch's ports are at one end, forced to a tier, the test sits at the other.

use crate::player::Broken;
use crate::wire::{PORTS, Ran, Wire};

/// Those that are not members of a bond.
const PAIRS: usize = 6;
use datapath::Tier;
use packet::Packet;
use slipswitch_tests::behaviour::Peer;
use slipswitch_tests::harness::{Netns, wait_until};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::{Duration, Instant};
use unixctl::client::Connection;

/// A port that takes longer to be at its tier is not there.
const PATIENCE: Duration = Duration::from_secs(5);
/// A packet that takes longer, and does not appear in [`TURNS`] readings, is lost.
const LOST: Duration = Duration::from_millis(500);
const TURNS: usize = 300;

/// The pairs pN and hN in the switch's namespace.
pub struct Devices {
    netns: Netns,
    tier: Tier,
    peers: BTreeMap<&'static str, Peer>,
    /// Those of the case.
    present: BTreeSet<&'static str>,
    ran: Ran,
}

/// The switch's counters of received packets.
#[derive(Clone, Copy, Debug)]
struct Counts {
    /// Lookups in a first pass, in all tiers; later passes may add to them.
    looked_up: u64,
    /// Packets that BPF sent up.
    up: u64,
    /// Packets that packet threads got and are done with.
    received: u64,
}

/// Packets of each megaflow, and whether all of them stay at its port's tiers.
type Flows = BTreeMap<String, (u64, bool)>;

impl Devices {
    /// Makes the pairs in `netns`. Packets from there are as `tier` needs them.
    pub fn new(netns: &Netns, tier: Tier) -> Devices {
        let mut script = String::new();
        for port in &PORTS[..PAIRS] {
            let peer = peer(port);
            let _ = writeln!(script, "ip link add {port} type veth peer name {peer}");
            let _ = writeln!(script, "ip link set {port} up; ip link set {peer} up");
            if tier == Tier::Xdp {
                let off = "tx off tso off gso off txvlan off tx-vlan-stag-hw-insert off";
                let _ = writeln!(script, "ethtool -K {peer} {off} gro on");
            }
        }
        netns.sh(&format!("set -e\n{script}"));
        // Before the ports, so that nothing of what comes out is missed.
        let peers = netns
            .with(|| PORTS[..PAIRS].iter().map(|port| (*port, Peer::open(&peer(port)))).collect());
        let present = BTreeSet::new();
        Devices { netns: netns.clone(), tier, peers, present, ran: Ran::default() }
    }

    /// The words of `arguments` for ports that are devices at the tier.
    fn word<'a>(&self, word: &'a str) -> Option<std::borrow::Cow<'a, str>> {
        match word {
            "datapath_type=dummy" => Some("datapath_type=netdev".into()),
            "type=dummy" => Some(format!("other_config:tier={}", self.tier.name()).into()),
            _ if word.starts_with("options:tx_pcap=") => None,
            _ => Some(word.into()),
        }
    }

    /// Waits until a packet that was sent after the reading `before` is processed.
    fn wait_until_processed(
        &self,
        control: &mut Connection,
        before: Counts,
    ) -> Result<Counts, Broken> {
        let start = Instant::now();
        for turn in 0.. {
            let now = counts(control)?;
            let is_idle = now.up - before.up == now.received - before.received;
            // By turns, too: this machine may have stood still.
            let is_lost = turn > TURNS && start.elapsed() > LOST;
            if now.looked_up > before.looked_up && is_idle || is_lost {
                return Ok(now);
            }
        }
        unreachable!("turns have no end")
    }

    /// Judges a packet that was sent again: if its flows are all at the tier, no packet thread may
    /// have received it.
    fn judge(&mut self, before: &Flows, after: &Flows, came: u64) -> String {
        let touched = |(ufid, (packets, _)): &(&String, &(u64, bool))| {
            before.get(*ufid).is_none_or(|(before, _)| before != packets)
        };
        // A flow that is new was missed.
        let was_offloaded =
            |ufid: &String| before.get(ufid).is_some_and(|(_, offloaded)| *offloaded);
        let mut touched = after.iter().filter(touched).peekable();
        let is_flow = touched.peek().is_some();
        let offloaded = is_flow && touched.all(|(ufid, _)| was_offloaded(ufid));
        self.ran.again += 1;
        self.ran.in_bpf += u64::from(came == 0);
        self.ran.offloaded += u64::from(offloaded);
        match offloaded && came > 0 {
            true => format!("its flows are at {}, and it went up\n", self.tier.name()),
            false => String::new(),
        }
    }
}

fn peer(port: &str) -> String {
    port.replace('p', "h")
}

impl Wire for Devices {
    fn bridge(&self) -> String {
        self.arguments(&slipswitch_tests::harness::dummy_bridge_line("br0", 4))
    }

    fn arguments(&self, of_case: &str) -> String {
        let words: Vec<_> = of_case.split(' ').filter_map(|word| self.word(word)).collect();
        words.join(" ")
    }

    fn begin(&mut self, control: &mut Connection, arguments: &str) -> Result<(), Broken> {
        let bridges = ["br0", "br1"];
        let there = bridges.iter().filter(|b| arguments.contains(&format!("add-br {b} ")));
        // A device that ovs-vsctl refused is absent. That can happen while a case is made small.
        let up = |b| format!("if ip link show {b} > /dev/null 2>&1; then ip link set {b} up; fi\n");
        let up: String = there.map(up).collect();
        self.netns.sh(&format!("set -e\n{up}"));
        self.present = PORTS
            .into_iter()
            .filter(|p| arguments.contains(&format!(" {p} ")))
            .filter(|p| control.call("slipswitch/tiers", &[p]).is_ok())
            .collect();
        for port in &self.present {
            let mut said = String::new();
            let at_tier = wait_until(PATIENCE, || {
                said = control.call("slipswitch/tiers", &[port]).unwrap_or_else(|e| e.to_string());
                said.lines().any(|line| {
                    let mut words = line.split_whitespace();
                    words.next() == Some(self.tier.name()) && words.next() == Some("yes")
                })
            });
            if !at_tier {
                return Err(Broken(format!("{port} is not at {}:\n{said}", self.tier.name())));
            }
        }
        Ok(())
    }

    fn send(
        &mut self,
        control: &mut Connection,
        port: &'static str,
        frame: &[u8],
        round: usize,
    ) -> Result<String, Broken> {
        if !self.present.contains(port) {
            return Ok("no such dummy netdev\n".to_owned());
        }
        let before = counts(control)?;
        let flows_before = if round == 0 { Flows::new() } else { flows(control)? };
        let peer = self.peers.get(port).ok_or_else(|| Broken(format!("no port {port}")))?;
        peer.send(&[Packet::from_slice(frame)]);
        let after = self.wait_until_processed(control, before)?;
        if after.looked_up == before.looked_up {
            return Ok("it did not arrive at the switch\n".to_owned());
        }
        if round == 0 {
            return Ok(String::new());
        }
        let flows_after = flows(control)?;
        Ok(self.judge(&flows_before, &flows_after, after.received - before.received))
    }

    fn taken(&mut self) -> BTreeMap<&'static str, Vec<Vec<u8>>> {
        let taken = self.peers.iter_mut().map(|(port, peer)| (*port, peer.collect()));
        taken.filter(|(_, frames)| !frames.is_empty()).collect()
    }

    fn forget(&mut self) {
        self.taken();
    }

    fn ran(&self) -> Option<Ran> {
        Some(self.ran)
    }
}

fn counts(control: &mut Connection) -> Result<Counts, Broken> {
    // A pass adds up BPF's counts of a flow.
    let commands = [
        "revalidator/wait",
        "dpctl/show",
        "dpctl/offload-stats-show",
        "dpif-netdev/pmd-stats-show",
    ];
    for command in commands {
        control.send::<&str>(command, &[])?;
    }
    control.receive()?;
    let (show, offload, threads) = (control.receive()?, control.receive()?, control.receive()?);
    let lookups = ["hit:", "missed:", "lost:"].map(|name| numbers(&show, name));
    Ok(Counts {
        looked_up: lookups.iter().sum(),
        up: numbers(&offload, "in fast tiers, "),
        received: numbers(&threads, "packets received: "),
    })
}

/// The sum of all numbers after `name`.
fn numbers(text: &str, name: &str) -> u64 {
    let behind = text.split(name).skip(1);
    behind.filter_map(number).sum()
}

/// The number that a text starts with.
fn number(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.get(..end)?.parse().ok()
}

fn flows(control: &mut Connection) -> Result<Flows, Broken> {
    let text = control.call("dpctl/dump-flows", &["-m"])?;
    let line = |line: &str| {
        let ufid = line.split(',').next()?.to_owned();
        let packets = number(line.split_once(", packets:")?.1)?;
        // A `ct` of such a flow passes packets without an established connection up.
        let (_, actions) = line.split_once("actions:")?;
        let tracks = actions.split(['(', ',', ')']).any(|word| word == "ct");
        let stays = line.contains(", offloaded:yes, ") && !tracks;
        Some((ufid, (packets, stays)))
    };
    Ok(text.lines().filter_map(line).collect())
}
