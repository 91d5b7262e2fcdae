// SPDX-License-Identifier: Apache-2.0
//! The table of fields, and what one field can do to a [`Key`].
//!
//! Everything that names a packet field comes from the one table in `table`: its texts, its NXM and
//! OXM numbers and the order in which they are sent, widths, mask rule, prerequisites, and its
//! position in the key. The OpenFlow codec, the text parsers and printers, translation and the
//! classifiers read it. A new field needs a name in the list here, a row and a place in the order
//! there, its bytes in [`Key`] and its extraction. The compiler or a test finds: bytes of a key
//! without a field, a field that frames, OpenFlow texts or datapath texts lack, a writable field
//! that translation does not commit, a field that the BPF tables neither hold nor refuse.
//! `docs/howto/add-a-field.md` lists all places, with those that nothing finds.
//!
//! Facts: ovs-fields(7); OpenFlow 1.5.1 section 7.2.3.
//!
//! # Values
//!
//! A [`FieldValue`] is the field's value as an integer, bit 0 the least significant, as the
//! OXM payload would read as a big-endian number. Special are:
//!
//! - [`Field::VlanVid`] carries the "present" bit [`crate::VLAN_CFI`] above its 12 bits, as
//!   OXM_OF_VLAN_VID does (`OFPVID_PRESENT`);
//! - [`Field::DlVlan`], [`Field::DlVlanPcp`] and [`Field::VlanPcp`] have no such bit; storing
//!   one of them makes the header present;
//! - [`Field::InPort`] is the 16-bit port of OpenFlow 1.0; reserved ports 0xff00 to 0xffff
//!   stand for 0xffffff00 to 0xffffffff in the key;
//! - [`Field::IpDscp`] is the ToS byte with the two ECN bits clear (`nw_tos`),
//!   [`Field::IpDscpShifted`] the six DSCP bits as a number (`ip_dscp`);
//! - [`Field::ArpOp`] is 16 bits wide, but a key holds only opcodes up to 255;
//! - [`Field::CtState`] is 32 bits wide, of which the low eight have a meaning;
//! - [`Field::TunFlags`] is the one flag that OpenFlow knows of those in a key
//!   ([`crate::Tunnel::flags`]);
//! - `tun_metadata0` to `tun_metadata63` are as wide as the option that a bridge maps to them, up to
//!   124 bytes ([`crate::tun_metadata`]). A [`FieldValue`] has their low 128 bits. Storing one of
//!   them makes the option present.

pub(crate) mod flags;
mod prerequisite;
mod subfield;
mod table;
pub(crate) mod value;

pub use prerequisite::Prerequisite;
pub use subfield::{Subfield, SubfieldError};
pub use table::{Definition, Format, KeyPosition, OxmNumber};
pub use value::ValueError;

use crate::tun_metadata::Wide;
use crate::{Key, Mask, VLAN_CFI};

/// The value (or mask) of a field: right-aligned, host integer. All present fields fit 128 bits.
pub type FieldValue = u128;

/// Declares [`Field`] and counts its variants.
macro_rules! fields {
    ($($name:ident),* $(,)?) => {
        /// A packet field, as named by ovs-fields(7).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        #[allow(missing_docs)] // the table documents each
        pub enum Field {
            $($name),*
        }

        /// Number of fields.
        const COUNT: usize = [$(Field::$name),*].len();
    };
}

