// SPDX-License-Identifier: Apache-2.0
//! Connection tracking in the plainest form: a list of connections, searched from its start.
//!
//! Nothing of crate `conntrack` is used but the arguments of the action. Not here: helpers,
//! fragments, limits, timeout policies, ranges of more than one address or port. SCTP is tracked by
//! ports.

use crate::edit::{self, be16, change, crc, frame, moved, store16, sum};
use clock::Millis;
use conntrack::{Commit, Manip, Nat, NatRange, Request};
use datapath::{Masked, Set};
use flow::Key;
use flow::ct_state::{DNAT, EST, INV, NEW, REL, RPL, SNAT, TRK};
use packet::Packet;
use std::net::IpAddr;

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const PSH: u8 = 8;
const ACK: u8 = 16;
const URG: u8 = 32;

/// Addresses and ports of one direction. Of ICMP, the ports are the identifier, and `kind` is the
/// type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Flow {
    src: IpAddr,
    dst: IpAddr,
    sport: u16,
    dport: u16,
    proto: u8,
    kind: u8,
    zone: u16,
}

/// Requests of ICMP and ICMPv6, and their replies.
const PAIRS: [(u8, u8, u8); 4] = [(1, 8, 0), (1, 13, 14), (1, 15, 16), (58, 128, 129)];

impl Flow {
    fn back(&self) -> Flow {
        let mut kind = self.kind;
        for (proto, request, reply) in PAIRS {
            if self.proto == proto && self.kind == request {
                kind = reply;
            } else if self.proto == proto && self.kind == reply {
                kind = request;
            }
        }
        Flow { src: self.dst, dst: self.src, sport: self.dport, dport: self.sport, kind, ..*self }
    }

    /// ICMP in IPv6 is another protocol without ports, and ICMPv6 in IPv4.
    fn is_icmp(&self) -> bool {
        self.proto == if self.src.is_ipv4() { 1 } else { 58 }
    }

    fn is_request(&self) -> bool {
        PAIRS.iter().any(|(proto, request, _)| (self.proto, self.kind) == (*proto, *request))
    }

    fn has_ports(&self) -> bool {
        matches!(self.proto, 6 | 17 | 132)
    }
}

/// A TCP segment.
#[derive(Clone, Copy, Debug)]
struct Segment {
    seq: u32,
    ack: u32,
    flags: u8,
    window: u32,
    len: u32,
    /// The window scale option.
    scale: Option<u8>,
}

/// A peer's view in TCP's state machine, with the states of Open vSwitch by number: closed 0, SYN
/// sent 2, established 4, closing 7, FIN acknowledged 9, time wait 10.
#[derive(Clone, Copy, Debug, Default)]
struct Peer {
    state: u8,
    seqlo: u32,
    seqhi: u32,
    max_win: u32,
    scale: Option<u8>,
    is_scale_unknown: bool,
}

#[derive(Clone, Debug)]
struct Connection {
    forth: Flow,
    /// The reply as it comes in.
    back: Flow,
    nat: u8,
    mark: u32,
    label: u128,
    expires: Millis,
    /// For protocols without state machine: a reply was seen.
    replied: bool,
    peers: [Peer; 2],
    /// Identity: a connection may have the place of another one.
    number: u64,
}

/// The metadata of a packet that its key does not hold: the connection of the last `ct`, with the
/// direction.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cached(Option<(u64, bool)>);

/// All connections.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    all: Vec<Connection>,
    next: u64,
}

/// A packet as the tracker sees it.
struct Seen {
    flow: Flow,
    segment: Option<Segment>,
    /// Offset of the packet in an ICMP error.
    inner: Option<usize>,
}

enum Moved {
    Valid,
    StillNew,
    Invalid,
    Another,
}

/// Returns true when `a` is not before `b`.
fn geq(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) >= 0
}

fn invalid_flags(flags: u8) -> bool {
    let bad_syn = flags & SYN != 0 && flags & (RST | FIN) != 0;
    let nothing = flags & (SYN | ACK | RST) == 0;
    bad_syn || nothing || flags & ACK == 0 && flags & (FIN | PSH | URG) != 0
}

fn address(data: &[u8], at: usize, v6: bool) -> Option<IpAddr> {
    Some(if v6 {
        IpAddr::from(<[u8; 16]>::try_from(data.get(at..at + 16)?).ok()?)
    } else {
        IpAddr::from(<[u8; 4]>::try_from(data.get(at..at + 4)?).ok()?)
    })
}

