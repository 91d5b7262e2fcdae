// SPDX-License-Identifier: Apache-2.0
//! OpenFlow versions.

use std::fmt;

/// A version of OpenFlow, numbered as on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Version {
    /// OpenFlow 1.0.
    V10 = 1,
    /// OpenFlow 1.1.
    V11 = 2,
    /// OpenFlow 1.2.
    V12 = 3,
    /// OpenFlow 1.3.
    V13 = 4,
    /// OpenFlow 1.4.
    V14 = 5,
    /// OpenFlow 1.5.
    V15 = 6,
}

impl Version {
    /// All versions, oldest first.
    pub const ALL: [Version; 6] =
        [Version::V10, Version::V11, Version::V12, Version::V13, Version::V14, Version::V15];

    /// From the first byte of a message.
    pub fn from_wire(byte: u8) -> Option<Version> {
        Version::ALL.into_iter().find(|v| *v as u8 == byte)
    }

    /// The first byte of a message.
    pub fn wire(self) -> u8 {
        self as u8
    }

    /// From the database's and `ovs-ofctl -O`'s spelling, such as "OpenFlow13" or
    /// "OpenFlow1.3".
    pub fn from_name(name: &str) -> Option<Version> {
        let rest = name.strip_prefix("OpenFlow")?;
        Some(match rest {
            "10" | "1.0" => Version::V10,
            "11" | "1.1" => Version::V11,
            "12" | "1.2" => Version::V12,
            "13" | "1.3" => Version::V13,
            "14" | "1.4" => Version::V14,
            "15" | "1.5" => Version::V15,
            _ => return None,
        })
    }
}

impl fmt::Display for Version {
    /// Writes "OpenFlow10" to "OpenFlow15".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpenFlow1{}", *self as u8 - 1)
    }
}
