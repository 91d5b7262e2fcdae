// SPDX-License-Identifier: Apache-2.0
//! Nicira's actions (NXAST_*), from bytes. ovs-actions(7) describes each; the layouts are those
//! of Open vSwitch's nicira extensions.

use super::operand::{
    Setting, low_bits, move_action, mpls_ethertype, ofs_nbits, old_header, output_port, set_entry,
    subfield, writable,
};
use super::{
    Action, Bundle, BundleAlgorithm, Controller, HashFields, Multipath, MultipathAlgorithm,
    ObservationId, SampleDirection, TunnelSpelling, ct, debug_actions_allowed, encap, learn,
    verify,
};
use crate::nxm::pull_header;
use crate::wire::Reader;
use crate::{OfError, PortNo, Version};
use flow::{Field, FieldValue};

// Subtypes.
pub(super) const RESUBMIT: u16 = 1;
pub(super) const SET_TUNNEL: u16 = 2;
pub(super) const SET_QUEUE: u16 = 4;
pub(super) const POP_QUEUE: u16 = 5;
pub(super) const REG_MOVE: u16 = 6;
pub(super) const REG_LOAD: u16 = 7;
pub(super) const NOTE: u16 = 8;
pub(super) const SET_TUNNEL64: u16 = 9;
pub(super) const MULTIPATH: u16 = 10;
pub(super) const BUNDLE: u16 = 12;
pub(super) const BUNDLE_LOAD: u16 = 13;
pub(super) const RESUBMIT_TABLE: u16 = 14;
pub(super) const OUTPUT_REG: u16 = 15;
pub(super) const LEARN: u16 = 16;
pub(super) const EXIT: u16 = 17;
pub(super) const DEC_TTL: u16 = 18;
pub(super) const FIN_TIMEOUT: u16 = 19;
pub(super) const CONTROLLER: u16 = 20;
pub(super) const DEC_TTL_CNT_IDS: u16 = 21;
pub(super) const WRITE_METADATA: u16 = 22;
pub(super) const PUSH_MPLS: u16 = 23;
pub(super) const POP_MPLS: u16 = 24;
pub(super) const SET_MPLS_TTL: u16 = 25;
pub(super) const DEC_MPLS_TTL: u16 = 26;
pub(super) const STACK_PUSH: u16 = 27;
pub(super) const STACK_POP: u16 = 28;
pub(super) const SAMPLE: u16 = 29;
pub(super) const SET_MPLS_LABEL: u16 = 30;
pub(super) const SET_MPLS_TC: u16 = 31;
pub(super) const OUTPUT_REG2: u16 = 32;
pub(super) const REG_LOAD2: u16 = 33;
pub(super) const CONJUNCTION: u16 = 34;
pub(super) const CT: u16 = 35;
pub(super) const NAT: u16 = 36;
pub(super) const CONTROLLER2: u16 = 37;
pub(super) const SAMPLE2: u16 = 38;
pub(super) const OUTPUT_TRUNC: u16 = 39;
pub(super) const GROUP: u16 = 40;
pub(super) const SAMPLE3: u16 = 41;
pub(super) const CLONE: u16 = 42;
pub(super) const CT_CLEAR: u16 = 43;
pub(super) const RESUBMIT_TABLE_CT: u16 = 44;
pub(super) const LEARN2: u16 = 45;
pub(super) const ENCAP: u16 = 46;
pub(super) const DECAP: u16 = 47;
pub(super) const DEC_NSH_TTL: u16 = 48;
pub(super) const CHECK_PKT_LARGER: u16 = 49;
pub(super) const DELETE_FIELD: u16 = 50;
pub(super) const SAMPLE4: u16 = 51;
pub(super) const DEBUG_SLOW: u16 = 254;
pub(super) const DEBUG_RECIRC: u16 = 255;

