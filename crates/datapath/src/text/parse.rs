// SPDX-License-Identifier: Apache-2.0
//! Reading actions.

use crate::{Action, Masked, PortNo, SampleDirection, SampleOrigin, Set, Userdata};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// How deep `sample`, `clone` and `check_pkt_len` may nest.
pub const MAX_DEPTH: usize = 16;

/// Why a text is no list of actions.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at byte {at}: {problem}")]
pub struct ParseError {
    /// Where in the text, in bytes from its start.
    pub at: usize,
    /// Description of the error at that place.
    pub problem: String,
}

pub(super) type Result<T> = std::result::Result<T, ParseError>;

/// Reads a list of actions; "drop" and the empty text are the empty list. `port` finds a port by
/// its name; numbers need no help. Commas and blanks separate, as in OVS.
///
/// # Errors
///
/// [`ParseError`] for anything that is not an action of this crate.
pub fn parse(text: &str, port: &dyn Fn(&str) -> Option<PortNo>) -> Result<Vec<Action>> {
    let mut p = Parser { text, at: 0, port };
    let actions = p.list(0)?;
    if p.at < text.len() {
        return p.fail("unbalanced ')'");
    }
    Ok(actions)
}

/// Reasons that `slow_path(...)` may name; OVS's words, then ours.
const SLOW_PATH_REASONS: [&str; 9] =
    ["cfm", "bfd", "lacp", "stp", "lldp", "action", "match", "controller", "0"];

pub(super) struct Parser<'a> {
    text: &'a str,
    pub(super) at: usize,
    port: &'a dyn Fn(&str) -> Option<PortNo>,
}

/// `name=value` or `name=value/mask`, and where it was.
pub(super) struct Item<'a> {
    pub(super) at: usize,
    pub(super) name: &'a str,
    pub(super) value: &'a str,
    pub(super) mask: Option<&'a str>,
}

impl<'a> Parser<'a> {
    pub(super) fn fail<T>(&self, problem: impl Into<String>) -> Result<T> {
        Err(ParseError { at: self.at, problem: problem.into() })
    }

    pub(super) fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    pub(super) fn skip_separators(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start_matches([',', ' ', '\t', '\n', '\r']).len();
    }

    pub(super) fn take(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    pub(super) fn expect(&mut self, token: &str) -> Result<()> {
        if self.take(token) { Ok(()) } else { self.fail(format!("expected \"{token}\"")) }
    }

    /// Everything up to a separator or parenthesis.
    pub(super) fn word(&mut self) -> &'a str {
        let rest = self.rest();
        let end = rest.find([',', ' ', '\t', '\n', '\r', '(', ')']).unwrap_or(rest.len());
        self.at += end;
        rest.get(..end).unwrap_or_default()
    }

    fn list(&mut self, depth: usize) -> Result<Vec<Action>> {
        if depth > MAX_DEPTH {
            return self.fail(format!("actions nest deeper than {MAX_DEPTH}"));
        }
        let mut actions = Vec::new();
        let mut dropped = false;
        loop {
            self.skip_separators();
            if self.rest().is_empty() || self.rest().starts_with(')') {
                return Ok(actions);
            }
            if dropped {
                return self.fail("\"drop\" must stand alone");
            }
            let start = self.at;
            let word = self.word();
            if word == "drop" {
                dropped = true;
                if !actions.is_empty() {
                    self.at = start;
                    return self.fail("\"drop\" must stand alone");
                }
                continue;
            }
            let action = self.action(start, word, depth)?;
            actions.push(action);
        }
    }

    fn nested(&mut self, depth: usize) -> Result<Vec<Action>> {
        self.expect("(")?;
        let actions = self.list(depth + 1)?;
        self.expect(")")?;
        Ok(actions)
    }

