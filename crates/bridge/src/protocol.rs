// SPDX-License-Identifier: Apache-2.0
//! Control protocols on ports: LACP and the like.
//!
//! A [`Protocol`] is a machine with a lock of its own. Translation hands packets to it: the megaflow
//! of such packets is an upcall for each of them, and the packet thread that serves the upcall calls
//! [`Protocol::receive`]. Timers run on the thread `protocols1`, which calls [`Protocol::run`] and
//! sends the frames itself, so that a busy control thread delays none. Without threads (dummy mode)
//! the control thread calls [`SlowPath::run_protocols`] in each of its steps.
//!
//! The control thread makes the machines, configures them, and registers them with
//! [`Protocols::register`]. It reads their results when [`Protocols::take_changed`] returns true;
//! the event [`Event::ProtocolChanged`] wakes it.

use crate::effect;
use crate::event::Event;
use crate::slow_path::SlowPath;
use crate::snapshot::{BridgeIndex, Snapshot};
use crate::translate::Request;
use clock::Millis;
use datapath::FlowStats;
use flow::{Field, FieldValue, Key, Mask, Tunnel};
use hashbrown::HashMap;
use openflow::action::SetSpelling;
use openflow::{Action, PortNo};
use packet::{Packet, ethertype};
use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Most rounds in one call of [`SlowPath::run_protocols`]: two ends in one switch answer each other.
const MOST_ROUNDS: usize = 16;

/// Shortest time between two lines of the log about odd packets to one machine. The other end decides
/// how many there are.
pub(crate) const ODDITY_INTERVAL: Duration = Duration::from_secs(5);

/// Longest sleep of the thread. A deadline ends it earlier.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);

/// The result of [`Protocol::run`].
#[derive(Debug, Default)]
pub struct Round {
    /// Ethernet frames to send, each with its port.
    pub frames: Vec<(PortNo, Packet)>,
    /// Time of the next call; `None` when only a packet or a changed setting makes one due.
    pub next: Option<Millis>,
    /// The control thread has something new to read.
    pub is_changed: bool,
}

/// A machine of a control protocol on ports of one bridge. Any thread may call each method. A method
/// may wait for the machine's own lock only, and holds no lock when it returns.
pub trait Protocol: Debug + Send + Sync {
    /// Returns the name of the protocol in texts of datapath flows: "lacp", "bfd", ….
    fn reason(&self) -> &'static str;

    /// Returns true when the machine takes packets with this key from a port that it is registered
    /// for. Makes exact in `mask` each bit on which the answer depends; the Ethernet type is exact
    /// already.
    fn claims(&self, key: &Key, mask: &mut Mask) -> bool;

    /// Returns true when the machine watches the path to the other end. Its packets leave also by a port
    /// that the spanning tree does not let forward.
    fn watches_path(&self) -> bool {
        false
    }

    /// Returns true when the frames of [`Protocol::run`] that leave through a tunnel carry its flag for
    /// control packets (OAM).
    fn is_oam(&self) -> bool {
        false
    }

    /// Takes a packet that `port` has received. Returns true when [`Protocol::run`] is due.
    fn receive(&self, port: PortNo, packet: &Packet, now: Millis) -> bool;

    /// Does what is due at `now`.
    fn run(&self, now: Millis) -> Round;
}

/// A packet's way to a protocol: translation has found both.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The machine that takes the packet.
    pub protocol: Arc<dyn Protocol>,
    /// The port that has received the packet.
    pub port: PortNo,
}

/// The owners of the machines of one kind: a bridge replaces the machines of each family at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// The bridge has the machine: that of its spanning tree.
    Bridges,
    /// A bundle has the machine, such as one of LACP.
    Bundles,
    /// A single port has the machine, such as one of BFD, CFM or LLDP.
    Ports,
}

/// Machines by bridge and family.
type Machines = HashMap<(BridgeIndex, Family), Vec<Arc<dyn Protocol>>>;

