// SPDX-License-Identifier: Apache-2.0
//! Time to add and to delete many ports at once.

use super::{Entry, Experiment, Run};
use crate::attempt::attempt;
use crate::measure::Sample;
use crate::netns::run as sh;
use crate::pin::Cpus;
use crate::point::{Metric, Parameters};
use crate::system::vswitch::BRIDGE;
use crate::system::{Between, Instance, System, Tier};
use crate::topology::Port;
use anyhow::{Context, Result};
use slipswitch_tests::harness::{Netns, Resident};
use std::time::Instant;

/// The experiment.
pub const PORTS: Experiment = Experiment {
    name: "ports",
    title: "Ports by the hundred",
    about: "One transaction of `ovs-vsctl` makes 200 devices ports of a bridge that has none, and \
            another deletes these ports; the devices stay. They are veth pairs whose other ends \
            are in another namespace. The time is until the tool returns, which waits for the \
            daemon, divided by the number of ports.",
    seconds: [50, 85],
    run,
    ..Experiment::BASE
};

const SYSTEMS: [System; 3] =
    [System::OvsAfPacket, System::Slipswitch(Tier::Xdp), System::Slipswitch(Tier::Tcx)];
const PORTS_AT_ONCE: u32 = 200;
/// Interface indexes of the devices, from this one on.
const FIRST_INDEX: u32 = 1000;

const METRICS: [Metric; 2] = [
    Metric::new("time to add a port", "ms", 0.15),
    Metric::new("time to delete a port", "ms", 0.15),
];

fn run(run: &mut Run) -> Result<()> {
    let mut entries = Vec::new();
    for system in run.selected_of(&SYSTEMS) {
        run.progress.say(&format!("starting {}", system.name()));
        let made = attempt(|| {
            let mut switch = Switch::new(system, run.cpus)?;
            switch.add_and_delete()?;
            Ok(switch)
        });
        match made {
            Ok(mut switch) => {
                run.describe(system, &*switch.instance);
                entries.push(Entry {
                    subject: run.subject(system.name(), Parameters::new()),
                    note: None,
                    is_compared: false,
                    candidate: Box::new(move || attempt(|| switch.add_and_delete())),
                });
            }
            Err(why) => run.absent(system, &Parameters::new(), &METRICS, &why),
        }
    }
    run.turns((run.plan, 1), None, entries, &METRICS);
    Ok(())
}

/// A switch without ports, and devices that may become its ports.
struct Switch {
    instance: Box<dyn Instance>,
    ports: Vec<Port>,
    _remote: (Netns, Resident),
}

impl Switch {
    fn new(system: System, cpus: Cpus) -> Result<Switch> {
        let instance = system.start(cpus, Between::Hosts)?;
        let remote = Netns::new();
        let resident = Resident::of(&remote).context("starting a process in a namespace")?;
        let port = |number| Port { name: format!("p{number}"), ifindex: FIRST_INDEX + number };
        let ports: Vec<Port> = (1..=PORTS_AT_ONCE).map(port).collect();
        let pair = |Port { name, ifindex }: &Port| {
            let peer = format!("peer name {name} netns {}", remote.path().display());
            format!("link add {name} index {ifindex} type veth {peer}\nlink set {name} up\n")
        };
        batch(instance.netns(), ports.iter().map(pair).collect())?;
        batch(&remote, ports.iter().map(|p| format!("link set {} up\n", p.name)).collect())?;
        Ok(Switch { instance, ports, _remote: (remote, resident) })
    }

    /// The figures of [`METRICS`].
    fn add_and_delete(&mut self) -> Result<Sample> {
        let begin = Instant::now();
        self.instance.add_ports(1, &self.ports)?;
        let added = begin.elapsed();
        let delete = |port: &Port| format!("-- del-port {BRIDGE} {} ", port.name);
        let commands: String = self.ports.iter().map(delete).collect();
        let begin = Instant::now();
        self.instance.switch().context("this system has no daemon")?.vsctl(&commands);
        let times = [added, begin.elapsed()];
        Ok(times.map(|t| t.as_secs_f64() * 1e3 / f64::from(PORTS_AT_ONCE)).into())
    }
}

/// Runs lines of `ip`.
fn batch(netns: &Netns, lines: String) -> Result<()> {
    sh(netns, &format!("ip -batch - <<END\n{lines}END")).map(drop)
}
