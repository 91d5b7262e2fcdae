// SPDX-License-Identifier: Apache-2.0
//! Every decoder that meets bytes or text from outside, in one table: what is valid decodes, and
//! nothing (every truncation, and a hundred thousand seeded mutations each) makes one panic.
//!
//! An accepted value is also written again, as the daemon would for a dump or a log: no bytes may
//! produce a value that the writer cannot handle.
//!
//! A failure names the decoder, the number of the mutation and the input; the same number gives
//! the same mutation in each run.

use fastrand::Rng;
use flow::text::{no_names, no_numbers};
use fuzz_targets::seeds;
use openflow::action::codec as actions;
use openflow::frame::Frames;
use openflow::message::{Message, Protocol};
use openflow::nxm::{self, Strictness};
use openflow::{PortNo, Version};
use packet::FromBytes as _;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Mutations of each decoder's samples.
const MUTATIONS: u64 = 100_000;

struct Decoder {
    name: &'static str,
    /// Inputs, nearly all of them valid.
    samples: fn() -> Vec<Vec<u8>>,
    /// Reads the input, and writes what it read; true when the input was accepted.
    decode: fn(&[u8]) -> bool,
    /// Percent of the samples that must be accepted as they are.
    accepted: usize,
}

const DECODERS: &[Decoder] = &[
    Decoder { name: "packet key", samples: seeds::frames, decode: packet_key, accepted: 100 },
    Decoder {
        name: "packet header views",
        samples: seeds::frames,
        decode: header_views,
        accepted: 100,
    },
    Decoder {
        name: "IPv6 extension headers",
        samples: extensions,
        decode: extension_walk,
        accepted: 100,
    },
    Decoder { name: "ND options", samples: nd_options, decode: nd_option_list, accepted: 100 },
    Decoder {
        name: "tunnel headers",
        samples: seeds::tunnel_frames,
        decode: tunnel_headers,
        accepted: 100,
    },
    Decoder {
        name: "OpenFlow 1.0 message",
        samples: || messages(1),
        decode: |b| message(b, Version::V10),
        accepted: 75,
    },
    Decoder {
        name: "OpenFlow 1.1 message",
        samples: || messages(2),
        decode: |b| message(b, Version::V11),
        accepted: 75,
    },
    Decoder {
        name: "OpenFlow 1.2 message",
        samples: || messages(3),
        decode: |b| message(b, Version::V12),
        accepted: 75,
    },
    Decoder {
        name: "OpenFlow 1.3 message",
        samples: || messages(4),
        decode: |b| message(b, Version::V13),
        accepted: 75,
    },
    Decoder {
        name: "OpenFlow 1.4 message",
        samples: || messages(5),
        decode: |b| message(b, Version::V14),
        accepted: 75,
    },
    Decoder {
        name: "OpenFlow 1.5 message",
        samples: || messages(6),
        decode: |b| message(b, Version::V15),
        accepted: 75,
    },
    Decoder { name: "OpenFlow stream", samples: streams, decode: stream, accepted: 100 },
    Decoder {
        name: "OpenFlow actions",
        samples: || action_bytes("a", "1"),
        decode: action_list,
        accepted: 50,
    },
    Decoder {
        name: "OpenFlow instructions",
        samples: || action_bytes("i", "23456"),
        decode: instruction_list,
        accepted: 75,
    },
    Decoder { name: "nx_match", samples: || match_bytes("nxm"), decode: nx_match, accepted: 95 },
    Decoder {
        name: "ofp_match",
        samples: || match_bytes("of10 of11 oxm"),
        decode: ofp_match,
        accepted: 75,
    },
    Decoder { name: "OVSDB session", samples: conversations, decode: ovsdb_session, accepted: 100 },
    Decoder {
        name: "control socket",
        samples: || lines(seeds::REQUESTS),
        decode: control_socket,
        accepted: 100,
    },
    Decoder {
        name: "match text",
        samples: || lines(seeds::match_texts()),
        decode: match_text,
        accepted: 95,
    },
    Decoder {
        name: "datapath flow text",
        samples: || lines(seeds::ODP_FLOWS),
        decode: odp_flow,
        accepted: 100,
    },
    Decoder { name: "flow text", samples: flow_texts, decode: flow_text, accepted: 90 },
    Decoder {
        name: "action text",
        samples: || lines(seeds::action_texts()),
        decode: action_text,
        accepted: 90,
    },
    Decoder {
        name: "datapath action text",
        samples: || lines(seeds::ODP_ACTIONS),
        decode: odp_actions,
        accepted: 100,
    },
    Decoder {
        name: "subfield text",
        samples: || lines(seeds::SUBFIELDS),
        decode: subfield,
        accepted: 100,
    },
    Decoder {
        name: "log specification",
        samples: || lines(seeds::LOG_SPECS),
        decode: log_spec,
        accepted: 100,
    },
    Decoder {
        name: "connection target",
        samples: || lines(seeds::ENDPOINTS),
        decode: target,
        accepted: 100,
    },
];

