// SPDX-License-Identifier: Apache-2.0
//! Geneve options and fields of ERSPAN in the words of the shared tables.
//!
//! A datapath's key has options as they are in a header. The words have the data of at most
//! [`TUNNEL_OPTIONS`] known options at fixed places, and a bit for each that is there. The table of
//! known options follows the flows: the first flow that matches on an option adds it. An entry stays
//! as it is, so the words of flows keep their meaning.
//!
//! The fields of ERSPAN have an entry as well, with a header that no option has. Its bit is never set: fields that a
//! packet lacks are zero.
//!
//! A match on options is exact about the options that a packet has (`flow::TlvTable::encode_mask`):
//! their classes, types and lengths. Their order decides nothing. A packet with an option that the
//! table lacks, or with one twice, has no words, and programs leave it to the daemon.

use flow::Tunnel;
use tunnel::{Tlv, Tlvs};
use zerocopy::network_endian::U32;
use zerocopy::{FromBytes, IntoBytes};

use crate::layout::{OPTION_BYTES, TUNNEL_OPTIONS, TunnelOption, word};

/// Number of words of options.
const OPTION_WORDS: usize = word::CT - word::OPT0;
/// Byte of the first word at which data begins.
const FIRST_DATA: usize = 4;
const _: () = assert!(FIRST_DATA + OPTION_BYTES == OPTION_WORDS * 8);
/// Bytes of class, type and length of one option.
const HEADER: usize = 4;
/// Mask of a header in a match: the upper three bits of the length are reserved.
const HEADER_MASK: [u8; HEADER] = [0xff, 0xff, 0xff, 0x1f];

/// The entry of ERSPAN's fields: version, direction, hardware id, zero, and the index. No option of Geneve has
/// this header, whose reserved bits are not zero.
pub(crate) const ERSPAN: [u8; HEADER] = [0, 0, 0, 0xe2];

/// The words of options.
pub(crate) type OptionWords = [u64; OPTION_WORDS];

/// Why options have no words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OptionError {
    /// The table lacks an option with this header.
    Unknown([u8; HEADER]),
    /// Options are cut off, there twice, or matched on in another form than translation has.
    Form,
}

/// The known options: `config.options`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OptionTable(pub(crate) [TunnelOption; TUNNEL_OPTIONS]);

/// An option in the raw options of a key.
struct Raw {
    header: [u8; HEADER],
    /// Offset of the data, and its length.
    at: usize,
    bytes: usize,
}

/// Returns the options in `raw`; `None`: one is cut off.
fn split(raw: &[u8]) -> Option<Vec<Raw>> {
    let mut end = 0;
    let options = Tlvs::new(raw).map(|tlv| {
        let Tlv { class, kind, data, .. } = tlv.ok()?;
        let ([class0, class1], bytes) = (class.to_be_bytes(), data.len());
        let at = end + HEADER;
        end = at + bytes;
        let header = [class0, class1, kind, (bytes / 4) as u8]; // 5 bits of a header
        Some(Raw { header, at, bytes })
    });
    options.collect()
}

impl OptionTable {
    fn known(&self) -> impl Iterator<Item = (usize, &TunnelOption)> {
        self.0.iter().take_while(|entry| entry.in_use != 0).enumerate()
    }

    fn find(&self, header: [u8; HEADER]) -> Option<(usize, &TunnelOption)> {
        self.known().find(|(_, entry)| entry.header.to_ne_bytes() == header)
    }

    /// Returns true when the data of an entry is in the words of options.
    pub(crate) fn fits(entry: &TunnelOption) -> bool {
        usize::from(entry.at) + usize::from(entry.bytes) <= OPTION_WORDS * 8
    }

    /// Returns true when the option with this header is known.
    pub(crate) fn has(&self, header: [u8; HEADER]) -> bool {
        self.find(header).is_some()
    }

    /// Returns the place and the value of the entry that this option would get. `None`: the table or
    /// the words have no room, or it is known.
    pub(crate) fn room_for(&self, header: [u8; HEADER]) -> Option<(usize, TunnelOption)> {
        let (count, used) = self
            .known()
            .fold((0, 0), |(count, used), (_, e)| (count + 1, used + usize::from(e.bytes)));
        let bytes = usize::from(header[3] & 0x1f) * 4;
        if count == TUNNEL_OPTIONS || used + bytes > OPTION_BYTES || self.find(header).is_some() {
            return None;
        }
        let entry = TunnelOption {
            header: u32::from_ne_bytes(header),
            at: (FIRST_DATA + used) as u8, // at most 32
            bytes: bytes as u8,            // at most OPTION_BYTES
            in_use: 1,
            pad: 0,
        };
        Some((count, entry))
    }

    /// Returns true when the table is one that [`OptionTable::room_for`] makes.
    pub(crate) fn is_valid(&self) -> bool {
        let mut made = OptionTable([TunnelOption::default(); TUNNEL_OPTIONS]);
        for (_, entry) in self.known() {
            let Some((at, wanted)) = made.room_for(entry.header.to_ne_bytes()) else {
                return false;
            };
            if wanted != *entry {
                return false;
            }
            if let Some(place) = made.0.get_mut(at) {
                *place = wanted;
            }
        }
        true
    }

