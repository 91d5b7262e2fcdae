// SPDX-License-Identifier: Apache-2.0
//! Matches back and forth, and bytes that are no match. Open vSwitch's answers to the same bytes
//! are in `tests/vectors.rs`.

use super::*;
use flow::Field;
use proptest::prelude::*;

/// A match of some fields with their prerequisites.
fn some_match() -> impl Strategy<Value = Match> {
    let types = prop_oneof![
        Just((0x0800u16, None::<u8>)),
        Just((0x0800, Some(6))),
        Just((0x0800, Some(17))),
        Just((0x0800, Some(1))),
        Just((0x86dd, Some(132))),
        Just((0x86dd, Some(58))),
        Just((0x0806, None)),
        Just((0x8847, None)),
        Just((0x88cc, None)),
    ];
    let field = (0..Field::ALL.len(), any::<u128>(), any::<u128>(), 0u8..4);
    (types, proptest::collection::vec(field, 0..12)).prop_map(|((dl_type, proto), fields)| {
        let mut m = Match::ANY;
        m.set(Field::EthType, dl_type.into());
        if let Some(proto) = proto {
            m.set(Field::IpProto, proto.into());
        }
        for (i, value, mask, how) in fields {
            let field = Field::ALL[i];
            let skip = matches!(
                field,
                Field::EthType
                    | Field::IpProto
                    | Field::PacketType
                    | Field::SkbPriority
                    | Field::TunTtl
                    | Field::TunTos
                    | Field::VlanTci
                    | Field::DlVlan
                    | Field::DlVlanPcp
                    | Field::InPort
                    | Field::IpFrag
            );
            let value = match field {
                Field::InPortOxm | Field::ActsetOutput => value % 0xff00,
                Field::VlanVid => value & 0xfff | 0x1000,
                Field::IpDscp => value & 0xfc,
                _ => value,
            } & field.all_ones();
            if skip || !field.prerequisite().holds_for_match(&m) || field.load(&m.mask().0) != 0 {
                continue;
            }
            let mask = match field {
                // Other masks mean these ones.
                Field::TunErspanVer | Field::TunErspanDir | Field::TunErspanHwid => mask & value,
                _ => mask & field.all_ones(),
            };
            if how > 0 && field.maskable() && field != Field::VlanVid {
                m.set_masked(field, value, mask);
            } else if field == Field::IpDscp {
                m.set_masked(field, value, 0xfc);
            } else {
                m.set(field, value);
            }
        }
        m
    })
}

proptest! {
    #[test]
    fn nxm_gives_the_match_back(m in some_match(), cookie: u64, cookie_mask: u64) {
        let mut out = vec![1, 2, 3];
        let len = encode_nx_match(&m, cookie, cookie_mask, &mut out);
        prop_assert!((out.len() - 3).is_multiple_of(8));
        let (back, used) = decode_nx_match(&out[3..], len, Strictness::Strict, true).unwrap();
        prop_assert_eq!(used, out.len() - 3);
        prop_assert_eq!(back.matching, m);
        prop_assert_eq!(back.cookie_mask, cookie_mask);
        prop_assert_eq!(back.cookie, cookie & cookie_mask);
    }

    #[test]
    fn oxm_gives_the_match_back(m in some_match(), v in 2usize..6) {
        let version = Version::ALL[v];
        let mut out = Vec::new();
        encode_match(version, &m, &mut out);
        let (back, used) = decode_match(version, &out, Strictness::Strict).unwrap();
        prop_assert_eq!(used, out.len());
        prop_assert_eq!(back, m);
        // Truncated anywhere it is an error.
        for cut in 0..out.len() {
            prop_assert!(decode_match(version, &out[..cut], Strictness::Strict).is_err());
        }
    }

    #[test]
    fn fixed_forms_keep_what_they_can_say(m in some_match()) {
        for version in [Version::V10, Version::V11] {
            let mut out = Vec::new();
            encode_match(version, &m, &mut out);
            let (back, used) = decode_match(version, &out, Strictness::Strict).unwrap();
            prop_assert_eq!(used, out.len());
            // OpenFlow 1.0 has parts of fields as the whole of them.
            prop_assert!(version == Version::V10 || m.is_within(&back), "{:?}", version);
            let mut again = Vec::new();
            encode_match(version, &back, &mut again);
            let (same, _) = decode_match(version, &again, Strictness::Strict).unwrap();
            prop_assert_eq!(same, back, "{:?}", version);
            for cut in 0..out.len() {
                prop_assert!(decode_match(version, &out[..cut], Strictness::Strict).is_err());
            }
        }
        prop_assert_eq!(fits_of10(&m), decode_of10(&encode_of10(&m)).unwrap() == m);
    }
}

