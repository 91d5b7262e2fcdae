// SPDX-License-Identifier: Apache-2.0
//! `bpf/ct_layout.h` against the layout that it mirrors.

use conntrack::layout::*;
use conntrack::{Counter, IcmpClass};

#[path = "support/header.rs"]
mod header;

const HEADER: &str = include_str!("../bpf/ct_layout.h");

#[test]
fn numbers_are_the_same_in_c_and_in_rust() {
    let all: &[(&str, u64)] = &[
        ("CT_VERSION", VERSION),
        ("CT_MAGIC", config::MAGIC_VALUE),
        ("CT_KEY_WORDS", KEY_WORDS as u64),
        ("CT_KIND_V6", key_kind::V6.into()),
        ("CT_KIND_CLASS_SHIFT", key_kind::CLASS_SHIFT.into()),
        ("CT_KIND_CLASS_MASK", key_kind::CLASS_MASK.into()),
        ("CT_KIND_HIGH_ASKS", key_kind::HIGH_ASKS.into()),
        ("CT_CLASS_ECHO", IcmpClass::Echo as u64),
        ("CT_CLASS_TIMESTAMP", IcmpClass::Timestamp as u64),
        ("CT_CLASS_INFORMATION", IcmpClass::Information as u64),
        ("CT_CONFIG_WORDS", config::WORDS as u64),
        ("CT_CONFIG_MAGIC", config::MAGIC as u64),
        ("CT_CONFIG_SEED", config::SEED as u64),
        ("CT_CONFIG_FACTORS", config::FACTORS as u64),
        ("CT_CONFIG_FLAGS", config::FLAGS as u64),
        ("CT_CONFIG_MAX_CONNS", config::MAX_CONNS as u64),
        ("CT_CONFIG_HALF_OPEN_PERCENT", config::HALF_OPEN_PERCENT as u64),
        ("CT_CONFIG_INDEX", config::INDEX as u64),
        ("CT_CONFIG_NO_INDEX", config::NO_INDEX),
        ("CT_CONFIG_DEFAULT_LIMIT", config::DEFAULT_LIMIT as u64),
        ("CT_CONFIG_TOTALS", config::TOTALS as u64),
        ("CT_CONFIG_SHARDS", config::SHARDS as u64),
        ("CT_CONFIG_LINE", config::LINE as u64),
        ("CT_CONFIG_EVENTS", config::EVENTS as u64),
        ("CT_EVENTS", config::EVENT_LINE as u64),
        ("CT_EVENT_FULL", Counter::Full as u64),
        ("CT_EVENT_ZONE_FULL", Counter::ZoneFull as u64),
        ("CT_EVENT_HALF_OPEN_FULL", Counter::HalfOpenFull as u64),
        ("CT_EVENT_BUCKET_FULL", Counter::BucketFull as u64),
        ("CT_EVENT_OVERTAKEN", Counter::Overtaken as u64),
        ("CT_EVENT_IP_CHECKSUM_WRONG", Counter::IpChecksumError as u64),
        ("CT_EVENT_CHECKSUM_WRONG", Counter::TransportChecksumError as u64),
        ("CT_EVENT_IP_CHECKSUM", Counter::IpChecksumChecked as u64),
        ("CT_EVENT_CHECKSUM", Counter::TransportChecksumChecked as u64),
        ("CT_EVENT_SEQUENCE_BYPASSED", Counter::SequenceCheckBypassed as u64),
        ("CT_EVENT_SEQUENCE_FAILED", Counter::SequenceCheckFailed as u64),
        ("CT_EVENT_INVALID_FLAGS", Counter::InvalidTcpFlags as u64),
        ("CT_NO_SEQUENCE_CHECK", config_flags::NO_SEQUENCE_CHECK),
        ("CT_PLACES", BUCKET_PLACES as u64),
        ("CT_FIRST_ENOUGH", FIRST_ENOUGH as u64),
        ("CT_EVICTION_BUCKETS", EVICTION_BUCKETS as u64),
        ("CT_INDEX_GENERATIONS", INDEX_GENERATIONS as u64),
        ("CT_INDEX_MIN_SHIFT", INDEX_MIN_BUCKETS.ilog2().into()),
        ("CT_INDEX_MAX_SHIFT", INDEX_MAX_BUCKETS.ilog2().into()),
        ("CT_CHUNK_SHIFT", CHUNK_SHIFT.into()),
        ("CT_CHUNKS", CHUNKS as u64),
        ("CT_RINGS", RINGS as u64),
        ("CT_RING_SLOTS", RING_SLOTS as u64),
        ("CT_RING_HEAD", ring::HEAD as u64),
        ("CT_RING_TAIL", ring::TAIL as u64),
        ("CT_RING_CELLS", ring::CELLS as u64),
        ("CT_ZONES", ZONES as u64),
        ("CT_ZONE_WORDS", zone::WORDS as u64),
        ("CT_ZONE_LIMIT", zone::LIMIT as u64),
        ("CT_ZONE_COUNT", zone::COUNT as u64),
        ("CT_ZONE_HALF_OPEN", zone::HALF_OPEN as u64),
        ("CT_ZONE_EXPECTATIONS", zone::EXPECTATIONS as u64),
        ("CT_SMALL_LIMIT", zone::SMALL_LIMIT),
        ("CT_POLICIES", POLICIES as u64),
        ("CT_POLICY_WORDS", POLICY_WORDS as u64),
        ("CT_EXTENSIONS", EXTENSIONS as u64),
        ("CT_EXTENSION_WORDS", extension::WORDS as u64),
        ("CT_EXTENSION_PARENT", extension::PARENT as u64),
        ("CT_EXTENSION_FLAGS", extension::FLAGS as u64),
        ("CT_CONN_WORDS", conn::WORDS as u64),
        ("CT_CONN_HEAD", conn::HEAD as u64),
        ("CT_CONN_KEY", conn::KEY as u64),
        ("CT_CONN_WINDOW", conn::WINDOW as u64),
        ("CT_CONN_CONTROL", conn::CONTROL as u64),
        ("CT_CONN_MARK", conn::MARK as u64),
        ("CT_CONN_LABEL", conn::LABEL as u64),
        ("CT_CONN_NAT_ADDRESS", conn::NAT_ADDRESS as u64),
        ("CT_CONN_NAT_PORTS", conn::NAT_PORTS as u64),
        ("CT_CONN_MADE", conn::MADE as u64),
        ("CT_PHASE_SHIFT", head::PHASE_SHIFT.into()),
        ("CT_FREE", head::FREE),
        ("CT_TENTATIVE", head::TENTATIVE),
        ("CT_LIVE", head::LIVE),
        ("CT_DEAD", head::DEAD),
        ("CT_FLAGS_SHIFT", head::FLAGS_SHIFT.into()),
        ("CT_FLAGS_MASK", head::FLAGS_MASK),
        ("CT_GENERATION_SHIFT", head::GENERATION_SHIFT.into()),
        ("CT_ASSURED", flags::ASSURED.into()),
        ("CT_REPLIED", flags::REPLIED.into()),
        ("CT_MULTIPLE", flags::MULTIPLE.into()),
        ("CT_ORIGINAL_IS_HIGH", flags::ORIGINAL_IS_HIGH.into()),
        ("CT_NAT_SRC", flags::NAT_SRC.into()),
        ("CT_NAT_DST", flags::NAT_DST.into()),
        ("CT_DAEMON", flags::DAEMON.into()),
        ("CT_RELATED", flags::RELATED.into()),
        ("CT_HALF_OPEN", flags::HALF_OPEN.into()),
        ("CT_TICK_SHIFT", TICK_SHIFT.into()),
        ("CT_REFRESH_TICKS", REFRESH_TICKS as u64),
    ];
    for (name, here) in all {
        assert_eq!(header::value(HEADER, name), *here, "{name}");
    }
    // The positions in the word of the mark are tested by values (tests/ct_table.rs).
    let marks = 4;
    let macros = HEADER.lines().filter(|line| line.starts_with("#define CT_")).count();
    assert_eq!(macros, all.len() + marks, "a number is compared with nothing");
}
