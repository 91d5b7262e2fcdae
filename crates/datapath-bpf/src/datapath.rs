// SPDX-License-Identifier: Apache-2.0
//! [`BpfDatapath`]: the tables, the programs and their attachments together.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::mem::offset_of;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use clock::{Clock, Millis};
use datapath::offload::UpcallAccount;
use datapath::{
    Action, Actions, AdoptedPort, BondTable, BucketBytes, DropReason, FlowStats, Megaflow,
    MeterConfig, MeterStats, PortCounts, PortNo, Refusal, SequenceNumbers, Side, TunnelEndpoint,
    Ufid,
};
use packet::Mac;
use tunnel::Kind;

use crate::attach::{self, AttachPoint, Attached};
use crate::attachment::{
    AttachError, Attachment, Config, Held, HookSet, Hooks, Totals, Unavailable, XdpMode,
};
use crate::ct_memory::BpfMemory;
use crate::flows::Flows;
use crate::grace::Grace;
use crate::layout::{ConfigEntry, Counters, MAX_PORTS, PORT_DEVMAP, PORT_SPLIT, TunnelKind, word};
use crate::load::Hook;
use crate::maps::Maps;
use crate::object::UserObject;
use crate::open::{self, Opened};
use crate::pins::Pins;
use crate::ports::Sequence;
use crate::settings::{FEATURE_STACK, Needs};
use crate::variant::{Station, Variants};
use crate::{bonds, layout, meters, options, ports, sys};
use leaving::Leaving;

mod leaving;
mod rx_owner;
mod segmenter;
mod tracking;
mod tunnel_helper;
mod user;

/// The programs that are attached for one port.
struct Attachments {
    attachment: Attachment,
    /// Programs on its interface, by hook.
    programs: HashMap<Hook, Attached>,
}

/// Name of the program at the miss device.
const UP: &str = "entry_tc_up";

/// The flow table, the ports and the meters that BPF programs run by. Any thread may call the
/// methods. Those that attach, detach, remove, load or maintain take milliseconds, the others a
/// microsecond.
pub struct BpfDatapath {
    flows: Flows,
    variants: Variants,
    pins: Option<Arc<Pins>>,
    devmap: Option<OwnedFd>,
    endpoints: Option<OwnedFd>,
    adopted: Option<Vec<AdoptedPort>>,
    adopted_tunnels: Vec<(PortNo, tunnel::PortConfig)>,
    upcall_limit: u32,
    /// Packets that went up and found no room in the miss device.
    lost_on_the_way: AtomicU64,
    clock: Clock,
    ports: Mutex<BTreeMap<u32, Attachments>>,
    /// Programs at devices that are no ports any more. Lock order: after `ports`.
    leaving: Mutex<Vec<Leaving>>,
    /// Packets of each port that had gone up when the miss device was last found empty. Apart from
    /// `ports`, which is held while programs are attached: misses do not wait for that.
    gone_up: Mutex<HashMap<u32, u64>>,
    /// Users' programs for XDP, by port. Lock order: after `ports`.
    objects: Mutex<BTreeMap<u32, UserObject>>,
    /// Tunnel devices of the kernel, by the tunnel's port.
    helpers: Mutex<BTreeMap<u32, tunnel_helper::Helper>>,
    segmenter: Mutex<Option<segmenter::Segments>>,
    /// Held while bonds change.
    bonds: Mutex<()>,
    /// Bands of each meter, and when it was set.
    meters: Mutex<BTreeMap<u32, (usize, Millis)>>,
    /// The program at the miss device.
    at_miss_device: Mutex<Option<Attached>>,
    closed: Mutex<bool>,
    /// VLAN tags that the programs parse; see [`flow::extract::set_vlan_limit`].
    vlan_limit: AtomicUsize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

/// Returns the kind under which programs know a tunnel; `None`: they neither pop it nor number its packets.
fn tunnel_kind(config: &tunnel::PortConfig) -> Option<TunnelKind> {
    match config.kind {
        Kind::Vxlan if config.has_group_policy => Some(TunnelKind::VxlanGbp),
        Kind::Vxlan => Some(TunnelKind::Vxlan),
        Kind::Geneve => Some(TunnelKind::Geneve),
        Kind::Gre | Kind::Ip6Gre => Some(TunnelKind::Gre),
        Kind::Erspan | Kind::Ip6Erspan => Some(TunnelKind::Erspan),
        Kind::Gtpu => Some(TunnelKind::Pushed),
        Kind::Bareudp | Kind::Lisp | Kind::Srv6 | Kind::Stt => None,
    }
}

impl BpfDatapath {
    /// Creates the tables and loads the programs, but attaches nothing. Takes over pinned maps of
    /// the same layout and sizes with their flows and ports, and removes other pinned maps. Takes
    /// about a second, most of it in the verifier. Waits up to 3 s for a daemon that still uses the
    /// pins.
    ///
    /// # Errors
    ///
    /// Fails when this host cannot run the programs, or another daemon uses the pins. XDP programs
    /// that cannot be loaded are no error: the datapath then has the skb hook alone.
    pub fn open(config: Config, clock: Clock) -> Result<BpfDatapath, Unavailable> {
        let pins = config.pins.as_deref().map(Pins::open).transpose()?;
        BpfDatapath::open_over(config, clock, pins.map(Arc::new), None)
    }

