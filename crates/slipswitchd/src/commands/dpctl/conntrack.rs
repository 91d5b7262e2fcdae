// SPDX-License-Identifier: Apache-2.0
//! Connection tracking: there is none yet. Commands that show something answer as a switch without
//! connections does. Commands that change something are refused.

use super::{Dpctl, INVALID, NOT_SUPPORTED, Words, failure, require};
use crate::commands::{ANY, Answer};
use crate::daemon::Daemon;

pub(super) fn register(dpctl: &Dpctl<'_>) {
    dpctl.add("dump-conntrack", 0, 4, |daemon, words| {
        let filters = after_datapath(daemon, words);
        match filters.as_slice() {
            [] => Ok(String::new()),
            [zone] => zone_of(zone).map(|_| String::new()).ok_or_else(super::no_datapath),
            _ => Err(super::no_datapath()),
        }
    });
    dpctl.add("flush-conntrack", 0, 4, |daemon, words| {
        let filters = after_datapath(daemon, words);
        for (i, filter) in filters.iter().enumerate() {
            if i == 0 && filter.starts_with("zone=") {
                zone_of(filter).ok_or_else(|| failure("failed to parse zone", INVALID))?;
            } else if !filter.contains('=') {
                return Err(failure(&format!("field {filter} missing value"), INVALID));
            }
        }
        Ok(String::new()) // nothing to flush
    });
    dpctl.add("ct-stats-show", 0, 3, |daemon, words| {
        require(daemon)?;
        let filters = after_datapath(daemon, words);
        if filters.iter().any(|f| *f != "verbose" && zone_of(f).is_none()) {
            return Err(super::no_datapath());
        }
        Ok("Connections Stats:\n    Total: 0\n".to_owned())
    });
    dpctl.add("ct-bkts", 0, 2, |daemon, words| {
        require(daemon)?;
        let filters = after_datapath(daemon, words);
        match filters.as_slice() {
            [] => {}
            [gt] if number(gt, "gt=").is_some() => {}
            _ => return Err(super::no_datapath()),
        }
        Ok("Total Buckets: 1\nCurrent Connections: 0\n\n".to_owned())
    });
    dpctl.add("ct-get-nconns", 0, 1, |daemon, words| {
        let ([], _) = words.exactly(daemon)?;
        Ok("0\n".to_owned())
    });
    dpctl.add("ct-get-limits", 0, 2, |daemon, words| {
        let filters = words.after_datapath(daemon, 2)?;
        let mut out = "default limit=0\n".to_owned();
        for filter in filters {
            let zones = zones(filter)
                .ok_or_else(|| failure(&format!("invalid argument {filter}"), INVALID))?;
            for zone in zones {
                out.push_str(&format!("zone={zone},limit=0,count=0\n"));
            }
        }
        Ok(out)
    });
    dpctl.add("ct-del-limits", 1, 2, |daemon, words| {
        let ([filter], _) = words.exactly(daemon)?;
        // No zone has a limit: there is nothing to remove.
        zones(filter)
            .map(|_| String::new())
            .ok_or_else(|| failure(&format!("invalid argument {filter}"), INVALID))
    });
    dpctl.add("ct-set-limits", 1, ANY, |daemon, words| {
        require(daemon)?;
        let limits = after_datapath(daemon, words);
        match limits.iter().find(|limit| !limit.contains('=')) {
            Some(bad) => Err(failure(&format!("field {bad} missing value"), INVALID)),
            None => no_tracking("failed to set conntrack limit"),
        }
    });
    for (name, min, max, what) in [
        ("ct-set-maxconns", 1, 2, "setting maxconns failed"),
        ("ct-get-maxconns", 0, 1, "maxconns could not be retrieved"),
        ("ct-enable-tcp-seq-chk", 0, 1, "enabling TCP sequence checking failed"),
        ("ct-disable-tcp-seq-chk", 0, 1, "disabling TCP sequence checking failed"),
        ("ct-get-tcp-seq-chk", 0, 1, "TCP sequence checking query failed"),
        ("ipf-set-enabled", 1, 2, "enabling fragmentation reassembly failed"),
        ("ipf-set-disabled", 1, 2, "disabling fragmentation reassembly failed"),
        ("ipf-set-min-frag", 2, 3, "setting minimum fragment size failed"),
        ("ipf-set-max-nfrags", 1, 2, "setting maximum fragments failed"),
        ("ipf-get-status", 0, 1, "ipf status could not be retrieved"),
    ] {
        dpctl.add(name, min, max, move |daemon, words| {
            words.after_datapath(daemon, max)?;
            no_tracking(what)
        });
    }
}

fn no_tracking(what: &str) -> Answer {
    Err(failure(&format!("{what}: there is no connection tracking yet"), NOT_SUPPORTED))
}

/// The words after the datapath's name.
fn after_datapath<'a>(daemon: &Daemon, mut words: Words<'a>) -> Vec<&'a str> {
    words.skip_datapath(daemon);
    words.rest
}

fn number(text: &str, prefix: &str) -> Option<u16> {
    text.strip_prefix(prefix)?.parse().ok()
}

fn zone_of(text: &str) -> Option<u16> {
    number(text, "zone=")
}

/// `zone=1,2,3`.
fn zones(text: &str) -> Option<Vec<u16>> {
    text.strip_prefix("zone=")?.split(',').map(|zone| zone.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_are_numbers() {
        assert_eq!(zones("zone=1,65535"), Some(vec![1, 65535]));
        for bad in ["zone=", "zone=x", "1", "zone=1,", "zone=65536"] {
            assert_eq!(zones(bad), None, "{bad}");
        }
        assert_eq!(zone_of("zone=7"), Some(7));
    }
}
