// SPDX-License-Identifier: Apache-2.0
//! From actions to bytes.
//!
//! Every action has a form in every version: OpenFlow's own where the version has one, else
//! Nicira's, else a set-field or register load of the same effect. An action that a version cannot
//! express in any way (clear_actions and write_actions in OpenFlow 1.0, meters before 1.3) is left
//! out.
//!
//! Lengths of single actions are 16 bits. A list that outgrows them outgrows an OpenFlow message
//! too, and the encoder of the message refuses it.

use super::nicira as nx;
use super::{
    Action, Bundle, Controller, Multipath, ObservationId, PopSpelling, SetSpelling, TunnelSpelling,
    ct, encap, learn, loads,
};
use crate::nxm::{encode_header, ones, put_entry, put_option};
use crate::wire::Put;
use crate::{PortNo, Version};
use flow::tun_metadata::Wide;
use flow::{Field, FieldValue, Match, Subfield, VLAN_CFI};

/// OFPAT_VENDOR, OFPAT_EXPERIMENTER.
const VENDOR: u16 = 0xffff;
const TPID_8021Q: u16 = 0x8100;
const VID_MASK: u128 = 0xfff;

/// Writes actions for one version. The encoder tracks the known properties of the packet along a
/// list, because some actions of OpenFlow 1.0 have different forms depending on them:
/// `mod_vlan_vid` pushes a header when there is none, `mod_tp_src` is TCP's or UDP's field.
#[derive(Clone, Copy, Debug)]
pub struct Encoder {
    version: Version,
    /// VLAN headers known to be there.
    vlans: usize,
    ip_proto: u8,
}

impl Encoder {
    /// For actions on packets of which nothing is known.
    pub fn new(version: Version) -> Encoder {
        Encoder { version, vlans: 0, ip_proto: 0 }
    }

    /// For the actions of a flow.
    pub fn for_match(version: Version, matching: &Match) -> Encoder {
        Encoder {
            version,
            vlans: matching
                .key()
                .vlans
                .iter()
                .take_while(|vlan| vlan.tci.get() & VLAN_CFI != 0)
                .count(),
            ip_proto: matching.key().nw_proto,
        }
    }

    /// The version it writes.
    pub fn version(&self) -> Version {
        self.version
    }
}

impl From<Version> for Encoder {
    fn from(version: Version) -> Encoder {
        Encoder::new(version)
    }
}

/// Appends `actions` as `encoder` (an [`Encoder`], or a [`Version`] when nothing is known of the
/// packet) writes them. The result's length is a multiple of 8.
pub(crate) fn encode_actions(actions: &[Action], encoder: impl Into<Encoder>, out: &mut Vec<u8>) {
    encode_list(actions, &mut encoder.into(), out);
}

pub(super) fn encode_list(actions: &[Action], encoder: &mut Encoder, out: &mut Vec<u8>) {
    for action in actions {
        let start = out.len();
        encoder.put(action, out);
        debug_assert!((out.len() - start).is_multiple_of(8));
    }
}

/// Opens an action with its type; [`close`] pads it and fills in the length.
fn open(ty: u16, out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.put_u16(ty);
    out.put_u16(0);
    start
}

fn open_nx(subtype: u16, out: &mut Vec<u8>) -> usize {
    let start = open(VENDOR, out);
    out.put_u32(crate::error::NX_VENDOR);
    out.put_u16(subtype);
    start
}

fn close(start: usize, out: &mut Vec<u8>) {
    out.pad8(start);
    let len = out.len() - start;
    out.set_u16(start + 2, u16::try_from(len).unwrap_or(u16::MAX));
}

/// The 16-bit form of a port; ports that have none cannot be in an action.
fn port16(port: PortNo) -> u16 {
    port.to_u16().unwrap_or(u16::MAX)
}

pub(super) fn ofs_nbits(s: Subfield) -> u16 {
    s.start << 6 | s.bits.wrapping_sub(1) & 0x3f
}

