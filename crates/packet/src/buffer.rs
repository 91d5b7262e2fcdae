// SPDX-License-Identifier: Apache-2.0
//! An owned packet: bytes with headroom for pushed headers, and unfinished offload work.

use std::fmt;

/// Headroom of a fresh packet in bytes: room for tunnels, VLAN and MPLS stacks.
const HEADROOM: usize = 128;

/// Segmentation that the packet still needs (`struct virtio_net_hdr.gso_type`,
/// include/uapi/linux/virtio_net.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gso {
    /// TCP over IPv4 (`VIRTIO_NET_HDR_GSO_TCPV4`).
    TcpV4,
    /// TCP over IPv6 (`VIRTIO_NET_HDR_GSO_TCPV6`).
    TcpV6,
    /// UDP segmentation (`VIRTIO_NET_HDR_GSO_UDP_L4`).
    UdpL4,
    /// UDP fragmentation (`VIRTIO_NET_HDR_GSO_UDP`).
    UdpFragment,
}

/// Offload work that a sender left to a later device.
///
/// Offsets are in bytes from the start of the frame. [`Packet::insert_at`] and
/// [`Packet::remove_at`] update them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Offload {
    /// The unfinished checksum: that of the bytes from `.0` to the end, to be stored at `.0 + .1`
    /// (`VIRTIO_NET_HDR_F_NEEDS_CSUM`; the field holds the pseudo header's sum).
    pub csum: Option<(u16, u16)>,
    /// True when the device has verified the checksum (`VIRTIO_NET_HDR_F_DATA_VALID`).
    pub csum_valid: bool,
    /// Segment type, payload bytes per segment, and header bytes (from the start of the
    /// frame to the payload).
    pub gso: Option<(Gso, u16, u16)>,
    /// With `gso`: true when the segments carry ECN (`VIRTIO_NET_HDR_GSO_ECN`).
    pub gso_ecn: bool,
}

/// An Ethernet frame (no FCS) in a buffer of its own.
///
/// One thread at a time owns it. Lengths are in bytes.
#[derive(Clone)]
pub struct Packet {
    buf: Vec<u8>,
    head: usize,
    /// Unfinished checksum and segmentation work.
    pub offload: Offload,
    /// The priority with which Linux queues the packet when it is sent (`skb->priority`).
    pub priority: u32,
}

impl Default for Packet {
    fn default() -> Self {
        Packet::with_capacity(2048)
    }
}

impl PartialEq for Packet {
    fn eq(&self, other: &Self) -> bool {
        self.data() == other.data() && self.offload == other.offload
    }
}

impl Eq for Packet {}

impl Packet {
    /// Creates an empty packet that can grow to `capacity` bytes without a new allocation.
    pub fn with_capacity(capacity: usize) -> Packet {
        let mut buf = Vec::with_capacity(HEADROOM + capacity);
        buf.resize(HEADROOM, 0);
        Packet { buf, head: HEADROOM, offload: Offload::default(), priority: 0 }
    }

    /// Creates a packet with a copy of `frame`.
    pub fn from_slice(frame: &[u8]) -> Packet {
        let mut p = Packet::with_capacity(frame.len());
        p.buf.extend_from_slice(frame);
        p
    }

    /// Returns the frame.
    pub fn data(&self) -> &[u8] {
        self.buf.get(self.head..).unwrap_or_default()
    }

    /// Returns the frame for changes.
    pub fn data_mut(&mut self) -> &mut [u8] {
        self.buf.get_mut(self.head..).unwrap_or_default()
    }

    /// Returns the length of the frame in bytes.
    pub fn len(&self) -> usize {
        self.buf.len() - self.head
    }

    /// Returns the allocated bytes of the buffer, including headroom.
    pub fn capacity(&self) -> usize {
        self.buf.capacity()
    }

    /// Returns true when the frame has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes the packet empty again, with full headroom, no offload work and priority 0.
    pub fn clear(&mut self) {
        self.buf.truncate(HEADROOM);
        self.buf.resize(HEADROOM, 0);
        self.head = HEADROOM;
        self.offload = Offload::default();
        self.priority = 0;
    }

    /// Replaces the frame by a copy of `frame`.
    pub fn assign(&mut self, frame: &[u8]) {
        self.clear();
        self.buf.extend_from_slice(frame);
    }

    /// Sets the frame's length to `len`: cuts the end or adds zeros. Receivers (grow, read into
    /// [`Packet::data_mut`], cut) and `trunc` use it.
    pub fn resize(&mut self, len: usize) {
        self.buf.resize(self.head + len, 0);
    }

    /// Adds `bytes` at the end.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.buf.extend_from_slice(bytes);
    }

    /// Inserts `n` zero bytes at `offset` (at most the length), moving the shorter front
    /// part into the headroom. Updates offload offsets after `offset`.
    pub fn insert_at(&mut self, offset: usize, n: usize) {
        let offset = offset.min(self.len());
        if self.head < n {
            let grow = n - self.head + HEADROOM;
            self.buf.splice(0..0, std::iter::repeat_n(0, grow));
            self.head += grow;
        }
        let old = self.head;
        self.head -= n;
        self.buf.copy_within(old..old + offset, self.head);
        let at = self.head + offset;
        self.buf[at..at + n].fill(0); // at + n == old + offset <= buf.len()
        let n = i32::try_from(n).unwrap_or(i32::MAX);
        self.move_offsets(offset, n);
    }

    /// Removes `n` bytes at `offset`; both are limited to the bytes of the frame. Updates offload
    /// offsets after `offset`.
    pub fn remove_at(&mut self, offset: usize, n: usize) {
        let offset = offset.min(self.len());
        let n = n.min(self.len() - offset);
        self.buf.copy_within(self.head..self.head + offset, self.head + n);
        self.head += n;
        let n = i32::try_from(n).unwrap_or(i32::MAX);
        self.move_offsets(offset, -n);
    }

    fn move_offsets(&mut self, offset: usize, by: i32) {
        let moved = |v: u16| -> u16 {
            if usize::from(v) >= offset {
                u16::try_from((i32::from(v) + by).max(0)).unwrap_or(u16::MAX)
            } else {
                v
            }
        };
        if let Some((start, _)) = &mut self.offload.csum {
            *start = moved(*start);
        }
        if let Some((_, _, header)) = &mut self.offload.gso {
            *header = moved(*header);
        }
    }
}

impl fmt::Debug for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Packet({} bytes:", self.len())?;
        for b in self.data().iter().take(64) {
            write!(f, " {b:02x}")?;
        }
        if self.len() > 64 {
            write!(f, " ...")?;
        }
        write!(f, ")")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn insert_and_remove_move_the_front_and_the_offsets() {
        let mut p = Packet::from_slice(&[1, 2, 3, 4, 5, 6]);
        p.offload.csum = Some((4, 1));
        p.insert_at(2, 4);
        assert_eq!(p.data(), [1, 2, 0, 0, 0, 0, 3, 4, 5, 6]);
        assert_eq!(p.offload.csum, Some((8, 1)));
        p.remove_at(2, 4);
        assert_eq!(p.data(), [1, 2, 3, 4, 5, 6]);
        assert_eq!(p.offload.csum, Some((4, 1)));
    }

    #[test]
    fn headroom_grows_when_it_is_used_up() {
        let mut p = Packet::from_slice(&[9; 14]);
        for _ in 0..100 {
            p.insert_at(12, 4);
        }
        assert_eq!(p.len(), 414);
        p.remove_at(0, 1_000);
        assert!(p.is_empty());
    }
}
