// SPDX-License-Identifier: Apache-2.0
//! Options of tunnel interfaces. (OVS: lib/netdev-vport.c.)
//!
//! Open vSwitch warns about most invalid options and carries on without them; few make the port
//! impossible. All complaints about one interface are one text, one line each: it is logged, and it
//! is the row's error when there is no port.

use super::desired::Map;
use bridge::tunnel::{Config, Extensions, OrFlow, PacketTypeMode, Tos, Ttl, default_port};
use datapath::{PortKind, TunnelKind};
use std::net::{IpAddr, Ipv6Addr};
use tunnel::FlowLabel;

/// Options that Open vSwitch's IPsec daemon reads. Packets would leave unencrypted here.
const IPSEC: [&str; 3] = ["psk", "remote_cert", "remote_name"];
/// Bits of the octet of DSCP and ECN that belong to DSCP.
const DSCP: u8 = 0xfc;
/// Largest ERSPAN index (20 bits) and hardware id (6 bits).
const MAX_ERSPAN_INDEX: u64 = 0xf_ffff;
const MAX_ERSPAN_HARDWARE_ID: u64 = 0x3f;
/// Most segments of an SRv6 route, as in Open vSwitch.
const MAX_SEGMENTS: usize = 6;

/// Reads the options of the tunnel interface `name`. Returns the vport's options, and complaints
/// for the log.
///
/// # Errors
/// The options make no vport. The text, which includes all complaints, is for the `error` column.
pub(super) fn read(
    name: &str,
    kind: TunnelKind,
    options: &Map,
) -> Result<(Config, Option<String>), String> {
    let reader = Reader { name, kind, complaints: Vec::new() };
    reader.read(options)
}

struct Reader<'a> {
    name: &'a str,
    kind: TunnelKind,
    complaints: Vec<String>,
}

/// An address in the options.
enum Address {
    Some(OrFlow<IpAddr>),
    Multicast,
    Invalid,
}

