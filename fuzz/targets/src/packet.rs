// SPDX-License-Identifier: Apache-2.0
//! Parsing of frames: the walkers and the key, composing, checksums, unfinished work.
//!
//! The first two bytes are settings, the rest is a frame.

use crate::input::Input;
use flow::extract::{Layers, extract, extract_limited};
use flow::text::{no_names, no_numbers};
use flow::{Key, PAYLOAD, compose};
use packet::{
    ArpHeader, FromBytes as _, IcmpHeader, Ipv4Header, Ipv6Extensions, Ipv6Header, LlcSnapHeader,
    MplsEntry, NdHeader, NdOption, NdOptions, Packet, TcpHeader, checksum,
};

pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (limit, settings) = (input.below(3), input.byte());
    let frame = input.rest();
    let (key, layers) = extract_limited(frame, 1, limit);
    layers_are_inside(frame, &layers);
    views(frame.get(usize::from(settings & 63)..).unwrap_or_default());
    if limit == 0 {
        return;
    }
    let (key2, layers2) = extract(frame, 1);
    layers_are_inside(frame, &layers2);
    assert_eq!(flow::extract::key_of(frame, 1), key2);
    if limit == flow::extract::vlan_limit() {
        assert_eq!(key, key2);
    }
    trailing_bytes_do_not_matter(frame, &key2, &layers2);
    truncation_only_takes_away(frame, &key2, settings);
    texts(&key2);
    composed(&key2);
    sums(frame, settings);
    offloads(frame, settings);
}

fn layers_are_inside(frame: &[u8], layers: &Layers) {
    let places = [Some(0), layers.l2_5, layers.l3, layers.l4];
    let places: Vec<usize> = places.into_iter().flatten().map(usize::from).collect();
    assert!(places.is_sorted(), "{layers:?}");
    assert!(places.iter().all(|at| *at <= frame.len()), "{layers:?} of {}", frame.len());
    assert!(usize::from(layers.l2_pad) <= frame.len(), "{layers:?}");
}

/// Each view at any place, not only where the walk would come by.
fn views(bytes: &[u8]) {
    if let Ok((h, _)) = Ipv4Header::ref_from_prefix(bytes)
        && let Some((header, total)) = h.checked_lengths(bytes.len())
    {
        assert!((20..=60).contains(&header) && header <= total && total <= bytes.len());
    }
    if let Ok((h, payload)) = Ipv6Header::ref_from_prefix(bytes)
        && let Some(len) = h.checked_payload_len(bytes.len())
    {
        let payload = &payload[..len]; // checked_payload_len promises it
        if let Some(e) = Ipv6Extensions::walk(h.next, payload) {
            assert!(e.len <= len, "{e:?}");
            assert!(e.fragment_at.is_none_or(|at| at + 8 <= e.len), "{e:?}");
            assert!(e.routing_at.is_none_or(|at| at < e.len), "{e:?}");
            assert!(!e.is_later_fragment || e.is_fragment, "{e:?}");
        }
    }
    if let Ok((h, _)) = TcpHeader::ref_from_prefix(bytes) {
        assert!(h.header_len() <= 60 && h.flags() <= 0xfff);
    }
    if let Ok((h, _)) = MplsEntry::ref_from_prefix(bytes) {
        let again = MplsEntry::new(h.label(), h.tc(), h.is_bottom(), h.ttl());
        assert_eq!(again, *h);
    }
    if let Ok((_, options)) = NdHeader::ref_from_prefix(bytes) {
        let options: Vec<NdOption<'_>> = NdOptions::new(options).collect();
        assert!(options.iter().map(|o| o.bytes.len()).sum::<usize>() <= bytes.len());
        assert!(options.iter().all(|o| o.ethernet_address().is_none() || o.bytes.len() >= 8));
    }
    let _ = ArpHeader::ref_from_prefix(bytes).map(|(h, _)| h.is_ethernet_ipv4());
    let _ = LlcSnapHeader::ref_from_prefix(bytes).map(|(h, _)| h.is_ethernet());
    let _ = IcmpHeader::ref_from_prefix(bytes);
}

/// Checks that bytes after the IP packet are padding: more of them change nothing.
fn trailing_bytes_do_not_matter(frame: &[u8], key: &Key, layers: &Layers) {
    if layers.l4.is_none() {
        return;
    }
    let mut longer = frame.to_vec();
    longer.extend_from_slice(&[0xa5; 9]);
    let (again, places) = extract(&longer, 1);
    assert_eq!((&again, places.l4), (key, layers.l4));
    assert_eq!(places.l2_pad, layers.l2_pad + 9);
}

