// SPDX-License-Identifier: Apache-2.0
//! The rtnetlink sockets of this crate, and the opening of sockets for others.
//!
//! Follows include/uapi/linux/netlink.h and rtnetlink.h. All integers are in host byte order.

use crate::sys;
pub(crate) use ::netlink::attribute::read as attributes;
pub(crate) use ::netlink::message::{
    Answer, Message, NLM_F_ACK, NLM_F_DUMP, Request, answers, messages, text as text_of,
};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of the receive buffer: the kernel fills dumps in blocks of up to 32 KiB.
const RECEIVE_BUFFER: usize = 64 * 1024;

/// Missing in the `libc` crate (include/uapi/linux/netlink.h).
const NETLINK_GET_STRICT_CHK: std::ffi::c_int = 12;

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

/// Encodes one attribute, padded, for use inside of another one. Values above 65,531 bytes are cut.
pub(crate) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(value.len() + 8);
    ::netlink::attribute::put(&mut bytes, kind, value);
    bytes
}

/// Reads a 32-bit integer attribute.
pub(crate) fn u32_of(value: &[u8]) -> Option<u32> {
    value.first_chunk().map(|b| u32::from_ne_bytes(*b))
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
            for answer in answers(datagram, sequence) {
                match answer {
                    Answer::Item { kind, payload, .. } => each(kind, payload),
                    Answer::End(outcome) => return outcome.result(),
                }
            }
        }
    }
}

/// The protocol of a netlink socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetlinkProtocol {
    /// `NETLINK_ROUTE`: links, addresses, traffic control.
    Route,
    /// `NETLINK_GENERIC`: families such as that of `openvswitch.ko`.
    Generic,
    /// `NETLINK_NETFILTER`: connections.
    Netfilter,
}

/// Opens a socket for [`::netlink::Socket::new`] in the calling thread's network namespace. The kernel
/// explains its errors there (`NETLINK_EXT_ACK`), and dumps follow the filter of the request
/// (`NETLINK_GET_STRICT_CHK`).
///
/// # Errors
///
/// The kernel's error: it lacks the protocol, or an option that Linux has had since 4.20.
pub fn open_netlink(protocol: NetlinkProtocol) -> io::Result<OwnedFd> {
    let protocol = match protocol {
        NetlinkProtocol::Route => libc::NETLINK_ROUTE,
        NetlinkProtocol::Generic => libc::NETLINK_GENERIC,
        NetlinkProtocol::Netfilter => libc::NETLINK_NETFILTER,
    };
    let socket = Socket::from_fd(sys::socket(libc::AF_NETLINK, libc::SOCK_RAW, protocol)?, 0)?;
    for option in [libc::NETLINK_EXT_ACK, libc::NETLINK_CAP_ACK, NETLINK_GET_STRICT_CHK] {
        sys::set_option(socket.fd(), libc::SOL_NETLINK, option, &1)?;
    }
    Ok(socket.fd)
}

/// Has a netlink socket receive the events of a multicast group, in a buffer of 4 MiB: a group's
/// number in the family, from 1.
///
/// # Errors
///
/// The kernel's error: the family has no such group, or the process lacks a permission.
pub fn join_netlink_group(socket: BorrowedFd<'_>, group: u32) -> io::Result<()> {
    /// The size that Open vSwitch's own sockets have.
    const EVENT_BUFFER: std::ffi::c_int = 4 << 20;
    sys::grow_buffer(socket, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, EVENT_BUFFER);
    let group = group as std::ffi::c_int; // the kernel takes it as unsigned
    sys::set_option(socket, libc::SOL_NETLINK, libc::NETLINK_ADD_MEMBERSHIP, &group)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    /// `RTM_GETLINK` and `RTM_NEWLINK`.
    const LINK: (u16, u16) = (18, 16);

    #[test]
    fn dumps_and_explanations_come_from_the_kernel() {
        let fd = open_netlink(NetlinkProtocol::Route).unwrap();
        join_netlink_group(fd.as_fd(), 1).unwrap(); // RTNLGRP_LINK
        let mut socket = ::netlink::Socket::new(fd);
        let mut links = 0;
        let each = |kind, _: &[u8]| links += u32::from(kind == LINK.1);
        assert!(socket.dump(Request::new(LINK.0, 0, &[0; 16]), each).unwrap());
        assert!(links > 0, "the loopback device");
        // struct ifinfomsg with a field that must be zero.
        let error = socket.dump(Request::new(LINK.0, 0, &[0, 1, 0, 0]), |_, _| {}).unwrap_err();
        assert_eq!(error.errno(), Some(libc::EINVAL));
        assert!(error.words.is_some(), "{error}");
        let no_device = [&[0; 4], &i32::MAX.to_ne_bytes()[..], &[0; 8]].concat();
        let error = socket.transact(Request::new(LINK.0, 0, &no_device), |_, _| {}).unwrap_err();
        assert_eq!(error.errno(), Some(libc::ENODEV));
    }
}
