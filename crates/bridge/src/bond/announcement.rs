// SPDX-License-Identifier: Apache-2.0
//! Frames that announce to the other end of a bond which member leads to a host.
//!
//! The switches at the other end have learned the addresses of this bridge on the old members. They
//! would send to those until each host sends a packet. So, as in OVS, the bond sends one frame from
//! each address that was learned on another port, by the member that carries the traffic of that
//! address: a reverse ARP request (RFC 903), which nobody answers. OVS tags each frame with the VLAN of the address. Here the frame has the
//! header that the host's own frames have on the bond (none on an access port). There is no frame
//! for a VLAN that the bond does not carry.

use super::source_hash;
use super::view::Choice;
use crate::bridge::Bridge;
use crate::mac_table::MacEntry;
use crate::snapshot::BundleView;
use crate::translate::header_on;
use clock::Millis;
use flow::VLAN_CFI;
use openflow::PortNo;
use packet::Mac;
use packet::build::Frame;
use packet::ethertype;
use std::net::Ipv4Addr;

/// Most addresses that are announced at once; the addresses seen last are kept. The control thread
/// does no other work meanwhile.
const MOST_ANNOUNCED: usize = 8192;

/// ARP's operation for a reverse request (RFC 903).
const REVERSE_REQUEST: u16 = 3;

/// Returns the frames to send by the bond called `name`, each with its member, the address seen last
/// at the end. Empty when there is no such bond, or no member is enabled.
pub(crate) fn announcements(bridge: &Bridge, name: &str, now: Millis) -> Vec<(PortNo, Frame)> {
    let (Some(bond), Some(bundle)) = (bridge.bond(name), bridge.bundle(name)) else {
        return Vec::new();
    };
    let view = bond.view();
    let member = |entry: &MacEntry| match view.choice() {
        Choice::Fixed(member) => member,
        Choice::SourceHash => {
            let hash = source_hash(Mac(entry.mac), entry.vlan, view.basis);
            view.member(hash as u8)
        }
        Choice::TupleHash | Choice::Datapath(_) => None, // the other end knows of the bond
    };
    let is_elsewhere = |entry: &&MacEntry| {
        let port = bridge.ports.get(&entry.port);
        port.is_some_and(|port| !bundle.interfaces.contains(&port.name))
    };
    let entries = bridge.macs.entries(now);
    let mut frames: Vec<(PortNo, Frame)> = entries
        .iter()
        .rev()
        .filter(is_elsewhere)
        .filter_map(|entry| Some((member(entry)?, announcement(&bundle.settings, entry)?)))
        .take(MOST_ANNOUNCED)
        .collect();
    frames.reverse();
    frames
}

/// Returns a frame that shows the location of an address; `None` when the bond does not carry its
/// VLAN.
fn announcement(bond: &BundleView, entry: &MacEntry) -> Option<Frame> {
    let header = header_on(bond, entry.vlan)?;
    let (tpid, tci) = (header.tpid.get(), header.tci.get());
    let frame = Frame::ethernet([0xff; 6], entry.mac);
    let is_tagged = tci & VLAN_CFI != 0;
    let frame = if is_tagged { frame.vlan(tpid, tci & !VLAN_CFI) } else { frame };
    let host = (entry.mac, Ipv4Addr::UNSPECIFIED);
    Some(frame.arp(ethertype::RARP, REVERSE_REQUEST, host, host))
}
