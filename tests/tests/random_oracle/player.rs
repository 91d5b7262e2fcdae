// SPDX-License-Identifier: Apache-2.0
//! Plays a case on one switch, and writes down all that can be seen.

mod bridges;
mod summary;

use crate::case::{Case, Megaflows, Step, hex, lowers_timeouts};
use crate::controller::{Controller, error_of};
use crate::devices::Devices;
use crate::ground::{self, Ground};
use crate::outer;
use crate::profile::Profile;
use crate::shown::{PortCounts, port_counts, shown};
use crate::wire::{Dummies, MEMBERS, PORTS, Ran, Wire};
use openflow::message::{Body, MultipartRequest};
use openflow::{PortNo, Version};
use slipswitch_tests::harness::{Kind, Mode, Switch, normalise};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{Duration, Instant};
use unixctl::client::{CallError, Connection, socket_path};

/// The longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// `ovs-vsctl` without its warnings about a busy machine.
const VSCTL: &str = "ovs-vsctl -vtimeval:off";
/// Time in which the threads of Open vSwitch usually become idle.
const REST: Duration = Duration::from_millis(10);
/// Time for an unresponsive process to end.
const ENDING: Duration = Duration::from_secs(1);
/// Most frames that can wait at a dummy port.
const QUEUE: usize = 50;
/// Every bridge that a case may have.
pub const BRIDGES: [&str; 2] = ["br0", "br1"];

/// One observation: its subject and its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The subject: a port, a command or a request.
    pub of: String,
    /// The text that is compared.
    pub text: String,
}

/// A switch that plays one case after the other.
pub struct Player {
    switch: Switch,
    control: Connection,
    wire: Box<dyn Wire + Send>,
    controllers: BTreeMap<(&'static str, u8), Controller>,
    /// The kind of ports, which decides what can be compared.
    ground: Ground,
    /// The devices' counters at the start of the case.
    ports: BTreeMap<&'static str, PortCounts>,
    /// The shape of the bridges that there are, while they are good for another case.
    kept: Option<Vec<String>>,
    /// Where the time went.
    pub profile: Profile,
}

/// The bridges on which a case is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bridges {
    /// Those of the case before, emptied, where they have the same shape.
    Kept,
    /// New ones.
    Fresh,
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
        let dir = switch.sandbox().dir().to_owned();
        let socket = socket_path(&dir, "ovs-vswitchd").expect("a running daemon has a pidfile");
        let mut control = Connection::open(&socket, Some(PATIENCE)).expect("a daemon listens");
        let wire: Box<dyn Wire + Send> = match tier {
            Some(tier) => Box::new(Devices::new(switch.netns(), tier)),
            None => {
                control.call::<&str>("time/stop", &[]).expect("dummy mode has it");
                if kind == Kind::Slipswitch {
                    // As Open vSwitch 3.1: a question for each packet.
                    control.call("tnl/neigh/retrans_time", &["0"]).expect("Slipswitch has it");
                }
                Box::new(Dummies::new(&dir))
            }
        };
        let (controllers, ports) = (BTreeMap::new(), BTreeMap::new());
        let (kept, profile) = (None, Profile::default());
        Player { switch, control, wire, controllers, ground, ports, kept, profile }
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

    /// The daemon's log.
    pub fn story(&self) -> String {
        self.switch.story()
    }

    /// Plays `case`.
    pub fn play(&mut self, case: &Case, bridges: Bridges) -> Result<Vec<Seen>> {
        let mut seen = Vec::new();
        self.begin(case, bridges, &mut seen)?;
        let mut at = case.steps.iter().take_while(|s| s.making().is_some()).count();
        let lowers = lowers_timeouts(&case.steps);
        while let Some(rest) = case.steps.get(at..).filter(|rest| !rest.is_empty()) {
            at += self.some(case, at, rest, &mut seen)?;
            if lowers && matches!(rest, [Step::Packet { .. } | Step::Trace { .. }, ..]) {
                self.end_rules()?;
            }
        }
        let start = Instant::now();
        // As in a warp, of flows that were deleted.
        std::thread::sleep(if case.tells() { REST } else { Duration::ZERO });
        self.summary(&mut seen)?;
        self.profile.add("summaries", start);
        Ok(seen)
    }

