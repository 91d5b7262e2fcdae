// SPDX-License-Identifier: Apache-2.0
//! Netlink attributes (include/uapi/linux/netlink.h), in host byte order.

/// Bytes of `struct nlattr`.
const HEADER: usize = 4;
/// `NLA_F_NESTED`
const NESTED: u16 = 0x8000;
/// `NLA_TYPE_MASK`: the kind without the flags "nested" and "network order".
const KIND: u16 = 0x3fff;

/// Appends one attribute. The value has at most 65,531 bytes; longer ones are cut.
pub fn put(bytes: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let value = value.get(..usize::from(u16::MAX) - HEADER).unwrap_or(value);
    let length = (HEADER + value.len()) as u16; // cut to fit above
    bytes.extend_from_slice(&length.to_ne_bytes());
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

/// Appends an attribute whose value is what `fill` appends.
pub fn nest(bytes: &mut Vec<u8>, kind: u16, fill: impl FnOnce(&mut Vec<u8>)) {
    let mut inner = Vec::new();
    fill(&mut inner);
    put(bytes, kind | NESTED, &inner);
}

/// Iterates over attributes: kind and value. One that is cut short ends the iteration.
pub fn read(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let [l0, l1, k0, k1] = *bytes.first_chunk::<HEADER>()?;
        let length = usize::from(u16::from_ne_bytes([l0, l1]));
        let value = bytes.get(HEADER..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((u16::from_ne_bytes([k0, k1]) & KIND, value))
    })
}

/// The value of the first attribute of this kind.
pub fn find(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    read(bytes).find(|(k, _)| *k == kind).map(|(_, value)| value)
}

/// The bytes of a value as an array, if there are as many.
pub fn array<const N: usize>(value: &[u8]) -> Option<[u8; N]> {
    value.first_chunk::<N>().copied()
}
