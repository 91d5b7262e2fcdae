// SPDX-License-Identifier: Apache-2.0
//! Packet threads (OVS: PMD threads): `dpif-netdev/`.

use super::Commands;
use datapath_userspace::{PmdStats, QueueInfo, ThreadInfo};
use std::fmt::Write as _;
use std::time::Duration;

/// The answer to a name that is no datapath's.
pub(super) const NO_DATAPATH: &str = "please specify an existing datapath";
const BLOCKING: &str = "packet threads sleep when there is nothing to do and count no cycles";

const WOKEN: &str = "packet threads sleep until a packet wakes them, however long that takes";

/// `-pmd CORE`, `-secs N` and the datapath's name.
#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    core: Option<usize>,
    seconds: Option<u64>,
}

impl Options {
    /// Returns the seconds over which loads are shown.
    fn seconds(&self) -> u64 {
        self.seconds.filter(|s| (5..=60).contains(s)).unwrap_or(60)
    }
}

/// Reads options as OVS does: unknown words are ignored.
fn options(args: &[String]) -> Options {
    let mut out = Options::default();
    let mut args = args.iter().map(String::as_str);
    while let Some(arg) = args.next() {
        match arg {
            "-pmd" => out.core = args.next().and_then(|core| core.parse().ok()),
            "-secs" => out.seconds = args.next().and_then(|n| n.parse().ok()),
            _ => {}
        }
    }
    out
}

pub(super) fn register(commands: &Commands<'_>) {
    commands.show("dpif-netdev/pmd-stats-show", "[-pmd core] [dp]", 0, 3, |daemon, call| {
        Ok(stats_text(&daemon.userspace.threads(Duration::ZERO), options(call.args).core))
    });
    commands.show("dpif-netdev/pmd-stats-clear", "[-pmd core] [dp]", 0, 3, |daemon, _| {
        daemon.userspace.clear_thread_stats();
        Ok(String::new())
    });
    commands.show(
        "dpif-netdev/pmd-rxq-show",
        "[-pmd core] [-secs secs] [dp]",
        0,
        5,
        |daemon, call| {
            let options = options(call.args);
            let over = Duration::from_secs(options.seconds());
            Ok(queues_text(&daemon.userspace.threads(over), &options))
        },
    );
    commands.show("dpif-netdev/pmd-rxq-rebalance", "[dp]", 0, 1, |daemon, call| {
        if call.arg(0).is_some_and(|name| name != daemon.switch.datapath().name()) {
            return Err(NO_DATAPATH.to_owned());
        }
        daemon.userspace.rebalance();
        Ok(String::new())
    });
    commands.show(
        "dpif-netdev/pmd-perf-show",
        "[-nh] [-it iter-history-len] [-ms ms-history-len] [-pmd core] [dp]",
        0,
        8,
        |daemon, call| {
            // OVS, too, prints nothing when there are no pinned threads.
            if daemon.userspace.threads(Duration::ZERO).iter().all(|t| t.core.is_none()) {
                return Ok(String::new());
            }
            super::unsupported(call.command, BLOCKING)
        },
    );
    commands.unsupported("dpif-netdev/pmd-sleep-show", "[dp]", 0, 1, WOKEN);
    commands.unsupported(
        "dpif-netdev/pmd-perf-log-set",
        "on|off [-b before] [-a after] [-e|-ne] [-us usec] [-q qlen]",
        0,
        10,
        BLOCKING,
    );
    for name in ["dpif-netdev/subtable-lookup-info-get", "dpif-netdev/subtable-lookup-prio-get"] {
        commands.show(name, "", 0, 0, |daemon, _| {
            let masks = daemon.switch.datapath().lookups().masks;
            Ok(format!(
                "Available dpcls implementations:\n  generic (Use count: {masks}, Priority: 1)\n"
            ))
        });
    }
    commands.show(
        "dpif-netdev/subtable-lookup-prio-set",
        "[lookup_func] [prio]",
        2,
        2,
        |_, call| match (call.arg(0), call.arg(1).map(str::parse::<u8>)) {
            (Some("generic"), Some(Ok(_))) => {
                Ok("Lookup priority change affected 0 dpcls ports and 0 subtables.\n".to_owned())
            }
            (Some("generic"), _) => {
                Err("error converting priority, use integer in range 0-255".to_owned())
            }
            _ => Err("error, subtable lookup function not found".to_owned()),
        },
    );
}

/// The title of a thread's paragraph. Cores are not asked for their NUMA node: it is 0.
fn title(core: Option<usize>) -> String {
    core.map_or_else(
        || "main thread:\n".to_owned(),
        |core| format!("pmd thread numa_id 0 core_id {core}:\n"),
    )
}

fn stats_text(threads: &[ThreadInfo], core: Option<usize>) -> String {
    let mut out = String::new();
    for thread in
        threads.iter().filter(|t| t.core.is_some() && core.is_none_or(|core| t.core == Some(core)))
    {
        out.push_str(&title(thread.core));
        counters(&mut out, &thread.stats);
    }
    if core.is_none() {
        // Threads without a core of their own are together the "main thread" of OVS.
        let main = threads.iter().filter(|t| t.core.is_none()).fold(PmdStats::default(), sum);
        out.push_str(&title(None));
        counters(&mut out, &main);
    }
    out
}

