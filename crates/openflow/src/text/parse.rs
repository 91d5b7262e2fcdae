// SPDX-License-Identifier: Apache-2.0
//! Text to actions.

use super::error::{TextError, err};
use super::operand::{number, read_only};
use super::token::{Token, Tokens};
use super::{
    BUNDLE_ALGORITHMS, HASH_FIELDS, MULTIPATH_ALGORITHMS, REASONS, by_name, ct, encap, learn,
};
use crate::action::{
    Action, Bundle, Controller, Multipath, ObservationId, PopSpelling, SampleDirection,
    TunnelSpelling, debug_actions_allowed, verify,
};
use crate::{PortNo, Version};
use flow::{Field, Subfield};
use std::net::Ipv4Addr;

/// Numbers of ports by name.
type Ports<'a> = &'a dyn Fn(&str) -> Option<u32>;

/// Deepest nesting of `clone(...)`, as in the codec.
const MAX_DEPTH: usize = crate::action::codec::MAX_CLONE_DEPTH;

/// A subfield whose width goes into 6 bits on the wire.
fn narrow(text: &str) -> Result<Subfield, TextError> {
    match text.parse::<Subfield>()? {
        part if part.bits > 64 => err(format!("{text}: wider than 64 bits")),
        part => Ok(part),
    }
}

/// Reads a list of actions as they stand after `actions=`: separated by commas or spaces;
/// `drop`, or nothing, is the empty list. Instructions may be among them. `ports` finds ports by
/// name.
///
/// # Errors
/// The first error, in the words of ovs-ofctl.
pub fn parse_actions(
    text: &str,
    version: Version,
    ports: Ports<'_>,
) -> Result<Vec<Action>, TextError> {
    let actions = list(text, version, ports, 0)?;
    verify::list(&actions, version, true).map_err(|p| TextError(p.to_string()))?;
    Ok(actions)
}

fn list(
    text: &str,
    version: Version,
    ports: Ports<'_>,
    depth: usize,
) -> Result<Vec<Action>, TextError> {
    if depth > MAX_DEPTH {
        return err("actions nested too deeply");
    }
    let mut out = Vec::new();
    let mut drop = false;
    for token in Tokens::new(text) {
        if token.key.eq_ignore_ascii_case("drop") {
            drop = true;
        } else {
            let key = token.key.to_ascii_lowercase();
            out.extend(parse_action(&key, token, version, ports, depth)?);
        }
        if drop && !out.is_empty() {
            return err("\"drop\" must not be accompanied by any other action or instruction");
        }
    }
    Ok(out)
}

/// A port by number, reserved name or the caller's name.
pub(super) fn port(text: &str, ports: Ports<'_>) -> Option<PortNo> {
    if let Ok(n) = number::<u32>(text, "port") {
        return match n {
            0..=0xffff => Some(PortNo::from_u16(n as u16)),
            0xffff_ff00.. => Some(PortNo(n)),
            _ => None,
        };
    }
    const RESERVED: [(&str, PortNo); 10] = [
        ("in_port", PortNo::IN_PORT),
        ("table", PortNo::TABLE),
        ("normal", PortNo::NORMAL),
        ("flood", PortNo::FLOOD),
        ("all", PortNo::ALL),
        ("controller", PortNo::CONTROLLER),
        ("local", PortNo::LOCAL),
        ("any", PortNo::NONE),
        ("none", PortNo::NONE),
        ("unset", PortNo::UNSET),
    ];
    RESERVED
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(text))
        .map(|(_, port)| *port)
        .or_else(|| ports(text.trim_matches('"')).map(PortNo))
}

fn numeric<T: TryFrom<u128>>(text: &str) -> Result<T, TextError> {
    number(text, "numeric format").map_err(|_| TextError(format!("invalid numeric format {text}")))
}

/// A number below `limit`, else "VALUE: not a valid WHAT".
fn below(text: &str, limit: u32, what: &str) -> Result<u32, TextError> {
    match number::<u32>(text, what) {
        Ok(v) if v < limit => Ok(v),
        _ => err(format!("{text}: not a valid {what}")),
    }
}

fn ethertype(text: &str) -> Result<u16, TextError> {
    number(text, "ethertype")
}

