// SPDX-License-Identifier: Apache-2.0
//! The switch: all bridges over one datapath. Owned by the control thread.
//!
//! [`Switch::bridge_mut`] and the methods here make changes. Packets see the changes after
//! [`Switch::publish`], which the control loop calls after each batch of work.

use crate::barrier_budget::{self, WaitBudget};
use crate::bond::announcement::announcements;
use crate::bridge::Bridge;
use crate::effect::{self, Effect};
use crate::event::Sender;
use crate::learned_flow::LearnedFlow;
use crate::meter::MeterIds;
use crate::pipeline::{Change, Pipeline, PreparedAdd};
use crate::port::Port;
use crate::protocol::ProtocolThread;
use crate::revalidator::{Pass, Revalidator};
use crate::slow_path::SlowPath;
use crate::snapshot::{BridgeIndex, BridgeView, Snapshot, Withheld};
use crate::spanning_tree::TreeKind;
use crate::translate::{Request, Translation};
use crate::tunnel;
use ::tunnel::SourcePorts;
use clock::{Clock, Millis};
use datapath::{Datapath, FlowStats, PortError, PortKind, PortSpec, TunnelEndpoint};
use flow::Key;
use flow::extract::key_of_type;
use hashbrown::HashMap;
use netdev::Status;
use openflow::message::{PortConfig, PortDesc};
use openflow::{Action, OfError, PortNo};
use packet::Packet;
use rcu::Publisher;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use underlay::Underlay;

mod bond_outputs;
mod bonds;
mod monitors;
mod trees;
mod tunnels;

pub use crate::control_counters::{ControlCounters, Revalidations};

/// A port to add to a bridge.
#[derive(Clone, Debug, Default)]
pub struct PortRequest {
    /// The device; its `wanted` number is the datapath's port number.
    pub spec: PortSpec,
    /// Requested OpenFlow number (`ofport_request`); [`PortNo::LOCAL`] for the bridge's own port.
    pub ofport: Option<PortNo>,
    /// Name of the peer, for patch ports.
    pub peer: Option<String>,
    /// Options, for tunnel ports. The number that `spec` wants is then that of the datapath port
    /// that stands for the tunnel.
    pub tunnel: Option<Arc<tunnel::Config>>,
}

/// The part of a bridge's view that must be built again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Dirty {
    /// Tables and groups.
    Rules,
    /// The whole view.
    All,
}

/// All bridges over one datapath.
pub struct Switch {
    /// Counters for `coverage/show`.
    pub counters: ControlCounters,
    slow: Arc<SlowPath>,
    datapath: Arc<dyn Datapath>,
    bridges: Vec<Option<Bridge>>,
    /// Bridges whose view must be built again.
    dirty: HashMap<BridgeIndex, Dirty>,
    meter_ids: MeterIds,
    /// Datapath ports that stand for tunnels.
    backings: tunnel::Backings,
    /// Hidden ports of devices of the host.
    host_ports: tunnel::HostPorts,
    /// The addresses at which they receive, as the datapath has them.
    endpoints: Vec<TunnelEndpoint>,
    /// Routes and neighbours over which tunnels go.
    underlay: Option<Arc<Underlay>>,
    /// Its sequence number at the last publication.
    underlay_sequence: u64,
    tunnel_output: tunnel::Output,
    has_sampled_drops: bool,
    withheld: Withheld,
    source_ports: SourcePorts,
    revalidator: Option<Revalidator>,
    protocols: Option<ProtocolThread>,
    /// Time budget for waits until megaflows follow.
    wait_budget: WaitBudget,
    /// Number of flows of `learn` actions, new or known, since the last publication.
    learned: u64,
    /// Earlier descriptions of ports that control protocols have changed.
    port_changes: Vec<(BridgeIndex, PortDesc)>,
    /// Ports that were added since these changes were last taken.
    new_ports: Vec<(BridgeIndex, PortNo)>,
    /// Control protocols have changed results that the database has.
    is_status_changed: bool,
    /// Time of the next run of the control protocols, where they have no thread.
    protocols_due: Option<Millis>,
    /// A port went up or down since the last publication.
    is_port_toggled: bool,
    /// The protocol of a spanning tree in which a port has another state since the last publication.
    changed_tree: Option<TreeKind>,
    /// A bond has changed since the last publication.
    is_bond_changed: bool,
    bond_outputs: bond_outputs::BondOutputs,
    clock: Clock,
}

impl std::fmt::Debug for Switch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Switch")
            .field("datapath", &self.datapath.name())
            .field("bridges", &self.bridges)
            .finish()
    }
}

/// A packet-out that is translated and not sent yet.
pub(crate) struct TranslatedOut {
    packet: Packet,
    key: Key,
    /// The datapath's input port.
    dp_in: datapath::PortNo,
    translation: Translation,
}

