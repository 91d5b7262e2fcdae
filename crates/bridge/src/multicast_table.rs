// SPDX-License-Identifier: Apache-2.0
//! Multicast groups and routers of one bridge, as snooping has learned them (RFC 4541).
//!
//! # Task
//! The table maps (VLAN, group) to the ports with members, and holds the ports of multicast routers.
//! NORMAL reads it for each multicast packet. [`MulticastTable::learn`] enters the consequences of
//! one IGMP or MLD message.
//!
//! # Invariants
//! - Translation depends on nothing in the table except the members and routers. Each writer returns
//!   whether these changed, and the caller then revalidates.
//! - The number of groups is bounded: a new group takes the place of the one that was joined least
//!   recently.
//! - A bond's members count as its first port, as in the MAC table.
//!
//! A membership that is past its age counts until `MulticastTable::expire` removes it. A group is
//! removed with its last member.
//!
//! Any thread may call. Every call takes one short lock, `expire`, `flush` and the lists a longer
//! one.

use crate::ids::BridgeIndex;
use clock::Millis;
use hashbrown::HashMap;
use openflow::PortNo;
pub use protocols::membership::GroupProtocol;
use protocols::membership::Membership;
use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Default capacity, in groups (`other_config:mcast-snooping-table-size`).
const DEFAULT_CAPACITY: usize = 2048;
/// Default age in seconds after which a membership expires
/// (`other_config:mcast-snooping-aging-time`).
const DEFAULT_AGEING: u32 = 300;
/// Seconds after a query for which its port leads to a router.
const ROUTER_AGEING: i64 = 180;

/// Most ports of routers, each in one VLAN. Further ones are not learned: senders on a trunk choose the
/// VLAN.
const MOST_ROUTERS: usize = 4096;

type GroupId = (u16, Ipv6Addr);

/// One line of `mdb/show`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MulticastEntry {
    /// OpenFlow port.
    pub port: PortNo,
    /// VLAN; 0 for none.
    pub vlan: u16,
    /// The group, IPv4 in the mapped form; `None` for a router.
    pub group: Option<Ipv6Addr>,
    /// Protocol of the last report about the group; `None` for a router.
    pub protocol: Option<GroupProtocol>,
    /// Seconds since the last report or query.
    pub age: i64,
}

/// Settings of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MulticastSettings {
    /// Highest number of groups, at least 1.
    pub capacity: usize,
    /// Seconds after which a membership expires.
    pub ageing: u32,
}

impl Default for MulticastSettings {
    fn default() -> MulticastSettings {
        MulticastSettings { capacity: DEFAULT_CAPACITY, ageing: DEFAULT_AGEING }
    }
}

/// Special roles of ports, from the database, which decide what is learned on them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnoopingRole {
    /// The port gets all multicast packets (`mcast-snooping-flood`): nothing is learned on it.
    pub floods: bool,
    /// The port gets all reports (`mcast-snooping-flood-reports`): one host's leave is ignored.
    pub gets_reports: bool,
}

#[derive(Debug)]
struct Group {
    /// Protocol of the last report.
    protocol: GroupProtocol,
    /// Position in the order of joins.
    turn: u64,
    /// Ports with members and the second at which each expires, the one joined last at the end.
    members: Vec<(PortNo, i64)>,
}

#[derive(Debug, Default)]
struct Inner {
    settings: MulticastSettings,
    groups: HashMap<GroupId, Group>,
    /// Groups by [`Group::turn`].
    by_turn: BTreeMap<u64, GroupId>,
    turn: u64,
    /// Ports of routers and the second at which each expires, the one that asked last at the end.
    routers: Vec<(PortNo, u16, i64)>,
    /// Memberships that were learned, or expired, for the coverage counters.
    learned: u64,
    expired: u64,
}

/// Multicast groups and routers of one bridge.
#[derive(Debug)]
pub struct MulticastTable {
    bridge: BridgeIndex,
    inner: Mutex<Inner>,
}

