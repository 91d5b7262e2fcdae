// SPDX-License-Identifier: Apache-2.0
//! The desired configuration, read from the replica into plain structures.
//!
//! Reading changes nothing and never fails: an invalid value is left out or replaced by a default,
//! with a remark for the log.

use super::address::{parse_datapath_id, parse_station};
use super::bfd;
use super::bonds;
use super::cfm;
use super::export::{self, DesiredExports};
use super::in_band::{self, DesiredInBand};
use super::lldp::{self, DesiredAutoAttach};
use super::mirrors::{self, DesiredMirror};
use super::qos::{self, DesiredQos};
use super::spanning_tree::{self, DesiredTree};
use super::tracking::{self, DesiredTracking};
use super::vlan;
use bridge::aggregate::AggregateSettings;
use bridge::bond;
use bridge::cfm::PortSettings as CfmSettings;
use bridge::connection::RateLimit;
use bridge::multicast_table::MulticastSettings;
use bridge::pipeline::EvictionConfig;
use bridge::snapshot::BundleView;
use datapath_userspace::{AutoBalance, RxqAssign};
use flow::Subfield;
use netdev::Policing;
use openflow::Version;
use openflow::message::Versions;
use ovsdb::{Replica, Row, StringMap, Uuid};
use packet::Mac;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// OVS's defaults of MAC tables: entries, and seconds.
const MAC_TABLE_SIZE: usize = 8192;
const MAC_AGEING: u32 = 300;
/// OVS's defaults for controllers, in milliseconds: the time between probes, and the longest wait
/// between attempts to connect.
const INACTIVITY_PROBE: u64 = 5000;
const MAX_BACKOFF: u64 = 8000;
/// Lower bound of both rate-limit columns, in packets (per second), and of the backoff, in
/// milliseconds. The schema has bounds of its own for them.
const MIN_LIMIT: i64 = 25;
/// Least number of packet-ins that may wait for a controller.
const MIN_WAITING: i64 = 1;
/// Numbers of them that a bridge may set for its controllers.
const WAITING: std::ops::RangeInclusive<u32> = 1..=512;
/// Their number where neither the controller nor the bridge has one, as in Open vSwitch.
const DEFAULT_WAITING: u32 = 100;
const MIN_BACKOFF: i64 = 1000;
/// Lower bound of `stats-update-interval`, in milliseconds, as in OVS.
const MIN_STATS_INTERVAL: u64 = 5000;
/// Lower bound of `max-idle`, in milliseconds, as in OVS.
const MIN_MAX_IDLE: u64 = 500;

/// String-to-string columns.
pub(super) type Map = BTreeMap<String, String>;

/// The whole configuration.
#[derive(Debug, Default)]
pub(super) struct Desired {
    /// Bridges by name.
    pub bridges: BTreeMap<String, DesiredBridge>,
    /// Settings of the whole switch.
    pub tunables: Tunables,
    /// Settings of the connection tracker.
    pub tracking: DesiredTracking,
    /// The SSL table's row.
    pub tls: Option<tls::Files>,
    /// Lines for the log.
    pub remarks: Vec<String>,
}

/// `Open_vSwitch:other_config`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tunables {
    pub flow_limit: u64,
    pub max_idle: u64,
    /// Milliseconds between passes of the revalidator. `None`: the default, which the revalidator may
    /// prolong.
    pub max_revalidator: Option<u64>,
    pub pmd_cpu_mask: Option<String>,
    /// `pmd-rxq-assign`.
    pub rxq_assign: RxqAssign,
    /// `pmd-rxq-isolate`.
    pub rxq_isolate: bool,
    /// `pmd-auto-lb` and its like.
    pub auto_balance: Option<AutoBalance>,
    /// Milliseconds between writes of statistics.
    pub stats_interval: u64,
    pub flow_restore_wait: bool,
    /// `vlan-limit`: tags that a match may go through; 0 is as many as there can be.
    pub vlan_limit: u64,
    /// `flow-restore-deadline`, in seconds: the time after which `flow-restore-wait` no longer keeps
    /// the flows that an earlier daemon left.
    pub restore_deadline: u64,
    /// `hw-offload`, and `hw-offload-priority` has TC in its list.
    pub hw_offload: bool,
    /// `tc-policy`.
    pub tc_policy: TcPolicy,
    /// `bpf-offload`.
    pub bpf_offload: bool,
    /// `tcx-peer`: the default of interfaces without a setting of their own.
    pub tcx_peer: bool,
    /// `explicit-sampled-drops`: megaflows that only sample their packets end with a drop.
    pub sampled_drops: bool,
    /// `tunnel-helper`: tunnel devices of the kernel help the tunnel ports.
    pub tunnel_helper: bool,
    /// `system-datapath`: bridges of the type `system` are on `openvswitch.ko`.
    pub kernel_datapath: bool,
    /// `bpf-max-flows` and `bpf-max-masks`: sizes of the shared tables, read when they are made.
    pub bpf_sizes: (Option<u64>, Option<u64>),
    /// `upcall-cpu-percent`: see [`datapath_userspace::Config::upcall_share`], in percent of one
    /// CPU.
    pub upcall_cpu_percent: Option<u64>,
    /// `ct-upcall-cpu-percent`: see [`datapath_userspace::Config::ct_upcall_share`], in percent of
    /// one CPU.
    pub ct_upcall_cpu_percent: Option<u64>,
    /// `enable-statistics`.
    pub host_statistics: bool,
    /// `bundle-idle-timeout`, milliseconds.
    pub bundle_idle_timeout: Option<u64>,
}

