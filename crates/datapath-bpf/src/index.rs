// SPDX-License-Identifier: Apache-2.0
//! The index: hash of a flow under its mask to its slot, in buckets of eight with two choices.
//!
//! A program that searches for a hash looks at one entry with that hash in each of the two
//! buckets. So of flows whose hashes are equal, one may be in each bucket, and a third is
//! refused. (Among 2^18 flows about eight pairs are equal.)

use std::sync::atomic::{AtomicU64, Ordering};

use crate::hash;
use crate::layout::{BUCKET, Bucket};
use crate::shared::Shared;

/// Position of an entry: bucket times eight plus place.
pub(crate) type Position = u32;

/// Returns the first positions of the two buckets of `hash`. The second is `None` when both buckets
/// are one.
fn starts(index: &Shared<Bucket>, hash: u32) -> [Option<Position>; 2] {
    let mask = index.len() as u32 - 1; // a power of two
    let [first, second] = hash::buckets(hash, mask);
    let start = |bucket| bucket * BUCKET as u32;
    [Some(start(first)), (second != first).then_some(start(second))]
}

fn entries(index: &Shared<Bucket>, start: Position) -> &[AtomicU64] {
    &index.all_words()[start as usize..][..BUCKET]
}

/// Returns the entry at a position.
pub(crate) fn entry_at(index: &Shared<Bucket>, position: Position) -> u64 {
    index.all_words()[position as usize].load(Ordering::Relaxed)
}

/// Returns the slots whose entries have this hash.
pub(crate) fn slots_with(index: &Shared<Bucket>, hash: u32) -> impl Iterator<Item = u32> + '_ {
    let all = starts(index, hash).into_iter().flatten();
    all.flat_map(|start| entries(index, start))
        .map(|entry| entry.load(Ordering::Relaxed))
        .filter(move |entry| (*entry >> 32) as u32 == hash)
        .filter_map(hash::slot_of)
}

/// Returns a free position for `hash`, in the emptier of its buckets that have no such hash yet.
/// `None`: there is no room.
pub(crate) fn find_room(index: &Shared<Bucket>, hash: u32) -> Option<Position> {
    let rooms = starts(index, hash).into_iter().flatten();
    rooms.filter_map(|start| room_in(index, start, hash)).min_by_key(|(used, _)| *used).map(|r| r.1)
}

/// Returns the number of entries in a bucket, and a free position. `None`: the bucket is full, or
/// has that hash.
fn room_in(index: &Shared<Bucket>, start: Position, hash: u32) -> Option<(u32, Position)> {
    let (mut used, mut free) = (0, None);
    for (position, entry) in (start..).zip(entries(index, start)) {
        let entry = entry.load(Ordering::Relaxed);
        match hash::slot_of(entry) {
            None => free = free.or(Some(position)),
            Some(_) if (entry >> 32) as u32 == hash => return None,
            Some(_) => used += 1,
        }
    }
    Some((used, free?))
}

/// Publishes an entry: a reader of the entry sees everything that was stored before.
pub(crate) fn publish(index: &Shared<Bucket>, position: Position, hash: u32, slot: u32) {
    index.all_words()[position as usize].store(hash::entry(hash, slot), Ordering::Release);
}

/// Removes the entry at a position.
pub(crate) fn take(index: &Shared<Bucket>, position: Position) {
    index.all_words()[position as usize].store(0, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_hashes_go_to_different_buckets_and_a_third_is_refused() {
        let index: Shared<Bucket> = Shared::private(256);
        let hash = 0x1234_5678;
        let first = find_room(&index, hash).unwrap();
        publish(&index, first, hash, 1);
        let second = find_room(&index, hash).unwrap();
        assert_ne!(first / 8, second / 8);
        publish(&index, second, hash, 2);
        assert_eq!(find_room(&index, hash), None);
        assert_eq!(slots_with(&index, hash).collect::<Vec<_>>().len(), 2);
        take(&index, first);
        assert_eq!(find_room(&index, hash), Some(first));
    }

    #[test]
    fn half_full_always_has_room() {
        let index: Shared<Bucket> = Shared::private(4096);
        let mut rng = fastrand::Rng::with_seed(7);
        for slot in 0..4096 * 4 {
            let hash = rng.u32(..);
            let room = find_room(&index, hash).unwrap();
            assert_eq!(entry_at(&index, room), 0);
            publish(&index, room, hash, slot);
            assert!(slots_with(&index, hash).any(|s| s == slot));
        }
    }
}