/// Writes an id of `sample(...)`: in NXAST_SAMPLE4 after the header of its field, which is 0 for a number.
fn put_observation_id(id: ObservationId, is_sample4: bool, out: &mut Vec<u8>) {
    match id {
        ObservationId::Number(number) => {
            out.put_zeros(if is_sample4 { 4 } else { 0 });
            out.put_u32(number);
        }
        ObservationId::Field(src) => {
            encode_header(src.field, false, 0, out);
            out.put_u16(ofs_nbits(src));
            out.put_zeros(2);
        }
    }
}

impl Encoder {
    fn v10(&self) -> bool {
        self.version == Version::V10
    }

    /// An action of 8 bytes or more with a body written by `body`.
    fn plain(ty: u16, out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
        let start = open(ty, out);
        body(out);
        close(start, out);
    }

    fn nicira(subtype: u16, out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
        let start = open_nx(subtype, out);
        body(out);
        close(start, out);
    }

    /// `nx` with its argument after two bytes of padding in OpenFlow 1.0, else `ty`.
    fn word(&self, subtype: u16, ty: u16, arg: u32, out: &mut Vec<u8>) {
        if self.v10() {
            Self::nicira(subtype, out, |out| {
                out.put_u16(0);
                out.put_u32(arg);
            });
        } else {
            Self::plain(ty, out, |out| out.put_u32(arg));
        }
    }

    /// Nicira's `subtype` in OpenFlow 1.0, else `ty`, with the same body.
    fn either(&self, subtype: u16, ty: u16, body: &[u8], out: &mut Vec<u8>) {
        if self.v10() {
            Self::nicira(subtype, out, |out| out.extend_from_slice(body));
        } else {
            Self::plain(ty, out, |out| {
                out.extend_from_slice(body);
                out.put_zeros(4usize.saturating_sub(body.len()));
            });
        }
    }

