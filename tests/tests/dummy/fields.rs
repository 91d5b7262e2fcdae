// SPDX-License-Identifier: Apache-2.0
//! Matches on fields.

use slipswitch_tests::harness::Switch;

#[test]
fn every_kind_of_match_comes_back_as_given() {
    let switch = Switch::dummy(2);
    let matches = [
        "in_port=1",
        "dl_src=01:02:03:04:05:06,dl_dst=00:00:00:00:00:00/01:00:00:00:00:00",
        "dl_vlan=5,dl_vlan_pcp=3",
        "vlan_tci=0x0000",
        "dl_type=0x88cc",
        "mpls,mpls_label=7,mpls_tc=2,mpls_bos=1,mpls_ttl=9",
        "arp,arp_spa=10.0.0.1,arp_tpa=10.0.0.0/24,arp_op=1,arp_sha=01:02:03:04:05:06",
        "rarp,arp_op=3",
        "ip,nw_src=10.0.0.0/8,nw_dst=1.2.3.4,nw_proto=99,nw_tos=32,nw_ecn=1,nw_ttl=3",
        "ip,nw_frag=first",
        "ip,nw_frag=not_later",
        "icmp,icmp_type=8,icmp_code=0",
        "tcp,tp_src=1,tp_dst=0x8000/0x8000",
        "tcp,tcp_flags=+syn-ack",
        "udp,tp_src=53",
        "sctp,tp_dst=5",
        "ipv6,ipv6_src=fe80::/10,ipv6_dst=::1,ipv6_label=0x12345",
        "icmp6,icmp_type=135,icmp_code=0,nd_target=fe80::1,nd_sll=01:02:03:04:05:06",
        "icmp6,icmp_type=136,nd_target=fe80::1,nd_tll=01:02:03:04:05:06",
        "tcp6,tp_dst=443",
        "reg0=0x1,reg15=0x5/0xff",
        "xreg3=0x123456789",
        "metadata=0x7/0xf",
        "pkt_mark=0x2",
        "conj_id=4",
        "skb_priority=0x3",
    ];
    for text in matches {
        let output = switch.sh(&format!("ovs-ofctl add-flow br0 '{text},actions=drop'"));
        if text.starts_with("skb_priority") {
            continue;
        }
        assert!(output.ok(), "{text}: {}", output.text());
        let dumped = switch.dump("--no-names br0");
        assert_eq!(dumped.len(), 1, "{text}: {dumped:?}");
        // Some names have two spellings; what comes back goes in again as the same flow.
        let back = dumped[0].trim_end_matches(" actions=drop");
        switch.ofctl(&format!("add-flow br0 '{back},actions=drop'"));
        assert_eq!(switch.dump("--no-names br0"), dumped, "{text}");
        switch.ofctl("del-flows br0");
    }
}

#[test]
fn a_flow_matches_the_packets_it_names_and_no_others() {
    let switch = Switch::dummy(2);
    for (pattern, packet, hit) in [
        ("tcp,tcp_flags=+syn-ack", "tcp,tcp_flags=syn", true),
        ("tcp,tcp_flags=+syn-ack", "tcp,tcp_flags=syn|ack", false),
        ("dl_vlan=5", "dl_vlan=5,ip", true),
        ("dl_vlan=5", "ip", false),
        ("vlan_tci=0", "ip", true),
        ("vlan_tci=0x1000/0x1000", "dl_vlan=0,dl_vlan_pcp=1", true),
        ("ip,nw_tos=32", "ip,nw_tos=32,nw_ecn=1", true),
        ("ip,nw_frag=no", "ip,nw_frag=later", false),
        ("ip,nw_frag=later", "ip,nw_frag=later", true),
        ("ipv6,ipv6_dst=fe80::/16", "ipv6,ipv6_dst=fe80::1", true),
        ("ipv6,ipv6_dst=fe80::/16", "ipv6,ipv6_dst=fe81::1", false),
        ("icmp6,icmp_type=135,nd_target=::1", "icmp6,icmpv6_type=135,nd_target=::1", true),
        ("arp,arp_op=2", "arp,arp_op=1", false),
        ("sctp,tp_dst=7", "sctp,sctp_dst=7", true),
        ("udp,tp_dst=7", "tcp,tp_dst=7", false),
        ("mpls,mpls_label=5", "mpls,mpls_label=5", true),
        ("in_port=2", "in_port=1", false),
        ("dl_type=0x88cc", "dl_type=0x88cc", true),
        ("pkt_mark=2", "pkt_mark=2", true),
    ] {
        switch.flows("br0", &format!("{pattern},actions=2"));
        let packet_in = if packet.starts_with("in_port") {
            packet.to_owned()
        } else {
            format!("in_port=1,{packet}")
        };
        let got = switch.traced(&format!("br0 '{packet_in}'"));
        assert_eq!(got != "drop", hit, "{pattern} on {packet}: {got}");
    }
}

#[test]
fn fragments_are_dropped_or_matched_as_set_frags_says() {
    let switch = Switch::dummy(2);
    assert_eq!(switch.ofctl("get-frags br0"), "normal\n");
    switch.flows("br0", "ip,nw_frag=later,actions=2\npriority=1,tcp,tp_dst=0,actions=drop");
    assert_eq!(switch.traced("br0 in_port=1,tcp,nw_frag=later"), "2");
    switch.ofctl("set-frags br0 drop");
    assert_eq!(switch.ofctl("get-frags br0"), "drop\n");
    assert_eq!(switch.traced("br0 in_port=1,tcp,nw_frag=later"), "drop");
    switch.ofctl("set-frags br0 nx-match");
    assert_eq!(switch.ofctl("get-frags br0"), "nx-match\n");
    assert_eq!(switch.traced("br0 in_port=1,tcp,nw_frag=later"), "2");
}
