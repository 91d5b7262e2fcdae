//! Plays a case on one switch, and writes down all that can be seen.

use crate::case::{Case, Step, hex};
use crate::controller::{Controller, error_of};
use crate::devices::Devices;
use crate::ground::{self, Ground};
use crate::shown::{PortCounts, port_counts, requests, shown};
use crate::wire::{Dummies, Ran, Wire};
use openflow::message::{Body, MultipartRequest};
use openflow::{PortNo, Version};
use slipswitch_tests::harness::{Kind, Mode, Switch, normalise};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{Duration, Instant};
use unixctl::client::{CallError, Connection, socket_path};

/// An answer that takes longer is none.
const PATIENCE: Duration = Duration::from_secs(20);
/// It tells of a busy machine otherwise.
const VSCTL: &str = "ovs-vsctl -vtimeval:off";
/// In this time the threads of Open vSwitch come to rest, mostly.
const REST: Duration = Duration::from_millis(10);
/// So long a process may take to end that does not answer.
const ENDING: Duration = Duration::from_secs(1);
/// Every bridge that a case may have.
pub const BRIDGES: [&str; 2] = ["br0", "br1"];

/// What was seen: of what, and the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Of what.
    pub of: String,
    /// What.
    pub text: String,
}

/// A switch that plays one case after the other.
pub struct Player {
    switch: Switch,
    control: Connection,
    wire: Box<dyn Wire + Send>,
    controllers: BTreeMap<(&'static str, u8), Controller>,
    /// What the comparison is about.
    ground: Ground,
    /// What devices had counted when the case began.
    ports: BTreeMap<&'static str, PortCounts>,
    /// Where the time went.
    pub spent: Spent,
}

/// Time that a switch took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    /// For making bridges anew.
    pub reset: Duration,
    /// For a case's steps.
    pub steps: Duration,
    /// For telling what it counted and has.
    pub summary: Duration,
}

/// Why a switch cannot play on: it is gone, or does not answer.
#[derive(Debug)]
pub struct Broken(pub String);

impl<E: std::error::Error> From<E> for Broken {
    fn from(e: E) -> Broken {
        Broken(e.to_string())
    }
}

type Result<T> = std::result::Result<T, Broken>;

impl Player {
    /// Starts a switch for a comparison over `ground`; Open vSwitch has dummies in any case.
    pub fn new(kind: Kind, ground: Ground) -> Player {
        let tier = match ground {
            Ground::Devices(tier) if kind == Kind::Slipswitch => Some(tier),
            _ => None,
        };
        let mode = if tier.is_some() { Mode::Real } else { Mode::Dummy };
        let switch = Switch::start(kind, mode);
        let dir = switch.place().dir().to_owned();
        let socket = socket_path(&dir, "ovs-vswitchd").expect("a running daemon has a pidfile");
        let mut control = Connection::open(&socket, Some(PATIENCE)).expect("a daemon listens");
        let wire: Box<dyn Wire + Send> = match tier {
            Some(tier) => Box::new(Devices::new(switch.netns(), tier)),
            None => {
                control.call::<&str>("time/stop", &[]).expect("dummy mode has it");
                Box::new(Dummies::new(&dir))
            }
        };
        let (controllers, ports) = (BTreeMap::new(), BTreeMap::new());
        Player { switch, control, wire, controllers, ground, ports, spent: Spent::default() }
    }

    /// True when the daemon has ended; waits a moment for one that is about to.
    pub fn has_crashed(&mut self) -> bool {
        slipswitch_tests::harness::wait_until(ENDING, || !self.switch.is_alive())
    }

    /// True while the daemon runs, as far as can be seen at once.
    pub fn is_alive(&mut self) -> bool {
        self.switch.is_alive()
    }

    /// Where packets ran that were sent again.
    pub fn ran(&self) -> Option<Ran> {
        self.wire.ran()
    }

    /// What the daemon has logged.
    pub fn story(&self) -> String {
        self.switch.story()
    }

    /// Plays `case` on bridges that are made for it.
    pub fn play(&mut self, case: &Case) -> Result<Vec<Seen>> {
        let mut seen = Vec::new();
        let begin = Instant::now();
        let configured = self.reset(case)?;
        let reset = Instant::now();
        seen.push(Seen { of: "ovs-vsctl".into(), text: configured });
        let mut paused = false;
        let start = case.steps.iter().take_while(|s| matches!(s, Step::Configure(_))).count();
        for (n, step) in case.steps.iter().enumerate().skip(start) {
            let packet = matches!(step, Step::Packet { .. });
            if case.burst && packet && !paused {
                self.command("revalidator/pause")?;
                paused = true;
            }
            if paused && !packet {
                self.settle()?;
                paused = false;
            }
            let text = self.step(step, case.burst)?;
            seen.push(Seen { of: format!("step {n}"), text });
        }
        if paused {
            self.settle()?;
        }
        let steps = Instant::now();
        self.summary(&mut seen)?;
        self.spent.reset += reset - begin;
        self.spent.steps += steps - reset;
        self.spent.summary += steps.elapsed();
        Ok(seen)
    }

