// SPDX-License-Identifier: Apache-2.0
//! The three faces of an open device: [`Queue`] for packet threads, [`Sender`] for everybody,
//! [`Device`] for the control side.

use crate::pool::PacketPool;
use crate::spec::Kind;
use crate::status::{DeviceStats, Status};
use packet::Packet;
use std::io;
use std::ops::AddAssign;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// One receive endpoint of an open device; owned by one packet thread at a time.
///
/// It may be sent to another thread between two calls.
pub trait Queue: Send {
    /// Descriptor that becomes readable when [`Queue::recv`] may return packets (level
    /// triggered: stay with it until `recv` returned fewer packets than asked for); `None` for
    /// devices that need no polling (dummy).
    fn poll_fd(&self) -> Option<BorrowedFd<'_>>;

    /// Receives at most `max` packets, appended to `out`, buffers taken from `pool`. Returns how
    /// many; 0 means that there is nothing now, or that the device is down. Never blocks.
    ///
    /// # Errors
    ///
    /// The device is gone (`ENODEV`) or its descriptor is broken: the queue will never deliver
    /// again; take it out of the poll set. Packets appended before the error remain valid.
    fn recv(
        &mut self,
        out: &mut Vec<Packet>,
        pool: &mut PacketPool,
        max: usize,
    ) -> io::Result<usize>;
}

/// The sending side, shareable by all packet threads and the control thread.
pub trait Sender: Send + Sync {
    /// Sends a batch in order. A packet that could not be sent is dropped and counted by
    /// reason. Never blocks for traffic and never fails as a whole.
    fn send(&self, packets: &[Packet]) -> SendReport;
}

/// Frames that were received and not handed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnDrops {
    /// Above the limit of [`Device::set_policing`].
    pub policed: u64,
    /// Their parts contradict each other, or the kernel cannot describe them.
    pub malformed: u64,
}

/// What became of a batch given to [`Sender::send`]; the sum of all members is the batch's
/// length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendReport {
    /// Handed to the device.
    pub sent: u64,
    /// The device's queue was full (`EAGAIN`, `ENOBUFS`).
    pub dropped_full: u64,
    /// Longer than the device's MTU allows (`EMSGSIZE`).
    pub dropped_too_long: u64,
    /// The device was down or gone (`ENETDOWN`, `EIO`, `ENXIO`, `ENODEV`).
    pub dropped_down: u64,
    /// No Ethernet frame, or offload metadata that contradicts the frame.
    pub dropped_malformed: u64,
    /// Any other error of the kernel.
    pub dropped_error: u64,
}

impl SendReport {
    /// All packets that were not sent.
    pub fn dropped(&self) -> u64 {
        self.dropped_full
            + self.dropped_too_long
            + self.dropped_down
            + self.dropped_malformed
            + self.dropped_error
    }

    /// What became of one packet, of what became of the frames that it was cut into: it was sent when
    /// all of them were.
    pub(crate) fn of_one(frames: &SendReport) -> SendReport {
        let mut one = SendReport::default();
        let fates = [
            (frames.dropped_too_long, &mut one.dropped_too_long),
            (frames.dropped_down, &mut one.dropped_down),
            (frames.dropped_malformed, &mut one.dropped_malformed),
            (frames.dropped_error, &mut one.dropped_error),
            (frames.dropped_full, &mut one.dropped_full),
        ];
        match fates.into_iter().find(|(count, _)| *count > 0) {
            Some((_, fate)) => *fate = 1,
            None => one.sent = 1,
        }
        one
    }

    /// Counts one packet that the kernel refused with `error`.
    pub(crate) fn count_error(&mut self, error: &io::Error) {
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => self.dropped_full += 1,
            Some(libc::EMSGSIZE) => self.dropped_too_long += 1,
            Some(
                libc::ENETDOWN
                | libc::EIO
                | libc::ENXIO
                | libc::ENODEV
                | libc::EBADFD
                | libc::ENETUNREACH,
            ) => self.dropped_down += 1,
            Some(libc::EINVAL) => self.dropped_malformed += 1,
            _ => self.dropped_error += 1,
        }
    }
}

impl AddAssign for SendReport {
    fn add_assign(&mut self, o: SendReport) {
        self.sent += o.sent;
        self.dropped_full += o.dropped_full;
        self.dropped_too_long += o.dropped_too_long;
        self.dropped_down += o.dropped_down;
        self.dropped_malformed += o.dropped_malformed;
        self.dropped_error += o.dropped_error;
    }
}

/// A device that [`crate::open`] opened. Drop all members to close it.
pub struct Opened {
    /// Receive queues, at least one.
    pub queues: Vec<Box<dyn Queue>>,
    /// The sending side.
    pub sender: Arc<dyn Sender>,
    /// The control side.
    pub device: Arc<dyn Device>,
}

