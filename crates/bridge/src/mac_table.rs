// SPDX-License-Identifier: Apache-2.0
//! Learned MAC addresses of one bridge.
//!
//! # Task
//! The table maps (VLAN, MAC) to the OpenFlow port that the address was last seen on. It is bounded
//! in size and age. NORMAL looks destinations up in it. [`crate::effect::apply`] enters sources, in
//! the upcall and from the revalidator's statistics, so that an address stays as long as its
//! traffic flows in the datapath.
//!
//! # Invariants
//! - When the table is full, a new address takes the place of the least recently used one *of a
//!   port that has most*, so one port with random sources cannot push the others out. As in OVS
//!   this holds for static entries, too: they count, and they are evicted. Their time of use is
//!   that of the last `fdb/add`; traffic does not renew it.
//! - The table has more entries than its capacity only when the capacity was lowered and more
//!   static entries are left. Learned entries beyond the capacity expire at once.
//! - Translation depends on nothing in the table except (VLAN, MAC) → port. [`MacTable::learn`] and
//!   the other writers return whether that changed, and the caller then revalidates.
//! - A lookup does not compare ages. An entry past its age counts until `MacTable::expire` removes
//!   it, as in OVS: this errs on the side of forwarding to one port.
//!
//! Any thread may call. Every call takes one short lock, `expire`, `flush` and `entries` a longer
//! one.

mod port_heap;

use crate::ids::BridgeIndex;
use clock::Millis;
use hashbrown::{HashMap, HashSet};
use openflow::PortNo;
use port_heap::PortHeap;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

/// Default capacity, in entries (`other_config:mac-table-size`).
pub(crate) const DEFAULT_CAPACITY: usize = 8192;
/// Default age in seconds after which an unused entry expires (`other_config:mac-aging-time`).
pub(crate) const DEFAULT_AGEING: u32 = 300;
/// Time in milliseconds for which a gratuitous ARP locks an entry against reflections over a bond.
const GRATUITOUS_ARP_LOCK_MS: i64 = 5_000;

type Address = (u16, [u8; 6]);

#[derive(Clone, Copy, Debug)]
struct Entry {
    port: PortNo,
    /// Position in the order of use: unique, higher for a later use.
    turn: u64,
    /// Time at which a packet last had the address as its source; `None` for a static entry.
    seen: Option<Millis>,
    locked_until: Millis,
}

/// The addresses of one port by [`Entry::turn`]: the least recently used first.
type ByUse = BTreeMap<u64, Address>;

#[derive(Debug)]
struct Inner {
    entries: HashMap<Address, Entry>,
    /// Addresses of each port that has any.
    ports: HashMap<PortNo, ByUse>,
    /// The same ports, the one with most addresses first.
    by_count: PortHeap,
    /// The highest [`Entry::turn`] so far.
    turn: u64,
    /// Lower bound of [`Entry::seen`] of all learned addresses; `None` when there are none.
    oldest: Option<Millis>,
    capacity: usize,
    ageing: u32,
    flood_vlans: Vec<u16>,
    /// Removed ports: nothing is learned on them.
    closed: HashSet<PortNo>,
    /// Ports that the spanning tree does not let learn.
    silent: HashSet<PortNo>,
    /// Packets from before this time are not learned from.
    stale: Millis,
    /// The same for single ports.
    stale_ports: HashMap<PortNo, Millis>,
    stats: MacStats,
}

/// Counters of a MAC table since its creation or since they were cleared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MacStats {
    /// Addresses learned.
    pub learned: u64,
    /// Learned addresses that were not seen for too long, or for which a lowered capacity has no
    /// room.
    pub expired: u64,
    /// Addresses that made room for others.
    pub evicted: u64,
    /// Learned addresses that came from another port than before.
    pub moved: u64,
    /// Packets from another port than that of the static entry, which stays.
    pub static_kept: u64,
}

