// SPDX-License-Identifier: Apache-2.0
//! The rows of the table of fields.

use super::{COUNT, Field, Prerequisite};
use crate::Key;
use std::mem::offset_of;

/// How a field's value is written in text (ovs-fields(7), "Data Formats").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Decimal number.
    Decimal,
    /// Hexadecimal number with 0x.
    Hexadecimal,
    /// `xx:xx:xx:xx:xx:xx`.
    Ethernet,
    /// Dotted quad.
    Ipv4,
    /// RFC 5952 text.
    Ipv6,
    /// 16-bit port number or name of OpenFlow 1.0.
    Port10,
    /// 32-bit port number or name of OpenFlow 1.1+.
    Port11,
    /// `no`, `yes`, `first`, `later`, `not_later`.
    Frag,
    /// `+syn-ack` and numbers.
    TcpFlags,
    /// `+trk-new` and numbers.
    CtState,
    /// `+oam` and numbers.
    TunFlags,
    /// `(namespace,type)`.
    PacketType,
}

/// An NXM or OXM number of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OxmNumber {
    /// Name, e.g. `NXM_OF_ETH_SRC`.
    pub name: &'static str,
    /// Class: 0x0000 and 0x0001 NXM, 0x8000 OXM basic, 0x8001 packet registers, 0xffff
    /// experimenter, 0x1000 ERICOXM.
    pub class: u16,
    /// Number in the class, 7 bits.
    pub number: u8,
    /// With class 0xffff, the experimenter id that follows the header.
    pub experimenter: Option<u32>,
    /// First OpenFlow wire version that has it (3 is OpenFlow 1.2), 0 for NXM.
    pub since: u8,
}

impl OxmNumber {
    /// The 32-bit header in host order: class, number, has-mask bit and the length of what
    /// follows it in bytes (experimenter id, value, mask).
    pub const fn header(&self, value_bytes: u8, has_mask: bool) -> u32 {
        let experimenter = if self.experimenter.is_some() { 4 } else { 0 };
        let length = experimenter + if has_mask { 2 * value_bytes } else { value_bytes };
        (self.class as u32) << 16
            | (self.number as u32) << 9
            | (has_mask as u32) << 8
            | length as u32
    }
}

/// Where a field is in a [`Key`]: the big-endian integer of `bytes` bytes at `offset`,
/// shifted right by `shift`, the low `bits` bits of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyPosition {
    /// Offset of the container in the key, in bytes.
    pub offset: u16,
    /// Size of the container in bytes: 1, 2, 4, 6, 8 or 16; 0 for the fields of options, whose place
    /// is that of [`crate::tun_metadata`].
    pub bytes: u8,
    /// Number of bits of the container below the field.
    pub shift: u8,
    /// Number of bits of the field there; differs from its width only as the parent module's text
    /// says.
    pub bits: u8,
}

/// One row: all that is known about a field.
#[derive(Clone, Copy, Debug)]
pub struct Definition {
    /// The field.
    pub field: Field,
    /// Preferred text name.
    pub name: &'static str,
    /// Second text name.
    pub alias: Option<&'static str>,
    /// Width in bits.
    pub bits: u16,
    /// Width of the OXM payload in bytes.
    pub oxm_bytes: u8,
    /// Arbitrary masks allowed; else only exact matches.
    pub maskable: bool,
    /// Actions may write it.
    pub writable: bool,
    /// Text form of a value.
    pub format: Format,
    /// Condition under which the field has a meaning.
    pub prerequisite: Prerequisite,
    /// NXM and OXM numbers.
    pub numbers: [Option<OxmNumber>; 3],
    /// Position in the key.
    pub position: KeyPosition,
}

const NXM_OF: u16 = 0x0000;
const NXM_NX: u16 = 0x0001;
const ERICOXM: u16 = 0x1000;
const OXM_OF: u16 = 0x8000;
const OXM_PKT_REG: u16 = 0x8001;
const EXPERIMENTER: u16 = 0xffff;
const ONF: u32 = 0x4f4e_4600;
const NICIRA: u32 = 0x0000_2320;
/// The experimenter of NSH's fields in Open vSwitch.
const NSH: u32 = 0x005a_d650;

impl Definition {
    const fn alias(mut self, alias: &'static str) -> Self {
        self.alias = Some(alias);
        self
    }
    /// Only some bits, after `shift` others, of the container.
    const fn part(mut self, shift: u8, bits: u8) -> Self {
        self.bits = bits as u16;
        self.position.shift = shift;
        self.position.bits = bits;
        self
    }
    /// The OXM payload has another size than the position in the key.
    const fn oxm_bytes(mut self, n: u8) -> Self {
        self.oxm_bytes = n;
        self
    }
    const fn masked(mut self) -> Self {
        self.maskable = true;
        self
    }
    const fn read_only(mut self) -> Self {
        self.writable = false;
        self
    }
    const fn needs(mut self, p: Prerequisite) -> Self {
        self.prerequisite = p;
        self
    }
    const fn number(mut self, n: OxmNumber) -> Self {
        let mut i = 0;
        while self.numbers[i].is_some() {
            i += 1;
        }
        self.numbers[i] = Some(n);
        self
    }
    const fn nxm(self, name: &'static str, number: u8) -> Self {
        self.number(OxmNumber { name, class: NXM_OF, number, experimenter: None, since: 0 })
    }
    const fn nx(self, name: &'static str, number: u8) -> Self {
        self.number(OxmNumber { name, class: NXM_NX, number, experimenter: None, since: 0 })
    }
    const fn oxm(self, name: &'static str, number: u8, since: u8) -> Self {
        self.number(OxmNumber { name, class: OXM_OF, number, experimenter: None, since })
    }
    const fn onf(self, name: &'static str, number: u8) -> Self {
        self.number(OxmNumber {
            name,
            class: EXPERIMENTER,
            number,
            experimenter: Some(ONF),
            since: 4,
        })
    }
    /// An experimenter's number in the class of Nicira, which goes into NXM lists, too.
    const fn nxoxm(self, name: &'static str, number: u8) -> Self {
        self.number(OxmNumber {
            name,
            class: EXPERIMENTER,
            number,
            experimenter: Some(NICIRA),
            since: 0,
        })
    }
    /// An experimenter's number in the class of NSH, which goes into NXM lists, too.
    const fn nxnsh(self, name: &'static str, number: u8) -> Self {
        self.number(OxmNumber {
            name,
            class: EXPERIMENTER,
            number,
            experimenter: Some(NSH),
            since: 0,
        })
    }
    const fn eric(self, name: &'static str, number: u8) -> Self {
        self.number(OxmNumber { name, class: ERICOXM, number, experimenter: None, since: 0 })
    }
}

