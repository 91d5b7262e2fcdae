// SPDX-License-Identifier: Apache-2.0
//! [`flow::Key`] and [`flow::Match`] in the words of the shared tables, and back.

use std::mem::offset_of;

use flow::{Field, Key, Mask, Match, NAMESPACE_ETHERTYPE};
use packet::ethertype;
use zerocopy::IntoBytes;

use crate::layout::{NEEDS_L3, PORT_WORDS, TPID_BARE, WORDS, word};
use crate::options::{self, OptionError, OptionTable};

/// Some bytes of a [`Key`] and where they are in the words.
#[derive(Clone, Copy)]
struct Piece {
    key: usize,
    bytes: usize,
    /// Byte of the words.
    at: usize,
    /// The field is in headers after the Ethernet header and VLANs.
    l3: bool,
}

const fn piece(word: usize, byte: usize, key: usize, bytes: usize) -> Piece {
    Piece { key, bytes, at: word * 8 + byte, l3: false }
}

const fn l3(word: usize, byte: usize, key: usize, bytes: usize) -> Piece {
    Piece { key, bytes, at: word * 8 + byte, l3: true }
}

/// All fields of the tables, as in `enum word` of `bpf/layout.h`.
const PIECES: [Piece; 37] = [
    // Port numbers have 16 bits here.
    piece(word::PORT, 0, offset_of!(Key, in_port) + 2, 2),
    piece(word::PORT, 2, offset_of!(Key, dl_type), 2),
    piece(word::PORT, 4, offset_of!(Key, vlans), 4),
    piece(word::ETH0, 0, offset_of!(Key, dl_dst), 8),
    piece(word::ETH1, 0, offset_of!(Key, dl_src) + 2, 4),
    l3(word::ETH1, 4, offset_of!(Key, nw_frag), 4),
    l3(word::IP4, 0, offset_of!(Key, nw_src), 8),
    l3(word::TP, 0, offset_of!(Key, tp_src), 4),
    piece(word::TP, 4, offset_of!(Key, vlans) + 4, 4),
    piece(word::RECIRC, 0, offset_of!(Key, recirc_id), 8),
    piece(word::META, 0, offset_of!(Key, skb_priority), 8),
    l3(word::REST, 0, offset_of!(Key, igmp_group), 4),
    l3(word::REST, 4, offset_of!(Key, ipv6_label), 4),
    l3(word::MPLS0, 0, offset_of!(Key, mpls), 8),
    l3(word::MPLS1, 0, offset_of!(Key, mpls) + 8, 8),
    l3(word::SRC0, 0, offset_of!(Key, ipv6_src), 16),
    l3(word::DST0, 0, offset_of!(Key, ipv6_dst), 16),
    l3(word::ND0, 0, offset_of!(Key, nd_target), 16),
    l3(word::HW0, 0, offset_of!(Key, arp_sha), 8),
    l3(word::HW1, 0, offset_of!(Key, arp_tha) + 2, 8),
    l3(word::ND2, 0, offset_of!(Key, nd_reserved), 4),
    l3(word::ND2, 4, offset_of!(Key, nd_options_type), 4),
    // A tunnel's key has 32 bits on the wire.
    piece(word::TUN0, 0, offset_of!(Key, tunnel.id) + 4, 4),
    piece(word::TUN0, 4, offset_of!(Key, tunnel.flags), 2),
    piece(word::TUN0, 6, offset_of!(Key, tunnel.tos), 2),
    piece(word::TUN1, 0, offset_of!(Key, tunnel.tp_src), 4),
    piece(word::TUN1, 4, offset_of!(Key, tunnel.gbp_id), 2),
    piece(word::TUN1, 6, offset_of!(Key, tunnel.gbp_flags), 1),
    piece(word::TIP4, 0, offset_of!(Key, tunnel.src), 8),
    piece(word::TSRC0, 0, offset_of!(Key, tunnel.ipv6_src), 16),
    piece(word::TDST0, 0, offset_of!(Key, tunnel.ipv6_dst), 16),
    piece(word::CT, 0, offset_of!(Key, ct_state), 8),
    piece(word::CT_LABEL0, 0, offset_of!(Key, ct_label), 16),
    piece(word::CT_IP4, 0, offset_of!(Key, ct_nw_src), 8),
    piece(word::CT_TP, 0, offset_of!(Key, ct_tp_src), 4),
    piece(word::CT_SRC0, 0, offset_of!(Key, ct_ipv6_src), 16),
    piece(word::CT_DST0, 0, offset_of!(Key, ct_ipv6_dst), 16),
];

