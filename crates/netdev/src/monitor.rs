// SPDX-License-Identifier: Apache-2.0
//! Changes of interfaces, as they happen.

use crate::link::{self, Link, LinkClient, RTM_DELLINK, RTM_NEWLINK};
use crate::netlink::{Socket, messages};
use crate::sys;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::BorrowedFd;

/// What happened to an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkEvent {
    /// It is new, or something of it changed; carries its whole present state. `before` holds
    /// the state known so far (a different name there: renamed).
    Changed {
        /// Present state.
        link: Box<Link>,
        /// The state before; `None` for a new interface.
        before: Option<Box<Link>>,
    },
    /// It is gone (deleted, or moved to another namespace).
    Deleted {
        /// The last state known.
        link: Box<Link>,
    },
    /// Events were lost because they were not read in time: read everything anew. The events
    /// that follow are complete again.
    Resync,
}

/// Watches the interfaces of the network namespace of the thread that made it.
///
/// Messages that change nothing a [`LinkEvent`] shows, counters apart, are not reported.
pub struct LinkMonitor {
    socket: Socket,
    client: LinkClient,
    known: BTreeMap<u32, Link>,
    buffer: Vec<u8>,
}

impl LinkMonitor {
    /// Starts watching. Interfaces present now are known and not reported.
    ///
    /// # Errors
    ///
    /// When no netlink socket can be made.
    pub fn new() -> io::Result<LinkMonitor> {
        let socket = Socket::new(libc::RTMGRP_LINK as u32)?;
        sys::grow_buffer(socket.fd(), libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, 1 << 20);
        let client = LinkClient::new()?;
        let known = client.list()?.into_iter().map(|l| (l.index, l)).collect();
        Ok(LinkMonitor { socket, client, known, buffer: vec![0; 64 * 1024] })
    }

    /// Becomes readable when [`LinkMonitor::events`] may return something.
    pub fn poll_fd(&self) -> BorrowedFd<'_> {
        self.socket.fd()
    }

    /// The interfaces known now.
    pub fn links(&self) -> impl Iterator<Item = &Link> {
        self.known.values()
    }

    /// Takes all events that are there; never blocks.
    ///
    /// # Errors
    ///
    /// A broken socket. (Lost events are [`LinkEvent::Resync`], not an error.)
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
                // Family AF_BRIDGE tells of a bridge's port, not of the interface itself.
                if m.payload.first() != Some(&0) {
                    continue;
                }
                let Some(link) = link::parse(m.payload) else { continue };
                match m.kind {
                    RTM_NEWLINK => note(&mut self.known, link, &mut out),
                    RTM_DELLINK => {
                        self.known.remove(&link.index);
                        out.push(LinkEvent::Deleted { link: Box::new(link) });
                    }
                    _ => {}
                }
            }
        }
    }

    /// After a loss: what still waits is older than the loss and may contradict the present
    /// state for ever, so it is thrown away before everything is read anew.
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

fn note(known: &mut BTreeMap<u32, Link>, mut link: Link, out: &mut Vec<LinkEvent>) {
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