    /// Ends a burst.
    fn settle(&mut self) -> Result<()> {
        self.command("revalidator/resume")?;
        self.command("revalidator/purge")?;
        Ok(())
    }

    /// Bridges made anew, as the case's first steps say; what `ovs-vsctl` wrote.
    fn reset(&mut self, case: &Case) -> Result<String> {
        self.controllers.clear();
        self.wire.forget();
        let gone = BRIDGES.map(|b| format!("--if-exists del-br {b}")).join(" -- ");
        let mut out = self.switch.sh(&format!(
            "{VSCTL} {gone} -- clear open_vswitch . other_config -- set open_vswitch . other_config:max-idle=1000000"
        ))
        .text();
        let mut line = self.wire.bridge();
        for step in &case.steps {
            let Step::Configure(arguments) = step else { break };
            let _ = write!(line, " -- {}", self.wire.arguments(arguments));
        }
        out += &self.switch.sh(&format!("{VSCTL} {line}")).text();
        self.wire.begin(&mut self.control, &line)?;
        self.ports = BTreeMap::new();
        for bridge in BRIDGES {
            if self.ground == Ground::Dummies {
                break;
            }
            if let Some(controller) = self.controller(bridge, Version::V13)? {
                let all = Body::MultipartRequest(MultipartRequest::Port(PortNo::NONE));
                let counts = port_counts(&controller.request(all)?, Version::V13);
                self.ports.insert(bridge, counts);
            }
        }
        Ok(out)
    }

    /// A packet, as often as it is sent here, and what comes out.
    fn packet(&mut self, port: &'static str, frame: &[u8], burst: bool) -> Result<String> {
        let mut out = String::new();
        for round in 0..self.ground.times() {
            if round > 0 && !burst {
                // What the first has changed is so for the second.
                self.pass()?;
            }
            out += &self.wire.send(&mut self.control, port, frame, round)?;
            self.process()?;
            out += &self.taken();
        }
        if !burst {
            self.command("revalidator/purge")?;
        }
        Ok(out)
    }

    fn step(&mut self, step: &Step, burst: bool) -> Result<String> {
        match step {
            Step::Configure(arguments) => {
                let arguments = self.wire.arguments(arguments);
                Ok(self.switch.sh(&format!("{VSCTL} {arguments}")).text())
            }
            Step::Flow { bridge, version, .. }
            | Step::Group { bridge, version, .. }
            | Step::Message { bridge, version, .. } => {
                let Some(controller) = self.controller(bridge, *version)? else {
                    return Ok("no such bridge".to_owned());
                };
                let xid = controller.next_xid();
                let Some(bytes) = step.message(xid) else {
                    return Ok("cannot be said".to_owned());
                };
                let answers = controller.ask(&bytes, xid)?;
                // Megaflows of before are gone.
                self.command("revalidator/purge")?;
                let text = |a: &Vec<u8>| {
                    error_of(a).unwrap_or_else(|| shown(a, *version, None).join("\n"))
                };
                Ok(answers.iter().map(text).collect::<Vec<_>>().join("\n"))
            }
            Step::Packet { port, frame } => self.packet(port, frame, burst),
            Step::Warp(ms) => {
                let text = self.ask("time/warp", &[&ms.to_string()])?;
                self.pass()?;
                // Open vSwitch tells of flows that expired when its threads have come to rest;
                // who connects before that is told, too.
                std::thread::sleep(REST);
                Ok(text)
            }
            Step::Trace { bridge, port, frame } => {
                let port = format!("in_port={port}");
                let text = self.ask("ofproto/trace", &[bridge, &port, &hex(frame)])?;
                Ok(self.clean(&text))
            }
            Step::Command(words) => {
                let (command, arguments) = words.split_first().expect("a command has a name");
                let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
                self.asked(command, &arguments)
            }
        }
    }

    /// Has megaflows looked at, and what is due done. `revalidator/wait` waits for ever in Open
    /// vSwitch while the clock stands; but revalidators pause at the start of a pass, so that
    /// between two pauses there is a whole one, behind which flows expire.
    fn pass(&mut self) -> Result<()> {
        for _ in 0..2 {
            self.command("revalidator/pause")?;
            self.command("revalidator/resume")?;
        }
        self.process()
    }

