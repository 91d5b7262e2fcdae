//! VLANs as NORMAL sees them: what a packet's headers mean on a port, and how they are written
//! for another (ovs-vswitchd.conf.db(5), Port: `vlan_mode`, `tag`, `trunks`, `cvlans`).

use crate::snapshot::{BundleView, PriorityTags, VlanMode};
use flow::{Key, VLAN_CFI, Vlan};
use packet::ethertype;
use zerocopy::network_endian::U16;

const VID: u16 = 0x0fff;
const PCP: u16 = 0xe000;

/// One VLAN header, as meaning: VLAN 0 is "none".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tag {
    /// 0 when there was no header.
    tpid: u16,
    vid: u16,
    /// In place (upper 3 bits).
    pcp: u16,
}

impl Tag {
    fn of(v: &Vlan) -> Tag {
        let tci = v.tci.get();
        if tci & VLAN_CFI == 0 {
            return Tag::default();
        }
        Tag { tpid: v.tpid.get(), vid: tci & VID, pcp: tci & PCP }
    }

    fn header(self) -> Vlan {
        let tpid = if self.tpid == 0 { ethertype::VLAN } else { self.tpid };
        Vlan { tpid: U16::new(tpid), tci: U16::new(self.vid | self.pcp | VLAN_CFI) }
    }
}

/// The VLANs of a packet within the bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Vlans {
    outer: Tag,
    /// The header below, as it is.
    inner: Vlan,
}

impl Vlans {
    /// What the headers say.
    pub(super) fn of(key: &Key) -> Vlans {
        let [outer, inner] = &key.vlans;
        Vlans { outer: Tag::of(outer), inner: *inner }
    }

    /// The VLAN that the packet is in.
    pub(super) fn vid(&self) -> u16 {
        self.outer.vid
    }

    fn inner_vid(&self) -> u16 {
        Tag::of(&self.inner).vid
    }

    fn has_inner(&self) -> bool {
        self.inner.tci.get() & VLAN_CFI != 0
    }

    /// Why a packet with these headers may not come in by `port`.
    pub(super) fn refuse_input(&self, port: &BundleView) -> Option<String> {
        let (vid, name) = (self.vid(), &port.name);
        match port.mode {
            VlanMode::Access => (vid != 0).then(|| {
                let tag = port.tag;
                format!("dropping VLAN {vid} tagged packet received on port {name} configured as VLAN {tag} access port")
            }),
            VlanMode::NativeTagged | VlanMode::NativeUntagged if vid == 0 => None,
            VlanMode::Trunk | VlanMode::NativeTagged | VlanMode::NativeUntagged => {
                (!trunks(port, vid)).then(|| {
                    format!("dropping VLAN {vid} packet received on port {name} not configured for trunking VLAN {vid}")
                })
            }
            VlanMode::Dot1qTunnel if self.has_inner() => Some(format!(
                "dropping packet with two VLAN headers received on dot1q-tunnel port {name}: it has no room for a third"
            )),
            VlanMode::Dot1qTunnel => (!allows_customer(port, vid)).then(|| {
                format!("dropping VLAN {vid} packet received on dot1q-tunnel port {name} that excludes this VLAN")
            }),
        }
    }

    /// The VLANs within the bridge of a packet that came in by `port` with these headers.
    pub(super) fn input(&self, port: &BundleView) -> Vlans {
        match port.mode {
            VlanMode::Access => {
                Vlans { outer: Tag { vid: port.tag, ..self.outer }, inner: self.inner }
            }
            VlanMode::Trunk => *self,
            VlanMode::NativeTagged | VlanMode::NativeUntagged => match self.vid() {
                0 => Vlans { outer: Tag { vid: port.tag, ..self.outer }, inner: self.inner },
                _ => *self,
            },
            VlanMode::Dot1qTunnel => {
                let inner =
                    if self.outer.tpid == 0 { Vlan::default() } else { self.outer.header() };
                Vlans { outer: Tag { tpid: port.qinq_tpid, vid: port.tag, pcp: 0 }, inner }
            }
        }
    }

    /// True when a packet in these VLANs may be flooded to `port`.
    pub(super) fn included_in(&self, port: &BundleView) -> bool {
        match port.mode {
            VlanMode::Access => self.vid() == port.tag && self.inner_vid() == 0,
            VlanMode::Trunk | VlanMode::NativeTagged | VlanMode::NativeUntagged => {
                trunks(port, self.vid())
            }
            VlanMode::Dot1qTunnel => {
                self.vid() == port.tag && allows_customer(port, self.inner_vid())
            }
        }
    }

    /// The headers with which the packet leaves by `port`; `pcp` is the priority that it has
    /// now.
    pub(super) fn output(&self, port: &BundleView, pcp: u16) -> [Vlan; 2] {
        let drop_outer = |inner: &Vlan| match inner.tci.get() & VLAN_CFI {
            0 => [priority_tag(port, pcp, false), Vlan::default()],
            _ => [*inner, Vlan::default()],
        };
        match port.mode {
            VlanMode::Dot1qTunnel => drop_outer(&self.inner),
            VlanMode::Access => [priority_tag(port, pcp, false), self.inner],
            VlanMode::NativeUntagged if self.vid() == port.tag => {
                [priority_tag(port, pcp, false), self.inner]
            }
            _ if self.vid() == 0 => [priority_tag(port, pcp, self.outer.tpid != 0), self.inner],
            _ => [self.outer.header(), self.inner],
        }
        .map(|v| if v.tci.get() & VLAN_CFI == 0 { Vlan::default() } else { v })
        .compact()
    }
}

/// A header for VLAN 0, where the port wants one. `kept`: the packet came with one, and the port
/// takes no VLAN off. `always` keeps such a header though its priority is 0; it puts none on
/// packets that have lost theirs or never had one.
fn priority_tag(port: &BundleView, pcp: u16, kept: bool) -> Vlan {
    let pcp = pcp & PCP;
    let wanted = match port.priority_tags {
        PriorityTags::Never => false,
        PriorityTags::IfNonzero => pcp != 0,
        PriorityTags::Always => pcp != 0 || kept,
    };
    if wanted { Tag { tpid: 0, vid: 0, pcp }.header() } else { Vlan::default() }
}

trait Compact {
    /// No absent header before one that is there.
    fn compact(self) -> Self;
}

impl Compact for [Vlan; 2] {
    fn compact(self) -> Self {
        let [a, b] = self;
        if a == Vlan::default() { [b, Vlan::default()] } else { self }
    }
}

fn listed(list: &[u16], vid: u16) -> bool {
    list.is_empty() || list.binary_search(&vid).is_ok()
}

/// True when a trunk carries VLAN `vid`; the native VLAN always is.
fn trunks(port: &BundleView, vid: u16) -> bool {
    let native = matches!(port.mode, VlanMode::NativeTagged | VlanMode::NativeUntagged);
    native && vid == port.tag || listed(&port.trunks, vid)
}

fn allows_customer(port: &BundleView, vid: u16) -> bool {
    listed(&port.cvlans, vid)
}
