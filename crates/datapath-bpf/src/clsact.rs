// SPDX-License-Identifier: Apache-2.0
//! The clsact qdisc, which carries the filters where the kernel has no tcx links (before Linux
//! 6.6).
//!
//! A qdisc does not record its creator, and the daemon that created it may have ended since. A
//! qdisc without filters has no effect, so the daemon removes it together with the last filter when
//! that filter is the daemon's own.

use std::io;
use std::os::fd::BorrowedFd;

use libbpf_rs::{TC_EGRESS, TC_INGRESS, TcHook};
use netdev::{NetlinkProtocol, open_netlink};
use netlink::{Request, Socket};

/// include/uapi/linux/pkt_sched.h: TC_H_CLSACT with TC_H_MIN_INGRESS and TC_H_MIN_EGRESS.
const PARENTS: [u32; 2] = [0xffff_fff2, 0xffff_fff3];

/// include/uapi/linux/rtnetlink.h
const RTM_GETTFILTER: u16 = 46;
/// Bytes of `struct tcmsg`.
const FIXED: usize = 20;

/// Removes the qdisc of an interface on which no filter is left. Another program that adds a
/// filter at this very moment loses it: the kernel has no call that does both. `program` is any
/// descriptor, as in `attach::remove_filter`.
///
/// # Errors
///
/// Fails when the filters cannot be listed, or the qdisc cannot be removed.
pub(crate) fn remove_unused(program: BorrowedFd<'_>, ifindex: u32) -> io::Result<()> {
    for parent in PARENTS {
        if has_filters(ifindex, parent)? {
            return Ok(());
        }
    }
    let mut hook = TcHook::new(program);
    hook.ifindex(ifindex as i32).attach_point(TC_INGRESS | TC_EGRESS);
    hook.destroy().map_err(|e| io::Error::other(e.to_string()))
}

fn has_filters(ifindex: u32, parent: u32) -> io::Result<bool> {
    let mut socket = Socket::new(open_netlink(NetlinkProtocol::Route)?);
    // struct tcmsg: family and padding, interface, handle, parent, info.
    let mut fixed = [0; FIXED];
    fixed[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    fixed[12..16].copy_from_slice(&parent.to_ne_bytes());
    let mut has_one = false;
    socket.dump(Request::new(RTM_GETTFILTER, 0, &fixed), |_, _| has_one = true)?;
    Ok(has_one)
}
