// SPDX-License-Identifier: Apache-2.0
//! The actions of a filter (include/uapi/linux/pkt_cls.h, tc_act/*.h). Each says what follows after
//! it: by `pipe` the next action, and by anything else nothing.

use crate::policer::{self, Policer, PolicerCounts};
use netdev::police::Onward;
use netlink::attribute::{array, find, nest, put, read};

/// `TC_ACT_SHOT`
const SHOT: i32 = 2;
/// `TC_ACT_PIPE`
const PIPE: i32 = 3;
/// `TC_ACT_STOLEN`
const STOLEN: i32 = 4;
/// `TC_ACT_GOTO_CHAIN`, which has the chain in its low 28 bits.
const GOTO_CHAIN: u32 = 2 << 28;
/// The highest number of a chain.
pub const LAST_CHAIN: u32 = (1 << 28) - 1;

/// `TCA_ACT_KIND` and its like.
const KIND: u16 = 1;
const OPTIONS: u16 = 2;
/// `TCA_ACT_STATS`
pub(crate) const STATS: u16 = 4;
/// The kind of [`Act::Police`].
const POLICE: &str = "police";
const COOKIE: u16 = 6;

/// The layer that the offset of an edit counts from (`TCA_PEDIT_KEY_EX_HDR_TYPE_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Layer {
    /// The Ethernet header.
    Ethernet = 1,
    /// The IPv4 header.
    Ipv4 = 2,
    /// The IPv6 header.
    Ipv6 = 3,
    /// The TCP header.
    Tcp = 4,
    /// The UDP header.
    Udp = 5,
}

impl Layer {
    fn of(number: u16) -> Option<Layer> {
        use Layer::{Ethernet, Ipv4, Ipv6, Tcp, Udp};
        [Ethernet, Ipv4, Ipv6, Tcp, Udp].into_iter().find(|layer| *layer as u16 == number)
    }
}

/// Sets bits of four bytes of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Edit {
    /// Where `offset` counts from.
    pub layer: Layer,
    /// Of the first of four bytes; a multiple of four.
    pub offset: u32,
    /// The bytes, in network order; zero outside of the mask.
    pub value: [u8; 4],
    /// The bits that are set.
    pub mask: [u8; 4],
}

/// Where `mirred` sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Out by the device.
    Egress,
    /// In by the device, to the host's stack.
    Ingress,
}

/// The outer headers that `tunnel_key` sets. Addresses are in network byte order, numbers are host
/// integers.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct TunnelKey {
    /// IPv4 source and destination; zero for IPv6.
    pub ipv4: ([u8; 4], [u8; 4]),
    /// IPv6 source and destination; zero for IPv4.
    pub ipv6: ([u8; 16], [u8; 16]),
    /// The tunnel's key; `None` for none.
    pub id: Option<u64>,
    /// Destination port of UDP; 0 for the device's.
    pub dst_port: u16,
    /// The outer UDP header has no checksum.
    pub no_csum: bool,
    /// Type of service.
    pub tos: u8,
    /// Time to live.
    pub ttl: u8,
    /// Nested options as attributes, as [`crate::options`] writes them; empty for none.
    pub options: Vec<u8>,
    /// The outer IPv4 header has DF. A kernel before Linux 6.11 does not know this.
    pub has_df: bool,
}

/// The translation of addresses in a new connection. Values are in network byte order, ports are host
/// integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Nat {
    /// The source is translated, else the destination; `None` as the connection has it.
    pub source: Option<bool>,
    /// Range of IPv4 addresses.
    pub ipv4: Option<([u8; 4], [u8; 4])>,
    /// Range of IPv6 addresses.
    pub ipv6: Option<([u8; 16], [u8; 16])>,
    /// Range of ports.
    pub ports: Option<(u16, u16)>,
}

/// The parameters of `ct`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Ct {
    /// Puts the connection into the table.
    pub commit: bool,
    /// Ends a connection of the other direction first.
    pub force: bool,
    /// The zone.
    pub zone: u16,
    /// Mark and its mask, host integers.
    pub mark: (u32, u32),
    /// Label and its mask, as the kernel stores them.
    pub label: ([u8; 16], [u8; 16]),
    /// The translation of addresses; `None` for none.
    pub nat: Option<Nat>,
}

