// SPDX-License-Identifier: Apache-2.0
//! Ports that are taps, from either side: the host's own stack, and a program that holds a tap's
//! descriptor as a virtual machine's monitor does.

use crate::tools::{SOON, sees, switch, tcp, tcp_to, warm};
use netdev::{Kind, OpenSpec, PacketPool};
use packet::Packet;
use packet::build::Frame;
use slipswitch_tests::harness::wait_until;
use std::time::{Duration, Instant};

/// EtherType that nobody else on the link uses (IEEE 802, local experimental).
const EXPERIMENT: u16 = 0x88b5;
const PROGRAM: [u8; 6] = [0x02, 0, 0, 0, 0, 0x77];

#[test]
fn a_tap_port_joins_the_hosts_stack_to_the_bridge() {
    let Some(switch) = switch() else { return };
    let a = switch.host_on("br0", "h1", "10.0.0.1/24");
    switch.vsctl("add-port br0 tap0 -- set interface tap0 type=tap");
    assert_eq!(switch.vsctl("get interface tap0 error"), "[]\n");
    switch.netns().sh("ip addr add 10.0.0.9/24 dev tap0; ip link set tap0 up");
    assert!(a.reaches("10.0.0.9", SOON), "{}", switch.story());
    assert_eq!(a.ping("10.0.0.9", 20), 20);
    // Segmentation packets and unfinished checksums pass in both directions.
    tcp_to(&a.netns, switch.netns(), "10.0.0.9", 5_000_000);
    tcp_to(switch.netns(), &a.netns, "10.0.0.1", 5_000_000);
    switch.vsctl("del-port br0 tap0");
    assert!(
        !switch.netns().run("ip link show tap0").ok(),
        "the switch made it, so it goes with its port"
    );
}

/// A bridge of the kernel as a port: what it passes to the host meets the switch.
#[test]
fn a_bridge_of_the_kernel_may_be_a_port() {
    let Some(switch) = switch() else { return };
    let a = switch.host_on("br0", "h1", "10.0.0.1/24");
    let c = switch.host("c1", "10.0.0.3/24");
    switch
        .netns()
        .sh("ip link add lb type bridge && ip link set c1 master lb && ip link set lb up");
    switch.vsctl("add-port br0 lb");
    assert_eq!(switch.vsctl("get interface lb error"), "[]\n");
    warm(&c, "10.0.0.1");
    for port in ["h1", "lb"] {
        sees(&switch, &[&format!("in_port({port})"), "eth_type(0x0800)", "offloaded:yes, dp:tcx"]);
    }
    assert_eq!(a.ping("10.0.0.3", 20), 20);
    tcp(&a, &c, 5_000_000);
    tcp(&c, &a, 5_000_000);
    let tiers = switch.appctl("slipswitch/tiers lb");
    assert!(tiers.contains("tcx        yes"), "{tiers}");
    assert!(tiers.contains("xdp        no   device-kind"), "{tiers}");
    assert_eq!(switch.warnings(), Vec::<String>::new());
}

#[test]
fn a_persistent_tap_outlives_its_port() {
    let Some(switch) = switch() else { return };
    let a = switch.host_on("br0", "h1", "10.0.0.1/24");
    switch.netns().sh(
        "ip tuntap add dev keep mode tap; ip addr add 10.0.0.9/24 dev keep; ip link set keep up",
    );
    for _ in 0..2 {
        switch.vsctl("add-port br0 keep -- set interface keep type=tap");
        assert_eq!(switch.vsctl("get interface keep error"), "[]\n");
        assert!(a.reaches("10.0.0.9", SOON), "{}", switch.story());
        switch.vsctl("del-port br0 keep");
        switch.netns().sh("ip link show keep");
    }
}

#[test]
fn a_program_behind_a_tap_exchanges_frames_with_a_host() {
    let Some(switch) = switch() else { return };
    let a = switch.host_on("br0", "h1", "10.0.0.1/24");
    // The program makes the tap and holds it; the switch takes the interface as any other.
    let mut program = switch.netns().with(|| {
        let opened = netdev::open(&OpenSpec::new("vm0", Kind::Tap)).expect("root may make taps");
        opened.device.set_admin_up(true).expect("it is there");
        opened
    });
    switch.vsctl("add-port br0 vm0");
    assert_eq!(switch.vsctl("get interface vm0 error"), "[]\n");

    let sizes = [46, 100, 1000, 1500];
    let payload = |size: usize| (0..size).map(|i| i as u8).collect::<Vec<u8>>();
    let frame = |dst, src, size| {
        Frame::ethernet(dst, src).ethertype(EXPERIMENT).payload(&payload(size)).finish()
    };

    // From the program to the host: what was written into the tap.
    let capture = a.capture(switch.sandbox(), "eth0", &format!("ether proto {EXPERIMENT}"));
    let sent: Vec<Vec<u8>> = sizes.iter().map(|s| frame([0xff; 6], PROGRAM, *s)).collect();
    let packets: Vec<Packet> = sent.iter().map(|f| Packet::from_slice(f)).collect();
    let report = program.sender.send(&packets);
    assert_eq!(report.dropped(), 0, "{report:?}");
    assert_eq!(capture.finish(sent.len(), SOON), sent);

    // And back: the bridge has learned where the program is.
    let back: Vec<Vec<u8>> =
        sizes.iter().map(|s| frame(PROGRAM, [0x02, 0, 0, 0, 0, 0x0a], *s)).collect();
    let outgoing: Vec<Packet> = back.iter().map(|f| Packet::from_slice(f)).collect();
    a.netns.with(move || {
        let host = netdev::open(&OpenSpec::new("eth0", Kind::System)).expect("the host's device");
        let report = host.sender.send(&outgoing);
        assert_eq!(report.dropped(), 0, "{report:?}");
    });
    let mut pool = PacketPool::default();
    let mut got: Vec<Vec<u8>> = Vec::new();
    let end = Instant::now() + SOON;
    while got.len() < back.len() && Instant::now() < end {
        let mut packets = Vec::new();
        for queue in &mut program.queues {
            queue.recv(&mut packets, &mut pool, 64).expect("the tap is there");
        }
        // The host's stack talks on the link by itself.
        got.extend(
            packets
                .iter()
                .map(|p| p.data().to_vec())
                .filter(|f| f.get(12..14) == Some(&EXPERIMENT.to_be_bytes())),
        );
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(got, back, "{}", switch.story());

    // The program ends, and its tap with it.
    drop(program);
    let seen = wait_until(SOON, || switch.vsctl("get interface vm0 ofport") == "-1\n");
    assert!(seen, "{}", switch.vsctl("list interface vm0"));
}
