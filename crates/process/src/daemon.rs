// SPDX-License-Identifier: Apache-2.0
//! Detaching, and the notification that the daemon is ready.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::pipe::{PipeFlags, pipe_with};
use tracing::warn;

use crate::error::ProcessError;
use crate::pidfile::Pidfile;
use crate::sys::{self, Ended, Fork};
use crate::user::User;
use crate::{monitor, signals};

/// How a daemon starts: the options of the same names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DaemonOptions {
    /// `--detach`: go to the background; the parent waits for [`Daemon::complete`].
    pub detach: bool,
    /// `--monitor`: a process that starts the daemon again when it crashes.
    pub monitor: bool,
    /// `--no-chdir`: stay in the present directory when detaching.
    pub no_chdir: bool,
    /// `--pidfile`: the path, made absolute by the caller.
    pub pidfile: Option<PathBuf>,
    /// `--overwrite-pidfile`.
    pub overwrite_pidfile: bool,
    /// `--user`.
    pub user: Option<User>,
}

/// A running daemon's hold on its place: the pidfile, and the parent that waits.
///
/// Drop it last; the pidfile goes with it. Dropped without [`Daemon::complete`], the waiting
/// parent sees the process's exit status.
#[derive(Debug)]
pub struct Daemon {
    pidfile: Option<Pidfile>,
    /// The pipe whose other end the process before us reads.
    notify: Option<OwnedFd>,
    detach: bool,
    no_chdir: bool,
}

impl Daemon {
    /// Does all of `options` that comes before the daemon's own work, and returns in the process
    /// that is to be the daemon. In the processes that wait or watch, it does not return.
    ///
    /// Call it with a single thread.
    ///
    /// # Errors
    /// The text for `PROGRAM: TEXT` on standard error; the caller then exits with 1 (and its
    /// parent with it).
    pub fn start(options: &DaemonOptions) -> Result<Daemon, ProcessError> {
        rustix::thread::set_no_new_privs(true)
            .map_err(io::Error::from)
            .map_err(ProcessError::system("give up new privileges"))?;
        // A live process that holds the pidfile is better reported before any fork.
        if let (Some(path), false) = (&options.pidfile, options.overwrite_pidfile) {
            Pidfile::check(path)?;
        }
        if let Some(user) = &options.user {
            // The log file was opened by root; the new user must be able to reopen it.
            let owner = (Some(user.uid()), Some(user.gid()));
            if let Err(error) = vlog::logger().change_file_owner(owner.0, owner.1) {
                warn!(target: "vlog", "cannot give the log file to its user: {}", vlog::errno_text(&error));
            }
            user.assume()?;
        }
        let mut notify = None;
        if options.detach {
            match fork_with_notification()? {
                Side::Parent { pid, ready } => match wait_ready(pid, ready) {
                    Ok(()) => sys::exit_now(0),
                    // The child has said itself what was wrong.
                    Err(Ended::Exited(status)) if status != 0 => sys::exit_now(status),
                    Err(ended) => {
                        vlog::fatal(
                            "daemon_unix",
                            &format!("fork child died before signaling startup ({ended})"),
                        );
                        sys::exit_now(1)
                    }
                },
                Side::Child { notify: pipe } => {
                    notify = Some(pipe);
                    sys::setsid().map_err(ProcessError::system("start a new session"))?;
                }
            }
        }
        if options.monitor {
            notify = monitor::watch(notify, options.detach)?;
        }
        let pidfile = match &options.pidfile {
            // Under a monitor, a crashed daemon's file is unlocked; its name is taken over.
            Some(path) => Some(Pidfile::create(path, options.overwrite_pidfile)?),
            None => None,
        };
        Ok(Daemon { pidfile, notify, detach: options.detach, no_chdir: options.no_chdir })
    }

    /// Says that the daemon is ready: the parent exits with 0. When detached, the standard streams
    /// go to `/dev/null` and the current directory becomes the root. A second call does nothing.
    ///
    /// # Errors
    /// The kernel's, for `/dev/null` or the root directory; the parent has not been notified then.
    pub fn complete(&mut self) -> Result<(), ProcessError> {
        let Some(pipe) = self.notify.take() else { return Ok(()) };
        if !self.detach {
            signal_ready(&pipe);
            return Ok(());
        }
        // Steps that can fail come before the parent is notified.
        let null = open_null().map_err(ProcessError::system("close the standard streams"))?;
        if !self.no_chdir {
            std::env::set_current_dir("/")
                .map_err(ProcessError::system("change to the root directory"))?;
        }
        signal_ready(&pipe);
        replace_standard_streams(&null).map_err(ProcessError::system("close the standard streams"))
    }

    /// The pidfile's path, if there is one.
    pub fn pidfile(&self) -> Option<&std::path::Path> {
        self.pidfile.as_ref().map(Pidfile::path)
    }
}

/// Which side of a fork this is, with its end of the pipe.
pub(crate) enum Side {
    Parent { pid: i32, ready: OwnedFd },
    Child { notify: OwnedFd },
}

/// Forks; the child will write a byte to the pipe when it is ready.
pub(crate) fn fork_with_notification() -> Result<Side, ProcessError> {
    let (ready, notify) = pipe_with(PipeFlags::CLOEXEC)
        .map_err(io::Error::from)
        .map_err(ProcessError::system("make a pipe"))?;
    match sys::fork().map_err(ProcessError::system("fork"))? {
        Fork::Parent(pid) => Ok(Side::Parent { pid, ready }),
        Fork::Child => Ok(Side::Child { notify }),
    }
}

/// Waits until the child is ready.
///
/// # Errors
/// How it ended instead.
pub(crate) fn wait_ready(pid: i32, ready: OwnedFd) -> Result<(), Ended> {
    let mut byte = [0u8];
    loop {
        match rustix::io::read(&ready, &mut byte) {
            Ok(1..) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            // The end: the child is gone, or about to be.
            Ok(0) | Err(_) => break,
        }
    }
    match sys::wait(pid) {
        Ok(ended) => Err(ended),
        // The kernel is set not to keep the statuses of this process's children.
        Err(_) => Err(Ended::Exited(1)),
    }
}

/// Notifies the process at the other end of `pipe`.
pub(crate) fn signal_ready(pipe: &OwnedFd) {
    loop {
        match rustix::io::write(pipe, b"\0") {
            Err(rustix::io::Errno::INTR) => {}
            // If the waiting parent was killed, nobody needs to know.
            _ => return,
        }
    }
}

/// Points standard input, output and error at `/dev/null`.
pub(crate) fn close_standard_streams() -> io::Result<()> {
    replace_standard_streams(&open_null()?)
}

fn open_null() -> io::Result<std::fs::File> {
    std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")
}

fn replace_standard_streams(null: &std::fs::File) -> io::Result<()> {
    rustix::stdio::dup2_stdin(null)?;
    rustix::stdio::dup2_stdout(null)?;
    rustix::stdio::dup2_stderr(null)?;
    Ok(())
}

/// Makes the process fit to be a daemon's first: default signals.
pub(crate) fn default_signals() -> Result<(), ProcessError> {
    signals::reset().map_err(ProcessError::system("reset signals"))
}
