// SPDX-License-Identifier: Apache-2.0
//! A key with a mask: what a rule or a megaflow matches.

use crate::field::Prerequisite;
use crate::tun_metadata::Wide;
use crate::{Field, FieldValue, Key, Mask, ct_state};
use std::sync::LazyLock;

/// Each prerequisite, and where the fields are that have it.
static PLACES: LazyLock<Vec<(Prerequisite, Mask)>> = LazyLock::new(|| {
    let mut all: Vec<(Prerequisite, Mask)> = Vec::new();
    for field in Field::ALL {
        let prerequisite = field.prerequisite();
        match all.iter_mut().find(|(p, _)| *p == prerequisite) {
            Some((_, places)) => places.set_exact(field),
            None => {
                let mut places = Mask::WILDCARD;
                places.set_exact(field);
                all.push((prerequisite, places));
            }
        }
    }
    all
});

/// The packets that agree with `key` on every bit of `mask`.
///
/// Invariant: `key` has no bit outside `mask`, so that equal matches are equal values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Match {
    key: Key,
    mask: Mask,
}

impl Match {
    /// Matches every packet.
    pub const ANY: Match = Match { key: Key::ZERO, mask: Mask::WILDCARD };

    /// Matches what agrees with `key` on `mask`.
    pub fn new(key: &Key, mask: &Mask) -> Match {
        Match { key: key.masked(mask), mask: *mask }
    }

    /// The values, zero where wildcarded.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The bits that count.
    pub fn mask(&self) -> &Mask {
        &self.mask
    }

    /// True when `key` is one of the packets.
    pub fn matches(&self, key: &Key) -> bool {
        self.key.equal_under(key, &self.mask)
    }

    /// Requires `field` to be `value`, every bit of it. Replaces what was required before.
    pub fn set(&mut self, field: Field, value: FieldValue) {
        self.set_masked(field, value, field.all_ones());
    }

    /// Requires the bits of `mask` (right-aligned like `value`) in `field` to be those of
    /// `value`. Replaces what was required of the field before.
    ///
    /// A [`Field::DlVlan`] of 0xffff (OpenFlow 1.0's `OFP_VLAN_NONE`) requires that there is
    /// no VLAN header; the other values of the VLAN fields require one.
    pub fn set_masked(&mut self, field: Field, value: FieldValue, mask: FieldValue) {
        if field == Field::DlVlan && value == u128::from(crate::field::DL_VLAN_NONE) && mask != 0 {
            self.key.vlans[0].tci.set(0);
            self.mask.0.vlans[0].tci.set(u16::MAX);
            return;
        }
        if mask == 0 {
            self.clear(field);
            return;
        }
        field.store(&mut self.key, value & mask);
        field.store(&mut self.mask.0, mask);
    }

    /// As [`Match::set_masked`], in all the field's width. For a field of an option the mask may be
    /// zero: the packets have the option, with any value.
    pub fn set_wide(&mut self, field: Field, value: &Wide, mask: &Wide) {
        match field.option() {
            Some(_) => {
                field.store_wide(&mut self.key, &value.and(mask));
                field.store_wide(&mut self.mask.0, mask);
            }
            None => self.set_masked(field, value.low(), mask.low()),
        }
    }

    /// Requires that the packets have, or do not have, the option of `tun_metadataN`.
    pub fn set_present(&mut self, n: usize, present: bool) {
        self.mask.0.tunnel.set_present(n, true);
        self.key.tunnel.set_present(n, present);
    }

    /// The value required of `field`, zero where wildcarded.
    pub fn value(&self, field: Field) -> FieldValue {
        field.load(&self.key)
    }

    /// The bits of `field` that are required; [`Field::all_ones`] when all are.
    pub fn mask_of(&self, field: Field) -> FieldValue {
        field.load(&self.mask.0)
    }

    /// True when every bit of `field` is required.
    pub fn is_exact(&self, field: Field) -> bool {
        match field.option() {
            Some(_) => field.load_wide(&self.mask.0) == field.all_ones_wide(),
            None => self.mask_of(field) == field.all_ones(),
        }
    }

    /// True when nothing of `field` is required.
    pub fn is_any(&self, field: Field) -> bool {
        self.mask.is_any(field)
    }

    /// True when `other` requires something of every bit that `self` does and more, or the
    /// same: same as `other.is_within(self)`.
    pub fn contains(&self, other: &Match) -> bool {
        other.is_within(self)
    }

