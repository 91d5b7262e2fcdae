// SPDX-License-Identifier: Apache-2.0
//! `ovs-appctl` commands and their errors.

scenarios! {
    wrong_commands: r#"
        appctl nonsense
        appctl fdb/show
        appctl fdb/show a b c
        appctl time/warp
        appctl time/warp nonsense
        appctl netdev-dummy/receive
        appctl netdev-dummy/receive p9 aabb
        appctl netdev-dummy/receive p1 nonsense
        appctl bridge/dump-flows nowhere
        appctl bridge/reconnect nowhere
        appctl dpif/show extra
        appctl dpif/dump-flows nowhere
        appctl vlog/set nonsense
        appctl vlog/set nonsense:dbg
        appctl vlog/set bridge:nonsense
        appctl revalidator/wait extra
        appctl upcall/set-flow-limit
        appctl ofproto/trace
        appctl qos/show nowhere
        appctl bond/show nowhere
    "#;
    logging_levels: r#"
        appctl vlog/set bridge:file:dbg
        appctl vlog/list | grep -E 'console|----|^bridge '
        appctl vlog/set ANY:ANY:warn
        appctl vlog/list | grep -E '^(bridge|ofproto|rconn|vconn) '
        appctl vlog/list-pattern
        appctl vlog/set 'PATTERN:file:%p|%m'
        appctl vlog/list-pattern
        appctl vlog/disable-rate-limit bridge
        appctl vlog/enable-rate-limit bridge
        appctl vlog/close
        appctl vlog/reopen
    "#;
    empty_shows: r#"
        appctl lacp/show
        appctl bond/list
        appctl bfd/show
        appctl cfm/show
        appctl stp/show
        appctl rstp/show
        appctl mdb/show br0
        appctl tnl/ports/show
        appctl tnl/arp/show
        appctl tnl/neigh/show
        appctl dpctl/dump-conntrack
        appctl dpctl/flush-conntrack
        appctl revalidator/purge
        appctl upcall/set-flow-limit 1000
        appctl dpif-netdev/pmd-rxq-show
        appctl ovs/route/show | grep -v Cached
        appctl dpctl/ct-get-maxconns
        appctl ofproto/tnl-push-pop on
        appctl bridge/reconnect
        appctl bridge/reconnect br0
    "#;
    features_of_the_datapath: r#"
        appctl dpif/show-dp-features br0
        appctl dpif/show-dp-features nowhere
    "#;
    // Without those of the kernel's datapath, and those that came after 3.1.
    commands_there_are: r#"
        appctl list-commands | grep -vE '^  (ovsdb|cluster|dpdk|odp|netlink|seq|jsonrpc|slipswitch)' | awk '{print $1}' | grep -E '/' | grep -vE '^(dpif-netlink/dispatch-mode|dpif-netdev/subtable-lookup-prio-get|dpctl/(dump-conntrack-exp|ct-[gs]et-sweep-interval)|revalidator/(pause|resume))$' | sort
    "#;
    dummies: r#"
        appctl netdev-dummy/set-admin-state p1 down
        vsctl get interface p1 admin_state
        appctl netdev-dummy/set-admin-state p1 up
        appctl netdev-dummy/set-admin-state p9 up
        appctl netdev-dummy/conn-state p1
        appctl netdev-dummy/ip4addr br0 10.0.0.1/24
        appctl netdev-dummy/ip4addr nowhere 10.0.0.1/24
        receive p1 'in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x1234)' --len 100
        receive p1 50540000000250540000000112340000
        ofctl dump-ports br0 1
    "#;
    tracing_through_ports: r#"
        appctl ofproto/detrace nonsense
        appctl dpctl/dump-flows nonsense=1
        appctl dpctl/get-flow nonsense
        appctl dpctl/nonsense
    "#;
}