impl TranslatedOut {
    /// Returns the effects that sending it will have.
    pub(crate) fn effects(&self) -> &[Effect] {
        &self.translation.effects
    }
}

impl Switch {
    /// Returns a switch without bridges over `datapath`. It answers the datapath's upcalls from now
    /// on. `threads` false leaves out the revalidator thread (dummy mode: the caller makes passes).
    /// With threads, the calling thread is the one that calls [`Switch::learn`].
    ///
    /// # Errors
    ///
    /// Fails when the threads cannot be started.
    pub fn new(
        datapath: Arc<dyn Datapath>,
        clock: Clock,
        events: Sender,
        flow_limit: usize,
        threads: bool,
    ) -> std::io::Result<Switch> {
        let slow = SlowPath::new(Publisher::new(Arc::default()), events, clock.clone(), flow_limit);
        slow.attach(Arc::clone(&datapath));
        if threads {
            slow.learns_here();
        }
        let revalidator = if threads { Some(Revalidator::start(Arc::clone(&slow))?) } else { None };
        let protocols =
            if threads { Some(ProtocolThread::start(Arc::clone(&slow))?) } else { None };
        Ok(Switch {
            counters: ControlCounters::default(),
            slow,
            datapath,
            bridges: Vec::new(),
            dirty: HashMap::new(),
            meter_ids: MeterIds::default(),
            backings: tunnel::Backings::default(),
            host_ports: tunnel::HostPorts::default(),
            endpoints: Vec::new(),
            underlay: None,
            underlay_sequence: 0,
            tunnel_output: tunnel::Output::default(),
            has_sampled_drops: false,
            withheld: Withheld::default(),
            source_ports: SourcePorts::default(),
            revalidator,
            protocols,
            wait_budget: WaitBudget::new(Instant::now()),
            learned: 0,
            is_status_changed: false,
            protocols_due: None,
            port_changes: Vec::new(),
            new_ports: Vec::new(),
            is_port_toggled: false,
            changed_tree: None,
            is_bond_changed: false,
            bond_outputs: bond_outputs::BondOutputs::default(),
            clock,
        })
    }

    /// Returns the state that all upcalls share.
    pub fn slow_path(&self) -> &Arc<SlowPath> {
        &self.slow
    }

    /// Returns the datapath.
    pub fn datapath(&self) -> &Arc<dyn Datapath> {
        &self.datapath
    }

    /// Returns the time of the switch's clock.
    pub fn now(&self) -> Millis {
        self.clock.now()
    }

    /// Returns the bridges by index.
    pub fn bridges(&self) -> impl Iterator<Item = &Bridge> {
        self.bridges.iter().flatten()
    }

    /// Returns the bridge at `index`.
    pub fn bridge(&self, index: BridgeIndex) -> Option<&Bridge> {
        self.bridges.get(index.0)?.as_ref()
    }

    /// Returns the bridge at `index` for any change, and marks it for publication.
    pub fn bridge_mut(&mut self, index: BridgeIndex) -> Option<&mut Bridge> {
        self.touch(index, Dirty::All)
    }

    /// Returns the bridge at `index` for changes to tables and groups only, which are cheaper to
    /// publish.
    pub fn bridge_rules_mut(&mut self, index: BridgeIndex) -> Option<&mut Bridge> {
        self.touch(index, Dirty::Rules)
    }

    fn touch(&mut self, index: BridgeIndex, dirty: Dirty) -> Option<&mut Bridge> {
        let bridge = self.bridges.get_mut(index.0)?.as_mut()?;
        mark(&mut self.dirty, index, dirty);
        Some(bridge)
    }

    /// Returns the bridge called `name`.
    pub fn bridge_by_name(&self, name: &str) -> Option<&Bridge> {
        self.bridges().find(|b| b.name == name)
    }

    /// Adds a bridge without ports. The caller has checked that the name is free.
    pub fn add_bridge(&mut self, name: &str, datapath_id: u64) -> BridgeIndex {
        let at = self.bridges.iter().position(Option::is_none).unwrap_or_else(|| {
            self.bridges.push(None);
            self.bridges.len() - 1
        });
        let index = BridgeIndex(at);
        if let Some(slot) = self.bridges.get_mut(at) {
            let mut bridge = Bridge::new(index, name, datapath_id);
            let added = bridge.pipeline.add_internal(self.clock.now());
            debug_assert!(added.is_ok(), "a new table has room");
            *slot = Some(bridge);
        }
        mark(&mut self.dirty, index, Dirty::All);
        index
    }

