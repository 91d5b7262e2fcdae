// SPDX-License-Identifier: Apache-2.0
//! Neighbours: from IP addresses to Ethernet addresses.

use clock::Millis;
use packet::Mac;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

/// How long a learned neighbour stays after its last use, unless it is configured.
const DEFAULT_AGING: Duration = Duration::from_secs(900);

/// Time between two questions for the same neighbour, unless it is configured, as in Open vSwitch.
const DEFAULT_RETRANSMISSION: Duration = Duration::from_secs(1);

/// Most neighbours whose last question is remembered. Beyond them, those that may be asked again are
/// forgotten.
const MOST_SOLICITED: usize = 4096;

/// How long the address that a neighbour had is taken for its address while the neighbour is asked.
/// Several questions fit: the kernel asks three times, a second apart.
const SUPPOSED: Duration = Duration::from_secs(10);

/// Most learned neighbours, and most questions that are remembered. Hosts of the underlay are few;
/// a flood of ARP replies must not grow the table without end.
const MOST: usize = 65_536;

/// A learned neighbour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Its IP address.
    pub address: IpAddr,
    /// Its Ethernet address.
    pub mac: Mac,
    /// The device at which it is; a bridge's name stands for the bridge's ports.
    pub device: String,
    /// True when its time is over; it is removed soon.
    pub is_expired: bool,
}

/// Counters of neighbours since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NeighbourCounters {
    /// Neighbours that became known, or whose Ethernet address changed.
    pub learned: u64,
    /// Neighbours that were not learned because the table was full.
    pub refused: u64,
    /// Questions without an answer.
    pub misses: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    mac: Mac,
    expires: Millis,
    /// It was the answer to a question.
    is_used: bool,
    /// Nothing has confirmed it yet.
    is_supposed: bool,
}

/// A value for each device and address.
type ByDevice<T> = HashMap<Box<str>, HashMap<IpAddr, T>>;

/// Learned neighbours, the kernel's, and which of them were asked for.
#[derive(Debug)]
pub(crate) struct Neighbours {
    learned: ByDevice<Entry>,
    /// Number of entries of `learned`.
    count: usize,
    kernel: ByDevice<Mac>,
    /// Neighbours that no learned entry decided about, with the time when the question is forgotten.
    /// Changes of other neighbours matter to nobody, unless a learned entry was used.
    asked: ByDevice<Millis>,
    /// Number of entries of `asked`. At [`MOST`], all of the kernel's neighbours count as asked for.
    questions: usize,
    aging: Duration,
    /// When the switch last sent a question for each neighbour that it does not know.
    solicited: ByDevice<Millis>,
    /// Time between two of these questions.
    retransmission: Duration,
    /// No entry expires earlier.
    next_expiry: Option<Millis>,
    counters: NeighbourCounters,
}

impl Default for Neighbours {
    fn default() -> Neighbours {
        Neighbours {
            learned: HashMap::new(),
            count: 0,
            kernel: HashMap::new(),
            asked: HashMap::new(),
            questions: 0,
            aging: DEFAULT_AGING,
            solicited: HashMap::new(),
            retransmission: DEFAULT_RETRANSMISSION,
            next_expiry: None,
            counters: NeighbourCounters::default(),
        }
    }
}

fn in_millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

impl Neighbours {
    /// Returns the address of a neighbour: a learned one, whose time starts again, or the kernel's,
    /// or a supposed one.
    pub(crate) fn find(&mut self, device: &str, address: IpAddr, now: Millis) -> Option<Mac> {
        let expires = now + in_millis(self.aging);
        let learned = self.learned.get_mut(device).and_then(|at| at.get_mut(&address));
        let mut supposed = None;
        if let Some(entry) = learned.filter(|e| e.expires > now) {
            entry.is_used = true;
            if !entry.is_supposed {
                entry.expires = expires;
                return Some(entry.mac);
            }
            supposed = Some(entry.mac);
        }
        let kernel = self.kernel.get(device).and_then(|at| at.get(&address)).copied();
        let mac = kernel.or(supposed);
        self.remember(device, address, expires);
        if mac.is_none() {
            self.counters.misses += 1;
        }
        mac
    }

    /// Returns true when the address that [`Neighbours::find`] returns is a supposed one.
    pub(crate) fn is_supposed(&self, device: &str, address: IpAddr, now: Millis) -> bool {
        let learned = self.learned.get(device).and_then(|at| at.get(&address));
        learned.is_some_and(|entry| entry.is_supposed && entry.expires > now)
            && self.kernel.get(device).is_none_or(|at| !at.contains_key(&address))
    }

