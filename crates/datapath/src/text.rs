// SPDX-License-Identifier: Apache-2.0
//! Actions as text, in the words of `ovs-appctl dpctl/dump-flows` and `ofproto/trace`.
//!
//! [`format()`] writes the same text as OVS for the same actions (order, separators and number
//! bases were read off its output); [`parse()`] reads the same language, as `dpctl/add-flow` does.
//! Parsing is total: any text gives actions or a [`ParseError`] with a place and a reason. The text
//! from [`format()`] parses back to equal actions, with five exceptions: sampling probabilities
//! (one decimal in the text), leading zeros of NSH's metadata, reasons of drops (the text is "drop"), masked MPLS entries whose
//! mask is not a whole number of fields, and of tunnel headers the range of UDP source ports and the
//! rule for flow labels.

mod ct;
mod nsh;
mod parse;
#[cfg(test)]
mod tests;
mod tunnel;

pub use parse::{MAX_DEPTH, ParseError, parse};

use crate::{Action, Masked, PortNo, SampleDirection, Set, Userdata};
use std::fmt::{self, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr};

/// How actions are written.
#[derive(Clone, Copy, Default)]
pub struct Style<'a> {
    /// The name of a port; `None` (or no closure) writes the number.
    pub port_name: Option<&'a dyn Fn(PortNo) -> Option<String>>,
    /// The actions come from a translation without side effects (`ofproto/trace`): OVS then
    /// writes `dont_send=1` in `controller(...)`.
    pub dry_run: bool,
}

impl fmt::Debug for Style<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Style").field("dry_run", &self.dry_run).finish_non_exhaustive()
    }
}

/// `actions` as text; "drop" when there are none.
pub fn format(actions: &[Action], style: Style<'_>) -> String {
    let mut out = String::new();
    list(&mut out, actions, style);
    out
}

/// `actions` as text with port numbers.
pub fn format_plain(actions: &[Action]) -> String {
    format(actions, Style::default())
}

/// A port as [`format()`] writes it.
pub fn format_port(port: PortNo, style: Style<'_>) -> String {
    match style.port_name.and_then(|name| name(port)) {
        Some(name) => name,
        None => port.to_string(),
    }
}

/// Appends formatted text to a `String`, which cannot fail.
macro_rules! put {
    ($out:expr, $($arg:tt)*) => {{
        let _ = write!($out, $($arg)*);
    }};
}

use put;

/// C's `%#x`: zero has no prefix.
struct Hex(u64);

impl fmt::Display for Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 { f.write_str("0") } else { write!(f, "{:#x}", self.0) }
    }
}

struct Mac([u8; 6]);

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

fn list(out: &mut String, actions: &[Action], style: Style<'_>) {
    if actions.is_empty() {
        out.push_str("drop");
    }
    for (i, action) in actions.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        push_action(out, action, style);
    }
}

fn push_action(out: &mut String, action: &Action, style: Style<'_>) {
    match action {
        Action::Output(port) => out.push_str(&format_port(*port, style)),
        Action::LbOutput(id) => put!(out, "lb_output({id})"),
        Action::Drop(_) => out.push_str("drop"),
        Action::Userspace(data) => userspace(out, data, style),
        Action::Recirc(id) => put!(out, "recirc({})", Hex(u64::from(*id))),
        Action::Hash { symmetric, basis } => {
            put!(out, "hash({}l4({basis}))", if *symmetric { "sym_" } else { "" });
        }
        Action::Trunc(len) => put!(out, "trunc({len})"),
        Action::PushVlan { tpid, tci } => {
            out.push_str("push_vlan(");
            if *tpid != 0x8100 {
                put!(out, "tpid=0x{tpid:04x},");
            }
            put!(out, "vid={},pcp={}", tci & 0xfff, tci >> 13);
            if tci & flow::VLAN_CFI == 0 {
                out.push_str(",cfi=0");
            }
            out.push(')');
        }
        Action::PopVlan => out.push_str("pop_vlan"),
        Action::PushMpls { lse, ethertype } | Action::AddMpls { lse, ethertype } => {
            let is_push = matches!(action, Action::PushMpls { .. });
            out.push_str(if is_push { "push_mpls(" } else { "add_mpls(" });
            mpls(out, *lse);
            put!(out, ",eth_type=0x{ethertype:x})");
        }
        Action::PopMpls { ethertype } => put!(out, "pop_mpls(eth_type=0x{ethertype:x})"),
        Action::Set(set) => set_text(out, set),
        Action::Sample { probability, actions } => {
            let percent = 100.0 * f64::from(*probability) / f64::from(u32::MAX);
            put!(out, "sample(sample={percent:.1}%,actions(");
            list(out, actions, style);
            out.push_str("))");
        }
        Action::Clone(actions) => {
            out.push_str("clone(");
            list(out, actions, style);
            out.push(')');
        }
        Action::Meter(id) => put!(out, "meter({id})"),
        Action::CheckPktLen { len, greater, not_greater } => {
            put!(out, "check_pkt_len(size={len},gt(");
            list(out, greater, style);
            out.push_str("),le(");
            list(out, not_greater, style);
            out.push_str("))");
        }
        Action::Ct(request) => ct::push(out, request),
        Action::CtClear => out.push_str("ct_clear"),
        Action::TunnelPush { header, tunnel_port, out_port } => {
            put!(out, "tnl_push(tnl_port({}),", format_port(*tunnel_port, style));
            tunnel::push_header(out, header);
            put!(out, ",out_port({}))", format_port(*out_port, style));
        }
        Action::TunnelPop(port) => put!(out, "tnl_pop({})", format_port(*port, style)),
        Action::SetTunnel(tunnel) => {
            put!(out, "set(tunnel({}))", flow::text::odp::format_tunnel(tunnel, None, false));
        }
        Action::PushEth { src, dst } => {
            put!(out, "push_eth(src={},dst={})", Mac(*src), Mac(*dst));
        }
        Action::PopEth => out.push_str("pop_eth"),
        Action::PushNsh(pushed) => nsh::push(out, pushed),
        Action::PopNsh => out.push_str("pop_nsh()"),
    }
}

