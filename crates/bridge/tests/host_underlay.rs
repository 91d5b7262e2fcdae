// SPDX-License-Identifier: Apache-2.0
//! Tunnels over devices of the host that are ports of no bridge, with a switch over the model
//! datapath.

mod support;

use bridge::event::Event;
use bridge::snapshot::BridgeIndex;
use bridge::switch::{PortRequest, Switch};
use bridge::tunnel::{Config, OrFlow};
use datapath::{
    Counters, DropReason, Packets, PortKind, PortNo as DpPort, PortSpec, Ports, TunnelKind,
};
use datapath_model::Model;
use openflow::message::FlowMod;
use openflow::{Action, PortNo};
use packet::build::Frame;
use packet::{Mac, Packet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use support::{Base, overlay_packet};
use underlay::{Cidr, Device, NextHop, RouteKind, Rule, System, SystemRoute, Underlay};
use underlay::{TABLE_LOCAL, TABLE_MAIN};

const HERE: [u8; 4] = [10, 0, 0, 1];
const THERE: [u8; 4] = [10, 0, 0, 2];
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const THEIR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// A host with one bridge, whose port 1 is `p1` and port 2 a tunnel to [`THERE`].
struct Site {
    switch: Switch,
    model: Arc<Model>,
    bridge: BridgeIndex,
    tunnel: PortNo,
    underlay: Arc<Underlay>,
    events: Arc<Mutex<Vec<Event>>>,
}

/// A host with these devices: name, index, address. Each leads to the subnet of its address.
fn system(devices: &[(&str, u32, &str)]) -> System {
    let mut system = System { rules: Rule::standard(), ..System::default() };
    for (name, index, address) in devices {
        let address: Cidr = address.parse().unwrap();
        let device = Device {
            index: *index,
            mtu: 1500,
            mac: Mac(MAC),
            is_up: true,
            has_link: true,
            addresses: vec![address],
        };
        system.devices.insert((*name).into(), device);
        let route = |table, prefix, kind| SystemRoute {
            table,
            prefix,
            kind,
            next_hop: Some(NextHop { device: (*name).into(), gateway: None }),
            source: None,
            metric: 0,
            mtu: None,
        };
        system.routes.push(route(TABLE_MAIN, address.network(), RouteKind::Unicast));
        system.routes.push(route(TABLE_LOCAL, Cidr::host(address.address()), RouteKind::Local));
    }
    system
}

fn spec(name: &str, kind: PortKind) -> PortSpec {
    PortSpec { name: name.to_owned(), kind, ..PortSpec::default() }
}

impl Site {
    fn new() -> Site {
        Site::with_remote(OrFlow::Fixed(THERE.into()))
    }

    fn with_remote(remote: OrFlow<IpAddr>) -> Site {
        let Base { clock, model, events, mut switch } = Base::new();
        let underlay = Arc::new(Underlay::new(clock));
        switch.set_underlay(Arc::clone(&underlay));
        underlay.set_system(system(&[("eth0", 7, "10.0.0.1/24")]));
        let bridge = switch.add_bridge("br-int", 1);
        let request = PortRequest { spec: spec("p1", PortKind::Dummy), ..PortRequest::default() };
        switch.add_port(bridge, &request).unwrap();
        let config = Config::new(TunnelKind::Vxlan, remote);
        let request = PortRequest {
            spec: spec("t1", PortKind::Tunnel(config.kind)),
            tunnel: Some(Arc::new(config)),
            ..PortRequest::default()
        };
        let tunnel = switch.add_port(bridge, &request).unwrap();
        let mut site = Site { switch, model, bridge, tunnel, underlay, events };
        site.rule(&format!("in_port={}", tunnel.0), PortNo(1));
        site.rule("in_port=1", tunnel);
        site
    }

    fn rule(&mut self, text: &str, to: PortNo) {
        let matching = flow::text::parse_match(text, &|_: &str| None).unwrap();
        let actions = [Action::Output { port: to, max_len: 0 }];
        self.switch.flow_mod(self.bridge, &FlowMod::add(1, matching, &actions)).unwrap();
        self.switch.publish();
    }

    /// The datapath port called `name`.
    fn port(&self, name: &str) -> Option<DpPort> {
        self.model.ports().into_iter().find(|p| p.name == name).map(|p| p.number)
    }

    fn set_devices(&mut self, devices: &[(&str, u32, &str)]) {
        self.underlay.set_system(system(devices));
        self.switch.publish();
    }

    fn resolve(&mut self, device: &str, mac: [u8; 6]) {
        self.underlay.set_kernel_neighbour(device, THERE.into(), Some(Mac(mac)));
        self.switch.publish();
    }

    /// Injects a packet at `p1`, and returns the frames that have left by `device`.
    fn send(&self, device: &str) -> Vec<Packet> {
        self.model.inject(overlay_packet(), self.port("p1").unwrap());
        self.model.take_sent(self.port(device).unwrap())
    }

    /// Injects a frame at `eth0`, and returns the number of packets that have left by `p1`.
    fn receive(&self, frame: &Packet) -> usize {
        self.model.inject(frame.clone(), self.port("eth0").unwrap());
        self.model.take_sent(self.port("p1").unwrap()).len()
    }
}

/// A VXLAN packet from [`THERE`] to an Ethernet address, an IP address and a UDP port.
fn outer(mac: [u8; 6], to: [u8; 4], port: u16) -> Packet {
    let mut inside = vec![8, 0, 0, 0, 0, 0, 0, 0];
    inside.extend_from_slice(overlay_packet().data());
    Frame::ethernet(mac, THEIR_MAC)
        .ipv4(THERE.into(), to.into(), 64)
        .udp(1234, port)
        .payload(&inside)
        .packet()
}

#[test]
fn packets_leave_by_a_hidden_port_once_the_kernel_has_resolved_the_neighbour() {
    let mut site = Site::new();
    assert!(site.send("eth0").is_empty());
    let asks = |e: &Event| {
        let Event::ResolveNeighbour { device, address } = e else { return false };
        (&**device, *address) == ("eth0", IpAddr::from(THERE))
    };
    assert!(site.events.lock().unwrap().iter().any(asks));
    site.resolve("eth0", THEIR_MAC);
    let sent = site.send("eth0");
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].len(), overlay_packet().len() + 50);
    assert_eq!(sent[0].data()[..12], [THEIR_MAC, MAC].concat());
    assert_eq!(sent[0].data()[26..34], [HERE, THERE].concat());
    // The megaflow follows the neighbour.
    site.resolve("eth0", [2, 0, 0, 0, 0, 9]);
    assert_eq!(site.send("eth0")[0].data()[..6], [2, 0, 0, 0, 0, 9]);
    let gone = |underlay: &Underlay| underlay.set_kernel_neighbour("eth0", THERE.into(), None);
    // The kernel has lost the neighbour: packets go on while the kernel asks again.
    gone(&site.underlay);
    site.events.lock().unwrap().clear();
    site.switch.publish();
    assert_eq!(site.send("eth0")[0].data()[..6], [2, 0, 0, 0, 0, 9]);
    site.switch.collect_statistics();
    assert!(site.events.lock().unwrap().iter().any(asks));
    site.underlay.flush_neighbours();
    site.switch.publish();
    assert!(site.send("eth0").is_empty());
}

