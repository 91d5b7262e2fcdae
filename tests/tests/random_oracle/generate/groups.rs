// SPDX-License-Identifier: Apache-2.0
//! Random groups.

use super::Gen;
use super::actions::applied;
use openflow::PortNo;
use openflow::message::{
    Bucket, GROUP_ANY, GROUP_MAX, GroupCommand, GroupKind, GroupMod, GroupProperties, bucket,
};

/// A change of groups.
pub fn group_mod(g: &mut Gen) -> GroupMod {
    let command = match g.below(12) {
        0 => GroupCommand::Modify,
        1 => GroupCommand::AddOrModify,
        2 => GroupCommand::Delete,
        3 => GroupCommand::InsertBucket,
        4 => GroupCommand::RemoveBucket,
        _ => GroupCommand::Add,
    };
    let adds =
        matches!(command, GroupCommand::Add | GroupCommand::Modify | GroupCommand::AddOrModify);
    // Other commands have no kind, though messages have room for one.
    let kind = match g.below(8) {
        _ if !adds => GroupKind::All,
        0 | 1 => GroupKind::Indirect,
        2 | 3 => GroupKind::FastFailover,
        4 => GroupKind::Select,
        _ => GroupKind::All,
    };
    // Which of several buckets a select group takes depends on a hash, which is each switch's own.
    let count = match kind {
        GroupKind::Indirect | GroupKind::Select if !g.one_in(20) || kind == GroupKind::Select => 1,
        _ => g.below(4),
    };
    let bucket_place = matches!(command, GroupCommand::InsertBucket | GroupCommand::RemoveBucket);
    let select = kind == GroupKind::Select;
    GroupMod {
        // Those might make a select group of several buckets.
        command: if select && bucket_place { GroupCommand::Add } else { command },
        kind,
        group_id: if g.one_in(30) {
            g.pick(&[0, GROUP_MAX, GROUP_MAX + 1])
        } else {
            group_id(g, kind)
        },
        command_bucket_id: if bucket_place && !select {
            g.pick(&[bucket::FIRST, bucket::LAST, bucket::ALL, 0, 1, 7])
        } else {
            bucket::ALL
        },
        buckets: match command {
            GroupCommand::Delete | GroupCommand::RemoveBucket if !select => Vec::new(),
            // OVS 3.1 loops for ever when no bucket is inserted after the last of a group.
            GroupCommand::InsertBucket => (0..count.max(1)).map(|n| one(g, n, kind)).collect(),
            _ => (0..count).map(|n| one(g, n, kind)).collect(),
        },
        properties: GroupProperties::default(),
    }
}

/// Select groups have ids of their own, so that no bucket is added to them.
fn group_id(g: &mut Gen, kind: GroupKind) -> u32 {
    if kind == GroupKind::Select { super::GROUPS } else { 1 + g.small(super::GROUPS - 1) }
}

fn one(g: &mut Gen, n: usize, kind: GroupKind) -> Bucket {
    let ff = kind == GroupKind::FastFailover;
    Bucket {
        id: if g.one_in(16) { 0 } else { n as u32 },
        weight: if kind == GroupKind::Select { 1 } else { 0 },
        watch_port: if ff && !g.one_in(8) { g.of_port() } else { PortNo::NONE },
        watch_group: if ff && g.one_in(8) { g.group() } else { GROUP_ANY },
        actions: {
            let any = g.one_in(20);
            applied(g, 3, 1, any).into()
        },
    }
}
