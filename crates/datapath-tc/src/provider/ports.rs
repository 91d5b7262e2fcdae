// SPDX-License-Identifier: Apache-2.0
//! Ports of cards: which devices are, and their qdisc.

use super::state::{Port, Role};
use super::{CardProvider, OFFLOAD_PRIORITY, discard, remove_unused_qdisc};
use crate::filter::Policy;
use crate::kernel::{Facts, IngressQdisc, TrafficControl};
use datapath::offload::{OffloadPort, Reason, TierState};
use datapath::{PortNo, Refusal, Side, Tier};
use netdev::{Kind, Offload};

/// The state of a device that is no port of a card, which is the ordinary case and shown with no
/// flow.
fn no_card(detail: &str) -> TierState {
    TierState::refused(Tier::Tc, Reason::new(Refusal::DeviceKind, detail), false)
}

/// The state of a port that a card could take.
fn refused(refusal: Refusal, detail: impl Into<String>) -> TierState {
    TierState::refused(Tier::Tc, Reason::new(refusal, detail), true)
}

/// Returns true when the port's settings ask for filters in the kernel, too.
fn asks(port: &OffloadPort<'_>) -> bool {
    port.settings.tier == Some(Tier::Tc)
}

impl CardProvider {
    /// Makes a port one of the card, if it is one, or one whose packets meet filters in the kernel, if
    /// its settings ask for that. Others are devices that filters in the kernel may send to.
    pub(super) fn join(&self, port: &OffloadPort<'_>) -> TierState {
        self.leave(port.number);
        let ifindex = match port.ifindex {
            Some(ifindex) if port.kind == Kind::System && port.side != Side::Stack => ifindex,
            _ if asks(port) => {
                let detail = "filters of packets that the host sends are not made";
                return refused(Refusal::DeviceKind, detail);
            }
            _ => return no_card("the switch reaches it by no driver"),
        };
        let policy = self.state().policy;
        let is_underlay = port.side == Side::Underlay;
        let asks = asks(port) && !is_underlay;
        let in_kernel = asks && policy != Policy::SkipSoftware;
        let facts = match policy {
            Policy::SkipHardware if asks => Err(no_card("other_config:tc-policy=skip_hw")),
            Policy::SkipHardware => {
                let reason = Reason::new(Refusal::TierDisabled, "other_config:tc-policy=skip_hw");
                return TierState::refused(Tier::Tc, reason, false);
            }
            Policy::Both | Policy::SkipSoftware => self.facts(ifindex, port),
        };
        let (role, facts) = match facts {
            Ok(facts) if in_kernel => (Role::Both, facts),
            Ok(facts) => (Role::Card, facts),
            Err(_) if in_kernel => (Role::Kernel, Facts::none()),
            Err(_) if asks => {
                let detail =
                    "other_config:tc-policy=skip_sw leaves filters to cards, and it is none";
                return refused(Refusal::DeviceKind, detail);
            }
            Err(state) => {
                // The card's flows do not send to it, so the state remains.
                if !is_underlay {
                    let target = Port::target(ifindex, port.mtu);
                    self.state().ports.insert(port.number, target);
                }
                return TierState { output: output(port), ..state };
            }
        };
        let ingress = port.ingress.map_err(Reason::clone).and_then(|()| check_settings(port));
        let ingress = ingress.and_then(|()| match is_underlay {
            // The host's packets are not the switch's.
            true => Err(Reason::new(
                Refusal::DeviceKind,
                "a card takes packets of tunnels by filters at the tunnel's device",
            )),
            false => prepare(&mut **self.kernel(), ifindex),
        });
        let joined = Port {
            ifindex,
            facts,
            role,
            mtu: port.mtu,
            takes_packets: ingress.is_ok(),
            has_made_qdisc: ingress == Ok(true),
            is_underlay,
        };
        self.state().ports.insert(port.number, joined);
        let ingress = ingress.map(|_| ());
        let how = if role == Role::Kernel { "in the kernel" } else { "" };
        TierState { tier: Tier::Tc, ingress, output: output(port), how, is_expected: !is_underlay }
    }

    /// True when the kernel runs filters for the packets of a port.
    pub(super) fn is_in_kernel(&self, number: PortNo) -> bool {
        let state = self.state();
        state.ports.get(&number).is_some_and(|port| port.takes_packets && port.is_in_kernel())
    }

    /// True when the decision about a port may change without an event.
    pub(super) fn is_examined(&self, number: PortNo) -> bool {
        self.state().ports.get(&number).is_some_and(Port::has_card)
    }