    fn action(&mut self, start: usize, word: &'a str, depth: usize) -> Result<Action> {
        if !self.rest().starts_with('(') {
            match word {
                "pop_vlan" => return Ok(Action::PopVlan),
                "pop_eth" => return Ok(Action::PopEth),
                "ct_clear" => return Ok(Action::CtClear),
                "ct" => return Ok(Action::Ct(Box::default())),
                _ => {}
            }
            return match self.find_port(word) {
                Some(port) => Ok(Action::Output(port)),
                None => {
                    self.at = start;
                    self.fail(format!("\"{word}\" is neither an action nor a port"))
                }
            };
        }
        match word {
            "sample" => {
                self.expect("(")?;
                let item = self.item()?;
                let probability = self.probability(&item)?;
                self.skip_separators();
                self.expect("actions")?;
                let actions = self.nested(depth)?;
                self.expect(")")?;
                Ok(Action::Sample { probability, actions })
            }
            "clone" => Ok(Action::Clone(self.nested(depth)?)),
            "check_pkt_len" => {
                self.expect("(")?;
                let item = self.item()?;
                let len = self.named(&item, "size")?;
                self.skip_separators();
                self.expect("gt")?;
                let greater = self.nested(depth)?;
                self.skip_separators();
                self.expect("le")?;
                let not_greater = self.nested(depth)?;
                self.expect(")")?;
                Ok(Action::CheckPktLen { len, greater, not_greater })
            }
            "userspace" => self.userspace(),
            "hash" => self.hash(),
            "set" => {
                self.expect("(")?;
                let action = match self.take("tunnel") {
                    true => self.set_tunnel()?,
                    false => Action::Set(self.set()?),
                };
                self.expect(")")?;
                Ok(action)
            }
            "recirc" => Ok(Action::Recirc(self.one_number()?)),
            "lb_output" => Ok(Action::LbOutput(self.one_number()?)),
            "trunc" => Ok(Action::Trunc(self.one_number()?)),
            "meter" => Ok(Action::Meter(self.one_number()?)),
            "push_vlan" => self.push_vlan(),
            "push_mpls" => {
                let (lse, ethertype) = self.label_and_type("push_mpls needs eth_type")?;
                Ok(Action::PushMpls { lse, ethertype })
            }
            "add_mpls" => {
                let (lse, ethertype) = self.label_and_type("add_mpls needs eth_type")?;
                Ok(Action::AddMpls { lse, ethertype })
            }
            "ct" => self.ct(),
            "tnl_push" => self.tunnel_push(),
            "tnl_pop" => Ok(Action::TunnelPop(self.one_port()?)),
            "push_eth" => self.push_eth(),
            "push_nsh" => self.push_nsh(),
            "pop_nsh" => {
                self.expect("()")?;
                Ok(Action::PopNsh)
            }
            "pop_mpls" => {
                let mut ethertype = None;
                for item in self.items()? {
                    ethertype = Some(self.named(&item, "eth_type")?);
                }
                match ethertype {
                    Some(ethertype) => Ok(Action::PopMpls { ethertype }),
                    None => self.fail("pop_mpls needs eth_type"),
                }
            }
            _ => {
                self.at = start;
                self.fail(format!("unknown action \"{word}\""))
            }
        }
    }

    fn find_port(&self, word: &str) -> Option<PortNo> {
        number(word).and_then(|n| u32::try_from(n).ok()).map(PortNo).or_else(|| (self.port)(word))
    }

    /// `(N)`.
    fn one_number(&mut self) -> Result<u32> {
        self.expect("(")?;
        let at = self.at;
        let word = self.word();
        let n = self.convert(at, word)?;
        self.expect(")")?;
        Ok(n)
    }

    /// `(PORT)`.
    pub(super) fn one_port(&mut self) -> Result<PortNo> {
        self.expect("(")?;
        let word = self.word();
        let Some(port) = self.find_port(word) else {
            return self.fail(format!("no port \"{word}\""));
        };
        self.expect(")")?;
        Ok(port)
    }

    fn push_eth(&mut self) -> Result<Action> {
        let (mut src, mut dst) = (Masked::default(), Masked::default());
        for item in self.items()? {
            match item.name {
                "src" => src = self.mac(&item)?,
                "dst" => dst = self.mac(&item)?,
                _ => return self.unknown(&item, "push_eth"),
            }
        }
        Ok(Action::PushEth { src: src.value, dst: dst.value })
    }

    pub(super) fn convert<T: TryFrom<u64>>(&self, at: usize, word: &str) -> Result<T> {
        number(word).and_then(|n| T::try_from(n).ok()).ok_or_else(|| ParseError {
            at,
            problem: format!("\"{word}\" is not a number in range"),
        })
    }

