// SPDX-License-Identifier: Apache-2.0
//! The contract's ports, and which tiers each is attached to.

use crate::TierSet;
use crate::control::{Bars, Control, Port, TierState, not_yet};
use crate::device;
use crate::fast_path::{Attachment, FastPath, Reason};
use crate::fit::{self, Wish};
use crate::gates::Gate;
use crate::placed::PlacedDatapath;
use crate::table::Place;
use datapath::{
    Flows, Megaflow, PortError, PortInfo, PortNo, PortSpec, Ports, Refusal, Side, Tier, Ufid,
};
use datapath_bpf::XdpMode;
use netdev::{Device, Endpoint, Kind, Reception, Status};
use std::path::PathBuf;
use std::sync::Arc;

fn option_error(name: &str, problem: String) -> PortError {
    PortError::Option { name: name.to_owned(), problem }
}

fn wish(spec: &PortSpec) -> Result<Wish, PortError> {
    Wish::parse(spec.other_config.get("tier").map(String::as_str))
        .map_err(|problem| option_error(&spec.name, problem))
}

fn mode(spec: &PortSpec) -> Result<XdpMode, PortError> {
    fit::parse_mode(spec.other_config.get("xdp-mode").map(String::as_str))
        .map_err(|problem| option_error(&spec.name, problem))
}

fn object(spec: &PortSpec) -> Option<PathBuf> {
    spec.options.get("bpf-object").map(PathBuf::from)
}

/// The kernel lets programs put a header before packets of up to 16,064 bytes with it
/// (`SKB_MAX_ALLOC`, with pages of 4 KiB); a miss goes up behind one. Room is left for tags.
const LONGEST_MTU: u32 = 16_000;

/// Whether its misses can go up, however long they are.
fn fits_the_header(port: &Port) -> Result<(), Reason> {
    if port.mtu <= LONGEST_MTU {
        return Ok(());
    }
    let detail = format!(
        "its MTU of {} is above {LONGEST_MTU}: so long a packet without a flow could not be sent up",
        port.mtu
    );
    Err(Reason::new(Refusal::DeviceKind, detail))
}

/// Devices that a fast path can be attached to.
fn is_kernels(kind: Kind) -> bool {
    matches!(kind, Kind::System | Kind::Internal | Kind::Tap)
}

impl PlacedDatapath {
    /// Reads the device anew. True when something changed that tiers depend on.
    fn look_at(&self, number: PortNo, port: &mut Port) -> bool {
        let status = self.base.device(number).and_then(|device| device.status().ok());
        let before = (port.ifindex, judgement(port));
        port.ifindex = status.as_ref().and_then(Status::ifindex_here);
        port.is_away = status.as_ref().is_some_and(|s| s.is_away);
        if let Some(status) = &status {
            (port.mtu, port.up) = (status.mtu, status.admin_up);
            if is_kernels(port.kind) && !port.is_away {
                port.facts = self.prober.xdp_facts(&status.current_name);
            }
        }
        before != (port.ifindex, judgement(port))
    }

    /// Why the port is to be at no fast tier, if so.
    fn check(port: &Port, bars: &Bars) -> Result<(), Reason> {
        bars.check()?;
        if !is_kernels(port.kind) {
            let detail = format!("{} ports have no skb hook", port.kind);
            return Err(Reason::new(Refusal::DeviceKind, detail));
        }
        if port.is_away {
            let detail = "its device is in another network namespace, and the kernel forwards \
                          between devices of one";
            return Err(Reason::new(Refusal::PortNotHere, detail));
        }
        if port.ifindex.is_none() {
            return Err(Reason::new(Refusal::PortNotHere, "its device is gone"));
        }
        if port.wish == Wish::Userspace {
            let detail = "other_config:tier=userspace of this port";
            return Err(Reason::new(Refusal::TierSetting, detail));
        }
        if port.policed {
            let detail = "ingress_policing_rate is set; 0 turns it off";
            return Err(Reason::new(Refusal::Policing, detail));
        }
        fits_the_header(port)
    }

