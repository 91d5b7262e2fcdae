// SPDX-License-Identifier: Apache-2.0
//! [`KernelDatapath`].

use crate::family::{self, Families, Unavailable};
use crate::flow_message::{FlowMessages, KernelStats};
use crate::handler::{self, Handlers};
use crate::instance::Instance;
use crate::numbering::Numbering;
use crate::packet_message::{self, LONGEST, Remainder};
use crate::port::{self, Port};
use crate::table::{Held, Table};
use crate::vport::{Kind, Vport};
use crate::zone_limits::ZoneLimits;
use crate::{actions, keys, meter};
use clock::{Clock, OncePer};
use datapath::{
    Action, Actions, Connections, Counters, Datapath, DropReason, FlowDump, FlowStats, Flows,
    LookupStats, Megaflow, Meters, Offloaded, Packets, PortError, PortInfo, PortKind, PortNo,
    PortSpec, Ports, Refusal, Tier, TierRefusals, Ufid, UpcallFactory,
};
use flow::{Key, Mask};
use netdev::link::LinkClient;
use netdev::{Device, Policing};
use netlink::{Error, Socket};
use packet::Packet;
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

/// Most threads of upcalls.
const MOST_THREADS: usize = 16;
/// Time between two log lines about megaflows that other programs removed.
const COMPLAINT: Duration = Duration::from_secs(60);
/// Time between two inspections of the datapath and its ports.
const INSPECTION: Duration = Duration::from_secs(1);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The parts that threads share.
pub(crate) struct Shared {
    pub(crate) families: Families,
    /// The index of the datapath's interface. A datapath that was deleted is made again.
    datapath: AtomicI32,
    /// The numbers of the sockets of upcalls, by CPU.
    pub(crate) by_cpu: Vec<u32>,
    pub(crate) numbering: Numbering,
    pub(crate) clock: Clock,
    factory: OnceLock<Arc<dyn UpcallFactory>>,
    /// Sockets for requests that no thread uses at present.
    sockets: Mutex<Vec<Socket>>,
    drops: [AtomicU64; DropReason::ALL.len()],
    meters: Mutex<meter::Known>,
}

impl Shared {
    pub(crate) fn factory(&self) -> Option<&Arc<dyn UpcallFactory>> {
        self.factory.get()
    }

    pub(crate) fn meters(&self) -> MutexGuard<'_, meter::Known> {
        lock(&self.meters)
    }

    pub(crate) fn count_drops(&self, reason: DropReason, n: usize) {
        if let Some(count) = self.drops.get(reason as usize) {
            count.fetch_add(n as u64, Ordering::Relaxed);
        }
    }

    /// Lends a socket for a request.
    pub(crate) fn with_socket<T>(
        &self,
        request: impl FnOnce(&mut Socket) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let free = lock(&self.sockets).pop();
        let mut socket = match free {
            Some(socket) => socket,
            None => family::open_socket()?,
        };
        let result = request(&mut socket);
        lock(&self.sockets).push(socket);
        result
    }

    fn flows(&self) -> FlowMessages<'_> {
        FlowMessages { families: &self.families, datapath: self.datapath() }
    }

    /// Returns the index of the datapath's interface.
    pub(crate) fn datapath(&self) -> i32 {
        self.datapath.load(Ordering::Relaxed)
    }

    /// Sets it, after the datapath was made again.
    pub(crate) fn set_datapath(&self, index: i32) {
        self.datapath.store(index, Ordering::Relaxed);
    }

    /// Reads the ports that the kernel has.
    pub(crate) fn vports(&self) -> Result<Vec<Vport>, Error> {
        self.with_socket(|socket| Vport::all(socket, &self.families, self.datapath()))
    }

    pub(crate) fn add_vport(&self, vport: &Vport) -> Result<(), Error> {
        self.with_socket(|socket| vport.add(socket, &self.families, self.datapath()))
    }

    fn instance(&self) -> Instance {
        Instance { ifindex: self.datapath(), is_new: false }
    }

    /// Returns by how many milliseconds the switch's clock is ahead of `CLOCK_MONOTONIC`.
    fn ahead(&self) -> i64 {
        let now = clock_gettime(ClockId::Monotonic);
        self.clock.now().0 - (now.tv_sec * 1000 + now.tv_nsec / 1_000_000)
    }

    /// Has the kernel run `actions` on a packet.
    pub(crate) fn run(
        &self,
        socket: &mut Socket,
        packet: &Packet,
        key: &Key,
        actions: &[Action],
        remainder: Remainder,
    ) {
        match actions {
            [] => return self.count_drops(DropReason::Flow, 1),
            [Action::Drop(reason)] => return self.count_drops(*reason, 1),
            _ => {}
        }
        let Ok(encoded) = actions::encode(actions, self.numbering) else {
            return self.count_drops(DropReason::UnsupportedAction, 1);
        };
        let Ok(frames) = netdev::finish::finish(packet) else {
            return self.count_drops(DropReason::Malformed, 1);
        };
        for frame in frames {
            let request = packet_message::execute(
                &self.families,
                self.datapath(),
                self.numbering,
                frame.data(),
                key,
                &encoded,
                remainder,
            );
            let Some(request) = request else {
                self.count_drops(DropReason::OutputTooLong, 1);
                continue;
            };
            if let Err(error) = socket.transact(request, |_, _| {}) {
                let invalid = error.errno() == Some(Errno::INVAL.raw_os_error());
                let reason =
                    if invalid { DropReason::UnsupportedAction } else { DropReason::OutputError };
                self.count_drops(reason, 1);
                tracing::debug!(target: "dpif_netlink", "the kernel refused a packet ({error})");
            }
        }
    }
}

