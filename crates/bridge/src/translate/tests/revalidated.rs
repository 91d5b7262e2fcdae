// SPDX-License-Identifier: Apache-2.0
//! Revalidation translates what is left of a key under the mask: that must give the same.

use super::*;
use flow::{Key, Match, Vlan};

/// Returns the translation of `key`, and the translation of its megaflow's key at revalidation.
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

#[test]
fn hashes_whose_deciding_bits_are_zero() {
    let mut w = World::new(3);
    let buckets = vec![(1, PortNo::NONE, vec![out(2)]), (1, PortNo::NONE, vec![out(3)])];
    w.group(1, GroupKind::Select, Selection::Default, buckets);
    w.rule("", [Action::Group(1)]);
    let keep = w.translate(&key(TCP)).recirc_ids;
    for hash in [0x10, 0x11] {
        let mut k = key(TCP);
        k.recirc_id.set(keep[0].id());
        k.dp_hash.set(hash);
        assert_survives(&w, &k);
        assert!(
            ["2", "3"].contains(&datapath::text::format_plain(&w.translate(&k).actions).as_str())
        );
    }
}

/// After the patch port the inner header is the outer one, whose priority a rule matches.
#[test]
fn a_header_that_moved_before_a_patch_port_is_exact() {
    let mut w = World::new(3);
    let other = w.add_bridge(2);
    w.patch((other, 2), (BridgeIndex(0), 3));
    w.rule("dl_vlan=7,dl_vlan_pcp=3", [out(2)]);
    w.rule_on(other, "", normal());
    w.bundle_on(other, 2, |b| (b.mode, b.tag) = (VlanMode::NativeUntagged, 5));
    let enter = |inner: u16| {
        let mut k = tagged(&[(0x8100, 5), (0x8100, inner)]);
        k.in_port.set(101);
        k
    };
    let (low, high) = (enter(7), enter(0x6007));
    let translate = |k: &Key| w.translate_dp(k).expect("the port is there");
    let (first, second) = (translate(&high), translate(&low));
    assert_ne!(first.actions, second.actions, "the priority is seen");
    assert!(!Match::new(&high, &first.mask).matches(&low));
}
