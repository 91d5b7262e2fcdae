// SPDX-License-Identifier: Apache-2.0
//! The protocol's state machine against a server that exists only as JSON.

use std::time::{Duration, Instant};

use ovsdb::{
    Change, Datum, Event, MonitorSpec, Outcome, Session, SessionError, SessionOptions, Transaction,
    Uuid,
};
use serde_json::{Value, json};

const A: &str = "00000000-0000-0000-0000-00000000000a";
const B: &str = "00000000-0000-0000-0000-00000000000b";
const TXN: &str = "11111111-0000-0000-0000-000000000000";
const NIL: &str = "00000000-0000-0000-0000-000000000000";

fn uuid(text: &str) -> Uuid {
    text.parse().expect("the constants above are UUIDs")
}

fn schema() -> Value {
    json!({"name": "D", "version": "1.0.0", "tables": {
        "T": {"columns": {
            "name": {"type": "string"},
            "ports": {"type": {"key": {"type": "uuid", "refTable": "T"}, "min": 0, "max": "unlimited"}},
            "config": {"type": {"key": "string", "value": "string", "min": 0, "max": "unlimited"}},
            "tag": {"type": {"key": "integer", "min": 0, "max": 1}},
            "stats": {"type": "integer"}}},
        "U": {"columns": {"x": {"type": "real"}}}}})
}

/// A session and the requests it has sent but that were not answered yet.
struct Peer {
    session: Session,
    now: Instant,
    requests: Vec<Value>,
}

impl Peer {
    fn new(options: SessionOptions) -> Self {
        let spec = MonitorSpec::new("D")
            .table("T", ["name", "ports", "config", "tag", "no_such_column"])
            .written("T", ["stats"])
            .table("No_Such_Table", ["x"]);
        let now = Instant::now();
        Peer { session: Session::new(spec, options, now), now, requests: Vec::new() }
    }

    fn connect(&mut self) {
        self.session.connected(self.now);
        self.requests.clear();
    }

    fn send(&mut self, message: Value) -> Result<(), SessionError> {
        self.session.receive(message.to_string().as_bytes(), self.now)
    }

    /// The next message from the client.
    fn sent(&mut self) -> Value {
        let output = std::mem::take(self.session.output());
        let stream = serde_json::Deserializer::from_slice(&output).into_iter::<Value>();
        self.requests.extend(stream.map(|v| v.expect("the client sends JSON")));
        if self.requests.is_empty() { Value::Null } else { self.requests.remove(0) }
    }

    /// Expects a request of this method, and answers it.
    fn answer(&mut self, method: &str, result: Value) -> Result<Value, SessionError> {
        let request = self.sent();
        assert_eq!(request["method"], method, "{request}");
        self.send(json!({"id": request["id"], "result": result, "error": null}))?;
        Ok(request)
    }

    fn refuse(&mut self, method: &str, error: Value) -> Result<(), SessionError> {
        let request = self.sent();
        assert_eq!(request["method"], method, "{request}");
        self.send(json!({"id": request["id"], "error": error}))
    }

    /// Connects with one row A in table T.
    fn synchronized(options: SessionOptions) -> Self {
        let mut peer = Peer::new(options);
        peer.connect();
        peer.answer("get_schema", schema()).unwrap();
        if peer.session.has_lock() {
            panic!("no lock before its answer");
        }
        let next = peer.sent();
        peer.requests.insert(0, next.clone());
        if next["method"] == "lock" {
            peer.answer("lock", json!({"locked": true})).unwrap();
        }
        let initial = json!({"T": {A: {"initial": {"name": "a", "tag": 4}}}});
        peer.answer("monitor_cond_since", json!([false, TXN, initial])).unwrap();
        peer
    }

    fn update3(&mut self, updates: Value) -> Result<(), SessionError> {
        self.send(
            json!({"id": null, "method": "update3", "params": [["monid", "D"], TXN, updates]}),
        )
    }
}

fn locking() -> SessionOptions {
    SessionOptions { lock: Some("l".into()), ..SessionOptions::default() }
}

fn kinds(session: &mut Session) -> Vec<(u128, &'static str)> {
    session
        .take_changes()
        .table("T")
        .map(|(u, c)| {
            (
                u.as_u128(),
                match c {
                    Change::Inserted => "inserted",
                    Change::Modified { .. } => "modified",
                    Change::Deleted { .. } => "deleted",
                },
            )
        })
        .collect()
}

