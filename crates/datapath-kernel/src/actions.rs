// SPDX-License-Identifier: Apache-2.0
//! Actions (`OVS_ACTION_ATTR_*`).
//!
//! The kernel checks a list when a megaflow is installed, and refuses what is not safe for all packets
//! that the megaflow matches.

use crate::numbering::Numbering;
use crate::{Refused, cookie, keys, nsh};
use conntrack::{Commit, Helper, Manip, Nat, NatRange, Request, Selection};
use datapath::{ACTION_DEPTH_LIMIT, Action, Masked, PushedNsh, Refusal, Set};
use netlink::attribute::{array, find, nest, put, read};
use packet::NshHeader;
use std::net::IpAddr;

/// Kinds of actions.
mod attr {
    pub const OUTPUT: u16 = 1;
    pub const USERSPACE: u16 = 2;
    pub const SET: u16 = 3;
    pub const PUSH_VLAN: u16 = 4;
    pub const POP_VLAN: u16 = 5;
    pub const SAMPLE: u16 = 6;
    pub const RECIRC: u16 = 7;
    pub const HASH: u16 = 8;
    pub const PUSH_MPLS: u16 = 9;
    pub const POP_MPLS: u16 = 10;
    pub const SET_MASKED: u16 = 11;
    pub const CT: u16 = 12;
    pub const TRUNC: u16 = 13;
    pub const PUSH_ETH: u16 = 14;
    pub const POP_ETH: u16 = 15;
    pub const CT_CLEAR: u16 = 16;
    pub const PUSH_NSH: u16 = 17;
    pub const POP_NSH: u16 = 18;
    pub const METER: u16 = 19;
    pub const CLONE: u16 = 20;
    pub const CHECK_PKT_LEN: u16 = 21;
    pub const ADD_MPLS: u16 = 22;
}

/// Kinds of keys that are set.
mod key {
    pub const PRIORITY: u16 = 2;
    pub const ETHERNET: u16 = 4;
    pub const IPV4: u16 = 7;
    pub const IPV6: u16 = 8;
    pub const TCP: u16 = 9;
    pub const UDP: u16 = 10;
    pub const SKB_MARK: u16 = 15;
    pub const TUNNEL: u16 = 16;
    pub const SCTP: u16 = 17;
    pub const MPLS: u16 = 21;
    pub const NSH: u16 = 28;
}

/// `OVS_CT_ATTR_*`
mod ct {
    pub const COMMIT: u16 = 1;
    pub const ZONE: u16 = 2;
    pub const MARK: u16 = 3;
    pub const LABELS: u16 = 4;
    pub const HELPER: u16 = 5;
    pub const NAT: u16 = 6;
    pub const FORCE_COMMIT: u16 = 7;
}

/// `OVS_NAT_ATTR_*`
mod nat {
    pub const SRC: u16 = 1;
    pub const DST: u16 = 2;
    pub const IP_MIN: u16 = 3;
    pub const IP_MAX: u16 = 4;
    pub const PROTO_MIN: u16 = 5;
    pub const PROTO_MAX: u16 = 6;
    pub const PERSISTENT: u16 = 7;
    pub const PROTO_HASH: u16 = 8;
    pub const PROTO_RANDOM: u16 = 9;
}

/// The socket of an upcall: the CPU decides.
const BY_CPU: u32 = u32::MAX;

/// Encodes a list: the contents of `OVS_FLOW_ATTR_ACTIONS`. A list that drops is empty.
///
/// # Errors
/// When the kernel has no such action, or lists are nested too deeply.
pub fn encode(actions: &[Action], numbering: Numbering) -> Result<Vec<u8>, Refused> {
    encode_nested(actions, numbering, 0)
}

/// Encodes a list inside `depth` others.
fn encode_nested(
    actions: &[Action],
    numbering: Numbering,
    depth: usize,
) -> Result<Vec<u8>, Refused> {
    if depth > ACTION_DEPTH_LIMIT {
        return Err(Refused::action("lists are nested too deeply"));
    }
    let mut bytes = Vec::new();
    for action in actions {
        write(&mut bytes, action, numbering, depth)?;
    }
    Ok(bytes)
}

