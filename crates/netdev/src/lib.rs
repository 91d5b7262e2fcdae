// SPDX-License-Identifier: Apache-2.0
//! Network devices: opening them, moving packets, reading and changing their state.
//!
//! # What it is
//!
//! A *device* is anything a port of the switch can stand on: a Linux network interface reached
//! by an `AF_PACKET` socket ([`Kind::System`]), an interface that we create by `/dev/net/tun`
//! ([`Kind::Internal`], [`Kind::Tap`]), an interface reached by `AF_XDP` sockets
//! ([`Kind::AfXdp`]), and a device without any kernel behind it ([`Kind::Dummy`]).
//! [`open`] gives an [`Opened`]: receive [`Queue`]s for packet threads, one [`Sender`] for
//! everybody, and a [`Device`] for the control side. The device lives as long as any of the
//! three; dropping all of them closes its descriptors and so removes what was created (an
//! internal port's interface, an XDP program): the kernel does this even after `kill -9`. Only
//! what [`OpenSpec::persistent`] asks for stays.
//!
//! Beside devices there are [`tap::Tap`], by which BPF programs send packets up, and
//! [`Surveyor`], which tells what XDP would meet on an interface.
//!
//! # Invariants
//!
//! * No bytes that a device delivers make this crate panic. A frame too short to be Ethernet is
//!   dropped and counted, never passed on.
//! * Unfinished checksums and segmentation travel as [`packet::Offload`] and are never lost: a
//!   sender that cannot hand them to the kernel finishes them in software ([`finish`]) before
//!   the frame leaves.
//! * Every frame given to [`Sender::send`] is counted once in the [`SendReport`].
//! * No call blocks for traffic: receivers and senders return at once.
//! * Everything happens in the network namespace of the thread that called [`open`], also later
//!   on other threads, because each device keeps the sockets it opened then.
//!
//! # Which side it errs on
//!
//! A device that is administratively down is not an error for a receiver (it may come up again
//! by itself); a device that is gone is. A frame whose offload metadata contradicts its bytes
//! is dropped and counted, not guessed at.
//!
//! # What we know it does not do
//!
//! * The host's own stack also sees what arrives on a `system` device, as with Open vSwitch's
//!   userspace datapath: take the addresses off an interface that is a port.
//! * `AF_XDP` has no receive or transmit offload; see [`xdp`].

mod afpacket;
mod device;
pub mod dummy;
pub mod ethtool;
pub mod finish;
mod headers;
mod kernel;
pub mod link;
mod monitor;
mod namespace;
mod netlink;
mod netns_monitor;
mod offloads;
mod open;
mod open_error;
mod orphan;
mod packet_socket;
mod pcap;
mod policer;
mod pool;
mod receive;
mod spec;
mod status;
mod sys;
pub mod tap;
mod tap_interface;
mod tun;
mod vnet;
pub mod xdp;
mod xdp_probe;

pub use device::{Device, Opened, OwnDrops, Queue, Reception, SendReport, Sender};
pub use monitor::{LinkEvent, LinkMonitor};
pub use netns_monitor::{Endpoint, NetnsMonitor};
pub use offloads::Offloads;
pub use open::open;
pub use open_error::OpenError;
pub use orphan::Owner;
pub use pcap::PcapWriter;
pub use pool::PacketPool;
pub use spec::{Kind, OpenSpec};
pub use status::{DeviceStats, DriverInfo, Duplex, Features, Status};
pub use tap_interface::{persistent_interfaces, remove_persistent};
pub use xdp_probe::{
    Interface, Peer, XdpProbe, XdpProber, XdpPrograms, decode as decode_interface,
};
