// SPDX-License-Identifier: Apache-2.0
//! Megaflows in `dpctl/dump-flows`.

scenarios! {
    later_fragments_of_ipv6: r#"
        # Of a UDP and of an ICMPv6 packet: none shows its protocol.
        ofctl -O OpenFlow15 add-group br0 'group_id=1,type=select,selection_method=hash,fields(ip_proto),bucket=bucket_id:2,output:2,bucket=bucket_id:3,output:3'
        ofctl -O OpenFlow15 add-flow br0 actions=group:1
        appctl ofproto/trace br0 in_port=1 50540000000250540000000186dd6000000000102c40fc000000000000000000000000000001fc00000000000000000000000000000211000cc800000001000100020010abcd | grep -E '^(Flow|Megaflow)'
        appctl ofproto/trace br0 in_port=1 50540000000250540000000186dd6000000000102c40fc000000000000000000000000000001fc0000000000000000000000000000023a000cc900000001000100020010abcd | grep -E '^(Flow|Megaflow)'
        ofctl -O OpenFlow15 del-groups br0
        ofctl -O OpenFlow15 add-group br0 'group_id=1,type=select,selection_method=hash,fields(udp_src,ip_proto,ipv6_src),bucket=bucket_id:2,output:2,bucket=bucket_id:3,output:3'
        ofctl -O OpenFlow15 add-flow br0 actions=group:1
        appctl ofproto/trace br0 in_port=1 50540000000250540000000186dd6000000000102c40fc000000000000000000000000000001fc00000000000000000000000000000211000cc800000001000100020010abcd | grep -E '^(Flow|Megaflow)'
        appctl ofproto/trace br0 in_port=1 50540000000250540000000186dd6000000000102c40fc000000000000000000000000000001fc0000000000000000000000000000023a000cc900000001000100020010abcd | grep -E '^(Flow|Megaflow)'
        ofctl -O OpenFlow15 del-groups br0
        ofctl -O OpenFlow15 add-group br0 'group_id=1,type=select,selection_method=hash,bucket=bucket_id:2,output:2,bucket=bucket_id:3,output:3'
        ofctl -O OpenFlow15 add-flow br0 actions=group:1
        appctl ofproto/trace br0 in_port=1 50540000000250540000000186dd6000000000102c40fc000000000000000000000000000001fc00000000000000000000000000000211000cc800000001000100020010abcd | grep -E '^(Flow|Megaflow)'
        appctl ofproto/trace br0 in_port=1 50540000000250540000000186dd6000000000102c40fc000000000000000000000000000001fc0000000000000000000000000000023a000cc900000001000100020010abcd | grep -E '^(Flow|Megaflow)'
        ofctl -O OpenFlow15 del-groups br0
        ofctl -O OpenFlow15 add-group br0 'group_id=1,type=select,selection_method=dp_hash,bucket=bucket_id:2,output:2,bucket=bucket_id:3,output:3'
        ofctl -O OpenFlow15 add-flow br0 actions=group:1
        appctl ofproto/trace br0 in_port=1 50540000000250540000000186dd6000000000102c40fc000000000000000000000000000001fc00000000000000000000000000000211000cc800000001000100020010abcd | grep -E '^(Flow|Megaflow)'
        appctl ofproto/trace br0 in_port=1 50540000000250540000000186dd6000000000102c40fc000000000000000000000000000001fc0000000000000000000000000000023a000cc900000001000100020010abcd | grep -E '^(Flow|Megaflow)'
        ofctl -O OpenFlow15 del-groups br0
        ofctl add-flow br0 'actions=multipath(symmetric_l4,1024,modulo_n,16,0,NXM_NX_REG0[0..11]),2'
        appctl ofproto/trace br0 in_port=1 50540000000250540000000186dd6000000000102c40fc000000000000000000000000000001fc00000000000000000000000000000211000cc800000001000100020010abcd | grep -E '^(Flow|Megaflow)'
        ofctl add-flow br0 'priority=40000,ipv6,nw_proto=44,actions=3'
        appctl ofproto/trace br0 in_port=1 50540000000250540000000186dd6000000000102c40fc000000000000000000000000000001fc00000000000000000000000000000211000cc800000001000100020010abcd | grep -E '^(Flow|Megaflow)'
    "#;
    wide_megaflow: r#"
        ofctl add-flow br0 in_port=1,actions=2
        receive p1 'in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=6,tos=0,ttl=64,frag=no),tcp(src=5,dst=80),tcp_flags(ack)'
        receive p1 'in_port(1),eth(src=50:54:00:00:00:03,dst=50:54:00:00:00:04),eth_type(0x0800),ipv4(src=10.0.0.3,dst=10.0.0.4,proto=17,tos=0,ttl=64,frag=no),udp(src=5,dst=80)'
        receive p1 'in_port(1),eth(src=50:54:00:00:00:03,dst=50:54:00:00:00:04),eth_type(0x0806),arp(sip=10.0.0.1,tip=10.0.0.2,op=1,sha=50:54:00:00:00:07,tha=00:00:00:00:00:00)'
        appctl revalidator/wait
        appctl dpctl/dump-flows
        appctl dpctl/dump-flows -m
        appctl dpctl/dump-flows --names
        appctl dpif/dump-flows br0
        appctl dpif/dump-flows -m br0
        appctl dpctl/dump-flows filter=udp
        appctl dpctl/dump-flows filter=in_port=1
        appctl dpctl/show
        appctl dpctl/show -s
        appctl dpif/show
        appctl dpctl/dump-dps
    "#;
    trace_of_a_line_of_a_dump: r#"
        ofctl add-flow br0 in_port=1,ip,actions=set_field:10.0.0.9->ip_dst,2
        receive p1 'in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=17,tos=0,ttl=64,frag=no),udp(src=5,dst=80)'
        appctl revalidator/wait
        appctl ofproto/trace "$(ovs-appctl dpif/dump-flows -m br0 | sed 's/, packets.*//')" | grep -v 'low: '
        appctl ofproto/trace ovs-dummy "ufid:0000000b-2d86-733c-7b04-8b6a0f9bcf40 in_port(1),eth_type(0x0800),ipv4(frag=no)" | grep -v 'low: '
    "#;
    too_much_on_the_stack: r#"
        p='push:NXM_NX_REG1[],push:NXM_NX_REG2[]'; for i in $(seq 20 31); do echo "in_port=$i,actions=resubmit:$((i+1)),resubmit:$((i+1)),2"; done > flows; echo "in_port=32,actions=$p,$p,$p,$p" >> flows; ofctl add-flows br0 flows
        trace in_port=20 | grep 'stack\|failed'
    "#;
    types_of_megaflows: r#"
        ofctl add-flow br0 in_port=1,actions=2
        receive p1 'in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x0806),arp(sip=10.0.0.1,tip=10.0.0.2,op=1,sha=50:54:00:00:00:07,tha=00:00:00:00:00:00)'
        appctl revalidator/wait
        for t in ovs tc dpdk offloaded non-offloaded partially-offloaded all; do appctl dpctl/dump-flows type=$t; done
        for t in ovs,tc tc,dpdk, '' , ovs,, ,ovs; do appctl dpctl/dump-flows "type=$t"; done
        for t in all,foo foo,ovs OVS; do appctl dpctl/dump-flows "type=$t"; done
    "#;
    narrow_megaflows: r#"
        ofctl add-flow br0 priority=10,tcp,nw_dst=10.0.0.9,tp_dst=80,actions=2
        ofctl add-flow br0 priority=5,ip,nw_src=10.0.0.0/8,actions=3
        ofctl add-flow br0 priority=1,dl_dst=50:54:00:00:00:02,actions=4
        receive p1 'in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.0.0.9,proto=6,tos=0,ttl=64,frag=no),tcp(src=5,dst=80),tcp_flags(ack)'
        receive p1 'in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x0800),ipv4(src=10.0.0.1,dst=11.0.0.9,proto=6,tos=0,ttl=64,frag=no),tcp(src=5,dst=80),tcp_flags(ack)'
        receive p1 'in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x0806),arp(sip=10.0.0.1,tip=10.0.0.2,op=1,sha=50:54:00:00:00:07,tha=00:00:00:00:00:00)'
        appctl revalidator/wait
        appctl dpctl/dump-flows
    "#;
    prefixes: r#"
        for i in 1 2 3 4 5 6 7 8; do ofctl add-flow br0 ip,nw_dst=10.0.$i.0/24,actions=2; done
        trace in_port=1,ip,nw_dst=192.168.1.1
        trace in_port=1,ip,nw_dst=10.0.9.1
        trace in_port=1,ip,nw_dst=10.0.3.1
    "#;
    normal_megaflows: r#"
        ofctl add-flow br0 actions=NORMAL
        receive p1 'in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=1,tos=0,ttl=64,frag=no),icmp(type=8,code=0)'
        receive p2 'in_port(2),eth(src=50:54:00:00:00:02,dst=50:54:00:00:00:01),eth_type(0x0800),ipv4(src=10.0.0.2,dst=10.0.0.1,proto=1,tos=0,ttl=64,frag=no),icmp(type=0,code=0)'
        receive p1 'in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=1,tos=0,ttl=64,frag=no),icmp(type=8,code=0)'
        appctl revalidator/wait
        appctl dpctl/dump-flows
    "#;
    changed_megaflows: r#"
        ofctl add-flow br0 in_port=1,actions=2
        receive p1 'in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=1,tos=0,ttl=64,frag=no),icmp(type=8,code=0)'
        ofctl add-flow br0 in_port=1,actions=3
        appctl revalidator/wait
        appctl dpctl/dump-flows
        ofctl del-flows br0
        appctl revalidator/wait
        appctl dpctl/dump-flows
        appctl time/warp 12000 1000
        appctl revalidator/wait
        appctl dpctl/dump-flows
    "#;
    megaflows_of_sets: r#"
        ofctl add-flow br0 'udp,actions=mod_nw_src:1.1.1.1,mod_tp_dst:9,dec_ttl,mod_vlan_vid:5,2'
        receive p1 'in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=17,tos=0,ttl=64,frag=no),udp(src=5,dst=80)'
        appctl revalidator/wait
        appctl dpctl/dump-flows
        await_frame p2-tx.pcap; od -An -v -tx1 -j40 p2-tx.pcap
    "#;
    datapath_flows_by_hand: r#"
        # A revalidator removes flows that no rule explains.
        appctl revalidator/pause
        appctl dpctl/add-flow dummy@ovs-dummy 'in_port(1),eth(),eth_type(0x1234)' 2
        appctl dpctl/add-flow dummy@ovs-dummy 'in_port(1),eth(),eth_type(0x1234)' 2
        appctl dpctl/add-flow dummy@ovs-dummy 'in_port(1),eth(),nonsense(1)' 2
        appctl dpctl/add-flow dummy@ovs-dummy 'in_port(2),eth(),eth_type(0x1235)' nonsense
        appctl dpctl/dump-flows dummy@ovs-dummy
        appctl dpctl/mod-flow dummy@ovs-dummy 'in_port(1),eth(),eth_type(0x1234)' 3
        appctl dpctl/dump-flows dummy@ovs-dummy
        appctl dpctl/del-flow dummy@ovs-dummy 'in_port(1),eth(),eth_type(0x1234)'
        appctl dpctl/del-flow dummy@ovs-dummy 'in_port(1),eth(),eth_type(0x1234)'
        appctl dpctl/dump-flows dummy@ovs-dummy
        appctl dpctl/dump-flows dummy@nowhere
        appctl dpctl/show dummy@nowhere
        appctl dpctl/del-flows
        appctl revalidator/resume
    "#;
    frozen_by_recirculation: r#"
        ofctl -O OpenFlow13 add-flow br0 'table=0,mpls,actions=pop_mpls:0x0800,goto_table:1'
        ofctl -O OpenFlow13 add-flow br0 'table=1,ip,nw_dst=10.0.0.2,actions=2'
        receive p1 'in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x8847),mpls(label=100,tc=0,ttl=64,bos=1)'
        appctl revalidator/wait
        appctl dpctl/dump-flows
    "#;
    exact_flows: r#"
        appctl upcall/disable-megaflows
        ofctl add-flow br0 in_port=1,actions=2
        receive p1 'in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=6,tos=0,ttl=64,frag=no),tcp(src=5,dst=80),tcp_flags(ack)'
        appctl revalidator/wait
        appctl dpctl/dump-flows
        appctl upcall/enable-megaflows
        appctl dpctl/dump-flows
    "#;
    datapaths_that_are_not_there: r#"
        appctl dpctl/show dummy@none
        appctl dpctl/show dummy@ovs-dummy dummy@none
        appctl dpctl/dump-flows dummy@none
        appctl dpctl/dump-flows dummy@none type=ovs
        appctl dpctl/add-flow dummy@none 'in_port(1),eth_type(0x800)' 2
        appctl dpctl/mod-flow dummy@none 'in_port(1),eth_type(0x800)' 2
        appctl dpctl/get-flow dummy@none ufid:1234
        appctl dpctl/del-flow dummy@none 'in_port(1),eth_type(0x800)'
        appctl dpctl/offload-stats-show dummy@none
        appctl dpctl/dump-conntrack dummy@none
        appctl dpctl/dump-conntrack dummy@none zone=1
        appctl dpctl/flush-conntrack dummy@none zone=1
        appctl dpctl/cache-get-size dummy@none
        appctl dpctl/cache-set-size dummy@none foo 1
        appctl dpctl/ct-stats-show dummy@none
        appctl dpctl/ct-stats-show dummy@none zone=1
        appctl dpctl/ct-bkts dummy@none gt=1
        appctl dpctl/ct-set-maxconns dummy@none 10
        appctl dpctl/ct-get-maxconns dummy@none
        appctl dpctl/ct-get-nconns dummy@none
        appctl dpctl/ct-get-tcp-seq-chk dummy@none
        appctl dpctl/ct-set-limits dummy@none default=1
        appctl dpctl/ct-del-limits dummy@none zone=1
        appctl dpctl/ct-get-limits dummy@none zone=1
        appctl dpctl/ipf-set-min-frag dummy@none v4 1000
        appctl dpctl/ipf-set-max-nfrags dummy@none 100
        appctl dpctl/ipf-get-status dummy@none
        appctl dpctl/del-dp dummy@none
        appctl dpctl/add-if dummy@none x
        appctl dpctl/del-if dummy@none x
        appctl dpctl/set-if dummy@none x
        appctl dpctl/show nosuch
        appctl dpctl/show dummy@ovs-dummy nosuch
        appctl dpctl/dump-flows nosuch
        appctl dpctl/dump-flows nosuch type=ovs
        appctl dpctl/add-flow nosuch 'in_port(1),eth_type(0x800)' 2
        appctl dpctl/mod-flow nosuch 'in_port(1),eth_type(0x800)' 2
        appctl dpctl/get-flow nosuch ufid:1234
        appctl dpctl/del-flow nosuch 'in_port(1),eth_type(0x800)'
        appctl dpctl/offload-stats-show nosuch
        appctl dpctl/dump-conntrack nosuch
        appctl dpctl/dump-conntrack nosuch zone=1
        appctl dpctl/flush-conntrack nosuch zone=1
        appctl dpctl/cache-get-size nosuch
        appctl dpctl/cache-set-size nosuch foo 1
        appctl dpctl/ct-stats-show nosuch
        appctl dpctl/ct-stats-show nosuch zone=1
        appctl dpctl/ct-bkts nosuch gt=1
        appctl dpctl/ct-set-maxconns nosuch 10
        appctl dpctl/ct-get-maxconns nosuch
        appctl dpctl/ct-get-nconns nosuch
        appctl dpctl/ct-get-tcp-seq-chk nosuch
        appctl dpctl/ct-set-limits nosuch default=1
        appctl dpctl/ct-del-limits nosuch zone=1
        appctl dpctl/ct-get-limits nosuch zone=1
        appctl dpctl/ipf-set-min-frag nosuch v4 1000
        appctl dpctl/ipf-set-max-nfrags nosuch 100
        appctl dpctl/ipf-get-status nosuch
        appctl dpctl/del-dp nosuch
        appctl dpctl/add-if nosuch x
        appctl dpctl/del-if nosuch x
        appctl dpctl/set-if nosuch x
        appctl dpctl/show netdev@ovs-netdev
        appctl dpctl/dump-flows system@ovs-system
        appctl dpctl/show nosuch@name
    "#;
    megaflows_in_the_log: r#"
        ofctl add-flow br0 in_port=1,ip,nw_dst=10.0.0.2,actions=2
        ofctl add-flow br0 in_port=1,udp,nw_dst=10.0.0.3,actions=mod_nw_ttl:3,2,LOCAL
        appctl vlog/set dpif_netdev:dbg
        appctl netdev-dummy/receive p1 'in_port(1),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=6,tos=0,ttl=64,frag=no),tcp(src=8,dst=10),tcp_flags(syn)'
        appctl netdev-dummy/receive p1 'in_port(1),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.0.0.3,proto=17,tos=0,ttl=64,frag=no),udp(src=8,dst=10)'
        appctl revalidator/wait
        ofctl mod-flows br0 in_port=1,ip,nw_dst=10.0.0.2,actions=LOCAL
        appctl revalidator/wait
        sed -nE 's/.*(dpif_netdev).*(DBG.)(flow_add|flow_mod): ufid:[-0-9a-f]* mega_ufid:[-0-9a-f]* (.*)/\1 \2 \3 \4/p' $OVS_LOGDIR/ovs-vswitchd.log
    "#;
    dumps_are_in_the_order_of_installation: r#"
        ofctl add-flow br0 ip,actions=2
        ofctl add-flow br0 ip,nw_dst=10.0.0.0/31,actions=3
        receive p1 50540000000250540000000108004500001c0007200040116ed70a0001010a0000020035003500080000
        receive p1 5054000000025054000000011234
        appctl revalidator/purge
        for i in 4 1 3 0; do receive p1 "in_port(1),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.0.0.$i,proto=17,tos=0,ttl=64,frag=no),udp(src=8,dst=10)"; done
        for i in 2 1; do receive p1 "in_port(1),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),eth_type(0x080$i)"; done
        appctl dpctl/dump-flows | grep -oE 'eth_type.0x....|ipv4.dst=[0-9./]*'
    "#;
}
