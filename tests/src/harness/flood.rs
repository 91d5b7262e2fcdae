// SPDX-License-Identifier: Apache-2.0
//! Packets out of a host, mostly each of a new flow.

use super::Host;
use fastrand::Rng;
use netdev::{Kind, OpenSpec};
use packet::Packet;
use packet::build::Frame;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Packets of one system call.
const BATCH: usize = 32;
/// Between two of them: more than can be set up goes out nevertheless, and the machine is not
/// taken from all others.
const PAUSE: Duration = Duration::from_micros(500);

/// A thread that sends from a host's `eth0` until this value is dropped.
#[derive(Debug)]
pub struct Flood {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Flood {
    /// Sends what `make` makes of random numbers.
    ///
    /// # Panics
    /// On its thread, and so where it is dropped, when the host's device does not open.
    pub fn start(
        host: &Host,
        seed: u64,
        mut make: impl FnMut(&mut Rng) -> Packet + Send + 'static,
    ) -> Flood {
        let (stop, sent): (Arc<AtomicBool>, Arc<AtomicU64>) = Default::default();
        let (brake, count) = (Arc::clone(&stop), Arc::clone(&sent));
        let thread = host.netns.spawn(move || {
            let spec = OpenSpec::new("eth0", Kind::System);
            let device = netdev::open(&spec).expect("the host's device opens");
            let mut random = Rng::with_seed(seed);
            while !brake.load(Ordering::Relaxed) {
                let batch: Vec<Packet> = (0..BATCH).map(|_| make(&mut random)).collect();
                count.fetch_add(device.sender.send(&batch).sent, Ordering::Relaxed);
                std::thread::sleep(PAUSE);
            }
        });
        Flood { stop, sent, thread: Some(thread) }
    }

    /// Packets that went out so far.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map_or(Ok(()), JoinHandle::join);
        if !std::thread::panicking() {
            ended.expect("the flood did not fail");
            assert!(self.sent() > 0, "the flood was none");
        }
    }
}

/// A UDP packet of a flow that was not there before, nearly surely.
pub fn stranger(random: &mut Rng) -> Packet {
    let (source, target) = (Ipv4Addr::from(random.u32(..)), Ipv4Addr::from(random.u32(..)));
    let ports = (random.u16(..), random.u16(..));
    udp([0x02, 0, 0, 0, 0, 0x98], [0x02, 0, 0, 0, 0, 0x99], (source, target), ports)
}

/// A UDP packet.
pub fn udp(
    to: [u8; 6],
    from: [u8; 6],
    (source, target): (Ipv4Addr, Ipv4Addr),
    (source_port, target_port): (u16, u16),
) -> Packet {
    let frame = Frame::ethernet(to, from)
        .ipv4(source, target, 64)
        .udp(source_port, target_port)
        .payload(&[0; 18])
        .finish();
    Packet::from_slice(&frame)
}
