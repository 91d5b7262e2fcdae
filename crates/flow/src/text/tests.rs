// SPDX-License-Identifier: Apache-2.0
//! Expectations are what Open vSwitch 3.1 prints and reads.

use super::odp::Style;
use super::*;
use crate::{Field, Key, Mask, VLAN_CFI};
use proptest::prelude::*;

fn port_name(port: u32) -> Option<String> {
    match port {
        1 => Some("p1".into()),
        2 => Some("p2".into()),
        _ => None,
    }
}

fn port_number(name: &str) -> Option<u32> {
    match name {
        "p1" => Some(1),
        "p2" => Some(2),
        _ => None,
    }
}

#[test]
fn matches_are_shown_as_ovs_ofctl_shows_them() {
    for (given, shown) in [
        ("tcp,nw_dst=10.0.0.0/8,tp_dst=80", "tcp,nw_dst=10.0.0.0/8,tp_dst=80"),
        ("in_port=1", "in_port=1"),
        ("in_port=LOCAL,udp,udp_src=0x10/0xfff0", "udp,in_port=LOCAL,tp_src=0x10/0xfff0"),
        ("in_port=CONTROLLER", "in_port=CONTROLLER"),
        ("in_port=0xfffe", "in_port=LOCAL"),
        ("ip,nw_src=10.0.0.1/255.0.255.0", "ip,nw_src=10.0.0.0/255.0.255.0"),
        ("dl_vlan=5", "dl_vlan=5"),
        ("dl_vlan=5,dl_vlan_pcp=3", "dl_vlan=5,dl_vlan_pcp=3"),
        ("dl_vlan_pcp=3", "dl_vlan_pcp=3"),
        ("dl_vlan=0xffff", "vlan_tci=0x0000"),
        ("vlan_tci=0", "vlan_tci=0x0000"),
        ("vlan_tci=0x1000/0x1000", "vlan_tci=0x1000/0x1000"),
        ("vlan_tci=0x1123/0x1fff", "dl_vlan=291"),
        ("vlan_tci=0x1005", "dl_vlan=5,dl_vlan_pcp=0"),
        ("vlan_tci=0x5/0xfff", "vlan_tci=0x0005/0x0fff"),
        ("vlan_vid=0x1005/0x1005", "vlan_tci=0x1005/0x1005"),
        ("vlan_tci=0xf000/0xf000", "dl_vlan_pcp=7"),
        ("vlan_vid=0/0x1000", "vlan_tci=0x0000/0x1000"),
        ("vlan_pcp=3,dl_vlan=2", "dl_vlan=2,dl_vlan_pcp=3"),
        ("reg0=1,reg1=5/0xff,reg15=0xffffffff", "reg0=0x1,reg1=0x5/0xff,reg15=0xffffffff"),
        ("xreg0=5", "reg0=0,reg1=0x5"),
        ("xreg1=0x100000002/0xf0000000f", "reg2=0x1/0xf,reg3=0x2/0xf"),
        ("xxreg0=1", "reg0=0,reg1=0,reg2=0,reg3=0x1"),
        ("xxreg1=0x1234/0xffff", "reg7=0x1234/0xffff"),
        ("reg31=2,reg16=1/0xff", "reg16=0x1/0xff,reg31=0x2"),
        ("xreg8=5,xreg15=7/0xf", "reg16=0,reg17=0x5,reg31=0x7/0xf"),
        ("xxreg4=1,xxreg7=0x1234/0xffff", "reg16=0,reg17=0,reg18=0,reg19=0x1,reg31=0x1234/0xffff"),
        ("metadata=5", "metadata=0x5"),
        ("metadata=0x5/0xff", "metadata=0x5/0xff"),
        ("pkt_mark=4/0xf", "pkt_mark=0x4/0xf"),
        ("eth", ""),
        ("arp", "arp"),
        ("rarp,arp_op=3", "rarp,arp_op=3"),
        (
            "arp,arp_spa=1.2.3.4,arp_tpa=1.2.0.0/16,arp_sha=00:00:00:00:00:01,arp_tha=00:01:00:00:00:00/00:ff:00:00:00:00",
            "arp,arp_spa=1.2.3.4,arp_tpa=1.2.0.0/16,arp_sha=00:00:00:00:00:01,arp_tha=00:01:00:00:00:00/00:ff:00:00:00:00",
        ),
        ("icmp,icmp_type=8,icmp_code=0", "icmp,icmp_type=8,icmp_code=0"),
        (
            "icmp6,icmpv6_type=135,icmpv6_code=0,nd_target=fe80::1,nd_sll=00:00:00:00:00:01",
            "icmp6,icmp_type=135,icmp_code=0,nd_target=fe80::1,nd_sll=00:00:00:00:00:01",
        ),
        (
            "icmp6,icmp_type=136,icmp_code=0,nd_target=fe80::/64,nd_tll=00:00:00:00:00:01",
            "icmp6,icmp_type=136,icmp_code=0,nd_target=fe80::/64,nd_tll=00:00:00:00:00:01",
        ),
        (
            "icmp6,icmp_type=136,icmp_code=0,nd_reserved=4,nd_options_type=2",
            "icmp6,icmp_type=136,icmp_code=0,nd_reserved=4,nd_options_type=2",
        ),
        ("udp6,udp_dst=5", "udp6,tp_dst=5"),
        ("sctp,sctp_src=4", "sctp,tp_src=4"),
        ("mplsm", "mplsm"),
        (
            "mpls,mpls_label=5,mpls_tc=2,mpls_bos=1,mpls_ttl=5",
            "mpls,mpls_label=5,mpls_tc=2,mpls_ttl=5,mpls_bos=1",
        ),
        (
            "dl_type=0x88cc,dl_src=00:01:02:03:04:05,dl_dst=01:00:00:00:00:00/01:00:00:00:00:00",
            "dl_src=00:01:02:03:04:05,dl_dst=01:00:00:00:00:00/01:00:00:00:00:00,dl_type=0x88cc",
        ),
        ("dl_type=0x05ff", "dl_type=0x05ff"),
        ("ip,nw_proto=0", "ip,nw_proto=0"),
        ("ipv6,nw_proto=59", "ipv6,nw_proto=59"),
        ("ip,ip_dscp=8", "ip,nw_tos=32"),
        ("ip,nw_tos=5", "ip,nw_tos=4"),
        ("ip,nw_tos=252,nw_ecn=3", "ip,nw_tos=252,nw_ecn=3"),
        ("ip,nw_ttl=5", "ip,nw_ttl=5"),
        ("ip,ip_frag=no", "ip,nw_frag=no"),
        ("ip,ip_frag=yes", "ip,nw_frag=yes"),
        ("ip,ip_frag=first", "ip,nw_frag=first"),
        ("ip,ip_frag=later", "ip,nw_frag=later"),
        ("ip,ip_frag=not_later", "ip,nw_frag=not_later"),
        (
            "ipv6,ipv6_src=fe80::/10,ipv6_dst=::1,ipv6_label=0x5",
            "ipv6,ipv6_src=fe80::/10,ipv6_dst=::1,ipv6_label=0x00005",
        ),
        (
            "ipv6,ipv6_src=fe80::1/ffff::ffff,ipv6_label=0x5/0xf",
            "ipv6,ipv6_src=fe80::1/ffff::ffff,ipv6_label=0x00005/0x0000f",
        ),
        ("ipv6,ipv6_src=::100:1", "ipv6,ipv6_src=::1.0.0.1"),
        ("tcp,tcp_flags=+syn-ack", "tcp,tcp_flags=+syn-ack"),
        ("tcp,tcp_flags=0x12", "tcp,tcp_flags=syn|ack"),
        ("tcp,tcp_flags=0x2/0x2", "tcp,tcp_flags=+syn"),
        ("tcp,tcp_flags=syn", "tcp,tcp_flags=syn"),
        ("tcp,tcp_flags=0", "tcp,tcp_flags=0"),
        (
            "tcp,tcp_flags=0xfff",
            "tcp,tcp_flags=fin|syn|rst|psh|ack|urg|ece|cwr|ns|[200]|[400]|[800]",
        ),
        ("tcp,tcp_flags=0x800/0x800", "tcp,tcp_flags=+[800]"),
        ("tcp,tcp_src=0x8000/0x8000,tcp_dst=0", "tcp,tp_src=0x8000/0x8000,tp_dst=0"),
        ("udp,tp_src=0/0xf000", "udp,tp_src=0x0/0xf000"),
        ("conj_id=5", "conj_id=5"),
        ("actset_output=3", "actset_output=3"),
        ("dp_hash=0x5/0xf", "dp_hash=0x5/0xf"),
        ("recirc_id=7", "recirc_id=0x7"),
        ("packet_type=(0,0)", ""),
        ("packet_type=(1,0x800)", "packet_type=(1,0x800)"),
        ("dl_src=00:00:00:00:00:00/00:00:00:00:00:00", ""),
        ("ip,nw_dst=0.0.0.0/0", "ip"),
        ("tcp,tp_src=*", "tcp"),
        ("in_port=ANY", "in_port=ANY"),
        ("nw_proto=5", "nw_proto=5"),
        ("ip,nw_proto=2,tp_src=3", "ip,nw_proto=2,tp_src=3"),
        ("", ""),
    ] {
        let m = parse_match(given, &no_numbers).unwrap_or_else(|e| panic!("{given}: {e}"));
        assert_eq!(format_match(&m, &no_names), shown, "{given}");
    }
    let m = parse_match("in_port=p2,actset_output=p1", &port_number).unwrap();
    assert_eq!(format_match(&m, &port_name), "actset_output=p1,in_port=p2");
    assert_eq!(format_match(&m, &no_names), "actset_output=1,in_port=2");
}

