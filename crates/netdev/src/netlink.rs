// SPDX-License-Identifier: Apache-2.0
//! A small rtnetlink client: requests, dumps, attributes.
//!
//! Follows include/uapi/linux/netlink.h and rtnetlink.h. All integers are in host byte order.
//! Every reader is total: a message that is cut short ends the iteration.

use crate::sys;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of `struct nlmsghdr`.
const HEADER: usize = 16;
/// Bytes of `struct nlattr`.
const ATTRIBUTE: usize = 4;
/// Bytes of the receive buffer: the kernel fills dumps in blocks of up to 32 KiB.
const RECEIVE_BUFFER: usize = 64 * 1024;

pub(crate) const NLM_F_REQUEST: u16 = 1;
pub(crate) const NLM_F_ACK: u16 = 4;
/// The state changed while a dump was read, which may therefore lack entries.
const NLM_F_DUMP_INTR: u16 = 0x10;
pub(crate) const NLM_F_DUMP: u16 = 0x300;

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;

static SENT: AtomicU64 = AtomicU64::new(0);
static RECEIVED: AtomicU64 = AtomicU64::new(0);
static OVERFLOWS: AtomicU64 = AtomicU64::new(0);

/// Counters of all rtnetlink sockets of this crate since the process started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetlinkCounters {
    /// Requests sent.
    pub sent: u64,
    /// Datagrams received.
    pub received: u64,
    /// Reports of the kernel that a socket had no room for events (`ENOBUFS`).
    pub overflows: u64,
}

/// Returns the counters of all rtnetlink sockets of this crate.
pub fn netlink_counters() -> NetlinkCounters {
    let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    NetlinkCounters { sent: load(&SENT), received: load(&RECEIVED), overflows: load(&OVERFLOWS) }
}

/// Counts the result of a receive call, and returns it.
fn count_received(got: io::Result<usize>) -> io::Result<usize> {
    match &got {
        Ok(_) => {
            RECEIVED.fetch_add(1, Ordering::Relaxed);
        }
        Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
            OVERFLOWS.fetch_add(1, Ordering::Relaxed);
        }
        Err(_) => {}
    }
    got
}

fn align(n: usize) -> usize {
    n.next_multiple_of(4)
}

/// Encodes one attribute, padded, for use inside of another one. Values above 65,531 bytes are cut.
pub(crate) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let value = value.get(..usize::from(u16::MAX) - ATTRIBUTE).unwrap_or(value);
    let length = (ATTRIBUTE + value.len()) as u16; // cut to fit above
    let mut bytes = Vec::with_capacity(align(usize::from(length)));
    bytes.extend_from_slice(&length.to_ne_bytes());
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(value);
    bytes.resize(align(bytes.len()), 0);
    bytes
}

/// A request under construction.
pub(crate) struct Request {
    bytes: Vec<u8>,
}

impl Request {
    /// Creates a request of `kind` (`RTM_...`) whose fixed part is `fixed`.
    pub(crate) fn new(kind: u16, flags: u16, fixed: &[u8]) -> Request {
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(flags | NLM_F_REQUEST).to_ne_bytes());
        bytes.extend_from_slice(fixed);
        bytes.resize(align(bytes.len()), 0);
        Request { bytes }
    }

    /// Adds an attribute. Values above 65,531 bytes are cut.
    pub(crate) fn attribute(mut self, kind: u16, value: &[u8]) -> Request {
        self.bytes.extend_from_slice(&attribute(kind, value));
        self
    }

    fn finish(mut self, sequence: u32) -> Vec<u8> {
        let length = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
        self.bytes[..4].copy_from_slice(&length.to_ne_bytes());
        self.bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.bytes
    }
}

/// One received message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'a> {
    pub kind: u16,
    pub flags: u16,
    pub sequence: u32,
    pub payload: &'a [u8],
}

