// SPDX-License-Identifier: Apache-2.0
//! The follower of the kernel's routing.
//!
//! An event about a route, rule, address, next hop or interface makes all of these stale, and they
//! are read again as a whole. The kernel does not report every consequence of an event: IPv4 routes
//! of an interface that goes down vanish without one. Neighbours are followed event by event, because
//! their events are complete.
//!
//! The dump is read as it arrives, so no call waits for the kernel. A pause after each dump bounds
//! the time that a storm of events can take.

use super::{
    RTM_DELADDR, RTM_DELNEIGH, RTM_DELNEXTHOP, RTM_DELROUTE, RTM_DELRULE, RTM_GETADDR,
    RTM_GETNEIGH, RTM_GETROUTE, RTM_GETRULE, RTM_NEWADDR, RTM_NEWNEIGH, RTM_NEWNEXTHOP,
    RTM_NEWROUTE, RTM_NEWRULE, address, neighbour, route, rule,
};
use crate::link::{self, Link, RTM_DELLINK, RTM_GETLINK, RTM_NEWLINK};
use crate::netlink::{Answer, NLM_F_DUMP, Request, Socket, answers, messages};
use crate::sys;
use packet::Mac;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use underlay::{Device, NextHop, System, SystemRoute};

// include/uapi/linux/rtnetlink.h
const RTNLGRP_LINK: libc::c_int = 1;
const RTNLGRP_NEIGH: libc::c_int = 3;
const RTNLGRP_IPV4_IFADDR: libc::c_int = 5;
const RTNLGRP_IPV4_ROUTE: libc::c_int = 7;
const RTNLGRP_IPV4_RULE: libc::c_int = 8;
const RTNLGRP_IPV6_IFADDR: libc::c_int = 9;
const RTNLGRP_IPV6_ROUTE: libc::c_int = 11;
const RTNLGRP_IPV6_RULE: libc::c_int = 19;
const RTNLGRP_NEXTHOP: libc::c_int = 32;

/// Bytes that may wait in each socket. A dump waits in the kernel; events that do not fit are lost.
const BUFFER: i32 = 1 << 20;
/// Datagrams of a dump that one call reads: a millisecond of work.
const TURN: usize = 32;
/// Shortest time between the ends of two dumps and the beginning of the next one.
const LEAST_PAUSE: Duration = Duration::from_millis(20);
/// A pause is this many times longer than the dump before it, so that dumps take at most a tenth of
/// a thread's time.
const PAUSE_FACTOR: u32 = 9;
/// The same two for [`Pace::Relaxed`].
const LEAST_RELAXED_PAUSE: Duration = Duration::from_secs(1);
const RELAXED_PAUSE_FACTOR: u32 = 99;
/// Time from a dump that failed to the next one.
const AFTER_FAILURE: Duration = Duration::from_secs(1);
/// Most changed neighbours that are kept while a dump of them is read. With more, another dump
/// follows.
const MOST_POSTPONED: usize = 16_384;

/// How soon a change that follows another one is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pace {
    /// Packets depend on routes.
    #[default]
    Prompt,
    /// Only commands show them: dumps take at most a hundredth of a thread's time, and there is one a
    /// second at most.
    Relaxed,
}

/// A change that [`RoutingMonitor::poll`] reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoutingUpdate {
    /// All routes, rules, addresses and devices. They may be the same as before.
    System(System),
    /// All neighbours: the name of the device, IP address, Ethernet address.
    Neighbours(Vec<(String, IpAddr, Mac)>),
    /// One neighbour. Without an Ethernet address, the kernel would not send to it.
    Neighbour(String, IpAddr, Option<Mac>),
}

/// A part of the kernel's state, in the order of the dumps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Links,
    Addresses,
    Rules,
    Routes,
    Neighbours,
}

/// The entries that a dump has brought so far.
#[derive(Debug, Default)]
struct Collected {
    links: BTreeMap<u32, Link>,
    addresses: Vec<address::InterfaceAddress>,
    rules: Vec<underlay::Rule>,
    routes: Vec<route::Route>,
    neighbours: Vec<neighbour::KernelNeighbour>,
    /// Changes of neighbours since the dump began, which are newer than the dump.
    postponed: HashMap<(u32, IpAddr), Option<Mac>>,
}

/// A dump that is being read.
#[derive(Debug)]
struct Dump {
    part: Part,
    sequence: u32,
    collected: Collected,
    /// The kernel's state changed while one of its parts was read.
    is_torn: bool,
    began: Instant,
}

