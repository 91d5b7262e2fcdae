// SPDX-License-Identifier: Apache-2.0
//! Rates of TCP between two containers.

use super::echo::HOSTS;
use super::{Experiment, NO_FRAMES, Run, Task, between_hosts};
use crate::endpoints::Endpoints;
use crate::endpoints::tcp::{bulk, connections, requests};
use crate::host_testbed::HostTestbed;
use crate::measure::{TURN, turns_in};
use crate::point::{Metric, Parameters};
use crate::rules::Rules;
use crate::system::System;
use anyhow::Result;
use std::time::Duration;

/// The experiment.
pub const TCP: Experiment = Experiment {
    name: "tcp",
    title: "TCP between two containers",
    about: "Throughput is that of one connection. Requests have one byte and are answered by one \
            byte, one at a time. Connections are made, used for one request and closed, one at a \
            time. They are counted twice: with rules that do not match TCP's ports, and with \
            rules that do, so that each connection needs two new megaflows. Hosts use CUBIC for \
            congestion control, Linux's default, whatever this machine is set to: an algorithm \
            that paces would measure its timers. Systems take turns of 50 ms, because a shared \
            machine may be twice as fast a second later; a round is the mean over the turns that \
            fill its time.",
    repeats: "none of the papers' tables; the AF_XDP figures of *Faster OVS Datapath with XDP* \
              are without TCP",
    shown: &[],
    long: false,
    across: None,
    more: "",
    why: HOSTS,
    seconds: [200, 330],
    frames: NO_FRAMES,
    run,
};

fn run(run: &mut Run) -> Result<()> {
    type Work = fn(&Endpoints, Duration) -> Result<f64>;
    let (turns, cpus) = (turns_in(run.plan.window()), run.cpus);
    let task = |name, unit, rules, work: Work| Task {
        metric: Metric { name, unit, max_scatter: 0.05 },
        parameters: Parameters::new(),
        rules,
        turns,
        work: Box::new(move |t: &HostTestbed| work(&t.endpoints, TURN)),
    };
    let by_connection = Some(Rules::PerConnection);
    let tasks = [
        task("throughput", "Gbit/s", None, bulk),
        task("requests", "/s", None, requests),
        task("connections", "/s", None, connections),
        task("connections, megaflows for each", "/s", by_connection, connections),
    ];
    let make = move |system| HostTestbed::new(system, cpus, Rules::Normal)?.with_tcp();
    run.compare(&between_hosts(), Some(System::BareTc), &make, &tasks);
    Ok(())
}
