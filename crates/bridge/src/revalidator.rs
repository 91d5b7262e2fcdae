// SPDX-License-Identifier: Apache-2.0
//! Revalidation: megaflows kept true to the tables, and their statistics brought home.
//!
//! One pass ([`SlowPath::pass`]) does, for every megaflow: credit what the datapath counted
//! since the last pass to rules, tables, groups and MAC entries; when the snapshot has
//! changed since it was translated, translate it again and keep it, change its actions, or
//! remove it; remove it when it was idle too long. Passes run on one thread
//! ([`Revalidator`]) every `max-revalidator` milliseconds and soon after each publication,
//! and on the control thread when someone asks for exact statistics or the clock is warped.
//!
//! A pass over many megaflows costs milliseconds, nearly all of them waiting for memory. Where
//! the database does not say how long may pass between two, they become rarer by what they cost
//! (`RevalidatorState::pause`), up to [`LONGEST_PAUSE`] apart; never while tables change, or while
//! megaflows may have to make room (`Room`). They cost the packets something, too, whose CPUs had
//! the counts that a pass reads for themselves. Who asks for statistics meanwhile is a reason for a pass
//! ([`crate::switch::Switch::collect_statistics`]).
//!
//! A megaflow that the datapath has and the switch does not know (made by hand, or left by the
//! daemon before) is *explained*: its match is translated, and when that agrees it is kept with
//! the translation's actions, else it is removed. What it counted before goes to the rules that
//! it now stands for.
//!
//! What errs on which side: a megaflow whose new mask has a bit that the old one lacks is
//! removed, as other packets of it may now get other actions; one whose new mask is narrower
//! is kept though it is too specific. A megaflow is stale for as long as it takes until the
//! next pass comes to it (milliseconds).

use crate::effect::{self, Effect};
use crate::megaflows::{self, Entry};
use crate::snapshot::Snapshot;
use crate::upcall::{SlowPath, translate_key};
use crate::wakeup::{Wakeup, Woken};
use classifier::MiniMatch;
use clock::{Millis, OncePer};
use datapath::shards::Groups;
use datapath::{Actions, Datapath, FlowStats, PortNo, Ufid};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering, fence};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Settings (`Open_vSwitch:other_config`) and what passes measured.
#[derive(Debug)]
pub struct RevalidatorState {
    /// `max-idle`, milliseconds.
    pub max_idle: AtomicU64,
    /// `max-revalidator`, milliseconds between passes.
    pub interval: AtomicU64,
    /// The database says so: passes are not made rarer.
    pub is_interval_given: AtomicBool,
    /// `flow-limit`.
    pub configured_limit: AtomicU64,
    /// Length of the last full pass in nanoseconds; [`UNKNOWN`] before there was one.
    cost: AtomicU64,
    /// Passes since start.
    pub passes: AtomicU64,
    /// Highest number of megaflows seen, and a running average.
    pub max_flows: AtomicU64,
    /// See `max_flows`.
    pub average_flows: AtomicU64,
    /// Version that every megaflow was checked against.
    pub done_version: AtomicU64,
    /// No passes (`revalidator/pause`).
    pub paused: AtomicBool,
    /// Rules go when they were not used for some seconds: that has to be known in time.
    pub is_awaited: AtomicBool,
    /// Who asks for a pass since a port is pressed.
    pub(crate) pressed: OncePer,
    /// Start of the last finished pass: what packets did before is credited.
    credited: AtomicI64,
}

impl Default for RevalidatorState {
    fn default() -> Self {
        RevalidatorState {
            max_idle: AtomicU64::new(10_000),
            interval: AtomicU64::new(500),
            is_interval_given: AtomicBool::new(false),
            configured_limit: AtomicU64::new(200_000),
            cost: AtomicU64::new(UNKNOWN),
            passes: AtomicU64::new(0),
            max_flows: AtomicU64::new(0),
            average_flows: AtomicU64::new(0),
            done_version: AtomicU64::new(0),
            paused: AtomicBool::new(false),
            is_awaited: AtomicBool::new(false),
            pressed: OncePer::new(Duration::from_millis(PRESSED)),
            credited: AtomicI64::new(0),
        }
    }
}

