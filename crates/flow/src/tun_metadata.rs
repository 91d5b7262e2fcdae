// SPDX-License-Identifier: Apache-2.0
//! The places of `tun_metadata0` to `tun_metadata63` in [`crate::Tunnel::options`].
//!
//! The area is 64 words of four bytes. A field has as many words as the longest option that a
//! bridge maps to it. Its words need not lie side by side. The least significant word of field N is
//! word N of the area where that is free; a field that no bridge maps has this word alone.
//!
//! Places are those of the process: bridges that map one field to options of one length share its
//! place, so that a key needs no reference to a bridge's table. A place stays the same as long as a
//! bridge maps the field; a longer option of another bridge adds words above it. All bridges
//! together have [`OPTIONS_BYTES`] bytes.

use crate::Tunnel;
use crate::tunnel::OPTIONS_BYTES;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};

/// Number of fields.
pub const FIELDS: usize = 64;
/// Bytes of the longest option.
pub const MAX_BYTES: usize = 124;
const WORD: usize = 4;
const MAX_WORDS: usize = MAX_BYTES / WORD;

/// A value of up to [`MAX_BYTES`] bytes as a big-endian number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Wide(pub [u8; MAX_BYTES]);

impl Wide {
    /// The number zero, which is also the mask of no bits.
    pub const ZERO: Wide = Wide([0; MAX_BYTES]);

    /// The number `value`.
    pub fn from_u128(value: u128) -> Wide {
        let mut wide = Wide::ZERO;
        if let Some(low) = wide.0.last_chunk_mut::<16>() {
            *low = value.to_be_bytes();
        }
        wide
    }

    /// The big-endian number of `bytes`, of which those before the last [`MAX_BYTES`] are left out.
    pub fn from_bytes(bytes: &[u8]) -> Wide {
        let mut wide = Wide::ZERO;
        for (place, byte) in wide.0.iter_mut().rev().zip(bytes.iter().rev()) {
            *place = *byte;
        }
        wide
    }

    /// The low 128 bits.
    pub fn low(&self) -> u128 {
        self.0.last_chunk::<16>().map_or(0, |low| u128::from_be_bytes(*low))
    }

    /// `bytes` bytes of one bits at the low end.
    pub fn ones(bytes: usize) -> Wide {
        let mut wide = Wide::ZERO;
        wide.0.iter_mut().rev().take(bytes).for_each(|byte| *byte = u8::MAX);
        wide
    }

    /// The last `bytes` bytes.
    pub fn bytes(&self, bytes: usize) -> &[u8] {
        self.0.get(MAX_BYTES.saturating_sub(bytes)..).unwrap_or(&self.0)
    }

    /// Number of bytes without leading zeros.
    pub fn len(&self) -> usize {
        self.0.iter().position(|byte| *byte != 0).map_or(0, |zeros| MAX_BYTES - zeros)
    }

    /// Returns true for zero.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bits that are in both.
    pub fn and(&self, other: &Wide) -> Wide {
        let mut out = *self;
        out.0.iter_mut().zip(other.0).for_each(|(byte, other)| *byte &= other);
        out
    }

    /// The bits of `self` that are not in `other`.
    pub fn minus(&self, other: &Wide) -> Wide {
        let mut out = *self;
        out.0.iter_mut().zip(other.0).for_each(|(byte, other)| *byte &= !other);
        out
    }

    /// Bit `n`, from the least significant.
    fn bit(&self, n: usize) -> bool {
        n / 8 < MAX_BYTES
            && self.0.get(MAX_BYTES - 1 - n / 8).is_some_and(|b| b >> (n % 8) & 1 != 0)
    }

    /// The `bits` bits (at most 128) from bit `start`.
    pub fn load(&self, start: usize, bits: usize) -> u128 {
        (0..bits.min(128)).fold(0, |value, n| value | u128::from(self.bit(start + n)) << n)
    }

    /// Replaces the `bits` bits (at most 128) from bit `start`.
    pub fn store(&mut self, start: usize, bits: usize, value: u128) {
        for n in 0..bits.min(128) {
            let at = start + n;
            let byte = (MAX_BYTES - 1).checked_sub(at / 8).and_then(|i| self.0.get_mut(i));
            if let Some(byte) = byte {
                *byte = *byte & !(1 << (at % 8)) | ((value >> n & 1) as u8) << (at % 8);
            }
        }
    }
}

/// Number of words of each field.
static LENGTHS: [AtomicU8; FIELDS] = [const { AtomicU8::new(1) }; FIELDS];

/// Words of the area that each field has, the least significant first.
static PLACES: [[AtomicU8; MAX_WORDS]; FIELDS] = {
    let mut places = [const { [const { AtomicU8::new(0) }; MAX_WORDS] }; FIELDS];
    let mut field = 0;
    while field < FIELDS {
        places[field][0] = AtomicU8::new(field as u8); // below 64
        field += 1;
    }
    places
};

/// Use of the area by the tables of all bridges.
struct Mapped {
    /// Number of bridges that map each field.
    bridges: [u32; FIELDS],
    /// Bit N: word N of the area belongs to a field that is mapped.
    taken: u64,
}

