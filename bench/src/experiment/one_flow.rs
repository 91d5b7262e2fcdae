// SPDX-License-Identifier: Apache-2.0
//! One flow to a card and to a container.

use super::frames::{self, Case, FRAMES, Layout, rate};
use super::{Experiment, Run};
use crate::point::{Subject, parameters};
use crate::report::results::SENDER;
use crate::rules::Rules;
use crate::testbed::{Counted, GeneratorOnly};
use crate::topology::Remote;
use anyhow::Result;

/// The experiment.
pub const ONE_FLOW: Experiment = Experiment {
    name: "one-flow",
    title: "One UDP flow, from a network card to a card and to a container",
    about: "The smallest frames of one flow, measured as above. A container is at the other end \
            of a plain veth pair without any setting. The frames of the generator up to its \
            device are counted where the device takes them, and end there; the bare generator's \
            frames reach the sink, which takes time of the same CPU.",
    repeats: "the single-flow figures of the papers on AF_XDP in Open vSwitch: physical to \
              physical and physical to container",
    shown: &["rate", "rate per core", "latency p50", "latency p99"],
    long: false,
    across: None,
    more: "",
    why: FRAMES,
    seconds: [40, 90],
    frames: layouts,
    run,
};

fn layouts(_: bool) -> Vec<Layout> {
    let layout = |receiver: Remote| {
        let way = format!("{} to {}", Remote::Card.name(), receiver.name());
        let parameters = parameters([("way", way.as_str().into())]);
        let case = Case { latency: true, parameters, ..Case::new(1, Rules::OneToOne(1)) };
        Layout { receiver, ..Layout::between_cards(vec![case]) }
    };
    [Remote::Card, Remote::Container].map(layout).into()
}

/// The systems, and what the generator alone hands to its device.
fn run(run: &mut Run) -> Result<()> {
    frames::run(run)?;
    let generator = GeneratorOnly::new(Counted::AtDevice, run.cpus)?;
    let layouts = layouts(run.plan.full);
    for case in layouts.iter().filter(|l| l.receiver == Remote::Card).flat_map(|l| &l.cases) {
        run.progress.say(SENDER);
        let (experiment, parameters) = (run.experiment.name, case.parameters.clone());
        let subject = Subject { experiment, system: SENDER.to_owned(), parameters };
        let points = rate::sent(&generator, case, &subject, run.plan).unwrap_or_else(|e| {
            let why = format!("{e:#}");
            [rate::RATE, rate::PER_CORE].map(|metric| subject.absent(&metric, &why)).into()
        });
        points.into_iter().for_each(|point| run.add(point));
    }
    Ok(())
}
