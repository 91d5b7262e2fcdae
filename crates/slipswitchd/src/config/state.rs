// SPDX-License-Identifier: Apache-2.0
//! The bridges, ports and connections that were made from the database, by the names of their rows.

use super::counts::Counts;
use super::desired::{
    DesiredBridge, DesiredController, DesiredInterface, DesiredTable, FailMode, Map, Tunables,
};
use super::device::Form;
use super::export::ExportState;
use super::in_band::InBand;
use super::lldp::AutoAttachState;
use super::system_datapath::SystemDatapath;
use super::tracking::{DesiredTracking, PolicyNumbers};
use super::tunnel_helpers::TunnelHelpers;
use crate::openflow::{Connector, Listener};
use bridge::mirror::Mirror;
use bridge::snapshot::BridgeIndex;
use clock::Millis;
use datapath::PortKind;
use datapath_bpf::Pins;
use datapath_bpf::ct_memory::BpfMemory;
use netdev::{Policing, QosRequest};
use openflow::PortNo;
use openflow::message::Versions;
use ovsdb::Uuid;
use packet::Mac;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// All objects that were made, and the settings in force.
#[derive(Default)]
pub(super) struct SwitchState {
    /// Bridges by name.
    pub bridges: BTreeMap<String, BridgeState>,
    /// Remarks that the log has already.
    pub remarks: Remarks,
    /// Settings in force.
    pub tunables: Tunables,
    /// The provider of filters, from the first `hw-offload=true` on.
    pub cards: Option<Arc<datapath_tc::CardProvider>>,
    /// The memory of the table of connections, if BPF programs can share it.
    pub connection_memory: Option<Arc<BpfMemory>>,
    /// The directory of pinned BPF objects, once BPF was allowed and the directory was locked.
    pub pins: Option<Arc<Pins>>,
    /// Settings of the connection tracker in force.
    pub tracking: DesiredTracking,
    /// Numbers of the timeout policies in force.
    pub policy_numbers: PolicyNumbers,
    /// TLS files of the command line.
    pub tls_args: Option<tls::Files>,
    /// TLS files of the database, which take precedence.
    pub tls: Option<tls::Files>,
    /// Protocols and ciphers that TLS connections may use.
    pub tls_policy: tls::Policy,
    /// File of the certificates to send along with the switch's own.
    pub tls_peer_ca: Option<PathBuf>,
    /// Tunnel devices of the kernel.
    pub tunnel_helpers: TunnelHelpers,
    /// Owner mark of the interfaces that outlive the daemon; `None` while there are none.
    pub owner: Option<netdev::Owner>,
    /// True once the first configuration was made.
    pub configured: bool,
    /// End of the time in which the flows of an earlier daemon are kept unchanged
    /// (`flow-restore-wait`).
    pub restoring: Option<Instant>,
    /// True once `flow-restore-wait` was false. The setting is ignored from then on: a person who
    /// sets it later prepares the next start, and must not lose the controllers of this run.
    pub restored: bool,
    /// The datapath of bridges of the type `system`.
    pub system_datapath: SystemDatapath,
    /// True when the last transaction took no effect.
    pub unwritten: Rc<Cell<bool>>,
    /// Reason for which the database refused the last transaction that it answered, as logged.
    pub refused: Rc<RefCell<Option<String>>>,
    /// Time between two checks of links without events; `None` where there is none.
    pub link_polls: watch::Sender<Option<Duration>>,
    /// Counters for `coverage/show`.
    pub counts: Rc<Counts>,
    /// Time at which statistics were last written.
    pub stats_written: Option<Millis>,
    /// Time since which the database has been away.
    pub without_database: Option<Instant>,
    /// True when the log has reported that the database is away.
    pub is_absence_logged: bool,
    /// Time since which the database has been there without its lock.
    pub without_lock: Option<Instant>,
    /// True when the log has reported that another daemon holds the lock.
    pub is_lock_logged: bool,
}

/// A bridge that exists.
pub(super) struct BridgeState {
    pub uuid: Uuid,
    pub index: BridgeIndex,
    pub datapath_type: String,
    pub mac: Mac,
    pub versions: Versions,
    pub fail: Fail,
    pub in_band: InBand,
    pub tables: BTreeMap<u8, DesiredTable>,
    pub mac_table: Option<(usize, u32, Vec<u16>)>,
    /// Multicast snooping, as put into force.
    pub snooping: Option<super::desired::DesiredSnooping>,
    /// Listeners at `BRIDGE.mgmt` and `BRIDGE.snoop`, by the name after the dot. A socket that could
    /// not be opened has no entry.
    pub services: BTreeMap<&'static str, Listener>,
    /// Controllers by target.
    pub controllers: BTreeMap<String, ControllerState>,
    /// Interfaces by name, including those that could not be opened.
    pub interfaces: BTreeMap<String, InterfaceState>,
    /// Port rows of bonds, by name.
    pub bonds: BTreeMap<String, Uuid>,
    /// Port rows, by name.
    pub ports: BTreeMap<String, Uuid>,
    /// Mirrors that were made, by row.
    pub mirrors: BTreeMap<Uuid, Mirror>,
    /// Exports to collectors.
    pub export: ExportState,
    /// VLANs that auto-attach gives to ports.
    pub auto_attach: AutoAttachState,
    /// Lowest MTU among the ports that do not follow the bridge's MTU, as last given to the ports
    /// that do. `None` while the bridge has only had ports that follow it.
    pub min_mtu: Option<u32>,
}

