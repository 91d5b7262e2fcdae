// SPDX-License-Identifier: Apache-2.0
//! Multipart (statistics) requests.

use super::Connections;
use super::asynchronous::table_desc;
use super::origin::{Origin, VISIBLE_TABLES};
use super::reply::{FlowDump, Job, Reply};
use super::table_features::{group_features, table_features};
use crate::bridge::Bridge;
use crate::group::Group;
use crate::pipeline::{Filter, properties};
use crate::rule::{Rule, any_action};
use crate::switch::Switch;
use hashbrown::HashMap;
use openflow::message::{
    AggregateStats, Body, Bucket, FlowStatsRequest, GROUP_ALL, GroupDesc, GroupStats, IpfixStats,
    MeterFeatures, MeterFlags, MultipartReply, MultipartRequest, QueueConfig, QueueRequest,
    QueueStats, TableStats,
};
use openflow::{Action, OfError, PortNo, Version};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

impl Connections {
    pub(super) fn multipart(
        &mut self,
        origin: Origin<'_>,
        request: MultipartRequest,
        switch: &mut Switch,
    ) -> Result<Reply, OfError> {
        use MultipartRequest as Q;
        if matches!(
            request,
            Q::Flow(_) | Q::Aggregate(_) | Q::Table | Q::Port(_) | Q::Group(_) | Q::Meter(_)
        ) {
            switch.collect_statistics();
        }
        switch.counters.queue_requests += u64::from(matches!(request, Q::Queue(_)));
        let bridge = switch.bridge(origin.bridge).ok_or(OfError::OFPBRC_EPERM)?;
        let reply = match request {
            Q::Desc => MultipartReply::Desc(Box::new(bridge.description.clone())),
            Q::Flow(q) => {
                let rules = rules(bridge, &q).into_iter();
                let dump = FlowDump { xid: origin.xid, rules, nicira: q.nicira };
                return Ok(Reply::Long(Job::Dump(dump)));
            }
            Q::Aggregate(q) => {
                let mut stats = AggregateStats::default();
                for rule in rules(bridge, &q) {
                    let (packets, bytes) = rule.stats.counts();
                    stats.packet_count = stats.packet_count.saturating_add(packets);
                    stats.byte_count = stats.byte_count.saturating_add(bytes);
                    stats.flow_count = stats.flow_count.saturating_add(1);
                }
                MultipartReply::Aggregate { stats, nicira: q.nicira }
            }
            Q::Table => MultipartReply::Table(tables(bridge, origin.version)),
            Q::TableFeatures(part) => return self.request_table_features(origin, part, switch),
            Q::TableDesc => MultipartReply::TableDesc(
                bridge
                    .pipeline
                    .tables()
                    .take(usize::from(VISIBLE_TABLES))
                    .map(|(id, table)| table_desc(id, table))
                    .collect(),
            ),
            Q::Port(port) => {
                MultipartReply::Port(ports(bridge, port).map(|p| p.stats(origin.now)).collect())
            }
            Q::PortDesc(port) => {
                MultipartReply::PortDesc(ports(bridge, port).map(|p| p.desc()).collect())
            }
            Q::Queue(q) => {
                let found = queues(bridge, q)?.into_iter();
                MultipartReply::Queue(found.map(|queue| queue_stats(bridge, queue)).collect())
            }
            Q::QueueDesc(q) => MultipartReply::QueueDesc(
                queues(bridge, q)?.into_iter().map(queue_config).collect(),
            ),
            Q::Group(id) => {
                let uses = group_uses(bridge);
                let stats = |g: &Arc<Group>| GroupStats {
                    ref_count: uses.get(&g.id).copied().unwrap_or(0),
                    ..group_stats(g, origin)
                };
                MultipartReply::Group(groups(bridge, id).iter().map(stats).collect())
            }
            Q::GroupDesc(id) => MultipartReply::GroupDesc(
                groups(bridge, id).iter().map(|g| group_desc(g)).collect(),
            ),
            Q::GroupFeatures => MultipartReply::GroupFeatures(group_features()),
            Q::Meter(id) => {
                let uses = meter_uses(bridge);
                let count = |id| uses.get(&id).copied().unwrap_or(0);
                let stats =
                    bridge.meters.stats(id, switch.datapath().meters(), &count, origin.now)?;
                MultipartReply::Meter(stats)
            }
            Q::MeterConfig(id) => MultipartReply::MeterConfig(bridge.meters.configs(id)?),
            Q::MeterFeatures => MultipartReply::MeterFeatures(meter_features(switch)),
            Q::FlowMonitor(monitors) => {
                self.flow_monitor(origin.id, origin.xid, monitors, switch)?;
                return Ok(Reply::None);
            }
            Q::IpfixBridge => MultipartReply::IpfixBridge(ipfix_of_bridge(bridge)?),
            Q::IpfixFlow => MultipartReply::IpfixFlow(ipfix_of_sets(bridge)?),
        };
        Ok(Reply::multipart(reply))
    }

