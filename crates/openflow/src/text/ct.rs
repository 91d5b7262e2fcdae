// SPDX-License-Identifier: Apache-2.0
//! Texts of `ct(...)` and `nat(...)`.

use super::error::{TextError, err};
use super::operand::number;
use super::token::Tokens;
use crate::action::ct::verify;
use crate::action::{Action, Ct, CtZone, Nat, NatAddresses, NatSide};
use flow::Subfield;
use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Helpers by name, with the port that stands for each.
const HELPERS: [(&str, u16); 2] = [("ftp", Ct::FTP), ("tftp", Ct::TFTP)];

/// Reads what is in the parentheses of `ct`. `list` reads a list of actions.
pub(super) fn parse(
    text: &str,
    list: impl Fn(&str) -> Result<Vec<Action>, TextError>,
) -> Result<Ct, TextError> {
    let mut ct = Ct {
        commit: false,
        force: false,
        zone: CtZone::Number(0),
        table: None,
        alg: 0,
        actions: Vec::new(),
    };
    for token in Tokens::new(text) {
        match token.key {
            "commit" => ct.commit = true,
            "force" => ct.force = true,
            "table" => match number::<u8>(token.value, "table") {
                Ok(u8::MAX) => return err("invalid table 0xff"),
                Ok(table) => ct.table = Some(table),
                Err(_) => return err(format!("unknown table {}", token.value)),
            },
            "zone" => {
                ct.zone = match number::<u16>(token.value, "zone") {
                    Ok(zone) => CtZone::Number(zone),
                    Err(_) => CtZone::Field(zone_field(token.value)?),
                }
            }
            "alg" => match HELPERS.iter().find(|(name, _)| *name == token.value) {
                Some((_, port)) => ct.alg = *port,
                None => return err(format!("invalid conntrack helper \"{}\"", token.value)),
            },
            "nat" => ct.actions.push(Action::Nat(parse_nat(token.value)?)),
            "exec" => ct.actions.extend(list(token.value)?),
            key => return err(format!("invalid argument to \"ct\" action: `{key}'")),
        }
    }
    verify(&ct.actions).map_err(|misplaced| TextError(misplaced.to_string()))?;
    if ct.force && !ct.commit {
        return err("\"force\" flag requires \"commit\" flag.");
    }
    if !ct.has_its_commit() {
        return err(
            "CT action requires commit flag if actions other than NAT without arguments are \
             specified.",
        );
    }
    Ok(ct)
}

fn zone_field(text: &str) -> Result<Subfield, TextError> {
    match text.parse::<Subfield>()? {
        part if part.bits == 16 => Ok(part),
        part => err(format!("zone n_bits {} not within valid range [16..16]", part.bits)),
    }
}

/// Reads what is in the parentheses of `nat`.
pub(super) fn parse_nat(text: &str) -> Result<Nat, TextError> {
    let mut nat = Nat::EXISTING;
    for token in Tokens::new(text) {
        match token.key {
            "src" | "dst" => {
                if nat.side.is_some() {
                    return err("May only specify one of \"src\" or \"dst\".");
                }
                nat.side =
                    Some(if token.key == "src" { NatSide::Source } else { NatSide::Destination });
                if !token.value.is_empty() {
                    (nat.addresses, nat.ports) = range(token.value)?;
                }
            }
            "persistent" => nat.persistent = true,
            "hash" => nat.hash = true,
            "random" => nat.random = true,
            key => return err(format!("invalid key \"{key}\" in \"nat\" argument")),
        }
    }
    if nat.side.is_none() && (nat.persistent || nat.hash || nat.random) {
        return err("Flags allowed only with \"src\" or \"dst\".");
    }
    if nat.hash && nat.random {
        return err("Both \"hash\" and \"random\" are not allowed.");
    }
    Ok(nat)
}

