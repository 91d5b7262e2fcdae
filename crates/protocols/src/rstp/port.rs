// SPDX-License-Identifier: Apache-2.0
//! One port of RSTP: its variables and its state machines (17.19 to 17.30).

use super::{
    Bpdu, BridgeId, MIGRATE_TIME, Message, PortSettings, PortState, Role, Settings, Times, Vector,
};

/// Origin of a port's information (17.19.10).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum InfoIs {
    #[default]
    Disabled,
    Aged,
    Mine,
    Received,
}

/// States of the port protocol migration machine (17.24).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Migration {
    CheckingRstp,
    SelectingStp,
    Sensing,
}

/// States of the port role transition machine in which it waits (17.29).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Disabling,
    Disabled,
    Root,
    Designated,
    Blocking,
    Alternate,
}

/// States of the topology change machine in which it waits (17.31).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TopologyStage {
    Inactive,
    Learning,
    Active,
}

/// Variables of the topology change machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Topology {
    stage: TopologyStage,
    /// `tcWhile`: BPDUs report the change for this number of seconds.
    until: u8,
    /// `rcvdTc`, `rcvdTcn`, `rcvdTcAck`.
    is_received: bool,
    is_notified: bool,
    is_acknowledged: bool,
    /// `tcAck`: the next configuration acknowledges a notification.
    acknowledges: bool,
    /// `tcProp`: another port has seen a change.
    pub propagates: bool,
}

/// Variables that a machine sets for other ports.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Asks {
    /// All ports are to agree with the root's information (17.21.14).
    pub sync: bool,
    /// All ports are to retire as former root ports (17.21.13).
    pub reroot: bool,
    /// All other ports are to report a change (17.21.18).
    pub propagate: bool,
}

/// The bridge and the other ports, as the machines of one port see them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shared {
    /// `rstpVersion`.
    pub is_rapid: bool,
    pub hold_count: u8,
    pub root_times: Times,
    /// `allSynced`, for the other ports.
    pub are_others_synced: bool,
    /// `reRooted`.
    pub are_others_rerooted: bool,
}

/// Meaning of a received message (17.21.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Received {
    SuperiorDesignated,
    RepeatedDesignated,
    InferiorDesignated,
    InferiorRootAlternate,
    Other,
}

/// One port.
#[derive(Clone, Debug)]
pub struct Port {
    /// Identifier: priority, then number.
    pub id: u16,
    /// Settings of the port.
    pub settings: PortSettings,
    /// Role of the port.
    pub role: Role,
    /// BPDUs sent.
    pub transmitted: u64,
    /// BPDUs received.
    pub received: u64,
    /// BPDUs received with errors.
    pub errors: u64,
    /// Seconds since the port was added.
    pub uptime: u64,
    /// Information about the root that is in force on the LAN (`portPriority`).
    pub priority: Vector,
    /// Its times.
    pub times: Times,

    pub(super) is_enabled: bool,
    /// `txCount`: BPDUs sent lately; one less each second.
    pub(super) sent: u8,
    pub(super) mcheck: bool,
    pub(super) info_is: InfoIs,
    pub(super) selected_role: Role,
    pub(super) is_selected: bool,
    pub(super) must_reselect: bool,
    /// `updtInfo`.
    pub(super) must_update: bool,
    /// Information that this bridge offers to the LAN (`designatedPriority`).
    pub(super) designated: Vector,
    pub(super) designated_times: Times,
    pub(super) sync: bool,
    pub(super) synced: bool,
    pub(super) reroot: bool,
    pub(super) rr_while: u8,
    pub(super) must_flush: bool,
    pub(super) topology: Topology,
    pub(super) asks: Asks,

    /// The message that waits (`rcvdMsg`).
    message: Option<Bpdu>,
    is_edge: bool,
    sends_rapid: bool,
    received_rapid: bool,
    received_stp: bool,
    agree: bool,
    agreed: bool,
    proposed: bool,
    proposing: bool,
    disputed: bool,
    learn: bool,
    learning: bool,
    forward: bool,
    forwarding: bool,
    has_news: bool,

    migration: Migration,
    stage: Stage,