    /// Removes a bridge with its ports. Returns its rules as removed.
    pub fn remove_bridge(&mut self, index: BridgeIndex) -> Vec<Change> {
        let ports: Vec<PortNo> =
            self.bridge(index).map(|b| b.ports.keys().copied().collect()).unwrap_or_default();
        for port in ports {
            let _ = self.remove_port(index, port); // it was there a moment ago
        }
        let changes = self.clear_bridge(index);
        if self.bridges.get_mut(index.0).and_then(Option::take).is_none() {
            return Vec::new();
        }
        self.slow.protocols.remove_bridge(index);
        mark(&mut self.dirty, index, Dirty::All);
        changes
    }

    /// Removes all rules, hidden ones too, all groups and all meters of a bridge. Returns its rules as
    /// removed.
    pub fn clear_bridge(&mut self, index: BridgeIndex) -> Vec<Change> {
        let Some(bridge) = self.bridge_mut(index) else { return Vec::new() };
        let changes = bridge.pipeline.clear();
        let all = openflow::message::MeterMod {
            command: openflow::message::MeterCommand::Delete,
            meter: openflow::message::MeterConfig {
                meter_id: openflow::message::meter_id::ALL,
                flags: openflow::message::MeterFlags::empty(),
                bands: Vec::new(),
            },
        };
        // No rule is left that uses a meter. A datapath without meters has none to remove.
        let _ = self.meter_mod(index, &all);
        changes
    }

    /// Opens a port and adds it to a bridge. Returns its OpenFlow number.
    ///
    /// # Errors
    ///
    /// Fails when the bridge does not exist, has a port of that name or no free number, or when the
    /// datapath cannot open the device. Nothing has changed then.
    pub fn add_port(
        &mut self,
        index: BridgeIndex,
        request: &PortRequest,
    ) -> Result<PortNo, PortError> {
        let now = self.clock.now();
        let spec = &request.spec;
        let not_found = || PortError::NotFound(format!("{}: its bridge is gone", spec.name));
        if self.bridge(index).ok_or_else(not_found)?.port_by_name(&spec.name).is_some() {
            return Err(PortError::Exists(spec.name.clone()));
        }
        // The device is opened first, so that a failure uses up no number.
        let dp_port = match (spec.kind, &request.tunnel) {
            (PortKind::Patch, _) => None,
            (_, Some(config)) => Some(self.back_tunnel(&spec.name, config, spec.wanted)?),
            _ => {
                self.host_ports.release(&*self.datapath, &spec.name);
                Some(self.datapath.add_port(spec)?)
            }
        };
        let bridge =
            self.bridges.get_mut(index.0).and_then(Option::as_mut).ok_or_else(not_found)?;
        let number = match request.ofport {
            Some(PortNo::LOCAL) => Some(PortNo::LOCAL),
            wanted => bridge.allocate_port(wanted.map(|p| p.0)),
        };
        let Some(number) = number else {
            match (dp_port, &request.tunnel) {
                (Some(_), Some(config)) => self.release_backing(config),
                (Some(dp_port), None) => {
                    let _ = self.datapath.remove_port(dp_port); // it was opened just now
                }
                (None, _) => {}
            }
            return Err(PortError::Full(spec.name.clone()));
        };
        let own_port = dp_port.filter(|_| request.tunnel.is_none());
        let device = own_port.and_then(|p| self.datapath.device(p));
        let mut port = Port {
            number,
            name: spec.name.clone(),
            kind: spec.kind,
            dp_port,
            peer: request.peer.clone(),
            tunnel: request.tunnel.clone(),
            device,
            config: PortConfig::empty(),
            status: Status::default(),
            created: now,
            is_allowed: true,
            is_new: false,
            cfm: None,
            lldp: None,
            bfd: None,
            tree_state: None,
            queue_dscp: Arc::default(),
            virtual_stats: Arc::default(),
        };
        port.refresh();
        bridge.ports.insert(number, port);
        bridge.macs.open_port(number);
        self.counters.ports_added += u64::from(dp_port.is_some());
        self.counters.port_updates += 1;
        self.mark_all_dirty(); // patch ports of other bridges may now have their peer
        Ok(number)
    }

    /// Closes a port and removes it from its bridge.
    pub fn remove_port(&mut self, index: BridgeIndex, number: PortNo) -> Option<Port> {
        let bridge = self.bridge_mut(index)?;
        let port = bridge.ports.remove(&number)?;
        let addresses = bridge.macs.close_port(number);
        if let Some(multicast) = &bridge.multicast {
            multicast.flush_port(number);
        }
        // As in OVS other bridges forget them as well: the hosts may come back in another place.
        for other in self.bridges().filter(|other| other.index != index) {
            for (vlan, mac) in &addresses {
                other.macs.remove(*vlan, *mac);
            }
        }
        self.counters.ports_removed += u64::from(port.dp_port.is_some());
        self.counters.port_updates += 1;
        self.mark_all_dirty();
        // Publishes first, because packet threads must not translate to a closed port.
        self.publish();
        match (port.dp_port, &port.tunnel) {
            (Some(_), Some(config)) => self.release_backing(config),
            (Some(dp_port), None) => {
                if let Err(e) = self.datapath.remove_port(dp_port) {
                    let name = &port.name;
                    tracing::warn!(target: "bridge", "could not remove port {name} from the datapath ({e})");
                }
                if self.backings.has_own() {
                    self.mark_all_dirty(); // tunnels may go over it as a device of the host
                }
            }
            (None, _) => {}
        }
        Some(port)
    }

