// SPDX-License-Identifier: Apache-2.0
//! Path MTUs: what routers on the path to a remote report (RFC 1191, RFC 8201).

use clock::Millis;
use std::collections::HashMap;
use std::net::IpAddr;

/// How long a report counts, in milliseconds: 10 minutes, as RFC 1191, section 6.3 recommends.
const LIFETIME: i64 = 10 * 60 * 1000;
/// Most remotes. Reports are easy to forge, and a remote without one costs a lost packet.
const MOST: usize = 4096;
/// Lowest MTU of IPv4 that is believed, in bytes (`net.ipv4.route.min_pmtu` of Linux).
const LEAST_IPV4: u32 = 552;
/// Lowest MTU of IPv6, in bytes (RFC 8200, section 5).
const LEAST_IPV6: u32 = 1280;

/// The longest packets that reach remotes, where routers have reported less than the device's MTU.
#[derive(Debug, Default)]
pub(crate) struct PathMtus {
    remotes: HashMap<IpAddr, (u32, Millis)>,
}

impl PathMtus {
    /// Records the report that packets to `remote` may have `mtu` bytes at most. A report of more
    /// than is known already does not count, since an attacker or an old packet may be its cause.
    /// Returns true when the path MTU became lower.
    pub(crate) fn record(&mut self, remote: IpAddr, mtu: u32, now: Millis) -> bool {
        let mtu = mtu.max(if remote.is_ipv6() { LEAST_IPV6 } else { LEAST_IPV4 });
        if self.get(remote, now).is_some_and(|known| known <= mtu) {
            return false;
        }
        if self.remotes.len() >= MOST && !self.remotes.contains_key(&remote) {
            self.expire(now);
            if self.remotes.len() >= MOST {
                return false;
            }
        }
        self.remotes.insert(remote, (mtu, now + LIFETIME));
        true
    }

    /// Returns the path MTU to `remote` in bytes; `None` when no report counts.
    pub(crate) fn get(&self, remote: IpAddr, now: Millis) -> Option<u32> {
        self.remotes.get(&remote).filter(|(_, until)| *until > now).map(|(mtu, _)| *mtu)
    }

    /// Removes reports that no longer count. Returns true when there were some: packets may be
    /// longer again.
    pub(crate) fn expire(&mut self, now: Millis) -> bool {
        let before = self.remotes.len();
        self.remotes.retain(|_, (_, until)| *until > now);
        self.remotes.len() != before
    }

    /// Returns the time when the first report ends.
    pub(crate) fn next_expiry(&self) -> Option<Millis> {
        self.remotes.values().map(|(_, until)| *until).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_report_counts_for_ten_minutes() {
        let (remote, mut mtus) = ("10.0.0.1".parse().unwrap(), PathMtus::default());
        assert_eq!(mtus.get(remote, Millis(0)), None);
        assert!(mtus.record(remote, 1400, Millis(0)));
        assert!(!mtus.record(remote, 1450, Millis(1)));
        assert!(mtus.record(remote, 1300, Millis(2)));
        assert_eq!(mtus.get(remote, Millis(3)), Some(1300));
        assert!(!mtus.expire(Millis(600_001)));
        assert!(mtus.expire(Millis(600_002)));
        assert_eq!(mtus.get(remote, Millis(600_002)), None);
    }

    #[test]
    fn no_report_makes_packets_tiny() {
        let (v4, v6) = ("10.0.0.1".parse().unwrap(), "2001:db8::1".parse().unwrap());
        let mut mtus = PathMtus::default();
        assert!(mtus.record(v4, 68, Millis(0)) && mtus.record(v6, 0, Millis(0)));
        assert_eq!(mtus.get(v4, Millis(1)), Some(552));
        assert_eq!(mtus.get(v6, Millis(1)), Some(1280));
    }

    #[test]
    fn reports_for_many_remotes_are_bounded() {
        let mut mtus = PathMtus::default();
        for n in 0..=MOST as u32 {
            mtus.record(std::net::Ipv4Addr::from_bits(n).into(), 1400, Millis(0));
        }
        assert_eq!(mtus.remotes.len(), MOST);
    }
}