/// True for subtypes that this switch has in `version`. Where a version has an action of its own
/// for it, Nicira's is for those before it.
pub(super) fn is_known(version: Version, subtype: u16) -> bool {
    match subtype {
        SET_QUEUE | DEC_TTL | PUSH_MPLS | POP_MPLS | SET_MPLS_TTL | DEC_MPLS_TTL
        | SET_MPLS_LABEL | SET_MPLS_TC | GROUP => version == Version::V10,
        REG_MOVE | REG_LOAD | REG_LOAD2 => version < Version::V15,
        ENCAP | DECAP | DEC_NSH_TTL => version >= Version::V13,
        RESUBMIT | POP_QUEUE | NOTE | MULTIPATH | BUNDLE | BUNDLE_LOAD | RESUBMIT_TABLE
        | OUTPUT_REG | LEARN | EXIT | FIN_TIMEOUT | CONTROLLER | DEC_TTL_CNT_IDS
        | WRITE_METADATA | STACK_PUSH | STACK_POP | SAMPLE | OUTPUT_REG2 | CONJUNCTION
        | CONTROLLER2 | SAMPLE2 | OUTPUT_TRUNC | SAMPLE3 | SAMPLE4 | CLONE | LEARN2
        | CHECK_PKT_LARGER | CT | NAT | CT_CLEAR | RESUBMIT_TABLE_CT | SET_TUNNEL
        | SET_TUNNEL64 | DELETE_FIELD => true,
        DEBUG_SLOW | DEBUG_RECIRC => debug_actions_allowed(),
        _ => false,
    }
}

/// Length of a subtype's body after the 10 bytes of header: `Ok` exactly, `Err` at least.
fn body_len(subtype: u16) -> Result<usize, usize> {
    match subtype {
        REG_LOAD | SET_TUNNEL64 | SAMPLE | STACK_PUSH | STACK_POP => Ok(14),
        OUTPUT_REG | OUTPUT_REG2 | DELETE_FIELD => Ok(14),
        MULTIPATH | WRITE_METADATA | SAMPLE2 | SAMPLE3 => Ok(22),
        SAMPLE4 => Ok(30),
        REG_MOVE | NOTE | BUNDLE | BUNDLE_LOAD | LEARN | LEARN2 | DEC_TTL_CNT_IDS | REG_LOAD2
        | CONTROLLER2 | CLONE | CHECK_PKT_LARGER | CT | NAT | ENCAP | DECAP => Err(match subtype {
            CT => 14,
            REG_MOVE | CHECK_PKT_LARGER => 14,
            BUNDLE | BUNDLE_LOAD | LEARN => 22,
            LEARN2 => 30,
            _ => 6,
        }),
        _ => Ok(6),
    }
}

/// Reads the list of actions inside a `clone(...)` or `ct(...)`, which are not verified.
pub(super) type NestedList<'a> = &'a dyn Fn(&[u8]) -> Result<Vec<Action>, OfError>;