    edge_delay_while: u8,
    fd_while: u8,
    hello_when: u8,
    mdelay_while: u8,
    rb_while: u8,
    received_info_while: u8,
}

impl Port {
    /// Returns a port without a link, with all machines at their beginning.
    pub(super) fn new(id: u16, settings: PortSettings, bridge: &Settings) -> Port {
        let times = bridge.times();
        Port {
            id,
            settings,
            role: Role::Disabled,
            transmitted: 0,
            received: 0,
            errors: 0,
            sent: 0,
            uptime: 0,
            priority: Vector::default(),
            times,
            is_enabled: false,
            mcheck: false,
            info_is: InfoIs::Disabled,
            selected_role: Role::Disabled,
            is_selected: false,
            must_reselect: true,
            must_update: false,
            designated: Vector::default(),
            designated_times: times,
            sync: true,
            synced: false,
            reroot: true,
            rr_while: times.forward_delay,
            must_flush: false,
            topology: Topology {
                stage: TopologyStage::Inactive,
                until: 0,
                is_received: false,
                is_notified: false,
                is_acknowledged: false,
                acknowledges: false,
                propagates: false,
            },
            asks: Asks::default(),
            message: None,
            is_edge: settings.is_admin_edge,
            sends_rapid: bridge.version == super::Version::Rstp,
            received_rapid: false,
            received_stp: false,
            agree: false,
            agreed: false,
            proposed: false,
            proposing: false,
            disputed: false,
            learn: false,
            learning: false,
            forward: false,
            forwarding: false,
            has_news: true,
            migration: Migration::CheckingRstp,
            stage: Stage::Disabling,
            edge_delay_while: MIGRATE_TIME,
            fd_while: times.max_age,
            hello_when: 0,
            mdelay_while: MIGRATE_TIME,
            rb_while: 0,
            received_info_while: 0,
        }
    }

    /// Returns the state of the port.
    pub fn state(&self) -> PortState {
        match (self.learning, self.forwarding) {
            (true, true) => PortState::Forwarding,
            (true, false) => PortState::Learning,
            (false, _) => PortState::Discarding,
        }
    }

    pub(super) fn configure(&mut self, id: u16, settings: PortSettings) {
        if (self.id, self.settings.cost) != (id, settings.cost) {
            (self.is_selected, self.must_reselect) = (false, true);
        }
        (self.id, self.settings) = (id, settings);
    }

    /// Counts all timers down (17.22).
    pub(super) fn tick(&mut self) {
        for timer in [
            &mut self.edge_delay_while,
            &mut self.fd_while,
            &mut self.hello_when,
            &mut self.mdelay_while,
            &mut self.rb_while,
            &mut self.received_info_while,
            &mut self.rr_while,
            &mut self.topology.until,
            &mut self.sent,
        ] {
            *timer = timer.saturating_sub(1);
        }
        self.uptime += 1;
    }

    /// Takes a BPDU: the port receive machine (17.23). A BPDU of the port itself is ignored (9.3.4).
    pub(super) fn take(&mut self, bpdu: &Bpdu, bridge: BridgeId) {
        if let Bpdu::Config(message) | Bpdu::Rapid(message) = bpdu
            && (message.vector.bridge, message.vector.bridge_port) == (bridge, self.id)
        {
            return;
        }
        match bpdu {
            Bpdu::Rapid(_) => self.received_rapid = true,
            Bpdu::Config(_) | Bpdu::TopologyChange => self.received_stp = true,
        }
        self.is_edge = false;
        self.edge_delay_while = MIGRATE_TIME;
        self.message = Some(*bpdu);
    }

    /// Runs all machines but the one of transmission once. Returns true when one moved.
    pub(super) fn step(&mut self, shared: &Shared) -> bool {
        let mut is_moved = self.step_receive();
        is_moved |= self.step_migration(shared);
        is_moved |= self.step_edge();
        is_moved |= self.step_information(shared);
        is_moved |= self.step_role(shared);
        is_moved |= self.step_state();
        is_moved | self.step_topology(shared)
    }