/// The longest time between two passes, unless the database asks for a longer one.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(4);
/// The same while rules have timeouts, which count in seconds.
const LONGEST_AWAITED: Duration = Duration::from_secs(2);
/// The rate at which megaflows come is that over so long, or longer.
const LOOK: Duration = Duration::from_millis(100);
/// A pass may take one part in so many of the time.
const SHARE: u32 = 400;

/// Between two passes, whatever is asked for: to be woken for each rule of a burst would take longer
/// than the passes.
const LEAST_REST: Duration = Duration::from_millis(1);
/// Milliseconds from one pass to another while a port is pressed.
const PRESSED: u64 = 250;
/// No length of a pass.
const UNKNOWN: u64 = u64::MAX;
/// About what it takes to have another thread do something and to be told that it is done.
const SHORT: Duration = Duration::from_micros(50);
/// So many megaflows may take a pass that short.
const FEW_ENOUGH: usize = 32;

impl RevalidatorState {
    /// Length of the last full pass; `None` before there was one.
    pub fn last_pass(&self) -> Option<Duration> {
        let ns = self.cost.load(Ordering::Relaxed);
        (ns != UNKNOWN).then(|| Duration::from_nanos(ns))
    }

    /// How long it takes at most, as far as is known, until the thread has made a pass that is
    /// asked for now: one may be under way, and is rested from.
    pub(crate) fn until_passed(&self) -> Duration {
        let cost = self.last_pass().unwrap_or_default();
        cost.saturating_mul(2).saturating_add(cost.max(LEAST_REST))
    }

    /// Every megaflow was checked against snapshot `version`.
    pub(crate) fn is_done(&self, version: u64) -> bool {
        self.done_version.load(Ordering::Acquire) >= version
    }

    /// What packets did before is credited.
    pub(crate) fn credited(&self) -> Millis {
        Millis(self.credited.load(Ordering::Acquire))
    }

    fn interval(&self) -> Duration {
        Duration::from_millis(self.interval.load(Ordering::Relaxed).max(100))
    }

    /// The time from a pass that took `cost` to the next one, when nothing happens; `is_tight`:
    /// there is hardly room for another megaflow.
    fn pause(&self, cost: Duration, is_tight: bool) -> Duration {
        let interval = self.interval();
        if is_tight || self.is_interval_given.load(Ordering::Relaxed) {
            return interval;
        }
        let is_awaited = self.is_awaited.load(Ordering::Relaxed);
        let longest = if is_awaited { LONGEST_AWAITED } else { LONGEST_PAUSE };
        cost.saturating_mul(SHARE).clamp(interval, interval.max(longest))
    }
}

/// Whether the datapath may have megaflows that the switch does not know.
#[derive(Debug)]
pub(crate) struct UnknownFlows {
    /// How often there was a reason to think so.
    expected: AtomicU64,
    /// How many of these reasons there were when a pass began that has dealt with all it found.
    met: AtomicU64,
}

impl Default for UnknownFlows {
    /// There may be some from the start.
    fn default() -> Self {
        UnknownFlows { expected: AtomicU64::new(1), met: AtomicU64::new(0) }
    }
}

impl UnknownFlows {
    fn expect(&self) {
        self.expected.fetch_add(1, Ordering::AcqRel);
    }

    /// Reasons by now, for [`UnknownFlows::met`].
    fn expected(&self) -> u64 {
        self.expected.load(Ordering::Acquire)
    }

    /// A pass that began when there were this many reasons has dealt with all unknown flows.
    fn met(&self, expected: u64) {
        self.met.fetch_max(expected, Ordering::AcqRel);
    }

    fn may_be_there(&self) -> bool {
        self.met.load(Ordering::Acquire) != self.expected()
    }
}

/// What to do with megaflows beyond crediting them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// Credit only.
    Statistics,
    /// Credit, revalidate, expire.
    Full,
    /// Credit and remove all (`revalidator/purge`).
    Purge,
}

/// So many megaflows are visited in a few milliseconds.
const FEW: usize = 2000;
/// Megaflows that a pass gives new actions at once.
const MODIFIED_AT_ONCE: usize = 64;

