// SPDX-License-Identifier: Apache-2.0
//! Keys and megaflows in datapath syntax: `in_port(1),eth_type(0x0800),ipv4(frag=no)`, as
//! `dpctl/dump-flows`, `dpctl/add-flow`, `ofproto/trace` and `netdev-dummy/receive` have it.
//!
//! A field without its mask is exact, a field that is not mentioned is a wildcard. Four things
//! are read otherwise, as in OVS:
//!
//! - no `recirc_id()` means recirculation id 0, exactly;
//! - no `eth_type()` means a frame that has no Ethernet type (802.2), exactly; written it is
//!   `eth_type(0/0xffff)`, and nothing inside `encap()`;
//! - `eth_type()` in front of `vlan()` is the tag's TPID, and the frame's own type stands in
//!   `encap()`;
//! - IPv4 and IPv6 masks are written out (`10.0.0.0/255.0.0.0`), prefix lengths are not read.
//!
//! All packets are Ethernet here: a flow without `eth()` is one with all addresses wildcarded.

mod format;
mod parse;
mod tunnel;

pub use format::{Style, format};
pub use parse::{OdpError, parse, parse_frame, parse_packet};
pub use tunnel::{format_tunnel, parse_tunnel};
