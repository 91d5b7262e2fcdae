// SPDX-License-Identifier: Apache-2.0
//! From bytes to actions.
//!
//! OpenFlow's own actions are here, Nicira's and the ONF's in `nicira`. Errors are those that
//! Open vSwitch gives for the same bytes. Padding is ignored where OpenFlow says "pad" and must
//! be zero where Nicira's extensions say "must be zero".

use super::operand::{
    Setting, move_action, mpls_ethertype, output_port, port_from_u32, set_entry, vlan_ethertype,
};
use super::{Action, PopSpelling, nicira, verify};
use crate::nxm::pull_header;
use crate::wire::Reader;
use crate::{OfError, PortNo, Version};
use flow::{Field, FieldValue};

/// Most levels of nested `clone(...)` and `ct(...)`. Deeper ones are refused with OFPBAC_TOO_MANY, so that code
/// which walks actions may recurse.
pub(crate) const MAX_CLONE_DEPTH: usize = 32;

/// OFPAT_VENDOR, OFPAT_EXPERIMENTER.
const VENDOR: u16 = 0xffff;

/// Reads a list of actions to its end, as in packet-outs, group buckets and OpenFlow 1.0's flow
/// mods (see `decode_instructions`). Actions that are instructions in OpenFlow 1.1+ are refused.
///
/// # Errors
/// OFPBRC_BAD_LEN when the length is no multiple of 8; OFPBAC_* for a bad action; OFPBIC_UNSUP_INST
/// for an instruction; NXBAC_BAD_CONJUNCTION for conjunction together with other actions.
pub fn decode_actions(bytes: &[u8], version: Version) -> Result<Vec<Action>, OfError> {
    let actions = decode_list(version, bytes)?;
    verify::apply_only(&actions, version)?;
    Ok(actions)
}

/// Reads a list of actions without [`verify`]ing it.
pub(super) fn decode_list(version: Version, bytes: &[u8]) -> Result<Vec<Action>, OfError> {
    decode_nested(version, bytes, 0)
}

fn decode_nested(version: Version, bytes: &[u8], depth: usize) -> Result<Vec<Action>, OfError> {
    if !bytes.len().is_multiple_of(8) {
        return Err(OfError::OFPBRC_BAD_LEN);
    }
    let mut out = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let mut head = Reader::new(rest, OfError::OFPBAC_BAD_LEN);
        let (ty, len) = (head.u16()?, usize::from(head.u16()?));
        let codec = Codec { version };
        // The type is looked up before the length is, as in Open vSwitch.
        let kind = codec.kind(ty, head)?;
        let body = rest.get(4..len).ok_or(OfError::OFPBAC_BAD_LEN)?;
        if !len.is_multiple_of(8) {
            return Err(OfError::OFPBAC_BAD_LEN);
        }
        let mut r = Reader::new(body, OfError::OFPBAC_BAD_LEN);
        let action = match kind {
            Kind::Standard(ty) => codec.standard(ty, &mut r)?,
            Kind::Nicira(subtype) => {
                r.skip(6)?;
                nicira::decode(subtype, version, r, &|bytes| inner_list(version, bytes, depth))?
            }
            Kind::CopyField => {
                r.skip(6 + 2)?;
                let action = copy_field(&mut r)?;
                r.zero_rest(OfError::NXBRC_MUST_BE_ZERO)?;
                action
            }
        };
        out.push(action);
        rest = rest.get(len..).unwrap_or_default();
    }
    Ok(out)
}

/// Reads the list inside a `clone(...)` or `ct(...)` at `depth`, without [`verify`]ing it.
fn inner_list(version: Version, bytes: &[u8], depth: usize) -> Result<Vec<Action>, OfError> {
    if depth >= MAX_CLONE_DEPTH {
        return Err(OfError::OFPBAC_TOO_MANY);
    }
    decode_nested(version, bytes, depth + 1)
}

