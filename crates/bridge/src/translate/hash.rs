// SPDX-License-Identifier: Apache-2.0
//! Hashes that choose buckets, links and ports.
//!
//! The hash functions are this switch's own (OVS documents none). The hashed fields are those of
//! OVS, and are made exact in the mask. Equal keys give equal hashes on every machine and in every
//! run.

use super::finish::is_ip;
use flow::extract::FRAG_ANY;
use flow::{Field, FieldValue, Key, Mask, VLAN_CFI};
use openflow::action::{HashFields, MultipathAlgorithm};
use packet::{ethertype, ip_proto};

/// A running hash of 64-bit words (the finalizer of SplitMix64 over a chained state).
#[derive(Clone, Copy, Debug)]
pub(super) struct Hasher(u64);

impl Hasher {
    pub(super) fn new(basis: u64) -> Hasher {
        Hasher(mix(basis.wrapping_add(0x9e37_79b9_7f4a_7c15)))
    }

    pub(super) fn word(mut self, word: u64) -> Hasher {
        self.0 = mix(self.0.rotate_left(5) ^ word.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        self
    }

    pub(super) fn wide(self, value: u128) -> Hasher {
        self.word((value >> 64) as u64).word(value as u64)
    }

    pub(super) fn finish(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

fn mac(bytes: &[u8; 6]) -> u64 {
    bytes.iter().fold(0, |v, b| v << 8 | u64::from(*b))
}

/// Which transport ports a hash reads. Fragments have none: see [`Key::common_to_fragments`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ports {
    /// The hash leaves out all ports.
    None,
    /// TCP's and SCTP's. UDP's may differ by direction, as VXLAN's do.
    TcpSctp,
    /// TCP's, SCTP's and UDP's.
    TcpSctpUdp,
}

impl Ports {
    /// Returns true when the hash reads the ports of a packet with this key.
    fn are_read(self, key: &Key) -> bool {
        let of_protocol = match key.nw_proto {
            ip_proto::TCP | ip_proto::SCTP => self != Ports::None,
            ip_proto::UDP => self == Ports::TcpSctpUdp,
            _ => false,
        };
        of_protocol && is_ip(key) && key.nw_frag & FRAG_ANY == 0
    }
}

/// Makes the addresses of the network layer exact. Returns source xor destination; 0 for a packet
/// without such addresses.
fn symmetric_addresses(key: &Key, mask: &mut Mask) -> u128 {
    let (src, dst) = match key.dl_type.get() {
        ethertype::IPV4 => (Field::Ipv4Src, Field::Ipv4Dst),
        ethertype::IPV6 => (Field::Ipv6Src, Field::Ipv6Dst),
        _ => return 0,
    };
    src.unwildcard(mask);
    dst.unwildcard(mask);
    src.load(key) ^ dst.load(key)
}

/// Adds addresses, protocol and ports of an IP packet, the same for both directions, and makes them
/// exact. Packets of other types add nothing.
fn symmetric_l3l4(h: Hasher, ports: Ports, key: &Key, mask: &mut Mask) -> Hasher {
    if !is_ip(key) {
        return h;
    }
    let mut h = h.wide(symmetric_addresses(key, mask));
    mask.0.nw_proto = u8::MAX;
    h = h.word(key.nw_proto.into());
    if ports.are_read(key) {
        Field::TcpSrc.fill(&mut mask.0);
        Field::TcpDst.fill(&mut mask.0);
        h = h.word((key.tp_src.get() ^ key.tp_dst.get()).into());
    }
    h
}

/// Returns the address field `v4` or `v6`, by the Ethernet type, and makes it exact; 0 for other
/// packets.
fn address(v4: Field, v6: Field, key: &Key, mask: &mut Mask) -> u128 {
    let field = match key.dl_type.get() {
        ethertype::IPV4 => v4,
        ethertype::IPV6 => v6,
        _ => return 0,
    };
    field.unwildcard(mask);
    field.load(key)
}

/// Returns the hash of `fields` of `key` and `basis` (ovs-actions(7), `bundle` and `multipath`).
/// Makes exact in `mask` the fields that it reads; the Ethernet type and, for IP, the fragmentation
/// always are. All fragments of one packet have the same hash.
pub(super) fn hash_fields(fields: HashFields, basis: u32, key: &Key, mask: &mut Mask) -> u32 {
    let key = &key.common_to_fragments();
    let h = Hasher::new(basis.into());
    let h = match fields {
        HashFields::EthSrc => {
            mask.set_exact(Field::EthSrc);
            h.word(mac(&key.dl_src))
        }
        HashFields::SymmetricL4 => {
            mask.set_exact(Field::EthSrc);
            mask.set_exact(Field::EthDst);
            for v in &mut mask.0.vlans {
                v.tci.set(v.tci.get() | VLAN_CFI | 0x0fff);
            }
            let vlans = key.vlans.iter().fold(0, |v, t| v ^ u64::from(t.tci.get() & 0x0fff));
            let h = h
                .word(mac(&key.dl_src) ^ mac(&key.dl_dst))
                .word(vlans)
                .word(key.dl_type.get().into());
            symmetric_l3l4(h, Ports::TcpSctp, key, mask)
        }
        HashFields::SymmetricL3L4 => symmetric_l3l4(h, Ports::TcpSctp, key, mask),
        HashFields::SymmetricL3L4Udp => symmetric_l3l4(h, Ports::TcpSctpUdp, key, mask),
        HashFields::NwSrc => h.wide(address(Field::Ipv4Src, Field::Ipv6Src, key, mask)),
        HashFields::NwDst => h.wide(address(Field::Ipv4Dst, Field::Ipv6Dst, key, mask)),
        HashFields::SymmetricL3 => {
            h.word(key.dl_type.get().into()).wide(symmetric_addresses(key, mask))
        }
    };
    h.finish()
}

/// Returns the hash by which a select group of method `hash` chooses: of `basis` and the bits
/// `field/mask` of `fields` in `key`. A field that the packet does not have adds nothing. Makes
/// exact in `mask` the fields that it reads. All fragments of one packet have the same hash.
pub(super) fn hash_chosen(
    fields: &[(Field, FieldValue)],
    basis: u64,
    key: &Key,
    mask: &mut Mask,
) -> u32 {
    let key = &key.common_to_fragments();
    let mut h = Hasher::new(basis);
    for (field, field_mask) in fields {
        let need = field.prerequisite();
        need.unwildcard(mask);
        if !need.holds(key) {
            continue;
        }
        let mut bits = Key::ZERO;
        field.store(&mut bits, *field_mask);
        for (m, b) in mask.words_mut().iter_mut().zip(bits.words()) {
            *m |= b;
        }
        h = h.word(*field as u64).wide(field.load(key) & field_mask);
    }
    h.finish()
}

/// Returns the link, 0 to `max_link`, for a hash (ovs-actions(7), `multipath`).
pub(super) fn choose_link(
    algorithm: MultipathAlgorithm,
    hash: u32,
    max_link: u16,
    arg: u32,
) -> u16 {
    let n = u32::from(max_link) + 1;
    let link = match algorithm {
        MultipathAlgorithm::ModuloN => hash % n,
        MultipathAlgorithm::HashThreshold => ((u64::from(hash) * u64::from(n)) >> 32) as u32,
        MultipathAlgorithm::Hrw => (0..n).max_by_key(|link| score(hash, *link)).unwrap_or(0),
        // Hashes into a power of two that is at least `arg` and n, and hashes again until the link
        // is one that exists.
        MultipathAlgorithm::IterHash => {
            let modulo = u64::from(arg.max(n)).next_power_of_two();
            (0..64u64)
                .map(|i| (Hasher::new(i).word(hash.into()).finish() as u64 % modulo) as u32)
                .find(|link| *link < n)
                .unwrap_or(hash % n)
        }
    };
    // `link` is below n, which is at most 65536.
    link as u16
}

/// Returns the score of candidate `id` for a hash. The candidate with the highest score wins
/// (highest random weight), so the loss of one candidate moves only its own share.
pub(super) fn score(hash: u32, id: u32) -> u32 {
    Hasher::new(id.into()).word(hash.into()).finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_in_range_and_all_are_used() {
        use MultipathAlgorithm::*;
        for algorithm in [ModuloN, HashThreshold, Hrw, IterHash] {
            for max in [0u16, 1, 2, 6] {
                let mut seen = std::collections::BTreeSet::new();
                for i in 0..500u32 {
                    let h = Hasher::new(1).word(i.into()).finish();
                    let link = choose_link(algorithm, h, max, 0);
                    assert!(link <= max, "{algorithm:?}");
                    seen.insert(link);
                }
                assert_eq!(seen.len(), usize::from(max) + 1, "{algorithm:?} {max}");
            }
        }
    }

    #[test]
    fn symmetric_hashes_are_equal_both_ways() {
        let mut a = Key::ZERO;
        a.dl_src = [2, 0, 0, 0, 0, 1];
        a.dl_dst = [2, 0, 0, 0, 0, 2];
        a.dl_type.set(0x800);
        a.nw_src.set(1);
        a.nw_dst.set(2);
        a.nw_proto = 6;
        a.tp_src.set(3);
        a.tp_dst.set(4);
        let mut b = a;
        (b.dl_src, b.dl_dst) = (a.dl_dst, a.dl_src);
        (b.nw_src, b.nw_dst, b.tp_src, b.tp_dst) = (a.nw_dst, a.nw_src, a.tp_dst, a.tp_src);
        for f in [
            HashFields::SymmetricL4,
            HashFields::SymmetricL3L4,
            HashFields::SymmetricL3L4Udp,
            HashFields::SymmetricL3,
        ] {
            let mut m = Mask::WILDCARD;
            assert_eq!(hash_fields(f, 7, &a, &mut m), hash_fields(f, 7, &b, &mut m));
            assert_ne!(hash_fields(f, 7, &a, &mut m), hash_fields(f, 8, &a, &mut m));
            assert_eq!(m.0.nw_src.get(), u32::MAX);
        }
        let mut m = Mask::WILDCARD;
        assert_ne!(
            hash_fields(HashFields::NwSrc, 0, &a, &mut m),
            hash_fields(HashFields::NwSrc, 0, &b, &mut m)
        );
        assert_eq!(m.0.nw_dst.get(), 0);
    }
}
