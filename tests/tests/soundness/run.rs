// SPDX-License-Identifier: Apache-2.0
//! How many cases, and which.

use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestCaseError, TestRng, TestRunner};

fn from_environment(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name}={value} is not a number")))
}

/// Runs `test` on `usual` cases, or as many of a long run as `share` percent, and shrinks the
/// first that fails.
pub fn run<S: Strategy>(
    strategy: S,
    usual: u32,
    share: u64,
    test: impl Fn(S::Value) -> Result<(), TestCaseError>,
) {
    let asked = from_environment("SLIPSWITCH_SOUNDNESS_CASES");
    let cases = asked.map_or(usual, |n| u32::try_from(n * share / 100).unwrap_or(u32::MAX).max(1));
    let seed = from_environment("SLIPSWITCH_SOUNDNESS_SEED").unwrap_or(0);
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = ProptestConfig {
        cases,
        max_shrink_iters: 3000,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    if let Err(e) = TestRunner::new_with_rng(config, rng).run(&strategy, test) {
        panic!("SLIPSWITCH_SOUNDNESS_SEED={seed}: {e}");
    }
}
