// SPDX-License-Identifier: Apache-2.0
//! The contract's ports, and which tiers each is attached to.

use crate::control::{Blockers, Control, Port, PortTier, Tunnel, detached, filters, not_yet};
use crate::device;
use crate::eligibility::PortEligibility;
use crate::placed::PlacedDatapath;
use crate::postponed::Postponed;
use crate::socket::{Socket, SocketState};
use crate::table::PlacementState;
use datapath::offload::{Attached, Ends, PortSettings, PortSocket, Reason};
use datapath::{
    EgressQos, Flows, PortError, PortInfo, PortKind, PortNo, PortSpec, Ports, Refusal, Side, Tier,
    TierSet, TunnelEndpoint, Ufid,
};
use netdev::{Device, Endpoint, Kind, Policing, QosRequest, Reception, Status};
use std::collections::BTreeSet;
use std::sync::Arc;

impl PlacedDatapath {
    /// Reads and checks the settings of a row.
    fn settings(&self, spec: &PortSpec) -> Result<PortSettings, PortError> {
        let keys = self.slots.iter().flat_map(|slot| slot.spec.keys).copied();
        let settings = PortSettings::read(spec, keys, self.slots.tiers());
        let check = |settings: PortSettings| {
            self.slots.iter().try_for_each(|slot| (slot.spec.check)(&settings))?;
            Ok(settings)
        };
        let error = |problem| PortError::Option { name: spec.name.clone(), problem };
        settings.and_then(check).map_err(error)
    }

    /// Reads the device's state again. Returns the tiers of the providers that may now decide
    /// otherwise about the port: of those in `among`, or of all when the device is another one.
    pub(crate) fn examine(&self, number: PortNo, port: &mut Port, among: TierSet) -> TierSet {
        let status = self.base.device(number).and_then(|device| device.status().ok());
        let before = port.ifindex;
        port.ifindex = status.as_ref().and_then(Status::ifindex_here);
        port.is_away = status.as_ref().is_some_and(|s| s.is_away);
        if let Some(status) = &status {
            (port.mtu, port.is_up) = (status.mtu, status.admin_up);
            port.device.clone_from(&status.current_name);
        }
        let seen = port.offload(number, Ok(()), port.is_after_filters);
        let mut changed = TierSet::NONE;
        for (slot, provider) in self.slots.present() {
            if among.meets(slot.tiers()) && provider.examine(&seen) {
                changed = changed.union(slot.tiers());
            }
        }
        if before == port.ifindex { changed } else { self.slots.tiers() }
    }

    /// Examines the other ends of pairs of virtual devices. GRO, checksums and BPF programs change
    /// there without an event at this end. Costs some system calls for each port whose tiers depend
    /// on the other end, and none for other ports. Call it every few seconds.
    pub fn look_at_peers(&self) {
        self.examine_dependents(&mut self.control(), Ends::Poll);
    }

    /// Examines the ports that depend on these interfaces, after a change there.
    pub fn ends_changed(&self, ends: &[Endpoint]) {
        self.examine_dependents(&mut self.control(), Ends::These(ends));
    }

    /// Examines the ports that depend on any interface, after events were lost.
    pub fn ends_lost(&self) {
        self.examine_dependents(&mut self.control(), Ends::Lost);
    }

    /// Examines the ports that depend on changes at `ends`.
    fn examine_dependents(&self, control: &mut Control, ends: Ends<'_>) {
        // A port that moves may make others depend on changes of which no record was kept. The
        // second pass examines them.
        if self.examine_once(control, ends) {
            self.examine_once(control, Ends::Poll);
        }
    }

    /// Returns true when a port moved in a way that affects others.
    fn examine_once(&self, control: &mut Control, ends: Ends<'_>) -> bool {
        let Control { ports, blockers, .. } = control;
        let mut affects_others = false;
        for (number, port) in ports {
            let mut among = TierSet::NONE;
            for (slot, provider) in self.slots.present() {
                if provider.depends_on(*number, ends) {
                    among = among.union(slot.tiers());
                }
            }
            if !among.is_empty() {
                port.at.iter_mut().for_each(|attached| attached.affects_others = false);
                self.follow_device(*number, port, blockers, among);
                affects_others |= port.at.iter().any(|attached| attached.affects_others);
            }
        }
        affects_others
    }