/// What one pass goes by.
struct Round<'a> {
    snapshot: &'a Arc<Snapshot>,
    version: u64,
    now: Millis,
}

enum Verdict {
    Keep,
    Modify(Actions),
    Remove,
}

/// Gives megaflows their new actions; those that the datapath does not take go.
fn modify(datapath: &dyn Datapath, changed: &mut Vec<(Ufid, Actions)>, doomed: &mut Vec<Ufid>) {
    datapath.modify_many(changed, &mut |ufid| doomed.push(ufid));
    changed.clear();
}

impl SlowPath {
    /// One pass over all megaflows. Any thread; passes do not overlap.
    pub fn pass(&self, what: Pass) {
        let one_at_a_time = self.passing.lock().unwrap_or_else(PoisonError::into_inner);
        self.pass_alone(what, &one_at_a_time);
    }

    /// Brings statistics home if that is a short matter: not when another pass runs, and not
    /// when there are many megaflows. For a thread that must not wait. Tells the time up to
    /// which everything that packets did is credited.
    pub fn collect(&self) -> Millis {
        let few = self.megaflows.len() <= FEW;
        if let Some(alone) = self.passing.try_lock().ok().filter(|_| few) {
            self.pass_alone(Pass::Statistics, &alone);
        }
        self.revalidator.credited()
    }

    /// Makes a full pass here and now, if that is a shorter matter than to have the revalidator's
    /// thread make it: there are few megaflows, and the last pass was short. False when it was not
    /// made.
    pub(crate) fn pass_if_short(&self) -> bool {
        let state = &self.revalidator;
        let is_short = self.megaflows.len() <= FEW_ENOUGH
            && state.last_pass().is_some_and(|cost| cost <= SHORT)
            && !self.unknown_flows.may_be_there()
            && !state.paused.load(Ordering::Relaxed);
        let Some(alone) = is_short.then(|| self.passing.try_lock().ok()).flatten() else {
            return false;
        };
        self.pass_alone(Pass::Full, &alone);
        true
    }

    fn pass_alone(&self, what: Pass, _alone: &MutexGuard<'_, ()>) {
        if let Some(datapath) = self.datapath() {
            self.swept.with(|swept| self.pass_over(&*datapath, swept, what));
        }
    }