    /// Answers OFPT_QUEUE_GET_CONFIG_REQUEST.
    pub(super) fn queue_configuration(
        origin: Origin<'_>,
        port: PortNo,
        switch: &Switch,
    ) -> Result<Reply, OfError> {
        let bridge = switch.bridge(origin.bridge).ok_or(OfError::OFPBRC_EPERM)?;
        let found = queues(bridge, QueueRequest { port, queue: QueueRequest::ALL })?;
        let queues = found.into_iter().map(queue_config).collect();
        Ok(Reply::of(Body::QueueGetConfigReply { port, queues }))
    }
}

/// Returns the counts of the bridge's IPFIX.
fn ipfix_of_bridge(bridge: &Bridge) -> Result<IpfixStats, OfError> {
    let view = bridge.exports.ipfix.as_ref().ok_or(OfError::NXST_NOT_CONFIGURED)?;
    let sampler = view.bridge.as_ref().ok_or(OfError::NXST_NOT_CONFIGURED)?;
    Ok(ipfix_stats(0, &sampler.exporter.statistics()))
}

/// Returns the counts of all collector sets.
fn ipfix_of_sets(bridge: &Bridge) -> Result<Vec<IpfixStats>, OfError> {
    let view = bridge.exports.ipfix.as_ref().ok_or(OfError::NXST_NOT_CONFIGURED)?;
    if view.sets.is_empty() {
        return Err(OfError::NXST_NOT_CONFIGURED);
    }
    Ok(view.sets.iter().map(|(id, set)| ipfix_stats(*id, &set.exporter.statistics())).collect())
}

fn ipfix_stats(collector_set: u32, counts: &::export::ipfix::Statistics) -> IpfixStats {
    IpfixStats {
        total_flows: counts.total_flows,
        current_flows: counts.current_flows,
        packets: counts.packets,
        ipv4_packets: counts.ipv4_packets,
        ipv6_packets: counts.ipv6_packets,
        error_packets: counts.error_packets,
        ipv4_error_packets: counts.ipv4_error_packets,
        ipv6_error_packets: counts.ipv6_error_packets,
        sent: counts.sent,
        unsent: counts.unsent,
        collector_set,
    }
}

/// Returns the requested rules by table, in the order in which they were added.
fn rules(bridge: &Bridge, q: &FlowStatsRequest) -> Vec<Arc<Rule>> {
    bridge.pipeline.select(&Filter {
        matching: q.matching,
        strict_priority: None,
        table: q.table_id,
        cookie: q.cookie,
        cookie_mask: q.cookie_mask,
        out_port: q.out_port,
        out_group: q.out_group,
    })
}

fn tables(bridge: &Bridge, version: Version) -> Vec<TableStats> {
    let tables = bridge.pipeline.tables().take(usize::from(VISIBLE_TABLES));
    tables
        .map(|(id, table)| {
            let matched = table.stats().matched.load(Ordering::Relaxed);
            TableStats {
                table_id: id,
                active_count: u32::try_from(table.visible_rules()).unwrap_or(u32::MAX),
                lookup_count: matched.saturating_add(table.stats().missed.load(Ordering::Relaxed)),
                matched_count: matched,
                features: (version < Version::V13).then(|| Arc::new(table_features(id, bridge))),
            }
        })
        .collect()
}

/// Returns the port with this number, if it exists; all ports for [`PortNo::NONE`].
fn ports(bridge: &Bridge, number: PortNo) -> impl Iterator<Item = &crate::port::Port> {
    bridge.ports.values().filter(move |p| number == PortNo::NONE || p.number == number)
}

/// Returns the requested queues. An unknown port is an error, and so is a queue that was requested
/// by number and that no port has.
fn queues(bridge: &Bridge, q: QueueRequest) -> Result<Vec<(PortNo, u32)>, OfError> {
    if q.port != PortNo::NONE && !bridge.ports.contains_key(&q.port) {
        return Err(OfError::OFPQOFC_BAD_PORT);
    }
    let of_port = |p: &crate::port::Port| {
        let queues = p.device.as_ref().map(|d| d.transmit_queues()).unwrap_or_default();
        let number = p.number;
        queues.into_iter().map(move |queue| (number, queue))
    };
    let found: Vec<(PortNo, u32)> = ports(bridge, q.port)
        .flat_map(of_port)
        .filter(|(_, queue)| q.queue == QueueRequest::ALL || q.queue == *queue)
        .collect();
    if found.is_empty() && q.queue != QueueRequest::ALL {
        return Err(OfError::OFPQOFC_BAD_QUEUE);
    }
    Ok(found)
}

