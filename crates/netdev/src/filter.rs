// SPDX-License-Identifier: Apache-2.0
//! The tc filters of an interface. The functions work in the network namespace of the client.

use crate::link::LinkClient;
use crate::netlink::{NLM_F_DUMP, Request, attributes, text_of};
use std::io;

// include/uapi/linux/rtnetlink.h
pub(crate) const RTM_NEWQDISC: u16 = 36;
pub(crate) const RTM_DELQDISC: u16 = 37;
pub(crate) const RTM_NEWTFILTER: u16 = 44;
pub(crate) const RTM_DELTFILTER: u16 = 45;
const RTM_GETTFILTER: u16 = 46;
pub(crate) const RTM_GETQDISC: u16 = 38;
pub(crate) const TCA_KIND: u16 = 1;
/// Bytes of `struct tcmsg`: family, pad(3), ifindex(4), handle(4), parent(4), info(4).
pub(crate) const TCMSG: usize = 20;

/// A side of the qdisc clsact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClsactHook {
    /// Packets that come in by the interface.
    Ingress,
    /// Packets that leave by it.
    Egress,
}

impl ClsactHook {
    /// Returns `TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_...)` (include/uapi/linux/pkt_sched.h).
    fn parent(self) -> u32 {
        match self {
            ClsactHook::Ingress => 0xffff_fff2,
            ClsactHook::Egress => 0xffff_fff3,
        }
    }
}

/// Returns true when a tc filter is at a side of the clsact qdisc of interface `index`.
///
/// # Errors
///
/// The kernel's error.
pub fn has_filter(client: &LinkClient, index: u32, hook: ClsactHook) -> io::Result<bool> {
    let mut fixed = [0; TCMSG];
    fixed[4..8].copy_from_slice(&index.to_ne_bytes());
    fixed[12..16].copy_from_slice(&hook.parent().to_ne_bytes());
    let mut is_there = false;
    let request = Request::new(RTM_GETTFILTER, NLM_F_DUMP, &fixed);
    client.request(request, |kind, _| is_there |= kind == RTM_NEWTFILTER)?;
    Ok(is_there && (hook == ClsactHook::Ingress || has_clsact(client, index)?))
}

/// Returns true when interface `index` has the qdisc `clsact`. The qdisc `ingress` shows its filters
/// also to a request for those at the egress, where it has none.
fn has_clsact(client: &LinkClient, index: u32) -> io::Result<bool> {
    let mut is_there = false;
    let request = Request::new(RTM_GETQDISC, NLM_F_DUMP, &[0; TCMSG]);
    client.request(request, |_, payload| is_there |= is_clsact(payload, index))?;
    Ok(is_there)
}

/// Whether the payload of `RTM_NEWQDISC` is about `clsact` of interface `index`. Total.
fn is_clsact(payload: &[u8], index: u32) -> bool {
    let of = |kind: (u16, &[u8])| kind.0 == TCA_KIND && text_of(kind.1) == "clsact";
    payload.get(4..8) == Some(&index.to_ne_bytes())
        && attributes(payload.get(TCMSG..).unwrap_or_default()).any(of)
}
