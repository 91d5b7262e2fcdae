// SPDX-License-Identifier: Apache-2.0
//! The miss queue, over a real device.

use super::fakes::Bench;
use crate::miss::{self, MissQueue, RING};
use crate::placed::PlacedDatapath;
use datapath_userspace::MissSource;
use netdev::{Kind, OpenSpec, PacketPool, Sender};
use packet::Packet;
use std::sync::{Arc, Weak};
use testing::in_namespace;

/// A queue for the fake provider, and the sending side of its device.
fn queue(b: &Bench) -> (MissQueue, Arc<dyn Sender>) {
    let tap = miss::open().expect("the kernel has taps");
    let opened = netdev::open(&OpenSpec::new(tap.name(), Kind::System)).expect("it is there");
    let (_, provider) = b.placed.slots.present().next().expect("the fake one");
    let listener = Weak::<PlacedDatapath>::new();
    (MissQueue::new(tap, provider.clone(), listener, 1), opened.sender)
}

#[test]
fn packets_without_room_in_the_device_are_counted_once() {
    in_namespace(|| {
        let b = Bench::new();
        let (mut queue, sender) = queue(&b);
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

/// The socket's queue has no room for this many long packets. The places of the others in the ring
/// hold only their beginnings.
#[test]
fn cut_packets_do_not_count_as_the_end_of_the_queue() {
    in_namespace(|| {
        let b = Bench::new();
        let (mut queue, sender) = queue(&b);
        let frame = Packet::from_slice(&[2; 60_000]);
        let batches = 64;
        for _ in 0..batches {
            assert_eq!(sender.send(&vec![frame.clone(); 32]).sent, 32);
        }
        b.fast.take_log();
        let (mut out, mut pool) = (Vec::new(), PacketPool::default());
        for _ in 0..batches {
            queue.recv(&mut out, &mut pool, 32).expect("it is there");
            assert_eq!(b.fast.take_log(), [""; 0], "the ring has more packets");
        }
        queue.recv(&mut out, &mut pool, 32).expect("it is there");
        let log = b.fast.take_log();
        let [text] = &log[..] else { panic!("{log:?}") };
        let lost: u64 = text.strip_prefix("resync_taken ").expect("a number").parse().expect("one");
        assert!((1..batches * 32).contains(&lost), "some found room, and some did not: {lost}");
    });
}