    /// The DISCARD state of the port receive machine (17.23).
    fn step_receive(&mut self) -> bool {
        let is_stale = self.message.is_some() || self.edge_delay_while != MIGRATE_TIME;
        if self.is_enabled || !is_stale {
            return false;
        }
        (self.message, self.edge_delay_while) = (None, MIGRATE_TIME);
        (self.received_rapid, self.received_stp) = (false, false);
        true
    }

    /// The port protocol migration machine (17.24).
    fn step_migration(&mut self, shared: &Shared) -> bool {
        let next = match self.migration {
            Migration::CheckingRstp if self.mdelay_while == 0 => Migration::Sensing,
            Migration::CheckingRstp if self.mdelay_while != MIGRATE_TIME && !self.is_enabled => {
                Migration::CheckingRstp
            }
            Migration::Sensing
                if !self.is_enabled
                    || self.mcheck
                    || shared.is_rapid && !self.sends_rapid && self.received_rapid =>
            {
                Migration::CheckingRstp
            }
            Migration::Sensing if self.sends_rapid && self.received_stp => Migration::SelectingStp,
            Migration::SelectingStp
                if self.mdelay_while == 0 || !self.is_enabled || self.mcheck =>
            {
                Migration::Sensing
            }
            Migration::CheckingRstp | Migration::Sensing | Migration::SelectingStp => return false,
        };
        match next {
            Migration::CheckingRstp => {
                self.mcheck = false;
                self.sends_rapid = shared.is_rapid;
                self.mdelay_while = MIGRATE_TIME;
            }
            Migration::SelectingStp => {
                self.sends_rapid = false;
                self.mdelay_while = MIGRATE_TIME;
            }
            Migration::Sensing => (self.received_rapid, self.received_stp) = (false, false),
        }
        self.migration = next;
        true
    }

    /// The bridge detection machine (17.25).
    fn step_edge(&mut self) -> bool {
        let is_alone = self.edge_delay_while == 0
            && self.settings.is_auto_edge
            && self.sends_rapid
            && self.proposing;
        let is_admin = self.settings.is_admin_edge;
        let is_edge = match self.is_edge {
            false => !self.is_enabled && is_admin || is_alone,
            true => self.is_enabled || is_admin,
        };
        std::mem::replace(&mut self.is_edge, is_edge) != is_edge
    }

    /// The port information machine (17.27).
    fn step_information(&mut self, shared: &Shared) -> bool {
        if !self.is_enabled {
            if self.info_is == InfoIs::Disabled && self.message.is_none() {
                return false;
            }
            self.message = None;
            (self.proposing, self.proposed) = (false, false);
            (self.agree, self.agreed) = (false, false);
            self.received_info_while = 0;
            self.info_is = InfoIs::Disabled;
            (self.must_reselect, self.is_selected) = (true, false);
            return true;
        }
        let is_over = self.info_is == InfoIs::Received
            && self.received_info_while == 0
            && !self.must_update
            && self.message.is_none();
        if self.info_is == InfoIs::Disabled || is_over {
            self.info_is = InfoIs::Aged;
            (self.must_reselect, self.is_selected) = (true, false);
            return true;
        }
        if self.is_selected && self.must_update {
            let is_as_good = self.info_is == InfoIs::Mine && self.designated <= self.priority;
            (self.proposing, self.proposed) = (false, false);
            self.agreed &= is_as_good;
            self.synced &= self.agreed;
            (self.priority, self.times) = (self.designated, self.designated_times);
            self.must_update = false;
            self.info_is = InfoIs::Mine;
            self.has_news = true;
            return true;
        }
        if self.info_is == InfoIs::Aged || self.must_update {
            return false; // until roles are selected
        }
        let Some(bpdu) = self.message.take() else { return false };
        self.learn_from(&bpdu, shared);
        true
    }

