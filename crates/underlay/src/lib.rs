// SPDX-License-Identifier: Apache-2.0
//! The underlay: the routes, neighbours and addresses of the network that carries tunnels.
//!
//! # Overview
//!
//! [`Underlay`] is one handle for all threads.
//!
//! - [`Underlay::lookup`] finds the route to the other end of a tunnel: the device, the next hop and
//!   the source address ([`Found`]).
//! - [`Underlay::neighbour`] finds the Ethernet address of the next hop. [`solicitation()`] makes the
//!   packet that asks for it.
//! - [`Underlay::sequence`] changes with every change that can change the answer of either.
//!
//! Routes come from three sources. The kernel's are replaced as a whole ([`Underlay::set_system`]):
//! the follower reads them by rtnetlink. A user's routes and rules come from `ovs/route/`. In dummy
//! mode, addresses of devices make routes ([`Underlay::add_address`]).
//!
//! Neighbours come from packets ([`snoop`]), from `tnl/neigh/set`, and from the kernel's table. The
//! address of a neighbour that was known a moment ago is supposed to be right while the neighbour is
//! asked ([`Underlay::suppose`]).
//! [`Underlay::record_path_mtu`] keeps what routers report about the path to a remote.
//!
//! # Choice of a route
//!
//! Rules are tried by priority. The first rule that matches and whose table has a route for the
//! destination decides. In a table the entry with the highest priority decides, as in Open vSwitch:
//! the length of its prefix, plus 32 for a user's route, plus 64 for a local one, where an IPv4
//! prefix counts as IPv4-mapped (96 more). Of the kernel's routes with the same prefix, that with the
//! lowest metric is kept. A route matches packets with its own mark alone, and the kernel's have
//! mark 0.
//!
//! # Invariants
//!
//! 1. [`Routes`] is immutable. A change publishes another one, then raises the sequence number. A
//!    reader that reads the number first never misses a change.
//! 2. The sequence number is raised only by a change: a kernel that reports the same state again, or a
//!    neighbour that answers with the same address, changes nothing. A neighbour that nobody has asked
//!    for changes no answer.
//! 3. No lookup finds a learned neighbour that has expired.
//!
//! # The side on which it errs
//!
//! Rules that depend on properties that a tunnel's packets do not have, or that this crate cannot
//! judge (ports, input devices, groups), are left out by the follower. A route whose devices have no
//! usable source address is left out, as in Open vSwitch. When the table of learned neighbours is
//! full, no more are learned, and they are counted.
//!
//! The crate has no I/O and no thread.
#![forbid(unsafe_code)]

mod address;
mod device;
mod neighbour;
mod path_mtu;
mod route;
mod routes;
mod rule;
pub mod snoop;
mod solicitation;
mod system;
mod table;

pub use address::{Cidr, CidrError, address_text};
pub use device::{Device, Devices, is_wide};
pub use neighbour::{Neighbour, NeighbourCounters};
pub use route::{Found, NextHop, Origin, Query, Route, RouteKind};
pub use routes::{AddRouteError, Routes, TABLE_DEFAULT, TABLE_LOCAL, TABLE_MAIN, UserRoute};
pub use rule::{Rule, RuleAction};
pub use solicitation::solicitation;
pub use system::{System, SystemRoute};

use clock::{Clock, Millis};
use neighbour::Neighbours;
use packet::Mac;
use path_mtu::PathMtus;
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::Duration;

/// The function that is called after each change.
type Listener = Box<dyn Fn() + Send + Sync>;

/// Routes, neighbours and addresses. Any thread may use it.
pub struct Underlay {
    clock: Clock,
    routes: RwLock<Arc<Routes>>,
    /// Held by the thread that changes `routes`.
    writer: Mutex<()>,
    neighbours: Mutex<Neighbours>,
    path_mtus: Mutex<PathMtus>,
    sequence: AtomicU64,
    listener: OnceLock<Listener>,
}

impl fmt::Debug for Underlay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Underlay").field("sequence", &self.sequence()).finish_non_exhaustive()
    }
}

impl Underlay {
    /// Returns an underlay without routes, with the rules that every kernel starts with.
    pub fn new(clock: Clock) -> Underlay {
        Underlay {
            clock,
            routes: RwLock::default(),
            writer: Mutex::default(),
            neighbours: Mutex::default(),
            path_mtus: Mutex::default(),
            sequence: AtomicU64::new(1),
            listener: OnceLock::new(),
        }
    }

