// SPDX-License-Identifier: Apache-2.0
//! The server on a real socket: against our client, against raw bytes, and against the real
//! `ovs-appctl` where it is installed.

use std::cell::{Cell, RefCell};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use unixctl::client::{CallError, Connection, call_socket, socket_path};
use unixctl::{Registry, Reply, Server};

/// Runs a server in this thread while `client` works in another.
fn with_server<T: Send + 'static>(client: impl FnOnce(PathBuf) -> T + Send + 'static) -> T {
    let dir = testing::directory();
    let path = dir.path().join("ovs-vswitchd.1.ctl");
    // A stale socket from a process before us.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let local = tokio::task::LocalSet::new();
    let result = local.block_on(&runtime, async {
        let registry = Registry::new("ovs-vswitchd (Open vSwitch) 3.1.0");
        let calls = Rc::new(Cell::new(0));
        registry.add("count", "", 0, 0, move |_| {
            calls.set(calls.get() + 1);
            Ok(calls.get().to_string())
        });
        registry.add("echo", "[word]...", 0, usize::MAX, |call| Ok(call.args.join(" ")));
        let waiting: Rc<RefCell<Vec<Reply>>> = Rc::default();
        let queue = Rc::clone(&waiting);
        registry.add_deferred("wait", "", 0, 0, move |_, reply| queue.borrow_mut().push(reply));
        registry.add("release", "", 0, 0, move |_| {
            for reply in waiting.borrow_mut().drain(..) {
                reply.ok("released");
            }
            Ok(String::new())
        });
        unixctl::add_vlog_commands(&registry, &Arc::new(vlog::Logger::new("ovs-vswitchd")));
        let server = Server::bind(&path, registry).unwrap();
        let replies = server.replies();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o007, 0, "others must not reach the socket");
        let server = tokio::task::spawn_local(server.run());
        let client_path = path.clone();
        let result = tokio::task::spawn_blocking(move || client(client_path)).await.unwrap();
        assert!(replies.written(Duration::from_secs(5)).await);
        server.abort();
        let _ = server.await;
        result
    });
    assert!(!path.exists(), "the socket's file goes with the server");
    result
}

fn ask(path: &Path, command: &str, args: &[&str]) -> Result<String, CallError> {
    call_socket(path, command, args, Some(Duration::from_secs(10)))
}

