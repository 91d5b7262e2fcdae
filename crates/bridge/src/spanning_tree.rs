// SPDX-License-Identifier: Apache-2.0
//! The spanning tree of a bridge: joins the machine of the crate `protocols` with ports.
//!
//! The machine runs on the thread of the control protocols ([`crate::protocol`]). The control thread
//! configures it, and takes over the states of its ports (`SpanningTree::take_changes`): only
//! then do packets see them. A port without a place in the tree is as on a bridge without a tree,
//! except that BPDUs end at it.

use crate::protocol::{Protocol, Round};
use clock::{Millis, OncePer};
use flow::extract::DL_TYPE_NONE;
use flow::{Field, Key, Mask};
use openflow::PortNo;
use packet::build::Frame;
use packet::{Packet, ethertype};
use protocols::spanning_tree::DESTINATION;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use protocols::spanning_tree::{BridgeId, PortState, Role, bridge_parts};
pub use protocols::{rstp, stp};

/// Number of a port in a tree. STP has numbers up to 255, RSTP up to 4095.
pub type PortNumber = u16;

/// Bytes of an Ethernet header, and of a VLAN header.
const ETHERNET_LEN: usize = 14;
const VLAN_LEN: usize = 4;

/// Warnings about ports without an address.
static ADDRESS_WARNING: OncePer = OncePer::new(Duration::from_secs(5));

/// Returns true for a BPDU, by destination and by the lack of an Ethernet type.
pub(crate) fn is_bpdu(key: &Key) -> bool {
    key.dl_type.get() == DL_TYPE_NONE && key.dl_dst == DESTINATION
}

/// The protocol of a spanning tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeKind {
    /// IEEE 802.1D-1998.
    Stp,
    /// IEEE 802.1D-2004.
    Rstp,
}

impl TreeKind {
    /// Returns the name of the protocol.
    pub fn name(self) -> &'static str {
        match self {
            TreeKind::Stp => "STP",
            TreeKind::Rstp => "RSTP",
        }
    }
}

/// Settings of a bridge in its spanning tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settings {
    /// Those of STP.
    Stp(stp::Settings),
    /// Those of RSTP.
    Rstp(rstp::Settings),
}

impl Settings {
    /// Returns the protocol.
    pub fn kind(&self) -> TreeKind {
        match self {
            Settings::Stp(_) => TreeKind::Stp,
            Settings::Rstp(_) => TreeKind::Rstp,
        }
    }
}

/// The spanning tree that the database asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeSettings {
    /// Settings of the bridge.
    pub bridge: Settings,
    /// Ports that take part, by the name of the interface.
    pub ports: BTreeMap<String, TreePortSettings>,
}

/// A port's settings in the spanning tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreePortSettings {
    /// Number of the port in the tree.
    pub number: PortNumber,
    /// Priority: the highest bits of the port's identifier.
    pub priority: u8,
    /// Cost of a path through the port; `None` derives it from the speed of the link.
    pub cost: Option<u32>,
    /// RSTP: the port leads to a host.
    pub is_admin_edge: bool,
    /// RSTP: a port without a neighbour is taken as one that leads to a host.
    pub is_auto_edge: bool,
    /// RSTP: the link has two ends.
    pub is_point_to_point: bool,
    /// RSTP: the port may take part; else it counts as one without a link.
    pub is_admin_up: bool,
    /// RSTP: the neighbour is asked again whether it speaks RSTP, once this becomes true.
    pub checks_migration: bool,
}

/// A port that takes part in the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TreePort {
    pub port: PortNo,
    pub name: String,
    pub settings: TreePortSettings,
    /// Speed of the link in bits per second, where it is known.
    pub speed_bps: Option<u64>,
    pub mac: [u8; 6],
    pub has_link: bool,
}

/// Changes that the control thread takes over.
#[derive(Debug)]
pub(crate) struct Changes {
    /// Learned addresses and groups are to be forgotten.
    pub flush: bool,
    /// Ports whose addresses are to be forgotten.
    pub flushed_ports: BTreeSet<PortNo>,
}