/// What a device's receive queue gets; see [`Device::set_receiving`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Reception {
    /// Everything that arrives.
    #[default]
    On,
    /// Nothing; the kernel throws each packet's copy away before it is made.
    Muted,
    /// Nothing; the kernel does not even look.
    Off,
}

/// The control side of an open device. Calls make system calls that take microseconds to
/// milliseconds; do not make them on packet threads.
pub trait Device: Send + Sync {
    /// Name given in [`crate::OpenSpec::name`].
    fn name(&self) -> &str;

    /// What it is.
    fn kind(&self) -> Kind;

    /// The kernel's index of the interface; `None` when there is no interface (dummy without
    /// `options:ifindex`), or when it is gone.
    fn ifindex(&self) -> Option<u32>;

    /// Reads the present state.
    ///
    /// # Errors
    ///
    /// `ENODEV` when the interface is gone. That of a system or `AF_XDP` device is, for good, when
    /// it was deleted or moved to another namespace: what comes back, perhaps with its index, is to
    /// be opened anew.
    fn status(&self) -> io::Result<Status>;

    /// Reads the counters, as the switch sees them: "rx" is what came into the switch through
    /// this device. (The kernel's own counters of a tap or internal port read the other way
    /// round.)
    ///
    /// # Errors
    ///
    /// `ENODEV` when the interface is gone.
    fn stats(&self) -> io::Result<DeviceStats>;

    /// What the switch's own side of the device dropped of what it received; known also when the
    /// interface is gone.
    fn own_drops(&self) -> OwnDrops {
        OwnDrops::default()
    }

    /// Sets the MTU: bytes of a frame without its Ethernet header and one VLAN tag.
    ///
    /// # Errors
    ///
    /// What the kernel said, mostly `EINVAL` for a value outside the driver's range.
    fn set_mtu(&self, mtu: u32) -> io::Result<()>;

    /// Sets the Ethernet address.
    ///
    /// # Errors
    ///
    /// What the kernel said, mostly `EADDRNOTAVAIL` for a multicast address.
    fn set_mac(&self, mac: [u8; 6]) -> io::Result<()>;

    /// Brings the device up or down.
    ///
    /// # Errors
    ///
    /// What the kernel said.
    fn set_admin_up(&self, up: bool) -> io::Result<()>;

    /// Limits what the queues deliver: a token bucket of `rate_kbps` (1,000 bits per second; 0
    /// means no limit) and `burst_kb` (1,000 bits; 0 means the default of 8,000), as
    /// `Interface:ingress_policing_rate` and `_burst` in `ovs-vswitchd.conf.db(5)`. Packets
    /// above the limit are dropped and counted in [`DeviceStats::rx_policed`].
    ///
    /// # Errors
    ///
    /// `Unsupported` for devices that cannot (dummy).
    fn set_policing(&self, rate_kbps: u64, burst_kb: u64) -> io::Result<()>;

    /// Whether the device's own receive queue gets what arrives (as when it was opened), or
    /// somebody else does: BPF programs that this port's packets go through. What waits in the
    /// queue already is delivered in any case, since it came before. Sending goes on.
    ///
    /// Between [`Reception::On`] and [`Reception::Muted`] it is an instant; to and from
    /// [`Reception::Off`] it takes some milliseconds (an RCU grace period), in which an open
    /// queue would lose packets: go by way of `Muted`.
    ///
    /// Tap and internal ports: nothing changes, because what the host sends arrives at their
    /// descriptor last of all, and only when nobody before it took it.
    ///
    /// # Errors
    ///
    /// `Unsupported` for `AF_XDP` and dummy devices; `ENODEV` when the interface is gone.
    fn set_receiving(&self, reception: Reception) -> io::Result<()> {
        let _ = reception;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// From the next [`Device::set_receiving`] on, what the queue gets while it receives is what
    /// `filter`, a BPF program for sockets, lets in. A packet that it does not is not copied.
    ///
    /// # Errors
    ///
    /// `Unsupported` for all but `AF_PACKET` devices.
    fn set_filter(&self, filter: BorrowedFd<'_>) -> io::Result<()> {
        let _ = filter;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Whether the interface stays when its last descriptor is closed, also by `kill -9`: see
    /// [`crate::OpenSpec::persistent`], which says what `owner` is. `None` before dropping the
    /// device deletes the interface for good.
    ///
    /// Only an interface that the switch created is changed; one that somebody else created
    /// stays as it is, and that is no error.
    ///
    /// # Errors
    ///
    /// `Unsupported` for devices that are neither tap nor internal.
    fn set_persistent(&self, owner: Option<&str>) -> io::Result<()> {
        let _ = owner;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Numbers of the queues for what is sent, as OpenFlow tells them; none without QoS.
    fn transmit_queues(&self) -> Vec<u32> {
        Vec::new()
    }
}