fn second(now: Millis) -> i64 {
    now.0.div_euclid(1000)
}

impl Inner {
    fn remove_group(&mut self, id: &GroupId) {
        if let Some(group) = self.groups.remove(id) {
            self.by_turn.remove(&group.turn);
        }
    }

    fn is_router(&self, vlan: u16, port: PortNo) -> bool {
        self.routers.iter().any(|(p, v, _)| (*p, *v) == (port, vlan))
    }

    fn oldest(&self) -> Option<GroupId> {
        self.by_turn.values().next().copied()
    }

    /// Returns true when the members changed. The port is one that does not get all packets anyway.
    fn join(&mut self, id: GroupId, protocol: GroupProtocol, port: PortNo, now: i64) -> bool {
        if !self.groups.contains_key(&id) {
            while self.groups.len() >= self.settings.capacity {
                let Some(victim) = self.oldest() else { break };
                self.remove_group(&victim);
            }
            self.learned += 1;
        }
        let expiry = now + i64::from(self.settings.ageing);
        self.turn += 1;
        let empty = Group { protocol, turn: self.turn, members: Vec::new() };
        let group = self.groups.entry(id).or_insert(empty);
        group.protocol = protocol;
        self.by_turn.remove(&group.turn);
        group.turn = self.turn;
        let before = group.members.len();
        group.members.retain(|(p, _)| *p != port);
        let is_new = group.members.len() == before;
        group.members.push((port, expiry));
        self.by_turn.insert(self.turn, id);
        is_new
    }

    /// Returns true when the members changed.
    fn leave(&mut self, id: &GroupId, port: PortNo, role: SnoopingRole) -> bool {
        // More hosts may be past such a port: their memberships expire by themselves.
        if role.gets_reports {
            return false;
        }
        let Some(group) = self.groups.get_mut(id) else { return false };
        let before = group.members.len();
        group.members.retain(|(p, _)| *p != port);
        let is_member = group.members.len() != before;
        if group.members.is_empty() {
            self.remove_group(id);
        }
        is_member
    }

    /// Returns true when the routers changed.
    fn query(&mut self, vlan: u16, port: PortNo, role: SnoopingRole, now: i64) -> bool {
        if role.floods {
            return false;
        }
        let before = self.routers.len();
        self.routers.retain(|(p, v, _)| (*p, *v) != (port, vlan));
        let is_new = self.routers.len() == before;
        if is_new && before >= MOST_ROUTERS {
            return false;
        }
        self.routers.push((port, vlan, now + ROUTER_AGEING));
        is_new
    }
}

impl MulticastTable {
    /// Returns an empty table for the bridge at `bridge`.
    pub fn new(bridge: BridgeIndex) -> MulticastTable {
        MulticastTable { bridge, inner: Mutex::default() }
    }

