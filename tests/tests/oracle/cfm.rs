// SPDX-License-Identifier: Apache-2.0
//! Connectivity fault management. Times until the next message and check are left out: they depend on
//! when the database's change arrived.

scenarios! {
    cfm_finds_the_other_end_and_its_loss: r#"
        vsctl add-br br1 -- set bridge br1 datapath_type=dummy other-config:hwaddr=aa:55:aa:56:00:00 -- add-port br1 q1 -- set interface q1 type=patch options:peer=q0 -- add-port br0 q0 -- set interface q0 type=patch options:peer=q1 -- set interface q0 cfm_mpid=1 other_config:cfm_interval=300 other_config:cfm_extended=true
        ovs-vsctl --timeout=10 wait-until interface q0 cfm_fault=false -- get interface q0 cfm_fault cfm_fault_status cfm_flap_count cfm_health cfm_remote_mpids cfm_remote_opstate
        appctl time/warp 1500 100
        ovs-vsctl --timeout=10 wait-until interface q0 cfm_fault=true -- get interface q0 cfm_fault cfm_fault_status cfm_flap_count cfm_health cfm_remote_mpids cfm_remote_opstate
        appctl cfm/show q0 | grep -v -e 'next ' -e 'recv since'
        ofctl -O OpenFlow13 dump-ports-desc br0 | grep -A2 '(q0)' | grep state
        vsctl set interface q1 cfm_mpid=2 other_config:cfm_interval=300 other_config:cfm_extended=true
        appctl time/warp 1500 100
        ovs-vsctl --timeout=10 wait-until interface q0 cfm_remote_mpids=2 -- get interface q0 cfm_fault cfm_fault_status cfm_flap_count cfm_health cfm_remote_mpids cfm_remote_opstate
        ovs-vsctl --timeout=10 wait-until interface q1 cfm_remote_mpids=1 -- get interface q1 cfm_fault cfm_fault_status cfm_flap_count cfm_health cfm_remote_mpids cfm_remote_opstate
        ofctl -O OpenFlow13 dump-ports-desc br0 | grep -A2 '(q0)' | grep state
        appctl time/warp 10100 100
        appctl cfm/show q0 | grep -v -e 'next ' -e 'recv since'
        appctl cfm/show q1 | grep -v -e 'next ' -e 'recv since'
        vsctl set interface q1 other_config:cfm_opstate=down
        appctl time/warp 1500 100
        ovs-vsctl --timeout=10 wait-until interface q0 cfm_remote_opstate=down -- get interface q0 cfm_fault cfm_fault_status
        ofctl -O OpenFlow13 dump-ports-desc br0 | grep -A2 '(q0)' | grep state
        vsctl clear interface q1 cfm_mpid
        appctl time/warp 1500 100
        ovs-vsctl --timeout=10 wait-until interface q0 cfm_fault=true -- get interface q0 cfm_fault cfm_fault_status cfm_remote_mpids
        ovs-vsctl get interface q1 cfm_fault cfm_fault_status cfm_flap_count cfm_health cfm_remote_mpids cfm_remote_opstate
        appctl cfm/show q1
        vsctl clear interface q0 cfm_mpid
        ovs-vsctl --timeout=10 wait-until interface q0 cfm_fault=[] -- get interface q0 cfm_fault cfm_fault_status cfm_flap_count cfm_health cfm_remote_mpids cfm_remote_opstate
        appctl time/warp 500 100
        ofctl -O OpenFlow13 dump-ports-desc br0 | grep -A2 '(q0)' | grep state
    "#;
    cfm_faults_by_hand: r#"
        vsctl set interface p1 cfm_mpid=17 other_config:cfm_interval=100 other_config:cfm_extended=true
        appctl cfm/set-fault p1 nonsense
        appctl cfm/set-fault nowhere true
        appctl cfm/set-fault p1 TRUE
        appctl time/warp 1000 100
        ovs-vsctl --timeout=10 wait-until interface p1 cfm_fault_status=override -- get interface p1 cfm_fault
        appctl cfm/show p1 | grep -v -e 'next '
        appctl cfm/set-fault p1 false
        appctl time/warp 1000 100
        ovs-vsctl --timeout=10 wait-until interface p1 cfm_fault=false -- get interface p1 cfm_fault_status
        appctl cfm/show p1 | grep -v -e 'next '
        appctl cfm/set-fault normal
        appctl time/warp 1000 100
        ovs-vsctl --timeout=10 wait-until interface p1 cfm_fault_status=recv -- get interface p1 cfm_fault
        appctl cfm/show | grep -v -e 'next '
        appctl cfm/show nowhere
    "#;
    cfm_without_the_extension: r#"
        vsctl set interface p1 cfm_mpid=17 other_config:cfm_interval=5000 other_config:cfm_opstate=down
        appctl cfm/show p1 | grep -v -e 'next '
        ovs-vsctl --timeout=10 wait-until interface p1 cfm_fault=false -- get interface p1 cfm_remote_opstate
        vsctl set interface p1 cfm_mpid=8192
        appctl cfm/show p1
        vsctl set interface p1 other_config:cfm_extended=true
        appctl cfm/show p1 | grep -v -e 'next '
        vsctl set interface p1 other_config:cfm_interval=70000
        appctl cfm/show p1 | grep -v -e 'next '
    "#;
    cfm_packets_are_in_the_slow_path: r#"
        ofctl add-flow br0 actions=2
        vsctl set interface p1 cfm_mpid=17
        trace in_port=1,dl_type=0x8902,dl_dst=01:80:c2:00:00:30
        trace in_port=1,dl_type=0x8902,dl_dst=01:23:20:00:00:30
        trace in_port=3,dl_type=0x8902,dl_dst=01:80:c2:00:00:30
        vsctl set interface p1 other_config:cfm_extended=true
        trace in_port=1,dl_type=0x8902,dl_dst=01:80:c2:00:00:30
        trace in_port=1,dl_type=0x8902,dl_dst=01:23:20:00:00:30
    "#;
    cfm_makes_buckets_and_members_of_bonds_dead: r#"
        vsctl add-bond br0 bond0 p21 p22 bond_mode=active-backup -- set interface p21 type=dummy ofport_request=21 -- set interface p22 type=dummy ofport_request=22
        ofctl -O OpenFlow13 add-group br0 group_id=1,type=ff,bucket=watch_port:21,actions=21,bucket=watch_port:2,actions=2
        ofctl -O OpenFlow13 add-flow br0 in_port=1,actions=group:1
        appctl time/warp 1000 100
        appctl ofproto/trace br0 in_port=1 | grep Datapath
        vsctl set interface p21 cfm_mpid=1 other_config:cfm_interval=100
        appctl time/warp 2000 100
        appctl ofproto/trace br0 in_port=1 | grep Datapath
        appctl bond/show bond0 | grep -v -e Recirc -e ' mac: ' -e rebalance
        vsctl clear interface p21 cfm_mpid
        appctl time/warp 2000 100
        appctl ofproto/trace br0 in_port=1 | grep Datapath
        appctl bond/show bond0 | grep -e member
    "#;
}
