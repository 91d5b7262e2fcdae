// SPDX-License-Identifier: Apache-2.0
//! Messages about addresses of interfaces.

use super::address_of;
use crate::netlink::{attributes, u32_of};
use underlay::Cidr;

// include/uapi/linux/if_addr.h
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_FLAGS: u16 = 8;
/// Another host has the address.
const IFA_F_DADFAILED: u32 = 0x08;

/// An address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InterfaceAddress {
    /// The kernel's index of the interface.
    pub index: u32,
    /// The address in its subnet.
    pub address: Cidr,
}

/// Parses an `RTM_NEWADDR` or `RTM_DELADDR` payload. `None`: truncated, of another family, or not
/// usable.
pub(super) fn parse(payload: &[u8]) -> Option<InterfaceAddress> {
    // struct ifaddrmsg: family, prefixlen, flags, scope, index(4)
    let [family, length, flags, _, index @ ..] = *payload.first_chunk::<8>()?;
    let mut flags = u32::from(flags);
    let (mut address, mut local) = (None, None);
    for (kind, value) in attributes(payload.get(8..)?) {
        match kind {
            // Of a point-to-point interface this is the other end.
            IFA_ADDRESS => address = address_of(family, value),
            IFA_LOCAL => local = address_of(family, value),
            IFA_FLAGS => flags = u32_of(value)?,
            _ => {}
        }
    }
    if flags & IFA_F_DADFAILED != 0 {
        return None;
    }
    let address = Cidr::new(local.or(address)?, length)?;
    Some(InterfaceAddress { index: u32::from_ne_bytes(index), address })
}
