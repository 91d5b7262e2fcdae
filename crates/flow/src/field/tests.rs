// SPDX-License-Identifier: Apache-2.0

use super::*;
use crate::text::{self, odp};
use crate::{Mask, Match};
use proptest::prelude::*;

fn any_field() -> impl Strategy<Value = Field> {
    (0..Field::ALL.len()).prop_map(|i| Field::ALL[i])
}

#[test]
fn names_and_numbers_are_unique_and_lead_back() {
    let mut names = std::collections::HashSet::new();
    let mut numbers = std::collections::HashSet::new();
    for f in Field::ALL {
        assert!(names.insert(f.name()), "{}", f.name());
        assert_eq!(Field::from_name(f.name()), Some(f));
        if let Some(a) = f.alias() {
            assert!(names.insert(a), "{a}");
            assert_eq!(Field::from_name(a), Some(f));
        }
        for n in f.def().numbers.iter().flatten() {
            assert!(names.insert(n.name), "{}", n.name);
            assert!(numbers.insert((n.class, n.number, n.experimenter)), "{n:?}");
            assert!(n.number < 128);
            assert_eq!(Field::from_oxm(n.class, n.number, n.experimenter), Some((f, n)));
            assert_eq!(Field::from_name(n.name), Some(f));
        }
    }
}

#[test]
fn unknown_numbers_lead_nowhere() {
    let mut known = 0;
    for class in [0, 1, 2, 0x1000, 0x8000, 0x8001, 0xffff] {
        for number in 0..=255 {
            for experimenter in [None, Some(0x4f4e_4600), Some(0x2320), Some(0x5a_d650)] {
                known += usize::from(Field::from_oxm(class, number, experimenter).is_some());
            }
        }
    }
    let all = Field::ALL.iter().map(|f| f.def().numbers.iter().flatten().count());
    assert_eq!(known, all.sum());
}

#[test]
fn headers_are_those_of_the_standards() {
    let header = |f: Field, v, m| f.oxm(v).map(|n| n.header(f.oxm_bytes(), m));
    // openflow/openflow-1.2.h OXM_OF_ETH_SRC, nicira-ext NXM_OF_ETH_SRC.
    assert_eq!(header(Field::EthSrc, 4, false), Some(0x8000_0806));
    assert_eq!(header(Field::EthSrc, 4, true), Some(0x8000_090c));
    assert_eq!(header(Field::EthSrc, 0, false), Some(0x0000_0406));
    assert_eq!(header(Field::Reg0, 4, false), Some(0x0001_0004));
    assert_eq!(header(Field::TcpFlags, 0, false), Some(0x0001_4402));
    assert_eq!(header(Field::TcpFlags, 4, false), Some(0xffff_5406)); // 4 bytes of experimenter
    assert_eq!(header(Field::TcpFlags, 6, false), Some(0x8000_5402));
    assert_eq!(header(Field::MplsLabel, 0, false), Some(0x8000_4404));
    assert_eq!(header(Field::Xreg1, 5, false), Some(0x8001_0208));
    // openvswitch/meta-flow.h of 3.7: NXOXM_ET_REG16 to NXOXM_ET_REG31 are 17 to 32,
    // NXOXM_ET_XXREG4 to NXOXM_ET_XXREG7 are 33 to 36, with 4 bytes of experimenter.
    for version in [0, 1, 4, 6] {
        assert_eq!(header(Field::Reg15, version, false), Some(0x0001_1e04));
        assert_eq!(header(Field::Reg16, version, false), Some(0xffff_2208));
        assert_eq!(header(Field::Reg31, version, true), Some(0xffff_410c));
        assert_eq!(header(Field::Xxreg3, version, false), Some(0x0001_e410));
        assert_eq!(header(Field::Xxreg4, version, false), Some(0xffff_4214));
        assert_eq!(header(Field::Xxreg7, version, true), Some(0xffff_4924));
    }
    assert_eq!(header(Field::Xreg8, 6, false), Some(0x8001_1008));
    assert_eq!(header(Field::Xreg15, 6, true), Some(0x8001_1f10));
    assert_eq!(header(Field::DlVlan, 4, false), None);
    assert_eq!(header(Field::VlanVid, 4, true), Some(0x8000_0d04));
}

