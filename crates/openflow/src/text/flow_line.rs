// SPDX-License-Identifier: Apache-2.0
//! A whole flow on one line, as `ovs-ofctl add-flow` takes it.

use super::error::{TextError, err};
use super::operand::number;
use super::parse::{parse_actions, port};
use super::token::Tokens;
use crate::action::Action;
use crate::{PortNo, Version};
use flow::Match;

/// OFP_DEFAULT_PRIORITY.
const DEFAULT_PRIORITY: u16 = 0x8000;

/// The content of a flow's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowText {
    /// `table=`.
    pub table: Option<u8>,
    /// `priority=`; 32768 when not given.
    pub priority: u16,
    /// `cookie=`, the part before a `/`.
    pub cookie: Option<u64>,
    /// The part of `cookie=` after a `/`: for matching cookies.
    pub cookie_mask: Option<u64>,
    /// `idle_timeout=`, seconds.
    pub idle_timeout: u16,
    /// `hard_timeout=`, seconds.
    pub hard_timeout: u16,
    /// `importance=`.
    pub importance: u16,
    /// `out_port=`.
    pub out_port: Option<PortNo>,
    /// `out_group=`.
    pub out_group: Option<u32>,
    /// `send_flow_rem`.
    pub send_flow_removed: bool,
    /// `check_overlap`.
    pub check_overlap: bool,
    /// `reset_counts`.
    pub reset_counts: bool,
    /// `no_packet_counts`.
    pub no_packet_counts: bool,
    /// `no_byte_counts`.
    pub no_byte_counts: bool,
    /// The fields.
    pub matching: Match,
    /// The actions after `actions=`; `None` without it.
    pub actions: Option<Vec<Action>>,
}

/// Reads a flow: items in any order, `actions=` last. `ports` finds ports by name. Statistics as
/// `dump-flows` prints them are accepted and ignored.
///
/// # Errors
/// The first error, in the words of ovs-ofctl. The function checks that the match has its
/// prerequisites, but not that the actions fit the match ([`crate::action::check`] does).
pub fn parse_flow(
    text: &str,
    version: Version,
    ports: &dyn Fn(&str) -> Option<u32>,
) -> Result<FlowText, TextError> {
    let (head, actions) = split_actions(text)?;
    let mut out = FlowText {
        table: None,
        priority: DEFAULT_PRIORITY,
        cookie: None,
        cookie_mask: None,
        idle_timeout: 0,
        hard_timeout: 0,
        importance: 0,
        out_port: None,
        out_group: None,
        send_flow_removed: false,
        check_overlap: false,
        reset_counts: false,
        no_packet_counts: false,
        no_byte_counts: false,
        matching: Match::ANY,
        actions: None,
    };
    let mut fields = String::new();
    for token in Tokens::new(head) {
        let (key, value) = (token.key, token.value);
        match key {
            "table" => match number(value, "table") {
                Ok(table) => out.table = Some(table),
                Err(_) => return err(format!("unknown table \"{value}\"")),
            },
            "priority" => out.priority = number(value, key)?,
            "cookie" => {
                let (cookie, mask) =
                    value.split_once('/').map_or((value, None), |(c, m)| (c, Some(m)));
                out.cookie = match cookie {
                    "-1" => Some(u64::MAX),
                    _ => Some(number(cookie, key)?),
                };
                out.cookie_mask = match mask {
                    Some("-1") => Some(u64::MAX),
                    Some(mask) => Some(number(mask, key)?),
                    None => None,
                };
            }
            "idle_timeout" => out.idle_timeout = number(value, key)?,
            "hard_timeout" => out.hard_timeout = number(value, key)?,
            "importance" => out.importance = number(value, key)?,
            "out_port" => match port(value, ports) {
                Some(port) => out.out_port = Some(port),
                None => return err(format!("{value} is not a valid OpenFlow port")),
            },
            "out_group" => out.out_group = Some(number(value, key)?),
            "send_flow_rem" => out.send_flow_removed = true,
            "check_overlap" => out.check_overlap = true,
            "reset_counts" => out.reset_counts = true,
            "no_packet_counts" => out.no_packet_counts = true,
            "no_byte_counts" => out.no_byte_counts = true,
            "duration" | "n_packets" | "n_bytes" | "idle_age" | "hard_age" => {}
            _ => {
                if !fields.is_empty() {
                    fields.push(',');
                }
                fields.push_str(key);
                if !value.is_empty() {
                    fields.push('=');
                    fields.push_str(value);
                }
            }
        }
    }
    // A named port may be the caller's or a reserved one.
    let names = |name: &str| port(name, ports).map(|p| p.0);
    out.matching =
        flow::text::parse_match(&fields, &names).map_err(|e| TextError(e.to_string()))?;
    if let Some(field) = out.matching.unmet_prerequisite() {
        return err(format!("prerequisites not met for setting {}", field.name()));
    }
    if let Some(actions) = actions {
        out.actions = Some(parse_actions(actions, version, ports)?);
    }
    Ok(out)
}

/// Splits at `actions=` (or `action=`).
fn split_actions(text: &str) -> Result<(&str, Option<&str>), TextError> {
    let Some(at) = text.find("action") else {
        return Ok((text, None));
    };
    let (head, tail) = text.split_at(at);
    match tail.split_once('=') {
        Some((_, actions)) => Ok((head, Some(actions))),
        None => err("must specify an action"),
    }
}
