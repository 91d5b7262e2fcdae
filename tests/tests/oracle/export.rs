// SPDX-License-Identifier: Apache-2.0
//! Export of traffic: megaflows, and datagrams byte for byte except for times.

/// Lines of a script that start a collector of IPFIX. It writes its port into the file `port`, and the
/// values of the records, without times, into `got` once no message has come for a while.
macro_rules! reader {
    () => {
        concat!(
            "python3 ",
            env!("CARGO_MANIFEST_DIR"),
            "/tests/oracle/ipfix_collector.py > /dev/null 2>&1 &\n",
            "for i in $(seq 200); do test -s port && break; sleep 0.05; done\n",
        )
    };
}

/// Lines of a script that start a collector of sFlow with these arguments, which writes into the files `port`
/// and `got`.
macro_rules! samples {
    ($arguments:literal) => {
        concat!(
            "python3 ",
            env!("CARGO_MANIFEST_DIR"),
            "/tests/oracle/sflow_collector.py ",
            $arguments,
            " > /dev/null 2>&1 &\n",
            "for i in $(seq 200); do test -s port && break; sleep 0.05; done\n",
        )
    };
}

/// Lines of a script that have the bridge send sFlow to the collector, with its counters each second, until `got`
/// is there.
macro_rules! polled_counters {
    () => {
        concat!(
            "vsctl set bridge br0 sflow=@s -- --id=@s create sflow targets=\\\"127.0.0.1:$(cat port)\\\" \
             agent=127.0.0.1 sampling=1 polling=1 > /dev/null\n",
            "for i in $(seq 200); do test -s got && break; appctl time/warp 1000 100 > /dev/null; sleep 0.05; done\n",
        )
    };
}

