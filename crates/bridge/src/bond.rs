// SPDX-License-Identifier: Apache-2.0
//! What the other end of a bond is told when another member becomes active.
//!
//! The switches there have learned the addresses behind this bridge on the old member, and would
//! send to it until each host sends something by itself. So, as in OVS, a frame goes out by the new
//! member from each address that was learned elsewhere: a reverse ARP request (RFC 903), which
//! nobody answers. OVS tags each frame with the VLAN that the address is in; here it has the header
//! that the host's own frames have on the bond (none on an access port), and there is no frame in a
//! VLAN that the bond does not carry.

use crate::bridge::Bridge;
use crate::mac_table::MacEntry;
use crate::port::Port;
use crate::snapshot::BundleView;
use crate::translate::header_on;
use clock::Millis;
use flow::VLAN_CFI;
use packet::build::Frame;
use packet::ethertype;
use std::net::Ipv4Addr;

/// Most addresses that are announced at once, those seen last; nothing else is done meanwhile.
const MOST_ANNOUNCED: usize = 8192;

/// ARP's operation for a reverse request (RFC 903).
const REVERSE_REQUEST: u16 = 3;

/// The active member of the bond called `name`, and what is to be sent by it, the address that was
/// seen last at the end. `None` when there is no such bond, or no member is up.
pub(crate) fn announcements<'a>(
    bridge: &'a Bridge,
    name: &str,
    now: Millis,
) -> Option<(&'a Port, Vec<Frame>)> {
    let bond = bridge.bond(name)?;
    let active = bridge.active_member(bond)?;
    let is_elsewhere = |entry: &&MacEntry| {
        let port = bridge.ports.get(&entry.port);
        port.is_some_and(|port| !bond.interfaces.contains(&port.name))
    };
    let entries = bridge.macs.entries(now);
    let mut frames: Vec<Frame> = entries
        .iter()
        .rev()
        .filter(is_elsewhere)
        .filter_map(|entry| announcement(&bond.settings, entry))
        .take(MOST_ANNOUNCED)
        .collect();
    frames.reverse();
    Some((active, frames))
}

/// A frame that shows where an address is; `None` when the bond does not carry its VLAN.
fn announcement(bond: &BundleView, entry: &MacEntry) -> Option<Frame> {
    let header = header_on(bond, entry.vlan)?;
    let (tpid, tci) = (header.tpid.get(), header.tci.get());
    let frame = Frame::ethernet([0xff; 6], entry.mac);
    let is_tagged = tci & VLAN_CFI != 0;
    let frame = if is_tagged { frame.vlan(tpid, tci & !VLAN_CFI) } else { frame };
    let host = (entry.mac, Ipv4Addr::UNSPECIFIED);
    Some(frame.arp(ethertype::RARP, REVERSE_REQUEST, host, host))
}