/// Appends what `fill` appends, which may fail, as a nest.
fn try_nest(
    bytes: &mut Vec<u8>,
    kind: u16,
    fill: impl FnOnce(&mut Vec<u8>) -> Result<(), Refused>,
) -> Result<(), Refused> {
    let mut result = Ok(());
    nest(bytes, kind, |inner| result = fill(inner));
    result
}

fn write(
    bytes: &mut Vec<u8>,
    action: &Action,
    numbering: Numbering,
    depth: usize,
) -> Result<(), Refused> {
    let list = |actions: &[Action]| encode_nested(actions, numbering, depth + 1);
    match action {
        Action::Output(port) => {
            let number = numbering.to_kernel(*port).ok_or(Refused {
                refusal: Refusal::PortNotHere,
                words: "the port is none of the kernel's datapath",
            })?;
            put(bytes, attr::OUTPUT, &number.to_ne_bytes());
        }
        Action::LbOutput(_) => {
            return Err(Refused {
                refusal: Refusal::Bond,
                words: "the kernel's datapath does not choose the member of a bond",
            });
        }
        Action::Drop(_) => {}
        Action::Userspace(userdata) => nest(bytes, attr::USERSPACE, |to| {
            put(to, 1, &BY_CPU.to_ne_bytes());
            put(to, 2, &cookie::encode(userdata));
        }),
        Action::Recirc(id) => put(bytes, attr::RECIRC, &id.to_ne_bytes()),
        // As Open vSwitch does on kernels before 6.9, which have one kind of hash. That of most
        // packets is the same in both directions.
        Action::Hash { symmetric: _, basis } => put(bytes, attr::HASH, &words([0, *basis])),
        Action::Trunc(length) => put(bytes, attr::TRUNC, &length.to_ne_bytes()),
        Action::PushVlan { tpid, tci } => {
            let [[t0, t1], [c0, c1]] = [tpid.to_be_bytes(), tci.to_be_bytes()];
            put(bytes, attr::PUSH_VLAN, &[t0, t1, c0, c1]);
        }
        Action::PopVlan => put(bytes, attr::POP_VLAN, &[]),
        Action::PushMpls { lse, ethertype } => {
            let mut value = [0; 8];
            value[..4].copy_from_slice(&lse.to_be_bytes());
            value[4..6].copy_from_slice(&ethertype.to_be_bytes());
            put(bytes, attr::PUSH_MPLS, &value);
        }
        Action::PopMpls { ethertype } => put(bytes, attr::POP_MPLS, &ethertype.to_be_bytes()),
        Action::Set(set) => return write_set(bytes, set),
        Action::Sample { probability, actions } => {
            let list = list(actions)?;
            nest(bytes, attr::SAMPLE, |to| {
                put(to, 1, &probability.to_ne_bytes());
                nest(to, 2, |to| to.extend(list));
            });
        }
        Action::Clone(actions) => {
            let list = list(actions)?;
            nest(bytes, attr::CLONE, |to| to.extend(list));
        }
        Action::Meter(id) => put(bytes, attr::METER, &id.to_ne_bytes()),
        Action::CheckPktLen { len, greater, not_greater } => {
            let (greater, not_greater) = (list(greater)?, list(not_greater)?);
            nest(bytes, attr::CHECK_PKT_LEN, |to| {
                put(to, 1, &len.to_ne_bytes());
                nest(to, 2, |to| to.extend(greater));
                nest(to, 3, |to| to.extend(not_greater));
            });
        }
        Action::Ct(request) => return write_ct(bytes, request),
        Action::CtClear => put(bytes, attr::CT_CLEAR, &[]),
        Action::TunnelPush { .. } | Action::TunnelPop(_) => {
            return Err(Refused::action("the kernel's tunnels are devices"));
        }
        Action::SetTunnel(fields) => {
            let fields = keys::encode_tunnel(fields)?;
            nest(bytes, attr::SET, |to| put(to, key::TUNNEL, &fields));
        }
        Action::PushEth { src, dst } => put(bytes, attr::PUSH_ETH, &[*src, *dst].concat()),
        Action::PopEth => put(bytes, attr::POP_ETH, &[]),
        // In front of the whole packet: without `OVS_MPLS_L3_TUNNEL_FLAG_MASK`.
        Action::AddMpls { lse, ethertype } => {
            let mut value = [0; 8];
            value[..4].copy_from_slice(&lse.to_be_bytes());
            value[4..6].copy_from_slice(&ethertype.to_be_bytes());
            put(bytes, attr::ADD_MPLS, &value);
        }
        Action::PushNsh(header) => write_nsh(bytes, header)?,
        Action::PopNsh => put(bytes, attr::POP_NSH, &[]),
    }
    Ok(())
}

