// SPDX-License-Identifier: Apache-2.0
//! Connection tracking: `ct`, `nat` and the sets inside it, `ct_clear`.
//!
//! Translation does not track. It emits [`DpAction::Ct`], and the datapath fills in the fields
//! `ct_*` of its packet. The pipeline sees them only after a recirculation: `ct(table=N)` sends a
//! copy of the packet to table N, with the state of [`FrozenState::conntracked`]. The rest of the
//! list runs as for a packet that was never tracked.
//!
//! `Context::conntracked` says whether the datapath's packet has a state that the pipeline may see.
//! Like `Context::base` it is a fact of the emitted actions. It decides whether `ct_clear` emits
//! anything, and whether a pipeline that freezes for another reason keeps the fields. In a pipeline
//! that was resumed it depends on the frozen state alone. A packet from a port has no state, so the
//! decision costs no bit of the mask.

use super::context::Context;
use crate::recirc::FrozenState;
use crate::trace::{Fork, Kind, action_text, subfield_text};
use conntrack::{Commit, Helper, Manip, NatRange, Request, Selection};
use datapath::Action as DpAction;
use flow::{Field, Key, Mask};
use openflow::action::{Action, Ct, CtZone, Nat, NatAddresses, NatSide};
use std::net::IpAddr;

/// The actions inside a `ct`.
struct Nested {
    nat: Option<Nat>,
    /// Bits of `ct_mark` and `ct_label` that were set, with their values in the key.
    set: Mask,
}

impl Context<'_> {
    /// Runs `ct(...)`.
    pub(super) fn ct(&mut self, ct: &Ct) {
        let zone = match &ct.zone {
            CtZone::Number(zone) => *zone,
            CtZone::Field(part) => self.read_subfield(part) as u16, // it has 16 bits
        };
        self.commit();
        let nested = self.nested_in_ct(&ct.actions);
        let commit = match (ct.commit, ct.force) {
            (false, _) => Commit::No,
            (true, false) => Commit::Yes,
            (true, true) => Commit::Force,
        };
        let policy = match commit {
            Commit::No => 0,
            Commit::Yes | Commit::Force => {
                self.snapshot.timeout_policies.get(&zone).copied().unwrap_or_default()
            }
        };
        let mark_mask = nested.set.0.ct_mark.get();
        let label_mask = Field::CtLabel.load(&nested.set.0);
        let request = Request {
            zone,
            commit,
            mark: (mark_mask != 0).then(|| (self.key.ct_mark.get() & mark_mask, mark_mask)),
            label: (label_mask != 0)
                .then(|| (Field::CtLabel.load(&self.key) & label_mask, label_mask)),
            nat: nested.nat.as_ref().map(nat_request),
            helper: self.helper(ct.alg),
            policy,
        };
        self.emit(DpAction::Ct(Box::new(request)));
        if let Some(table) = ct.table {
            self.fork(table, zone, nested.nat);
        }
        self.key.set_connection(&Key::ZERO);
        self.conntracked = false;
        self.report(Kind::Detail, || {
            "Sets the packet to an untracked state, and clears all the conntrack fields."
                .to_string()
        });
    }

    /// Runs `ct_clear`. A packet that the datapath has not tracked needs no action.
    pub(super) fn ct_clear(&mut self) {
        self.key.set_connection(&Key::ZERO);
        if std::mem::take(&mut self.conntracked) {
            self.emit(DpAction::CtClear);
        }
    }

    /// Runs the actions inside a `ct`. Sets change `ct_mark` and `ct_label` of the key until the
    /// end of the `ct`, and only bits that were read become exact.
    fn nested_in_ct(&mut self, actions: &[Action]) -> Nested {
        let mut nested = Nested { nat: None, set: Mask::WILDCARD };
        if actions.is_empty() {
            self.report(Kind::Action, || "drop".to_string()); // as OVS reports every empty list
        }
        for action in actions {
            let names = self.names();
            self.report(Kind::Action, || action_text(action, names));
            if let Action::Nat(nat) = action {
                nested.nat = Some(*nat);
            } else if let Action::SetField { field, value, mask, .. } = action {
                let old = field.load(&self.key);
                field.store(&mut self.key, old & !mask | value & mask);
                let set = field.load(&nested.set.0);
                field.store(&mut nested.set.0, set | mask);
            } else if let Action::Move { src, dst } = action {
                if self.has_all(src.field) {
                    let value = self.read_subfield(src);
                    dst.store(&mut self.key, value);
                    dst.set_exact(&mut nested.set);
                }
                let key = &self.key;
                if let Some(t) = self.tracer.as_deref_mut() {
                    t.add(Kind::Detail, subfield_text(dst, key));
                }
            } else {
                debug_assert!(false, "the decoder refuses {action:?} in a ct");
            }
        }
        nested
    }

    /// Returns the helper of `alg`.
    fn helper(&mut self, alg: u16) -> Option<Helper> {
        match alg {
            0 => None,
            Ct::FTP => Some(Helper::Ftp),
            Ct::TFTP => Some(Helper::Tftp),
            _ => {
                self.report(Kind::Error, || format!("cannot serialize ct_helper {alg}"));
                None
            }
        }
    }

    /// Emits the recirculation of a tracked copy, which goes on in `table` with the registers, the
    /// stack and the action set of now.
    fn fork(&mut self, table: u8, zone: u16, nat: Option<Nat>) {
        if self.error.is_some() {
            return;
        }
        let (metadata, is_tunnel_set) = self.frozen_fields();
        let state = FrozenState {
            bridge: self.bridge_index,
            table,
            metadata,
            is_tunnel_set,
            stack: self.stack.clone(),
            action_set: self.action_set.clone(),
            steps: Vec::new(),
            enters: true,
            hashed: self.hashed,
            conntracked: true,
            mirrored: self.mirrored,
            packet_in: None,
        };
        let recirc = self.recirc.intern(state, &self.bridge.name);
        self.emit(DpAction::Recirc(recirc.id()));
        if let Some(t) = self.tracer.as_deref_mut() {
            let mut key = self.key;
            key.recirc_id.set(recirc.id());
            key.ct_zone.set(zone);
            key.actset_output.set(0);
            t.fork(Fork { key, nat, recirc: recirc.clone() });
        }
        self.recirc_ids.push(recirc);
        self.report(Kind::Detail, || {
            format!(
                "A clone of the packet is forked to recirculate. The forked pipeline will be \
                 resumed at table {table}."
            )
        });
    }
}

/// Returns the datapath's form of a `nat(...)`.
fn nat_request(nat: &Nat) -> conntrack::Nat {
    let manip = match nat.side {
        None => return conntrack::Nat::Existing,
        Some(NatSide::Source) => Manip::Src,
        Some(NatSide::Destination) => Manip::Dst,
    };
    let addresses = match nat.addresses {
        NatAddresses::Any => None,
        NatAddresses::V4(first, last) => Some((IpAddr::V4(first), IpAddr::V4(last))),
        NatAddresses::V6(first, last) => Some((IpAddr::V6(first), IpAddr::V6(last))),
    };
    conntrack::Nat::Range(NatRange {
        manip,
        addresses,
        // Without addresses OVS leaves the ports out, too.
        ports: nat.ports.filter(|_| addresses.is_some()),
        selection: match (nat.random, nat.hash) {
            (true, _) => Selection::Random,
            (false, true) => Selection::Hash,
            (false, false) => Selection::Default,
        },
        persistent: nat.persistent,
    })
}
