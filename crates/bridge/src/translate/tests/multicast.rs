// SPDX-License-Identifier: Apache-2.0
//! Multicast snooping. Most of its behaviour is compared with OVS's, by `oracle::multicast`.

use super::*;
use crate::multicast_table::{MulticastTable, SnoopingRole};
use protocols::membership::{GroupProtocol, Membership};

/// A bridge that snoops, with ports 1 to 4, and a member of 239.1.1.1 at port 2.
fn snooping() -> (World, Arc<MulticastTable>) {
    let mut w = World::new(4);
    w.rule("", actions("NORMAL"));
    let table = Arc::new(MulticastTable::new(BridgeIndex(0)));
    w.br0().multicast = Some(Arc::clone(&table));
    let group = std::net::Ipv4Addr::new(239, 1, 1, 1).to_ipv6_mapped();
    learn(&table, 2, Membership::Join(group, GroupProtocol::IgmpV2));
    (w, table)
}

fn learn(table: &MulticastTable, port: u32, message: Membership) {
    table.learn(0, PortNo(port), SnoopingRole::default(), &[message], Millis(0));
}

fn udp(group: &str) -> String {
    format!("in_port=1,udp,dl_dst=01:00:5e:01:01:01,nw_dst={group}")
}

#[test]
fn a_group_is_in_the_megaflow() {
    let (w, _) = snooping();
    assert_eq!(w.dp(&udp("239.1.1.1")), "2");
    assert_eq!(w.dp(&udp("239.1.1.2")), "2,3,4");
    assert_eq!(w.translate(&key(&udp("239.1.1.1"))).mask.0.nw_dst.get(), u32::MAX);
    assert_eq!(w.translate(&key(&udp("239.1.1.1"))).slow_path, None);
}

#[test]
fn a_port_with_several_reasons_gets_a_packet_once() {
    let (mut w, table) = snooping();
    learn(&table, 2, Membership::Query);
    learn(&table, 3, Membership::Query);
    w.bundle(3, |bundle| bundle.snooping.floods = true);
    assert_eq!(w.dp(&udp("239.1.1.1")), "2,3");
    w.br0().config.unregistered_to_routers = true;
    assert_eq!(w.dp(&udp("239.1.1.2")), "2,3");
}

#[test]
fn messages_have_a_translation_each_and_others_have_none() {
    let (w, table) = snooping();
    learn(&table, 3, Membership::Query);
    let mut report = key("in_port=1,ip,nw_proto=2,dl_dst=01:00:5e:01:01:01,nw_dst=239.1.1.1");
    report.tp_src.set(22);
    let translation = w.translate(&report);
    assert_eq!(translation.slow_path_reason(), Some("action"));
    let installed = datapath::text::format_plain(&translation.installed_actions());
    assert!(installed.contains("slow_path(action)"), "{installed}");
    // The megaflow has all types of messages.
    assert_eq!((translation.mask.0.nw_proto, translation.mask.0.tp_src.get()), (u8::MAX, 0));
    let v6 = |kind: u8| {
        let flow =
            format!("in_port=1,icmp6,icmp_type={kind},dl_dst=33:33:00:00:00:07,ipv6_dst=ff05::7");
        w.translate(&key(&flow))
    };
    for kind in [130, 131, 132, 143] {
        assert_eq!(v6(kind).slow_path_reason(), Some("action"), "{kind}");
    }
    let solicitation = v6(135);
    assert_eq!(solicitation.slow_path_reason(), None);
    assert_eq!(solicitation.mask.0.tp_src.get(), 0xff, "its type might have been a report");
}
