// SPDX-License-Identifier: Apache-2.0
//! A tap interface that only the switch reads. BPF programs pass packets to the switch by
//! redirecting them to it, because a packet's segmentation and unfinished checksum are kept that
//! way.
//!
//! # Overview
//!
//! [`Tap::open`] creates an interface that vanishes with the process. It is up, with the largest
//! MTU that the kernel allows (65,521 bytes or more), and without ARP, multicast and IPv6
//! addresses, so the host sends nothing there by itself. [`Tap::recv`] returns the data unchanged:
//! the frame with any bytes that the programs put before it, and the `struct virtio_net_hdr` as the
//! kernel wrote it.
//!
//! The offsets in the kernel's header count from the first byte of the data. The caller removes the
//! part before the real frame and then calls [`decode_offload`], which needs the frame's own
//! headers.
//!
//! A VLAN tag that the kernel carried outside the packet follows the first twelve bytes of the
//! data. The kernel's offsets include it.
//!
//! # Which side it errs on
//!
//! The kernel drops packets that do not fit the ring; [`Tap::lost`] counts them.

use crate::link::{By, Change, LinkClient, is_not_there};
use crate::open_error::{OpenError, check_name};
use crate::pool::PacketPool;
use crate::receive::{ReceiveError, gone};
use crate::tap_interface;
use crate::tun::FrameReader;
use crate::vnet::VNET_HEADER;
use packet::Packet;
use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

pub use crate::vnet::decode_offload;

/// Errors of a read while the interface is down.
const DOWN: [c_int; 3] = [libc::EBADFD, libc::EIO, libc::ENETDOWN];

/// One packet in the form in which it was sent to the interface.
pub struct Raw {
    /// All bytes, with empty offload metadata.
    pub packet: Packet,
    /// `struct virtio_net_hdr`, host byte order; for [`decode_offload`].
    pub header: [u8; VNET_HEADER],
}

/// The reading end of a tap interface. One thread at a time uses it.
pub struct Tap {
    fd: OwnedFd,
    reader: FrameReader,
    client: LinkClient,
    name: String,
    index: u32,
    malformed: u64,
}

impl Tap {
    /// Creates the interface in the calling thread's network namespace and brings it up. "%d" in
    /// `name` stands for a number that the kernel chooses. The kernel's ring holds `ring` packets.
    ///
    /// # Errors
    ///
    /// See [`OpenError`]; also when the interface exists already. No kernel object remains.
    pub fn open(name: &str, ring: u32) -> Result<Tap, OpenError> {
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
        let client = LinkClient::new().map_err(err("opening a netlink socket"))?;
        let link = client.link(By::Name(&name)).map_err(err("looking it up"))?;
        let by = By::Index(link.index);
        match client.change(by, Change::NoIpv6Address) {
            // A kernel without IPv6 assigns no address.
            Err(e) if matches!(e.raw_os_error(), Some(libc::EAFNOSUPPORT | libc::EOPNOTSUPP)) => {}
            other => other.map_err(err("switching IPv6 addresses off"))?,
        }
        client
            .change(by, Change::TxQueueLength(ring))
            .map_err(err("setting the length of its ring"))?;
        if let Some((_, longest)) = link.mtu_range {
            client.change(by, Change::Mtu(longest)).map_err(err("setting the MTU"))?;
        }
        client.change(by, Change::UpSilent).map_err(err("bringing it up"))?;
        let index = link.index;
        Ok(Tap { fd, reader: FrameReader::default(), client, name, index, malformed: 0 })
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
        self.fd.as_fd()
    }

    /// Receives at most `max` packets and appends them to `out`, in buffers from `pool`. Returns
    /// their number. Fewer than `max` means that no more is there, or that much of the data was not
    /// frames. Never blocks.
    ///
    /// # Errors
    ///
    /// The interface is gone or its descriptor is broken. Packets appended before remain valid.
    pub fn recv(
        &mut self,
        out: &mut Vec<Raw>,
        pool: &mut PacketPool,
        max: usize,
    ) -> io::Result<usize> {
        let before = out.len();
        // Data that is not frames must not keep this loop running for ever.
        let mut reads = max.saturating_mul(2);
        while out.len() - before < max && reads > 0 {
            reads -= 1;
            match self.reader.read(self.fd.as_fd(), pool) {
                Ok(Some((packet, header))) => out.push(Raw { packet, header }),
                Ok(None) => self.malformed += 1,
                Err(e) => match ReceiveError::new(e, &DOWN, || self.is_present()) {
                    ReceiveError::NoFrame => break,
                    ReceiveError::BadFrame => self.malformed += 1,
                    ReceiveError::Gone => return Err(gone()),
                    ReceiveError::Other(e) => return Err(e),
                },
            }
        }
        Ok(out.len() - before)
    }

    /// Returns the number of frames that the kernel dropped because the ring was full or the
    /// interface down.
    ///
    /// # Errors
    ///
    /// `ENODEV` when the interface is gone.
    pub fn lost(&self) -> io::Result<u64> {
        Ok(self.client.link(By::Index(self.index))?.stats.tx_dropped.unwrap_or(0))
    }

    /// Returns the number of reads whose data was too short or too long for a frame.
    pub fn malformed(&self) -> u64 {
        self.malformed
    }

    fn is_present(&self) -> bool {
        !self.client.link(By::Index(self.index)).as_ref().is_err_and(is_not_there)
    }
}
