// SPDX-License-Identifier: Apache-2.0
//! The state machine of TCP with window tracking, by the rules of Open vSwitch's userspace tracker.
//!
//! The tracker sees segments of two peers. It keeps for each the highest sequence number sent, the
//! highest that the other peer allows, and the largest window. A segment outside these bounds is
//! invalid. The rules are those of van Rooij, "Real Stateful TCP Packet Filtering in IP Filter".

use crate::conn::Direction;
use crate::policy::Timeout;
use crate::segment::{MAX_WINDOW_SHIFT, TcpSegment};
use packet::tcp_flags::{ACK, FIN, PSH, RST, SYN, URG};

/// The state of one peer of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum TcpState {
    /// Nothing was sent.
    #[default]
    Closed = 0,
    /// A listening socket.
    Listen = 1,
    /// The peer has sent its SYN.
    SynSent = 2,
    /// The peer has received a SYN.
    SynRecv = 3,
    /// The peer's SYN was acknowledged.
    Established = 4,
    /// The peer waits for a close of its user.
    CloseWait = 5,
    /// The peer has sent the first FIN.
    FinWait1 = 6,
    /// The peer has sent its FIN.
    Closing = 7,
    /// The peer waits for the last acknowledgement.
    LastAck = 8,
    /// The peer's FIN was acknowledged.
    FinWait2 = 9,
    /// The connection was reset.
    TimeWait = 10,
}

impl TcpState {
    /// All states, by number.
    pub const ALL: [TcpState; 11] = [
        TcpState::Closed,
        TcpState::Listen,
        TcpState::SynSent,
        TcpState::SynRecv,
        TcpState::Established,
        TcpState::CloseWait,
        TcpState::FinWait1,
        TcpState::Closing,
        TcpState::LastAck,
        TcpState::FinWait2,
        TcpState::TimeWait,
    ];

    /// Returns the name in Open vSwitch's texts.
    pub fn name(self) -> &'static str {
        match self {
            TcpState::Closed => "CLOSED",
            TcpState::Listen => "LISTEN",
            TcpState::SynSent => "SYN_SENT",
            TcpState::SynRecv => "SYN_RECV",
            TcpState::Established => "ESTABLISHED",
            TcpState::CloseWait => "CLOSE_WAIT",
            TcpState::FinWait1 => "FIN_WAIT_1",
            TcpState::Closing => "CLOSING",
            TcpState::LastAck => "LAST_ACK",
            TcpState::FinWait2 => "FIN_WAIT_2",
            TcpState::TimeWait => "TIME_WAIT",
        }
    }

    fn from_bits(bits: u64) -> TcpState {
        let number = (bits & 0xf) as usize;
        TcpState::ALL.get(number).copied().unwrap_or(TcpState::TimeWait)
    }
}

/// The window scale of a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// The peer's SYN had no option, or the other peer's had none.
    #[default]
    None,
    /// The peer's SYN had this shift.
    Shift(u8),
    /// The connection was picked up without its SYN.
    Unknown,
}

impl Scale {
    /// The bit of a scale that an option gave.
    const KNOWN: u64 = 0x80;
    /// The bit of an unknown scale.
    const UNKNOWN: u64 = 0x40;

    fn to_bits(self) -> u64 {
        match self {
            Scale::None => 0,
            Scale::Shift(shift) => Scale::KNOWN | u64::from(shift),
            Scale::Unknown => Scale::UNKNOWN,
        }
    }

    fn from_bits(bits: u64) -> Scale {
        if bits & Scale::KNOWN != 0 {
            Scale::Shift((bits & 0xf).min(MAX_WINDOW_SHIFT.into()) as u8)
        } else if bits & Scale::UNKNOWN != 0 {
            Scale::Unknown
        } else {
            Scale::None
        }
    }

    /// Returns the shift, 0 when there is none or it is unknown.
    pub fn shift(self) -> u8 {
        if let Scale::Shift(shift) = self { shift } else { 0 }
    }
}

/// One peer of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// Its state.
    pub state: TcpState,
    /// Its window scale.
    pub scale: Scale,
    /// The end of the highest data that it sent.
    pub sent: u32,
    /// The end of the data that the other peer allows it to send.
    pub allowed: u32,
    /// The largest window that it announced, unscaled.
    pub window: u16,
}

/// Both peers: that which began the connection, and the other one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpConn {
    /// By `Direction::index`.
    pub peers: [Peer; 2],
}

/// The effect of a packet on its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Update {
    /// The packet belongs to an established connection.
    Established,
    /// The packet belongs to a connection that has no reply yet.
    StillNew,
    /// The packet does not fit the connection.
    Invalid,
    /// The connection is over, and the packet begins another one with its tuple.
    Another,
}

/// The result of the state machine for one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpUpdate {
    /// The effect.
    pub update: Update,
    /// The timeout that begins; `None` leaves the expiry alone.
    pub timeout: Option<Timeout>,
    /// False when the segment is outside the window.
    pub in_window: bool,
}