impl Reader<'_> {
    fn complain(&mut self, text: std::fmt::Arguments<'_>) {
        self.complaints.push(format!("{}: {text}", self.name));
    }

    fn fail<T>(mut self, text: std::fmt::Arguments<'_>) -> Result<T, String> {
        self.complain(text);
        Err(self.complaints.join("\n"))
    }

    fn type_text(&self) -> &'static str {
        PortKind::Tunnel(self.kind).as_str()
    }

    fn read(mut self, options: &Map) -> Result<(Config, Option<String>), String> {
        let kind = self.kind;
        let text = self.type_text();
        let mut remote = None;
        let mut config = Config::new(kind, OrFlow::Flow); // the remote end is checked below
        for (key, value) in options {
            let value = value.as_str();
            match key.as_str() {
                "remote_ip" => match address(value) {
                    Address::Some(address) => remote = Some(address),
                    Address::Multicast => {
                        return self.fail(format_args!("multicast remote_ip={value} not allowed"));
                    }
                    Address::Invalid => self.complain(format_args!("bad {text} 'remote_ip'")),
                },
                "local_ip" => match address(value) {
                    Address::Some(address) => config.local = Some(address),
                    Address::Multicast => {
                        config.local = value.parse().ok().map(OrFlow::Fixed);
                    }
                    Address::Invalid => self.complain(format_args!("bad {text} 'local_ip'")),
                },
                "tos" if value == "inherit" => config.tos = Tos::Inherit,
                "tos" => match c_number(value, 0) {
                    (tos, "") if tos & !u64::from(DSCP) == 0 => {
                        config.tos = Tos::Fixed((tos & u64::from(DSCP)) as u8);
                    }
                    _ => self.complain(format_args!("invalid TOS {value}")),
                },
                "ttl" if value == "inherit" => config.ttl = Ttl::Inherit,
                "ttl" => match c_number(value, 10).0 as u8 {
                    0 => {} // the default
                    ttl => config.ttl = Ttl::Fixed(ttl),
                },
                "dst_port" if default_port(kind).is_some() => {
                    config.port = c_number(value, 10).0 as u16;
                }
                "csum" if has_checksum(kind) => config.checksum = value == "true",
                "seq" if has_sequence(kind) => config.sequence = value == "true",
                "df_default" => config.dont_fragment = value != "false",
                "key" | "in_key" | "out_key" | "packet_type" => {} // below
                "exts" if kind == TunnelKind::Vxlan => {
                    config.extensions = self.extensions(value);
                }
                "egress_pkt_mark" => config.egress_mark = Some(c_number(value, 10).0 as u32),
                "erspan_ver" if value == "flow" => {
                    let erspan = &mut config.erspan;
                    erspan.version = OrFlow::Flow;
                    erspan.index = OrFlow::Flow;
                    erspan.direction = OrFlow::Flow;
                    erspan.hardware_id = OrFlow::Flow;
                }
                "erspan_ver" => match c_number(value, 10).0 {
                    version @ 1..=2 => config.erspan.version = OrFlow::Fixed(version as u8),
                    _ => return self.fail(format_args!("invalid erspan version: {value}")),
                },
                "erspan_idx" if value == "flow" => config.erspan.index = OrFlow::Flow,
                "erspan_idx" => match c_number(value, 16).0 {
                    index if index <= MAX_ERSPAN_INDEX => {
                        config.erspan.index = OrFlow::Fixed(index as u32);
                    }
                    _ => return self.fail(format_args!("invalid erspan index: {value}")),
                },
                "erspan_dir" if value == "flow" => config.erspan.direction = OrFlow::Flow,
                "erspan_dir" => match c_number(value, 10).0 {
                    direction @ 0..=1 => config.erspan.direction = OrFlow::Fixed(direction as u8),
                    _ => return self.fail(format_args!("invalid erspan direction: {value}")),
                },
                "erspan_hwid" if value == "flow" => config.erspan.hardware_id = OrFlow::Flow,
                "erspan_hwid" => match c_number(value, 16).0 {
                    id if id <= MAX_ERSPAN_HARDWARE_ID => {
                        config.erspan.hardware_id = OrFlow::Fixed(id as u8);
                    }
                    _ => return self.fail(format_args!("invalid erspan hardware ID: {value}")),
                },
                "payload_type" => match payload_type(value) {
                    Some(kind) => config.payload_type = Some(kind),
                    None => return self.fail(format_args!("invalid payload_type: {value}")),
                },
                "srv6_segs" if kind == TunnelKind::Srv6 => match segments(value) {
                    Some(segments) => config.segments = segments,
                    None => self.complain(format_args!("bad {value} 'srv6_segs'")),
                },
                "srv6_flowlabel" if kind == TunnelKind::Srv6 => {
                    config.flow_label = match value {
                        "copy" => FlowLabel::Copy,
                        "zero" => FlowLabel::Zero,
                        "compute" => FlowLabel::Compute,
                        _ => return self.fail(format_args!("bad {value} 'srv6_flowlabel'")),
                    };
                }
                option if IPSEC.contains(&option) => {
                    return self.fail(format_args!(
                        "IPsec (options:{option}) is not supported by this version of Slipswitch; \
                         packets would leave unencrypted, so there is no port"
                    ));
                }
                _ => self.complain(format_args!("unknown {text} argument '{key}'")),
            }
        }
        // A version from the flow makes all fields the flow's, in whatever order they are named.
        if config.erspan.version.is_flow() {
            config.erspan.index = OrFlow::Flow;
            config.erspan.direction = OrFlow::Flow;
            config.erspan.hardware_id = OrFlow::Flow;
        }
        if let Some(mode) = options.get("packet_type") {
            let layers = Layers::of(kind, config.extensions);
            let carrier = match kind {
                TunnelKind::Vxlan if config.extensions.gpe => "VXLAN-GPE",
                TunnelKind::Vxlan => "VXLAN (without GPE)",
                _ => text,
            };
            config.mode = match mode.as_str() {
                "legacy_l2" if layers.l2 => PacketTypeMode::LegacyL2,
                "legacy_l3" if layers.l3 => PacketTypeMode::LegacyL3,
                "ptap" => PacketTypeMode::Aware,
                "legacy_l2" | "legacy_l3" => {
                    let layer = if mode == "legacy_l2" { "L2" } else { "L3" };
                    return self.fail(format_args!(
                        "{mode} configured on {carrier} tunnel that cannot carry {layer} traffic"
                    ));
                }
                _ => return self.fail(format_args!("unknown packet_type '{mode}'")),
            };
        }
        let Some(remote) = remote else {
            return self.fail(format_args!("{text} type requires valid 'remote_ip' argument"));
        };
        config.remote = remote;
        if config.local == Some(OrFlow::Flow) && !remote.is_flow() {
            return self
                .fail(format_args!("{text} type requires 'remote_ip=flow' with 'local_ip=flow'"));
        }
        if let (OrFlow::Fixed(there), Some(OrFlow::Fixed(here))) = (remote, config.local)
            && there.is_ipv4() != here.is_ipv4()
        {
            return self.fail(format_args!(
                "'remote_ip' and 'local_ip' has to be of the same address family"
            ));
        }
        let key = |name: &str| {
            let text = options.get(name).or_else(|| options.get("key"))?;
            Some(match text.as_str() {
                "flow" => OrFlow::Flow,
                number => OrFlow::Fixed(c_number(number, 0).0),
            })
        };
        config.in_key = key("in_key");
        config.out_key = key("out_key");
        let complaints = (!self.complaints.is_empty()).then(|| self.complaints.join("\n"));
        Ok((config, complaints))
    }

    fn extensions(&mut self, text: &str) -> Extensions {
        let mut out = Extensions::default();
        for name in text.split(',').filter(|name| !name.is_empty()) {
            match name {
                "gbp" => out.gbp = true,
                "gpe" => out.gpe = true,
                _ => self.complain(format_args!("unknown extension '{name}'")),
            }
        }
        out
    }
}

