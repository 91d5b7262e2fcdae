// SPDX-License-Identifier: Apache-2.0
//! Connection tracking: flows, megaflows, connections and frames that leave, after the same packets.
//!
//! A word in braces is a frame from 50:54:00:00:00:01 to 50:54:00:00:00:02:
//!
//! - `{tcp A:P>B:Q FLAGS SEQ ACK TEXT}`, flags of `fsrpa`, sequence numbers in decimal, and text of
//!   which `~` is a blank, `|` the end of a line, `%0` and `%1` the bytes of those numbers;
//! - `{udp A:P>B:Q TEXT}`;
//! - `{icmp A>B TYPE CODE ID}`, an echo request or reply;
//! - `{ip A>B PROTOCOL}`, eight bytes of another protocol;
//! - `{error A>B TYPE CODE FRAME}`, an ICMP error that quotes the frame, a word as these;
//! - `{frag OFFSET MORE LENGTH FRAME}`, a fragment of an IPv4 frame, in bytes;
//! - `{bad FRAME}`, the frame with a wrong checksum of its transport header;
//! - `{room FRAME}`, the frame followed by blanks, for which Open vSwitch allocates room: it changes
//!   the length of a packet only where there is some.

use packet::build::Frame;
use packet::{Ipv4Header, TcpHeader, checksum};
use slipswitch_tests::harness::{Scenario, compare};
use std::net::IpAddr;
use zerocopy::FromBytes;
use zerocopy::network_endian::{U16, U32};

/// Bytes of an Ethernet header, and with one of IPv4.
const L2: usize = 14;
const L3: usize = 34;

/// Makes a test of each script.
macro_rules! connections {
    ($($name:ident: $script:expr;)*) => {
        $(
            #[test]
            fn $name() {
                let script: String = $script.into();
                compare(Scenario { script: &expand(&script) });
            }
        )*
    };
}

/// A script with frames in place of words in braces.
fn expand(script: &str) -> String {
    let mut out = String::new();
    let mut rest = script;
    while let Some((before, after)) = rest.split_once('{') {
        let mut depth = 1;
        let end = after.find(|c| {
            depth += match c {
                '{' => 1,
                '}' => -1,
                _ => 0,
            };
            depth == 0
        });
        let (word, after) = after.split_at(end.expect("braces are closed"));
        out += before;
        let (word, room) = match word.strip_prefix("room {").and_then(|w| w.strip_suffix('}')) {
            Some(word) => (word, 200),
            None => (word, 0),
        };
        let digits: String = frame(word).iter().map(|b| format!("{b:02x}")).collect();
        out += &format!("'{digits}{}'", " ".repeat(room));
        rest = &after[1..];
    }
    out + rest
}

fn frame(word: &str) -> Vec<u8> {
    let (kind, rest) = word.split_once(' ').expect("a kind and what it is of");
    let words: Vec<&str> = rest.split(' ').collect();
    let number = |n: usize| words[n].parse::<u32>().expect("a number");
    let inner = || {
        let (_, inner) = rest.split_once('{').expect("a frame");
        frame(inner.strip_suffix('}').expect("a frame"))
    };
    match kind {
        "tcp" => {
            let ((from, sport), (to, dport)) = ends(words[0]);
            let flags = words[1].chars().map(|c| "fsrpa".find(c).expect("a flag"));
            let flags: u16 = flags.map(|bit| 1 << bit).sum();
            let header = TcpHeader {
                src: sport.into(),
                dst: dport.into(),
                seq: U32::new(number(2)),
                ack: U32::new(number(3)),
                offset_flags: U16::new(5 << 12 | flags),
                window: U16::new(8192),
                checksum: U16::ZERO,
                urgent: U16::ZERO,
            };
            between(from, to).tcp_header(header).payload(&text(words.get(4))).finish()
        }
        "udp" => {
            let ((from, sport), (to, dport)) = ends(words[0]);
            between(from, to).udp(sport, dport).payload(&text(words.get(1))).finish()
        }
        "icmp" => {
            let ((from, _), (to, _)) = ends(words[0]);
            let (kind, code) = (number(1) as u8, number(2) as u8);
            let rest = number(3) << 16 | 1;
            match from {
                IpAddr::V4(_) => between(from, to).icmp(kind, code, rest).payload(b"ping").finish(),
                IpAddr::V6(_) => {
                    between(from, to).icmpv6(kind, code, rest).payload(b"ping").finish()
                }
            }
        }
        "ip" => {
            let ((from, _), (to, _)) = ends(words[0]);
            between(from, to).protocol(number(1) as u8).payload(b"12345678").finish()
        }
        "error" => {
            let ((from, _), (to, _)) = ends(words[0]);
            let (kind, code) = (number(1) as u8, number(2) as u8);
            let quoted = &inner()[L2..];
            match from {
                IpAddr::V4(_) => between(from, to).icmp(kind, code, 0).payload(quoted).finish(),
                IpAddr::V6(_) => between(from, to).icmpv6(kind, code, 0).payload(quoted).finish(),
            }
        }
        "frag" => fragment(&inner(), number(0), number(1) == 1, number(2) as usize),
        "bad" => {
            let mut frame = inner();
            let last = frame.last_mut().expect("it has bytes");
            *last ^= 1;
            frame
        }
        other => panic!("no frame is called {other}"),
    }
}

fn text(word: Option<&&str>) -> Vec<u8> {
    word.map_or_else(Vec::new, |w| {
        w.replace('~', " ")
            .replace('|', "\r\n")
            .replace("%0", "\0")
            .replace("%1", "\u{1}")
            .into_bytes()
    })
}

/// `A:P>B:Q`, or `A>B`.
fn ends(word: &str) -> ((IpAddr, u16), (IpAddr, u16)) {
    let end = |text: &str| {
        let plain = |text: &str| text.parse::<IpAddr>().ok().map(|address| (address, 0));
        plain(text).unwrap_or_else(|| {
            let (address, port) = text.rsplit_once(':').expect("an address and a port");
            let address = address.trim_matches(['[', ']']).parse().expect("an address");
            (address, port.parse().expect("a port"))
        })
    };
    let (from, to) = word.split_once('>').expect("two ends");
    (end(from), end(to))
}

