// SPDX-License-Identifier: Apache-2.0
//! Seeds for targets that read texts.

use std::collections::BTreeSet;

/// Recorded lists of actions: version, match, text, bytes, text printed.
pub const ACTIONS: &str = include_str!("../../../../crates/openflow/tests/vectors/actions.txt");
/// Recorded matches: form, version, text, bytes, text printed.
pub const MATCHES: &str = include_str!("../../../../crates/openflow/tests/vectors/matches.txt");

/// The lines of a table like these, column by column.
pub fn rows(text: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    let lines = text.lines().filter(|l| !l.starts_with('#') && !l.is_empty());
    lines.map(|l| l.split(" | ").map(str::trim).collect())
}

fn columns(text: &'static str, column: usize) -> BTreeSet<&'static str> {
    rows(text).filter_map(|row| row.get(column).copied()).collect()
}

/// Every list of actions that was recorded, and those on connections, in the syntax of ovs-ofctl.
pub fn action_texts() -> BTreeSet<&'static str> {
    columns(ACTIONS, 2).into_iter().chain(CT_ACTIONS.iter().copied()).collect()
}

/// Every match that was recorded, in that syntax.
pub fn match_texts() -> BTreeSet<&'static str> {
    columns(MATCHES, 2)
}

/// Flows in it.
pub const FLOWS: &[&str] = &[
    "table=3,priority=5,cookie=0x1/0xff,idle_timeout=3,hard_timeout=5,importance=7,send_flow_rem,check_overlap,in_port=1,actions=drop",
    " cookie=0x0, duration=1.5s, table=0, n_packets=3, n_bytes=4, idle_age=5, priority=1,tcp,tp_dst=80 actions=output:2,controller:64",
    "out_port=3,out_group=5,reset_counts,no_packet_counts,no_byte_counts,ip actions=resubmit(,1),goto_table:7",
];

/// Parts of fields.
pub const SUBFIELDS: &[&str] = &[
    "reg0[]",
    "NXM_NX_REG1[5]",
    "OXM_OF_ETH_SRC[0..47]",
    "eth_dst",
    "metadata[3..63]",
    "xxreg0[100..127]",
    "ip_dscp[0..1]",
];

/// Seeds of `flow_text`.
pub fn flow_texts() -> Vec<Vec<u8>> {
    let lines = FLOWS.iter().chain(SUBFIELDS).copied();
    let all = lines.chain(action_texts()).chain(match_texts());
    all.map(|t| [&[3], t.as_bytes()].concat()).collect()
}

/// Lists of actions on connections, in the syntax of ovs-ofctl.
pub const CT_ACTIONS: &[&str] = &[
    "ct",
    "ct(table=1)",
    "ct(zone=5,table=2),ct_clear,2",
    "ct(zone=NXM_NX_REG1[0..15],nat)",
    "ct(commit,zone=65535,exec(set_field:0x5/0xf->ct_mark,set_field:7->ct_label)),2",
    "ct(commit,force,exec(load:0x1->NXM_NX_CT_MARK[3],move:NXM_NX_REG0[]->NXM_NX_CT_LABEL[32..63]))",
    "ct(commit,nat(src=10.0.0.1-10.0.0.9:1024-65535,random,persistent)),3",
    "ct(commit,nat(dst=10.0.0.1,hash),alg=ftp),1",
    "ct(commit,nat(dst=[fc00::1]-[fc00::9]:80),alg=tftp,table=3)",
    "ct(commit,nat(src)),resubmit(,3,ct)",
];

/// Flows in the syntax of datapaths.
pub const ODP_FLOWS: &[&str] = &[
    "in_port(1),eth_type(0x88cc)",
    "recirc_id(0x5),dp_hash(0x3/0xf),skb_priority(1),skb_mark(0x1/0x3),in_port(2),eth(src=00:01:02:03:04:05,dst=01:00:00:00:00:00/01:00:00:00:00:00),eth_type(0x0800),ipv4(src=10.0.0.0/255.0.0.0,dst=1.2.3.4,proto=6,tos=0x4/0xfc,ttl=64,frag=no),tcp(src=1,dst=0x50/0xfff0),tcp_flags(+syn-ack)",
    "recirc_id(0),in_port(1),eth(),eth_type(0x8100),vlan(vid=5,pcp=3),encap(eth_type(0x8100),vlan(vid=6,pcp=0),encap(eth_type(0x86dd),ipv6(src=::1,dst=fd00::/ffff::,label=0x5,proto=58,tclass=0,hlimit=255,frag=no),icmpv6(type=135,code=0),nd(target=::1,sll=00:01:02:03:04:05)))",
    "in_port(1),eth_type(0x0806),arp(sip=1.2.3.4,tip=5.6.7.8,op=1/0xff,sha=00:01:02:03:04:05,tha=00:00:00:00:00:00)",
    "in_port(1),eth_type(0x8847),mpls(label=100,tc=0,ttl=64,bos=1)",
    "in_port(1),eth_type(0x0800),ipv4(proto=17,frag=later)",
    "in_port(1),eth_type(0x0800),ipv4(proto=132,frag=first),sctp(src=1,dst=2)",
    "in_port(1),eth_type(0x0800),ipv4(proto=1),icmp(type=8,code=0)",
    "in_port(1),eth_type(0x0800),ipv4(proto=17),udp(src=1/0xff,dst=2)",
    "in_port(1),eth_type(0/0xffff)",
    "recirc_id(0x7),in_port(1),ct_state(+trk+est-inv),ct_zone(0x5),ct_mark(0x1/0x3),ct_label(0x5/0xff),eth_type(0x0800),ipv4(proto=6)",
    "recirc_id(0x7),in_port(1),ct_state(0x21/0x3f),ct_tuple4(src=10.0.0.1,dst=10.0.0.0/255.0.0.0,proto=17,tp_src=5,tp_dst=0/0),eth_type(0x0800)",
    "in_port(1),ct_tuple6(src=fc00::1,dst=fc00::2,proto=58,src_port=128,dst_port=0),eth_type(0x86dd)",
];

