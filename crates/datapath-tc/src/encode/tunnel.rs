// SPDX-License-Identifier: Apache-2.0
//! From the headers that a flow pushes to the action `tunnel_key`.
//!
//! The kernel or the card makes these headers again: by its own route and neighbour, with a source port
//! of UDP and the bit C of Geneve as it chooses them.

use super::{Refused, no_action};
use crate::act::TunnelKey;
use crate::options::{put_geneve, put_group_policy};
use tunnel::{Encapsulation, Header, OuterIp, Udp};

/// `ETH_P_TEB`: GRE carries Ethernet.
const ETHERNET: u16 = 0x6558;
/// The DF bit.
const DF: u16 = 0x4000;
/// The first word of VXLAN: there is a network identifier.
const VXLAN_VNI: u32 = 0x0800_0000;
/// There is a group policy, whose flags and identifier are in [`GROUP_POLICY`].
const VXLAN_GROUP_POLICY: u32 = 0x8000_0000;
const GROUP_POLICY: u32 = 0x0048_ffff;

pub fn encode(header: &Header) -> Result<TunnelKey, Refused> {
    let parts = header.parts();
    let mut key = TunnelKey { no_csum: true, ..TunnelKey::default() };
    match parts.ip {
        OuterIp::V4 { src, dst, tos, ttl, fragment } => {
            key.ipv4 = (src.octets(), dst.octets());
            (key.tos, key.ttl) = (tos, ttl);
            key.has_df = fragment & DF != 0;
        }
        OuterIp::V6 { src, dst, label, traffic_class, hop_limit } => {
            if label != 0 {
                return Err(no_action("TC sets no flow label of an outer packet"));
            }
            key.ipv6 = (src.octets(), dst.octets());
            (key.tos, key.ttl) = (traffic_class, hop_limit);
        }
    }
    let mut udp = |udp: &Udp| {
        key.dst_port = udp.dst;
        key.no_csum = !udp.has_checksum;
    };
    match &parts.encapsulation {
        Encapsulation::Vxlan { udp: header, flags, vni } => {
            udp(header);
            key.id = Some((*vni).into());
            if flags & VXLAN_GROUP_POLICY != 0 {
                put_group_policy(&mut key.options, *flags as u16, (flags >> 16) as u8);
            }
            let known = VXLAN_VNI | VXLAN_GROUP_POLICY;
            let policy = if flags & VXLAN_GROUP_POLICY == 0 { 0 } else { GROUP_POLICY };
            if flags & !(known | policy) != 0 || flags & VXLAN_VNI == 0 {
                return Err(no_action("TC knows no extension of VXLAN but the group policy"));
            }
        }
        Encapsulation::Geneve { udp: header, is_oam, is_critical: _, vni, options } => {
            udp(header);
            key.id = Some((*vni).into());
            if *is_oam {
                return Err(no_action("TC sends no control packets of Geneve"));
            }
            for option in options.tlvs() {
                let option = option.map_err(|_| no_action("an option of Geneve is cut short"))?;
                if option.data.is_empty() {
                    return Err(no_action("TC sends no option of Geneve without data"));
                }
                let class = option.class.to_be_bytes();
                put_geneve(&mut key.options, class, option.kind, option.data);
            }
        }
        Encapsulation::Gre { protocol: ETHERNET, has_checksum, key: id, has_sequence: false } => {
            key.no_csum = !has_checksum;
            key.id = id.map(u64::from);
        }
        Encapsulation::Gre { .. } => {
            return Err(no_action("TC's tunnels of GRE have Ethernet and no sequence numbers"));
        }
        Encapsulation::Gtpu { .. }
        | Encapsulation::Bareudp { .. }
        | Encapsulation::Erspan { .. }
        | Encapsulation::Srv6 { .. } => {
            return Err(no_action("the kernel has no device for this kind of tunnel"));
        }
    }
    Ok(key)
}
