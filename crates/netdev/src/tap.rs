// SPDX-License-Identifier: Apache-2.0
//! A tap interface that only the switch reads: BPF programs send packets up by redirecting them
//! to it, since that way a packet's segmentation and unfinished checksum reach us with it.
//!
//! # What it is
//!
//! [`Tap::open`] makes an interface that vanishes with the process, up, as long as the kernel
//! allows (65,521 bytes or more), without ARP, multicast and IPv6 addresses, so that nothing on
//! the host speaks there by itself. [`Tap::recv`] gives what was sent to it as it is: the frame
//! with whatever the programs put before it, and beside it the `struct virtio_net_hdr` as the
//! kernel wrote it.
//!
//! The kernel's header counts from the first byte of what was sent. Whoever cuts off the part
//! before the real frame calls [`decode_offload`] then; it cannot be done earlier, because
//! reading the header properly takes the frame's own headers.
//!
//! A VLAN tag that the kernel carried beside the packet stands behind the first twelve bytes of
//! what is read; the kernel's offsets count it.
//!
//! # Which side it errs on
//!
//! What does not fit the ring is dropped by the kernel and counted in [`Tap::lost`].

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

/// One packet as it was sent to the interface.
pub struct Raw {
    /// All bytes; its offload metadata is empty.
    pub packet: Packet,
    /// `struct virtio_net_hdr`, host byte order; for [`decode_offload`].
    pub header: [u8; VNET_HEADER],
}

/// The reading end.
pub struct Tap {
    fd: OwnedFd,
    reader: FrameReader,
    client: LinkClient,
    name: String,
    index: u32,
    malformed: u64,
}

impl Tap {
    /// Makes the interface in the calling thread's network namespace and brings it up. In `name`
    /// "%d" stands for a number that the kernel chooses. The ring between kernel and us holds
    /// `ring` packets.
    ///
    /// # Errors
    ///
    /// See [`OpenError`]; also when the interface is there already. Nothing is left behind.
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
            // A kernel without IPv6 makes no address.
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

    /// The interface's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The kernel's index of the interface.
    pub fn ifindex(&self) -> u32 {
        self.index
    }

    /// Becomes readable when [`Tap::recv`] may return something (level triggered).
    pub fn poll_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Receives at most `max` packets, appended to `out`, buffers taken from `pool`. Returns how
    /// many; fewer than `max` means that nothing more is there now, or that much was no frame.
    /// Never blocks.
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
        // What is no frame must not keep us here for ever.
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

    /// Frames that the kernel dropped because the ring was full or the interface down, in all.
    ///
    /// # Errors
    ///
    /// `ENODEV` when the interface is gone.
    pub fn lost(&self) -> io::Result<u64> {
        Ok(self.client.link(By::Index(self.index))?.stats.tx_dropped.unwrap_or(0))
    }

    /// What was read and was too short or too long to be a frame, in all.
    pub fn malformed(&self) -> u64 {
        self.malformed
    }

    fn is_present(&self) -> bool {
        !self.client.link(By::Index(self.index)).as_ref().is_err_and(is_not_there)
    }
}