/// Kind of an action, by its header.
enum Kind {
    Standard(u16),
    Nicira(u16),
    /// ONF extension 320, before OpenFlow 1.5.
    CopyField,
}

/// Reads single actions of one version.
#[derive(Clone, Copy)]
struct Codec {
    version: Version,
}

impl Codec {
    fn kind(&self, ty: u16, mut head: Reader) -> Result<Kind, OfError> {
        if ty != VENDOR {
            let known = match self.version {
                Version::V10 => ty <= 11,
                Version::V11 => matches!(ty, 0..=10 | 13..=24),
                Version::V12 | Version::V13 | Version::V14 => matches!(ty, 0..=10 | 13..=25),
                Version::V15 => matches!(ty, 0..=10 | 13..=25 | 28 | 29),
            };
            return if known { Ok(Kind::Standard(ty)) } else { Err(OfError::OFPBAC_BAD_TYPE) };
        }
        match (head.u32()?, head.u16()?) {
            (crate::error::NX_VENDOR, subtype) => {
                if nicira::is_known(self.version, subtype) {
                    Ok(Kind::Nicira(subtype))
                } else {
                    Err(OfError::OFPBAC_BAD_VENDOR_TYPE)
                }
            }
            (crate::error::ONF_VENDOR, COPY_FIELD_EXT)
                if matches!(self.version, Version::V13 | Version::V14) =>
            {
                Ok(Kind::CopyField)
            }
            (crate::error::ONF_VENDOR, _) => Err(OfError::OFPBAC_BAD_VENDOR_TYPE),
            _ => Err(OfError::OFPBAC_BAD_VENDOR),
        }
    }

    /// Reads one of OpenFlow's own actions; `r` starts after type and length.
    fn standard(&self, ty: u16, r: &mut Reader) -> Result<Action, OfError> {
        let v10 = self.version == Version::V10;
        let exact = |r: &Reader, n: usize| {
            if r.len() == n { Ok(()) } else { Err(OfError::OFPBAC_BAD_LEN) }
        };
        match ty {
            0 if v10 => {
                exact(r, 4)?;
                let port = PortNo::from_u16(r.u16()?);
                Ok(Action::Output { port: output_port(port)?, max_len: r.u16()? })
            }
            0 => {
                exact(r, 12)?;
                let port = port_from_u32(r.u32()?)?;
                Ok(Action::Output { port: output_port(port)?, max_len: r.u16()? })
            }
            11 if v10 => {
                exact(r, 12)?;
                let port = PortNo::from_u16(r.u16()?);
                if !(port.0 < PortNo::MAX.0 || port == PortNo::IN_PORT || port == PortNo::LOCAL) {
                    return Err(OfError::OFPBAC_BAD_OUT_PORT);
                }
                r.skip(6)?;
                Ok(Action::Enqueue { port, queue: r.u32()? })
            }
            // OpenFlow 1.0 has strip_vlan before the addresses, and no ECN after the ToS.
            3 if v10 => exact(r, 4).map(|()| Action::PopVlan { spelled: PopSpelling::StripVlan }),
            4..=10 if v10 => self.legacy_set(ty - 1, r),
            1..=10 => self.legacy_set(ty, r),
            25 => self.set_field(r),
            28 => {
                let action = copy_field(r)?;
                r.zero_rest(OfError::NXBRC_MUST_BE_ZERO)?;
                Ok(action)
            }
            _ => {
                exact(r, 4)?;
                self.short(ty, r)
            }
        }
    }