    /// Changes a port, and examines the other ports if the change affects them. `None` without such
    /// a port.
    pub(crate) fn change_port(
        &self,
        control: &mut Control,
        number: PortNo,
        change: impl FnOnce(&mut Port, &[Blockers]),
    ) -> Option<()> {
        let Control { ports, blockers, .. } = &mut *control;
        let port = ports.get_mut(&number)?;
        port.at.iter_mut().for_each(|attached| attached.affects_others = false);
        change(port, blockers);
        if port.at.iter().any(|attached| attached.affects_others) {
            self.examine_dependents(control, Ends::Poll);
        }
        Some(())
    }

    /// Examines a port for the providers in `among`, and has all providers follow the changes.
    fn follow_device(
        &self,
        number: PortNo,
        port: &mut Port,
        blockers: &[Blockers],
        among: TierSet,
    ) {
        let before = (port.mtu, port.is_up);
        let changed = self.examine(number, port, among);
        self.place_port(number, port, blockers, changed);
        if before == (port.mtu, port.is_up) {
            return;
        }
        for (slot, provider) in self.slots.present() {
            let is_as_before = !changed.meets(slot.tiers());
            if is_as_before && port.in_use().meets(slot.tiers()) {
                provider.update_port(number, port.mtu, port.is_up);
            }
        }
    }

    /// Attaches the port again to the providers of `tiers`, while none of their flows uses the
    /// port.
    pub(crate) fn place_port(
        &self,
        number: PortNo,
        port: &mut Port,
        blockers: &[Blockers],
        tiers: TierSet,
    ) {
        if tiers.is_empty() {
            return;
        }
        let tiers = if port.couples_providers() { self.slots.tiers() } else { tiers };
        let before = port.eligibility().tiers.intersection(tiers);
        if port.in_use().meets(tiers) {
            self.close_port(number, port, blockers, tiers);
        }
        self.attach_port(number, port, blockers, tiers);
        if !port.eligibility().tiers.covers(before) {
            // Flows that left because of the port get the provider's reason.
            self.requeue(|reason| reason == Some(Refusal::PortNotHere));
        }
    }

    /// Withdraws all flows of these tiers that use the port, and keeps others away.
    fn close_port(&self, number: PortNo, port: &mut Port, blockers: &[Blockers], tiers: TierSet) {
        let check = port.check();
        let held = &*port;
        self.change_eligibility(|eligibility| {
            let Some(port) = eligibility.ports.get_mut(&number) else { return };
            for (slot, blockers) in self.slots.iter().zip(blockers) {
                if tiers.meets(slot.tiers()) {
                    let policing = slot.provider().map_or(Ok(()), |p| held.check_policing(&**p));
                    let why = blockers.check().and(check.as_ref().copied());
                    let why = why.and(policing.as_ref().copied());
                    let reason = why.err().map_or(Refusal::PortNotHere, |r| r.refusal);
                    port.close(slot.tiers(), reason);
                }
            }
        });
        self.review();
    }

    /// Attaches a port, which no flow of these tiers uses, to the providers of `tiers`. Where filters
    /// of one are now to see the packets before others, or no more, to all providers.
    fn attach_port(&self, number: PortNo, port: &mut Port, blockers: &[Blockers], tiers: TierSet) {
        self.attach_to(number, port, blockers, tiers);
        if port.is_after_filters != port.at.iter().any(filters) {
            self.close_port(number, port, blockers, self.slots.tiers());
            self.attach_to(number, port, blockers, self.slots.tiers());
        }
        if !self.slots.are_empty() {
            log_port(port);
        }
        self.note_eligibility(number, port);
    }

