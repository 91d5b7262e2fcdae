// SPDX-License-Identifier: Apache-2.0
//! The control side of every device that is a Linux interface.

use crate::device::{Device, LinkSource, OwnDrops, Reception};
use crate::ethtool::Ethtool;
use crate::link::{By, Change, Link, LinkClient, is_not_there};
use crate::namespace::{self, Identity};
use crate::packet_socket::ReceiveSocket;
use crate::policer::{EgressLimit, EgressPolicer, Policer, Policing};
use crate::qos::{
    EGRESS_POLICER, InterfaceQos, LinkLimits, QOS_TYPES, QosReport, QosRequest, QueueStats,
};
use crate::service::Service;
use crate::socket_close::PacketSocket;
use crate::spec::Kind;
use crate::status::{DeviceStats, Status};
use crate::{packet_socket, sys, tap_interface};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Returns the number of frames that the device's own socket has lost.
pub(crate) type Overrun = Box<dyn Fn() -> u64 + Send + Sync>;

/// A Linux interface. A tap or internal port is found again when it moves to another network
/// namespace, for example to a container: its descriptor continues to work there.
pub(crate) struct KernelDevice {
    name: String,
    kind: Kind,
    /// The network namespace where it was opened; `None`: unknown.
    home: Option<Identity>,
    /// Its last location in the network namespace where it was opened.
    location: Mutex<Arc<Location>>,
    /// The descriptor of a tap or internal port.
    tun: Option<Arc<OwnedFd>>,
    /// True when the switch created the interface of the tap or internal port, in this or an
    /// earlier run.
    ours: bool,
    /// A socket that the kernel unbinds when the interface is deleted or moved away; see
    /// [`packet_socket::is_bound`].
    presence: Option<Arc<PacketSocket>>,
    /// The receive socket of a system device.
    receive: Option<Arc<ReceiveSocket>>,
    overrun: Option<Overrun>,
    extra: Vec<(String, String)>,
    pub(crate) policer: Policer,
    qos: Mutex<InterfaceQos>,
    pub(crate) egress: Arc<EgressPolicer>,
    /// Number of frames that were received and could not be delivered.
    pub(crate) malformed: AtomicU64,
    /// The link state comes from registers.
    reads_registers: AtomicBool,
}

/// The location of an interface.
struct Location {
    client: LinkClient,
    ethtool: Option<Ethtool>,
    index: u32,
    /// It is not in the network namespace where it was opened.
    is_away: bool,
}

impl KernelDevice {
    /// Creates a device for interface `index` of the calling thread's network namespace, to which
    /// `client` belongs.
    pub(crate) fn new(name: &str, kind: Kind, client: LinkClient, index: u32) -> KernelDevice {
        // Without it, the status lacks driver and speed.
        let ethtool = Ethtool::new().ok();
        KernelDevice {
            name: name.to_owned(),
            kind,
            home: namespace::own().ok(),
            location: Mutex::new(Arc::new(Location { client, ethtool, index, is_away: false })),
            tun: None,
            ours: false,
            presence: None,
            receive: None,
            overrun: None,
            extra: Vec::new(),
            policer: Policer::new(),
            qos: Mutex::default(),
            egress: Arc::default(),
            malformed: AtomicU64::new(0),
            reads_registers: AtomicBool::new(false),
        }
    }

    pub(crate) fn with_tun(mut self, fd: Arc<OwnedFd>, ours: bool) -> KernelDevice {
        self.tun = Some(fd);
        self.ours = ours;
        self
    }

    /// Adds a socket of [`packet_socket::bound_socket`], which distinguishes the interface from a
    /// later one with the same index.
    pub(crate) fn with_presence(mut self, socket: Option<Arc<PacketSocket>>) -> KernelDevice {
        self.presence = socket;
        self
    }

    pub(crate) fn with_receive(mut self, socket: Arc<ReceiveSocket>) -> KernelDevice {
        self.receive = Some(socket);
        self
    }