/// A header to push. The kernel requires metadata. It takes type 2, too, but Linux 6.1 warns of an
/// overrun when it copies that, which ends a host with `panic_on_warn`.
fn write_nsh(bytes: &mut Vec<u8>, header: &PushedNsh) -> Result<(), Refused> {
    let fields = &header.fields;
    if fields.mdtype != NshHeader::MD_TYPE_1 {
        return Err(Refused::action("NSH is pushed with metadata of type 1 alone"));
    }
    nest(bytes, attr::PUSH_NSH, |to| {
        nest(to, key::NSH, |to| {
            put(to, nsh::BASE, &nsh::base(fields));
            put(to, nsh::MD1, &nsh::context(fields));
        });
    });
    Ok(())
}

fn parse_nsh(bytes: &[u8]) -> Option<PushedNsh> {
    let bytes = find(bytes, key::NSH)?;
    let fields = nsh::decode(bytes).filter(|fields| fields.mdtype == NshHeader::MD_TYPE_1)?;
    Some(PushedNsh { fields, metadata: Vec::new() })
}

fn words<const N: usize>(words: [u32; N]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// A set: the values, and then the masks.
fn write_set(bytes: &mut Vec<u8>, set: &Set) -> Result<(), Refused> {
    /// Puts value and mask of a field at an offset.
    fn at<const N: usize>(parts: &mut [Vec<u8>; 2], offset: usize, field: &Masked<[u8; N]>) {
        let [value, mask] = parts;
        for (part, bytes) in [(value, field.value), (mask, field.mask)] {
            if let Some(place) = part.get_mut(offset..offset + N) {
                place.copy_from_slice(&bytes);
            }
        }
    }
    fn be16(field: &Masked<u16>) -> Masked<[u8; 2]> {
        Masked { value: field.value.to_be_bytes(), mask: field.mask.to_be_bytes() }
    }
    fn byte(field: &Masked<u8>) -> Masked<[u8; 1]> {
        Masked { value: [field.value], mask: [field.mask] }
    }
    let empty = |length: usize| [vec![0; length], vec![0; length]];
    let ports = |src: &Masked<u16>, dst: &Masked<u16>| {
        let mut parts = empty(4);
        at(&mut parts, 0, &be16(src));
        at(&mut parts, 2, &be16(dst));
        parts
    };
    let (kind, parts) = match set {
        Set::Ethernet { src, dst } => {
            let mut parts = empty(12);
            at(&mut parts, 0, src);
            at(&mut parts, 6, dst);
            (key::ETHERNET, parts)
        }
        Set::Ipv4 { src, dst, tos, ttl } => {
            let mut parts = empty(12);
            at(&mut parts, 0, src);
            at(&mut parts, 4, dst);
            at(&mut parts, 9, &byte(tos));
            at(&mut parts, 10, &byte(ttl));
            (key::IPV4, parts)
        }
        Set::Ipv6 { src, dst, label, tclass, hlimit } => {
            let mut parts = empty(40);
            at(&mut parts, 0, src);
            at(&mut parts, 16, dst);
            let label = Masked { value: label.value.to_be_bytes(), mask: label.mask.to_be_bytes() };
            at(&mut parts, 32, &label);
            at(&mut parts, 37, &byte(tclass));
            at(&mut parts, 38, &byte(hlimit));
            (key::IPV6, parts)
        }
        Set::Tcp { src, dst } => (key::TCP, ports(src, dst)),
        Set::Udp { src, dst } => (key::UDP, ports(src, dst)),
        Set::Sctp { src, dst } => (key::SCTP, ports(src, dst)),
        Set::Mpls(entry) => {
            let parts = [entry.value.to_be_bytes().to_vec(), entry.mask.to_be_bytes().to_vec()];
            (key::MPLS, parts)
        }
        Set::Priority(priority) => {
            (key::PRIORITY, [priority.to_ne_bytes().to_vec(), vec![0xff; 4]])
        }
        Set::Mark(mark) => {
            let parts = [mark.value.to_ne_bytes().to_vec(), mark.mask.to_ne_bytes().to_vec()];
            (key::SKB_MARK, parts)
        }
        Set::Icmp { .. } => return Err(Refused::action("the kernel does not set fields of ICMP")),
        Set::Arp { .. } => return Err(Refused::action("the kernel does not set fields of ARP")),
        // Linux 6.18 has removed an action for that, which no earlier kernel took.
        Set::Nsh { .. } => return Err(Refused::action("the kernel does not set fields of NSH")),
        Set::Nd { .. } | Set::NdExtensions { .. } => {
            return Err(Refused::action("the kernel does not set fields of neighbour messages"));
        }
    };
    nest(bytes, attr::SET_MASKED, |to| put(to, kind, &parts.concat()));
    Ok(())
}

fn write_ct(bytes: &mut Vec<u8>, request: &Request) -> Result<(), Refused> {
    if request.policy != 0 {
        let words = "timeout policies of the kernel are not encoded";
        return Err(Refused { refusal: Refusal::UnsupportedAction, words });
    }
    try_nest(bytes, attr::CT, |to| {
        match request.commit {
            Commit::No => {}
            Commit::Yes => put(to, ct::COMMIT, &[]),
            Commit::Force => put(to, ct::FORCE_COMMIT, &[]),
        }
        if request.zone != 0 {
            put(to, ct::ZONE, &request.zone.to_ne_bytes());
        }
        if let Some((value, mask)) = request.mark {
            put(to, ct::MARK, &words([value, mask]));
        }
        if let Some((value, mask)) = request.label {
            put(to, ct::LABELS, &[value.to_le_bytes(), mask.to_le_bytes()].concat());
        }
        if let Some(helper) = request.helper {
            put(to, ct::HELPER, format!("{}\0", helper.name()).as_bytes());
        }
        match &request.nat {
            None => Ok(()),
            Some(Nat::Existing) => {
                put(to, ct::NAT, &[]);
                Ok(())
            }
            Some(Nat::Range(range)) => {
                nest(to, ct::NAT, |to| write_range(to, range));
                Ok(())
            }
        }
    })
}

fn write_range(to: &mut Vec<u8>, range: &NatRange) {
    put(to, if range.manip == Manip::Src { nat::SRC } else { nat::DST }, &[]);
    if let Some((first, last)) = range.addresses {
        for (kind, address) in [(nat::IP_MIN, first), (nat::IP_MAX, last)] {
            match address {
                IpAddr::V4(address) => put(to, kind, &address.octets()),
                IpAddr::V6(address) => put(to, kind, &address.octets()),
            }
        }
    }
    if let Some((first, last)) = range.ports {
        put(to, nat::PROTO_MIN, &first.to_ne_bytes());
        put(to, nat::PROTO_MAX, &last.to_ne_bytes());
    }
    if range.persistent {
        put(to, nat::PERSISTENT, &[]);
    }
    match range.selection {
        Selection::Default => {}
        Selection::Hash => put(to, nat::PROTO_HASH, &[]),
        Selection::Random => put(to, nat::PROTO_RANDOM, &[]),
    }
}

/// Decodes a list of a megaflow that the kernel has. `None` when it has something that [`encode`] does
/// not make.
pub fn decode(bytes: &[u8], numbering: Numbering) -> Option<Vec<Action>> {
    read(bytes).map(|(kind, value)| parse(kind, value, numbering)).collect()
}

/// A value that has exactly these bytes.
fn whole<const N: usize>(value: &[u8]) -> Option<[u8; N]> {
    value.try_into().ok()
}

fn parse(kind: u16, value: &[u8], numbering: Numbering) -> Option<Action> {
    let word = || Some(u32::from_ne_bytes(whole(value)?));
    let list = |kind| decode(find(value, kind).unwrap_or_default(), numbering);
    Some(match kind {
        attr::OUTPUT => Action::Output(numbering.to_switch(word()?)),
        attr::USERSPACE => Action::Userspace(cookie::decode(find(value, 2)?)?),
        attr::RECIRC => Action::Recirc(word()?),
        attr::HASH => {
            let basis = u32::from_ne_bytes(array(value.get(4..)?)?);
            (array::<4>(value)? == [0; 4]).then_some(())?;
            Action::Hash { symmetric: false, basis }
        }
        attr::TRUNC => Action::Trunc(word()?),
        attr::PUSH_VLAN => Action::PushVlan {
            tpid: u16::from_be_bytes(array(value)?),
            tci: u16::from_be_bytes(array(value.get(2..)?)?),
        },
        attr::POP_VLAN => Action::PopVlan,
        attr::PUSH_MPLS => Action::PushMpls {
            lse: u32::from_be_bytes(array(value)?),
            ethertype: u16::from_be_bytes(array(value.get(4..)?)?),
        },
        attr::POP_MPLS => Action::PopMpls { ethertype: u16::from_be_bytes(whole(value)?) },
        attr::SET_MASKED => {
            let (kind, value) = read(value).next()?;
            Action::Set(parse_set(kind, value)?)
        }
        attr::SET => {
            let (kind, value) = read(value).next()?;
            (kind == key::TUNNEL).then_some(())?;
            Action::SetTunnel(Box::new(keys::decode_tunnel(value)?))
        }
        attr::SAMPLE => Action::Sample {
            probability: u32::from_ne_bytes(array(find(value, 1)?)?),
            actions: list(2)?,
        },
        attr::CLONE => Action::Clone(decode(value, numbering)?),
        attr::METER => Action::Meter(word()?),
        attr::CHECK_PKT_LEN => Action::CheckPktLen {
            len: u16::from_ne_bytes(array(find(value, 1)?)?),
            greater: list(2)?,
            not_greater: list(3)?,
        },
        attr::CT => Action::Ct(Box::new(parse_ct(value)?)),
        attr::CT_CLEAR => Action::CtClear,
        attr::PUSH_ETH => Action::PushEth { src: array(value)?, dst: array(value.get(6..)?)? },
        attr::POP_ETH => Action::PopEth,
        attr::ADD_MPLS => {
            // The flag of labels after the Ethernet header is clear.
            (value.get(6..)? == [0; 2]).then_some(())?;
            Action::AddMpls {
                lse: u32::from_be_bytes(array(value)?),
                ethertype: u16::from_be_bytes(array(value.get(4..)?)?),
            }
        }
        attr::PUSH_NSH => Action::PushNsh(Box::new(parse_nsh(value)?)),
        attr::POP_NSH => Action::PopNsh,
        _ => return None,
    })
}

fn parse_set(kind: u16, bytes: &[u8]) -> Option<Set> {
    let (value, mask) = bytes.split_at_checked(bytes.len() / 2)?;
    fn field<const N: usize>(value: &[u8], mask: &[u8], at: usize) -> Option<Masked<[u8; N]>> {
        Some(Masked { value: array(value.get(at..)?)?, mask: array(mask.get(at..)?)? })
    }
    let be16 = |at| {
        let Masked { value, mask } = field(value, mask, at)?;
        Some(Masked { value: u16::from_be_bytes(value), mask: u16::from_be_bytes(mask) })
    };
    let byte = |at| {
        let Masked { value: [value], mask: [mask] } = field(value, mask, at)?;
        Some(Masked { value, mask })
    };
    Some(match kind {
        key::ETHERNET => Set::Ethernet { src: field(value, mask, 0)?, dst: field(value, mask, 6)? },
        key::IPV4 => Set::Ipv4 {
            src: field(value, mask, 0)?,
            dst: field(value, mask, 4)?,
            tos: byte(9)?,
            ttl: byte(10)?,
        },
        key::IPV6 => {
            let Masked { value: label, mask: label_mask } = field(value, mask, 32)?;
            Set::Ipv6 {
                src: field(value, mask, 0)?,
                dst: field(value, mask, 16)?,
                label: Masked {
                    value: u32::from_be_bytes(label),
                    mask: u32::from_be_bytes(label_mask),
                },
                tclass: byte(37)?,
                hlimit: byte(38)?,
            }
        }
        key::TCP => Set::Tcp { src: be16(0)?, dst: be16(2)? },
        key::UDP => Set::Udp { src: be16(0)?, dst: be16(2)? },
        key::SCTP => Set::Sctp { src: be16(0)?, dst: be16(2)? },
        key::MPLS => Set::Mpls(Masked {
            value: u32::from_be_bytes(whole(value)?),
            mask: u32::from_be_bytes(whole(mask)?),
        }),
        key::PRIORITY => Set::Priority(u32::from_ne_bytes(whole(value)?)),
        key::SKB_MARK => Set::Mark(Masked {
            value: u32::from_ne_bytes(whole(value)?),
            mask: u32::from_ne_bytes(whole(mask)?),
        }),
        _ => return None,
    })
}

fn parse_ct(bytes: &[u8]) -> Option<Request> {
    let mut request = Request::default();
    for (kind, value) in read(bytes) {
        match kind {
            ct::COMMIT => request.commit = Commit::Yes,
            ct::FORCE_COMMIT => request.commit = Commit::Force,
            ct::ZONE => request.zone = u16::from_ne_bytes(whole(value)?),
            ct::MARK => {
                let mask = u32::from_ne_bytes(array(value.get(4..)?)?);
                request.mark = Some((u32::from_ne_bytes(array(value)?), mask));
            }
            ct::LABELS => {
                let mask = u128::from_le_bytes(array(value.get(16..)?)?);
                request.label = Some((u128::from_le_bytes(array(value)?), mask));
            }
            ct::HELPER => {
                let name = std::str::from_utf8(value).ok()?.trim_end_matches('\0');
                request.helper = Some(Helper::from_name(name)?);
            }
            ct::NAT => request.nat = Some(parse_nat(value)?),
            _ => return None,
        }
    }
    Some(request)
}

fn parse_nat(bytes: &[u8]) -> Option<Nat> {
    let has = |kind| find(bytes, kind).is_some();
    let manip = match (has(nat::SRC), has(nat::DST)) {
        (false, false) => return Some(Nat::Existing),
        (true, false) => Manip::Src,
        (false, true) => Manip::Dst,
        (true, true) => return None,
    };
    let address = |kind| {
        let value = find(bytes, kind)?;
        let v4 = whole::<4>(value).map(IpAddr::from);
        v4.or_else(|| whole::<16>(value).map(IpAddr::from))
    };
    let port = |kind| Some(u16::from_ne_bytes(whole(find(bytes, kind)?)?));
    let first = address(nat::IP_MIN);
    let low = port(nat::PROTO_MIN);
    Some(Nat::Range(NatRange {
        manip,
        addresses: first.map(|first| (first, address(nat::IP_MAX).unwrap_or(first))),
        ports: low.map(|low| (low, port(nat::PROTO_MAX).unwrap_or(low))),
        selection: match (has(nat::PROTO_HASH), has(nat::PROTO_RANDOM)) {
            (_, true) => Selection::Random,
            (true, false) => Selection::Hash,
            (false, false) => Selection::Default,
        },
        persistent: has(nat::PERSISTENT),
    }))
}
