// SPDX-License-Identifier: Apache-2.0
//! Echo requests (RFC 792, RFC 4443), and how many were answered.
//!
//! `fping` sends them: after its last request `ping` of iputils waits for missing replies no longer
//! than lies between two requests, or twice the longest answer so far, whatever `-W` says.
//! On a busy machine an answer may take longer than that, and would be taken for lost.

use super::{Netns, patient};
use std::time::Duration;

/// How many echo requests there were, and answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Echoes {
    /// Number of requests that were sent.
    pub sent: u32,
    /// Those that were answered.
    pub answered: u32,
    /// The output of `fping`, for messages.
    pub said: String,
}

impl Echoes {
    /// Requests without an answer.
    pub fn lost(&self) -> u32 {
        self.sent.saturating_sub(self.answered)
    }

    /// Sends `count` requests from `netns` to `to`, 20 ms apart, each of which waits for its answer
    /// for a second, of [`patient`]. With `bytes` of payload, unfragmented. Returns
    /// zero if `fping` does not report a number.
    pub fn ask(netns: &Netns, to: &str, count: u32, bytes: Option<u32>) -> Echoes {
        let wait = patient(Duration::from_secs(1)).as_millis();
        let whole = bytes.map_or_else(String::new, |bytes| format!(" -M -b {bytes}"));
        let said = netns.run(&format!("fping -q -c {count} -p 20 -t {wait}{whole} {to}")).text();
        let (sent, answered) = counts(&said).unwrap_or((count, 0));
        Echoes { sent, answered, said }
    }
}

/// `fping` says "10.0.0.2 : xmt/rcv/%loss = 20/20/0%, min/avg/max = ...".
fn counts(said: &str) -> Option<(u32, u32)> {
    let (_, behind) = said.rsplit_once("xmt/rcv/%loss = ")?;
    let mut numbers = behind.split('/').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::{wait_until, without_privilege, without_tool};
    use netdev::{Kind, OpenSpec, Opened, PacketPool};
    use packet::Packet;

    #[test]
    fn what_fping_says_is_understood() {
        let some = "10.0.0.2 : xmt/rcv/%loss = 20/19/5%, min/avg/max = 0.04/0.06/0.11\n";
        assert_eq!(counts(some), Some((20, 19)));
        let none = "ICMP Host Unreachable from 10.0.0.1\nfd00::2 : xmt/rcv/%loss = 5/0/100%\n";
        assert_eq!(counts(none), Some((5, 0)));
        assert_eq!(counts("fping: command not found"), None);
    }

    /// Makes an echo request over IPv4 the answer to it; false when it is none.
    fn answer(packet: &mut Packet) -> bool {
        const ETHERTYPE: usize = 12;
        const PROTOCOL: usize = 23;
        const ICMP: usize = 34;
        let Some(frame) = packet.data_mut().get_mut(..ICMP + 4) else { return false };
        if frame[ETHERTYPE..ETHERTYPE + 2] != [8, 0] || (frame[PROTOCOL], frame[ICMP]) != (1, 8) {
            return false;
        }
        for (from, to, length) in [(0, 6, 6), (26, 30, 4)] {
            (0..length).for_each(|at| frame.swap(from + at, to + at));
        }
        frame[ICMP] = 0;
        let (sum, carry) =
            u16::from_be_bytes([frame[ICMP + 2], frame[ICMP + 3]]).overflowing_add(8 << 8);
        frame[ICMP + 2..].copy_from_slice(&(sum + u16::from(carry)).to_be_bytes());
        true
    }

    /// Answers `count` requests, the last one after `late`.
    fn answer_all(tap: &mut Opened, count: u32, late: Duration) {
        let (mut pool, mut packets, mut answered) = (PacketPool::new(32), Vec::new(), 0);
        wait_until(Duration::from_secs(10), || {
            let _ = tap.queues[0].recv(&mut packets, &mut pool, 32); // nothing there
            for packet in packets.drain(..).filter_map(|mut p| answer(&mut p).then_some(p)) {
                answered += 1;
                if answered == count {
                    std::thread::sleep(late);
                }
                tap.sender.send(&[packet]);
            }
            answered == count
        });
    }

    #[test]
    fn an_answer_that_comes_late_is_no_loss() {
        if without_privilege() || without_tool(&["ip", "fping", "nsenter"]) {
            return;
        }
        const COUNT: u32 = 5;
        let netns = Netns::new();
        let mut tap = netns.with(|| netdev::open(&OpenSpec::new("eth0", Kind::Internal))).unwrap();
        netns.sh("ip addr add 10.0.0.1/24 dev eth0 && ip link set eth0 up &&
             ip neigh add 10.0.0.2 lladdr 02:00:00:00:00:02 dev eth0 nud permanent");
        let answering = std::thread::spawn(move || {
            answer_all(&mut tap, COUNT, Duration::from_millis(300));
            tap // the device is there as long as it
        });
        let echoes = Echoes::ask(&netns, "10.0.0.2", COUNT, None);
        answering.join().unwrap();
        assert_eq!((echoes.sent, echoes.answered), (COUNT, COUNT), "{}", echoes.said);
    }
}
