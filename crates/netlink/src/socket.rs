// SPDX-License-Identifier: Apache-2.0
//! A netlink socket.

use crate::message::{Answer, NLM_F_ACK, NLM_F_DUMP, Outcome, Request, answers};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Bytes of the receive buffer: the kernel fills dumps in blocks of up to 32 KiB, and no generic
/// netlink message that carries a packet is longer than 64 KiB and its attributes.
const RECEIVE_BUFFER: usize = 128 * 1024;

/// An error of a request.
#[derive(Debug)]
pub struct Error {
    /// The kernel's error, or that of the socket.
    pub error: io::Error,
    /// The kernel's or a driver's explanation.
    pub words: Option<String>,
}

impl Error {
    /// Returns the error number; `None` for an error that has none.
    pub fn errno(&self) -> Option<i32> {
        self.error.raw_os_error()
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.words {
            Some(words) => write!(f, "{} ({words})", self.error),
            None => self.error.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        Error { error, words: None }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        match error.words {
            None => error.error,
            Some(words) => io::Error::new(error.error.kind(), words),
        }
    }
}

/// The events of a socket's multicast groups.
#[derive(Debug)]
pub enum Events<'b> {
    /// Some messages; [`crate::message::messages`] reads them.
    Datagram(&'b [u8]),
    /// None at this moment.
    None,
    /// The socket had no room and events were lost. A dump shows the state that they led to.
    Overrun,
}

/// A netlink socket. It stays in the network namespace where it was created, and a thread that waits
/// for an answer has it alone.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Socket {
    /// Wraps a bound netlink socket in blocking mode.
    pub fn new(fd: OwnedFd) -> Socket {
        Socket { fd, sequence: 0, buffer: vec![0; RECEIVE_BUFFER] }
    }

    /// Sends a request, to which it adds `NLM_F_ACK`, and calls `each` for every object of the answer
    /// (its kind and payload): with `NLM_F_ECHO` the object itself. Returns the kernel's warning.
    ///
    /// # Errors
    ///
    /// The kernel's error with its explanation, or the socket is broken.
    pub fn transact(
        &mut self,
        request: Request,
        mut each: impl FnMut(u16, &[u8]),
    ) -> Result<Option<String>, Error> {
        let (outcome, _) = self.exchange(request, NLM_F_ACK, &mut each)?;
        match outcome.result() {
            Ok(()) => Ok(outcome.words),
            Err(error) => Err(Error { error, words: outcome.words }),
        }
    }

    /// Sends a request, to which it adds `NLM_F_DUMP`, and calls `each` for every object (its kind
    /// and payload). Returns false when the kernel reports that its state changed meanwhile: some
    /// objects may be missing or twice in the dump.
    ///
    /// # Errors
    ///
    /// The kernel's error with its explanation, or the socket is broken.
    pub fn dump(
        &mut self,
        request: Request,
        mut each: impl FnMut(u16, &[u8]),
    ) -> Result<bool, Error> {
        let (outcome, is_torn) = self.exchange(request, NLM_F_DUMP, &mut each)?;
        match outcome.result() {
            Ok(()) => Ok(!is_torn),
            Err(error) => Err(Error { error, words: outcome.words }),
        }
    }

    fn exchange(
        &mut self,
        request: Request,
        flags: u16,
        each: &mut dyn FnMut(u16, &[u8]),
    ) -> io::Result<(Outcome, bool)> {
        self.sequence = self.sequence.wrapping_add(1);
        let sequence = self.sequence;
        let bytes = request.with_flags(flags).finish(sequence);
        retry(|| send(&self.fd, &bytes, SendFlags::empty()))?;
        let mut has_torn = false;
        loop {
            let n =
                retry(|| recv(&self.fd, &mut *self.buffer, RecvFlags::empty()).map(|(n, _)| n))?;
            // Answers to a request that ended by an error are left over, with another number.
            for answer in answers(self.buffer.get(..n).unwrap_or_default(), sequence) {
                match answer {
                    Answer::Item { kind, payload, is_torn } => {
                        has_torn |= is_torn;
                        each(kind, payload);
                    }
                    Answer::End(outcome) => return Ok((outcome, has_torn)),
                }
            }
        }
    }

    /// Receives events without waiting.
    ///
    /// # Errors
    ///
    /// The socket is broken.
    pub fn events(&mut self) -> io::Result<Events<'_>> {
        match retry(|| recv(&self.fd, &mut *self.buffer, RecvFlags::DONTWAIT).map(|(n, _)| n)) {
            Ok(n) => Ok(Events::Datagram(self.buffer.get(..n).unwrap_or_default())),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Events::None),
            Err(error)
                if error.raw_os_error() == Some(rustix::io::Errno::NOBUFS.raw_os_error()) =>
            {
                Ok(Events::Overrun)
            }
            Err(error) => Err(error),
        }
    }
}

/// Calls again after an interruption by a signal.
fn retry<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(rustix::io::Errno::INTR) => {}
            result => return Ok(result?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    /// A socket and the kernel's place at its other end.
    fn pair() -> (Socket, OwnedFd) {
        let kind = SocketType::DGRAM;
        let (ours, kernel) =
            socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
        (Socket::new(ours), kernel)
    }

    fn answer(kernel: &OwnedFd, kind: u16, flags: u16, fixed: &[u8], sequence: u32) {
        let bytes = Request::new(kind, flags, fixed).finish(sequence);
        send(kernel, &bytes, SendFlags::empty()).unwrap();
    }

    #[test]
    fn an_answer_ends_with_its_own_acknowledgement() {
        let (mut socket, kernel) = pair();
        answer(&kernel, 2, 0, &(-5i32).to_ne_bytes(), 9); // of an earlier request
        answer(&kernel, 44, 0, &[1; 4], 1);
        answer(&kernel, 2, 0, &0i32.to_ne_bytes(), 1);
        let mut seen = Vec::new();
        let words = socket.transact(Request::new(44, 0, &[]), |kind, payload| {
            seen.push((kind, payload.to_vec()));
        });
        assert_eq!(words.unwrap(), None);
        assert_eq!(seen, [(44, vec![1; 4])]);
        let mut sent = [0; 64];
        let (n, _) = recv(&kernel, &mut sent[..], RecvFlags::empty()).unwrap();
        assert_eq!((n, u16::from_ne_bytes([sent[6], sent[7]])), (16, 1 | NLM_F_ACK));
    }

    #[test]
    fn a_torn_dump_is_reported() {
        let (mut socket, kernel) = pair();
        answer(&kernel, 44, 2, &[], 1);
        answer(&kernel, 3, 2, &0i32.to_ne_bytes(), 1);
        answer(&kernel, 44, 0x12, &[], 2);
        answer(&kernel, 3, 2, &0i32.to_ne_bytes(), 2);
        answer(&kernel, 3, 2, &(-19i32).to_ne_bytes(), 3);
        let dump = |socket: &mut Socket| socket.dump(Request::new(46, 0, &[]), |_, _| {});
        assert!(dump(&mut socket).unwrap());
        assert!(!dump(&mut socket).unwrap());
        assert_eq!(dump(&mut socket).unwrap_err().errno(), Some(19));
    }

    #[test]
    fn events_do_not_wait() {
        let (mut socket, kernel) = pair();
        assert!(matches!(socket.events(), Ok(Events::None)));
        answer(&kernel, 44, 0, &[], 0);
        assert!(matches!(socket.events(), Ok(Events::Datagram(bytes)) if bytes.len() == 16));
    }
}
