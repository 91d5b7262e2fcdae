// SPDX-License-Identifier: Apache-2.0
//! STP and RSTP. Ports have fixed numbers, as automatic ones follow a hash table in Open vSwitch.

scenarios! {
    stp_of_one_bridge: r#"
        appctl stp/show br0
        appctl stp/show
        vsctl set bridge br0 stp_enable=true other_config:stp-priority=30720 other_config:stp-max-age=6 other_config:stp-forward-delay=4 other_config:stp-hello-time=1 other_config:stp-system-id=00:11:22:33:44:55 -- set port p1 other_config:stp-port-num=1 -- set port p2 other_config:stp-port-num=2 other_config:stp-port-priority=32 other_config:stp-path-cost=100 -- set port p3 other_config:stp-enable=false -- set port p4 other_config:stp-port-num=04
        appctl time/warp 3000 500
        appctl stp/show br0
        ofctl dump-ports-desc br0
        ofctl show br0
        ofctl add-flow br0 in_port=3,actions=1,2,3
        ofctl add-flow br0 in_port=4,actions=all
        appctl ofproto/trace br0 in_port=4,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:09
        ofctl add-flow br0 in_port=1,actions=NORMAL
        appctl ofproto/trace br0 in_port=3,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:09
        appctl ofproto/trace br0 in_port=3,dl_src=50:54:00:00:00:01,dl_dst=01:80:c2:00:00:00,dl_type=0x05ff
        appctl ofproto/trace br0 in_port=1,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:09
        appctl ofproto/trace br0 in_port=1,dl_src=50:54:00:00:00:01,dl_dst=01:80:c2:00:00:00,dl_type=0x05ff
        appctl time/warp 4000 500
        appctl stp/show br0
        ofctl dump-ports-desc br0
        appctl time/warp 4000 500
        appctl stp/show br0
        ofctl dump-ports-desc br0
        vsctl get bridge br0 status
        vsctl get port p1 status:stp_port_id status:stp_role
        vsctl get port p3 status
        appctl ofproto/trace br0 in_port=3,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:09
        ofctl mod-port br0 2 no-receive-stp
        appctl ofproto/trace br0 in_port=2,dl_src=50:54:00:00:00:01,dl_dst=01:80:c2:00:00:00,dl_type=0x05ff
        ofctl show br0
        appctl netdev-dummy/set-admin-state p1 down
        appctl time/warp 500 500
        appctl stp/show br0
        ofctl dump-ports-desc br0
        appctl stp/tcn br0
        appctl stp/tcn nowhere
        appctl rstp/show br0
        vsctl set bridge br0 stp_enable=false
        appctl stp/show br0
        ofctl dump-ports-desc br0
    "#;
    rstp_of_one_bridge: r#"
        appctl rstp/show br0
        appctl rstp/show
        vsctl set bridge br0 rstp_enable=true other_config:rstp-priority=4096 other_config:rstp-address=00:11:22:33:44:55 -- set port p1 other_config:rstp-port-num=1 -- set port p2 other_config:rstp-port-num=2 other_config:rstp-port-priority=32 other_config:rstp-path-cost=100 -- set port p3 other_config:rstp-enable=false -- set port p4 other_config:rstp-port-num=0x4
        appctl time/warp 1000 500
        appctl rstp/show br0 | sort
        ofctl dump-ports-desc br0
        ofctl add-flow br0 in_port=3,actions=1,3
        appctl ofproto/trace br0 in_port=3,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:09
        appctl time/warp 10000 500
        appctl rstp/show br0 | sort
        ofctl dump-ports-desc br0
        vsctl get bridge br0 rstp_status
        vsctl get port p2 rstp_status
        vsctl get port p3 rstp_status
        appctl rstp/tcn br0
        appctl rstp/tcn nowhere
        appctl stp/show br0
        vsctl set bridge br0 rstp_enable=false
        appctl rstp/show br0
        ofctl dump-ports-desc br0
    "#;
}
