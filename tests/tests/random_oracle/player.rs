//! Plays a case on one switch, and writes down all that can be seen.

use crate::case::{Case, Step, hex, protocol};
use crate::controller::{Controller, error_of};
use crate::wire::{Dummies, Wire};
use openflow::PortNo;
use openflow::Version;
use openflow::message::{
    Body, FlowStatsRequest, GROUP_ALL, GROUP_ANY, Message, MultipartReply, MultipartRequest,
    PortStats, TABLE_ALL,
};
use slipswitch_tests::harness::{Kind, Mode, Switch, dummy_bridge_line, normalise};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;
use unixctl::client::{CallError, Connection, socket_path};

/// An answer that takes longer is none.
const PATIENCE: Duration = Duration::from_secs(20);
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
    /// Starts a switch.
    pub fn new(kind: Kind) -> Player {
        let switch = Switch::start(kind, Mode::Dummy);
        let dir = switch.place().dir().to_owned();
        let socket = socket_path(&dir, "ovs-vswitchd").expect("a running daemon has a pidfile");
        let mut control = Connection::open(&socket, Some(PATIENCE)).expect("a daemon listens");
        control.call::<&str>("time/stop", &[]).expect("dummy mode has it");
        let wire = Box::new(Dummies::new(&dir));
        Player { switch, control, wire, controllers: BTreeMap::new() }
    }

    /// What the daemon has logged.
    pub fn story(&self) -> String {
        self.switch.story()
    }

    /// Plays `case` on bridges that are made for it.
    pub fn play(&mut self, case: &Case) -> Result<Vec<Seen>> {
        let mut seen = Vec::new();
        let configured = self.reset(case);
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
            let text = self.step(step)?;
            if packet {
                self.process()?;
            }
            if packet && !case.burst {
                self.command("revalidator/purge")?;
            }
            let text = if packet { text + &self.taken()? } else { text };
            seen.push(Seen { of: format!("step {n}"), text });
        }
        if paused {
            self.settle()?;
        }
        self.summary(&mut seen)?;
        Ok(seen)
    }

    /// Ends a burst.
    fn settle(&mut self) -> Result<()> {
        self.command("revalidator/resume")?;
        self.command("revalidator/purge")?;
        Ok(())
    }

    /// Bridges made anew, as the case's first steps say; what `ovs-vsctl` wrote.
    fn reset(&mut self, case: &Case) -> String {
        self.controllers.clear();
        self.wire.forget();
        let gone = BRIDGES.map(|b| format!("--if-exists del-br {b}")).join(" -- ");
        let mut out = self.switch.sh(&format!(
            "ovs-vsctl {gone} -- clear open_vswitch . other_config -- set open_vswitch . other_config:max-idle=1000000"
        ))
        .text();
        let mut line = dummy_bridge_line("br0", 4);
        for step in &case.steps {
            let Step::Configure(arguments) = step else { break };
            let _ = write!(line, " -- {arguments}");
        }
        out += &self.switch.sh(&format!("ovs-vsctl {line}")).text();
        out
    }

    fn step(&mut self, step: &Step) -> Result<String> {
        match step {
            Step::Configure(arguments) => {
                Ok(self.switch.sh(&format!("ovs-vsctl {arguments}")).text())
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
                let text =
                    |a: &Vec<u8>| error_of(a).unwrap_or_else(|| shown(a, *version).join("\n"));
                Ok(answers.iter().map(text).collect::<Vec<_>>().join("\n"))
            }
            Step::Packet { port, frame } => match self.wire.send(&mut self.control, port, frame) {
                Ok(()) => Ok(String::new()),
                Err(CallError::Refused(words)) => Ok(words),
                Err(e) => Err(e.into()),
            },
            Step::Warp(ms) => {
                let text = self.ask("time/warp", &[&ms.to_string()])?;
                // What is due is done in the turns that follow, by OVS in several.
                for _ in 0..3 {
                    self.process()?;
                    std::thread::sleep(Duration::from_millis(5));
                }
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
                let text = self.ask(command, &arguments)?;
                Ok(self.clean(&text))
            }
        }
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
    fn taken(&mut self) -> Result<String> {
        let mut out = String::new();
        for (port, frames) in self.wire.taken() {
            for frame in frames {
                let _ = writeln!(out, "{port} {}", hex(&frame));
            }
        }
        Ok(out)
    }

    /// What can be seen of the switch at the end.
    fn summary(&mut self, seen: &mut Vec<Seen>) -> Result<()> {
        self.process()?;
        self.command("revalidator/purge")?;
        let mut add = |of: String, text: String| seen.push(Seen { of, text });
        for bridge in BRIDGES {
            for command in ["bridge/dump-flows", "fdb/show", "fdb/stats-show", "mdb/show"] {
                let text = self.ask(command, &[bridge])?;
                let mut lines: Vec<String> = self.clean(&text).lines().map(str::to_owned).collect();
                if command == "bridge/dump-flows" {
                    // Within a table the order is that of a hash table.
                    lines.sort();
                }
                add(format!("{command} {bridge}"), lines.join("\n"));
            }
            for version in [Version::V10, Version::V13, Version::V15] {
                let Some(controller) = self.controller(bridge, version)? else { continue };
                for (name, request) in requests(version) {
                    let answers = controller.request(Body::MultipartRequest(request))?;
                    let mut lines: Vec<String> =
                        answers.iter().flat_map(|a| shown(a, version)).collect();
                    lines.sort();
                    add(format!("{name} of {bridge} by {version}"), lines.join("\n"));
                }
            }
        }
        for ((bridge, _), controller) in &mut self.controllers {
            let version = controller.version();
            let mut lines: Vec<String> =
                controller.unasked()?.iter().flat_map(|m| shown(m, version)).collect();
            lines.sort();
            add(format!("sent to controllers of {bridge} by {version}"), lines.join("\n"));
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

    fn clean(&self, text: &str) -> String {
        normalise(text, &self.switch.place().dir().display().to_string())
    }
}

fn requests(version: Version) -> Vec<(&'static str, MultipartRequest)> {
    let all = FlowStatsRequest {
        matching: flow::Match::ANY,
        cookie: 0,
        cookie_mask: 0,
        out_port: PortNo::NONE,
        out_group: GROUP_ANY,
        table_id: TABLE_ALL,
        nicira: version == Version::V10,
    };
    let flows = ("flows", MultipartRequest::Flow(Box::new(all.clone())));
    match version {
        Version::V10 => vec![flows],
        Version::V13 => vec![
            flows,
            ("totals", MultipartRequest::Aggregate(Box::new(all))),
            ("tables", MultipartRequest::Table),
            ("ports", MultipartRequest::Port(PortNo::NONE)),
            ("group statistics", MultipartRequest::Group(GROUP_ALL)),
        ],
        _ => vec![flows, ("groups", MultipartRequest::GroupDesc(GROUP_ALL))],
    }
}

/// What a message says, an entry to a line, without times.
fn shown(bytes: &[u8], version: Version) -> Vec<String> {
    let message = match Message::decode(bytes, &protocol(version)) {
        Ok(message) => message,
        Err(e) => return vec![e.to_string()],
    };
    match message.body {
        Body::MultipartReply { reply, .. } => entries(reply),
        Body::FlowRemoved(mut removed) => {
            removed.duration = Duration::ZERO;
            vec![format!("{removed:?}")]
        }
        body => vec![format!("{body:?}")],
    }
}

fn entries(reply: MultipartReply) -> Vec<String> {
    let mut out = Vec::new();
    match reply {
        MultipartReply::Flow { flows, .. } => {
            for f in flows {
                let matching = flow::text::format_match(&f.matching, &flow::text::no_names);
                let actions = openflow::text::format_actions(&f.actions, &flow::text::no_names);
                out.push(format!(
                    "table={} priority={} {matching} cookie={:#x} idle={} hard={} importance={} {:?} packets={} bytes={} {actions} {:?}",
                    f.table_id, f.priority, f.cookie, f.idle_timeout, f.hard_timeout, f.importance,
                    f.flags, f.packet_count, f.byte_count, f.matching.mask().0.vlans,
                ));
            }
        }
        MultipartReply::Table(tables) => {
            let used = tables.into_iter().filter(|t| t.lookup_count != 0 || t.active_count != 0);
            out.extend(used.map(|t| format!("{t:?}")));
        }
        MultipartReply::Port(ports) => out.extend(ports.into_iter().map(|mut p| {
            p.duration = None;
            // Slipswitch's dummies count frames that are too long for them, OVS's do not.
            p.tx_dropped = u64::MAX;
            let counts = [p.rx_packets, p.rx_bytes, p.tx_packets, p.tx_bytes];
            let rest = PortStats { rx_packets: 0, rx_bytes: 0, tx_packets: 0, tx_bytes: 0, ..p };
            let none = PortStats {
                rx_packets: 0,
                rx_bytes: 0,
                tx_packets: 0,
                tx_bytes: 0,
                ..PortStats::unknown(rest.port_no)
            };
            let others = if rest == none { String::new() } else { format!("{rest:?}") };
            format!("{} {counts:?} {others}", rest.port_no)
        })),
        MultipartReply::Group(groups) => out.extend(groups.into_iter().map(|mut g| {
            g.duration = Duration::ZERO;
            format!("{g:?}")
        })),
        MultipartReply::GroupDesc(groups) => {
            out.extend(groups.into_iter().map(|g| format!("{g:?}")))
        }
        other => out.push(format!("{other:?}")),
    }
    out
}
