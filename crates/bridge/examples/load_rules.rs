// SPDX-License-Identifier: Apache-2.0
//! Loads rules into a pipeline and says what they cost: `load_rules [COUNT [published]]`. With
//! `published` packets see each rule before the next one comes, as where barriers are between them.

use bridge::pipeline::Pipeline;
use clock::Millis;
use flow::{Field, Key, Mask, Match};
use openflow::message::FlowMod;
use openflow::{Action, PortNo};
use std::time::Instant;

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|l| l.strip_prefix("VmRSS:")?.trim().split(' ').next()?.parse().ok())
        .unwrap_or(0)
}

fn main() {
    let count: u32 = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(256_000);
    let published = std::env::args().nth(2).is_some_and(|word| word == "published");
    let mut pipeline = Pipeline::default();
    let mut seen = pipeline.view();
    let before = resident_kib();
    let start = Instant::now();
    for i in 0..count {
        let mut matching = Match::ANY;
        matching.set(Field::EthType, 0x800);
        matching.set(Field::Ipv4Dst, u128::from(0x0a00_0000 + i));
        let output = Action::Output { port: PortNo(1 + i % 100), max_len: 0 };
        let fm = FlowMod::add(100, matching, &[output]);
        pipeline.flow_mod(&fm, &|_| false, Millis(1)).expect("a plain rule is added");
        if published {
            seen = pipeline.view();
        }
    }
    drop(seen);
    let took = start.elapsed();
    let kib = resident_kib() - before;
    println!(
        "{count} rules: {took:.2?}, {} KiB, {} bytes a rule",
        kib,
        kib * 1024 / u64::from(count)
    );
    let view = pipeline.view();
    let table = view.get(0).expect("there are 255 tables");
    let mut key = Key::ZERO;
    Field::EthType.store(&mut key, 0x800);
    let start = Instant::now();
    let mut found = 0u32;
    for i in 0..1_000_000u32 {
        Field::Ipv4Dst.store(&mut key, u128::from(0x0a00_0000 + i.wrapping_mul(7919) % count));
        found += u32::from(table.rules.lookup(&mut key, &mut Mask::WILDCARD.clone()).is_some());
    }
    println!(
        "{found} of 1000000 lookups found a rule, {:.0} ns each",
        start.elapsed().as_nanos() as f64 / 1e6
    );
}