/// An action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Drops the packet.
    Drop,
    /// Goes on with the filters of a chain.
    Goto(u32),
    /// Sends the packet, if it is the `last` action, else a copy.
    Send {
        /// The device.
        ifindex: u32,
        /// Out of it or into it.
        direction: Direction,
        /// Nothing follows.
        last: bool,
    },
    /// Takes the outermost VLAN header off.
    PopVlan,
    /// Puts one on.
    PushVlan {
        /// Tag protocol.
        tpid: u16,
        /// VLAN id.
        vid: u16,
        /// The priority in the header, from 0 to 7.
        priority: u8,
    },
    /// Takes the outermost MPLS entry off.
    PopMpls {
        /// Ethernet type of what is below.
        ethertype: u16,
    },
    /// Puts one on.
    PushMpls {
        /// Ethernet type.
        ethertype: u16,
        /// The entry, host integer.
        entry: u32,
    },
    /// Sets the outermost MPLS entry whole.
    SetMpls(u32),
    /// Edits of headers; at most 255.
    Edit(Vec<Edit>),
    /// Computes checksums again: bits of `TCA_CSUM_UPDATE_FLAG_*`.
    Checksum(u32),
    /// Sets the outer headers for a tunnel device.
    SetTunnel(Box<TunnelKey>),
    /// Forgets the outer headers.
    ReleaseTunnel,
    /// Tracks the connection.
    Ct(Box<Ct>),
    /// Forgets the connection.
    ClearCt,
    /// Drops what exceeds a rate.
    Police(Policer),
    /// Gives the packet to the host, whatever its address.
    ToHost,
}

/// Bits of [`Act::Checksum`].
pub mod checksum {
    /// The IPv4 header.
    pub const IPV4: u32 = 1;
    /// ICMP.
    pub const ICMP: u32 = 2;
    /// IGMP.
    pub const IGMP: u32 = 4;
    /// TCP.
    pub const TCP: u32 = 8;
    /// UDP.
    pub const UDP: u32 = 16;
}

/// `tc_gen`: index, capabilities, action, references, bindings.
fn general(action: i32) -> Vec<u8> {
    let words = [0, 0, action, 0, 0];
    words.iter().flat_map(|word: &i32| word.to_ne_bytes()).collect()
}

/// `tc_gen` and a word.
fn general_and(action: i32, word: u32) -> Vec<u8> {
    let mut bytes = general(action);
    bytes.extend_from_slice(&word.to_ne_bytes());
    bytes
}

/// The action in `tc_gen`, and the word after the structure.
fn action_of(parameters: &[u8]) -> Option<(i32, u32)> {
    let action = i32::from_ne_bytes(array(parameters.get(8..)?)?);
    let behind = parameters.get(20..).and_then(array::<4>).map_or(0, u32::from_ne_bytes);
    Some((action, behind))
}