#[rustfmt::skip]
fields! {
    DpHash, RecircId, PacketType, InPort, InPortOxm, SkbPriority, PktMark, ActsetOutput, ConjId,
    TunId, TunSrc, TunDst, TunIpv6Src, TunIpv6Dst, TunFlags, TunTtl, TunTos, TunGbpId, TunGbpFlags,
    TunErspanIdx, TunErspanVer, TunErspanDir, TunErspanHwid, TunGtpuFlags, TunGtpuMsgtype,
    TunMetadata0, TunMetadata1, TunMetadata2, TunMetadata3, TunMetadata4, TunMetadata5, TunMetadata6, TunMetadata7,
    TunMetadata8, TunMetadata9, TunMetadata10, TunMetadata11, TunMetadata12, TunMetadata13, TunMetadata14, TunMetadata15,
    TunMetadata16, TunMetadata17, TunMetadata18, TunMetadata19, TunMetadata20, TunMetadata21, TunMetadata22, TunMetadata23,
    TunMetadata24, TunMetadata25, TunMetadata26, TunMetadata27, TunMetadata28, TunMetadata29, TunMetadata30, TunMetadata31,
    TunMetadata32, TunMetadata33, TunMetadata34, TunMetadata35, TunMetadata36, TunMetadata37, TunMetadata38, TunMetadata39,
    TunMetadata40, TunMetadata41, TunMetadata42, TunMetadata43, TunMetadata44, TunMetadata45, TunMetadata46, TunMetadata47,
    TunMetadata48, TunMetadata49, TunMetadata50, TunMetadata51, TunMetadata52, TunMetadata53, TunMetadata54, TunMetadata55,
    TunMetadata56, TunMetadata57, TunMetadata58, TunMetadata59, TunMetadata60, TunMetadata61, TunMetadata62, TunMetadata63,
    CtState, CtZone, CtMark, CtLabel, CtNwProto, CtNwSrc, CtNwDst, CtIpv6Src, CtIpv6Dst, CtTpSrc, CtTpDst,
    Metadata,
    Reg0, Reg1, Reg2, Reg3, Reg4, Reg5, Reg6, Reg7, Reg8, Reg9, Reg10, Reg11, Reg12, Reg13, Reg14, Reg15,
    Reg16, Reg17, Reg18, Reg19, Reg20, Reg21, Reg22, Reg23, Reg24, Reg25, Reg26, Reg27, Reg28, Reg29, Reg30, Reg31,
    Xreg0, Xreg1, Xreg2, Xreg3, Xreg4, Xreg5, Xreg6, Xreg7, Xreg8, Xreg9, Xreg10, Xreg11, Xreg12, Xreg13, Xreg14, Xreg15,
    Xxreg0, Xxreg1, Xxreg2, Xxreg3, Xxreg4, Xxreg5, Xxreg6, Xxreg7,
    EthSrc, EthDst, EthType, VlanTci, DlVlan, VlanVid, DlVlanPcp, VlanPcp,
    MplsLabel, MplsTc, MplsBos, MplsTtl,
    Ipv4Src, Ipv4Dst, Ipv6Src, Ipv6Dst, Ipv6Label,
    IpProto, IpDscp, IpDscpShifted, IpEcn, IpTtl, IpFrag,
    ArpOp, ArpSpa, ArpTpa, ArpSha, ArpTha,
    TcpSrc, TcpDst, TcpFlags, UdpSrc, UdpDst, SctpSrc, SctpDst,
    Icmpv4Type, Icmpv4Code, Icmpv6Type, Icmpv6Code,
    NdTarget, NdSll, NdTll, NdReserved, NdOptionsType,
    NshFlags, NshTtl, NshMdtype, NshNp, NshSpi, NshSi, NshC1, NshC2, NshC3, NshC4,
}

const VID_MASK: u16 = 0x0fff;
const PCP_SHIFT: u32 = 13;
const PCP_MASK: u16 = 0xe000;
const DSCP_MASK: u128 = 0xfc;

/// OpenFlow 1.0's `OFP_VLAN_NONE`: as a [`Field::DlVlan`], "no VLAN header".
pub(crate) const DL_VLAN_NONE: u16 = 0xffff;

/// The 32-bit port of OpenFlow 1.1+ that the 16-bit port of OpenFlow 1.0 stands for:
/// 0xff00 and above are the reserved ports.
pub const fn port_from_of10(port: u16) -> u32 {
    if port >= 0xff00 { 0xffff_0000 | port as u32 } else { port as u32 }
}