/// The machines of all bridges.
#[derive(Debug, Default)]
pub struct Protocols {
    machines: Mutex<Machines>,
    alarm: Mutex<Alarm>,
    rung: Condvar,
    /// A machine has changed since the last [`Protocols::take_changed`].
    is_changed: AtomicBool,
    /// A thread runs the machines.
    has_thread: AtomicBool,
}

/// Reasons for the thread to end its sleep.
#[derive(Debug, Default)]
struct Alarm {
    is_due: bool,
    is_over: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner) // each value is whole at any time
}

impl Protocols {
    /// Replaces the machines of one family of a bridge, and runs them soon. For the control thread.
    pub fn register(&self, bridge: BridgeIndex, family: Family, machines: Vec<Arc<dyn Protocol>>) {
        let mut all = lock(&self.machines);
        if machines.is_empty() {
            all.remove(&(bridge, family));
        } else {
            all.insert((bridge, family), machines);
        }
        drop(all);
        self.wake();
    }

    /// Removes all machines of a bridge. For the control thread.
    pub fn remove_bridge(&self, bridge: BridgeIndex) {
        lock(&self.machines).retain(|(of, _), _| *of != bridge);
    }

    /// Makes a call of [`SlowPath::run_protocols`] due now.
    pub fn wake(&self) {
        lock(&self.alarm).is_due = true;
        self.rung.notify_all();
    }

    /// Returns true when a machine has changed since the previous call. For the control thread.
    pub fn take_changed(&self) -> bool {
        self.is_changed.swap(false, Ordering::AcqRel)
    }

    /// Makes the next [`Protocols::take_changed`] return true. Returns true if it would have anyway.
    pub(crate) fn mark_changed(&self) -> bool {
        self.is_changed.swap(true, Ordering::AcqRel)
    }

    fn take_due(&self) -> bool {
        std::mem::take(&mut lock(&self.alarm).is_due)
    }

    fn all(&self) -> Vec<(BridgeIndex, Arc<dyn Protocol>)> {
        let machines = lock(&self.machines);
        let of_bridge = machines.iter();
        of_bridge
            .flat_map(|((index, _), all)| all.iter().map(|m| (*index, Arc::clone(m))))
            .collect()
    }

    /// Sleeps until `due`, or until a call is due. Returns false when the thread is to end.
    fn sleep(&self, due: Duration) -> bool {
        let alarm = lock(&self.alarm);
        let sleeps = |alarm: &mut Alarm| !alarm.is_due && !alarm.is_over;
        let (mut alarm, _) = self
            .rung
            .wait_timeout_while(alarm, due, sleeps)
            .unwrap_or_else(PoisonError::into_inner);
        alarm.is_due = false;
        !alarm.is_over
    }

    fn stop(&self) {
        lock(&self.alarm).is_over = true;
        self.rung.notify_all();
    }
}

impl SlowPath {
    /// Hands a packet to the protocols that translation has found for it.
    pub(crate) fn deliver(&self, claims: &[Claim], packet: &Packet, now: Millis) {
        for claim in claims {
            if claim.protocol.receive(claim.port, packet, now) {
                self.protocols.wake();
                if !self.protocols.has_thread.load(Ordering::Relaxed) {
                    self.protocol_changed(); // the control thread runs the machine
                }
            }
        }
    }

    /// Wakes the control thread, unless a change waits for it already: a peer that sends changes
    /// without end fills no queue. An event without room is no loss, since the control thread looks
    /// for changes after the events that took the room.
    fn protocol_changed(&self) {
        if !self.protocols.mark_changed() {
            self.events.send(Event::ProtocolChanged);
        }
    }

    /// Runs the machines of control protocols, and sends their frames. Returns the time of the next
    /// call; `None` when only an event makes one due.
    pub fn run_protocols(&self) -> Option<Millis> {
        let mut next = None;
        for round in 1..=MOST_ROUNDS {
            let machines = self.protocols.all();
            let snapshot = self.published.newest();
            let now = self.clock.now();
            next = None;
            for (bridge, machine) in machines {
                let round = machine.run(now);
                next = [next, round.next].into_iter().flatten().min();
                for (port, frame) in round.frames {
                    self.send_by(&snapshot, bridge, port, frame, machine.is_oam(), now);
                }
                if round.is_changed {
                    self.protocol_changed();
                }
            }
            // Work that is due after the last round stays due, and ends the next sleep.
            if round == MOST_ROUNDS || !self.protocols.take_due() {
                break;
            }
        }
        next
    }

