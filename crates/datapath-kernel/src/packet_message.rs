// SPDX-License-Identifier: Apache-2.0
//! Upcalls, and packets on which the kernel runs actions.

use crate::cookie;
use crate::family::{Body, Families, Family, put_word};
use crate::keys;
use crate::numbering::Numbering;
use datapath::{PortNo, Userdata};
use flow::Key;
use netlink::Request;
use netlink::attribute::{array, find};
use packet::Packet;

/// `OVS_PACKET_CMD_*`
mod command {
    pub const MISS: u8 = 1;
    pub const ACTION: u8 = 2;
    pub const EXECUTE: u8 = 3;
}

/// `OVS_PACKET_ATTR_*`
mod attr {
    pub const PACKET: u16 = 1;
    pub const KEY: u16 = 2;
    pub const ACTIONS: u16 = 3;
    pub const USERDATA: u16 = 4;
    pub const MRU: u16 = 9;
    pub const HASH: u16 = 11;
}

/// Highest number of bytes of an attribute's value.
pub const LONGEST: usize = u16::MAX as usize - 4;

/// The parts of an upcall that go back to the kernel with its packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remainder {
    /// The length of the longest fragment of which the kernel made the packet.
    pub longest_fragment: Option<u16>,
    /// The packet's hash.
    pub hash: Option<u64>,
}

/// The cause of an upcall.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// No megaflow matched.
    Miss,
    /// A megaflow's action.
    Action(Userdata),
}

/// An upcall.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// The cause.
    pub cause: Cause,
    /// The packet.
    pub packet: Packet,
    /// The packet's key: its metadata is the kernel's, the rest is extracted from its bytes.
    pub key: Key,
    /// For the kernel.
    pub remainder: Remainder,
}

/// Decodes an upcall. `None` when it lacks a part, or its cookie is another program's.
pub fn decode(payload: &[u8], numbering: Numbering) -> Option<Received> {
    let body = Body::decode(payload)?;
    let cause = match body.command {
        command::MISS => Cause::Miss,
        command::ACTION => Cause::Action(cookie::decode(body.attribute(attr::USERDATA)?)?),
        _ => return None,
    };
    let frame = body.attribute(attr::PACKET)?;
    let attributes = body.attribute(attr::KEY)?;
    let (metadata, _) = keys::decode(attributes)?;
    // A packet of the switch's own came in on no port.
    let has_port = find(attributes, keys::IN_PORT).is_some();
    let port = match has_port {
        true => numbering.to_switch(metadata.in_port.get()),
        false => PortNo::NONE,
    };
    let mut key = flow::extract::key_of_type(frame, port.0, metadata.packet_type.get());
    key.set_metadata(&metadata);
    key.in_port = port.0.into();
    let half = |kind| Some(u16::from_ne_bytes(array(body.attribute(kind)?)?));
    let hash = body.attribute(attr::HASH).and_then(array).map(u64::from_ne_bytes);
    let remainder = Remainder { longest_fragment: half(attr::MRU), hash };
    Some(Received { cause, packet: Packet::from_slice(frame), key, remainder })
}

/// Returns the request that runs `actions`, which are encoded, on a packet with the metadata of
/// `key`. `None` when the packet is too long for the kernel.
pub fn execute(
    families: &Families,
    datapath: i32,
    numbering: Numbering,
    packet: &[u8],
    key: &Key,
    actions: &[u8],
    remainder: Remainder,
) -> Option<Request> {
    if packet.len() > LONGEST || actions.len() > LONGEST {
        return None;
    }
    let mut metadata = keys::encode_metadata(key);
    // Without the attribute the packet comes from no port.
    if let Some(number) = numbering.to_kernel(PortNo(key.in_port.get())) {
        put_word(&mut metadata, keys::IN_PORT, number);
    }
    let mut request = families
        .request(Family::Packet, command::EXECUTE, 0, datapath)
        .attribute(attr::PACKET, packet)
        .attribute(attr::KEY, &metadata)
        .attribute(attr::ACTIONS, actions);
    if let Some(length) = remainder.longest_fragment {
        request = request.attribute(attr::MRU, &length.to_ne_bytes());
    }
    if let Some(hash) = remainder.hash {
        request = request.attribute(attr::HASH, &hash.to_ne_bytes());
    }
    Some(request)
}
