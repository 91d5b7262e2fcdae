// SPDX-License-Identifier: Apache-2.0
//! The other end of a port's veth pair, where the test sits.

use super::finished;
use crate::harness::patient;
use netdev::{Kind, OpenSpec, Opened, PacketPool};
use packet::Packet;
use std::time::{Duration, Instant};

/// So long a frame that the kernel has counted may take, of [`patient`].
const QUIET: Duration = Duration::from_millis(500);

/// False for frames that the kernel does not receive: it drops a tagged one with less than two bytes
/// after its tag and inner type (`skb_vlan_untag`).
pub fn carries(frame: &[u8]) -> bool {
    let tagged = matches!(frame.get(12..14), Some([0x81, 0] | [0x88, 0xa8]));
    !tagged || frame.len() >= 20
}

/// One end of a veth pair, as a host has it.
pub struct Peer {
    device: Opened,
    pool: PacketPool,
    received: Vec<Packet>,
    /// All that were ever received.
    total: u64,
}

impl Peer {
    /// Opens a device of the calling thread's namespace.
    ///
    /// # Panics
    /// When that cannot be done.
    pub fn open(name: &str) -> Peer {
        let device = netdev::open(&OpenSpec::new(name.to_owned(), Kind::System))
            .unwrap_or_else(|e| panic!("{name}: {e}"));
        Peer { device, pool: PacketPool::default(), received: Vec::new(), total: 0 }
    }

    /// Sends all of `packets`.
    ///
    /// # Panics
    /// When the device does not take them.
    pub fn send(&self, packets: &[Packet]) {
        let report = self.device.sender.send(packets);
        assert_eq!(report.sent, packets.len() as u64, "the peer could not send: {report:?}");
    }

    /// True when everything that the kernel counts as sent to this end is here.
    fn has_all(&self) -> bool {
        self.counted().is_none_or(|n| self.total >= n)
    }

    fn counted(&self) -> Option<u64> {
        self.device.device.stats().ok().and_then(|s| s.rx_packets)
    }

    /// Takes what is there now; returns whether there was anything.
    fn drain(&mut self) -> bool {
        let before = self.received.len();
        for queue in &mut self.device.queues {
            while queue
                .recv(&mut self.received, &mut self.pool, 64)
                .expect("the peer device is there")
                > 0
            {}
        }
        self.total += (self.received.len() - before) as u64;
        self.received.len() > before
    }

    /// The frames that arrived since the last call, checksums and segmentation finished. The kernel
    /// counts a frame when it is sent, and may deliver it a moment later.
    pub fn collect(&mut self) -> Vec<Vec<u8>> {
        self.drain();
        let mut last = Instant::now();
        while !self.has_all() && last.elapsed() < patient(QUIET) {
            if self.drain() {
                last = Instant::now();
            } else {
                std::thread::sleep(Duration::from_micros(100));
            }
        }
        if !self.has_all() {
            // It is lost, and not waited for again.
            self.total = self.counted().unwrap_or(self.total);
        }
        finished(&std::mem::take(&mut self.received))
    }
}
