// SPDX-License-Identifier: Apache-2.0
//! IPFIX (RFC 7011; elements: IANA's registry, and those of VMware that Open vSwitch uses).
//!
//! An [`Exporter`] keeps a cache of flows. Sampled packets are added with [`Exporter::sample`]. A flow
//! ends, and becomes a record, when it has been active for the active timeout, or when the cache has
//! more flows than it may have; its next packet begins a new flow. [`Exporter::run`] returns the
//! messages of ended flows. Each message has one set. Integers on the wire are in network byte order.
//!
//! Templates belong to an observation domain (RFC 7011, 3.1): they are sent before the domain's first
//! record and again after the template interval, as UDP needs (RFC 7011, 8.1 and 10.3.6).

mod record;
mod template;

pub use record::{Direction, Interface, Packet, TunnelType};

use crate::WallTime;
use clock::Millis;
use hashbrown::HashMap;
use packet::{ethertype, ip_proto};
use record::{Counts, EndReason, Identity, Totals};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Port of collectors, where a target has none (RFC 7011, 10.3.4).
pub const DEFAULT_PORT: u16 = 4739;
/// Default of the time between two transmissions of templates and of statistics, in seconds.
pub const INTERVAL_SECONDS: u32 = 600;
/// Default of a bridge's sampling rate: one packet in 400, as in OVS.
pub const SAMPLING: u32 = 400;
/// Highest number of flows that an exporter keeps, also when the database asks for more. A flow takes
/// about 600 bytes.
pub const MAX_FLOWS: usize = 65_536;
/// Highest number of ended flows that wait for [`Exporter::run`].
pub const MAX_READY: usize = 4_096;
/// Highest number of observation domains whose templates' times are kept. Further ones make the
/// exporter forget the others, whose templates are then sent once more.
pub const MAX_DOMAINS: usize = 1_024;
/// Highest number of bytes of a virtual observation id, as in OVS.
pub const MAX_VIRTUAL_OBS_ID_BYTES: usize = 254;

/// Bytes of a message's header (RFC 7011, 3.1).
const HEADER_BYTES: usize = 16;
const VERSION: u16 = 10;
/// Observation domain of statistics, which belong to the exporter as a whole.
const NO_DOMAIN: u32 = 0;
/// UDP destination ports of BFD (RFC 5881, 4): control and echo packets.
const BFD_PORTS: [u16; 2] = [3784, 3785];

/// Settings of an exporter (ovs-vswitchd.conf.db(5), IPFIX).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `cache_active_timeout` in seconds.
    pub active_timeout_seconds: u32,
    /// `cache_max_flows`; at most [`MAX_FLOWS`] are kept.
    pub max_flows: u32,
    /// `template_interval` in seconds.
    pub template_seconds: u32,
    /// `stats_interval` in seconds.
    pub statistics_seconds: u32,
    /// `other_config:virtual_obs_id`, at most [`MAX_VIRTUAL_OBS_ID_BYTES`] long.
    pub virtual_obs_id: Option<String>,
}

/// Counts of an exporter for controllers (NXST_IPFIX_BRIDGE, NXST_IPFIX_FLOW).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
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
    /// Messages to collectors that the kernel did not take.
    pub unsent: u64,
}

/// A flow in the cache.
#[derive(Debug)]
struct Flow {
    identity: Arc<Identity>,
    start: Millis,
    end: Millis,
    counts: Counts,
}

/// IPFIX of one bridge or of one collector set. For one thread at a time.
#[derive(Debug)]
pub struct Exporter {
    settings: Settings,
    /// Number of the exporter in statistics (element exportingProcessId).
    id: u32,
    /// Number of data messages so far, plus 1 as in OVS.
    sequence: u32,
    /// Place of each flow in `flows`.
    places: HashMap<Arc<Identity>, u64>,
    /// Flows in the order of their start.
    flows: BTreeMap<u64, Flow>,
    next_place: u64,
    /// Ended flows.
    ready: VecDeque<(Flow, EndReason)>,
    /// Time at which templates were last sent, in seconds since 1970, by observation domain.
    domains: HashMap<u32, u32>,
    /// Time at which statistics were last sent, in seconds since 1970.
    statistics_sent: u32,
    totals: Totals,
    statistics: Statistics,
    without_room: u64,
}