    /// Stops requiring anything of fields whose prerequisites are not required: what OpenFlow
    /// 1.0 says a switch does with such matches (and ovs-ofctl before it sends them). Returns
    /// true when that changed the match.
    pub fn normalize(&mut self) -> bool {
        let before = *self;
        // Clearing one field can take another's prerequisite away.
        loop {
            let round = *self;
            // Several fields share a place (TCP and UDP ports, ARP and IP addresses): a place
            // stays when any field there has its prerequisites.
            let mut keep = Mask::WILDCARD;
            for (prerequisite, places) in &*PLACES {
                if prerequisite.holds_for_match(self) {
                    keep.union(places);
                }
            }
            // No field names these; they go with L4 of IGMP, inner VLANs and labels.
            keep.0.vlans = Mask::EXACT.0.vlans;
            // The places of options change.
            keep.0.tunnel = Mask::EXACT.0.tunnel;
            if Prerequisite::Mpls.holds_for_match(self) {
                keep.0.mpls = Mask::EXACT.0.mpls;
            }
            let mask = self.mask;
            for (m, k) in self.mask.words_mut().iter_mut().zip(keep.words()) {
                *m &= k;
            }
            if self.mask != mask {
                self.key = self.key.masked(&self.mask);
            }
            if *self == round {
                return *self != before;
            }
        }
    }

    /// Stops requiring anything of `field`.
    pub fn clear(&mut self, field: Field) {
        field.clear(&mut self.key);
        field.clear(&mut self.mask.0);
    }

    /// True when every packet of `self` is one of `other`.
    pub fn is_within(&self, other: &Match) -> bool {
        let other = other.beyond(&self.mask);
        self.mask.covers(&other.mask) && self.key.equal_under(&other.key, &other.mask)
    }

    /// Returns the part of the match that a match under `mask` does not imply: a match on a field
    /// that only Ethernet packets have implies that the packets are Ethernet.
    pub fn beyond(&self, mask: &Mask) -> Match {
        let mut rest = *self;
        if self.asks_for_ethernet() && mask.implies_ethernet() {
            rest.clear(Field::PacketType);
        }
        rest
    }

    /// Returns the first matched field whose prerequisites are not asked for (OpenFlow 1.5.1, 7.2.3.6).
    pub fn unmet_prerequisite(&self) -> Option<Field> {
        let is_used = |field: &Field| field.load(&self.mask.0) != 0;
        let holds = |field: &Field| field.prerequisite().holds_for_match(self);
        // Fields that share a place are each other's, so only a field that no other one of the same
        // place stands in for is missing its prerequisites.
        let stands_in = |field: &Field| {
            let offset = field.def().position.offset;
            Field::ALL.iter().any(|f| is_used(f) && f.def().position.offset == offset && holds(f))
        };
        Field::ALL.into_iter().find(|field| is_used(field) && !holds(field) && !stands_in(field))
    }

    /// True when it asks for Ethernet packets by their packet type.
    pub fn asks_for_ethernet(&self) -> bool {
        !self.is_any(Field::PacketType) && self.key.packet_type.get() == 0
    }

    /// True when some packet matches both.
    pub fn overlaps(&self, other: &Match) -> bool {
        let both = self.mask.words().iter().zip(other.mask.words());
        self.key
            .words()
            .iter()
            .zip(other.key.words())
            .zip(both)
            .all(|((a, b), (m, n))| (a ^ b) & m & n == 0)
    }
}

impl Prerequisite {
    /// True when `m` asks for it (else OpenFlow's `OFPBMC_BAD_PREREQ`). As in OVS, what must be
    /// zero need not be asked for, only nothing else may be: later fragments, the ICMPv6 code of
    /// neighbour messages, the packet type. A packet that has something else there has zeros in
    /// the fields. A connection is asked for by a bit that only packets of connections have, or by
    /// `+trk-inv`.
    pub fn holds_for_match(self, m: &Match) -> bool {
        // Bits outside the mask are zero.
        let (state, mask) = (m.key.ct_state, m.mask.0.ct_state);
        match self {
            Prerequisite::Ct => {
                let says_valid = state & ct_state::TRK != 0 && mask & !state & ct_state::INV != 0;
                state & ct_state::OF_VALID != 0 || says_valid
            }
            _ => self.holds(&m.key),
        }
    }
}
