// SPDX-License-Identifier: Apache-2.0
//! The protocol without any I/O: bytes in, bytes and events out.
//!
//! One [`Session`] lives as long as the client. The driver reports that a connection came up
//! ([`Session::connected`]), hands it bytes ([`Session::receive`]) and the passing of time
//! ([`Session::tick`]), sends what [`Session::output`] holds, and reports that the connection is
//! gone ([`Session::disconnected`]).
//!
//! On each connection: `get_schema`; then, with what the schema can give, `lock` (if one is
//! configured) and `monitor_cond_since`, or `monitor_cond`, or `monitor`, whichever the server
//! knows. When the monitor's answer is in, the replica is current, and transactions may go out.
//!
//! Invariants:
//! - The replica keeps its last state while there is no connection. The first answer on a new
//!   connection either continues from the transaction that the replica ends with, or replaces
//!   the whole replica in one step.
//! - An error returned by `receive` or `tick` means that the connection is of no more use: the
//!   peer's state and ours cannot be trusted to agree. After a protocol error the next connection
//!   asks for a full copy.
//! - Every transaction that was accepted gets exactly one outcome.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::error::{DecodeError, excerpt};
use crate::framing::{Framer, FramingError};
use crate::jsonrpc::{Message, error_tag, error_text};
use crate::monitor::{MonitorSpec, Plan};
use crate::replica::{ChangeLog, Changes, Replica, RowChange};
use crate::schema::Schema;
use crate::transaction::{Cell, Outcome, Transaction};
use crate::update::{self, Form};
use crate::uuid::Uuid;

/// The settings of a session besides the monitor specification.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// The lock to hold, such as `ovs_vswitchd`; `None` for no lock.
    pub lock: Option<String>,
    /// Silence after which the peer is asked whether it is alive; as long again without an answer
    /// ends the connection. Zero: never ask. Values below one second count as one second.
    pub probe_interval: Duration,
    /// The longest message to accept, in bytes.
    pub max_message: usize,
    /// The most bytes to hold for a peer that does not read.
    pub max_output: usize,
}

impl Default for SessionOptions {
    /// No lock, a probe after 5 s, messages up to 256 MiB, at most 64 MiB unsent.
    fn default() -> Self {
        SessionOptions {
            lock: None,
            probe_interval: Duration::from_secs(5),
            max_message: 256 << 20,
            max_output: 64 << 20,
        }
    }
}

/// Why a connection is of no more use.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SessionError {
    /// The bytes are no stream of JSON objects.
    #[error("error parsing stream: {0}")]
    Framing(#[from] FramingError),
    /// An object is no message, or says what cannot be.
    #[error("{0}")]
    Protocol(#[from] DecodeError),
    /// The server refused something that the client cannot do without.
    #[error("server refused {method}: {error}")]
    Refused {
        /// The method that was called.
        method: &'static str,
        /// The server's error.
        error: String,
    },
    /// The server ended the monitoring, as it does when the database is removed or converted.
    #[error("server canceled the monitor of the database")]
    MonitorCanceled,
    /// No answer to the inactivity probe.
    #[error("no response to inactivity probe after {0} seconds, disconnecting")]
    ProbeTimeout(f64),
    /// The peer does not read what it is sent.
    #[error("{0} bytes are waiting for a peer that does not read, disconnecting")]
    OutputFull(usize),
}

/// Identifies a submitted transaction until its outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TransactionId(u64);

/// A change of the session's state that the caller acts on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The replica is current, for the first time on this connection.
    Synchronized,
    /// A watched part of the replica changed; [`Session::take_changes`] says what.
    Changed,
    /// The lock was acquired or lost.
    Lock(bool),
    /// A transaction ended.
    Transaction(TransactionId, Outcome),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    Since,
    Cond,
    Plain,
}

impl Method {
    const fn name(self) -> &'static str {
        match self {
            Method::Since => "monitor_cond_since",
            Method::Cond => "monitor_cond",
            Method::Plain => "monitor",
        }
    }

    const fn form(self) -> Form {
        match self {
            Method::Since | Method::Cond => Form::Differences,
            Method::Plain => Form::Plain,
        }
    }
}