#[test]
fn unknown_fields_are_skipped_when_loose() {
    // A number of class 1 that no field has, reg0
    let bytes = [0, 1, 0xfc, 8, 0, 0, 0, 0, 0, 0, 0, 5, 0, 1, 0, 4, 0, 0, 0, 7];
    let mut padded = bytes.to_vec();
    padded.resize(24, 0);
    let strict = decode_nx_match(&padded, 20, Strictness::Strict, false);
    assert_eq!(strict.unwrap_err(), OfError::OFPBMC_BAD_FIELD);
    let (loose, _) = decode_nx_match(&padded, 20, Strictness::Loose, false).unwrap();
    let mut want = Match::ANY;
    want.set(Field::Reg0, 7);
    assert_eq!(loose.matching, want);
}

/// Registers from 16 on have numbers of Nicira's experimenter in class 0xffff, and OpenFlow 1.5 has them
/// in pairs (openvswitch/meta-flow.h of 3.7).
#[test]
fn the_second_half_of_the_registers_is_sent_as_experimenter() {
    const REG16: [u8; 12] = [0xff, 0xff, 0x22, 8, 0, 0, 0x23, 0x20, 0, 0, 0, 5];
    const REG31: [u8; 16] = [0xff, 0xff, 0x41, 12, 0, 0, 0x23, 0x20, 0, 0, 0, 6, 0, 0, 0, 0xff];
    const XREG8: [u8; 20] =
        [0x80, 1, 0x11, 16, 0, 0, 0, 5, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];
    const XREG15: [u8; 20] = [0x80, 1, 0x1f, 16, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 0xff];
    let mut want = Match::ANY;
    want.set(Field::Reg16, 5);
    want.set_masked(Field::Reg31, 6, 0xff);
    for (version, sent) in [
        (None, [&REG16[..], &REG31].concat()),
        (Some(Version::V13), [&REG16[..], &REG31].concat()),
        (Some(Version::V15), [&XREG8[..], &XREG15].concat()),
    ] {
        let mut out = Vec::new();
        match version {
            None => _ = encode_nx_match(&want, 0, 0, &mut out),
            Some(version) => list::encode_oxm_list(version, &want, &mut out),
        }
        out.truncate(sent.len()); // the padding of NXM
        assert_eq!(out, sent, "{version:?}");
        assert_eq!(list::decode(&sent, Strictness::Strict, false).unwrap().matching, want);
    }
    // An xxreg is two of the pairs that OpenFlow 1.5 names.
    let mut xxreg = vec![0xff, 0xff, 0x49, 36, 0, 0, 0x23, 0x20];
    xxreg.extend(6u128.to_be_bytes());
    xxreg.extend(0xffu128.to_be_bytes());
    let mut want = Match::ANY;
    want.set_masked(Field::Reg31, 6, 0xff);
    assert_eq!(list::decode(&xxreg, Strictness::Strict, false).unwrap().matching, want);
}

/// The bytes that ovs-ofctl 3.1 sends for `tun_erspan_hwid=0xf/0x1`.
#[test]
fn a_mask_of_an_erspan_field_is_the_bits_that_ovs_ofctl_means() {
    let mut header = Vec::new();
    encode_header(Field::TunErspanHwid, true, 0, &mut header);
    let sent = [&header[..], &[0x01, 0x0f]].concat();
    let read = list::decode(&sent, Strictness::Strict, false).unwrap().matching;
    let mut want = Match::ANY;
    want.set_masked(Field::TunErspanHwid, 1, 1);
    assert_eq!(read, want);
    // Without a mask the match is exact.
    header.clear();
    encode_header(Field::TunErspanHwid, false, 0, &mut header);
    let read = list::decode(&[&header[..], &[0x01]].concat(), Strictness::Strict, false).unwrap();
    want.set(Field::TunErspanHwid, 1);
    assert_eq!(read.matching, want);
}

#[test]
fn cookie_only_where_it_may_be() {
    let mut out = Vec::new();
    let len = encode_nx_match(&Match::ANY, 0x1234, 0xffff, &mut out);
    assert_eq!(len, 20);
    let refused = decode_nx_match(&out, len, Strictness::Strict, false);
    assert_eq!(refused.unwrap_err(), OfError::OFPBMC_BAD_FIELD);
    let twice = [&out[..20], &out[..20]].concat();
    let refused = decode_nx_match(&twice, 40, Strictness::Strict, true);
    assert_eq!(refused.unwrap_err(), OfError::OFPBMC_DUP_FIELD);
}

