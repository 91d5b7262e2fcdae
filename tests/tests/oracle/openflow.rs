// SPDX-License-Identifier: Apache-2.0
//! The switch and its ports as OpenFlow reports them.

scenarios! {
    show_in_each_version: r#"
        ofctl show br0
        ofctl -O OpenFlow11 show br0
        ofctl -O OpenFlow12 show br0
        ofctl -O OpenFlow13 show br0
        ofctl -O OpenFlow14 show br0
        ofctl -O OpenFlow15 show br0
    "#;
    dump_ports: r#"
        ofctl dump-ports br0
        ofctl -O OpenFlow13 dump-ports br0 p1
        ofctl -O OpenFlow14 dump-ports br0 LOCAL
        ofctl dump-ports br0 77
        ofctl dump-ports-desc br0
        ofctl -O OpenFlow14 dump-ports-desc br0
        ofctl -O OpenFlow15 dump-ports-desc br0 p2
    "#;
    dump_tables: r#"
        ofctl add-flow br0 table=1,ip,actions=drop
        ofctl dump-tables br0 | head -12
        ofctl -O OpenFlow11 dump-tables br0 | head -12
        ofctl -O OpenFlow13 dump-tables br0 | head -12
        ofctl -O OpenFlow15 dump-tables br0 | head -12
    "#;
    table_features: r#"
        ofctl -O OpenFlow13 dump-table-features br0 | head -60
        ofctl -O OpenFlow15 dump-table-features br0 | tail -30
    "#;
    // A controller names tables unless the database does, and asks for no more than there is.
    table_features_change: r#"
        ofctl -O OpenFlow13 mod-table br0 0 name:xyzzy
        ofctl -O OpenFlow15 mod-table br0 1 name:quux
        ofctl -O OpenFlow15 dump-table-features br0 | grep '^  table'
        vsctl --id=@t0 create Flow_Table name=zero -- --id=@t2 create Flow_Table name=two -- set bridge br0 flow_tables={0=@t0,2=@t2} >/dev/null
        ofctl -O OpenFlow13 dump-table-features br0 | grep '^  table'
        ofctl -O OpenFlow15 mod-table br0 2 name:other 2>&1 | grep -o 'OFPT_ERROR.*'
        ofctl -O OpenFlow15 mod-table br0 1 name:
        ofctl -O OpenFlow15 mod-table br0 3 name:three
        vsctl clear bridge br0 flow_tables
        ofctl -O OpenFlow15 dump-table-features br0 | grep '^  table'
    "#;
    // Rules for the control of the switch itself are hidden.
    tables_do_not_count_hidden_rules: r#"
        vsctl set-controller br0 tcp:240.0.0.1:6653
        warp 2000 500
        ofctl dump-tables br0 | head -4
        ofctl -O OpenFlow13 dump-tables br0 | head -4
        ofctl dump-flows br0
        ofctl dump-aggregate br0
    "#;
    table_desc: r#"
        ofctl -O OpenFlow14 dump-table-desc br0 | head -12
        ofctl -O OpenFlow14 mod-table br0 0 evict
        ofctl -O OpenFlow14 mod-table br0 0 vacancy:20,80
        ofctl -O OpenFlow14 dump-table-desc br0 | head -4
        ofctl -O OpenFlow13 mod-table br0 1 continue
        ofctl -O OpenFlow14 mod-table br0 300 evict
    "#;
    mod_port: r#"
        ofctl mod-port br0 p2 down
        ofctl mod-port br0 p3 no-flood
        ofctl mod-port br0 p4 no-forward
        ofctl show br0
        ofctl add-flow br0 actions=FLOOD
        # Open vSwitch takes changes of ports over in its next round.
        appctl revalidator/wait
        trace in_port=1,ip
        ofctl mod-port br0 p1 no-receive
        appctl revalidator/wait
        trace in_port=1,ip
        ofctl mod-port br0 p2 up
        ofctl -O OpenFlow13 mod-port br0 p4 forward
        ofctl mod-port br0 p9 up
        ofctl show br0
    "#;
    fragments: r#"
        ofctl get-frags br0
        ofctl set-frags br0 drop
        ofctl get-frags br0
        ofctl add-flow br0 'tcp,actions=2'
        trace in_port=1,tcp,nw_frag=later
        trace in_port=1,tcp,nw_frag=first
        ofctl set-frags br0 nx-match
        ofctl get-frags br0
        trace in_port=1,tcp,nw_frag=later
        ofctl set-frags br0 nonsense
    "#;
    description: r#"
        vsctl set bridge br0 other_config:dp-desc=here other_config:dp-sn=42
        ofctl dump-desc br0
        ofctl -O OpenFlow15 dump-desc br0
        ofctl probe br0
        ofctl ping br0 64 | grep -c 'bytes from'
    "#;
    queues: r#"
        ofctl queue-stats br0
        ofctl queue-stats br0 1
        ofctl queue-stats br0 77
        ofctl queue-stats br0 1 0
        ofctl queue-stats br0 1 5
        ofctl queue-get-config br0 1
        ofctl -O OpenFlow14 queue-get-config br0
    "#;
    packet_outs: r#"
        ofctl add-flow br0 in_port=1,actions=3
        ofctl packet-out br0 in_port=controller,packet=505400000002505400000001080045000014000000004063669a0a0000010a000002,actions=output:2
        ofctl packet-out br0 in_port=1,packet=505400000002505400000001080045000014000000004063669a0a0000010a000002,actions=TABLE
        ofctl -O OpenFlow15 packet-out br0 in_port=2,packet=505400000002505400000001080045000014000000004063669a0a0000010a000002,actions=mod_nw_tos:4,4
        ofctl packet-out br0 in_port=77,packet=505400000002505400000001080045000014000000004063669a0a0000010a000002,actions=2
        appctl revalidator/wait
        ofctl dump-ports br0
        ofctl dump-flows br0
        await_frame p4-tx.pcap; od -An -v -tx1 -j40 p4-tx.pcap
    "#;
    versions_that_do_not_meet: r#"
        vsctl set bridge br0 protocols=OpenFlow13,OpenFlow15
        # Either side may close first, which decides the error in the last line.
        ofctl -O OpenFlow10 show br0 2>&1 | grep -v 'failed to connect'
        ofctl -O OpenFlow14 show br0 2>&1 | grep -v 'failed to connect'
        ofctl -O OpenFlow13 probe br0
    "#;
    packet_in_monitor: r#"
        ofctl add-flow br0 'table=0,actions=resubmit(,7)'
        ofctl add-flow br0 'table=7,cookie=0x99,ip,actions=load:5->NXM_NX_REG3[],controller(reason=action)'
        ofctl -vconsole:off monitor br0 65534 -P nxt_packet_in --detach --no-chdir --pidfile=m.pid --unixctl=m.ctl >m.txt 2>&1
        receive p1 'in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=17,tos=0,ttl=64,frag=no),udp(src=1,dst=2)'
        appctl revalidator/wait; sleep 0.3
        cat m.txt
        ovs-appctl -t $OVS_RUNDIR/m.ctl exit
        ofctl -O OpenFlow13 -vconsole:off monitor br0 65534 --detach --no-chdir --pidfile=m.pid --unixctl=m.ctl >m2.txt 2>&1
        receive p1 'in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=17,tos=0,ttl=64,frag=no),udp(src=1,dst=2)'
        appctl revalidator/wait; sleep 0.3
        cat m2.txt
        ovs-appctl -t $OVS_RUNDIR/m.ctl exit
        ofctl -O OpenFlow15 -vconsole:off monitor br0 65534 -P nxt_packet_in2 --detach --no-chdir --pidfile=m.pid --unixctl=m.ctl >m3.txt 2>&1
        receive p1 'in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=17,tos=0,ttl=64,frag=no),udp(src=1,dst=2)'
        appctl revalidator/wait; sleep 0.3
        cat m3.txt
    "#;
    flow_monitor: r#"
        ofctl add-flow br0 cookie=0x1,ip,actions=1
        ofctl -vconsole:off monitor br0 watch: --detach --no-chdir --pidfile=m.pid --unixctl=m.ctl >m.txt 2>&1
        ofctl add-flow br0 cookie=0x2,arp,actions=2
        ofctl mod-flows br0 cookie=0x3,arp,actions=1
        ofctl del-flows br0 arp
        ofctl add-flow br0 hard_timeout=3,ipv6,actions=2
        appctl time/warp 5000 1000
        sleep 0.3
        cat m.txt
    "#;
    rules_groups_and_meters_go_when_controllers_come_and_go: r#"
        fill() { ofctl -O OpenFlow13 add-flow br0 priority=5,actions=2; ofctl -O OpenFlow13 add-group br0 group_id=3,type=all,bucket=output:2; ofctl -O OpenFlow13 add-meter br0 meter=5,kbps,band=type=drop,rate=10; }; declare -f fill >>prelude
        list() { sleep 0.3; ofctl -O OpenFlow13 --no-stats dump-flows br0; ofctl -O OpenFlow13 dump-groups br0; ofctl -O OpenFlow13 dump-meters br0; }; declare -f list >>prelude
        fill; list
        vsctl set-controller br0 unix:nobody.sock; list
        fill; vsctl set-controller br0 unix:nobody2.sock; list
        vsctl del-controller br0; list
        fill; vsctl set-fail-mode br0 standalone; list
    "#;
    flow_monitor_in_each_version: r#"
        ofctl add-flow br0 cookie=0x1,table=1,ip,actions=1
        for v in 11 12 13 14 15; do ovs-ofctl -O OpenFlow$v -vconsole:off monitor br0 watch: --detach --no-chdir --pidfile=m$v.pid --unixctl=m$v.ctl >m$v.txt 2>&1; done
        ofctl -O OpenFlow13 add-flow br0 cookie=0x2,arp,actions=push_vlan:0x8100,set_field:5-\>vlan_vid,2
        ofctl -O OpenFlow13 mod-flows br0 cookie=0x3,arp,actions=goto_table:3
        ofctl del-flows br0 arp
        sleep 0.5
        for v in 11 12 13 14 15; do echo $v; cat m$v.txt; done
        ask() { python3 -c "import socket,time,sys; s=socket.socket(socket.AF_UNIX); s.connect('br0.mgmt'); v=bytes.fromhex('$1'); s.sendall(v+bytes.fromhex('00000800000001')+b''.join(v+bytes.fromhex(m) for m in sys.argv[1:])+v+bytes.fromhex('02000800000099')); time.sleep(0.3); print(s.recv(65536).hex(' ',4)[0:])" "${@:2}" | sed 's/^[0-9a-f]* [0-9a-f]* //' >asked; }; declare -f ask >>prelude
        # The ONF's form: a monitor, its end, and an end that comes too late.
        ask 04 12003000000002ffff0000000000004f4e46000000074e00000005000f000cffffffffff00000000010004000000000 040014000000034f4e46000000074e00000005 040014000000044f4e46000000074e00000005; cat asked
        # Each form is for its versions only.
        ask 03 12001800000002ffff0000000000004f4e46000000074e; cat asked
        ask 04 12001800000002ffff0000000000000000232000000002; cat asked
        ask 05 040014000000030000232000000015000000005; cat asked
    "#;
    flow_monitor_of_changes_that_change_nothing: r#"
        ofctl add-flow br0 cookie=0x1,ip,actions=1
        ofctl -vconsole:off monitor br0 watch: --detach --no-chdir --pidfile=m.pid --unixctl=m.ctl >m.txt 2>&1
        ofctl add-flow br0 cookie=0x1,ip,actions=1
        ofctl mod-flows br0 ip,actions=1
        ofctl add-flow br0 cookie=0x2,ip,actions=2
        ofctl mod-flows br0 cookie=0x3,ip,actions=2
        sleep 0.3
        cat m.txt
    "#;
    flow_monitor_that_filters: r#"
        ofctl add-flow br0 cookie=0x1,ip,actions=1
        ofctl -vconsole:off monitor br0 'watch:!initial,!own,out_port=2' --detach --no-chdir --pidfile=m.pid --unixctl=m.ctl >m.txt 2>&1
        ofctl add-flow br0 cookie=0x2,arp,actions=2
        ofctl add-flow br0 cookie=0x2,ipv6,actions=1
        ofctl del-flows br0
        sleep 0.3
        cat m.txt
    "#;
    // A group counts only in the new version of a flow.
    flow_monitor_of_a_group: r#"
        ofctl -O OpenFlow14 add-group br0 group_id=1,type=all,bucket=output:1
        ofctl -O OpenFlow14 add-group br0 group_id=2,type=all,bucket=output:2
        ofctl -O OpenFlow14 add-flow br0 in_port=1,actions=group:1
        ofctl -O OpenFlow14 add-flow br0 in_port=2,actions=group:2
        ofctl -O OpenFlow14 -vconsole:off monitor br0 'watch:out_group=2' --detach --no-chdir --pidfile=m.pid --unixctl=m.ctl >m.txt 2>&1
        ofctl -O OpenFlow14 mod-flows br0 in_port=1,actions=group:2
        ofctl -O OpenFlow14 mod-flows br0 in_port=2,actions=group:1
        ofctl -O OpenFlow14 add-flow br0 in_port=3,actions=group:2
        sleep 0.3
        cat m.txt
    "#;
    flow_removed_and_port_status: r#"
        ofctl -vconsole:off monitor br0 65534 --detach --no-chdir --pidfile=m.pid --unixctl=m.ctl >m.txt 2>&1
        ofctl add-flow br0 send_flow_rem,idle_timeout=5,cookie=0x7,ip,actions=2
        ofctl add-flow br0 send_flow_rem,cookie=0x8,arp,actions=2
        appctl time/warp 8000 1000
        ofctl del-flows br0 arp
        vsctl add-port br0 p9 -- set interface p9 type=dummy ofport_request=9
        vsctl del-port p9
        ofctl mod-port br0 p2 no-flood
        sleep 0.3
        # OVS looks for idle rules after a pass over the datapath's flows, up to 3 s late here.
        sed 's/duration[5-8]s idle5/durationTIMEs idle5/' m.txt
    "#;
    // The eight bytes of the hello, with a transaction id of the switch's choice, are left out.
    raw_messages: r#"
        ofctl ofp-parse-flow 'ip,actions=drop'
        printf '\001\000\000\010\000\000\000\001\001\143\000\010\000\000\000\002\001\002\000\014\000\000\000\003abcd' >hello
        python3 -c 'import socket,time; s=socket.socket(socket.AF_UNIX); s.connect("br0.mgmt"); s.sendall(open("hello","rb").read()); time.sleep(0.3); print(s.recv(4096).hex()[16:])'
        python3 -c 'import socket,time; s=socket.socket(socket.AF_UNIX); s.connect("br0.mgmt"); s.sendall(b"\x01\x00\x00\x08\0\0\0\1\x01\x0e\x00\x10\0\0\0\x09aaaabbbb"); time.sleep(0.3); print(s.recv(4096).hex()[16:])'
        python3 -c 'import socket,time; s=socket.socket(socket.AF_UNIX); s.connect("br0.mgmt"); s.sendall(b"\x04\x00\x00\x08\0\0\0\1\x04\x12\x00\x10\0\0\0\x09\x00\x77\0\0\0\0\0\0"); time.sleep(0.3); print(s.recv(4096).hex()[16:])'
        python3 -c 'import socket,time; s=socket.socket(socket.AF_UNIX); s.connect("br0.mgmt"); s.sendall(b"\x07\x00\x00\x08\0\0\0\1"); time.sleep(0.3); print(s.recv(4096).hex()[16:])'
        ofctl show br0 | head -1
    "#;
    port_status_in_each_version: r#"
        for v in 10 13 15; do ovs-ofctl -O OpenFlow$v -vconsole:off monitor br0 65534 --detach --no-chdir --pidfile=m$v.pid --unixctl=m$v.ctl >m$v.txt 2>&1; done
        ofctl mod-port br0 p2 no-flood
        ofctl mod-port br0 p2 no-forward
        vsctl set interface p2 mtu_request=1400
        sleep 0.5
        for v in 10 13 15; do echo $v; cat m$v.txt; done
    "#;
    requests_that_ask_for_nothing: r#"
        : >none.txt
        ofctl add-tlv-map br0 ''
        ofctl del-tlv-map br0 ''
        ofctl add-flows br0 none.txt
        ofctl -O OpenFlow14 --bundle add-flows br0 none.txt
        ofctl -O OpenFlow14 bundle br0 none.txt
        ofctl replace-flows br0 none.txt
        ofctl -O OpenFlow14 --bundle replace-flows br0 none.txt
        ofctl -O OpenFlow13 add-groups br0 none.txt
        ofctl -O OpenFlow14 --bundle add-groups br0 none.txt
        ofctl diff-flows br0 none.txt
        ofctl del-flows br0
        ofctl -O OpenFlow13 del-groups br0
        ofctl -O OpenFlow13 del-meters br0
        ofctl -O OpenFlow13 add-group br0 group_id=1,type=all
        ofctl -O OpenFlow13 dump-groups br0
        ofctl -O OpenFlow13 add-meter br0 meter=1,kbps,band=
        ofctl -O OpenFlow13 add-meter br0 meter=1,kbps
        ofctl packet-out br0 'in_port=1,actions='
        ofctl packet-out br0 'in_port=1,packet=,actions=2'
        ofctl packet-out br0 'in_port=1,packet=505400000001505400000002aaaa,actions='
    "#;
    empty_lists_in_messages: r#"
        ask() { python3 -c "import socket,time,sys; s=socket.socket(socket.AF_UNIX); s.connect('br0.mgmt'); v=bytes.fromhex('$1'); s.sendall(v+bytes.fromhex('00000800000001')+b''.join(v+bytes.fromhex(m) for m in sys.argv[1:])+v+bytes.fromhex('02000800000099')); time.sleep(0.3); print(s.recv(65536).hex(' ',4)[0:])" "${@:2}" | sed 's/^[0-9a-f]* [0-9a-f]* //' >asked; }; declare -f ask >>prelude
        # Flow monitors, no monitors: Nicira's and OpenFlow 1.4's.
        ask 01 10001800000002ffff00000000232000000002000000000000 ; cat asked
        ask 01 10001800000002ffff0000000023200000000200000000; cat asked
        ask 05 120010000000020010000000000000; cat asked
        # Table features: all tables.
        ask 04 12001000000002000c000000000000 ; wc -c asked
        # Set async and table mod without properties.
        ask 05 1c000800000002; cat asked
        ask 05 1100100000000203000000000000ff; cat asked
        # Bundle: open, close, commit; and open, commit.
        ask 05 21001000000002000000010000000100 21001000000003000000010002000100; cat asked
    "#;
    group_mods_with_wrong_places_of_buckets: r#"
        ask() { python3 -c "import socket,time,sys; s=socket.socket(socket.AF_UNIX); s.connect('br0.mgmt'); v=bytes.fromhex('$1'); s.sendall(v+bytes.fromhex('00000800000001')+b''.join(v+bytes.fromhex(m) for m in sys.argv[1:])+v+bytes.fromhex('02000800000099')); time.sleep(0.3); print(s.recv(65536).hex(' ',4)[0:])" "${@:2}" | sed 's/^[0-9a-f]* [0-9a-f]* //' >asked; }; declare -f ask >>prelude
        # Add, modify, delete, insert buckets, remove buckets; each after bucket 0.
        ask 06 0f00180000000200000000000000010000000000000000; cat asked
        ask 06 0f00180000000300010000000000010000000000000000; cat asked
        ask 06 0f00180000000400020000000000010000000000000000; cat asked
        ask 06 0f00180000000500030000000000010000000000000000; cat asked
        ask 06 0f00180000000700050000000000010000000000000000; cat asked
    "#;
    group_features_in_each_version: r#"
        for v in 10 11 12 13 14 15; do ofctl -O OpenFlow$v dump-group-features br0; done
        ask() { python3 -c "import socket,time; s=socket.socket(socket.AF_UNIX); s.connect('br0.mgmt'); v=bytes.fromhex('$1'); s.sendall(v+bytes.fromhex('00000800000001')+v+bytes.fromhex('$2')); time.sleep(0.3); print(s.recv(4096).hex())" | cut -c17-; }; declare -f ask >>prelude
        ask 02 120010000000020008000000000000
        ask 02 12001000000002000800000000000000
        ask 03 12001000000002000800000000000000
        ask 02 1200100000000200090000000000000000
    "#;
    what_ovs_save_saves_is_restored: r#"
        ofctl add-flow br0 cookie=0x5,table=3,priority=7,tcp,in_port=1,tp_dst=80,actions=output:2
        ofctl -O OpenFlow13 add-group br0 group_id=1,type=all,bucket=actions=2
        sh /usr/share/openvswitch/scripts/ovs-save save-flows br0 >save.sh
        ofctl del-flows br0
        ofctl -O OpenFlow13 del-groups br0
        sh -e save.sh
        ofctl --no-stats dump-flows br0
        ofctl -O OpenFlow13 dump-groups br0
        vsctl set bridge br0 protocols=OpenFlow13
        sh /usr/share/openvswitch/scripts/ovs-save save-flows br0 >save.sh
        sh -e save.sh
        ofctl -O OpenFlow13 --no-stats dump-flows br0
    "#;
    a_port_that_is_set_down_and_up: r#"
        for v in 10 13 15; do ovs-ofctl -O OpenFlow$v -vconsole:off monitor br0 65534 --detach --no-chdir --pidfile=m$v.pid --unixctl=m$v.ctl >m$v.txt 2>&1; done
        ofctl mod-port br0 p2 down
        for i in $(seq 100); do grep -q LINK_DOWN m15.txt && break; sleep 0.02; done
        ofctl mod-port br0 p2 up
        for i in $(seq 100); do grep -q LIVE m15.txt && break; sleep 0.02; done
        ofctl barrier br0 2>/dev/null; sleep 0.3
        for v in 10 13 15; do echo $v; cat m$v.txt; done
    "#;
    members_are_not_live_before_lacp_is: r#"
        ovs-ofctl -O OpenFlow14 -vconsole:off monitor br0 65534 --detach --no-chdir --pidfile=m.pid --unixctl=m.ctl >m.txt 2>&1
        vsctl add-br br1 -- set bridge br1 datapath_type=dummy fail_mode=secure -- add-bond br1 bond1 q3 q4 lacp=active bond_mode=active-backup other_config:lacp-time=fast -- set interface q3 type=patch options:peer=q1 -- set interface q4 type=patch options:peer=q2
        vsctl add-bond br0 bond0 q1 q2 lacp=active bond_mode=active-backup other_config:lacp-time=fast -- set interface q1 type=patch options:peer=q3 ofport_request=21 -- set interface q2 type=patch options:peer=q4 ofport_request=22
        sleep 0.3
        grep -A2 'OFPT.*21(q1)' m.txt
        appctl time/warp 5000 100
        for i in $(seq 100); do grep -q LIVE m.txt && break; sleep 0.02; done
        grep -A2 'OFPT.*21(q1)' m.txt
    "#;
    an_error_about_the_version_has_the_version: r#"
        ovs-ofctl -vconsole:off monitor br0 65534 --detach --no-chdir --pidfile=m.pid --unixctl=$PWD/m.ctl >m.txt 2>&1
        appctl -t $PWD/m.ctl ofctl/send 0205000801234567
        for i in $(seq 100); do grep -q ERROR m.txt && break; sleep 0.02; done
        cat m.txt
    "#;
}
