// SPDX-License-Identifier: Apache-2.0
//! The offloads of an interface (`ethtool -k`), by the `SIOCETHTOOL` ioctl.

use crate::ethtool::{Ethtool, ethtool};
use crate::netlink::text_of;
use std::collections::BTreeSet;
use std::io;

// include/uapi/linux/ethtool.h
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETHTOOL_GFEATURES: u32 = 0x3a;
const ETHTOOL_SFEATURES: u32 = 0x3b;
const ETH_SS_FEATURES: u32 = 4;
const NAME: usize = 32;
/// Maximum blocks of 32 features; the kernel has 2.
const MAX_BLOCKS: usize = 8;
const MAX_FEATURES: usize = 32 * MAX_BLOCKS;

/// `struct ethtool_sset_info` for one set.
#[repr(C)]
struct RawSetInfo {
    command: u32,
    reserved: u32,
    mask: u64,
    count: u32,
}

/// `struct ethtool_gstrings`.
#[repr(C)]
struct RawStrings {
    command: u32,
    set: u32,
    count: u32,
    names: [[u8; NAME]; MAX_FEATURES],
}

/// `struct ethtool_gfeatures`.
#[repr(C)]
struct RawFeatures {
    command: u32,
    size: u32,
    /// Bits of features that are available, requested, active, never changed.
    blocks: [[u32; 4]; MAX_BLOCKS],
}

/// `struct ethtool_sfeatures`.
#[repr(C)]
struct RawChange {
    command: u32,
    size: u32,
    /// Bits of features that are to change, and their new values.
    blocks: [[u32; 2]; MAX_BLOCKS],
}

/// The state of one offload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offload {
    /// It is enabled.
    On,
    /// It is disabled, and can be enabled.
    Off,
    /// It is disabled, and the driver does not enable it; or the kernel does not know it.
    Fixed,
}

/// The names and bits of all offloads of an interface.
struct Table {
    names: Box<RawStrings>,
    count: usize,
    features: RawFeatures,
}

/// The enabled offloads of an interface, by the kernel's names
/// (`netdev_features_strings` in net/ethtool/common.c).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offloads {
    active: BTreeSet<String>,
}

impl Offloads {
    /// Returns true when `feature` ("rx-gro", "tx-checksum-ip-generic", ...) is enabled.
    pub fn is_on(&self, feature: &str) -> bool {
        self.active.contains(feature)
    }

    /// Returns true when the kernel aggregates received packets ("rx-gro").
    pub fn gro(&self) -> bool {
        self.is_on("rx-gro")
    }

    /// Returns true when the kernel or the network card aggregates received packets before the
    /// stack.
    pub fn merges(&self) -> bool {
        ["rx-gro", "rx-gro-hw", "rx-lro"].iter().any(|name| self.is_on(name))
    }

    /// Returns true when the stack leaves transport checksums to the interface on sending.
    pub fn leaves_checksums(&self) -> bool {
        let names =
            ["tx-checksum-ip-generic", "tx-checksum-ipv4", "tx-checksum-ipv6", "tx-checksum-sctp"];
        names.iter().any(|name| self.is_on(name))
    }

    /// Returns true when the stack leaves VLAN tags to the interface on sending. The tags then
    /// travel outside the packet.
    pub fn leaves_tags(&self) -> bool {
        self.is_on("tx-vlan-hw-insert") || self.is_on("tx-vlan-stag-hw-insert")
    }

    /// Returns true when the stack leaves segmentation of TCP to the interface on sending.
    pub fn leaves_segmentation(&self) -> bool {
        self.is_on("tx-tcp-segmentation") || self.is_on("tx-tcp6-segmentation")
    }

