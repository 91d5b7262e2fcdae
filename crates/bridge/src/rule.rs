// SPDX-License-Identifier: Apache-2.0
//! Rules, the flow entries of OpenFlow.

use classifier::MiniMatch;
use clock::Millis;
use openflow::action::Actions;
use openflow::message::FlowFlags;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// The time of the latest of some events, which any thread may report, in any order.
#[derive(Debug, Default)]
pub struct Latest(AtomicI64);

impl Latest {
    /// Returns a value whose first event was at `time`.
    pub(crate) fn new(time: Millis) -> Latest {
        Latest(AtomicI64::new(time.0))
    }

    /// Returns the time of the latest event.
    pub fn get(&self) -> Millis {
        Millis(self.0.load(Ordering::Relaxed))
    }

    /// Records an event at `time`.
    pub(crate) fn record(&self, time: Millis) {
        self.0.fetch_max(time.0, Ordering::Relaxed);
    }
}

/// Counters of a rule, written by any thread. They outlive a modification of the rule.
#[derive(Debug, Default)]
pub struct RuleStats {
    packets: AtomicU64,
    bytes: AtomicU64,
    used: Latest,
}

impl RuleStats {
    /// Returns counters at zero, last used at `now` (a new rule's idle time starts then).
    pub(crate) fn new(now: Millis) -> RuleStats {
        RuleStats { used: Latest::new(now), ..RuleStats::default() }
    }

