// SPDX-License-Identifier: Apache-2.0
//! Free packets, so reception needs no allocation.

use packet::Packet;

/// Capacity of a pooled packet in bytes.
const PACKET_CAPACITY: usize = 2048;

/// A stack of free packets of one packet thread.
///
/// Only a few packets with more than a few kilobytes of memory are kept, so a burst of large
/// packets does not keep that memory allocated. The capacity counts, not the present length.
pub struct PacketPool {
    free: Vec<Packet>,
    large: Vec<Packet>,
    capacity: usize,
}

impl Default for PacketPool {
    fn default() -> Self {
        PacketPool::new(512)
    }
}

impl PacketPool {
    /// Packets with a higher capacity than this, in bytes, are large. An ordinary packet that grew
    /// for a frame of 4 KiB is not, although growth may double its capacity.
    const LARGE: usize = 3 * PACKET_CAPACITY;
    /// Maximum number of large packets in the pool.
    const LARGE_KEPT: usize = 32;

    /// Creates an empty pool that keeps at most `capacity` packets.
    pub fn new(capacity: usize) -> PacketPool {
        PacketPool { free: Vec::new(), large: Vec::new(), capacity }
    }

    /// Returns an empty packet with full headroom, from the pool or newly allocated.
    pub fn take(&mut self) -> Packet {
        self.free.pop().unwrap_or_else(|| Packet::with_capacity(PACKET_CAPACITY))
    }

    /// Returns an empty packet that can grow to `capacity` bytes, preferably a large one of the
    /// pool.
    pub(crate) fn take_large(&mut self, capacity: usize) -> Packet {
        self.large.pop().unwrap_or_else(|| Packet::with_capacity(capacity))
    }

    /// Puts a packet into the pool and discards its contents.
    pub fn give(&mut self, mut packet: Packet) {
        let (list, most) = if packet.capacity() > Self::LARGE {
            (&mut self.large, Self::LARGE_KEPT)
        } else {
            (&mut self.free, self.capacity)
        };
        if list.len() < most {
            packet.clear();
            list.push(packet);
        }
    }

    /// Puts all packets of `packets` into the pool and empties the vector.
    pub fn give_all(&mut self, packets: &mut Vec<Packet>) {
        for p in packets.drain(..) {
            self.give(p);
        }
    }

    /// Number of free packets of ordinary size.
    pub fn len(&self) -> usize {
        self.free.len()
    }

    /// True when a [`PacketPool::take`] would allocate.
    pub fn is_empty(&self) -> bool {
        self.free.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_large_buffers_few_are_kept_whatever_is_in_them() {
        let mut pool = PacketPool::default();
        for _ in 0..100 {
            let mut cut = Packet::with_capacity(65_536);
            cut.resize(64);
            pool.give(cut);
        }
        assert_eq!((pool.len(), pool.large.len()), (0, PacketPool::LARGE_KEPT));
        let mut grown = pool.take();
        grown.resize(4096);
        pool.give(grown);
        assert_eq!(pool.len(), 1);
    }
}
