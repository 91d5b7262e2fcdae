// SPDX-License-Identifier: Apache-2.0
//! The kernel's Open vSwitch datapath, `openvswitch.ko` (include/uapi/linux/openvswitch.h).
//!
//! - [`keys`]: matches and packets' keys as attributes, and back.
//! - [`actions`]: actions as attributes, and back.
//!
//! Nothing here does I/O. All readers are total.

pub mod actions;
pub mod keys;
mod refused;
#[cfg(test)]
mod tests;

pub use refused::Refused;
