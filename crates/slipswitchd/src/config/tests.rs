// SPDX-License-Identifier: Apache-2.0
//! Nonsense in rows: read without a panic, and never into something out of range.

use super::address::{parse_datapath_id, parse_station};
use super::desired::DesiredInterface;
use super::device::{Form, form};
use super::vlan;
use crate::args::DummyLevel;
use ovsdb::{Datum, Row};
use proptest::prelude::*;
use std::sync::Arc;

fn datum() -> impl Strategy<Value = Datum> {
    prop_oneof![
        Just(Datum::empty()),
        any::<i64>().prop_map(Datum::from),
        (-2i64..5000).prop_map(Datum::from),
        any::<bool>().prop_map(Datum::from),
        "\\PC{0,12}".prop_map(|s| Datum::from(s.as_str())),
        proptest::collection::vec(-5i64..4200, 0..9).prop_map(Datum::set),
        Just(Datum::from("native-tagged")),
        Just(Datum::from("dot1q-tunnel")),
        proptest::collection::vec(("[a-z-]{1,14}", "\\PC{0,8}"), 0..4)
            .prop_map(|pairs| Datum::map(pairs.iter().map(|(k, v)| (k.as_str(), v.as_str())))),
    ]
}

proptest! {
    #[test]
    fn vlan_settings_are_in_range(
        columns in proptest::collection::vec(datum(), 7)
    ) {
        let names = ["tag", "trunks", "cvlans", "vlan_mode", "other_config", "protected", "name"];
        let row = Row::new(names.into_iter().map(Arc::from).zip(columns));
        let (settings, _) = vlan::settings("p", &row);
        prop_assert!(settings.tag <= 4095);
        for list in [&settings.trunks, &settings.cvlans] {
            prop_assert!(list.iter().all(|v| *v <= 4095));
            prop_assert!(list.is_sorted());
        }
        prop_assert!(matches!(settings.qinq_tpid, 0x8100 | 0x88a8));
        prop_assert!(vlan::same(&settings, &settings));
    }

    #[test]
    fn addresses_of_any_text(text in "\\PC{0,24}") {
        let _ = parse_station(&text);
        prop_assert_ne!(parse_datapath_id(&text), Some(0));
    }

    #[test]
    fn a_form_or_a_reason_for_any_interface(
        name in "\\PC{0,20}",
        kind in prop_oneof!["\\PC{0,12}", Just("patch".to_owned()), Just("system".to_owned()), Just("dummy".to_owned())],
        peer in proptest::option::of("\\PC{0,12}"),
        dummy in prop_oneof![Just(DummyLevel::Off), Just(DummyLevel::New), Just(DummyLevel::System), Just(DummyLevel::Override)],
    ) {
        let mut wanted = DesiredInterface::new(&name, &kind);
        wanted.options.extend(peer.map(|p| ("peer".to_owned(), p)));
        match form(&wanted, "br0", "", dummy) {
            Ok(Form::Patch { peer }) => prop_assert_ne!(peer, name),
            Ok(Form::Device { kind, .. }) => {
                prop_assert!(kind.device().is_some());
                prop_assert!(dummy != DummyLevel::Off || !kind.is_dummy());
            }
            Ok(Form::Tunnel { .. }) => prop_assert!(false, "a tunnel without remote_ip"),
            Err(error) => prop_assert!(error.contains(&name)),
        }
    }
}
