// SPDX-License-Identifier: Apache-2.0

use super::*;
use crate::DropReason;
use proptest::prelude::*;

fn no_name(_: &str) -> Option<PortNo> {
    None
}

/// Texts in the shapes that the real `ovs-appctl dpctl/dump-flows` and `ofproto/trace` (3.1) wrote,
/// some with other values. Not seen from it: `sym_l4`, a nonzero `rule_cookie`, `continuation=1`,
/// a ToS set to 0. Values are zero outside their masks, as [`Masked`] has them.
const SAME: [&str; 95] = [
    "ct,recirc(0x1)",
    "ct_clear,2",
    "ct(zone=4),recirc(0x1)",
    "ct(zone=4,nat),recirc(0x1)",
    "ct(commit,zone=10,mark=0x11/0xffffffff,label=0x22,helper=ftp,timeout=1,nat(src=1.2.3.4-1.2.3.9:10-20,persistent,random)),recirc(0x1)",
    "ct(force_commit,nat(dst=[fd00::1]-[fd00::2]:80)),2",
    "ct(commit,nat(dst=fd00::1-fd00::2,random)),2",
    "drop",
    "2",
    "1,2",
    "push_vlan(vid=5,pcp=0),3",
    "push_vlan(tpid=0x88a8,vid=5,pcp=7),3",
    "push_vlan(vid=5,pcp=7,cfi=0),3",
    "pop_vlan,2",
    "set(eth(src=00:01:02:03:04:05,dst=00:0a:0b:0c:0d:0e)),2",
    "set(eth(src=00:01:02:03:04:05)),2",
    "set(eth(src=00:01:02:00:00:00/ff:ff:ff:00:00:00)),2",
    "set(ipv4(dst=1.1.1.1,ttl=63)),set(tcp(dst=5)),2",
    "set(ipv4(ttl=63)),2",
    "set(ipv4(src=1.2.3.0/255.255.255.0,tos=0x4/0xfc)),2",
    "set(ipv4(tos=0xc/0xfc)),2,set(eth(dst=aa:bb:cc:dd:ee:ff)),3",
    "set(ipv4(tos=0)),2",
    "set(ipv6(src=::1,hlimit=3)),2",
    "set(ipv6(src=::/ffff::,label=0x5/0xf,tclass=0x10/0xfc)),2",
    "set(tcp(src=5)),2",
    "set(tcp(src=5/0xff)),2",
    "set(udp(src=5,dst=6)),2",
    "set(sctp(dst=6)),2",
    "set(icmp(type=3,code=4)),2",
    "set(icmpv6(type=135,code=0)),2",
    "set(arp(sip=1.2.3.4,tip=5.6.7.8,op=2,sha=00:01:02:03:04:05,tha=00:01:02:03:04:06)),2",
    "set(arp(op=2)),2",
    "set(nd(target=::1,sll=00:01:02:03:04:05,tll=00:01:02:03:04:06)),2",
    "set(nd(sll=00:01:02:03:04:05)),2",
    "set(nd_ext(nd_reserved=0x12345678)),2",
    "set(nd_ext(nd_reserved=0x0,nd_options_type=0)),2",
    "set(nd_ext(nd_reserved=0x5/0xff,nd_options_type=2/0xf)),2",
    "set(nd_ext(nd_options_type=1)),set(nd(target=fd00::9,tll=00:00:00:00:00:03)),2",
    "set(nsh(flags=2,ttl=63,spi=0x123456,si=254,c1=0x44332211)),2",
    "set(nsh(flags=0x01/0x03,spi=0x12/0x0000ffff,c4=0x0/0xffff0000)),2",
    "push_nsh(flags=0,ttl=63,mdtype=1,np=3,spi=0x1234,si=255,c1=0x11223344,c2=0x0,c3=0x0,c4=0x0),2",
    "push_nsh(flags=0,ttl=63,mdtype=2,np=3,spi=0x1234,si=255,md2=0x10000a041234567820001408fedcba9876543210),2",
    "push_nsh(flags=0,ttl=63,mdtype=2,np=1,spi=0x0,si=255,md2=0),2",
    "pop_nsh(),recirc(0x1)",
    "push_eth(src=00:00:00:00:00:00,dst=11:22:33:44:55:66),pop_eth,2",
    "set(mpls(label=5,tc=1,ttl=64,bos=1)),2",
    "set(mpls(label=0/0x0,tc=0/0,ttl=63/0xff,bos=0/0)),2",
    "set(mpls(label=5/0xf,tc=0/0,ttl=0/0x0,bos=0/0)),2",
    "push_mpls(label=5,tc=0,ttl=64,bos=1,eth_type=0x8847),2",
    "push_mpls(label=77,tc=2,ttl=64,bos=0,eth_type=0x8848),3",
    "add_mpls(label=0,tc=0,ttl=64,bos=1,eth_type=0x8847),push_eth(src=00:00:00:00:00:01,dst=00:00:00:00:00:02),2",
    "add_mpls(label=7,tc=1,ttl=9,bos=0,eth_type=0x8848),pop_mpls(eth_type=0x6558),recirc(0x1)",
    "pop_mpls(eth_type=0x800),recirc(0x6)",
    "recirc(0x5)",
    "hash(l4(0)),recirc(0x7)",
    "hash(sym_l4(5)),recirc(0x7)",
    "trunc(100),2,3",
    "push_vlan(vid=3,pcp=0),lb_output(4294967295),3",
    "sample(sample=50.0%,actions(2))",
    "sample(sample=100.0%,actions(2,3)),1",
    "clone(2,push_vlan(vid=1,pcp=0),3),1",
    "meter(0),3",
    "check_pkt_len(size=200,gt(4),le(5))",
    "check_pkt_len(size=200,gt(drop),le(5,set(eth(src=00:01:02:03:04:05)),6))",
    "userspace(pid=0,controller(reason=1,dont_send=0,continuation=0,recirc_id=5,rule_cookie=0,controller_id=0,max_len=65535))",
    "userspace(pid=0,controller(reason=2,dont_send=0,continuation=1,recirc_id=5,rule_cookie=0x123,controller_id=3,max_len=128)),1",
    "userspace(pid=0,slow_path(cfm))",
    "userspace(pid=0,slow_path(action)),2",
    "userspace(pid=0,sFlow(vid=123,pcp=5,output=10),actions)",
    "sample(sample=50.0%,actions(userspace(pid=0,sFlow(vid=0,pcp=0,output=1073742080),actions))),2",
    "userspace(pid=0,flow_sample(probability=123,collector_set_id=1234,obs_domain_id=2345,obs_point_id=3456,output_port=10)),2",
    "userspace(pid=0,flow_sample(probability=65535,collector_set_id=1,obs_domain_id=2,obs_point_id=3,output_port=4294967295,egress))",
    "sample(sample=1.5%,actions(userspace(pid=0,flow_sample(probability=1000,collector_set_id=1,obs_domain_id=2,obs_point_id=3,output_port=2,ingress)))),2",
    "userspace(pid=0,ipfix(output_port=4294967295)),sample(sample=50.0%,actions(userspace(pid=0,ipfix(output_port=2)))),2",
    "set(skb_priority(0x5)),2",
    "set(skb_mark(0x5)),2",
    "set(skb_priority(0x1)),set(skb_mark(0x1/0xf)),3",
    "tnl_pop(4789)",
    "push_eth(src=00:01:02:03:04:05,dst=00:0a:0b:0c:0d:0e),2",
    "pop_eth,2",
    "tnl_push(tnl_port(4789),header(size=50,type=4,eth(dst=f8:bc:12:44:34:b6,src=aa:55:aa:55:00:00,dl_type=0x0800),ipv4(src=1.1.2.88,dst=1.1.2.92,proto=17,tos=0,ttl=64,frag=0x4000),udp(src=0,dst=4789,csum=0x0),vxlan(flags=0x8000000,vni=0x7b)),out_port(100)),1",
    "clone(tnl_push(tnl_port(4),header(size=70,type=4,eth(dst=f8:bc:12:44:34:b6,src=f8:bc:12:46:58:e0,dl_type=0x86dd),ipv6(src=2001:cafe::88,dst=2001:cafe::92,label=0,proto=17,tclass=0x3,hlimit=64),udp(src=0,dst=4789,csum=0xffff),vxlan(flags=0xc000003,vni=0x1c7)),out_port(1)),1),2",
    "tnl_push(tnl_port(6),header(size=50,type=5,eth(dst=f8:bc:12:44:34:b6,src=f8:bc:12:46:58:e0,dl_type=0x0800),ipv4(src=1.1.2.88,dst=1.1.2.92,proto=17,tos=0x8,ttl=64,frag=0x0),udp(src=0,dst=6081,csum=0x0),geneve(vni=0x1c7)),out_port(1))",
    "tnl_push(tnl_port(6),header(size=70,type=5,eth(dst=f8:bc:12:44:34:b6,src=f8:bc:12:46:58:e0,dl_type=0x0800),ipv4(src=1.1.2.88,dst=1.1.2.92,proto=17,tos=0,ttl=64,frag=0x4000),udp(src=0,dst=6081,csum=0xffff),geneve(oam,crit,vni=0x1c7,options({class=0xffff,type=0x80,len=4,0xa}{class=0x1,type=0,len=0}{class=0,type=0x2,len=4,0}))),out_port(1))",
    "tnl_push(tnl_port(3),header(size=46,type=3,eth(dst=f8:bc:12:44:34:b6,src=f8:bc:12:46:58:e0,dl_type=0x0800),ipv4(src=1.1.2.88,dst=1.1.2.92,proto=47,tos=0,ttl=64,frag=0x4000),gre((flags=0x3000,proto=0x6558),key=0x1c8,seq=0x0)),out_port(1))",
    "tnl_push(tnl_port(3),header(size=42,type=3,eth(dst=f8:bc:12:44:34:b6,src=f8:bc:12:46:58:e0,dl_type=0x0800),ipv4(src=1.1.2.88,dst=1.1.2.92,proto=47,tos=0,ttl=64,frag=0x4000),gre((flags=0x8000,proto=0x6558),csum=0x0)),out_port(1))",
    "pop_eth,tnl_push(tnl_port(3),header(size=58,type=109,eth(dst=f8:bc:12:44:34:b6,src=f8:bc:12:46:58:e0,dl_type=0x86dd),ipv6(src=2001:cafe::88,dst=2001:cafe::92,label=0,proto=47,tclass=0x0,hlimit=64),gre((flags=0x0,proto=0x800))),out_port(1))",
    "tnl_push(tnl_port(3),header(size=50,type=107,eth(dst=f8:bc:12:44:34:b6,src=f8:bc:12:46:58:e0,dl_type=0x0800),ipv4(src=1.1.2.88,dst=1.1.2.92,proto=47,tos=0,ttl=64,frag=0x4000),erspan(ver=1,sid=0x7,idx=0x3)),out_port(1))",
    "tnl_push(tnl_port(3),header(size=74,type=108,eth(dst=f8:bc:12:44:34:b6,src=f8:bc:12:46:58:e0,dl_type=0x86dd),ipv6(src=2001:cafe::88,dst=2001:cafe::90,label=0,proto=47,tclass=0x0,hlimit=64),erspan(ver=2,sid=0x7,dir=1,hwid=0x7)),out_port(1))",
    "tnl_push(tnl_port(3),header(size=50,type=110,eth(dst=f8:bc:12:44:34:b6,src=f8:bc:12:46:58:e0,dl_type=0x0800),ipv4(src=1.1.2.88,dst=1.1.2.92,proto=17,tos=0,ttl=64,frag=0x4000),udp(src=0,dst=2152,csum=0x0),gtpu(flags=0x30,msgtype=255,teid=0x7b)),out_port(1))",
    "tnl_push(tnl_port(8),header(size=94,type=112,eth(dst=f8:bc:12:44:34:b6,src=f8:bc:12:46:58:e0,dl_type=0x86dd),ipv6(src=2001:cafe::88,dst=2001:cafe::92,label=0,proto=43,tclass=0x0,hlimit=64),srv6(segments_left=1,segs(2001:cafe::90,2001:cafe::91))),out_port(1))",
    "tnl_push(tnl_port(9),header(size=42,type=111,eth(dst=f8:bc:12:44:34:b6,src=f8:bc:12:46:58:e0,dl_type=0x0800),ipv4(src=1.1.2.88,dst=1.1.2.92,proto=17,tos=0,ttl=64,frag=0x4000),udp(src=0,dst=6635,csum=0x0),bareudp()),out_port(1))",
    "set(tunnel(tun_id=0x7b,src=1.1.1.1,dst=2.2.2.2,tos=0x3,ttl=64,tp_src=1,tp_dst=4789,geneve({class=0xffff,type=0x80,len=4,0xa}{class=0xffff,type=0,len=4,0}),flags(df|csum|key))),1",
    "set(tunnel(tun_id=0x0,ipv6_src=2001:cafe::1,ipv6_dst=2001:cafe::2,ttl=64,vxlan(gbp(id=7,flags=0x8)),flags(oam|key))),1",
    "set(tunnel(dst=2.2.2.2,ttl=64,erspan(ver=2,dir=1,hwid=0x7),flags(0))),set(tunnel(ipv6_dst=::1,ttl=9,erspan(ver=1,idx=0x7),flags(df))),set(tunnel(dst=2.2.2.2,ttl=64,gtpu(flags=0x30,msgtype=255),flags(csum))),1",
];