/// Number of entries of a MAC table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MacUsage {
    /// Addresses in the table, learned and static.
    pub entries: usize,
    /// Highest number of `entries`.
    pub capacity: usize,
    /// Static addresses in the table.
    pub static_entries: usize,
}

/// One line of `fdb/show`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MacEntry {
    /// OpenFlow port of the address.
    pub port: PortNo,
    /// VLAN of the address; 0 for none.
    pub vlan: u16,
    /// The learned or static address.
    pub mac: [u8; 6],
    /// Seconds since the address was last seen; `None` for a static entry.
    pub age: Option<u64>,
}

/// Outcome of [`MacTable::add_static`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StaticAdd {
    /// The address was not in the table.
    Added,
    /// The address was in the table with another port, or was learned.
    Replaced {
        /// Port of the replaced entry.
        port: PortNo,
        /// The replaced entry was static, too.
        was_static: bool,
    },
    /// The table had this static entry already.
    Unchanged,
}

/// Learned MAC addresses of one bridge, by VLAN. Any thread; short locks only.
#[derive(Debug)]
pub struct MacTable {
    bridge: BridgeIndex,
    inner: Mutex<Inner>,
}

fn is_same_second(a: Millis, b: Millis) -> bool {
    a.0.div_euclid(1000) == b.0.div_euclid(1000)
}

fn is_multicast(mac: &[u8; 6]) -> bool {
    mac[0] & 1 != 0
}

impl Inner {
    fn learns(&self, vlan: u16) -> bool {
        self.flood_vlans.binary_search(&vlan).is_err()
    }

    /// Returns true when packets that `port` receives now are learned from.
    fn is_open(&self, port: PortNo) -> bool {
        !self.closed.contains(&port) && !self.silent.contains(&port)
    }

    /// Returns true for a packet from before the addresses of its port were forgotten.
    fn is_stale(&self, port: PortNo, seen: Millis) -> bool {
        seen < self.stale || self.stale_ports.get(&port).is_some_and(|since| seen < *since)
    }

    fn unlink(&mut self, entry: &Entry) {
        let Some(by_use) = self.ports.get_mut(&entry.port) else { return };
        by_use.remove(&entry.turn);
        self.by_count.set(entry.port, by_use.len());
        if by_use.is_empty() {
            self.ports.remove(&entry.port);
        }
    }

    fn remove(&mut self, address: &Address) -> Option<Entry> {
        let entry = self.entries.remove(address)?;
        self.unlink(&entry);
        Some(entry)
    }

    /// Enters `address` as the one used last. Replaces its entry, if there is one.
    fn put(&mut self, address: Address, port: PortNo, seen: Option<Millis>, locked_until: Millis) {
        self.turn += 1;
        let entry = Entry { port, turn: self.turn, seen, locked_until };
        match self.entries.get(&address).copied() {
            // The number of the port's addresses stays, and so does the port's place among others.
            Some(old) if old.port == port => drop(self.by_use(port).remove(&old.turn)),
            Some(old) => self.unlink(&old),
            None => {}
        }
        let by_use = self.by_use(port);
        by_use.insert(entry.turn, address);
        let count = by_use.len();
        self.by_count.set(port, count);
        if let Some(seen) = seen {
            self.oldest = Some(self.oldest.map_or(seen, |oldest| oldest.min(seen)));
        }
        self.entries.insert(address, entry);
    }

    fn by_use(&mut self, port: PortNo) -> &mut ByUse {
        self.ports.entry(port).or_default()
    }

    /// Makes room for one entry: removes the least recently used entry of a port with most entries.
    /// Does nothing while there is room.
    fn make_room(&mut self) {
        if self.entries.len() < self.capacity {
            return;
        }
        let fullest = self.by_count.fullest().and_then(|port| self.ports.get(&port));
        if let Some(victim) = fullest.and_then(|by_use| by_use.values().next().copied()) {
            self.remove(&victim);
            self.stats.evicted += 1;
        }
    }

