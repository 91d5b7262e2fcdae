// SPDX-License-Identifier: Apache-2.0
//! Connections: dumps, removal, statistics, and the settings of the tracker.

use super::sliced::{Work, no_tracking};
use super::{
    Dpctl, INVALID, NO_ENTRY, Words, failure, is_datapath, kernel_named, no_datapath, require,
};
use crate::daemon::Daemon;
use conntrack::{Detail, Detailed, Entry, Flush, NotFound, Statistics, buckets_text};
use datapath::Connections;
use std::time::Duration;

pub(super) fn register(dpctl: &Dpctl<'_>) {
    dpctl.add_sliced("dump-conntrack", 0, 4, |daemon, words| {
        let detail = Detail { more: words.verbose, statistics: words.statistics };
        let is_kernel = words.rest.first().is_some_and(|name| kernel_named(daemon, name).is_some());
        let zone = only_zone(daemon, words)?;
        Ok(if is_kernel { dump_of_kernel(zone, detail) } else { dump(zone, detail) })
    });
    dpctl.add("dump-conntrack-exp", 0, 2, |daemon, words| {
        let zone = only_zone(daemon, words)?;
        Ok(expectations(tracking(daemon)?, zone))
    });
    dpctl.add_sliced("flush-conntrack", 0, 6, |daemon, mut words| {
        let name = words.rest.first().copied().unwrap_or_default();
        let is_kernel = kernel_named(daemon, name).is_some();
        let is_own = !is_kernel && is_datapath(daemon, name);
        words.skip_datapath(daemon);
        let wanted = Flush::parse(&words.rest).map_err(|error| failure(&error.0, INVALID))?;
        require(daemon)?;
        let datapath = daemon.switch.datapath();
        let ended = if is_own { 0 } else { datapath.flush_kernel_connections(&wanted) };
        match (is_kernel, ended) {
            (true, 0) if wanted.is_one() => Err(not_flushed()),
            (true, _) => Ok(Box::new(|_| Some(Ok(String::new())))),
            (false, _) => Ok(flush(wanted, ended > 0)),
        }
    });
    dpctl.add_sliced("ct-stats-show", 0, 3, |daemon, mut words| {
        let is_detailed = words.verbose || words.rest.contains(&"verbose");
        words.rest.retain(|word| *word != "verbose");
        let zone = only_zone(daemon, words)?;
        let detailed = if is_detailed { Detailed::States } else { Detailed::Protocols };
        Ok(statistics(zone, detailed))
    });
    dpctl.add("ct-bkts", 0, 2, |daemon, words| {
        let above = match words.after_datapath(daemon, 2)?.as_slice() {
            [] => 0,
            [word] => number_after("gt=", word).ok_or_else(no_datapath)?,
            _ => return Err(no_datapath()),
        };
        Ok(buckets_text(tracking(daemon)?.tracker().table().counts().conns(), u64::from(above)))
    });
    dpctl.add("ct-get-nconns", 0, 1, |daemon, words| {
        let ([], _) = words.exactly(daemon)?;
        Ok(format!("{}\n", tracking(daemon)?.tracker().table().counts().conns()))
    });
    dpctl.add("ct-get-maxconns", 0, 1, |daemon, words| {
        let ([], _) = words.exactly(daemon)?;
        Ok(format!("{}\n", tracking(daemon)?.tracker().table().counts().max()))
    });
    dpctl.add("ct-set-maxconns", 1, 2, |daemon, words| {
        let ([text], _) = words.exactly(daemon)?;
        let max = text.parse().map_err(|_| failure("maxconns missing or malformed", INVALID))?;
        tracking(daemon)?.tracker().table().counts().set_max(max);
        Ok("setting maxconns successful".to_owned())
    });
    for (name, is_on, text) in [
        ("ct-enable-tcp-seq-chk", true, "enabling TCP sequence checking successful"),
        ("ct-disable-tcp-seq-chk", false, "disabling TCP sequence checking successful"),
    ] {
        dpctl.add(name, 0, 1, move |daemon, words| {
            let ([], _) = words.exactly(daemon)?;
            tracking(daemon)?.tracker().table().set_sequence_check(is_on);
            Ok(text.to_owned())
        });
    }
    dpctl.add("ct-get-tcp-seq-chk", 0, 1, |daemon, words| {
        let ([], _) = words.exactly(daemon)?;
        let is_on = tracking(daemon)?.tracker().table().sequence_check();
        Ok(format!("TCP sequence checking: {}\n", if is_on { "enabled" } else { "disabled" }))
    });
    dpctl.add("ct-set-sweep-interval", 1, 2, |daemon, words| {
        let ([text], _) = words.exactly(daemon)?;
        let interval: u32 = text
            .parse()
            .ok()
            .filter(|interval| *interval > 0)
            .ok_or_else(|| failure("invalid sweep value", INVALID))?;
        tracking(daemon)?.set_sweep_interval(Duration::from_millis(interval.into()));
        Ok("setting sweep interval successful".to_owned())
    });
    dpctl.add("ct-get-sweep-interval", 0, 1, |daemon, words| {
        let ([], _) = words.exactly(daemon)?;
        Ok(format!("{}\n", tracking(daemon)?.sweep_interval().as_millis()))
    });
}