#[test]
fn no_input_makes_a_decoder_panic() {
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(Vec::new());
    let workers = std::thread::available_parallelism().map_or(2, |n| n.get().min(8));
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(decoder) = DECODERS.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let found = exercise(decoder);
                    failures.lock().expect("no holder panics").extend(found);
                }
            });
        }
    });
    let failures = failures.into_inner().expect("no holder panics");
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

/// The faults of a decoder, three panics at most.
fn exercise(decoder: &Decoder) -> Vec<String> {
    let samples = (decoder.samples)();
    let mut failures = Vec::new();
    let try_one = |what: &str, n: u64, input: &[u8], failures: &mut Vec<String>| {
        let result = catch_unwind(AssertUnwindSafe(|| (decoder.decode)(input)));
        if result.is_err() && failures.len() < 3 {
            let hex: String = input.iter().map(|b| format!("{b:02x}")).collect();
            let text = String::from_utf8_lossy(input).into_owned();
            failures.push(format!("{}: {what} {n} panics: {hex} {text:?}", decoder.name));
        }
        result.unwrap_or(false)
    };
    let mut refused = Vec::new();
    for (n, sample) in samples.iter().enumerate() {
        if !try_one("sample", n as u64, sample, &mut failures) {
            refused.push(String::from_utf8_lossy(sample));
        }
        for cut in 0..sample.len() {
            try_one("truncation of sample", n as u64, &sample[..cut], &mut failures);
        }
    }
    let accepted = samples.len() - refused.len();
    if accepted * 100 < samples.len() * decoder.accepted || samples.is_empty() {
        let count = format!("{accepted} of {} samples are accepted", samples.len());
        failures.push(format!("{}: {count}; refused: {:?}", decoder.name, refused.first()));
    }
    let mut survivors = 0;
    for n in 0..MUTATIONS {
        survivors += u64::from(try_one("mutation", n, &mutated(&samples, n), &mut failures));
    }
    // Else the mutations break everything at the first byte, or nothing.
    if !(MUTATIONS / 200..MUTATIONS).contains(&survivors) {
        failures
            .push(format!("{}: {survivors} of {MUTATIONS} mutations are accepted", decoder.name));
    }
    println!(
        "{}: {} samples, {survivors} of {MUTATIONS} mutations accepted",
        decoder.name,
        samples.len()
    );
    failures
}