#[test]
fn real_texts_parse_and_come_out_the_same() {
    for text in SAME {
        let actions = parse(text, &no_name).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(format_plain(&actions), text);
    }
}

#[test]
fn other_spellings_come_out_in_the_usual_one() {
    for (text, usual) in [
        ("", "drop"),
        ("2 3", "2,3"),
        ("2,,3", "2,3"),
        (
            "set(ipv4(src=1.2.3.4,dst=5.6.7.8,proto=6,tos=3,ttl=63,frag=no)),2",
            "set(ipv4(src=1.2.3.4,dst=5.6.7.8,tos=0x3,ttl=63)),2",
        ),
        ("set(tcp(src=0x5/0xff)),2", "set(tcp(src=5/0xff)),2"),
        ("set(tcp(dst=6/0xffff)),2", "set(tcp(dst=6)),2"),
        ("set(mpls(ttl=63)),2", "set(mpls(label=0/0x0,tc=0/0,ttl=63/0xff,bos=0/0)),2"),
        ("sample(sample=100%,actions(2,3)),1", "sample(sample=100.0%,actions(2,3)),1"),
        ("recirc(5)", "recirc(0x5)"),
        ("clone(drop),1", "clone(drop),1"),
        ("hash(hash_l4(3))", "hash(l4(3))"),
        ("userspace(pid=7,slow_path())", "userspace(pid=0,slow_path(0))"),
    ] {
        let actions = parse(text, &no_name).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(format_plain(&actions), usual, "{text}");
    }
}

