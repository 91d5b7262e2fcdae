//! A network namespace with veth pairs in it.

use std::io::Write;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A network namespace that goes when this is dropped.
pub(super) struct Namespace(String);

impl Namespace {
    pub(super) fn new() -> Namespace {
        let name = format!("slip-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        run("ip", &["netns", "add", &name], "");
        Namespace(name)
    }

    /// Moves the calling thread into it.
    pub(super) fn enter(&self) {
        let path = format!("/run/netns/{}", self.0);
        let file = std::fs::File::open(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
        rustix::thread::move_into_link_name_space(
            file.as_fd(),
            Some(rustix::thread::LinkNameSpaceType::Network),
        )
        .expect("root may enter a network namespace");
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let deleted = Command::new("ip").args(["netns", "del", &self.0]).status();
        if !deleted.is_ok_and(|s| s.success()) {
            eprintln!("could not remove network namespace {}", self.0);
        }
    }
}

/// Runs a command of iproute2 or ethtool in the calling thread's namespace; it must succeed.
pub(super) fn run(command: &str, args: &[&str], input: &str) {
    let mut child = Command::new(command)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|e| panic!("{command}: {e} (Debian packages iproute2, ethtool)"));
    child.stdin.take().expect("piped").write_all(input.as_bytes()).expect("it reads its input");
    let output = child.wait_with_output().expect("it ends");
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command} {args:?}: {words}");
}