    /// Plays the first of `steps`, the `at`th of the case, and following ones that can be played
    /// with it. Returns how many were played.
    fn some(
        &mut self,
        case: &Case,
        at: usize,
        steps: &[Step],
        seen: &mut Vec<Seen>,
    ) -> Result<usize> {
        let Some(first) = steps.first() else { return Ok(0) };
        let start = Instant::now();
        let is_packet = |step: &Step| matches!(step, Step::Packet { .. });
        if let Some(to) = first.receiver() {
            let count = steps.iter().take_while(|s| s.receiver() == Some(to)).count();
            self.messages(at, to, steps.get(..count).unwrap_or_default(), seen)?;
            self.profile.add("messages", start);
            return Ok(count);
        }
        if is_packet(first) && case.megaflows == Megaflows::Live {
            let count = steps.iter().take_while(|s| is_packet(s)).count();
            self.burst(at, steps.get(..count).unwrap_or_default(), packets_of(case), seen)?;
            self.profile.add("bursts", start);
            return Ok(count);
        }
        let text = self.step(first, case.megaflows)?;
        let what = match first {
            Step::Packet { .. } => packets_of(case),
            Step::Trace { .. } if case.has_tunnels() => "traces with tunnels",
            Step::Trace { .. } if case.has_bond() => "traces with a bond",
            _ => first.name(),
        };
        seen.push(Seen { of: format!("step {at} ({what})"), text });
        self.profile.add(first.name(), start);
        Ok(1)
    }