/// Iterates over the messages of one datagram.
pub(crate) fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let header = bytes.first_chunk::<HEADER>()?;
        let [l0, l1, l2, l3, k0, k1, f0, f1, s0, s1, s2, s3, ..] = *header;
        let length = u32::from_ne_bytes([l0, l1, l2, l3]) as usize;
        let payload = bytes.get(HEADER..length)?;
        bytes = bytes.get(align(length)..).unwrap_or_default();
        Some(Message {
            kind: u16::from_ne_bytes([k0, k1]),
            flags: u16::from_ne_bytes([f0, f1]),
            sequence: u32::from_ne_bytes([s0, s1, s2, s3]),
            payload,
        })
    })
}

/// A message that answers a dump.
#[derive(Debug)]
pub(crate) enum DumpMessage<'a> {
    /// One entry. With `is_torn`, the kernel's state changed since the dump began.
    Item { kind: u16, payload: &'a [u8], is_torn: bool },
    /// The dump is over.
    End(io::Result<()>),
}

/// Iterates over the messages of a datagram that answer the dump with this sequence number.
pub(crate) fn dump_messages(
    datagram: &[u8],
    sequence: u32,
) -> impl Iterator<Item = DumpMessage<'_>> {
    messages(datagram).filter(move |m| m.sequence == sequence).map(|m| match m.kind {
        // Also at the end of a dump there is an error number, or zero.
        NLMSG_ERROR | NLMSG_DONE => DumpMessage::End(result_of(m.payload)),
        kind => {
            let is_torn = m.flags & NLM_F_DUMP_INTR != 0;
            DumpMessage::Item { kind, payload: m.payload, is_torn }
        }
    })
}

/// Reads the error number of an acknowledgement.
fn result_of(payload: &[u8]) -> io::Result<()> {
    let code = payload.first_chunk().map_or(-libc::EPROTO, |b| i32::from_ne_bytes(*b));
    match code {
        0 => Ok(()),
        n => Err(io::Error::from_raw_os_error(n.saturating_neg())),
    }
}

/// Iterates over attributes: kind without its flag bits, and value.
pub(crate) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let [l0, l1, k0, k1] = *bytes.first_chunk::<ATTRIBUTE>()?;
        let length = usize::from(u16::from_ne_bytes([l0, l1]));
        let value = bytes.get(ATTRIBUTE..length)?;
        bytes = bytes.get(align(length)..).unwrap_or_default();
        Some((u16::from_ne_bytes([k0, k1]) & 0x3fff, value))
    })
}

/// Reads a 32-bit integer attribute.
pub(crate) fn u32_of(value: &[u8]) -> Option<u32> {
    value.first_chunk().map(|b| u32::from_ne_bytes(*b))
}

/// Reads a text attribute up to its NUL.
pub(crate) fn text_of(value: &[u8]) -> String {
    let end = value.iter().position(|b| *b == 0).unwrap_or(value.len());
    String::from_utf8_lossy(value.get(..end).unwrap_or_default()).into_owned()
}

/// Parses the number of the datagram's network namespace in the `used` bytes of control messages.
/// Only this kind of control message is enabled.
fn namespace_of(control: &[u64; 8], used: usize) -> Option<i32> {
    // cmsghdr: length(8) level(4) type(4); then the number.
    if used < 16 + 4 {
        return None;
    }
    let [_, kind, number, ..] = control.map(u64::to_ne_bytes);
    let [level0, level1, level2, level3, ..] = kind;
    if i32::from_ne_bytes([level0, level1, level2, level3]) != libc::SOL_NETLINK {
        return None;
    }
    number.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes))
}

/// An rtnetlink socket. It stays in the network namespace where it was created.
#[derive(Debug)]
pub(crate) struct Socket {
    fd: OwnedFd,
    sequence: u32,
}

