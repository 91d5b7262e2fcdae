// SPDX-License-Identifier: Apache-2.0
//! A tap interface that only the switch reads. BPF programs pass packets to the switch by
//! redirecting them to it, because a packet's segmentation and unfinished checksum are kept that
//! way.
//!
//! # Overview
//!
//! [`Tap::open`] creates an interface that vanishes with the process. It is up, with the largest
//! MTU that the kernel allows (65,521 bytes or more), and without ARP, multicast and IPv6
//! addresses, so the host sends nothing there by itself. A packet socket with a ring receives what
//! is sent through the interface; the tap's own descriptor accepts nothing, so the kernel counts
//! each packet as dropped by the interface as well. [`Tap::recv`] returns the data unchanged: the
//! frame with any bytes that the programs put before it, and the `struct virtio_net_hdr` of both.
//!
//! The offsets in the header count from the first byte of the data. The caller removes the part
//! before the real frame and then calls [`decode_offload`], which needs the frame's own headers.
//!
//! A VLAN tag that the kernel carried outside the packet follows the first twelve bytes of the
//! data. The offsets include it.
//!
//! # Which side it errs on
//!
//! The kernel drops packets for which the ring has no room; [`Tap::lost`] counts them. An interface
//! that another program takes down delivers nothing, so it counts as gone.

use crate::headers::VLAN_TAG;
use crate::link::{By, Change, LinkClient};
use crate::open_error::{OpenError, check_name};
use crate::packet_reader::{FrameSink, PacketReader, insert_tag};
use crate::packet_ring::Frames;
use crate::packet_socket::ReceiveSocket;
use crate::pool::PacketPool;
use crate::tap_interface;
use crate::vnet::{self, VNET_HEADER};
use packet::Packet;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

pub use crate::vnet::decode_offload;

/// Bytes of a frame of the ring. The first packets of flows are mostly short: 400 bytes fit, with
/// the headers before them. `recvmmsg` reads longer ones.
const FRAME: usize = 512;

/// One packet in the form in which it was sent to the interface.
pub struct Raw {
    /// All bytes, with empty offload metadata.
    pub packet: Packet,
    /// `struct virtio_net_hdr`, host byte order; for [`decode_offload`].
    pub header: [u8; VNET_HEADER],
}

/// The reading end of a tap interface. One thread at a time uses it.
pub struct Tap {
    reader: PacketReader,
    /// Keeps the interface.
    _fd: OwnedFd,
    name: String,
    index: u32,
    malformed: u64,
}

impl Tap {
    /// Creates the interface in the calling thread's network namespace and brings it up. "%d" in
    /// `name` stands for a number that the kernel chooses. The ring holds `ring` packets, a
    /// multiple of 128, and takes 512 bytes of memory for each.
    ///
    /// # Errors
    ///
    /// See [`OpenError`]; also when the interface exists already. No kernel object remains.
    pub fn open(name: &str, ring: usize) -> Result<Tap, OpenError> {
        check_name(name)?;
        let attached = tap_interface::attach(name)?;
        let fd = attached.fd;
        let name = tap_interface::current_name(&fd)
            .map_err(OpenError::system(name, "reading its name"))?;
        if !attached.created {
            return Err(OpenError::Unsuitable {
                reason: "a tap interface of that name exists: delete it".to_owned(),
                name,
            });
        }
        let err = |step| OpenError::system(&name, step);
        tap_interface::read_nothing(&fd).map_err(err("attaching the filter of its descriptor"))?;
        let client = LinkClient::new().map_err(err("opening a netlink socket"))?;
        let link = client.link(By::Name(&name)).map_err(err("looking it up"))?;
        let by = By::Index(link.index);
        client.assign_no_ipv6(by).map_err(err("switching IPv6 addresses off"))?;
        if let Some((_, longest)) = link.mtu_range {
            client.change(by, Change::Mtu(longest)).map_err(err("setting the MTU"))?;
        }
        client.change(by, Change::UpSilent).map_err(err("bringing it up"))?;
        let frames = Frames { bytes: FRAME, count: ring };
        let socket = ReceiveSocket::of_sent(link.index, &name, frames)
            .map_err(err("opening a receive socket"))?;
        let (reader, index) = (PacketReader::new(Arc::new(socket)), link.index);
        Ok(Tap { reader, _fd: fd, name, index, malformed: 0 })
    }

    /// Returns the interface's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the kernel's index of the interface.
    pub fn ifindex(&self) -> u32 {
        self.index
    }

    /// Returns the descriptor that becomes readable when [`Tap::recv`] may return packets (level
    /// triggered).
    pub fn poll_fd(&self) -> BorrowedFd<'_> {
        self.reader.socket().fd()
    }

    /// Receives at most `max` packets and appends those that are whole to `out`, in buffers from
    /// `pool`. Returns the number of packets that were there, also of cut and malformed ones. Fewer
    /// than `max` means that no more is there. Never blocks.
    ///
    /// # Errors
    ///
    /// The interface is gone or down, or the socket is broken. Packets appended before remain
    /// valid.
    pub fn recv(
        &mut self,
        out: &mut Vec<Raw>,
        pool: &mut PacketPool,
        max: usize,
    ) -> io::Result<usize> {
        let mut sink = Received { out, malformed: 0 };
        let read = self.reader.read(&mut sink, pool, max);
        self.malformed += sink.malformed;
        read
    }

    /// Returns the number of packets that the kernel dropped because the ring was full.
    pub fn lost(&self) -> u64 {
        self.reader.socket().lost()
    }

    /// Returns the number of packets that the kernel cannot describe, or whose data was too short
    /// or too long for a frame.
    pub fn malformed(&self) -> u64 {
        self.malformed + self.reader.socket().refused()
    }
}

/// Appends frames to a list, in the form of [`Raw`].
struct Received<'a> {
    out: &'a mut Vec<Raw>,
    malformed: u64,
}

impl FrameSink for Received<'_> {
    fn take(
        &mut self,
        mut packet: Packet,
        header: &[u8; VNET_HEADER],
        tag: Option<[u8; VLAN_TAG]>,
        pool: &mut PacketPool,
    ) {
        let header = match tag {
            None => Some(*header),
            Some(tag) => {
                vnet::after_prefix(header, VLAN_TAG).filter(|_| insert_tag(&mut packet, tag))
            }
        };
        match header {
            Some(header) => self.out.push(Raw { packet, header }),
            None => {
                self.malformed += 1;
                pool.give(packet);
            }
        }
    }

    fn count_malformed(&mut self) {
        self.malformed += 1;
    }

    fn is_present(&self) -> bool {
        false
    }
}