/// The program that runs filters, by `other_config:tc-policy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum TcPolicy {
    /// A card if it can, else another tier.
    #[default]
    None,
    /// A card only.
    SkipSoftware,
    /// No card.
    SkipHardware,
}

impl TcPolicy {
    /// Returns the policy with this name; as in Open vSwitch an unknown one is `none`.
    fn of(name: Option<&str>) -> TcPolicy {
        match name {
            Some("skip_sw") => TcPolicy::SkipSoftware,
            Some("skip_hw") => TcPolicy::SkipHardware,
            _ => TcPolicy::None,
        }
    }
}

/// True when a list of `hw-offload-priority` has TC in it.
fn names_tc(list: &str) -> bool {
    list.split(',').any(|word| word.trim() == "tc")
}

impl Default for Tunables {
    fn default() -> Tunables {
        Tunables {
            flow_limit: 200_000,
            max_idle: 10_000,
            max_revalidator: None,
            pmd_cpu_mask: None,
            rxq_assign: RxqAssign::Cycles,
            rxq_isolate: true,
            auto_balance: None,
            stats_interval: MIN_STATS_INTERVAL,
            flow_restore_wait: false,
            vlan_limit: 1,
            restore_deadline: 120,
            hw_offload: false,
            tc_policy: TcPolicy::None,
            bpf_offload: true,
            tcx_peer: true,
            sampled_drops: false,
            tunnel_helper: true,
            kernel_datapath: false,
            bpf_sizes: (None, None),
            upcall_cpu_percent: None,
            ct_upcall_cpu_percent: None,
            host_statistics: false,
            bundle_idle_timeout: None,
        }
    }
}

/// The forwarding of a bridge without its controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) enum FailMode {
    /// Forwards like an ordinary switch.
    #[default]
    Standalone,
    /// Forwards by its tables only.
    Secure,
}

/// A row of the Bridge table.
#[derive(Clone, Debug)]
pub(super) struct DesiredBridge {
    pub uuid: Uuid,
    pub name: String,
    pub datapath_type: String,
    pub fail_mode: FailMode,
    pub versions: Versions,
    pub datapath_id: Option<u64>,
    /// A remark for the log on a datapath id that is ignored. Nobody has to act on it.
    pub note: Option<String>,
    pub hwaddr: Option<Mac>,
    pub description: Option<String>,
    pub serial: Option<String>,
    pub mac_ageing: u32,
    pub mac_table_size: usize,
    pub forward_bpdu: bool,
    pub flood_vlans: Vec<u16>,
    /// Multicast snooping; `None` when it is off.
    pub snooping: Option<DesiredSnooping>,
    /// Spanning tree.
    pub tree: DesiredTree,
    pub tables: BTreeMap<u8, DesiredTable>,
    pub controllers: BTreeMap<String, DesiredController>,
    /// Number of packet-ins that may wait for a peer of the bridge's own socket.
    pub waiting_packets: u32,
    pub in_band: DesiredInBand,
    /// Ports by name.
    pub ports: BTreeMap<String, DesiredPort>,
    /// Exports to collectors.
    pub exports: DesiredExports,
    /// Auto-attach, announced by the ports that have LLDP.
    pub auto_attach: Option<DesiredAutoAttach>,
    /// Mirrors by row.
    pub mirrors: BTreeMap<Uuid, DesiredMirror>,
}

/// Multicast snooping of a bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DesiredSnooping {
    pub settings: MulticastSettings,
    /// `mcast-snooping-disable-flood-unregistered`.
    pub unregistered_to_routers: bool,
}

/// A row of the Flow_Table table.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(super) struct DesiredTable {
    pub name: String,
    pub eviction: EvictionConfig,
}

