// SPDX-License-Identifier: Apache-2.0
//! Sums of packets that hold an unfinished checksum.

use packet::{Offload, checksum::Sum};

/// Returns the sum of the bytes from `from` to `end` in which an unfinished checksum counts as
/// finished.
///
/// The bytes that the unfinished checksum covers add up to the complement of the value in its field
/// once it is finished, because the field holds the pseudo header's sum: so they are not read. They
/// reach to the end of the frame; `end` is there, or before padding of zeros.
pub(crate) fn sum_as_finished(frame: &[u8], from: usize, end: usize, offload: &Offload) -> Sum {
    let mut sum = Sum::default();
    let unfinished = offload.csum.and_then(|(start, offset)| {
        let start = usize::from(start);
        let field = frame.get(start + usize::from(offset)..)?.first_chunk::<2>()?;
        (from..end).contains(&start).then(|| (start, u16::from_be_bytes(*field)))
    });
    match unfinished {
        None => sum.add(frame.get(from..end).unwrap_or_default()),
        Some((start, pseudo)) => {
            sum.add(frame.get(from..start).unwrap_or_default());
            // A sum of bytes at an odd offset has its bytes swapped (RFC 1071, 2 (B)).
            let rest = !pseudo;
            sum.add_u16(if (start - from).is_multiple_of(2) { rest } else { rest.swap_bytes() });
        }
    }
    sum
}
