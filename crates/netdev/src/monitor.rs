// SPDX-License-Identifier: Apache-2.0
//! Events of interface changes.

use crate::link::{self, Link, LinkClient, RTM_DELLINK, RTM_NEWLINK};
use crate::netlink::{Socket, messages};
use crate::sys;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::BorrowedFd;

/// A change of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkEvent {
    /// The interface is new or has changed. A name in `before` that differs from the present one
    /// means a rename.
    Changed {
        /// The whole present state.
        link: Box<Link>,
        /// The last known state; `None` for a new interface.
        before: Option<Box<Link>>,
    },
    /// The interface is gone (deleted, or moved to another network namespace).
    Deleted {
        /// The last known state.
        link: Box<Link>,
    },
    /// Events were lost because they were not read in time. The receiver must read all interfaces
    /// again. The events that follow are complete.
    Resync,
}

/// Watches the interfaces of the network namespace of the thread that created it. One thread at a
/// time uses it.
///
/// Messages that change no field of a [`LinkEvent`], other than counters, are not reported.
pub struct LinkMonitor {
    socket: Socket,
    client: LinkClient,
    known: BTreeMap<u32, Link>,
    buffer: Vec<u8>,
}

impl LinkMonitor {
    /// Starts to watch. Interfaces that exist already are not reported.
    ///
    /// # Errors
    ///
    /// No netlink socket can be created.
    pub fn new() -> io::Result<LinkMonitor> {
        let socket = Socket::new(libc::RTMGRP_LINK as u32)?;
        sys::grow_buffer(socket.fd(), libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, 1 << 20);
        let client = LinkClient::new()?;
        let known = client.list()?.into_iter().map(|l| (l.index, l)).collect();
        Ok(LinkMonitor { socket, client, known, buffer: vec![0; 64 * 1024] })
    }

    /// Returns the descriptor that becomes readable when [`LinkMonitor::events`] may return events.
    pub fn poll_fd(&self) -> BorrowedFd<'_> {
        self.socket.fd()
    }

    /// Returns the interfaces that are known at present.
    pub fn links(&self) -> impl Iterator<Item = &Link> {
        self.known.values()
    }

    /// Returns all events that have arrived. Never blocks.
    ///
    /// # Errors
    ///
    /// The socket is broken. (Lost events are [`LinkEvent::Resync`], not an error.)
    pub fn events(&mut self) -> io::Result<Vec<LinkEvent>> {
        let mut out = Vec::new();
        loop {
            let datagram = match self.socket.receive(&mut self.buffer, false) {
                Ok(d) => d,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(out),
                Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => {
                    self.resync()?;
                    out.push(LinkEvent::Resync);
                    continue;
                }
                Err(e) => return Err(e),
            };
            for m in messages(datagram) {
                // Family AF_BRIDGE describes a bridge's port, not the interface itself.
                if m.payload.first() != Some(&0) {
                    continue;
                }
                let Some(link) = link::parse(m.payload) else { continue };
                match m.kind {
                    RTM_NEWLINK => record(&mut self.known, link, &mut out),
                    RTM_DELLINK => {
                        self.known.remove(&link.index);
                        out.push(LinkEvent::Deleted { link: Box::new(link) });
                    }
                    _ => {}
                }
            }
        }
    }

    /// Recovers after a loss. Events that still wait are older than the loss and may contradict the
    /// present state permanently, so they are discarded before all interfaces are read again.
    fn resync(&mut self) -> io::Result<()> {
        loop {
            match self.socket.receive(&mut self.buffer, false) {
                Ok(_) => {}
                Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) => return Err(e),
            }
        }
        self.known = self.client.list()?.into_iter().map(|l| (l.index, l)).collect();
        Ok(())
    }
}

fn record(known: &mut BTreeMap<u32, Link>, mut link: Link, out: &mut Vec<LinkEvent>) {
    let before = known.get(&link.index).cloned();
    if let Some(before) = &before {
        let counters = std::mem::replace(&mut link.stats, before.stats);
        if *before == link {
            return;
        }
        link.stats = counters;
    }
    known.insert(link.index, link.clone());
    out.push(LinkEvent::Changed { link: Box::new(link), before: before.map(Box::new) });
}