/// Reads the action of `subtype`; `r` starts after the subtype and ends with the action.
pub(super) fn decode(
    subtype: u16,
    version: Version,
    mut r: Reader,
    nested: NestedList<'_>,
) -> Result<Action, OfError> {
    let fits = match body_len(subtype) {
        Ok(n) => r.len() == n,
        Err(n) => r.len() >= n,
    };
    if !fits {
        return Err(OfError::OFPBAC_BAD_LEN);
    }
    let must_be_zero = OfError::NXBRC_MUST_BE_ZERO;
    let bad = OfError::OFPBAC_BAD_ARGUMENT;
    let r = &mut r;
    Ok(match subtype {
        RESUBMIT => resubmit(r.u16()?, u8::MAX, false),
        RESUBMIT_TABLE | RESUBMIT_TABLE_CT => {
            let action = resubmit(r.u16()?, r.u8()?, subtype == RESUBMIT_TABLE_CT);
            r.zeros(3, bad)?;
            action
        }
        SET_QUEUE => Action::SetQueue(word(r)?),
        SET_TUNNEL => Action::SetTunnel { id: word(r)?.into(), spelled: TunnelSpelling::SetTunnel },
        SET_TUNNEL64 => {
            r.skip(6)?;
            Action::SetTunnel { id: r.u64()?, spelled: TunnelSpelling::SetTunnel64 }
        }
        GROUP => Action::Group(word(r)?),
        SET_MPLS_LABEL => Action::SetMplsLabel(word(r)? & 0xf_ffff),
        POP_QUEUE => Action::PopQueue,
        EXIT => Action::Exit,
        DEC_TTL => Action::DecTtl { controllers: vec![0] },
        DEC_MPLS_TTL => Action::DecMplsTtl,
        SET_MPLS_TTL => Action::SetMplsTtl(r.u8()?),
        SET_MPLS_TC => Action::SetMplsTc(r.u8()? & 7),
        PUSH_MPLS => Action::PushMpls { ethertype: mpls_ethertype(r.u16()?)? },
        POP_MPLS => Action::PopMpls { ethertype: r.u16()? },
        FIN_TIMEOUT => Action::FinTimeout { idle: r.u16()?, hard: r.u16()? },
        NOTE => Action::Note(r.peek().to_vec()),
        WRITE_METADATA => {
            r.zeros(6, must_be_zero)?;
            Action::WriteMetadata { value: r.u64()?, mask: r.u64()? }
        }
        DEC_TTL_CNT_IDS => {
            let n = r.u16()?;
            r.zeros(4, must_be_zero)?;
            let controllers = (0..n).map(|_| r.u16()).collect::<Result<_, _>>()?;
            Action::DecTtl { controllers }
        }
        REG_MOVE => {
            let (bits, src, dst) = (r.u16()?, r.u16()?, r.u16()?);
            let src = (pull_header(r)?, src);
            let dst = (pull_header(r)?, dst);
            r.zero_rest(must_be_zero)?;
            move_action(bits, src, dst)?
        }
        REG_LOAD => {
            let word = r.u16()?;
            let dst = writable(ofs_nbits(old_header(r)?, word)?)?;
            let value = u128::from(r.u64()?);
            if low_bits(value, dst.bits) != value {
                return Err(bad);
            }
            // 16 bits in OXM, but a key holds 8 (as OVS's does).
            if dst.field == Field::ArpOp && value << dst.start > 0xff {
                return Err(OfError::OFPBAC_BAD_SET_ARGUMENT);
            }
            Action::load(dst, value)
        }
        REG_LOAD2 => match set_entry(r)? {
            Setting::Field(field, value, mask) => {
                Action::set_field(field, value, mask.unwrap_or(FieldValue::MAX))
            }
            Setting::Option(action) => action,
        },
        STACK_PUSH | STACK_POP => {
            let start = r.u16()?;
            let (field, bits) = (pull_header(r)?, r.u16()?);
            r.zero_rest(must_be_zero)?;
            let part = subfield(field, start, bits)?;
            if subtype == STACK_PUSH {
                Action::StackPush(part)
            } else {
                Action::StackPop(writable(part)?)
            }
        }
        OUTPUT_REG => {
            let word = r.u16()?;
            let mut field = Reader::new(r.bytes(4)?, OfError::OFPBAC_BAD_LEN);
            let max_len = r.u16()?;
            r.zero_rest(bad)?;
            Action::OutputReg { src: ofs_nbits(old_header(&mut field)?, word)?, max_len }
        }
        OUTPUT_REG2 => {
            let (word, max_len) = (r.u16()?, r.u16()?);
            let field = pull_header(r)?;
            r.zero_rest(must_be_zero)?;
            Action::OutputReg { src: ofs_nbits(field, word)?, max_len }
        }
        OUTPUT_TRUNC => {
            let port = PortNo::from_u16(r.u16()?);
            let max_len = r.u32()?;
            if max_len < ETHERNET_HEADER_LEN {
                return Err(bad);
            }
            Action::OutputTrunc { port, max_len }
        }
        CONTROLLER => {
            let (max_len, controller_id, reason) = (r.u16()?, r.u16()?, r.u8()?);
            Action::Controller(Box::new(Controller {
                max_len,
                controller_id,
                reason,
                userdata: Vec::new(),
                pause: false,
                meter_id: NO_METER,
            }))
        }
        CONTROLLER2 => controller2(r)?,
        MULTIPATH => multipath(r)?,
        BUNDLE | BUNDLE_LOAD => bundle(r, subtype == BUNDLE_LOAD)?,
        LEARN | LEARN2 => Action::Learn(Box::new(learn::decode(r, subtype == LEARN2)?)),
        CONJUNCTION => {
            let (clause, clauses, id) = (r.u8()?, r.u8()?, r.u32()?);
            if !(2..=64).contains(&clauses) || clause >= clauses {
                return Err(OfError::NXBAC_BAD_CONJUNCTION);
            }
            Action::Conjunction { id, clause, clauses }
        }
        SAMPLE | SAMPLE2 | SAMPLE3 | SAMPLE4 => sample(r, subtype)?,
        CLONE => {
            r.skip(6)?;
            let actions = nested(r.peek())?;
            verify::apply_only(&actions, version)?;
            Action::Clone(actions)
        }
        CT => Action::Ct(Box::new(ct::decode(r, nested)?)),
        NAT => Action::Nat(ct::decode_nat(r)?),
        CT_CLEAR => Action::CtClear,
        ENCAP => Action::Encap(Box::new(encap::decode(r)?)),
        DECAP => Action::Decap { packet_type: encap::decode_decap(r)? },
        DEC_NSH_TTL => Action::DecNshTtl,
        DEBUG_SLOW => Action::DebugSlow,
        DEBUG_RECIRC => Action::DebugRecirc,
        CHECK_PKT_LARGER => {
            let (len, start) = (r.u16()?, r.u16()?);
            let field = pull_header(r)?;
            r.zero_rest(must_be_zero)?;
            Action::CheckPktLarger { len, dst: writable(subfield(field, start, 1)?)? }
        }
        // The rest is padding, which Open vSwitch does not check.
        DELETE_FIELD => Action::DeleteField(pull_header(r)?),
        _ => return Err(OfError::OFPBAC_BAD_VENDOR_TYPE),
    })
}

