// SPDX-License-Identifier: Apache-2.0
//! Spanning tree protocol (IEEE 802.1D-1998, clause 8).
//!
//! # Task
//! A [`Bridge`] is the protocol of one bridge with its ports. Its caller passes received BPDUs to
//! [`Bridge::receive`], calls [`Bridge::run`] when [`Bridge::deadline`] has come, and takes what
//! there is to send and to do with [`Bridge::take_output`].
//!
//! # Invariants
//! - The port that was chosen as the root port leads to the root by the lowest cost; ties go to the
//!   lower numbers, as in 8.6.8.
//! - A port forwards only after it was in the listening and learning states for the forward delay
//!   each.
//!
//! # Which side it errs on
//! A port that is not sure blocks. Bridges that disagree about the time use the root's.

mod bpdu;

pub use crate::spanning_tree::{BpduError, BridgeId, PortState, Role};
pub use bpdu::{Bpdu, Config};

use crate::spanning_tree::bridge_id;
use clock::Millis;
use std::collections::BTreeMap;

/// Number of a port, 1 to 255: the low byte of its identifier.
pub type PortNumber = u8;

/// Longest time between two configurations by one port (8.10.2), in milliseconds.
const HOLD_TIME: i64 = 1000;
/// Increase of the message age by each bridge (8.10.2), in milliseconds.
const AGE_INCREMENT: u32 = 1000;
/// Priority of ports without a setting.
const PORT_PRIORITY: u8 = 128;

/// Settings of a bridge (`Bridge:other_config:stp-*`). Times are in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Priority: the highest 16 bits of the identifier.
    pub priority: u16,
    /// Ethernet address: the other bits.
    pub address: [u8; 6],
    /// Time between configurations of the root.
    pub hello_time: u32,
    /// Age at which information is forgotten.
    pub max_age: u32,
    /// Time in each of the states listening and learning.
    pub forward_delay: u32,
}

impl Settings {
    /// Returns the settings that a bridge with this address has by default.
    pub fn new(address: [u8; 6]) -> Settings {
        Settings {
            priority: 0x8000,
            address,
            hello_time: 2000,
            max_age: 20_000,
            forward_delay: 15_000,
        }
    }

    /// Returns the settings within the bounds of 8.10.2: hello time 1 to 10 s, age 6 to 40 s, delay 4
    /// to 30 s, and `2 * (hello + 1) <= age <= 2 * (delay - 1)`, for which the age and then the delay
    /// give way.
    pub fn bounded(self) -> Settings {
        let hello_time = self.hello_time.clamp(1000, 10_000);
        let max_age = self.max_age.clamp(6000.max(2 * (hello_time + 1000)), 40_000);
        let forward_delay = self.forward_delay.clamp(4000.max(max_age / 2 + 1000), 30_000);
        Settings { hello_time, max_age, forward_delay, ..self }
    }

    /// Returns the identifier of the bridge.
    pub fn bridge_id(&self) -> BridgeId {
        bridge_id(self.priority, self.address)
    }
}

/// One port.
#[derive(Clone, Copy, Debug)]
pub struct Port {
    /// Identifier: priority, then number.
    pub id: u16,
    /// Cost of a path through the port.
    pub cost: u32,
    /// State of the port: whether it learns and forwards.
    pub state: PortState,
    /// Root by the information of the LAN's designated bridge.
    pub designated_root: BridgeId,
    /// Cost from the designated bridge to that root.
    pub designated_cost: u32,
    /// The bridge that connects the LAN with the root.
    pub designated_bridge: BridgeId,
    /// Its port.
    pub designated_port: u16,
    /// BPDUs sent, received, and received with errors.
    pub counts: [u64; 3],
    /// The next configuration acknowledges a topology change.
    acknowledges: bool,
    /// A configuration waits for the hold timer.
    is_config_pending: bool,
    /// The port's changes count as changes of the topology.
    is_change_detected: bool,
    /// Age in milliseconds of the stored information when it arrived.
    message_age: u32,
    /// When the stored information is forgotten; `None` for a designated port.
    message_expiry: Option<Millis>,
    /// When the next state follows.
    forward_at: Option<Millis>,
    /// Until then no further configuration is sent.
    held_until: Option<Millis>,
}