/// One of `samples` with one to four changes.
fn mutated(samples: &[Vec<u8>], seed: u64) -> Vec<u8> {
    let mut rng = Rng::with_seed(seed);
    let mut bytes = rng.choice(samples).cloned().unwrap_or_default();
    for _ in 0..rng.usize(1..=4) {
        let at = rng.usize(0..=bytes.len());
        match (rng.u8(0..6), bytes.get_mut(at)) {
            (0, Some(b)) => *b ^= 1 << rng.u8(0..8),
            (1, Some(b)) => *b = rng.u8(..),
            // The edges of numbers, and the characters that texts are built of.
            (2, Some(b)) => {
                *b = *rng
                    .choice(b"\x00\x01\x7f\x80\xff,=/:()[]{}\"\\-+09afx. ")
                    .expect("there are some")
            }
            (3, _) => bytes.insert(at, rng.u8(..)),
            (4, Some(_)) => {
                let end = (at + rng.usize(1..16)).min(bytes.len());
                bytes.drain(at..end);
            }
            _ => {
                let other = rng.choice(samples).map(Vec::as_slice).unwrap_or_default();
                let from = rng.usize(0..=other.len());
                let to = (from + rng.usize(0..32)).min(other.len());
                let end = (at + rng.usize(0..16)).min(bytes.len());
                bytes.splice(at..end, other[from..to].iter().copied());
            }
        }
    }
    bytes
}

// Packets.

fn packet_key(bytes: &[u8]) -> bool {
    let mut kinds = BTreeSet::new();
    for limit in [0, 1, 2] {
        let (key, layers) = flow::extract::extract_limited(bytes, 1, limit);
        let end = bytes.len();
        for at in [layers.l3, layers.l4].into_iter().flatten() {
            assert!(usize::from(at) <= end, "a layer begins at {at} of {end}");
        }
        kinds.insert(key.dl_type.get());
        flow::text::format_key(&key, &no_names);
    }
    kinds != BTreeSet::from([0])
}

fn header_views(bytes: &[u8]) -> bool {
    let mut seen = 0;
    for at in 0..bytes.len().min(64) {
        let rest = &bytes[at..];
        if let Ok((h, _)) = packet::Ipv4Header::ref_from_prefix(rest) {
            seen += h.header_len();
            h.checked_lengths(rest.len());
            h.pseudo_sum(rest.len() as u32).finish();
        }
        if let Ok((h, payload)) = packet::Ipv6Header::ref_from_prefix(rest) {
            seen += usize::from(h.traffic_class());
            let len = h.checked_payload_len(rest.len()).unwrap_or(payload.len());
            packet::Ipv6Extensions::walk(h.next, &payload[..len]);
        }
        if let Ok((h, _)) = packet::TcpHeader::ref_from_prefix(rest) {
            seen += h.header_len() + usize::from(h.flags());
        }
        if let Ok((h, _)) = packet::LlcSnapHeader::ref_from_prefix(rest) {
            seen += usize::from(h.is_ethernet());
        }
        if let Ok((h, _)) = packet::MplsEntry::ref_from_prefix(rest) {
            seen += h.label() as usize + usize::from(h.tc()) + usize::from(h.ttl());
        }
        if let Ok((h, _)) = packet::ArpHeader::ref_from_prefix(rest) {
            seen += usize::from(h.is_ethernet_ipv4());
        }
        if let Ok((_, options)) = packet::NdHeader::ref_from_prefix(rest) {
            seen += packet::NdOptions::new(options).count();
        }
    }
    packet::checksum::internet(bytes);
    packet::checksum::sctp(bytes);
    seen > 0
}

/// The first byte is the type of the first header.
fn extensions() -> Vec<Vec<u8>> {
    vec![
        vec![17, 1, 2, 3, 4],
        vec![0, 17, 0, 0, 0, 0, 0, 0, 0, 9],
        [&[0, 60, 1][..], &[0; 14], &[51, 0], &[0; 6], &[17, 2], &[0; 14], &[9]].concat(),
        vec![44, 6, 0, 0, 0, 0, 0, 0, 1, 9],
        vec![44, 17, 0, 0, 0x51, 0, 0, 0, 1, 9],
    ]
}

