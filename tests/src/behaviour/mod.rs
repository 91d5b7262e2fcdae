// SPDX-License-Identifier: Apache-2.0
//! The behaviour suite: what every datapath must do, written once against the contract.
//!
//! A [`Fixture`] makes one datapath with [`PORTS`] ports and can let frames arrive on them and
//! collect what leaves them. Cases ([`cases`]) are functions of a [`World`], which is a fixture
//! with an answerer of upcalls. A new datapath joins by one more fixture and one more line in
//! `tests/behaviour.rs`.

mod carded;
pub mod cases;
mod chaotic;
mod dummy;
mod fast;
pub mod frames;
mod kernel;
mod model;
mod peer;
mod tiers;
mod veth;
mod world;

pub use carded::Carded;
pub use chaotic::Chaotic;
pub use dummy::UserspaceDummy;
pub use fast::Ran;
pub use kernel::{Kernel, run_on_kernel};
pub use model::ModelFixture;
pub use peer::Peer;
pub use tiers::{run_at, run_under_card};
pub use veth::Veth;
pub use world::{Seen, Why, World, on};

use clock::Clock;
use datapath::{Datapath, PortNo};
use packet::Packet;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Ports of a fixture; they are numbered from 1.
pub const PORTS: usize = 4;

/// MTU of port 1, from which longer frames can come than the other ports take; see
/// [`Fixture::large_mtu`].
const LARGE_MTU: u32 = 9000;

/// The same where a frame has to be in one buffer.
const LARGE_MTU_OF_ONE_BUFFER: u32 = 3400;

/// MTU of the other ports.
pub const MTU: u32 = 1500;

/// Megaflows that a fixture's datapath holds at most.
pub const FLOW_LIMIT: usize = 200;

/// One datapath with ports.
pub trait Fixture {
    /// The datapath. Its ports are numbered 1 to [`PORTS`].
    fn datapath(&self) -> &Arc<dyn Datapath>;

    /// Its clock; may be stopped.
    fn clock(&self) -> &Clock;

    /// Time passes, for the datapath too.
    fn pass(&self, millis: u64) {
        self.clock().advance(millis);
    }

    /// Does what the daemon does about twice a second, until nothing is left to be done.
    fn maintain(&self) {}

    /// MTU of port 1.
    fn large_mtu(&self) -> u32 {
        LARGE_MTU
    }

    /// Where packets ran, for a datapath of several tiers.
    fn ran(&self) -> Option<Ran> {
        None
    }

    /// Returns the reasons for which filters of the kernel did not take flows.
    fn refused_by_flower(&self) -> BTreeSet<String> {
        BTreeSet::new()
    }

    /// Lets a packet arrive on a port; when this returns the datapath has processed it.
    fn inject(&self, port: PortNo, packet: Packet);

    /// False for frames that the fixture's wire drops before the datapath sees them.
    fn carries(&self, _frame: &[u8]) -> bool {
        true
    }

    /// Lets packets arrive and does not wait for the datapath.
    fn send(&self, port: PortNo, packets: Vec<Packet>) {
        self.inject_all(port, packets);
    }

    /// Lets packets arrive at once; when this returns the datapath has processed them all.
    fn inject_all(&self, port: PortNo, packets: Vec<Packet>) {
        for packet in packets {
            self.inject(port, packet);
        }
    }

    /// The frames that left a port since it was last asked, in order, offload work finished.
    fn collect(&self, port: PortNo) -> Vec<Vec<u8>>;
}

/// The frames that `packets` become on a wire.
pub(crate) fn finished(packets: &[Packet]) -> Vec<Vec<u8>> {
    packets
        .iter()
        .flat_map(|p| {
            netdev::finish::finish(p).unwrap_or_else(|e| panic!("cannot finish {p:?}: {e}"))
        })
        .map(|p| p.data().to_vec())
        .collect()
}