    /// Sets whether megaflows that only sample their packets end with a drop, which datapaths count.
    pub fn set_sampled_drops(&mut self, has_sampled_drops: bool) {
        if self.has_sampled_drops != has_sampled_drops {
            self.has_sampled_drops = has_sampled_drops;
            self.mark_all_dirty();
        }
    }

    /// Returns the features of the datapath that translation does without.
    pub fn withheld(&self) -> Withheld {
        self.withheld
    }

    /// Sets the features of the datapath that translation does without.
    pub fn withhold(&mut self, withheld: Withheld) {
        if self.withheld != withheld {
            self.withheld = withheld;
            self.mark_all_dirty();
        }
    }

    fn mark_all_dirty(&mut self) {
        let all: Vec<BridgeIndex> = self.bridges().map(|b| b.index).collect();
        self.dirty.extend(all.into_iter().map(|index| (index, Dirty::All)));
    }

    /// Reads the status of every device. Returns the earlier descriptions of the ports that
    /// changed.
    pub fn refresh_ports(&mut self) -> Vec<(BridgeIndex, PortDesc)> {
        let mut changed = Vec::new();
        for bridge in self.bridges.iter_mut().flatten() {
            for port in bridge.ports.values_mut() {
                if let Some(before) = port.refresh() {
                    let after = port.desc();
                    self.is_port_toggled |=
                        (before.config, before.state) != (after.config, after.state);
                    self.counters.port_updates += 1;
                    changed.push((bridge.index, before));
                    mark(&mut self.dirty, bridge.index, Dirty::All);
                }
            }
        }
        changed
    }

    /// Carries out a flow mod. The caller has checked its actions against its match
    /// ([`openflow::action`]'s consistency check). Returns the changes to rules.
    ///
    /// # Errors
    ///
    /// Fails when the bridge does not exist or the tables refuse the flow mod, with the error for
    /// the controller. Nothing has changed then.
    pub fn flow_mod(
        &mut self,
        index: BridgeIndex,
        fm: &openflow::message::FlowMod,
    ) -> Result<Vec<Change>, OfError> {
        let now = self.clock.now();
        let bridge = self.bridge_rules_mut(index).ok_or(OfError::OFPBRC_EPERM)?;
        let meters = &bridge.meters;
        bridge.pipeline.flow_mod(fm, &|id| meters.contains(id), now)
    }

    /// Carries out a prepared flow mod, as [`Switch::flow_mod`] does.
    pub(crate) fn add_prepared(
        &mut self,
        index: BridgeIndex,
        add: PreparedAdd,
    ) -> Result<Vec<Change>, OfError> {
        let now = self.clock.now();
        let bridge = self.bridge_rules_mut(index).ok_or(OfError::OFPBRC_EPERM)?;
        let meters = &bridge.meters;
        bridge.pipeline.add_prepared(add, &|id| meters.contains(id), now)
    }

    /// Carries out a meter mod. Rules that use a removed meter are removed, too. Returns the
    /// removed rules.
    ///
    /// # Errors
    ///
    /// Fails when the bridge does not exist or the meter mod is refused, with the error for the
    /// controller. Nothing has changed then.
    pub fn meter_mod(
        &mut self,
        index: BridgeIndex,
        mm: &openflow::message::MeterMod,
    ) -> Result<Vec<Change>, OfError> {
        let now = self.clock.now();
        let revalidated = self.revalidated_version();
        self.meter_ids.release_retired(revalidated);
        mark(&mut self.dirty, index, Dirty::All);
        let bridge =
            self.bridges.get_mut(index.0).and_then(Option::as_mut).ok_or(OfError::OFPBRC_EPERM)?;
        let removed = bridge.meters.modify(mm, self.datapath.meters(), &mut self.meter_ids, now)?;
        Ok(bridge.pipeline.remove_users_of_meters(&removed))
    }

    /// Returns a version such that no megaflow is left from an older snapshot.
    fn revalidated_version(&self) -> u64 {
        // The order matters: the version is read before the check for stale megaflows.
        let published = self.slow.published.version();
        if self.slow.may_be_stale() {
            self.slow.revalidator.done_version.load(Ordering::Acquire)
        } else {
            published
        }
    }

