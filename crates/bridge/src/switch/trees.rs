// SPDX-License-Identifier: Apache-2.0
//! Spanning trees: what the control thread does for them.

use super::{Dirty, Switch, mark};
use crate::port::Port;
use crate::protocol::{Family, Protocol};
use crate::snapshot::BridgeIndex;
use crate::spanning_tree::SpanningTree;
use clock::Millis;
use std::sync::Arc;

impl Switch {
    /// Brings the spanning trees to the present settings and links, takes over the states of their
    /// ports, and marks the bridges that changed for publication. `is_changed`: a machine has changed.
    pub(super) fn follow_trees(&mut self, is_changed: bool, now: Millis) {
        let indexes: Vec<BridgeIndex> =
            self.bridges().filter(|b| b.has_tree()).map(|b| b.index).collect();
        for index in indexes {
            let is_dirty = self.dirty.get(&index) == Some(&Dirty::All);
            let Some(bridge) = self.bridges.get_mut(index.0).and_then(Option::as_mut) else {
                continue;
            };
            if !(is_changed || is_dirty) {
                continue;
            }
            let update = bridge.update_tree(now);
            if update.is_other {
                let tree = bridge.tree().cloned().map(|tree| tree as Arc<dyn Protocol>);
                let machines = tree.into_iter().collect();
                self.slow.protocols.register(index, Family::Bridges, machines);
            } else if update.must_run {
                self.slow.protocols.wake();
            }
            let is_silent = |p: &&Port| p.tree_state.is_some_and(|state| !state.learns());
            let silent = bridge.ports.values().filter(is_silent).map(|port| port.number);
            bridge.macs.set_silent(silent.collect());
            if update.flush {
                bridge.macs.forget(None, now);
                if let Some(table) = &bridge.multicast {
                    table.flush();
                }
            }
            for port in &update.flushed_ports {
                bridge.macs.forget(Some(*port), now);
            }
            let is_flushed = update.flush || !update.flushed_ports.is_empty();
            if is_flushed || update.is_other || update.has_states {
                if update.has_states {
                    self.changed_tree = bridge.tree().map(|tree| tree.kind()).or(self.changed_tree);
                }
                mark(&mut self.dirty, index, Dirty::All);
            }
            self.port_changes.extend(update.before.into_iter().map(|desc| (index, desc)));
        }
    }

    /// Acts as if the topology of a tree had changed (`stp/tcn`, `rstp/tcn`).
    pub fn force_topology_change(&self, tree: &SpanningTree) {
        tree.force_topology_change(self.clock.now());
        self.slow.protocols.wake();
    }
}
