// SPDX-License-Identifier: Apache-2.0
//! Changes of interfaces in other network namespaces, as they happen.
//!
//! What the other end of a veth pair does with packets is that end's business: nothing is said
//! of it here when GRO, offloads or XDP programs are switched over there. But the kernel lets an
//! rtnetlink socket hear the link events of every namespace that ours has a number for
//! (`NETLINK_LISTEN_ALL_NSID`, Linux 4.2), and the namespace of the other end of a pair has one
//! (`IFLA_LINK_NETNSID`). It takes `CAP_NET_BROADCAST` over that namespace; without it nothing is
//! heard, and no error tells so.

use crate::link::{RTM_DELLINK, RTM_NEWLINK};
use crate::netlink::{Socket, messages};
use crate::sys;
use std::io;
use std::os::fd::BorrowedFd;

/// `include/uapi/linux/netlink.h`
const NETLINK_LISTEN_ALL_NSID: libc::c_int = 8;

/// An interface of some namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    /// Number that our network namespace gives to the interface's; `None`: it is ours.
    pub namespace: Option<i32>,
    /// The kernel's index, there.
    pub index: u32,
}

/// Hears of interfaces of the namespace of the thread that made it, and of those that it numbers.
pub struct NetnsMonitor {
    socket: Socket,
    buffer: Vec<u8>,
}

impl NetnsMonitor {
    /// Starts to listen.
    ///
    /// # Errors
    ///
    /// When no netlink socket can be made.
    pub fn new() -> io::Result<NetnsMonitor> {
        let socket = Socket::new(libc::RTMGRP_LINK as u32)?;
        sys::grow_buffer(socket.fd(), libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, 1 << 20);
        sys::set_option(socket.fd(), libc::SOL_NETLINK, NETLINK_LISTEN_ALL_NSID, &1)?;
        Ok(NetnsMonitor { socket, buffer: vec![0; 64 * 1024] })
    }

    /// Becomes readable when [`NetnsMonitor::changed`] may return something.
    pub fn poll_fd(&self) -> BorrowedFd<'_> {
        self.socket.fd()
    }

    /// The interfaces of which something may have changed since the last call, or that are gone,
    /// in no order, each once; `None` when that is not known, as too much was said meanwhile: each
    /// may have. Never blocks.
    ///
    /// # Errors
    ///
    /// A broken socket.
    pub fn changed(&mut self) -> io::Result<Option<Vec<Endpoint>>> {
        let mut endpoints = Vec::new();
        let mut all = true;
        loop {
            match self.socket.receive_from_any(&mut self.buffer) {
                Ok((datagram, namespace)) => collect(&mut endpoints, datagram, namespace),
                Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => all = false,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) => return Err(e),
            }
        }
        endpoints.sort_unstable();
        endpoints.dedup();
        Ok(all.then_some(endpoints))
    }
}

fn collect(endpoints: &mut Vec<Endpoint>, datagram: &[u8], namespace: Option<i32>) {
    for m in messages(datagram).filter(|m| matches!(m.kind, RTM_NEWLINK | RTM_DELLINK)) {
        // struct ifinfomsg: family, pad, type(2), index(4)
        if let Some([_, _, _, _, index @ ..]) = m.payload.first_chunk::<8>() {
            endpoints.push(Endpoint { namespace, index: u32::from_ne_bytes(*index) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_datagram_is_read(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut endpoints = Vec::new();
            collect(&mut endpoints, &bytes, Some(1));
            prop_assert!(endpoints.len() <= bytes.len() / 16);
        }
    }
}