impl Act {
    /// The name of the kernel's action.
    pub fn kind(&self) -> &'static str {
        match self {
            Act::Drop | Act::Goto(_) => "gact",
            Act::Send { .. } => "mirred",
            Act::PopVlan | Act::PushVlan { .. } => "vlan",
            Act::PopMpls { .. } | Act::PushMpls { .. } | Act::SetMpls(_) => "mpls",
            Act::Edit(_) => "pedit",
            Act::Checksum(_) => "csum",
            Act::SetTunnel(_) | Act::ReleaseTunnel => "tunnel_key",
            Act::Ct(_) | Act::ClearCt => "ct",
            Act::Police(_) => POLICE,
            Act::ToHost => "skbedit",
        }
    }

    fn options(&self, bytes: &mut Vec<u8>) {
        match self {
            Act::Drop => put(bytes, 2, &general(SHOT)),
            Act::Goto(chain) => {
                let action = GOTO_CHAIN | (chain & LAST_CHAIN);
                put(bytes, 2, &general(action.cast_signed()));
            }
            Act::Send { ifindex, direction, last } => {
                let (action, redirect) = if *last { (STOLEN, 0) } else { (PIPE, 1) };
                let kind = redirect + if *direction == Direction::Egress { 1 } else { 3 };
                let mut parameters = general_and(action, kind);
                parameters.extend_from_slice(&ifindex.to_ne_bytes());
                put(bytes, 2, &parameters);
            }
            Act::PopVlan => put(bytes, 2, &general_and(PIPE, 1)),
            Act::PushVlan { tpid, vid, priority } => {
                put(bytes, 2, &general_and(PIPE, 2));
                put(bytes, 3, &vid.to_ne_bytes());
                put(bytes, 4, &tpid.to_be_bytes());
                put(bytes, 6, &[*priority]);
            }
            Act::PopMpls { ethertype } => {
                put(bytes, 2, &general_and(PIPE, 1));
                put(bytes, 4, &ethertype.to_be_bytes());
            }
            Act::PushMpls { ethertype, entry } => {
                put(bytes, 2, &general_and(PIPE, 2));
                put(bytes, 4, &ethertype.to_be_bytes());
                put_entry(bytes, *entry);
            }
            Act::SetMpls(entry) => {
                put(bytes, 2, &general_and(PIPE, 3));
                put_entry(bytes, *entry);
            }
            Act::Edit(edits) => put_edits(bytes, edits),
            Act::Checksum(flags) => put(bytes, 1, &general_and(PIPE, *flags)),
            Act::SetTunnel(key) => put_tunnel(bytes, key),
            Act::ReleaseTunnel => put(bytes, 2, &general_and(PIPE, 2)),
            Act::Ct(ct) => put_ct(bytes, ct),
            Act::ClearCt => {
                put(bytes, 1, &general(PIPE));
                put(bytes, 3, &4u16.to_ne_bytes());
            }
            Act::Police(policer) => policer.write(bytes, Onward::Action),
            Act::ToHost => {
                put(bytes, 2, &general(PIPE));
                put(bytes, 7, &0u16.to_ne_bytes()); // PACKET_HOST
            }
        }
    }

    /// Appends the attributes of one action of a list.
    fn write(&self, bytes: &mut Vec<u8>, cookie: Option<[u8; 16]>) {
        put(bytes, KIND, format!("{}\0", self.kind()).as_bytes());
        nest(bytes, OPTIONS, |bytes| self.options(bytes));
        if let Some(cookie) = cookie {
            put(bytes, COOKIE, &cookie);
        }
    }

    /// Reads the options of an action of this kind.
    fn read(kind: &str, options: &[u8]) -> Option<Act> {
        if kind == POLICE {
            return Policer::read(options).map(Act::Police);
        }
        // `csum` and `ct` have their parameters first, others after the times.
        let parameters = match kind {
            "csum" | "ct" => find(options, 1)?,
            "pedit" => find(options, 4)?,
            _ => find(options, 2)?,
        };
        let (action, word) = action_of(parameters)?;
        let number = |kind| find(options, kind).and_then(array::<2>);
        let be16 = |kind| number(kind).map(u16::from_be_bytes);
        let byte = |kind| find(options, kind).and_then(|value| value.first().copied());
        let act = match (kind, word) {
            // With `TCA_GACT_PROB` another action is chosen at random.
            ("gact", _) if find(options, 3).is_some() => return None,
            ("gact", _) if action == SHOT => return Some(Act::Drop),
            ("gact", _) if action.cast_unsigned() & !LAST_CHAIN == GOTO_CHAIN => {
                return Some(Act::Goto(action.cast_unsigned() & LAST_CHAIN));
            }
            ("mirred", 1..=4) => {
                let last = word % 2 == 1;
                if action != if last { STOLEN } else { PIPE } {
                    return None;
                }
                let ifindex = u32::from_ne_bytes(array(parameters.get(24..)?)?);
                let direction = if word <= 2 { Direction::Egress } else { Direction::Ingress };
                return Some(Act::Send { ifindex, direction, last });
            }
            ("vlan", 1) => Act::PopVlan,
            ("vlan", 2) => Act::PushVlan {
                tpid: be16(4)?,
                vid: u16::from_ne_bytes(number(3)?),
                priority: byte(6).unwrap_or_default(),
            },
            ("mpls", 1) => Act::PopMpls { ethertype: be16(4)? },
            ("mpls", 2) => Act::PushMpls { ethertype: be16(4)?, entry: entry_of(options)? },
            ("mpls", 3) => Act::SetMpls(entry_of(options)?),
            ("pedit", _) => Act::Edit(edits_of(parameters, find(options, 5)?)?),
            ("csum", flags) => Act::Checksum(flags),
            ("tunnel_key", 1) => Act::SetTunnel(Box::new(tunnel_of(options)?)),
            ("tunnel_key", 2) => Act::ReleaseTunnel,
            ("ct", _) => {
                let flags = u16::from_ne_bytes(number(3).unwrap_or_default());
                if flags & 4 != 0 {
                    Act::ClearCt
                } else {
                    Act::Ct(Box::new(ct_of(flags, options)?))
                }
            }
            ("skbedit", _) if number(7) == Some([0; 2]) => Act::ToHost,
            _ => return None,
        };
        (action == PIPE).then_some(act)
    }
}

