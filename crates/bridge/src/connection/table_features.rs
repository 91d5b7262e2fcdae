// SPDX-License-Identifier: Apache-2.0
//! Features of tables and groups, as OVS reports them: every table has the same features, and
//! goto_table leads to later tables.

use super::origin::VISIBLE_TABLES;
use crate::bridge::Bridge;
use flow::Field;
use openflow::message::{
    ActionFeatures, ActionKinds, GroupFeatures, InstructionFeatures, InstructionKinds,
    TableFeatures,
};
use std::collections::BTreeSet;

/// Number of entries that OVS reports for a table without a limit.
const MAX_ENTRIES: u32 = 1_000_000;
/// Largest group number (OFPG_MAX).
const MAX_GROUPS: u32 = 0xffff_ff00;
/// OFPGFC_SELECT_WEIGHT, OFPGFC_SELECT_LIVENESS, OFPGFC_CHAINING.
const GROUP_CAPABILITIES: u32 = 0x7;

fn fields(wanted: impl Fn(Field) -> bool) -> BTreeSet<Field> {
    // Fields that only OpenFlow 1.0 and NXM's whole-TCI forms name have no OXM number. The fields
    // that have one stand for them.
    Field::ALL.into_iter().filter(|f| wanted(*f)).collect()
}

/// Returns the features of table `id`.
pub(super) fn table_features(id: u8, bridge: &Bridge) -> TableFeatures {
    let last = id + 1 >= VISIBLE_TABLES;
    let mut instructions = InstructionKinds::all();
    if last {
        instructions.remove(InstructionKinds::GOTO_TABLE);
    }
    let actions = ActionFeatures { actions: action_kinds(), set_fields: fields(Field::writable) };
    let features = InstructionFeatures {
        next: (id.saturating_add(1)..VISIBLE_TABLES).collect(),
        instructions,
        write: actions.clone(),
        apply: actions,
    };
    let table = bridge.pipeline.table(id);
    let matches = fields(|_| true);
    TableFeatures {
        table_id: id,
        name: table.map(|t| t.name.clone()).unwrap_or_default(),
        metadata_match: u64::MAX,
        metadata_write: u64::MAX,
        miss_config: table.map(|t| t.miss).unwrap_or_default(),
        // OVS reports both as unsupported, though both can be switched on.
        supports_eviction: false,
        supports_vacancy_events: false,
        max_entries: table.and_then(|t| t.eviction.limit).unwrap_or(MAX_ENTRIES).min(MAX_ENTRIES),
        nonmiss: features.clone(),
        miss: features,
        masks: fields(Field::maskable),
        wildcards: matches.clone(),
        matches,
    }
}

/// Returns the standard actions of every version; the codec encodes those of its own version.
fn action_kinds() -> ActionKinds {
    ActionKinds::all()
}

/// Returns the features of groups.
pub(super) fn group_features() -> GroupFeatures {
    GroupFeatures {
        kinds: 0xf,
        capabilities: GROUP_CAPABILITIES,
        max_groups: [MAX_GROUPS; 4],
        actions: [action_kinds().bits(); 4],
    }
}