    /// `swept`: empty.
    fn pass_over(&self, datapath: &dyn Datapath, swept: &mut Groups<FlowStats>, what: Pass) {
        let start = Instant::now();
        let state = &self.revalidator;
        let now = self.clock.now();
        let number = state.passes.fetch_add(1, Ordering::AcqRel) + 1;
        // Version first: a publication between the two loads is caught by the next pass.
        let version = self.published.version();
        let snapshot = self.published.newest();
        let count = self.megaflows.len() as u64;
        let max_idle = self.idle_limit(count);

        let held = self.held.load(Ordering::Acquire);
        let what = if held && what == Pass::Full { Pass::Statistics } else { what };
        let round = Round { snapshot: &snapshot, version, now };

        let mut doomed: Vec<Ufid> = Vec::new();
        let mut changed: Vec<(Ufid, Actions)> = Vec::new();
        let expected = self.unknown_flows.expected();
        let mut found_unknown = false;
        let mut used: BTreeMap<PortNo, u64> = BTreeMap::new();
        datapath.sweep(&mut |ufid, stats| swept.push(ufid, stats));
        let look = |_, stats: &FlowStats, entry: Option<&mut Entry>| {
            let entry = entry?;
            // One that came since the pass began may have the place of one that was swept.
            let is_swept = std::mem::replace(&mut entry.seen, number) != number;
            if is_swept {
                if entry.credited.packets == 0 && stats.packets > 0 {
                    *used.entry(entry.in_port).or_default() += 1;
                }
                credit(self, entry, *stats);
            }
            Some(match what {
                Pass::Statistics => Verdict::Keep,
                Pass::Purge => Verdict::Remove,
                Pass::Full if now.since(entry.last_used()) > max_idle => Verdict::Remove,
                // A later one may be there by now, and packet threads translate by that.
                Pass::Full if entry.version >= version => Verdict::Keep,
                Pass::Full => self.revalidate(&snapshot, version, entry, now),
            })
        };
        let unchanged = state.done_version.load(Ordering::Acquire) == version;
        let together = if unchanged { megaflows::MANY } else { megaflows::FEW };
        let known = swept.len();
        self.megaflows.visit(swept, together, look, |ufid, verdict| match verdict {
            None if held || what == Pass::Statistics => found_unknown = true,
            None if what == Pass::Full && self.explain(datapath, ufid, &round) => {}
            None => doomed.push(ufid),
            Some(Verdict::Keep) => {}
            Some(Verdict::Modify(actions)) => {
                changed.push((ufid, actions));
                if changed.len() == MODIFIED_AT_ONCE {
                    modify(datapath, &mut changed, &mut doomed);
                }
            }
            Some(Verdict::Remove) => doomed.push(ufid),
        });
        modify(datapath, &mut changed, &mut doomed);
        self.remove_many(&doomed);
        used.into_iter().for_each(|(port, n)| datapath.megaflows_used(port, n));
        if found_unknown {
            self.unknown_flows.expect();
        } else if what != Pass::Statistics {
            self.unknown_flows.met(expected);
        }
        if what != Pass::Statistics && self.megaflows.len() > known - doomed.len() {
            // In our store but not in the datapath for two passes: flushed there. (Missing in
            // one it may be on its way there, or out of our store by who removed it there; a thread
            // that takes so long to install one makes it a stranger.)
            for ufid in self.megaflows.select(|e| e.seen + 1 < number) {
                self.megaflows.remove(ufid);
                self.unknown_flows.expect();
            }
        }
        if what != Pass::Statistics {
            state.done_version.store(version, Ordering::Release);
        }
        state.credited.store(now.0, Ordering::Release);
        let cost = start.elapsed();
        let ms = u64::try_from(cost.as_millis()).unwrap_or(u64::MAX);
        if what == Pass::Full {
            let ns = u64::try_from(cost.as_nanos()).unwrap_or(u64::MAX);
            state.cost.store(ns, Ordering::Relaxed);
            state.max_flows.fetch_max(count, Ordering::Relaxed);
            let average = state.average_flows.load(Ordering::Relaxed);
            state.average_flows.store((average + count) / 2, Ordering::Relaxed);
            self.adapt_limit(ms, count);
        }
    }

    /// Sets `flow-limit`: passes may lower it for a while, and never raise it above this.
    pub fn set_flow_limit(&self, limit: usize) {
        self.revalidator.configured_limit.store(limit as u64, Ordering::Relaxed);
        self.flow_limit.store(limit, Ordering::Relaxed);
    }

    /// True when some megaflow may say other than the newest snapshot: a pass would find something
    /// to do. An upcall that is about to install one looks at the version after that, and takes it
    /// back when it is another than the one that it translated by; so what this call does not see
    /// is not stale, or goes.
    pub(crate) fn may_be_stale(&self) -> bool {
        // Between our store to the version and our load of the number of megaflows; its
        // counterpart is in `Megaflows::insert`.
        fence(Ordering::SeqCst);
        // In this order: a pass that has met the unknown flows has made entries for them before.
        self.unknown_flows.may_be_there() || !self.megaflows.is_empty()
    }

    /// Says that the datapath may have got megaflows that the switch does not know: a pass will
    /// look for them.
    pub fn expect_unknown_flows(&self) {
        self.unknown_flows.expect();
        self.wakeup.nudge();
    }

    /// Removes a megaflow and credits what it still counted. Where several threads do so at once
    /// the datapath gives its last counts to one of them. Only that one takes the entry out: so they
    /// are credited, and nobody takes out the entry of a megaflow that has come since.
    pub fn remove(&self, ufid: Ufid) {
        if let Some(last) = self.datapath().and_then(|datapath| datapath.remove(ufid)) {
            self.removed(ufid, last);
        }
    }

    /// [`SlowPath::remove`] for many, which may be much faster.
    fn remove_many(&self, ufids: &[Ufid]) {
        if let Some(datapath) = self.datapath().filter(|_| !ufids.is_empty()) {
            datapath.remove_many(ufids, &mut |ufid, last| self.removed(ufid, last));
        }
    }