/// Appends the numbered actions of a filter. The last one gets the cookie.
///
/// The kernel takes 32 actions at most.
pub fn write(bytes: &mut Vec<u8>, acts: &[Act], cookie: [u8; 16]) {
    for (number, act) in (1..).zip(acts) {
        let cookie = (usize::from(number) == acts.len()).then_some(cookie);
        nest(bytes, number, |bytes| act.write(bytes, cookie));
    }
}

/// Reads the actions of a filter, and the cookie of the last. `None` when one is of a kind or a form
/// that [`write()`] does not make.
pub fn parse(bytes: &[u8]) -> Option<(Vec<Act>, Option<[u8; 16]>)> {
    let (mut acts, mut cookie) = (Vec::new(), None);
    for (_, act) in read(bytes) {
        let kind = std::str::from_utf8(find(act, KIND)?).ok()?;
        acts.push(Act::read(kind.trim_end_matches('\0'), find(act, OPTIONS)?)?);
        cookie = find(act, COOKIE).and_then(array);
    }
    Some((acts, cookie))
}

/// Reads the index and the counts of one of the actions of a filter, if it is a policer.
pub(crate) fn policer_counts(act: &[u8]) -> Option<(u32, PolicerCounts)> {
    let kind = find(act, KIND)?;
    if kind.strip_suffix(&[0]).unwrap_or(kind) != POLICE.as_bytes() {
        return None;
    }
    policer::counts(find(act, OPTIONS)?, find(act, STATS).unwrap_or_default())
}

/// Label, traffic class, bottom of stack and TTL of an MPLS entry.
fn put_entry(bytes: &mut Vec<u8>, entry: u32) {
    put(bytes, 5, &(entry >> 12).to_ne_bytes());
    put(bytes, 6, &[(entry >> 9 & 7) as u8]);
    put(bytes, 7, &[entry as u8]);
    put(bytes, 8, &[(entry >> 8 & 1) as u8]);
}

fn entry_of(options: &[u8]) -> Option<u32> {
    let byte = |kind| find(options, kind)?.first().copied().map(u32::from);
    let label = u32::from_ne_bytes(array(find(options, 5)?)?);
    Some(label << 12 | (byte(6)? & 7) << 9 | (byte(8)? & 1) << 8 | byte(7)?)
}

