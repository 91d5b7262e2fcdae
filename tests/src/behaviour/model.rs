// SPDX-License-Identifier: Apache-2.0
//! The model as a fixture.

use super::{FLOW_LIMIT, Fixture, LARGE_MTU, MTU, PORTS};
use clock::Clock;
use datapath::{Datapath, PortKind, PortNo, PortSpec};
use datapath_model::Model;
use packet::Packet;
use std::sync::Arc;

/// The model datapath with ports in memory.
pub struct ModelFixture {
    clock: Clock,
    model: Arc<Model>,
    datapath: Arc<dyn Datapath>,
}

impl ModelFixture {
    /// A new one.
    pub fn new() -> ModelFixture {
        let clock = Clock::new();
        let model = Model::new("model@test", clock.clone(), FLOW_LIMIT, 1);
        let datapath: Arc<dyn Datapath> = model.clone();
        for i in 1..=PORTS {
            let spec = PortSpec {
                name: format!("p{i}"),
                kind: PortKind::Dummy,
                mtu: Some(if i == 1 { LARGE_MTU } else { MTU }),
                ..PortSpec::default()
            };
            datapath.add_port(&spec).expect("a new model takes ports");
        }
        ModelFixture { clock, model, datapath }
    }
}

impl Default for ModelFixture {
    fn default() -> Self {
        ModelFixture::new()
    }
}

impl Fixture for ModelFixture {
    fn datapath(&self) -> &Arc<dyn Datapath> {
        &self.datapath
    }

    fn clock(&self) -> &Clock {
        &self.clock
    }

    fn inject(&self, port: PortNo, packet: Packet) {
        self.datapath.inject(packet, port);
    }

    fn collect(&self, port: PortNo) -> Vec<Vec<u8>> {
        self.model.take_sent(port).iter().map(|p| p.data().to_vec()).collect()
    }
}
