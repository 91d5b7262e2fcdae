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
}