    /// Looks at the other ends of pairs of virtual devices. What they do with packets that XDP
    /// sends there, and what they send, changes without a word to this end: GRO or checksums that
    /// are switched over there, a program that is put there or goes. Costs some system calls for
    /// each such port, and none where XDP is not at stake; call it each few seconds.
    pub fn look_at_peers(&self) {
        self.look_at_peers_of(&mut self.control(), |_| true);
    }

    /// Something may have changed at these interfaces: what [`PlacedDatapath::look_at_peers`] does,
    /// of ports that they are, or that they are the other ends of.
    pub fn ends_changed(&self, ends: &[Endpoint]) {
        let is_theirs = |port: &Port| {
            let own = port.ifindex.map(|index| Endpoint { namespace: None, index });
            [own, port.facts.end].into_iter().flatten().any(|end| ends.contains(&end))
        };
        self.look_at_peers_of(&mut self.control(), is_theirs);
    }

    fn look_at_peers_of(&self, control: &mut Control, which: impl Fn(&Port) -> bool) {
        let at_xdp = control.is_at_xdp();
        let Control { ports, bars, .. } = control;
        let heed = |port: &Port| port.heeds_peer(at_xdp) && which(port);
        for (number, port) in ports.iter_mut().filter(|(_, port)| heed(port)) {
            if self.look_at(*number, port) {
                self.place_port(*number, port, bars);
            }
        }
    }

    /// Changes a port. The first that is at XDP makes a difference to others: XDP may now redirect
    /// to them.
    fn change_port<T>(
        &self,
        control: &mut Control,
        number: PortNo,
        change: impl FnOnce(&mut Port, &Bars) -> T,
    ) -> Option<T> {
        let before = control.is_at_xdp();
        let Control { ports, bars, .. } = &mut *control;
        let done = change(ports.get_mut(&number)?, bars);
        if !before && control.is_at_xdp() {
            self.look_at_peers_of(control, |_| true);
        }
        Some(done)
    }

    /// Attaches the port to the tiers that it is to be on. The gate is closed until then, and
    /// what flows had of it is taken back before.
    fn place_port(&self, number: PortNo, port: &mut Port, bars: &Bars) {
        if port.attached != TierSet::NONE || port.is_target {
            self.close_gate(number, port, bars);
        }
        let Some(fast) = self.fast_path() else {
            port.tcx = Self::check(port, bars);
            port.xdp = port.tcx.clone();
            return;
        };
        port.tcx = Self::check(port, bars);
        self.equip(&**fast, number, port);
        if port.tcx.is_err() {
            self.give_back(&**fast, number, port);
        }
        let can_target = bars.check().is_ok() && is_kernels(port.kind);
        match port.ifindex.filter(|_| can_target) {
            Some(ifindex) => self.attach(&**fast, number, port, ifindex),
            None => {
                fast.detach(number);
                port.xdp = port.tcx.clone();
                port.redirect = Err(port.tcx.clone().err().unwrap_or_else(not_yet));
            }
        }
        let reception = if port.attached.is_empty() { Reception::On } else { Reception::Off };
        self.hear(number, port, reception);
        log_port(port);
        let gate = port.gate();
        self.change_gates(|gates| {
            gates.ports.insert(number, gate);
        });
    }

    /// No flow uses the port in a fast tier any more.
    fn close_gate(&self, number: PortNo, port: &mut Port, bars: &Bars) {
        port.attached = TierSet::NONE;
        port.is_target = false;
        port.redirect = Err(not_yet());
        let closed = Self::check(port, bars).err().map_or(Refusal::PortNotHere, |r| r.refusal);
        let gate = Gate { closed, ..port.gate() };
        self.change_gates(|gates| {
            gates.ports.insert(number, gate);
        });
        self.review();
    }