/// State of the tree, for texts.
#[derive(Clone, Debug)]
pub struct Report {
    /// The protocol.
    pub kind: TreeKind,
    /// Identifier of this bridge.
    pub id: BridgeId,
    /// The best vector: the root, the cost of the path to it, and the bridge and the port that lead to
    /// it. STP has no bridge and ports here.
    pub root: rstp::Vector,
    /// Name of the port that leads to the root; `None` for the root itself.
    pub root_port: Option<String>,
    /// Times that Open vSwitch shows with the root: hello time, highest age, forward delay, in seconds.
    pub root_times: [u32; 3],
    /// Times that Open vSwitch shows with the bridge.
    pub bridge_times: [u32; 3],
    /// The ports, by number.
    pub ports: Vec<PortReport>,
}

/// State of a port in the tree, for texts.
#[derive(Clone, Debug)]
pub struct PortReport {
    /// Name of the interface.
    pub name: String,
    /// Number of the port in the tree.
    pub number: PortNumber,
    /// Its priority.
    pub priority: u8,
    /// Identifier: priority, then number.
    pub id: u16,
    /// Role of the port.
    pub role: Role,
    /// State of the port.
    pub state: PortState,
    /// Cost of a path through the port.
    pub cost: u32,
    /// When the port entered its state.
    pub entered: Millis,
    /// BPDUs sent, received, and received with errors.
    pub counts: [u64; 3],
    /// RSTP: the vector in force on the LAN.
    pub vector: rstp::Vector,
    /// RSTP: seconds since the port was added.
    pub uptime: u64,
}

/// The machine of a bridge.
#[derive(Debug)]
enum Machine {
    Stp(stp::Bridge),
    Rstp(rstp::Bridge),
}

/// Work that a machine leaves, by numbers of ports in the tree.
#[derive(Debug, Default)]
struct Work {
    /// BPDUs with the LLC header.
    bpdus: Vec<(PortNumber, Vec<u8>)>,
    /// All addresses are to be forgotten.
    flush: bool,
    /// The addresses of these ports are to be forgotten.
    flushed: Vec<PortNumber>,
    /// A port has another state.
    has_state: bool,
}

/// The spanning tree of one bridge. Any thread may use it.
#[derive(Debug)]
pub struct SpanningTree(Mutex<State>);

#[derive(Debug)]
struct State {
    /// Name of the bridge, for the log.
    bridge: String,
    machine: Machine,
    members: Vec<Member>,
    /// All addresses are to be forgotten.
    flush: bool,
    /// The addresses of these ports are to be forgotten.
    flushed_ports: BTreeSet<PortNo>,
    /// BPDUs to send.
    queue: Vec<(PortNumber, Vec<u8>)>,
    /// There is something for the control thread.
    is_changed: bool,
}

#[derive(Debug)]
struct Member {
    wanted: TreePort,
    /// State that the control thread has taken over.
    known: PortState,
    entered: Millis,
}

