// SPDX-License-Identifier: Apache-2.0
//! The state machines of the protocols, on connections in the table.

use crate::conn::{Conn, Direction};
use crate::head::Head;
use crate::layout::{conn, flags};
use crate::policy::Timeout;
use crate::segment::TcpSegment;
use crate::table::Table;
use crate::tcp::{self, SequenceCheck, TcpConn, Update};
use crate::ticks::Ticks;
use crate::tuple::{Ports, Tuple};
use packet::ip_proto;

/// Times that an update of TCP's state begins again after another thread changed it.
const TRIES: usize = 4;

/// The start of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Start {
    /// The first timeout.
    pub timeout: Timeout,
    /// Words of TCP's state; zero for other protocols.
    pub tcp: [u64; 3],
}

/// Returns the start of a connection by its first packet. `None`: the packet cannot begin one.
pub(crate) fn begin(tuple: &Tuple, segment: Option<&TcpSegment>) -> Option<Start> {
    match (tuple.ports, segment) {
        (Ports::Icmp(icmp), _) => {
            icmp.request.then_some(Start { timeout: Timeout::IcmpFirst, tcp: [0; 3] })
        }
        (Ports::Pair { .. }, Some(segment)) if tuple.proto == ip_proto::TCP => {
            tcp::may_begin(segment).then(|| Start {
                timeout: Timeout::TcpSynSent,
                tcp: TcpConn::begin(segment).to_words(),
            })
        }
        (Ports::Pair { .. }, _) => Some(Start { timeout: Timeout::UdpFirst, tcp: [0; 3] }),
    }
}

/// The result of a packet of a connection in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moved {
    /// The effect.
    pub update: Update,
    /// False when a TCP segment is outside the window.
    pub in_window: bool,
}

/// Returns TCP's state of a connection.
pub(crate) fn tcp_of(conn: Conn<'_>) -> TcpConn {
    TcpConn::from_words(tcp_words(conn))
}

fn tcp_words(conn: Conn<'_>) -> [u64; 3] {
    [conn.word(conn::WINDOW), conn.word(conn::WINDOW + 1), conn.word(conn::CONTROL)]
}

impl Table {
    /// Moves the state of a connection by a packet of `direction`.
    pub(crate) fn advance(
        &self,
        conn: Conn<'_>,
        head: Head,
        direction: Direction,
        segment: Option<&TcpSegment>,
        now: Ticks,
    ) -> Moved {
        let is_icmp = conn.original(head).is_some_and(|t| matches!(t.ports, Ports::Icmp(_)));
        let (update, timeout, assured, in_window) = match segment {
            Some(segment) => self.advance_tcp(conn, direction, segment),
            None => {
                let replied = head.has(flags::REPLIED) || direction == Direction::Reply;
                let timeout = match (is_icmp, replied) {
                    (true, true) => Timeout::IcmpReply,
                    (true, false) => Timeout::IcmpFirst,
                    (false, true) => Timeout::UdpMultiple,
                    (false, false) => Timeout::UdpSingle,
                };
                let update = if replied { Update::Established } else { Update::StillNew };
                (update, Some(timeout), replied, true)
            }
        };
        if let Some(timeout) = timeout {
            let mut set = match direction {
                Direction::Original if is_icmp || segment.is_some() => 0,
                Direction::Original => flags::MULTIPLE,
                Direction::Reply => flags::REPLIED,
            };
            if assured {
                set |= flags::ASSURED;
            }
            let class = conn.class();
            if class.timeout != timeout as u8 {
                conn.set_timeout_class(timeout as u8);
            }
            let ticks = self.policies().ticks(class.policy, timeout);
            self.refresh(conn, head.generation(), set, ticks, now);
        }
        Moved { update, in_window }
    }

    fn advance_tcp(
        &self,
        conn: Conn<'_>,
        direction: Direction,
        segment: &TcpSegment,
    ) -> (Update, Option<Timeout>, bool, bool) {
        let check = if self.sequence_check() { SequenceCheck::On } else { SequenceCheck::Off };
        let mut tries = 0;
        loop {
            let old = tcp_words(conn);
            let mut state = TcpConn::from_words(old);
            let result = state.update(segment, direction, check);
            let new = if result.update == Update::Another { old } else { state.to_words() };
            tries += 1;
            // Packets of the other direction move other words. When both move the control word at
            // once, one of them begins again.
            if conn.exchange_word(conn::CONTROL, old[2], new[2]) || tries == TRIES {
                for at in 0..2 {
                    conn.exchange_word(conn::WINDOW + at, old[at], new[at]);
                }
                return (result.update, result.timeout, state.is_assured(), result.in_window);
            }
        }
    }
}

#[cfg(test)]
mod tests;
