// SPDX-License-Identifier: Apache-2.0
//! The whole way from an event to a line, and the texts of `vlog/*` as the real program prints
//! them.

use std::os::unix::net::UnixDatagram;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tracing_subscriber::layer::SubscriberExt;
use vlog::{Level, Logger, RateLimit, SyslogMethod, VlogLayer};

/// Call sites are shared by all tests, and a change of levels outside any subscriber's scope hides
/// them from the scopes of other threads (a process has one global subscriber instead, and no such
/// trouble): one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A logger with a file, its console and syslog silent, and a way to run code under it.
struct Bench {
    logger: Arc<Logger>,
    dir: testing::TempDir,
}

impl Bench {
    fn new() -> Bench {
        let logger = Arc::new(Logger::new("ovs-vswitchd"));
        logger.set_syslog_method(SyslogMethod::Null);
        logger.set("console:off").unwrap();
        let dir = testing::directory();
        logger.open_file(&dir.path().join("log")).unwrap();
        Bench { logger, dir }
    }

    fn run(&self, f: impl FnOnce()) {
        let subscriber =
            tracing_subscriber::registry().with(VlogLayer::new(Arc::clone(&self.logger)));
        tracing::subscriber::with_default(subscriber, f);
    }

    /// The log file's lines without the time.
    fn lines(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.dir.path().join("log")).unwrap();
        text.lines().map(|l| l.split_once('|').map_or(l, |(_, rest)| rest).to_owned()).collect()
    }
}

#[test]
fn events_become_lines() {
    let _alone = alone();
    let bench = Bench::new();
    vlog::set_subprogram("revalidator1");
    bench.run(|| {
        tracing::info!(target: "bridge", "ovs-vswitchd (Open vSwitch) {}", "3.1.0");
        tracing::debug!(target: "bridge", "hidden");
        bench.logger.set("BRIDGE:file:dbg").unwrap();
        tracing::debug!(target: "a::bridge", port = 3, name = "p1", "seen");
        tracing::warn!("by path");
        bench.logger.set("off").unwrap();
        tracing::error!(target: "bridge", "hidden");
    });
    assert_eq!(
        bench.lines(),
        [
            format!(
                "00001|vlog(logging)|INFO|opened log file {}",
                bench.dir.path().join("log").display()
            ),
            "00002|bridge(revalidator1)|INFO|ovs-vswitchd (Open vSwitch) 3.1.0".into(),
            "00003|bridge(revalidator1)|DBG|seen, port=3, name=p1".into(),
            "00004|logging(revalidator1)|WARN|by path".into(),
        ]
        .map(|l| l.replace("vlog(logging)", "vlog(events_become_lines)"))
    );
}

#[test]
fn rate_limited_call_sites_report() {
    let _alone = alone();
    static LIMIT: RateLimit = RateLimit::new(300, 1); // one in 200 ms
    let bench = Bench::new();
    bench.run(|| {
        let say = || vlog::warn_rl!(LIMIT, target: "ofproto", "again {}", 1);
        say();
        say();
        say();
        std::thread::sleep(Duration::from_millis(250));
        say();
    });
    let lines = bench.lines();
    assert_eq!(lines.len(), 4, "{lines:?}");
    assert!(lines[2].ends_with(
        "|WARN|Dropped 2 log messages in last 0 seconds (most recently, 0 seconds ago) due to \
         excessive rate"
    ));
    assert!(lines[3].ends_with("|WARN|again 1"));
}

#[test]
fn file_life_cycle() {
    let _alone = alone();
    let bench = Bench::new();
    let path = bench.dir.path().join("log");
    bench.logger.reopen().unwrap();
    bench.logger.log("x", Level::Info, "one");
    std::fs::rename(&path, bench.dir.path().join("old")).unwrap();
    bench.logger.reopen().unwrap();
    let old = std::fs::read_to_string(bench.dir.path().join("old")).unwrap();
    assert!(old.trim_end().ends_with("|INFO|closing log file"), "{old}");
    assert_eq!(bench.lines().len(), 1);
    bench.logger.close().unwrap();
    bench.logger.log("x", Level::Info, "lost");
    bench.logger.reopen().unwrap();
    assert_eq!(bench.lines().len(), 2);
    assert!(bench.logger.open_file(&bench.dir.path().join("no/such")).is_err());
    let warning = bench.lines().pop().unwrap();
    assert!(warning.contains("|WARN|failed to open "), "{warning}");
    assert!(warning.ends_with("/no/such for logging: No such file or directory"), "{warning}");
    assert_eq!(Logger::new("x").reopen(), Err("Logging to file not configured".into()));
}

