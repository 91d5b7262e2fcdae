// SPDX-License-Identifier: Apache-2.0
//! Why a daemon could not be started.

use std::io;
use std::path::{Path, PathBuf};

/// An error of this crate. Displays in the words that OVS uses, fit for `PROGRAM: TEXT`.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// A live process holds the pidfile.
    #[error("{}: already running as pid {pid}, aborting", path.display())]
    AlreadyRunning {
        /// The pidfile.
        path: PathBuf,
        /// Its holder.
        pid: i32,
    },
    /// The present pidfile could not be looked at.
    #[error("{}: pidfile check failed ({}), aborting", path.display(), vlog::errno_text(source))]
    PidfileCheck {
        /// The pidfile.
        path: PathBuf,
        /// The error of the failed system call.
        source: io::Error,
    },
    /// A step of writing the pidfile failed.
    #[error("{}: {step} failed ({})", path.display(), vlog::errno_text(source))]
    Pidfile {
        /// The file that the step worked on.
        path: PathBuf,
        /// `create`, `write`, `lock`, `rename`.
        step: &'static str,
        /// The error of the failed system call.
        source: io::Error,
    },
    /// A system call of detaching failed.
    #[error("could not {what}: {}", vlog::errno_text(source))]
    System {
        /// The step that was tried.
        what: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// `--user` names nobody, or the change was refused.
    #[error("{0}")]
    User(String),
}

impl ProcessError {
    pub(crate) fn pidfile(path: &Path, step: &'static str, source: io::Error) -> ProcessError {
        ProcessError::Pidfile { path: path.to_owned(), step, source }
    }

    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> ProcessError {
        move |source| ProcessError::System { what, source }
    }
}
