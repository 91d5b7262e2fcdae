// SPDX-License-Identifier: Apache-2.0
//! The Rust mirror of `bpf/layout.h` against the header and the type information of the compiled
//! programs.

use std::collections::HashMap;
use std::mem::offset_of;

use datapath_bpf::layout::*;
use datapath_bpf::load::Hook;
use datapath_bpf::settings::VariantSettings;
use libbpf_rs::btf::types::{Composite, MemberAttr};
use libbpf_rs::btf::{Btf, HasSize as _};

#[path = "support/header.rs"]
mod header;

/// Size and member offsets in bytes of `struct name`.
fn in_c(btf: &Btf<'_>, name: &str) -> (usize, HashMap<String, usize>) {
    let all: Vec<Composite<'_>> = btf
        .type_by_kind::<Composite<'_>>()
        .filter(|c| c.is_struct && c.name().is_some_and(|n| n == name))
        .collect();
    let [found] = &all[..] else { panic!("{} times struct {name}", all.len()) };
    let members = found.iter().filter_map(|member| {
        let MemberAttr::Normal { offset } = member.attr else { return None };
        Some((member.name?.to_str()?.to_owned(), offset as usize / 8))
    });
    (found.size(), members.collect())
}

macro_rules! same {
    ($btf:expr, $c:literal, $rust:ty { $($field:ident),* $(,)? }) => {{
        let (size, members) = in_c($btf, $c);
        assert_eq!(size, size_of::<$rust>(), "struct {}", $c);
        let mut known = 0;
        $(
            assert_eq!(
                members.get(stringify!($field)),
                Some(&offset_of!($rust, $field)),
                "{}.{}", $c, stringify!($field)
            );
            known += 1;
        )*
        assert_eq!(members.len(), known, "members of struct {}: {members:?}", $c);
    }};
}

#[test]
fn structures_are_the_same_in_c_and_here() {
    for hook in [Hook::Tc, Hook::Xdp] {
        let btf = Btf::from_raw("programs", hook.bytes()).unwrap().unwrap();
        same!(&btf, "slot", SlotEntry { hot, dead, output, program, mask, hooks, flags });
        same!(
            &btf,
            "slot_detail",
            SlotDetail { cold, needs, reason, tunnel, ufid, hash, installed, instructions }
        );
        same!(&btf, "mask", MaskEntry { words, needs, flows, pad });
        same!(&btf, "bucket", Bucket { entries });
        same!(&btf, "cache_line", CacheLine { entries });
        same!(&btf, "emc_entry", EmcEntry { sign, count });
        same!(&btf, "emc_line", EmcLine { ways });
        same!(&btf, "last_flow", LastFlow { key, sum, check, at, last, stage, pad });
        same!(&btf, "epochs", Epochs { of });
        same!(&btf, "recent", Recent { word });
        same!(&btf, "moves", Moves { turn, pad });
        same!(&btf, "totals", Totals { packets, bytes, begun, ended });
        same!(&btf, "program", Program { cells, set, exclude, growth, again, cuts, pad });
        same!(
            &btf,
            "tunnel_header",
            TunnelHeader {
                bytes,
                ip_sum,
                l4_sum,
                length,
                l4,
                flags,
                kind,
                first_port,
                last_port,
                path_mtu,
                number_at,
                more_pad
            }
        );
        same!(&btf, "port_set", PortSet { mtu, blocked, blocked_port, count, ports });
        same!(
            &btf,
            "port",
            Port {
                ifindex,
                flags,
                mtu,
                upcall_limit,
                sent_up,
                taken_up,
                closed_until,
                peer_mac,
                ct_closed_until,
                tunnel,
                tunnel_helper
            }
        );
        same!(&btf, "tunnel_option", TunnelOption { header, at, bytes, in_use, pad });
        same!(&btf, "port_stats", PortCount { rx_packets, rx_bytes, tx_packets, tx_bytes });
        same!(&btf, "iface", Iface { ifindex, port });
        if hook == Hook::Tc {
            same!(&btf, "tunnel_endpoint", TunnelEndpoint { address, port, protocol, pad });
        }
        assert_eq!(in_c(&btf, "state").0, STATE_BYTES as usize);
        assert_eq!(in_c(&btf, "chain").0, CHAIN_BYTES as usize);
        if hook == Hook::Xdp {
            assert_eq!(in_c(&btf, "undo").0, UNDO_BYTES as usize);
        }
        same!(&btf, "counters", Counters { drops, walked, masks, found, up, passed, evicted, pad });
        same!(&btf, "bond_places", BondPlaces { of });
        same!(&btf, "bond", BondEntry { basis, members });
        same!(&btf, "bond_bytes", BondBytes { of });
        same!(&btf, "meter_band", MeterBand { cost, depth, tat, packets, bytes });
        same!(&btf, "policer", Policer { bits, packets, dropped });
        same!(&btf, "meter", Meter { in_use, per_packet, packets, bytes, bands, pad });
        same!(
            &btf,
            "config",
            ConfigEntry {
                magic,
                version,
                max_flows,
                max_masks,
                buckets,
                cache_lines,
                shards,
                max_programs,
                miss_ifindex,
                vlan_limit,
                emc_lines,
                cpus,
                generations,
                cache_mask,
                whole_only,
                emc_used,
                emc_reach,
                segmenter,
                pad,
                factors,
                options,
            }
        );
        same!(
            &btf,
            "settings",
            VariantSettings {
                needs,
                features,
                bucket_mask,
                shard_mask,
                max_flows,
                max_programs,
                shards_atomic,
                vlan_limit,
                have_frags,
                emc_lines,
                generation,
                emc_total,
                cpus,
                chains,
                pad,
                factors,
                union_mask,
            }
        );
    }
}

