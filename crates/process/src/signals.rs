// SPDX-License-Identifier: Apache-2.0
//! Signals as flags and a descriptor.
//!
//! A handler stores a bit and writes one byte to a pipe; the rest of the program polls the pipe's
//! other end and asks [`Signals::take`].

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use crate::sys;

const TERM: u32 = 1;
const INT: u32 = 2;
const HUP: u32 = 4;
const ALRM: u32 = 8;

static PENDING: AtomicU32 = AtomicU32::new(0);
/// The pipe's writing end; negative before [`Signals::install`]. Never closed.
static WAKE: AtomicI32 = AtomicI32::new(-1);

extern "C" fn on_signal(signal: libc::c_int) {
    let bit = match signal {
        libc::SIGTERM => TERM,
        libc::SIGINT => INT,
        libc::SIGHUP => HUP,
        libc::SIGALRM => ALRM,
        _ => 0,
    };
    PENDING.fetch_or(bit, Ordering::SeqCst);
    let fd = WAKE.load(Ordering::SeqCst);
    if fd >= 0 {
        // SAFETY: write(2) and errno's place are allowed in handlers; the byte is static; the
        // descriptor stays open for the life of the process. A full pipe is fine: its reader
        // will wake anyway. errno is put back for the interrupted code.
        unsafe {
            let errno = libc::__errno_location();
            let saved = *errno;
            let _ = libc::write(fd, b"!".as_ptr().cast(), 1);
            *errno = saved;
        }
    }
}

/// The signals that have come since the last question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SignalSet {
    bits: u32,
}

impl SignalSet {
    /// The program should end: SIGTERM, SIGINT or SIGALRM.
    pub fn terminate(self) -> bool {
        self.bits & (TERM | INT | ALRM) != 0
    }

    /// SIGHUP, on which a daemon reopens its log file.
    pub fn hangup(self) -> bool {
        self.bits & HUP != 0
    }

    /// No signal at all.
    pub fn is_empty(self) -> bool {
        self.bits == 0
    }

    /// OVS's words for the signal that ends the program: `signal 15 (Terminated)`.
    pub fn describe_termination(self) -> Option<String> {
        let signal = if self.bits & TERM != 0 {
            libc::SIGTERM
        } else if self.bits & INT != 0 {
            libc::SIGINT
        } else if self.bits & ALRM != 0 {
            libc::SIGALRM
        } else {
            return None;
        };
        Some(format!("signal {signal} ({})", sys::signal_name(signal)))
    }
}

/// The process's signals. SIGTERM, SIGINT, SIGALRM and SIGHUP become flags; SIGPIPE is ignored.
#[derive(Debug)]
pub struct Signals {
    pipe: OwnedFd,
}

impl Signals {
    /// Installs the handlers. Once in a process: a second call takes the wake-ups over.
    ///
    /// # Errors
    /// The kernel's.
    pub fn install() -> io::Result<Signals> {
        let flags = rustix::pipe::PipeFlags::CLOEXEC | rustix::pipe::PipeFlags::NONBLOCK;
        let (reader, writer) = rustix::pipe::pipe_with(flags)?;
        WAKE.store(writer.into_raw_fd(), Ordering::SeqCst);
        sys::set_disposition(libc::SIGPIPE, true)?;
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGALRM] {
            // SAFETY: `on_signal` touches atomics and calls write(2) only, and keeps errno.
            unsafe { sys::set_handler(signal, on_signal)? };
        }
        Ok(Signals { pipe: reader })
    }

    /// Takes the signals that have come, and empties the pipe.
    pub fn take(&self) -> SignalSet {
        let mut bytes = [0u8; 64];
        while matches!(rustix::io::read(&self.pipe, &mut bytes), Ok(n) if n == bytes.len()) {}
        SignalSet { bits: PENDING.swap(0, Ordering::SeqCst) }
    }

    /// Waits for a signal, for threads that do nothing else.
    pub fn wait(&self) -> SignalSet {
        loop {
            let set = self.take();
            if !set.is_empty() {
                return set;
            }
            let mut fds = [rustix::event::PollFd::new(&self.pipe, rustix::event::PollFlags::IN)];
            // An interruption is a signal: the loop looks.
            let _ = rustix::event::poll(&mut fds, None);
        }
    }
}

impl AsFd for Signals {
    /// Readable when a signal has come; non-blocking; for a poll or tokio's `AsyncFd`.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }
}

impl AsRawFd for Signals {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.pipe.as_raw_fd()
    }
}

/// Gives all signals that a daemon handles their default action again.
pub(crate) fn reset() -> io::Result<()> {
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGALRM] {
        sys::set_disposition(signal, false)?;
    }
    Ok(())
}