pub(crate) struct PortTable {
    pub(crate) open: BTreeMap<PortNo, Port>,
    /// Ports that an earlier daemon left, by name, until they are claimed or removed.
    found: BTreeMap<String, Vport>,
    /// The kernel's number after the one that was given last.
    next: u32,
}

impl PortTable {
    /// Returns the kernel's number for a new port. A number is given again as late as possible:
    /// megaflows may have the old port's.
    fn free_number(&mut self, numbering: Numbering) -> Option<u32> {
        let taken = |n: u32| {
            self.open.contains_key(&numbering.to_switch(n))
                || self.found.values().any(|vport| vport.number == n)
        };
        let from = self.next.clamp(1, Numbering::LAST);
        let number = (from..=Numbering::LAST).chain(1..from).find(|n| !taken(*n))?;
        self.next = number + 1;
        Some(number)
    }
}

/// A datapath of the kernel; see the crate's text. Any thread may use it.
pub struct KernelDatapath {
    name: String,
    shared: Arc<Shared>,
    ports: Mutex<PortTable>,
    table: Table,
    /// The number of the last sweep.
    sweeps: AtomicU64,
    complaint: OncePer,
    pub(crate) inspection: OncePer,
    handlers: Mutex<Handlers>,
    /// `None` until the first ones are set.
    zone_limits: Mutex<Option<ZoneLimits>>,
}

impl KernelDatapath {
    /// Makes or finds the kernel's datapath `name` in the calling thread's network namespace. Takes
    /// over the megaflows that it has, and keeps its ports for [`Ports::add_port`].
    ///
    /// # Errors
    ///
    /// The module is not loaded, or the kernel's error.
    pub fn open(
        name: &str,
        clock: Clock,
        numbering: Numbering,
    ) -> Result<Arc<KernelDatapath>, Unavailable> {
        let mut socket =
            family::open_socket().map_err(Unavailable::at("opening a netlink socket"))?;
        let families = Families::resolve(&mut socket)?;
        let cpus = cpus();
        let threads = thread::available_parallelism().map_or(1, |n| n.get()).min(MOST_THREADS);
        let opened: Result<Vec<_>, _> = (0..threads).map(|_| handler::open_socket()).collect();
        let (sockets, numbers): (Vec<_>, Vec<_>) =
            opened.map_err(Unavailable::at("opening a socket of upcalls"))?.into_iter().unzip();
        let by_cpu: Vec<u32> = numbers.iter().copied().cycle().take(cpus.max(threads)).collect();
        let instance = Instance::open(&mut socket, &families, name, &by_cpu)?;
        let vports = Vport::all(&mut socket, &families, instance.ifindex)
            .map_err(Unavailable::at("reading the ports"))?;
        let shared = Arc::new(Shared {
            families,
            datapath: AtomicI32::new(instance.ifindex),
            by_cpu,
            numbering,
            clock,
            factory: OnceLock::new(),
            sockets: Mutex::new(vec![socket]),
            drops: [const { AtomicU64::new(0) }; DropReason::ALL.len()],
            meters: Mutex::default(),
        });
        let handlers = Handlers::start(&shared, sockets)
            .map_err(Unavailable::at("starting a thread of upcalls"))?;
        let found: BTreeMap<String, Vport> = vports
            .into_iter()
            .filter(|vport| vport.number != 0) // the datapath's own
            .map(|vport| (vport.name.clone(), vport))
            .collect();
        let datapath = KernelDatapath {
            name: format!("system@{name}"),
            shared,
            ports: Mutex::new(PortTable { open: BTreeMap::new(), found, next: 1 }),
            table: Table::default(),
            sweeps: AtomicU64::new(0),
            complaint: OncePer::new(COMPLAINT),
            inspection: OncePer::new(INSPECTION),
            handlers: Mutex::new(handlers),
            zone_limits: Mutex::new(None),
        };
        datapath.adopt().map_err(Unavailable::at("reading the megaflows"))?;
        Ok(Arc::new(datapath))
    }

