// SPDX-License-Identifier: Apache-2.0
//! The match of a filter as bits of a packet's fields, as the kernel's flow dissector gives them to
//! flower (net/core/flow_dissector.c, net/sched/cls_flower.c).

use crate::layout::KEY_BYTES;
use datapath_tc::keys::{FIRST_FRAGMENT, FRAGMENT, Key, Keys};

/// Offsets in `struct key` of the BPF program.
pub mod field {
    /// Ethernet destination, then source.
    pub const ETH: usize = 0;
    /// Ethernet type of the frame: the first tag's protocol where there is one.
    pub const PROTOCOL: usize = 12;
    /// Ethernet type after all tags.
    pub const ETHERTYPE: usize = 14;
    /// Tag control information of the first tag.
    pub const VLAN: usize = 16;
    /// That of the second.
    pub const CVLAN: usize = 18;
    /// Ethernet type after the first tag.
    pub const VLAN_TYPE: usize = 20;
    /// That after the second.
    pub const CVLAN_TYPE: usize = 22;
    /// IP protocol.
    pub const IP_PROTO: usize = 24;
    /// Type of service.
    pub const TOS: usize = 25;
    /// TTL.
    pub const TTL: usize = 26;
    /// Source address of IPv4, IPv6 or ARP.
    pub const SRC: usize = 28;
    /// Destination address.
    pub const DST: usize = 44;
    /// Source port.
    pub const SPORT: usize = 60;
    /// Destination port.
    pub const DPORT: usize = 62;
    /// TCP flags.
    pub const TCP_FLAGS: usize = 64;
    /// ICMP type.
    pub const ICMP_TYPE: usize = 66;
    /// ICMP code.
    pub const ICMP_CODE: usize = 67;
    /// ARP hardware addresses: sender, target.
    pub const ARP_HW: usize = 68;
    /// ARP opcode.
    pub const ARP_OP: usize = 80;
}

/// Values and the bits of them that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Match {
    /// Zero outside of the mask.
    pub value: [u8; KEY_BYTES],
    /// Bits that are compared.
    pub mask: [u8; KEY_BYTES],
}

impl Match {
    /// Matches every packet.
    pub const ALL: Match = Match { value: [0; KEY_BYTES], mask: [0; KEY_BYTES] };

    /// Compares bytes at a field.
    #[must_use]
    pub fn with(mut self, at: usize, value: &[u8], mask: &[u8]) -> Match {
        let slots = self.value.iter_mut().zip(&mut self.mask).skip(at);
        for ((to, to_mask), (value, mask)) in slots.zip(value.iter().zip(mask)) {
            *to = (*to & !mask) | (value & mask);
            *to_mask |= mask;
        }
        self
    }

    /// Compares bytes at a field whole.
    #[must_use]
    pub fn exact(self, at: usize, value: &[u8]) -> Match {
        let mask = [0xff; 16];
        self.with(at, value, mask.get(..value.len()).unwrap_or(&mask))
    }

    /// The value at a field if it is compared whole.
    pub fn known<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        let mask = self.mask.get(at..)?.first_chunk::<N>()?;
        (mask == &[0xff; N]).then_some(*self.value.get(at..)?.first_chunk()?)
    }

    /// The packets that both match; `None` when there are none.
    pub fn and(&self, other: &Match) -> Option<Match> {
        let mut both = *self;
        for (i, (byte, mask)) in both.value.iter_mut().zip(&mut both.mask).enumerate() {
            if (*byte ^ other.value[i]) & *mask & other.mask[i] != 0 {
                return None;
            }
            *byte |= other.value[i];
            *mask |= other.mask[i];
        }
        Some(both)
    }

    /// Whether a packet with these fields matches.
    pub fn matches(&self, packet: &[u8; KEY_BYTES]) -> bool {
        self.value.iter().zip(&self.mask).zip(packet).all(|((v, m), p)| p & m == *v)
    }
}

/// A filter's match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compiled {
    /// The program matches exactly the packets of the filter, among those that it parses.
    Exact(Match),
    /// The filter's packets are among these. Has the reason.
    Wider(Match, String),
    /// No packet that the program parses matches.
    Never,
}

const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];
const ARP: [u8; 2] = [0x08, 0x06];
const VLAN_TYPES: [[u8; 2]; 2] = [[0x81, 0x00], [0x88, 0xa8]];
/// `ETH_P_ALL`: the filter has no protocol.
pub const ETH_P_ALL: u16 = 3;

/// Returns the match of a filter with this protocol and no further keys.
pub fn of_protocol(protocol: u16) -> Match {
    match protocol {
        ETH_P_ALL => Match::ALL,
        protocol => Match::ALL.exact(field::PROTOCOL, &protocol.to_be_bytes()),
    }
}

