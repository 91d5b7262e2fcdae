// SPDX-License-Identifier: Apache-2.0
//! Decodes the frames of the miss device: a tap frame that begins with `struct miss_header`.
//!
//! The outermost VLAN tag of a packet may have been stored apart from its bytes. Such a packet
//! comes with the tag at the place that an Ethernet header has for it: at byte 12, in the midst of
//! the miss header. The decoder puts the tag where it belongs.

use datapath::{MissOrigin, PortNo};
use packet::{Packet, ethertype};

use crate::layout::{
    MISS_BARE, MISS_ETHERTYPE, MISS_HEADER, MISS_TRACKED, NO_CELL, PORT_WORDS, VERSION, WORDS,
};

/// Byte offset at which the kernel puts a VLAN tag (`struct vlan_ethhdr`), and the tag's bytes.
const TAG_AT: usize = 12;
const TAG: usize = 4;

/// The contents of a miss header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Missed {
    /// The metadata. [`MissOrigin::tracked`] is not set.
    pub(crate) origin: MissOrigin,
    /// The rest of the header of a packet that met `ct`.
    pub(crate) tracked: Option<TrackedMiss>,
}

/// `struct miss_tracked`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TrackedMiss {
    /// The packet type of the key: 0 for a frame.
    pub(crate) packet_type: u32,
    /// A key with the fields of tunnels and connections alone.
    pub(crate) words: [u64; WORDS],
    /// Where the packet's list of actions goes on.
    pub(crate) place: Option<ListPlace>,
}

/// A place in the list of actions of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListPlace {
    /// Number of the flow's slot.
    pub(crate) flow: u32,
    /// `installed` of the slot.
    pub(crate) installed: u64,
    /// Cell of the flow's program.
    pub(crate) cell: u32,
}

/// Removes the miss header from `packet`, which then is as it was in the program, and returns the
/// metadata in the header. `None`: `packet` has no such header, or the range of its unfinished
/// checksum begins in the header, so that the packet is to be discarded.
pub(crate) fn strip(packet: &mut Packet) -> Option<Missed> {
    let outer = u16_at(packet.data(), TAG_AT)?;
    let tag: Option<[u8; TAG]> = match outer {
        ethertype::VLAN | ethertype::VLAN_SERVICE => {
            packet.data().get(TAG_AT..)?.first_chunk().copied()
        }
        _ => None,
    };
    let tag_bytes = if tag.is_some() { TAG } else { 0 };
    let flags = u32_at(packet.data(), tag_bytes + 28)?;
    let is_bare = flags & MISS_BARE != 0;
    let more = match flags & !MISS_BARE {
        0 if !is_bare => 0,
        more if more as usize == MISS_TRACKED => MISS_TRACKED,
        _ => return None,
    };
    // A packet without an Ethernet header has the room of one in front.
    let room = if is_bare { TAG_AT + 2 } else { 0 };
    let front = tag_bytes + MISS_HEADER + more + room;
    if packet.offload.csum.is_some_and(|(start, _)| usize::from(start) < front)
        || packet.offload.gso.is_some_and(|(_, _, header)| usize::from(header) < front)
    {
        return None;
    }
    let origin = read_header(packet.data(), tag_bytes)?;
    let mut tracked = match more {
        0 => None,
        _ => Some(read_tracked(packet.data().get(tag_bytes + MISS_HEADER..)?)?),
    };
    if is_bare {
        let ethertype = u16_at(packet.data(), front.checked_sub(2)?)?;
        let bare = tracked.as_mut().filter(|_| tag.is_none())?;
        bare.packet_type = flow::NAMESPACE_ETHERTYPE << 16 | u32::from(ethertype);
    } else if packet.len() < front + TAG_AT + 2 {
        return None;
    }
    packet.remove_at(0, front);
    if let Some(tag) = tag {
        packet.insert_at(TAG_AT, TAG);
        packet.data_mut().get_mut(TAG_AT..TAG_AT + TAG)?.copy_from_slice(&tag);
    }
    Some(Missed { origin, tracked })
}