    fn attach_to(&self, number: PortNo, port: &mut Port, blockers: &[Blockers], tiers: TierSet) {
        let check = port.check();
        let postponed = port.postponed.take();
        let tiers = match postponed {
            Some(Postponed::Attachment) => self.slots.tiers(),
            _ => tiers,
        };
        let mut state = port.socket;
        let mut at = std::mem::take(&mut port.at);
        let mut is_after_filters = false;
        for ((slot, blockers), attached) in self.slots.iter().zip(blockers).zip(&mut at) {
            if !tiers.meets(slot.tiers()) {
                is_after_filters |= filters(attached);
                continue;
            }
            let Some(provider) = slot.provider() else {
                let reason = slot.absent().cloned().unwrap_or_else(not_yet);
                *attached = detached(slot, &reason, &port.settings);
                continue;
            };
            let policing = port.check_policing(&**provider);
            let mut socket = self.socket(number, port, &mut state);
            match blockers.check() {
                Ok(()) => {
                    let ingress = check.as_ref().and(policing.as_ref()).copied();
                    let offload = port.offload(number, ingress, is_after_filters);
                    *attached = provider.attach(&offload, &mut socket);
                }
                Err(reason) => {
                    let offload = port.offload(number, Err(reason), is_after_filters);
                    provider.release(&offload, &mut socket);
                    *attached = detached(slot, reason, &port.settings);
                }
            }
            is_after_filters |= filters(attached);
        }
        if !self.slots.are_empty() {
            let is_taken = at.iter().any(|attached| attached.takes_receive);
            if !is_taken {
                self.release_without_taker(number, port, &mut at, &mut state);
            }
            let is_moving =
                at.iter_mut().fold(false, |is, a| is | std::mem::take(&mut a.is_moving));
            // Without a filter the port loses packets until the move is complete. Before that, flows of
            // a provider that needs a taker would take packets that the socket has, too.
            let may_wait = postponed == Some(Postponed::Attachment)
                && state.has_filter
                && !at.iter().any(filters);
            if is_moving && may_wait {
                port.postponed = Some(Postponed::Completion);
            } else {
                if is_moving {
                    self.complete_moves();
                }
                let reception = if is_taken { Reception::Off } else { Reception::On };
                self.socket(number, port, &mut state).set_receive(reception);
            }
        }
        if tiers == self.slots.tiers() {
            port.is_after_filters = at.iter().any(filters);
        }
        (port.at, port.socket) = (at, state);
    }

    /// Releases a port from the providers that need another one to take its packets: none does.
    fn release_without_taker(
        &self,
        number: PortNo,
        port: &Port,
        at: &mut [Attached],
        state: &mut SocketState,
    ) {
        for (slot, attached) in self.slots.iter().zip(at) {
            let Some(provider) = slot.provider().filter(|_| filters(attached)) else { continue };
            let detail = "BPF does not take its packets, so the socket of userspace has them, too";
            let reason = Reason::new(Refusal::TierUnavailable, detail);
            let offload = port.offload(number, Err(&reason), false);
            provider.release(&offload, &mut self.socket(number, port, state));
            *attached = Attached { needs_taker: true, ..detached(slot, &reason, &port.settings) };
        }
    }

    /// Records which tiers flows of a port may go to.
    pub(crate) fn note_eligibility(&self, number: PortNo, port: &Port) {
        let now = port.eligibility();
        self.change_eligibility(|eligibility| {
            eligibility.ports.insert(number, now);
        });
    }

