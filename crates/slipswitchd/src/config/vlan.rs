// SPDX-License-Identifier: Apache-2.0
//! Settings of a row of the Port table that decide where NORMAL forwards: VLANs and multicast.
//!
//! Follows `ovs-vswitchd.conf.db(5)`, "Port TABLE: VLAN Configuration": a mode that is not given
//! follows from `tag`; a native VLAN is trunked, whatever `trunks` says, unless it is 0.

use bridge::multicast_table::SnoopingRole;
use bridge::snapshot::{BundleView, PriorityTags, VlanMode};
use ovsdb::Row;
use std::sync::Arc;

/// Highest VLAN of the standard; 4095 is reserved but OVS's schema admits it.
const MAX_VLAN: i64 = 4095;
/// TPID of a customer's tag (IEEE 802.1Q) and of a service's (802.1ad).
const TPID_8021Q: u16 = 0x8100;
const TPID_8021AD: u16 = 0x88a8;

/// Returns the settings of a Port row called `name`, and the remarks about them for the log.
/// `members` and `floodable` have their defaults.
pub(super) fn settings(name: &str, row: &Row) -> (BundleView, Vec<String>) {
    let mut remarks = Vec::new();
    let tag = row.opt_int("tag").and_then(vlan);
    let trunks: Vec<u16> = row.ints("trunks").filter_map(vlan).collect();
    let mode = match row.opt_str("vlan_mode") {
        Some("access") => VlanMode::Access,
        Some("trunk") => VlanMode::Trunk,
        Some("native-tagged") => VlanMode::NativeTagged,
        Some("native-untagged") => VlanMode::NativeUntagged,
        Some("dot1q-tunnel") => VlanMode::Dot1qTunnel,
        Some(other) => {
            remarks.push(format!(
                "port {name}: unknown VLAN mode {other}, falling back to trunk mode"
            ));
            VlanMode::Trunk
        }
        None if tag.is_some() => {
            if !trunks.is_empty() {
                remarks.push(format!("port {name}: ignoring trunks in favor of implicit vlan"));
            }
            VlanMode::Access
        }
        None => VlanMode::Trunk,
    };
    let tag = if mode == VlanMode::Trunk { 0 } else { tag.unwrap_or(0) };
    let trunks = match mode {
        VlanMode::Access | VlanMode::Dot1qTunnel => Vec::new(),
        VlanMode::Trunk => trunks,
        VlanMode::NativeTagged | VlanMode::NativeUntagged => with(trunks, tag),
    };
    let cvlans: Vec<u16> = if mode == VlanMode::Dot1qTunnel {
        row.ints("cvlans").filter_map(vlan).collect()
    } else {
        Vec::new()
    };
    let other = row.map("other_config");
    let qinq_tpid = match other.get("qinq-ethtype") {
        Some("802.1q") => TPID_8021Q,
        None | Some("802.1ad") => TPID_8021AD,
        Some(text) => {
            remarks.push(format!(
                "port {name}: other_config:qinq-ethtype \"{text}\" is neither 802.1ad nor 802.1q, using 802.1ad"
            ));
            TPID_8021AD
        }
    };
    let priority_tags = match other.str("priority-tags") {
        "always" => PriorityTags::Always,
        "if-nonzero" | "true" => PriorityTags::IfNonzero,
        _ => PriorityTags::Never,
    };
    let settings = BundleView {
        name: name.to_owned(),
        mode,
        tag,
        trunks: Arc::from(trunks),
        cvlans: Arc::from(cvlans),
        qinq_tpid,
        priority_tags,
        protected: row.bool("protected"),
        members: Vec::new(),
        bond: None,
        floodable: true,
        snooping: SnoopingRole {
            floods: other.bool("mcast-snooping-flood", false),
            gets_reports: other.bool("mcast-snooping-flood-reports", false),
        },
    };
    (settings, remarks)
}

/// Returns `vlan` as a VLAN, when it is one.
pub(super) fn vlan(vlan: i64) -> Option<u16> {
    (0..=MAX_VLAN).contains(&vlan).then_some(vlan as u16)
}

/// Returns `trunks`, sorted, with `tag` unless that is 0. An empty list, which means all VLANs, stays
/// empty.
fn with(mut trunks: Vec<u16>, tag: u16) -> Vec<u16> {
    if tag != 0
        && !trunks.is_empty()
        && let Err(at) = trunks.binary_search(&tag)
    {
        trunks.insert(at, tag);
    }
    trunks
}

