// SPDX-License-Identifier: Apache-2.0
//! The device that an Interface row asks for.

use super::desired::{DesiredInterface, Map};
use super::tunnel as tunnel_options;
use crate::args::DummyLevel;
use bridge::tunnel;
use datapath::PortKind;
use std::sync::Arc;

/// Options of a dummy whose change opens it again.
const DUMMY_OPTIONS: &[&str] = &["n_rxq", "ifindex"];

/// How to make a port of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Open a device.
    Device {
        /// Kind to open, as in `datapath::PortSpec::kind`.
        kind: PortKind,
        /// Kind that texts show; in dummy mode it may differ from `kind`.
        shown: PortKind,
        /// Options whose change opens the device again.
        options: Map,
    },
    /// A tunnel port.
    Tunnel {
        /// Options in force.
        config: Arc<tunnel::Config>,
        /// Lines for the log about options that are not.
        complaints: Option<String>,
    },
    /// A patch port to the interface of this name.
    Patch {
        /// Name of the interface at the other end.
        peer: String,
    },
}

/// Returns the types that `iface_types` lists, sorted.
pub(super) fn types(dummy: DummyLevel) -> Vec<&'static str> {
    let is_listed = |kind: &PortKind| !kind.is_dummy() || dummy != DummyLevel::Off;
    let mut types: Vec<&str> =
        PortKind::ALL.into_iter().filter(is_listed).map(PortKind::as_str).collect();
    types.sort_unstable();
    types
}

/// Returns true when bridges of this type have dummies for internal ports.
pub(super) fn is_dummy_datapath(datapath_type: &str, dummy: DummyLevel) -> bool {
    match dummy {
        DummyLevel::Off => false,
        DummyLevel::New => datapath_type == "dummy",
        DummyLevel::System => matches!(datapath_type, "" | "system" | "dummy"),
        DummyLevel::Override => true,
    }
}

/// Returns the way to make a port of an interface of `bridge`.
///
/// # Errors
/// The interface asks for a port that cannot be made. The text is for the `error` column.
pub(super) fn form(
    wanted: &DesiredInterface,
    bridge: &str,
    datapath_type: &str,
    dummy: DummyLevel,
) -> Result<Form, String> {
    let name = &wanted.name;
    let text = wanted.kind.as_str();
    let asked = match PortKind::from_type(text) {
        _ if name == bridge => PortKind::Internal,
        Some(kind) if !kind.is_dummy() || dummy != DummyLevel::Off => kind,
        _ => return Err(unknown(name, text)),
    };
    let device = |kind, shown, keys: &[&str]| {
        let options = wanted.options.iter().filter(|(k, _)| keys.contains(&k.as_str()));
        let affinity = wanted.other_config.get_key_value("pmd-rxq-affinity");
        Ok(Form::Device {
            kind,
            shown,
            options: options.chain(affinity).map(|(k, v)| (k.clone(), v.clone())).collect(),
        })
    };
    let is_replaced =
        dummy == DummyLevel::Override || dummy == DummyLevel::System && asked == PortKind::System;
    match asked {
        PortKind::Patch => match wanted.options.get("peer").map(String::as_str) {
            None | Some("") => Err(format!("{name}: patch type requires valid 'peer' argument")),
            Some(peer) if peer == name => Err(format!("{name}: patch peer must not be self")),
            Some(peer) => Ok(Form::Patch { peer: peer.to_owned() }),
        },
        PortKind::Dummy | PortKind::DummyInternal | PortKind::DummyPmd => {
            device(asked, asked, DUMMY_OPTIONS)
        }
        PortKind::Internal if is_dummy_datapath(datapath_type, dummy) => {
            device(PortKind::DummyInternal, PortKind::DummyInternal, DUMMY_OPTIONS)
        }
        _ if is_replaced => device(PortKind::Dummy, asked, DUMMY_OPTIONS),
        PortKind::Tunnel(kind) => {
            let (config, complaints) = tunnel_options::read(name, kind, &wanted.options)?;
            Ok(Form::Tunnel { config: Arc::new(config), complaints })
        }
        PortKind::AfXdp | PortKind::AfXdpNonPmd => {
            device(asked, asked, &["n_rxq", "xdp-mode", "use-need-wakeup"])
        }
        PortKind::System | PortKind::Internal | PortKind::Tap => device(asked, asked, &["n_rxq"]),
        PortKind::Underlay
        | PortKind::Vport
        | PortKind::InternalVport
        | PortKind::TunnelVport(_) => Err(unknown(name, asked.as_str())),
    }
}