    /// Returns the offloads of sent packets as `Interface:status` names them, and whether they are
    /// enabled. A packet that needs one that is not is finished before it is sent.
    pub(crate) fn sending(&self) -> [(&'static str, bool); 10] {
        let checksums = self.is_on("tx-checksum-ip-generic")
            || self.is_on("tx-checksum-ipv4") && self.is_on("tx-checksum-ipv6");
        let tunnel = self.is_on("tx-udp_tnl-segmentation");
        [
            // The switch leaves no checksum of an IP header and none of an outer header to a device.
            ("tx_ip_csum_offload", false),
            ("tx_out_ip_csum_offload", false),
            ("tx_out_udp_csum_offload", false),
            ("tx_tcp_csum_offload", checksums),
            ("tx_udp_csum_offload", checksums),
            ("tx_sctp_csum_offload", self.is_on("tx-checksum-sctp")),
            ("tx_tcp_seg_offload", self.leaves_segmentation()),
            ("tx_vxlan_tso_offload", tunnel),
            ("tx_geneve_tso_offload", tunnel),
            ("tx_gre_tso_offload", self.is_on("tx-gre-segmentation")),
        ]
    }

    /// Returns true when the interface removes VLAN tags of received packets, so XDP does not see
    /// them.
    pub fn takes_tags_off(&self) -> bool {
        self.is_on("rx-vlan-hw-parse") || self.is_on("rx-vlan-stag-hw-parse")
    }
}

impl Ethtool {
    /// Returns the enabled offloads of interface `name`.
    ///
    /// # Errors
    ///
    /// `ENODEV`, or `EOPNOTSUPP` from a kernel with more features than this crate has room for.
    pub fn offloads(&self, name: &str) -> io::Result<Offloads> {
        let table = self.table(name)?;
        Ok(active(&table.names.names, table.count, &table.features.blocks))
    }

    /// Returns the state of one offload of interface `name`.
    ///
    /// # Errors
    ///
    /// As of [`Ethtool::offloads`].
    pub fn offload(&self, name: &str, feature: &str) -> io::Result<Offload> {
        let table = self.table(name)?;
        let Some((block, bit)) = table.position(feature) else { return Ok(Offload::Fixed) };
        let [available, _, active, _] =
            table.features.blocks.get(block).copied().unwrap_or_default();
        Ok(match (active & bit != 0, available & bit != 0) {
            (true, _) => Offload::On,
            (false, true) => Offload::Off,
            (false, false) => Offload::Fixed,
        })
    }

    /// Enables one offload of interface `name`, and returns its state afterwards: the driver may
    /// decline.
    ///
    /// # Errors
    ///
    /// As of [`Ethtool::offloads`], and `EPERM`.
    pub fn enable(&self, name: &str, feature: &str) -> io::Result<Offload> {
        let table = self.table(name)?;
        let Some((block, bit)) = table.position(feature) else { return Ok(Offload::Fixed) };
        // The kernel refuses every number of blocks but its own.
        let size = table.count.div_ceil(32) as u32; // at most MAX_BLOCKS
        let mut change =
            RawChange { command: ETHTOOL_SFEATURES, size, blocks: [[0; 2]; MAX_BLOCKS] };
        if let Some(block) = change.blocks.get_mut(block) {
            *block = [bit; 2];
        }
        // SAFETY: the kernel reads `size` blocks and writes nothing after the fixed part.
        unsafe { ethtool(self.socket(), name, &mut change)? };
        self.offload(name, feature)
    }

