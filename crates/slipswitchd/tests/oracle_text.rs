// SPDX-License-Identifier: Apache-2.0
//! The same commands to this switch and to the real ovs-vswitchd, where it is installed: the
//! answers must be the same text, but for identities, times that differ and names of datapaths.

mod text_support;

use text_support::Rig;

const UDP: &str = "recirc_id(0),in_port(1),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),eth_type(0x0800),\
    ipv4(src=192.168.0.1,dst=192.168.0.2,proto=17,tos=0,ttl=64,frag=no),udp(src=8,dst=9)";
const TCP: &str = "in_port(1),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),eth_type(0x0800),\
    ipv4(src=192.168.0.1,dst=192.168.0.2,proto=6,tos=0,ttl=64,frag=no),tcp(src=8,dst=9),tcp_flags(0x12)";
const PACKET: &str = "505400000007505400000005080045000014000000004006f97ac0a80001c0a80002";

/// Every line is a command; words are separated by blanks, UDP, TCP and PACKET stand for what
/// the constants say.
const SCRIPT: &str = "
    ofproto/list
    ofproto/list-tunnels
    dpif/dump-dps x
    dpctl/dump-dps x
    fdb/show br0
    fdb/show nope
    fdb/add br0 p9 0 00:00:00:00:00:01
    fdb/add br0 p1 0 xx
    fdb/add br0 p1 7 00:00:00:00:00:01
    fdb/show br0
    fdb/del br0 0 00:00:00:00:00:09
    fdb/stats-show br0
    fdb/flush
    fdb/stats-clear br0
    mdb/show br0
    mdb/flush br0
    mdb/flush
    netdev-dummy/receive p1 UDP
    netdev-dummy/receive p1 UDP
    netdev-dummy/receive p1 TCP
    netdev-dummy/receive p1 TCP --len 60
    netdev-dummy/receive p1 TCP --len 30
    netdev-dummy/receive p1 PACKET
    netdev-dummy/receive p1 aabb
    netdev-dummy/receive nope aa
    netdev-dummy/receive p1 --qid 9 in_port(1)
    time/warp 500
    time/warp x
    revalidator/wait
    dpctl/dump-flows
    dpctl/dump-flows --names
    dpctl/dump-flows filter=tcp
    dpctl/dump-flows filter=in_port(1),udp
    dpctl/dump-flows filter=xx
    dpctl/dump-flows type=ovs
    dpctl/dump-flows type=tc
    dpctl/dump-flows type=foo
    dpctl/dump-flows pmd=-1
    dpctl/dump-flows nope
    dpctl/dump-flows --foo
    dpif/dump-flows br0
    dpif/dump-flows --names br0
    dpif/dump-flows nope
    dpif/show
    dpctl/show
    dpctl/show -s
    bridge/dump-flows br0
    bridge/dump-flows nope
    bridge/reconnect nope
    upcall/show
    upcall/disable-megaflows
    upcall/enable-megaflows
    upcall/set-flow-limit 5000
    dpctl/dump-flows
    ofproto/trace br0 in_port=1,tcp
    ofproto/trace --names br0 in_port=1,tcp
    ofproto/trace br0 in_port=p1,tcp --names
    ofproto/trace br0 in_port=1,dl_type=0x1234 --names
    ofproto/trace br0 in_port=1,dl_type=0x1236 --names
    ofproto/trace br0 in_port=1,icmp6 --names -generate
    ofproto/trace --names in_port(1),eth(),eth_type(0x0806)
    ofproto/trace br0 in_port=1,dl_type=0x1234 --names -generate
    bridge/dump-flows br0
    ofproto/trace br0 in_port=1,udp,dl_src=00:00:00:00:00:09,dl_dst=00:00:00:00:00:09 -generate
    ofproto/trace --names br0 in_port=1,udp,dl_src=00:00:00:00:00:0a,dl_dst=00:00:00:00:00:09 -generate
    ofproto/trace-packet-out --names br0 in_port=p1 mod_tp_dst:5,2
    ofproto/trace-packet-out br0 in_port=1 mod_tp_dst:5,2
    ofproto/trace-packet-out br0 in_port=1,arp mod_tp_dst:5,mod_nw_dst:1.1.1.1,2
    ofproto/trace-packet-out br0 in_port=1,tcp,nw_frag=later mod_tp_dst:5,2
    ofproto/trace-packet-out br0 in_port=1,ipv6 mod_nw_src:1.1.1.1,2
    ofproto/trace-packet-out br0 in_port=1,sctp mod_tp_dst:5,dec_ttl,2
    ofproto/trace br0 in_port=1,udp
    ofproto/trace br0 in_port=1,udp,dl_src=00:00:00:00:00:07 -generate
    ofproto/trace br0 in_port=p2,udp
    ofproto/trace br0 in_port=1 PACKET
    ofproto/trace in_port(1) PACKET
    ofproto/trace br0 foo
    ofproto/trace nope in_port=1
    ofproto/trace br0
    ofproto/trace in_port(77),eth()
    ofproto/trace nope in_port(1)
    ofproto/trace br0 in_port=1,nw_dst=1.1.1.1
    ofproto/trace br0 in_port=1,tcp,nw_dst=1.1.1.0/24
    ofproto/trace a b c d
    ofproto/trace-packet-out br0 in_port=1,tcp resubmit(,0)
    ofproto/trace-packet-out -consistent br0 in_port=1,tcp mod_nw_dst:1.1.1.1,dec_ttl,mod_tp_dst:5,2
    ofproto/trace-packet-out br0 in_port=1,tcp foo
    ofproto/trace-packet-out br0 in_port=1,tcp 77
    dpctl/ct-bkts
    dpctl/ct-get-nconns
    dpctl/ct-get-limits zone=3
    dpctl/ct-stats-show
    dpctl/dump-conntrack
    dpctl/flush-conntrack
    dpctl/flush-conntrack zone=x
    dpctl/set-if dummy@ovs-dummy p1,port_no=5
    dpctl/set-if dummy@ovs-dummy p1,type=foo
    dpctl/list-commands
    dpctl/add-flow foo bar
    dpctl/del-flow foo
    dpctl/get-flow ufid:00000000-0000-0000-0000-000000000001
    dpif-netdev/pmd-rxq-show
    dpif-netdev/pmd-rxq-show -secs 5
    dpif-netdev/bond-show
    dpif-netdev/bond-show nope
    bond/list
    bond/show nope
    bond/migrate a 1 b
    bfd/show
    bfd/show p1
    bfd/set-forwarding p1 false
    bfd/set-forwarding x
    cfm/show p1
    cfm/set-fault true
    lacp/show
    lacp/show p1
    stp/show br0
    stp/tcn
    rstp/show br0
    rstp/tcn br0
    qos/show p1
    qos/show nope
    qos/show-types p1
    ovs/route/show
    ovs/route/lookup 1.1.1.1
    ovs/route/lookup x
    ovs/route/lookup 1.1.1.1 foo
    ovs/route/del 1.1.1.0/24
    ovs/route/del x
    tnl/arp/show
    tnl/neigh/aging
    tnl/egress_port_range
    tnl/ports/show -v
    autoattach/status br0
    coverage/read-counter nope
    netdev-dummy/conn-state p1
    netdev-dummy/ip4addr nope 1.2.3.4/24
    netdev-dummy/set-admin-state p1 x
    netdev-dummy/set-admin-state p1 down
    netdev-dummy/set-admin-state p1 up
    vlog/list-pattern
    fdb/stats-show
    nope
    version
