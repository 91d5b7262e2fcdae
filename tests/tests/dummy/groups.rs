// SPDX-License-Identifier: Apache-2.0
//! Groups and meters.

use crate::packets::{ip, udp};
use slipswitch_tests::harness::Switch;

#[test]
fn an_all_group_runs_every_bucket_on_a_packet_of_its_own() {
    let switch = Switch::dummy(3);
    switch.ofctl("-O OpenFlow13 add-group br0 'group_id=1,type=all,bucket=set_field:1.1.1.1->ip_dst,output:1,bucket=output:2,bucket=output:3'");
    switch.ofctl("-O OpenFlow13 add-flow br0 ip,actions=group:1");
    let actions = switch.traced("br0 in_port=LOCAL,udp,nw_ttl=9,nw_dst=9.9.9.9");
    assert!(actions.contains("set(ipv4(dst=1.1.1.1)),1"), "{actions}");
    switch.receive("p1", &ip("10.0.0.1", "10.0.0.2"));
    assert_eq!(
        (switch.sent("p1").len(), switch.sent("p2").len(), switch.sent("p3").len()),
        (0, 1, 1)
    );
}

#[test]
fn an_indirect_group_runs_its_bucket() {
    let switch = Switch::dummy(2);
    switch.ofctl("-O OpenFlow13 add-group br0 group_id=1,type=indirect,bucket=output:2");
    switch.ofctl("-O OpenFlow13 add-flow br0 ip,actions=group:1");
    assert_eq!(switch.traced("br0 in_port=1,ip"), "2");
}

#[test]
fn a_fast_failover_group_takes_the_first_bucket_that_is_alive() {
    let switch = Switch::dummy(3);
    switch.ofctl("-O OpenFlow13 add-group br0 group_id=1,type=ff,bucket=watch_port:2,output:2,bucket=watch_port:3,output:3");
    switch.ofctl("-O OpenFlow13 add-flow br0 ip,actions=group:1");
    assert_eq!(switch.traced("br0 in_port=1,ip"), "2");
    switch.appctl("netdev-dummy/set-admin-state p2 down");
    switch.ofctl("mod-port br0 p2 down");
    assert_eq!(switch.traced("br0 in_port=1,ip"), "3");
    switch.ofctl("mod-port br0 p2 up");
    assert_eq!(switch.traced("br0 in_port=1,ip"), "2");
}

#[test]
fn a_select_group_spreads_flows_and_keeps_each_to_one_bucket() {
    let switch = Switch::dummy(3);
    switch.ofctl("-O OpenFlow15 add-group br0 'group_id=1,type=select,selection_method=hash,fields(ip_src,udp_src),bucket=output:2,bucket=output:3'");
    switch.ofctl("-O OpenFlow15 add-flow br0 ip,actions=group:1");
    for _ in 0..2 {
        for port in 0..32 {
            switch.receive("p1", &udp("10.0.0.1", "10.0.0.2", 1000 + port, 53));
        }
    }
    let (a, b) = (switch.sent("p2"), switch.sent("p3"));
    assert_eq!(a.len() + b.len(), 64);
    assert!(a.len() >= 8 && b.len() >= 8, "{} to {}", a.len(), b.len());
    for frame in &a {
        assert!(!b.contains(frame), "one flow went both ways");
    }
}

#[test]
fn weights_bias_a_select_group() {
    let switch = Switch::dummy(3);
    switch.ofctl("-O OpenFlow15 add-group br0 'group_id=1,type=select,selection_method=hash,fields(udp_src),bucket=weight:0,output:2,bucket=weight:10,output:3'");
    switch.ofctl("-O OpenFlow15 add-flow br0 ip,actions=group:1");
    for port in 0..16 {
        switch.receive("p1", &udp("10.0.0.1", "10.0.0.2", 1000 + port, 53));
    }
    assert_eq!((switch.sent("p2").len(), switch.sent("p3").len()), (0, 16));
}

#[test]
fn group_statistics_count_packets_and_references() {
    let switch = Switch::dummy(2);
    switch.ofctl("-O OpenFlow13 add-group br0 group_id=5,type=all,bucket=output:2");
    switch.ofctl("-O OpenFlow13 add-flow br0 ip,actions=group:5");
    for _ in 0..3 {
        switch.receive("p1", &ip("10.0.0.1", "10.0.0.2"));
    }
    switch.revalidate();
    let text = switch.ofctl("-O OpenFlow13 dump-group-stats br0");
    assert!(text.contains("group_id=5,") && text.contains("ref_count=1,packet_count=3,"), "{text}");
    assert!(text.contains("bucket0:packet_count=3"), "{text}");
}

#[test]
fn dump_groups_shows_them_as_given() {
    let switch = Switch::dummy(2);
    switch.ofctl(
        "-O OpenFlow15 add-group br0 group_id=5,type=select,bucket=bucket_id:3,weight:7,actions=output:2",
    );
    let text = switch.ofctl("-O OpenFlow15 dump-groups br0");
    assert!(
        text.contains(" group_id=5,type=select,bucket=bucket_id:3,weight:7,actions=output:2"),
        "{text}"
    );
}

#[test]
fn deleting_a_group_deletes_the_flows_that_use_it() {
    let switch = Switch::dummy(2);
    switch.ofctl("-O OpenFlow13 add-group br0 group_id=5,type=all,bucket=output:2");
    switch.ofctl("-O OpenFlow13 add-flow br0 ip,actions=group:5");
    switch.ofctl("-O OpenFlow13 del-groups br0 group_id=5");
    assert_eq!(switch.dump("-O OpenFlow13 br0"), Vec::<String>::new());
}