    pub(crate) fn with_overrun(mut self, overrun: Overrun) -> KernelDevice {
        self.overrun = Some(overrun);
        self
    }

    pub(crate) fn with_extra(mut self, extra: Vec<(String, String)>) -> KernelDevice {
        self.extra = extra;
        self
    }

    fn location(&self) -> Arc<Location> {
        self.location.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Runs `act` on the interface. If the interface is not at its last location, searches it
    /// first. While it is in another network namespace, every call searches: an open socket there
    /// would keep the namespace, and with it the interface, alive after its other users end. A
    /// failed search (for example, too many open files) does not mean that the interface is gone;
    /// it is returned as the error.
    fn act<T>(&self, act: impl Fn(&Location) -> io::Result<T>) -> io::Result<T> {
        self.check_presence()?; // another interface must not be changed
        let mut result = act(&self.location());
        let Some(fd) = &self.tun else {
            return self.check_presence().and(result); // it may have left meanwhile
        };
        for attempt in 0..LOOKUPS {
            if !result.as_ref().is_err_and(is_not_there) {
                break;
            }
            if attempt > 0 {
                thread::sleep(LOOKUP_PAUSE);
            }
            match find_moved(fd, self.home) {
                Ok(found) if found.is_away => result = act(&found),
                Ok(found) => {
                    let found = Arc::new(found);
                    *self.location.lock().unwrap_or_else(PoisonError::into_inner) = found.clone();
                    result = act(&found);
                }
                Err(e) if is_not_there(&e) => {}
                Err(e) if e.raw_os_error() == Some(libc::EBADFD) => break, // deleted
                Err(e) => return Err(e),
            }
        }
        result
    }

    /// Returns `ENODEV` when the interface with this index is another one than the opened one, or
    /// has been in another network namespace since: the device's sockets receive nothing of it. It
    /// must be opened again.
    fn check_presence(&self) -> io::Result<()> {
        match &self.presence {
            Some(socket) if !packet_socket::is_bound(socket, self.location().index) => {
                Err(io::Error::from_raw_os_error(libc::ENODEV))
            }
            _ => Ok(()),
        }
    }

    fn link(&self) -> io::Result<Link> {
        self.act(Location::link)
    }

    fn status_at(&self, location: &Location) -> io::Result<Status> {
        let link = location.link()?;
        let ethtool = location.ethtool.as_ref();
        let driver = ethtool.and_then(|t| t.driver(&link.name).ok()).unwrap_or_default();
        let mode = ethtool.and_then(|t| t.link_mode(&link.name).ok()).unwrap_or_default();
        let mut link_up = link.link_up;
        if self.reads_registers.load(Ordering::Relaxed)
            && let Some(registers) = ethtool.and_then(|t| t.has_link(&link.name).ok())
        {
            link_up = registers;
        }
        let mut extra = self.extra.clone();
        if let (Some("veth"), Some(peer)) = (link.kind.as_deref(), link.linked) {
            extra.push(("peer_ifindex".to_owned(), peer.to_string()));
        }
        if let Some(offloads) = ethtool.and_then(|t| t.offloads(&link.name).ok()) {
            let sending = offloads.sending().into_iter();
            extra.extend(sending.map(|(name, is_on)| (name.to_owned(), is_on.to_string())));
        }
        Ok(Status {
            admin_up: link.admin_up,
            link_up,
            mac: link.mac,
            mtu: link.mtu,
            mtu_range: link.mtu_range,
            ifindex: Some(link.index),
            current_name: link.name,
            is_away: location.is_away,
            speed_bps: mode.speed_bps,
            duplex: mode.duplex,
            features: mode.features,
            driver,
            link_resets: link.carrier_changes,
            promiscuous: link.promiscuous,
            link_kind: link.kind,
            extra,
        })
    }

    fn own_qos(&self) -> MutexGuard<'_, InterfaceQos> {
        self.qos.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: Change<'_>) -> io::Result<()> {
        self.act(|p| p.client.change(By::Index(p.index), change))
    }