    fn removed(&self, ufid: Ufid, last: FlowStats) {
        if let Some(mut entry) = self.megaflows.remove(ufid) {
            credit(self, &mut entry, last);
        }
    }

    /// While held (`flow-restore-wait`: the tables are not filled yet) passes only credit:
    /// nothing is revalidated, expired, or removed because no rule explains it. The pass after
    /// that does it all.
    pub fn hold(&self, held: bool) {
        self.expect_unknown_flows(); // or there would be nothing to wait for
        self.held.store(held, Ordering::Release);
    }

    /// Makes a megaflow of the datapath that nobody knows one of ours, with the actions that
    /// its match translates to. False when it cannot be kept: its port is no port, it matches
    /// more than the translation allows, or the datapath does not take the actions.
    fn explain(&self, datapath: &dyn Datapath, ufid: Ufid, round: &Round<'_>) -> bool {
        let Some(dump) = datapath.flow(ufid) else { return true }; // gone meanwhile
        let matching = dump.flow.matching;
        let key = matching.key();
        let Some(translation) = translate_key(self, round.snapshot, key, None, round.now) else {
            return false;
        };
        let megaflow = self.megaflow(key, &translation);
        if !matching.mask().covers(megaflow.matching.mask()) {
            return false;
        }
        let entry = Entry {
            in_port: PortNo(key.in_port.get()),
            matching: MiniMatch::new(&matching),
            actions: Arc::clone(&megaflow.actions),
            effects: translation.effects,
            recirc: translation.recirc_ids,
            credited: FlowStats::default(), // the next pass credits all that it counted
            created: round.now,
            version: round.version,
            seen: 0, // not yet
            slow_path: translation.slow_path,
        };
        if !self.megaflows.insert(ufid, entry, &self.revalidator.passes) {
            return true; // an upcall was faster
        }
        if datapath.modify(ufid, &megaflow.actions) {
            return true;
        }
        self.megaflows.remove(ufid);
        false
    }

    /// How long a megaflow may be idle, in milliseconds: near the limit idle ones go sooner,
    /// so that live ones keep their place.
    fn idle_limit(&self, count: u64) -> u64 {
        let max_idle = self.revalidator.max_idle.load(Ordering::Relaxed);
        let limit = self.flow_limit.load(Ordering::Relaxed) as u64;
        if count >= limit { max_idle.min(100) } else { max_idle }
    }

    /// Shrinks the flow limit when passes take too long, lets it grow back when they do not.
    fn adapt_limit(&self, ms: u64, count: u64) {
        let configured = self.revalidator.configured_limit.load(Ordering::Relaxed);
        let limit = self.flow_limit.load(Ordering::Relaxed) as u64;
        let next = match ms {
            2001.. => limit * 1000 / ms,
            1301..=2000 => limit * 3 / 4,
            0..=999 if count > 2000 && limit < count.saturating_mul(1000) / ms.max(1) => {
                limit + 1000
            }
            _ => limit,
        };
        let next = next.max(1000).min(configured);
        self.flow_limit.store(usize::try_from(next).unwrap_or(usize::MAX), Ordering::Relaxed);
    }

    fn revalidate(
        &self,
        snapshot: &Arc<Snapshot>,
        version: u64,
        entry: &mut crate::megaflows::Entry,
        now: Millis,
    ) -> Verdict {
        let matching = entry.matching.expand();
        let key = matching.key();
        let Some(translation) = translate_key(self, snapshot, key, None, now) else {
            return Verdict::Remove;
        };
        let megaflow = self.megaflow(key, &translation);
        if !matching.mask().covers(megaflow.matching.mask()) {
            return Verdict::Remove;
        }
        entry.version = version;
        entry.effects = translation.effects;
        entry.recirc = translation.recirc_ids;
        entry.slow_path = translation.slow_path;
        if megaflow.actions == entry.actions {
            Verdict::Keep
        } else {
            entry.actions = Arc::clone(&megaflow.actions);
            Verdict::Modify(megaflow.actions)
        }
    }
}

