// SPDX-License-Identifier: Apache-2.0
//! Actions and instructions, free of their many wire forms.
//!
//! Instructions are kept in the same list, in the order in which OpenFlow 1.1+ runs them
//! (meter, apply-actions inline, clear-actions, write-actions, write-metadata, goto-table),
//! as ovs-actions(7) shows them.

mod check;
pub mod codec;
pub(crate) mod ct;
mod decode;
mod encap;
mod encode;
mod instruction;
mod learn;
mod nicira;
mod operand;
mod options;
mod traits;
pub(crate) mod verify;

pub use check::{CheckContext, check};
pub use codec::Encoder;
pub use ct::{Ct, CtZone, Nat, NatAddresses, NatSide};
pub use encap::{Encap, EncapHeader, EncapProperty, USE_NEXT_PROTOCOL};
pub use options::options;
pub use traits::ActionSetSlot;

pub(crate) use check::check_parts;

use crate::PortNo;
use flow::tun_metadata::Wide;
use flow::{Field, FieldValue, Subfield};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether [`Action::DebugSlow`] and [`Action::DebugRecirc`] are read.
static DEBUG_ACTIONS: AtomicBool = AtomicBool::new(false);

/// Has the process read the actions `debug_slow` and `debug_recirc`, as Open vSwitch does with
/// `--enable-dummy`. Otherwise they are unknown. Any thread may call it.
pub fn allow_debug_actions() {
    DEBUG_ACTIONS.store(true, Ordering::Relaxed);
}

pub(crate) fn debug_actions_allowed() -> bool {
    DEBUG_ACTIONS.load(Ordering::Relaxed)
}

/// A list of actions as rules, buckets and packet-outs share it.
pub type Actions = Arc<[Action]>;

