// SPDX-License-Identifier: Apache-2.0
//! Reassembly of fragments, as Open vSwitch does it: the fragments of a packet wait for each other,
//! the whole packet is tracked, and then the fragments go on as they came, with its result.

use crate::extract::{Checksums, Family};
use crate::reassembly::{Part, merge, parse};
use packet::checksum::internet;
use std::collections::{HashMap, VecDeque};
use std::fmt::Write;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use crate::reassembly::Held;

/// Time that the fragments of a packet have.
pub const LIFETIME: Duration = Duration::from_secs(15);
/// Time after the end of the lifetime after which fragments are removed without being sent on.
pub const PURGE_AFTER: Duration = Duration::from_secs(10);
/// Smallest settable size of fragments, in bytes.
pub const LEAST_MIN_SIZE: u32 = 400;
/// Largest settable number of fragments.
pub const MOST_FRAGMENTS: u32 = 5_000;
/// Largest number of bytes in all fragments that wait.
pub const MAX_BYTES: usize = 16 << 20;

/// The packet to which a fragment belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    src: IpAddr,
    dst: IpAddr,
    id: u32,
    proto: u8,
    zone: u16,
    recirc_id: u32,
}

/// The fragments of a packet that have come.
#[derive(Debug)]
struct List<T> {
    /// By offset.
    held: Vec<Held<T>>,
    has_first: bool,
    has_last: bool,
    deadline: Duration,
}

impl<T> List<T> {
    fn is_complete(&self) -> bool {
        let adjoin = |pair: &[Held<T>]| match pair {
            [a, b] => a.part.end() == b.part.offset,
            _ => true,
        };
        self.has_first && self.has_last && self.held.windows(2).all(adjoin)
    }

    fn state(&self) -> &'static str {
        match (self.has_first, self.has_last) {
            (false, false) => "other frag",
            (true, false) => "first frag",
            (false, true) => "last frag",
            (true, true) => "first/last frag",
        }
    }

    fn bytes(&self) -> usize {
        self.held.iter().map(|held| held.bytes.len()).sum()
    }
}

/// Why a fragment is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadFragment {
    /// Its IP header is cut off, or its lengths are impossible.
    Header,
    /// The checksum of its IPv4 header is wrong.
    Checksum,
    /// It is smaller than fragments may be, and not the last one.
    TooSmall,
    /// It overlaps another one.
    Overlaps,
}

/// A packet whose fragments have all come.
#[derive(Debug)]
pub struct Reassembled<T> {
    /// The packet.
    pub bytes: Vec<u8>,
    fragments: Vec<Held<T>>,
}

impl<T> Reassembled<T> {
    /// Returns the value of the first fragment.
    pub fn first(&self) -> Option<&T> {
        self.fragments.first().map(|held| &held.token)
    }

    /// Returns the fragments, with addresses and data as `bytes` has them now: after NAT.
    pub fn into_fragments(self) -> Vec<Held<T>> {
        let mut fragments = self.fragments;
        for held in &mut fragments {
            held.copy_from(&self.bytes);
        }
        fragments
    }
}

/// The result for a packet.
#[derive(Debug)]
pub enum Submitted<T> {
    /// The packet is no fragment, or reassembly is off for its family: the caller goes on with it.
    Whole(Vec<u8>, T),
    /// The fragment waits for others.
    Held,
    /// The fragment is invalid: it goes on, untrackable.
    Bad(BadFragment, Vec<u8>, T),
    /// Too many fragments wait: this one goes on, untrackable.
    Full(Vec<u8>, T),
    /// All fragments are there.
    Complete(Reassembled<T>),
    /// All fragments are there, but the packet is longer than 65,535 bytes: they are dropped.
    TooBig(Vec<Held<T>>),
}

/// Counters of one family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FragmentCounters {
    /// Fragments that were accepted.
    pub accepted: u64,
    /// Fragments whose packet was complete.
    pub completed: u64,
    /// Fragments whose time was over, and that were sent on.
    pub expired: u64,
    /// Fragments that were too small.
    pub too_small: u64,
    /// Fragments that overlapped others.
    pub overlapped: u64,
    /// Fragments that were removed without being sent on.
    pub purged: u64,
}

/// Settings and counters of one family.
#[derive(Clone, Copy, Debug)]
struct FamilyState {
    enabled: bool,
    min_size: u32,
    counters: FragmentCounters,
}

#[derive(Debug)]
struct State<T> {
    families: [FamilyState; 2],
    max_fragments: u32,
    lists: HashMap<Key, List<T>>,
    /// Keys by deadline. A key may be of a list that is complete.
    order: VecDeque<(Duration, Key)>,
    fragments: usize,
    bytes: usize,
    checksums: (u64, u64),
}

/// All fragments that wait. Any thread may use it; a lock is held for one fragment. `T` is what the
/// caller needs to go on with a fragment.
#[derive(Debug)]
pub struct Fragments<T> {
    state: Mutex<State<T>>,
    /// The number of fragments that wait, for readers without the lock.
    waiting: AtomicUsize,
}

/// A setting is out of its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfRange;