#[test]
fn initial_rows_have_defaults_for_what_the_server_omits() {
    let mut peer = Peer::synchronized(SessionOptions::default());
    let replica = peer.session.replica();
    let (id, row) = replica.first("T").unwrap();
    assert_eq!((id, row.str("name"), row.opt_int("tag")), (uuid(A), "a", Some(4)));
    assert_eq!(row.datum("stats"), Some(&Datum::from(0)));
    assert!(row.datum("no_such_column").is_none());
    assert!(replica.has_column("U", "x") && !replica.monitors("U", "x"));
    assert!(peer.session.take_events().contains(&Event::Synchronized));
    assert_eq!(kinds(&mut peer.session), [(10, "inserted")]);
}

#[test]
fn only_columns_of_the_schema_are_asked_for() {
    let mut peer = Peer::new(SessionOptions::default());
    peer.connect();
    peer.answer("get_schema", schema()).unwrap();
    let request = peer.sent();
    assert_eq!(
        request["params"],
        json!(["D", ["monid", "D"],
            {"T": [{"columns": ["name", "ports", "config", "tag", "stats"]}]}, NIL])
    );
}

#[test]
fn differences_apply() {
    let mut peer = Peer::synchronized(SessionOptions::default());
    kinds(&mut peer.session);
    peer.update3(json!({"T": {
        A: {"modify": {"ports": ["uuid", B], "config": ["map", [["k", "v"], ["l", "w"]]], "tag": ["set", []]}},
        B: {"insert": {}}}}))
        .unwrap();
    let snapshot = peer.session.replica();
    peer.update3(json!({"T": {
        A: {"modify": {"ports": ["uuid", B], "config": ["map", [["k", "v"], ["l", "x"], ["m", "y"]]]}},
        B: {"delete": null}}}))
        .unwrap();
    let row = snapshot.row("T", uuid(A)).unwrap();
    assert_eq!(row.uuids("ports").collect::<Vec<_>>(), [uuid(B)]);
    assert_eq!(row.opt_int("tag"), None);
    assert_eq!(row.map("config").get("l"), Some("w"));
    assert_eq!(snapshot.len("T"), 2);
    let replica = peer.session.replica();
    let row = replica.row("T", uuid(A)).unwrap();
    assert_eq!(row.uuids("ports").count(), 0);
    assert_eq!(row.map("config").iter().collect::<Vec<_>>(), [("l", "x"), ("m", "y")]);
    assert_eq!(kinds(&mut peer.session), [(10, "modified")], "B came and went");
}

#[test]
fn own_columns_are_followed_in_silence() {
    let mut peer = Peer::synchronized(SessionOptions::default());
    peer.session.take_events();
    kinds(&mut peer.session);
    peer.update3(json!({"T": {A: {"modify": {"stats": 9}}}})).unwrap();
    assert_eq!(peer.session.take_events(), []);
    assert!(peer.session.take_changes().is_empty());
    assert_eq!(peer.session.replica().row("T", uuid(A)).unwrap().int("stats"), 9);
}

#[test]
fn older_servers_are_asked_in_older_ways() {
    let mut peer = Peer::new(SessionOptions::default());
    peer.connect();
    peer.answer("get_schema", schema()).unwrap();
    peer.refuse("monitor_cond_since", json!("unknown method")).unwrap();
    let full = json!({"T": {A: {"initial": {"name": "a"}}}});
    peer.answer("monitor_cond", full).unwrap();
    let update2 = |updates: Value| json!({"id": null, "method": "update2", "params": [["monid", "D"], updates]});
    peer.send(update2(json!({"T": {A: {"modify": {"name": "b"}}}}))).unwrap();
    assert_eq!(peer.session.replica().row("T", uuid(A)).unwrap().str("name"), "b");

    peer.connect();
    peer.answer("get_schema", schema()).unwrap();
    peer.refuse("monitor_cond_since", json!({"error": "unknown method"})).unwrap();
    peer.refuse("monitor_cond", json!("unknown method")).unwrap();
    let row = |name: &str| json!({"name": name, "ports": ["set", []], "config": ["map", []], "tag": 1, "stats": 2});
    peer.answer("monitor", json!({"T": {A: {"new": row("a")}, B: {"new": row("b")}}})).unwrap();
    kinds(&mut peer.session);
    let update = |updates: Value| json!({"id": null, "method": "update", "params": [["monid", "D"], updates]});
    peer.send(update(json!({"T": {
        A: {"old": {"name": "a"}, "new": row("c")},
        B: {"old": row("b")}}})))
        .unwrap();
    assert_eq!(peer.session.replica().row("T", uuid(A)).unwrap().str("name"), "c");
    assert_eq!(kinds(&mut peer.session), [(10, "modified"), (11, "deleted")]);

    peer.connect();
    peer.answer("get_schema", schema()).unwrap();
    let refused = peer.refuse("monitor_cond_since", json!({"error": "resources exhausted"}));
    assert!(matches!(refused, Err(SessionError::Refused { .. })), "{refused:?}");
}