    /// Classifies a message (17.21.8). `message` has this port's identifier.
    fn meaning(&self, message: &Message) -> Received {
        let (new, old) = (&message.vector, &self.priority);
        match message.role {
            Role::Designated => {
                let is_same = new == old && message.times == self.times;
                let is_superior = new < old || new.has_source_of(old);
                match self.info_is {
                    InfoIs::Received if is_same => Received::RepeatedDesignated,
                    _ if is_same => Received::Other,
                    _ if is_superior => Received::SuperiorDesignated,
                    _ => Received::InferiorDesignated,
                }
            }
            Role::Root | Role::Alternate | Role::Backup if new >= old => {
                Received::InferiorRootAlternate
            }
            Role::Root | Role::Alternate | Role::Backup | Role::Disabled => Received::Other,
        }
    }

    fn learn_from(&mut self, bpdu: &Bpdu, shared: &Shared) {
        let (mut message, is_rapid) = match bpdu {
            Bpdu::TopologyChange => {
                self.topology.is_notified = true;
                return;
            }
            Bpdu::Config(message) => (*message, false),
            Bpdu::Rapid(message) => (*message, true),
        };
        message.vector.port = self.id;
        message.times.hello_time = message.times.hello_time.max(1);
        let meaning = self.meaning(&message);
        match meaning {
            Received::SuperiorDesignated => {
                (self.agreed, self.proposing) = (false, false);
                self.proposed |= message.proposes;
                self.note_change(&message);
                let is_as_good =
                    self.info_is == InfoIs::Received && message.vector <= self.priority;
                self.agree &= is_as_good;
                (self.priority, self.times) = (message.vector, message.times);
                self.keep_information();
                self.info_is = InfoIs::Received;
                (self.must_reselect, self.is_selected) = (true, false);
            }
            Received::RepeatedDesignated => {
                self.proposed |= message.proposes;
                self.note_change(&message);
                self.keep_information();
            }
            Received::InferiorDesignated => {
                if is_rapid && message.learns {
                    (self.disputed, self.agreed) = (true, false);
                }
            }
            Received::InferiorRootAlternate => {
                let is_agreement = shared.is_rapid
                    && self.settings.is_point_to_point
                    && is_rapid
                    && message.agrees;
                self.agreed = is_agreement;
                self.proposing &= !is_agreement;
                self.note_change(&message);
            }
            Received::Other => {}
        }
    }

    /// Notes the flags of changes of the topology (17.21.17).
    fn note_change(&mut self, message: &Message) {
        self.topology.is_received |= message.is_changing;
        self.topology.is_acknowledged |= message.acknowledges;
    }

    /// Keeps received information for three hello times, unless it is too old (17.21.23).
    fn keep_information(&mut self) {
        let age = self.times.message_age.saturating_add(1);
        self.received_info_while = match age <= self.times.max_age {
            true => self.times.hello_time.saturating_mul(3),
            false => 0,
        };
    }

    /// Time in each of the states discarding and learning (17.20.6).
    fn forward_delay(&self) -> u8 {
        match self.sends_rapid {
            true => self.designated_times.hello_time,
            false => self.designated_times.forward_delay,
        }
    }

    /// The port role transition machine (17.29).
    fn step_role(&mut self, shared: &Shared) -> bool {
        if !self.is_selected || self.must_update {
            return false;
        }
        if self.role != self.selected_role {
            self.role = self.selected_role;
            self.stage = match self.role {
                Role::Root => Stage::Root,
                Role::Designated => Stage::Designated,
                Role::Disabled => Stage::Disabling,
                Role::Alternate | Role::Backup => Stage::Blocking,
            };
            match self.stage {
                Stage::Root => self.rr_while = self.designated_times.forward_delay,
                Stage::Disabling | Stage::Blocking => self.stop(),
                Stage::Designated | Stage::Disabled | Stage::Alternate => {}
            }
            return true;
        }
        match self.stage {
            Stage::Disabling | Stage::Blocking if self.learning || self.forwarding => false,
            Stage::Disabling => self.enter_disabled(),
            Stage::Blocking => self.enter_alternate(),
            Stage::Disabled => {
                let is_late = self.fd_while != self.designated_times.max_age;
                let is_due = is_late || self.sync || self.reroot || !self.synced;
                is_due && self.enter_disabled()
            }
            Stage::Root => self.step_root(shared),
            Stage::Designated => self.step_designated(),
            Stage::Alternate => self.step_alternate(shared),
        }
    }

