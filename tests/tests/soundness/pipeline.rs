// SPDX-License-Identifier: Apache-2.0
//! Random switches: tables, groups, VLANs, learned addresses, patched bridges, as texts.

use flow::Match;
use flow::text::{no_numbers, parse_match};
use openflow::text::parse_actions;
use openflow::{Action, Version};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// One rule.
#[derive(Clone)]
pub struct Line {
    /// Which of the two bridges.
    pub bridge: usize,
    /// Its table.
    pub table: u8,
    /// Its priority.
    pub priority: u16,
    matching: &'static str,
    actions: Vec<&'static str>,
}

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Line { bridge, table, priority, matching, actions } = self;
        let actions = actions.join(",");
        write!(f, "br{bridge} table={table},priority={priority},{matching},actions={actions}")
    }
}

impl Line {
    /// The match of the rule.
    pub fn matching(&self) -> Match {
        parse_match(self.matching, &no_numbers).unwrap_or_else(|e| panic!("{}: {e}", self.matching))
    }

    /// The actions of the rule.
    pub fn actions(&self) -> Vec<Action> {
        self.actions.iter().flat_map(|text| actions(text)).collect()
    }
}

/// The actions of a text.
pub fn actions(text: &str) -> Vec<Action> {
    parse_actions(text, Version::V15, &|_| None).unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// Settings of one port of the first bridge.
#[derive(Clone, Debug)]
pub struct PortSpec {
    /// Place in the list of VLAN modes.
    pub mode: usize,
    /// Has VLAN 5 as its own, else none.
    pub tagged: bool,
    /// Carries VLANs 5 and 7 only.
    pub trunks: bool,
    /// Place in the list of kinds of priority tags.
    pub priority_tags: usize,
    /// Sends nothing to ports of the kind.
    pub protected: bool,
    /// OFPPC_* bits.
    pub config: u32,
}

/// A mirror of the first bridge.
#[derive(Clone, Debug)]
pub struct MirrorSpec {
    /// Bits 0 to 3 select what ports 1 to 4 receive, bits 4 to 7 what they send.
    pub selected: u8,
    /// VLANs, none for all.
    pub vlans: &'static [u16],
    /// A match, or nothing.
    pub filter: &'static str,
    /// Port 3, else VLAN 7.
    pub to_port: bool,
    /// Cuts packets off.
    pub short: bool,
}

/// A switch of two bridges.
#[derive(Clone, Debug)]
pub struct Pipeline {
    /// Rules of the pipeline.
    pub lines: Vec<Line>,
    /// Ports 1 to 3 of the first bridge.
    pub ports: Vec<PortSpec>,
    /// OFPC_FRAG_*.
    pub frag_handling: u16,
    /// `other_config:forward-bpdu`.
    pub forward_bpdu: bool,
    /// A miss goes to controllers.
    pub miss_to_controller: bool,
    /// Station, VLAN, port.
    pub learned: Vec<(u8, u16, u32)>,
    /// Mirrors of the first bridge.
    pub mirrors: Vec<MirrorSpec>,
    /// The first bridge has NetFlow.
    pub netflow: bool,
    /// The first bridge has sFlow.
    pub sflow: bool,
}

impl Pipeline {
    /// Removes what concerns connections.
    pub fn track_nothing(&mut self) {
        self.lines.retain(|line| !line.matching.contains("ct_"));
        for line in &mut self.lines {
            line.actions.retain(|action| !TRACKING.contains(action));
        }
    }
}

/// Matches of rules.
const MATCHES: &[&str] = &[
    "",
    "",
    "in_port=1",
    "in_port=3",
    "dl_src=02:00:00:00:00:01",
    "dl_dst=02:00:00:00:00:02",
    "dl_dst=01:00:00:00:00:00/01:00:00:00:00:00",
    "dl_type=0x1234",
    "dl_type=0x05ff",
    "dl_vlan=5",
    "dl_vlan=10,dl_vlan_pcp=3",
    "dl_vlan_pcp=7",
    "vlan_tci=0x0000/0x1fff",
    "vlan_tci=0x1000/0x1000",
    "vlan_tci=0x5/0xf",
    "ip",
    "ip,nw_src=10.0.0.1",
    "ip,nw_dst=10.0.0.0/24",
    "ip,nw_dst=10.0.0.0/15",
    "ip,nw_dst=10.1.0.1",
    "ip,nw_src=0.0.0.1/0.0.0.3",
    "tcp",
    "tcp,tp_dst=80",
    "tcp,tp_dst=80,nw_dst=10.0.0.1",
    "tcp,tp_src=0x40/0xffc0",
    "udp,tp_dst=80",
    "udp,tp_dst=0x1000/0xf000",
    "sctp,tp_dst=80",
    "icmp,icmp_type=1",
    "icmp,icmp_code=1",
    "ip,nw_ttl=64",
    "ip,nw_ttl=1",
    "ip,nw_tos=32",
    "ip,nw_ecn=1",
    "ip,nw_frag=no",
    "ip,nw_frag=yes",
    "ip,nw_frag=first",
    "ip,nw_frag=later",
    "ip,nw_frag=not_later",
    "ip,nw_proto=0",
    "ip,nw_proto=2",
    "ip,nw_proto=47",
    "tcp,tcp_flags=+syn",
    "tcp,tcp_flags=0x010/0x012",
    "arp",
    "arp,arp_op=1",
    "arp,arp_spa=10.0.0.1",
    "arp,arp_tpa=10.0.0.0/24,arp_sha=02:00:00:00:00:01",
    "rarp",
    "ipv6",
    "ipv6,ipv6_dst=fd00::1",
    "ipv6,ipv6_src=fd00::/64",
    "ipv6,ipv6_label=1",
    "tcp6,tp_dst=80",
    "udp6,tp_src=1",
    "ipv6,nw_frag=later",
    "ipv6,nw_proto=0",
    "icmp6",
    "icmp6,icmp_type=128",
    "icmp6,icmp_type=135",
    "icmp6,icmp_type=135,icmp_code=0,nd_target=fd00::1",
    "icmp6,icmp_type=136,icmp_code=0,nd_target=fd00::/64",
    "icmp6,icmp_type=135,icmp_code=0,nd_sll=02:00:00:00:00:01",
    "icmp6,icmp_type=136,icmp_code=0,nd_tll=02:00:00:00:00:02",
    "mpls",
    "mplsm",
    "mpls,mpls_label=1",
    "mpls,mpls_bos=0",
    "mpls,mpls_ttl=64",
    "dl_type=0x894f",
    "dl_type=0x894f,nsh_mdtype=1,nsh_c1=1",
    "dl_type=0x894f,nsh_spi=1",
    "dl_type=0x894f,nsh_si=0,nsh_ttl=1",
    "dl_type=0x894f,nsh_flags=1/1,nsh_np=3",
    "packet_type=(1,0x894f),nsh_spi=0",
    "packet_type=(1,0x8847),mpls_bos=1",
    "packet_type=(1,0x800),nw_dst=10.0.0.1",
    "reg0=1",
    "reg31=1",
    "reg1=0x2/0x2",
    "xxreg1=0",
    "metadata=1",
    "pkt_mark=1",
    "actset_output=2",
    "conj_id=7,ip",
    "conj_id=7",
    "recirc_id=0",
];

/// Actions of rules.
const ACTIONS: &[&str] = &[
    "output:2",
    "output:3",
    "output:4",
    "output:4",
    "output:1",
    "NORMAL",
    "NORMAL",
    "FLOOD",
    "ALL",
    "IN_PORT",
    "TABLE",
    "CONTROLLER:9",
    "drop",
    "set_field:02:00:00:00:00:03->eth_src",
    "set_field:02:00:00:00:00:01->eth_dst",
    "mod_dl_dst:02:00:00:00:00:02",
    "mod_vlan_vid:5",
    "mod_vlan_vid:0",
    "mod_vlan_pcp:3",
    "strip_vlan",
    "pop_vlan",
    "push_vlan:0x8100",
    "push_vlan:0x88a8",
    "load:0x1005->NXM_OF_VLAN_TCI[]",
    "load:0->NXM_OF_VLAN_TCI[]",
    "load:1->NXM_OF_VLAN_TCI[12]",
    "load:0->NXM_OF_VLAN_TCI[12]",
    "load:3->OXM_OF_VLAN_PCP[]",
    "mod_nw_src:10.0.0.1",
    "mod_nw_dst:10.0.0.2",
    "set_field:10.0.0.0/255.0.0.0->ip_src",
    "set_field:fd00::2->ipv6_dst",
    "set_field:1->ipv6_label",
    "mod_nw_tos:32",
    "mod_nw_ecn:1",
    "mod_nw_ttl:2",
    "mod_tp_src:1",
    "mod_tp_dst:81",
    "set_field:80->tcp_dst",
    "set_field:1->udp_src",
    "set_field:1->sctp_dst",
    "set_field:1->icmp_type",
    "set_field:1->icmpv6_code",
    "set_field:136->icmpv6_type",
    "set_field:2->arp_op",
    "set_field:10.0.0.1->arp_spa",
    "set_field:02:00:00:00:00:01->arp_tha",
    "set_field:fd00::2->nd_target",
    "set_field:02:00:00:00:00:03->nd_sll",
    "set_field:02:00:00:00:00:03->nd_tll",
    "set_field:1->nd_options_type",
    "set_field:1->nd_reserved",
    "set_mpls_label:1",
    "set_mpls_tc:1",
    "set_mpls_ttl:3",
    "push_mpls:0x8847",
    "push_mpls:0x8848",
    "pop_mpls:0x8847",
    "pop_mpls:0x0800",
    "pop_mpls:0x86dd",
    "dec_mpls_ttl",
    "set_field:1->nsh_spi",
    "set_field:2->nsh_si",
    "set_field:1/1->nsh_flags",
    "set_field:7->nsh_c2",
    "dec_nsh_ttl",
    "decap()",
    "decap()",
    "encap(nsh)",
    "encap(mpls)",
    "encap(mpls_mc)",
    "decap(packet_type(ns=0,type=0))",
    "decap(packet_type(ns=1,type=0x8847))",
    "decap(packet_type(ns=1,type=0x800))",
    "encap(nsh(md_type=2,tlv(0x1000,10,0x12345678)))",
    "encap(ethernet)",
    "dec_ttl",
    "dec_ttl(1,2)",
    "load:1->NXM_NX_REG0[]",
    "load:2->NXM_NX_REG1[]",
    "load:1->NXOXM_ET_REG31[]",
    "move:NXM_OF_TCP_SRC[]->NXOXM_ET_REG31[0..15]",
    "load:1->OXM_OF_METADATA[]",
    "load:1->NXM_NX_PKT_MARK[]",
    "load:3->NXM_OF_IN_PORT[]",
    "move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[]",
    "move:NXM_OF_ETH_SRC[0..7]->NXM_NX_REG0[0..7]",
    "move:NXM_OF_VLAN_TCI[]->NXM_NX_REG1[0..15]",
    "move:NXM_OF_VLAN_TCI[0..11]->NXM_NX_REG0[0..11]",
    "move:NXM_NX_REG0[0..11]->NXM_OF_VLAN_TCI[0..11]",
    "move:NXM_OF_IP_SRC[]->NXM_OF_IP_DST[]",
    "move:NXM_OF_IP_DST[8..15]->NXM_NX_REG1[0..7]",
    "move:NXM_OF_TCP_DST[]->NXM_NX_REG0[0..15]",
    "move:NXM_OF_UDP_DST[]->NXM_OF_UDP_SRC[]",
    "move:NXM_OF_ICMP_TYPE[]->NXM_NX_REG0[0..7]",
    "move:NXM_NX_ARP_SHA[]->NXM_NX_ARP_THA[]",
    "move:NXM_OF_ARP_SPA[]->NXM_OF_ARP_TPA[]",
    "move:NXM_NX_ND_TARGET[]->NXM_NX_IPV6_DST[]",
    "move:NXM_NX_ND_SLL[]->NXM_OF_ETH_DST[]",
    "move:NXM_NX_IP_TTL[]->NXM_NX_REG0[0..7]",
    "move:NXM_NX_IPV6_LABEL[]->NXM_NX_REG0[0..19]",
    "move:NXM_NX_TCP_FLAGS[]->NXM_NX_REG0[0..11]",
    "move:OXM_OF_MPLS_LABEL[0..7]->NXM_NX_REG0[0..7]",
    "push:NXM_OF_IP_SRC[]",
    "push:NXM_OF_TCP_SRC[]",
    "pop:NXM_NX_REG0[]",
    "pop:NXM_OF_IP_DST[]",
    "output:NXM_NX_REG0[0..1]",
    "output:NXM_OF_TCP_DST[]",
    "output:NXM_OF_VLAN_TCI[0..2]",
    "output(port=2,max_len=60)",
    "resubmit(,1)",
    "resubmit(,2)",
    "resubmit(,3)",
    "resubmit(3,1)",
    "resubmit(2,)",
    "goto_table:1",
    "goto_table:3",
    "write_metadata:1",
    "write_metadata:0/1",
    "clear_actions",
    "write_actions(output:2)",
    "write_actions(set_field:02:00:00:00:00:03->eth_src,output:3)",
    "write_actions(dec_ttl,pop_vlan,output:4)",
    "write_actions(group:1)",
    "write_actions(push_mpls:0x8847,output:2)",
    "group:1",
    "group:2",
    "group:3",
    "group:4",
    "group:5",
    "group:6",
    "clone(mod_vlan_vid:5,output:2)",
    "clone(dec_ttl,resubmit(,2))",
    "clone(pop_mpls:0x0800,resubmit(,1))",
    "clone(output(port=3,max_len=70),output:4)",
    "learn(table=9,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[])",
    "learn(table=9,eth_type=0x800,nw_proto=6,NXM_OF_IP_DST[]=NXM_OF_IP_SRC[],NXM_OF_TCP_DST[]=NXM_OF_TCP_SRC[],load:NXM_OF_VLAN_TCI[0..11]->NXM_NX_REG0[0..11])",
    "learn(table=9,limit=1,result_dst=NXM_NX_REG0[0],NXM_OF_VLAN_TCI[0..11])",
    "multipath(eth_src,1,modulo_n,3,0,NXM_NX_REG0[0..1])",
    "multipath(symmetric_l4,1,hrw,3,0,NXM_NX_REG0[0..1])",
    "multipath(symmetric_l3l4+udp,1,hash_threshold,3,0,NXM_OF_VLAN_TCI[0..1])",
    "multipath(nw_src,1,iter_hash,3,0,NXM_NX_REG0[0..1])",
    "bundle(symmetric_l3l4,0,hrw,ofport,members:2,3,4)",
    "bundle(eth_src,0,active_backup,ofport,members:9,3)",
    "bundle_load(symmetric_l3,0,hrw,ofport,NXM_NX_REG1[0..15],members:2,3)",
    "set_queue:3",
    "pop_queue",
    "enqueue:2:1",
    "check_pkt_larger(60)->NXM_NX_REG0[0]",
    "fin_timeout(idle_timeout=1)",
    "controller(pause,max_len=9)",
    "note:01.02",
    "exit",
];

/// Matches of rules on connections.
const OF_CONNECTIONS: &[&str] = &[
    "ip,ct_state=-trk",
    "ip,ct_state=+trk",
    "ip,ct_state=+trk+new",
    "ip,ct_state=+trk+est",
    "ip,ct_state=+trk+rpl",
    "ip,ct_state=+trk-inv",
    "ip,ct_state=+trk+snat",
    "tcp,ct_state=+trk+new,tp_dst=80",
    "ipv6,ct_state=+trk+est",
    "ct_state=+trk+est,ct_mark=1",
    "ct_mark=0/2",
    "ct_label=1/1",
    "ct_label=0x300000000000000000/0x300000000000000000",
    "ip,ct_state=+trk,ct_zone=5",
    "ip,ct_state=+trk,ct_nw_src=10.0.0.1",
    "ip,ct_state=+trk,ct_nw_dst=10.0.0.0/24",
    "tcp,ct_state=+trk,ct_nw_proto=6,ct_tp_dst=80",
    "ipv6,ct_state=+trk,ct_ipv6_dst=fd00::1",
];

/// Matches of rules whose actions track: `ct` needs an IP packet.
const OF_IP: &[&str] = &[
    "ip",
    "ip",
    "ipv6",
    "tcp",
    "udp",
    "tcp6",
    "ip,nw_dst=10.0.0.0/15",
    "ip,nw_frag=no",
    "tcp,tp_dst=80",
];

/// Actions on connections.
const TRACKING: &[&str] = &[
    "ct(table=1)",
    "ct(table=2,zone=5)",
    "ct(table=1,zone=5,nat)",
    "ct(table=3,zone=NXM_NX_REG0[0..15])",
    "ct(commit,zone=5)",
    "ct(commit,zone=1,nat(src=10.0.0.1),table=2)",
    "ct(commit,table=3,zone=NXM_NX_REG0[0..15],exec(set_field:1->ct_mark))",
    "ct(commit,table=1,exec(move:NXM_NX_REG1[0..7]->NXM_NX_CT_LABEL[0..7]))",
    "ct(commit,force,exec(move:NXM_NX_CT_MARK[0..7]->NXM_NX_CT_LABEL[8..15]))",
    "ct_clear",
    "move:NXM_NX_CT_MARK[0..7]->NXM_NX_REG0[0..7]",
    "move:NXM_NX_CT_LABEL[64..71]->NXM_NX_REG1[0..7]",
    "move:NXM_NX_CT_STATE[0..7]->NXM_NX_REG0[0..7]",
    "move:NXM_NX_CT_NW_SRC[]->NXM_NX_REG0[]",
    "clone(ct(commit,zone=1),output:2)",
    "clone(ct(table=2,zone=1))",
    "resubmit(,1,ct)",
];

/// Rules of the two dimensions of a conjunction.
const CONJUNCTIVE: &[(&str, &str)] = &[
    ("ip,nw_src=10.0.0.1", "conjunction(7,1/2)"),
    ("ip,nw_src=10.1.0.0/16", "conjunction(7,1/2)"),
    ("dl_src=02:00:00:00:00:01", "conjunction(7,1/2)"),
    ("tcp,tp_dst=80", "conjunction(7,2/2)"),
    ("udp,tp_dst=0x1000/0xf000", "conjunction(7,2/2)"),
    ("ip,nw_dst=10.0.0.0/24", "conjunction(7,2/2)"),
    ("dl_vlan=5", "conjunction(7,2/2)"),
];

fn list() -> impl Strategy<Value = Vec<&'static str>> {
    vec(select(ACTIONS), 0..5).prop_map(|mut list| {
        if list.len() > 1 {
            list.retain(|a| *a != "drop");
        }
        list
    })
}

