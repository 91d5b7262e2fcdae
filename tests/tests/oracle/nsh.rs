// SPDX-License-Identifier: Apache-2.0
//! Network Service Headers and packet types: matches, `encap`, `decap`, and what datapaths do.

scenarios! {
    nsh_fields: r#"
        ofctl -O OpenFlow13 add-flow br0 'in_port=1,dl_type=0x894f,nsh_ttl=63,nsh_mdtype=1,nsh_np=3,nsh_spi=0x123456,nsh_si=255,nsh_c1=0x11223344,actions=set_field:0x2->nsh_flags,set_field:254->nsh_si,set_field:0x44332211->nsh_c1,2'
        ofctl -O OpenFlow13 add-flow br0 'in_port=2,dl_type=0x894f,nsh_flags=0x1/0x3,nsh_mdtype=1,nsh_c2=0x10/0xf0,actions=load:7->NXOXM_NSH_C4[0..7],move:NXOXM_NSH_SI[]->NXM_NX_REG0[0..7],dec_nsh_ttl,3'
        ofctl -O OpenFlow13 --no-stats dump-flows br0
        ofctl -O OpenFlow15 --no-stats dump-flows br0
        ofctl --no-stats dump-flows br0
        trace 'in_port=1,dl_type=0x894f,nsh_ttl=63,nsh_mdtype=1,nsh_np=3,nsh_spi=0x123456,nsh_si=255,nsh_c1=0x11223344,nsh_c2=0x55667788,nsh_c3=0x99aabbcc,nsh_c4=0xddeeff00'
        trace 'in_port=2,dl_type=0x894f,nsh_flags=1,nsh_ttl=9,nsh_mdtype=1,nsh_np=3,nsh_spi=5,nsh_si=200,nsh_c2=0x12'
        trace 'in_port=2,dl_type=0x894f,nsh_flags=1,nsh_ttl=1,nsh_mdtype=1,nsh_np=3,nsh_spi=5,nsh_si=200,nsh_c2=0x12'
        ofctl add-flow br0 'nsh_spi=1,actions=2'
        ofctl add-flow br0 'dl_type=0x894f,nsh_spi=0x1000000,actions=2'
        ofctl add-flow br0 'dl_type=0x894f,actions=set_field:1->nsh_np'
        ofctl -O OpenFlow13 add-flow br0 'ip,actions=set_field:1->nsh_spi,2'
        ofctl -O OpenFlow13 add-flow br0 'ip,actions=dec_nsh_ttl,2'
    "#;
    encap_and_decap: r#"
        vsctl add-port br0 v3 -- set interface v3 type=patch options:peer=v4 ofport_request=13 -- add-port br0 v4 -- set interface v4 type=patch options:peer=v3 ofport_request=14
        ofctl -O OpenFlow13 add-flow br0 'in_port=1,ip,actions=encap(nsh(md_type=1)),set_field:0x1234->nsh_spi,set_field:0x11223344->nsh_c1,encap(ethernet),set_field:11:22:33:44:55:66->dl_dst,13'
        ofctl -O OpenFlow13 add-flow br0 'in_port=14,dl_type=0x894f,nsh_mdtype=1,nsh_spi=0x1234,nsh_c1=0x11223344,actions=decap(),decap(),2'
        ofctl -O OpenFlow13 --no-stats dump-flows br0
        trace in_port=1,icmp,dl_src=00:11:22:33:44:55,dl_dst=66:77:88:99:aa:bb,nw_dst=10.10.10.10,nw_src=20.20.20.20 | grep -v Megaflow
        receive p1 1e2ce92a669e3a6dd2099cab0800450000548a53400040011addc0a80a0ac0a80a1e08006f200a4d0001fc509a58000000002715020000000000101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f3031323334353637
        receive p1 1e2ce92a669e3a6dd2099cab0800450000548a83400040011aadc0a80a0ac0a80a1e0800b7170a4d0002fd509a5800000000de1c020000000000101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f3031323334353637
        appctl time/warp 1000
        appctl dpctl/dump-flows | sed 's/used:[0-9.]*s/used:0.0s/; s/recirc(0x[0-9a-f]*)/recirc(X)/; s/recirc_id(0x[1-9a-f][0-9a-f]*)/recirc_id(X)/' | grep -v ipv6 | sort
        ofctl dump-ports br0 2 | grep tx
    "#;
    metadata_of_type_two: r#"
        ofctl -O OpenFlow13 add-flow br0 'in_port=1,ip,actions=encap(nsh(md_type=2,tlv(0x1000,10,0x12345678),tlv(0x2000,20,0xfedcba9876543210))),set_field:0x1234->nsh_spi,encap(ethernet),set_field:11:22:33:44:55:66->dl_dst,2'
        ofctl -O OpenFlow13 --no-stats dump-flows br0
        trace in_port=1,icmp,dl_src=00:11:22:33:44:55,dl_dst=66:77:88:99:aa:bb,nw_dst=10.10.10.10,nw_src=20.20.20.20
    "#;
    headers_in_buckets: r#"
        ofctl -O OpenFlow13 add-group br0 'group_id=300,type=indirect,bucket=actions=encap(ethernet),set_field:11:22:33:44:55:66->dl_dst,3'
        ofctl -O OpenFlow13 add-group br0 'group_id=200,type=indirect,bucket=actions=encap(nsh(md_type=1)),set_field:0x5678->nsh_spi,set_field:0x55667788->nsh_c1,group:300'
        ofctl -O OpenFlow13 add-group br0 'group_id=100,type=indirect,bucket=actions=encap(nsh(md_type=1)),set_field:0x1234->nsh_spi,set_field:0x11223344->nsh_c1,group:200'
        ofctl -O OpenFlow13 add-flow br0 'in_port=1,ip,actions=group:100'
        trace in_port=1,icmp,dl_src=00:11:22:33:44:55,dl_dst=66:77:88:99:aa:bb | grep Datapath
    "#;
    packet_types: r#"
        ofctl -O OpenFlow13 add-flow br0 'packet_type=(1,0x800),nw_dst=10.0.0.1,actions=2'
        ofctl -O OpenFlow13 add-flow br0 'packet_type=(1,0x894f),nsh_spi=0x1234,actions=encap(ethernet),3'
        ofctl -O OpenFlow13 add-flow br0 'packet_type=(0,0),dl_dst=00:00:00:00:00:01,actions=4'
        ofctl -O OpenFlow13 --no-stats dump-flows br0
        ofctl -O OpenFlow15 --no-stats dump-flows br0
        ofctl --no-stats dump-flows br0
        ofctl -O OpenFlow13 --no-stats dump-flows br0 'packet_type=(1,0x894f)'
        ofctl -O OpenFlow13 add-flow br0 'table=1,actions=decap(),2'
        ofctl -O OpenFlow13 add-flow br0 'table=1,priority=5,ip,actions=decap(),encap(nsh),encap(ethernet),2'
        ofctl -O OpenFlow13 add-flow br0 'in_port=1,actions=resubmit(,1)'
        trace in_port=1,ip | tail -2
        trace in_port=1,arp | tail -2
        ofctl -O OpenFlow13 add-flow br0 'in_port=1,actions=encap(ethernet),2'
        trace in_port=1,ip | tail -4
        ofctl -O OpenFlow13 add-flow br0 'in_port=1,actions=encap(nsh),2'
        trace in_port=1,ip | tail -4
    "#;
    packets_without_ethernet_between_bridges: r#"
        vsctl add-br br1 -- set bridge br1 datapath_type=dummy fail_mode=secure -- add-port br1 q1 -- set interface q1 type=patch options:peer=q0 ofport_request=22 -- add-port br0 q0 -- set interface q0 type=patch options:peer=q1 ofport_request=21 -- add-port br1 p6 -- set interface p6 type=dummy ofport_request=6
        ofctl -O OpenFlow13 add-flow br0 'in_port=1,actions=encap(nsh),set_field:5->nsh_spi,21'
        ofctl -O OpenFlow13 add-flow br1 'packet_type=(1,0x894f),nsh_spi=5,actions=encap(ethernet),6'
        trace in_port=1,ip
        receive p1 50540000000250540000000388a8
        ofctl dump-ports br1 6 | grep tx
        ofctl -O OpenFlow13 add-flow br0 'in_port=21,actions=2'
        ofctl -O OpenFlow13 add-flow br1 'in_port=6,actions=decap(),22'
        appctl ofproto/trace br1 in_port=6,ip
    "#;
    normal_of_packets_without_ethernet: r#"
        ofctl -O OpenFlow13 add-flow br0 'in_port=1,actions=encap(nsh),NORMAL'
        trace in_port=1,ip,dl_src=50:54:00:00:00:03,dl_dst=50:54:00:00:00:04
        receive p1 50540000000250540000000388a8
        appctl fdb/show br0
    "#;
    labels_in_front_of_frames: r#"
        vsctl add-port br0 v3 -- set interface v3 type=patch options:peer=v4 ofport_request=13 -- add-port br0 v4 -- set interface v4 type=patch options:peer=v3 ofport_request=14
        ofctl -O OpenFlow13 add-flow br0 'in_port=1,actions=encap(mpls),encap(ethernet),set_field:00:00:00:00:00:02->dl_dst,set_field:00:00:00:00:00:01->dl_src,13'
        ofctl -O OpenFlow13 add-flow br0 'in_port=14,dl_type=0x8847,actions=decap(),decap(packet_type(ns=0,type=0)),2'
        ofctl -O OpenFlow13 --no-stats dump-flows br0
        ofctl -O OpenFlow15 --no-stats dump-flows br0
        trace in_port=1,icmp,dl_src=00:11:22:33:44:55,dl_dst=66:77:88:99:aa:bb,nw_dst=10.10.10.10,nw_src=20.20.20.20
        receive p1 1e2ce92a669e3a6dd2099cab0800450000548a53400040011addc0a80a0ac0a80a1e08006f200a4d0001fc509a58000000002715020000000000101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f3031323334353637
        receive p1 1e2ce92a669e3a6dd2099cab0800450000548a83400040011aadc0a80a0ac0a80a1e0800b7170a4d0002fd509a5800000000de1c020000000000101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f3031323334353637
        appctl time/warp 1000
        appctl dpctl/dump-flows | sed 's/used:[0-9.]*s/used:0.0s/; s/recirc(0x[0-9a-f]*)/recirc(X)/; s/recirc_id(0x[1-9a-f][0-9a-f]*)/recirc_id(X)/' | grep -v ipv6 | sort
        ofctl dump-ports br0 2 | grep tx
    "#;
    labels_by_the_hand_of_actions: r#"
        ofctl -O OpenFlow13 add-flow br0 'in_port=1,actions=encap(mpls),set_field:1->mpls_label,encap(mpls_mc),set_field:2->mpls_label,set_field:3->mpls_tc,dec_mpls_ttl,encap(ethernet),2'
        trace in_port=1,ip | tail -1
        trace in_port=1,ipv6 | tail -1
        ofctl -O OpenFlow13 add-flow br0 'in_port=1,actions=encap(mpls),set_field:1->mpls_label,encap(mpls),set_field:2->mpls_label,encap(mpls),set_field:3->mpls_label,encap(mpls),set_field:4->mpls_label,encap(ethernet),2'
        receive p1 1e2ce92a669e3a6dd2099cab0800450000548a53400040011addc0a80a0ac0a80a1e08006f200a4d0001fc509a58000000002715020000000000101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f3031323334353637
        ofctl dump-ports br0 2 | grep tx
        ofctl -O OpenFlow13 add-flow br0 'in_port=1,dl_type=0x8847,actions=decap(),decap(packet_type(ns=0,type=0)),2'
        receive p1 00000000000200000000000188470000204000002040000020400000204036b1ee7c010236b1ee7c010308004500005403444000400121610a0101010a0101020800efac7ce400035b2c1f6100000000500b020000000000101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f3031323334353637
        ofctl dump-ports br0 2 | grep tx
        ofctl -O OpenFlow13 add-flow br0 'in_port=3,dl_type=0x8847,actions=decap(),decap(),2'
        trace in_port=3,mpls,mpls_label=5,mpls_bos=1 | grep Datapath | sed 's/recirc(0x[0-9a-f]*)/recirc(X)/'
        ofctl -O OpenFlow13 add-flow br0 'in_port=3,dl_type=0x8847,actions=decap(),decap(packet_type(ns=1,type=0x8847)),encap(ethernet),2'
        trace 'in_port=3,mpls,mpls_label=5,mpls_bos=0,mpls_lse1=25920' | grep Datapath
        ofctl -O OpenFlow13 add-flow br0 'table=1,packet_type=(1,0x8847),mpls_label=5,actions=dec_mpls_ttl,encap(ethernet),3'
        ofctl -O OpenFlow13 add-flow br0 'in_port=3,dl_type=0x8847,actions=decap(),resubmit(,1)'
        trace in_port=3,mpls,mpls_label=5,mpls_bos=1,mpls_ttl=9 | grep Datapath
        ofctl -O OpenFlow13 add-flow br0 'in_port=3,ip,actions=encap(mpls),push_mpls:0x8847,2'
        ofctl -O OpenFlow13 add-flow br0 'in_port=3,ip,actions=encap(mpls),set_field:3->nw_ttl,2'
        ofctl -O OpenFlow13 add-flow br0 'in_port=3,ip,actions=set_field:3->mpls_label,encap(mpls),2'
        ofctl -O OpenFlow13 add-flow br0 'in_port=3,ip,actions=encap(mpls),dec_mpls_ttl,encap(ethernet),2'
        appctl dpif/show-dp-features br0 | grep MPLS
    "#;
    fields_of_nsh_in_each_version: r#"
        ofctl -O OpenFlow10 add-flow br0 'table=1,dl_type=0x894f,actions=set_field:1->nsh_ttl,2'
        ofctl -O OpenFlow10 add-flow br0 'table=2,dl_type=0x894f,actions=load:1->NXOXM_NSH_TTL[],2'
        ofctl -O OpenFlow10 add-flow br0 'table=3,dl_type=0x894f,actions=set_field:1/3->nsh_flags,2'
        ofctl -O OpenFlow10 add-flow br0 'table=4,dl_type=0x894f,actions=move:NXOXM_NSH_TTL[]->NXM_NX_REG0[0..7],dec_nsh_ttl,2'
        ofctl -O OpenFlow10 add-flow br0 'table=5,dl_type=0x894f,actions=encap(mpls),set_field:1->mpls_ttl,decap()'
        ofctl -O OpenFlow10 add-flow br0 'table=1,ip,actions=set_field:1->nsh_ttl,2'
        ofctl -O OpenFlow10 add-flow br0 'table=2,ip,actions=load:1->NXOXM_NSH_TTL[],2'
        ofctl -O OpenFlow10 add-flow br0 'table=3,ip,actions=set_field:1/3->nsh_flags,2'
        ofctl -O OpenFlow10 add-flow br0 'table=4,ip,actions=move:NXOXM_NSH_TTL[]->NXM_NX_REG0[0..7],dec_nsh_ttl,2'
        ofctl -O OpenFlow10 add-flow br0 'table=5,ip,actions=encap(mpls),set_field:1->mpls_ttl,decap()'
        ofctl -O OpenFlow10 add-flow br0 'table=1,in_port=1,actions=set_field:1->nsh_ttl,2'
        ofctl -O OpenFlow10 add-flow br0 'table=2,in_port=1,actions=load:1->NXOXM_NSH_TTL[],2'
        ofctl -O OpenFlow10 add-flow br0 'table=3,in_port=1,actions=set_field:1/3->nsh_flags,2'
        ofctl -O OpenFlow10 add-flow br0 'table=4,in_port=1,actions=move:NXOXM_NSH_TTL[]->NXM_NX_REG0[0..7],dec_nsh_ttl,2'
        ofctl -O OpenFlow10 add-flow br0 'table=5,in_port=1,actions=encap(mpls),set_field:1->mpls_ttl,decap()'
        ofctl -O OpenFlow13 add-flow br0 'table=1,dl_type=0x894f,actions=set_field:1->nsh_ttl,2'
        ofctl -O OpenFlow13 add-flow br0 'table=2,dl_type=0x894f,actions=load:1->NXOXM_NSH_TTL[],2'
        ofctl -O OpenFlow13 add-flow br0 'table=3,dl_type=0x894f,actions=set_field:1/3->nsh_flags,2'
        ofctl -O OpenFlow13 add-flow br0 'table=4,dl_type=0x894f,actions=move:NXOXM_NSH_TTL[]->NXM_NX_REG0[0..7],dec_nsh_ttl,2'
        ofctl -O OpenFlow13 add-flow br0 'table=5,dl_type=0x894f,actions=encap(mpls),set_field:1->mpls_ttl,decap()'
        ofctl -O OpenFlow13 add-flow br0 'table=1,ip,actions=set_field:1->nsh_ttl,2'
        ofctl -O OpenFlow13 add-flow br0 'table=2,ip,actions=load:1->NXOXM_NSH_TTL[],2'
        ofctl -O OpenFlow13 add-flow br0 'table=3,ip,actions=set_field:1/3->nsh_flags,2'
        ofctl -O OpenFlow13 add-flow br0 'table=4,ip,actions=move:NXOXM_NSH_TTL[]->NXM_NX_REG0[0..7],dec_nsh_ttl,2'
        ofctl -O OpenFlow13 add-flow br0 'table=5,ip,actions=encap(mpls),set_field:1->mpls_ttl,decap()'
        ofctl -O OpenFlow13 add-flow br0 'table=1,in_port=1,actions=set_field:1->nsh_ttl,2'
        ofctl -O OpenFlow13 add-flow br0 'table=2,in_port=1,actions=load:1->NXOXM_NSH_TTL[],2'
        ofctl -O OpenFlow13 add-flow br0 'table=3,in_port=1,actions=set_field:1/3->nsh_flags,2'
        ofctl -O OpenFlow13 add-flow br0 'table=4,in_port=1,actions=move:NXOXM_NSH_TTL[]->NXM_NX_REG0[0..7],dec_nsh_ttl,2'
        ofctl -O OpenFlow13 add-flow br0 'table=5,in_port=1,actions=encap(mpls),set_field:1->mpls_ttl,decap()'
        ofctl -O OpenFlow15 add-flow br0 'table=1,dl_type=0x894f,actions=set_field:1->nsh_ttl,2'
        ofctl -O OpenFlow15 add-flow br0 'table=2,dl_type=0x894f,actions=load:1->NXOXM_NSH_TTL[],2'
        ofctl -O OpenFlow15 add-flow br0 'table=3,dl_type=0x894f,actions=set_field:1/3->nsh_flags,2'
        ofctl -O OpenFlow15 add-flow br0 'table=4,dl_type=0x894f,actions=move:NXOXM_NSH_TTL[]->NXM_NX_REG0[0..7],dec_nsh_ttl,2'
        ofctl -O OpenFlow15 add-flow br0 'table=5,dl_type=0x894f,actions=encap(mpls),set_field:1->mpls_ttl,decap()'
        ofctl -O OpenFlow15 add-flow br0 'table=1,ip,actions=set_field:1->nsh_ttl,2'
        ofctl -O OpenFlow15 add-flow br0 'table=2,ip,actions=load:1->NXOXM_NSH_TTL[],2'
        ofctl -O OpenFlow15 add-flow br0 'table=3,ip,actions=set_field:1/3->nsh_flags,2'
        ofctl -O OpenFlow15 add-flow br0 'table=4,ip,actions=move:NXOXM_NSH_TTL[]->NXM_NX_REG0[0..7],dec_nsh_ttl,2'
        ofctl -O OpenFlow15 add-flow br0 'table=5,ip,actions=encap(mpls),set_field:1->mpls_ttl,decap()'
        ofctl -O OpenFlow15 add-flow br0 'table=1,in_port=1,actions=set_field:1->nsh_ttl,2'
        ofctl -O OpenFlow15 add-flow br0 'table=2,in_port=1,actions=load:1->NXOXM_NSH_TTL[],2'
        ofctl -O OpenFlow15 add-flow br0 'table=3,in_port=1,actions=set_field:1/3->nsh_flags,2'
        ofctl -O OpenFlow15 add-flow br0 'table=4,in_port=1,actions=move:NXOXM_NSH_TTL[]->NXM_NX_REG0[0..7],dec_nsh_ttl,2'
        ofctl -O OpenFlow15 add-flow br0 'table=5,in_port=1,actions=encap(mpls),set_field:1->mpls_ttl,decap()'
        ofctl --no-stats dump-flows br0
        ofctl -O OpenFlow15 --no-stats dump-flows br0
    "#;
    packets_without_ethernet_of_controllers: r#"
        ofctl -O OpenFlow15 packet-out br0 'in_port=controller packet=4500002012344000ff1155670a0000140a00001e006400c8000cea78ffffffff packet_type(1,0x800) actions=encap(ethernet),2'
        ofctl -O OpenFlow15 packet-out br0 'in_port=controller packet=4500002012344000ff1155670a0000140a00001e006400c8000cea78ffffffff packet_type(1,0x800) actions=dec_ttl,encap(nsh),encap(ethernet),3'
        ofctl -O OpenFlow15 packet-out br0 'in_port=controller packet=4500002012344000ff1155670a0000140a00001e006400c8000cea78ffffffff packet_type(1,0x800) actions=2'
        ofctl dump-ports br0 2 | grep tx
        ofctl dump-ports br0 3 | grep tx
    "#;
    resuming_in_the_second_table: r#"
        vsctl add-port br0 v3 -- set interface v3 type=patch options:peer=v4 ofport_request=13 -- add-port br0 v4 -- set interface v4 type=patch options:peer=v3 ofport_request=14
        ofctl -O OpenFlow13 add-group br0 group_id=100,type=indirect,bucket=actions='encap(nsh(md_type=1)),set_field:0x1234->nsh_spi,encap(nsh(md_type=1)),set_field:0x5678->nsh_spi,encap(ethernet),13'
        ofctl -O OpenFlow13 add-flow br0 'table=0,in_port=1,ip,actions=group:100'
        ofctl -O OpenFlow13 add-flow br0 'table=0,in_port=14,packet_type=(0,0),dl_type=0x894f,nsh_spi=0x5678,actions=decap(),goto_table:1'
        ofctl -O OpenFlow13 add-flow br0 'table=1,packet_type=(1,0x894f),nsh_spi=0x5678,actions=decap(),goto_table:2'
        ofctl -O OpenFlow13 add-flow br0 'table=2,packet_type=(1,0x894f),nsh_spi=0x1234,actions=decap(),output:2'
        receive p1 1e2ce92a669e3a6dd2099cab0800450000548a53400040011addc0a80a0ac0a80a1e08006f200a4d0001fc509a58000000002715020000000000101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f3031323334353637
        trace 'recirc_id=1,in_port=14,packet_type=(1,0x894f),nsh_mdtype=1,nsh_np=3,nsh_spi=0x1234'
        trace 'recirc_id=2,in_port=14,ip'
    "#;
}
