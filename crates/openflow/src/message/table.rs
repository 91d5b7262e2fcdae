// SPDX-License-Identifier: Apache-2.0
//! Flow tables: features, configuration, statistics.

use flow::Field;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Handling of a packet that no flow of a table matches (OFPTC11_*, up to 1.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TableMiss {
    /// As the version has it: 1.3+ drops, earlier versions ask the controller.
    #[default]
    Default,
    /// To the controller.
    Controller,
    /// To the next table.
    Continue,
    /// Drop the packet.
    Drop,
}

bitflags::bitflags! {
    /// How flows are picked for eviction (OFPTMPEF14_*).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct EvictionFlags: u32 {
        /// An order of the switch's own.
        const OTHER = 1 << 0;
        /// Lower importance first.
        const IMPORTANCE = 1 << 1;
        /// Shorter rest of life first.
        const LIFETIME = 1 << 2;
    }
}

/// Thresholds of vacancy events, in percent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vacancy {
    /// Report when the vacancy falls below this value, in percent.
    pub down: u8,
    /// Report when the vacancy rises above this value, in percent.
    pub up: u8,
    /// Vacancy now, in percent; 0 in requests.
    pub current: u8,
}

/// OFPT_TABLE_MOD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableMod {
    /// The table; 0xff for all.
    pub table_id: u8,
    /// Up to 1.2. [`TableMiss::Default`] with 1.3+, which leaves it alone.
    pub miss: TableMiss,
    /// 1.4+: eviction on or off. `None` (earlier versions) leaves it alone.
    pub eviction: Option<bool>,
    /// 1.4+: how; `None` leaves it alone.
    pub eviction_flags: Option<EvictionFlags>,
    /// 1.4+: vacancy events on or off. `None` (earlier versions) leaves it alone.
    pub vacancy_events: Option<bool>,
    /// 1.4+: thresholds; `None` leaves them alone.
    pub vacancy: Option<Vacancy>,
}

/// Description of a table (OFPMP_TABLE_DESC, OFPT_TABLE_STATUS).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableDesc {
    /// The table.
    pub table_id: u8,
    /// Eviction is on.
    pub eviction: bool,
    /// How the table chooses flows to evict (OFPTMPEF14_*).
    pub eviction_flags: EvictionFlags,
    /// Thresholds, when vacancy events are on.
    pub vacancy: Option<Vacancy>,
}

/// Why OFPT_TABLE_STATUS was sent (OFPTR_*).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum TableStatusReason {
    /// Vacancy fell below the threshold.
    VacancyDown = 3,
    /// Vacancy rose above it.
    VacancyUp = 4,
}

/// OFPT_TABLE_STATUS (1.4+).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableStatus {
    /// The event that caused the message.
    pub reason: TableStatusReason,
    /// The table.
    pub table: TableDesc,
}

/// Statistics of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct TableStats {
    /// The table.
    pub table_id: u8,
    /// Flows in it.
    pub active_count: u32,
    /// Packets looked up, `u64::MAX` when unknown.
    pub lookup_count: u64,
    /// Packets that matched, `u64::MAX` when unknown.
    pub matched_count: u64,
    /// Capabilities of the table: part of the reply up to OpenFlow 1.2, where they must be present;
    /// not sent in 1.3+.
    pub features: Option<Arc<TableFeatures>>,
}

bitflags::bitflags! {
    /// Instructions, bit N for the instruction with number N (OFPIT_*).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct InstructionKinds: u32 {
        /// The goto_table instruction.
        const GOTO_TABLE = 1 << 1;
        /// The write_metadata instruction.
        const WRITE_METADATA = 1 << 2;
        /// The write_actions instruction.
        const WRITE_ACTIONS = 1 << 3;
        /// The apply_actions instruction.
        const APPLY_ACTIONS = 1 << 4;
        /// The clear_actions instruction.
        const CLEAR_ACTIONS = 1 << 5;
        /// meter (1.3+; in 1.5 an action).
        const METER = 1 << 6;
    }

    /// Standard actions of OpenFlow 1.1+, bit N for the action with number N (OFPAT_*).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct ActionKinds: u32 {
        /// The output action.
        const OUTPUT = 1 << 0;
        /// set_vlan_vid (1.1).
        const SET_VLAN_VID = 1 << 1;
        /// set_vlan_pcp (1.1).
        const SET_VLAN_PCP = 1 << 2;
        /// mod_dl_src (1.1).
        const SET_DL_SRC = 1 << 3;
        /// mod_dl_dst (1.1).
        const SET_DL_DST = 1 << 4;
        /// mod_nw_src (1.1).
        const SET_NW_SRC = 1 << 5;
        /// mod_nw_dst (1.1).
        const SET_NW_DST = 1 << 6;
        /// mod_nw_tos (1.1).
        const SET_NW_TOS = 1 << 7;
        /// mod_nw_ecn (1.1).
        const SET_NW_ECN = 1 << 8;
        /// mod_tp_src (1.1).
        const SET_TP_SRC = 1 << 9;
        /// mod_tp_dst (1.1).
        const SET_TP_DST = 1 << 10;
        /// set_mpls_label (1.1).
        const SET_MPLS_LABEL = 1 << 13;
        /// set_mpls_tc (1.1).
        const SET_MPLS_TC = 1 << 14;
        /// The set_mpls_ttl action.
        const SET_MPLS_TTL = 1 << 15;
        /// The dec_mpls_ttl action.
        const DEC_MPLS_TTL = 1 << 16;
        /// The push_vlan action.
        const PUSH_VLAN = 1 << 17;
        /// The pop_vlan action.
        const POP_VLAN = 1 << 18;
        /// The push_mpls action.
        const PUSH_MPLS = 1 << 19;
        /// The pop_mpls action.
        const POP_MPLS = 1 << 20;
        /// The set_queue action.
        const SET_QUEUE = 1 << 21;
        /// The group action.
        const GROUP = 1 << 22;
        /// The mod_nw_ttl action, which sets the TTL.
        const SET_NW_TTL = 1 << 23;
        /// The dec_ttl action.
        const DEC_NW_TTL = 1 << 24;
        /// set_field (1.2+).
        const SET_FIELD = 1 << 25;
        /// meter (1.5).
        const METER = 1 << 29;
    }
}

