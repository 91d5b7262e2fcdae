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
    about: "One connection's throughput; requests of one byte that are answered by one byte, one \
            at a time; connections that are made, used for one request and closed, one at a time. \
            Connections are counted twice: with rules that do not look at TCP's ports, and with \
            rules that do, so that each connection needs two new megaflows. Hosts control congestion \
            by CUBIC, as Linux does by itself, whatever this machine was told: TCP that paces itself \
            would show its timers. Systems take turns of 50 ms, because a machine that others use, \
            too, may be twice as fast a second later; a round is the mean over as many turns as fill \
            its time.",
    repeats: "none of the papers' tables; the AF_XDP numbers of *Faster OVS Datapath with XDP* \
              leave TCP out",
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
