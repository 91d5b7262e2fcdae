// SPDX-License-Identifier: Apache-2.0
//! Fragments, which are put together for the tracker and go on as they came.

use super::{conn, conns, firewall, leads_to, pair, pair_of};
use crate::tools::{SOON, udp};
use netdev::{Kind, OpenSpec};
use packet::Packet;
use slipswitch_tests::harness::{Host, wait_until};
use std::net::UdpSocket;

#[test]
fn long_pings_pass() {
    let Some((switch, a, b)) = pair() else { return };
    switch.flows("br0", &firewall("ip", "zone=9", "zone=9"));
    let capture = b.capture(switch.sandbox(), "eth0", "ip");
    let said = a.netns.sh("ping -n -c 5 -i 0.1 -W 5 -s 3000 10.1.1.2");
    assert!(said.contains("5 received"), "{said}");
    let line = conn(&switch, &["icmp,"]);
    assert!(
        line.contains("type=8,code=0),reply=(src=10.1.1.2,dst=10.1.1.1") && line.contains("zone=9"),
        "{line}"
    );
    for offset in ["offset 1480", "offset 2960"] {
        assert!(wait_until(SOON, || capture.text().contains(offset)), "{}", capture.text());
    }
    let status = switch.appctl("dpctl/ipf-get-status");
    let number = |name: &str| -> u32 {
        let line = status.lines().find_map(|l| l.trim().strip_prefix(name)).expect(name);
        line.trim().parse().expect("a number")
    };
    let (accepted, completed) = (number("v4 frags accepted:"), number("v4 frags completed:"));
    assert!(accepted >= 30 && accepted == completed && number("num frag:") == 0, "{status}");
    // An inner host may be asked by nobody, in fragments neither.
    let said = b.netns.run("ping -n -c 2 -i 0.1 -W 0.5 -s 3000 10.1.1.1").text();
    assert!(said.contains(" 0 received"), "{said}");
}

#[test]
fn long_datagrams_pass_both_ways() {
    let Some((switch, a, b)) = pair() else { return };
    switch.flows("br0", &firewall("ip", "zone=9", "zone=9"));
    assert_eq!(udp(&a, &b, &[1, 1472, 1473, 3000, 9000]), [true; 5]);
    let line = conn(&switch, &["udp,"]);
    assert!(line.starts_with("udp,orig=(src=10.1.1.1,dst=10.1.1.2,"), "{line}");
}

#[test]
fn long_pings_pass_translation() {
    let Some((switch, a, b)) = pair() else { return };
    switch.flows("br0", &firewall("ip", "zone=9,nat(src=10.1.1.240)", "zone=9,nat"));
    leads_to(&b, "10.1.1.240", &a);
    let said = a.netns.sh("ping -n -c 5 -i 0.1 -W 5 -s 3000 10.1.1.2");
    assert!(said.contains("5 received"), "{said}");
    let line = conn(&switch, &["icmp,"]);
    assert!(line.contains("reply=(src=10.1.1.2,dst=10.1.1.240,"), "{line}");
}

#[test]
fn long_pings_pass_over_ipv6() {
    let Some((switch, a, _b)) = pair_of("fc00::1/96", "fc00::2/96") else { return };
    switch.flows("br0", &firewall("ipv6", "zone=9", "zone=9"));
    let said = a.netns.sh("ping -n -c 5 -i 0.1 -W 5 -s 3000 fc00::2");
    assert!(said.contains("5 received"), "{said}");
    conn(&switch, &["icmpv6,orig=(src=fc00::1,dst=fc00::2,", "type=128,code=0)"]);
}

