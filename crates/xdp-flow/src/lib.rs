// SPDX-License-Identifier: Apache-2.0
//! Filters of traffic control, of any program, run at XDP (`slipswitch xdp-flow`).
//!
//! - [`reader`], [`snapshot`]: the filters of devices, read by netlink, and the events about them.
//! - [`matching`], [`effect`]: a filter's match and actions as the BPF program compares and runs them.
//! - [`plan`]: the filters of a device as rules in the order of traffic control.
//! - [`program`]: the BPF programs (`bpf/xdp_flow.bpf.c`), with [`layout`].
//! - [`changes`]: whether a change is under way.
//! - [`agent`]: reads, compiles, installs; [`report`]: what it shows.
//!
//! # Invariants
//!
//! - A packet meets exactly the filters that it would meet in traffic control.
//! - From the moment at which the kernel begins to change a filter, an action, a chain or a qdisc, XDP
//!   passes all packets until the agent has read the result.
//! - XDP passes all packets when the agent has not reported for a second, and it is detached when the
//!   agent ends. Nothing is pinned.
//!
//! # Which side it errs on
//!
//! Whatever is not certain is left to traffic control, which always has all filters.
#![forbid(unsafe_code)]

pub mod agent;
pub mod changes;
pub mod effect;
pub mod layout;
pub mod matching;
pub mod plan;
pub mod program;
pub mod reader;
pub mod report;
pub mod snapshot;
#[cfg(test)]
mod tests;
