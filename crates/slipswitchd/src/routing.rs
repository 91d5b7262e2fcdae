// SPDX-License-Identifier: Apache-2.0
//! The tasks that follow the kernel's routes and neighbours, and the reports of routers, for the
//! underlay.

use crate::daemon::Shared;
use crate::run::readable;
use netdev::link::LinkClient;
use netdev::routing::{Pace, PathMtuMonitor, RoutingMonitor, RoutingUpdate, resolve_neighbour};
use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::unix::{AsyncFd, AsyncFdReadyGuard};
use underlay::Underlay;

/// Time between two requests to the kernel to keep the neighbours of the underlay that it has found.
/// The kernel does not see the packets that go to them; it asks a neighbour again when the
/// entry is older than about 30 s (`base_reachable_time`).
const KEEP_NEIGHBOURS: Duration = Duration::from_secs(30);
/// Time from an error to the next attempt.
const AFTER_ERROR: Duration = Duration::from_secs(5);
/// A tunnel that is added while a dump is put off is noticed after this time.
const RELAXED_TURN: Duration = Duration::from_millis(250);
/// A wait without an end.
const FOREVER: Duration = Duration::from_secs(24 * 3600);

/// Follows the kernel's routes and neighbours for as long as the daemon runs.
pub(crate) async fn watch(daemon: Shared) {
    if daemon.borrow().follows_kernel_routes {
        let consequence =
            "the kernel's routes cannot be followed, so that tunnels may use wrong ones";
        begin_again(AFTER_ERROR, consequence, async || follow(&daemon).await).await;
    }
}

/// Follows what routers report about paths for as long as the daemon runs.
pub(crate) async fn watch_path_mtus(daemon: Shared) {
    if daemon.borrow().follows_kernel_routes {
        let consequence = "the reports of routers about packets that are too long cannot be \
                           received, so that tunnels through narrower links lose long packets";
        begin_again(AFTER_ERROR, consequence, async || follow_path_mtus(&daemon).await).await;
    }
}

/// Records the reports of routers until there is an error.
async fn follow_path_mtus(daemon: &Shared) -> io::Result<Infallible> {
    let underlay = Arc::clone(&daemon.borrow().underlay);
    let monitor = PathMtuMonitor::new()?;
    let mut fds = monitor.poll_fds();
    let v4 = fds.next().map(readable).transpose()?;
    let v6 = fds.next().map(readable).transpose()?;
    loop {
        let before = underlay.sequence();
        let mut reports = monitor.poll()?;
        reports.mtus.drain(..).for_each(|r| underlay.record_path_mtu(r.remote, r.mtu));
        if underlay.sequence() != before {
            daemon.borrow_mut().publish_and_wake();
        }
        if reports.has_more {
            tokio::task::yield_now().await;
            continue;
        }
        let mut ready = tokio::select! {
            ready = of(&v4) => ready?,
            ready = of(&v6) => ready?,
        };
        ready.clear_ready();
    }
}

/// Waits until the descriptor is readable; without one, for ever.
async fn of(fd: &Option<AsyncFd<RawFd>>) -> io::Result<AsyncFdReadyGuard<'_, RawFd>> {
    match fd {
        Some(fd) => fd.readable().await,
        None => std::future::pending().await,
    }
}

/// Calls `follow` again after each of its errors.
async fn begin_again(
    pause: Duration,
    consequence: &str,
    follow: impl AsyncFn() -> io::Result<Infallible>,
) -> Infallible {
    loop {
        let Err(error) = follow().await;
        tracing::warn!(
            target: "route_table",
            "{consequence}; the next attempt is in {} s: {error}",
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
        let has_tunnels = daemon.borrow().switch.has_tunnels();
        monitor.set_pace(if has_tunnels { Pace::Prompt } else { Pace::Relaxed });
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
        let mut pause = monitor.pause(Instant::now()).unwrap_or(FOREVER);
        if !has_tunnels && pause < FOREVER {
            pause = pause.min(RELAXED_TURN);
        }
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

/// Makes the kernel ask for the neighbours of tunnels at devices with addresses of the host.
#[derive(Debug, Default)]
pub(crate) struct NeighbourKeeper {
    client: Option<LinkClient>,
}

impl NeighbourKeeper {
    /// Has the kernel ask for the neighbour `address` at `device`.
    pub(crate) fn resolve(&mut self, underlay: &Underlay, device: &str, address: IpAddr) {
        let index = underlay.routes().devices().get(device).map(|device| device.index);
        let Some(index) = index.filter(|index| *index != 0) else { return };
        if let Err(error) = self.request(index, address) {
            tracing::debug!(
                target: "tunnel",
                "{device}: the kernel does not ask for {address} ({error})"
            );
        }
    }

    fn request(&mut self, index: u32, address: IpAddr) -> io::Result<()> {
        if self.client.is_none() {
            self.client = Some(LinkClient::new()?);
        }
        let Some(client) = &self.client else { return Ok(()) };
        resolve_neighbour(client, index, address)
    }
}

/// Keeps the neighbours of tunnels that the kernel has found fresh, as long as packets go to them.
pub(crate) async fn keep_neighbours(daemon: Shared) {
    if !daemon.borrow().follows_kernel_routes {
        return;
    }
    loop {
        tokio::time::sleep(KEEP_NEIGHBOURS).await;
        let mut d = daemon.borrow_mut();
        let d = &mut *d;
        for (device, address) in d.underlay.questions() {
            d.neighbour_keeper.resolve(&d.underlay, &device, address);
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
                _ = begin_again(Duration::ZERO, "broken", follow) => {}
                () = async { while attempts.get() < 3 { tokio::task::yield_now().await } } => {}
            }
        });
        assert_eq!(attempts.get(), 3);
    }
}
