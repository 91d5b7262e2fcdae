// SPDX-License-Identifier: Apache-2.0
//! Redirects with nothing else: the limits.

use super::{Peer, Rules};
use crate::link::tcx_ingress;
use crate::object::{Hook, Load, Programs};
use crate::topology::Port;
use anyhow::Result;
use libbpf_rs::Link;
use slipswitch_tests::harness::Netns;
use std::os::fd::{AsFd, OwnedFd};

/// Each port's packets go out of the other.
pub struct Bare {
    limit: Limit,
    netns: Netns,
    held: Vec<Held>,
}

/// A program that redirects.
#[derive(Clone, Copy)]
struct Limit {
    hook: Hook,
    program: &'static str,
    settings: &'static str,
}

const XDP: Limit = Limit {
    hook: Hook::Xdp,
    program: "bare",
    settings: "a devmap redirect at XDP in the driver; looks at no packet and has no rules",
};
const LOOKUP: Limit = Limit {
    hook: Hook::Xdp,
    program: "lookup",
    settings: "the same behind one access to memory for each packet: 16 bytes that are the flow's \
               own say where it goes, and count it; they are found by the source address, nothing \
               is compared, and there are no rules",
};
const TC: Limit = Limit {
    hook: Hook::Tc,
    program: "bare",
    settings: "bpf_redirect at tcx ingress; looks at no packet and has no rules",
};

/// A program at a port, as long as it is held.
enum Held {
    Xdp { _link: Link },
    Tc { _link: OwnedFd },
}

impl Bare {
    /// At the driver, through a devmap.
    pub fn xdp() -> Bare {
        Bare::new(XDP)
    }

    /// The same, and each flow of the generator has memory.
    pub fn lookup() -> Bare {
        Bare::new(LOOKUP)
    }

    /// At the skb hook.
    pub fn tc() -> Bare {
        Bare::new(TC)
    }

    fn new(limit: Limit) -> Bare {
        Bare { limit, netns: Netns::new(), held: Vec::new() }
    }
}

impl Peer for Bare {
    fn netns(&self) -> &Netns {
        &self.netns
    }

    fn add_ports(&mut self, ports: &[Port; 2]) -> Result<()> {
        let (limit, [one, two]) = (self.limit, ports.clone().map(|p| p.ifindex));
        let ways = [(one, two), (two, one)];
        self.held = self.netns.with(move || {
            ways.into_iter().map(|(from, to)| redirect(limit, from, to)).collect::<Result<_>>()
        })?;
        Ok(())
    }

    fn install(&mut self, _: Rules) -> Result<()> {
        Ok(())
    }

    fn settings(&self) -> String {
        self.limit.settings.to_owned()
    }
}

fn redirect(limit: Limit, from: u32, to: u32) -> Result<Held> {
    let Limit { hook, program, .. } = limit;
    let lookup = program == LOOKUP.program;
    let programs = Programs::load(Load { output: to, lookup, ..Load::at(hook) })?;
    Ok(match hook {
        Hook::Xdp => {
            programs.set_way(1, to)?;
            Held::Xdp { _link: programs.attach_xdp(program, from)? }
        }
        Hook::Tc => Held::Tc { _link: tcx_ingress(programs.program(program)?.as_fd(), from)? },
    })
}
