// SPDX-License-Identifier: Apache-2.0
//! Nicira messages that have no counterpart in OpenFlow.

/// Commands of NXT_TLV_TABLE_MOD (NXTTMC_*).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum TlvTableCommand {
    /// New mappings.
    Add = 0,
    /// Remove mappings.
    Delete = 1,
    /// Remove all.
    Clear = 2,
}

/// One mapping of a tunnel option to `tun_metadataN`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlvMap {
    /// Class of the option.
    pub class: u16,
    /// Type of the option.
    pub kind: u8,
    /// Bytes of the option: 4 to 124, a multiple of 4.
    pub len: u8,
    /// N of `tun_metadataN`.
    pub index: u16,
}

/// NXT_TLV_TABLE_MOD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlvTableMod {
    /// The change to the table of mappings.
    pub command: TlvTableCommand,
    /// The mappings.
    pub mappings: Vec<TlvMap>,
}

/// NXT_TLV_TABLE_REPLY.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlvTableReply {
    /// Bytes of all options together that can be held.
    pub max_option_space: u32,
    /// Number of fields.
    pub max_fields: u16,
    /// The mappings.
    pub mappings: Vec<TlvMap>,
}

/// One direction of a connection in [`CtFlush`]; `None` matches anything. All addresses of a
/// [`CtFlush`] are of one family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CtTuple {
    /// Source address; IPv4 in its mapped form (::ffff:a.b.c.d).
    pub src: Option<[u8; 16]>,
    /// Destination address, likewise.
    pub dst: Option<[u8; 16]>,
    /// Source port.
    pub src_port: Option<u16>,
    /// Destination port.
    pub dst_port: Option<u16>,
    /// ICMP identifier.
    pub icmp_id: Option<u16>,
    /// ICMP type.
    pub icmp_type: Option<u8>,
    /// ICMP code.
    pub icmp_code: Option<u8>,
}

/// NXT_CT_FLUSH: which connections to forget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CtFlush {
    /// In this zone; `None` in all.
    pub zone: Option<u16>,
    /// Value and mask of the mark; `None` matches anything.
    pub mark: Option<(u32, u32)>,
    /// Value and mask of the label; `None` matches anything.
    pub label: Option<(u128, u128)>,
    /// IP protocol; 0 for any.
    pub ip_proto: u8,
    /// The direction of the connection's first packet.
    pub original: CtTuple,
    /// The other direction.
    pub reply: CtTuple,
}