/// The 16-bit port of OpenFlow 1.0 for `port`, or `None` when it has none
/// (0xff00 to 0xfffffeff).
pub const fn port_to_of10(port: u32) -> Option<u16> {
    if port < 0xff00 || port >= 0xffff_ff00 { Some(port as u16) } else { None }
}

/// The big-endian integer of `N` bytes (at most 8) at `at`; 0 when they are not all there.
#[inline(always)]
fn read<const N: usize>(bytes: &[u8], at: usize) -> u64 {
    match bytes.get(at..).and_then(|b| b.first_chunk::<N>()) {
        Some(chunk) => {
            let mut all = [0; 8];
            all[8 - N..].copy_from_slice(chunk); // N <= 8 where this is called
            u64::from_be_bytes(all)
        }
        None => 0,
    }
}

/// Replaces the bits of `mask` in the big-endian integer of `N` bytes (at most 8) at `at`.
#[inline(always)]
fn write<const N: usize>(bytes: &mut [u8], at: usize, value: u64, mask: u64) {
    let old = read::<N>(bytes, at);
    if let Some(place) = bytes.get_mut(at..).and_then(|b| b.first_chunk_mut::<N>()) {
        let new = (old & !mask | value & mask).to_be_bytes();
        place.copy_from_slice(&new[8 - N..]); // N <= 8 where this is called
    }
}

impl Field {
    /// Every field, in the order of the table (which is the order of the enumeration).
    pub const ALL: [Field; COUNT] = table::all();

    /// The fields that have an NXM or OXM number, in the order in which OVS sends them in matches:
    /// each after its prerequisites.
    pub const SENT: &'static [Field] = table::SENT;