    /// Returns the index of the table's bridge.
    pub fn bridge(&self) -> BridgeIndex {
        self.bridge
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic elsewhere leaves the table whole: no operation under the lock panics half-way.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts settings into force. Members get the time that the new age gives them. Returns true when
    /// members changed.
    pub fn configure(&self, settings: &MulticastSettings) -> bool {
        let mut inner = self.lock();
        let longer = i64::from(settings.ageing) - i64::from(inner.settings.ageing);
        inner.settings = settings.clone();
        for group in inner.groups.values_mut() {
            group.members.iter_mut().for_each(|(_, expiry)| *expiry += longer);
        }
        let mut changed = false;
        while inner.groups.len() > inner.settings.capacity.max(1) {
            let Some(victim) = inner.oldest() else { break };
            inner.remove_group(&victim);
            changed = true;
        }
        changed
    }

    /// Enters the consequences of a message that came by `port`. Returns true when members or
    /// routers changed.
    pub fn learn(
        &self,
        vlan: u16,
        port: PortNo,
        role: SnoopingRole,
        messages: &[Membership],
        now: Millis,
    ) -> bool {
        let now = second(now);
        let mut inner = self.lock();
        let gets_all = role.floods || inner.is_router(vlan, port);
        let mut changed = false;
        for message in messages {
            changed |= match message {
                Membership::Join(..) if gets_all => false,
                Membership::Join(group, protocol) => {
                    inner.join((vlan, *group), *protocol, port, now)
                }
                Membership::Leave(group) => inner.leave(&(vlan, *group), port, role),
                Membership::Query => inner.query(vlan, port, role, now),
            };
        }
        changed
    }

    /// Returns how many of the messages would add a group or a router, or remove a member. A message
    /// that is repeated counts once.
    pub(crate) fn count_news(
        &self,
        vlan: u16,
        port: PortNo,
        role: SnoopingRole,
        messages: &[Membership],
    ) -> usize {
        let inner = self.lock();
        let is_router = inner.is_router(vlan, port);
        let is_new = |message: &&Membership| match message {
            Membership::Join(group, _) => {
                !role.floods && !is_router && !inner.groups.contains_key(&(vlan, *group))
            }
            Membership::Leave(group) => {
                let group = inner.groups.get(&(vlan, *group)).filter(|_| !role.gets_reports);
                group.is_some_and(|group| group.members.iter().any(|(p, _)| *p == port))
            }
            Membership::Query => !role.floods && !is_router,
        };
        let news = messages.iter().enumerate().filter(|(_, message)| is_new(message));
        news.filter(|(at, message)| !messages.iter().take(*at).any(|m| m == *message)).count()
    }

    /// Returns the ports with members of a group; `None` when the group is not known.
    pub(crate) fn members(&self, vlan: u16, group: Ipv6Addr) -> Option<Vec<PortNo>> {
        let inner = self.lock();
        let group = inner.groups.get(&(vlan, group))?;
        Some(group.members.iter().map(|(port, _)| *port).collect())
    }

    /// Returns the ports of routers and their VLANs.
    pub(crate) fn routers(&self) -> Vec<(PortNo, u16)> {
        self.lock().routers.iter().map(|(port, vlan, _)| (*port, *vlan)).collect()
    }

    /// Removes everything. Returns false when there was nothing.
    pub fn flush(&self) -> bool {
        let mut inner = self.lock();
        let had = !inner.groups.is_empty() || !inner.routers.is_empty();
        inner.groups.clear();
        inner.by_turn.clear();
        inner.routers.clear();
        had
    }

    /// Removes memberships and routers at a port. Returns false when there were none.
    pub fn flush_port(&self, port: PortNo) -> bool {
        let mut inner = self.lock();
        let mut changed = false;
        let mut empty = Vec::new();
        for (id, group) in &mut inner.groups {
            let before = group.members.len();
            group.members.retain(|(p, _)| *p != port);
            changed |= group.members.len() != before;
            if group.members.is_empty() {
                empty.push(*id);
            }
        }
        for id in empty {
            inner.remove_group(&id);
        }
        let before = inner.routers.len();
        inner.routers.retain(|(p, _, _)| *p != port);
        changed | (inner.routers.len() != before)
    }

    /// Removes what is past its age. Returns true when members or routers changed. Called about once
    /// a second.
    pub(crate) fn expire(&self, now: Millis) -> bool {
        let now = second(now);
        let mut inner = self.lock();
        let mut expired = 0;
        while let Some(id) = inner.oldest() {
            let Some(group) = inner.groups.get_mut(&id) else { break };
            let before = group.members.len();
            group.members.retain(|(_, expiry)| *expiry > now);
            let gone = before - group.members.len();
            expired += gone as u64;
            if group.members.is_empty() {
                inner.remove_group(&id);
                expired += 1;
            } else if gone == 0 {
                break;
            }
        }
        let before = inner.routers.len();
        inner.routers.retain(|(_, _, expiry)| *expiry > now);
        expired += (before - inner.routers.len()) as u64;
        inner.expired += expired;
        expired > 0
    }

    /// Returns a time before which nothing expires; `None` when nothing can expire.
    pub(crate) fn deadline(&self) -> Option<Millis> {
        let inner = self.lock();
        let group = inner.oldest().and_then(|id| inner.groups.get(&id));
        let member = group.and_then(|g| g.members.first()).map(|(_, expiry)| *expiry);
        let router = inner.routers.first().map(|(_, _, expiry)| *expiry);
        member.into_iter().chain(router).min().map(|second| Millis(second * 1000))
    }

    /// Returns all memberships, the group joined least recently first, then the routers, for
    /// `mdb/show`.
    pub fn entries(&self, now: Millis) -> Vec<MulticastEntry> {
        let now = second(now);
        let inner = self.lock();
        let ageing = i64::from(inner.settings.ageing);
        let groups = inner.by_turn.values().filter_map(|id| Some((*id, inner.groups.get(id)?)));
        let members = groups.flat_map(|((vlan, group), g)| {
            let entry = move |(port, expiry): &(PortNo, i64)| {
                let age = ageing - (expiry - now);
                let protocol = Some(g.protocol);
                MulticastEntry { port: *port, vlan, group: Some(group), protocol, age }
            };
            g.members.iter().map(entry)
        });
        let router = |(port, vlan, expiry): &(PortNo, u16, i64)| {
            let age = ROUTER_AGEING - (expiry - now);
            MulticastEntry { port: *port, vlan: *vlan, group: None, protocol: None, age }
        };
        members.chain(inner.routers.iter().map(router)).collect()
    }

    /// Returns the numbers of groups learned and of memberships expired since the start.
    pub fn counters(&self) -> (u64, u64) {
        let inner = self.lock();
        (inner.learned, inner.expired)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use GroupProtocol::{MldV1, MldV2};

    const P1: PortNo = PortNo(1);
    const P2: PortNo = PortNo(2);
    const PLAIN: SnoopingRole = SnoopingRole { floods: false, gets_reports: false };

    fn group(n: u16) -> Ipv6Addr {
        Ipv6Addr::new(0xff05, 0, 0, 0, 0, 0, 0, n)
    }

    fn table() -> MulticastTable {
        MulticastTable::new(BridgeIndex(0))
    }

    fn join(t: &MulticastTable, n: u16, port: PortNo, at: i64) -> bool {
        t.learn(7, port, PLAIN, &[Membership::Join(group(n), MldV1)], Millis(at))
    }

    #[test]
    fn hosts_join_and_leave() {
        let t = table();
        assert_eq!(t.members(7, group(1)), None);
        assert!(join(&t, 1, P1, 0));
        assert!(!join(&t, 1, P1, 1000), "a member already");
        assert!(join(&t, 1, P2, 1000));
        assert_eq!(t.members(7, group(1)), Some(vec![P1, P2]));
        assert_eq!(t.members(8, group(1)), None, "another VLAN");
        let leave = |role| t.learn(7, P1, role, &[Membership::Leave(group(1))], Millis(0));
        assert!(!leave(SnoopingRole { gets_reports: true, ..PLAIN }));
        assert!(leave(PLAIN));
        assert!(!leave(PLAIN));
        assert_eq!(t.members(7, group(1)), Some(vec![P2]));
        assert!(t.flush() && !t.flush());
        assert_eq!(t.members(7, group(1)), None);
    }

    #[test]
    fn a_repeated_message_is_no_news() {
        let t = table();
        let [one, two] = [1, 2].map(|n| Membership::Join(group(n), MldV1));
        let news = |messages: &[Membership]| t.count_news(7, P1, PLAIN, messages);
        assert_eq!(news(&[one, one]), 1);
        assert_eq!(news(&[one, two, one]), 2);
        assert!(join(&t, 1, P1, 0));
        assert_eq!(news(&[one, two]), 1);
        let leave = Membership::Leave(group(1));
        assert_eq!(news(&[leave, leave]), 1);
    }

    #[test]
    fn the_last_report_names_the_protocol() {
        let t = table();
        assert!(join(&t, 1, P1, 0));
        let join = |protocol| Membership::Join(group(1), protocol);
        assert!(t.learn(7, P2, PLAIN, &[join(MldV2), Membership::Query], Millis(0)));
        let protocols: Vec<_> = t.entries(Millis(0)).iter().map(|e| (e.port, e.protocol)).collect();
        assert_eq!(protocols, [(P1, Some(MldV2)), (P2, Some(MldV2)), (P2, None)]);
        assert!(!t.learn(7, P1, PLAIN, &[join(MldV1)], Millis(0)), "members are the same");
        assert!(t.entries(Millis(0)).iter().take(2).all(|e| e.protocol == Some(MldV1)));
    }

    #[test]
    fn routers_have_a_limit() {
        let t = table();
        let queries = |vlan: usize| {
            let [vlan, port] = [vlan % 4094, vlan / 4094].map(|n| u16::try_from(n).unwrap());
            t.learn(vlan, PortNo(port.into()), PLAIN, &[Membership::Query], Millis(0))
        };
        assert!((0..MOST_ROUTERS).all(queries));
        assert!(!queries(MOST_ROUTERS));
        assert_eq!(t.routers().len(), MOST_ROUTERS);
        assert!(!queries(0), "one of them asks again");
        assert_eq!(t.routers().len(), MOST_ROUTERS);
    }

    #[test]
    fn memberships_and_routers_expire() {
        let t = table();
        assert!(join(&t, 1, P1, 0) && join(&t, 1, P2, 10_000) && join(&t, 2, P2, 10_000));
        assert!(t.learn(7, P1, PLAIN, &[Membership::Query], Millis(5_000)));
        assert_eq!(t.deadline(), Some(Millis(185_000)));
        assert!(!t.expire(Millis(184_999)) && t.expire(Millis(185_000)));
        assert_eq!((t.routers(), t.deadline()), (vec![], Some(Millis(300_000))));
        assert!(t.expire(Millis(300_000)));
        assert_eq!(t.members(7, group(1)), Some(vec![P2]));
        assert!(t.expire(Millis(310_000)));
        assert_eq!((t.entries(Millis(0)), t.deadline()), (vec![], None));
    }

    #[test]
    fn a_full_table_forgets_the_group_joined_least_recently() {
        let t = table();
        t.configure(&MulticastSettings { capacity: 2, ageing: 300 });
        assert!(join(&t, 1, P1, 0) && join(&t, 2, P1, 0));
        join(&t, 1, P1, 0);
        join(&t, 3, P1, 0);
        assert_eq!(t.members(7, group(2)), None);
        let groups: Vec<_> = t.entries(Millis(2000)).iter().map(|e| (e.group, e.age)).collect();
        assert_eq!(groups, [(Some(group(1)), 2), (Some(group(3)), 2)]);
        assert!(t.configure(&MulticastSettings { capacity: 1, ageing: 310 }));
        assert_eq!(t.members(7, group(1)), None);
        assert_eq!(t.entries(Millis(2000)).first().map(|e| e.age), Some(2));
    }

    #[test]
    fn nothing_is_learned_where_all_packets_go() {
        let t = table();
        let floods = SnoopingRole { floods: true, ..PLAIN };
        let both = [Membership::Join(group(1), MldV1), Membership::Query];
        assert!(!t.learn(7, P1, floods, &both, Millis(0)));
        assert!(t.learn(7, P1, PLAIN, &[Membership::Query], Millis(0)));
        assert!(!join(&t, 1, P1, 0), "the port of a router");
        assert!(join(&t, 1, P2, 0));
        assert!(t.flush_port(P1) && t.flush_port(P2) && !t.flush_port(P2));
        assert_eq!(t.members(7, group(1)), None);
    }
}