#[test]
fn wrong_matches_get_the_reason() {
    for (given, error) in [
        ("tcp,tp_dst=http", "bad value for tp_dst (http: bad syntax for tcp_dst value)"),
        (
            "tcp,tp_dst=99999",
            "bad value for tp_dst (99999: value too large for 2-byte field tcp_dst)",
        ),
        ("tcp,nw_dst=1.2.3", "bad value for nw_dst (1.2.3: invalid IP address)"),
        (
            "tcp,nw_dst=1.2.3.4/33",
            "bad value for nw_dst (1.2.3.4/33: IPv4 network prefix bits not between 0 and 32, inclusive)",
        ),
        ("ipv6,ipv6_src=foo", "bad value for ipv6_src (foo: invalid IPv6 address)"),
        ("tcp,tcp_flags=+foo", "bad value for tcp_flags (foo: unknown TCP flag(s))"),
        ("dl_vlan=4096", "bad value for dl_vlan (4096: value too large for 12-bit field dl_vlan)"),
        ("dl_vlan=5/0xf", "bad value for dl_vlan (5/0xf: invalid mask for field dl_vlan)"),
        ("reg0=foo", "bad value for reg0 (foo: bad syntax for reg0 value)"),
        ("metadata=0x1/zzz", "bad value for metadata (0x1/zzz: bad syntax for metadata mask)"),
        ("reg32=1", "unknown field reg32"),
        ("in_port=foo", "bad value for in_port (foo: invalid or unknown port for in_port)"),
        ("in_port=0x12345", "bad value for in_port (0x12345: invalid or unknown port for in_port)"),
        ("dl_src=foo", "bad value for dl_src (foo: invalid Ethernet address)"),
        ("ip,nw_ecn=4", "bad value for nw_ecn (4: value too large for 2-bit field nw_ecn)"),
        ("tcp,tp_dst", "field tp_dst missing value"),
    ] {
        let e = parse_match(given, &no_numbers).map_err(|e| e.to_string());
        assert_eq!(e, Err(error.to_string()), "{given}");
    }
}

