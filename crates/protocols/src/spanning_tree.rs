// SPDX-License-Identifier: Apache-2.0
//! Parts that STP and RSTP share: states and roles of ports, identifiers, and the beginning of BPDUs.

pub(crate) mod bpdu;

pub use bpdu::BpduError;

/// Destination of BPDUs: the Bridge Group Address (IEEE 802.1D-2004, 7.12.3).
pub const DESTINATION: [u8; 6] = [0x01, 0x80, 0xc2, 0, 0, 0];

/// Identifier of a bridge: 16 bits of priority, and its Ethernet address.
pub type BridgeId = u64;

/// Returns the identifier of a bridge (802.1D-2004, 9.2.5).
pub fn bridge_id(priority: u16, address: [u8; 6]) -> BridgeId {
    let [a, b, c, d, e, f] = address;
    u64::from_be_bytes([0, 0, a, b, c, d, e, f]) | u64::from(priority) << 48
}

/// Returns priority and address of an identifier.
pub fn bridge_parts(id: BridgeId) -> (u16, [u8; 6]) {
    let [p, q, a, b, c, d, e, f] = id.to_be_bytes();
    (u16::from_be_bytes([p, q]), [a, b, c, d, e, f])
}

/// State of a port (802.1D-1998, 8.4; 802.1D-2004, 7.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PortState {
    /// Not in the tree: the port has no link, or takes no part.
    #[default]
    Disabled,
    /// STP: another path leads to the same LAN. Only BPDUs are received.
    Blocking,
    /// STP: about to forward. Other bridges may still object.
    Listening,
    /// RSTP: only BPDUs are received and sent.
    Discarding,
    /// Addresses are learned, and nothing is forwarded.
    Learning,
    /// Packets are forwarded.
    Forwarding,
}

impl PortState {
    /// Returns true when packets are forwarded.
    pub fn forwards(self) -> bool {
        self == PortState::Forwarding
    }

    /// Returns true when source addresses are learned.
    pub fn learns(self) -> bool {
        matches!(self, PortState::Learning | PortState::Forwarding)
    }

    /// Returns true when BPDUs leave by the port. A disabled port sends none of its own, and lets
    /// others' pass.
    pub fn sends_bpdus(self) -> bool {
        self != PortState::Blocking
    }

    /// Returns the name of the state in `stp/show` and `rstp/show`.
    pub fn name(self) -> &'static str {
        match self {
            PortState::Disabled => "disabled",
            PortState::Blocking => "blocking",
            PortState::Listening => "listening",
            PortState::Discarding => "discarding",
            PortState::Learning => "learning",
            PortState::Forwarding => "forwarding",
        }
    }
}

/// Role of a port (802.1D-2004, 17.7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// It leads to the root.
    Root,
    /// It is the bridge's port for a LAN that this bridge connects with the root.
    Designated,
    /// Another bridge connects the LAN with the root.
    Alternate,
    /// RSTP: another port of the same bridge connects the LAN with the root.
    Backup,
    /// It takes no part.
    #[default]
    Disabled,
}

impl Role {
    /// Returns the name of the role in `stp/show`.
    pub fn name(self) -> &'static str {
        match self {
            Role::Root => "root",
            Role::Designated => "designated",
            Role::Alternate => "alternate",
            Role::Backup => "backup",
            Role::Disabled => "disabled",
        }
    }
}
