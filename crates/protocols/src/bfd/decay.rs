// SPDX-License-Identifier: Apache-2.0
//! Decay: a port that receives hardly anything but control packets asks for fewer of them.

use super::Moment;
use clock::Millis;

/// The shortest time between two decisions, in milliseconds.
const LEAST: i64 = 2000;

/// The measurement on which the next decision is based.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Decay {
    /// The longer interval is wanted.
    pub is_on: bool,
    /// Control packets since the last decision.
    pub control_packets: u32,
    /// Packets of any kind that the port had received at the last decision.
    received: u64,
    /// Time of the next decision.
    pub next: Millis,
}

impl Decay {
    /// Begins to measure, for `min_rx` milliseconds.
    pub(super) fn restart(&mut self, min_rx: u32, at: Moment) {
        self.control_packets = 0;
        self.received = at.received;
        self.next = at.now + i64::from(min_rx).max(LEAST);
    }

    /// Decides, and begins to measure again. A port's count may lag, so twice the number of control
    /// packets does not count as traffic.
    pub(super) fn decide(&mut self, min_rx: u32, at: Moment) {
        let packets = at.received.wrapping_sub(self.received);
        self.is_on = packets <= 2 * u64::from(self.control_packets.max(1));
        self.restart(min_rx, at);
    }
}