    /// Returns the base's socket at a port, for a provider.
    pub(crate) fn socket<'a>(
        &'a self,
        number: PortNo,
        port: &'a Port,
        state: &'a mut SocketState,
    ) -> Socket<'a> {
        Socket {
            base: &*self.base,
            number,
            name: &port.name,
            kind: port.kind,
            is_shared: port.side == Side::Underlay,
            is_here: port.ifindex.is_some(),
            state,
        }
    }

    /// Returns the port's state at each tier, fastest first; `None` without such a port.
    pub fn tiers(&self, number: PortNo) -> Option<Vec<PortTier>> {
        let control = self.control();
        let port = control.ports.get(&number)?;
        let fast = port.states().map(|state| PortTier {
            tier: state.tier,
            state: state.ingress.clone(),
            how: state.how,
        });
        let userspace = PortTier { tier: Tier::Userspace, state: Ok(()), how: "" };
        Some(fast.chain([userspace]).collect())
    }

    /// Returns the providers' further lines about a port, for people.
    pub fn about_port(&self, number: PortNo) -> Vec<String> {
        self.slots.present().flat_map(|(_, provider)| provider.about_port(number)).collect()
    }

    /// Returns `Ok` when flows of a tier may output to a port, else the reason; `None` without such
    /// a port or tier.
    pub fn output_state(&self, number: PortNo, tier: Tier) -> Option<Result<(), Reason>> {
        let control = self.control();
        let mut states = control.ports.get(&number)?.states();
        states.find(|state| state.tier == tier).map(|state| state.output.clone())
    }

    /// Puts the changed settings of a port's row into force.
    ///
    /// # Errors
    ///
    /// A setting has an unknown value, or there is no such port. The port stays as it is.
    pub fn retier(&self, number: PortNo, spec: &PortSpec) -> Result<(), PortError> {
        let settings = self.settings(spec)?;
        let change = |port: &mut Port, blockers: &[Blockers]| {
            if port.settings != settings {
                port.settings = settings;
                self.examine(number, port, self.slots.tiers());
                self.place_port(number, port, blockers, self.slots.tiers());
            }
        };
        self.change_port(&mut self.control(), number, change)
            .ok_or_else(|| PortError::NotFound(number.to_string()))
    }

    /// Follows changes of a port's device: its index, MTU, offloads, whether it is up, and the
    /// other end of a veth pair.
    pub fn refresh(&self, number: PortNo) {
        let change = |port: &mut Port, blockers: &[Blockers]| {
            self.follow_device(number, port, blockers, self.slots.tiers());
        };
        self.change_port(&mut self.control(), number, change);
    }

    /// Refreshes a port if `status`, which the caller has read, differs from the status that was
    /// last read here. The device may change between the two reads, and no event reports such a
    /// change twice. Makes no system call when nothing differs.
    pub fn compare(&self, number: PortNo, status: &Status) {
        let differs = |port: &Port| {
            (port.ifindex, port.mtu, port.is_up)
                != (status.ifindex_here(), status.mtu, status.admin_up)
        };
        let differs = self.control().ports.get(&number).is_some_and(differs);
        if differs {
            self.refresh(number);
        }
    }

    /// Has the providers follow a change by [`flow::extract::set_vlan_limit`]. The caller flushes
    /// all flows before this call, and again after it: in between, a provider that was not ready
    /// may have taken flows. May take a second.
    ///
    /// # Errors
    ///
    /// The reason for which a provider cannot follow. It takes no flow then.
    pub fn follow_vlan_limit(&self) -> Result<(), Reason> {
        let mut control = self.control();
        let Control { ports, blockers, .. } = &mut *control;
        let mut result = Ok(());
        for (slot, provider) in self.slots.present() {
            if let Err(reason) = provider.follow_vlan_limit() {
                result = Err(reason);
                continue;
            }
            for (number, port) in &mut *ports {
                if provider.must_reattach(*number) {
                    self.place_port(*number, port, blockers, slot.tiers());
                }
            }
        }
        result
    }

    /// Keeps all ports out of the provider of these tiers, for this reason; `None` lets them in
    /// again.
    pub fn set_blocked(&self, tiers: TierSet, reason: Option<Reason>) {
        let mut control = self.control();
        let refusal = reason.as_ref().map(|reason| reason.refusal);
        let before = self.for_blockers(&mut control, tiers, |blockers| {
            std::mem::replace(&mut blockers.setting, reason)
        });
        let Some(before) = before else { return };
        if before.map(|reason| reason.refusal) == refusal {
            return;
        }
        if let Some(refusal) = refusal {
            self.close_ports(tiers, refusal);
        }
        drop(control);
        self.place_ports(tiers);
    }

    /// Withdraws all flows of these tiers, for this reason, and keeps others away. All ports are
    /// closed before, so that one call to the provider removes all flows.
    pub(crate) fn close_ports(&self, tiers: TierSet, reason: Refusal) {
        self.change_eligibility(|eligibility| {
            eligibility.ports.values_mut().for_each(|port| port.close(tiers, reason));
        });
        self.review();
    }

    /// Attaches all ports to the provider of `tiers` where the settings allow it. No flow of these
    /// tiers uses a port.
    pub(crate) fn place_ports(&self, tiers: TierSet) {
        let mut control = self.control();
        let Control { ports, blockers, .. } = &mut *control;
        for (number, port) in ports {
            match port.couples_providers() {
                true => self.place_port(*number, port, blockers, tiers),
                false => self.attach_port(*number, port, blockers, tiers),
            }
        }
        for (number, tunnel) in &control.tunnels {
            self.attach_tunnel(*number, tunnel, &control.blockers);
        }
        self.examine_dependents(&mut control, Ends::Poll);
    }

    /// Adds a tunnel port, which the base has, to the providers that pop its packets.
    fn place_tunnel(
        &self,
        control: &mut Control,
        number: PortNo,
        kind: tunnel::Kind,
        spec: &PortSpec,
    ) {
        let Some(config) = tunnel_config(kind, spec) else { return };
        let tunnel = Tunnel { config, device: None };
        control.tunnels.insert(number, tunnel);
        self.attach_tunnel(number, &tunnel, &control.blockers);
    }

    /// Adds a tunnel port to the providers that may have it, and records their tiers.
    fn attach_tunnel(&self, number: PortNo, tunnel: &Tunnel, blockers: &[Blockers]) {
        let mut eligibility = PortEligibility::default();
        for (slot, blockers) in self.slots.iter().zip(blockers) {
            let Some(provider) = slot.provider() else { continue };
            let tiers = provider.add_tunnel(number, &tunnel.config);
            provider.follow_tunnel_device(number, tunnel.device);
            if let Some(numbers) = provider.sequence_numbers(number) {
                self.base.share_sequence(number, numbers);
            }
            match blockers.check() {
                Ok(()) => eligibility.add_popping(tiers),
                Err(reason) => eligibility.close(tiers, reason.refusal),
            }
        }
        self.change_eligibility(|all| {
            match eligibility == PortEligibility::default() {
                true => all.ports.remove(&number),
                false => all.ports.insert(number, eligibility),
            };
        });
    }

    /// Ends the adoption, after the ports of the first configuration were added. Removes from the
    /// providers the ports that are not among them, and the adopted flows from these ports.
    pub fn finish_adoption(&self) {
        if self.slots.are_empty() {
            return;
        }
        let mut control = self.control();
        if !std::mem::replace(&mut control.adopting, false) {
            return;
        }
        let gone: Vec<PortNo> = control
            .reserved
            .iter()
            .filter(|r| control.ports.get(&r.number).is_none_or(|p| p.ifindex != Some(r.ifindex)))
            .map(|r| r.number)
            .collect();
        let is_gone = |number: &PortNo| !control.tunnels.contains_key(number);
        let tunnels = control.reserved_tunnels.iter().map(|(number, _)| *number).filter(is_gone);
        let gone: Vec<PortNo> = gone.into_iter().chain(tunnels).collect();
        for number in gone.iter().filter(|number| !control.ports.contains_key(number)) {
            self.slots.present().for_each(|(_, provider)| provider.remove_port(*number));
        }
        drop(control);
        let is_orphan = |ufid: &Ufid| {
            let held = self.slots.present().find_map(|(_, provider)| provider.flow(*ufid));
            held.is_some_and(|held| gone.contains(&PortNo(held.matching.key().in_port.get())))
        };
        let adopted = self.table.at(|place| place.state == PlacementState::Adopted);
        let orphans: Vec<Ufid> = adopted.into_iter().filter(is_orphan).collect();
        self.remove_many(&orphans, &mut |_, _| {});
    }

    /// Frees the reserved numbers when no adopted flow is left.
    pub(crate) fn release_numbers(&self) {
        if self.table.tally.adopted() == 0 {
            let mut control = self.control();
            if !control.adopting {
                control.reserved.clear();
                control.reserved_tunnels.clear();
            }
        }
    }

    /// Returns `spec` with the number that the port must get while numbers are reserved.
    fn spec_with_number(&self, spec: &PortSpec, control: &Control) -> PortSpec {
        let taken: BTreeSet<PortNo> = self.base.ports().into_iter().map(|p| p.number).collect();
        if let PortKind::Tunnel(kind) = spec.kind {
            let own = tunnel_config(kind, spec).and_then(|config| control.tunnel_number(&config));
            let free = || self.base.free_number(&|number| control.is_kept(number, None));
            let number = own.filter(|number| !taken.contains(number)).or_else(free);
            return PortSpec { wanted: number, ..spec.clone() };
        }
        let ifindex = self.base.ifindex(&spec.name);
        let is_kept = |number| control.is_kept(number, ifindex);
        // Else the base chooses. Flows of a removed port may still exist, so the base reuses its
        // number as late as possible.
        let number = control
            .number(ifindex, spec.wanted, &taken)
            .or_else(|| self.base.free_number(&is_kept));
        PortSpec { wanted: number, ..spec.clone() }
    }
}

