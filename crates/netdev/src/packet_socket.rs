// SPDX-License-Identifier: Apache-2.0
//! `AF_PACKET` sockets (packet(7)): creation, binding, and filters.

use crate::device::Reception;
use crate::gso_filter::GsoFilter;
use crate::packet_ring::{Frames, PacketRing};
use crate::service::{self, Service};
use crate::socket_close::PacketSocket;
use crate::spec::OpenSpec;
use crate::{link, sys};
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Requested buffer size of each socket, in bytes: 8 MiB.
const SOCKET_BUFFER: i32 = 8 << 20;

// include/uapi/linux/if_packet.h
const PACKET_IGNORE_OUTGOING: i32 = 23;

/// A protocol that no frame on an Ethernet device has: below 0x600 the kernel assigns only
/// `ETH_P_802_3` and `ETH_P_802_2` (`eth_type_trans`). It stands for "none", because a socket that
/// is bound to protocol 0 keeps the protocol that it had. The socket's handler is then only in a
/// list by protocol, which the kernel searches for frames that no earlier handler consumed, and no
/// frame runs it.
pub(crate) const NO_FRAME: u16 = 0x05ff;

fn address(index: u32, protocol: u16) -> libc::sockaddr_ll {
    // SAFETY: integers only; zero is valid.
    let mut a: libc::sockaddr_ll = unsafe { mem::zeroed() };
    a.sll_family = libc::AF_PACKET as u16;
    a.sll_protocol = protocol.to_be();
    a.sll_ifindex = index as i32; // the kernel's indices are positive ints
    a
}

fn new_socket() -> io::Result<PacketSocket> {
    sys::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_NONBLOCK, 0).map(PacketSocket::from)
}

/// A socket that receives the frames of an interface.
pub(crate) struct ReceiveSocket {
    /// Its ring, which is made when the socket is to receive for more than a short time. `None`:
    /// the kernel refuses it. It is dropped before the socket, because its mapping refers to the
    /// socket, and the last reference waits for the kernel.
    ring: OnceLock<Option<Ring>>,
    /// The frames that the ring is to have; `None`: those of a port's.
    ring_frames: Option<Frames>,
    fd: PacketSocket,
    /// The filter of BPF tiers; `None`: it receives all frames.
    filter: Mutex<Option<OwnedFd>>,
    /// The services whose packets the socket of a shared device gets; `None`: it gets all frames.
    services: Option<Mutex<Services>>,
    /// Number of frames that were lost, as far as the kernel's counter was read.
    lost: AtomicU64,
}

/// The services of a shared device.
#[derive(Default)]
struct Services {
    all: Vec<Service>,
    /// The socket receives now.
    is_on: bool,
}

struct Ring {
    frames: Mutex<PacketRing>,
    filter: GsoFilter,
}