/// A row of the Controller table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DesiredController {
    pub uuid: Uuid,
    /// All rows with this target, which share one connection.
    pub rows: Vec<Uuid>,
    pub target: String,
    /// The longest wait between two attempts to connect, in milliseconds.
    pub max_backoff: u64,
    /// Milliseconds of silence after which the connection is probed; 0 turns probes off.
    pub inactivity_probe: u64,
    pub limit: Option<RateLimit>,
    /// Number of packet-ins that may wait for the controller to read.
    pub waiting_packets: u32,
    pub async_messages: bool,
    /// True when `type` is "service": the controller gets no asynchronous messages and does not
    /// count for the fail mode.
    pub service: bool,
}

/// A row of the Port table.
#[derive(Clone, Debug)]
pub(super) struct DesiredPort {
    /// `None` for the bridge's own port when the database does not name it.
    pub uuid: Option<Uuid>,
    pub settings: BundleView,
    pub interfaces: Vec<DesiredInterface>,
    /// Internal interface with the name of a bond (`bond_fake_iface`), which is no member of it.
    pub fake: Option<DesiredInterface>,
    /// Settings of the bond, where there are several interfaces.
    pub bond: bond::Settings,
    /// Milliseconds between two checks of the registers of the bond's interfaces; `None` where the carrier
    /// decides about their links.
    pub miimon: Option<u32>,
    /// Settings of LACP; `None` where it is off.
    pub lacp: Option<AggregateSettings>,
    /// Address of the active member that the row shows, from an earlier life of the daemon.
    pub active: Option<Mac>,
    pub qos: Option<DesiredQos>,
    /// Settings of the spanning tree in `other_config`.
    pub tree_config: Map,
}

impl DesiredPort {
    /// Returns true for a port with several interfaces.
    pub fn is_bond(&self) -> bool {
        self.interfaces.len() > 1
    }
}

/// A row of the Interface table.
#[derive(Clone, Debug)]
pub(super) struct DesiredInterface {
    /// `None` for the bridge's own port when the database does not name it.
    pub uuid: Option<Uuid>,
    pub name: String,
    /// Text of `type`; [`super::device::form`] parses it.
    pub kind: String,
    pub options: Map,
    pub other_config: Map,
    pub ofport_request: Option<u32>,
    /// Number that the row shows, from an earlier life of the daemon.
    pub ofport: Option<u32>,
    pub mac: Option<Mac>,
    pub mtu: Option<u32>,
    /// `ingress_policing_*`.
    pub policing: Policing,
    /// Connectivity fault management; `None` where it is off.
    pub cfm: Option<CfmSettings>,
    /// LLDP is enabled; `None` where nothing is configured.
    pub lldp: Option<bool>,
    /// Settings of BFD; `None` where it is off.
    pub bfd: Option<bridge::bfd::Settings>,
}

impl DesiredInterface {
    /// Returns an interface that asks for nothing but its name and type, and that has no row.
    pub fn new(name: &str, kind: &str) -> DesiredInterface {
        DesiredInterface {
            uuid: None,
            name: name.to_owned(),
            kind: kind.to_owned(),
            options: Map::new(),
            other_config: Map::new(),
            ofport_request: None,
            ofport: None,
            mac: None,
            mtu: None,
            policing: Policing::default(),
            cfm: None,
            lldp: None,
            bfd: None,
        }
    }

    /// Returns the settings among which providers of tiers find theirs: `options` and
    /// `other_config`.
    pub fn placing(&self) -> (Map, Map) {
        (self.options.clone(), self.other_config.clone())
    }
}

impl DesiredBridge {
    /// All interfaces, by port name, then as the Port row has them, and those with the names of bonds.
    pub fn interfaces(&self) -> impl Iterator<Item = &DesiredInterface> {
        self.ports.values().flat_map(|p| p.interfaces.iter().chain(&p.fake))
    }

    /// Has frames pass the devices of all interfaces that have no `tcx-peer` of their own.
    fn pass_devices(&mut self) {
        for row in self.ports.values_mut().flat_map(|p| &mut p.interfaces) {
            row.other_config.entry("tcx-peer".to_owned()).or_insert_with(|| "false".to_owned());
        }
    }
}