#[test]
fn only_packets_of_tunnels_enter() {
    let site = Site::new();
    assert_eq!(site.receive(&outer(MAC, HERE, 4789)), 1);
    let before = site.model.drops(DropReason::NoTunnel);
    let others = [
        outer([2, 0, 0, 0, 0, 7], HERE, 4789),
        outer(MAC, [10, 0, 0, 3], 4789),
        outer(MAC, HERE, 4790),
        Frame::ethernet(MAC, THEIR_MAC).ipv4(THERE.into(), HERE.into(), 64).tcp(1, 22, 2).packet(),
    ];
    for (n, other) in others.iter().enumerate() {
        assert_eq!(site.receive(other), 0, "{n}");
        assert_eq!(site.model.drops(DropReason::NoTunnel), before + 1 + n as u64, "{n}");
    }
    assert_eq!(site.receive(&outer(MAC, HERE, 4789)), 1);
}

#[test]
fn hidden_ports_come_and_go_with_tunnels_and_devices() {
    let mut site = Site::new();
    let first = site.port("eth0").expect("hidden");
    assert_eq!(site.switch.host_ports().collect::<Vec<_>>(), [first]);
    site.set_devices(&[("eth0", 8, "10.0.0.1/24")]);
    let second = site.port("eth0").expect("another device of that name");
    assert_eq!(site.switch.host_ports().collect::<Vec<_>>(), [second]);
    site.set_devices(&[("eth0", 8, "10.0.0.1/24"), ("eth1", 9, "10.2.0.1/24")]);
    assert!(site.port("eth1").is_some(), "packets of tunnels may come to its address");
    site.set_devices(&[("eth1", 9, "10.2.0.1/24")]);
    assert_eq!(site.port("eth0"), None);
    site.set_devices(&[("eth0", 8, "fe80::1/64"), ("lo", 1, "127.0.0.1/8")]);
    assert_eq!((site.port("eth0"), site.port("lo"), site.port("eth1")), (None, None, None));
    site.set_devices(&[("eth0", 8, "10.0.0.1/24")]);
    assert!(site.port("eth0").is_some());
    site.switch.remove_port(site.bridge, site.tunnel).unwrap();
    site.switch.publish();
    assert_eq!(site.port("eth0"), None, "no tunnel is left");
}