fn number(family: Family) -> usize {
    match family {
        Family::V4 => 0,
        Family::V6 => 1,
    }
}

impl<T> Default for Fragments<T> {
    fn default() -> Fragments<T> {
        let family = |min_size| FamilyState {
            enabled: true,
            min_size,
            counters: FragmentCounters::default(),
        };
        let state = State {
            families: [family(1_200), family(1_280)],
            max_fragments: 1_000,
            lists: HashMap::new(),
            order: VecDeque::new(),
            fragments: 0,
            bytes: 0,
            checksums: (0, 0),
        };
        Fragments { state: Mutex::new(state), waiting: AtomicUsize::new(0) }
    }
}

impl<T> State<T> {
    fn remove(&mut self, key: &Key) -> Option<List<T>> {
        let list = self.lists.remove(key)?;
        self.fragments -= list.held.len();
        self.bytes -= list.bytes();
        // Keys of complete packets do not pile up.
        if self.order.len() > 2 * self.lists.len() + 64 {
            let lists = &self.lists;
            let waits = |(deadline, key): &(Duration, Key)| {
                lists.get(key).is_some_and(|list| list.deadline == *deadline)
            };
            self.order.retain(waits);
        }
        Some(list)
    }

    /// Removes the oldest list whose deadline is before `limit`.
    fn take_older(&mut self, limit: Duration) -> Option<(Family, List<T>)> {
        while let Some((deadline, key)) = self.order.front().copied() {
            if deadline > limit {
                return None;
            }
            self.order.pop_front();
            // A complete packet's key may have another list by now.
            if self.lists.get(&key).is_some_and(|list| list.deadline == deadline) {
                let family = if key.src.is_ipv4() { Family::V4 } else { Family::V6 };
                return self.remove(&key).map(|list| (family, list));
            }
        }
        None
    }
}

impl<T> Fragments<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish(&self, state: &State<T>) {
        self.waiting.store(state.fragments, Ordering::SeqCst);
    }

    /// Returns true when no fragment waits. Takes no lock.
    pub fn is_empty(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) == 0
    }

    /// Takes a packet from its IP header on, of a zone and a recirculation.
    pub fn submit(
        &self,
        family: Family,
        bytes: Vec<u8>,
        (zone, recirc_id): (u16, u32),
        verify: Checksums,
        now: Duration,
        token: T,
    ) -> Submitted<T> {
        let mut state = self.lock();
        let settings = state.families[number(family)];
        if !settings.enabled {
            return Submitted::Whole(bytes, token);
        }
        let part = match parse(&bytes, family) {
            Ok(Some(part)) => part,
            Ok(None) => return Submitted::Whole(bytes, token),
            Err(_) => return Submitted::Bad(BadFragment::Header, bytes, token),
        };
        if verify.ip && family == Family::V4 {
            state.checksums.0 += 1;
            if bytes.get(..part.header).is_none_or(|header| internet(header) != 0) {
                state.checksums.1 += 1;
                return Submitted::Bad(BadFragment::Checksum, bytes, token);
            }
        }
        let size = part.header + part.len;
        if part.more && size < settings.min_size as usize {
            state.families[number(family)].counters.too_small += 1;
            return Submitted::Bad(BadFragment::TooSmall, bytes, token);
        }
        let Part { src, dst, id, proto, .. } = part;
        let key = Key { src, dst, id, proto, zone, recirc_id };
        if state.lists.get(&key).is_some_and(|list| list.deadline <= now) {
            // The identification is used again: the old fragments are not of this packet.
            if let Some(old) = state.remove(&key) {
                state.families[number(family)].counters.purged += old.held.len() as u64;
                self.publish(&state);
            }
        }
        if state.fragments >= state.max_fragments as usize || state.bytes + bytes.len() > MAX_BYTES
        {
            return Submitted::Full(bytes, token);
        }
        let overlaps = |held: &Held<T>| {
            held.part.offset < part.end() && part.offset < held.part.end()
                // Nothing may follow the last fragment.
                || !held.part.more && part.end() > held.part.end()
                || !part.more && held.part.end() > part.end()
        };
        if state.lists.get(&key).is_some_and(|list| list.held.iter().any(overlaps)) {
            state.families[number(family)].counters.overlapped += 1;
            return Submitted::Bad(BadFragment::Overlaps, bytes, token);
        }
        state.families[number(family)].counters.accepted += 1;
        state.fragments += 1;
        state.bytes += bytes.len();
        let deadline = now + LIFETIME;
        if !state.lists.contains_key(&key) {
            state.order.push_back((deadline, key));
        }
        let list = state.lists.entry(key).or_insert_with(|| List {
            held: Vec::new(),
            has_first: false,
            has_last: false,
            deadline,
        });
        list.has_first |= part.offset == 0;
        list.has_last |= !part.more;
        let at = list.held.partition_point(|held| held.part.offset < part.offset);
        list.held.insert(at, Held { bytes, token, family, part });
        if !list.is_complete() {
            self.publish(&state);
            return Submitted::Held;
        }
        let held = state.remove(&key).map(|list| list.held).unwrap_or_default();
        self.publish(&state);
        match merge(&held) {
            Some(bytes) => {
                state.families[number(family)].counters.completed += held.len() as u64;
                Submitted::Complete(Reassembled { bytes, fragments: held })
            }
            None => Submitted::TooBig(held),
        }
    }

    /// Returns the fragments of one packet whose time is over: they go on, untrackable.
    pub fn expire(&self, now: Duration) -> Vec<Held<T>> {
        let mut state = self.lock();
        let Some((family, list)) = state.take_older(now) else {
            return Vec::new();
        };
        state.families[number(family)].counters.expired += list.held.len() as u64;
        self.publish(&state);
        list.held
    }

    /// Removes all fragments whose time was over [`PURGE_AFTER`] ago. Returns their number.
    pub fn purge(&self, now: Duration) -> usize {
        let mut state = self.lock();
        let mut purged = 0;
        let Some(limit) = now.checked_sub(PURGE_AFTER) else {
            return 0;
        };
        while let Some((family, list)) = state.take_older(limit) {
            state.families[number(family)].counters.purged += list.held.len() as u64;
            purged += list.held.len();
        }
        self.publish(&state);
        purged
    }
}