fn between(from: IpAddr, to: IpAddr) -> Frame {
    let frame = Frame::ethernet([0x50, 0x54, 0, 0, 0, 2], [0x50, 0x54, 0, 0, 0, 1]);
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => frame.ipv4(from, to, 64),
        (IpAddr::V6(from), IpAddr::V6(to)) => frame.ipv6(from, to, 64),
        _ => panic!("{from} and {to} are of one family"),
    }
}

fn fragment(frame: &[u8], offset: u32, more: bool, length: usize) -> Vec<u8> {
    let body = &frame[L3..];
    let part = &body[offset as usize..body.len().min(offset as usize + length)];
    let mut out = [&frame[..L3], part].concat();
    let header = Ipv4Header::mut_from_bytes(&mut out[L2..L3]).expect("it is whole");
    header.total_len = U16::new((L3 - L2 + part.len()) as u16);
    header.id = U16::new(77);
    header.fragment = U16::new(if more { 0x2000 } else { 0 } | (offset / 8) as u16);
    header.checksum = U16::ZERO;
    let sum = checksum::internet(&out[L2..L3]);
    out[L2 + 10..L2 + 12].copy_from_slice(&sum.to_be_bytes());
    out
}

/// Tables that show the state of each packet by the counters of flows.
macro_rules! states {
    ($look:literal, $commit:literal) => {
        concat!(
            "
        ofctl add-flow br0 'table=0,ip,actions=",
            $look,
            "'
        ofctl add-flow br0 'table=0,ipv6,actions=",
            $look,
            "'
        ofctl add-flow br0 'table=1,priority=50,ct_state=+inv+trk,actions=drop'
        ofctl add-flow br0 'table=1,priority=40,ct_state=+new+rel+trk,ip,actions=",
            $commit,
            ",3'
        ofctl add-flow br0 'table=1,priority=39,ct_state=+new+trk,ip,in_port=1,actions=",
            $commit,
            ",2'
        ofctl add-flow br0 'table=1,priority=39,ct_state=+new+trk,ipv6,in_port=1,actions=",
            $commit,
            ",2'
        ofctl add-flow br0 'table=1,priority=38,ct_state=+new+trk,actions=4'
        ofctl add-flow br0 'table=1,priority=30,ct_state=+est+rpl+trk,actions=1'
        ofctl add-flow br0 'table=1,priority=29,ct_state=+est-rpl+trk,actions=2'
        ofctl add-flow br0 'table=1,priority=20,ct_state=+rel+rpl+trk,actions=1'
        ofctl add-flow br0 'table=1,priority=19,ct_state=+rel-rpl+trk,actions=2'
        ofctl add-flow br0 'table=1,priority=1,actions=controller'
"
        )
    };
}

/// The same for TCP, where flows match on the protocol.
fn of_tcp(states: &str) -> String {
    states.replace(",ip,", ",tcp,").replace(",ipv6,", ",tcp6,")
}

/// Counters, connections and frames at the end.
const ALL: &str = "
        appctl revalidator/purge
        ofctl --no-names dump-flows br0 | grep -v 'n_packets=0,' | sort
        appctl dpctl/dump-conntrack | sort
        appctl dpctl/dump-conntrack -m -s | sort
        appctl dpctl/ct-stats-show -m
        for p in p1 p2 p3 p4; do echo $p; tcpdump -n -t -vv -x -r $p-tx.pcap 2>/dev/null; done
";

