// SPDX-License-Identifier: Apache-2.0
//! The kernel's Open vSwitch datapath over real veth pairs, in a network namespace of its own. Needs
//! root and `openvswitch.ko`.

mod exceptions;
mod per_packet;

use super::peer::{self, Peer};
use super::veth::add_links;
use super::{Fixture, LARGE_MTU, PORTS, World};
use crate::harness::{Netns, patient, skip, without_root};
use clock::Clock;
use datapath::{Counters, Datapath, PortKind, PortNo, PortSpec, Ports};
use datapath_kernel::{KernelDatapath, Numbering, Unavailable};
use packet::Packet;
use per_packet::PerPacket;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Longest wait for a packet to go through, of [`patient`].
const ARRIVAL: Duration = Duration::from_secs(5);

/// The kernel's datapath with ports that the test sits at the other ends of.
pub struct Kernel {
    clock: Clock,
    datapath: Arc<dyn Datapath>,
    kernel: Arc<KernelDatapath>,
    peers: Vec<Mutex<Peer>>,
}

impl Kernel {
    /// Runs `test` with a new fixture, on a thread that is in the fixture's namespace. Where this
    /// cannot be it says so and does nothing.
    ///
    /// # Panics
    ///
    /// When the kernel has the module, and its datapath cannot be made.
    pub fn run(test: impl FnOnce(Kernel) + Send) {
        if without_root() {
            return;
        }
        Netns::new().with(|| {
            let clock = Clock::new();
            match KernelDatapath::open("ovs-behaviour", clock.clone(), Numbering::default()) {
                Ok(kernel) => test(Kernel::over(kernel, clock)),
                Err(Unavailable::NotLoaded) => skip("the kernel has no openvswitch.ko"),
                Err(error) => panic!("{error}"),
            }
        });
    }

    fn over(kernel: Arc<KernelDatapath>, clock: Clock) -> Kernel {
        add_links(LARGE_MTU);
        let peers = (1..=PORTS).map(|i| Mutex::new(Peer::open(&format!("h{i}")))).collect();
        let datapath = PerPacket::over(kernel.clone(), clock.clone());
        for i in 1..=PORTS {
            let name = format!("p{i}");
            let spec = PortSpec { name, kind: PortKind::Vport, ..PortSpec::default() };
            let number = datapath.add_port(&spec).unwrap_or_else(|e| panic!("p{i}: {e}"));
            assert_eq!(number, PortNo(i as u32));
        }
        Kernel { clock, datapath, kernel, peers }
    }

    fn peer(&self, port: PortNo) -> MutexGuard<'_, Peer> {
        let peer = &self.peers[port.0 as usize - 1];
        peer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All lookups of the kernel.
    fn looked_up(&self) -> u64 {
        let lookups = self.kernel.lookups();
        lookups.hits + lookups.misses
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        self.kernel.cleanup();
    }
}

impl Fixture for Kernel {
    fn datapath(&self) -> &Arc<dyn Datapath> {
        &self.datapath
    }

    fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The kernel has its own clock.
    fn pass(&self, millis: u64) {
        self.clock.advance(millis);
        std::thread::sleep(Duration::from_millis(millis));
    }

    fn carries(&self, frame: &[u8]) -> bool {
        peer::carries(frame)
    }

    fn inject(&self, port: PortNo, packet: Packet) {
        self.inject_all(port, vec![packet]);
    }

    fn send(&self, port: PortNo, packets: Vec<Packet>) {
        self.peer(port).send(&packets);
    }

    fn inject_all(&self, port: PortNo, packets: Vec<Packet>) {
        let wanted = self.looked_up() + packets.len() as u64;
        self.send(port, packets);
        let start = Instant::now();
        while self.looked_up() < wanted || !self.kernel.is_idle() {
            assert!(start.elapsed() < patient(ARRIVAL), "a packet did not arrive at the datapath");
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    fn collect(&self, port: PortNo) -> Vec<Vec<u8>> {
        self.peer(port).collect()
    }
}

/// Runs a case over the kernel's datapath, unless the kernel cannot do what it proves.
pub fn run_on_kernel(case: &'static str, run: fn(&World)) {
    if let Some(why) = exceptions::reason(case) {
        eprintln!("NOT ON openvswitch.ko: {why}");
        return;
    }
    Kernel::run(move |fixture| run(&World::new(fixture)));
}
