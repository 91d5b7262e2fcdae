// SPDX-License-Identifier: Apache-2.0
//! The property: what a megaflow matches, a fresh translation treats alike.

use crate::arrival::Arrival;
use crate::mutants;
use crate::switch::{Fresh, World, effects};
use datapath::Megaflow;
use flow::ct_state::{EST, TRK};
use flow::text::{format_key, format_megaflow, no_names};
use flow::{Key, Match};
use proptest::test_runner::TestCaseError;
use slipswitch_tests::behaviour::{ModelFixture, Why, World as Tables};
use std::collections::HashSet;

/// How often a packet is followed through recirculations.
const PASSES: usize = 3;

/// The counts of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// Random switches with a packet.
    pub cases: u64,
    /// Megaflows that were checked: the packet's and those after each recirculation.
    pub megaflows: u64,
    /// Mutants, each of which was parsed and matched.
    pub mutants: u64,
    /// Mutants that the megaflow matched.
    pub matched: u64,
    /// Distinct keys among them, which is the number of fresh translations.
    pub keys: u64,
    /// Bits that these had different from the packet's key, in all.
    pub bits: u64,
    /// Megaflows of tracked packets.
    pub tracked: u64,
}

/// Checks a packet, its mutants, and the same after each recirculation.
pub fn check(
    world: &World,
    first: Arrival,
    others: &[Vec<u8>],
    rounds: usize,
    rng: &mut fastrand::Rng,
    figures: &mut Figures,
) -> Result<(), TestCaseError> {
    figures.cases += 1;
    let mut level = vec![first];
    let mut kept = Vec::new(); // keeps recirculation ids alive
    for _ in 0..PASSES {
        let mut next = Vec::new();
        for arrival in level {
            let Some(fresh) = world.translate(&arrival.key()) else { continue };
            figures.megaflows += 1;
            figures.tracked += u64::from(arrival.connection.ct_state & TRK != 0);
            masked_key(world, &arrival, &fresh)?;
            of_mutants(world, &arrival, &fresh, others, rounds, rng, figures)?;
            next.extend(recirculated(&arrival, &fresh.megaflow));
            kept.push(fresh);
        }
        level = next;
    }
    Ok(())
}

fn of_mutants(
    world: &World,
    arrival: &Arrival,
    fresh: &Fresh,
    others: &[Vec<u8>],
    rounds: usize,
    rng: &mut fastrand::Rng,
    figures: &mut Figures,
) -> Result<(), TestCaseError> {
    let matching = &fresh.megaflow.matching;
    let origin = arrival.key();
    let mut seen = HashSet::from([*origin.words()]);
    let mut result = Ok(());
    mutants::of(arrival, matching, others, rounds, rng, &mut |mutant| {
        figures.mutants += 1;
        let key = mutant.key();
        if result.is_err() || !matching.matches(&key) {
            return;
        }
        figures.matched += 1;
        if !seen.insert(*key.words()) {
            return;
        }
        figures.keys += 1;
        figures.bits += differing(&origin, &key);
        let Some(other) = world.translate(&key) else {
            result = fail("has no place", arrival, matching, &key, "", "");
            return;
        };
        result = same(arrival, fresh, &key, &other);
    });
    result
}

fn differing(a: &Key, b: &Key) -> u64 {
    a.words().iter().zip(b.words()).map(|(a, b)| u64::from((a ^ b).count_ones())).sum()
}

fn same(a: &Arrival, fresh: &Fresh, key: &Key, other: &Fresh) -> Result<(), TestCaseError> {
    let matching = &fresh.megaflow.matching;
    let text = |f: &Fresh| {
        let actions = datapath::text::format_plain(&f.megaflow.actions);
        format!("{actions} {:?}", f.translation.error)
    };
    if fresh.megaflow.actions != other.megaflow.actions
        || fresh.translation.error != other.translation.error
    {
        return fail("is treated otherwise", a, matching, key, &text(fresh), &text(other));
    }
    let effects_of = |f: &Fresh| effects(&f.translation);
    if effects_of(fresh) != effects_of(other) {
        let text = |f: &Fresh| effects_of(f).join("; ");
        return fail("has other effects", a, matching, key, &text(fresh), &text(other));
    }
    if *matching != other.megaflow.matching {
        let text = |f: &Fresh| format_megaflow(&f.megaflow.matching, &no_names);
        return fail("has another megaflow", a, matching, key, &text(fresh), &text(other));
    }
    Ok(())
}

/// A revalidator has only the bits that are matched: it must find the megaflow as it is.
fn masked_key(world: &World, arrival: &Arrival, fresh: &Fresh) -> Result<(), TestCaseError> {
    let matching = &fresh.megaflow.matching;
    let key = *matching.key();
    let Some(again) = world.translate(&key) else {
        return fail("(masked) has no place", arrival, matching, &key, "", "");
    };
    let text = |f: &Fresh| {
        let actions = datapath::text::format_plain(&f.megaflow.actions);
        format!("{} {actions}", format_megaflow(&f.megaflow.matching, &no_names))
    };
    if !matching.mask().covers(again.megaflow.matching.mask())
        || fresh.megaflow.actions != again.megaflow.actions
    {
        let what = "does not survive revalidation";
        return fail(what, arrival, matching, &key, &text(fresh), &text(&again));
    }
    Ok(())
}

fn fail(
    what: &str,
    arrival: &Arrival,
    matching: &Match,
    key: &Key,
    was: &str,
    is: &str,
) -> Result<(), TestCaseError> {
    let hex: String = arrival.frame.iter().map(|b| format!("{b:02x}")).collect();
    Err(TestCaseError::fail(format!(
        "a packet of the megaflow {what}\nframe    {hex}\nkey      {}\nmegaflow {}\nmutant   {}\nwas      {was}\nis       {is}",
        format_key(&arrival.key(), &no_names),
        format_megaflow(matching, &no_names),
        format_key(key, &no_names),
    )))
}

/// The packet as it comes back from each recirculation of its megaflow, and if it is tracked, as one of
/// an established connection, too.
fn recirculated(arrival: &Arrival, megaflow: &Megaflow) -> Vec<Arrival> {
    let text = datapath::text::format_plain(&megaflow.actions);
    if !text.contains("recirc") {
        return Vec::new();
    }
    let tables = Tables::new(ModelFixture::new());
    let packet = packet::Packet::from_slice(&arrival.frame);
    tables.fixture().datapath().execute(packet, &arrival.key(), &megaflow.actions);
    let seen = tables.upcalls().into_iter().filter(|seen| seen.why == Why::Miss);
    let again = seen.map(|seen| Arrival::again(&seen.frame, &seen.key));
    again.flat_map(|arrival| [established(&arrival), Some(arrival)]).flatten().collect()
}

/// A tracked packet as one of an established connection with a mark and a label.
fn established(arrival: &Arrival) -> Option<Arrival> {
    if arrival.connection.ct_state & TRK == 0 {
        return None;
    }
    let mut connection = arrival.connection;
    connection.ct_state = EST | TRK;
    connection.ct_mark.set(1);
    connection.ct_label = 1u128.to_be_bytes();
    Some(Arrival { connection, ..arrival.clone() })
}