fn addresses(data: &[u8], l3: usize, v6: bool) -> Option<(IpAddr, IpAddr)> {
    let (at, len) = if v6 { (l3 + 8, 16) } else { (l3 + 12, 4) };
    Some((address(data, at, v6)?, address(data, at + len, v6)?))
}

/// Finds the flow of a packet; `None`: it cannot be tracked.
fn see(packet: &Packet, tags: usize, zone: u16) -> Option<Seen> {
    let data = packet.data();
    let f = frame(data, tags)?;
    let ip = f.ip.as_ref()?;
    let (src, dst) = addresses(data, f.l3, ip.v6)?;
    if data[f.l3] >> 4 != if ip.v6 { 6 } else { 4 } {
        return None;
    }
    if !ip.v6 {
        let header = &data[f.l3..ip.l4];
        if sum(header) != 0 || be16(data, f.l3 + 6)? & 0x3fff != 0 {
            return None;
        }
    } else if flow::extract::key_of(data, 0).nw_frag != 0 {
        return None;
    }
    let payload = &data[ip.l4..ip.end];
    let left_to_others =
        packet.offload.csum.is_some() || packet.offload.csum_valid || packet.offload.gso.is_some();
    let mut flow = Flow { src, dst, sport: 0, dport: 0, proto: ip.proto, kind: 0, zone };
    let mut segment = None;
    if flow.has_ports() {
        let header = match ip.proto {
            6 => 20,
            17 => 8,
            _ => 12,
        };
        if payload.len() < header {
            return None;
        }
        (flow.sport, flow.dport) = (be16(payload, 0)?, be16(payload, 2)?);
        if flow.sport == 0 || flow.dport == 0 {
            return None;
        }
    }
    let pseudo = || {
        let addresses =
            if ip.v6 { &data[f.l3 + 8..f.l3 + 40] } else { &data[f.l3 + 12..f.l3 + 20] };
        sum(addresses) + u64::from(ip.proto) + payload.len() as u64
    };
    let mut inner = None;
    let verify = |with_pseudo: bool| {
        let extra = if with_pseudo { pseudo() } else { 0 };
        left_to_others || (sum(payload) + extra).is_multiple_of(0xffff)
    };
    match (ip.proto, ip.v6) {
        (6, _) => {
            let header = usize::from(payload[12] >> 4) * 4;
            if header < 20 || header > payload.len() || !verify(true) {
                return None;
            }
            let word = |at: usize| {
                Some(u32::from(be16(payload, at)?) << 16 | u32::from(be16(payload, at + 2)?))
            };
            segment = Some(Segment {
                seq: word(4)?,
                ack: word(8)?,
                flags: payload[13],
                window: be16(payload, 14)?.into(),
                len: (payload.len() - header) as u32,
                scale: scale(&payload[20..header]),
            });
        }
        (17, _) => {
            let has_none = be16(payload, 6)? == 0 && !ip.v6;
            if usize::from(be16(payload, 4)?) != payload.len() || !has_none && !verify(true) {
                return None;
            }
        }
        (132, _) => {
            let stored = u32::from_le_bytes(payload[8..12].try_into().ok()?);
            if !left_to_others && crc(payload) != stored {
                return None;
            }
        }
        (1, false) | (58, true) => {
            if payload.len() < 8 || !verify(ip.v6) {
                return None;
            }
            let kind = payload[0];
            let is_error =
                if ip.v6 { matches!(kind, 1..=4) } else { matches!(kind, 3 | 4 | 5 | 11 | 12) };
            if is_error {
                let at = ip.l4 + 8;
                let quoted = quoted(&data[at..ip.end], ip.v6, zone)?;
                if quoted.src != dst {
                    return None;
                }
                flow = quoted.back();
                inner = Some(at);
            } else {
                let known = |(p, a, b): &(u8, u8, u8)| *p == ip.proto && (*a == kind || *b == kind);
                if !PAIRS.iter().any(known) || payload[1] != 0 {
                    return None;
                }
                flow.kind = kind;
                flow.sport = be16(payload, 4)?;
                flow.dport = flow.sport;
            }
        }
        _ => {}
    }
    Some(Seen { flow, segment, inner })
}

