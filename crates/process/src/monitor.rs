// SPDX-License-Identifier: Apache-2.0
//! The monitor: a process that starts the daemon again when a programming error has killed it.
//!
//! The monitor forks and waits. A daemon that ends for any other reason (an exit, SIGTERM, SIGKILL)
//! ends the monitor too, with the same status. The first restart is immediate; later ones wait
//! until ten seconds have passed since the one before.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use tracing::{error, info, warn};

use crate::daemon::{
    Side, close_standard_streams, default_signals, fork_with_notification, signal_ready, wait_ready,
};
use crate::error::ProcessError;
use crate::sys::{self, Ended};

/// Signals that mean a programming error.
const CRASHES: [i32; 9] = [
    libc::SIGABRT,
    libc::SIGALRM,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGPIPE,
    libc::SIGSEGV,
    libc::SIGXCPU,
    libc::SIGXFSZ,
];

/// The shortest time between two starts.
const PAUSE: Duration = Duration::from_secs(10);

/// Watches. Returns in the child that is to be the daemon, with the pipe that reports readiness;
/// the monitor itself never returns.
///
/// `notify` is signalled when the first daemon is ready. With `detached`, the monitor closes its
/// own standard streams then, but stays in its directory: a core file of the next daemon may be
/// wanted there.
pub(crate) fn watch(
    notify: Option<OwnedFd>,
    detached: bool,
) -> Result<Option<OwnedFd>, ProcessError> {
    default_signals()?;
    let mut notify = notify;
    let mut crashes = 0u32;
    let mut last_restart: Option<Instant> = None;
    loop {
        let (pid, ready) = match fork_with_notification() {
            Ok(Side::Child { notify: own }) => {
                vlog::set_subprogram("");
                return Ok(Some(own));
            }
            Ok(Side::Parent { pid, ready }) => {
                vlog::set_subprogram("monitor");
                (pid, ready)
            }
            Err(error) => {
                // With a daemon that ran before, this is an emergency; else the caller says it.
                if crashes == 0 {
                    return Err(error);
                }
                error!(target: "daemon_unix", "{error}");
                std::thread::sleep(PAUSE);
                continue;
            }
        };
        let ended = match wait_ready(pid, ready) {
            Ok(()) => {
                if let Some(pipe) = notify.take() {
                    signal_ready(&pipe);
                    drop(pipe);
                    if detached && let Err(error) = close_standard_streams() {
                        warn!(target: "daemon_unix", "monitor: {}", vlog::errno_text(&error));
                    }
                }
                sys::wait(pid).unwrap_or(Ended::Exited(1))
            }
            // The first daemon never came up: that is a failed start, not a crash to mend.
            Err(ended) if crashes == 0 => {
                if let Ended::Killed { .. } = ended {
                    error!(target: "daemon_unix", "fork child died before signaling startup ({ended})");
                }
                finish(ended)
            }
            Err(ended) => ended,
        };
        match ended {
            Ended::Killed { signal, .. } if CRASHES.contains(&signal) => {
                crashes = crashes.saturating_add(1);
                error!(target: "daemon_unix", "{crashes} crashes: pid {pid} died, {ended}, restarting");
                let rest = last_restart.and_then(|at| PAUSE.checked_sub(at.elapsed()));
                if let Some(rest) = rest.filter(|rest| !rest.is_zero()) {
                    warn!(target: "daemon_unix", "waiting until 10 seconds since last restart");
                    std::thread::sleep(rest);
                }
                last_restart = Some(Instant::now());
            }
            ended => {
                info!(target: "daemon_unix", "pid {pid} died, {ended}, exiting");
                finish(ended)
            }
        }
    }
}

/// Ends the monitor as its daemon ended.
fn finish(ended: Ended) -> ! {
    match ended {
        Ended::Exited(status) => sys::exit_now(status),
        Ended::Killed { signal, .. } => {
            // Die by the same signal, so that the parent process sees the same.
            let pid = std::process::id();
            if let Ok(pid) = i32::try_from(pid) {
                let _ = sys::set_disposition(signal, false);
                let _ = sys::kill(pid, signal);
            }
            sys::exit_now(1)
        }
    }
}