/// The fields of the Network Service Header, in packets whose `dl_type` is that of NSH. Their words have
/// fields of neighbour messages in packets of IPv6.
const NSH_PIECES: [Piece; 2] =
    [l3(word::ND0, 0, offset_of!(Key, nsh), 16), l3(word::ND2, 0, offset_of!(Key, nsh) + 16, 8)];

/// The words of [`NSH_PIECES`].
const NSH_WORDS: [usize; 3] = [word::ND0, word::ND1, word::ND2];

/// Fields that the tables do not have: those of the OpenFlow pipeline, those of tunnels that programs
/// do not pop. A match on one of them is refused. The options of Geneve and the fields of ERSPAN have a form
/// of their own ([`crate::options`]).
const LEFT_OUT: [Field; 9] = [
    Field::ActsetOutput,
    Field::ConjId,
    Field::Metadata,
    Field::TunErspanVer,
    Field::TunErspanIdx,
    Field::TunErspanDir,
    Field::TunErspanHwid,
    Field::TunGtpuFlags,
    Field::TunGtpuMsgtype,
];

/// Returns the number of first bytes of a field at `offset` of a [`Key`] that the tables do not have: a
/// port number has 16 bits there, and the key of a tunnel 32.
const fn skipped_bytes(offset: usize) -> usize {
    if offset == offset_of!(Key, in_port) {
        2
    } else if offset == offset_of!(Key, tunnel.id) {
        4
    } else {
        0
    }
}

/// Returns a piece of [`PIECES`] or, after them, of [`NSH_PIECES`].
const fn piece_at(n: usize) -> Piece {
    if n < PIECES.len() { PIECES[n] } else { NSH_PIECES[n - PIECES.len()] }
}

/// Every field of [`flow`] is in the tables or left out by name, on its side of the VLAN headers.
const _: () = {
    let mut i = 0;
    while i < Field::ALL.len() {
        let field = Field::ALL[i];
        let place = field.def().position;
        let skipped = skipped_bytes(place.offset as usize);
        let (mut byte, end) =
            (place.offset as usize + skipped, place.offset as usize + place.bytes as usize);
        while byte < end {
            let (mut found, mut piece) = (false, 0);
            while piece < PIECES.len() + NSH_PIECES.len() {
                let Piece { key, bytes, l3, at } = piece_at(piece);
                if key <= byte && byte < key + bytes {
                    found = true;
                    let is_l3 = field.is_above_vlans() && at < PORT_WORDS * 8;
                    assert!(l3 == is_l3, "l3() for what is after VLANs");
                }
                piece += 1;
            }
            // The packet type has a bit ([`TPID_BARE`]).
            let mut left_out = field.is_register()
                || field.option().is_some()
                || field as u8 == Field::PacketType as u8;
            let mut n = 0;
            while n < LEFT_OUT.len() {
                left_out |= LEFT_OUT[n] as u8 == field as u8;
                n += 1;
            }
            assert!(found != left_out, "a field is in the tables, or it is left out by name");
            byte += 1;
        }
        i += 1;
    }
};

/// The bytes of words that hold fields after the Ethernet header and VLANs.
const L3_BYTES: [[u8; 8]; WORDS] = {
    let mut bytes = [[0; 8]; WORDS];
    let mut piece = 0;
    while piece < PIECES.len() {
        let Piece { at, bytes: length, l3, .. } = PIECES[piece];
        let mut i = at;
        while l3 && i < at + length {
            bytes[i / 8][i % 8] = u8::MAX;
            i += 1;
        }
        piece += 1;
    }
    bytes
};

/// A field of the tables by the name that people know.
struct Named {
    name: &'static str,
    /// Its bytes in a [`Key`].
    key: usize,
    bytes: usize,
}

const fn named(name: &'static str, key: usize, bytes: usize) -> Named {
    Named { name, key, bytes }
}

