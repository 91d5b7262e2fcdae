// SPDX-License-Identifier: Apache-2.0
//! `struct virtio_net_hdr` (include/uapi/linux/virtio_net.h), which precedes each frame on
//! `AF_PACKET` sockets with `PACKET_VNET_HDR` and tap devices with `IFF_VNET_HDR`: 10 bytes in host
//! byte order.

use crate::{finish, headers};
use packet::{Gso, Offload};

/// Bytes of the header.
pub(crate) const VNET_HEADER: usize = 10;

const NEEDS_CSUM: u8 = 1;
const DATA_VALID: u8 = 2;

const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_UDP: u8 = 3;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
const GSO_ECN: u8 = 0x80;

/// Returns the header for a frame with `offload`.
pub(crate) fn encode(offload: &Offload) -> [u8; VNET_HEADER] {
    let mut h = [0; VNET_HEADER];
    if let Some((start, offset)) = offload.csum {
        h[0] = NEEDS_CSUM;
        h[6..8].copy_from_slice(&start.to_ne_bytes());
        h[8..10].copy_from_slice(&offset.to_ne_bytes());
    }
    if let Some((kind, size, header)) = offload.gso {
        h[1] = match kind {
            Gso::TcpV4 => GSO_TCPV4,
            Gso::TcpV6 => GSO_TCPV6,
            Gso::UdpL4 => GSO_UDP_L4,
            Gso::UdpFragment => GSO_UDP,
        };
        if offload.gso_ecn {
            h[1] |= GSO_ECN;
        }
        h[2..4].copy_from_slice(&header.to_ne_bytes());
        h[4..6].copy_from_slice(&size.to_ne_bytes());
    }
    h
}

/// Parses the header of `frame`. Returns `None` when it contradicts the frame or has an unknown
/// segmentation type. The header length is computed from the frame, since the kernel's is only a
/// hint.
pub(crate) fn decode(h: &[u8; VNET_HEADER], frame: &[u8]) -> Option<Offload> {
    let [flags, gso, _, _, size0, size1, start0, start1, offset0, offset1] = *h;
    let mut offload = Offload::default();
    if flags & NEEDS_CSUM != 0 {
        let start = u16::from_ne_bytes([start0, start1]);
        let offset = u16::from_ne_bytes([offset0, offset1]);
        if usize::from(start) + usize::from(offset) + 2 > frame.len() {
            return None;
        }
        offload.csum = Some((start, offset));
    }
    offload.csum_valid = flags & DATA_VALID != 0;
    let kind = match gso & !GSO_ECN {
        GSO_NONE => return Some(offload),
        GSO_TCPV4 => Gso::TcpV4,
        GSO_TCPV6 => Gso::TcpV6,
        GSO_UDP_L4 => Gso::UdpL4,
        GSO_UDP => Gso::UdpFragment,
        _ => return None,
    };
    let transport = match offload.csum {
        Some((start, _)) => usize::from(start),
        None => headers::layers(frame)?.l4,
    };
    let header = finish::header_length(frame, kind, transport)?;
    let size = u16::from_ne_bytes([size0, size1]);
    if size == 0 {
        return None;
    }
    offload.gso = Some((kind, size, u16::try_from(header).ok()?));
    offload.gso_ecn = gso & GSO_ECN != 0;
    Some(offload)
}

/// Parses the header of a frame that followed `prefix` bytes when the kernel wrote the header;
/// `frame` is without them. Returns `None` when header, prefix and frame contradict each other.
///
/// `prefix` is the difference in length between the received data and `frame`. It does not include
/// a VLAN tag that was moved from the part before the frame into the frame. It includes one that
/// was removed.
pub fn decode_offload(h: &[u8; VNET_HEADER], frame: &[u8], prefix: usize) -> Option<Offload> {
    decode(&with_start(h, |start| usize::from(start).checked_sub(prefix))?, frame)
}

/// Returns the header of a frame that got `prefix` bytes more before its unfinished checksum.
/// `None`: a header cannot state that.
pub(crate) fn after_prefix(h: &[u8; VNET_HEADER], prefix: usize) -> Option<[u8; VNET_HEADER]> {
    with_start(h, |start| usize::from(start).checked_add(prefix))
}

/// Returns the header with another start of the unfinished checksum, if it has one.
fn with_start(
    h: &[u8; VNET_HEADER],
    change: impl FnOnce(u16) -> Option<usize>,
) -> Option<[u8; VNET_HEADER]> {
    let mut h = *h;
    let [flags, _, _, _, _, _, start0, start1, ..] = h;
    if flags & NEEDS_CSUM != 0 {
        let start = change(u16::from_ne_bytes([start0, start1]))?;
        h[6..8].copy_from_slice(&u16::try_from(start).ok()?.to_ne_bytes());
    }
    Some(h)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_header_over_any_frame_is_decoded_or_refused(
            header: [u8; VNET_HEADER],
            frame in proptest::collection::vec(any::<u8>(), 0..100),
        ) {
            if let Some(o) = decode(&header, &frame) {
                if let Some((start, offset)) = o.csum {
                    prop_assert!(usize::from(start + offset) + 2 <= frame.len());
                }
                let again = decode(&encode(&o), &frame);
                prop_assert_eq!(again, Some(Offload { csum_valid: false, ..o }));
            }
        }

        #[test]
        fn a_prefix_moves_the_checksum_only(
            header: [u8; VNET_HEADER],
            frame in proptest::collection::vec(any::<u8>(), 0..100),
            prefix in 0..200usize,
        ) {
            let start = u16::from_ne_bytes([header[6], header[7]]);
            prop_assume!(usize::from(start) + prefix <= usize::from(u16::MAX));
            let behind = after_prefix(&header, prefix).expect("in range");
            prop_assert_eq!(decode_offload(&behind, &frame, prefix), decode(&header, &frame));
            if header[0] & NEEDS_CSUM != 0 && usize::from(start) < prefix {
                prop_assert_eq!(decode_offload(&header, &frame, prefix), None);
            }
        }
    }
}
