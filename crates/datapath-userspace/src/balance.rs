// SPDX-License-Identifier: Apache-2.0
//! Plans which packet thread serves which receive queue, and how many threads there are.

use crate::config::RxqAssign;

/// A thread with this load, and with two busy queues, gets help from a new one.
const BUSY: f64 = 0.8;
/// The load from which a queue is worth a thread.
const WORTH_A_THREAD: f64 = 0.1;
/// The load of a thread that is left when another one ends, at most.
const ROOM: f64 = 0.5;

/// A receive queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    /// The share of a thread's time that it takes.
    pub(crate) load: f64,
    /// The index of the only thread that may serve it.
    pub(crate) pinned: Option<usize>,
}

/// Returns for each queue the index of the thread that serves it. `threads` is not 0. With
/// `isolate`, threads with pinned queues serve no others, unless all threads have pinned queues.
pub(crate) fn plan(
    queues: &[Candidate],
    threads: usize,
    assign: RxqAssign,
    isolate: bool,
) -> Vec<usize> {
    let mut loads = vec![0.0; threads];
    let mut counts = vec![0usize; threads];
    let mut result = vec![0; queues.len()];
    for (at, queue) in queues.iter().enumerate() {
        let Some(thread) = queue.pinned.filter(|thread| *thread < threads) else { continue };
        put(&mut result, at, thread);
        add(&mut loads, &mut counts, thread, queue.load);
    }
    let has_pinned = counts.clone();
    let free = |thread: &usize| !isolate || has_pinned.get(*thread) == Some(&0);
    let mut open: Vec<usize> = (0..threads).filter(free).collect();
    if open.is_empty() {
        open = (0..threads).collect();
    }
    let mut rest: Vec<usize> = (0..queues.len())
        .filter(|at| queues.get(*at).is_some_and(|q| q.pinned.is_none_or(|t| t >= threads)))
        .collect();
    let load = |at: usize| queues.get(at).map_or(0.0, |q| q.load);
    if assign != RxqAssign::RoundRobin {
        rest.sort_by(|a, b| load(*b).total_cmp(&load(*a)));
    }
    for (turn, at) in rest.into_iter().enumerate() {
        let (round, place) = (turn / open.len(), turn % open.len());
        let place = match assign {
            // Up and down again, so that the threads that come first do not get the most each time.
            RxqAssign::Cycles if round % 2 == 1 => open.len() - 1 - place,
            RxqAssign::Cycles | RxqAssign::RoundRobin => place,
            RxqAssign::Group => least(&open, &loads, &counts),
        };
        let thread = open.get(place).copied().unwrap_or(0);
        put(&mut result, at, thread);
        add(&mut loads, &mut counts, thread, load(at));
    }
    result
}

fn put(result: &mut [usize], at: usize, thread: usize) {
    if let Some(place) = result.get_mut(at) {
        *place = thread;
    }
}

fn add(loads: &mut [f64], counts: &mut [usize], thread: usize, load: f64) {
    if let (Some(sum), Some(count)) = (loads.get_mut(thread), counts.get_mut(thread)) {
        *sum += load;
        *count += 1;
    }
}

/// Returns the place in `open` of the thread with the least load, and with the fewest queues among those.
fn least(open: &[usize], loads: &[f64], counts: &[usize]) -> usize {
    let of = |thread: usize| {
        let load = loads.get(thread).copied().unwrap_or_default();
        (load, counts.get(thread).copied().unwrap_or_default())
    };
    let places = open.iter().enumerate();
    let place = places.min_by(|(_, a), (_, b)| {
        let ((load_a, count_a), (load_b, count_b)) = (of(**a), of(**b));
        load_a.total_cmp(&load_b).then(count_a.cmp(&count_b))
    });
    place.map_or(0, |(place, _)| place)
}

/// Returns the load of each thread when `plan` says which thread serves which queue.
pub(crate) fn loads(queues: &[Candidate], plan: &[usize], threads: usize) -> Vec<f64> {
    let mut loads = vec![0.0; threads];
    for (queue, thread) in queues.iter().zip(plan) {
        if let Some(load) = loads.get_mut(*thread) {
            *load += queue.load;
        }
    }
    loads
}

/// Returns the variance of loads.
pub(crate) fn variance(loads: &[f64]) -> f64 {
    let count = loads.len().max(1) as f64;
    let mean = loads.iter().sum::<f64>() / count;
    loads.iter().map(|load| (load - mean).powi(2)).sum::<f64>() / count
}