/// Follows routing in the network namespace of the thread that created it. One thread at a time uses
/// it.
#[derive(Debug)]
pub struct RoutingMonitor {
    events: Socket,
    dumps: Socket,
    dump: Option<Dump>,
    /// Routes, rules, addresses and devices are to be read (again).
    is_stale: bool,
    /// Neighbours are to be read (again), too.
    are_neighbours_stale: bool,
    pace: Pace,
    /// No dump begins earlier, at a prompt and at a relaxed pace.
    rest: Option<[Instant; 2]>,
    /// The interfaces as the last dump has them.
    links: BTreeMap<u32, Link>,
    buffer: Vec<u8>,
    /// The last call left datagrams of a dump unread.
    has_more: bool,
    dumps_read: u64,
}

impl RoutingMonitor {
    /// Starts to follow. The first calls of [`RoutingMonitor::poll`] report the present state.
    ///
    /// # Errors
    ///
    /// No netlink socket can be created.
    pub fn new() -> io::Result<RoutingMonitor> {
        RoutingMonitor::with_buffer(BUFFER)
    }

    /// Starts to follow with `bytes` of room for events.
    pub(super) fn with_buffer(bytes: i32) -> io::Result<RoutingMonitor> {
        let events = Socket::new(0)?;
        sys::grow_buffer(events.fd(), libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, bytes);
        let groups = [
            RTNLGRP_LINK,
            RTNLGRP_NEIGH,
            RTNLGRP_IPV4_IFADDR,
            RTNLGRP_IPV4_ROUTE,
            RTNLGRP_IPV4_RULE,
            RTNLGRP_IPV6_IFADDR,
            RTNLGRP_IPV6_ROUTE,
            RTNLGRP_IPV6_RULE,
        ];
        let join = |group: libc::c_int| {
            sys::set_option(events.fd(), libc::SOL_NETLINK, libc::NETLINK_ADD_MEMBERSHIP, &group)
        };
        for group in groups {
            join(group)?;
        }
        // A kernel before 5.3 has no next hop objects, and no group for them.
        let _ = join(RTNLGRP_NEXTHOP);
        let dumps = Socket::new(0)?;
        sys::grow_buffer(dumps.fd(), libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, BUFFER);
        Ok(RoutingMonitor {
            events,
            dumps,
            dump: None,
            is_stale: true,
            are_neighbours_stale: true,
            pace: Pace::default(),
            rest: None,
            links: BTreeMap::new(),
            buffer: vec![0; 64 * 1024],
            has_more: false,
            dumps_read: 0,
        })
    }

    /// Returns the descriptors that become readable when [`RoutingMonitor::poll`] has work: events,
    /// and parts of a dump.
    pub fn poll_fds(&self) -> [BorrowedFd<'_>; 2] {
        [self.events.fd(), self.dumps.fd()]
    }

    /// Returns how long [`RoutingMonitor::poll`] has nothing to do even if no descriptor becomes
    /// readable; `None`: forever.
    pub fn pause(&self, now: Instant) -> Option<Duration> {
        let is_waiting = self.dump.is_none() && (self.is_stale || self.are_neighbours_stale);
        let rest = self.rest.map(|[prompt, relaxed]| match self.pace {
            Pace::Prompt => prompt,
            Pace::Relaxed => relaxed,
        });
        is_waiting.then(|| rest.map_or(Duration::ZERO, |t| t.saturating_duration_since(now)))
    }

    /// Sets the pace of dumps from now on; it is [`Pace::Prompt`] at first.
    pub fn set_pace(&mut self, pace: Pace) {
        self.pace = pace;
    }

    /// Returns true when the last [`RoutingMonitor::poll`] ended before it had read all of a dump that
    /// had arrived. The caller calls it again after other work.
    pub fn has_more(&self) -> bool {
        self.has_more
    }

    /// Returns the number of dumps that were read to their ends.
    pub fn dumps_read(&self) -> u64 {
        self.dumps_read
    }

    /// Reads what has arrived, and begins a dump when one is due. Never blocks. A call does a limited
    /// amount of work on a dump; see [`RoutingMonitor::has_more`].
    ///
    /// # Errors
    ///
    /// A socket is broken.
    pub fn poll(&mut self, now: Instant) -> io::Result<Vec<RoutingUpdate>> {
        let mut updates = Vec::new();
        self.read_events(&mut updates)?;
        if self.pause(now) == Some(Duration::ZERO) {
            self.begin(now)?;
        }
        self.has_more = true;
        for _ in 0..TURN {
            if !self.read_dump(&mut updates)? {
                self.has_more = false;
                break;
            }
        }
        Ok(updates)
    }

