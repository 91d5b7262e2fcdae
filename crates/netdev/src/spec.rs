// SPDX-License-Identifier: Apache-2.0
//! The specification of a device to open.

use crate::orphan::Owner;
use std::collections::BTreeMap;
use std::fmt;

/// The kind of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A Linux interface, reached by `AF_PACKET`.
    System,
    /// An interface that the switch creates by `/dev/net/tun`. It vanishes with the switch, unless
    /// [`OpenSpec::persistent`] is set.
    Internal,
    /// A tap interface. An existing persistent one is attached.
    Tap,
    /// A Linux interface, reached by `AF_XDP`.
    AfXdp,
    /// A device without a kernel object, for tests.
    Dummy,
}

impl Kind {
    /// Returns the name, which is the `Interface:type` in the database that most ports of this kind
    /// have.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::System => "system",
            Kind::Internal => "internal",
            Kind::Tap => "tap",
            Kind::AfXdp => "afxdp",
            Kind::Dummy => "dummy",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The specification of a device to open.
#[derive(Clone, Debug)]
pub struct OpenSpec {
    /// Interface name, at most 15 bytes (any length for a dummy).
    pub name: String,
    /// The kind of the device.
    pub kind: Kind,
    /// Number of receive queues; 0 means 1. Kinds that have one queue only (all but `AF_XDP` and
    /// dummy) open one.
    pub n_rxq: usize,
    /// `Interface:options`; unknown keys are ignored.
    ///
    /// * afxdp: `xdp-mode` = `best-effort` (default), `native-with-zerocopy`, `native`,
    ///   `generic`; `use-need-wakeup` = `true` (default) or `false`.
    /// * dummy: `pcap`, `rxq_pcap`, `tx_pcap` (files), `ifindex`, `stream`, `pstream`.
    pub options: BTreeMap<String, String>,
    /// Internal and tap: the interface outlives the switch, and with it its addresses, routes and
    /// BPF programs. It is marked with this owner, which distinguishes interfaces of several
    /// switches ([`crate::persistent_interfaces`]). [`crate::Device::set_persistent`] deletes it
    /// permanently.
    ///
    /// The next open of that name re-attaches to the interface, in the same network namespace or in
    /// one reachable through a process or a name in /run/netns. It opens an interface of an earlier
    /// run whether or not this is set; if it is not set, the interface vanishes with the device. An
    /// interface that another program created keeps that program's setting. Other kinds ignore
    /// this.
    pub persistent: Option<Owner>,
    /// The host's stack uses the interface, too (`AF_PACKET`): it is not made promiscuous, and the
    /// queue gets copies of the packets that [`crate::Device::set_services`] names, none at first.
    pub is_shared: bool,
    /// Receive nothing until [`crate::Device::set_receiving`], as with [`crate::Reception::Off`]
    /// (`AF_PACKET`).
    pub muted: bool,
    /// MTU to set, in bytes. `None`: unchanged.
    pub mtu: Option<u32>,
    /// Ethernet address to set. `None`: unchanged.
    pub mac: Option<[u8; 6]>,
    /// Ethernet address of an interface that this open creates (internal, tap, dummy), if `mac` is
    /// `None`. An existing interface keeps its own address.
    pub first_mac: Option<[u8; 6]>,
}

impl OpenSpec {
    /// Returns the specification of a device with one queue and no options.
    pub fn new(name: impl Into<String>, kind: Kind) -> OpenSpec {
        OpenSpec {
            name: name.into(),
            kind,
            n_rxq: 1,
            options: BTreeMap::new(),
            persistent: None,
            is_shared: false,
            muted: false,
            mtu: None,
            mac: None,
            first_mac: None,
        }
    }
}
