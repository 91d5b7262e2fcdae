// SPDX-License-Identifier: Apache-2.0
//! The same commands given to both daemons, and what came of them compared.

use super::switch::dummy_bridge_line;
use super::{Kind, Mode, Output, Switch, normalise};
use std::fmt::Write;

/// Ports of the bridge that each scenario starts with.
const PORTS: u32 = 4;

/// A list of shell commands, one to a line, for a switch in dummy mode with a stopped clock, a
/// bridge `br0` and four dummy ports `p1` to `p4`. Lines may use:
///
/// - `vsctl`, `ofctl`, `appctl`: short for `ovs-vsctl`, ...;
/// - `receive PORT PACKET`: for `ovs-appctl netdev-dummy/receive`;
/// - `trace FLOW`: for `ovs-appctl ofproto/trace br0`;
/// - `await_frame FILE`: waits until a capture has a frame, which Open vSwitch writes some time after
///   the packet was received.
///
/// Empty lines and lines that start with `#` are left out. A line ending in `\` goes on.
#[derive(Clone, Copy, Debug)]
pub struct Scenario<'a> {
    /// The commands.
    pub script: &'a str,
}

/// Differences that are meant, each with its reason; one that is in neither output is ignored.
#[derive(Clone, Copy, Debug)]
struct Allowed {
    /// A text in what the oracle writes to either output and the `exit N` after them...
    real: &'static str,
    /// ... and what Slipswitch writes in its place.
    ours: &'static str,
    /// The reason for the difference.
    reason: &'static str,
}