impl SpanningTree {
    /// Returns the tree of the bridge called `name`, without ports.
    pub(crate) fn new(name: &str, settings: &Settings, now: Millis) -> SpanningTree {
        let machine = match settings {
            Settings::Stp(settings) => Machine::Stp(stp::Bridge::new(*settings, now)),
            Settings::Rstp(settings) => Machine::Rstp(rstp::Bridge::new(*settings, now)),
        };
        SpanningTree(Mutex::new(State {
            bridge: name.to_owned(),
            machine,
            members: Vec::new(),
            flush: false,
            flushed_ports: BTreeSet::new(),
            queue: Vec::new(),
            is_changed: false,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner) // no operation panics midway
    }

    /// Returns the protocol.
    pub fn kind(&self) -> TreeKind {
        self.lock().machine.kind()
    }

    /// Sets the settings and the ports. Returns true when [`Protocol::run`] is due. The protocol of
    /// `settings` must be the tree's.
    pub(crate) fn configure(&self, settings: &Settings, ports: Vec<TreePort>, now: Millis) -> bool {
        let mut state = self.lock();
        let is_same = state.members.iter().map(|m| &m.wanted).eq(&ports);
        state.machine.configure(settings, now);
        if !is_same {
            state.configure_ports(ports, now);
        }
        state.collect();
        !state.queue.is_empty() || state.is_changed || !is_same
    }

    /// Returns the changes since the last call: from now on packets see them.
    pub(crate) fn take_changes(&self, now: Millis) -> Changes {
        let mut state = self.lock();
        let State { machine, members, flush, flushed_ports, .. } = &mut *state;
        let kind = machine.kind();
        for member in members {
            let present = machine.state(member.wanted.settings.number).unwrap_or_default();
            let before = std::mem::replace(&mut member.known, present);
            if before == present {
                continue;
            }
            tracing::debug!(
                target: "ofproto_dpif",
                "port {}: {} state changed from {} to {}",
                member.wanted.name, kind.name(), kind.state_name(before), kind.state_name(present)
            );
            member.entered = now;
            if before.learns() != present.learns() {
                match kind {
                    TreeKind::Stp => *flush = true,
                    TreeKind::Rstp => _ = flushed_ports.insert(member.wanted.port),
                }
            }
        }
        Changes { flush: std::mem::take(flush), flushed_ports: std::mem::take(flushed_ports) }
    }

    /// Returns the state of a port that the control thread has taken over; `None` for a port that is
    /// not in the tree.
    pub(crate) fn state_of(&self, port: PortNo) -> Option<PortState> {
        self.lock().members.iter().find(|m| m.wanted.port == port).map(|m| m.known)
    }

    /// Acts as if the topology had changed (`stp/tcn`, `rstp/tcn`).
    /// [`crate::protocol::Protocols::wake`] must follow.
    pub fn force_topology_change(&self, now: Millis) {
        let mut state = self.lock();
        match &mut state.machine {
            Machine::Stp(machine) => machine.force_topology_change(now),
            Machine::Rstp(machine) => machine.run_machines(),
        }
        state.collect();
    }

    /// Returns the state for texts.
    pub fn report(&self) -> Report {
        let state = self.lock();
        let by_number: BTreeMap<PortNumber, &Member> =
            state.members.iter().map(|m| (m.wanted.settings.number, m)).collect();
        let name = |number: PortNumber| by_number.get(&number).map(|m| m.wanted.name.clone());
        let seconds =
            |(hello, age, delay): (u32, u32, u32)| [hello, age, delay].map(|ms| ms / 1000);
        let ports =
            by_number.iter().filter_map(|(number, m)| state.machine.port_report(*number, m));
        let ports = ports.collect();
        match &state.machine {
            Machine::Stp(machine) => {
                let (root, cost) = machine.root();
                Report {
                    kind: TreeKind::Stp,
                    id: machine.id(),
                    root: rstp::Vector { root, cost, ..rstp::Vector::default() },
                    root_port: machine.root_port().and_then(|n| name(n.into())),
                    root_times: seconds(machine.own_times()),
                    bridge_times: seconds(machine.times()),
                    ports,
                }
            }
            Machine::Rstp(machine) => {
                let times =
                    |t: rstp::Times| [t.hello_time, t.max_age, t.forward_delay].map(u32::from);
                Report {
                    kind: TreeKind::Rstp,
                    id: machine.id(),
                    root: *machine.root(),
                    root_port: machine.root_port().and_then(name),
                    // As in Open vSwitch, the hello time is the bridge's own.
                    root_times: times(rstp::Times {
                        hello_time: machine.own_times().hello_time,
                        ..machine.root_times()
                    }),
                    bridge_times: times(machine.own_times()),
                    ports,
                }
            }
        }
    }
}

impl TreeKind {
    /// Returns the name of a state as the protocol's command and columns have it.
    pub fn state_name(self, state: PortState) -> &'static str {
        match (self, state) {
            (TreeKind::Rstp, PortState::Disabled) => "Disabled",
            (TreeKind::Rstp, PortState::Discarding) => "Discarding",
            (TreeKind::Rstp, PortState::Learning) => "Learning",
            (TreeKind::Rstp, PortState::Forwarding) => "Forwarding",
            (TreeKind::Stp, _) | (_, PortState::Blocking | PortState::Listening) => state.name(),
        }
    }

    /// Returns the name of a role as the protocol's command and columns have it.
    pub fn role_name(self, role: Role) -> &'static str {
        match (self, role) {
            (TreeKind::Stp, _) => role.name(),
            (TreeKind::Rstp, Role::Root) => "Root",
            (TreeKind::Rstp, Role::Designated) => "Designated",
            (TreeKind::Rstp, Role::Alternate) => "Alternate",
            (TreeKind::Rstp, Role::Backup) => "Backup",
            (TreeKind::Rstp, Role::Disabled) => "Disabled",
        }
    }
}

