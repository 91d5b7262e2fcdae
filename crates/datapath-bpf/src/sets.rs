// SPDX-License-Identifier: Apache-2.0
//! Sets of ports that XDP sends copies to, and the devmap of each.
//!
//! The kernel copies a frame to every entry of a devmap. Flows share sets. The ingress port, which
//! floods leave out, is in the set, and the kernel excludes it. So a bridge with one broadcast
//! domain needs one set.
//!
//! A set keeps its ports as long as a flow names it, and after that until its place is needed.
//! `blocked`, `mtu` and the entries of the devmap follow the state of the ports.
//!
//! `bpf/copies.h` states what copies at XDP are worth against the same flow at tcx: 1.8 to 2.8
//! times the packets per CPU-second to ports that send XDP frames.

use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, MutexGuard};

use datapath::PortNo;

use crate::layout::{MAX_PORTS, PORT_DEVMAP, PORT_SETS, PORT_UP, PortSet, SET_PORTS};
use crate::maps::Maps;
use crate::{ports, sys};

/// Names of the devmaps, by the set's number.
pub const NAMES: [&str; PORT_SETS as usize] = [
    "set0", "set1", "set2", "set3", "set4", "set5", "set6", "set7", "set8", "set9", "set10",
    "set11", "set12", "set13", "set14", "set15", "set16", "set17", "set18", "set19", "set20",
    "set21", "set22", "set23", "set24", "set25", "set26", "set27", "set28", "set29", "set30",
    "set31",
];

/// Number of a set of ports; below [`PORT_SETS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SetNumber(pub u16);

#[derive(Clone, Default)]
struct Set {
    /// The ports, sorted; empty: the place was never used.
    ports: Vec<u16>,
    /// Number of flows that name it.
    flows: usize,
}

/// All sets. Any thread may call the methods; those that change a devmap make system calls.
pub struct PortSets {
    /// In the order of [`NAMES`]; empty for tables that no program uses.
    devmaps: Vec<OwnedFd>,
    sets: Mutex<Vec<Set>>,
}

