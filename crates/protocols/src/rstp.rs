// SPDX-License-Identifier: Apache-2.0
//! Rapid spanning tree protocol (IEEE 802.1D-2004, clause 17).
//!
//! # Task
//! A [`Bridge`] is the protocol of one bridge with its ports. Its caller passes received BPDUs to
//! [`Bridge::receive`], calls [`Bridge::run`] when [`Bridge::deadline`] has come, and takes what
//! there is to send and to do with [`Bridge::take_output`]. The module `port` has the state machines of
//! one port; here is what joins ports: the choice of roles (17.21.25), and variables that one machine
//! sets for all ports.
//!
//! # Invariants
//! - Timers count whole seconds, as in the standard: a tick of all timers follows the previous one
//!   by a second or more.
//! - An agreement is sent after the ports that it speaks for have stopped to forward: their changes
//!   of state come first in the output.
//!
//! # Which side it errs on
//! A port that is not sure discards. A neighbour that speaks STP only gets STP, and its delays.

mod bpdu;
mod port;

pub use crate::spanning_tree::{BpduError, BridgeId, PortState, Role};
pub use bpdu::{Bpdu, Message};
pub use port::Port;

use crate::spanning_tree::{bridge_id, bridge_parts};
use clock::Millis;
use port::{InfoIs, Shared};
use std::collections::BTreeMap;

/// Number of a port, 1 to 4095: the low 12 bits of its identifier.
pub type PortNumber = u16;

/// Time between two ticks of the timers, in milliseconds.
const TICK: i64 = 1000;
/// Ticks that are made up for at most, after a pause of the caller.
const MOST_TICKS: u32 = 64;
/// Rounds of all machines after which they must have come to rest.
const MOST_ROUNDS: usize = 1000;

/// The hello time of every bridge, in seconds (table 17-1).
const HELLO_TIME: u8 = 2;
/// Time in which a neighbour's protocol is not asked for again, in seconds (table 17-1).
const MIGRATE_TIME: u8 = 3;

/// The version of the protocol in force (17.13.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// Version 0: like a bridge with STP.
    Stp,
    /// Version 2.
    #[default]
    Rstp,
}

/// Settings of a bridge (`Bridge:other_config:rstp-*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Priority: the highest 16 bits of the identifier. A multiple of 4096.
    pub priority: u16,
    /// Ethernet address: the other bits.
    pub address: [u8; 6],
    /// Age at which information is forgotten, in seconds.
    pub max_age: u8,
    /// Time in each of the states discarding and learning towards STP, in seconds.
    pub forward_delay: u8,
    /// Most BPDUs of a port in a second.
    pub hold_count: u8,
    /// Version in force.
    pub version: Version,
}

impl Settings {
    /// Returns the settings that a bridge with this address has by default (tables 17-1, 17-2).
    pub fn new(address: [u8; 6]) -> Settings {
        Settings {
            priority: 0x8000,
            address,
            max_age: 20,
            forward_delay: 15,
            hold_count: 6,
            version: Version::Rstp,
        }
    }

    /// Returns the identifier of the bridge.
    pub fn bridge_id(&self) -> BridgeId {
        bridge_id(self.priority, self.address)
    }

    fn times(&self) -> Times {
        Times {
            message_age: 0,
            max_age: self.max_age,
            hello_time: HELLO_TIME,
            forward_delay: self.forward_delay,
        }
    }
}

/// Settings of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortSettings {
    /// Priority: a multiple of 16.
    pub priority: u8,
    /// Cost of a path through the port.
    pub cost: u32,
    /// The port leads to a host: it forwards at once.
    pub is_admin_edge: bool,
    /// A port without a neighbour is taken as one that leads to a host.
    pub is_auto_edge: bool,
    /// The link has two ends: its bridges can agree.
    pub is_point_to_point: bool,
}

impl Default for PortSettings {
    fn default() -> PortSettings {
        PortSettings {
            priority: 128,
            cost: 2000,
            is_admin_edge: false,
            is_auto_edge: true,
            is_point_to_point: true,
        }
    }
}

/// A priority vector (17.5). The lower one is better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Vector {
    /// The root.
    pub root: BridgeId,
    /// Cost of the path from the designated bridge to the root.
    pub cost: u32,
    /// The designated bridge.
    pub bridge: BridgeId,
    /// Its port's identifier.
    pub bridge_port: u16,
    /// Identifier of the port that has received the vector.
    pub port: u16,
}

impl Vector {
    /// Returns true when both come from the same port of the same bridge, whatever its priorities.
    fn has_source_of(&self, other: &Vector) -> bool {
        let source = |v: &Vector| (bridge_parts(v.bridge).1, v.bridge_port & 0x0fff);
        source(self) == source(other)
    }
}

/// Times that go with a vector, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Age of the information.
    pub message_age: u8,
    /// Age at which it is forgotten.
    pub max_age: u8,
    /// Time between messages.
    pub hello_time: u8,
    /// Time in each of the states discarding and learning towards STP.
    pub forward_delay: u8,
}

