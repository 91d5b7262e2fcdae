// SPDX-License-Identifier: Apache-2.0
//! The Rust mirror of `bpf/layout.h` against the type information of the compiled programs.

use std::collections::HashMap;
use std::mem::offset_of;

use datapath_bpf::layout::*;
use datapath_bpf::load::Hook;
use datapath_bpf::settings::Settings;
use libbpf_rs::btf::types::{Composite, MemberAttr};
use libbpf_rs::btf::{Btf, HasSize as _};

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
            SlotDetail { cold, needs, reason, ufid, hash, installed, instructions, pad }
        );
        same!(&btf, "mask", MaskEntry { words, needs, flows });
        same!(&btf, "bucket", Bucket { entries });
        same!(&btf, "cache_line", CacheLine { entries });
        same!(&btf, "emc_entry", EmcEntry { sign, what });
        same!(&btf, "emc_line", EmcLine { ways });
        same!(&btf, "last_flow", LastFlow { key, tag, what, last, again });
        same!(&btf, "epochs", Epochs { of });
        same!(&btf, "recent", Recent { word });
        same!(&btf, "batch", Batch { cursor, turn, pad, entries });
        same!(&btf, "totals", Totals { packets, bytes, begun, ended });
        same!(&btf, "program", Program { cells, set, exclude, growth, again, cuts, pad });
        same!(&btf, "port_set", PortSet { mtu, blocked, blocked_port, count, ports });
        same!(
            &btf,
            "port",
            Port { ifindex, flags, mtu, upcall_limit, sent_up, taken_up, closed_until, pad }
        );
        same!(&btf, "port_stats", PortCount { rx_packets, rx_bytes, tx_packets, tx_bytes });
        same!(&btf, "iface", Iface { ifindex, port });
        assert_eq!(in_c(&btf, "state").0, STATE_BYTES as usize);
        if hook == Hook::Xdp {
            assert_eq!(in_c(&btf, "undo").0, UNDO_BYTES as usize);
        }
        same!(&btf, "counters", Counters { drops, walked, masks, found, up, passed, evicted, pad });
        same!(&btf, "meter_band", MeterBand { cost, depth, tat, packets, bytes });
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
                factors,
            }
        );
        same!(
            &btf,
            "settings",
            Settings {
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
                emc_used,
                generation,
                emc_total,
                cpus,
                batched,
                pad,
                factors,
                union_mask,
            }
        );
    }
}

/// Names and numbers that are no structures.
#[test]
fn constants_are_the_same_in_c_and_here() {
    let header = include_str!("../bpf/layout.h");
    let value = |name: &str| {
        let line = header.lines().find(|l| l.starts_with(&format!("#define {name} ")));
        let text = line.unwrap_or_else(|| panic!("no {name}")).split_whitespace().nth(2).unwrap();
        let text = text.trim_end_matches(['u', 'l']);
        match text.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).unwrap(),
            None => text.parse().unwrap(),
        }
    };
    for (name, here) in [
        ("LAYOUT_MAGIC", MAGIC),
        ("LAYOUT_VERSION", VERSION.into()),
        ("HOOK_XDP", HOOK_XDP.into()),
        ("HOOK_TC", HOOK_TC.into()),
        ("FLOW_NO_GSO", FLOW_NO_GSO.into()),
        ("FLOW_PRECHECK", FLOW_PRECHECK.into()),
        ("FLOW_PACKET_TYPE", FLOW_PACKET_TYPE.into()),
        ("MASK_VACANT", MASK_VACANT.into()),
        ("NO_PORT", NO_PORT.into()),
        ("NO_PROGRAM", NO_PROGRAM.into()),
        ("BUCKET", BUCKET as u64),
        ("WAYS", WAYS as u64),
        ("EMC_WAYS", EMC_WAYS as u64),
        ("EPOCHS", EPOCHS as u64),
        ("RECENT_PACKETS_SHIFT", RECENT_PACKETS_SHIFT.into()),
        ("RECENT_SPILLED_SHIFT", RECENT_SPILLED_SHIFT.into()),
        ("TCP_FLAGS_SHIFT", TCP_FLAGS_SHIFT.into()),
        ("BATCH", BATCH as u64),
        ("BATCH_BYTES_SHIFT", BATCH_BYTES_SHIFT.into()),
        ("BATCH_TURN_SHIFT", BATCH_TURN_SHIFT.into()),
        ("CELLS", CELLS as u64),
        ("CELLS_TOTAL", CELLS_TOTAL as u64),
        ("MAX_PORTS", MAX_PORTS.into()),
        ("PORT_UP", PORT_UP.into()),
        ("PORT_STACK", PORT_STACK.into()),
        ("PORT_DEVMAP", PORT_DEVMAP.into()),
        ("PORT_SPLIT", PORT_SPLIT.into()),
        ("PORT_SETS", PORT_SETS.into()),
        ("SET_PORTS", SET_PORTS as u64),
        ("IFACES", IFACES.into()),
        ("IFACE_PROBES", IFACE_PROBES.into()),
        ("DROPS", DROPS as u64),
        ("MAX_METERS", MAX_METERS.into()),
        ("METER_BANDS", METER_BANDS as u64),
        ("MISS_ETHERTYPE", MISS_ETHERTYPE.into()),
    ] {
        assert_eq!(value(name), here, "{name}");
    }
    let list = |start: &str, prefix: &str| -> Vec<String> {
        let body = header.split_once(start).unwrap().1.split_once('}').unwrap().0;
        body.lines()
            .filter_map(|l| l.trim().split([',', ' ', '=']).next())
            .filter(|name| name.starts_with(prefix))
            .map(str::to_owned)
            .collect()
    };
    let ops = list("enum op {", "OP_");
    assert_eq!(ops.len(), Op::Copies as usize + 2, "{ops:?}"); // and OP_COUNT
    for (op, name) in
        [(Op::Drop, "OP_DROP"), (Op::SetNdExt, "OP_SET_ND_EXT"), (Op::Sample, "OP_SAMPLE")]
    {
        assert_eq!(ops[op as usize], name);
    }
    let tails = list("enum tail {", "TAIL_");
    assert_eq!(tails.len(), TAILS as usize);
    assert_eq!(tails[Tail::Pull as usize], "TAIL_PULL");
    let words = list("enum word {", "W_");
    assert_eq!(words.len(), WORDS);
    assert_eq!(words[word::RECIRC], "W_RECIRC");
    assert_eq!(words[word::TP], "W_TP");
    assert_eq!(words[word::ND2], "W_ND2");
}
