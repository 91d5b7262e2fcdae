// SPDX-License-Identifier: Apache-2.0
//! The miss device: a tap by which a provider hands over packets that match none of its flows.

use crate::queue::{self, BatchSource};
use datapath::offload::{MissChannel, UpcallAccount};
use datapath::{OffloadProvider, PortNo};
use datapath_userspace::{MissSource, MissedPacket};
use netdev::tap::{self, Raw, Tap};
use netdev::{OpenError, PacketPool};
use packet::Packet;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Weak};

/// The device's name without the number at its end.
const NAME: &str = "slipmiss";
/// Number of packets in the device's ring. All ports share it; the provider limits each port.
pub(crate) const RING: usize = 8192;

/// Creates the miss device.
pub(crate) fn open() -> Result<Tap, OpenError> {
    Tap::open(&format!("{NAME}%d"), RING) // the kernel chooses the number
}

/// Returns true when an interface of this name is a switch's own miss device.
pub fn is_miss_device(name: &str) -> bool {
    let number = name.strip_prefix(NAME);
    number.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

/// The reading end, served by a packet thread of the base.
pub(crate) struct MissQueue {
    tap: Tap,
    provider: Arc<dyn OffloadProvider>,
    listener: Weak<dyn MissListener>,
    source: BatchSource,
    /// Buffer for packets as they arrive; empty between two calls.
    raw: Vec<Raw>,
    /// Number of packets of each port in the last batch.
    taken: Vec<(PortNo, u64)>,
    /// The device had no more packets after the last batch.
    drained: bool,
    /// Packets that the device had no room for, and packets that it could not deliver, as far as
    /// they were reported.
    lost: u64,
    malformed: u64,
}

/// The object that a miss queue notifies of its events.
pub(crate) trait MissListener: Send + Sync {
    /// Called when the source's batch is processed and its packets are sent.
    fn batch_done(&self, source: BatchSource);

    /// Called when the device of the provider of these tiers failed and is not read again.
    fn device_lost(&self, tiers: datapath::TierSet);
}

/// A packet that cannot be handed over.
struct Useless {
    packet: Packet,
    /// The provider sent it, and its parts contradict each other. Other packets are no misses, such
    /// as those that the kernel itself sends at each device.
    is_lost: bool,
}

impl MissQueue {
    pub(crate) fn new(
        tap: Tap,
        provider: Arc<dyn OffloadProvider>,
        listener: Weak<dyn MissListener>,
        source: BatchSource,
    ) -> MissQueue {
        let (raw, taken, drained, lost, malformed) = (Vec::new(), Vec::new(), false, 0, 0);
        MissQueue { tap, provider, listener, source, raw, taken, drained, lost, malformed }
    }

    fn channel(&self) -> Option<&dyn MissChannel> {
        self.provider.misses()
    }

    /// Returns the packet as it arrived at the provider.
    fn open(&mut self, raw: Raw) -> Result<MissedPacket, Useless> {
        let Raw { mut packet, header } = raw;
        let length = packet.len();
        let Some(origin) = self.channel().and_then(|channel| channel.unwrap(&mut packet)) else {
            return Err(Useless { packet, is_lost: false });
        };
        self.count(origin.in_port);
        let prefix = length.saturating_sub(packet.len());
        let Some(offload) = tap::decode_offload(&header, packet.data(), prefix) else {
            return Err(Useless { packet, is_lost: true });
        };
        packet.offload = offload;
        netdev::finish::finish_crc(&mut packet);
        Ok(MissedPacket { packet, origin })
    }

    fn count(&mut self, port: PortNo) {
        match self.taken.iter_mut().find(|(p, _)| *p == port) {
            Some((_, n)) => *n += 1,
            None => self.taken.push((port, 1)),
        }
    }

    fn note_taken(&mut self) {
        let Some(channel) = self.provider.misses() else { return };
        for (port, count) in self.taken.drain(..) {
            channel.note_taken(port, count);
        }
        if self.drained {
            let lost = self.tap.lost();
            channel.resync_taken(lost - std::mem::replace(&mut self.lost, lost));
        }
    }
}

impl MissSource for MissQueue {
    fn poll_fd(&self) -> BorrowedFd<'_> {
        self.tap.poll_fd()
    }

    fn recv(
        &mut self,
        out: &mut Vec<MissedPacket>,
        pool: &mut PacketPool,
        max: usize,
    ) -> io::Result<u64> {
        let before = out.len();
        let mut raw = std::mem::take(&mut self.raw);
        let received = self.tap.recv(&mut raw, pool, max);
        self.drained = received.as_ref().map_or(true, |taken| *taken < max);
        let mut lost = 0;
        if self.drained {
            let malformed = self.tap.malformed();
            lost += malformed - std::mem::replace(&mut self.malformed, malformed);
        }
        for raw in raw.drain(..) {
            match self.open(raw) {
                Ok(passed) => out.push(passed),
                Err(useless) => {
                    lost += u64::from(useless.is_lost);
                    pool.give(useless.packet);
                }
            }
        }
        self.raw = raw;
        if out.len() > before {
            queue::begin_batch(self.source);
        } else {
            self.note_taken(); // `done` is not called
        }
        if received.is_err()
            && let Some(listener) = self.listener.upgrade()
        {
            listener.device_lost(self.provider.tiers());
        }
        received.map(|_| lost)
    }

    fn close_port(&mut self, port: PortNo, account: UpcallAccount, until_ns: u64) {
        if let Some(channel) = self.channel() {
            channel.hold_back(port, account, until_ns);
        }
    }

    fn done(&mut self, _processed: &[(PortNo, u64)]) {
        queue::end_batch();
        self.note_taken();
        if let Some(listener) = self.listener.upgrade() {
            listener.batch_done(self.source);
        }
    }
}
