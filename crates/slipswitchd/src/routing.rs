// SPDX-License-Identifier: Apache-2.0
//! The task that follows the kernel's routes and neighbours for the underlay.

use crate::daemon::Shared;
use crate::run::readable;
use netdev::routing::{RoutingMonitor, RoutingUpdate};
use std::sync::Arc;
use std::time::{Duration, Instant};
use underlay::Underlay;

/// How long the start of the daemon waits for the first dump, so that the first command finds the
/// routes. Hosts with so many routes that it takes longer have them later.
const FIRST_DUMP: Duration = Duration::from_secs(1);
/// A wait without an end.
const FOREVER: Duration = Duration::from_secs(24 * 3600);

/// Follows the kernel's routes and neighbours for as long as the daemon runs.
pub(crate) async fn watch(daemon: Shared) {
    if !daemon.borrow().follows_kernel_routes {
        return;
    }
    if let Err(error) = follow(&daemon).await {
        tracing::warn!(
            target: "route_table",
            "the kernel's routes are no longer followed, so that tunnels may use wrong ones \
             until the daemon is started again: {error}"
        );
    }
}

async fn follow(daemon: &Shared) -> std::io::Result<()> {
    let underlay = Arc::clone(&daemon.borrow().underlay);
    let mut monitor = RoutingMonitor::new()?;
    let end = Instant::now() + FIRST_DUMP;
    while monitor.dumps_read() == 0 && Instant::now() < end {
        apply(&underlay, monitor.poll(Instant::now())?);
    }
    let [events, dumps] = monitor.poll_fds();
    let (events, dumps) = (readable(events)?, readable(dumps)?);
    loop {
        let pause = monitor.pause(Instant::now()).unwrap_or(FOREVER);
        let ready = tokio::select! {
            ready = events.readable() => Some(ready?),
            ready = dumps.readable() => Some(ready?),
            () = tokio::time::sleep(pause) => None,
        };
        let before = underlay.sequence();
        loop {
            apply(&underlay, monitor.poll(Instant::now())?);
            if !monitor.has_more() {
                break;
            }
            tokio::task::yield_now().await;
        }
        if let Some(mut ready) = ready {
            ready.clear_ready();
        }
        if underlay.sequence() != before {
            daemon.borrow_mut().publish_and_wake();
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