#[test]
fn flows_of_packets() {
    let zero = "vlan_tci=0x0000,dl_src=00:00:00:00:00:00,dl_dst=00:00:00:00:00:00";
    let v6 = "ipv6_src=::,ipv6_dst=::,ipv6_label=0x00000";
    let v4 = "nw_src=0.0.0.0,nw_dst=0.0.0.0";
    let ip = "nw_tos=0,nw_ecn=0,nw_ttl=0";
    for (given, shown) in [
        (
            "in_port=1,tcp,nw_dst=10.1.1.1,tp_dst=80",
            format!("tcp,in_port=1,{zero},nw_src=0.0.0.0,nw_dst=10.1.1.1,{ip},nw_frag=no,tp_src=0,tp_dst=80,tcp_flags=0"),
        ),
        (
            "in_port=1 tcp,, tcp_flags=syn",
            format!("tcp,in_port=1,{zero},{v4},{ip},nw_frag=no,tp_src=0,tp_dst=0,tcp_flags=syn"),
        ),
        (
            "in_port=1,udp,recirc_id=1",
            format!("recirc_id=0x1,eth,udp,in_port=1,{zero},{v4},{ip},nw_frag=no,tp_src=0,tp_dst=0"),
        ),
        ("in_port=1,icmp", format!("icmp,in_port=1,{zero},{v4},{ip},nw_frag=no,icmp_type=0,icmp_code=0")),
        (
            "in_port=1,icmp6",
            format!("icmp6,in_port=1,{zero},{v6},{ip},nw_frag=no,icmp_type=0,icmp_code=0"),
        ),
        (
            "in_port=1,icmp6,icmpv6_type=135",
            format!("icmp6,in_port=1,{zero},{v6},{ip},nw_frag=no,icmp_type=135,icmp_code=0,nd_target=::,nd_sll=00:00:00:00:00:00,nd_tll=00:00:00:00:00:00"),
        ),
        (
            "in_port=1,arp,arp_op=1,arp_spa=1.2.3.4",
            format!("arp,in_port=1,{zero},arp_spa=1.2.3.4,arp_tpa=0.0.0.0,arp_op=1,arp_sha=00:00:00:00:00:00,arp_tha=00:00:00:00:00:00"),
        ),
        ("in_port=1,dl_type=0x1234", format!("in_port=1,{zero},dl_type=0x1234")),
        ("in_port=1", format!("in_port=1,{zero},dl_type=0x0000")),
        (
            "in_port=1,mpls,mpls_label=5",
            format!("mpls,in_port=1,{zero},mpls_label=5,mpls_tc=0,mpls_ttl=0,mpls_bos=0,mpls_lse1=0,mpls_lse2=0"),
        ),
        (
            "in_port=1,tcp6,tp_dst=80,ipv6_label=5,reg0=5,metadata=6,xreg2=7,pkt_mark=4",
            "pkt_mark=0x4,tcp6,reg0=0x5,reg5=0x7,metadata=0x6,in_port=1,vlan_tci=0x0000,dl_src=00:00:00:00:00:00,dl_dst=00:00:00:00:00:00,ipv6_src=::,ipv6_dst=::,ipv6_label=0x00005,nw_tos=0,nw_ecn=0,nw_ttl=0,nw_frag=no,tp_src=0,tp_dst=80,tcp_flags=0".to_string(),
        ),
        (
            "in_port=1,mpls,mpls_label=5,mpls_bos=1",
            format!("mpls,in_port=1,{zero},mpls_label=5,mpls_tc=0,mpls_ttl=0,mpls_bos=1"),
        ),
        ("in_port=1,ip,nw_frag=first", format!("ip,in_port=1,{zero},{v4},nw_proto=0,{ip},nw_frag=first")),
        ("in_port=1,udp,nw_frag=later", format!("udp,in_port=1,{zero},{v4},{ip},nw_frag=later")),
        (
            "in_port=1,udp,vlan_tci=0x1005,nw_tos=32,nw_ecn=1,nw_ttl=5",
            "udp,in_port=1,dl_vlan=5,dl_vlan_pcp=0,vlan_tci1=0x0000,dl_src=00:00:00:00:00:00,dl_dst=00:00:00:00:00:00,nw_src=0.0.0.0,nw_dst=0.0.0.0,nw_tos=32,nw_ecn=1,nw_ttl=5,nw_frag=no,tp_src=0,tp_dst=0".to_string(),
        ),
        ("in_port=1,ip,nw_proto=47", format!("ip,in_port=1,{zero},{v4},nw_proto=47,{ip},nw_frag=no")),
        ("in_port=1,rarp", format!("rarp,in_port=1,{zero},arp_spa=0.0.0.0,arp_tpa=0.0.0.0,arp_op=0,arp_sha=00:00:00:00:00:00,arp_tha=00:00:00:00:00:00")),
        // Only packets of IP have a connection's tuple.
        (
            "in_port=4,arp,ct_state=0x22,ct_nw_proto=6",
            format!("ct_state=est|trk,arp,in_port=4,{zero},arp_spa=0.0.0.0,arp_tpa=0.0.0.0,arp_op=0,arp_sha=00:00:00:00:00:00,arp_tha=00:00:00:00:00:00"),
        ),
        (
            "tcp,tp_dst=1",
            format!("tcp,in_port=ANY,{zero},{v4},{ip},nw_frag=no,tp_src=0,tp_dst=1,tcp_flags=0"),
        ),
    ] {
        let key = parse_exact_flow(given, &port_number).unwrap_or_else(|e| panic!("{given}: {e}"));
        assert_eq!(format_key(&key, &no_names), shown, "{given}");
    }
    for (given, error) in [
        ("in_port=1,nw_dst=1.2.3.4", "prerequisites not met for setting nw_dst"),
        ("in_port=foo,tcp", "bad value for in_port (foo: invalid or unknown port for in_port)"),
        ("in_port=-1", "bad value for in_port (-1: invalid or unknown port for in_port)"),
        (
            "in_port=1,tcp,nw_dst=10.0.0.0/8",
            "bad value for nw_dst (10.0.0.0/8: wildcards not allowed here)",
        ),
        ("in_port=1,tcp,foo=3", "unknown field foo"),
        ("in_port=1,tcp,foo", "unknown field foo"),
        ("in_port=1,tcp,dl_src=xx", "bad value for dl_src (xx: invalid Ethernet address)"),
        ("in_port=1,arp_op=1,arp", "prerequisites not met for setting arp_op"),
        ("in_port=1,tcp,tp_dst", "bad value for tp_dst (: bad syntax for tcp_dst value)"),
        ("in_port=1,tcp,udp", "Ethernet type set multiple times"),
        ("in_port=1,tcp,reg0=5,reg0=6", "field reg0 set multiple times"),
        (
            "in_port=1,tcp,tcp_flags=+syn",
            "bad value for tcp_flags (+syn: wildcards not allowed here)",
        ),
    ] {
        let e = parse_exact_flow(given, &no_numbers).map_err(|e| e.to_string());
        assert_eq!(e, Err(error.to_string()), "{given}");
    }
}