/// One action or instruction; ovs-actions(7) describes each.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// `output:PORT`; `max_len` counts for CONTROLLER only (bytes).
    Output {
        /// The port to send to.
        port: PortNo,
        /// Bytes of the packet, at most.
        max_len: u16,
    },
    /// `output:SRC[]`.
    OutputReg {
        /// The bits that hold the port number.
        src: Subfield,
        /// Bytes of the packet, at most; counts for CONTROLLER only.
        max_len: u16,
    },
    /// `output(port=PORT,max_len=BYTES)`.
    OutputTrunc {
        /// The port to send to.
        port: PortNo,
        /// Bytes of the packet, at most; at least 14.
        max_len: u32,
    },
    /// `controller(...)`.
    Controller(Box<Controller>),
    /// `enqueue:PORT:QUEUE`.
    Enqueue {
        /// The port to send to.
        port: PortNo,
        /// Queue number at that port.
        queue: u32,
    },
    /// `bundle(...)` and `bundle_load(...)`.
    Bundle(Box<Bundle>),
    /// `group:ID`.
    Group(u32),
    /// `set_field:VALUE/MASK->FIELD` or `load:VALUE->FIELD[..]`: the bits of `mask` in the
    /// field become those of `value` (both right-aligned in the field).
    SetField {
        /// The field.
        field: Field,
        /// The new bits.
        value: FieldValue,
        /// Which bits change.
        mask: FieldValue,
        /// How it was written.
        spelled: SetSpelling,
    },
    /// `set_field` of a field `tun_metadataN` that does not fit [`Action::SetField`].
    SetOption(Box<SetOption>),
    /// `delete_field:FIELD`: the packet loses the option of Geneve that a field `tun_metadataN`
    /// stands for.
    DeleteField(Field),
    /// `move:SRC->DST`.
    Move {
        /// The bits to copy.
        src: Subfield,
        /// The bits that become equal to them.
        dst: Subfield,
    },
    /// `push:SRC`.
    StackPush(Subfield),
    /// `pop:DST`.
    StackPop(Subfield),
    /// `mod_vlan_vid`/`set_vlan_vid`; `push_if_missing` is OpenFlow 1.0's meaning.
    SetVlanVid {
        /// VLAN id, 12 bits.
        vid: u16,
        /// Pushes a header when there is none.
        push_if_missing: bool,
    },
    /// `mod_vlan_pcp`/`set_vlan_pcp`.
    SetVlanPcp {
        /// Priority, 3 bits.
        pcp: u8,
        /// Pushes a header when there is none.
        push_if_missing: bool,
    },
    /// `strip_vlan`, `pop_vlan`: takes the outermost VLAN header off.
    PopVlan {
        /// Which of the two it is called.
        spelled: PopSpelling,
    },
    /// `push_vlan:TPID`.
    PushVlan {
        /// 0x8100 or 0x88a8.
        tpid: u16,
    },
    /// `mod_dl_src`, `mod_dl_dst`.
    SetEthSrc([u8; 6]),
    /// See [`Action::SetEthSrc`].
    SetEthDst([u8; 6]),
    /// `mod_nw_src`, `mod_nw_dst` (IPv4, host integer).
    SetIpv4Src(u32),
    /// See [`Action::SetIpv4Src`].
    SetIpv4Dst(u32),
    /// `mod_nw_tos`: DSCP in the upper 6 bits.
    SetIpDscp(u8),
    /// `mod_nw_ecn`.
    SetIpEcn(u8),
    /// `mod_nw_ttl`.
    SetIpTtl(u8),
    /// `mod_tp_src`, `mod_tp_dst`.
    SetL4Src(u16),
    /// See [`Action::SetL4Src`].
    SetL4Dst(u16),
    /// `push_mpls:ETHERTYPE`.
    PushMpls {
        /// 0x8847 or 0x8848.
        ethertype: u16,
    },
    /// `pop_mpls:ETHERTYPE`.
    PopMpls {
        /// Ethernet type of the payload after the popped header.
        ethertype: u16,
    },
    /// `set_mpls_label`.
    SetMplsLabel(u32),
    /// `set_mpls_tc`.
    SetMplsTc(u8),
    /// `set_mpls_ttl`.
    SetMplsTtl(u8),
    /// `dec_mpls_ttl`.
    DecMplsTtl,
    /// `dec_ttl` (with the ids of the controllers that get the packet when the TTL runs out; plain
    /// `dec_ttl` means controller id 0).
    DecTtl {
        /// NXT_SET_CONTROLLER_ID ids.
        controllers: Vec<u16>,
    },
    /// `set_queue:QUEUE`.
    SetQueue(u32),
    /// `set_tunnel:ID`, `set_tunnel64:ID`.
    SetTunnel {
        /// Key of the tunnel.
        id: u64,
        /// Which of the two it is called.
        spelled: TunnelSpelling,
    },
    /// `pop_queue`.
    PopQueue,
    /// `fin_timeout(idle_timeout=,hard_timeout=)`, seconds.
    FinTimeout {
        /// Longest idle timeout after a FIN or RST, in seconds; 0 leaves the timeout alone.
        idle: u16,
        /// Longest hard timeout after a FIN or RST, in seconds; 0 leaves the timeout alone.
        hard: u16,
    },
    /// `resubmit(PORT,TABLE)` and `resubmit(PORT,TABLE,ct)`; `None` means the same.
    Resubmit {
        /// The input port looked up; `None` leaves it.
        port: Option<PortNo>,
        /// `None` is the same table.
        table: Option<u8>,
        /// `ct`: the addresses, the protocol and the ports looked up are those of the first packet
        /// of the packet's connection.
        original_tuple: bool,
    },
    /// `learn(...)`.
    Learn(Box<Learn>),
    /// `conjunction(ID,K/N)`: `clause` counts from 0.
    Conjunction {
        /// Conjunction id.
        id: u32,
        /// Which clause, from 0.
        clause: u8,
        /// Number of clauses, 2 to 64.
        clauses: u8,
    },
    /// `multipath(...)`.
    Multipath(Box<Multipath>),
    /// `note:BYTES`.
    Note(Vec<u8>),
    /// `exit`.
    Exit,
    /// `sample(...)`.
    Sample {
        /// Share of the packets, in 65536ths; 0 is none.
        probability: u16,
        /// Flow_Sample_Collector_Set id.
        collector_set: u32,
        /// IPFIX observation domain.
        obs_domain: ObservationId,
        /// IPFIX observation point.
        obs_point: ObservationId,
        /// The port that the packet is counted at, or NONE.
        sampling_port: PortNo,
        /// The direction that the packet is counted in.
        direction: SampleDirection,
    },
    /// `clone(...)`.
    Clone(Vec<Action>),
    /// `ct(...)`.
    Ct(Box<Ct>),
    /// `nat(...)`, only inside [`Action::Ct`].
    Nat(Nat),
    /// `ct_clear`.
    CtClear,
    /// `encap(...)`.
    Encap(Box<Encap>),
    /// `decap(...)`.
    Decap {
        /// Type of the packet below the header: namespace in the upper half, type in the lower;
        /// [`USE_NEXT_PROTOCOL`] where the header names it.
        packet_type: u32,
    },
    /// `dec_nsh_ttl`.
    DecNshTtl,
    /// `debug_slow`: every packet takes the slow path. For tests, see [`allow_debug_actions`].
    DebugSlow,
    /// `debug_recirc`: the rest runs after a recirculation. For tests, see
    /// [`allow_debug_actions`].
    DebugRecirc,
    /// `check_pkt_larger(LEN)->DST`.
    CheckPktLarger {
        /// Greatest length that is not larger, in bytes with the Ethernet header.
        len: u16,
        /// The bit for the result.
        dst: Subfield,
    },
    /// `meter:ID` (instruction, or OpenFlow 1.5 action).
    Meter(u32),
    /// Instruction `clear_actions`.
    ClearActions,
    /// Instruction `write_actions(...)`.
    WriteActions(Vec<Action>),
    /// Instruction `write_metadata:VALUE/MASK`.
    WriteMetadata {
        /// The new bits.
        value: u64,
        /// Which bits change.
        mask: u64,
    },
    /// Instruction `goto_table:TABLE`.
    GotoTable(u8),
}

