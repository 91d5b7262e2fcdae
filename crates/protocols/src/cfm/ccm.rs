// SPDX-License-Identifier: Apache-2.0
//! Continuity check messages (IEEE 802.1ag-2007, 20.16 and 21.6), with Open vSwitch's extension.

use thiserror::Error;

/// Bytes of a continuity check message without the Ethernet header.
pub const CCM_LEN: usize = 75;
/// Bytes that a received message needs at least: early releases of Open vSwitch left out the last.
pub const LEAST_CCM_LEN: usize = 74;
/// Bytes of a maintenance association identifier (IEEE 802.1ag-2007, 21.6.5).
pub const MAID_LEN: usize = 48;
/// Highest identifier of a maintenance point without the extension (IEEE 802.1ag-2007, 21.6.4).
pub const MOST_MPID: u64 = 8191;

/// Ethernet type of 802.1ag.
pub const ETHERTYPE: u16 = 0x8902;
/// Destination of messages at maintenance level 0 (IEEE 802.1ag-2007, table 8-9).
pub const DESTINATION: [u8; 6] = [0x01, 0x80, 0xc2, 0x00, 0x00, 0x30];
/// Destination in extended mode. A bridge forwards frames to it, since it is not reserved.
pub const EXTENDED_DESTINATION: [u8; 6] = [0x01, 0x23, 0x20, 0x00, 0x00, 0x30];

/// Operation code of a continuity check message (IEEE 802.1ag-2007, 21.4.3).
const OPCODE: u8 = 1;
/// Offset of the first TLV from the byte that follows the offset (IEEE 802.1ag-2007, 21.6.1).
const FIRST_TLV: u8 = 70;
/// Flag: the sender is missing messages, "remote defect indication" (IEEE 802.1ag-2007, 21.6.1.1).
const DEFECT: u8 = 0x80;
/// Bits of the flags that hold the code of the interval (IEEE 802.1ag-2007, 21.6.1.3).
const INTERVAL: u8 = 0x07;

/// The identifier of the maintenance association to which all ends belong: "ovs" in the domain "ovs",
/// both as character strings (IEEE 802.1ag-2007, 21.6.5).
pub const MAID: [u8; MAID_LEN] = {
    let mut maid = [0; MAID_LEN];
    let parts = [4, 3, b'o', b'v', b's', 2, 3, b'o', b'v', b's'];
    let mut at = 0;
    while at < parts.len() {
        maid[at] = parts[at];
        at += 1;
    }
    maid
};

/// A continuity check message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ccm {
    /// The sender is missing messages.
    pub has_defect: bool,
    /// Code of the interval, 3 bits; 0 for the one in `extended_interval`.
    pub interval: u8,
    /// Number of the message.
    pub sequence: u32,
    /// The sender's identifier.
    pub mpid: u16,
    /// Identifier of the maintenance association.
    pub maid: [u8; MAID_LEN],
    /// Extended mode: the interval in milliseconds, if it has no code; else 0.
    pub extended_interval: u16,
    /// Extended mode: the sender's identifier.
    pub extended_mpid: u64,
    /// Extended mode: the sender is operationally down.
    pub is_down: bool,
}

/// The reason why bytes are no continuity check message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CcmError {
    /// The message ends early.
    #[error("an unparseable 802.1ag CCM heartbeat.")]
    Short,
    /// Another message of 802.1ag.
    #[error("an unsupported 802.1ag message. (opcode {0})")]
    Opcode(u8),
}

impl Ccm {
    /// Reads a message, which begins after the Ethernet header.
    ///
    /// # Errors
    ///
    /// Fails when the bytes end early, or are another message.
    pub fn decode(bytes: &[u8]) -> Result<Ccm, CcmError> {
        let (fixed, _) = bytes.split_first_chunk::<LEAST_CCM_LEN>().ok_or(CcmError::Short)?;
        let [
            _,
            opcode,
            flags,
            _,
            s0,
            s1,
            s2,
            s3,
            m0,
            m1,
            maid @ ..,
            i0,
            i1,
            x0,
            x1,
            x2,
            x3,
            x4,
            x5,
            x6,
            x7,
            is_down,
            _,
            _,
            _,
            _,
            _,
        ] = *fixed;
        if opcode != OPCODE {
            return Err(CcmError::Opcode(opcode));
        }
        Ok(Ccm {
            has_defect: flags & DEFECT != 0,
            interval: flags & INTERVAL,
            sequence: u32::from_be_bytes([s0, s1, s2, s3]),
            mpid: u16::from_be_bytes([m0, m1]),
            maid,
            extended_interval: u16::from_be_bytes([i0, i1]),
            extended_mpid: u64::from_be_bytes([x0, x1, x2, x3, x4, x5, x6, x7]),
            is_down: is_down != 0,
        })
    }

    /// Returns the message's bytes, at maintenance level 0, without TLVs.
    pub fn encode(&self) -> [u8; CCM_LEN] {
        let flags = self.interval & INTERVAL | if self.has_defect { DEFECT } else { 0 };
        let mut bytes = [0; CCM_LEN];
        let parts: [&[u8]; 7] = [
            &[0, OPCODE, flags, FIRST_TLV],
            &self.sequence.to_be_bytes(),
            &self.mpid.to_be_bytes(),
            &self.maid,
            &self.extended_interval.to_be_bytes(),
            &self.extended_mpid.to_be_bytes(),
            &[self.is_down.into()],
        ];
        let written = parts.into_iter().flatten();
        bytes.iter_mut().zip(written).for_each(|(to, from)| *to = *from);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ccm() -> Ccm {
        Ccm {
            has_defect: true,
            interval: 4,
            sequence: 0x0102_0304,
            mpid: 0x0506,
            maid: MAID,
            extended_interval: 300,
            extended_mpid: 0x1122_3344_5566_7788,
            is_down: true,
        }
    }

    #[test]
    fn fields_have_their_places() {
        let bytes = ccm().encode();
        assert_eq!(bytes[..10], [0, 1, 0x84, 70, 1, 2, 3, 4, 5, 6]);
        assert_eq!(bytes[10..20], [4, 3, b'o', b'v', b's', 2, 3, b'o', b'v', b's']);
        assert_eq!(bytes[20..58], [0; 38]);
        assert_eq!(bytes[58..60], [1, 44]);
        assert_eq!(bytes[60..68], [0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88]);
        assert_eq!(bytes[68..], [1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Ccm::decode(&bytes), Ok(ccm()));
    }

    #[test]
    fn the_last_byte_may_be_missing() {
        let bytes = ccm().encode();
        for len in 0..LEAST_CCM_LEN {
            assert_eq!(Ccm::decode(&bytes[..len]), Err(CcmError::Short));
        }
        assert_eq!(Ccm::decode(&bytes[..LEAST_CCM_LEN]), Ok(ccm()));
    }

    #[test]
    fn other_messages_are_refused() {
        let mut bytes = ccm().encode();
        bytes[1] = 3; // a loopback message
        assert_eq!(Ccm::decode(&bytes), Err(CcmError::Opcode(3)));
    }
}
