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
use netdev::link::LinkClient;
use netdev::{ClsactHook, has_filter};

/// Removes the qdisc of an interface on which no filter is left. Another program that adds a
/// filter at this very moment loses it: the kernel has no call that does both. `program` is any
/// descriptor, as in `attach::remove_filter`.
///
/// # Errors
///
/// Fails when the filters cannot be listed, or the qdisc cannot be removed.
pub(crate) fn remove_unused(program: BorrowedFd<'_>, ifindex: u32) -> io::Result<()> {
    let client = LinkClient::new()?;
    for hook in [ClsactHook::Ingress, ClsactHook::Egress] {
        if has_filter(&client, ifindex, hook)? {
            return Ok(());
        }
    }
    let mut hook = TcHook::new(program);
    hook.ifindex(ifindex as i32).attach_point(TC_INGRESS | TC_EGRESS);
    hook.destroy().map_err(|e| io::Error::other(e.to_string()))
}
