// SPDX-License-Identifier: Apache-2.0
//! Outputs to bonds.

use crate::behaviour::World;
use crate::behaviour::frames::{ipv4, udp};
use crate::behaviour::on;
use datapath::{BondTable, Bonds, DropReason, PortNo};
use flow::extract::key_of;

const BASIS: u32 = 7;
const A: PortNo = PortNo(2);
const B: PortNo = PortNo(3);
/// The bond of `A` and `B`.
const BOND: u32 = A.0;

fn bonds(w: &World) -> &dyn Bonds {
    w.dp().bonds().expect("these datapaths have bonds")
}

fn set(w: &World, of: impl Fn(u8) -> Option<PortNo>) {
    bonds(w).set(BOND, &BondTable::new(BASIS, [A, B], of)).expect("room");
}

fn in_turn(bucket: u8) -> Option<PortNo> {
    Some(if bucket.is_multiple_of(2) { A } else { B })
}

fn bucket_of(frame: &[u8]) -> u8 {
    BondTable::bucket(BASIS, &key_of(frame, 0))
}

/// Frames with many hashes, some of which BPF parses by its slower way.
fn many() -> Vec<Vec<u8>> {
    let udp = (0..24).map(|n| ipv4().udp(1000 + n, 53).payload(&[7; 40]).finish());
    let tcp = (0..24).map(|n| ipv4().tcp(1000 + n, 80, 0x10).payload(&[7; 80]).finish());
    let tagged = (0..8).map(|n| {
        let mut frame = ipv4().udp(2000 + n, 53).payload(&[7; 40]).finish();
        frame.splice(12..12, [0x81, 0, 0, 5]);
        frame
    });
    let not_ip = (0..8).map(|n| {
        let mut frame = vec![0x50 + n; 60];
        frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, n, 0x88, 0xb5]);
        frame
    });
    udp.chain(tcp).chain(tagged).chain(not_ip).collect()
}

/// Sends frames, and returns those that are expected at `A`, at `B` and at neither.
fn expected(
    frames: &[Vec<u8>],
    of: impl Fn(u8) -> Option<PortNo>,
    edit: impl Fn(&[u8]) -> Vec<u8>,
) -> [Vec<Vec<u8>>; 3] {
    let at = |wanted: Option<PortNo>| {
        let edited = frames.iter().map(|frame| edit(frame));
        edited.filter(|frame| of(bucket_of(frame)) == wanted).collect()
    };
    [at(Some(A)), at(Some(B)), at(None)]
}

pub fn a_bond_spreads_packets_of_one_megaflow(w: &World) {
    set(w, in_turn);
    w.install(1, on(1), "lb_output(2)");
    // More than once: the caches of a datapath have the megaflow then.
    for round in 1..=3u64 {
        let frames = many();
        frames.iter().for_each(|frame| w.inject(1, frame));
        let [a, b, _] = expected(&frames, in_turn, <[u8]>::to_vec);
        assert!(a.len() > 8 && b.len() > 8, "both members send");
        assert_eq!((w.out(2), w.out(3)), (a, b));
        let bytes = bonds(w).bytes(BOND).expect("it is there");
        for bucket in 0..=u8::MAX {
            let sent = frames.iter().filter(|frame| bucket_of(frame) == bucket);
            let sum: usize = sent.map(Vec::len).sum();
            assert_eq!(bytes[usize::from(bucket)], round * sum as u64, "bucket {bucket}");
        }
    }
    assert_eq!(w.stats(1).packets, 3 * many().len() as u64);
    assert!(w.upcalls().is_empty());
}

pub fn a_bucket_moves_at_once(w: &World) {
    set(w, |_| Some(A));
    w.install(1, on(1), "lb_output(2)");
    let one = udp(40);
    let other = many().into_iter().find(|frame| bucket_of(frame) != bucket_of(&one)).expect("one");
    let send = || [&one, &other].map(|frame| w.inject(1, frame));
    send();
    assert_eq!((w.out(2).len(), w.out(3).len()), (2, 0));
    set(w, |bucket| Some(if bucket == bucket_of(&one) { B } else { A }));
    send();
    assert_eq!((w.out(2), w.out(3)), (vec![other.clone()], vec![one.clone()]));
    // No member has the bucket.
    set(w, |bucket| (bucket != bucket_of(&one)).then_some(B));
    send();
    assert_eq!((w.out(2), w.out(3)), (vec![], vec![other.clone()]));
    assert_eq!(w.drops(DropReason::InvalidBond), 1);
    assert_eq!(w.stats(1).packets, 6, "the megaflow stays, and counts all of them");
    let table = bonds(w).table(BOND).expect("it is there");
    assert_eq!(table.member(bucket_of(&other)), Some(B));
    bonds(w).remove(BOND);
    assert_eq!((bonds(w).ids(), bonds(w).table(BOND), bonds(w).bytes(BOND)), (vec![], None, None));
    send();
    assert_eq!((w.out(2), w.out(3)), (vec![], vec![]));
    assert_eq!(w.drops(DropReason::InvalidBond), 3);
}

pub fn a_bond_sends_packets_as_they_are_by_then(w: &World) {
    set(w, in_turn);
    w.install(1, on(1), "set(ipv4(dst=10.9.9.9)),push_vlan(vid=5,pcp=0),lb_output(2)");
    let frames: Vec<Vec<u8>> = many().into_iter().take(48).collect();
    w.install(2, on(4), "set(ipv4(dst=10.9.9.9)),push_vlan(vid=5,pcp=0),2");
    let edited = |frame: &[u8]| {
        w.inject(4, frame);
        w.out(2).remove(0)
    };
    let [a, b, _] = expected(&frames, in_turn, edited);
    assert!(!a.is_empty() && !b.is_empty());
    frames.iter().for_each(|frame| w.inject(1, frame));
    assert_eq!((w.out(2), w.out(3)), (a, b));
}

/// Later actions have a packet of their own.
pub fn a_bond_gets_copies(w: &World) {
    set(w, in_turn);
    w.install(1, on(1), "lb_output(2),4,push_vlan(vid=5,pcp=0),lb_output(2)");
    let frames: Vec<Vec<u8>> = many().into_iter().take(12).collect();
    for frame in &frames {
        w.inject(1, frame);
        let out = if in_turn(bucket_of(frame)) == Some(A) { 2 } else { 3 };
        let sent = w.out(out);
        assert_eq!((sent.len(), &sent[0], &sent[1][..16]), (2, frame, &tagged(frame)[..16]));
        assert_eq!(w.out(4), std::slice::from_ref(frame));
        assert_eq!(w.out(5 - out).len(), 0);
    }
}

fn tagged(frame: &[u8]) -> Vec<u8> {
    let mut tagged = frame.to_vec();
    tagged.splice(12..12, [0x81, 0, 0, 5]);
    tagged
}
