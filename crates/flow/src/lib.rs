// SPDX-License-Identifier: Apache-2.0
//! Packet fields: the one table that names them, and the values built from it.
//!
//! - [`Key`]: every field of one packet, a flat structure in network byte order;
//! - [`Mask`]: which bits of a key count (a set bit is an exact bit);
//! - [`Match`]: a key and a mask, with no key bit outside the mask;
//! - [`field`]: the table of fields (OXM and NXM numbers, width, prerequisites, names, place
//!   in the key). OpenFlow codec, texts, classifier and datapaths all read it.
//!
//! No I/O; nothing panics on any input.
#![forbid(unsafe_code)]

mod compose;
pub mod ct_state;
pub mod extract;
pub mod field;
mod key;
mod mask;
mod matching;
pub mod text;
mod tlv_table;
pub mod tun_metadata;
mod tunnel;

pub use compose::{PAYLOAD, compose};
pub use field::{Field, FieldValue, Subfield};
pub use key::{
    Key, MPLS_LABELS, NAMESPACE_ETHERTYPE, Nsh, REGISTERS, STAGE_STARTS, VLAN_CFI, VLANS, Vlan,
    WORDS,
};
pub use mask::Mask;
pub use matching::Match;
pub use tlv_table::{OptionsError, TlvError, TlvMapping, TlvTable};
pub use tunnel::{OPTIONS_BYTES, Tunnel};