/// `set_field:VALUE/MASK->tun_metadataN` where the field, the value or the mask has more than 128
/// bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SetOption {
    /// The field, one of `tun_metadata0` to `tun_metadata63`.
    pub field: Field,
    /// The new bits.
    pub value: Wide,
    /// Which bits change.
    pub mask: Wide,
}

impl Action {
    /// `set_field` of a field `tun_metadataN`; without a mask of all of it.
    pub(crate) fn set_option(field: Field, value: &Wide, mask: Option<&Wide>) -> Action {
        let all = field.all_ones_wide();
        let mask = mask.copied().unwrap_or(all).and(&all);
        if field.value_bytes() > 16 {
            return Action::SetOption(Box::new(SetOption { field, value: value.and(&mask), mask }));
        }
        Action::set_field(field, value.low(), mask.low())
    }

    /// `load` of `value` into bits of a field, which are bits that the field has.
    pub fn load(dst: Subfield, value: FieldValue) -> Action {
        let Subfield { field, start, bits } = dst;
        if field.width() > 128 {
            let (mut wide, mut mask) = (Wide::ZERO, Wide::ZERO);
            wide.store(start.into(), bits.into(), value);
            mask.store(start.into(), bits.into(), FieldValue::MAX);
            return Action::SetOption(Box::new(SetOption { field, value: wide, mask }));
        }
        let shifted = |bits: FieldValue| bits.checked_shl(start.into()).unwrap_or(0);
        let (value, mask) = (shifted(value), shifted(crate::nxm::ones(bits)));
        Action::SetField { field, value: value & mask, mask, spelled: SetSpelling::Load }
    }

    /// `set_field` of the bits of `mask` that are in the field. A partial mask keeps its bits
    /// without meaning, such as those of ECN in a ToS, so that dumps show them again.
    pub(crate) fn set_field(field: Field, value: FieldValue, mask: FieldValue) -> Action {
        let all = field.all_ones();
        let mask = if mask & all == all { all } else { mask & crate::nxm::ones(field.width()) };
        Action::SetField { field, value: value & mask, mask, spelled: SetSpelling::SetField }
    }

