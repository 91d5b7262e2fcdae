// SPDX-License-Identifier: Apache-2.0
//! The kernel's bridge.

use super::Instance;
use crate::generator::{SOURCE_MAC, TARGET_MAC};
use crate::netns::run;
use crate::rules::Rules;
use crate::topology::Port;
use anyhow::{Context, Result, ensure};
use slipswitch_tests::harness::Netns;

const DEVICE: &str = "br0";
/// The rules of [`Rules::Firewall`] for nftables, by the hosts' addresses.
const FIREWALL: &str = "add table ip firewall; \
     add chain ip firewall forwarded { type filter hook forward priority 0; policy drop; }; \
     add rule ip firewall forwarded ct state established accept; \
     add rule ip firewall forwarded ip saddr 10.0.0.1 ct state new accept";
/// Hands packets of bridges of a namespace to nftables.
const TO_NFTABLES: &str = "sysctl -q net.bridge.bridge-nf-call-iptables";

/// A Linux bridge in a namespace of its own.
pub struct Bridge {
    netns: Netns,
}

impl Bridge {
    pub fn start() -> Result<Bridge> {
        let netns = Netns::new();
        run(
            &netns,
            &format!(
                "ip link add {DEVICE} type bridge mcast_snooping 0 && ip link set {DEVICE} up"
            ),
        )?;
        Ok(Bridge { netns })
    }
}

impl Instance for Bridge {
    fn netns(&self) -> &Netns {
        &self.netns
    }

    fn add_ports(&mut self, first: u32, ports: &[Port]) -> Result<()> {
        ensure!((first, ports.len()) == (1, 2), "this system has two ports");
        for (port, address) in ports.iter().zip([SOURCE_MAC, TARGET_MAC]) {
            let name = &port.name;
            run(
                &self.netns,
                &format!(
                    "ip link set {name} master {DEVICE} && \
                     bridge fdb replace {address} dev {name} master static"
                ),
            )?;
        }
        Ok(())
    }

    /// Only a firewall needs more than forwarding.
    fn install(&mut self, rules: Rules) -> Result<()> {
        if rules == Rules::Firewall {
            run(&self.netns, &format!("{TO_NFTABLES}=1 && nft '{FIREWALL}'"))
                .context("the kernel does not filter what bridges forward by connections")?;
        }
        Ok(())
    }

    fn settings(&self) -> String {
        "both addresses are static entries, multicast snooping is off; it forwards by \
         destination address, without flows and rules"
            .into()
    }
}
