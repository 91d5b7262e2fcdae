// SPDX-License-Identifier: Apache-2.0
//! All fragments of one packet take one way, whatever hash chooses it.

use super::*;
use datapath::hash::five_tuple;

const ALL_HASHES: [HashFields; 7] = [
    HashFields::EthSrc,
    HashFields::SymmetricL4,
    HashFields::SymmetricL3L4,
    HashFields::SymmetricL3L4Udp,
    HashFields::NwSrc,
    HashFields::NwDst,
    HashFields::SymmetricL3,
];

/// First and later fragments of packets that differ in addresses and ports.
fn fragments() -> Vec<(String, String)> {
    let mut all = Vec::new();
    for n in 1..=12 {
        let eth = format!("in_port=1,dl_src=50:54:00:00:00:{n:02x},dl_dst=50:54:00:00:00:07");
        for (proto, port) in [("tcp", "tcp"), ("udp", "udp"), ("sctp", "sctp")] {
            let ports = format!("{port}_src={},{port}_dst=53", 1000 + n);
            let v4 = format!("{eth},{proto},nw_src=10.0.0.{n},nw_dst=10.0.1.1");
            let v6 = format!("ipv6_src=fc00::{n:x},ipv6_dst=fc00:1::1");
            all.push((format!("{v4},nw_frag=first,{ports}"), format!("{v4},nw_frag=later")));
            all.push((
                format!("{eth},{proto}6,{v6},nw_frag=first,{ports}"),
                format!("{eth},ipv6,nw_proto=44,{v6},nw_frag=later"),
            ));
        }
    }
    all
}

/// Every pair of fragments gets equal actions; packets that differ do not all get the same.
fn check(w: &World, what: &str) {
    let mut ways = std::collections::BTreeSet::new();
    for (first, later) in fragments() {
        let way = w.dp(&first);
        assert_eq!(way, w.dp(&later), "{what}: {first}");
        ways.insert(way);
    }
    // `nw_dst` is the same in all packets of one version.
    assert!(ways.len() >= 2 || what.contains("NwDst"), "{what}: {ways:?}");
}

#[test]
fn of_multipath_and_bundle() {
    for fields in ALL_HASHES {
        let mut w = World::new(6);
        let dst = sub("NXM_NX_REG0[0..15]");
        let (algorithm, max_link) = (MultipathAlgorithm::ModuloN, 3);
        let multipath = Multipath { fields, basis: 0, algorithm, max_link, arg: 0, dst };
        w.rule("", [Action::Multipath(Box::new(multipath)), resubmit(1)]);
        for link in 0..4 {
            w.rule(&format!("table=1,reg0={link}"), [out(link + 2)]);
        }
        check(&w, &format!("multipath {fields:?}"));

        w.clear_rules();
        let members = vec![PortNo(2), PortNo(3), PortNo(4), PortNo(5)];
        let algorithm = BundleAlgorithm::Hrw;
        let bundle = Bundle { fields, basis: 0, algorithm, members, dst: None };
        w.rule("", [Action::Bundle(Box::new(bundle))]);
        check(&w, &format!("bundle {fields:?}"));
    }
}

#[test]
fn of_select_groups_that_hash_fields() {
    let any = PortNo::NONE;
    let ports = [
        Field::TcpSrc,
        Field::TcpDst,
        Field::UdpSrc,
        Field::UdpDst,
        Field::SctpSrc,
        Field::TcpFlags,
        Field::IpProto,
        Field::IpFrag,
        Field::Ipv4Src,
        Field::Ipv6Src,
    ];
    let whole = |f: &Field| (*f, f.all_ones());
    for fields in [Vec::new(), ports.iter().map(whole).collect()] {
        let mut w = World::new(6);
        let what = format!("{fields:?}");
        let buckets = (2..=5).map(|port| (100, any, vec![out(port)])).collect();
        w.group(1, GroupKind::Select, Selection::Hash { basis: 0, fields }, buckets);
        w.rule("", [Action::Group(1)]);
        check(&w, &what);
    }
}

#[test]
fn of_the_hash_of_the_datapath() {
    for (first, later) in fragments() {
        let (first, later) = (key(&first), key(&later));
        assert_eq!(five_tuple(&first, true, 0), five_tuple(&later, true, 0));
        assert_eq!(five_tuple(&first, false, 7), five_tuple(&later, false, 7));
    }
}

/// Fields that each hash reads in a packet of each protocol: ovs-actions(7), `bundle` and
/// `multipath`.
#[test]
fn hashes_look_at_the_fields_that_the_manual_names() {
    let eth = "dl_src=50:54:00:00:00:05,dl_dst=50:54:00:00:00:07";
    let ip = "nw_src=10.0.0.1,nw_dst=10.0.0.2";
    let ports = "tp_src=1000,tp_dst=80";
    let l4 = format!("vlan_tci=0x0000/0x1fff,{eth}");
    let cases = [
        (HashFields::EthSrc, "ip", "dl_src=50:54:00:00:00:05,nw_frag=no".to_string()),
        (HashFields::SymmetricL4, "tcp", format!("{l4},{ip},nw_frag=no,{ports}")),
        (HashFields::SymmetricL4, "sctp", format!("{l4},{ip},nw_frag=no,{ports}")),
        (HashFields::SymmetricL4, "udp", format!("{l4},{ip},nw_frag=no")),
        (HashFields::SymmetricL3L4, "tcp", format!("{ip},nw_frag=no,{ports}")),
        (HashFields::SymmetricL3L4, "udp", format!("{ip},nw_frag=no")),
        (HashFields::SymmetricL3L4Udp, "udp", format!("{ip},nw_frag=no,{ports}")),
        (HashFields::SymmetricL3L4Udp, "sctp", format!("{ip},nw_frag=no,{ports}")),
        (HashFields::SymmetricL3, "ip", format!("{ip},nw_frag=no")),
        (HashFields::NwSrc, "ip", "nw_src=10.0.0.1,nw_frag=no".to_string()),
        (HashFields::NwDst, "ip", "nw_dst=10.0.0.2,nw_frag=no".to_string()),
    ];
    for (fields, proto, expected) in cases {
        let mut w = World::new(3);
        let dst = sub("NXM_NX_REG0[0..15]");
        let algorithm = MultipathAlgorithm::ModuloN;
        let multipath = Multipath { fields, basis: 0, algorithm, max_link: 3, arg: 0, dst };
        w.rule("", [Action::Multipath(Box::new(multipath)), out(2)]);
        let name = if proto == "ip" { "tcp" } else { proto };
        let packet = format!("in_port=1,{name},{eth},{ip},{ports}");
        let expected = format!("recirc_id=0,eth,{proto},in_port=1,{expected}");
        assert_eq!(w.mega(&packet), expected, "{fields:?}");
        // No fragment's ports are looked at.
        for fragment in ["first", "later"] {
            let packet = packet.replace(ports, &format!("nw_frag={fragment}"));
            let t = w.translate(&key(&packet));
            assert_eq!(t.mask.0.tp_src.get(), 0, "{fields:?} {fragment}");
        }
    }
}
