// SPDX-License-Identifier: Apache-2.0
//! The daemon's state: one structure on one thread.
//!
//! Each source of work (the database, OpenFlow peers, `ovs-appctl`, packets' events, the clock)
//! borrows [`Daemon`] for one short, synchronous step, and then calls [`Daemon::publish_and_wake`].
//! That publishes the changes to packet threads and wakes the tasks that have output. No borrow is
//! held across an `await`.
//!
//! The daemon depends on [`crate::config`] and [`crate::openflow`], and neither depends on it:
//! configuration works on a [`Context`], and tasks of OpenFlow sockets on a [`Control`].

use crate::args::{Args, DummyLevel};
use crate::config::{self, Configuration, Context, Extent};
use crate::openflow::{Control, Parts, Services, SharedControl};
use crate::routing::NeighbourKeeper;
use bridge::connection::{Connections, PortEvent};
use bridge::event::{Event, Sender};
use bridge::pipeline::Change;
use bridge::snapshot::BridgeIndex;
use bridge::switch::Switch;
use clock::Clock;
use datapath_kernel::CoupledDatapath;
use datapath_userspace::UserspaceDatapath;
use openflow::{Action, PortNo};
use packet::Packet;
use placement::PlacedDatapath;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, mpsc};
use underlay::Underlay;

/// Most events from packets that wait for the control thread; further events are dropped and
/// counted.
const EVENT_QUEUE: usize = 4096;

/// Most events that one step handles while packet threads send more: some milliseconds of work.
const EVENT_TURN: usize = 128;

/// Longest wait, in a step of a stopped clock, for frames between dummies. They take microseconds.
const LONGEST_FLIGHT: Duration = Duration::from_secs(1);

/// A request to stop the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit {
    /// True to remove bridges, and so the interfaces and BPF state that outlive a plain exit (`exit
    /// --cleanup`).
    pub cleanup: bool,
}

/// The daemon's state; see the module's text.
pub struct Daemon {
    /// All bridges over the datapath.
    pub switch: Switch,
    /// The userspace datapath, for facts that only it has (thread statistics, cores).
    pub userspace: Arc<UserspaceDatapath>,
    /// The placement of flows in tiers; `None` in dummy mode, where all flows are in userspace.
    pub placed: Option<Arc<PlacedDatapath>>,
    /// The switch's datapath and the kernel's as one; `None` in dummy mode.
    pub coupled: Option<Arc<CoupledDatapath>>,
    /// Routes and neighbours of the network that carries tunnels.
    pub underlay: Arc<Underlay>,
    /// True when the kernel's routes and neighbours are followed: not in dummy mode, and not with
    /// `--disable-system-route`.
    pub follows_kernel_routes: bool,
    /// Has the kernel ask for neighbours at devices of the host.
    pub(crate) neighbour_keeper: NeighbourKeeper,
    /// OpenFlow connections.
    pub connections: Connections,
    /// OpenFlow listeners and connectors.
    pub services: Services,
    /// The connection to the database, and the objects that were made from its rows.
    pub configuration: Configuration,
    /// The switch's clock.
    pub clock: Clock,
    /// Dummy mode.
    pub dummy: DummyLevel,
    /// `--disable-system`: the datapath type `system` is not offered.
    pub disable_system: bool,
    /// The database may name only Unix sockets of the run directory. False with
    /// `--no-self-confinement`.
    pub is_confined: bool,
    /// Directories and files.
    pub directories: process::Dirs,
    /// Present once the daemon has been asked to stop.
    pub exit: Option<Exit>,
    /// Rung when `exit` was set.
    pub stop: Rc<Notify>,
    /// Rung after a step that may have made work due by the clock.
    pub activity: Rc<Notify>,
    /// Rung when ports may have work that was postponed ([`PlacedDatapath::work_off`]).
    pub postponed: Rc<Notify>,
    /// True while a task sleeps until `activity` is rung.
    pub is_resting: bool,
    events: mpsc::Receiver<Event>,
}

/// A handle on the daemon's state, for tasks and commands of the control thread.
pub type Shared = Rc<RefCell<Daemon>>;

