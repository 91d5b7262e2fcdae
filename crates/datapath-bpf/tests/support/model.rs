// SPDX-License-Identifier: Apache-2.0
//! Models that run under shuttle.

use std::panic::{catch_unwind, set_hook, take_hook};

/// Returns true when one of `times` random orders of steps breaks an assertion of `scene`. Does not
/// print the order.
pub fn goes_wrong(
    times: usize,
    scene: impl Fn() + Send + Sync + std::panic::UnwindSafe + 'static,
) -> bool {
    let hook = take_hook();
    set_hook(Box::new(|_| {}));
    let tried = catch_unwind(|| shuttle::check_random(scene, times));
    set_hook(hook);
    tried.is_err()
}
