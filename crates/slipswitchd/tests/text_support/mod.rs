// SPDX-License-Identifier: Apache-2.0
//! A switch (ours or the real one) in dummy mode, in a directory of its own, with a private
//! ovsdb-server, and its answers as text.

#![allow(dead_code, reason = "each test program uses a part")]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use testing::TempDir;

const PATIENCE: Duration = Duration::from_secs(20);
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

/// Two processes, ended on drop, and their directory, removed after them.
pub struct Rig {
    processes: Vec<Child>,
    dir: TempDir,
}

/// True when `program` can be run.
pub fn is_installed(program: &str) -> bool {
    Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok()
}

impl Rig {
    /// Starts `daemon` with bridge br0 (secure, ports p1 and p2 as 1 and 2) and a stopped clock.
    /// `None`, with a remark, when Open vSwitch's programs are not installed.
    pub fn start(daemon: &str) -> Option<Rig> {
        let rig = Rig::launch(daemon, &["--enable-dummy=override"])?;
        let setup = "--timeout=10 add-br br0 -- set bridge br0 datapath_type=dummy fail_mode=secure -- \
            add-port br0 p1 -- set interface p1 ofport_request=1 -- \
            add-port br0 p2 -- set interface p2 ofport_request=2";
        rig.run("ovs-vsctl", &setup.split_whitespace().collect::<Vec<_>>());
        rig.appctl(&["time/stop"]);
        Some(rig)
    }

    /// Starts `daemon` without bridges.
    pub fn launch(daemon: &str, options: &[&str]) -> Option<Rig> {
        Rig::launch_with_schema(daemon, options, |schema| schema)
    }

    /// Starts `daemon` without bridges, on a database whose schema `change` has changed.
    pub fn launch_with_schema(
        daemon: &str,
        options: &[&str],
        change: impl FnOnce(String) -> String,
    ) -> Option<Rig> {
        if !Path::new(SCHEMA).exists() || !is_installed("ovsdb-server") || !is_installed(daemon) {
            testing::skip(&format!("{daemon}, ovsdb-server or {SCHEMA} is not installed"));
            return None;
        }
        let mut rig = Rig { processes: Vec::new(), dir: testing::directory() };
        let schema = rig.file("vswitch.ovsschema");
        std::fs::write(&schema, change(std::fs::read_to_string(SCHEMA).unwrap())).unwrap();
        rig.run("ovsdb-tool", &["create", &rig.file("conf.db"), &schema]);
        let remote = format!("--remote=punix:{}", rig.file("db.sock"));
        rig.spawn("ovsdb-server", &[&rig.file("conf.db"), &remote]);
        rig.wait_for("db.sock");
        rig.run("ovs-vsctl", &["--no-wait", "init"]);
        let control = format!("--unixctl={}", rig.file("switch.ctl"));
        let database = rig.database();
        let log = format!("--log-file={}", rig.file("switch.log"));
        let mut args = vec!["--disable-system", &control, &log, &database];
        args.extend(options);
        rig.spawn(daemon, &args);
        rig.wait_for("switch.ctl");
        Some(rig)
    }

    fn file(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    /// Returns the address of the database.
    pub fn database(&self) -> String {
        format!("unix:{}", self.file("db.sock"))
    }

    fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(args).stdin(Stdio::null());
        for name in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"] {
            command.env(name, self.dir.path());
        }
        command
    }

    fn spawn(&mut self, program: &str, args: &[&str]) {
        let child = self
            .command(program, args)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        self.processes.push(child);
    }

    fn wait_for(&self, name: &str) {
        let path: PathBuf = self.dir.path().join(name);
        let start = Instant::now();
        while !path.exists() {
            assert!(start.elapsed() < PATIENCE, "{name} did not appear");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Runs a program, which must succeed.
    pub fn run(&self, program: &str, args: &[&str]) {
        self.output(program, args);
    }

    /// Runs a program, which must succeed. Returns its output.
    pub fn output(&self, program: &str, args: &[&str]) -> String {
        let output = self.command(program, args).output().unwrap();
        assert!(
            output.status.success(),
            "{program} {args:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    }

    /// Returns the answer to a command; each line of an error is preceded by "error: ".
    pub fn appctl(&self, args: &[&str]) -> String {
        let control = self.file("switch.ctl");
        let mut all = vec!["--timeout=10", "-t", &control];
        all.extend(args);
        let output = self.command("ovs-appctl", &all).output().unwrap();
        if output.status.success() {
            return String::from_utf8(output.stdout).unwrap();
        }
        let text = String::from_utf8(output.stderr).unwrap();
        let lines = text.lines().filter(|l| !l.contains("server returned an error"));
        lines.fold(String::new(), |mut out, line| {
            let _ = writeln!(out, "error: {line}");
            out
        })
    }

    /// Returns the log of the daemon.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.file("switch.log")).unwrap()
    }

    /// Waits for the daemon to end by itself; true when it did so with success.
    pub fn has_ended(&mut self) -> bool {
        let Some(daemon) = self.processes.last_mut() else { return false };
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if let Some(status) = daemon.try_wait().unwrap() {
                return status.success();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        false
    }

    /// Adds an OpenFlow rule.
    pub fn add_flow(&self, flow: &str) {
        self.run("ovs-ofctl", &["add-flow", "br0", flow]);
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        for process in self.processes.iter_mut().rev() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
