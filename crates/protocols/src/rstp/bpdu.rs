// SPDX-License-Identifier: Apache-2.0
//! Bridge protocol data units of RSTP (IEEE 802.1D-2004, clause 9), and those of STP as RSTP reads
//! them.

use super::{Times, Vector};
use crate::spanning_tree::bpdu::{CONFIG, Fields, LLC, NOTIFICATION};
use crate::spanning_tree::{BpduError, Role};

/// The type that RSTP adds (9.3.3).
const RAPID: u8 = 0x02;
/// Versions (9.3).
const STP_VERSION: u8 = 0;
const RSTP_VERSION: u8 = 2;
/// Flags (9.3.1, 9.3.3). The role is two bits from [`ROLE_SHIFT`] on.
const TOPOLOGY_CHANGE: u8 = 0x01;
const PROPOSAL: u8 = 0x02;
const ROLE_SHIFT: u8 = 2;
const LEARNING: u8 = 0x10;
const FORWARDING: u8 = 0x20;
const AGREEMENT: u8 = 0x40;
const ACKNOWLEDGEMENT: u8 = 0x80;

/// A BPDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bpdu {
    /// A configuration of STP.
    Config(Message),
    /// A message of RSTP.
    Rapid(Message),
    /// A notification of STP: the topology has changed further down the tree.
    TopologyChange,
}

/// The contents of a configuration, or of a message of RSTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Role of the sender's port. A configuration comes from a designated port.
    pub role: Role,
    /// The topology has changed.
    pub is_changing: bool,
    /// STP: the sender has received a notification.
    pub acknowledges: bool,
    /// RSTP: the sender wants to forward at once.
    pub proposes: bool,
    /// RSTP: the receiver may forward at once.
    pub agrees: bool,
    /// RSTP: the sender's port learns.
    pub learns: bool,
    /// RSTP: the sender's port forwards.
    pub forwards: bool,
    /// The sender's information about the root. The receiver's port is not in the message, and 0.
    pub vector: Vector,
    /// Its times.
    pub times: Times,
}

/// A time in whole seconds: the low byte has parts of 1/256 s.
fn seconds(fields: &mut Fields<'_>) -> Result<u8, BpduError> {
    let [seconds, _] = fields.take()?;
    Ok(seconds)
}

impl Bpdu {
    /// Decodes a frame's bytes after the length field. Bytes after the BPDU are padding (9.3.4).
    ///
    /// # Errors
    /// The BPDU must be ignored, with the reason.
    pub fn decode(payload: &[u8]) -> Result<Bpdu, BpduError> {
        let (mut fields, version, kind) = Fields::open(payload)?;
        match kind {
            NOTIFICATION => return Ok(Bpdu::TopologyChange),
            CONFIG => {}
            RAPID if version >= RSTP_VERSION => {}
            other => return Err(BpduError::Type(other)),
        }
        let [flags] = fields.take()?;
        let root = u64::from_be_bytes(fields.take()?);
        let cost = u32::from_be_bytes(fields.take()?);
        let bridge = u64::from_be_bytes(fields.take()?);
        let bridge_port = u16::from_be_bytes(fields.take()?);
        let times = Times {
            message_age: seconds(&mut fields)?,
            max_age: seconds(&mut fields)?,
            hello_time: seconds(&mut fields)?,
            forward_delay: seconds(&mut fields)?,
        };
        let is_rapid = kind == RAPID;
        if is_rapid {
            fields.take::<1>()?; // length of a version 1 part, which there is none of
        } else if times.message_age >= times.max_age {
            return Err(BpduError::Old);
        }
        let has = |flag: u8, is_read: bool| is_read && flags & flag != 0;
        let message = Message {
            role: match flags >> ROLE_SHIFT & 3 {
                _ if !is_rapid => Role::Designated,
                1 => Role::Alternate, // or backup: the message does not distinguish them
                2 => Role::Root,
                3 => Role::Designated,
                _ => Role::Disabled,
            },
            is_changing: has(TOPOLOGY_CHANGE, true),
            acknowledges: has(ACKNOWLEDGEMENT, !is_rapid),
            proposes: has(PROPOSAL, is_rapid),
            agrees: has(AGREEMENT, is_rapid),
            learns: has(LEARNING, is_rapid),
            forwards: has(FORWARDING, is_rapid),
            vector: Vector { root, cost, bridge, bridge_port, port: 0 },
            times,
        };
        Ok(if is_rapid { Bpdu::Rapid(message) } else { Bpdu::Config(message) })
    }

