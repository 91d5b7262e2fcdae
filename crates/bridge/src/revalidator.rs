// SPDX-License-Identifier: Apache-2.0
//! Revalidation: keeps megaflows in agreement with the tables, and credits their statistics.
//!
//! One pass ([`SlowPath::pass`]) credits the datapath's counts since the last pass to rules, tables,
//! groups and MAC entries. When the snapshot has changed since a megaflow was translated, the pass
//! translates it again and keeps it, changes its actions, or removes it. It removes a megaflow that
//! was idle too long. So it visits the megaflows that have counted, and those for which a visit
//! is due by the clock (`schedule.rs`); it visits all only where any of them may have work for it
//! (`SlowPath::must_look_at_all`). Passes run on one thread
//! (`Revalidator`) every `max-revalidator` milliseconds and soon after each publication. They run
//! on the control thread when a caller requests exact statistics or the clock is warped.
//!
//! A pass over many megaflows costs milliseconds, nearly all of them waiting for memory. A pass
//! also slows packet processing, as it moves the counters that it reads out of the caches of the
//! packet CPUs. Where the database does not set the interval, the interval grows with the cost of a
//! pass and while passes find no packets (`RevalidatorState::pause`), up to 4 s; it does not grow
//! while tables change, or while megaflows may have to make room (`Room`). A request for statistics
//! in the meantime triggers a pass ([`crate::switch::Switch::collect_statistics`]).
//!
//! A megaflow that the datapath has and the switch has no record of (made by hand, or left by the
//! previous daemon) is *explained*: its match is translated, after those of the megaflows that lead
//! to it by recirculation. If the translation agrees, the megaflow is kept with the translation's actions, else it is removed. Its earlier counts are
//! credited to the rules that it now stands for.
//!
//! Errors are on the safe side. A megaflow whose new mask has a bit that the old one lacks is
//! removed, as other packets of it may now get other actions. A megaflow whose new mask is narrower
//! is kept though it is too specific. A megaflow is stale until the next pass comes to it
//! (milliseconds).

use crate::effect;
use crate::megaflows::{self, Entry};
use crate::revalidator_state::{LEAST_REST, LONGEST_PAUSE};
use crate::schedule::Tick;
use crate::slow_path::SlowPath;
use crate::snapshot::Snapshot;
use crate::translate::suppose_neighbours;
use crate::wakeup::{Wakeup, Woken};
use classifier::MiniMatch;
use clock::Millis;
use datapath::shards::Groups;
use datapath::{Actions, Datapath, FlowStats, PortNo, Ufid};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Shortest time over which the rate of new megaflows is measured.
const RATE_WINDOW: Duration = Duration::from_millis(100);
/// Time that it takes, about, to hand work to another thread and to receive the notice that the
/// work is done.
const HANDOVER_TIME: Duration = Duration::from_micros(50);
/// Highest number of megaflows for which a pass may be taken to last [`HANDOVER_TIME`] at most.
const MOST_PASSED_INLINE: usize = 32;

/// The fate of a megaflow that the switch has no record of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Explained {
    Kept,
    /// No rule explains it.
    Wrong,
    /// Its packets come back to a frozen pipeline that is not known.
    NotYet,
}

/// Work of a pass in addition to crediting statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// Credit only.
    Statistics,
    /// Credit, revalidate, expire.
    Full,
    /// Credit and remove all (`revalidator/purge`).
    Purge,
}

/// Highest number of megaflows for which [`SlowPath::collect`] makes a pass: a few milliseconds.
const MOST_COLLECTED: usize = 2000;
/// Longest time until the next look at a megaflow, in milliseconds. A removed megaflow leaves its
/// identity in the schedule until then.
const LONGEST_WAIT_MS: i64 = 30_000;
/// Number of megaflows whose actions a pass changes in one call of the datapath.
const MODIFIED_AT_ONCE: usize = 64;

/// Input of one pass, the same for all its megaflows.
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

/// Returns an idle time in milliseconds as a difference of times.
fn idle_ms(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner) // what it holds is whole at any time
}

/// Gives megaflows their new actions; removes those whose actions the datapath refuses.
fn modify(datapath: &dyn Datapath, changed: &mut Vec<(Ufid, Actions)>, doomed: &mut Vec<Ufid>) {
    datapath.modify_many(changed, &mut |ufid| doomed.push(ufid));
    changed.clear();
}

