// SPDX-License-Identifier: Apache-2.0
//! Bytes that are almost messages, on connections that live.

use super::*;
use openflow::message::{
    BundleAdd, BundleControl, BundleControlKind, BundleFlags, FlowMonitorRequest, GROUP_ALL,
    MonitorCommand, MonitorFlags, PacketOut, Role, RoleRequest, TableMiss, TableMod,
};

/// Small numbers from a seed: splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ z >> 31) % n.max(1) as u64) as usize
    }
}

fn seeds(p: &Protocol) -> Vec<Vec<u8>> {
    let mut metadata = Match::ANY;
    metadata.set(Field::InPortOxm, 1);
    let fm = |actions: &[Action]| Body::FlowMod(Box::new(flow(5, ip(7), actions)));
    let monitors = vec![FlowMonitorRequest {
        id: 1,
        command: MonitorCommand::Add,
        flags: MonitorFlags::all(),
        out_port: PortNo::NONE,
        out_group: GROUP_ANY,
        table_id: TABLE_ALL,
        matching: Match::ANY,
    }];
    let control = |kind| {
        Body::BundleControl(BundleControl { bundle_id: 1, kind, flags: BundleFlags::ATOMIC })
    };
    let multipart = |q| Body::MultipartRequest(q);
    let bodies = vec![
        fm(&[output(1), to_controller()]),
        fm(&[Action::Resubmit { port: None, table: Some(1), original_tuple: false }]),
        Body::FlowMod(Box::new(delete_all())),
        Body::PacketOut(Box::new(PacketOut {
            buffer_id: None,
            data: udp(1, 2).data().to_vec(),
            metadata,
            actions: [output(2), output(PortNo::TABLE.0)].into(),
        })),
        Body::BarrierRequest,
        Body::EchoRequest(vec![0; 20]),
        Body::FeaturesRequest,
        Body::GetConfigRequest,
        Body::RoleRequest(RoleRequest {
            role: Role::Primary,
            generation_id: Some(1),
            nicira: p.version < Version::V12,
        }),
        Body::TableMod(TableMod {
            table_id: 1,
            miss: TableMiss::Default,
            eviction: None,
            eviction_flags: None,
            vacancy_events: None,
            vacancy: None,
        }),
        control(BundleControlKind::OpenRequest),
        Body::BundleAdd(Box::new(BundleAdd {
            bundle_id: 1,
            flags: BundleFlags::ATOMIC,
            message: Message { xid: 5, body: fm(&[output(2)]) },
            raw: Vec::new(),
        })),
        control(BundleControlKind::CommitRequest),
        multipart(MultipartRequest::Desc),
        multipart(MultipartRequest::Flow(Box::new(FlowStatsRequest::all()))),
        multipart(MultipartRequest::Aggregate(Box::new(FlowStatsRequest::all()))),
        multipart(MultipartRequest::Port(PortNo::NONE)),
        multipart(MultipartRequest::Group(GROUP_ALL)),
        multipart(MultipartRequest::GroupFeatures),
        multipart(MultipartRequest::MeterFeatures),
        multipart(MultipartRequest::FlowMonitor(monitors)),
    ];
    bodies.into_iter().filter_map(|body| Message { xid: 5, body }.encode(p).ok()).collect()
}

/// Keeps the header's length true, so that the stream goes on.
fn mutate(message: &[u8], version: u8, random: &mut Random) -> Vec<u8> {
    let mut m = message.to_vec();
    for _ in 0..random.below(4) {
        match random.below(4) {
            0 => m.truncate(8 + random.below(m.len() - 7)),
            1 => {
                let more = random.below(24);
                m.extend((0..more).map(|_| random.below(256) as u8));
            }
            _ => {
                let at = random.below(m.len());
                m[at] = match random.below(3) {
                    0 => 0xff,
                    1 => 0,
                    _ => random.below(256) as u8,
                };
            }
        }
    }
    let len = m.len() as u16;
    m[2..4].copy_from_slice(&len.to_be_bytes());
    if random.below(20) != 0 {
        m[0] = version;
    }
    m
}

#[test]
fn a_hundred_thousand_mutated_messages() {
    let mut random = Random(1);
    for version in Version::ALL {
        let mut b = Bench::new(2);
        let mut p = b.connect(Kind::Primary, version);
        let seeds = seeds(&p.protocol);
        for n in 0..17_000u32 {
            let m = mutate(&seeds[random.below(seeds.len())], version.wire(), &mut random);
            b.connections.receive(p.id, &m, &mut b.switch, b.clock.now());
            assert_eq!(b.connections.closing(p.id), None, "no message ends a connection: {m:02x?}");
            // It reads now and then.
            if n % 8 == 0 {
                while !b.connections.take_output(p.id).is_empty() {
                    b.connections.run(&mut b.switch, b.clock.now());
                }
            }
            if n % 512 == 0 {
                b.receive(1, &udp(1, 2));
                b.tick(700);
            }
            if n % 4096 == 0 {
                b.connections.closed(p.id);
                p = b.connect(Kind::Primary, version);
            }
        }
        // Whatever it did to itself, it is answered.
        while !b.connections.take_output(p.id).is_empty() {
            b.connections.run(&mut b.switch, b.clock.now());
        }
        let got = b.ask(p, 1, Body::EchoRequest(vec![3]));
        assert!(got.contains(&Message::new(1, Body::EchoReply(vec![3]))), "{version}");
    }
}
