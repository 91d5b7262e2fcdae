// SPDX-License-Identifier: Apache-2.0
//! The quality of service of an interface's egress: queueing disciplines and classes of the kernel, as
//! the tables QoS and Queue of `ovs-vswitchd.conf.db(5)` ask for them.
//!
//! The discipline is the root of the interface and has the handle `1:`, as with Open vSwitch. Queue
//! `N` is the class `1:(N + 1)`, and the kernel chooses it by `skb->priority`
//! ([`queue_priority`]). All other packets are in queue 0. A root with another handle belongs to
//! another program: the switch leaves it alone until a row asks for a discipline in its place.

mod class;
mod discipline;
mod options;
mod traffic_control;

use crate::link::LinkClient;
use crate::policer::EgressLimit;
use class::Class;
use discipline::Discipline;
use options::Options;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::{Duration, Instant};
use traffic_control::{ROOT_CLASS, TrafficControl, class_of, queue_of};

/// Queues have numbers below this one: their classes have 16 bits, and `1:fffe` is the root class.
pub const QUEUES: u32 = 0xf000;

/// The type of QoS that the switch carries out by itself; see [`EgressLimit`].
pub(crate) const EGRESS_POLICER: &str = "egress-policer";

/// The types of `QoS:type` that interfaces of the kernel have, in the order of `qos/show-types`. Open
/// vSwitch has the last one for its own drivers.
pub const QOS_TYPES: [&str; 8] = [
    "linux-netem",
    "linux-fq_codel",
    "linux-codel",
    "linux-hfsc",
    "linux-noop",
    "linux-sfq",
    "linux-htb",
    EGRESS_POLICER,
];

/// Returns the `skb->priority` by which the kernel chooses the class of a queue; `None` when there is
/// no such queue. Its upper half is the handle of the discipline (`TC_H_MAKE`,
/// include/uapi/linux/pkt_sched.h).
pub fn queue_priority(queue: u32) -> Option<u32> {
    (queue < QUEUES).then(|| class_of(queue))
}

/// Columns of strings.
pub type QosOptions = BTreeMap<String, String>;

/// A row of the table QoS with its rows of the table Queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QosRequest {
    /// `QoS:type`.
    pub kind: String,
    /// `QoS:other_config`.
    pub options: QosOptions,
    /// `Queue:other_config` by the number of the queue.
    pub queues: BTreeMap<u32, QosOptions>,
}

/// The QoS in force, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QosReport {
    /// `QoS:type`.
    pub kind: &'static str,
    /// Its options with their values in force, in the order of `qos/show`.
    pub options: Vec<(&'static str, u64)>,
    /// The options of each queue, by number. Rates are in bits per second, bursts in bits.
    pub queues: BTreeMap<u32, Vec<(&'static str, u64)>>,
}

impl QosReport {
    /// Returns true when the switch's sender carries out the QoS, not the kernel.
    pub fn is_senders(&self) -> bool {
        self.kind == EGRESS_POLICER
    }
}

/// Counters of a queue since it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueStats {
    /// Packets that left.
    pub tx_packets: u64,
    /// Their bytes.
    pub tx_bytes: u64,
    /// Packets that found no room.
    pub tx_errors: u64,
    /// Age of the queue.
    pub age: Duration,
}

/// The properties of an interface that limits depend on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkLimits {
    /// Bytes after the Ethernet header.
    pub mtu: u32,
    /// Bits per second; `None` when the driver does not report them.
    pub speed: Option<u64>,
}

impl LinkLimits {
    /// Those of an interface that gets no limits.
    pub(crate) const NONE: LinkLimits = LinkLimits { mtu: 0, speed: None };
}

/// The bucket of an `egress-policer` without `cbs`, in bytes: a full segmentation packet.
const POLICER_BURST: u64 = 65_536;

