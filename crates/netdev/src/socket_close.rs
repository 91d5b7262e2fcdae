// SPDX-License-Identifier: Apache-2.0
//! Closing of packet sockets.
//!
//! The kernel waits for an RCU grace period before it releases a packet socket (`packet_release`,
//! net/packet/af_packet.c), which takes some 10 ms. The owner of a socket does not wait: threads
//! close the sockets, and end when no socket is left. Sockets that are closed at the same time share
//! the grace period, so a few threads close many sockets within a short time. A socket receives
//! packets until it is closed, and they are discarded with it.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Largest number of threads that close sockets at the same time. 200 sockets take about as long as
/// 13 grace periods.
const MOST_THREADS: usize = 16;

/// A packet socket. Its drop does not wait for the kernel. It may be dropped on any thread.
pub(crate) struct PacketSocket {
    fd: OwnedFd,
}

impl From<OwnedFd> for PacketSocket {
    fn from(fd: OwnedFd) -> PacketSocket {
        PacketSocket { fd }
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for PacketSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl Drop for PacketSocket {
    fn drop(&mut self) {
        // The kernel releases the socket when its last descriptor is closed, which is the copy. Without
        // a copy, this thread waits.
        if let Ok(last) = self.fd.try_clone() {
            CLOSING.close(last);
        }
    }
}

/// The sockets of all devices that are to be closed.
static CLOSING: Closing = Closing { state: Mutex::new(State { waiting: Vec::new(), threads: 0 }) };

struct Closing {
    state: Mutex<State>,
}

struct State {
    waiting: Vec<OwnedFd>,
    /// Threads that take sockets out of `waiting`.
    threads: usize,
}

impl Closing {
    /// Locks the state, which is consistent after each statement.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&'static self, socket: OwnedFd) {
        let mut state = self.state();
        state.waiting.push(socket);
        if state.threads == MOST_THREADS {
            return;
        }
        state.threads += 1;
        drop(state);
        let thread = std::thread::Builder::new().name("socket-close".to_owned());
        if thread.spawn(|| self.work()).is_err() {
            self.work();
        }
    }

    /// Closes sockets until none is left.
    fn work(&self) {
        while let Some(socket) = self.next() {
            drop(socket);
        }
    }

    /// Takes a socket. Without one, the calling thread is counted as ended.
    fn next(&self) -> Option<OwnedFd> {
        let mut state = self.state();
        let socket = state.waiting.pop();
        if socket.is_none() {
            state.threads -= 1;
        }
        socket
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{ErrorKind, Read, Write};
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    /// Every socket is closed, by no more threads than are allowed, and these end.
    #[test]
    fn sockets_are_closed_by_a_bounded_number_of_threads() {
        let mut others = Vec::new();
        for _ in 0..10 * MOST_THREADS {
            let (one, other) = UnixStream::pair().unwrap();
            other.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            drop(PacketSocket::from(OwnedFd::from(one)));
            assert!(CLOSING.state().threads <= MOST_THREADS);
            others.push(other);
        }
        for mut other in others {
            assert_eq!(other.read(&mut [0]).unwrap(), 0, "the other end is closed");
            let error = other.write(&[0]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BrokenPipe);
        }
        let mut state = CLOSING.state();
        while state.threads > 0 {
            drop(state);
            std::thread::yield_now();
            state = CLOSING.state();
        }
        assert!(state.waiting.is_empty());
    }
}