fn line() -> impl Strategy<Value = Line> {
    let bridge = prop_oneof![4 => Just(0usize), 1 => Just(1)];
    let ordinary = (select(MATCHES), list());
    let tracked = (select(OF_CONNECTIONS), list());
    let tracking =
        (select(OF_IP), list(), select(TRACKING)).prop_map(|(matching, mut list, last)| {
            list.retain(|a| *a != "drop");
            list.truncate(2);
            list.push(last);
            (matching, list)
        });
    let soft = select(CONJUNCTIVE).prop_map(|(matching, action)| (matching, vec![action]));
    (
        bridge,
        0..4u8,
        0..4u16,
        prop_oneof![
            6 => ordinary.boxed(), 2 => soft.boxed(), 2 => tracked.boxed(), 2 => tracking.boxed(),
        ],
    )
        .prop_map(|(bridge, table, priority, (matching, actions))| Line {
            bridge,
            table,
            priority,
            matching,
            actions,
        })
}

fn port() -> impl Strategy<Value = PortSpec> {
    let config = prop_oneof![
        8 => Just(0u32),
        1 => select(&[1u32 << 2, 1 << 3, 1 << 4, 1 << 5, 1 << 6][..]),
    ];
    let yes = prop::bool::weighted;
    (0..5usize, yes(0.6), yes(0.2), 0..3usize, yes(0.1), config).prop_map(
        |(mode, tagged, trunks, priority_tags, protected, config)| PortSpec {
            mode,
            tagged,
            trunks,
            priority_tags,
            protected,
            config,
        },
    )
}