/// Bytes by which an acknowledgement may differ from the data seen: a whole window and a segment.
const ACK_SLACK: u32 = 0xffff + 1500;

/// Returns true when sequence number `a` is at or after `b`.
fn at_or_after(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) as i32 >= 0
}

/// Returns true for combinations of flags that no stack sends.
pub fn has_invalid_flags(segment: &TcpSegment) -> bool {
    if segment.has(SYN) {
        if segment.flags & (RST | FIN) != 0 {
            return true;
        }
    } else if segment.flags & (ACK | RST) == 0 {
        return true;
    }
    !segment.has(ACK) && segment.flags & (FIN | PSH | URG) != 0
}

/// Returns true when a segment may begin a connection: a SYN, or any segment of a connection that
/// was established before, but no SYN with ACK.
pub fn may_begin(segment: &TcpSegment) -> bool {
    !has_invalid_flags(segment) && !segment.has(SYN | ACK)
}

impl TcpConn {
    /// Returns the state after the first segment. Without a SYN the connection is picked up: its
    /// window scales are unknown.
    pub fn begin(segment: &TcpSegment) -> TcpConn {
        let mut source = Peer {
            state: TcpState::SynSent,
            sent: segment.seq,
            allowed: segment.seq.wrapping_add(segment.data_len).wrapping_add(1),
            window: segment.window.max(1),
            scale: Scale::Unknown,
        };
        let mut other = Peer { allowed: 1, window: 1, scale: Scale::Unknown, ..Peer::default() };
        if segment.has(SYN) {
            source.allowed = source.allowed.wrapping_add(1);
            source.scale = segment.window_shift.map_or(Scale::None, Scale::Shift);
            other.scale = Scale::None;
        }
        // The window of a SYN is not scaled.
        source.window = unscaled(source.window, source.scale.shift());
        if segment.has(FIN) {
            source.allowed = source.allowed.wrapping_add(1);
        }
        TcpConn { peers: [source, other] }
    }

    /// Returns the state in words of the table: the windows and the control word.
    pub fn to_words(self) -> [u64; 3] {
        let [a, b] = self.peers;
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let control = a.state as u64
            | (b.state as u64) << 4
            | a.scale.to_bits() << 8
            | b.scale.to_bits() << 16
            | u64::from(a.window) << 24
            | u64::from(b.window) << 40;
        // A direction's packets move its sender's `sent` and its receiver's `allowed`.
        [pair(a.sent, b.allowed), pair(b.sent, a.allowed), control]
    }

    /// Returns the state in words of the table. Any words are a state.
    pub fn from_words([first, second, control]: [u64; 3]) -> TcpConn {
        let peer = |at: u64, sent: u64, allowed: u64| Peer {
            state: TcpState::from_bits(control >> (at * 4)),
            scale: Scale::from_bits(control >> (8 + at * 8) & 0xff),
            sent: sent as u32,
            allowed: (allowed >> 32) as u32,
            window: (control >> (24 + at * 16)) as u16,
        };
        TcpConn { peers: [peer(0, first, second), peer(1, second, first)] }
    }

    /// Returns the state of the connection as a whole.
    pub fn state(&self) -> TcpState {
        self.peers[0].state.max(self.peers[1].state)
    }

    /// Returns true when both peers have their SYN acknowledged.
    pub fn is_assured(&self) -> bool {
        self.peers.iter().all(|peer| peer.state >= TcpState::Established)
    }