/// Returns where the transport header of a quoted packet begins, and its protocol.
fn quoted_l4(data: &[u8], v6: bool) -> Option<(usize, u8)> {
    if v6 {
        return (data.len() >= 40).then(|| (40, data[6]));
    }
    let header = usize::from(data.first()? & 15) * 4;
    (header >= 20 && data.len() >= header).then(|| (header, data[9]))
}

fn quoted(data: &[u8], v6: bool, zone: u16) -> Option<Flow> {
    let (l4, proto) = quoted_l4(data, v6)?;
    let (src, dst) = addresses(data, 0, v6)?;
    let payload = data.get(l4..).filter(|payload| payload.len() >= 8)?;
    let is_fragment = !v6 && be16(data, 6)? & 0x3fff != 0;
    if data[0] >> 4 != if v6 { 6 } else { 4 } || is_fragment {
        return None;
    }
    let mut flow = Flow { src, dst, sport: 0, dport: 0, proto, kind: 0, zone };
    if flow.has_ports() {
        (flow.sport, flow.dport) = (be16(payload, 0)?, be16(payload, 2)?);
        if flow.sport == 0 || flow.dport == 0 {
            return None;
        }
    } else if proto == if v6 { 58 } else { 1 } {
        let kind = payload[0];
        if !PAIRS.iter().any(|(p, a, b)| *p == proto && (*a == kind || *b == kind))
            || payload[1] != 0
        {
            return None;
        }
        flow.kind = kind;
        flow.sport = be16(payload, 4)?;
        flow.dport = flow.sport;
    }
    Some(flow)
}

/// Returns the value of the last window scale option.
fn scale(options: &[u8]) -> Option<u8> {
    let (mut at, mut found) = (0, None);
    while at + 2 <= options.len() {
        match options[at] {
            0 => break,
            1 => at += 1,
            kind => {
                if kind == 3 && at + 3 <= options.len() {
                    found = Some(options[at + 2].min(14));
                }
                at += usize::from(options[at + 1].max(2));
            }
        }
    }
    found
}

impl Connection {
    fn first_peer(s: &Segment) -> [Peer; 2] {
        let is_syn = s.flags & SYN != 0;
        let scale = s.scale.filter(|_| is_syn);
        let source = Peer {
            state: 2,
            seqlo: s.seq,
            seqhi: s
                .seq
                .wrapping_add(s.len + 1)
                .wrapping_add(u32::from(is_syn))
                .wrapping_add(u32::from(s.flags & FIN != 0)),
            max_win: s.window.max(1).div_ceil(1 << scale.unwrap_or(0)),
            scale,
            is_scale_unknown: !is_syn,
        };
        [source, Peer { seqhi: 1, max_win: 1, is_scale_unknown: !is_syn, ..Peer::default() }]
    }

