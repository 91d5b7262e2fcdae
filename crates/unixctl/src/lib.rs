// SPDX-License-Identifier: Apache-2.0
//! The control socket: how `ovs-appctl` talks to the daemon.
//!
//! The protocol is JSON-RPC 1.0 on a Unix stream socket, a plain sequence of JSON objects without
//! separators. A request names a command and its words; the reply is one string, in `result` or in
//! `error`, ended by a line end unless it is empty. A peer that has sent `set-options --format json`
//! gets JSON values in `result`.
//!
//! - [`Registry`] holds the commands, [`Server`] answers requests from it, on one thread
//!   (a `tokio` `LocalSet`), so that handlers may own the daemon's state by `Rc<RefCell<_>>`.
//! - [`client::call`] is the other side, blocking, for tools.
//!
//! Guarantees:
//! - A peer that sends junk loses its own connection and harms nobody else.
//! - A connection holds at most [`MAX_REQUEST`] bytes of input and one request at a time: the next
//!   request is read when the reply to the last one has been written. A peer that does not read
//!   its reply makes only its own task wait.
//! - At most [`MAX_CONNECTIONS`] connections are served at once; further ones wait in the
//!   listener's queue.

#![forbid(unsafe_code)]

pub mod client;
mod framer;
mod logging;
mod message;
mod registry;
mod server;
mod socket_name;

pub use logging::add_vlog_commands;
pub use registry::{Format, Invocation, Registry, Reply};
pub use server::{Replies, Server, ServerError};
pub use socket_name::SocketName;

/// The largest request in bytes: room for any command line that the kernel lets `ovs-appctl` have
/// (2 MiB), with every byte escaped.
pub const MAX_REQUEST: usize = 4 << 20;

/// The most connections served at once.
pub const MAX_CONNECTIONS: usize = 256;
