// SPDX-License-Identifier: Apache-2.0
//! The three interfaces of an open device: [`Queue`] for packet threads, [`Sender`] for all
//! threads, [`Device`] for the control side.

use crate::policer::Policing;
use crate::pool::PacketPool;
use crate::qos::{QosReport, QosRequest, QueueStats};
use crate::service::Service;
use crate::spec::Kind;
use crate::status::{DeviceStats, Status};
use packet::Packet;
use std::io;
use std::ops::AddAssign;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// A receive queue of an open device. One packet thread at a time owns it; it may move to another
/// thread between two calls.
pub trait Queue: Send {
    /// Returns the descriptor that becomes readable when [`Queue::recv`] may return packets. It is
    /// level triggered: call `recv` until it returns fewer packets than `max`. `None`: the device
    /// needs no polling (dummy).
    fn poll_fd(&self) -> Option<BorrowedFd<'_>>;

    /// Receives at most `max` packets and appends them to `out`, in buffers from `pool`. Returns
    /// their number; 0 means that no packet is there or that the device is down. Never blocks.
    ///
    /// # Errors
    ///
    /// The device is gone (`ENODEV`) or its descriptor is broken. The queue will never deliver
    /// again; the caller takes it out of the poll set. Packets appended before the error remain
    /// valid.
    fn recv(
        &mut self,
        out: &mut Vec<Packet>,
        pool: &mut PacketPool,
        max: usize,
    ) -> io::Result<usize>;
}

/// The sending side. Any thread may use it.
pub trait Sender: Send + Sync {
    /// Sends a batch in order. Drops a packet that cannot be sent and counts it by reason. Never
    /// blocks for traffic and never fails as a whole.
    fn send(&self, packets: &[Packet]) -> SendReport;
}

/// Counts of frames that the device received and did not deliver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnDrops {
    /// Frames above the limit of [`Device::set_policing`].
    pub policed: u64,
    /// Frames whose parts contradict each other, or that the kernel cannot describe.
    pub malformed: u64,
}

/// The result of [`Sender::send`] in packets. The sum of all members is the length of the batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendReport {
    /// Passed to the device.
    pub sent: u64,
    /// Dropped because the device's queue was full (`EAGAIN`, `ENOBUFS`).
    pub dropped_full: u64,
    /// Dropped because they exceed the device's MTU (`EMSGSIZE`).
    pub dropped_too_long: u64,
    /// Dropped because the device was down or gone (`ENETDOWN`, `EIO`, `ENXIO`, `ENODEV`).
    pub dropped_down: u64,
    /// Dropped because they are not Ethernet frames or their offload metadata contradicts the
    /// frame.
    pub dropped_malformed: u64,
    /// Dropped because they exceed the limit of an `egress-policer` ([`Device::set_qos`]).
    pub dropped_policed: u64,
    /// Dropped because of another error of the kernel.
    pub dropped_error: u64,
}

impl SendReport {
    /// Returns the number of packets that were not sent.
    pub fn dropped(&self) -> u64 {
        self.dropped_full
            + self.dropped_too_long
            + self.dropped_down
            + self.dropped_malformed
            + self.dropped_policed
            + self.dropped_error
    }

    /// Returns the report of one packet from that of the frames into which it was cut. The packet
    /// counts as sent if all of them were sent.
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
        self.dropped_policed += o.dropped_policed;
        self.dropped_error += o.dropped_error;
    }
}

/// An open device. It closes when all members are dropped.
pub struct Opened {
    /// Receive queues, at least one.
    pub queues: Vec<Box<dyn Queue>>,
    /// The sending side.
    pub sender: Arc<dyn Sender>,
    /// The control side.
    pub device: Arc<dyn Device>,
}

/// The packets that a device's receive queue gets; see [`Device::set_receiving`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Reception {
    /// All packets that arrive.
    #[default]
    On,
    /// All packets that arrive, for a short time: the socket makes no receive ring for it.
    Briefly,
    /// None. The socket's filter discards each packet before it is copied.
    Muted,
    /// None. The kernel does not run the filter either.
    Off,
}

impl Reception {
    /// Returns true when packets that arrive are received.
    pub fn is_on(self) -> bool {
        matches!(self, Reception::On | Reception::Briefly)
    }
}

/// The source of a device's link state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkSource {
    /// The carrier that the kernel reports, with an event for each change.
    #[default]
    Carrier,
    /// The registers of the PHY, or the driver's own check. Changes come without events.
    Registers,
}

/// The control side of an open device. Any thread may use it, except packet threads: its system
/// calls take microseconds to milliseconds.
pub trait Device: Send + Sync {
    /// Returns the name given in [`crate::OpenSpec::name`].
    fn name(&self) -> &str;

    /// Returns the kind of the device.
    fn kind(&self) -> Kind;

    /// Returns the kernel's index of the interface. `None`: there is no interface (dummy without
    /// `options:ifindex`), or it is gone.
    fn ifindex(&self) -> Option<u32>;

    /// Reads the present state.
    ///
    /// # Errors
    ///
    /// `ENODEV` when the interface is gone. A system or `AF_XDP` device is gone permanently when
    /// its interface was deleted or moved to another network namespace. If that interface comes
    /// back, even with the same index, it must be opened again.
    fn status(&self) -> io::Result<Status>;