/// Every field of the tables, in the order of the words.
const NAMED: [Named; 52] = [
    named("in_port", offset_of!(Key, in_port) + 2, 2),
    named("dl_type", offset_of!(Key, dl_type), 2),
    named("the first VLAN header", offset_of!(Key, vlans), 4),
    named("dl_dst", offset_of!(Key, dl_dst), 6),
    named("dl_src", offset_of!(Key, dl_src), 6),
    named("nw_frag", offset_of!(Key, nw_frag), 1),
    named("nw_tos", offset_of!(Key, nw_tos), 1),
    named("nw_ttl", offset_of!(Key, nw_ttl), 1),
    named("nw_proto", offset_of!(Key, nw_proto), 1),
    named("nw_src", offset_of!(Key, nw_src), 4),
    named("nw_dst", offset_of!(Key, nw_dst), 4),
    named("tp_src", offset_of!(Key, tp_src), 2),
    named("tp_dst", offset_of!(Key, tp_dst), 2),
    named("the second VLAN header", offset_of!(Key, vlans) + 4, 4),
    named("recirc_id", offset_of!(Key, recirc_id), 4),
    named("dp_hash", offset_of!(Key, dp_hash), 4),
    named("skb_priority", offset_of!(Key, skb_priority), 4),
    named("pkt_mark", offset_of!(Key, pkt_mark), 4),
    named("igmp_group", offset_of!(Key, igmp_group), 4),
    named("ipv6_label", offset_of!(Key, ipv6_label), 4),
    named("mpls labels", offset_of!(Key, mpls), 12),
    named("ipv6_src", offset_of!(Key, ipv6_src), 16),
    named("ipv6_dst", offset_of!(Key, ipv6_dst), 16),
    named("nd_target", offset_of!(Key, nd_target), 16),
    named("arp and nd addresses", offset_of!(Key, arp_sha), 12),
    named("tcp_flags", offset_of!(Key, tcp_flags), 2),
    named("nd_reserved", offset_of!(Key, nd_reserved), 4),
    named("nd_options_type", offset_of!(Key, nd_options_type), 1),
    named("the fields of NSH", offset_of!(Key, nsh), 24),
    named("tun_id", offset_of!(Key, tunnel.id) + 4, 4),
    named("tun_flags", offset_of!(Key, tunnel.flags), 2),
    named("tun_tos", offset_of!(Key, tunnel.tos), 1),
    named("tun_ttl", offset_of!(Key, tunnel.ttl), 1),
    named("outer tp_src", offset_of!(Key, tunnel.tp_src), 2),
    named("outer tp_dst", offset_of!(Key, tunnel.tp_dst), 2),
    named("tun_gbp_id", offset_of!(Key, tunnel.gbp_id), 2),
    named("tun_gbp_flags", offset_of!(Key, tunnel.gbp_flags), 1),
    named("tun_src", offset_of!(Key, tunnel.src), 4),
    named("tun_dst", offset_of!(Key, tunnel.dst), 4),
    named("tun_ipv6_src", offset_of!(Key, tunnel.ipv6_src), 16),
    named("tun_ipv6_dst", offset_of!(Key, tunnel.ipv6_dst), 16),
    named("ct_state", offset_of!(Key, ct_state), 1),
    named("ct_nw_proto", offset_of!(Key, ct_nw_proto), 1),
    named("ct_zone", offset_of!(Key, ct_zone), 2),
    named("ct_mark", offset_of!(Key, ct_mark), 4),
    named("ct_label", offset_of!(Key, ct_label), 16),
    named("ct_nw_src", offset_of!(Key, ct_nw_src), 4),
    named("ct_nw_dst", offset_of!(Key, ct_nw_dst), 4),
    named("ct_tp_src", offset_of!(Key, ct_tp_src), 2),
    named("ct_tp_dst", offset_of!(Key, ct_tp_dst), 2),
    named("ct_ipv6_src", offset_of!(Key, ct_ipv6_src), 16),
    named("ct_ipv6_dst", offset_of!(Key, ct_ipv6_dst), 16),
];

/// Bytes of pieces that hold no field: offset in a [`Key`] and length. The programs leave them
/// zero.
const PADDING: [(usize, usize); 3] =
    [(offset_of!(Key, pad_mpls), 4), (offset_of!(Key, pad_l3), 2), (offset_of!(Key, pad_l4), 3)];

/// Returns true when the `bytes` bytes at offset `from` include offset `byte`.
const fn includes(from: usize, bytes: usize, byte: usize) -> bool {
    from <= byte && byte < from + bytes
}

