// SPDX-License-Identifier: Apache-2.0
//! Which vport a received packet belongs to.
//!
//! A vport may fix the key, its own address and the other end's, or leave each to the flow; its own
//! address it may also not name. So there are twelve classes of vports. A packet belongs to the
//! first class that has a vport for it, in Open vSwitch's order: fixed keys first, among them fixed
//! other ends, among them fixed own addresses, then unnamed ones.

use super::config::{Config, OrFlow, PacketTypeMode, c_hex};
use crate::ids::BridgeIndex;
use datapath::PortNo as DpPort;
use hashbrown::{HashMap, HashSet};
use openflow::PortNo;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// The part of a vport's options by which received packets find it. Two vports with equal parts
/// cannot exist at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VportMatch {
    /// The datapath port, which stands for the kind and the UDP port.
    backing: DpPort,
    key: OrFlow<u64>,
    local: OwnAddress,
    remote: OrFlow<IpAddr>,
    mode: PacketTypeMode,
}

/// A vport's own address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum OwnAddress {
    Fixed(IpAddr),
    Any,
    Flow,
}

impl VportMatch {
    /// Returns the part of `config` for a vport that the datapath port `backing` carries.
    pub fn of(config: &Config, backing: DpPort) -> VportMatch {
        VportMatch {
            backing,
            key: config.in_key.unwrap_or(OrFlow::Fixed(0)),
            local: match config.local {
                Some(OrFlow::Fixed(address)) => OwnAddress::Fixed(address),
                Some(OrFlow::Flow) => OwnAddress::Flow,
                None => OwnAddress::Any,
            },
            remote: config.remote,
            mode: config.mode,
        }
    }
}

impl fmt::Display for VportMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let local = match self.local {
            OwnAddress::Fixed(address) => address,
            // As Open vSwitch shows an address that is not there.
            OwnAddress::Any | OwnAddress::Flow => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        match (self.remote, self.local) {
            (OrFlow::Fixed(remote), _) => write!(f, "{local}->{remote}")?,
            (OrFlow::Flow, OwnAddress::Flow) => f.write_str("flow->flow")?,
            (OrFlow::Flow, _) => write!(f, "{local}->flow")?,
        }
        match self.key {
            OrFlow::Flow => f.write_str(", key=flow")?,
            OrFlow::Fixed(key) => write!(f, ", key={}", c_hex(key))?,
        }
        write!(f, ", {}, dp port={}", self.mode.as_str(), self.backing)
    }
}

/// A vport of the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vport {
    /// Its bridge.
    pub bridge: BridgeIndex,
    /// Its OpenFlow number there.
    pub port: PortNo,
}

/// The parts of a received packet that decide which vport it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outer {
    /// Datapath port that has taken the outer headers off.
    pub backing: DpPort,
    /// Key (`tun_id`).
    pub key: u64,
    /// Source of the outer header: the other end.
    pub source: IpAddr,
    /// Destination of the outer header: this end.
    pub destination: IpAddr,
    /// The inner packet has an Ethernet header.
    pub is_ethernet: bool,
}

/// All vports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vports {
    vports: HashMap<VportMatch, Vport>,
    /// The keys of each datapath port.
    keys: HashSet<(DpPort, OrFlow<u64>)>,
}

impl Vports {
    /// Returns the table of these vports. Of several with equal parts the last one counts.
    pub fn new(vports: impl IntoIterator<Item = (VportMatch, Vport)>) -> Vports {
        let vports: HashMap<_, _> = vports.into_iter().collect();
        let keys = vports.keys().map(|m| (m.backing, m.key)).collect();
        Vports { vports, keys }
    }

    /// Returns true when there is no vport.
    pub fn is_empty(&self) -> bool {
        self.vports.is_empty()
    }

    /// Returns true when a vport of `backing` takes packets with this key.
    pub fn has_key(&self, backing: DpPort, key: u64) -> bool {
        [OrFlow::Fixed(key), OrFlow::Flow].iter().any(|key| self.keys.contains(&(backing, *key)))
    }