    /// The word that texts name the action by, such as `output` or `set_field`.
    pub(crate) fn keyword(&self) -> &'static str {
        match self {
            Action::Output { .. } | Action::OutputReg { .. } | Action::OutputTrunc { .. } => {
                "output"
            }
            Action::Controller(_) => "controller",
            Action::Enqueue { .. } => "enqueue",
            Action::Bundle(b) if b.dst.is_some() => "bundle_load",
            Action::Bundle(_) => "bundle",
            Action::Group(_) => "group",
            Action::SetField { spelled: SetSpelling::SetField, .. } => "set_field",
            Action::SetField { spelled: SetSpelling::Load, .. } => "load",
            Action::SetOption(_) => "set_field",
            Action::DeleteField(_) => "delete_field",
            Action::Move { .. } => "move",
            Action::StackPush(_) => "push",
            Action::StackPop(_) => "pop",
            Action::SetVlanVid { push_if_missing: true, .. } => "mod_vlan_vid",
            Action::SetVlanVid { .. } => "set_vlan_vid",
            Action::SetVlanPcp { push_if_missing: true, .. } => "mod_vlan_pcp",
            Action::SetVlanPcp { .. } => "set_vlan_pcp",
            Action::PopVlan { spelled: PopSpelling::PopVlan } => "pop_vlan",
            Action::PopVlan { spelled: PopSpelling::StripVlan } => "strip_vlan",
            Action::PushVlan { .. } => "push_vlan",
            Action::SetEthSrc(_) => "mod_dl_src",
            Action::SetEthDst(_) => "mod_dl_dst",
            Action::SetIpv4Src(_) => "mod_nw_src",
            Action::SetIpv4Dst(_) => "mod_nw_dst",
            Action::SetIpDscp(_) => "mod_nw_tos",
            Action::SetIpEcn(_) => "mod_nw_ecn",
            Action::SetIpTtl(_) => "mod_nw_ttl",
            Action::SetL4Src(_) => "mod_tp_src",
            Action::SetL4Dst(_) => "mod_tp_dst",
            Action::PushMpls { .. } => "push_mpls",
            Action::PopMpls { .. } => "pop_mpls",
            Action::SetMplsLabel(_) => "set_mpls_label",
            Action::SetMplsTc(_) => "set_mpls_tc",
            Action::SetMplsTtl(_) => "set_mpls_ttl",
            Action::DecMplsTtl => "dec_mpls_ttl",
            Action::DecTtl { .. } => "dec_ttl",
            Action::SetQueue(_) => "set_queue",
            Action::SetTunnel { id, spelled: TunnelSpelling::SetTunnel }
                if u32::try_from(*id).is_ok() =>
            {
                "set_tunnel"
            }
            Action::SetTunnel { .. } => "set_tunnel64",
            Action::PopQueue => "pop_queue",
            Action::FinTimeout { .. } => "fin_timeout",
            Action::Resubmit { .. } => "resubmit",
            Action::Learn(_) => "learn",
            Action::Conjunction { .. } => "conjunction",
            Action::Multipath(_) => "multipath",
            Action::Note(_) => "note",
            Action::Exit => "exit",
            Action::Sample { .. } => "sample",
            Action::Clone(_) => "clone",
            Action::Ct(_) => "ct",
            Action::Nat(_) => "nat",
            Action::CtClear => "ct_clear",
            Action::Encap(_) => "encap",
            Action::Decap { .. } => "decap",
            Action::DecNshTtl => "dec_nsh_ttl",
            Action::DebugSlow => "debug_slow",
            Action::DebugRecirc => "debug_recirc",
            Action::CheckPktLarger { .. } => "check_pkt_larger",
            Action::Meter(_) => "meter",
            Action::ClearActions => "clear_actions",
            Action::WriteActions(_) => "write_actions",
            Action::WriteMetadata { .. } => "write_metadata",
            Action::GotoTable(_) => "goto_table",
        }
    }
}

/// The register loads that set the one bits of `mask` in a field to those of `value`: one for each run
/// of bits, of at most 64 bits, lowest first.
pub(crate) fn loads(
    field: Field,
    value: FieldValue,
    mask: FieldValue,
) -> impl Iterator<Item = (Subfield, u64)> {
    let mut mask = mask & crate::nxm::ones(field.width());
    std::iter::from_fn(move || {
        let start = mask.checked_ilog2().map(|_| mask.trailing_zeros())?;
        let bits = (mask >> start).trailing_ones().min(64);
        let run = crate::nxm::ones(bits as u16);
        mask &= !(run << start);
        let dst = Subfield { field, start: start as u16, bits: bits as u16 };
        Some((dst, (value >> start & run) as u64)) // run is at most 64 bits
    })
}

/// How the set of a tunnel's key was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TunnelSpelling {
    /// `set_tunnel`.
    SetTunnel,
    /// `set_tunnel64`.
    SetTunnel64,
}

/// Which spelling a set came in, so that dumps give it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SetSpelling {
    /// `set_field:`.
    SetField,
    /// `load:` (NXAST_REG_LOAD).
    Load,
}

/// Which name the removal of a VLAN header came by, so that the switch's own texts
/// (`bridge/dump-flows`, `ofproto/trace`) give it back. On the wire the version decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PopSpelling {
    /// `pop_vlan`: OpenFlow 1.1 and later.
    PopVlan,
    /// `strip_vlan`: OpenFlow 1.0.
    StripVlan,
}

/// `controller(...)`, NXAST_CONTROLLER and NXAST_CONTROLLER2.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Controller {
    /// Bytes of the packet to send; 0xffff is all of it.
    pub max_len: u16,
    /// Which controllers (NXT_SET_CONTROLLER_ID).
    pub controller_id: u16,
    /// OFPR_* (1.0 numbering as in NXAST_CONTROLLER: 0 no match, 1 action, 2 invalid ttl).
    pub reason: u8,
    /// Data given back with NXT_PACKET_IN2.
    pub userdata: Vec<u8>,
    /// Freeze the pipeline for NXT_RESUME.
    pub pause: bool,
    /// Meter, 0xffffffff for none.
    pub meter_id: u32,
}

