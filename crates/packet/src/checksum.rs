// SPDX-License-Identifier: Apache-2.0
//! Checksums: the Internet checksum (RFC 1071), its incremental update (RFC 1624), and the
//! CRC32c of SCTP (RFC 9260, appendix A).
//!
//! Sums are of 16-bit words in network byte order. In this module they are host integers.

/// A running one's complement sum.
///
/// Each added slice must start at an even offset of the whole; only the last may have an odd
/// length.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum(u64);

impl Sum {
    /// Adds bytes; an odd last byte counts as the high half of a word.
    pub fn add(&mut self, bytes: &[u8]) {
        let mut sum = 0u64; // at most 2^32 per step: no overflow below 16 GiB
        let mut words = bytes.chunks_exact(4);
        for w in &mut words {
            sum += u64::from(u32::from_be_bytes([w[0], w[1], w[2], w[3]])); // chunks of 4
        }
        let tail = words.remainder();
        let mut last = [0; 4];
        for (l, t) in last.iter_mut().zip(tail) {
            *l = *t;
        }
        sum += u64::from(u32::from_be_bytes(last));
        self.0 += (sum & 0xffff_ffff) + (sum >> 32);
    }

    /// Adds two words.
    pub fn add_u32(&mut self, value: u32) {
        self.0 += u64::from(value);
    }

    /// Adds one word.
    pub fn add_u16(&mut self, value: u16) {
        self.0 += u64::from(value);
    }

    /// Returns the folded sum without complement, the value of an unfinished checksum field.
    pub fn folded(self) -> u16 {
        let mut s = self.0;
        while s > 0xffff {
            s = (s & 0xffff) + (s >> 16);
        }
        s as u16
    }

    /// Returns the checksum to store.
    pub fn finish(self) -> u16 {
        !self.folded()
    }
}

/// Returns the Internet checksum of `bytes`; 0 when they contain their own right checksum.
pub fn internet(bytes: &[u8]) -> u16 {
    let mut sum = Sum::default();
    sum.add(bytes);
    sum.finish()
}

/// Returns `checksum` after a covered word changed from `old` to `new` (RFC 1624, equation 3).
pub fn update_u16(checksum: u16, old: u16, new: u16) -> u16 {
    update(checksum, &old.to_be_bytes(), &new.to_be_bytes())
}

/// Returns `checksum` after two covered words changed from `old` to `new`.
pub fn update_u32(checksum: u16, old: u32, new: u32) -> u16 {
    update(checksum, &old.to_be_bytes(), &new.to_be_bytes())
}

/// Returns `checksum` after covered bytes at an even offset changed from `old` to `new`. Like the
/// kernel's helpers, it returns 0, never 0xffff, for the zero of one's complement.
pub fn update(checksum: u16, old: &[u8], new: &[u8]) -> u16 {
    /// A zero word that is part of every sum.
    const ZERO: u32 = 0xffff_0000;
    let mut s = moved(!checksum, old, new);
    s.add_u32(ZERO);
    s.finish()
}

/// Updates an unfinished checksum as [`update`] a finished one. The field holds the folded sum of
/// the pseudo header without complement (`VIRTIO_NET_HDR_F_NEEDS_CSUM`), so only changes of fields
/// of the pseudo header apply.
pub fn update_unfinished(sum: u16, old: &[u8], new: &[u8]) -> u16 {
    moved(sum, old, new).folded()
}

/// Returns a sum after its words changed from `old` to `new`.
fn moved(sum: u16, old: &[u8], new: &[u8]) -> Sum {
    let mut gone = Sum::default();
    gone.add(old);
    let mut s = Sum::default();
    s.add_u16(sum);
    s.add_u16(!gone.folded());
    s.add(new);
    s
}

