// SPDX-License-Identifier: Apache-2.0
//! `ovs-appctl` commands and their errors.

scenarios! {
    wrong_commands: r#"
        appctl nonsense
        appctl fdb/stats-show
        appctl fdb/stats-show a b c
        appctl time/warp
        appctl time/warp nonsense
        appctl netdev-dummy/receive
        appctl netdev-dummy/receive p9 aabb
        appctl netdev-dummy/receive p1 nonsense
        appctl bridge/dump-flows nowhere
        appctl bridge/reconnect nowhere
        appctl dpif/show extra
        appctl dpif/dump-flows nowhere
        appctl vlog/set nonsense
        appctl vlog/set nonsense:dbg
        appctl vlog/set bridge:nonsense
        appctl revalidator/wait extra
        appctl upcall/set-flow-limit
        appctl ofproto/trace
        appctl qos/show nowhere
        appctl bond/show nowhere
    "#;
    logging_levels: r#"
        appctl vlog/set bridge:file:dbg
        appctl vlog/list | grep -E 'console|----|^bridge '
        appctl vlog/set ANY:ANY:warn
        appctl vlog/list | grep -E '^(bridge|ofproto|rconn|vconn) '
        appctl vlog/list-pattern
        appctl vlog/set 'PATTERN:file:%p|%m'
        appctl vlog/list-pattern
        appctl vlog/disable-rate-limit bridge
        appctl vlog/enable-rate-limit bridge
        appctl vlog/close
        appctl vlog/reopen
    "#;
    empty_shows: r#"
        appctl lacp/show
        appctl bond/list
        appctl bfd/show
        appctl cfm/show
        appctl stp/show
        appctl rstp/show
        appctl mdb/show br0
        appctl tnl/ports/show
        appctl tnl/arp/show
        appctl tnl/neigh/show
        appctl dpctl/dump-conntrack
        appctl dpctl/flush-conntrack
        appctl revalidator/purge
        appctl upcall/set-flow-limit 1000
        appctl dpif-netdev/pmd-rxq-show
        appctl ovs/route/show | grep -v Cached
        appctl dpctl/ct-get-maxconns
        appctl bridge/reconnect
        appctl bridge/reconnect br0
    "#;
    implementations_to_choose_from: r#"
        appctl odp-execute/action-impl-set scalar
        appctl odp-execute/action-impl-set nosuch
        appctl dpif-netdev/dpif-impl-set dpif_scalar
        appctl dpif-netdev/dpif-impl-set nosuch
        appctl dpif-netdev/miniflow-parser-set scalar
        appctl dpif-netdev/miniflow-parser-set nosuch
        appctl dpif-netdev/miniflow-parser-set scalar 5
        appctl dpif-netdev/miniflow-parser-set -pmd 3 scalar
        appctl dpif-netdev/miniflow-parser-set -pmd x scalar
        appctl dpif-netdev/miniflow-parser-set -pmd
        appctl dpif-netdev/miniflow-parser-set -pmd 3
        appctl dpif-netdev/subtable-lookup-prio-set generic 4
        appctl dpif-netdev/subtable-lookup-prio-set generic 300
        appctl dpif-netdev/subtable-lookup-prio-set nosuch 4
    "#;
    features_of_the_datapath: r#"
        appctl dpif/set-dp-features br0 | grep -vE '^(sample_nesting|lb_output_action|add_mpls) ' | sort
        appctl dpif/set-dp-features br0 ct_eventmask
        appctl dpif/set-dp-features br0 ct_eventmask true
        appctl dpif/set-dp-features br0 ct_eventmask maybe
        appctl dpif/set-dp-features br0 max_mpls_depth 3
        appctl dpif/set-dp-features br0 max_mpls_depth 3000
        appctl dpif/set-dp-features br0 max_mpls_depth -1
        appctl dpif/set-dp-features br0 max_mpls_depth x
        appctl dpif/set-dp-features br0 nosuch
        appctl dpif/set-dp-features br0 tnl_push_pop false
        appctl dpif/set-dp-features br0 tnl_push_pop
        appctl dpif/set-dp-features nowhere
        appctl dpif/show-dp-features br0
        appctl dpif/show-dp-features nowhere
    "#;
    // Without those of the kernel's datapath, and those that came after 3.1.
    commands_there_are: r#"
        appctl list-commands | grep -vE '^  (ovsdb|cluster|dpdk|odp|netlink|seq|jsonrpc|slipswitch)' | awk '{print $1}' | grep -E '/' | grep -vE '^(dpif-netlink/dispatch-mode|dpif-netdev/(subtable-lookup-prio-get|pmd-sleep-show)|dpctl/(dump-conntrack-exp|ct-[gs]et-sweep-interval)|revalidator/(pause|resume)|ofproto/detrace|tnl/(arp|neigh)/retrans_time|ovs/route/rule/(add|del|show)|ofproto/tnl-push-pop)$' | sort
    "#;
    dummies: r#"
        appctl netdev-dummy/set-admin-state p1 down
        vsctl get interface p1 admin_state
        appctl netdev-dummy/set-admin-state p1 up
        appctl netdev-dummy/set-admin-state p9 up
        appctl netdev-dummy/conn-state p1
        appctl netdev-dummy/ip4addr br0 10.0.0.1/24
        appctl netdev-dummy/ip4addr nowhere 10.0.0.1/24
        receive p1 'in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x1234)' --len 100
        receive p1 50540000000250540000000112340000
        ofctl dump-ports br0 1
    "#;
    // Routes of the host's kernel are shown by the oracle alone, so that only the user's are compared.
    routes: r#"
        appctl netdev-dummy/ip4addr br0 2.2.2.2/24
        appctl ovs/route/add 1.1.1.0/24 br0 2.2.2.10
        appctl ovs/route/add 1.1.1.200/24 br0 2.2.2.11 pkt_mark=1234
        appctl ovs/route/add 2.2.2.3/32 br0 pkt_mark=0x10
        appctl ovs/route/add 2.2.2.2/24 br0 0.0.0.0
        appctl ovs/route/add 9.0.0.0/255.0.0.0 br0 2.2.2.12
        appctl ovs/route/add 3.3.3.0/24 br0
        appctl ovs/route/add 3.3.3.0/24 br0 3.3.3.9
        appctl ovs/route/add 3.3.3.0/24 nowhere 2.2.2.9
        appctl ovs/route/show | grep User | sort
        appctl ovs/route/lookup 1.1.1.7
        appctl ovs/route/lookup 1.1.1.7/32
        appctl ovs/route/lookup 1.1.1.7 pkt_mark=1234
        appctl ovs/route/lookup 1.1.1.7 pkt_mark=1
        appctl ovs/route/lookup 2.2.2.3
        appctl ovs/route/lookup 2.2.2.3 pkt_mark=16
        appctl ovs/route/lookup 9.9.9.9
        appctl ovs/route/lookup 1.1.1.0/24
        appctl ovs/route/lookup nonsense
        appctl ovs/route/lookup 1.1.1.7 nonsense
        appctl ovs/route/add 1.1.1.0/24 br0 2.2.2.13
        appctl ovs/route/lookup 1.1.1.7
        appctl ovs/route/del nonsense
        appctl ovs/route/del 1.1.1.0/24 nonsense
        appctl ovs/route/del 1.1.1.0/24 pkt_mark=7
        appctl ovs/route/del 1.1.1.99/24 pkt_mark=1234
        appctl ovs/route/del 1.1.1.0/24
        appctl ovs/route/del 1.1.1.0/24
        appctl ovs/route/show | grep User | sort
        appctl ovs/route/lookup
        appctl ovs/route/add 1.1.1.0/24
        appctl ovs/route/del
    "#;
    routes_of_ipv6: r#"
        appctl netdev-dummy/ip6addr br0 2001:db8:cafe::1/64
        appctl ovs/route/add 2001:db8:babe::/64 br0 2001:db8:cafe::2
        appctl ovs/route/add 2001:db8:babe::/64 br0 2001:db8:cafe::3 pkt_mark=321
        appctl ovs/route/add 2001:db8:cafe::99/128 br0
        appctl ovs/route/add 2001:db8:beef::/48 br0
        appctl ovs/route/show | grep User | sort
        appctl ovs/route/lookup 2001:db8:babe::1eaf
        appctl ovs/route/lookup 2001:db8:babe::1eaf pkt_mark=321
        appctl ovs/route/lookup 2001:db8:cafe::99
        appctl ovs/route/lookup 2001:db8::/32
        appctl ovs/route/del 2001:db8:babe::/64 pkt_mark=321
        appctl ovs/route/show | grep User | sort
        appctl netdev-dummy/ip6addr br0 nonsense
        appctl netdev-dummy/ip6addr br0 2001:db8::1/129
        appctl netdev-dummy/ip6addr nowhere 2001:db8::1/64
        appctl netdev-dummy/ip4addr br0 nonsense
        appctl netdev-dummy/ip4addr br0 10.0.0.1/33
    "#;
    neighbours: r#"
        appctl tnl/arp/set br0 1.1.2.92 f8:bc:12:44:34:b6
        appctl tnl/neigh/set br1 2001:cafe::92 f8:bc:12:44:34:b7
        appctl tnl/arp/set br1 1.1.2.92 f8:bc:12:44:34:b8
        appctl tnl/arp/set br0 nonsense f8:bc:12:44:34:b6
        appctl tnl/arp/set br0 1.1.2.93 nonsense
        appctl tnl/arp/set br0 1.1.2.93
        appctl tnl/arp/show | sort
        appctl tnl/arp/set br0 1.1.2.92 f8:bc:12:44:34:b9
        appctl tnl/neigh/show | sort
        appctl tnl/arp/show extra
        appctl tnl/arp/aging
        appctl tnl/arp/aging 0
        appctl tnl/arp/aging 3601
        appctl tnl/arp/aging nonsense
        appctl tnl/arp/aging 3600
        appctl tnl/neigh/aging
        appctl tnl/arp/aging 5
        appctl time/warp 4000
        appctl tnl/arp/set br0 1.1.2.92 f8:bc:12:44:34:b9
        appctl tnl/arp/show | sort
        appctl time/warp 2000
        appctl revalidator/wait
        appctl tnl/arp/show | sort
        appctl tnl/neigh/flush
        appctl tnl/arp/show
    "#;
    neighbours_go_with_their_bridge: r#"
        vsctl add-br br1 -- set bridge br1 datapath_type=dummy
        appctl tnl/arp/set br0 1.1.2.92 f8:bc:12:44:34:b6
        appctl tnl/arp/set br1 1.1.2.93 f8:bc:12:44:34:b7
        vsctl del-br br1
        appctl revalidator/wait
        appctl tnl/arp/show
    "#;
    tracing_through_ports: r#"
        appctl dpctl/dump-flows nonsense=1
        appctl dpctl/get-flow nonsense
        appctl dpctl/nonsense
    "#;
    features_that_are_withheld: r#"
        ofctl add-flow br0 'in_port=1,ip,actions=clone(set_field:192.168.3.3->ip_src),clone(set_field:192.168.4.4->ip_dst,output:2),clone(ct(commit),output:3),output:4'
        ofctl add-flow br0 'in_port=2,actions=output(port=3,max_len=100)'
        ofctl add-flow br0 'in_port=3,actions=check_pkt_larger(200)->NXM_NX_REG0[0],resubmit(,1)'
        ofctl add-flow br0 'table=1,in_port=3,reg0=0x1/0x1,actions=output:2'
        ofctl add-flow br0 'table=1,in_port=3,priority=1,actions=output:4'
        ofctl -O OpenFlow13 add-flow br0 'in_port=4,actions=encap(mpls),encap(ethernet),output:2'
        appctl dpif/set-dp-features br0 clone false
        trace in_port=1,ip | tail -1
        appctl dpif/set-dp-features br0 sample_nesting 2
        trace in_port=1,ip | tail -1
        appctl dpif/set-dp-features br0 sample_nesting | cut -d, -f1
        appctl dpif/set-dp-features br0 clone
        appctl dpif/set-dp-features br0 clone true
        trace in_port=1,ip | tail -1
        appctl dpif/set-dp-features br0 trunc false
        trace in_port=2,ip | grep Datapath
        appctl dpif/set-dp-features br0 trunc true
        trace in_port=2,ip | tail -1
        appctl dpif/set-dp-features br0 check_pkt_len false
        trace in_port=3,ip | grep Datapath
        receive p3 1e2ce92a669e3a6dd2099cab0800450000548a53400040011addc0a80a0ac0a80a1e08006f200a4d0001fc509a58000000002715020000000000101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f3031323334353637
        ofctl dump-ports br0 4 | grep tx
        appctl dpctl/dump-flows | sed 's/used:[0-9.]*s/used:0.0s/' | grep -v ipv6
        appctl dpif/set-dp-features br0 check_pkt_len true
        trace in_port=3,ip | tail -1
        appctl dpif/set-dp-features br0 add_mpls false
        trace in_port=4,ip | grep Datapath
        appctl dpif/set-dp-features br0 add_mpls true
        trace in_port=4,ip | tail -1
    "#;
    identities_of_megaflows_in_dumps: r#"
        appctl upcall/disable-ufid
        appctl upcall/show | grep ufid
        appctl upcall/enable-ufid
        appctl upcall/show | grep ufid
    "#;
    traces_in_a_datapath_that_no_bridge_has: r#"
        appctl ofproto/trace ovs-dummy 'recirc_id(0x42)'
        appctl ofproto/trace ovs-system 'in_port(1),eth()'
        appctl ofproto/trace ovs-netdev 'in_port(1),eth()'
        appctl ofproto/trace ovs-dummy 'in_port(1),eth()' | tail -1
    "#;
    a_failed_translation_in_the_log: r#"
        ofctl add-flow br0 'actions=resubmit(,66)'
        for i in $(seq 2 66); do echo "table=$i,actions=resubmit(,$((i - 1)))"; done >flows.txt
        ofctl add-flows br0 flows.txt
        receive p1 50540000000250540000000108004500001c0007200040116ed70a0001010a0000020035003500080000
        grep -c '^Translation failed .*packet is dropped' $OVS_LOGDIR/ovs-vswitchd.log
        grep -c '^ *resubmit' $OVS_LOGDIR/ovs-vswitchd.log
    "#;
    actions_for_tests: r#"
        ofctl add-flow br0 'in_port=1,actions=debug_recirc,load:1->NXM_NX_REG0[],resubmit(,1)'
        ofctl add-flow br0 'table=1,reg0=1,actions=2'
        ofctl add-flow br0 'in_port=2,actions=debug_slow,1'
        ofctl dump-flows br0
        trace in_port=1
        for p in p1 p2 p2; do receive $p 50540000000250540000000108004500001c0007200040116ed70a0001010a0000020035003500080000; done
        appctl dpctl/dump-flows
        ofctl dump-ports br0 1 | grep tx
        ofctl dump-ports br0 2 | grep tx
    "#;
    traces_and_packets_from_lines_of_dumps: r#"
        ofctl add-flow br0 ip,nw_dst=10.0.0.2,actions=2
        ofctl add-flow br0 ip,nw_dst=10.0.0.3,actions=3
        appctl ofproto/trace 'in_port(1),eth(src=50:54:00:00:00:05/0,dst=50:54:00:00:00:07/0),eth_type(0x0800),ipv4(src=10.0.0.1/0.0.0.0,dst=10.0.0.2/255.255.255.252,proto=17/0xff,tos=0/0,ttl=64/0,frag=no),udp(src=8/0,dst=10/0)'
        receive p1 "$(printf 'in_port(1),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.0.0.3,proto=\n1,tos=0,ttl=64,frag=no),icmp(type=8,code=0)')"
        appctl ofproto/trace 'in_port(1),packet_type(ns=0,id=0),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=1,tos=0,ttl=64,frag=no),icmp(type=8,code=0)'
        receive p1 'in_port(1),packet_type(ns=0,id=0),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),arp(sip=1.2.3.4,tip=1.2.3.5,op=1,sha=50:54:00:00:00:01,tha=00:00:00:00:00:00)'
        receive p1 'in_port(1),packet_type(ns=0,id=0),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=1,tos=0,ttl=64,frag=no),icmp(type=8,code=0)'
        receive p1 'in_port(1),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),eth_type(0x86dd),ipv6(src=2001:db8::1,dst=111:db8::3,proto=1,tclass=0,hlimit=64,frag=no),icmpv6(type=0,code=8)'
        appctl dpctl/dump-flows
    "#;
    options_of_dummies: r#"
        vsctl add-port br0 q1 -- set interface q1 type=dummy options:ifindex=77 options:pstream=punix:$PWD/q1.sock ofport_request=11
        vsctl add-port br0 q3 -- set interface q3 type=dummy-pmd options:n_rxq=2 ofport_request=13
        appctl dpif/show
    "#;
}
