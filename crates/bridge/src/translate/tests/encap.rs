// SPDX-License-Identifier: Apache-2.0
//! `encap`, `decap` and `dec_nsh_ttl`.

use super::*;
use crate::translate::TranslationError;

/// Actions of OpenFlow 1.3.
fn of(text: &str) -> Vec<Action> {
    openflow::text::parse_actions(text, openflow::Version::V13, &flow::text::no_numbers).unwrap()
}

/// A packet of NSH after an Ethernet header.
const FRAMED: &str = "in_port=1,dl_type=0x894f,nsh_ttl=63,nsh_mdtype=1,nsh_np=3,nsh_spi=0x123456,nsh_si=255,nsh_c1=0x11223344";

fn megaflow(w: &World, text: &str) -> String {
    let key = key(text);
    let mask = w.translate(&key).mask;
    flow::text::format_megaflow(&flow::Match::new(&key, &mask), &flow::text::no_names)
}

#[test]
fn a_set_of_nsh_names_all_fields_that_are_exact() {
    let mut w = World::new(3);
    w.rule(
        "in_port=1,dl_type=0x894f,nsh_ttl=63,nsh_mdtype=1,nsh_np=3,nsh_spi=0x123456,nsh_si=255,nsh_c1=0x11223344",
        of("set_field:0x2->nsh_flags,set_field:254->nsh_si,set_field:0x44332211->nsh_c1,output:2"),
    );
    assert_eq!(w.dp(FRAMED), "set(nsh(flags=2,ttl=63,spi=0x123456,si=254,c1=0x44332211)),2");
    assert_eq!(
        megaflow(&w, FRAMED),
        "recirc_id=0,eth,in_port=1,dl_type=0x894f,nsh_flags=0,nsh_ttl=63,nsh_mdtype=1,nsh_np=3,\
         nsh_spi=0x123456,nsh_si=255,nsh_c1=0x11223344"
    );
}

#[test]
fn a_new_header_has_the_fields_that_are_set_before_it_leaves() {
    let mut w = World::new(4);
    let encap = "encap(nsh(md_type=1)),set_field:0x1234->nsh_spi,set_field:0x11223344->nsh_c1";
    w.rule(
        "in_port=1,ip",
        of(&format!("{encap},encap(ethernet),set_field:11:22:33:44:55:66->dl_dst,output:3")),
    );
    let ip = "in_port=1,icmp,dl_src=00:11:22:33:44:55,dl_dst=66:77:88:99:aa:bb,nw_src=20.20.20.20";
    let pushed = "push_nsh(flags=0,ttl=63,mdtype=1,np=3,spi=0x1234,si=255,c1=0x11223344,c2=0x0,c3=0x0,c4=0x0)";
    assert_eq!(
        w.dp(ip),
        format!("{pushed},push_eth(src=00:00:00:00:00:00,dst=11:22:33:44:55:66),3")
    );
    // The fields of the new headers are not the packet's.
    assert_eq!(
        megaflow(&w, ip),
        "recirc_id=0,eth,ip,in_port=1,dl_dst=66:77:88:99:aa:bb,nw_frag=no"
    );
    // A port takes no packet without an Ethernet header.
    w.clear_rules();
    w.rule("in_port=1,ip", of(&format!("{encap},output:3")));
    assert_eq!(w.dp(ip), "drop");
    // Changes of the inner packet come first.
    w.clear_rules();
    w.rule(
        "in_port=1,ip",
        of("set_field:1.1.1.1->ip_src,encap(nsh),encap(ethernet),output:3,dec_nsh_ttl,output:2"),
    );
    assert_eq!(
        w.dp(ip),
        "set(ipv4(src=1.1.1.1)),push_nsh(flags=0,ttl=63,mdtype=1,np=3,spi=0x0,si=255,c1=0x0,c2=0x0,c3=0x0,c4=0x0),\
         push_eth(src=00:00:00:00:00:00,dst=00:00:00:00:00:00),3,set(nsh(ttl=62)),2"
    );
}

#[test]
fn metadata_of_type_two_goes_into_the_header() {
    let mut w = World::new(4);
    let encap = |properties: &str| {
        of(&format!("encap(nsh({properties})),set_field:0x1234->nsh_spi,encap(ethernet),output:3"))
    };
    let tlvs = "tlv(0x1000,10,0x12345678),tlv(0x2000,20,0xfedcba9876543210)";
    w.rule("in_port=1", encap(&format!("md_type=2,{tlvs}")));
    let eth = "push_eth(src=00:00:00:00:00:00,dst=00:00:00:00:00:00),3";
    assert_eq!(
        w.dp("in_port=1,ip"),
        format!(
            "push_nsh(flags=0,ttl=63,mdtype=2,np=3,spi=0x1234,si=255,\
             md2=0x10000a041234567820001408fedcba9876543210),{eth}"
        )
    );
    // With metadata of type 1 there is no place for it.
    w.clear_rules();
    w.rule("in_port=1", encap(tlvs));
    let plain =
        "push_nsh(flags=0,ttl=63,mdtype=1,np=3,spi=0x1234,si=255,c1=0x0,c2=0x0,c3=0x0,c4=0x0)";
    assert_eq!(w.dp("in_port=1,ip"), format!("{plain},{eth}"));
}

