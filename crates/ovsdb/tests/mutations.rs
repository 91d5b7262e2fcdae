// SPDX-License-Identifier: Apache-2.0
//! Whatever the bytes, the session survives: truncation at every byte of every message, and
//! 100,000 random mutations, at every stage of the conversation.

use std::time::{Duration, Instant};

use ovsdb::{MonitorSpec, Session, SessionOptions, Transaction, Uuid};

const SCHEMA: &str = r#"{"id":1,"error":null,"result":{"name":"D","version":"1.0.0","tables":{"T":{"isRoot":true,"columns":{"n":{"type":"string"},"s":{"type":{"key":{"type":"uuid","refTable":"T"},"min":0,"max":"unlimited"}},"m":{"type":{"key":"string","value":"integer","min":0,"max":"unlimited"}},"r":{"type":{"key":"real","min":0,"max":1}},"b":{"type":"boolean"}}}}}}"#;
const LOCK: &str = r#"{"id":2,"result":{"locked":true},"error":null}"#;
const SINCE: &str = r#"{"id":3,"result":[false,"00000000-0000-0000-0000-0000000000ff",{"T":{"00000000-0000-0000-0000-00000000000a":{"initial":{"n":"x\"\\\u00e9","s":["set",[["uuid","00000000-0000-0000-0000-00000000000a"]]],"m":["map",[["k",1],["l",-2]]],"r":1.5,"b":true}}}}],"error":null}"#;
const UNKNOWN: &str = r#"{"id":3,"result":null,"error":{"error":"unknown method","details":"no"}}"#;
const COND: &str = r#"{"id":4,"result":{"T":{"00000000-0000-0000-0000-00000000000a":{"initial":{"n":"x"}}}},"error":null}"#;
const UNKNOWN_COND: &str = r#"{"id":4,"error":"unknown method"}"#;
const PLAIN: &str = r#"{"id":5,"result":{"T":{"00000000-0000-0000-0000-00000000000a":{"new":{"n":"x","s":["set",[]],"m":["map",[]],"r":2,"b":false}}}},"error":null}"#;
const UPDATE3: &str = r#"{"id":null,"method":"update3","params":[["monid","D"],"00000000-0000-0000-0000-0000000000fe",{"T":{"00000000-0000-0000-0000-00000000000a":{"modify":{"n":"y","m":["map",[["k",1],["l",3]]],"r":["set",[]]}},"00000000-0000-0000-0000-00000000000b":{"insert":{"n":"z"}}}}]}"#;
const UPDATE2: &str = r#"{"id":null,"method":"update2","params":[["monid","D"],{"T":{"00000000-0000-0000-0000-00000000000a":{"delete":null}}}]}"#;
const UPDATE: &str = r#"{"id":null,"method":"update","params":[["monid","D"],{"T":{"00000000-0000-0000-0000-00000000000a":{"old":{"n":"x"},"new":{"n":"q","s":["set",[]],"m":["map",[]],"r":2,"b":false}}}}]}"#;
const ECHO: &str = r#"{"id":"echo","method":"echo","params":[]}"#;
const STOLEN: &str = r#"{"id":null,"method":"stolen","params":["l"]}"#;
const COMMITTED: &str = r#"{"id":4,"error":null,"result":[{},{"uuid":["uuid","00000000-0000-0000-0000-00000000000c"]},{"count":1}]}"#;
const ABORTED: &str =
    r#"{"id":4,"error":null,"result":[{},{"error":"constraint violation","details":"x"},null]}"#;

/// The earlier messages of the server, and the message to corrupt.
const TABLE: &[(&[&str], &str)] = &[
    (&[], SCHEMA),
    (&[SCHEMA], LOCK),
    (&[SCHEMA, LOCK], SINCE),
    (&[SCHEMA, LOCK], UNKNOWN),
    (&[SCHEMA, LOCK, UNKNOWN], COND),
    (&[SCHEMA, LOCK, UNKNOWN], UNKNOWN_COND),
    (&[SCHEMA, LOCK, UNKNOWN, UNKNOWN_COND], PLAIN),
    (&[SCHEMA, LOCK, SINCE], UPDATE3),
    (&[SCHEMA, LOCK, UNKNOWN, COND], UPDATE2),
    (&[SCHEMA, LOCK, UNKNOWN, UNKNOWN_COND, PLAIN], UPDATE),
    (&[SCHEMA, LOCK, SINCE], ECHO),
    (&[SCHEMA, LOCK, SINCE], STOLEN),
    (&[SCHEMA, LOCK, SINCE], COMMITTED),
    (&[SCHEMA, LOCK, SINCE], ABORTED),
];