    /// The field's row in the table.
    #[inline(always)]
    pub const fn def(self) -> &'static Definition {
        &table::TABLE[self as usize] // the table has one row per variant, checked when built
    }

    /// The preferred text name, e.g. `eth_src`.
    pub const fn name(self) -> &'static str {
        self.def().name
    }

    /// The other text name, e.g. `dl_src`.
    pub const fn alias(self) -> Option<&'static str> {
        self.def().alias
    }

    /// Width in bits. Bits of the OXM payload above it must be zero (but for
    /// [`Field::VlanVid`]'s present bit).
    pub const fn bits(self) -> u16 {
        self.def().bits
    }

    /// Width of the value in an OXM, in bytes.
    pub const fn oxm_bytes(self) -> u8 {
        self.def().oxm_bytes
    }

    /// True when a match may give an arbitrary mask; false when only the whole field may be
    /// matched.
    pub const fn maskable(self) -> bool {
        self.def().maskable
    }

    /// True when actions may write the field.
    pub const fn writable(self) -> bool {
        self.def().writable
    }

    /// Returns the condition under which the field has a meaning.
    pub const fn prerequisite(self) -> Prerequisite {
        self.def().prerequisite
    }

    /// True for the registers of all widths.
    pub const fn is_register(self) -> bool {
        let n = self as u8;
        n >= Field::Reg0 as u8 && n <= Field::Xxreg7 as u8
    }

    /// N of `tun_metadataN`.
    #[inline(always)]
    pub const fn option(self) -> Option<usize> {
        let n = self as u8;
        if n >= Field::TunMetadata0 as u8 && n <= Field::TunMetadata63 as u8 {
            Some((n - Field::TunMetadata0 as u8) as usize)
        } else {
            None
        }
    }

    /// The field `tun_metadataN`.
    pub fn of_option(n: usize) -> Option<Field> {
        let is_option = n < crate::tun_metadata::FIELDS;
        if is_option { Field::ALL.get(Field::TunMetadata0 as usize + n).copied() } else { None }
    }

    /// True for the fields of tunnels.
    pub const fn is_of_tunnel(self) -> bool {
        let n = self as u8;
        n >= Field::TunId as u8 && n <= Field::TunMetadata63 as u8
    }

    /// Bytes of the field's value: those of [`Field::oxm_bytes`], or of the option that a bridge maps
    /// to a field of an option.
    pub fn value_bytes(self) -> usize {
        self.option().map_or(usize::from(self.oxm_bytes()), crate::tun_metadata::bytes)
    }

    /// Width in bits: [`Field::bits`], or that of the option that a bridge maps to the field.
    pub fn width(self) -> u16 {
        match self.option() {
            Some(n) => crate::tun_metadata::bytes(n) as u16 * 8, // at most 124 bytes
            None => self.bits(),
        }
    }

    /// Replaces the bits of `mask` by those of `value`: all of the field where `mask` is
    /// [`Field::all_ones`], as the values of wider fields do not fit a [`FieldValue`].
    pub fn store_masked(self, key: &mut Key, value: FieldValue, mask: FieldValue) {
        if self.option().is_none() {
            let old = self.load(key);
            self.store(key, old & !mask | value & mask);
        } else if mask == self.all_ones() {
            self.store_wide(key, &Wide::from_u128(value));
        } else {
            let (value, mask) = (Wide::from_u128(value), Wide::from_u128(mask));
            self.store_wide_masked(key, &value, &mask);
        }
    }

    /// Replaces the bits of `mask` by those of `value`, in all the field's width.
    pub fn store_wide_masked(self, key: &mut Key, value: &Wide, mask: &Wide) {
        let mut new = self.load_wide(key).minus(mask);
        new.0.iter_mut().zip(value.and(mask).0).for_each(|(byte, set)| *byte |= set);
        self.store_wide(key, &new);
    }

    /// Makes the bits of `mask` exact: what [`Field::store_masked`] replaces.
    pub fn unwildcard_masked(self, of: &mut Mask, mask: FieldValue) {
        let mut bits = Mask::WILDCARD;
        match self.option() {
            Some(_) if mask == self.all_ones() => self.fill(&mut bits.0),
            _ => self.store(&mut bits.0, mask),
        }
        of.union(&bits);
    }

    /// Makes the bits of `mask` exact, in all the field's width.
    pub fn unwildcard_wide(self, of: &mut Mask, mask: &Wide) {
        let mut bits = Mask::WILDCARD;
        self.store_wide(&mut bits.0, mask);
        of.union(&bits);
    }

    /// The value in all its width.
    pub fn load_wide(self, key: &Key) -> Wide {
        match self.option() {
            Some(n) => key.tunnel.option(n),
            None => Wide::from_u128(self.load(key)),
        }
    }

    /// Stores a value in all its width; see [`Field::store`].
    pub fn store_wide(self, key: &mut Key, value: &Wide) {
        match self.option() {
            Some(n) => {
                key.tunnel.set_option(n, value);
                key.tunnel.set_present(n, true);
            }
            None => self.store(key, value.low()),
        }
    }

    /// The value with every bit of the field set, in all its width.
    pub fn all_ones_wide(self) -> Wide {
        match self.option() {
            Some(_) => Wide::ones(self.value_bytes()),
            None => Wide::from_u128(self.all_ones()),
        }
    }

    /// True for the fields that the connection tracker sets.
    pub const fn is_of_connection(self) -> bool {
        let n = self as u8;
        n >= Field::CtState as u8 && n <= Field::CtTpDst as u8
    }

    /// True for the writable fields that only the actions inside `ct(exec(...))` may name: they set
    /// the connection, not the packet.
    pub const fn is_set_by_ct(self) -> bool {
        matches!(self, Field::CtMark | Field::CtLabel)
    }

    /// True for a field of the outermost VLAN header.
    pub const fn is_vlan(self) -> bool {
        self.def().position.offset as usize == std::mem::offset_of!(Key, vlans) + 2
    }

    /// True for a field of MPLS, L3 or L4: a field after the Ethernet and VLAN headers.
    pub const fn is_above_vlans(self) -> bool {
        self.def().position.offset as usize >= std::mem::offset_of!(Key, mpls)
    }

    /// `reg0` to `reg31` by number.
    pub fn register(n: usize) -> Option<Field> {
        if n < crate::REGISTERS { Field::ALL.get(Field::Reg0 as usize + n).copied() } else { None }
    }

    /// The field called `name`: a text name or alias (`eth_src`, `dl_src`) or a name of an NXM
    /// or OXM number (`NXM_OF_ETH_SRC`), as load, move and set_field take them. ASCII case
    /// counts, as in OVS.
    pub fn from_name(name: &str) -> Option<Field> {
        table::TABLE
            .iter()
            .find(|d| {
                d.name == name
                    || d.alias == Some(name)
                    || d.numbers.iter().flatten().any(|n| n.name == name)
            })
            .map(|d| d.field)
    }

    /// The field with an OXM or NXM header of this class and number; `experimenter` is the
    /// 32-bit id that follows a header of class 0xffff, and `None` for other classes.
    pub fn from_oxm(
        class: u16,
        number: u8,
        experimenter: Option<u32>,
    ) -> Option<(Field, &'static OxmNumber)> {
        table::find(class, number, experimenter).map(|(d, n)| (d.field, n))
    }

    /// The number to send: `version` is the OpenFlow wire version (4 is 1.3) or 0 for NXM.
    /// Takes the newest number that `version` knows, else the oldest there is (NXM too carries
    /// fields that only OXM numbers). `None` for fields without any.
    pub fn oxm(self, version: u8) -> Option<&'static OxmNumber> {
        let numbers = || self.def().numbers.iter().flatten();
        numbers()
            .filter(|n| n.since <= version)
            .max_by_key(|n| n.since)
            .or_else(|| numbers().min_by_key(|n| n.since))
    }

    /// Reads the field out of `key`.
    #[inline]
    pub fn load(self, key: &Key) -> FieldValue {
        if let Some(n) = self.option() {
            return key.tunnel.load_option(n);
        }
        let p = &self.def().position;
        let at = usize::from(p.offset);
        let raw = match p.bytes {
            1 => read::<1>(key.bytes(), at),
            2 => read::<2>(key.bytes(), at),
            4 => read::<4>(key.bytes(), at),
            6 => read::<6>(key.bytes(), at),
            8 => read::<8>(key.bytes(), at),
            // Fields of 16 bytes are whole containers: the table asserts it.
            _ => {
                let bytes = key.bytes().get(at..).and_then(|b| b.first_chunk::<16>());
                return bytes.map_or(0, |b| u128::from_be_bytes(*b));
            }
        };
        let value = if let Field::IpDscp = self {
            raw & DSCP_MASK as u64
        } else {
            raw >> p.shift & ones(p.bits) as u64 // at most 64 bits here
        };
        value.into()
    }

    /// Writes the low bits of `value` to the field's place in `key`; see the module's text for
    /// what the VLAN fields and [`Field::InPort`] do beyond that.
    #[inline]
    pub fn store(self, key: &mut Key, value: FieldValue) {
        match self {
            Field::InPort => key.in_port.set(port_from_of10(value as u16)),
            Field::DlVlan => {
                let tci = key.vlans[0].tci.get();
                key.vlans[0].tci.set(if value == u128::from(DL_VLAN_NONE) {
                    0
                } else {
                    tci & !VID_MASK | VLAN_CFI | (value as u16 & VID_MASK)
                });
            }
            Field::IpDscp => {
                key.nw_tos = key.nw_tos & !(DSCP_MASK as u8) | (value & DSCP_MASK) as u8
            }
            Field::DlVlanPcp | Field::VlanPcp => {
                let tci = key.vlans[0].tci.get();
                let pcp = (value as u16 & 7) << PCP_SHIFT;
                key.vlans[0].tci.set(tci & !PCP_MASK | VLAN_CFI | pcp);
            }
            _ => self.store_raw(key, value),
        }
    }

    #[inline(always)]
    fn store_raw(self, key: &mut Key, value: FieldValue) {
        if let Some(n) = self.option() {
            key.tunnel.store_option(n, value);
            key.tunnel.set_present(n, true);
            return;
        }
        let p = &self.def().position;
        let (at, bytes) = (usize::from(p.offset), key.bytes_mut());
        if p.bytes == 16 {
            if let Some(place) = bytes.get_mut(at..).and_then(|b| b.first_chunk_mut::<16>()) {
                *place = value.to_be_bytes();
            }
            return;
        }
        // At most 64 bits from here on.
        let (value, mask) = ((value as u64) << p.shift, (ones(p.bits) as u64) << p.shift);
        match p.bytes {
            1 => write::<1>(bytes, at, value, mask),
            2 => write::<2>(bytes, at, value, mask),
            4 => write::<4>(bytes, at, value, mask),
            6 => write::<6>(bytes, at, value, mask),
            _ => write::<8>(bytes, at, value, mask),
        }
    }

    /// Sets every bit of the field in `key` (used on masks). For the VLAN fields and those of options
    /// that is also the "present" bit, as what such a field is depends on the header being there.
    #[inline]
    pub fn fill(self, key: &mut Key) {
        match self {
            Field::DlVlan => self.store(key, u128::from(VID_MASK)),
            _ if self.option().is_some() => self.store_wide(key, &self.all_ones_wide()),
            _ => self.store(key, self.all_ones()),
        }
    }

    /// Clears every bit of the field in `key`. The VLAN "present" bit goes with the last of
    /// the VLAN fields.
    #[inline]
    pub fn clear(self, key: &mut Key) {
        match self {
            Field::DlVlan | Field::VlanVid | Field::DlVlanPcp | Field::VlanPcp => {
                let mine = match self {
                    Field::DlVlan | Field::VlanVid => VID_MASK,
                    _ => PCP_MASK,
                };
                let rest = key.vlans[0].tci.get() & !mine;
                key.vlans[0].tci.set(if rest == VLAN_CFI { 0 } else { rest });
            }
            Field::InPort | Field::IpDscp => self.store(key, 0),
            _ => {
                self.store_raw(key, 0);
                if let Some(n) = self.option() {
                    key.tunnel.set_present(n, false);
                }
            }
        }
    }

    /// The value with every bit of the field set: a mask that makes it exact.
    #[inline]
    pub fn all_ones(self) -> FieldValue {
        match self {
            Field::IpDscp => DSCP_MASK,
            _ if self.option().is_some() => ones(self.value_bytes().min(16) as u8 * 8), // at most 128
            _ => ones(self.def().position.bits),
        }
    }
}