/// `struct tc_pedit_sel` with its keys, and the nested layers.
fn put_edits(bytes: &mut Vec<u8>, edits: &[Edit]) {
    let edits = edits.get(..255).unwrap_or(edits);
    let mut parameters = general(PIPE);
    parameters.extend([edits.len() as u8, 0, 0, 0]);
    for edit in edits {
        // The bits that stay, then those that are set.
        parameters.extend(edit.mask.map(|byte| !byte));
        parameters.extend(edit.value);
        parameters.extend(edit.offset.to_ne_bytes());
        parameters.extend([0; 12]);
    }
    put(bytes, 4, &parameters);
    nest(bytes, 5, |bytes| {
        for edit in edits {
            nest(bytes, 6, |bytes| {
                put(bytes, 1, &(edit.layer as u16).to_ne_bytes());
                put(bytes, 2, &0u16.to_ne_bytes()); // set
            });
        }
    });
}

fn edits_of(parameters: &[u8], layers: &[u8]) -> Option<Vec<Edit>> {
    let count = usize::from(*parameters.get(20)?);
    let (keys, _) = parameters.get(24..)?.as_chunks::<24>();
    let keys = keys.get(..count)?;
    let layers: Vec<&[u8]> = read(layers).map(|(_, value)| value).collect();
    if layers.len() != count {
        return None;
    }
    let edit = |(key, layer): (&[u8; 24], &&[u8])| {
        let is_set = find(layer, 2).is_none_or(|command| command == [0, 0]);
        let [m0, m1, m2, m3, v0, v1, v2, v3, rest @ ..] = *key;
        let mask = [m0, m1, m2, m3].map(|byte| !byte);
        let layer = Layer::of(u16::from_ne_bytes(array(find(layer, 1)?)?))?;
        let offset = u32::from_ne_bytes(array(&rest)?);
        // The other words make the offset depend on the packet.
        let is_fixed = rest.iter().skip(4).all(|byte| *byte == 0);
        (is_set && is_fixed).then_some(Edit { layer, offset, value: [v0, v1, v2, v3], mask })
    };
    keys.iter().zip(&layers).map(edit).collect()
}

fn put_tunnel(bytes: &mut Vec<u8>, key: &TunnelKey) {
    put(bytes, 2, &general_and(PIPE, 1));
    if key.ipv6 == ([0; 16], [0; 16]) {
        put(bytes, 3, &key.ipv4.0);
        put(bytes, 4, &key.ipv4.1);
    } else {
        put(bytes, 5, &key.ipv6.0);
        put(bytes, 6, &key.ipv6.1);
    }
    if let Some(id) = key.id {
        put(bytes, 7, &(id as u32).to_be_bytes());
    }
    if key.dst_port != 0 {
        put(bytes, 9, &key.dst_port.to_be_bytes());
    }
    put(bytes, 10, &[u8::from(key.no_csum)]);
    if !key.options.is_empty() {
        put(bytes, 11, &key.options);
    }
    put(bytes, 12, &[key.tos]);
    put(bytes, 13, &[key.ttl]);
    if key.has_df {
        put(bytes, 14, &[]); // TCA_TUNNEL_KEY_NO_FRAG
    }
}

fn tunnel_of(options: &[u8]) -> Option<TunnelKey> {
    let byte = |kind| find(options, kind).and_then(|v| v.first().copied()).unwrap_or_default();
    let ipv4 = |kind| find(options, kind).and_then(array::<4>).unwrap_or_default();
    let ipv6 = |kind| find(options, kind).and_then(array::<16>).unwrap_or_default();
    Some(TunnelKey {
        ipv4: (ipv4(3), ipv4(4)),
        ipv6: (ipv6(5), ipv6(6)),
        id: find(options, 7).and_then(array).map(|id| u32::from_be_bytes(id).into()),
        dst_port: find(options, 9).and_then(array).map_or(0, u16::from_be_bytes),
        no_csum: byte(10) != 0,
        tos: byte(12),
        ttl: byte(13),
        options: crate::options::settled(find(options, 11).unwrap_or_default()),
        has_df: find(options, 14).is_some(),
    })
}

/// Bits of `TCA_CT_ACTION`.
mod ct_flag {
    pub const COMMIT: u16 = 1;
    pub const FORCE: u16 = 2;
    pub const NAT: u16 = 8;
    pub const SRC: u16 = 16;
    pub const DST: u16 = 32;
}