    fn table(&self, name: &str) -> io::Result<Table> {
        let mut info = RawSetInfo {
            command: ETHTOOL_GSSET_INFO,
            reserved: 0,
            mask: 1 << ETH_SS_FEATURES,
            count: 0,
        };
        // SAFETY: the kernel writes the fixed part and one count for the one set in the mask.
        unsafe { ethtool(self.socket(), name, &mut info)? };
        let count = info.count as usize;
        if info.mask == 0 || count > MAX_FEATURES {
            return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        }
        let mut names = Box::new(RawStrings {
            command: ETHTOOL_GSTRINGS,
            set: ETH_SS_FEATURES,
            count: info.count,
            names: [[0; NAME]; MAX_FEATURES],
        });
        // SAFETY: the kernel writes `count` names, a constant of the kernel for which there is
        // room, as checked above.
        unsafe { ethtool(self.socket(), name, &mut *names)? };
        let mut features = RawFeatures {
            command: ETHTOOL_GFEATURES,
            size: MAX_BLOCKS as u32,
            blocks: [[0; 4]; MAX_BLOCKS],
        };
        // SAFETY: the kernel writes at most `size` blocks.
        unsafe { ethtool(self.socket(), name, &mut features)? };
        Ok(Table { names, count, features })
    }
}

impl Table {
    /// Returns block and bit of a feature; `None` when the kernel does not know it.
    fn position(&self, feature: &str) -> Option<(usize, u32)> {
        let mut names = self.names.names.iter().take(self.count);
        let at = names.position(|name| text_of(name) == feature)?;
        Some((at / 32, 1 << (at % 32)))
    }
}

fn active(names: &[[u8; NAME]], count: usize, blocks: &[[u32; 4]]) -> Offloads {
    let bits = blocks.iter().flat_map(|[_, _, active, _]| (0..32).map(move |i| active >> i & 1));
    let on = names.iter().take(count).zip(bits).filter(|(_, bit)| *bit == 1);
    Offloads { active: on.map(|(name, _)| text_of(name)).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_the_kernels() {
        assert_eq!(std::mem::offset_of!(RawSetInfo, count), 16);
        assert_eq!(std::mem::offset_of!(RawStrings, names), 12);
        assert_eq!(size_of::<RawFeatures>(), 8 + MAX_BLOCKS * 16);
        assert_eq!(size_of::<RawChange>(), 8 + MAX_BLOCKS * 8);
    }

    #[test]
    fn loopback_shows_its_offloads() {
        let lo = Ethtool::new().and_then(|t| t.offloads("lo")).expect("every namespace has lo");
        assert!(lo.is_on("tx-checksum-ip-generic") && lo.leaves_checksums(), "{lo:?}");
        assert!(!lo.takes_tags_off() && !lo.leaves_tags());
        let on = lo.sending().into_iter().filter(|(_, is_on)| *is_on).map(|(name, _)| name);
        let on: Vec<_> = on.take(4).collect();
        assert_eq!(
            on,
            [
                "tx_tcp_csum_offload",
                "tx_udp_csum_offload",
                "tx_sctp_csum_offload",
                "tx_tcp_seg_offload"
            ]
        );
        let e = Ethtool::new().and_then(|t| t.offloads("no-such-dev")).err();
        assert_eq!(e.and_then(|e| e.raw_os_error()), Some(libc::ENODEV));
    }

    #[test]
    fn an_offload_is_on_off_or_fixed() {
        testing::in_namespace(|| {
            let tool = Ethtool::new().expect("a socket");
            let state = |feature| tool.offload("lo", feature).expect("lo");
            assert_eq!(state("hw-tc-offload"), Offload::Fixed);
            assert_eq!(state("no-such-feature"), Offload::Fixed);
            assert_eq!(state("tx-checksum-ip-generic"), Offload::On);
            assert_eq!(tool.enable("lo", "hw-tc-offload").ok(), Some(Offload::Fixed));
            assert_eq!(state("rx-gro-list"), Offload::Off);
            assert_eq!(tool.enable("lo", "rx-gro-list").ok(), Some(Offload::On));
            assert_eq!(state("rx-gro-list"), Offload::On);
        });
    }

    #[test]
    fn names_and_bits_belong_together() {
        let mut names = [[0; NAME]; 40];
        names[1][..2].copy_from_slice(b"ab");
        names[33][..2].copy_from_slice(b"cd");
        names[39][..2].copy_from_slice(b"ef");
        let blocks = [[0, 0, 2, 0], [0, 0, 0x82, 0]];
        let found = active(&names, 39, &blocks);
        assert_eq!(found.active.iter().collect::<Vec<_>>(), ["ab", "cd"]);
    }
}