    /// Returns the bytes after the length field of a frame, whose value is their number.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = LLC.to_vec();
        out.extend([0, 0]);
        let (message, version, kind) = match self {
            Bpdu::TopologyChange => {
                out.extend([STP_VERSION, NOTIFICATION]);
                return out;
            }
            Bpdu::Config(message) => (message, STP_VERSION, CONFIG),
            Bpdu::Rapid(message) => (message, RSTP_VERSION, RAPID),
        };
        let is_rapid = kind == RAPID;
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        let role = match message.role {
            _ if !is_rapid => 0,
            Role::Alternate | Role::Backup => 1,
            Role::Root => 2,
            Role::Designated => 3,
            Role::Disabled => 0,
        };
        let flags = flag(message.is_changing, TOPOLOGY_CHANGE)
            | flag(message.acknowledges && !is_rapid, ACKNOWLEDGEMENT)
            | flag(message.proposes && is_rapid, PROPOSAL)
            | flag(message.agrees && is_rapid, AGREEMENT)
            | flag(message.learns && is_rapid, LEARNING)
            | flag(message.forwards && is_rapid, FORWARDING)
            | role << ROLE_SHIFT;
        out.extend([version, kind, flags]);
        let Vector { root, cost, bridge, bridge_port, .. } = message.vector;
        out.extend(root.to_be_bytes());
        out.extend(cost.to_be_bytes());
        out.extend(bridge.to_be_bytes());
        out.extend(bridge_port.to_be_bytes());
        let Times { message_age, max_age, hello_time, forward_delay } = message.times;
        out.extend([message_age, 0, max_age, 0, hello_time, 0, forward_delay, 0]);
        if is_rapid {
            out.push(0);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message() -> Message {
        Message {
            role: Role::Designated,
            is_changing: true,
            acknowledges: false,
            proposes: true,
            agrees: false,
            learns: true,
            forwards: false,
            vector: Vector {
                root: 0x8000_0200_0000_0001,
                cost: 20_000,
                bridge: 0x8000_0200_0000_0002,
                bridge_port: 0x8001,
                port: 0,
            },
            times: Times { message_age: 1, max_age: 20, hello_time: 2, forward_delay: 15 },
        }
    }

    #[test]
    fn messages_are_those_of_the_standard() {
        let rapid = Bpdu::Rapid(message());
        let bytes = rapid.encode();
        let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(
            hex,
            "42420300000202\
             1f\
             8000020000000001\
             00004e20\
             8000020000000002\
             8001\
             0100140002000f00\
             00"
        );
        assert_eq!(Bpdu::decode(&bytes), Ok(rapid));
        for len in 0..bytes.len() {
            assert!(Bpdu::decode(&bytes[..len]).is_err(), "{len}");
        }
        let plain = Message { proposes: false, learns: false, acknowledges: true, ..message() };
        let config = Bpdu::Config(plain);
        assert_eq!(config.encode()[..8], [0x42, 0x42, 3, 0, 0, 0, 0, 0x81]);
        assert_eq!(Bpdu::decode(&config.encode()), Ok(config));
        assert_eq!(Bpdu::TopologyChange.encode(), [0x42, 0x42, 3, 0, 0, 0, 0x80]);
    }

    #[test]
    fn other_frames_are_refused() {
        assert_eq!(Bpdu::decode(&[0xaa, 0xaa, 3, 0, 0, 0, 0x80]), Err(BpduError::Protocol));
        assert_eq!(Bpdu::decode(&[0x42, 0x42, 3, 0, 0, 0, 2]), Err(BpduError::Type(2)));
        assert_eq!(Bpdu::decode(&[0x42, 0x42, 3, 0, 0, 2, 9]), Err(BpduError::Type(9)));
        let mut old = Bpdu::Config(message()).encode();
        old[30] = 20;
        assert_eq!(Bpdu::decode(&old), Err(BpduError::Old));
    }

    proptest! {
        #[test]
        fn what_decodes_is_encoded_alike(mut bytes in prop::collection::vec(any::<u8>(), 32..60), rapid: bool) {
            let kind = if rapid { 2 } else { 0 };
            bytes.splice(0..0, [0x42, 0x42, 3, 0, 0, kind, kind]);
            if let Ok(bpdu) = Bpdu::decode(&bytes) {
                prop_assert_eq!(Bpdu::decode(&bpdu.encode()), Ok(bpdu));
            }
        }

        #[test]
        fn any_bytes_decode_or_fail(bytes: Vec<u8>) {
            let _ = Bpdu::decode(&bytes);
        }
    }
}
