// SPDX-License-Identifier: Apache-2.0
//! The kernel's bridge.

use super::Instance;
use crate::generator::{SOURCE_MAC, TARGET_MAC};
use crate::netns::run;
use crate::topology::Port;
use anyhow::{Result, ensure};
use slipswitch_tests::harness::Netns;

const DEVICE: &str = "br0";

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

    fn settings(&self) -> String {
        "both addresses are static entries, multicast snooping is off; it forwards by \
         destination address, without flows and rules"
            .into()
    }
}