    /// Returns true when the interface still exists.
    pub(crate) fn is_present(&self) -> bool {
        !self.link().as_ref().is_err_and(is_not_there)
    }

    pub(crate) fn count_malformed(&self) {
        self.malformed.fetch_add(1, Ordering::Relaxed);
    }
}

impl Location {
    fn link(&self) -> io::Result<Link> {
        self.client.link(By::Index(self.index))
    }
}

/// Maximum number of lookups of an interface that exists and is not found, and the pause between
/// two of them. The interface is being moved, which takes the kernel some milliseconds, or was
/// renamed meanwhile.
const LOOKUPS: u32 = 50;
const LOOKUP_PAUSE: Duration = Duration::from_millis(1);

/// Finds the interface of a tun descriptor in any network namespace. If the interface was deleted,
/// the descriptor returns EBADFD.
fn find_moved(fd: &OwnedFd, home: Option<Identity>) -> io::Result<Location> {
    let name = tap_interface::current_name(fd)?;
    // SAFETY: no memory is passed; a non-negative result is a new descriptor.
    let namespace = unsafe {
        let n = sys::check(libc::ioctl(fd.as_raw_fd(), tap_interface::TUNGETDEVNETNS as _, 0))?;
        File::from_raw_fd(n)
    };
    let is_away = home.is_none_or(|home| namespace::identity(&namespace).ok() != Some(home));
    namespace::within(namespace.into(), move || {
        let client = LinkClient::new()?;
        let index = client.link(By::Name(&name))?.index;
        Ok(Location { client, ethtool: Ethtool::new().ok(), index, is_away })
    })
}

