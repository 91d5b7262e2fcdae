// SPDX-License-Identifier: Apache-2.0
//! A switch with its database and the tools that drive it.

use super::host::pcap_frames;
use super::process::run_limited;
use super::{Host, Netns, Output, Process, Sandbox, daemon_program, wait_until};
use std::time::Duration;

/// The schema that Debian installs.
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
/// How long a daemon may take to answer. Far more than it needs: the machine may be busy.
const START: Duration = Duration::from_secs(20);
/// How long it may take to end.
const STOP: Duration = Duration::from_secs(10);

/// Whose daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The switch under test.
    Slipswitch,
    /// Debian's `ovs-vswitchd`, the oracle.
    RealOvs,
}

impl Kind {
    /// Slipswitch, unless `SLIPSWITCH_TEST_ORACLE` is set: then the tests' own expectations are
    /// proved on the oracle.
    pub fn under_test() -> Kind {
        match std::env::var_os("SLIPSWITCH_TEST_ORACLE") {
            Some(_) => Kind::RealOvs,
            None => Kind::Slipswitch,
        }
    }
}

/// On what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Dummy devices and a clock that the test moves (`--enable-dummy`); no privilege needed.
    Dummy,
    /// Linux devices in a network namespace of its own.
    Real,
}

/// How a switch is started.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whose daemon.
    pub kind: Kind,
    /// On what.
    pub mode: Mode,
    /// Further arguments of the daemon.
    pub arguments: Vec<String>,
    /// A command that the daemon is started by, to be put before it: less privilege, another
    /// mount namespace. It has to become the daemon (`exec`).
    pub before: Vec<String>,
    /// It may use the datapath of the kernel's module, too, which is one for all daemons of a
    /// network namespace.
    pub kernel_datapath: bool,
}

impl Options {
    /// Without anything special.
    pub fn new(kind: Kind, mode: Mode) -> Options {
        Options { kind, mode, arguments: Vec::new(), before: Vec::new(), kernel_datapath: false }
    }
}

/// A running switch; ended, with all that belongs to it, when dropped.
#[derive(Debug)]
pub struct Switch {
    options: Options,
    netns: Option<Netns>,
    daemon: Option<Process>,
    database: Option<Process>,
    // Last: its guard removes the directory.
    sandbox: Sandbox,
}

impl Switch {
    /// Starts a database and a daemon.
    ///
    /// # Panics
    /// When one of them does not start, with what it logged.
    pub fn start(kind: Kind, mode: Mode) -> Switch {
        Switch::with(Options::new(kind, mode))
    }

    /// Ours, in dummy mode, with a bridge `br0` whose addresses are known and `ports` dummies
    /// `p1`, `p2`, ... on the OpenFlow ports 1, 2, ..., and no flows; the clock stands.
    ///
    /// # Panics
    /// When it does not start.
    pub fn dummy(ports: u32) -> Switch {
        let switch = Switch::start(Kind::under_test(), Mode::Dummy);
        switch.dummy_bridge(ports);
        switch
    }

    /// Starts as the options say.
    ///
    /// # Panics
    /// When a program does not start, with what it logged.
    pub fn with(options: Options) -> Switch {
        let sandbox = Sandbox::new();
        let netns = (options.mode == Mode::Real).then(Netns::new);
        let mut switch = Switch { options, netns, daemon: None, database: None, sandbox };
        let created = switch.sh(&format!("ovsdb-tool create conf.db {SCHEMA}"));
        assert!(
            created.ok(),
            "openvswitch-switch and openvswitch-common are needed: {}",
            created.text()
        );
        switch.start_database();
        switch.start_daemon();
        switch
    }

    /// Starts the database server (again).
    ///
    /// # Panics
    /// When it does not start.
    pub fn start_database(&mut self) {
        let arguments = [
            "conf.db",
            "--remote=punix:db.sock",
            "--remote=db:Open_vSwitch,Open_vSwitch,manager_options",
            "--pidfile",
            "--log-file",
            "-vconsole:off",
            "-vsyslog:off",
            "-vfile:info",
        ];
        self.database =
            Some(Process::start(&self.sandbox, None, "ovsdb-server", "ovsdb-server", &arguments));
        let answers = wait_until(START, || self.sh("ovs-vsctl --no-wait init").ok());
        assert!(answers, "ovsdb-server does not start: {}", self.sandbox.read("ovsdb-server.log"));
    }