/// Credits what `stats` has above what was credited.
fn credit(slow: &SlowPath, entry: &mut crate::megaflows::Entry, stats: FlowStats) {
    let packets = stats.packets.saturating_sub(entry.credited.packets);
    let bytes = stats.bytes.saturating_sub(entry.credited.bytes);
    let flags = stats.tcp_flags & !entry.credited.tcp_flags;
    if packets > 0 || flags != 0 {
        let (effects, seen) = (&entry.effects, FlowStats { packets, bytes, ..stats });
        if packets > 0 && refresh_learned(slow, effects, stats.used) {
            effect::apply_but_learning(effects, &seen, &slow.events);
        } else {
            effect::apply(effects, &seen, &slow.events);
        }
    }
    entry.credited = stats;
}

/// Refreshes learned flows that are there already. Else each pass would have an event for each
/// megaflow that learns, and there may be more of these than the control thread's queue holds.
fn refresh_learned(slow: &SlowPath, effects: &[Effect], used: Millis) -> bool {
    slow.has_learner()
        && effects.iter().any(effect::learns)
        && effect::refresh_learned(effects, used, &slow.published.newest())
}

/// The revalidator's thread, and one for the datapath's housekeeping. Dropping it stops and joins
/// both.
#[derive(Debug)]
pub struct Revalidator {
    wakeup: Arc<Wakeup>,
    threads: Vec<JoinHandle<()>>,
}

impl Revalidator {
    /// Starts passes over `slow`'s megaflows.
    pub fn start(slow: Arc<SlowPath>) -> std::io::Result<Revalidator> {
        let mut revalidator = Revalidator { wakeup: Arc::clone(&slow.wakeup), threads: Vec::new() };
        let (housekeeping, due) = sync_channel(1);
        let keeper = Arc::clone(&slow);
        revalidator.spawn("housekeeper", move || keep_house(&keeper, &due))?;
        revalidator.spawn("revalidator1", move || run(&slow, &housekeeping))?;
        Ok(revalidator)
    }

    fn spawn(&mut self, name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
        self.threads.push(std::thread::Builder::new().name(name.to_owned()).spawn(work)?);
        Ok(())
    }

    /// Asks for a pass now, because the tables have changed.
    pub fn request_pass(&self) {
        self.wakeup.request_pass();
    }

    /// Ends a long sleep of the thread, because ports or settings have changed.
    pub fn nudge(&self) {
        self.wakeup.nudge();
    }

    /// Blocks until `is_done` after a pass, or until passes are paused, for at most `timeout`.
    pub fn wait(&self, slow: &SlowPath, timeout: Duration, is_done: impl Fn() -> bool) {
        let paused =
            || slow.revalidator.paused.load(Ordering::Relaxed) || slow.held.load(Ordering::Acquire);
        self.wakeup.wait(timeout, || is_done() || paused());
    }
}

impl Drop for Revalidator {
    fn drop(&mut self) {
        self.wakeup.stop();
        // The revalidator first: the other thread ends behind it.
        for thread in self.threads.drain(..).rev() {
            let _ = thread.join(); // a panic there was reported on stderr
        }
    }
}

/// Between two looks when there has been no megaflow for [`QUIET_ROUNDS`].
const LONG_SLEEP: Duration = Duration::from_secs(5);
/// Looks after the last megaflow went: what it left is tidied up by then.
const QUIET_ROUNDS: u32 = 4;

/// Whether megaflows may run out of room between two passes.
struct Room {
    looked: Instant,
    /// How many there were then.
    flows: usize,
    /// How many more there were each second before that.
    rate: f64,
}

impl Room {
    fn new(now: Instant) -> Room {
        Room { looked: now, flows: 0, rate: 0.0 }
    }

    /// True when `flows` may come to `limit` before a pass that is made when nothing happens: seven
    /// eighths of it are there, or all would be at the rate at which they came of late.
    fn is_tight(&mut self, now: Instant, flows: usize, limit: usize) -> bool {
        let elapsed = now.duration_since(self.looked);
        if elapsed >= LOOK {
            self.rate = flows.saturating_sub(self.flows) as f64 / elapsed.as_secs_f64();
            (self.looked, self.flows) = (now, flows);
        }
        let coming = self.rate * LONGEST_PAUSE.as_secs_f64();
        flows as f64 + coming >= limit as f64 || flows >= limit - limit / 8
    }
}