fn extension_walk(bytes: &[u8]) -> bool {
    let Some((&next, payload)) = bytes.split_first() else { return false };
    let Some(e) = packet::Ipv6Extensions::walk(next, payload) else { return false };
    assert!(e.len <= payload.len(), "{e:?}");
    assert!(
        e.fragment_at.is_none_or(|at| at + 8 <= e.len) && e.routing_at.is_none_or(|at| at < e.len),
        "{e:?}"
    );
    true
}

fn nd_options() -> Vec<Vec<u8>> {
    let mac = [1, 1, 2, 0, 0, 0, 0, 1];
    vec![mac.to_vec(), [&mac[..], &[2, 1, 2, 0, 0, 0, 0, 2], &[14, 2], &[0; 14]].concat()]
}

fn nd_option_list(bytes: &[u8]) -> bool {
    let options: Vec<_> = packet::NdOptions::new(bytes).collect();
    let end: usize = options.iter().map(|o| o.bytes.len()).sum();
    assert!(end <= bytes.len());
    options.iter().filter_map(packet::NdOption::ethernet_address).count() > 0
}

/// As packets of a port of each kind.
fn tunnel_headers(bytes: &[u8]) -> bool {
    let is_accepted = |kind| {
        let (port, offload) = (tunnel::PortConfig::new(kind), packet::Offload::default());
        let mut checks = tunnel::Checks::default();
        let Ok(decoded) = tunnel::decode(bytes, 14, &offload, &port, &mut checks) else {
            return false;
        };
        assert!(decoded.payload_at < decoded.payload_end && decoded.payload_end <= bytes.len());
        decoded.metadata.options.tlvs().count();
        true
    };
    tunnel::Kind::ALL.into_iter().filter(|kind| is_accepted(*kind)).count() > 0
}

// OpenFlow.

/// Bytes of actions and instructions: kind, version, bytes, what they are.
const BYTES_OF_ACTIONS: &str = include_str!("../../crates/openflow/tests/vectors/wire.txt");

fn unhex(text: &str) -> Vec<u8> {
    fuzz_targets::pack::unhex(text).expect("the vectors are hexadecimal")
}

/// Messages that ovs-ofctl and the switch sent in a version.
fn messages(version: u8) -> Vec<Vec<u8>> {
    seeds::recorded().filter(|m| m.first() == Some(&version)).collect()
}

fn message(bytes: &[u8], version: Version) -> bool {
    // Mutations move the end; with the old length nothing after the header would be read.
    let mut bytes = bytes.to_vec();
    if let (true, Ok(len)) = (bytes.len() >= 8, u16::try_from(bytes.len())) {
        bytes[2..4].copy_from_slice(&len.to_be_bytes());
    }
    let protocol = Protocol::new(version);
    match Message::decode(&bytes, &protocol) {
        Ok(message) => {
            // Not all that one version can say fits another's form.
            let _ = message.encode(&protocol);
            true
        }
        Err(error) => {
            assert!(error.reply().encode(&protocol).is_ok(), "{error} cannot be encoded");
            false
        }
    }
}

fn streams() -> Vec<Vec<u8>> {
    (1..=6)
        .flat_map(|v| messages(v).chunks(8).take(4).map(|c| c.concat()).collect::<Vec<_>>())
        .collect()
}

fn stream(bytes: &[u8]) -> bool {
    let mut frames = Frames::new();
    let mut cut = Vec::new();
    for part in bytes.chunks(100) {
        frames.push(part);
        loop {
            match frames.next_message() {
                Ok(Some(message)) => cut.extend_from_slice(message),
                Ok(None) => break,
                Err(_) => return false,
            }
        }
    }
    assert_eq!(cut, bytes[..bytes.len() - frames.pending()]);
    openflow::frame::negotiate(openflow::message::Versions::KNOWN, bytes);
    !cut.is_empty()
}