/// Makes the channel for packets' events. Returns the sending end for [`Switch::new`], the receiving
/// end for the daemon, and a bell that rings when an event was sent.
pub fn event_channel() -> (Sender, mpsc::Receiver<Event>, Arc<Notify>) {
    let (tx, rx) = mpsc::channel(EVENT_QUEUE);
    let bell = Arc::new(Notify::new());
    let ring = Arc::clone(&bell);
    let sender = Sender::new(move |event| {
        let sent = tx.try_send(event).is_ok();
        ring.notify_one();
        sent
    });
    (sender, rx, bell)
}

impl Daemon {
    /// Returns a daemon without bridges.
    #[expect(clippy::too_many_arguments, reason = "called once, by the wiring")]
    pub fn new(
        switch: Switch,
        userspace: Arc<UserspaceDatapath>,
        placed: Option<Arc<PlacedDatapath>>,
        coupled: Option<Arc<CoupledDatapath>>,
        underlay: Arc<Underlay>,
        services: Services,
        configuration: Configuration,
        clock: Clock,
        args: &Args,
        directories: process::Dirs,
        events: mpsc::Receiver<Event>,
    ) -> Daemon {
        let mut switch = switch;
        switch.set_underlay(Arc::clone(&underlay));
        let sender = switch.slow_path().events.clone();
        underlay.on_change(move || sender.send(Event::UnderlayChanged));
        Daemon {
            switch,
            userspace,
            placed,
            coupled,
            underlay,
            follows_kernel_routes: args.dummy == DummyLevel::Off && !args.disable_system_route,
            neighbour_keeper: NeighbourKeeper::default(),
            connections: Connections::new(),
            services,
            configuration,
            clock,
            dummy: args.dummy,
            disable_system: args.disable_system,
            is_confined: !args.no_self_confinement,
            directories,
            exit: None,
            stop: Rc::new(Notify::new()),
            activity: Rc::new(Notify::new()),
            postponed: Rc::new(Notify::new()),
            is_resting: false,
            events,
        }
    }

    /// Handles events from packets; with packet threads, at most `EVENT_TURN` of them. Packet threads
    /// may send faster than this thread works, and this thread has other duties.
    pub fn drain_events(&mut self) {
        let most = if self.switch.has_revalidator_thread() { EVENT_TURN } else { usize::MAX };
        for _ in 0..most {
            let Ok(event) = self.events.try_recv() else { break };
            match event {
                Event::PacketIn(packet_in) => {
                    self.connections.packet_in(&packet_in, &self.switch, self.clock.now())
                }
                Event::LearnFlow { bridge, flow, used } => {
                    match self.switch.learn(bridge, &flow, used) {
                        Ok(changes) => self.changed(bridge, changes),
                        Err(error) => {
                            tracing::debug!(target: "ofproto", "learned flow was not added ({error})");
                        }
                    }
                }
                Event::Solicit { bridge, port, packet } => self.solicit(bridge, port, &packet),
                Event::ResolveNeighbour { device, address } => {
                    self.neighbour_keeper.resolve(&self.underlay, &device, address);
                }
                Event::MacTableChanged(_) | Event::UnderlayChanged | Event::ProtocolChanged => {}
            }
        }
        if self.switch.slow_path().events.take_moves() {
            self.switch.mac_tables_changed();
        }
    }

    /// Sends a packet that asks for a neighbour of the underlay through the tables of a bridge, as if
    /// `port` had received it.
    fn solicit(&mut self, bridge: BridgeIndex, port: PortNo, packet: &Packet) {
        let actions = [Action::Output { port: PortNo::TABLE, max_len: 0 }];
        let any = flow::Match::ANY;
        match self.switch.packet_out(bridge, packet.clone(), &any, port, &actions) {
            Ok(learned) => {
                for (bridge, changes) in learned {
                    self.changed(bridge, changes);
                }
            }
            Err(error) => {
                tracing::debug!(target: "tunnel", "a neighbour was not asked for ({error})");
            }
        }
    }

    /// Returns true when [`Daemon::drain_events`] has left events.
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Reports changed rules to OpenFlow peers.
    pub fn changed(&mut self, bridge: BridgeIndex, changes: Vec<Change>) {
        if !changes.is_empty() {
            self.connections.rules_changed(bridge, changes, &mut self.switch, self.clock.now());
        }
    }

    /// Ends a step: handles events, publishes changes, wakes the tasks of peers with output.
    pub fn publish_and_wake(&mut self) {
        self.drain_events();
        self.switch.publish();
        self.switch.run_protocols();
        self.switch.publish();
        self.report_port_changes();
        for (bridge, changes) in self.switch.announce_bonds() {
            self.changed(bridge, changes);
        }
        // Without a revalidator thread, publishing makes a pass, whose effects are events.
        self.drain_events();
        self.switch.publish();
        self.services.wake(&self.connections);
        self.stir();
    }