#[test]
fn megaflows() {
    for (given, shown) in [
        (
            "recirc_id=0,eth,tcp,in_port=1,nw_dst=10.0.0.0/8,nw_frag=no,tp_dst=80,tcp_flags=-syn-ack",
            "recirc_id=0,eth,tcp,in_port=1,nw_dst=10.0.0.0/8,nw_frag=no,tp_dst=80,tcp_flags=-syn-ack",
        ),
        (
            "recirc_id=0,eth,icmp,in_port=1,icmp_type=8,icmp_code=0",
            "recirc_id=0,eth,icmp,in_port=1,icmp_type=0x8/0xff,icmp_code=0x0/0xff",
        ),
        (
            "recirc_id=0,eth,icmp6,in_port=1,icmp_type=136,icmp_code=0,nd_reserved=30464,nd_options_type=2",
            "recirc_id=0,eth,icmp6,in_port=1,icmp_type=0x88/0xff,icmp_code=0x0/0xff,nd_reserved=30464,nd_options_type=0x2/0xff",
        ),
        ("recirc_id=0,eth,in_port=1,dl_type=0x1234", "recirc_id=0,eth,in_port=1,dl_type=0x1234"),
        (
            "recirc_id=0,eth,ip,in_port=1,dl_vlan=5,dl_vlan_pcp=0,nw_dst=0.0.0.0/5,nw_frag=no",
            "recirc_id=0,eth,ip,in_port=1,dl_vlan=5,dl_vlan_pcp=0,nw_dst=0.0.0.0/5,nw_frag=no",
        ),
    ] {
        let m = parse_match(given, &no_numbers).unwrap_or_else(|e| panic!("{given}: {e}"));
        assert_eq!(format_megaflow(&m, &no_names), shown);
    }
}

#[test]
fn normalisation_drops_what_has_no_prerequisites() {
    for (given, left) in [
        ("nw_dst=1.2.3.4", ""),
        ("nw_proto=6,tp_dst=3", ""),
        ("ip,tp_dst=3", "ip"),
        ("tcp,tp_dst=3,arp_sha=00:00:00:00:00:01", "tcp,tp_dst=3"),
        ("arp,nw_ttl=5,arp_op=1,arp_spa=1.2.3.4", "arp,arp_op=1,arp_spa=1.2.3.4"),
        ("mpls,mpls_label=3,nw_src=1.1.1.1", "mpls,mpls_label=3"),
        (
            "reg0=1,metadata=2,in_port=3,dl_vlan=4,dl_type=0x1234",
            "reg0=0x1,metadata=0x2,in_port=3,dl_vlan=4,dl_type=0x1234",
        ),
        (
            "icmp6,icmp_type=135,icmp_code=0,nd_target=::1",
            "icmp6,icmp_type=135,icmp_code=0,nd_target=::1",
        ),
        ("icmp6,icmp_type=1,nd_target=::1", "icmp6,icmp_type=1"),
    ] {
        let mut m = parse_match(given, &no_numbers).unwrap();
        let whole = m;
        assert_eq!(m.normalize(), m != whole);
        let expected = parse_match(left, &no_numbers).unwrap();
        assert_eq!(m, expected, "{given}: {}", format_match(&m, &no_names));
    }
}

fn odp(text: &str) -> (Key, Mask) {
    odp::parse(text, &port_number).unwrap_or_else(|e| panic!("{text}: {e}"))
}

