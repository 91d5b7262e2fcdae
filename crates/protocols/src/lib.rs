// SPDX-License-Identifier: Apache-2.0
//! Control protocols of a switch: codecs and state machines.
//!
//! # Task
//! Each module has one protocol: its messages as values, and the state of one port or bridge where
//! the protocol has one. The caller receives and sends the packets, and passes the time in.
//!
//! # Invariants
//! - No I/O, no clock, no thread.
//! - Decoders are total: any bytes give a value or an error.
//!
//! # Which side it errs on
//! A message that is not valid by its RFC changes nothing.
#![forbid(unsafe_code)]

pub mod bfd;
pub mod membership;
pub mod stp;
