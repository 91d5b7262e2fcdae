// SPDX-License-Identifier: Apache-2.0
//! Limits of connections in zones: `ct-set-limits`, `ct-del-limits`, `ct-get-limits`.

use super::conntrack::tracking;
use super::{
    ANY, Dpctl, INVALID, NOT_PERMITTED, Words, failure, kernel_named, no_datapath, require,
};
use crate::commands::Answer;
use crate::daemon::Daemon;
use crate::zone_limits::{set_default_limit, set_zone_limit};
use conntrack::Counts;

/// The limits that a command sets.
#[derive(Debug, Default, PartialEq, Eq)]
struct Limits {
    default: Option<u32>,
    zones: Vec<(u16, u32)>,
}

pub(super) fn register(dpctl: &Dpctl<'_>) {
    dpctl.add("ct-set-limits", 1, ANY, |daemon, words| set(daemon, words));
    dpctl.add("ct-del-limits", 1, 3, |daemon, words| delete(daemon, words));
    dpctl.add("ct-get-limits", 0, 2, |daemon, words| {
        let kernel = words.rest.first().and_then(|name| kernel_named(daemon, name));
        let zones = match words.after_datapath(daemon, 2)?.as_slice() {
            [] => Vec::new(),
            [word] => zones_of(word)?,
            _ => return Err(no_datapath()),
        };
        match kernel {
            Some(kernel) => kernel.zone_limits_text(&zones).map_err(|e| failure(&e, INVALID)),
            None => Ok(counts(daemon)?.limits_text(&zones)),
        }
    });
}

/// Has the kernel's tracker follow a change of the limits.
fn followed(daemon: &Daemon) -> Answer {
    if let Some(coupled) = &daemon.coupled {
        coupled.follow_zone_limits();
    }
    Ok(String::new())
}

fn counts(daemon: &Daemon) -> Result<Counts<'_>, String> {
    Ok(tracking(daemon)?.tracker().table().counts())
}

fn set(daemon: &Daemon, mut words: Words<'_>) -> Answer {
    require(daemon)?;
    words.skip_datapath(daemon);
    refuse_if_configured(daemon, "set-zone-limit")?;
    let limits = parse(&words.rest).map_err(|error| failure(&error, INVALID))?;
    let counts = counts(daemon)?;
    if let Some(limit) = limits.default {
        set_default_limit(counts, limit);
    }
    for (zone, limit) in limits.zones {
        set_zone_limit(counts, zone, Some(limit));
    }
    followed(daemon)
}

fn delete(daemon: &Daemon, mut words: Words<'_>) -> Answer {
    require(daemon)?;
    words.skip_datapath(daemon);
    refuse_if_configured(daemon, "del-zone-limit")?;
    let has_default = words.rest.first() == Some(&"default");
    if has_default {
        words.rest.remove(0);
    }
    let zones = match words.rest.as_slice() {
        [] if has_default => Vec::new(),
        [] => return Err(failure("too few arguments", INVALID)),
        [word] => zones_of(word)?,
        _ => return Err(no_datapath()),
    };
    let counts = counts(daemon)?;
    if has_default {
        set_default_limit(counts, 0);
    }
    for zone in zones {
        if counts.limit(zone).is_some() {
            set_zone_limit(counts, zone, None);
        } else {
            tracing::info!(
                target: "conntrack",
                "Attempted delete of non-existent zone limit: zone {zone}"
            );
        }
    }
    followed(daemon)
}

/// Limits of the database are changed there alone.
fn refuse_if_configured(daemon: &Daemon, instead: &str) -> Result<(), String> {
    if daemon.configuration.has_zone_limits() {
        let text = format!(
            "the zone limits are set via database, use 'ovs-vsctl {instead} <...>' instead."
        );
        return Err(failure(&text, NOT_PERMITTED));
    }
    Ok(())
}

/// Parses `[default=L] [zone=N,limit=L]...`.
fn parse(words: &[&str]) -> Result<Limits, String> {
    let mut limits = Limits::default();
    let mut words = words.iter().peekable();
    if words.peek().is_none() {
        return Err("too few arguments".to_owned());
    }
    if let Some(text) = words.peek().and_then(|word| word.strip_prefix("default=")) {
        limits.default = Some(text.parse().map_err(|_| "invalid default limit".to_owned())?);
        words.next();
    }
    for word in words {
        limits.zones.push(parse_zone_limit(word)?);
    }
    Ok(limits)
}

fn parse_zone_limit(word: &str) -> Result<(u16, u32), String> {
    let (mut zone, mut limit) = (None, None);
    for field in word.split(',').filter(|field| !field.is_empty()) {
        let (key, value) = field.split_once('=').unwrap_or((field, ""));
        if value.is_empty() {
            return Err(format!("field {key} missing value"));
        }
        let bad = |_| format!("failed to parse field {key}");
        match key {
            "zone" => zone = Some(value.parse().map_err(bad)?),
            "limit" => limit = Some(value.parse().map_err(bad)?),
            _ => return Err(format!("invalid zone limit field: {key}")),
        }
    }
    zone.zip(limit).ok_or_else(|| "failed to parse zone limit".to_owned())
}

/// Parses `zone=1,2,3`.
fn zones_of(word: &str) -> Result<Vec<u16>, String> {
    let text = word
        .strip_prefix("zone=")
        .ok_or_else(|| failure(&format!("invalid argument {word}"), INVALID))?;
    let zones = text.split(',').filter(|zone| !zone.is_empty());
    let zones: Option<Vec<u16>> = zones.map(|zone| zone.parse().ok()).collect();
    zones.filter(|zones| !zones.is_empty()).ok_or_else(|| failure("invalid zone", INVALID))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_are_numbers() {
        assert_eq!(zones_of("zone=1,65535"), Ok(vec![1, 65535]));
        assert_eq!(zones_of("zone=1,"), Ok(vec![1]));
        for bad in ["zone=", "zone=x", "zone=65536", "zone=-1"] {
            assert_eq!(zones_of(bad), Err(failure("invalid zone", INVALID)), "{bad}");
        }
        assert_eq!(zones_of("foo"), Err(failure("invalid argument foo", INVALID)));
    }

    /// The errors are those of ovs-vswitchd 3.1.
    #[test]
    fn limits_of_a_command() {
        let limits = Limits { default: Some(10), zones: vec![(1, 5), (3, 0)] };
        assert_eq!(parse(&["default=10", "zone=1,limit=5", "limit=0,zone=3"]), Ok(limits));
        for (words, error) in [
            (&[][..], "too few arguments"),
            (&["zone=1"], "failed to parse zone limit"),
            (&["limit=1"], "failed to parse zone limit"),
            (&["zone=x,limit=1"], "failed to parse field zone"),
            (&["zone=70000,limit=1"], "failed to parse field zone"),
            (&["zone=1,limit=x"], "failed to parse field limit"),
            (&["zone=7,limit="], "field limit missing value"),
            (&["default=x"], "invalid default limit"),
            (&["default="], "invalid default limit"),
            (&["default"], "field default missing value"),
            (&["foo"], "field foo missing value"),
            (&["zone=1,foo=3"], "invalid zone limit field: foo"),
            (&["default=3", "default=4"], "invalid zone limit field: default"),
            (&["zone=9,limit=3", "default=7"], "invalid zone limit field: default"),
        ] {
            assert_eq!(parse(words), Err(error.to_owned()), "{words:?}");
        }
    }
}