/// Least length that `output(max_len=)` may cut to, in bytes.
pub(super) const ETHERNET_HEADER_LEN: u32 = 14;
/// "No meter" of `controller(...)`.
pub(super) const NO_METER: u32 = u32::MAX;

/// A 32-bit argument after two bytes of padding.
fn word(r: &mut Reader) -> Result<u32, OfError> {
    r.skip(2)?;
    r.u32()
}

fn resubmit(port: u16, table: u8, original_tuple: bool) -> Action {
    let port = PortNo::from_u16(port);
    Action::Resubmit {
        port: (port != PortNo::IN_PORT).then_some(port),
        table: (table != u8::MAX).then_some(table),
        original_tuple,
    }
}

fn sample(r: &mut Reader, subtype: u16) -> Result<Action, OfError> {
    let probability = r.u16()?;
    if probability == 0 {
        return Err(OfError::OFPBAC_BAD_ARGUMENT);
    }
    let collector_set = r.u32()?;
    let (obs_domain, obs_point) = match subtype {
        SAMPLE4 => (observation_id(r)?, observation_id(r)?),
        _ => (ObservationId::Number(r.u32()?), ObservationId::Number(r.u32()?)),
    };
    let (mut sampling_port, mut direction) = (PortNo::NONE, SampleDirection::Default);
    if subtype != SAMPLE {
        sampling_port = PortNo::from_u16(r.u16()?);
    }
    if matches!(subtype, SAMPLE3 | SAMPLE4) {
        direction = match r.u8()? {
            0 => SampleDirection::Default,
            1 => SampleDirection::Ingress,
            2 => SampleDirection::Egress,
            _ => return Err(OfError::OFPBAC_BAD_ARGUMENT),
        };
        r.zero_rest(OfError::NXBRC_MUST_BE_ZERO)?;
    }
    Ok(Action::Sample {
        probability,
        collector_set,
        obs_domain,
        obs_point,
        sampling_port,
        direction,
    })
}