    /// Returns a number that is raised after every change of a route, a rule, a neighbour's address,
    /// or a device.
    pub fn sequence(&self) -> u64 {
        self.sequence.load(Ordering::Acquire)
    }

    /// Sets the function that is called after each change, on the thread that made it. It must not
    /// call the underlay. Only the first call has an effect.
    pub fn on_change(&self, listener: impl Fn() + Send + Sync + 'static) {
        let _ = self.listener.set(Box::new(listener));
    }

    fn raise(&self) {
        self.sequence.fetch_add(1, Ordering::AcqRel);
        if let Some(listener) = self.listener.get() {
            listener();
        }
    }

    /// Returns the present routes, rules and devices.
    pub fn routes(&self) -> Arc<Routes> {
        Arc::clone(&self.routes.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the route for `query`; `None` when there is none.
    pub fn lookup(&self, query: &Query) -> Option<Found> {
        self.routes().lookup(query)
    }

    /// Changes a copy of the routes, and publishes it when `change` returns true.
    fn change(&self, change: impl FnOnce(&mut Routes) -> bool) -> bool {
        let _writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = Routes::clone(&self.routes());
        let is_changed = change(&mut next);
        if is_changed {
            *self.routes.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(next);
            self.raise();
        }
        is_changed
    }

    /// Replaces all routes, rules and devices of the kernel.
    pub fn set_system(&self, system: System) {
        self.change(|routes| routes.set_system(system));
    }

    /// Adds or replaces a user's route (`ovs/route/add`).
    ///
    /// # Errors
    ///
    /// [`AddRouteError`]; nothing has changed then.
    pub fn add_route(&self, route: &UserRoute) -> Result<(), AddRouteError> {
        let mut result = Ok(());
        self.change(|routes| {
            result = routes.add_user(route);
            result.is_ok()
        });
        result
    }

    /// Removes a user's route (`ovs/route/del`). Returns false when there is none.
    pub fn remove_route(&self, table: u32, prefix: Cidr, mark: u32) -> bool {
        self.change(|routes| routes.remove_user(table, prefix, mark))
    }

    /// Adds a user's rule (`ovs/route/rule/add`). Without a priority it gets one below those of the
    /// other rules, as `ip rule add` does.
    pub fn add_rule(&self, rule: Rule, priority: Option<u32>) {
        self.change(|routes| {
            routes.add_rule(rule, priority);
            true
        });
    }

    /// Removes the first of a user's rules that equals `rule`, without regard to the priority if that
    /// is `None` (`ovs/route/rule/del`). Returns false when there is none.
    pub fn remove_rule(&self, rule: &Rule, priority: Option<u32>) -> bool {
        self.change(|routes| routes.remove_rule(rule, priority))
    }

    /// Adds an address to a device that no kernel knows, and the route to its subnet, which is local,
    /// as Open vSwitch does for dummies. An address that is there stays once.
    pub fn add_address(&self, device: &str, address: Cidr) {
        self.change(|routes| routes.add_address(device, address));
    }

    fn neighbours(&self) -> MutexGuard<'_, Neighbours> {
        // Every change below leaves whole values.
        self.neighbours.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes neighbours, and raises the sequence number when `change` returns true.
    fn change_neighbours(&self, change: impl FnOnce(&mut Neighbours) -> bool) {
        if change(&mut self.neighbours()) {
            self.raise();
        }
    }

    /// Returns the Ethernet address of the neighbour `address` at `device` (a bridge's name for the
    /// LOCAL port): a learned one, whose time starts again, or else the kernel's, or else a supposed
    /// one.
    pub fn neighbour(&self, device: &str, address: IpAddr) -> Option<Mac> {
        self.neighbours().find(device, address, self.clock.now())
    }

    /// Takes `mac` for the address of a neighbour that is not known, for ten seconds at most: it had
    /// this address a moment ago. The neighbour is to be asked meanwhile.
    pub fn suppose(&self, device: &str, address: IpAddr, mac: Mac) {
        let now = self.clock.now();
        self.change_neighbours(|all| all.suppose(device, address, mac, now));
    }

    /// Returns true when the address that [`Underlay::neighbour`] returns is a supposed one.
    pub fn is_supposed(&self, device: &str, address: IpAddr) -> bool {
        self.neighbours().is_supposed(device, address, self.clock.now())
    }

    /// Returns the neighbours that were asked for within the aging time and that no learned entry
    /// decided about, with their devices.
    pub fn questions(&self) -> Vec<(String, IpAddr)> {
        self.neighbours().questions()
    }

    /// Learns or confirms a neighbour.
    pub fn learn(&self, device: &str, address: IpAddr, mac: Mac) {
        let now = self.clock.now();
        self.change_neighbours(|all| all.learn(device, address, mac, now));
    }

    /// Sets the entry of the kernel's table for a neighbour; `None`: it has none that is usable.
    pub fn set_kernel_neighbour(&self, device: &str, address: IpAddr, mac: Option<Mac>) {
        let now = self.clock.now();
        self.change_neighbours(|all| all.set_kernel(device, address, mac, now));
    }

    /// Replaces all of the kernel's neighbours.
    pub fn set_kernel_neighbours(&self, all: impl IntoIterator<Item = (String, IpAddr, Mac)>) {
        self.change_neighbours(|neighbours| neighbours.replace_kernel(all));
    }

    /// Returns the learned neighbours in the order of their addresses (`tnl/neigh/show`).
    pub fn learned(&self) -> Vec<Neighbour> {
        self.neighbours().learned(self.clock.now())
    }

    /// Removes all learned neighbours (`tnl/neigh/flush`).
    pub fn flush_neighbours(&self) {
        self.change_neighbours(|all| all.remove(|_| true));
    }

    /// Removes the learned neighbours at `device`, whose port is gone, and the addresses that
    /// [`Underlay::add_address`] gave it. Routes stay, as in Open vSwitch.
    pub fn forget_device(&self, device: &str) {
        self.change_neighbours(|all| all.remove(|at| at == device));
        self.change(|routes| routes.forget_addresses(device));
    }

    /// Removes learned neighbours and path MTUs that have expired. To be called about every second.
    pub fn expire(&self) {
        let now = self.clock.now();
        self.change_neighbours(|all| all.expire(now));
        if self.path_mtus().expire(now) {
            self.raise();
        }
    }

    /// Returns the time when [`Underlay::expire`] may next have something to do.
    pub fn next_expiry(&self) -> Option<Millis> {
        let times = [self.neighbours().next_expiry(), self.path_mtus().next_expiry()];
        times.into_iter().flatten().min()
    }

    fn path_mtus(&self) -> MutexGuard<'_, PathMtus> {
        // Every change leaves whole values.
        self.path_mtus.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a router on the path to `remote` passes packets of `mtu` bytes at most. The report
    /// counts for 10 minutes, and a later one only when its MTU is lower.
    pub fn record_path_mtu(&self, remote: IpAddr, mtu: u32) {
        let now = self.clock.now();
        if self.path_mtus().record(remote, mtu, now) {
            self.raise();
        }
    }

    /// Returns the longest IP packet in bytes that reaches `remote`; `None` when no router has
    /// reported one.
    pub fn path_mtu(&self, remote: IpAddr) -> Option<u32> {
        self.path_mtus().get(remote, self.clock.now())
    }

    /// Returns how long a learned neighbour stays after its last use.
    pub fn aging(&self) -> Duration {
        self.neighbours().aging()
    }

    /// Sets how long a learned neighbour stays after its last use. Entries that would stay longer now
    /// stay this long.
    pub fn set_aging(&self, aging: Duration) {
        let now = self.clock.now();
        self.neighbours().set_aging(aging, now);
    }

    /// Returns true when the switch may send a question for a neighbour that it does not know, and
    /// records that it does. Between two questions for one neighbour passes
    /// [`Underlay::retransmission`].
    pub fn may_solicit(&self, device: &str, address: IpAddr) -> bool {
        let now = self.clock.now();
        self.neighbours().may_solicit(device, address, now)
    }

    /// Returns the time between two questions of the switch for the same neighbour.
    pub fn retransmission(&self) -> Duration {
        self.neighbours().retransmission()
    }

    /// Sets the time between two questions of the switch for the same neighbour.
    pub fn set_retransmission(&self, pause: Duration) {
        self.neighbours().set_retransmission(pause);
    }

    /// Returns counters of the neighbours.
    pub fn neighbour_counters(&self) -> NeighbourCounters {
        self.neighbours().counters()
    }
}

#[cfg(test)]
mod tests;
