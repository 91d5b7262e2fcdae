// SPDX-License-Identifier: Apache-2.0
//! The receive ring of a packet socket (`PACKET_RX_RING` with `TPACKET_V2`,
//! Documentation/networking/packet_mmap.rst).
//!
//! The ring is memory that the kernel and the process share: frames of one size, used in order.
//! Each belongs to the kernel or to the process; the first word, `tp_status`, says to which. The
//! kernel writes a packet and then the status. The process copies the packet out and sets the
//! status back with release order, so that its reads are done before the kernel writes again.
//!
//! A packet that is longer than a frame waits in the socket's own queue as well
//! (`PACKET_COPY_THRESH`), whole, in the order of the frames. Its frame is [`Front::Queued`]. If
//! the queue is full, the packet is lost and its frame is [`Front::Cut`].

use crate::mapping::Mapping;
use crate::sys;
use crate::vnet::VNET_HEADER;
use packet::ethertype;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Bytes of a piece of contiguous memory of the ring; a multiple of every page size of Linux.
const BLOCK: usize = 65_536;
/// Number of open rings of ports that have [`PORT`] frames; together 64 MiB. The memory of rings
/// cannot be swapped out, so it must stay small with 1,000 ports.
const LARGE_RINGS: usize = 32;
/// The frames of a port's ring: 2 MiB. A packet of 1,500 bytes and tags fits, with the headers
/// before it. At 1 Mpps the process may be late by 1 ms.
const PORT: Frames = Frames { bytes: 2048, count: 1024 };
/// The frames of the ports' rings after the first [`LARGE_RINGS`]: 256 KiB.
const LATER_PORT: Frames = Frames { count: 128, ..PORT };

/// The size of a ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frames {
    /// Bytes of a frame; a divisor of [`BLOCK`].
    pub(crate) bytes: usize,
    /// Number of frames. The ring is a multiple of [`BLOCK`].
    pub(crate) count: usize,
}

/// Bytes of `struct tpacket2_hdr` (include/uapi/linux/if_packet.h).
const HEADER: usize = 32;

/// Number of open rings of ports.
static RINGS: AtomicUsize = AtomicUsize::new(0);

/// An open ring in [`RINGS`].
struct Counted;

impl Drop for Counted {
    fn drop(&mut self) {
        RINGS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The reading end of a ring.
pub(crate) struct PacketRing {
    memory: Mapping,
    frames: Frames,
    /// Index of the next frame to be read.
    next: usize,
    /// The ring is that of a port.
    _counted: Option<Counted>,
}

/// The next frame of a ring.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Front<'a> {
    /// The packet is in the frame.
    Whole(Frame<'a>),
    /// The packet is the next of the socket's queue.
    Queued,
    /// The packet was too long for the frame, and the socket's queue was full.
    Cut,
    /// The kernel's words contradict each other.
    Malformed,
}

/// A packet in a frame of a ring.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    /// The packet without the tag.
    pub(crate) data: &'a [u8],
    /// `struct virtio_net_hdr`.
    pub(crate) header: &'a [u8; VNET_HEADER],
    /// The outermost VLAN tag, which the kernel keeps outside of the packet: TPID and TCI.
    pub(crate) tag: Option<[u8; 4]>,
}

impl PacketRing {
    /// Makes a ring for the socket `fd` of a port. The socket accepts no frame meanwhile.
    pub(crate) fn of_port(fd: BorrowedFd<'_>) -> io::Result<PacketRing> {
        let open = RINGS.fetch_add(1, Ordering::Relaxed);
        let counted = Counted;
        let frames = if open < LARGE_RINGS { PORT } else { LATER_PORT };
        Ok(PacketRing { _counted: Some(counted), ..PacketRing::new(fd, frames)? })
    }

    /// Makes a ring for the socket `fd`, which accepts no frame meanwhile.
    pub(crate) fn new(fd: BorrowedFd<'_>, frames: Frames) -> io::Result<PacketRing> {
        let bytes = frames.count * frames.bytes;
        let version = libc::tpacket_versions::TPACKET_V2 as i32;
        sys::set_option(fd, libc::SOL_PACKET, libc::PACKET_VERSION, &version)?;
        sys::set_option(fd, libc::SOL_PACKET, libc::PACKET_COPY_THRESH, &1)?;
        let request = libc::tpacket_req {
            tp_block_size: BLOCK as u32,
            tp_block_nr: (bytes / BLOCK) as u32,
            tp_frame_size: frames.bytes as u32,
            tp_frame_nr: frames.count as u32,
        };
        sys::set_option(fd, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
        let memory = Mapping::of_descriptor(fd, bytes, 0).or_else(|e| {
            // No frame must go where nobody reads.
            let none = libc::tpacket_req { tp_block_nr: 0, tp_frame_nr: 0, ..request };
            sys::set_option(fd, libc::SOL_PACKET, libc::PACKET_RX_RING, &none)?;
            Err(e)
        })?;
        Ok(PacketRing { memory, frames, next: 0, _counted: None })
    }

    /// Returns the address of the frame of `index`, modulo the number of frames.
    fn frame(&self, index: usize) -> *mut u8 {
        let at = (index % self.frames.count) * self.frames.bytes;
        // SAFETY: the mapping has that many frames of that many bytes.
        unsafe { self.memory.start().as_ptr().add(at) }
    }

    fn status(&self, index: usize) -> &AtomicU32 {
        // SAFETY: the frame lives as long as self, and its first four bytes are aligned; both sides
        // access them as one word.
        unsafe { AtomicU32::from_ptr(self.frame(index).cast()) }
    }

    /// Returns the next frame, until [`PacketRing::release`]. `None`: the kernel has it.
    pub(crate) fn front(&self) -> Option<Front<'_>> {
        let status = self.status(self.next).load(Ordering::Acquire);
        if status & libc::TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: the frame has that many bytes. It belongs to the process, so the kernel does not
        // write to it until `release`, which takes self exclusively.
        let bytes = unsafe { std::slice::from_raw_parts(self.frame(self.next), self.frames.bytes) };
        Some(parse(status, bytes))
    }