fn put_ct(bytes: &mut Vec<u8>, ct: &Ct) {
    let mut flags = 0;
    flags |= if ct.commit { ct_flag::COMMIT } else { 0 };
    flags |= if ct.force { ct_flag::FORCE } else { 0 };
    if let Some(nat) = &ct.nat {
        flags |= ct_flag::NAT;
        flags |= match nat.source {
            None => 0,
            Some(true) => ct_flag::SRC,
            Some(false) => ct_flag::DST,
        };
    }
    put(bytes, 1, &general(PIPE));
    put(bytes, 3, &flags.to_ne_bytes());
    put(bytes, 4, &ct.zone.to_ne_bytes());
    if ct.mark.1 != 0 {
        put(bytes, 5, &ct.mark.0.to_ne_bytes());
        put(bytes, 6, &ct.mark.1.to_ne_bytes());
    }
    if ct.label.1 != [0; 16] {
        put(bytes, 7, &ct.label.0);
        put(bytes, 8, &ct.label.1);
    }
    let Some(nat) = &ct.nat else { return };
    if let Some((first, last)) = nat.ipv4 {
        put(bytes, 9, &first);
        put(bytes, 10, &last);
    }
    if let Some((first, last)) = nat.ipv6 {
        put(bytes, 11, &first);
        put(bytes, 12, &last);
    }
    if let Some((first, last)) = nat.ports {
        put(bytes, 13, &first.to_be_bytes());
        put(bytes, 14, &last.to_be_bytes());
    }
}

fn ct_of(flags: u16, options: &[u8]) -> Option<Ct> {
    fn range<const N: usize>(options: &[u8], first: u16) -> Option<([u8; N], [u8; N])> {
        let low = array(find(options, first)?)?;
        // The kernel leaves the end out where it equals the beginning.
        Some((low, find(options, first + 1).and_then(array).unwrap_or(low)))
    }
    let source = match flags & (ct_flag::SRC | ct_flag::DST) {
        0 => None,
        ct_flag::SRC => Some(true),
        ct_flag::DST => Some(false),
        _ => return None,
    };
    let ports = range::<2>(options, 13);
    let nat = Nat {
        source,
        ipv4: range(options, 9),
        ipv6: range(options, 11),
        ports: ports.map(|(low, high)| (u16::from_be_bytes(low), u16::from_be_bytes(high))),
    };
    let word = |kind| find(options, kind).and_then(array).map_or(0, u32::from_ne_bytes);
    let label = |kind| find(options, kind).and_then(array::<16>).unwrap_or_default();
    Some(Ct {
        commit: flags & ct_flag::COMMIT != 0,
        force: flags & ct_flag::FORCE != 0,
        zone: find(options, 4).and_then(array).map_or(0, u16::from_ne_bytes),
        mark: (word(5), word(6)),
        label: (label(7), label(8)),
        nat: (flags & ct_flag::NAT != 0).then_some(nat),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The options of an action with a change to them.
    fn changed(act: &Act, change: impl FnOnce(&mut Vec<u8>)) -> Option<Act> {
        let mut options = Vec::new();
        act.options(&mut options);
        assert_eq!(Act::read(act.kind(), &options).as_ref(), Some(act));
        change(&mut options);
        Act::read(act.kind(), &options)
    }

    #[test]
    fn actions_that_depend_on_chance_or_on_the_packet_are_not_read() {
        // TCA_GACT_PROB: another action for every second packet.
        let random = |options: &mut Vec<u8>| put(options, 3, &[1, 0, 2, 0, 0, 0, 0, 0]);
        assert_eq!(changed(&Act::Drop, random), None);
        let edit = Edit { layer: Layer::Ipv4, offset: 16, value: [1; 4], mask: [0xff; 4] };
        // `at` of the key: 4 bytes of header, 24 of the selection, mask, value and offset before it.
        let moving = |options: &mut Vec<u8>| options[4 + 24 + 12] = 1;
        assert_eq!(changed(&Act::Edit(vec![edit]), moving), None);
    }
}
