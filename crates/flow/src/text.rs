// SPDX-License-Identifier: Apache-2.0
//! Texts of matches, packets' keys and megaflows, as OVS's tools write and read them.
//!
//! Two syntaxes: OpenFlow's (`tcp,in_port=1,nw_dst=10.0.0.0/8`: [`format_match`],
//! [`parse_match`], ...) and the datapath's ([`odp`]: `in_port(1),eth_type(0x0800),...`).
//! The order, separators and number formats are OVS's, which scripts depend on.
//!
//! Port names come in as functions, as only the caller knows them: `fn(u32) -> Option<String>`
//! from number to name, `fn(&str) -> Option<u32>` back. [`no_names`] and [`no_numbers`] are
//! for callers that have none.

pub mod odp;
mod openflow_format;
mod openflow_parse;

pub use openflow_format::{format_key, format_match, format_megaflow, packet_mask};
pub use openflow_parse::{FlowTextError, parse_exact_flow, parse_match};

/// An IPv6 address as `inet_ntop(3)` writes it, which OVS's texts have.
pub fn ipv6_address(address: std::net::Ipv6Addr) -> String {
    crate::field::value::ipv6_address_text(address.to_bits())
}

/// For callers without port names: every port is shown as a number.
pub fn no_names(_port: u32) -> Option<String> {
    None
}

/// For callers without port names: only numbers and reserved names are known.
pub fn no_numbers(_name: &str) -> Option<u32> {
    None
}

#[cfg(test)]
mod tests;
