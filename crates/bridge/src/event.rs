// SPDX-License-Identifier: Apache-2.0
//! Events from packets to the control thread.
//!
//! Packet threads and the revalidator send events with a [`Sender`]; the control thread takes them
//! later. Sending never waits. An event without room is dropped and counted. The change of a MAC
//! table is kept in a flag and cannot be lost. A packet that has made a flow may wait until the
//! flow is added (`Sender::await_learned`).

use crate::ids::BridgeIndex;
use crate::learned_flow::LearnedFlow;
use clock::Millis;
use openflow::PortNo;
use packet::Packet;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A packet for controllers.
#[derive(Clone, Debug)]
pub struct PacketIn {
    /// Bridge that the packet passed.
    pub bridge: BridgeIndex,
    /// The packet as it was at the action.
    pub packet: Packet,
    /// Metadata of the packet: in_port (OpenFlow number), registers, metadata, ….
    pub metadata: flow::Match,
    /// Number of a [`openflow::message::PacketInReason`], or the reason of a `controller` action.
    pub reason: u8,
    /// Table of the rule.
    pub table: u8,
    /// Cookie of the rule; all ones on a table miss.
    pub cookie: u64,
    /// Most bytes of the packet to send.
    pub max_len: u16,
    /// Id of the controllers that receive the packet.
    pub controller_id: u16,
    /// Data of `controller(userdata=...)`.
    pub userdata: Arc<[u8]>,
    /// The rule is a table-miss rule (priority 0, match all).
    pub table_miss: bool,
    /// Frozen pipeline for NXT_RESUME.
    pub continuation: Option<Arc<Vec<u8>>>,
}

/// Work for the control thread.
#[derive(Clone, Debug)]
pub enum Event {
    /// Sends a packet to controllers.
    PacketIn(Box<PacketIn>),
    /// Adds or refreshes a learned flow, for packets seen at `used`.
    LearnFlow {
        /// Bridge of the flow.
        bridge: BridgeIndex,
        /// The flow.
        flow: Arc<LearnedFlow>,
        /// Time at which its packets were seen.
        used: Millis,
    },
    /// Sends a packet that asks for a neighbour of the underlay, through the tables of a bridge.
    Solicit {
        /// Bridge of the device.
        bridge: BridgeIndex,
        /// Port of the device.
        port: PortNo,
        /// The packet.
        packet: Arc<Packet>,
    },
    /// Makes the kernel ask for a neighbour at a device of the host.
    ResolveNeighbour {
        /// Name of the device.
        device: Arc<str>,
        /// Address of the neighbour.
        address: IpAddr,
    },
    /// A control protocol has changed. The event only wakes the control thread:
    /// [`crate::protocol::Protocols::take_changed`] reports the change even when the event found no
    /// room.
    ProtocolChanged,
    /// Routes, neighbours or addresses of the underlay have changed. The event only wakes the control
    /// thread: [`crate::switch::Switch::publish`] finds the change.
    UnderlayChanged,
    /// A MAC or multicast table has changed, and megaflows must be translated again. The event only wakes the
    /// control thread: [`Sender::take_moves`] reports the change even when the event found no room.
    MacTableChanged(BridgeIndex),
}

/// The sending end for events. It is bounded: an event without room is dropped and counted, so
/// sending never waits. Clones send to the same control thread.
#[derive(Clone)]
pub struct Sender(Arc<Outlet<dyn Fn(Event) -> bool + Send + Sync>>);

/// Longest time that a packet waits until the flow that it made is added; tests may set another.
const LONGEST_LEARNING: Duration = Duration::from_millis(10);

/// Progress of the control thread in adding learned flows.
#[derive(Default)]
struct Learning {
    /// Flows sent to be learned.
    sent: u64,
    /// Number of flows, in the order of sending, that are learned and published or were refused.
    done: u64,
    /// Value of `sent` at the start of the last wait that timed out. No thread waits until `done`
    /// reaches it.
    overdue: u64,
}

struct Outlet<F: ?Sized> {
    longest_learning: Duration,
    learning: Mutex<Learning>,
    learned: Condvar,
    lost: AtomicU64,
    lost_packet_ins: AtomicU64,
    /// A MAC table has changed since the last [`Sender::take_moves`].
    moved: AtomicBool,
    deliver: F,
}

impl Sender {
    /// Returns a sender over `deliver`. `deliver` takes an event and returns whether there was
    /// room. It must not block, and wakes the control thread in either case.
    pub fn new(deliver: impl Fn(Event) -> bool + Send + Sync + 'static) -> Sender {
        Sender::with_patience(LONGEST_LEARNING, deliver)
    }

    /// Does the same as [`Sender::new`], with another longest wait for a learned flow. For tests.
    pub fn with_patience(
        longest_learning: Duration,
        deliver: impl Fn(Event) -> bool + Send + Sync + 'static,
    ) -> Sender {
        Sender(Arc::new(Outlet {
            longest_learning,
            learning: Mutex::default(),
            learned: Condvar::new(),
            lost: AtomicU64::new(0),
            lost_packet_ins: AtomicU64::new(0),
            moved: AtomicBool::new(false),
            deliver,
        }))
    }

