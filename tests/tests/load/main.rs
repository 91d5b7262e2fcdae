// SPDX-License-Identifier: Apache-2.0
//! The switch under attack by the traffic of one port. Other ports lose nothing, each drop has its
//! reason, and commands and memory stay within limits. `slipswitch-bench --only flood` measures
//! shares of throughput.

mod flood;
mod masks;
mod memory;
mod syns;
mod timers;
mod tools;