impl EgressLimit {
    /// Parses the options of a row of the type [`EGRESS_POLICER`]. Returns complaints about invalid
    /// values.
    pub(crate) fn of(request: &QosRequest) -> (EgressLimit, Vec<String>) {
        let mut complaints = Vec::new();
        let place = "QoS".to_owned();
        let mut options = Options { map: &request.options, place, complaints: &mut complaints };
        let rate = options.number("cir");
        let burst = options.positive("cbs").unwrap_or(POLICER_BURST);
        if rate.is_none() {
            complaints.push("QoS: other_config:cir is missing: nothing is sent".to_owned());
        }
        if !request.queues.is_empty() {
            complaints.push(format!("{EGRESS_POLICER} has no queues"));
        }
        (EgressLimit { rate: rate.unwrap_or(0), burst }, complaints)
    }

    fn report(self) -> QosReport {
        let options = vec![("cir", self.rate), ("cbs", self.burst)];
        QosReport { kind: EGRESS_POLICER, options, queues: BTreeMap::new() }
    }
}

/// The parsed form of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Plan {
    discipline: Discipline,
    /// Empty for a discipline without classes.
    queues: BTreeMap<u32, Class>,
}

impl Plan {
    /// Parses a request. Invalid values are replaced by the default and named in `complaints`.
    fn of(request: &QosRequest, link: LinkLimits, complaints: &mut Vec<String>) -> Option<Plan> {
        let mut options = Options { map: &request.options, place: "QoS".to_owned(), complaints };
        let discipline = Discipline::of(&request.kind, &mut options, link)?;
        let mut queues = BTreeMap::new();
        if let Some(most) = discipline.class_limit() {
            let none = QosOptions::new();
            let zero = (!request.queues.contains_key(&0)).then_some((&0, &none));
            for (number, map) in request.queues.iter().chain(zero) {
                if *number >= QUEUES {
                    complaints.push(format!("Queue {number}: the highest queue is {}", QUEUES - 1));
                    continue;
                }
                let mut options = Options { map, place: format!("Queue {number}"), complaints };
                queues.insert(*number, discipline.class(&mut options, most, link));
            }
        } else if !request.queues.is_empty() {
            complaints.push(format!("{} has no queues", request.kind));
        }
        Some(Plan { discipline, queues })
    }

    fn report(&self) -> QosReport {
        let queue =
            |(number, class): (&u32, &Class)| (*number, self.discipline.report_class(class));
        QosReport {
            kind: self.discipline.kind(),
            options: self.discipline.report(),
            queues: self.queues.iter().map(queue).collect(),
        }
    }
}

/// The QoS of one interface, as this daemon has set it up.
#[derive(Debug, Default)]
pub(crate) struct InterfaceQos {
    /// The interface was examined for a discipline of an earlier daemon.
    is_examined: bool,
    plan: Option<Plan>,
    /// The limit that the sender has instead of a discipline.
    pub(crate) policer: Option<EgressLimit>,
    /// Time at which each queue was made.
    made: BTreeMap<u32, Instant>,
}

impl InterfaceQos {
    /// Makes the egress of interface `index` equal to a request. Returns complaints about invalid
    /// values, for which defaults stand.
    ///
    /// # Errors
    ///
    /// The kernel's error, or the type is unknown. The interface then has no discipline of the switch.
    pub(crate) fn set(
        &mut self,
        client: &LinkClient,
        index: u32,
        request: Option<&QosRequest>,
        link: LinkLimits,
    ) -> io::Result<Vec<String>> {
        let tc = TrafficControl { client, index };
        let mut complaints = Vec::new();
        if request.is_some_and(|request| request.kind == "linux-noop") {
            // As in Open vSwitch, the discipline of the row before goes first.
            if self.plan.is_some() {
                self.remove(&tc)?;
            }
            self.is_examined = true;
            return Ok(complaints);
        }
        let plan = match request {
            None => None,
            Some(request) => match Plan::of(request, link, &mut complaints) {
                Some(plan) => Some(plan),
                None => {
                    self.remove(&tc)?;
                    return Err(io::Error::new(
                        io::ErrorKind::Unsupported,
                        format!("there is no type \"{}\"", request.kind),
                    ));
                }
            },
        };
        match plan {
            None => self.remove(&tc)?,
            Some(plan) => {
                if self.plan.as_ref() != Some(&plan) {
                    self.install(&tc, plan, link)?;
                }
            }
        }
        Ok(complaints)
    }

