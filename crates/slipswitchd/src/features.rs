// SPDX-License-Identifier: Apache-2.0
//! Features of the datapath, in OVS's words.
//!
//! One table ([`of`]) feeds `ovs-appctl dpif/show-dp-features`, the column `capabilities` of the
//! table Datapath ([`capabilities`]), and the log lines at the creation of a datapath's first bridge
//! ([`announce`]), which scripts and test suites wait for and read.
//! Names, order and wording are those of ovs-vswitchd 3.1.

use datapath::{Action, Datapath, Masked, Set, Userdata};
use std::collections::BTreeMap;

/// One feature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feature {
    /// Its name in `dpif/show-dp-features`.
    pub name: &'static str,
    /// Its key in the column `capabilities` of the table Datapath.
    pub key: &'static str,
    /// `Yes`, `No`, or a number.
    pub value: String,
    /// Text in the log after the datapath's name; `None` where OVS logs nothing.
    pub line: Option<String>,
}

impl Feature {
    /// Returns its value in the column `capabilities`: `true`, `false`, or a number.
    pub fn capability(&self) -> &str {
        match &*self.value {
            "Yes" => "true",
            "No" => "false",
            number => number,
        }
    }
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
    let label = Action::AddMpls { lse: 0, ethertype: packet::ethertype::MPLS };
    let has_tracker = datapath.connections().is_some();
    let nesting = datapath::ACTION_DEPTH_LIMIT.to_string();
    let vlans = flow::extract::vlan_limit().to_string();
    let labels = flow::MPLS_LABELS.to_string();
    vec![
        unsaid("Masked set action", "masked_set_action", true),
        unsaid("Tunnel push pop", "tnl_push_pop", true),
        said("Ufid", "ufid", true, "unique flow ids"),
        said("Truncate action", "trunc", can(Action::Trunc(64)), "truncate action"),
        said("Clone action", "clone", can(clone), "clone action"),
        probed("Sample nesting", "sample_nesting", nesting, "Max sample nesting level probed as"),
        said("Conntrack eventmask", "ct_eventmask", has_tracker, "eventmask in conntrack action"),
        said("Conntrack clear", "ct_clear", has_tracker, "ct_clear action"),
        probed(
            "Max dp_hash algorithm",
            "max_hash_alg",
            "1".to_owned(),
            "Max dp_hash algorithm probed to be",
        ),
        said("Check pkt length action", "check_pkt_len", can(check), "check_pkt_len action"),
        said(
            "Conntrack timeout policy",
            "ct_timeout",
            has_tracker,
            "timeout policy in conntrack action",
        ),
        unsaid(
            "Explicit Drop action",
            "explicit_drop_action",
            can(Action::Drop(datapath::DropReason::Flow)),
        ),
        unsaid("Optimized Balance TCP mode", "lb_output_action", datapath.bonds().is_some()),
        said("Conntrack all-zero IP SNAT", "ct_zero_snat", has_tracker, "ct_zero_snat"),
        said("MPLS Label add", "add_mpls", can(label), "add_mpls action"),
        probed("Max VLAN headers", "max_vlan_headers", vlans, "VLAN header stack length probed as"),
        probed("Max MPLS depth", "max_mpls_depth", labels, "MPLS label stack length probed as"),
        said("Recirc", "recirc", can(Action::Recirc(1)), "recirculation"),
        said("CT state", "ct_state", has_tracker, "ct_state"),
        said("CT zone", "ct_zone", has_tracker, "ct_zone"),
        said("CT mark", "ct_mark", has_tracker, "ct_mark"),
        said("CT label", "ct_label", has_tracker, "ct_label"),
        said("CT state NAT", "ct_state_nat", has_tracker, "ct_state_nat"),
        said("CT orig tuple", "ct_orig_tuple", has_tracker, "ct_orig_tuple"),
        said("CT orig tuple for IPv6", "ct_orig_tuple6", has_tracker, "ct_orig_tuple6"),
        said("IPv6 ND Extension", "nd_ext", can(extensions), "IPv6 ND Extensions"),
    ]
}

/// The column `capabilities` of the table Datapath. In addition to the features it has
/// `ct_flush`, which is true where connections are tracked.
pub fn capabilities(datapath: &dyn Datapath) -> BTreeMap<&'static str, String> {
    let flush = ("ct_flush", datapath.connections().is_some().to_string());
    of(datapath).into_iter().map(|f| (f.key, f.capability().to_owned())).chain([flush]).collect()
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

fn said(name: &'static str, key: &'static str, there: bool, what: &str) -> Feature {
    let verb = if there { "supports" } else { "does not support" };
    Feature { name, key, value: yes_or_no(there), line: Some(format!("Datapath {verb} {what}")) }
}

fn unsaid(name: &'static str, key: &'static str, there: bool) -> Feature {
    Feature { name, key, value: yes_or_no(there), line: None }
}

fn probed(name: &'static str, key: &'static str, value: String, what: &str) -> Feature {
    let line = Some(format!("{what} {value}"));
    Feature { name, key, value, line }
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
        let ct = if datapath.connections().is_some() { "supports" } else { "does not support" };
        let tracking = |what: &str| format!("Datapath {ct} {what}");
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
                &*tracking("eventmask in conntrack action"),
                &*tracking("ct_clear action"),
                "Max dp_hash algorithm probed to be 1",
                "Datapath supports check_pkt_len action",
                &*tracking("timeout policy in conntrack action"),
                &*tracking("ct_zero_snat"),
                "Datapath supports add_mpls action",
                &*tracking("ct_state"),
                &*tracking("ct_zone"),
                &*tracking("ct_mark"),
                &*tracking("ct_label"),
                &*tracking("ct_state_nat"),
                &*tracking("ct_orig_tuple"),
                &*tracking("ct_orig_tuple6"),
                "Datapath supports IPv6 ND Extensions",
            ]
        );
        let capabilities = capabilities(&*datapath);
        assert_eq!(capabilities.len(), features.len() + 1);
        assert_eq!(capabilities["recirc"], "true");
        assert_eq!(capabilities["max_mpls_depth"], "3");
        assert_eq!(capabilities["ct_state"], capabilities["ct_flush"]);
        // Every line once.
        assert_eq!(lines(&features).len(), features.iter().filter(|f| f.line.is_some()).count());
    }
}
