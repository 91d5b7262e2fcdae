// SPDX-License-Identifier: Apache-2.0
//! The task that follows the kernel's routes and neighbours for the underlay.

use crate::daemon::Shared;
use crate::run::readable;
use netdev::routing::{RoutingMonitor, RoutingUpdate};
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use underlay::Underlay;

/// Time from an error to the next attempt.
const AFTER_ERROR: Duration = Duration::from_secs(5);
/// A wait without an end.
const FOREVER: Duration = Duration::from_secs(24 * 3600);

/// Follows the kernel's routes and neighbours for as long as the daemon runs.
pub(crate) async fn watch(daemon: Shared) {
    if daemon.borrow().follows_kernel_routes {
        begin_again(AFTER_ERROR, async || follow(&daemon).await).await;
    }
}

/// Calls `follow` again after each of its errors.
async fn begin_again(
    pause: Duration,
    follow: impl AsyncFn() -> io::Result<Infallible>,
) -> Infallible {
    loop {
        let Err(error) = follow().await;
        tracing::warn!(
            target: "route_table",
            "the kernel's routes cannot be followed, so that tunnels may use wrong ones; the next \
             attempt is in {} s: {error}",
            pause.as_secs()
        );
        tokio::time::sleep(pause).await;
    }
}

/// Follows until there is an error. All of the first dump that has arrived by then is read before the
/// first wait, so that the first command finds the routes. Hosts with many routes have them later.
async fn follow(daemon: &Shared) -> io::Result<Infallible> {
    let underlay = Arc::clone(&daemon.borrow().underlay);
    let mut monitor = RoutingMonitor::new()?;
    let [events, dumps] = monitor.poll_fds();
    let (events, dumps) = (readable(events)?, readable(dumps)?);
    loop {
        let before = underlay.sequence();
        loop {
            apply(&underlay, monitor.poll(Instant::now())?);
            if !monitor.has_more() {
                break;
            }
            tokio::task::yield_now().await;
        }
        if underlay.sequence() != before {
            daemon.borrow_mut().publish_and_wake();
        }
        let pause = monitor.pause(Instant::now()).unwrap_or(FOREVER);
        let ready = tokio::select! {
            ready = events.readable() => Some(ready?),
            ready = dumps.readable() => Some(ready?),
            () = tokio::time::sleep(pause) => None,
        };
        // Data that arrives from now on makes the descriptor ready again.
        if let Some(mut ready) = ready {
            ready.clear_ready();
        }
    }
}

fn apply(underlay: &Underlay, updates: Vec<RoutingUpdate>) {
    for update in updates {
        match update {
            RoutingUpdate::System(system) => underlay.set_system(system),
            RoutingUpdate::Neighbours(all) => underlay.set_kernel_neighbours(all),
            RoutingUpdate::Neighbour(device, address, mac) => {
                underlay.set_kernel_neighbour(&device, address, mac);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn routes_are_followed_again_after_an_error() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let attempts = Cell::new(0);
        let follow = async || {
            attempts.set(attempts.get() + 1);
            match attempts.get() {
                1 | 2 => Err(io::Error::other("broken")),
                _ => std::future::pending().await,
            }
        };
        runtime.expect("a runtime").block_on(async {
            tokio::select! {
                biased;
                _ = begin_again(Duration::ZERO, follow) => {}
                () = async { while attempts.get() < 3 { tokio::task::yield_now().await } } => {}
            }
        });
        assert_eq!(attempts.get(), 3);
    }
}
