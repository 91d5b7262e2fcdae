// SPDX-License-Identifier: Apache-2.0
//! Messages of a database server: framing, JSON-RPC, monitors' updates, and the daemon's reading
//! of the received rows.
//!
//! The first byte gives the place where the stream is cut in two, and whether the server has sent
//! its schema before.

use crate::database::schema;
use ovsdb::{Datum, Replica, Session, SessionError, SessionOptions};
use serde_json::{Value, json};
use std::sync::OnceLock;
use std::time::Instant;

pub fn run(bytes: &[u8]) {
    let Some((&settings, stream)) = bytes.split_first() else { return };
    let cut = stream.len() * usize::from(settings >> 1) / 128;
    let (first, second) = stream.split_at(cut); // cut is at most the length
    let told = settings & 1 == 1;
    let mut whole = session(told);
    let mut parts = session(told);
    let now = Instant::now();
    let at_once = whole.receive(stream, now);
    let in_two = parts.receive(first, now).and_then(|()| parts.receive(second, now));
    assert_eq!(at_once.is_ok(), in_two.is_ok(), "{at_once:?} or {in_two:?}");
    assert_eq!(whole.is_synchronized(), parts.is_synchronized());
    let replica = whole.replica();
    // A broken stream leaves what was applied before; in portions that may be less.
    if at_once.is_ok() {
        assert_eq!(shown(&replica), shown(&parts.replica()));
    }
    output_is_json(whole.output(), &at_once);
    whole.take_events();
    let changes = whole.take_changes();
    for table in changes.tables() {
        assert!(changes.table(table).count() > 0, "{table} is reported without a change");
    }
    assert!(whole.take_changes().is_empty());
    data_read_back(&replica);
    slipswitchd::config::remarks(&replica);
}

/// A session that waits for the schema, or (`told`) for the first rows.
fn session(told: bool) -> Session {
    static SESSIONS: OnceLock<[Session; 2]> = OnceLock::new();
    let [waiting, knowing] = SESSIONS.get_or_init(|| {
        let now = Instant::now();
        let options = SessionOptions {
            lock: Some("ovs_vswitchd".to_owned()),
            max_message: 1 << 16,
            ..SessionOptions::default()
        };
        let spec = slipswitchd::config::Configuration::monitor_spec();
        let mut waiting = Session::new(spec, options, now);
        waiting.connected(now);
        let mut knowing = waiting.clone();
        let reply = json!({"id": 1, "error": null, "result": schema()}).to_string();
        knowing.receive(reply.as_bytes(), now).expect("the schema is right");
        [waiting, knowing]
    });
    if told { knowing.clone() } else { waiting.clone() }
}

fn output_is_json(output: &[u8], received: &Result<(), SessionError>) {
    let messages = serde_json::Deserializer::from_slice(output).into_iter::<Value>();
    for message in messages {
        match message {
            Ok(Value::Object(members)) => assert!(members.contains_key("id"), "{members:?}"),
            other => panic!("{other:?} was sent after {received:?}"),
        }
    }
}

fn shown(replica: &Replica) -> Vec<String> {
    let tables = replica.schema().tables.keys();
    let rows = tables.flat_map(|t| replica.rows(t).map(move |(u, row)| format!("{t} {u} {row:?}")));
    let mut rows: Vec<String> = rows.collect();
    rows.sort();
    rows
}

/// Checks that the data of rows are written as JSON that reads back as the same.
fn data_read_back(replica: &Replica) {
    for (name, table) in &replica.schema().tables {
        for (_, row) in replica.rows(name) {
            for (column, datum) in row.columns() {
                let Some(kind) = table.columns.get(column) else { continue };
                let again = Datum::from_json(&datum.to_json(), kind);
                assert_eq!(again.as_ref().ok(), Some(datum), "{name} {column}");
            }
        }
    }
}
