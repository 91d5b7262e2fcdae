//! One port that floods the switch with flows it has never seen, and its neighbours.

use crate::tools::{SOON, pair};
use fastrand::Rng;
use netdev::{Kind, OpenSpec};
use packet::Packet;
use packet::build::Frame;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A UDP packet of a flow that was not there before, nearly surely.
fn stranger(random: &mut Rng) -> Packet {
    let (source, target) = (Ipv4Addr::from(random.u32(..)), Ipv4Addr::from(random.u32(..)));
    let frame = Frame::ethernet([0x02, 0, 0, 0, 0, 0x98], [0x02, 0, 0, 0, 0, 0x99])
        .ipv4(source, target, 64)
        .udp(random.u16(..), random.u16(..))
        .payload(&[0; 18])
        .finish();
    Packet::from_slice(&frame)
}

#[test]
fn two_ports_keep_pinging_while_a_third_floods_random_flows() {
    let Some((switch, a, b)) = pair() else { return };
    let c = switch.host_on("br0", "h3", "10.0.0.3/24");
    // Every packet of the flood is a flow of its own: its bucket hangs on all five of the tuple.
    switch.flows(
        "br0",
        "priority=10,udp,in_port=h3,actions=multipath(symmetric_l4,1,hrw,16,0,NXM_NX_REG0[])
         priority=1,actions=NORMAL",
    );
    assert!(a.reaches("10.0.0.2", SOON));
    let stop = Arc::new(AtomicBool::new(false));
    let flood = c.netns.spawn({
        let stop = Arc::clone(&stop);
        move || {
            let device =
                netdev::open(&OpenSpec::new("eth0", Kind::System)).expect("the host's device");
            let mut random = Rng::with_seed(7);
            let mut sent = 0;
            let end = Instant::now() + Duration::from_secs(60);
            while !stop.load(Ordering::Relaxed) && Instant::now() < end {
                let batch: Vec<Packet> = (0..32).map(|_| stranger(&mut random)).collect();
                sent += device.sender.send(&batch).sent;
                // Far more than can be set up, without taking the machine from all others.
                std::thread::sleep(Duration::from_micros(500));
            }
            sent
        }
    });
    std::thread::sleep(Duration::from_millis(500));
    let (there, back) = std::thread::scope(|scope| {
        let there = scope.spawn(|| a.ping("10.0.0.2", 150));
        let back = scope.spawn(|| b.ping("10.0.0.1", 150));
        // Now and then the two need flows of their own anew, and get their turn.
        for _ in 0..4 {
            std::thread::sleep(Duration::from_millis(500));
            switch.appctl("revalidator/purge");
        }
        (there.join().expect("ping runs"), back.join().expect("ping runs"))
    });
    let flows = switch.appctl("upcall/show");
    stop.store(true, Ordering::Relaxed);
    let sent = flood.join().expect("the flood runs");
    assert!(sent > 5_000, "only {sent} packets of the flood");
    assert!(
        there >= 145 && back >= 145,
        "{there} and {back} of 150 answered beside {sent} packets:\n{flows}"
    );
    // And it gets over it.
    assert_eq!(a.ping("10.0.0.2", 20), 20);
    assert!(switch.ofctl("dump-flows br0").contains("multipath"), "{}", switch.story());
}