fn read_tracked(bytes: &[u8]) -> Option<TrackedMiss> {
    let mut words = [0; WORDS];
    let of_key = words.iter_mut().skip(PORT_WORDS);
    let mut at = 0;
    for word in of_key {
        *word = u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?);
        at += 8;
    }
    let installed = bytes.get(at..)?.first_chunk().map(|b| u64::from_be_bytes(*b))?;
    let (flow, cell) = (u32_at(bytes, at + 8)?, u32_at(bytes, at + 12)?);
    let place = (cell != NO_CELL).then_some(ListPlace { flow, installed, cell });
    Some(TrackedMiss { packet_type: 0, words, place })
}

/// Reads the header of a frame that has `tag` bytes inserted at [`TAG_AT`].
fn read_header(frame: &[u8], tag: usize) -> Option<MissOrigin> {
    if u16_at(frame, tag + 12)? != MISS_ETHERTYPE || u32::from(u16_at(frame, tag + 14)?) != VERSION
    {
        return None;
    }
    Some(MissOrigin {
        in_port: PortNo(u32_at(frame, 0)?),
        recirc_id: u32_at(frame, 4)?,
        dp_hash: u32_at(frame, 8)?,
        priority: u32_at(frame, tag + 16)?,
        mark: u32_at(frame, tag + 20)?,
        recirculations: u32_at(frame, tag + 24)?,
        tracked: None,
    })
}

fn u16_at(frame: &[u8], at: usize) -> Option<u16> {
    frame.get(at..)?.first_chunk().map(|b| u16::from_be_bytes(*b))
}

