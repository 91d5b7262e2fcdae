// SPDX-License-Identifier: Apache-2.0
//! Changes of interfaces, and of their queueing disciplines and tc filters, in this network namespace
//! and others, as they happen.
//!
//! When GRO, offloads or XDP programs of the other endpoint of a veth pair change, the own
//! namespace gets no event. But an rtnetlink socket can receive the link events of every namespace
//! that the own one numbers (`NETLINK_LISTEN_ALL_NSID`, Linux 4.2), and the namespace of the other
//! endpoint has a number (`IFLA_LINK_NETNSID`). This needs `CAP_NET_BROADCAST` over that namespace.
//! Without it the socket receives no events, and no error is returned.

use crate::filter::{RTM_DELQDISC, RTM_DELTFILTER, RTM_NEWQDISC, RTM_NEWTFILTER};
use crate::link::{RTM_DELLINK, RTM_NEWLINK};
use crate::netlink::{Socket, messages};
use crate::sys;
use std::io;
use std::os::fd::BorrowedFd;

/// `include/uapi/linux/netlink.h`
const NETLINK_LISTEN_ALL_NSID: libc::c_int = 8;

/// `TCM_IFINDEX_MAGIC_BLOCK` (include/uapi/linux/rtnetlink.h): the index in an event about a filter
/// of a block that several interfaces share.
const SHARED_BLOCK: u32 = u32::MAX;

/// An interface of any network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    /// The number of its network namespace in the own one; `None`: the own one.
    pub namespace: Option<i32>,
    /// The kernel's index in that namespace.
    pub index: u32,
}

/// Receives changes of interfaces in the network namespace of the thread that created it, and in
/// the namespaces that it numbers. One thread at a time uses it.
pub struct NetnsMonitor {
    socket: Socket,
    buffer: Vec<u8>,
}

impl NetnsMonitor {
    /// Starts to receive changes.
    ///
    /// # Errors
    ///
    /// No netlink socket can be created.
    pub fn new() -> io::Result<NetnsMonitor> {
        let socket = Socket::new((libc::RTMGRP_LINK | libc::RTMGRP_TC) as u32)?;
        sys::grow_buffer(socket.fd(), libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, 1 << 20);
        sys::set_option(socket.fd(), libc::SOL_NETLINK, NETLINK_LISTEN_ALL_NSID, &1)?;
        Ok(NetnsMonitor { socket, buffer: vec![0; 64 * 1024] })
    }

    /// Returns the descriptor that becomes readable when [`NetnsMonitor::changed`] may return an
    /// interface.
    pub fn poll_fd(&self) -> BorrowedFd<'_> {
        self.socket.fd()
    }

    /// Returns the interfaces that may have changed or vanished since the last call, each once.
    /// `None`: any interface may have changed, because events were lost, or did not name one. Never
    /// blocks.
    ///
    /// # Errors
    ///
    /// The socket is broken.
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
        // A block of another namespace has no filter of a port's device.
        endpoints.retain(|end: &Endpoint| end.index != SHARED_BLOCK || end.namespace.is_none());
        all &= endpoints.iter().all(|end| end.index != SHARED_BLOCK);
        endpoints.sort_unstable();
        endpoints.dedup();
        Ok(all.then_some(endpoints))
    }
}

fn collect(endpoints: &mut Vec<Endpoint>, datagram: &[u8], namespace: Option<i32>) {
    let concerns = |kind| {
        matches!(
            kind,
            RTM_NEWLINK
                | RTM_DELLINK
                | RTM_NEWQDISC
                | RTM_DELQDISC
                | RTM_NEWTFILTER
                | RTM_DELTFILTER
        )
    };
    for m in messages(datagram).filter(|m| concerns(m.kind)) {
        // struct ifinfomsg: family, pad, type(2), index(4); struct tcmsg: family, pad(3), index(4)
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