#[test]
fn headers_come_off_one_by_one() {
    let mut w = World::new(4);
    w.rule("in_port=1,dl_type=0x894f", of("decap(),decap(),output:2"));
    let actions = w.dp(FRAMED);
    assert!(actions.starts_with("pop_eth,pop_nsh(),recirc("), "{actions}");
    assert_eq!(
        megaflow(&w, FRAMED),
        "recirc_id=0,eth,in_port=1,vlan_tci=0x0000/0x1000,dl_type=0x894f,nsh_np=3"
    );
    let error = |text: &str| w.translate(&key(text)).error;
    let unsupported = Some(TranslationError::UnsupportedPacketType);
    assert_eq!(error("in_port=1,dl_type=0x894f,nsh_mdtype=1,nsh_np=5"), unsupported);
    assert_eq!(error("in_port=1,dl_vlan=5,dl_type=0x894f,nsh_mdtype=1,nsh_np=3"), unsupported);
}

#[test]
fn the_packet_type_decides_about_new_headers() {
    let mut w = World::new(4);
    let unsupported = Some(TranslationError::UnsupportedPacketType);
    w.rule("in_port=1", of("encap(ethernet),output:2"));
    assert_eq!(w.translate(&key("in_port=1,ip")).error, unsupported);
    w.clear_rules();
    w.rule("in_port=1", of("decap(),encap(nsh),encap(ethernet),output:2"));
    assert_eq!(w.translate(&key("in_port=1,arp")).error, unsupported);
    let actions = w.dp("in_port=1,ip");
    assert!(actions.starts_with("pop_eth,push_nsh(flags=0,ttl=63,mdtype=1,np=1,"), "{actions}");
    // A bucket that cannot run does not end the others.
    w.clear_rules();
    w.rule("in_port=1", of("decap(),encap(ethernet),output:2"));
    assert_eq!(
        w.dp("in_port=1,ip,dl_src=02:00:00:00:00:01"),
        "pop_eth,push_eth(src=00:00:00:00:00:00,dst=00:00:00:00:00:00),2"
    );
}

#[test]
fn copies_get_a_header_once() {
    let mut w = World::new(4);
    w.rule("in_port=1", of("encap(nsh),clone(encap(ethernet),output:2),encap(ethernet),output:3"));
    let nsh = "push_nsh(flags=0,ttl=63,mdtype=1,np=3,spi=0x0,si=255,c1=0x0,c2=0x0,c3=0x0,c4=0x0)";
    let eth = "push_eth(src=00:00:00:00:00:00,dst=00:00:00:00:00:00)";
    assert_eq!(w.dp("in_port=1,ip"), format!("{nsh},clone({eth},2),{eth},3"));
}

#[test]
fn an_expired_ttl_goes_to_the_controller() {
    let mut w = World::new(4);
    w.rule("in_port=1,dl_type=0x894f", of("dec_nsh_ttl,output:2"));
    assert_eq!(w.dp("in_port=1,dl_type=0x894f,nsh_ttl=2"), "set(nsh(ttl=1)),2");
    let expired = w.dp("in_port=1,dl_type=0x894f,nsh_ttl=1");
    assert!(expired.starts_with("userspace(pid=0,controller(reason=2,"), "{expired}");
    assert!(!expired.contains("),2"), "{expired}");
}

#[test]
fn rules_for_ethernet_packets_match_no_others() {
    let mut w = World::new(4);
    w.rule("in_port=1,dl_type=0x894f", of("decap(),resubmit(,1)"));
    w.rule("table=1,dl_type=0x894f", of("output:2"));
    w.rule("table=1,packet_type=(1,0x894f),nsh_spi=0x123456", of("encap(ethernet),output:3"));
    let text = w.dp(FRAMED);
    assert!(text.ends_with("3"), "{text}");
}

#[test]
fn packets_without_an_ethernet_header_go_to_other_bridges() {
    let mut w = World::new(4);
    let br1 = w.add_bridge(4);
    w.patch((BridgeIndex(0), 3), (br1, 3));
    w.rule("in_port=1", of("encap(nsh),output:3,encap(ethernet),output:2"));
    w.rule_on(br1, "packet_type=(1,0x894f)", of("encap(ethernet),output:4"));
    let text = w.dp("in_port=1,ip");
    assert!(text.starts_with("push_nsh("), "{text}");
    assert_eq!(text.matches("push_nsh(").count(), 1, "{text}");
    assert_eq!(text.matches("push_eth(").count(), 2, "{text}");
}

