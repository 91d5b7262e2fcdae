//! [`flow::Key`] and [`flow::Match`] in the words of the shared tables, and back.

use std::mem::offset_of;

use flow::{Key, Mask, Match};

use crate::layout::{WORDS, word};

/// Where each word is in a [`Key`], by the number of its 64-bit word.
const PLACES: [usize; WORDS] = {
    let mut places = [0; WORDS];
    places[word::RECIRC] = offset_of!(Key, recirc_id) / 8;
    places[word::PORT] = offset_of!(Key, in_port) / 8;
    places[word::ETH0] = offset_of!(Key, dl_dst) / 8;
    places[word::ETH1] = offset_of!(Key, dl_dst) / 8 + 1;
    places[word::VLAN] = offset_of!(Key, vlans) / 8;
    places[word::IP4] = offset_of!(Key, nw_src) / 8;
    places[word::IP] = offset_of!(Key, ipv6_label) / 8;
    places[word::TP] = offset_of!(Key, tp_src) / 8;
    places[word::META] = offset_of!(Key, skb_priority) / 8;
    places[word::MPLS0] = offset_of!(Key, mpls) / 8;
    places[word::MPLS1] = offset_of!(Key, mpls) / 8 + 1;
    places[word::SRC0] = offset_of!(Key, ipv6_src) / 8;
    places[word::SRC1] = offset_of!(Key, ipv6_src) / 8 + 1;
    places[word::DST0] = offset_of!(Key, ipv6_dst) / 8;
    places[word::DST1] = offset_of!(Key, ipv6_dst) / 8 + 1;
    places[word::ND0] = offset_of!(Key, nd_target) / 8;
    places[word::ND1] = offset_of!(Key, nd_target) / 8 + 1;
    places[word::HW0] = offset_of!(Key, arp_sha) / 8;
    places[word::HW1] = offset_of!(Key, arp_sha) / 8 + 1;
    places[word::ND2] = offset_of!(Key, nd_reserved) / 8;
    places
};

/// A key in the words of the tables; what they do not have is left out.
pub fn to_words(key: &Key) -> [u64; WORDS] {
    let mut key = *key;
    key.actset_output.set(0);
    let words = key.words();
    PLACES.map(|place| words[place])
}

/// The key whose words these are; fields that the tables do not have are zero.
pub fn from_words(words: &[u64; WORDS]) -> Key {
    let mut key = Key::ZERO;
    for (word, place) in words.iter().zip(PLACES) {
        key.words_mut()[place] = *word;
    }
    key.actset_output.set(0);
    key
}

/// A match in the words of the tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matching {
    /// Values, zero outside the mask.
    pub words: [u64; WORDS],
    /// Bits that count.
    pub mask: [u64; WORDS],
    /// The match names a `packet_type` of 0 (Ethernet), which every packet here has.
    pub packet_type: bool,
}

impl Matching {
    /// `None` when the match looks at a field that the tables do not have, or does not name its
    /// ingress port.
    pub fn new(matching: &Match) -> Option<Matching> {
        let mask = matching.mask();
        let named = mask.0.packet_type.get();
        if mask.0.in_port.get() != u32::MAX
            || matching.key().packet_type.get() != 0
            || (named != 0 && named != u32::MAX)
        {
            return None;
        }
        let packet_type = named != 0;
        let words = to_words(&mask.0);
        let mut back = Mask(from_words(&words));
        back.0.packet_type.set(named);
        (back == *mask).then(|| Matching {
            words: to_words(matching.key()),
            mask: words,
            packet_type,
        })
    }

    /// The match as a flow's.
    pub fn to_match(&self) -> Match {
        let mut mask = Mask(from_words(&self.mask));
        if self.packet_type {
            mask.0.packet_type.set(u32::MAX);
        }
        Match::new(&from_words(&self.words), &mask)
    }
}

/// Bit x: the mask looks at word x.
pub fn needs(mask: &[u64; WORDS]) -> u32 {
    mask.iter().enumerate().fold(0, |needs, (x, word)| needs | u32::from(*word != 0) << x)
}

/// The bits that keys are told apart by before anything is known of the flows: all that tell
/// connections and MAC addresses apart, and not what changes from packet to packet.
pub fn signature() -> [u64; WORDS] {
    let mut mask = Mask::EXACT;
    mask.0.nw_ttl = 0;
    mask.0.nw_tos = 0;
    mask.0.ipv6_label.set(0);
    mask.0.tcp_flags.set(0);
    mask.0.pad_l2 = [0; 2];
    mask.0.pad_l3 = [0; 2];
    mask.0.pad_l4 = [0; 3];
    mask.0.pad_mpls = [0; 4];
    to_words(&mask.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::Field;

    #[test]
    fn every_field_of_the_tables_comes_back() {
        let mut key = Key::ZERO;
        for (i, byte) in key.bytes_mut().iter_mut().enumerate() {
            *byte = i as u8;
        }
        key.regs = Key::ZERO.regs;
        key.metadata.set(0);
        key.actset_output.set(0);
        key.conj_id.set(0);
        key.packet_type.set(0);
        assert_eq!(from_words(&to_words(&key)), key);
        let mut seen = PLACES;
        seen.sort_unstable();
        assert!(seen.windows(2).all(|w| w[0] != w[1]));
    }

    #[test]
    fn what_the_tables_lack_is_refused() {
        let mut matching = Match::ANY;
        assert_eq!(Matching::new(&matching), None, "no ingress port");
        matching.set(Field::InPort, 3);
        let plain = Matching::new(&matching).unwrap();
        assert_eq!(plain.to_match(), matching);
        let with = |change: &dyn Fn(&mut Mask, &mut Key)| {
            let (mut mask, mut key) = (*matching.mask(), *matching.key());
            change(&mut mask, &mut key);
            Matching::new(&Match::new(&key, &mask))
        };
        assert!(with(&|m, _| m.0.packet_type.set(u32::MAX)).unwrap().packet_type);
        assert_eq!(
            with(&|m, k| {
                m.0.packet_type.set(u32::MAX);
                k.packet_type.set(1);
            }),
            None
        );
        assert_eq!(with(&|m, _| m.0.regs[3].set(1)), None);
        assert_eq!(with(&|m, _| m.0.metadata.set(1)), None);
        assert_eq!(with(&|m, _| m.0.actset_output.set(1)), None);
        assert_eq!(with(&|m, _| m.0.conj_id.set(1)), None);
        assert_eq!(with(&|m, _| m.0.in_port.set(1)), None);
    }

    proptest::proptest! {
        #[test]
        fn matches_round_trip(bytes: Vec<u8>, bits: Vec<u8>) {
            let (mut key, mut mask) = (Key::ZERO, Mask::WILDCARD);
            for (to, from) in key.bytes_mut().iter_mut().skip(72).zip(&bytes) { *to = *from; }
            for (to, from) in mask.0.bytes_mut().iter_mut().skip(72).zip(&bits) { *to = *from; }
            mask.0.in_port.set(u32::MAX);
            if let Some(m) = Matching::new(&Match::new(&key, &mask)) {
                proptest::prop_assert_eq!(m.to_match(), Match::new(&key, &mask));
            }
        }
    }
}