/// Reads `ADDRESS[-ADDRESS][:PORT[-PORT]]`; IPv6 addresses with ports are in brackets. As in OVS,
/// an address of zeros is no range, and port 0 no port.
fn range(text: &str) -> Result<(NatAddresses, Option<(u16, u16)>), TextError> {
    let bad = || TextError(format!("invalid nat range \"{text}\""));
    let is_v6 = text.matches(':').count() > 1;
    let (addresses, ports) = match text.rfind("]:") {
        Some(at) => (text.get(..=at), text.get(at + 2..)),
        None if is_v6 => (Some(text), None),
        None => text.split_once(':').map_or((Some(text), None), |(a, p)| (Some(a), Some(p))),
    };
    let addresses = addresses.ok_or_else(bad)?;
    let (min, max) = addresses.split_once('-').unwrap_or((addresses, addresses));
    let bare = |text: &str| text.trim_start_matches('[').trim_end_matches(']').to_owned();
    let (min, max) = (bare(min), bare(max));
    let addresses = if is_v6 {
        let read = |text: &str| text.parse::<Ipv6Addr>().map_err(|_| bad());
        match (read(&min)?, read(&max)?) {
            (min, _) if min.is_unspecified() => NatAddresses::Any,
            (min, max) if max >= min => NatAddresses::V6(min, max),
            _ => return Err(bad()),
        }
    } else {
        let read = |text: &str| text.parse::<Ipv4Addr>().map_err(|_| bad());
        match (read(&min)?, read(&max)?) {
            (min, _) if min.is_unspecified() => NatAddresses::Any,
            (min, max) if max >= min => NatAddresses::V4(min, max),
            _ => return Err(bad()),
        }
    };
    let Some(ports) = ports else {
        return Ok((addresses, None));
    };
    let (min, max) = ports.split_once('-').unwrap_or((ports, ports));
    let read = |text: &str| number::<u16>(text, "port").map_err(|_| bad());
    match (read(min)?, read(max)?) {
        (0, _) => Ok((addresses, None)),
        (min, max) if max >= min && addresses != NatAddresses::Any => {
            Ok((addresses, Some((min, max))))
        }
        _ => Err(bad()),
    }
}

/// Writes `ct(...)`. `list` writes a list of actions.
pub(super) fn put(ct: &Ct, list: impl Fn(&[Action], &mut String), out: &mut String) {
    let mut parts: Vec<String> = Vec::new();
    for (is_set, word) in [(ct.commit, "commit"), (ct.force, "force")] {
        if is_set {
            parts.push(word.to_owned());
        }
    }
    if let Some(table) = ct.table {
        parts.push(format!("table={table}"));
    }
    match ct.zone {
        CtZone::Number(0) => {}
        CtZone::Number(zone) => parts.push(format!("zone={zone}")),
        CtZone::Field(part) => parts.push(format!("zone={part}")),
    }
    let mut rest = ct.actions.as_slice();
    // The first action, if it is a nat, stands alone.
    if let Some((Action::Nat(nat), others)) = rest.split_first() {
        parts.push(nat_text(nat));
        rest = others;
    }
    if !rest.is_empty() {
        let mut inner = String::new();
        list(rest, &mut inner);
        parts.push(format!("exec({inner})"));
    }
    match HELPERS.iter().find(|(_, port)| *port == ct.alg) {
        Some((name, _)) => parts.push(format!("alg={name}")),
        None if ct.alg == 0 => {}
        None => parts.push(format!("alg={}", ct.alg)),
    }
    let _ = write!(out, "ct({})", parts.join(",")); // a String takes all writes
}

/// `nat` or `nat(...)`.
pub(super) fn nat_text(nat: &Nat) -> String {
    let side = match nat.side {
        Some(NatSide::Source) => "src",
        Some(NatSide::Destination) => "dst",
        None => return "nat".to_owned(),
    };
    let mut out = format!("nat({side}");
    let mut address = |min: String, max: String| {
        out.push('=');
        out.push_str(&min);
        if max != min {
            out.push('-');
            out.push_str(&max);
        }
    };
    match nat.addresses {
        NatAddresses::Any => return out + ")",
        NatAddresses::V4(min, max) => address(min.to_string(), max.to_string()),
        NatAddresses::V6(min, max) => {
            // Brackets keep the last group apart from a port.
            let shown = |a: Ipv6Addr| {
                let text = flow::text::ipv6_address(a);
                if nat.ports.is_some() { format!("[{text}]") } else { text }
            };
            address(shown(min), shown(max));
        }
    }
    if let Some((min, max)) = nat.ports {
        let _ = write!(out, ":{min}");
        if max != min {
            let _ = write!(out, "-{max}");
        }
    }
    for (is_set, word) in
        [(nat.persistent, ",persistent"), (nat.hash, ",hash"), (nat.random, ",random")]
    {
        if is_set {
            out.push_str(word);
        }
    }
    out + ")"
}
