// SPDX-License-Identifier: Apache-2.0
//! Faults of everything around the daemon, and of itself: what it needs goes away, answers
//! nonsense or has no room, and it is killed. The tests demand: packets go on, nothing
//! is lost beyond the fault itself, the log says so once, and all is right again afterwards.
//!
//! The daemon is killed 6 times under traffic; `SLIPSWITCH_TEST_KILLS=100` asks for more.

mod bpf;
mod controller;
mod crash;
mod database;
mod devices;
mod disk;
mod fail_open;
mod kernel;
mod proxy;
mod tools;
mod traffic;
