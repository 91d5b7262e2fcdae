// SPDX-License-Identifier: Apache-2.0
//! Messages about neighbours, and the request to resolve one.

use super::{RTM_NEWNEIGH, address_of, bytes_of, family_of};
use crate::link::LinkClient;
use crate::netlink::{NLM_F_ACK, Request, attributes};
use packet::Mac;
use std::io;
use std::net::IpAddr;

// include/uapi/linux/neighbour.h
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const NUD_REACHABLE: u16 = 0x02;
const NUD_STALE: u16 = 0x04;
const NUD_DELAY: u16 = 0x08;
const NUD_PROBE: u16 = 0x10;
const NUD_PERMANENT: u16 = 0x80;
/// States in which the kernel sends to the link-layer address.
const USABLE: u16 = NUD_REACHABLE | NUD_STALE | NUD_DELAY | NUD_PROBE | NUD_PERMANENT;
const NTF_USE: u8 = 0x01;
const NTF_PROXY: u8 = 0x08;
// include/uapi/linux/netlink.h
const NLM_F_REPLACE: u16 = 0x100;
const NLM_F_CREATE: u16 = 0x400;
/// Bytes of `struct ndmsg`.
const FIXED: usize = 12;

/// An entry of the kernel's table of neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KernelNeighbour {
    /// The kernel's index of the interface.
    pub index: u32,
    /// The IP address.
    pub address: IpAddr,
    /// The Ethernet address, when the kernel would send to it.
    pub mac: Option<Mac>,
}

/// Parses an `RTM_NEWNEIGH` or `RTM_DELNEIGH` payload. `None`: truncated, an entry of a bridge, or
/// one for which this host answers in place of another.
pub(super) fn parse(payload: &[u8]) -> Option<KernelNeighbour> {
    // struct ndmsg: family, pad(3), ifindex(4), state(2), flags, type
    let [family, _, _, _, i0, i1, i2, i3, s0, s1, flags, _] = *payload.first_chunk::<FIXED>()?;
    if flags & NTF_PROXY != 0 {
        return None;
    }
    let (mut address, mut mac) = (None, None);
    for (kind, value) in attributes(payload.get(FIXED..)?) {
        match kind {
            NDA_DST => address = address_of(family, value),
            NDA_LLADDR => mac = <[u8; 6]>::try_from(value).ok().map(Mac),
            _ => {}
        }
    }
    let is_usable = u16::from_ne_bytes([s0, s1]) & USABLE != 0;
    Some(KernelNeighbour {
        index: u32::from_ne_bytes([i0, i1, i2, i3]),
        address: address?,
        mac: mac.filter(|_| is_usable),
    })
}

/// Makes the kernel find out the Ethernet address of a neighbour at the interface with this index.
/// It asks now, as for a packet of its own; [`super::RoutingMonitor`] reports the answer. The caller
/// repeats the request for as long as it sends to the neighbour, because the kernel does not see
/// those packets.
///
/// # Errors
///
/// `ENODEV`, `EPERM`, or another error of the kernel.
pub fn resolve_neighbour(client: &LinkClient, index: u32, address: IpAddr) -> io::Result<()> {
    let mut fixed = [0; FIXED];
    fixed[0] = family_of(address);
    fixed[4..8].copy_from_slice(&index.to_ne_bytes());
    fixed[10] = NTF_USE;
    let flags = NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE;
    let request = Request::new(RTM_NEWNEIGH, flags, &fixed).attribute(NDA_DST, &bytes_of(address));
    client.request(request, |_, _| {})
}
