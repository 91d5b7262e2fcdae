// SPDX-License-Identifier: Apache-2.0
//! `ct(...)` and the `nat(...)` in it.

use super::parse::{ParseError, Parser, Result, number};
use super::{Hex, put};
use crate::Action;
use conntrack::{Commit, Helper, Manip, Nat, NatRange, Request, Selection};
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Appends `ct(...)`; `ct` when nothing is asked for.
pub(super) fn push(out: &mut String, request: &Request) {
    let mut parts = Vec::new();
    match request.commit {
        Commit::No => {}
        Commit::Yes => parts.push("commit".to_owned()),
        Commit::Force => parts.push("force_commit".to_owned()),
    }
    if request.zone != 0 {
        parts.push(format!("zone={}", request.zone));
    }
    if let Some((value, mask)) = request.mark {
        parts.push(format!("mark={}/{}", Hex(value.into()), Hex(mask.into())));
    }
    if let Some((value, mask)) = request.label {
        let hex = |v: u128| if v == 0 { "0".to_owned() } else { format!("{v:#x}") };
        parts.push(match mask {
            u128::MAX => format!("label={}", hex(value)),
            _ => format!("label={}/{}", hex(value), hex(mask)),
        });
    }
    if let Some(helper) = request.helper {
        parts.push(format!("helper={}", helper.name()));
    }
    if request.policy != 0 {
        parts.push(format!("timeout={}", request.policy));
    }
    if let Some(nat) = &request.nat {
        parts.push(nat_text(nat));
    }
    out.push_str("ct");
    if !parts.is_empty() {
        put!(out, "({})", parts.join(","));
    }
}

fn nat_text(nat: &Nat) -> String {
    let Nat::Range(range) = nat else {
        return "nat".to_owned();
    };
    let mut out = String::from(match range.manip {
        Manip::Src => "nat(src",
        Manip::Dst => "nat(dst",
    });
    if let Some((first, last)) = range.addresses {
        match (first, range.ports) {
            (IpAddr::V6(first), Some(_)) if IpAddr::V6(first) == last => put!(out, "=[{first}]"),
            (IpAddr::V6(first), Some(_)) => put!(out, "=[{first}]-[{last}]"),
            _ if first == last => put!(out, "={first}"),
            _ => put!(out, "={first}-{last}"),
        }
    }
    if let Some((first, last)) = range.ports {
        if range.addresses.is_none() {
            out.push('=');
        }
        put!(out, ":{first}");
        if last > first {
            put!(out, "-{last}");
        }
    }
    if range.persistent {
        out.push_str(",persistent");
    }
    match range.selection {
        Selection::Random => out.push_str(",random"),
        Selection::Hash => out.push_str(",hash"),
        Selection::Default => {}
    }
    out.push(')');
    out
}

impl Parser<'_> {
    /// `(...)` behind `ct`.
    pub(super) fn ct(&mut self) -> Result<Action> {
        let mut request = Request::default();
        self.expect("(")?;
        loop {
            self.skip_separators();
            if self.take(")") {
                return Ok(Action::Ct(Box::new(request)));
            }
            let at = self.at;
            let word = self.word();
            match word {
                "commit" => request.commit = Commit::Yes,
                "force_commit" => request.commit = Commit::Force,
                "nat" => request.nat = Some(self.nat()?),
                _ => {
                    let bad = || ParseError { at, problem: format!("ct has no \"{word}\"") };
                    let (name, value) = word.split_once('=').ok_or_else(bad)?;
                    match name {
                        "zone" => request.zone = self.convert(at, value)?,
                        "timeout" => request.policy = self.convert(at, value)?,
                        "mark" => {
                            let (value, mask) =
                                value.split_once('/').unwrap_or((value, "0xffffffff"));
                            request.mark =
                                Some((self.convert(at, value)?, self.convert(at, mask)?));
                        }
                        "label" => {
                            let (value, mask) = value
                                .split_once('/')
                                .unwrap_or((value, "0xffffffffffffffffffffffffffffffff"));
                            let both = label(value).zip(label(mask));
                            request.label = Some(both.ok_or_else(bad)?);
                        }
                        "helper" => {
                            request.helper = Some(Helper::from_name(value).ok_or_else(bad)?)
                        }
                        _ => return Err(bad()),
                    }
                }
            }
        }
    }

    /// The text after `nat`: a range in parentheses, or nothing.
    fn nat(&mut self) -> Result<Nat> {
        if !self.take("(") {
            return Ok(Nat::Existing);
        }
        let mut range = None;
        let (mut persistent, mut selection) = (false, Selection::default());
        loop {
            self.skip_separators();
            if self.take(")") {
                let all = |(manip, addresses, ports)| {
                    Nat::Range(NatRange { manip, addresses, ports, selection, persistent })
                };
                return Ok(range.map_or(Nat::Existing, all));
            }
            let at = self.at;
            let word = self.word();
            let bad = || ParseError { at, problem: format!("nat has no \"{word}\"") };
            match word {
                "persistent" => persistent = true,
                "hash" => selection = Selection::Hash,
                "random" => selection = Selection::Random,
                _ => {
                    let (name, value) = word.split_once('=').unwrap_or((word, ""));
                    let manip = match name {
                        "src" => Manip::Src,
                        "dst" => Manip::Dst,
                        _ => return Err(bad()),
                    };
                    let (addresses, ports) = ranges(value).ok_or_else(bad)?;
                    range = Some((manip, addresses, ports));
                }
            }
        }
    }
}

fn label(text: &str) -> Option<u128> {
    match text.strip_prefix("0x") {
        Some(digits) => u128::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

type Addresses = Option<(IpAddr, IpAddr)>;
type PortRange = Option<(u16, u16)>;

/// `A`, `A-B`, `A:P`, `A-B:P-Q`, with IPv6 addresses in brackets before ports, `:P-Q` or nothing.
fn ranges(text: &str) -> Option<(Addresses, PortRange)> {
    let (addresses, ports) = if text.starts_with('[') {
        let end = text.rfind(']')? + 1;
        let ports = text.get(end..)?;
        (text.get(..end)?, if ports.is_empty() { None } else { Some(ports.strip_prefix(':')?) })
    } else if text.matches(':').count() == 1 {
        let (addresses, ports) = text.split_once(':')?;
        (addresses, Some(ports))
    } else {
        (text, None)
    };
    let address = |text: &str| -> Option<IpAddr> {
        let text = text.trim_start_matches('[').trim_end_matches(']');
        text.parse::<Ipv4Addr>()
            .map(IpAddr::V4)
            .or_else(|_| text.parse::<Ipv6Addr>().map(IpAddr::V6))
            .ok()
    };
    let addresses = match addresses.split_once('-') {
        _ if addresses.is_empty() => None,
        Some((first, last)) => Some((address(first)?, address(last)?)),
        None => address(addresses).map(|only| Some((only, only)))?,
    };
    let port = |text: &str| number(text).and_then(|n| u16::try_from(n).ok());
    let ports = match ports.map(|ports| ports.split_once('-').unwrap_or((ports, ports))) {
        Some((first, last)) => Some((port(first)?, port(last)?)),
        None => None,
    };
    let is_one_family = addresses.is_none_or(|(a, b)| a.is_ipv4() == b.is_ipv4() && a <= b);
    let has_order = ports.is_none_or(|(a, b)| a <= b);
    (is_one_family && has_order).then_some((addresses, ports))
}