    /// Does [`BpfDatapath::open`] with `pins` that the caller has locked, in place of those of
    /// `config`, and with programs that track connections in `connections`, the memory of the table
    /// that the daemon tracks by. Without it flows with a `ct` are refused ([`Refusal::CtTable`]).
    ///
    /// # Errors
    ///
    /// As [`BpfDatapath::open`].
    pub fn open_over(
        config: Config,
        clock: Clock,
        pins: Option<Arc<Pins>>,
        connections: Option<&BpfMemory>,
    ) -> Result<BpfDatapath, Unavailable> {
        let opened = open::open(&config, clock.clone(), pins.as_deref(), connections)?;
        let Opened { flows, variants, devmap, endpoints, adopted } = opened;
        if connections.is_some() {
            flows.track_connections();
        }
        let adopted_tunnels = match &adopted {
            Some(_) => ports::list_tunnels(flows.maps()),
            None => Vec::new(),
        };
        let left = pins.as_deref().zip(adopted.as_ref());
        let leaving =
            left.map_or_else(Vec::new, |(pins, ports)| leaving::without_port(pins, ports));
        Ok(BpfDatapath {
            flows,
            variants,
            pins,
            devmap,
            endpoints,
            adopted,
            adopted_tunnels,
            upcall_limit: config.upcall_limit,
            lost_on_the_way: AtomicU64::new(0),
            clock,
            ports: Mutex::default(),
            leaving: Mutex::new(leaving),
            gone_up: Mutex::default(),
            objects: Mutex::default(),
            helpers: Mutex::default(),
            segmenter: Mutex::default(),
            bonds: Mutex::default(),
            meters: Mutex::default(),
            at_miss_device: Mutex::default(),
            closed: Mutex::new(false),
            vlan_limit: AtomicUsize::new(flow::extract::vlan_limit()),
        })
    }

    /// Returns true when the tables of an earlier daemon were taken over.
    pub fn was_adopted(&self) -> bool {
        self.adopted.is_some()
    }

    /// Returns a line for each optional program that the kernel refused: the reason and the
    /// consequence.
    pub fn refused_programs(&self) -> Vec<String> {
        let refused = self.variants.stations().iter().flat_map(|station| &station.refused);
        refused.map(ToString::to_string).collect()
    }

    /// Returns the ports in tables that were taken over, as the earlier daemon left them. The
    /// caller attaches those that it wants again, and detaches the others.
    pub fn adopted_ports(&self) -> Vec<AdoptedPort> {
        self.adopted.clone().unwrap_or_default()
    }

    /// Returns the tunnel ports in such tables.
    pub fn adopted_tunnels(&self) -> Vec<(PortNo, tunnel::PortConfig)> {
        self.adopted_tunnels.clone()
    }

    fn maps(&self) -> &Maps {
        self.flows.maps()
    }

    fn station(&self, hook: Hook) -> Option<&Station> {
        self.variants.stations().iter().find(|s| s.hook == hook)
    }

    /// Returns a program by its name, such as "entry_tc_ingress"; of a lookup program, the full
    /// variant.
    pub fn program(&self, name: &str) -> Option<BorrowedFd<'_>> {
        self.variants.stations().iter().find_map(|s| s.programs.get(name)).map(AsFd::as_fd)
    }

