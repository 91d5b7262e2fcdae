// SPDX-License-Identifier: Apache-2.0
//! The beginning of each BPDU (IEEE 802.1D-2004, 9.2 and 9.3), which STP and RSTP share.

/// LLC header: both service access points are 0x42, and the frame is unnumbered.
pub(crate) const LLC: [u8; 3] = [0x42, 0x42, 0x03];
/// Types: configuration and notification. RSTP has one more.
pub(crate) const CONFIG: u8 = 0x00;
pub(crate) const NOTIFICATION: u8 = 0x80;

/// Reason why a BPDU is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BpduError {
    /// Too few bytes for its type.
    #[error("the BPDU is cut off")]
    Short,
    /// Another LLC header or protocol.
    #[error("not a BPDU of the spanning tree protocol")]
    Protocol,
    /// Unknown type, or a version that does not have the type.
    #[error("unknown BPDU type {0}")]
    Type(u8),
    /// RSTP: the message is as old as it may be, or older (9.3.4).
    #[error("the BPDU is too old")]
    Old,
}

/// Reads big-endian fields one after the other.
pub(crate) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// Reads a frame's bytes after the length field up to the flags. Returns the rest, the version and
    /// the type.
    pub(crate) fn open(payload: &'a [u8]) -> Result<(Fields<'a>, u8, u8), BpduError> {
        let mut fields = Fields(payload);
        if fields.take::<3>()? != LLC || fields.take::<2>()? != [0, 0] {
            return Err(BpduError::Protocol);
        }
        let [version, kind] = fields.take()?;
        Ok((fields, version, kind))
    }

    /// Takes the next bytes.
    pub(crate) fn take<const N: usize>(&mut self) -> Result<[u8; N], BpduError> {
        let (field, rest) = self.0.split_first_chunk::<N>().ok_or(BpduError::Short)?;
        self.0 = rest;
        Ok(*field)
    }
}