fn mirror() -> impl Strategy<Value = MirrorSpec> {
    let vlans = select(&[&[] as &[u16], &[], &[5], &[0, 5]][..]);
    let filter = select(&["", "", "tcp,tp_dst=80", "ip,nw_src=10.0.0.0/8", "dl_vlan=5"][..]);
    (prop::num::u8::ANY, vlans, filter, prop::bool::ANY, prop::bool::ANY).prop_map(
        |(selected, vlans, filter, to_port, short)| MirrorSpec {
            selected,
            vlans,
            filter,
            to_port,
            short,
        },
    )
}

/// Returns a strategy for switches.
pub fn pipeline() -> impl Strategy<Value = Pipeline> {
    let yes = prop::bool::weighted;
    let settings = (vec(port(), 3), select(&[0u16, 0, 1, 3][..]), yes(0.3), yes(0.3));
    let learned = vec((0..4u8, select(&[0u16, 5, 10][..]), 1..5u32), 0..4);
    let first = list();
    let mirrors = prop_oneof![3 => Just(Vec::new()), 1 => vec(mirror(), 1..3)];
    (vec(line(), 0..14), first, settings, learned, mirrors, (yes(0.2), yes(0.2))).prop_map(
        |(mut lines, first, settings, learned, mirrors, (netflow, sflow))| {
            // Something is done to every packet.
            let any =
                |bridge, actions| Line { bridge, table: 0, priority: 0, matching: "", actions };
            lines.push(any(
                0,
                if first.is_empty() { vec!["resubmit(,1)", "NORMAL"] } else { first },
            ));
            lines.push(any(1, vec!["NORMAL"]));
            let (ports, frag_handling, forward_bpdu, miss_to_controller) = settings;
            Pipeline {
                lines,
                ports,
                frag_handling,
                forward_bpdu,
                miss_to_controller,
                learned,
                mirrors,
                netflow,
                sflow,
            }
        },
    )
}

#[test]
fn all_texts_are_right() {
    let mut wrong = Vec::new();
    for text in ACTIONS.iter().chain(TRACKING).chain(CONJUNCTIVE.iter().map(|(_, action)| action)) {
        wrong.extend(
            parse_actions(text, Version::V15, &|_| None).err().map(|e| (text, e.to_string())),
        );
    }
    let plain = MATCHES.iter().chain(OF_CONNECTIONS).chain(OF_IP);
    for text in plain.chain(CONJUNCTIVE.iter().map(|(matching, _)| matching)) {
        wrong.extend(parse_match(text, &no_numbers).err().map(|e| (text, e.to_string())));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