/// Every byte of a piece has one name or is padding, every name stands for bytes of pieces, and no
/// field of [`flow`] is in padding: the programs would compare zero for it.
const _: () = {
    let mut byte = 0;
    while byte < size_of::<Key>() {
        let (mut in_pieces, mut names, mut padding) = (0, 0, 0);
        let mut i = 0;
        while i < PIECES.len() + NSH_PIECES.len() {
            in_pieces += includes(piece_at(i).key, piece_at(i).bytes, byte) as usize;
            i += 1;
        }
        i = 0;
        while i < NAMED.len() {
            names += includes(NAMED[i].key, NAMED[i].bytes, byte) as usize;
            i += 1;
        }
        i = 0;
        while i < PADDING.len() {
            padding += includes(PADDING[i].0, PADDING[i].1, byte) as usize;
            i += 1;
        }
        i = 0;
        while i < Field::ALL.len() {
            let place = Field::ALL[i].def().position;
            let in_field = includes(place.offset as usize, place.bytes as usize, byte);
            assert!(!in_field || padding == 0, "a field is in PADDING: take its bytes out of it");
            i += 1;
        }
        assert!(in_pieces <= 1, "pieces do not overlap");
        assert!(in_pieces == names + padding, "each byte of a piece has one name or is PADDING");
        byte += 1;
    }
};

impl Named {
    /// Returns the words that hold the field, as bits, and [`NEEDS_L3`] if it comes after the
    /// Ethernet header and VLANs.
    fn needs(&self) -> u64 {
        let mut needs = 0;
        for p in PIECES.iter().chain(&NSH_PIECES) {
            let (from, end) = (p.key.max(self.key), (p.key + p.bytes).min(self.key + self.bytes));
            for byte in from..end {
                needs |= 1 << ((p.at + byte - p.key) / 8);
                needs |= if p.l3 { NEEDS_L3 } else { 0 };
            }
        }
        needs
    }
}

/// Returns the names of the fields that a program compares, for people. `needs` has a bit for each
/// word that the program compares, and [`NEEDS_L3`]. A field of which the program does not compare
/// all words is marked as a part.
pub(crate) fn names(needs: u64) -> Vec<String> {
    let name = |field: &Named| {
        let of_field = field.needs();
        if of_field & !needs == 0 {
            return Some(field.name.to_owned());
        }
        let is_compared = of_field & NEEDS_L3 & !needs == 0 && of_field & !NEEDS_L3 & needs != 0;
        is_compared.then(|| format!("{} (part)", field.name))
    };
    NAMED.iter().filter_map(name).collect()
}

/// Copies bytes; every length that pieces have is a plain load and store.
#[inline(always)]
fn copy(to: &mut [u8], from: &[u8], length: usize) {
    fn fixed<const N: usize>(to: &mut [u8], from: &[u8]) {
        if let (Some(to), Some(from)) = (to.first_chunk_mut::<N>(), from.first_chunk::<N>()) {
            *to = *from;
        }
    }
    match length {
        1 => fixed::<1>(to, from),
        2 => fixed::<2>(to, from),
        4 => fixed::<4>(to, from),
        8 => fixed::<8>(to, from),
        _ => fixed::<16>(to, from),
    }
}

/// Returns the pieces of packets with NSH, or of others.
fn pieces(is_nsh: bool) -> impl Iterator<Item = &'static Piece> {
    let of_others = move |p: &&Piece| !is_nsh || !NSH_WORDS.contains(&(p.at / 8));
    let of_nsh = is_nsh.then_some(&NSH_PIECES).into_iter().flatten();
    PIECES.iter().filter(of_others).chain(of_nsh)
}

/// Converts a key to the words of the tables; leaves out the fields that the tables lack.
pub fn to_words(key: &Key) -> [u64; WORDS] {
    let mut words = to_words_of(key, key.dl_type.get() == ethertype::NSH);
    if key.packet_type.get() >> 16 == NAMESPACE_ETHERTYPE {
        words[word::PORT] |= BARE;
    }
    words
}

/// Converts a key or the key of a mask.
fn to_words_of(key: &Key, is_nsh: bool) -> [u64; WORDS] {
    let mut words = [0u64; WORDS];
    let (to, from) = (words.as_mut_bytes(), key.bytes());
    for p in pieces(is_nsh) {
        copy(&mut to[p.at..], &from[p.key..], p.bytes);
    }
    words
}

/// Converts words of the tables to a key. Fields that the tables lack are zero.
pub fn from_words(words: &[u64; WORDS]) -> Key {
    let mut without = *words;
    without[word::PORT] &= !BARE;
    let mut key = from_words_of(&without, is_of_nsh(words));
    if is_bare(words) {
        key.packet_type.set(NAMESPACE_ETHERTYPE << 16 | u32::from(key.dl_type.get()));
    }
    key
}

