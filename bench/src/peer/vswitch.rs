// SPDX-License-Identifier: Apache-2.0
//! Daemons that are driven by ovsdb-server and OpenFlow: Slipswitch and Open vSwitch.

use super::hugepages::Hugepages;
use super::{Peer, Rules, Third, Tier, destination};
use crate::generator::{PORTS, SOURCES, TARGET, source};
use crate::topology::Port;
use anyhow::{Context, Result, ensure};
use slipswitch_tests::harness::{Netns, Switch};
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::ops::Range;

const BRIDGE: &str = "br0";
/// Seconds that rules may take.
const PATIENCE: u32 = 300;
/// Megaflows that there may be. `other_config:flow-limit` alone is
/// only what Open vSwitch's own limit rises to, from 10,000 and by 1,000 with each pass.
const LIMIT: u32 = 400_000;

/// A daemon with its database, in a directory and a namespace of its own.
pub struct Vswitch {
    switch: Switch,
    /// Further arguments of `ovs-vsctl add-port BRIDGE PORT`, from the name of the port.
    interface: Box<dyn Fn(&str) -> String>,
    settings: String,
    tier: Option<Tier>,
    /// Rules that it has; `None` when that is not known.
    installed: Option<Rules>,
    // Behind the daemon, which uses them.
    _held: Option<Hugepages>,
}

/// What makes one daemon differ from the others.
pub struct Recipe {
    /// A running daemon, without a bridge.
    pub switch: Switch,
    /// Arguments of `ovs-vsctl` before the bridge is made; empty for none.
    pub prepare: String,
    /// The bridge's datapath: `netdev` or `system`.
    pub datapath: &'static str,
    /// What `ovs-vsctl` sets at a port's interface, from the port's name.
    pub interface: Box<dyn Fn(&str) -> String>,
    /// For the report.
    pub settings: String,
    /// Where flows are told to be, for Slipswitch.
    pub tier: Option<Tier>,
    /// What it uses.
    pub held: Option<Hugepages>,
}

impl Vswitch {
    /// Makes a bridge that drops everything.
    ///
    /// # Panics
    /// When the daemon does not answer.
    pub fn new(recipe: Recipe) -> Vswitch {
        let Recipe { switch, prepare, datapath, interface, settings, tier, held } = recipe;
        if !prepare.is_empty() {
            switch.vsctl(&prepare);
        }
        switch.vsctl(&format!(
            "add-br {BRIDGE} -- set bridge {BRIDGE} datapath_type={datapath} fail_mode=secure"
        ));
        let settings = format!("{settings}; upcall/set-flow-limit {LIMIT}");
        Vswitch { switch, interface, settings, tier, installed: None, _held: held }
    }

    fn add_port(&self, number: u32, port: &Port) -> Result<()> {
        let (name, interface) = (&port.name, (self.interface)(&port.name));
        self.switch.vsctl(&format!(
            "add-port {BRIDGE} {name} -- set interface {name} ofport_request={number} {interface}"
        ));
        let error = self.switch.vsctl(&format!("get interface {name} error"));
        ensure!(error.trim() == "[]", "{name} is no port: {}", error.trim());
        Ok(())
    }

    /// Adds the rules of a text, in one bundle: with a message and a barrier for each it takes two
    /// to five times as long.
    fn add(&self, rules: &str) -> Result<()> {
        let file = self.switch.place().write("rules.txt", rules);
        let output = self.switch.sh(&format!(
            "ovs-ofctl --timeout={PATIENCE} --bundle -O OpenFlow14 add-flows {BRIDGE} {}",
            file.display()
        ));
        // Before its last words the tool tells of itself.
        let words = output.text();
        ensure!(output.ok(), "ovs-ofctl add-flows: {}", words.lines().last().unwrap_or_default());
        Ok(())
    }

    fn pid(&self) -> Result<u32> {
        let text = self.switch.place().read("ovs-vswitchd.pid");
        text.trim().parse().with_context(|| format!("the pidfile says {text:?}"))
    }
}

impl Peer for Vswitch {
    fn netns(&self) -> &Netns {
        self.switch.netns()
    }

    fn add_ports(&mut self, ports: &[Port; 2]) -> Result<()> {
        let mut numbered = (1..).zip(ports);
        crate::attempt(|| numbered.try_for_each(|(number, port)| self.add_port(number, port)))
    }

    fn add_third(&mut self, port: &Port) -> Result<()> {
        crate::attempt(|| self.add_port(3, port))
    }

