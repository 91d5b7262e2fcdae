// SPDX-License-Identifier: Apache-2.0
//! The property over translation alone.

use crate::arrival::Arrival;
use crate::check::{Figures, check};
use crate::frames;
use crate::pipeline::pipeline;
use crate::run::run;
use crate::switch::World;
use proptest::collection::vec;
use proptest::prelude::*;
use std::cell::RefCell;
use std::time::Instant;

/// Cases of a usual run.
const CASES: u32 = 3000;

#[test]
fn what_a_megaflow_matches_is_translated_alike() {
    let figures = RefCell::new(Figures::default());
    let start = Instant::now();
    let input = (pipeline(), 1..5u32, frames::spec(), vec(frames::spec(), 8), any::<u64>());
    run(input, CASES, 100, |(pipeline, in_port, spec, others, seed)| {
        let world = World::new(&pipeline);
        let others: Vec<Vec<u8>> = others.iter().map(frames::Spec::frame).collect();
        let mut rng = fastrand::Rng::with_seed(seed);
        let first = Arrival::new(spec.frame(), in_port);
        check(&world, first, &others, 100, &mut rng, &mut figures.borrow_mut())
    });
    let figures = figures.into_inner();
    eprintln!("{figures:?} in {:?}", start.elapsed());
    assert!(figures.keys > 20 * figures.cases, "{figures:?}");
    assert!(figures.tracked > figures.cases / 50, "{figures:?}");
}
