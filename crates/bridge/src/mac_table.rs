// SPDX-License-Identifier: Apache-2.0
//! Learned MAC addresses of one bridge.
//!
//! # What it is
//! A map from (VLAN, MAC) to the OpenFlow port that the address was last seen on, bounded in
//! size and age. NORMAL looks destinations up in it; [`crate::effect::apply`] teaches it
//! sources, in the upcall and from the revalidator's statistics, so that an address stays as
//! long as its traffic flows in the datapath.
//!
//! # Invariants
//! - Never more than the capacity. When full, a new address takes the place of the least
//!   recently used one *of the port that has most*, static entries counted, so one port with
//!   random sources cannot push the others out. Static entries themselves stay (OVS may evict
//!   them).
//! - Translation depends on nothing in here but (VLAN, MAC) → port; [`MacTable::learn`] and
//!   the other writers say when that changed, and the caller then revalidates.
//! - A lookup does not look at the clock. An entry that is past its age counts until
//!   [`MacTable::expire`] takes it, as in OVS: errs on the side of forwarding to one port.
//!
//! Any thread; every call takes one short lock, `expire`, `flush` and `entries` a longer one.

use crate::ids::BridgeIndex;
use clock::Millis;
use hashbrown::{HashMap, HashSet};
use openflow::PortNo;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

/// Default number of addresses (`other_config:mac-table-size`).
pub(crate) const DEFAULT_CAPACITY: usize = 8192;
/// Default age in seconds (`other_config:mac-aging-time`).
pub(crate) const DEFAULT_AGEING: u32 = 300;
/// How long a gratuitous ARP locks an entry against reflections over a bond, milliseconds.
const GRATUITOUS_ARP_LOCK: i64 = 5_000;

type Address = (u16, [u8; 6]);

#[derive(Clone, Copy, Debug)]
struct Place {
    port: PortNo,
    /// Key in [`OnPort::by_use`] of the port: unique and growing.
    turn: u64,
    /// When last seen; `None` is static.
    seen: Option<Millis>,
    locked_until: Millis,
}

/// The entries of one port.
#[derive(Debug, Default)]
struct OnPort {
    /// Learned addresses, least recently used first.
    by_use: BTreeMap<u64, Address>,
    /// The number of static entries.
    statics: usize,
}

impl OnPort {
    fn len(&self) -> usize {
        self.by_use.len() + self.statics
    }
}

#[derive(Debug)]
struct Inner {
    entries: HashMap<Address, Place>,
    /// Ports that have entries.
    ports: HashMap<PortNo, OnPort>,
    turn: u64,
    /// No learned address was last seen before; `None` when there is none.
    oldest: Option<Millis>,
    capacity: usize,
    ageing: u32,
    flood_vlans: Vec<u16>,
    /// Ports that went away.
    closed: HashSet<PortNo>,
    stats: MacStats,
}

/// What happened to a MAC table since it was made or its counters were cleared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MacStats {
    /// Addresses learned.
    pub learned: u64,
    /// Addresses that were not seen for too long.
    pub expired: u64,
    /// Addresses that made room for others.
    pub evicted: u64,
    /// Addresses that came from another port than before.
    pub moved: u64,
}

/// How full a MAC table is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MacUsage {
    /// Addresses in it.
    pub entries: usize,
    /// At most so many.
    pub capacity: usize,
    /// Static ones among `entries`.
    pub static_entries: usize,
}

/// One line of `fdb/show`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MacEntry {
    /// Where the address is.
    pub port: PortNo,
    /// VLAN, 0 for none.
    pub vlan: u16,
    /// Address.
    pub mac: [u8; 6],
    /// Seconds since it was last seen; `None` is static.
    pub age: Option<u64>,
}

/// Outcome of [`MacTable::add_static`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StaticAdd {
    /// The address was not in the table.
    Added,
    /// The address was in the table otherwise.
    Replaced {
        /// Its port until now.
        port: PortNo,
        /// The replaced entry was static, too.
        was_static: bool,
    },
    /// The table had the entry.
    Unchanged,
    /// Nothing changed: the table is full of static entries.
    Full,
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

    fn unlink(&mut self, place: &Place) {
        let Some(on_port) = self.ports.get_mut(&place.port) else { return };
        match place.seen {
            Some(_) => drop(on_port.by_use.remove(&place.turn)),
            None => on_port.statics = on_port.statics.saturating_sub(1),
        }
        if on_port.len() == 0 {
            self.ports.remove(&place.port);
        }
    }

    fn remove(&mut self, address: &Address) -> Option<Place> {
        let place = self.entries.remove(address)?;
        self.unlink(&place);
        Some(place)
    }

    fn put(&mut self, address: Address, port: PortNo, seen: Option<Millis>, locked_until: Millis) {
        self.turn += 1;
        let place = Place { port, turn: self.turn, seen, locked_until };
        let on_port = self.ports.entry(port).or_default();
        match seen {
            Some(seen) => {
                self.oldest = Some(self.oldest.map_or(seen, |oldest| oldest.min(seen)));
                on_port.by_use.insert(place.turn, address);
            }
            None => on_port.statics += 1,
        }
        self.entries.insert(address, place);
    }

    /// Removes the least recently used learned entry of the port with most entries (the lowest
    /// such port). Returns false when all entries are static.
    fn evict(&mut self) -> bool {
        let learned = self.ports.iter().filter(|(_, on_port)| !on_port.by_use.is_empty());
        let fullest = learned.max_by_key(|(port, on)| (on.len(), std::cmp::Reverse(**port)));
        let Some(victim) = fullest.and_then(|(_, on)| on.by_use.values().next().copied()) else {
            return false;
        };
        self.remove(&victim);
        self.stats.evicted += 1;
        true
    }
}

