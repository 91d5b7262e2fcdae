// SPDX-License-Identifier: Apache-2.0
//! The MPLS label stack in a key.

use super::finish::is_mpls;
use flow::{Key, MPLS_LABELS};
use zerocopy::network_endian::U32;

/// Label "IPv4 explicit null" (RFC 3032, 2.1).
pub(super) const MPLS_NULL_V4: u32 = 0;
/// Label "IPv6 explicit null" (RFC 3032, 2.1).
pub(super) const MPLS_NULL_V6: u32 = 2;
/// Bottom-of-stack bit of a label stack entry.
pub(super) const MPLS_BOS: u32 = 1 << 8;

/// Returns the number of MPLS entries in the key of a packet as received: up to the bottom of the
/// stack, or all that the key holds.
pub(super) fn mpls_entries(key: &Key) -> usize {
    if !is_mpls(key) {
        return 0;
    }
    let bottom = key.mpls.iter().position(|lse| lse.get() & MPLS_BOS != 0);
    bottom.map_or(MPLS_LABELS, |i| i + 1)
}

/// Returns true when the key holds the whole stack.
pub(super) fn mpls_complete(key: &Key) -> bool {
    key.mpls.iter().any(|lse| lse.get() & MPLS_BOS != 0)
}

/// Takes the outermost entry off `key`; the payload below it has `ethertype`.
pub(super) fn pop_mpls(key: &mut Key, ethertype: u16) {
    let [_, a, b] = key.mpls;
    key.mpls = [a, b, U32::ZERO];
    key.dl_type.set(ethertype);
}

/// Puts an entry on `key`; an entry that no longer fits at the bottom is dropped.
pub(super) fn push_mpls(key: &mut Key, lse: u32, ethertype: u16) {
    let [a, b, _] = key.mpls;
    key.mpls = [U32::new(lse), a, b];
    key.dl_type.set(ethertype);
}
