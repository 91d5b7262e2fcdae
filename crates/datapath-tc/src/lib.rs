// SPDX-License-Identifier: Apache-2.0
//! Megaflows as filters of the kernel's classifier `flower`, which cards may run.
//!
//! - [`filter`]: a filter as a message, and as the kernel shows it; [`keys`]: what it matches; [`act`]: what
//!   it does.
//! - [`encode`]: from a megaflow to a filter, or the reason why there is none.
//!
//! Nothing here does I/O. All readers are total.

pub mod act;
pub mod encode;
pub mod filter;
pub mod keys;
#[cfg(test)]
mod tests;