/// Returns the counters of a queue; unknown ones are all ones.
fn queue_stats(bridge: &Bridge, (port, queue): (PortNo, u32)) -> QueueStats {
    let device = bridge.ports.get(&port).and_then(|port| port.device.as_ref());
    let stats = device.and_then(|device| device.queue_stats(queue));
    QueueStats {
        port,
        queue,
        tx_bytes: stats.map_or(u64::MAX, |stats| stats.tx_bytes),
        tx_packets: stats.map_or(u64::MAX, |stats| stats.tx_packets),
        tx_errors: stats.map_or(u64::MAX, |stats| stats.tx_errors),
        duration: stats.map(|stats| stats.age),
    }
}

/// Returns the configuration of a queue. As in OVS its limits are left out: OpenFlow has them in parts
/// of the speed of the link.
fn queue_config((port, queue): (PortNo, u32)) -> QueueConfig {
    QueueConfig { port, queue, min_rate: None, max_rate: None }
}

fn groups(bridge: &Bridge, id: u32) -> Vec<Arc<Group>> {
    let all = bridge.pipeline.groups();
    if id != GROUP_ALL {
        return all.get(&id).map(Arc::clone).into_iter().collect();
    }
    let mut groups: Vec<Arc<Group>> = all.values().map(Arc::clone).collect();
    groups.sort_unstable_by_key(|g| g.id);
    groups
}

/// Counts the references of rules to each group: a rule with two references counts twice, as in
/// OVS.
fn group_uses(bridge: &Bridge) -> HashMap<u32, u32> {
    let group = |a: &Action| if let Action::Group(id) = a { Some(*id) } else { None };
    uses(bridge, &|rule| named(rule, &group))
}

/// Counts the rules that use each meter.
fn meter_uses(bridge: &Bridge) -> HashMap<u32, u32> {
    let meter = |a: &Action| if let Action::Meter(id) = a { Some(*id) } else { None };
    uses(bridge, &|rule| {
        let mut ids = named(rule, &meter);
        ids.sort_unstable();
        ids.dedup();
        ids
    })
}

/// Counts the occurrences of each number in the results of `of` over all rules.
fn uses(bridge: &Bridge, of: &dyn Fn(&Rule) -> Vec<u32>) -> HashMap<u32, u32> {
    let mut counts = HashMap::new();
    for rule in bridge.pipeline.tables().flat_map(|(_, t)| t.rules().iter()) {
        for id in of(rule) {
            *counts.entry(id).or_insert(0) += 1;
        }
    }
    counts
}

/// Returns the names in a rule's actions, nested actions included, with repetitions.
fn named(rule: &Rule, name: &dyn Fn(&Action) -> Option<u32>) -> Vec<u32> {
    let found = std::cell::RefCell::new(Vec::new());
    any_action(&rule.actions, &|a| {
        found.borrow_mut().extend(name(a));
        false // go on
    });
    found.into_inner()
}

fn group_stats(g: &Group, origin: Origin<'_>) -> GroupStats {
    let (packet_count, byte_count) = g.stats.counts();
    GroupStats {
        group_id: g.id,
        ref_count: 0,
        packet_count,
        byte_count,
        duration: Duration::from_millis(origin.now.since(g.created)),
        buckets: g.buckets.iter().map(|b| b.stats.counts()).collect(),
    }
}

fn group_desc(g: &Group) -> GroupDesc {
    GroupDesc {
        group_id: g.id,
        kind: g.kind,
        buckets: g
            .buckets
            .iter()
            .map(|b| Bucket {
                id: b.id,
                weight: b.weight,
                watch_port: b.watch_port,
                watch_group: b.watch_group,
                actions: Arc::clone(&b.actions),
            })
            .collect(),
        properties: properties(&g.selection),
    }
}

fn meter_features(switch: &Switch) -> MeterFeatures {
    const DROP: u32 = 1 << 1; // OFPMBT_DROP
    let Some(meters) = switch.datapath().meters() else { return MeterFeatures::default() };
    let (max_meters, max_bands) = meters.limits();
    MeterFeatures {
        max_meters,
        band_types: DROP,
        capabilities: u32::from(MeterFlags::all().bits()),
        max_bands,
        max_color: 0,
    }
}