    fn put(&mut self, action: &Action, out: &mut Vec<u8>) {
        match action {
            Action::Output { port, max_len } => self.output(*port, *max_len, out),
            Action::Enqueue { port, queue } => {
                if self.v10() {
                    Self::plain(11, out, |out| {
                        out.put_u16(port16(*port));
                        out.put_zeros(6);
                        out.put_u32(*queue);
                    });
                } else {
                    self.put(&Action::SetQueue(*queue), out);
                    self.output(*port, u16::MAX, out);
                    self.put(&Action::PopQueue, out);
                }
            }
            Action::Group(id) => self.word(nx::GROUP, 22, *id, out),
            Action::SetQueue(id) => self.word(nx::SET_QUEUE, 21, *id, out),
            Action::Meter(id) => {
                if self.version >= Version::V15 {
                    Self::plain(29, out, |out| out.put_u32(*id));
                }
            }
            Action::SetOption(set) => {
                let whole = set.mask == set.field.all_ones_wide();
                self.set_option(set.field, &set.value, (!whole).then_some(&set.mask), out);
            }
            Action::SetTunnel { id, .. } if self.version >= Version::V12 => {
                self.native_set(Field::TunId, (*id).into(), None, out);
            }
            Action::SetTunnel { id, spelled } => match (u32::try_from(*id), spelled) {
                (Ok(id), TunnelSpelling::SetTunnel) => {
                    Self::nicira(nx::SET_TUNNEL, out, |out| {
                        out.put_u16(0);
                        out.put_u32(id);
                    });
                }
                _ => Self::nicira(nx::SET_TUNNEL64, out, |out| {
                    out.put_zeros(6);
                    out.put_u64(*id);
                }),
            },
            Action::SetField { field, value, mask, spelled } => {
                self.set(*field, *value, *mask, *spelled, out);
            }
            Action::Move { src, dst } => self.copy(*src, *dst, out),
            Action::SetVlanVid { vid, push_if_missing } => {
                self.add_vlan(*push_if_missing, out);
                if self.version >= Version::V12 {
                    self.put_set(Field::VlanVid, u128::from(vid | VLAN_CFI), out);
                } else {
                    Self::plain(1, out, |out| {
                        out.put_u16(*vid);
                        out.put_u16(0);
                    });
                }
            }
            Action::SetVlanPcp { pcp, push_if_missing } => {
                self.add_vlan(*push_if_missing, out);
                if self.version >= Version::V12 {
                    self.put_set(Field::VlanPcp, u128::from(*pcp), out);
                } else {
                    Self::plain(2, out, |out| {
                        out.put_u8(*pcp);
                        out.put_zeros(3);
                    });
                }
            }
            Action::PopVlan { spelled: _ } => {
                self.vlans = self.vlans.saturating_sub(1);
                Self::plain(if self.v10() { 3 } else { 18 }, out, |out| out.put_u32(0));
            }
            Action::PushVlan { tpid } => {
                // In OpenFlow 1.0 the following set of id or priority does the push.
                if !self.v10() {
                    self.vlans += 1;
                    Self::push_vlan(*tpid, out);
                }
            }
            Action::SetEthSrc(mac) => self.legacy(4, 3, Field::EthSrc, mac, out),
            Action::SetEthDst(mac) => self.legacy(5, 4, Field::EthDst, mac, out),
            Action::SetIpv4Src(ip) => {
                self.legacy(6, 5, Field::Ipv4Src, &ip.to_be_bytes(), out);
            }
            Action::SetIpv4Dst(ip) => {
                self.legacy(7, 6, Field::Ipv4Dst, &ip.to_be_bytes(), out);
            }
            Action::SetIpDscp(tos) => {
                if self.version >= Version::V12 {
                    self.put_set(Field::IpDscpShifted, u128::from(tos >> 2), out);
                } else {
                    self.legacy(8, 7, Field::IpDscp, &[*tos], out);
                }
            }
            Action::SetIpEcn(ecn) => match self.version {
                Version::V11 => Self::plain(8, out, |out| out.put_u8(*ecn)),
                _ => self.put_set(Field::IpEcn, u128::from(*ecn), out),
            },
            Action::SetIpTtl(ttl) => match self.version {
                Version::V10 => self.put_set(Field::IpTtl, u128::from(*ttl), out),
                _ => Self::plain(23, out, |out| out.put_u8(*ttl)),
            },
            Action::SetL4Src(port) => {
                let field = self.l4_field(Field::TcpSrc, Field::UdpSrc, Field::SctpSrc);
                self.l4_port(9, field, *port, out);
            }
            Action::SetL4Dst(port) => {
                let field = self.l4_field(Field::TcpDst, Field::UdpDst, Field::SctpDst);
                self.l4_port(10, field, *port, out);
            }
            Action::PushMpls { ethertype } => {
                self.either(nx::PUSH_MPLS, 19, &ethertype.to_be_bytes(), out);
                // The header after the labels is no longer known.
                self.ip_proto = 0;
            }
            Action::PopMpls { ethertype } => {
                self.either(nx::POP_MPLS, 20, &ethertype.to_be_bytes(), out);
            }
            Action::SetMplsLabel(label) if self.version >= Version::V12 => {
                self.put_set(Field::MplsLabel, u128::from(*label), out);
            }
            Action::SetMplsLabel(label) => self.word(nx::SET_MPLS_LABEL, 13, *label, out),
            Action::SetMplsTc(tc) if self.version >= Version::V12 => {
                self.put_set(Field::MplsTc, u128::from(*tc), out);
            }
            Action::SetMplsTc(tc) => self.either(nx::SET_MPLS_TC, 14, &[*tc], out),
            Action::SetMplsTtl(ttl) => self.either(nx::SET_MPLS_TTL, 15, &[*ttl], out),
            Action::DecMplsTtl => self.either(nx::DEC_MPLS_TTL, 16, &[], out),
            Action::DecTtl { controllers } if controllers[..] == [0] => {
                self.either(nx::DEC_TTL, 24, &[], out);
            }
            Action::WriteMetadata { value, mask } => {
                Self::nicira(nx::WRITE_METADATA, out, |out| {
                    out.put_zeros(6);
                    out.put_u64(*value);
                    out.put_u64(*mask);
                });
            }
            Action::GotoTable(table) => {
                // Only OpenFlow 1.0 has it among the actions.
                if self.v10() {
                    put_resubmit(nx::RESUBMIT_TABLE, None, Some(*table), out);
                }
            }
            Action::ClearActions | Action::WriteActions(_) => {}
            Action::Clone(nested) => {
                let start = open_nx(nx::CLONE, out);
                out.put_zeros(6);
                // Changes that the clone makes to its copy are not visible outside.
                let mut inner = *self;
                encode_list(nested, &mut inner, out);
                close(start, out);
            }
            Action::Ct(ct) => {
                let start = open_nx(nx::CT, out);
                let mut inner = *self;
                ct::encode(ct, out, |out| encode_list(&ct.actions, &mut inner, out));
                close(start, out);
            }
            // From here on, actions that are Nicira's in every version.
            Action::Nat(nat) => Self::nicira(nx::NAT, out, |out| ct::encode_nat(nat, out)),
            Action::CtClear => Self::nicira(nx::CT_CLEAR, out, |_| {}),
            Action::Encap(encap) => Self::nicira(nx::ENCAP, out, |out| encap::encode(encap, out)),
            Action::Decap { packet_type } => Self::nicira(nx::DECAP, out, |out| {
                out.put_zeros(2);
                out.put_u32(*packet_type);
            }),
            Action::DecNshTtl => Self::nicira(nx::DEC_NSH_TTL, out, |_| {}),
            Action::DebugSlow => Self::nicira(nx::DEBUG_SLOW, out, |_| {}),
            Action::DebugRecirc => Self::nicira(nx::DEBUG_RECIRC, out, |_| {}),
            Action::DeleteField(field) => Self::nicira(nx::DELETE_FIELD, out, |out| {
                let header = out.len();
                encode_header(*field, false, 0, out);
                out.put_zeros(14 - (out.len() - header)); // a header has at most 8 bytes
            }),
            Action::OutputReg { src, max_len } => Self::nicira(nx::OUTPUT_REG, out, |out| {
                out.put_u16(ofs_nbits(*src));
                encode_header(src.field, false, 0, out);
                out.put_u16(*max_len);
            }),
            Action::OutputTrunc { port, max_len } => Self::nicira(nx::OUTPUT_TRUNC, out, |out| {
                out.put_u16(port16(*port));
                out.put_u32(*max_len);
            }),
            Action::Controller(controller) => put_controller(controller, out),
            Action::Bundle(bundle) => put_bundle(bundle, out),
            Action::StackPush(part) => put_stack(nx::STACK_PUSH, *part, out),
            Action::StackPop(part) => put_stack(nx::STACK_POP, *part, out),
            Action::DecTtl { controllers } => Self::nicira(nx::DEC_TTL_CNT_IDS, out, |out| {
                out.put_u16(controllers.len() as u16);
                out.put_zeros(4);
                for id in controllers {
                    out.put_u16(*id);
                }
            }),
            Action::PopQueue => Self::nicira(nx::POP_QUEUE, out, |_| {}),
            Action::Exit => Self::nicira(nx::EXIT, out, |_| {}),
            Action::FinTimeout { idle, hard } => Self::nicira(nx::FIN_TIMEOUT, out, |out| {
                out.put_u16(*idle);
                out.put_u16(*hard);
            }),
            Action::Resubmit { port, table, original_tuple: false } => {
                put_resubmit(nx::RESUBMIT_TABLE, *port, *table, out);
            }
            Action::Resubmit { port, table, original_tuple: true } => {
                put_resubmit(nx::RESUBMIT_TABLE_CT, *port, *table, out);
            }
            Action::Learn(learn) => {
                let subtype = if learn::needs_learn2(learn) { nx::LEARN2 } else { nx::LEARN };
                Self::nicira(subtype, out, |out| learn::encode(learn, out));
            }
            Action::Conjunction { id, clause, clauses } => {
                Self::nicira(nx::CONJUNCTION, out, |out| {
                    out.put_u8(*clause);
                    out.put_u8(*clauses);
                    out.put_u32(*id);
                });
            }
            Action::Multipath(multipath) => put_multipath(multipath, out),
            Action::Note(data) => Self::nicira(nx::NOTE, out, |out| out.extend_from_slice(data)),
            Action::Sample {
                probability,
                collector_set,
                obs_domain,
                obs_point,
                sampling_port,
                direction,
            } => {
                let direction = *direction as u8;
                let ids = [*obs_domain, *obs_point];
                let has_fields = ids.iter().any(|id| matches!(id, ObservationId::Field(_)));
                let subtype = match (direction, *sampling_port) {
                    _ if has_fields => nx::SAMPLE4,
                    (0, PortNo::NONE) => nx::SAMPLE,
                    (0, _) => nx::SAMPLE2,
                    _ => nx::SAMPLE3,
                };
                Self::nicira(subtype, out, |out| {
                    out.put_u16(*probability);
                    out.put_u32(*collector_set);
                    ids.into_iter().for_each(|id| put_observation_id(id, has_fields, out));
                    if subtype != nx::SAMPLE {
                        out.put_u16(port16(*sampling_port));
                    }
                    if matches!(subtype, nx::SAMPLE3 | nx::SAMPLE4) {
                        out.put_u8(direction);
                    }
                });
            }
            Action::CheckPktLarger { len, dst } => Self::nicira(nx::CHECK_PKT_LARGER, out, |out| {
                out.put_u16(*len);
                out.put_u16(dst.start);
                encode_header(dst.field, false, 0, out);
            }),
        }
    }