    /// Reports to OpenFlow peers, and in the database, the ports that control protocols have changed.
    /// The state that a protocol finds for the path of a port is for the database only.
    fn report_port_changes(&mut self) {
        let changed = self.switch.take_port_changes();
        if !self.switch.take_status_changed() && changed.is_empty() {
            return;
        }
        for (bridge, before) in changed {
            let port = self.switch.bridge(bridge).and_then(|b| b.ports.get(&before.port_no));
            if let Some(after) = port.map(bridge::port::Port::desc) {
                let event = PortEvent::Modified { before: &before, after: &after };
                self.connections.port_status(bridge, event);
            }
        }
        self.write_states();
    }

    /// Wakes the tasks that go by the clock: work may be due for them.
    pub fn stir(&mut self) {
        if std::mem::take(&mut self.is_resting) {
            self.activity.notify_one();
        }
    }

    /// Does periodic work: timeouts, ages, probes.
    pub fn tick(&mut self) {
        self.underlay.expire();
        self.switch.run_protocols();
        self.switch.revalidate_inline();
        self.expire();
        self.configuration.run_exports(&self.switch, self.clock.now());
        self.run_connections();
    }

    /// Does the part of [`Daemon::tick`] that may be due between two ticks.
    pub fn run_connections(&mut self) {
        let now = self.clock.now();
        self.connections.run(&mut self.switch, now);
        self.publish_and_wake();
    }

    /// Expires rules after a pass over all megaflows, which has collected the packets' counters. As in
    /// OVS, rules expire even while the clock is stopped: `fin_timeout` may have made them overdue.
    pub fn after_pass(&mut self) {
        self.publish_and_wake();
        self.expire();
        self.publish_and_wake();
    }

    fn expire(&mut self) {
        for (bridge, changes) in self.switch.run() {
            self.changed(bridge, changes);
        }
    }

    /// Moves the clock forward by `ms` in steps of at most `step` milliseconds. Each step does the
    /// work that is due by then (`ovs-appctl time/warp`).
    pub fn warp(&mut self, ms: u64, step: u64) {
        let mut left = ms;
        while left > 0 {
            let by = step.clamp(1, left);
            self.clock.advance(by);
            left -= by;
            self.tick();
            self.write_status();
            // As in Open vSwitch, frames between dummies arrive within the step.
            netdev::dummy::wait_until_idle(LONGEST_FLIGHT);
        }
        self.tick(); // the last step may have made records that leave in the next round
    }

    /// Writes the states that changed and, when they are due, the statistics. Returns true when a
    /// device is found gone.
    fn write_status(&mut self) -> bool {
        let (configuration, mut context) = self.configuring();
        let Some(extent) = configuration.begin_round(&mut context) else { return false };
        let has_statistics = extent == Extent::Statistics;
        let is_lost = has_statistics && config::has_lost_device(&self.switch);
        // Dummies change by command. Devices report changes (`links_changed`), except for speed and
        // the like.
        if has_statistics {
            self.userspace.adapt_threads(Instant::now());
        }
        if has_statistics || self.dummy != DummyLevel::Off {
            self.refresh_ports();
        }
        self.run_fail_modes();
        self.write_changes(extent);
        is_lost
    }

    /// Reads the status of all ports, and reports changes to peers.
    pub fn refresh_ports(&mut self) {
        for (bridge, before) in self.switch.refresh_ports() {
            let port = self.switch.bridge(bridge).and_then(|b| b.ports.get(&before.port_no));
            if let (Some(placed), Some(number)) = (&self.placed, port.and_then(|p| p.dp_port)) {
                placed.refresh(number);
            }
            if let Some(after) = port.map(bridge::port::Port::desc) {
                let event = PortEvent::Modified { before: &before, after: &after };
                self.connections.port_status(bridge, event);
            }
        }
        if let Some(placed) = &self.placed {
            let ports = self.switch.bridges().flat_map(|b| b.ports.values());
            for port in ports.filter(|port| port.tunnel.is_none()) {
                if let Some(number) = port.dp_port {
                    placed.compare(number, &port.status);
                }
            }
            for number in self.switch.host_ports() {
                let device = self.switch.datapath().device(number);
                let status = device.and_then(|device| device.status().ok());
                if let Some(status) = status {
                    placed.compare(number, &status);
                }
            }
        }
    }

