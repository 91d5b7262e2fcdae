// SPDX-License-Identifier: Apache-2.0
//! Bridge protocol data units of STP (IEEE 802.1D-1998, clause 9).

use crate::spanning_tree::BpduError;
use crate::spanning_tree::bpdu::{CONFIG, Fields, LLC, NOTIFICATION};

/// Bytes of a configuration, LLC header included.
const CONFIG_LEN: usize = 38;
/// Bytes of a notification, LLC header included.
const NOTIFICATION_LEN: usize = 7;
/// Flags of a configuration (9.3.1).
const CHANGING: u8 = 0x01;
const ACKNOWLEDGES: u8 = 0x80;

/// A BPDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bpdu {
    /// A bridge offers itself as the way to the root.
    Config(Config),
    /// The topology has changed further down the tree.
    TopologyChange,
}

/// A configuration BPDU (9.3.1). Times are in milliseconds; on the wire they are in 1/256 s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Addresses are to age fast.
    pub is_changing: bool,
    /// The sender has received a notification.
    pub acknowledges: bool,
    /// Identifier of the root.
    pub root: u64,
    /// Cost of the path to the root.
    pub root_cost: u32,
    /// Identifier of the sender.
    pub bridge: u64,
    /// Identifier of its port.
    pub port: u16,
    /// Age of the information.
    pub message_age: u32,
    /// Age at which it is forgotten.
    pub max_age: u32,
    /// Time between configurations of the root.
    pub hello_time: u32,
    /// Time in each of the states listening and learning.
    pub forward_delay: u32,
}

/// A time in milliseconds.
fn time(fields: &mut Fields<'_>) -> Result<u32, BpduError> {
    Ok(u32::from(u16::from_be_bytes(fields.take()?)) * 1000 / 256)
}

impl Bpdu {
    /// Decodes a frame's bytes after the length field. Bytes after the BPDU are padding.
    ///
    /// # Errors
    /// The BPDU must be ignored, with the reason.
    pub fn decode(payload: &[u8]) -> Result<Bpdu, BpduError> {
        let (mut fields, _version, kind) = Fields::open(payload)?;
        match kind {
            NOTIFICATION => return Ok(Bpdu::TopologyChange),
            CONFIG => {}
            other => return Err(BpduError::Type(other)),
        }
        let [flags] = fields.take()?;
        Ok(Bpdu::Config(Config {
            is_changing: flags & CHANGING != 0,
            acknowledges: flags & ACKNOWLEDGES != 0,
            root: u64::from_be_bytes(fields.take()?),
            root_cost: u32::from_be_bytes(fields.take()?),
            bridge: u64::from_be_bytes(fields.take()?),
            port: u16::from_be_bytes(fields.take()?),
            message_age: time(&mut fields)?,
            max_age: time(&mut fields)?,
            hello_time: time(&mut fields)?,
            forward_delay: time(&mut fields)?,
        }))
    }

    /// Returns the bytes after the length field of a frame, whose value is their number.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(CONFIG_LEN);
        out.extend(LLC);
        out.extend([0, 0, 0]); // protocol and version
        let config = match self {
            Bpdu::TopologyChange => {
                out.push(NOTIFICATION);
                debug_assert_eq!(out.len(), NOTIFICATION_LEN);
                return out;
            }
            Bpdu::Config(config) => config,
        };
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        out.push(CONFIG);
        out.push(flag(config.is_changing, CHANGING) | flag(config.acknowledges, ACKNOWLEDGES));
        out.extend(config.root.to_be_bytes());
        out.extend(config.root_cost.to_be_bytes());
        out.extend(config.bridge.to_be_bytes());
        out.extend(config.port.to_be_bytes());
        let times = [config.message_age, config.max_age, config.hello_time, config.forward_delay];
        for ms in times {
            let time = (u64::from(ms) * 256).div_ceil(1000);
            out.extend(u16::try_from(time).unwrap_or(u16::MAX).to_be_bytes());
        }
        debug_assert_eq!(out.len(), CONFIG_LEN);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_configuration_and_a_notification() {
        let config = Config {
            is_changing: true,
            acknowledges: true,
            root: 0x8000_0200_0000_0001,
            root_cost: 19,
            bridge: 0x8000_0200_0000_0002,
            port: 0x8001,
            message_age: 1000,
            max_age: 20_000,
            hello_time: 2000,
            forward_delay: 15_000,
        };
        let bytes = Bpdu::Config(config).encode();
        let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
        let want = "42420300000000\
                    81\
                    8000020000000001\
                    00000013\
                    8000020000000002\
                    8001\
                    0100140002000f00";
        assert_eq!(hex, want);
        assert_eq!(Bpdu::decode(&bytes), Ok(Bpdu::Config(config)));
        assert_eq!(Bpdu::decode(&bytes[..37]), Err(BpduError::Short));
        let notification = Bpdu::TopologyChange.encode();
        assert_eq!(notification, [0x42, 0x42, 3, 0, 0, 0, 0x80]);
        assert_eq!(Bpdu::decode(&notification), Ok(Bpdu::TopologyChange));
    }

    #[test]
    fn other_frames_are_refused() {
        assert_eq!(Bpdu::decode(&[0xaa, 0xaa, 3, 0, 0, 0, 0x80]), Err(BpduError::Protocol));
        assert_eq!(Bpdu::decode(&[0x42, 0x42, 3, 0, 1, 0, 0x80]), Err(BpduError::Protocol));
        assert_eq!(Bpdu::decode(&[0x42, 0x42, 3, 0, 0, 0, 5]), Err(BpduError::Type(5)));
        assert_eq!(Bpdu::decode(&[]), Err(BpduError::Short));
    }

    proptest! {
        #[test]
        fn what_decodes_is_encoded_alike(mut bytes in prop::collection::vec(any::<u8>(), 31..60)) {
            bytes.splice(0..0, [0x42, 0x42, 3, 0, 0, 0, 0]);
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