    /// Returns the number of successive frames from the next one on, at most `max`, whose packets
    /// are in the socket's queue.
    pub(crate) fn queued(&self, max: usize) -> usize {
        let is_queued = libc::TP_STATUS_USER | libc::TP_STATUS_COPY;
        let next = (0..max.min(self.frames.count)).map(|i| self.status(self.next + i));
        next.take_while(|status| status.load(Ordering::Acquire) & is_queued == is_queued).count()
    }

    /// Returns the next `count` frames to the kernel.
    pub(crate) fn release(&mut self, count: usize) {
        for _ in 0..count {
            self.status(self.next).store(libc::TP_STATUS_KERNEL, Ordering::Release);
            self.next = (self.next + 1) % self.frames.count;
        }
    }
}

/// Returns the VLAN tag, TPID and TCI, that the kernel reports with `status` in addition to a
/// packet. `tci` and `tpid` are host integers.
pub(crate) fn vlan_tag(status: u32, tci: u16, tpid: u16) -> Option<[u8; 4]> {
    if status & libc::TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let has_tpid = status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
    let ([a, b], [c, d]) =
        (if has_tpid { tpid } else { ethertype::VLAN }.to_be_bytes(), tci.to_be_bytes());
    Some([a, b, c, d])
}

/// Reads a frame with `status`.
fn parse(status: u32, frame: &[u8]) -> Front<'_> {
    if status & libc::TP_STATUS_COPY != 0 {
        return Front::Queued;
    }
    // struct tpacket2_hdr: status(4) len(4) snaplen(4) mac(2) net(2) sec(4) nsec(4) vlan_tci(2)
    // vlan_tpid(2) padding(4)
    let u16_at = |at: usize| frame.get(at..)?.first_chunk().map(|b| u16::from_ne_bytes(*b));
    let u32_at = |at: usize| frame.get(at..)?.first_chunk().map(|b| u32::from_ne_bytes(*b));
    let read = || {
        let (length, present) = (u32_at(4)?, u32_at(8)?);
        if length > present {
            return Some(Front::Cut);
        }
        let at = usize::from(u16_at(12)?);
        let header = at.checked_sub(VNET_HEADER).filter(|at| *at >= HEADER)?;
        let data = frame.get(at..at.checked_add(usize::try_from(present).ok()?)?)?;
        let tag = vlan_tag(status, u16_at(24)?, u16_at(26)?);
        Some(Front::Whole(Frame { data, header: frame.get(header..)?.first_chunk()?, tag }))
    };
    read().unwrap_or(Front::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const USER: u32 = libc::TP_STATUS_USER;

    fn frame(length: u32, present: u32, mac: u16, tci: u16, tpid: u16) -> Vec<u8> {
        let mut f: Vec<u8> = (0..PORT.bytes).map(|i| i as u8).collect();
        f[4..8].copy_from_slice(&length.to_ne_bytes());
        f[8..12].copy_from_slice(&present.to_ne_bytes());
        f[12..14].copy_from_slice(&mac.to_ne_bytes());
        f[24..26].copy_from_slice(&tci.to_ne_bytes());
        f[26..28].copy_from_slice(&tpid.to_ne_bytes());
        f
    }

    #[test]
    fn a_packet_lies_where_its_header_says() {
        let f = frame(60, 60, 82, 0x2005, 0x88a8);
        let whole = |tag| {
            let header = f[72..].first_chunk().expect("inside");
            Front::Whole(Frame { data: &f[82..142], header, tag })
        };
        assert_eq!(parse(USER, &f), whole(None));
        let valid = USER | libc::TP_STATUS_VLAN_VALID;
        assert_eq!(parse(valid, &f), whole(Some([0x81, 0, 0x20, 5])));
        let with_tpid = valid | libc::TP_STATUS_VLAN_TPID_VALID;
        assert_eq!(parse(with_tpid, &f), whole(Some([0x88, 0xa8, 0x20, 5])));
        assert_eq!(parse(USER | libc::TP_STATUS_COPY, &f), Front::Queued);
        assert_eq!(parse(USER, &frame(3000, 1966, 82, 0, 0)), Front::Cut);
    }

    #[test]
    fn a_packet_that_is_not_inside_of_its_frame_is_refused() {
        let mut outside = vec![frame(60, 60, 2000, 0, 0), frame(60, 60, 41, 0, 0)];
        outside.push(frame(60, 60, 9, 0, 0));
        outside.push(frame(u32::MAX, u32::MAX, 82, 0, 0));
        outside.push(frame(1967, 1967, 82, 0, 0));
        for f in outside {
            assert_eq!(parse(USER, &f), Front::Malformed);
        }
        assert!(matches!(parse(USER, &frame(1966, 1966, 82, 0, 0)), Front::Whole(_)));
    }

    proptest! {
        #[test]
        fn any_frame_is_read_or_refused(
            status: u32,
            frame in proptest::collection::vec(any::<u8>(), 0..100),
        ) {
            if let Front::Whole(f) = parse(status, &frame) {
                prop_assert!(f.data.len() < frame.len());
            }
        }
    }
}
