// SPDX-License-Identifier: Apache-2.0
//! Matches and keys in OpenFlow syntax, in.

use crate::field::ValueError;
use crate::{Field, Key, Match};
use packet::{ethertype, ip_proto};

/// Why a flow text is none. The texts are OVS's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlowTextError {
    /// No field has this name.
    #[error("unknown field {0}")]
    UnknownField(String),
    /// A name without `=VALUE`.
    #[error("field {0} missing value")]
    MissingValue(String),
    /// The value does not fit the field.
    #[error("bad value for {name} ({error})")]
    BadValue {
        /// Name as given.
        name: String,
        /// Reason why the value is refused.
        error: ValueError,
    },
    /// The text before does not make the field meaningful.
    #[error("prerequisites not met for setting {0}")]
    Prerequisite(String),
    /// A second type word.
    #[error("Ethernet type set multiple times")]
    TypeTwice,
    /// A second protocol word.
    #[error("network protocol set multiple times")]
    ProtocolTwice,
    /// A field given twice.
    #[error("field {0} set multiple times")]
    Twice(String),
}

/// `tcp` and its like: Ethernet type and IP protocol.
fn shorthand(word: &str) -> Option<(Option<u16>, Option<u8>)> {
    use ethertype::{ARP, IPV4, IPV6, MPLS, MPLS_MULTICAST, RARP};
    Some(match word {
        "eth" => (None, None),
        "ip" => (Some(IPV4), None),
        "icmp" => (Some(IPV4), Some(ip_proto::ICMP)),
        "tcp" => (Some(IPV4), Some(ip_proto::TCP)),
        "udp" => (Some(IPV4), Some(ip_proto::UDP)),
        "sctp" => (Some(IPV4), Some(ip_proto::SCTP)),
        "arp" => (Some(ARP), None),
        "rarp" => (Some(RARP), None),
        "ipv6" | "ip6" => (Some(IPV6), None),
        "tcp6" => (Some(IPV6), Some(ip_proto::TCP)),
        "udp6" => (Some(IPV6), Some(ip_proto::UDP)),
        "sctp6" => (Some(IPV6), Some(ip_proto::SCTP)),
        "icmp6" => (Some(IPV6), Some(ip_proto::ICMPV6)),
        "mpls" => (Some(MPLS), None),
        "mplsm" => (Some(MPLS_MULTICAST), None),
        _ => return None,
    })
}

/// Splits at commas and white space that are not in parentheses; empty items vanish. Yields
/// name and value.
fn items(text: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    let mut depth = 0usize;
    text.split(move |c: char| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && (c == ',' || c.is_ascii_whitespace())
    })
    .filter(|item| !item.is_empty())
    .map(|item| item.split_once('=').map_or((item, None), |(n, v)| (n, Some(v))))
}

/// The field called `name`, given the IP protocol: `tp_src` is the port of the protocol at
/// hand, `icmp_type` ICMPv6's with IPv6.
fn field_of(name: &str, key: &Key) -> Option<Field> {
    let v6 = key.dl_type.get() == ethertype::IPV6;
    Some(match (name, key.nw_proto) {
        ("tp_src", ip_proto::UDP) => Field::UdpSrc,
        ("tp_dst", ip_proto::UDP) => Field::UdpDst,
        ("tp_src", ip_proto::SCTP) => Field::SctpSrc,
        ("tp_dst", ip_proto::SCTP) => Field::SctpDst,
        ("icmp_type", _) if v6 => Field::Icmpv6Type,
        ("icmp_code", _) if v6 => Field::Icmpv6Code,
        _ => Field::from_name(name)?,
    })
}

/// Reads a match in ovs-ofctl's syntax: type words (`tcp`) and `FIELD=VALUE[/MASK]`, in any
/// order but for prerequisites, which are not checked here (see
/// [`crate::field::Prerequisite::holds_for_match`]). `ports` finds ports by name.
///
/// # Errors
/// The first item that names no field, has no value, or has a value that its field does not take.
pub fn parse_match(
    text: &str,
    ports: &dyn Fn(&str) -> Option<u32>,
) -> Result<Match, FlowTextError> {
    let mut m = Match::ANY;
    // Type words first, so that `tp_src=1,udp` finds UDP's.
    for (name, value) in items(text) {
        if value.is_none()
            && let Some((dl_type, proto)) = shorthand(name)
        {
            match dl_type {
                Some(t) => m.set(Field::EthType, t.into()),
                None => m.set(Field::PacketType, 0),
            }
            if let Some(p) = proto {
                m.set(Field::IpProto, p.into());
            }
        }
    }
    for (name, value) in items(text) {
        if value.is_none() && shorthand(name).is_some() {
            continue;
        }
        let field =
            field_of(name, m.key()).ok_or_else(|| FlowTextError::UnknownField(name.to_string()))?;
        if field.option().is_some() {
            // The name alone means that the option is there.
            let (value, mask) = field
                .parse_wide(value.unwrap_or("0/0"), ports)
                .map_err(|error| FlowTextError::BadValue { name: name.to_string(), error })?;
            m.set_wide(field, &value, &mask);
            continue;
        }
        let value = value.ok_or_else(|| FlowTextError::MissingValue(name.to_string()))?;
        let (value, mask) = field
            .parse_value(value, ports)
            .map_err(|error| FlowTextError::BadValue { name: name.to_string(), error })?;
        m.set_masked(field, value, mask);
    }
    Ok(m)
}

/// Reads the key of one packet in OpenFlow syntax, as `ofproto/trace` takes it: no wildcards,
/// nothing twice, prerequisites before the fields that need them. `in_port` is 0xffffffff (ANY)
/// when it is not given.
///
/// # Errors
/// The first item that names no field, has a value that its field does not take or a mask, repeats
/// an item, or comes before its prerequisites. The error's text leaves out the flow's: OVS prints
/// `Bad openflow flow syntax: FLOW: ERROR`.
pub fn parse_exact_flow(
    text: &str,
    ports: &dyn Fn(&str) -> Option<u32>,
) -> Result<Key, FlowTextError> {
    let mut key = Key::ZERO;
    for (name, value) in items(text) {
        if value.is_none()
            && let Some((dl_type, proto)) = shorthand(name)
        {
            if let Some(t) = dl_type {
                if key.dl_type.get() != 0 {
                    return Err(FlowTextError::TypeTwice);
                }
                key.dl_type.set(t);
            }
            if let Some(p) = proto {
                if key.nw_proto != 0 {
                    return Err(FlowTextError::ProtocolTwice);
                }
                key.nw_proto = p;
            }
            continue;
        }
        let field =
            field_of(name, &key).ok_or_else(|| FlowTextError::UnknownField(name.to_string()))?;
        // A VLAN id and a priority make one header together.
        if field.load(&key) != 0 {
            return Err(FlowTextError::Twice(name.to_string()));
        }
        let bad = |error| FlowTextError::BadValue { name: name.to_string(), error };
        let given = value.unwrap_or_default();
        let (value, mask) = field.parse_wide(given, ports).map_err(bad)?;
        if mask != field.all_ones_wide() {
            return Err(bad(ValueError::Other(format!("{given}: wildcards not allowed here"))));
        }
        if !field.prerequisite().holds(&key) {
            return Err(FlowTextError::Prerequisite(name.to_string()));
        }
        field.store_wide(&mut key, &value);
    }
    if key.vlans[0].tci.get() & crate::VLAN_CFI != 0 {
        key.vlans[0].tpid.set(ethertype::VLAN);
    }
    if key.in_port.get() == 0 {
        key.in_port.set(u32::MAX);
    }
    Ok(key)
}
