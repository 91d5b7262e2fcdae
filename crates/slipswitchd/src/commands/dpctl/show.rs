// SPDX-License-Identifier: Apache-2.0
//! The datapath and its ports: `show`, `dump-dps`, `set-if`, sizes and offload statistics.

use super::{
    Dpctl, NO_DEVICE, NOT_SUPPORTED, exists, failure, is_datapath, named, no_datapath,
    opening_error,
};
use crate::commands::ports::{kind_text, sorted};
use crate::commands::{ANY, Answer};
use crate::daemon::Daemon;
use datapath::{Datapath, PortInfo, PortKind};
use netdev::DeviceStats;
use placement::OffloadStats;
use std::fmt::Write as _;

pub(super) fn register(dpctl: &Dpctl<'_>) {
    dpctl.add("dump-dps", 0, 0, |daemon, _| {
        Ok(if exists(daemon) {
            let kernel = daemon.coupled.as_ref().and_then(|coupled| coupled.kernel());
            let kernel = kernel.map(|kernel| format!("{}\n", kernel.name()));
            format!("{}\n{}", daemon.switch.datapath().name(), kernel.unwrap_or_default())
        } else {
            String::new()
        })
    });
    dpctl.add("show", 0, ANY, |daemon, words| {
        if words.rest.is_empty() {
            return Ok(if exists(daemon) {
                show(daemon, &**daemon.switch.datapath(), words.statistics)
            } else {
                String::new()
            });
        }
        let (mut out, mut has_failed) = (String::new(), false);
        for name in words.rest {
            if is_datapath(daemon, name) {
                out.push_str(&show(daemon, named(daemon, Some(name)), words.statistics));
            } else {
                let what = format!("opening datapath {name} failed");
                out.push_str(&failure(&what, opening_error(daemon, name)));
                has_failed = true;
            }
        }
        if has_failed { Err(out) } else { Ok(out) }
    });
    dpctl.add("set-if", 2, ANY, |daemon, words| set_interfaces(daemon, &words.rest));
    dpctl.add("cache-get-size", 0, 1, |daemon, words| {
        if let Some(name) = words.rest.first() {
            open(daemon, name)?;
        }
        let ([], _) = words.exactly(daemon)?;
        Ok(format!("{}:\n", daemon.switch.datapath().name()))
    });
    dpctl.add("cache-set-size", 3, 3, |daemon, words| {
        open(daemon, words.rest.first().copied().unwrap_or_default())?;
        Err(failure("Setting caches not supported", NOT_SUPPORTED))
    });
    dpctl.add("offload-stats-show", 0, 1, |daemon, words| {
        let ([], _) = words.exactly(daemon)?;
        let placed = daemon.placed.as_ref();
        let stats = placed.map(|p| p.offload_stats());
        stats
            .map(|stats| offload_text(daemon.switch.datapath().name(), &stats))
            .ok_or_else(|| failure("retrieving offload statistics", NOT_SUPPORTED))
    });
}

/// Checks that the datapath called `name` is there, for commands about caches.
fn open(daemon: &Daemon, name: &str) -> Result<(), String> {
    if is_datapath(daemon, name) {
        return Ok(());
    }
    Err(failure(&format!("Opening datapath {name} failed"), opening_error(daemon, name)))
}

fn show(daemon: &Daemon, datapath: &dyn Datapath, statistics: bool) -> String {
    let lookups = datapath.lookups();
    let mut out = format!(
        "{}:\n  lookups: hit:{} missed:{} lost:{}\n  flows: {}\n",
        datapath.name(),
        lookups.hits,
        lookups.misses,
        lookups.lost,
        lookups.flows,
    );
    for port in sorted(datapath) {
        let _ = write!(out, "  port {}: {}", port.number, port.name); // a String takes all writes
        match port_kind(daemon, &port) {
            "system" => {}
            kind => {
                let _ = write!(out, " ({kind})");
            }
        }
        out.push('\n');
        if statistics {
            match datapath.device(port.number).map(|d| d.stats()) {
                Some(Ok(stats)) => statistics_text(&mut out, &stats),
                _ => out.push_str("    could not read its statistics: the device is gone\n"),
            }
        }
    }
    let helpers = daemon.configuration.tunnel_helpers(daemon.placed.as_ref());
    for report in helpers.iter().filter(|report| report.closed) {
        let _ = writeln!(out, "  tunnel device of {}: {}", report.title, report.text);
    }
    out
}

/// Flows by tier, and by the reason why they are not in a faster one.
fn offload_text(datapath: &str, stats: &OffloadStats) -> String {
    let mut out = format!("{datapath}:\n  flows: {}", stats.flows);
    for tier in &stats.tiers {
        let _ = write!(out, ", {}: {}", tier.tier.name(), tier.flows); // a String takes all writes
    }
    if stats.adopted > 0 {
        let _ = write!(out, ", adopted and not yet checked: {}", stats.adopted);
    }
    let _ = write!(
        out,
        "\n  packets: {} in fast tiers, {} sent up\n",
        stats.fast_packets, stats.sent_up
    );
    for reason in &stats.reasons {
        let _ = writeln!(
            out,
            "  {}: {} flows in userspace, {} in part; {} refusals since start",
            reason.reason, reason.flows, reason.partial, reason.refusals
        );
    }
    for (words, count) in &stats.explanations {
        let _ = writeln!(out, "  explained {count} times: {words}");
    }
    out
}

