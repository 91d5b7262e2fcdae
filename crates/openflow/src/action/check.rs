// SPDX-License-Identifier: Apache-2.0
//! Checks whether actions make sense for the packets of a flow.
//!
//! The check walks a list with the known properties of the packet: at first the match, then changed
//! by each action as the packet is (a VLAN header pushed, an MPLS header in place of IP). An action
//! is inconsistent when it needs a property that the packet is not known to have.
//!
//! OpenFlow 1.0 has no such rule for its own set actions; there they do nothing to packets that
//! they do not fit. Set-field, move, load and all other actions that name fields are checked in
//! every version.

use super::operand::{mpls_ethertype, output_port};
use super::verify;
use super::{
    Action, Ct, CtZone, Learn, LearnSource, LearnSpec, LearnTarget, NatAddresses, ObservationId,
};
use crate::{OfError, PortNo, Version};
use flow::field::Prerequisite;
use flow::{Field, FieldValue, Match, NAMESPACE_ETHERTYPE, Subfield, VLAN_CFI, ct_state};
use packet::ip_proto;

/// Highest meter number (OFPM13_MAX).
const METER_MAX: u32 = 0xffff_0000;
/// Ports that stand for the protocols of helpers.
const FTP: u16 = 21;
const TFTP: u16 = 69;
/// VLAN headers that a packet can be known to have.
const VLANS: usize = flow::VLANS;

/// The facts, other than the match, that actions are checked against.
#[derive(Clone, Copy, Debug)]
pub struct CheckContext {
    /// Version that they came in.
    pub version: Version,
    /// First number above those that ports can have; [`PortNo::MAX`] when any may be.
    pub max_ports: PortNo,
    /// Table of the flow; `None` when not known (then goto_table goes anywhere).
    pub table_id: Option<u8>,
    /// Number of tables, at most 255; `None` when not known.
    pub n_tables: Option<u8>,
}

/// Checks the actions of a flow with `matching`, or of a packet-out with the known properties of
/// its packet.
///
/// # Errors
/// OFPBAC_BAD_OUT_PORT; OFPBAC_MATCH_INCONSISTENT for a field whose prerequisites the packet is
/// not known to have; OFPBAC_BAD_SET_ARGUMENT for a read-only field; OFPBAC_BAD_SET_LEN for bits
/// that a field has not; OFPBAC_BAD_TAG for too many VLAN headers; OFPBIC_BAD_TABLE_ID for
/// goto_table backwards or beyond the tables; OFPMMFC_INVALID_METER; OFPBAC_UNSUPPORTED_ORDER
/// and OFPBIC_UNSUP_INST for instructions out of place; NXBAC_BAD_CONJUNCTION.
pub fn check(actions: &[Action], matching: &Match, context: &CheckContext) -> Result<(), OfError> {
    verify::list(actions, context.version, true).map_err(|p| p.error())?;
    let mut walk = Walk::new(matching, context);
    walk.list(actions)?;
    // As in OVS, this error is reported only when no other error is found.
    if walk.inconsistent { Err(OfError::OFPBAC_MATCH_INCONSISTENT) } else { Ok(()) }
}

/// Checks that all parts of fields are within them. [`check`] does so, too; this is for actions of
/// which not more is known.
///
/// # Errors
/// OFPBAC_BAD_SET_LEN.
pub(crate) fn check_parts(actions: &[Action]) -> Result<(), OfError> {
    actions.iter().try_for_each(|action| match action {
        Action::Learn(learn) => learn.specs.iter().try_for_each(learned_parts),
        other => check_parts(other.nested()), // their own parts are checked where they are decoded
    })
}

fn learned_parts(spec: &LearnSpec) -> Result<(), OfError> {
    if let LearnSource::Field(part) = spec.src {
        readable(part, |_| true)?;
    }
    match spec.dst {
        LearnTarget::Match(part) | LearnTarget::Load(part) => readable(part, |_| true),
        LearnTarget::Output => Ok(()),
    }
}

/// A packet type that is no packet's.
const UNKNOWN_PACKET_TYPE: u32 = 0xffff;

/// The packet as it is known to be.
struct Walk<'a> {
    context: &'a CheckContext,
    packet: Match,
    /// VLAN headers known to be there.
    vlans: usize,
    /// The list is an action set. Its order does not count, so `consistent` refuses nothing there.
    action_set: bool,
    /// An action was met that OpenFlow 1.0 alone admits for such packets.
    inconsistent: bool,
}