/// The possible contents of an action list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ActionFeatures {
    /// The kinds of action that the list can hold.
    pub actions: ActionKinds,
    /// Fields of set_field.
    pub set_fields: BTreeSet<Field>,
}

/// Capabilities of the flows of a table, or of its table-miss flow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstructionFeatures {
    /// Tables that goto_table can name.
    pub next: TableSet,
    /// The kinds of instruction that a flow can have.
    pub instructions: InstructionKinds,
    /// In write_actions.
    pub write: ActionFeatures,
    /// In apply_actions.
    pub apply: ActionFeatures,
}

/// A set of tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableSet([u64; 4]);

impl TableSet {
    /// Adds a table.
    pub fn insert(&mut self, table: u8) {
        self.0[usize::from(table >> 6)] |= 1 << (table & 63);
    }

    /// True when `table` is in the set.
    pub fn contains(&self, table: u8) -> bool {
        self.0[usize::from(table >> 6)] & 1 << (table & 63) != 0
    }

    /// The tables, lowest first.
    pub fn iter(&self) -> impl Iterator<Item = u8> + '_ {
        (0..=255).filter(|t| self.contains(*t))
    }

    /// True when there is none.
    pub fn is_empty(&self) -> bool {
        self.0 == [0; 4]
    }
}

impl FromIterator<u8> for TableSet {
    fn from_iter<I: IntoIterator<Item = u8>>(tables: I) -> TableSet {
        let mut set = TableSet::default();
        tables.into_iter().for_each(|t| set.insert(t));
        set
    }
}

/// A request for the features of all tables, or a part of one to change them. It is the only request
/// that may have several parts (OpenFlow 1.5.1, 7.3.5.18).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableFeaturesRequest {
    /// Tables and the features that they are to have. A request without any only asks.
    pub tables: Vec<TableFeatures>,
    /// The command of the first table, which counts for all. `None` without tables.
    pub command: Option<TableFeaturesCommand>,
    /// Parts with the same transaction id follow.
    pub more: bool,
}

/// OFPTFC_*. Requests of 1.3 and 1.4 replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableFeaturesCommand {
    /// The request names all tables.
    Replace,
    /// Tables that are not named stay as they are.
    Modify,
    /// The tables become part of the pipeline.
    Enable,
    /// The tables leave the pipeline.
    Disable,
}

/// Features of a table (OFPMP_TABLE_FEATURES, and table statistics up to 1.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableFeatures {
    /// The table.
    pub table_id: u8,
    /// Its name, up to 31 bytes.
    pub name: String,
    /// Metadata bits that it can match.
    pub metadata_match: u64,
    /// Metadata bits that write_metadata can write.
    pub metadata_write: u64,
    /// Handling of packets that no flow matches (up to 1.2).
    pub miss_config: TableMiss,
    /// 1.4+: it can evict.
    pub supports_eviction: bool,
    /// 1.4+: it can send vacancy events.
    pub supports_vacancy_events: bool,
    /// Most flows.
    pub max_entries: u32,
    /// Capabilities of ordinary flows.
    pub nonmiss: InstructionFeatures,
    /// Capabilities of the table-miss flow.
    pub miss: InstructionFeatures,
    /// Fields that can be matched.
    pub matches: BTreeSet<Field>,
    /// Those of `matches` that can be matched in part.
    pub masks: BTreeSet<Field>,
    /// Those of `matches` that can be left out.
    pub wildcards: BTreeSet<Field>,
}