/// Reads the replica. `None` when there is no Open_vSwitch row (yet).
pub(super) fn read(replica: &Replica) -> Option<Desired> {
    let (_, root) = replica.first("Open_vSwitch")?;
    let mut wanted = Desired { tls: tls(replica, root), ..Desired::default() };
    wanted.tunables = tunables(root, &mut wanted.remarks);
    let mut taken = Taken::default();
    let mut rows: Vec<(Uuid, &Row)> = root
        .uuids("bridges")
        .filter_map(|u| Some((u, replica.row("Bridge", u)?.as_ref())))
        .collect();
    rows.sort_by(|a, b| a.1.str("name").cmp(b.1.str("name")));
    for (uuid, row) in rows {
        let name = row.str("name");
        if name.is_empty() || name.contains(['/', '\0']) || name.starts_with('.') {
            wanted.remarks.push(format!("ignoring bridge with invalid name '{name}'"));
        } else if wanted.bridges.contains_key(name) {
            wanted.remarks.push(format!("bridge {name} specified twice"));
        } else {
            let mut bridge = bridge(replica, root, uuid, row, &mut taken, &mut wanted.remarks);
            if !wanted.tunables.tcx_peer {
                bridge.pass_devices();
            }
            wanted.bridges.insert(name.to_owned(), bridge);
        }
    }
    let used = wanted.bridges.values().map(|bridge| match &*bridge.datapath_type {
        "" => "system",
        kind => kind,
    });
    wanted.tracking = tracking::read(replica, root, &used.collect(), &mut wanted.remarks);
    let map = root.map("other_config");
    let mut other = OtherConfigReader { map, remarks: &mut wanted.remarks };
    wanted.tracking.half_open_percent =
        other.number("ct-half-open-percent").map(|percent| percent.min(100) as u8);
    Some(wanted)
}

/// Rows that a bridge has already.
#[derive(Default)]
struct Taken {
    ports: BTreeSet<String>,
    interfaces: BTreeSet<String>,
}

/// Keys of `other_config`, and the remarks about invalid values.
struct OtherConfigReader<'a> {
    map: StringMap<'a>,
    remarks: &'a mut Vec<String>,
}

impl OtherConfigReader<'_> {
    fn number(&mut self, key: &str) -> Option<u64> {
        let number = self.map.uint(key);
        if number.is_none()
            && let Some(text) = self.map.get(key)
        {
            self.remarks.push(format!(
                "other_config:{key} \"{text}\" is not a number from 0 to {}, ignored",
                u64::MAX
            ));
        }
        number
    }

    fn switch(&mut self, key: &str, default: bool) -> bool {
        if let Some(text) = self.map.get(key)
            && !["true", "false"].iter().any(|word| text.eq_ignore_ascii_case(word))
        {
            self.remarks.push(format!(
                "other_config:{key} \"{text}\" is neither true nor false, {default} is taken"
            ));
        }
        self.map.bool(key, default)
    }

    /// Returns the rule of `pmd-rxq-assign`.
    fn rxq_assign(&mut self) -> RxqAssign {
        let Some(text) = self.map.get("pmd-rxq-assign") else { return RxqAssign::default() };
        let mut all = RxqAssign::ALL.into_iter();
        all.find(|rule| rule.name() == text).unwrap_or_else(|| {
            self.remarks.push(format!(
                "other_config:pmd-rxq-assign \"{text}\" is not one of cycles, roundrobin and group, \
                 cycles is taken"
            ));
            RxqAssign::Cycles
        })
    }

    /// Returns the settings of `pmd-auto-lb`; `None` when it is off.
    fn auto_balance(&mut self) -> Option<AutoBalance> {
        if !self.switch("pmd-auto-lb", false) {
            return None;
        }
        let minutes = self.within("pmd-auto-lb-rebal-interval", 0, 20_000, 1);
        Some(AutoBalance {
            // As in Open vSwitch, 0 is one minute.
            interval: Duration::from_secs(60 * minutes.max(1)),
            load: self.within("pmd-auto-lb-load-threshold", 0, 100, 95) as u8,
            improvement: self.within("pmd-auto-lb-improvement-threshold", 0, 100, 25) as u8,
        })
    }

    /// Returns a number in a range; `default` where it is not.
    fn within(&mut self, key: &str, least: u64, most: u64, default: u64) -> u64 {
        match self.number(key) {
            Some(number) if (least..=most).contains(&number) => number,
            Some(number) => {
                self.remarks.push(format!(
                    "other_config:{key} {number} is not from {least} to {most}, {default} is taken"
                ));
                default
            }
            None => default,
        }
    }

    /// Returns true when `system-datapath` asks for the kernel's.
    fn system_datapath(&mut self) -> bool {
        match self.map.get("system-datapath") {
            Some("kernel") => true,
            None | Some("own") => false,
            Some(text) => {
                self.remarks.push(format!(
                    "other_config:system-datapath \"{text}\" is neither own nor kernel, own is taken"
                ));
                false
            }
        }
    }
}