    fn output(&self, port: PortNo, max_len: u16, out: &mut Vec<u8>) {
        Self::plain(0, out, |out| {
            if self.v10() {
                out.put_u16(port16(port));
                out.put_u16(max_len);
            } else {
                out.put_u32(port.0);
                out.put_u16(max_len);
            }
        });
    }

    /// The field that a port of the transport layer is, where the protocol is known.
    fn l4_field(&self, tcp: Field, udp: Field, sctp: Field) -> Option<Field> {
        match self.ip_proto {
            6 => Some(tcp),
            17 => Some(udp),
            132 => Some(sctp),
            _ => None,
        }
    }

    /// Writes a set action for a port of the transport layer. Without the field only the old form
    /// can express it.
    fn l4_port(&self, ty: u16, field: Option<Field>, port: u16, out: &mut Vec<u8>) {
        match field {
            Some(field) => self.legacy(ty, ty, field, &port.to_be_bytes(), out),
            None => Self::plain(ty, out, |out| {
                out.put_u16(port);
                out.put_zeros(2);
            }),
        }
    }

    /// A set action of OpenFlow 1.0 (`ty10`) and 1.1 (`ty11`) whose argument is `value`; in
    /// later versions a set-field.
    fn legacy(&self, ty10: u16, ty11: u16, field: Field, value: &[u8], out: &mut Vec<u8>) {
        let ty = match self.version {
            Version::V10 => ty10,
            Version::V11 => ty11,
            _ => {
                let value = value.iter().fold(0u128, |v, b| v << 8 | u128::from(*b));
                return self.put_set(field, value, out);
            }
        };
        Self::plain(ty, out, |out| {
            out.extend_from_slice(value);
            out.put_zeros(4usize.saturating_sub(value.len()));
        });
    }