/// The type that the database gave a port, else that of its device.
fn port_kind(daemon: &Daemon, port: &PortInfo) -> &'static str {
    if matches!(port.kind, PortKind::Vport | PortKind::InternalVport | PortKind::TunnelVport(_)) {
        return kind_text(daemon, port.kind); // the kernel's ports are not made from TAP devices
    }
    let configured = daemon
        .switch
        .bridges()
        .flat_map(|b| b.ports.values())
        .find(|p| p.dp_port == Some(port.number))
        .map(|p| p.kind);
    kind_text(daemon, configured.unwrap_or(port.kind))
}

/// A counter, or "?" when the device has none.
fn count(n: Option<u64>) -> String {
    n.map_or_else(|| "?".to_owned(), |n| n.to_string())
}

/// Bytes, and again in larger units when there are many.
fn bytes(n: Option<u64>) -> String {
    const UNITS: [(u64, &str); 4] =
        [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let mut out = count(n);
    if let Some(n) = n
        && let Some((size, unit)) = UNITS.iter().find(|(size, _)| n >= *size)
    {
        let _ = write!(out, " ({:.1} {unit})", n as f64 / *size as f64);
    }
    out
}

fn statistics_text(out: &mut String, stats: &DeviceStats) {
    let _ = write!(
        out,
        "    RX packets:{} errors:{} dropped:{} overruns:{} frame:{}\n\
         \x20   TX packets:{} errors:{} dropped:{} aborted:{} carrier:{}\n\
         \x20   collisions:{}\n\
         \x20   RX bytes:{}  TX bytes:{}\n",
        count(stats.rx_packets),
        count(stats.rx_errors),
        count(stats.rx_dropped),
        count(stats.rx_over_errors),
        count(stats.rx_frame_errors),
        count(stats.tx_packets),
        count(stats.tx_errors),
        count(stats.tx_dropped),
        count(stats.tx_aborted_errors),
        count(stats.tx_carrier_errors),
        count(stats.collisions),
        bytes(stats.rx_bytes),
        bytes(stats.tx_bytes),
    );
}

/// `dp name[,key=value]...`: type and number may be named as they are; options are the
/// database's.
fn set_interfaces(daemon: &Daemon, words: &[&str]) -> Answer {
    let [name, interfaces @ ..] = words else { return Err(no_datapath()) };
    if !is_datapath(daemon, name) {
        return Err(failure("opening datapath", opening_error(daemon, name)));
    }
    let ports = sorted(&**daemon.switch.datapath());
    let problems: String = interfaces
        .iter()
        .filter_map(|spec| set_interface(daemon, &ports, name, spec).err())
        .collect();
    if problems.is_empty() { Ok(String::new()) } else { Err(problems) }
}

fn set_interface(
    daemon: &Daemon,
    ports: &[PortInfo],
    datapath: &str,
    spec: &str,
) -> Result<(), String> {
    let mut parts = spec.split(',');
    let name = parts.next().unwrap_or_default();
    let port = ports.iter().find(|p| p.name == name).ok_or_else(|| {
        failure(&format!("{name}: failed to query port in {datapath}"), NO_DEVICE)
    })?;
    for part in parts {
        match part.split_once('=').unwrap_or((part, "")) {
            ("type", kind) if kind == kind_text(daemon, port.kind) => {}
            ("type", kind) => {
                let now = port_kind(daemon, port);
                return Err(format!(
                    "ovs-vswitchd: {name}: can't change type from {now} to {kind}\n"
                ));
            }
            ("port_no", number) if number == port.number.to_string() => {}
            ("port_no", number) => {
                return Err(format!(
                    "ovs-vswitchd: {name}: can't change port number from {} to {number}\n",
                    port.number
                ));
            }
            (key, _) => {
                return Err(format!(
                    "ovs-vswitchd: {name}: option \"{key}\" is the database's (ovs-vsctl set Interface {name} \
                     options:{key}=VALUE)\n"
                ));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics() {
        let stats = DeviceStats {
            rx_packets: Some(27),
            rx_bytes: Some(3056),
            tx_packets: Some(0),
            tx_bytes: Some(0),
            ..DeviceStats::default()
        };
        let mut out = String::new();
        statistics_text(&mut out, &stats);
        assert_eq!(
            out,
            "    RX packets:27 errors:? dropped:? overruns:? frame:?\n\
             \x20   TX packets:0 errors:? dropped:? aborted:? carrier:?\n\
             \x20   collisions:?\n\
             \x20   RX bytes:3056 (3.0 KiB)  TX bytes:0\n"
        );
        assert_eq!(bytes(None), "?");
        assert_eq!(bytes(Some(5 << 40)), "5497558138880 (5.0 TiB)");
    }
}