    /// Moves the state; returns also the seconds until the connection expires, if that changes.
    fn advance(&mut self, is_reply: bool, segment: Option<&Segment>) -> (Moved, Option<i64>) {
        let Some(s) = segment else {
            self.replied |= is_reply;
            return if self.replied {
                (Moved::Valid, Some(30))
            } else {
                (Moved::StillNew, Some(60))
            };
        };
        if invalid_flags(s.flags) {
            return (Moved::Invalid, None);
        }
        let (me, other) = if is_reply { (1, 0) } else { (0, 1) };
        let (mut src, mut dst) = (self.peers[me], self.peers[other]);
        if s.flags & (SYN | ACK) == SYN {
            if src.state >= 9 && dst.state >= 9 {
                return (Moved::Another, None);
            }
            if src.state <= 2 {
                self.peers[me].state = 2;
                return (Moved::StillNew, Some(30));
            }
        }
        let (mut sws, mut dws) = (0, 0);
        if s.flags & SYN == 0 {
            if let (Some(a), Some(b)) = (src.scale, dst.scale) {
                (sws, dws) = (a, b);
            } else if src.is_scale_unknown && dst.is_scale_unknown {
                (sws, dws) = (14, 14);
            }
        }
        let mut win = s.window;
        let mut seq = s.seq;
        let mut end = seq.wrapping_add(s.len);
        end = end.wrapping_add(u32::from(s.flags & SYN != 0) + u32::from(s.flags & FIN != 0));
        let mut is_skew_checked = true;
        if src.state < 2 {
            if s.flags & SYN != 0
                && let Some(shift) = dst.scale
            {
                src.scale = s.scale;
                src.is_scale_unknown = false;
                if let Some(own) = s.scale {
                    sws = own;
                    dws = shift;
                    win = win.div_ceil(1 << own);
                } else {
                    dst.max_win = dst.max_win << shift & 0xffff;
                    dst.scale = None;
                }
            }
            src.seqlo = seq;
            src.state = 2;
            let high = end.wrapping_add((dst.max_win << dws).max(1));
            if src.seqhi == 1 || geq(high, src.seqhi) {
                src.seqhi = high;
                is_skew_checked = false;
            }
            src.max_win = src.max_win.max(win);
        }
        let mut ack = s.ack;
        if s.flags & ACK == 0 || ack == 0 && s.flags & RST != 0 {
            ack = dst.seqlo;
        }
        if seq == end {
            seq = src.seqlo;
            end = seq;
        }
        let skew = if is_skew_checked { i64::from(dst.seqlo.wrapping_sub(ack) as i32) } else { 0 };
        let limit = 0xffff + 1500;
        let is_reset_exact = s.flags & RST == 0
            || [0, 1, u32::MAX].iter().any(|d| s.seq == src.seqlo.wrapping_add(*d));
        let is_inside = geq(src.seqhi, end)
            && geq(seq, src.seqlo.wrapping_sub(dst.max_win << dws))
            && skew >= -limit
            && skew <= limit << sws
            && is_reset_exact;
        let is_loose = (dst.state < 2 || dst.state >= 9 || src.state >= 9)
            && geq(src.seqhi.wrapping_add(limit as u32), end)
            && geq(seq, src.seqlo.wrapping_sub(limit as u32));
        if !is_inside && !is_loose {
            self.peers[me] = src;
            self.peers[other] = dst;
            return (Moved::Invalid, None);
        }
        src.max_win = src.max_win.max(win);
        if !geq(src.seqlo, end) {
            src.seqlo = end;
        }
        // As in Open vSwitch, the window is the one in the packet, or the unscaled one of a SYN.
        if geq(ack.wrapping_add(win << sws), dst.seqhi) {
            dst.seqhi = ack.wrapping_add((win << sws).max(1));
        }
        if s.flags & FIN != 0 && src.state < 7 {
            src.state = 7;
        }
        if is_inside && s.flags & ACK != 0 {
            dst.state = match dst.state {
                2 => 4,
                7 => 9,
                state => state,
            };
        }
        if s.flags & RST != 0 {
            src.state = 10;
            dst.state = 10;
        }
        self.peers[me] = src;
        self.peers[other] = dst;
        let (low, high) = (src.state.min(dst.state), src.state.max(dst.state));
        let seconds = match (low, high) {
            (9.., _) => 30,
            (7.., _) => 45,
            (0..4, _) => 30,
            (_, 7..) => 900,
            _ => 86_400,
        };
        (Moved::Valid, is_inside.then_some(seconds))
    }
}

impl Connections {
    fn find(&self, flow: &Flow, now: Millis) -> Option<(usize, bool)> {
        let at = self
            .all
            .iter()
            .position(|c| c.expires > now && (c.forth == *flow || c.back == *flow))?;
        Some((at, self.all[at].forth != *flow))
    }