const ALLOWED: &[Allowed] = &[
    Allowed {
        real: "Megaflow: recirc_id=0,skb_priority=0,eth,ip,in_port=1,nw_tos=4,nw_frag=no\n",
        ours: "Megaflow: recirc_id=0,skb_priority=0,eth,tcp,in_port=1,nw_tos=4,nw_frag=no\n",
        reason: "a packet whose IP header is cut off has protocol 0, and gets no DSCP of its queue",
    },
    Allowed {
        real: "Megaflow: recirc_id=0,skb_priority=0,eth,ipv6,in_port=1,nw_tos=0,nw_frag=no\n",
        ours: "Megaflow: recirc_id=0,skb_priority=0,eth,ipv6,in_port=1,nw_proto=0,nw_tos=0,nw_frag=no\n",
        reason: "likewise",
    },
    Allowed {
        real: "Megaflow: recirc_id=0,skb_priority=0,eth,arp,in_port=1,nw_tos=0\n",
        ours: "Megaflow: recirc_id=0,skb_priority=0,eth,arp,in_port=1\n",
        reason: "ARP has no DSCP",
    },
    Allowed {
        real: "DP Description: None",
        ours: concat!("DP Description: Slipswitch ", env!("CARGO_PKG_VERSION")),
        reason: "names the switch, where nothing selects by it",
    },
    Allowed {
        real: "loop\nexit 0\n",
        ours: "loop\nOFPT_ERROR (OF1.3) (xid=0xXID): OFPGMFC_LOOP\nOFPT_GROUP_MOD (OF1.3) (xid=0xXID):\n ADD group_id=10,type=all,bucket=actions=group:10\nexit 1\n",
        reason: "a group that leads back to itself would run until the depth limit stops it",
    },
    Allowed {
        real: " group_id=10,type=all,bucket=bucket_id:0,actions=group:10\n",
        ours: "",
        reason: "so that group is not there",
    },
    Allowed {
        real: "Cannot find the datapath\novs-appctl: ovs-vswitchd: server returned an error\nexit 0\n",
        ours: "Datapath actions: set(tcp(dst=81)),2\nexit 0\n",
        reason: "ofproto/trace takes a datapath by the whole name that dpctl/dump-dps lists, too",
    },
    Allowed {
        real: "Address family not supported by protocol).",
        ours: "Address family not supported by protocol; unknown interface type \"nonsense\").",
        reason: "says what is wrong",
    },
    Allowed {
        real: "Address family not supported by protocol)\"",
        ours: "Address family not supported by protocol; unknown interface type \\\"nonsense\\\")\"",
        reason: "the same as ovs-vsctl quotes it",
    },
    Allowed {
        real: "parsing flow ufid\nexit 0\n",
        ours: "parsing flow ufid (Invalid argument)\novs-appctl: ovs-vswitchd: server returned an error\nexit 2\n",
        reason: "an error fails the command, and says which",
    },
    Allowed {
        real: "  port 0: ovs-dummy (dummy-internal)\n    RX packets:0 errors:? dropped:? overruns:? frame:?\n    TX packets:0 errors:? dropped:? aborted:? carrier:?\n    collisions:?\n    RX bytes:0  TX bytes:0\n",
        ours: "",
        reason: "there is no device of the datapath's own",
    },
    Allowed { real: "  port 0: ovs-dummy (dummy-internal)\n", ours: "", reason: "likewise" },
    Allowed {
        real: "ovs-vsctl: no key \"state\" in Controller record \"br0\" column status\nexit 1\n",
        ours: "false\n[]\nBACKOFF\nexit 0\n",
        reason: "a controller's state is written as soon as it has one",
    },
    Allowed {
        real: "parsing actions (Invalid argument)",
        ours: "parsing actions: at byte 0: \"nonsense\" is neither an action nor a port (Invalid argument)",
        reason: "says what is wrong, and where",
    },
    Allowed {
        real: "Sample nesting: 10",
        ours: "Sample nesting: 16",
        reason: "actions nest deeper here",
    },
    Allowed {
        real: "Megaflow: recirc_id=0,eth,mpls,in_port=2,mpls_ttl=64",
        ours: "Megaflow: recirc_id=0,eth,mpls,in_port=2,mpls_label=100,mpls_tc=0,mpls_ttl=64,mpls_bos=1",
        reason: "the action sets the whole label stack entry, so that with a narrower mask packets of other labels would get this one",
    },
    Allowed {
        real: " 0. priority 32768\n\nFinal flow: unchanged\nMegaflow: recirc_id=0,eth,ip,in_port=1,nw_frag=no\nDatapath actions: drop\n",
        ours: " 0. priority 32768\n\nFinal flow: unchanged\nMegaflow: recirc_id=0,eth,ip,in_port=1,dl_dst=00:00:00:00:00:00,nw_frag=no\nDatapath actions: drop\n",
        reason: "a port with no-receive alone still takes STP frames, so that the drop depends on the destination",
    },
    Allowed {
        real: "This flow is handled by the userspace slow path because it:\n  - Uses action(s) not supported by datapath.\n",
        ours: "",
        reason: "the datapaths here set fields of ARP and ICMP themselves",
    },
    Allowed {
        real: "ipv4(src=10.0.0.1/255.0.0.0,dst=11.0.0.9/255.0.0.0,frag=no)",
        ours: "ipv4(src=10.0.0.0/255.0.0.0,dst=11.0.0.0/255.0.0.0,frag=no)",
        reason: "a megaflow holds no values of bits that it does not match: two that mean the same are equal",
    },
    Allowed {
        real: "mpls(label=100/0x0,tc=0/0,ttl=64/0x0,bos=1/1)",
        ours: "mpls(label=0/0x0,tc=0/0,ttl=0/0x0,bos=1/1)",
        reason: "a megaflow holds no values of bits that it does not match: two that mean the same are equal",
    },
    Allowed {
        real: "eth(src=50:54:00:00:00:01/00:00:00:00:00:00,dst=50:54:00:00:00:02/00:00:00:00:00:00),eth_type(0x0800),ipv4(src=10.0.0.1/0.0.0.0,dst=10.0.0.2/0.0.0.0,proto=6/0,tos=0/0,ttl=64/0,frag=no),tcp(src=5/0,dst=80/0),tcp_flags(0/0)",
        ours: "eth(src=00:00:00:00:00:00/00:00:00:00:00:00,dst=00:00:00:00:00:00/00:00:00:00:00:00),eth_type(0x0800),ipv4(src=0.0.0.0/0.0.0.0,dst=0.0.0.0/0.0.0.0,proto=0/0,tos=0/0,ttl=0/0,frag=no)",
        reason: "a megaflow holds no values of bits that it does not match: two that mean the same are equal",
    },
    Allowed {
        real: "eth(src=50:54:00:00:00:03/00:00:00:00:00:00,dst=50:54:00:00:00:04/00:00:00:00:00:00),eth_type(0x0806),arp(sip=10.0.0.1/0.0.0.0,tip=10.0.0.2/0.0.0.0,op=1/0,sha=50:54:00:00:00:07/00:00:00:00:00:00,tha=00:00:00:00:00:00/00:00:00:00:00:00)",
        ours: "eth(src=00:00:00:00:00:00/00:00:00:00:00:00,dst=00:00:00:00:00:00/00:00:00:00:00:00),eth_type(0x0806),arp(sip=0.0.0.0/0.0.0.0,tip=0.0.0.0/0.0.0.0,op=0/0,sha=00:00:00:00:00:00/00:00:00:00:00:00,tha=00:00:00:00:00:00/00:00:00:00:00:00)",
        reason: "a megaflow holds no values of bits that it does not match: two that mean the same are equal",
    },
    Allowed {
        real: "eth(),eth_type(0x1234), packets",
        ours: "packet_type(ns=0,id=0),eth_type(0x1234), packets",
        reason: "every megaflow is exact in the packet type, those made by hand, too",
    },
];

