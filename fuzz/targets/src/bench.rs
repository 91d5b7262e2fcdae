// SPDX-License-Identifier: Apache-2.0
//! A switch in this process over the model datapath, as targets need it: no threads, and time
//! stands still.

use bridge::connection::Connections;
use bridge::event::{Event, Sender};
use bridge::port::Bundle;
use bridge::snapshot::BridgeIndex;
use bridge::switch::{PortRequest, Switch};
use clock::Clock;
use datapath::{Datapath, Packets as _, PortKind, PortSpec};
use datapath_model::Model;
use openflow::PortNo;
use packet::Packet;
use std::sync::{Arc, Mutex, PoisonError};

pub struct Bench {
    pub clock: Clock,
    pub model: Arc<Model>,
    pub switch: Switch,
    pub connections: Connections,
    events: Arc<Mutex<Vec<Event>>>,
}

impl Drop for Bench {
    /// Breaks the cycle of references between the datapath and its upcall handler.
    fn drop(&mut self) {
        self.model.shutdown();
    }
}

impl Bench {
    /// A switch without bridges.
    pub fn new() -> Bench {
        let clock = Clock::new();
        clock.stop();
        let model = Model::new("dummy@ovs-dummy", clock.clone(), 1000, 1);
        let events: Arc<Mutex<Vec<Event>>> = Arc::default();
        let sink = Arc::clone(&events);
        let sender = Sender::new(move |event| {
            sink.lock().unwrap_or_else(PoisonError::into_inner).push(event);
            true
        });
        let datapath: Arc<dyn Datapath> = model.clone();
        let switch = Switch::new(datapath, clock.clone(), sender, 1000, false)
            .expect("no thread is to be started");
        Bench { clock, model, switch, connections: Connections::new(), events }
    }

    /// A bridge with ports 1 to `ports`, of which the last is a patch port if `peer` is given.
    pub fn bridge(&mut self, name: &str, ports: u32, peer: Option<&str>) -> BridgeIndex {
        let bridge = self.switch.add_bridge(name, 0x1234);
        for n in 1..=ports {
            let is_patch = n == ports && peer.is_some();
            let port = format!("{name}p{n}");
            let kind = if is_patch { PortKind::Patch } else { PortKind::Dummy };
            let spec = PortSpec { name: port.clone(), kind, ..PortSpec::default() };
            let peer = peer.filter(|_| is_patch).map(str::to_owned);
            self.switch
                .add_port(bridge, &PortRequest { spec, ofport: None, peer, tunnel: None })
                .expect("a port of the model");
            let bundle = Bundle { interfaces: vec![port], ..Bundle::default() };
            self.switch.bridge_mut(bridge).expect("it was just added").bundles.push(bundle);
        }
        self.switch.publish();
        bridge
    }

    /// A packet comes in on an OpenFlow port.
    pub fn inject(&mut self, bridge: BridgeIndex, port: PortNo, frame: &[u8]) {
        let found = self.switch.bridge(bridge).and_then(|b| b.ports.get(&port)?.dp_port);
        if let Some(number) = found {
            self.model.inject(Packet::from_slice(frame), number);
        }
        self.deliver();
    }

    /// Carries events to controllers and into tables, as the daemon does.
    pub fn deliver(&mut self) {
        let now = self.clock.now();
        let events =
            std::mem::take(&mut *self.events.lock().unwrap_or_else(PoisonError::into_inner));
        for event in events {
            match event {
                Event::PacketIn(packet_in) => {
                    self.connections.packet_in(&packet_in, &self.switch, now);
                }
                Event::LearnFlow { bridge, flow, used } => {
                    let changes = self.switch.learn(bridge, &flow, used).unwrap_or_default();
                    self.connections.rules_changed(bridge, changes, &mut self.switch, now);
                }
                Event::MacTableChanged(_)
                | Event::Solicit { .. }
                | Event::ResolveNeighbour { .. }
                | Event::UnderlayChanged
                | Event::ProtocolChanged => {}
            }
        }
    }

    /// Lets time pass and does periodic work, as the daemon does.
    pub fn tick(&mut self, ms: u64) {
        self.clock.advance(ms);
        let now = self.clock.now();
        for (bridge, changes) in self.switch.run() {
            self.connections.rules_changed(bridge, changes, &mut self.switch, now);
        }
        self.connections.run(&mut self.switch, now);
        self.switch.publish();
    }
}