fn u32_at(frame: &[u8], at: usize) -> Option<u32> {
    frame.get(at..)?.first_chunk().map(|b| u32::from_be_bytes(*b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::{Gso, Offload};
    use proptest::prelude::*;

    const ORIGIN: MissOrigin = MissOrigin {
        in_port: PortNo(3),
        recirc_id: 7,
        dp_hash: 9,
        priority: 5,
        mark: 6,
        recirculations: 2,
        tracked: None,
    };

    fn origin_alone() -> Option<Missed> {
        Some(Missed { origin: ORIGIN, tracked: None })
    }

    fn header() -> Vec<u8> {
        let mut h = Vec::new();
        for v in [3u32, 7, 9] {
            h.extend(v.to_be_bytes());
        }
        h.extend(MISS_ETHERTYPE.to_be_bytes());
        h.extend((VERSION as u16).to_be_bytes());
        for v in [5u32, 6, 2, 0] {
            h.extend(v.to_be_bytes());
        }
        h
    }

    fn frame() -> Vec<u8> {
        (0..60).collect()
    }

    #[test]
    fn a_plain_packet() {
        let mut p = Packet::from_slice(&[header(), frame()].concat());
        p.offload.csum = Some((32 + 34, 16));
        p.offload.gso = Some((Gso::TcpV4, 1448, 32 + 54));
        assert_eq!(strip(&mut p), origin_alone());
        assert_eq!(p.data(), frame());
        assert_eq!((p.offload.csum, p.offload.gso), (Some((34, 16)), Some((Gso::TcpV4, 1448, 54))));
    }

    #[test]
    fn a_tag_stored_apart_returns_to_its_place() {
        let mut whole = [header(), frame()].concat();
        whole.splice(12..12, [0x81, 0x00, 0x20, 0x05]);
        let mut p = Packet::from_slice(&whole);
        p.offload.csum = Some((36 + 34, 16));
        assert_eq!(strip(&mut p), origin_alone());
        let mut wanted = frame();
        wanted.splice(12..12, [0x81, 0x00, 0x20, 0x05]);
        assert_eq!(p.data(), wanted);
        assert_eq!(p.offload.csum, Some((38, 16)));
    }

    #[test]
    fn metadata_of_connections_follows() {
        let mut tracked: Vec<u8> = (0..160).collect();
        tracked.extend(7u64.to_be_bytes());
        tracked.extend([5u32.to_be_bytes(), 4u32.to_be_bytes()].concat());
        let mut head = header();
        head[28..].copy_from_slice(&(MISS_TRACKED as u32).to_be_bytes());
        for tag in [&[][..], &[0x81, 0x00, 0x20, 0x05]] {
            let mut whole = [head.clone(), tracked.clone(), frame()].concat();
            whole.splice(12..12, tag.iter().copied());
            let mut p = Packet::from_slice(&whole);
            let missed = strip(&mut p).unwrap();
            let more = missed.tracked.unwrap();
            assert_eq!(missed.origin, ORIGIN);
            assert_eq!(more.place, Some(ListPlace { flow: 5, installed: 7, cell: 4 }));
            assert_eq!(more.words[..PORT_WORDS], [0; PORT_WORDS]);
            assert_eq!(
                more.words[WORDS - 1].to_ne_bytes(),
                [152, 153, 154, 155, 156, 157, 158, 159]
            );
            let mut wanted = frame();
            wanted.splice(12..12, tag.iter().copied());
            assert_eq!(p.data(), wanted);
        }
        for length in 0..32 + MISS_TRACKED + 14 {
            let whole = [head.clone(), tracked.clone(), frame()].concat();
            assert_eq!(strip(&mut Packet::from_slice(&whole[..length])), None, "{length}");
        }
        head[31] += 1;
        assert_eq!(strip(&mut Packet::from_slice(&[head, tracked, frame()].concat())), None);
    }

    #[test]
    fn a_packet_without_an_ethernet_header_loses_the_room_of_one() {
        let mut head = header();
        head[28..].copy_from_slice(&(MISS_TRACKED as u32 | MISS_BARE).to_be_bytes());
        let mut room = [0; 14];
        room[12..].copy_from_slice(&[0x89, 0x4f]);
        let whole = [head.clone(), vec![0; MISS_TRACKED], room.to_vec(), vec![7; 8]].concat();
        let mut p = Packet::from_slice(&whole);
        assert_eq!(strip(&mut p).unwrap().tracked.unwrap().packet_type, 0x1_894f);
        assert_eq!(p.data(), [7; 8]);
        for length in 0..32 + MISS_TRACKED + 14 {
            assert_eq!(strip(&mut Packet::from_slice(&whole[..length])), None, "{length}");
        }
        // It has no tag, and never comes without the rest of the header.
        let mut tagged = whole.clone();
        tagged.splice(12..12, [0x81, 0x00, 0x20, 0x05]);
        assert_eq!(strip(&mut Packet::from_slice(&tagged)), None);
        head[28..].copy_from_slice(&MISS_BARE.to_be_bytes());
        assert_eq!(strip(&mut Packet::from_slice(&[head, frame()].concat())), None);
    }

    #[test]
    fn other_frames_are_refused() {
        for n in 0..46 {
            let mut p = Packet::from_slice(&[header(), frame()].concat()[..n]);
            assert_eq!(strip(&mut p), None, "{n}");
        }
        let mut other = header();
        other[12] = 8;
        assert_eq!(strip(&mut Packet::from_slice(&[other, frame()].concat())), None);
        let mut p = Packet::from_slice(&[header(), frame()].concat());
        p.offload.csum = Some((20, 2));
        assert_eq!(strip(&mut p), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_judged(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            good: bool,
            tracked: bool,
            csum: Option<(u16, u16)>,
        ) {
            let mut head = header();
            if tracked {
                head[31] = MISS_TRACKED as u8;
            }
            let bytes = if good { [head, bytes].concat() } else { bytes };
            let mut p = Packet::from_slice(&bytes);
            p.offload = Offload { csum, ..Offload::default() };
            strip(&mut p);
        }
    }
}
