// SPDX-License-Identifier: Apache-2.0
//! Faults of everything around the daemon, and of itself: what it needs goes away, answers
//! nonsense or has no room, and it is killed. What must hold: packets go on, nothing is lost
//! beyond what the fault took, a person is told once, and all is right again afterwards.
//!
//! The daemon is killed 6 times under traffic; `SLIPSWITCH_TEST_KILLS=100` asks for more.

mod bpf;
mod controller;
mod crash;
mod database;
mod devices;
mod disk;
mod kernel;
mod proxy;
mod tools;
mod traffic;
