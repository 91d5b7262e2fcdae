// SPDX-License-Identifier: Apache-2.0
//! Which device an Interface row asks for.

use super::desired::{DesiredInterface, Map};
use crate::args::DummyLevel;

/// Types that OVS has and that this version has not.
const TUNNELS: [&str; 10] =
    ["bareudp", "erspan", "geneve", "gre", "gtpu", "ip6erspan", "ip6gre", "lisp", "stt", "vxlan"];
/// Types without a tunnel or dummy.
const DEVICES: [&str; 5] = ["afxdp", "afxdp-nonpmd", "internal", "system", "tap"];
const DUMMIES: [&str; 3] = ["dummy", "dummy-internal", "dummy-pmd"];

/// How to make a port of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Open a device.
    Device {
        /// Type to open, as in `datapath::PortSpec::kind`.
        kind: &'static str,
        /// Type to show people; differs in dummy mode.
        shown: String,
        /// Options whose change means to open the device anew.
        options: Map,
    },
    /// A patch port to the interface of this name.
    Patch {
        /// The other end.
        peer: String,
    },
}

/// The types that `iface_types` lists.
pub(super) fn types(dummy: DummyLevel) -> Vec<&'static str> {
    let dummies: &[&str] = if dummy == DummyLevel::Off { &[] } else { &DUMMIES };
    let mut types: Vec<&str> = DEVICES.iter().chain(dummies).copied().chain(["patch"]).collect();
    types.sort_unstable();
    types
}

/// True when bridges of this type have dummies for internal ports.
pub(super) fn is_dummy_datapath(datapath_type: &str, dummy: DummyLevel) -> bool {
    match dummy {
        DummyLevel::Off => false,
        DummyLevel::New => datapath_type == "dummy",
        DummyLevel::System => matches!(datapath_type, "" | "system" | "dummy"),
        DummyLevel::Override => true,
    }
}

/// Makes sense of an interface of `bridge`. The error is for the `error` column.
pub(super) fn form(
    wanted: &DesiredInterface,
    bridge: &str,
    datapath_type: &str,
    dummy: DummyLevel,
) -> Result<Form, String> {
    let name = &wanted.name;
    let asked = match wanted.kind.as_str() {
        _ if name == bridge => "internal",
        "" => "system",
        kind => kind,
    };
    if asked == "patch" {
        return match wanted.options.get("peer").map(String::as_str) {
            None | Some("") => Err(format!("{name}: patch type requires valid 'peer' argument")),
            Some(peer) if peer == name => Err(format!("{name}: patch peer must not be self")),
            Some(peer) => Ok(Form::Patch { peer: peer.to_owned() }),
        };
    }
    let is_dummy = DUMMIES.contains(&asked);
    let tunnel = TUNNELS.contains(&asked);
    let Some(kind) = DEVICES.iter().chain(&DUMMIES).chain(&TUNNELS).find(|k| **k == asked).copied()
    else {
        return Err(unknown(name, asked));
    };
    let device = |kind: &'static str, shown: &str, keys: &[&str]| {
        let options = wanted.options.iter().filter(|(k, _)| keys.contains(&k.as_str()));
        let affinity = wanted.other_config.get_key_value("pmd-rxq-affinity");
        Ok(Form::Device {
            kind,
            shown: shown.to_owned(),
            options: options.chain(affinity).map(|(k, v)| (k.clone(), v.clone())).collect(),
        })
    };
    if is_dummy {
        return if dummy == DummyLevel::Off {
            Err(unknown(name, asked))
        } else {
            device(kind, kind, &["n_rxq", "ifindex"])
        };
    }
    if asked == "internal" && is_dummy_datapath(datapath_type, dummy) {
        return device("dummy-internal", "dummy-internal", &["n_rxq", "ifindex"]);
    }
    if dummy == DummyLevel::Override || dummy == DummyLevel::System && asked == "system" {
        return device("dummy", asked, &["n_rxq", "ifindex"]);
    }
    if tunnel {
        return Err(format!(
            "{name}: interface type {asked} is not supported by this version of Slipswitch"
        ));
    }
    match kind {
        "afxdp" | "afxdp-nonpmd" => device(kind, kind, &["n_rxq", "xdp-mode", "use-need-wakeup"]),
        _ => device(kind, kind, &["n_rxq"]),
    }
}

/// OVS's words.
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
        let wanted = DesiredInterface {
            uuid: None,
            name: name.to_owned(),
            kind: kind.to_owned(),
            options: Map::new(),
            other_config: Map::new(),
            ofport_request: None,
            ofport: None,
            mac: None,
            mtu: None,
            policing: (0, 0),
        };
        match form(&wanted, "br0", datapath_type, dummy)? {
            Form::Device { kind, shown, .. } => Ok((kind, shown)),
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
        assert!(off("p", "vxlan").unwrap_err().contains("vxlan is not supported"));
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
        let mut wanted = DesiredInterface {
            uuid: None,
            name: "p".to_owned(),
            kind: "patch".to_owned(),
            options: Map::from([("peer".to_owned(), "p".to_owned())]),
            other_config: Map::new(),
            ofport_request: None,
            ofport: None,
            mac: None,
            mtu: None,
            policing: (0, 0),
        };
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
            ["afxdp", "afxdp-nonpmd", "internal", "patch", "system", "tap"]
        );
        assert!(types(DummyLevel::New).contains(&"dummy-pmd"));
    }
}
