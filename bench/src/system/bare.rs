// SPDX-License-Identifier: Apache-2.0
//! Redirects with nothing else: the limits.

use super::Instance;
use crate::programs::{Attached, Hook, Programs};
use crate::topology::Port;
use anyhow::{Result, bail};
use slipswitch_tests::harness::Netns;

/// Redirects each port's packets to the other port.
pub struct Bare {
    netns: Netns,
    hook: Hook,
    program: &'static str,
    settings: &'static str,
    attached: Vec<Attached>,
}

impl Bare {
    pub fn xdp() -> Bare {
        let settings = "a devmap redirect at XDP in the driver; reads no packet and has no rules";
        Bare::new(Hook::Xdp, "bare", settings)
    }

    /// The redirect of a switch that has flows.
    pub fn lookup() -> Bare {
        let settings = "the same after one memory access for each packet: 16 bytes of the flow \
                        have its output and its counter; they are found by the source address, \
                        nothing is compared, and there are no rules";
        Bare::new(Hook::Xdp, "lookup", settings)
    }

    pub fn tc() -> Bare {
        let settings = "bpf_redirect at tcx ingress; reads no packet and has no rules";
        Bare::new(Hook::Tc, "bare", settings)
    }

    /// The redirect of a switch whose ports are containers.
    pub fn tc_peer() -> Bare {
        let settings = "bpf_redirect_peer at tcx ingress: a packet enters the other end of the \
                        veth pair and skips the device of the port; reads no packet and has no \
                        rules";
        Bare::new(Hook::Tc, "bare_peer", settings)
    }

    fn new(hook: Hook, program: &'static str, settings: &'static str) -> Bare {
        Bare { netns: Netns::new(), hook, program, settings, attached: Vec::new() }
    }
}

impl Instance for Bare {
    fn netns(&self) -> &Netns {
        &self.netns
    }

    fn add_ports(&mut self, first: u32, ports: &[Port]) -> Result<()> {
        let (1, [one, two]) = (first, ports) else { bail!("this system has two ports") };
        let (hook, program, one, two) = (self.hook, self.program, one.ifindex, two.ifindex);
        let redirect = move |(from, to)| {
            let programs = Programs::load(hook, to)?;
            if hook == Hook::Xdp {
                programs.redirect(1, to, None)?;
            }
            programs.attach(program, from)
        };
        let ways = [(one, two), (two, one)];
        self.attached =
            self.netns.with(move || ways.into_iter().map(redirect).collect::<Result<_>>())?;
        Ok(())
    }

    fn settings(&self) -> String {
        self.settings.to_owned()
    }
}
