// SPDX-License-Identifier: Apache-2.0
//! Ports of a datapath.

use netdev::Service;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

/// The kind of a tunnel port.
pub use tunnel::Kind as TunnelKind;

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

/// The kind of a port: its type in the database (`Interface:type`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PortKind {
    /// A Linux interface, reached by `AF_PACKET`. An empty type means this kind, too.
    #[default]
    System,
    /// An interface that the switch creates by `/dev/net/tun`.
    Internal,
    /// A tap interface. An existing persistent one is attached.
    Tap,
    /// A Linux interface, reached by `AF_XDP`.
    AfXdp,
    /// `AF_XDP` without a thread of its own in OVS; the same as [`PortKind::AfXdp`] here.
    AfXdpNonPmd,
    /// A device without a kernel object, for tests.
    Dummy,
    /// A dummy in the place of an internal port.
    DummyInternal,
    /// A dummy that a packet thread polls in OVS; the same as [`PortKind::Dummy`] here.
    DummyPmd,
    /// A port that a bridge shares with another bridge. It has no device and no datapath number.
    Patch,
    /// A tunnel port. It has no device: actions name it.
    Tunnel(TunnelKind),
    /// A Linux interface of the host, which is a port of no bridge. Packets of tunnels leave by it,
    /// and only those that come to a [`TunnelEndpoint`] enter: all others stay with the host's
    /// stack. The switch adds it by itself, so no row of the database has this kind.
    Underlay,
    /// A Linux interface that is a port of `openvswitch.ko`. The configuration chooses it in the
    /// place of [`PortKind::System`], so no row of the database has this kind.
    Vport,
    /// An interface that `openvswitch.ko` makes for its port, in the place of
    /// [`PortKind::Internal`].
    InternalVport,
    /// A tunnel port of `openvswitch.ko`, in the place of [`PortKind::Tunnel`]: a tunnel device of
    /// the kernel, which makes and takes off the outer headers.
    TunnelVport(TunnelKind),
}

/// An address of the host to which packets of tunnels come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TunnelEndpoint {
    /// The address.
    pub address: IpAddr,
    /// The packets.
    pub service: Service,
}

impl PortKind {
    /// All kinds that rows of the database may have.
    pub const ALL: [PortKind; 20] = [
        PortKind::System,
        PortKind::Internal,
        PortKind::Tap,
        PortKind::AfXdp,
        PortKind::AfXdpNonPmd,
        PortKind::Dummy,
        PortKind::DummyInternal,
        PortKind::DummyPmd,
        PortKind::Patch,
        PortKind::Tunnel(TunnelKind::Bareudp),
        PortKind::Tunnel(TunnelKind::Erspan),
        PortKind::Tunnel(TunnelKind::Geneve),
        PortKind::Tunnel(TunnelKind::Gre),
        PortKind::Tunnel(TunnelKind::Gtpu),
        PortKind::Tunnel(TunnelKind::Ip6Erspan),
        PortKind::Tunnel(TunnelKind::Ip6Gre),
        PortKind::Tunnel(TunnelKind::Lisp),
        PortKind::Tunnel(TunnelKind::Srv6),
        PortKind::Tunnel(TunnelKind::Stt),
        PortKind::Tunnel(TunnelKind::Vxlan),
    ];

    /// Returns the kind that a text in `Interface:type` names; empty text names
    /// [`PortKind::System`]. `None`: OVS has no such type.
    pub fn from_type(text: &str) -> Option<PortKind> {
        if text.is_empty() {
            return Some(PortKind::System);
        }
        PortKind::ALL.into_iter().find(|kind| kind.as_str() == text)
    }

    /// Returns the text of `Interface:type`.
    pub const fn as_str(self) -> &'static str {
        match self {
            PortKind::System => "system",
            PortKind::Internal => "internal",
            PortKind::Tap => "tap",
            PortKind::AfXdp => "afxdp",
            PortKind::AfXdpNonPmd => "afxdp-nonpmd",
            PortKind::Dummy => "dummy",
            PortKind::DummyInternal => "dummy-internal",
            PortKind::DummyPmd => "dummy-pmd",
            PortKind::Patch => "patch",
            PortKind::Tunnel(kind) | PortKind::TunnelVport(kind) => kind.as_str(),
            PortKind::Underlay => "underlay",
            PortKind::Vport => "vport",
            PortKind::InternalVport => "vport-internal",
        }
    }

    /// Returns the kind of device that such a port opens. `None`: patch ports and tunnel
    /// ports have no device.
    pub const fn device(self) -> Option<netdev::Kind> {
        match self {
            PortKind::System | PortKind::Underlay | PortKind::Vport => Some(netdev::Kind::System),
            PortKind::Internal | PortKind::InternalVport => Some(netdev::Kind::Internal),
            PortKind::Tap => Some(netdev::Kind::Tap),
            PortKind::AfXdp | PortKind::AfXdpNonPmd => Some(netdev::Kind::AfXdp),
            PortKind::Dummy | PortKind::DummyInternal | PortKind::DummyPmd => {
                Some(netdev::Kind::Dummy)
            }
            PortKind::Patch | PortKind::Tunnel(_) | PortKind::TunnelVport(_) => None,
        }
    }

    /// Returns true for the three kinds of dummies.
    pub const fn is_dummy(self) -> bool {
        matches!(self, PortKind::Dummy | PortKind::DummyInternal | PortKind::DummyPmd)
    }
}

impl fmt::Display for PortKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Name, kind and options of a port to open.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct PortSpec {
    /// Device name, unique in the datapath.
    pub name: String,
    /// Kind of the port.
    pub kind: PortKind,
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
    /// Kind of the port.
    pub kind: PortKind,
}

/// Why a port could not be added or removed. The text goes to the Interface row's `error`
/// column and names device and cause.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// No datapath here can open this kind.
    #[error("{name}: unknown interface type \"{kind}\"")]
    UnknownKind {
        /// Name of the device.
        name: String,
        /// Kind asked for.
        kind: PortKind,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_a_text_of_its_own() {
        for kind in PortKind::ALL {
            assert_eq!(PortKind::from_type(kind.as_str()), Some(kind));
        }
        assert_eq!(PortKind::from_type(""), Some(PortKind::System));
        for unknown in ["nonsense", "System", "vxlan ", "underlay", "vport"] {
            assert_eq!(PortKind::from_type(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn dummies_have_dummy_devices() {
        for kind in PortKind::ALL {
            assert_eq!(kind.is_dummy(), kind.device() == Some(netdev::Kind::Dummy), "{kind}");
        }
    }
}
