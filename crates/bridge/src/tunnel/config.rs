// SPDX-License-Identifier: Apache-2.0
//! Options of a vport.

use super::{DEFAULT_TTL, default_port};
use ::tunnel::FlowLabel;
use datapath::{PortKind, TunnelKind};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

/// A value that the options fix, or that each packet's flow has in a field of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OrFlow<T> {
    /// The options' value.
    Fixed(T),
    /// The value of the packet's field (`flow` in the options).
    Flow,
}

impl<T> OrFlow<T> {
    /// Returns the fixed value.
    pub fn fixed(self) -> Option<T> {
        match self {
            OrFlow::Fixed(value) => Some(value),
            OrFlow::Flow => None,
        }
    }

    /// Returns true for [`OrFlow::Flow`].
    pub const fn is_flow(&self) -> bool {
        matches!(self, OrFlow::Flow)
    }
}

/// TTL of outer headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ttl {
    /// That of the inner IP header; [`DEFAULT_TTL`] for packets that are not IP.
    Inherit,
    /// Always the same.
    Fixed(u8),
}

/// DSCP of outer headers, in the upper six bits of the octet. ECN is always inherited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tos {
    /// That of the inner IP header; 0 for packets that are not IP.
    Inherit,
    /// Always the same.
    Fixed(u8),
}

/// Kind of the packets that a vport carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PacketTypeMode {
    /// Ethernet frames.
    LegacyL2,
    /// Packets without an Ethernet header. The bridge sees them with one.
    LegacyL3,
    /// Both; the field `packet_type` distinguishes them.
    Aware,
}

impl PacketTypeMode {
    /// Returns the text of `options:packet_type`.
    pub const fn as_str(self) -> &'static str {
        match self {
            PacketTypeMode::LegacyL2 => "legacy_l2",
            PacketTypeMode::LegacyL3 => "legacy_l3",
            PacketTypeMode::Aware => "ptap",
        }
    }

    /// Returns the mode of a vport without `options:packet_type`.
    pub const fn default_of(kind: TunnelKind) -> PacketTypeMode {
        match kind {
            TunnelKind::Lisp | TunnelKind::Gtpu | TunnelKind::Bareudp | TunnelKind::Srv6 => {
                PacketTypeMode::LegacyL3
            }
            TunnelKind::Erspan
            | TunnelKind::Geneve
            | TunnelKind::Gre
            | TunnelKind::Ip6Erspan
            | TunnelKind::Ip6Gre
            | TunnelKind::Stt
            | TunnelKind::Vxlan => PacketTypeMode::LegacyL2,
        }
    }
}

/// Extensions of VXLAN (`options:exts`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extensions {
    /// Group based policy.
    pub gbp: bool,
    /// Generic protocol extension.
    pub gpe: bool,
}

/// Fields of ERSPAN headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Erspan {
    /// Version: 1 or 2; 0 where the options name none.
    pub version: OrFlow<u8>,
    /// Index of version 1, 20 bits.
    pub index: OrFlow<u32>,
    /// Direction of version 2: 0 or 1.
    pub direction: OrFlow<u8>,
    /// Hardware id of version 2, 6 bits.
    pub hardware_id: OrFlow<u8>,
}

impl Default for Erspan {
    fn default() -> Erspan {
        Erspan {
            version: OrFlow::Fixed(0),
            index: OrFlow::Fixed(0),
            direction: OrFlow::Fixed(0),
            hardware_id: OrFlow::Fixed(0),
        }
    }
}

/// Options of a vport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Encapsulation of the packets, by which the vport's datapath port is chosen.
    pub kind: TunnelKind,
    /// A device of the kernel makes and takes off the outer headers: the vport is one of
    /// `openvswitch.ko`.
    pub is_kernel: bool,
    /// Address of the other end.
    pub remote: OrFlow<IpAddr>,
    /// Address of this end; `None` accepts any, and sends from the route's address.
    pub local: Option<OrFlow<IpAddr>>,
    /// Key of received packets; `None` is key 0.
    pub in_key: Option<OrFlow<u64>>,
    /// Key of sent packets; `None` sends none, or 0 where the header always has one.
    pub out_key: Option<OrFlow<u64>>,
    /// UDP (STT: TCP) port at both ends; 0 for a kind without ports.
    pub port: u16,
    /// TTL of sent packets.
    pub ttl: Ttl,
    /// DSCP of sent packets.
    pub tos: Tos,
    /// Outer IPv4 headers forbid fragmentation.
    pub dont_fragment: bool,
    /// Sent packets have an outer checksum.
    pub checksum: bool,
    /// GRE: sent packets are numbered.
    pub sequence: bool,
    /// Mark of sent packets, for the route and for the next bridge.
    pub egress_mark: Option<u32>,
    /// Extensions of VXLAN.
    pub extensions: Extensions,
    /// Kind of the packets inside.
    pub mode: PacketTypeMode,
    /// Fields of ERSPAN headers.
    pub erspan: Erspan,
    /// Bareudp: Ethernet type of the packets inside.
    pub payload_type: Option<u16>,
    /// SRv6: the route; empty for the other end alone.
    pub segments: Vec<Ipv6Addr>,
    /// SRv6: flow label of outer headers.
    pub flow_label: FlowLabel,
}