    /// Opens and closes bridges by the state of their controllers.
    pub fn run_fail_modes(&mut self) {
        if !self.configuration.is_configured() {
            return;
        }
        let (configuration, mut context) = self.configuring();
        configuration.run_fail_modes(&mut context);
        self.publish_and_wake();
    }

    /// Writes states that a command has just changed into the database, without waiting for
    /// [`status_tick`].
    pub fn write_states(&mut self) {
        self.write_changes(Extent::States);
    }

    fn write_changes(&mut self, extent: Extent) {
        let (configuration, context) = self.configuring();
        configuration.write_changes(&context, extent);
    }

    /// Removes all bridges with their ports (`exit --cleanup`).
    pub fn remove_bridges(&mut self) {
        let (configuration, mut context) = self.configuring();
        configuration.remove_bridges(&mut context);
        self.publish_and_wake();
    }

    /// Returns how long neither [`Daemon::tick`] nor [`status_tick`] has anything to do, unless an
    /// event brings some, which rings [`Daemon::activity`] as every [`Daemon::publish_and_wake`]
    /// does. `None` when there is something to poll.
    pub fn time_until_next_deadline(&self) -> Option<Duration> {
        let deadlines = [
            self.switch.deadline(),
            self.connections.deadline(),
            self.underlay.next_expiry(),
            self.configuration.export_deadline(),
        ];
        let deadlines = deadlines.into_iter().flatten();
        self.configuration.time_until_next_deadline(self.clock.now(), self.dummy, deadlines)
    }

    /// Borrows the configuration, and with it the parts of the daemon that it works on.
    fn configuring(&mut self) -> (&mut Configuration, Context<'_>) {
        let context = Context {
            switch: &mut self.switch,
            connections: &mut self.connections,
            services: &self.services,
            userspace: &self.userspace,
            placed: self.placed.as_ref(),
            coupled: self.coupled.as_ref(),
            underlay: &self.underlay,
            clock: &self.clock,
            directories: &self.directories,
            activity: &self.activity,
            dummy: self.dummy,
            disable_system: self.disable_system,
            is_confined: self.is_confined,
        };
        (&mut self.configuration, context)
    }

    /// Makes the daemon stop after the present step.
    pub fn request_exit(&mut self, exit: Exit) {
        self.exit.get_or_insert(exit);
        self.stop.notify_one();
    }
}

impl Control for Daemon {
    fn parts(&mut self) -> Parts<'_> {
        Parts {
            switch: &mut self.switch,
            connections: &mut self.connections,
            services: &mut self.services,
            now: self.clock.now(),
        }
    }

    fn publish_and_wake(&mut self) {
        Daemon::publish_and_wake(self);
    }
}

/// Makes the switch what the database says, and writes back what was made. Returns true when the
/// switch now is what the database says. Returns false when the database cannot be read and written
/// (no connection, not the lock), or has no Open_vSwitch row; nothing was done then.
pub fn reconfigure(daemon: &Shared) -> bool {
    let control: SharedControl = daemon.clone();
    let mut d = daemon.borrow_mut();
    let (configuration, mut context) = d.configuring();
    let Some(applied) = configuration.apply(&mut context, &control) else { return false };
    d.publish_and_wake();
    let (configuration, mut context) = d.configuring();
    configuration.finish(&mut context, &applied);
    d.postponed.notify_one();
    true
}

/// Follows interfaces of the host that came, went or changed: closes ports whose device is gone,
/// opens those whose device is there (again), and writes their state.
pub fn links_changed(daemon: &Shared) {
    // A reconfiguration does all of this. Where nothing has changed it costs a check of each device.
    if reconfigure(daemon) {
        return;
    }
    let mut d = daemon.borrow_mut();
    let (configuration, mut context) = d.configuring();
    configuration.close_lost_ports(&mut context);
    d.publish_and_wake();
}

/// Does periodic work: fail modes, and the writing of states that changed and, every
/// `stats-update-interval`, of statistics. It is cheap when nothing has changed. It is to be called
/// about twice a second, except for as long as [`Daemon::time_until_next_deadline`] says.
pub fn status_tick(daemon: &Shared) {
    let is_lost = daemon.borrow_mut().write_status();
    if is_lost {
        links_changed(daemon);
    }
}
