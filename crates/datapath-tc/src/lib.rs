// SPDX-License-Identifier: Apache-2.0
//! Megaflows in network cards, as filters of the kernel's classifier `flower`.
//!
//! - [`filter`]: a filter as a message, and as the kernel shows it; [`keys`]: its match; [`act`]: its
//!   actions; [`policer`]: the action for a meter; [`options`]: options of tunnels in both.
//! - [`encode`]: from a megaflow to a filter, or the reason why there is none.
//! - [`client`]: filters and qdiscs by rtnetlink ([`kernel`] has the requests).
//! - [`CardProvider`]: the tier of cards for `placement`.
//!
//! # Invariants
//!
//! - A filter matches packets of its megaflow only, and has exactly its effect. A flow that
//!   flower or the card cannot express is refused, with the driver's explanation where there is one.
//! - Only filters with the priorities and handles of this crate are changed or removed.
//! - A flow counts as in the card only while the kernel reports so (`in_hw`).
//! - Each flow of a card is also in the tiers underneath, so a packet that misses in the card is
//!   forwarded there.
//!
//! # Which side it errs on
//!
//! Filters have `skip_sw`: the kernel does not run them. A flow that no card takes is left to BPF and
//! userspace, which are faster than flower in software. Counts of the moment between the last read and
//! the removal of a filter are lost.
#![forbid(unsafe_code)]

pub mod act;
pub mod client;
pub mod encode;
pub mod filter;
pub mod kernel;
pub mod keys;
pub mod options;
pub mod policer;
mod provider;
#[cfg(test)]
mod tests;

pub use provider::{CARD, CardProvider, disabled, discard_all, provider_slot};
