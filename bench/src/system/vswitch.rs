// SPDX-License-Identifier: Apache-2.0
//! Daemons that are configured by ovsdb-server and OpenFlow: Slipswitch and Open vSwitch.

use super::hugepages::Hugepages;
use super::{Instance, Tier};
use crate::attempt::attempt;
use crate::rules::{Rules, one_to_one};
use crate::topology::Port;
use anyhow::{Context, Result, ensure};
use slipswitch_tests::harness::{Netns, Switch};

/// The name of the only bridge.
pub const BRIDGE: &str = "br0";
/// Seconds that adding rules may take.
const ADD_TIMEOUT: u32 = 300;
/// The largest number of megaflows. `other_config:flow-limit` is only the upper bound of Open
/// vSwitch's own limit, which begins at 10,000 and rises by 1,000 with each pass.
const LIMIT: u32 = 400_000;
/// One megaflow in this many may be on another tier: of frames that are not the generator's.
const FEW: u64 = 100;

/// A daemon with its database, in a directory and a namespace of its own.
pub struct Vswitch {
    pub(super) switch: Switch,
    /// Returns the settings of a port's interface for `ovs-vsctl`, from the port's name.
    pub interface: Box<dyn Fn(&str) -> String>,
    /// For the page.
    pub settings: String,
    /// The tier of both ports, for Slipswitch.
    pub tier: Option<Tier>,
    /// Freed after the daemon, which uses them.
    pub _hugepages: Option<Hugepages>,
    /// The installed rules; `None` when they are not known.
    pub(super) installed: Option<Rules>,
}

impl Vswitch {
    /// Sets columns of Open_vSwitch for a running daemon without a bridge, and makes a bridge that
    /// drops everything. `datapath` is `netdev` or `system`. Ports are plain devices.
    pub fn new(switch: Switch, columns: &str, datapath: &str) -> Vswitch {
        switch.vsctl(&format!("set Open_vSwitch . {columns}"));
        switch.vsctl(&format!(
            "add-br {BRIDGE} -- set bridge {BRIDGE} datapath_type={datapath} fail_mode=secure"
        ));
        Vswitch {
            switch,
            interface: Box::new(|_| String::new()),
            settings: String::new(),
            tier: None,
            _hugepages: None,
            installed: None,
        }
    }

    /// Adds the rules of a text in one bundle: with a message and a barrier for each it takes two
    /// to five times as long.
    fn add(&self, rules: &str) -> Result<()> {
        let file = self.switch.sandbox().write("rules.txt", rules);
        let output = self.switch.sh(&format!(
            "ovs-ofctl --timeout={ADD_TIMEOUT} --bundle -O OpenFlow14 add-flows {BRIDGE} {}",
            file.display()
        ));
        ensure!(output.ok(), "ovs-ofctl add-flows: {}", last_line(&output.text()));
        Ok(())
    }

    fn pid(&self) -> Result<u32> {
        let text = self.switch.sandbox().read("ovs-vswitchd.pid");
        text.trim().parse().with_context(|| format!("the pidfile has {text:?}"))
    }
}

impl Instance for Vswitch {
    fn netns(&self) -> &Netns {
        self.switch.netns()
    }

    /// In one transaction.
    fn add_ports(&mut self, first: u32, ports: &[Port]) -> Result<()> {
        let command = |(number, Port { name, .. }): (u32, &Port)| {
            let interface = (self.interface)(name);
            format!(
                "-- add-port {BRIDGE} {name} \
                 -- set interface {name} ofport_request={number} {interface} "
            )
        };
        let commands: String = (first..).zip(ports).map(command).collect();
        attempt(|| {
            self.switch.vsctl(&commands);
            let failed = "--bare --columns=name,error find interface 'error!=[]'";
            let failed = self.switch.vsctl(failed);
            ensure!(failed.trim().is_empty(), "no ports: {}", failed.trim());
            Ok(())
        })
    }

    fn install(&mut self, rules: Rules) -> Result<()> {
        let installed = self.installed.take();
        attempt(|| {
            let switch = &self.switch;
            match rules.missing(installed) {
                Some(flows) => self.add(&one_to_one(flows))?,
                None => {
                    switch.ofctl(&format!("del-flows {BRIDGE}"));
                    self.add(&rules.text())?;
                }
            }
            switch.appctl(&format!("upcall/set-flow-limit {LIMIT}"));
            // Returns when the megaflows of deleted rules are gone.
            switch.revalidate();
            Ok(())
        })?;
        self.installed = Some(rules);
        Ok(())
    }

    fn restore(&mut self, rules: Rules) -> Result<()> {
        self.installed = None;
        self.add(&rules.text())?;
        self.installed = Some(rules);
        Ok(())
    }

    fn switch(&self) -> Option<&Switch> {
        Some(&self.switch)
    }

    fn switch_mut(&mut self) -> Option<&mut Switch> {
        Some(&mut self.switch)
    }

    fn daemons(&self) -> Vec<u32> {
        self.pid().into_iter().collect()
    }

    fn settings(&self) -> String {
        format!("{}; upcall/set-flow-limit {LIMIT}", self.settings)
    }

    fn megaflows(&self) -> Option<u64> {
        number_after(&self.switch.sh("ovs-appctl upcall/show").text(), "(current")
    }

    fn misplaced(&self) -> Option<String> {
        let tier = self.tier?;
        let text = self.switch.sh("ovs-appctl dpctl/offload-stats-show").text();
        let line = text.lines().find(|line| line.contains("flows:")).unwrap_or_default().trim();
        let all = number_after(line, "flows:");
        let there = number_after(line, &format!("{}:", tier.name()));
        match (all, there) {
            (Some(all), Some(there)) if (all - there) * FEW <= all => None,
            (Some(_), Some(_)) => Some(format!("not all megaflows are on the tier: {line}")),
            _ => Some(format!("the daemon does not say where megaflows are: {}", text.trim())),
        }
    }
}

/// The number that follows `name`.
pub fn number_after(text: &str, name: &str) -> Option<u64> {
    let rest = text.split(name).nth(1)?.trim_start();
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// The error of a tool: earlier lines of its output are about the tool itself.
pub fn last_line(text: &str) -> &str {
    text.lines().last().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_by_their_names() {
        let line = "flows: 70, xdp: 64, tcx: 0, userspace: 6";
        assert_eq!(
            ["flows:", "xdp:", "userspace:"].map(|n| number_after(line, n)),
            [70, 64, 6].map(Some)
        );
        assert_eq!(number_after(line, "kernel:"), None);
        let text = "netdev@ovs-netdev:\n  flows         : (current 65538) (avg 3) (max 4) (limit \
                    5)\n  dump duration : 137ms\n";
        assert_eq!(number_after(text, "(current"), Some(65_538));
        assert_eq!(number_after(text, "dump duration :"), Some(137));
        assert_eq!(number_after(text, "flow_limit "), None);
    }
}