/// Recorded action lists (`kind` as in the vectors, and the ones printed in `versions`); the
/// first byte of each sample is the version.
fn action_bytes(kind: &str, versions: &str) -> Vec<Vec<u8>> {
    let listed = seeds::rows(BYTES_OF_ACTIONS).filter(|r| r[0] == kind).map(|r| (r[1], r[2]));
    let printed =
        seeds::rows(seeds::ACTIONS).filter(|r| versions.contains(r[0])).map(|r| (r[0], r[3]));
    listed
        .chain(printed)
        .map(|(v, bytes)| [unhex(&format!("0{v}")), unhex(bytes)].concat())
        .collect()
}

/// The version that the first byte of a sample names, and the rest.
fn versioned(bytes: &[u8]) -> Option<(Version, &[u8])> {
    let (&version, rest) = bytes.split_first()?;
    Some((Version::from_wire(version)?, rest))
}

fn write_actions(list: &[openflow::Action], version: Version) {
    let context = actions_context(version);
    // Inconsistent ones are refused here.
    let _ = openflow::action::check(list, &flow::Match::ANY, &context);
    actions::encode_instructions(list, version, &mut Vec::new());
    openflow::text::format_actions(list, &no_names);
}

fn actions_context(version: Version) -> openflow::action::CheckContext {
    openflow::action::CheckContext {
        version,
        max_ports: PortNo::MAX,
        table_id: Some(0),
        n_tables: Some(255),
    }
}

fn action_list(bytes: &[u8]) -> bool {
    let Some((version, bytes)) = versioned(bytes) else { return false };
    let Ok(list) = actions::decode_actions(bytes, version) else { return false };
    write_actions(&list, version);
    true
}

fn instruction_list(bytes: &[u8]) -> bool {
    let Some((version, bytes)) = versioned(bytes) else { return false };
    let set = actions::decode_action_set(bytes, version);
    let Ok(list) = actions::decode_instructions(bytes, version) else { return set.is_ok() };
    write_actions(&list, version);
    true
}

/// Recorded matches of some forms; the first byte of each sample is the version.
fn match_bytes(forms: &str) -> Vec<Vec<u8>> {
    let wanted = seeds::rows(seeds::MATCHES).filter(|r| forms.contains(r[0]));
    wanted
        .map(|r| {
            let (mut list, version) = (unhex(r[3]), unhex(&format!("0{}", r[1])));
            if r[0] == "oxm" {
                // Recorded without the header of the ofp_match.
                let len = list.len() as u16 + 4;
                list.splice(..0, [[0, 1], len.to_be_bytes()].concat());
                list.resize(list.len().next_multiple_of(8), 0);
            }
            [version, list].concat()
        })
        .collect()
}

fn write_match(m: &flow::Match) {
    flow::text::format_match(m, &no_names);
    for version in Version::ALL {
        nxm::encode_match(version, m, &mut Vec::new());
    }
    nxm::encode_nx_match(m, 0, 0, &mut Vec::new());
}

fn nx_match(bytes: &[u8]) -> bool {
    let Some((_, list)) = bytes.split_first() else { return false };
    let mut padded = list.to_vec();
    padded.resize(list.len().next_multiple_of(8), 0);
    let _ = nxm::decode_header_list(list, true);
    let _ = nxm::decode_nx_match(&padded, list.len(), Strictness::Loose, false);
    match nxm::decode_nx_match(&padded, list.len(), Strictness::Strict, true) {
        Ok((m, _)) => {
            write_match(&m.matching);
            true
        }
        Err(_) => false,
    }
}

fn ofp_match(bytes: &[u8]) -> bool {
    let Some((version, bytes)) = versioned(bytes) else { return false };
    match nxm::decode_match(version, bytes, Strictness::Strict) {
        Ok((m, taken)) => {
            assert!(taken <= bytes.len());
            write_match(&m);
            true
        }
        Err(_) => false,
    }
}

// JSON-RPC.

fn ovsdb_spec() -> ovsdb::MonitorSpec {
    ovsdb::MonitorSpec::new("D").table("T", ["name", "tags", "config"]).written("T", ["stats"])
}