/// Work for the caller, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Sends a BPDU by a port.
    Send(PortNumber, Bpdu),
    /// A port has another state.
    State(PortNumber, PortState),
    /// The addresses learned from a port are to be forgotten.
    Flush(PortNumber),
}

/// The protocol of one bridge. A plain value: the caller decides which thread may use it.
#[derive(Clone, Debug)]
pub struct Bridge {
    settings: Settings,
    id: BridgeId,
    /// The best vector, with the receiving port where it is not the bridge's own.
    root: Vector,
    root_times: Times,
    root_port: Option<PortNumber>,
    ports: BTreeMap<PortNumber, Port>,
    ticked: Millis,
    output: Vec<Output>,
}

impl Bridge {
    /// Returns a bridge without ports. It is its own root.
    pub fn new(settings: Settings, now: Millis) -> Bridge {
        let id = settings.bridge_id();
        Bridge {
            settings,
            id,
            root: Vector { root: id, bridge: id, ..Vector::default() },
            root_times: settings.times(),
            root_port: None,
            ports: BTreeMap::new(),
            ticked: now,
            output: Vec::new(),
        }
    }

    /// Returns the identifier of the bridge.
    pub fn id(&self) -> BridgeId {
        self.id
    }

    /// Returns the root's priority vector, as the bridge has received it; the cost includes the port.
    pub fn root(&self) -> &Vector {
        &self.root
    }

    /// Returns the port that leads to the root; `None` for the root itself.
    pub fn root_port(&self) -> Option<PortNumber> {
        self.root_port
    }

    /// Returns the times that the root sets.
    pub fn root_times(&self) -> Times {
        self.root_times
    }

    /// Returns the times that this bridge sets as the root.
    pub fn own_times(&self) -> Times {
        self.settings.times()
    }

    /// Returns the ports by number.
    pub fn ports(&self) -> &BTreeMap<PortNumber, Port> {
        &self.ports
    }