    /// Runs `actions` on a packet as if it had been received on `in_port` (OFPT_PACKET_OUT).
    /// `metadata` holds the other fields that OpenFlow 1.5 lets the controller set. The port
    /// `in_port` need not exist. As in OVS, flows that the packet makes (`learn`) are added before
    /// it leaves. Returns the changes to rules that this made.
    ///
    /// # Errors
    ///
    /// Fails when translation of the actions cannot be completed, or when a flow cannot be added.
    /// The packet is then not sent, and nothing has changed.
    pub fn packet_out(
        &mut self,
        index: BridgeIndex,
        packet: Packet,
        metadata: &flow::Match,
        in_port: PortNo,
        actions: &[Action],
    ) -> Result<Vec<(BridgeIndex, Vec<Change>)>, OfError> {
        self.publish();
        let snapshot = self.slow.published.newest();
        let packet = self.translate_out(&snapshot, index, packet, metadata, in_port, actions)?;
        self.send_out(packet)
    }

    /// Sends a packet-out that was translated. See [`Switch::packet_out`].
    ///
    /// # Errors
    ///
    /// Fails when a flow cannot be added that the packet makes. The packet is not sent then.
    pub(crate) fn send_out(
        &mut self,
        out: TranslatedOut,
    ) -> Result<Vec<(BridgeIndex, Vec<Change>)>, OfError> {
        let TranslatedOut { packet, key, dp_in, translation } = out;
        let now = self.clock.now();
        let learned = self.learn_all(&translation.effects, now)?;
        self.publish();
        let (bytes, tcp_flags) = (packet.len() as u64, key.tcp_flags.get());
        let seen = FlowStats { packets: 1, bytes, used: now, tcp_flags };
        effect::apply_but_learning(&translation.effects, &seen, &self.slow.events);
        self.slow.deliver(&translation.claims, &packet, now);
        let mut dp_key = key_of_type(packet.data(), dp_in.0, key.packet_type.get());
        dp_key.set_connection(&key);
        self.datapath.execute(packet, &dp_key, &translation.actions);
        Ok(learned)
    }

    /// Translates a [`Switch::packet_out`] by `snapshot`.
    pub(crate) fn translate_out(
        &self,
        snapshot: &Snapshot,
        index: BridgeIndex,
        packet: Packet,
        metadata: &flow::Match,
        in_port: PortNo,
        actions: &[Action],
    ) -> Result<TranslatedOut, OfError> {
        let bridge = snapshot.bridge(index).ok_or(OfError::OFPBRC_EPERM)?;
        let packet_type = metadata.key().packet_type.get();
        let mut key = key_of_type(packet.data(), in_port.0, packet_type);
        for ((k, m), v) in
            key.words_mut().iter_mut().zip(metadata.mask().words()).zip(metadata.key().words())
        {
            *k = *k & !m | v;
        }
        key.in_port = in_port.0.into();
        let translation = self.slow.translate_counted(Request {
            packet: Some(&packet),
            actions: Some(actions),
            ..Request::new(snapshot, index, key, &self.slow.recirc, self.clock.now())
        });
        match translation.error {
            None => {
                Ok(TranslatedOut { dp_in: bridge.origin_of(in_port), packet, key, translation })
            }
            // The error that OVS reports for every failure.
            Some(_) => Err(OfError::OFPFMFC_UNKNOWN),
        }
    }

    /// Adds or refreshes the flows that `effects` learn: all of them or, on an error, none. The
    /// caller publishes. Returns the changes to rules, by bridge.
    pub(crate) fn learn_all(
        &mut self,
        effects: &[Effect],
        used: Millis,
    ) -> Result<Vec<(BridgeIndex, Vec<Change>)>, OfError> {
        let mut before = HashMap::new();
        let learned = self.learn_each(effects, used, &mut before);
        if learned.is_err() {
            self.put_back(before);
        }
        learned
    }

    /// Fails when [`Switch::learn_all`] would fail. Adds and removes no rule.
    pub(crate) fn dry_run_learning(
        &mut self,
        effects: &[Effect],
        used: Millis,
    ) -> Result<(), OfError> {
        let mut before = HashMap::new();
        let learned = self.learn_each(effects, used, &mut before);
        self.put_back(before);
        learned.map(drop)
    }

