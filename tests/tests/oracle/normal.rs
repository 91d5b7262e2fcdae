// SPDX-License-Identifier: Apache-2.0
//! NORMAL, VLANs and what goes with them.

scenarios! {
    addresses_of_a_removed_port: r#"
        vsctl add-br br1 -- set bridge br1 datapath_type=dummy -- add-port br1 q1 -- set interface q1 type=dummy ofport_request=1
        ofctl add-flow br0 actions=NORMAL
        ofctl add-flow br1 actions=NORMAL
        for m in 05 06; do ovs-appctl netdev-dummy/receive p1 "in_port(1),eth(src=50:54:00:00:00:$m,dst=ff:ff:ff:ff:ff:ff),eth_type(0x1234)"; done
        for m in 06 07; do ovs-appctl netdev-dummy/receive q1 "in_port(1),eth(src=50:54:00:00:00:$m,dst=ff:ff:ff:ff:ff:ff),eth_type(0x1234)"; done
        receive p2 'in_port(2),eth(src=50:54:00:00:00:08,dst=ff:ff:ff:ff:ff:ff),eth_type(0x1234)'
        appctl fdb/show br0 | sort
        appctl fdb/show br1 | sort
        vsctl del-port p1
        appctl fdb/show br0 | sort
        appctl fdb/show br1 | sort
    "#;
    learning: r#"
        ofctl add-flow br0 actions=NORMAL
        trace in_port=1,dl_src=50:54:00:00:00:01,dl_dst=ff:ff:ff:ff:ff:ff
        appctl fdb/show br0
        receive p1 'in_port(1),eth(src=50:54:00:00:00:01,dst=ff:ff:ff:ff:ff:ff),eth_type(0x0806),arp(sip=10.0.0.1,tip=10.0.0.2,op=1,sha=50:54:00:00:00:01,tha=00:00:00:00:00:00)'
        appctl revalidator/wait
        appctl fdb/show br0
        trace in_port=2,dl_src=50:54:00:00:00:02,dl_dst=50:54:00:00:00:01
        trace in_port=1,dl_src=50:54:00:00:00:02,dl_dst=50:54:00:00:00:01
        appctl time/warp 5000
        appctl fdb/show br0
        appctl fdb/stats-show br0
        appctl fdb/stats-clear br0
        appctl fdb/stats-show br0
        appctl fdb/flush br0
        appctl fdb/show br0
        appctl fdb/show br7
        appctl fdb/flush br7
    "#;
    trace_that_learns: r#"
        ofctl add-flow br0 actions=NORMAL
        trace in_port=3,dl_src=50:54:00:00:00:03,dl_dst=ff:ff:ff:ff:ff:ff -generate
        appctl fdb/show br0
        trace in_port=1,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:03
    "#;
    static_entries: r#"
        ofctl add-flow br0 actions=NORMAL
        appctl fdb/add br0 p2 0 50:54:00:00:00:02
        appctl fdb/show br0
        trace in_port=1,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:02
        appctl fdb/add br0 p9 0 50:54:00:00:00:02
        appctl fdb/add br0 p2 0 nonsense
        appctl fdb/stats-show br0
        appctl fdb/del br0 0 50:54:00:00:00:02
        appctl fdb/del br0 0 50:54:00:00:00:02
        appctl fdb/show br0
    "#;
    a_full_table_of_static_entries: r#"
        ofctl add-flow br0 actions=NORMAL
        vsctl set bridge br0 other_config:mac-table-size=12
        for n in 00 01 02 03 04 05 06 07 08 09 0a 0b 0c; do appctl fdb/add br0 p1 0 50:54:00:00:01:$n; done
        appctl fdb/show br0
        receive p1 50540000ffff5054000001010800
        appctl fdb/add br0 p1 0 50:54:00:00:01:02
        for n in 01 02 03; do receive p2 50540000ffff5054000002${n}0800; done
        appctl revalidator/purge
        appctl fdb/show br0
        # A lowered size removes learned entries only. Open vSwitch's counter of static entries never decreases.
        vsctl set bridge br0 other_config:mac-table-size=10
        appctl time/warp 1000
        appctl fdb/show br0
        appctl fdb/add br0 p1 0 50:54:00:00:01:0d
        appctl fdb/show br0
        appctl fdb/stats-show br0 | grep -v ' static '
    "#;
    ports_with_equally_many_addresses: r#"
        ofctl add-flow br0 actions=NORMAL
        vsctl set bridge br0 other_config:mac-table-size=12
        for n in 01 02 03 04 05 06; do receive p1 50540000ffff5054000004${n}0800; done
        for n in 01 02 03 04 05 06; do receive p2 50540000ffff5054000005${n}0800; done
        for n in 01 02 03; do receive p3 50540000ffff5054000006${n}0800; done
        appctl revalidator/purge
        appctl fdb/show br0
    "#;
    vlan_modes: r#"
        ofctl add-flow br0 actions=NORMAL
        vsctl set port p1 tag=10 -- set port p2 tag=10 -- set port p3 trunks=10,20 -- set port br0 tag=99
        # To known addresses: how a flooded packet is changed from port to port depends on their order,
        # which differs from run to run.
        appctl fdb/add br0 p1 10 50:54:00:00:00:11
        appctl fdb/add br0 p2 10 50:54:00:00:00:12
        appctl fdb/add br0 p3 10 50:54:00:00:00:13
        appctl fdb/add br0 p4 10 50:54:00:00:00:14
        appctl fdb/add br0 p3 20 50:54:00:00:00:23
        trace in_port=1,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:12
        trace in_port=1,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:13
        trace in_port=1,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:14
        trace in_port=1,dl_vlan=10,dl_src=50:54:00:00:00:01,dl_dst=ff:ff:ff:ff:ff:ff
        trace in_port=3,dl_vlan=10,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:11
        trace in_port=3,dl_vlan=10,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:14
        trace in_port=3,dl_vlan=30,dl_src=50:54:00:00:00:01,dl_dst=ff:ff:ff:ff:ff:ff
        trace in_port=3,dl_src=50:54:00:00:00:01,dl_dst=ff:ff:ff:ff:ff:ff
        trace in_port=4,dl_vlan=20,dl_vlan_pcp=5,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:23
        vsctl set port p4 vlan_mode=native-untagged tag=10 trunks=20
        appctl fdb/add br0 p1 10 50:54:00:00:00:11
        appctl fdb/add br0 p3 10 50:54:00:00:00:13
        appctl fdb/add br0 p4 10 50:54:00:00:00:14
        trace in_port=4,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:11
        trace in_port=4,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:13
        trace in_port=1,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:14
        vsctl set port p4 vlan_mode=native-tagged tag=10 trunks=20
        appctl fdb/add br0 p1 10 50:54:00:00:00:11
        appctl fdb/add br0 p3 10 50:54:00:00:00:13
        appctl fdb/add br0 p4 10 50:54:00:00:00:14
        trace in_port=4,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:11
        trace in_port=4,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:13
        trace in_port=1,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:14
        vsctl clear port p4 trunks -- set port p4 vlan_mode=dot1q-tunnel
        appctl fdb/add br0 p3 10 50:54:00:00:00:13
        trace in_port=4,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:13
        trace in_port=4,dl_vlan=7,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:13
    "#;
    priority_tags: r#"
        ofctl add-flow br0 actions=NORMAL
        vsctl set port p1 tag=10 -- set port p2 tag=10 other_config:priority-tags=always -- set port p3 tag=10 other_config:priority-tags=if-nonzero
        # To known addresses: how a flooded packet is changed from port to port depends on their order. Masks are
        # not compared: OVS leaves dl_vlan_pcp out, on which these actions depend (unsound).
        appctl fdb/add br0 p2 10 50:54:00:00:00:02
        appctl fdb/add br0 p3 10 50:54:00:00:00:03
        trace in_port=1,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:02 | grep '^Datapath'
        trace in_port=1,dl_vlan=0,dl_vlan_pcp=0,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:02 | grep '^Datapath'
        trace in_port=1,dl_vlan=0,dl_vlan_pcp=3,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:02 | grep '^Datapath'
        trace in_port=4,dl_vlan=10,dl_vlan_pcp=0,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:02 | grep '^Datapath'
        trace in_port=4,dl_vlan=10,dl_vlan_pcp=2,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:02 | grep '^Datapath'
        trace in_port=1,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:03 | grep '^Datapath'
        trace in_port=1,dl_vlan=0,dl_vlan_pcp=0,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:03 | grep '^Datapath'
        trace in_port=1,dl_vlan=0,dl_vlan_pcp=3,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:03 | grep '^Datapath'
        trace in_port=4,dl_vlan=10,dl_vlan_pcp=0,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:03 | grep '^Datapath'
        trace in_port=4,dl_vlan=10,dl_vlan_pcp=2,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:03 | grep '^Datapath'
        vsctl clear port p1 tag -- clear port p2 tag -- clear port p3 tag
        appctl fdb/add br0 p2 0 50:54:00:00:00:02
        appctl fdb/add br0 p3 0 50:54:00:00:00:03
        trace in_port=1,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:02 | grep '^Datapath'
        trace in_port=1,dl_vlan=0,dl_vlan_pcp=0,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:02 | grep '^Datapath'
        trace in_port=1,dl_vlan=0,dl_vlan_pcp=3,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:02 | grep '^Datapath'
        trace in_port=1,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:03 | grep '^Datapath'
        trace in_port=1,dl_vlan=0,dl_vlan_pcp=0,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:03 | grep '^Datapath'
        trace in_port=1,dl_vlan=0,dl_vlan_pcp=3,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:03 | grep '^Datapath'
    "#;
    reserved_addresses: r#"
        ofctl add-flow br0 actions=NORMAL
        trace in_port=1,dl_src=50:54:00:00:00:01,dl_dst=01:80:c2:00:00:05
        vsctl set bridge br0 other_config:forward-bpdu=true
        trace in_port=1,dl_src=50:54:00:00:00:01,dl_dst=01:80:c2:00:00:05
    "#;
    mirrors: r#"
        ofctl add-flow br0 actions=NORMAL
        vsctl -- --id=@p get port p3 -- --id=@m create mirror name=m select_all=true output_port=@p -- set bridge br0 mirrors=@m | wc -l
        trace in_port=1,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:09
        trace in_port=3,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:09
        ofctl add-flow br0 in_port=1,actions=2
        trace in_port=1,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:09
    "#;
    patch_ports: r#"
        vsctl add-br br1 -- set bridge br1 datapath_type=dummy fail_mode=secure other_config:datapath-id=fedcba9876543211 other_config:hwaddr=aa:55:aa:55:00:00 -- add-port br0 pa -- set interface pa type=patch options:peer=pb ofport_request=10 -- add-port br1 pb -- set interface pb type=patch options:peer=pa ofport_request=11 -- add-port br1 q1 -- set interface q1 type=dummy ofport_request=1
        ofctl add-flow br0 'udp,actions=mod_tp_dst:9,10,4'
        ofctl add-flow br1 'in_port=11,actions=mod_dl_dst:02:00:00:00:00:01,1'
        trace in_port=1,udp,nw_ttl=4,udp_dst=5
        appctl dpif/show
        ofctl show br0
        ofctl show br1
        ofctl dump-ports br0 10
        ofctl del-flows br1
        ofctl add-flow br0 actions=NORMAL
        ofctl add-flow br1 actions=NORMAL
        trace in_port=1,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:09
    "#;
    protected_ports: r#"
        ofctl add-flow br0 actions=NORMAL
        vsctl set port p1 protected=true -- set port p2 protected=true
        trace in_port=1,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:09
        trace in_port=3,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:09
    "#;
    static_addresses_and_ports_that_go: r#"
        ofctl add-flow br0 actions=NORMAL
        receive p1 'in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:0f),eth_type(0x1234)'
        appctl fdb/add br0 p1 0 50:54:00:00:00:33
        appctl fdb/add br0 p2 0 50:54:00:00:00:34
        appctl fdb/add br0 p2 0 50:54:00:00:00:01
        appctl fdb/show br0
        appctl fdb/add br0 p3 0 50:54:00:00:00:46
        appctl fdb/add br0 p3 0 50:54:00:00:00:46
        appctl fdb/add br0 p1 0 50:54:00:00:00:46
        appctl fdb/show br0
        vsctl del-port p2
        appctl fdb/show br0
        appctl fdb/flush br0
        appctl fdb/show br0
        vsctl set interface p1 ofport_request=9
        appctl fdb/show br0
    "#;
    addresses_of_static_entries_at_other_ports: r#"
        ofctl add-flow br0 actions=NORMAL
        appctl fdb/add br0 p2 0 50:54:00:00:00:33
        receive p2 'in_port(2),eth(src=50:54:00:00:00:33,dst=50:54:00:00:00:0f),eth_type(0x1234)'
        appctl coverage/read-counter mac_learning_static_none_move
        receive p1 'in_port(1),eth(src=50:54:00:00:00:33,dst=50:54:00:00:00:0f),eth_type(0x1234)'
        appctl coverage/read-counter mac_learning_static_none_move
        appctl fdb/show br0
    "#;
    traces_parse_as_many_tags_as_packets: r#"
        ofctl add-flow br0 in_port=1,dl_type=0x8100,actions=2
        ofctl add-flow br0 in_port=1,dl_type=0xabcd,actions=3
        ofctl add-flow br0 in_port=1,ip,actions=4
        appctl ofproto/trace ovs-dummy 'in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x8100),vlan(vid=16,pcp=0),encap(eth_type(0x8100),vlan(vid=17,pcp=0),encap(eth_type(0xabcd)))'
        appctl ofproto/trace ovs-dummy 'in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x8100),vlan(vid=16,pcp=0),encap(eth_type(0xabcd))'
        appctl ofproto/trace ovs-dummy 'in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x8100),vlan(vid=16,pcp=0),encap(eth_type(0x0800))'
        vsctl set open_vswitch . other_config:vlan-limit=2
        appctl ofproto/trace ovs-dummy 'in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x8100),vlan(vid=16,pcp=0),encap(eth_type(0x8100),vlan(vid=17,pcp=0),encap(eth_type(0xabcd)))'
    "#;
}
