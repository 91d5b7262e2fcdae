// SPDX-License-Identifier: Apache-2.0
//! A megaflow never matches more than a fresh translation would allow.
//!
//! Random switches ([`pipeline`]) get random packets ([`frames`]), sound and unsound. Each packet is
//! translated as an upcall does it. Then its bytes change ([`mutants`]): every bit by itself, many
//! at once, the length, all that the megaflow leaves free. Whatever the megaflow still matches must
//! be translated to the same actions, the same effects and the same megaflow ([`check`]).
//!
//! Runs are repeatable. `SLIPSWITCH_SOUNDNESS_CASES` asks for another number of cases and
//! `SLIPSWITCH_SOUNDNESS_SEED` for others than the usual ones:
//!
//! ```text
//! SLIPSWITCH_SOUNDNESS_CASES=100000 SLIPSWITCH_SOUNDNESS_SEED=7 \
//!     cargo test --release -p slipswitch-tests --test soundness -- --nocapture
//! ```

mod arrival;
mod check;
mod datapaths;
mod frames;
mod mutants;
mod pipeline;
mod run;
mod switch;
mod translation;
