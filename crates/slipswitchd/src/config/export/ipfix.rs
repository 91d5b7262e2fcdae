// SPDX-License-Identifier: Apache-2.0
//! Rows of the tables IPFIX and Flow_Sample_Collector_Set.

use super::super::state::{BridgeState, Remarks};
use super::open;
use crate::collectors::Collectors;
use ::export::WallTime;
use ::export::ipfix::{
    DEFAULT_PORT, INTERVAL_SECONDS, MAX_VIRTUAL_OBS_ID_BYTES, SAMPLING, Settings,
};
use bridge::export::{BridgeSampler, Ipfix, IpfixView, SetSampler};
use bridge::switch::Switch;
use clock::Millis;
use ovsdb::{Replica, Row, Uuid};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::SystemTime;

/// Number of exporters so far: each has its own number in statistics, as in OVS.
static EXPORTERS: AtomicU32 = AtomicU32::new(0);

/// The exporters of a bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct DesiredIpfix {
    bridge: Option<DesiredBridgeExporter>,
    sets: BTreeMap<u32, DesiredExporter>,
}

/// A row of the table IPFIX.
#[derive(Clone, Debug, PartialEq, Eq)]
struct DesiredExporter {
    targets: BTreeSet<String>,
    settings: Settings,
    has_tunnels: bool,
}

/// The row of a bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
struct DesiredBridgeExporter {
    exporter: DesiredExporter,
    sampling: u32,
    obs_domain: u32,
    obs_point: u32,
    samples_input: bool,
    samples_output: bool,
}

/// Returns the exporters of a bridge's row, whose id is `uuid`. As in OVS a row without targets asks
/// for nothing.
pub(super) fn read(
    replica: &Replica,
    uuid: Uuid,
    row: &Row,
    remarks: &mut Vec<String>,
) -> DesiredIpfix {
    let ipfix = |row: &Row| {
        let row = replica.row("IPFIX", row.opt_uuid("ipfix")?)?;
        row.strs("targets").next().is_some().then_some(row)
    };
    let mut sets = BTreeMap::new();
    for (_, set) in replica.rows("Flow_Sample_Collector_Set") {
        if set.opt_uuid("bridge") != Some(uuid) {
            continue;
        }
        let id = word(set, "id").unwrap_or(0);
        if let Some(group) = set.opt_int("local_group_id") {
            remarks.push(format!(
                "flow sample collector set {id}: local_group_id {group} has no effect \
                 (only the kernel itself sends to its groups of psample)"
            ));
        }
        if let Some(row) = ipfix(set) {
            sets.insert(id, exporter(row));
        }
    }
    DesiredIpfix { bridge: ipfix(row).map(|row| bridge_exporter(row)), sets }
}

fn word(row: &Row, column: &str) -> Option<u32> {
    row.opt_int(column).and_then(|n| u32::try_from(n).ok())
}

fn exporter(row: &Row) -> DesiredExporter {
    let other = row.map("other_config");
    DesiredExporter {
        targets: row.strs("targets").map(str::to_owned).collect(),
        settings: Settings {
            active_timeout_seconds: word(row, "cache_active_timeout").unwrap_or(0),
            max_flows: word(row, "cache_max_flows").unwrap_or(0),
            template_seconds: word(row, "template_interval").unwrap_or(INTERVAL_SECONDS),
            statistics_seconds: word(row, "stats_interval").unwrap_or(INTERVAL_SECONDS),
            virtual_obs_id: other.get("virtual_obs_id").map(str::to_owned),
        },
        has_tunnels: other.bool("enable-tunnel-sampling", true),
    }
}

fn bridge_exporter(row: &Row) -> DesiredBridgeExporter {
    let other = row.map("other_config");
    DesiredBridgeExporter {
        exporter: exporter(row),
        sampling: word(row, "sampling").filter(|n| *n > 0).unwrap_or(SAMPLING),
        obs_domain: word(row, "obs_domain_id").unwrap_or(0),
        obs_point: word(row, "obs_point_id").unwrap_or(0),
        // OVS negates both options, against its manual: "true" ends the samples.
        samples_input: !other.bool("enable-input-sampling", false),
        samples_output: !other.bool("enable-output-sampling", false),
    }
}

/// The exporters of a bridge that run.
#[derive(Debug, Default)]
pub(super) struct RunningIpfix {
    wanted: DesiredIpfix,
    /// Number of the bridge's exporter. As in OVS it has one also while only collector sets run.
    number: Option<u32>,
    bridge: Option<Running>,
    sets: BTreeMap<u32, Running>,
}

/// An exporter with its collectors.
#[derive(Debug)]
struct Running {
    targets: BTreeSet<String>,
    exporter: Arc<Ipfix>,
    collectors: Collectors,
}

