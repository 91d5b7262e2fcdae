// SPDX-License-Identifier: Apache-2.0
//! Bonds and LACP. Lines about recirculation are left out: a bond needs none here.

scenarios! {
    lacp_without_a_partner: r#"
        vsctl set port p1 lacp=active
        vsctl add-bond br0 bond0 q1 q2 lacp=passive bond_mode=balance-tcp other_config:lacp-time=fast other_config:lacp-system-id=11:22:33:44:55:66 other_config:lacp-system-priority=54321 -- set interface q1 type=dummy ofport_request=21 other_config:lacp-port-id=11 other_config:lacp-port-priority=111 other_config:lacp-aggregation-key=3333 -- set interface q2 type=dummy ofport_request=22 other_config:lacp-aggregation-key=3333
        appctl time/warp 300 100
        appctl lacp/show p1
        appctl lacp/show bond0
        appctl lacp/show nowhere
        appctl bond/show bond0 | grep -v -e Recirc -e ' mac: '
        appctl time/warp 10000 100
        appctl lacp/show p1
        appctl lacp/show-stats p1
        appctl lacp/show-stats nowhere
        for i in $(seq 50); do [ "$(ovs-vsctl get interface p1 lacp_current)" = false ] && break; sleep 0.1; done; ovs-vsctl get interface p1 lacp_current
        vsctl set port p1 lacp=off
        appctl lacp/show p1
    "#;
    slb_commands: r#"
        vsctl add-bond br0 bond0 q1 q2 bond_mode=balance-slb other_config:bond-hash-basis=7 bond_updelay=200 bond_downdelay=100 -- set interface q1 type=dummy -- set interface q2 type=dummy
        appctl time/warp 2000 100
        # Open vSwitch's first choice differs from run to run.
        appctl bond/set-active-member bond0 q1 | grep -v -e done -e 'no change'
        appctl bond/set-active-member bond0 q2
        appctl bond/set-active-member bond0 q2
        appctl bond/set-active-member bond0 q9
        appctl bond/show bond0 | grep -v -e Recirc -e ' mac: ' -e rebalance
        appctl bond/migrate bond0 7 q1
        appctl bond/migrate bond0 x q1
        appctl bond/migrate bond0 7 q9
        appctl bond/migrate nowhere 7 q1
        appctl bond/disable-member bond0 q9
        appctl netdev-dummy/set-admin-state q2 down
        appctl time/warp 50 50
        appctl bond/show bond0 | grep -v -e Recirc -e ' mac: ' -e rebalance
        appctl time/warp 100 50
        appctl bond/show bond0 | grep -v -e Recirc -e ' mac: ' -e rebalance
        appctl bond/set-active-member bond0 q2
        appctl bond/migrate bond0 7 q2
        appctl netdev-dummy/set-admin-state q2 up
        appctl time/warp 150 50
        appctl bond/show bond0 | grep -v -e Recirc -e ' mac: ' -e rebalance
        vsctl set port bond0 bond_mode=active-backup
        appctl bond/show bond0 | grep -v -e Recirc -e ' mac: ' -e rebalance
    "#;
    hashes: r#"
        appctl bond/hash 50:54:00:00:00:01
        appctl bond/hash 50:54:00:00:00:01 7
        appctl bond/hash 50:54:00:00:00:01 7 12345
        appctl bond/hash nonsense
        appctl bond/hash 50:54:00:00:00:01 x
        appctl bond/hash 50:54:00:00:00:01 7 x
    "#;
    slb_sends_nothing_back: r#"
        vsctl add-bond br0 bond0 q1 q2 bond_mode=balance-slb -- set interface q1 type=dummy ofport_request=21 -- set interface q2 type=dummy ofport_request=22
        appctl time/warp 3000 1000
        ofctl add-flow br0 actions=NORMAL
        appctl ofproto/trace br0 in_port=p1,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:09 -generate | grep -v actions
        appctl ofproto/trace br0 in_port=21,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:0a
    "#;
    tcp_is_one_output: r#"
        vsctl add-br br1 -- set bridge br1 datapath-type=dummy fail-mode=standalone
        vsctl add-bond br0 bond0 q1 q2 lacp=active bond_mode=balance-tcp other_config:lacp-time=fast other_config:lb-output-action=true -- set interface q1 type=dummy options:pstream=punix:$PWD/q1.sock -- set interface q2 type=dummy options:pstream=punix:$PWD/q2.sock
        vsctl add-bond br1 bond1 r1 r2 lacp=active bond_mode=balance-tcp other_config:lacp-time=fast other_config:lb-output-action=true -- set interface r1 type=dummy options:stream=unix:$PWD/q1.sock -- set interface r2 type=dummy options:stream=unix:$PWD/q2.sock
        ofctl add-flow br0 actions=NORMAL
        for i in $(seq 60); do ovs-appctl time/warp 1000 100 > /dev/null; ovs-appctl bond/show bond0 | grep -q negotiated && [ "$(ovs-appctl lacp/show bond0 | grep -c 'current attached')" = 2 ] && break; sleep 0.1; done; ovs-appctl lacp/show bond0 | grep -c 'current attached'
        appctl bond/show bond0 | grep -e lacp_status -e lb_output | sed 's/id: [0-9]*/id: N/'
        ovs-appctl ofproto/trace br0 'in_port=p1,tcp,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:09,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_src=7,tp_dst=80' | grep Megaflow
        # Open vSwitch floods in any order.
        ovs-appctl ofproto/trace br0 'in_port=p1,tcp,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:09,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_src=7,tp_dst=80' | tail -1 | sed -e 's/lb_output([0-9]*)/lb_output(N)/' | tr ' ,' '\n' | sort
        ovs-appctl dpif-netdev/bond-show | sed -e 's/[0-9][0-9]*/N/g' | sort | uniq -c
        vsctl set port bond0 other_config:lb-output-action=false
        appctl bond/show bond0 | grep lb_output
        ovs-appctl dpif-netdev/bond-show | grep -c bond-id
        appctl dpif-netdev/bond-show nowhere
    "#;
}