fn mac(text: &str) -> Result<[u8; 6], TextError> {
    let bad = || TextError(format!("invalid mac address {text}"));
    let mut out = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut out {
        *byte = parts
            .next()
            .filter(|p| (1..=2).contains(&p.len()) && !p.starts_with('+'))
            .and_then(|p| u8::from_str_radix(p, 16).ok())
            .ok_or_else(bad)?;
    }
    if parts.next().is_some() { Err(bad()) } else { Ok(out) }
}

fn ipv4(text: &str) -> Result<u32, TextError> {
    match text.parse::<Ipv4Addr>() {
        Ok(ip) => Ok(ip.into()),
        Err(_) => err(format!("{text}: invalid IP address")),
    }
}

/// Bytes in hex, with dots anywhere between them.
fn hex_bytes(text: &str, what: &str) -> Result<Vec<u8>, TextError> {
    let bad = || TextError(format!("bad hex digit in `{what}' argument"));
    let digits: Vec<u8> = text
        .chars()
        .filter(|c| *c != '.')
        .map(|c| c.to_digit(16).map(|d| d as u8).ok_or_else(bad))
        .collect::<Result<_, _>>()?;
    digits
        .chunks(2)
        .map(|pair| match pair {
            [a, b] => Ok(a << 4 | b),
            _ => Err(bad()),
        })
        .collect()
}

/// Splits `A->B`.
fn arrow(text: &str) -> Result<(&str, &str), TextError> {
    text.split_once("->").ok_or_else(|| TextError(format!("{text}: missing `->'")))
}