/// Returns a number that a machine of STP has, whose ports have 8 bits.
fn short(number: PortNumber) -> u8 {
    u8::try_from(number).unwrap_or(u8::MAX)
}

impl Machine {
    fn kind(&self) -> TreeKind {
        match self {
            Machine::Stp(_) => TreeKind::Stp,
            Machine::Rstp(_) => TreeKind::Rstp,
        }
    }

    fn configure(&mut self, settings: &Settings, now: Millis) {
        match (self, settings) {
            (Machine::Stp(machine), Settings::Stp(settings)) => machine.configure(*settings, now),
            (Machine::Rstp(machine), Settings::Rstp(settings)) => machine.configure(*settings),
            (machine, settings) => debug_assert_eq!(machine.kind(), settings.kind()),
        }
    }

    fn state(&self, number: PortNumber) -> Option<PortState> {
        match self {
            Machine::Stp(machine) => machine.ports().get(&short(number)).map(|p| p.state),
            Machine::Rstp(machine) => machine.ports().get(&number).map(|p| p.state()),
        }
    }

    fn remove_port(&mut self, number: PortNumber, now: Millis) {
        match self {
            Machine::Stp(machine) => machine.remove_port(short(number), now),
            Machine::Rstp(machine) => machine.remove_port(number),
        }
    }

    /// Adds or changes a port. `must_check`: its neighbour is asked again whether it speaks RSTP.
    fn set_port(&mut self, wanted: &TreePort, must_check: bool, now: Millis) {
        let settings = &wanted.settings;
        match self {
            Machine::Stp(machine) => {
                let number = short(settings.number);
                let cost = settings.cost.unwrap_or_else(|| stp_cost(wanted.speed_bps));
                machine.add_port(number);
                machine.configure_port(number, settings.priority, cost, now);
                match wanted.has_link {
                    true => machine.enable(number, now),
                    false => machine.disable(number, now),
                }
            }
            Machine::Rstp(machine) => {
                let port = rstp::PortSettings {
                    priority: settings.priority,
                    cost: settings.cost.unwrap_or_else(|| rstp_cost(wanted.speed_bps)),
                    is_admin_edge: settings.is_admin_edge,
                    is_auto_edge: settings.is_auto_edge,
                    is_point_to_point: settings.is_point_to_point,
                };
                machine.configure_port(settings.number, port);
                machine.set_link(settings.number, wanted.has_link && settings.is_admin_up);
                if must_check {
                    machine.check_migration(settings.number);
                }
            }
        }
    }

    /// Takes the payload of a frame. Returns the text of an error, which the machine has counted.
    fn receive(&mut self, number: PortNumber, payload: &[u8], now: Millis) -> Result<(), String> {
        match self {
            Machine::Stp(machine) => match stp::Bpdu::decode(payload) {
                Ok(bpdu) => machine.receive(short(number), &bpdu, now),
                Err(error) => {
                    machine.count_error(short(number));
                    return Err(error.to_string());
                }
            },
            Machine::Rstp(machine) => match rstp::Bpdu::decode(payload) {
                Ok(bpdu) => machine.receive(number, &bpdu),
                Err(error) => {
                    machine.count_error(number);
                    return Err(error.to_string());
                }
            },
        }
        Ok(())
    }

    fn run(&mut self, now: Millis) {
        match self {
            Machine::Stp(machine) => machine.run(now),
            Machine::Rstp(machine) => machine.run(now),
        }
    }

    fn deadline(&self) -> Option<Millis> {
        match self {
            Machine::Stp(machine) => machine.deadline(),
            Machine::Rstp(machine) => machine.deadline(),
        }
    }

    fn take_work(&mut self) -> Work {
        let mut work = Work::default();
        match self {
            Machine::Stp(machine) => {
                for output in machine.take_output() {
                    match output {
                        stp::Output::Send(number, bpdu) => {
                            work.bpdus.push((number.into(), bpdu.encode()));
                        }
                        stp::Output::State(..) => work.has_state = true,
                        stp::Output::Flush => work.flush = true,
                    }
                }
            }
            Machine::Rstp(machine) => {
                for output in machine.take_output() {
                    match output {
                        rstp::Output::Send(number, bpdu) => {
                            work.bpdus.push((number, bpdu.encode()));
                        }
                        rstp::Output::State(..) => work.has_state = true,
                        rstp::Output::Flush(number) => work.flushed.push(number),
                    }
                }
            }
        }
        work
    }