impl Exporter {
    /// Returns an exporter without flows.
    pub fn new(settings: Settings, id: u32) -> Exporter {
        Exporter {
            settings,
            id,
            sequence: 1,
            places: HashMap::new(),
            flows: BTreeMap::new(),
            next_place: 0,
            ready: VecDeque::new(),
            domains: HashMap::new(),
            statistics_sent: 0,
            totals: Totals::default(),
            statistics: Statistics::default(),
            without_room: 0,
        }
    }

    /// Changes the settings. Flows and sequence numbers continue; templates are sent again, because
    /// they may have changed.
    pub fn configure(&mut self, settings: Settings, now: Millis) {
        if self.settings.virtual_obs_id != settings.virtual_obs_id {
            self.domains.clear();
        }
        self.settings = settings;
        self.expire(now);
    }

    /// Adds a sampled packet.
    pub fn sample(&mut self, packet: &Packet<'_>, now: Millis) {
        let identity = Identity::of(packet);
        self.count(packet);
        if let Some(place) = self.places.get(&identity)
            && let Some(flow) = self.flows.get_mut(place)
        {
            flow.counts.add(&identity, packet, &mut self.totals);
            flow.end = flow.end.max(now);
            return;
        }
        let mut counts = Counts::default();
        counts.add(&identity, packet, &mut self.totals);
        let identity = Arc::new(identity);
        self.places.insert(Arc::clone(&identity), self.next_place);
        self.flows.insert(self.next_place, Flow { identity, start: now, end: now, counts });
        self.next_place += 1;
        self.statistics.total_flows += 1;
        if self.flows.len() > self.max_flows() {
            self.expire(now);
        }
    }

    /// Returns the messages that are to be sent now: those of ended flows, with templates and
    /// statistics where they are due. `wall` is the time of day at `now`.
    pub fn run(&mut self, now: Millis, wall: WallTime) -> Vec<Vec<u8>> {
        self.expire(now);
        self.messages(now, wall)
    }

    /// Ends all flows, and returns the last messages.
    pub fn finish(&mut self, now: Millis, wall: WallTime) -> Vec<Vec<u8>> {
        while let Some((_, flow)) = self.flows.pop_first() {
            self.end(flow, EndReason::Forced);
        }
        self.messages(now, wall)
    }

    /// Counts messages that went to collectors.
    pub fn add_sent(&mut self, sent: u64, unsent: u64) {
        self.statistics.sent += sent;
        self.statistics.unsent += unsent;
    }

    /// Returns the time at which [`Exporter::run`] is to be called again; `None` for never.
    pub fn deadline(&self) -> Option<Millis> {
        if !self.ready.is_empty() {
            return Some(Millis(i64::MIN));
        }
        let (_, oldest) = self.flows.first_key_value()?;
        Some(oldest.start + self.active_timeout_ms())
    }

    /// Returns the counts for controllers.
    pub fn statistics(&self) -> Statistics {
        Statistics { current_flows: self.flows.len() as u64, ..self.statistics }
    }

    /// Returns the number of ended flows that found no room.
    pub fn without_room(&self) -> u64 {
        self.without_room
    }

    fn max_flows(&self) -> usize {
        usize::try_from(self.settings.max_flows).unwrap_or(MAX_FLOWS).min(MAX_FLOWS)
    }

    fn active_timeout_ms(&self) -> i64 {
        i64::from(self.settings.active_timeout_seconds) * 1000
    }

    fn count(&mut self, packet: &Packet<'_>) {
        let statistics = &mut self.statistics;
        statistics.packets += 1;
        let key = packet.key;
        let known = [ip_proto::TCP, ip_proto::UDP, ip_proto::SCTP];
        let (icmp, count, errors) = match key.dl_type.get() {
            ethertype::IPV4 => {
                (ip_proto::ICMP, &mut statistics.ipv4_packets, &mut statistics.ipv4_error_packets)
            }
            ethertype::IPV6 => {
                (ip_proto::ICMPV6, &mut statistics.ipv6_packets, &mut statistics.ipv6_error_packets)
            }
            _ => return,
        };
        if known.contains(&key.nw_proto) || key.nw_proto == icmp {
            *count += 1;
        } else {
            *errors += 1;
            statistics.error_packets += 1;
        }
    }