#[test]
fn datapath_flows_round_trip() {
    for text in [
        "recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth_type(0x0800),ipv4(frag=no)",
        "recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth_type(0x0806)",
        "recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth_type(0/0xffff)",
        "recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),eth_type(0x8100),vlan(vid=0,pcp=0),encap(eth_type(0x0806))",
        "recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),eth_type(0x8100),vlan(vid=9),encap()",
        "recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth_type(0x0800),ipv4(src=10.1.0.0/255.255.0.0,dst=10.0.0.0/255.0.0.0,proto=6,tos=0x10/0xfc,ttl=64,frag=no),tcp(src=1/0x1,dst=80/0xff),tcp_flags(+syn-ack)",
        "skb_priority(0x1),skb_mark(0x3/0xf),recirc_id(0x1f),dp_hash(0x1/0xf),in_port(1),eth(src=50:54:00:00:00:00/ff:ff:ff:00:00:00,dst=50:54:00:00:00:07),eth_type(0x0800),ipv4(frag=later)",
        "recirc_id(0),in_port(1),eth(),eth_type(0x86dd),ipv6(proto=58,frag=no),icmpv6(type=135,code=0),nd(target=::5/::ff)",
        "recirc_id(0),in_port(1),eth(),eth_type(0x8847),mpls(label=100,tc=3,ttl=64,bos=0,label=1,tc=0,ttl=3,bos=1)",
        "recirc_id(0),in_port(1),eth(),eth_type(0x8847),mpls(label=100/0xfffff,tc=3/7,ttl=0/0x0,bos=1/1)",
        "recirc_id(0),in_port(1),eth(),eth_type(0x0800),ipv4(proto=17,frag=no),udp(src=1)",
        "recirc_id(0),in_port(1),eth(),eth_type(0x0800),ipv4(proto=132,frag=no),sctp(dst=1)",
        "recirc_id(0),in_port(1),eth(),eth_type(0x0800),ipv4(proto=1,frag=no),icmp(type=8/0xf8)",
        "recirc_id(0),in_port(1),eth(),eth_type(0x0800),ipv4(proto=6,frag=no),tcp(src=1),tcp_flags(syn|ack)",
        "recirc_id(0),in_port(1),eth(),eth_type(0x0800),ipv4(proto=6,frag=no),tcp(src=1),tcp_flags(0)",
        "recirc_id(0),in_port(1),eth(),eth_type(0x88a8),vlan(vid=5,pcp=1),encap(eth_type(0x8100),vlan(vid=6),encap(eth_type(0x86dd),ipv6(src=fe80::/ffc0::,label=0x5/0xff,proto=58,tclass=0x3/0x3,hlimit=5,frag=no),icmpv6(type=135,code=0),nd(target=::5,sll=00:00:00:00:00:01)))",
        "recirc_id(0),in_port(1),eth(),eth_type(0x0806),arp(sip=1.2.3.4,op=1,sha=00:00:00:00:00:00/ff:00:00:00:00:00)",
    ] {
        let (key, mask) = odp(text);
        assert_eq!(odp::format(&key, &mask, Style::default(), &no_names), text);
    }
}

#[test]
fn verbose_datapath_flows() {
    let any = "skb_priority(0/0),skb_mark(0/0),ct_state(0/0),ct_zone(0/0),ct_mark(0/0),ct_label(0/0),recirc_id(0),dp_hash(0/0),in_port(p1),packet_type(ns=0,id=0)";
    let packet =
        "in_port(1),packet_type(ns=0,id=0),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07)";
    for (packet_rest, megaflow, shown) in [
        (
            "eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=6,tos=0,ttl=64,frag=no),tcp(src=1,dst=2)",
            "in_port(1),packet_type(ns=0,id=0),eth_type(0x0800),ipv4(frag=no)",
            "eth(src=50:54:00:00:00:05/00:00:00:00:00:00,dst=50:54:00:00:00:07/00:00:00:00:00:00),eth_type(0x0800),ipv4(src=10.0.0.1/0.0.0.0,dst=10.0.0.2/0.0.0.0,proto=6/0,tos=0/0,ttl=64/0,frag=no),tcp(src=1/0,dst=2/0)",
        ),
        (
            "eth_type(0x8847),mpls(label=100,tc=3,ttl=64,bos=1)",
            "in_port(1),packet_type(ns=0,id=0),eth_type(0x8847)",
            "eth(src=50:54:00:00:00:05/00:00:00:00:00:00,dst=50:54:00:00:00:07/00:00:00:00:00:00),eth_type(0x8847),mpls(label=100/0x0,tc=3/0,ttl=64/0x0,bos=1/0)",
        ),
        (
            "eth_type(0x0806),arp(sip=1.2.3.4,tip=5.6.7.8,op=1,sha=00:0f:02:03:04:05,tha=00:00:00:00:00:00)",
            "in_port(1),packet_type(ns=0,id=0),eth_type(0x0806)",
            "eth(src=50:54:00:00:00:05/00:00:00:00:00:00,dst=50:54:00:00:00:07/00:00:00:00:00:00),eth_type(0x0806),arp(sip=1.2.3.4/0.0.0.0,tip=5.6.7.8/0.0.0.0,op=1/0,sha=00:0f:02:03:04:05/00:00:00:00:00:00,tha=00:00:00:00:00:00/00:00:00:00:00:00)",
        ),
        (
            "eth_type(0x88a8),vlan(vid=5,pcp=1),encap(eth_type(0x8100),vlan(vid=6,pcp=2),encap(eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=6,tos=0,ttl=64,frag=no),tcp(src=1,dst=80)))",
            "in_port(1),packet_type(ns=0,id=0),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),eth_type(0x88a8),vlan(vid=5),encap(eth_type(0x0800),ipv4(frag=no))",
            "eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),eth_type(0x88a8),vlan(vid=5,pcp=1/0x0),encap(eth_type(0x8100),vlan(vid=6/0x0,pcp=2/0x0),encap(eth_type(0x0800),ipv4(src=10.0.0.1/0.0.0.0,dst=10.0.0.2/0.0.0.0,proto=6/0,tos=0/0,ttl=64/0,frag=no),tcp(src=1/0,dst=80/0)))",
        ),
    ] {
        let (key, _) = odp(&format!("{packet},{packet_rest}"));
        let (_, mask) = odp(megaflow);
        assert_eq!(
            odp::format(&key, &mask, Style { verbose: true }, &port_name),
            format!("{any},{shown}")
        );
        // The text is read back as the same megaflow.
        let verbose = odp::format(&key, &mask, Style { verbose: true }, &port_name);
        let (key_again, mut mask_again) = odp(&verbose);
        assert_eq!(key_again, key.masked(&mask_again));
        // Tags that are shown are tags that are there.
        for (a, m) in mask_again.0.vlans.iter_mut().zip(&mask.0.vlans) {
            *a = *m;
        }
        assert_eq!(mask_again, mask, "{verbose}");
    }
    // Without -m, the wildcarded part of a tag shows when its value is not zero.
    let (key, _) =
        odp(&format!("{packet},eth_type(0x8100),vlan(vid=5,pcp=1),encap(eth_type(0x1234))"));
    let (_, mask) = odp(
        "in_port(1),packet_type(ns=0,id=0),eth_type(0x8100),vlan(vid=5),encap(eth_type(0x1234))",
    );
    assert_eq!(
        odp::format(&key, &mask, Style::default(), &no_names),
        "recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth_type(0x8100),vlan(vid=5,pcp=1/0x0),encap(eth_type(0x1234))"
    );
}