    /// Reads the counters from the side of the switch: "rx" counts packets that entered the switch
    /// through this device. (The kernel's counters of a tap or internal port have the opposite
    /// direction.)
    ///
    /// # Errors
    ///
    /// `ENODEV` when the interface is gone.
    fn stats(&self) -> io::Result<DeviceStats>;

    /// Returns counters that only this kind of device has, by name (`INTEL_PORT_STATS_CUSTOM` of
    /// OpenFlow, `Interface:statistics`).
    fn custom_counters(&self) -> Vec<(String, u64)> {
        Vec::new()
    }

    /// Returns the received frames that the switch's side of the device dropped. Works after the
    /// interface is gone.
    fn own_drops(&self) -> OwnDrops {
        OwnDrops::default()
    }

    /// Sets the MTU, in bytes of a frame without its Ethernet header and one VLAN tag.
    ///
    /// # Errors
    ///
    /// The kernel's error, mostly `EINVAL` for a value outside the driver's range.
    fn set_mtu(&self, mtu: u32) -> io::Result<()>;

    /// Sets the Ethernet address.
    ///
    /// # Errors
    ///
    /// The kernel's error, mostly `EADDRNOTAVAIL` for a multicast address.
    fn set_mac(&self, mac: [u8; 6]) -> io::Result<()>;

    /// Brings the device up or down.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    fn set_admin_up(&self, up: bool) -> io::Result<()>;

    /// Sets the source of [`Status::link_up`]. Devices without an interface of the kernel ignore it.
    fn set_link_source(&self, source: LinkSource) {
        let _ = source;
    }

    /// Limits the rates at which queues deliver. Packets above a limit are dropped and counted in
    /// [`DeviceStats::rx_policed`]. A segmentation packet counts as the packets into which it is to be
    /// cut.
    ///
    /// # Errors
    ///
    /// `Unsupported` for dummy devices.
    fn set_policing(&self, policing: Policing) -> io::Result<()>;

    /// Sets the QoS of the egress; `None`: there is none. Call it with `None` also for a new port
    /// without QoS: a discipline that an earlier daemon left is then removed. Returns complaints
    /// about invalid values, for which defaults stand.
    ///
    /// # Errors
    ///
    /// The kernel's error, with a remedy when it lacks the discipline; `Unsupported` for a type that
    /// the device does not have. The device then has no QoS.
    fn set_qos(&self, qos: Option<&QosRequest>) -> io::Result<Vec<String>> {
        match qos {
            None => Ok(Vec::new()),
            Some(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Returns the QoS in force; `None` when the switch has set none.
    fn qos(&self) -> Option<QosReport> {
        None
    }

    /// Returns the types of QoS that the device may have, in the order of `qos/show-types`.
    fn qos_types(&self) -> &'static [&'static str] {
        &[]
    }

    /// Returns the counters of a transmit queue; `None` when the device has none.
    fn queue_stats(&self, queue: u32) -> Option<QueueStats> {
        let _ = queue;
        None
    }

    /// Sets whether the device's own receive queue gets the packets that arrive, as after the open,
    /// or BPF programs process the port's packets instead. Packets that wait in the queue already
    /// are delivered in any case. Sending continues.
    ///
    /// A change between [`Reception::On`] and [`Reception::Muted`] is immediate, except that the first
    /// [`Reception::On`] of a queue makes its ring, which takes milliseconds. A change to or
    /// from [`Reception::Off`] takes some milliseconds (an RCU grace period), in which an open
    /// queue would lose packets: change to `Muted` first.
    ///
    /// For tap and internal ports this has no effect: the descriptor is the last receiver of
    /// packets that the host sends, after all BPF programs.
    ///
    /// # Errors
    ///
    /// `Unsupported` for `AF_XDP` and dummy devices; `ENODEV` when the interface is gone.
    fn set_receiving(&self, reception: Reception) -> io::Result<()> {
        let _ = reception;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Sets the BPF socket program `filter`, effective from the next [`Device::set_receiving`].
    /// While the queue receives it gets the packets that the filter accepts; others are not copied.
    ///
    /// # Errors
    ///
    /// `Unsupported` for all but `AF_PACKET` devices.
    fn set_filter(&self, filter: BorrowedFd<'_>) -> io::Result<()> {
        let _ = filter;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Sets the services whose packets the queue of a shared device gets
    /// ([`crate::OpenSpec::is_shared`]).
    ///
    /// # Errors
    ///
    /// `Unsupported` for devices that are not shared, or the kernel's error.
    fn set_services(&self, services: &[Service]) -> io::Result<()> {
        let _ = services;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Sets whether the interface remains when its last descriptor is closed, also by `kill -9`.
    /// [`crate::OpenSpec::persistent`] defines `owner`. With `None`, the drop of the device deletes
    /// the interface permanently.
    ///
    /// Only an interface that the switch created is changed. For an interface of another program
    /// this does nothing and returns no error.
    ///
    /// # Errors
    ///
    /// `Unsupported` for devices that are neither tap nor internal.
    fn set_persistent(&self, owner: Option<&str>) -> io::Result<()> {
        let _ = owner;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Returns the OpenFlow numbers of the transmit queues; empty without QoS.
    fn transmit_queues(&self) -> Vec<u32> {
        Vec::new()
    }
}