fn tunables(root: &Row, remarks: &mut Vec<String>) -> Tunables {
    let map = root.map("other_config");
    let mut other = OtherConfigReader { map, remarks };
    let defaults = Tunables::default();
    Tunables {
        flow_limit: other.number("flow-limit").unwrap_or(defaults.flow_limit),
        max_idle: other.number("max-idle").map_or(defaults.max_idle, |ms| ms.max(MIN_MAX_IDLE)),
        max_revalidator: other.number("max-revalidator").filter(|ms| *ms >= 100),
        pmd_cpu_mask: map.get("pmd-cpu-mask").map(str::to_owned),
        rxq_assign: other.rxq_assign(),
        rxq_isolate: other.switch("pmd-rxq-isolate", true),
        auto_balance: other.auto_balance(),
        stats_interval: other
            .number("stats-update-interval")
            .map_or(MIN_STATS_INTERVAL, |ms| ms.max(MIN_STATS_INTERVAL)),
        flow_restore_wait: other.switch("flow-restore-wait", false),
        vlan_limit: other.number("vlan-limit").unwrap_or(defaults.vlan_limit),
        restore_deadline: other
            .number("flow-restore-deadline")
            .unwrap_or(defaults.restore_deadline),
        hw_offload: other.switch("hw-offload", false)
            && map.get("hw-offload-priority").is_none_or(names_tc),
        tc_policy: TcPolicy::of(map.get("tc-policy")),
        bpf_offload: other.switch("bpf-offload", defaults.bpf_offload),
        tcx_peer: other.switch("tcx-peer", defaults.tcx_peer),
        sampled_drops: other.switch("explicit-sampled-drops", defaults.sampled_drops),
        tunnel_helper: other.switch("tunnel-helper", defaults.tunnel_helper),
        kernel_datapath: other.system_datapath(),
        bpf_sizes: (other.number("bpf-max-flows"), other.number("bpf-max-masks")),
        upcall_cpu_percent: other.number("upcall-cpu-percent"),
        ct_upcall_cpu_percent: other.number("ct-upcall-cpu-percent"),
        host_statistics: other.switch("enable-statistics", false)
            | other.switch("enable_statistics", false),
        bundle_idle_timeout: other
            .number("bundle-idle-timeout")
            .filter(|s| *s > 0)
            .map(|s| s.saturating_mul(1000).max(1000)),
    }
}

fn tls(replica: &Replica, root: &Row) -> Option<tls::Files> {
    let row = replica.row("SSL", root.opt_uuid("ssl")?)?;
    Some(tls::Files {
        private_key: row.str("private_key").into(),
        certificate: row.str("certificate").into(),
        ca_certificate: row.str("ca_cert").into(),
        bootstrap: row.bool("bootstrap_ca_cert"),
        // These two come from the command line only, see `controllers::files`.
        peer_ca_certificate: None,
        policy: tls::Policy::default(),
    })
}

fn bridge(
    replica: &Replica,
    root: &Row,
    uuid: Uuid,
    row: &Row,
    taken: &mut Taken,
    remarks: &mut Vec<String>,
) -> DesiredBridge {
    let name = row.str("name");
    let other = row.map("other_config");
    let mut bad = |key: &str, want: &str| {
        if let Some(text) = other.get(key) {
            remarks.push(format!(
                "bridge {name}: other_config:{key} \"{text}\" is not {want}, ignored"
            ));
        }
    };
    let datapath_id = other.get("datapath-id").and_then(parse_datapath_id);
    // Scripts for Open vSwitch set shorter ones, which it ignores without a word.
    let note = other.get("datapath-id").filter(|_| datapath_id.is_none()).map(|text| {
        format!(
            "bridge {name}: other_config:datapath-id \"{text}\" is not 16 hexadecimal digits that are \
             not all zero, ignored"
        )
    });
    let hwaddr = other.get("hwaddr").and_then(parse_station);
    if hwaddr.is_none() {
        bad("hwaddr", "a unicast Ethernet address");
    }
    let mut versions = Versions::NONE;
    for text in row.strs("protocols") {
        match Version::from_name(text) {
            Some(version) => versions = versions.with(version),
            None => {
                remarks.push(format!("bridge {name}: protocol {text} is not supported, ignored"))
            }
        }
    }
    if row.strs("protocols").next().is_none() {
        versions = Versions::KNOWN;
    } else if versions == Versions::NONE {
        remarks.push(format!(
            "bridge {name}: no protocol that is asked for is supported, all others are allowed"
        ));
        versions = Versions::KNOWN;
    }
    DesiredBridge {
        uuid,
        name: name.to_owned(),
        datapath_type: row.str("datapath_type").to_owned(),
        fail_mode: if row.str("fail_mode") == "secure" {
            FailMode::Secure
        } else {
            FailMode::Standalone
        },
        versions,
        datapath_id,
        note,
        hwaddr,
        description: other.get("dp-desc").map(str::to_owned),
        serial: other.get("dp-sn").map(str::to_owned),
        mac_ageing: bounded(other.int("mac-aging-time"), 15, 3600).unwrap_or(MAC_AGEING),
        mac_table_size: bounded(other.int("mac-table-size"), 10, 1_000_000)
            .map_or(MAC_TABLE_SIZE, |n| n as usize),
        forward_bpdu: other.bool("forward-bpdu", false),
        flood_vlans: row.ints("flood_vlans").filter_map(vlan::vlan).collect(),
        tree: spanning_tree::read(row),
        snooping: row.bool("mcast_snooping_enable").then(|| snooping(&other)),
        tables: tables(replica, name, row, remarks),
        controllers: controllers(replica, name, row, remarks),
        waiting_packets: waiting_packets(row),
        in_band: in_band::read(replica, root, row),
        ports: ports(replica, name, row, taken, remarks),
        exports: export::read(replica, uuid, row, remarks),
        auto_attach: lldp::read(replica, row, remarks),
        mirrors: mirrors::read(replica, name, row, remarks),
    }
}

