// SPDX-License-Identifier: Apache-2.0
//! Actions, seen through `ofproto/trace`.

scenarios! {
    outputs: r#"
        ofctl add-flow br0 actions=2,3,IN_PORT,LOCAL
        trace in_port=1,ip
        trace in_port=2,tcp,tp_dst=80
        ofctl add-flow br0 actions=ALL
        trace in_port=1,ip
        ofctl add-flow br0 actions=FLOOD
        trace in_port=1,ip
        ofctl add-flow br0 actions=drop
        trace in_port=1,ip
        ofctl add-flow br0 'actions=output(port=2,max_len=100)'
        trace in_port=1,ip
        ofctl add-flow br0 'actions=load:3->NXM_NX_REG0[],output:NXM_NX_REG0[0..15]'
        trace in_port=1,ip
        ofctl add-flow br0 'actions=output:9,1,2'
        trace in_port=1,ip
        ofctl add-flow br0 'actions=enqueue:2:0'
        trace in_port=1,ip
    "#;
    queues: r#"
        ofctl add-flow br0 'actions=set_queue:3,2,enqueue:3:1,pop_queue,4'
        trace in_port=1,ip
        vsctl set port p2 qos=@q -- --id=@q create qos type=linux-htb queues:3=@a -- --id=@a create queue dscp=12 | grep -c .
        trace in_port=1,tcp,nw_tos=4,nw_ecn=1
        trace in_port=1,ipv6
        trace in_port=1,arp
        ofctl add-flow br0 'actions=2'
        trace in_port=1,tcp
        appctl qos/show p2
        appctl qos/show-types p2
        ofctl queue-stats br0
        ofctl queue-stats br0 2 3
        ofctl queue-get-config br0 2
        ofctl -O OpenFlow14 queue-get-config br0 2
        vsctl clear port p2 qos
        trace in_port=1,tcp
    "#;
    set_fields: r#"
        ofctl add-flow br0 udp,actions=mod_dl_src:02:00:00:00:00:01,mod_dl_dst:02:00:00:00:00:02,mod_nw_src:1.1.1.1,mod_nw_dst:2.2.2.2,mod_nw_tos:32,mod_nw_ecn:2,mod_nw_ttl:9,mod_tp_src:7,mod_tp_dst:8,2
        trace in_port=1,udp,nw_src=10.0.0.1,nw_dst=10.0.0.2,nw_ttl=64,udp_src=5,udp_dst=6
        ofctl add-flow br0 'udp,actions=2,mod_tp_src:7,3,mod_tp_src:5,4'
        trace in_port=1,udp,nw_src=10.0.0.1,nw_dst=10.0.0.2,nw_ttl=64,udp_src=5,udp_dst=6
        ofctl add-flow br0 'tcp6,actions=set_field:::1->ipv6_src,set_field:::2->ipv6_dst,dec_ttl,set_field:99->tcp_dst,2'
        trace in_port=1,tcp6,ipv6_src=fe80::1,ipv6_dst=fe80::2,nw_ttl=64,tcp_src=5,tcp_dst=6
        ofctl add-flow br0 'arp,actions=set_field:2->arp_op,set_field:10.0.0.9->arp_spa,move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[],set_field:02:00:00:00:00:09->arp_sha,IN_PORT'
        trace in_port=1,dl_src=50:54:00:00:00:01,arp,arp_op=1,arp_spa=10.0.0.1,arp_tpa=10.0.0.2
        ofctl add-flow br0 'icmp,actions=set_field:0->icmp_type,2'
        trace in_port=1,icmp,nw_ttl=64,icmp_type=8
    "#;
    partial_sets: r#"
        ofctl add-flow br0 'udp,actions=load:0xff->NXM_OF_IP_DST[0..7],move:NXM_OF_UDP_SRC[]->NXM_OF_UDP_DST[],2'
        trace in_port=1,udp,nw_src=10.0.0.1,nw_dst=10.0.0.2,nw_ttl=64,udp_src=5,udp_dst=6
        ofctl add-flow br0 'udp,actions=set_field:0.0.0.9/0.0.0.255->ip_dst,set_field:00:00:00:00:00:05/00:00:00:00:00:ff->eth_dst,2'
        trace in_port=1,udp,nw_src=10.0.0.1,nw_dst=10.0.0.2,nw_ttl=64,udp_src=5,udp_dst=6
        ofctl --no-stats dump-flows br0
    "#;
    registers_and_stack: r#"
        ofctl add-flow br0 'table=0,actions=load:0x1234->NXM_NX_REG15[],set_field:0x55->metadata,push:NXM_NX_REG15[],load:0->NXM_NX_REG15[],pop:NXM_NX_REG1[],resubmit(,1)'
        ofctl add-flow br0 'table=1,reg1=0x1234,actions=2'
        trace in_port=1,ip
        trace in_port=1,ip,reg1=5
        ofctl add-flow br0 'table=0,actions=pop:NXM_NX_REG1[],resubmit(,1)'
        trace in_port=1,ip
    "#;
    resubmits_and_gotos: r#"
        ofctl add-flow br0 'table=0,actions=resubmit(,1),3'
        ofctl add-flow br0 'table=1,priority=5,ip,actions=2,resubmit(4,2)'
        ofctl add-flow br0 'table=2,in_port=4,actions=4'
        trace in_port=1,ip
        trace in_port=1,arp
        ofctl -O OpenFlow13 add-flow br0 table=0,actions=3,goto_table:1
        trace in_port=1,ip
        ofctl add-flow br0 'table=0,actions=2,resubmit(,0)'
        trace in_port=1,ip | tail -5
    "#;
    action_sets: r#"
        ofctl -O OpenFlow13 add-flow br0 'table=0,udp,actions=write_actions(output:2,set_field:9->udp_dst),goto_table:1'
        ofctl -O OpenFlow13 add-flow br0 'table=1,in_port=1,actions=output:3'
        ofctl -O OpenFlow13 add-flow br0 'table=1,in_port=3,actions=clear_actions'
        trace in_port=1,udp,nw_ttl=9,udp_dst=1
        trace in_port=3,udp,nw_ttl=9,udp_dst=1
        ofctl -O OpenFlow13 --no-stats dump-flows br0
        ofctl --no-stats dump-flows br0
    "#;
    write_metadata: r#"
        ofctl -O OpenFlow13 add-flow br0 'table=0,actions=write_metadata:0xff00/0xff00,goto_table:1'
        ofctl -O OpenFlow13 add-flow br0 'table=1,metadata=0xff01,actions=output:2'
        trace in_port=1,ip,metadata=0x1
    "#;
    niciras_write_metadata: r#"
        ofctl add-flow br0 'actions=2,write_metadata:0xff00/0xff00'
        ofctl add-flow br0 'actions=write_metadata:5,goto_table:1'
        ofctl add-flow br0 'priority=1,actions=write_metadata:5'
        ofctl -O OpenFlow10 send br0 010e007000000007003fffff00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000002ffffffffffff00000000000800020000ffff0020000023200016000000000000000000000000000500000000000000ff
        ofctl -O OpenFlow10 send br0 010e007000000007003fffff00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000003ffffffffffff0000ffff0020000023200016000000000000000000000000000500000000000000ff0000000800020000
        ofctl -O OpenFlow10 send br0 010e008800000007003fffff00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000004ffffffffffff0000ffff0020000023200016000000000000000000000000000500000000000000ffffff0020000023200016000000000000000000000000000500000000000000ff
        ofctl -O OpenFlow13 send br0 040e006000000007000000000000000000000000000000000000000000000028ffffffffffffffffffffffff0000000000010004000000000004002800000000ffff0020000023200016000000000000000000000000000500000000000000ff
        ofctl -O OpenFlow13 send br0 040e007000000007000000000000000000000000000000000000000000000029ffffffffffffffffffffffff000000000001000400000000000400380000000000000010000000020000000000000000ffff0020000023200016000000000000000000000000000500000000000000ff
        ofctl -O OpenFlow13 send br0 040e00700000000700000000000000000000000000000000000000000000002affffffffffffffffffffffff0000000000010004000000000004003800000000ffff0020000023200016000000000000000000000000000500000000000000ff00000010000000020000000000000000
        ofctl -O OpenFlow13 send br0 040e00800000000700000000000000000000000000000000000000000000002bffffffffffffffffffffffff0000000000010004000000000004004800000000ffff0020000023200016000000000000000000000000000500000000000000ffffff0020000023200016000000000000000000000000000500000000000000ff
        ofctl -O OpenFlow13 send br0 040e00600000000700000000000000000000000000000000000000000000002cffffffffffffffffffffffff0000000000010004000000000003002800000000ffff0020000023200016000000000000000000000000000500000000000000ff
        ofctl -O OpenFlow13 send br0 040e00780000000700000000000000000000000000000000000000000000002dffffffffffffffffffffffff0000000000010004000000000004002800000000ffff0020000023200016000000000000000000000000000500000000000000ff0002001800000000000000000000000700000000000000ff
        ofctl -O OpenFlow13 send br0 040e00680000000700000000000000000000000000000000000000000000002effffffffffffffffffffffff0000000000010004000000000004002800000000ffff0020000023200016000000000000000000000000ff00000000000000ff000001000801000000
        ofctl -O OpenFlow15 send br0 060e00600000000700000000000000000000000000000000000000000000003cffffffffffffffffffffffff0000000000010004000000000004002800000000ffff0020000023200016000000000000000000000000000500000000000000ff
        ofctl -O OpenFlow15 send br0 060e00700000000700000000000000000000000000000000000000000000003dffffffffffffffffffffffff000000000001000400000000000400380000000000000010000000020000000000000000ffff0020000023200016000000000000000000000000000500000000000000ff
        ofctl -O OpenFlow15 send br0 060e00700000000700000000000000000000000000000000000000000000003effffffffffffffffffffffff0000000000010004000000000004003800000000ffff0020000023200016000000000000000000000000000500000000000000ff00000010000000020000000000000000
        ofctl -O OpenFlow15 send br0 060e00800000000700000000000000000000000000000000000000000000003fffffffffffffffffffffffff0000000000010004000000000004004800000000ffff0020000023200016000000000000000000000000000500000000000000ffffff0020000023200016000000000000000000000000000500000000000000ff
        ofctl -O OpenFlow15 send br0 060e006000000007000000000000000000000000000000000000000000000040ffffffffffffffffffffffff0000000000010004000000000003002800000000ffff0020000023200016000000000000000000000000000500000000000000ff
        ofctl -O OpenFlow15 send br0 060e007800000007000000000000000000000000000000000000000000000041ffffffffffffffffffffffff0000000000010004000000000004002800000000ffff0020000023200016000000000000000000000000000500000000000000ff0002001800000000000000000000000700000000000000ff
        ofctl -O OpenFlow15 send br0 060e006800000007000000000000000000000000000000000000000000000042ffffffffffffffffffffffff0000000000010004000000000004002800000000ffff0020000023200016000000000000000000000000ff00000000000000ff000001000801000000
        ofctl -O OpenFlow13 send br0 040d007200000007ffffffff000000010030000000000000ffff0020000023200016000000000000000000000000000500000000000000ff0000001000000002000000000000000050540000000a50540000000908004500001c0000000000113c9cc0a80001c0a800020000000000080000
        ofctl -O OpenFlow13 add-flow br0 'table=1,metadata=0xff01,actions=output:3'
        ofctl -O OpenFlow13 --no-stats dump-flows br0
        trace in_port=1,ip,metadata=0x1
    "#;
    clones_and_exits: r#"
        ofctl add-flow br0 'udp,actions=clone(mod_tp_dst:9,2),3'
        trace in_port=1,udp,nw_ttl=64,udp_src=5,udp_dst=6
        ofctl add-flow br0 'udp,actions=clone(mod_tp_dst:9,2)'
        trace in_port=1,udp,nw_ttl=64,udp_src=5,udp_dst=6
        ofctl add-flow br0 'udp,actions=2,exit,3'
        trace in_port=1,udp,nw_ttl=64,udp_src=5,udp_dst=6
        ofctl --no-stats dump-flows br0
    "#;
    vlan_tags: r#"
        ofctl add-flow br0 actions=mod_vlan_vid:5,2
        trace in_port=1,ip
        trace in_port=1,dl_vlan=7,dl_vlan_pcp=3,ip
        ofctl add-flow br0 actions=mod_vlan_pcp:3,2,strip_vlan,3
        trace in_port=1,ip
        trace in_port=1,dl_vlan=7,ip
        ofctl -O OpenFlow13 add-flow br0 'actions=push_vlan:0x8100,set_field:4101->vlan_vid,2,pop_vlan,3'
        trace in_port=1,ip
        trace in_port=1,dl_vlan=7,ip
        ofctl -O OpenFlow13 --no-stats dump-flows br0
        ofctl --no-stats dump-flows br0
    "#;
    qinq: r#"
        vsctl set open_vswitch . other_config:vlan-limit=2
        ofctl -O OpenFlow13 add-flow br0 'in_port=1,actions=push_vlan:0x8100,set_field:4106->vlan_vid,push_vlan:0x88a8,set_field:4116->vlan_vid,2'
        ofctl -O OpenFlow13 add-flow br0 'in_port=3,actions=pop_vlan,pop_vlan,2'
        trace in_port=1,ip
        trace in_port=3,dl_vlan=5,ip
    "#;
    mpls: r#"
        ofctl -O OpenFlow13 add-flow br0 'in_port=1,ip,actions=push_mpls:0x8847,set_field:100->mpls_label,set_field:3->mpls_tc,2'
        ofctl -O OpenFlow13 add-flow br0 'in_port=3,mpls,mpls_label=100,actions=pop_mpls:0x0800,dec_ttl,1'
        ofctl -O OpenFlow13 add-flow br0 'in_port=2,mpls,actions=dec_mpls_ttl,1'
        trace in_port=1,ip,nw_ttl=64,nw_dst=10.0.0.2
        trace in_port=2,mpls,mpls_label=100,mpls_bos=1,mpls_ttl=64
        trace in_port=3,mpls,mpls_label=100,mpls_bos=1,mpls_ttl=64
        receive p1 'in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=17,tos=0,ttl=64,frag=no),udp(src=1,dst=2)'
        appctl revalidator/wait
        appctl dpctl/dump-flows
    "#;
    dec_ttl: r#"
        ofctl add-flow br0 'ip,actions=dec_ttl,2'
        ofctl add-flow br0 'ipv6,actions=dec_ttl(1,2),2'
        trace in_port=1,udp,nw_ttl=64
        trace in_port=1,udp,nw_ttl=1
        trace in_port=1,udp6,nw_ttl=0
        ofctl --no-stats dump-flows br0
    "#;
    to_the_controller: r#"
        ofctl add-flow br0 'actions=CONTROLLER:65535,2'
        trace in_port=1,ip
        ofctl add-flow br0 'actions=controller(reason=no_match,max_len=80,id=7)'
        trace in_port=1,ip
        ofctl --no-stats dump-flows br0
        ofctl add-flow br0 'actions=controller(userdata=01.02.03,pause),2'
        trace in_port=1,ip
        ofctl --no-stats dump-flows br0
    "#;
    hashes: r#"
        ofctl add-flow br0 'actions=multipath(eth_src,50,modulo_n,1,0,NXM_NX_REG0[]),load:2->NXM_NX_REG1[],output:NXM_NX_REG1[]'
        trace in_port=1,dl_src=50:54:00:00:00:01,ip
        ofctl add-flow br0 'actions=bundle(eth_src,0,active_backup,ofport,members:2,3)'
        trace in_port=1,dl_src=50:54:00:00:00:01,ip
        ofctl --no-stats dump-flows br0
        ofctl add-flow br0 'actions=bundle_load(symmetric_l4,60,hrw,ofport,NXM_NX_REG0[0..15],members:2,3)'
        ofctl --no-stats dump-flows br0
    "#;
    samples_and_notes: r#"
        ofctl add-flow br0 'actions=note:11.22.33,sample(probability=100,collector_set_id=1,obs_domain_id=2,obs_point_id=3),2'
        trace in_port=1,ip
        ofctl --no-stats dump-flows br0
    "#;
    check_pkt_larger: r#"
        ofctl add-flow br0 'table=0,actions=check_pkt_larger(100)->NXM_NX_REG0[0],resubmit(,1)'
        ofctl add-flow br0 'table=1,reg0=1,actions=2'
        ofctl add-flow br0 'table=1,reg0=0,actions=3'
        trace in_port=1,ip
        ofctl --no-stats dump-flows br0
    "#;
    groups: r#"
        ofctl -O OpenFlow13 add-group br0 'group_id=1,type=all,bucket=set_field:1.1.1.1->ip_dst,output:1,bucket=output:2'
        ofctl -O OpenFlow13 add-group br0 'group_id=2,type=indirect,bucket=output:3'
        ofctl -O OpenFlow13 add-group br0 'group_id=3,type=ff,bucket=watch_port:2,output:2,bucket=watch_port:3,output:3'
        ofctl -O OpenFlow15 add-group br0 'group_id=4,type=select,selection_method=hash,fields(ip_src),bucket=bucket_id:1,weight:5,output:2'
        ofctl -O OpenFlow13 dump-groups br0
        ofctl -O OpenFlow15 dump-groups br0
        ofctl -O OpenFlow15 dump-groups br0 2
        ofctl dump-groups br0
        ofctl -O OpenFlow13 dump-group-stats br0
        ofctl -O OpenFlow13 dump-group-features br0
        ofctl dump-groups br0 4
        ofctl dump-group-stats br0
        ofctl dump-group-features br0
        ofctl add-group br0 'group_id=20,type=select,bucket=bucket_id:3,weight:2,output:1,bucket=bucket_id:9,weight:3,output:2'
        ofctl insert-buckets br0 group_id=20,command_bucket_id=last,bucket=bucket_id:7,output:4
        ofctl -O OpenFlow15 dump-groups br0 20
        ofctl del-groups br0 group_id=20
        ofctl -O OpenFlow13 add-flow br0 udp,in_port=1,actions=group:1
        ofctl -O OpenFlow13 add-flow br0 udp,in_port=2,actions=group:2
        ofctl -O OpenFlow13 add-flow br0 udp,in_port=3,actions=group:3
        ofctl -O OpenFlow13 add-flow br0 udp,in_port=4,actions=group:4
        trace in_port=1,udp,nw_ttl=5,nw_dst=2.2.2.2
        trace in_port=2,udp,nw_ttl=5
        trace in_port=3,udp,nw_ttl=5
        trace in_port=4,udp,nw_ttl=5
        ofctl -O OpenFlow13 add-group br0 group_id=1,type=all,bucket=output:1
        ofctl -O OpenFlow13 mod-group br0 group_id=9,type=all,bucket=output:1
        ofctl -O OpenFlow13 --may-create mod-group br0 group_id=9,type=all,bucket=output:1
        echo loop; ofctl -O OpenFlow13 add-group br0 group_id=10,type=all,bucket=group:10
        ofctl -O OpenFlow15 insert-buckets br0 group_id=9,command_bucket_id=first,bucket=bucket_id:7,output:2
        ofctl -O OpenFlow15 insert-buckets br0 group_id=9,command_bucket_id=99,bucket=bucket_id:8,output:2
        ofctl -O OpenFlow15 remove-buckets br0 group_id=9,command_bucket_id=all
        ofctl -O OpenFlow15 dump-groups br0
        ofctl -O OpenFlow13 del-groups br0 group_id=1
        ofctl -O OpenFlow13 del-groups br0
        ofctl -O OpenFlow13 dump-groups br0
        ofctl -O OpenFlow13 --no-stats dump-flows br0
    "#;
    meters: r#"
        ofctl -O OpenFlow13 add-meter br0 meter=1,pktps,burst,stats,bands=type=drop,rate=1,burst_size=1
        ofctl -O OpenFlow13 add-meter br0 meter=2,kbps,bands=type=drop,rate=1000
        ofctl -O OpenFlow13 dump-meters br0
        ofctl -O OpenFlow13 meter-stats br0
        ofctl -O OpenFlow13 meter-features br0
        ofctl -O OpenFlow13 add-flow br0 ip,actions=meter:1,output:2
        trace in_port=1,ip
        ofctl -O OpenFlow13 --no-stats dump-flows br0
        ofctl --no-stats dump-flows br0
        ofctl -O OpenFlow13 mod-meter br0 meter=2,kbps,bands=type=drop,rate=2000
        ofctl -O OpenFlow13 dump-meter br0 meter=2
        ofctl -O OpenFlow13 add-meter br0 meter=2,kbps,bands=type=drop,rate=1000
        ofctl -O OpenFlow13 mod-meter br0 meter=7,kbps,bands=type=drop,rate=1000
        ofctl -O OpenFlow13 add-flow br0 ip,actions=meter:9,output:2
        ofctl -O OpenFlow13 del-meter br0 meter=1
        ofctl -O OpenFlow13 dump-meters br0
        ofctl -O OpenFlow13 --no-stats dump-flows br0
    "#;
    matches_seen_by_trace: r#"
        ofctl add-flow br0 priority=9,tcp,tcp_flags=+syn-ack,actions=2
        ofctl add-flow br0 priority=8,dl_vlan=5,ip,nw_tos=32,actions=3
        ofctl add-flow br0 priority=7,icmp6,icmp_type=135,nd_target=fe80::1,actions=4
        ofctl add-flow br0 priority=6,arp,arp_op=1,arp_tpa=10.0.0.0/24,actions=1
        ofctl add-flow br0 priority=5,ip,nw_frag=later,actions=LOCAL
        ofctl add-flow br0 priority=4,sctp,tp_dst=9,actions=LOCAL
        ofctl add-flow br0 priority=3,pkt_mark=1,ip,nw_src=10.0.0.0/24,actions=2
        trace in_port=4,tcp,tcp_flags=syn
        trace in_port=4,tcp,tcp_flags='syn|ack'
        trace in_port=4,dl_vlan=5,dl_vlan_pcp=1,ip,nw_tos=32,nw_ecn=1
        trace in_port=3,icmp6,icmpv6_type=135,nd_target=fe80::1
        trace in_port=4,arp,arp_op=1,arp_tpa=10.0.0.7
        trace in_port=4,ip,nw_frag=later
        trace in_port=4,sctp,sctp_dst=9
        trace in_port=4,ip,nw_src=10.0.0.9,pkt_mark=1
        trace in_port=4,dl_type=0x88cc
    "#;
    traces_of_packets: r#"
        ofctl add-flow br0 'tcp,actions=mod_tp_dst:81,2'
        appctl ofproto/trace br0 in_port=1 505400000002505400000001080045000028000000004006669e0a0000010a000002000500500000000000000000501000000000 0000
        appctl ofproto/trace br0 in_port=1 5054000000025054000000010800450000280000000040062cce0a0000010a00000200050050000000000000000050100000ffff0000
        appctl ofproto/trace 'in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=6,tos=0,ttl=64,frag=no),tcp(src=5,dst=80)'
        appctl ofproto/trace ovs-dummy 'in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=6,tos=0,ttl=64,frag=no),tcp(src=5,dst=80)'
        appctl ofproto/trace dummy@ovs-dummy 'in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=6,tos=0,ttl=64,frag=no),tcp(src=5,dst=80)' | tail -n 1
        appctl ofproto/trace-packet-out br0 in_port=1,tcp,nw_ttl=4,tcp_dst=80 actions=3,TABLE
        appctl ofproto/trace br0 in_port=99,ip
        appctl ofproto/trace br9 in_port=1,ip
        appctl ofproto/trace br0 in_port=1,nonsense=3
        appctl ofproto/trace br0
        appctl ofproto/trace br0 in_port=1,ip -generate
    "#;
}