    /// Returns the vport that a received packet belongs to.
    pub fn receive(&self, outer: &Outer) -> Option<Vport> {
        let keys = [OrFlow::Fixed(outer.key), OrFlow::Flow];
        let remotes = [OrFlow::Fixed(outer.source), OrFlow::Flow];
        let locals = [OwnAddress::Fixed(outer.destination), OwnAddress::Any, OwnAddress::Flow];
        let plain = match outer.is_ethernet {
            true => PacketTypeMode::LegacyL2,
            false => PacketTypeMode::LegacyL3,
        };
        for key in keys {
            for remote in remotes {
                for local in locals {
                    for mode in [plain, PacketTypeMode::Aware] {
                        let wanted =
                            VportMatch { backing: outer.backing, key, local, remote, mode };
                        if let Some(vport) = self.vports.get(&wanted) {
                            return Some(*vport);
                        }
                    }
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datapath::TunnelKind;

    const BACKING: DpPort = DpPort(4789);
    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const THERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    fn packet(key: u64) -> Outer {
        Outer { backing: BACKING, key, source: THERE, destination: HERE, is_ethernet: true }
    }

    /// All twelve classes of vports for the packet with key 5, in the order of preference.
    fn classes() -> Vec<VportMatch> {
        let mut out = Vec::new();
        for key in [Some(OrFlow::Fixed(5)), Some(OrFlow::Flow)] {
            for remote in [OrFlow::Fixed(THERE), OrFlow::Flow] {
                for local in [Some(OrFlow::Fixed(HERE)), None, Some(OrFlow::Flow)] {
                    let config =
                        Config { in_key: key, local, ..Config::new(TunnelKind::Vxlan, remote) };
                    out.push(VportMatch::of(&config, BACKING));
                }
            }
        }
        out
    }

    fn table(matches: &[VportMatch], first: usize) -> Vports {
        let vport = |i: usize| Vport { bridge: BridgeIndex(0), port: PortNo(i as u32) };
        Vports::new(matches.iter().enumerate().skip(first).map(|(i, m)| (*m, vport(i))))
    }

    #[test]
    fn the_first_class_with_a_vport_wins() {
        let all = classes();
        assert_eq!(all.len(), 12);
        for first in 0..all.len() {
            let found = table(&all, first).receive(&packet(5)).map(|v| v.port);
            assert_eq!(found, Some(PortNo(first as u32)));
        }
        assert_eq!(table(&all, all.len()).receive(&packet(5)), None);
    }

    #[test]
    fn a_fixed_value_must_be_the_packets() {
        let fixed = table(&classes()[..1], 0);
        assert!(fixed.receive(&packet(5)).is_some());
        assert_eq!(fixed.receive(&packet(6)), None);
        assert_eq!(fixed.receive(&Outer { source: HERE, ..packet(5) }), None);
        assert_eq!(fixed.receive(&Outer { destination: THERE, ..packet(5) }), None);
        assert_eq!(fixed.receive(&Outer { backing: DpPort(1), ..packet(5) }), None);
        assert_eq!(fixed.receive(&Outer { is_ethernet: false, ..packet(5) }), None);
    }

    #[test]
    fn no_key_is_key_zero() {
        let config = Config::new(TunnelKind::Gre, OrFlow::Fixed(THERE));
        let table = table(&[VportMatch::of(&config, BACKING)], 0);
        assert!(table.receive(&packet(0)).is_some());
        assert_eq!(table.receive(&packet(1)), None);
    }

    #[test]
    fn a_vport_for_all_packet_types_comes_second() {
        let plain = Config::new(TunnelKind::Gre, OrFlow::Fixed(THERE));
        let aware = Config { mode: PacketTypeMode::Aware, ..plain.clone() };
        let both = [&plain, &aware].map(|config| VportMatch::of(config, BACKING));
        let found = |is_ethernet| {
            table(&both, 0).receive(&Outer { is_ethernet, ..packet(0) }).map(|v| v.port.0)
        };
        assert_eq!((found(true), found(false)), (Some(0), Some(1)));
    }
}