#[test]
fn special_fields() {
    let mut k = Key::ZERO;
    Field::InPort.store(&mut k, 0xfffe);
    assert_eq!(k.in_port.get(), 0xffff_fffe);
    assert_eq!(Field::InPort.load(&k), 0xfffe);
    Field::InPort.store(&mut k, 7);
    assert_eq!(Field::InPortOxm.load(&k), 7);

    Field::DlVlan.store(&mut k, 9);
    assert_eq!(k.vlans[0].tci.get(), 0x1009);
    Field::VlanPcp.store(&mut k, 5);
    assert_eq!(k.vlans[0].tci.get(), 0xb009);
    assert_eq!(Field::VlanVid.load(&k), 0x1009);
    assert_eq!(Field::DlVlan.load(&k), 9);
    Field::DlVlan.clear(&mut k);
    assert_eq!(k.vlans[0].tci.get(), 0xb000);
    Field::VlanPcp.clear(&mut k);
    assert_eq!(k.vlans[0].tci.get(), 0);

    Field::IpDscp.store(&mut k, 0xff);
    assert_eq!(k.nw_tos, 0xfc);
    Field::IpEcn.store(&mut k, 1);
    assert_eq!(k.nw_tos, 0xfd);
    assert_eq!(Field::IpDscpShifted.load(&k), 0x3f);
    assert_eq!(Field::IpDscp.load(&k), 0xfc);

    Field::Reg0.store(&mut k, 0x1234_5678);
    Field::Reg1.store(&mut k, 0x9abc_def0);
    assert_eq!(Field::Xreg0.load(&k), 0x1234_5678_9abc_def0);
    Field::Xxreg0.store(&mut k, 1);
    assert_eq!(k.regs[3].get(), 1);
    Field::Xxreg7.store(&mut k, 0x1_0000_0002_0000_0003_0000_0004);
    assert_eq!([28, 29, 30, 31].map(|n| k.regs[n].get()), [1, 2, 3, 4]);
    assert_eq!(Field::Xreg15.load(&k), 0x3_0000_0004);
    Field::Reg16.store(&mut k, 5);
    assert_eq!(Field::Xreg8.load(&k), 0x5_0000_0000);
    assert_eq!(Field::register(31), Some(Field::Reg31));
    assert_eq!(Field::register(32), None);
}

#[test]
fn subfields_read_and_print_as_in_ovs() {
    for (text, shown) in [
        ("NXM_NX_REG0[0..15]", "NXM_NX_REG0[0..15]"),
        ("reg0[3]", "NXM_NX_REG0[3]"),
        ("reg0", "NXM_NX_REG0[]"),
        ("reg0[0..31]", "NXM_NX_REG0[]"),
        ("eth_src[]", "NXM_OF_ETH_SRC[]"),
        ("in_port_oxm[]", "OXM_OF_IN_PORT[]"),
        ("xreg0[0..31]", "OXM_OF_PKT_REG0[0..31]"),
        ("reg16", "NXOXM_ET_REG16[]"),
        ("NXOXM_ET_REG31[4..7]", "NXOXM_ET_REG31[4..7]"),
        ("xreg15", "OXM_OF_PKT_REG15[]"),
        ("xxreg7[64..127]", "NXOXM_ET_XXREG7[64..127]"),
        ("ip_dscp[]", "OXM_OF_IP_DSCP[]"),
    ] {
        assert_eq!(text.parse::<Subfield>().map(|s| s.to_string()), Ok(shown.to_string()));
    }
    for (text, error) in [
        ("NXM_NX_REG16[]", "NXM_NX_REG16[]: unknown field `NXM_NX_REG16'"),
        ("NXOXM_ET_REG32[]", "NXOXM_ET_REG32[]: unknown field `NXOXM_ET_REG32'"),
        ("xreg16[]", "xreg16[]: unknown field `xreg16'"),
        ("xxreg8[]", "xxreg8[]: unknown field `xxreg8'"),
        (
            "reg0[3..99]",
            "reg0[3..99]: ending bit 99 is not valid because field is only 32 bits wide",
        ),
        ("reg0[3", "reg0[3: syntax error expecting [] or [<bit>] or [<start>..<end>]"),
        ("reg0[x]", "reg0[x]: syntax error expecting [] or [<bit>] or [<start>..<end>]"),
        ("reg0[5..2]", "reg0[5..2]: starting bit 5 is after ending bit 2"),
    ] {
        assert_eq!(text.parse::<Subfield>().map_err(|e| e.to_string()), Err(error.to_string()));
    }
}

#[test]
fn unwildcarding_a_field_takes_its_prerequisites() {
    let mut m = Mask::WILDCARD;
    Field::TcpDst.unwildcard(&mut m);
    assert_eq!(m.0.tp_dst.get(), 0xffff);
    assert_eq!(m.0.tp_src.get(), 0);
    assert_eq!(m.0.nw_proto, 0xff);
    assert_eq!(m.0.dl_type.get(), 0xffff);
    let mut m = Mask::WILDCARD;
    Field::VlanPcp.unwildcard(&mut m);
    assert_eq!(m.0.vlans[0].tci.get(), 0xf000);
}