    /// Takes `mac` for the address of a neighbour that is not known, for a while. Returns true when
    /// the neighbour is not known.
    pub(crate) fn suppose(&mut self, device: &str, address: IpAddr, mac: Mac, now: Millis) -> bool {
        let is_known =
            |table: &ByDevice<Mac>| table.get(device).is_some_and(|at| at.contains_key(&address));
        let at = entry_of(&mut self.learned, device);
        let before = at.get(&address).copied();
        let is_learned = before.is_some_and(|entry| entry.expires > now);
        if is_learned || is_known(&self.kernel) || (before.is_none() && self.count >= MOST) {
            return false;
        }
        let expires = now + in_millis(self.aging.min(SUPPOSED));
        at.insert(address, Entry { mac, expires, is_used: true, is_supposed: true });
        self.count += usize::from(before.is_none());
        self.next_expiry = Some(self.next_expiry.map_or(expires, |t| t.min(expires)));
        true
    }

    /// Notes a question that the kernel's table decided.
    fn remember(&mut self, device: &str, address: IpAddr, until: Millis) {
        let at = entry_of(&mut self.asked, device);
        if let Some(time) = at.get_mut(&address) {
            *time = until;
        } else if self.questions < MOST {
            at.insert(address, until);
            self.questions += 1;
        }
        self.next_expiry = Some(self.next_expiry.map_or(until, |t| t.min(until)));
    }

    /// Returns the neighbours that were asked for lately, by devices.
    pub(crate) fn questions(&self) -> Vec<(String, IpAddr)> {
        let all = self.asked.iter().flat_map(|(device, at)| at.keys().map(move |a| (device, *a)));
        all.map(|(device, address)| (device.to_string(), address)).collect()
    }

    fn was_asked(&self, device: &str, address: IpAddr) -> bool {
        self.questions >= MOST || self.asked.get(device).is_some_and(|at| at.contains_key(&address))
    }

    /// Learns or confirms a neighbour. Returns true when its Ethernet address is new and somebody
    /// has asked for it: any host can announce neighbours that no tunnel goes to.
    pub(crate) fn learn(&mut self, device: &str, address: IpAddr, mac: Mac, now: Millis) -> bool {
        let expires = now + in_millis(self.aging);
        let mut is_used = false;
        let at = entry_of(&mut self.learned, device);
        if let Some(entry) = at.get_mut(&address) {
            let is_same = entry.mac == mac && entry.expires > now && !entry.is_supposed;
            is_used = entry.is_used;
            *entry = Entry { mac, expires, is_used, is_supposed: false };
            if is_same {
                return false;
            }
        } else if self.count < MOST {
            at.insert(address, Entry { mac, expires, is_used, is_supposed: false });
            self.count += 1;
        } else {
            self.counters.refused += 1;
            return false;
        }
        self.counters.learned += 1;
        self.next_expiry = Some(self.next_expiry.map_or(expires, |t| t.min(expires)));
        is_used || self.was_asked(device, address)
    }

    /// Sets or removes an entry of the kernel's table. Returns true when it changed and was asked for.
    /// The address of an entry that was asked for and is removed is supposed to be right until the
    /// neighbour is asked again.
    pub(crate) fn set_kernel(
        &mut self,
        device: &str,
        address: IpAddr,
        mac: Option<Mac>,
        now: Millis,
    ) -> bool {
        let at = entry_of(&mut self.kernel, device);
        let before = match mac {
            Some(mac) => at.insert(address, mac),
            None => at.remove(&address),
        };
        if at.is_empty() {
            self.kernel.remove(device);
        }
        let was_asked = self.was_asked(device, address);
        if let (Some(before), None, true) = (before, mac, was_asked) {
            self.suppose(device, address, before, now);
        }
        before != mac && was_asked
    }

    /// Replaces the kernel's table. Returns true when an entry changed that was asked for.
    pub(crate) fn replace_kernel(
        &mut self,
        all: impl IntoIterator<Item = (String, IpAddr, Mac)>,
    ) -> bool {
        let mut kernel: ByDevice<Mac> = HashMap::new();
        for (device, address, mac) in all {
            entry_of(&mut kernel, &device).insert(address, mac);
        }
        let before = std::mem::replace(&mut self.kernel, kernel);
        if self.questions >= MOST {
            return before != self.kernel;
        }
        let find = |table: &ByDevice<Mac>, device: &str, address: &IpAddr| {
            table.get(device).and_then(|at| at.get(address)).copied()
        };
        self.asked.iter().any(|(device, at)| {
            at.keys().any(|a| find(&before, device, a) != find(&self.kernel, device, a))
        })
    }