/// Converts the words of a key or of a mask.
fn from_words_of(words: &[u64; WORDS], is_nsh: bool) -> Key {
    let mut key = Key::ZERO;
    let (to, from) = (key.bytes_mut(), words.as_bytes());
    for p in pieces(is_nsh) {
        copy(&mut to[p.key..], &from[p.at..], p.bytes);
    }
    key
}

/// Returns true when the Ethernet type in words is that of NSH.
fn is_of_nsh(words: &[u64; WORDS]) -> bool {
    let [_, _, a, b, ..] = words[word::PORT].to_ne_bytes();
    u16::from_be_bytes([a, b]) == ethertype::NSH
}

/// Converts words of the tables to a mask without options, which is that of packets with NSH or of others.
/// A flow always names its whole ingress port, and the whole key of a tunnel or less than the half that
/// headers have.
fn mask_from_words(words: &[u64; WORDS], is_nsh: bool) -> Mask {
    let mut mask = from_words_of(words, is_nsh);
    if names_port(words) {
        mask.in_port.set(u32::MAX);
    }
    // The high half of a tunnel's key is zero in every packet.
    if mask.tunnel.id.get() == u32::MAX.into() {
        mask.tunnel.id.set(u64::MAX);
    }
    Mask(mask)
}

/// Returns true when a mask has all bits of the ingress port.
pub(crate) fn names_port(mask: &[u64; WORDS]) -> bool {
    from_words(mask).in_port.get() == u16::MAX.into()
}

/// Why a match has no words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyError {
    /// A field, or the form in which it is matched on.
    Field,
    /// There is no place for the Geneve option with this header.
    Option([u8; 4]),
}

/// The half of a tunnel's key that no header has.
const HIGH_HALF: u64 = !(u32::MAX as u64);

/// A match in the words of the tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Matching {
    /// Values, zero outside the mask.
    pub(crate) words: [u64; WORDS],
    /// Bits that the match compares.
    pub(crate) mask: [u64; WORDS],
    /// The match names the packet type. Its bit is in the words.
    pub(crate) packet_type: bool,
}

/// The place of [`TPID_BARE`] in [`word::PORT`].
const BARE: u64 = {
    let [a, b] = TPID_BARE.to_be_bytes();
    u64::from_ne_bytes([0, 0, 0, 0, a, b, 0, 0])
};

/// The TPID of the first VLAN header in [`word::PORT`].
const TPID: u64 = u64::from_ne_bytes([0, 0, 0, 0, 0xff, 0xff, 0, 0]);

/// Returns true when words are those of a packet without an Ethernet header.
pub(crate) fn is_bare(words: &[u64; WORDS]) -> bool {
    words[word::PORT] & BARE != 0
}

impl Matching {
    /// Converts a match, whose options are in `options`.
    ///
    /// # Errors
    ///
    /// [`KeyError::Field`] when the match uses a field that the tables lack, or does not name its
    /// ingress port; [`KeyError::Option`] when it matches on an option that `options` lacks.
    pub(crate) fn new(matching: &Match, options: &OptionTable) -> Result<Matching, KeyError> {
        let mask = matching.mask();
        let named = mask.0.packet_type.get();
        if mask.0.in_port.get() != u32::MAX
            || matching.key().in_port.get() > u16::MAX.into()
            || (named != 0 && named != u32::MAX)
        {
            return Err(KeyError::Field);
        }
        let (tunnel, tunnel_mask) = (&matching.key().tunnel, &mask.0.tunnel);
        if tunnel.id.get() & HIGH_HALF != 0 {
            return Err(KeyError::Field);
        }
        let (of_options, of_options_mask) =
            options.words(tunnel, tunnel_mask).map_err(|e| match e {
                OptionError::Unknown(header) => KeyError::Option(header),
                OptionError::Form => KeyError::Field,
            })?;
        let packet_type = named != 0;
        let bare_type = matching.key().packet_type.get();
        let (dl_type, of_type) = (matching.key().dl_type.get(), mask.0.dl_type.get());
        let is_nsh = dl_type == ethertype::NSH && of_type == u16::MAX;
        let mut made = Matching {
            words: to_words_of(matching.key(), is_nsh),
            mask: to_words_of(&mask.0, is_nsh),
            packet_type,
        };
        // A word has one meaning for all packets of a flow.
        if !is_nsh
            && (dl_type ^ ethertype::NSH) & of_type == 0
            && NSH_WORDS.into_iter().any(|x| made.mask[x] != 0)
        {
            return Err(KeyError::Field);
        }
        // No TPID has the bit.
        if is_bare(&made.words) {
            return Err(KeyError::Field);
        }
        if bare_type != 0 {
            // The Ethernet type stands for the packet type.
            let of_ethertype = NAMESPACE_ETHERTYPE << 16 | u32::from(dl_type);
            let has_vlan = made.words[word::PORT] & TPID != 0;
            // Programs do not take such a packet out of a tunnel.
            let is_popped = matching.key().recirc_id.get() == 0;
            if bare_type != of_ethertype || of_type != u16::MAX || has_vlan || is_popped {
                return Err(KeyError::Field);
            }
            made.words[word::PORT] |= BARE;
        }
        if packet_type {
            made.mask[word::PORT] |= BARE;
        }
        made.words[word::OPT0..word::CT].copy_from_slice(&of_options);
        made.mask[word::OPT0..word::CT].copy_from_slice(&of_options_mask);
        let mut back = made.key_mask(is_nsh);
        // Their words stand for all of them.
        (back.0.tunnel.options, back.0.tunnel.options_len) =
            (tunnel_mask.options, tunnel_mask.options_len);
        (back.0.tunnel.erspan_ver, back.0.tunnel.erspan_idx) =
            (tunnel_mask.erspan_ver, tunnel_mask.erspan_idx);
        (back.0.tunnel.erspan_dir, back.0.tunnel.erspan_hwid) =
            (tunnel_mask.erspan_dir, tunnel_mask.erspan_hwid);
        if back == *mask { Ok(made) } else { Err(KeyError::Field) }
    }