fn parse_action(
    key: &str,
    token: Token<'_>,
    version: Version,
    ports: Ports<'_>,
    depth: usize,
) -> Result<Option<Action>, TextError> {
    let value = token.value;
    let byte = |what: &str, limit: u32| below(value, limit, what).map(|v| v as u8);
    Ok(Some(match key {
        "output" => output(value, ports)?,
        "controller" => controller(value)?,
        "enqueue" => {
            let syntax = "\"enqueue\" syntax is \"enqueue:PORT:QUEUE\" or \"enqueue(PORT,QUEUE)\"";
            let Some((p, queue)) = value.split_once([':', ',']) else {
                return err(syntax);
            };
            let Some(port) = port(p, ports) else {
                return err(format!("{p}: enqueue to unknown port"));
            };
            Action::Enqueue { port, queue: numeric(queue)? }
        }
        "bundle" | "bundle_load" => bundle(value, key == "bundle_load", ports)?,
        "group" => Action::Group(numeric(value)?),
        "set_field" => set_field(value, ports)?,
        "load" | "reg_load" => load(value)?,
        "move" => {
            let Some((src, dst)) = value.split_once("->") else {
                return err(format!("{value}: missing `->' following source"));
            };
            let (src, dst): (Subfield, Subfield) = (src.parse()?, dst.parse()?);
            if src.bits != dst.bits {
                return err(format!(
                    "{value}: source field is {} bits wide but destination is {} bits wide",
                    src.bits, dst.bits
                ));
            }
            read_only(dst.field, value)?;
            Action::Move { src, dst }
        }
        "delete_field" => match Field::from_name(value) {
            Some(field) => Action::DeleteField(field),
            None => return err(format!("{value}: unknown field")),
        },
        "push" => Action::StackPush(value.parse()?),
        "pop" => {
            let dst: Subfield = value.parse()?;
            read_only(dst.field, value)?;
            Action::StackPop(dst)
        }
        "mod_vlan_vid" | "set_vlan_vid" => Action::SetVlanVid {
            vid: below(value, 0x1000, "VLAN VID")? as u16,
            push_if_missing: key == "mod_vlan_vid",
        },
        "mod_vlan_pcp" | "set_vlan_pcp" => {
            Action::SetVlanPcp { pcp: byte("VLAN PCP", 8)?, push_if_missing: key == "mod_vlan_pcp" }
        }
        "strip_vlan" => Action::PopVlan { spelled: PopSpelling::StripVlan },
        "pop_vlan" => Action::PopVlan { spelled: PopSpelling::PopVlan },
        "push_vlan" => match ethertype(value)? {
            tpid @ (0x8100 | 0x88a8) => Action::PushVlan { tpid },
            _ => return err(format!("{value}: not a valid VLAN ethertype")),
        },
        "mod_dl_src" => Action::SetEthSrc(mac(value)?),
        "mod_dl_dst" => Action::SetEthDst(mac(value)?),
        "mod_nw_src" => Action::SetIpv4Src(ipv4(value)?),
        "mod_nw_dst" => Action::SetIpv4Dst(ipv4(value)?),
        "mod_nw_tos" => match byte("TOS", 256)? {
            tos if tos & 3 == 0 => Action::SetIpDscp(tos),
            _ => return err(format!("{value}: not a valid TOS")),
        },
        "mod_nw_ecn" => Action::SetIpEcn(byte("ECN", 4)?),
        "mod_nw_ttl" => Action::SetIpTtl(byte("TTL", 256)?),
        "mod_tp_src" => Action::SetL4Src(number(value, "source port")?),
        "mod_tp_dst" => Action::SetL4Dst(number(value, "destination port")?),
        "push_mpls" => Action::PushMpls { ethertype: ethertype(value)? },
        "pop_mpls" => Action::PopMpls { ethertype: ethertype(value)? },
        "set_mpls_label" => Action::SetMplsLabel(below(value, 1 << 20, "MPLS label")?),
        "set_mpls_tc" => Action::SetMplsTc(byte("MPLS TC", 8)?),
        "set_mpls_ttl" => Action::SetMplsTtl(byte("MPLS TTL", 256)?),
        "dec_mpls_ttl" => Action::DecMplsTtl,
        "dec_ttl" => {
            let mut controllers = Vec::new();
            for token in Tokens::new(value) {
                controllers.push(number(token.key, "controller id")?);
            }
            if controllers.is_empty() {
                controllers.push(0);
            }
            Action::DecTtl { controllers }
        }
        "set_queue" => Action::SetQueue(numeric(value)?),
        "set_tunnel" | "set_tunnel64" => Action::SetTunnel {
            id: numeric(value)?,
            spelled: match key {
                "set_tunnel" => TunnelSpelling::SetTunnel,
                _ => TunnelSpelling::SetTunnel64,
            },
        },
        "pop_queue" => Action::PopQueue,
        "fin_timeout" => {
            let (mut idle, mut hard) = (0, 0);
            for token in Tokens::new(value) {
                match token.key {
                    "idle_timeout" => idle = number(token.value, "idle_timeout")?,
                    "hard_timeout" => hard = number(token.value, "hard_timeout")?,
                    key => return err(format!("invalid key '{key}' in 'fin_timeout' argument")),
                }
            }
            Action::FinTimeout { idle, hard }
        }
        "resubmit" => resubmit(value, ports)?,
        "learn" => Action::Learn(Box::new(learn::parse(value, ports)?)),
        "conjunction" => conjunction(value)?,
        "multipath" => multipath(value)?,
        "note" => {
            let mut data = hex_bytes(value, "note")?;
            // The action is a whole number of 8 bytes, its header 10 of them.
            data.resize((data.len() + 10).next_multiple_of(8) - 10, 0);
            Action::Note(data)
        }
        "exit" => Action::Exit,
        "sample" => sample(value, ports)?,
        "clone" => {
            let nested = list(value, version, ports, depth + 1)?;
            verify::list(&nested, version, false).map_err(|p| TextError(p.to_string()))?;
            Action::Clone(nested)
        }
        "ct" => {
            Action::Ct(Box::new(ct::parse(value, |inner| list(inner, version, ports, depth + 1))?))
        }
        "nat" => Action::Nat(ct::parse_nat(value)?),
        "ct_clear" => Action::CtClear,
        "encap" => encap::parse(value)?,
        "decap" => encap::parse_decap(value)?,
        "dec_nsh_ttl" => Action::DecNshTtl,
        "debug_slow" if debug_actions_allowed() => Action::DebugSlow,
        "debug_recirc" if debug_actions_allowed() => Action::DebugRecirc,
        "check_pkt_larger" => {
            let Some(target) = token.target else {
                return err(format!("{value}: missing `->'"));
            };
            let len = number(value, "packet length")?;
            let dst: Subfield = target.parse()?;
            if dst.bits != 1 {
                return err("Only 1-bit destination field is allowed");
            }
            read_only(dst.field, target)?;
            Action::CheckPktLarger { len, dst }
        }
        "meter" => Action::Meter(numeric(value)?),
        "clear_actions" => Action::ClearActions,
        "apply_actions" => return err("apply_actions is the default instruction"),
        "write_actions" => {
            let set = list(value, version, ports, depth + 1)?;
            if set.iter().any(|a| matches!(a, Action::WriteActions(_))) {
                return err("write_actions instruction not allowed here");
            }
            if let Some(bad) = set.iter().find(|a| a.action_set_slot().is_none()) {
                let name = bad.keyword();
                return err(format!("{name} action not allowed in an action set"));
            }
            if set.is_empty() {
                return Ok(None); // nothing to write
            }
            Action::WriteActions(set)
        }
        "write_metadata" => {
            let (value, mask) = value.split_once('/').unwrap_or((value, "0xffffffffffffffff"));
            Action::WriteMetadata { value: numeric(value)?, mask: numeric(mask)? }
        }
        "goto_table" => match number(value, "table") {
            Ok(table) => Action::GotoTable(table),
            Err(_) => return err(format!("unknown table \"{value}\"")),
        },
        _ => match port(token.key, ports) {
            Some(PortNo::CONTROLLER) | None => return err(format!("unknown action {}", token.key)),
            Some(port) => Action::Output { port, max_len: 0 },
        },
    }))
}