/// `learn(...)`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Learn {
    /// Idle timeout of learned flows, in seconds; 0 is never.
    pub idle_timeout: u16,
    /// Hard timeout of learned flows, in seconds; 0 is never.
    pub hard_timeout: u16,
    /// Priority of learned flows.
    pub priority: u16,
    /// Cookie of learned flows.
    pub cookie: u64,
    /// `send_flow_rem`.
    pub send_flow_removed: bool,
    /// `delete_learned`.
    pub delete_learned: bool,
    /// Table of learned flows.
    pub table: u8,
    /// Idle timeout after a FIN or RST, in seconds; 0 leaves the timeout alone.
    pub fin_idle_timeout: u16,
    /// Hard timeout after a FIN or RST, in seconds; 0 leaves the timeout alone.
    pub fin_hard_timeout: u16,
    /// Most learned flows; 0 is no limit.
    pub limit: u32,
    /// `result_dst=`: a bit set to 1 when a flow was learned or there.
    pub result_dst: Option<Subfield>,
    /// Specifications of the learned flow's match and actions.
    pub specs: Vec<LearnSpec>,
}

/// One item of `learn(...)`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LearnSpec {
    /// Number of bits.
    pub bits: u16,
    /// Where they come from.
    pub src: LearnSource,
    /// Where they go.
    pub dst: LearnTarget,
}

/// Source of a [`LearnSpec`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LearnSource {
    /// A field of the packet.
    Field(Subfield),
    /// A constant, right-aligned. As in OVS it is kept in whole bytes; bits beyond
    /// [`LearnSpec::bits`] have no effect, but dumps show them.
    Value(FieldValue),
}

/// Target of a [`LearnSpec`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LearnTarget {
    /// The learned flow matches it.
    Match(Subfield),
    /// The learned flow loads it.
    Load(Subfield),
    /// The learned flow outputs to the port that the source names.
    Output,
}

/// Hash fields of `multipath` and `bundle` (enum nx_hash_fields).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HashFields {
    /// `eth_src`.
    EthSrc,
    /// `symmetric_l4`.
    SymmetricL4,
    /// `symmetric_l3l4`.
    SymmetricL3L4,
    /// `symmetric_l3l4+udp`.
    SymmetricL3L4Udp,
    /// `nw_src`.
    NwSrc,
    /// `nw_dst`.
    NwDst,
    /// `symmetric_l3`.
    SymmetricL3,
}

/// Algorithm of `multipath` (enum nx_mp_algorithm).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MultipathAlgorithm {
    /// `modulo_n`.
    ModuloN,
    /// `hash_threshold`.
    HashThreshold,
    /// `hrw`.
    Hrw,
    /// `iter_hash`.
    IterHash,
}

/// `multipath(...)`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Multipath {
    /// The fields that the hash covers.
    pub fields: HashFields,
    /// Mixed into the hash.
    pub basis: u16,
    /// How a link is chosen.
    pub algorithm: MultipathAlgorithm,
    /// Highest link number.
    pub max_link: u16,
    /// Argument of the algorithm.
    pub arg: u32,
    /// The bits for the link number.
    pub dst: Subfield,
}

/// Algorithm of `bundle` (enum nx_bd_algorithm).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BundleAlgorithm {
    /// `active_backup`.
    ActiveBackup,
    /// `hrw`.
    Hrw,
}

/// `bundle(...)`, and `bundle_load(...)` when `dst` is there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Bundle {
    /// The fields that the hash covers.
    pub fields: HashFields,
    /// Mixed into the hash.
    pub basis: u16,
    /// How a member is chosen.
    pub algorithm: BundleAlgorithm,
    /// The ports.
    pub members: Vec<PortNo>,
    /// Register for the chosen port instead of output.
    pub dst: Option<Subfield>,
}

/// An observation domain or an observation point of `sample(...)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ObservationId {
    /// The same id for all packets.
    Number(u32),
    /// The id is in a field of the packet: at most [`ObservationId::MAX_BITS`] bits (Open vSwitch 3.4).
    Field(Subfield),
}

impl ObservationId {
    /// Largest number of bits of a field.
    pub const MAX_BITS: u16 = 32;
}

/// Direction of `sample(...)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SampleDirection {
    /// No direction is set.
    Default,
    /// `ingress`.
    Ingress,
    /// `egress`.
    Egress,
}

#[cfg(test)]
mod tests;