impl Mask {
    /// Every bit of the fields whose prerequisite is one that `needs` accepts.
    pub fn of_fields(needs: impl Fn(Prerequisite) -> bool) -> Mask {
        let mut mask = Mask::WILDCARD;
        for field in Field::ALL.into_iter().filter(|f| needs(f.prerequisite())) {
            mask.set_exact(field);
        }
        mask
    }

    /// True when it looks at a field that only Ethernet packets have, and not at the packet type,
    /// which may name that header in a packet without an Ethernet header.
    pub fn implies_ethernet(&self) -> bool {
        let says_it = |f: Field| f.prerequisite().is_of_ethernet() && f.load(&self.0) != 0;
        self.0.packet_type.get() == 0 && Field::ALL.into_iter().any(says_it)
    }

    /// True when no bit of `field` counts. Where a bit of an option counts, so does its presence.
    pub fn is_any(&self, field: Field) -> bool {
        match field.option() {
            // A field that no bridge maps has a word that may be another field's.
            Some(n) => !self.0.tunnel.has_option(n),
            None => field.load(&self.0) == 0,
        }
    }

    /// Makes every bit of `field` exact.
    pub fn set_exact(&mut self, field: Field) {
        field.fill(&mut self.0);
    }

    /// Makes every bit of `field` a wildcard.
    pub fn clear(&mut self, field: Field) {
        field.clear(&mut self.0);
    }
}

/// `bits` one bits at the low end.
#[inline(always)]
const fn ones(bits: u8) -> u128 {
    if bits >= 128 { u128::MAX } else { (1u128 << bits) - 1 }
}

#[cfg(test)]
mod tests;