    fn read_events(&mut self, updates: &mut Vec<RoutingUpdate>) -> io::Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let result = loop {
            match self.events.receive(&mut buffer, false) {
                Ok(datagram) => {
                    for m in messages(datagram) {
                        self.event(m.kind, m.payload, updates);
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break Ok(()),
                // The events that still wait are older than the loss. Those about neighbours are
                // overtaken by the dump.
                Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => {
                    (self.is_stale, self.are_neighbours_stale) = (true, true);
                }
                Err(e) => break Err(e),
            }
        };
        self.buffer = buffer;
        result
    }

    fn event(&mut self, kind: u16, payload: &[u8], updates: &mut Vec<RoutingUpdate>) {
        match kind {
            RTM_NEWADDR | RTM_DELADDR | RTM_NEWROUTE | RTM_DELROUTE | RTM_NEWRULE | RTM_DELRULE
            | RTM_NEWNEXTHOP | RTM_DELNEXTHOP => self.is_stale = true,
            RTM_NEWLINK | RTM_DELLINK => self.link_event(kind, payload),
            RTM_NEWNEIGH | RTM_DELNEIGH => self.neighbour_event(kind, payload, updates),
            _ => {}
        }
    }

    /// Interfaces report many changes that do not matter here, such as counters.
    fn link_event(&mut self, kind: u16, payload: &[u8]) {
        // Family AF_BRIDGE describes a bridge's port, not the interface itself.
        let Some(link) = link::parse(payload).filter(|_| payload.first() == Some(&0)) else {
            return;
        };
        let before = self.links.get(&link.index);
        let is_same = match kind {
            RTM_DELLINK => before.is_none(),
            _ => before.is_some_and(|before| shown(before) == shown(&link)),
        };
        if !is_same || self.dump.is_some() {
            // Names of neighbours' devices may have changed.
            (self.is_stale, self.are_neighbours_stale) = (true, true);
        }
    }

    fn neighbour_event(&mut self, kind: u16, payload: &[u8], updates: &mut Vec<RoutingUpdate>) {
        let Some(entry) = neighbour::parse(payload) else { return };
        let mac = entry.mac.filter(|_| kind == RTM_NEWNEIGH);
        if let Some(dump) = &mut self.dump {
            if dump.collected.postponed.len() < MOST_POSTPONED {
                dump.collected.postponed.insert((entry.index, entry.address), mac);
            } else {
                self.are_neighbours_stale = true;
            }
        }
        if let Some(link) = self.links.get(&entry.index) {
            updates.push(RoutingUpdate::Neighbour(link.name.clone(), entry.address, mac));
        }
    }

    fn begin(&mut self, now: Instant) -> io::Result<()> {
        self.is_stale = false;
        let sequence = self.request(Part::Links)?;
        let collected = Collected::default();
        self.dump =
            Some(Dump { part: Part::Links, sequence, collected, is_torn: false, began: now });
        Ok(())
    }

    fn request(&mut self, part: Part) -> io::Result<u32> {
        let (kind, length) = match part {
            Part::Links => (RTM_GETLINK, 16),
            Part::Addresses => (RTM_GETADDR, 8),
            Part::Rules => (RTM_GETRULE, 12),
            Part::Routes => (RTM_GETROUTE, 12),
            Part::Neighbours => (RTM_GETNEIGH, 12),
        };
        // All families: the fixed part begins with AF_UNSPEC.
        let fixed = [0; 16];
        let fixed = fixed.get(..length).unwrap_or(&fixed);
        self.dumps.begin(Request::new(kind, NLM_F_DUMP, fixed))
    }

    /// Reads one datagram of the dump. Returns false when none has arrived.
    fn read_dump(&mut self, updates: &mut Vec<RoutingUpdate>) -> io::Result<bool> {
        let Some(dump) = &mut self.dump else { return Ok(false) };
        let datagram = match self.dumps.receive(&mut self.buffer, false) {
            Ok(datagram) => datagram,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => {
                self.begin_again_later(&e);
                return Ok(false);
            }
            Err(e) => return Err(e),
        };
        let mut end = None;
        for m in answers(datagram, dump.sequence) {
            match m {
                Answer::Item { kind, payload, is_torn } => {
                    dump.is_torn |= is_torn;
                    dump.collected.take(kind, payload);
                }
                Answer::End(outcome) => end = Some(outcome.result()),
            }
        }
        match end {
            Some(Ok(())) => self.next_part(updates)?,
            // A kernel without policy routing has no rules to report.
            Some(Err(_)) if dump.part == Part::Rules => {
                dump.collected.rules = underlay::Rule::standard();
                self.next_part(updates)?;
            }
            Some(Err(error)) => {
                self.begin_again_later(&error);
                return Ok(false);
            }
            None => {}
        }
        Ok(true)
    }

    /// Gives up a dump that failed, such as for lack of memory.
    fn begin_again_later(&mut self, error: &io::Error) {
        tracing::warn!(
            target: "route_table",
            "routes and neighbours could not be read, and will be read again: {error}"
        );
        self.dump = None;
        (self.is_stale, self.are_neighbours_stale) = (true, true);
        self.rest = Instant::now().checked_add(AFTER_FAILURE).map(|t| [t, t]);
    }

    fn next_part(&mut self, updates: &mut Vec<RoutingUpdate>) -> io::Result<()> {
        let Some(mut dump) = self.dump.take() else { return Ok(()) };
        let next = match dump.part {
            Part::Links => Some(Part::Addresses),
            Part::Addresses => Some(Part::Rules),
            Part::Rules => Some(Part::Routes),
            Part::Routes if self.are_neighbours_stale => {
                self.are_neighbours_stale = false;
                Some(Part::Neighbours)
            }
            Part::Routes | Part::Neighbours => None,
        };
        if let Some(part) = next {
            dump.sequence = self.request(part)?;
            dump.part = part;
            self.dump = Some(dump);
            return Ok(());
        }
        self.finish(dump, updates);
        Ok(())
    }

    fn finish(&mut self, dump: Dump, updates: &mut Vec<RoutingUpdate>) {
        let has_neighbours = dump.part == Part::Neighbours;
        let collected = dump.collected;
        if dump.is_torn {
            self.is_stale = true;
            self.are_neighbours_stale |= has_neighbours;
        }
        if has_neighbours {
            let mut all: HashMap<(u32, IpAddr), Option<Mac>> =
                collected.neighbours.iter().map(|n| ((n.index, n.address), n.mac)).collect();
            all.extend(&collected.postponed);
            let named = all.into_iter().filter_map(|((index, address), mac)| {
                Some((collected.links.get(&index)?.name.clone(), address, mac?))
            });
            updates.push(RoutingUpdate::Neighbours(named.collect()));
        }
        updates.push(RoutingUpdate::System(collected.system()));
        self.links = collected.links;
        self.dumps_read += 1;
        let took = dump.began.elapsed();
        let pauses = [
            (took * PAUSE_FACTOR).max(LEAST_PAUSE),
            (took * RELAXED_PAUSE_FACTOR).max(LEAST_RELAXED_PAUSE),
        ];
        let now = Instant::now();
        self.rest = Some(pauses.map(|pause| now.checked_add(pause).unwrap_or(now)));
    }
}

/// Returns the properties that routing depends on.
fn shown(link: &Link) -> (&str, [u8; 6], u32, bool, bool) {
    (&link.name, link.mac, link.mtu, link.admin_up, link.link_up)
}

impl Collected {
    fn take(&mut self, kind: u16, payload: &[u8]) {
        match kind {
            RTM_NEWLINK => {
                if let Some(link) = link::parse(payload) {
                    self.links.insert(link.index, link);
                }
            }
            RTM_NEWADDR => self.addresses.extend(address::parse(payload)),
            RTM_NEWRULE => self.rules.extend(rule::parse(payload)),
            RTM_NEWROUTE => self.routes.extend(route::parse(payload)),
            RTM_NEWNEIGH => self.neighbours.extend(neighbour::parse(payload)),
            _ => {}
        }
    }

