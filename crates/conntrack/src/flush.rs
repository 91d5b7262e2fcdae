// SPDX-License-Identifier: Apache-2.0
//! Removal of connections: filters of `dpctl/flush-conntrack` and `NXT_CT_FLUSH`.

use crate::dump::{DUMP_SLICE, Entry};
use crate::epoch::Pinned;
use crate::head::Head;
use crate::table::Table;
use crate::ticks::Ticks;
use crate::tracker::Tracker;
use crate::tuple::{Icmp, IcmpClass, Ports, Tuple};
use packet::ip_proto;
use std::net::IpAddr;

/// The fields of a tuple that have to be equal. Zero ports and zero ICMP fields match all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TupleFilter {
    /// Source address.
    pub src: Option<IpAddr>,
    /// Destination address.
    pub dst: Option<IpAddr>,
    /// Protocol; zero: any.
    pub proto: u8,
    /// Source port.
    pub sport: u16,
    /// Destination port.
    pub dport: u16,
    /// ICMP identifier.
    pub icmp_id: Option<u16>,
    /// ICMP type.
    pub icmp_type: Option<u8>,
    /// ICMP code.
    pub icmp_code: Option<u8>,
}

/// A filter of connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flush {
    /// The zone.
    pub zone: Option<u16>,
    /// Value and mask of the mark.
    pub mark: Option<(u32, u32)>,
    /// Value and mask of the label.
    pub label: Option<(u128, u128)>,
    /// Fields of the original direction's tuple.
    pub original: TupleFilter,
    /// Fields of the reply direction's tuple.
    pub reply: TupleFilter,
}

/// No connection has the whole tuple of a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotFound;

/// A text is no filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError(pub String);

impl std::fmt::Display for ParseError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ParseError {}

impl TupleFilter {
    /// Returns true for a filter that matches all tuples.
    pub fn is_empty(&self) -> bool {
        *self == TupleFilter::default()
    }

    /// Returns true when a tuple has the fields.
    pub fn matches(&self, tuple: &Tuple) -> bool {
        self.src.is_none_or(|src| src == tuple.src)
            && self.dst.is_none_or(|dst| dst == tuple.dst)
            && (self.proto == 0 || self.proto == tuple.proto)
            && match tuple.ports {
                Ports::Pair { src, dst } => {
                    (self.sport == 0 || self.sport == src) && (self.dport == 0 || self.dport == dst)
                }
                Ports::Icmp(icmp) => {
                    self.icmp_id.is_none_or(|id| id == icmp.id)
                        && self.icmp_type.is_none_or(|kind| kind == icmp.kind(tuple.proto))
                        && self.icmp_code.is_none_or(|code| code == icmp.code)
                }
            }
    }

    /// Returns the tuple when all of it is given.
    fn whole(&self, zone: u16) -> Option<Tuple> {
        let (src, dst) = (self.src?, self.dst?);
        let ports = match self.proto {
            0 => return None,
            ip_proto::ICMP | ip_proto::ICMPV6 => {
                let kind = self.icmp_type?;
                let (class, request) = if self.proto == ip_proto::ICMP {
                    IcmpClass::of_icmp(kind)?
                } else {
                    IcmpClass::of_icmpv6(kind)?
                };
                Ports::Icmp(Icmp { class, request, code: self.icmp_code?, id: self.icmp_id? })
            }
            _ if self.sport == 0 || self.dport == 0 => return None,
            _ => Ports::Pair { src: self.sport, dst: self.dport },
        };
        Some(Tuple { src, dst, ports, proto: self.proto, zone })
    }

    /// Parses a tuple as in `ct_nw_src=10.1.1.1,ct_nw_proto=17,ct_tp_src=1`.
    ///
    /// # Errors
    ///
    /// The text of Open vSwitch's answer.
    pub fn parse(text: &str) -> Result<TupleFilter, ParseError> {
        TupleFilter::default().parse_more(text)
    }

    /// Parses the tuple of the reply direction: the protocol and the family of this one, which is
    /// the original direction's, hold for it, too.
    fn parse_reply(&self, text: &str) -> Result<TupleFilter, ParseError> {
        let reply = TupleFilter { proto: self.proto, ..TupleFilter::default() }.parse_more(text)?;
        let family = |filter: &TupleFilter| filter.src.or(filter.dst);
        match (family(self), family(&reply)) {
            (Some(ours), Some(theirs)) if ours.is_ipv4() != theirs.is_ipv4() => {
                Err(ParseError(format!("the L3 protocol does not match {theirs}")))
            }
            _ => Ok(reply),
        }
    }

