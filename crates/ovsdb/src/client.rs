// SPDX-License-Identifier: Apache-2.0
//! The driver: a [`Session`] on real connections, as a task of a current-thread runtime.
//!
//! All state is shared between the [`Client`] in the daemon's hands and the task, both on one
//! thread. No borrow of it is held across an `await`, and none is handed out: the replica is
//! given out as a snapshot, so what the caller does with it cannot get in the task's way.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::TlsOptions;
use crate::backoff::{Backoff, Say};
use crate::datum::Datum;
use crate::monitor::MonitorSpec;
use crate::remote::{Remote, Stream, error_words};
use crate::replica::{Changes, Replica};
use crate::session::{Event, Session, SessionError, SessionOptions, TransactionId};
use crate::transaction::{Outcome, Transaction};
use crate::uuid::Uuid;

/// A connection must last this long to count as one that worked.
const WORKED: Duration = Duration::from_secs(1);

/// The most bytes to take from a connection at a time.
const CHUNK: usize = 64 << 10;

/// How to run a client.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Lock, probes and limits.
    pub session: SessionOptions,
    /// Keys and certificates for `ssl:` remotes.
    pub tls: Option<TlsOptions>,
    /// How long an attempt to connect may take.
    pub connect_timeout: Duration,
}

impl Default for ClientOptions {
    /// The session's defaults, no TLS, 5 s to connect.
    fn default() -> Self {
        ClientOptions {
            session: SessionOptions::default(),
            tls: None,
            connect_timeout: Duration::from_secs(5),
        }
    }
}

/// The state of the connection, for status reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionState {
    /// The remote that is connected, or was tried last; empty before the first attempt.
    pub remote: String,
    /// A connection is up.
    pub connected: bool,
    /// The replica follows the server.
    pub synchronized: bool,
    /// Why the last connection or attempt ended; `None` if none did.
    pub last_error: Option<String>,
}

/// A client of one database, for one consumer on one thread. Dropping it ends the connection.
#[derive(Debug)]
pub struct Client {
    shared: Rc<Shared>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    session: RefCell<Session>,
    waiters: RefCell<HashMap<TransactionId, oneshot::Sender<Outcome>>>,
    state: RefCell<ConnectionState>,
    remotes: RefCell<Vec<Remote>>,
    tls: RefCell<Option<TlsOptions>>,
    connect_timeout: Duration,
    /// Counts `Event`s that wake the consumer; also state changes.
    version: Cell<u64>,
    /// Wakes the consumer.
    changed: Notify,
    /// Wakes the driver: there is something to send, or a deadline moved.
    poke: Notify,
    /// Makes the driver drop the connection and connect again.
    restart: Notify,
}

impl Client {
    /// Starts connecting to the first of `remotes`, and to the others in turn when that fails.
    /// Must be called within a tokio `LocalSet`.
    pub fn start(remotes: Vec<Remote>, spec: MonitorSpec, options: ClientOptions) -> Self {
        let session = Session::new(spec, options.session, Instant::now().into_std());
        let shared = Rc::new(Shared {
            session: RefCell::new(session),
            waiters: RefCell::default(),
            state: RefCell::default(),
            remotes: RefCell::new(remotes),
            tls: RefCell::new(options.tls),
            connect_timeout: options.connect_timeout,
            version: Cell::new(0),
            changed: Notify::new(),
            poke: Notify::new(),
            restart: Notify::new(),
        });
        let task = tokio::task::spawn_local(drive(shared.clone()));
        Client { shared, task }
    }

    /// Waits until the replica, the lock or the connection's state changed since this last
    /// returned. One task may wait at a time. Dropping the future loses nothing.
    pub async fn changed(&self) {
        self.shared.changed.notified().await;
    }

    /// Counts the occasions on which [`Client::changed`] wakes.
    pub fn version(&self) -> u64 {
        self.shared.version.get()
    }

    /// The replica as it is now. The value stays as it is while updates come in; drop it when
    /// done, as holding it costs a copy of each table that changes meanwhile.
    pub fn replica(&self) -> Arc<Replica> {
        self.shared.session.borrow().replica()
    }

    /// The changes of watched rows in the replica since the last call.
    pub fn take_changes(&self) -> Changes {
        self.shared.session.borrow_mut().take_changes()
    }

    /// Sends a transaction. The receiver gets its outcome once; a receiver that is dropped is
    /// fine. If the client is dropped first, the receiver reports that its sender is gone.
    pub fn submit(&self, transaction: Transaction) -> oneshot::Receiver<Outcome> {
        let (sender, receiver) = oneshot::channel();
        let id = self.shared.session.borrow_mut().submit(transaction);
        self.shared.waiters.borrow_mut().insert(id, sender);
        self.shared.dispatch();
        self.shared.poke.notify_one();
        receiver
    }

