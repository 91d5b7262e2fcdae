// SPDX-License-Identifier: Apache-2.0
//! A real ovsdb-server in a temporary directory, for as long as a test runs.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ovsdb::{Client, ClientOptions, MonitorSpec, Remote, SessionOptions};

/// The schema that Debian's openvswitch-switch brings.
pub const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

/// True if the real programs are here; says so loudly if they are not.
pub fn available() -> bool {
    let program = |name: &str| {
        Command::new(name)
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok()
    };
    let all = ["ovsdb-server", "ovsdb-tool", "ovs-vsctl"].iter().all(|p| program(p))
        && Path::new(SCHEMA).exists();
    if !all {
        testing::skip(&format!(
            "this test needs ovsdb-server, ovsdb-tool, ovs-vsctl and {SCHEMA}: \
             apt-get install openvswitch-switch"
        ));
    }
    all
}

/// True if ovs-pki is here too.
pub fn tls_available() -> bool {
    let found = Command::new("ovs-pki").arg("--help").stdout(Stdio::null()).status().is_ok();
    if !found {
        testing::skip("this test needs ovs-pki: apt-get install openvswitch-pki");
    }
    available() && found
}

/// A directory with a database, and perhaps a server on it. Dropping it ends the server, also
/// while a failed test unwinds.
pub struct Server {
    pub directory: testing::TempDir,
    child: Option<Child>,
}

impl Server {
    /// A directory with an empty database of the real schema; no server yet.
    pub fn new() -> Self {
        Server::with_schema(Path::new(SCHEMA))
    }

    pub fn with_schema(schema: &Path) -> Self {
        let directory = testing::directory();
        let server = Server { directory, child: None };
        run("ovsdb-tool", &[Path::new("create"), &server.path("db"), schema]);
        server
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Starts the server, listening on `socket` in the directory.
    pub fn start(&mut self, socket: &str) {
        let remote = format!("--remote=punix:{}", self.path(socket).display());
        self.start_with(&[remote]);
        let limit = Instant::now() + Duration::from_secs(10);
        while std::os::unix::net::UnixStream::connect(self.path(socket)).is_err() {
            assert!(Instant::now() < limit, "ovsdb-server does not listen");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn start_with(&mut self, arguments: &[String]) {
        assert!(self.child.is_none(), "a server is running");
        let log = std::fs::File::create(self.path("server.log")).expect("a log file");
        // Should the test process be killed, the server goes with it.
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "ovsdb-server"])
            .args(arguments)
            .arg(format!("--unixctl={}", self.path("ctl").display()))
            .arg(self.path("db"))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("ovsdb-server starts");
        self.child = Some(child);
    }

    /// Starts the server on a TLS port of its own choice, and returns the port. Keys and
    /// certificates are made by ovs-pki: the server's by switchca, the client's by controllerca.
    pub fn start_tls(&mut self) -> u16 {
        let pki = self.path("pki");
        let pki_tool = |arguments: &[&str]| {
            let output = Command::new("ovs-pki")
                .arg(format!("--dir={}", pki.display()))
                .arg(format!("--log={}", self.path("pki.log").display()))
                .args(arguments)
                .current_dir(self.directory.path())
                .output()
                .expect("ovs-pki runs");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        };
        pki_tool(&["init"]);
        pki_tool(&["req+sign", "server", "switch"]);
        pki_tool(&["req+sign", "client", "controller"]);
        self.start_with(&[
            "--remote=pssl:0:127.0.0.1".to_owned(),
            format!("--remote=punix:{}", self.path("db.sock").display()),
            format!("--private-key={}", self.path("server-privkey.pem").display()),
            format!("--certificate={}", self.path("server-cert.pem").display()),
            format!("--ca-cert={}", pki.join("controllerca/cacert.pem").display()),
            format!("--peer-ca-cert={}", pki.join("switchca/cacert.pem").display()),
        ]);
        let limit = Instant::now() + Duration::from_secs(10);
        loop {
            let log = std::fs::read_to_string(self.path("server.log")).unwrap_or_default();
            let port = log.lines().find_map(|line| {
                let (_, rest) = line.split_once("listening on port ")?;
                rest.trim().parse().ok()
            });
            if let Some(port) = port {
                return port;
            }
            assert!(Instant::now() < limit, "ovsdb-server does not listen: {log}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Kills the server.
    pub fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Sends the server a signal by its name.
    pub fn signal(&self, name: &str) {
        let child = self.child.as_ref().expect("a running server");
        let status =
            Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status();
        assert!(status.expect("kill runs").success());
    }

    /// Runs ovs-vsctl on `socket` and returns its output.
    pub fn vsctl_on(&self, socket: &str, arguments: &str) -> String {
        let output = Command::new("ovs-vsctl")
            .arg(format!("--db=unix:{}", self.path(socket).display()))
            .args(["--no-wait", "--timeout=10"])
            .args(arguments.split_whitespace())
            .output()
            .expect("ovs-vsctl runs");
        assert!(
            output.status.success(),
            "{arguments}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    pub fn vsctl(&self, arguments: &str) -> String {
        self.vsctl_on("db.sock", arguments)
    }

    /// A client of `unix:db.sock` with the options given.
    pub fn client(&self, session: SessionOptions) -> Client {
        let remotes =
            Remote::parse_list("unix:db.sock", self.directory.path()).expect("it is right");
        Client::start(remotes, spec(), ClientOptions { session, ..ClientOptions::default() })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

pub fn spec() -> MonitorSpec {
    MonitorSpec::new("Open_vSwitch")
        .table("Open_vSwitch", ["bridges", "next_cfg", "external_ids", "other_config", "no_such"])
        .written("Open_vSwitch", ["cur_cfg", "ovs_version", "datapath_types"])
        .table("Bridge", ["name", "ports", "datapath_type", "fail_mode", "other_config"])
        .table("Port", ["name", "interfaces", "tag", "trunks"])
        .table("Interface", ["name", "type", "options", "ofport_request", "external_ids"])
        .written("Interface", ["ofport", "statistics", "error"])
        .table("Datapath", ["datapath_version"])
}

fn run(program: &str, arguments: &[&Path]) {
    let status = Command::new(program).args(arguments).status().expect("the program runs");
    assert!(status.success(), "{program} {arguments:?}");
}

/// Runs a test on a current-thread runtime, for at most 30 seconds.
pub fn on_runtime(test: impl Future<Output = ()>) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        tokio::time::timeout(Duration::from_secs(30), test).await.expect("done within 30 seconds");
    });
}

/// Waits until a condition on the client holds.
pub async fn until(client: &Client, what: &str, condition: impl Fn(&Client) -> bool) {
    let wait = async {
        while !condition(client) {
            client.changed().await;
        }
    };
    if tokio::time::timeout(Duration::from_secs(15), wait).await.is_err() {
        panic!("{what}: not within 15 seconds; {:?}", client.state());
    }
}
