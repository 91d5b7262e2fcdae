// SPDX-License-Identifier: Apache-2.0
//! The switch under attack by one port's traffic: what others lose (nothing), what is dropped and
//! by which reason, how long commands take, how much memory there is at most. Shares of throughput
//! are `slipswitch-bench --only flood`'s to measure.

mod flood;
mod masks;
mod memory;
mod tools;