    /// Carries out `ct` on a packet with the fields `ct_*` in `key`.
    pub(crate) fn ct(
        &mut self,
        packet: &mut Packet,
        tags: usize,
        key: &mut Key,
        cached: &mut Cached,
        request: &Request,
        now: Millis,
    ) {
        self.all.retain(|c| c.expires > now);
        if let Some((number, is_reply)) = cached.0.take()
            && request.commit != Commit::Force
            && let Some(at) = self.all.iter().position(|c| c.number == number)
            && self.all[at].forth.zone == request.zone
        {
            if request.nat.is_none() {
                cached.0 = Some((number, is_reply));
            } else if let Some(seen) = see(packet, tags, request.zone) {
                self.translate(at, is_reply, packet, tags, key, &seen);
            }
            key.ct_zone.set(request.zone);
            key.ct_mark.set(self.all[at].mark);
            key.ct_label = self.all[at].label.to_be_bytes();
            self.set_mark(at, key, request);
            return;
        }
        if key.ct_zone.get() != request.zone {
            key.ct_state = 0;
        }
        let Some(seen) = see(packet, tags, request.zone) else {
            clear(key);
            key.ct_state = INV | TRK;
            key.ct_zone.set(request.zone);
            return;
        };
        let mut found = if key.ct_state & (SNAT | DNAT) != 0 {
            self.find(&seen.flow.back(), now).map(|(at, is_reply)| (at, !is_reply))
        } else {
            self.find(&seen.flow, now)
        };
        if let Some((at, true)) = found
            && request.commit == Commit::Force
        {
            self.all.remove(at);
            found = None;
        }
        match found {
            Some((at, is_reply)) => {
                if self.advance(at, is_reply, &seen, key, now) {
                    self.all.remove(at);
                    found = self.begin(&seen, packet, tags, key, request, now);
                } else if request.nat.is_some() {
                    self.translate(at, is_reply, packet, tags, key, &seen);
                }
            }
            None if seen.inner.is_some() => key.ct_state = INV,
            None => found = self.begin(&seen, packet, tags, key, request, now),
        }
        key.ct_state |= TRK;
        key.ct_zone.set(request.zone);
        let original = found.map_or(seen.flow, |(at, _)| self.all[at].forth);
        key.ct_mark.set(found.map_or(0, |(at, _)| self.all[at].mark));
        key.ct_label = found.map_or(0, |(at, _)| self.all[at].label).to_be_bytes();
        store_original(key, &original);
        if let Some((at, is_reply)) = found {
            self.set_mark(at, key, request);
            if request.nat.is_none() && seen.inner.is_none() {
                cached.0 = Some((self.all[at].number, is_reply));
            }
        }
    }

    fn set_mark(&mut self, at: usize, key: &mut Key, request: &Request) {
        let c = &mut self.all[at];
        if let Some((value, mask)) = request.mark {
            c.mark = c.mark & !mask | value & mask;
            key.ct_mark.set(c.mark);
        }
        if let Some((value, mask)) = request.label {
            c.label = c.label & !mask | value & mask;
            key.ct_label = c.label.to_be_bytes();
        }
    }

    /// Returns true when another connection begins.
    fn advance(
        &mut self,
        at: usize,
        is_reply: bool,
        seen: &Seen,
        key: &mut Key,
        now: Millis,
    ) -> bool {
        let reply = if is_reply { RPL } else { 0 };
        if seen.inner.is_some() {
            key.ct_state |= REL | reply;
            return false;
        }
        let c = &mut self.all[at];
        let (moved, seconds) = c.advance(is_reply, seen.segment.as_ref());
        if let Some(seconds) = seconds {
            // ICMP differs from the other protocols in nothing: 60 s, and 30 s after a reply.
            c.expires = now + seconds * 1000;
        }
        match moved {
            Moved::Valid => key.ct_state = key.ct_state & !NEW | EST | reply,
            Moved::StillNew => key.ct_state |= NEW,
            Moved::Invalid => key.ct_state = INV,
            Moved::Another => return true,
        }
        false
    }

    fn begin(
        &mut self,
        seen: &Seen,
        packet: &mut Packet,
        tags: usize,
        key: &mut Key,
        request: &Request,
        now: Millis,
    ) -> Option<(usize, bool)> {
        let flow = seen.flow;
        let may = match &seen.segment {
            Some(s) => !invalid_flags(s.flags) && s.flags & (SYN | ACK) != SYN | ACK,
            None => !flow.is_icmp() || flow.is_request(),
        };
        if !may {
            key.ct_state = INV;
            return None;
        }
        key.ct_state = NEW;
        if request.commit == Commit::No || self.find(&flow, now).is_some() {
            return None;
        }
        let (back, nat) = match request.nat {
            None => (flow.back(), 0),
            Some(Nat::Range(range)) => self.choose(&flow, &range, now)?,
            Some(Nat::Existing) if self.find(&flow.back(), now).is_none() => (flow.back(), 0),
            Some(Nat::Existing) => {
                let range = NatRange {
                    manip: Manip::Src,
                    addresses: None,
                    ports: None,
                    selection: conntrack::Selection::Hash,
                    persistent: false,
                };
                self.choose(&flow, &range, now)?
            }
        };
        if self.find(&back, now).is_some() {
            return None;
        }
        let seconds = if seen.segment.is_some() { 30 } else { 60 };
        self.next += 1;
        self.all.push(Connection {
            forth: flow,
            back,
            nat,
            mark: request.mark.map_or(0, |(value, mask)| value & mask),
            label: request.label.map_or(0, |(value, mask)| value & mask),
            expires: now + seconds * 1000,
            replied: false,
            peers: seen.segment.as_ref().map_or_else(Default::default, Connection::first_peer),
            number: self.next,
        });
        let at = self.all.len() - 1;
        self.translate(at, false, packet, tags, key, seen);
        Some((at, false))
    }