    /// Learns flows up to the first failure. `before` receives the tables in their earlier state.
    fn learn_each(
        &mut self,
        effects: &[Effect],
        used: Millis,
        before: &mut HashMap<BridgeIndex, Pipeline>,
    ) -> Result<Vec<(BridgeIndex, Vec<Change>)>, OfError> {
        let mut all = Vec::new();
        for effect in effects {
            let Effect::LearnFlow { bridge: index, flow } = effect else { continue };
            let Some(bridge) = self.bridge(*index) else { continue };
            before.entry(*index).or_insert_with(|| bridge.pipeline.clone());
            append_changes(&mut all, *index, self.learn_one(*index, flow, used)?);
        }
        Ok(all)
    }

    fn put_back(&mut self, pipelines: HashMap<BridgeIndex, Pipeline>) {
        for (index, pipeline) in pipelines {
            if let Some(bridge) = self.bridge_rules_mut(index) {
                bridge.pipeline = pipeline;
            }
        }
    }

    /// Adds or refreshes a flow that a packet's `learn` action made ([`Event::LearnFlow`]).
    ///
    /// # Errors
    ///
    /// Fails when the flow cannot be added, with the reason. Nothing has changed then.
    ///
    /// [`Event::LearnFlow`]: crate::event::Event::LearnFlow
    pub fn learn(
        &mut self,
        index: BridgeIndex,
        flow: &LearnedFlow,
        used: Millis,
    ) -> Result<Vec<Change>, OfError> {
        self.learned += 1;
        self.learn_one(index, flow, used)
    }

    fn learn_one(
        &mut self,
        index: BridgeIndex,
        flow: &LearnedFlow,
        used: Millis,
    ) -> Result<Vec<Change>, OfError> {
        let Some(bridge) = self.bridges.get_mut(index.0).and_then(Option::as_mut) else {
            return Ok(Vec::new()); // the bridge was removed meanwhile
        };
        let changes = bridge.pipeline.learn(flow, used, self.clock.now())?;
        if !changes.is_empty() {
            mark(&mut self.dirty, index, Dirty::Rules);
        }
        Ok(changes)
    }

    /// Makes all changes visible to packets. Does nothing without changes.
    pub fn publish(&mut self) {
        self.publish_changes();
        self.slow.events.record_learned(std::mem::take(&mut self.learned));
    }

    fn publish_changes(&mut self) {
        self.follow_underlay();
        self.follow_protocols();
        if self.dirty.is_empty() {
            return;
        }
        let all = self.dirty.values().any(|dirty| *dirty == Dirty::All);
        if all {
            self.follow_hosts();
        }
        let next = self.draft();
        if all {
            self.announce_endpoints(&next.tunnels);
        }
        self.dirty.clear();
        let is_port_toggled = std::mem::take(&mut self.is_port_toggled);
        let changed_tree = self.changed_tree.take();
        let causes = &mut self.counters.revalidations;
        *match (std::mem::take(&mut self.is_bond_changed), is_port_toggled, all) {
            _ if changed_tree == Some(TreeKind::Stp) => &mut causes.stp,
            _ if changed_tree == Some(TreeKind::Rstp) => &mut causes.rstp,
            (true, _, _) => &mut causes.bond,
            (false, true, _) => &mut causes.port_toggled,
            (false, false, true) => &mut causes.reconfigured,
            (false, false, false) => &mut causes.rules,
        } += 1;
        if all && let Some(thread) = &self.revalidator {
            thread.nudge();
        }
        let version = self.slow.published.publish(Arc::new(next));
        self.meter_ids.published(version);
        self.bond_outputs.published(version);
        // Flow mods often precede traffic. Two switches between threads would cost more than the
        // mods do.
        if self.revalidator.is_none() || self.slow.may_be_stale() {
            self.revalidate_soon();
        }
    }

    /// Returns the snapshot that a publication of all changes would make.
    pub(crate) fn draft(&mut self) -> Snapshot {
        let old = self.slow.published.newest();
        let mut next = Snapshot::clone(&old);
        next.queues = self.datapath.queue_numbering();
        next.has_sampled_drops = self.has_sampled_drops;
        next.withheld = self.withheld;
        next.bridges.resize(self.bridges.len(), None);
        let dirty = std::mem::take(&mut self.dirty);
        for (index, dirty) in &dirty {
            let bridge = self.bridges.get_mut(index.0).and_then(Option::as_mut);
            let tables = bridge.map(|bridge| bridge.pipeline.view());
            let before = old.bridge(*index).filter(|_| *dirty == Dirty::Rules);
            let view = match (self.bridge(*index), tables, before) {
                (Some(bridge), Some(tables), Some(before)) => {
                    let groups = Arc::clone(bridge.pipeline.groups());
                    Some(Arc::new(BridgeView { tables, groups, ..BridgeView::clone(before) }))
                }
                (Some(bridge), Some(tables), None) => {
                    Some(Arc::new(bridge.view(tables, &|name| self.resolve_patch(name))))
                }
                _ => None,
            };
            if let Some(slot) = next.bridges.get_mut(index.0) {
                *slot = view;
            }
        }
        if dirty.values().any(|d| *d == Dirty::All) {
            let ports = self.bridges().flat_map(|b| b.ports.values().map(move |p| (b.index, p)));
            next.ports = Arc::new(
                ports
                    .filter(|(_, p)| p.tunnel.is_none())
                    .filter_map(|(index, p)| p.dp_port.map(|dp_port| (dp_port, (index, p.number))))
                    .collect(),
            );
            next.tunnels = Arc::new(self.tunnels());
        }
        self.dirty = dirty;
        next
    }

