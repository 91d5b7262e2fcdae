// SPDX-License-Identifier: Apache-2.0
//! Control protocols between switches: codecs and state machines.
//!
//! Nothing here opens a socket, reads a clock or starts a thread. The caller passes received bytes
//! and the time, and sends the frames that a machine returns. `bridge::protocol` joins the machines
//! with ports and runs them. So far it runs LACP ([`lacp`]) and BFD ([`bfd`]), and bridges read group messages
//! ([`membership`]); [`stp`] has no ports yet.
//!
//! # Invariants
//! - Decoders are total: any bytes give a value or an error.
//! - A machine is a plain value. The caller decides which thread may use it.
//! - A received value never makes a machine grow: members and neighbours are those that the
//!   configuration names.
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

pub mod bfd;
pub mod lacp;
pub mod membership;
pub mod stp;