/// Kinds of packets that a tunnel can carry.
struct Layers {
    l2: bool,
    l3: bool,
}

impl Layers {
    const fn of(kind: TunnelKind, extensions: Extensions) -> Layers {
        match kind {
            TunnelKind::Lisp | TunnelKind::Gtpu | TunnelKind::Bareudp | TunnelKind::Srv6 => {
                Layers { l2: false, l3: true }
            }
            TunnelKind::Gre => Layers { l2: true, l3: true },
            TunnelKind::Vxlan => Layers { l2: true, l3: extensions.gpe },
            TunnelKind::Erspan
            | TunnelKind::Geneve
            | TunnelKind::Ip6Erspan
            | TunnelKind::Ip6Gre
            | TunnelKind::Stt => Layers { l2: true, l3: false },
        }
    }
}

/// Returns true for kinds with the option `csum`.
const fn has_checksum(kind: TunnelKind) -> bool {
    match kind {
        TunnelKind::Geneve
        | TunnelKind::Gre
        | TunnelKind::Ip6Gre
        | TunnelKind::Stt
        | TunnelKind::Vxlan => true,
        TunnelKind::Bareudp
        | TunnelKind::Erspan
        | TunnelKind::Gtpu
        | TunnelKind::Ip6Erspan
        | TunnelKind::Lisp
        | TunnelKind::Srv6 => false,
    }
}

/// Returns true for kinds with the option `seq`.
const fn has_sequence(kind: TunnelKind) -> bool {
    matches!(kind, TunnelKind::Gre | TunnelKind::Ip6Gre)
}

fn address(text: &str) -> Address {
    match text.parse::<IpAddr>() {
        _ if text == "flow" => Address::Some(OrFlow::Flow),
        // Open vSwitch takes the unspecified address for none.
        Ok(address) if address.is_unspecified() => Address::Invalid,
        Ok(address) if address.is_multicast() => Address::Multicast,
        Ok(address) => Address::Some(OrFlow::Fixed(address)),
        Err(_) => Address::Invalid,
    }
}

/// Reads the route of an SRv6 tunnel.
fn segments(text: &str) -> Option<Vec<Ipv6Addr>> {
    let segments: Vec<Ipv6Addr> =
        text.split(',').map(|segment| segment.trim().parse()).collect::<Result<_, _>>().ok()?;
    (segments.len() <= MAX_SEGMENTS).then_some(segments)
}

/// Reads the Ethernet type of a bareudp tunnel's packets.
fn payload_type(text: &str) -> Option<u16> {
    match text {
        "mpls" => Some(packet::ethertype::MPLS),
        "ip" => Some(packet::ethertype::IPV4),
        number => match c_number(number, 0) {
            (kind, "") if !number.is_empty() => u16::try_from(kind).ok(),
            _ => None,
        },
    }
}