#[test]
fn wrong_types_and_lengths() {
    let strict = Strictness::Strict;
    let error = |version, bytes: &[u8]| decode_match(version, bytes, strict).unwrap_err();
    assert_eq!(error(Version::V13, &[0, 2, 0, 4, 0, 0, 0, 0]), OfError::OFPBMC_BAD_TYPE);
    assert_eq!(error(Version::V13, &[0, 1, 0, 3, 0, 0, 0, 0]), OfError::OFPBMC_BAD_LEN);
    assert_eq!(error(Version::V13, &[0, 1, 0, 9, 0, 0, 0, 0]), OfError::OFPBMC_BAD_LEN);
    assert_eq!(error(Version::V11, &[0, 0, 0, 80]), OfError::OFPBMC_BAD_LEN);
    assert_eq!(error(Version::V10, &[0; 39]), OfError::OFPBRC_BAD_LEN);
    let nothing = decode_match(Version::V13, &[0, 1, 0, 4, 0, 0, 0, 0], strict);
    assert_eq!(nothing, Ok((Match::ANY, 8)));
}

#[test]
fn normalize_drops_what_means_nothing() {
    let mut m = Match::ANY;
    m.set(Field::TcpSrc, 80);
    m.set(Field::Ipv4Src, 0x0a00_0001);
    assert_eq!(normalize(&m), Match::ANY);
    m.set(Field::EthType, 0x0806);
    let mut want = Match::ANY;
    want.set(Field::EthType, 0x0806);
    want.set(Field::ArpSpa, 0x0a00_0001);
    assert_eq!(normalize(&m), want);
    let mut vlan = Match::ANY;
    vlan.set(Field::VlanTci, 0);
    assert_eq!(normalize(&vlan), vlan);
}

#[test]
fn header_lists() {
    let fields = [Field::EthDst, Field::TcpFlags, Field::Reg3, Field::Ipv6Src];
    for version in [Version::V13, Version::V15] {
        let mut out = Vec::new();
        for field in fields {
            assert!(encode_header(field, field.maskable(), version.wire(), &mut out));
        }
        let back = decode_header_list(&out, false).unwrap();
        assert_eq!(back.iter().map(|h| h.field).collect::<Vec<_>>(), fields);
        assert!(back.iter().all(|h| h.has_mask == h.field.maskable()));
        out.extend_from_slice(&[0x80, 0, 0x7e, 4]);
        assert_eq!(decode_header_list(&out, false).unwrap_err(), OfError::OFPBMC_BAD_FIELD);
        assert_eq!(decode_header_list(&out, true).unwrap().len(), fields.len());
        out.push(0);
        assert_eq!(decode_header_list(&out, true).unwrap_err(), OfError::OFPBMC_BAD_LEN);
    }
}

#[test]
fn a_packet_type_of_ethernet_goes_without_saying() {
    let packet_type = [0x80, 0, 44 << 1, 4, 0, 0, 0, 0];
    let ipv6 = [0x80, 0, 5 << 1, 2, 0x86, 0xdd];
    let mut plain = Match::ANY;
    plain.set(Field::EthType, 0x86dd);
    let said = list::decode(&[&packet_type[..], &ipv6].concat(), Strictness::Strict, false);
    assert_eq!(said.unwrap().matching, plain);
    let twice = list::decode(&[&ipv6[..], &packet_type].concat(), Strictness::Strict, false);
    assert_eq!(twice.unwrap_err(), OfError::OFPBMC_DUP_FIELD);
    // Without a field of Ethernet packets the packet type has a meaning.
    let mut alone = Match::ANY;
    alone.set(Field::PacketType, 0);
    let said = list::decode(&packet_type, Strictness::Strict, false);
    assert_eq!(said.unwrap().matching, alone);
}

#[test]
fn fields_with_masks_of_zero_say_what_they_need() {
    let any_vlan = [0x80, 0, 6 << 1 | 1, 4, 0, 0, 0, 0];
    let any_register = [0, 1, 1, 8, 0, 0, 0, 0, 0, 0, 0, 0];
    let mut ethernet = Match::ANY;
    ethernet.set(Field::PacketType, 0);
    for (list, expected) in [(&any_vlan[..], ethernet), (&any_register, Match::ANY)] {
        let read = list::decode(list, Strictness::Strict, false);
        assert_eq!(read.unwrap().matching, expected);
    }
}

#[test]
fn of_a_priority_without_a_vlan_oxm_says_that_there_is_ethernet() {
    let mut m = Match::ANY;
    m.set_masked(Field::VlanTci, 0, 0xe000);
    let mut out = Vec::new();
    encode_oxm_list(Version::V13, &m, &mut out);
    assert_eq!(out, [0x80, 0, 44 << 1, 4, 0, 0, 0, 0]);
    m.set(Field::EthType, 0x0800);
    let mut out = Vec::new();
    encode_oxm_list(Version::V13, &m, &mut out);
    assert_eq!(out, [0x80, 0, 5 << 1, 2, 8, 0]);
}
