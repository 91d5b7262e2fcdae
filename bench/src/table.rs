// SPDX-License-Identifier: Apache-2.0
//! Operations of the BPF flow table, against plain memory.

use crate::args::Plan;
use crate::measure::{Contender, Series, rounds};
use crate::netns::veth;
use crate::report::{Figure, Goal, Relation, Report};
use crate::subject::{Subject, exact, hooks};
use anyhow::{Result, anyhow, ensure};
use datapath::{Megaflow, Ufid};
use datapath_bpf::HookSet;
use slipswitch_tests::harness::Netns;
use std::cell::RefCell;
use std::hint::black_box;
use std::time::Instant;

const GROUP: &str = "table";
const FLOWS: u32 = 1 << 18;
/// Scatter (MAD over median) that is too wide.
const WIDE: f64 = 0.1;
/// Bytes of a flow's slot, as `struct slot` and `struct slot_detail`, and of what it counted of late
/// on two CPUs, as `struct recent`.
const SLOT: usize = 256;
const STATS: usize = 16;

/// Measures; to be called in `netns`, on a pinned thread.
///
/// # Errors
/// When the table cannot be made or refuses a flow.
pub fn run(report: &mut Report, plan: Plan, netns: &Netns) -> Result<()> {
    report.note(
        "table: the limit of install and remove is writing, that of a sweep reading, as many \
         bytes of plain memory as the table's slots (256 bytes) or statistics (16) have. Install \
         and remove take turns and the datapath's upkeep runs in between, as in the daemon; \
         making the flows is not counted.",
    );
    let flows: Vec<Megaflow> = (0..FLOWS).map(exact).collect();
    let ufids: Vec<Ufid> = flows.iter().map(|f| f.ufid).collect();
    let pair = veth(netns, "t")?;
    let subject = Subject::open(pair.far, pair.near, hooks(true, true))?;
    let memory = RefCell::new(vec![0u8; FLOWS as usize * SLOT]);
    // What the timed parts of a turn of the table took, for the contenders that report them.
    let times = RefCell::new((0.0, 0.0, 0.0));
    eprintln!("table: {FLOWS} flows");
    let mut contenders: Vec<Contender<'_>> = vec![
        Box::new(|| Ok(rate(time(|| write(&mut memory.borrow_mut()))))),
        Box::new(|| {
            *times.borrow_mut() = turn(&subject, &flows, &ufids)?;
            Ok(rate(times.borrow().0))
        }),
        Box::new(|| Ok(time(|| read(&memory.borrow())) * 1e3)),
        Box::new(|| Ok(times.borrow().1 * 1e3)),
        Box::new(|| Ok(rate(times.borrow().2))),
    ];
    let rounds = rounds(plan, WIDE, &mut contenders)?;
    drop(contenders);
    let [writing, install, reading, sweep, remove] = &rounds.series[..] else { return Ok(()) };
    let mut add = |name: &str, unit, measured: &Series, limit: &Series, what: &str, goal| {
        report.add(Figure {
            group: GROUP,
            name: name.into(),
            unit,
            measured: measured.clone(),
            limit: Some((what.into(), limit.clone(), Relation::Share)),
            goal,
            absolute: true,
            taken: rounds.taken,
            unsteady: rounds.unsteady,
        });
    };
    let goal = Some(Goal::AtLeast(500.0));
    add("install, 256K flows", "K/s", install, writing, "plain writes", goal);
    let goal = Some(Goal::AtMost(50.0));
    add("sweep of statistics, 256K flows", "ms", sweep, reading, "plain reads", goal);
    add("remove_many, 256K flows", "K/s", remove, writing, "plain writes", None);
    Ok(())
}

/// Fills the table, sweeps it, empties it; the seconds of each.
fn turn(subject: &Subject, flows: &[Megaflow], ufids: &[Ufid]) -> Result<(f64, f64, f64)> {
    let table = &subject.datapath;
    let mut refused = None;
    let install = time(|| {
        for flow in flows {
            if let Err(e) = table.install(flow, HookSet::all()) {
                refused.get_or_insert(e);
            }
        }
    });
    if let Some(e) = refused {
        return Err(anyhow!("after {} flows: {}", table.len(), e.meaning()));
    }
    let mut swept = 0;
    let sweep = time(|| table.sweep(&mut |_, stats| swept += 1 + black_box(stats.packets)));
    ensure!(swept == u64::from(FLOWS), "the sweep saw {swept} flows");
    let mut removed = 0u32;
    let remove = time(|| table.remove_many(ufids, &mut |_, _| removed += 1));
    ensure!(removed == FLOWS && table.is_empty(), "{removed} flows were removed");
    // Slots are used anew after grace periods.
    subject.settle();
    Ok((install, sweep, remove))
}

/// Seconds.
fn time(work: impl FnOnce()) -> f64 {
    let begin = Instant::now();
    work();
    begin.elapsed().as_secs_f64()
}

/// Thousand flows a second.
fn rate(seconds: f64) -> f64 {
    f64::from(FLOWS) / seconds / 1e3
}

fn write(memory: &mut [u8]) {
    for (number, slot) in memory.chunks_exact_mut(SLOT).enumerate() {
        slot.fill(number as u8);
    }
    black_box(memory);
}

fn read(memory: &[u8]) {
    let sum: u64 = memory
        .chunks_exact(STATS)
        .take(FLOWS as usize)
        .flat_map(|stats| stats.first_chunk())
        .map(|packets| u64::from_ne_bytes(*packets))
        .fold(0, u64::wrapping_add);
    black_box(sum);
}