fn userspace(out: &mut String, data: &Userdata, style: Style<'_>) {
    out.push_str("userspace(pid=0,");
    match data {
        Userdata::SlowPath { reason } => put!(out, "slow_path({reason})"),
        Userdata::Controller {
            reason,
            max_len,
            controller_id,
            recirc_id,
            rule_cookie,
            continuation,
        } => {
            put!(
                out,
                "controller(reason={reason},dont_send={},continuation={},recirc_id={recirc_id},rule_cookie={},\
                 controller_id={controller_id},max_len={max_len})",
                u8::from(style.dry_run),
                u8::from(*continuation),
                Hex(*rule_cookie),
            );
        }
        Userdata::Sflow { vlan_tci, output } => {
            let (vid, pcp) = (vlan_tci & 0x0fff, vlan_tci >> 13);
            put!(out, "sFlow(vid={vid},pcp={pcp},output={output}),actions");
        }
        Userdata::FlowSample {
            probability,
            collector_set,
            obs_domain,
            obs_point,
            output_port,
            direction,
            origin: _,
        } => {
            put!(
                out,
                "flow_sample(probability={probability},collector_set_id={collector_set},\
                 obs_domain_id={obs_domain},obs_point_id={obs_point},output_port={}{})",
                format_port(*output_port, style),
                match direction {
                    SampleDirection::Default => "",
                    SampleDirection::Ingress => ",ingress",
                    SampleDirection::Egress => ",egress",
                },
            );
        }
        Userdata::Ipfix { output_port, origin: _ } => {
            put!(out, "ipfix(output_port={})", format_port(*output_port, style));
        }
    }
    out.push(')');
}

fn mpls(out: &mut String, lse: u32) {
    put!(
        out,
        "label={},tc={},ttl={},bos={}",
        lse >> 12,
        (lse >> 9) & 7,
        lse & 0xff,
        (lse >> 8) & 1
    );
}

/// Writes `name=value` and `name=value/mask` parts, with commas between.
struct Parts<'a> {
    out: &'a mut String,
    first: bool,
}

