// SPDX-License-Identifier: Apache-2.0
//! Commands, messages and rows of connection tracking, compared with ovs-vswitchd 3.1 where it has
//! them.

mod text_support;

use text_support::Rig;

const OURS: &str = env!("CARGO_BIN_EXE_slipswitchd");
const REAL: &str = "ovs-vswitchd";

/// The flow of a packet from port `p1`, with the part of its transport header.
fn packet(proto: u8, transport: &str) -> String {
    format!(
        "in_port(1),eth(src=50:54:00:00:00:09,dst=50:54:00:00:00:0a),eth_type(0x0800),\
         ipv4(src=10.1.1.1,dst=10.1.1.2,proto={proto},tos=0,ttl=64,frag=no),{transport}"
    )
}

/// Begins a connection of TCP and one of UDP, in zone 3.
fn connect(rig: &Rig) {
    for packet in [packet(6, "tcp(src=1,dst=2),tcp_flags(syn)"), packet(17, "udp(src=1,dst=2)")] {
        rig.appctl(&["netdev-dummy/receive", "p1", &packet]);
    }
}

fn switch(program: &str) -> Option<Rig> {
    let rig = Rig::start(program)?;
    rig.add_flow("ip,actions=ct(commit,zone=3,exec(set_field:17->ct_mark)),2");
    connect(&rig);
    Some(rig)
}

/// Words of `dpctl/` commands whose answers are compared. `DP` is the datapath, `CONNECT` begins the
/// connections again, and `OFCTL` runs `ovs-ofctl`. A default limit of 0 is left out: to 3.1 it
/// admits nothing, to later versions it is no limit.
const SCRIPT: &str = "
    dump-conntrack
    dump-conntrack -m
    dump-conntrack -s
    dump-conntrack -m -s zone=3
    dump-conntrack zone=x
    dump-conntrack foo
    dump-conntrack zone=3 zone=3
    dump-conntrack DP zone=4
    dump-conntrack netdev@x
    dump-conntrack a b c d e
    ct-stats-show
    ct-stats-show -m
    ct-stats-show verbose zone=3
    ct-stats-show zone=3 verbose
    ct-stats-show foo
    ct-stats-show zone=x
    ct-stats-show DP zone=3
    ct-bkts
    ct-bkts gt=1
    ct-bkts gt=2
    ct-bkts gt=x
    ct-bkts foo
    ct-get-maxconns
    ct-get-maxconns foo
    ct-get-nconns
    ct-get-nconns foo
    ct-set-maxconns
    ct-set-maxconns x
    ct-set-maxconns foo 10
    ct-set-maxconns DP 11
    ct-set-maxconns -1
    ct-get-maxconns
    ct-set-maxconns 3000000
    ct-get-tcp-seq-chk
    ct-disable-tcp-seq-chk
    ct-get-tcp-seq-chk
    ct-enable-tcp-seq-chk
    ct-get-tcp-seq-chk foo
    ct-get-limits
    ct-get-limits zone=1,4
    ct-get-limits zone=x
    ct-get-limits foo
    ct-get-limits default
    ct-set-limits default=10 zone=1,limit=5 zone=4,limit=0
    ct-get-limits
    ct-get-limits zone=9
    ct-set-limits zone=1
    ct-set-limits zone=x,limit=1
    ct-set-limits default=x
    ct-set-limits foo
    ct-set-limits zone=1,foo=3
    ct-set-limits
    ct-set-limits DP default=100
    ct-del-limits zone=1,4
    ct-del-limits zone=x
    ct-del-limits zone=77
    ct-del-limits zone=1 zone=2
    ct-del-limits
    ct-get-limits
    ipf-get-status
    ipf-get-status -m
    ipf-get-status foo
    ipf-set-enabled v4
    ipf-set-enabled v7
    ipf-set-disabled v6
    ipf-set-min-frag v4 1000
    ipf-set-min-frag v4 399
    ipf-set-min-frag v5 1000
    ipf-set-min-frag v4 x
    ipf-set-min-frag DP v4 1001
    ipf-set-max-nfrags 5000
    ipf-set-max-nfrags 5001
    ipf-set-max-nfrags x
    ipf-get-status
    flush-conntrack zone=x
    flush-conntrack ct_tp_src=1
    flush-conntrack zone=3 ct_nw_src=10.1.1.1,ct_nw_dst=10.1.1.9,ct_nw_proto=6,ct_tp_src=1,ct_tp_dst=2
    flush-conntrack zone=3 ct_nw_src=10.1.1.1,ct_nw_dst=10.1.1.2,ct_nw_proto=6,ct_tp_src=1,ct_tp_dst=2
    dump-conntrack
    flush-conntrack foo
    flush-conntrack zone=3 foo
    flush-conntrack zone=3 zone=3 ct_nw_src=1.1.1.1
    flush-conntrack ct_nw_proto=6,icmp_id=3
    flush-conntrack ct_nw_src=1.1.1.1,ct_ipv6_dst=::1
    flush-conntrack zone=4
    dump-conntrack
    flush-conntrack
    dump-conntrack
    CONNECT
    flush-conntrack ct_nw_src=10.1.1.1,ct_nw_proto=17
    dump-conntrack
    OFCTL ct-flush-zone br0 4
    dump-conntrack
    OFCTL ct-flush-zone br0 3
    dump-conntrack
    CONNECT
    OFCTL ct-flush br0 zone=3 ct_nw_src=10.1.1.1,ct_nw_dst=10.1.1.2,ct_nw_proto=17,ct_tp_src=1,ct_tp_dst=2
    dump-conntrack
    OFCTL ct-flush br0
    dump-conntrack