    /// Stops the database server at once.
    pub fn kill_database(&mut self) {
        self.database = None;
    }

    /// Starts the daemon (again), and waits until it answers.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start_daemon(&mut self) {
        self.launch_daemon();
        self.await_daemon();
    }

    /// Waits until the daemon that was launched answers.
    ///
    /// # Panics
    /// When it does not.
    pub fn await_daemon(&mut self) {
        let answers = wait_until(START, || {
            let ended = self.daemon.as_mut().is_none_or(|d| d.ended().is_some());
            ended
                || self.sandbox.file("ovs-vswitchd.pid").exists()
                    && self.sh("ovs-appctl version").ok()
        });
        let alive = self.is_alive();
        assert!(answers && alive, "the daemon does not start:\n{}", self.story());
    }

    /// Starts the daemon (again), and does not wait for anything.
    ///
    /// # Panics
    /// When there is no such program.
    pub fn launch_daemon(&mut self) {
        let program = match self.options.kind {
            Kind::Slipswitch => daemon_program(),
            Kind::RealOvs => "ovs-vswitchd".into(),
        };
        let program = program.to_str().expect("the path of the program is text");
        let mut command: Vec<&str> = self.options.before.iter().map(String::as_str).collect();
        command.extend([
            program,
            "--pidfile",
            "--log-file",
            "-vconsole:off",
            "-vsyslog:off",
            "-vfile:info",
        ]);
        if !self.options.kernel_datapath {
            command.push("--disable-system");
        }
        if self.options.mode == Mode::Dummy {
            command.push("--enable-dummy");
        }
        command.extend(self.options.arguments.iter().map(String::as_str));
        let (first, arguments) = command.split_first().expect("the program is in it");
        let daemon = Process::start(&self.sandbox, self.netns.as_ref(), "daemon", first, arguments);
        self.daemon = Some(daemon);
    }

    /// Has the daemon that is started next be one of this kind, over the same database.
    pub fn set_kind(&mut self, kind: Kind) {
        self.options.kind = kind;
    }

    /// Kills the daemon at once, as a crash would.
    pub fn kill_daemon(&mut self) {
        self.daemon = None;
    }

    /// Waits for the daemon's end after a request to stop; returns its exit code.
    pub fn wait_for_end(&mut self) -> Option<i32> {
        let status = self.daemon.as_mut().and_then(|d| d.wait(STOP))?;
        self.daemon = None;
        status.code()
    }

    /// The daemon's process.
    pub fn daemon(&self) -> Option<&Process> {
        self.daemon.as_ref()
    }

    /// True while the daemon runs.
    pub fn is_alive(&mut self) -> bool {
        self.daemon.as_mut().is_some_and(|d| d.ended().is_none())
    }

    /// The daemon's log and its output.
    pub fn story(&self) -> String {
        let sandbox = &self.sandbox;
        format!(
            "{}{}{}",
            tail(&sandbox.read("ovs-vswitchd.log")),
            sandbox.read("daemon.out"),
            sandbox.read("daemon.err")
        )
    }

    /// The daemon's log.
    pub fn log(&self) -> String {
        self.sandbox.read("ovs-vswitchd.log")
    }

    /// The daemon's log lines of level WARN and above.
    pub fn warnings(&self) -> Vec<String> {
        let severe = |line: &&str| {
            line.split('|').nth(3).is_some_and(|level| matches!(level, "WARN" | "ERR" | "EMER"))
        };
        self.log().lines().filter(severe).map(str::to_owned).collect()
    }

    /// The switch's directory.
    pub fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    /// The switch's namespace.
    ///
    /// # Panics
    /// In dummy mode, where there is none.
    pub fn netns(&self) -> &Netns {
        self.netns.as_ref().expect("the test is for Mode::Real")
    }

    /// Ties a host to the switch; it still has to be added to a bridge. See [`Host::new`].
    pub fn host(&self, name: &str, address: &str) -> Host {
        Host::new(self.netns(), name, address)
    }

    /// Ties a host to the switch and adds its device to a bridge.
    pub fn host_on(&self, bridge: &str, name: &str, address: &str) -> Host {
        let host = self.host(name, address);
        self.vsctl(&format!("add-port {bridge} {name}"));
        host
    }

    /// Runs a line of shell that finds this switch by its environment.
    pub fn sh(&self, line: &str) -> Output {
        self.sandbox.sh(line)
    }

    /// Runs a line of shell in the switch's namespace, killed after `timeout`.
    pub fn sh_limited(&self, line: &str, timeout: Duration) -> Output {
        run_limited(&self.sandbox, self.netns.as_ref(), line, timeout)
    }

    /// Runs a line of shell that has to succeed; its standard output.
    ///
    /// # Panics
    /// When it fails.
    #[track_caller]
    pub fn run(&self, line: &str) -> String {
        let output = self.sh(line);
        assert!(output.ok(), "{line}\nexit code {:?}\n{}", output.code, output.text());
        output.stdout
    }

    /// Runs a line of shell that has to fail; all it wrote.
    ///
    /// # Panics
    /// When it succeeds.
    #[track_caller]
    pub fn fails(&self, line: &str) -> String {
        let output = self.sh(line);
        assert!(output.code.is_some_and(|c| c != 0), "{line}\nshould fail, but: {}", output.text());
        output.text()
    }

    /// `ovs-vsctl ARGUMENTS`, which has to succeed.
    #[track_caller]
    pub fn vsctl(&self, arguments: &str) -> String {
        self.run(&format!("ovs-vsctl {arguments}"))
    }

    /// `ovs-ofctl ARGUMENTS`, which has to succeed.
    #[track_caller]
    pub fn ofctl(&self, arguments: &str) -> String {
        self.run(&format!("ovs-ofctl {arguments}"))
    }

    /// `ovs-appctl ARGUMENTS`, which has to succeed.
    #[track_caller]
    pub fn appctl(&self, arguments: &str) -> String {
        self.run(&format!("ovs-appctl {arguments}"))
    }

    /// A counter of `coverage/show`.
    #[track_caller]
    pub fn counter(&self, name: &str) -> u64 {
        let text = self.appctl(&format!("coverage/read-counter {name}"));
        text.trim().parse().unwrap_or_else(|_| panic!("{name}: {text}"))
    }

    /// Makes the bridge that [`Switch::dummy`] promises.
    #[track_caller]
    pub fn dummy_bridge(&self, ports: u32) {
        self.vsctl(&dummy_bridge_line("br0", ports));
        self.appctl("time/stop");
    }

    /// Adds flows from text, one to a line, in place of those there are.
    #[track_caller]
    pub fn flows(&self, bridge: &str, flows: &str) {
        self.flows_by("OpenFlow10,OpenFlow13", bridge, flows);
    }

    /// Like [`Switch::flows`], in one of the given versions of OpenFlow.
    #[track_caller]
    pub fn flows_by(&self, versions: &str, bridge: &str, flows: &str) {
        let text: String = flows.lines().map(|l| format!("{}\n", l.trim())).collect();
        self.sandbox.write("flows.txt", text);
        self.ofctl(&format!("-O {versions} del-flows {bridge}"));
        self.ofctl(&format!("-O {versions} add-flows {bridge} flows.txt"));
        // Earlier megaflows are gone when this returns.
        self.revalidate();
    }

    /// A packet, as a flow or in hexadecimal digits, arrives on a dummy port.
    #[track_caller]
    pub fn receive(&self, port: &str, packet: &str) {
        self.appctl(&format!("netdev-dummy/receive {port} '{packet}'"));
    }

    /// The frames that a dummy port of [`Switch::dummy_bridge`] has sent so far.
    pub fn sent(&self, port: &str) -> Vec<Vec<u8>> {
        // A received packet is processed before the next command is answered.
        self.sh("ovs-appctl version");
        pcap_frames(
            &std::fs::read(self.sandbox.file(&format!("{port}-tx.pcap"))).unwrap_or_default(),
        )
    }

    /// The same in hexadecimal digits.
    pub fn sent_hex(&self, port: &str) -> Vec<String> {
        self.sent(port).iter().map(|f| f.iter().map(|b| format!("{b:02x}")).collect()).collect()
    }

    /// Brings counters up to date.
    #[track_caller]
    pub fn revalidate(&self) {
        self.appctl("revalidator/wait");
    }

    /// The flows of a bridge without what depends on the time, sorted, from
    /// `ovs-ofctl dump-flows` with `arguments`.
    #[track_caller]
    pub fn dump(&self, arguments: &str) -> Vec<String> {
        self.revalidate();
        let text = self.ofctl(&format!("dump-flows --no-stats {arguments}"));
        let mut lines: Vec<String> = text
            .lines()
            .filter(|l| !l.starts_with("NXST_") && !l.starts_with("OFPST_"))
            .map(|l| l.trim().to_owned())
            .collect();
        lines.sort();
        lines
    }

    /// Packets and bytes of the only flow that `ovs-ofctl dump-flows ARGUMENTS` shows.
    ///
    /// # Panics
    /// When it shows none or more than one.
    #[track_caller]
    pub fn counts(&self, arguments: &str) -> (u64, u64) {
        self.revalidate();
        let text = self.ofctl(&format!("dump-flows {arguments}"));
        let lines: Vec<&str> = text.lines().filter(|l| l.contains("n_packets=")).collect();
        let [line] = lines.as_slice() else { panic!("one flow was expected: {text}") };
        (number(line, "n_packets="), number(line, "n_bytes="))
    }

    /// Received and sent packets of a port, from `ovs-ofctl dump-ports`.
    #[track_caller]
    pub fn port_counts(&self, bridge: &str, port: &str) -> (u64, u64) {
        let text = self.ofctl(&format!("dump-ports {bridge} {port}"));
        let rx = text
            .lines()
            .find(|l| l.contains("rx pkts="))
            .unwrap_or_else(|| panic!("no counts: {text}"));
        let tx = text
            .lines()
            .find(|l| l.contains("tx pkts="))
            .unwrap_or_else(|| panic!("no counts: {text}"));
        (number(rx, "rx pkts="), number(tx, "tx pkts="))
    }

    /// The last line of `ofproto/trace`, without its name.
    #[track_caller]
    pub fn traced(&self, arguments: &str) -> String {
        let text = self.appctl(&format!("ofproto/trace {arguments}"));
        let line = text.lines().find_map(|l| l.strip_prefix("Datapath actions: "));
        line.unwrap_or_else(|| panic!("no datapath actions: {text}")).to_owned()
    }

    /// The result of [`Switch::traced`] as the set of `TAGS:PORT` in the order of their names: the
    /// order in which NORMAL and FLOOD output is that of a hash table.
    #[track_caller]
    pub fn traced_outputs(&self, arguments: &str) -> Vec<String> {
        super::normalise::outputs(&self.traced(arguments))
    }

    /// The megaflows, sorted, without statistics.
    #[track_caller]
    pub fn megaflows(&self) -> Vec<String> {
        let text = self.appctl("dpctl/dump-flows");
        let mut lines: Vec<String> = text
            .lines()
            .filter(|l| l.contains("actions:"))
            .map(super::normalise::megaflow)
            .collect();
        lines.sort();
        lines
    }
}

