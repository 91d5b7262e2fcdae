// SPDX-License-Identifier: Apache-2.0
//! Faults of the daemon and of everything around it: a service goes away, answers nonsense or has
//! no room, or the daemon is killed. The tests demand that packets continue to flow, that nothing
//! is lost beyond the fault itself, that the log reports the fault once, and that all is right
//! afterwards.
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
