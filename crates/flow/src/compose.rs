// SPDX-License-Identifier: Apache-2.0
//! From a [`Key`] to a frame that has it.

use crate::extract::{DL_TYPE_NONE, FRAG_ANY, FRAG_LATER};
use crate::{Key, VLAN_CFI};
use packet::build::Frame;
use packet::{
    IcmpHeader, IntoBytes, Ipv4Header, Ipv6Header, MplsEntry, NdOption, NshHeader, Packet,
    ethertype, ip_proto,
};
use std::net::Ipv4Addr;
use zerocopy::network_endian::{U16, U32};

/// The payload that OVS puts into composed packets: the bytes 0 to 63.
pub const PAYLOAD: [u8; 64] = {
    let mut p = [0; 64];
    let mut i = 0;
    while i < p.len() {
        p[i] = i as u8;
        i += 1;
    }
    p
};

/// Fragment offset (in units of 8 bytes) of composed later fragments.
const LATER_OFFSET: u16 = 100;
/// IPv6 "no next header" (RFC 8200, 4.7).
const NO_NEXT_HEADER: u8 = 59;

/// Returns a frame that [`crate::extract::key_of`] reads as `key`, with right lengths and
/// checksums, as `ofproto/trace` and `netdev-dummy/receive` make them from flow texts.
///
/// `payload` (OVS's is [`PAYLOAD`]) follows TCP, UDP, ICMP and ICMPv6 headers. Other packets end
/// with their last header, as in OVS, so that byte counts are the same.
///
/// The key is taken as it is. Some keys belong to no packet, and the frame is then read as another
/// key: a `dl_type` below 0x600 (read as none), IPv6 with the number of an extension header as
/// protocol, IPv6 later fragments with a protocol (theirs is 44), a second VLAN tag without a
/// first, labels after the bottom of the stack, fields of layers that the types exclude.
pub fn compose(key: &Key, payload: &[u8]) -> Packet {
    let mut f = Frame::ethernet(key.dl_dst, key.dl_src);
    for vlan in &key.vlans {
        let tci = vlan.tci.get();
        if tci & VLAN_CFI == 0 {
            break;
        }
        let tpid = if vlan.tpid.get() == 0 { ethertype::VLAN } else { vlan.tpid.get() };
        f = f.vlan(tpid, tci & !VLAN_CFI);
    }
    let dl_type = key.dl_type.get();
    match dl_type {
        // An 802.3 frame: the length of what it has, which is nothing.
        DL_TYPE_NONE => f.ethertype(14).packet(),
        ethertype::IPV4 => ipv4(f, key, payload),
        ethertype::IPV6 => ipv6(f, key, payload),
        ethertype::ARP | ethertype::RARP => f
            .arp(
                dl_type,
                key.nw_proto.into(),
                (key.arp_sha, key.nw_src.get().into()),
                (key.arp_tha, key.nw_dst.get().into()),
            )
            .packet(),
        ethertype::NSH => f.ethertype(dl_type).payload(&nsh(key)).packet(),
        _ if ethertype::is_mpls(dl_type) => {
            f = f.ethertype(dl_type);
            for entry in key.mpls.map(MplsEntry) {
                f = f.mpls(dl_type, entry);
                if entry.is_bottom() {
                    break;
                }
            }
            f.packet()
        }
        _ => f.ethertype(dl_type).packet(),
    }
}

/// Returns the bytes of the header, with the contexts of metadata type 1 and none of others.
fn nsh(key: &Key) -> Vec<u8> {
    let nsh = &key.nsh;
    let has_contexts = nsh.mdtype == NshHeader::MD_TYPE_1;
    let bytes = if has_contexts { NshHeader::MD_TYPE_1_BYTES } else { size_of::<NshHeader>() };
    let first = U16::new(bytes as u16 / 4); // at most 24
    let mut header = NshHeader { first, md_type: nsh.mdtype, next: nsh.np, path: nsh.path };
    header.set_flags(nsh.flags);
    header.set_ttl(nsh.ttl);
    let mut out = header.as_bytes().to_vec();
    if has_contexts {
        out.extend_from_slice(nsh.context.as_bytes());
    }
    out
}

fn ipv4(f: Frame, key: &Key, payload: &[u8]) -> Packet {
    let later = key.nw_frag & FRAG_LATER != 0;
    let fragment = match (key.nw_frag & FRAG_ANY != 0, later) {
        (_, true) => Ipv4Header::MORE_FRAGMENTS | LATER_OFFSET,
        (true, false) => Ipv4Header::MORE_FRAGMENTS,
        (false, false) => 0,
    };
    let f = f.ipv4_header(Ipv4Header {
        version_ihl: 0x45,
        tos: key.nw_tos,
        total_len: U16::ZERO,
        id: U16::ZERO,
        fragment: U16::new(fragment),
        ttl: key.nw_ttl,
        proto: key.nw_proto,
        checksum: U16::ZERO,
        src: key.nw_src,
        dst: key.nw_dst,
    });
    if later { f.packet() } else { transport(f, key, payload) }
}

