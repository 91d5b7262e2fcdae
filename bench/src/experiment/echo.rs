// SPDX-License-Identifier: Apache-2.0
//! Echo of messages by TCP.

use super::{Experiment, NO_FRAMES, Reason, Run, Task, between_hosts};
use crate::endpoints::tcp::echo;
use crate::host_testbed::HostTestbed;
use crate::point::{Metric, parameters};
use crate::rules::Rules;
use crate::system::System;
use anyhow::Result;
use std::time::Duration;

/// The experiment.
pub const ECHO: Experiment = Experiment {
    name: "echo",
    title: "Echo through the switch, 16 B to 16 MiB",
    about: "A client sends a message by TCP, the server returns it when it is complete, and the \
            client compares it. Each endpoint has one thread. The time is from before the message \
            is sent until all of it is back, as a mean over up to 50 exchanges on one connection \
            (fewer of large messages in the short run). Ports are plain veth pairs to two \
            namespaces. Slipswitch tcx is offload on, Slipswitch userspace is offload off.",
    repeats: "*Open vSwitch in NVIDIA BlueField SmartNIC*, echo test with OVS offload on and off",
    shown: &[],
    long: false,
    across: Some("bytes"),
    more: "sizes by factors of 4, and 50 exchanges of large messages",
    why: HOSTS,
    seconds: [55, 180],
    frames: NO_FRAMES,
    run,
};

/// Why other switches may be ahead where packets pass the hosts' stacks.
pub const HOSTS: &[Reason] = &[
    Reason {
        system: "Linux bridge",
        metrics: &["time of an echo", "throughput", "requests", "connections"],
        most: None,
        words: "It forwards inside the receive path without parsing beyond the Ethernet header \
                and without flow statistics, and both ports are known to it here.",
    },
    Reason { system: "OVS AF_XDP", ..POLLS },
    Reason { system: "OVS-DPDK", ..POLLS },
];

/// The advantage of polling for hosts that wait for each other, as long as messages are short.
const POLLS: Reason = Reason {
    system: "",
    metrics: &["time of an echo", "requests", "connections", "connections, megaflows for each"],
    most: Some(1 << 14),
    words: "Its thread polls on a CPU of its own, also without packets: that CPU does not sleep \
            between a request and its answer, and waking an idle CPU takes longer than \
            forwarding.",
};

/// Exchanges of a size, at most: the BlueField page has 50.
const EXCHANGES: u32 = 50;
/// A short run begins no exchange of a size after this time.
const SHORT: Duration = Duration::from_millis(200);
/// A full run begins all exchanges.
const LONG: Duration = Duration::from_secs(60);

fn run(run: &mut Run) -> Result<()> {
    let full = run.plan.full;
    // From 16 B to 16 MiB by factors of 32; of 4 in a full run.
    let sizes = (4..=24).step_by(if full { 2 } else { 5 }).map(|bits| 1usize << bits);
    let limit = if full { LONG } else { SHORT };
    let task = |size: usize| Task {
        metric: Metric { name: "time of an echo", unit: "µs", max_scatter: 0.05 },
        parameters: parameters([("bytes", (size as u64).into())]),
        rules: None,
        turns: 1,
        work: Box::new(move |t: &HostTestbed| echo(&t.endpoints, size, EXCHANGES, limit)),
    };
    let tasks: Vec<Task<'_>> = sizes.map(task).collect();
    let cpus = run.cpus;
    let make = move |system| HostTestbed::new(system, cpus, Rules::Normal)?.with_tcp();
    run.compare(&between_hosts(), Some(System::BareTc), &make, &tasks);
    Ok(())
}
