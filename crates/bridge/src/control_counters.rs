// SPDX-License-Identifier: Apache-2.0
//! Counters of events on the control thread, for `coverage/show`.

/// Events since the start. Only the control thread reads and writes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ControlCounters {
    /// OpenFlow messages that were carried out or answered with an error, without hellos.
    pub openflow_messages: u64,
    /// OFPT_PACKET_OUT messages.
    pub packet_outs: u64,
    /// Requests for statistics of queues.
    pub queue_requests: u64,
    /// Times at which all rules of a bridge were replaced by those of its fail mode.
    pub flushes: u64,
    /// Rules that were removed because of a timeout.
    pub expired_rules: u64,
    /// Ports that were added to the datapath.
    pub ports_added: u64,
    /// Ports that were removed from the datapath.
    pub ports_removed: u64,
    /// Ports of bridges that were added, removed, or found changed.
    pub port_updates: u64,
    /// Times at which the status of all ports was read because interfaces had changed.
    pub port_rereads: u64,
    /// Requests for a check of all megaflows, by cause.
    pub revalidations: Revalidations,
}

/// Requests for a check of all megaflows. Each publication counts once: for the first of its causes
/// in the order spanning tree, bond, port, configuration, rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Revalidations {
    /// A port has another state in a spanning tree of STP.
    pub stp: u64,
    /// The same for RSTP.
    pub rstp: u64,
    /// A bond has another active member.
    pub bond: u64,
    /// A port went up or down.
    pub port_toggled: u64,
    /// The configuration of bridges, ports or the switch changed.
    pub reconfigured: u64,
    /// Rules or groups changed.
    pub rules: u64,
    /// An entry of a MAC table was moved, removed or added by a command, or has expired.
    pub mac_tables: u64,
}