/// Reads the settings of multicast snooping.
fn snooping(other: &StringMap<'_>) -> DesiredSnooping {
    let default = MulticastSettings::default();
    DesiredSnooping {
        settings: MulticastSettings {
            capacity: bounded(other.int("mcast-snooping-table-size"), 10, 1_000_000)
                .map_or(default.capacity, |n| n as usize),
            ageing: bounded(other.int("mcast-snooping-aging-time"), 15, 3600)
                .unwrap_or(default.ageing),
        },
        unregistered_to_routers: other.bool("mcast-snooping-disable-flood-unregistered", false),
    }
}

/// Returns a value that is given, clamped to its range; `None` for 0, which means the default, as in
/// OVS.
fn bounded(value: Option<i64>, min: i64, max: i64) -> Option<u32> {
    value.filter(|v| *v != 0).map(|v| v.clamp(min, max) as u32)
}

/// Returns the line for the log about a column of `row` ("port p1") that has no effect yet.
pub(super) fn ignored(row: &str, column: &str) -> String {
    format!("{row}: column {column} is ignored: this version does not support it")
}

fn tables(
    replica: &Replica,
    bridge: &str,
    row: &Row,
    remarks: &mut Vec<String>,
) -> BTreeMap<u8, DesiredTable> {
    let mut tables = BTreeMap::new();
    for (id, uuid) in row.int_uuids("flow_tables") {
        let (Ok(id @ 0..=253), Some(row)) = (u8::try_from(id), replica.row("Flow_Table", uuid))
        else {
            continue;
        };
        let mut groups = Vec::new();
        for text in row.strs("groups") {
            match text.parse::<Subfield>() {
                Ok(subfield) => groups.push(subfield),
                Err(error) => remarks.push(format!(
                    "bridge {bridge}: flow table {id}: error parsing 'groups' ({error}), \"{text}\" ignored"
                )),
            }
        }
        let eviction = EvictionConfig {
            limit: row.opt_int("flow_limit").map(|n| u32::try_from(n).unwrap_or(u32::MAX)),
            evict: row.str("overflow_policy") == "evict",
            evict_by_openflow: false,
            groups,
        };
        tables.insert(id, DesiredTable { name: row.str("name").to_owned(), eviction });
    }
    tables
}

fn controllers(
    replica: &Replica,
    bridge: &str,
    row: &Row,
    remarks: &mut Vec<String>,
) -> BTreeMap<String, DesiredController> {
    let waiting = waiting_packets(row);
    let mut controllers: BTreeMap<String, DesiredController> = BTreeMap::new();
    for uuid in row.uuids("controller") {
        let Some(row) = replica.row("Controller", uuid) else { continue };
        let target = row.str("target").to_owned();
        if let Some(first) = controllers.get_mut(&target) {
            first.rows.push(uuid);
            continue;
        }
        if row.opt_str("local_ip").is_some() {
            remarks.push(ignored(&format!("bridge {bridge}: controller {target}"), "local_ip"));
        }
        let rate =
            row.opt_int("controller_rate_limit").filter(|n| *n > 0).map(|n| at_least(n, MIN_LIMIT));
        let limit = rate.map(|rate| RateLimit {
            rate,
            burst: row
                .opt_int("controller_burst_limit")
                .filter(|n| *n > 0)
                .map_or(rate / 4, |n| at_least(n, MIN_LIMIT)),
        });
        let probe = row.opt_int("inactivity_probe").map_or(INACTIVITY_PROBE, |ms| match ms {
            0 => 0,
            ms => u64::try_from(ms).unwrap_or(0).max(1000),
        });
        let controller = DesiredController {
            uuid,
            rows: vec![uuid],
            max_backoff: row
                .opt_int("max_backoff")
                .map_or(MAX_BACKOFF, |ms| ms.max(MIN_BACKOFF).unsigned_abs()),
            inactivity_probe: probe,
            limit,
            waiting_packets: row
                .opt_int("controller_queue_size")
                .map_or(waiting, |n| at_least(n, MIN_WAITING)),
            async_messages: row.opt_bool("enable_async_messages").unwrap_or(true),
            service: row.str("type") == "service",
            target: target.clone(),
        };
        controllers.insert(target, controller);
    }
    controllers
}

