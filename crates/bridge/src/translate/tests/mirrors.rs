// SPDX-License-Identifier: Apache-2.0
//! Mirrors. Most of their behaviour is compared with OVS's, by `oracle::mirrors`.

use super::*;
use crate::mirror::{Mirror, MirrorOutput, Mirrors};

fn mirror(filter: Option<&str>, output: MirrorOutput<String>) -> Mirror {
    Mirror {
        name: "m".to_owned(),
        sources: ["p1".to_owned()].into(),
        destinations: Default::default(),
        vlans: Vec::new(),
        filter: filter.map(|text| flow::text::parse_match(text, &|_| None).unwrap()),
        output,
        snaplen: None,
        stats: Arc::default(),
    }
}

fn set(w: &mut World, mirrors: &[Mirror]) {
    let view = Mirrors::new(mirrors, &w.br0().bundles);
    w.br0().mirrors = Arc::new(view);
}

#[test]
fn a_filter_selects_packets_and_is_in_the_megaflow() {
    let mut w = World::new(3);
    w.rule("", actions("output:2"));
    let output = MirrorOutput::Bundle("p3".to_owned());
    set(&mut w, &[mirror(Some("tcp,tp_dst=80"), output)]);
    let web = "in_port=1,tcp,tcp_dst=80";
    assert_eq!(w.dp(web), "3,2");
    let other = "in_port=1,tcp,tcp_dst=81";
    assert_eq!(w.dp(other), "2");
    let mask = w.translate(&key(other)).mask;
    assert_eq!((mask.0.nw_proto, mask.0.tp_dst.get()), (u8::MAX, u16::MAX));
    assert_eq!(w.translate(&key(other)).mask.0.tp_src.get(), 0);
}

#[test]
fn a_mirror_counts_its_packets() {
    let mut w = World::new(3);
    w.rule("", actions("drop"));
    let m = mirror(None, MirrorOutput::Bundle("p3".to_owned()));
    set(&mut w, std::slice::from_ref(&m));
    let t = w.translate(&key("in_port=1"));
    let seen = datapath::FlowStats { packets: 3, bytes: 180, used: Millis(5), tcp_flags: 0 };
    apply(&t.effects, &seen, &crate::event::Sender::new(|_| true));
    assert_eq!(m.stats.counts(), (3, 180));
}

#[test]
fn mirrors_beyond_the_most_are_left_out() {
    let mut w = World::new(3);
    w.rule("", actions("drop"));
    let mut mirrors =
        vec![mirror(Some("tcp"), MirrorOutput::Vlan(9)); crate::mirror::MAX_MIRRORS - 1];
    mirrors.push(mirror(None, MirrorOutput::Bundle("p2".to_owned())));
    mirrors.push(mirror(None, MirrorOutput::Bundle("p3".to_owned())));
    set(&mut w, &mirrors);
    assert_eq!(w.dp("in_port=1,udp"), "2");
}

#[test]
fn a_mirror_to_no_bundle_mirrors_nothing() {
    let mut w = World::new(3);
    w.rule("", actions("output:2"));
    set(&mut w, &[mirror(None, MirrorOutput::Bundle("p9".to_owned()))]);
    assert_eq!(w.dp("in_port=1"), "2");
}