#[test]
fn bad_texts_say_where_and_why() {
    for (text, at, word) in [
        ("foo", 0, "foo"),
        ("2,foo", 2, "foo"),
        ("push_vlan(vid=5)", 16, "pcp"),
        ("push_vlan(vid=5000,pcp=0)", 10, "4095"),
        ("drop,2", 5, "alone"),
        ("2,drop", 2, "alone"),
        ("2)", 1, "unbalanced"),
        ("clone(2", 7, ")"),
        ("set(foo(a=1))", 4, "foo"),
        ("set(eth(src=1:2:3))", 8, "Ethernet"),
        ("set(ipv4(dst=1.2.3))", 9, "IPv4"),
        ("set(ipv6(dst=1.2.3))", 9, "IPv6"),
        ("sample(sample=101%,actions(2))", 7, "100"),
        ("recirc(99999999999)", 7, "range"),
        ("userspace(pid=1,what(x=1))", 16, "what"),
        ("tnl_pop(x)", 9, "port"),
        ("tnl_push(tnl_port(1),header(size=50,type=9,eth()", 28, "type 9"),
        ("set(tunnel(what=1))", 11, "what"),
        ("set(tunnel(flags(df|what)))", 11, "what"),
        ("set(tunnel(geneve({class=1,type=2,len=4,0x+1})))", 11, "geneve"),
        ("set(tunnel(ttl=1", 11, ")"),
    ] {
        let e = parse(text, &no_name).expect_err(text);
        assert_eq!(e.at, at, "{text}: {e}");
        assert!(e.problem.contains(word), "{text}: {e}");
    }
}