/// Work for the caller, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Sends a BPDU by a port.
    Send(PortNumber, Bpdu),
    /// A port has another state.
    State(PortNumber, PortState),
    /// The topology has changed: learned addresses are to be forgotten.
    Flush,
}

/// The protocol of one bridge. A plain value: the caller decides which thread may use it.
#[derive(Clone, Debug)]
pub struct Bridge {
    settings: Settings,
    id: BridgeId,
    root: BridgeId,
    root_cost: u32,
    root_port: Option<PortNumber>,
    /// Times in force, which the root sets, in milliseconds.
    max_age: u32,
    hello_time: u32,
    forward_delay: u32,
    is_change_detected: bool,
    is_changing: bool,
    hello_at: Option<Millis>,
    notify_at: Option<Millis>,
    change_until: Option<Millis>,
    ports: BTreeMap<PortNumber, Port>,
    output: Vec<Output>,
}

impl Bridge {
    /// Returns a bridge without ports. It is its own root.
    pub fn new(settings: Settings, now: Millis) -> Bridge {
        let settings = settings.bounded();
        let id = settings.bridge_id();
        Bridge {
            settings,
            id,
            root: id,
            root_cost: 0,
            root_port: None,
            max_age: settings.max_age,
            hello_time: settings.hello_time,
            forward_delay: settings.forward_delay,
            is_change_detected: false,
            is_changing: false,
            hello_at: Some(now),
            notify_at: None,
            change_until: None,
            ports: BTreeMap::new(),
            output: Vec::new(),
        }
    }

    /// Returns the identifier of the bridge.
    pub fn id(&self) -> BridgeId {
        self.id
    }

    /// Returns the identifier of the root, and the cost of the path to it.
    pub fn root(&self) -> (BridgeId, u32) {
        (self.root, self.root_cost)
    }

    /// Returns the port that leads to the root; `None` for the root itself.
    pub fn root_port(&self) -> Option<PortNumber> {
        self.root_port
    }

    /// Returns the times in force: hello time, highest age and forward delay, in milliseconds.
    pub fn times(&self) -> (u32, u32, u32) {
        (self.hello_time, self.max_age, self.forward_delay)
    }

    /// Returns the ports by number.
    pub fn ports(&self) -> &BTreeMap<PortNumber, Port> {
        &self.ports
    }

    /// Returns the configured times: hello time, highest age and forward delay, in milliseconds.
    pub fn own_times(&self) -> (u32, u32, u32) {
        (self.settings.hello_time, self.settings.max_age, self.settings.forward_delay)
    }

    /// Returns the role of a port as Open vSwitch shows it: a port without a link keeps the role
    /// "designated", which it has on its own LAN.
    pub fn shown_role(&self, number: PortNumber) -> Role {
        match (self.role(number), self.ports.get(&number)) {
            (Role::Disabled, Some(port)) if self.is_designated(port) => Role::Designated,
            (role, _) => role,
        }
    }

    /// Returns the role of a port.
    pub fn role(&self, number: PortNumber) -> Role {
        match self.ports.get(&number) {
            None | Some(Port { state: PortState::Disabled, .. }) => Role::Disabled,
            Some(_) if self.root_port == Some(number) => Role::Root,
            Some(port) if self.is_designated(port) => Role::Designated,
            Some(_) => Role::Alternate,
        }
    }