/// Returns the configuration of a tunnel port, if its options are right.
fn tunnel_config(kind: tunnel::Kind, spec: &PortSpec) -> Option<tunnel::PortConfig> {
    let option = |name: &str| spec.options.get(name).map(String::as_str);
    tunnel::PortConfig::from_options(kind, option).ok()
}

/// Logs the tiers of a port, and the reasons of the others.
fn log_port(port: &Port) {
    let is_there = |state: &&datapath::offload::TierState| state.ingress.is_ok();
    let names: Vec<&str> = port.states().filter(is_there).map(|s| s.tier.name()).collect();
    if names.is_empty() {
        let nearest = port.states().next_back().and_then(|state| state.ingress.as_ref().err());
        if let Some(reason) = nearest {
            tracing::info!(target: "dpif", "{}: in userspace: {reason}", port.name);
        }
        return;
    }
    let mut text = format!("at {}", names.join(" and "));
    for how in port.states().filter(is_there).map(|s| s.how).filter(|how| !how.is_empty()) {
        text += &format!(" {how}");
    }
    for state in port.states() {
        if let Err(reason) = &state.ingress {
            text += &format!("; not at {}: {reason}", state.tier.name());
        }
    }
    tracing::info!(target: "dpif", "{}: {text}", port.name);
}