/// Returns how many threads there should be, of at most `most`: one more than now when one is busy and could give a
/// queue away; one fewer when the others have room for all. `recent` are the queues of each thread now, with
/// their loads in the last interval; `long` is the load of all in the last minute, `None` in the first minute.
pub(crate) fn wanted_threads(recent: &[Vec<f64>], long: Option<f64>, most: usize) -> usize {
    let now = recent.len();
    let needs_help = |loads: &Vec<f64>| {
        loads.iter().sum::<f64>() >= BUSY
            && loads.iter().filter(|load| **load >= WORTH_A_THREAD).count() >= 2
    };
    if now < most && recent.iter().any(needs_help) {
        return now + 1;
    }
    let has_room = |load: f64| load <= ROOM * (now - 1) as f64;
    let total: f64 = recent.iter().flatten().sum();
    match long {
        Some(long) if now > 1 && has_room(long) && has_room(total) => now - 1,
        _ => now,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn queues(loads: &[f64]) -> Vec<Candidate> {
        loads.iter().map(|load| Candidate { load: *load, pinned: None }).collect()
    }

    #[test]
    fn queues_go_up_and_down_the_threads() {
        let queues = queues(&[0.1, 0.4, 0.2, 0.3]);
        assert_eq!(plan(&queues, 2, RxqAssign::Cycles, true), [0, 0, 1, 1]);
        assert_eq!(plan(&queues, 2, RxqAssign::RoundRobin, true), [0, 1, 0, 1]);
    }

    #[test]
    fn a_group_is_levelled() {
        let queues = queues(&[0.9, 0.1, 0.2, 0.3, 0.2]);
        let plan = plan(&queues, 2, RxqAssign::Group, true);
        assert_eq!(plan, [0, 1, 1, 1, 1]);
        assert!(variance(&loads(&queues, &plan, 2)) < 0.01);
    }

    #[test]
    fn queues_without_load_are_spread() {
        assert_eq!(plan(&queues(&[0.0; 4]), 2, RxqAssign::Group, true), [0, 1, 0, 1]);
    }

    #[test]
    fn a_thread_with_a_pinned_queue_serves_no_other() {
        let mut queues = queues(&[0.1, 0.2, 0.3]);
        queues[1].pinned = Some(0);
        assert_eq!(plan(&queues, 2, RxqAssign::Cycles, true), [1, 0, 1]);
        assert_eq!(plan(&queues, 2, RxqAssign::RoundRobin, false), [0, 0, 1]);
        // All threads have pinned queues: the others have to be served nevertheless.
        assert_eq!(plan(&queues, 1, RxqAssign::Cycles, true), [0, 0, 0]);
        // A core without a thread pins nothing.
        queues[1].pinned = Some(7);
        assert_eq!(plan(&queues, 2, RxqAssign::RoundRobin, true), [0, 1, 0]);
    }

    #[test]
    fn threads_come_with_load_and_go_without() {
        let two_busy = [vec![0.6, 0.3, 0.0]];
        assert_eq!(wanted_threads(&two_busy, None, 4), 2);
        assert_eq!(wanted_threads(&two_busy, None, 1), 1);
        // A single queue cannot be divided.
        assert_eq!(wanted_threads(&[vec![1.0, 0.01]], None, 4), 1);
        let calm = [vec![0.2], vec![0.1]];
        assert_eq!(wanted_threads(&calm, None, 4), 2);
        assert_eq!(wanted_threads(&calm, Some(0.3), 4), 1);
        assert_eq!(wanted_threads(&calm, Some(0.8), 4), 2);
        assert_eq!(wanted_threads(&[vec![0.0]], Some(0.0), 4), 1);
        assert_eq!(wanted_threads(&[], Some(0.0), 4), 0);
    }

    proptest! {
        #[test]
        fn any_queue_has_a_thread_and_a_pinned_one_its_own(
            all in prop::collection::vec((0.0..1.0f64, prop::option::of(0..6usize)), 0..30),
            threads in 1..5usize,
            isolate: bool,
        ) {
            let queues: Vec<_> =
                all.iter().map(|(load, pinned)| Candidate { load: *load, pinned: *pinned }).collect();
            for assign in [RxqAssign::Cycles, RxqAssign::RoundRobin, RxqAssign::Group] {
                let plan = plan(&queues, threads, assign, isolate);
                prop_assert_eq!(plan.len(), queues.len());
                for (queue, thread) in queues.iter().zip(&plan) {
                    prop_assert!(*thread < threads);
                    let pinned = queue.pinned.filter(|pinned| *pinned < threads);
                    prop_assert!(pinned.is_none_or(|pinned| pinned == *thread));
                }
            }
        }
    }
}
