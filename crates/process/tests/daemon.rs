// SPDX-License-Identifier: Apache-2.0
//! Real processes: detach, pidfile, monitor, user. Each test ends what it has started.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use process::read_pidfile;
use rustix::process::{Pid, Signal, kill_process};

/// The example binary, which cargo builds alongside the tests.
fn sleeper() -> PathBuf {
    let mut path = std::env::current_exe().unwrap();
    path.pop();
    path.pop();
    path.join("examples/sleeper")
}

/// A directory with daemons in it, which are killed when it goes.
struct Field {
    dir: testing::TempDir,
    pids: Vec<Pid>,
}

impl Field {
    fn new() -> Field {
        Field { dir: testing::directory(), pids: Vec::new() }
    }

    fn pidfile(&self) -> PathBuf {
        self.dir.path().join("sleeper.pid")
    }

    fn run(&mut self, args: &[&str]) -> Output {
        let output = Command::new(sleeper())
            .arg(format!("--pidfile={}", self.pidfile().display()))
            .args(args)
            .env("OVS_SYSLOG_METHOD", "null")
            .env("OVS_RUNDIR", self.dir.path())
            .current_dir(self.dir.path())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        if let Ok(pid) = read_pidfile(&self.pidfile()) {
            self.remember(pid);
        }
        output
    }

    fn remember(&mut self, pid: i32) -> Pid {
        let pid = Pid::from_raw(pid).unwrap();
        if !self.pids.contains(&pid) {
            self.pids.push(pid);
        }
        pid
    }

    fn running(&mut self) -> Pid {
        let pid = read_pidfile(&self.pidfile()).unwrap();
        self.remember(pid)
    }
}

impl Drop for Field {
    fn drop(&mut self) {
        for pid in &self.pids {
            let _ = kill_process(*pid, Signal::KILL);
        }
    }
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(15), "waited without result: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether a process has ended; one that nobody has waited for yet counts.
fn gone(pid: Pid) -> bool {
    match fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())) {
        Ok(stat) => stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X'])),
        Err(_) => true,
    }
}

fn status_line(pid: Pid, key: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).unwrap();
    let line = text.lines().find(|l| l.starts_with(key)).unwrap();
    line.split_once(':').unwrap().1.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn link(pid: Pid, what: &str) -> PathBuf {
    fs::read_link(format!("/proc/{}/{what}", pid.as_raw_nonzero())).unwrap()
}

#[test]
fn detach_waits_for_the_child() {
    let mut field = Field::new();
    let start = Instant::now();
    let output = field.run(&["--detach"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(start.elapsed() >= Duration::from_millis(100), "exited before it was ready");
    assert!(output.stdout.is_empty() && output.stderr.is_empty(), "{output:?}");
    let pid = field.running();
    wait_until("streams closed", || link(pid, "fd/2") == Path::new("/dev/null"));
    assert_eq!(link(pid, "cwd"), Path::new("/"));
    assert_eq!(link(pid, "fd/0"), Path::new("/dev/null"));
    kill_process(pid, Signal::TERM).unwrap();
    let pidfile = field.pidfile();
    wait_until("pidfile removed", || !pidfile.exists());
}

#[test]
fn a_failing_child_fails_its_parent() {
    for monitor in [&["--detach", "--fail=7"][..], &["--detach", "--monitor", "--fail=7"]] {
        let mut field = Field::new();
        let output = field.run(monitor);
        assert_eq!(output.status.code(), Some(7), "{output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "sleeper: failing as asked\n");
        assert!(!field.pidfile().exists());
    }
}

#[test]
fn a_second_daemon_is_refused() {
    let mut field = Field::new();
    assert!(field.run(&["--detach", "--no-chdir"]).status.success());
    let first = field.running();
    let dir = fs::canonicalize(field.dir.path()).unwrap();
    assert_eq!(link(first, "cwd"), dir);
    let output = field.run(&["--detach"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        format!(
            "sleeper: {}: already running as pid {}, aborting\n",
            field.pidfile().display(),
            first.as_raw_nonzero()
        )
    );
    assert!(field.run(&["--detach", "--overwrite-pidfile"]).status.success());
    let second = field.running();
    assert_ne!(first, second);
    // The first one must not remove the second one's file.
    kill_process(first, Signal::TERM).unwrap();
    wait_until("first ended", || gone(first));
    assert_eq!(read_pidfile(&field.pidfile()).unwrap(), second.as_raw_nonzero().get());
    // A file that a killed daemon left behind is in nobody's way.
    kill_process(second, Signal::KILL).unwrap();
    wait_until("second ended", || gone(second));
    assert!(field.pidfile().exists());
    assert!(field.run(&["--detach"]).status.success());
}

#[test]
fn the_monitor_mends_crashes_only() {
    let mut field = Field::new();
    assert!(field.run(&["--detach", "--monitor"]).status.success());
    let first = field.running();
    let monitor: i32 = status_line(first, "PPid").parse().unwrap();
    let monitor = field.remember(monitor);
    kill_process(first, Signal::HUP).unwrap(); // the sleeper aborts
    let pidfile = field.pidfile();
    wait_until("a new daemon", || {
        read_pidfile(&pidfile).is_ok_and(|pid| pid != first.as_raw_nonzero().get())
    });
    let second = field.running();
    assert_eq!(status_line(second, "PPid"), monitor.as_raw_nonzero().to_string());
    std::thread::sleep(Duration::from_millis(300)); // it installs its handlers
    kill_process(second, Signal::TERM).unwrap();
    wait_until("monitor ended", || gone(monitor));
    assert!(!pidfile.exists());
}

#[test]
fn another_user_keeps_what_a_switch_needs() {
    if testing::without_root() {
        return;
    }
    let mut field = Field::new();
    fs::set_permissions(field.dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777))
        .unwrap();
    let output = field.run(&["--detach", "--user=daemon:daemon"]);
    assert!(output.status.success(), "{output:?}");
    let pid = field.running();
    assert_eq!(status_line(pid, "Uid"), "1 1 1 1");
    assert_eq!(status_line(pid, "Gid"), "1 1 1 1");
    let want = format!("{:016x}", 0x7400u64 | 1 << 38 | 1 << 39);
    assert_eq!(status_line(pid, "CapEff"), want);
    assert_eq!(status_line(pid, "CapPrm"), want);
    for none in ["CapInh", "CapAmb"] {
        assert_eq!(status_line(pid, none), "0000000000000000");
    }
    assert_eq!(status_line(pid, "NoNewPrivs"), "1");
    let output = field.run(&["--user=nosuchuser"]);
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "sleeper: user nosuchuser not found, aborting.\n"
    );
}