#[test]
fn datapath_flows_of_packets() {
    let (key, mask) =
        odp("skb_mark(0x7),in_port(p1),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07)");
    assert_eq!(
        format_key(&key, &no_names),
        "pkt_mark=0x7,in_port=1,vlan_tci=0x0000,dl_src=50:54:00:00:00:05,dl_dst=50:54:00:00:00:07,dl_type=0x05ff"
    );
    assert_eq!(mask.0.recirc_id.get(), u32::MAX);
    let (key, mask) = odp("in_port(1),eth_type(0x8100),vlan(vid=5),encap(eth_type(0x0800),ipv4())");
    assert_eq!(key.vlans[0].tci.get(), 5 | VLAN_CFI);
    assert_eq!(mask.0.vlans[0].tci.get(), 0x1fff);
    assert_eq!(key.dl_type.get(), 0x0800);
    // A header that is cut off is none.
    let cut_off = odp("in_port(1),eth_type(0x8100),vlan(vid=0,cfi=0)");
    assert_eq!(cut_off, odp("in_port(1),eth_type(0x8100)"));
    assert_eq!(cut_off, odp("in_port(1),eth_type(0x8100),vlan(vid=6/0,cfi=0)"));
    for (given, error) in [
        (
            "eth_type(0x8100),vlan(vid=0,cfi=0/0)",
            "vlan(vid=0,cfi=0) is a header that is cut off, cfi=0/0 is none",
        ),
        (
            "eth_type(0x8100),vlan(vid=61,cfi=0/0)",
            "vlan() with a vid or a pcp is a tag, and a tag has cfi=1",
        ),
        (
            "eth_type(0x8100),vlan(vid=61,pcp=1,cfi=0)",
            "vlan() with a vid or a pcp is a tag, and a tag has cfi=1",
        ),
        (
            "eth_type(0x8100),vlan(vid=0,cfi=0),encap()",
            "encap() without eth_type() and vlan() before",
        ),
        ("in_port(1),eth(),eth_type(0x0800),ipv4(frag=bogus)", "syntax error at ipv4(frag=bogus)"),
        ("garbage(1)", "syntax error at garbage(1)"),
        ("in_port(1),5054", "syntax error at 5054"),
        (
            "recirc_id(0),in_port(1/0),eth(),eth_type(0x0800),ipv4(dst=1.0.0.0/8)",
            "syntax error at ipv4(dst=1.0.0.0/8)",
        ),
        ("in_port(1),eth(src=50:54:00:00:00:05", "syntax error at eth(src=50:54:00:00:00:05"),
        ("in_port(nosuch)", "no port with name nosuch"),
        ("in_port(1),in_port(2)", "duplicate attribute in_port"),
        ("eth_type(0x8100),vlan(vid=1,vid=2)", "duplicate attribute vid in vlan()"),
        ("packet_type(ns=1,ns=2,id=3)", "duplicate attribute ns in packet_type()"),
        ("eth_type(0x8847),mpls(bos=1,ttl=6,bos=0)", "syntax error at mpls(bos=1,ttl=6,bos=0)"),
        (
            "eth_type(0x8847),mpls(ttl=6,ttl=7,ttl=8,ttl=9)",
            "syntax error at mpls(ttl=6,ttl=7,ttl=8,ttl=9)",
        ),
        ("eth_type(0x0800),tcp(src=1)", "tcp() does not go with the eth_type() and protocol given"),
        (
            "eth_type(0x0800),ipv4(proto=6,frag=later),tcp(src=1)",
            "tcp() does not go with the eth_type() and protocol given",
        ),
        (
            "eth_type(0x0800),ipv4(proto=6/0xfc),tcp(src=1)",
            "tcp() does not go with the eth_type() and protocol given",
        ),
        (
            "eth_type(0x0800),ipv4(proto=6/0),tcp_flags(+syn)",
            "tcp_flags() does not go with the eth_type() and protocol given",
        ),
        (
            "eth_type(0x86dd),ipv6(proto=58),icmpv6(type=134,code=0),nd(target=::1)",
            "nd() does not go with the eth_type() and protocol given",
        ),
        (
            "eth_type(0x86dd),ipv6(proto=58),icmpv6(type=135),nd(target=::1)",
            "nd() does not go with the eth_type() and protocol given",
        ),
        ("encap(eth_type(0x0800))", "encap() without eth_type() and vlan() before"),
    ] {
        let e = odp::parse(given, &port_number).map_err(|e| e.to_string());
        assert_eq!(e, Err(error.to_string()), "{given}");
    }
}

const ODP: &str = "recirc_id(0),tunnel(tun_id=0x5,src=1.2.3.4,ttl=64,geneve({class=1,type=1,len=4,0x5/0xf}),vxlan(gbp(id=1,flags=1)),flags(+df)),in_port(1),eth(src=50:54:00:00:00:05/ff:ff:ff:00:00:00),eth_type(0x8100),vlan(vid=5,pcp=1),encap(eth_type(0x0800),ipv4(src=10.1.0.0/255.255.0.0,proto=6,tos=0x10/0xfc,frag=no),tcp(src=1/0x1),tcp_flags(+syn-ack))";
const OPENFLOW: &str = "tun_metadata0=0x12/0xff,tun_metadata1,tun_flags=+oam,in_port=1,tcp,nw_dst=10.0.0.0/8,dl_vlan=5,reg0=1/0xff,tcp_flags=+syn-ack,dl_src=00:01:02:03:04:05,packet_type=(0,0)";