fn output(value: &str, ports: Ports<'_>) -> Result<Action, TextError> {
    if let Some(port) = port(value, ports) {
        let max_len = if port == PortNo::CONTROLLER { u16::MAX } else { 0 };
        return Ok(Action::Output { port, max_len });
    }
    if value.contains("port") && value.contains("max_len") && value.contains('=') {
        let (mut to, mut max_len) = (None, None);
        for token in Tokens::new(value) {
            match token.key {
                "port" => match port(token.value, ports) {
                    Some(p)
                        if p.0 < PortNo::MAX.0 || p == PortNo::LOCAL || p == PortNo::IN_PORT =>
                    {
                        to = Some(p);
                    }
                    Some(p) => return err(format!("output to unsupported truncate port: {p}")),
                    None => {
                        return err(format!("output to unknown truncate port: {}", token.value));
                    }
                },
                "max_len" => match numeric(token.value)? {
                    n @ 14u32.. => max_len = Some(n),
                    n => return err(format!("max_len {n} is less than the minimum value 14")),
                },
                key => return err(format!("invalid key '{key}' in output_trunc argument")),
            }
        }
        return match (to, max_len) {
            (Some(port), Some(max_len)) => Ok(Action::OutputTrunc { port, max_len }),
            _ => err("output needs both port and max_len"),
        };
    }
    match narrow(value) {
        Ok(src) => Ok(Action::OutputReg { src, max_len: u16::MAX }),
        Err(e) if value.contains('[') || Field::from_name(value).is_some() => Err(e),
        Err(_) => err(format!("{value}: output to unknown port")),
    }
}

fn controller(value: &str) -> Result<Action, TextError> {
    let mut c = Controller {
        max_len: u16::MAX,
        controller_id: 0,
        reason: 1,
        userdata: Vec::new(),
        pause: false,
        meter_id: u32::MAX,
    };
    if value.starts_with(|d: char| d.is_ascii_digit()) {
        c.max_len = number(value, "max_len")?;
    } else {
        for token in Tokens::new(value) {
            match token.key {
                "max_len" => c.max_len = number(token.value, "max_len")?,
                "id" => c.controller_id = number(token.value, "id")?,
                "reason" => match REASONS.iter().position(|r| *r == token.value) {
                    Some(n) => c.reason = n as u8,
                    None => return err(format!("unknown reason \"{}\"", token.value)),
                },
                "userdata" => c.userdata = hex_bytes(token.value, "userdata")?,
                "pause" => c.pause = true,
                "meter_id" => c.meter_id = number(token.value, "meter_id")?,
                key => return err(format!("unknown key \"{key}\" parsing controller action")),
            }
        }
    }
    let special = c.controller_id != 0 || c.reason != 1 || !c.userdata.is_empty() || c.pause;
    if special || c.meter_id != u32::MAX {
        Ok(Action::Controller(Box::new(c)))
    } else {
        Ok(Action::Output { port: PortNo::CONTROLLER, max_len: c.max_len })
    }
}