impl Ports for PlacedDatapath {
    fn add_port(&self, spec: &PortSpec) -> Result<PortNo, PortError> {
        let settings = self.settings(spec)?;
        let mut control = self.control();
        let number = if control.reserved.is_empty() && control.reserved_tunnels.is_empty() {
            self.base.add_port(spec)?
        } else {
            self.base.add_port(&self.spec_with_number(spec, &control))?
        };
        // A tunnel port has no device that a tier could be attached to.
        if let PortKind::Tunnel(kind) = spec.kind {
            self.place_tunnel(&mut control, number, kind, spec);
            return Ok(number);
        }
        let kind = self
            .base
            .device(number)
            .map(|device| device.kind())
            .or_else(|| spec.kind.device())
            .unwrap_or(Kind::Dummy);
        let side = Port::side_of(spec.kind, kind);
        let mut port = Port::new(&spec.name, kind, side, settings, &self.slots);
        if kind == Kind::System && self.base.opens_muted() {
            port.socket.reception = Reception::Off;
        }
        control.ports.insert(number, port);
        self.place_new_port(&mut control, number);
        Ok(number)
    }

    fn remove_port(&self, number: PortNo) -> Result<(), PortError> {
        let mut control = self.control();
        let is_placed = control.ports.remove(&number).is_some();
        if control.tunnels.remove(&number).is_none() && !is_placed {
            return self.base.remove_port(number);
        }
        control.reserved.retain(|r| r.number != number);
        control.reserved_tunnels.retain(|(reserved, _)| *reserved != number);
        self.change_eligibility(|eligibility| {
            eligibility.ports.remove(&number);
        });
        self.slots.present().for_each(|(_, provider)| provider.remove_port(number));
        drop(control);
        self.base.remove_port(number)
    }

    fn ports(&self) -> Vec<PortInfo> {
        self.base.ports()
    }

    fn device(&self, port: PortNo) -> Option<Arc<dyn Device>> {
        let device = self.base.device(port)?;
        Some(device::counted(device, self.slots.clone(), port))
    }

    fn set_tunnel_endpoints(&self, endpoints: &[TunnelEndpoint]) {
        let mut control = self.control();
        control.endpoints = endpoints.to_vec();
        self.slots.present().for_each(|(_, provider)| provider.set_tunnel_endpoints(endpoints));
        drop(control);
        self.base.set_tunnel_endpoints(endpoints);
    }

    fn set_qos(&self, number: PortNo, qos: Option<&QosRequest>) -> Result<Vec<String>, PortError> {
        let result = self.base.set_qos(number, qos);
        let own = self.base.device(number).and_then(|device| device.qos());
        let egress = match (qos, &result) {
            (Some(_), Ok(_)) => match own {
                Some(report) if report.is_senders() => EgressQos::Sender,
                // Also a discipline of another program (`linux-noop`).
                _ => EgressQos::Discipline,
            },
            _ => EgressQos::None,
        };
        self.change_port(&mut self.control(), number, |port, blockers| {
            if std::mem::replace(&mut port.egress, egress) != egress {
                self.place_port(number, port, blockers, self.slots.tiers());
            }
        });
        result
    }

    fn upcalls(&self, port: PortNo) -> Option<u64> {
        self.base.upcalls(port)
    }

    fn set_policing(&self, number: PortNo, policing: Policing) -> Result<(), PortError> {
        self.base.set_policing(number, policing)?;
        self.change_port(&mut self.control(), number, |port, blockers| {
            if std::mem::replace(&mut port.policing, policing) != policing {
                self.place_port(number, port, blockers, self.slots.tiers());
            }
        });
        Ok(())
    }
}
