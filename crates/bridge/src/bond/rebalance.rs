// SPDX-License-Identifier: Apache-2.0
//! Balancing: which buckets move from loaded members to idle ones.
//!
//! The rules are Open vSwitch's. Buckets move from the member with the highest load to the one with
//! the lowest, until the loads differ by less than about 3 %, or by less than 100,000 bytes. A move
//! must bring the lower of two loads nearer to their mean by a tenth of the way.

use openflow::PortNo;

/// Least difference between two members' bytes that is balanced.
const LEAST_OVERLOAD: u64 = 100_000;

/// Difference that is tolerated, as a part of the lower load.
const TOLERATED_PART: u64 = 32;

/// Least improvement, as a part of the way to the mean of two loads.
const LEAST_GAIN_PART: u64 = 10;

/// A bucket with its member and its load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Load {
    pub bucket: u8,
    pub member: PortNo,
    pub bytes: u64,
}

/// A bucket that moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shift {
    pub bucket: u8,
    pub bytes: u64,
    pub from: PortNo,
    pub to: PortNo,
}

struct Carrier {
    member: PortNo,
    bytes: u64,
    /// Buckets that may still move, the highest load first.
    buckets: Vec<Load>,
}

/// Returns the buckets to move between the enabled members. Each bucket moves at most once.
pub(super) fn plan(loads: &[Load], enabled: &[PortNo]) -> Vec<Shift> {
    let mut carriers: Vec<Carrier> = enabled
        .iter()
        .map(|member| {
            let mut buckets: Vec<Load> =
                loads.iter().filter(|load| load.member == *member).copied().collect();
            buckets.sort_by_key(|load| std::cmp::Reverse(load.bytes));
            let bytes = buckets.iter().map(|load| load.bytes).sum();
            Carrier { member: *member, bytes, buckets }
        })
        .collect();
    let mut shifts = Vec::new();
    while carriers.len() > 1 {
        carriers.sort_by_key(|carrier| std::cmp::Reverse(carrier.bytes));
        let (Some(from), Some(to)) = (carriers.first(), carriers.last()) else { break };
        let overload = from.bytes - to.bytes;
        if overload < to.bytes / TOLERATED_PART || overload < LEAST_OVERLOAD {
            break;
        }
        let moving = choose(from, to.bytes);
        if moving.is_empty() {
            carriers.remove(0);
            continue;
        }
        let (from, to) = (from.member, to.member);
        let bytes: u64 = moving.iter().map(|load| load.bytes).sum();
        if let Some(carrier) = carriers.first_mut() {
            carrier.bytes -= bytes;
            carrier.buckets.retain(|load| !moving.contains(load));
        }
        if let Some(carrier) = carriers.last_mut() {
            carrier.bytes += bytes;
        }
        let shift = |load: Load| Shift { bucket: load.bucket, bytes: load.bytes, from, to };
        shifts.extend(moving.into_iter().map(shift));
    }
    shifts
}

/// Returns the buckets that go from `from` to a member with `to` bytes; none when no move is worth
/// it.
fn choose(from: &Carrier, to: u64) -> Vec<Load> {
    if from.buckets.len() < 2 {
        return Vec::new(); // the load would only change its place
    }
    let wanted = (from.bytes + to) / 2 - to;
    let least = wanted / LEAST_GAIN_PART;
    let mut moving = Vec::new();
    let mut bytes = 0;
    for load in &from.buckets {
        if bytes + load.bytes <= wanted {
            moving.push(*load);
            bytes += load.bytes;
        }
        if wanted - bytes < least {
            break;
        }
    }
    if let (true, Some(lightest)) = (moving.is_empty(), from.buckets.last()) {
        moving.push(*lightest);
        bytes = lightest.bytes;
    }
    let lower = (from.bytes - bytes).min(to + bytes);
    if lower > to && lower - to >= least { moving } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: PortNo = PortNo(1);
    const B: PortNo = PortNo(2);
    const C: PortNo = PortNo(3);

    fn loads(of: &[(u8, PortNo, u64)]) -> Vec<Load> {
        of.iter()
            .map(|(bucket, member, bytes)| Load { bucket: *bucket, member: *member, bytes: *bytes })
            .collect()
    }

    fn moved(of: &[(u8, PortNo, u64)], enabled: &[PortNo]) -> Vec<(u8, PortNo)> {
        plan(&loads(of), enabled).iter().map(|s| (s.bucket, s.to)).collect()
    }

    #[test]
    fn half_of_the_difference_moves() {
        let four = [(1, A, 1_000_000), (2, A, 1_000_000), (3, A, 1_000_000), (4, A, 1_000_000)];
        assert_eq!(moved(&four, &[A, B]), [(1, B), (2, B)]);
    }

    #[test]
    fn light_loads_and_single_buckets_stay() {
        assert_eq!(moved(&[(1, A, 50_000), (2, A, 49_999)], &[A, B]), []);
        assert_eq!(moved(&[(1, A, 9_000_000)], &[A, B]), []);
        let balanced = [(1, A, 4_000_000), (2, A, 100_000), (3, B, 4_000_000)];
        assert_eq!(moved(&balanced, &[A, B]), [], "less than 3 %");
        assert_eq!(moved(&[(1, A, 9_000_000), (2, A, 9_000_000)], &[A]), []);
    }

    #[test]
    fn a_heavy_bucket_stays_and_light_ones_move() {
        let mixed = [(1, A, 10_000_000), (2, A, 1_000_000), (3, A, 500_000)];
        assert_eq!(moved(&mixed, &[A, B]), [(2, B), (3, B)]);
    }

    #[test]
    fn a_member_without_a_useful_move_is_passed_over() {
        let of = [(1, A, 9_000_000), (2, B, 1_000_000), (3, B, 1_000_000)];
        assert_eq!(moved(&of, &[A, B, C]), [(2, C)]);
    }

    #[test]
    fn moves_never_make_the_highest_load_higher() {
        let mut seed = 1u64;
        let mut random = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            seed >> 33
        };
        for _ in 0..200 {
            let all: Vec<(u8, PortNo, u64)> = (0..40u8)
                .map(|bucket| (bucket, PortNo(1 + (random() % 3) as u32), random() % 10_000_000))
                .collect();
            let sums = |all: &[(u8, PortNo, u64)]| {
                [A, B, C].map(|m| all.iter().filter(|l| l.1 == m).map(|l| l.2).sum::<u64>())
            };
            let before = sums(&all);
            let mut after = all.clone();
            let shifts = plan(&loads(&all), &[A, B, C]);
            for shift in &shifts {
                after[usize::from(shift.bucket)].1 = shift.to;
            }
            let after = sums(&after);
            let (high, low) = (after.iter().max(), after.iter().min());
            assert!(high <= before.iter().max() && low >= before.iter().min(), "{shifts:?}");
            let mut buckets: Vec<u8> = shifts.iter().map(|s| s.bucket).collect();
            buckets.sort_unstable();
            buckets.dedup();
            assert_eq!(buckets.len(), shifts.len(), "a bucket moves once");
        }
    }
}