impl PortSets {
    /// Makes an object without sets. `devmaps` is in the order of [`NAMES`], or empty.
    pub fn new(devmaps: Vec<OwnedFd>) -> PortSets {
        PortSets { devmaps, sets: Mutex::new(vec![Set::default(); PORT_SETS as usize]) }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Set>> {
        self.sets.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Returns true when there is a set of these ports (sorted), or room for one.
    pub(crate) fn has_room(&self, ports: &[u16]) -> bool {
        self.lock().iter().any(|set| set.flows == 0 || set.ports == ports)
    }

    /// Returns the set of these ports (2 to [`SET_PORTS`], sorted) for one more flow, or `None`
    /// when there is no room or the kernel refuses.
    pub fn acquire(&self, maps: &Maps, ports: &[u16]) -> Option<SetNumber> {
        let mut sets = self.lock();
        let number = sets
            .iter()
            .position(|set| set.ports == ports)
            .or_else(|| sets.iter().position(|set| set.ports.is_empty()))
            .or_else(|| sets.iter().position(|set| set.flows == 0))?;
        let set = sets.get_mut(number)?;
        if set.ports != ports {
            set.ports = ports.to_vec();
            if let Err(e) = self.fill(maps, number, &set.ports) {
                tracing::warn!(target: "dpif", "no set of ports for copies at XDP ({e})");
                set.ports.clear();
                return None;
            }
        }
        set.flows += 1;
        Some(SetNumber(number as u16)) // below PORT_SETS
    }

    /// Removes one flow of a set. No packet runs the flow any more.
    pub(crate) fn release(&self, number: SetNumber) {
        if let Some(set) = self.lock().get_mut(usize::from(number.0)) {
            set.flows = set.flows.saturating_sub(1);
        }
    }

    /// Counts a flow found in adopted tables. Returns false when the set has other ports.
    pub(crate) fn adopt_flow(&self, maps: &Maps, number: SetNumber, ports: &[u16]) -> bool {
        let mut sets = self.lock();
        let at = usize::from(number.0);
        let Some(set) = sets.get_mut(at) else { return false };
        let held = maps.port_sets.read(at);
        let is_it = held.ports.get(..held.count as usize) == Some(ports)
            && (2..=SET_PORTS).contains(&ports.len())
            && ports.iter().all(|port| u32::from(*port) < MAX_PORTS);
        if is_it {
            set.ports = ports.to_vec();
            set.flows += 1;
        }
        is_it
    }

    /// Brings the sets up to date with the ports, after the last [`PortSets::adopt_flow`].
    pub(crate) fn adopted(&self, maps: &Maps) {
        for (number, set) in self.lock().iter().enumerate() {
            if let Err(e) = self.fill(maps, number, &set.ports) {
                tracing::warn!(target: "dpif", "a set of ports for copies at XDP is not as it was ({e})");
            }
        }
    }

    /// Brings the sets up to date after a port was added, removed or changed.
    pub(crate) fn refresh(&self, maps: &Maps, port: u32) {
        for (number, set) in self.lock().iter().enumerate() {
            let Some(place) = set.ports.iter().position(|p| u32::from(*p) == port) else {
                continue;
            };
            // Programs must not find a port open that is not in the devmap. So a port is
            // published as blocked before it is removed, and as open after it is added.
            if !ports::is_target(maps, port) {
                publish(maps, number, &set.ports);
            }
            match self.put(maps, number, place, port) {
                Ok(()) => publish(maps, number, &set.ports),
                Err(e) => tracing::warn!(target: "dpif", "port {port} gets no copies at XDP ({e})"),
            }
        }
    }

    /// Replaces the ports of a set that no program uses.
    fn fill(&self, maps: &Maps, number: usize, ports: &[u16]) -> io::Result<()> {
        let mut entry = maps.port_sets.read(number);
        (entry.count, entry.ports) = (ports.len() as u32, [0; SET_PORTS]); // at most SET_PORTS
        entry.ports.iter_mut().zip(ports).for_each(|(to, port)| *to = *port);
        maps.port_sets.write(number, &entry);
        for place in 0..SET_PORTS {
            match ports.get(place) {
                Some(port) => self.put(maps, number, place, u32::from(*port))?,
                None => self.unset(number, place)?,
            }
        }
        publish(maps, number, ports);
        Ok(())
    }

    /// Puts a port into the devmap of a set if XDP may redirect to it; else removes it.
    fn put(&self, maps: &Maps, number: usize, place: usize, port: u32) -> io::Result<()> {
        let Some(devmap) = self.devmaps.get(number) else { return Ok(()) };
        if ports::is_target(maps, port) {
            let ifindex = maps.ports.read(port as usize).ifindex;
            return sys::set(devmap.as_fd(), place as u32, ifindex); // below SET_PORTS
        }
        self.unset(number, place)
    }

    fn unset(&self, number: usize, place: usize) -> io::Result<()> {
        match self.devmaps.get(number) {
            Some(devmap) => sys::unset(devmap.as_fd(), place as u32), // below SET_PORTS
            None => Ok(()),
        }
    }
}

/// Publishes how many of a set's ports XDP cannot send to, and the smallest MTU of the others.
fn publish(maps: &Maps, number: usize, ports: &[u16]) {
    let is_blocked = |port: &&u16| {
        let held = maps.ports.read(usize::from(**port));
        held.ifindex == 0 || held.flags & (PORT_UP | PORT_DEVMAP) != PORT_UP | PORT_DEVMAP
    };
    let blocked: Vec<&u16> = ports.iter().filter(is_blocked).collect();
    let open = ports.iter().filter(|port| !is_blocked(port));
    let mtu = open.map(|port| maps.ports.read(usize::from(*port)).mtu).min().unwrap_or(0);
    let store = |at, value| maps.port_sets.store_half(number, at, value);
    store(offset_of!(PortSet, mtu), mtu);
    if let Some(first) = blocked.first() {
        store(offset_of!(PortSet, blocked_port), u32::from(**first));
    }
    store(offset_of!(PortSet, blocked), blocked.len() as u32); // at most SET_PORTS
}

/// Returns the ports of the set for copies to `outputs` (sorted) of packets from `in_port`, and
/// whether the ingress port is to be excluded, which is in the set as well. `None`: too many ports.
pub(crate) fn members(outputs: &[u16], in_port: PortNo) -> Option<(Vec<u16>, bool)> {
    let in_port = u16::try_from(in_port.0).ok()?;
    let mut ports = outputs.to_vec();
    let excluded = match ports.binary_search(&in_port) {
        Ok(_) => false,
        Err(at) => {
            ports.insert(at, in_port);
            true
        }
    };
    (ports.len() <= SET_PORTS).then_some((ports, excluded))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attachment::Config;
    use crate::layout::Port;
    use crate::maps::Sizes;

    fn maps() -> Maps {
        let maps = Maps::private(Sizes::new(&Config { max_flows: 1024, ..Config::default() }, 1));
        for port in 1..80u32 {
            let flags = PORT_UP | PORT_DEVMAP;
            let port_entry = Port { ifindex: port, flags, mtu: 1500, ..Port::default() };
            maps.ports.write(port as usize, &port_entry);
        }
        maps
    }

    #[test]
    fn flows_from_all_ports_of_a_bridge_share_a_set() {
        let shared = members(&[2, 3, 4], PortNo(1));
        assert_eq!(shared, Some((vec![1, 2, 3, 4], true)));
        assert_eq!(members(&[1, 2, 4], PortNo(3)), shared);
        assert_eq!(members(&[1, 2], PortNo(2)), Some((vec![1, 2], false)));
        assert_eq!(members(&[1, 2], PortNo(70_000)), None);
        let most: Vec<u16> = (1..=SET_PORTS as u16).collect();
        assert_eq!(members(&most, PortNo(99)), None);
        assert_eq!(members(&most, PortNo(1)), Some((most, false)));
    }

    #[test]
    fn places_are_used_again_when_no_flow_names_them() {
        let (maps, sets) = (maps(), PortSets::new(Vec::new()));
        let pair = |n: u16| [n, n + 1];
        for n in 1..=PORT_SETS as u16 {
            assert_eq!(sets.acquire(&maps, &pair(n)), Some(SetNumber(n - 1)));
        }
        assert_eq!(sets.acquire(&maps, &pair(7)), Some(SetNumber(6)), "one that there is");
        assert!(!sets.has_room(&pair(60)) && sets.has_room(&pair(7)));
        assert_eq!(sets.acquire(&maps, &pair(60)), None);
        sets.release(SetNumber(6));
        assert!(!sets.has_room(&pair(60)), "another flow names it");
        sets.release(SetNumber(6));
        assert!(sets.has_room(&pair(60)));
        assert_eq!(sets.acquire(&maps, &pair(60)), Some(SetNumber(6)));
        let held = maps.port_sets.read(6);
        assert_eq!((held.count, &held.ports[..3]), (2, &[60, 61, 0][..]));
    }

    #[test]
    fn blocked_ports_and_the_mtu_are_published() {
        let (maps, sets) = (maps(), PortSets::new(Vec::new()));
        let change = |port: u32, flags, mtu| {
            let entry = Port { ifindex: port, flags, mtu, ..Port::default() };
            maps.ports.write(port as usize, &entry);
            sets.refresh(&maps, port);
        };
        sets.acquire(&maps, &[3, 4, 5]).unwrap();
        let published = || {
            let held = maps.port_sets.read(0);
            (held.blocked, held.blocked_port, held.mtu)
        };
        assert_eq!(published(), (0, 0, 1500));
        change(4, PORT_UP | PORT_DEVMAP, 1400);
        assert_eq!(published(), (0, 0, 1400));
        change(5, PORT_DEVMAP, 1500);
        assert_eq!(published(), (1, 5, 1400));
        change(3, PORT_UP, 1500);
        assert_eq!(published().0, 2);
        change(5, PORT_UP | PORT_DEVMAP, 9000);
        assert_eq!(published(), (1, 3, 1400));
    }

    #[test]
    fn adopted_sets_are_verified() {
        let (maps, sets) = (maps(), PortSets::new(Vec::new()));
        assert_eq!(sets.acquire(&maps, &[3, 4]), Some(SetNumber(0)));
        let next = PortSets::new(Vec::new());
        assert!(!next.adopt_flow(&maps, SetNumber(0), &[3, 5]));
        assert!(!next.adopt_flow(&maps, SetNumber(1), &[]));
        assert!(!next.adopt_flow(&maps, SetNumber(99), &[3, 4]));
        assert!(next.adopt_flow(&maps, SetNumber(0), &[3, 4]));
        next.adopted(&maps);
        assert_eq!(next.acquire(&maps, &[3, 4]), Some(SetNumber(0)));
        assert_eq!(next.acquire(&maps, &[5, 6]), Some(SetNumber(1)));
    }
}
