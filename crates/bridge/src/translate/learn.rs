// SPDX-License-Identifier: Apache-2.0
//! `learn`: flows made from packets (ovs-actions(7), `learn`).

use super::context::Context;
use crate::effect::Effect;
use crate::learned_flow::LearnedFlow;
use crate::trace::{Kind, PortNames, actions_text};
use flow::text::{format_match, no_names};
use flow::{Field, FieldValue, Key, Mask, Match};
use openflow::action::{Action, Learn, LearnSource, LearnTarget};
use openflow::{OfError, PortNo};
use std::sync::Arc;

impl Context<'_> {
    pub(super) fn learn(&mut self, learn: &Learn) {
        let mut key = Key::ZERO;
        let mut mask = Mask::WILDCARD;
        let mut actions = Vec::new();
        if learn.fin_idle_timeout != 0 || learn.fin_hard_timeout != 0 {
            actions.push(Action::FinTimeout {
                idle: learn.fin_idle_timeout,
                hard: learn.fin_hard_timeout,
            });
        }
        for spec in &learn.specs {
            let value = match &spec.src {
                LearnSource::Field(src) => self.read_subfield(src),
                LearnSource::Value(v) => *v,
            } & ones(spec.bits);
            match &spec.dst {
                LearnTarget::Match(dst) => {
                    dst.store(&mut key, value);
                    dst.set_exact(&mut mask);
                }
                LearnTarget::Load(dst) => actions.push(Action::load(*dst, value)),
                LearnTarget::Output => {
                    let port = match u16::try_from(value) {
                        Ok(n) if spec.bits <= 16 => PortNo::from_u16(n),
                        _ => PortNo(value as u32),
                    };
                    let sane =
                        port.is_physical() || port == PortNo::FLOOD || port == PortNo::IN_PORT;
                    if sane {
                        actions.push(Action::Output { port, max_len: 0 });
                    }
                }
            }
        }
        let mut matching = Match::new(&key, &mask);
        let port = matching.value(Field::InPortOxm) as u32;
        if matching.is_exact(Field::InPortOxm) && flow::field::port_to_of10(port).is_none() {
            matching.set(Field::InPortOxm, PortNo::NONE.0.into()); // as in OVS
        }
        let rule = self.rule.as_ref().filter(|_| learn.delete_learned);
        let flow = LearnedFlow {
            table: learn.table,
            priority: learn.priority,
            matching,
            actions: Arc::from(actions),
            cookie: learn.cookie,
            idle_timeout: learn.idle_timeout,
            hard_timeout: learn.hard_timeout,
            send_flow_removed: learn.send_flow_removed,
            delete_with: rule.map(|r| (r.cookie, r.table)),
            limit: learn.limit,
        };
        if !self.collect {
            self.report(Kind::Warning, || {
                "suppressing side effects, so learn action ignored".to_string()
            });
            return;
        }
        self.report(Kind::Detail, || shown(&flow));
        if flow.is_reserved() {
            self.report(Kind::Error, || {
                format!("LEARN action execution failed ({}).", OfError::OFPBRC_EPERM)
            });
            return;
        }
        let success = self.may_learn(&flow);
        if let Some(dst) = &learn.result_dst {
            self.write_subfield(dst, u128::from(success));
        }
        if !success {
            self.report(Kind::Detail, || "Limit exceeded, learn failed".to_string());
            return;
        }
        let bridge = self.bridge_index;
        self.effect(|| Effect::LearnFlow { bridge, flow: Arc::new(flow) });
    }

    /// Returns false when the limit is reached and the bridge has no rule equal to the flow.
    fn may_learn(&self, flow: &LearnedFlow) -> bool {
        if flow.limit == 0 {
            return true;
        }
        let Some(table) = self.bridge.tables.get(usize::from(flow.table)) else { return false };
        if flow.is_in(self.bridge) {
            return true;
        }
        let limit = usize::try_from(flow.limit).unwrap_or(usize::MAX);
        table.rules.iter().filter(|r| r.cookie == flow.cookie).take(limit).count() < limit
    }
}

/// Returns the text of a trace: ports by number even where they have names elsewhere, as in OVS.
fn shown(flow: &LearnedFlow) -> String {
    let matching = format_match(&flow.matching, &no_names);
    let space = if matching.is_empty() { "" } else { " " };
    let list = match flow.actions.is_empty() {
        true => "drop".to_string(),
        false => actions_text(&flow.actions, PortNames::default()),
    };
    let mut kept = String::new();
    if flow.cookie != 0 {
        kept += &format!(" cookie={:#x}", flow.cookie);
    }
    for (name, seconds) in [("idle", flow.idle_timeout), ("hard", flow.hard_timeout)] {
        if seconds != 0 {
            kept += &format!(" {name}={seconds}");
        }
    }
    if flow.send_flow_removed {
        kept += " send_flow_rem";
    }
    format!("table={}{space}{matching} priority={}{kept} actions={list}", flow.table, flow.priority)
}

fn ones(bits: u16) -> FieldValue {
    if bits >= 128 { FieldValue::MAX } else { (1 << bits) - 1 }
}