/// The datapath's connections.
pub(super) fn tracking(daemon: &Daemon) -> Result<&dyn Connections, String> {
    daemon.switch.datapath().connections().ok_or_else(no_tracking)
}

/// The zone of `[dp] [zone=N]`.
fn only_zone(daemon: &Daemon, words: Words<'_>) -> Result<Option<u16>, String> {
    match words.after_datapath(daemon, 2)?.as_slice() {
        [] => Ok(None),
        [word] => number_after("zone=", word).map(Some).ok_or_else(no_datapath),
        _ => Err(no_datapath()),
    }
}

fn number_after(prefix: &str, text: &str) -> Option<u16> {
    text.strip_prefix(prefix)?.parse().ok()
}

/// Calls `each` with the connections of one slice. Returns the next cursor.
fn slice(
    connections: &dyn Connections,
    zone: Option<u16>,
    cursor: u32,
    each: impl FnMut(&Entry),
) -> Option<u32> {
    connections.tracker().table().dump(zone, cursor, connections.now(), each)
}

fn dump(zone: Option<u16>, detail: Detail) -> Work {
    let (mut out, mut cursor) = (String::new(), 0);
    Box::new(move |connections| {
        let next = slice(connections, zone, cursor, |entry| {
            out.push_str(&entry.line(detail));
            out.push('\n');
        });
        match next {
            Some(next) => cursor = next,
            None => return Some(Ok(std::mem::take(&mut out))),
        }
        None
    })
}

fn statistics(zone: Option<u16>, detailed: Detailed) -> Work {
    let (mut sum, mut cursor) = (Statistics::default(), 0);
    Box::new(move |connections| {
        match slice(connections, zone, cursor, |entry| sum.add(entry)) {
            Some(next) => cursor = next,
            None => return Some(Ok(sum.text(detailed))),
        }
        None
    })
}

/// Work that shows the connections of the kernel's tracker.
fn dump_of_kernel(zone: Option<u16>, detail: Detail) -> Work {
    Box::new(move |_| {
        let lines = datapath_kernel::connections::lines(zone, detail);
        Some(lines.map_err(|error| failure(&error.to_string(), INVALID)))
    })
}

fn not_flushed() -> String {
    tracing::warn!(target: "conntrack", "Tuple not found");
    failure("failed to flush conntrack", NO_ENTRY)
}

/// Work that ends connections. `is_found`: the connection was found in the kernel's tracker.
fn flush(wanted: Flush, is_found: bool) -> Work {
    let mut cursor = 0;
    Box::new(move |connections| {
        let tracker = connections.tracker();
        let mut worker = tracker.table().worker();
        match tracker.flush(&worker.pin(), &wanted, cursor, connections.now()) {
            Ok(Some(next)) => cursor = next,
            Ok(None) => return Some(Ok(String::new())),
            Err(NotFound) if is_found => return Some(Ok(String::new())),
            Err(NotFound) => return Some(Err(not_flushed())),
        }
        None
    })
}

