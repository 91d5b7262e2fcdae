// SPDX-License-Identifier: Apache-2.0
//! The control socket: requests as they come in, on a socket of this process.
//!
//! The first byte says where the stream is cut in two.

use serde_json::Value;
use std::cell::Cell;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// A control socket, and the runtime that serves it. No request can change it.
struct Control {
    runtime: tokio::runtime::Runtime,
    local: tokio::task::LocalSet,
    directory: testing::TempDir,
}

thread_local! {
    static CONTROL: Control = Control::start();
    /// Panics of this thread: those of the server's tasks do not come through.
    static PANICS: Cell<usize> = const { Cell::new(0) };
}

impl Control {
    fn start() -> Control {
        count_panics();
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let directory = testing::directory();
        let registry = unixctl::Registry::new("1.0");
        registry.add("echo", "WORD...", 0, usize::MAX, |call| Ok(call.args.join(" ")));
        registry.add("pair", "A B", 2, 2, |call| Err(format!("{:?}", call.arg(1))));
        let local = tokio::task::LocalSet::new();
        let server = {
            let _inside = runtime.enter();
            unixctl::Server::bind(&directory.path().join("ctl"), registry).expect("a socket")
        };
        local.spawn_local(server.run());
        Control { runtime, local, directory }
    }

    /// Returns the answer of the server up to the end of the connection.
    fn ask(&self, parts: [&[u8]; 2]) -> Vec<u8> {
        let path = self.directory.path().join("ctl");
        self.local.block_on(&self.runtime, async {
            let mut stream = tokio::net::UnixStream::connect(path).await.expect("it listens");
            let mut answer = Vec::new();
            // A server that drops a peer with unread bytes resets the connection.
            for part in parts {
                if stream.write_all(part).await.is_err() {
                    break;
                }
                tokio::task::yield_now().await;
            }
            let _ = stream.shutdown().await;
            let _ = stream.read_to_end(&mut answer).await;
            answer
        })
    }
}

fn count_panics() {
    static HOOK: std::sync::Once = std::sync::Once::new();
    HOOK.call_once(|| {
        let shown = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANICS.with(|n| n.set(n.get() + 1));
            shown(info);
        }));
    });
}

pub fn run(bytes: &[u8]) {
    let Some((&at, stream)) = bytes.split_first() else { return };
    let before = PANICS.with(Cell::get);
    let cut = stream.len() * usize::from(at) / 256;
    let (first, second) = stream.split_at(cut); // cut is at most the length
    let answer = CONTROL.with(|control| control.ask([first, second]));
    assert_eq!(PANICS.with(Cell::get), before, "the server panicked");
    let asked = ids(stream);
    let told: Vec<Value> = serde_json::Deserializer::from_slice(&answer)
        .into_iter()
        .map(|v| v.expect("answers are JSON"))
        .collect();
    for (n, reply) in told.iter().enumerate() {
        let Value::Object(members) = reply else { panic!("{reply}") };
        let mut names: Vec<&str> = members.keys().map(String::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["error", "id", "result"]);
        // One of both is there, and text that ends its line.
        let texts: Vec<&str> =
            ["error", "result"].iter().filter_map(|m| reply[*m].as_str()).collect();
        let [text] = texts[..] else { panic!("{reply}") };
        assert!(text.is_empty() || text.ends_with('\n'), "{reply}");
        assert_eq!(asked.get(n), Some(&reply["id"]), "{reply}");
    }
}

/// The ids of the requests at the start of a stream, up to what is none.
fn ids(stream: &[u8]) -> Vec<Value> {
    let all = serde_json::Deserializer::from_slice(stream).into_iter::<Value>();
    all.map_while(Result::ok).map_while(|v| v.get("id").cloned()).collect()
}
