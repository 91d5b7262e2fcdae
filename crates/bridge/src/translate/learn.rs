//! `learn`: flows made from packets (ovs-actions(7), `learn`).

use super::context::Context;
use crate::effect::{Effect, LearnedFlow};
use crate::snapshot::INTERNAL_TABLE;
use crate::trace::{Kind, PortNames, actions_text};
use flow::text::{format_match, no_names};
use flow::{FieldValue, Key, Mask, Match};
use openflow::action::{Action, Learn, LearnSource, LearnTarget, SetSpelling};
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
                LearnTarget::Load(dst) => {
                    let shift = u32::from(dst.start);
                    actions.push(Action::SetField {
                        field: dst.field,
                        value: value.checked_shl(shift).unwrap_or(0),
                        mask: ones(dst.bits).checked_shl(shift).unwrap_or(0),
                        spelled: SetSpelling::Load,
                    });
                }
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
        let matching = Match::new(&key, &mask);
        let success = self.may_learn(learn, &matching);
        if !self.collect {
            self.write_result(learn, success);
            self.report(Kind::Warning, || {
                "suppressing side effects, so learn action ignored".to_string()
            });
            return;
        }
        // By number even where ports have names elsewhere, as OVS does.
        self.report(Kind::Detail, || {
            let shown = format_match(&matching, &no_names);
            let space = if shown.is_empty() { "" } else { " " };
            let list = if actions.is_empty() {
                "drop".to_string()
            } else {
                actions_text(&actions, PortNames::default())
            };
            let mut kept = String::new();
            if learn.cookie != 0 {
                kept += &format!(" cookie={:#x}", learn.cookie);
            }
            for (name, seconds) in [("idle", learn.idle_timeout), ("hard", learn.hard_timeout)] {
                if seconds != 0 {
                    kept += &format!(" {name}={seconds}");
                }
            }
            if learn.send_flow_removed {
                kept += " send_flow_rem";
            }
            format!(
                "table={}{space}{shown} priority={}{kept} actions={list}",
                learn.table, learn.priority
            )
        });
        if learn.table == INTERNAL_TABLE {
            self.report(Kind::Error, || {
                format!("LEARN action execution failed ({}).", OfError::OFPBRC_EPERM)
            });
            return;
        }
        self.write_result(learn, success);
        if !success {
            self.report(Kind::Detail, || "Limit exceeded, learn failed".to_string());
            return;
        }
        let rule = if learn.delete_learned {
            self.rule.as_ref().map(|r| (r.cookie, r.table))
        } else {
            None
        };
        let flow = Arc::new(LearnedFlow {
            table: learn.table,
            priority: learn.priority,
            matching,
            actions: Arc::from(actions),
            cookie: learn.cookie,
            idle_timeout: learn.idle_timeout,
            hard_timeout: learn.hard_timeout,
            send_flow_removed: learn.send_flow_removed,
            delete_with: rule,
            limit: learn.limit,
        });
        let bridge = self.bridge_index;
        self.effect(|| Effect::LearnFlow { bridge, flow });
    }

    fn write_result(&mut self, learn: &Learn, success: bool) {
        if let Some(dst) = &learn.result_dst {
            self.write_subfield(dst, u128::from(success));
        }
    }

    /// False when the limit is reached and the flow is not there yet.
    fn may_learn(&self, learn: &Learn, matching: &Match) -> bool {
        if learn.limit == 0 {
            return true;
        }
        let Some(table) = self.bridge.tables.get(usize::from(learn.table)) else { return false };
        let exact = classifier::MiniMatch::new(matching);
        if table.rules.find(&exact, learn.priority.into()).is_some() {
            return true;
        }
        let limit = usize::try_from(learn.limit).unwrap_or(usize::MAX);
        table.rules.iter().filter(|r| r.cookie == learn.cookie).take(limit).count() < limit
    }
}

fn ones(bits: u16) -> FieldValue {
    if bits >= 128 { FieldValue::MAX } else { (1 << bits) - 1 }
}