";

fn answers(rig: &Rig) -> Vec<(String, String)> {
    rig.add_flow("priority=10,in_port=1,tcp,actions=2");
    rig.add_flow("priority=5,in_port=1,udp,actions=NORMAL");
    rig.add_flow("in_port=1,dl_type=0x1234,actions=note:00.11,learn(table=5,NXM_OF_IN_PORT[],output:NXM_OF_IN_PORT[])");
    rig.add_flow("in_port=1,icmp6,actions=output:99,dec_ttl");
    rig.add_flow("in_port=1,dl_type=0x1236,actions=IN_PORT,resubmit(2,3),LOCAL");
    rig.add_flow(
        "table=3,in_port=2,actions=load:2->NXM_NX_REG1[],move:NXM_OF_IN_PORT[]->NXM_NX_REG2[0..15],\
         output:NXM_NX_REG1[],output(port=2,max_len=100),bundle(eth_src,0,active_backup,ofport,slaves:1,2),\
         learn(table=5,in_port=1,output:NXM_NX_REG1[]),enqueue:2:3,push:NXM_OF_IN_PORT[],pop:NXM_OF_IN_PORT[],\
         resubmit(1,9)",
    );
    let lines = SCRIPT.lines().map(str::trim).filter(|l| !l.is_empty());
    lines
        .map(|line| {
            let words: Vec<&str> = line
                .split(' ')
                .map(|word| match word {
                    "UDP" => UDP,
                    "TCP" => TCP,
                    "PACKET" => PACKET,
                    word => word,
                })
                .collect();
            (line.to_owned(), normal(line, &rig.appctl(&words)))
        })
        .collect()
}

