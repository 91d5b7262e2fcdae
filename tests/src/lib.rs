// SPDX-License-Identifier: Apache-2.0
//! Shared harness of the behaviour and end-to-end suites.
#![forbid(unsafe_code)]

pub mod behaviour;
pub mod harness;