    fn stop(&mut self) {
        (self.learn, self.forward) = (false, false);
    }

    fn enter_disabled(&mut self) -> bool {
        self.stage = Stage::Disabled;
        self.fd_while = self.designated_times.max_age;
        self.rest();
        true
    }

    fn enter_alternate(&mut self) -> bool {
        self.stage = Stage::Alternate;
        self.fd_while = self.forward_delay();
        self.rest();
        true
    }

    /// Marks a port that discards as one that has agreed.
    fn rest(&mut self) {
        self.synced = true;
        self.rr_while = 0;
        (self.sync, self.reroot) = (false, false);
    }

    fn step_root(&mut self, shared: &Shared) -> bool {
        let delay = self.designated_times.forward_delay;
        let is_retired = shared.are_others_rerooted && self.rb_while == 0 && shared.is_rapid;
        let may_go_on = self.fd_while == 0 || is_retired;
        if self.proposed && !self.agree {
            self.asks.sync = true;
            self.proposed = false;
        } else if shared.are_others_synced && !self.agree || self.proposed && self.agree {
            (self.proposed, self.sync) = (false, false);
            self.agree = true;
            self.has_news = true;
        } else if !self.forward && !self.reroot {
            self.asks.reroot = true;
        } else if self.rr_while != delay {
            self.rr_while = delay;
        } else if self.reroot && self.forward {
            self.reroot = false;
        } else if may_go_on && !self.learn {
            self.fd_while = self.forward_delay();
            self.learn = true;
        } else if may_go_on && !self.forward {
            self.fd_while = 0;
            self.forward = true;
        } else {
            return false;
        }
        true
    }

    fn step_designated(&mut self) -> bool {
        let is_still = !self.learning && !self.forwarding;
        let is_unsynced = self.sync && !self.synced || self.reroot && self.rr_while != 0;
        let may_go_on = (self.fd_while == 0 || self.agreed || self.is_edge)
            && (self.rr_while == 0 || !self.reroot)
            && !self.sync;
        if !self.forward && !self.agreed && !self.proposing && !self.is_edge {
            self.proposing = true;
            self.edge_delay_while = match self.settings.is_point_to_point {
                true => MIGRATE_TIME,
                false => self.designated_times.max_age,
            };
            self.has_news = true;
        } else if (is_still || self.agreed || self.is_edge) && !self.synced
            || self.sync && self.synced
        {
            self.rr_while = 0;
            self.synced = true;
            self.sync = false;
        } else if self.rr_while == 0 && self.reroot {
            self.reroot = false;
        } else if (is_unsynced || self.disputed) && !self.is_edge && (self.learn || self.forward) {
            self.stop();
            self.disputed = false;
            self.fd_while = self.forward_delay();
        } else if may_go_on && !self.learn {
            self.learn = true;
            self.fd_while = self.forward_delay();
        } else if may_go_on && !self.forward {
            self.forward = true;
            self.fd_while = 0;
            self.agreed = self.sends_rapid;
        } else {
            return false;
        }
        true
    }

    fn step_alternate(&mut self, shared: &Shared) -> bool {
        let twice = self.designated_times.hello_time.saturating_mul(2);
        if self.proposed && !self.agree {
            self.asks.sync = true;
            self.proposed = false;
        } else if shared.are_others_synced && !self.agree || self.proposed && self.agree {
            self.proposed = false;
            self.agree = true;
            self.has_news = true;
        } else if self.rb_while != twice && self.role == Role::Backup {
            self.rb_while = twice;
        } else if self.fd_while != self.forward_delay() || self.sync || self.reroot || !self.synced
        {
            return self.enter_alternate();
        } else {
            return false;
        }
        true
    }

    /// The port state transition machine (17.30).
    fn step_state(&mut self) -> bool {
        let next = match (self.learning, self.forwarding) {
            (false, _) => (self.learn, false),
            (true, false) => (self.learn, self.learn && self.forward),
            (true, true) => (self.forward, self.forward),
        };
        let before = (self.learning, self.forwarding);
        (self.learning, self.forwarding) = next;
        before != next
    }