#[derive(Clone, Debug)]
enum Phase {
    Disconnected,
    AwaitingSchema,
    AwaitingMonitor(Arc<Schema>, Arc<Plan>),
    Monitoring(Method),
}

#[derive(Clone, Debug)]
enum Pending {
    Schema,
    Monitor(Method),
    Lock,
    Echo,
    Transact(TransactionId, Box<Transaction>, BTreeSet<Cell>),
}

/// The state of the conversation with one database server. See the module's text.
#[derive(Clone, Debug)]
pub struct Session {
    spec: Arc<MonitorSpec>,
    options: Arc<SessionOptions>,
    phase: Phase,
    framer: Framer,
    output: Vec<u8>,
    pending: HashMap<u64, Pending>,
    next_id: u64,
    next_transaction: u64,
    replica: Arc<Replica>,
    log: ChangeLog,
    /// The transaction that the replica ends with; nil if the server does not say.
    last_transaction: Uuid,
    has_lock: bool,
    /// Columns that transactions in flight write, with the number of those transactions.
    in_flight: HashMap<Cell, usize>,
    events: Vec<Event>,
    last_heard: Instant,
    probe_sent: Option<Instant>,
}

impl Session {
    /// A session that was never connected, with an empty replica.
    pub fn new(spec: MonitorSpec, options: SessionOptions, now: Instant) -> Self {
        Session {
            phase: Phase::Disconnected,
            framer: Framer::new(options.max_message),
            spec: Arc::new(spec),
            options: Arc::new(options),
            output: Vec::new(),
            pending: HashMap::new(),
            next_id: 1,
            next_transaction: 1,
            replica: Arc::new(Replica::default()),
            log: ChangeLog::default(),
            last_transaction: Uuid::NIL,
            has_lock: false,
            in_flight: HashMap::new(),
            events: Vec::new(),
            last_heard: now,
            probe_sent: None,
        }
    }

    /// A connection is up: asks for the schema.
    pub fn connected(&mut self, now: Instant) {
        self.disconnected();
        self.last_heard = now;
        self.phase = Phase::AwaitingSchema;
        let params = json!([self.spec.database]);
        self.request("get_schema", params, Pending::Schema);
    }

    /// The connection is gone: transactions in flight end with [`Outcome::TryAgain`], the lock is
    /// lost, the replica stays as it is.
    pub fn disconnected(&mut self) {
        self.phase = Phase::Disconnected;
        self.framer = Framer::new(self.options.max_message);
        self.output = Vec::new();
        self.probe_sent = None;
        self.in_flight.clear();
        let mut lost: Vec<TransactionId> = self
            .pending
            .drain()
            .filter_map(|(_, p)| if let Pending::Transact(id, ..) = p { Some(id) } else { None })
            .collect();
        lost.sort();
        for id in lost {
            let why = "the connection broke before the answer".to_owned();
            self.events.push(Event::Transaction(id, Outcome::TryAgain(why)));
        }
        self.set_lock(false);
    }

    /// Takes bytes from the peer, in any portions.
    ///
    /// # Errors
    /// When the connection is unusable. Updates that were applied before the error stay applied.
    pub fn receive(&mut self, bytes: &[u8], now: Instant) -> Result<(), SessionError> {
        if matches!(self.phase, Phase::Disconnected) {
            return Ok(());
        }
        self.last_heard = now;
        self.probe_sent = None;
        self.framer.push(bytes);
        let result = self.messages();
        if result.is_err() {
            self.last_transaction = Uuid::NIL;
        }
        result
    }

    fn messages(&mut self) -> Result<(), SessionError> {
        while let Some(text) = self.framer.next()? {
            let message = Message::parse(text).map_err(|e| e.within("JSON-RPC message"))?;
            self.message(message)?;
        }
        if self.output.len() > self.options.max_output {
            return Err(SessionError::OutputFull(self.output.len()));
        }
        Ok(())
    }

    /// When [`Session::tick`] wants to be called next, if ever.
    pub fn deadline(&self) -> Option<Instant> {
        if matches!(self.phase, Phase::Disconnected) || self.options.probe_interval.is_zero() {
            return None;
        }
        Some(self.probe_sent.unwrap_or(self.last_heard) + self.probe_interval())
    }

