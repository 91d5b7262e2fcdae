// SPDX-License-Identifier: Apache-2.0
//! Port mirrors.

scenarios! {
    selected_by_port: r#"
        ofctl add-flow br0 in_port=1,actions=2
        ofctl add-flow br0 in_port=2,actions=1
        vsctl set bridge br0 mirrors=@m -- --id=@p3 get port p3 -- --id=@m create mirror name=m select_all=true output_port=@p3 > /dev/null
        trace in_port=1,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:02
        trace in_port=2,dl_src=50:54:00:00:00:02,dl_dst=50:54:00:00:00:01
        trace in_port=3,dl_src=50:54:00:00:00:02,dl_dst=50:54:00:00:00:01
        trace in_port=4,dl_src=50:54:00:00:00:02,dl_dst=50:54:00:00:00:01
        vsctl set mirror m select_all=false -- --id=@p1 get port p1 -- set mirror m select_src_port=@p1
        trace in_port=1,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:02
        trace in_port=2,dl_src=50:54:00:00:00:02,dl_dst=50:54:00:00:00:01
        vsctl clear mirror m select_src_port -- --id=@p1 get port p1 -- set mirror m select_dst_port=@p1
        trace in_port=1,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:02
        trace in_port=2,dl_src=50:54:00:00:00:02,dl_dst=50:54:00:00:00:01
        vsctl clear mirror m select_dst_port
        trace in_port=1,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:02
        vsctl clear bridge br0 mirrors
        trace in_port=1,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:02
        trace in_port=3,dl_src=50:54:00:00:00:02,dl_dst=50:54:00:00:00:01
    "#;
    the_packet_as_it_is_then: r#"
        ofctl add-flow br0 in_port=1,actions=set_field:50:54:00:00:00:99->eth_src,2,set_field:50:54:00:00:00:98->eth_src,4
        vsctl set bridge br0 mirrors=@m -- --id=@p2 get port p2 -- --id=@p3 get port p3 -- --id=@p4 get port p4 -- --id=@m create mirror name=m select_dst_port=@p2,@p4 output_port=@p3 > /dev/null
        trace in_port=1,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:02
        vsctl set mirror m snaplen=64
        trace in_port=1,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:02
        receive p1 'in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=17,tos=0,ttl=64,frag=no),udp(src=5,dst=80)'
        appctl revalidator/wait
        appctl dpctl/dump-flows
        ofctl dump-flows br0
    "#;
    selected_by_vlan: r#"
        ofctl add-flow br0 in_port=1,actions=push_vlan:0x8100,set_field:0x100c->vlan_vid,2
        ofctl add-flow br0 in_port=2,actions=set_field:0x1011->vlan_vid,push_vlan:0x8100,set_field:0x100c->vlan_vid,1
        ofctl add-flow br0 in_port=4,actions=strip_vlan,2
        vsctl set bridge br0 mirrors=@m -- --id=@p3 get port p3 -- --id=@m create mirror name=m select_all=true select_vlan=11,17 output_port=@p3 > /dev/null
        trace in_port=1,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:02
        trace in_port=1,dl_vlan=11,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:02
        trace in_port=2,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:02
        trace in_port=2,dl_vlan=17,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:02
        trace in_port=4,dl_vlan=11,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:02
        trace in_port=4,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:02
        vsctl set mirror m select_vlan=0
        trace in_port=4,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:02
        trace in_port=4,dl_vlan=11,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:02
        vsctl set port p4 tag=5
        trace in_port=4,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:02
        trace in_port=4,dl_vlan=11,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:02
    "#;
    to_a_vlan: r#"
        ofctl add-flow br0 in_port=1,actions=2
        vsctl set port p3 tag=12 -- set port br0 trunks=99 -- set port p4 trunks=99
        vsctl set bridge br0 mirrors=@m -- --id=@p1 get port p1 -- --id=@m create mirror name=m select_src_port=@p1 output_vlan=12 > /dev/null
        # Whether the address is a reserved one decides, so that the megaflow has to have it.
        trace in_port=1,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:02 | grep -v Megaflow
        trace in_port=1,dl_vlan=12,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:02 | grep -v Megaflow
        trace in_port=1,dl_src=50:54:00:00:00:01,dl_dst=01:80:c2:00:00:02 | grep -v Megaflow
        vsctl set port p1 trunks=98 -- set port p2 trunks=97
        trace in_port=1,dl_vlan=98,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:02 | grep -v Megaflow
        trace in_port=1,dl_vlan=97,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:02 | grep -v Megaflow
    "#;
    normal_spares_reserved_ports: r#"
        ofctl add-flow br0 actions=NORMAL
        vsctl set bridge br0 mirrors=@m -- --id=@p3 get port p3 -- --id=@p1 get port p1 -- --id=@m create mirror name=m select_src_port=@p1 output_port=@p3 > /dev/null
        vsctl set port br0 trunks=99 -- set port p4 trunks=99
        trace in_port=2,dl_src=50:54:00:00:00:01,dl_dst=ff:ff:ff:ff:ff:ff
        trace in_port=1,dl_src=50:54:00:00:00:01,dl_dst=ff:ff:ff:ff:ff:ff
        trace in_port=3,dl_src=50:54:00:00:00:01,dl_dst=ff:ff:ff:ff:ff:ff
        appctl fdb/add br0 p3 0 50:54:00:00:00:33
        trace in_port=2,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:33
    "#;
    several_mirrors: r#"
        ofctl add-flow br0 in_port=1,actions=2
        vsctl set bridge br0 mirrors=@m,@n -- --id=@p1 get port p1 -- --id=@p2 get port p2 -- --id=@p3 get port p3 -- --id=@m create mirror name=m select_src_port=@p1 output_port=@p3 -- --id=@n create mirror name=n select_dst_port=@p2 output_port=@p3 > /dev/null
        trace in_port=1,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:02
        vsctl set mirror n output_port=$(ovs-vsctl get port p4 _uuid)
        trace in_port=1,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:02
    "#;
    patch_ports: r#"
        vsctl add-br br1 -- set bridge br1 datapath_type=dummy -- add-port br1 q1 -- set interface q1 type=dummy ofport_request=1 -- add-port br1 q2 -- set interface q2 type=dummy ofport_request=2
        vsctl add-port br0 pa -- set interface pa type=patch options:peer=pb ofport_request=7 -- add-port br1 pb -- set interface pb type=patch options:peer=pa ofport_request=7
        ofctl add-flow br0 in_port=1,actions=pa,2
        ofctl add-flow br1 in_port=pb,actions=q1
        vsctl set bridge br0 mirrors=@m -- --id=@p3 get port p3 -- --id=@m create mirror name=m select_all=true output_port=@p3 > /dev/null
        vsctl set bridge br1 mirrors=@m -- --id=@q2 get port q2 -- --id=@m create mirror name=n select_all=true output_port=@q2 > /dev/null
        trace in_port=1,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:02
        vsctl set mirror m output_port=$(ovs-vsctl get port pa _uuid)
        trace in_port=1,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:02
        vsctl set mirror m snaplen=64
        trace in_port=1,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:02
    "#;
    a_recirculated_packet: r#"
        ofctl add-flow br0 in_port=1,ip,actions=ct(table=1)
        ofctl add-flow br0 'table=1,actions=2'
        vsctl set bridge br0 mirrors=@m -- --id=@p3 get port p3 -- --id=@m create mirror name=m select_all=true output_port=@p3 > /dev/null
        trace in_port=1,ip,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:02,nw_src=10.0.0.1,nw_dst=10.0.0.2,nw_proto=17,nw_ttl=64,udp_src=1,udp_dst=2 | sed 's/recirc(0x[0-9a-f]*)/recirc(X)/g; s/recirc_id=0x[0-9a-f]*/recirc_id=X/g; s/thaw.*//'
    "#;
    packet_outs: r#"
        vsctl set bridge br0 mirrors=@m -- --id=@p3 get port p3 -- --id=@m create mirror name=m select_all=true output_port=@p3 > /dev/null
        ofctl packet-out br0 1 2 50540000000250540000000108004500
        ofctl packet-out br0 3 2 50540000000250540000000108004500
        ofctl packet-out br0 none 2 50540000000250540000000108004500
        ofctl dump-ports br0 p2
        ofctl dump-ports br0 p3
    "#;
    errors: r#"
        ofctl add-flow br0 in_port=1,actions=2
        vsctl set bridge br0 mirrors=@m -- --id=@m create mirror name=m select_all=true > /dev/null
        trace in_port=1,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:02
        vsctl add-br br1 -- set bridge br1 datapath_type=dummy -- add-port br1 q1 -- set interface q1 type=dummy ofport_request=1
        vsctl set mirror m output_port=$(ovs-vsctl get port q1 _uuid)
        trace in_port=1,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:02
        vsctl set mirror m select_all=false select_src_port=$(ovs-vsctl get port q1 _uuid),$(ovs-vsctl get port p1 _uuid) output_port=$(ovs-vsctl get port p3 _uuid) output_vlan=5
        trace in_port=1,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:02
        vsctl del-port p3
        trace in_port=1,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:02 | grep -v Megaflow
        grep -o 'bridge br0: mirror.*' ovs-vswitchd.log | sort -u
    "#;
}