/// A writable, unmasked field that is all of a container of `bytes` at `offset`.
const fn row(
    field: Field,
    name: &'static str,
    format: Format,
    offset: usize,
    bytes: u8,
) -> Definition {
    Definition {
        field,
        name,
        alias: None,
        bits: bytes as u16 * 8,
        oxm_bytes: bytes,
        maskable: false,
        writable: true,
        format,
        prerequisite: Prerequisite::None,
        numbers: [None; 3],
        position: KeyPosition { offset: offset as u16, bytes, shift: 0, bits: bytes * 8 },
    }
}

/// A register of 32 bits. Those from 16 on have numbers of Nicira's experimenter.
const fn reg(field: Field, name: &'static str, nxm: &'static str) -> Definition {
    let n = field as u8 - Field::Reg0 as u8;
    let at = offset_of!(Key, regs) + 4 * n as usize;
    let row = row(field, name, Format::Hexadecimal, at, 4).masked();
    if n < 16 { row.nx(nxm, n) } else { row.nxoxm(nxm, n + 1) }
}

const fn xreg(field: Field, name: &'static str, oxm: &'static str) -> Definition {
    let n = field as u8 - Field::Xreg0 as u8;
    row(field, name, Format::Hexadecimal, offset_of!(Key, regs) + 8 * n as usize, 8)
        .masked()
        .number(OxmNumber {
            name: oxm,
            class: OXM_PKT_REG,
            number: n,
            experimenter: None,
            since: 4,
        })
}

const fn xxreg(field: Field, name: &'static str, nxm: &'static str) -> Definition {
    let n = field as u8 - Field::Xxreg0 as u8;
    let at = offset_of!(Key, regs) + 16 * n as usize;
    let row = row(field, name, Format::Hexadecimal, at, 16).masked();
    if n < 4 { row.nx(nxm, 111 + n) } else { row.nxoxm(nxm, 29 + n) }
}

/// A field of an option of Geneve: as wide as the option that a bridge maps to it.
const fn option(field: Field, name: &'static str, nxm: &'static str) -> Definition {
    let n = field as u8 - Field::TunMetadata0 as u8;
    let mut d = row(field, name, Format::Hexadecimal, offset_of!(Key, tunnel.options), 0)
        .masked()
        .nx(nxm, 40 + n);
    d.bits = 8 * crate::tun_metadata::MAX_BYTES as u16;
    d.oxm_bytes(crate::tun_metadata::MAX_BYTES as u8)
}

