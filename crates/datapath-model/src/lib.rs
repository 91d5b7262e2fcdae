// SPDX-License-Identifier: Apache-2.0
//! For tests: a slow, plain datapath that is obviously right, and one that fails on purpose.
//!
//! [`Model`] keeps megaflows in a vector and looks through all of them for each packet; its
//! ports are queues in memory; packets are processed on the caller's thread, one at a time, to
//! the end. What actions do to bytes is written again here (`edit`), by computing whole
//! checksums, so that it can be the oracle for faster datapaths. The contract it follows is the
//! `datapath` crate's; the behaviour suite runs over it as over the others.
//!
//! [`Card`] is an offload provider that takes, refuses and loses flows as it is told.
//!
//! [`Chaos`] wraps any datapath and lets a seeded share of its operations fail in ways that the
//! contract allows.
#![forbid(unsafe_code)]

mod card;
pub mod chaos;
mod edit;
mod model;
mod tokens;

pub use card::Card;
pub use chaos::{Chaos, Rates};
pub use model::Model;
