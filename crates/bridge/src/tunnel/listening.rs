// SPDX-License-Identifier: Apache-2.0
//! Addresses of the host to which packets of tunnels come.
//!
//! A packet that would leave by a device with an IP address comes out of a tunnel instead, when it
//! is addressed to a device of the host and to a tunnel's protocol and port. The lookup is that of
//! rules, so that a megaflow is exact in no more bits than the answer depends on.

use classifier::{Classifier, Conjunction, Entry, MiniMatch};
use datapath::{PortNo, TunnelEndpoint, TunnelKind};
use flow::extract::{FRAG_ANY, FRAG_LATER};
use flow::{Key, Mask, Match};
use hashbrown::HashSet;
use netdev::Service;
use packet::{ethertype, ip_proto};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use underlay::is_wide;

/// A datapath port that stands for tunnels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Name of the port.
    pub name: String,
    /// Its number.
    pub number: PortNo,
    /// Kind of its vports.
    pub kind: TunnelKind,
    /// UDP (STT: TCP) port of its vports; 0 for none.
    pub port: u16,
    /// Number of its vports.
    pub vports: usize,
}

impl Listener {
    /// Returns the IP protocols of received packets; none for a kind that this switch does not
    /// receive.
    fn protocols(&self) -> &'static [u8] {
        match self.kind {
            TunnelKind::Bareudp | TunnelKind::Geneve | TunnelKind::Gtpu | TunnelKind::Vxlan => {
                &[ip_proto::UDP]
            }
            TunnelKind::Erspan | TunnelKind::Gre | TunnelKind::Ip6Erspan | TunnelKind::Ip6Gre => {
                &[ip_proto::GRE]
            }
            TunnelKind::Stt => &[ip_proto::TCP],
            // The protocol of the packet inside: a key has that after the routing header.
            TunnelKind::Srv6 => &[ip_proto::IPV4, ip_proto::IPV6],
            TunnelKind::Lisp => &[],
        }
    }
}

/// A device of the host with IP addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressedDevice {
    /// Its name, which may be that of a port of a bridge.
    pub name: String,
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// Its IP addresses.
    pub addresses: Vec<IpAddr>,
}

/// One address and one tunnel port.
#[derive(Debug)]
struct Endpoint {
    matching: MiniMatch,
    listener: Arc<Listener>,
}

impl Entry for Endpoint {
    fn matching(&self) -> &MiniMatch {
        &self.matching
    }

    fn priority(&self) -> u32 {
        0
    }

    fn is_conjunctive(&self) -> bool {
        false
    }

    fn conjunctions(&self) -> impl Iterator<Item = Conjunction> {
        std::iter::empty()
    }
}

/// Where packets of tunnels are received.
#[derive(Clone, Debug, Default)]
pub struct Listening {
    listeners: Vec<Arc<Listener>>,
    endpoints: Classifier<Endpoint>,
    /// The same for packets to any Ethernet address of the host, which takes a packet to each of its
    /// addresses at each of its devices.
    at_hosts: Classifier<Endpoint>,
    /// Names of the devices with an IP address.
    devices: HashSet<String>,
}

impl Listening {
    /// Returns the table of these tunnel ports at these devices. Without tunnel ports, no packet is
    /// looked up.
    pub fn new(
        listeners: impl IntoIterator<Item = Listener>,
        devices: &[AddressedDevice],
    ) -> Listening {
        let mut listening = Listening::default();
        let mut listeners = listeners.into_iter().peekable();
        if listeners.peek().is_none() {
            return listening;
        }
        let received = listeners.filter(|listener| !listener.protocols().is_empty());
        listening.listeners.extend(received.map(Arc::new));
        let addressed = devices.iter().filter(|device| !device.addresses.is_empty());
        listening.devices.extend(addressed.map(|device| device.name.clone()));
        let endpoints = devices
            .iter()
            .flat_map(|device| device.addresses.iter().map(move |address| (device.mac, *address)));
        for (mac, address) in endpoints {
            let each = listening.listeners.iter();
            let each = each.flat_map(|l| l.protocols().iter().map(move |protocol| (l, *protocol)));
            for (listener, protocol) in each {
                insert(&mut listening.endpoints, listener, protocol, Some(mac), address);
                if is_wide(address) {
                    insert(&mut listening.at_hosts, listener, protocol, None, address);
                }
            }
        }
        listening
    }

    /// Returns true when the device called `name` has an IP address: packets to other devices are
    /// not looked up, so that their megaflows stay as they are.
    pub fn terminates(&self, name: &str) -> bool {
        self.devices.contains(name)
    }

    /// Returns the datapath port that receives a packet with `key`. Makes the bits exact on which
    /// the answer depends.
    pub fn lookup(&self, key: &Key, mask: &mut Mask) -> Option<PortNo> {
        let mut key = *key;
        self.endpoints.lookup(&mut key, mask).map(|endpoint| endpoint.listener.number)
    }

    /// Returns the datapath port that receives a packet with `key`, which has come in by a device of
    /// the host and has its Ethernet address. Makes the bits exact on which the answer depends.
    pub fn lookup_at_host(&self, key: &Key, mask: &mut Mask) -> Option<PortNo> {
        let mut key = *key;
        self.at_hosts.lookup(&mut key, mask).map(|endpoint| endpoint.listener.number)
    }

    /// Returns the addresses at which devices of the host receive packets of tunnels.
    pub fn host_endpoints(&self) -> Vec<TunnelEndpoint> {
        let endpoint = |endpoint: &Arc<Endpoint>| {
            let matching = endpoint.matching.expand();
            let key = matching.key();
            let address = match key.dl_type.get() {
                ethertype::IPV4 => IpAddr::from(Ipv4Addr::from_bits(key.nw_dst.get())),
                _ => IpAddr::from(Ipv6Addr::from(key.ipv6_dst)),
            };
            let service = Service { protocol: key.nw_proto, port: key.tp_dst.get() };
            TunnelEndpoint { address, service }
        };
        let mut all: Vec<TunnelEndpoint> = self.at_hosts.iter().map(endpoint).collect();
        all.sort();
        all
    }

