// SPDX-License-Identifier: Apache-2.0
//! Flow tables.

scenarios! {
    idle_time_of_a_flow_that_is_added_again: r#"
        ofctl add-flow br0 idle_timeout=10,ip,actions=1
        ofctl add-flow br0 idle_timeout=10,arp,actions=1
        ofctl add-flow br0 idle_timeout=20,icmp,actions=1
        appctl time/warp 7000
        ofctl add-flow br0 idle_timeout=10,ip,actions=2
        ofctl -O OpenFlow13 add-flow br0 idle_timeout=10,arp,actions=2
        ofctl -O OpenFlow13 add-flow br0 reset_counts,idle_timeout=20,icmp,actions=2
        appctl time/warp 5000
        appctl revalidator/wait
        ofctl dump-flows br0 | sed 's/duration=[^,]*//' | sort
    "#;
    dump_flows_in_each_version: r#"
        ofctl add-flow br0 cookie=0x5,table=3,priority=7,tcp,in_port=1,dl_vlan=5,nw_dst=10.0.0.0/8,tp_dst=80,actions=output:2,CONTROLLER:128
        ofctl add-flow br0 idle_timeout=10,hard_timeout=20,arp,actions=NORMAL
        ofctl add-flow br0 priority=0,actions=drop
        ofctl dump-flows br0
        ofctl -O OpenFlow11 dump-flows br0
        ofctl -O OpenFlow12 dump-flows br0
        ofctl -O OpenFlow13 dump-flows br0
        ofctl -O OpenFlow14 dump-flows br0
        ofctl -O OpenFlow15 dump-flows br0
        ofctl --no-stats dump-flows br0
        ofctl --names dump-flows br0
        ofctl dump-flows br0 table=3
        ofctl dump-flows br0 tcp
        ofctl dump-flows br0 out_port=2
        ofctl dump-aggregate br0
        ofctl -O OpenFlow15 dump-aggregate br0 tcp
    "#;
    counts_after_packets: r#"
        ofctl add-flow br0 in_port=1,actions=2
        ofctl add-flow br0 in_port=2,tcp,tp_dst=80,actions=1
        receive p1 'in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=1,tos=0,ttl=64,frag=no),icmp(type=8,code=0)'
        receive p2 'in_port(2),eth(src=50:54:00:00:00:02,dst=50:54:00:00:00:01),eth_type(0x0800),ipv4(src=10.0.0.2,dst=10.0.0.1,proto=6,tos=0,ttl=64,frag=no),tcp(src=1,dst=80),tcp_flags(syn)'
        receive p2 'in_port(2),eth(src=50:54:00:00:00:02,dst=50:54:00:00:00:01),eth_type(0x86dd),ipv6(src=::1,dst=::2,label=0,proto=17,tclass=0,hlimit=64,frag=no),udp(src=1,dst=80)'
        appctl revalidator/wait
        ofctl dump-flows br0
        ofctl dump-ports br0
        ofctl dump-ports br0 1
        ofctl dump-aggregate br0
        ofctl dump-tables br0
        appctl revalidator/purge
        ofctl dump-flows br0
        cat p1-tx.pcap p2-tx.pcap | od -An -tx1 -w16 | grep -c .
    "#;
    strict_and_loose: r#"
        ofctl add-flow br0 priority=5,ip,actions=1
        ofctl add-flow br0 priority=6,ip,nw_src=10.0.0.1,actions=1
        ofctl add-flow br0 priority=6,tcp,nw_src=10.0.0.1,actions=2
        ofctl --strict del-flows br0 priority=6,ip
        ofctl --no-stats dump-flows br0
        ofctl mod-flows br0 tcp,actions=3
        ofctl --no-stats dump-flows br0
        ofctl --strict mod-flows br0 priority=5,ip,actions=3
        ofctl --no-stats dump-flows br0
        ofctl del-flows br0 ip,nw_src=10.0.0.1
        ofctl --no-stats dump-flows br0
        ofctl del-flows br0 out_port=3
        ofctl --no-stats dump-flows br0
    "#;
    cookies: r#"
        ofctl add-flow br0 cookie=0x11,ip,nw_src=1.0.0.1,actions=1
        ofctl add-flow br0 cookie=0x12,ip,nw_src=1.0.0.2,actions=1
        ofctl dump-flows br0 cookie=0x11/-1
        ofctl mod-flows br0 cookie=0x12/-1,actions=2
        ofctl mod-flows br0 cookie=0x99,ip,nw_src=1.0.0.1,actions=3
        ofctl --no-stats dump-flows br0
        ofctl del-flows br0 cookie=0x10/0xf0
        ofctl --no-stats dump-flows br0
    "#;
    modify_without_a_match: r#"
        ofctl mod-flows br0 ip,actions=1
        ofctl -O OpenFlow13 mod-flows br0 arp,actions=1
        ofctl --no-stats dump-flows br0
    "#;
    overlap: r#"
        ofctl add-flow br0 ip,nw_src=10.0.0.0/8,actions=1
        ofctl add-flow br0 check_overlap,ip,nw_dst=10.0.0.0/8,actions=1
        ofctl -O OpenFlow13 add-flow br0 check_overlap,ip,nw_src=10.0.0.0/8,actions=2
        ofctl --no-stats dump-flows br0
    "#;
    flags_of_flows: r#"
        ofctl -O OpenFlow13 add-flow br0 send_flow_rem,no_packet_counts,no_byte_counts,ip,actions=1
        ofctl -O OpenFlow14 add-flow br0 importance=9,arp,actions=1
        ofctl -O OpenFlow13 add-flow br0 reset_counts,ipv6,actions=1
        ofctl -O OpenFlow13 dump-flows br0
        ofctl -O OpenFlow14 dump-flows br0
        ofctl dump-flows br0
    "#;
    timeouts: r#"
        ofctl add-flow br0 idle_timeout=5,ip,actions=1
        ofctl add-flow br0 hard_timeout=9,arp,actions=1
        ofctl add-flow br0 idle_timeout=60,hard_timeout=90,ipv6,actions=1
        appctl time/warp 4000 1000
        ofctl --no-stats dump-flows br0
        appctl time/warp 4000 1000
        ofctl --no-stats dump-flows br0
        appctl time/warp 4000 1000
        ofctl --no-stats dump-flows br0
    "#;
    full_table: r#"
        vsctl -- --id=@t create Flow_Table flow_limit=2 name=small -- set bridge br0 flow_tables:0=@t | wc -l
        ofctl add-flow br0 ip,nw_src=1.0.0.1,actions=1
        ofctl add-flow br0 ip,nw_src=1.0.0.2,actions=1
        ofctl add-flow br0 ip,nw_src=1.0.0.3,actions=1
        ofctl --no-stats dump-flows br0
        ofctl add-flow br0 ip,nw_src=1.0.0.2,actions=2
        ofctl --no-stats dump-flows br0
        ofctl -O OpenFlow15 --names --no-stats dump-flows br0
    "#;
    // A packet goes by the tables that the messages before it make, and leaves when all are done.
    bundle_with_packets: r#"
        ofctl add-flow br0 priority=0,actions=drop
        printf '%s\n' 'packet-out in_port=3, packet=0001020304050010203040501234 actions=table' 'group group_id=1,type=all,bucket=output:2' 'flow in_port=3,actions=group:1' 'packet-out in_port=3, packet=0001020304050010203040501234 actions=table' 'group delete' 'packet-out in_port=3, packet=0001020304050010203040501234 actions=table' >bundle.txt
        ofctl -O OpenFlow14 bundle br0 bundle.txt
        ofctl -O OpenFlow14 dump-flows br0
        ofctl dump-ports br0 2
        printf '%s\n' 'flow in_port=3,actions=2' 'packet-out in_port=3, packet=0001020304050010203040501234 actions=table' 'flow in_port=3,actions=group:77' >bad.txt
        ofctl -O OpenFlow14 bundle br0 bad.txt
        ofctl -O OpenFlow14 dump-flows br0
        ofctl dump-ports br0 2
    "#;
    bundle_that_fails: r#"
        ofctl add-flow br0 ip,actions=1
        printf 'delete\nadd arp,actions=1\nadd ipv6,actions=group:77\n' >bad.txt
        ofctl -O OpenFlow14 --bundle add-flows br0 bad.txt
        ofctl --no-stats dump-flows br0
        printf 'delete\nadd arp,actions=1\nmodify arp,actions=2\n' >good.txt
        ofctl -O OpenFlow14 --bundle add-flows br0 good.txt
        ofctl --no-stats dump-flows br0
    "#;
    replace_and_diff: r#"
        ofctl add-flow br0 ip,actions=1
        ofctl add-flow br0 arp,actions=1
        printf 'ip,actions=2\nipv6,actions=3\n' >new.txt
        ofctl diff-flows br0 new.txt | sort
        ofctl replace-flows br0 new.txt
        ofctl --no-stats dump-flows br0
        ofctl diff-flows br0 new.txt
    "#;
    conjunction: r#"
        ofctl add-flow br0 conj_id=1,ip,actions=4
        ofctl add-flow br0 'ip,nw_src=10.0.0.1,actions=conjunction(1,1/2)'
        ofctl add-flow br0 'ip,nw_src=10.0.0.2,actions=conjunction(1,1/2)'
        ofctl add-flow br0 'ip,nw_dst=10.0.1.1,actions=conjunction(1,2/2)'
        ofctl add-flow br0 'priority=1,ip,actions=drop'
        # Open vSwitch names the rules of the conjunction from 3.2 on.
        trace in_port=1,ip,nw_src=10.0.0.1,nw_dst=10.0.1.1 | grep -v -- '-> conj\. '
        trace in_port=1,ip,nw_src=10.0.0.3,nw_dst=10.0.1.1
        trace in_port=1,ip,nw_src=10.0.0.1,nw_dst=10.0.1.9
        ofctl --no-stats dump-flows br0
        ofctl add-flow br0 'ip,nw_dst=10.0.1.1,actions=conjunction(1,3/2)'
        ofctl add-flow br0 'ip,nw_dst=10.0.1.1,actions=conjunction(1,2/2),output:1'
    "#;
    learned_flows: r#"
        ofctl add-flow br0 'table=0,priority=1,actions=learn(table=1,idle_timeout=60,cookie=0x9,NXM_OF_VLAN_TCI[0..11],NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],load:NXM_OF_IN_PORT[]->NXM_NX_REG0[0..15],output:NXM_OF_IN_PORT[]),resubmit(,1)'
        ofctl add-flow br0 table=1,priority=0,actions=FLOOD
        ofctl --no-stats dump-flows br0
        receive p3 'in_port(3),eth(src=50:54:00:00:00:07,dst=ff:ff:ff:ff:ff:ff),eth_type(0x0806),arp(sip=10.0.0.1,tip=10.0.0.2,op=1,sha=50:54:00:00:00:07,tha=00:00:00:00:00:00)'
        appctl revalidator/wait
        ofctl --no-stats dump-flows br0 table=1
        trace in_port=1,dl_src=50:54:00:00:00:05,dl_dst=50:54:00:00:00:07
        trace in_port=1,dl_src=50:54:00:00:00:05,dl_dst=50:54:00:00:00:08
    "#;
    matches_of_all_kinds: r#"
        printf 'in_port=1,actions=drop\ndl_src=01:02:03:04:05:06,dl_dst=01:00:00:00:00:00/01:00:00:00:00:00,actions=drop\ndl_vlan=5,dl_vlan_pcp=3,actions=drop\nvlan_tci=0x1123/0x1fff,actions=drop\nmpls,mpls_label=7,mpls_tc=2,mpls_bos=1,actions=drop\narp,arp_spa=10.0.0.1,arp_tpa=10.0.0.0/24,arp_op=1,arp_sha=01:02:03:04:05:06,actions=drop\nrarp,arp_op=3,actions=drop\nip,nw_proto=99,nw_tos=32,nw_ecn=1,nw_ttl=3,actions=drop\nip,nw_frag=first,actions=drop\nip,nw_frag=not_later,actions=drop\nicmp,icmp_type=8,icmp_code=0,actions=drop\ntcp,tp_src=1,tp_dst=0x8000/0x8000,actions=drop\ntcp,tcp_flags=+syn-ack,actions=drop\nudp,tp_src=53,actions=drop\nsctp,tp_dst=5,actions=drop\nipv6,ipv6_src=fe80::/10,ipv6_dst=::1,ipv6_label=0x12345,actions=drop\nicmp6,icmp_type=135,icmp_code=0,nd_target=fe80::1,nd_sll=01:02:03:04:05:06,actions=drop\nicmp6,icmp_type=136,nd_target=fe80::1,nd_tll=01:02:03:04:05:06,actions=drop\ntcp6,tp_dst=443,actions=drop\nreg0=1,reg15=0x5/0xff,actions=drop\nxreg3=0x123456789,actions=drop\nxxreg1=0x7,actions=drop\nmetadata=0x7/0xf,actions=drop\npkt_mark=2,actions=drop\ntun_id=5,actions=drop\nconj_id=4,actions=drop\nactset_output=1,actions=drop\ndl_type=0x88cc,actions=drop\nigmp,actions=drop\n' >all.txt
        ofctl add-flows br0 all.txt
        ofctl --no-stats dump-flows br0
        ofctl -O OpenFlow15 --no-stats dump-flows br0
        ofctl -O OpenFlow12 --no-stats dump-flows br0
    "#;
    errors_of_flow_mods: r#"
        ofctl -O OpenFlow13 add-flow br0 actions=group:1234
        ofctl -O OpenFlow13 add-flow br0 actions=meter:99
        ofctl -O OpenFlow13 add-flow br0 actions=output:0xfff0
        ofctl add-flow br0 'actions=bundle(eth_src,0,hrw,ofport,members:900)'
        ofctl add-flow br0 'table=255,actions=drop'
        ofctl -O OpenFlow13 add-flow br0 'table=9,actions=goto_table:3'
        ofctl add-flow br0 'actions=resubmit(,255)'
        ofctl add-flow br0 'actions=enqueue:900:1'
        ofctl -O OpenFlow13 add-flow br0 'arp,actions=dec_ttl'
        ofctl add-flow br0 'ip,actions=learn(table=300,output:NXM_OF_IN_PORT[])'
        ofctl --no-stats dump-flows br0
    "#;
}
