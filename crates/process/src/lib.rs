// SPDX-License-Identifier: Apache-2.0
//! The life of a daemon process: directories, detaching, the pidfile, the monitor, the user it
//! runs as, and signals.
//!
//! The order of a daemon's `main`:
//!
//! 1. [`shut_others_out`], parse arguments, set up logging;
//! 2. [`Daemon::start`] — forks (for `--detach` and `--monitor`), changes the user, writes the
//!    pidfile. Everything before it runs with a single thread, because only the thread that forks
//!    lives on in the child;
//! 3. [`Signals::install`], threads, sockets, first configuration;
//! 4. [`Daemon::complete`] — lets the parent exit with 0 and closes the standard streams;
//! 5. run; drop the [`Daemon`] last: it removes the pidfile.
//!
//! Invariants:
//! - The parent of `--detach` exits with 0 only after [`Daemon::complete`]. If the child ends
//!   before, the parent exits with the child's status, or 1.
//! - The pidfile is written under another name, locked and renamed into place, so a reader sees
//!   either a whole locked file or none; two daemons cannot hold the same one.
//! - A pidfile is removed by the process that wrote it, and only while it is still that file.
//! - No program that the process might run could have more privileges than the process
//!   (`PR_SET_NO_NEW_PRIVS`).
//! - Nothing here logs at WARN or above in a normal run.

mod daemon;
mod dirs;
mod error;
mod monitor;
mod pidfile;
mod signals;
mod sys;
mod user;

pub use daemon::{Daemon, DaemonOptions};
pub use dirs::Dirs;
pub use error::ProcessError;
pub use pidfile::{Pidfile, read_pidfile};
pub use signals::{SignalSet, Signals};
pub use user::User;

/// Seconds that local time is east of UTC at `unix` seconds since 1970: for
/// [`vlog::Logger::set_local_offset`].
pub fn local_offset(unix: i64) -> i32 {
    sys::local_offset(unix)
}

/// Keeps all that this process makes from now on (files, sockets, directories) from users that are
/// neither its owner nor in its group, whatever umask it was started with.
pub fn shut_others_out() {
    let others = rustix::fs::Mode::RWXO;
    let inherited = rustix::process::umask(others);
    rustix::process::umask(inherited | others);
}

/// Has the allocator give large blocks (from 128 KiB on) back to the kernel when they are freed,
/// and get them from there, zeroed and not yet resident. Left alone, glibc keeps a block that was
/// freed once and serves such sizes from what it keeps from then on: buffers of ports that come and
/// go would stay, and be resident as a whole. To be called first, before there are threads.
pub fn return_large_blocks() {
    sys::return_large_blocks();
}

/// Raises the number of files that the process may have open to the most that it may have.
///
/// # Errors
/// The kernel's.
pub fn raise_file_limit() -> std::io::Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return Ok(());
    }
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?;
    Ok(())
}

/// Locks all memory of the process, present and future, into RAM (`--mlockall`).
///
/// # Errors
/// The kernel's: usually that the caller lacks `CAP_IPC_LOCK`.
pub fn lock_memory() -> std::io::Result<()> {
    sys::mlock_all()
}

#[cfg(test)]
mod tests {
    use rustix::process::{Resource, getrlimit};

    #[test]
    fn as_many_files_as_the_process_may_have_can_be_open() {
        super::raise_file_limit().expect("no privilege is needed");
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
    }
}