/// Reads a number as C's strtoull does: white space, a sign, digits of `base` up to the first other
/// character. Base 0 takes the base from the prefix. Returns the number (0 without digits, the
/// largest on overflow) and the rest of the text.
fn c_number(text: &str, base: u32) -> (u64, &str) {
    let trimmed = text.trim_start_matches([' ', '\t', '\n', '\r', '\x0b', '\x0c']);
    let (is_negative, digits) = match trimmed.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, trimmed.strip_prefix('+').unwrap_or(trimmed)),
    };
    let hexadecimal = digits
        .strip_prefix("0x")
        .or_else(|| digits.strip_prefix("0X"))
        .filter(|rest| rest.starts_with(|c: char| c.is_ascii_hexdigit()));
    let (base, digits) = match (base, hexadecimal) {
        (0 | 16, Some(rest)) => (16, rest),
        (0, None) if digits.starts_with('0') => (8, digits),
        (0, None) => (10, digits),
        (base, _) => (base, digits),
    };
    let end = digits.find(|c: char| !c.is_digit(base)).unwrap_or(digits.len());
    let (number, rest) = digits.split_at(end);
    if number.is_empty() {
        return (0, text);
    }
    let value = u64::from_str_radix(number, base).unwrap_or(u64::MAX);
    (if is_negative { value.wrapping_neg() } else { value }, rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(text: &str) -> Map {
        let pairs = text.split_whitespace().filter_map(|pair| pair.split_once('='));
        pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
    }

    fn of(kind: TunnelKind, text: &str) -> Result<(Config, Option<String>), String> {
        read("p", kind, &options(text))
    }

    fn good(kind: TunnelKind, text: &str) -> Config {
        let (config, complaints) = of(kind, text).expect("a vport");
        assert_eq!(complaints, None, "{text}");
        config
    }

    fn complaint(kind: TunnelKind, text: &str) -> String {
        of(kind, text).expect("a vport").1.expect("a complaint")
    }

    #[test]
    fn addresses() {
        let c = good(TunnelKind::Gre, "remote_ip=1.1.1.1 local_ip=2.2.2.2");
        assert_eq!(c.remote, OrFlow::Fixed(IpAddr::from([1, 1, 1, 1])));
        assert_eq!(c.local, Some(OrFlow::Fixed(IpAddr::from([2, 2, 2, 2]))));
        let c = good(TunnelKind::Gre, "remote_ip=flow local_ip=flow");
        assert_eq!((c.remote, c.local), (OrFlow::Flow, Some(OrFlow::Flow)));
        for (text, error) in [
            ("", "p: gre type requires valid 'remote_ip' argument"),
            (
                "remote_ip=x",
                "p: bad gre 'remote_ip'\np: gre type requires valid 'remote_ip' argument",
            ),
            ("remote_ip=224.0.0.1", "p: multicast remote_ip=224.0.0.1 not allowed"),
            ("remote_ip=ff02::1", "p: multicast remote_ip=ff02::1 not allowed"),
            (
                "remote_ip=1.1.1.1 local_ip=flow",
                "p: gre type requires 'remote_ip=flow' with 'local_ip=flow'",
            ),
            (
                "remote_ip=1.1.1.1 local_ip=fe80::1",
                "p: 'remote_ip' and 'local_ip' has to be of the same address family",
            ),
        ] {
            assert_eq!(of(TunnelKind::Gre, text).unwrap_err(), error);
        }
        assert_eq!(
            complaint(TunnelKind::Gre, "remote_ip=1.1.1.1 local_ip=x"),
            "p: bad gre 'local_ip'"
        );
    }

    #[test]
    fn keys() {
        let c = good(TunnelKind::Vxlan, "remote_ip=1.1.1.1 key=0x10 out_key=flow");
        assert_eq!((c.in_key, c.out_key), (Some(OrFlow::Fixed(16)), Some(OrFlow::Flow)));
        let c = good(TunnelKind::Vxlan, "remote_ip=1.1.1.1");
        assert_eq!((c.in_key, c.out_key), (None, None));
    }

    #[test]
    fn invalid_values_are_left_out_with_a_complaint() {
        assert_eq!(complaint(TunnelKind::Gre, "remote_ip=1.1.1.1 tos=3"), "p: invalid TOS 3");
        assert_eq!(
            complaint(TunnelKind::Gre, "remote_ip=1.1.1.1 tos=0x100"),
            "p: invalid TOS 0x100"
        );
        assert_eq!(
            complaint(TunnelKind::Erspan, "remote_ip=1.1.1.1 csum=true"),
            "p: unknown erspan argument 'csum'"
        );
        assert_eq!(
            complaint(TunnelKind::Vxlan, "remote_ip=1.1.1.1 exts=gbp,x zzz=1"),
            "p: unknown extension 'x'\np: unknown vxlan argument 'zzz'"
        );
    }

    #[test]
    fn numbers_are_read_as_c_reads_them() {
        let c = good(TunnelKind::Gre, "remote_ip=1.1.1.1 ttl=0 tos=0x40");
        assert_eq!((c.ttl, c.tos), (Ttl::Fixed(64), Tos::Fixed(0x40)));
        assert_eq!(good(TunnelKind::Gre, "remote_ip=1.1.1.1 ttl=7x").ttl, Ttl::Fixed(7));
        assert_eq!(c_number("0x1f", 16), (31, ""));
        assert_eq!(c_number(" 12ab", 0), (12, "ab"));
        assert_eq!(c_number("010", 0), (8, ""));
        assert_eq!(c_number("0x", 0), (0, "x"));
        assert_eq!(c_number("abc", 10), (0, "abc"));
        assert_eq!(c_number("99999999999999999999", 0).0, u64::MAX);
    }

    #[test]
    fn packet_types_must_fit_the_tunnel() {
        for (kind, text, error) in [
            (
                TunnelKind::Gtpu,
                "legacy_l2",
                "legacy_l2 configured on gtpu tunnel that cannot carry L2 traffic",
            ),
            (
                TunnelKind::Vxlan,
                "legacy_l3",
                "legacy_l3 configured on VXLAN (without GPE) tunnel that cannot carry L3 traffic",
            ),
            (TunnelKind::Gre, "x", "unknown packet_type 'x'"),
        ] {
            let text = format!("remote_ip=1.1.1.1 packet_type={text}");
            assert_eq!(of(kind, &text).unwrap_err(), format!("p: {error}"));
        }
        let c = good(TunnelKind::Vxlan, "remote_ip=1.1.1.1 packet_type=legacy_l3 exts=gpe");
        assert_eq!(c.mode, PacketTypeMode::LegacyL3);
    }

    #[test]
    fn erspan_fields() {
        let c = good(
            TunnelKind::Erspan,
            "remote_ip=flow erspan_ver=2 erspan_hwid=flow erspan_dir=1 erspan_idx=1f",
        );
        let e = c.erspan;
        assert_eq!((e.version, e.hardware_id), (OrFlow::Fixed(2), OrFlow::Flow));
        assert_eq!((e.direction, e.index), (OrFlow::Fixed(1), OrFlow::Fixed(0x1f)));
        let c = good(TunnelKind::Erspan, "remote_ip=flow erspan_ver=flow erspan_idx=1");
        assert!(c.erspan.index.is_flow() && c.erspan.direction.is_flow());
        for (text, error) in [
            ("erspan_ver=3", "invalid erspan version: 3"),
            ("erspan_idx=100000", "invalid erspan index: 100000"),
            ("erspan_dir=2", "invalid erspan direction: 2"),
            ("erspan_hwid=40", "invalid erspan hardware ID: 40"),
        ] {
            let text = format!("remote_ip=1.1.1.1 {text}");
            assert_eq!(of(TunnelKind::Erspan, &text).unwrap_err(), format!("p: {error}"));
        }
    }

    #[test]
    fn ipsec_makes_no_port() {
        for option in IPSEC {
            let error = of(TunnelKind::Gre, &format!("remote_ip=1.1.1.1 {option}=x")).unwrap_err();
            assert!(error.starts_with(&format!("p: IPsec (options:{option})")), "{error}");
        }
    }
}