/// The arguments of `ovs-vsctl` that make a bridge of dummies.
pub fn dummy_bridge_line(bridge: &str, ports: u32) -> String {
    let mut line = format!(
        "add-br {bridge} -- set bridge {bridge} datapath_type=dummy fail_mode=secure \
         other_config:datapath-id=fedcba9876543210 other_config:hwaddr=aa:55:aa:55:00:00"
    );
    for port in 1..=ports {
        line += &format!(
            " -- add-port {bridge} p{port} -- set interface p{port} type=dummy ofport_request={port} options:tx_pcap=p{port}-tx.pcap"
        );
    }
    line
}

/// The number after `name`.
#[track_caller]
fn number(line: &str, name: &str) -> u64 {
    let behind = line.split(name).nth(1).unwrap_or_else(|| panic!("no {name} in {line}"));
    let digits: String = behind.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|_| panic!("no number behind {name} in {line}"))
}

fn tail(text: &str) -> String {
    const LINES: usize = 40;
    let lines: Vec<&str> = text.lines().collect();
    lines.iter().skip(lines.len().saturating_sub(LINES)).map(|l| format!("{l}\n")).collect()
}

impl Drop for Switch {
    fn drop(&mut self) {
        let crashed = self.sandbox.read("daemon.err").contains("panicked at")
            || self.daemon.as_mut().and_then(Process::ended).is_some_and(|s| s.code() != Some(0));
        if std::thread::panicking() {
            eprintln!("the daemon's log ends:\n{}", self.story());
        } else if crashed {
            panic!("the daemon has crashed:\n{}", self.story());
        }
    }
}