/// The text without what is bound to differ.
fn normal(command: &str, text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut skipping = false;
    for line in text.lines() {
        // The real datapath has a port of its own, which no bridge uses.
        if line.starts_with("  port ") {
            skipping = line.starts_with("  port 0:");
        }
        // Internal rules, which ours keeps elsewhere.
        if skipping || line.starts_with("table_id=254") {
            continue;
        }
        let mut line = line.to_owned();
        for name in ["dummy@ovs-dummy", "system@ovs-system"] {
            line = line.replace(name, "DATAPATH");
        }
        for before in ["(limit ", "(avg ", "recirc_id=", "dump duration : "] {
            line = without_number(&line, before);
        }
        if line.ends_with(')') && line.contains(": (keys ") {
            line = line.split_once(": ").map_or(line.clone(), |(_, keys)| keys.to_owned());
        }
        lines.push(line);
    }
    // Commands of later versions than the real one's.
    const NEWER: [&str; 3] =
        ["dpctl/dump-conntrack-exp", "dpctl/ct-set-sweep-interval", "dpctl/ct-get-sweep-interval"];
    if command.ends_with("list-commands") {
        lines.retain(|line| NEWER.iter().all(|name| !line.trim_start().starts_with(name)));
    }
    // Flows come in no order, nor do the ports of a flood.
    for line in &mut lines {
        for (one, other) in [("2,100", "100,2"), ("p2,br0", "br0,p2")] {
            *line = line.replace(one, other);
        }
    }
    if command.contains("/dump-flows") {
        lines.sort();
    }
    lines.join("\n")
}

/// Takes the number behind `before` out.
fn without_number(line: &str, before: &str) -> String {
    match line.split_once(before) {
        Some((head, tail)) => {
            format!("{head}{before}N{}", tail.trim_start_matches(|c: char| c.is_ascii_digit()))
        }
        None => line.to_owned(),
    }
}

#[test]
fn answers_are_those_of_the_real_switch() {
    let Some(real) = Rig::start("ovs-vswitchd") else { return };
    let Some(ours) = Rig::start(env!("CARGO_BIN_EXE_slipswitchd")) else { return };
    let differences: Vec<String> = answers(&real)
        .into_iter()
        .zip(answers(&ours))
        .filter(|((_, real), (_, ours))| real != ours)
        .map(|((command, real), (_, ours))| format!("$ {command}\nreal:\n{real}\nours:\n{ours}\n"))
        .collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
