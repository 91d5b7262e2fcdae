// SPDX-License-Identifier: Apache-2.0
//! VLANs of NORMAL: the meaning of a packet's headers on its input port, and the headers with which
//! it leaves by another port (ovs-vswitchd.conf.db(5), Port: `vlan_mode`, `tag`, `trunks`,
//! `cvlans`).

use crate::snapshot::{BundleView, PriorityTags, VlanMode};
use flow::{Key, VLAN_CFI, VLANS, Vlan};
use packet::ethertype;
use zerocopy::network_endian::U16;

const VID: u16 = 0x0fff;
const PCP: u16 = 0xe000;

/// The meaning of one VLAN header. VLAN 0 stands for no VLAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tag {
    /// TPID of the header; 0 without a header.
    tpid: u16,
    vid: u16,
    /// Priority, in the upper 3 bits as in a TCI.
    pcp: u16,
}

impl Tag {
    const NONE: Tag = Tag { tpid: 0, vid: 0, pcp: 0 };

    fn of(v: &Vlan) -> Tag {
        let tci = v.tci.get();
        if tci & VLAN_CFI == 0 {
            return Tag::NONE;
        }
        Tag { tpid: v.tpid.get(), vid: tci & VID, pcp: tci & PCP }
    }

    /// Returns the header for this meaning. VLAN 0 has a header only with a priority, or when
    /// `kept` keeps headers without VLAN and priority.
    fn header(self, kept: bool) -> Vlan {
        let tci = self.vid | self.pcp;
        if tci == 0 && !(kept && self.tpid != 0) {
            return Vlan::default();
        }
        Vlan { tpid: U16::new(self.tpid_or_customer()), tci: U16::new(tci | VLAN_CFI) }
    }

    fn tpid_or_customer(self) -> u16 {
        if self.tpid == 0 { ethertype::VLAN } else { self.tpid }
    }

    /// Returns true for a header with VLAN 0, which has only a priority.
    fn is_priority_tag(self) -> bool {
        self.tpid != 0 && self.vid == 0
    }
}

/// Highest number of VLAN headers of a packet within a bridge: one more than its key holds, because
/// a dot1q-tunnel port adds one.
pub(super) const DEPTH: usize = VLANS + 1;

/// The VLANs of a packet within the bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Vlans {
    outer: Tag,
    inner: Tag,
    innermost: Tag,
}

impl Vlans {
    const NONE: Vlans = Vlans { outer: Tag::NONE, inner: Tag::NONE, innermost: Tag::NONE };

    /// Returns the VLAN headers of a key.
    pub(super) fn of(key: &Key) -> Vlans {
        let [outer, inner] = &key.vlans;
        Vlans { outer: Tag::of(outer), inner: Tag::of(inner), ..Vlans::NONE }
    }

    /// Returns the VLAN of the packet within the bridge; 0 for none.
    pub(super) fn vid(&self) -> u16 {
        self.outer.vid
    }

    /// Returns true when some header has only a priority: the output then depends on more than the
    /// VLANs.
    pub(super) fn has_priority_tag(&self) -> bool {
        [self.outer, self.inner, self.innermost].into_iter().any(Tag::is_priority_tag)
    }

    /// Returns the VLANs of the packet in `vlan` instead of its present VLAN.
    pub(super) fn moved_to(self, vlan: u16) -> Vlans {
        Vlans { outer: Tag { vid: vlan, ..self.outer }, ..self }
    }

    /// Returns the VLANs without the outer header.
    fn popped(self) -> Vlans {
        Vlans { outer: self.inner, inner: self.innermost, ..Vlans::NONE }
    }