/// Returns how many packet-ins may wait for a controller of the bridge whose row does not say. As in
/// Open vSwitch, a number that is not allowed stands for the default.
fn waiting_packets(bridge: &Row) -> u32 {
    let set = bridge.map("other_config").uint("controller-queue-size");
    let allowed = set.and_then(|n| u32::try_from(n).ok()).filter(|n| WAITING.contains(n));
    allowed.unwrap_or(DEFAULT_WAITING)
}

fn at_least(n: i64, min: i64) -> u32 {
    u32::try_from(n.max(min)).unwrap_or(u32::MAX)
}

fn ports(
    replica: &Replica,
    bridge: &str,
    row: &Row,
    taken: &mut Taken,
    remarks: &mut Vec<String>,
) -> BTreeMap<String, DesiredPort> {
    let mut ports = BTreeMap::new();
    for uuid in row.uuids("ports") {
        let Some(row) = replica.row("Port", uuid) else { continue };
        let name = row.str("name");
        if !taken.ports.insert(name.to_owned()) {
            remarks.push(format!("bridge {bridge}: port {name} is already in use, ignored"));
            continue;
        }
        let mut interfaces = Vec::new();
        for uuid in row.uuids("interfaces") {
            let Some(row) = replica.row("Interface", uuid) else { continue };
            let wanted = interface(uuid, row, remarks);
            if taken.interfaces.insert(wanted.name.clone()) {
                interfaces.push(wanted);
            } else {
                remarks.push(format!(
                    "bridge {bridge}: interface {} is already in use, ignored",
                    wanted.name
                ));
            }
        }
        if interfaces.is_empty() {
            remarks.push(format!("bridge {bridge}: port {name} has no interfaces, dropping"));
            continue;
        }
        interfaces.sort_by(|a: &DesiredInterface, b| a.name.cmp(&b.name));
        let (settings, more) = vlan::settings(name, row);
        remarks.extend(more);
        let lacp = bonds::lacp(name, row, remarks);
        let (bond, miimon) = match interfaces.len() > 1 {
            true => (bonds::bond(name, row, remarks), bonds::miimon(name, row, remarks)),
            false => (bond::Settings::default(), None),
        };
        let has_fake = interfaces.len() > 1 && row.bool("bond_fake_iface");
        let fake = (has_fake && taken.interfaces.insert(name.to_owned()))
            .then(|| DesiredInterface::new(name, "internal"));
        let active = row.opt_str("bond_active_slave").and_then(parse_station);
        let qos = qos::read(replica, row);
        let port = DesiredPort {
            uuid: Some(uuid),
            settings,
            interfaces,
            fake,
            bond,
            miimon,
            lacp,
            active,
            qos,
            tree_config: spanning_tree::read_port(row),
        };
        ports.insert(name.to_owned(), port);
    }
    if !ports.values().any(|p: &DesiredPort| p.interfaces.iter().any(|i| i.name == bridge)) {
        taken.interfaces.insert(bridge.to_owned());
        let (settings, _) = vlan::settings(bridge, &Row::default());
        let local = DesiredInterface::new(bridge, "internal");
        let port = DesiredPort {
            uuid: None,
            settings,
            interfaces: Vec::new(),
            fake: None,
            bond: bond::Settings::default(),
            miimon: None,
            lacp: None,
            active: None,
            qos: None,
            tree_config: Map::new(),
        };
        ports.entry(bridge.to_owned()).or_insert(port).interfaces.push(local);
    }
    ports
}

fn interface(uuid: Uuid, row: &Row, remarks: &mut Vec<String>) -> DesiredInterface {
    let number = |n: i64| u32::try_from(n).ok().filter(|n| *n > 0);
    let name = row.str("name");
    DesiredInterface {
        uuid: Some(uuid),
        name: name.to_owned(),
        kind: row.str("type").to_owned(),
        options: map(row.map("options")),
        other_config: map(row.map("other_config")),
        ofport_request: row.opt_int("ofport_request").and_then(number),
        ofport: row.opt_int("ofport").and_then(number),
        mac: mac(name, row, remarks),
        mtu: row.opt_int("mtu_request").and_then(number),
        policing: Policing {
            rate_kbps: limit(row, "ingress_policing_rate"),
            burst_kb: limit(row, "ingress_policing_burst"),
            rate_kpkts: limit(row, "ingress_policing_kpkts_rate"),
            burst_kpkts: limit(row, "ingress_policing_kpkts_burst"),
        },
        cfm: cfm::read(name, row, remarks),
        lldp: lldp::is_enabled(row),
        bfd: bfd::read(name, row.map("bfd"), remarks),
    }
}

