// SPDX-License-Identifier: Apache-2.0
//! Measures the nanoseconds per packet in the userspace datapath: extraction, lookup, statistics
//! and a drop, with 1, 1,000 and 64,000 megaflows under one mask and under 16.
//!
//! `cargo run --release -p datapath-userspace --example lookup_bench`

use clock::Clock;
use datapath::{Action, Counters, Datapath, DropReason, Flows, Megaflow, Packets, PortNo, Ufid};
use datapath_userspace::{Config, UserspaceDatapath};
use flow::{Field, Match};
use packet::Packet;
use packet::build::Frame;
use std::net::Ipv4Addr;
use std::time::Instant;

const PACKETS: usize = 400_000;

/// Returns the match of packets to `address`. The addresses are divided among `masks` masks.
fn matching(address: u32, masks: u32) -> Match {
    let mut m = Match::ANY;
    m.set(Field::InPortOxm, 1);
    m.set(Field::RecircId, 0);
    m.set(Field::PacketType, 0);
    m.set(Field::EthType, 0x800);
    m.set(Field::Ipv4Dst, address.into());
    // A different prefix of the source address for each mask; sources are equal.
    let prefix = u32::MAX << (address % masks);
    m.set_masked(Field::Ipv4Src, u128::from(0x0a00_0000u32 & prefix), prefix.into());
    m
}

fn main() {
    for masks in [1u32, 16] {
        for flows in [1u32, 1_000, 64_000] {
            let datapath = UserspaceDatapath::new("bench", Clock::new(), Config::default());
            for i in 0..flows {
                let flow = Megaflow {
                    ufid: Ufid(i.into()),
                    matching: matching(0x0b00_0000 + i, masks),
                    actions: vec![Action::Drop(DropReason::Flow)].into(),
                };
                if let Err(refusal) = datapath.install(&flow) {
                    eprintln!("megaflow {i} was refused: {refusal}");
                    return;
                }
            }
            let frames: Vec<Packet> = (0..flows.min(4096))
                .map(|i| {
                    let dst = Ipv4Addr::from(0x0b00_0000 + i * (flows / flows.min(4096)));
                    Frame::ethernet([2; 6], [4; 6])
                        .ipv4(Ipv4Addr::new(10, 0, 0, 0), dst, 64)
                        .udp(1, 2)
                        .packet()
                })
                .collect();
            let start = Instant::now();
            for packet in frames.iter().cycle().take(PACKETS) {
                datapath.inject(packet.clone(), PortNo(1));
            }
            let all = start.elapsed();
            let start = Instant::now();
            for packet in frames.iter().cycle().take(PACKETS) {
                std::hint::black_box(packet.clone());
            }
            let copies = start.elapsed();
            let lookups = datapath.lookups();
            println!(
                "{flows:>6} flows, {masks:>2} masks: {:>5} ns a packet (batches of one), cache hits {:.0} %, missed {}",
                (all.saturating_sub(copies)).as_nanos() / PACKETS as u128,
                100.0 * lookups.cache_hits as f64 / PACKETS as f64,
                lookups.misses + lookups.lost,
            );
            datapath.shutdown();
        }
    }
}