    fn port_report(&self, number: PortNumber, member: &Member) -> Option<PortReport> {
        let name = member.wanted.name.clone();
        let priority = member.wanted.settings.priority;
        let entered = member.entered;
        Some(match self {
            Machine::Stp(machine) => {
                let port = machine.ports().get(&short(number))?;
                PortReport {
                    name,
                    number,
                    priority,
                    id: port.id,
                    role: machine.shown_role(short(number)),
                    state: port.state,
                    cost: port.cost,
                    entered,
                    counts: port.counts,
                    vector: rstp::Vector::default(),
                    uptime: 0,
                }
            }
            Machine::Rstp(machine) => {
                let port = machine.ports().get(&number)?;
                PortReport {
                    name,
                    number,
                    priority,
                    id: port.id,
                    role: port.role,
                    state: port.state(),
                    cost: port.settings.cost,
                    entered,
                    counts: [port.transmitted, port.received, port.errors],
                    vector: port.priority,
                    uptime: port.uptime,
                }
            }
        })
    }
}

impl State {
    fn configure_ports(&mut self, ports: Vec<TreePort>, now: Millis) {
        let mut old = std::mem::take(&mut self.members);
        for member in &old {
            let (port, number) = (member.wanted.port, member.wanted.settings.number);
            if !ports.iter().any(|p| (p.port, p.settings.number) == (port, number)) {
                self.machine.remove_port(number, now);
                self.flush |= member.known.learns();
                self.is_changed = true;
            }
        }
        for wanted in ports {
            let at = old.iter().position(|m| m.wanted.port == wanted.port);
            let member = at.map(|at| old.swap_remove(at));
            let had_check = member.as_ref().is_some_and(|m| m.wanted.settings.checks_migration);
            let must_check = wanted.settings.checks_migration && !had_check;
            self.machine.set_port(&wanted, must_check, now);
            let (known, entered) =
                member.map_or((PortState::Disabled, now), |m| (m.known, m.entered));
            self.members.push(Member { wanted, known, entered });
        }
    }

    /// Takes over the work of the machine.
    fn collect(&mut self) {
        let work = self.machine.take_work();
        self.queue.extend(work.bpdus);
        self.flush |= work.flush;
        let State { members, flushed_ports, .. } = self;
        let is_flushed = |m: &&Member| work.flushed.contains(&m.wanted.settings.number);
        flushed_ports.extend(members.iter().filter(is_flushed).map(|m| m.wanted.port));
        self.is_changed |= work.has_state || work.flush || !work.flushed.is_empty();
    }

    fn frame(&self, number: PortNumber, payload: &[u8], now: Millis) -> Option<(PortNo, Packet)> {
        let member = self.members.iter().find(|m| m.wanted.settings.number == number)?;
        let TreePort { port, mac, .. } = &member.wanted;
        if *mac == [0; 6] {
            if ADDRESS_WARNING.is_due(now) {
                let bridge = &self.bridge;
                match self.machine.kind() {
                    TreeKind::Stp => tracing::warn!(
                        target: "ofproto_dpif",
                        "{bridge}: cannot send BPDU on port {} with unknown MAC",
                        number - 1
                    ),
                    TreeKind::Rstp => tracing::warn!(
                        target: "ofproto_dpif",
                        "{bridge} port {port}: cannot send RSTP BPDU on a port which does not have a \
                         configured source MAC address."
                    ),
                }
            }
            return None;
        }
        let len = u16::try_from(payload.len()).unwrap_or(u16::MAX);
        let frame = Frame::ethernet(DESTINATION, *mac).ethertype(len).payload(payload);
        Some((*port, frame.packet()))
    }
}