const HEADER: &str = include_str!("../bpf/layout.h");

/// Returns the names in an enumeration that begin with `prefix`, in order.
fn names_in(enumeration: &str, prefix: &str) -> Vec<&'static str> {
    let start = format!("enum {enumeration} {{");
    let body = HEADER.split_once(&*start).unwrap().1.split_once('}').unwrap().0;
    body.lines()
        .filter_map(|l| l.trim().split([',', ' ', '=']).next())
        .filter(|name| name.starts_with(prefix))
        .collect()
}

/// Returns the C name of a variant: `SetNdExt` is `OP_SET_ND_EXT` with the prefix `OP`.
fn c_name(prefix: &str, variant: &dyn std::fmt::Debug) -> String {
    let mut name = prefix.to_owned();
    for letter in format!("{variant:?}").chars() {
        if letter.is_ascii_uppercase() {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}

#[test]
fn words_have_the_same_numbers_in_c_and_here() {
    use datapath_bpf::layout::word::*;
    let words = [
        ("W_PORT", PORT),
        ("W_ETH0", ETH0),
        ("W_ETH1", ETH1),
        ("W_IP4", IP4),
        ("W_TP", TP),
        ("W_RECIRC", RECIRC),
        ("W_META", META),
        ("W_REST", REST),
        ("W_MPLS0", MPLS0),
        ("W_MPLS1", MPLS1),
        ("W_SRC0", SRC0),
        ("W_SRC1", SRC1),
        ("W_DST0", DST0),
        ("W_DST1", DST1),
        ("W_ND0", ND0),
        ("W_ND1", ND1),
        ("W_HW0", HW0),
        ("W_HW1", HW1),
        ("W_ND2", ND2),
        ("W_TUN0", TUN0),
        ("W_TUN1", TUN1),
        ("W_TIP4", TIP4),
        ("W_TSRC0", TSRC0),
        ("W_TSRC1", TSRC1),
        ("W_TDST0", TDST0),
        ("W_TDST1", TDST1),
        ("W_OPT0", OPT0),
        ("W_OPT1", OPT1),
        ("W_OPT2", OPT2),
        ("W_OPT3", OPT3),
        ("W_CT", CT),
        ("W_CT_LABEL0", CT_LABEL0),
        ("W_CT_LABEL1", CT_LABEL1),
        ("W_CT_IP4", CT_IP4),
        ("W_CT_TP", CT_TP),
        ("W_CT_SRC0", CT_SRC0),
        ("W_CT_SRC1", CT_SRC1),
        ("W_CT_DST0", CT_DST0),
        ("W_CT_DST1", CT_DST1),
    ];
    assert_eq!(names_in("word", "W_"), words.map(|(name, _)| name));
    assert_eq!(words.map(|(_, number)| number), std::array::from_fn(|n| n));
    assert_eq!(words.len(), WORDS);
    // The words of the exact-match cache end after W_TP, those of the first cache line after
    // W_RECIRC.
    let body = HEADER.split_once("EMC_WORDS,\n").unwrap().0;
    assert_eq!(body.matches("\tW_").count(), EMC_WORDS);
    let body = HEADER.split_once("HOT_WORDS,\n").unwrap().0;
    assert_eq!(body.matches("\tW_").count(), HOT_WORDS);
}

#[test]
fn enumerations_are_the_same_in_c_and_here() {
    let ops: Vec<String> = Op::ALL.iter().map(|op| c_name("OP", op)).collect();
    let (last, all) = names_in("op", "OP_").split_last().map(|(l, a)| (*l, a.to_vec())).unwrap();
    assert_eq!((all, last), (ops.iter().map(|op| &**op).collect(), "OP_COUNT"));
    assert!(Op::ALL.iter().enumerate().all(|(n, op)| *op as usize == n));
    let headers: Vec<String> = HeaderOp::ALL.iter().map(|op| c_name("HEADER", op)).collect();
    let named = names_in("header_op", "HEADER_");
    assert_eq!(named.split_last().unwrap().1, headers);
    assert!(HeaderOp::ALL.iter().enumerate().all(|(n, op)| *op as usize == n));
    let tails = [
        Tail::Lookup,
        Tail::Recirc,
        Tail::MaskScan,
        Tail::Exec,
        Tail::Pull,
        Tail::Miss,
        Tail::Precheck,
        Tail::Ct,
        Tail::CtMove,
        Tail::Chain,
        Tail::Tunnel,
        Tail::TunPush,
        Tail::TunChain,
        Tail::Police,
    ];
    let kinds = [
        TunnelKind::None,
        TunnelKind::Vxlan,
        TunnelKind::VxlanGbp,
        TunnelKind::Geneve,
        TunnelKind::Gre,
        TunnelKind::Erspan,
        TunnelKind::Pushed,
    ];
    assert_eq!(names_in("tunnel_kind", "TUNNEL_"), kinds.map(|kind| c_name("TUNNEL", &kind)));
    assert_eq!(kinds.map(|kind| kind as usize), std::array::from_fn(|n| n));
    assert_eq!(names_in("tail", "TAIL_"), tails.map(|tail| c_name("TAIL", &tail)));
    assert_eq!(tails.map(|tail| tail as usize), std::array::from_fn(|n| n));
    assert_eq!(tails.len(), TAILS as usize);
    assert_eq!(names_in("drop", "DROP_").len(), datapath::DropReason::ALL.len());
}

/// Names and numbers that are no structures.
#[test]
fn constants_are_the_same_in_c_and_here() {
    for (name, here) in [
        ("LAYOUT_MAGIC", MAGIC),
        ("LAYOUT_VERSION", VERSION.into()),
        ("HOOK_XDP", HOOK_XDP.into()),
        ("HOOK_TC", HOOK_TC.into()),
        ("FLOW_NO_GSO", FLOW_NO_GSO.into()),
        ("FLOW_PRECHECK", FLOW_PRECHECK.into()),
        ("FLOW_METADATA", FLOW_METADATA.into()),
        ("FLOW_CHAIN", FLOW_CHAIN.into()),
        ("FLOW_CHAIN_END", FLOW_CHAIN_END.into()),
        ("FLOW_POP", FLOW_POP.into()),
        ("FLOW_BOND", FLOW_BOND.into()),
        ("FLOW_PACKET_TYPE", FLOW_PACKET_TYPE.into()),
        ("TPID_BARE", TPID_BARE.into()),
        ("MISS_BARE", MISS_BARE.into()),
        ("PUSH_OF_BARE", PUSH_OF_BARE.into()),
        ("OUTPUT_BOND", OUTPUT_BOND.into()),
        ("OUTPUT_UP", OUTPUT_UP.into()),
        ("MAX_BONDS", MAX_BONDS.into()),
        ("BOND_BUCKETS", datapath::BOND_BUCKETS as u64),
        ("NO_MEMBER", NO_MEMBER.into()),
        ("NEEDS_L3", NEEDS_L3),
        ("MASK_VACANT", MASK_VACANT),
        ("NO_PORT", NO_PORT.into()),
        ("NO_PROGRAM", NO_PROGRAM.into()),
        ("BUCKET", BUCKET as u64),
        ("WAYS", WAYS as u64),
        ("EMC_WAYS", EMC_WAYS as u64),
        ("EMC_SLOTS", EMC_SLOTS.into()),
        ("EPOCHS", EPOCHS as u64),
        ("RECENT_PACKETS_SHIFT", RECENT_PACKETS_SHIFT.into()),
        ("RECENT_SPILLED_SHIFT", RECENT_SPILLED_SHIFT.into()),
        ("TCP_FLAGS_SHIFT", TCP_FLAGS_SHIFT.into()),
        ("EMC_PACKETS_SHIFT", EMC_PACKETS_SHIFT.into()),
        ("EMC_SLOT_SHIFT", EMC_SLOT_SHIFT.into()),
        ("CELLS", CELLS as u64),
        ("CELLS_TOTAL", CELLS_TOTAL as u64),
        ("MAX_PORTS", MAX_PORTS.into()),
        ("PORT_UP", PORT_UP.into()),
        ("PORT_STACK", PORT_STACK.into()),
        ("PORT_DEVMAP", PORT_DEVMAP.into()),
        ("PORT_SPLIT", PORT_SPLIT.into()),
        ("PORT_PEER", PORT_PEER.into()),
        ("PORT_UNDERLAY", PORT_UNDERLAY.into()),
        ("HELPER_PASS", HELPER_PASS.into()),
        ("PORT_SETS", PORT_SETS.into()),
        ("SET_PORTS", SET_PORTS as u64),
        ("TUNNEL_OPTIONS", TUNNEL_OPTIONS as u64),
        ("OPTION_BYTES", OPTION_BYTES as u64),
        ("IFACES", IFACES.into()),
        ("IFACE_PROBES", IFACE_PROBES.into()),
        ("IFACE_DAEMONS", IFACE_DAEMONS.into()),
        ("IFACE_NOTED", IFACE_NOTED.into()),
        ("IFACE_GENERIC", IFACE_GENERIC.into()),
        ("IFACE_POLICED", IFACE_POLICED.into()),
        ("DROPS", DROPS as u64),
        ("TUNNEL_HEADERS", TUNNEL_HEADERS.into()),
        ("TUNNEL_BYTES", TUNNEL_BYTES as u64),
        ("TUNNEL_UDP", TUNNEL_UDP.into()),
        ("TUNNEL_CHECKSUM", TUNNEL_CHECKSUM.into()),
        ("TUNNEL_IPV6", TUNNEL_IPV6.into()),
        ("TUNNEL_WHOLE", TUNNEL_WHOLE.into()),
        ("TUNNEL_BARE", TUNNEL_BARE.into()),
        ("TUNNEL_GTPU", TUNNEL_GTPU.into()),
        ("TUNNEL_NUMBERED", TUNNEL_NUMBERED.into()),
        ("TUNNEL_STAMPED", TUNNEL_STAMPED.into()),
        ("TUNNEL_ROUTE", TUNNEL_ROUTE.into()),
        ("TUNNEL_LABEL_COPY", TUNNEL_LABEL_COPY.into()),
        ("TUNNEL_LABEL_ZERO", TUNNEL_LABEL_ZERO.into()),
        ("TUNNEL_LABEL_HASH", TUNNEL_LABEL_HASH.into()),
        ("MAX_METERS", MAX_METERS.into()),
        ("METER_BANDS", METER_BANDS as u64),
        ("MISS_ETHERTYPE", MISS_ETHERTYPE.into()),
        ("MISS_HEADER", MISS_HEADER as u64),
        ("MISS_TRACKED", MISS_TRACKED as u64),
        ("NO_CELL", NO_CELL.into()),
        ("CT_OP_COMMIT", CT_OP_COMMIT.into()),
        ("CT_OP_FORCE", CT_OP_FORCE.into()),
        ("CT_OP_MARK", CT_OP_MARK.into()),
        ("CT_OP_LABEL", CT_OP_LABEL.into()),
        ("CT_OP_NAT", CT_OP_NAT.into()),
        ("CT_OP_SRC", CT_OP_SRC.into()),
        ("CT_OP_DST", CT_OP_DST.into()),
        ("CT_OP_RANDOM", CT_OP_RANDOM.into()),
        ("CT_OP_PERSISTENT", CT_OP_PERSISTENT.into()),
        ("CT_OP_ADDRESSES", CT_OP_ADDRESSES.into()),
        ("CT_OP_IPV6", CT_OP_IPV6.into()),
        ("CT_OP_PORTS", CT_OP_PORTS.into()),
    ] {
        assert_eq!(header::value(HEADER, name), here, "{name}");
    }
}
