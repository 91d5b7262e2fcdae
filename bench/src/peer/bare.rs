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
    hook: Hook,
    netns: Netns,
    held: Vec<Held>,
}

/// A program at a port, as long as it is held.
enum Held {
    Xdp { _link: Link },
    Tc { _link: OwnedFd },
}

impl Bare {
    /// At the driver, through a devmap.
    pub fn xdp() -> Bare {
        Bare { hook: Hook::Xdp, netns: Netns::new(), held: Vec::new() }
    }

    /// At the skb hook.
    pub fn tc() -> Bare {
        Bare { hook: Hook::Tc, netns: Netns::new(), held: Vec::new() }
    }
}

impl Peer for Bare {
    fn netns(&self) -> &Netns {
        &self.netns
    }

    fn add_ports(&mut self, ports: &[Port; 2]) -> Result<()> {
        let (hook, [one, two]) = (self.hook, ports.clone().map(|p| p.ifindex));
        let ways = [(one, two), (two, one)];
        self.held = self.netns.with(move || {
            ways.into_iter().map(|(from, to)| redirect(hook, from, to)).collect::<Result<_>>()
        })?;
        Ok(())
    }

    fn install(&mut self, _: Rules) -> Result<()> {
        Ok(())
    }

    fn settings(&self) -> String {
        let how = match self.hook {
            Hook::Xdp => "a devmap redirect at XDP in the driver",
            Hook::Tc => "bpf_redirect at tcx ingress",
        };
        format!("{how}; looks at no packet and has no rules")
    }
}

fn redirect(hook: Hook, from: u32, to: u32) -> Result<Held> {
    let programs = Programs::load(Load { hook, output: to, frags: false })?;
    Ok(match hook {
        Hook::Xdp => {
            programs.set_way(1, to)?;
            Held::Xdp { _link: programs.attach_xdp("bare", from)? }
        }
        Hook::Tc => Held::Tc { _link: tcx_ingress(programs.program("bare")?.as_fd(), from)? },
    })
}
