// SPDX-License-Identifier: Apache-2.0
//! The numbers of ports, in the kernel and for the switch.

use datapath::PortNo;
use flow::{Key, Mask, Match};

/// The kernel's port `n` is the switch's port `first + n`, so that its ports and those of another
/// datapath have different numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbering {
    /// The switch's number of the kernel's port 0.
    pub first: u32,
}

impl Numbering {
    /// Highest number in the kernel (`DP_MAX_PORTS` is 65,535).
    pub const LAST: u32 = u16::MAX as u32 - 1;

    /// Returns the kernel's number; `None`: the port is none of the kernel's.
    pub fn to_kernel(self, port: PortNo) -> Option<u32> {
        let number = port.0.checked_sub(self.first)?;
        (number <= Numbering::LAST).then_some(number)
    }

    /// Returns the switch's number.
    pub fn to_switch(self, number: u32) -> PortNo {
        PortNo(self.first.saturating_add(number))
    }

    /// Returns the key with the kernel's number of its ingress port; `None`: the port is none of
    /// the kernel's.
    pub fn key_to_kernel(self, key: &Key) -> Option<Key> {
        let mut key = *key;
        key.in_port = self.to_kernel(PortNo(key.in_port.get()))?.into();
        Some(key)
    }

    /// Returns the match of the kernel's megaflow; `None`: its port is none of the kernel's.
    pub fn match_to_kernel(self, matching: &Match) -> Option<Match> {
        Some(Match::new(&self.key_to_kernel(matching.key())?, matching.mask()))
    }

    /// Returns the match of the switch's megaflow.
    pub fn of_kernel(self, matching: &Match) -> Match {
        let mut key = *matching.key();
        key.in_port = self.to_switch(key.in_port.get()).0.into();
        Match::new(&key, matching.mask())
    }

    /// Returns a mask that covers `mask`, under which the kernel's megaflow for packets like `key`
    /// matches no fewer packets than the switch's: the kernel compares always which VLAN headers
    /// there are.
    pub fn with_tags(key: &Key, mask: &Mask) -> Mask {
        let mut mask = *mask;
        for (vlan, bits) in key.vlans.iter().zip(&mut mask.0.vlans) {
            bits.tci = (bits.tci.get() | flow::VLAN_CFI).into();
            if vlan.tci.get() & flow::VLAN_CFI == 0 {
                break;
            }
            bits.tpid = u16::MAX.into();
        }
        mask
    }
}