    fn install(&mut self, rules: Rules) -> Result<()> {
        let had = self.installed.take();
        crate::attempt(|| {
            match missing(had, rules) {
                Some(flows) => self.add(&one_to_one(flows))?,
                None => {
                    self.switch.ofctl(&format!("del-flows {BRIDGE}"));
                    self.add(&text(rules))?;
                }
            }
            self.switch.appctl(&format!("upcall/set-flow-limit {LIMIT}"));
            // Megaflows of rules that are gone are gone when this returns.
            self.switch.revalidate();
            Ok(())
        })?;
        self.installed = Some(rules);
        Ok(())
    }

    fn restore(&mut self, rules: Rules) -> Result<()> {
        self.installed = None;
        self.add(&text(rules))?;
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
        self.settings.clone()
    }

    fn megaflows(&self) -> Option<u64> {
        number(&self.switch.sh("ovs-appctl upcall/show").text(), "(current")
    }

    fn strays(&self) -> Option<String> {
        let tier = self.tier?;
        let text = self.switch.sh("ovs-appctl dpctl/offload-stats-show").text();
        let line = text.lines().find(|line| line.contains("flows:")).unwrap_or_default().trim();
        let all = number(line, "flows:");
        let there = number(line, &format!("{}:", tier.name()));
        match (all, there) {
            (Some(all), Some(there)) if (all - there) * FEW <= all => None,
            (Some(_), Some(_)) => Some(format!("not all megaflows are on the tier: {line}")),
            _ => Some(format!("the daemon does not say where megaflows are: {}", text.trim())),
        }
    }
}

/// One megaflow in so many may be elsewhere: of frames that are none of the generator's.
const FEW: u64 = 100;

