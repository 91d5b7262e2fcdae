// SPDX-License-Identifier: Apache-2.0
//! One megaflow in a line, as `dpctl/dump-flows` and `dpif/dump-flows` show it.

use super::ports::PortNames;
use clock::Millis;
use datapath::text::Style;
use datapath::{FlowDump, FlowStats, Offloaded, Tier};
use flow::text::odp;
use std::fmt::Write as _;

/// The details that a line has, and their form.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LineStyle<'a> {
    /// Identity and wildcarded fields, too (`-m`).
    pub verbose: bool,
    /// Ports by name.
    pub names: Option<&'a PortNames>,
    /// As `dpctl/` prints it: a comma after the identity, and (with `-m`) where the flow runs.
    pub dpctl: bool,
}

/// `flow` in a line, without line feed. Datapaths' verbose lines end with how much of the flow a
/// fast tier does, the fastest tier that has it, and the reasons why not each faster one.
pub(super) fn flow_line(flow: &FlowDump, now: Millis, style: LineStyle<'_>) -> String {
    let mut out = String::with_capacity(160);
    let matching = &flow.flow.matching;
    if style.verbose {
        let separator = if style.dpctl { ", " } else { " " };
        let _ = write!(out, "ufid:{}{separator}", flow.flow.ufid); // a String takes all writes
    }
    let name = |number: u32| style.names.and_then(|names| names.name(number));
    let key_style = odp::Style { verbose: style.verbose };
    out.push_str(&odp::format(matching.key(), matching.mask(), key_style, &name));
    out.push_str(", ");
    out.push_str(&stats_text(flow.stats, now));
    let port_name = |port: datapath::PortNo| name(port.0);
    let actions = datapath::text::format(
        &flow.flow.actions,
        Style { port_name: Some(&port_name), dry_run: false },
    );
    let _ = write!(out, ", actions:{actions}");
    if style.verbose && style.dpctl {
        let _ = write!(out, ", offloaded:{}, dp:{}", flow.offloaded.name(), flow.tier.name());
        if !flow.refusals.is_empty() {
            let _ = write!(out, ", reason:{}", flow.refusals);
        }
    }
    out
}

/// `packets:2, bytes:28, used:1.100s`, and TCP flags when there are any.
pub(super) fn stats_text(stats: FlowStats, now: Millis) -> String {
    let mut out = format!("packets:{}, bytes:{}, used:", stats.packets, stats.bytes);
    if stats.used == Millis(0) {
        out.push_str("never");
    } else {
        let ms = now.since(stats.used);
        let _ = write!(out, "{}.{:03}s", ms / 1000, ms % 1000);
    }
    if stats.tcp_flags != 0 {
        let _ = write!(out, ", flags:{}", tcp_flags_text(stats.tcp_flags));
    }
    out
}

/// TCP flags in letters; the three reserved bits as numbers.
fn tcp_flags_text(flags: u16) -> String {
    const LETTERS: [(u16, &str); 12] = [
        (0x002, "S"),
        (0x001, "F"),
        (0x008, "P"),
        (0x004, "R"),
        (0x020, "U"),
        (0x010, "."),
        (0x040, "E"),
        (0x080, "C"),
        (0x100, "N"),
        (0x200, "[200]"),
        (0x400, "[400]"),
        (0x800, "[800]"),
    ];
    LETTERS.iter().filter(|(bit, _)| flags & bit != 0).map(|(_, letter)| *letter).collect()
}

/// Where flows may run, for `type=` of `dpctl/dump-flows`: the words of OVS as ovs-dpctl(8) has
/// them for a datapath in the kernel, and the names of our tiers. "ovs" is the switch's own
/// datapath, in BPF and in userspace; "offloaded" is a card's hardware, which flows reach by TC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TypeFilter {
    /// Flows in every tier pass.
    All,
    /// In one tier.
    Tier(Tier),
    /// In the switch's own datapath.
    Own,
    /// This much of the flow's work is done by hardware.
    Hardware(Offloaded),
    /// In a card that DPDK drives, which is no tier of ours: no flow passes.
    Dpdk,
}

impl TypeFilter {
    /// Returns the filters of a list. A comma at the end is allowed; an empty list admits no flow.
    ///
    /// # Errors
    ///
    /// The first word that is no filter.
    pub fn parse_list(text: &str) -> Result<Vec<TypeFilter>, &str> {
        let list = text.strip_suffix(',').unwrap_or(text);
        if text.is_empty() {
            return Ok(Vec::new());
        }
        list.split(',').map(|word| TypeFilter::parse(word).ok_or(word)).collect()
    }