fn set_field(value: &str, ports: Ports<'_>) -> Result<Action, TextError> {
    let (text, name) = arrow(value)?;
    let Some(field) = Field::from_name(name).filter(|f| f.oxm(0).is_some()) else {
        return err(format!("{name} is not a valid OXM field name"));
    };
    read_only(field, name)?;
    if field.option().is_some() {
        let (value, mask) = field.parse_wide(text, ports)?;
        return Ok(Action::set_option(field, &value, Some(&mask)));
    }
    let (value, mask) = field.parse_value(text, ports)?;
    if !crate::nxm::value_is_valid(field, value) {
        return err(format!("{text} is not a valid value for field {name}"));
    }
    Ok(Action::set_field(field, value, mask))
}

fn load(text: &str) -> Result<Action, TextError> {
    let (value_text, dst_text) = arrow(text)?;
    let dst: Subfield = dst_text.parse()?;
    read_only(dst.field, dst_text)?;
    let value: u128 = number(value_text, "value")?;
    let ones = crate::nxm::ones(dst.bits);
    if value & !ones != 0 {
        return err(format!("{text}: value {value:#x} does not fit into {} bits", dst.bits));
    }
    Ok(Action::load(dst, value))
}

fn resubmit(value: &str, ports: Ports<'_>) -> Result<Action, TextError> {
    let mut arguments = value.split(',');
    let mut argument = || arguments.next().unwrap_or_default();
    let (port_text, table_text, tuple_text) = (argument(), argument(), argument());
    let mut to = None;
    if !port_text.is_empty() {
        match port(port_text, ports) {
            Some(PortNo::IN_PORT) => {}
            Some(p) => to = Some(p),
            None => return err(format!("{port_text}: resubmit to unknown port")),
        }
    }
    let mut table = None;
    if !table_text.is_empty() {
        match number(table_text, "table") {
            Ok(u8::MAX) => {}
            Ok(t) => table = Some(t),
            Err(_) => return err(format!("{table_text}: resubmit to unknown table")),
        }
    }
    let original_tuple = match tuple_text {
        "" => false,
        "ct" => true,
        other => return err(format!("{other}: unknown parameter")),
    };
    if to.is_none() && table.is_none() {
        return err("at least one \"in_port\" or \"table\" must be specified on resubmit");
    }
    Ok(Action::Resubmit { port: to, table, original_tuple })
}

fn conjunction(value: &str) -> Result<Action, TextError> {
    let syntax = "\"conjunction\" syntax is \"conjunction(id,i/n)\"";
    let parts = value
        .split_once(',')
        .and_then(|(id, rest)| rest.split_once('/').map(|(i, n)| (id.trim(), i.trim(), n.trim())));
    let Some((id, i, n)) = parts else {
        return err(syntax);
    };
    let (Ok(id), Ok(i), Ok(n)) = (number::<u32>(id, ""), number::<u8>(i, ""), number::<u8>(n, ""))
    else {
        return err(syntax);
    };
    if n < 2 {
        return err("conjunction must have at least 2 clauses");
    }
    if n > 64 {
        return err("conjunction must have at most 64 clauses");
    }
    let Some(clause) = i.checked_sub(1) else {
        return err("clause index must be positive");
    };
    if i > n {
        return err("clause index must be less than or equal to number of clauses");
    }
    Ok(Action::Conjunction { id, clause, clauses: n })
}

fn multipath(text: &str) -> Result<Action, TextError> {
    let parts: Vec<&str> = text.split([',', ' ']).filter(|p| !p.is_empty()).collect();
    let [fields, basis, algorithm, links, arg, dst] = parts[..] else {
        return err(format!("{text}: not enough arguments to multipath action"));
    };
    let Some(fields) = by_name(&HASH_FIELDS, fields) else {
        return err(format!("{text}: unknown fields `{fields}'"));
    };
    let Some(algorithm) = by_name(&MULTIPATH_ALGORITHMS, algorithm) else {
        return err(format!("{text}: unknown algorithm `{algorithm}'"));
    };
    let n_links: u32 = numeric(links)?;
    let Some(max_link) = n_links.checked_sub(1).and_then(|n| u16::try_from(n).ok()) else {
        return err(format!("{text}: n_links {links} is not in valid range 1 to 65536"));
    };
    let dst = narrow(dst)?;
    read_only(dst.field, text)?;
    if dst.bits < 16 && n_links > 1 << dst.bits {
        return err(format!(
            "{text}: {}-bit destination field has {} possible values, less than specified n_links {n_links}",
            dst.bits,
            1u32 << dst.bits
        ));
    }
    Ok(Action::Multipath(Box::new(Multipath {
        fields,
        basis: numeric(basis)?,
        algorithm,
        max_link,
        arg: numeric(arg)?,
        dst,
    })))
}