/// The number behind `name`.
fn number(line: &str, name: &str) -> Option<u64> {
    let behind = line.split(name).nth(1)?.trim_start();
    let digits: String = behind.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// The flows whose rules are missing, when those that there are stay.
fn missing(had: Option<Rules>, wanted: Rules) -> Option<Range<u32>> {
    match (had, wanted) {
        (Some(Rules::OneToOne(had)), Rules::OneToOne(wanted)) if had <= wanted => Some(had..wanted),
        _ => None,
    }
}

/// A rule for each of these flows of the generator.
fn one_to_one(flows: Range<u32>) -> String {
    let mut text = String::new();
    for flow in flows {
        let _ = writeln!(
            text,
            "priority=10,in_port=1,udp,nw_src={},nw_dst={TARGET},tp_src={},tp_dst={} \
             actions=output:2",
            source(flow),
            PORTS.0,
            PORTS.1
        );
    }
    text
}

/// The rules as `ovs-ofctl add-flows` takes them.
pub fn text(rules: Rules) -> String {
    let mut text = String::new();
    match rules {
        Rules::OneToOne(flows) => text.push_str(&one_to_one(0..flows)),
        Rules::Masks(flows, masks) => {
            // The second table's subtables are told apart by a register, which is no part of a
            // megaflow, before they look at the address.
            for flow in 0..flows {
                let _ = writeln!(
                    text,
                    "priority=10,in_port=1,ip,nw_src={} \
                     actions=load:{}->NXM_NX_REG0[],resubmit(,1)",
                    source(flow),
                    flow % masks + 1
                );
            }
            for mask in 0..masks {
                let _ = writeln!(
                    text,
                    "table=1,priority=10,ip,reg0={},nw_dst={TARGET}/255.255.{}.{} \
                     actions=output:2",
                    mask + 1,
                    255 - mask / 256,
                    mask % 256
                );
            }
        }
        Rules::Prefix => {
            let _ = writeln!(text, "priority=10,in_port=1,ip,nw_src={SOURCES} actions=output:2");
        }
        Rules::Normal => {
            text.push_str("in_port=1 actions=output:2\nin_port=2 actions=output:1\n");
        }
        Rules::PerConnection => {
            // What an action reads, a megaflow matches.
            for (from, to) in [(1, 2), (2, 1)] {
                let _ = writeln!(
                    text,
                    "priority=10,in_port={from},tcp \
                     actions=move:NXM_OF_TCP_SRC[]->NXM_NX_REG0[0..15],\
                     move:NXM_OF_TCP_DST[]->NXM_NX_REG0[16..31],output:{to}\n\
                     priority=1,in_port={from} actions=output:{to}"
                );
            }
        }
        Rules::Third(third) => {
            text.push_str(&self::text(Rules::Normal));
            text.push_str(&from_third(third));
        }
        Rules::Destinations(flows) => {
            text.push_str("in_port=1,arp actions=output:2\nin_port=2 actions=output:1\n");
            text.push_str("in_port=1,ip,nw_dst=10.0.0.2 actions=output:2\n");
            for flow in 0..flows {
                let address = destination(flow);
                let _ =
                    writeln!(text, "priority=10,in_port=1,udp,nw_dst={address} actions=output:2");
            }
        }
    }
    text
}

/// Bits of an address that prefixes are taken from.
const BITS: u32 = 0x55aa_55aa;

fn from_third(third: Third) -> String {
    match third {
        Third::Dropped => "priority=10,in_port=3,udp actions=drop\n".into(),
        // What an action reads, a megaflow matches.
        Third::Flows => "priority=10,in_port=3,udp \
             actions=multipath(symmetric_l4,1,hrw,16,0,NXM_NX_REG0[])\n"
            .into(),
        Third::Masks => {
            let mut text = "priority=2,in_port=3,udp actions=drop\n".to_owned();
            let address = Ipv4Addr::from_bits(BITS);
            for (field, base) in [("nw_src", 1000), ("nw_dst", 2000)] {
                for length in 1..=32 {
                    let _ = writeln!(
                        text,
                        "priority={},in_port=3,udp,{field}={address}/{length},tp_src=7,\
                         tp_dst={length} actions=drop",
                        base + length
                    );
                }
            }
            text
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_from_the_third_port_is_let_through() {
        for (third, rules) in [(Third::Dropped, 1), (Third::Flows, 1), (Third::Masks, 65)] {
            let text = text(Rules::Third(third));
            let all: Vec<&str> = text.lines().filter(|l| l.contains("in_port=3,udp")).collect();
            assert_eq!(all.len(), rules);
            assert!(all.iter().all(|line| !line.contains("output")), "{text}");
            assert!(text.starts_with(&super::text(Rules::Normal)));
        }
    }

    #[test]
    fn numbers_are_found_by_their_names() {
        let line = "flows: 70, xdp: 64, tcx: 0, userspace: 6";
        assert_eq!(
            ["flows:", "xdp:", "userspace:"].map(|n| number(line, n)),
            [70, 64, 6].map(Some)
        );
        assert_eq!(number(line, "kernel:"), None);
        assert_eq!(number("  flows         : (current 65538) (avg 3)", "(current"), Some(65_538));
    }

    #[test]
    fn what_looks_at_ports_comes_before_what_does_not() {
        let text = text(Rules::PerConnection);
        let of = |words: &str| {
            let line = text.lines().find(|l| l.contains(words)).unwrap();
            let number = line.strip_prefix("priority=").and_then(|l| l.split(',').next());
            number.unwrap().parse::<u32>().unwrap()
        };
        assert!(of("in_port=2,tcp actions=move:") > of("in_port=2 actions=output:1"), "{text}");
        assert!(of("in_port=1,tcp actions=move:") > of("in_port=1 actions=output:2"), "{text}");
    }

    #[test]
    fn flows_are_spread_over_masks() {
        let text = text(Rules::Masks(64, 8));
        assert_eq!(text.lines().filter(|l| l.contains("resubmit(,1)")).count(), 64);
        assert_eq!(text.lines().filter(|l| l.contains("load:8->")).count(), 8);
        let masks: std::collections::HashSet<&str> = text
            .lines()
            .filter(|l| l.starts_with("table=1,"))
            .filter_map(|l| l.split("nw_dst=").nth(1)?.split(' ').next())
            .collect();
        assert_eq!(masks.len(), 8);
    }

    #[test]
    fn rules_that_stay_are_not_added_again() {
        let had = |flows| Some(Rules::OneToOne(flows));
        assert_eq!(missing(had(2), Rules::OneToOne(5)), Some(2..5));
        assert_eq!(missing(had(5), Rules::OneToOne(5)), Some(5..5));
        assert_eq!(missing(had(5), Rules::OneToOne(2)), None);
        assert_eq!(missing(had(5), Rules::Prefix), None);
        assert_eq!(missing(None, Rules::OneToOne(5)), None);
        let both = [text(Rules::OneToOne(2)), one_to_one(2..5)].concat();
        assert_eq!(both, text(Rules::OneToOne(5)));
    }

    #[test]
    fn each_flow_has_a_rule() {
        let text = text(Rules::OneToOne(1 << 10));
        assert_eq!(text.lines().count(), 1 << 10);
        assert!(text.lines().last().unwrap().contains("nw_src=10.0.3.255,"), "{text}");
        assert_eq!(super::text(Rules::Prefix).lines().count(), 1);
    }
}