    /// Returns what there is to send and to do since the previous call.
    pub fn take_output(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.output)
    }

    /// Adds a port without a link, or changes the settings of one (17.13).
    pub fn configure_port(&mut self, number: PortNumber, settings: PortSettings) {
        let id = u16::from(settings.priority & 0xf0) << 8 | number & 0x0fff;
        match self.ports.get_mut(&number) {
            Some(port) => port.configure(id, settings),
            None => {
                self.ports.insert(number, Port::new(id, settings, &self.settings));
                self.output.push(Output::State(number, PortState::Discarding));
            }
        }
        self.settle();
    }

    /// Removes a port.
    pub fn remove_port(&mut self, number: PortNumber) {
        self.set_link(number, false);
        if self.ports.remove(&number).is_some() {
            self.reselect();
            self.settle();
        }
    }

    /// Starts or ends a port's part by the state of its link.
    pub fn set_link(&mut self, number: PortNumber, is_up: bool) {
        if let Some(port) = self.ports.get_mut(&number)
            && port.is_enabled != is_up
        {
            port.is_enabled = is_up;
            self.settle();
        }
    }

    /// Asks a port's neighbour again whether it speaks RSTP (`rstp-port-mcheck`, 17.19.13).
    pub fn check_migration(&mut self, number: PortNumber) {
        if let Some(port) = self.ports.get_mut(&number)
            && self.settings.version == Version::Rstp
        {
            port.mcheck = true;
            self.settle();
        }
    }

    /// Puts settings into force. Another version starts the protocol again (17.13).
    pub fn configure(&mut self, settings: Settings) {
        if settings == self.settings {
            return;
        }
        let old = std::mem::replace(&mut self.settings, settings);
        self.id = settings.bridge_id();
        if old.version != settings.version {
            for (number, port) in &mut self.ports {
                let before = port.state();
                let is_enabled = port.is_enabled;
                *port = Port::new(port.id, port.settings, &settings);
                port.is_enabled = is_enabled;
                if before != port.state() {
                    self.output.push(Output::State(*number, port.state()));
                }
            }
        }
        if old.hold_count != settings.hold_count {
            self.ports.values_mut().for_each(|port| port.sent = 0);
        }
        self.reselect();
        self.settle();
    }

    /// Takes a BPDU that a port received. A port without a link takes none.
    pub fn receive(&mut self, number: PortNumber, bpdu: &Bpdu) {
        let id = self.id;
        let Some(port) = self.ports.get_mut(&number).filter(|port| port.is_enabled) else { return };
        port.received += 1;
        port.take(bpdu, id);
        self.settle();
    }

    /// Counts a BPDU that could not be decoded.
    pub fn count_error(&mut self, number: PortNumber) {
        if let Some(port) = self.ports.get_mut(&number) {
            port.errors += 1;
        }
    }

    /// Does what is due: ticks of the timers (17.22).
    pub fn run(&mut self, now: Millis) {
        for _ in 0..MOST_TICKS {
            if now < self.ticked + TICK {
                return;
            }
            self.ticked = self.ticked + TICK;
            self.ports.values_mut().for_each(Port::tick);
            self.settle();
        }
        self.ticked = now;
    }

    /// Returns the time of the next call of [`Bridge::run`].
    pub fn deadline(&self) -> Option<Millis> {
        (!self.ports.is_empty()).then_some(self.ticked + TICK)
    }

    /// Runs the machines once more (`rstp/tcn`). As in Open vSwitch that alone is no change of the
    /// topology.
    pub fn run_machines(&mut self) {
        self.settle();
    }

    fn reselect(&mut self) {
        for port in self.ports.values_mut() {
            (port.is_selected, port.must_reselect) = (false, true);
        }
        if self.ports.is_empty() {
            self.select_roles();
        }
    }

    /// Runs all machines until none moves.
    fn settle(&mut self) {
        let numbers: Vec<PortNumber> = self.ports.keys().copied().collect();
        let before: Vec<PortState> = self.ports.values().map(Port::state).collect();
        for round in 0.. {
            debug_assert!(round < MOST_ROUNDS, "the machines come to rest");
            let mut is_moved = false;
            if self.ports.values().any(|port| port.must_reselect) {
                self.select_roles();
                is_moved = true;
            }
            for number in &numbers {
                is_moved |= self.step(*number);
            }
            if !is_moved || round >= MOST_ROUNDS {
                break;
            }
        }
        for (number, before) in numbers.iter().zip(before) {
            let Some(port) = self.ports.get_mut(number) else { continue };
            if port.state() != before {
                self.output.push(Output::State(*number, port.state()));
            }
            if std::mem::take(&mut port.must_flush) {
                self.output.push(Output::Flush(*number));
            }
        }
        let shared = self.shared_of(0);
        for (number, port) in &mut self.ports {
            while let Some(bpdu) = port.transmit(&shared) {
                self.output.push(Output::Send(*number, bpdu));
            }
        }
    }

    /// Runs the machines of one port, up to the transmission. Returns true when one moved.
    fn step(&mut self, number: PortNumber) -> bool {
        let shared = self.shared_of(number);
        let Some(port) = self.ports.get_mut(&number) else { return false };
        let is_moved = port.step(&shared);
        let asks = std::mem::take(&mut port.asks);
        for (other, port) in &mut self.ports {
            port.sync |= asks.sync;
            port.reroot |= asks.reroot;
            port.topology.propagates |= asks.propagate && *other != number;
        }
        is_moved
    }

    /// Returns the state of the bridge and of the other ports that the machines of a port read.
    fn shared_of(&self, number: PortNumber) -> Shared {
        let mut others = self.ports.iter().filter(|(other, _)| **other != number);
        let is_synced = |port: &Port| {
            let is_chosen = port.is_selected && port.role == port.selected_role;
            is_chosen && !port.must_update && (port.synced || port.role == Role::Root)
        };
        Shared {
            is_rapid: self.settings.version == Version::Rstp,
            hold_count: self.settings.hold_count,
            root_times: self.root_times,
            are_others_synced: others.clone().all(|(_, port)| is_synced(port)),
            are_others_rerooted: others.all(|(_, port)| port.rr_while == 0),
        }
    }

    /// Chooses the root and the roles of the ports (17.21.25), and marks them as selected.
    fn select_roles(&mut self) {
        let own = bridge_parts(self.id).1;
        let mut best = Vector { root: self.id, bridge: self.id, ..Vector::default() };
        (self.root_port, self.root_times) = (None, self.settings.times());
        for (number, port) in &mut self.ports {
            port.must_reselect = false;
            let is_offer =
                port.info_is == InfoIs::Received && bridge_parts(port.priority.bridge).1 != own;
            let cost = port.priority.cost.saturating_add(port.settings.cost);
            let path = Vector { cost, port: port.id, ..port.priority };
            if is_offer && path < best {
                best = path;
                self.root_port = Some(*number);
                let message_age = port.times.message_age.saturating_add(1);
                self.root_times = Times { message_age, ..port.times };
            }
        }
        self.root = best;
        for (number, port) in &mut self.ports {
            port.designated = Vector {
                root: best.root,
                cost: best.cost,
                bridge: self.id,
                bridge_port: port.id,
                port: port.id,
            };
            port.designated_times = Times { hello_time: HELLO_TIME, ..self.root_times };
            let is_better = port.designated < port.priority;
            (port.selected_role, port.must_update) = match port.info_is {
                InfoIs::Disabled => (Role::Disabled, false),
                InfoIs::Aged => (Role::Designated, true),
                InfoIs::Mine => {
                    let is_same =
                        (port.priority, port.times) == (port.designated, port.designated_times);
                    (Role::Designated, port.must_update || !is_same)
                }
                InfoIs::Received if self.root_port == Some(*number) => (Role::Root, false),
                InfoIs::Received if is_better => (Role::Designated, true),
                InfoIs::Received if bridge_parts(port.priority.bridge).1 == own => {
                    (Role::Backup, false)
                }
                InfoIs::Received => (Role::Alternate, false),
            };
            port.is_selected = true;
        }
    }
}

#[cfg(test)]
mod tests;