#[test]
fn reconnection_continues_or_replaces() {
    let mut peer = Peer::synchronized(SessionOptions::default());
    kinds(&mut peer.session);
    // The server knows where we were: only what happened since is sent.
    peer.connect();
    assert!(!peer.session.is_synchronized());
    assert_eq!(peer.session.replica().len("T"), 1, "the replica stays while disconnected");
    peer.answer("get_schema", schema()).unwrap();
    let since = json!([true, TXN, {"T": {B: {"insert": {"name": "b"}}}}]);
    let request = peer.answer("monitor_cond_since", since).unwrap();
    assert_eq!(request["params"][3], TXN);
    assert_eq!(kinds(&mut peer.session), [(11, "inserted")]);
    // It does not: all is sent, and the difference is ours to find.
    peer.connect();
    peer.answer("get_schema", schema()).unwrap();
    peer.answer("monitor_cond_since", json!([false, NIL, {"T": {B: {"initial": {"name": "c"}}}}]))
        .unwrap();
    assert_eq!(kinds(&mut peer.session), [(10, "deleted"), (11, "modified")]);
    // Another schema: what we had is nothing to continue from.
    peer.update3(json!({})).unwrap();
    peer.connect();
    let mut other = schema();
    other["tables"]["T"]["columns"]["no_such_column"] = json!({"type": "string"});
    peer.answer("get_schema", other).unwrap();
    let initial = json!([false, NIL, {"T": {B: {"initial": {"name": "c"}}}}]);
    let request = peer.answer("monitor_cond_since", initial).unwrap();
    assert_eq!(request["params"][3], NIL);
    assert_eq!(
        peer.session.replica().first("T").unwrap().1.datum("no_such_column"),
        Some(&Datum::from(""))
    );
}

#[test]
fn nonsense_ends_the_connection_and_changes_nothing() {
    let cases = [
        json!({"T": {B: {"modify": {"name": "b"}}}}),
        json!({"T": {B: {"delete": null}}}),
        json!({"T": {A: {"insert": {}}}}),
        json!({"T": {A: {"modify": {"name": 4}}}}),
        json!({"T": {A: {"modify": {"name": "z"}}, B: {"modify": {}}}}),
        json!({"T": {A: {"modify": {"unknown": 4}}}}),
        json!({"T": {A: {}}}),
        json!({"T": {A: {"modify": {}, "delete": null}}}),
        json!({"T": {"no uuid": {"insert": {}}}}),
        json!({"X": {}}),
        json!([]),
    ];
    for updates in cases {
        let mut peer = Peer::synchronized(SessionOptions::default());
        kinds(&mut peer.session);
        let before = peer.session.replica();
        let error = peer.update3(updates.clone()).expect_err(&updates.to_string());
        assert!(error.to_string().starts_with("update3 notification: "), "{error}");
        assert_eq!(peer.session.replica().row("T", uuid(A)), before.row("T", uuid(A)));
        assert!(peer.session.take_changes().is_empty());
        // The next connection starts from nothing.
        peer.connect();
        peer.answer("get_schema", schema()).unwrap();
        assert_eq!(peer.sent()["params"][3], NIL);
    }
    let mut peer = Peer::synchronized(SessionOptions::default());
    assert!(peer.send(json!({"id": 77, "result": {}})).is_err(), "an answer nobody asked for");
    let mut peer = Peer::synchronized(SessionOptions::default());
    assert!(peer.session.receive(b"SSH-2.0-OpenSSH\r\n", peer.now).is_err());
    let mut peer = Peer::synchronized(SessionOptions::default());
    let gone =
        peer.send(json!({"id": null, "method": "monitor_canceled", "params": [["monid", "D"]]}));
    assert!(matches!(gone, Err(SessionError::MonitorCanceled)));
}

