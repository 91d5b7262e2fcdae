// SPDX-License-Identifier: Apache-2.0
//! Reassembly of fragments: `ipf-*`.

use super::conntrack::tracking;
use super::{Dpctl, INVALID, NOT_PERMITTED, failure, require};
use conntrack::{Family, OutOfRange, StatusDetail};

pub(super) fn register(dpctl: &Dpctl<'_>) {
    for (name, is_on, text) in [
        ("ipf-set-enabled", true, "enabling fragmentation reassembly successful"),
        ("ipf-set-disabled", false, "disabling fragmentation reassembly successful"),
    ] {
        dpctl.add(name, 1, 2, move |daemon, words| {
            let ([family], _) = words.exactly(daemon)?;
            let family = family_of(family).ok_or_else(|| {
                failure("parameter missing: 'v4' for IPv4 or 'v6' for IPv6", INVALID)
            })?;
            let fragments = tracking(daemon)?.fragments();
            if is_on {
                fragments.enable(family)
            } else {
                fragments.disable(family)
            }
            Ok(text.to_owned())
        });
    }
    dpctl.add("ipf-set-min-frag", 2, 3, |daemon, words| {
        let ([family, size], _) = words.exactly(daemon)?;
        let family = family_of(family)
            .ok_or_else(|| failure("parameter missing: v4 for IPv4 or v6 for IPv6", INVALID))?;
        let size = size
            .parse()
            .map_err(|_| failure("parameter missing for minimum fragment size", INVALID))?;
        let is_set = tracking(daemon)?.fragments().set_min_size(family, size);
        is_set.map_err(|OutOfRange| {
            let what = "requested minimum fragment size too small; see documentation";
            failure(what, NOT_PERMITTED)
        })?;
        Ok("setting minimum fragment size successful".to_owned())
    });
    dpctl.add("ipf-set-max-nfrags", 1, 2, |daemon, words| {
        let ([max], _) = words.exactly(daemon)?;
        let max =
            max.parse().map_err(|_| failure("parameter missing for maximum fragments", INVALID))?;
        let is_set = tracking(daemon)?.fragments().set_max_fragments(max);
        is_set.map_err(|OutOfRange| failure("setting maximum fragments failed", NOT_PERMITTED))?;
        Ok("setting maximum fragments successful".to_owned())
    });
    dpctl.add("ipf-get-status", 0, 1, |daemon, words| {
        require(daemon)?;
        let detail = if words.verbose { StatusDetail::Lists } else { StatusDetail::Counters };
        let ([], _) = words.exactly(daemon)?;
        Ok(tracking(daemon)?.fragments().status_text(detail))
    });
}

fn family_of(text: &str) -> Option<Family> {
    match text {
        "v4" => Some(Family::V4),
        "v6" => Some(Family::V6),
        _ => None,
    }
}
