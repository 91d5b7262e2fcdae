// SPDX-License-Identifier: Apache-2.0
//! Connection tracking: tuples and their extraction.
//!
//! No I/O. Nothing here panics on any bytes.
#![forbid(unsafe_code)]

mod extract;
pub mod layout;
mod segment;
mod tuple;

pub use extract::{Checksums, Extracted, Family, Inner, Untrackable, extract};
pub use segment::TcpSegment;
pub use tuple::{Canonical, Icmp, IcmpClass, Ports, Tuple};