/// Returns the match of a flower filter.
pub fn compile(protocol: u16, keys: &Keys) -> Compiled {
    let mut to = of_protocol(protocol);
    let mut unknown = None;
    let ethertype = keys.get(Key::EthType).and_then(|masked| masked.value.first_chunk::<2>());
    let ip_proto = keys.get(Key::IpProto).and_then(|masked| masked.value.first().copied());
    let is_tagged = VLAN_TYPES.contains(&protocol.to_be_bytes());
    if ethertype.is_none() && !is_tagged {
        // The kernel compares the tag protocol when its key EthType was one, and no message shows that.
        unknown = Some("it may compare a VLAN protocol that the kernel does not show".to_owned());
    }
    for (key, masked) in keys.iter() {
        let whole = [0xff; 16];
        let mask = if masked.mask.is_empty() { &whole[..] } else { &masked.mask };
        let value = masked.value.as_slice();
        // A key whose protocol the filter does not ask for has a meaning of its own in the kernel.
        let of = |types: &[[u8; 2]], proto: Option<u8>| {
            ethertype.is_some_and(|t| types.contains(t)) && (proto.is_none() || ip_proto == proto)
        };
        let (at, is_plain) = match key {
            Key::EthDst => (field::ETH, true),
            Key::EthSrc => (field::ETH + 6, true),
            Key::EthType => (field::ETHERTYPE, true),
            Key::IpProto => (field::IP_PROTO, of(&[IPV4, IPV6], None)),
            Key::IpTos => (field::TOS, of(&[IPV4, IPV6], None)),
            Key::IpTtl => (field::TTL, of(&[IPV4, IPV6], None)),
            Key::Ipv4Src => (field::SRC, of(&[IPV4], None)),
            Key::Ipv4Dst => (field::DST, of(&[IPV4], None)),
            Key::Ipv6Src => (field::SRC, of(&[IPV6], None)),
            Key::Ipv6Dst => (field::DST, of(&[IPV6], None)),
            Key::TcpSrc => (field::SPORT, of(&[IPV4, IPV6], Some(6))),
            Key::TcpDst => (field::DPORT, of(&[IPV4, IPV6], Some(6))),
            Key::UdpSrc => (field::SPORT, of(&[IPV4, IPV6], Some(17))),
            Key::UdpDst => (field::DPORT, of(&[IPV4, IPV6], Some(17))),
            Key::SctpSrc => (field::SPORT, of(&[IPV4, IPV6], Some(132))),
            Key::SctpDst => (field::DPORT, of(&[IPV4, IPV6], Some(132))),
            Key::TcpFlags => (field::TCP_FLAGS, of(&[IPV4, IPV6], Some(6))),
            Key::Icmpv4Type => (field::ICMP_TYPE, of(&[IPV4], Some(1))),
            Key::Icmpv4Code => (field::ICMP_CODE, of(&[IPV4], Some(1))),
            Key::Icmpv6Type => (field::ICMP_TYPE, of(&[IPV6], Some(58))),
            Key::Icmpv6Code => (field::ICMP_CODE, of(&[IPV6], Some(58))),
            Key::ArpSip => (field::SRC, of(&[ARP], None)),
            Key::ArpTip => (field::DST, of(&[ARP], None)),
            Key::ArpOp => (field::ARP_OP, of(&[ARP], None)),
            Key::ArpSha => (field::ARP_HW, of(&[ARP], None)),
            Key::ArpTha => (field::ARP_HW + 6, of(&[ARP], None)),
            Key::VlanEthType => (field::VLAN_TYPE, is_tagged),
            Key::CvlanEthType => (field::CVLAN_TYPE, keys.get(Key::VlanEthType).is_some()),
            Key::VlanId | Key::CvlanId => {
                let (at, is_known) = tag(key, keys, is_tagged);
                if is_known && let Some(id) = value.first_chunk() {
                    // The kernel gives the id as a host integer.
                    let id = u16::from_ne_bytes(*id).to_be_bytes();
                    to = to.with(at, &id, &[0x0f, 0xff]);
                    continue;
                }
                (at, false)
            }
            Key::VlanPrio | Key::CvlanPrio => {
                let (at, is_known) = tag(key, keys, is_tagged);
                if is_known {
                    let priority = value.first().copied().unwrap_or_default();
                    to = to.with(at, &[priority << 5], &[0xe0]);
                    continue;
                }
                (at, false)
            }
            Key::Flags => match fragments(value, mask) {
                // The program parses no fragments.
                Some(false) => continue,
                Some(true) => return Compiled::Never,
                None => (0, false),
            },
            Key::EncKeyId
            | Key::EncIpv4Src
            | Key::EncIpv4Dst
            | Key::EncIpv6Src
            | Key::EncIpv6Dst
            | Key::EncUdpSrc
            | Key::EncUdpDst
            | Key::EncIpTos
            | Key::EncIpTtl
            | Key::EncOpts
            | Key::EncFlags
            | Key::MplsTtl
            | Key::MplsBos
            | Key::MplsTc
            | Key::MplsLabel
            | Key::CtState
            | Key::CtZone
            | Key::CtMark
            | Key::CtLabels => (0, false),
        };
        if is_plain {
            to = to.with(at, value, mask);
        } else {
            unknown = Some(format!("XDP does not compare the key {key:?}"));
        }
    }
    match unknown {
        None => Compiled::Exact(to),
        Some(reason) => Compiled::Wider(to, reason),
    }
}

/// The field of a key of a tag. The kernel also compares the tag's protocol, which no message shows:
/// it is taken for the filter's own for the first tag, and is the type after that for the second.
fn tag(key: Key, keys: &Keys, is_tagged: bool) -> (usize, bool) {
    match key {
        Key::VlanId | Key::VlanPrio => (field::VLAN, is_tagged),
        _ => {
            let inner = keys.get(Key::VlanEthType).and_then(|masked| masked.value.first_chunk());
            (field::CVLAN, is_tagged && inner.is_some_and(|inner| VLAN_TYPES.contains(inner)))
        }
    }
}

/// Whether only fragments match; `None` for flags that are not known.
fn fragments(value: &[u8], mask: &[u8]) -> Option<bool> {
    let word = |bytes: &[u8]| bytes.first_chunk().map(|bytes| u32::from_be_bytes(*bytes));
    let (value, mask) = (word(value)?, word(mask)?);
    (mask & !(FRAGMENT | FIRST_FRAGMENT) == 0).then_some(value & mask != 0)
}