    /// The topology change machine (17.31).
    fn step_topology(&mut self, shared: &Shared) -> bool {
        let is_active = matches!(self.role, Role::Root | Role::Designated);
        let topology = &mut self.topology;
        let is_seen = topology.is_received
            || topology.is_notified
            || topology.is_acknowledged
            || topology.propagates;
        match topology.stage {
            TopologyStage::Inactive if self.learn => self.enter_topology_learning(),
            TopologyStage::Learning if is_active && self.forward && !self.is_edge => {
                self.report_change(shared);
                self.asks.propagate = true;
                self.has_news = true;
                self.topology.stage = TopologyStage::Active;
            }
            TopologyStage::Learning if is_seen => self.enter_topology_learning(),
            TopologyStage::Learning if !is_active && !self.learn && !self.learning => {
                self.must_flush = true;
                topology.until = 0;
                topology.acknowledges = false;
                topology.stage = TopologyStage::Inactive;
            }
            TopologyStage::Active if !is_active || self.is_edge => self.enter_topology_learning(),
            TopologyStage::Active if topology.is_notified || topology.is_received => {
                let is_notified = topology.is_notified;
                (topology.is_notified, topology.is_received) = (false, false);
                topology.acknowledges |= self.role == Role::Designated;
                if is_notified {
                    self.report_change(shared);
                }
                self.asks.propagate = true;
            }
            TopologyStage::Active if topology.propagates => {
                topology.propagates = false;
                self.must_flush = true;
                self.report_change(shared);
            }
            TopologyStage::Active if topology.is_acknowledged => {
                topology.until = 0;
                topology.is_acknowledged = false;
            }
            TopologyStage::Inactive | TopologyStage::Learning | TopologyStage::Active => {
                return false;
            }
        }
        true
    }

    fn enter_topology_learning(&mut self) {
        let topology = &mut self.topology;
        topology.stage = TopologyStage::Learning;
        (topology.is_received, topology.is_notified) = (false, false);
        (topology.is_acknowledged, topology.propagates) = (false, false);
    }

    /// Starts to report a change in BPDUs, unless that is done already (17.21.7).
    fn report_change(&mut self, shared: &Shared) {
        if self.topology.until != 0 {
            return;
        }
        let Times { max_age, forward_delay, .. } = shared.root_times;
        self.topology.until = match self.sends_rapid {
            true => self.designated_times.hello_time.saturating_add(1),
            false => max_age.saturating_add(forward_delay),
        };
        self.has_news |= self.sends_rapid;
    }

    /// The port transmit machine (17.26). Returns the next BPDU to send.
    pub(super) fn transmit(&mut self, shared: &Shared) -> Option<Bpdu> {
        if !self.is_selected || self.must_update {
            return None;
        }
        let is_root = matches!(self.role, Role::Root);
        let is_designated = self.role == Role::Designated;
        if self.hello_when == 0 {
            self.has_news |= is_designated || is_root && self.topology.until != 0;
            self.hello_when = self.designated_times.hello_time.max(1);
        }
        if !self.is_enabled || !self.has_news || self.sent >= shared.hold_count {
            return None;
        }
        let message = Message {
            role: self.role,
            is_changing: self.topology.until != 0,
            acknowledges: self.topology.acknowledges,
            proposes: self.proposing,
            agrees: self.agree,
            learns: self.learning,
            forwards: self.forwarding,
            vector: Vector { port: 0, ..self.designated },
            times: self.designated_times,
        };
        let bpdu = match self.sends_rapid {
            true => Bpdu::Rapid(message),
            false if is_root => Bpdu::TopologyChange,
            false if is_designated => {
                Bpdu::Config(Message { role: Role::Designated, ..message }.plain())
            }
            false => return None,
        };
        self.has_news = false;
        self.sent += 1;
        self.transmitted += 1;
        if !matches!(bpdu, Bpdu::TopologyChange) {
            self.topology.acknowledges = false;
        }
        Some(bpdu)
    }
}

impl Message {
    /// Returns the message without the flags that STP does not have.
    fn plain(self) -> Message {
        Message { proposes: false, agrees: false, learns: false, forwards: false, ..self }
    }
}