    /// Returns the state with names in place of indexes.
    fn system(&self) -> System {
        let mut system = System { rules: self.rules.clone(), ..System::default() };
        let mut names: HashMap<u32, Arc<str>> = HashMap::new();
        for link in self.links.values() {
            let device = Device {
                index: link.index,
                mtu: link.mtu,
                mac: Mac(link.mac),
                is_up: link.admin_up,
                has_link: link.link_up,
                addresses: Vec::new(),
            };
            let name: Arc<str> = Arc::from(link.name.as_str());
            names.insert(link.index, Arc::clone(&name));
            system.devices.insert(name, device);
        }
        for of in &self.addresses {
            let device = names.get(&of.index).and_then(|name| system.devices.get_mut(name));
            if let Some(device) = device {
                device.addresses.push(of.address);
            }
        }
        let named = |route: &route::Route| {
            let next_hop = match route.hop {
                Some(hop) => {
                    let device = Arc::clone(names.get(&hop.index)?);
                    Some(NextHop { device, gateway: hop.gateway })
                }
                None => None,
            };
            Some(SystemRoute {
                table: route.table,
                prefix: route.prefix,
                kind: route.kind,
                next_hop,
                source: route.source,
                metric: route.metric,
                mtu: route.mtu,
            })
        };
        system.routes = self.routes.iter().filter_map(named).collect();
        system
    }
}