    /// Records the VLAN header that a set of its id or priority makes when `push_if_missing`. From
    /// OpenFlow 1.1 on, a push writes it first, unless a header is known to be there.
    fn add_vlan(&mut self, push_if_missing: bool, out: &mut Vec<u8>) {
        if push_if_missing && self.vlans == 0 {
            if !self.v10() {
                Self::push_vlan(TPID_8021Q, out);
            }
            self.vlans = 1;
        }
    }

    fn push_vlan(tpid: u16, out: &mut Vec<u8>) {
        Self::plain(17, out, |out| {
            out.put_u16(tpid);
            out.put_u16(0);
        });
    }

    /// `move`: OpenFlow 1.5's copy-field, else Nicira's.
    fn copy(&self, src: Subfield, dst: Subfield, out: &mut Vec<u8>) {
        let v15 = self.version >= Version::V15;
        let start = if v15 { open(28, out) } else { open_nx(nx::REG_MOVE, out) };
        out.put_u16(dst.bits);
        out.put_u16(src.start);
        out.put_u16(dst.start);
        if v15 {
            out.put_u16(0);
        }
        let version = if v15 { self.version.wire() } else { 0 };
        encode_header(src.field, false, version, out);
        encode_header(dst.field, false, version, out);
        close(start, out);
    }

