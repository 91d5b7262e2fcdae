// SPDX-License-Identifier: Apache-2.0
//! `learn(...)` as text and from text.

use super::error::{TextError, err};
use super::operand::{c_hex, number, read_only};
use super::token::Tokens;
use crate::action::{Learn, LearnSource, LearnSpec, LearnTarget};
use flow::{Field, Subfield};
use std::fmt::Write;

/// Appends `learn(...)`.
pub(super) fn put(l: &Learn, ports: &dyn Fn(u32) -> Option<String>, out: &mut String) {
    let _ = write!(out, "learn(table={}", l.table);
    for (name, value, default) in [
        ("idle_timeout", l.idle_timeout, 0),
        ("hard_timeout", l.hard_timeout, 0),
        ("fin_idle_timeout", l.fin_idle_timeout, 0),
        ("fin_hard_timeout", l.fin_hard_timeout, 0),
        ("priority", l.priority, DEFAULT_PRIORITY),
    ] {
        if value != default {
            let _ = write!(out, ",{name}={value}");
        }
    }
    if l.send_flow_removed {
        out.push_str(",send_flow_rem");
    }
    if l.delete_learned {
        out.push_str(",delete_learned");
    }
    if l.cookie != 0 {
        let _ = write!(out, ",cookie={:#x}", l.cookie);
    }
    if l.limit != 0 {
        let _ = write!(out, ",limit={}", l.limit);
    }
    if let Some(dst) = l.result_dst {
        let _ = write!(out, ",result_dst={dst}");
    }
    for spec in &l.specs {
        out.push(',');
        let _ = match (&spec.dst, &spec.src) {
            (LearnTarget::Match(dst), LearnSource::Value(v)) if is_whole(*dst) => {
                let value = match dst.field {
                    // With the bit that says that there is a header, if that was given.
                    Field::VlanVid => v.to_string(),
                    Field::PacketType if *v == 0 => "eth".to_owned(),
                    // As OVS has others, with the name once more.
                    Field::PacketType => format!(
                        "packet_type={}",
                        dst.field.format_value(*v, dst.field.all_ones(), ports)
                    ),
                    field => field.format_value(*v, field.all_ones(), ports),
                };
                write!(out, "{}={value}", dst.field.name())
            }
            (LearnTarget::Match(dst), LearnSource::Value(v)) => write!(out, "{dst}={}", c_hex(*v)),
            (LearnTarget::Match(dst), LearnSource::Field(src)) if dst == src => {
                write!(out, "{dst}")
            }
            (LearnTarget::Match(dst), LearnSource::Field(src)) => write!(out, "{dst}={src}"),
            (LearnTarget::Load(dst), LearnSource::Value(v)) => {
                write!(out, "load:{}->{dst}", c_hex(*v))
            }
            (LearnTarget::Load(dst), LearnSource::Field(src)) => write!(out, "load:{src}->{dst}"),
            (LearnTarget::Output, LearnSource::Field(src)) => write!(out, "output:{src}"),
            (LearnTarget::Output, LearnSource::Value(v)) => write!(out, "output:{}", c_hex(*v)),
        };
    }
    out.push(')');
}

/// OFP_DEFAULT_PRIORITY.
const DEFAULT_PRIORITY: u16 = 0x8000;

fn is_whole(part: Subfield) -> bool {
    part.start == 0 && part.bits == part.field.bits()
}

/// Reads the text between the parentheses.
pub(super) fn parse(text: &str, ports: &dyn Fn(&str) -> Option<u32>) -> Result<Learn, TextError> {
    let mut l = Learn {
        idle_timeout: 0,
        hard_timeout: 0,
        priority: DEFAULT_PRIORITY,
        cookie: 0,
        send_flow_removed: false,
        delete_learned: false,
        table: 1,
        fin_idle_timeout: 0,
        fin_hard_timeout: 0,
        limit: 0,
        result_dst: None,
        specs: Vec::new(),
    };
    for token in Tokens::new(text) {
        let value = token.value;
        match token.key {
            "table" => match number::<u8>(value, "table") {
                Ok(u8::MAX) => return err("table id 255 not valid for `learn' action"),
                Ok(table) => l.table = table,
                Err(_) => return err(format!("unknown table \"{value}\"")),
            },
            "priority" => l.priority = number(value, "priority")?,
            "idle_timeout" => l.idle_timeout = number(value, "idle_timeout")?,
            "hard_timeout" => l.hard_timeout = number(value, "hard_timeout")?,
            "fin_idle_timeout" => l.fin_idle_timeout = number(value, "fin_idle_timeout")?,
            "fin_hard_timeout" => l.fin_hard_timeout = number(value, "fin_hard_timeout")?,
            "cookie" => l.cookie = number(value, "cookie")?,
            "limit" => l.limit = number(value, "limit")?,
            "send_flow_rem" => l.send_flow_removed = true,
            "delete_learned" => l.delete_learned = true,
            "result_dst" => {
                let dst: Subfield = value.parse()?;
                read_only(dst.field, value)?;
                if dst.bits != 1 {
                    return err("result_dst in 'learn' action must be a single bit");
                }
                l.result_dst = Some(dst);
            }
            key => l.specs.push(spec(text, key, value, ports)?),
        }
    }
    Ok(l)
}

fn spec(
    whole: &str,
    key: &str,
    value: &str,
    ports: &dyn Fn(&str) -> Option<u32>,
) -> Result<LearnSpec, TextError> {
    match key {
        "load" => {
            let Some((src, dst)) = value.split_once("->") else {
                return err(format!("load: missing `->' in `{value}'"));
            };
            let dst: Subfield = dst.parse()?;
            read_only(dst.field, value)?;
            let src = match src.parse::<Subfield>() {
                Ok(src) => same_width(value, src, dst)?,
                Err(_) => LearnSource::Value(fitting(src, dst)?),
            };
            Ok(LearnSpec { bits: dst.bits, src, dst: LearnTarget::Load(dst) })
        }
        "output" => {
            let src: Subfield = value.parse()?;
            Ok(LearnSpec { bits: src.bits, src: LearnSource::Field(src), dst: LearnTarget::Output })
        }
        _ => {
            let Ok(dst) = key.parse::<Subfield>() else {
                return err(format!("{whole}: unknown keyword {key}"));
            };
            if dst.field.oxm(0).is_none() {
                let name = dst.field.name();
                return err(format!("{whole}: experimenter OXM field '{name}' not supported"));
            }
            let src = if value.is_empty() {
                LearnSource::Field(dst)
            } else if Field::from_name(key).is_some()
                && let Ok((v, mask)) = dst.field.parse_value(value, ports)
                && mask & dst.field.all_ones() == dst.field.all_ones()
            {
                LearnSource::Value(v)
            } else if let Ok(src) = value.parse::<Subfield>() {
                same_width(whole, src, dst)?
            } else {
                LearnSource::Value(fitting(value, dst)?)
            };
            Ok(LearnSpec { bits: dst.bits, src, dst: LearnTarget::Match(dst) })
        }
    }
}

fn same_width(text: &str, src: Subfield, dst: Subfield) -> Result<LearnSource, TextError> {
    if src.bits == dst.bits {
        return Ok(LearnSource::Field(src));
    }
    err(format!("{text}: bit widths of {src} ({}) and {dst} ({}) differ", src.bits, dst.bits))
}

fn fitting(text: &str, dst: Subfield) -> Result<u128, TextError> {
    let value: u128 = number(text, "value")?;
    if value & !crate::nxm::ones(dst.bits) != 0 {
        return err(format!("{text}: value {value:#x} does not fit into {} bits", dst.bits));
    }
    Ok(value)
}