fn expectations(connections: &dyn Connections, zone: Option<u16>) -> String {
    let mut out = String::new();
    let tracker = connections.tracker();
    tracker.expectations().each(tracker.table(), zone, connections.now(), |expectation| {
        out.push_str(&expectation.line());
        out.push('\n');
    });
    out
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::commands::Answer;
    use conntrack::{
        ChecksumState, Checksums, Commit, Family, Fragments, IpPacket, Metadata, NoBarrier,
        PlainMemory, Reassembly, Request, Sizes, Sweeper, Table, Ticks, Tracker,
    };
    use std::sync::Arc;

    /// Connections without a datapath.
    pub struct Fake {
        tracker: Tracker,
        fragments: Fragments<()>,
    }

    impl Fake {
        pub fn new() -> Fake {
            let sizes = Sizes {
                buckets: 1 << 12,
                max_buckets: 1 << 12,
                chunk_conns: 4096,
                chunks: 4,
                ring_slots: 4096,
            };
            let memory = Arc::new(PlainMemory::new(sizes));
            let table = Arc::new(Table::open(memory, [3, 5]).unwrap());
            Sweeper::new(Arc::clone(&table), Box::new(NoBarrier)).slice(Ticks(1000)); // free slots
            Fake { tracker: Tracker::new(table), fragments: Fragments::default() }
        }

        /// Commits the connection of a UDP packet with this source port.
        pub fn commit(&self, zone: u16, port: u16) {
            let frame = packet::build::Frame::ethernet([0; 6], [0; 6])
                .ipv4([10, 1, 1, 1].into(), [10, 1, 1, 2].into(), 64)
                .udp(port, 2)
                .finish();
            let mut bytes = frame[14..].to_vec();
            let mut packet = IpPacket {
                bytes: &mut bytes,
                family: Family::V4,
                verify: Checksums::ALL,
                checksum: ChecksumState::Finished,
            };
            let request = Request { zone, commit: Commit::Yes, ..Request::default() };
            let mut worker = self.tracker.table().worker();
            let mut meta = Metadata::default();
            self.tracker.process(&worker.pin(), &mut packet, &mut meta, &request, self.now());
        }
    }

    impl Connections for Fake {
        fn tracker(&self) -> &Tracker {
            &self.tracker
        }
        fn fragments(&self) -> &dyn Reassembly {
            &self.fragments
        }
        fn now(&self) -> Ticks {
            Ticks(1000)
        }
        fn sweep_interval(&self) -> Duration {
            Duration::from_secs(20)
        }
        fn set_sweep_interval(&self, _: Duration) {}
    }

    /// Does work to its end. Returns the answer and the number of slices.
    fn finish(fake: &Fake, mut work: Work) -> (Answer, usize) {
        let mut slices = 1;
        loop {
            match work(fake) {
                Some(answer) => return (answer, slices),
                None => slices += 1,
            }
        }
    }

    fn line(zone: u16, port: u16) -> String {
        format!(
            "udp,orig=(src=10.1.1.1,dst=10.1.1.2,sport={port},dport=2),reply=(src=10.1.1.2,\
             dst=10.1.1.1,sport=2,dport={port}),zone={zone}\n"
        )
    }

    #[test]
    fn dumps_and_statistics_of_zones() {
        let fake = Fake::new();
        fake.commit(3, 1);
        fake.commit(4, 7);
        let detail = Detail::default();
        assert_eq!(finish(&fake, dump(Some(4), detail)).0, Ok(line(4, 7)));
        assert_eq!(finish(&fake, dump(Some(5), detail)).0, Ok(String::new()));
        let all = finish(&fake, dump(None, detail)).0.unwrap();
        assert!(all.contains(&line(3, 1)) && all.contains(&line(4, 7)), "{all}");
        let text = |zone| finish(&fake, statistics(zone, Detailed::Protocols)).0;
        assert_eq!(text(None).unwrap(), "Connections Stats:\n    Total: 2\n  UDP: 2\n");
        assert_eq!(text(Some(3)).unwrap(), "Connections Stats:\n    Total: 1\n  UDP: 1\n");
        assert_eq!(expectations(&fake, None), "");
    }

    #[test]
    fn many_connections_are_visited_in_slices() {
        let fake = Fake::new();
        for port in 1..=3000 {
            fake.commit(3, port);
        }
        let (text, slices) = finish(&fake, dump(None, Detail::default()));
        let text = text.unwrap();
        assert_eq!(text.lines().count(), 3000);
        assert!((1..=3000).all(|port| text.contains(&line(3, port))));
        assert!(slices >= 3, "{slices}");
        let wanted = Flush::parse(&["zone=3"]).unwrap();
        let (answer, slices) = finish(&fake, flush(wanted, false));
        assert_eq!(answer, Ok(String::new()));
        assert!(slices >= 3, "{slices}");
        assert_eq!(finish(&fake, dump(None, Detail::default())).0, Ok(String::new()));
    }

    #[test]
    fn one_connection_is_removed_or_missed() {
        let fake = Fake::new();
        fake.commit(3, 1);
        fake.commit(3, 7);
        let words = [
            "zone=3",
            "ct_nw_src=10.1.1.1,ct_nw_dst=10.1.1.2,ct_nw_proto=17,ct_tp_src=1,ct_tp_dst=2",
        ];
        let wanted = Flush::parse(&words).unwrap();
        assert_eq!(finish(&fake, flush(wanted, false)).0, Ok(String::new()));
        assert_eq!(
            finish(&fake, flush(wanted, false)).0,
            Err("ovs-vswitchd: failed to flush conntrack (No such file or directory)\n".to_owned())
        );
        assert_eq!(finish(&fake, dump(None, Detail::default())).0, Ok(line(3, 7)));
    }
}