    /// Returns the mask without options.
    fn key_mask(&self, is_nsh: bool) -> Mask {
        let mut words = self.mask;
        // With all bits of the TPID, the bit is its own, too.
        if self.packet_type && words[word::PORT] & TPID != TPID {
            words[word::PORT] &= !BARE;
        }
        let mut mask = mask_from_words(&words, is_nsh);
        if self.packet_type {
            mask.0.packet_type.set(u32::MAX);
        }
        mask
    }

    /// Converts to the match of a megaflow.
    pub(crate) fn to_match(&self, options: &OptionTable) -> Match {
        let mut mask = self.key_mask(is_of_nsh(&self.words));
        let mut key = from_words(&self.words);
        let (words, masks) = (options::of_words(&self.words), options::of_words(&self.mask));
        options.store((&words, &masks), &mut key.tunnel, &mut mask.0.tunnel);
        Match::new(&key, &mask)
    }
}

/// Returns the needs of a mask: bit x is set when the mask has bits of word x, and [`NEEDS_L3`]
/// when it has bits of a field after the Ethernet header and VLANs.
pub fn needs(mask: &[u64; WORDS]) -> u64 {
    let (mut needs, mut above) = (0, 0);
    for (x, (word, l3)) in mask.iter().zip(L3_BYTES).enumerate() {
        needs |= u64::from(*word != 0) << x;
        above |= word & u64::from_ne_bytes(l3);
    }
    needs | if above != 0 { NEEDS_L3 } else { 0 }
}

/// Returns true when words of metadata are not zero: packets from ports have no such key.
pub(crate) fn has_metadata(words: &[u64; WORDS]) -> bool {
    words.iter().skip(PORT_WORDS).any(|word| *word != 0)
}

/// Returns true when words of tunnels are not zero.
pub(crate) fn is_of_tunnel(words: &[u64; WORDS]) -> bool {
    words.iter().take(word::CT).skip(word::TUN0).any(|word| *word != 0)
}

