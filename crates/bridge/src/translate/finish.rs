// SPDX-License-Identifier: Apache-2.0
//! The mask before and after the pipeline, and the final form of the datapath actions.

use super::tunnel::mask_received;
use datapath::Action as DpAction;
use flow::extract::{FRAG_ANY, FRAG_LATER};
use flow::field::Prerequisite;
use flow::{Key, Mask, Tunnel, VLAN_CFI};
use packet::{ethertype, ip_proto};
use std::sync::LazyLock;

/// The fields of neighbour messages.
static NEIGHBOUR: LazyLock<Mask> =
    LazyLock::new(|| Mask::of_fields(|need| payload_of(need) == Payload::Neighbour));
/// The fields of transport headers.
static TRANSPORT: LazyLock<Mask> =
    LazyLock::new(|| Mask::of_fields(|need| payload_of(need) == Payload::Transport));

/// The part of an IP packet's payload that a field is in.
#[derive(PartialEq)]
enum Payload {
    /// The field is in no such payload: no IP protocol is its prerequisite.
    None,
    Transport,
    Neighbour,
}

fn payload_of(need: Prerequisite) -> Payload {
    use Prerequisite::*;
    match need {
        None | Ethernet | Vlan | Arp | Mpls | Nsh | Ipv4 | Ipv6 | IpAny | Ct => Payload::None,
        Tcp | Udp | Sctp | Icmpv4 | Icmpv6 => Payload::Transport,
        Nd | NdSolicit | NdAdvert => Payload::Neighbour,
    }
}

/// Returns the mask of the bits that every megaflow for a packet with this key is exact in.
pub(super) fn initial_mask(key: &Key) -> Mask {
    let mut mask = Mask::WILDCARD;
    let m = &mut mask.0;
    m.in_port.set(u32::MAX);
    m.recirc_id.set(u32::MAX);
    m.packet_type.set(u32::MAX);
    m.dl_type.set(u16::MAX);
    if is_ip(key) {
        m.nw_frag = FRAG_ANY | FRAG_LATER;
    }
    mask_received(key, &mut mask);
    mask
}

/// Clears the mask bits of fields that cannot differ between packets, and completes partial fields.
/// `key` is the datapath's, before any action.
pub(super) fn final_mask(mut mask: Mask, key: &Key) -> Mask {
    let neighbour = mask.intersects(&NEIGHBOUR);
    let transport = mask.intersects(&TRANSPORT) || mask.0.igmp_group.get() != 0;
    let m = &mut mask.0;
    for r in &mut m.regs {
        r.set(0);
    }
    m.metadata.set(0);
    m.actset_output.set(0);
    m.conj_id.set(0);
    // Tunnel fields of a packet that came out of no tunnel are zero, or set by actions.
    if !key.tunnel.is_some() {
        m.tunnel = Tunnel::NONE;
    }
    // A packet without an Ethernet header has no addresses.
    if key.packet_type.get() != 0 {
        (m.dl_src, m.dl_dst) = ([0; 6], [0; 6]);
    }
    // A lookup in stages may have read a field without the field's prerequisites. The megaflow
    // would be sound without them. But a tier that expresses matches protocol by protocol could not
    // express such a field, and must not leave it out.
    if is_ip(key) {
        if neighbour || transport {
            m.nw_proto = u8::MAX;
        }
        if neighbour && key.dl_type.get() == ethertype::IPV6 && key.nw_proto == ip_proto::ICMPV6 {
            // The fields are zero unless type and code require them. An exact type suffices for
            // every tier that expresses matches by protocol.
            m.tp_src.set(u16::MAX);
        }
    }
    // ICMP types and codes have 8 bits; the upper ones of the key are zero for every packet
    // with this protocol, which is exact if these masks are set.
    let is_icmp = |dl_type: u16, proto: u8| key.dl_type.get() == dl_type && key.nw_proto == proto;
    if is_icmp(ethertype::IPV4, ip_proto::ICMP) || is_icmp(ethertype::IPV6, ip_proto::ICMPV6) {
        m.tp_src.set(m.tp_src.get() & 0xff);
        m.tp_dst.set(m.tp_dst.get() & 0xff);
    }
    // A later fragment has no ports: they are zero in every key with this nw_frag, which is
    // exact for IP.
    if is_ip(key) && key.nw_frag & FRAG_LATER != 0 {
        m.tp_src.set(0);
        m.tp_dst.set(0);
    }
    // Without a stack (the type is exact) there are no labels.
    if !is_mpls(key) {
        m.mpls = Default::default();
    }
    if key.ethertype() != ethertype::NSH {
        m.nsh = flow::Nsh::default();
    }
    // Without a header all of its bits are zero: a part of a TCI means nothing without knowing
    // that the header is there. One that is there has a TPID: revalidation, which sees only the
    // bits in the mask, must see it as whole.
    for (v, k) in m.vlans.iter_mut().zip(&key.vlans) {
        if v.tci.get() != 0 || v.tpid.get() != 0 {
            v.tci.set(v.tci.get() | VLAN_CFI);
            if k.tci.get() & VLAN_CFI != 0 {
                v.tpid.set(u16::MAX);
            }
        }
    }
    // Where there is no first header there is no second.
    if key.vlans[0].tci.get() & VLAN_CFI == 0 && m.vlans[0].tci.get() & VLAN_CFI != 0 {
        m.vlans[1] = flow::Vlan::default();
    }
    m.in_port.set(u32::MAX);
    m.recirc_id.set(u32::MAX);
    m.packet_type.set(u32::MAX);
    mask
}

/// Returns the actions without a clone at their end: no action follows that the clone would
/// protect.
pub(super) fn without_last_clone(mut actions: Vec<DpAction>) -> Vec<DpAction> {
    while let Some(last) = actions.pop() {
        if let DpAction::Clone(inner) = last {
            actions.extend(inner);
        } else {
            actions.push(last);
            break;
        }
    }
    actions
}

/// Returns true for IPv4 and IPv6.
pub(super) fn is_ip(key: &Key) -> bool {
    matches!(key.dl_type.get(), ethertype::IPV4 | ethertype::IPV6)
}

/// Returns true for MPLS, unicast or multicast.
pub(super) fn is_mpls(key: &Key) -> bool {
    ethertype::is_mpls(key.dl_type.get())
}