#[test]
fn prerequisites_of_matches() {
    let mut m = Match::ANY;
    assert!(!Field::TcpDst.prerequisite().holds_for_match(&m));
    m.set(Field::EthType, 0x800);
    assert!(Field::Ipv4Dst.prerequisite().holds_for_match(&m));
    assert!(!Field::TcpDst.prerequisite().holds_for_match(&m));
    m.set(Field::IpProto, 6);
    assert!(Field::TcpDst.prerequisite().holds_for_match(&m));
    m.set(Field::EthType, 0x86dd);
    m.set(Field::IpProto, 58);
    m.set(Field::Icmpv6Type, 135);
    // As OVS: the code has to be 0, but nobody has to say so.
    assert!(Field::NdTarget.prerequisite().holds_for_match(&m));
    m.set(Field::Icmpv6Code, 1);
    assert!(!Field::NdTarget.prerequisite().holds_for_match(&m));
    m.set(Field::Icmpv6Code, 0);
    assert!(Field::NdSll.prerequisite().holds_for_match(&m));
    assert!(!Field::NdTll.prerequisite().holds_for_match(&m));
}

proptest! {
    /// A store is read back, and touches nothing but the field's place (and, for the VLAN
    /// fields, the present bit).
    #[test]
    fn store_then_load(field in any_field(), value: u128, bytes in proptest::collection::vec(any::<u8>(), size_of::<Key>())) {
        let mut key = Key::ZERO;
        key.bytes_mut().copy_from_slice(&bytes);
        let before = key;
        let value = value & field.all_ones();
        prop_assume!(!(field == Field::InPort && port_to_of10(port_from_of10(value as u16)).is_none()));
        field.store(&mut key, value);
        prop_assert_eq!(field.load(&key), value);
        let mut place = Mask::WILDCARD;
        field.fill(&mut place.0);
        for ((a, b), m) in key.words().iter().zip(before.words()).zip(place.words()) {
            prop_assert_eq!((a ^ b) & !m, 0);
        }
        field.clear(&mut place.0);
        prop_assert!(place.is_wildcard());
    }

    #[test]
    fn subfield_store_then_load(field in any_field(), start in 0u16..128, bits in 1u16..129, value: u128) {
        let mut key = Key::ZERO;
        // A number of 32 bits has room for more states than there are.
        let is_known = field != Field::CtState || start + bits <= 8;
        if let Some(s) = Subfield::new(field, start, bits) && is_known && field != Field::IpDscp && field != Field::ArpOp {
            s.store(&mut key, value);
            prop_assert_eq!(s.load(&key), value & ones(bits as u8));
            prop_assert_eq!(s.to_string().parse::<Subfield>(), Ok(s));
        }
    }

    #[test]
    fn subfield_texts_never_panic(text in "\\PC{0,40}") {
        let _ = text.parse::<Subfield>();
    }
}

#[test]
fn ports_as_values() {
    let text = |field: Field, value, mask| field.format_value(value, mask, &|_| None);
    let all = u128::MAX;
    assert_eq!(text(Field::InPort, 3, all), "3");
    assert_eq!(text(Field::InPort, 0xfffe, all), "LOCAL");
    assert_eq!(text(Field::InPort, 0xc000, 0xc000), "49152/0xc000");
    assert_eq!(text(Field::InPortOxm, 3, all), "3");
    assert_eq!(text(Field::InPortOxm, 0x81d5_1e07, all), "ANY");
    assert_eq!(text(Field::InPortOxm, 2, 7), "2/0x7");
}

/// A packet that meets `need`.
fn packet_with(need: Prerequisite) -> Key {
    let text = match need {
        Prerequisite::None | Prerequisite::Ethernet => "dl_type=0x1234",
        Prerequisite::Vlan => "dl_type=0x1234,vlan_tci=0x1005",
        Prerequisite::Arp => "arp,arp_op=1",
        Prerequisite::Mpls => "mpls,mpls_bos=1",
        Prerequisite::Nsh => "dl_type=0x894f,nsh_mdtype=1",
        Prerequisite::Ipv4 | Prerequisite::IpAny | Prerequisite::Tcp => "tcp",
        Prerequisite::Ipv6 => "tcp6",
        Prerequisite::Ct => "tcp,ct_state=est|trk,ct_nw_proto=6",
        Prerequisite::Udp => "udp",
        Prerequisite::Sctp => "sctp",
        Prerequisite::Icmpv4 => "icmp,icmp_type=8",
        Prerequisite::Icmpv6 => "icmp6,icmp_type=129",
        Prerequisite::Nd | Prerequisite::NdSolicit => {
            "icmp6,icmp_type=135,nd_target=::1,nd_sll=00:00:00:00:00:01,nd_options_type=1"
        }
        Prerequisite::NdAdvert => {
            "icmp6,icmp_type=136,nd_target=::1,nd_tll=00:00:00:00:00:01,nd_options_type=2"
        }
    };
    let key = text::parse_exact_flow(text, &text::no_numbers).unwrap();
    assert!(need.holds(&key), "{text}");
    key
}