/// Makes the exporters of a bridge those of its rows. Exporters whose rows are gone send the records
/// of all their flows.
pub(super) fn sync(
    switch: &mut Switch,
    state: &mut BridgeState,
    wanted: &DesiredIpfix,
    remarks: &mut Remarks,
) {
    let running = &state.export.ipfix;
    if running.wanted == *wanted && running.all().all(Running::is_complete) {
        return;
    }
    let Some(name) = switch.bridge(state.index).map(|bridge| bridge.name.clone()) else { return };
    let now = switch.now();
    let mut old = std::mem::take(&mut state.export.ipfix);
    let is_wanted = wanted.bridge.is_some() || !wanted.sets.is_empty();
    let number = is_wanted.then(|| old.number.unwrap_or_else(next_number));
    let mut new = RunningIpfix { wanted: wanted.clone(), number, ..RunningIpfix::default() };
    let mut view = IpfixView::default();
    if let Some(row) = &wanted.bridge
        && let Some(running) =
            Running::start(old.bridge.take(), &row.exporter, (&name, "ipfix"), number, now, remarks)
    {
        view.bridge = Some(BridgeSampler {
            exporter: Arc::clone(&running.exporter),
            probability: (u32::MAX / row.sampling.max(1)).max(1),
            obs_domain: row.obs_domain,
            obs_point: row.obs_point,
            samples_input: row.samples_input,
            samples_output: row.samples_output,
            has_tunnels: row.exporter.has_tunnels,
        });
        new.bridge = Some(running);
    }
    for (id, row) in &wanted.sets {
        let column = format!("flow sample collector set {id}");
        let old = old.sets.remove(id);
        if let Some(running) = Running::start(old, row, (&name, &column), None, now, remarks) {
            let exporter = Arc::clone(&running.exporter);
            view.sets.insert(*id, SetSampler { exporter, has_tunnels: row.has_tunnels });
            new.sets.insert(*id, running);
        }
    }
    let view = is_wanted.then(|| Arc::new(view));
    // A change has all megaflows translated again.
    if switch.bridge(state.index).is_some_and(|bridge| bridge.exports.ipfix != view)
        && let Some(bridge) = switch.bridge_mut(state.index)
    {
        bridge.exports.ipfix = view;
    }
    old.finish(now);
    state.export.ipfix = new;
}

impl Running {
    /// Starts an exporter, or continues `old`. As in OVS there is none without a collector, and none
    /// whose virtual observation id is too long. `place` is the bridge and the column; a new exporter
    /// without a `number` gets the next one.
    fn start(
        old: Option<Running>,
        row: &DesiredExporter,
        place: (&str, &str),
        number: Option<u32>,
        now: Millis,
        remarks: &mut Remarks,
    ) -> Option<Running> {
        let (bridge, column) = place;
        let id = row.settings.virtual_obs_id.as_deref().unwrap_or_default();
        if id.len() > MAX_VIRTUAL_OBS_ID_BYTES {
            remarks.warn(format!(
                "bridge {bridge}: {column}: there is no IPFIX (other_config:virtual_obs_id has {} bytes, \
                 more than {MAX_VIRTUAL_OBS_ID_BYTES})",
                id.len()
            ));
            finish(old, now);
            return None;
        }
        let (exporter, collectors) = match old {
            Some(running) => {
                running.exporter.configure(row.settings.clone(), now);
                let is_complete = running.is_complete() && running.targets == row.targets;
                (running.exporter, is_complete.then_some(running.collectors))
            }
            None => {
                let number = number.unwrap_or_else(next_number);
                (Arc::new(Ipfix::new(row.settings.clone(), number)), None)
            }
        };
        let collectors = collectors
            .unwrap_or_else(|| open(bridge, column, &row.targets, Some(DEFAULT_PORT), remarks));
        if collectors.len() == 0 {
            remarks.warn(format!(
                "bridge {bridge}: {column}: there is no IPFIX (no target has a socket)"
            ));
            return None;
        }
        Some(Running { targets: row.targets.clone(), exporter, collectors })
    }

    /// Returns true when each target has its socket.
    fn is_complete(&self) -> bool {
        self.collectors.len() == self.targets.len()
    }

    fn send(&mut self, messages: Vec<Vec<u8>>) {
        let (sent, unsent) = self.collectors.counts();
        for message in messages {
            self.collectors.send(&message);
        }
        let (sent_now, unsent_now) = self.collectors.counts();
        self.exporter.add_sent(sent_now - sent, unsent_now - unsent);
    }
}

fn next_number() -> u32 {
    EXPORTERS.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
}

/// Sends the last records of an exporter.
fn finish(running: Option<Running>, now: Millis) {
    if let Some(mut running) = running {
        let messages = running.exporter.finish(now, SystemTime::now().into());
        running.send(messages);
    }
}

impl RunningIpfix {
    fn all(&self) -> impl Iterator<Item = &Running> {
        self.bridge.iter().chain(self.sets.values())
    }

    pub(super) fn run(&mut self, now: Millis, wall: WallTime) {
        for running in self.bridge.iter_mut().chain(self.sets.values_mut()) {
            let messages = running.exporter.run(now, wall);
            running.send(messages);
        }
    }

    /// Sends the last records of all exporters.
    fn finish(self, now: Millis) {
        self.bridge.into_iter().chain(self.sets.into_values()).for_each(|r| finish(Some(r), now));
    }

    pub(super) fn deadline(&self) -> Option<Millis> {
        self.all().filter_map(|running| running.exporter.deadline()).min()
    }

    /// Returns the numbers of messages that were sent, and that the kernel did not take, and of flows
    /// that found no room.
    pub(super) fn counts(&self) -> [u64; 3] {
        self.all().fold([0; 3], |[sent, unsent, no_room], running| {
            let (s, u) = running.collectors.counts();
            [sent + s, unsent + u, no_room + running.exporter.without_room()]
        })
    }
}