impl MacTable {
    /// An empty table for the bridge at `bridge`, with OVS's default capacity and age.
    pub fn new(bridge: BridgeIndex) -> MacTable {
        MacTable {
            bridge,
            inner: Mutex::new(Inner {
                entries: HashMap::new(),
                ports: HashMap::new(),
                turn: 0,
                oldest: None,
                capacity: DEFAULT_CAPACITY,
                ageing: DEFAULT_AGEING,
                flood_vlans: Vec::new(),
                closed: HashSet::new(),
                stats: MacStats::default(),
            }),
        }
    }

    /// Which bridge's.
    pub(crate) fn bridge(&self) -> BridgeIndex {
        self.bridge
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic elsewhere leaves at worst a list entry without its place, which eviction skips.
        self.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Sets capacity (entries, at least 1), age (seconds, at least 1) and the VLANs in which
    /// nothing is learned and all is flooded. True when something that translation may depend
    /// on is gone.
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
        while inner.entries.len() > inner.capacity && inner.evict() {
            changed = true;
        }
        changed
    }

    /// Learns or refreshes; true when where `mac` is has changed (megaflows must be
    /// revalidated). Multicast sources, flood VLANs and static entries change nothing, nor does
    /// what came by another port before the address was last seen: statistics come late.
    /// `gratuitous_arp` locks the entry for 5 s, see [`MacTable::is_locked`].
    pub fn learn(
        &self,
        vlan: u16,
        mac: [u8; 6],
        port: PortNo,
        gratuitous_arp: bool,
        now: Millis,
    ) -> bool {
        let mut inner = self.lock();
        if is_multicast(&mac) || !inner.learns(vlan) || inner.closed.contains(&port) {
            return false;
        }
        let address = (vlan, mac);
        let lock = if gratuitous_arp { now + GRATUITOUS_ARP_LOCK } else { Millis(i64::MIN) };
        match inner.entries.get(&address).copied() {
            Some(Place { seen: None, .. }) => false,
            // Within a second nothing is new, but for the lock.
            Some(Place { seen: Some(seen), port: old, .. })
                if old == port && !gratuitous_arp && is_same_second(seen, now) =>
            {
                false
            }
            Some(Place { seen: Some(seen), port: old, .. }) if old != port && now < seen => false,
            Some(old @ Place { seen: Some(seen), .. }) => {
                inner.unlink(&old);
                inner.put(address, port, Some(seen.max(now)), old.locked_until.max(lock));
                let moved = old.port != port;
                inner.stats.moved += u64::from(moved);
                moved
            }
            None => {
                while inner.entries.len() >= inner.capacity {
                    if !inner.evict() {
                        return false; // full of static entries
                    }
                }
                inner.put(address, port, Some(now), lock);
                inner.stats.learned += 1;
                true
            }
        }
    }

    /// True when the table takes it that `mac` is at `port`, as a packet shows: behind
    /// [`MacTable::learn`] it is there. Changes nothing.
    pub(crate) fn accepts(&self, vlan: u16, mac: [u8; 6], port: PortNo) -> bool {
        let inner = self.lock();
        !is_multicast(&mac)
            && inner.learns(vlan)
            && !inner.closed.contains(&port)
            && inner.entries.get(&(vlan, mac)).is_none_or(|p| p.seen.is_some())
    }

    /// A gratuitous ARP for `mac` came within the last 5 s by another port than a bond; a bond
    /// then must not learn it from its reflection.
    pub(crate) fn is_locked(&self, vlan: u16, mac: [u8; 6], now: Millis) -> bool {
        self.lock().entries.get(&(vlan, mac)).is_some_and(|p| p.locked_until > now)
    }

    /// Where `mac` is, if known. Never for multicast or in a flood VLAN.
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

    /// Makes an address static (`fdb/add`): it is never aged, moved or evicted.
    pub fn add_static(&self, vlan: u16, mac: [u8; 6], port: PortNo) -> StaticAdd {
        let address = (vlan, mac);
        let mut inner = self.lock();
        let old = inner.entries.get(&address).copied();
        if old.is_some_and(|p| p.port == port && p.seen.is_none()) {
            return StaticAdd::Unchanged;
        }
        while old.is_none() && inner.entries.len() >= inner.capacity {
            if !inner.evict() {
                return StaticAdd::Full;
            }
        }
        inner.remove(&address);
        inner.put(address, port, None, Millis(i64::MIN));
        old.map_or(StaticAdd::Added, |old| StaticAdd::Replaced {
            port: old.port,
            was_static: old.seen.is_none(),
        })
    }