    /// Returns the datapath ports that receive, in the order of their numbers.
    pub fn listeners(&self) -> &[Arc<Listener>] {
        &self.listeners
    }

    /// Returns each address with the datapath port that receives what is sent to it.
    pub fn endpoints(&self) -> impl Iterator<Item = (&Listener, Match)> {
        self.endpoints.iter().map(|e| (&*e.listener, e.matching.expand()))
    }
}

/// Adds what `listener` receives at one address, unless an earlier listener receives it.
fn insert(
    table: &mut Classifier<Endpoint>,
    listener: &Arc<Listener>,
    protocol: u8,
    mac: Option<[u8; 6]>,
    address: IpAddr,
) {
    let matching = MiniMatch::new(&endpoint(listener, protocol, mac, address));
    if table.find(&matching, 0).is_none() {
        table.insert(Arc::new(Endpoint { matching, listener: Arc::clone(listener) }));
    }
}

/// Returns the packets that `listener` receives at one address, and at one Ethernet address if `mac`
/// names it. There is no reassembly, so none of them is a fragment; and none has a VLAN header.
fn endpoint(listener: &Listener, protocol: u8, mac: Option<[u8; 6]>, address: IpAddr) -> Match {
    let (mut key, mut mask) = (Key::ZERO, Mask::WILDCARD);
    let m = &mut mask.0;
    if let Some(mac) = mac {
        (key.dl_dst, m.dl_dst) = (mac, [0xff; 6]);
    }
    m.vlans[0].tci.set(u16::MAX);
    m.dl_type.set(u16::MAX);
    match address {
        IpAddr::V4(address) => {
            key.dl_type.set(ethertype::IPV4);
            key.nw_dst.set(address.to_bits());
            m.nw_dst.set(u32::MAX);
        }
        IpAddr::V6(address) => {
            key.dl_type.set(ethertype::IPV6);
            (key.ipv6_dst, m.ipv6_dst) = (address.octets(), [0xff; 16]);
        }
    }
    (key.nw_proto, m.nw_proto) = (protocol, u8::MAX);
    m.nw_frag = FRAG_ANY | FRAG_LATER;
    if listener.port != 0 {
        key.tp_dst.set(listener.port);
        m.tp_dst.set(u16::MAX);
    }
    Match::new(&key, &mask)
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::build::Frame;

    const MAC: [u8; 6] = [0xaa, 0x55, 0xaa, 0x55, 0, 0];

    fn vxlan() -> Listener {
        let name = "vxlan_sys_4789".to_owned();
        Listener { name, number: PortNo(4789), kind: TunnelKind::Vxlan, port: 4789, vports: 1 }
    }

    fn table() -> Listening {
        let gre = Listener {
            name: "gre_sys".to_owned(),
            number: PortNo(3),
            kind: TunnelKind::Gre,
            port: 0,
            vports: 2,
        };
        let device = AddressedDevice {
            name: "br0".to_owned(),
            mac: MAC,
            addresses: vec!["1.1.2.88".parse().unwrap(), "2001:cafe::88".parse().unwrap()],
        };
        Listening::new([vxlan(), gre], &[device])
    }

    fn udp(mac: [u8; 6], to: [u8; 4], port: u16) -> Key {
        let frame = Frame::ethernet(mac, [2, 0, 0, 0, 0, 1]);
        let frame = frame.ipv4([1, 1, 2, 92].into(), to.into(), 64).udp(9, port);
        flow::extract::key_of(frame.packet().data(), 1)
    }

    #[test]
    fn packets_to_an_address_and_port_are_received() {
        let (table, mut mask) = (table(), Mask::WILDCARD);
        assert_eq!(table.lookup(&udp(MAC, [1, 1, 2, 88], 4789), &mut mask), Some(PortNo(4789)));
        assert_eq!(mask.0.tp_dst.get(), u16::MAX);
        assert_eq!(mask.0.tp_src.get(), 0, "source ports would make a megaflow each");
        let none = [
            udp([2; 6], [1, 1, 2, 88], 4789),
            udp(MAC, [1, 1, 2, 89], 4789),
            udp(MAC, [1, 1, 2, 88], 4790),
        ];
        for key in none {
            assert_eq!(table.lookup(&key, &mut mask), None);
        }
    }

    #[test]
    fn fragments_and_tagged_packets_are_not_received() {
        let table = table();
        let good = udp(MAC, [1, 1, 2, 88], 4789);
        let fragment = Key { nw_frag: FRAG_ANY, ..good };
        let mut tagged = good;
        tagged.vlans[0].tci.set(flow::VLAN_CFI);
        for key in [fragment, tagged] {
            assert_eq!(table.lookup(&key, &mut Mask::WILDCARD.clone()), None);
        }
    }

    #[test]
    fn only_devices_with_an_address_receive() {
        assert!(table().terminates("br0"));
        assert!(!table().terminates("br1"));
        let bare = AddressedDevice { name: "br1".to_owned(), mac: MAC, addresses: Vec::new() };
        assert!(!Listening::new([vxlan()], &[bare]).terminates("br1"));
        let addresses = vec!["1.1.2.88".parse().unwrap()];
        let alone = AddressedDevice { name: "br0".to_owned(), mac: MAC, addresses };
        assert!(!Listening::new([], &[alone]).terminates("br0"), "there is no tunnel port");
    }
}