/// Reads an id of NXAST_SAMPLE4: the header of a field and its bits, or 0 and a number.
fn observation_id(r: &mut Reader) -> Result<ObservationId, OfError> {
    let (header, mut value) = (r.bytes(4)?, Reader::new(r.bytes(4)?, OfError::OFPBAC_BAD_LEN));
    if header == [0; 4] {
        return Ok(ObservationId::Number(value.u32()?));
    }
    let field = pull_header(&mut Reader::new(header, OfError::OFPBMC_BAD_FIELD))?;
    let src = ofs_nbits(field, value.u16()?)?;
    if src.bits > ObservationId::MAX_BITS {
        return Err(OfError::OFPBAC_BAD_ARGUMENT);
    }
    Ok(ObservationId::Field(src))
}

/// NXAST_CONTROLLER2: properties of type, length (both 16 bits), value, padding to 8.
fn controller2(r: &mut Reader) -> Result<Action, OfError> {
    r.zeros(6, OfError::NXBRC_MUST_BE_ZERO)?;
    let bad_len = OfError::OFPBPC_BAD_LEN;
    let mut out = Controller {
        max_len: u16::MAX,
        controller_id: 0,
        reason: 1, // OFPR_ACTION
        userdata: Vec::new(),
        pause: false,
        meter_id: NO_METER,
    };
    let mut props = Reader::new(r.peek(), bad_len);
    while !props.is_empty() {
        let (ty, len) = (props.u16()?, usize::from(props.u16()?));
        let padded = len.next_multiple_of(8).checked_sub(4).ok_or(bad_len)?;
        let value = len.checked_sub(4).ok_or(bad_len)?;
        let value = props.bytes(padded)?.get(..value).ok_or(bad_len)?;
        let mut v = Reader::new(value, bad_len);
        let whole = |n: usize| if value.len() == n { Ok(()) } else { Err(bad_len) };
        match ty {
            0 => whole(4).and_then(|()| v.u16()).map(|n| out.max_len = n)?,
            1 => whole(4).and_then(|()| v.u16()).map(|n| out.controller_id = n)?,
            2 => whole(4).and_then(|()| v.u8()).map(|n| out.reason = n)?,
            3 => out.userdata = value.to_vec(),
            4 => whole(0).map(|()| out.pause = true)?,
            5 => whole(4).and_then(|()| v.u32()).map(|n| out.meter_id = n)?,
            _ => return Err(OfError::OFPBPC_BAD_TYPE),
        }
    }
    Ok(Action::Controller(Box::new(out)))
}

/// Numbers of enum nx_hash_fields.
const HASH_FIELDS: [HashFields; 7] = [
    HashFields::EthSrc,
    HashFields::SymmetricL4,
    HashFields::SymmetricL3L4,
    HashFields::SymmetricL3L4Udp,
    HashFields::NwSrc,
    HashFields::NwDst,
    HashFields::SymmetricL3,
];
/// Numbers of enum nx_mp_algorithm.
const MULTIPATH_ALGORITHMS: [MultipathAlgorithm; 4] = [
    MultipathAlgorithm::ModuloN,
    MultipathAlgorithm::HashThreshold,
    MultipathAlgorithm::Hrw,
    MultipathAlgorithm::IterHash,
];
/// Numbers of enum nx_bd_algorithm.
const BUNDLE_ALGORITHMS: [BundleAlgorithm; 2] =
    [BundleAlgorithm::ActiveBackup, BundleAlgorithm::Hrw];