    fn attach(&self, fast: &dyn FastPath, number: PortNo, port: &mut Port, ifindex: u32) {
        let (side, mode, mtu, up) = (port.side(), port.mode, port.mtu, port.up);
        let attach =
            |tiers| fast.attach(number, &Attachment { ifindex, side, tiers, mode, mtu, up });
        if port.tcx.is_ok() {
            let attach = || attach(TierSet::TCX);
            port.tcx = self.take_over(fast, number, port, ifindex, attach);
        }
        if port.tcx.is_err() {
            port.is_target = attach(TierSet::NONE).is_ok();
            port.xdp = port.tcx.clone();
        } else {
            port.attached = TierSet::TCX;
            port.is_target = true;
            port.xdp = match port.side() {
                Side::Device => fit::xdp_fit(&port.facts, port.xdp_wish(), port.mode),
                Side::Stack => {
                    Err(Reason::new(Refusal::DeviceKind, "packets of the host are no raw frames"))
                }
            };
            if port.xdp.is_ok() {
                port.xdp = fast.use_object(number, port.object.as_deref());
            }
            if port.xdp.is_ok() {
                port.xdp = attach(TierSet::XDP_AND_TCX);
                match &port.xdp {
                    Ok(()) => port.attached = TierSet::XDP_AND_TCX,
                    // It may be gone altogether.
                    Err(_) => match attach(TierSet::TCX) {
                        Ok(()) => {}
                        Err(reason) => {
                            (port.attached, port.is_target) = (TierSet::NONE, false);
                            port.tcx = Err(reason);
                        }
                    },
                }
            }
        }
        let has_xdp = port.attached.has(Tier::Xdp) && port.mode == XdpMode::Driver;
        port.redirect = match port.is_target {
            true => fit::redirect_fit(&port.facts, port.kind, has_xdp).and_then(|()| {
                fast.set_split_target(number, fit::takes_split_frames(&port.facts));
                fast.set_redirect_target(number, true)
            }),
            false => Err(port.tcx.clone().err().unwrap_or_else(not_yet)),
        };
        if port.is_target && port.redirect.is_err() {
            // It may have been one; no flow uses it as such now.
            let _ = fast.set_redirect_target(number, false);
        }
    }

    /// The tiers of a port, fastest first; `None` without such a port.
    pub fn tiers(&self, number: PortNo) -> Option<Vec<TierState>> {
        let control = self.control();
        let port = control.ports.get(&number)?;
        Some(vec![
            TierState { tier: Tier::Xdp, state: port.xdp.clone(), how: fit::how(port.mode) },
            TierState { tier: Tier::Tcx, state: port.tcx.clone(), how: "" },
            TierState { tier: Tier::Userspace, state: Ok(()), how: "" },
        ])
    }

    /// What there is to say of a port's `options:bpf-object`, in lines; none when it has none.
    pub fn about_object(&self, number: PortNo) -> Vec<String> {
        let object = self.control().ports.get(&number).and_then(|port| port.object.clone());
        let known = || self.fast_path().and_then(|fast| fast.about_object(number));
        object.map_or_else(Vec::new, |path| crate::about_object(&path, known()))
    }

    /// Whether flows at XDP may output to a port, or why not.
    pub fn redirect_state(&self, number: PortNo) -> Option<Result<(), Reason>> {
        self.control().ports.get(&number).map(|port| port.redirect.clone())
    }

    /// The settings of a port's row have changed: `other_config:tier` or `xdp-mode`, or
    /// `options:bpf-object`.
    ///
    /// # Errors
    ///
    /// One of the first two is no word that there is; the port stays as it is.
    pub fn retier(&self, number: PortNo, spec: &PortSpec) -> Result<(), PortError> {
        let (wish, mode, object) = (wish(spec)?, mode(spec)?, object(spec));
        let change = |port: &mut Port, bars: &Bars| {
            if (port.wish, port.mode, &port.object) != (wish, mode, &object) {
                (port.wish, port.mode, port.object) = (wish, mode, object);
                self.look_at(number, port);
                self.place_port(number, port, bars);
            }
        };
        self.change_port(&mut self.control(), number, change)
            .ok_or_else(|| PortError::NotFound(number.to_string()))
    }

    /// The device of a port, or what it is connected to, may have changed: up or down, MTU,
    /// offloads, the other end of a veth pair.
    pub fn refresh(&self, number: PortNo) {
        let change = |port: &mut Port, bars: &Bars| {
            let (mtu, up) = (port.mtu, port.up);
            if self.look_at(number, port) {
                self.place_port(number, port, bars);
            } else if (mtu, up) != (port.mtu, port.up)
                && port.is_target
                && let Some(fast) = self.fast_path()
            {
                fast.set_port(number, port.mtu, port.up);
            }
        };
        self.change_port(&mut self.control(), number, change);
    }