scenarios! {
    netflow: r#"
        python3 -c 'import socket; s=socket.socket(2,2); s.bind(("127.0.0.1",0)); s.settimeout(20); open("port","w").write(str(s.getsockname()[1])); d=s.recv(9999); open("got","w").write((d[:8]+d[16:]).hex(" ",4)+"\n")' > /dev/null 2>&1 &
        for i in $(seq 200); do test -s port && break; sleep 0.05; done
        ofctl add-flow br0 in_port=1,udp,actions=2
        ofctl add-flow br0 in_port=1,icmp,actions=2,3
        ofctl add-flow br0 in_port=1,arp,actions=2
        ofctl add-flow br0 in_port=2,actions=flood
        vsctl set bridge br0 netflow=@n -- --id=@n create netflow "targets=\"127.0.0.1:$(cat port)\"" active_timeout=10 engine_type=1 engine_id=2 > /dev/null
        receive p1 'in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=17,tos=0,ttl=64,frag=no),udp(src=5,dst=80)'
        receive p1 'in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x0806),arp(sip=10.0.0.1,tip=10.0.0.2,op=1,sha=50:54:00:00:00:01,tha=00:00:00:00:00:00)'
        appctl revalidator/wait
        appctl dpctl/dump-flows | sort
        appctl time/warp 12000 500
        for i in $(seq 200); do test -s got && break; sleep 0.05; done
        cat got
    "#;
    // Long before its active timeout: the megaflow is idle and ends.
    netflow_of_a_flow_that_ends: r#"
        python3 -c 'import socket; s=socket.socket(2,2); s.bind(("127.0.0.1",0)); s.settimeout(20); open("port","w").write(str(s.getsockname()[1])); d=s.recv(9999); open("got","w").write((d[:4]+d[16:]).hex(" ",4)+"\n")' > /dev/null 2>&1 &
        for i in $(seq 200); do test -s port && break; sleep 0.05; done
        ofctl add-flow br0 in_port=1,udp,actions=2
        vsctl set bridge br0 netflow=@n -- --id=@n create netflow "targets=\"127.0.0.1:$(cat port)\"" active_timeout=600 engine_type=1 engine_id=2 > /dev/null
        receive p1 'in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=17,tos=0,ttl=64,frag=no),udp(src=5,dst=80)'
        appctl revalidator/wait
        appctl time/warp 15000 500
        for i in $(seq 200); do test -s got && break; appctl time/warp 500 > /dev/null; sleep 0.05; done
        cat got
    "#;
    netflow_megaflows: r#"
        ofctl add-flow br0 in_port=1,udp,actions=2
        ofctl add-flow br0 in_port=1,icmp,actions=2,3
        ofctl add-flow br0 in_port=1,ip,nw_proto=47,actions=drop
        ofctl add-flow br0 in_port=2,actions=flood
        vsctl set bridge br0 netflow=@n -- --id=@n create netflow 'targets="127.0.0.1:1"' > /dev/null
        trace in_port=1,udp,nw_src=10.0.0.1,nw_dst=10.0.0.2,nw_ttl=64,nw_tos=16,udp_src=5,udp_dst=80
        trace in_port=1,icmp,nw_src=10.0.0.1,nw_dst=10.0.0.2,nw_ttl=64,icmp_type=8,icmp_code=0
        # OVS shows ports, which GRE does not have.
        trace in_port=1,ip,nw_proto=47,nw_src=10.0.0.1,nw_dst=10.0.0.2,nw_ttl=64 | grep -v Megaflow
        trace in_port=2,arp
        trace in_port=2,tcp6,nw_ttl=64,tcp_dst=80
        vsctl clear bridge br0 netflow
        trace in_port=1,udp,nw_src=10.0.0.1,nw_dst=10.0.0.2,nw_ttl=64,udp_src=5,udp_dst=80
    "#;
    // OVS leaves the VLAN open, although the sample has it: hence no megaflows.
    sflow_actions: r#"
        for i in 1 2 3; do vsctl set interface p$i options:ifindex=100$i; done
        ofctl add-flow br0 in_port=1,udp,actions=2
        ofctl add-flow br0 in_port=1,icmp,actions=2,3
        ofctl add-flow br0 in_port=1,arp,actions=drop
        ofctl add-flow br0 in_port=1,ipv6,actions=push_vlan:0x8100,set_field:0x100c->vlan_vid,2
        ofctl add-flow br0 in_port=2,actions=4
        vsctl set bridge br0 sflow=@s -- --id=@s create sflow 'targets="127.0.0.1:1"' agent=127.0.0.1 header=128 sampling=2 polling=0 > /dev/null
        trace in_port=1,udp,nw_ttl=64 | grep Datapath
        trace in_port=1,icmp,nw_ttl=64 | grep Datapath
        trace in_port=1,arp | grep Datapath
        trace in_port=1,udp6,nw_ttl=64 | grep Datapath
        trace in_port=2,arp | grep Datapath
        vsctl set sflow $(vsctl get bridge br0 sflow) sampling=1
        trace in_port=1,udp,nw_ttl=64 | grep Datapath
        vsctl set sflow $(vsctl get bridge br0 sflow) sampling=0
        trace in_port=1,udp,nw_ttl=64 | grep Datapath
        vsctl clear bridge br0 sflow
        trace in_port=1,udp,nw_ttl=64 | grep Datapath
    "#;
    sflow_counters_of_an_aggregate: concat!(
        "vsctl add-bond br0 b1 q1 q2 -- set port b1 lacp=active bond_mode=active-backup \
         other_config:lacp-time=fast other_config:lacp-system-id=11:22:33:44:55:66 -- set interface q1 \
         type=dummy ofport_request=21 options:ifindex=1003 other_config:lacp-aggregation-key=3333 -- set \
         interface q2 type=dummy ofport_request=22 other_config:lacp-aggregation-key=3333\n",
        samples!("2 7"),
        polled_counters!(),
        "cat got\n",
    );
    // Only the first bridge has the counters of the datapath. Those of the process differ.
    sflow_counters_of_the_datapath: concat!(
        samples!("2 2207"),
        polled_counters!(),
        "cut -d' ' -f1 got\ngrep 2207 got\n",
    );
    // The labels with which packets leave.
    sflow_of_labels: concat!(
        "for i in 1 2; do vsctl set interface p$i options:ifindex=100$i; done\n",
        "ofctl add-flow br0 in_port=1,actions=push_mpls:0x8847,set_mpls_label:789,set_mpls_tc:4,set_mpls_ttl:32,2\n",
        samples!("1 1006"),
        "vsctl set bridge br0 sflow=@s -- --id=@s create sflow targets=\\\"127.0.0.1:$(cat port)\\\" \
         agent=127.0.0.1 sampling=1 polling=0 > /dev/null\n",
        "receive p1 'in_port(1),eth(src=50:54:00:00:00:09,dst=50:54:00:00:00:0a),eth_type(0x8847),mpls(label=11,tc=3,ttl=64,bos=1)'\n",
        "for i in $(seq 200); do test -s got && break; appctl time/warp 100 > /dev/null; sleep 0.05; done\n",
        "cat got\n",
    );
    // The tunnel into which packets go.
    sflow_of_a_tunnel: concat!(
        "for i in 1 2; do vsctl set interface p$i options:ifindex=100$i; done\n",
        "appctl dpif/set-dp-features br0 tnl_push_pop false > /dev/null\n",
        "vsctl add-port br0 g3 -- set interface g3 type=gre options:remote_ip=1.1.1.1 options:key=456 ofport_request=30\n",
        "ofctl add-flow br0 in_port=1,actions=30\n",
        samples!("1 1023"),
        "vsctl set bridge br0 sflow=@s -- --id=@s create sflow targets=\\\"127.0.0.1:$(cat port)\\\" \
         agent=127.0.0.1 sampling=1 polling=0 > /dev/null\n",
        "receive p1 'in_port(1),eth(src=50:54:00:00:00:09,dst=50:54:00:00:00:0a),eth_type(0x0800),ipv4(src=10.10.10.2,dst=10.10.10.1,proto=1,tos=1,ttl=128,frag=no),icmp(type=8,code=0)'\n",
        "for i in $(seq 200); do test -s got && break; appctl time/warp 100 > /dev/null; sleep 0.05; done\n",
        "cat got\n",
    );
    ipfix_actions: r#"
        ofctl dump-ipfix-bridge br0
        ofctl dump-ipfix-flow br0
        ofctl add-flow br0 in_port=1,udp,actions=2
        ofctl add-flow br0 in_port=1,icmp,actions=2,3
        ofctl add-flow br0 in_port=1,arp,actions=drop
        ofctl add-flow br0 in_port=2,actions=4
        vsctl set bridge br0 ipfix=@i -- --id=@i create ipfix 'targets="127.0.0.1:1"' sampling=2 > /dev/null
        trace in_port=1,udp,nw_ttl=64
        trace in_port=1,icmp,nw_ttl=64
        trace in_port=1,arp
        trace in_port=2,arp
        vsctl set ipfix $(vsctl get bridge br0 ipfix) other_config:enable-input-sampling=true
        trace in_port=1,udp,nw_ttl=64 | grep Datapath
        vsctl set ipfix $(vsctl get bridge br0 ipfix) other_config:enable-output-sampling=true
        trace in_port=1,udp,nw_ttl=64 | grep Datapath
        vsctl clear ipfix $(vsctl get bridge br0 ipfix) other_config
        vsctl set ipfix $(vsctl get bridge br0 ipfix) sampling=1
        trace in_port=1,udp,nw_ttl=64 | grep Datapath
        vsctl clear ipfix $(vsctl get bridge br0 ipfix) sampling
        trace in_port=1,udp,nw_ttl=64 | grep Datapath
        vsctl clear ipfix $(vsctl get bridge br0 ipfix) targets
        trace in_port=1,udp,nw_ttl=64 | grep Datapath
        vsctl clear bridge br0 ipfix
        trace in_port=1,udp,nw_ttl=64 | grep Datapath
    "#;
    flow_sample_actions: r#"
        vsctl -- --id=@b get bridge br0 -- --id=@i create ipfix 'targets="127.0.0.1:1"' -- --id=@c create Flow_Sample_Collector_Set id=1 bridge=@b ipfix=@i > /dev/null
        ofctl add-flow br0 'in_port=1,actions=sample(probability=65535,collector_set_id=1,obs_domain_id=2,obs_point_id=3),2'
        ofctl add-flow br0 'in_port=2,actions=sample(probability=1000,collector_set_id=1,obs_domain_id=2,obs_point_id=3,sampling_port=2,egress),3'
        ofctl add-flow br0 'in_port=3,actions=mod_nw_src:1.2.3.4,sample(probability=32768,collector_set_id=9,sampling_port=2,ingress),2'
        ofctl add-flow br0 'in_port=4,actions=sample(probability=32768,collector_set_id=1,sampling_port=77),2'
        trace in_port=1,udp,nw_ttl=64
        trace in_port=2,udp,nw_ttl=64
        trace in_port=3,udp,nw_ttl=64
        trace in_port=4,udp,nw_ttl=64
        ofctl dump-flows br0 | grep -o 'actions=.*'
        ofctl dump-ipfix-flow br0
        ofctl -O OpenFlow13 dump-ipfix-flow br0
        ofctl dump-ipfix-bridge br0
    "#;
    ipfix_records: concat!(reader!(), r#"
        vsctl set bridge br0 ipfix=@i -- --id=@i create ipfix "targets=\"127.0.0.1:$(cat port)\"" sampling=1 obs_domain_id=123 obs_point_id=456 cache_active_timeout=5 cache_max_flows=100 other_config:virtual_obs_id=here > /dev/null
        ofctl add-flow br0 in_port=1,tcp,actions=2
        ofctl add-flow br0 in_port=1,udp,actions=mod_vlan_vid:9,3
        ofctl add-flow br0 in_port=1,actions=drop
        receive p1 'in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=6,tos=4,ttl=64,frag=no),tcp(src=5,dst=80),tcp_flags(syn|ack)'
        receive p1 'in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=6,tos=4,ttl=64,frag=no),tcp(src=5,dst=80),tcp_flags(syn|ack)'
        receive p1 'in_port(1),eth(src=50:54:00:00:00:01,dst=ff:ff:ff:ff:ff:ff),eth_type(0x86dd),ipv6(src=fd00::1,dst=fd00::2,label=7,proto=17,tclass=0x20,hlimit=64,frag=no),udp(src=5,dst=80)'
        receive p1 'in_port(1),eth(src=50:54:00:00:00:01,dst=01:00:5e:00:00:02),eth_type(0x8100),vlan(vid=7,pcp=3),encap(eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=1,tos=0,ttl=64,frag=no),icmp(type=8,code=0))'
        receive p1 'in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x0806),arp(sip=10.0.0.1,tip=10.0.0.2,op=1,sha=50:54:00:00:00:01,tha=00:00:00:00:00:00)'
        receive p1 'in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=17,tos=0,ttl=64,frag=no),udp(src=5,dst=3784)'
        ofctl dump-ipfix-bridge br0
        appctl time/warp 7000 500
        for i in $(seq 200); do test -s got && break; sleep 0.05; done
        ofctl dump-ipfix-bridge br0
        cat got
    "#);
    flow_sample_records: concat!(reader!(), r#"
        vsctl -- --id=@b get bridge br0 -- --id=@i create ipfix "targets=\"127.0.0.1:$(cat port)\"" cache_active_timeout=5 cache_max_flows=100 -- --id=@c create Flow_Sample_Collector_Set id=1 bridge=@b ipfix=@i > /dev/null
        ofctl add-flow br0 'in_port=1,udp,actions=sample(probability=65535,collector_set_id=1,obs_domain_id=2,obs_point_id=3),2'
        ofctl add-flow br0 'in_port=1,icmp,actions=sample(probability=65535,collector_set_id=1,obs_domain_id=2,obs_point_id=4,sampling_port=2,ingress),2'
        ofctl add-flow br0 'in_port=1,tcp,actions=mod_nw_dst:10.0.0.9,sample(probability=65535,collector_set_id=1,obs_domain_id=2,obs_point_id=5,sampling_port=2),2'
        ofctl add-flow br0 'in_port=1,sctp,actions=sample(probability=65535,collector_set_id=1,obs_domain_id=2,obs_point_id=5,sampling_port=1,egress)'
        receive p1 'in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=17,tos=0,ttl=64,frag=no),udp(src=5,dst=80)'
        receive p1 'in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=1,tos=0,ttl=64,frag=no),icmp(type=8,code=0)'
        receive p1 'in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=132,tos=0,ttl=64,frag=no),sctp(src=5,dst=80)'
        appctl time/warp 7000 500
        for i in $(seq 200); do test -s got && break; sleep 0.05; done
        ofctl dump-ipfix-flow br0
        cat got
    "#);
}