    /// Adds a write to `transaction` unless the replica has this value already and no transaction
    /// in flight writes the column. Skips rows that are gone and columns that the schema does not
    /// have. Returns whether the write was added.
    pub fn set_if_changed(
        &self,
        transaction: &mut Transaction,
        table: &str,
        uuid: Uuid,
        column: &str,
        value: impl Into<Datum>,
    ) -> bool {
        let session = self.shared.session.borrow();
        let replica = session.replica();
        if !session.is_in_flight(table, uuid, column) {
            return transaction.set_if_changed(&replica, table, uuid, column, value);
        }
        if !replica.has_column(table, column) || replica.row(table, uuid).is_none() {
            return false;
        }
        transaction.set(table, uuid, column, value);
        true
    }

    /// The state of the connection.
    pub fn state(&self) -> ConnectionState {
        self.shared.state.borrow().clone()
    }

    /// True while the replica follows the server.
    pub fn is_synchronized(&self) -> bool {
        self.shared.session.borrow().is_synchronized()
    }

    /// True while the server says that this client holds its lock.
    pub fn has_lock(&self) -> bool {
        self.shared.session.borrow().has_lock()
    }

    /// Changes the inactivity probe interval; zero for no probes.
    pub fn set_probe_interval(&self, interval: Duration) {
        self.shared.session.borrow_mut().set_probe_interval(interval);
        self.shared.poke.notify_one();
    }

    /// Changes where to connect, and connects there at once unless it is the same as before.
    pub fn set_remotes(&self, remotes: Vec<Remote>) {
        if *self.shared.remotes.borrow() == remotes {
            return;
        }
        *self.shared.remotes.borrow_mut() = remotes;
        self.shared.restart.notify_one();
    }

    /// Changes the keys and certificates for connections to come.
    pub fn set_tls(&self, options: Option<TlsOptions>) {
        *self.shared.tls.borrow_mut() = options;
    }

