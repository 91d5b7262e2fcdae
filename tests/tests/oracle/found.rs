// SPDX-License-Identifier: Apache-2.0
//! Differences that random cases found, each made small.

scenarios! {
    no_clone_where_nothing_follows: r#"
        ofctl add-flow br0 'actions=clone(output(port=2,max_len=34),output:4),load:1->NXM_NX_REG0[]'
        appctl ofproto/trace br0 in_port=1 5054000000035054000000011234 | tail -1
        ofctl add-flow br0 'actions=clone(output(port=2,max_len=34),output:4),load:1->NXM_NX_REG0[],3'
        appctl ofproto/trace br0 in_port=1 5054000000035054000000011234 | tail -1
    "#;
    a_long_load_is_one_action: r#"
        ofctl add-flow br0 'actions=learn(table=2,priority=104,load:0x1ffffffffffffffff->NXM_NX_XXREG0[])'
        receive p2 5054000000025054000000031234
        appctl revalidator/purge
        ofctl dump-flows br0 table=2
        ofctl -O OpenFlow15 dump-flows br0 table=2
        appctl bridge/dump-flows br0 | grep table_id=2
    "#;
    behind_labels_no_protocol_is_known: r#"
        ofctl add-flow br0 'tcp,actions=push_mpls:0x8847,mod_tp_dst:5'
        ofctl -O OpenFlow13 dump-flows br0
        ofctl -O OpenFlow15 dump-flows br0
    "#;
    a_learned_flow_that_changes_goes_on_counting: r#"
        ofctl add-flow br0 'actions=learn(table=1,priority=12,NXM_NX_REG4[],output:NXM_OF_IN_PORT[]),resubmit(,1)'
        receive p3 5054000000015054000000020800
        appctl revalidator/purge
        receive p4 50540000000450540000000386dd
        appctl revalidator/purge
        ofctl dump-flows br0 table=1
    "#;
    misses_are_counted: r#"
        receive p1 5054000000025054000000010800
        appctl revalidator/purge
        appctl bridge/dump-flows br0
        ofctl set-frags br0 drop
        receive p1 50540000000250540000000108004500001c0007200040116ed70a0001010a0000020035003500080000
        appctl revalidator/purge
        appctl bridge/dump-flows br0
    "#;
    buckets_with_equal_numbers: r#"
        ofctl -O OpenFlow15 add-group br0 'group_id=2,type=all,bucket=bucket_id:0,actions=drop,bucket=bucket_id:0,actions=drop'
        ofctl -O OpenFlow15 add-group br0 'group_id=3,type=all,bucket=bucket_id:0,actions=drop'
        ofctl -O OpenFlow15 insert-buckets br0 'group_id=3,command_bucket_id=7,bucket=bucket_id:0,actions=drop'
        ofctl -O OpenFlow15 insert-buckets br0 'group_id=3,command_bucket_id=0,bucket=bucket_id:0,actions=drop'
        ofctl -O OpenFlow15 dump-groups br0
    "#;
    groups_that_are_not_there_yet: r#"
        ofctl -O OpenFlow13 add-group br0 'group_id=2,type=indirect,bucket=actions=group:3'
        ofctl -O OpenFlow13 add-flow br0 'actions=group:2'
        trace in_port=1,ip
        ofctl -O OpenFlow13 add-group br0 'group_id=3,type=indirect,bucket=actions=output:4'
        trace in_port=1,ip
        ofctl -O OpenFlow13 del-groups br0 group_id=3
        trace in_port=1,ip
        ofctl -O OpenFlow13 dump-groups br0
    "#;
    check_overlap_stays: r#"
        ofctl -O OpenFlow15 add-flow br0 'table=0,priority=65535,cookie=0x2,check_overlap,actions=drop'
        ofctl -O OpenFlow13 --no-stats dump-flows br0
        ofctl -O OpenFlow15 --no-stats dump-flows br0
        ofctl --no-stats dump-flows br0
    "#;
    half_a_service_tag: r#"
        ofctl add-flow br0 actions=NORMAL
        receive p1 50540000000250540000000188a8
        receive p1 5054000000025054000000018100
        appctl ofproto/trace br0 in_port=4 50540000000250540000000288a8a01488
        appctl fdb/show br0
        ofctl dump-ports br0
    "#;
    no_vlan_0_beside_a_native_vlan: r#"
        ofctl add-flow br0 actions=NORMAL
        vsctl set port p2 vlan_mode=native-tagged tag=10 -- set port p3 vlan_mode=native-untagged tag=10 -- set port p4 vlan_mode=native-tagged tag=10 trunks=0,20
        trace in_port=1,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:02
        vsctl set port p2 tag=0
        trace in_port=1,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:02
    "#;
    priority_tags_pass_trunks: r#"
        ofctl add-flow br0 actions=NORMAL
        appctl fdb/add br0 p2 0 50:54:00:00:00:02
        vsctl set open_vswitch . other_config:vlan-limit=2
        appctl ofproto/trace br0 in_port=1 505400000002505400000003810060000800450000140007000040066ad60a0001040a000001 | grep '^Datapath'
        appctl ofproto/trace br0 in_port=1 505400000002505400000003810000000800450000140007000040066ad60a0001040a000001 | grep '^Datapath'
        appctl ofproto/trace br0 in_port=1 505400000002505400000003810060008100000508004500001400070000400666d60a0001040a000001 | grep '^Datapath'
        appctl ofproto/trace br0 in_port=1 505400000002505400000003810000008100000508004500001400070000400666d60a0001040a000001 | grep '^Datapath'
        appctl ofproto/trace br0 in_port=1 505400000002505400000003810000008100200008004500001400070000400666d60a0001040a000001 | grep '^Datapath'
        vsctl set port p2 other_config:priority-tags=always
        appctl fdb/add br0 p2 0 50:54:00:00:00:02
        appctl ofproto/trace br0 in_port=1 505400000002505400000003810000000800450000140007000040066ad60a0001040a000001 | grep '^Datapath'
        appctl ofproto/trace br0 in_port=1 505400000002505400000003810000008100000508004500001400070000400666d60a0001040a000001 | grep '^Datapath'
        vsctl set port p1 tag=7
        appctl fdb/add br0 p2 7 50:54:00:00:00:02
        appctl ofproto/trace br0 in_port=1 505400000002505400000003810060000800450000140007000040066ad60a0001040a000001 | grep '^Datapath'
        appctl ofproto/trace br0 in_port=1 505400000002505400000003810000008100000508004500001400070000400666d60a0001040a000001 | grep '^Datapath'
        vsctl set port p2 tag=7
        appctl fdb/add br0 p2 7 50:54:00:00:00:02
        appctl ofproto/trace br0 in_port=1 505400000002505400000003810060000800450000140007000040066ad60a0001040a000001 | grep '^Datapath'
        appctl ofproto/trace br0 in_port=1 505400000002505400000003810000008100200008004500001400070000400666d60a0001040a000001 | grep '^Datapath'
    "#;
    learned_again_within_a_second: r#"
        ofctl add-flow br0 actions=NORMAL
        receive p1 5054000000035054000000010800
        appctl revalidator/purge
        receive p2 5054000000035054000000020800
        appctl revalidator/purge
        receive p1 5054000000045054000000010800
        appctl revalidator/purge
        appctl fdb/show br0
        appctl time/warp 2000
        receive p1 5054000000045054000000010800
        appctl revalidator/purge
        appctl fdb/show br0
    "#;
    modifying_nothing: r#"
        ofctl mod-flows br0 'table=2,cookie=0xffffffffffffffff,actions=group:1'
        ofctl -O OpenFlow13 mod-flows br0 'table=2,actions=group:1'
        ofctl mod-flows br0 'table=2,actions=group:1'
    "#;
    ports_of_an_unknown_protocol: r#"
        ofctl add-flow br0 'actions=mod_tp_src:80,mod_tp_dst:81'
        ofctl add-flow br0 'udp,actions=mod_tp_src:80,mod_tp_dst:81'
        ofctl -O OpenFlow13 --no-stats dump-flows br0
        ofctl -O OpenFlow15 --no-stats dump-flows br0
    "#;
    packet_types: r#"
        ofctl -O OpenFlow15 add-flow br0 'table=7,packet_type=(1,0x894f),actions=drop'
        ofctl -O OpenFlow15 add-flow br0 'table=7,packet_type=(1,10),actions=drop'
        ofctl -O OpenFlow15 add-flow br0 'table=7,packet_type=(0,9),reg0=1,actions=drop'
        ofctl -O OpenFlow15 add-flow br0 'table=7,packet_type=(35750,0xbcf5),actions=drop'
        ofctl -O OpenFlow15 --no-stats dump-flows br0
        appctl bridge/dump-flows br0 | grep packet_type | sort
    "#;
    inserting_behind_all_buckets: r#"
        ofctl -O OpenFlow15 add-group br0 'group_id=1,type=all'
        ofctl -O OpenFlow15 insert-buckets br0 'group_id=1,command_bucket_id=all'
    "#;
    cookies_of_misses: r#"
        ofctl add-flow br0 table=1,actions=drop
        appctl ofproto/trace br0 in_port=1,dl_type=0x1234
        ofctl -O OpenFlow13 add-flow br0 table=0,cookie=0x7,actions=CONTROLLER
        appctl ofproto/trace br0 in_port=1,dl_type=0x1234
    "#;
    empty_write_actions: r#"
        ofctl -O OpenFlow13 add-flow br0 'table=1,actions=write_actions(drop)'
        ofctl -O OpenFlow13 add-flow br0 'table=2,actions=write_actions(drop),goto_table:3'
        ofctl -O OpenFlow13 --no-stats dump-flows br0
        ofctl -O OpenFlow15 --no-stats dump-flows br0
        appctl bridge/dump-flows br0 | grep table_id=1
    "#;
    hard_timeouts_are_over_when_exceeded: r#"
        ofctl add-flow br0 'table=1,hard_timeout=8,actions=drop'
        ofctl add-flow br0 'table=1,reg0=1,idle_timeout=8,actions=drop'
        appctl time/warp 6000 1000
        appctl time/warp 2000 1000
        ofctl --no-stats dump-flows br0
        appctl time/warp 2000 1000
        ofctl --no-stats dump-flows br0
    "#;
    mpls_ttl_of_other_packets: r#"
        ofctl add-flow br0 'actions=dec_mpls_ttl,2'
        trace in_port=1,ip
    "#;
    queues_that_stay: r#"
        ofctl add-flow br0 'actions=pop_queue,set_queue:2,pop_queue,2'
        trace in_port=1,ip
    "#;
    texts_of_learning: r#"
        ofctl add-flow br0 'actions=learn(table=3,hard_timeout=10,idle_timeout=3,send_flow_rem,fin_idle_timeout=2,priority=2,cookie=0x9,load:0->NXM_NX_REG1[],NXM_OF_ETH_SRC[])'
        appctl ofproto/trace br0 in_port=3 5054000000045054000000020800 | grep -v Megaflow
        ofctl --no-stats dump-flows br0
    "#;
    what_controllers_may_not_match: r#"
        ofctl add-flow br0 'table=1,dp_hash=0,actions=drop'
        ofctl add-flow br0 'table=1,dp_hash=0x5/0xf,actions=drop'
        ofctl add-flow br0 'table=1,recirc_id=0,actions=drop'
        ofctl add-flow br0 'table=1,recirc_id=1,actions=drop'
        ofctl --no-stats dump-flows br0
    "#;
    headers_without_a_protocol_go_on_unchanged: r#"
        ofctl add-flow br0 'ip,actions=mod_nw_src:1.2.3.4,mod_nw_tos:32,mod_tp_dst:80,2'
        ofctl add-flow br0 'ipv6,actions=load:1->NXM_NX_IPV6_LABEL[],2'
        ofctl add-flow br0 'arp,actions=load:0x01020304->NXM_OF_ARP_SPA[],2'
        receive p1 50540000000250540000000108004500
        receive p1 505400000002505400000001080045000014000720004000
        receive p1 5054000000025054000000010800450000140007000040006ed70a0001010a000002
        receive p1 50540000000250540000000186dd6000
        receive p1 50540000000250540000000108060001080006040000505400000001
        receive p1 505400000002505400000001080600010800060400005054000000010a0000010000000000000a000002
        receive p1 505400000002505400000001080600010800060400015054000000010a0000010000000000000a000002
        appctl dpctl/dump-flows | grep -v op=1
        await_frame p2-tx.pcap; tail -c 42 p2-tx.pcap | od -An -v -tx1 -w42
        ofctl dump-ports br0 p2
    "#;
    bundles_of_reserved_ports: r#"
        ofctl add-flow br0 'in_port=1,actions=bundle(eth_src,0,active_backup,ofport,members:IN_PORT,2)'
        ofctl add-flow br0 'in_port=2,actions=bundle(eth_src,0,active_backup,ofport,members:FLOOD,1)'
        ofctl add-flow br0 'in_port=3,actions=bundle_load(eth_src,0,active_backup,ofport,NXM_NX_REG0[],members:9,ALL,1)'
        trace in_port=1
        trace in_port=2
        trace in_port=3
    "#;
    branches_with_nothing_to_do: r#"
        ofctl add-flow br0 'in_port=1,actions=check_pkt_larger(100)->NXM_NX_REG0[0]'
        ofctl add-flow br0 'in_port=2,actions=3,check_pkt_larger(100)->NXM_NX_REG0[0]'
        trace in_port=1
        trace in_port=2
    "#;
    transport_ports_of_icmp: r#"
        ofctl add-flow br0 'actions=mod_tp_src:3,mod_tp_dst:1,2'
        trace in_port=1,icmp | grep -v -e Uses -e 'slow path'
        trace in_port=1,icmp6 | grep -v -e Uses -e 'slow path'
        trace in_port=1,igmp
        trace in_port=1,sctp
        trace in_port=1,ip,nw_frag=later
        trace in_port=1,arp
        receive p1 50540000000250540000000108004500001c00070000400160d70a0001010a0000020800f7ff00000000
        appctl version
        await_frame p2-tx.pcap; od -An -v -tx1 -j40 -w42 p2-tx.pcap
    "#;
    what_controllers_may_not_change: r#"
        ofctl --strict del-flows br0 'table=254,priority=5,ip'
        ofctl del-flows br0 'table=254,ip'
        ofctl --strict del-flows br0 'table=254,priority=2,recirc_id=0'
        ofctl del-flows br0 'table=254'
        ofctl -O OpenFlow14 mod-flows br0 'table=254,dl_vlan=5,actions=drop'
        ofctl mod-flows br0 'table=254,ip,actions=drop'
        ofctl mod-flows br0 'table=1,cookie=1/1,dp_hash=5,actions=drop'
        appctl bridge/dump-flows br0 | grep -c table_id=254
    "#;
    a_trace_of_a_packet_tells_controllers: r#"
        ofctl -O OpenFlow13 add-meter br0 meter=1,pktps,stats,bands=type=drop,rate=10
        ofctl -O OpenFlow13 add-flow br0 'actions=meter:1,set_field:50:54:00:00:00:09->eth_dst,2,controller'
        ofctl monitor br0 65534 --detach --no-chdir --pidfile=$OVS_RUNDIR/monitor.pid 2>monitor.txt
        appctl ofproto/trace br0 in_port=1 50540000000250540000000108004500001c0007000040116ed70a0001010a0000020035003500080000 | tail -1 | grep -o 'meter.*'
        appctl ofproto/trace br0 in_port=1,ip | tail -1 | grep -o 'meter.*userspace'
        for try in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do grep -q PACKET_IN monitor.txt && break; sleep 0.2; done
        kill $(cat monitor.pid)
        cat monitor.txt
        ofctl -O OpenFlow13 meter-stats br0
        ofctl dump-ports br0 2
    "#;
    which_error_is_told_first: r#"
        ofctl -O OpenFlow14 add-group br0 'group_id=1,type=all,bucket=actions=2'
        ofctl -O OpenFlow13 add-flow br0 'table=1,ip,actions=clone(mod_nw_tos:32,output:2),goto_table:2'
        ofctl -O OpenFlow13 add-flow br0 'table=254,actions=group:9'
    "#;
    buckets_of_indirect_groups: r#"
        ofctl -O OpenFlow15 add-group br0 'group_id=2,type=indirect,bucket=bucket_id:0,actions=4'
        ofctl -O OpenFlow13 add-flow br0 'actions=group:2,3'
        ofctl -O OpenFlow15 insert-buckets br0 'group_id=2,command_bucket_id=last,bucket=bucket_id:1,actions=2'
        ofctl -O OpenFlow15 dump-groups br0
        trace in_port=1
        ofctl -O OpenFlow15 remove-buckets br0 'group_id=2,command_bucket_id=all'
        ofctl -O OpenFlow15 dump-groups br0
        trace in_port=1
    "#;
    groups_without_a_bucket_count_nothing: r#"
        ofctl -O OpenFlow13 add-group br0 'group_id=2,type=ff'
        ofctl -O OpenFlow13 add-group br0 'group_id=3,type=ff,bucket=watch_port:9,actions=2'
        ofctl -O OpenFlow13 add-group br0 'group_id=4,type=all'
        ofctl -O OpenFlow13 add-flow br0 'actions=group:2,group:3,group:4'
        receive p1 50540000000250540000000108004500001c0007000040116ed70a0001010a0000020035003500080000
        appctl revalidator/purge
        ofctl -O OpenFlow13 dump-group-stats br0
        trace in_port=1
    "#;
    buckets_that_are_not_live: r#"
        ofctl -O OpenFlow13 add-group br0 'group_id=3,type=ff,bucket=watch_port:9,actions=2,bucket=watch_port:7,actions=3,bucket=watch_port:1,actions=4,bucket=watch_port:6,actions=3'
        ofctl -O OpenFlow15 add-group br0 'group_id=4,type=ff,bucket=bucket_id:5,watch_port:9,actions=2'
        ofctl -O OpenFlow15 add-group br0 'group_id=5,type=select,selection_method=hash,bucket=watch_port:9,weight:1,actions=2,bucket=watch_port:8,weight:1,actions=3'
        ofctl -O OpenFlow13 add-flow br0 'actions=group:3,group:4'
        ofctl -O OpenFlow13 add-flow br0 'in_port=3,actions=group:5'
        trace in_port=1
        trace in_port=3
    "#;
    told_once_where_an_address_is: r#"
        vsctl add-br br1 -- set bridge br1 datapath_type=dummy fail_mode=standalone -- add-port br0 pa -- set interface pa type=patch options:peer=pb ofport_request=10 -- add-port br1 pb -- set interface pb type=patch options:peer=pa ofport_request=3
        ofctl add-flow br0 'actions=output:10,output:10'
        appctl ofproto/trace br0 in_port=4 5054000000025054000000030800 | grep -c learned
    "#;
    no_vlan_0_where_it_is_native_and_not_a_trunk: r#"
        ofctl add-flow br0 actions=NORMAL
        vsctl set port p2 vlan_mode=native-tagged trunks=5,7 -- set port p3 vlan_mode=native-untagged tag=0 trunks=5
        trace in_port=1,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:02
        trace in_port=2,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:02
        vsctl set port p2 tag=5 trunks=7
        trace in_port=1,dl_vlan=5,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:02
    "#;
    limits_reached_in_another_bridge: r#"
        vsctl add-br br1 -- set bridge br1 datapath_type=dummy fail_mode=standalone -- add-port br0 pa -- set interface pa type=patch options:peer=pb ofport_request=10 -- add-port br1 pb -- set interface pb type=patch options:peer=pa ofport_request=3
        ofctl add-flow br0 'actions=output:10,TABLE'
        appctl ofproto/trace br0 in_port=4 50540000000350540000000288a8 | grep -c TABLE
        appctl ofproto/trace br0 in_port=4 50540000000350540000000288a8 | tail -12 | grep -v Megaflow
        receive p4 50540000000350540000000288a8
        appctl revalidator/purge
        ofctl dump-ports br0 10
        ofctl dump-tables br0 | grep -A1 'table 0'
    "#;
    service_tags_have_no_room_beside_the_mtu: r#"
        ofctl add-flow br0 actions=2
        vsctl set interface p2 mtu_request=68
        receive p1 50540000000250540000000188a8$(printf '00%.0s' $(seq 69))
        receive p1 5054000000025054000000018100$(printf '00%.0s' $(seq 69))
        receive p1 50540000000250540000000188a8$(printf '00%.0s' $(seq 68))
        appctl revalidator/purge
        ofctl dump-ports br0 2 | grep 'tx pkts' | cut -d, -f1,2
    "#;
    packets_of_an_action_set_have_the_first_rules_cookie: r#"
        ofctl -O OpenFlow13 add-flow br0 'cookie=0x2,actions=write_actions(CONTROLLER:0),goto_table:1'
        ofctl -O OpenFlow13 add-flow br0 'table=1,cookie=0x3,actions=drop'
        appctl ofproto/trace br0 in_port=4,udp | tail -1
    "#;
    a_learned_flow_is_told_before_its_result: r#"
        ofctl add-flow br0 'actions=learn(table=2,priority=104,result_dst=NXM_NX_REG1[1],load:0xffffffff->NXM_NX_XXREG0[])'
        appctl ofproto/trace br0 in_port=2 5054000000025054000000031234 | grep -v Megaflow
        receive p2 5054000000025054000000031234
        appctl revalidator/purge
        appctl bridge/dump-flows br0 | grep table_id=2
    "#;
    what_a_limit_keeps_from_being_learned: r#"
        ofctl add-flow br0 'actions=learn(table=2,idle_timeout=5,priority=4,limit=1,result_dst=OXM_OF_METADATA[0],NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],load:NXM_OF_IN_PORT[]->NXM_NX_REG0[0..15])'
        receive p3 5054000000025054000000030800
        appctl revalidator/purge
        appctl ofproto/trace br0 in_port=4 5054000000025054000000040800 | grep -v Megaflow
        ofctl add-flow br0 'table=0,actions=learn(table=2,priority=4,limit=1,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[])'
        appctl ofproto/trace br0 in_port=4 5054000000025054000000040800 | grep -v Megaflow
        appctl bridge/dump-flows br0 | grep table_id=2
    "#;
    the_last_label_may_be_taken_off_and_the_type_stay: r#"
        ofctl add-flow br0 'mpls,actions=pop_mpls:0x8847,2'
        appctl ofproto/trace br0 in_port=3 5054000000045054000000038847fffff34000003f01cba99c6b1b8c4743e9ea0b00 | tail -1
    "#;
    vlan_headers_beyond_the_limit_hide_nothing: r#"
        ofctl -O OpenFlow13 add-flow br0 'in_port=1,ip,actions=push_vlan:0x8100,set_field:4105->vlan_vid,set_field:10.0.0.9->nw_dst,output:2'
        ofctl -O OpenFlow13 add-flow br0 'in_port=3,actions=pop_vlan,push_mpls:0x8847,output:4'
        receive p1 50540000000250540000000181000005080045000020000700004011667a0a0001010a000002003500350000000000000000
        receive p3 5054000000025054000000018100000581000006080045000020000700004011667a0a0001010a000002003500350000000000000000
        await_frame p2-tx.pcap; od -An -v -tx1 -j40 p2-tx.pcap
        await_frame p4-tx.pcap; od -An -v -tx1 -j40 p4-tx.pcap
    "#;
    popped_labels_and_the_next_bridge: r#"
        vsctl add-br br1 -- set bridge br1 datapath_type=dummy fail_mode=secure other_config:hwaddr=aa:55:aa:55:00:01 -- add-port br0 pa -- set interface pa type=patch options:peer=pb ofport_request=10 -- add-port br1 pb -- set interface pb type=patch options:peer=pa ofport_request=3
        ofctl add-flow br0 'actions=pop_mpls:0x0800,output:10'
        ofctl add-flow br1 'ip,nw_dst=10.0.0.2,actions=IN_PORT'
        ofctl add-flow br1 'priority=1,ip,nw_dst=0.0.0.0,actions=drop'
        receive p1 505400000002505400000001884700005140450000200007000040116680a0001010a000002003500350000000000000000
        receive p1 505400000002505400000001884700005140450000200007000040116680a0001010a000003003500350000000000000000
        appctl revalidator/purge
        ofctl dump-flows br0 | cut -d, -f3-5
        appctl bridge/dump-flows br1 | sort
        appctl ofproto/trace br0 in_port=3 505400000002505400000001884700005140450000200007000040116680a0001010a000002003500350000000000000000 | grep -v Megaflow
    "#;
    modified_groups_count_anew: r#"
        ofctl -O OpenFlow15 add-group br0 'group_id=1,type=all,bucket=bucket_id:0,actions=output:1'
        ofctl -O OpenFlow15 add-flow br0 actions=group:1
        receive p3 5054000000035054000000010800
        appctl revalidator/purge
        ofctl -O OpenFlow15 mod-group br0 'group_id=1,type=all,bucket=bucket_id:0,actions=output:1'
        ofctl -O OpenFlow15 dump-group-stats br0
        receive p3 5054000000035054000000010800
        appctl revalidator/purge
        ofctl -O OpenFlow15 insert-buckets br0 'group_id=1,command_bucket_id=last,bucket=bucket_id:7,actions=drop'
        ofctl -O OpenFlow15 dump-group-stats br0
        receive p3 5054000000035054000000010800
        appctl revalidator/purge
        ofctl -O OpenFlow15 remove-buckets br0 'group_id=1,command_bucket_id=7'
        ofctl -O OpenFlow15 dump-group-stats br0
    "#;
    what_is_learned_of_headers_as_text: r#"
        ofctl add-flow br0 'actions=learn(table=2,vlan_vid=4106)'
        ofctl add-flow br0 'table=3,actions=learn(table=2,vlan_vid=5)'
        ofctl add-flow br0 'table=4,actions=learn(table=2,packet_type=(0,2))'
        appctl bridge/dump-flows br0 | grep learn | sort
        ofctl --no-stats dump-flows br0
    "#;
    a_fourth_label: r#"
        ofctl -O OpenFlow13 add-flow br0 'actions=push_mpls:0x8847'
        appctl ofproto/trace br0 in_port=4 50540000000150540000000288470000064000064840fffff1004500 | grep -v Megaflow
    "#;
    two_headers_from_a_tunnel: r#"
        ofctl -O OpenFlow13 add-flow br0 'actions=push_vlan:0x8100,set_field:4105->vlan_vid,NORMAL'
        vsctl set port p1 vlan_mode=dot1q-tunnel tag=10
        receive p1 50540000000250540000000181000005080045000020000700004011667a0a0001010a000002003500350000000000000000
        appctl revalidator/purge
        appctl fdb/show br0
        for port in 2 3 4; do ofctl dump-ports br0 $port | grep -o 'tx pkts=[0-9]*'; done
    "#;
    an_address_that_a_copy_shows_elsewhere: r#"
        vsctl add-br br1 -- set bridge br1 datapath_type=dummy fail_mode=secure -- add-port br0 pa -- set interface pa type=patch options:peer=pb ofport_request=10 -- add-port br1 pb -- set interface pb type=patch options:peer=pa ofport_request=3
        ofctl add-flow br0 actions=NORMAL
        ofctl add-flow br1 actions=IN_PORT,IN_PORT
        receive p4 5054000000025054000000030800
        appctl fdb/show br0
        appctl ofproto/trace br0 in_port=2 5054000000025054000000030800 | grep learned
        appctl fdb/show br0
    "#;
    a_label_taken_off_and_put_back: r#"
        vsctl add-br br1 -- set bridge br1 datapath_type=dummy fail_mode=secure -- add-port br1 p5 -- set interface p5 type=dummy ofport_request=1 -- add-port br0 pa -- set interface pa type=patch options:peer=pb ofport_request=10 -- add-port br1 pb -- set interface pb type=patch options:peer=pa ofport_request=3
        ofctl -O OpenFlow15 add-flow br0 'actions=write_actions(pop_mpls:0x8848,output:4)'
        ofctl -O OpenFlow15 add-flow br1 'actions=clone(3),3,IN_PORT'
        receive p5 505400000004505400000003884800000340fb97d14dc01422e39ab713e03619971b
        await_frame p4-tx.pcap; od -An -v -tx1 -j40 -N30 p4-tx.pcap
        await_frame p4-tx.pcap; tail -c 30 p4-tx.pcap | od -An -v -tx1
        appctl ofproto/trace br1 in_port=1 505400000004505400000003884800000340fb97d14dc01422e39ab713e03619971b | tail -1
        ofctl -O OpenFlow13 add-flow br0 'mpls,actions=pop_mpls:0x8847,pop_mpls:0x0800,output:2,push_mpls:0x8848,output:3'
        appctl ofproto/trace br0 in_port=1 50540000000450540000000388470000034045000014000000004000000000000000 | tail -1
    "#;
    no_labels_without_an_ethernet_header: r#"
        ofctl add-flow br0 'table=2,packet_type=(0,2),actions=push_mpls:0x8848'
        ofctl -O OpenFlow13 add-flow br0 'table=3,packet_type=(1,0x8847),actions=dec_mpls_ttl'
        ofctl --no-stats dump-flows br0
        ofctl -O OpenFlow13 --no-stats dump-flows br0
    "#;
    an_overdue_rule_ends_though_the_clock_stands: r#"
        ofctl add-flow br0 'actions=fin_timeout(idle_timeout=2,hard_timeout=1),2'
        appctl time/warp 20000
        receive p1 5054000000025054000000010800450000280000000040067ccd0a0000010a000002000a0014000000000000000050010000bbc00000
        appctl revalidator/purge
        sleep 1
        ofctl --no-stats dump-flows br0
    "#;
    a_flow_that_names_a_group_twice_counts_twice: r#"
        ofctl -O OpenFlow13 add-group br0 'group_id=2,type=all,bucket=output:2'
        ofctl -O OpenFlow13 add-flow br0 'table=0,actions=group:2,clone(group:2),group:2'
        ofctl -O OpenFlow13 add-flow br0 'table=1,actions=write_actions(group:2)'
        ofctl -O OpenFlow13 dump-group-stats br0
    "#;
    learned_again_with_lowered_timeouts: r#"
        ofctl add-flow br0 'actions=resubmit(,1),learn(table=1,idle_timeout=5,fin_idle_timeout=2,priority=32770,load:0->NXM_NX_PKT_MARK[])'
        receive p1 50540000000250540000000488a8
        appctl revalidator/purge
        receive p1 5054000000045054000000028100cfff080045010028000700000206a2c30a0001040a0001021388000000000000000000005004000086530000
        appctl revalidator/purge
        ofctl dump-flows br0 table=1
    "#;
    below_labels_that_all_go_is_mpls: r#"
        ofctl add-flow br0 'mplsm,actions=pop_mpls:0x0800,2'
        ofctl add-flow br0 'mpls,actions=pop_mpls:0x0800,2'
        appctl ofproto/trace br0 in_port=4 505000000002505400000001884800065c0200064c02fffff7401174723e6044d6576ccc81c85e18cfe3 | tail -1
        appctl ofproto/trace br0 in_port=4 505000000002505400000001884700065c0200064c02fffff7401174723e6044d6576ccc81c85e18cfe3 | tail -1
    "#;
    what_cannot_be_learned: r#"
        ofctl add-flow br0 'actions=learn(table=254,hard_timeout=10,priority=10,cookie=0x9,limit=2,reg10=0,result_dst=reg1[0])'
        appctl ofproto/trace br0 in_port=1 5054000000025054000000031234
    "#;
    what_is_learned_at_its_limit_does_not_change: r#"
        ofctl add-flow br0 'actions=learn(table=3,priority=12,cookie=0x9,limit=2,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],load:NXM_OF_IN_PORT[]->NXM_NX_REG0[0..15])'
        receive p4 168ed5fc5fda7b579e06fb8186dd
        appctl revalidator/purge
        receive p1 5054000000025054000000040800
        appctl revalidator/purge
        receive p3 168ed5fc5fda7b579e06fb8186dd
        appctl revalidator/purge
        ofctl dump-flows br0 table=3
        appctl ofproto/trace br0 in_port=3 168ed5fc5fda7b579e06fb8186dd | grep -v Megaflow
    "#;
    a_group_behind_popped_labels_counts_at_once: r#"
        ofctl -O OpenFlow13 add-group br0 'group_id=1,type=all,bucket=output:2,bucket=mod_nw_ttl:3,output:3'
        ofctl -O OpenFlow13 add-group br0 'group_id=2,type=ff,bucket=watch_port:1,actions=output:2'
        ofctl add-flow br0 'actions=pop_mpls:0x0800,group:1,group:2'
        receive p4 5054000000015054000000018847000641404500001c0007000040116ed70a0001010a0000020035003500080000
        appctl revalidator/purge
        ofctl -O OpenFlow13 dump-group-stats br0
    "#;
    packets_come_back_behind_popped_labels: r#"
        ofctl -O OpenFlow13 add-group br0 'group_id=1,type=all'
        ofctl add-flow br0 'table=1,in_port=4,actions=pop_mpls:0x0800,check_pkt_larger(1500)->NXM_NX_REG1[0],group:1'
        ofctl -O OpenFlow13 add-flow br0 'table=1,in_port=3,actions=push_mpls:0x8847,pop_mpls:0x86dd,mod_vlan_pcp:1,goto_table:2'
        ofctl -O OpenFlow13 add-flow br0 'table=2,actions=drop'
        ofctl add-flow br0 'actions=resubmit(,1)'
        receive p4 50540000000150540000000181006014884800003040000031ffb38ae96c5649a0dd
        receive p3 50540000000450540000000386dd
        appctl revalidator/purge
        ofctl -O OpenFlow13 dump-group-stats br0
        appctl bridge/dump-flows br0
    "#;
    which_actions_wait_for_what_is_below_labels: r#"
        ofctl add-flow br0 'in_port=1,actions=pop_mpls:0x0800,load:0xfff9->NXM_NX_REG1[0..15],output:NXM_NX_REG1[],2'
        trace in_port=1,mpls,mpls_label=5,mpls_bos=1
        ofctl add-flow br0 'in_port=1,actions=pop_mpls:0x0800,TABLE,2'
        trace in_port=1,mpls,mpls_label=5,mpls_bos=1
        ofctl add-flow br0 'in_port=1,actions=pop_mpls:0x0800,enqueue:2:1,mod_vlan_vid:3,mod_vlan_pcp:2,mod_dl_src:00:00:00:00:00:03,set_queue:1,2'
        trace in_port=1,mpls,mpls_label=5,mpls_bos=1
        ofctl add-flow br0 'in_port=1,actions=pop_mpls:0x0800,exit'
        trace in_port=1,mpls,mpls_label=5,mpls_bos=1
        ofctl add-flow br0 'in_port=1,actions=pop_mpls:0x0800,push:NXM_NX_REG1[],2'
        trace in_port=1,mpls,mpls_label=5,mpls_bos=1
        ofctl add-flow br0 'in_port=1,actions=pop_mpls:0x0800,move:NXM_NX_REG1[]->NXM_NX_REG2[],2'
        trace in_port=1,mpls,mpls_label=5,mpls_bos=1
        ofctl add-flow br0 'in_port=1,actions=pop_mpls:0x0800,strip_vlan,2'
        trace in_port=1,mpls,mpls_label=5,mpls_bos=1
        ofctl -O OpenFlow13 add-flow br0 'in_port=1,actions=pop_mpls:0x0800,write_metadata:1'
        trace in_port=1,mpls,mpls_label=5,mpls_bos=1
        ofctl -O OpenFlow13 add-group br0 'group_id=1,type=select,bucket=output:2'
        ofctl -O OpenFlow13 add-flow br0 'in_port=1,actions=pop_mpls:0x0800,group:1,3'
        trace in_port=1,mpls,mpls_label=5,mpls_bos=1
        ofctl add-flow br0 'in_port=1,actions=clone(pop_mpls:0x0800,2),strip_vlan,3'
        trace in_port=1,mpls,mpls_label=5,mpls_bos=1 | grep -v Megaflow
        ofctl add-flow br0 'in_port=1,actions=clone(pop_mpls:0x0800,2),3'
        trace in_port=1,mpls,mpls_label=5,mpls_bos=1 | grep -v Megaflow
    "#;
    what_is_stored_is_one_list: r#"
        ofctl add-flow br0 'mpls,actions=resubmit(,1),output:NXM_NX_REG1[],3'
        ofctl add-flow br0 'table=1,actions=pop_mpls:0x0800,check_pkt_larger(30)->NXM_NX_REG1[1]'
        receive p1 5054000000015054000000028847000641404500001c0007000040116ed70a0001010a0000020035003500080000
        receive p1 505400000001505400000002884700064140450000140007000040116ed70a0001010a000002
        receive p1 5054000000015054000000028847000641404500
        appctl revalidator/purge
        appctl bridge/dump-flows br0
        ofctl dump-ports br0
    "#;
    below_labels_with_nothing_left_to_do: r#"
        ofctl add-flow br0 'in_port=1,mpls,actions=pop_mpls:0x0800,note:01'
        ofctl add-flow br0 'ip,actions=3'
        receive p1 5054000000015054000000028847000641404500001c0007000040116ed70a0001010a0000020035003500080000
        appctl revalidator/purge
        appctl bridge/dump-flows br0
    "#;
    instructions_are_actions_when_a_packet_comes_back: r#"
        ofctl -O OpenFlow11 mod-table br0 1 controller
        ofctl -O OpenFlow11 mod-table br0 2 continue
        ofctl -O OpenFlow13 add-flow br0 'in_port=1,mpls,actions=pop_mpls:0x0800,write_metadata:5,goto_table:1'
        ofctl -O OpenFlow13 add-flow br0 'in_port=3,mpls,actions=pop_mpls:0x0800,goto_table:2'
        ofctl -O OpenFlow13 add-flow br0 'table=1,metadata=4,actions=drop'
        ofctl -O OpenFlow13 add-flow br0 'table=3,actions=drop'
        receive p1 5054000000015054000000028847000641404500001c0007000040116ed70a0001010a0000020035003500080000
        receive p3 5054000000015054000000028847000641404500001c0007000040116ed70a0001010a0000020035003500080000
        appctl revalidator/purge
        appctl bridge/dump-flows br0
    "#;
    exit_ends_the_lists_around_clones_and_the_action_set: r#"
        ofctl add-flow br0 'actions=clone(2,exit),3'
        trace in_port=1,ip
        ofctl add-flow br0 'actions=clone(output(port=2,max_len=64),exit),3'
        trace in_port=1,ip
        ofctl add-flow br0 'actions=resubmit(,1),4'
        ofctl add-flow br0 'table=1,actions=clone(2,exit),3'
        trace in_port=1,ip
        ofctl add-flow br0 'table=1,actions=clone(pop_mpls:0x0800,dec_ttl,2),3'
        trace in_port=1,mpls,mpls_label=5,mpls_bos=1
        ofctl add-flow br0 'table=1,actions=check_pkt_larger(100)->NXM_NX_REG1[0],2,exit'
        trace in_port=1,ip | grep 'Datapath actions'
        ofctl -O OpenFlow13 add-flow br0 'table=0,actions=write_actions(output:2),goto_table:1'
        ofctl -O OpenFlow13 add-flow br0 'table=1,actions=exit'
        trace in_port=1,ip | grep -v 'Final flow'
    "#;
    queues_of_an_action_set_are_set_in_order: r#"
        ofctl -O OpenFlow13 add-flow br0 'actions=write_actions(set_queue:2,mod_nw_ttl:3,set_queue:1,output:2)'
        trace in_port=1,ip,nw_ttl=64
    "#;
    matches_of_what_is_hidden_are_not_learned: r#"
        ofctl add-flow br0 'in_port=1,actions=learn(table=3,recirc_id=2,result_dst=NXM_NX_REG1[0])'
        ofctl add-flow br0 'in_port=2,actions=learn(table=3,recirc_id=0,result_dst=NXM_NX_REG1[0])'
        ofctl add-flow br0 'in_port=3,actions=learn(table=3,dp_hash=0)'
        appctl ofproto/trace br0 in_port=1 5054000000025054000000031234
        appctl ofproto/trace br0 in_port=2 5054000000025054000000031234
        appctl ofproto/trace br0 in_port=3 5054000000025054000000031234
        receive p1 5054000000025054000000031234
        receive p3 5054000000025054000000031234
        appctl revalidator/purge
        appctl bridge/dump-flows br0
    "#;
    a_trace_learns_nothing_and_has_no_result: r#"
        ofctl add-flow br0 'actions=learn(table=254,priority=10,limit=2,result_dst=NXM_NX_REG1[0]),resubmit(,1)'
        ofctl add-flow br0 'table=1,reg1=1,actions=2'
        trace in_port=1
        ofctl add-flow br0 'actions=learn(table=3,priority=10,limit=2,result_dst=NXM_NX_REG1[0]),resubmit(,1)'
        trace in_port=1
    "#;
    fin_timeout_of_what_has_labels_by_then: r#"
        ofctl add-flow br0 'actions=push_mpls:0x8847,fin_timeout(idle_timeout=3,hard_timeout=2)'
        receive p2 5054000000025054000000010800450000280000000040066ecf0a0001010a0000020035003500000000000000005004000000000000
        ofctl dump-flows br0
    "#;
    fin_timeout_in_a_clone_ends_the_rule: r#"
        ofctl add-flow br0 'actions=clone(fin_timeout(idle_timeout=2,hard_timeout=4),output:4)'
        receive p2 50540000000250540000000108004500002800000000400666ce0a0001010a0000020035003500000000000000005001000000000000
        appctl revalidator/purge
        appctl time/warp 20000
        ofctl dump-flows br0
    "#;
    a_label_too_many_ends_the_bucket_alone: r#"
        ofctl -O OpenFlow13 add-group br0 'group_id=4,type=all,bucket=actions=push_mpls:0x8847,output:3,bucket=actions=output:1'
        ofctl -O OpenFlow13 add-flow br0 'actions=group:4,output:4'
        appctl ofproto/trace br0 in_port=2 0180c200000150540000000488480006460200003801000007401636 | tail -1
    "#;
    parts_of_ports_are_set: r#"
        ofctl -O OpenFlow15 add-flow br0 'table=1,priority=1,actions=load:0->NXM_OF_IN_PORT[15]'
        ofctl -O OpenFlow15 add-flow br0 'table=1,priority=2,actions=load:3->NXM_OF_IN_PORT[14..15]'
        ofctl -O OpenFlow15 add-flow br0 'table=1,priority=3,actions=load:1->NXM_OF_IN_PORT[]'
        ofctl -O OpenFlow15 add-flow br0 'table=1,priority=4,actions=learn(table=2,in_port_oxm=2178209287)'
        appctl bridge/dump-flows br0 | grep table_id=1
    "#;
    packet_types_to_learn: r#"
        ofctl add-flow br0 'table=1,actions=learn(table=3,packet_type=(0,0))'
        ofctl add-flow br0 'table=2,actions=learn(table=3,packet_type=(1,0x0800))'
        appctl bridge/dump-flows br0 | grep -v table_id=254
    "#;
    parts_of_fields_by_openflow_1_0: r#"
        ofctl add-flow br0 'priority=1,ip,nw_src=10.0.3.0/255.0.255.0,actions=drop'
        ofctl add-flow br0 'priority=2,ip,nw_dst=0.0.0.5/0.0.0.7,actions=drop'
        ofctl add-flow br0 'priority=3,tcp,tp_src=0x100/0x6100,actions=drop'
        ofctl add-flow br0 'priority=4,dl_dst=01:00:00:00:00:00/03:00:00:00:00:00,actions=drop'
        ofctl add-flow br0 'priority=5,vlan_tci=0x0000/0x0800,actions=drop'
        ofctl add-flow br0 'priority=6,vlan_tci=0x3003/0x7003,actions=drop'
        ofctl add-flow br0 'priority=7,vlan_tci=0x2000/0x2000,actions=drop'
        ofctl -F openflow10 dump-flows br0
        ofctl -F nxm dump-flows br0
    "#;
    no_meter_in_a_bucket: r#"
        ofctl -O OpenFlow15 add-meter br0 meter=1,kbps,band=type=drop,rate=1000
        ofctl -O OpenFlow15 add-group br0 'group_id=3,type=all,bucket=actions=meter:1,mod_dl_src:00:00:00:00:00:01,output:2'
        ofctl -O OpenFlow15 add-flow br0 'actions=group:3'
        trace in_port=3
    "#;
    traces_show_port_0_as_no_port: r#"
        ofctl add-flow br0 'actions=load:0->NXM_OF_IN_PORT[],2'
        trace in_port=1
    "#;
    an_action_set_that_goes_nowhere_was_empty: r#"
        ofctl -O OpenFlow13 add-flow br0 'actions=write_actions(load:1->NXM_NX_REG1[]),goto_table:1'
        ofctl -O OpenFlow13 add-flow br0 'table=1,actions=clear_actions'
        trace in_port=1
    "#;
    loose_changes_of_ethernet_packets: r#"
        ofctl -O OpenFlow15 add-flow br0 'priority=1,dl_dst=00:00:00:00:00:01,actions=drop'
        ofctl -O OpenFlow15 add-flow br0 'priority=2,ip,actions=drop'
        ofctl -O OpenFlow15 add-flow br0 'priority=3,in_port=1,actions=drop'
        ofctl -O OpenFlow15 add-flow br0 'priority=4,packet_type=(0,0),actions=drop'
        ofctl -O OpenFlow15 add-flow br0 'priority=5,vlan_tci=0,actions=drop'
        ofctl -O OpenFlow15 mod-flows br0 'packet_type=(0,0),actions=output:1'
        ofctl -O OpenFlow15 dump-flows br0
        ofctl -O OpenFlow15 dump-flows br0 'packet_type=(0,0)'
        ofctl -O OpenFlow15 del-flows br0 'packet_type=(0,0)'
        ofctl -O OpenFlow15 dump-flows br0
    "#;
    moves_of_what_is_not_there: r#"
        ofctl -O OpenFlow13 add-group br0 'group_id=1,type=indirect,bucket=actions=move:OXM_OF_IP_DSCP[3..5]->OXM_OF_PKT_REG3[0..2],move:NXM_NX_REG0[0..5]->OXM_OF_IP_DSCP[0..5],output:2'
        ofctl -O OpenFlow13 add-group br0 'group_id=2,type=indirect,bucket=actions=move:NXM_NX_REG0[0..5]->NXM_OF_TCP_SRC[0..5],output:3'
        ofctl -O OpenFlow13 add-flow br0 'actions=group:1,group:2'
        trace in_port=4,dl_type=0x9100
        trace in_port=4,arp
        trace in_port=4,udp,udp_src=7
    "#;
    packets_between_bridges_end: r#"
        vsctl add-br br1 -- set bridge br1 datapath_type=dummy fail_mode=secure
        vsctl add-port br1 p6 -- set interface p6 type=dummy ofport_request=2
        vsctl add-port br0 pa -- set interface pa type=patch options:peer=pb ofport_request=10
        vsctl add-port br1 pb -- set interface pb type=patch options:peer=pa ofport_request=3
        ofctl -O OpenFlow14 add-flow br0 'actions=IN_PORT'
        ofctl -O OpenFlow14 add-flow br1 'actions=IN_PORT,write_actions(pop_mpls:0x1234,output:3)'
        receive p6 50540000000450540000000388a88fff884800003e0200000f40e72061e5c35e877f
        appctl revalidator/purge
        ofctl dump-flows br0
        ofctl dump-flows br1
    "#;
    learning_a_flow_again_is_no_use_of_it: r#"
        ofctl add-flow br0 'actions=learn(table=2,idle_timeout=60,load:NXM_OF_IN_PORT[]->NXM_NX_REG0[0..15],NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[])'
        receive p4 50540000000450540000000386dd
        receive p4 50540000000450540000000586dd
        appctl revalidator/purge
        appctl time/warp 40000
        receive p1 50540000000450540000000386dd
        receive p4 50540000000450540000000586dd
        appctl revalidator/purge
        ofctl dump-flows br0 table=2
        appctl time/warp 21000
        ofctl dump-flows br0 table=2
    "#;
    a_flow_that_is_changed_forgets_what_it_learned: r#"
        ofctl add-flow br0 'table=2,priority=107,actions=drop'
        ofctl add-flow br0 'table=2,priority=108,cookie=5,actions=drop'
        ofctl add-flow br0 'cookie=1,actions=learn(table=2,delete_learned,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[])'
        ofctl mod-flows br0 'cookie=1/1,actions=drop'
        ofctl --no-stats dump-flows br0
        ofctl add-flow br0 'actions=learn(table=2,cookie=5,priority=3,delete_learned,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[])'
        ofctl add-flow br0 'actions=learn(table=2,cookie=5,priority=4,delete_learned,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[])'
        ofctl --no-stats dump-flows br0
        ofctl add-flow br0 'actions=drop'
        ofctl --no-stats dump-flows br0
    "#;
    no_flow_learns_the_switchs_own: r#"
        ofctl add-flow br0 'actions=learn(table=254,delete_learned,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[])'
        ofctl --no-stats dump-flows br0
        ofctl mod-flows br0 'actions=drop'
        ofctl del-flows br0
        appctl bridge/dump-flows br0
    "#;
    branches_on_length_are_no_depth: r#"
        ofctl -O OpenFlow13 add-flow br0 'actions=check_pkt_larger(100)->NXM_NX_REG3[0],TABLE'
        receive p1 50540000000150540000000388a8
        appctl revalidator/purge
        ofctl dump-flows br0
    "#;
    branches_on_length_are_allowed_at_the_last_level: r#"
        vsctl add-br br1 -- set bridge br1 datapath_type=dummy fail_mode=secure
        vsctl add-port br1 p6 -- set interface p6 type=dummy ofport_request=2
        vsctl add-port br0 pa -- set interface pa type=patch options:peer=pb ofport_request=10
        vsctl add-port br1 pb -- set interface pb type=patch options:peer=pa ofport_request=3
        ofctl add-flow br0 'actions=output:10'
        ofctl add-flow br1 'actions=check_pkt_larger(0)->OXM_OF_METADATA[0],output:2,resubmit(,0)'
        receive p1 5054000000025054000000010806
        appctl revalidator/purge
        ofctl dump-ports br1 2
    "#;
    reasons_behind_groups_and_patch_ports: r#"
        vsctl add-br br1 -- set bridge br1 datapath_type=dummy fail_mode=secure
        vsctl add-port br0 pa -- set interface pa type=patch options:peer=pb ofport_request=10
        vsctl add-port br1 pb -- set interface pb type=patch options:peer=pa ofport_request=3
        ofctl -vconsole:off monitor br0 65534 -P nxt_packet_in --detach --no-chdir --pidfile=m.pid --unixctl=m.ctl >m.txt 2>&1
        ofctl -vconsole:off monitor br1 65534 -P nxt_packet_in --detach --no-chdir --pidfile=m1.pid --unixctl=m1.ctl >m1.txt 2>&1
        ofctl -O OpenFlow13 add-group br0 'group_id=1,type=all,bucket=resubmit(,1)'
        ofctl -O OpenFlow13 add-group br0 'group_id=2,type=all,bucket=controller'
        ofctl -O OpenFlow13 add-flow br0 'in_port=1,actions=group:1,group:2,controller'
        ofctl -O OpenFlow13 add-flow br0 'table=1,priority=5,arp,actions=controller,clone(controller)'
        ofctl -O OpenFlow13 add-flow br0 'table=1,priority=0,actions=controller'
        ofctl add-flow br1 'priority=0,actions=controller'
        receive p1 505400000002505400000001080600010800060400015054000000010a0000010000000000000a000002
        receive p1 50540000000250540000000188cc
        ofctl packet-out br0 in_port=controller,packet=50540000000250540000000188cc,actions=output:10,controller
        sleep 0.3
        cat m.txt m1.txt
    "#;
    a_miss_behind_the_last_table: r#"
        ofctl -O OpenFlow11 mod-table br0 252 continue
        ofctl -O OpenFlow11 mod-table br0 253 continue
        ofctl -O OpenFlow13 add-flow br0 'actions=goto_table:252'
        appctl ofproto/trace br0 in_port=1,ip
        ofctl -O OpenFlow11 mod-table br0 0 controller
        ofctl del-flows br0
        appctl ofproto/trace br0 in_port=1,ip
        appctl ofproto/trace-packet-out br0 in_port=controller,ip actions=TABLE
        ofctl mod-port br0 p1 no-packet-in
        appctl ofproto/trace br0 in_port=1,ip
        ofctl -O OpenFlow11 mod-table br0 0 continue
        ofctl add-flow br0 'priority=2,reg0=0,actions=load:0xfff9->NXM_NX_REG0[0..15],output:NXM_NX_REG0[0..15]'
        ofctl add-flow br0 'table=1,reg0=0xfff9,actions=2'
        appctl ofproto/trace br0 in_port=1,ip
    "#;
    a_bond_takes_packets_by_its_active_member: r#"
        vsctl add-bond br0 bond0 q1 q2 bond_mode=active-backup other_config:bond-primary=q1 -- set interface q1 type=dummy ofport_request=21 -- set interface q2 type=dummy ofport_request=22
        appctl time/warp 3000 1000
        ofctl add-flow br0 actions=NORMAL
        appctl ofproto/trace br0 in_port=22,dl_src=50:54:00:00:00:01,dl_dst=ff:ff:ff:ff:ff:ff -generate
        appctl fdb/show br0
        appctl ofproto/trace br0 in_port=21,dl_src=50:54:00:00:00:01,dl_dst=ff:ff:ff:ff:ff:ff -generate
    "#;
    a_bond_goes_back_to_its_primary_member: r#"
        vsctl add-bond br0 bond0 q1 q2 bond_mode=active-backup other_config:bond-primary=q1 -- set interface q1 type=dummy options:tx_pcap=q1-tx.pcap -- set interface q2 type=dummy options:tx_pcap=q2-tx.pcap
        appctl time/warp 3000 1000
        ofctl add-flow br0 actions=NORMAL
        receive p1 5054000000025054000000011234
        appctl revalidator/purge
        appctl netdev-dummy/set-admin-state q1 down
        appctl time/warp 3000 1000
        appctl bond/show bond0 | grep -v ' mac: '
        await_frame q2-tx.pcap; tail -c 42 q2-tx.pcap | od -An -v -tx1 -w42
        appctl netdev-dummy/set-admin-state q1 up
        appctl time/warp 3000 1000
        appctl bond/show bond0 | grep -v ' mac: '
        await_frame q1-tx.pcap; tail -c 42 q1-tx.pcap | od -An -v -tx1 -w42
        vsctl set port bond0 other_config:bond-primary=q9
        appctl bond/show bond0 | grep primary
        vsctl remove port bond0 other_config bond-primary
        appctl bond/show bond0 | grep primary
    "#;
    a_table_whose_limit_is_lowered: r#"
        ofctl add-flow br0 'hard_timeout=100,importance=3,tcp,actions=1'
        ofctl add-flow br0 'hard_timeout=50,udp,actions=1'
        ofctl add-flow br0 'hard_timeout=60,icmp,actions=1'
        ofctl add-flow br0 'arp,actions=1'
        vsctl -- --id=@t create flow_table flow_limit=2 overflow_policy=evict -- set bridge br0 flow_tables:0=@t >/dev/null
        ofctl --no-stats dump-flows br0
        vsctl set flow_table . flow_limit=1
        ofctl --no-stats dump-flows br0
    "#;
}