const PRELUDE: &str = "
vsctl() { ovs-vsctl \"$@\"; }
ofctl() { ovs-ofctl \"$@\"; }
appctl() { ovs-appctl \"$@\"; }
trace() { ovs-appctl ofproto/trace br0 \"$@\"; }
receive() { ovs-appctl netdev-dummy/receive \"$@\"; }
await_frame() {
    for _ in $(seq 100); do [ $(stat -c %s $1 2>/dev/null || echo 0) -le 24 ] || return 0; sleep 0.02; done
}
";

/// Runs the scenario on both daemons; with `SLIPSWITCH_TEST_ORACLE` twice on the oracle, which
/// shows whether a scenario gives the same each time.
///
/// # Panics
/// When they differ: the panic's text has each command with both outputs.
pub fn compare(scenario: Scenario) {
    let real = scenario.run(Kind::RealOvs);
    let ours = scenario.run(Kind::under_test());
    let mut report = String::new();
    for ((line, real), (_, ours)) in real.iter().zip(&ours) {
        let (mut real, ours) = (super::normalise::tier_last(&rendered(real)), rendered(ours));
        for allowed in ALLOWED {
            real = real.replace(allowed.real, allowed.ours);
        }
        if real != ours {
            let _ = write!(report, "$ {line}\n{}", difference(&real, &ours));
        }
    }
    let allowed: String =
        ALLOWED.iter().map(|a| format!("{} for {}: {}\n", a.ours, a.real, a.reason)).collect();
    assert!(
        report.is_empty(),
        "- is Open vSwitch, + is Slipswitch:\n{report}\nthese differences are allowed:\n{allowed}"
    );
}

impl Scenario<'_> {
    /// Runs it on one daemon: each command with what it wrote, normalised.
    pub fn run(&self, kind: Kind) -> Vec<(String, Output)> {
        let switch = Switch::start(kind, Mode::Dummy);
        switch.vsctl(&dummy_bridge_line("br0", PORTS));
        switch.appctl("time/stop");
        switch.sandbox().write("prelude", PRELUDE);
        let dir = switch.sandbox().dir().display().to_string();
        let clean = |text: String| normalise(&text, &dir);
        let run = |line: String| {
            let output = switch.sh(&format!(". ./prelude\n{line}"));
            let output = Output {
                stdout: clean(output.stdout),
                stderr: clean(output.stderr),
                code: output.code,
            };
            (line, output)
        };
        self.lines().into_iter().map(run).collect()
    }

    fn lines(&self) -> Vec<String> {
        let joined = self.script.replace("\\\n", " ");
        joined
            .lines()
            .map(str::trim)
            .filter(|l| !l.is_empty() && !l.starts_with('#'))
            .map(str::to_owned)
            .collect()
    }
}

/// Both outputs of a command and how it ended, as one text.
fn rendered(output: &Output) -> String {
    let end = output.code.map_or_else(|| "killed".to_owned(), |code| format!("exit {code}"));
    format!("{}{}{end}\n", output.stdout, output.stderr)
}

/// Both texts, line by line.
fn difference(real: &str, ours: &str) -> String {
    let mut text = String::new();
    let (real, ours): (Vec<&str>, Vec<&str>) = (real.lines().collect(), ours.lines().collect());
    for (sign, line) in align(&real, &ours) {
        let _ = writeln!(text, "{sign} {line}");
    }
    text
}

/// The shortest way from one list of lines to the other, by the longest common subsequence.
fn align<'a>(a: &[&'a str], b: &[&'a str]) -> Vec<(char, &'a str)> {
    let mut common = vec![vec![0_usize; b.len() + 1]; a.len() + 1];
    let at = |table: &Vec<Vec<usize>>, i: usize, j: usize| {
        table.get(i).and_then(|r| r.get(j)).copied().unwrap_or(0)
    };
    for (i, x) in a.iter().enumerate().rev() {
        for (j, y) in b.iter().enumerate().rev() {
            let value = if x == y {
                at(&common, i + 1, j + 1) + 1
            } else {
                at(&common, i + 1, j).max(at(&common, i, j + 1))
            };
            if let Some(cell) = common.get_mut(i).and_then(|r| r.get_mut(j)) {
                *cell = value;
            }
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut out = Vec::new();
    loop {
        match (a.get(i), b.get(j)) {
            (Some(x), Some(y)) if x == y => {
                out.push((' ', *x));
                (i, j) = (i + 1, j + 1);
            }
            (Some(x), y) if y.is_none() || at(&common, i + 1, j) >= at(&common, i, j + 1) => {
                out.push(('-', *x));
                i += 1;
            }
            (_, Some(y)) => {
                out.push(('+', *y));
                j += 1;
            }
            _ => return out,
        }
    }
}