    /// The set actions of OpenFlow 1.1, 1 to 10.
    fn legacy_set(&self, ty: u16, r: &mut Reader) -> Result<Action, OfError> {
        let want = if matches!(ty, 3 | 4) { 12 } else { 4 };
        if r.len() != want {
            return Err(OfError::OFPBAC_BAD_LEN);
        }
        let v10 = self.version == Version::V10;
        let bad = OfError::OFPBAC_BAD_ARGUMENT;
        let low = |v: u8, max: u8| if v <= max { Ok(v) } else { Err(bad) };
        let ty = if v10 && ty >= 8 { ty + 1 } else { ty };
        Ok(match ty {
            1 => {
                let vid = r.u16()?;
                if vid > 0xfff {
                    return Err(bad);
                }
                Action::SetVlanVid { vid, push_if_missing: v10 }
            }
            2 => Action::SetVlanPcp { pcp: low(r.u8()?, 7)?, push_if_missing: v10 },
            3 => Action::SetEthSrc(r.mac()?),
            4 => Action::SetEthDst(r.mac()?),
            5 => Action::SetIpv4Src(r.u32()?),
            6 => Action::SetIpv4Dst(r.u32()?),
            7 => match r.u8()? {
                tos if tos & 3 == 0 => Action::SetIpDscp(tos),
                _ => return Err(bad),
            },
            8 => Action::SetIpEcn(low(r.u8()?, 3)?),
            9 => Action::SetL4Src(r.u16()?),
            10 => Action::SetL4Dst(r.u16()?),
            _ => return Err(OfError::OFPBAC_BAD_TYPE),
        })
    }

    /// The 8-byte actions of OpenFlow 1.1+ from 13 on.
    fn short(&self, ty: u16, r: &mut Reader) -> Result<Action, OfError> {
        Ok(match ty {
            13 => Action::SetMplsLabel(r.u32()? & 0xf_ffff),
            14 => Action::SetMplsTc(r.u8()? & 7),
            15 => Action::SetMplsTtl(r.u8()?),
            16 => Action::DecMplsTtl,
            17 => Action::PushVlan { tpid: vlan_ethertype(r.u16()?)? },
            18 => Action::PopVlan { spelled: PopSpelling::PopVlan },
            19 => Action::PushMpls { ethertype: mpls_ethertype(r.u16()?)? },
            20 => Action::PopMpls { ethertype: r.u16()? },
            21 => Action::SetQueue(r.u32()?),
            22 => Action::Group(r.u32()?),
            23 => Action::SetIpTtl(r.u8()?),
            24 => Action::DecTtl { controllers: vec![0] },
            29 => Action::Meter(r.u32()?),
            _ => return Err(OfError::OFPBAC_BAD_TYPE),
        })
    }

    fn set_field(&self, r: &mut Reader) -> Result<Action, OfError> {
        let has_mask = r.peek().get(2).is_some_and(|byte| byte & 1 != 0);
        let setting = set_entry(r)?;
        if has_mask && self.version < Version::V15 {
            return Err(OfError::OFPBAC_BAD_SET_MASK);
        }
        let (field, value, mask) = match setting {
            Setting::Field(field, value, mask) => (field, value, mask),
            Setting::Option(action) => return Ok(action),
        };
        // OpenFlow 1.3.5, 7.2.5: OXM_OF_IN_PORT must not be set.
        if field == Field::InPortOxm {
            return Err(OfError::OFPBAC_BAD_SET_ARGUMENT);
        }
        let present = u128::from(flow::VLAN_CFI);
        if field == Field::VlanVid
            && (value & present == 0 || mask.is_some_and(|m| m & present == 0))
        {
            return Err(OfError::OFPBAC_BAD_SET_ARGUMENT);
        }
        Ok(Action::set_field(field, value, mask.unwrap_or(FieldValue::MAX)))
    }
}

/// ONFACT_COPY_FIELD (ONF extension 320).
const COPY_FIELD_EXT: u16 = 3200;

/// OFPAT_COPY_FIELD from its n_bits on.
fn copy_field(r: &mut Reader) -> Result<Action, OfError> {
    let (bits, src, dst) = (r.u16()?, r.u16()?, r.u16()?);
    r.skip(2)?;
    let src = (pull_header(r)?, src);
    let dst = (pull_header(r)?, dst);
    move_action(bits, src, dst)
}