/// Returns the bits that distinguish keys before any flow is known. They include all bits that
/// distinguish connections and MAC addresses, but no field that changes from packet to packet.
pub fn signature() -> [u64; WORDS] {
    let mut mask = Mask::EXACT;
    mask.0.nw_ttl = 0;
    mask.0.nw_tos = 0;
    mask.0.ipv6_label.set(0);
    mask.0.tcp_flags.set(0);
    mask.0.pad_l2 = [0; 2];
    mask.0.pad_l3 = [0; 2];
    mask.0.pad_l4 = [0; 7];
    mask.0.pad_mpls = [0; 4];
    mask.0.tunnel.ttl = 0;
    mask.0.tunnel.tp_src.set(0);
    let mut words = to_words(&mask.0);
    NSH_WORDS.into_iter().for_each(|x| words[x] = u64::MAX);
    words[word::OPT0..word::CT].fill(u64::MAX);
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{TUNNEL_OPTIONS, TunnelOption};

    const NO_OPTIONS: OptionTable = OptionTable(
        [TunnelOption { header: 0, at: 0, bytes: 0, in_use: 0, pad: 0 }; TUNNEL_OPTIONS],
    );

    /// The fields of a tunnel that the tables have, without options.
    fn tunnel_of_tables(all: &flow::Tunnel) -> flow::Tunnel {
        let mut tunnel = flow::Tunnel::NONE;
        tunnel.id.set(all.id.get() & !HIGH_HALF);
        (tunnel.src, tunnel.dst) = (all.src, all.dst);
        (tunnel.ipv6_src, tunnel.ipv6_dst) = (all.ipv6_src, all.ipv6_dst);
        (tunnel.flags, tunnel.tos, tunnel.ttl) = (all.flags, all.tos, all.ttl);
        (tunnel.tp_src, tunnel.tp_dst) = (all.tp_src, all.tp_dst);
        (tunnel.gbp_id, tunnel.gbp_flags) = (all.gbp_id, all.gbp_flags);
        tunnel
    }

    #[test]
    fn every_field_of_the_tables_comes_back() {
        let mut key = Key::ZERO;
        for (i, byte) in key.bytes_mut().iter_mut().enumerate() {
            *byte = i as u8;
        }
        key.regs = Key::ZERO.regs;
        key.tunnel = tunnel_of_tables(&key.tunnel);
        for field in LEFT_OUT.into_iter().chain([Field::PacketType]) {
            field.store(&mut key, 0);
        }
        let nsh = std::mem::take(&mut key.nsh);
        key.pad_l2 = [0; 2];
        key.pad_l4.iter_mut().skip(3).for_each(|byte| *byte = 0);
        key.in_port.set(0x1234);
        key.vlans[0].tpid.set(0xe0e2); // without TPID_BARE, as all are
        assert_eq!(from_words(&to_words(&key)), key);
        let words = to_words(&key);
        let of_pieces =
            words.iter().enumerate().filter(|(x, _)| !(word::OPT0..word::CT).contains(x));
        assert!(of_pieces.take(WORDS - 5).all(|(_, word)| *word != 0));
        // Packets with NSH have its fields in place of those of neighbour messages.
        (key.nd_target, key.nd_options_type, key.pad_l4) = ([0; 16], 0, [0; 7]);
        key.nd_reserved.set(0);
        key.dl_type.set(ethertype::NSH);
        key.nsh = nsh;
        assert_eq!(from_words(&to_words(&key)), key);
        key.vlans = Key::ZERO.vlans;
        key.packet_type.set(NAMESPACE_ETHERTYPE << 16 | u32::from(ethertype::NSH));
        assert_eq!(from_words(&to_words(&key)), key);
    }

    #[test]
    fn what_the_tables_lack_is_refused() {
        let mut matching = Match::ANY;
        let new = |matching: &Match| Matching::new(matching, &NO_OPTIONS).ok();
        assert_eq!(new(&matching), None, "no ingress port");
        matching.set(Field::InPort, 3);
        let plain = new(&matching).unwrap();
        assert_eq!(plain.to_match(&NO_OPTIONS), matching);
        let with = |change: &dyn Fn(&mut Mask, &mut Key)| {
            let (mut mask, mut key) = (*matching.mask(), *matching.key());
            change(&mut mask, &mut key);
            new(&Match::new(&key, &mask))
        };
        assert!(with(&|m, _| m.0.packet_type.set(u32::MAX)).unwrap().packet_type);
        assert_eq!(
            with(&|m, k| {
                m.0.packet_type.set(u32::MAX);
                k.packet_type.set(1);
            }),
            None
        );
        let bare = |m: &mut Mask, k: &mut Key| {
            m.0.packet_type.set(u32::MAX);
            m.0.dl_type.set(u16::MAX);
            k.packet_type.set(0x1_0800);
            k.dl_type.set(0x800);
            m.0.recirc_id.set(u32::MAX);
            k.recirc_id.set(5);
        };
        let (mut key, mut mask) = (*matching.key(), *matching.mask());
        bare(&mut mask, &mut key);
        let made = with(&bare).unwrap();
        assert!(is_bare(&made.words) && !is_bare(&plain.words));
        assert_eq!(made.to_match(&NO_OPTIONS), Match::new(&key, &mask));
        let other_type = |m: &mut Mask, k: &mut Key| {
            bare(m, k);
            k.dl_type.set(0x806);
        };
        assert_eq!(with(&other_type), None);
        let from_tunnel = |m: &mut Mask, k: &mut Key| {
            bare(m, k);
            k.recirc_id.set(0);
        };
        assert_eq!(with(&from_tunnel), None);
        let without_type = |m: &mut Mask, k: &mut Key| {
            bare(m, k);
            m.0.dl_type.set(0);
        };
        assert_eq!(with(&without_type), None);
        // A word has one meaning for all packets of a flow.
        let nsh = |kind: u16| {
            let set = move |m: &mut Mask, k: &mut Key| {
                m.0.dl_type.set(u16::MAX);
                k.dl_type.set(kind);
                m.0.nsh.path.set(0xff);
                k.nsh.path.set(9);
            };
            with(&set)
        };
        assert!(nsh(ethertype::NSH).is_some() && nsh(0x86dd).is_none());
        assert_eq!(with(&|m, _| m.0.nd_target[0] = 1), None, "of packets with NSH, too");
        let no_tpid = |m: &mut Mask, k: &mut Key| {
            m.0.vlans[0].tpid.set(1);
            k.vlans[0].tpid.set(1);
        };
        assert_eq!(with(&no_tpid), None);
        assert_eq!(with(&|m, _| m.0.regs[3].set(1)), None);
        assert_eq!(with(&|m, _| m.0.metadata.set(1)), None);
        assert_eq!(with(&|m, _| m.0.actset_output.set(1)), None);
        assert_eq!(with(&|m, _| m.0.conj_id.set(1)), None);
        assert_eq!(with(&|m, _| m.0.in_port.set(1)), None);
        assert_eq!(with(&|_, k| k.in_port.set(0x1_0003)), None);
        assert_eq!(with(&|m, _| m.0.tunnel.erspan_ver = 1), None, "it has no place yet");
        assert_eq!(with(&|m, _| m.0.tunnel.gtpu_msgtype = 1), None);
        assert_eq!(with(&|m, _| m.0.tunnel.present.set(1)), None);
        let wide = |m: &mut Mask, k: &mut Key| {
            m.0.tunnel.id.set(u64::MAX);
            k.tunnel.id.set(1 << 32);
        };
        assert_eq!(with(&wide), None, "no header has such a key");
        let tunnel = with(&|m, k| {
            m.0.tunnel.id.set(u64::MAX);
            k.tunnel.id.set(5);
        });
        let mut wanted = matching;
        wanted.set(Field::TunId, 5);
        assert_eq!(tunnel.unwrap().to_match(&NO_OPTIONS), wanted);
    }

    #[test]
    fn needs_include_fields_after_the_ethernet_header() {
        let needs_of = |field: Field| {
            let mut mask = Mask::WILDCARD;
            mask.set_exact(field);
            needs(&to_words(&mask.0))
        };
        assert_eq!(needs_of(Field::EthDst), 1 << word::ETH0);
        assert_eq!(needs_of(Field::EthSrc), 1 << word::ETH0 | 1 << word::ETH1);
        assert_eq!(needs_of(Field::IpProto), 1 << word::ETH1 | NEEDS_L3);
        assert_eq!(needs_of(Field::Ipv4Dst), 1 << word::IP4 | NEEDS_L3);
        assert_eq!(needs_of(Field::UdpDst), 1 << word::TP | NEEDS_L3);
        assert_eq!(needs_of(Field::RecircId), 1 << word::RECIRC);
        let lengths: Vec<usize> = PIECES.iter().map(|p| p.bytes).collect();
        assert!(lengths.iter().all(|length| [1, 2, 4, 8, 16].contains(length)));
    }

    proptest::proptest! {
        #[test]
        fn matches_round_trip(bytes: Vec<u8>, bits: Vec<u8>) {
            let (mut key, mut mask) = (Key::ZERO, Mask::WILDCARD);
            for (to, from) in key.bytes_mut().iter_mut().skip(72).zip(&bytes) { *to = *from; }
            for (to, from) in mask.0.bytes_mut().iter_mut().skip(72).zip(&bits) { *to = *from; }
            mask.0.in_port.set(u32::MAX);
            mask.0.pad_l2 = [0; 2];
            key.tunnel = tunnel_of_tables(&key.tunnel);
            mask.0.tunnel = tunnel_of_tables(&mask.0.tunnel);
            if mask.0.tunnel.id.get() == u32::MAX.into() {
                mask.0.tunnel.id.set(u64::MAX);
            }
            if let Ok(m) = Matching::new(&Match::new(&key, &mask), &NO_OPTIONS) {
                proptest::prop_assert_eq!(m.to_match(&NO_OPTIONS), Match::new(&key, &mask));
            }
        }
    }
}
