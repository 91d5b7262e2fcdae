// SPDX-License-Identifier: Apache-2.0
//! The lines are those that ovs-vswitchd 3.1 printed for the same packets (but SCTP: that version
//! lists it without ports, later ones with).

use super::*;
use crate::tracker::Request;
use crate::tracker::tests::{Bed, Tcp, commit, frame, udp, zone};
use packet::build::Frame;
use packet::tcp_flags::{ACK, FIN, PSH, SYN};

const SCALE: &[u8] = b"\x01\x03\x03\x07";

fn lines(bed: &Bed, detail: Detail) -> Vec<String> {
    let mut lines = Vec::new();
    let mut cursor = Some(0);
    while let Some(at) = cursor {
        cursor = bed.tracker.table().dump(Some(3), at, bed.now, |entry| {
            lines.push(entry.line(detail));
        });
    }
    lines.sort();
    lines
}

fn with_mark() -> Request {
    Request { mark: Some((0x11, u32::MAX)), label: Some((0x22, u128::MAX)), ..commit(3) }
}

fn handshake(bed: &Bed, request: &Request, ports: (u16, u16), options: &[u8]) {
    let there = |flags, numbers, data| Tcp { hosts: (1, 2), ports, flags, numbers, data }.bytes();
    bed.ct(there(SYN, (99, 0), options), request);
    let ports = (ports.1, ports.0);
    let back = Tcp { hosts: (2, 1), ports, flags: SYN | ACK, numbers: (499, 100), data: options };
    bed.ct(back.bytes(), &zone(3));
    bed.ct(there(ACK, (100, 500), b""), request);
}

#[test]
fn short_and_long_lines_of_all_protocols() {
    let bed = Bed::new();
    let request = with_mark();
    handshake(&bed, &request, (10, 20), SCALE);
    let pick_up =
        Tcp { hosts: (1, 2), ports: (11, 20), flags: ACK, numbers: (100, 500), data: b"" };
    bed.ct(pick_up.bytes(), &request);
    bed.ct(udp(1, 2, (1, 2), b""), &request);
    let icmp = |src, dst, kind| {
        frame(src, dst).icmp(kind, 0, 0x0007_0001).payload(b"abcd").finish().split_off(14)
    };
    bed.ct(icmp(1, 2, 8), &request);
    bed.ct(icmp(2, 1, 0), &zone(3));
    let gre = frame(1, 2).protocol(47).payload(b"abcdabcd").finish().split_off(14);
    bed.ct(gre, &request);
    let short = [
        "47,orig=(src=10.1.1.1,dst=10.1.1.2,sport=0,dport=0),reply=(src=10.1.1.2,dst=10.1.1.1,sport=0,dport=0),zone=3,mark=17,labels=0x22",
        "icmp,orig=(src=10.1.1.1,dst=10.1.1.2,id=7,type=8,code=0),reply=(src=10.1.1.2,dst=10.1.1.1,id=7,type=0,code=0),zone=3,mark=17,labels=0x22",
        "tcp,orig=(src=10.1.1.1,dst=10.1.1.2,sport=10,dport=20),reply=(src=10.1.1.2,dst=10.1.1.1,sport=20,dport=10),zone=3,mark=17,labels=0x22,protoinfo=(state=ESTABLISHED)",
        "tcp,orig=(src=10.1.1.1,dst=10.1.1.2,sport=11,dport=20),reply=(src=10.1.1.2,dst=10.1.1.1,sport=20,dport=11),zone=3,mark=17,labels=0x22,protoinfo=(state=SYN_SENT)",
        "udp,orig=(src=10.1.1.1,dst=10.1.1.2,sport=1,dport=2),reply=(src=10.1.1.2,dst=10.1.1.1,sport=2,dport=1),zone=3,mark=17,labels=0x22",
    ];
    assert_eq!(lines(&bed, Detail::default()), short);
    let long = [
        "47,orig=(src=10.1.1.1,dst=10.1.1.2,sport=0,dport=0),reply=(src=10.1.1.2,dst=10.1.1.1,sport=0,dport=0),id=0,zone=3,status=0,timeout=60,mark=17,labels=0x22",
        "icmp,orig=(src=10.1.1.1,dst=10.1.1.2,id=7,type=8,code=0),reply=(src=10.1.1.2,dst=10.1.1.1,id=7,type=0,code=0),id=0,zone=3,status=0,timeout=30,mark=17,labels=0x22",
        "tcp,orig=(src=10.1.1.1,dst=10.1.1.2,sport=10,dport=20),reply=(src=10.1.1.2,dst=10.1.1.1,sport=20,dport=10),id=0,zone=3,status=0,timeout=86400,mark=17,labels=0x22,protoinfo=(state_orig=ESTABLISHED,state_reply=ESTABLISHED,wscale_orig=7,wscale_reply=7,flags_orig=WINDOW_SCALE,flags_reply=WINDOW_SCALE)",
        "tcp,orig=(src=10.1.1.1,dst=10.1.1.2,sport=11,dport=20),reply=(src=10.1.1.2,dst=10.1.1.1,sport=20,dport=11),id=0,zone=3,status=0,timeout=30,mark=17,labels=0x22,protoinfo=(state_orig=SYN_SENT,state_reply=CLOSED,flags_orig=BE_LIBERAL,flags_reply=BE_LIBERAL)",
        "udp,orig=(src=10.1.1.1,dst=10.1.1.2,sport=1,dport=2),reply=(src=10.1.1.2,dst=10.1.1.1,sport=2,dport=1),id=0,zone=3,status=0,timeout=60,mark=17,labels=0x22",
    ];
    assert_eq!(lines(&bed, Detail { more: true, statistics: true }), long);
}

