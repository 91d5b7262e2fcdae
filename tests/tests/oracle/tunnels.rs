// SPDX-License-Identifier: Apache-2.0
//! Tunnels: options and ports, packets out of tunnels and into them, routes and neighbours.
//!
//! `br0` is the underlay in most scenarios, and `over` the bridge with the tunnels.

/// An overlay bridge, an address of the underlay and a known neighbour.
macro_rules! underlay {
    ($script:literal) => {
        concat!(
            r#"
        vsctl set bridge br0 other_config:hwaddr=aa:55:aa:55:00:00
        vsctl add-br over -- set bridge over datapath_type=dummy fail_mode=secure other_config:hwaddr=aa:66:aa:66:00:00
        appctl netdev-dummy/ip4addr br0 172.31.1.1/24
        appctl netdev-dummy/ip6addr br0 2001:db8:1::1/64
        appctl ovs/route/add 172.31.1.0/24 br0
        appctl ovs/route/add 2001:db8:1::/64 br0
        appctl tnl/neigh/set br0 172.31.1.2 f8:bc:12:44:34:b6
        appctl tnl/neigh/set br0 2001:db8:1::2 f8:bc:12:44:34:c6
        ofctl add-flow br0 in_port=LOCAL,actions=1
        ofctl add-flow br0 in_port=1,actions=LOCAL
        "#,
            $script
        )
    };
}