/// Actions in it.
pub const ODP_ACTIONS: &[&str] = &[
    "drop",
    "1,2",
    "push_vlan(tpid=0x88a8,vid=5,pcp=7,cfi=0),pop_vlan,3",
    "set(eth(src=00:01:02:00:00:00/ff:ff:ff:00:00:00,dst=00:0a:0b:0c:0d:0e)),2",
    "set(ipv4(src=1.2.3.0/255.255.255.0,dst=1.1.1.1,tos=0x4/0xfc,ttl=63)),set(tcp(dst=5,src=5/0xff)),2",
    "set(ipv6(src=::/ffff::,label=0x5/0xf,tclass=0x10/0xfc,hlimit=3)),set(udp(src=5)),set(sctp(dst=6)),2",
    "set(icmp(type=3,code=4)),set(icmpv6(type=135,code=0)),2",
    "set(arp(sip=1.2.3.4,tip=5.6.7.8,op=2,sha=00:01:02:03:04:05,tha=00:01:02:03:04:06)),2",
    "set(nd(target=::1,sll=00:01:02:03:04:05,tll=00:01:02:03:04:06)),set(nd_ext(nd_reserved=0x5/0xff,nd_options_type=2)),2",
    "set(mpls(label=5/0xf,tc=0/0,ttl=63/0xff,bos=0/0)),2",
    "push_mpls(label=5,tc=0,ttl=64,bos=1,eth_type=0x8847),pop_mpls(eth_type=0x800),recirc(0x6)",
    "hash(sym_l4(5)),recirc(0x7)",
    "trunc(100),meter(0),2,3",
    "sample(sample=50.0%,actions(clone(2,push_vlan(vid=1,pcp=0),3))),1",
    "check_pkt_len(size=200,gt(drop),le(5,set(eth(src=00:01:02:03:04:05)),6))",
    "userspace(pid=0,controller(reason=2,dont_send=0,continuation=1,recirc_id=5,rule_cookie=0x123,controller_id=3,max_len=128)),1",
    "userspace(pid=0,slow_path(action)),userspace(pid=0,slow_path(0)),2",
    "userspace(pid=0,flow_sample(probability=123,collector_set_id=1234,obs_domain_id=2345,obs_point_id=3456,output_port=10)),2",
    "set(skb_priority(0x1)),set(skb_mark(0x1/0xf)),3",
    "ct,ct_clear,2",
    "ct(commit,zone=5,mark=0x1/0xf,label=0x5/0xff,timeout=7,nat(src=10.0.0.1-10.0.0.9:1-65535,random)),recirc(0x8)",
    "ct(force_commit,helper=ftp,nat(dst=[fc00::1]-[fc00::9]:80,hash,persistent)),2",
    "ct(nat),ct(commit,helper=tftp,nat(src)),2",
];

/// Returns flows and actions in datapath syntax.
pub fn odp_lines() -> impl Iterator<Item = &'static str> {
    ODP_FLOWS.iter().chain(ODP_ACTIONS).copied()
}

/// Seeds of `odp_text`.
pub fn odp_texts() -> Vec<Vec<u8>> {
    bytes(odp_lines())
}

/// Log specifications.
pub const LOG_SPECS: &[&str] = &[
    "dbg",
    "ANY:file:info",
    "bridge:console:emer",
    "PATTERN:file:%D{%Y-%m-%dT%H:%M:%S.###Z}|%05N|%c%T|%p|%-10A %m%n",
    "PATTERN:ANY:%t %r %E %P %%",
    "FACILITY:daemon",
    "syslog,warn",
];

/// Where peers are, and where to listen.
pub const ENDPOINTS: &[&str] = &[
    "tcp:127.0.0.1:6653",
    "tcp:[fe80::1]:6653",
    "ssl:[::1]",
    "unix:/run/x.mgmt",
    "ptcp:6653:127.0.0.1",
    "pssl::[::1]",
    "punix:x.mgmt",
    "ptcp:",
];

/// Lists of databases, and command lines with a word a line.
pub const COMMAND_LINES: &[&str] = &[
    "tcp:1.2.3.4:6640,unix:db.sock",
    "unix:/x/db.sock\n-vconsole:off\n--pidfile=x\n--detach\n--log-file",
    "--enable-dummy=override\n--disable-system\n--unixctl\nctl\n-vfile:dbg",
    "--mlockall\n--user\nroot\n--no-chdir\n--syslog-method=udp:1.2.3.4:5",
    "-p\nkey\n-c\ncert\n-C\nca\n--bootstrap-ca-cert=x\n--ssl-protocols=TLSv1.2",
];

/// All of these.
pub fn option_lines() -> impl Iterator<Item = &'static str> {
    LOG_SPECS.iter().chain(ENDPOINTS).chain(COMMAND_LINES).copied()
}

/// Seeds of `options`.
pub fn options() -> Vec<Vec<u8>> {
    bytes(option_lines())
}

fn bytes(lines: impl Iterator<Item = &'static str>) -> Vec<Vec<u8>> {
    lines.map(|line| line.as_bytes().to_vec()).collect()
}
