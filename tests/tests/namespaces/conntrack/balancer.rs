// SPDX-License-Identifier: Apache-2.0
//! A load balancer: a group chooses the server of each connection.

use super::{conns, file, host, leads_to, pair, server, succeeds};
use slipswitch_tests::harness::without_tool;

/// Connections that are made.
const CONNECTIONS: usize = 24;

#[test]
fn a_group_chooses_a_server_for_each_connection() {
    let Some((switch, a, b)) = pair() else { return };
    if without_tool(&["busybox", "curl"]) {
        return;
    }
    let c = host(&switch, "h3", "10.1.1.3/24");
    // The first connection is still counted when a slow machine has made the last one.
    super::set_timeouts(&switch, "tcp_time_wait=3600 tcp_fin_wait=3600 tcp_close=3600");
    switch.ofctl(
        "-O OpenFlow15 add-group br0 'group_id=1,type=select,selection_method=hash,fields(tcp_src),\
         bucket=bucket_id=1,weight:100,actions=ct(commit,zone=1,nat(dst=10.1.1.2:80),table=2),\
         bucket=bucket_id=2,weight:100,actions=ct(commit,zone=1,nat(dst=10.1.1.3:80),table=2)'",
    );
    switch.flows_by(
        "OpenFlow13",
        "br0",
        "table=0,priority=10,arp,actions=NORMAL
         table=0,priority=5,tcp,actions=ct(zone=1,nat,table=1)
         table=1,priority=30,tcp,nw_dst=10.1.1.100,tcp_dst=8000,ct_state=+trk+new,actions=group:1
         table=1,priority=20,ct_state=+trk+est-inv,actions=resubmit(,2)
         table=2,priority=9,ip,nw_dst=10.1.1.1,actions=output:h1
         table=2,priority=9,ip,nw_dst=10.1.1.2,actions=output:h2
         table=2,priority=9,ip,nw_dst=10.1.1.3,actions=set_field:MAC->eth_dst,output:h3"
            .replace("MAC", &c.netns.mac("eth0"))
            .as_str(),
    );
    leads_to(&a, "10.1.1.100", &b);
    file(&switch, "page", 20_000);
    let dir = switch.sandbox().dir().to_str().expect("text").to_owned();
    let httpd = |host| {
        server(&switch, host, "tcp", 80, &["busybox", "httpd", "-f", "-p", "80", "-h", &dir])
    };
    let _servers = (httpd(&b), httpd(&c));
    for _ in 0..CONNECTIONS {
        succeeds(&switch, &a, "curl -sS -f -o got http://10.1.1.100:8000/page");
        super::equal(&switch, "page", "got");
    }
    let of = |address: &str| {
        let reply = format!("reply=(src={address},dst=10.1.1.1,sport=80,");
        let orig = "tcp,orig=(src=10.1.1.1,dst=10.1.1.100,";
        conns(&switch, &[orig, "dport=8000)", &reply, ",zone=1"]).len()
    };
    let counts = [of("10.1.1.2"), of("10.1.1.3")];
    assert_eq!(counts.iter().sum::<usize>(), CONNECTIONS, "{:#?}", conns(&switch, &[]));
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
}