    /// Somebody else has read a port's status. When it is not as it was when this last looked,
    /// this looks again: of two who read it at different times neither may miss what happened
    /// between. Without a system call when it is.
    pub fn compare(&self, number: PortNo, status: &Status) {
        let differs = |port: &Port| {
            (port.ifindex, port.mtu, port.up)
                != (status.ifindex_here(), status.mtu, status.admin_up)
        };
        let differs = self.control().ports.get(&number).is_some_and(differs);
        if differs {
            self.refresh(number);
        }
    }

    /// [`flow::extract::set_vlan_limit`] was called, and flows were flushed: the fast path follows.
    /// To be flushed again afterwards, because of flows that found it not ready. May take a second.
    ///
    /// # Errors
    ///
    /// Why it cannot; flows stay in the base.
    pub fn follow_vlan_limit(&self) -> Result<(), Reason> {
        let Some(fast) = self.fast_path() else { return Ok(()) };
        let mut control = self.control();
        fast.follow_vlan_limit()?;
        // Users' programs were loaded for the old limit.
        let Control { ports, bars, .. } = &mut *control;
        for (number, port) in ports.iter_mut().filter(|(_, port)| port.object.is_some()) {
            self.place_port(*number, port, bars);
        }
        Ok(())
    }

    /// `other_config:bpf-offload`: with `false` everything goes through the base.
    pub fn set_enabled(&self, enabled: bool) {
        let mut control = self.control();
        if std::mem::replace(&mut control.bars.is_disabled, !enabled) != enabled {
            return;
        }
        if !enabled {
            self.close_gates(Refusal::TierDisabled);
        }
        drop(control);
        self.place_ports();
    }

    /// No flow uses any port in a fast tier any more, for this reason. All gates are closed first,
    /// so that flows leave in one go.
    pub(crate) fn close_gates(&self, reason: Refusal) {
        self.change_gates(|gates| {
            for gate in gates.ports.values_mut() {
                gate.tiers = TierSet::NONE;
                gate.closed = reason;
                gate.is_target = false;
            }
        });
        self.review();
    }

    /// Brings all ports in line with the settings, when no flow uses one.
    pub(crate) fn place_ports(&self) {
        let mut control = self.control();
        let Control { ports, bars, .. } = &mut *control;
        for (number, port) in ports {
            (port.attached, port.is_target) = (TierSet::NONE, false);
            self.place_port(*number, port, bars);
        }
        self.look_at_peers_of(&mut control, |_| true);
    }

    /// Where a flow would run that was installed now.
    ///
    /// # Errors
    ///
    /// Why it would be in the base only.
    pub fn would_run(&self, flow: &Megaflow) -> Result<Tier, Refusal> {
        let fast = match self.fast_path() {
            Some(fast) => fast,
            None => return Err(self.no_fast_path().unwrap_or(Refusal::TierUnavailable)),
        };
        let allowed = self.decide(flow)?;
        let tiers = fast.would_take(flow, allowed.tiers)?;
        tiers.fastest().ok_or(Refusal::UnsupportedAction)
    }

    /// The ports of the first configuration are there. What the fast path holds of ports that
    /// are not among them is let go.
    pub fn finish_adoption(&self) {
        let Some(fast) = self.fast_path() else { return };
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
        for number in &gone {
            if !control.ports.contains_key(number) {
                fast.detach(*number);
                fast.forget_counts(*number);
            }
        }
        drop(control);
        let is_orphan = |ufid: &Ufid| {
            fast.flow(*ufid)
                .is_some_and(|held| gone.contains(&PortNo(held.matching.key().in_port.get())))
        };
        let adopted = self.table.at(|place| matches!(place, Place::Adopted(_)));
        let orphans: Vec<Ufid> = adopted.into_iter().filter(is_orphan).collect();
        self.remove_many(&orphans, &mut |_, _| {});
    }

    /// When no adopted flow is left, numbers are free for any device.
    pub(crate) fn release_numbers(&self) {
        if self.table.tally.adopted() == 0 {
            let mut control = self.control();
            if !control.adopting {
                control.reserved.clear();
            }
        }
    }