    /// Ends the flows whose time is up, and the oldest ones while there are too many.
    fn expire(&mut self, now: Millis) {
        let timeout = self.active_timeout_ms();
        while let Some((place, flow)) = self.flows.first_key_value() {
            let reason = if flow.start + timeout <= now {
                EndReason::ActiveTimeout
            } else if self.flows.len() > self.max_flows() {
                EndReason::LackOfResources
            } else {
                return;
            };
            let place = *place;
            if let Some(flow) = self.flows.remove(&place) {
                self.end(flow, reason);
            }
        }
    }

    fn end(&mut self, flow: Flow, reason: EndReason) {
        self.places.remove(&flow.identity);
        if self.ready.len() < MAX_READY {
            self.ready.push_back((flow, reason));
        } else {
            self.without_room += 1;
        }
    }

    fn messages(&mut self, now: Millis, wall: WallTime) -> Vec<Vec<u8>> {
        const SECOND: i64 = 1_000_000;
        let mut out = Vec::new();
        // Times are before that of the message, which is a whole second.
        let seconds = wall.seconds.saturating_add(u32::from(wall.nanoseconds > 0));
        let since_message =
            i64::from(seconds - wall.seconds) * SECOND - i64::from(wall.nanoseconds / 1_000);
        let before = |time: Millis| (now.0.saturating_sub(time.0) * 1_000 + since_message) as u32;
        while let Some((flow, reason)) = self.ready.pop_front() {
            let domain = flow.identity.domain;
            if self.templates_are_due(domain, seconds) {
                self.put_templates(domain, seconds, &mut out);
            }
            if self.statistics_sent.saturating_add(self.settings.statistics_seconds) <= seconds {
                self.statistics_sent = seconds;
                let set = self.statistics_set();
                self.put_data(NO_DOMAIN, seconds, &set, &mut out);
            }
            let id = self.settings.virtual_obs_id.as_deref();
            let (start, end) = (before(flow.start), before(flow.end));
            let set = flow.counts.data_set(&flow.identity, id, start, end, reason);
            self.put_data(domain, seconds, &set, &mut out);
        }
        out
    }

    fn templates_are_due(&mut self, domain: u32, seconds: u32) -> bool {
        let interval = self.settings.template_seconds;
        if self.domains.get(&domain).is_some_and(|last| last.saturating_add(interval) > seconds) {
            return false;
        }
        if self.domains.len() >= MAX_DOMAINS && !self.domains.contains_key(&domain) {
            self.domains.clear();
        }
        self.domains.insert(domain, seconds);
        true
    }

    fn put_templates(&self, domain: u32, seconds: u32, out: &mut Vec<Vec<u8>>) {
        let with_id = self.settings.virtual_obs_id.is_some();
        for set in template::template_sets(with_id, HEADER_BYTES) {
            out.push(self.message(domain, seconds, &set));
        }
        out.push(self.message(NO_DOMAIN, seconds, &template::options_template_set()));
    }

    fn put_data(&mut self, domain: u32, seconds: u32, set: &[u8], out: &mut Vec<Vec<u8>>) {
        out.push(self.message(domain, seconds, set));
        self.sequence = self.sequence.wrapping_add(1);
    }

    fn statistics_set(&self) -> Vec<u8> {
        let mut body = self.id.to_be_bytes().to_vec();
        body.extend(self.statistics.unsent.to_be_bytes());
        template::set(template::STATISTICS_TEMPLATE, &body)
    }

    fn message(&self, domain: u32, seconds: u32, set: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_BYTES + set.len());
        out.extend(VERSION.to_be_bytes());
        out.extend(((HEADER_BYTES + set.len()) as u16).to_be_bytes()); // fits into a frame
        out.extend(seconds.to_be_bytes());
        out.extend(self.sequence.to_be_bytes());
        out.extend(domain.to_be_bytes());
        out.extend(set);
        out
    }
}

/// Returns true for a packet of BFD: as in OVS a bridge's exporter leaves them out.
#[must_use]
pub fn is_bfd(key: &flow::Key) -> bool {
    let is_ip = matches!(key.dl_type.get(), ethertype::IPV4 | ethertype::IPV6);
    is_ip && key.nw_proto == ip_proto::UDP && BFD_PORTS.contains(&key.tp_dst.get())
}

#[cfg(test)]
mod tests;