    /// Returns the reason for which `port` does not admit a packet with these headers; `None` when
    /// it does.
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
            VlanMode::Dot1qTunnel => (!allows_customer(port, vid)).then(|| {
                format!("dropping VLAN {vid} packet received on dot1q-tunnel port {name} that excludes this VLAN")
            }),
        }
    }

    /// Returns the VLANs within the bridge of a packet received on `port` with these headers.
    pub(super) fn input(&self, port: &BundleView) -> Vlans {
        let native =
            || Tag { tpid: self.outer.tpid_or_customer(), vid: port.tag, pcp: self.outer.pcp };
        match port.mode {
            VlanMode::Access => Vlans { outer: native(), ..Vlans::NONE },
            VlanMode::NativeTagged | VlanMode::NativeUntagged if self.vid() == 0 => {
                Vlans { outer: native(), ..*self }
            }
            VlanMode::Trunk | VlanMode::NativeTagged | VlanMode::NativeUntagged => *self,
            VlanMode::Dot1qTunnel => {
                let outer = Tag { tpid: port.qinq_tpid, vid: port.tag, pcp: 0 };
                Vlans { outer, inner: self.outer, innermost: self.inner }
            }
        }
    }

    /// Returns true when `port` carries packets in these VLANs.
    pub(super) fn included_in(&self, port: &BundleView) -> bool {
        match port.mode {
            VlanMode::Access => self.vid() == port.tag && self.inner.vid == 0,
            VlanMode::Trunk | VlanMode::NativeTagged | VlanMode::NativeUntagged => {
                trunks(port, self.vid())
            }
            VlanMode::Dot1qTunnel => {
                self.vid() == port.tag && allows_customer(port, self.inner.vid)
            }
        }
    }

    /// Returns the headers with which the packet leaves by `port`. `pcp` is the packet's present
    /// priority. `priority-tags` gives it to the outer header, and so may add one. Only `always`
    /// keeps headers without VLAN and priority.
    pub(super) fn output(&self, port: &BundleView, pcp: u16) -> [Vlan; DEPTH] {
        let mut out = match port.mode {
            VlanMode::Access => Vlans::NONE,
            VlanMode::Dot1qTunnel => self.popped(),
            VlanMode::NativeUntagged if self.vid() == port.tag => self.popped(),
            VlanMode::Trunk | VlanMode::NativeTagged | VlanMode::NativeUntagged => *self,
        };
        if port.priority_tags != PriorityTags::Never {
            out.outer.pcp = pcp & PCP;
        }
        let kept = port.priority_tags == PriorityTags::Always;
        let mut headers = [out.outer, out.inner, out.innermost].map(|tag| tag.header(kept));
        // A header after a removed one is removed, too.
        let is_gone = |header: &Vlan| *header == Vlan::default();
        let staying = headers.iter().position(is_gone).unwrap_or(DEPTH);
        headers.iter_mut().skip(staying).for_each(|header| *header = Vlan::default());
        headers
    }
}

/// Returns the header with which a packet in VLAN `vid` (0 for none), without a priority, leaves by
/// `port`; `None` when the port does not carry that VLAN.
pub(crate) fn header_on(port: &BundleView, vid: u16) -> Option<Vlan> {
    let outer = if vid == 0 { Tag::NONE } else { Tag { tpid: ethertype::VLAN, vid, pcp: 0 } };
    let vlans = Vlans { outer, ..Vlans::NONE };
    let [header, ..] = vlans.output(port, 0);
    vlans.included_in(port).then_some(header)
}

fn listed(list: &[u16], vid: u16) -> bool {
    list.is_empty() || list.binary_search(&vid).is_ok()
}

/// Returns true when a trunk carries VLAN `vid`. It always carries the native VLAN, unless that is
/// 0.
fn trunks(port: &BundleView, vid: u16) -> bool {
    let native = matches!(port.mode, VlanMode::NativeTagged | VlanMode::NativeUntagged);
    // A packet that would be in VLAN 0 is in the native VLAN.
    let elsewhere = native && vid == 0 && port.tag != 0;
    native && vid == port.tag && vid != 0 || !elsewhere && listed(&port.trunks, vid)
}

fn allows_customer(port: &BundleView, vid: u16) -> bool {
    listed(&port.cvlans, vid)
}