#[test]
fn parsers_survive_truncation_and_mutation() {
    let mut state = 0x2545_f491_4f6c_dd1du64;
    let mut random = |n: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 16) as usize % n
    };
    let run = |text: &str| {
        if let Ok(m) = parse_match(text, &port_number) {
            let _ = format_match(&m, &port_name);
        }
        let _ = parse_exact_flow(text, &port_number);
        if let Ok((k, m)) = odp::parse(text, &port_number) {
            let _ = odp::format(&k, &m, Style { verbose: true }, &port_name);
        }
    };
    for text in [ODP, OPENFLOW] {
        for n in 0..text.len() {
            run(&text[..n]);
        }
    }
    let alphabet = b"(),=/:.|+-[]0159axfipv \t\x7f";
    for round in 0..50_000 {
        let mut text = if round % 2 == 0 { ODP } else { OPENFLOW }.as_bytes().to_vec();
        for _ in 0..1 + random(3) {
            let at = random(text.len());
            text[at] = alphabet[random(alphabet.len())];
        }
        run(std::str::from_utf8(&text).unwrap());
    }
}

/// The mask of a datapath text is that of the key that was read.
#[test]
fn tunnels_of_datapath_texts() {
    for text in [
        "tun_id=0x7b,src=1.1.2.88,dst=1.1.2.92,ttl=64,flags(df|key)",
        "tun_id=0x7b/0xff,src=1.1.2.0/255.255.255.0,dst=1.1.2.92,tos=0x3,ttl=64,tp_src=1/0xff,tp_dst=4789,flags(-df+csum+key)",
        "ipv6_src=2001::1,ipv6_dst=2001::/ffff::,ttl=64,flags(0)",
        "dst=1.1.2.92,ttl=64,vxlan(gbp(id=7,flags=0x8/0xf)),flags(oam)",
        "dst=1.1.2.92,ttl=64,erspan(ver=1,idx=0x7/0xfffff),flags(0)",
        "dst=1.1.2.92,ttl=64,erspan(ver=2,dir=1,hwid=0x7),flags(0)",
        "dst=1.1.2.92,ttl=64,gtpu(flags=0x30,msgtype=255),flags(0)",
        "tun_id=0x0,dst=1.1.2.92,ttl=64,tp_dst=6081,geneve({class=0xffff,type=0x80,len=4,0xa/0xf}{class=0xffff,type=0,len=4}{class=0x2/0xff,type=0x1,len=8,0x1234567890abcdef}),flags(+key)",
    ] {
        let whole = format!("tunnel({text}),recirc_id(0),in_port(1),eth(),eth_type(0x1234)");
        let (key, mask) = odp::parse(&whole, &no_numbers).unwrap();
        assert_eq!(odp::format(&key, &mask, Style::default(), &no_names), whole);
    }
    // A set has no mask.
    let text = "tun_id=0x7b,dst=1.1.2.92,ttl=64,tp_dst=6081,geneve({class=0xffff,type=0x80,len=4,0xa}),erspan(ver=1,idx=0x7),flags(df|key)";
    let (key, _) = odp::parse_tunnel(text).unwrap();
    assert_eq!(odp::format_tunnel(&key, None, false), text);
    for text in [
        "tun_id",
        "tun_id=x",
        "src=1.2.3",
        "tos=256",
        "tp_dst=65536",
        "flags(x)",
        "flags(df",
        "vxlan(id=1)",
        "vxlan(gbp(name=1))",
        "geneve({class=1,type=1,len=5})",
        "geneve({class=1,type=1,len=4,0x123456789})",
        "geneve({class=1,type=1,len=128})",
        "geneve({class=1",
        "name=1",
        "name(1)",
        "erspan(ver=1,idx)",
    ] {
        assert_eq!(odp::parse_tunnel(text), None, "{text}");
    }
}

#[test]
fn tunnels_of_openflow_texts() {
    for (text, shown) in [
        ("tunnel_id=5", "tun_id=0x5"),
        ("tun_id=0x10/0xf0", "tun_id=0x10/0xf0"),
        ("tun_src=1.2.3.0/24,tun_dst=1.2.3.4", "tun_src=1.2.3.0/24,tun_dst=1.2.3.4"),
        ("tun_ipv6_src=::1,tun_ipv6_dst=2001::/16", "tun_ipv6_src=::1,tun_ipv6_dst=2001::/16"),
        ("tun_flags=+oam", "tun_flags=+oam"),
        ("tun_flags=oam", "tun_flags=+oam"),
        ("tun_flags=0", "tun_flags=-oam"),
        ("tun_gbp_id=7,tun_gbp_flags=0x8", "tun_gbp_id=7,tun_gbp_flags=0x8"),
        ("tun_erspan_ver=1,tun_erspan_idx=0x7", "tun_erspan_ver=1,tun_erspan_idx=0x7"),
        ("tun_gtpu_flags=0x30,tun_gtpu_msgtype=255", "gtpu_flags=0x30,gtpu_msgtype=255"),
        ("tun_metadata0=0x12345678", "tun_metadata0=0x12345678"),
        ("tun_metadata0=7/0xf", "tun_metadata0=0x7/0xf"),
        ("tun_metadata0=0", "tun_metadata0=0"),
        ("tun_metadata3,tun_metadata1=0x1", "tun_metadata1=0x1,tun_metadata3"),
    ] {
        let m = parse_match(text, &no_numbers).unwrap();
        assert_eq!(format_match(&m, &no_names), shown);
    }
    let mut m = crate::Match::ANY;
    m.set_present(5, false);
    assert_eq!(format_match(&m, &no_names), "tun_metadata5=NP");
    for (text, error) in [
        ("tun_flags=df", "bad value for tun_flags (df: unknown tunnel flag(s))"),
        ("tun_flags=+key", "bad value for tun_flags (key: unknown tunnel flag(s))"),
        (
            "tun_metadata0=0x123456789",
            "bad value for tun_metadata0 (0x123456789: value too large for 4-byte field tun_metadata0)",
        ),
        ("tun_metadata0=x", "bad value for tun_metadata0 (x: bad syntax for tun_metadata0 value)"),
    ] {
        assert_eq!(
            parse_match(text, &no_numbers).map_err(|e| e.to_string()),
            Err(error.to_string())
        );
    }
}

