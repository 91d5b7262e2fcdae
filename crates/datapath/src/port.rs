// SPDX-License-Identifier: Apache-2.0
//! Ports of a datapath.

use std::collections::BTreeMap;
use std::fmt;

/// A port number of a datapath (`in_port(N)` in its texts). Not an OpenFlow port number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortNo(pub u32);

impl PortNo {
    /// The datapath's own port, which carries its name.
    pub const LOCAL: PortNo = PortNo(0);
    /// No port: packets that the switch itself made.
    pub const NONE: PortNo = PortNo(u32::MAX);
}

impl fmt::Display for PortNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Name, type and options of a port to open.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct PortSpec {
    /// Device name, unique in the datapath.
    pub name: String,
    /// Interface type as in the database: "system", "internal", "tap", "afxdp", "dummy", ….
    pub kind: String,
    /// The Interface row's options.
    pub options: BTreeMap<String, String>,
    /// The Interface row's `other_config`, for `pmd-rxq-affinity` and the like.
    pub other_config: BTreeMap<String, String>,
    /// Wanted number; given when free.
    pub wanted: Option<PortNo>,
    /// MAC address of a device that the switch creates by adding the port; an existing device keeps
    /// its own.
    pub mac: Option<[u8; 6]>,
    /// MTU in bytes for devices that the switch creates.
    pub mtu: Option<u32>,
}

/// An existing port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortInfo {
    /// Its number.
    pub number: PortNo,
    /// Device name.
    pub name: String,
    /// Interface type.
    pub kind: String,
}

/// Why a port could not be added or removed. The text goes to the Interface row's `error`
/// column and names device and cause.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// No datapath here can open this type.
    #[error("{name}: unknown interface type \"{kind}\"")]
    UnknownKind {
        /// Name of the device.
        name: String,
        /// Type asked for.
        kind: String,
    },
    /// A port with this name or number is there already.
    #[error("{0}: already a port")]
    Exists(String),
    /// No such port.
    #[error("no port {0}")]
    NotFound(String),
    /// All numbers are taken.
    #[error("{0}: no free port number")]
    Full(String),
    /// The device could not be opened; the operating system's or the driver's words.
    #[error("could not open network device {name} ({cause})")]
    Open {
        /// Name of the device.
        name: String,
        /// The reason, for people.
        cause: String,
    },
    /// An option has a bad value.
    #[error("{name}: {problem}")]
    Option {
        /// Name of the device.
        name: String,
        /// Option, value, what is expected.
        problem: String,
    },
}