    /// Sends an event. An event without room is dropped and counted.
    pub fn send(&self, event: Event) {
        if matches!(event, Event::MacTableChanged(_)) {
            self.0.moved.store(true, Ordering::Release);
        }
        // The lock is held so that flows are delivered in the order in which they are counted.
        let learning = matches!(event, Event::LearnFlow { .. }).then(|| self.learning());
        let is_packet_in = matches!(event, Event::PacketIn(_));
        if !(self.0.deliver)(event) {
            self.0.lost.fetch_add(1, Ordering::Relaxed);
            self.0.lost_packet_ins.fetch_add(is_packet_in.into(), Ordering::Relaxed);
        } else if let Some(mut learning) = learning {
            learning.sent += 1;
        }
    }

    fn learning(&self) -> MutexGuard<'_, Learning> {
        self.0.learning.lock().unwrap_or_else(PoisonError::into_inner) // numbers, each whole
    }

    /// Waits until all flows sent so far are added, so that packets caused by this packet find the
    /// flows that it made. The wait is bounded, because the thread has other packets. There is no
    /// wait while the control thread is known to be late. The control thread must not call this.
    pub(crate) fn await_learned(&self) {
        let mut learning = self.learning();
        if learning.overdue > learning.done {
            return;
        }
        let target = learning.sent;
        let is_late = |learning: &mut Learning| learning.done < target;
        let waited = self.0.learned.wait_timeout_while(learning, self.0.longest_learning, is_late);
        learning = waited.unwrap_or_else(PoisonError::into_inner).0;
        if learning.done < target {
            learning.overdue = learning.overdue.max(target);
        }
    }

    /// Records that the next `count` flows that were sent are added or refused.
    pub(crate) fn record_learned(&self, count: u64) {
        if count > 0 {
            self.learning().done += count;
            self.0.learned.notify_all();
        }
    }

    /// Returns true when MAC tables have changed since the previous call. For the control thread.
    pub fn take_moves(&self) -> bool {
        self.0.moved.swap(false, Ordering::AcqRel)
    }

    /// Returns the number of events that found no room.
    pub fn lost(&self) -> u64 {
        self.0.lost.load(Ordering::Relaxed)
    }

    /// Returns the number of packets for controllers that found no room.
    pub fn lost_packet_ins(&self) -> u64 {
        self.0.lost_packet_ins.load(Ordering::Relaxed)
    }
}

impl std::fmt::Debug for Sender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sender")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::{Effect, apply};
    use crate::mac_table::MacTable;
    use openflow::PortNo;

    fn learn() -> Event {
        let flow = LearnedFlow {
            table: 1,
            priority: 5,
            matching: flow::Match::ANY,
            actions: Arc::new([]),
            cookie: 0,
            idle_timeout: 0,
            hard_timeout: 0,
            send_flow_removed: false,
            delete_with: None,
            limit: 0,
        };
        Event::LearnFlow { bridge: BridgeIndex(0), flow: Arc::new(flow), used: Millis(1) }
    }

    #[test]
    fn learned_flows_are_awaited() {
        let events = Sender::with_patience(Duration::from_secs(60), |_| true);
        events.await_learned();
        events.send(learn());
        events.send(learn());
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| events.await_learned());
            events.record_learned(1);
            std::thread::sleep(Duration::from_millis(20));
            assert!(!waits.is_finished(), "one of two");
            events.record_learned(1);
        });
        assert_eq!(events.learning().done, 2);
    }

    #[test]
    fn no_thread_waits_again_after_a_timeout() {
        let longest = Duration::from_millis(30);
        let events = Sender::with_patience(longest, |_| true);
        events.send(learn());
        let begin = std::time::Instant::now();
        events.await_learned();
        assert!(begin.elapsed() >= longest);
        assert_eq!(events.learning().overdue, 1);
        events.send(learn());
        events.await_learned();
        assert_eq!(events.learning().overdue, 1, "waited again");
        events.record_learned(1);
        events.await_learned();
        assert_eq!(events.learning().overdue, 2);
        // No thread waits for a flow that found no room.
        let full = Sender::with_patience(Duration::from_secs(60), |_| false);
        full.send(learn());
        full.await_learned();
        assert_eq!((full.lost(), full.lost_packet_ins()), (1, 0));
    }

    #[test]
    fn packets_for_controllers_without_room_are_counted() {
        let packet_in = PacketIn {
            bridge: BridgeIndex(0),
            packet: Packet::from_slice(&[0; 60]),
            metadata: flow::Match::ANY,
            reason: 1,
            table: 0,
            cookie: 0,
            max_len: u16::MAX,
            controller_id: 0,
            userdata: Arc::new([]),
            table_miss: false,
            continuation: None,
        };
        for (has_room, lost) in [(true, 0), (false, 1)] {
            let events = Sender::new(move |_| has_room);
            events.send(Event::PacketIn(Box::new(packet_in.clone())));
            assert_eq!((events.lost(), events.lost_packet_ins()), (lost, lost));
        }
    }

    #[test]
    fn a_moved_address_is_reported_when_its_event_is_lost() {
        let events = Sender::new(|_| false);
        let learned = Effect::Learn {
            macs: Arc::new(MacTable::new(BridgeIndex(0))),
            vlan: 0,
            mac: [2, 0, 0, 0, 0, 1],
            port: PortNo(1),
            gratuitous_arp: false,
        };
        let effects = [learned];
        let seen = datapath::FlowStats { packets: 1, bytes: 60, used: Millis(1), tcp_flags: 0 };
        apply(&effects, &seen, &events);
        assert_eq!(events.lost(), 1);
        assert!(events.take_moves());
        assert!(!events.take_moves());
        let seen = datapath::FlowStats { packets: 1, bytes: 60, used: Millis(2), tcp_flags: 0 };
        apply(&effects, &seen, &events);
        assert!(!events.take_moves(), "it is where it was");
    }
}