impl Protocol for SpanningTree {
    fn reason(&self) -> &'static str {
        "stp" // for both protocols
    }

    fn claims(&self, key: &Key, mask: &mut Mask) -> bool {
        mask.set_exact(Field::EthDst);
        key.packet_type.get() == 0 && is_bpdu(key)
    }

    fn receive(&self, port: PortNo, packet: &Packet, now: Millis) -> bool {
        let mut state = self.lock();
        let State { machine, members, bridge, .. } = &mut *state;
        let Some(member) = members.iter().find(|m| m.wanted.port == port) else { return false };
        if !member.wanted.has_link {
            return false;
        }
        let payload = payload(packet.data());
        if let Err(error) = machine.receive(member.wanted.settings.number, payload, now) {
            tracing::debug!(target: "stp", "{bridge}: received a bad BPDU ({error})");
        }
        true
    }

    fn run(&self, now: Millis) -> Round {
        let mut state = self.lock();
        state.machine.run(now);
        state.collect();
        let queue = std::mem::take(&mut state.queue);
        let frames =
            queue.iter().filter_map(|(number, bpdu)| state.frame(*number, bpdu, now)).collect();
        let is_changed = std::mem::take(&mut state.is_changed);
        Round { frames, next: state.machine.deadline(), is_changed }
    }
}

/// Returns the bytes of a frame that its length field counts. A VLAN header may be in front of it.
fn payload(frame: &[u8]) -> &[u8] {
    let is_tagged = frame.get(12..14) == Some(&ethertype::VLAN.to_be_bytes());
    let header_len = if is_tagged { ETHERNET_LEN + VLAN_LEN } else { ETHERNET_LEN };
    let Some((header, rest)) = frame.split_at_checked(header_len) else { return &[] };
    let len = match header {
        [.., a, b] => usize::from(u16::from_be_bytes([*a, *b])),
        _ => 0,
    };
    rest.get(..len).unwrap_or(rest)
}

/// Returns the cost of a path through a link with this speed (802.1D-1998, table 8-5), as Open
/// vSwitch rounds it. A link of unknown speed counts as a fast one.
fn stp_cost(speed_bps: Option<u64>) -> u32 {
    match megabits(speed_bps) {
        10_000.. => 2,
        1_000.. => 4,
        100.. => 19,
        16.. => 62,
        10.. => 100,
        4.. => 250,
        _ => 2,
    }
}

/// Returns the cost of a path through a link with this speed (802.1D-2004, table 17-3), as Open
/// vSwitch rounds it. A link of unknown speed counts as one of 10 Gbit/s.
fn rstp_cost(speed_bps: Option<u64>) -> u32 {
    match megabits(speed_bps) {
        10_000_000.. => 2,
        1_000_000.. => 20,
        100_000.. => 200,
        10_000.. => 2_000,
        1_000.. => 20_000,
        100.. => 200_000,
        10.. => 2_000_000,
        1.. => 20_000_000,
        0 => 2_000,
    }
}