    pub(super) fn item(&mut self) -> Result<Item<'a>> {
        self.skip_separators();
        let at = self.at;
        let word = self.word();
        let Some((name, value)) = word.split_once('=') else {
            self.at = at;
            return self.fail("expected NAME=VALUE");
        };
        let (value, mask) = match value.split_once('/') {
            Some((value, mask)) => (value, Some(mask)),
            None => (value, None),
        };
        Ok(Item { at, name, value, mask })
    }

    /// `(NAME=VALUE,...)`.
    pub(super) fn items(&mut self) -> Result<Vec<Item<'a>>> {
        self.expect("(")?;
        let mut items = Vec::new();
        loop {
            self.skip_separators();
            if self.take(")") {
                return Ok(items);
            }
            if self.rest().is_empty() {
                return self.fail("expected \")\"");
            }
            items.push(self.item()?);
        }
    }

    pub(super) fn unknown<T>(&self, item: &Item<'_>, of: &str) -> Result<T> {
        Err(ParseError { at: item.at, problem: format!("{of} has no \"{}\"", item.name) })
    }

    /// The number of an item that must be called `name` and have no mask.
    pub(super) fn named<T: TryFrom<u64>>(&self, item: &Item<'_>, name: &str) -> Result<T> {
        if item.name != name || item.mask.is_some() {
            return Err(ParseError { at: item.at, problem: format!("expected {name}=NUMBER") });
        }
        self.convert(item.at, item.value)
    }

    fn probability(&self, item: &Item<'_>) -> Result<u32> {
        let bad =
            || ParseError { at: item.at, problem: "expected sample=PERCENT%, 0 to 100".to_owned() };
        if item.name != "sample" {
            return Err(bad());
        }
        let percent: f64 =
            item.value.strip_suffix('%').and_then(|v| v.parse().ok()).ok_or_else(bad)?;
        if !(0.0..=100.0).contains(&percent) {
            return Err(bad());
        }
        // In range by the check above; `as` saturates in any case.
        Ok((f64::from(u32::MAX) * (percent / 100.0)).round() as u32)
    }

    fn hash(&mut self) -> Result<Action> {
        self.expect("(")?;
        let at = self.at;
        let symmetric = match self.word() {
            "l4" | "hash_l4" => false,
            "sym_l4" | "hash_sym_l4" => true,
            other => {
                self.at = at;
                return self.fail(format!("unknown hash \"{other}\""));
            }
        };
        let basis = self.one_number()?;
        self.expect(")")?;
        Ok(Action::Hash { symmetric, basis })
    }

    fn push_vlan(&mut self) -> Result<Action> {
        let (mut tpid, mut vid, mut pcp, mut cfi) = (0x8100u16, None, None, 1u16);
        for item in self.items()? {
            let value: u16 = self.named(&item, item.name)?;
            let limit = match item.name {
                "tpid" => u16::MAX,
                "vid" => 0xfff,
                "pcp" => 7,
                "cfi" => 1,
                _ => return self.unknown(&item, "push_vlan"),
            };
            if value > limit {
                return Err(ParseError {
                    at: item.at,
                    problem: format!("{} is at most {limit}", item.name),
                });
            }
            match item.name {
                "tpid" => tpid = value,
                "vid" => vid = Some(value),
                "pcp" => pcp = Some(value),
                _ => cfi = value,
            }
        }
        let (Some(vid), Some(pcp)) = (vid, pcp) else {
            return self.fail("push_vlan needs vid and pcp");
        };
        Ok(Action::PushVlan { tpid, tci: pcp << 13 | cfi << 12 | vid })
    }

    /// Reads the label stack entry and the Ethernet type of `push_mpls` or `add_mpls`.
    fn label_and_type(&mut self, needs: &'static str) -> Result<(u32, u16)> {
        let (mut lse, mut ethertype) = (Masked::<u32>::default(), None);
        for item in self.items()? {
            if item.name == "eth_type" {
                ethertype = Some(self.named(&item, "eth_type")?);
            } else {
                self.mpls_part(&item, &mut lse)?;
            }
        }
        match ethertype {
            Some(ethertype) => Ok((lse.value, ethertype)),
            None => self.fail(needs),
        }
    }

    fn mpls_part(&self, item: &Item<'_>, lse: &mut Masked<u32>) -> Result<()> {
        let (shift, full) = match item.name {
            "label" => (12, 0xf_ffff),
            "tc" => (9, 7),
            "bos" => (8, 1),
            "ttl" => (0, 0xff),
            _ => return self.unknown(item, "mpls"),
        };
        let part = self.bits(item, full)?;
        lse.value |= part.value << shift;
        lse.mask |= part.mask << shift;
        Ok(())
    }

    fn userspace(&mut self) -> Result<Action> {
        self.expect("(")?;
        let pid = self.item()?;
        let _: u32 = self.named(&pid, "pid")?;
        self.skip_separators();
        let at = self.at;
        let data = match self.word() {
            "slow_path" => {
                self.expect("(")?;
                let word = self.word();
                let word = if word.is_empty() { "0" } else { word };
                let Some(reason) = SLOW_PATH_REASONS.into_iter().find(|r| *r == word) else {
                    return self.fail(format!("unknown slow path reason \"{word}\""));
                };
                self.expect(")")?;
                Userdata::SlowPath { reason }
            }
            "controller" => self.controller()?,
            "flow_sample" => self.flow_sample()?,
            "sFlow" => self.sflow()?,
            "ipfix" => self.ipfix()?,
            other => {
                self.at = at;
                return self.fail(format!("unknown userspace data \"{other}\""));
            }
        };
        self.skip_separators();
        let at = self.at;
        // The kernel would add the actions of the megaflow, which the bridge has anyway.
        if self.word() != "actions" {
            self.at = at;
        }
        self.skip_separators();
        self.expect(")")?;
        Ok(Action::Userspace(data))
    }

    fn controller(&mut self) -> Result<Userdata> {
        let (mut reason, mut max_len, mut controller_id) = (0, u16::MAX, 0);
        let (mut recirc_id, mut rule_cookie, mut continuation) = (0, 0, 0u8);
        for item in self.items()? {
            match item.name {
                "reason" => reason = self.named(&item, "reason")?,
                "dont_send" => {
                    let _: u8 = self.named(&item, "dont_send")?;
                }
                "continuation" => continuation = self.named(&item, "continuation")?,
                "recirc_id" => recirc_id = self.named(&item, "recirc_id")?,
                "rule_cookie" => rule_cookie = self.named(&item, "rule_cookie")?,
                "controller_id" => controller_id = self.named(&item, "controller_id")?,
                "max_len" => max_len = self.named(&item, "max_len")?,
                _ => return self.unknown(&item, "controller"),
            }
        }
        Ok(Userdata::Controller {
            reason,
            max_len,
            controller_id,
            recirc_id,
            rule_cookie,
            continuation: continuation != 0,
        })
    }

    fn sflow(&mut self) -> Result<Userdata> {
        let (mut vid, mut pcp, mut output) = (0u16, 0u16, 0);
        for item in self.items()? {
            match item.name {
                "vid" => vid = self.named(&item, "vid")?,
                "pcp" => pcp = self.named(&item, "pcp")?,
                "output" => output = self.named(&item, "output")?,
                _ => return self.unknown(&item, "sFlow"),
            }
        }
        Ok(Userdata::Sflow { vlan_tci: vid & 0x0fff | pcp << 13, output })
    }

    fn flow_sample(&mut self) -> Result<Userdata> {
        let (mut probability, mut collector_set, mut obs_domain, mut obs_point) = (0, 0, 0, 0);
        let mut output_port = PortNo::NONE;
        let mut direction = SampleDirection::Default;
        self.expect("(")?;
        loop {
            self.skip_separators();
            if self.take(")") {
                break;
            }
            let at = self.at;
            direction = match self.word() {
                "ingress" => SampleDirection::Ingress,
                "egress" => SampleDirection::Egress,
                _ => {
                    self.at = at;
                    let item = self.item()?;
                    match item.name {
                        "probability" => probability = self.named(&item, "probability")?,
                        "collector_set_id" => {
                            collector_set = self.named(&item, "collector_set_id")?;
                        }
                        "obs_domain_id" => obs_domain = self.named(&item, "obs_domain_id")?,
                        "obs_point_id" => obs_point = self.named(&item, "obs_point_id")?,
                        "output_port" => output_port = self.port_of(&item)?,
                        _ => return self.unknown(&item, "flow_sample"),
                    }
                    continue;
                }
            };
        }
        let origin = SampleOrigin::default();
        Ok(Userdata::FlowSample {
            probability,
            collector_set,
            obs_domain,
            obs_point,
            output_port,
            direction,
            origin,
        })
    }

    fn ipfix(&mut self) -> Result<Userdata> {
        let mut output_port = PortNo::NONE;
        for item in self.items()? {
            match item.name {
                "output_port" => output_port = self.port_of(&item)?,
                _ => return self.unknown(&item, "ipfix"),
            }
        }
        Ok(Userdata::Ipfix { output_port, origin: SampleOrigin::default() })
    }

    fn port_of(&self, item: &Item<'_>) -> Result<PortNo> {
        self.find_port(item.value).ok_or_else(|| ParseError {
            at: item.at,
            problem: format!("no port \"{}\"", item.value),
        })
    }

    fn set(&mut self) -> Result<Set> {
        let at = self.at;
        let name = self.word();
        match name {
            "skb_priority" => return Ok(Set::Priority(self.one_number()?)),
            "skb_mark" => {
                self.expect("(")?;
                let at = self.at;
                let word = self.word();
                let (value, mask) =
                    word.split_once('/').map_or((word, None), |(v, m)| (v, Some(m)));
                let mark = self.bits(&Item { at, name, value, mask }, u32::MAX)?;
                self.expect(")")?;
                return Ok(Set::Mark(mark));
            }
            "eth" | "ipv4" | "ipv6" | "tcp" | "udp" | "sctp" | "icmp" | "icmpv6" | "arp" | "nd"
            | "nd_ext" | "mpls" | "nsh" => {}
            _ => {
                self.at = at;
                return self.fail(format!("cannot set \"{name}\""));
            }
        }
        let items = self.items()?;
        match name {
            "eth" => self.set_eth(&items),
            "ipv4" => self.set_ipv4(&items),
            "ipv6" => self.set_ipv6(&items),
            "icmp" | "icmpv6" => self.set_icmp(&items, name == "icmpv6"),
            "arp" => self.set_arp(&items),
            "nd" => self.set_nd(&items),
            "nd_ext" => self.set_nd_extensions(&items),
            "nsh" => self.set_nsh(&items),
            "mpls" => {
                let mut lse = Masked::default();
                for item in &items {
                    self.mpls_part(item, &mut lse)?;
                }
                Ok(Set::Mpls(lse))
            }
            _ => {
                let (mut src, mut dst) = (Masked::default(), Masked::default());
                for item in &items {
                    match item.name {
                        "src" => src = self.short(item)?,
                        "dst" => dst = self.short(item)?,
                        _ => return self.unknown(item, name),
                    }
                }
                Ok(match name {
                    "tcp" => Set::Tcp { src, dst },
                    "udp" => Set::Udp { src, dst },
                    _ => Set::Sctp { src, dst },
                })
            }
        }
    }

    fn set_eth(&self, items: &[Item<'_>]) -> Result<Set> {
        let (mut src, mut dst) = (Masked::default(), Masked::default());
        for item in items {
            match item.name {
                "src" => src = self.mac(item)?,
                "dst" => dst = self.mac(item)?,
                _ => return self.unknown(item, "eth"),
            }
        }
        Ok(Set::Ethernet { src, dst })
    }

    fn set_ipv4(&self, items: &[Item<'_>]) -> Result<Set> {
        let (mut src, mut dst) = (Masked::default(), Masked::default());
        let (mut tos, mut ttl) = (Masked::default(), Masked::default());
        for item in items {
            match item.name {
                "src" => src = self.ipv4(item)?,
                "dst" => dst = self.ipv4(item)?,
                "tos" => tos = self.byte(item)?,
                "ttl" => ttl = self.byte(item)?,
                // Fields of a key that an action cannot change; OVS accepts and ignores them.
                "proto" | "frag" => {}
                _ => return self.unknown(item, "ipv4"),
            }
        }
        Ok(Set::Ipv4 { src, dst, tos, ttl })
    }

    fn set_ipv6(&self, items: &[Item<'_>]) -> Result<Set> {
        let (mut src, mut dst) = (Masked::default(), Masked::default());
        let (mut label, mut tclass, mut hlimit) =
            (Masked::default(), Masked::default(), Masked::default());
        for item in items {
            match item.name {
                "src" => src = self.ipv6(item)?,
                "dst" => dst = self.ipv6(item)?,
                "label" => label = self.bits(item, 0xf_ffff)?,
                "tclass" => tclass = self.byte(item)?,
                "hlimit" => hlimit = self.byte(item)?,
                "proto" | "frag" => {}
                _ => return self.unknown(item, "ipv6"),
            }
        }
        Ok(Set::Ipv6 { src, dst, label, tclass, hlimit })
    }

    fn set_icmp(&self, items: &[Item<'_>], v6: bool) -> Result<Set> {
        let (mut kind, mut code) = (Masked::default(), Masked::default());
        for item in items {
            match item.name {
                "type" => kind = self.byte(item)?,
                "code" => code = self.byte(item)?,
                _ => return self.unknown(item, "icmp"),
            }
        }
        Ok(Set::Icmp { kind, code, v6 })
    }

    fn set_arp(&self, items: &[Item<'_>]) -> Result<Set> {
        let mut op = Masked::default();
        let (mut spa, mut tpa) = (Masked::default(), Masked::default());
        let (mut sha, mut tha) = (Masked::default(), Masked::default());
        for item in items {
            match item.name {
                "sip" => spa = self.ipv4(item)?,
                "tip" => tpa = self.ipv4(item)?,
                "op" => op = self.short(item)?,
                "sha" => sha = self.mac(item)?,
                "tha" => tha = self.mac(item)?,
                _ => return self.unknown(item, "arp"),
            }
        }
        Ok(Set::Arp { op, spa, tpa, sha, tha })
    }

    fn set_nd(&self, items: &[Item<'_>]) -> Result<Set> {
        let mut target = Masked::default();
        let (mut sll, mut tll) = (Masked::default(), Masked::default());
        for item in items {
            match item.name {
                "target" => target = self.ipv6(item)?,
                "sll" => sll = self.mac(item)?,
                "tll" => tll = self.mac(item)?,
                _ => return self.unknown(item, "nd"),
            }
        }
        Ok(Set::Nd { target, sll, tll })
    }

    fn set_nd_extensions(&self, items: &[Item<'_>]) -> Result<Set> {
        let (mut reserved, mut options_type) = (Masked::default(), Masked::default());
        for item in items {
            match item.name {
                "nd_reserved" => reserved = self.bits(item, u32::MAX)?,
                "nd_options_type" => options_type = self.byte(item)?,
                _ => return self.unknown(item, "nd_ext"),
            }
        }
        Ok(Set::NdExtensions { reserved, options_type })
    }

    /// A number of which `full` are the bits, with its mask; no mask is `full`.
    pub(super) fn bits(&self, item: &Item<'_>, full: u32) -> Result<Masked<u32>> {
        let value: u32 = self.convert(item.at, item.value)?;
        let mask: u32 = match item.mask {
            None => full,
            Some(mask) => self.convert(item.at, mask)?,
        };
        if value > full || mask > full {
            return Err(ParseError {
                at: item.at,
                problem: format!("{} is at most {full:#x}", item.name),
            });
        }
        Ok(Masked { value: value & mask, mask })
    }

    pub(super) fn byte(&self, item: &Item<'_>) -> Result<Masked<u8>> {
        let m = self.bits(item, 0xff)?;
        Ok(Masked { value: m.value as u8, mask: m.mask as u8 }) // at most 0xff by `bits`
    }

    fn short(&self, item: &Item<'_>) -> Result<Masked<u16>> {
        let m = self.bits(item, 0xffff)?;
        Ok(Masked { value: m.value as u16, mask: m.mask as u16 }) // at most 0xffff by `bits`
    }

    fn octets<const N: usize>(
        &self,
        item: &Item<'_>,
        what: &str,
        read: impl Fn(&str) -> Option<[u8; N]>,
    ) -> Result<Masked<[u8; N]>> {
        let bad =
            |text: &str| ParseError { at: item.at, problem: format!("\"{text}\" is not {what}") };
        let mut value = read(item.value).ok_or_else(|| bad(item.value))?;
        let mask = match item.mask {
            None => [0xff; N],
            Some(text) => read(text).ok_or_else(|| bad(text))?,
        };
        for (v, m) in value.iter_mut().zip(mask) {
            *v &= m;
        }
        Ok(Masked { value, mask })
    }

    pub(super) fn mac(&self, item: &Item<'_>) -> Result<Masked<[u8; 6]>> {
        self.octets(item, "an Ethernet address", |text| {
            let mut out = [0; 6];
            let mut parts = text.split(':');
            for byte in &mut out {
                let part = parts.next().filter(|p| matches!(p.len(), 1 | 2))?;
                *byte = u8::from_str_radix(part, 16).ok().filter(|_| !part.starts_with('+'))?;
            }
            parts.next().is_none().then_some(out)
        })
    }

    pub(super) fn ipv4(&self, item: &Item<'_>) -> Result<Masked<[u8; 4]>> {
        self.octets(item, "an IPv4 address", |text| {
            Ipv4Addr::from_str(text).ok().map(|a| a.octets())
        })
    }

    pub(super) fn ipv6(&self, item: &Item<'_>) -> Result<Masked<[u8; 16]>> {
        self.octets(item, "an IPv6 address", |text| {
            Ipv6Addr::from_str(text).ok().map(|a| a.octets())
        })
    }
}

/// A decimal or 0x number.
pub(super) fn number(text: &str) -> Option<u64> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => (hex, 16),
        None => (text, 10),
    };
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    u64::from_str_radix(digits, radix).ok()
}
