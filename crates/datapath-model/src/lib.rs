// SPDX-License-Identifier: Apache-2.0
//! For tests: a slow, plain datapath that is obviously right, and one that fails on purpose.
//!
//! [`Model`] keeps megaflows in a vector and looks through all of them for each packet. Its ports
//! are queues in memory. It processes packets on the caller's thread, one at a time, to the end.
//! The module `edit` implements the effects of actions on bytes a second time, by computing whole
//! checksums, so that it can be the oracle for faster datapaths. The model follows the contract of
//! the `datapath` crate, and the behaviour suite runs over it as over the others. The module
//! `connections` tracks connections a second time, for the action `ct` without helpers and
//! reassembly: a fragment is invalid.
//!
//! [`Card`] is an offload provider that takes, refuses and loses flows as the test sets it.
//!
//! [`Chaos`] wraps any datapath and lets a seeded share of its operations fail in ways that the
//! contract allows.
#![forbid(unsafe_code)]

mod card;
pub mod chaos;
mod connections;
mod edit;
mod model;
mod tokens;
mod too_long;

pub use card::Card;
pub use chaos::{Chaos, Rates};
pub use model::Model;
