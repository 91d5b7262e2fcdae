// SPDX-License-Identifier: Apache-2.0
//! The specification of a device to open.

use crate::orphan::Owner;
use std::collections::BTreeMap;
use std::fmt;

/// Kind of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A Linux interface, reached by `AF_PACKET`.
    System,
    /// An interface that we create by `/dev/net/tun`; it vanishes with us, unless
    /// [`OpenSpec::persistent`].
    Internal,
    /// A tap interface; an existing persistent one is attached.
    Tap,
    /// A Linux interface, reached by `AF_XDP`.
    AfXdp,
    /// No kernel behind it; for tests.
    Dummy,
}

impl Kind {
    /// `Interface:type` in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::System => "system",
            Kind::Internal => "internal",
            Kind::Tap => "tap",
            Kind::AfXdp => "afxdp",
            Kind::Dummy => "dummy",
        }
    }

    /// The kind that `Interface:type` names (empty means "system"); `None` for types that are
    /// no network device of this crate (patch, tunnels, unknown names).
    pub fn from_type(name: &str) -> Option<Kind> {
        Some(match name {
            "" | "system" => Kind::System,
            "internal" => Kind::Internal,
            "tap" => Kind::Tap,
            "afxdp" | "afxdp-nonpmd" => Kind::AfXdp,
            "dummy" | "dummy-internal" | "dummy-pmd" => Kind::Dummy,
            _ => return None,
        })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What to open.
#[derive(Clone, Debug)]
pub struct OpenSpec {
    /// Interface name, at most 15 bytes (any length for a dummy).
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// Receive queues wanted; 0 means 1. Devices that have one queue only (all but `AF_XDP` and
    /// dummy) open one.
    pub n_rxq: usize,
    /// `Interface:options`; unknown keys are ignored.
    ///
    /// * afxdp: `xdp-mode` = `best-effort` (default), `native-with-zerocopy`, `native`,
    ///   `generic`; `use-need-wakeup` = `true` (default) or `false`.
    /// * dummy: `pcap`, `rxq_pcap`, `tx_pcap` (files), `ifindex`, `stream`, `pstream`.
    pub options: BTreeMap<String, String>,
    /// Internal and tap: the interface outlives the switch, so that its addresses, routes and
    /// the BPF programs on it do too. The next open of that name, in the same network namespace,
    /// finds it again, also when it has been moved to another one since, which a process or a name
    /// leads to. It is marked with the owner given here, which tells this switch's from another's
    /// ([`crate::persistent_interfaces`]), and deleted for good by [`crate::Device::set_persistent`]. An interface that an earlier run left is opened
    /// whether or not this is set; not set, it vanishes with this device. An interface that
    /// somebody else created keeps what he chose. Other kinds ignore it.
    pub persistent: Option<Owner>,
    /// Receive nothing until [`crate::Device::set_receiving`] says so (`AF_PACKET`).
    pub muted: bool,
    /// MTU to set; `None` leaves it.
    pub mtu: Option<u32>,
    /// Ethernet address to set; `None` leaves it.
    pub mac: Option<[u8; 6]>,
    /// The address of an interface that does not exist yet, and so one that this open creates
    /// (internal, tap, dummy), where `mac` is `None`. One that is there already keeps its own.
    pub first_mac: Option<[u8; 6]>,
}

impl OpenSpec {
    /// A device with one queue and no options.
    pub fn new(name: impl Into<String>, kind: Kind) -> OpenSpec {
        OpenSpec {
            name: name.into(),
            kind,
            n_rxq: 1,
            options: BTreeMap::new(),
            persistent: None,
            muted: false,
            mtu: None,
            mac: None,
            first_mac: None,
        }
    }
}
