// SPDX-License-Identifier: Apache-2.0
//! The types of the running kernel (Documentation/bpf/btf.rst): where members of its structures
//! are, and the values of its constants.

use std::io;

/// The types that the kernel describes itself.
const KERNEL_TYPES: &str = "/sys/kernel/btf/vmlinux";

// include/uapi/linux/btf.h
const MAGIC: u16 = 0xeb9f;
const KIND_STRUCT: u32 = 4;
const KIND_UNION: u32 = 5;
const KIND_ENUM: u32 = 6;
/// Bytes of `struct btf_type`, `struct btf_member`, `struct btf_enum`.
const TYPE: usize = 12;
const MEMBER: usize = 12;
const ENUMERATOR: usize = 8;

/// Parsed BTF data.
pub(crate) struct Btf {
    data: Vec<u8>,
    /// The ranges of types and of strings in `data`, as the header states them.
    types: (usize, usize),
    strings: (usize, usize),
}

impl Btf {
    /// Reads the types of the running kernel.
    pub(crate) fn of_kernel() -> io::Result<Btf> {
        let malformed = || io::Error::other("the kernel's type information is malformed");
        Btf::new(std::fs::read(KERNEL_TYPES)?).ok_or_else(malformed)
    }

    fn new(data: Vec<u8>) -> Option<Btf> {
        if u16::from_ne_bytes(*data.first_chunk()?) != MAGIC {
            return None;
        }
        let start = u32_at(&data, 4)?;
        let range = |offset, length| {
            let from = start.checked_add(u32_at(&data, offset)?)?;
            let to = from.checked_add(u32_at(&data, length)?)?;
            (to <= data.len()).then_some((from, to))
        };
        let (types, strings) = (range(8, 12)?, range(16, 20)?);
        Some(Btf { data, types, strings })
    }

    /// Returns the offset in bytes of a direct member of the structure `name`.
    pub(crate) fn member(&self, name: &str, member: &str) -> Option<usize> {
        self.find(KIND_STRUCT, MEMBER, |of, entry| {
            let bits = u32_at(entry, 8)?;
            let is_it = self.is(of, name) && self.is(u32_at(entry, 0)?, member);
            // The upper byte is not zero for a bit field or a structure with one
            // (`BTF_MEMBER_BITFIELD_SIZE`); a plain member's is.
            (is_it && bits.is_multiple_of(8) && bits < 1 << 24).then_some(bits / 8)
        })
    }

    /// Returns true when some union without a name has this member.
    pub(crate) fn has_union_member(&self, member: &str) -> bool {
        let is_it = |of, entry: &[u8]| {
            let is_member = of == 0 && self.is(u32_at(entry, 0)?, member);
            is_member.then_some(())
        };
        self.find(KIND_UNION, MEMBER, is_it).is_some()
    }

    /// Returns the value of an enumerator.
    pub(crate) fn enumerator(&self, name: &str) -> Option<usize> {
        self.find(KIND_ENUM, ENUMERATOR, |_, entry| {
            if self.is(u32_at(entry, 0)?, name) { u32_at(entry, 4) } else { None }
        })
    }

    /// Calls `of` with the name and each entry of each type of `kind`, until it returns a value.
    fn find<T>(
        &self,
        kind: u32,
        entry: usize,
        of: impl Fn(usize, &[u8]) -> Option<T>,
    ) -> Option<T> {
        let mut rest = self.data.get(self.types.0..self.types.1)?;
        while !rest.is_empty() {
            let (name, info) = (u32_at(rest, 0)?, u32_at(rest, 4)? as u32); // from 32 bits
            let this = info >> 24 & 0x1f;
            let count = info as usize & 0xffff;
            let length = entries_length(this, count)?;
            let entries = rest.get(TYPE..TYPE + length)?;
            if this == kind
                && let Some(found) = entries.chunks_exact(entry).find_map(|e| of(name, e))
            {
                return Some(found);
            }
            rest = rest.get(TYPE + length..)?;
        }
        None
    }

    /// Returns true when the string at `offset` is `name`.
    fn is(&self, offset: usize, name: &str) -> bool {
        let strings = self.data.get(self.strings.0..self.strings.1).unwrap_or_default();
        let string = strings.get(offset..).and_then(|s| s.strip_prefix(name.as_bytes()));
        string.is_some_and(|rest| rest.first() == Some(&0))
    }
}

/// Returns the bytes that follow `struct btf_type`. `None`: the kind is unknown.
fn entries_length(kind: u32, count: usize) -> Option<usize> {
    match kind {
        1 | 14 | 17 => Some(4),              // INT, VAR, DECL_TAG
        2 | 7..=12 | 16 | 18 => Some(0),     // PTR, FWD..FUNC, FLOAT, TYPE_TAG
        3 => Some(12),                       // ARRAY
        4 | 5 | 15 | 19 => Some(count * 12), // STRUCT, UNION, DATASEC, ENUM64
        6 | 13 => Some(count * 8),           // ENUM, FUNC_PROTO
        _ => None,
    }
}

fn u32_at(data: &[u8], at: usize) -> Option<usize> {
    let bytes = data.get(at..)?.first_chunk()?;
    usize::try_from(u32::from_ne_bytes(*bytes)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `struct s { int; x at 4 bytes }` after an array, and `enum { A = 7 }`.
    fn data() -> Vec<u8> {
        let strings = b"\0s\0x\0A\0xy\0";
        let types: [u32; 20] = [
            0,
            3 << 24,
            0,
            1,
            1,
            1, // ARRAY
            1,
            4 << 24 | 2,
            8,
            7,
            0,
            0,
            3,
            0,
            32, // STRUCT s: xy, x
            0,
            6 << 24 | 1,
            4,
            5,
            7, // ENUM: A
        ];
        let header = [24, 0, 80, 80, strings.len() as u32];
        let words = |w: &[u32]| w.iter().flat_map(|w| w.to_ne_bytes()).collect::<Vec<u8>>();
        [&0xeb9f_u16.to_ne_bytes()[..], &[1, 0], &words(&header), &words(&types), strings].concat()
    }

    #[test]
    fn members_and_enumerators_are_found_by_whole_names() {
        let btf = Btf::new(data()).expect("well-formed");
        assert_eq!(btf.member("s", "x"), Some(4));
        assert_eq!(btf.member("s", "xy"), Some(0));
        assert_eq!(btf.member("s", "y"), None);
        assert_eq!(btf.member("x", "x"), None);
        assert_eq!(btf.enumerator("A"), Some(7));
        assert_eq!(btf.enumerator("x"), None);
        assert!(!btf.has_union_member("x"), "it is of a structure");
        let kernel = Btf::of_kernel();
        let has = |member| kernel.as_ref().is_ok_and(|btf| btf.has_union_member(member));
        assert!(kernel.is_err() || has("tunnel_ext"), "struct bpf_tunnel_key has it");
        assert!(!has("no_such_member"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(
            at in 0..110usize,
            with: u8,
            length in 0..120usize,
        ) {
            let mut bytes = data();
            if let Some(byte) = bytes.get_mut(at) {
                *byte = with;
            }
            bytes.truncate(length);
            if let Some(btf) = Btf::new(bytes) {
                let _ = (btf.member("s", "x"), btf.enumerator("A"));
            }
        }
    }
}