connections! {
    a_connection_of_udp: &[states!("ct(table=1)", "ct(commit)"), r#"
        receive p1 {udp 10.1.1.1:1>10.1.1.2:2 hello}
        appctl dpctl/dump-conntrack -m -s
        receive p1 {udp 10.1.1.1:1>10.1.1.2:2 hello}
        appctl dpctl/dump-conntrack -m -s
        receive p2 {udp 10.1.1.2:2>10.1.1.1:1 yes}
        appctl dpctl/dump-conntrack -m -s
        receive p1 {udp 10.1.1.1:1>10.1.1.2:2 bye}
        appctl dpctl/dump-flows | sort
        receive p2 {udp 10.1.1.2:3>10.1.1.1:1 unasked}
        receive p1 {bad {udp 10.1.1.1:1>10.1.1.2:2 hello}}
        receive p1 {udp 10.1.1.1:0>10.1.1.2:2 zero}
        appctl time/warp 20000
        appctl dpctl/dump-conntrack -s
        receive p2 {udp 10.1.1.2:2>10.1.1.1:1 late}
        appctl time/warp 50000
        appctl dpctl/dump-conntrack -s
        appctl time/warp 50000
        appctl dpctl/dump-conntrack -s
    "#, ALL].concat();
    a_connection_of_tcp: &[states!("ct(zone=5,table=1)", "ct(commit,zone=5)"), r#"
        receive p1 {tcp 10.1.1.1:1>10.1.1.2:2 s 1000 0}
        appctl dpctl/dump-conntrack -m -s
        receive p2 {tcp 10.1.1.2:2>10.1.1.1:1 sa 5000 1001}
        appctl dpctl/dump-conntrack -m -s
        receive p1 {tcp 10.1.1.1:1>10.1.1.2:2 a 1001 5001}
        appctl dpctl/dump-conntrack -m -s
        receive p1 {tcp 10.1.1.1:1>10.1.1.2:2 pa 1001 5001 hello}
        receive p2 {tcp 10.1.1.2:2>10.1.1.1:1 a 5001 1006}
        appctl dpctl/ct-stats-show -m
        receive p1 {tcp 10.1.1.1:1>10.1.1.2:2 fa 1006 5001}
        appctl dpctl/dump-conntrack -m -s
        receive p2 {tcp 10.1.1.2:2>10.1.1.1:1 fa 5001 1007}
        appctl dpctl/dump-conntrack -m -s
        receive p1 {tcp 10.1.1.1:1>10.1.1.2:2 a 1007 5002}
        appctl dpctl/dump-conntrack -m -s
        # The same ports again.
        receive p1 {tcp 10.1.1.1:1>10.1.1.2:2 s 900000 0}
        appctl dpctl/dump-conntrack -m -s
        receive p2 {tcp 10.1.1.2:2>10.1.1.1:1 ra 0 900001}
        appctl dpctl/dump-conntrack -m -s
    "#, ALL].concat();
    segments_that_do_not_fit: &[states!("ct(table=1)", "ct(commit)"), r#"
        receive p2 {tcp 10.1.1.2:2>10.1.1.1:1 sa 5000 1001}
        receive p1 {tcp 10.1.1.1:1>10.1.1.2:2 sf 1000 0}
        receive p1 {tcp 10.1.1.1:1>10.1.1.2:2 sr 1000 0}
        receive p1 {tcp 10.1.1.1:1>10.1.1.2:2 p 1000 0}
        receive p1 {bad {tcp 10.1.1.1:1>10.1.1.2:2 s 1000 0}}
        receive p1 {tcp 10.1.1.1:1>10.1.1.2:2 s 1000 0}
        receive p1 {tcp 10.1.1.1:1>10.1.1.2:2 s 1000 0}
        receive p2 {tcp 10.1.1.2:2>10.1.1.1:1 sa 5000 1001}
        receive p1 {tcp 10.1.1.1:1>10.1.1.2:2 a 1001 5001}
        receive p1 {tcp 10.1.1.1:1>10.1.1.2:2 pa 200000000 5001 wrong}
        receive p2 {tcp 10.1.1.2:2>10.1.1.1:1 a 5001 90000000}
        receive p2 {tcp 10.1.1.2:2>10.1.1.1:1 r 70000000 0}
        appctl dpctl/dump-conntrack -m -s
        appctl dpctl/ct-get-tcp-seq-chk
        appctl dpctl/ct-disable-tcp-seq-chk
        appctl dpctl/ct-get-tcp-seq-chk
        receive p1 {tcp 10.1.1.1:1>10.1.1.2:2 pa 200000000 5001 right}
        appctl dpctl/ct-enable-tcp-seq-chk
        appctl dpctl/ct-get-tcp-seq-chk
        receive p2 {tcp 10.1.1.2:2>10.1.1.1:1 r 5001 0}
        # A connection that is picked up, with windows of any scale.
        receive p1 {tcp 10.1.1.1:9>10.1.1.2:2 a 7000 8000}
        receive p2 {tcp 10.1.1.2:2>10.1.1.1:9 a 8000 7000 more}
        receive p1 {tcp 10.1.1.1:9>10.1.1.2:2 a 7000 60000}
    "#, ALL].concat();
    a_connection_of_icmp: &[states!("ct(zone=2,table=1)", "ct(commit,zone=2)"), r#"
        receive p1 {icmp 10.1.1.1>10.1.1.2 8 0 77}
        receive p2 {icmp 10.1.1.2>10.1.1.1 0 0 77}
        receive p2 {icmp 10.1.1.2>10.1.1.1 0 0 78}
        receive p2 {icmp 10.1.1.2>10.1.1.1 8 0 79}
        receive p1 {icmp 10.1.1.1>10.1.1.2 13 0 80}
        receive p1 {icmp 10.1.1.1>10.1.1.2 9 0 80}
        receive p1 {icmp fc00::1>fc00::2 128 0 77}
        receive p2 {icmp fc00::2>fc00::1 129 0 77}
        receive p2 {icmp fc00::2>fc00::1 128 0 77}
        receive p1 {udp 10.1.1.1:1>10.1.1.2:2 hello}
        receive p2 {error 10.1.1.2>10.1.1.1 3 3 {udp 10.1.1.1:1>10.1.1.2:2 hello}}
        receive p2 {error 10.1.1.7>10.1.1.1 11 0 {udp 10.1.1.1:1>10.1.1.2:2 hello}}
        receive p2 {error 10.1.1.2>10.1.1.1 3 3 {udp 10.1.1.1:1>10.1.1.2:9 other}}
        receive p2 {error 10.1.1.2>10.1.1.9 3 3 {udp 10.1.1.1:1>10.1.1.2:2 hello}}
        receive p1 {error 10.1.1.1>10.1.1.2 3 3 {udp 10.1.1.2:2>10.1.1.1:1 hello}}
        receive p1 {udp [fc00::1]:1>[fc00::2]:2 hello}
        receive p2 {error fc00::2>fc00::1 1 4 {udp [fc00::1]:1>[fc00::2]:2 hello}}
        receive p2 {error fc00::2>fc00::1 1 4 {udp [fc00::1]:1>[fc00::2]:9 hello}}
        appctl dpctl/dump-flows | sort
    "#, ALL].concat();
    connections_of_other_protocols: &[states!("ct(table=1)", "ct(commit)"), r#"
        receive p1 {ip 10.1.1.1>10.1.1.2 2}
        receive p1 {ip 10.1.1.1>10.1.1.2 33}
        receive p1 {ip 10.1.1.1>10.1.1.2 47}
        receive p1 {ip 10.1.1.1>10.1.1.2 136}
        receive p1 {ip 10.1.1.1>10.1.1.2 253}
        receive p1 {ip fc00::1>fc00::2 47}
        receive p2 {ip 10.1.1.2>10.1.1.1 47}
        receive p2 {ip 10.1.1.2>10.1.1.1 48}
    "#, ALL].concat();
    translated_sources: &[states!("ct(zone=2,nat,table=1)", "ct(commit,zone=2,nat(src=10.1.1.240))"), r#"
        receive p1 {udp 10.1.1.1:1>10.1.1.2:2 hello}
        receive p2 {udp 10.1.1.2:2>10.1.1.240:1 yes}
        receive p2 {error 10.1.1.2>10.1.1.240 3 3 {udp 10.1.1.240:1>10.1.1.2:2 hello}}
        receive p1 {udp 10.1.1.1:1>10.1.1.2:2 hello}
        receive p2 {udp 10.1.1.2:2>10.1.1.1:1 wrong}
        receive p1 {icmp 10.1.1.1>10.1.1.2 8 0 77}
        receive p2 {icmp 10.1.1.2>10.1.1.240 0 0 77}
        receive p1 {tcp 10.1.1.1:1>10.1.1.2:2 s 1000 0}
        receive p2 {tcp 10.1.1.2:2>10.1.1.240:1 sa 5000 1001}
        receive p1 {tcp 10.1.1.1:1>10.1.1.2:2 a 1001 5001}
        receive p1 {tcp 10.1.1.1:1>10.1.1.2:2 pa 1001 5001 hello}
        receive p2 {tcp 10.1.1.2:2>10.1.1.240:1 a 5001 1006}
        appctl dpctl/dump-flows | sort
    "#, ALL].concat();
    translated_destinations: &[states!("ct(zone=2,nat,table=1)", "ct(commit,zone=2,nat(dst=10.1.1.2:80))"), r#"
        receive p1 {udp 10.1.1.1:1>10.1.1.64:8000 hello}
        receive p2 {udp 10.1.1.2:80>10.1.1.1:1 yes}
        receive p2 {error 10.1.1.2>10.1.1.1 3 3 {udp 10.1.1.1:1>10.1.1.2:80 hello}}
        receive p1 {tcp 10.1.1.1:1>10.1.1.64:8000 s 1000 0}
        receive p2 {tcp 10.1.1.2:80>10.1.1.1:1 sa 5000 1001}
        receive p1 {tcp 10.1.1.1:1>10.1.1.64:8000 a 1001 5001}
        receive p1 {icmp 10.1.1.1>10.1.1.64 8 0 77}
        receive p2 {icmp 10.1.1.2>10.1.1.1 0 0 77}
        appctl dpctl/dump-flows | sort
    "#, ALL].concat();
    translated_addresses_of_ipv6: &[r#"
        ofctl add-flow br0 'table=0,ipv6,actions=ct(zone=2,nat,table=1)'
        ofctl add-flow br0 'table=1,ct_state=+new+trk,ipv6,in_port=1,ipv6_dst=fc00::2,actions=ct(commit,zone=2,nat(src=fc00::240)),2'
        ofctl add-flow br0 'table=1,ct_state=+new+trk,ipv6,in_port=1,ipv6_dst=fc00::64,actions=ct(commit,zone=2,nat(dst=[fc00::2]:80)),2'
        ofctl add-flow br0 'table=1,ct_state=+est+trk,in_port=2,actions=1'
        ofctl add-flow br0 'table=1,ct_state=+rel+trk,in_port=2,actions=1'
        ofctl add-flow br0 'table=1,ct_state=+est+trk,in_port=1,actions=2'
        receive p1 {udp [fc00::1]:1>[fc00::2]:2 hello}
        receive p2 {udp [fc00::2]:2>[fc00::240]:1 yes}
        receive p2 {error fc00::2>fc00::240 1 4 {udp [fc00::240]:1>[fc00::2]:2 hello}}
        receive p1 {udp [fc00::1]:1>[fc00::64]:8000 hello}
        receive p2 {udp [fc00::2]:80>[fc00::1]:1 yes}
        receive p2 {error fc00::2>fc00::1 1 4 {udp [fc00::1]:1>[fc00::2]:80 hello}}
        receive p1 {icmp fc00::1>fc00::2 128 0 77}
        receive p2 {icmp fc00::2>fc00::240 129 0 77}
    "#, ALL].concat();
    marks_and_labels: &[r#"
        ofctl add-flow br0 'table=0,priority=9,in_port=1,udp,actions=set_field:0x77->reg0,ct(commit,zone=1,exec(set_field:0x11->ct_mark,set_field:0x22->ct_label,move:NXM_NX_REG0[0..7]->NXM_NX_CT_LABEL[64..71])),ct(table=1,zone=1)'
        ofctl add-flow br0 'table=0,priority=8,in_port=3,udp,actions=ct(commit,zone=1,exec(set_field:0x300/0xf00->ct_mark,load:5->NXM_NX_CT_LABEL[32..47])),ct(table=1,zone=1)'
        ofctl add-flow br0 'table=0,priority=1,udp,actions=ct(table=1,zone=1)'
        ofctl add-flow br0 'table=1,priority=9,ct_mark=0x11,ct_label=0x770000000000000022,in_port=1,actions=2'
        ofctl add-flow br0 'table=1,priority=9,ct_mark=0x311,in_port=3,actions=move:NXM_NX_CT_MARK[]->NXM_NX_REG1[],resubmit(,2)'
        ofctl add-flow br0 'table=1,priority=9,ct_mark=0x10/0xf0,in_port=2,actions=ct_clear,resubmit(,2)'
        ofctl add-flow br0 'table=1,priority=1,actions=4'
        ofctl add-flow br0 'table=2,priority=9,reg1=0x311,actions=1'
        ofctl add-flow br0 'table=2,priority=9,ct_state=-trk,ct_mark=0,ct_label=0,actions=3'
        ofctl dump-flows --no-stats br0
        receive p1 {udp 10.1.1.1:1>10.1.1.2:2 hello}
        appctl dpctl/dump-conntrack
        receive p2 {udp 10.1.1.2:2>10.1.1.1:1 yes}
        receive p3 {udp 10.1.1.1:1>10.1.1.2:2 more}
        receive p4 {udp 10.1.1.7:1>10.1.1.2:2 new}
        appctl dpctl/dump-flows | sort
    "#, ALL].concat();
    zones_and_original_tuples: &[r#"
        ofctl add-flow br0 'table=0,priority=9,in_port=1,ip,actions=set_field:0x1->reg0,ct(table=1,zone=NXM_NX_REG0[0..15])'
        ofctl add-flow br0 'table=0,priority=9,in_port=3,ip,actions=set_field:0x2->reg0,ct(table=1,zone=NXM_NX_REG0[0..15])'
        ofctl add-flow br0 'table=0,priority=9,in_port=2,ip,actions=ct(table=2,zone=1)'
        ofctl add-flow br0 'table=1,ct_state=+trk+new,ip,actions=ct(commit,zone=NXM_NX_REG0[0..15]),2'
        ofctl add-flow br0 'table=1,ct_state=+trk+est,ip,actions=2'
        ofctl add-flow br0 'table=2,priority=9,ct_state=+trk+est,ct_zone=1,ct_nw_src=10.1.1.1,ct_nw_dst=10.1.1.2,ct_nw_proto=17,ct_tp_src=1,ct_tp_dst=2,udp,actions=1'
        ofctl add-flow br0 'table=2,priority=8,ct_zone=1,ip,actions=ct(table=2,zone=2)'
        ofctl add-flow br0 'table=2,priority=8,ct_state=+trk+est,ct_zone=2,udp,ct_nw_proto=17,ct_tp_src=3,actions=3'
        ofctl dump-flows --no-stats br0
        receive p1 {udp 10.1.1.1:1>10.1.1.2:2 one}
        receive p3 {udp 10.1.1.1:3>10.1.1.2:2 two}
        receive p2 {udp 10.1.1.2:2>10.1.1.1:1 one}
        receive p2 {udp 10.1.1.2:2>10.1.1.1:3 two}
        receive p2 {udp 10.1.1.2:2>10.1.1.1:4 none}
        receive p1 {udp 10.1.1.1:1>10.1.1.2:2 one}
        appctl dpctl/dump-flows | sort
        appctl dpctl/dump-conntrack zone=1
        appctl dpctl/dump-conntrack zone=2
        appctl dpctl/dump-conntrack zone=3
        appctl dpctl/ct-stats-show zone=1
    "#, ALL].concat();
    forced_commits: &[r#"
        ofctl add-flow br0 'table=0,in_port=1,ip,actions=ct(commit,zone=1,exec(set_field:1->ct_mark)),2'
        ofctl add-flow br0 'table=0,in_port=2,ip,actions=ct(force,commit,zone=1,exec(set_field:2->ct_mark)),1'
        ofctl add-flow br0 'table=0,in_port=3,ip,actions=ct(commit,zone=1,exec(set_field:3->ct_mark)),1'
        receive p1 {udp 10.1.1.1:1>10.1.1.2:2 one}
        appctl dpctl/dump-conntrack
        receive p3 {udp 10.1.1.2:2>10.1.1.1:1 reply}
        appctl dpctl/dump-conntrack
        receive p2 {udp 10.1.1.2:2>10.1.1.1:1 forced}
        appctl dpctl/dump-conntrack
        receive p2 {udp 10.1.1.2:2>10.1.1.1:1 forced}
        appctl dpctl/dump-conntrack
        receive p1 {tcp 10.1.1.1:1>10.1.1.2:2 s 1000 0}
        receive p2 {tcp 10.1.1.2:2>10.1.1.1:1 sa 5000 1001}
        appctl dpctl/dump-conntrack -m -s | sort
    "#, ALL].concat();
    timeouts: &[states!("ct(zone=7,table=1)", "ct(commit,zone=7)"), r#"
        vsctl add-zone-tp br0 zone=7 udp_first=10 udp_single=20 udp_multiple=30 icmp_first=5 icmp_reply=6 tcp_syn_sent=40 tcp_established=50
        vsctl list-zone-tp br0
        receive p1 {udp 10.1.1.1:1>10.1.1.2:2 one}
        receive p1 {icmp 10.1.1.1>10.1.1.2 8 0 77}
        receive p1 {tcp 10.1.1.1:1>10.1.1.2:2 s 1000 0}
        appctl dpctl/dump-flows | sort
        appctl dpctl/dump-conntrack -s | sort
        receive p1 {udp 10.1.1.1:1>10.1.1.2:2 two}
        receive p2 {tcp 10.1.1.2:2>10.1.1.1:1 sa 5000 1001}
        receive p1 {tcp 10.1.1.1:1>10.1.1.2:2 a 1001 5001}
        appctl dpctl/dump-conntrack -s | sort
        receive p2 {udp 10.1.1.2:2>10.1.1.1:1 three}
        receive p2 {icmp 10.1.1.2>10.1.1.1 0 0 77}
        appctl dpctl/dump-conntrack -s | sort
        appctl time/warp 6500
        appctl dpctl/dump-conntrack -s | sort
        appctl time/warp 20000
        appctl dpctl/dump-conntrack -s | sort
        appctl time/warp 30000
        appctl dpctl/dump-conntrack -s | sort
        vsctl del-zone-tp br0 zone=7
        receive p1 {udp 10.1.1.1:5>10.1.1.2:2 one}
        appctl dpctl/dump-conntrack -s | sort
        ofctl add-flow br0 'table=0,priority=99,udp,actions=ct(commit,zone=8),2'
        receive p1 {udp 10.1.1.1:6>10.1.1.2:2 one}
        appctl dpctl/dump-conntrack -s | sort
    "#, ALL].concat();
    limits: &[states!("ct(zone=7,table=1)", "ct(commit,zone=7)"), r#"
        appctl dpctl/ct-get-limits
        appctl dpctl/ct-set-limits default=10 zone=7,limit=2 zone=8,limit=3
        appctl dpctl/ct-get-limits
        appctl dpctl/ct-get-limits zone=7,8,9
        receive p1 {udp 10.1.1.1:1>10.1.1.2:2 one}
        receive p1 {udp 10.1.1.1:2>10.1.1.2:2 two}
        receive p1 {udp 10.1.1.1:3>10.1.1.2:2 three}
        appctl dpctl/ct-get-limits zone=7
        appctl dpctl/dump-conntrack | sort
        appctl dpctl/ct-get-nconns
        appctl dpctl/ct-del-limits zone=7
        appctl dpctl/ct-get-limits
        receive p1 {udp 10.1.1.1:3>10.1.1.2:2 three}
        appctl dpctl/ct-get-nconns
        appctl dpctl/ct-set-limits zone=7
        appctl dpctl/ct-set-limits zone=7,limit=x
        appctl dpctl/ct-set-limits default=x
        appctl dpctl/ct-set-limits nonsense=1,limit=2
        appctl dpctl/ct-set-limits zone=99999999999,limit=2
        appctl dpctl/ct-del-limits nonsense
        appctl dpctl/ct-del-limits
        appctl dpctl/ct-get-maxconns
        appctl dpctl/ct-set-maxconns 3
        appctl dpctl/ct-get-maxconns
        receive p1 {udp 10.1.1.1:4>10.1.1.2:2 four}
        appctl dpctl/ct-get-nconns
        appctl dpctl/ct-set-maxconns x
        appctl dpctl/ct-set-maxconns
        appctl dpctl/ct-get-nconns nonsense@nowhere
    "#, ALL].concat();
    flushes: &[states!("ct(zone=7,table=1)", "ct(commit,zone=7)"), r#"
        receive p1 {udp 10.1.1.1:1>10.1.1.2:2 one}
        receive p1 {udp 10.1.1.1:2>10.1.1.2:2 two}
        receive p1 {tcp 10.1.1.1:3>10.1.1.2:2 s 1000 0}
        receive p1 {icmp 10.1.1.1>10.1.1.2 8 0 77}
        receive p1 {udp [fc00::1]:1>[fc00::2]:2 hello}
        appctl dpctl/dump-conntrack | sort
        appctl dpctl/flush-conntrack zone=8
        appctl dpctl/ct-get-nconns
        appctl dpctl/flush-conntrack zone=7 'ct_nw_src=10.1.1.1,ct_nw_dst=10.1.1.2,ct_nw_proto=17,ct_tp_src=2,ct_tp_dst=2'
        appctl dpctl/dump-conntrack | sort
        appctl dpctl/flush-conntrack zone=7 'ct_nw_src=10.1.1.2,ct_nw_dst=10.1.1.1,ct_nw_proto=17,ct_tp_src=2,ct_tp_dst=1'
        appctl dpctl/dump-conntrack | sort
        appctl dpctl/flush-conntrack zone=7 'ct_nw_src=10.1.1.1,ct_nw_dst=10.1.1.2,ct_nw_proto=17,ct_tp_src=2,ct_tp_dst=9'
        appctl dpctl/flush-conntrack 'ct_nw_src=10.1.1.1,ct_nw_dst=10.1.1.2,ct_nw_proto=6,ct_tp_src=3,ct_tp_dst=2'
        appctl dpctl/flush-conntrack zone=7 'ct_nw_src=10.1.1.1,ct_nw_dst=10.1.1.2,ct_nw_proto=1,icmp_id=77,icmp_type=8,icmp_code=0'
        appctl dpctl/dump-conntrack | sort
        appctl dpctl/flush-conntrack zone=7 'ct_ipv6_src=fc00::1,ct_ipv6_dst=fc00::2,ct_nw_proto=17,ct_tp_src=1,ct_tp_dst=2'
        appctl dpctl/dump-conntrack | sort
        appctl dpctl/flush-conntrack zone=x
        appctl dpctl/flush-conntrack ct_nw_src=nonsense
        appctl dpctl/flush-conntrack nonsense=1
        appctl dpctl/flush-conntrack
        appctl dpctl/dump-conntrack | sort
    "#, ALL].concat();
    commands: r#"
        appctl dpctl/dump-conntrack
        appctl dpctl/dump-conntrack -m
        appctl dpctl/dump-conntrack zone=x
        appctl dpctl/dump-conntrack nonsense
        appctl dpctl/dump-conntrack dummy@ovs-dummy
        appctl dpctl/dump-conntrack dummy@ovs-dummy zone=3
        appctl dpctl/ct-stats-show
        appctl dpctl/ct-stats-show -m
        appctl dpctl/ct-stats-show verbose
        appctl dpctl/ct-stats-show zone=1
        appctl dpctl/ct-bkts
        appctl dpctl/ct-bkts gt=1
        appctl dpctl/ct-bkts gt=x
        appctl dpctl/ipf-get-status
        appctl dpctl/ipf-get-status -m
        appctl dpctl/ipf-set-min-frag v4 100
        appctl dpctl/ipf-set-min-frag v4 1000
        appctl dpctl/ipf-set-min-frag v6 1300
        appctl dpctl/ipf-set-min-frag v5 1000
        appctl dpctl/ipf-set-min-frag v4 x
        appctl dpctl/ipf-set-max-nfrags 500
        appctl dpctl/ipf-set-max-nfrags 50000
        appctl dpctl/ipf-set-max-nfrags x
        appctl dpctl/ipf-set-disabled v6
        appctl dpctl/ipf-set-disabled v5
        appctl dpctl/ipf-get-status
        appctl dpctl/ipf-set-enabled v6
        appctl dpctl/ipf-get-status
        appctl dpif/show-dp-features br0 | grep -i -e ct -e conntrack
    "#;
    fragments: &[states!("ct(zone=7,table=1)", "ct(commit,zone=7)"), r#"
        appctl dpctl/ipf-set-min-frag v4 400
        receive p1 {frag 400 0 400 {udp 10.1.1.1:1>10.1.1.2:2 LONG}}
        appctl dpctl/ipf-get-status -m
        appctl dpctl/dump-conntrack
        receive p1 {frag 0 1 400 {udp 10.1.1.1:1>10.1.1.2:2 LONG}}
        appctl dpctl/ipf-get-status -m
        appctl dpctl/dump-conntrack
        receive p2 {frag 0 1 400 {udp 10.1.1.2:2>10.1.1.1:1 LONG}}
        receive p2 {frag 400 0 400 {udp 10.1.1.2:2>10.1.1.1:1 LONG}}
        appctl dpctl/ipf-get-status
        # Too small, overlapping, and never whole.
        receive p1 {frag 0 1 200 {udp 10.1.1.1:5>10.1.1.2:2 LONG}}
        receive p1 {frag 0 1 408 {udp 10.1.1.3:5>10.1.1.2:2 LONG}}
        receive p1 {frag 400 0 400 {udp 10.1.1.3:5>10.1.1.2:2 LONG}}
        receive p1 {frag 400 0 400 {udp 10.1.1.4:5>10.1.1.2:2 LONG}}
        appctl dpctl/ipf-get-status | grep -v -e accepted
    "#, ALL].concat().replace("LONG", &"0123456789".repeat(60));
    active_ftp: &[of_tcp(states!("ct(table=1)", "ct(commit,alg=ftp)")).as_str(), FTP, r#"
        receive p1 {tcp 10.1.1.1:1024>10.1.1.2:21 pa 1001 5001 PORT~10,1,1,1,4,1|}
        appctl dpctl/dump-conntrack | sort
        receive p2 {tcp 10.1.1.2:20>10.1.1.1:1025 s 9000 0}
        appctl dpctl/dump-conntrack -m | sort
        receive p1 {tcp 10.1.1.1:1025>10.1.1.2:20 sa 3000 9001}
        receive p2 {tcp 10.1.1.2:20>10.1.1.1:1026 s 9000 0}
    "#, ALL].concat();
    passive_ftp: &[of_tcp(states!("ct(table=1)", "ct(commit,alg=ftp)")).as_str(), FTP, r#"
        receive p1 {tcp 10.1.1.1:1024>10.1.1.2:21 pa 1001 5001 PASV|}
        receive p2 {tcp 10.1.1.2:21>10.1.1.1:1024 pa 5001 1007 227~Entering~Passive~Mode~(10,1,1,2,8,0).|}
        appctl dpctl/dump-conntrack | sort
        receive p1 {tcp 10.1.1.1:1025>10.1.1.2:2048 s 9000 0}
        appctl dpctl/dump-conntrack -m | sort
        receive p2 {tcp 10.1.1.2:2048>10.1.1.1:1025 sa 3000 9001}
    "#, ALL].concat();
    ftp_with_a_translated_source: &[
        of_tcp(states!("ct(nat,table=1)", "ct(commit,alg=ftp,nat(src=10.1.1.240))"))
            .replace("+new+rel+trk,tcp,actions=ct(commit,alg=ftp,nat(src=10.1.1.240)),3", "+new+rel+trk,tcp,actions=ct(commit,nat),1").as_str(), r#"
        receive p1 {tcp 10.1.1.1:1024>10.1.1.2:21 s 1000 0}
        receive p2 {tcp 10.1.1.2:21>10.1.1.240:1024 sa 5000 1001}
        receive p1 {tcp 10.1.1.1:1024>10.1.1.2:21 a 1001 5001}
        receive p1 {room {tcp 10.1.1.1:1024>10.1.1.2:21 pa 1001 5001 PORT~10,1,1,1,4,1|}}
        receive p2 {tcp 10.1.1.2:21>10.1.1.240:1024 pa 5001 1025 200~yes|}
        receive p1 {tcp 10.1.1.1:1024>10.1.1.2:21 a 1023 5010}
        receive p2 {tcp 10.1.1.2:20>10.1.1.240:1025 s 9000 0}
        receive p1 {tcp 10.1.1.1:1025>10.1.1.2:20 sa 3000 9001}
    "#, ALL].concat();
    tftp: &[states!("ct(table=1)", "ct(commit,alg=tftp)").replace(",ip,", ",udp,").replace(",ipv6,", ",udp6,").as_str(), r#"
        receive p1 {udp 10.1.1.1:1024>10.1.1.2:69 X}
        receive p2 {udp 10.1.1.2:4000>10.1.1.1:1024 data}
        appctl dpctl/dump-conntrack -m | sort
        receive p1 {udp 10.1.1.1:1024>10.1.1.2:4000 ack}
        receive p2 {udp 10.1.1.2:4000>10.1.1.1:1025 other}
    "#, ALL].concat().replace("69 X", "69 %0%1file%0octet%0");
    traces: r#"
        ofctl add-flow br0 'table=0,priority=9,in_port=1,ip,actions=ct(table=1,zone=5)'
        ofctl add-flow br0 'table=0,priority=9,in_port=2,ip,actions=2,ct(commit,zone=5,exec(set_field:7->ct_mark,set_field:9/0xff->ct_label),nat(src=10.0.0.9-10.0.0.12:100-200,random)),1'
        ofctl add-flow br0 'table=0,priority=9,in_port=3,ip,actions=ct(table=1,zone=5),ct_clear,4'
        ofctl add-flow br0 'table=0,priority=9,in_port=4,ip,actions=mod_nw_dst:10.0.0.7,ct(force,commit,table=1,nat(src=10.0.0.9,hash,persistent)),ct_clear'
        ofctl add-flow br0 'table=1,ct_state=+new+trk,actions=ct(commit,zone=5,nat(dst=10.0.0.3)),ct(table=2,zone=6)'
        ofctl add-flow br0 'table=1,ct_state=+est+trk,actions=2'
        ofctl add-flow br0 'table=2,ct_state=+trk+est,actions=3'
        ofctl add-flow br0 'table=2,ct_state=+trk+new,ct_zone=6,actions=4'
        trace in_port=1,udp,nw_src=10.0.0.1,nw_dst=10.0.0.2,nw_ttl=64,udp_src=5,udp_dst=6
        trace in_port=1,udp,nw_src=10.0.0.1,nw_dst=10.0.0.2,nw_ttl=64,udp_src=5,udp_dst=6 --ct-next trk,est
        trace in_port=1,udp,nw_src=10.0.0.1,nw_dst=10.0.0.2,nw_ttl=64,udp_src=5,udp_dst=6 --ct-next trk,new --ct-next trk,est
        trace in_port=1,udp,nw_src=10.0.0.1,nw_dst=10.0.0.2,nw_ttl=64,udp_src=5,udp_dst=6 --ct-next est
        trace in_port=1,udp,nw_src=10.0.0.1,nw_dst=10.0.0.2,nw_ttl=64,udp_src=5,udp_dst=6 --ct-next nonsense
        trace in_port=2,udp,nw_src=10.0.0.1,nw_dst=10.0.0.2,nw_ttl=64,udp_src=5,udp_dst=6
        trace in_port=3,udp,nw_src=10.0.0.1,nw_dst=10.0.0.2,nw_ttl=64,udp_src=5,udp_dst=6
        trace in_port=4,tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2,nw_ttl=64,tcp_src=5,tcp_dst=6
        trace in_port=3,ct_state=trk,ct_zone=5,udp,nw_ttl=64
        trace in_port=9,ct_state=est+trk,ct_zone=5,ct_mark=3,ct_label=0x1234,udp,nw_ttl=64
        trace in_port=1,arp
    "#;
    groups_and_clones: r#"
        ofctl -O OpenFlow13 add-group br0 'group_id=1,type=all,bucket=ct(commit,zone=1,table=1),bucket=output:4'
        ofctl -O OpenFlow13 add-group br0 'group_id=2,type=select,bucket=ct(commit,zone=1,nat(dst=10.1.1.2),table=1)'
        ofctl -O OpenFlow13 add-flow br0 'table=0,in_port=1,udp,actions=group:1'
        ofctl -O OpenFlow13 add-flow br0 'table=0,in_port=2,udp,actions=clone(ct(commit,zone=2),2),clone(ct(zone=2,table=1)),mod_nw_dst:10.1.1.9,3'
        ofctl -O OpenFlow13 add-flow br0 'table=0,in_port=3,udp,actions=write_actions(ct(table=1,zone=3),output:2)'
        ofctl -O OpenFlow13 add-flow br0 'table=0,in_port=4,udp,actions=group:2'
        ofctl -O OpenFlow13 add-flow br0 'table=1,ct_state=+trk+new,udp,actions=output:2'
        ofctl -O OpenFlow13 add-flow br0 'table=1,ct_state=+trk+est,udp,actions=output:3'
        ofctl -O OpenFlow13 dump-groups br0
        ofctl -O OpenFlow13 --no-stats dump-flows br0
        trace in_port=1,udp,nw_src=10.1.1.1,nw_dst=10.1.1.2,nw_ttl=64
        trace in_port=2,udp,nw_src=10.1.1.1,nw_dst=10.1.1.2,nw_ttl=64
        trace in_port=3,udp,nw_src=10.1.1.1,nw_dst=10.1.1.2,nw_ttl=64 | grep -v '^Final'
        receive p1 FRAME
        receive p1 FRAME
        appctl dpctl/dump-conntrack
        receive p2 FRAME
        receive p3 FRAME
        appctl dpctl/dump-conntrack | sort
        receive p4 FRAME
        # The hash that chooses a bucket is each switch's own.
        appctl dpctl/dump-flows | grep -v dp_hash | sort
        for p in p1 p2 p3 p4; do echo $p; tcpdump -n -t -vv -x -r $p-tx.pcap 2>/dev/null; done
    "#.replace("FRAME", "{udp 10.1.1.1:1>10.1.1.2:2 hello}");
    texts: r#"
        ofctl add-flow br0 'ip,actions=ct()'
        ofctl add-flow br0 'priority=1,ip,actions=ct(commit)'
        ofctl add-flow br0 'priority=2,ip,actions=ct(force,commit,table=3,zone=65535,nat(src=10.0.0.1-10.0.0.9:1-9,persistent,hash),exec(set_field:1->ct_mark))'
        ofctl add-flow br0 'priority=3,ipv6,actions=ct(commit,nat(dst=[fe80::1]-[fe80::9]:1-9,random))'
        ofctl add-flow br0 'priority=4,tcp,actions=ct(commit,alg=ftp)'
        ofctl add-flow br0 'priority=5,ct_state=+trk+est-new-rel+rpl-inv+snat-dnat,ip,actions=drop'
        ofctl add-flow br0 'priority=6,ct_state=0x21/0x3f,ct_zone=5,ct_mark=1/3,ct_label=0x10000000000000000/0xf0000000000000000,actions=drop'
        ofctl add-flow br0 'priority=7,ct_nw_src=10.0.0.0/8,ct_nw_dst=10.0.0.2,ct_nw_proto=6,ct_tp_src=5,ct_tp_dst=0x10/0xf0,ct_state=+trk,ip,actions=drop'
        ofctl add-flow br0 'priority=8,ct_ipv6_src=fe80::1,ct_state=+trk,ipv6,actions=drop'
        ofctl add-flow br0 'priority=9,ip,actions=ct(zone=NXM_NX_REG0[0..15]),ct_clear'
        ofctl add-flow br0 'actions=ct(commit)'
        ofctl add-flow br0 'arp,actions=ct(commit)'
        ofctl add-flow br0 'udp,actions=ct(commit,alg=ftp)'
        ofctl add-flow br0 'ip,actions=ct(nat(src=10.0.0.1))'
        ofctl add-flow br0 'ip,actions=ct(force)'
        ofctl add-flow br0 'ip,actions=ct(commit,exec(output:1))'
        ofctl add-flow br0 'ip,actions=ct(commit,exec(set_field:1->reg0))'
        ofctl add-flow br0 'ip,actions=ct(commit,zone=70000)'
        ofctl add-flow br0 'ip,actions=ct(zone=NXM_NX_REG0[0..7])'
        ofctl add-flow br0 'ip,actions=ct(nonsense)'
        ofctl add-flow br0 'ip,actions=ct(commit,nat(src=10.0.0.9-10.0.0.1))'
        ofctl add-flow br0 'ip,actions=ct(commit,nat(src=10.0.0.9,dst=10.0.0.1))'
        ofctl add-flow br0 'ip,actions=ct(commit,nat(src=fe80::1))'
        ofctl add-flow br0 'ip,actions=set_field:1->ct_mark'
        ofctl add-flow br0 'ip,actions=set_field:1->ct_state'
        ofctl add-flow br0 'ct_state=+nonsense,actions=drop'
        ofctl add-flow br0 'ct_state=+trk+inv+new,actions=drop'
        ofctl add-flow br0 'ct_state=-trk+new,actions=drop'
        ofctl dump-flows --no-stats br0
        ofctl -O OpenFlow15 dump-flows --no-stats br0
        ofctl -O OpenFlow13 dump-flows --no-stats br0
    "#;
    packet_ins: r#"
        ofctl add-flow br0 'table=0,udp,actions=ct(commit,zone=4,exec(set_field:3->ct_mark,set_field:5->ct_label)),ct(zone=4,table=1)'
        ofctl add-flow br0 'table=1,udp,actions=controller'
        ofctl monitor br0 65534 -P nxt_packet_in --detach --no-chdir --pidfile=monitor.pid --log-file=monitor.log 2>monitor.txt
        ofctl add-flow br0 'table=0,in_port=3,udp,actions=ct(zone=4,table=2)'
        ofctl add-flow br0 'table=2,actions=mod_dl_src:02:00:00:00:00:01,controller'
        receive p1 {udp 10.1.1.1:1>10.1.1.2:2 hello}
        receive p2 {udp 10.1.1.2:2>10.1.1.1:1 hello}
        receive p3 {udp 10.1.1.3:3>10.1.1.2:2 hello}
        for _ in $(seq 100); do [ $(grep -c PACKET_IN monitor.txt) -ge 3 ] && break; sleep 0.05; done
        ovs-appctl -t ovs-ofctl exit
        grep -v Unknown monitor.txt
    "#;
}

/// The start of a control connection.
const FTP: &str = "
        receive p1 {tcp 10.1.1.1:1024>10.1.1.2:21 s 1000 0}
        receive p2 {tcp 10.1.1.2:21>10.1.1.1:1024 sa 5000 1001}
        receive p1 {tcp 10.1.1.1:1024>10.1.1.2:21 a 1001 5001}
";