impl SlowPath {
    /// Makes one pass over all megaflows. Any thread may call it; passes do not overlap.
    pub fn pass(&self, what: Pass) {
        let one_at_a_time = self.passing.lock().unwrap_or_else(PoisonError::into_inner);
        self.pass_alone(what, &one_at_a_time);
    }

    /// Credits statistics if that takes a short time: not when another pass runs, and not when
    /// there are many megaflows. For a thread that must not wait. Returns the time up to which
    /// everything that packets did is credited.
    pub(crate) fn collect(&self) -> Millis {
        let few = self.megaflows.len() <= MOST_COLLECTED;
        if let Some(alone) = self.passing.try_lock().ok().filter(|_| few) {
            self.pass_alone(Pass::Statistics, &alone);
        }
        self.revalidator.credited()
    }

    /// Makes a full pass on the calling thread, if that is faster than to hand it to the
    /// revalidator's thread: there are few megaflows, and the last pass was short. Returns false
    /// when it made no pass.
    pub(crate) fn pass_if_short(&self) -> bool {
        let state = &self.revalidator;
        let is_short = self.megaflows.len() <= MOST_PASSED_INLINE
            && state.last_pass().is_some_and(|cost| cost <= HANDOVER_TIME)
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

    /// Makes a pass over the megaflows of `datapath`. `swept` is an empty buffer.
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

        let held = self.is_revalidation_held.load(Ordering::Acquire);
        let what = if held && what == Pass::Full { Pass::Statistics } else { what };
        let round = Round { snapshot: &snapshot, version, now };

        let mut doomed: Vec<Ufid> = Vec::new();
        let mut changed: Vec<(Ufid, Actions)> = Vec::new();
        let expected = self.unknown_flows.expected();
        let mut found_unknown = false;
        let mut unknown: Vec<Ufid> = Vec::new();
        let mut used: BTreeMap<PortNo, u64> = BTreeMap::new();
        let mut unsure: Vec<Ufid> = Vec::new();
        let mut looks = 0;
        let unchanged = state.done_version.load(Ordering::Acquire) == version;
        let is_all = match what {
            Pass::Statistics => false,
            Pass::Full => self.must_look_at_all(datapath, unchanged, max_idle),
            Pass::Purge => true,
        };
        if is_all {
            datapath.sweep(&mut |ufid, stats| swept.push(ufid, stats));
        } else {
            self.sweep_moved(datapath, swept);
        }
        let look = |ufid, stats: Option<&FlowStats>, entry: Option<&mut Entry>| {
            looks += 1;
            let Some(entry) = entry else { return (None, None) };
            if let Some(stats) = stats {
                // A megaflow that was added since the pass began may have the place of one that was
                // swept.
                let is_swept = std::mem::replace(&mut entry.seen, number) != number;
                if is_swept {
                    if entry.credited.packets == 0 && stats.packets > 0 {
                        *used.entry(entry.in_port).or_default() += 1;
                    }
                    if entry.credited.packets != stats.packets {
                        state.is_stirred.store(true, Ordering::Relaxed);
                    }
                    self.credit(entry, *stats);
                } else if !is_all {
                    unsure.push(ufid);
                }
            }
            let verdict = match what {
                Pass::Statistics => return (Some(Verdict::Keep), None),
                Pass::Purge => Verdict::Remove,
                Pass::Full if now.since(entry.last_used()) > max_idle => Verdict::Remove,
                // A later snapshot may be published by now, and packet threads translate on that.
                Pass::Full if entry.version >= version => Verdict::Keep,
                Pass::Full => self.revalidate(&snapshot, version, entry, now),
            };
            let next = match verdict {
                // The first moment at which it is idle for too long.
                Verdict::Keep => {
                    let expiry = entry.last_used() + idle_ms(max_idle).saturating_add(1);
                    expiry.min(now + LONGEST_WAIT_MS)
                }
                _ => Tick::of(now).end(), // if it is still there
            };
            (Some(verdict), Some(next))
        };
        let together = if unchanged { megaflows::LONG_BATCH } else { megaflows::SHORT_BATCH };
        let known = swept.len();
        let due = (what == Pass::Full).then_some(now);
        self.megaflows.visit(swept, due, together, look, |ufid, verdict| match verdict {
            None if held || what == Pass::Statistics => found_unknown = true,
            None if what == Pass::Full => unknown.push(ufid),
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
        doomed.extend(self.explain_all(datapath, unknown, &round));
        self.remove_many(&doomed);
        if !doomed.is_empty() {
            state.is_stirred.store(true, Ordering::Relaxed); // housekeeping has work
        }
        used.into_iter().for_each(|(port, n)| datapath.megaflows_used(port, n));
        self.counters.looks.fetch_add(looks, Ordering::Relaxed);
        self.read_again(unsure);
        if found_unknown {
            self.unknown_flows.expect();
        } else if is_all {
            self.unknown_flows.met(expected);
        }
        if is_all {
            let before = state.looked_at_all.swap(number, Ordering::AcqRel);
            if self.megaflows.len() > known.saturating_sub(doomed.len()) {
                self.forget_missing(before);
            }
        }
        if what != Pass::Statistics {
            state.scheduled_idle_ms.store(max_idle, Ordering::Relaxed);
            state.done_version.store(version, Ordering::Release);
        }
        state.record_credited(now);
        let cost = start.elapsed();
        if what == Pass::Full {
            state.record_pass(cost, count);
            self.adapt_limit(u64::try_from(cost.as_millis()).unwrap_or(u64::MAX), count);
        }
    }

    /// Returns true when a full pass must look at all megaflows: the tables have changed
    /// (`unchanged` is false), the record and the datapath may differ, or megaflows expire sooner
    /// than they are scheduled for a visit.
    fn must_look_at_all(&self, datapath: &dyn Datapath, unchanged: bool, max_idle: u64) -> bool {
        let state = &self.revalidator;
        let is_due = state.is_look_due.swap(false, Ordering::AcqRel);
        is_due
            || !unchanged
            || self.unknown_flows.may_be_there()
            || max_idle < state.scheduled_idle_ms.load(Ordering::Relaxed)
            // A megaflow that is on its way into the datapath makes a difference, too.
            || datapath.lookups().flows != self.megaflows.len()
    }

    /// Adds the megaflows that moved since the last pass to `swept`, and those that
    /// [`SlowPath::read_again`] got.
    fn sweep_moved(&self, datapath: &dyn Datapath, swept: &mut Groups<FlowStats>) {
        let mut again = std::mem::take(&mut *lock(&self.unsure));
        datapath.sweep_moved(&mut |ufid, stats| {
            again.remove(&ufid);
            swept.push(ufid, stats);
        });
        if !again.is_empty() {
            let again: Vec<Ufid> = again.into_iter().collect();
            datapath.stats_of(&again, &mut |ufid, stats| swept.push(ufid, stats));
        }
    }

    /// Has the next pass that reads moved megaflows read these, too. The datapath has reported
    /// their counts, but the counts may be those of earlier megaflows of the same identities.
    fn read_again(&self, unsure: Vec<Ufid>) {
        if !unsure.is_empty() {
            lock(&self.unsure).extend(unsure);
        }
    }

    /// Forgets megaflows that were flushed in the datapath: neither this pass nor pass `before`,
    /// the last one that looked at all, has found them there. (One pass is not enough: the megaflow
    /// may be on its way to the datapath, or the thread that removed it there may be about to
    /// remove it here. If a thread takes longer than two passes to install a megaflow, the megaflow
    /// becomes an unknown one.)
    fn forget_missing(&self, before: u64) {
        for ufid in self.megaflows.select(|e| e.seen < before) {
            self.megaflows.remove(ufid);
            self.unknown_flows.expect();
        }
        self.revalidator.is_look_due.store(true, Ordering::Release);
    }

    /// Adopts megaflows of the datapath that the switch has no record of. Those of recirculated
    /// packets follow those that lead to them: only then is the frozen pipeline known. Returns
    /// those that cannot be kept.
    fn explain_all(
        &self,
        datapath: &dyn Datapath,
        mut unknown: Vec<Ufid>,
        round: &Round<'_>,
    ) -> Vec<Ufid> {
        let mut doomed = Vec::new();
        loop {
            let before = unknown.len();
            unknown.retain(|ufid| match self.explain(datapath, *ufid, round) {
                Explained::Kept => false,
                Explained::Wrong => {
                    doomed.push(*ufid);
                    false
                }
                Explained::NotYet => true,
            });
            if unknown.is_empty() || unknown.len() == before {
                doomed.append(&mut unknown);
                return doomed;
            }
        }
    }

    /// Adopts a megaflow of the datapath that the switch has no record of, with the actions that
    /// its match translates to. It cannot be kept when its port is no port, it matches more than
    /// the translation allows, or the datapath refuses the actions.
    fn explain(&self, datapath: &dyn Datapath, ufid: Ufid, round: &Round<'_>) -> Explained {
        let Some(dump) = datapath.flow(ufid) else { return Explained::Kept }; // gone meanwhile
        let matching = dump.flow.matching;
        let key = matching.key();
        let recirc = key.recirc_id.get();
        if recirc != 0 && self.recirc.state(recirc).is_none() {
            return Explained::NotYet;
        }
        suppose_neighbours(round.snapshot, &dump.flow.actions);
        let Some(mut translation) = self.translate(round.snapshot, key, None, round.now) else {
            return Explained::Wrong;
        };
        effect::keep_lasting(&mut translation.effects);
        let megaflow = self.megaflow(key, &translation);
        if !matching.mask().covers(megaflow.matching.mask()) {
            return Explained::Wrong;
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
            look: Tick::NEVER,
        };
        // The next pass credits what the megaflow has counted, whether it moves or not.
        self.revalidator.is_look_due.store(true, Ordering::Release);
        if !self.megaflows.insert(ufid, entry, &self.revalidator.passes) {
            return Explained::Kept; // an upcall was faster
        }
        if datapath.modify(ufid, &megaflow.actions) {
            return Explained::Kept;
        }
        self.megaflows.remove(ufid);
        Explained::Wrong
    }

    /// Returns the longest idle time of a megaflow, in milliseconds: near the limit idle megaflows
    /// are removed sooner, so that live ones keep their place.
    fn idle_limit(&self, count: u64) -> u64 {
        let max_idle = self.revalidator.max_idle_ms.load(Ordering::Relaxed);
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
        entry: &mut Entry,
        now: Millis,
    ) -> Verdict {
        let matching = entry.matching.expand();
        let key = matching.key();
        let Some(mut translation) = self.translate(snapshot, key, None, now) else {
            return Verdict::Remove;
        };
        effect::keep_lasting(&mut translation.effects);
        let megaflow = self.megaflow(key, &translation);
        if !matching.mask().covers(megaflow.matching.mask()) {
            return Verdict::Remove;
        }
        entry.version = version;
        entry.effects = translation.effects;
        entry.recirc = translation.recirc_ids;
        if megaflow.actions == entry.actions {
            Verdict::Keep
        } else {
            entry.actions = Arc::clone(&megaflow.actions);
            Verdict::Modify(megaflow.actions)
        }
    }
}

/// The revalidator's thread, and one for the datapath's housekeeping. Dropping it stops and joins
/// both.
#[derive(Debug)]
pub(crate) struct Revalidator {
    wakeup: Arc<Wakeup>,
    threads: Vec<JoinHandle<()>>,
}

impl Revalidator {
    /// Starts passes over `slow`'s megaflows.
    ///
    /// # Errors
    ///
    /// Fails when a thread cannot be started.
    pub(crate) fn start(slow: Arc<SlowPath>) -> std::io::Result<Revalidator> {
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
    pub(crate) fn request_pass(&self) {
        self.wakeup.request_pass();
    }

    /// Ends a long sleep of the thread, because ports or settings have changed.
    pub(crate) fn nudge(&self) {
        self.wakeup.nudge();
    }

    /// Blocks until `is_done` after a pass, or until passes are paused, for at most `timeout`.
    pub(crate) fn wait(&self, slow: &SlowPath, timeout: Duration, is_done: impl Fn() -> bool) {
        let paused = || {
            slow.revalidator.paused.load(Ordering::Relaxed)
                || slow.is_revalidation_held.load(Ordering::Acquire)
        };
        self.wakeup.wait(timeout, || is_done() || paused());
    }
}

impl Drop for Revalidator {
    fn drop(&mut self) {
        self.wakeup.stop();
        // The revalidator is joined first: the housekeeping thread ends after it.
        for thread in self.threads.drain(..).rev() {
            let _ = thread.join(); // a panic there was reported on stderr
        }
    }
}

/// Time between two checks when there has been no megaflow for [`QUIET_ROUNDS`].
const LONG_SLEEP: Duration = Duration::from_secs(5);
/// Number of checks after the last megaflow was removed: its leftovers in the datapath are tidied
/// up by then.
const QUIET_ROUNDS: u32 = 4;

/// Whether megaflows may run out of room between two passes.
struct Room {
    looked: Instant,
    /// Number of megaflows at the time `looked`.
    flows: usize,
    /// Growth in megaflows per second up to the time `looked`.
    rate: f64,
}

impl Room {
    fn new(now: Instant) -> Room {
        Room { looked: now, flows: 0, rate: 0.0 }
    }

    /// Returns true when `flows` may reach `limit` before the next regular pass: seven eighths of
    /// the limit are reached, or the limit would be reached at the recent rate of new megaflows.
    fn is_tight(&mut self, now: Instant, flows: usize, limit: usize) -> bool {
        let elapsed = now.duration_since(self.looked);
        if elapsed >= RATE_WINDOW {
            self.rate = flows.saturating_sub(self.flows) as f64 / elapsed.as_secs_f64();
            (self.looked, self.flows) = (now, flows);
        }
        let coming = self.rate * LONGEST_PAUSE.as_secs_f64();
        flows as f64 + coming >= limit as f64 || flows >= limit - limit / 8
    }
}

/// Runs the datapath's housekeeping each time that it is `due`. It has a thread of its own: loading
/// programs may take a tenth of a second, and no megaflow may be stale for that long.
fn keep_house(slow: &SlowPath, due: &Receiver<()>) {
    while due.recv().is_ok() {
        if let Some(datapath) = slow.datapath() {
            datapath.maintain();
        }
    }
}

/// How long the revalidator's thread sleeps.
struct Sleep {
    time: Duration,
    /// New megaflows, ports or settings end it.
    is_long: bool,
}

/// Returns the sleep after which the next pass follows. `still` passes in a row have found no
/// packets, the last of them at `passed` and for this `cost`.
fn next_sleep(slow: &SlowPath, still: u32, passed: Instant, cost: Duration) -> Sleep {
    let interval = slow.revalidator.interval();
    let limit = slow.flow_limit.load(Ordering::Relaxed);
    let is_full = slow.megaflows.len() >= limit - limit / 8;
    let pause = slow.revalidator.pause(cost, is_full, still);
    let time = pause.saturating_sub(passed.elapsed());
    if still == 0 || time <= interval {
        return Sleep { time: interval, is_long: false };
    }
    // Where nothing moves, a visit that is due finds a megaflow that expires.
    let due = slow.megaflows.first_look().map(|tick| tick.end().since(slow.clock.now()));
    let due = Duration::from_millis(due.unwrap_or(u64::MAX));
    Sleep { time: time.min(due).max(interval), is_long: true }
}

fn run(slow: &SlowPath, housekeeping: &SyncSender<()>) {
    let state = &slow.revalidator;
    let mut maintained = Instant::now();
    let mut room = Room::new(maintained);
    let (mut passed, mut cost) = (Instant::now(), Duration::ZERO);
    let (mut quiet, mut still) = (0, 0);
    loop {
        let interval = state.interval();
        let sleep = if quiet == QUIET_ROUNDS {
            Sleep { time: interval.max(LONG_SLEEP), is_long: true }
        } else {
            next_sleep(slow, still, passed, cost)
        };
        let woken = slow.wakeup.sleep(sleep.time, sleep.is_long);
        quiet = match woken {
            Woken::Stop => return,
            Woken::Nudged | Woken::PassRequested => 0,
            Woken::TimedOut if !slow.megaflows.is_empty() => 0,
            Woken::TimedOut => QUIET_ROUNDS.min(quiet + 1),
        };
        if woken == Woken::Nudged {
            still = 0;
            if sleep.is_long {
                continue; // the next, short sleep precedes the first check
            }
        }
        let start = Instant::now();
        let mut is_due = || {
            let limit = slow.flow_limit.load(Ordering::Relaxed);
            let is_tight = room.is_tight(start, slow.megaflows.len(), limit);
            let pause = state.pause(cost, is_tight, 0);
            // The time of a wakeup is never exact.
            let is_over = sleep.is_long || start.duration_since(passed) + interval / 4 >= pause;
            !slow.megaflows.is_empty() && is_over
        };
        let something_to_do =
            woken == Woken::PassRequested || slow.unknown_flows.may_be_there() || is_due();
        if !state.paused.load(Ordering::Relaxed) && something_to_do {
            slow.pass(Pass::Full);
            (passed, cost) = (start, start.elapsed());
            slow.wakeup.notify_done();
            // Passes of other threads count, too.
            let is_stirred = state.is_stirred.swap(false, Ordering::Relaxed);
            still = if is_stirred { 0 } else { still.saturating_add(1) };
            // The rest limits a burst of flow mods to few passes, and to half of the time at most.
            std::thread::sleep(cost.max(LEAST_REST));
        }
        // After the pass, as a thread may wait for the pass; and not after each pass of a burst.
        if maintained.elapsed() >= interval {
            maintained = Instant::now();
            let _ = housekeeping.try_send(()); // fails when a request waits already
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
}