    fn parse_more(self, text: &str) -> Result<TupleFilter, ParseError> {
        let mut filter = self;
        for field in text.split([',', ' ']).filter(|field| !field.is_empty()) {
            let (key, value) = field.split_once('=').unwrap_or((field, ""));
            if value.is_empty() {
                return Err(ParseError(format!("field {key} missing value")));
            }
            filter.set(key, value)?;
        }
        let has_icmp =
            filter.icmp_id.is_some() || filter.icmp_type.is_some() || filter.icmp_code.is_some();
        if filter.proto == 0 && (filter.sport != 0 || filter.dport != 0 || has_icmp) {
            return Err(ParseError("port is set without protocol".into()));
        }
        Ok(filter)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), ParseError> {
        let bad = || ParseError(format!("failed to parse field {key}"));
        let number =
            |max: u128| parse_number(value).filter(|number| *number <= max).ok_or_else(bad);
        let is_icmp = matches!(self.proto, ip_proto::ICMP | ip_proto::ICMPV6);
        let l4 = || ParseError("invalid L4 fields".into());
        match key {
            "ct_nw_src" | "ct_nw_dst" | "ct_ipv6_src" | "ct_ipv6_dst" => {
                let address: IpAddr = value.parse().map_err(|_| bad())?;
                let known = self.src.or(self.dst);
                let is_mixed = known.is_some_and(|known| known.is_ipv4() != address.is_ipv4());
                if address.is_ipv4() != key.starts_with("ct_nw") {
                    return Err(bad());
                }
                if is_mixed {
                    return Err(ParseError(format!("the L3 protocol does not match {value}")));
                }
                let place = if key.ends_with("src") { &mut self.src } else { &mut self.dst };
                *place = Some(address);
            }
            "ct_nw_proto" => self.proto = number(0xff)? as u8,
            "ct_tp_src" | "ct_tp_dst" => {
                let port = number(0xffff)? as u16;
                *if key == "ct_tp_src" { &mut self.sport } else { &mut self.dport } = port;
            }
            "icmp_type" | "icmp_code" | "icmp_id" => {
                if !is_icmp {
                    return Err(l4());
                }
                match key {
                    "icmp_type" => self.icmp_type = Some(number(0xff)? as u8),
                    "icmp_code" => self.icmp_code = Some(number(0xff)? as u8),
                    _ => self.icmp_id = Some(number(0xffff)? as u16),
                }
            }
            _ => return Err(ParseError(format!("invalid conntrack tuple field: {key}"))),
        }
        Ok(())
    }
}

/// Parses a decimal or hexadecimal number without a sign.
fn parse_number(text: &str) -> Option<u128> {
    let number = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u128::from_str_radix(hex, 16),
        None => text.parse(),
    };
    number.ok().filter(|_| !text.contains('+'))
}

/// Parses `VALUE` or `VALUE/MASK`; both are at most `max`, which is the mask of a value alone.
fn parse_masked(text: &str, max: u128) -> Option<(u128, u128)> {
    let number = |text: &str| parse_number(text).filter(|number| *number <= max);
    match text.split_once('/') {
        Some((value, mask)) => Some((number(value)?, number(mask)?)),
        None => Some((number(text)?, max)),
    }
}