    /// Returns the words of the options that a match compares, and of its mask.
    ///
    /// # Errors
    ///
    /// [`OptionError`].
    pub(crate) fn words(
        &self,
        key: &Tunnel,
        mask: &Tunnel,
    ) -> Result<(OptionWords, OptionWords), OptionError> {
        let (mut words, mut masks) = ([0; OPTION_WORDS], [0; OPTION_WORDS]);
        self.put_erspan(key, mask, (&mut words, &mut masks))?;
        match mask.options_len {
            0 if mask.options == Tunnel::NONE.options => return Ok((words, masks)),
            u8::MAX => {}
            _ => return Err(OptionError::Form),
        }
        let found = split(key.raw_options()).ok_or(OptionError::Form)?;
        let (to, to_mask) = (words.as_mut_bytes(), masks.as_mut_bytes());
        to_mask[0] = u8::MAX;
        for raw in found {
            let (bit, entry) = self.find(raw.header).ok_or(OptionError::Unknown(raw.header))?;
            if to[0] >> bit & 1 != 0 {
                return Err(OptionError::Form);
            }
            to[0] |= 1 << bit;
            let at = usize::from(entry.at);
            to[at..at + raw.bytes].copy_from_slice(&key.options[raw.at..raw.at + raw.bytes]);
            to_mask[at..at + raw.bytes].copy_from_slice(&mask.options[raw.at..raw.at + raw.bytes]);
        }
        Ok((words, masks))
    }

    fn put_erspan(
        &self,
        key: &Tunnel,
        mask: &Tunnel,
        (words, masks): (&mut OptionWords, &mut OptionWords),
    ) -> Result<(), OptionError> {
        let of = |t: &Tunnel| {
            let [a, b, c, d] = t.erspan_idx.to_bytes();
            [t.erspan_ver, t.erspan_dir, t.erspan_hwid, 0, a, b, c, d]
        };
        let mask = of(mask);
        if mask == [0; _] {
            return Ok(());
        }
        let (_, entry) = self.find(ERSPAN).ok_or(OptionError::Unknown(ERSPAN))?;
        let place = usize::from(entry.at)..usize::from(entry.at) + mask.len();
        words.as_mut_bytes()[place.clone()].copy_from_slice(&of(key));
        masks.as_mut_bytes()[place].copy_from_slice(&mask);
        Ok(())
    }

    fn take_erspan(&self, words: &OptionWords, to: &mut Tunnel) {
        let place = self.find(ERSPAN).and_then(|(_, e)| words.as_bytes().get(usize::from(e.at)..));
        let Some([version, direction, hardware_id, _, index @ ..]) =
            place.and_then(|bytes| bytes.first_chunk::<8>())
        else {
            return;
        };
        (to.erspan_ver, to.erspan_dir, to.erspan_hwid) = (*version, *direction, *hardware_id);
        to.erspan_idx = U32::from_bytes(*index);
    }

    /// Stores the options of words in the fields of a datapath's key, in the order of the table.
    /// `mask` becomes the mask of a match on them, if `masks` is that of one.
    pub(crate) fn store(
        &self,
        (words, masks): (&OptionWords, &OptionWords),
        key: &mut Tunnel,
        mask: &mut Tunnel,
    ) {
        self.take_erspan(words, key);
        self.take_erspan(masks, mask);
        if masks.as_bytes()[0] == 0 {
            return;
        }
        mask.options_len = u8::MAX;
        let mut at = 0;
        let (from, from_mask) = (words.as_bytes(), masks.as_bytes());
        for (bit, entry) in self.known() {
            if from[0] >> bit & 1 == 0 {
                continue;
            }
            let (source, bytes) = (usize::from(entry.at), usize::from(entry.bytes));
            let value = at + HEADER;
            key.options[at..value].copy_from_slice(&entry.header.to_ne_bytes());
            mask.options[at..value].copy_from_slice(&HEADER_MASK);
            at = value + bytes;
            key.options[value..at].copy_from_slice(&from[source..source + bytes]);
            mask.options[value..at].copy_from_slice(&from_mask[source..source + bytes]);
        }
        key.options_len = at as u8; // at most 8 headers and OPTION_BYTES
    }
}