impl<'a> Parts<'a> {
    /// Writes `header(`; the parts follow.
    fn begin(out: &'a mut String, header: &str) -> Parts<'a> {
        put!(out, "{header}(");
        Parts { out, first: true }
    }

    fn part(
        &mut self,
        name: &str,
        exact: bool,
        any: bool,
        value: impl fmt::Display,
        mask: impl fmt::Display,
    ) {
        if !any {
            return;
        }
        if !std::mem::take(&mut self.first) {
            self.out.push(',');
        }
        put!(self.out, "{name}={value}");
        if !exact {
            put!(self.out, "/{mask}");
        }
    }

    fn mac(&mut self, name: &str, m: &Masked<[u8; 6]>) {
        self.part(name, m.mask == [0xff; 6], m.mask != [0; 6], Mac(m.value), Mac(m.mask));
    }

    fn ipv4(&mut self, name: &str, m: &Masked<[u8; 4]>) {
        self.part(
            name,
            m.mask == [0xff; 4],
            m.mask != [0; 4],
            Ipv4Addr::from(m.value),
            Ipv4Addr::from(m.mask),
        );
    }

    fn ipv6(&mut self, name: &str, m: &Masked<[u8; 16]>) {
        self.part(
            name,
            m.mask == [0xff; 16],
            m.mask != [0; 16],
            Ipv6Addr::from(m.value),
            Ipv6Addr::from(m.mask),
        );
    }

    fn decimal(&mut self, name: &str, value: u32, mask: u32, full: u32) {
        self.part(name, mask == full, mask != 0, value, Hex(u64::from(mask)));
    }

    fn hex(&mut self, name: &str, value: u32, mask: u32, full: u32) {
        self.part(name, mask == full, mask != 0, Hex(u64::from(value)), Hex(u64::from(mask)));
    }

    fn byte(&mut self, name: &str, m: &Masked<u8>) {
        self.decimal(name, u32::from(m.value), u32::from(m.mask), 0xff);
    }

    fn byte_hex(&mut self, name: &str, m: &Masked<u8>) {
        self.hex(name, u32::from(m.value), u32::from(m.mask), 0xff);
    }

    fn short(&mut self, name: &str, m: &Masked<u16>) {
        self.decimal(name, u32::from(m.value), u32::from(m.mask), 0xffff);
    }
}

fn set_text(out: &mut String, set: &Set) {
    out.push_str("set(");
    match set {
        Set::Ethernet { src, dst } => {
            let mut p = Parts::begin(out, "eth");
            p.mac("src", src);
            p.mac("dst", dst);
        }
        Set::Ipv4 { src, dst, tos, ttl } => {
            let mut p = Parts::begin(out, "ipv4");
            p.ipv4("src", src);
            p.ipv4("dst", dst);
            p.byte_hex("tos", tos);
            p.byte("ttl", ttl);
        }
        Set::Ipv6 { src, dst, label, tclass, hlimit } => {
            let mut p = Parts::begin(out, "ipv6");
            p.ipv6("src", src);
            p.ipv6("dst", dst);
            p.hex("label", label.value, label.mask, 0xf_ffff);
            p.byte_hex("tclass", tclass);
            p.byte("hlimit", hlimit);
        }
        Set::Tcp { src, dst } => ports(out, "tcp", src, dst),
        Set::Udp { src, dst } => ports(out, "udp", src, dst),
        Set::Sctp { src, dst } => ports(out, "sctp", src, dst),
        Set::Icmp { kind, code, v6 } => {
            let mut p = Parts::begin(out, if *v6 { "icmpv6" } else { "icmp" });
            p.byte("type", kind);
            p.byte("code", code);
        }
        Set::Arp { op, spa, tpa, sha, tha } => {
            let mut p = Parts::begin(out, "arp");
            p.ipv4("sip", spa);
            p.ipv4("tip", tpa);
            p.short("op", op);
            p.mac("sha", sha);
            p.mac("tha", tha);
        }
        Set::Nd { target, sll, tll } => {
            let mut p = Parts::begin(out, "nd");
            p.ipv6("target", target);
            p.mac("sll", sll);
            p.mac("tll", tll);
        }
        // OVS shows nd_reserved, as 0x0, also when it stays; that would not read back.
        Set::NdExtensions { reserved: Masked { value, mask }, options_type } => {
            let mut p = Parts::begin(out, "nd_ext");
            let (whole, any) = (*mask == u32::MAX, *mask != 0);
            let (value, mask) = (format_args!("0x{value:x}"), format_args!("0x{mask:x}"));
            p.part("nd_reserved", whole, any, value, mask);
            p.byte("nd_options_type", options_type);
        }
        Set::Nsh { flags, ttl, path, context } => {
            let mut p = Parts::begin(out, "nsh");
            nsh::set(&mut p, [flags, ttl], path, context);
        }
        Set::Mpls(m) if m.mask == u32::MAX => {
            out.push_str("mpls(");
            mpls(out, m.value);
        }
        Set::Mpls(m) => {
            let (v, k) = (m.value, m.mask);
            put!(
                out,
                "mpls(label={}/0x{:x},tc={}/{:x},ttl={}/0x{:x},bos={}/{:x}",
                v >> 12,
                k >> 12,
                (v >> 9) & 7,
                (k >> 9) & 7,
                v & 0xff,
                k & 0xff,
                (v >> 8) & 1,
                (k >> 8) & 1,
            );
        }
        Set::Priority(v) => put!(out, "skb_priority({}", Hex(u64::from(*v))),
        Set::Mark(m) if m.mask == u32::MAX => put!(out, "skb_mark({}", Hex(u64::from(m.value))),
        Set::Mark(m) => {
            put!(out, "skb_mark({}/{}", Hex(u64::from(m.value)), Hex(u64::from(m.mask)))
        }
    }
    out.push_str("))");
}

fn ports(out: &mut String, header: &str, src: &Masked<u16>, dst: &Masked<u16>) {
    let mut p = Parts::begin(out, header);
    p.short("src", src);
    p.short("dst", dst);
}
