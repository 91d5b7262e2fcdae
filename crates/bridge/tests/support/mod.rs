// SPDX-License-Identifier: Apache-2.0
//! A switch without bridges over the model datapath.

use bridge::event::{Event, Sender};
use bridge::switch::Switch;
use clock::Clock;
use datapath_model::Model;
use packet::Packet;
use packet::build::Frame;
use std::sync::{Arc, Mutex};

/// The switch, and what it works with. Its time stands still.
pub struct Base {
    pub clock: Clock,
    pub model: Arc<Model>,
    /// Events that the switch has reported.
    pub events: Arc<Mutex<Vec<Event>>>,
    pub switch: Switch,
}

impl Base {
    pub fn new() -> Base {
        let clock = Clock::new();
        clock.stop();
        let model = Model::new("dummy@ovs-dummy", clock.clone(), 1000, 1);
        let events: Arc<Mutex<Vec<Event>>> = Arc::default();
        let sink = Arc::clone(&events);
        let sender = Sender::new(move |event| {
            sink.lock().unwrap().push(event);
            true
        });
        let switch = Switch::new(model.clone(), clock.clone(), sender, 1000, false).unwrap();
        Base { clock, model, events, switch }
    }
}

/// A packet between two hosts of an overlay.
#[allow(dead_code)] // not every file of tests needs it
pub fn overlay_packet() -> Packet {
    Frame::ethernet([2, 0, 0, 0, 1, 2], [2, 0, 0, 0, 1, 1])
        .ipv4([10, 1, 0, 1].into(), [10, 1, 0, 2].into(), 64)
        .udp(5, 6)
        .payload(&[7; 40])
        .packet()
}
