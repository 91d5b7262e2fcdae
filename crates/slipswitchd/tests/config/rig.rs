// SPDX-License-Identifier: Apache-2.0
//! A database and a switch in a directory of their own.

use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use testing::{Netns, TempDir};

const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
pub const OURS: &str = env!("CARGO_BIN_EXE_slipswitchd");
pub const REAL: &str = "ovs-vswitchd";
/// Longest wait for an event. It is long enough for a busy machine; a wait ends with its event.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A process that ends with the test.
pub struct Process(Child);

impl Process {
    /// Ends the process, by force if need be.
    pub fn stop(&mut self) {
        let pid = self.0.id().to_string();
        let _ = Command::new("kill").arg(pid).status();
        let end = Instant::now() + Duration::from_secs(5);
        while Instant::now() < end {
            if matches!(self.0.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A database and a switch in a directory of their own.
pub struct Rig {
    pub daemon: Option<Process>,
    pub server: Option<Process>,
    program: &'static str,
    /// Network namespace of the daemon; `None` for that of the test.
    namespace: Option<Netns>,
    dir: TempDir,
}

impl Rig {
    pub fn new(program: &'static str) -> Rig {
        Rig::within(program, None)
    }

    /// Returns a rig of our daemon with real devices, in a network namespace that ends with the rig.
    /// Without the privilege it prints a note and returns `None`.
    pub fn in_namespace() -> Option<Rig> {
        (!testing::without_privilege()).then(|| Rig::within(OURS, Some(Netns::new())))
    }

    fn within(program: &'static str, namespace: Option<Netns>) -> Rig {
        let dir = testing::directory();
        let mut rig = Rig { daemon: None, server: None, program, namespace, dir };
        let made =
            rig.command("ovsdb-tool").arg("create").arg(rig.path("conf.db")).arg(SCHEMA).output();
        assert!(
            made.is_ok_and(|o| o.status.success()),
            "ovsdb-tool (package openvswitch-switch) cannot make a database"
        );
        rig.start_server();
        rig.vsctl_ok(&["--no-wait", "init"]);
        if rig.namespace.is_some() {
            // Pinned objects would outlive a test that is killed. BPF has tests of its own.
            let off = "other_config:bpf-offload=false";
            rig.vsctl_ok(&["--no-wait", "set", "open_vswitch", ".", off]);
        }
        rig.start_daemon();
        rig
    }

    pub fn ours() -> Rig {
        Rig::new(OURS)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        for variable in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"] {
            command.env(variable, self.dir.path());
        }
        command.stdin(Stdio::null());
        command
    }

    pub fn spawn(&self, program: &str, args: &[&str]) -> Process {
        let mut command = self.command(program);
        command.args(args).stdout(Stdio::null()).stderr(Stdio::null());
        Process(command.spawn().unwrap_or_else(|e| panic!("{program}: {e}")))
    }

    pub fn start_server(&mut self) {
        let socket = self.path("db.sock");
        let remote = format!("--remote=punix:{}", socket.display());
        let database = self.path("conf.db");
        let database = database.to_str().expect("a path in UTF-8");
        self.server =
            Some(self.spawn(
                "ovsdb-server",
                &["--no-chdir", "--pidfile", "--log-file", &remote, database],
            ));
        until("ovsdb-server listens", || socket.exists());
    }

    pub fn start_daemon(&mut self) {
        let args = ["--no-chdir", "--pidfile", "--log-file", "--disable-system"];
        let enter = self.namespace.as_ref().map(Netns::enter);
        self.daemon = Some(match &enter {
            Some(enter) => {
                let enter: Vec<&str> = enter.iter().skip(1).map(String::as_str).collect();
                self.spawn("nsenter", &[&enter[..], &[self.program], &args].concat())
            }
            None => self.spawn(self.program, &[&["--enable-dummy=override"][..], &args].concat()),
        });
        let pidfile = self.path("ovs-vswitchd.pid");
        until("the daemon runs", || pidfile.exists());
    }

    /// Runs iproute2 in the rig's namespace. Returns its output.
    pub fn ip(&self, args: &str) -> String {
        let namespace = self.namespace.as_ref().expect("a rig with a namespace");
        namespace.sh(&format!("ip {args}"))
    }

    pub fn vsctl(&self, args: &[&str]) -> Output {
        self.command("ovs-vsctl").arg("--timeout=20").args(args).output().expect("ovs-vsctl runs")
    }

    /// Runs ovs-vsctl, which must not fail. Returns its output, without the last newline.
    pub fn vsctl_ok(&self, args: &[&str]) -> String {
        text(self.vsctl(args), args)
    }

    pub fn interface(&self, name: &str, column: &str) -> String {
        self.vsctl_ok(&["get", "interface", name, column])
    }

    /// Reads a counter of `coverage/show`.
    pub fn counter(&self, name: &str) -> u64 {
        let args = ["--timeout=20", "coverage/read-counter", name];
        let output = self.command("ovs-appctl").args(args).output().expect("ovs-appctl runs");
        text(output, &args).parse().expect("a number")
    }

    pub fn ofctl(&self, args: &[&str]) -> Output {
        self.command("ovs-ofctl").arg("--timeout=20").args(args).output().expect("ovs-ofctl runs")
    }

    /// Returns the rules of a bridge, without the values that change with time.
    pub fn rules(&self, bridge: &str) -> Vec<String> {
        let all = text(self.ofctl(&["--no-stats", "dump-flows", bridge]), &["dump-flows"]);
        all.lines()
            .map(str::trim)
            .filter(|l| !l.contains("reply (xid"))
            .map(str::to_owned)
            .collect()
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.path("ovs-vswitchd.log")).unwrap_or_default()
    }
}

/// Returns the output of a tool, which must not have failed.
pub fn text(output: Output, what: &[&str]) -> String {
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what:?}: {err}");
    String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
}

/// Returns the errors that a tool printed. (ovs-vsctl ends with 0 where an interface has an error.)
pub fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Waits until `done` returns true. Fails after [`PATIENCE`]; `what` is for the message.
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < end, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the words of a command line.
pub fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}