#[test]
fn headers_that_contradict_themselves_are_refused() {
    let of = |size: u32, kind: u32, rest: &str| {
        format!(
            "tnl_push(tnl_port(3),header(size={size},type={kind},eth(dst=f8:bc:12:44:34:b6,\
             src=f8:bc:12:46:58:e0,dl_type=0x0800),{rest}),out_port(1))"
        )
    };
    let ip = |proto| format!("ipv4(src=1.1.2.88,dst=1.1.2.92,proto={proto},tos=0,ttl=64,frag=0x0)");
    let gre = "gre((flags=0x2000,proto=0x6558),key=0x1)";
    let good = of(42, 3, &format!("{},{gre}", ip(47)));
    assert!(parse(&good, &no_name).is_ok());
    let flags = "gre((flags=0x3000,proto=0x6558),key=0x1)";
    let session = "erspan(ver=1,sid=0x400,idx=0x1)";
    for (text, word) in [
        (of(46, 3, &format!("{},{gre}", ip(47))), "42 bytes"),
        (of(42, 3, &format!("{},{gre}", ip(17))), "announce"),
        (of(42, 109, &format!("{},{gre}", ip(47))), "addresses"),
        (of(46, 3, &format!("{},{flags}", ip(47))), "announce"),
        (of(50, 107, &format!("{},{session}", ip(47))), "sid"),
        (of(50, 107, &format!("{},erspan(ver=3,sid=1)", ip(47))), "version 3"),
        (of(42, 105, &format!("{},{gre}", ip(47))), "lisp"),
    ] {
        let e = parse(&text, &no_name).expect_err(&text);
        assert!(e.problem.contains(word), "{text}: {e}");
    }
}