/// Returns the words of options in the words of a key.
pub(crate) fn of_words(words: &[u64]) -> OptionWords {
    OptionWords::read_from_bytes(words[word::OPT0..word::CT].as_bytes()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(headers: &[[u8; 4]]) -> OptionTable {
        let mut table = OptionTable([TunnelOption::default(); TUNNEL_OPTIONS]);
        for header in headers {
            let (at, entry) = table.room_for(*header).unwrap();
            table.0[at] = entry;
        }
        assert!(table.is_valid());
        table
    }

    fn tunnel(raw: &[u8]) -> Tunnel {
        let mut tunnel = Tunnel::NONE;
        assert!(tunnel.set_raw_options(raw));
        tunnel
    }

    /// The mask that translation gives options of this form, with `data` for each byte of data.
    fn exact(raw: &[u8], data: u8) -> Tunnel {
        let mut mask = Tunnel::NONE;
        mask.options_len = u8::MAX;
        for Raw { at, bytes, .. } in split(raw).unwrap() {
            mask.options[at - 4..at].copy_from_slice(&HEADER_MASK);
            mask.options[at..at + bytes].fill(data);
        }
        mask
    }

    const A: [u8; 4] = [1, 2, 3, 1];
    const B: [u8; 4] = [1, 2, 0x83, 2];

    #[test]
    fn options_come_back_in_the_order_of_the_table() {
        let table = with(&[A, B]);
        let one = [&A[..], &[9, 8, 7, 6]].concat();
        let both = [&one[..], &B, &[1, 2, 3, 4, 5, 6, 7, 8]].concat();
        for raw in [&[][..], &one, &both] {
            let (key, mask) = (tunnel(raw), exact(raw, 0x5f));
            let (words, masks) = table.words(&key, &mask).unwrap();
            let (mut to, mut to_mask) = (Tunnel::NONE, Tunnel::NONE);
            table.store((&words, &masks), &mut to, &mut to_mask);
            assert_eq!((to, to_mask), (key, mask));
        }
        let turned = [&B[..], &[1, 2, 3, 4, 5, 6, 7, 8], &one].concat();
        let same = table.words(&tunnel(&turned), &exact(&turned, 0xff));
        assert_eq!(same, table.words(&tunnel(&both), &exact(&both, 0xff)));
    }

    #[test]
    fn no_options_and_any_options_differ() {
        let table = with(&[A]);
        let (_, none) = table.words(&Tunnel::NONE, &exact(&[], 0)).unwrap();
        let (_, any) = table.words(&Tunnel::NONE, &Tunnel::NONE).unwrap();
        assert_eq!((none.as_bytes()[0], any), (0xff, [0; OPTION_WORDS]));
    }

    #[test]
    fn what_has_no_words_is_refused() {
        let table = with(&[A]);
        let twice = [&A[..], &[0; 4], &A, &[0; 4]].concat();
        assert_eq!(table.words(&tunnel(&twice), &exact(&twice, 0)), Err(OptionError::Form));
        let unknown = [&B[..], &[0; 8]].concat();
        let refused = table.words(&tunnel(&unknown), &exact(&unknown, 0));
        assert_eq!(refused, Err(OptionError::Unknown(B)));
        let mut cut = exact(&[], 0);
        assert_eq!(table.words(&tunnel(&[1, 2, 3, 1]), &cut), Err(OptionError::Form));
        cut.options_len = 1;
        assert_eq!(table.words(&Tunnel::NONE, &cut), Err(OptionError::Form));
    }

    #[test]
    fn fields_of_erspan_have_a_place_when_a_flow_or_a_port_needs_them() {
        let (mut key, mut mask) = (Tunnel::NONE, Tunnel::NONE);
        (key.erspan_ver, key.erspan_dir, key.erspan_hwid) = (2, 1, 0x2a);
        key.erspan_idx.set(0xa_bcde);
        mask.erspan_hwid = 0x3f;
        assert_eq!(with(&[A]).words(&key, &mask), Err(OptionError::Unknown(ERSPAN)));
        let table = with(&[A, ERSPAN, B]);
        for whole in [false, true] {
            if whole {
                (mask.erspan_ver, mask.erspan_dir) = (0xff, 0xff);
                mask.erspan_idx.set(u32::MAX);
            }
            let (words, masks) = table.words(&key, &mask).unwrap();
            let (mut to, mut to_mask) = (Tunnel::NONE, Tunnel::NONE);
            table.store((&words, &masks), &mut to, &mut to_mask);
            assert_eq!((to, to_mask), (key, mask));
            assert_eq!(masks.as_bytes()[..4], [0; 4], "the match is not about options");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_options_are_judged(raw in proptest::collection::vec(0u8..6, 0..253), data: u8) {
            let mut mask = Tunnel::NONE;
            mask.options = [data; _];
            mask.options_len = u8::MAX;
            if raw.len() <= 252 {
                let _ = with(&[A, [0, 0, 0, 0], [1, 1, 1, 1]]).words(&tunnel(&raw), &mask);
            }
        }
    }

    #[test]
    fn the_table_is_bounded() {
        let table = with(&[A, [0, 0, 0, 5], [0, 0, 1, 1]]);
        assert_eq!(table.room_for([9, 9, 9, 1]), None, "no room for 4 bytes");
        assert_eq!(table.room_for([9, 9, 9, 0]).map(|(at, _)| at), Some(3));
        let full: Vec<[u8; 4]> = (0..8).map(|n| [0, 0, n, 0]).collect();
        assert_eq!(with(&full).room_for([9, 9, 9, 0]), None);
        let mut damaged = table;
        damaged.0[1].at += 4;
        assert!(!damaged.is_valid());
    }
}
