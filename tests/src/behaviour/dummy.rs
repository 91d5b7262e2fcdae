// SPDX-License-Identifier: Apache-2.0
//! The userspace datapath over dummy ports: no privileges, no threads, no time.

use super::carded::{self, Carded};
use super::{FLOW_LIMIT, Fixture, LARGE_MTU, MTU, PORTS};
use clock::Clock;
use datapath::{Datapath, PortKind, PortNo, PortSpec};
use datapath_userspace::{Config, UserspaceDatapath};
use packet::Packet;
use placement::PlacedDatapath;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use testing::TempDir;

/// Dummies are found by name in the whole process: each fixture has names of its own.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// The userspace datapath with dummy ports that log what they send.
pub struct UserspaceDummy {
    clock: Clock,
    datapath: Arc<dyn Datapath>,
    names: Vec<String>,
    directory: TempDir,
    /// How much of each capture file was read.
    read: Mutex<[usize; PORTS]>,
}

impl UserspaceDummy {
    /// Returns a new fixture.
    pub fn new() -> UserspaceDummy {
        let clock = Clock::new();
        let userspace = UserspaceDummy::userspace(clock.clone());
        UserspaceDummy::over(clock, userspace)
    }

    /// Returns a new fixture under a card that sees all packets first.
    pub fn under_card() -> Carded<UserspaceDummy> {
        let clock = Clock::new();
        let userspace = UserspaceDummy::userspace(clock.clone());
        let placed = PlacedDatapath::new(userspace.clone(), vec![carded::slot()]);
        let card = carded::begin(&placed, &userspace, clock.clone());
        Carded::new(UserspaceDummy::over(clock, placed), card)
    }

    fn userspace(clock: Clock) -> Arc<UserspaceDatapath> {
        let config = Config { max_flows: FLOW_LIMIT, ..Config::default() };
        UserspaceDatapath::new("netdev@test", clock, config)
    }

    fn over(clock: Clock, datapath: Arc<dyn Datapath>) -> UserspaceDummy {
        let directory = testing::directory();
        let fixture = NEXT.fetch_add(1, Ordering::Relaxed);
        let names: Vec<String> = (1..=PORTS).map(|i| format!("f{fixture}p{i}")).collect();
        for (i, name) in names.iter().enumerate() {
            let file = directory.path().join(name).to_string_lossy().into_owned();
            let spec = PortSpec {
                name: name.clone(),
                kind: PortKind::Dummy,
                mtu: Some(if i == 0 { LARGE_MTU } else { MTU }),
                options: [("tx_pcap".to_owned(), file)].into(),
                ..PortSpec::default()
            };
            datapath.add_port(&spec).unwrap_or_else(|e| panic!("dummy {name}: {e}"));
        }
        // Reading starts after the 24-byte header of each capture file.
        UserspaceDummy { clock, datapath, names, directory, read: Mutex::new([24; PORTS]) }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

impl Default for UserspaceDummy {
    fn default() -> Self {
        UserspaceDummy::new()
    }
}

impl Drop for UserspaceDummy {
    fn drop(&mut self) {
        self.datapath.shutdown();
    }
}

impl Fixture for UserspaceDummy {
    fn datapath(&self) -> &Arc<dyn Datapath> {
        &self.datapath
    }

    fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Offers waiting flows to the card.
    fn maintain(&self) {
        (0..3).for_each(|_| self.datapath.maintain());
    }

    fn inject(&self, port: PortNo, packet: Packet) {
        let name = &self.names[port.0 as usize - 1];
        let device = netdev::dummy::lookup(name).unwrap_or_else(|| panic!("{name} is gone"));
        device.receive(0, vec![packet]);
    }

    fn collect(&self, port: PortNo) -> Vec<Vec<u8>> {
        let index = port.0 as usize - 1;
        let file = std::fs::read(self.file(&self.names[index])).expect("the capture file is there");
        let mut read = self.read.lock().expect("no holder panics");
        let mut frames = Vec::new();
        while let Some(header) = file.get(read[index]..read[index] + 16) {
            let len = u32::from_ne_bytes(header[8..12].try_into().expect("4 bytes")) as usize;
            let start = read[index] + 16;
            frames.push(file[start..start + len].to_vec());
            read[index] = start + len;
        }
        frames
    }
}
