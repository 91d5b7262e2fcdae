// SPDX-License-Identifier: Apache-2.0
//! Timeout policies.

use crate::atomic::Ordering;
use crate::layout::{POLICIES, POLICY_WORDS};
use crate::memory::Memory;
use crate::ticks;
use std::time::Duration;

/// A timeout of a policy, in the order of the table `CT_Timeout_Policy`'s keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Timeout {
    /// After a SYN.
    TcpSynSent = 0,
    /// Until both sides have acknowledged a SYN.
    TcpSynRecv = 1,
    /// Of an established TCP connection.
    TcpEstablished = 2,
    /// After the first FIN.
    TcpFinWait = 3,
    /// After the second FIN.
    TcpTimeWait = 4,
    /// After both FINs were acknowledged, or a RST.
    TcpClose = 5,
    /// After the first packet of UDP, SCTP and others.
    UdpFirst = 6,
    /// After more packets in one direction.
    UdpSingle = 7,
    /// After a reply.
    UdpMultiple = 8,
    /// After an ICMP request.
    IcmpFirst = 9,
    /// After an ICMP reply.
    IcmpReply = 10,
}

impl Timeout {
    /// All timeouts, by number.
    pub const ALL: [Timeout; 11] = [
        Timeout::TcpSynSent,
        Timeout::TcpSynRecv,
        Timeout::TcpEstablished,
        Timeout::TcpFinWait,
        Timeout::TcpTimeWait,
        Timeout::TcpClose,
        Timeout::UdpFirst,
        Timeout::UdpSingle,
        Timeout::UdpMultiple,
        Timeout::IcmpFirst,
        Timeout::IcmpReply,
    ];

    /// Returns the name of the key in `CT_Timeout_Policy`.
    pub fn name(self) -> &'static str {
        match self {
            Timeout::TcpSynSent => "tcp_syn_sent",
            Timeout::TcpSynRecv => "tcp_syn_recv",
            Timeout::TcpEstablished => "tcp_established",
            Timeout::TcpFinWait => "tcp_fin_wait",
            Timeout::TcpTimeWait => "tcp_time_wait",
            Timeout::TcpClose => "tcp_close",
            Timeout::UdpFirst => "udp_first",
            Timeout::UdpSingle => "udp_single",
            Timeout::UdpMultiple => "udp_multiple",
            Timeout::IcmpFirst => "icmp_first",
            Timeout::IcmpReply => "icmp_reply",
        }
    }

    /// Returns Open vSwitch's default.
    pub fn default_duration(self) -> Duration {
        Duration::from_secs(match self {
            Timeout::TcpSynSent | Timeout::TcpSynRecv | Timeout::TcpClose => 30,
            Timeout::TcpEstablished => 86_400,
            Timeout::TcpFinWait => 900,
            Timeout::TcpTimeWait => 45,
            Timeout::UdpFirst | Timeout::UdpSingle | Timeout::IcmpFirst => 60,
            Timeout::UdpMultiple | Timeout::IcmpReply => 30,
        })
    }
}

/// The timeouts that a policy sets; others are the default policy's.
pub type Policy = [Option<Duration>; Timeout::ALL.len()];

/// The policies in a table's memory.
#[derive(Clone, Copy, Debug)]
pub struct Policies<'a>(pub(crate) &'a dyn Memory);

impl Policies<'_> {
    fn stored(&self, policy: u16, timeout: Timeout) -> u32 {
        let at = usize::from(policy) * POLICY_WORDS + timeout as usize / 2;
        let word = self.0.policies().get(at).map_or(0, |word| word.load(Ordering::Relaxed));
        (word >> (timeout as u32 % 2 * 32)) as u32
    }

    /// Returns a timeout in ticks, at least one.
    pub fn ticks(&self, policy: u16, timeout: Timeout) -> u32 {
        match self.stored(policy, timeout) {
            0 if policy != 0 => self.ticks(0, timeout),
            0 => ticks::timeout(timeout.default_duration()),
            stored => stored,
        }
    }

    /// Sets a policy. Connections that have its number follow from their next packet on.
    pub fn set(&self, number: u16, policy: &Policy) {
        let at = usize::from(number) * POLICY_WORDS;
        let Some(words) = self.0.policies().get(at..at + POLICY_WORDS) else {
            return;
        };
        for (word, pair) in words.iter().zip(policy.chunks(2)) {
            let value = |at: usize| {
                let set = pair.get(at).copied().flatten();
                set.map_or(0, |duration| u64::from(ticks::timeout(duration).max(1)))
            };
            word.store(value(0) | value(1) << 32, Ordering::Relaxed);
        }
    }

    /// Returns a policy in whole seconds, as databases hold them.
    pub fn get(&self, number: u16) -> Policy {
        Timeout::ALL.map(|timeout| match self.stored(number, timeout) {
            0 => None,
            stored => {
                let nanos = u64::from(stored) << crate::layout::TICK_SHIFT;
                Some(Duration::from_secs(Duration::from_nanos(nanos).as_secs()))
            }
        })
    }

    /// Removes a policy: its connections follow the default policy.
    pub fn delete(&self, number: u16) {
        self.set(number, &Policy::default());
    }
}

const _: () = assert!(Timeout::ALL.len() <= 2 * POLICY_WORDS && POLICIES <= 1 << 12);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{PlainMemory, Sizes};

    #[test]
    fn whole_seconds_are_read_as_they_were_set() {
        let memory =
            PlainMemory::new(Sizes { buckets: 1, chunks: 1, ring_slots: 2, ..Sizes::default() });
        let policies = Policies(&memory);
        for seconds in (0..2000).chain([86_399, 86_400, 86_401, 400 * 86_400]) {
            let mut policy = Policy::default();
            policy[Timeout::IcmpReply as usize] = Some(Duration::from_secs(seconds));
            policies.set(9, &policy);
            assert_eq!(policies.get(9), policy);
        }
    }

    #[test]
    fn policies_fall_back_to_the_default() {
        let memory =
            PlainMemory::new(Sizes { buckets: 1, chunks: 1, ring_slots: 2, ..Sizes::default() });
        let policies = Policies(&memory);
        let seconds =
            |policy, timeout| ticks::duration(policies.ticks(policy, timeout) as i32).as_secs();
        assert_eq!(seconds(0, Timeout::TcpEstablished), 86_400);
        let mut policy = Policy::default();
        policy[Timeout::UdpSingle as usize] = Some(Duration::from_secs(7));
        policies.set(5, &policy);
        assert_eq!(seconds(5, Timeout::UdpSingle), 7);
        assert_eq!(seconds(5, Timeout::UdpFirst), 60);
        assert_eq!((policies.get(5), policies.get(4)), (policy, Policy::default()));
        policy[Timeout::UdpFirst as usize] = Some(Duration::from_secs(9));
        policies.set(0, &policy);
        assert_eq!(seconds(5, Timeout::UdpFirst), 9);
        policies.delete(5);
        policies.delete(0);
        assert_eq!(seconds(5, Timeout::UdpSingle), 60);
        for (number, timeout) in Timeout::ALL.into_iter().enumerate() {
            assert_eq!(timeout as usize, number);
        }
    }
}
