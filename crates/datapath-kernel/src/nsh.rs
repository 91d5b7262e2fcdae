// SPDX-License-Identifier: Apache-2.0
//! The Network Service Header in keys and actions (`OVS_NSH_KEY_ATTR_*`).

use flow::Nsh;
use netlink::attribute::{array, find};

/// `struct ovs_nsh_key_base`
pub(crate) const BASE: u16 = 1;
/// The four words of metadata type 1.
pub(crate) const MD1: u16 = 2;

/// Encodes the fields before the metadata.
pub(crate) fn base(fields: &Nsh) -> [u8; 8] {
    let [p0, p1, p2, p3] = fields.path.to_bytes();
    [fields.flags, fields.ttl, fields.mdtype, fields.np, p0, p1, p2, p3]
}

/// Encodes the metadata of type 1.
pub(crate) fn context(fields: &Nsh) -> [u8; 16] {
    let mut bytes = [0; 16];
    for (to, word) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(&fields.context) {
        *to = word.to_bytes();
    }
    bytes
}

/// Decodes the fields, without metadata of type 2. `None` when the first part is absent or one has a
/// wrong length.
pub(crate) fn decode(bytes: &[u8]) -> Option<Nsh> {
    let [flags, ttl, mdtype, np, path @ ..]: [u8; 8] = find(bytes, BASE)?.try_into().ok()?;
    let mut fields =
        Nsh { flags, ttl, mdtype, np, path: u32::from_be_bytes(path).into(), ..Nsh::default() };
    if let Some(context) = find(bytes, MD1) {
        let context: [u8; 16] = array(context)?;
        for (word, bytes) in fields.context.iter_mut().zip(context.as_chunks::<4>().0) {
            *word = u32::from_be_bytes(*bytes).into();
        }
    }
    Some(fields)
}
