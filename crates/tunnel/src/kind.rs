// SPDX-License-Identifier: Apache-2.0
//! Kinds of tunnels.

/// A kind of tunnel. `Lisp` and `Stt` exist as types of ports only: no datapath here has their
/// headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names are those of the protocols")]
pub enum Kind {
    Bareudp,
    Erspan,
    Geneve,
    Gre,
    Gtpu,
    Ip6Erspan,
    Ip6Gre,
    Lisp,
    Srv6,
    Stt,
    Vxlan,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 11] = [
        Kind::Bareudp,
        Kind::Erspan,
        Kind::Geneve,
        Kind::Gre,
        Kind::Gtpu,
        Kind::Ip6Erspan,
        Kind::Ip6Gre,
        Kind::Lisp,
        Kind::Srv6,
        Kind::Stt,
        Kind::Vxlan,
    ];

    /// Returns the text of `Interface:type`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Kind::Bareudp => "bareudp",
            Kind::Erspan => "erspan",
            Kind::Geneve => "geneve",
            Kind::Gre => "gre",
            Kind::Gtpu => "gtpu",
            Kind::Ip6Erspan => "ip6erspan",
            Kind::Ip6Gre => "ip6gre",
            Kind::Lisp => "lisp",
            Kind::Srv6 => "srv6",
            Kind::Stt => "stt",
            Kind::Vxlan => "vxlan",
        }
    }

    /// Returns the number in `header(type=N)` of `tnl_push` (`enum ovs_vport_type` of
    /// include/linux/openvswitch.h in Open vSwitch).
    pub const fn number(self) -> u32 {
        match self {
            Kind::Gre => 3,
            Kind::Vxlan => 4,
            Kind::Geneve => 5,
            Kind::Lisp => 105,
            Kind::Stt => 106,
            Kind::Erspan => 107,
            Kind::Ip6Erspan => 108,
            Kind::Ip6Gre => 109,
            Kind::Gtpu => 110,
            Kind::Bareudp => 111,
            Kind::Srv6 => 112,
        }
    }

    /// Returns the kind with this number; `None`: there is none.
    pub fn from_number(number: u32) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.number() == number)
    }

    /// Returns the usual destination port of a kind over UDP; `None` for other kinds.
    pub const fn udp_port(self) -> Option<u16> {
        match self {
            Kind::Bareudp => Some(6635), // MPLS over UDP (RFC 7510)
            Kind::Geneve => Some(6081),
            Kind::Gtpu => Some(2152),
            Kind::Lisp => Some(4341),
            Kind::Vxlan => Some(4789),
            Kind::Erspan | Kind::Gre | Kind::Ip6Erspan | Kind::Ip6Gre | Kind::Srv6 | Kind::Stt => {
                None
            }
        }
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