/// Returns the text about an unknown type, in OVS's words.
fn unknown(name: &str, kind: &str) -> String {
    let cause = "Address family not supported by protocol";
    format!("could not open network device {name} ({cause}; unknown interface type \"{kind}\")")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(
        name: &str,
        kind: &str,
        datapath_type: &str,
        dummy: DummyLevel,
    ) -> Result<(&'static str, String), String> {
        let wanted = DesiredInterface::new(name, kind);
        match form(&wanted, "br0", datapath_type, dummy)? {
            Form::Device { kind, shown, .. } => Ok((kind.as_str(), shown.to_string())),
            Form::Tunnel { config, .. } => Ok((config.kind_text(), config.backing_name())),
            Form::Patch { peer } => Ok(("patch", peer)),
        }
    }

    #[test]
    fn types_without_dummies() {
        let off = |name: &str, kind: &str| of(name, kind, "", DummyLevel::Off);
        assert_eq!(off("p", "").unwrap().0, "system");
        assert_eq!(off("p", "system").unwrap().0, "system");
        assert_eq!(off("br0", "").unwrap().0, "internal");
        assert_eq!(off("p", "tap").unwrap().0, "tap");
        assert!(off("p", "dummy").unwrap_err().starts_with("could not open network device p ("));
        assert!(off("p", "nonsense").unwrap_err().contains("unknown interface type \"nonsense\""));
        assert_eq!(
            off("p", "vxlan").unwrap_err(),
            "p: vxlan type requires valid 'remote_ip' argument"
        );
        assert_eq!(off("p", "patch").unwrap_err(), "p: patch type requires valid 'peer' argument");
    }

    #[test]
    fn dummy_levels() {
        assert_eq!(of("p", "", "netdev", DummyLevel::New).unwrap().0, "system");
        assert_eq!(of("br0", "", "netdev", DummyLevel::New).unwrap().0, "internal");
        assert_eq!(of("br0", "", "dummy", DummyLevel::New).unwrap().0, "dummy-internal");
        assert_eq!(of("p", "dummy-pmd", "dummy", DummyLevel::New).unwrap().0, "dummy-pmd");
        assert_eq!(of("p", "", "", DummyLevel::System).unwrap(), ("dummy", "system".to_owned()));
        assert_eq!(of("p", "tap", "", DummyLevel::System).unwrap().0, "tap");
        assert_eq!(
            of("p", "vxlan", "", DummyLevel::Override).unwrap(),
            ("dummy", "vxlan".to_owned())
        );
        assert_eq!(
            of("i", "internal", "netdev", DummyLevel::Override).unwrap().0,
            "dummy-internal"
        );
        assert!(of("p", "nonsense", "", DummyLevel::Override).is_err());
    }

    #[test]
    fn patch_ports_need_a_peer_other_than_themselves() {
        let mut wanted = DesiredInterface::new("p", "patch");
        wanted.options.insert("peer".to_owned(), "p".to_owned());
        assert_eq!(
            form(&wanted, "br0", "", DummyLevel::Override).unwrap_err(),
            "p: patch peer must not be self"
        );
        wanted.options.insert("peer".to_owned(), "q".to_owned());
        assert_eq!(
            form(&wanted, "br0", "", DummyLevel::Off),
            Ok(Form::Patch { peer: "q".to_owned() })
        );
    }

    #[test]
    fn listed_types_are_sorted() {
        assert_eq!(
            types(DummyLevel::Off),
            [
                "afxdp",
                "afxdp-nonpmd",
                "bareudp",
                "erspan",
                "geneve",
                "gre",
                "gtpu",
                "internal",
                "ip6erspan",
                "ip6gre",
                "lisp",
                "patch",
                "srv6",
                "stt",
                "system",
                "tap",
                "vxlan"
            ]
        );
        assert!(types(DummyLevel::New).contains(&"dummy-pmd"));
    }
}
