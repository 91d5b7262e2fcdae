// SPDX-License-Identifier: Apache-2.0
//! OpenFlow errors: one name each, whatever the version.
//!
//! An error such as OFPBAC_BAD_TAG has an *encoding* in each version: OpenFlow's own type and code
//! (OFPET_*, OFP*C_*), or, where that version of OpenFlow has none, Nicira's (0x2320) or the ONF's
//! (0x4f4e4600) vendor error. Where there is neither, the sender gets NXBRC_UNENCODABLE_ERROR. The
//! encodings are those that Open vSwitch uses, so that its tools print the intended error.

mod table;

use crate::Version;
use std::fmt;
use table::ROWS;

/// Nicira's vendor and experimenter id.
pub(crate) const NX_VENDOR: u32 = 0x0000_2320;
/// The Open Networking Foundation's experimenter id.
pub(crate) const ONF_VENDOR: u32 = 0x4f4e_4600;

/// OFPET_EXPERIMENTER, OpenFlow 1.2 and later.
const ET_EXPERIMENTER: u16 = 0xffff;
/// NXET_VENDOR, the error type of OpenFlow 1.0 and 1.1 whose body names vendor, type, code.
const NXET_VENDOR: u16 = 0xb0c2;
/// Versions that the table has a column for.
const VERSIONS: usize = Version::ALL.len();

/// An error that goes back to the sender as OFPT_ERROR.
///
/// The constants carry OpenFlow's full names: [`OfError::OFPBAC_BAD_OUT_PORT`] and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OfError {
    /// OpenFlow's name, such as "OFPBAC_BAD_OUT_PORT".
    pub name: &'static str,
    /// Position in the table.
    index: u8,
}

/// The encoding of an error in one version of OpenFlow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoding {
    /// OpenFlow's own type and code.
    Of(u16, u16),
    /// Nicira's type and code inside NXET_VENDOR.
    Nx(u16, u16),
    /// Nicira's experimenter type inside OFPET_EXPERIMENTER.
    ExpNx(u16),
    /// The ONF's experimenter type inside OFPET_EXPERIMENTER.
    ExpOnf(u16),
    /// The version has no encoding for the error.
    Unencodable,
}

impl Encoding {
    /// The bytes at the start of OFPT_ERROR's body.
    fn encode(self) -> Option<Vec<u8>> {
        let mut out = Vec::with_capacity(12);
        let (head, vendor) = match self {
            Encoding::Of(ty, code) => ((ty, code), None),
            Encoding::Nx(..) => ((NXET_VENDOR, 0), Some(NX_VENDOR)),
            Encoding::ExpNx(ty) => ((ET_EXPERIMENTER, ty), Some(NX_VENDOR)),
            Encoding::ExpOnf(ty) => ((ET_EXPERIMENTER, ty), Some(ONF_VENDOR)),
            Encoding::Unencodable => return None,
        };
        out.extend_from_slice(&head.0.to_be_bytes());
        out.extend_from_slice(&head.1.to_be_bytes());
        if let Some(vendor) = vendor {
            out.extend_from_slice(&vendor.to_be_bytes());
        }
        if let Encoding::Nx(ty, code) = self {
            out.extend_from_slice(&ty.to_be_bytes());
            out.extend_from_slice(&code.to_be_bytes());
        }
        Some(out)
    }

    /// Reads an encoding and returns it with the number of bytes that it took.
    fn decode(body: &[u8]) -> Option<(Encoding, usize)> {
        let u16_at = |at: usize| Some(u16::from_be_bytes(body.get(at..at + 2)?.try_into().ok()?));
        let vendor = || Some(u32::from_be_bytes(body.get(4..8)?.try_into().ok()?));
        let (ty, code) = (u16_at(0)?, u16_at(2)?);
        match ty {
            ET_EXPERIMENTER => match vendor()? {
                NX_VENDOR => Some((Encoding::ExpNx(code), 8)),
                ONF_VENDOR => Some((Encoding::ExpOnf(code), 8)),
                _ => None,
            },
            NXET_VENDOR if code == 0 => {
                (vendor()? == NX_VENDOR).then_some(())?;
                Some((Encoding::Nx(u16_at(8)?, u16_at(10)?), 12))
            }
            _ => Some((Encoding::Of(ty, code), 4)),
        }
    }
}