    /// Returns the reply of a translated connection.
    fn choose(&self, flow: &Flow, range: &NatRange, now: Millis) -> Option<(Flow, u8)> {
        let is_source = range.manip == Manip::Src;
        let mut back = flow.back();
        if let Some((first, last)) = range.addresses
            && !first.is_unspecified()
        {
            assert_eq!(first, last, "the model translates to one address");
            if first.is_ipv4() != flow.src.is_ipv4() {
                return None;
            }
            *(if is_source { &mut back.dst } else { &mut back.src }) = first;
        }
        let nat = if is_source { SNAT } else { DNAT };
        let is_free = |back: &Flow| self.find(back, now).is_none();
        if flow.is_icmp() {
            let ids = (0..=u16::MAX).map(|step| flow.sport.wrapping_add(step));
            let with = ids.map(|id| Flow { sport: id, dport: id, ..back });
            return with.take(128).find(is_free).map(|back| (back, nat));
        }
        if !flow.has_ports() {
            return is_free(&back).then_some((back, nat));
        }
        if let Some((first, last)) = range.ports {
            assert_eq!(first, last, "the model translates to one port");
            *(if is_source { &mut back.dport } else { &mut back.sport }) = first;
            if is_source || is_free(&back) {
                return is_free(&back).then_some((back, nat));
            }
        }
        let (low, high) = match flow.sport {
            0..512 => (1, 511),
            512..1024 => (600, 1023),
            _ => (1024, 65_535),
        };
        let span = high - low + 1u32;
        let next = u32::from(flow.sport).saturating_add(1).clamp(low, high + 1) - low;
        let others = (0..128.min(span)).map(|step| (low + (next + step) % span) as u16);
        std::iter::once(flow.sport)
            .chain(others)
            .map(|port| Flow { dport: port, ..back })
            .find(is_free)
            .map(|back| (back, nat))
    }

    /// Changes the packet as its connection says, once in a zone.
    fn translate(
        &self,
        at: usize,
        is_reply: bool,
        packet: &mut Packet,
        tags: usize,
        key: &mut Key,
        seen: &Seen,
    ) {
        let c = &self.all[at];
        if c.nat == 0 || key.ct_state & (SNAT | DNAT) != 0 {
            return;
        }
        key.ct_state |= if is_reply { c.nat ^ (SNAT | DNAT) } else { c.nat };
        let to = if is_reply { c.forth.back() } else { c.back.back() };
        match seen.inner {
            None => rewrite(packet, tags, &seen.flow, &to),
            Some(inner) => rewrite_error(packet, tags, inner, &seen.flow, &to),
        }
    }
}

fn set_addresses(packet: &mut Packet, tags: usize, src: IpAddr, dst: IpAddr) {
    let whole = |value| Masked { value, mask: [0xff; 4] };
    let whole6 = |value| Masked { value, mask: [0xff; 16] };
    let set = match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => Set::Ipv4 {
            src: whole(src.octets()),
            dst: whole(dst.octets()),
            tos: Masked::default(),
            ttl: Masked::default(),
        },
        (IpAddr::V6(src), IpAddr::V6(dst)) => Set::Ipv6 {
            src: whole6(src.octets()),
            dst: whole6(dst.octets()),
            label: Masked::default(),
            tclass: Masked::default(),
            hlimit: Masked::default(),
        },
        _ => unreachable!("both addresses are of one family"),
    };
    edit::set(packet, tags, &set).expect("the packet has the header");
}

fn rewrite(packet: &mut Packet, tags: usize, from: &Flow, to: &Flow) {
    set_addresses(packet, tags, to.src, to.dst);
    let all = |value| Masked { value, mask: u16::MAX };
    let (src, dst) = (all(to.sport), all(to.dport));
    let set = match from.proto {
        6 => Set::Tcp { src, dst },
        17 => Set::Udp { src, dst },
        132 => Set::Sctp { src, dst },
        _ if from.is_icmp() => {
            let f = frame(packet.data(), tags).expect("it was parsed");
            let at = f.ip.as_ref().expect("it was parsed").l4 + 4;
            change(packet, &f, |data| store16(data, at, to.sport));
            return;
        }
        _ => return,
    };
    edit::set(packet, tags, &set).expect("the packet has the header");
}

