// SPDX-License-Identifier: Apache-2.0
//! Free packets, so that receiving needs no allocation.

use packet::Packet;

/// Bytes that a pooled packet can hold without a new allocation.
const PACKET_CAPACITY: usize = 2048;

/// A stack of free packets of one packet thread.
///
/// Of packets that have more than a few kilobytes of memory only few are kept, so that a burst of
/// large packets does not pin it, whatever was cut off them since.
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
    /// Packets with more memory than this, in bytes, are large; an ordinary one that had to grow
    /// for a frame of 4 KiB is none, though growing may double it.
    const LARGE: usize = 3 * PACKET_CAPACITY;
    /// Large packets that are kept at most.
    const LARGE_KEPT: usize = 32;

    /// An empty pool that keeps at most `capacity` packets.
    pub fn new(capacity: usize) -> PacketPool {
        PacketPool { free: Vec::new(), large: Vec::new(), capacity }
    }

    /// An empty packet with full headroom, from the pool or newly allocated.
    pub fn take(&mut self) -> Packet {
        self.free.pop().unwrap_or_else(|| Packet::with_capacity(PACKET_CAPACITY))
    }

    /// An empty packet that can grow to `capacity` bytes; rather one that was large before.
    pub(crate) fn take_large(&mut self, capacity: usize) -> Packet {
        self.large.pop().unwrap_or_else(|| Packet::with_capacity(capacity))
    }

    /// Gives a packet back; its contents are discarded.
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

    /// Gives all packets of `packets` back, leaving it empty.
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