fn sum(a: PmdStats, b: &ThreadInfo) -> PmdStats {
    let b = &b.stats;
    PmdStats {
        received: a.received + b.received,
        recirculated: a.recirculated + b.recirculated,
        cache_hits: a.cache_hits + b.cache_hits,
        megaflow_hits: a.megaflow_hits + b.megaflow_hits,
        subtable_lookups: a.subtable_lookups + b.subtable_lookups,
        masks_probed: a.masks_probed + b.masks_probed,
        misses: a.misses + b.misses,
        lost: a.lost + b.lost,
        sent_packets: a.sent_packets + b.sent_packets,
        sent_batches: a.sent_batches + b.sent_batches,
    }
}

fn counters(out: &mut String, stats: &PmdStats) {
    // A String takes all writes.
    let _ = write!(
        out,
        "  packets received: {}\n\
         \x20 packet recirculations: {}\n\
         \x20 avg. datapath passes per packet: {:.2}\n\
         \x20 phwol hits: 0\n\
         \x20 mfex opt hits: 0\n\
         \x20 simple match hits: 0\n\
         \x20 emc hits: {}\n\
         \x20 smc hits: 0\n\
         \x20 megaflow hits: {}\n\
         \x20 avg. subtable lookups per megaflow hit: {:.2}\n\
         \x20 miss with success upcall: {}\n\
         \x20 miss with failed upcall: {}\n\
         \x20 avg. packets per output batch: {:.2}\n",
        stats.received,
        stats.recirculated,
        stats.passes_per_packet(),
        stats.cache_hits,
        stats.megaflow_hits,
        stats.subtables_per_hit(),
        stats.misses,
        stats.lost,
        stats.packets_per_batch(),
    );
}

fn queues_text(threads: &[ThreadInfo], options: &Options) -> String {
    let mut out = format!("Displaying last {} seconds pmd usage %\n", options.seconds());
    for thread in threads {
        if thread.queues.is_empty() && thread.core.is_none() {
            continue;
        }
        if options.core.is_some() && options.core != thread.core {
            continue;
        }
        out.push_str(&title(thread.core));
        let _ = writeln!(out, "  isolated : {}", thread.is_isolated);
        for QueueInfo { port, number, share } in &thread.queues {
            let usage = share
                .map_or_else(|| "NOT AVAIL".to_owned(), |share| format!("{:2.0} %", 100.0 * share));
            let _ = writeln!(
                out,
                "  port: {port:<16}  queue-id: {number:2} (enabled)   pmd usage: {usage}"
            );
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn options_of_the_real_program() {
        assert_eq!(
            options(&words("-pmd 3 -secs 7 netdev@ovs-netdev")),
            Options { core: Some(3), seconds: Some(7) }
        );
        assert_eq!(options(&words("-pmd")), Options::default());
        assert_eq!(options(&words("-foo -pmd x")), Options::default());
    }

    #[test]
    fn statistics_of_a_main_thread() {
        let stats = PmdStats {
            received: 11,
            recirculated: 1,
            megaflow_hits: 6,
            subtable_lookups: 16,
            misses: 6,
            sent_packets: 3,
            sent_batches: 3,
            ..PmdStats::default()
        };
        let main = ThreadInfo { core: None, stats, is_isolated: false, queues: Vec::new() };
        let text = "main thread:\n\
            \x20 packets received: 11\n\
            \x20 packet recirculations: 1\n\
            \x20 avg. datapath passes per packet: 1.09\n\
            \x20 phwol hits: 0\n\
            \x20 mfex opt hits: 0\n\
            \x20 simple match hits: 0\n\
            \x20 emc hits: 0\n\
            \x20 smc hits: 0\n\
            \x20 megaflow hits: 6\n\
            \x20 avg. subtable lookups per megaflow hit: 2.67\n\
            \x20 miss with success upcall: 6\n\
            \x20 miss with failed upcall: 0\n\
            \x20 avg. packets per output batch: 1.00\n";
        assert_eq!(stats_text(std::slice::from_ref(&main), None), text);
        assert_eq!(stats_text(std::slice::from_ref(&main), Some(3)), "");
        assert_eq!(
            queues_text(&[main], &options(&words("-secs 5"))),
            "Displaying last 5 seconds pmd usage %\n"
        );
    }

    #[test]
    fn queues_of_pinned_threads() {
        let queue = |number, share| QueueInfo { port: "p0".to_owned(), number, share };
        let queues = vec![queue(0, None), queue(1, Some(0.076))];
        let stats = PmdStats::default();
        let thread = ThreadInfo { core: Some(1), stats, is_isolated: true, queues };
        assert_eq!(
            queues_text(&[thread], &Options { core: Some(1), seconds: Some(0) }),
            "Displaying last 60 seconds pmd usage %\n\
             pmd thread numa_id 0 core_id 1:\n\
             \x20 isolated : true\n\
             \x20 port: p0                queue-id:  0 (enabled)   pmd usage: NOT AVAIL\n\
             \x20 port: p0                queue-id:  1 (enabled)   pmd usage:  8 %\n"
        );
    }
}
