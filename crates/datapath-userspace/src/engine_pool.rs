// SPDX-License-Identifier: Apache-2.0
//! Engines for threads that are not packet threads.

use crate::engine::Engine;
use crate::shared::Shared;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Idle engines. Their number is the highest number that was in use at the same time.
#[derive(Default)]
pub(crate) struct EnginePool(Mutex<Vec<Engine>>);

impl EnginePool {
    fn idle(&self) -> MutexGuard<'_, Vec<Engine>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner) // engines move in and out whole
    }

    /// Runs `f` with an engine that no other call uses. Calls may nest, as when an upcall sends a
    /// packet.
    pub(crate) fn with<R>(&self, shared: &Shared, f: impl FnOnce(&mut Engine) -> R) -> R {
        let idle = self.idle().pop();
        let mut engine = idle.unwrap_or_else(|| {
            Engine::new(shared.inline_stats.clone(), shared.cache_entries, shared.seed)
        });
        let result = f(&mut engine);
        if !shared.closed.load(Ordering::Relaxed) {
            self.idle().push(engine);
        }
        result
    }

    /// Drops the engines and so the upcallers that they own.
    pub(crate) fn clear(&self) {
        let engines = std::mem::take(&mut *self.idle());
        drop(engines); // not under the lock
    }
}