/// The table. One row per field, in the order of the enumeration.
#[rustfmt::skip]
pub(super) static TABLE: [Definition; COUNT] = {
    use Format::*;
    use Prerequisite as P;
    const TCI: usize = offset_of!(Key, vlans) + 2;
    const MPLS: usize = offset_of!(Key, mpls);
    const TP_SRC: usize = offset_of!(Key, tp_src);
    const TP_DST: usize = offset_of!(Key, tp_dst);
    [
        row(Field::DpHash, "dp_hash", Hexadecimal, offset_of!(Key, dp_hash), 4)
            .masked().read_only().nx("NXM_NX_DP_HASH", 35),
        row(Field::RecircId, "recirc_id", Decimal, offset_of!(Key, recirc_id), 4)
            .read_only().nx("NXM_NX_RECIRC_ID", 36),
        row(Field::PacketType, "packet_type", PacketType, offset_of!(Key, packet_type), 4)
            .read_only().oxm("OXM_OF_PACKET_TYPE", 44, 6),
        row(Field::InPort, "in_port", Port10, offset_of!(Key, in_port), 4)
            .part(0, 16).oxm_bytes(2).nxm("NXM_OF_IN_PORT", 0),
        row(Field::InPortOxm, "in_port_oxm", Port11, offset_of!(Key, in_port), 4)
            .oxm("OXM_OF_IN_PORT", 0, 3),
        row(Field::SkbPriority, "skb_priority", Hexadecimal, offset_of!(Key, skb_priority), 4).read_only(),
        row(Field::PktMark, "pkt_mark", Hexadecimal, offset_of!(Key, pkt_mark), 4)
            .masked().nx("NXM_NX_PKT_MARK", 33),
        row(Field::ActsetOutput, "actset_output", Port11, offset_of!(Key, actset_output), 4)
            .read_only().onf("ONFOXM_ET_ACTSET_OUTPUT", 43).oxm("OXM_OF_ACTSET_OUTPUT", 43, 6),
        row(Field::ConjId, "conj_id", Decimal, offset_of!(Key, conj_id), 4)
            .read_only().nx("NXM_NX_CONJ_ID", 37),
        row(Field::TunId, "tun_id", Hexadecimal, offset_of!(Key, tunnel.id), 8).alias("tunnel_id")
            .masked().nx("NXM_NX_TUN_ID", 16).oxm("OXM_OF_TUNNEL_ID", 38, 4),
        row(Field::TunSrc, "tun_src", Ipv4, offset_of!(Key, tunnel.src), 4)
            .masked().nx("NXM_NX_TUN_IPV4_SRC", 31),
        row(Field::TunDst, "tun_dst", Ipv4, offset_of!(Key, tunnel.dst), 4)
            .masked().nx("NXM_NX_TUN_IPV4_DST", 32),
        row(Field::TunIpv6Src, "tun_ipv6_src", Ipv6, offset_of!(Key, tunnel.ipv6_src), 16)
            .masked().nx("NXM_NX_TUN_IPV6_SRC", 109),
        row(Field::TunIpv6Dst, "tun_ipv6_dst", Ipv6, offset_of!(Key, tunnel.ipv6_dst), 16)
            .masked().nx("NXM_NX_TUN_IPV6_DST", 110),
        row(Field::TunFlags, "tun_flags", TunFlags, offset_of!(Key, tunnel.flags), 2)
            .part(0, 1).masked().nx("NXM_NX_TUN_FLAGS", 104),
        row(Field::TunTtl, "tun_ttl", Decimal, offset_of!(Key, tunnel.ttl), 1).read_only(),
        row(Field::TunTos, "tun_tos", Decimal, offset_of!(Key, tunnel.tos), 1).read_only(),
        row(Field::TunGbpId, "tun_gbp_id", Decimal, offset_of!(Key, tunnel.gbp_id), 2)
            .masked().nx("NXM_NX_TUN_GBP_ID", 38),
        row(Field::TunGbpFlags, "tun_gbp_flags", Hexadecimal, offset_of!(Key, tunnel.gbp_flags), 1)
            .masked().nx("NXM_NX_TUN_GBP_FLAGS", 39),
        row(Field::TunErspanIdx, "tun_erspan_idx", Hexadecimal, offset_of!(Key, tunnel.erspan_idx), 4)
            .part(0, 20).masked().nxoxm("NXOXM_ET_ERSPAN_IDX", 11),
        row(Field::TunErspanVer, "tun_erspan_ver", Decimal, offset_of!(Key, tunnel.erspan_ver), 1)
            .part(0, 4).masked().nxoxm("NXOXM_ET_ERSPAN_VER", 12),
        row(Field::TunErspanDir, "tun_erspan_dir", Decimal, offset_of!(Key, tunnel.erspan_dir), 1)
            .part(0, 1).masked().nxoxm("NXOXM_ET_ERSPAN_DIR", 13),
        row(Field::TunErspanHwid, "tun_erspan_hwid", Hexadecimal, offset_of!(Key, tunnel.erspan_hwid), 1)
            .part(0, 6).masked().nxoxm("NXOXM_ET_ERSPAN_HWID", 14),
        row(Field::TunGtpuFlags, "tun_gtpu_flags", Hexadecimal, offset_of!(Key, tunnel.gtpu_flags), 1)
            .masked().read_only().nxoxm("NXOXM_ET_GTPU_FLAGS", 15),
        row(Field::TunGtpuMsgtype, "tun_gtpu_msgtype", Decimal, offset_of!(Key, tunnel.gtpu_msgtype), 1)
            .masked().read_only().nxoxm("NXOXM_ET_GTPU_MSGTYPE", 16),
        option(Field::TunMetadata0, "tun_metadata0", "NXM_NX_TUN_METADATA0"), option(Field::TunMetadata1, "tun_metadata1", "NXM_NX_TUN_METADATA1"),
        option(Field::TunMetadata2, "tun_metadata2", "NXM_NX_TUN_METADATA2"), option(Field::TunMetadata3, "tun_metadata3", "NXM_NX_TUN_METADATA3"),
        option(Field::TunMetadata4, "tun_metadata4", "NXM_NX_TUN_METADATA4"), option(Field::TunMetadata5, "tun_metadata5", "NXM_NX_TUN_METADATA5"),
        option(Field::TunMetadata6, "tun_metadata6", "NXM_NX_TUN_METADATA6"), option(Field::TunMetadata7, "tun_metadata7", "NXM_NX_TUN_METADATA7"),
        option(Field::TunMetadata8, "tun_metadata8", "NXM_NX_TUN_METADATA8"), option(Field::TunMetadata9, "tun_metadata9", "NXM_NX_TUN_METADATA9"),
        option(Field::TunMetadata10, "tun_metadata10", "NXM_NX_TUN_METADATA10"), option(Field::TunMetadata11, "tun_metadata11", "NXM_NX_TUN_METADATA11"),
        option(Field::TunMetadata12, "tun_metadata12", "NXM_NX_TUN_METADATA12"), option(Field::TunMetadata13, "tun_metadata13", "NXM_NX_TUN_METADATA13"),
        option(Field::TunMetadata14, "tun_metadata14", "NXM_NX_TUN_METADATA14"), option(Field::TunMetadata15, "tun_metadata15", "NXM_NX_TUN_METADATA15"),
        option(Field::TunMetadata16, "tun_metadata16", "NXM_NX_TUN_METADATA16"), option(Field::TunMetadata17, "tun_metadata17", "NXM_NX_TUN_METADATA17"),
        option(Field::TunMetadata18, "tun_metadata18", "NXM_NX_TUN_METADATA18"), option(Field::TunMetadata19, "tun_metadata19", "NXM_NX_TUN_METADATA19"),
        option(Field::TunMetadata20, "tun_metadata20", "NXM_NX_TUN_METADATA20"), option(Field::TunMetadata21, "tun_metadata21", "NXM_NX_TUN_METADATA21"),
        option(Field::TunMetadata22, "tun_metadata22", "NXM_NX_TUN_METADATA22"), option(Field::TunMetadata23, "tun_metadata23", "NXM_NX_TUN_METADATA23"),
        option(Field::TunMetadata24, "tun_metadata24", "NXM_NX_TUN_METADATA24"), option(Field::TunMetadata25, "tun_metadata25", "NXM_NX_TUN_METADATA25"),
        option(Field::TunMetadata26, "tun_metadata26", "NXM_NX_TUN_METADATA26"), option(Field::TunMetadata27, "tun_metadata27", "NXM_NX_TUN_METADATA27"),
        option(Field::TunMetadata28, "tun_metadata28", "NXM_NX_TUN_METADATA28"), option(Field::TunMetadata29, "tun_metadata29", "NXM_NX_TUN_METADATA29"),
        option(Field::TunMetadata30, "tun_metadata30", "NXM_NX_TUN_METADATA30"), option(Field::TunMetadata31, "tun_metadata31", "NXM_NX_TUN_METADATA31"),
        option(Field::TunMetadata32, "tun_metadata32", "NXM_NX_TUN_METADATA32"), option(Field::TunMetadata33, "tun_metadata33", "NXM_NX_TUN_METADATA33"),
        option(Field::TunMetadata34, "tun_metadata34", "NXM_NX_TUN_METADATA34"), option(Field::TunMetadata35, "tun_metadata35", "NXM_NX_TUN_METADATA35"),
        option(Field::TunMetadata36, "tun_metadata36", "NXM_NX_TUN_METADATA36"), option(Field::TunMetadata37, "tun_metadata37", "NXM_NX_TUN_METADATA37"),
        option(Field::TunMetadata38, "tun_metadata38", "NXM_NX_TUN_METADATA38"), option(Field::TunMetadata39, "tun_metadata39", "NXM_NX_TUN_METADATA39"),
        option(Field::TunMetadata40, "tun_metadata40", "NXM_NX_TUN_METADATA40"), option(Field::TunMetadata41, "tun_metadata41", "NXM_NX_TUN_METADATA41"),
        option(Field::TunMetadata42, "tun_metadata42", "NXM_NX_TUN_METADATA42"), option(Field::TunMetadata43, "tun_metadata43", "NXM_NX_TUN_METADATA43"),
        option(Field::TunMetadata44, "tun_metadata44", "NXM_NX_TUN_METADATA44"), option(Field::TunMetadata45, "tun_metadata45", "NXM_NX_TUN_METADATA45"),
        option(Field::TunMetadata46, "tun_metadata46", "NXM_NX_TUN_METADATA46"), option(Field::TunMetadata47, "tun_metadata47", "NXM_NX_TUN_METADATA47"),
        option(Field::TunMetadata48, "tun_metadata48", "NXM_NX_TUN_METADATA48"), option(Field::TunMetadata49, "tun_metadata49", "NXM_NX_TUN_METADATA49"),
        option(Field::TunMetadata50, "tun_metadata50", "NXM_NX_TUN_METADATA50"), option(Field::TunMetadata51, "tun_metadata51", "NXM_NX_TUN_METADATA51"),
        option(Field::TunMetadata52, "tun_metadata52", "NXM_NX_TUN_METADATA52"), option(Field::TunMetadata53, "tun_metadata53", "NXM_NX_TUN_METADATA53"),
        option(Field::TunMetadata54, "tun_metadata54", "NXM_NX_TUN_METADATA54"), option(Field::TunMetadata55, "tun_metadata55", "NXM_NX_TUN_METADATA55"),
        option(Field::TunMetadata56, "tun_metadata56", "NXM_NX_TUN_METADATA56"), option(Field::TunMetadata57, "tun_metadata57", "NXM_NX_TUN_METADATA57"),
        option(Field::TunMetadata58, "tun_metadata58", "NXM_NX_TUN_METADATA58"), option(Field::TunMetadata59, "tun_metadata59", "NXM_NX_TUN_METADATA59"),
        option(Field::TunMetadata60, "tun_metadata60", "NXM_NX_TUN_METADATA60"), option(Field::TunMetadata61, "tun_metadata61", "NXM_NX_TUN_METADATA61"),
        option(Field::TunMetadata62, "tun_metadata62", "NXM_NX_TUN_METADATA62"), option(Field::TunMetadata63, "tun_metadata63", "NXM_NX_TUN_METADATA63"),
        ct_state(row(Field::CtState, "ct_state", CtState, offset_of!(Key, ct_state), 1)
            .masked().read_only().nx("NXM_NX_CT_STATE", 105)),
        row(Field::CtZone, "ct_zone", Hexadecimal, offset_of!(Key, ct_zone), 2)
            .read_only().nx("NXM_NX_CT_ZONE", 106),
        row(Field::CtMark, "ct_mark", Hexadecimal, offset_of!(Key, ct_mark), 4)
            .masked().nx("NXM_NX_CT_MARK", 107),
        row(Field::CtLabel, "ct_label", Hexadecimal, offset_of!(Key, ct_label), 16)
            .masked().nx("NXM_NX_CT_LABEL", 108),
        row(Field::CtNwProto, "ct_nw_proto", Decimal, offset_of!(Key, ct_nw_proto), 1)
            .read_only().needs(P::Ct).nx("NXM_NX_CT_NW_PROTO", 119),
        row(Field::CtNwSrc, "ct_nw_src", Ipv4, offset_of!(Key, ct_nw_src), 4).masked()
            .read_only().needs(P::Ct).nx("NXM_NX_CT_NW_SRC", 120),
        row(Field::CtNwDst, "ct_nw_dst", Ipv4, offset_of!(Key, ct_nw_dst), 4).masked()
            .read_only().needs(P::Ct).nx("NXM_NX_CT_NW_DST", 121),
        row(Field::CtIpv6Src, "ct_ipv6_src", Ipv6, offset_of!(Key, ct_ipv6_src), 16).masked()
            .read_only().needs(P::Ct).nx("NXM_NX_CT_IPV6_SRC", 122),
        row(Field::CtIpv6Dst, "ct_ipv6_dst", Ipv6, offset_of!(Key, ct_ipv6_dst), 16).masked()
            .read_only().needs(P::Ct).nx("NXM_NX_CT_IPV6_DST", 123),
        row(Field::CtTpSrc, "ct_tp_src", Decimal, offset_of!(Key, ct_tp_src), 2).masked()
            .read_only().needs(P::Ct).nx("NXM_NX_CT_TP_SRC", 124),
        row(Field::CtTpDst, "ct_tp_dst", Decimal, offset_of!(Key, ct_tp_dst), 2).masked()
            .read_only().needs(P::Ct).nx("NXM_NX_CT_TP_DST", 125),
        row(Field::Metadata, "metadata", Hexadecimal, offset_of!(Key, metadata), 8)
            .masked().oxm("OXM_OF_METADATA", 2, 3),
        reg(Field::Reg0, "reg0", "NXM_NX_REG0"), reg(Field::Reg1, "reg1", "NXM_NX_REG1"),
        reg(Field::Reg2, "reg2", "NXM_NX_REG2"), reg(Field::Reg3, "reg3", "NXM_NX_REG3"),
        reg(Field::Reg4, "reg4", "NXM_NX_REG4"), reg(Field::Reg5, "reg5", "NXM_NX_REG5"),
        reg(Field::Reg6, "reg6", "NXM_NX_REG6"), reg(Field::Reg7, "reg7", "NXM_NX_REG7"),
        reg(Field::Reg8, "reg8", "NXM_NX_REG8"), reg(Field::Reg9, "reg9", "NXM_NX_REG9"),
        reg(Field::Reg10, "reg10", "NXM_NX_REG10"), reg(Field::Reg11, "reg11", "NXM_NX_REG11"),
        reg(Field::Reg12, "reg12", "NXM_NX_REG12"), reg(Field::Reg13, "reg13", "NXM_NX_REG13"),
        reg(Field::Reg14, "reg14", "NXM_NX_REG14"), reg(Field::Reg15, "reg15", "NXM_NX_REG15"),
        reg(Field::Reg16, "reg16", "NXOXM_ET_REG16"), reg(Field::Reg17, "reg17", "NXOXM_ET_REG17"),
        reg(Field::Reg18, "reg18", "NXOXM_ET_REG18"), reg(Field::Reg19, "reg19", "NXOXM_ET_REG19"),
        reg(Field::Reg20, "reg20", "NXOXM_ET_REG20"), reg(Field::Reg21, "reg21", "NXOXM_ET_REG21"),
        reg(Field::Reg22, "reg22", "NXOXM_ET_REG22"), reg(Field::Reg23, "reg23", "NXOXM_ET_REG23"),
        reg(Field::Reg24, "reg24", "NXOXM_ET_REG24"), reg(Field::Reg25, "reg25", "NXOXM_ET_REG25"),
        reg(Field::Reg26, "reg26", "NXOXM_ET_REG26"), reg(Field::Reg27, "reg27", "NXOXM_ET_REG27"),
        reg(Field::Reg28, "reg28", "NXOXM_ET_REG28"), reg(Field::Reg29, "reg29", "NXOXM_ET_REG29"),
        reg(Field::Reg30, "reg30", "NXOXM_ET_REG30"), reg(Field::Reg31, "reg31", "NXOXM_ET_REG31"),
        xreg(Field::Xreg0, "xreg0", "OXM_OF_PKT_REG0"), xreg(Field::Xreg1, "xreg1", "OXM_OF_PKT_REG1"),
        xreg(Field::Xreg2, "xreg2", "OXM_OF_PKT_REG2"), xreg(Field::Xreg3, "xreg3", "OXM_OF_PKT_REG3"),
        xreg(Field::Xreg4, "xreg4", "OXM_OF_PKT_REG4"), xreg(Field::Xreg5, "xreg5", "OXM_OF_PKT_REG5"),
        xreg(Field::Xreg6, "xreg6", "OXM_OF_PKT_REG6"), xreg(Field::Xreg7, "xreg7", "OXM_OF_PKT_REG7"),
        xreg(Field::Xreg8, "xreg8", "OXM_OF_PKT_REG8"), xreg(Field::Xreg9, "xreg9", "OXM_OF_PKT_REG9"),
        xreg(Field::Xreg10, "xreg10", "OXM_OF_PKT_REG10"), xreg(Field::Xreg11, "xreg11", "OXM_OF_PKT_REG11"),
        xreg(Field::Xreg12, "xreg12", "OXM_OF_PKT_REG12"), xreg(Field::Xreg13, "xreg13", "OXM_OF_PKT_REG13"),
        xreg(Field::Xreg14, "xreg14", "OXM_OF_PKT_REG14"), xreg(Field::Xreg15, "xreg15", "OXM_OF_PKT_REG15"),
        xxreg(Field::Xxreg0, "xxreg0", "NXM_NX_XXREG0"), xxreg(Field::Xxreg1, "xxreg1", "NXM_NX_XXREG1"),
        xxreg(Field::Xxreg2, "xxreg2", "NXM_NX_XXREG2"), xxreg(Field::Xxreg3, "xxreg3", "NXM_NX_XXREG3"),
        xxreg(Field::Xxreg4, "xxreg4", "NXOXM_ET_XXREG4"), xxreg(Field::Xxreg5, "xxreg5", "NXOXM_ET_XXREG5"),
        xxreg(Field::Xxreg6, "xxreg6", "NXOXM_ET_XXREG6"), xxreg(Field::Xxreg7, "xxreg7", "NXOXM_ET_XXREG7"),

        row(Field::EthSrc, "eth_src", Ethernet, offset_of!(Key, dl_src), 6).alias("dl_src").masked()
            .needs(P::Ethernet).nxm("NXM_OF_ETH_SRC", 2).oxm("OXM_OF_ETH_SRC", 4, 3),
        row(Field::EthDst, "eth_dst", Ethernet, offset_of!(Key, dl_dst), 6).alias("dl_dst").masked()
            .needs(P::Ethernet).nxm("NXM_OF_ETH_DST", 1).oxm("OXM_OF_ETH_DST", 3, 3),
        row(Field::EthType, "eth_type", Hexadecimal, offset_of!(Key, dl_type), 2).alias("dl_type").read_only()
            .needs(P::Ethernet).nxm("NXM_OF_ETH_TYPE", 3).oxm("OXM_OF_ETH_TYPE", 5, 3),
        row(Field::VlanTci, "vlan_tci", Hexadecimal, TCI, 2).masked()
            .needs(P::Ethernet).nxm("NXM_OF_VLAN_TCI", 4),
        row(Field::DlVlan, "dl_vlan", Decimal, TCI, 2).part(0, 12).needs(P::Ethernet),
        vlan_vid(row(Field::VlanVid, "vlan_vid", Decimal, TCI, 2).masked()
            .needs(P::Ethernet).oxm("OXM_OF_VLAN_VID", 6, 3)),
        row(Field::DlVlanPcp, "dl_vlan_pcp", Decimal, TCI, 2).part(13, 3).oxm_bytes(1).needs(P::Ethernet),
        row(Field::VlanPcp, "vlan_pcp", Decimal, TCI, 2).part(13, 3).oxm_bytes(1)
            .needs(P::Vlan).oxm("OXM_OF_VLAN_PCP", 7, 3),
        row(Field::MplsLabel, "mpls_label", Decimal, MPLS, 4).part(12, 20)
            .needs(P::Mpls).oxm("OXM_OF_MPLS_LABEL", 34, 3),
        row(Field::MplsTc, "mpls_tc", Decimal, MPLS, 4).part(9, 3).oxm_bytes(1)
            .needs(P::Mpls).oxm("OXM_OF_MPLS_TC", 35, 3),
        row(Field::MplsBos, "mpls_bos", Decimal, MPLS, 4).part(8, 1).oxm_bytes(1).read_only()
            .needs(P::Mpls).oxm("OXM_OF_MPLS_BOS", 36, 4),
        row(Field::MplsTtl, "mpls_ttl", Decimal, MPLS, 4).part(0, 8).oxm_bytes(1)
            .needs(P::Mpls).nx("NXM_NX_MPLS_TTL", 30),

        row(Field::Ipv4Src, "ip_src", Ipv4, offset_of!(Key, nw_src), 4).alias("nw_src").masked()
            .needs(P::Ipv4).nxm("NXM_OF_IP_SRC", 7).oxm("OXM_OF_IPV4_SRC", 11, 3),
        row(Field::Ipv4Dst, "ip_dst", Ipv4, offset_of!(Key, nw_dst), 4).alias("nw_dst").masked()
            .needs(P::Ipv4).nxm("NXM_OF_IP_DST", 8).oxm("OXM_OF_IPV4_DST", 12, 3),
        row(Field::Ipv6Src, "ipv6_src", Ipv6, offset_of!(Key, ipv6_src), 16).masked()
            .needs(P::Ipv6).nx("NXM_NX_IPV6_SRC", 19).oxm("OXM_OF_IPV6_SRC", 26, 3),
        row(Field::Ipv6Dst, "ipv6_dst", Ipv6, offset_of!(Key, ipv6_dst), 16).masked()
            .needs(P::Ipv6).nx("NXM_NX_IPV6_DST", 20).oxm("OXM_OF_IPV6_DST", 27, 3),
        row(Field::Ipv6Label, "ipv6_label", Hexadecimal, offset_of!(Key, ipv6_label), 4).part(0, 20).masked()
            .needs(P::Ipv6).nx("NXM_NX_IPV6_LABEL", 27).oxm("OXM_OF_IPV6_FLABEL", 28, 3),
        row(Field::IpProto, "nw_proto", Decimal, offset_of!(Key, nw_proto), 1).alias("ip_proto").read_only()
            .needs(P::IpAny).nxm("NXM_OF_IP_PROTO", 6).oxm("OXM_OF_IP_PROTO", 10, 3),
        row(Field::IpDscp, "nw_tos", Decimal, offset_of!(Key, nw_tos), 1)
            .needs(P::IpAny).nxm("NXM_OF_IP_TOS", 5),
        row(Field::IpDscpShifted, "ip_dscp", Decimal, offset_of!(Key, nw_tos), 1).part(2, 6)
            .needs(P::IpAny).oxm("OXM_OF_IP_DSCP", 8, 3),
        row(Field::IpEcn, "nw_ecn", Decimal, offset_of!(Key, nw_tos), 1).part(0, 2).alias("ip_ecn")
            .needs(P::IpAny).nx("NXM_NX_IP_ECN", 28).oxm("OXM_OF_IP_ECN", 9, 3),
        row(Field::IpTtl, "nw_ttl", Decimal, offset_of!(Key, nw_ttl), 1)
            .needs(P::IpAny).nx("NXM_NX_IP_TTL", 29),
        row(Field::IpFrag, "ip_frag", Frag, offset_of!(Key, nw_frag), 1).part(0, 2).alias("nw_frag").masked().read_only()
            .needs(P::IpAny).nx("NXM_NX_IP_FRAG", 26),

        arp_op(row(Field::ArpOp, "arp_op", Decimal, offset_of!(Key, nw_proto), 1)
            .needs(P::Arp).nxm("NXM_OF_ARP_OP", 15).oxm("OXM_OF_ARP_OP", 21, 3)),
        row(Field::ArpSpa, "arp_spa", Ipv4, offset_of!(Key, nw_src), 4).masked()
            .needs(P::Arp).nxm("NXM_OF_ARP_SPA", 16).oxm("OXM_OF_ARP_SPA", 22, 3),
        row(Field::ArpTpa, "arp_tpa", Ipv4, offset_of!(Key, nw_dst), 4).masked()
            .needs(P::Arp).nxm("NXM_OF_ARP_TPA", 17).oxm("OXM_OF_ARP_TPA", 23, 3),
        row(Field::ArpSha, "arp_sha", Ethernet, offset_of!(Key, arp_sha), 6).masked()
            .needs(P::Arp).nx("NXM_NX_ARP_SHA", 17).oxm("OXM_OF_ARP_SHA", 24, 3),
        row(Field::ArpTha, "arp_tha", Ethernet, offset_of!(Key, arp_tha), 6).masked()
            .needs(P::Arp).nx("NXM_NX_ARP_THA", 18).oxm("OXM_OF_ARP_THA", 25, 3),

        row(Field::TcpSrc, "tcp_src", Decimal, TP_SRC, 2).alias("tp_src").masked()
            .needs(P::Tcp).nxm("NXM_OF_TCP_SRC", 9).oxm("OXM_OF_TCP_SRC", 13, 3),
        row(Field::TcpDst, "tcp_dst", Decimal, TP_DST, 2).alias("tp_dst").masked()
            .needs(P::Tcp).nxm("NXM_OF_TCP_DST", 10).oxm("OXM_OF_TCP_DST", 14, 3),
        row(Field::TcpFlags, "tcp_flags", TcpFlags, offset_of!(Key, tcp_flags), 2).part(0, 12).masked().read_only()
            .needs(P::Tcp).nx("NXM_NX_TCP_FLAGS", 34).onf("ONFOXM_ET_TCP_FLAGS", 42).oxm("OXM_OF_TCP_FLAGS", 42, 6),
        row(Field::UdpSrc, "udp_src", Decimal, TP_SRC, 2).masked()
            .needs(P::Udp).nxm("NXM_OF_UDP_SRC", 11).oxm("OXM_OF_UDP_SRC", 15, 3),
        row(Field::UdpDst, "udp_dst", Decimal, TP_DST, 2).masked()
            .needs(P::Udp).nxm("NXM_OF_UDP_DST", 12).oxm("OXM_OF_UDP_DST", 16, 3),
        row(Field::SctpSrc, "sctp_src", Decimal, TP_SRC, 2).masked().needs(P::Sctp).oxm("OXM_OF_SCTP_SRC", 17, 3),
        row(Field::SctpDst, "sctp_dst", Decimal, TP_DST, 2).masked().needs(P::Sctp).oxm("OXM_OF_SCTP_DST", 18, 3),
        row(Field::Icmpv4Type, "icmp_type", Decimal, TP_SRC, 2).part(0, 8).oxm_bytes(1)
            .needs(P::Icmpv4).nxm("NXM_OF_ICMP_TYPE", 13).oxm("OXM_OF_ICMPV4_TYPE", 19, 3),
        row(Field::Icmpv4Code, "icmp_code", Decimal, TP_DST, 2).part(0, 8).oxm_bytes(1)
            .needs(P::Icmpv4).nxm("NXM_OF_ICMP_CODE", 14).oxm("OXM_OF_ICMPV4_CODE", 20, 3),
        row(Field::Icmpv6Type, "icmpv6_type", Decimal, TP_SRC, 2).part(0, 8).oxm_bytes(1)
            .needs(P::Icmpv6).nx("NXM_NX_ICMPV6_TYPE", 21).oxm("OXM_OF_ICMPV6_TYPE", 29, 3),
        row(Field::Icmpv6Code, "icmpv6_code", Decimal, TP_DST, 2).part(0, 8).oxm_bytes(1)
            .needs(P::Icmpv6).nx("NXM_NX_ICMPV6_CODE", 22).oxm("OXM_OF_ICMPV6_CODE", 30, 3),

        row(Field::NdTarget, "nd_target", Ipv6, offset_of!(Key, nd_target), 16).masked()
            .needs(P::Nd).nx("NXM_NX_ND_TARGET", 23).oxm("OXM_OF_IPV6_ND_TARGET", 31, 3),
        row(Field::NdSll, "nd_sll", Ethernet, offset_of!(Key, arp_sha), 6).masked()
            .needs(P::NdSolicit).nx("NXM_NX_ND_SLL", 24).oxm("OXM_OF_IPV6_ND_SLL", 32, 3),
        row(Field::NdTll, "nd_tll", Ethernet, offset_of!(Key, arp_tha), 6).masked()
            .needs(P::NdAdvert).nx("NXM_NX_ND_TLL", 25).oxm("OXM_OF_IPV6_ND_TLL", 33, 3),
        row(Field::NdReserved, "nd_reserved", Decimal, offset_of!(Key, nd_reserved), 4)
            .needs(P::Nd).eric("ERICOXM_OF_ICMPV6_ND_RESERVED", 1),
        row(Field::NdOptionsType, "nd_options_type", Decimal, offset_of!(Key, nd_options_type), 1)
            .needs(P::Nd).eric("ERICOXM_OF_ICMPV6_ND_OPTIONS_TYPE", 2),

        row(Field::NshFlags, "nsh_flags", Decimal, offset_of!(Key, nsh.flags), 1).masked()
            .needs(P::Nsh).nxnsh("NXOXM_NSH_FLAGS", 1),
        row(Field::NshTtl, "nsh_ttl", Decimal, offset_of!(Key, nsh.ttl), 1)
            .needs(P::Nsh).nxnsh("NXOXM_NSH_TTL", 10),
        row(Field::NshMdtype, "nsh_mdtype", Decimal, offset_of!(Key, nsh.mdtype), 1).read_only()
            .needs(P::Nsh).nxnsh("NXOXM_NSH_MDTYPE", 2),
        row(Field::NshNp, "nsh_np", Decimal, offset_of!(Key, nsh.np), 1).read_only()
            .needs(P::Nsh).nxnsh("NXOXM_NSH_NP", 3),
        row(Field::NshSpi, "nsh_spi", Hexadecimal, offset_of!(Key, nsh.path), 4).part(8, 24).alias("nsp")
            .needs(P::Nsh).nxnsh("NXOXM_NSH_SPI", 4),
        row(Field::NshSi, "nsh_si", Decimal, offset_of!(Key, nsh.path), 4).part(0, 8).oxm_bytes(1).alias("nsi")
            .needs(P::Nsh).nxnsh("NXOXM_NSH_SI", 5),
        row(Field::NshC1, "nsh_c1", Hexadecimal, offset_of!(Key, nsh.context), 4).alias("nshc1").masked()
            .needs(P::Nsh).nxnsh("NXOXM_NSH_C1", 6),
        row(Field::NshC2, "nsh_c2", Hexadecimal, offset_of!(Key, nsh.context) + 4, 4).alias("nshc2").masked()
            .needs(P::Nsh).nxnsh("NXOXM_NSH_C2", 7),
        row(Field::NshC3, "nsh_c3", Hexadecimal, offset_of!(Key, nsh.context) + 8, 4).alias("nshc3").masked()
            .needs(P::Nsh).nxnsh("NXOXM_NSH_C3", 8),
        row(Field::NshC4, "nsh_c4", Hexadecimal, offset_of!(Key, nsh.context) + 12, 4).alias("nshc4").masked()
            .needs(P::Nsh).nxnsh("NXOXM_NSH_C4", 9),
    ]
};