type StepError = (&'static str, io::Error);

impl ReceiveSocket {
    /// Creates a socket, bound to no interface. It has protocol 0 until all options are set, so
    /// that no frame is received before.
    fn new(ring_frames: Option<Frames>, is_shared: bool) -> io::Result<ReceiveSocket> {
        let socket = new_socket()?;
        let fd = socket.as_fd();
        sys::set_option(fd, libc::SOL_PACKET, libc::PACKET_VNET_HDR, &1)?;
        sys::set_option(fd, libc::SOL_PACKET, libc::PACKET_AUXDATA, &1)?;
        sys::grow_buffer(fd, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, SOCKET_BUFFER);
        Ok(ReceiveSocket {
            ring: OnceLock::new(),
            ring_frames,
            fd: socket,
            filter: Mutex::default(),
            services: is_shared.then(Mutex::default),
            lost: AtomicU64::new(0),
        })
    }

    /// Opens a socket for all frames that are sent through interface `index`, which is called
    /// `name`, and that arrive there. Its ring has `frames`.
    pub(crate) fn of_sent(index: u32, name: &str, frames: Frames) -> io::Result<ReceiveSocket> {
        let socket = ReceiveSocket::new(Some(frames), false)?;
        socket.make_ring(name);
        socket.accept()?;
        sys::bind(socket.fd(), &address(index, libc::ETH_P_ALL as u16))?;
        Ok(socket)
    }

    /// Opens a socket for the frames of `link`, which is port `name`. If it is muted, it receives
    /// none until [`ReceiveSocket::set_receiving`]. If it is shared, it does not make the interface
    /// promiscuous, and receives none until [`ReceiveSocket::set_services`].
    pub(crate) fn open(link: &link::Link, spec: &OpenSpec) -> io::Result<ReceiveSocket> {
        let OpenSpec { name, muted, is_shared, .. } = spec;
        let socket = ReceiveSocket::new(None, *is_shared)?;
        sys::set_option(socket.fd(), libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, &1)?;
        // A socket without a protocol has no handler in the kernel. To take a handler away costs an
        // RCU grace period.
        if *muted {
            take_none(socket.fd())?;
        } else {
            socket.make_ring(name);
            socket.accept()?;
            sys::bind(socket.fd(), &address(link.index, libc::ETH_P_ALL as u16))?;
        }
        if *is_shared {
            return Ok(socket);
        }
        let membership = libc::packet_mreq {
            mr_ifindex: link.index as i32,
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        let option = libc::PACKET_ADD_MEMBERSHIP;
        sys::set_option(socket.fd(), libc::SOL_PACKET, option, &membership)?;
        Ok(socket)
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Returns the ring for reading.
    pub(crate) fn ring(&self) -> Option<MutexGuard<'_, PacketRing>> {
        let ring = self.ring.get()?.as_ref()?;
        Some(ring.frames.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Makes the ring if that was not tried before. A shared device has none: the filter of a ring
    /// can precede none of another kind.
    fn make_ring(&self, name: &str) {
        if self.services.is_some() {
            return;
        }
        self.ring.get_or_init(|| match self.try_ring() {
            Ok(ring) => Some(ring),
            Err((step, e)) => {
                tracing::info!(
                    target: "netdev",
                    "{name}: {step} failed ({e}): packets are received without a ring, which takes \
                     more CPU time",
                );
                None
            }
        });
    }

    fn try_ring(&self) -> Result<Ring, StepError> {
        let filter =
            GsoFilter::load().map_err(|e| ("loading the filter of the receive ring", e))?;
        let frames = match self.ring_frames {
            Some(frames) => PacketRing::new(self.fd(), frames),
            None => PacketRing::of_port(self.fd()),
        };
        let frames = frames.map_err(|e| ("making the receive ring", e))?;
        Ok(Ring { frames: Mutex::new(frames), filter })
    }

    /// Attaches the filters with which frames are received.
    fn accept(&self) -> io::Result<()> {
        if let Some(mut services) = self.services() {
            services.is_on = true;
            return sys::attach_filter(self.fd(), &mut service::filter(&services.all));
        }
        let filter = self.filter.lock().unwrap_or_else(PoisonError::into_inner);
        let filter = filter.as_ref().map(AsFd::as_fd);
        match (self.ring.get().and_then(Option::as_ref), filter) {
            (Some(ring), next) => {
                ring.filter.set_next(next)?;
                attach(self.fd(), ring.filter.program())
            }
            (None, Some(filter)) => attach(self.fd(), filter),
            (None, None) => take_all(self.fd()),
        }
    }

    /// Starts or stops the reception of the socket of port `name`: every frame, or those that the
    /// filter accepts. Frames that wait already stay.
    pub(crate) fn set_receiving(
        &self,
        index: u32,
        name: &str,
        reception: Reception,
    ) -> io::Result<()> {
        let protocol = match reception {
            Reception::Off => NO_FRAME,
            Reception::On | Reception::Briefly | Reception::Muted => libc::ETH_P_ALL as u16,
        };
        if reception.is_on() {
            // Both while the socket is muted, because they take milliseconds.
            if reception == Reception::On {
                self.make_ring(name);
            }
            sys::bind(self.fd(), &address(index, protocol))?;
            return self.accept();
        }
        take_none(self.fd())?;
        if let Some(mut services) = self.services() {
            services.is_on = false;
        }
        sys::bind(self.fd(), &address(index, protocol))
    }

    fn services(&self) -> Option<MutexGuard<'_, Services>> {
        let services = self.services.as_ref()?;
        Some(services.lock().unwrap_or_else(PoisonError::into_inner)) // a list and a flag
    }

    /// Sets the services whose packets the socket of a shared device gets.
    pub(crate) fn set_services(&self, services: &[Service]) -> io::Result<()> {
        let mut own = self.services().ok_or(io::ErrorKind::Unsupported)?;
        own.all = services.to_vec();
        if own.is_on {
            sys::attach_filter(self.fd(), &mut service::filter(&own.all))?;
        }
        Ok(())
    }

    /// Sets the filter of BPF tiers, effective from the next [`ReceiveSocket::set_receiving`].
    pub(crate) fn set_filter(&self, filter: BorrowedFd<'_>) -> io::Result<()> {
        let filter = filter.try_clone_to_owned()?;
        *self.filter.lock().unwrap_or_else(PoisonError::into_inner) = Some(filter);
        Ok(())
    }

    /// Counts a frame that did not fit.
    pub(crate) fn count_lost(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of frames that were lost because there was no room for them.
    pub(crate) fn lost(&self) -> u64 {
        // Reading the kernel's counter resets it.
        let (level, name) = (libc::SOL_PACKET, libc::PACKET_STATISTICS);
        let new = sys::option::<libc::tpacket_stats>(self.fd(), level, name)
            .map_or(0, |s| u64::from(s.tp_drops));
        self.lost.fetch_add(new, Ordering::Relaxed) + new
    }

    /// Returns the number of frames that the ring's filter refused, because the kernel cannot
    /// describe them.
    pub(crate) fn refused(&self) -> u64 {
        self.ring.get().and_then(Option::as_ref).map_or(0, |ring| ring.filter.refused())
    }
}

/// Attaches a filter that accepts no packet. It runs before a packet is copied.
fn take_none(fd: BorrowedFd<'_>) -> io::Result<()> {
    sys::attach_filter(fd, &mut [sys::ACCEPT_NOTHING])
}

/// Attaches a BPF program as the filter.
fn attach(fd: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    sys::set_option(fd, libc::SOL_SOCKET, libc::SO_ATTACH_BPF, &program.as_raw_fd())
}

fn take_all(fd: BorrowedFd<'_>) -> io::Result<()> {
    match sys::set_option(fd, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0) {
        // No filter was attached.
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        other => other,
    }
}

pub(crate) fn send_socket(index: u32) -> io::Result<PacketSocket> {
    let socket = bound_socket(index)?;
    let fd = socket.as_fd();
    sys::set_option(fd, libc::SOL_PACKET, libc::PACKET_VNET_HDR, &1)?;
    sys::grow_buffer(fd, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, SOCKET_BUFFER);
    Ok(socket)
}

/// Creates a socket on interface `index`, for [`is_bound`]. No packet is queued on it.
pub(crate) fn bound_socket(index: u32) -> io::Result<PacketSocket> {
    let socket = new_socket()?;
    sys::bind(socket.as_fd(), &address(index, 0))?;
    Ok(socket)
}

/// Returns true when a socket of [`bound_socket`] is still bound to its interface. The kernel
/// unbinds it permanently when the interface is deleted or moved to another network namespace. A
/// later interface may have the same index.
pub(crate) fn is_bound(socket: &PacketSocket, index: u32) -> bool {
    match sys::bound_to::<libc::sockaddr_ll>(socket.as_fd()) {
        Ok(address) => address.sll_ifindex == index as i32,
        Err(_) => true, // nothing shows that it is gone
    }
}
