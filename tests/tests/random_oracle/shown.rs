// SPDX-License-Identifier: Apache-2.0
//! The comparable content of an OpenFlow message, as text: an entry to a line, without times.

use crate::case::protocol;
use openflow::message::{
    Body, FlowStatsRequest, GROUP_ALL, Message, MultipartReply, MultipartRequest, PortStats,
};
use openflow::{OfError, PortNo, Version};
use std::collections::BTreeMap;
use std::time::Duration;

/// The requests at the end of a case, with a name for each.
pub fn requests(version: Version) -> Vec<(&'static str, MultipartRequest)> {
    let all = FlowStatsRequest { nicira: version == Version::V10, ..FlowStatsRequest::all() };
    let flows = ("flows", MultipartRequest::Flow(Box::new(all.clone())));
    match version {
        Version::V10 => vec![flows],
        Version::V13 => vec![
            flows,
            ("totals", MultipartRequest::Aggregate(Box::new(all))),
            ("tables", MultipartRequest::Table),
            ("ports", MultipartRequest::Port(PortNo::NONE)),
            ("group statistics", MultipartRequest::Group(GROUP_ALL)),
        ],
        _ => vec![flows, ("groups", MultipartRequest::GroupDesc(GROUP_ALL))],
    }
}

/// The counters of ports at some time.
pub type PortCounts = BTreeMap<PortNo, [u64; 4]>;

/// The counters of the ports in these replies.
pub fn port_counts(replies: &[Vec<u8>], version: Version) -> PortCounts {
    let decoded = replies.iter().filter_map(|m| Message::decode(m, &protocol(version)).ok());
    let ports = decoded.flat_map(|message| match message.body {
        Body::MultipartReply { reply: MultipartReply::Port(ports), .. } => ports,
        _ => Vec::new(),
    });
    ports.map(|p| (p.port_no, counts(&p))).collect()
}

fn counts(p: &PortStats) -> [u64; 4] {
    [p.rx_packets, p.rx_bytes, p.tx_packets, p.tx_bytes]
}

/// The text of a message. With `before`, ports are devices: their counters are those since then,
/// and other fields depend on the kind of device and are left out.
pub fn shown(bytes: &[u8], version: Version, before: Option<&PortCounts>) -> Vec<String> {
    let message = match Message::decode(bytes, &protocol(version)) {
        Ok(message) => message,
        // Which flow of a reply is the first that cannot be read without the mappings of options is up
        // to a hash table. The flows themselves are compared as the bridge shows them.
        Err(e)
            if [
                OfError::NXFMFC_INVALID_TLV_FIELD,
                OfError::OFPBAC_BAD_SET_LEN,
                OfError::OFPBAC_UNSUPPORTED_ORDER,
            ]
            .contains(&e.error) =>
        {
            return vec!["fields of options".to_owned()];
        }
        Err(e) => return vec![e.to_string()],
    };
    match message.body {
        Body::MultipartReply { reply, .. } => entries(reply, before),
        Body::FlowRemoved(f) => vec![format!(
            "removed: {:?} table={:?} priority={} {} cookie={:#x} idle={} hard={} packets={} bytes={} {}",
            f.reason,
            f.table_id,
            f.priority,
            flow::text::format_match(&f.matching, &flow::text::no_names),
            f.cookie,
            f.idle_timeout,
            f.hard_timeout,
            f.packet_count,
            f.byte_count,
            untold(&f.matching),
        )],
        body => vec![format!("{body:?}")],
    }
}

fn entries(reply: MultipartReply, before: Option<&PortCounts>) -> Vec<String> {
    let mut out = Vec::new();
    match reply {
        MultipartReply::Flow { flows, .. } => {
            for f in flows {
                let matching = flow::text::format_match(&f.matching, &flow::text::no_names);
                let actions = openflow::text::format_actions(&f.actions, &flow::text::no_names);
                out.push(format!(
                    "table={} priority={} {matching} cookie={:#x} idle={} hard={} importance={} {:?} packets={} bytes={} {actions} {}",
                    f.table_id, f.priority, f.cookie, f.idle_timeout, f.hard_timeout, f.importance,
                    f.flags, f.packet_count, f.byte_count, untold(&f.matching),
                ));
            }
        }
        MultipartReply::Table(tables) => {
            let used = tables.into_iter().filter(|t| t.lookup_count != 0 || t.active_count != 0);
            out.extend(used.map(|t| format!("{t:?}")));
        }
        MultipartReply::Port(ports) => out.extend(ports.into_iter().map(|p| port(p, before))),
        MultipartReply::Group(groups) => out.extend(groups.into_iter().map(|mut g| {
            g.duration = Duration::ZERO;
            format!("{g:?}")
        })),
        MultipartReply::GroupDesc(groups) => {
            out.extend(groups.into_iter().map(|g| format!("{g:?}")))
        }
        other => out.push(format!("{other:?}")),
    }
    out
}

/// The parts of a match that its text omits.
fn untold(matching: &flow::Match) -> String {
    let mask = &matching.mask().0;
    format!("{:?} packet_type={:#x}", mask.vlans, mask.packet_type.get())
}

fn port(mut p: PortStats, before: Option<&PortCounts>) -> String {
    p.duration = None;
    // Slipswitch's dummies count frames that are too long for them, OVS's do not.
    p.tx_dropped = u64::MAX;
    let mut counts = counts(&p);
    if let Some(before) = before {
        for (count, before) in counts.iter_mut().zip(before.get(&p.port_no).into_iter().flatten()) {
            *count = count.wrapping_sub(*before);
        }
        // The kernel may count a frame without a VLAN header that it keeps outside of the frame.
        return format!("{} {counts:?}", p.port_no, counts = [counts[0], counts[2]]);
    }
    let plain =
        |p: PortStats| PortStats { rx_packets: 0, rx_bytes: 0, tx_packets: 0, tx_bytes: 0, ..p };
    let rest = plain(p);
    let none = plain(PortStats::unknown(rest.port_no));
    let others = if rest == none { String::new() } else { format!("{rest:?}") };
    format!("{} {counts:?} {others}", rest.port_no)
}