static MAPPED: Mutex<Mapped> = Mutex::new(Mapped { bridges: [0; FIELDS], taken: 0 });

/// The area has no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the options of all bridges together have more than 256 bytes")]
pub struct Full;

/// The words of field `n`, the least significant first.
fn words(n: usize) -> impl Iterator<Item = usize> {
    let length = LENGTHS.get(n).map_or(0, |length| length.load(Ordering::Acquire));
    let places = PLACES.get(n).into_iter().flatten().take(length.into());
    places.map(|place| place.load(Ordering::Relaxed).into())
}

/// Bytes of field `n` in a key.
pub fn bytes(n: usize) -> usize {
    LENGTHS.get(n).map_or(0, |length| usize::from(length.load(Ordering::Acquire)) * WORD)
}

/// Gives field `n` a place for an option of `bytes` bytes, for one more bridge.
///
/// # Errors
/// There is no room for it.
pub(crate) fn reserve(n: usize, bytes: usize) -> Result<(), Full> {
    let mut mapped = MAPPED.lock().unwrap_or_else(PoisonError::into_inner);
    let Mapped { bridges, taken } = &mut *mapped;
    let (Some(count), Some(places), Some(length)) =
        (bridges.get_mut(n), PLACES.get(n), LENGTHS.get(n))
    else {
        return Err(Full);
    };
    let wanted = bytes.div_ceil(WORD).min(MAX_WORDS);
    let had = if *count == 0 { 0 } else { usize::from(length.load(Ordering::Acquire)) };
    if wanted.saturating_sub(had) > taken.count_zeros() as usize {
        return Err(Full);
    }
    for (i, place) in places.iter().enumerate().take(wanted).skip(had) {
        let home = i == 0 && *taken >> n & 1 == 0;
        // The last words: those are the homes of fields that are seldom used.
        let word = if home { n } else { 63 - (!*taken).leading_zeros() as usize };
        *taken |= 1 << word;
        place.store(word as u8, Ordering::Relaxed); // below 64
    }
    length.store(wanted.max(had) as u8, Ordering::Release); // at most 31
    *count += 1;
    Ok(())
}

/// Takes back what [`reserve`] gave one bridge.
pub(crate) fn release(n: usize) {
    let mut mapped = MAPPED.lock().unwrap_or_else(PoisonError::into_inner);
    let Mapped { bridges, taken } = &mut *mapped;
    let (Some(count), Some(places), Some(length)) =
        (bridges.get_mut(n), PLACES.get(n), LENGTHS.get(n))
    else {
        return;
    };
    *count = count.saturating_sub(1);
    if *count == 0 {
        words(n).for_each(|word| *taken &= !(1 << word));
        length.store(1, Ordering::Release);
        if let Some(home) = places.first() {
            home.store(n as u8, Ordering::Relaxed); // below 64
        }
    }
}

impl Tunnel {
    /// Returns true when the packet has the option of `tun_metadataN`.
    pub fn has_option(&self, n: usize) -> bool {
        n < FIELDS && self.present.get() >> n & 1 != 0
    }

    /// Sets or clears the bit of `tun_metadataN` in [`Tunnel::present`].
    pub fn set_present(&mut self, n: usize, present: bool) {
        if n < FIELDS {
            let rest = self.present.get() & !(1 << n);
            self.present.set(rest | u64::from(present) << n);
        }
    }

    /// The value of `tun_metadataN`.
    pub fn option(&self, n: usize) -> Wide {
        let mut value = Wide::ZERO;
        for (place, word) in value.0.rchunks_mut(WORD).zip(words(n)) {
            if let Some(bytes) = self.options.get(word * WORD..word * WORD + WORD) {
                place.copy_from_slice(bytes);
            }
        }
        value
    }

    /// Replaces the value of `tun_metadataN`; its presence stays as it is.
    pub fn set_option(&mut self, n: usize, value: &Wide) {
        for (bytes, word) in value.0.rchunks(WORD).zip(words(n)) {
            if let Some(place) = self.options.get_mut(word * WORD..word * WORD + WORD) {
                place.copy_from_slice(bytes);
            }
        }
    }

    /// The low 128 bits of `tun_metadataN`.
    pub(crate) fn load_option(&self, n: usize) -> u128 {
        words(n).take(4).enumerate().fold(0, |value, (i, word)| {
            let bytes = self.options.get(word * WORD..).and_then(|bytes| bytes.first_chunk());
            value | u128::from(bytes.map_or(0, |b| u32::from_be_bytes(*b))) << (32 * i)
        })
    }

    /// Replaces the value of `tun_metadataN` by a number of at most 128 bits.
    pub(crate) fn store_option(&mut self, n: usize, value: u128) {
        for (i, word) in (0u32..).zip(words(n)) {
            let bytes = self.options.get_mut(word * WORD..).and_then(|b| b.first_chunk_mut());
            if let Some(place) = bytes {
                let low = value.checked_shr(32 * i).unwrap_or(0);
                *place = (low as u32).to_be_bytes();
            }
        }
    }
}

const _: () = assert!(OPTIONS_BYTES == FIELDS * WORD);