";

fn answers(rig: &Rig) -> Vec<(String, String)> {
    let dp = rig.appctl(&["dpctl/dump-dps"]);
    let dp = dp.trim();
    let lines = SCRIPT.lines().map(str::trim).filter(|line| !line.is_empty());
    lines
        .map(|line| {
            let words: Vec<&str> =
                line.split(' ').map(|word| if word == "DP" { dp } else { word }).collect();
            let answer = match words[0] {
                "CONNECT" => {
                    connect(rig);
                    String::new()
                }
                "OFCTL" => rig.output("ovs-ofctl", &words[1..]),
                command => {
                    let command = format!("dpctl/{command}");
                    rig.appctl(&[&[&*command][..], &words[1..]].concat())
                }
            };
            let mut answer: Vec<&str> = answer.lines().collect();
            if line.starts_with("dump-conntrack") {
                answer.sort_unstable();
            }
            (line.to_owned(), answer.join("\n"))
        })
        .collect()
}

#[test]
fn answers_are_those_of_the_real_switch() {
    let (Some(real), Some(ours)) = (switch(REAL), switch(OURS)) else { return };
    let real = answers(&real);
    assert!(real[0].1.starts_with("tcp,orig=(src=10.1.1.1,"), "{real:?}");
    let differences: Vec<String> = real
        .into_iter()
        .zip(answers(&ours))
        .filter(|((_, real), (_, ours))| real != ours)
        .map(|((line, real), (_, ours))| format!("$ {line}\nreal:\n{real}\nours:\n{ours}\n"))
        .collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// Commands and words that came after 3.1, with the texts of 3.5.
#[test]
fn later_commands() {
    let Some(rig) = switch(OURS) else { return };
    let ask = |words: &str| rig.appctl(&words.split(' ').collect::<Vec<_>>());
    assert_eq!(ask("dpctl/ct-get-sweep-interval"), "20000\n");
    let invalid = "error: ovs-vswitchd: invalid sweep value (Invalid argument)\n";
    assert_eq!(ask("dpctl/ct-set-sweep-interval 0"), invalid);
    assert_eq!(ask("dpctl/ct-set-sweep-interval x"), invalid);
    assert_eq!(ask("dpctl/ct-set-sweep-interval 5000"), "setting sweep interval successful\n");
    assert_eq!(ask("dpctl/ct-get-sweep-interval"), "5000\n");
    assert_eq!(ask("dpctl/dump-conntrack-exp"), "");
    assert_eq!(ask("dpctl/dump-conntrack-exp zone=3"), "");
    ask("dpctl/ct-set-limits default=10");
    assert_eq!(ask("dpctl/ct-del-limits default"), "");
    assert_eq!(ask("dpctl/ct-get-limits"), "default limit=0\n");
    ask("dpctl/flush-conntrack mark=0x10/0xff");
    assert_eq!(ask("dpctl/ct-get-nconns"), "2\n");
    ask("dpctl/flush-conntrack dummy@ovs-dummy zone=3 mark=0x11/0xff");
    assert_eq!(ask("dpctl/ct-get-nconns"), "0\n");
    assert_eq!(
        ask("dpctl/flush-conntrack mark=x"),
        "error: ovs-vswitchd: failed to parse mark (Invalid argument)\n"
    );
    for line in ["Created zone limit of", "Deleted zone limit"] {
        assert!(!rig.log().contains(line), "only the default limit was set: {}", rig.log());
    }
    assert!(rig.log().contains("|conntrack|INFO|Set default zone limit to 10\n"), "{}", rig.log());
}

fn vsctl(rig: &Rig, words: &str) -> String {
    let words: Vec<&str> = ["--timeout=10"].into_iter().chain(words.split_whitespace()).collect();
    rig.output("ovs-vsctl", &words)
}

const DATAPATH: &str =
    "-- --id=@m create Datapath datapath_version=0 -- set Open_vSwitch . datapaths:dummy=@m";

#[test]
fn timeout_policies_are_those_of_the_database() {
    let (Some(real), Some(ours)) = (Rig::start(REAL), Rig::start(OURS)) else { return };
    let texts = [&real, &ours].map(|rig| {
        let mut out = Vec::new();
        vsctl(rig, DATAPATH);
        vsctl(rig, "add-zone-tp dummy zone=3 udp_first=7 udp_single=9 tcp_syn_sent=11");
        vsctl(rig, "add-zone-tp dummy zone=4 tcp_syn_sent=11 udp_first=7 udp_single=9");
        vsctl(rig, "add-zone-tp dummy zone=5 udp_single=90");
        out.push(vsctl(rig, "list-zone-tp dummy"));
        rig.add_flow(
            "ip,actions=ct(commit,zone=3),ct(commit,zone=4),ct(commit,zone=5),ct(commit,zone=6),2",
        );
        connect(rig);
        let dump = || {
            let text = rig.appctl(&["dpctl/dump-conntrack", "-s"]);
            let mut lines: Vec<&str> = text.lines().collect();
            lines.sort_unstable();
            lines.join("\n")
        };
        out.push(dump());
        vsctl(rig, "del-zone-tp dummy zone=3");
        rig.appctl(&["dpctl/flush-conntrack"]);
        connect(rig);
        out.push(dump());
        out
    });
    let [real, ours] = texts;
    assert_eq!(ours, real);
    assert!(ours[1].contains("zone=3,timeout=7"), "{ours:?}");
    assert!(ours[2].contains("zone=3,timeout=60"), "{ours:?}");
}

#[test]
fn capabilities_are_written() {
    let (Some(real), Some(ours)) = (Rig::start(REAL), Rig::start(OURS)) else { return };
    let capabilities = [&real, &ours].map(|rig| {
        vsctl(rig, DATAPATH);
        let text = vsctl(rig, "get Datapath . capabilities");
        let pairs = text.trim().trim_matches(['{', '}']).split(", ").map(str::to_owned);
        pairs.collect::<Vec<String>>()
    });
    let [real, ours] = capabilities;
    let key = |pair: &String| pair.split('=').next().map(str::to_owned);
    assert!(ours.iter().map(key).eq(real.iter().map(key)), "{ours:?} {real:?}");
    let tracking = |pair: &&String| pair.starts_with("ct_");
    assert!(ours.iter().filter(tracking).eq(real.iter().filter(tracking)), "{ours:?} {real:?}");
}

/// The columns of Open vSwitch 3.4 for limits, which the schema of 3.1 lacks.
fn with_limits(schema: String) -> String {
    if schema.contains("ct_zone_default_limit") {
        return schema;
    }
    let limit = "{\"type\": {\"key\": {\"type\": \"integer\", \"minInteger\": 0, \
                 \"maxInteger\": 4294967295}, \"min\": 0, \"max\": 1}},";
    let with = |schema: String, column: &str, before: &str| {
        let place = format!("\"{before}\": {{");
        assert_eq!(schema.matches(&place).count(), 1, "{place}");
        schema.replace(&place, &format!("\"{column}\": {limit} {place}"))
    };
    with(with(schema, "ct_zone_default_limit", "ct_zones"), "limit", "timeout_policy")
}

#[test]
fn limits_of_the_database_hold_and_commands_do_not_change_them() {
    let options = ["--enable-dummy=override"];
    let Some(rig) = Rig::launch_with_schema(OURS, &options, with_limits) else { return };
    vsctl(&rig, "add-br br0 -- set bridge br0 datapath_type=dummy");
    vsctl(&rig, DATAPATH);
    vsctl(&rig, "add-zone-tp dummy zone=3 udp_first=7");
    let limits = |default: &str, zone: &str| {
        let update = |table, row| {
            format!("{{\"op\": \"update\", \"table\": \"{table}\", \"where\": [], \"row\": {row}}}")
        };
        let transaction = format!(
            "[\"Open_vSwitch\", {}, {}]",
            update("Datapath", format!("{{\"ct_zone_default_limit\": {default}}}")),
            update("CT_Zone", format!("{{\"limit\": {zone}}}")),
        );
        rig.run("ovsdb-client", &["transact", &rig.database(), &transaction]);
        vsctl(&rig, "set bridge br0 external_ids:round=1"); // waits for the daemon
        vsctl(&rig, "remove bridge br0 external_ids round");
        rig.appctl(&["dpctl/ct-get-limits"])
    };
    assert_eq!(limits("5", "2"), "default limit=5\nzone=3,limit=2,count=0\n");
    let refused = |verb: &str| {
        format!(
            "error: ovs-vswitchd: the zone limits are set via database, use 'ovs-vsctl \
             {verb}-zone-limit <...>' instead. (Operation not permitted)\n"
        )
    };
    assert_eq!(rig.appctl(&["dpctl/ct-set-limits", "zone=9,limit=1"]), refused("set"));
    assert_eq!(rig.appctl(&["dpctl/ct-del-limits", "zone=3"]), refused("del"));
    assert_eq!(limits("5", "4"), "default limit=5\nzone=3,limit=4,count=0\n");
    assert!(rig.log().contains("|conntrack|INFO|Changed zone limit of 4 for zone 3\n"));
    let none = "[\"set\", []]";
    assert_eq!(limits(none, none), "default limit=0\n");
    assert_eq!(rig.appctl(&["dpctl/ct-set-limits", "zone=9,limit=1"]), "");
    assert_eq!(rig.appctl(&["dpctl/ct-get-limits"]), "default limit=0\nzone=9,limit=1,count=0\n");
}