/// The datapath's housekeeping, each time that it is `due`: it may take a tenth of a second, as
/// programs are loaded there, and no megaflow is to be stale for so long.
fn keep_house(slow: &SlowPath, due: &Receiver<()>) {
    while due.recv().is_ok() {
        if let Some(datapath) = slow.datapath() {
            datapath.maintain();
        }
    }
}

fn run(slow: &SlowPath, housekeeping: &SyncSender<()>) {
    let mut maintained = Instant::now();
    let mut room = Room::new(maintained);
    let (mut passed, mut cost) = (Instant::now(), Duration::ZERO);
    let mut quiet = 0;
    loop {
        let interval = slow.revalidator.interval();
        let is_long = quiet == QUIET_ROUNDS;
        let sleep = if is_long { interval.max(LONG_SLEEP) } else { interval };
        let woken = slow.wakeup.sleep(sleep, is_long);
        quiet = match woken {
            Woken::Stop => return,
            Woken::Nudged | Woken::PassRequested => 0,
            Woken::TimedOut if !slow.megaflows.is_empty() => 0,
            Woken::TimedOut => QUIET_ROUNDS.min(quiet + 1),
        };
        if is_long && woken == Woken::Nudged {
            continue; // what there is now is looked after in a while
        }
        let start = Instant::now();
        let mut is_due = || {
            let limit = slow.flow_limit.load(Ordering::Relaxed);
            let is_tight = room.is_tight(start, slow.megaflows.len(), limit);
            let pause = slow.revalidator.pause(cost, is_tight);
            // Waking up is never exact.
            !slow.megaflows.is_empty() && start.duration_since(passed) + interval / 4 >= pause
        };
        let something_to_do =
            woken == Woken::PassRequested || slow.unknown_flows.may_be_there() || is_due();
        if !slow.revalidator.paused.load(Ordering::Relaxed) && something_to_do {
            slow.pass(Pass::Full);
            (passed, cost) = (start, start.elapsed());
            slow.wakeup.notify_done();
            // A burst of flow mods then costs few passes, and half of the time at most.
            std::thread::sleep(cost.max(LEAST_REST));
        }
        // Behind the pass, which somebody may wait for, and not with each of a burst.
        if maintained.elapsed() >= interval {
            maintained = Instant::now();
            let _ = housekeeping.try_send(()); // or it is at it, and again is in the channel
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_tight_where_megaflows_would_fill_it() {
        const LIMIT: usize = 200_000;
        let begin = Instant::now();
        let mut room = Room::new(begin);
        let mut at = |ms, flows| room.is_tight(begin + Duration::from_millis(ms), flows, LIMIT);
        assert!(at(500, 60_000), "they come fast");
        assert!(at(501, 60_000), "one look");
        assert!(!at(1000, 60_000), "no more of them");
        assert!(!at(1500, 65_000), "40,000 in a pause");
        assert!(at(2000, 85_000), "160,000 in a pause");
        assert!(at(2500, 150_000), "more");
        assert!(!at(3000, 150_000), "many, and no more of them");
        assert!(at(3500, 175_000) && at(4000, 175_000), "hardly any room");
    }

    #[test]
    fn dear_passes_are_rarer_unless_the_database_says_how_often() {
        let state = RevalidatorState::default();
        let ms = Duration::from_millis;
        assert_eq!(state.pause(ms(1), false), ms(500));
        assert_eq!(state.pause(ms(4), false), ms(1600));
        assert_eq!(state.pause(ms(200), false), LONGEST_PAUSE);
        assert_eq!(state.pause(ms(200), true), ms(500), "there is no room");
        state.is_awaited.store(true, Ordering::Relaxed);
        assert_eq!(state.pause(ms(200), false), LONGEST_AWAITED, "rules may time out");
        state.is_interval_given.store(true, Ordering::Relaxed);
        assert_eq!(state.pause(ms(200), false), ms(500));
        state.interval.store(10_000, Ordering::Relaxed);
        assert_eq!(state.pause(ms(1), false), ms(10_000));
        state.is_interval_given.store(false, Ordering::Relaxed);
        assert_eq!(state.pause(ms(200), false), ms(10_000));
    }
}
