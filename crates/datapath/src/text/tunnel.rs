// SPDX-License-Identifier: Apache-2.0
//! `tnl_push(...)`, and the `tunnel(...)` of `set(...)`.

use super::parse::{Item, ParseError, Parser, Result};
use super::{Hex, Mac, put};
use crate::Action;
use ::tunnel::{
    Encapsulation, Erspan, FlowLabel, Header, HeaderParts, Kind, Options, OuterIp, SourcePorts,
    Tlv, Udp,
};
use flow::text::odp;
use packet::ethertype;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

// Bits of a GRE header (RFC 2784, RFC 2890).
const GRE_CHECKSUM: u16 = 0x8000;
const GRE_KEY: u16 = 0x2000;
const GRE_SEQUENCE: u16 = 0x1000;

/// Appends `header(...)`.
pub(super) fn push_header(out: &mut String, header: &Header) {
    let HeaderParts { eth_dst, eth_src, ip, encapsulation } = header.parts();
    let (size, number) = (header.bytes().len(), header.kind().number());
    let kind = match ip {
        OuterIp::V4 { .. } => ethertype::IPV4,
        OuterIp::V6 { .. } => ethertype::IPV6,
    };
    let (dst, src) = (Mac(*eth_dst), Mac(*eth_src));
    put!(out, "header(size={size},type={number},eth(dst={dst},src={src},dl_type=0x{kind:04x}),");
    let proto = encapsulation.protocol();
    match ip {
        OuterIp::V4 { src, dst, tos, ttl, fragment } => {
            let tos = Hex(u64::from(*tos));
            put!(out, "ipv4(src={src},dst={dst},proto={proto},tos={tos},ttl={ttl},");
            put!(out, "frag=0x{fragment:x}),");
        }
        OuterIp::V6 { src, dst, label, traffic_class, hop_limit } => {
            put!(out, "ipv6(src={src},dst={dst},label={label},proto={proto},");
            put!(out, "tclass=0x{traffic_class:x},hlimit={hop_limit}),");
        }
    }
    match encapsulation {
        Encapsulation::Vxlan { udp, flags, vni } => {
            push_udp(out, udp);
            put!(out, "vxlan(flags=0x{flags:x},vni=0x{vni:x})");
        }
        Encapsulation::Geneve { udp, is_oam, is_critical, vni, options } => {
            push_udp(out, udp);
            let oam = if *is_oam { "oam," } else { "" };
            let critical = if *is_critical { "crit," } else { "" };
            put!(out, "geneve({oam}{critical}vni=0x{vni:x}");
            if !options.is_empty() {
                out.push_str(",options(");
                push_options(out, options);
                out.push(')');
            }
            out.push(')');
        }
        Encapsulation::Gtpu { udp, flags, msgtype, teid } => {
            push_udp(out, udp);
            put!(out, "gtpu(flags=0x{flags:x},msgtype={msgtype},teid=0x{teid:x})");
        }
        Encapsulation::Bareudp { udp } => {
            push_udp(out, udp);
            out.push_str("bareudp()");
        }
        Encapsulation::Gre { protocol, has_checksum, key, has_sequence } => {
            let bit = |is_set: bool, bit: u16| if is_set { bit } else { 0 };
            let bits = bit(*has_checksum, GRE_CHECKSUM)
                | bit(key.is_some(), GRE_KEY)
                | bit(*has_sequence, GRE_SEQUENCE);
            put!(out, "gre((flags=0x{bits:x},proto=0x{protocol:x})");
            if *has_checksum {
                out.push_str(",csum=0x0");
            }
            if let Some(key) = key {
                put!(out, ",key=0x{key:x}");
            }
            if *has_sequence {
                out.push_str(",seq=0x0");
            }
            out.push(')');
        }
        Encapsulation::Erspan { session, erspan: Erspan::V1 { index } } => {
            put!(out, "erspan(ver=1,sid=0x{session:x},idx=0x{index:x})");
        }
        Encapsulation::Erspan { session, erspan: Erspan::V2 { is_egress, hardware_id } } => {
            let direction = u8::from(*is_egress);
            put!(out, "erspan(ver=2,sid=0x{session:x},dir={direction},hwid=0x{hardware_id:x})");
        }
        Encapsulation::Srv6 { segments_left, segments, .. } => {
            put!(out, "srv6(segments_left={segments_left},segs(");
            for (i, segment) in segments.iter().enumerate() {
                let comma = if i > 0 { "," } else { "" };
                put!(out, "{comma}{segment}");
            }
            out.push_str("))");
        }
    }
    out.push(')');
}