    /// Sends a frame of the switch by a port, past the tables. A port without a bridge sends
    /// nothing.
    fn send_by(
        &self,
        snapshot: &Snapshot,
        bridge: BridgeIndex,
        port: PortNo,
        frame: Packet,
        is_oam: bool,
        now: Millis,
    ) {
        let Some(view) = snapshot.bridge(bridge) else { return };
        let oam = FieldValue::from(Tunnel::OAM);
        let actions = [
            Action::SetField {
                field: Field::TunFlags,
                value: oam,
                mask: oam,
                spelled: SetSpelling::SetField,
            },
            Action::Output { port, max_len: 0 },
        ];
        let mut key = flow::extract::key_of(frame.data(), PortNo::NONE.0);
        key.in_port = PortNo::NONE.0.into();
        let [_, output @ ..] = &actions;
        let translation = self.translate_counted(Request {
            packet: Some(&frame),
            actions: Some(if is_oam { &actions } else { output }),
            ..Request::new(snapshot, bridge, key, &self.recirc, now)
        });
        let bytes = frame.len() as u64;
        let seen = FlowStats { packets: 1, bytes, used: now, tcp_flags: 0 };
        effect::apply(&translation.effects, &seen, &self.events);
        self.deliver(&translation.claims, &frame, now);
        let Some(datapath) = self.datapath().filter(|_| !translation.actions.is_empty()) else {
            return;
        };
        let key = flow::extract::key_of(frame.data(), view.origin_of(PortNo::NONE).0);
        datapath.execute(frame, &key, &translation.actions);
    }
}

/// The thread that runs the machines. It ends when this value is dropped.
#[derive(Debug)]
pub(crate) struct ProtocolThread {
    slow: Arc<SlowPath>,
    thread: Option<JoinHandle<()>>,
}

impl ProtocolThread {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// Fails when the thread cannot be started.
    pub(crate) fn start(slow: Arc<SlowPath>) -> std::io::Result<ProtocolThread> {
        let worker = Arc::clone(&slow);
        slow.protocols.has_thread.store(true, Ordering::Relaxed);
        let thread =
            std::thread::Builder::new().name("protocols1".to_owned()).spawn(move || {
                loop {
                    let next = worker.run_protocols();
                    let now = worker.clock.now();
                    let left = next.map(|next| Duration::from_millis(next.since(now)));
                    if !worker
                        .protocols
                        .sleep(left.map_or(LONGEST_SLEEP, |left| left.min(LONGEST_SLEEP)))
                    {
                        break;
                    }
                }
            })?;
        Ok(ProtocolThread { slow, thread: Some(thread) })
    }
}

impl Drop for ProtocolThread {
    fn drop(&mut self) {
        self.slow.protocols.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a panic there was reported on stderr
        }
    }
}

/// Returns the bytes after the Ethernet header and its VLAN headers.
pub(crate) fn payload(frame: &[u8]) -> &[u8] {
    let mut rest = frame.get(12..).unwrap_or_default();
    while let [a, b, _, _, after @ ..] = rest
        && ethertype::is_vlan(u16::from_be_bytes([*a, *b]))
    {
        rest = after;
    }
    rest.get(2..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_payload_is_after_the_vlan_headers() {
        let plain = [&[0; 12][..], &[0x88, 0x09, 1, 2, 3]].concat();
        assert_eq!(payload(&plain), [1, 2, 3]);
        let tagged = [&[0; 12][..], &[0x88, 0xa8, 0, 1, 0x81, 0, 0, 2, 0x88, 0x09, 1]].concat();
        assert_eq!(payload(&tagged), [1]);
        for len in 0..14 {
            assert_eq!(payload(&plain[..len]), [0u8; 0]);
        }
    }
}