    /// Returns a hook's map by its name.
    pub fn map(&self, hook: Hook, name: &str) -> Option<BorrowedFd<'_>> {
        self.station(hook)?.maps.get(name).map(AsFd::as_fd)
    }

    /// Returns the bytes of `struct state` of each possible CPU at a hook, for tests of the
    /// programs.
    ///
    /// # Errors
    ///
    /// Fails when the hook's programs are not loaded, or the map cannot be read.
    pub fn states(&self, hook: Hook) -> io::Result<Vec<Vec<u8>>> {
        let map = self.map(hook, "states").ok_or(io::ErrorKind::NotFound)?;
        sys::per_cpu(map, 0, sys::map_info(map)?.value_size as usize)
    }

    /// Attaches a port, or changes how it is attached.
    ///
    /// # Errors
    ///
    /// Returns the first hook that the kernel refused, or the limit that the port exceeds. The port
    /// is then as it was, or detached.
    pub fn attach(&self, port: PortNo, to: &Attachment) -> Result<(), AttachError> {
        if port.0 >= MAX_PORTS {
            return Err(AttachError::PortNumber(port));
        }
        if to.side == Side::Stack && to.hooks.xdp.is_some() {
            return Err(AttachError::XdpAtStack(to.ifindex));
        }
        let mut held = lock(&self.ports);
        self.leave_interface(&mut held, port.0, to);
        if to.side == Side::Stack {
            self.variants.admit(Needs { words: 0, features: FEATURE_STACK });
        }
        // The first packet of the hook finds the port.
        ports::put(self.maps(), port.0, to, self.upcall_limit);
        let is_hooked = to.hooks != Hooks::default();
        if is_hooked && let Err(e) = ports::add_interface(self.maps(), to.ifindex, port.0) {
            self.detach_held(&mut held, port.0);
            return Err(e);
        }
        let entry = held
            .entry(port.0)
            .or_insert_with(|| Attachments { attachment: *to, programs: HashMap::new() });
        lock(&self.gone_up).entry(port.0).or_insert(0);
        self.flows.refresh_port(port.0);
        let before = std::mem::replace(&mut entry.attachment, *to);
        let done = self
            .attach_tc(port.0, to, &before, entry)
            .and_then(|()| self.attach_xdp(port.0, to, &before, entry));
        if done.is_err() {
            self.detach_held(&mut held, port.0);
        } else if !is_hooked {
            ports::remove_interface(self.maps(), to.ifindex, port.0);
        }
        done
    }

    /// Leaves what another interface, or another side, has of this port.
    fn leave_interface(&self, held: &mut BTreeMap<u32, Attachments>, port: u32, to: &Attachment) {
        let old = self.maps().ports.read(port as usize);
        let is_same = old.ifindex == to.ifindex && ports::side_of(old.flags) == to.side;
        let other = old.ifindex != 0 && !is_same;
        if other {
            self.detach_held(held, port);
        }
    }

    fn attach_tc(
        &self,
        port: u32,
        to: &Attachment,
        before: &Attachment,
        entry: &mut Attachments,
    ) -> Result<(), AttachError> {
        let name = entry_name(to.side);
        if let Some(attached) = self.take_back(port, to.ifindex, to.side) {
            entry.programs.insert(Hook::Tc, attached);
        }
        let is_moved = to.hooks.after_filters != before.hooks.after_filters;
        if to.hooks.tc && (is_moved || to.hooks.after_filters) {
            return self.attach_anew(port, to, name, entry);
        }
        if !to.hooks.tc {
            self.leave_hook(Hook::Tc, port, entry);
            return Ok(());
        }
        if entry.programs.contains_key(&Hook::Tc) {
            return Ok(());
        }
        let program = self.program(name).ok_or_else(|| missing(to.ifindex, "tc"))?;
        let pin = self.pins.as_ref().map(|pins| pins.link(port, Hook::Tc));
        let attached = AttachPoint { program, ifindex: to.ifindex, pin }.tc(to.side)?;
        if self.was_adopted() && matches!(attached, Attached::Link { .. }) {
            // An earlier daemon may have had the port after the filters of others.
            attach::remove_filter(program, to.ifindex, to.side);
        }
        entry.programs.insert(Hook::Tc, attached);
        Ok(())
    }

    /// Attaches to the other kind of place at the skb hook, or to the place after the filters of others,
    /// where an earlier daemon may have left a link. Each packet meets one of the two programs in
    /// between: the first one takes it.
    fn attach_anew(
        &self,
        port: u32,
        to: &Attachment,
        name: &str,
        entry: &mut Attachments,
    ) -> Result<(), AttachError> {
        let program = self.program(name).ok_or_else(|| missing(to.ifindex, "tc"))?;
        let pin = self.pins.as_ref().map(|pins| pins.link(port, Hook::Tc));
        let place = |pin| AttachPoint { program, ifindex: to.ifindex, pin };
        let is_filter = matches!(entry.programs.get(&Hook::Tc), Some(Attached::Filter { .. }));
        if to.hooks.after_filters {
            let filter = place(None).filter(to.side)?;
            match entry.programs.insert(Hook::Tc, filter) {
                Some(Attached::Filter { .. }) => {} // the same one
                Some(link) => link.detach(program),
                None => pin.iter().for_each(|pin| attach::release_pin(pin)),
            }
            return Ok(());
        }
        let attached = place(pin).tc(to.side)?;
        if is_filter && matches!(attached, Attached::Link { .. }) {
            attach::remove_filter(program, to.ifindex, to.side);
        }
        entry.programs.insert(Hook::Tc, attached);
        Ok(())
    }

    fn attach_xdp(
        &self,
        port: u32,
        to: &Attachment,
        before: &Attachment,
        entry: &mut Attachments,
    ) -> Result<(), AttachError> {
        let Some(mode) = to.hooks.xdp else {
            self.leave_hook(Hook::Xdp, port, entry);
            ports::set_generic(self.maps(), to.ifindex, port, false);
            return Ok(());
        };
        if entry.programs.contains_key(&Hook::Xdp) {
            if before.hooks.xdp == Some(mode) {
                return Ok(());
            }
            self.leave_hook(Hook::Xdp, port, entry);
        }
        let pin = self.pins.as_ref().map(|pins| {
            let (driver, generic) = (pins.link(port, Hook::Xdp), pins.generic_link(port));
            let (pin, other) = match mode {
                XdpMode::Driver => (driver, generic),
                XdpMode::Generic => (generic, driver),
            };
            attach::release_pin(&other); // the kernel has one of them at a time
            pin
        });
        // The next hook gets the port's mode before its first packet, and after the last one.
        ports::set_generic(self.maps(), to.ifindex, port, mode == XdpMode::Generic);
        let objects = lock(&self.objects);
        let users = objects.get(&port).map(|object| object.program.as_fd());
        let program =
            users.or(self.program("entry_xdp")).ok_or_else(|| missing(to.ifindex, "XDP"))?;
        let attached = AttachPoint { program, ifindex: to.ifindex, pin }.xdp(mode)?;
        entry.programs.insert(Hook::Xdp, attached);
        Ok(())
    }

    /// Detaches one hook, also what a former daemon attached.
    fn leave_hook(&self, hook: Hook, port: u32, entry: &mut Attachments) {
        let program = self.program(hook.lookup());
        match (entry.programs.remove(&hook), program) {
            (Some(attached), Some(program)) => attached.detach(program),
            _ => self.release_links(port, hook),
        }
    }

    /// Detaches what is pinned for one hook of a port.
    fn release_links(&self, port: u32, hook: Hook) {
        let Some(pins) = &self.pins else { return };
        attach::release_pin(&pins.link(port, hook));
        if hook == Hook::Xdp {
            attach::release_pin(&pins.generic_link(port));
        }
    }

    /// Adds a port of a tunnel. Returns false when programs do not pop such tunnels.
    pub fn add_tunnel(&self, port: PortNo, config: &tunnel::PortConfig) -> bool {
        let Some(kind) = tunnel_kind(config).filter(|_| port.0 < MAX_PORTS) else { return false };
        // Packets from such a tunnel have fields that the words must carry.
        let has_room = || self.flows.add_option(options::ERSPAN).is_ok();
        let kind = match kind {
            TunnelKind::Erspan if !has_room() => TunnelKind::Pushed,
            kind => kind,
        };
        ports::put_tunnel(self.maps(), port.0, kind, config, self.upcall_limit);
        kind != TunnelKind::Pushed
    }

    /// Returns the sequence numbers of a tunnel port that was added; `None`: programs do not number its
    /// packets.
    pub fn sequence(&self, port: PortNo) -> Option<Arc<dyn SequenceNumbers>> {
        let is_known = ports::is_tunnel(self.maps(), port.0);
        is_known.then(|| Arc::new(Sequence::new(self.flows.shared_maps(), port.0)) as _)
    }

    /// Detaches a port and forgets its user's program. Packets that are sent to the port are
    /// dropped.
    pub fn detach(&self, port: PortNo) {
        if port.0 < MAX_PORTS {
            let mut held = lock(&self.ports);
            self.forget(&mut held, port.0);
        }
    }

    fn forget(&self, held: &mut BTreeMap<u32, Attachments>, port: u32) {
        self.detach_held(held, port);
        if lock(&self.objects).remove(&port).is_some() {
            let _ = self.flows.limit(PortNo(port), None); // nothing to wait for
        }
    }

    fn detach_held(&self, held: &mut BTreeMap<u32, Attachments>, port: u32) {
        let old = self.maps().ports.read(port as usize);
        let side = ports::side_of(old.flags);
        lock(&self.gone_up).remove(&port);
        match held.remove(&port) {
            Some(mut entry) => {
                self.leave_hook(Hook::Xdp, port, &mut entry);
                if !self.is_leaving(port) {
                    self.leave_hook(Hook::Tc, port, &mut entry);
                }
            }
            None if old.ifindex != 0 => self.detach_adopted(port, old.ifindex, side),
            None => {}
        }
        if old.flags & PORT_DEVMAP != 0
            && let Err(e) = self.set_devmap_held(port, false)
        {
            tracing::warn!(target: "dpif", "port {port} stays a target of XDP redirects ({e})");
        }
        ports::remove_interface(self.maps(), old.ifindex, port);
        ports::clear(self.maps(), port);
        self.flows.refresh_port(port);
    }

    /// Detaches what a former daemon attached and this one did not, apart from a program that is to be
    /// detached later.
    fn detach_adopted(&self, port: u32, ifindex: u32, side: Side) {
        self.release_links(port, Hook::Xdp);
        if self.is_leaving(port) {
            return; // a link, so there is no filter
        }
        self.release_links(port, Hook::Tc);
        if let Some(program) = self.program(entry_name(side)) {
            attach::remove_filter(program, ifindex, side);
        }
    }

    /// Changes a port's MTU and whether it may be sent to.
    pub fn set_port(&self, port: PortNo, mtu: u32, up: bool) {
        let mut held = lock(&self.ports);
        if let Some(entry) = held.get_mut(&port.0) {
            (entry.attachment.mtu, entry.attachment.up) = (mtu, up);
            ports::set(self.maps(), port.0, mtu, up);
            self.flows.refresh_port(port.0);
        }
    }

    /// Makes a port a target of XDP redirects (`there`), or ends that.
    ///
    /// # Errors
    ///
    /// Fails when the port is not attached, when there is no XDP, or when the kernel does not take
    /// the device as a target.
    pub fn set_devmap(&self, port: PortNo, there: bool) -> io::Result<()> {
        if port.0 >= MAX_PORTS {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let _one_at_a_time = lock(&self.ports);
        self.set_devmap_held(port.0, there)
    }

    fn set_devmap_held(&self, port: u32, there: bool) -> io::Result<()> {
        let devmap = self.devmap.as_ref().ok_or(io::ErrorKind::Unsupported)?.as_fd();
        if !there {
            ports::set_flag(self.maps(), port, PORT_DEVMAP, false);
            self.flows.refresh_port(port);
            return sys::unset(devmap, port);
        }
        let ifindex = self.maps().ports.load_half(port as usize, 0);
        if ifindex == 0 {
            return Err(io::ErrorKind::NotFound.into());
        }
        if !ports::takes_split(self.maps(), port) {
            self.set_whole_only(true);
        }
        sys::set(devmap, port, ifindex)?;
        ports::set_flag(self.maps(), port, PORT_DEVMAP, true);
        self.flows.refresh_port(port);
        Ok(())
    }

    /// Sets the addresses to which packets of tunnels come. Ports of [`Side::Underlay`] take these
    /// packets, and leave all others to the host's stack.
    ///
    /// # Errors
    ///
    /// The kernel's error, mostly that the table is full; some of the addresses are missing then.
    pub fn set_tunnel_endpoints(&self, all: &[TunnelEndpoint]) -> io::Result<()> {
        let _one_at_a_time = lock(&self.ports);
        let map = self.endpoints.as_ref().ok_or(io::ErrorKind::NotFound)?.as_fd();
        let wanted: BTreeSet<layout::TunnelEndpoint> = all.iter().map(endpoint).collect();
        let present: BTreeSet<layout::TunnelEndpoint> = sys::keys(map)?.into_iter().collect();
        for gone in present.difference(&wanted) {
            sys::delete(map, gone)?;
        }
        wanted.difference(&present).try_for_each(|new| sys::insert(map, new, &1u32))
    }

    /// Sets whether XDP may redirect frames in several buffers to a port, once the port is a target
    /// of redirects. A newly attached port takes none.
    pub fn set_split_target(&self, port: PortNo, takes_them: bool) {
        if port.0 < MAX_PORTS {
            let _one_at_a_time = lock(&self.ports);
            if !takes_them {
                self.set_whole_only(true);
            }
            ports::set_flag(self.maps(), port.0, PORT_SPLIT, takes_them);
        }
    }

    /// Has frames for `mac` enter the other end of an attached port's veth pair at once, in the
    /// network namespace there; `None`: all frames pass the port's device. Each
    /// [`BpfDatapath::attach`] ends it.
    pub fn set_peer(&self, port: PortNo, mac: Option<Mac>) {
        let held = lock(&self.ports);
        if held.contains_key(&port.0) {
            ports::set_peer(self.maps(), port.0, mac);
        }
    }

    /// Sets whether a port exists that must not receive redirected frames in several buffers. The
    /// programs get the flag before such a port exists. [`BpfDatapath::maintain`] clears it after
    /// the last such port is gone.
    fn set_whole_only(&self, is_so: bool) {
        self.maps().config.store_half(0, offset_of!(ConfigEntry, whole_only), is_so.into());
    }

    /// Sets the interface index of the tap through which packets go up. 0: there is none, and no
    /// packet goes up.
    ///
    /// Attaches the program that prepares copies at the device. When the kernel refuses the program, no
    /// flow with a sample is taken.
    pub fn set_miss_device(&self, ifindex: u32) {
        let attached = match self.program(UP) {
            Some(program) if ifindex != 0 => {
                let attached = AttachPoint { program, ifindex, pin: None }.tc(Side::Stack);
                attached
                    .inspect_err(|e| {
                        tracing::warn!(target: "dpif", "flows with samples run in userspace: {e}");
                    })
                    .ok()
            }
            _ => None,
        };
        self.flows.take_samples(attached.is_some());
        *lock(&self.at_miss_device) = attached;
        self.maps().config.store_half(0, offset_of!(ConfigEntry, miss_ifindex), ifindex);
    }

    /// Records that the daemon took `count` packets of `port` from the miss device.
    pub fn note_taken(&self, port: PortNo, count: u64) {
        if port.0 < MAX_PORTS {
            ports::note_taken(self.maps(), port.0, count);
        }
    }

    /// Stops packets of `port` that this account pays for from going up before `until_nanos`
    /// (nanoseconds, `CLOCK_MONOTONIC`). Until then programs drop and count them. 0 ends that.
    pub fn hold_back(&self, port: PortNo, account: UpcallAccount, until_nanos: u64) {
        if port.0 < MAX_PORTS {
            ports::hold_back(self.maps(), port.0, account, until_nanos);
        }
    }

    /// Returns the number of packets of `port` that went up and were not taken yet.
    pub fn on_their_way(&self, port: PortNo) -> u64 {
        if port.0 < MAX_PORTS { ports::on_their_way(self.maps(), port.0) } else { 0 }
    }

    /// Accounts for an empty miss device: stops waiting for packets that were lost on the way.
    /// Packets that went up since the previous call may have arrived since then; the datapath still
    /// waits for those. Counts `lost` packets that found no room in the device.
    pub fn resync_taken(&self, lost: u64) {
        let most = u64::from(self.upcall_limit / 2);
        for (port, gone_up) in lock(&self.gone_up).iter_mut() {
            *gone_up = ports::give_up(self.maps(), *port, *gone_up, most);
        }
        self.lost_on_the_way.fetch_add(lost, Ordering::Relaxed);
    }

    /// Adds a flow at those of its possible hooks that are `allowed`, and returns these hooks,
    /// which are never none.
    ///
    /// # Errors
    ///
    /// Returns the reason why no allowed hook can run the flow, or the table that is full. The
    /// flows are unchanged.
    pub fn install(&self, flow: &Megaflow, allowed: HookSet) -> Result<HookSet, Refusal> {
        self.check_keys()?;
        self.flows.install(flow, allowed, |needs| self.variants.admit(needs))
    }

    /// Packets must have the same keys here as in translation.
    fn check_keys(&self) -> Result<(), Refusal> {
        if self.vlan_limit() == flow::extract::vlan_limit() {
            Ok(())
        } else {
            Err(Refusal::UnsupportedKey)
        }
    }

    /// Returns how many VLAN tags the programs parse. While [`flow::extract::vlan_limit`] returns
    /// another number, no flow is taken.
    pub fn vlan_limit(&self) -> usize {
        self.vlan_limit.load(Ordering::Acquire)
    }

    /// Makes the programs parse the number of VLAN tags that [`flow::extract::vlan_limit`] returns.
    /// Removes the present flows, because their keys have the earlier limit. The caller must load
    /// the users' programs again. The call takes as long as loading the programs did. Forwarding
    /// goes on meanwhile, without flows.
    ///
    /// # Errors
    ///
    /// Fails when the programs cannot be loaded or put in place. No flow is taken then until a
    /// later call succeeds.
    pub fn follow_vlan_limit(&self) -> Result<(), Unavailable> {
        let limit = flow::extract::vlan_limit();
        if self.vlan_limit() == limit {
            return Ok(());
        }
        let mut old = Vec::with_capacity(self.len());
        self.sweep(&mut |ufid, _| old.push(ufid));
        self.remove_many(&old, &mut |_, _| {});
        let tags = limit as u32; // at most VLANS
        self.variants.set_vlan_limit(tags, self.maps().next_generation())?;
        // A packet whose key was made by the old programs must not meet a new flow.
        let system = |source| Unavailable::System { step: "waiting for programs".into(), source };
        Grace::new().and_then(|grace| grace.wait()).map_err(system)?;
        self.maps().config.store_half(0, offset_of!(ConfigEntry, vlan_limit), tags);
        self.vlan_limit.store(limit, Ordering::Release);
        Ok(())
    }

    /// Replaces a flow's actions; its statistics go on. Adds the flow when it is not there.
    ///
    /// # Errors
    ///
    /// Returns the reason of the refusal, as [`BpfDatapath::install`] does. The old actions stay.
    pub fn replace(&self, flow: &Megaflow, allowed: HookSet) -> Result<HookSet, Refusal> {
        self.check_keys()?;
        self.flows.replace(flow, allowed, |needs| self.variants.admit(needs))
    }

    /// Removes flows, waits for a grace period, and calls `each` with their final statistics.
    pub fn remove_many(&self, ufids: &[Ufid], each: &mut dyn FnMut(Ufid, FlowStats)) {
        self.flows.remove_many(ufids, each);
    }

    /// Calls `each` with the statistics of every flow. `each` may call methods of the datapath.
    pub fn sweep(&self, each: &mut dyn FnMut(Ufid, FlowStats)) {
        self.flows.sweep(each);
    }

    /// Calls `each` with the statistics of every flow whose statistics changed since the last call
    /// of this method.
    pub fn sweep_moved(&self, each: &mut dyn FnMut(Ufid, FlowStats)) {
        self.flows.sweep_moved(each);
    }

    /// Returns a flow with its statistics; `None`: there is no such flow. Reads the exact-match
    /// caches of all CPUs, which takes up to milliseconds.
    pub fn flow(&self, ufid: Ufid) -> Option<Held> {
        self.flows.flow(ufid)
    }

    /// Returns a flow with statistics that may lack packets since the last sweep; `None`: there is
    /// no such flow.
    pub fn flow_as_swept(&self, ufid: Ufid) -> Option<Held> {
        self.flows.flow_as_swept(ufid)
    }

    /// Returns a flow's actions in the contract's terms; `None`: there is no such flow. Nested lists
    /// at the end of a list become part of that list.
    pub fn actions(&self, ufid: Ufid) -> Option<Vec<Action>> {
        self.flows.actions(ufid)
    }

    /// Returns all flows, for people.
    pub fn dump(&self) -> Vec<(Ufid, Held)> {
        self.flows.dump()
    }

    /// Returns the number of flows.
    pub fn len(&self) -> usize {
        self.flows.len()
    }

    /// Returns true when there are no flows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns true when the present flow has the same encoding as `actions`.
    pub fn encodes_alike(&self, ufid: Ufid, actions: &Actions) -> bool {
        self.flows.encodes_alike(ufid, actions)
    }

    /// Returns the counters of the whole datapath.
    pub fn counters(&self) -> Totals {
        let mut sum = Totals {
            hits: self.flows.hits(),
            masks: self.flows.masks(),
            flows: self.flows.len(),
            ..Totals::default()
        };
        for shard in 0..self.maps().counters.len() {
            let c = self.maps().counters.read(shard);
            for (to, from) in sum.drops.iter_mut().zip(c.drops) {
                *to = to.wrapping_add(from);
            }
            sum.walked = sum.walked.wrapping_add(c.walked);
            sum.masks_visited = sum.masks_visited.wrapping_add(c.masks);
            sum.found = sum.found.wrapping_add(c.found);
            sum.up = sum.up.wrapping_add(c.up);
            sum.passed = sum.passed.wrapping_add(c.passed);
            sum.evicted = sum.evicted.wrapping_add(c.evicted);
        }
        if let Some(limited) = sum.drops.get_mut(DropReason::UpcallLimit as usize) {
            *limited = limited.wrapping_add(self.lost_on_the_way.load(Ordering::Relaxed));
        }
        sum
    }

    /// Returns the counters of a port whose packets no device counts: an internal or tap port. All
    /// counts of other ports are zero.
    pub fn port_counts(&self, port: PortNo) -> PortCounts {
        if port.0 >= MAX_PORTS {
            return PortCounts::default();
        }
        ports::stats(self.maps(), port.0)
    }

    /// Restarts the counters of a port from zero.
    pub fn forget_counts(&self, port: PortNo) {
        if port.0 < MAX_PORTS {
            ports::clear_stats(self.maps(), port.0);
        }
    }

    /// Sets or replaces the table of a bond.
    ///
    /// # Errors
    ///
    /// Refuses a number that is no port's, and one bond more than there is room for.
    pub fn set_bond(&self, id: u32, table: &BondTable) -> Result<(), Refusal> {
        let _one_at_a_time = lock(&self.bonds);
        bonds::set(self.maps(), id, table)
    }

    /// Removes a bond. Packets of flows that name it are dropped.
    pub fn remove_bond(&self, id: u32) {
        let _one_at_a_time = lock(&self.bonds);
        bonds::remove(self.maps(), id);
    }

    /// Returns the bytes that each bucket of a bond has sent; `None`: there is no such bond.
    pub fn bond_bytes(&self, id: u32) -> Option<BucketBytes> {
        bonds::bytes(self.maps(), id)
    }

    /// Returns the bonds in tables that were taken over.
    pub fn adopted_bonds(&self) -> Vec<(u32, BondTable)> {
        let maps = self.maps();
        let all = bonds::ids(maps).into_iter();
        all.filter_map(|id| Some((id, bonds::table(maps, id)?))).collect()
    }

    /// Sets or replaces a meter; its statistics begin at zero.
    ///
    /// # Errors
    ///
    /// Refuses a number or a list of bands that is too large, and a rate of zero. The meter is then
    /// as it was.
    pub fn set_meter(&self, id: u32, config: &MeterConfig) -> Result<(), Refusal> {
        let mut held = lock(&self.meters);
        meters::set(&self.maps().meters, id, config)?;
        held.insert(id, (config.bands.len(), self.clock.now()));
        Ok(())
    }

    /// Removes a meter and returns its last statistics; `None`: it was not set. Packets of flows
    /// that name it pass.
    pub fn remove_meter(&self, id: u32) -> Option<MeterStats> {
        let stats = self.meter_stats(id);
        meters::remove(&self.maps().meters, id);
        lock(&self.meters).remove(&id);
        stats
    }

    /// Returns the statistics of a meter; `None`: it was not set.
    pub fn meter_stats(&self, id: u32) -> Option<MeterStats> {
        let (bands, since) = *lock(&self.meters).get(&id)?;
        let stats = meters::stats(&self.maps().meters, id, bands)?;
        Some(MeterStats { since, ..stats })
    }

    /// Does the deferred work: frees the slots of removed flows, and fits the lookup programs to
    /// the present flows. One thread calls it about twice a second.
    pub fn maintain(&self) {
        self.flows.reclaim();
        {
            let _held = lock(&self.ports); // held for every change of a port's flags
            self.set_whole_only(ports::has_whole_only(self.maps()));
        }
        let counters = &self.maps().counters;
        let missed = (0..counters.len()).map(|shard| {
            let Counters { found, evicted, .. } = counters.read(shard);
            found.wrapping_add(evicted)
        });
        let keys = self.variants.keys(self.flows.len(), self.emc_lines(), missed);
        self.maps().fit_cache(keys);
        if self.maps().fit_emc(keys) {
            self.variants.caches_start_again();
        }
        self.variants.choose(self.needs(), || self.maps().next_generation());
        // Flows that came while a variant was loaded.
        self.variants.admit(self.needs().0);
    }

    fn needs(&self) -> (Needs, [u64; crate::layout::WORDS]) {
        let (mut needs, union) = self.flows.needs();
        needs.words |= 1 << word::RECIRC | 1 << word::PORT;
        if ports::has_stack(self.maps()) {
            needs.features |= FEATURE_STACK;
        }
        (needs, union)
    }

    /// Returns the needs that the present lookup programs serve.
    pub fn variant(&self) -> Needs {
        self.variants.active()
    }

    /// Returns the number of lines of each CPU's exact-match cache that are used.
    pub fn emc_lines(&self) -> u32 {
        self.maps().emc_used()
    }

    /// Returns the number of variants of the programs that were loaded so far, those of earlier
    /// daemons over the same tables included.
    pub fn variants_loaded(&self) -> u32 {
        self.maps().config.load_half(0, offset_of!(ConfigEntry, generations))
    }

    /// Ends the datapath. With `cleanup`, or without pins, detaches all programs and leaves
    /// nothing. Otherwise everything goes on without this process.
    pub fn close(&self, cleanup: bool) {
        let mut closed = lock(&self.closed);
        if std::mem::replace(&mut *closed, true) {
            return;
        }
        self.set_miss_device(0);
        if cleanup {
            while self.finish_detaching() {}
        } else {
            self.leave_all();
        }
        if !cleanup && self.pins.is_some() {
            // No thread follows the conditions until the next daemon attaches the ports.
            for port in ports::list(self.maps()) {
                ports::set_peer(self.maps(), port.number.0, None);
            }
            return;
        }
        let mut held = lock(&self.ports);
        for port in ports::list(self.maps()) {
            self.detach_held(&mut held, port.number.0);
        }
        if let Some(pins) = &self.pins {
            pins.remove();
        }
    }
}

impl Drop for BpfDatapath {
    fn drop(&mut self) {
        self.close(false);
    }
}

/// Returns an address in the form of the programs.
fn endpoint(from: &TunnelEndpoint) -> layout::TunnelEndpoint {
    let address = match from.address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    layout::TunnelEndpoint {
        address: address.octets(),
        port: from.service.port.to_be_bytes(),
        protocol: from.service.protocol,
        pad: 0,
    }
}

fn entry_name(side: Side) -> &'static str {
    match side {
        Side::Device => "entry_tc_ingress",
        Side::Stack => "entry_tc_egress",
        Side::Underlay => "entry_tc_underlay",
    }
}

fn missing(ifindex: u32, hook: &'static str) -> AttachError {
    AttachError::Kernel { ifindex, hook, source: io::ErrorKind::Unsupported.into() }
}