    /// Adds packets that the rule matched. `used` is the arrival time of the last one.
    pub(crate) fn credit(&self, packets: u64, bytes: u64, used: Millis) {
        self.packets.fetch_add(packets, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.used.record(used);
    }

    /// Returns the packets and bytes counted so far.
    pub fn counts(&self) -> (u64, u64) {
        (self.packets.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }

    /// Returns the time at which a packet last matched, or at which the rule was added.
    pub(crate) fn used(&self) -> Millis {
        self.used.get()
    }
}

/// Timeouts in seconds, 0 for none. `fin_timeout` may shorten them from a packet thread.
#[derive(Debug, Default)]
pub(crate) struct Timeouts {
    /// Low 16 bits idle, next 16 bits hard.
    both: std::sync::atomic::AtomicU32,
}

impl Timeouts {
    /// Returns timeouts of `idle` and `hard` seconds; 0 for none.
    pub(crate) fn new(idle: u16, hard: u16) -> Timeouts {
        Timeouts {
            both: std::sync::atomic::AtomicU32::new(u32::from(hard) << 16 | u32::from(idle)),
        }
    }

    /// Returns the idle timeout in seconds; 0 for none.
    pub(crate) fn idle(&self) -> u16 {
        (self.both.load(Ordering::Relaxed) & 0xffff) as u16
    }

    /// Returns the hard timeout in seconds; 0 for none.
    pub(crate) fn hard(&self) -> u16 {
        (self.both.load(Ordering::Relaxed) >> 16) as u16
    }

    /// Lowers each timeout to the given one, where that is not 0 and the present one is longer or
    /// 0. For `fin_timeout`.
    pub(crate) fn reduce(&self, idle: u16, hard: u16) {
        let less = |old: u16, new: u16| if new != 0 && (old == 0 || new < old) { new } else { old };
        let _ = self.both.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |v| {
            let (i, h) = ((v & 0xffff) as u16, (v >> 16) as u16);
            Some(u32::from(less(h, hard)) << 16 | u32::from(less(i, idle)))
        });
    }
}

/// One rule. Immutable except for counters, timeouts and the time at which it was last learned: a
/// modification makes a new `Rule` that shares [`Rule::stats`] with the old one. There may be
/// millions of rules, so no field holds a value that can be computed quickly from the others.
#[derive(Debug)]
pub struct Rule {
    /// Number of the rule, unique in the process. A later rule has a higher number.
    pub id: u64,
    /// Table that holds the rule.
    pub table: u8,
    /// The rule's place among others that match: the one with the highest priority applies. The
    /// switch's own rules may be above every OpenFlow priority ([`IN_BAND`], [`FAIL_OPEN`]).
    pub priority: u32,
    /// Match of the rule; its `in_port` is an OpenFlow port.
    pub matching: MiniMatch,
    /// OpenFlow cookie.
    pub cookie: u64,
    /// Idle and hard timeout, in seconds; 0 means none.
    pub(crate) timeouts: Timeouts,
    /// OpenFlow importance: a full table evicts rules of low importance first.
    pub importance: u16,
    /// Flags that stay with the flow ([`FlowFlags::STATE`]).
    pub flags: FlowFlags,
    /// Made by the switch itself; hidden from controllers.
    pub hidden: bool,
    /// Time at which the rule was added.
    pub created: Millis,
    /// Time at which its actions last changed, or a `learn` action last made an equal rule. As in
    /// OVS the hard timeout counts from then.
    pub modified: Latest,
    /// Actions that the rule applies to a packet.
    pub actions: Actions,
    /// `actions` has conjunctive clauses: the rule matches only as part of a conjunctive match.
    pub is_conjunctive: bool,
    /// Counters of the rule; modified versions of the rule share them.
    pub stats: Arc<RuleStats>,
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl Rule {
    /// Returns a new number for [`Rule::id`].
    pub(crate) fn next_id() -> u64 {
        NEXT_ID.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns true when the rule has a timeout or may get one (`fin_timeout`).
    pub(crate) fn may_expire(&self) -> bool {
        self.timeouts.idle() != 0
            || self.timeouts.hard() != 0
            || self.any_action(&|a| matches!(a, openflow::Action::FinTimeout { .. }))
    }

    /// Returns true when some action, nested ones included, satisfies `wanted`.
    pub(crate) fn any_action(&self, wanted: &dyn Fn(&openflow::Action) -> bool) -> bool {
        any_action(&self.actions, wanted)
    }

    /// Returns true when an action of the rule names `port` as output (`out_port` of OpenFlow
    /// requests).
    pub(crate) fn outputs_to(&self, port: openflow::PortNo) -> bool {
        use openflow::Action;
        self.any_action(&|a| match a {
            Action::Output { port: p, .. }
            | Action::OutputTrunc { port: p, .. }
            | Action::Enqueue { port: p, .. } => *p == port,
            Action::Controller(_) => port == openflow::PortNo::CONTROLLER,
            _ => false,
        })
    }

    /// Returns tables and cookies of the flows that are deleted with the last rule that learns them
    /// (`learn` with `delete_learned`).
    pub(crate) fn deletes_learned(&self) -> impl Iterator<Item = (u8, u64)> {
        self.actions.iter().filter_map(|a| match a {
            openflow::Action::Learn(l) if l.delete_learned => Some((l.table, l.cookie)),
            _ => None,
        })
    }

    /// Returns true when the rule uses `group` (`out_group` of OpenFlow requests).
    pub(crate) fn uses_group(&self, group: u32) -> bool {
        self.any_action(&|a| matches!(a, openflow::Action::Group(g) if *g == group))
    }
}

/// Returns true when some action, nested ones included, satisfies `wanted`.
pub(crate) fn any_action(
    actions: &[openflow::Action],
    wanted: &dyn Fn(&openflow::Action) -> bool,
) -> bool {
    actions.iter().any(|a| {
        wanted(a)
            || match a {
                openflow::Action::WriteActions(inner) | openflow::Action::Clone(inner) => {
                    any_action(inner, wanted)
                }
                _ => false,
            }
    })
}

/// Returns the clause of a `conjunction` action; `None` for other actions.
fn conjunction(action: &openflow::Action) -> Option<classifier::Conjunction> {
    match *action {
        openflow::Action::Conjunction { id, clause, clauses } => {
            Some(classifier::Conjunction { id, clause, clauses })
        }
        _ => None,
    }
}

/// Returns true when these actions make a rule part of a conjunctive match.
pub(crate) fn is_conjunctive(actions: &[openflow::Action]) -> bool {
    actions.iter().any(|a| conjunction(a).is_some())
}

/// Returns true when a match asks for a field that the datapath sets in frozen packets
/// (`recirc_id`, `dp_hash`). These fields are the switch's own; only a match on "not frozen" is
/// allowed.
pub(crate) fn matches_frozen(matching: &flow::Match) -> bool {
    let id = flow::Field::RecircId;
    let not_frozen = matching.is_any(id) || matching.is_exact(id) && matching.value(id) == 0;
    !(not_frozen && matching.is_any(flow::Field::DpHash))
}

/// Priority of flow mods without one; texts leave it out.
const DEFAULT_PRIORITY: u32 = 32_768;

/// Priority of the rule that forwards for absent controllers ("fail open"), as in OVS.
pub const FAIL_OPEN: u32 = 0xf0_f0f0;

/// Lowest priority of the rules that connect the switch with its controllers
/// ([`in_band`](crate::in_band)), as in OVS.
pub const IN_BAND: u32 = 180_000;

impl Rule {
    /// Returns the priority for OpenFlow messages, which never have a rule of higher priority.
    pub(crate) fn openflow_priority(&self) -> u16 {
        u16::try_from(self.priority).unwrap_or(u16::MAX)
    }

    /// Formats the priority, unless it is the default, and the match: `priority=100,ip`. `ports` gives
    /// names of ports.
    pub(crate) fn match_text(&self, ports: &dyn Fn(u32) -> Option<String>) -> String {
        let matching = flow::text::format_match(&self.matching.expand(), ports);
        match self.priority {
            DEFAULT_PRIORITY => matching,
            priority if matching.is_empty() => format!("priority={priority}"),
            priority => format!("priority={priority},{matching}"),
        }
    }
}

impl classifier::Entry for Rule {
    fn matching(&self) -> &MiniMatch {
        &self.matching
    }

    fn priority(&self) -> u32 {
        self.priority
    }

    fn is_conjunctive(&self) -> bool {
        self.is_conjunctive
    }

    fn conjunctions(&self) -> impl Iterator<Item = classifier::Conjunction> {
        self.actions.iter().filter_map(conjunction)
    }
}