#[test]
fn buckets_are_inserted_and_removed() {
    let switch = Switch::dummy(3);
    switch.ofctl("-O OpenFlow15 add-group br0 group_id=5,type=all,bucket=bucket_id:1,output:1");
    switch.ofctl("-O OpenFlow15 insert-buckets br0 group_id=5,command_bucket_id=last,bucket=bucket_id:2,output:2,bucket=bucket_id:3,output:3");
    switch.ofctl("-O OpenFlow15 remove-buckets br0 group_id=5,command_bucket_id=1");
    let text = switch.ofctl("-O OpenFlow15 dump-groups br0");
    assert!(
        text.contains(
            "group_id=5,type=all,bucket=bucket_id:2,actions=output:2,bucket=bucket_id:3,actions=output:3"
        ),
        "{text}"
    );
}

#[test]
fn mod_group_takes_effect_on_installed_flows() {
    let switch = Switch::dummy(3);
    switch.ofctl("-O OpenFlow13 add-group br0 group_id=5,type=all,bucket=output:2");
    switch.ofctl("-O OpenFlow13 add-flow br0 ip,actions=group:5");
    switch.receive("p1", &ip("10.0.0.1", "10.0.0.2"));
    switch.ofctl("-O OpenFlow13 mod-group br0 group_id=5,type=all,bucket=output:3");
    switch.revalidate();
    switch.receive("p1", &ip("10.0.0.1", "10.0.0.2"));
    assert_eq!((switch.sent("p2").len(), switch.sent("p3").len()), (1, 1));
}

#[test]
fn a_meter_drops_what_is_over_its_rate() {
    let switch = Switch::dummy(2);
    switch.ofctl(
        "-O OpenFlow13 add-meter br0 meter=1,pktps,burst,stats,bands=type=drop,rate=1,burst_size=1",
    );
    switch.ofctl("-O OpenFlow13 add-flow br0 ip,actions=meter:1,output:2");
    switch.appctl("time/warp 5000");
    for _ in 0..10 {
        switch.receive("p1", &ip("10.0.0.1", "10.0.0.2"));
    }
    let through = switch.sent("p2").len();
    assert!((1..=2).contains(&through), "{through} came through");
    switch.revalidate();
    let text = switch.ofctl("-O OpenFlow13 meter-stats br0");
    assert!(text.contains("meter:1 flow_count:1 packet_in_count:10 "), "{text}");
    assert!(text.contains(&format!("0: packet_count:{} ", 10 - through)), "{text}");
    assert!(
        switch
            .ofctl("-O OpenFlow13 dump-meters br0")
            .contains("meter=1 pktps burst stats bands=\ntype=drop rate=1 burst_size=1")
    );
}

#[test]
fn deleting_a_meter_deletes_the_flows_that_use_it() {
    let switch = Switch::dummy(2);
    switch.ofctl("-O OpenFlow13 add-meter br0 meter=1,kbps,bands=type=drop,rate=1000");
    switch.ofctl("-O OpenFlow13 add-flow br0 ip,actions=meter:1,output:2");
    switch.ofctl("-O OpenFlow13 del-meters br0 meter=1");
    assert_eq!(switch.dump("-O OpenFlow13 br0"), Vec::<String>::new());
}

#[test]
fn meter_features_say_what_there_is() {
    let switch = Switch::dummy(2);
    let text = switch.ofctl("-O OpenFlow13 meter-features br0");
    assert!(text.contains("max_meter:") && text.contains("band_types: drop"), "{text}");
}

#[test]
fn the_log_says_how_a_select_group_chooses() {
    let switch = Switch::dummy(5);
    switch.appctl("vlog/set ofproto_dpif:file:dbg");
    let lines = |id: u32, group: &str| {
        switch.ofctl(&format!("-O OpenFlow15 add-group br0 'group_id={id},type=select,{group}'"));
        let log = switch.log();
        let begin = format!("Constructing select group {id}");
        let of_group = log.lines().filter_map(|l| l.split_once("|ofproto_dpif|DBG|"));
        let of_group = of_group.map(|(_, text)| text.to_owned()).skip_while(|t| *t != begin);
        of_group.skip(1).take_while(|t| !t.starts_with("Constructing")).collect::<Vec<_>>()
    };
    let weights = "bucket=weight:5,output:1,bucket=weight:10,output:2,bucket=weight:25,output:3,\
                   bucket=weight:60,output:4,bucket=weight:0,output:5";
    assert_eq!(
        lines(1, weights),
        [
            "No selection method specified. Trying dp_hash.",
            "  Minimum weight: 5, total weight: 100",
            "  Using 32 hash values:",
            "  Bucket 0: weight=5, target=1.60 hits=2",
            "  Bucket 1: weight=10, target=3.20 hits=3",
            "  Bucket 2: weight=25, target=8.00 hits=8",
            "  Bucket 3: weight=60, target=19.20 hits=19",
            "  Bucket 4: weight=0, target=0.00 hits=0",
            "Use dp_hash with 32 hash values using algorithm 1.",
        ]
    );
    assert_eq!(
        lines(2, "selection_method=dp_hash,bucket=weight=1,output:1,bucket=weight=1000,output:2"),
        [
            "Selection method specified: dp_hash.",
            "  Minimum weight: 1, total weight: 1001",
            "  Too many hash values required: 1024",
            "Falling back to default hash method.",
        ]
    );
    assert_eq!(
        lines(3, "selection_method=hash,bucket=output:1"),
        [
            "Selection method specified: hash.",
            "No hash fields. Falling back to default hash method.",
        ]
    );
    assert_eq!(
        lines(4, "selection_method=hash,fields(ip_src,udp_src),bucket=output:1"),
        ["Selection method specified: hash.", "Hash fields: ip_src,udp_src"]
    );
}