    /// Returns the facts about a device whose driver takes filters. Enables that where it is off.
    fn facts(&self, ifindex: u32, port: &OffloadPort<'_>) -> Result<Facts, TierState> {
        let mut kernel = self.kernel();
        let mut facts =
            kernel.facts(ifindex, port.device).map_err(|error| no_card(&error.to_string()))?;
        match facts.offload {
            Offload::On => return Ok(facts),
            Offload::Fixed => return Err(no_card("its driver has no hw-tc-offload")),
            Offload::Off => {}
        }
        let remedy = format!("ethtool -K {} hw-tc-offload on", port.device);
        if !self.state().enabled.insert(ifindex) {
            let detail = format!("hw-tc-offload was disabled since; {remedy} enables it");
            return Err(refused(Refusal::CardOff, detail));
        }
        match kernel.enable_offload(port.device) {
            Ok(Offload::On) => {
                tracing::info!(target: "dpif", "{}: hw-tc-offload is on from now on: {remedy}", port.name);
                facts.offload = Offload::On;
                Ok(facts)
            }
            Ok(_) => Err(refused(Refusal::CardOff, format!("its driver declines: {remedy}"))),
            Err(error) => Err(refused(Refusal::CardOff, format!("{remedy}: {error}"))),
        }
    }

    /// True when [`CardProvider::join`] would decide otherwise than before.
    pub(super) fn has_changed(&self, port: &OffloadPort<'_>) -> bool {
        let Some(ifindex) = port.ifindex else { return false };
        let before = {
            let state = self.state();
            let before = state.ports.get(&port.number);
            // Flows from ports with longer packets are not sent to it.
            if before.is_some_and(|before| before.mtu != port.mtu) {
                return true;
            }
            if state.policy == Policy::SkipHardware {
                return false;
            }
            before.filter(|port| port.has_card()).map(|port| port.facts.clone())
        };
        let now = self.kernel().facts(ifindex, port.device).ok();
        let takes = |facts: &Facts| facts.offload == Offload::On;
        match (before, now) {
            (Some(before), Some(now)) => before != now,
            (Some(_), None) => true,
            (None, now) => now.as_ref().is_some_and(takes),
        }
    }

    /// Removes a port with its filters. Nothing happens when it is no port of a card.
    pub(super) fn leave(&self, number: PortNo) {
        let mut kernel = self.kernel();
        let removed = self.state().ports.remove(&number);
        let Some(port) = removed else { return };
        if port.is_underlay || port.role == Role::Target {
            return;
        }
        let result = discard(&mut **kernel, port.ifindex).and_then(|_| match port.has_made_qdisc {
            true => remove_unused_qdisc(&mut **kernel, port.ifindex),
            false => Ok(()),
        });
        if let Err(error) = result {
            tracing::warn!(
                target: "dpif",
                "device {}: filters stay, and forward ({error}): tc qdisc del dev DEVICE \
                 clsact removes them",
                port.ifindex,
            );
        }
    }
}

/// Checks whether filters may send to a port.
fn output(port: &OffloadPort<'_>) -> Result<(), Reason> {
    match port.egress.is_on() {
        true => Err(Reason::new(Refusal::Qos, "filters send past the QoS of the port")),
        false => Ok(()),
    }
}

/// Checks the settings of a port.
fn check_settings(port: &OffloadPort<'_>) -> Result<(), Reason> {
    if !port.settings.allow(Tier::Tc) {
        return Err(Reason::new(Refusal::TierSetting, "other_config:tier of this port"));
    }
    let mut providers = port.settings.get(OFFLOAD_PRIORITY).unwrap_or("tc").split(',');
    if !providers.any(|word| word.trim() == "tc") {
        let detail = format!("other_config:{OFFLOAD_PRIORITY} of this port");
        return Err(Reason::new(Refusal::TierSetting, detail));
    }
    Ok(())
}

/// Makes a device ready for filters, and removes those that an earlier daemon left. Returns true when
/// this made its qdisc.
pub(super) fn prepare(kernel: &mut dyn TrafficControl, ifindex: u32) -> Result<bool, Reason> {
    let failed = |error: netlink::Error| {
        let refusal = match error.errno() {
            Some(1 | 13) => Refusal::NoPermission, // EPERM, EACCES
            Some(2) => Refusal::KernelTooOld,      // ENOENT: no such kind of qdisc
            _ => Refusal::TierUnavailable,
        };
        Reason::new(refusal, format!("the qdisc clsact: {error}"))
    };
    discard(kernel, ifindex).map_err(failed)?;
    match kernel.ingress_qdisc(ifindex).map_err(failed)? {
        IngressQdisc::Own => Ok(false),
        IngressQdisc::None => kernel.add_clsact(ifindex).map(|()| true).map_err(failed),
        IngressQdisc::Shared(block) => {
            let detail = format!("its ingress is in block {block}, which other devices share");
            Err(Reason::new(Refusal::HookBusy, detail))
        }
    }
}