    fn spec_with_number(&self, spec: &PortSpec, control: &Control) -> PortSpec {
        let ifindex = self.prober.ifindex(&spec.name);
        let taken = self.base.ports().into_iter().map(|p| p.number).collect();
        let is_kept = |number| control.is_kept(number, ifindex);
        // Else the base chooses: flows of a port that is gone may still be there, and it gives a
        // number again as late as it can.
        let number = control
            .number(ifindex, spec.wanted, &taken)
            .or_else(|| self.base.free_number(&is_kept));
        PortSpec { wanted: number, ..spec.clone() }
    }
}

/// What a port's place depends on, of all that is known of its device: not on every fact, because
/// the other end of a veth pair can be looked at or not as processes there come and go.
fn judgement(port: &Port) -> [Option<Refusal>; 4] {
    let refusal = |fit: Result<(), Reason>| fit.err().map(|reason| reason.refusal);
    [
        refusal(fits_the_header(port)),
        refusal(fit::xdp_fit(&port.facts, port.xdp_wish(), port.mode)),
        refusal(fit::redirect_fit(&port.facts, port.kind, false)),
        refusal(fit::redirect_fit(&port.facts, port.kind, true)),
    ]
}

fn log_port(port: &Port) {
    let fast: Vec<&str> = port.attached.tiers().map(Tier::name).collect();
    match (&port.tcx, &port.xdp) {
        (Err(reason), _) => {
            tracing::info!(target: "dpif", "{}: in userspace: {reason}", port.name);
        }
        (Ok(()), Err(reason)) => {
            tracing::info!(target: "dpif", "{}: at {}; not at xdp: {reason}", port.name, fast.join(" and "));
        }
        (Ok(()), Ok(())) => {
            let text = format!("at {} {}", fast.join(" and "), fit::how(port.mode));
            tracing::info!(target: "dpif", "{}: {}", port.name, text.trim_end());
        }
    }
}

impl Ports for PlacedDatapath {
    fn add_port(&self, spec: &PortSpec) -> Result<PortNo, PortError> {
        let (wish, mode) = (wish(spec)?, mode(spec)?);
        let mut control = self.control();
        let number = if control.reserved.is_empty() {
            self.base.add_port(spec)?
        } else {
            self.base.add_port(&self.spec_with_number(spec, &control))?
        };
        let kind = self
            .base
            .device(number)
            .map(|device| device.kind())
            .or_else(|| Kind::from_type(&spec.kind))
            .unwrap_or(Kind::Dummy);
        let mut port = Port::new(&spec.name, kind, wish);
        (port.mode, port.object) = (mode, object(spec));
        if kind == Kind::System && self.base.opens_muted() {
            port.reception = Reception::Muted;
        }
        control.ports.insert(number, port);
        self.change_port(&mut control, number, |port, bars| {
            self.look_at(number, port);
            self.place_port(number, port, bars);
        });
        Ok(number)
    }

    fn remove_port(&self, number: PortNo) -> Result<(), PortError> {
        let mut control = self.control();
        if control.ports.remove(&number).is_none() {
            return self.base.remove_port(number);
        }
        control.reserved.retain(|r| r.number != number);
        self.change_gates(|gates| {
            gates.ports.remove(&number);
        });
        if let Some(fast) = self.fast_path() {
            fast.detach(number);
            fast.forget_counts(number); // the next port of this number begins with none
        }
        drop(control);
        self.base.remove_port(number)
    }

    fn ports(&self) -> Vec<PortInfo> {
        self.base.ports()
    }

    fn device(&self, port: PortNo) -> Option<Arc<dyn Device>> {
        let device = self.base.device(port)?;
        let side = Port::side_of(device.kind());
        Some(device::counted(device, self.fast_path(), port, side))
    }

    fn set_policing(&self, number: PortNo, rate_kbps: u32, burst_kb: u32) -> Result<(), PortError> {
        self.base.set_policing(number, rate_kbps, burst_kb)?;
        let policed = rate_kbps != 0;
        self.change_port(&mut self.control(), number, |port, bars| {
            if std::mem::replace(&mut port.policed, policed) != policed {
                self.place_port(number, port, bars);
            }
        });
        Ok(())
    }
}
