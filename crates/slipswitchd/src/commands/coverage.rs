// SPDX-License-Identifier: Apache-2.0
//! Counters: `coverage/` and `memory/`.
//!
//! Each part of the switch counts its own events. This module reads the counters, and samples them
//! every five seconds for the rates of `coverage/show`. A counter has the name that Open vSwitch
//! gives to the same event, if there is one. Open vSwitch's counters of events that do not occur
//! here are left out.

use super::Commands;
use crate::daemon::Daemon;
use bridge::mac_table::MacStats;
use datapath::{DropReason, Refusal};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::spawn_local;

/// Time between two samples, as in OVS.
const PERIOD: Duration = Duration::from_secs(5);
/// Number of samples: those of an hour, and the sample before them.
const SAMPLES: usize = 721;

/// A counter: its name, and the number of events since the start.
type Counter = (&'static str, u64);

pub(super) fn register(commands: &Commands<'_>) {
    let history = Rc::new(RefCell::new(History::default()));
    history.borrow_mut().push(&counters(&commands.daemon.borrow()));
    let (daemon, sampled) = (Rc::downgrade(commands.daemon), Rc::downgrade(&history));
    spawn_local(sample(daemon, sampled));
    commands.show("coverage/show", "", 0, 0, move |daemon, _| {
        Ok(show(&counters(daemon), &history.borrow()))
    });
    commands.show("coverage/read-counter", "COUNTER", 1, 1, |daemon, call| {
        counters(daemon)
            .into_iter()
            .find(|(name, _)| Some(*name) == call.arg(0))
            .map(|(_, total)| format!("{total}\n"))
            .ok_or_else(|| "No such counter".to_owned())
    });
    commands.show("memory/show", "", 0, 0, |daemon, _| Ok(memory(daemon)));
}

async fn sample(daemon: Weak<RefCell<Daemon>>, history: Weak<RefCell<History>>) {
    let mut period = tokio::time::interval(PERIOD);
    period.tick().await; // the first is at once
    loop {
        period.tick().await;
        let (Some(daemon), Some(history)) = (daemon.upgrade(), history.upgrade()) else { return };
        let now = counters(&daemon.borrow());
        history.borrow_mut().push(&now);
    }
}

/// Returns all counters in a fixed order.
fn counters(daemon: &Daemon) -> Vec<Counter> {
    let datapath = daemon.switch.datapath();
    let slow = daemon.switch.slow_path();
    let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let lookups = datapath.lookups();
    let upcalls = &slow.counters;
    let mut out = vec![
        ("datapath_hit", lookups.hits),
        ("datapath_cache_hit", lookups.cache_hits),
        ("datapath_missed", lookups.misses),
        ("datapath_lost", lookups.lost),
        ("upcall_translated", load(&upcalls.misses)),
        ("upcall_flow_limit_hit", load(&upcalls.over_limit)),
        ("upcall_narrowed", load(&upcalls.narrowed)),
        ("upcall_port_share_hit", load(&upcalls.over_share)),
        ("upcall_seen_once", load(&upcalls.seen_once)),
        ("upcall_translation_error", load(&upcalls.errors)),
        ("dpif_flow_put", load(&upcalls.installed)),
        ("dpif_flow_put_refused", Refusal::ALL.into_iter().map(|r| upcalls.refusals(r)).sum()),
        ("control_event_lost", slow.events.lost()),
        ("revalidator_pass", load(&slow.revalidator.passes)),
    ];
    out.extend(daemon.configuration.counters());
    out.extend(bridge_counters(daemon));
    out.extend(transport_counters(daemon));
    let learned = |count: fn(MacStats) -> u64| -> u64 {
        daemon.switch.bridges().map(|bridge| count(bridge.macs.stats())).sum()
    };
    out.extend([
        ("mac_learning_learned", learned(|stats| stats.learned)),
        ("mac_learning_expired", learned(|stats| stats.expired)),
        ("mac_learning_evicted", learned(|stats| stats.evicted)),
        ("mac_learning_moved", learned(|stats| stats.moved)),
        ("mac_learning_static_none_move", learned(|stats| stats.static_kept)),
    ]);
    let tables = daemon.switch.bridges().filter_map(|bridge| bridge.multicast.as_ref());
    let (joined, left) = tables.fold((0, 0), |(joined, left), table| {
        let (more_joined, more_left) = table.counters();
        (joined + more_joined, left + more_left)
    });
    out.extend([("mcast_snooping_learned", joined), ("mcast_snooping_expired", left)]);
    out.extend(Refusal::ALL.into_iter().map(|r| (refusal_counters(r).put, upcalls.refusals(r))));
    let offload = |reason| daemon.placed.as_ref().map_or(0, |p| p.refusals(reason));
    out.extend(Refusal::ALL.into_iter().map(|r| (refusal_counters(r).offload, offload(r))));
    out.extend(DropReason::ALL.into_iter().map(|reason| (reason.name(), datapath.drops(reason))));
    let checks = datapath.tunnel_checks();
    out.extend([
        ("native_tnl_l3csum_checked", checks.ip),
        ("native_tnl_l3csum_err", checks.wrong_ip),
        ("native_tnl_l4csum_checked", checks.transport),
        ("native_tnl_l4csum_err", checks.wrong_transport),
    ]);
    out.extend(datapath.connections().map(|c| c.coverage()).unwrap_or_default());
    out
}

/// Returns counters of events of bridges and translation.
fn bridge_counters(daemon: &Daemon) -> [Counter; 19] {
    let counters = &daemon.switch.counters;
    let causes = &counters.revalidations;
    let slow = daemon.switch.slow_path();
    // The switch reads the headers of a received packet once, and those of a controller's packet.
    let extracted = daemon.userspace.received() + counters.packet_outs;
    [
        ("ofproto_flush", counters.flushes),
        ("ofproto_packet_out", counters.packet_outs),
        ("ofproto_queue_req", counters.queue_requests),
        ("ofproto_recv_openflow", counters.openflow_messages),
        ("ofproto_reinit_ports", counters.port_rereads),
        ("ofproto_update_port", counters.port_updates),
        ("ofproto_dpif_expired", counters.expired_rules),
        ("packet_in_overflow", slow.events.lost_packet_ins()),
        ("rev_reconfigure", causes.reconfigured),
        ("rev_stp", causes.stp),
        ("rev_rstp", causes.rstp),
        ("rev_bond", causes.bond),
        ("rev_port_toggled", causes.port_toggled),
        ("rev_flow_table", causes.rules),
        ("rev_mac_learning", causes.mac_tables),
        ("xlate_actions", slow.counters.translations.load(Ordering::Relaxed)),
        ("flow_extract", extracted),
        ("dpif_port_add", counters.ports_added),
        ("dpif_port_del", counters.ports_removed),
    ]
}

/// Returns counters of messages to and from peers and the kernel.
fn transport_counters(daemon: &Daemon) -> [Counter; 7] {
    let netlink = netdev::netlink_counters();
    let messages = daemon.connections.counters();
    [
        ("rconn_overflow", messages.dropped),
        ("vconn_open", daemon.services.attempts),
        ("vconn_received", messages.received),
        ("vconn_sent", messages.sent),
        ("netlink_overflow", netlink.overflows),
        ("netlink_received", netlink.received),
        ("netlink_sent", netlink.sent),
    ]
}

/// The names of the counters of a reason.
struct RefusalCounters {
    /// Megaflows that no tier took.
    put: &'static str,
    /// Times that some fast tier of a megaflow's port refused it.
    offload: &'static str,
}

macro_rules! refusal_counters {
    ($($reason:ident => $name:literal,)*) => {
        fn refusal_counters(reason: Refusal) -> RefusalCounters {
            match reason {
                $(Refusal::$reason => RefusalCounters {
                    put: concat!("dpif_flow_put_", $name),
                    offload: concat!("dpif_flow_offload_", $name),
                },)*
            }
        }
    };
}

refusal_counters! {
    TableFull => "table_full",
    Exists => "exists",
    UnsupportedKey => "unsupported_key",
    UnsupportedAction => "unsupported_action",
    PortNotHere => "port_not_here",
    Synthetic => "synthetic",
    MasksFull => "masks_full",
    ProgramsFull => "programs_full",
    TierDisabled => "tier_disabled",
    TierSetting => "tier_setting",
    KernelTooOld => "kernel_too_old",
    NoPermission => "no_permission",
    TierUnavailable => "tier_unavailable",
    DeviceKind => "device_kind",
    DriverLacksSupport => "driver_lacks_support",
    HookBusy => "hook_busy",
    Policing => "policing",
    UnverifiedPeer => "unverified_peer",
    NeedsUserspace => "needs_userspace",
    Unsettled => "unsettled",
    Evicted => "evicted",
    UserObject => "user_object",
    PortSetsFull => "port_sets_full",
    Lost => "lost",
    CtHelper => "ct_helper",
    CtPlace => "ct_place",
    CtTable => "ct_table",
    TunnelHeader => "tunnel_header",
    TunnelPlace => "tunnel_place",
    TunnelHeadersFull => "tunnel_headers_full",
    CardRefused => "card_refused",
    OtherSwitch => "other_switch",
    CardOff => "card_off",
    TagsOpen => "tags_open",
    Qos => "qos",
    Bond => "bond",
}

/// Past values of all counters, newest last.
#[derive(Debug, Default)]
struct History(VecDeque<Vec<u64>>);

impl History {
    fn push(&mut self, counters: &[Counter]) {
        if self.0.len() == SAMPLES {
            self.0.pop_front();
        }
        self.0.push_back(counters.iter().map(|(_, n)| *n).collect());
    }

    /// Returns the events a second of counter `index` over the last `periods` whole periods. Time
    /// before the first sample counts as time without events.
    fn rate(&self, index: usize, periods: usize) -> f64 {
        let at = |back: usize| {
            let place = self.0.len().saturating_sub(1 + back);
            self.0.get(place).and_then(|sample| sample.get(index)).copied().unwrap_or_default()
        };
        let seconds = periods as f64 * PERIOD.as_secs_f64();
        at(0).saturating_sub(at(periods)) as f64 / seconds
    }
}

fn show(counters: &[Counter], history: &History) -> String {
    let hit = || counters.iter().enumerate().filter(|(_, (_, total))| *total > 0);
    let mut out = format!(
        "Event coverage, avg rate over last: 5 seconds, last minute, last hour,  hash={:08x}:\n",
        fingerprint(hit().map(|(_, (name, _))| *name))
    );
    for (index, (name, total)) in hit() {
        // A String takes all writes.
        let _ = writeln!(
            out,
            "{name:<24} {:5.1}/sec {:9.3}/sec {:13.4}/sec   total: {total}",
            history.rate(index, 1),
            history.rate(index, 12),
            history.rate(index, 720),
        );
    }
    let _ = writeln!(out, "{} events never hit", counters.len() - hit().count());
    out
}

/// Returns FNV-1a of the names of the counters that were hit: equal for two outputs with the same
/// events.
fn fingerprint<'a>(names: impl Iterator<Item = &'a str>) -> u32 {
    names
        .flat_map(|name| name.bytes().chain([0]))
        .fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// Returns the number of objects of each kind, in OVS's order. Kinds without objects are left out.
fn memory(daemon: &Daemon) -> String {
    let switch = &daemon.switch;
    let sum =
        |each: &dyn Fn(&bridge::bridge::Bridge) -> usize| switch.bridges().map(each).sum::<usize>();
    let threads = daemon.userspace.threads(std::time::Duration::ZERO);
    let counts = [
        ("handlers", threads.len().max(1)),
        ("idl-cells-Open_vSwitch", database_cells(daemon)),
        ("ofconns", sum(&|b| daemon.connections.of_bridge(b.index).count())),
        ("ports", sum(&|b| b.ports.len())),
        ("revalidators", 1),
        ("rules", sum(&|b| b.pipeline.rule_count())),
        ("udpif keys", switch.slow_path().megaflows.len()),
    ];
    let parts: Vec<String> =
        counts.iter().filter(|(_, n)| *n > 0).map(|(name, n)| format!("{name}:{n}")).collect();
    format!("{}\n", parts.join(" "))
}

/// Returns the number of columns of all rows in the replica of the database.
fn database_cells(daemon: &Daemon) -> usize {
    let Some(client) = daemon.configuration.client() else { return 0 };
    let replica = client.replica();
    let tables = replica.schema().tables.keys();
    tables.flat_map(|table| replica.rows(table)).map(|(_, row)| row.columns().count()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_totals() {
        let mut history = History::default();
        history.push(&[("a", 0), ("b", 0)]);
        history.push(&[("a", 1672), ("b", 0)]);
        history.push(&[("a", 1752), ("b", 0)]);
        assert_eq!(
            show(&[("hmap_expand", 1752), ("never", 0)], &history),
            format!(
                "Event coverage, avg rate over last: 5 seconds, last minute, last hour,  hash={:08x}:\n\
                 hmap_expand               16.0/sec    29.200/sec        0.4867/sec   total: 1752\n\
                 1 events never hit\n",
                fingerprint(["hmap_expand"].into_iter())
            )
        );
    }

    #[test]
    fn refusals_have_counters_by_their_names() {
        for reason in Refusal::ALL {
            let name = reason.name().replace('-', "_");
            let RefusalCounters { put, offload } = refusal_counters(reason);
            assert_eq!(put, format!("dpif_flow_put_{name}"));
            assert_eq!(offload, format!("dpif_flow_offload_{name}"));
        }
    }

    #[test]
    fn history_is_an_hour_long() {
        let mut history = History::default();
        for n in 0..2000 {
            history.push(&[("a", n * 5)]);
        }
        assert_eq!(history.0.len(), SAMPLES);
        for periods in [1, 12, 720] {
            assert_eq!(history.rate(0, periods), 1.0);
        }
        assert_eq!(history.rate(7, 1), 0.0);
    }
}
