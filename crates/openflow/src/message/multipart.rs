// SPDX-License-Identifier: Apache-2.0
//! Multipart (statistics) requests and replies.

use super::*;
use crate::PortNo;

/// OFPT_MULTIPART_REQUEST.
#[derive(Clone, Debug, PartialEq)]
pub enum MultipartRequest {
    /// OFPMP_DESC.
    Desc,
    /// OFPMP_FLOW, NXST_FLOW.
    Flow(Box<FlowStatsRequest>),
    /// OFPMP_AGGREGATE, NXST_AGGREGATE.
    Aggregate(Box<FlowStatsRequest>),
    /// OFPMP_TABLE.
    Table,
    /// OFPMP_PORT_STATS; [`PortNo::NONE`] for all.
    Port(PortNo),
    /// OFPMP_QUEUE.
    Queue(QueueRequest),
    /// OFPMP_GROUP: one, or [`GROUP_ALL`].
    Group(u32),
    /// OFPMP_GROUP_DESC: one (1.5), or [`GROUP_ALL`].
    GroupDesc(u32),
    /// OFPMP_GROUP_FEATURES.
    GroupFeatures,
    /// OFPMP_METER: one, or [`meter_id::ALL`].
    Meter(u32),
    /// OFPMP_METER_CONFIG: one, or [`meter_id::ALL`].
    MeterConfig(u32),
    /// OFPMP_METER_FEATURES.
    MeterFeatures,
    /// OFPMP_TABLE_FEATURES (1.3+).
    TableFeatures(TableFeaturesRequest),
    /// OFPMP_PORT_DESC: one (1.5), or [`PortNo::NONE`].
    PortDesc(PortNo),
    /// OFPMP_TABLE_DESC (1.4+).
    TableDesc,
    /// OFPMP_QUEUE_DESC (1.4+).
    QueueDesc(QueueRequest),
    /// OFPMP_FLOW_MONITOR (1.4+), ONFST_FLOW_MONITOR (1.3), NXST_FLOW_MONITOR (1.0 to 1.2): the
    /// monitors.
    FlowMonitor(Vec<FlowMonitorRequest>),
    /// NXST_IPFIX_BRIDGE.
    IpfixBridge,
    /// NXST_IPFIX_FLOW.
    IpfixFlow,
}

/// OFPT_MULTIPART_REPLY.
#[derive(Clone, Debug, PartialEq)]
pub enum MultipartReply {
    /// OFPMP_DESC.
    Desc(Box<SwitchDesc>),
    /// OFPMP_FLOW, NXST_FLOW.
    Flow {
        /// The flows.
        flows: Vec<FlowStats>,
        /// Nicira's form.
        nicira: bool,
    },
    /// OFPMP_AGGREGATE, NXST_AGGREGATE.
    Aggregate {
        /// The totals.
        stats: AggregateStats,
        /// Nicira's form.
        nicira: bool,
    },
    /// OFPMP_TABLE.
    Table(Vec<TableStats>),
    /// OFPMP_PORT_STATS.
    Port(Vec<PortStats>),
    /// OFPMP_QUEUE.
    Queue(Vec<QueueStats>),
    /// OFPMP_GROUP.
    Group(Vec<GroupStats>),
    /// OFPMP_GROUP_DESC.
    GroupDesc(Vec<GroupDesc>),
    /// OFPMP_GROUP_FEATURES.
    GroupFeatures(GroupFeatures),
    /// OFPMP_METER.
    Meter(Vec<MeterStats>),
    /// OFPMP_METER_CONFIG.
    MeterConfig(Vec<MeterConfig>),
    /// OFPMP_METER_FEATURES.
    MeterFeatures(MeterFeatures),
    /// OFPMP_TABLE_FEATURES.
    TableFeatures(Vec<TableFeatures>),
    /// OFPMP_PORT_DESC.
    PortDesc(Vec<PortDesc>),
    /// OFPMP_TABLE_DESC.
    TableDesc(Vec<TableDesc>),
    /// OFPMP_QUEUE_DESC.
    QueueDesc(Vec<QueueConfig>),
    /// OFPMP_FLOW_MONITOR, ONFST_FLOW_MONITOR, NXST_FLOW_MONITOR: the changes to flows, in order.
    FlowMonitor(Vec<FlowUpdate>),
    /// NXST_IPFIX_BRIDGE.
    IpfixBridge(IpfixStats),
    /// NXST_IPFIX_FLOW: one for each collector set.
    IpfixFlow(Vec<IpfixStats>),
}

/// Counts of an IPFIX exporter (`struct nx_ipfix_stats_reply` of nicira-ext.h).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IpfixStats {
    /// Flows since the start.
    pub total_flows: u64,
    /// Flows in the cache.
    pub current_flows: u64,
    /// Sampled packets.
    pub packets: u64,
    /// Sampled packets of IPv4 with a known transport protocol.
    pub ipv4_packets: u64,
    /// Sampled packets of IPv6 with a known transport protocol.
    pub ipv6_packets: u64,
    /// Sampled packets of IP with another transport protocol.
    pub error_packets: u64,
    /// Those of IPv4.
    pub ipv4_error_packets: u64,
    /// Those of IPv6.
    pub ipv6_error_packets: u64,
    /// Messages to collectors that were sent.
    pub sent: u64,
    /// Messages to collectors that could not be sent.
    pub unsent: u64,
    /// Collector set; 0 for the bridge.
    pub collector_set: u32,
}

/// OFPMP_DESC: texts, cut to 255 bytes (serial number: 31).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SwitchDesc {
    /// Name of the manufacturer.
    pub manufacturer: String,
    /// Description of the hardware.
    pub hardware: String,
    /// Description of the software, with its version.
    pub software: String,
    /// Serial number.
    pub serial_number: String,
    /// The datapath, for people.
    pub datapath: String,
}