/// Datagrams whose first fragment is sent last: none of the one that goes out is lost, and of the one
/// that comes in none passes.
#[test]
fn the_first_fragment_may_come_last() {
    let Some((switch, a, b)) = pair() else { return };
    switch.flows("br0", &firewall("udp", "zone=9", "zone=9"));
    let payload: Vec<u8> = (0..4000).map(|n| n as u8).collect();
    for (from, to, passes) in [(&a, &b, true), (&b, &a, false)] {
        let address = format!("{}:7", to.address());
        let socket = to.netns.with(|| UdpSocket::bind(address).expect("the host's address"));
        socket.set_nonblocking(true).expect("it can be");
        let filter = format!("src {}", from.address());
        let capture = to.capture(switch.sandbox(), "eth0", &filter);
        let mut fragments = datagram(from, to, 7, &payload);
        fragments.rotate_left(1);
        let (last, before) = fragments.split_last().expect("there are several");
        send(from, before);
        let status = || switch.appctl("dpctl/ipf-get-status");
        let held = |count: usize| status().contains(&format!("num frag: {count}\n"));
        assert!(wait_until(SOON, || held(before.len())), "{}", status());
        assert_eq!(capture.frames(), Vec::<Vec<u8>>::new());
        send(from, std::slice::from_ref(last));
        assert!(wait_until(SOON, || held(0)), "{}", status());
        let mut data = vec![0; 9000];
        let mut is_whole = || socket.recv(&mut data).is_ok_and(|n| data[..n] == payload);
        if passes {
            assert!(wait_until(SOON, is_whole), "{}", capture.text());
            assert_eq!(capture.finish(3, SOON).len(), 3);
            let orig = "udp,orig=(src=10.1.1.1,dst=10.1.1.2,sport=5000,dport=7)";
            assert_eq!(conns(&switch, &[orig, "zone=9"]).len(), 1, "{:#?}", conns(&switch, &[]));
        } else {
            let dropped = || switch.counts("br0 cookie=9/-1").0 == 3;
            assert!(wait_until(SOON, dropped), "{}", switch.ofctl("dump-flows br0"));
            assert_eq!(capture.frames(), Vec::<Vec<u8>>::new());
            assert!(!is_whole());
        }
    }
}

/// The frames of a datagram in fragments of 1,480 bytes.
fn datagram(from: &Host, to: &Host, port: u16, payload: &[u8]) -> Vec<Vec<u8>> {
    const PART: usize = 1480;
    let address = |host: &Host| -> [u8; 6] {
        let text = host.netns.mac("eth0");
        let bytes: Vec<u8> =
            text.split(':').map(|b| u8::from_str_radix(b, 16).expect("hex")).collect();
        bytes.try_into().expect("six bytes")
    };
    let ip = |host: &Host| host.address().parse().expect("an IPv4 address");
    let whole = packet::build::Frame::ethernet(address(to), address(from))
        .ipv4(ip(from), ip(to), 64)
        .udp(5000, port)
        .payload(payload)
        .finish();
    let (head, body) = whole.split_at(14 + 20);
    let parts = body.chunks(PART).enumerate();
    let count = body.len().div_ceil(PART);
    parts
        .map(|(n, part)| {
            let more = if n + 1 < count { 0x2000 } else { 0 };
            let mut frame = [head, part].concat();
            frame[16..18].copy_from_slice(&((20 + part.len()) as u16).to_be_bytes());
            frame[18..20].copy_from_slice(&port.to_be_bytes());
            frame[20..22].copy_from_slice(&(more | (n * PART / 8) as u16).to_be_bytes());
            frame[24..26].fill(0);
            let sum = packet::checksum::internet(&frame[14..34]);
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
            frame
        })
        .collect()
}

/// Sends frames from a host's device.
fn send(from: &Host, frames: &[Vec<u8>]) {
    let packets: Vec<Packet> = frames.iter().map(|f| Packet::from_slice(f)).collect();
    from.netns.with(|| {
        let opened = netdev::open(&OpenSpec::new("eth0", Kind::System)).expect("the host's device");
        let report = opened.sender.send(&packets);
        assert_eq!(report.dropped(), 0, "{report:?}");
    });
}
