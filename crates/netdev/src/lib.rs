// SPDX-License-Identifier: Apache-2.0
//! Network devices: opening them, moving packets, reading and changing their state.
//!
//! # Overview
//!
//! A *device* is the object underneath a port of the switch:
//!
//! * a Linux network interface reached by an `AF_PACKET` socket ([`Kind::System`]);
//! * an interface that the switch creates by `/dev/net/tun` ([`Kind::Internal`], [`Kind::Tap`]);
//! * an interface reached by `AF_XDP` sockets ([`Kind::AfXdp`]);
//! * a device without any kernel object ([`Kind::Dummy`]).
//!
//! [`open()`] returns an [`Opened`]: receive [`Queue`]s for packet threads, one [`Sender`] for all
//! threads, and a [`Device`] for the control side. The device lives as long as any of the three.
//! When all are dropped its descriptors are closed, which removes the kernel objects that were
//! created (an internal port's interface, an XDP program). The kernel does this even after
//! `kill -9`. Only interfaces with [`OpenSpec::persistent`] remain.
//!
//! In addition there are [`tap::Tap`], by which BPF programs pass packets to the switch,
//! [`XdpProber`], which reads the properties of an interface that matter to XDP, [`routing`], which
//! follows the kernel's routes and neighbours, [`TunnelDevice`], a tunnel device of the kernel
//! whose packets BPF programs take, and [`SegmenterDevices`], which segment packets for them.
//!
//! # Invariants
//!
//! * No bytes that a device delivers make this crate panic. A frame too short to be Ethernet is
//!   dropped and counted, never passed on.
//! * Unfinished checksums and segmentation travel as [`packet::Offload`] and are never lost: a
//!   sender that cannot pass them to the kernel finishes them in software ([`finish`]) before the
//!   frame leaves.
//! * Every frame given to [`Sender::send`] is counted once in the [`SendReport`].
//! * No call blocks for traffic: receivers and senders return at once.
//! * Everything happens in the network namespace of the thread that called [`open()`], also later on
//!   other threads, because each device keeps the sockets that it opened then.
//!
//! # Which side it errs on
//!
//! For a receiver, a device that is administratively down is not an error, because it may come up
//! again by itself. A device that is gone is an error. A frame whose offload metadata contradicts
//! its bytes is dropped and counted.
//!
//! # Known limitations
//!
//! * The host's own stack also receives the frames that arrive on a `system` device, as with Open
//!   vSwitch's userspace datapath. Remove the addresses of an interface that is a port.
//! * `AF_XDP` has no receive or transmit offload; see [`xdp`].

mod afpacket;
mod bpf;
mod btf;
mod device;
pub mod dummy;
mod egress;
pub mod ethtool;
mod filter;
pub mod finish;
mod gso_filter;
mod headers;
pub mod ingress_police;
mod kernel;
pub mod link;
mod mapping;
mod monitor;
mod namespace;
mod netlink;
mod netns_monitor;
mod offloads;
mod open;
mod open_error;
mod orphan;
mod packet_queue;
mod packet_reader;
mod packet_ring;
mod packet_socket;
mod pcap;
pub mod police;
mod policer;
mod pool;
mod qos;
mod receive;
pub mod routing;
mod segmenter;
mod service;
mod socket_close;
mod spec;
mod status;
mod sys;
pub mod tap;
mod tap_interface;
mod tun;
mod tunnel_device;
mod vnet;
pub mod vport_device;
pub mod xdp;
mod xdp_probe;

pub use device::{Device, LinkSource, Opened, OwnDrops, Queue, Reception, SendReport, Sender};
pub use egress::{CaptureReader, Captures};
pub use filter::{ClsactHook, has_filter};
pub use monitor::{LinkEvent, LinkMonitor};
pub use netlink::{
    NetlinkCounters, NetlinkProtocol, join_netlink_group, netlink_counters, open_netlink,
};
pub use netns_monitor::{Endpoint, NetnsMonitor};
pub use offloads::{Offload, Offloads};
pub use open::open;
pub use open_error::OpenError;
pub use orphan::Owner;
pub use pcap::PcapWriter;
pub use policer::Policing;
pub use pool::PacketPool;
pub use qos::{QOS_TYPES, QUEUES, QosOptions, QosReport, QosRequest, QueueStats, queue_priority};
pub use segmenter::{SegmenterDevices, is_segmenter};
pub use service::{Service, ServiceSink};
pub use spec::{Kind, OpenSpec};
pub use status::{DeviceStats, DriverInfo, Duplex, Features, Status};
pub use sys::kernel_version;
pub use tap_interface::{persistent_interfaces, remove_persistent};
pub use tunnel_device::{
    Holder, TunnelDevice, TunnelDeviceError, TunnelDeviceSpec, is_tunnel_device,
};
pub use xdp_probe::{
    EndReader, Interface, Peer, XdpProbe, XdpProber, XdpPrograms, decode as decode_interface,
};