    pub(crate) fn zone_limits(&self) -> MutexGuard<'_, Option<ZoneLimits>> {
        lock(&self.zone_limits)
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    pub(crate) fn port_table(&self) -> MutexGuard<'_, PortTable> {
        lock(&self.ports)
    }

    /// Returns the numbers of the ports.
    pub fn numbering(&self) -> Numbering {
        self.shared.numbering
    }

    /// Takes over the megaflows that the kernel has. Those that this crate does not make are
    /// removed, and all are if one of them has no identity.
    fn adopt(&self) -> Result<(), Error> {
        let shared = &self.shared;
        let ahead = shared.ahead();
        let (mut adopted, mut foreign, mut is_nameless) = (Vec::new(), Vec::new(), false);
        shared.with_socket(|socket| {
            shared.flows().dump(socket, shared.numbering, |flow, stats| match flow {
                Ok(flow) => adopted.push((flow, stats.on_clock(ahead))),
                Err(Some(ufid)) => foreign.push(ufid),
                Err(None) => is_nameless = true,
            })
        })?;
        if !foreign.is_empty() || is_nameless {
            tracing::info!(
                target: "dpif_netlink",
                "{}: the kernel has megaflows of another program, which are removed", self.name,
            );
        }
        if is_nameless {
            return shared
                .with_socket(|socket| socket.transact(shared.flows().flush(), |_, _| {}))
                .map(drop);
        }
        for ufid in foreign {
            match shared.with_socket(|socket| shared.flows().remove(socket, ufid)) {
                Err(error) if error.errno() != Some(Errno::NOENT.raw_os_error()) => {
                    return Err(error);
                }
                Ok(_) | Err(_) => {}
            }
        }
        let mut table = self.table.lock();
        for (flow, last) in adopted {
            let held = Held { earlier: FlowStats::default(), last, seen: 0, flow };
            table.insert(held.flow.ufid, held);
        }
        Ok(())
    }

    /// Removes the ports that an earlier daemon left and that nobody has claimed.
    pub fn remove_unclaimed(&self) {
        let left = std::mem::take(&mut lock(&self.ports).found);
        for vport in left.into_values() {
            tracing::info!(
                target: "dpif_netlink",
                "{}: port {} is no longer configured and is removed", self.name, vport.name,
            );
            self.remove_vport(vport.number, &vport.name);
            self.remove_tunnel_device(&vport.name);
        }
    }

    /// Deletes the device beneath the tunnel port `name`. Devices of other ports stay.
    fn remove_tunnel_device(&self, name: &str) {
        if port::is_tunnel_port(name)
            && let Err(error) = netdev::vport_device::remove(name)
        {
            tracing::warn!(
                target: "dpif_netlink",
                "{}: the tunnel device {name} stays ({error}); remove it by \"ip link del {name}\"",
                self.name,
            );
        }
    }

    fn remove_vport(&self, number: u32, name: &str) {
        let shared = &self.shared;
        let removed = shared.with_socket(|socket| {
            Vport::remove(socket, &shared.families, shared.datapath(), number)
        });
        match removed {
            Err(error) if error.errno() != Some(Errno::NODEV.raw_os_error()) => {
                tracing::warn!(
                    target: "dpif_netlink",
                    "{}: port {name} stays in the kernel ({error}); remove it by \
                     \"ovs-dpctl del-if\"",
                    self.name,
                );
            }
            Ok(()) | Err(_) => {}
        }
    }

    /// Stops, and deletes the kernel's datapath with all that is in it.
    pub fn cleanup(&self) {
        self.shutdown();
        let shared = &self.shared;
        // An inspection that comes later finds the threads stopped.
        let ports = lock(&self.ports);
        let deleted =
            shared.with_socket(|socket| shared.instance().delete(socket, &shared.families));
        let open = ports.open.values().map(|port| &port.info.name);
        for name in open.chain(ports.found.keys()) {
            self.remove_tunnel_device(name);
        }
        if let Err(error) = deleted {
            tracing::warn!(
                target: "dpif_netlink",
                "{} stays in the kernel ({error}); remove it by \"ovs-dpctl del-dp\"", self.name,
            );
        }
    }

    /// Adds a port with the next number that the kernel has free.
    fn add_vport(
        &self,
        ports: &mut PortTable,
        spec: &PortSpec,
        kind: Kind,
    ) -> Result<u32, PortError> {
        let shared = &self.shared;
        let wanted = spec.wanted.and_then(|port| shared.numbering.to_kernel(port));
        let mut wanted =
            wanted.filter(|n| *n != 0 && !ports.open.contains_key(&shared.numbering.to_switch(*n)));
        let failed = |cause: String| PortError::Open { name: spec.name.clone(), cause };
        for _ in 0..=Numbering::LAST {
            let number = match wanted.take() {
                Some(number) => number,
                None => ports
                    .free_number(shared.numbering)
                    .ok_or_else(|| PortError::Full(spec.name.clone()))?,
            };
            let vport = Vport { number, name: spec.name.clone(), kind };
            let Err(error) = shared.add_vport(&vport) else { return Ok(number) };
            let busy = error.errno() == Some(Errno::BUSY.raw_os_error());
            // The number is taken by another program, or the device has another owner.
            if !busy || !self.is_taken(number) {
                return Err(failed(format!("openvswitch.ko: {error}")));
            }
        }
        Err(PortError::Full(spec.name.clone()))
    }

    fn is_taken(&self, number: u32) -> bool {
        self.shared.vports().is_ok_and(|all| all.iter().any(|vport| vport.number == number))
    }

    /// Puts a megaflow into the kernel.
    fn put(&self, flow: &Megaflow) -> Result<(), Refusal> {
        let shared = &self.shared;
        let (matching, actions) = self.encode(flow)?;
        let request = shared.flows().add(flow.ufid, &matching, &actions);
        let added = shared.with_socket(|socket| socket.transact(request, |_, _| {}));
        match added {
            Ok(_) => Ok(()),
            Err(error) => {
                tracing::debug!(
                    target: "dpif_netlink",
                    "{}: the kernel refused a megaflow ({error}): {:?}", self.name, flow,
                );
                Err(refusal(&error))
            }
        }
    }

    fn encode(&self, flow: &Megaflow) -> Result<(keys::Encoded, Vec<u8>), Refusal> {
        let numbering = self.shared.numbering;
        let matching = numbering.match_to_kernel(&flow.matching).ok_or(Refusal::PortNotHere)?;
        let matching = keys::encode(&matching).map_err(|refused| refused.refusal)?;
        let actions = actions::encode(&flow.actions, numbering);
        let actions = actions.map_err(|refused| refused.refusal)?;
        if actions.len() > LONGEST {
            return Err(Refusal::UnsupportedAction);
        }
        Ok((matching, actions))
    }

    /// Reads a megaflow's statistics into its entry.
    fn read(&self, held: &mut Held) -> FlowStats {
        let shared = &self.shared;
        let read = shared.with_socket(|socket| shared.flows().stats(socket, held.flow.ufid));
        match read {
            Ok(stats) => held.total(stats.on_clock(shared.ahead())),
            Err(_) => held.last,
        }
    }

    fn dump_of(held: &Held, stats: FlowStats) -> FlowDump {
        FlowDump {
            flow: held.flow.clone(),
            stats,
            tier: Tier::Kernel,
            refusals: TierRefusals::NONE,
            offloaded: Offloaded::No,
        }
    }

    /// Puts the megaflows back that were there before sweep `number` began, and that it has not
    /// found. Returns their statistics.
    fn put_back(&self, number: u64) -> Vec<(Ufid, FlowStats)> {
        let mut table = self.table.lock();
        let lost: Vec<Ufid> =
            table.values().filter(|held| held.seen < number).map(|held| held.flow.ufid).collect();
        if !lost.is_empty() && self.complaint.is_due(self.shared.clock.now()) {
            tracing::warn!(
                target: "dpif_netlink",
                "{}: another program has removed {} megaflows, which are put back: see that no \
                 second ovs-vswitchd runs",
                self.name,
                lost.len(),
            );
        }
        let mut stats = Vec::with_capacity(lost.len());
        for ufid in lost {
            let Some(held) = table.get_mut(&ufid) else { continue };
            held.earlier = held.last;
            stats.push((ufid, held.last));
            // One that the kernel refuses now is offered again by the next sweep.
            if matches!(self.put(&held.flow), Ok(()) | Err(Refusal::Exists)) {
                held.seen = number;
            }
        }
        stats
    }
}

