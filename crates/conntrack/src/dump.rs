// SPDX-License-Identifier: Apache-2.0
//! Dumps of connections: values, and the lines of `dpctl/dump-conntrack`.

use crate::conn::{Conn, Helper};
use crate::expectations::Expectation;
use crate::head::Head;
use crate::machine::tcp_of;
use crate::table::Table;
use crate::tcp::{Scale, TcpConn, TcpState};
use crate::ticks::{Ticks, duration};
use crate::tuple::{Ports, Tuple};
use packet::ip_proto;
use std::fmt::{Display, Formatter, Result, Write};
use std::time::Duration;

/// Slots that [`Table::dump`] visits at most in a slice.
/// A line takes about a microsecond to make, and the control thread may be held for 10 ms.
pub const DUMP_SLICE: usize = 1_024;

/// A connection at the moment of a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The tuple of the original direction.
    pub original: Tuple,
    /// The tuple of the reply direction.
    pub reply: Tuple,
    /// The mark.
    pub mark: u32,
    /// The label.
    pub label: u128,
    /// Time until the connection ends.
    pub timeout: Duration,
    /// The state of TCP; `None` for other protocols.
    pub tcp: Option<TcpConn>,
    /// The helper.
    pub helper: Option<Helper>,
    /// The original tuple of the connection that expected this one.
    pub parent: Option<Tuple>,
}

/// Which parts a line has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Detail {
    /// Option `-m`: more.
    pub more: bool,
    /// Option `-s`: the timeout.
    pub statistics: bool,
}

impl Table {
    /// Returns what a dump has of a connection in a slot, if there is one.
    pub fn entry(&self, conn: Conn<'_>, head: Head, now: Ticks) -> Option<Entry> {
        let original = conn.original(head)?;
        Some(Entry {
            original,
            reply: conn.reply(head)?,
            mark: conn.mark(),
            label: conn.label(),
            // Moments are rounded down: without a tick more, whole seconds would lose one.
            timeout: duration(head.expires().since(now).saturating_add(1)),
            tcp: (original.proto == ip_proto::TCP).then(|| tcp_of(conn)),
            helper: conn.class().helper,
            parent: self.parent(conn),
        })
    }

    /// Calls `each` with the connections of a slice of the table, of one zone or all. The first
    /// `cursor` is 0. Returns the next cursor; `None` at the end. Connections that are made or end
    /// between slices may be in the dump or not. Any thread may dump.
    pub fn dump(
        &self,
        zone: Option<u16>,
        cursor: u32,
        now: Ticks,
        mut each: impl FnMut(&Entry),
    ) -> Option<u32> {
        let (slots, next) = self.slice(cursor, DUMP_SLICE);
        for conn in slots.filter_map(|slot| self.slot(slot)) {
            let head = conn.head();
            if !head.is_live(now) || zone.is_some_and(|zone| conn.key(head).zone() != zone) {
                continue;
            }
            let entry = self.entry(conn, head, now);
            // The slot may have another user by now.
            if let Some(entry) = entry
                && conn.is(conn.id(head))
            {
                each(&entry);
            }
        }
        next
    }
}

/// Returns the name of a protocol, or its number.
fn protocol(proto: u8) -> String {
    match proto {
        ip_proto::ICMP => "icmp".into(),
        ip_proto::ICMPV6 => "icmpv6".into(),
        ip_proto::TCP => "tcp".into(),
        ip_proto::UDP => "udp".into(),
        ip_proto::SCTP => "sctp".into(),
        ip_proto::IGMP => "igmp".into(),
        33 => "dccp".into(),
        136 => "udplite".into(),
        other => other.to_string(),
    }
}

/// A tuple as in dumps.
pub(crate) struct TupleText<'a>(pub &'a Tuple);

impl Display for TupleText<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let tuple = self.0;
        write!(f, "src={},dst={}", tuple.src, tuple.dst)?;
        match tuple.ports {
            Ports::Pair { src, dst } => write!(f, ",sport={src},dport={dst}"),
            Ports::Icmp(icmp) => {
                write!(f, ",id={},type={},code={}", icmp.id, icmp.kind(tuple.proto), icmp.code)
            }
        }
    }
}

/// Returns the state by which a connection is listed.
pub(crate) fn listed_state(tcp: &TcpConn) -> TcpState {
    match tcp.state() {
        TcpState::FinWait2 => TcpState::TimeWait,
        TcpState::SynRecv => TcpState::Established,
        other => other,
    }
}

/// Returns the flags of a peer in `protoinfo`.
fn peer_flags(scale: Scale) -> &'static str {
    match scale {
        Scale::None => "0",
        Scale::Shift(_) => "WINDOW_SCALE",
        Scale::Unknown => "BE_LIBERAL",
    }
}

impl Entry {
    /// Returns the line of `dpctl/dump-conntrack`, without the newline.
    pub fn line(&self, detail: Detail) -> String {
        let mut line = String::new();
        // Writing to a string does not fail.
        let _ = self.write_line(&mut line, detail);
        line
    }

    fn write_line(&self, out: &mut String, detail: Detail) -> Result {
        let proto = protocol(self.original.proto);
        let (original, reply) = (TupleText(&self.original), TupleText(&self.reply));
        write!(out, "{proto},orig=({original}),reply=({reply})")?;
        if detail.more {
            out.push_str(",id=0");
        }
        if self.original.zone != 0 {
            write!(out, ",zone={}", self.original.zone)?;
        }
        if detail.more {
            out.push_str(",status=0");
        }
        if detail.statistics {
            write!(out, ",timeout={}", self.timeout.as_secs())?;
        }
        if self.mark != 0 {
            write!(out, ",mark={}", self.mark)?;
        }
        if self.label != 0 {
            write!(out, ",labels={:#x}", self.label)?;
        }
        match &self.tcp {
            Some(tcp) if detail.more => write_tcp(out, tcp)?,
            Some(tcp) => write!(out, ",protoinfo=(state={})", listed_state(tcp).name())?,
            None => {}
        }
        if let Some(helper) = self.helper {
            write!(out, ",helper={}", helper.name())?;
        }
        if let Some(parent) = self.parent.as_ref().filter(|_| detail.more) {
            write!(out, ",parent=({})", TupleText(parent))?;
        }
        Ok(())
    }
}

fn write_tcp(out: &mut String, tcp: &TcpConn) -> Result {
    let [a, b] = &tcp.peers;
    write!(out, ",protoinfo=(state_orig={},state_reply={}", a.state.name(), b.state.name())?;
    let shifts = (a.scale.shift(), b.scale.shift());
    if shifts != (0, 0) {
        write!(out, ",wscale_orig={},wscale_reply={}", shifts.0, shifts.1)?;
    }
    let flags = (peer_flags(a.scale), peer_flags(b.scale));
    write!(out, ",flags_orig={},flags_reply={})", flags.0, flags.1)
}

impl Expectation {
    /// Returns the line of `dpctl/dump-conntrack-exp`, without the newline.
    pub fn line(&self) -> String {
        let mut line = format!("{},orig=({})", protocol(self.tuple.proto), TupleText(&self.tuple));
        if self.tuple.zone != 0 {
            line += &format!(",zone={}", self.tuple.zone);
        }
        if self.mark != 0 {
            line += &format!(",mark={}", self.mark);
        }
        if self.label != 0 {
            line += &format!(",labels={:#x}", self.label);
        }
        line + &format!(",parent=({})", TupleText(&self.parent_tuple))
    }
}

#[cfg(test)]
mod tests;
