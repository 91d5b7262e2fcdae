// SPDX-License-Identifier: Apache-2.0
//! Features of the datapath that translation does without.

use super::*;
use crate::snapshot::Withheld;

fn of(text: &str) -> Vec<Action> {
    openflow::text::parse_actions(text, openflow::Version::V13, &flow::text::no_numbers).unwrap()
}

#[test]
fn copies_are_samples_without_clones() {
    let mut w = World::new(4);
    w.rule("in_port=1", of("clone(ct(commit),output:3),output:2"));
    let ip = "in_port=1,ip";
    assert_eq!(w.dp(ip), "clone(ct(commit),3),2");
    w.snapshot.withheld.clone = true;
    assert_eq!(w.dp(ip), "sample(sample=100.0%,actions(ct(commit),3)),2");
    w.snapshot.withheld.sample_nesting = Some(4);
    assert_eq!(w.dp(ip), "sample(sample=100.0%,actions(ct(commit),3)),2");
    w.snapshot.withheld.sample_nesting = Some(3);
    assert_eq!(w.dp(ip), "2");
}

#[test]
fn packets_that_need_a_withheld_feature_are_called_up() {
    let mut w = World::new(4);
    let all = Withheld { check_pkt_len: true, add_mpls: true, trunc: true, ..Withheld::default() };
    for (actions, withheld) in [
        (
            "check_pkt_larger(200)->NXM_NX_REG0[0],output:2",
            Withheld { check_pkt_len: false, ..all },
        ),
        ("encap(mpls),encap(ethernet),output:2", Withheld { add_mpls: false, ..all }),
        ("output(port=2,max_len=100)", Withheld { trunc: false, ..all }),
    ] {
        w.clear_rules();
        w.rule("in_port=1", of(actions));
        let reason = |w: &World| w.translate(&key("in_port=1,ip")).slow_path_reason();
        w.snapshot.withheld = withheld;
        assert_eq!(reason(&w), None, "{actions}");
        w.snapshot.withheld = all;
        assert_eq!(reason(&w), Some("action"), "{actions}");
    }
    // Without a packet, none is longer.
    w.clear_rules();
    w.rule("in_port=1", of("check_pkt_larger(200)->NXM_NX_REG0[0],resubmit(,1)"));
    w.rule("table=1,reg0=1/1", of("output:2"));
    w.rule("table=1,priority=1", of("output:3"));
    assert_eq!(w.dp("in_port=1,ip"), "3");
}