impl Config {
    /// Returns how many bytes longer than a packet of the overlay its outer packet is: outer headers
    /// without options of Geneve, and the packet's own Ethernet header, if the tunnel carries it.
    pub fn overhead(&self) -> u32 {
        const UDP: u32 = 8;
        const ETHERNET: u32 = 14;
        let ip = if matches!(self.remote, OrFlow::Fixed(IpAddr::V6(_))) { 40 } else { 20 };
        let layer2 = if self.mode == PacketTypeMode::LegacyL3 { 0 } else { ETHERNET };
        let field = |is_there: bool| if is_there { 4 } else { 0 };
        let header = match self.kind {
            TunnelKind::Vxlan | TunnelKind::Geneve | TunnelKind::Lisp | TunnelKind::Gtpu => UDP + 8,
            TunnelKind::Bareudp => UDP,
            TunnelKind::Gre | TunnelKind::Ip6Gre => {
                4 + field(self.checksum) + field(self.out_key.is_some()) + field(self.sequence)
            }
            TunnelKind::Erspan | TunnelKind::Ip6Erspan => {
                8 + if self.erspan.version == OrFlow::Fixed(1) { 8 } else { 12 }
            }
            TunnelKind::Srv6 => 8 + 16 * self.segments.len() as u32,
            TunnelKind::Stt => 20 + 18,
        };
        ip + header + layer2
    }

    /// Returns the options of a vport that only names its other end.
    pub fn new(kind: TunnelKind, remote: OrFlow<IpAddr>) -> Config {
        Config {
            kind,
            is_kernel: false,
            remote,
            local: None,
            in_key: None,
            out_key: None,
            port: default_port(kind).unwrap_or(0),
            ttl: Ttl::Fixed(DEFAULT_TTL),
            tos: Tos::Fixed(0),
            dont_fragment: true,
            checksum: false,
            sequence: false,
            egress_mark: None,
            extensions: Extensions::default(),
            mode: PacketTypeMode::default_of(kind),
            erspan: Erspan::default(),
            payload_type: None,
            segments: Vec::new(),
            flow_label: FlowLabel::Copy,
        }
    }

    /// Returns the kind of the datapath port that carries this vport.
    pub const fn backing_kind(&self) -> PortKind {
        match self.is_kernel {
            true => PortKind::TunnelVport(self.kind),
            false => PortKind::Tunnel(self.kind),
        }
    }

    /// Returns the name of the datapath port that carries this vport.
    pub fn backing_name(&self) -> String {
        super::backing_name(self.kind, self.port)
    }

    /// Returns the options of the datapath port that carries this vport: those by which it takes
    /// outer headers off.
    pub fn backing_options(&self) -> BTreeMap<String, String> {
        let mut out = BTreeMap::new();
        if default_port(self.kind).is_some() {
            out.insert("dst_port".to_owned(), self.port.to_string());
        }
        // A port takes headers of the generic protocol extension next to plain ones, so `gpe` is no
        // option of it.
        if self.extensions.gbp {
            out.insert("exts".to_owned(), "gbp".to_owned());
        }
        if let Some(kind) = self.payload_type {
            out.insert("payload_type".to_owned(), format!("{kind:#x}"));
        }
        out
    }

