// SPDX-License-Identifier: Apache-2.0
//! The miss queue, over a real device.

use super::fakes::Bench;
use crate::miss::{self, MissQueue, RING};
use crate::placed::PlacedDatapath;
use datapath_userspace::MissSource;
use netdev::{Kind, OpenSpec, PacketPool};
use packet::Packet;
use std::sync::Weak;
use testing::in_namespace;

#[test]
fn packets_without_room_in_the_device_are_counted_once() {
    in_namespace(|| {
        let b = Bench::new();
        let tap = miss::open().expect("the kernel has taps");
        let sender = netdev::open(&OpenSpec::new(tap.name(), Kind::System)).expect("it is there");
        let sender = sender.sender;
        let (_, provider) = b.placed.slots.present().next().expect("the fake one");
        let listener = Weak::<PlacedDatapath>::new();
        let mut queue = MissQueue::new(tap, provider.clone(), listener, 1);
        let frame = Packet::from_slice(&[2; 60]);
        let more = 96;
        for _ in 0..(RING + more) / 32 {
            assert_eq!(sender.send(&vec![frame.clone(); 32]).sent, 32);
        }
        b.fast.take_log();
        let (mut out, mut pool) = (Vec::new(), PacketPool::default());
        for _ in 0..RING / 32 + 2 {
            assert_eq!(queue.recv(&mut out, &mut pool, 32).expect("it is there"), 0);
        }
        let log = b.fast.take_log();
        assert_eq!(log, [format!("resync_taken {more}"), "resync_taken 0".to_owned()]);
    });
}