/// The messages that a server sends to a session, in the order of the session's requests.
fn conversations() -> Vec<Vec<u8>> {
    let schema = r#"{"id":1,"error":null,"result":{"name":"D","version":"1.0.0","tables":{"T":{"columns":{
        "name":{"type":"string"},"tags":{"type":{"key":"integer","min":0,"max":"unlimited"}},
        "config":{"type":{"key":"string","value":"string","min":0,"max":"unlimited"}},"stats":{"type":"real"}}}}}}"#;
    let row = r#""00000000-0000-0000-0000-00000000000a""#;
    let txn = r#""11111111-0000-0000-0000-000000000000""#;
    let since = format!(
        r#"{{"id":2,"error":null,"result":[false,{txn},{{"T":{{{row}:{{"initial":{{"name":"a\u00e4","tags":["set",[1,2]]}}}}}}}}]}}"#
    );
    let change = format!(
        r#"{{"id":null,"method":"update3","params":[["monid","D"],{txn},{{"T":{{{row}:{{"modify":{{"config":["map",[["k","v"]]]}}}}}}}}]}}"#
    );
    let delete = format!(
        r#"{{"id":null,"method":"update3","params":[["monid","D"],{txn},{{"T":{{{row}:{{"delete":null}}}}}}]}}"#
    );
    let echo = r#"{"id":"echo","method":"echo","params":[]}"#;
    let unknown = r#"{"id":2,"error":"unknown method","result":null}"#;
    let cond = format!(
        r#"{{"id":3,"error":null,"result":{{"T":{{{row}:{{"initial":{{"name":"a"}}}}}}}}}}"#
    );
    [
        vec![schema, &since],
        vec![schema, echo, &since, &change, echo, &delete],
        vec![schema, unknown, &cond],
    ]
    .iter()
    .map(|parts| parts.concat().into_bytes())
    .collect()
}

fn ovsdb_session(bytes: &[u8]) -> bool {
    let now = Instant::now();
    let options = ovsdb::SessionOptions { max_message: 1 << 16, ..Default::default() };
    let mut session = ovsdb::Session::new(ovsdb_spec(), options, now);
    session.connected(now);
    let (first, second) = bytes.split_at(bytes.len() / 2);
    let received = session.receive(first, now).and_then(|()| session.receive(second, now));
    session.take_events();
    session.take_changes();
    received.is_ok() && session.is_synchronized()
}

/// A control socket, and the runtime that serves it.
struct Control {
    runtime: tokio::runtime::Runtime,
    local: tokio::task::LocalSet,
    directory: testing::TempDir,
}

impl Control {
    fn start() -> Control {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let directory = testing::directory();
        let registry = unixctl::Registry::new("1.0");
        registry.add("echo", "WORD...", 0, usize::MAX, |call| Ok(call.args.join(" ")));
        let local = tokio::task::LocalSet::new();
        let server = {
            let _inside = runtime.enter();
            unixctl::Server::bind(&directory.path().join("ctl"), registry).expect("a socket")
        };
        local.spawn_local(server.run());
        Control { runtime, local, directory }
    }

    /// The server's answers to `request` until it closes the connection.
    fn ask(&self, request: &[u8]) -> std::io::Result<Vec<u8>> {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let path = self.directory.path().join("ctl");
        self.local.block_on(&self.runtime, async {
            let mut stream = tokio::net::UnixStream::connect(path).await?;
            stream.write_all(request).await?;
            stream.shutdown().await?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await?;
            Ok(answer)
        })
    }
}

thread_local! {
    static CONTROL: Control = Control::start();
    /// Panics of this thread: those of the server's tasks do not come through.
    static PANICS: Cell<usize> = const { Cell::new(0) };
}

