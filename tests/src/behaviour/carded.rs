// SPDX-License-Identifier: Apache-2.0
//! A made-up card above the other tiers. It sees each packet first, and takes the packets of its
//! flows.

use super::{Fixture, Ran};
use clock::Clock;
use datapath::offload::{ProviderSlot, Reason};
use datapath::{
    Action, Datapath, Megaflow, OffloadProvider, Packets, PortNo, Refusal, Tier, TierSet,
};
use datapath_model::Card;
use datapath_userspace::UserspaceDatapath;
use packet::Packet;
use placement::PlacedDatapath;
use std::sync::Arc;

/// The card's tier.
pub(super) const CARD: TierSet = TierSet::of(Tier::Tc);
/// Largest number of flows in the card: fewer than some cases have.
const CAPACITY: usize = 16;

/// The card's place in a list of providers.
pub(super) fn slot() -> ProviderSlot {
    ProviderSlot {
        tiers: CARD,
        keys: &[],
        check: |_| Ok(()),
        absent: Reason::new(Refusal::TierDisabled, "no card yet"),
        is_optional: false,
    }
}

/// Puts a card into the list of `placed`. It takes two of three flows that only edit and output,
/// and runs their actions in `base`.
pub(super) fn begin(
    placed: &Arc<PlacedDatapath>,
    base: &Arc<UserspaceDatapath>,
    clock: Clock,
) -> Arc<Card> {
    let card = Card::new(Tier::Tc, clock, CAPACITY);
    card.ignore_settings();
    card.refuse(refuses);
    let runner = Arc::downgrade(base);
    card.run_by(move |packet, key, actions| {
        if let Some(base) = runner.upgrade() {
            base.execute(packet, key, actions);
        }
    });
    placed.begin(CARD, Ok(card.clone()));
    placed.serve(CARD, base).expect("it has no miss device");
    card
}

fn refuses(flow: &Megaflow) -> Option<Refusal> {
    let is_run = |action: &Action| {
        matches!(
            action,
            Action::Output(_) | Action::Set(_) | Action::PushVlan { .. } | Action::PopVlan
        )
    };
    if flow.actions.is_empty() || !flow.actions.iter().all(is_run) {
        return Some(Refusal::UnsupportedAction);
    }
    flow.ufid.0.is_multiple_of(3).then_some(Refusal::UnsupportedKey)
}

/// A fixture whose packets meet a card first.
pub struct Carded<F> {
    inner: F,
    card: Arc<Card>,
}

impl<F: Fixture> Carded<F> {
    pub(super) fn new(inner: F, card: Arc<Card>) -> Carded<F> {
        Carded { inner, card }
    }

    /// The packets that the card leaves.
    fn left(&self, port: PortNo, packets: Vec<Packet>) -> Vec<Packet> {
        packets.into_iter().filter_map(|packet| self.card.receive(port, packet)).collect()
    }
}

impl<F> Drop for Carded<F> {
    /// Prints the number of packets that the card took.
    fn drop(&mut self) {
        eprintln!("the card took {} packets", self.card.lookups().hits);
    }
}

impl<F: Fixture> Fixture for Carded<F> {
    fn datapath(&self) -> &Arc<dyn Datapath> {
        self.inner.datapath()
    }
    fn clock(&self) -> &Clock {
        self.inner.clock()
    }
    fn pass(&self, millis: u64) {
        self.inner.pass(millis);
    }
    fn maintain(&self) {
        self.inner.maintain();
    }
    fn large_mtu(&self) -> u32 {
        self.inner.large_mtu()
    }
    fn ran(&self) -> Option<Ran> {
        self.inner.ran()
    }
    fn carries(&self, frame: &[u8]) -> bool {
        self.inner.carries(frame)
    }
    fn inject(&self, port: PortNo, packet: Packet) {
        self.inject_all(port, vec![packet]);
    }
    fn send(&self, port: PortNo, packets: Vec<Packet>) {
        self.inner.send(port, self.left(port, packets));
    }
    fn inject_all(&self, port: PortNo, packets: Vec<Packet>) {
        let left = self.left(port, packets);
        if !left.is_empty() {
            self.inner.inject_all(port, left);
        }
    }
    fn collect(&self, port: PortNo) -> Vec<Vec<u8>> {
        self.inner.collect(port)
    }
}