/// 12 bits wide, but with the present bit in value and place.
const fn vlan_vid(mut d: Definition) -> Definition {
    d.bits = 12;
    d.position.bits = 13;
    d
}

/// 16 bits in OXM, of which only the low eight may be nonzero.
const fn arp_op(mut d: Definition) -> Definition {
    d.bits = 16;
    d.oxm_bytes = 2;
    d
}

/// 32 bits in OXM, of which only the low eight may be nonzero.
const fn ct_state(mut d: Definition) -> Definition {
    d.bits = 32;
    d.oxm_bytes = 4;
    d
}

/// Row of [`INDEX`] for a class.
const fn class_slot(class: u16, experimenter: Option<u32>) -> Option<usize> {
    match (class, experimenter) {
        (NXM_OF, None) => Some(0),
        (NXM_NX, None) => Some(1),
        (ERICOXM, None) => Some(2),
        (OXM_OF, None) => Some(3),
        (OXM_PKT_REG, None) => Some(4),
        (EXPERIMENTER, Some(ONF)) => Some(5),
        (EXPERIMENTER, Some(NICIRA)) => Some(6),
        (EXPERIMENTER, Some(NSH)) => Some(7),
        _ => None,
    }
}

/// No field in [`INDEX`].
const NO_FIELD: u8 = u8::MAX;

