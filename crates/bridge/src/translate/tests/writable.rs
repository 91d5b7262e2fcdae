// SPDX-License-Identifier: Apache-2.0
//! A set of any writable field reaches the packet, and the text of the datapath's actions.

use super::*;
use datapath::Action as Dp;
use flow::field::Prerequisite;

/// A packet that has the fields which need `need`.
fn packet_with(need: Prerequisite) -> &'static str {
    match need {
        Prerequisite::None | Prerequisite::Ethernet => "in_port=1,dl_type=0x1234",
        Prerequisite::Vlan => "in_port=1,dl_type=0x1234,vlan_tci=0x1005",
        Prerequisite::Arp => "in_port=1,arp,arp_op=1,arp_spa=10.0.0.1",
        Prerequisite::Mpls => "in_port=1,dl_type=0x8847,mpls_label=7,mpls_bos=1,mpls_ttl=9",
        Prerequisite::Nsh => "in_port=1,dl_type=0x894f,nsh_mdtype=1,nsh_ttl=9",
        Prerequisite::Ipv4 | Prerequisite::IpAny => "in_port=1,tcp,nw_src=10.0.0.1,nw_ttl=9",
        Prerequisite::Ipv6 => "in_port=1,tcp6,nw_ttl=9",
        Prerequisite::Tcp => "in_port=1,tcp,tp_src=9",
        Prerequisite::Udp => "in_port=1,udp,tp_src=9",
        Prerequisite::Sctp => "in_port=1,sctp,tp_src=9",
        Prerequisite::Icmpv4 => "in_port=1,icmp,icmp_type=8",
        Prerequisite::Icmpv6 => "in_port=1,icmp6,icmp_type=129",
        Prerequisite::Nd | Prerequisite::NdSolicit => {
            "in_port=1,icmp6,icmp_type=135,icmp_code=0,nd_target=fc00::1"
        }
        Prerequisite::Ct => "in_port=1,tcp,ct_state=est|trk",
        Prerequisite::NdAdvert => "in_port=1,icmp6,icmp_type=136,icmp_code=0,nd_target=fc00::1",
    }
}

/// Fields that no set of the datapath sets: they are the pipeline's own, or the connection's.
fn is_of_pipeline(field: Field) -> bool {
    field.is_register()
        || field.is_of_tunnel()
        || field.is_of_connection()
        || matches!(field, Field::Metadata | Field::InPort | Field::InPortOxm)
}

#[test]
fn sets_of_all_writable_fields_are_committed() {
    for field in Field::ALL.into_iter().filter(|f| f.writable()) {
        let text = packet_with(field.prerequisite());
        let packet = key(text);
        assert!(field.prerequisite().holds(&packet), "{}: {text}", field.name());
        // A value that the packet does not have, with the low bit of the field set. VLAN ids bring
        // their header along.
        let low = match field {
            Field::IpDscp => 4,
            Field::VlanVid | Field::VlanTci => 0x1001,
            _ => 1,
        };
        let value = if field.load(&packet) == low { low << 1 } else { low };
        let mut w = World::new(3);
        w.rule("", [set(field, value), out(2)]);
        let actions = w.translate(&packet).actions;
        let is_set = |a: &Dp| matches!(a, Dp::Set(_) | Dp::PushVlan { .. } | Dp::PopVlan);
        let changes = actions.iter().filter(|a| is_set(a)).count();
        assert_eq!(changes > 0, !is_of_pipeline(field), "{}: {actions:?}", field.name());
        let shown = datapath::text::format_plain(&actions);
        let read = datapath::text::parse(&shown, &|_| None);
        assert_eq!(read.as_deref(), Ok(&actions[..]), "{shown}");
    }
}
