// SPDX-License-Identifier: Apache-2.0
//! Control protocols between switches: codecs and state machines.
//!
//! Nothing here opens a socket, reads a clock or starts a thread. The caller passes received bytes
//! and the time, and sends the frames that a machine returns. `bridge::protocol` joins the machines
//! with ports and runs them: LACP ([`lacp`]), continuity checks ([`cfm`]), BFD ([`bfd`]), STP ([`stp`]),
//! RSTP ([`rstp`]) and LLDP ([`lldp`]). Bridges read group messages ([`membership`]).
//!
//! # Invariants
//! - Decoders are total: any bytes give a value or an error.
//! - A machine is a plain value. The caller decides which thread may use it.
//! - A received value never makes a machine grow without a limit: members are those that the
//!   configuration names, and remote ends have a greatest number.
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

pub mod bfd;
pub mod cfm;
pub mod lacp;
pub mod lldp;
pub mod membership;
pub mod rstp;
pub mod spanning_tree;
pub mod stp;