    /// Returns the options that differ from their defaults, as `dpif/show` lists them.
    pub fn options(&self) -> BTreeMap<&'static str, String> {
        let mut out = BTreeMap::new();
        out.insert("remote_ip", text_of(self.remote));
        if let Some(local) = self.local {
            out.insert("local_ip", text_of(local));
        }
        if self.in_key == self.out_key {
            if let Some(key) = self.in_key {
                out.insert("key", text_of(key));
            }
        } else {
            if let Some(key) = self.in_key {
                out.insert("in_key", text_of(key));
            }
            if let Some(key) = self.out_key {
                out.insert("out_key", text_of(key));
            }
        }
        match self.ttl {
            Ttl::Inherit => drop(out.insert("ttl", "inherit".to_owned())),
            Ttl::Fixed(DEFAULT_TTL) => {}
            Ttl::Fixed(ttl) => drop(out.insert("ttl", ttl.to_string())),
        }
        match self.tos {
            Tos::Inherit => drop(out.insert("tos", "inherit".to_owned())),
            Tos::Fixed(0) => {}
            Tos::Fixed(tos) => drop(out.insert("tos", format!("{tos:#x}"))),
        }
        if self.port != 0
            && (default_port(self.kind) != Some(self.port) || self.kind == TunnelKind::Bareudp)
        {
            out.insert("dst_port", self.port.to_string());
        }
        if self.checksum {
            out.insert("csum", "true".to_owned());
        }
        if self.sequence {
            out.insert("seq", "true".to_owned());
        }
        if self.mode != PacketTypeMode::default_of(self.kind) {
            out.insert("packet_type", self.mode.as_str().to_owned());
        }
        if !self.dont_fragment {
            out.insert("df_default", "false".to_owned());
        }
        if let Some(mark) = self.egress_mark {
            out.insert("egress_pkt_mark", mark.to_string());
        }
        if !self.segments.is_empty() {
            let segments: Vec<String> = self.segments.iter().map(ToString::to_string).collect();
            out.insert("srv6_segs", segments.join(","));
        }
        match self.flow_label {
            FlowLabel::Copy => {}
            FlowLabel::Zero => drop(out.insert("srv6_flowlabel", "zero".to_owned())),
            FlowLabel::Compute => drop(out.insert("srv6_flowlabel", "compute".to_owned())),
        }
        if matches!(self.kind, TunnelKind::Erspan | TunnelKind::Ip6Erspan) {
            self.erspan_options(&mut out);
        }
        out
    }

    fn erspan_options(&self, out: &mut BTreeMap<&'static str, String>) {
        let Erspan { version, index, direction, hardware_id } = self.erspan;
        let hex = |value: OrFlow<u32>| match value {
            OrFlow::Fixed(value) => format!("0x{value:x}"),
            OrFlow::Flow => "flow".to_owned(),
        };
        out.insert("erspan_ver", text_of(version));
        // With a version from the flow Open vSwitch shows the other fields as such, too.
        let is_any = version.is_flow();
        if is_any {
            for name in ["erspan_idx", "erspan_dir", "erspan_hwid"] {
                out.insert(name, "flow".to_owned());
            }
        } else if version == OrFlow::Fixed(1) {
            out.insert("erspan_idx", hex(index));
        } else if version == OrFlow::Fixed(2) {
            out.insert("erspan_dir", text_of(direction));
            let wide = match hardware_id {
                OrFlow::Fixed(id) => OrFlow::Fixed(u32::from(id)),
                OrFlow::Flow => OrFlow::Flow,
            };
            out.insert("erspan_hwid", hex(wide));
        }
    }

    /// Returns the line of `ofproto/list-tunnels` about a vport called `name`, which the datapath
    /// port with the number `backing` carries.
    pub fn line(&self, name: &str, backing: datapath::PortNo) -> String {
        use std::fmt::Write as _;
        let mut out = format!(
            "port {backing}: {name} ({}: {}",
            self.kind_text(),
            super::VportMatch::of(self, backing)
        );
        let mut add = |text: std::fmt::Arguments<'_>| {
            let _ = write!(out, ", {text}"); // a String takes all writes
        };
        if self.in_key != self.out_key {
            match self.out_key {
                None => add(format_args!("out_key=none")),
                Some(OrFlow::Flow) => add(format_args!("out_key=flow")),
                Some(OrFlow::Fixed(key)) => add(format_args!("out_key={}", c_hex(key))),
            }
        }
        match self.ttl {
            Ttl::Inherit => add(format_args!("ttl=inherit")),
            Ttl::Fixed(ttl) => add(format_args!("ttl={ttl}")),
        }
        match self.tos {
            Tos::Inherit => add(format_args!("tos=inherit")),
            Tos::Fixed(0) => {}
            Tos::Fixed(tos) => add(format_args!("tos={}", c_hex(u64::from(tos)))),
        }
        if !self.dont_fragment {
            add(format_args!("df=false"));
        }
        if self.checksum {
            add(format_args!("csum=true"));
        }
        out.push(')');
        out
    }

    /// Returns the text of `Interface:type`.
    pub const fn kind_text(&self) -> &'static str {
        self.kind.as_str()
    }
}

