// SPDX-License-Identifier: Apache-2.0
//! Cookies of upcalls from actions, in the form of Open vSwitch (`struct user_action_cookie` in
//! lib/odp-util.h), so that its tools show them.

use datapath::{PortNo, SampleDirection, SampleOrigin, Userdata};
use netlink::attribute::array;

/// Bytes of a cookie.
const LENGTH: usize = 48;

/// `enum user_action_cookie_type`
mod kind {
    pub const SFLOW: u16 = 1;
    pub const SLOW_PATH: u16 = 2;
    pub const FLOW_SAMPLE: u16 = 3;
    pub const IPFIX: u16 = 4;
    pub const CONTROLLER: u16 = 5;
}

/// Offsets in bytes.
mod at {
    /// The number of the OpenFlow port.
    pub const IN_PORT: usize = 4;
    /// The bridge of a sample, in the place of its UUID.
    pub const BRIDGE: usize = 8;
    /// The first byte of the part that depends on the kind.
    pub const REST: usize = 24;
}

/// The OpenFlow port in cookies: `OFPP_NONE`.
const NO_PORT: u32 = 0xffff;

/// Reasons in the order of their bits (`enum slow_path_reason`).
const REASONS: [&str; 7] = ["cfm", "bfd", "lacp", "stp", "lldp", "action", "match"];

/// Encodes a cookie. Slow paths for a reason that Open vSwitch does not have are for `action`.
pub fn encode(userdata: &Userdata) -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    let mut put = |offset: usize, value: &[u8]| {
        if let Some(place) = bytes.get_mut(offset..offset + value.len()) {
            place.copy_from_slice(value);
        }
    };
    put(at::IN_PORT, &NO_PORT.to_ne_bytes());
    match userdata {
        Userdata::SlowPath { reason } => {
            let bit = REASONS.iter().position(|known| known == reason).unwrap_or(5);
            put(0, &kind::SLOW_PATH.to_ne_bytes());
            put(at::REST + 4, &(1u32 << bit).to_ne_bytes());
        }
        Userdata::Sflow { vlan_tci, output } => {
            put(0, &kind::SFLOW.to_ne_bytes());
            put(at::REST, &vlan_tci.to_be_bytes());
            put(at::REST + 4, &output.to_ne_bytes());
        }
        Userdata::FlowSample {
            probability,
            collector_set,
            obs_domain,
            obs_point,
            output_port,
            direction,
            origin,
        } => {
            put(0, &kind::FLOW_SAMPLE.to_ne_bytes());
            put(at::REST, &probability.to_ne_bytes());
            put(at::REST + 4, &collector_set.to_ne_bytes());
            put(at::REST + 8, &obs_domain.to_ne_bytes());
            put(at::REST + 12, &obs_point.to_ne_bytes());
            put(at::REST + 16, &output_port.0.to_ne_bytes());
            put(at::REST + 20, &(*direction as u32).to_ne_bytes());
            put(at::BRIDGE, &origin.bridge.to_ne_bytes());
            put(at::REST + 2, &[u8::from(origin.is_dropped)]); // padding in Open vSwitch
        }
        Userdata::Ipfix { output_port, origin } => {
            put(0, &kind::IPFIX.to_ne_bytes());
            put(at::REST, &output_port.0.to_ne_bytes());
            put(at::BRIDGE, &origin.bridge.to_ne_bytes());
            put(at::REST + 4, &[u8::from(origin.is_dropped)]);
        }
        Userdata::Controller {
            reason,
            max_len,
            controller_id,
            recirc_id,
            rule_cookie,
            continuation,
        } => {
            put(0, &kind::CONTROLLER.to_ne_bytes());
            put(at::REST + 1, &[u8::from(*continuation)]);
            put(at::REST + 2, &u16::from(*reason).to_ne_bytes());
            put(at::REST + 4, &recirc_id.to_ne_bytes());
            put(at::REST + 8, &rule_cookie.to_be_bytes());
            put(at::REST + 16, &controller_id.to_ne_bytes());
            put(at::REST + 18, &max_len.to_ne_bytes());
        }
    }
    bytes
}

/// Decodes a cookie. `None` for one that [`encode`] does not make.
pub fn decode(bytes: &[u8]) -> Option<Userdata> {
    (bytes.len() == LENGTH).then_some(())?;
    let half = |offset: usize| Some(u16::from_ne_bytes(array(bytes.get(offset..)?)?));
    let word = |offset: usize| Some(u32::from_ne_bytes(array(bytes.get(offset..)?)?));
    let origin = |dropped: usize| {
        let is_dropped = *bytes.get(dropped)? != 0;
        Some(SampleOrigin { bridge: half(at::BRIDGE)?, is_dropped })
    };
    Some(match half(0)? {
        kind::SLOW_PATH => {
            let bit = word(at::REST + 4)?.trailing_zeros() as usize;
            Userdata::SlowPath { reason: REASONS.get(bit)? }
        }
        kind::SFLOW => Userdata::Sflow {
            vlan_tci: u16::from_be_bytes(array(bytes.get(at::REST..)?)?),
            output: word(at::REST + 4)?,
        },
        kind::FLOW_SAMPLE => Userdata::FlowSample {
            probability: half(at::REST)?,
            collector_set: word(at::REST + 4)?,
            obs_domain: word(at::REST + 8)?,
            obs_point: word(at::REST + 12)?,
            output_port: PortNo(word(at::REST + 16)?),
            direction: match word(at::REST + 20)? {
                0 => SampleDirection::Default,
                1 => SampleDirection::Ingress,
                2 => SampleDirection::Egress,
                _ => return None,
            },
            origin: origin(at::REST + 2)?,
        },
        kind::IPFIX => {
            Userdata::Ipfix { output_port: PortNo(word(at::REST)?), origin: origin(at::REST + 4)? }
        }
        kind::CONTROLLER => Userdata::Controller {
            continuation: *bytes.get(at::REST + 1)? != 0,
            reason: u8::try_from(half(at::REST + 2)?).ok()?,
            recirc_id: word(at::REST + 4)?,
            rule_cookie: u64::from_be_bytes(array(bytes.get(at::REST + 8..)?)?),
            controller_id: half(at::REST + 16)?,
            max_len: half(at::REST + 18)?,
        },
        _ => return None,
    })
}