#[test]
fn probes_go_both_ways() {
    let mut peer = Peer::synchronized(SessionOptions::default());
    peer.send(json!({"id": "echo", "method": "echo", "params": ["x", 1]})).unwrap();
    assert_eq!(peer.sent(), json!({"id": "echo", "result": ["x", 1], "error": null}));
    peer.send(json!({"id": 5, "method": "steal_everything", "params": []})).unwrap();
    assert_eq!(peer.sent()["error"], "unknown method");

    let start = peer.now;
    assert_eq!(peer.session.deadline(), Some(start + Duration::from_secs(5)));
    peer.session.tick(start + Duration::from_secs(4)).unwrap();
    assert_eq!(peer.sent(), Value::Null);
    peer.session.tick(start + Duration::from_secs(5)).unwrap();
    peer.now = start + Duration::from_secs(6);
    peer.answer("echo", json!([])).unwrap();
    assert_eq!(peer.session.deadline(), Some(start + Duration::from_secs(11)));
    peer.session.tick(start + Duration::from_secs(11)).unwrap();
    peer.session.tick(start + Duration::from_secs(15)).unwrap();
    let end = peer.session.tick(start + Duration::from_secs(16)).unwrap_err();
    assert_eq!(end.to_string(), "no response to inactivity probe after 5 seconds, disconnecting");

    peer.session.set_probe_interval(Duration::ZERO);
    assert_eq!(peer.session.deadline(), None);
}

#[test]
fn the_lock_comes_and_goes() {
    let mut peer = Peer::synchronized(locking());
    assert!(peer.session.has_lock());
    let note = |method: &str, name: &str| json!({"id": null, "method": method, "params": [name]});
    peer.send(note("stolen", "other")).unwrap();
    assert!(peer.session.has_lock(), "that was another lock");
    peer.send(note("stolen", "l")).unwrap();
    assert!(!peer.session.has_lock());
    let mut txn = Transaction::new().guarded();
    txn.set("T", uuid(A), "name", "n");
    let id = peer.session.submit(txn.clone());
    assert_eq!(
        peer.session.take_events().last(),
        Some(&Event::Transaction(id, Outcome::NotLocked))
    );
    peer.send(note("locked", "l")).unwrap();
    assert_eq!(peer.session.take_events(), [Event::Lock(true)]);
    peer.session.submit(txn);
    assert_eq!(peer.sent()["params"][1], json!({"op": "assert", "lock": "l"}));
    peer.session.disconnected();
    assert!(!peer.session.has_lock());
}

#[test]
fn every_transaction_gets_one_outcome() {
    let mut peer = Peer::synchronized(SessionOptions::default());
    peer.session.take_events();
    let mut txn = Transaction::new();
    assert!(!txn.set_if_changed(&peer.session.replica(), "T", uuid(A), "name", "a"));
    assert!(!txn.set_if_changed(&peer.session.replica(), "T", uuid(A), "no_such_column", "a"));
    assert!(!txn.set_if_changed(&peer.session.replica(), "T", uuid(B), "name", "b"));
    let empty = peer.session.submit(txn.clone());
    assert_eq!(peer.session.take_events(), [Event::Transaction(empty, Outcome::Unchanged)]);

    assert!(txn.set_if_changed(&peer.session.replica(), "T", uuid(A), "name", "b"));
    let good = peer.session.submit(txn.clone());
    assert!(peer.session.is_in_flight("T", uuid(A), "name"));
    peer.answer("transact", json!([{"count": 1}])).unwrap();
    assert!(!peer.session.is_in_flight("T", uuid(A), "name"));
    let events = peer.session.take_events();
    assert!(matches!(&events[..], [Event::Transaction(id, Outcome::Committed(_))] if *id == good));

    let refused = peer.session.submit(txn.clone());
    peer.refuse("transact", json!({"error": "unknown database", "details": "D"})).unwrap();
    let text = Outcome::Failed("unknown database: D".into());
    assert_eq!(peer.session.take_events(), [Event::Transaction(refused, text)]);

    let lost = peer.session.submit(txn.clone());
    peer.session.disconnected();
    let early = peer.session.submit(txn);
    let events = peer.session.take_events();
    for (event, id) in events.iter().zip([lost, early]) {
        assert!(
            matches!(event, Event::Transaction(i, Outcome::TryAgain(_)) if *i == id),
            "{event:?}"
        );
    }
    assert_eq!(events.len(), 2);
}

#[test]
fn a_peer_that_never_reads_is_given_up() {
    let options = SessionOptions { max_output: 1000, ..SessionOptions::default() };
    let mut peer = Peer::synchronized(options);
    let end =
        (0..1000).find_map(|n| peer.send(json!({"id": n, "method": "echo", "params": []})).err());
    assert!(matches!(end, Some(SessionError::OutputFull(_))), "{end:?}");
}