fn prepared(said: &[&str], now: Instant) -> Session {
    let spec = MonitorSpec::new("D").table("T", ["n", "s", "m", "r"]).written("T", ["b"]);
    let options = SessionOptions {
        lock: Some("l".into()),
        max_message: 10_000,
        probe_interval: Duration::from_secs(5),
        ..SessionOptions::default()
    };
    let mut session = Session::new(spec, options, now);
    session.connected(now);
    for message in said {
        session.receive(message.as_bytes(), now).expect("the unspoilt messages are right");
    }
    let mut txn = Transaction::new().guarded();
    txn.insert("T", [("n", "new".into())]);
    txn.set("T", Uuid::from_u128(10), "n", "w");
    session.submit(txn);
    session
}

/// A xorshift generator: the same run each time.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % limit.max(1)
    }
}

fn mutate(message: &[u8], random: &mut Random) -> Vec<u8> {
    const WORDS: &[&[u8]] = &[
        b"null",
        b"[]",
        b"{}",
        b"\"\"",
        b"-1",
        b"1e999",
        b"18446744073709551616",
        b"[\"set\",[]]",
        b"[\"map\",[[1]]]",
        b"true",
        b"\"id\":",
        b"\\ud800",
        b"\xff",
        b"[[[[[[",
        b"\"delete\"",
        b"\"initial\"",
        b"\"new\"",
        b"\"error\"",
        b"9",
        b"\0",
    ];
    let mut bytes = message.to_vec();
    for _ in 0..=random.below(3) {
        let at = random.below(bytes.len());
        match random.below(6) {
            0 => bytes[at] = random.below(256) as u8,
            1 => bytes[at] ^= 1 << random.below(8),
            2 => {
                bytes.remove(at);
            }
            3 => {
                let end = (at + random.below(40)).min(bytes.len());
                bytes.drain(at..end);
            }
            4 => {
                let word = WORDS[random.below(WORDS.len())];
                bytes.splice(at..at, word.iter().copied());
            }
            _ => {
                let end = (at + random.below(40)).min(bytes.len());
                let piece = bytes[at..end].to_vec();
                let to = random.below(bytes.len());
                bytes.splice(to..to, piece);
            }
        }
        if bytes.is_empty() {
            bytes.push(b'{');
        }
    }
    bytes
}

/// The session must be of use after whatever happened.
fn check(session: &mut Session) {
    session.take_events();
    session.take_changes();
    let replica = session.replica();
    for (_, row) in replica.rows("T") {
        let _ = (row.str("n"), row.uuids("s").count(), row.opt_real("r"));
    }
}

#[test]
fn unspoilt_messages_are_accepted() {
    let now = Instant::now();
    for (said, message) in TABLE {
        let mut session = prepared(said, now);
        session.receive(message.as_bytes(), now).unwrap_or_else(|e| panic!("{message}: {e}"));
    }
}

#[test]
fn truncation_at_every_byte() {
    let now = Instant::now();
    for (said, message) in TABLE {
        let ready = prepared(said, now);
        for length in 0..message.len() {
            let (head, tail) = message.as_bytes().split_at(length);
            // Cut off by the end of the connection: nothing happened.
            let mut session = ready.clone();
            session.receive(head, now).unwrap_or_else(|e| panic!("{length} of {message}: {e}"));
            assert_eq!(session.replica().len("T"), ready.replica().len("T"));
            session.disconnected();
            check(&mut session);
            // Cut in two deliveries: no difference.
            let mut session = ready.clone();
            session.receive(head, now).unwrap();
            session.receive(tail, now).unwrap();
            // Cut off and followed by the next message: an error or not, but no panic.
            let mut session = ready.clone();
            let _ = session.receive(head, now);
            let _ = session.receive(message.as_bytes(), now);
            check(&mut session);
        }
    }
}

#[test]
fn a_hundred_thousand_mutations() {
    let now = Instant::now();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (mut refused, mut taken) = (0u32, 0u32);
    let ready: Vec<Session> = TABLE.iter().map(|(said, _)| prepared(said, now)).collect();
    for _ in 0..100_000usize.div_ceil(TABLE.len()) {
        for ((_, message), ready) in TABLE.iter().zip(&ready) {
            let mut session = ready.clone();
            let bytes = mutate(message.as_bytes(), &mut random);
            match session.receive(&bytes, now) {
                Ok(()) => taken += 1,
                Err(error) => {
                    refused += 1;
                    assert!(!error.to_string().is_empty());
                    session.disconnected();
                }
            }
            check(&mut session);
        }
    }
    assert!(refused + taken >= 100_000);
    assert!(refused > 10_000 && taken > 1_000, "{refused} refused, {taken} taken");
}