/// Returns true when the two forward alike.
pub(super) fn same(a: &BundleView, b: &BundleView) -> bool {
    let key = |v: &BundleView| (v.mode, v.tag, v.qinq_tpid, v.priority_tags, v.protected);
    key(a) == key(b) && a.trunks == b.trunks && a.cvlans == b.cvlans && a.name == b.name
}

#[cfg(test)]
mod tests {
    use super::*;
    use ovsdb::Datum;

    fn row(columns: Vec<(&str, Datum)>) -> Row {
        Row::new(columns.into_iter().map(|(c, d)| (Arc::from(c), d)))
    }

    fn of(columns: Vec<(&str, Datum)>) -> (BundleView, Vec<String>) {
        settings("p", &row(columns))
    }

    #[test]
    fn the_mode_follows_from_the_tag() {
        let (v, remarks) = of(vec![]);
        assert_eq!((v.mode, v.tag, v.trunks.len(), v.qinq_tpid), (VlanMode::Trunk, 0, 0, 0x88a8));
        assert!(remarks.is_empty() && !v.protected);
        let (v, remarks) = of(vec![("tag", Datum::from(7))]);
        assert_eq!((v.mode, v.tag), (VlanMode::Access, 7));
        assert!(remarks.is_empty());
        let (v, remarks) = of(vec![("tag", Datum::from(7)), ("trunks", Datum::set([1, 2]))]);
        assert_eq!((v.mode, v.tag, v.trunks.len()), (VlanMode::Access, 7, 0));
        assert_eq!(remarks, ["port p: ignoring trunks in favor of implicit vlan"]);
        let (v, _) = of(vec![("trunks", Datum::set([9, 2]))]);
        assert_eq!((v.mode, &v.trunks[..]), (VlanMode::Trunk, &[2, 9][..]));
    }

    #[test]
    fn given_modes_win() {
        let native = |mode: &str| {
            of(vec![
                ("vlan_mode", Datum::from(mode)),
                ("tag", Datum::from(5)),
                ("trunks", Datum::set([1, 9])),
            ])
            .0
        };
        let v = native("native-tagged");
        assert_eq!((v.mode, v.tag, &v.trunks[..]), (VlanMode::NativeTagged, 5, &[1, 5, 9][..]));
        let v = native("native-untagged");
        assert_eq!((v.mode, v.tag, &v.trunks[..]), (VlanMode::NativeUntagged, 5, &[1, 5, 9][..]));
        let v = native("trunk");
        assert_eq!((v.mode, v.tag, &v.trunks[..]), (VlanMode::Trunk, 0, &[1, 9][..]));
        let v = native("access");
        assert_eq!((v.mode, v.tag, v.trunks.len()), (VlanMode::Access, 5, 0));
        // All VLANs stay all VLANs.
        let (v, _) = of(vec![("vlan_mode", Datum::from("native-tagged")), ("tag", Datum::from(5))]);
        assert!(v.trunks.is_empty());
        let (v, _) = of(vec![
            ("vlan_mode", Datum::from("dot1q-tunnel")),
            ("tag", Datum::from(3)),
            ("cvlans", Datum::set([30, 20])),
            ("other_config", Datum::map([("qinq-ethtype", "802.1q")])),
        ]);
        assert_eq!(
            (v.mode, v.tag, &v.cvlans[..], v.qinq_tpid),
            (VlanMode::Dot1qTunnel, 3, &[20, 30][..], 0x8100)
        );
        let (v, remarks) = of(vec![("vlan_mode", Datum::from("nonsense"))]);
        assert_eq!((v.mode, remarks.len()), (VlanMode::Trunk, 1));
    }

    #[test]
    fn nonsense_is_left_out() {
        let (v, _) = of(vec![("tag", Datum::from(5000)), ("trunks", Datum::set([-1, 4096, 4]))]);
        assert_eq!((v.mode, v.tag, &v.trunks[..]), (VlanMode::Trunk, 0, &[4][..]));
        let (_, remarks) = of(vec![("other_config", Datum::map([("qinq-ethtype", "x")]))]);
        assert_eq!(remarks.len(), 1);
    }

    #[test]
    fn priority_tags() {
        let tags = |value: &str| {
            of(vec![("other_config", Datum::map([("priority-tags", value)]))]).0.priority_tags
        };
        assert_eq!(tags("true"), PriorityTags::IfNonzero);
        assert_eq!(tags("if-nonzero"), PriorityTags::IfNonzero);
        assert_eq!(tags("always"), PriorityTags::Always);
        assert_eq!(tags("no"), PriorityTags::Never);
    }
}
