// SPDX-License-Identifier: Apache-2.0
//! Rate limiting of packet-ins to one controller (`Controller:controller_rate_limit`).
//!
//! The limiter is a token bucket. A packet without a token waits in a queue of its ingress port.
//! Ports take turns. When all queues together are full, the longest loses a packet, so a busy port
//! cannot keep the packets of other ports from the controller.

use clock::Millis;
use openflow::PortNo;
use std::collections::{BTreeMap, VecDeque};

/// Most packets that one [`PacketQueue::ready`] call returns.
const TURN: usize = 50;
/// Most packets that wait, for any burst.
const MOST_QUEUED: u32 = 10_000;

/// A limit on packet-ins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// Packets a second; at least 1.
    pub rate: u32,
    /// Packets that may be sent at once, and packets that may wait; at least 1.
    pub burst: u32,
}

/// Counters of one queue, for `Controller:status` (`packet-in-miss-*`, `packet-in-action-*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketQueueStats {
    /// Packets sent without waiting.
    pub bypassed: u64,
    /// Packets that had to wait.
    pub queued: u64,
    /// Packets dropped because the queues were full.
    pub dropped: u64,
    /// Packets that wait now.
    pub backlog: u64,
}

/// Packets (as messages ready to be sent) under one limit.
#[derive(Debug)]
pub(super) struct PacketQueue {
    limit: Option<RateLimit>,
    /// Tokens, in thousandths of a packet.
    tokens: u64,
    filled: Millis,
    ports: BTreeMap<PortNo, VecDeque<Vec<u8>>>,
    /// Port that was served last.
    last: PortNo,
    stats: PacketQueueStats,
}

impl PacketQueue {
    pub(super) fn new(limit: Option<RateLimit>, now: Millis) -> PacketQueue {
        let tokens = limit.map_or(0, |l| u64::from(l.burst.max(1)) * 1000);
        PacketQueue {
            limit,
            tokens,
            filled: now,
            ports: BTreeMap::new(),
            last: PortNo::NONE,
            stats: PacketQueueStats::default(),
        }
    }

    pub(super) fn stats(&self) -> PacketQueueStats {
        self.stats
    }

    /// Changes the limit from now on.
    pub(super) fn set_limit(&mut self, limit: Option<RateLimit>) {
        self.limit = limit;
        if let Some(limit) = limit {
            self.tokens = self.tokens.min(u64::from(limit.burst.max(1)) * 1000);
        }
    }

    fn token(&mut self, now: Millis) -> bool {
        let Some(limit) = self.limit else { return true };
        let gained = now.since(self.filled).saturating_mul(u64::from(limit.rate.max(1)));
        self.filled = self.filled.max(now);
        self.tokens = self.tokens.saturating_add(gained).min(u64::from(limit.burst.max(1)) * 1000);
        match self.tokens.checked_sub(1000) {
            Some(rest) => {
                self.tokens = rest;
                true
            }
            None => false,
        }
    }

    /// Returns `message` when it may be sent at once. Otherwise queues it.
    pub(super) fn offer(&mut self, port: PortNo, message: Vec<u8>, now: Millis) -> Option<Vec<u8>> {
        let Some(limit) = self.limit else { return Some(message) };
        if self.stats.backlog == 0 && self.token(now) {
            self.stats.bypassed += 1;
            return Some(message);
        }
        if self.stats.backlog >= u64::from(limit.burst.clamp(1, MOST_QUEUED)) {
            self.drop_longest();
        }
        self.ports.entry(port).or_default().push_back(message);
        self.stats.queued += 1;
        self.stats.backlog += 1;
        None
    }

    fn drop_longest(&mut self) {
        let longest = self.ports.iter().max_by_key(|(_, q)| q.len()).map(|(port, _)| *port);
        if let Some(port) = longest
            && self.pop(port).is_some()
        {
            self.stats.dropped += 1;
        }
    }

    fn pop(&mut self, port: PortNo) -> Option<Vec<u8>> {
        let queue = self.ports.get_mut(&port)?;
        let message = queue.pop_front();
        if queue.is_empty() {
            self.ports.remove(&port);
        }
        self.stats.backlog = self.stats.backlog.saturating_sub(1);
        message
    }

    /// Returns the packets that may be sent now.
    pub(super) fn ready(&mut self, now: Millis) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        while out.len() < TURN && self.stats.backlog > 0 && self.token(now) {
            let after = self
                .ports
                .range((std::ops::Bound::Excluded(self.last), std::ops::Bound::Unbounded));
            let next = after.map(|(p, _)| *p).next().or_else(|| self.ports.keys().next().copied());
            let Some(port) = next else { break };
            self.last = port;
            out.extend(self.pop(port));
        }
        out
    }

    /// Returns the time at which [`PacketQueue::ready`] has the next packet.
    pub(super) fn deadline(&self) -> Option<Millis> {
        let limit = self.limit?;
        if self.stats.backlog == 0 {
            return None;
        }
        let missing = 1000u64.saturating_sub(self.tokens);
        let wait = missing.div_ceil(u64::from(limit.rate.max(1)));
        Some(self.filled + i64::try_from(wait).unwrap_or(i64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_limit_nothing_waits() {
        let mut q = PacketQueue::new(None, Millis(1));
        assert_eq!(q.offer(PortNo(1), vec![1], Millis(1)), Some(vec![1]));
        assert_eq!(q.deadline(), None);
    }

    #[test]
    fn a_burst_goes_then_the_rate_and_ports_take_turns() {
        let mut q = PacketQueue::new(Some(RateLimit { rate: 10, burst: 4 }), Millis(0));
        for n in 0..4 {
            assert!(q.offer(PortNo(1), vec![n], Millis(0)).is_some());
        }
        for n in 0..4 {
            assert!(q.offer(PortNo(1), vec![n], Millis(0)).is_none());
        }
        // Full: the longest queue, port 1's, loses its oldest.
        assert!(q.offer(PortNo(2), vec![9], Millis(0)).is_none());
        assert_eq!(q.stats(), PacketQueueStats { bypassed: 4, queued: 5, dropped: 1, backlog: 4 });
        assert!(q.ready(Millis(99)).is_empty());
        assert_eq!(q.deadline(), Some(Millis(100)));
        assert_eq!(q.ready(Millis(300)), [vec![1], vec![9], vec![2]]);
        assert_eq!(q.ready(Millis(400)), [vec![3]]);
        assert_eq!(q.stats().backlog, 0);
    }
}
