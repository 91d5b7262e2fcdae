// SPDX-License-Identifier: Apache-2.0
//! The values that the daemon writes into the database.

scenarios! {
    columns_of_ports: r#"
        vsctl --columns=name,ofport,error,admin_state,link_state,mtu,type,duplex,link_speed,link_resets,lacp_current,cfm_fault list interface p1
        vsctl --columns=name,ofport,error,admin_state,link_state,mtu,mac_in_use,ifindex list interface br0
        vsctl get bridge br0 datapath_id datapath_version
        vsctl get port p1 status statistics rstp_status
        vsctl get open_vswitch . cur_cfg next_cfg
        vsctl get interface p1 status
        vsctl get interface br0 status
        appctl time/warp 6000 1000
        vsctl get interface p1 statistics
    "#;
    odd_interfaces: r#"
        vsctl add-port br0 x1 -- set interface x1 type=nonsense
        vsctl get interface x1 ofport error
        vsctl add-port br0 x2 -- set interface x2 type=patch
        vsctl get interface x2 ofport error
        vsctl add-port br0 x3 -- set interface x3 type=patch options:peer=x3
        vsctl get interface x3 ofport error
        vsctl add-port br0 x4 -- set interface x4 type=dummy ofport_request=1
        vsctl get interface x4 ofport error
        vsctl add-port br0 x5 -- set interface x5 type=dummy mac='"not-a-mac"'
        vsctl get interface x5 error
        vsctl add-port br0 x6 -- set interface x6 type=patch options:peer=nowhere
        vsctl get interface x6 ofport error
        vsctl show | tail -n +2 | sort
        ofctl show br0 | grep addr
    "#;
    requests_for_port_numbers: r#"
        vsctl add-port br0 a -- set interface a type=dummy ofport_request=100
        vsctl add-port br0 b -- set interface b type=dummy
        vsctl get interface a ofport
        vsctl get interface b ofport
        vsctl set interface a ofport_request=101
        vsctl get interface a ofport
        vsctl del-port b -- add-port br0 c -- set interface c type=dummy
        vsctl get interface c ofport
    "#;
    mtu: r#"
        vsctl set interface p1 mtu_request=9000
        vsctl get interface p1 mtu
        vsctl get interface br0 mtu
        vsctl clear interface p1 mtu_request
        vsctl get interface p1 mtu
    "#;
    mtu_of_internal_ports: r#"
        vsctl del-port p1 -- del-port p2 -- del-port p3
        vsctl get interface br0 mtu
        vsctl add-port br0 q1 -- set interface q1 type=dummy mtu_request=9000
        vsctl get interface br0 mtu
        vsctl add-port br0 q2 -- set interface q2 type=dummy mtu_request=4000
        vsctl get interface br0 mtu
        vsctl set interface q2 mtu_request=5000
        vsctl get interface br0 mtu
        vsctl del-port q2
        vsctl get interface br0 mtu
        vsctl add-port br0 i1 -- set interface i1 type=internal mtu_request=1300
        vsctl get interface br0 mtu
        vsctl get interface i1 mtu
        vsctl del-port i1
        vsctl get interface br0 mtu
        vsctl del-port q1
        vsctl get interface br0 mtu
        vsctl add-port br0 q1 -- set interface q1 type=dummy mtu_request=9000
        vsctl get interface br0 mtu
        vsctl set interface br0 mtu_request=2000
        vsctl get interface br0 mtu
    "#;
    controllers: r#"
        vsctl set-controller br0 unix:br0.nobody
        # Not status:state, which OVS writes some time after.
        vsctl get controller br0 is_connected role
        vsctl set-controller br0 punix:/somewhere/else
        vsctl --columns=is_connected,target list controller
        vsctl set-controller br0 nonsense:1
        vsctl --columns=is_connected,target list controller
        ofctl dump-flows br0
        appctl bridge/dump-flows br0
    "#;
    standalone_bridge: r#"
        vsctl add-br br1 -- set bridge br1 datapath_type=dummy other_config:datapath-id=fedcba9876543211
        ofctl dump-flows br1
        appctl bridge/dump-flows br1
        appctl bridge/dump-flows --offload-stats br1
        appctl ofproto/list
        vsctl del-br br1
        appctl ofproto/list
    "#;
    fail_open: r#"
        vsctl set bridge br0 fail_mode=standalone -- set-controller br0 unix:br0.nobody
        appctl time/warp 14000 1000
        appctl bridge/dump-flows br0
        appctl time/warp 30000 1000
        appctl bridge/dump-flows br0
        ofctl dump-flows br0
        ofctl dump-flows br0 table=254
        vsctl set bridge br0 fail_mode=secure
        appctl bridge/dump-flows br0
    "#;
    internal_table: r#"
        ofctl add-flow br0 table=254,actions=drop
        ofctl del-flows br0 table=254
        ofctl --strict del-flows br0 priority=0,reg0=1
        ofctl del-flows br0
        ofctl dump-flows br0 table=254
        ofctl --strict mod-flows br0 table=254,priority=0,reg0=1,actions=drop
        ofctl add-flow br0 in_port=1,actions=resubmit(,254),2
        ofctl dump-flows br0
        trace in_port=1
        appctl memory/show | tr ' ' '\n' | grep rules
    "#;
    what_there_is: r#"
        vsctl get open_vswitch . datapath_types
        vsctl list-br
        vsctl list-ports br0
        vsctl list-ifaces br0
    "#;
}