impl Socket {
    /// Creates a socket that receives the multicast `groups` (`RTMGRP_...` bits; 0 for requests
    /// only).
    pub(crate) fn new(groups: u32) -> io::Result<Socket> {
        let fd = sys::socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE)?;
        Socket::from_fd(fd, groups)
    }

    /// Binds an unbound rtnetlink socket.
    pub(crate) fn from_fd(fd: OwnedFd, groups: u32) -> io::Result<Socket> {
        // SAFETY: integers only; zero is valid.
        let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
        address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
        address.nl_groups = groups;
        sys::bind(fd.as_fd(), &address)?;
        Ok(Socket { fd, sequence: 0 })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Receives one datagram. With `wait` false, returns `WouldBlock` when there is none.
    pub(crate) fn receive<'b>(&self, buffer: &'b mut [u8], wait: bool) -> io::Result<&'b [u8]> {
        let flags = if wait { 0 } else { libc::MSG_DONTWAIT };
        loop {
            match count_received(sys::receive(self.fd(), buffer, flags)) {
                Ok(n) => return Ok(buffer.get(..n).unwrap_or_default()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Receives one datagram on a socket with `NETLINK_LISTEN_ALL_NSID`. Returns it with the number
    /// of its network namespace; `None`: the own one. Returns `WouldBlock` when there is none.
    pub(crate) fn receive_from_any<'b>(
        &self,
        buffer: &'b mut [u8],
    ) -> io::Result<(&'b [u8], Option<i32>)> {
        let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        // One message: a header of 16 bytes and an int, padded to 8.
        let mut control = [0u64; 8];
        // SAFETY: integers and null pointers; zero is valid.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control) as _;
        // SAFETY: the message names one iovec, which names the caller's buffer, and a control
        // buffer of the stated length on this stack frame; no other code accesses them meanwhile.
        let got = sys::check_len(unsafe {
            libc::recvmsg(self.fd.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT)
        });
        let got = count_received(got)?;
        let used = message.msg_controllen;
        Ok((buffer.get(..got).unwrap_or_default(), namespace_of(&control, used)))
    }

    /// Sends a request. Returns its sequence number, which the answers have.
    ///
    /// # Errors
    ///
    /// The kernel's error, or the socket is broken.
    pub(crate) fn begin(&mut self, request: Request) -> io::Result<u32> {
        self.sequence = self.sequence.wrapping_add(1);
        let bytes = request.finish(self.sequence);
        // SAFETY: the kernel reads bytes.len() bytes.
        sys::check_len(unsafe {
            libc::send(self.fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), 0)
        })?;
        SENT.fetch_add(1, Ordering::Relaxed);
        Ok(self.sequence)
    }

    /// Sends a request and calls `each` for every answer (its `RTM_` kind and payload). With
    /// `dump`, answers end with `NLMSG_DONE`. Otherwise the request must have `NLM_F_ACK` or the
    /// answer must be a single message, and the call ends with the first acknowledgement.
    ///
    /// # Errors
    ///
    /// The kernel's error, or the socket is broken.
    pub(crate) fn request(
        &mut self,
        request: Request,
        mut each: impl FnMut(u16, &[u8]),
    ) -> io::Result<()> {
        let sequence = self.begin(request)?;
        let mut buffer = vec![0; RECEIVE_BUFFER];
        loop {
            let datagram = self.receive(&mut buffer, true)?;
            for m in messages(datagram).filter(|m| m.sequence == sequence) {
                match m.kind {
                    NLMSG_DONE => return Ok(()),
                    NLMSG_ERROR => return result_of(m.payload),
                    kind => each(kind, m.payload),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_built_is_read_back() {
        let bytes = Request::new(16, NLM_F_ACK, &[7; 16])
            .attribute(3, b"abc\0")
            .attribute(4, &5u32.to_ne_bytes())
            .finish(9);
        let all: Vec<Message<'_>> = messages(&bytes).collect();
        let [m] = all.as_slice() else { panic!("{all:?}") };
        assert_eq!((m.kind, m.sequence), (16, 9));
        let found: Vec<_> = attributes(&m.payload[16..]).collect();
        assert_eq!(found[0], (3, b"abc\0".as_slice()));
        assert_eq!(text_of(found[0].1), "abc");
        assert_eq!(u32_of(found[1].1), Some(5));
    }

    proptest! {
        #[test]
        fn any_bytes_end_the_walk(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            for m in messages(&bytes) {
                prop_assert!(attributes(m.payload).count() <= bytes.len());
            }
        }
    }
}