/// The `number`th of a list.
fn nth<T: Copy>(list: &[T], number: u16) -> Result<T, OfError> {
    list.get(usize::from(number)).copied().ok_or(OfError::OFPBAC_BAD_ARGUMENT)
}

/// The number of `item` in a list that has every value of its type.
fn number<T: PartialEq>(list: &[T], item: &T) -> u16 {
    list.iter().position(|x| x == item).unwrap_or(0) as u16
}

pub(super) fn hash_fields_number(f: HashFields) -> u16 {
    number(&HASH_FIELDS, &f)
}
pub(super) fn multipath_number(a: MultipathAlgorithm) -> u16 {
    number(&MULTIPATH_ALGORITHMS, &a)
}
pub(super) fn bundle_number(a: BundleAlgorithm) -> u16 {
    number(&BUNDLE_ALGORITHMS, &a)
}

fn multipath(r: &mut Reader) -> Result<Action, OfError> {
    let (fields, basis) = (r.u16()?, r.u16()?);
    r.skip(2)?;
    let (algorithm, max_link, arg) = (r.u16()?, r.u16()?, r.u32()?);
    r.skip(2)?;
    let word = r.u16()?;
    let fields = nth(&HASH_FIELDS, fields)?;
    let algorithm = nth(&MULTIPATH_ALGORITHMS, algorithm)?;
    let field = old_header(r)?;
    if !links_fit(max_link, (word & 0x3f) + 1) {
        return Err(OfError::OFPBAC_BAD_ARGUMENT);
    }
    let dst = writable(ofs_nbits(field, word)?)?;
    Ok(Action::Multipath(Box::new(Multipath { fields, basis, algorithm, max_link, arg, dst })))
}

/// True when `bits` bits can hold every link number up to `max_link`.
pub(super) fn links_fit(max_link: u16, bits: u16) -> bool {
    bits >= 16 || u32::from(max_link) < 1 << bits
}

/// Most members of a bundle.
pub(super) const BUNDLE_MAX_MEMBERS: usize = 2048;

fn bundle(r: &mut Reader, load: bool) -> Result<Action, OfError> {
    let bad = OfError::OFPBAC_BAD_ARGUMENT;
    let (algorithm, fields, basis) = (r.u16()?, r.u16()?, r.u16()?);
    let (member_type, n, word) = (r.u32()?, usize::from(r.u16()?), r.u16()?);
    let fields = nth(&HASH_FIELDS, fields)?;
    let algorithm = nth(&BUNDLE_ALGORITHMS, algorithm)?;
    let in_port = Field::InPort.oxm(0).map(|n| n.header(2, false));
    if n > BUNDLE_MAX_MEMBERS || Some(member_type) != in_port {
        return Err(bad);
    }
    let dst = if load {
        let dst = writable(ofs_nbits(old_header(r)?, word)?)?;
        if dst.bits < 16 {
            return Err(bad);
        }
        r.skip(4)?;
        Some(dst)
    } else {
        if word != 0 || r.u32()? != 0 {
            return Err(bad);
        }
        r.zeros(4, bad)?;
        None
    };
    let mut members = Vec::with_capacity(n.min(r.len() / 2));
    for _ in 0..n {
        members.push(PortNo::from_u16(r.u16()?));
    }
    for port in &members {
        bundle_member(*port)?;
    }
    Ok(Action::Bundle(Box::new(Bundle { fields, basis, algorithm, members, dst })))
}

/// Checks that `port` can be a member of a bundle: any port, or none; not the controller, as
/// there is no `max_len` for it.
pub(super) fn bundle_member(port: PortNo) -> Result<(), OfError> {
    match port {
        PortNo::NONE => Ok(()),
        PortNo::CONTROLLER => Err(OfError::OFPBAC_BAD_OUT_PORT),
        _ => output_port(port).map(|_| ()),
    }
}