/// Returns the number of CPUs that the kernel may use, which is one more than the highest number.
fn cpus() -> usize {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    let last = text.trim().rsplit(['-', ',']).next().and_then(|n| n.parse::<usize>().ok());
    last.map_or(1, |n| n.saturating_add(1)).min(4096)
}

/// Limits the packets that come in by a device.
fn police(device: &dyn Device, policing: Policing) -> io::Result<()> {
    let Some(index) = device.ifindex() else { return Ok(()) };
    netdev::ingress_police::set(&LinkClient::new()?, index, policing)
}

fn refusal(error: &Error) -> Refusal {
    match error.errno().map(Errno::from_raw_os_error) {
        Some(Errno::EXIST) => Refusal::Exists,
        Some(Errno::NOSPC | Errno::NOMEM | Errno::TOOBIG | Errno::NOBUFS) => Refusal::TableFull,
        Some(Errno::INVAL | Errno::OPNOTSUPP) => Refusal::UnsupportedAction,
        Some(Errno::PERM) => Refusal::NoPermission,
        _ => Refusal::TierUnavailable,
    }
}

impl Ports for KernelDatapath {
    fn add_port(&self, spec: &PortSpec) -> Result<PortNo, PortError> {
        let shared = &self.shared;
        let kind = port::kind_of(spec.kind)
            .ok_or_else(|| PortError::UnknownKind { name: spec.name.clone(), kind: spec.kind })?;
        let mut ports = lock(&self.ports);
        if ports.open.values().any(|port| port.info.name == spec.name) {
            return Err(PortError::Exists(spec.name.clone()));
        }
        if let PortKind::TunnelVport(tunnel) = spec.kind {
            let device = port::tunnel_device(tunnel, &spec.options).ok_or_else(|| {
                PortError::UnknownKind { name: spec.name.clone(), kind: spec.kind }
            })?;
            netdev::vport_device::open(&spec.name, device).map_err(|error| PortError::Open {
                name: spec.name.clone(),
                cause: error.to_string(),
            })?;
        }
        let (number, is_new) = match ports.found.remove(&spec.name) {
            Some(vport) if vport.kind == kind => (vport.number, false),
            other => {
                if let Some(vport) = other {
                    self.remove_vport(vport.number, &vport.name);
                }
                let added = self.add_vport(&mut ports, spec, kind);
                (added.inspect_err(|_| self.remove_tunnel_device(&spec.name))?, true)
            }
        };
        let opened = match spec.kind {
            PortKind::TunnelVport(_) => Ok(None),
            _ => port::open(&spec.name, kind).map(Some),
        };
        let device = match opened {
            Ok(device) => device,
            Err(error) => {
                self.remove_vport(number, &spec.name);
                return Err(PortError::Open { name: spec.name.clone(), cause: error.to_string() });
            }
        };
        // An earlier daemon may have left limits.
        if spec.kind == PortKind::Vport
            && let Some(device) = &device
            && let Err(error) = police(&**device, Policing::default())
        {
            tracing::debug!(target: "dpif_netlink", "{}: policing stays ({error})", spec.name);
        }
        let info = PortInfo {
            number: shared.numbering.to_switch(number),
            name: spec.name.clone(),
            kind: spec.kind,
        };
        let port = Port { info, device, mac: spec.mac, mtu: spec.mtu };
        if is_new
            && kind == Kind::Internal
            && let Err(error) = port.configure()
        {
            self.remove_vport(number, &spec.name);
            return Err(PortError::Open { name: spec.name.clone(), cause: error.to_string() });
        }
        let number = port.info.number;
        ports.open.insert(number, port);
        Ok(number)
    }