    /// `fdb/del`: removes one entry, static or not. True when it was there.
    pub fn remove(&self, vlan: u16, mac: [u8; 6]) -> bool {
        self.lock().remove(&(vlan, mac)).is_some()
    }

    /// A port is there (again): addresses may be learned on it.
    pub(crate) fn open_port(&self, port: PortNo) {
        self.lock().closed.remove(&port);
    }

    /// A port went away: its entries go, static ones too, and none comes any more, for what its
    /// megaflows counted last is credited only later.
    pub(crate) fn close_port(&self, port: PortNo) {
        self.lock().closed.insert(port);
        self.flush_port(port);
    }

    /// Removes all entries but static ones. True when there were any.
    pub fn flush(&self) -> bool {
        self.remove_if(|_, p| p.seen.is_some()) > 0
    }

    /// Removes the entries of a port that changed, static ones too.
    pub fn flush_port(&self, port: PortNo) -> bool {
        self.remove_if(|_, p| p.port == port) > 0
    }

    /// Removes what was not seen for longer than the age; how many. Called about once a second.
    pub(crate) fn expire(&self, now: Millis) -> usize {
        if self.deadline().is_none_or(|deadline| now < deadline) {
            return 0;
        }
        let ageing = u64::from(self.lock().ageing) * 1_000;
        let n = self.remove_if(|_, p| p.seen.is_some_and(|seen| now.since(seen) >= ageing));
        let mut inner = self.lock();
        inner.oldest = inner.entries.values().filter_map(|p| p.seen).min();
        inner.stats.expired += n as u64;
        n
    }

    /// Before this time nothing expires; `None` when nothing will.
    pub(crate) fn deadline(&self) -> Option<Millis> {
        let inner = self.lock();
        inner.oldest.map(|oldest| oldest + i64::from(inner.ageing) * 1_000)
    }

    fn remove_if(&self, which: impl Fn(&Address, &Place) -> bool) -> usize {
        let mut inner = self.lock();
        let gone: Vec<Address> =
            inner.entries.iter().filter(|(a, p)| which(a, p)).map(|(a, _)| *a).collect();
        for address in &gone {
            inner.remove(address);
        }
        gone.len()
    }

    /// Returns all entries for `fdb/show`, least recently used first; a static one stands where
    /// it was made.
    pub fn entries(&self, now: Millis) -> Vec<MacEntry> {
        let inner = self.lock();
        let mut all: Vec<(&Address, &Place)> = inner.entries.iter().collect();
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

    /// What happened, for `fdb/stats-show`.
    pub fn stats(&self) -> MacStats {
        self.lock().stats
    }

    /// `fdb/stats-clear`.
    pub fn clear_stats(&self) {
        self.lock().stats = MacStats::default();
    }

    /// How full it is, for `fdb/stats-show`.
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
        assert_eq!(t.deadline(), Some(Millis(300_010)), "the second look has not been seen");
        assert_eq!(t.expire(Millis(302_499)), 0);
        assert_eq!(t.deadline(), Some(Millis(302_500)));
        assert_eq!(t.expire(Millis(302_500)), 1);
        assert_eq!(t.stats(), MacStats { learned: 1, expired: 1, evicted: 0, moved: 1 });
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
    fn static_entries_stay() {
        let t = table();
        t.configure(2, 300, vec![]);
        assert_eq!(t.add_static(5, mac(1), P1), StaticAdd::Added);
        assert_eq!(t.add_static(5, mac(1), P1), StaticAdd::Unchanged);
        assert!(!t.learn(5, mac(1), P2, false, Millis(1)));
        assert!(!t.accepts(5, mac(1), P2));
        t.learn(5, mac(2), P2, false, Millis(1));
        assert!(t.flush());
        assert!(!t.flush());
        assert_eq!(t.expire(Millis(1_000_000)), 0);
        assert_eq!(t.lookup(5, mac(1)), Some(P1));
        assert_eq!(t.add_static(5, mac(2), P1), StaticAdd::Added);
        assert_eq!(t.add_static(5, mac(3), P1), StaticAdd::Full);
        assert!(!t.learn(5, mac(3), P1, false, Millis(1)));
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
        for i in 0..2 {
            t.add_static(0, mac(i), P1);
        }
        t.learn(0, mac(2), P1, false, Millis(1));
        t.learn(0, mac(3), P2, false, Millis(2));
        t.learn(0, mac(4), P2, false, Millis(3));
        t.learn(0, mac(5), P2, false, Millis(4));
        assert_eq!(t.lookup(0, mac(2)), None, "P1 has three entries, P2 has two");
        // P1 has static ones only.
        t.learn(0, mac(6), P2, false, Millis(5));
        assert_eq!(t.lookup(0, mac(3)), None);
        assert_eq!(t.usage(), MacUsage { entries: 5, capacity: 5, static_entries: 2 });
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
