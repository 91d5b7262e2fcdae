// SPDX-License-Identifier: Apache-2.0
//! Features of tables and groups, as OVS reports them: every table has the same features, and
//! goto_table leads to later tables.
//!
//! A controller may ask for fewer features, which changes nothing: OpenFlow lets a switch have more
//! than were asked for (1.5.1, 7.3.5.18). It may name tables. Anything else is refused.

use super::origin::{Origin, VISIBLE_TABLES};
use super::reply::Reply;
use super::{ConnectionId, Connections};
use crate::bridge::Bridge;
use crate::switch::Switch;
use clock::Millis;
use flow::Field;
use openflow::OfError;
use openflow::message::{
    ActionFeatures, ActionKinds, Body, GroupFeatures, InstructionFeatures, InstructionKinds,
    MultipartReply, TableFeatures, TableFeaturesCommand, TableFeaturesRequest,
};
use std::collections::{BTreeMap, BTreeSet};

/// Milliseconds within which the next part of a request must come.
const PART_TIMEOUT_MS: i64 = 1000;

/// A request of which parts are still to come.
#[derive(Debug)]
pub(super) struct PartialRequest {
    xid: u32,
    command: Option<TableFeaturesCommand>,
    tables: BTreeMap<u8, TableFeatures>,
    /// The last part came at this time.
    touched: Millis,
    /// The last part, for errors.
    last: Vec<u8>,
}

impl PartialRequest {
    fn new(origin: Origin<'_>) -> PartialRequest {
        let Origin { xid, now, .. } = origin;
        let (tables, last) = Default::default();
        PartialRequest { xid, command: None, tables, touched: now, last }
    }

    /// Adds a part. A table may come once.
    fn add(&mut self, part: TableFeaturesRequest, origin: Origin<'_>) -> Result<(), OfError> {
        self.touched = origin.now;
        self.last = origin.bytes.to_vec();
        self.command = self.command.or(part.command);
        for table in part.tables {
            if self.tables.insert(table.table_id, table).is_some() {
                return Err(OfError::NXTFFC_DUP_TABLE);
            }
        }
        Ok(())
    }

    /// Returns the time at which the request is given up.
    pub(super) fn deadline(&self) -> Millis {
        self.touched + PART_TIMEOUT_MS
    }
}

impl Connections {
    /// Answers a request for the features of tables, or carries out one to change them when its last
    /// part is there. A connection has one request in parts at a time.
    pub(super) fn request_table_features(
        &mut self,
        origin: Origin<'_>,
        part: TableFeaturesRequest,
        switch: &mut Switch,
    ) -> Result<Reply, OfError> {
        let session = self.sessions.get_mut(&origin.id).ok_or(OfError::OFPBRC_EPERM)?;
        let mut request = match session.partial.take() {
            Some(begun) if begun.xid == origin.xid => begun,
            Some(begun) if part.more => {
                session.partial = Some(begun);
                return Err(OfError::OFPBRC_MULTIPART_BUFFER_OVERFLOW);
            }
            other => {
                session.partial = other;
                PartialRequest::new(origin)
            }
        };
        let more = part.more;
        request.add(part, origin)?;
        if more {
            session.partial = Some(request);
            return Ok(Reply::None);
        }
        let bridge = switch.bridge_mut(origin.bridge).ok_or(OfError::OFPBRC_EPERM)?;
        if let Some(command) = request.command {
            change(bridge, command, &request.tables)?;
        }
        let tables = (0..VISIBLE_TABLES).map(|id| table_features(id, bridge)).collect();
        Ok(Reply::of(Body::MultipartReply {
            more: false,
            reply: MultipartReply::TableFeatures(tables),
        }))
    }

    /// Gives a request up whose next part does not come.
    pub(super) fn expire_partial_request(&mut self, id: ConnectionId, now: Millis) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let late = session.partial.take_if(|partial| now >= partial.deadline());
        if let Some(PartialRequest { xid, last, .. }) = late {
            self.send_error(id, xid, OfError::OFPBRC_MULTIPART_REQUEST_TIMEOUT, &last);
        }
    }
}

/// Carries out a request with tables: either all of it or, with an error, nothing.
fn change(
    bridge: &mut Bridge,
    command: TableFeaturesCommand,
    tables: &BTreeMap<u8, TableFeatures>,
) -> Result<(), OfError> {
    let names_all = (0..VISIBLE_TABLES).all(|id| tables.contains_key(&id));
    let is_possible = match command {
        // Tables cannot be left out of the pipeline.
        TableFeaturesCommand::Replace => names_all,
        TableFeaturesCommand::Modify => true,
        TableFeaturesCommand::Enable | TableFeaturesCommand::Disable => false,
    };
    let may_have = |wanted: &TableFeatures| {
        let id = wanted.table_id;
        let table = bridge.pipeline.table(id).filter(|_| id < VISIBLE_TABLES);
        table.is_some_and(|table| table.may_rename(&wanted.name))
            && includes(&table_features(id, bridge), wanted)
    };
    if !is_possible || !tables.values().all(may_have) {
        return Err(OfError::OFPTFFC_EPERM);
    }
    for (id, wanted) in tables {
        if let Some(table) = bridge.pipeline.table_mut(*id) {
            table.rename(&wanted.name);
        }
    }
    Ok(())
}

/// Returns true when a table with the features `all` has those of `wanted`. The number of entries
/// cannot be changed.
fn includes(all: &TableFeatures, wanted: &TableFeatures) -> bool {
    all.max_entries == wanted.max_entries
        && all.metadata_match & wanted.metadata_match == wanted.metadata_match
        && all.metadata_write & wanted.metadata_write == wanted.metadata_write
        && all.supports_eviction >= wanted.supports_eviction
        && all.supports_vacancy_events >= wanted.supports_vacancy_events
        && includes_instructions(&all.nonmiss, &wanted.nonmiss)
        && includes_instructions(&all.miss, &wanted.miss)
        && all.matches.is_superset(&wanted.matches)
        && all.masks.is_superset(&wanted.masks)
        && all.wildcards.is_superset(&wanted.wildcards)
}

fn includes_instructions(all: &InstructionFeatures, wanted: &InstructionFeatures) -> bool {
    let includes_actions = |all: &ActionFeatures, wanted: &ActionFeatures| {
        all.actions.contains(wanted.actions) && all.set_fields.is_superset(&wanted.set_fields)
    };
    all.instructions.contains(wanted.instructions)
        && wanted.next.iter().all(|table| all.next.contains(table))
        && includes_actions(&all.write, &wanted.write)
        && includes_actions(&all.apply, &wanted.apply)
}

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
        name: table.map(|t| t.name().to_owned()).unwrap_or_default(),
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
