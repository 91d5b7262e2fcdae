// SPDX-License-Identifier: Apache-2.0
//! Devices of the underlay with their addresses.

use crate::address::Cidr;
use packet::Mac;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// A device that routes may name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// The kernel's index; 0 for a device without a kernel object.
    pub index: u32,
    /// MTU: bytes of an IP packet. 0 when it is not known.
    pub mtu: u32,
    /// Ethernet address; zero for devices without one.
    pub mac: Mac,
    /// True when it is administratively up.
    pub is_up: bool,
    /// True when it has a link.
    pub has_link: bool,
    /// Addresses with the lengths of their subnets' prefixes, in the order in which they came.
    pub addresses: Vec<Cidr>,
}

/// Devices by their names.
pub type Devices = BTreeMap<Arc<str>, Device>;

impl Device {
    /// Returns true when `address` is one of the device's.
    pub fn has(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|a| a.address() == address)
    }

    /// Returns the address whose subnet has `destination`: that with the longest prefix.
    pub fn source_for(&self, destination: IpAddr) -> Option<IpAddr> {
        let mut best: Option<&Cidr> = None;
        for address in self.addresses.iter().filter(|a| a.contains(destination)) {
            // Of two addresses in one subnet, the first is the primary one.
            if best.is_none_or(|b| address.length() > b.length()) {
                best = Some(address);
            }
        }
        best.map(|a| a.address())
    }

    /// Returns true when `source` is an address of the device in the same subnet as `destination`.
    pub fn is_source_for(&self, source: IpAddr, destination: IpAddr) -> bool {
        self.addresses.iter().any(|a| a.address() == source && a.contains(destination))
    }

    /// Returns the first address of a family whose scope is wider than the link.
    pub(crate) fn any_source(&self, is_ipv6: bool) -> Option<IpAddr> {
        let mut all = self.addresses.iter().map(|a| a.address());
        all.find(|a| a.is_ipv6() == is_ipv6 && is_wide(*a))
    }
}

/// Returns true for addresses whose scope is wider than a link.
pub fn is_wide(address: IpAddr) -> bool {
    let is_link_local = match address {
        IpAddr::V4(a) => a.is_link_local(),
        IpAddr::V6(a) => a.is_unicast_link_local(),
    };
    !is_link_local && !address.is_loopback()
}