    /// Sets all of `field`.
    fn put_set(&self, field: Field, value: FieldValue, out: &mut Vec<u8>) {
        if self.version >= Version::V12 {
            self.native_set(field, value, None, out);
        } else {
            put_loads(field, value, FieldValue::MAX, out);
        }
    }

    fn native_set(&self, field: Field, value: u128, mask: Option<u128>, out: &mut Vec<u8>) {
        Self::plain(25, out, |out| put_entry(field, value, mask, self.version.wire(), out));
    }

    fn set(
        &mut self,
        field: Field,
        value: FieldValue,
        mask: FieldValue,
        spelled: SetSpelling,
        out: &mut Vec<u8>,
    ) {
        let all = field.all_ones();
        let whole = mask & all == all;
        if field.option().is_some() {
            let (value, mask) = (Wide::from_u128(value), Wide::from_u128(mask));
            return self.set_option(field, &value, (!whole).then_some(&mask), out);
        }
        // A load names its field by 32 bits.
        let has_load = field.oxm(0).is_some_and(|number| number.experimenter.is_none());
        if !has_load && (self.version < Version::V12 || self.version < Version::V15 && !whole) {
            let mask = (!whole).then_some(mask);
            return Self::nicira(nx::REG_LOAD2, out, |out| put_entry(field, value, mask, 0, out));
        }
        // Set-field may not write these (see the decoder); a load may, where there is one.
        let no_native = field == Field::InPortOxm
            || (field == Field::VlanVid && (mask & value) & u128::from(VLAN_CFI) == 0);
        let mask = if whole { ones(field.bits()) } else { mask };
        if self.version >= Version::V15 {
            self.native_set(field, value, (!whole).then_some(mask), out);
        } else if spelled == SetSpelling::Load || !whole || no_native {
            put_loads(field, value, mask, out);
        } else if self.version >= Version::V12 {
            self.native_set(field, value, None, out);
        } else if !self.legacy_set(field, value, out) {
            put_loads(field, value, mask, out);
        }
    }

    /// `set_field` of a field `tun_metadataN`: leading zeros of value and mask are left out.
    fn set_option(&self, field: Field, value: &Wide, mask: Option<&Wide>, out: &mut Vec<u8>) {
        let bytes = mask.map_or(0, Wide::len).max(value.len());
        let native = match mask {
            None => self.version >= Version::V12,
            Some(_) => self.version >= Version::V15,
        };
        let version = if native { self.version.wire() } else { 0 };
        let put = |out: &mut Vec<u8>| put_option(field, value, mask, bytes, version, out);
        match native {
            true => Self::plain(25, out, put),
            false => Self::nicira(nx::REG_LOAD2, out, put),
        }
    }

    /// A set-field of a whole field as one of OpenFlow 1.0's or 1.1's set actions. False when
    /// there is none for it.
    fn legacy_set(&mut self, field: Field, value: FieldValue, out: &mut Vec<u8>) -> bool {
        let push_if_missing = false;
        let low16 = value as u16; // values are no wider than their fields
        let action = match field {
            Field::VlanTci => {
                if low16 & VLAN_CFI == 0 {
                    self.put(&Action::PopVlan { spelled: PopSpelling::StripVlan }, out);
                } else {
                    let vid = low16 & VID_MASK as u16;
                    let pcp = (low16 >> 13) as u8;
                    self.put(&Action::SetVlanVid { vid, push_if_missing: true }, out);
                    self.put(&Action::SetVlanPcp { pcp, push_if_missing: true }, out);
                }
                return true;
            }
            Field::VlanVid => Action::SetVlanVid { vid: low16 & VID_MASK as u16, push_if_missing },
            Field::VlanPcp => Action::SetVlanPcp { pcp: value as u8, push_if_missing },
            Field::EthSrc | Field::EthDst => {
                let mut mac = [0; 6];
                mac.copy_from_slice(&value.to_be_bytes()[10..]);
                if field == Field::EthSrc { Action::SetEthSrc(mac) } else { Action::SetEthDst(mac) }
            }
            Field::Ipv4Src => Action::SetIpv4Src(value as u32),
            Field::Ipv4Dst => Action::SetIpv4Dst(value as u32),
            Field::IpDscp => Action::SetIpDscp(value as u8),
            Field::IpDscpShifted => Action::SetIpDscp((value as u8) << 2),
            Field::IpEcn => Action::SetIpEcn(value as u8),
            Field::TcpSrc | Field::UdpSrc => Action::SetL4Src(low16),
            Field::TcpDst | Field::UdpDst => Action::SetL4Dst(low16),
            _ => return false,
        };
        self.put(&action, out);
        true
    }
}

