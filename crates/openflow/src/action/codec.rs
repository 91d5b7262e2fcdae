// SPDX-License-Identifier: Apache-2.0
//! Actions and instructions from bytes and to bytes, in every version.
//!
//! - For the part of a flow mod after the match, and for flow statistics: [`decode_instructions`],
//!   [`encode_instructions`]. The same functions serve OpenFlow 1.0, which has actions there.
//! - For packet-outs and buckets: [`decode_actions`] (or [`decode_action_set`]),
//!   `encode_actions`.
//!
//! Decoded actions are well-formed; [`super::check()`] decides whether they fit a match.

pub use super::decode::decode_actions;
pub use super::encode::Encoder;
pub use super::instruction::{decode_action_set, decode_instructions, encode_instructions};

pub(crate) use super::decode::MAX_CLONE_DEPTH;
pub(crate) use super::encode::encode_actions;