impl<'a> Walk<'a> {
    fn new(matching: &Match, context: &'a CheckContext) -> Walk<'a> {
        let vlans =
            matching.key().vlans.iter().take_while(|vlan| vlan.tci.get() & VLAN_CFI != 0).count();
        let mut packet = *matching;
        // In a packet without Ethernet header, the packet type gives the Ethernet type.
        let packet_type = matching.key().packet_type.get();
        if packet_type != 0 {
            let is_ethertype = packet_type >> 16 == NAMESPACE_ETHERTYPE;
            let ethertype = if is_ethertype { packet_type & 0xffff } else { 0 };
            packet.set(Field::EthType, ethertype.into());
        }
        Walk { context, packet, vlans, action_set: false, inconsistent: false }
    }

    fn list(&mut self, actions: &[Action]) -> Result<(), OfError> {
        actions.iter().try_for_each(|action| self.check_action(action))
    }

    fn holds(&self, prerequisite: Prerequisite) -> bool {
        match prerequisite {
            Prerequisite::Vlan => self.vlans > 0,
            _ => prerequisite.holds_for_match(&self.packet),
        }
    }

    /// Notes an inconsistency unless `fits`. OpenFlow 1.0 and action sets are exempt.
    fn consistent(&mut self, fits: bool) {
        self.inconsistent |= !fits && !self.action_set && self.context.version != Version::V10;
    }

    fn needs(&mut self, prerequisite: Prerequisite) {
        self.consistent(self.holds(prerequisite));
    }

    /// The packet has that Ethernet type from here on, if it has an Ethernet header.
    fn has_type(&mut self, ethertype: u16) {
        if self.holds(Prerequisite::Ethernet) {
            self.packet.set(Field::EthType, ethertype.into());
        }
    }

    fn readable(&self, part: Subfield) -> Result<(), OfError> {
        readable(part, |p| self.holds(p))
    }

    fn writable(&self, part: Subfield) -> Result<(), OfError> {
        writable(part, |p| self.holds(p))
    }

    fn port(&self, port: PortNo) -> Result<(), OfError> {
        output_port(port)?;
        if port.0 < PortNo::MAX.0 && port.0 >= self.context.max_ports.0 {
            return Err(OfError::OFPBAC_BAD_OUT_PORT);
        }
        Ok(())
    }

    fn check_action(&mut self, action: &Action) -> Result<(), OfError> {
        match action {
            Action::Output { port, .. } | Action::OutputTrunc { port, .. } => self.port(*port),
            Action::Enqueue { port, .. } => match *port {
                PortNo::IN_PORT | PortNo::LOCAL => Ok(()),
                port if port.0 < self.context.max_ports.0.min(PortNo::MAX.0) => Ok(()),
                _ => Err(OfError::OFPBAC_BAD_OUT_PORT),
            },
            Action::OutputReg { src, .. } => self.readable(*src),
            Action::Sample { obs_domain, obs_point, .. } => {
                [obs_domain, obs_point].into_iter().try_for_each(|id| match id {
                    ObservationId::Field(src) => self.readable(*src),
                    ObservationId::Number(_) => Ok(()),
                })
            }
            Action::Bundle(bundle) => {
                if let Some(dst) = bundle.dst {
                    self.writable(dst)?;
                }
                bundle.members.iter().try_for_each(|port| match *port {
                    PortNo::NONE => Ok(()),
                    PortNo::CONTROLLER => Err(OfError::OFPBAC_BAD_OUT_PORT),
                    port => self.port(port),
                })
            }
            Action::SetField { field, value, .. } => self.set_field(*field, *value),
            // The decoder has checked them, and they need no field of the packet.
            Action::SetOption(_) | Action::SetTunnel { .. } => Ok(()),
            Action::DeleteField(field) if field.option().is_some() => Ok(()),
            Action::DeleteField(_) => Err(OfError::OFPBAC_BAD_ARGUMENT),
            Action::Move { src, dst } => {
                self.readable(*src)?;
                self.writable(*dst)
            }
            Action::StackPush(part) => self.readable(*part),
            Action::StackPop(part) => self.writable(*part),
            Action::Multipath(multipath) => self.writable(multipath.dst),
            Action::CheckPktLarger { dst, .. } => writable(*dst, |_| true),
            Action::SetVlanVid { push_if_missing, .. }
            | Action::SetVlanPcp { push_if_missing, .. } => {
                if !push_if_missing {
                    self.needs(Prerequisite::Vlan);
                }
                self.vlans = self.vlans.max(1);
                Ok(())
            }
            Action::PopVlan { .. } => {
                self.needs(Prerequisite::Vlan);
                self.vlans = self.vlans.saturating_sub(1);
                Ok(())
            }
            Action::PushVlan { .. } => {
                if self.vlans >= VLANS {
                    return Err(OfError::OFPBAC_BAD_TAG);
                }
                self.vlans += 1;
                Ok(())
            }
            Action::SetIpv4Src(_) | Action::SetIpv4Dst(_) => {
                self.needs(Prerequisite::Ipv4);
                Ok(())
            }
            Action::SetIpDscp(_)
            | Action::SetIpEcn(_)
            | Action::SetIpTtl(_)
            | Action::DecTtl { .. } => {
                self.needs(Prerequisite::IpAny);
                Ok(())
            }
            Action::SetL4Src(_) | Action::SetL4Dst(_) => {
                let of = [Prerequisite::Tcp, Prerequisite::Udp, Prerequisite::Sctp];
                self.consistent(of.into_iter().any(|p| self.holds(p)));
                Ok(())
            }
            Action::SetMplsLabel(_)
            | Action::SetMplsTc(_)
            | Action::SetMplsTtl(_)
            | Action::DecMplsTtl => {
                self.needs(Prerequisite::Mpls);
                Ok(())
            }
            Action::PushMpls { ethertype } => {
                mpls_ethertype(*ethertype)?;
                self.needs(Prerequisite::Ethernet);
                self.has_type(*ethertype);
                // The header after an MPLS header is no longer known.
                self.packet.clear(Field::IpProto);
                Ok(())
            }
            Action::PopMpls { ethertype } => {
                self.needs(Prerequisite::Ethernet);
                self.needs(Prerequisite::Mpls);
                self.has_type(*ethertype);
                Ok(())
            }
            Action::Encap(encap) => {
                self.packet.set(Field::PacketType, encap.header.packet_type().into());
                if let Some(ethertype) = encap.header.ethertype() {
                    self.packet.set(Field::EthType, ethertype.into());
                }
                if !self.holds(Prerequisite::IpAny) {
                    self.packet.clear(Field::IpProto);
                }
                Ok(())
            }
            Action::Decap { .. } => {
                let key = self.packet.key();
                let (packet_type, ethertype) = match key.packet_type.get() {
                    0 => (
                        NAMESPACE_ETHERTYPE << 16 | u32::from(key.dl_type.get()),
                        key.dl_type.get(),
                    ),
                    // The header below is known only once the packet is looked up again.
                    _ => (UNKNOWN_PACKET_TYPE, u16::MAX),
                };
                self.packet.set(Field::PacketType, packet_type.into());
                self.packet.set(Field::EthType, ethertype.into());
                Ok(())
            }
            Action::DecNshTtl => {
                self.needs(Prerequisite::Nsh);
                Ok(())
            }
            Action::FinTimeout { .. } => {
                self.needs(Prerequisite::Tcp);
                Ok(())
            }
            Action::Learn(learn) => self.learn(learn),
            Action::Ct(ct) => self.ct(ct),
            Action::Nat(nat) => {
                let fits = match nat.addresses {
                    NatAddresses::Any => Prerequisite::IpAny,
                    NatAddresses::V4(..) => Prerequisite::Ipv4,
                    NatAddresses::V6(..) => Prerequisite::Ipv6,
                };
                if self.holds(fits) { Ok(()) } else { Err(OfError::OFPBAC_MATCH_INCONSISTENT) }
            }
            Action::Clone(nested) => {
                verify::apply_only(nested, self.context.version)?;
                let (packet, vlans) = (self.packet, self.vlans);
                let result = self.list(nested);
                (self.packet, self.vlans) = (packet, vlans);
                result
            }
            Action::WriteActions(set) => {
                if set.iter().any(|a| a.action_set_slot().is_none()) {
                    return Err(OfError::OFPBAC_BAD_TYPE);
                }
                let mut walk = Walk { packet: self.packet, action_set: true, ..*self };
                walk.list(set)
            }
            Action::Meter(id) => {
                if *id == 0 || *id > METER_MAX {
                    return Err(OfError::OFPMMFC_INVALID_METER);
                }
                Ok(())
            }
            Action::GotoTable(table) => {
                let backwards = self.context.table_id.is_some_and(|own| *table <= own);
                let beyond = self.context.n_tables.is_some_and(|n| n != u8::MAX && *table >= n);
                if backwards || beyond || (*table == u8::MAX && self.context.n_tables.is_some()) {
                    return Err(OfError::OFPBIC_BAD_TABLE_ID);
                }
                Ok(())
            }
            Action::Resubmit { original_tuple: true, .. } => {
                if self.holds(Prerequisite::Ct) {
                    Ok(())
                } else {
                    Err(OfError::OFPBAC_MATCH_INCONSISTENT)
                }
            }
            Action::Controller(_)
            | Action::Group(_)
            | Action::SetEthSrc(_)
            | Action::SetEthDst(_)
            | Action::SetQueue(_)
            | Action::PopQueue
            | Action::Resubmit { original_tuple: false, .. }
            | Action::Conjunction { .. }
            | Action::Note(_)
            | Action::Exit
            | Action::CtClear
            | Action::DebugSlow
            | Action::DebugRecirc
            | Action::ClearActions
            | Action::WriteMetadata { .. } => Ok(()),
        }
    }

    fn set_field(&mut self, field: Field, value: FieldValue) -> Result<(), OfError> {
        if !field.writable() {
            return Err(OfError::OFPBAC_BAD_SET_ARGUMENT);
        }
        // The parts of a VLAN header can be set only where there is one; its TCI makes one.
        let of_header =
            matches!(field, Field::VlanVid | Field::VlanPcp | Field::DlVlan | Field::DlVlanPcp);
        let has_header = self.vlans > 0 && self.holds(Prerequisite::Ethernet);
        if !self.holds(field.prerequisite()) || (of_header && !has_header) {
            return Err(OfError::OFPBAC_MATCH_INCONSISTENT);
        }
        if field == Field::VlanTci {
            self.vlans = if value & u128::from(VLAN_CFI) != 0 { self.vlans.max(1) } else { 0 };
        }
        Ok(())
    }

    /// A `ct` needs a packet that can belong to a connection.
    fn ct(&mut self, ct: &Ct) -> Result<(), OfError> {
        let is_invalid = self.packet.key().ct_state & ct_state::INV != 0;
        let proto = self.packet.key().nw_proto;
        let helper_fits = match ct.alg {
            FTP => proto == ip_proto::TCP,
            TFTP => proto == ip_proto::UDP,
            _ => true,
        };
        if !self.holds(Prerequisite::IpAny) || is_invalid && ct.commit || !helper_fits {
            return Err(OfError::OFPBAC_MATCH_INCONSISTENT);
        }
        if let CtZone::Field(part) = ct.zone {
            self.readable(part)?;
        }
        self.list(&ct.actions)
    }

    /// A learned match must have its prerequisites, in the order given.
    fn learn(&self, learn: &Learn) -> Result<(), OfError> {
        let mut learned = Match::ANY;
        for spec in &learn.specs {
            if let LearnSource::Field(src) = spec.src {
                self.readable(src)?;
            }
            match (&spec.dst, &spec.src) {
                (LearnTarget::Match(dst), src) => {
                    readable(*dst, |p| p.holds_for_match(&learned))?;
                    if let LearnSource::Value(value) = src
                        && dst.field.option().is_none()
                    {
                        let field = dst.field;
                        let bits = crate::nxm::ones(dst.bits) << dst.start;
                        let value = (value << dst.start) & bits;
                        let old = field.load(learned.key());
                        let mask = field.load(&learned.mask().0) | bits;
                        learned.set_masked(field, old & !bits | value, mask);
                    }
                }
                (LearnTarget::Load(dst), _) => writable(*dst, |p| p.holds_for_match(&learned))?,
                (LearnTarget::Output, _) => {}
            }
        }
        match learn.result_dst {
            Some(dst) => writable(dst, |_| true),
            None => Ok(()),
        }
    }
}

fn readable(part: Subfield, holds: impl Fn(Prerequisite) -> bool) -> Result<(), OfError> {
    if Subfield::new(part.field, part.start, part.bits).is_none() {
        Err(OfError::OFPBAC_BAD_SET_LEN)
    } else if !holds(part.field.prerequisite()) {
        Err(OfError::OFPBAC_MATCH_INCONSISTENT)
    } else {
        Ok(())
    }
}

fn writable(part: Subfield, holds: impl Fn(Prerequisite) -> bool) -> Result<(), OfError> {
    readable(part, holds)?;
    if part.field.writable() { Ok(()) } else { Err(OfError::OFPBAC_BAD_SET_ARGUMENT) }
}
