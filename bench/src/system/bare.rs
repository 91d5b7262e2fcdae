// SPDX-License-Identifier: Apache-2.0
//! Redirects with nothing else: the limits.

use super::Instance;
use crate::programs::{Attached, Hook, Load, Programs};
use crate::topology::Port;
use anyhow::Result;
use slipswitch_tests::harness::Netns;

/// Redirects each port's packets to the other port.
pub struct Bare {
    limit: Limit,
    netns: Netns,
    attached: Vec<Attached>,
}

/// A program that redirects.
#[derive(Clone, Copy)]
pub struct Limit {
    hook: Hook,
    program: &'static str,
    /// The program needs memory for each flow.
    lookup: bool,
    settings: &'static str,
}

pub const XDP: Limit = Limit {
    hook: Hook::Xdp,
    program: "bare",
    lookup: false,
    settings: "a devmap redirect at XDP in the driver; reads no packet and has no rules",
};
pub const LOOKUP: Limit = Limit {
    hook: Hook::Xdp,
    program: "lookup",
    lookup: true,
    settings: "the same after one memory access for each packet: 16 bytes of the flow have its output \
               and its counter; they are found by the source address, nothing is compared, and \
               there are no rules",
};
pub const TC: Limit = Limit {
    hook: Hook::Tc,
    program: "bare",
    lookup: false,
    settings: "bpf_redirect at tcx ingress; reads no packet and has no rules",
};

impl Bare {
    pub fn new(limit: Limit) -> Bare {
        Bare { limit, netns: Netns::new(), attached: Vec::new() }
    }
}

impl Instance for Bare {
    fn netns(&self) -> &Netns {
        &self.netns
    }

    fn add_ports(&mut self, ports: &[Port; 2]) -> Result<()> {
        let (limit, [one, two]) = (self.limit, ports.clone().map(|p| p.ifindex));
        self.attached = self.netns.with(move || {
            let ways = [(one, two), (two, one)].into_iter();
            ways.map(|(from, to)| redirect(limit, from, to)).collect::<Result<_>>()
        })?;
        Ok(())
    }

    fn settings(&self) -> String {
        self.limit.settings.to_owned()
    }
}

fn redirect(limit: Limit, from: u32, to: u32) -> Result<Attached> {
    let Limit { hook, program, lookup, .. } = limit;
    let programs = Programs::load(Load { output: to, lookup, ..Load::at(hook) })?;
    if hook == Hook::Xdp {
        programs.set_way(1, to)?;
    }
    programs.attach(program, from)
}