    /// Announces the present location of hosts to the other ends of bonds that have changed since
    /// the last call; see `bond/announcement.rs`. Returns the changes to rules by flows that the
    /// frames made (past patch ports).
    pub fn announce_bonds(&mut self) -> Vec<(BridgeIndex, Vec<Change>)> {
        let mut learned = Vec::new();
        let moved: Vec<(BridgeIndex, String)> = self
            .bridges
            .iter_mut()
            .flatten()
            .flat_map(|b| b.take_announcements().into_iter().map(|name| (b.index, name)))
            .collect();
        for (index, name) in moved {
            let frames = match self.bridge(index) {
                Some(bridge) => announcements(bridge, &name, self.now()),
                None => continue,
            };
            let any = flow::Match::ANY;
            for (port, frame) in frames {
                let actions = [Action::Output { port, max_len: 0 }];
                // A frame whose translation loops past a patch port is left out.
                let made = self.packet_out(index, frame.packet(), &any, PortNo::NONE, &actions);
                for (bridge, changes) in made.unwrap_or_default() {
                    append_changes(&mut learned, bridge, changes);
                }
            }
        }
        learned
    }

    fn resolve_patch(&self, name: &str) -> Option<(BridgeIndex, PortNo, Option<String>)> {
        self.bridges().find_map(|b| {
            let port = b.port_by_name(name).filter(|p| p.is_patch())?;
            Some((b.index, port.number, port.peer.clone()))
        })
    }

    /// Publishes, and blocks until the megaflows follow: packets received after the return see the
    /// published state. The wait is bounded (`barrier_budget.rs`), as many megaflows or a series of
    /// waits could take longer than a control connection should wait. The remaining megaflows then
    /// follow within the next passes.
    pub fn publish_and_wait(&mut self) {
        self.publish();
        let Some(thread) = &self.revalidator else { return };
        let version = self.slow.published.version();
        let state = &self.slow.revalidator;
        if state.is_done(version) || !self.slow.may_be_stale() {
            return;
        }
        if let Some(left) = self.wait_budget.available(state.until_passed(), Instant::now()) {
            thread.wait(&self.slow, left, || state.is_done(version));
            self.wait_budget.spend(Instant::now());
        }
    }

    /// Sets the timeout policies of connections, by zone: the policy of a zone is named by the
    /// actions that commit connections in it. Megaflows follow a change.
    pub fn set_timeout_policies(&mut self, policies: impl IntoIterator<Item = (u16, u16)>) {
        self.publish();
        let newest = self.slow.published.newest();
        let timeout_policies: HashMap<u16, u16> = policies.into_iter().collect();
        if *newest.timeout_policies != timeout_policies {
            self.counters.revalidations.reconfigured += 1;
            let timeout_policies = Arc::new(timeout_policies);
            let next = Snapshot { timeout_policies, ..Snapshot::clone(&newest) };
            self.slow.published.publish(Arc::new(next));
            self.revalidate_soon();
        }
    }

    /// Requests a check of the megaflows after a change to a setting that translation reads outside
    /// the snapshot.
    pub fn need_revalidation(&mut self) {
        self.counters.revalidations.reconfigured += 1;
        self.republish();
    }

    /// Requests a check of the megaflows after a change to a MAC table, which translation reads
    /// outside the snapshot.
    pub fn mac_tables_changed(&mut self) {
        self.counters.revalidations.mac_tables += 1;
        self.republish();
    }

    fn republish(&mut self) {
        let newest = self.slow.published.newest();
        self.slow.published.publish(newest);
        self.revalidate_soon();
    }

    fn revalidate_soon(&mut self) {
        let Some(thread) = &self.revalidator else { return self.revalidate_inline() };
        let cost = self.slow.revalidator.last_pass().unwrap_or_default();
        let is_made = self.wait_budget.available(cost, Instant::now()).is_some() && {
            let is_made = self.slow.pass_if_short();
            self.wait_budget.spend(Instant::now());
            is_made
        };
        if !is_made {
            thread.request_pass();
        }
    }

    /// Makes the pass that is due, when no thread makes passes and passes are not paused.
    pub fn revalidate_inline(&self) {
        if self.revalidator.is_none() && !self.slow.revalidator.paused.load(Ordering::Relaxed) {
            self.slow.pass(Pass::Full);
        }
    }