/// Returns a speed in Mbit/s; 0 where it is unknown.
fn megabits(speed_bps: Option<u64>) -> u64 {
    speed_bps.unwrap_or(0) / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(n: u32, has_link: bool) -> TreePort {
        TreePort {
            port: PortNo(n),
            name: format!("p{n}"),
            settings: TreePortSettings {
                number: n as u16,
                priority: 128,
                cost: None,
                is_admin_edge: false,
                is_auto_edge: true,
                is_point_to_point: true,
                is_admin_up: true,
                checks_migration: false,
            },
            speed_bps: None,
            mac: [2, 0, 0, 0, 0, n as u8],
            has_link,
        }
    }

    #[test]
    fn a_port_waits_and_its_states_are_taken_over() {
        let settings = Settings::Stp(stp::Settings::new([2, 0, 0, 0, 0, 9]));
        let tree = SpanningTree::new("br0", &settings, Millis(0));
        assert!(tree.configure(&settings, vec![port(1, true), port(2, false)], Millis(0)));
        assert_eq!(tree.state_of(PortNo(1)), Some(PortState::Disabled), "not taken over yet");
        let round = tree.run(Millis(0));
        assert!(round.is_changed && round.next.is_some());
        let changes = tree.take_changes(Millis(0));
        assert_eq!(tree.state_of(PortNo(1)), Some(PortState::Listening));
        assert!(!changes.flush);
        let [(PortNo(1), frame)] = &round.frames[..] else { panic!("{round:?}") };
        assert_eq!(
            frame.data()[..17],
            [1, 0x80, 0xc2, 0, 0, 0, 2, 0, 0, 0, 0, 1, 0, 38, 66, 66, 3]
        );
        assert!(is_bpdu(&flow::extract::key_of(frame.data(), 1)));
        assert!(!tree.configure(&settings, vec![port(1, true), port(2, false)], Millis(0)));
        tree.run(Millis(15_000));
        let changes = tree.take_changes(Millis(15_000));
        assert_eq!(tree.state_of(PortNo(1)), Some(PortState::Learning));
        assert!(changes.flush);
        let report = tree.report();
        assert_eq!((report.root.root, report.root.cost, report.root_port), (report.id, 0, None));
        let [p1, p2] = &report.ports[..] else { panic!("{:?}", report.ports) };
        assert_eq!((p1.role, p1.cost, p1.entered), (Role::Designated, 2, Millis(15_000)));
        assert_eq!((p2.role, p2.state), (Role::Designated, PortState::Disabled));
        tree.configure(&settings, vec![], Millis(16_000));
        assert!(tree.take_changes(Millis(16_000)).flush, "a port that has learned is gone");
        assert_eq!(tree.state_of(PortNo(1)), None);
    }

    #[test]
    fn a_frame_is_cut_off_at_its_length() {
        let frame = [&[0; 12][..], &[0, 3, 0x42, 0x42, 3, 9, 9]].concat();
        assert_eq!(payload(&frame), [0x42, 0x42, 3]);
        let long = [&[0; 12][..], &[0x81, 1, 1, 2]].concat();
        assert_eq!(payload(&long), [1, 2]);
        let tagged = [&[0; 12][..], &[0x81, 0, 0, 5, 0, 1, 7, 8]].concat();
        assert_eq!(payload(&tagged), [7]);
        for len in 0..15 {
            assert_eq!(payload(&frame[..len]), [0u8; 0]);
        }
    }

    #[test]
    fn bpdus_with_errors_are_counted_where_a_port_takes_part() {
        let settings = Settings::Stp(stp::Settings::new([2, 0, 0, 0, 0, 9]));
        let tree = SpanningTree::new("br0", &settings, Millis(0));
        tree.configure(&settings, vec![port(1, true), port(2, false)], Millis(0));
        let bad = Frame::ethernet(DESTINATION, [2; 6]).ethertype(3).payload(&[0x42, 0x42, 3]);
        let bad = bad.packet();
        assert!(tree.receive(PortNo(1), &bad, Millis(1)));
        assert!(!tree.receive(PortNo(2), &bad, Millis(1)), "no link");
        assert!(!tree.receive(PortNo(3), &bad, Millis(1)), "not in the tree");
        let counts: Vec<[u64; 3]> = tree.report().ports.iter().map(|p| p.counts).collect();
        assert_eq!(counts[0][1..], [0, 1]);
        assert_eq!(counts[1], [0; 3]);
    }

    #[test]
    fn costs_are_open_vswitchs() {
        let all = [None, Some(10), Some(100), Some(1_000), Some(10_000), Some(25_000)];
        let costs = all.map(|mbps| stp_cost(mbps.map(|mbps| mbps * 1_000_000)));
        assert_eq!(costs, [2, 100, 19, 4, 2, 2]);
        let costs = all.map(|mbps| rstp_cost(mbps.map(|mbps| mbps * 1_000_000)));
        assert_eq!(costs, [2_000, 2_000_000, 200_000, 20_000, 2_000, 2_000]);
    }

    #[test]
    fn rapid_bridges_agree_through_frames() {
        let tree = |last| {
            let settings = Settings::Rstp(rstp::Settings::new([2, 0, 0, 0, 0, last]));
            let tree = SpanningTree::new("br", &settings, Millis(0));
            tree.configure(&settings, vec![port(1, true)], Millis(0));
            tree
        };
        let (a, b) = (tree(1), tree(2));
        assert_eq!(a.kind(), TreeKind::Rstp);
        for _ in 0..4 {
            for (from, to) in [(&a, &b), (&b, &a)] {
                for (_, frame) in from.run(Millis(0)).frames {
                    to.receive(PortNo(1), &frame, Millis(0));
                }
            }
        }
        for tree in [&a, &b] {
            let changes = tree.take_changes(Millis(0));
            assert_eq!(tree.state_of(PortNo(1)), Some(PortState::Forwarding));
            assert!(!changes.flush && changes.flushed_ports.contains(&PortNo(1)));
        }
        let report = b.report();
        assert_eq!(report.root_port.as_deref(), Some("p1"));
        assert_eq!((report.root.root, report.root.cost), (a.report().id, 2_000));
        assert_eq!(report.ports[0].vector.bridge, a.report().id);
    }
}