    /// Removes learned entries beyond the capacity, the least recently used first, whatever their
    /// port. Returns their number.
    fn shrink(&mut self) -> usize {
        let excess = self.entries.len().saturating_sub(self.capacity);
        if excess == 0 {
            return 0;
        }
        let learned = self.entries.iter().filter(|(_, entry)| entry.seen.is_some());
        let mut gone: Vec<(u64, Address)> =
            learned.map(|(address, entry)| (entry.turn, *address)).collect();
        gone.sort_unstable();
        gone.truncate(excess);
        for (_, address) in &gone {
            self.remove(address);
        }
        self.stats.expired += gone.len() as u64;
        gone.len()
    }
}

impl MacTable {
    /// Returns an empty table for the bridge at `bridge`, with OVS's default capacity and age.
    pub fn new(bridge: BridgeIndex) -> MacTable {
        MacTable {
            bridge,
            inner: Mutex::new(Inner {
                entries: HashMap::new(),
                ports: HashMap::new(),
                by_count: PortHeap::default(),
                turn: 0,
                oldest: None,
                capacity: DEFAULT_CAPACITY,
                ageing: DEFAULT_AGEING,
                flood_vlans: Vec::new(),
                closed: HashSet::new(),
                silent: HashSet::new(),
                stale: Millis(i64::MIN),
                stale_ports: HashMap::new(),
                stats: MacStats::default(),
            }),
        }
    }