#[test]
fn tables_as_ovs_prints_them() {
    let _alone = alone();
    let logger = Logger::new("ovs-vswitchd");
    logger.register_modules(&["bridge", "lacp", "dpif_lookup_autovalidator"]);
    logger.set("syslog:off").unwrap();
    logger.set_rate_limits(false, &["lacp"]).unwrap();
    assert_eq!(
        logger.list(),
        "                 console    syslog    file
                 -------    ------    ------
bridge            INFO        OFF       INFO
dpif_lookup_autovalidator  INFO        OFF       INFO
lacp              INFO        OFF       INFO    (rate limiting disabled)
"
    );
    assert_eq!(
        logger.list_pattern(),
        "         prefix                            format
         ------                            ------
SYSLOG   <%B> %D{%h %e %T} %E %A:          ovs|%05N|%c%T|%p|%m
CONSOLE  none                              %D{%Y-%m-%dT%H:%M:%SZ}|%05N|%c%T|%p|%m
FILE     none                              %D{%Y-%m-%dT%H:%M:%S.###Z}|%05N|%c%T|%p|%m
"
    );
    logger.set_command(&["PATTERN:any:hello:a b,c|%m"]).unwrap();
    assert!(
        logger
            .list_pattern()
            .ends_with("FILE     none                              hello:a b,c|%m\n")
    );
    assert_eq!(logger.set_rate_limits(false, &["nosuch"]), Err("unknown module".into()));
    assert_eq!(
        logger.set_command(&["bridge:dbg", "foo"]),
        Err("no destination, level, or module \"foo\"".into())
    );
    assert!(logger.list().contains("bridge             DBG        DBG        DBG\n"));
    logger.set_command::<&str>(&[]).unwrap();
    assert!(!logger.list().contains("INFO"));
}

#[test]
fn syslog_gets_a_datagram_for_each_line() {
    let _alone = alone();
    let dir = testing::directory();
    let path = dir.path().join("s");
    let logger = Logger::new("ovs-vswitchd");
    logger.set("console:off").unwrap();
    logger.set_syslog_method(SyslogMethod::Unix(path.clone()));
    logger.log("x", Level::Info, "nobody listens");
    let receive = |socket: &UnixDatagram| {
        let mut buffer = [0; 200];
        let n = socket.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..n]).into_owned()
    };
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    logger.set_syslog_method(SyslogMethod::Unix(path));
    vlog::set_subprogram("monitor");
    logger.log("x", Level::Info, "one\ntwo");
    assert_eq!(receive(&socket), "<29>ovs|00002|x(monitor)|INFO|one");
    assert_eq!(receive(&socket), "<29>two");
    logger.set("FACILITY:local3").unwrap();
    logger.log("x", Level::Err, "three");
    assert_eq!(receive(&socket), "<155>ovs|00003|x(monitor)|ERR|three");

    let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    udp.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    logger.set_syslog_target(udp.local_addr().unwrap()).unwrap();
    let mut buffer = [0; 300];
    let n = udp.recv(&mut buffer).unwrap();
    let line = String::from_utf8_lossy(&buffer[..n]).into_owned();
    assert!(line.starts_with("<156>1 20"), "{line}");
    assert!(
        line.ends_with(&format!(
            " ovs-vswitchd {} vlog - \u{feff}--syslog-target flag is deprecated, use \
             --syslog-method instead",
            std::process::id()
        )),
        "{line}"
    );
}

#[test]
fn many_threads_do_not_mix_lines() {
    let _alone = alone();
    let bench = Bench::new();
    std::thread::scope(|scope| {
        for t in 0..4 {
            let logger = &bench.logger;
            scope.spawn(move || {
                for i in 0..200 {
                    logger.log("x", Level::Info, &format!("{t} {i} {}", "z".repeat(300)));
                }
            });
        }
    });
    let lines = bench.lines();
    assert_eq!(lines.len(), 801);
    assert!(lines[1..].iter().all(|l| l.ends_with(&"z".repeat(300)) && l.contains("x(thread")));
    let mut serials: Vec<&str> = lines.iter().map(|l| &l[..5]).collect();
    serials.sort_unstable();
    serials.dedup();
    assert_eq!(serials.len(), 801);
}