    fn remove_port(&self, port: PortNo) -> Result<(), PortError> {
        let removed = lock(&self.ports).open.remove(&port);
        let removed = removed.ok_or_else(|| PortError::NotFound(port.to_string()))?;
        if let Some(number) = self.shared.numbering.to_kernel(port) {
            self.remove_vport(number, &removed.info.name);
        }
        self.remove_tunnel_device(&removed.info.name);
        Ok(())
    }

    fn ports(&self) -> Vec<PortInfo> {
        lock(&self.ports).open.values().map(|port| port.info.clone()).collect()
    }

    fn device(&self, port: PortNo) -> Option<Arc<dyn Device>> {
        lock(&self.ports).open.get(&port).and_then(|port| port.device.clone())
    }

    fn set_policing(&self, port: PortNo, policing: Policing) -> Result<(), PortError> {
        let device = self.device(port).ok_or_else(|| PortError::NotFound(port.to_string()))?;
        police(&*device, policing).map_err(|error| PortError::Option {
            name: device.name().to_owned(),
            problem: format!("ingress policing by TC failed ({error})"),
        })
    }
}

impl Flows for KernelDatapath {
    fn install(&self, flow: &Megaflow) -> Result<(), Refusal> {
        let mut table = self.table.lock();
        if table.contains_key(&flow.ufid) {
            return Err(Refusal::Exists);
        }
        self.put(flow)?;
        let held = Held {
            flow: flow.clone(),
            earlier: FlowStats::default(),
            last: FlowStats::default(),
            // The sweep that runs now may have passed its place already.
            seen: self.sweeps.load(Ordering::Acquire),
        };
        table.insert(flow.ufid, held);
        Ok(())
    }