    /// Drops the connection, if there is one, and connects again at once.
    pub fn reconnect(&self) {
        self.shared.restart.notify_one();
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    /// Hands on the events of the session.
    fn dispatch(&self) {
        let (events, synchronized) = {
            let mut session = self.session.borrow_mut();
            (session.take_events(), session.is_synchronized())
        };
        self.state.borrow_mut().synchronized = synchronized;
        for event in events {
            match event {
                Event::Transaction(id, outcome) => {
                    let waiter = self.waiters.borrow_mut().remove(&id);
                    if let Some(waiter) = waiter {
                        // Nobody waits any more: then nobody wants to know.
                        let _ = waiter.send(outcome);
                    }
                }
                Event::Synchronized | Event::Changed | Event::Lock(_) => self.wake(),
            }
        }
    }

    fn wake(&self) {
        self.version.set(self.version.get().wrapping_add(1));
        self.changed.notify_one();
    }

    fn set_state(&self, update: impl FnOnce(&mut ConnectionState)) {
        update(&mut self.state.borrow_mut());
        self.wake();
    }
}

/// Why a conversation ended.
enum End {
    Closed,
    Io(io::Error),
    Session(SessionError),
    Restart,
}

/// Logs at INFO, or at DEBUG when `quiet`.
fn say(quiet: bool, remote: &Remote, text: &str) {
    if quiet {
        tracing::debug!(target: "reconnect", "{remote}: {text}");
    } else {
        tracing::info!(target: "reconnect", "{remote}: {text}");
    }
}

async fn drive(shared: Rc<Shared>) {
    let mut turn = 0usize;
    let mut quiet = false;
    let mut backoff = Backoff::new(shared.remotes.borrow().len());
    loop {
        let (remote, remotes) = {
            let remotes = shared.remotes.borrow();
            (remotes.get(turn.checked_rem(remotes.len()).unwrap_or(0)).cloned(), remotes.len())
        };
        let Some(remote) = remote else {
            shared.set_state(|s| {
                *s = ConnectionState {
                    last_error: Some("no remote is configured".into()),
                    ..Default::default()
                };
            });
            shared.restart.notified().await;
            turn = 0;
            continue;
        };
        turn = turn.wrapping_add(1);
        shared.state.borrow_mut().remote = remote.to_string();
        say(quiet, &remote, "connecting...");

        let tls = shared.tls.borrow().clone();
        let attempt = async {
            match timeout(shared.connect_timeout, remote.connect(tls.as_ref())).await {
                Ok(result) => result.map_err(|e| error_words(&e)),
                Err(_) => Err("Connection timed out".to_owned()),
            }
        };
        let attempt = tokio::select! {
            attempt = attempt => Some(attempt),
            () = shared.restart.notified() => None,
        };
        let mut restarted = attempt.is_none();
        match attempt {
            None => {}
            Some(Err(error)) => {
                let text = format!("connection attempt failed ({error})");
                say(quiet, &remote, &text);
                shared.set_state(|s| s.last_error = Some(text));
            }
            Some(Ok(stream)) => {
                say(quiet, &remote, "connected");
                let since = Instant::now();
                shared.session.borrow_mut().connected(since.into_std());
                shared.set_state(|s| s.connected = true);
                let mut synchronized = false;
                let end = converse(&shared, stream, || {
                    let is_first = !std::mem::replace(&mut synchronized, true);
                    // After a long silence, only a connection that works is logged.
                    if quiet && is_first {
                        say(false, &remote, "connected");
                    }
                })
                .await;
                shared.session.borrow_mut().disconnected();
                shared.dispatch();
                if synchronized {
                    quiet = false;
                    if since.elapsed() >= WORKED {
                        backoff.worked(remotes);
                    } else {
                        backoff.worked_briefly();
                    }
                }
                restarted = matches!(end, End::Restart);
                let known = shared.state.borrow().last_error.clone().filter(|_| quiet);
                let text = farewell(&remote, &end, quiet, known.as_deref());
                shared.set_state(|s| {
                    s.connected = false;
                    s.last_error = Some(text);
                });
            }
        }
        if restarted {
            (turn, quiet) = (0, false);
            backoff = Backoff::new(shared.remotes.borrow().len());
            continue;
        }
        let pause = backoff.failed();
        match pause.say {
            Say::Nothing | Say::Quiet => {}
            Say::Wait => {
                say(
                    false,
                    &remote,
                    &format!("waiting {} seconds before reconnect", pause.wait.as_secs()),
                );
            }
            Say::LastWord => {
                say(
                    false,
                    &remote,
                    "continuing to reconnect in the background but suppressing further logging",
                );
                quiet = true;
            }
        }
        tokio::select! {
            () = sleep(pause.wait) => {}
            () = shared.restart.notified() => {
                (turn, quiet) = (0, false);
                backoff = Backoff::new(shared.remotes.borrow().len());
            }
        }
    }
}

/// Logs why a connection ended, and returns the text for [`ConnectionState::last_error`]. A text
/// that equals `known` was logged before and is not repeated.
fn farewell(remote: &Remote, end: &End, quiet: bool, known: Option<&str>) -> String {
    let text = match end {
        End::Closed => "connection closed by peer".to_owned(),
        End::Io(error) => format!("connection dropped ({})", error_words(error)),
        End::Restart => "disconnecting".to_owned(),
        End::Session(error) => error.to_string(),
    };
    let known = known == Some(text.as_str());
    match end {
        End::Closed | End::Restart => say(quiet, remote, &text),
        _ if known => tracing::debug!(target: "reconnect", "{remote}: {text}"),
        End::Io(_) => tracing::warn!(target: "reconnect", "{remote}: {text}"),
        End::Session(SessionError::ProbeTimeout(_)) => {
            tracing::error!(target: "reconnect", "{remote}: {text}");
        }
        End::Session(_) => {
            tracing::warn!(target: "jsonrpc", "{remote}: {text}");
            say(quiet, remote, "connection dropped (Protocol error)");
        }
    }
    text
}

/// Runs the session on one connection until it ends; calls `works` while the replica is current.
async fn converse(shared: &Shared, stream: Box<dyn Stream>, mut works: impl FnMut()) -> End {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let mut input = vec![0u8; CHUNK];
    let mut output: Vec<u8> = Vec::new();
    let mut sent = 0;
    let mut unflushed = false;
    loop {
        if sent >= output.len() {
            sent = 0;
            output = std::mem::take(shared.session.borrow_mut().output());
            unflushed |= !output.is_empty();
        }
        let deadline = shared.session.borrow().deadline().map(Instant::from_std);
        // In order: what has arrived is seen before the deadline for it. Neither input nor output
        // starves the other: the amount of output is limited, and while the peer takes none, there
        // is time to read. A steady stream of input moves the deadline on, so that may wait.
        let result = tokio::select! {
            biased;
            () = shared.restart.notified() => return End::Restart,
            wrote = send(&mut writer, output.get(sent..).unwrap_or_default()), if unflushed => {
                match wrote {
                    Ok(Some(length)) => sent += length,
                    Ok(None) => unflushed = false,
                    Err(error) => return End::Io(error),
                }
                Ok(())
            }
            read = reader.read(&mut input) => match read {
                Ok(0) => return End::Closed,
                Ok(length) => {
                    let bytes = input.get(..length).unwrap_or_default();
                    shared.session.borrow_mut().receive(bytes, Instant::now().into_std())
                }
                Err(error) => return End::Io(error),
            },
            () = shared.poke.notified() => Ok(()),
            () = wait_until(deadline) => {
                shared.session.borrow_mut().tick(Instant::now().into_std())
            }
        };
        shared.dispatch();
        if shared.session.borrow().is_synchronized() {
            works();
        }
        if let Err(error) = result {
            return End::Session(error);
        }
    }
}

/// Writes some of `bytes`, or flushes when there are none: `None` when that is done.
async fn send(writer: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<Option<usize>> {
    if bytes.is_empty() {
        writer.flush().await?;
        return Ok(None);
    }
    match writer.write(bytes).await? {
        0 => Err(io::ErrorKind::WriteZero.into()),
        length => Ok(Some(length)),
    }
}

async fn wait_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
