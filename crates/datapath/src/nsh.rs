// SPDX-License-Identifier: Apache-2.0
//! The Network Service Header that an action pushes (RFC 8300).

use flow::Nsh;
use packet::NshHeader;

/// Most bytes of metadata of type 2: a header has at most 63 words of 4 bytes, of which 2 come first.
pub const MOST_METADATA: usize = NshHeader::MAX_BYTES - size_of::<NshHeader>();

/// A header to push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushedNsh {
    /// The fields of the header. Contexts are those of metadata type 1.
    pub fields: Nsh,
    /// Context headers of metadata type 2, whole words of 4 bytes; empty with other types.
    pub metadata: Vec<u8>,
}

impl PushedNsh {
    /// Returns the bytes that follow the service path header.
    fn contexts(&self) -> &[u8] {
        use packet::IntoBytes;
        match self.fields.mdtype {
            NshHeader::MD_TYPE_1 => self.fields.context.as_bytes(),
            NshHeader::MD_TYPE_2 => &self.metadata,
            _ => &[],
        }
    }

    /// Returns the bytes of the header in front of a packet of the protocol `next`. `None` when the
    /// metadata is longer than a header may be, or no whole number of words.
    pub fn bytes(&self, next: u8) -> Option<Vec<u8>> {
        use packet::IntoBytes;
        let contexts = self.contexts();
        if contexts.len() > MOST_METADATA || !contexts.len().is_multiple_of(4) {
            return None;
        }
        let bytes = size_of::<NshHeader>() + contexts.len();
        let words = u16::try_from(bytes / 4).ok()?;
        let (md_type, path) = (self.fields.mdtype, self.fields.path);
        let mut header = NshHeader { first: words.into(), md_type, next, path };
        header.set_flags(self.fields.flags);
        header.set_ttl(self.fields.ttl);
        Some([header.as_bytes(), contexts].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pushed(mdtype: u8, metadata: Vec<u8>) -> PushedNsh {
        let path = 0x1234_56ff.into();
        let context = [1.into(), 2.into(), 3.into(), 4.into()];
        let fields = Nsh { flags: 2, ttl: 63, mdtype, np: 3, path, context };
        PushedNsh { fields, metadata }
    }

    #[test]
    fn bytes_are_those_of_the_metadata_type() {
        let first = [0x12, 0x34, 0x56, 0xff];
        let one = pushed(1, vec![9; 4]).bytes(3).unwrap();
        assert_eq!(one[..8], [&[0x2f, 0xc6, 1, 3][..], &first].concat());
        assert_eq!(one[8..], [0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4]);
        let two = pushed(2, vec![9; 4]).bytes(1).unwrap();
        assert_eq!(two, [&[0x2f, 0xc3, 2, 1][..], &first, &[9; 4]].concat());
        assert_eq!(pushed(2, vec![]).bytes(1).unwrap().len(), 8);
        assert_eq!(pushed(2, vec![9; MOST_METADATA]).bytes(1).unwrap().len(), 252);
        assert_eq!(pushed(2, vec![9; MOST_METADATA + 4]).bytes(1), None);
        assert_eq!(pushed(2, vec![9; 3]).bytes(1), None);
    }
}
