// SPDX-License-Identifier: Apache-2.0
//! Memory under attack.

use crate::tools::{MICROFLOWS, SOON, Scene};
use slipswitch_tests::harness::{Flood, stranger, wait_until};
use std::time::Duration;

/// Limit of the number of megaflows.
const LIMIT: u64 = 20_000;
/// Bytes that one costs at most, in all tables and with what it makes memory allocators keep; see
/// the budgets in ARCHITECTURE.md.
const PER_MEGAFLOW: u64 = 4096;
/// Kilobytes for all that does not grow with megaflows.
const REST: u64 = 32 << 10;

#[test]
fn a_flood_takes_no_more_than_its_share_of_megaflows_and_of_memory() {
    let Some(scene) = Scene::new(MICROFLOWS) else { return };
    scene.switch.vsctl(&format!(
        "set Open_vSwitch . other_config:flow-limit={LIMIT} other_config:upcall-cpu-percent=100"
    ));
    let before = scene.memory();
    // Each packet twice, so that its flow is no passing one.
    let mut next = None;
    let flood = Flood::start(&scene.attacker, 12, move |random| {
        next.take().unwrap_or_else(|| {
            let packet = stranger(random);
            let again = packet::Packet::from_slice(packet.data());
            next = Some(again);
            packet
        })
    });
    let most = LIMIT * 8 / 9 + 1;
    let flows = || scene.switch.megaflows().len() as u64;
    wait_until(SOON, || scene.switch.counter("upcall_port_share_hit") > 0);
    std::thread::sleep(Duration::from_secs(2));
    let (seen, grown) = (flows(), scene.memory().saturating_sub(before));
    println!("{seen} megaflows, {grown} kB more than before");
    // Those of others are among them.
    assert!(seen <= most + 20, "{seen} megaflows, of {most} that are one port's share");
    let bound = LIMIT * PER_MEGAFLOW / 1024 + REST;
    assert!(grown <= bound, "{grown} kB more, of {bound}");
    drop(flood);
    // They go, and later floods find what they left.
    assert!(wait_until(4 * SOON, || flows() < 100), "{}", scene.switch.appctl("upcall/show"));
}
