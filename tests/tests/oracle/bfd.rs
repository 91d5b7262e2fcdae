// SPDX-License-Identifier: Apache-2.0
//! BFD over patch ports. Lines with times and random numbers are left out.

scenarios! {
    sessions_over_patch_ports: r#"
        vsctl add-br br1 -- set bridge br1 datapath_type=dummy -- add-port br1 q1 -- set interface q1 type=patch options:peer=q0 ofport_request=22 bfd:enable=true -- add-port br0 q0 -- set interface q0 type=patch options:peer=q1 ofport_request=21 bfd:enable=true
        appctl time/warp 4100 100
        appctl bfd/show q0 | grep -v -e Time: -e Discriminator
        appctl bfd/show q1 | grep -v -e Time: -e Discriminator
        appctl bfd/show | grep -c -e '---- q[01] ----'
        appctl bfd/show nowhere
        for i in $(seq 50); do [ "$(ovs-vsctl get interface q0 bfd_status:forwarding)" = '"true"' ] && break; sleep 0.1; done; ovs-vsctl get interface q0 bfd_status
        ofctl -O OpenFlow15 dump-ports-desc br0 q0 | grep -e state -e q0
        vsctl set interface q1 bfd:enable=false
        appctl time/warp 4100 100
        appctl bfd/show q0 | grep -v -e Time: -e Discriminator
        appctl bfd/show q1
        for i in $(seq 50); do [ "$(ovs-vsctl get interface q1 bfd_status)" = {} ] && break; sleep 0.1; done; ovs-vsctl get interface q1 bfd_status
        ofctl -O OpenFlow15 dump-ports-desc br0 q0 | grep -e state -e q0
        vsctl set interface q1 bfd:enable=true
        appctl time/warp 4100 100
        appctl bfd/show q0 | grep -v -e Time: -e Discriminator
        appctl bfd/show q1 | grep -v -e Time: -e Discriminator
        vsctl set interface q0 bfd:cpath_down=true
        appctl time/warp 4100 100
        appctl bfd/show q0 | grep -v -e Time: -e Discriminator
        appctl bfd/show q1 | grep -v -e Time: -e Discriminator
        vsctl del-br br1
        appctl bfd/show q1
    "#;
    settings: r#"
        vsctl add-br br1 -- set bridge br1 datapath_type=dummy -- add-port br1 q1 -- set interface q1 type=patch options:peer=q0 bfd:enable=true -- add-port br0 q0 -- set interface q0 type=patch options:peer=q1 bfd:enable=true
        appctl time/warp 3100 100
        vsctl set interface q0 bfd:min_tx=200
        appctl time/warp 2100 100
        vsctl set interface q1 bfd:min_rx=300
        appctl time/warp 2100 100
        appctl bfd/show q0 | grep Interval
        appctl bfd/show q1 | grep Interval
        vsctl set interface q0 bfd:mult=1 -- set interface q1 bfd:mult=255
        appctl time/warp 3100 100
        appctl bfd/show q0 | grep Multiplier
        vsctl set interface q0 bfd:mult=0 -- set interface q1 bfd:mult=256
        appctl time/warp 3100 100
        appctl bfd/show q0 | grep -e Multiplier -e 'Session State'
        vsctl set interface q0 bfd:min_rx=-7 bfd:min_tx=nonsense bfd:bfd_src_ip=nonsense
        appctl time/warp 3100 100
        appctl bfd/show q0 | grep -e Interval -e 'Session State'
    "#;
    forced_forwarding: r#"
        vsctl add-br br1 -- set bridge br1 datapath_type=dummy -- add-port br1 q1 -- set interface q1 type=patch options:peer=q0 bfd:enable=true -- add-port br0 q0 -- set interface q0 type=patch options:peer=q1 bfd:enable=true
        appctl time/warp 4100 100
        appctl bfd/set-forwarding q0 false
        appctl bfd/show q0 | grep Forwarding
        appctl bfd/show q1 | grep Forwarding
        appctl bfd/set-forwarding FALSE
        appctl bfd/show q1 | grep Forwarding
        appctl bfd/set-forwarding normal
        appctl bfd/show q0 | grep Forwarding
        appctl bfd/set-forwarding nowhere true
        appctl bfd/set-forwarding q0 maybe
        appctl bfd/set-forwarding q0
        appctl bfd/set-forwarding
    "#;
    fast_failover_follows: r#"
        vsctl add-br br1 -- set bridge br1 datapath_type=dummy -- add-port br1 q1 -- set interface q1 type=patch options:peer=q0 -- add-port br0 q0 -- set interface q0 type=patch options:peer=q1 ofport_request=21 bfd:enable=true
        ofctl -O OpenFlow13 add-group br0 group_id=1,type=ff,bucket=watch_port:21,actions=3,bucket=watch_port:2,actions=4
        ofctl -O OpenFlow13 add-flow br0 in_port=1,actions=group:1
        ofctl -O OpenFlow13 add-flow br0 'in_port=2,actions=bundle(eth_src,0,active_backup,ofport,members:21,3)'
        appctl time/warp 4100 100
        trace in_port=1 | tail -1
        trace in_port=2 | tail -1
        vsctl set interface q1 bfd:enable=true
        appctl time/warp 4100 100
        trace in_port=1 | tail -1
        trace in_port=2 | tail -1
        vsctl set interface q1 bfd:enable=false
        appctl time/warp 5000 100
        trace in_port=1 | tail -1
    "#;
    over_sockets_while_the_clock_is_warped: r#"
        vsctl add-br br1 -- set bridge br1 datapath_type=dummy -- add-port br0 q0 -- set interface q0 type=dummy options:pstream=punix:$PWD/q0.sock bfd:enable=true -- add-port br1 q1 -- set interface q1 type=dummy options:stream=unix:$PWD/q0.sock bfd:enable=true
        for i in $(seq 200); do appctl netdev-dummy/conn-state q1 | grep -q disconnected || break; appctl time/warp 100; sleep 0.02; done
        appctl time/warp 4100 100
        appctl bfd/show q0 | grep -E 'Forwarding|Session State'
        appctl bfd/show q1 | grep -E 'Forwarding|Session State'
        vsctl set interface q1 bfd:enable=false
        appctl time/warp 5000 100
        appctl bfd/show q0 | grep -E 'Forwarding|Session State'
    "#;
}
