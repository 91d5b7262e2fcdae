// SPDX-License-Identifier: Apache-2.0
//! Connection tracking in `ofproto/trace`: texts, megaflows, datapath actions.

scenarios! {
    tracked_and_resumed: r#"
        ofctl add-flow br0 'priority=10,in_port=1,tcp,actions=mod_nw_dst:10.9.9.9,load:7->NXM_NX_REG1[],ct(zone=5,table=1),2'
        ofctl add-flow br0 'table=1,ct_state=+trk+new,tcp,actions=ct(commit,zone=5,nat(dst=1.1.1.1)),ct_clear,3'
        ofctl add-flow br0 'table=1,ct_state=+trk+est,tcp,actions=ct_clear,ct_clear,2'
        ofctl add-flow br0 'table=1,ct_state=+trk,udp,ct_mark=5,ct_label=0x7,actions=4'
        trace in_port=1,tcp
        trace in_port=1,tcp --ct-next trk,est
        trace in_port=1,tcp --ct-next trk,inv
        trace in_port=1,tcp -generate
        trace in_port=1,udp
    "#;
    arguments_of_ct: r#"
        ofctl add-flow br0 'in_port=1,tcp,actions=ct(commit,zone=NXM_NX_REG1[0..15],exec(load:0x17->NXM_NX_CT_MARK[0..7],set_field:0x55->ct_label,move:NXM_OF_IN_PORT[]->NXM_NX_CT_MARK[16..31]),nat(src=1.2.3.4-1.2.3.9:10-20,random,persistent),alg=ftp),3'
        ofctl add-flow br0 'in_port=2,udp,actions=ct(commit,exec(set_field:0->ct_label)),ct(commit,exec(set_field:0/5->ct_label)),ct(commit,exec(set_field:0/1->ct_mark)),ct(commit,exec(set_field:0x1ffffffffffffffffff->ct_label)),ct(commit,nat(src)),ct(commit,nat(src=1.1.1.1-1.1.1.1:5-5)),ct(commit,alg=tftp),ct(zone=NXM_OF_UDP_DST[])'
        ofctl add-flow br0 'in_port=2,udp6,actions=ct(commit,nat(dst=fe80::1-fe80::9)),ct(commit,nat(src=[fe80::1]:5)),ct(commit,force,exec(set_field:1/1->ct_label)),ct'
        trace in_port=1,tcp
        trace in_port=2,udp,udp_dst=9
        trace in_port=2,udp6
    "#;
    several_copies: r#"
        ofctl add-flow br0 'in_port=1,tcp,actions=ct(commit,zone=5,table=1,nat(src=1.2.3.4:70),exec(load:0x17->NXM_NX_CT_MARK[])),ct(zone=6,table=2),ct_clear,2'
        ofctl add-flow br0 'table=1,ct_state=+trk,tcp,actions=ct_clear,2,ct(table=3,zone=NXM_NX_CT_ZONE[])'
        ofctl add-flow br0 'table=2,ct_state=+trk,tcp,ct_mark=0,actions=resubmit(,3)'
        ofctl add-flow br0 'table=3,ct_state=+trk,tcp,actions=clone(ct(commit),3),ct_clear,3'
        ofctl add-flow br0 'in_port=2,udp,actions=clone(ct(table=1)),3'
        trace in_port=1,tcp
        trace in_port=1,tcp --ct-next trk,est,rpl --ct-next 'trk, rel' --ct-next ,
        trace in_port=2,udp
        appctl ofproto/trace br0 in_port=2,udp6
    "#;
    address_translation: r#"
        ofctl add-flow br0 'in_port=2,ip,actions=ct(commit,table=1,nat(dst=10.0.0.1-10.0.0.9:44))'
        ofctl add-flow br0 'in_port=2,ipv6,actions=ct(commit,table=1,nat(src=[fe80::1]:5-9))'
        ofctl add-flow br0 'in_port=3,ip,actions=ct(table=1,nat)'
        ofctl add-flow br0 'table=1,ip,actions=1'
        trace in_port=2,tcp,tp_src=7,nw_src=1.2.3.4
        trace in_port=2,udp6,udp_src=8,ipv6_dst=fe80::7
        trace in_port=3,icmp
    "#;
    masks: r#"
        ofctl add-flow br0 'in_port=2,icmp,ct_state=+trk+est,ct_nw_src=1.1.1.1,actions=1'
        ofctl add-flow br0 'in_port=2,ip,ct_state=-est+new,ct_zone=7,ct_mark=0x1/0x3,ct_label=0x5/0xff,actions=2'
        trace in_port=2,icmp
        trace in_port=2,icmp,ct_state=0x22
        trace in_port=2,icmp,ct_state=0x22,ct_nw_src=1.1.1.1
        trace in_port=2,icmp,ct_state=0x22,ct_nw_src=1.1.1.1,ct_nw_proto=6,ct_tp_src=5
        trace in_port=2,tcp,ct_state=0x21,ct_zone=7,ct_mark=5,ct_label=0x15
        trace in_port=3,arp
    "#;
    resubmit_by_the_original_tuple: r#"
        ofctl add-flow br0 'in_port=1,ip,ct_state=+trk-inv,actions=resubmit(,3,ct),resubmit(,3)'
        ofctl add-flow br0 'in_port=1,ipv6,ct_state=+rpl,actions=resubmit(2,3,ct)'
        ofctl add-flow br0 'in_port=4,ip,ct_state=+est,actions=resubmit(,4,ct),1'
        ofctl add-flow br0 'in_port=4,arp,ct_state=+est,actions=resubmit(,4,ct),2'
        ofctl add-flow br0 'table=3,tcp,nw_src=10.0.0.0/24,tp_dst=80,actions=2'
        ofctl add-flow br0 'table=3,udp,ct_state=+trk-inv,nw_dst=10.0.0.1,actions=set_field:1.1.1.1->ip_dst,3,resubmit(,4,ct)'
        ofctl add-flow br0 'table=3,priority=2,in_port=2,tcp6,ipv6_src=fe80::1,actions=4'
        ofctl add-flow br0 'table=4,udp,nw_src=10.0.0.2/31,actions=4'
        for a in 'ip,actions=resubmit(,3,ct)' 'ip,ct_state=+trk+inv,actions=resubmit(,3,ct)' 'ip,ct_state=+new,actions=resubmit(1,3,foo)' 'ip,ct_state=+new,actions=resubmit(,,ct)'; do ofctl add-flow br0 "$a" 2>&1 | sed 's/.*ovs-ofctl: //'; done
        ofctl dump-flows br0 | sed 's/duration=[^,]*//' | sort
        trace in_port=1,tcp,ct_state=0x2a,nw_src=10.0.0.2,nw_dst=10.0.0.1,tp_src=80,tp_dst=9,ct_nw_proto=6,ct_nw_src=10.0.0.1,ct_nw_dst=10.0.0.2,ct_tp_src=9,ct_tp_dst=80
        trace in_port=1,icmp,icmp_type=3,ct_state=0x25,ct_nw_proto=17,ct_nw_src=10.0.0.2,ct_nw_dst=10.0.0.1,ct_tp_src=5,ct_tp_dst=6
        trace in_port=1,udp,ct_state=0x2a,nw_dst=10.0.0.1,ct_nw_proto=17,ct_nw_src=10.0.0.3,ct_nw_dst=10.0.0.9
        trace in_port=1,tcp6,ct_state=0x2a,ipv6_dst=fe80::1,ct_nw_proto=6,ct_ipv6_src=fe80::1
        trace in_port=1,tcp,ct_state=0x2a,nw_src=10.0.0.2 | grep -v '^Megaflow'
        trace in_port=4,arp,ct_state=0x22
        trace in_port=4,arp,ct_state=0x22,ct_nw_proto=6
    "#;
    groups_and_sets: r#"
        ofctl -O OpenFlow13 add-flow br0 'in_port=1,icmp,actions=write_actions(set_field:1.1.1.1->ip_dst,ct(table=2,commit,nat))'
        ofctl -O OpenFlow13 add-flow br0 'in_port=4,icmp,actions=write_actions(ct(table=3),output:2)'
        ofctl add-flow br0 'table=2,icmp,actions=2'
        ofctl -O OpenFlow15 add-group br0 'group_id=4,type=all,bucket=bucket_id:0,actions=ct(commit,nat(dst=1.1.1.1:8),table=2),bucket=bucket_id:1,actions=resubmit(,8),bucket=bucket_id:2,actions=2'
        ofctl -O OpenFlow15 add-group br0 'group_id=5,type=select,bucket=bucket_id:0,actions=ct(table=2)'
        ofctl -O OpenFlow13 add-flow br0 'table=8,ip,actions=ct(zone=7),2,ct_clear,1'
        ofctl -O OpenFlow13 add-flow br0 'in_port=3,icmp,actions=group:4,ct_clear,2'
        ofctl -O OpenFlow13 add-flow br0 'in_port=3,udp,actions=group:5'
        trace in_port=1,icmp
        trace in_port=3,icmp
        trace in_port=3,udp
        trace in_port=4,icmp | grep -v '^Final'
    "#;
    states_of_ct_next: r#"
        ofctl add-flow br0 'in_port=1,ip,actions=ct(table=1)'
        # The same copy has the same id here.
        for s in trk trk,foo 0x10 inv trk,inv,new 'trk|est' new trk,new,est,trk '""' , TRK trk,new,rpl inv,new,est,rpl 'trk, est' dnat,snat,trk; do appctl ofproto/trace br0 in_port=1,tcp --ct-next "$s" 2>&1 | sed -n 's/^recirc(.*)//p; s/^Flow: recirc_id=0x[0-9a-f]*//p; /unknown\|invalid/p'; done
        trace in_port=1,tcp --ct-next
    "#;
    patch_ports: r#"
        vsctl add-br br1 -- set bridge br1 datapath_type=dummy fail-mode=secure -- add-port br0 pa -- set interface pa type=patch options:peer=pb ofport_request=10 -- add-port br1 pb -- set interface pb type=patch options:peer=pa ofport_request=10
        ofctl add-flow br0 'in_port=1,actions=10'
        ofctl add-flow br1 'in_port=10,ip,actions=ct(table=1,zone=9),LOCAL'
        ofctl add-flow br1 'table=1,actions=10,LOCAL'
        ofctl add-flow br0 'in_port=2,ip,actions=ct(table=2)'
        ofctl add-flow br0 'table=2,actions=10,ct_clear,10,3'
        ofctl add-flow br1 'priority=40000,tcp6,ct_state=-trk,actions=LOCAL'
        trace in_port=1,tcp
        trace in_port=2,udp
        trace in_port=1,tcp6
    "#;
}