    /// Changes of flows and groups by one controller.
    fn messages(
        &mut self,
        at: usize,
        (bridge, version): (&'static str, Version),
        steps: &[Step],
        seen: &mut Vec<Seen>,
    ) -> Result<()> {
        let Some(controller) = self.controller(bridge, version)? else {
            let text = "no such bridge".to_owned();
            let none = |n| Seen { of: format!("step {n} (messages)"), text: text.clone() };
            seen.extend((at..at + steps.len()).map(none));
            return Ok(());
        };
        let mut messages = Vec::new();
        let mut said = Vec::new();
        for step in steps {
            let xid = controller.next_xid();
            let bytes = step.message(xid);
            said.push(bytes.is_some());
            messages.extend(bytes.map(|bytes| (xid, bytes)));
        }
        let mut answers = controller.ask(&messages)?.into_iter();
        let one = |a: &Vec<u8>| error_of(a).unwrap_or_else(|| shown(a, version, None).join("\n"));
        for (n, said) in said.into_iter().enumerate() {
            let text = match said {
                true => answers.next().unwrap_or_default().iter().map(one).collect::<Vec<_>>(),
                false => vec!["cannot be said".to_owned()],
            };
            seen.push(Seen { of: format!("step {} (messages)", at + n), text: text.join("\n") });
        }
        Ok(())
    }

    /// Packets while megaflows live on. Their results do not depend on earlier packets, so those of
    /// one port can be sent at once.
    fn burst(&mut self, at: usize, steps: &[Step], what: &str, seen: &mut Vec<Seen>) -> Result<()> {
        self.command("revalidator/pause")?;
        let packets = steps.iter().filter_map(|step| match step {
            Step::Packet { port, frame } => Some((*port, frame.as_slice())),
            _ => None,
        });
        if self.ground != Ground::Dummies {
            for (n, (port, frame)) in packets.enumerate() {
                let text = self.packet(port, frame, Megaflows::Live)?;
                seen.push(Seen { of: format!("step {} ({what})", at + n), text });
            }
        } else {
            let packets: Vec<_> = packets.collect();
            for port in PORTS {
                let to_port = packets.iter().filter(|(to, _)| *to == port);
                let frames: Vec<&[u8]> = to_port.map(|(_, frame)| *frame).collect();
                for frames in frames.chunks(QUEUE) {
                    let text = self.at_once(port, frames)?;
                    seen.push(Seen { of: format!("step {at} on, at {port} ({what})"), text });
                }
            }
        }
        self.command("revalidator/resume")?;
        self.command("revalidator/purge")
    }

    /// Frames that arrive at a dummy port one after the other, and the resulting output.
    fn at_once(&mut self, port: &'static str, frames: &[&[u8]]) -> Result<String> {
        let before = self.received(port)?;
        let mut arguments = vec![port.to_owned()];
        arguments.extend(frames.iter().map(|frame| hex(frame)));
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let mut out = self.ask("netdev-dummy/receive", &arguments)?;
        let start = Instant::now();
        while out.is_empty() && self.received(port)? < before + frames.len() as u64 {
            if start.elapsed() > PATIENCE {
                return Err(Broken(format!("{port} does not take {} frames", frames.len())));
            }
        }
        out += &self.taken();
        Ok(out)
    }

    /// Packets that a port has received. All of them have been processed.
    fn received(&mut self, port: &str) -> Result<u64> {
        let number = PORTS.iter().position(|p| *p == port).unwrap_or(PORTS.len()) as u32;
        let (bridge, number) = match number {
            0..4 => ("br0", number + 1),
            4 | 5 => ("br1", number - 3),
            _ => ("br0", number - 6 + MEMBERS[0]),
        };
        let Some(controller) = self.controller(bridge, Version::V13)? else { return Ok(0) };
        let number = PortNo(number);
        let request = Body::MultipartRequest(MultipartRequest::Port(number));
        let counts = port_counts(&controller.request(request)?, Version::V13);
        Ok(counts.get(&number).map_or(0, |counts| counts[0]))
    }

    /// A packet, sent as often as the ground asks for, and the resulting output.
    fn packet(&mut self, port: &'static str, frame: &[u8], megaflows: Megaflows) -> Result<String> {
        let mut out = String::new();
        for round in 0..self.ground.times() {
            if round > 0 && megaflows != Megaflows::Live {
                // The second packet meets the changes by the first.
                self.pass()?;
            }
            out += &self.wire.send(&mut self.control, port, frame, round)?;
            self.process("br0")?;
            out += &self.taken();
        }
        if megaflows == Megaflows::Purged {
            self.command("revalidator/purge")?;
        }
        Ok(out)
    }

    fn step(&mut self, step: &Step, megaflows: Megaflows) -> Result<String> {
        match step {
            Step::Configure(arguments) => {
                let arguments = self.wire.arguments(arguments);
                Ok(self.switch.sh(&format!("{VSCTL} {arguments}")).text())
            }
            Step::Flow { .. }
            | Step::Group { .. }
            | Step::Options { .. }
            | Step::Message { .. } => Err(Broken("messages are sent by controllers".to_owned())),
            Step::Packet { port, frame } => self.packet(port, frame, megaflows),
            Step::Warp(ms) => self.warp(*ms),
            Step::Trace { bridge, port, frame } => {
                let port = format!("in_port={port}");
                let text = self.ask("ofproto/trace", &[bridge, &port, &hex(frame)])?;
                // Open vSwitch's trace of a packet makes connections (docs/promises.md).
                self.command("dpctl/flush-conntrack")?;
                Ok(self.clean(&text))
            }
            Step::Underlay(lines) => {
                let mut text = String::new();
                for line in lines {
                    let mut words = line.split(' ');
                    let command = words.next().unwrap_or_default();
                    let _ = writeln!(text, "{}", self.ask(command, &words.collect::<Vec<_>>())?);
                }
                // Addresses and routes are in force after a turn.
                self.turn()?;
                Ok(text)
            }
            Step::Command(words) => {
                let (command, arguments) = words.split_first().expect("a command has a name");
                let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
                self.asked(command, &arguments)
            }
        }
    }

    /// Lets time go by. Open vSwitch reports expired flows when its threads are idle again, also to
    /// controllers that connect before that, so this waits.
    fn warp(&mut self, ms: u32) -> Result<String> {
        let before = self.flows_to_tell_of()?;
        let told: Vec<usize> = self
            .controllers
            .values()
            .filter(|c| c.version() == Version::V13)
            .map(Controller::told)
            .collect();
        let text = self.ask("time/warp", &[&ms.to_string()])?;
        self.pass()?;
        let now = self.flows_to_tell_of()?;
        for (((bridge, before), (_, now)), told) in before.into_iter().zip(now).zip(told) {
            if let Some(controller) = self.controller(bridge, Version::V13)? {
                controller.await_told(told + before.saturating_sub(now))?;
            }
        }
        Ok(text)
    }

    /// Makes the switch revalidate, and do what is due. `revalidator/wait` waits for ever in Open
    /// vSwitch while the clock stands; but revalidators pause at the start of a pass, so there is a
    /// whole pass between two pauses, after which flows expire.
    fn pass(&mut self) -> Result<()> {
        self.turn()?;
        self.commands(&["revalidator/pause", "revalidator/resume"].repeat(2))?;
        self.process("br0")
    }

    /// Makes the switch remove expired rules: Open vSwitch removes them after a pass, Slipswitch
    /// also after a purge.
    fn end_rules(&mut self) -> Result<()> {
        self.command("revalidator/purge")?;
        self.pass()
    }

    /// Waits for the next turn of the main loop. Open vSwitch's revalidators see learned addresses
    /// one turn after a bridge has learned them. A turn may answer any number of OpenFlow requests
    /// in sequence, but commands only at its end: a request after a command belongs to another
    /// turn.
    fn turn(&mut self) -> Result<()> {
        self.command("version")?;
        self.process("br0")
    }

    /// Waits until a packet has been processed. A switch may answer several commands before it
    /// looks after its ports again, but it does that before it looks after OpenFlow connections.
    fn process(&mut self, bridge: &'static str) -> Result<()> {
        if let Some(controller) = self.controller(bridge, Version::V13)? {
            let messages = controller.request(Body::EchoRequest(Vec::new()))?;
            debug_assert_eq!(messages.len(), 1);
        }
        Ok(())
    }

    /// The frames that each port has sent since the last call.
    fn taken(&mut self) -> String {
        let mut out = String::new();
        let ground = self.ground;
        for (port, frames) in self.wire.taken() {
            for frame in frames.iter().filter(|f| ground == Ground::Dummies || ground::carries(f)) {
                let _ = writeln!(out, "{port} {}", outer::compared(frame));
            }
        }
        out
    }

    fn controller(
        &mut self,
        bridge: &'static str,
        version: Version,
    ) -> Result<Option<&mut Controller>> {
        let key = (bridge, version.wire());
        if !self.controllers.contains_key(&key) {
            let socket = self.switch.sandbox().file(&format!("{bridge}.mgmt"));
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

    /// Commands without arguments, which have to succeed.
    fn commands(&mut self, commands: &[&str]) -> Result<()> {
        for command in commands {
            self.control.send::<&str>(command, &[])?;
        }
        for _ in commands {
            self.control.receive()?;
        }
        Ok(())
    }

    /// A command's answer as far as it can be compared.
    fn asked(&mut self, command: &str, arguments: &[&str]) -> Result<String> {
        let text = self.ask(command, arguments)?;
        Ok(self.compared(command, &text))
    }

    /// As much of a command's answer as can be compared.
    fn compared(&self, command: &str, text: &str) -> String {
        let mut lines: Vec<String> = self.clean(text).lines().map(str::to_owned).collect();
        let is_aged = matches!(command, "fdb/show" | "mdb/show") && self.ground != Ground::Dummies;
        if is_aged {
            // Ages, and the order, which is theirs, are of a clock that does not stand.
            lines.iter_mut().for_each(without_last_word);
        }
        // Within a table the order of flows is that of a hash table, and so is that of connections.
        if is_aged || matches!(command, "bridge/dump-flows" | "dpctl/dump-conntrack" | "mdb/show") {
            lines.sort();
        }
        lines.join("\n")
    }

    fn clean(&self, text: &str) -> String {
        normalise(text, &self.switch.sandbox().dir().display().to_string())
    }
}

/// The name of a case's packets in differences: packets that may reach another bridge have more
/// known differences.
fn packets_of(case: &Case) -> &'static str {
    match (case.has_tunnels(), case.joins_bridges()) {
        (true, _) => "packets through tunnels",
        (_, true) => "packets between bridges",
        _ => "packets",
    }
}

fn without_last_word(line: &mut String) {
    let end = line.trim_end().rfind(' ').unwrap_or(0);
    line.truncate(end);
}
