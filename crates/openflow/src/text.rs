// SPDX-License-Identifier: Apache-2.0
//! Texts of actions and flows, in the language of ovs-ofctl(8) and ovs-actions(7).
//!
//! [`format_actions`] writes the text that `ovs-ofctl dump-flows`, `bridge/dump-flows` and
//! `ofproto/trace` print after `actions=`; [`parse_actions`] and [`parse_flow`] read the text that
//! `ovs-ofctl add-flow` takes. Formatting parsed actions and parsing formatted ones both give the
//! same actions, but for `tlv` of `encap`, whose value OVS shows without leading zeros.
//!
//! Ports are numbers unless the caller supplies names: formatting takes a function from number to
//! name (`None`: print the number), parsing takes one from name to number. Both handle the reserved
//! ports (`LOCAL`, `CONTROLLER`, ...) themselves.

mod ct;
mod encap;
mod error;
mod flow_line;
mod format;
mod learn;
mod operand;
mod parse;
mod token;

pub use error::TextError;
pub use flow_line::{FlowText, parse_flow};
pub use format::{format_action, format_actions};
pub use parse::parse_actions;

use crate::action::{BundleAlgorithm, HashFields, MultipathAlgorithm};

/// Names of hash fields, in texts.
const HASH_FIELDS: [(&str, HashFields); 7] = [
    ("eth_src", HashFields::EthSrc),
    ("symmetric_l4", HashFields::SymmetricL4),
    ("symmetric_l3l4", HashFields::SymmetricL3L4),
    ("symmetric_l3l4+udp", HashFields::SymmetricL3L4Udp),
    ("nw_src", HashFields::NwSrc),
    ("nw_dst", HashFields::NwDst),
    ("symmetric_l3", HashFields::SymmetricL3),
];

/// Names of algorithms of `multipath`.
const MULTIPATH_ALGORITHMS: [(&str, MultipathAlgorithm); 4] = [
    ("modulo_n", MultipathAlgorithm::ModuloN),
    ("hash_threshold", MultipathAlgorithm::HashThreshold),
    ("hrw", MultipathAlgorithm::Hrw),
    ("iter_hash", MultipathAlgorithm::IterHash),
];

/// Names of algorithms of `bundle`.
const BUNDLE_ALGORITHMS: [(&str, BundleAlgorithm); 2] =
    [("active_backup", BundleAlgorithm::ActiveBackup), ("hrw", BundleAlgorithm::Hrw)];

/// Names of packet-in reasons, by number, as `controller(reason=)` has them.
const REASONS: [&str; 6] =
    ["no_match", "action", "invalid_ttl", "action_set", "group", "packet_out"];

/// The name of `value` in a table.
fn name_of<T: PartialEq>(table: &[(&'static str, T)], value: &T) -> &'static str {
    table.iter().find(|(_, v)| v == value).map_or("<unknown>", |(name, _)| *name)
}

/// The value called `name` in a table.
fn by_name<T: Copy>(table: &[(&'static str, T)], name: &str) -> Option<T> {
    table.iter().find(|(n, _)| *n == name).map(|(_, v)| *v)
}

#[cfg(test)]
mod tests;