/// An MPLS header with one label after an Ethernet header.
const LABELLED: &str = "in_port=1,dl_type=0x8847,mpls_label=5,mpls_ttl=9,mpls_bos=1";

#[test]
fn labels_go_in_front_of_a_frame_and_come_off_again() {
    let mut w = World::new(4);
    w.rule(
        "in_port=1",
        of("encap(mpls),set_field:7->mpls_label,encap(mpls_mc),encap(ethernet),output:3"),
    );
    let eth = "push_eth(src=00:00:00:00:00:00,dst=00:00:00:00:00:00)";
    let ip = "in_port=1,ip,dl_src=02:00:00:00:00:01,nw_ttl=9";
    assert_eq!(
        w.dp(ip),
        format!(
            "add_mpls(label=7,tc=0,ttl=64,bos=1,eth_type=0x8847),\
             add_mpls(label=7,tc=0,ttl=64,bos=0,eth_type=0x8848),{eth},3"
        )
    );
    assert_eq!(megaflow(&w, ip), "recirc_id=0,eth,ip,in_port=1,nw_frag=no");
    let lse = |text: &str| w.dp(text).split(',').next().unwrap_or_default().to_owned();
    assert_eq!(lse("in_port=1,ipv6"), "add_mpls(label=7");
    // The labels of the frame are its own.
    assert!(w.dp(LABELLED).starts_with("add_mpls(label=7,tc=0,ttl=64,bos=1,eth_type=0x8847),add"));
    w.clear_rules();
    w.rule("in_port=1,dl_type=0x8847", of("decap(),decap(packet_type(ns=0,type=0)),output:2"));
    let actions = w.dp(LABELLED);
    assert!(actions.starts_with("pop_eth,pop_mpls(eth_type=0x6558),recirc("), "{actions}");
    w.clear_rules();
    w.rule("in_port=1", of("encap(mpls),encap(ethernet),output:2"));
    assert!(w.dp("in_port=1,ipv6").starts_with("add_mpls(label=2,tc=0,ttl=64,bos=1,"));
}

#[test]
fn inner_labels_are_known_and_the_packet_below_the_last_is_looked_up() {
    let mut w = World::new(4);
    w.rule(
        "in_port=1,dl_type=0x8847",
        of("decap(),decap(packet_type(ns=1,type=0x8847)),set_field:9->mpls_label,encap(ethernet),output:2"),
    );
    let stack = |lses: [u32; 3]| {
        let mut key = key("in_port=1,dl_type=0x8847");
        key.mpls = lses.map(Into::into);
        key
    };
    let dp = |w: &World, key: &Key| datapath::text::format_plain(&w.translate(key).actions);
    assert_eq!(
        dp(&w, &stack([5 << 12 | 64, 6 << 12 | 2 << 9 | 1 << 8 | 64, 0])),
        "pop_eth,pop_mpls(eth_type=0x8847),set(mpls(label=9,tc=2,ttl=64,bos=1)),\
         push_eth(src=00:00:00:00:00:00,dst=00:00:00:00:00:00),2"
    );
    let actions = w.dp(LABELLED);
    assert!(actions.starts_with("pop_eth,pop_mpls(eth_type=0x8847),recirc("), "{actions}");
    // Without a label there is nothing to take off, and below the last that is known is another.
    let too_many = Some(TranslationError::TooManyMplsLabels);
    assert_eq!(w.translate(&stack([64; 3])).error, too_many);
    assert_eq!(w.translate(&stack([0; 3])).error, too_many);
    w.clear_rules();
    w.rule("in_port=1", of("encap(mpls),encap(mpls),encap(mpls),encap(mpls),output:2"));
    assert_eq!(w.translate(&key("in_port=1,ip")).error, too_many);
}

#[test]
fn labels_pushed_and_popped_without_an_ethernet_header_keep_key_and_packet_equal() {
    let mut w = World::new(4);
    w.rule("in_port=1", of("encap(mpls),push_mpls:0x8848,encap(ethernet),output:2"));
    w.rule("in_port=2", of("encap(mpls),pop_mpls:0x0800,encap(ethernet),output:2"));
    let actions = w.dp("in_port=1,ip");
    assert!(
        actions.starts_with(
            "add_mpls(label=0,tc=0,ttl=64,bos=1,eth_type=0x8847),\
             push_mpls(label=0,tc=0,ttl=64,bos=0,eth_type=0x8848),push_eth("
        ),
        "{actions}"
    );
    let actions = w.dp("in_port=2,ip");
    assert!(actions.contains("pop_mpls(eth_type=0x800),recirc("), "{actions}");
}