#[test]
fn nesting_is_bounded() {
    let deep = |n: usize| format!("{}1{}", "clone(".repeat(n), ")".repeat(n));
    assert!(parse(&deep(MAX_DEPTH), &no_name).is_ok());
    assert!(parse(&deep(MAX_DEPTH + 1), &no_name).is_err());
    assert!(parse(&"clone(".repeat(1_000_000), &no_name).is_err());
}

#[test]
fn ports_have_names_where_asked_for() {
    let name = |p: PortNo| (p == PortNo(2)).then(|| "veth2".to_owned());
    let style = Style { port_name: Some(&name), dry_run: true };
    let actions =
        parse("veth2,3", &|n| (n == "veth2").then_some(PortNo(2))).expect("names are known");
    assert_eq!(format(&actions, style), "veth2,3");
    let text = "userspace(pid=0,controller(reason=1,dont_send=1,continuation=0,recirc_id=1,rule_cookie=0,controller_id=0,max_len=65535))";
    assert_eq!(format(&parse(text, &no_name).expect("good"), style), text);
    assert_eq!(format_plain(&[Action::Drop(DropReason::TranslationError)]), "drop");
}

#[test]
fn truncation_at_every_byte_is_survived() {
    for text in SAME {
        for end in 0..text.len() {
            let _ = parse(&text[..end], &no_name); // ASCII: every index is a boundary
        }
    }
}

#[test]
fn mutations_are_survived() {
    let mut seed = 1u64;
    let mut next = move |n: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % n
    };
    for _ in 0..100_000 {
        let mut bytes = SAME[next(SAME.len())].as_bytes().to_vec();
        for _ in 0..=next(3) {
            let at = next(bytes.len());
            match next(3) {
                0 => bytes[at] = b"(),=/:.x0123456789abcdef% "[next(26)],
                1 => {
                    bytes.remove(at);
                }
                _ => bytes.insert(at, b"(),=/:.x0123456789abcdef% "[next(26)]),
            }
            if bytes.is_empty() {
                break;
            }
        }
        if let Ok(text) = std::str::from_utf8(&bytes)
            && let Ok(actions) = parse(text, &no_name)
        {
            let again = format_plain(&actions);
            let reparsed = parse(&again, &no_name).unwrap_or_else(|e| panic!("{again}: {e}"));
            // Leading zeros of NSH's metadata are not in the text.
            if !text.contains("md2=0x0") {
                assert_eq!(format_plain(&reparsed), again);
            }
        }
    }
}

proptest! {
    #[test]
    fn any_text_is_survived(text in "\\PC*") {
        let _ = parse(&text, &no_name);
    }

    #[test]
    fn masked_sets_survive_the_text(src: [u8; 6], src_mask: [u8; 6], addr: [u8; 16], mask: [u8; 16], port: u16, port_mask: u16) {
        let masked = |v: u16, m: u16| Masked { value: v & m, mask: m };
        let mut mac = src;
        mac.iter_mut().zip(src_mask).for_each(|(v, m)| *v &= m);
        let mut ip = addr;
        ip.iter_mut().zip(mask).for_each(|(v, m)| *v &= m);
        let actions = vec![
            Action::Set(Set::Ethernet { src: Masked { value: mac, mask: src_mask }, dst: Masked::default() }),
            Action::Set(Set::Ipv6 {
                src: Masked { value: ip, mask },
                dst: Masked::default(),
                label: Masked::default(),
                tclass: Masked::default(),
                hlimit: Masked::default(),
            }),
            Action::Set(Set::Udp { src: masked(port, port_mask), dst: Masked::default() }),
        ];
        prop_assert_eq!(parse(&format_plain(&actions), &no_name), Ok(actions));
    }
}