    /// Returns the index of the table's bridge.
    pub fn bridge(&self) -> BridgeIndex {
        self.bridge
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic elsewhere leaves the table whole: no operation under the lock panics half-way.
        self.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Sets capacity (entries, at least 1), age (seconds, at least 1) and the VLANs in which
    /// nothing is learned and all packets are flooded. As in OVS, learned entries beyond a smaller
    /// capacity expire, the least recently used first. Returns true when translation may depend on
    /// the change.
    pub fn configure(&self, capacity: usize, ageing: u32, mut flood_vlans: Vec<u16>) -> bool {
        flood_vlans.sort_unstable();
        flood_vlans.dedup();
        let mut inner = self.lock();
        inner.capacity = capacity.max(1);
        inner.ageing = ageing.max(1);
        let mut changed = inner.flood_vlans != flood_vlans;
        inner.flood_vlans = flood_vlans;
        let gone: Vec<Address> =
            inner.entries.keys().filter(|(vlan, _)| !inner.learns(*vlan)).copied().collect();
        for address in &gone {
            inner.remove(address);
        }
        changed |= !gone.is_empty();
        changed |= inner.shrink() > 0;
        changed
    }

    /// Enters `mac` at `port`, or renews its entry, for a packet received at `now`. Returns true
    /// when the port of `mac` has changed (megaflows must be revalidated). Multicast sources, flood
    /// VLANs and static entries change nothing. Neither does a packet that came by another port
    /// before the address was last seen, or before the port's addresses were forgotten, as
    /// statistics come late. `gratuitous_arp` locks the entry
    /// for 5 s, see `MacTable::is_locked`.
    pub fn learn(
        &self,
        vlan: u16,
        mac: [u8; 6],
        port: PortNo,
        gratuitous_arp: bool,
        now: Millis,
    ) -> bool {
        let mut inner = self.lock();
        if is_multicast(&mac) || !inner.learns(vlan) {
            return false;
        }
        if !inner.is_open(port) || inner.is_stale(port, now) {
            return false;
        }
        let address = (vlan, mac);
        let lock = if gratuitous_arp { now + GRATUITOUS_ARP_LOCK_MS } else { Millis(i64::MIN) };
        match inner.entries.get(&address).copied() {
            Some(Entry { seen: None, port: fixed, .. }) => {
                inner.stats.static_kept += u64::from(fixed != port);
                false
            }
            // As in OVS the order of use changes once a second at most, except by the lock.
            Some(Entry { seen: Some(seen), port: old, .. })
                if old == port && !gratuitous_arp && is_same_second(seen, now) =>
            {
                false
            }
            Some(Entry { seen: Some(seen), port: old, .. }) if old != port && now < seen => false,
            Some(old @ Entry { seen: Some(seen), .. }) => {
                inner.put(address, port, Some(seen.max(now)), old.locked_until.max(lock));
                let moved = old.port != port;
                inner.stats.moved += u64::from(moved);
                moved
            }
            None => {
                inner.make_room();
                inner.put(address, port, Some(now), lock);
                inner.stats.learned += 1;
                inner.shrink();
                true
            }
        }
    }

    /// Returns true when [`MacTable::learn`] would enter `mac` at `port` for a packet received now.
    /// Changes nothing.
    pub(crate) fn accepts(&self, vlan: u16, mac: [u8; 6], port: PortNo) -> bool {
        let inner = self.lock();
        !is_multicast(&mac)
            && inner.learns(vlan)
            && inner.is_open(port)
            && inner.entries.get(&(vlan, mac)).is_none_or(|p| p.seen.is_some())
    }

    /// Returns true when a gratuitous ARP for `mac` came within the last 5 s by a port outside
    /// bonds. A bond must not learn the address from a reflection of that packet.
    pub(crate) fn is_locked(&self, vlan: u16, mac: [u8; 6], now: Millis) -> bool {
        self.lock().entries.get(&(vlan, mac)).is_some_and(|p| p.locked_until > now)
    }

    /// Returns the port of `mac`, if known; `None` for multicast and in a flood VLAN.
    pub(crate) fn lookup(&self, vlan: u16, mac: [u8; 6]) -> Option<PortNo> {
        if is_multicast(&mac) {
            return None;
        }
        let inner = self.lock();
        if !inner.learns(vlan) {
            return None;
        }
        inner.entries.get(&(vlan, mac)).map(|p| p.port)
    }

    /// Makes an address static (`fdb/add`): it neither expires nor moves. A full table may evict
    /// it. For an address that is static already this renews its time of use.
    pub fn add_static(&self, vlan: u16, mac: [u8; 6], port: PortNo) -> StaticAdd {
        let address = (vlan, mac);
        let mut inner = self.lock();
        let old = inner.entries.get(&address).copied();
        if old.is_none() {
            inner.make_room();
        }
        inner.put(address, port, None, Millis(i64::MIN));
        inner.shrink();
        match old {
            None => StaticAdd::Added,
            Some(old) if old.port == port && old.seen.is_none() => StaticAdd::Unchanged,
            Some(old) => StaticAdd::Replaced { port: old.port, was_static: old.seen.is_none() },
        }
    }

    /// Removes one entry, static or not (`fdb/del`). Returns false when there was none.
    pub fn remove(&self, vlan: u16, mac: [u8; 6]) -> bool {
        self.lock().remove(&(vlan, mac)).is_some()
    }

    /// Allows addresses to be learned on a port that was added.
    pub(crate) fn open_port(&self, port: PortNo) {
        self.lock().closed.remove(&port);
    }

    /// Removes the entries of a removed port, static ones too, and allows no more of them: the last
    /// counts of the port's megaflows are credited only later. Returns the addresses of the entries.
    pub(crate) fn close_port(&self, port: PortNo) -> Vec<Address> {
        self.lock().closed.insert(port);
        self.remove_if(|_, p| p.port == port)
    }

    /// Removes all entries except static ones. Returns false when there were none.
    pub fn flush(&self) -> bool {
        !self.remove_if(|_, p| p.seen.is_some()).is_empty()
    }

    /// Removes the entries of a port that changed, static ones too. Returns false when there were
    /// none.
    pub fn flush_port(&self, port: PortNo) -> bool {
        !self.remove_if(|_, p| p.port == port).is_empty()
    }

    /// Sets the ports that the spanning tree does not let learn.
    pub(crate) fn set_silent(&self, ports: HashSet<PortNo>) {
        self.lock().silent = ports;
    }

    /// Removes the entries of `port`, static ones too; `None`: those of all ports, except static ones.
    /// Counts of packets from before `now` enter none again, although they are credited only later.
    pub(crate) fn forget(&self, port: Option<PortNo>, now: Millis) {
        let mut inner = self.lock();
        match port {
            Some(port) => _ = inner.stale_ports.insert(port, now),
            None => inner.stale = now,
        }
        drop(inner);
        match port {
            Some(port) => self.flush_port(port),
            None => self.flush(),
        };
    }

    /// Removes the addresses that were not seen for the configured age, and returns their number.
    /// Called about once a second.
    pub(crate) fn expire(&self, now: Millis) -> usize {
        if self.deadline().is_none_or(|deadline| now < deadline) {
            return 0;
        }
        let ageing = u64::from(self.lock().ageing) * 1_000;
        let n = self.remove_if(|_, p| p.seen.is_some_and(|seen| now.since(seen) >= ageing)).len();
        let mut inner = self.lock();
        inner.oldest = inner.entries.values().filter_map(|p| p.seen).min();
        inner.stats.expired += n as u64;
        n
    }

    /// Returns a time before which no entry expires; `None` when no entry can expire.
    pub(crate) fn deadline(&self) -> Option<Millis> {
        let inner = self.lock();
        inner.oldest.map(|oldest| oldest + i64::from(inner.ageing) * 1_000)
    }

    /// Removes entries, and returns their addresses.
    fn remove_if(&self, which: impl Fn(&Address, &Entry) -> bool) -> Vec<Address> {
        let mut inner = self.lock();
        let gone: Vec<Address> =
            inner.entries.iter().filter(|(a, p)| which(a, p)).map(|(a, _)| *a).collect();
        for address in &gone {
            inner.remove(address);
        }
        gone
    }

    /// Returns all entries for `fdb/show`, least recently used first. A static entry counts as used
    /// when it was added.
    pub fn entries(&self, now: Millis) -> Vec<MacEntry> {
        let inner = self.lock();
        let mut all: Vec<(&Address, &Entry)> = inner.entries.iter().collect();
        all.sort_by_key(|(_, p)| p.turn);
        all.into_iter()
            .map(|((vlan, mac), p)| MacEntry {
                port: p.port,
                vlan: *vlan,
                mac: *mac,
                age: p.seen.map(|seen| now.since(seen) / 1_000),
            })
            .collect()
    }

    /// Returns the counters, for `fdb/stats-show`.
    pub fn stats(&self) -> MacStats {
        self.lock().stats
    }

    /// Sets the counters to zero (`fdb/stats-clear`).
    pub fn clear_stats(&self) {
        self.lock().stats = MacStats::default();
    }

    /// Returns the number of entries, for `fdb/stats-show`.
    pub fn usage(&self) -> MacUsage {
        let inner = self.lock();
        let static_entries = inner.entries.values().filter(|p| p.seen.is_none()).count();
        MacUsage { entries: inner.entries.len(), capacity: inner.capacity, static_entries }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P1: PortNo = PortNo(1);
    const P2: PortNo = PortNo(2);

    fn mac(n: u16) -> [u8; 6] {
        let [a, b] = n.to_be_bytes();
        [2, 0, 0, 0, a, b]
    }

    fn table() -> MacTable {
        MacTable::new(BridgeIndex(3))
    }

    #[test]
    fn what_was_forgotten_is_not_learned_from_late_counts() {
        let t = table();
        let learn = |n, port, at| t.learn(0, mac(n), port, false, Millis(at));
        assert!(learn(1, P1, 1_000) && learn(2, P2, 1_000));
        t.forget(Some(P1), Millis(2_000));
        assert!(!learn(1, P1, 1_999), "credited late");
        assert_eq!((t.lookup(0, mac(1)), t.lookup(0, mac(2))), (None, Some(P2)));
        assert!(learn(1, P1, 2_000));
        t.forget(None, Millis(3_000));
        assert!(!learn(1, P1, 2_999) && !learn(2, P2, 2_999));
        t.set_silent([P2].into());
        assert!(learn(1, P1, 3_000) && !learn(2, P2, 3_000));
        assert!(!t.accepts(0, mac(2), P2));
        t.set_silent(HashSet::new());
        assert!(learn(2, P2, 3_000));
    }

    #[test]
    fn no_two_tables_have_the_same_hashes() {
        use std::hash::BuildHasher;
        let hash = |t: &MacTable| t.lock().entries.hasher().hash_one((1u16, mac(1)));
        assert_ne!(hash(&table()), hash(&table()));
    }

    #[test]
    fn learns_moves_and_ages_by_vlan() {
        let t = table();
        assert!(t.accepts(1, mac(1), P1));
        assert!(t.learn(1, mac(1), P1, false, Millis(10)));
        assert!(t.accepts(1, mac(1), P1));
        assert!(!t.learn(1, mac(1), P1, false, Millis(1_500)));
        assert_eq!(t.lookup(1, mac(1)), Some(P1));
        assert_eq!(t.lookup(2, mac(1)), None);
        assert!(t.learn(1, mac(1), P2, false, Millis(2_500)));
        assert_eq!(t.lookup(1, mac(1)), Some(P2));
        assert_eq!(
            t.entries(Millis(4_600)),
            [MacEntry { port: P2, vlan: 1, mac: mac(1), age: Some(2) }]
        );
        assert_eq!(t.deadline(), Some(Millis(300_010)), "a lower bound until the next expiry");
        assert_eq!(t.expire(Millis(302_499)), 0);
        assert_eq!(t.deadline(), Some(Millis(302_500)));
        assert_eq!(t.expire(Millis(302_500)), 1);
        assert_eq!(
            t.stats(),
            MacStats { learned: 1, expired: 1, evicted: 0, moved: 1, static_kept: 0 }
        );
        t.clear_stats();
        assert_eq!(t.stats(), MacStats::default());
        assert_eq!(t.bridge(), BridgeIndex(3));
    }

    #[test]
    fn late_statistics_do_not_move_an_address_back() {
        let t = table();
        t.learn(0, mac(1), P1, false, Millis(0));
        assert!(t.learn(0, mac(1), P2, false, Millis(200)));
        assert!(!t.learn(0, mac(1), P1, false, Millis(100)));
        assert_eq!(t.lookup(0, mac(1)), Some(P2));
        assert!(t.learn(0, mac(1), P1, false, Millis(201)), "there again");
    }

    #[test]
    fn never_learns_multicast_or_in_flood_vlans() {
        let t = table();
        assert!(!t.learn(0, [1, 0, 0x5e, 0, 0, 1], P1, false, Millis(1)));
        t.learn(7, mac(1), P1, false, Millis(1));
        assert!(t.configure(10, 300, vec![9, 7]));
        assert_eq!(t.lookup(7, mac(1)), None);
        assert!(!t.learn(7, mac(1), P1, false, Millis(1)));
        assert!(!t.accepts(7, mac(1), P1));
        assert!(!t.configure(10, 300, vec![7, 9]));
    }

    #[test]
    fn a_full_table_evicts_from_the_port_that_has_most() {
        let t = table();
        t.configure(5, 300, vec![]);
        t.learn(0, mac(100), P2, false, Millis(1));
        for i in 0..20 {
            t.learn(0, mac(i), P1, false, Millis(2 + i64::from(i)));
        }
        assert_eq!(t.lookup(0, mac(100)), Some(P2));
        assert_eq!(t.lookup(0, mac(15)), None);
        assert_eq!(t.lookup(0, mac(16)), Some(P1));
        assert_eq!(t.usage(), MacUsage { entries: 5, capacity: 5, static_entries: 0 });
        assert_eq!(t.stats().evicted, 16);
        assert!(t.configure(2, 300, vec![]));
        assert_eq!(t.usage().entries, 2);
        assert_eq!(t.lookup(0, mac(19)), Some(P1));
    }

    #[test]
    fn static_entries_neither_move_nor_expire() {
        let t = table();
        t.configure(2, 300, vec![]);
        assert_eq!(t.add_static(5, mac(1), P1), StaticAdd::Added);
        assert_eq!(t.add_static(5, mac(1), P1), StaticAdd::Unchanged);
        assert!(!t.learn(5, mac(1), P2, false, Millis(1)));
        assert!(!t.accepts(5, mac(1), P2));
        assert!(!t.learn(5, mac(1), P1, false, Millis(1)));
        assert_eq!(t.stats().static_kept, 1, "the packet at P2");
        t.learn(5, mac(2), P2, false, Millis(1));
        assert!(t.flush());
        assert!(!t.flush());
        assert_eq!(t.expire(Millis(1_000_000)), 0);
        assert_eq!(t.lookup(5, mac(1)), Some(P1));
        assert_eq!(t.add_static(5, mac(2), P1), StaticAdd::Added);
        assert_eq!(t.entries(Millis(9)).first().and_then(|e| e.age), None);
        assert!(t.remove(5, mac(2)));
        assert!(!t.remove(5, mac(2)));
        assert!(t.flush_port(P1));
        assert_eq!(t.usage().entries, 0);
    }

    #[test]
    fn static_entries_count_for_the_port_that_has_most() {
        let t = table();
        t.configure(5, 300, vec![]);
        t.learn(0, mac(2), P1, false, Millis(1));
        for i in 0..2 {
            t.add_static(0, mac(i), P1);
        }
        t.learn(0, mac(3), P2, false, Millis(2));
        t.learn(0, mac(4), P2, false, Millis(3));
        t.learn(0, mac(5), P2, false, Millis(4));
        assert_eq!(t.lookup(0, mac(2)), None, "P1 has three entries, P2 has two");
        assert_eq!(t.usage(), MacUsage { entries: 5, capacity: 5, static_entries: 2 });
    }

    #[test]
    fn a_full_table_evicts_static_entries() {
        let t = table();
        t.configure(3, 300, vec![]);
        for i in 0..3 {
            assert_eq!(t.add_static(0, mac(i), P1), StaticAdd::Added);
        }
        // Packets from a static address do not renew its use.
        assert!(!t.learn(0, mac(0), P1, false, Millis(5_000)));
        assert!(t.learn(0, mac(3), P2, false, Millis(6_000)));
        assert_eq!(t.lookup(0, mac(0)), None);
        assert_eq!(t.add_static(0, mac(4), P1), StaticAdd::Added);
        assert_eq!(t.lookup(0, mac(1)), None);
        assert_eq!(t.usage(), MacUsage { entries: 3, capacity: 3, static_entries: 2 });
        assert_eq!(t.stats().evicted, 2);
        // An evicted address can be learned elsewhere.
        assert!(t.learn(0, mac(0), P2, false, Millis(7_000)));
        assert_eq!((t.lookup(0, mac(2)), t.lookup(0, mac(0))), (None, Some(P2)));
    }

    #[test]
    fn a_static_entry_that_is_added_again_is_used_again() {
        let t = table();
        t.configure(2, 300, vec![]);
        t.add_static(0, mac(0), P1);
        t.add_static(0, mac(1), P1);
        assert_eq!(t.add_static(0, mac(0), P1), StaticAdd::Unchanged);
        t.learn(0, mac(2), P2, false, Millis(1));
        assert_eq!((t.lookup(0, mac(0)), t.lookup(0, mac(1))), (Some(P1), None));
    }

    /// The numbers are those of Open vSwitch 3.1.
    #[test]
    fn a_smaller_table_keeps_static_entries_and_the_addresses_used_last() {
        let t = table();
        t.configure(12, 300, vec![]);
        for i in 0..12 {
            t.add_static(0, mac(i), P1);
        }
        assert!(!t.configure(10, 300, vec![]), "only learned entries expire");
        assert_eq!(t.usage(), MacUsage { entries: 12, capacity: 10, static_entries: 12 });
        // An eviction makes room for one entry, and there is still one too many.
        assert!(t.learn(0, mac(20), P2, false, Millis(1)));
        assert_eq!((t.lookup(0, mac(0)), t.lookup(0, mac(20))), (None, None));
        assert_eq!(
            t.stats(),
            MacStats { learned: 1, expired: 1, evicted: 1, moved: 0, static_kept: 0 }
        );
        t.add_static(0, mac(12), P2);
        assert_eq!(t.usage(), MacUsage { entries: 11, capacity: 10, static_entries: 11 });
        assert_eq!(t.stats().evicted, 2);

        let t = table();
        t.add_static(0, mac(0), P2);
        for i in 1..4 {
            t.learn(0, mac(i), P1, false, Millis(i.into()));
        }
        assert!(t.configure(2, 300, vec![]));
        let left: Vec<_> = t.entries(Millis(3)).iter().map(|e| e.mac).collect();
        assert_eq!(left, [mac(0), mac(3)]);
    }

    /// The victims are those of Open vSwitch 3.1.
    #[test]
    fn ports_with_equally_many_addresses_take_turns() {
        let t = table();
        t.configure(12, 300, vec![]);
        for i in 0..6 {
            t.learn(0, mac(i), P1, false, Millis(1));
        }
        for i in 10..16 {
            t.learn(0, mac(i), P2, false, Millis(1));
        }
        for (new, victim) in [(20, 0), (21, 10), (22, 11)] {
            assert!(t.lookup(0, mac(victim)).is_some());
            t.learn(0, mac(new), PortNo(3), false, Millis(2));
            assert_eq!(t.lookup(0, mac(victim)), None, "{new}");
        }
    }

    #[test]
    fn an_entry_that_becomes_static_says_what_it_was() {
        let t = table();
        t.learn(0, mac(1), P1, false, Millis(1));
        t.learn(0, mac(2), P1, false, Millis(2));
        let replaced = |port, was_static| StaticAdd::Replaced { port, was_static };
        assert_eq!(t.add_static(0, mac(1), P1), replaced(P1, false));
        assert_eq!(t.add_static(0, mac(1), P2), replaced(P1, true));
        let order: Vec<_> = t.entries(Millis(3)).iter().map(|e| e.mac).collect();
        assert_eq!(order, [mac(2), mac(1)]);
        assert!(t.flush_port(P2));
        assert!(t.flush_port(P1));
        assert_eq!(t.usage().entries, 0);
    }

    #[test]
    fn nothing_is_learned_on_a_port_that_is_closed() {
        let t = table();
        assert!(t.learn(0, mac(1), P1, false, Millis(1)));
        t.close_port(P1);
        assert!(!t.accepts(0, mac(1), P1));
        assert!(!t.learn(0, mac(1), P1, false, Millis(2)));
        assert_eq!(t.lookup(0, mac(1)), None);
        assert!(t.learn(0, mac(1), P2, false, Millis(3)));
        t.open_port(P1);
        assert!(t.learn(0, mac(1), P1, false, Millis(4)));
    }

    #[test]
    fn a_gratuitous_arp_locks_for_five_seconds() {
        let t = table();
        t.learn(0, mac(1), P1, true, Millis(0));
        assert!(t.is_locked(0, mac(1), Millis(4_999)));
        t.learn(0, mac(1), P1, false, Millis(100));
        assert!(t.is_locked(0, mac(1), Millis(4_999)));
        assert!(!t.is_locked(0, mac(1), Millis(5_000)));
    }
}
