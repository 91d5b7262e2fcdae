// SPDX-License-Identifier: Apache-2.0
//! Continuations of frozen packets (NXCPT_*), inside NXT_PACKET_IN2 and NXT_RESUME.
//!
//! Only the switch that wrote a continuation has to understand it; the properties are OVS's
//! all the same, so that `ovs-ofctl monitor` can show them.

use super::actions::{decode_actions, encode_actions};
use super::property::{self, Kind};
use super::*;
use crate::Action;
use crate::wire::{Put, Reader, Result};

const BRIDGE: u16 = 0x8000;
const STACK: u16 = 0x8001;
const MIRRORS: u16 = 0x8002;
const CONNTRACKED: u16 = 0x8003;
const TABLE_ID: u16 = 0x8004;
const COOKIE: u16 = 0x8005;
const ACTIONS: u16 = 0x8006;
const ACTION_SET: u16 = 0x8007;
const ODP_PORT: u16 = 0x8008;

/// Most bytes of one value on the stack.
const MAX_STACK_VALUE: usize = 128;

pub(super) fn decode(mut r: Reader<'_>, version: Version) -> Result<Continuation> {
    let mut c = Continuation::default();
    let (mut table_id, mut cookie) = (0, 0);
    while !r.is_empty() {
        let prop = property::next(&mut r)?;
        let Kind::Standard(ty) = prop.kind else {
            return Err(prop.unknown());
        };
        match ty {
            BRIDGE => c.bridge = prop.exactly(16)?.array()?,
            STACK => {
                if prop.value.len() > MAX_STACK_VALUE {
                    return Err(OfError::OFPBPC_BAD_LEN);
                }
                // Top first on the wire.
                c.stack.insert(0, prop.value.peek().to_vec());
            }
            MIRRORS => c.mirrors = prop.u32()?,
            CONNTRACKED => c.conntracked = true,
            TABLE_ID => table_id = prop.u8()?,
            COOKIE => cookie = prop.u64()?,
            ACTIONS => {
                let actions = decode_actions(prop.aligned()?, version)?;
                c.frames.push(ContinuationFrame { table_id, cookie, actions });
            }
            ACTION_SET => c.action_set = decode_actions(prop.aligned()?, version)?,
            ODP_PORT => c.odp_port = Some(prop.u32()?),
            _ => return Err(prop.unknown()),
        }
    }
    Ok(c)
}

fn put_actions(out: &mut Vec<u8>, ty: u16, actions: &[Action], version: Version) {
    if !actions.is_empty() {
        let at = property::start(out, ty);
        out.put_zeros(4);
        encode_actions(actions, version, out);
        property::end(out, at);
    }
}

pub(super) fn encode(c: &Continuation, version: Version, out: &mut Vec<u8>) {
    if c.bridge != [0; 16] {
        property::put(out, BRIDGE, &c.bridge);
    }
    for value in c.stack.iter().rev() {
        property::put(out, STACK, value);
    }
    if c.mirrors != 0 {
        property::put(out, MIRRORS, &c.mirrors.to_be_bytes());
    }
    if c.conntracked {
        property::put(out, CONNTRACKED, &[]);
    }
    let (mut table_id, mut cookie) = (0, 0);
    for frame in &c.frames {
        if frame.table_id != table_id {
            property::put(out, TABLE_ID, &[frame.table_id]);
            table_id = frame.table_id;
        }
        if frame.cookie != cookie {
            property::put_u64(out, COOKIE, frame.cookie);
            cookie = frame.cookie;
        }
        put_actions(out, ACTIONS, &frame.actions, version);
    }
    put_actions(out, ACTION_SET, &c.action_set, version);
    if let Some(port) = c.odp_port {
        property::put(out, ODP_PORT, &port.to_be_bytes());
    }
}