#[test]
fn a_device_that_becomes_a_port_of_a_bridge_is_hidden_no_more() {
    let mut site = Site::new();
    assert!(site.port("eth0").is_some());
    let request = PortRequest { spec: spec("eth0", PortKind::Dummy), ..PortRequest::default() };
    let number = site.switch.add_port(site.bridge, &request).unwrap();
    site.switch.publish();
    assert_eq!(site.switch.host_ports().count(), 0);
    let kind = |site: &Site| {
        let all = site.model.ports();
        all.into_iter().find(|p| p.name == "eth0").map(|p| p.kind)
    };
    assert_eq!(kind(&site), Some(PortKind::Dummy));
    site.switch.remove_port(site.bridge, number).unwrap();
    site.switch.publish();
    assert_eq!(kind(&site), Some(PortKind::Underlay));
}

#[test]
fn a_route_to_a_device_without_an_address_gives_it_a_hidden_port() {
    let mut site = Site::new();
    let mut all = system(&[("lo0", 3, "10.9.0.1/32"), ("eth0", 7, "fe80::1/64")]);
    let gateway: IpAddr = "fe80::2".parse().unwrap();
    all.routes.push(SystemRoute {
        table: TABLE_MAIN,
        prefix: "10.0.0.2/32".parse().unwrap(),
        kind: RouteKind::Unicast,
        next_hop: Some(NextHop { device: "eth0".into(), gateway: Some(gateway) }),
        source: Some([10, 9, 0, 1].into()),
        metric: 0,
        mtu: None,
    });
    site.underlay.set_system(all);
    site.switch.publish();
    assert!(site.send("eth0").is_empty());
    site.underlay.set_kernel_neighbour("eth0", gateway, Some(Mac(THEIR_MAC)));
    site.switch.publish();
    let sent = site.send("eth0");
    assert_eq!(sent[0].data()[..6], THEIR_MAC);
    assert_eq!(sent[0].data()[26..34], [[10, 9, 0, 1], THERE].concat());
    // The address of another device is this host's, too.
    assert_eq!(site.receive(&outer(MAC, [10, 9, 0, 1], 4789)), 1);
}

#[test]
fn a_tunnel_to_this_host_comes_out_at_once() {
    let mut site = Site::with_remote(OrFlow::Fixed(HERE.into()));
    site.rule("in_port=1", site.tunnel);
    let p1 = site.port("p1").unwrap();
    site.model.inject(overlay_packet(), p1);
    // The packet that comes out of the tunnel goes back to the port.
    let back = site.model.take_sent(p1);
    assert_eq!(back.len(), 1);
    assert_eq!(back[0].data(), overlay_packet().data());
}
