// SPDX-License-Identifier: Apache-2.0
//! Controllers that others have written: os-ken, on which Faucet and many programs are built.

use crate::tools::{SOON, in_kernel, pair};
use slipswitch_tests::harness::{Process, Switch, patient, wait_until, without_tool};
use std::time::Duration;

/// A learning switch that sends each request of its OpenFlow version.
const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/controllers/learning.py");

/// The requests of OpenFlow 1.5 that Open vSwitch refuses, and one whose reply os-ken cannot read.
const UNANSWERED: [&str; 4] =
    ["BundleFeaturesStats", "ControllerStatusStats", "FlowStats", "MeterFeaturesStats"];

/// A running controller at 127.0.0.1:6653 of the switch's namespace.
struct Controller<'a> {
    switch: &'a Switch,
    _process: Process,
}

impl<'a> Controller<'a> {
    /// Starts it for the version with this number on the wire.
    fn start(switch: &'a Switch, version: u8) -> Controller<'a> {
        let line =
            format!("VERSION={version} exec osken-manager --ofp-tcp-listen-port 6653 {PROGRAM}");
        let netns = Some(switch.netns());
        let process = Process::start(switch.sandbox(), netns, "controller", "sh", &["-c", &line]);
        Controller { switch, _process: process }
    }

    /// The lines that it has printed.
    fn lines(&self) -> Vec<String> {
        self.switch.sandbox().read("controller.out").lines().map(str::to_owned).collect()
    }

    /// The messages of which it has printed `word NAME` + `ending`, in order.
    fn names(&self, word: &str, ending: &str) -> Vec<String> {
        let name = |line: &String| {
            let name = line.strip_prefix(word)?.strip_prefix(" OFP")?.strip_suffix(ending)?;
            Some(name.to_owned())
        };
        self.lines().iter().filter_map(name).collect()
    }

    /// All that it has printed, and its errors.
    fn story(&self) -> String {
        self.lines().join("\n") + &self.switch.sandbox().read("controller.err")
    }
}

/// Runs a controller of the version with this name and number on the wire.
fn serve(name: &str, version: u8) {
    if without_tool(&["osken-manager"]) {
        return;
    }
    let Some((switch, a, _b)) = pair() else { return };
    switch.vsctl(&format!("set bridge br0 fail_mode=secure protocols={name}"));
    let controller = Controller::start(&switch, version);
    switch.vsctl(
        "set-controller br0 tcp:127.0.0.1:6653 -- \
         set controller br0 connection_mode=out-of-band max_backoff=1000",
    );

    // Python takes its time to start.
    let start = patient(Duration::from_secs(60));
    let asked = wait_until(start, || !controller.names("request", "Request").is_empty());
    assert!(asked, "no connection: {}", controller.story());
    let missing = || {
        let mut answered = controller.names("reply", "Reply");
        if version == 6 {
            answered.extend(UNANSWERED.map(str::to_owned));
        }
        let mut missing = controller.names("request", "Request");
        missing.retain(|name| {
            // In OpenFlow 1.2 os-ken has one name for all statistics.
            let is_answer = |a: &String| a == name || a == "Stats" && name.ends_with("Stats");
            let answer = answered.iter().position(is_answer);
            answer.map(|at| answered.swap_remove(at)).is_none()
        });
        missing
    };
    let answered = wait_until(SOON, || missing().is_empty());
    assert!(answered, "no replies: {:?}\n{}", missing(), controller.story());

    assert!(a.reaches("10.0.0.2", SOON), "{}", controller.story());
    assert_eq!(a.ping("10.0.0.2", 5), 5, "{}", controller.story());
    in_kernel(&switch, ["h1", "h2"]);

    switch.host_on("br0", "h3", "10.0.0.3/24");
    switch.ofctl(&format!("-O {name} del-flows br0"));
    for line in ["packet-in", "port h3", "removed"] {
        let is_there = || controller.lines().iter().any(|l| l == line);
        assert!(wait_until(SOON, is_there), "no {line}: {}", controller.story());
    }
    if version != 6 {
        let errors = controller.lines().iter().filter(|l| l.starts_with("error")).count();
        assert_eq!(errors, 0, "{}", controller.story());
    }
}

#[test]
fn a_program_of_os_ken_for_openflow_1_0() {
    serve("OpenFlow10", 1);
}

#[test]
fn a_program_of_os_ken_for_openflow_1_2() {
    serve("OpenFlow12", 3);
}

#[test]
fn a_program_of_os_ken_for_openflow_1_3() {
    serve("OpenFlow13", 4);
}

#[test]
fn a_program_of_os_ken_for_openflow_1_4() {
    serve("OpenFlow14", 5);
}

#[test]
fn a_program_of_os_ken_for_openflow_1_5() {
    serve("OpenFlow15", 6);
}