    /// Stops passes over the megaflows, or resumes them with one that catches up. While passes are
    /// stopped, megaflows keep their actions and do not expire.
    pub fn pause_revalidation(&mut self, paused: bool) {
        self.slow.revalidator.paused.store(paused, Ordering::Relaxed);
        if !paused {
            self.revalidate_soon();
        }
    }

    /// Returns true when a separate thread makes the passes.
    pub fn has_revalidator_thread(&self) -> bool {
        self.revalidator.is_some()
    }

    /// Collects statistics from the datapath, so that counters are exact as of now. With a
    /// revalidator thread and many megaflows this waits for the thread. When that would take longer
    /// than the control thread should wait (`barrier_budget.rs`), counters are as of the last pass.
    pub fn collect_statistics(&mut self) {
        let asked = self.now();
        if self.collect() >= asked {
            return;
        }
        let state = &self.slow.revalidator;
        let cost = state.until_passed();
        let Some(thread) =
            self.revalidator.as_ref().filter(|_| cost <= barrier_budget::LONGEST_WAIT)
        else {
            return;
        };
        if let Some(left) = self.wait_budget.available(cost, Instant::now()) {
            thread.request_pass();
            thread.wait(&self.slow, left, || state.credited() >= asked);
            self.wait_budget.spend(Instant::now());
        }
    }

    /// Collects statistics without waiting. Returns the time as of which they are exact.
    fn collect(&self) -> Millis {
        if self.has_revalidator_thread() {
            return self.slow.collect();
        }
        self.slow.pass(Pass::Statistics);
        self.now()
    }

    /// Returns true when some rule has a timeout.
    fn has_timeouts(&self) -> bool {
        self.bridges().any(|b| b.pipeline.has_timeouts())
    }

    /// Returns the latest time at which [`Switch::run`] must be called, as long as nothing is
    /// added; `None` for never.
    pub fn deadline(&self) -> Option<Millis> {
        let timed = self.has_timeouts();
        // Only statistics show the time of a rule's last use.
        let rules = timed.then(|| self.clock.now());
        let macs = self.bridges().filter_map(|b| b.macs.deadline());
        let multicast = self.bridges().filter_map(|b| b.multicast.as_ref()?.deadline());
        let bonds = self.bridges().filter_map(Bridge::bond_deadline);
        let outputs = self.bond_outputs.deadline(self.clock.now());
        let control = self.protocols_due.into_iter().chain(outputs);
        macs.chain(multicast).chain(bonds).chain(control).chain(rules).min()
    }

    /// Does periodic work: expires rules and MAC entries. Returns the removed rules by bridge, for
    /// one report. The monitor of a slow peer later reports the difference from the tables of this
    /// moment, which hold none of these rules any more.
    pub fn run(&mut self) -> Vec<(BridgeIndex, Vec<Change>)> {
        let now = self.clock.now();
        let mut out = Vec::new();
        let mut relearn = false;
        self.rebalance_bonds(now);
        let timed = self.has_timeouts();
        self.slow.revalidator.is_awaited.store(timed, Ordering::Relaxed);
        // Idle times count from the last packet to the last time at which all packets were counted.
        let credited = if timed { self.collect().min(now) } else { now };
        for bridge in self.bridges.iter_mut().flatten() {
            relearn |= bridge.macs.expire(now) > 0;
            relearn |= bridge.multicast.as_ref().is_some_and(|table| table.expire(now));
            let gone = bridge.pipeline.expire(now, credited);
            if !gone.is_empty() {
                // The expiry of a rule may also delete rules that it has learned.
                self.counters.expired_rules +=
                    gone.iter().filter(|change| change.is_expiry()).count() as u64;
                mark(&mut self.dirty, bridge.index, Dirty::Rules);
                out.push((bridge.index, gone));
            }
        }
        self.publish();
        if relearn {
            self.mac_tables_changed();
        }
        out
    }
}

fn mark(all: &mut HashMap<BridgeIndex, Dirty>, index: BridgeIndex, dirty: Dirty) {
    let entry = all.entry(index).or_insert(dirty);
    *entry = dirty.max(*entry);
}

/// Appends changes to the earlier changes of the same bridge. All of them are reported together, as
/// in [`Switch::run`].
fn append_changes(
    all: &mut Vec<(BridgeIndex, Vec<Change>)>,
    index: BridgeIndex,
    changes: Vec<Change>,
) {
    match all.iter_mut().find(|(bridge, _)| *bridge == index) {
        Some((_, before)) => before.extend(changes),
        None if changes.is_empty() => {}
        None => all.push((index, changes)),
    }
}