    /// Moves the state by a segment of `direction`. Without `check`, segments outside the window
    /// are treated as those inside.
    pub fn update(
        &mut self,
        segment: &TcpSegment,
        direction: Direction,
        check: SequenceCheck,
    ) -> TcpUpdate {
        let result = |update, timeout| TcpUpdate { update, timeout, in_window: true };
        if has_invalid_flags(segment) {
            return result(Update::Invalid, None);
        }
        let [mut src, mut dst] = match direction {
            Direction::Original => self.peers,
            Direction::Reply => [self.peers[1], self.peers[0]],
        };
        if segment.is_bare_syn() {
            if src.state >= TcpState::FinWait2 && dst.state >= TcpState::FinWait2 {
                return result(Update::Another, None);
            }
            if src.state <= TcpState::SynSent {
                src.state = TcpState::SynSent;
                self.store(direction, src, dst);
                return result(Update::StillNew, Some(Timeout::TcpSynSent));
            }
        }
        let (mut src_shift, mut dst_shift) = match (src.scale, dst.scale) {
            _ if segment.has(SYN) => (0, 0),
            (Scale::Shift(a), Scale::Shift(b)) => (a, b),
            (Scale::Unknown, Scale::Unknown) => (MAX_WINDOW_SHIFT, MAX_WINDOW_SHIFT),
            _ => (0, 0),
        };
        let mut window = segment.window;
        let mut seq = segment.seq;
        let controls = u32::from(segment.has(SYN)) + u32::from(segment.has(FIN));
        let mut end = seq.wrapping_add(segment.data_len).wrapping_add(controls);
        let mut is_pick_up = false;
        if src.state < TcpState::SynSent {
            // The first segment of this peer.
            if let (true, Scale::Shift(shift)) = (segment.has(SYN), dst.scale) {
                src.scale = segment.window_shift.map_or(Scale::None, Scale::Shift);
                if let Scale::Shift(own) = src.scale {
                    window = unscaled(window, own);
                    (src_shift, dst_shift) = (own, shift);
                } else {
                    // Neither side scales then.
                    dst.window = (u32::from(dst.window) << shift) as u16;
                    dst.scale = Scale::None;
                }
            }
            src.sent = seq;
            src.state = TcpState::SynSent;
            let allowed = end.wrapping_add((u32::from(dst.window) << dst_shift).max(1));
            if src.allowed == 1 || at_or_after(allowed, src.allowed) {
                src.allowed = allowed;
                is_pick_up = true;
            }
            src.window = src.window.max(window);
        }
        let ignores_ack = !segment.has(ACK) || (segment.ack == 0 && segment.has(ACK | RST));
        let ack = if ignores_ack { dst.sent } else { segment.ack };
        if seq == end {
            // Segments without data are not held to their number.
            seq = src.sent;
            end = seq;
        }
        let skew = if is_pick_up { 0 } else { dst.sent.wrapping_sub(ack) as i32 };
        let reset_fits =
            !segment.has(RST) || segment.seq.wrapping_sub(src.sent).wrapping_add(1) <= 2;
        let in_window = at_or_after(src.allowed, end)
            && at_or_after(seq, src.sent.wrapping_sub(u32::from(dst.window) << dst_shift))
            && i64::from(skew) >= -i64::from(ACK_SLACK)
            && i64::from(skew) <= i64::from(ACK_SLACK) << src_shift
            && reset_fits;
        let is_fresh_or_closing = dst.state < TcpState::SynSent
            || dst.state >= TcpState::FinWait2
            || src.state >= TcpState::FinWait2;
        let is_close = is_fresh_or_closing
            && at_or_after(src.allowed.wrapping_add(ACK_SLACK), end)
            && at_or_after(seq, src.sent.wrapping_sub(ACK_SLACK));
        let is_tracked = in_window || check == SequenceCheck::Off;
        if !is_tracked && !is_close {
            // The first segment of a peer leaves its numbers, as in Open vSwitch.
            self.store(direction, src, dst);
            return TcpUpdate { update: Update::Invalid, timeout: None, in_window: false };
        }

        src.window = src.window.max(window);
        if !at_or_after(src.sent, end) {
            src.sent = end;
        }
        let scaled = u32::from(window) << src_shift;
        if at_or_after(ack.wrapping_add(scaled), dst.allowed) {
            dst.allowed = ack.wrapping_add(scaled.max(1));
        }
        if segment.has(FIN) && src.state < TcpState::Closing {
            src.state = TcpState::Closing;
        }
        if segment.has(ACK) && is_tracked {
            match dst.state {
                TcpState::SynSent => dst.state = TcpState::Established,
                TcpState::Closing => dst.state = TcpState::FinWait2,
                _ => {}
            }
        }
        if segment.has(RST) {
            src.state = TcpState::TimeWait;
            dst.state = TcpState::TimeWait;
        }
        self.store(direction, src, dst);
        // A segment that only the looser rule admits does not prolong the connection.
        let timeout = is_tracked.then(|| self.timeout());
        TcpUpdate { update: Update::Established, timeout, in_window }
    }

    fn store(&mut self, direction: Direction, src: Peer, dst: Peer) {
        self.peers = match direction {
            Direction::Original => [src, dst],
            Direction::Reply => [dst, src],
        };
    }

    fn timeout(&self) -> Timeout {
        let both = |state| self.peers.iter().all(|peer| peer.state >= state);
        let one = |state| self.peers.iter().any(|peer| peer.state >= state);
        if both(TcpState::FinWait2) {
            Timeout::TcpClose
        } else if both(TcpState::Closing) {
            Timeout::TcpTimeWait
        } else if !both(TcpState::Established) {
            Timeout::TcpSynRecv
        } else if one(TcpState::Closing) {
            Timeout::TcpFinWait
        } else {
            Timeout::TcpEstablished
        }
    }
}

/// Whether segments outside the window are invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SequenceCheck {
    /// They are invalid.
    On,
    /// They pass, and move the state.
    Off,
}

/// Returns an unscaled window in units of the shift, rounded up.
fn unscaled(window: u16, shift: u8) -> u16 {
    u32::from(window).div_ceil(1 << shift) as u16
}

#[cfg(test)]
mod tests;
