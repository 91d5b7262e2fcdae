// SPDX-License-Identifier: Apache-2.0
//! What was made of the database: bridges, ports, connections, by the names of their rows.

use super::counts::Counts;
use super::desired::{DesiredController, DesiredTable, FailMode, Map, Tunables};
use super::device::Form;
use crate::openflow::{Connector, Listener};
use bridge::snapshot::BridgeIndex;
use clock::Millis;
use datapath::PortKind;
use openflow::PortNo;
use openflow::message::Versions;
use ovsdb::Uuid;
use packet::Mac;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Instant;

/// Everything that was made.
#[derive(Default)]
pub(super) struct State {
    /// Bridges by name.
    pub bridges: BTreeMap<String, BridgeState>,
    /// What the log was told.
    pub remarks: Remarks,
    /// Settings in force.
    pub tunables: Tunables,
    /// TLS files of the command line, then of the database.
    pub tls_args: Option<tls::Files>,
    /// See `tls_args`.
    pub tls: Option<tls::Files>,
    /// What connections by TLS may use, and the certificates to show with ours.
    pub tls_policy: tls::Policy,
    /// See `tls_policy`.
    pub tls_peer_ca: Option<PathBuf>,
    /// Whose the interfaces are that outlive the daemon; known when there may be some.
    pub owner: Option<netdev::Owner>,
    /// The first configuration was made.
    pub configured: bool,
    /// Until when what an earlier daemon left is kept as it is (`flow-restore-wait`).
    pub restoring: Option<Instant>,
    /// `flow-restore-wait` was false once. It is not read any more then: whoever sets it later
    /// prepares the next start, and must not lose the controllers of this one.
    pub restored: bool,
    /// The last transaction did not take effect.
    pub unwritten: Rc<Cell<bool>>,
    /// Why the database refused the last transaction that it answered; the log says so.
    pub refused: Rc<RefCell<Option<String>>>,
    /// Counters for `coverage/show`.
    pub counts: Rc<Counts>,
    /// When statistics were last written.
    pub stats_written: Option<Millis>,
    /// Since when the database is not there; and whether the log says so.
    pub without_database: Option<Instant>,
    /// See `without_database`.
    pub is_absence_logged: bool,
    /// Since when the database is there, but not its lock; and whether the log says so.
    pub without_lock: Option<Instant>,
    /// See `without_lock`.
    pub is_lock_logged: bool,
}

/// A bridge that is there.
pub(super) struct BridgeState {
    pub uuid: Uuid,
    pub index: BridgeIndex,
    pub datapath_type: String,
    pub mac: Mac,
    pub versions: Versions,
    pub fail: Fail,
    pub tables: BTreeMap<u8, DesiredTable>,
    pub mac_table: Option<(usize, u32, Vec<u16>)>,
    /// `BRIDGE.mgmt` and `BRIDGE.snoop`, by what is behind the dot; one that could not be opened is
    /// not there.
    pub services: BTreeMap<&'static str, Listener>,
    /// Controllers by target.
    pub controllers: BTreeMap<String, ControllerState>,
    /// Interfaces by name, those that could not be opened too.
    pub interfaces: BTreeMap<String, InterfaceState>,
    /// Port rows of bonds, by name.
    pub bonds: BTreeMap<String, Uuid>,
    /// Lowest MTU among the ports that do not follow it, as last given to those that do; `None`
    /// while the bridge has only had ports that follow.
    pub min_mtu: Option<u32>,
}

/// A bridge without its controllers.
#[derive(Debug, Default)]
pub(super) struct Fail {
    pub mode: FailMode,
    /// There are primary controllers.
    pub has_controllers: bool,
    /// While the bridge forwards by itself.
    pub open: Option<Open>,
}

/// A bridge that forwards by itself until a controller admits the switch.
#[derive(Debug)]
pub(super) struct Open {
    /// Milliseconds without an admitted controller when the log last said so.
    pub logged: u64,
    /// When connected controllers get the next probe for admission.
    pub next_probe: Millis,
}

/// A controller's connection.
pub(super) struct ControllerState {
    pub wanted: DesiredController,
    /// When the controller was configured.
    pub since: Millis,
    pub tls: Option<tls::Files>,
    pub service: Service,
    /// What was last written, seconds left out.
    pub written: Option<(bool, Option<&'static str>, BTreeMap<&'static str, String>)>,
}

/// How a controller is reached.
pub(super) enum Service {
    Active(Connector),
    Passive(Listener),
    /// It could not be set up; why is in the log.
    Failed,
}

/// An interface: open, or with an error.
#[derive(Debug, Default)]
pub(super) struct InterfaceState {
    pub uuid: Option<Uuid>,
    pub form: Option<Form>,
    /// All options, for dummies.
    pub options: Map,
    /// OpenFlow number while it is open.
    pub number: Option<PortNo>,
    /// Number when it was last open.
    pub last: Option<u32>,
    pub error: Option<String>,
    pub policing: (u32, u32),
    /// What of the row decides about its tiers; see [`DesiredInterface::placing`].
    pub placing: [Option<String>; 3],
    pub mac: Option<Mac>,
    /// The row's `mtu_request`.
    pub mtu: Option<u32>,
    /// Changes of the link's state that the device had seen before the port was opened.
    pub resets_before: u64,
    /// The port was given the bridge's lowest MTU since it was opened and since it follows that.
    pub has_bridge_mtu: bool,
}

impl InterfaceState {
    /// True for ports that the switch made as interfaces of the host.
    pub fn is_internal(&self) -> bool {
        matches!(
            &self.form,
            Some(Form::Device { kind: PortKind::Internal | PortKind::DummyInternal, .. })
        )
    }

    /// True when the port's MTU is the lowest one of the bridge's other ports: taps are internal
    /// ports to OVS's userspace datapath, too.
    pub fn follows_mtu(&self) -> bool {
        let is_tap = matches!(&self.form, Some(Form::Device { kind: PortKind::Tap, .. }));
        (is_tap || self.is_internal()) && self.mtu.is_none()
    }
}

/// Says each thing once, for as long as it holds.
#[derive(Debug, Default)]
pub(super) struct Remarks {
    said: BTreeSet<String>,
    now: BTreeSet<String>,
}

impl Remarks {
    /// Something that needs a person.
    pub fn warn(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !self.said.contains(&text) && !self.now.contains(&text) {
            tracing::warn!(target: "bridge", "{text}");
        }
        self.now.insert(text);
    }

    /// Something to know.
    pub fn info(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !self.said.contains(&text) && !self.now.contains(&text) {
            tracing::info!(target: "bridge", "{text}");
        }
        self.now.insert(text);
    }

    /// Ends a round: what was not said in it may be said anew.
    pub fn end_round(&mut self) {
        self.said = std::mem::take(&mut self.now);
    }
}