impl OfError {
    /// Every error there is.
    pub fn all() -> impl Iterator<Item = OfError> {
        ROWS.iter().map(|(error, _)| *error)
    }

    /// The error called `name`.
    pub fn from_name(name: &str) -> Option<OfError> {
        Self::all().find(|e| e.name == name)
    }

    fn encoding(self, version: Version) -> Encoding {
        let column = usize::from(version.wire()) - 1;
        ROWS.get(usize::from(self.index))
            .and_then(|(_, encodings)| encodings.get(column))
            .copied()
            .unwrap_or(Encoding::Unencodable)
    }

    /// True when `version` can name the error.
    pub fn is_encodable(self, version: Version) -> bool {
        self.encoding(version) != Encoding::Unencodable
    }

    /// Returns the start of OFPT_ERROR's body: type, code, and for a vendor error the fields after
    /// them. The bytes of the offending message follow it. An error that `version` cannot name
    /// becomes NXBRC_UNENCODABLE_ERROR.
    pub fn encode(self, version: Version) -> Vec<u8> {
        self.encoding(version)
            .encode()
            .or_else(|| Self::NXBRC_UNENCODABLE_ERROR.encoding(version).encode())
            .unwrap_or_default()
    }

    /// Reads the body of an OFPT_ERROR: the error, and how many bytes stand before the copy of
    /// the offending message. `None` for errors that are not in the table.
    pub fn decode(version: Version, body: &[u8]) -> Option<(OfError, usize)> {
        let (encoding, len) = Encoding::decode(body)?;
        let column = usize::from(version.wire()) - 1;
        let row = ROWS.iter().find(|(_, encodings)| encodings.get(column) == Some(&encoding))?;
        Some((row.0, len))
    }
}

impl fmt::Display for OfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl std::error::Error for OfError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_is_the_row() {
        for (i, (error, _)) in ROWS.iter().enumerate() {
            assert_eq!(usize::from(error.index), i, "{error}");
            assert_eq!(OfError::from_name(error.name), Some(*error));
        }
    }

    #[test]
    fn places_as_the_specifications_have_them() {
        let e = OfError::OFPBAC_BAD_OUT_PORT;
        assert_eq!(e.encode(Version::V13), [0, 2, 0, 4]);
        assert_eq!(OfError::OFPFMFC_TABLE_FULL.encode(Version::V10), [0, 3, 0, 0]);
        assert_eq!(OfError::OFPFMFC_TABLE_FULL.encode(Version::V11), [0, 5, 0, 1]);
        assert_eq!(
            OfError::OFPBMC_BAD_PREREQ.encode(Version::V10),
            [0xb0, 0xc2, 0, 0, 0, 0, 0x23, 0x20, 0, 1, 1, 4]
        );
        assert_eq!(
            OfError::OFPBFC_BAD_ID.encode(Version::V13),
            [0xff, 0xff, 0x08, 0xfe, 0x4f, 0x4e, 0x46, 0]
        );
        assert_eq!(
            OfError::OFPBAC_BAD_METER.encode(Version::V12),
            OfError::NXBRC_UNENCODABLE_ERROR.encode(Version::V12)
        );
    }

    #[test]
    fn decode_gives_the_same_place() {
        for version in Version::ALL {
            for error in OfError::all().filter(|e| e.is_encodable(version)) {
                let bytes = error.encode(version);
                let (back, len) = OfError::decode(version, &bytes).expect(error.name);
                assert_eq!(len, bytes.len());
                assert_eq!(back.encode(version), bytes, "{error} {version}");
                for cut in 0..len {
                    assert_eq!(OfError::decode(version, &bytes[..cut]), None);
                }
            }
        }
    }
}