    /// Waits until a packet has been processed. A switch may answer several commands before it
    /// looks after its ports again, but it does that before it looks after OpenFlow connections.
    fn process(&mut self) -> Result<()> {
        if let Some(controller) = self.controller("br0", Version::V13)? {
            let messages = controller.request(Body::EchoRequest(Vec::new()))?;
            debug_assert_eq!(messages.len(), 1);
        }
        Ok(())
    }

    /// What came out at each port since the last time.
    fn taken(&mut self) -> String {
        let mut out = String::new();
        let ground = self.ground;
        for (port, frames) in self.wire.taken() {
            for frame in frames.iter().filter(|f| ground == Ground::Dummies || ground::carries(f)) {
                let _ = writeln!(out, "{port} {}", hex(frame));
            }
        }
        out
    }

    /// What can be seen of the switch at the end.
    fn summary(&mut self, seen: &mut Vec<Seen>) -> Result<()> {
        self.process()?;
        self.command("revalidator/purge")?;
        for bridge in BRIDGES {
            for command in ["bridge/dump-flows", "fdb/show", "fdb/stats-show", "mdb/show"] {
                let text = self.asked(command, &[bridge])?;
                let of = format!("{command} {bridge}");
                seen.push(Seen { of, text });
            }
            for version in [Version::V10, Version::V13, Version::V15] {
                let before = self.ports.get(bridge).cloned();
                let Some(controller) = self.controller(bridge, version)? else { continue };
                for (name, request) in requests(version) {
                    let answers = controller.request(Body::MultipartRequest(request))?;
                    let mut lines: Vec<String> =
                        answers.iter().flat_map(|a| shown(a, version, before.as_ref())).collect();
                    lines.sort();
                    let of = format!("{name} of {bridge} by {version}");
                    seen.push(Seen { of, text: lines.join("\n") });
                }
            }
        }
        self.unasked(seen)
    }

    /// What controllers were told of their own accord, behind what `seen` has of it. Open vSwitch
    /// tells of a flow that is gone when all its threads have come to rest once.
    pub fn unasked(&mut self, seen: &mut Vec<Seen>) -> Result<()> {
        for ((bridge, _), controller) in &mut self.controllers {
            let version = controller.version();
            let of = format!("sent to controllers of {bridge} by {version}");
            let new = controller.unasked()?;
            let at = seen.iter().position(|s| s.of == of).unwrap_or_else(|| {
                seen.push(Seen { of, text: String::new() });
                seen.len() - 1
            });
            let Some(place) = seen.get_mut(at) else { continue };
            let mut lines: Vec<String> = place.text.lines().map(str::to_owned).collect();
            lines.extend(new.iter().flat_map(|m| shown(m, version, None)));
            lines.sort();
            place.text = lines.join("\n");
        }
        Ok(())
    }

    fn controller(
        &mut self,
        bridge: &'static str,
        version: Version,
    ) -> Result<Option<&mut Controller>> {
        let key = (bridge, version.wire());
        if !self.controllers.contains_key(&key) {
            let socket = self.switch.place().file(&format!("{bridge}.mgmt"));
            if !socket.exists() {
                return Ok(None);
            }
            self.controllers.insert(key, Controller::connect(&socket, version)?);
        }
        Ok(self.controllers.get_mut(&key))
    }

    fn command(&mut self, command: &str) -> Result<()> {
        self.control.call::<&str>(command, &[])?;
        Ok(())
    }

    /// A command whose refusal is an answer, too.
    fn ask(&mut self, command: &str, arguments: &[&str]) -> Result<String> {
        match self.control.call(command, arguments) {
            Ok(text) | Err(CallError::Refused(text)) => Ok(text),
            Err(e) => Err(e.into()),
        }
    }

    /// A command's answer as far as it can be compared.
    fn asked(&mut self, command: &str, arguments: &[&str]) -> Result<String> {
        let text = self.ask(command, arguments)?;
        let mut lines: Vec<String> = self.clean(&text).lines().map(str::to_owned).collect();
        let is_aged = command == "fdb/show" && self.ground != Ground::Dummies;
        if is_aged {
            // Ages, and the order, which is theirs, are of a clock that does not stand.
            lines.iter_mut().for_each(without_last_word);
        }
        // Within a table the order of flows is that of a hash table.
        if is_aged || command == "bridge/dump-flows" {
            lines.sort();
        }
        Ok(lines.join("\n"))
    }

    fn clean(&self, text: &str) -> String {
        normalise(text, &self.switch.place().dir().display().to_string())
    }
}

fn without_last_word(line: &mut String) {
    let end = line.trim_end().rfind(' ').unwrap_or(0);
    line.truncate(end);
}
