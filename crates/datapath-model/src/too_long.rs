// SPDX-License-Identifier: Apache-2.0
//! The treatment of packets that are too long for the path of a tunnel.

use crate::edit::longest;
use flow::Key;
use packet::{Packet, ethertype};
use tunnel::Header;

/// Offset of the IPv4 field with DF, in bytes.
const FRAGMENT: usize = 6;
const DF: u8 = 0x40;

/// The treatment of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    /// Nothing: it fits.
    Whole,
    /// Fragments of the outer packet, with this MTU.
    Outer(usize),
    /// Fragments of its own with this MTU, each in the tunnel.
    Inner(usize),
    /// A report to its sender that this MTU fits.
    Report(usize),
}

/// Decides about a packet whose IP header is at `l3`.
pub(crate) fn fit(packet: &Packet, key: &Key, l3: Option<usize>, header: &Header) -> Fit {
    let (Some(room), Some(path)) = (header.room(), header.path_mtu()) else { return Fit::Whole };
    if longest(packet) <= room {
        return Fit::Whole;
    }
    if header.has_identification() {
        return Fit::Outer(path.into());
    }
    let l3 = l3.unwrap_or(0);
    let mtu = room.saturating_sub(l3);
    let field = packet.data().get(l3 + FRAGMENT).copied().unwrap_or(DF);
    let may_be_fragmented = key.dl_type.get() == ethertype::IPV4 && field & DF == 0;
    if may_be_fragmented { Fit::Inner(mtu) } else { Fit::Report(mtu) }
}

/// Replaces each frame whose IPv4 packet at `l3` is longer than `mtu` by its fragments.
pub(crate) fn fragments(frames: Vec<Packet>, l3: usize, mtu: usize) -> Option<Vec<Packet>> {
    let each = |frame: Packet| packet::fragment::ipv4(frame.data(), l3, mtu);
    Some(frames.into_iter().map(each).collect::<Option<Vec<_>>>()?.concat())
}