fn push_udp(out: &mut String, udp: &Udp) {
    let sum = if udp.has_checksum { 0xffff } else { 0 };
    put!(out, "udp(src=0,dst={},csum=0x{sum:x}),", udp.dst);
}

/// Appends `{class=...,type=...,len=N,0x...}` for each option. Bytes that are no option have no text.
fn push_options(out: &mut String, options: &Options) {
    for Tlv { class, kind, data, .. } in options.tlvs().map_while(std::result::Result::ok) {
        let (class, kind) = (Hex(class.into()), Hex(kind.into()));
        put!(out, "{{class={class},type={kind},len={}", data.len());
        if !data.is_empty() {
            let digits: String = data.iter().map(|byte| format!("{byte:02x}")).collect();
            let digits = digits.trim_start_matches('0');
            // As in OVS, zero has no prefix.
            let prefix = if digits.is_empty() { "0" } else { "0x" };
            put!(out, ",{prefix}{digits}");
        }
        out.push('}');
    }
}

/// The outer IP header, and the protocol that it announces.
struct Announced {
    ip: OuterIp,
    proto: u8,
}

impl<'a> Parser<'a> {
    /// `(tnl_port(N),header(...),out_port(N))`.
    pub(super) fn tunnel_push(&mut self) -> Result<Action> {
        self.expect("(")?;
        self.skip_separators();
        self.expect("tnl_port")?;
        let tunnel_port = self.one_port()?;
        self.skip_separators();
        self.expect("header(")?;
        let header = Arc::new(self.header()?);
        self.skip_separators();
        self.expect("out_port")?;
        let out_port = self.one_port()?;
        self.expect(")")?;
        Ok(Action::TunnelPush { header, tunnel_port, out_port })
    }

    /// The text after `header(`.
    fn header(&mut self) -> Result<Header> {
        let start = self.at;
        let size: usize = self.next("size")?;
        let number: u32 = self.next("type")?;
        let bad = |at: usize, problem: String| ParseError { at, problem };
        let kind = Kind::from_number(number)
            .ok_or_else(|| bad(start, format!("no tunnel has type {number}")))?;
        self.skip_separators();
        self.expect("eth")?;
        let (mut eth_dst, mut eth_src) = ([0; 6], [0; 6]);
        for item in self.items()? {
            match item.name {
                "dst" => eth_dst = self.mac(&item)?.value,
                "src" => eth_src = self.mac(&item)?.value,
                "dl_type" => {
                    let _: u16 = self.named(&item, "dl_type")?;
                }
                _ => return self.unknown(&item, "eth"),
            }
        }
        self.skip_separators();
        let Announced { ip, proto } = self.outer_ip()?;
        self.skip_separators();
        let encapsulation = self.encapsulation(kind)?;
        self.skip_separators();
        self.expect(")")?;
        if encapsulation.protocol() != proto {
            return Err(bad(start, format!("proto={proto} does not announce {kind}")));
        }
        let header = Header::new(HeaderParts { eth_dst, eth_src, ip, encapsulation })
            .map_err(|e| bad(start, e.to_string()))?;
        if header.kind() != kind {
            return Err(bad(start, format!("{kind} has other addresses")));
        }
        if header.bytes().len() != size {
            let len = header.bytes().len();
            return Err(bad(start, format!("the header has {len} bytes, not {size}")));
        }
        Ok(header)
    }

    /// `NAME=NUMBER`.
    fn next<T: TryFrom<u64>>(&mut self, name: &str) -> Result<T> {
        let item = self.item()?;
        self.named(&item, name)
    }

    fn outer_ip(&mut self) -> Result<Announced> {
        let mut proto = 0;
        if self.take("ipv4") {
            let (mut src, mut dst) = ([0; 4], [0; 4]);
            let (mut tos, mut ttl, mut fragment) = (0, 0, 0);
            for item in self.items()? {
                match item.name {
                    "src" => src = self.ipv4(&item)?.value,
                    "dst" => dst = self.ipv4(&item)?.value,
                    "proto" => proto = self.named(&item, "proto")?,
                    "tos" => tos = self.named(&item, "tos")?,
                    "ttl" => ttl = self.named(&item, "ttl")?,
                    "frag" => fragment = self.named(&item, "frag")?,
                    _ => return self.unknown(&item, "ipv4"),
                }
            }
            let (src, dst) = (Ipv4Addr::from(src), Ipv4Addr::from(dst));
            return Ok(Announced { ip: OuterIp::V4 { src, dst, tos, ttl, fragment }, proto });
        }
        self.expect("ipv6")?;
        let (mut src, mut dst) = ([0; 16], [0; 16]);
        let (mut label, mut traffic_class, mut hop_limit) = (0, 0, 0);
        for item in self.items()? {
            match item.name {
                "src" => src = self.ipv6(&item)?.value,
                "dst" => dst = self.ipv6(&item)?.value,
                "proto" => proto = self.named(&item, "proto")?,
                "label" => label = self.limited(&item, 0xf_ffff)?,
                "tclass" => traffic_class = self.named(&item, "tclass")?,
                "hlimit" => hop_limit = self.named(&item, "hlimit")?,
                _ => return self.unknown(&item, "ipv6"),
            }
        }
        let (src, dst) = (Ipv6Addr::from(src), Ipv6Addr::from(dst));
        let ip = OuterIp::V6 { src, dst, label, traffic_class, hop_limit };
        Ok(Announced { ip, proto })
    }

