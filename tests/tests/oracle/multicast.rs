// SPDX-License-Identifier: Apache-2.0
//! Multicast snooping: IGMP, MLD, and where multicast packets go.

scenarios! {
    hosts_join_and_leave: r#"
        vsctl set bridge br0 mcast_snooping_enable=true
        ofctl add-flow br0 actions=NORMAL
        appctl mdb/show br0
        # Version 2 on p1, version 1 on p2, a router on p3.
        receive p1 01005e37373750540000000108004500001c00000000010298710a000001e03737371600d290e0373737
        receive p2 01005e37373850540000000208004500001c000000000102986f0a000002e03737381200d68fe0373738
        appctl time/warp 2000
        receive p3 01005e00000150540000000308004500001c000000000102cfdc0a000003e00000011100eeff00000000
        appctl mdb/show br0
        trace in_port=4,udp,dl_dst=01:00:5e:37:37:37,nw_dst=224.55.55.55
        trace in_port=1,udp,dl_dst=01:00:5e:37:37:37,nw_dst=224.55.55.55
        trace in_port=3,udp,dl_dst=01:00:5e:37:37:37,nw_dst=224.55.55.55
        trace in_port=4,udp,dl_dst=01:00:5e:37:37:39,nw_dst=224.55.55.57
        trace in_port=4,udp,dl_dst=01:00:5e:00:00:05,nw_dst=224.0.0.5
        trace in_port=4,udp6,dl_dst=33:33:00:00:00:01,ipv6_dst=ff02::1
        trace in_port=4,dl_dst=01:00:5e:37:37:37,dl_type=0x1234
        receive p1 01005e00000250540000000108004500001c000000000102cfdd0a000001e00000021700d190e0373737
        appctl mdb/show br0
        trace in_port=4,udp,dl_dst=01:00:5e:37:37:37,nw_dst=224.55.55.55
        appctl mdb/flush br0
        appctl mdb/show br0
        appctl mdb/flush
        appctl mdb/flush br7
    "#;
    members_go_when_a_port_changes_its_vlan: r#"
        vsctl set bridge br0 mcast_snooping_enable=true -- set port p1 tag=10 -- set port p3 tag=10
        ofctl add-flow br0 actions=NORMAL
        receive p1 01005e37373750540000000108004500001c00000000010298710a000001e03737371600d290e0373737
        receive p3 01005e00000150540000000308004500001c000000000102cfdc0a000003e00000011100eeff00000000
        appctl mdb/show br0
        vsctl set port p1 tag=20 -- set port p3 tag=20
        appctl mdb/show br0
    "#;
    reports_of_version_three: r#"
        vsctl set bridge br0 mcast_snooping_enable=true
        ofctl add-flow br0 actions=NORMAL
        receive p2 01005e37373850540000000208004500001c000000000102986f0a000002e03737381200d68fe0373738
        receive p2 01005e000016505400000002080045000038000000000102cfac0a000002e00000162200da7e0000000304000000ef01010103000000e037373801000001ef01010201020304
        appctl mdb/show br0
        # A wrong checksum, and a query without a source.
        receive p1 01005e37373750540000000108004500001c00000000010298710a000001e037373716000000e0373737
        receive p3 01005e00000150540000000308004500001c000000000102d9df00000000e00000011100eeff00000000
        appctl mdb/show br0
        ofctl dump-ports br0 4
    "#;
    listeners_of_ipv6: r#"
        vsctl set bridge br0 mcast_snooping_enable=true
        ofctl add-flow br0 actions=NORMAL
        receive p1 33330000000750540000000186dd6000000000183a01fe800000000000000000000000000001ff0500000000000000000000000000078300801100000000ff050000000000000000000000000007
        receive p2 33330000001650540000000186dd60000000001c3a01fe800000000000000000000000000001ff0200000000000000000000000000168f006fff0000000104000000ff050000000000000000000000000008
        receive p3 33330000000150540000000186dd6000000000183a01fe800000000000000000000000000003ff020000000000000000000000000001820080250000000000000000000000000000000000000000
        appctl mdb/show br0
        trace in_port=4,udp6,dl_dst=33:33:00:00:00:07,ipv6_dst=ff05::7
        receive p1 33330000000250540000000186dd6000000000183a01fe800000000000000000000000000001ff02000000000000000000000000000284007f1900000000ff050000000000000000000000000007
        appctl mdb/show br0
        trace in_port=4,udp6,dl_dst=33:33:00:00:00:07,ipv6_dst=ff05::7
        ofctl dump-ports br0 1
        ofctl dump-ports br0 2
    "#;
    snooping_of_a_packet: r#"
        vsctl set bridge br0 mcast_snooping_enable=true
        ofctl add-flow br0 actions=NORMAL
        appctl ofproto/trace br0 in_port=1 01005e37373750540000000108004500001c00000000010298710a000001e03737371600d290e0373737 | grep -v -e 'slow path' -e 'not supported by'
        appctl ofproto/trace br0 in_port=3 01005e00000150540000000308004500001c000000000102cfdc0a000003e00000011100eeff00000000 | grep -v -e 'slow path' -e 'not supported by'
        appctl ofproto/trace br0 in_port=1 01005e00000250540000000108004500001c000000000102cfdd0a000001e00000021700d190e0373737 | grep -v -e 'slow path' -e 'not supported by'
        appctl ofproto/trace br0 in_port=2 01005e000016505400000002080045000038000000000102cfac0a000002e00000162200da7e0000000304000000ef01010103000000e037373801000001ef01010201020304 | grep -v -e 'slow path' -e 'not supported by'
        appctl ofproto/trace br0 in_port=1 33330000000750540000000186dd6000000000183a01fe800000000000000000000000000001ff0500000000000000000000000000078300801100000000ff050000000000000000000000000007 | grep -v -e 'slow path' -e 'not supported by'
        appctl ofproto/trace br0 in_port=1 01005e37373750540000000108004500001c00000000010298710a000001e037373716000000e0373737 | grep -v -e 'slow path' -e 'not supported by'
        appctl mdb/show br0
        # Two records about one group.
        appctl ofproto/trace br0 in_port=1 33330000001650540000000386dd6000000000403a01fe800000000000000000000000000001ff0200000000000000000000000000168f0063c30000000205000001ff0500000000000000000000000000080101010101010101010101010101010104000000ff050000000000000000000000000008 | grep snooping
    "#;
    ports_that_get_everything: r#"
        vsctl set bridge br0 mcast_snooping_enable=true other_config:mcast-snooping-disable-flood-unregistered=true
        ofctl add-flow br0 actions=NORMAL
        trace in_port=4,udp,dl_dst=01:00:5e:37:37:37,nw_dst=224.55.55.55
        vsctl set port p1 other_config:mcast-snooping-flood=true
        vsctl set port p2 other_config:mcast-snooping-flood-reports=true
        trace in_port=4,udp,dl_dst=01:00:5e:37:37:37,nw_dst=224.55.55.55
        receive p1 01005e37373750540000000108004500001c00000000010298710a000001e03737371600d290e0373737
        receive p2 01005e37373850540000000208004500001c000000000102986f0a000002e03737381200d68fe0373738
        receive p3 01005e37373750540000000108004500001c00000000010298710a000001e03737371600d290e0373737
        appctl mdb/show br0
        appctl ofproto/trace br0 in_port=3 01005e37373850540000000208004500001c000000000102986f0a000002e03737381200d68fe0373738 | grep -v -e 'slow path' -e 'not supported by'
        trace in_port=4,udp,dl_dst=01:00:5e:37:37:37,nw_dst=224.55.55.55
    "#;
    groups_of_vlans: r#"
        vsctl set bridge br0 mcast_snooping_enable=true -- set port p2 tag=5
        ofctl add-flow br0 actions=NORMAL
        receive p1 01005e3737375054000000018100000508004500001c00000000010298710a000001e03737371600d290e0373737
        receive p3 01005e37373750540000000108004500001c00000000010298710a000001e03737371600d290e0373737
        receive p2 01005e00000150540000000308004500001c000000000102cfdc0a000003e00000011100eeff00000000
        appctl mdb/show br0
        trace in_port=4,udp,dl_dst=01:00:5e:37:37:37,nw_dst=224.55.55.55
        trace in_port=4,udp,dl_vlan=5,dl_dst=01:00:5e:37:37:37,nw_dst=224.55.55.55
    "#;
    memberships_age: r#"
        vsctl set bridge br0 mcast_snooping_enable=true other_config:mcast-snooping-aging-time=20
        ofctl add-flow br0 actions=NORMAL
        receive p1 01005e37373750540000000108004500001c00000000010298710a000001e03737371600d290e0373737
        appctl time/warp 10000
        receive p2 01005e37373850540000000208004500001c000000000102986f0a000002e03737381200d68fe0373738
        receive p3 01005e00000150540000000308004500001c000000000102cfdc0a000003e00000011100eeff00000000
        appctl mdb/show br0
        appctl time/warp 11000
        appctl mdb/show br0
        vsctl set bridge br0 other_config:mcast-snooping-aging-time=100
        appctl mdb/show br0
        vsctl del-port p3
        appctl mdb/show br0
        vsctl set bridge br0 mcast_snooping_enable=false
        appctl mdb/show br0
        trace in_port=4,udp,dl_dst=01:00:5e:37:37:37,nw_dst=224.55.55.55
    "#;
    a_table_of_ten_groups: r#"
        vsctl set bridge br0 mcast_snooping_enable=true other_config:mcast-snooping-table-size=3
        ofctl add-flow br0 actions=NORMAL
        receive p1 01005e37373750540000000108004500001c00000000010298710a000001e03737371600d290e0373737
        receive p2 01005e000016505400000002080045000038000000000102cfac0a000002e00000162200da7e0000000304000000ef01010103000000e037373801000001ef01010201020304
        appctl mdb/show br0
    "#;
    messages_take_the_slow_path: r#"
        vsctl set bridge br0 mcast_snooping_enable=true
        ofctl add-flow br0 actions=NORMAL
        receive p1 01005e37373750540000000108004500001c00000000010298710a000001e03737371600d290e0373737
        receive p1 01005e37373750540000000108004500001c00000000010298710a000001e03737371600d290e0373737
        receive p4 01005e37373750540000000108004500001c000000000111985a0a000009e03737370001000200080000
        receive p4 01005e37373750540000000108004500001c000000000111985a0a000009e03737370001000200080000
        appctl dpctl/dump-flows | sed 's/used:[0-9.]*s/used:T/; s/pid=[0-9]*/pid=N/' | sort
        appctl revalidator/wait
        ofctl dump-flows br0 | sed 's/duration=[^,]*/duration=D/'
    "#;
}
