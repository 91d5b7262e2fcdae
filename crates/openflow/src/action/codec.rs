// SPDX-License-Identifier: Apache-2.0
//! Actions and instructions from bytes and to bytes, in every version.
//!
//! - What follows the match in a flow mod, and flow statistics: [`decode_instructions`],
//!   [`encode_instructions`]; in OpenFlow 1.0 too, where they are actions.
//! - Packet-outs and buckets: [`decode_actions`] (or [`decode_action_set`]), [`encode_actions`].
//!
//! What was decoded is well-formed; whether it fits a match is [`super::check`]'s to say.

pub use super::decode::{MAX_CLONE_DEPTH, decode_actions};
pub use super::encode::{Encoder, encode_actions};
pub use super::instruction::{decode_action_set, decode_instructions, encode_instructions};