    /// Returns the filter called `name`. The words of Open vSwitch go before names of tiers.
    fn parse(name: &str) -> Option<TypeFilter> {
        Some(match name {
            "all" => TypeFilter::All,
            "ovs" => TypeFilter::Own, // not `Tier::Kernel`, which has this name, too
            "kernel" => TypeFilter::Tier(Tier::Kernel),
            "non-offloaded" => TypeFilter::Hardware(Offloaded::No),
            "offloaded" => TypeFilter::Hardware(Offloaded::Yes),
            "partially-offloaded" => TypeFilter::Hardware(Offloaded::Partial),
            "dpdk" => TypeFilter::Dpdk,
            _ => TypeFilter::Tier(Tier::ALL.into_iter().find(|tier| tier.name() == name)?),
        })
    }

    /// Whether a flow passes.
    pub fn admits(self, flow: &FlowDump) -> bool {
        match self {
            TypeFilter::All => true,
            TypeFilter::Tier(wanted) => flow.tier == wanted,
            TypeFilter::Own => flow.tier != Tier::Tc,
            TypeFilter::Hardware(wanted) => in_hardware(flow) == wanted,
            TypeFilter::Dpdk => false,
        }
    }
}

/// How much of a flow's work a card does: BPF runs on the host's CPUs.
fn in_hardware(flow: &FlowDump) -> Offloaded {
    match flow.tier {
        Tier::Tc => flow.offloaded,
        Tier::Xdp | Tier::Tcx | Tier::Kernel | Tier::Userspace => Offloaded::No,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics() {
        let now = Millis(6_000);
        assert_eq!(stats_text(FlowStats::default(), now), "packets:0, bytes:0, used:never");
        let stats = FlowStats { packets: 1, bytes: 54, used: Millis(4_900), tcp_flags: 0xfff };
        assert_eq!(
            stats_text(stats, now),
            "packets:1, bytes:54, used:1.100s, flags:SFPRU.ECN[200][400][800]"
        );
    }

    #[test]
    fn types() {
        assert_eq!(TypeFilter::parse("foo"), None);
        for tier in Tier::ALL {
            let word = if tier == Tier::Kernel { "kernel" } else { tier.name() };
            assert_eq!(TypeFilter::parse(word), Some(TypeFilter::Tier(tier)), "{word}");
        }
        let flow = |tier, offloaded| FlowDump {
            flow: datapath::Megaflow {
                ufid: datapath::Ufid(1),
                matching: flow::Match::ANY,
                actions: [].into(),
            },
            stats: FlowStats::default(),
            tier,
            refusals: datapath::TierRefusals::NONE,
            offloaded,
        };
        let (no, yes) = (Offloaded::No, Offloaded::Yes);
        for (name, tier, offloaded, passes) in [
            ("ovs", Tier::Userspace, no, true),
            ("ovs", Tier::Tcx, yes, true),
            ("ovs", Tier::Tc, yes, false),
            ("non-offloaded", Tier::Userspace, no, true),
            ("non-offloaded", Tier::Xdp, yes, true),
            ("non-offloaded", Tier::Tc, yes, false),
            ("offloaded", Tier::Xdp, yes, false),
            ("offloaded", Tier::Tc, yes, true),
            ("offloaded", Tier::Tc, Offloaded::Partial, false),
            ("partially-offloaded", Tier::Tc, Offloaded::Partial, true),
            ("partially-offloaded", Tier::Xdp, Offloaded::Partial, false),
            ("tcx", Tier::Tcx, yes, true),
            ("tc", Tier::Userspace, no, false),
            ("all", Tier::Userspace, no, true),
            ("all", Tier::Xdp, Offloaded::Partial, true),
            ("dpdk", Tier::Xdp, Offloaded::Partial, false),
            ("dpdk", Tier::Xdp, yes, false),
        ] {
            let admitted = TypeFilter::parse(name).map(|f| f.admits(&flow(tier, offloaded)));
            assert_eq!(admitted, Some(passes), "{name}");
        }
        assert_eq!(TypeFilter::parse_list(""), Ok(vec![]));
        let two = vec![TypeFilter::Tier(Tier::Tc), TypeFilter::Tier(Tier::Xdp)];
        assert_eq!(TypeFilter::parse_list("tc,xdp,"), Ok(two));
        for (list, bad) in [(",", ""), (",ovs", ""), ("ovs,,", ""), ("all,foo", "foo")] {
            assert_eq!(TypeFilter::parse_list(list), Err(bad), "{list}");
        }
    }
}