/// Returns a limit that is not negative; one above 32 bits is the largest of them, as in OVS.
fn limit(row: &Row, column: &str) -> u32 {
    u32::try_from(row.int(column).max(0)).unwrap_or(u32::MAX)
}

/// Returns the address that a row asks for, when an interface can have it.
fn mac(name: &str, row: &Row, remarks: &mut Vec<String>) -> Option<Mac> {
    let text = row.opt_str("mac")?;
    let mac = parse_station(text);
    if mac.is_none() {
        remarks.push(format!(
            "interface {name}: mac \"{text}\" is not a unicast Ethernet address, ignored"
        ));
    }
    mac
}

fn map(column: StringMap<'_>) -> Map {
    column.iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ovsdb::Datum;
    use std::sync::Arc;

    fn row(columns: Vec<(&str, Datum)>) -> Row {
        Row::new(columns.into_iter().map(|(c, d)| (Arc::from(c), d)))
    }

    fn of_interface(columns: Vec<(&str, Datum)>) -> (DesiredInterface, Vec<String>) {
        let mut remarks = Vec::new();
        let wanted = interface(Uuid::from_u128(1), &row(columns), &mut remarks);
        (wanted, remarks)
    }

    #[test]
    fn queues_of_packets_for_controllers_have_a_bound() {
        let of = |size: &str| {
            waiting_packets(&row(vec![(
                "other_config",
                Datum::map([("controller-queue-size", size)]),
            )]))
        };
        let sizes = ["1", "512", "513", "0", "-4", "x"].map(of);
        assert_eq!(sizes, [1, 512, 100, 100, 100, 100]);
        assert_eq!(waiting_packets(&row(Vec::new())), 100);
    }

    #[test]
    fn numbers_are_read_as_in_open_vswitch() {
        assert_eq!(bounded(None, 15, 3600), None);
        assert_eq!(bounded(Some(0), 15, 3600), None);
        assert_eq!(bounded(Some(-5), 15, 3600), Some(15));
        assert_eq!(bounded(Some(20), 15, 3600), Some(20));
        let of = |idle: &str| {
            let row = row(vec![("other_config", Datum::map([("max-idle", idle)]))]);
            tunables(&row, &mut Vec::new()).max_idle
        };
        assert_eq!([of("100"), of("500"), of("60000"), of("x")], [500, 500, 60_000, 10_000]);
    }

    #[test]
    fn rules_of_receive_queues_are_read_and_bad_values_are_told() {
        let of = |pairs: &[(&str, &str)]| {
            let mut remarks = Vec::new();
            let row = row(vec![("other_config", Datum::map(pairs.iter().copied()))]);
            let read = tunables(&row, &mut remarks);
            (read.rxq_assign, read.rxq_isolate, read.auto_balance, remarks)
        };
        let by_default =
            AutoBalance { interval: Duration::from_secs(60), load: 95, improvement: 25 };
        assert_eq!(of(&[]), (RxqAssign::Cycles, true, None, vec![]));
        let all = [
            ("pmd-rxq-assign", "group"),
            ("pmd-rxq-isolate", "false"),
            ("pmd-auto-lb", "true"),
            ("pmd-auto-lb-rebal-interval", "0"),
        ];
        assert_eq!(of(&all), (RxqAssign::Group, false, Some(by_default), vec![]));
        let bad = [
            ("pmd-rxq-assign", "best"),
            ("pmd-auto-lb", "true"),
            ("pmd-auto-lb-load-threshold", "101"),
            ("pmd-auto-lb-improvement-threshold", "70"),
        ];
        let (assign, isolate, auto, remarks) = of(&bad);
        assert_eq!((assign, isolate), (RxqAssign::Cycles, true));
        assert_eq!(auto, Some(AutoBalance { improvement: 70, ..by_default }));
        let told = [
            "other_config:pmd-rxq-assign \"best\" is not one of cycles, roundrobin and group, cycles is taken",
            "other_config:pmd-auto-lb-load-threshold 101 is not from 0 to 100, 95 is taken",
        ];
        assert_eq!(remarks, told);
    }

    #[test]
    fn an_interface_has_a_unicast_address() {
        let of =
            |mac: &str| of_interface(vec![("name", Datum::from("i")), ("mac", Datum::from(mac))]);
        let (wanted, remarks) = of("02:00:00:00:00:01");
        assert_eq!((wanted.mac, remarks.len()), (Some(Mac([2, 0, 0, 0, 0, 1])), 0));
        for bad in ["03:00:00:00:00:01", "00:00:00:00:00:00", "nonsense"] {
            let (wanted, remarks) = of(bad);
            assert_eq!(wanted.mac, None);
            let told =
                format!("interface i: mac \"{bad}\" is not a unicast Ethernet address, ignored");
            assert_eq!(remarks, [told]);
        }
    }
}
