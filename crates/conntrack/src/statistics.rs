// SPDX-License-Identifier: Apache-2.0
//! The answers of `dpctl/ct-stats-show` and `dpctl/ct-bkts`.

use crate::dump::{Entry, listed_state};
use crate::tcp::TcpState;
use packet::ip_proto;
use std::fmt::Write;

/// Numbers of connections by protocol and by TCP state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    total: u64,
    /// In the order of [`PROTOCOLS`], then all others.
    protocols: [u64; PROTOCOLS.len() + 1],
    states: [u64; TcpState::ALL.len()],
}

/// Protocols that are counted by themselves, in the order of the answer.
const PROTOCOLS: [(u8, &str); 7] = [
    (ip_proto::TCP, "TCP"),
    (ip_proto::UDP, "UDP"),
    (136, "UDPLITE"),
    (ip_proto::SCTP, "SCTP"),
    (ip_proto::ICMP, "ICMP"),
    (33, "DCCP"),
    (ip_proto::IGMP, "IGMP"),
];

impl Statistics {
    /// Counts a connection.
    pub fn add(&mut self, entry: &Entry) {
        let proto = entry.original.proto;
        self.total += 1;
        // As in Open vSwitch, ICMPv6 is part of the total alone.
        if proto == ip_proto::ICMPV6 {
            return;
        }
        let at = PROTOCOLS.iter().position(|(number, _)| *number == proto);
        if let Some(count) = self.protocols.get_mut(at.unwrap_or(PROTOCOLS.len())) {
            *count += 1;
        }
        if let Some(tcp) = &entry.tcp
            && let Some(count) = self.states.get_mut(listed_state(tcp) as usize)
        {
            *count += 1;
        }
    }

    /// Returns the answer of `dpctl/ct-stats-show`; with `states`, that of its option `-m`.
    pub fn text(&self, states: Detailed) -> String {
        let mut text = format!("Connections Stats:\n    Total: {}\n", self.total);
        let names = PROTOCOLS.iter().map(|(_, name)| *name).chain(["Other"]);
        for (name, count) in names.zip(self.protocols).filter(|(_, count)| *count > 0) {
            let _ = writeln!(text, "  {name}: {count}");
            if name == "TCP" && states == Detailed::States {
                text += "    Conn per TCP states:\n";
                for state in TcpState::ALL {
                    let count = self.states.get(state as usize).copied().unwrap_or(0);
                    if count > 0 {
                        let _ = writeln!(text, "\t  [{}]={count}", state.name());
                    }
                }
            }
        }
        text
    }
}

/// Whether statistics have the states of TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detailed {
    /// Protocols alone.
    Protocols,
    /// The states of TCP, too.
    States,
}

/// Returns the answer of `dpctl/ct-bkts`. Open vSwitch's userspace datapath counts one bucket, and
/// prints no table without connections. A count is shown when it is above `above` (`gt=N`).
pub fn buckets_text(conns: u64, above: u64) -> String {
    const RULE: &str = "+-----------+-----------------------------------------+";
    if conns == 0 {
        return "Total Buckets: 1\nCurrent Connections: 0\n\n".into();
    }
    let count = if conns > above { format!("{conns:>5}") } else { format!("{:>5}", ".") };
    format!(
        "Total Buckets: 1\nCurrent Connections: {conns}\n\n{RULE}\n\
         |  Buckets  |         Connections per Buckets         |\n{RULE}\n   0..  7   | {count}\n\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::{Peer, TcpConn};
    use crate::tuple::{Ports, Tuple};
    use std::net::Ipv4Addr;
    use std::time::Duration;

    fn entry(proto: u8, state: Option<TcpState>) -> Entry {
        let address = Ipv4Addr::new(10, 1, 1, 1).into();
        let ports = Ports::Pair { src: 1, dst: 2 };
        let original = Tuple { src: address, dst: address, ports, proto, zone: 3 };
        let peer = |state| Peer { state, ..Peer::default() };
        Entry {
            original,
            reply: original.reversed(),
            mark: 0,
            label: 0,
            timeout: Duration::ZERO,
            tcp: state.map(|state| TcpConn { peers: [peer(state), peer(TcpState::Closed)] }),
            helper: None,
            parent: None,
        }
    }

    #[test]
    fn texts_of_open_vswitch() {
        let mut statistics = Statistics::default();
        statistics.add(&entry(ip_proto::TCP, Some(TcpState::SynRecv)));
        statistics.add(&entry(ip_proto::UDP, None));
        let short = "Connections Stats:\n    Total: 2\n  TCP: 1\n  UDP: 1\n";
        assert_eq!(statistics.text(Detailed::Protocols), short);
        let long = "Connections Stats:\n    Total: 2\n  TCP: 1\n    Conn per TCP states:\n\
                    \t  [ESTABLISHED]=1\n  UDP: 1\n";
        assert_eq!(statistics.text(Detailed::States), long);
        statistics.add(&entry(ip_proto::ICMPV6, None));
        statistics.add(&entry(47, None));
        let more = "Connections Stats:\n    Total: 4\n  TCP: 1\n  UDP: 1\n  Other: 1\n";
        assert_eq!(statistics.text(Detailed::Protocols), more);
    }

    #[test]
    fn buckets() {
        let text = buckets_text(2, 0);
        assert!(text.starts_with("Total Buckets: 1\nCurrent Connections: 2\n\n+---"));
        assert!(text.ends_with("---+\n   0..  7   |     2\n\n"));
        assert_eq!(buckets_text(0, 0), "Total Buckets: 1\nCurrent Connections: 0\n\n");
        assert!(buckets_text(2, 2).ends_with("   0..  7   |     .\n\n"));
    }
}