fn bundle(text: &str, load: bool, ports: Ports<'_>) -> Result<Action, TextError> {
    let mut parts = text.split([',', ' ']).filter(|p| !p.is_empty());
    let mut next = || {
        parts
            .next()
            .ok_or_else(|| TextError(format!("{text}: not enough arguments to bundle action")))
    };
    let (fields, basis, algorithm, member_type) = (next()?, next()?, next()?, next()?);
    let dst_text = if load { Some(next()?) } else { None };
    let Some(fields) = by_name(&HASH_FIELDS, fields) else {
        return err(format!("{text}: unknown fields `{fields}'"));
    };
    let Some(algorithm) = by_name(&BUNDLE_ALGORITHMS, algorithm) else {
        return err(format!("{text}: unknown algorithm `{algorithm}'"));
    };
    if member_type != "ofport" {
        return err(format!("{text}: unknown member_type `{member_type}'"));
    }
    let dst = match dst_text {
        Some(t) => {
            let dst = narrow(t)?;
            read_only(dst.field, t)?;
            if dst.bits < 16 {
                return err(format!("{text}: bundle_load needs at least 16 bits of destination"));
            }
            Some(dst)
        }
        None => None,
    };
    let first = next()?;
    let Some(first) = first.strip_prefix("members:").or_else(|| first.strip_prefix("slaves:"))
    else {
        return err(format!("{text}: missing member delimiter, expected `members', got `{first}'"));
    };
    let mut members = Vec::new();
    for name in std::iter::once(first).filter(|f| !f.is_empty()).chain(parts) {
        match port(name, ports) {
            Some(port) => members.push(port),
            None => return err(format!("{text}: bad port number")),
        }
    }
    if members.len() > 2048 {
        return err(format!("{text}: too many members"));
    }
    let basis = numeric(basis)?;
    Ok(Action::Bundle(Box::new(Bundle { fields, basis, algorithm, members, dst })))
}

/// Parses a number, or the field that has it.
fn observation_id(value: &str, key: &str) -> Result<ObservationId, TextError> {
    if let Ok(number) = numeric(value) {
        return Ok(ObservationId::Number(number));
    }
    let src: Subfield = value.parse()?;
    if src.bits > ObservationId::MAX_BITS {
        let (bits, most) = (src.bits, ObservationId::MAX_BITS);
        return err(format!("size of {key} field ({bits}) exceeds maximum ({most})"));
    }
    Ok(ObservationId::Field(src))
}

fn sample(value: &str, ports: Ports<'_>) -> Result<Action, TextError> {
    let (mut probability, mut collector_set) = (0, 0);
    let [mut obs_domain, mut obs_point] = [ObservationId::Number(0); 2];
    let (mut sampling_port, mut direction) = (PortNo::NONE, SampleDirection::Default);
    for Token { key, value, .. } in Tokens::new(value) {
        match key {
            "probability" => {
                probability = number(value, key)?;
                if probability == 0 {
                    return err(format!("invalid probability value \"{value}\""));
                }
            }
            "collector_set_id" => collector_set = numeric(value)?,
            "obs_domain_id" => obs_domain = observation_id(value, key)?,
            "obs_point_id" => obs_point = observation_id(value, key)?,
            "sampling_port" => match port(value, ports) {
                Some(p) => sampling_port = p,
                None => return err(format!("{value}: unknown port")),
            },
            "ingress" => direction = SampleDirection::Ingress,
            "egress" => direction = SampleDirection::Egress,
            _ => return err(format!("invalid key \"{key}\" in \"sample\" argument")),
        }
    }
    if probability == 0 {
        return err("non-zero \"probability\" must be specified on sample");
    }
    Ok(Action::Sample {
        probability,
        collector_set,
        obs_domain,
        obs_point,
        sampling_port,
        direction,
    })
}
