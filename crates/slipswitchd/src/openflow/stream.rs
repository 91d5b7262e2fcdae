// SPDX-License-Identifier: Apache-2.0
//! A byte stream over a Unix socket, TCP or TLS.

use rustix::net::{RecvFlags, recv};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

/// A connected stream.
pub(crate) enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
    Tls(Box<tokio_rustls::TlsStream<TcpStream>>),
}

impl Stream {
    /// Reads the bytes that have arrived into `buf`. Returns their number; `None` when there are
    /// none, or for TLS, whose bytes the kernel cannot decrypt. Reads from the kernel even when
    /// the runtime has not yet seen that the socket is readable.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn read_now(&self, buf: &mut [u8]) -> io::Result<Option<usize>> {
        let Some(fd) = self.plain() else { return Ok(None) };
        match recv(fd, buf, RecvFlags::DONTWAIT) {
            Ok((n, _)) => Ok(Some(n)),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// Returns the socket of a stream whose bytes are not encrypted.
    fn plain(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Stream::Unix(s) => Some(s.as_fd()),
            Stream::Tcp(s) => Some(s.as_fd()),
            Stream::Tls(_) => None,
        }
    }
}

macro_rules! each {
    ($self:expr, $s:ident => $e:expr) => {
        match $self.get_mut() {
            Stream::Unix($s) => $e,
            Stream::Tcp($s) => $e,
            Stream::Tls($s) => $e,
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        each!(self, s => Pin::new(s).poll_read(cx, buf))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        each!(self, s => Pin::new(s).poll_write(cx, buf))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, s => Pin::new(s).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, s => Pin::new(s).poll_shutdown(cx))
    }
}