scenarios! {
    options_and_their_texts: r#"
        vsctl add-port br0 a -- set interface a type=gre options:remote_ip=10.1.1.1 ofport_request=11
        vsctl add-port br0 b -- set interface b type=gre options:remote_ip=10.1.1.2 options:key=5 options:csum=true options:seq=true options:tos=inherit options:ttl=inherit ofport_request=12
        vsctl add-port br0 c -- set interface c type=vxlan options:remote_ip=flow options:in_key=7 options:out_key=flow options:dst_port=8472 options:tos=0x20 options:ttl=9 ofport_request=13
        vsctl add-port br0 d -- set interface d type=geneve options:remote_ip=flow options:local_ip=flow options:key=flow options:df_default=false ofport_request=14
        vsctl add-port br0 e -- set interface e type=erspan options:remote_ip=10.1.1.1 options:key=1 options:erspan_ver=1 options:erspan_idx=0x1f ofport_request=15
        vsctl add-port br0 f -- set interface f type=ip6erspan options:remote_ip=fe80::1 options:key=1 options:erspan_ver=2 options:erspan_dir=1 options:erspan_hwid=flow ofport_request=16
        vsctl add-port br0 g -- set interface g type=gtpu options:remote_ip=10.1.1.1 options:key=1 ofport_request=17
        vsctl add-port br0 h -- set interface h type=ip6gre options:remote_ip=fe80::1 options:egress_pkt_mark=77 ofport_request=18
        vsctl add-port br0 i -- set interface i type=gre options:remote_ip=10.1.1.9 options:packet_type=legacy_l3 ofport_request=19
        vsctl add-port br0 j -- set interface j type=gre options:remote_ip=10.1.1.10 options:packet_type=ptap ofport_request=20
        appctl dpif/show
        appctl ofproto/list-tunnels | sort
        appctl tnl/ports/show | sort
        vsctl set interface a options:remote_ip=10.1.1.77 options:ttl=3
        appctl dpif/show
        vsctl set interface c options:dst_port=8473
        appctl dpif/show
        appctl tnl/ports/show | sort
        vsctl set interface a type=vxlan
        appctl dpif/show
        vsctl del-port b -- del-port i -- del-port j
        appctl dpif/show
        appctl tnl/ports/show | sort
        vsctl add-port br0 k -- set interface k type=bareudp options:remote_ip=10.1.1.10 options:payload_type=mpls options:dst_port=6635 ofport_request=21
        appctl dpif/show
    "#;
    options_that_make_no_port: r#"
        vsctl add-port br0 a -- set interface a type=gre
        vsctl get interface a error
        vsctl add-port br0 b -- set interface b type=vxlan options:remote_ip=224.0.0.1
        vsctl get interface b error
        vsctl add-port br0 c -- set interface c type=gre options:remote_ip=1.1.1.1 options:local_ip=flow
        vsctl get interface c error
        vsctl add-port br0 d -- set interface d type=gre options:remote_ip=1.1.1.1 options:local_ip=fe80::1
        vsctl get interface d error
        vsctl add-port br0 e -- set interface e type=gtpu options:remote_ip=1.1.1.1 options:packet_type=legacy_l2
        vsctl get interface e error
        vsctl add-port br0 f -- set interface f type=erspan options:remote_ip=1.1.1.1 options:erspan_ver=3
        vsctl get interface f error
        vsctl add-port br0 g -- set interface g type=vxlan options:remote_ip=1.1.1.1 options:packet_type=legacy_l3
        vsctl get interface g error
        vsctl get interface a ofport
        appctl dpif/show
    "#;
    received_packets_find_their_port: r#"
        appctl dpif/set-dp-features br0 tnl_push_pop false
        vsctl add-port br0 a -- set interface a type=gre options:remote_ip=10.1.1.1 options:key=5 ofport_request=11
        vsctl add-port br0 b -- set interface b type=gre options:remote_ip=10.1.1.1 options:local_ip=10.1.1.9 options:key=5 ofport_request=12
        vsctl add-port br0 c -- set interface c type=gre options:remote_ip=flow options:key=5 ofport_request=13
        vsctl add-port br0 d -- set interface d type=gre options:remote_ip=10.1.1.1 options:key=flow ofport_request=14
        vsctl add-port br0 e -- set interface e type=gre options:remote_ip=flow options:local_ip=flow options:key=flow ofport_request=15
        ofctl add-flow br0 actions=IN_PORT
        ofctl add-flow br0 priority=40000,in_port=13,actions=2
        ofctl add-flow br0 priority=40000,in_port=15,actions=2
        appctl dpif/show
        appctl ofproto/trace ovs-dummy 'tunnel(tun_id=0x5,src=10.1.1.1,dst=10.1.1.9,ttl=64,flags(key)),in_port(5),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),eth_type(0x0800),ipv4(src=192.168.0.1,dst=192.168.0.2,proto=6,tos=0,ttl=64,frag=no),tcp(src=8,dst=9)'
        appctl ofproto/trace ovs-dummy 'tunnel(tun_id=0x5,src=10.1.1.1,dst=10.1.1.8,ttl=64,flags(key)),in_port(5),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),eth_type(0x0800),ipv4(src=192.168.0.1,dst=192.168.0.2,proto=6,tos=0,ttl=64,frag=no),tcp(src=8,dst=9)'
        appctl ofproto/trace ovs-dummy 'tunnel(tun_id=0x5,src=10.1.1.3,dst=10.1.1.8,ttl=64,flags(key)),in_port(5),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),eth_type(0x0800),ipv4(src=192.168.0.1,dst=192.168.0.2,proto=6,tos=0,ttl=64,frag=no),tcp(src=8,dst=9)'
        appctl ofproto/trace ovs-dummy 'tunnel(tun_id=0x6,src=10.1.1.1,dst=10.1.1.8,ttl=64,flags(key)),in_port(5),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),eth_type(0x0800),ipv4(src=192.168.0.1,dst=192.168.0.2,proto=6,tos=0,ttl=64,frag=no),tcp(src=8,dst=9)'
        appctl ofproto/trace ovs-dummy 'tunnel(tun_id=0x6,src=10.1.1.3,dst=10.1.1.8,ttl=64,flags(key)),in_port(5),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),eth_type(0x0800),ipv4(src=192.168.0.1,dst=192.168.0.2,proto=6,tos=0,ttl=64,frag=no),tcp(src=8,dst=9)'
        vsctl del-port e
        appctl ofproto/trace ovs-dummy 'tunnel(tun_id=0x6,src=10.1.1.3,dst=10.1.1.8,ttl=64,flags(key)),in_port(5),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),eth_type(0x0800),ipv4(src=192.168.0.1,dst=192.168.0.2,proto=6,tos=0,ttl=64,frag=no),tcp(src=8,dst=9)'
    "#;
    congestion_marks: r#"
        appctl dpif/set-dp-features br0 tnl_push_pop false
        vsctl add-port br0 a -- set interface a type=gre options:remote_ip=10.1.1.1 ofport_request=11
        ofctl add-flow br0 in_port=11,actions=2
        ofctl add-flow br0 in_port=1,actions=11
        for inner in 0 1 2 3; do for outer in 0 1 2 3; do appctl ofproto/trace ovs-dummy "tunnel(src=10.1.1.1,dst=10.1.1.9,tos=$outer,ttl=64,flags()),in_port(5),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),eth_type(0x0800),ipv4(src=192.168.0.1,dst=192.168.0.2,proto=6,tos=$inner,ttl=64,frag=no),tcp(src=8,dst=9)" | tail -2; done; done
        for inner in 0 1 2 3 0x41; do appctl ofproto/trace ovs-dummy "in_port(1),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),eth_type(0x0800),ipv4(src=192.168.0.1,dst=192.168.0.2,proto=6,tos=$inner,ttl=64,frag=no),tcp(src=8,dst=9)" | tail -2; done
        vsctl set interface a options:tos=inherit options:ttl=inherit
        appctl ofproto/trace ovs-dummy "in_port(1),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),eth_type(0x0800),ipv4(src=192.168.0.1,dst=192.168.0.2,proto=6,tos=0x41,ttl=3,frag=no),tcp(src=8,dst=9)" | tail -2
        appctl ofproto/trace ovs-dummy "in_port(1),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),eth_type(0x0806),arp(sip=1.2.3.4,tip=5.6.7.8,op=1,sha=00:0f:10:11:12:13,tha=00:14:15:16:17:18)" | tail -2
        appctl ofproto/trace ovs-dummy "in_port(1),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),eth_type(0x86dd),ipv6(src=2001::1,dst=2001::2,label=0,proto=6,tclass=0x43,hlimit=3,frag=no),tcp(src=8,dst=9)" | tail -2
    "#;
    keys_of_the_flow: r#"
        appctl dpif/set-dp-features br0 tnl_push_pop false
        vsctl add-port br0 a -- set interface a type=gre options:remote_ip=flow options:key=flow ofport_request=11
        vsctl add-port br0 b -- set interface b type=gre options:remote_ip=10.1.1.2 options:out_key=3 options:local_ip=10.1.1.9 ofport_request=12
        ofctl add-flow br0 'in_port=1,actions=set_tunnel:9,set_field:10.1.1.7->tun_dst,11,set_tunnel:10,set_field:10.1.1.3->tun_src,11,12,2'
        ofctl add-flow br0 'in_port=11,tun_id=9,actions=3'
        ofctl add-flow br0 'in_port=11,actions=4'
        trace in_port=1
        appctl ofproto/trace ovs-dummy 'tunnel(tun_id=0x9,src=10.1.1.7,dst=10.1.1.9,ttl=64,flags(key)),in_port(5),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),eth_type(0x0800),ipv4(src=192.168.0.1,dst=192.168.0.2,proto=6,tos=0,ttl=64,frag=no),tcp(src=8,dst=9)'
        appctl ofproto/trace ovs-dummy 'tunnel(tun_id=0x8,src=10.1.1.7,dst=10.1.1.9,ttl=64,flags(key)),in_port(5),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),eth_type(0x0800),ipv4(src=192.168.0.1,dst=192.168.0.2,proto=6,tos=0,ttl=64,frag=no),tcp(src=8,dst=9)'
    "#;
    pushed_headers: underlay!(r#"
        vsctl add-port over a -- set interface a type=vxlan options:remote_ip=172.31.1.2 options:key=123 ofport_request=1
        vsctl add-port over b -- set interface b type=geneve options:remote_ip=172.31.1.2 options:key=123 options:csum=true options:ttl=7 options:tos=0x20 options:df_default=false ofport_request=2
        vsctl add-port over c -- set interface c type=gre options:remote_ip=172.31.1.2 options:key=456 options:csum=true ofport_request=3
        vsctl add-port over d -- set interface d type=gre options:remote_ip=172.31.1.2 options:in_key=8 options:seq=true ofport_request=4
        vsctl add-port over e -- set interface e type=erspan options:remote_ip=172.31.1.2 options:key=12 options:erspan_ver=1 options:erspan_idx=3 ofport_request=5
        vsctl add-port over f -- set interface f type=erspan options:remote_ip=172.31.1.2 options:key=13 options:erspan_ver=2 options:erspan_dir=1 options:erspan_hwid=7 ofport_request=6
        vsctl add-port over g -- set interface g type=gtpu options:remote_ip=172.31.1.2 options:key=123 ofport_request=7
        vsctl add-port over h -- set interface h type=gre options:remote_ip=172.31.1.2 options:key=9 options:packet_type=legacy_l3 ofport_request=8
        vsctl add-port over i -- set interface i type=vxlan options:remote_ip=2001:db8:1::2 options:key=5 ofport_request=9
        vsctl add-port over j -- set interface j type=ip6gre options:remote_ip=2001:db8:1::2 options:key=6 ofport_request=10
        vsctl add-port over k -- set interface k type=ip6erspan options:remote_ip=2001:db8:1::2 options:key=6 options:erspan_ver=1 options:erspan_idx=1 ofport_request=11
        vsctl add-port over l -- set interface l type=geneve options:remote_ip=2001:db8:1::2 options:key=6 ofport_request=12
        appctl dpif/show
        for n in 1 2 3 4 5 6 7 8 9 10 11 12; do ofctl del-flows over; ofctl add-flow over actions=output:$n; ovs-appctl ofproto/trace over in_port=LOCAL,ip,nw_src=10.0.0.1,nw_dst=10.0.0.2,nw_tos=4,nw_ttl=64; done
        ofctl del-flows over
        ofctl add-flow over actions=1,3,LOCAL
        ovs-appctl ofproto/trace over in_port=20
        ovs-appctl ofproto/trace --names over in_port=20
    "#);
    unknown_neighbours_and_routes: underlay!(r#"
        vsctl add-port over a -- set interface a type=vxlan options:remote_ip=172.31.1.3 options:key=1 ofport_request=1
        vsctl add-port over b -- set interface b type=vxlan options:remote_ip=192.0.2.1 options:key=1 ofport_request=2
        vsctl add-port over c -- set interface c type=vxlan options:remote_ip=2001:db8:1::7 options:key=1 ofport_request=3
        ofctl add-flow over in_port=LOCAL,actions=1
        ovs-appctl ofproto/trace over in_port=LOCAL
        ofctl mod-flows over in_port=LOCAL,actions=2
        ovs-appctl ofproto/trace over in_port=LOCAL
        ofctl mod-flows over in_port=LOCAL,actions=3
        ovs-appctl ofproto/trace over in_port=LOCAL
        appctl ovs/route/add 192.0.2.0/24 br0 172.31.1.2
        ofctl mod-flows over in_port=LOCAL,actions=2
        ovs-appctl ofproto/trace over in_port=LOCAL
    "#);
    received_at_an_address: underlay!(r#"
        vsctl add-port over a -- set interface a type=vxlan options:remote_ip=172.31.1.2 options:key=123 ofport_request=1
        vsctl add-port over b -- set interface b type=gre options:remote_ip=172.31.1.2 options:key=456 ofport_request=2
        appctl tnl/ports/show | sort
        appctl ofproto/trace ovs-dummy 'in_port(1),eth(src=f8:bc:12:44:34:b6,dst=aa:55:aa:55:00:00),eth_type(0x0800),ipv4(src=172.31.1.2,dst=172.31.1.1,proto=17,tos=0,ttl=64,frag=no),udp(src=51283,dst=4789)'
        appctl ofproto/trace ovs-dummy 'in_port(1),eth(src=f8:bc:12:44:34:b6,dst=aa:55:aa:55:00:00),eth_type(0x0800),ipv4(src=172.31.1.2,dst=172.31.1.1,proto=47,tos=0,ttl=64,frag=no)'
        appctl ofproto/trace ovs-dummy 'in_port(1),eth(src=f8:bc:12:44:34:b6,dst=aa:55:aa:55:00:00),eth_type(0x0800),ipv4(src=172.31.1.2,dst=172.31.1.1,proto=17,tos=0,ttl=64,frag=no),udp(src=51283,dst=4790)'
        appctl ofproto/trace ovs-dummy 'in_port(1),eth(src=f8:bc:12:44:34:b6,dst=aa:55:aa:55:00:00),eth_type(0x86dd),ipv6(src=2001:db8:1::2,dst=2001:db8:1::1,label=0,proto=17,tclass=0,hlimit=64,frag=no),udp(src=51283,dst=4789)'
        appctl ofproto/trace ovs-dummy 'in_port(1),eth(src=f8:bc:12:44:34:b6,dst=aa:55:aa:55:00:01),eth_type(0x0800),ipv4(src=172.31.1.2,dst=172.31.1.1,proto=17,tos=0,ttl=64,frag=no),udp(src=51283,dst=4789)'
    "#);
    learned_neighbours: underlay!(r#"
        vsctl add-port over a -- set interface a type=vxlan options:remote_ip=172.31.1.2 options:key=123 ofport_request=1
        appctl tnl/neigh/flush
        receive p1 'in_port(1),eth(src=f8:bc:12:44:34:01,dst=ff:ff:ff:ff:ff:ff),eth_type(0x0806),arp(sip=172.31.1.7,tip=172.31.1.1,op=2,sha=f8:bc:12:44:34:01,tha=00:00:00:00:00:00)'
        receive p1 'in_port(1),eth(src=f8:bc:12:44:34:02,dst=ff:ff:ff:ff:ff:ff),eth_type(0x0806),arp(sip=172.31.1.8,tip=172.31.1.9,op=2,sha=f8:bc:12:44:34:02,tha=00:00:00:00:00:00)'
        receive p1 'in_port(1),eth(src=f8:bc:12:44:34:03,dst=ff:ff:ff:ff:ff:ff),eth_type(0x0806),arp(sip=172.31.1.9,tip=172.31.1.9,op=1,sha=f8:bc:12:44:34:03,tha=00:00:00:00:00:00)'
        receive p1 'in_port(1),eth(src=f8:bc:12:44:34:04,dst=aa:55:aa:55:00:00),eth_type(0x0800),ipv4(src=172.31.1.10,dst=172.31.1.1,proto=17,tos=0,ttl=64,frag=no),udp(src=51283,dst=4789)'
        appctl revalidator/wait
        appctl tnl/neigh/show | tail -n +3 | sort
        appctl tnl/neigh/flush
        appctl tnl/neigh/show | tail -n +3
    "#);
    patches_to_a_bridge_with_tunnels: underlay!(r#"
        vsctl add-port over a -- set interface a type=vxlan options:remote_ip=172.31.1.2 options:key=123 ofport_request=1
        vsctl add-br third -- set bridge third datapath_type=dummy
        vsctl add-port third q1 -- set interface q1 type=patch options:peer=q2 ofport_request=5 -- add-port over q2 -- set interface q2 type=patch options:peer=q1 ofport_request=6
        ofctl add-flow third actions=5
        ofctl add-flow over in_port=6,actions=1
        ovs-appctl ofproto/trace third in_port=LOCAL
    "#);
    tunnels_that_lead_back: underlay!(r#"
        vsctl add-port over a -- set interface a type=vxlan options:remote_ip=172.31.1.2 options:key=123 ofport_request=1
        vsctl add-port br0 q1 -- set interface q1 type=patch options:peer=q2 ofport_request=15 -- add-port over q2 -- set interface q2 type=patch options:peer=q1 ofport_request=6
        ofctl add-flow over in_port=LOCAL,actions=1
        ofctl add-flow over in_port=6,actions=1
        ofctl add-flow br0 priority=99,in_port=LOCAL,actions=15
        ovs-appctl ofproto/trace over in_port=LOCAL | tail -2
    "#);
    bytes_after_the_outer_packet: underlay!(r#"
        vsctl add-port over a -- set interface a type=erspan options:remote_ip=172.31.1.2 options:key=123 options:erspan_ver=1 options:erspan_idx=3 ofport_request=1
        vsctl add-port over b -- set interface b type=gre options:remote_ip=172.31.1.2 options:key=7 options:packet_type=legacy_l3 ofport_request=2
        vsctl add-port over c -- set interface c type=vxlan options:remote_ip=172.31.1.2 options:key=5 ofport_request=3
        vsctl add-port over x -- set interface x type=dummy ofport_request=9 options:tx_pcap=x.pcap
        ofctl add-flow over actions=9
        receive p1 aa55aa550000f8bc124434b608004500007e79464000402f66c9ac1f0102ac1f0101100088be000000011000007b00000003fe71d883724fbeb6f4e1494a080045000054ba200000400184861e0000011e00000200004227e75400030af3195500000000f265010000000000101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f3031323334353637
        receive p1 aa55aa550000f8bc124434b608004500007079464000402f66d7ac1f0102ac1f0101200008000000000745000054ba200000400184861e0000011e00000200004227e75400030af3195500000000f265010000000000101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f3031323334353637000000000000
        receive p1 aa55aa550000f8bc124434b608004500008679464000401166dfac1f0102ac1f0101c00012b5007200000800000000000500fe71d883724fbeb6f4e1494a080045000054ba200000400184861e0000011e00000200004227e75400030af3195500000000f265010000000000101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f3031323334353637eeeeeeeeee
        appctl revalidator/wait
        ovs-pcap x.pcap
        ofctl dump-ports over 1
        ofctl dump-ports over 2
        ofctl dump-ports over 3
    "#);
    masks_of_erspan_fields: r#"
        appctl dpif/set-dp-features br0 tnl_push_pop false
        vsctl add-port br0 e -- set interface e type=erspan options:remote_ip=10.1.1.2 options:key=2 options:erspan_ver=2 options:erspan_dir=1 options:erspan_hwid=7 ofport_request=11
        ofctl add-flow br0 in_port=11,tun_erspan_ver=2,tun_erspan_dir=1,tun_erspan_hwid=0xf/0x1,actions=2
        ofctl dump-flows br0
        for hwid in 0x7 0x6 0x17; do for dir in 0 1; do appctl ofproto/trace ovs-dummy "tunnel(tun_id=0x2,src=10.1.1.2,dst=10.1.1.9,ttl=64,erspan(ver=2,dir=$dir,hwid=$hwid),flags(df|key)),in_port(5),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),eth_type(0x0800),ipv4(frag=no)" | tail -1; done; done
        ofctl del-flows br0 tun_erspan_ver=2,tun_erspan_dir=1,tun_erspan_hwid=0xf/0x1
        ofctl dump-flows br0
    "#;
    an_error_quotes_the_whole_flow: r#"
        appctl dpctl/add-flow "tunnel(dst=10.1.1.1$(yes ,dst=10.1.1.1 | head -n 8192 | tr -d '\n'))" 2 2>&1 | sed 's/,dst=10.1.1.1//g'
    "#;
    a_destination_that_no_flow_sets: underlay!(r#"
        vsctl add-port over a -- set interface a type=vxlan options:remote_ip=flow options:key=flow ofport_request=1
        vsctl add-port over b -- set interface b type=geneve options:remote_ip=flow options:local_ip=flow options:key=3 ofport_request=2
        ofctl add-flow over in_port=LOCAL,actions=1,2
        ofctl add-flow over 'in_port=5,actions=set_field:172.31.1.2->tun_dst,1,set_field:0.0.0.0->tun_dst,2'
        ovs-appctl ofproto/trace over in_port=LOCAL
        ovs-appctl ofproto/trace over in_port=5
        appctl dpif/set-dp-features br0 tnl_push_pop false
        ovs-appctl ofproto/trace over in_port=LOCAL
        ovs-appctl ofproto/trace over in_port=5
    "#);
    settings: r#"
        appctl tnl/egress_port_range
        appctl tnl/egress_port_range 2000 1000
        appctl tnl/egress_port_range
        appctl tnl/egress_port_range 0 5
        appctl tnl/egress_port_range 5 70000
        appctl dpif/show-dp-features br0 | grep Tunnel
        appctl dpif/set-dp-features br0 tnl_push_pop false
        appctl dpif/show-dp-features br0 | grep Tunnel
        appctl dpif/set-dp-features br0 tnl_push_pop true
        appctl dpif/show-dp-features br0 | grep Tunnel
        appctl tnl/ports/show
    "#;
}