/// Sends `chunks` and returns all that comes back until the peer closes or is silent.
fn raw(path: &Path, chunks: &[&[u8]]) -> (String, bool) {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    for chunk in chunks {
        if stream.write_all(chunk).is_err() {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut out = Vec::new();
    let mut buffer = [0; 4096];
    let closed = loop {
        match stream.read(&mut buffer) {
            Ok(0) => break true,
            Ok(n) => out.extend_from_slice(&buffer[..n]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break false,
            Err(_) => break true,
        }
    };
    (String::from_utf8(out).unwrap(), closed)
}

#[test]
fn commands_answer_now_or_later() {
    with_server(|path| {
        assert_eq!(ask(&path, "version", &[]).unwrap(), "ovs-vswitchd (Open vSwitch) 3.1.0\n");
        assert_eq!(ask(&path, "echo", &[]).unwrap(), "");
        let long = "x".repeat(3 << 20);
        assert_eq!(ask(&path, "echo", &[&long]).unwrap().len(), long.len() + 1);
        let waiter = {
            let path = path.clone();
            std::thread::spawn(move || ask(&path, "wait", &[]))
        };
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(ask(&path, "count", &[]).unwrap(), "1\n", "others are served meanwhile");
        ask(&path, "release", &[]).unwrap();
        assert_eq!(waiter.join().unwrap().unwrap(), "released\n");
        match ask(&path, "nosuch", &[]) {
            Err(CallError::Refused(text)) => assert!(text.ends_with("valid commands)\n")),
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn answers_come_in_the_order_of_what_was_asked() {
    with_server(|path| {
        let mut peer = Connection::open(&path, Some(Duration::from_secs(10))).unwrap();
        for word in ["one", "two", "three"] {
            peer.send("echo", &[word]).unwrap();
        }
        peer.send::<&str>("nosuch", &[]).unwrap();
        for word in ["one", "two", "three"] {
            assert_eq!(peer.receive().unwrap(), format!("{word}\n"));
        }
        assert!(matches!(peer.receive(), Err(CallError::Refused(_))));
        assert_eq!(peer.call("echo", &["four"]).unwrap(), "four\n");
    });
}

#[test]
fn streams_are_cut_right_and_junk_ends_only_its_own() {
    with_server(|path| {
        let (text, closed) = raw(
            &path,
            &[
                br#"{"method":"ver"#,
                br#"sion","params":[],"id":"x"}{"method":"count","pa"#,
                br#"rams":[],"id":2}"#,
            ],
        );
        assert_eq!(
            text,
            concat!(
                r#"{"id":"x","result":"ovs-vswitchd (Open vSwitch) 3.1.0\n","error":null}"#,
                r#"{"id":2,"result":"1\n","error":null}"#
            )
        );
        assert!(!closed);
        for junk in [
            b"xyz".as_slice(),
            b"[1]",
            b"{\"method\":7,\"params\":[],\"id\":0}",
            b"{\xff}",
            b"{}",
            br#"{"method":"count","params":[],"id":null}"#,
        ] {
            assert_eq!(raw(&path, &[junk]), (String::new(), true), "{junk:?}");
        }
        assert_eq!(ask(&path, "count", &[]).unwrap(), "2\n");
    });
}

#[test]
fn endless_input_is_cut_off() {
    with_server(|path| {
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.write_all(b"{\"").unwrap();
        let block = vec![b'a'; 1 << 20];
        let sent = (0..64).take_while(|_| stream.write_all(&block).is_ok()).count();
        assert!((3..=6).contains(&sent), "cut off at the limit, not after {sent} MiB");
        assert_eq!(ask(&path, "count", &[]).unwrap(), "1\n");
    });
}

#[test]
fn many_connections_at_once() {
    with_server(|path| {
        let idle: Vec<UnixStream> = (0..100).map(|_| UnixStream::connect(&path).unwrap()).collect();
        let threads: Vec<_> = (0..20)
            .map(|_| {
                let path = path.clone();
                std::thread::spawn(move || ask(&path, "count", &[]).unwrap())
            })
            .collect();
        let mut seen: Vec<u32> =
            threads.into_iter().map(|t| t.join().unwrap().trim().parse().unwrap()).collect();
        seen.sort_unstable();
        assert_eq!(seen, (1..=20).collect::<Vec<_>>());
        drop(idle);
    });
}

#[test]
fn a_deep_directory_is_no_obstacle() {
    let dir = testing::directory();
    let deep = dir.path().join("d".repeat(120));
    std::fs::create_dir(&deep).unwrap();
    let path = deep.join("ovs-vswitchd.1.ctl");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        let server = Server::bind(&path, Registry::new("v")).unwrap();
        let server = tokio::task::spawn_local(server.run());
        let at = path.clone();
        let answer = tokio::task::spawn_blocking(move || ask(&at, "version", &[])).await.unwrap();
        assert_eq!(answer.unwrap(), "v\n");
        server.abort();
        let _ = server.await;
    });
    assert!(!path.exists());
}

#[test]
fn a_reply_that_is_asked_for_is_waited_for() {
    let dir = testing::directory();
    let path = dir.path().join("ctl");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        let registry = Registry::new("v");
        let exiting = Rc::new(tokio::sync::Notify::new());
        let exit = Rc::clone(&exiting);
        registry.add("exit", "[--cleanup]", 0, 1, move |_| {
            exit.notify_one();
            Ok(String::new())
        });
        let held: Rc<RefCell<Vec<Reply>>> = Rc::default();
        let hold = Rc::clone(&held);
        registry.add_deferred("hold", "", 0, 0, move |_, reply| hold.borrow_mut().push(reply));
        let server = Server::bind(&path, registry).unwrap();
        let replies = server.replies();
        tokio::task::spawn_local(server.run());
        let at = path.clone();
        let client = tokio::task::spawn_blocking(move || ask(&at, "exit", &["--cleanup"]));
        exiting.notified().await;
        assert!(replies.written(Duration::from_secs(5)).await);
        assert_eq!(client.await.unwrap().unwrap(), "");
        let at = path.clone();
        let client = tokio::task::spawn_blocking(move || ask(&at, "hold", &[]));
        while held.borrow().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(!replies.written(Duration::from_millis(20)).await);
        held.borrow_mut().clear(); // forgotten, hence answered with an error
        assert!(matches!(client.await.unwrap(), Err(CallError::Refused(_))));
    });
}

#[test]
fn targets() {
    let dir = testing::directory();
    let rundir = dir.path();
    assert_eq!(socket_path(rundir, "/a/b").unwrap(), Path::new("/a/b"));
    std::fs::write(rundir.join("ovs-vswitchd.pid"), "123\n").unwrap();
    assert_eq!(socket_path(rundir, "ovs-vswitchd").unwrap(), rundir.join("ovs-vswitchd.123.ctl"));
    std::fs::write(rundir.join("junk.pid"), "abc\n").unwrap();
    assert!(socket_path(rundir, "junk").is_err());
    let missing = socket_path(rundir, "nosuch").unwrap_err().to_string();
    assert!(missing.ends_with("nosuch.pid\" (No such file or directory)"), "{missing}");
    let refused = ask(Path::new("/nosuch"), "version", &[]).unwrap_err();
    assert_eq!(refused.to_string(), "cannot connect to \"/nosuch\" (No such file or directory)");
}

#[test]
fn something_else_at_the_path_is_kept() {
    let dir = testing::directory();
    let path = dir.path().join("precious");
    std::fs::write(&path, "data").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _inside = runtime.enter();
    assert!(Server::bind(&path, Registry::new("v")).is_err());
    assert_eq!(std::fs::read(&path).unwrap(), b"data");
    let error = Server::bind(Path::new("/nosuch/y"), Registry::new("v")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "/nosuch/y: could not initialize control socket (No such file or directory)"
    );
}

#[test]
fn the_real_ovs_appctl_is_understood() {
    if Command::new("ovs-appctl").arg("--version").output().is_err() {
        eprintln!("skipped: ovs-appctl is not installed (Debian package openvswitch-common)");
        return;
    }
    with_server(|path| {
        let run = |args: &[&str]| {
            let output =
                Command::new("ovs-appctl").arg("-t").arg(&path).args(args).output().unwrap();
            (
                output.status.code(),
                String::from_utf8_lossy(&output.stdout).into_owned(),
                String::from_utf8_lossy(&output.stderr).into_owned(),
            )
        };
        assert_eq!(
            run(&["version"]),
            (Some(0), "ovs-vswitchd (Open vSwitch) 3.1.0\n".into(), String::new())
        );
        assert!(run(&["vlog/list-pattern"]).1.starts_with("         prefix     "));
        assert_eq!(
            run(&["vlog/set", "nosuch"]).2.lines().next(),
            Some("no destination, level, or module \"nosuch\"")
        );
        assert_eq!(run(&["echo", "ä", "b\"c"]).1, "ä b\"c\n");
        assert!(run(&["list-commands"]).1.contains("\n  list-commands           \n"));
        let (code, out, err) = run(&["version", "x"]);
        assert_eq!((code, out.as_str()), (Some(2), ""));
        assert!(err.starts_with("\"version\" command takes at most 0 arguments\n"), "{err}");
    });
}