/// Settings, counters and status of reassembly. Any thread may use them.
pub trait Reassembly: Send + Sync {
    /// Turns reassembly on.
    fn enable(&self, family: Family);
    /// Turns reassembly off. Fragments that wait go on waiting.
    fn disable(&self, family: Family);
    /// Sets the smallest size of fragments but the last, in bytes with the IP header.
    ///
    /// # Errors
    ///
    /// The size is below [`LEAST_MIN_SIZE`].
    fn set_min_size(&self, family: Family, bytes: u32) -> Result<(), OutOfRange>;
    /// Sets the largest number of fragments that wait.
    ///
    /// # Errors
    ///
    /// The number is above [`MOST_FRAGMENTS`].
    fn set_max_fragments(&self, max: u32) -> Result<(), OutOfRange>;
    /// Returns the counters of a family.
    fn counters(&self, family: Family) -> FragmentCounters;
    /// Returns the numbers of verified and of wrong checksums of IPv4 headers.
    fn checksums(&self) -> (u64, u64);
    /// Returns the answer of `dpctl/ipf-get-status`; with `lists`, that of its option `-m`.
    fn status_text(&self, lists: StatusDetail) -> String;
}

impl<T: Send> Reassembly for Fragments<T> {
    fn enable(&self, family: Family) {
        self.lock().families[number(family)].enabled = true;
    }

    fn disable(&self, family: Family) {
        self.lock().families[number(family)].enabled = false;
    }

    fn set_min_size(&self, family: Family, bytes: u32) -> Result<(), OutOfRange> {
        if bytes < LEAST_MIN_SIZE {
            return Err(OutOfRange);
        }
        self.lock().families[number(family)].min_size = bytes;
        Ok(())
    }

    fn set_max_fragments(&self, max: u32) -> Result<(), OutOfRange> {
        if max > MOST_FRAGMENTS {
            return Err(OutOfRange);
        }
        self.lock().max_fragments = max;
        Ok(())
    }

    fn counters(&self, family: Family) -> FragmentCounters {
        self.lock().families[number(family)].counters
    }

    fn checksums(&self) -> (u64, u64) {
        self.lock().checksums
    }

    fn status_text(&self, lists: StatusDetail) -> String {
        let state = self.lock();
        let [v4, v6] = &state.families;
        let mut text = format!(
            "        Fragmentation Module Status\n        ---------------------------\n        \
             v4 enabled: {}\n        v6 enabled: {}\n        max num frags (v4/v6): {}\n        \
             num frag: {}\n",
            u8::from(v4.enabled),
            u8::from(v6.enabled),
            state.max_fragments,
            state.fragments
        );
        for (name, family) in [("v4", v4), ("v6", v6)] {
            let counters = &family.counters;
            let _ = writeln!(text, "        min {name} frag size: {}", family.min_size);
            for (what, count) in [
                ("accepted", counters.accepted),
                ("completed", counters.completed),
                ("expired", counters.expired),
                ("too small", counters.too_small),
                ("overlapped", counters.overlapped),
                ("purged", counters.purged),
            ] {
                let _ = writeln!(text, "        {name} frags {what}: {count}");
            }
        }
        if lists == StatusDetail::Lists {
            text += "\n        Fragment Lists:\n\n";
            for (key, list) in &state.lists {
                let dl_type = if key.src.is_ipv4() { "0x800" } else { "0x86dd" };
                let _ = writeln!(
                    text,
                    "(src={},dst={},recirc_id={},ip_id={},dl_type={dl_type},zone={},nw_proto={},\
                     num_fragments={},state={})",
                    key.src,
                    key.dst,
                    key.recirc_id,
                    key.id,
                    key.zone,
                    key.proto,
                    list.held.len(),
                    list.state()
                );
            }
        }
        text
    }
}

/// Whether a status has the packets that are incomplete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusDetail {
    /// Settings and counters alone.
    Counters,
    /// The incomplete packets, too.
    Lists,
}

#[cfg(test)]
mod tests;
