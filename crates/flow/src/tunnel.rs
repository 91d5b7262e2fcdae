// SPDX-License-Identifier: Apache-2.0
//! The outer headers of a packet from a tunnel, or of a packet that goes to one.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use zerocopy::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of [`Tunnel::options`].
pub const OPTIONS_BYTES: usize = 256;

/// Tunnel fields of a [`crate::Key`]. All are zero in a packet without a tunnel.
///
/// The options of Geneve have two forms. A datapath's key has the options as they are in the
/// header: [`Tunnel::options_len`] bytes of TLVs. A bridge's key has the values of the options that
/// its [`crate::TlvTable`] maps: the fields `tun_metadata0` to `tun_metadata63`, at the places of
/// [`crate::tun_metadata`], with a bit of [`Tunnel::present`] for each.
#[derive(Clone, Copy, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(8))]
pub struct Tunnel {
    /// Key of the tunnel: VNI, GRE key, TEID.
    pub id: U64,
    /// Outer IPv4 source.
    pub src: U32,
    /// Outer IPv4 destination.
    pub dst: U32,
    /// Outer IPv6 source.
    pub ipv6_src: [u8; 16],
    /// Outer IPv6 destination.
    pub ipv6_dst: [u8; 16],
    /// The bits [`Tunnel::OAM`], [`Tunnel::DONT_FRAGMENT`], [`Tunnel::CSUM`] and [`Tunnel::KEY`].
    pub flags: U16,
    /// Outer IPv4 ToS or IPv6 traffic class.
    pub tos: u8,
    /// Outer IPv4 TTL or IPv6 hop limit.
    pub ttl: u8,
    /// Outer UDP source port.
    pub tp_src: U16,
    /// Outer UDP destination port.
    pub tp_dst: U16,
    /// Group policy id of VXLAN-GBP.
    pub gbp_id: U16,
    /// Group policy flags of VXLAN-GBP.
    pub gbp_flags: u8,
    /// Version of ERSPAN, 1 or 2; 0 without ERSPAN.
    pub erspan_ver: u8,
    /// Index of ERSPAN version 1, 20 bits.
    pub erspan_idx: U32,
    /// Direction of ERSPAN version 2, 1 bit.
    pub erspan_dir: u8,
    /// Hardware id of ERSPAN version 2, 6 bits.
    pub erspan_hwid: u8,
    /// Flags of the GTP-U header.
    pub gtpu_flags: u8,
    /// Message type of the GTP-U header.
    pub gtpu_msgtype: u8,
    /// Bytes of TLVs in [`Tunnel::options`] of a datapath's key; zero in a bridge's key.
    pub options_len: u8,
    /// Padding up to the next field's alignment; always zero.
    pub pad: [u8; 3],
    /// Bit N, from the least significant: the packet has the option of `tun_metadataN`. Zero in a
    /// datapath's key.
    pub present: U64,
    /// The options; see the type's text.
    pub options: [u8; OPTIONS_BYTES],
}

impl Tunnel {
    /// Bit of [`Tunnel::flags`]: a control packet of the tunnel (OAM).
    pub const OAM: u16 = 0x1;
    /// Bit of [`Tunnel::flags`]: the outer IPv4 header has the DF bit.
    pub const DONT_FRAGMENT: u16 = 0x2;
    /// Bit of [`Tunnel::flags`]: the tunnel header has a checksum.
    pub const CSUM: u16 = 0x4;
    /// Bit of [`Tunnel::flags`]: the tunnel header has a key.
    pub const KEY: u16 = 0x8;
    /// All bits of [`Tunnel::flags`].
    pub const ALL_FLAGS: u16 = 0xf;
    /// Bits of [`Tunnel::flags`] that OpenFlow matches and sets.
    pub const OPENFLOW_FLAGS: u16 = Tunnel::OAM;

    /// No tunnel.
    pub const NONE: Tunnel = zerocopy::transmute!([0u8; size_of::<Tunnel>()]);

    /// Returns true when the packet came from a tunnel, or goes to one: there is an outer
    /// destination.
    #[inline]
    pub fn is_some(&self) -> bool {
        self.dst.get() != 0 || self.ipv6_dst != [0; 16]
    }

    /// Returns the outer source; `None` when it is open.
    pub fn source(&self) -> Option<IpAddr> {
        match (self.src.get(), self.ipv6_src) {
            (0, v6) if v6 != [0; 16] => Some(Ipv6Addr::from(v6).into()),
            (0, _) => None,
            (v4, _) => Some(Ipv4Addr::from_bits(v4).into()),
        }
    }

    /// Returns the outer destination; 0.0.0.0 without a tunnel.
    pub fn destination(&self) -> IpAddr {
        match self.dst.get() {
            0 if self.ipv6_dst != [0; 16] => Ipv6Addr::from(self.ipv6_dst).into(),
            v4 => Ipv4Addr::from_bits(v4).into(),
        }
    }

    /// Sets the outer source; `None` leaves it open.
    pub fn set_source(&mut self, address: Option<IpAddr>) {
        (self.src, self.ipv6_src) = fields(address);
    }

    /// Sets the outer destination.
    pub fn set_destination(&mut self, address: IpAddr) {
        (self.dst, self.ipv6_dst) = fields(Some(address));
    }

    /// The TLVs of a datapath's key.
    pub fn raw_options(&self) -> &[u8] {
        self.options.get(..usize::from(self.options_len)).unwrap_or_default()
    }

    /// Stores TLVs in a datapath's key. Returns false, and stores nothing, when there are more than
    /// a Geneve header can have (252 bytes).
    pub fn set_raw_options(&mut self, tlvs: &[u8]) -> bool {
        let Some(place) = self.options.get_mut(..tlvs.len()) else {
            return false;
        };
        if tlvs.len() > 252 {
            return false;
        }
        place.copy_from_slice(tlvs);
        self.options_len = tlvs.len() as u8; // at most 252
        true
    }
}

/// Returns the IPv4 and the IPv6 field of an address.
fn fields(address: Option<IpAddr>) -> (U32, [u8; 16]) {
    match address {
        Some(IpAddr::V4(v4)) => (v4.to_bits().into(), [0; 16]),
        Some(IpAddr::V6(v6)) => (0.into(), v6.octets()),
        None => (0.into(), [0; 16]),
    }
}

/// Short, as most keys have no tunnel.
impl std::fmt::Debug for Tunnel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if *self == Tunnel::NONE {
            return f.write_str("Tunnel::NONE");
        }
        write!(f, "Tunnel({}", crate::text::odp::format_tunnel(self, None, false))?;
        write!(f, ", present {:#x}, options", self.present.get())?;
        let used = self.options.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        self.options.iter().take(used).try_for_each(|byte| write!(f, " {byte:02x}"))?;
        f.write_str(")")
    }
}

impl Default for Tunnel {
    fn default() -> Self {
        Tunnel::NONE
    }
}