fn put_loads(field: Field, value: FieldValue, mask: FieldValue, out: &mut Vec<u8>) {
    for (dst, value) in loads(field, value, mask) {
        Encoder::nicira(nx::REG_LOAD, out, |out| {
            out.put_u16(ofs_nbits(dst));
            encode_header(field, false, 0, out);
            out.put_u64(value);
        });
    }
}

fn put_resubmit(subtype: u16, port: Option<PortNo>, table: Option<u8>, out: &mut Vec<u8>) {
    Encoder::nicira(subtype, out, |out| {
        out.put_u16(port16(port.unwrap_or(PortNo::IN_PORT)));
        out.put_u8(table.unwrap_or(u8::MAX));
    });
}

fn put_stack(subtype: u16, part: Subfield, out: &mut Vec<u8>) {
    Encoder::nicira(subtype, out, |out| {
        out.put_u16(part.start);
        encode_header(part.field, false, 0, out);
        out.put_u16(part.bits);
    });
}

fn put_bundle(b: &Bundle, out: &mut Vec<u8>) {
    let load = b.dst.is_some();
    Encoder::nicira(if load { nx::BUNDLE_LOAD } else { nx::BUNDLE }, out, |out| {
        out.put_u16(nx::bundle_number(b.algorithm));
        out.put_u16(nx::hash_fields_number(b.fields));
        out.put_u16(b.basis);
        encode_header(Field::InPort, false, 0, out);
        out.put_u16(b.members.len() as u16); // at most BUNDLE_MAX_MEMBERS
        match b.dst {
            Some(dst) => {
                out.put_u16(ofs_nbits(dst));
                encode_header(dst.field, false, 0, out);
            }
            None => out.put_zeros(6),
        }
        out.put_zeros(4);
        for port in &b.members {
            out.put_u16(port16(*port));
        }
    });
}

fn put_multipath(m: &Multipath, out: &mut Vec<u8>) {
    Encoder::nicira(nx::MULTIPATH, out, |out| {
        out.put_u16(nx::hash_fields_number(m.fields));
        out.put_u16(m.basis);
        out.put_u16(0);
        out.put_u16(nx::multipath_number(m.algorithm));
        out.put_u16(m.max_link);
        out.put_u32(m.arg);
        out.put_u16(0);
        out.put_u16(ofs_nbits(m.dst));
        encode_header(m.dst.field, false, 0, out);
    });
}

fn put_controller(c: &Controller, out: &mut Vec<u8>) {
    if c.userdata.is_empty() && !c.pause && c.meter_id == nx::NO_METER {
        return Encoder::nicira(nx::CONTROLLER, out, |out| {
            out.put_u16(c.max_len);
            out.put_u16(c.controller_id);
            out.put_u8(c.reason);
        });
    }
    Encoder::nicira(nx::CONTROLLER2, out, |out| {
        out.put_zeros(6);
        let mut property = |ty: u16, value: &[u8]| {
            let start = out.len();
            out.put_u16(ty);
            out.put_u16(u16::try_from(value.len() + 4).unwrap_or(u16::MAX));
            out.extend_from_slice(value);
            out.pad8(start);
        };
        if c.max_len != u16::MAX {
            let [a, b] = c.max_len.to_be_bytes();
            property(0, &[a, b, 0, 0]);
        }
        if c.controller_id != 0 {
            let [a, b] = c.controller_id.to_be_bytes();
            property(1, &[a, b, 0, 0]);
        }
        if c.reason != 1 {
            property(2, &[c.reason, 0, 0, 0]);
        }
        if !c.userdata.is_empty() {
            property(3, &c.userdata);
        }
        if c.pause {
            property(4, &[]);
        }
        if c.meter_id != nx::NO_METER {
            property(5, &c.meter_id.to_be_bytes());
        }
    });
}