fn ipv6(f: Frame, key: &Key, payload: &[u8]) -> Packet {
    let word = 6 << 28 | u32::from(key.nw_tos) << 20 | key.ipv6_label.get() & 0xf_ffff;
    let f = f.ipv6_header(Ipv6Header {
        version_class_label: U32::new(word),
        payload_len: U16::ZERO,
        next: key.nw_proto,
        hop_limit: key.nw_ttl,
        src: key.ipv6_src,
        dst: key.ipv6_dst,
    });
    if key.nw_frag & FRAG_LATER != 0 {
        f.ipv6_fragment(LATER_OFFSET << 3 | 1, NO_NEXT_HEADER, 0).packet()
    } else if key.nw_frag & FRAG_ANY != 0 {
        transport(f.ipv6_fragment(1, key.nw_proto, 0), key, payload)
    } else {
        transport(f, key, payload)
    }
}

fn transport(f: Frame, key: &Key, payload: &[u8]) -> Packet {
    let (src, dst) = (key.tp_src.get(), key.tp_dst.get());
    // ICMP types and codes are in the ports' places.
    let (kind, code) = (src as u8, dst as u8);
    match (key.nw_proto, key.dl_type.get()) {
        (ip_proto::TCP, _) => f.tcp(src, dst, key.tcp_flags.get()).payload(payload),
        (ip_proto::UDP, _) => f.udp(src, dst).payload(payload),
        (ip_proto::SCTP, _) => f.sctp(src, dst),
        (ip_proto::ICMP, ethertype::IPV4) => f.icmp(kind, code, 0).payload(payload),
        (ip_proto::IGMP, ethertype::IPV4) => {
            f.igmp(kind, code, Ipv4Addr::from_bits(key.igmp_group.get()))
        }
        (ip_proto::ICMPV6, ethertype::IPV6) => {
            let nd = [IcmpHeader::NEIGHBOUR_SOLICIT, IcmpHeader::NEIGHBOUR_ADVERT];
            if nd.contains(&kind) && code == 0 {
                let mut options =
                    vec![(NdOption::SOURCE, key.arp_sha), (NdOption::TARGET, key.arp_tha)];
                if key.nd_options_type == NdOption::TARGET {
                    options.reverse();
                }
                options.retain(|(_, address)| *address != [0; 6]);
                f.nd(kind, key.nd_reserved.get(), key.nd_target.into(), &options)
            } else {
                f.icmpv6(kind, code, 0).payload(payload)
            }
        }
        _ => f,
    }
    .packet()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extract::key_of;
    use crate::text::{no_numbers, odp};

    fn hex(text: &str) -> Vec<u8> {
        let digits = text.as_bytes().chunks(2);
        digits.map(|d| u8::from_str_radix(std::str::from_utf8(d).unwrap(), 16).unwrap()).collect()
    }

    fn composed(rest: &str) -> (Key, Packet) {
        let eth = "in_port(1),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07)";
        let (key, _) = odp::parse(&format!("{eth}{rest}"), &no_numbers).unwrap();
        (key, compose(&key, &PAYLOAD))
    }

    /// Starts and lengths of what OVS 3.1 makes of the same texts. Not compared: SCTP, whose
    /// checksum OVS leaves zero, and IPv6 fragments, which it makes without fragment header.
    #[test]
    fn same_bytes_as_ovs() {
        let v4 = "eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2";
        let v6 = "eth_type(0x86dd),ipv6(src=::1,dst=::2,label=0";
        for (text, len, start) in [
            (
                format!(",{v4},proto=6,tos=0,ttl=64,frag=no),tcp(src=1,dst=2)"),
                118,
                "505400000007505400000005080045000068000000004006668e0a0000010a00000200010002000000000000000050000000b79b00000001020304",
            ),
            (
                format!(",{v4},proto=17,tos=0,ttl=64,frag=no),udp(src=1,dst=2)"),
                106,
                "50540000000750540000000508004500005c000000004011668f0a0000010a0000020001000200480755000102030405",
            ),
            (
                format!(",{v4},proto=1,tos=0,ttl=64,frag=no),icmp(type=8,code=0)"),
                106,
                "50540000000750540000000508004500005c000000004001669f0a0000010a000002080013fc0000000000010203",
            ),
            (
                format!(",{v4},proto=2,tos=0,ttl=64,frag=no)"),
                42,
                "50540000000750540000000508004500001c00000000400266de0a0000010a0000020000ffff00000000",
            ),
            (
                format!(",{v4},proto=99,tos=0,ttl=64,frag=no)"),
                34,
                "50540000000750540000000508004500001400000000406366850a0000010a000002",
            ),
            (
                format!(",{v4},proto=6,tos=0,ttl=64,frag=later)"),
                34,
                "505400000007505400000005080045000014000020644006467e0a0000010a000002",
            ),
            (
                ",eth_type(0x0806),arp(sip=1.2.3.4,tip=5.6.7.8,op=1,sha=00:0f:02:03:04:05,tha=00:00:00:00:00:00)".into(),
                42,
                "50540000000750540000000508060001080006040001000f020304050102030400000000000005060708",
            ),
            (",eth_type(0x1234)".into(), 14, "5054000000075054000000051234"),
            (String::new(), 14, "505400000007505400000005000e"),
            (
                format!(",eth_type(0x8100),vlan(vid=5,pcp=1),encap({v4},proto=6,tos=0,ttl=64,frag=no),tcp(src=1,dst=2))"),
                122,
                "50540000000750540000000581002005080045000068000000004006668e",
            ),
            (
                format!(",{v6},proto=6,tclass=0,hlimit=64,frag=no),tcp(src=1,dst=2)"),
                138,
                "50540000000750540000000586dd6000000000540640000000000000000000000000000000010000000000000000000000000000000200010002000000000000000050000000cb9b0000",
            ),
            (
                format!(",{v6},proto=58,tclass=0,hlimit=64,frag=no),icmpv6(type=128,code=0)"),
                126,
                "50540000000750540000000586dd6000000000483a40000000000000000000000000000000010000000000000000000000000000000280009b7600000000",
            ),
            (
                format!(",{v6},proto=58,tclass=0,hlimit=64,frag=no),icmpv6(type=135,code=0),nd(target=::3)"),
                78,
                "50540000000750540000000586dd6000000000183a400000000000000000000000000000000100000000000000000000000000000002870078a70000000000000000000000000000000000000003",
            ),
            (
                ",eth_type(0x8847),mpls(label=100,tc=3,ttl=64,bos=0,label=1,tc=0,ttl=3,bos=1)".into(),
                22,
                "50540000000750540000000588470006464000001103",
            ),
        ] {
            let (_, packet) = composed(&text);
            assert_eq!(packet.len(), len, "{text}");
            let start = hex(start);
            assert_eq!(packet.data()[..start.len()], start, "{text}");
        }
    }

    #[test]
    fn parses_back_to_the_same_key() {
        let v4 = "eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2";
        let v6 = "eth_type(0x86dd),ipv6(src=::1,dst=::2,label=0x12345";
        for text in [
            format!(",{v4},proto=6,tos=0x13,ttl=64,frag=no),tcp(src=1,dst=2),tcp_flags(syn|ns)"),
            format!(",{v4},proto=132,tos=0,ttl=64,frag=first),sctp(src=1,dst=2)"),
            format!(",{v4},proto=17,tos=0,ttl=64,frag=later)"),
            format!(",{v6},proto=17,tclass=0x70,hlimit=64,frag=first),udp(src=1,dst=2)"),
            format!(",{v6},proto=44,tclass=0x70,hlimit=64,frag=later)"),
            format!(",{v6},proto=58,tclass=0,hlimit=255,frag=no),icmpv6(type=136,code=0),nd(target=::3,sll=00:00:00:00:00:01,tll=00:00:00:00:00:02),nd_ext(nd_reserved=0x60000000,nd_options_type=2)"),
            format!(",eth_type(0x88a8),vlan(vid=5,pcp=1),encap(eth_type(0x8100),vlan(vid=6,pcp=2),encap({v4},proto=1,tos=0,ttl=1,frag=no),icmp(type=3,code=4)))"),
            ",eth_type(0x894f),nsh(flags=2,ttl=63,mdtype=1,np=3,spi=0x123456,si=255,c1=0x1,c2=0x2,c3=0x3,c4=0x4)".into(),
            ",eth_type(0x894f),nsh(flags=0,ttl=1,mdtype=2,np=4,spi=0x1,si=1)".into(),
            ",eth_type(0x8035),arp(sip=1.2.3.4,tip=5.6.7.8,op=3,sha=00:0f:02:03:04:05,tha=00:00:00:00:00:01)".into(),
            ",eth_type(0x8848),mpls(label=100,tc=3,ttl=64,bos=0,label=1,tc=0,ttl=3,bos=0,label=7,tc=7,ttl=7,bos=1)".into(),
            String::new(),
        ] {
            let (key, packet) = composed(&text);
            assert_eq!(key_of(packet.data(), 1), key, "{text}");
        }
    }

    #[test]
    fn checksums_are_right() {
        let (_, p) = composed(
            ",eth_type(0x0800),ipv4(src=1.2.3.4,dst=5.6.7.8,proto=132,ttl=1,frag=no),sctp(src=1,dst=2)",
        );
        let sctp = &p.data()[34..];
        assert_eq!(sctp.get(8..12), packet::checksum::sctp(sctp).as_ref().map(|c| &c[..]));
        let (_, p) =
            composed(",eth_type(0x0800),ipv4(src=1.2.3.4,dst=5.6.7.8,proto=2,ttl=1,frag=no)");
        assert_eq!(packet::checksum::internet(&p.data()[34..]), 0);
    }
}
