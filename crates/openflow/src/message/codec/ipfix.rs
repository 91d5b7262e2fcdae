// SPDX-License-Identifier: Apache-2.0
//! Counts of IPFIX exporters (`struct nx_ipfix_stats_reply` of nicira-ext.h).

use super::*;

pub(super) fn decode(r: &mut Reader<'_>) -> Result<IpfixStats> {
    let stats = IpfixStats {
        total_flows: r.u64()?,
        current_flows: r.u64()?,
        packets: r.u64()?,
        ipv4_packets: r.u64()?,
        ipv6_packets: r.u64()?,
        error_packets: r.u64()?,
        ipv4_error_packets: r.u64()?,
        ipv6_error_packets: r.u64()?,
        sent: r.u64()?,
        unsent: r.u64()?,
        collector_set: r.u32()?,
    };
    r.skip(4)?;
    Ok(stats)
}

pub(super) fn encode(stats: &IpfixStats, out: &mut Vec<u8>) {
    let counts = [
        stats.total_flows,
        stats.current_flows,
        stats.packets,
        stats.ipv4_packets,
        stats.ipv6_packets,
        stats.error_packets,
        stats.ipv4_error_packets,
        stats.ipv6_error_packets,
        stats.sent,
        stats.unsent,
    ];
    counts.iter().for_each(|count| out.put_u64(*count));
    out.put_u32(stats.collector_set);
    out.put_zeros(4);
}
