// SPDX-License-Identifier: Apache-2.0
//! The filters of devices, read from the kernel.

use crate::reader::{self, TcFilter};
use datapath_tc::client::ingress_qdisc;
use datapath_tc::filter::{FIXED, Hook, tcmsg};
use datapath_tc::kernel::IngressQdisc;
use netdev::{NetlinkProtocol, join_netlink_group, open_netlink};
use netlink::{Error, Events, Request, Socket};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;

// include/uapi/linux/rtnetlink.h
const RTM_GETQDISC: u16 = 38;
const RTM_GETTFILTER: u16 = 46;
const RTNLGRP_LINK: u32 = 1;
const RTNLGRP_TC: u32 = 4;
/// `TCM_IFINDEX_MAGIC_BLOCK`: the parent is the number of a block.
const OF_BLOCK: u32 = 0xffff_ffff;
const ENOENT: i32 = 2;
const EINVAL: i32 = 22;
const ENODEV: i32 = 19;

/// Reads filters, and receives the kernel's events about them, in the network namespace of the thread
/// that opened it.
pub struct Reader {
    requests: Socket,
    events: Socket,
}

impl Reader {
    /// Opens the sockets.
    ///
    /// # Errors
    ///
    /// There are none to be had.
    pub fn open() -> io::Result<Reader> {
        let events = open_netlink(NetlinkProtocol::Route)?;
        join_netlink_group(events.as_fd(), RTNLGRP_TC)?;
        join_netlink_group(events.as_fd(), RTNLGRP_LINK)?;
        let requests = Socket::new(open_netlink(NetlinkProtocol::Route)?);
        Ok(Reader { requests, events: Socket::new(events) })
    }

    /// Takes all events. Returns true when there were some: something changed.
    ///
    /// # Errors
    ///
    /// The socket is broken.
    pub fn take_events(&mut self) -> io::Result<bool> {
        let mut any = false;
        loop {
            match self.events.events()? {
                Events::None => return Ok(any),
                Events::Datagram(_) | Events::Overrun => any = true,
            }
        }
    }

    /// Returns the filters at the ingress of each of these devices. A device without any is left out.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    pub fn filters(&mut self, devices: &[u32]) -> Result<BTreeMap<u32, Vec<TcFilter>>, Error> {
        let mut ingresses: Vec<(u32, IngressQdisc)> = Vec::new();
        let request = Request::new(RTM_GETQDISC, 0, &[0; FIXED]);
        self.requests.dump(request, |_, payload| ingresses.extend(ingress_qdisc(payload)))?;
        ingresses.retain(|(ifindex, _)| devices.contains(ifindex));
        let mut blocks: BTreeMap<u32, Vec<TcFilter>> = BTreeMap::new();
        let mut all = BTreeMap::new();
        for (ifindex, qdisc) in ingresses {
            let filters = match qdisc {
                IngressQdisc::None => continue,
                IngressQdisc::Own => self.dump(ifindex, Hook::Ingress.parent())?,
                IngressQdisc::Shared(block) => match blocks.get(&block) {
                    Some(filters) => filters.clone(),
                    None => {
                        let filters = self.dump(OF_BLOCK, block)?;
                        blocks.insert(block, filters.clone());
                        filters
                    }
                },
            };
            all.insert(ifindex, filters);
        }
        Ok(all)
    }

    fn dump(&mut self, ifindex: u32, parent: u32) -> Result<Vec<TcFilter>, Error> {
        let mut filters = Vec::new();
        let request = Request::new(RTM_GETTFILTER, 0, &tcmsg([0, ifindex, 0, parent, 0]));
        match self.requests.dump(request, |_, payload| filters.extend(reader::filter(payload))) {
            // The device, its qdisc or the block is gone, and the filters with it.
            Err(e) if matches!(e.errno(), Some(ENODEV | ENOENT | EINVAL)) => Ok(Vec::new()),
            Err(e) => Err(e),
            Ok(_) => Ok(filters),
        }
    }
}
