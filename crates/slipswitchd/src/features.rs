// SPDX-License-Identifier: Apache-2.0
//! Features of the datapath, in OVS's words.
//!
//! One table ([`of`]) feeds `ovs-appctl dpif/show-dp-features` and the log lines at the creation
//! of a datapath's first bridge ([`announce`]), which scripts and test suites wait for and read.
//! Names, order and wording are those of ovs-vswitchd 3.1.

use datapath::{Action, Datapath, Masked, Set, Userdata};

/// One feature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feature {
    /// Its name in `dpif/show-dp-features`.
    pub name: &'static str,
    /// `Yes`, `No`, or a number.
    pub value: String,
    /// Text in the log after the datapath's name; `None` where OVS logs nothing.
    pub line: Option<String>,
}

/// All features of `datapath`, in the order of `dpif/show-dp-features`.
pub fn of(datapath: &dyn Datapath) -> Vec<Feature> {
    let can = |action: Action| datapath.supports(&action);
    let check = Action::CheckPktLen { len: 1, greater: Vec::new(), not_greater: Vec::new() };
    let clone = Action::Clone(vec![Action::Userspace(Userdata::SlowPath { reason: "action" })]);
    let extensions = Action::Set(Set::NdExtensions {
        reserved: Masked { value: 0, mask: u32::MAX },
        options_type: Masked { value: 0, mask: u8::MAX },
    });
    let nesting = datapath::ACTION_DEPTH_LIMIT.to_string();
    let vlans = flow::extract::vlan_limit().to_string();
    let labels = flow::MPLS_LABELS.to_string();
    vec![
        unsaid("Masked set action", true),
        unsaid("Tunnel push pop", false),
        said("Ufid", true, "unique flow ids"),
        said("Truncate action", can(Action::Trunc(64)), "truncate action"),
        said("Clone action", can(clone), "clone action"),
        probed("Sample nesting", nesting, "Max sample nesting level probed as"),
        said("Conntrack eventmask", false, "eventmask in conntrack action"),
        said("Conntrack clear", false, "ct_clear action"),
        probed("Max dp_hash algorithm", "1".to_owned(), "Max dp_hash algorithm probed to be"),
        said("Check pkt length action", can(check), "check_pkt_len action"),
        said("Conntrack timeout policy", false, "timeout policy in conntrack action"),
        unsaid("Explicit Drop action", can(Action::Drop(datapath::DropReason::Flow))),
        unsaid("Optimized Balance TCP mode", false),
        said("Conntrack all-zero IP SNAT", false, "ct_zero_snat"),
        said("MPLS Label add", false, "add_mpls action"),
        probed("Max VLAN headers", vlans, "VLAN header stack length probed as"),
        probed("Max MPLS depth", labels, "MPLS label stack length probed as"),
        said("Recirc", can(Action::Recirc(1)), "recirculation"),
        said("CT state", false, "ct_state"),
        said("CT zone", false, "ct_zone"),
        said("CT mark", false, "ct_mark"),
        said("CT label", false, "ct_label"),
        said("CT state NAT", false, "ct_state_nat"),
        said("CT orig tuple", false, "ct_orig_tuple"),
        said("CT orig tuple for IPv6", false, "ct_orig_tuple6"),
        said("IPv6 ND Extension", can(extensions), "IPv6 ND Extensions"),
    ]
}

/// Logged before the others, in this order (OVS probes them first).
const FIRST: [&str; 3] = ["Recirc", "Max VLAN headers", "Max MPLS depth"];
/// Then these, as OVS probes identities of flows after truncation.
const SECOND: [&str; 2] = ["Truncate action", "Ufid"];

/// Logs what `datapath` can do: its first bridge was made.
pub fn announce(datapath: &dyn Datapath) {
    for line in lines(&of(datapath)) {
        tracing::info!(target: "ofproto_dpif", "{}: {line}", datapath.name());
    }
}

/// The log's lines in their order.
fn lines(features: &[Feature]) -> Vec<&str> {
    let early = |f: &&Feature| FIRST.contains(&f.name) || SECOND.contains(&f.name);
    let named =
        FIRST.iter().chain(&SECOND).filter_map(|name| features.iter().find(|f| f.name == *name));
    named.chain(features.iter().filter(|f| !early(f))).filter_map(|f| f.line.as_deref()).collect()
}

fn yes_or_no(there: bool) -> String {
    if there { "Yes" } else { "No" }.to_owned()
}

fn said(name: &'static str, there: bool, what: &str) -> Feature {
    let verb = if there { "supports" } else { "does not support" };
    Feature { name, value: yes_or_no(there), line: Some(format!("Datapath {verb} {what}")) }
}

fn unsaid(name: &'static str, there: bool) -> Feature {
    Feature { name, value: yes_or_no(there), line: None }
}

fn probed(name: &'static str, value: String, what: &str) -> Feature {
    let line = Some(format!("{what} {value}"));
    Feature { name, value, line }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_in_the_order_of_ovs() {
        let datapath = datapath_userspace::UserspaceDatapath::new(
            "netdev@ovs-netdev",
            clock::Clock::new(),
            datapath_userspace::Config::default(),
        );
        let features = of(&*datapath);
        let vlans = format!("VLAN header stack length probed as {}", flow::extract::vlan_limit());
        let nesting =
            format!("Max sample nesting level probed as {}", datapath::ACTION_DEPTH_LIMIT);
        assert_eq!(
            lines(&features),
            [
                "Datapath supports recirculation",
                &vlans,
                "MPLS label stack length probed as 3",
                "Datapath supports truncate action",
                "Datapath supports unique flow ids",
                "Datapath supports clone action",
                &nesting,
                "Datapath does not support eventmask in conntrack action",
                "Datapath does not support ct_clear action",
                "Max dp_hash algorithm probed to be 1",
                "Datapath supports check_pkt_len action",
                "Datapath does not support timeout policy in conntrack action",
                "Datapath does not support ct_zero_snat",
                "Datapath does not support add_mpls action",
                "Datapath does not support ct_state",
                "Datapath does not support ct_zone",
                "Datapath does not support ct_mark",
                "Datapath does not support ct_label",
                "Datapath does not support ct_state_nat",
                "Datapath does not support ct_orig_tuple",
                "Datapath does not support ct_orig_tuple6",
                "Datapath supports IPv6 ND Extensions",
            ]
        );
        // Every line once.
        assert_eq!(lines(&features).len(), features.iter().filter(|f| f.line.is_some()).count());
    }
}