fn control_socket(bytes: &[u8]) -> bool {
    static HOOK: std::sync::Once = std::sync::Once::new();
    HOOK.call_once(|| {
        let shown = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANICS.with(|n| n.set(n.get() + 1));
            shown(info);
        }));
    });
    let before = PANICS.with(Cell::get);
    // A server that drops a peer with unread bytes resets the connection.
    let answer = CONTROL.with(|control| control.ask(bytes)).unwrap_or_default();
    assert_eq!(PANICS.with(Cell::get), before, "the server panicked");
    !answer.is_empty()
}

// Texts.

fn lines<T: AsRef<str>>(list: impl IntoIterator<Item = T>) -> Vec<Vec<u8>> {
    list.into_iter().map(|line| line.as_ref().as_bytes().to_vec()).collect()
}

fn text(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

fn match_text(bytes: &[u8]) -> bool {
    let text = text(bytes);
    let _ = flow::text::parse_exact_flow(&text, &no_numbers);
    let Ok(m) = flow::text::parse_match(&text, &no_numbers) else { return false };
    write_match(&m);
    flow::text::format_megaflow(&m, &no_names);
    flow::text::odp::format(m.key(), m.mask(), Default::default(), &no_names);
    true
}

fn odp_flow(bytes: &[u8]) -> bool {
    let Ok((key, mask)) = flow::text::odp::parse(&text(bytes), &no_numbers) else { return false };
    flow::text::odp::format(&key, &mask, Default::default(), &no_names);
    true
}

fn flow_texts() -> Vec<Vec<u8>> {
    let built = seeds::rows(seeds::ACTIONS).filter(|r| r[0] == "4").map(|r| match r[1] {
        "" => format!("table=1,actions={}", r[2]),
        fields => format!("priority=7,{fields} actions={}", r[2]),
    });
    lines(seeds::FLOWS).into_iter().chain(built.map(String::into_bytes)).collect()
}

fn flow_text(bytes: &[u8]) -> bool {
    let Ok(flow) = openflow::text::parse_flow(&text(bytes), Version::V14, &no_numbers) else {
        return false;
    };
    write_match(&flow.matching);
    write_actions(&flow.actions.unwrap_or_default(), Version::V14);
    true
}

fn action_text(bytes: &[u8]) -> bool {
    let text = text(bytes);
    let mut accepted = false;
    for version in [Version::V10, Version::V13, Version::V15] {
        if let Ok(list) = openflow::text::parse_actions(&text, version, &no_numbers) {
            write_actions(&list, version);
            accepted = true;
        }
    }
    accepted
}

fn odp_actions(bytes: &[u8]) -> bool {
    let Ok(list) = datapath::text::parse(&text(bytes), &|_| None) else { return false };
    let written = datapath::text::format_plain(&list);
    assert!(datapath::text::parse(&written, &|_| None).is_ok(), "{written} does not parse");
    true
}

fn subfield(bytes: &[u8]) -> bool {
    let text = text(bytes);
    let _ = flow::Subfield::parse_prefix(&text);
    let Ok(part) = text.parse::<flow::Subfield>() else { return false };
    let mut key = flow::Key::ZERO;
    part.store(&mut key, u128::MAX);
    let all = u128::MAX >> (128 - u32::from(part.bits));
    assert!(part.load(&key) <= all, "{part}");
    true
}

fn log_spec(bytes: &[u8]) -> bool {
    let text = text(bytes);
    let logger = vlog::Logger::new("test");
    logger.register_modules(&["bridge"]);
    let _ = vlog::SyslogMethod::parse(&text);
    let _ = vlog::parse_target(&text);
    let accepted = logger.set(&text).is_ok();
    logger.list_pattern();
    accepted
}

fn target(bytes: &[u8]) -> bool {
    let text = text(bytes);
    let directory = Path::new("/run");
    let to = slipswitchd::openflow::Target::parse(&text, directory);
    let at = slipswitchd::openflow::Endpoint::parse(&text, directory);
    let _ = ovsdb::Remote::parse_list(&text, directory);
    if let Some(to) = &to {
        let _ = to.to_string();
    }
    to.is_some() || at.is_ok()
}