    fn closed_mask(&self, key: &Key, mask: &Mask) -> Mask {
        Numbering::with_tags(key, mask)
    }

    fn modify(&self, ufid: Ufid, actions: &Actions) -> bool {
        let shared = &self.shared;
        let mut table = self.table.lock();
        let Some(held) = table.get_mut(&ufid) else { return false };
        let flow = Megaflow { actions: Arc::clone(actions), ..held.flow.clone() };
        let Ok((matching, encoded)) = self.encode(&flow) else { return false };
        let request = shared.flows().modify(ufid, &matching, &encoded);
        match shared.with_socket(|socket| socket.transact(request, |_, _| {})) {
            Ok(_) => {}
            // Another program removed it.
            Err(error) if error.errno() == Some(Errno::NOENT.raw_os_error()) => {
                held.earlier = held.last;
                if self.put(&flow).is_err() {
                    return false;
                }
            }
            Err(_) => return false,
        }
        held.flow = flow;
        true
    }

    fn remove(&self, ufid: Ufid) -> Option<FlowStats> {
        let shared = &self.shared;
        let mut table = self.table.lock();
        let mut held = table.remove(&ufid)?;
        let removed = shared.with_socket(|socket| shared.flows().remove(socket, ufid));
        Some(match removed {
            Ok(stats) => held.total(stats.on_clock(shared.ahead())),
            Err(error) => {
                if error.errno() != Some(Errno::NOENT.raw_os_error()) {
                    tracing::warn!(
                        target: "dpif_netlink",
                        "{}: a megaflow stays in the kernel ({error}); run \"ovs-appctl \
                         dpctl/del-flows\"",
                        self.name,
                    );
                }
                held.last
            }
        })
    }

    fn flow(&self, ufid: Ufid) -> Option<FlowDump> {
        let mut table = self.table.lock();
        let held = table.get_mut(&ufid)?;
        let stats = self.read(held);
        Some(KernelDatapath::dump_of(held, stats))
    }