/// Every field of packets, each in a packet where it is not zero.
fn fields_in_packets() -> impl Iterator<Item = (Field, Key)> {
    Field::ALL.into_iter().filter(|f| f.prerequisite() != Prerequisite::None).map(|field| {
        let mut key = packet_with(field.prerequisite());
        if field.load(&key) == 0 {
            // VLAN ids bring their header along.
            let value = match field {
                Field::IpDscp => 4,
                Field::VlanTci | Field::VlanVid => 0x1001,
                _ => 1,
            };
            field.store(&mut key, value);
        }
        assert_ne!(field.load(&key), 0, "{}", field.name());
        (field, key)
    })
}

#[test]
fn frames_have_every_field() {
    for (field, key) in fields_in_packets().filter(|(f, _)| f.prerequisite().is_of_ethernet()) {
        let frame = crate::compose(&key, &crate::PAYLOAD);
        let read = crate::extract::key_of(frame.data(), 1);
        assert_eq!(field.load(&read), field.load(&key), "{}", field.name());
    }
}

#[test]
fn datapath_texts_have_every_field() {
    for (field, key) in fields_in_packets() {
        let mut mask = Mask::WILDCARD;
        Field::EthType.unwildcard(&mut mask);
        field.unwildcard(&mut mask);
        let key = key.masked(&mask);
        let shown = odp::format(&key, &mask, odp::Style::default(), &text::no_names);
        let (read, exact) = odp::parse(&shown, &text::no_numbers).unwrap();
        assert_eq!(field.load(&read), field.load(&key), "{}: {shown}", field.name());
        assert_eq!(field.load(&exact.0), field.load(&mask.0), "{}: {shown}", field.name());
    }
}

/// The fields that a match on a field with this prerequisite names, too.
fn fields_of(need: Prerequisite) -> &'static [Field] {
    match need {
        // A match on a part of a VLAN header demands the header.
        Prerequisite::None | Prerequisite::Ethernet | Prerequisite::Vlan => &[],
        Prerequisite::Arp
        | Prerequisite::Mpls
        | Prerequisite::Ipv4
        | Prerequisite::Ipv6
        | Prerequisite::IpAny => &[Field::EthType],
        // OVS writes contexts only with the type of metadata that has them.
        Prerequisite::Nsh => &[Field::EthType, Field::NshMdtype],
        Prerequisite::Tcp
        | Prerequisite::Udp
        | Prerequisite::Sctp
        | Prerequisite::Icmpv4
        | Prerequisite::Icmpv6 => &[Field::EthType, Field::IpProto],
        Prerequisite::Nd | Prerequisite::NdSolicit | Prerequisite::NdAdvert => {
            &[Field::EthType, Field::IpProto, Field::Icmpv6Type]
        }
        Prerequisite::Ct => &[Field::CtState],
    }
}

#[test]
fn openflow_texts_have_every_field() {
    let metadata = Field::ALL.into_iter().filter(|f| f.prerequisite() == Prerequisite::None);
    let metadata = metadata.map(|field| {
        let mut key = Key::ZERO;
        field.store(&mut key, 1);
        (field, key)
    });
    for (field, mut key) in metadata.chain(fields_in_packets()) {
        let mut matching = Match::ANY;
        // OVS writes fields of ERSPAN only with the version that has them.
        let version = match field {
            Field::TunErspanIdx => 1,
            Field::TunErspanDir | Field::TunErspanHwid => 2,
            _ => 0,
        };
        if version != 0 {
            Field::TunErspanVer.store(&mut key, version);
            matching.set(Field::TunErspanVer, version);
        }
        // OVS writes these by names that it does not read.
        if matches!(field, Field::TunGtpuFlags | Field::TunGtpuMsgtype) {
            continue;
        }
        for part in fields_of(field.prerequisite()).iter().chain([&field]) {
            matching.set(*part, part.load(&key));
        }
        let shown = text::format_match(&matching, &text::no_names);
        let read = text::parse_match(&shown, &text::no_numbers);
        assert_eq!(read, Ok(matching), "{}: {shown}", field.name());
    }
}