/// Row of the table by class and number: decoders look here for every field of every rule.
static INDEX: [[u8; 128]; 8] = {
    let mut index = [[NO_FIELD; 128]; 8];
    let mut i = 0;
    while i < COUNT {
        let mut n = 0;
        while n < TABLE[i].numbers.len() {
            if let Some(number) = &TABLE[i].numbers[n] {
                match class_slot(number.class, number.experimenter) {
                    Some(slot) => index[slot][number.number as usize] = i as u8,
                    None => panic!("a class without a slot"), // when built
                }
            }
            n += 1;
        }
        i += 1;
    }
    index
};

/// The row and the number for a header.
pub(super) fn find(
    class: u16,
    number: u8,
    experimenter: Option<u32>,
) -> Option<(&'static Definition, &'static OxmNumber)> {
    let row = INDEX.get(class_slot(class, experimenter)?)?.get(usize::from(number))?;
    let definition = TABLE.get(usize::from(*row))?;
    let found = definition.numbers.iter().flatten().find(|n| n.class == class)?;
    Some((definition, found))
}

/// See [`Field::SENT`].
#[rustfmt::skip]
pub(super) const SENT: &[Field] = {
    use Field::*;
    &[
        DpHash, RecircId, ConjId, ActsetOutput, PacketType, InPort, InPortOxm,
        EthSrc, EthDst, EthType, VlanTci, VlanVid, VlanPcp,
        MplsTc, MplsBos, MplsTtl, MplsLabel,
        Ipv4Src, Ipv4Dst, Ipv6Src, Ipv6Dst, IpFrag, IpDscp, IpDscpShifted, IpEcn, IpTtl, IpProto,
        TcpSrc, TcpDst, TcpFlags, UdpSrc, UdpDst, SctpSrc, SctpDst,
        Icmpv4Type, Icmpv4Code, Icmpv6Type, Icmpv6Code,
        Ipv6Label, NdTarget, NdReserved, NdOptionsType, NdSll, NdTll,
        ArpOp, ArpSpa, ArpTpa, ArpSha, ArpTha,
        TunId, TunFlags, TunSrc, TunDst, TunIpv6Src, TunIpv6Dst, TunGbpId, TunGbpFlags,
        TunMetadata0, TunMetadata1, TunMetadata2, TunMetadata3, TunMetadata4, TunMetadata5, TunMetadata6, TunMetadata7,
        TunMetadata8, TunMetadata9, TunMetadata10, TunMetadata11, TunMetadata12, TunMetadata13, TunMetadata14, TunMetadata15,
        TunMetadata16, TunMetadata17, TunMetadata18, TunMetadata19, TunMetadata20, TunMetadata21, TunMetadata22, TunMetadata23,
        TunMetadata24, TunMetadata25, TunMetadata26, TunMetadata27, TunMetadata28, TunMetadata29, TunMetadata30, TunMetadata31,
        TunMetadata32, TunMetadata33, TunMetadata34, TunMetadata35, TunMetadata36, TunMetadata37, TunMetadata38, TunMetadata39,
        TunMetadata40, TunMetadata41, TunMetadata42, TunMetadata43, TunMetadata44, TunMetadata45, TunMetadata46, TunMetadata47,
        TunMetadata48, TunMetadata49, TunMetadata50, TunMetadata51, TunMetadata52, TunMetadata53, TunMetadata54, TunMetadata55,
        TunMetadata56, TunMetadata57, TunMetadata58, TunMetadata59, TunMetadata60, TunMetadata61, TunMetadata62, TunMetadata63,
        TunErspanIdx, TunErspanVer, TunErspanDir, TunErspanHwid, TunGtpuFlags, TunGtpuMsgtype,
        NshFlags, NshTtl, NshMdtype, NshNp, NshSpi, NshSi, NshC1, NshC2, NshC3, NshC4,
        Reg0, Reg1, Reg2, Reg3, Reg4, Reg5, Reg6, Reg7,
        Reg8, Reg9, Reg10, Reg11, Reg12, Reg13, Reg14, Reg15,
        Reg16, Reg17, Reg18, Reg19, Reg20, Reg21, Reg22, Reg23,
        Reg24, Reg25, Reg26, Reg27, Reg28, Reg29, Reg30, Reg31,
        Xreg0, Xreg1, Xreg2, Xreg3, Xreg4, Xreg5, Xreg6, Xreg7,
        Xreg8, Xreg9, Xreg10, Xreg11, Xreg12, Xreg13, Xreg14, Xreg15,
        Xxreg0, Xxreg1, Xxreg2, Xxreg3, Xxreg4, Xxreg5, Xxreg6, Xxreg7,
        PktMark,
        CtState, CtZone, CtMark, CtLabel,
        CtNwSrc, CtNwDst, CtIpv6Src, CtIpv6Dst, CtNwProto, CtTpSrc, CtTpDst,
        Metadata,
    ]
};

