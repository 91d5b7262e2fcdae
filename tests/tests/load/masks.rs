// SPDX-License-Identifier: Apache-2.0
//! A port that makes as many masks as it can.

use crate::tools::Scene;
use fastrand::Rng;
use packet::Packet;
use slipswitch_tests::harness::{Flood, udp};
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::time::Duration;

/// The field that the prefixes match.
const PATTERN: u32 = 0x55aa_55aa;
/// Masks that the userspace datapath has at most: those that any megaflow may have, and those kept
/// for exact ones.
const MOST_MASKS: usize = 960 + 64;

/// Rules with all prefixes of two addresses, one in each table: a packet's mask has as many bits
/// of each as are needed to distinguish it from longer prefixes.
fn rules() -> String {
    let mut text = String::from(
        "priority=10,udp,in_port=h1,actions=multipath(symmetric_l4,1,hrw,16,0,NXM_NX_REG0[]),NORMAL\n\
         priority=1,actions=NORMAL\n\
         priority=2,udp,in_port=h3,actions=resubmit(,1)\n",
    );
    for length in 1..=32u32 {
        let address = Ipv4Addr::from(PATTERN);
        let priority = 100 + length;
        for (table, field, actions) in [(0, "nw_src", "resubmit(,1)"), (1, "nw_dst", "drop")] {
            // A String takes all writes.
            let _ = writeln!(
                text,
                "table={table},priority={priority},udp,in_port=h3,{field}={address}/{length},actions={actions}"
            );
        }
    }
    text
}

/// An address that agrees with the pattern in a random number of bits.
fn address(random: &mut Rng) -> Ipv4Addr {
    let same = random.u32(0..=32);
    let differs = 1u32.checked_shl(31u32.wrapping_sub(same)).unwrap_or(0);
    let below = differs.saturating_sub(1);
    Ipv4Addr::from((PATTERN ^ differs) & !below | random.u32(..) & below)
}

fn masked(random: &mut Rng) -> Packet {
    let addresses = (address(random), address(random));
    udp([2, 0, 0, 0, 0, 0x98], [2, 0, 0, 0, 0, 0x99], addresses, (5, 6))
}

#[test]
fn masks_are_bounded_and_flows_beyond_them_are_exact() {
    let Some(scene) = Scene::new(&rules()) else { return };
    let before = scene.masks();
    let flood = Flood::start(&scene.attacker, 11, masked);
    scene.exceeds("upcall_narrowed", 0);
    let masks = scene.masks();
    assert!(masks > before && masks <= MOST_MASKS, "{masks} masks, {before} before");
    // Others still get flows, whose packets go where they should.
    assert_eq!(scene.new_flows(100, Duration::from_millis(5)), 100);
    assert_eq!(scene.a.ping("10.0.0.2", 50), 50);
    scene.commands_are_prompt();
    let masks = scene.masks();
    assert!(masks <= MOST_MASKS, "{masks} masks");
    assert!(scene.switch.counter("dpif_flow_put_masks_full") > 0);
    drop(flood);
    let warnings = scene.switch.warnings();
    assert!(warnings.len() == 1 && warnings[0].contains("masks"), "{warnings:?}");
}
