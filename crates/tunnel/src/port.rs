// SPDX-License-Identifier: Apache-2.0
//! Tunnel ports of a datapath.

use crate::Kind;
use packet::ethertype;

/// The configuration of a tunnel port of a datapath. All ports of a switch with equal values share one port of
/// the datapath.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PortConfig {
    /// The kind of tunnel.
    pub kind: Kind,
    /// The UDP port of received packets; 0 for kinds without UDP.
    pub udp_port: u16,
    /// VXLAN: headers have group policy. Such a port accepts no generic protocol extension.
    pub has_group_policy: bool,
    /// Bareudp: the Ethernet type of the payload. With IPv4 or IPv6 a packet's own version decides.
    pub payload_type: u16,
}

impl PortConfig {
    /// Returns the port of `kind` with usual values.
    pub fn new(kind: Kind) -> PortConfig {
        let udp_port = kind.udp_port().unwrap_or(0);
        PortConfig { kind, udp_port, has_group_policy: false, payload_type: ethertype::IPV4 }
    }

    /// Reads the options of an Interface row: `dst_port`, `exts` and `payload_type`; others are not
    /// about received packets.
    ///
    /// # Errors
    ///
    /// A sentence that names the option, its value, and what is expected.
    pub fn from_options<'a>(
        kind: Kind,
        option: impl Fn(&str) -> Option<&'a str>,
    ) -> Result<PortConfig, String> {
        let mut port = PortConfig::new(kind);
        if kind.udp_port().is_some()
            && let Some(text) = option("dst_port")
        {
            port.udp_port = text.parse().ok().filter(|n| *n != 0).ok_or_else(|| {
                format!("options:dst_port: \"{text}\" is not a number from 1 to 65535")
            })?;
        }
        if kind == Kind::Vxlan
            && let Some(text) = option("exts")
        {
            port.has_group_policy = text.split(',').any(|word| word.trim() == "gbp");
        }
        if kind == Kind::Bareudp
            && let Some(text) = option("payload_type")
        {
            port.payload_type = payload_type(text).ok_or_else(|| {
                format!("options:payload_type: \"{text}\" is neither mpls, ip nor an Ethernet type")
            })?;
        }
        Ok(port)
    }

    /// Returns the name of the datapath's port, such as `vxlan_sys_4789`.
    pub fn name(&self) -> String {
        let port = self.udp_port;
        match self.kind {
            Kind::Bareudp => format!("udp_sys_{port}"),
            Kind::Erspan => "erspan_sys".to_owned(),
            Kind::Geneve => format!("genev_sys_{port}"),
            Kind::Gre => "gre_sys".to_owned(),
            Kind::Gtpu => format!("gtpu_sys_{port}"),
            Kind::Ip6Erspan => "ip6erspan_sys".to_owned(),
            Kind::Ip6Gre => "ip6gre_sys".to_owned(),
            Kind::Lisp => format!("lisp_sys_{port}"),
            Kind::Srv6 => "srv6_sys".to_owned(),
            Kind::Stt => "stt_sys_7471".to_owned(),
            Kind::Vxlan => format!("vxlan_sys_{port}"),
        }
    }
}

fn payload_type(text: &str) -> Option<u16> {
    match text {
        "mpls" => Some(ethertype::MPLS),
        "ip" => Some(ethertype::IPV4),
        _ => match text.strip_prefix("0x") {
            Some(hex) => u16::from_str_radix(hex, 16).ok(),
            None => text.parse().ok(),
        }
        .filter(|kind| *kind >= ethertype::MIN),
    }
}
