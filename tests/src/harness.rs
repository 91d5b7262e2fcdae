// SPDX-License-Identifier: Apache-2.0
//! The end-to-end harness: a switch with Debian's own tools around it, in a sandbox of its own.
//!
//! [`Switch`] starts a private `ovsdb-server` and a daemon, either Slipswitch or Debian's
//! `ovs-vswitchd`, which serves as the oracle. [`Mode::Dummy`] needs no privilege and has a
//! clock that tests move; [`Mode::Real`] runs the daemon in a network namespace of its own, to
//! which [`Host`]s are tied by plain veth pairs.
//!
//! Nothing outlives a test: processes die with the test's thread, and the crate `testing` sees to
//! namespaces, the directory and whatever else was started in it, also when the test program
//! itself is killed.

mod echo;
mod flood;
mod host;
mod normalise;
mod process;
mod program;
mod sandbox;
mod scenario;
mod switch;

pub use echo::Echoes;
pub use flood::{Flood, stranger, udp};
pub use host::{Capture, Host, acquainted, remember};
pub use normalise::{normalise, split_actions};
pub use process::Process;
pub use program::{daemon_program, tool_program};
pub use sandbox::Sandbox;
pub use scenario::{Scenario, compare};
pub use switch::{Kind, Mode, Options, Switch, dummy_bridge_line};
pub use testing::{
    Guard, Netns, Output, Resident, patient, skip, wait_for, wait_until, without_privilege,
    without_root, without_tool,
};

/// A TCP port of 127.0.0.1 that nobody listens at now.
///
/// # Panics
/// When there is none.
pub fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0");
    listener.and_then(|l| l.local_addr()).expect("a port is free").port()
}