impl Device for KernelDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> Kind {
        self.kind
    }

    fn ifindex(&self) -> Option<u32> {
        self.link().ok().map(|link| link.index)
    }

    fn status(&self) -> io::Result<Status> {
        self.act(|location| self.status_at(location))
    }

    fn stats(&self) -> io::Result<DeviceStats> {
        let k = self.link()?.stats;
        let mut stats = match self.tun {
            None => k,
            // The switch receives the packets that the host sends through a tap.
            Some(_) => DeviceStats {
                rx_packets: k.tx_packets,
                tx_packets: k.rx_packets,
                rx_bytes: k.tx_bytes,
                tx_bytes: k.rx_bytes,
                rx_errors: k.tx_errors,
                tx_errors: k.rx_errors,
                rx_dropped: k.tx_dropped,
                tx_dropped: k.rx_dropped,
                // The kernel counts its receptions, which are the switch's transmissions.
                multicast: Some(0),
                collisions: Some(0),
                rx_length_errors: Some(0),
                rx_over_errors: Some(0),
                rx_crc_errors: Some(0),
                rx_frame_errors: Some(0),
                rx_fifo_errors: Some(0),
                rx_missed_errors: Some(0),
                tx_aborted_errors: Some(0),
                tx_carrier_errors: Some(0),
                tx_fifo_errors: Some(0),
                tx_heartbeat_errors: Some(0),
                tx_window_errors: Some(0),
                ..DeviceStats::default()
            },
        };
        let OwnDrops { policed, malformed } = self.own_drops();
        stats.rx_policed = Some(policed);
        let overrun = self.overrun.as_ref().map(|f| f());
        // Frames that the kernel counted as received and that the switch could not use. (A driver
        // that passes frames to AF_XDP counts those that find no room itself.)
        stats.rx_errors = stats.rx_errors.map(|n| n.saturating_add(malformed));
        let unseen = overrun.filter(|_| self.kind != Kind::AfXdp).unwrap_or(0);
        stats.rx_dropped = stats.rx_dropped.map(|n| n.saturating_add(unseen));
        stats.rx_malformed = Some(malformed);
        stats.rx_overrun = overrun;
        Ok(stats)
    }

    fn own_drops(&self) -> OwnDrops {
        let refused = self.receive.as_deref().map_or(0, ReceiveSocket::refused);
        let malformed = self.malformed.load(Ordering::Relaxed) + refused;
        OwnDrops { policed: self.policer.dropped(), malformed }
    }

    fn set_link_source(&self, source: LinkSource) {
        self.reads_registers.store(source == LinkSource::Registers, Ordering::Relaxed);
    }

    fn set_mtu(&self, mtu: u32) -> io::Result<()> {
        self.change(Change::Mtu(mtu))
    }

    fn set_mac(&self, mac: [u8; 6]) -> io::Result<()> {
        self.change(Change::Mac(mac))
    }

    fn set_admin_up(&self, up: bool) -> io::Result<()> {
        self.change(Change::AdminUp(up))
    }

    fn set_policing(&self, policing: Policing) -> io::Result<()> {
        self.policer.set(policing);
        Ok(())
    }

    fn set_qos(&self, qos: Option<&QosRequest>) -> io::Result<Vec<String>> {
        let policer = qos.filter(|request| request.kind == EGRESS_POLICER).map(EgressLimit::of);
        self.egress.set(None);
        self.own_qos().policer = None;
        let qos = qos.filter(|_| policer.is_none());
        let mut complaints = Vec::new();
        if self.kind != Kind::AfXdp {
            let link = match qos {
                None => LinkLimits::NONE,
                Some(_) => {
                    let status = self.status()?;
                    LinkLimits { mtu: status.mtu, speed: status.speed_bps }
                }
            };
            complaints = self.act(|p| self.own_qos().set(&p.client, p.index, qos, link))?;
        } else if qos.is_some() {
            let text =
                "AF_XDP sockets send past the disciplines of the kernel; egress-policer works";
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        let (limit, more) = policer.unzip();
        self.egress.set(limit);
        self.own_qos().policer = limit;
        complaints.extend(more.into_iter().flatten());
        Ok(complaints)
    }

    fn qos(&self) -> Option<QosReport> {
        self.own_qos().report()
    }

    fn qos_types(&self) -> &'static [&'static str] {
        // `egress-policer` is last.
        let alone = QOS_TYPES.len() - 1;
        QOS_TYPES.get(if self.kind == Kind::AfXdp { alone } else { 0 }..).unwrap_or_default()
    }

    fn transmit_queues(&self) -> Vec<u32> {
        self.own_qos().queues()
    }

    fn queue_stats(&self, queue: u32) -> Option<QueueStats> {
        let read = |p: &Location| Ok(self.own_qos().queue_stats(&p.client, p.index, queue));
        self.act(read).ok().flatten()
    }

    fn set_receiving(&self, reception: Reception) -> io::Result<()> {
        self.check_presence()?; // the call below binds the socket again
        match (&self.receive, &self.tun) {
            (Some(socket), _) => socket.set_receiving(self.location().index, &self.name, reception),
            (None, Some(_)) => Ok(()),
            (None, None) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    fn set_filter(&self, filter: BorrowedFd<'_>) -> io::Result<()> {
        self.receive.as_ref().ok_or(io::ErrorKind::Unsupported)?.set_filter(filter)
    }

    fn set_services(&self, services: &[Service]) -> io::Result<()> {
        self.receive.as_ref().ok_or(io::ErrorKind::Unsupported)?.set_services(services)
    }

    fn set_persistent(&self, owner: Option<&str>) -> io::Result<()> {
        let fd = self.tun.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        if !self.ours {
            return Ok(());
        }
        if let Some(owner) = owner {
            // First, so that no persistent interface lacks the mark.
            self.change(Change::Alias(&tap_interface::mark(&self.name, owner)))?;
            tap_interface::keep_neighbours(self.name());
        }
        tap_interface::set_persistent(fd, owner.is_some())
    }
}