/// Changes an ICMP error and the packet at `inner` that it quotes.
fn rewrite_error(packet: &mut Packet, tags: usize, inner: usize, from: &Flow, to: &Flow) {
    let f = frame(packet.data(), tags).expect("it was parsed");
    let ip = f.ip.clone().expect("it was parsed");
    let (src, dst) = addresses(packet.data(), f.l3, ip.v6).expect("it was parsed");
    let quoted = to.back();
    change(packet, &f, |data| rewrite_quoted(&mut data[inner..ip.end], ip.v6, &quoted));
    let src = if from.src != to.src { to.src } else { src };
    let dst = if from.dst != to.dst { to.dst } else { dst };
    set_addresses(packet, tags, src, dst);
}

fn rewrite_quoted(data: &mut [u8], v6: bool, to: &Flow) {
    let (l4, proto) = quoted_l4(data, v6).expect("it was parsed");
    let before = data.to_vec();
    let at = if v6 { 8 } else { 12 };
    for (step, address) in [to.src, to.dst].into_iter().enumerate() {
        match address {
            IpAddr::V4(a) => data[at + step * 4..][..4].copy_from_slice(&a.octets()),
            IpAddr::V6(a) => data[at + step * 16..][..16].copy_from_slice(&a.octets()),
        }
    }
    let pseudo = if v6 { 8..40 } else { 12..20 };
    let (old, new) = (sum(&before[pseudo.clone()]), sum(&data[pseudo]));
    if !v6 && old != new {
        let stored = be16(data, 10).unwrap_or(0);
        store16(data, 10, !moved(!stored, old, new));
    }
    let (field, ports) = match proto {
        6 => (16, 0..4),
        17 => (6, 0..4),
        132 => (usize::MAX, 0..4),
        1 | 58 if to.is_icmp() => (2, 4..6),
        _ => return,
    };
    if to.is_icmp() {
        store16(data, l4 + 4, to.sport);
    } else {
        store16(data, l4, to.sport);
        store16(data, l4 + 2, to.dport);
    }
    let Some(at) = l4.checked_add(field).filter(|at| at + 2 <= data.len()) else { return };
    let of = |data: &[u8]| sum(&data[l4 + ports.start..l4 + ports.end]);
    let covered = |pseudo: u64, data: &[u8]| of(data) + if proto == 1 { 0 } else { pseudo };
    let (old, new) = (covered(old, &before) % 0xffff, covered(new, data) % 0xffff);
    let stored = be16(data, at).unwrap_or(0);
    if old == new || proto == 17 && stored == 0 {
        return;
    }
    let value = !moved(!stored, old, new);
    store16(data, at, if proto == 17 && value == 0 { 0xffff } else { value });
}

fn store_original(key: &mut Key, flow: &Flow) {
    let state = (key.ct_state, key.ct_zone, key.ct_mark, key.ct_label);
    clear(key);
    (key.ct_state, key.ct_zone, key.ct_mark, key.ct_label) = state;
    key.ct_nw_proto = flow.proto;
    let icmp = flow.is_icmp();
    key.ct_tp_src.set(if icmp { flow.kind.into() } else { flow.sport });
    key.ct_tp_dst.set(if icmp { 0 } else { flow.dport });
    match (flow.src, flow.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            key.ct_nw_src.set(src.to_bits());
            key.ct_nw_dst.set(dst.to_bits());
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            key.ct_ipv6_src = src.octets();
            key.ct_ipv6_dst = dst.octets();
        }
        _ => unreachable!("both addresses are of one family"),
    }
}

/// Forgets the connection in the fields of a key (`ct_clear`).
pub(crate) fn clear(key: &mut Key) {
    let none = Key::ZERO;
    key.ct_state = 0;
    key.ct_nw_proto = 0;
    key.ct_zone = none.ct_zone;
    key.ct_mark = none.ct_mark;
    key.ct_label = none.ct_label;
    key.ct_nw_src = none.ct_nw_src;
    key.ct_nw_dst = none.ct_nw_dst;
    key.ct_ipv6_src = none.ct_ipv6_src;
    key.ct_ipv6_dst = none.ct_ipv6_dst;
    key.ct_tp_src = none.ct_tp_src;
    key.ct_tp_dst = none.ct_tp_dst;
}
