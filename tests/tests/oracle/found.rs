//! What random cases found, each made small.

scenarios! {
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
}