    /// The number of an item, at most `most`.
    fn limited(&self, item: &Item<'_>, most: u32) -> Result<u32> {
        let value: u32 = self.named(item, item.name)?;
        if value > most {
            let problem = format!("{} is at most {most:#x}", item.name);
            return Err(ParseError { at: item.at, problem });
        }
        Ok(value)
    }

    fn encapsulation(&mut self, kind: Kind) -> Result<Encapsulation> {
        match kind {
            Kind::Vxlan => {
                let udp = self.udp()?;
                self.expect("vxlan")?;
                let (mut flags, mut vni) = (0, 0);
                for item in self.items()? {
                    match item.name {
                        "flags" => flags = self.named(&item, "flags")?,
                        "vni" => vni = self.limited(&item, 0xff_ffff)?,
                        _ => return self.unknown(&item, "vxlan"),
                    }
                }
                Ok(Encapsulation::Vxlan { udp, flags, vni })
            }
            Kind::Geneve => {
                let udp = self.udp()?;
                self.geneve(udp)
            }
            Kind::Gtpu => {
                let udp = self.udp()?;
                self.expect("gtpu")?;
                let (mut flags, mut msgtype, mut teid) = (0, 0, 0);
                for item in self.items()? {
                    match item.name {
                        "flags" => flags = self.named(&item, "flags")?,
                        "msgtype" => msgtype = self.named(&item, "msgtype")?,
                        "teid" => teid = self.named(&item, "teid")?,
                        _ => return self.unknown(&item, "gtpu"),
                    }
                }
                Ok(Encapsulation::Gtpu { udp, flags, msgtype, teid })
            }
            Kind::Bareudp => {
                let udp = self.udp()?;
                self.expect("bareudp()")?;
                Ok(Encapsulation::Bareudp { udp })
            }
            Kind::Gre | Kind::Ip6Gre => self.gre(),
            Kind::Erspan | Kind::Ip6Erspan => self.erspan(),
            Kind::Srv6 => self.srv6(),
            Kind::Lisp | Kind::Stt => self.fail(format!("{kind} has no header here")),
        }
    }

    /// `udp(...)` and the separator after it.
    fn udp(&mut self) -> Result<Udp> {
        self.expect("udp")?;
        let (mut dst, mut has_checksum) = (0, false);
        for item in self.items()? {
            match item.name {
                "dst" => dst = self.named(&item, "dst")?,
                "csum" => has_checksum = self.named::<u16>(&item, "csum")? != 0,
                // Each packet gets its own.
                "src" => {
                    let _: u16 = self.named(&item, "src")?;
                }
                _ => return self.unknown(&item, "udp"),
            }
        }
        self.skip_separators();
        Ok(Udp { dst, has_checksum, sources: SourcePorts::default() })
    }

    fn geneve(&mut self, udp: Udp) -> Result<Encapsulation> {
        self.expect("geneve(")?;
        let (mut is_oam, mut is_critical, mut vni) = (false, false, 0);
        let mut options = Options::EMPTY;
        loop {
            self.skip_separators();
            if self.take(")") {
                return Ok(Encapsulation::Geneve { udp, is_oam, is_critical, vni, options });
            }
            if self.take("options(") {
                options = self.options()?;
            } else if self.take("oam") {
                is_oam = true;
            } else if self.take("crit") {
                is_critical = true;
            } else {
                let item = self.item()?;
                match item.name {
                    "vni" => vni = self.limited(&item, 0xff_ffff)?,
                    _ => return self.unknown(&item, "geneve"),
                }
            }
        }
    }