fn text_of<T: std::fmt::Display>(value: OrFlow<T>) -> String {
    match value {
        OrFlow::Fixed(value) => value.to_string(),
        OrFlow::Flow => "flow".to_owned(),
    }
}

/// Returns a number as C's `%#x` prints it: no prefix on zero.
pub(super) fn c_hex(value: u64) -> String {
    if value == 0 { "0".to_owned() } else { format!("{value:#x}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datapath::PortNo;

    fn config(kind: TunnelKind) -> Config {
        Config::new(kind, OrFlow::Fixed(IpAddr::from([1, 1, 2, 92])))
    }

    fn shown(config: &Config) -> String {
        let pairs = config.options().into_iter().map(|(k, v)| format!("{k}={v}"));
        pairs.collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn outer_headers_take_their_bytes() {
        let six = OrFlow::Fixed(IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1u16]));
        assert_eq!(config(TunnelKind::Vxlan).overhead(), 50);
        assert_eq!(Config::new(TunnelKind::Geneve, six).overhead(), 70);
        assert_eq!(config(TunnelKind::Gre).overhead(), 38);
        let key = Some(OrFlow::Flow);
        let long =
            Config { out_key: key, checksum: true, sequence: true, ..config(TunnelKind::Gre) };
        assert_eq!(long.overhead(), 50);
        assert_eq!(config(TunnelKind::Gtpu).overhead(), 36);
        let mut erspan = config(TunnelKind::Erspan);
        erspan.erspan.version = OrFlow::Fixed(1);
        assert_eq!(erspan.overhead(), 50);
    }

    #[test]
    fn defaults_are_not_shown() {
        assert_eq!(shown(&config(TunnelKind::Vxlan)), "remote_ip=1.1.2.92");
        assert_eq!(shown(&config(TunnelKind::Gtpu)), "remote_ip=1.1.2.92");
        let mut gre = config(TunnelKind::Gre);
        gre.mode = PacketTypeMode::LegacyL3;
        (gre.ttl, gre.tos, gre.dont_fragment) = (Ttl::Fixed(1), Tos::Inherit, false);
        assert_eq!(
            shown(&gre),
            "df_default=false, packet_type=legacy_l3, remote_ip=1.1.2.92, tos=inherit, ttl=1"
        );
    }

    #[test]
    fn keys_are_shown_once_when_they_are_equal() {
        let mut c = config(TunnelKind::Gre);
        (c.in_key, c.out_key) = (Some(OrFlow::Fixed(5)), Some(OrFlow::Fixed(5)));
        assert_eq!(shown(&c), "key=5, remote_ip=1.1.2.92");
        c.out_key = Some(OrFlow::Flow);
        assert_eq!(shown(&c), "in_key=5, out_key=flow, remote_ip=1.1.2.92");
    }

    #[test]
    fn erspan_shows_the_fields_of_its_version() {
        let mut c = config(TunnelKind::Erspan);
        (c.erspan.version, c.erspan.index) = (OrFlow::Fixed(1), OrFlow::Fixed(3));
        assert_eq!(shown(&c), "erspan_idx=0x3, erspan_ver=1, remote_ip=1.1.2.92");
        (c.erspan.version, c.erspan.hardware_id) = (OrFlow::Fixed(2), OrFlow::Fixed(7));
        assert_eq!(shown(&c), "erspan_dir=0, erspan_hwid=0x7, erspan_ver=2, remote_ip=1.1.2.92");
        c.erspan.version = OrFlow::Flow;
        assert_eq!(
            shown(&c),
            "erspan_dir=flow, erspan_hwid=flow, erspan_idx=flow, erspan_ver=flow, remote_ip=1.1.2.92"
        );
    }

    #[test]
    fn list_tunnels_lines() {
        let mut c = Config::new(TunnelKind::Vxlan, OrFlow::Flow);
        assert_eq!(
            c.line("p2", PortNo(4789)),
            "port 4789: p2 (vxlan: ::->flow, key=0, legacy_l2, dp port=4789, ttl=64)"
        );
        (c.in_key, c.out_key) = (Some(OrFlow::Fixed(5)), None);
        (c.local, c.checksum) = (Some(OrFlow::Flow), true);
        assert_eq!(
            c.line("p2", PortNo(3)),
            "port 3: p2 (vxlan: flow->flow, key=0x5, legacy_l2, dp port=3, out_key=none, ttl=64, csum=true)"
        );
    }
}
