// SPDX-License-Identifier: Apache-2.0

#![forbid(unsafe_code)]
//! A client of OVSDB servers: RFC 7047 and the extensions of ovsdb-server(7).
//!
//! Bottom up: [`Atom`], [`Datum`], [`Row`] are values; [`Schema`] says which columns there are;
//! [`MonitorSpec`] says which of them are wanted; [`Replica`] is the local copy, and [`Changes`]
//! what happened to it since last looked at; [`Transaction`] is a change on its way to the
//! server. [`Session`] is the protocol as a state machine without I/O; [`Client`] runs one on
//! real connections, reconnecting for as long as it lives.
//!
//! The client never panics on what a server sends, and never shows a state of the database that
//! the server did not commit: a message is read completely before any of it is applied, and a
//! message that makes no sense ends the connection. While there is no connection, the replica
//! stays as it last was, and the first look after reconnection shows the difference.

mod atom;
mod backoff;
mod client;
mod datum;
mod error;
mod framing;
mod jsonrpc;
mod monitor;
mod remote;
mod replica;
mod row;
mod schema;
mod session;
mod tls;
mod transaction;
mod update;
mod uuid;

pub use ::tls::Files as TlsOptions;
pub use atom::{Atom, AtomicType};
pub use client::{Client, ClientOptions, ConnectionState};
pub use datum::Datum;
pub use error::DecodeError;
pub use framing::FramingError;
pub use monitor::MonitorSpec;
pub use remote::{Remote, RemoteError};
pub use replica::{Change, Changes, Replica};
pub use row::{Row, StringMap};
pub use schema::{BaseType, ColumnType, Schema, TableSchema};
pub use session::{Event, Session, SessionError, SessionOptions, TransactionId};
pub use transaction::{Committed, Mutator, NewRow, OperationResult, Outcome, Transaction, Until};
pub use uuid::Uuid;