/// Bytes of a key that no field of the table has: padding, what only packets' own bytes are
/// compared by, and headers below the outermost, as offset and length.
const WITHOUT_FIELD: [(usize, usize); 13] = [
    (offset_of!(Key, tunnel.tp_src), 2),
    (offset_of!(Key, tunnel.tp_dst), 2),
    (offset_of!(Key, tunnel.options_len), 1),
    (offset_of!(Key, tunnel.pad), 3),
    (offset_of!(Key, tunnel.present), 8 + crate::OPTIONS_BYTES),
    (offset_of!(Key, pad_l2), 2),
    (offset_of!(Key, vlans), 2),     // the outermost TPID
    (offset_of!(Key, vlans) + 4, 4), // the second VLAN header
    (offset_of!(Key, mpls) + 4, 8),  // the second and third label
    (offset_of!(Key, pad_mpls), 4),
    (offset_of!(Key, pad_l3), 2),
    (offset_of!(Key, igmp_group), 4),
    (offset_of!(Key, pad_l4), 7),
];

const _: () = {
    // How often each field is in the order.
    let mut sent = [0; COUNT];
    let mut i = 0;
    while i < SENT.len() {
        sent[SENT[i] as usize] += 1;
        i += 1;
    }
    let mut i = 0;
    while i < COUNT {
        let has_number = TABLE[i].numbers[0].is_some();
        assert!(sent[i] == has_number as i32, "a field with a number is once in SENT");
        i += 1;
    }
};