    fn sweep(&self, each: &mut dyn FnMut(Ufid, FlowStats)) {
        let shared = &self.shared;
        let number = self.sweeps.fetch_add(1, Ordering::AcqRel) + 1;
        let ahead = shared.ahead();
        let mut read: Vec<(Ufid, KernelStats)> = Vec::new();
        let dumped = shared.with_socket(|socket| {
            shared.flows().sweep(socket, |ufid, stats| read.push((ufid, stats)))
        });
        let mut all = Vec::with_capacity(read.len());
        {
            let mut table = self.table.lock();
            for (ufid, stats) in read {
                let Some(held) = table.get_mut(&ufid) else { continue };
                held.seen = held.seen.max(number);
                all.push((ufid, held.total(stats.on_clock(ahead))));
            }
        }
        match dumped {
            Ok(()) => all.extend(self.put_back(number)),
            Err(error) => {
                tracing::debug!(target: "dpif_netlink", "{}: the dump failed ({error})", self.name);
            }
        }
        all.into_iter().for_each(|(ufid, stats)| each(ufid, stats));
    }

    fn dump(&self) -> Vec<FlowDump> {
        self.sweep(&mut |_, _| {});
        self.table.lock().values().map(|held| KernelDatapath::dump_of(held, held.last)).collect()
    }

    fn flush(&self) {
        let shared = &self.shared;
        let mut table = self.table.lock();
        table.clear();
        if let Err(error) =
            shared.with_socket(|socket| socket.transact(shared.flows().flush(), |_, _| {}))
        {
            tracing::warn!(
                target: "dpif_netlink",
                "{}: megaflows stay in the kernel ({error}); run \"ovs-dpctl del-flows\"",
                self.name,
            );
        }
    }
}

impl Packets for KernelDatapath {
    fn set_upcall_factory(&self, factory: Arc<dyn UpcallFactory>) {
        // Called once, by the contract.
        let _ = self.shared.factory.set(factory);
    }

    fn execute(&self, packet: Packet, key: &Key, actions: &[Action]) {
        let lent = self.shared.with_socket(|socket| {
            self.shared.run(socket, &packet, key, actions, Remainder::default());
            Ok(())
        });
        if lent.is_err() {
            self.shared.count_drops(DropReason::OutputError, 1);
        }
    }

    /// The kernel looks the packet up as after a recirculation to 0.
    fn inject(&self, packet: Packet, port: PortNo) {
        let key = flow::extract::key_of(packet.data(), port.0);
        self.execute(packet, &key, &[Action::Recirc(0)]);
    }
}

impl Counters for KernelDatapath {
    fn lookups(&self) -> LookupStats {
        let shared = &self.shared;
        let stats = shared.with_socket(|socket| shared.instance().stats(socket, &shared.families));
        let stats = stats.unwrap_or_default();
        LookupStats {
            hits: stats.hits,
            misses: stats.misses,
            lost: stats.lost,
            mask_hits: stats.mask_hits,
            cache_hits: stats.cache_hits,
            masks: stats.masks as usize,
            flows: usize::try_from(stats.flows).unwrap_or(usize::MAX),
        }
    }

    fn drops(&self, reason: DropReason) -> u64 {
        let own = self.shared.drops.get(reason as usize);
        let own = own.map_or(0, |count| count.load(Ordering::Relaxed));
        match reason {
            DropReason::UpcallLimit => own + self.lookups().lost,
            _ => own,
        }
    }
}

impl Datapath for KernelDatapath {
    fn name(&self) -> &str {
        &self.name
    }

    fn meters(&self) -> Option<&dyn Meters> {
        Some(self)
    }

    fn connections(&self) -> Option<&dyn Connections> {
        None
    }

    fn supports(&self, action: &Action) -> bool {
        // Every port that an action names may be the kernel's.
        actions::encode(std::slice::from_ref(action), Numbering::default()).is_ok()
    }

    fn maintain(&self) {
        self.inspect();
    }

    fn shutdown(&self) {
        lock(&self.handlers).stop();
    }
}

impl Drop for KernelDatapath {
    fn drop(&mut self) {
        self.shutdown();
    }
}

impl KernelDatapath {
    /// Returns true when the megaflow is on the list.
    pub fn holds(&self, ufid: Ufid) -> bool {
        self.table.lock().contains_key(&ufid)
    }

    /// Returns true after [`Datapath::shutdown`].
    pub(crate) fn is_stopped(&self) -> bool {
        lock(&self.handlers).are_stopped()
    }

    /// Returns true when no upcall waits for a thread, and none is being answered. Packets that arrive
    /// meanwhile may change that at once.
    pub fn is_idle(&self) -> bool {
        lock(&self.handlers).are_idle()
    }

    /// Returns true for kinds of ports that this datapath has.
    pub fn has_kind(kind: PortKind) -> bool {
        port::kind_of(kind).is_some()
    }
}