impl Flush {
    /// Parses the words of `dpctl/flush-conntrack`: zone, mark, label, original and reply tuple, in
    /// this order. Each may be left out.
    ///
    /// # Errors
    ///
    /// The text of Open vSwitch's answer.
    pub fn parse(words: &[&str]) -> Result<Flush, ParseError> {
        let mut flush = Flush::default();
        let mut words = words.iter().copied().peekable();
        let failed = |what: &str| ParseError(format!("failed to parse {what}"));
        let mut after = |prefix: &str| {
            let word = words.next_if(|word| word.starts_with(prefix))?;
            word.strip_prefix(prefix)
        };
        if let Some(text) = after("zone=") {
            let zone = parse_number(text).and_then(|zone| u16::try_from(zone).ok());
            flush.zone = Some(zone.ok_or_else(|| failed("zone"))?);
        }
        if let Some(text) = after("mark=") {
            let (value, mask) =
                parse_masked(text, u32::MAX.into()).ok_or_else(|| failed("mark"))?;
            flush.mark = Some((value as u32, mask as u32)).filter(|(_, mask)| *mask != 0);
        }
        if let Some(text) = after("labels=") {
            let label = parse_masked(text, u128::MAX).ok_or_else(|| failed("labels"))?;
            flush.label = Some(label).filter(|(_, mask)| *mask != 0);
        }
        if let Some(text) = words.next() {
            flush.original = TupleFilter::parse(text)?;
        }
        if let Some(text) = words.next().filter(|text| !text.is_empty()) {
            flush.reply = flush.original.parse_reply(text)?;
        }
        if words.next().is_some() {
            return Err(ParseError("invalid arguments".into()));
        }
        Ok(flush)
    }

    /// Returns true when all connections match.
    pub fn is_all(&self) -> bool {
        *self == Flush::default()
    }

    /// Returns true for a whole tuple and nothing else: one connection has it at most.
    pub fn is_one(&self) -> bool {
        self.whole().is_some()
    }

    /// Returns the tuple of the one connection that the filter names, if it has a whole tuple and
    /// nothing else.
    fn whole(&self) -> Option<Tuple> {
        let alone = self.mark.is_none() && self.label.is_none() && self.reply.is_empty();
        if alone { self.original.whole(self.zone.unwrap_or(0)) } else { None }
    }

    /// Returns true when a connection matches of which this is known.
    pub fn matches_entry(&self, entry: &Entry) -> bool {
        self.zone.is_none_or(|zone| entry.original.zone == zone)
            && self.mark.is_none_or(|(value, mask)| (entry.mark ^ value) & mask == 0)
            && self.label.is_none_or(|(value, mask)| (entry.label ^ value) & mask == 0)
            && (self.original.is_empty() || self.original.matches(&entry.original))
            && (self.reply.is_empty() || self.reply.matches(&entry.reply))
    }

    fn matches(&self, table: &Table, slot: u32, head: Head) -> bool {
        let Some(conn) = table.slot(slot) else {
            return false;
        };
        self.zone.is_none_or(|zone| conn.key(head).zone() == zone)
            && self.mark.is_none_or(|(value, mask)| (conn.mark() ^ value) & mask == 0)
            && self.label.is_none_or(|(value, mask)| (conn.label() ^ value) & mask == 0)
            && (self.original.is_empty()
                || conn.original(head).is_some_and(|tuple| self.original.matches(&tuple)))
            && (self.reply.is_empty()
                || conn.reply(head).is_some_and(|tuple| self.reply.matches(&tuple)))
    }
}

impl Tracker {
    /// Ends the connections of a slice of the table that match. The first `cursor` is 0. Returns
    /// the next cursor; `None` at the end.
    ///
    /// A filter that is a whole tuple and nothing else ends the one connection that has it, in
    /// either direction, at once.
    ///
    /// # Errors
    ///
    /// No connection has the whole tuple.
    pub fn flush(
        &self,
        pinned: &Pinned<'_>,
        flush: &Flush,
        cursor: u32,
        now: Ticks,
    ) -> Result<Option<u32>, NotFound> {
        let table = self.table();
        if let Some(tuple) = flush.whole() {
            let found = table.lookup(pinned, &tuple, now).ok_or(NotFound)?;
            table.kill(found.conn, found.conn.head());
            return Ok(None);
        }
        if cursor == 0 && *flush == (Flush { zone: flush.zone, ..Flush::default() }) {
            self.expectations().flush(table, flush.zone);
        }
        let (slots, next) = table.slice(cursor, DUMP_SLICE);
        for slot in slots {
            let Some(conn) = table.slot(slot) else { continue };
            // A packet may refresh the connection between the check and the kill.
            for _ in 0..8 {
                let head = conn.head();
                if head.phase() != crate::head::Phase::Live
                    || !flush.matches(table, slot, head)
                    || table.kill(conn, head)
                {
                    break;
                }
            }
        }
        Ok(next)
    }
}

#[cfg(test)]
mod tests;