const _: () = {
    let mut covered = [false; size_of::<Key>()];
    let mut i = 0;
    while i < COUNT {
        let KeyPosition { offset, bytes, .. } = TABLE[i].position;
        let mut byte = offset as usize;
        while byte < offset as usize + bytes as usize {
            covered[byte] = true;
            byte += 1;
        }
        i += 1;
    }
    let mut i = 0;
    while i < WITHOUT_FIELD.len() {
        let (offset, bytes) = WITHOUT_FIELD[i];
        let mut byte = offset;
        while byte < offset + bytes {
            assert!(!covered[byte], "a byte has a field or has none");
            covered[byte] = true;
            byte += 1;
        }
        i += 1;
    }
    let mut byte = 0;
    while byte < covered.len() {
        assert!(covered[byte], "every byte of a key belongs to a field, or to none by name");
        byte += 1;
    }
};

pub(super) const fn all() -> [Field; COUNT] {
    let mut out = [Field::DpHash; COUNT];
    let mut i = 0;
    while i < COUNT {
        out[i] = TABLE[i].field;
        i += 1;
    }
    out
}

const _: () = {
    let mut i = 0;
    while i < COUNT {
        let d = &TABLE[i];
        assert!(d.field as usize == i, "rows are in the order of the enumeration");
        assert!(d.position.offset as usize + d.position.bytes as usize <= size_of::<Key>());
        assert!(d.position.shift as u16 + d.position.bits as u16 <= d.position.bytes as u16 * 8);
        assert!(d.position.bytes <= 8 || d.position.bytes == 16 && d.position.bits == 128);
        i += 1;
    }
};