    /// `{class=...,type=...,len=N,0x...}` and more, until `)`.
    fn options(&mut self) -> Result<Options> {
        let at = self.at;
        let body = self.until_closed()?;
        let problem = || format!("cannot read options({body})");
        let read = odp::parse_tunnel(&format!("geneve({body})"));
        let options = read.and_then(|(tunnel, _)| Options::new(tunnel.raw_options()));
        options.ok_or_else(|| ParseError { at, problem: problem() })
    }

    fn gre(&mut self) -> Result<Encapsulation> {
        self.expect("gre(")?;
        let start = self.at;
        let (mut bits, mut protocol, mut key) = (0u16, 0, None);
        for item in self.items()? {
            match item.name {
                "flags" => bits = self.named(&item, "flags")?,
                "proto" => protocol = self.named(&item, "proto")?,
                _ => return self.unknown(&item, "gre"),
            }
        }
        let mut seen = 0u16;
        loop {
            self.skip_separators();
            if self.take(")") {
                break;
            }
            let item = self.item()?;
            match item.name {
                "key" => {
                    key = Some(self.named(&item, "key")?);
                    seen |= GRE_KEY;
                }
                // Each packet gets its own.
                "csum" => {
                    let _: u16 = self.named(&item, "csum")?;
                    seen |= GRE_CHECKSUM;
                }
                "seq" => {
                    let _: u32 = self.named(&item, "seq")?;
                    seen |= GRE_SEQUENCE;
                }
                _ => return self.unknown(&item, "gre"),
            }
        }
        if seen != bits {
            let problem = format!("flags=0x{bits:x} do not announce the fields 0x{seen:x}");
            return Err(ParseError { at: start, problem });
        }
        let (has_checksum, has_sequence) = (bits & GRE_CHECKSUM != 0, bits & GRE_SEQUENCE != 0);
        Ok(Encapsulation::Gre { protocol, has_checksum, key, has_sequence })
    }

    fn erspan(&mut self) -> Result<Encapsulation> {
        self.expect("erspan")?;
        let start = self.at;
        let (mut version, mut session, mut index) = (0u8, 0, 0);
        let (mut is_egress, mut hardware_id) = (false, 0);
        for item in self.items()? {
            match item.name {
                "ver" => version = self.named(&item, "ver")?,
                "sid" => session = self.limited(&item, 0x3ff)? as u16,
                "idx" => index = self.limited(&item, 0xf_ffff)?,
                "dir" => is_egress = self.limited(&item, 1)? != 0,
                "hwid" => hardware_id = self.limited(&item, 0x3f)? as u8,
                _ => return self.unknown(&item, "erspan"),
            }
        }
        let erspan = match version {
            1 => Erspan::V1 { index },
            2 => Erspan::V2 { is_egress, hardware_id },
            _ => {
                let problem = format!("invalid erspan version {version}");
                return Err(ParseError { at: start, problem });
            }
        };
        Ok(Encapsulation::Erspan { session, erspan })
    }

    fn srv6(&mut self) -> Result<Encapsulation> {
        self.expect("srv6(")?;
        let segments_left = self.next("segments_left")?;
        self.skip_separators();
        self.expect("segs(")?;
        let mut segments = Vec::new();
        loop {
            self.skip_separators();
            if self.take(")") {
                break;
            }
            let at = self.at;
            let word = self.word();
            let problem = || format!("\"{word}\" is not an IPv6 address");
            let segment = word.parse().map_err(|_| ParseError { at, problem: problem() })?;
            segments.push(segment);
        }
        self.skip_separators();
        self.expect(")")?;
        Ok(Encapsulation::Srv6 { segments_left, segments, flow_label: FlowLabel::Copy })
    }

    /// `(...)` after `tunnel`.
    pub(super) fn set_tunnel(&mut self) -> Result<Action> {
        self.expect("(")?;
        let at = self.at;
        let body = self.until_closed()?;
        let problem = || format!("cannot read tunnel({body})");
        let (tunnel, _) =
            odp::parse_tunnel(body).ok_or_else(|| ParseError { at, problem: problem() })?;
        Ok(Action::SetTunnel(Box::new(tunnel)))
    }

    /// The text before the closing parenthesis of the one that was just opened.
    fn until_closed(&mut self) -> Result<&'a str> {
        let mut open = 1usize;
        for (i, byte) in self.rest().bytes().enumerate() {
            match byte {
                b'(' => open += 1,
                b')' => open -= 1,
                _ => {}
            }
            if open == 0 {
                let body = self.rest().get(..i).unwrap_or_default();
                self.at += i + 1;
                return Ok(body);
            }
        }
        self.fail("expected \")\"")
    }
}