/// Slicing-by-8 tables for the reflected polynomial 0x82f63b78.
static CRC32C: [[u32; 256]; 8] = {
    let mut t = [[0u32; 256]; 8];
    let mut i = 0;
    while i < 256 {
        let mut c = i as u32;
        let mut k = 0;
        while k < 8 {
            c = if c & 1 != 0 { c >> 1 ^ 0x82f6_3b78 } else { c >> 1 };
            k += 1;
        }
        t[0][i] = c;
        i += 1;
    }
    let mut n = 1;
    while n < 8 {
        let mut i = 0;
        while i < 256 {
            let c = t[n - 1][i];
            t[n][i] = c >> 8 ^ t[0][(c & 0xff) as usize];
            i += 1;
        }
        n += 1;
    }
    t
};

/// Returns the CRC32c of the concatenation of several slices.
pub fn crc32c(runs: &[&[u8]]) -> u32 {
    let mut crc = !0u32;
    for run in runs {
        let mut words = run.chunks_exact(8);
        for w in &mut words {
            // chunks of 8; table indices are bytes
            let lo = u32::from_le_bytes([w[0], w[1], w[2], w[3]]) ^ crc;
            crc = CRC32C[7][(lo & 0xff) as usize]
                ^ CRC32C[6][(lo >> 8 & 0xff) as usize]
                ^ CRC32C[5][(lo >> 16 & 0xff) as usize]
                ^ CRC32C[4][(lo >> 24) as usize]
                ^ CRC32C[3][usize::from(w[4])]
                ^ CRC32C[2][usize::from(w[5])]
                ^ CRC32C[1][usize::from(w[6])]
                ^ CRC32C[0][usize::from(w[7])];
        }
        for b in words.remainder() {
            crc = crc >> 8 ^ CRC32C[0][((crc ^ u32::from(*b)) & 0xff) as usize];
        }
    }
    !crc
}

/// Returns the checksum field of the SCTP packet `bytes` (common header to end), computed with a
/// zero field. `None`: the packet is shorter than its header.
pub fn sctp(bytes: &[u8]) -> Option<[u8; 4]> {
    let (head, rest) = (bytes.get(..8)?, bytes.get(12..)?);
    Some(crc32c(&[head, &[0; 4], rest]).to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_values() {
        // RFC 1071, section 3.
        assert_eq!(internet(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
        // RFC 3720, B.4: CRC32c of 32 zeros, and the usual check value.
        assert_eq!(crc32c(&[&[0; 32]]), 0x8a91_36aa);
        assert_eq!(crc32c(&[b"1234", b"56789"]), 0xe306_9283);
        // RFC 1624, section 4.
        assert_eq!(update_u16(0xdd2f, 0x5555, 0x3285), 0x0000);
        // Words of zero are summed up to 0, others to 0xffff: what is stored is 0 in both cases.
        assert_eq!(update_u16(0xffff, 0xffff, 0x0000), 0x0000);
        assert_eq!(update_u16(0xffff, 0x0000, 0xffff), 0x0000);
    }

    proptest! {
        #[test]
        fn update_equals_recomputation(mut bytes in proptest::collection::vec(any::<u8>(), 20..200), at in 0usize..8, new: [u8; 4]) {
            bytes[0] = 1; // a sum that is never all zeros: there the two zeros of one's complement differ
            bytes[1] = 1;
            let at = 2 + at * 2;
            let before = internet(&bytes);
            let old: [u8; 4] = bytes[at..at + 4].try_into().unwrap();
            bytes[at..at + 4].copy_from_slice(&new);
            prop_assert_eq!(update(before, &old, &new), internet(&bytes));
            prop_assert_eq!(update_u32(before, u32::from_be_bytes(old), u32::from_be_bytes(new)), internet(&bytes));
        }

        #[test]
        fn crc_of_runs_is_crc_of_whole(bytes in proptest::collection::vec(any::<u8>(), 0..100), cut in 0usize..100) {
            let cut = cut.min(bytes.len());
            prop_assert_eq!(crc32c(&[&bytes[..cut], &bytes[cut..]]), crc32c(&[&bytes]));
        }
    }
}