    /// Returns what there is to send and to do since the previous call.
    pub fn take_output(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.output)
    }

    /// Adds a port that takes no part yet, or does nothing when it is there.
    pub fn add_port(&mut self, number: PortNumber) {
        let id = u16::from_be_bytes([PORT_PRIORITY, number]);
        let bridge = (self.root, self.root_cost, self.id);
        self.ports.entry(number).or_insert(Port {
            id,
            cost: 19,
            state: PortState::Disabled,
            designated_root: bridge.0,
            designated_cost: bridge.1,
            designated_bridge: bridge.2,
            designated_port: id,
            counts: [0; 3],
            acknowledges: false,
            is_config_pending: false,
            is_change_detected: true,
            message_age: 0,
            message_expiry: None,
            forward_at: None,
            held_until: None,
        });
    }

    /// Removes a port.
    pub fn remove_port(&mut self, number: PortNumber, now: Millis) {
        self.disable(number, now);
        self.ports.remove(&number);
    }

    /// Lets a port take part (8.8.2). Does nothing when it does already.
    pub fn enable(&mut self, number: PortNumber, now: Millis) {
        if self.state(number) != Some(PortState::Disabled) {
            return;
        }
        self.become_designated(number);
        self.set_state(number, PortState::Blocking);
        if let Some(port) = self.ports.get_mut(&number) {
            port.counts = [0; 3];
            port.acknowledges = false;
            port.is_config_pending = false;
            (port.message_expiry, port.forward_at, port.held_until) = (None, None, None);
        }
        self.select_states(now);
    }

    /// Ends a port's part, as its link is down (8.8.3).
    pub fn disable(&mut self, number: PortNumber, now: Millis) {
        if matches!(self.state(number), None | Some(PortState::Disabled)) {
            return;
        }
        let was_root = self.is_root();
        self.become_designated(number);
        self.set_state(number, PortState::Disabled);
        if let Some(port) = self.ports.get_mut(&number) {
            port.acknowledges = false;
            port.is_config_pending = false;
            (port.message_expiry, port.forward_at) = (None, None);
        }
        self.update(was_root, now);
    }

    /// Sets the priority (the high byte of the identifier) and the cost of a port (8.8.5, 8.8.6).
    pub fn configure_port(&mut self, number: PortNumber, priority: u8, cost: u32, now: Millis) {
        let id = u16::from_be_bytes([priority, number]);
        let cost = cost.max(1);
        let bridge_id = self.id;
        let Some(port) = self.ports.get_mut(&number) else { return };
        if (port.id, port.cost) == (id, cost) {
            return;
        }
        if port.designated_bridge == bridge_id && port.designated_port == port.id {
            port.designated_port = id;
        }
        (port.id, port.cost) = (id, cost);
        let was_root = self.is_root();
        self.update(was_root, now);
    }

    /// Puts settings into force (8.8.4).
    pub fn configure(&mut self, settings: Settings, now: Millis) {
        let settings = settings.bounded();
        if settings == self.settings {
            return;
        }
        let was_root = self.is_root();
        let (old, new) = (self.id, settings.bridge_id());
        for port in self.ports.values_mut().filter(|port| port.designated_bridge == old) {
            port.designated_bridge = new;
            if port.designated_root == old {
                port.designated_root = new;
            }
        }
        (self.settings, self.id) = (settings, new);
        if self.root == old {
            self.root = new;
        }
        self.update(was_root, now);
        if self.is_root() {
            self.use_own_times();
        }
    }

    /// Takes a BPDU that a port received (8.7.1, 8.7.2).
    pub fn receive(&mut self, number: PortNumber, bpdu: &Bpdu, now: Millis) {
        let Some(port) = self.ports.get_mut(&number) else { return };
        if port.state == PortState::Disabled {
            return;
        }
        port.counts[1] += 1;
        match bpdu {
            Bpdu::Config(config) => self.receive_config(number, config, now),
            Bpdu::TopologyChange => {
                if self.ports.get(&number).is_some_and(|port| self.is_designated(port)) {
                    self.detect_change(now);
                    if let Some(port) = self.ports.get_mut(&number) {
                        port.acknowledges = true;
                    }
                    self.send_config(number, now);
                }
            }
        }
    }

    /// Counts a BPDU that could not be decoded.
    pub fn count_error(&mut self, number: PortNumber) {
        if let Some(port) = self.ports.get_mut(&number) {
            port.counts[2] += 1;
        }
    }

    fn receive_config(&mut self, number: PortNumber, config: &Config, now: Millis) {
        if config.message_age >= config.max_age {
            return; // it would be forgotten at once
        }
        let Some(port) = self.ports.get(&number) else { return };
        if self.supersedes(port, config) {
            let was_root = self.is_root();
            if let Some(port) = self.ports.get_mut(&number) {
                port.designated_root = config.root;
                port.designated_cost = config.root_cost;
                port.designated_bridge = config.bridge;
                port.designated_port = config.port;
                port.message_age = config.message_age;
                let left = config.max_age - config.message_age;
                port.message_expiry = Some(now + i64::from(left));
            }
            self.update(was_root, now);
            if self.root_port == Some(number) {
                self.max_age = config.max_age;
                self.hello_time = config.hello_time.max(1000);
                self.forward_delay = config.forward_delay;
                self.is_changing = config.is_changing;
                if config.is_changing {
                    self.flush();
                }
                self.send_configs(now);
                if config.acknowledges {
                    self.is_change_detected = false;
                    self.notify_at = None;
                }
            }
        } else if self.is_designated(port) {
            self.send_config(number, now); // the sender does not know better
        }
    }

    /// Does what is due (8.7.3 to 8.7.8).
    pub fn run(&mut self, now: Millis) {
        let is_due = |at: Option<Millis>| at.is_some_and(|at| at <= now);
        if is_due(self.hello_at) {
            self.send_configs(now);
            self.hello_at = Some(now + i64::from(self.hello_time));
        }
        if is_due(self.notify_at) {
            self.send_notification(now);
        }
        if is_due(self.change_until) {
            self.change_until = None;
            self.is_change_detected = false;
            self.is_changing = false;
        }
        let numbers: Vec<PortNumber> = self.ports.keys().copied().collect();
        for number in numbers {
            self.run_port(number, now);
        }
    }

    fn run_port(&mut self, number: PortNumber, now: Millis) {
        let is_due = |at: Option<Millis>| at.is_some_and(|at| at <= now);
        let Some(port) = self.ports.get(&number).copied() else { return };
        if is_due(port.message_expiry) {
            let was_root = self.is_root();
            self.become_designated(number);
            self.update(was_root, now);
        }
        if is_due(port.forward_at) {
            let next = match port.state {
                PortState::Listening => Some((PortState::Learning, true)),
                PortState::Learning => Some((PortState::Forwarding, false)),
                PortState::Disabled
                | PortState::Blocking
                | PortState::Discarding
                | PortState::Forwarding => None,
            };
            let delay = i64::from(self.forward_delay);
            if let Some(port) = self.ports.get_mut(&number) {
                port.forward_at = next.filter(|(_, has_next)| *has_next).map(|_| now + delay);
            }
            if let Some((state, is_waiting)) = next {
                self.set_state(number, state);
                let counts = port.is_change_detected;
                let has_lan = self
                    .ports
                    .values()
                    .any(|p| self.is_designated(p) && p.state != PortState::Disabled);
                if !is_waiting && counts && has_lan {
                    self.detect_change(now);
                }
            }
        }
        if is_due(port.held_until) {
            let pending = self.ports.get_mut(&number).map(|port| {
                port.held_until = None;
                port.is_config_pending
            });
            if pending == Some(true) {
                self.send_config(number, now);
            }
        }
    }

    /// Returns the time of the next call of [`Bridge::run`]; `None` when nothing is due by itself.
    pub fn deadline(&self) -> Option<Millis> {
        let ports = self.ports.values();
        let of_ports = ports.flat_map(|p| [p.message_expiry, p.forward_at, p.held_until]);
        let own = [self.hello_at, self.notify_at, self.change_until];
        of_ports.chain(own).flatten().min()
    }

    /// Acts as if the topology had changed (`stp/tcn`).
    pub fn force_topology_change(&mut self, now: Millis) {
        self.detect_change(now);
    }

    fn state(&self, number: PortNumber) -> Option<PortState> {
        self.ports.get(&number).map(|port| port.state)
    }

    fn is_root(&self) -> bool {
        self.root == self.id
    }

    fn is_designated(&self, port: &Port) -> bool {
        port.designated_bridge == self.id && port.designated_port == port.id
    }

    /// Returns true when a message is better than, or as good as and from the same port as, the
    /// information that the port has (8.6.2.2).
    fn supersedes(&self, port: &Port, config: &Config) -> bool {
        let new = (config.root, config.root_cost, config.bridge);
        let old = (port.designated_root, port.designated_cost, port.designated_bridge);
        // A message from another port of this bridge, on the same LAN, counts only when it is better.
        let is_same = new == old;
        new < old || is_same && (config.bridge != self.id || config.port <= port.designated_port)
    }

    /// Chooses roles and states again (8.6.7, 8.6.11), with the consequences of a change of the root
    /// (8.7.1).
    fn update(&mut self, was_root: bool, now: Millis) {
        self.select_root();
        self.select_designated();
        self.select_states(now);
        match (was_root, self.is_root()) {
            (false, true) => self.become_root(now),
            (true, false) => {
                self.hello_at = None;
                if self.is_change_detected {
                    self.change_until = None;
                    self.send_notification(now);
                }
            }
            _ => {}
        }
    }

    fn use_own_times(&mut self) {
        self.max_age = self.settings.max_age;
        self.hello_time = self.settings.hello_time;
        self.forward_delay = self.settings.forward_delay;
    }

    fn become_root(&mut self, now: Millis) {
        self.use_own_times();
        self.notify_at = None;
        self.detect_change(now);
        self.send_configs(now);
        self.hello_at = Some(now + i64::from(self.hello_time));
    }

    fn select_root(&mut self) {
        let best = self
            .ports
            .iter()
            .filter(|(_, port)| {
                port.state != PortState::Disabled
                    && !self.is_designated(port)
                    && port.designated_root < self.id
            })
            .min_by_key(|(_, port)| {
                let cost = port.designated_cost.saturating_add(port.cost);
                let from = (port.designated_bridge, port.designated_port);
                (port.designated_root, cost, from, port.id)
            })
            .map(|(number, port)| {
                let cost = port.designated_cost.saturating_add(port.cost);
                (*number, port.designated_root, cost)
            });
        (self.root_port, self.root, self.root_cost) = match best {
            Some((number, root, cost)) => (Some(number), root, cost),
            None => (None, self.id, 0),
        };
    }

    fn select_designated(&mut self) {
        let mine = (self.root_cost, self.id);
        let ours = |port: &Port| {
            self.is_designated(port)
                || port.designated_root != self.root
                || (mine.0, mine.1, port.id)
                    < (port.designated_cost, port.designated_bridge, port.designated_port)
        };
        let numbers: Vec<PortNumber> = self
            .ports
            .iter()
            .filter(|(number, port)| self.root_port != Some(**number) && ours(port))
            .map(|(number, _)| *number)
            .collect();
        numbers.into_iter().for_each(|number| self.become_designated(number));
    }

    fn become_designated(&mut self, number: PortNumber) {
        let (root, cost, id) = (self.root, self.root_cost, self.id);
        if let Some(port) = self.ports.get_mut(&number) {
            port.designated_root = root;
            port.designated_cost = cost;
            port.designated_bridge = id;
            port.designated_port = port.id;
            port.message_expiry = None;
        }
    }

    fn select_states(&mut self, now: Millis) {
        let numbers: Vec<PortNumber> = self.ports.keys().copied().collect();
        for number in numbers {
            match self.role(number) {
                Role::Root => {
                    if let Some(port) = self.ports.get_mut(&number) {
                        port.is_config_pending = false;
                        port.acknowledges = false;
                    }
                    self.make_forwarding(number, now);
                }
                Role::Designated => self.make_forwarding(number, now),
                Role::Alternate | Role::Backup => self.make_blocking(number, now),
                Role::Disabled => {}
            }
        }
    }

    fn make_forwarding(&mut self, number: PortNumber, now: Millis) {
        if self.state(number) == Some(PortState::Blocking) {
            self.set_state(number, PortState::Listening);
            let at = now + i64::from(self.forward_delay);
            if let Some(port) = self.ports.get_mut(&number) {
                port.forward_at = Some(at);
            }
        }
    }

    fn make_blocking(&mut self, number: PortNumber, now: Millis) {
        let Some(port) = self.ports.get_mut(&number) else { return };
        port.is_config_pending = false;
        port.acknowledges = false;
        if matches!(port.state, PortState::Disabled | PortState::Blocking) {
            return;
        }
        port.forward_at = None;
        let counts = port.state.learns() && port.is_change_detected;
        if counts {
            self.detect_change(now);
        }
        self.set_state(number, PortState::Blocking);
    }

    fn set_state(&mut self, number: PortNumber, state: PortState) {
        let Some(port) = self.ports.get_mut(&number).filter(|port| port.state != state) else {
            return;
        };
        port.state = state;
        self.output.push(Output::State(number, state));
    }

    /// Has learned addresses forgotten. The standard lets them age fast as long as the topology
    /// changes; here each message of the root that says so removes them.
    fn flush(&mut self) {
        if !self.output.contains(&Output::Flush) {
            self.output.push(Output::Flush);
        }
    }

    /// The topology has changed here (8.6.14).
    fn detect_change(&mut self, now: Millis) {
        if self.is_root() {
            let last = i64::from(self.max_age) + i64::from(self.forward_delay);
            self.change_until = Some(now + last);
            self.is_changing = true;
        } else if !self.is_change_detected {
            self.send_notification(now);
        }
        self.is_change_detected = true;
        self.flush();
    }

    /// Notifies the root, and again until its bridge acknowledges that (8.6.6).
    fn send_notification(&mut self, now: Millis) {
        self.notify_at = Some(now + i64::from(self.settings.hello_time));
        if let Some(number) = self.root_port {
            self.send(number, Bpdu::TopologyChange);
        }
    }

    fn send_configs(&mut self, now: Millis) {
        let is_sender = |(_, port): &(&PortNumber, &Port)| {
            self.is_designated(port) && port.state != PortState::Disabled
        };
        let numbers: Vec<PortNumber> =
            self.ports.iter().filter(is_sender).map(|(number, _)| *number).collect();
        numbers.into_iter().for_each(|number| self.send_config(number, now));
    }

    /// Sends a configuration, once in the hold time (8.6.1).
    fn send_config(&mut self, number: PortNumber, now: Millis) {
        let age = match self.root_port.and_then(|number| self.ports.get(&number)) {
            None => 0,
            Some(port) => {
                let left = port.message_expiry.map_or(0, |at| at.since(now));
                let age = u64::from(self.max_age).saturating_sub(left);
                let age = u32::try_from(age).unwrap_or(u32::MAX);
                age.max(port.message_age).saturating_add(AGE_INCREMENT)
            }
        };
        let (max_age, bridge) = (self.max_age, self.id);
        let shared = Config {
            is_changing: self.is_changing,
            acknowledges: false,
            root: self.root,
            root_cost: self.root_cost,
            bridge,
            port: 0,
            message_age: age,
            max_age,
            hello_time: self.hello_time,
            forward_delay: self.forward_delay,
        };
        let Some(port) = self.ports.get_mut(&number) else { return };
        if port.held_until.is_some_and(|at| now < at) {
            port.is_config_pending = true;
            return;
        }
        if age >= max_age {
            return; // no bridge would take it
        }
        let config = Config { port: port.id, acknowledges: port.acknowledges, ..shared };
        port.acknowledges = false;
        port.is_config_pending = false;
        port.held_until = Some(now + HOLD_TIME);
        self.send(number, Bpdu::Config(config));
    }

    fn send(&mut self, number: PortNumber, bpdu: Bpdu) {
        if let Some(port) = self.ports.get_mut(&number) {
            port.counts[0] += 1;
            self.output.push(Output::Send(number, bpdu));
        }
    }
}

#[cfg(test)]
mod tests;
