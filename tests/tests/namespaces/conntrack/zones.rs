// SPDX-License-Identifier: Apache-2.0
//! Zones: networks whose addresses overlap.

use super::{conns, firewall, host, pair};
use crate::tools::Stream;

/// Two pairs of hosts with the same addresses and ports, each in a zone of its own.
#[test]
fn networks_with_the_same_addresses_are_apart() {
    let Some((switch, a, b)) = pair() else { return };
    let (c, d) = (host(&switch, "h3", "10.1.1.1/24"), host(&switch, "h4", "10.1.1.2/24"));
    let one = firewall("tcp", "zone=1", "zone=1");
    let two = one.replace("zone=1", "zone=2").replace("h1", "h3").replace("h2", "h4");
    let arp = "table=0,priority=20,arp,in_port=h1,actions=h2
         table=0,priority=20,arp,in_port=h2,actions=h1
         table=0,priority=20,arp,in_port=h3,actions=h4
         table=0,priority=20,arp,in_port=h4,actions=h3";
    // Which zone a packet is looked up in depends on its port.
    let ports = "table=0,priority=6,in_port=h3,ip,actions=ct(zone=2,table=1)
         table=0,priority=6,in_port=h4,ip,actions=ct(zone=2,table=1)";
    let two: Vec<&str> = two.lines().filter(|l| l.contains("table=1,priority")).collect();
    let two = two.into_iter().filter(|l| l.contains("in_port=")).collect::<Vec<_>>().join("\n");
    switch.flows("br0", &[arp, ports, &one, &two].join("\n"));
    let mut first = Stream::from_port(&a, &b, 5000, "10.1.1.2:7000");
    let mut second = Stream::from_port(&c, &d, 5000, "10.1.1.2:7000");
    first.write(200_000);
    second.write(300_000);
    let tuple = "orig=(src=10.1.1.1,dst=10.1.1.2,sport=5000,dport=7000)";
    assert_eq!(conns(&switch, &[tuple, ",zone=1,", "ESTABLISHED"]).len(), 1);
    assert_eq!(conns(&switch, &[tuple, ",zone=2,", "ESTABLISHED"]).len(), 1);
    let of_zone = switch.appctl("dpctl/dump-conntrack zone=2");
    assert!(of_zone.contains(",zone=2,") && !of_zone.contains(",zone=1,"), "{of_zone}");
    switch.appctl("dpctl/flush-conntrack zone=1");
    assert_eq!(conns(&switch, &[",zone=1,"]).len(), 0);
    assert_eq!(conns(&switch, &[",zone=2,"]).len(), 1);
    assert_eq!((first.finish(), second.finish()), (200_000, 300_000));
}

/// A packet passes two zones, the second of which is named by a register.
#[test]
fn a_packet_passes_two_zones() {
    let Some((switch, a, b)) = pair() else { return };
    switch.flows(
        "br0",
        "table=0,priority=10,arp,actions=NORMAL
         table=0,priority=5,ip,actions=ct(zone=1,table=1)
         table=1,ip,ct_state=+trk-inv,ct_zone=1,actions=set_field:7->reg0,ct(zone=NXM_NX_REG0[0..15],table=2)
         table=2,priority=9,in_port=h1,ip,ct_state=+trk+new,ct_zone=7,actions=ct(commit,zone=1),ct(commit,zone=NXM_NX_REG0[0..15]),h2
         table=2,priority=9,in_port=h1,ip,ct_state=+trk+est,ct_zone=7,actions=h2
         table=2,priority=9,in_port=h2,ip,ct_state=+trk+est+rpl,ct_zone=7,actions=h1",
    );
    let mut stream = Stream::new(&a, &b, "10.1.1.2:7000", "10.1.1.2:7000");
    stream.write(200_000);
    for zone in [",zone=1,", ",zone=7,"] {
        assert_eq!(conns(&switch, &["tcp,", zone, "ESTABLISHED"]).len(), 1, "{zone}");
    }
    assert_eq!(stream.finish(), 200_000);
}

/// A zone's limit: connections over it are not made, and their packets still pass as new ones.
#[test]
fn a_zone_has_a_limit() {
    let Some((switch, a, b)) = pair() else { return };
    switch.flows("br0", &firewall("udp", "zone=1", "zone=1"));
    switch.appctl("dpctl/ct-set-limits zone=1,limit=3");
    let target = b.netns.with(|| std::net::UdpSocket::bind("10.1.1.2:9").expect("its address"));
    target.set_read_timeout(Some(crate::tools::SOON)).expect("not zero");
    let sockets: Vec<std::net::UdpSocket> = (0..6)
        .map(|_| a.netns.with(|| std::net::UdpSocket::bind("0.0.0.0:0").expect("a socket")))
        .collect();
    for socket in &sockets {
        socket.send_to(b"x", "10.1.1.2:9").expect("there is room");
        target.recv(&mut [0; 8]).expect("each arrives");
    }
    assert_eq!(conns(&switch, &["udp,", "dport=9"]).len(), 3);
    let limits = switch.appctl("dpctl/ct-get-limits zone=1");
    assert_eq!(limits, "default limit=0\nzone=1,limit=3,count=3\n");
}