    /// Removes the discipline of this or an earlier daemon.
    fn remove(&mut self, tc: &TrafficControl<'_>) -> io::Result<()> {
        // Another program may have replaced the root since.
        if (!self.is_examined || self.plan.is_some()) && tc.root()?.is_some() {
            tc.delete_root()?;
        }
        (self.is_examined, self.plan) = (true, None);
        self.made.clear();
        Ok(())
    }

    fn install(&mut self, tc: &TrafficControl<'_>, plan: Plan, link: LinkLimits) -> io::Result<()> {
        let Plan { discipline, queues } = &plan;
        let kind = discipline.kernel_kind();
        let is_same = match discipline.class_limit() {
            // A discipline without classes is made again: it has no other state.
            None => false,
            // Another program may have replaced the root since.
            Some(_) => tc.root()?.as_deref() == Some(kind),
        };
        self.is_examined = true;
        if !is_same {
            self.plan = None;
            self.made.clear();
            tc.delete_root()?;
            tc.add_root(kind, &discipline.encode()).map_err(|error| explained(error, kind))?;
        }
        let installed = (|| {
            if let Some(root) = discipline.root_class() {
                tc.set_class(kind, ROOT_CLASS, None, &discipline.encode_class(&root, link))?;
            }
            let held: BTreeSet<u32> = match is_same {
                true => tc.classes()?.into_iter().filter_map(queue_of).collect(),
                false => BTreeSet::new(),
            };
            for number in held.iter().filter(|number| !queues.contains_key(number)) {
                tc.delete_class(class_of(*number))?;
            }
            for (number, class) in queues {
                let options = discipline.encode_class(class, link);
                tc.set_class(kind, class_of(*number), Some(ROOT_CLASS), &options)?;
            }
            Ok(())
        })();
        if let Err(error) = installed {
            self.plan = None;
            tc.delete_root()?;
            return Err(error);
        }
        self.made.retain(|number, _| queues.contains_key(number));
        for number in queues.keys() {
            self.made.entry(*number).or_insert_with(Instant::now);
        }
        self.plan = Some(plan);
        Ok(())
    }

    /// Returns the QoS in force.
    pub(crate) fn report(&self) -> Option<QosReport> {
        self.plan.as_ref().map(Plan::report).or(self.policer.map(EgressLimit::report))
    }

    /// Returns the numbers of the queues.
    pub(crate) fn queues(&self) -> Vec<u32> {
        self.plan.iter().flat_map(|plan| plan.queues.keys().copied()).collect()
    }

    /// Reads the counters of a queue. `None`: there is no such queue, or the kernel has no class for
    /// it any more.
    pub(crate) fn queue_stats(
        &self,
        client: &LinkClient,
        index: u32,
        queue: u32,
    ) -> Option<QueueStats> {
        let made = self.made.get(&queue)?;
        let counts = TrafficControl { client, index }.class_counts(class_of(queue)).ok()??;
        Some(QueueStats {
            tx_packets: counts.packets,
            tx_bytes: counts.bytes,
            tx_errors: counts.drops,
            age: made.elapsed(),
        })
    }
}

/// Adds the remedy to the error of a kernel that lacks a discipline.
fn explained(error: io::Error, kind: &str) -> io::Error {
    match error.raw_os_error() {
        Some(libc::ENOENT) => io::Error::new(
            io::ErrorKind::Unsupported,
            format!("the kernel has no discipline {kind} (module sch_{kind})"),
        ),
        _ => error,
    }
}

#[cfg(test)]
mod tests;