impl BridgeState {
    /// Returns the rows of interfaces whose ports are open, with the ports' numbers.
    pub fn open<'a>(
        &self,
        wanted: &'a DesiredBridge,
    ) -> impl Iterator<Item = (PortNo, &'a DesiredInterface)> {
        wanted.interfaces().filter_map(|row| Some((self.interfaces.get(&row.name)?.number?, row)))
    }
}

/// State of a bridge's fail mode.
#[derive(Debug, Default)]
pub(super) struct Fail {
    pub mode: FailMode,
    /// True when the bridge has primary controllers.
    pub has_controllers: bool,
    /// Present while the bridge forwards without a controller.
    pub open: Option<Open>,
}

/// A bridge that forwards by NORMAL until a controller admits the switch.
#[derive(Debug)]
pub(super) struct Open {
    /// Milliseconds without a controller that had admitted the switch, at the last log line.
    pub logged: u64,
    /// Time of the next probe for admission by connected controllers.
    pub next_probe: Millis,
}

/// A controller's connection.
pub(super) struct ControllerState {
    pub wanted: DesiredController,
    /// Time at which the controller was configured.
    pub since: Millis,
    pub tls: Option<tls::Files>,
    pub service: Service,
    /// Values that were last written (is connected, role, status), without the seconds.
    pub written: Option<(bool, Option<&'static str>, BTreeMap<&'static str, String>)>,
}

/// The socket through which a controller is reached.
pub(super) enum Service {
    Active(Connector),
    Passive(Listener),
    /// The socket could not be set up; the log has the reason.
    Failed,
}

/// An interface: open, or with an error.
#[derive(Debug, Default)]
pub(super) struct InterfaceState {
    pub uuid: Option<Uuid>,
    pub form: Option<Form>,
    /// All options, for dummies.
    pub options: Map,
    /// OpenFlow number while the port is open.
    pub number: Option<PortNo>,
    /// OpenFlow number when the port was last open.
    pub last: Option<u32>,
    pub error: Option<String>,
    pub policing: Policing,
    /// QoS in force: `None` before it was set for the first time, and after a failure.
    pub qos: Option<Option<QosRequest>>,
    /// Lines for the log about values of that QoS.
    pub qos_complaints: Vec<String>,
    /// Settings of the row that decide about its tiers; see
    /// [`super::desired::DesiredInterface::placing`].
    pub placing: (Map, Map),
    pub mac: Option<Mac>,
    /// The row's `mtu_request`.
    pub mtu: Option<u32>,
    /// Changes of the link's state that the device had seen before the port was opened.
    pub resets_before: u64,
    /// True when the port was given the bridge's lowest MTU, since it was opened and since it follows
    /// that MTU.
    pub has_bridge_mtu: bool,
}

impl InterfaceState {
    /// Returns true for ports that the switch made as interfaces of the host.
    pub fn is_internal(&self) -> bool {
        matches!(
            &self.form,
            Some(Form::Device {
                kind: PortKind::Internal | PortKind::DummyInternal | PortKind::InternalVport,
                ..
            })
        )
    }

    /// Returns true when the port's MTU follows the lowest MTU of the bridge's other ports. To OVS's
    /// userspace datapath a tap is an internal port, too.
    pub fn follows_mtu(&self) -> bool {
        let is_tap = matches!(&self.form, Some(Form::Device { kind: PortKind::Tap, .. }));
        (is_tap || self.is_internal()) && self.mtu.is_none()
    }
}

/// Remarks for the log. Each is logged once, for as long as it is repeated in every round.
#[derive(Debug, Default)]
pub(super) struct Remarks {
    said: BTreeSet<String>,
    now: BTreeSet<String>,
}

impl Remarks {
    /// Logs a remark that a person must act on.
    pub fn warn(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !self.said.contains(&text) && !self.now.contains(&text) {
            tracing::warn!(target: "bridge", "{text}");
        }
        self.now.insert(text);
    }

    /// Logs a remark that needs no action.
    pub fn info(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !self.said.contains(&text) && !self.now.contains(&text) {
            tracing::info!(target: "bridge", "{text}");
        }
        self.now.insert(text);
    }

    /// Ends a round: a remark that was not repeated in it may be logged again.
    pub fn end_round(&mut self) {
        self.said = std::mem::take(&mut self.now);
    }
}
