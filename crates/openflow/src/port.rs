// SPDX-License-Identifier: Apache-2.0
//! OpenFlow port numbers.

use std::fmt;

/// An OpenFlow port number in its 32-bit form (OpenFlow 1.1 and later). OpenFlow 1.0's
/// numbers 0xff00..=0xffff, of which the last are reserved ports, stand for
/// 0xffffff00..=0xffffffff.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortNo(pub u32);

impl PortNo {
    /// First number that is no port: ports are 1 to 0xfeff.
    pub const MAX: PortNo = PortNo(0xff00);
    /// "Not set" (OpenFlow 1.5's action set without output).
    pub const UNSET: PortNo = PortNo(0xffff_fff7);
    /// Back out of the ingress port.
    pub const IN_PORT: PortNo = PortNo(0xffff_fff8);
    /// Through the flow tables (packet-out only).
    pub const TABLE: PortNo = PortNo(0xffff_fff9);
    /// As a learning switch does.
    pub const NORMAL: PortNo = PortNo(0xffff_fffa);
    /// To every port that floods, but the ingress port.
    pub const FLOOD: PortNo = PortNo(0xffff_fffb);
    /// To every port but the ingress port.
    pub const ALL: PortNo = PortNo(0xffff_fffc);
    /// To the controllers.
    pub const CONTROLLER: PortNo = PortNo(0xffff_fffd);
    /// The bridge's own port.
    pub const LOCAL: PortNo = PortNo(0xffff_fffe);
    /// No port, or any port, depending on the message.
    pub const NONE: PortNo = PortNo(0xffff_ffff);

    /// From OpenFlow 1.0's 16 bits.
    pub fn from_u16(n: u16) -> PortNo {
        PortNo(flow::field::port_from_of10(n))
    }

    /// To OpenFlow 1.0's 16 bits; `None` when the number has no such form.
    pub fn to_u16(self) -> Option<u16> {
        flow::field::port_to_of10(self.0)
    }

    /// True for numbers that can belong to a port of a switch (LOCAL included).
    pub fn is_physical(self) -> bool {
        (self.0 != 0 && self.0 < Self::MAX.0) || self == Self::LOCAL
    }

    /// The reserved name ("LOCAL", "IN_PORT", …), if it is a reserved number.
    pub fn reserved_name(self) -> Option<&'static str> {
        Some(match self {
            Self::UNSET => "UNSET",
            Self::IN_PORT => "IN_PORT",
            Self::TABLE => "TABLE",
            Self::NORMAL => "NORMAL",
            Self::FLOOD => "FLOOD",
            Self::ALL => "ALL",
            Self::CONTROLLER => "CONTROLLER",
            Self::LOCAL => "LOCAL",
            Self::NONE => "ANY",
            _ => return None,
        })
    }
}

impl fmt::Display for PortNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reserved_name() {
            Some(name) => f.write_str(name),
            None => write!(f, "{}", self.to_u16().map_or(self.0, u32::from)),
        }
    }
}
