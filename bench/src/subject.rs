// SPDX-License-Identifier: Apache-2.0
//! The switch's BPF datapath without a daemon: two ports and the flows of a benchmark.

use crate::generator::{PORTS, TARGET, source};
use crate::object::{Hook, attached};
use anyhow::{Context, Result, anyhow};
use clock::Clock;
use datapath::{Action, Megaflow, PortNo, Side, Ufid};
use datapath_bpf::{Attachment, BpfDatapath, Config, HookSet, Hooks, XdpMode};
use flow::{Field, Key, Mask, Match};
use packet::{ethertype, ip_proto};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

/// The port that traffic comes from.
pub const LEFT: PortNo = PortNo(1);
/// The port that it goes to.
pub const RIGHT: PortNo = PortNo(2);
/// How often a daemon lets the datapath tidy up, and the times until it has nothing to do.
const UPKEEP: Duration = Duration::from_millis(250);
const UPKEEPS: u32 = 4;
/// Bits of `nw_frag` that count in every IP flow.
const FRAG_BITS: u8 = 3;

/// The datapath, with all that it was given; gone when dropped.
pub struct Subject {
    /// The datapath itself.
    pub datapath: BpfDatapath,
}

/// Hooks of a port.
pub fn hooks(tc: bool, xdp: bool) -> Hooks {
    Hooks { tc, xdp: xdp.then_some(XdpMode::Driver) }
}

impl Subject {
    /// Opens a datapath of default sizes whose ports are two devices of the calling thread's namespace.
    ///
    /// # Errors
    /// When this machine cannot run it, or a device does not take it.
    pub fn open(left: u32, right: u32, left_hooks: Hooks) -> Result<Subject> {
        let datapath = BpfDatapath::open(Config::default(), Clock::new())?;
        let subject = Subject { datapath };
        for (port, ifindex, hooks) in [(LEFT, left, left_hooks), (RIGHT, right, hooks(true, false))]
        {
            let attachment = Attachment { ifindex, side: Side::Device, hooks, mtu: 1500, up: true };
            subject.datapath.attach(port, &attachment)?;
        }
        subject.datapath.set_split_target(RIGHT, true);
        subject.datapath.set_devmap(RIGHT, true).context("the map of devices")?;
        Ok(subject)
    }

    /// Puts in a rule each for these flows of the generator, exact in what identifies them.
    ///
    /// # Errors
    /// When one is refused.
    pub fn install_exact(&self, flows: Range<u32>) -> Result<()> {
        flows.map(exact).try_for_each(|flow| self.install(&flow))
    }

    /// Puts in a rule each for these flows of the generator, each under a mask of its own.
    ///
    /// # Errors
    /// When one is refused.
    pub fn install_masks(&self, flows: Range<u32>) -> Result<()> {
        flows.map(masked).try_for_each(|flow| self.install(&flow))
    }

    /// Puts in a rule for all flows of the generator, and one for the first alone, so that keys of
    /// all others differ, too.
    ///
    /// # Errors
    /// When one is refused.
    pub fn install_few(&self) -> Result<()> {
        [exact(0), any(1)].iter().try_for_each(|flow| self.install(flow))
    }

    fn install(&self, flow: &Megaflow) -> Result<()> {
        let hooks = self.datapath.install(flow, HookSet::all());
        let hooks = hooks.map_err(|e| anyhow!("a flow was refused: {}", e.meaning()))?;
        anyhow::ensure!(hooks == HookSet::all(), "a flow does not run at both hooks");
        Ok(())
    }

    /// Lets the datapath do what it does beside the packets, until nothing is left to do.
    pub fn settle(&self) {
        for _ in 0..UPKEEPS {
            self.datapath.maintain();
            thread::sleep(UPKEEP);
        }
    }

    /// The program at a device's hook.
    ///
    /// # Errors
    /// When there is none.
    pub fn entry(hook: Hook, ifindex: u32) -> Result<OwnedFd> {
        attached(hook, ifindex).with_context(|| {
            format!("no link of a program to {} (tcx needs Linux 6.6)", hook.name())
        })
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        self.datapath.close(true);
    }
}

/// What every rule looks at.
fn common() -> (Key, Mask) {
    let (mut key, mut mask) = (Key::ZERO, Mask::WILDCARD);
    for field in [Field::RecircId, Field::PacketType, Field::InPortOxm, Field::EthType] {
        mask.set_exact(field);
    }
    key.in_port.set(LEFT.0);
    key.dl_type.set(ethertype::IPV4);
    mask.0.nw_frag = FRAG_BITS;
    (key, mask)
}

/// The same, and the IPv4 source, which is the flow's.
fn from_source(flow: u32) -> (Key, Mask) {
    let (mut key, mut mask) = common();
    key.nw_src.set(source(flow).to_bits());
    mask.0.nw_src.set(u32::MAX);
    (key, mask)
}

/// The rule for one flow of the generator, as a 5-tuple.
pub fn exact(flow: u32) -> Megaflow {
    let (mut key, mut mask) = from_source(flow);
    key.nw_dst.set(TARGET.to_bits());
    key.nw_proto = ip_proto::UDP;
    key.tp_src.set(PORTS.0);
    key.tp_dst.set(PORTS.1);
    mask.0.nw_dst.set(u32::MAX);
    mask.0.nw_proto = u8::MAX;
    mask.0.tp_src.set(u16::MAX);
    mask.0.tp_dst.set(u16::MAX);
    megaflow(flow, &key, &mask)
}

/// The rule for one flow of the generator, under a mask that no other flow below 256 has: the
/// bits of the flow's number choose bits of the destination that count.
fn masked(flow: u32) -> Megaflow {
    let (mut key, mut mask) = from_source(flow);
    key.nw_dst.set(TARGET.to_bits());
    mask.0.nw_dst.set(0xffff_ff00 | (flow & 0xff));
    megaflow(flow, &key, &mask)
}

/// A rule for all flows of the generator.
fn any(number: u32) -> Megaflow {
    let (key, mask) = common();
    megaflow(number, &key, &mask)
}

fn megaflow(flow: u32, key: &Key, mask: &Mask) -> Megaflow {
    Megaflow {
        ufid: Ufid(u128::from(flow) + 1),
        matching: Match::new(key, mask),
        actions: vec![Action::Output(RIGHT)].into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn rules_take_the_generators_frame() {
        let frame = crate::generator::frame(64);
        let (key, _) = flow::extract::extract(&frame, LEFT.0);
        assert!(exact(0).matching.matches(&key));
        assert!(!exact(1).matching.matches(&key));
        assert!(masked(0).matching.matches(&key));
    }

    #[test]
    fn each_of_128_rules_has_a_mask_of_its_own() {
        let masks: HashSet<_> = (0..128).map(|f| *masked(f).matching.mask()).collect();
        assert_eq!(masks.len(), 128);
    }
}
