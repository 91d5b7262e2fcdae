// SPDX-License-Identifier: Apache-2.0
//! TCP between hosts of two switches, and the price of a tunnel's headers for the smallest frames.

use super::frames::rate::window;
use super::{Entry, Experiment, Run};
use crate::attempt::attempt;
use crate::cpu_time::Machine;
use crate::endpoints::tcp::bulk;
use crate::generator::Stream;
use crate::measure::Sample;
use crate::overlay::{Overlay, Tunnel, Underlay};
use crate::overlay_frames::{Path, Way};
use crate::point::{Metric, Parameters, parameters};
use crate::system::{System, Tier};
use crate::testbed::Way as _;
use crate::topology::Remote;
use anyhow::{Error, Result};
use std::time::Duration;

/// TCP over a tunnel.
pub const OVERLAY: Experiment = Experiment {
    name: "overlay",
    title: "TCP between containers on two switches",
    about: "A container at each of two switches of one kind, which a tunnel joins; both switches \
            are on this machine, and a veth pair is the underlay. Throughput is that of one \
            connection. A CPU second is one of everything that this machine does meanwhile: the \
            containers, both switches, the kernel. The Linux bridge uses the kernel's tunnel \
            device. Systems take turns of 200 ms.",
    repeats: "none of the papers' tables",
    across: Some("underlay"),
    seconds: [90, 150],
    run: run_tcp,
    ..Experiment::BASE
};

/// Frames into a tunnel and out of it.
pub const HEADERS: Experiment = Experiment {
    name: "headers",
    title: "The smallest frames into and out of a tunnel",
    about: "Frames of 64 bytes come from a card, get a tunnel's headers at XDP, and leave by another \
            card; or go on to a second switch, which takes the headers off and sends the frames to a \
            third card. The figure is the time that a frame takes more than over the same cards with \
            a bare redirect at XDP in place of each switch. Both take turns.",
    repeats: "none of the papers' tables",
    across: Some("tunnel"),
    seconds: [30, 60],
    run: run_headers,
    ..Experiment::BASE
};

/// Systems with tunnels on plain devices that do not poll.
const SYSTEMS: [System; 4] = [
    System::LinuxBridge,
    System::OvsAfPacket,
    System::Slipswitch(Tier::Tcx),
    System::Slipswitch(Tier::Userspace),
];
const UNDERLAYS: [Underlay; 2] = [Underlay::Whole, Underlay::Cut];
/// Shorter turns have too few of the kernel's ticks for their CPU time.
const TURN: Duration = Duration::from_millis(200);

/// The second is what systems are compared by: a virtual machine's two CPUs do not both belong to
/// the switches.
const METRICS: [Metric; 2] = [
    Metric::new("throughput", "Gbit/s", 0.1),
    Metric::new("throughput per CPU second", "Gbit", 0.1),
];

/// Nanoseconds of a frame.
const PRICE: Metric = Metric::new("time of a frame over a bare redirect", "ns", 0.15);
/// Turns of a round.
const TURNS: u32 = 3;

fn run_tcp(run: &mut Run) -> Result<()> {
    for tunnel in Tunnel::ALL {
        let mut overlays = Vec::new();
        for system in run.selected_of(&SYSTEMS) {
            run.progress.say(&format!("starting {} twice, {}", system.name(), tunnel.name()));
            let cpus = run.cpus;
            let made =
                attempt(|| Overlay::new(system, cpus, tunnel, Remote::Container)?.with_tcp());
            match made {
                Ok(overlay) => overlays.push(overlay),
                Err(why) => absent(run, system, tunnel, &why),
            }
        }
        for overlay in &overlays {
            let [site, _] = &overlay.sites;
            run.describe(overlay.system, &*site.instance);
        }
        for underlay in UNDERLAYS {
            measure(run, &overlays, tunnel, underlay);
        }
        overlays.into_iter().for_each(|overlay| run.end(overlay.system, overlay));
    }
    Ok(())
}