proptest! {
    /// The text is read back as the same match.
    #[test]
    fn shown_matches_read_back(
        fields in proptest::collection::vec((0..Field::ALL.len(), any::<u128>(), any::<u128>()), 0..6),
        kind in 0usize..8,
    ) {
        let base = ["tcp", "udp6", "icmp", "arp", "ip", "mpls", "icmp6,icmp_type=135,icmp_code=0", "dl_type=0x1234"][kind];
        let mut m = parse_match(base, &no_numbers).unwrap();
        for (i, value, mask) in fields {
            let field = Field::ALL[i];
            let fixed = matches!(field, Field::EthType | Field::IpProto | Field::ArpOp | Field::PacketType
                | Field::InPort | Field::InPortOxm | Field::ActsetOutput | Field::Icmpv6Type | Field::Icmpv6Code
                | Field::IpFrag | Field::SkbPriority
                // OVS writes these without their masks, or by names that it does not read.
                | Field::TunTos | Field::TunGbpFlags | Field::TunErspanVer | Field::TunErspanIdx
                | Field::TunErspanDir | Field::TunErspanHwid | Field::TunGtpuFlags | Field::TunGtpuMsgtype);
            if fixed || !field.prerequisite().holds_for_match(&m) {
                continue;
            }
            let mask = if field.maskable() { mask } else { u128::MAX } & field.all_ones();
            m.set_masked(field, value & mask, mask);
        }
        let text = format_match(&m, &no_names);
        let again = parse_match(&text, &no_numbers);
        prop_assert_eq!(again.as_ref(), Ok(&m), "{}", text);
    }
}

#[test]
fn the_packet_type_of_a_bare_packet_gives_its_ethernet_type() {
    let (key, mask) = odp("in_port(1),packet_type(ns=1,id=0x800),ipv4(proto=6,frag=no)");
    assert_eq!((key.dl_type.get(), mask.0.dl_type.get()), (0x0800, 0xffff));
    assert_eq!((key.nw_proto, mask.0.nw_proto), (6, 0xff));
    // It has neither Ethernet addresses nor tags nor another type.
    let shown = format_key(&key, &no_names);
    let wanted = "packet_type=(1,0x800),in_port=1,nw_src=0.0.0.0,nw_dst=0.0.0.0,nw_proto=6";
    assert!(shown.starts_with(wanted), "{shown}");
    // Headers that do not go with the type are left out.
    let (key, mask) = odp("in_port(1),packet_type(ns=1,id=0),ipv4(proto=6,frag=no)");
    assert_eq!((key.dl_type.get(), mask.0.dl_type.get()), (0, 0xffff));
    assert_eq!((key.nw_proto, mask.0.nw_proto, mask.0.nw_frag), (0, 0, 0));
    assert_eq!(format_key(&key, &no_names), "packet_type=(1,0),in_port=1");
}

#[test]
fn a_tunnel_with_more_fields_than_an_attribute_holds_is_refused() {
    let tunnel = |items| format!("tunnel({}),in_port(1)", vec!["dst=1.1.1.1"; items].join(","));
    // A field has eight bytes, an attribute 65,531.
    assert!(odp::parse(&tunnel(8191), &port_number).is_ok());
    let text = tunnel(8192);
    let error = odp::parse(&text, &port_number).unwrap_err();
    assert_eq!(error, odp::OdpError::TooLong(text));
}

/// In datapath syntax the flag for a key is the presence of `tun_id`.
#[test]
fn a_tunnel_without_a_key_has_no_flag_for_it() {
    for (text, shown) in [
        ("tunnel(dst=30.0.0.1,flags(-df-csum-key))", "tunnel(dst=30.0.0.1,flags(-df-csum))"),
        (
            "tunnel(tun_id=0x0,dst=30.0.0.1,flags(-df-csum+key))",
            "tunnel(tun_id=0x0,dst=30.0.0.1,flags(-df-csum+key))",
        ),
    ] {
        let (key, mask) = odp(text);
        let out = odp::format(&key, &mask, Style::default(), &no_names);
        assert!(out.starts_with(shown), "{out}");
    }
}

#[test]
fn packets_have_the_values_outside_masks_and_the_types_of_their_headers() {
    let text = "in_port(1),eth(src=50:54:00:00:00:05/00:00:00:00:00:00),ipv4(src=10.0.0.1/255.0.0.0,proto=\n1)";
    let key = odp::parse_packet(text, &no_numbers).unwrap();
    assert_eq!((key.dl_src, key.nw_src.get()), ([0x50, 0x54, 0, 0, 0, 5], 0x0a00_0001));
    assert_eq!((key.dl_type.get(), key.nw_proto), (0x0800, 1));
    let stray = "eth_type(0x86dd),ipv6(proto=1),icmpv6(type=0,code=8)";
    assert!(odp::parse_packet(stray, &no_numbers).is_err());
    assert_eq!(odp::parse_frame(stray, &no_numbers).unwrap().nw_proto, 1);
}