    /// Lets time pass: sends an inactivity probe, or gives up on a peer that did not answer one.
    ///
    /// # Errors
    /// [`SessionError::ProbeTimeout`].
    pub fn tick(&mut self, now: Instant) -> Result<(), SessionError> {
        match self.deadline() {
            Some(deadline) if now >= deadline => {}
            _ => return Ok(()),
        }
        if self.probe_sent.is_some() {
            return Err(SessionError::ProbeTimeout(self.probe_interval().as_secs_f64()));
        }
        self.request("echo", json!([]), Pending::Echo);
        self.probe_sent = Some(now);
        Ok(())
    }

    fn probe_interval(&self) -> Duration {
        self.options.probe_interval.max(Duration::from_secs(1))
    }

    /// Changes the probe interval (see [`SessionOptions::probe_interval`]).
    pub fn set_probe_interval(&mut self, interval: Duration) {
        Arc::make_mut(&mut self.options).probe_interval = interval;
    }

    /// The bytes to send. The driver takes them out.
    pub fn output(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    /// Takes the events since the last call, in order.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// The differences between the replica now and at the last call.
    pub fn take_changes(&mut self) -> Changes {
        self.log.take(&self.replica)
    }

    /// The replica as it is now. The value handed out does not change.
    pub fn replica(&self) -> Arc<Replica> {
        self.replica.clone()
    }

    /// True while the replica follows the server.
    pub fn is_synchronized(&self) -> bool {
        matches!(self.phase, Phase::Monitoring(_))
    }

    /// True while the server says that this client holds its lock.
    pub fn has_lock(&self) -> bool {
        self.has_lock
    }

    /// True if a transaction in flight writes this column of this row, so that the replica's
    /// value is about to be replaced.
    pub fn is_in_flight(&self, table: &str, uuid: Uuid, column: &str) -> bool {
        !self.in_flight.is_empty()
            && self.in_flight.contains_key(&(table.to_owned(), uuid, column.to_owned()))
    }

    /// Sends a transaction. Its outcome comes as an [`Event::Transaction`], which may be there at
    /// once: nothing is queued while the replica is not current, as the caller built the
    /// transaction on what may be out of date.
    pub fn submit(&mut self, transaction: Transaction) -> TransactionId {
        let id = TransactionId(self.next_transaction);
        self.next_transaction += 1;
        let at_once = if transaction.is_empty() {
            Some(Outcome::Unchanged)
        } else if !self.is_synchronized() {
            Some(Outcome::TryAgain("not connected to the database".to_owned()))
        } else if transaction.is_guarded() && self.options.lock.is_none() {
            Some(Outcome::Failed("the transaction asks for a lock, but none is configured".into()))
        } else if transaction.is_guarded() && !self.has_lock {
            Some(Outcome::NotLocked)
        } else {
            None
        };
        if let Some(outcome) = at_once {
            self.events.push(Event::Transaction(id, outcome));
            return id;
        }
        let cells = transaction.cells();
        for cell in &cells {
            *self.in_flight.entry(cell.clone()).or_default() += 1;
        }
        let params = transaction.to_params(&self.spec.database, self.options.lock.as_deref());
        self.request("transact", params, Pending::Transact(id, Box::new(transaction), cells));
        id
    }

    fn request(&mut self, method: &str, params: Value, pending: Pending) {
        let id = self.next_id;
        self.next_id += 1;
        self.pending.insert(id, pending);
        Message::Request { method: method.to_owned(), params, id: json!(id) }
            .write(&mut self.output);
    }

    fn message(&mut self, message: Message) -> Result<(), SessionError> {
        match message {
            Message::Request { method, params, id } => {
                let answer = if method == "echo" {
                    Message::Reply { result: params, id }
                } else {
                    Message::Error { error: json!("unknown method"), id }
                };
                answer.write(&mut self.output);
                Ok(())
            }
            Message::Notification { method, params } => self.notification(&method, &params),
            Message::Reply { result, id } => self.answer(&id, Ok(result)),
            Message::Error { error, id } => self.answer(&id, Err(error)),
        }
    }

    fn notification(&mut self, method: &str, params: &Value) -> Result<(), SessionError> {
        let place = |e: DecodeError| e.within(format!("{method} notification"));
        let params: &[Value] = params.as_array().map_or(&[], Vec::as_slice);
        let Phase::Monitoring(monitor) = self.phase else {
            return match method {
                "update" | "update2" | "update3" => {
                    Err(place(DecodeError::new("it came before the monitor's answer")).into())
                }
                _ => self.other_notification(method, params),
            };
        };
        let (updates, transaction) = match (method, monitor, params) {
            ("update", Method::Plain, [id, updates]) | ("update2", Method::Cond, [id, updates]) => {
                self.check_monitor_id(id).map_err(place)?;
                (updates, None)
            }
            ("update3", Method::Since, [id, transaction, updates]) => {
                self.check_monitor_id(id).map_err(place)?;
                (updates, Some(transaction_id(transaction).map_err(place)?))
            }
            ("update" | "update2" | "update3", ..) => {
                let problem = format!("not what follows {}", monitor.name());
                return Err(place(DecodeError::new(problem)).into());
            }
            _ => return self.other_notification(method, params),
        };
        let changes = update::decode(updates, monitor.form(), &self.replica).map_err(place)?;
        self.apply(&changes);
        self.last_transaction = transaction.unwrap_or_default();
        Ok(())
    }

    fn other_notification(&mut self, method: &str, params: &[Value]) -> Result<(), SessionError> {
        let ours = |params: &[Value]| {
            let name = params.first().and_then(Value::as_str);
            name.is_some() && name == self.options.lock.as_deref()
        };
        match method {
            "locked" if ours(params) => self.set_lock(true),
            // The server keeps us waiting in line and says "locked" when it is our turn again.
            "stolen" if ours(params) => self.set_lock(false),
            "monitor_canceled" => return Err(SessionError::MonitorCanceled),
            // Notifications of protocols to come need no answer.
            _ => tracing::debug!(target: "jsonrpc", "ignoring notification \"{method}\""),
        }
        Ok(())
    }

    fn monitor_id(&self) -> Value {
        json!(["monid", self.spec.database])
    }

    fn check_monitor_id(&self, id: &Value) -> Result<(), DecodeError> {
        if *id == self.monitor_id() {
            Ok(())
        } else {
            Err(DecodeError::expected("our monitor's id", id))
        }
    }

    fn answer(&mut self, id: &Value, answer: Result<Value, Value>) -> Result<(), SessionError> {
        let Some(pending) = id.as_u64().and_then(|id| self.pending.remove(&id)) else {
            let problem = format!("an answer to a request never made: id {}", excerpt(id));
            return Err(DecodeError::new(problem).into());
        };
        match (pending, answer) {
            (Pending::Echo, _) => Ok(()),
            (Pending::Schema, Ok(schema)) => self.schema(&schema),
            (Pending::Schema, Err(error)) => Err(refused("get_schema", &error)),
            (Pending::Lock, Ok(result)) => {
                let place = |e: DecodeError| e.within("answer to lock");
                let locked = result.get("locked").and_then(Value::as_bool).ok_or_else(|| {
                    place(DecodeError::expected("an object with a boolean \"locked\"", &result))
                })?;
                // "locked" may have come first; the answer false is older than it.
                if locked {
                    self.set_lock(true);
                }
                Ok(())
            }
            (Pending::Lock, Err(error)) => Err(refused("lock", &error)),
            (Pending::Monitor(method), Ok(result)) => self.monitored(method, &result),
            (Pending::Monitor(method), Err(error)) => {
                let next = match method {
                    Method::Since => Method::Cond,
                    Method::Cond => Method::Plain,
                    Method::Plain => return Err(refused(method.name(), &error)),
                };
                if error_tag(&error) != "unknown method" {
                    return Err(refused(method.name(), &error));
                }
                self.monitor(next);
                Ok(())
            }
            (Pending::Transact(id, transaction, cells), answer) => {
                for cell in cells {
                    if let Some(count) = self.in_flight.get_mut(&cell) {
                        *count -= 1;
                        if *count == 0 {
                            self.in_flight.remove(&cell);
                        }
                    }
                }
                let outcome = match answer {
                    Ok(result) => transaction.outcome(&result),
                    Err(error) if error_tag(&error) == "canceled" => {
                        Outcome::TryAgain(error_text(&error))
                    }
                    Err(error) => Outcome::Failed(error_text(&error)),
                };
                self.events.push(Event::Transaction(id, outcome));
                Ok(())
            }
        }
    }

    fn schema(&mut self, schema: &Value) -> Result<(), SessionError> {
        let schema = Schema::from_json(schema).map_err(|e| e.within("answer to get_schema"))?;
        for ignored in &schema.ignored {
            tracing::debug!(target: "ovsdb_idl", "schema {}: ignoring {ignored}", schema.version);
        }
        let plan = self.spec.plan(&schema);
        self.phase = Phase::AwaitingMonitor(Arc::new(schema), Arc::new(plan));
        if let Some(lock) = &self.options.lock {
            let params = json!([lock]);
            self.request("lock", params, Pending::Lock);
        }
        self.monitor(Method::Since);
        Ok(())
    }

    fn monitor(&mut self, method: Method) {
        let Phase::AwaitingMonitor(_, plan) = &self.phase else {
            return;
        };
        let mut params = vec![json!(self.spec.database), self.monitor_id(), plan.requests()];
        if method == Method::Since {
            // A replica of another plan cannot be continued.
            let same = *plan == self.replica.plan;
            let since = if same { self.last_transaction } else { Uuid::NIL };
            params.push(json!(since.to_string()));
        }
        self.request(method.name(), Value::Array(params), Pending::Monitor(method));
    }

    fn monitored(&mut self, method: Method, result: &Value) -> Result<(), SessionError> {
        let place = |e: DecodeError| e.within(format!("answer to {}", method.name()));
        let Phase::AwaitingMonitor(schema, plan) = &self.phase else {
            return Err(place(DecodeError::new("it came out of turn")).into());
        };
        let (found, transaction, updates) = match (method, result) {
            (Method::Since, Value::Array(parts)) => match parts.as_slice() {
                [Value::Bool(found), transaction, updates] => {
                    (*found, transaction_id(transaction).map_err(place)?, updates)
                }
                _ => {
                    return Err(place(DecodeError::expected("[found, id, updates]", result)).into());
                }
            },
            (Method::Since, _) => {
                return Err(place(DecodeError::expected("[found, id, updates]", result)).into());
            }
            _ => (false, Uuid::NIL, result),
        };
        if found && (self.last_transaction.is_nil() || *plan != self.replica.plan) {
            let problem = "the server continues from a transaction that was not named";
            return Err(place(DecodeError::new(problem)).into());
        }
        if found {
            let changes = update::decode(updates, method.form(), &self.replica).map_err(place)?;
            let schema = schema.clone();
            Arc::make_mut(&mut self.replica).schema = schema;
            self.apply(&changes);
        } else {
            let mut next = Replica::empty(schema.clone(), plan.clone());
            let changes = update::decode(updates, method.form(), &next).map_err(place)?;
            next.apply(&changes, &mut ChangeLog::default());
            if Arc::make_mut(&mut self.replica).replace(next, &mut self.log) {
                self.events.push(Event::Changed);
            }
        }
        self.last_transaction = transaction;
        self.phase = Phase::Monitoring(method);
        self.events.push(Event::Synchronized);
        Ok(())
    }

    fn apply(&mut self, changes: &[RowChange]) {
        // Copies what a snapshot in the caller's hands still shares, and only that.
        if Arc::make_mut(&mut self.replica).apply(changes, &mut self.log)
            && self.events.last() != Some(&Event::Changed)
        {
            self.events.push(Event::Changed);
        }
    }

    fn set_lock(&mut self, held: bool) {
        if self.has_lock != held {
            self.has_lock = held;
            self.events.push(Event::Lock(held));
        }
    }
}

fn transaction_id(value: &Value) -> Result<Uuid, DecodeError> {
    value.as_str().ok_or_else(|| DecodeError::expected("a transaction id", value))?.parse()
}

fn refused(method: &'static str, error: &Value) -> SessionError {
    SessionError::Refused { method, error: error_text(error) }
}