#[test]
fn states_are_joined_in_short_lines() {
    let bed = Bed::new();
    let request = commit(3);
    handshake(&bed, &request, (40, 20), b"");
    for (hosts, ports, flags, numbers) in [
        ((1, 2), (40, 20), FIN | ACK, (100, 500)),
        ((2, 1), (20, 40), FIN | ACK, (500, 101)),
        ((1, 2), (40, 20), ACK, (101, 501)),
    ] {
        bed.ct(Tcp { hosts, ports, flags, numbers, data: b"" }.bytes(), &request);
    }
    assert!(lines(&bed, Detail::default())[0].ends_with(",zone=3,protoinfo=(state=TIME_WAIT)"));
    let long = Detail { more: true, statistics: false };
    assert!(lines(&bed, long)[0].ends_with(
        ",id=0,zone=3,status=0,protoinfo=(state_orig=FIN_WAIT_2,state_reply=FIN_WAIT_2,\
         flags_orig=0,flags_reply=0)"
    ));
}

#[test]
fn helpers_and_their_children() {
    let bed = Bed::new();
    let request = Request { helper: Some(Helper::Ftp), ..commit(3) };
    handshake(&bed, &request, (30, 21), b"");
    let port = Tcp {
        hosts: (1, 2),
        ports: (30, 21),
        flags: ACK | PSH,
        numbers: (100, 500),
        data: b"PORT 10,1,1,1,4,1\r\n",
    };
    bed.ct(port.bytes(), &zone(3));
    let mut expected = Vec::new();
    bed.tracker.expectations().each(bed.tracker.table(), Some(3), bed.now, |expectation| {
        expected.push(expectation.line());
    });
    assert_eq!(
        expected,
        ["tcp,orig=(src=10.1.1.2,dst=10.1.1.1,sport=0,dport=1025),zone=3,parent=(src=10.1.1.1,\
          dst=10.1.1.2,sport=30,dport=21)"]
    );
    let data = Tcp { hosts: (2, 1), ports: (20, 1025), flags: SYN, numbers: (1, 0), data: b"" };
    bed.ct(data.bytes(), &commit(3));
    let detail = Detail { more: true, statistics: false };
    assert_eq!(
        lines(&bed, detail),
        [
            "tcp,orig=(src=10.1.1.1,dst=10.1.1.2,sport=30,dport=21),reply=(src=10.1.1.2,dst=10.1.1.1,sport=21,dport=30),id=0,zone=3,status=0,protoinfo=(state_orig=ESTABLISHED,state_reply=ESTABLISHED,flags_orig=0,flags_reply=0),helper=ftp",
            "tcp,orig=(src=10.1.1.2,dst=10.1.1.1,sport=20,dport=1025),reply=(src=10.1.1.1,dst=10.1.1.2,sport=1025,dport=20),id=0,zone=3,status=0,protoinfo=(state_orig=SYN_SENT,state_reply=CLOSED,flags_orig=0,flags_reply=0),parent=(src=10.1.1.1,dst=10.1.1.2,sport=30,dport=21)",
        ]
    );
}

#[test]
fn ipv6_and_other_zones() {
    let address = |last| std::net::Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, last);
    let echo = Frame::ethernet([0; 6], [0; 6]).ipv6(address(1), address(2), 64);
    let mut bytes = echo.icmpv6(128, 0, 0x0009_0001).finish().split_off(14);
    let bed = Bed::new();
    let mut worker = bed.tracker.table().worker();
    let mut packet = crate::tracker::IpPacket {
        bytes: &mut bytes,
        family: crate::extract::Family::V6,
        verify: crate::extract::Checksums::ALL,
        checksum: crate::rewrite::ChecksumState::Finished,
    };
    let mut meta = Default::default();
    bed.tracker.process(&worker.pin(), &mut packet, &mut meta, &commit(3), bed.now);
    assert_eq!(
        lines(&bed, Detail { more: true, statistics: true }),
        [
            "icmpv6,orig=(src=fc00::1,dst=fc00::2,id=9,type=128,code=0),reply=(src=fc00::2,dst=fc00::1,id=9,type=129,code=0),id=0,zone=3,status=0,timeout=60"
        ]
    );
    bed.ct(udp(1, 2, (1, 2), b""), &commit(4));
    assert_eq!(lines(&bed, Detail::default()).len(), 1);
}
