// SPDX-License-Identifier: Apache-2.0
//! A fixture with an answerer of upcalls, and short words for cases.

use super::Fixture;
use datapath::{
    Action, Actions, Datapath, DropReason, FlowStats, Megaflow, PortNo, Refusal, Ufid, Upcall,
    UpcallFactory, UpcallKind, Upcaller, Userdata, text,
};
use flow::{Field, Key, Match};
use netdev::finish::finish_checksum;
use packet::Packet;
use std::sync::{Arc, Mutex};

/// Why an upcall came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// No megaflow matched.
    Miss,
    /// An action said so.
    Action(Userdata),
}

/// An upcall that came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The reason for the upcall.
    pub why: Why,
    /// The frame with its checksum finished. Datapaths differ in which side finishes the checksum
    /// of a packet with a label.
    pub frame: Vec<u8>,
    /// Its key.
    pub key: Key,
    /// Where it came in.
    pub in_port: PortNo,
}

type Answer = dyn Fn(&Seen) -> Vec<Action> + Send + Sync;

struct Answers {
    answer: Mutex<Arc<Answer>>,
    seen: Mutex<Vec<Seen>>,
}

struct Factory(Arc<Answers>);

impl UpcallFactory for Factory {
    fn upcaller(&self) -> Box<dyn Upcaller> {
        Box::new(Factory(self.0.clone()))
    }
}

impl Upcaller for Factory {
    fn upcall(&mut self, upcall: &Upcall<'_>) -> Actions {
        let why = match upcall.kind {
            UpcallKind::Miss => Why::Miss,
            UpcallKind::Action(data) => Why::Action(data.clone()),
        };
        let mut packet = upcall.packet.clone();
        let _ = finish_checksum(&mut packet); // where it lies outside the packet stays as it is
        let seen =
            Seen { why, frame: packet.data().to_vec(), key: *upcall.key, in_port: upcall.in_port };
        let answer = self.0.answer.lock().expect("no holder panics").clone();
        let actions = answer(&seen);
        self.0.seen.lock().expect("no holder panics").push(seen);
        actions.into()
    }
}

/// Every packet that came in on datapath port `port`, not recirculated.
pub fn on(port: u32) -> Match {
    let mut m = Match::ANY;
    m.set(Field::InPortOxm, port.into());
    m.set(Field::RecircId, 0);
    m.set(Field::PacketType, 0);
    m
}

/// Where cases happen.
pub struct World {
    fixture: Box<dyn Fixture>,
    answers: Arc<Answers>,
}

impl World {
    /// Upcalls are answered with a drop until [`World::answer`] says otherwise.
    pub fn new(fixture: impl Fixture + 'static) -> World {
        let answers = Arc::new(Answers {
            answer: Mutex::new(Arc::new(|_| Vec::new())),
            seen: Mutex::new(Vec::new()),
        });
        fixture.datapath().set_upcall_factory(Arc::new(Factory(answers.clone())));
        World { fixture: Box::new(fixture), answers }
    }

    /// The fixture.
    pub fn fixture(&self) -> &dyn Fixture {
        &*self.fixture
    }

    /// The datapath.
    pub fn dp(&self) -> &Arc<dyn Datapath> {
        self.fixture.datapath()
    }

    /// Answers all upcalls from now on.
    pub fn answer(&self, answer: impl Fn(&Seen) -> Vec<Action> + Send + Sync + 'static) {
        *self.answers.answer.lock().expect("no holder panics") = Arc::new(answer);
    }

    /// The upcalls since it was last asked.
    pub fn upcalls(&self) -> Vec<Seen> {
        std::mem::take(&mut *self.answers.seen.lock().expect("no holder panics"))
    }

    /// Actions from their text.
    pub fn actions(text: &str) -> Vec<Action> {
        text::parse(text, &|_| None).unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    /// Installs a megaflow.
    pub fn try_install(&self, id: u128, matching: Match, actions: &str) -> Result<(), Refusal> {
        let actions = World::actions(actions).into();
        self.dp().install(&Megaflow { ufid: Ufid(id), matching, actions })
    }

    /// Installs a megaflow that pushes headers for a path with this MTU, which must succeed.
    pub fn install_for_path(&self, id: u128, matching: Match, actions: &str, mtu: u16) {
        let mut actions = World::actions(actions);
        for action in &mut actions {
            if let Action::TunnelPush { header, .. } = action {
                *header = Arc::new((**header).clone().with_path_mtu(Some(mtu)));
            }
        }
        let flow = Megaflow { ufid: Ufid(id), matching, actions: actions.into() };
        self.dp().install(&flow).unwrap_or_else(|e| panic!("{e}"));
    }

    /// Installs a megaflow, which must succeed.
    pub fn install(&self, id: u128, matching: Match, actions: &str) {
        self.try_install(id, matching, actions).unwrap_or_else(|e| panic!("{actions}: {e}"));
    }

    /// The statistics of a megaflow that must be there.
    pub fn stats(&self, id: u128) -> FlowStats {
        self.dp().flow(Ufid(id)).unwrap_or_else(|| panic!("megaflow {id} is gone")).stats
    }

    /// Lets a frame arrive on `port`.
    pub fn inject(&self, port: u32, frame: &[u8]) {
        self.fixture.inject(PortNo(port), Packet::from_slice(frame));
    }

    /// The frames that left `port`.
    pub fn out(&self, port: u32) -> Vec<Vec<u8>> {
        self.fixture.collect(PortNo(port))
    }

    /// Packets dropped for `reason`.
    pub fn drops(&self, reason: DropReason) -> u64 {
        self.dp().drops(reason)
    }

    /// Replaces all megaflows by one for packets that come in on port 1, lets `packet` arrive
    /// there, and returns what left port 2.
    pub fn through(&self, actions: &str, packet: Packet) -> Vec<Vec<u8>> {
        self.dp().flush();
        self.install(1, on(1), actions);
        self.fixture.inject(PortNo(1), packet);
        self.out(2)
    }
}
