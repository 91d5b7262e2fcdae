//! Revalidation translates what is left of a key under the mask: that must give the same.

use super::*;
use flow::{Key, Match, Vlan};

/// What `key` gives, and what its megaflow gives when it is revalidated.
fn twice(w: &World, key: &Key) -> (Translation, Translation) {
    let first = w.translate(key);
    let masked = *Match::new(key, &first.mask).key();
    let again = w.translate(&masked);
    (first, again)
}

fn assert_survives(w: &World, key: &Key) {
    let (first, again) = twice(w, key);
    assert!(first.mask.covers(&again.mask), "{:?} {:?}", first.mask, again.mask);
    assert_eq!(first.actions, again.actions);
}

fn tagged(vlans: &[(u16, u16)]) -> Key {
    let mut k = key(TCP);
    for (place, (tpid, tci)) in k.vlans.iter_mut().zip(vlans) {
        *place = Vlan { tpid: (*tpid).into(), tci: (tci | 0x1000).into() };
    }
    k
}

#[test]
fn tagged_packets_through_normal() {
    let mut w = World::new(3);
    w.rule("", normal());
    for tpid in [0x8100, 0x88a8] {
        assert_survives(&w, &tagged(&[(tpid, 5)]));
        assert_survives(&w, &tagged(&[(tpid, 0), (0x8100, 7)]));
    }
}