/// A shorter frame gives no L3 or L4 field that the whole one does not give: a field is its own
/// value or zero.
fn truncation_only_takes_away(frame: &[u8], key: &Key, settings: u8) {
    let cut = frame.len() * usize::from(settings) / 256;
    let (short, layers) = extract(&frame[..cut], 1); // cut is at most the length
    layers_are_inside(&frame[..cut], &layers);
    // A truncated tag or type makes the rest another protocol.
    if short.dl_type != key.dl_type || short.vlans != key.vlans {
        return;
    }
    let same_or_none = [
        (short.nw_src.get(), key.nw_src.get()),
        (short.nw_dst.get(), key.nw_dst.get()),
        (short.tp_src.get().into(), key.tp_src.get().into()),
        (short.tp_dst.get().into(), key.tp_dst.get().into()),
        (short.nw_tos.into(), key.nw_tos.into()),
        (short.nw_ttl.into(), key.nw_ttl.into()),
        (short.tcp_flags.get().into(), key.tcp_flags.get().into()),
        (short.igmp_group.get(), key.igmp_group.get()),
    ];
    for (n, (short, whole)) in same_or_none.into_iter().enumerate() {
        assert!(short == 0 || short == whole, "field {n}: {short:#x} of {whole:#x} at {cut}");
    }
}

fn texts(key: &Key) {
    flow::text::format_key(key, &no_names);
    let mask = flow::text::packet_mask(key);
    flow::text::format_megaflow(&flow::Match::new(key, &mask), &no_names);
    let text = flow::text::odp::format(key, &mask, Default::default(), &no_names);
    let Ok((again, _)) = flow::text::odp::parse(&text, &no_numbers) else {
        panic!("the key of a packet does not read back: {text}")
    };
    let twice = flow::text::odp::parse(&text, &no_numbers)
        .map(|(k, m)| flow::text::odp::format(&k, &m, Default::default(), &no_names));
    assert_eq!(twice.as_deref(), Ok(text.as_str()));
    assert_eq!(again.in_port, key.in_port, "{text}");
}

/// A frame composed of a key has right checksums, and its key composes the same frame.
fn composed(key: &Key) {
    let frame = compose(key, &PAYLOAD);
    let again = flow::extract::key_of(frame.data(), 1);
    let twice = compose(&again, &PAYLOAD);
    let third = flow::extract::key_of(twice.data(), 1);
    assert_eq!(again, third, "a composed frame's key does not compose it again");
    let (_, layers) = extract(frame.data(), 1);
    if let (0x800, Some(l3)) = (again.dl_type.get(), layers.l3) {
        let ip = &frame.data()[usize::from(l3)..]; // layers are inside
        assert_eq!(checksum::internet(&ip[..20]), 0, "a composed IPv4 header");
    }
}

/// Updating a sum is summing the updated bytes.
fn sums(frame: &[u8], settings: u8) {
    checksum::sctp(frame);
    let at = usize::from(settings) & !1;
    let Some(old) = frame.get(at..at + 4) else { return };
    let new = [settings, !settings, 0xff, old[0]]; // old is 4 bytes
    let mut changed = frame.to_vec();
    changed[at..at + 4].copy_from_slice(&new);
    let moved = checksum::update(checksum::internet(frame), old, &new);
    let whole = checksum::internet(&changed);
    // One's complement has two zeros; which one comes out depends on the way.
    let zero = |sum: u16| matches!(sum, 0 | 0xffff);
    assert!(moved == whole || zero(moved) && zero(whole), "{moved:#x} for {whole:#x}");
}

/// Checks that offloaded work is finished or refused, whatever the metadata says.
fn offloads(frame: &[u8], settings: u8) {
    let mut packet = Packet::from_slice(frame);
    if netdev::finish::recognise_unfinished(&mut packet) {
        let (start, offset) = packet.offload.csum.expect("it was recognised");
        assert!(usize::from(start) + usize::from(offset) + 2 <= frame.len());
    }
    let header: [u8; 10] = std::array::from_fn(|i| frame.get(i + 2).copied().unwrap_or(settings));
    if let Some(offload) = netdev::tap::decode_offload(&header, frame, usize::from(settings & 7)) {
        packet.offload = offload;
    }
    let Ok(frames) = netdev::finish::finish(&packet) else { return };
    assert!(frames.iter().all(netdev::finish::is_finished));
    assert!(frames.len() <= frame.len().max(1), "{} of {} bytes", frames.len(), frame.len());
}