    /// Returns the learned neighbours, by their addresses, without supposed ones.
    pub(crate) fn learned(&self, now: Millis) -> Vec<Neighbour> {
        let mut all: Vec<Neighbour> = self
            .learned
            .iter()
            .flat_map(|(device, at)| {
                let learned = at.iter().filter(|(_, entry)| !entry.is_supposed);
                learned.map(|(address, entry)| Neighbour {
                    address: *address,
                    mac: entry.mac,
                    device: device.to_string(),
                    is_expired: entry.expires <= now,
                })
            })
            .collect();
        all.sort_by(|a, b| (a.address, &a.device).cmp(&(b.address, &b.device)));
        all
    }

    /// Removes learned neighbours at the devices that `is_meant` names. Returns true when there were
    /// some.
    pub(crate) fn remove(&mut self, is_meant: impl Fn(&str) -> bool) -> bool {
        let before = self.count;
        self.learned.retain(|device, _| !is_meant(device));
        self.count = self.learned.values().map(HashMap::len).sum();
        self.count != before
    }

    /// Removes learned neighbours and questions that have expired. Returns true when an answer may
    /// have depended on one of them. The questions are then asked again where they still matter.
    pub(crate) fn expire(&mut self, now: Millis) -> bool {
        if self.next_expiry.is_none_or(|next| next > now) {
            return false;
        }
        let mut learned = self.learned.values().flat_map(HashMap::values);
        let mut asked = self.asked.values().flat_map(HashMap::values);
        let is_answer = learned.any(|entry| entry.is_used && entry.expires <= now)
            || asked.any(|until| *until <= now);
        retain(&mut self.learned, |entry| entry.expires > now);
        retain(&mut self.asked, |until| *until > now);
        self.recount();
        is_answer
    }

    fn recount(&mut self) {
        self.count = self.learned.values().map(HashMap::len).sum();
        self.questions = self.asked.values().map(HashMap::len).sum();
        let learned = self.learned.values().flat_map(HashMap::values).map(|e| e.expires);
        let asked = self.asked.values().flat_map(HashMap::values).copied();
        self.next_expiry = learned.chain(asked).min();
    }

    pub(crate) fn next_expiry(&self) -> Option<Millis> {
        self.next_expiry
    }

    pub(crate) fn aging(&self) -> Duration {
        self.aging
    }

    pub(crate) fn set_aging(&mut self, aging: Duration, now: Millis) {
        self.aging = aging;
        let latest = now + in_millis(aging);
        for entry in self.learned.values_mut().flat_map(HashMap::values_mut) {
            entry.expires = entry.expires.min(latest);
        }
        self.recount();
    }

    /// Returns true when the switch may send a question for a neighbour, and records that it does:
    /// the last one was not sent within the time between two questions.
    pub(crate) fn may_solicit(&mut self, device: &str, address: IpAddr, now: Millis) -> bool {
        let pause = in_millis(self.retransmission);
        let is_recent = |at: &Millis| now.since(*at) < pause.unsigned_abs();
        if self.solicited.get(device).and_then(|at| at.get(&address)).is_some_and(is_recent) {
            return false;
        }
        if self.solicited.values().map(HashMap::len).sum::<usize>() >= MOST_SOLICITED {
            retain(&mut self.solicited, is_recent);
        }
        if self.solicited.values().map(HashMap::len).sum::<usize>() < MOST_SOLICITED {
            entry_of(&mut self.solicited, device).insert(address, now);
        }
        true
    }

    pub(crate) fn retransmission(&self) -> Duration {
        self.retransmission
    }

    pub(crate) fn set_retransmission(&mut self, pause: Duration) {
        self.retransmission = pause;
    }

    pub(crate) fn counters(&self) -> NeighbourCounters {
        self.counters
    }
}

/// Returns the entries of a device.
fn entry_of<'a, T>(table: &'a mut ByDevice<T>, device: &str) -> &'a mut HashMap<IpAddr, T> {
    table.entry(device.into()).or_default()
}

/// Keeps the entries that `is_kept` accepts.
fn retain<T>(table: &mut ByDevice<T>, is_kept: impl Fn(&T) -> bool) {
    table.retain(|_, at| {
        at.retain(|_, value| is_kept(value));
        !at.is_empty()
    });
}