fn absent(run: &mut Run, system: System, tunnel: Tunnel, why: &Error) {
    for underlay in UNDERLAYS {
        run.absent(system, &named(tunnel, underlay), &METRICS, why);
    }
}

fn named(tunnel: Tunnel, underlay: Underlay) -> Parameters {
    parameters([("tunnel", tunnel.name().into()), ("underlay", underlay.name().into())])
}

/// Lets all systems take turns.
fn measure(run: &mut Run, overlays: &[Overlay], tunnel: Tunnel, underlay: Underlay) {
    let parameters = named(tunnel, underlay);
    let mut able = Vec::new();
    for overlay in overlays {
        match attempt(|| overlay.set(underlay).and_then(|()| sample(overlay))) {
            Ok(_) => able.push(overlay),
            Err(why) => run.absent(overlay.system, &parameters, &METRICS, &why),
        }
    }
    let bridge = able.iter().position(|overlay| overlay.system == System::LinuxBridge);
    let limit = bridge.map(|at| (at, System::LinuxBridge.name()));
    let entries = able.into_iter().map(|overlay| Entry {
        subject: run.subject(overlay.system.name(), parameters.clone()),
        note: overlay.note.clone().or_else(|| overlay.misplaced()),
        is_compared: true,
        candidate: Box::new(move || attempt(|| sample(overlay))),
    });
    let entries = entries.collect();
    let turns = run.plan.window().div_duration_f64(TURN).ceil() as u32;
    run.turns((run.plan, turns), limit, entries, &METRICS);
}

/// The figures of [`METRICS`] during a turn.
fn sample(overlay: &Overlay) -> Result<Sample> {
    let before = Machine::now()?;
    let rate = bulk(&overlay.endpoints()?, TURN)?;
    let cpus = Machine::now()?.cpus_since(before);
    Ok(vec![rate, rate / cpus])
}

fn run_headers(run: &mut Run) -> Result<()> {
    let system = System::Slipswitch(Tier::Xdp);
    if run.selected_of(&[system]).is_empty() {
        return Ok(());
    }
    for way in Way::ALL {
        let cpus = run.cpus;
        run.progress.say(&format!("starting redirects: {}", way.name()));
        let bare = match attempt(|| Path::bare(way, cpus)) {
            Ok(bare) => bare,
            Err(why) => {
                for tunnel in Tunnel::ALL {
                    run.absent(system, &of_headers(way, tunnel), &[PRICE], &why);
                }
                continue;
            }
        };
        for tunnel in Tunnel::ALL {
            run.progress.say(&format!("starting {}: {}", system.name(), way.name()));
            let parameters = of_headers(way, tunnel);
            let tunnelled = attempt(|| {
                let path = Path::tunnel(way, cpus, tunnel)?;
                price(&bare, &path, window(run.plan))?;
                Ok(path)
            });
            match tunnelled {
                Err(why) => run.absent(system, &parameters, &[PRICE], &why),
                Ok(path) => {
                    let span = window(run.plan);
                    let entry = Entry {
                        subject: run.subject(system.name(), parameters),
                        note: path.misplaced(),
                        is_compared: false,
                        candidate: Box::new(|| attempt(|| price(&bare, &path, span))),
                    };
                    run.turns((run.plan, TURNS), None, vec![entry], &[PRICE]);
                    run.end(system, path);
                }
            }
        }
        run.end(System::BareXdp, bare);
    }
    Ok(())
}

fn of_headers(way: Way, tunnel: Tunnel) -> Parameters {
    parameters([("way", way.name().into()), ("tunnel", tunnel.name().into())])
}

/// Nanoseconds that a frame takes more on one path than on the other.
fn price(bare: &Path, path: &Path, span: Duration) -> Result<Sample> {
    let time = |path: &Path| -> Result<f64> {
        Ok(1e3 / path.traffic(Stream::flood(1)).measure(span)?.mpps())
    };
    let least = time(bare)?;
    Ok(vec![time(path)? - least])
}
