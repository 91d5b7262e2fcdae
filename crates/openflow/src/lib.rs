// SPDX-License-Identifier: Apache-2.0
//! OpenFlow 1.0 to 1.5 with Nicira's extensions: messages as version-neutral values, and the
//! codec between them and bytes.
//!
//! No I/O and no switch state. Every decoder is total: any bytes give a value or an
//! [`OfError`], never a panic.
#![forbid(unsafe_code)]

pub mod action;
pub mod error;
pub mod frame;
#[cfg(test)]
mod hex;
pub mod message;
pub mod nxm;
pub mod port;
pub mod text;
pub mod version;
mod wire;

pub use action::Action;
pub use error::OfError;
pub use port::PortNo;
pub use version::Version;
