// SPDX-License-Identifier: Apache-2.0
//! From a command line to a running daemon, and back.

use crate::args::{Args, DummyLevel, Exit as ArgsExit, PROGRAM, VERSION_LINE};
use crate::commands;
use crate::config::{Configuration, upcall_share};
use crate::daemon::{Daemon, Exit, Shared, event_channel, links_changed, reconfigure, status_tick};
use crate::openflow::Services;
use crate::routing;
use anyhow::{Context, Result};
use bridge::switch::Switch;
use clock::Clock;
use datapath::Datapath;
use datapath_kernel::CoupledDatapath;
use datapath_userspace::UserspaceDatapath;
use placement::PlacedDatapath;
use process::{Dirs, Signals};
use std::cell::RefCell;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;
use tokio::task::{LocalSet, spawn_local};
use underlay::Underlay;

/// Time between two rounds of timeouts and status, while anything may time out or change. Half a
/// second is enough, because rules' timeouts count in seconds.
const TICK: Duration = Duration::from_millis(500);
/// Least time between two checks of connections between two rounds.
const LEAST_SLEEP: Duration = Duration::from_millis(10);
/// Time between two parts of postponed work. Other tasks get their turn, and other processes the
/// kernel's lock of network devices.
const BETWEEN_PARTS: Duration = Duration::from_millis(1);
/// Time that replies to `ovs-appctl` may take when the daemon stops.
const LAST_REPLIES: Duration = Duration::from_secs(1);
/// Most megaflows, until `other_config:flow-limit` sets another limit. It is OVS's default.
const FLOW_LIMIT: usize = 200_000;

/// Runs the daemon; returns when it has stopped.
pub fn main() -> ExitCode {
    process::shut_others_out();
    process::return_large_blocks();
    let dirs = Dirs::from_env();
    let args = match Args::parse(std::env::args_os().skip(1), &dirs) {
        Ok(args) => args,
        Err(exit) => return exit.emit(),
    };
    let logger = vlog::init(PROGRAM);
    logger.register_modules(vlog::OVS_MODULES);
    logger.set_local_offset(process::local_offset);
    if let Err(exit) = args.apply_logging(logger, &dirs) {
        return exit.emit();
    }
    let process = match args
        .daemon_options(&dirs)
        .and_then(|o| process::Daemon::start(&o).map_err(ArgsExit::error))
    {
        Ok(process) => process,
        Err(exit) => return exit.emit(),
    };
    abort_on_panic();
    match block(args, dirs, process) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            vlog::emer("ovs_vswitchd", &format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Makes a panic of the control thread or the revalidator end the process, so that the panic is
/// noticed and `--monitor` starts a new process. A daemon without one of these threads would be of
/// no use. Packet threads report a panic themselves and go on.
fn abort_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        vlog::emer("ovs_vswitchd", &format!("{info}"));
        report(info);
        let thread = std::thread::current();
        let name = thread.name().unwrap_or_default();
        if !name.starts_with("packets-") && !name.starts_with("pmd-") {
            std::process::abort();
        }
    }));
}

/// Runs the daemon to its end. `process`, which removes the pidfile, is dropped last: scripts start
/// the next daemon when the pidfile is gone, and that daemon needs the devices of this one.
fn block(args: Args, dirs: Dirs, mut process: process::Daemon) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .context("cannot start")?;
    let result = LocalSet::new().block_on(&runtime, run(args, dirs, &mut process));
    // A name lookup that is still running holds a thread. The exit does not wait for it.
    runtime.shutdown_background();
    result
}

async fn run(args: Args, dirs: Dirs, process: &mut process::Daemon) -> Result<()> {
    let signals = Signals::install().context("cannot install signal handlers")?;
    if args.mlockall
        && let Err(error) = process::lock_memory()
    {
        tracing::error!(target: "ovs_vswitchd", "mlockall failed: {error}");
    }
    if let Err(error) = process::raise_file_limit() {
        tracing::warn!(
            target: "ovs_vswitchd",
            "the limit of open files stays as it is, which may be too low for many ports ({error})"
        );
    }
    // One line: scripts read its beginning, and skip it as a whole.
    tracing::info!(target: "vswitchd", "{VERSION_LINE}, Slipswitch {}", env!("CARGO_PKG_VERSION"));

    if !args.ssl.too_old.is_empty() {
        tracing::warn!(
            target: "stream_ssl",
            "--ssl-protocols: {} will not be spoken: TLSv1.2 and TLSv1.3 are supported",
            args.ssl.too_old.join(", ")
        );
    }
    let (daemon, bell) = assemble(&args, &dirs)?;
    let registry = unixctl::Registry::new(VERSION_LINE);
    commands::register(&registry, &daemon);
    let mut replies = None;
    if let Some(path) = args.unixctl_path(&dirs) {
        let server =
            unixctl::Server::bind(&path, registry).context("cannot open the control socket")?;
        replies = Some(server.replies());
        spawn_local(server.run());
    }

    let configured = Rc::new(Notify::new());
    spawn_local(watch_database(Rc::clone(&daemon), Rc::clone(&configured)));
    spawn_local(watch_events(Rc::clone(&daemon), bell));
    spawn_local(watch_clock(Rc::clone(&daemon)));
    spawn_local(watch_links(Rc::clone(&daemon)));
    spawn_local(watch_ends(Rc::clone(&daemon)));
    spawn_local(poll_links(Rc::clone(&daemon)));
    spawn_local(routing::watch(Rc::clone(&daemon)));
    spawn_local(routing::watch_path_mtus(Rc::clone(&daemon)));
    spawn_local(routing::keep_neighbours(Rc::clone(&daemon)));
    spawn_local(work_off_postponed(Rc::clone(&daemon)));
    spawn_local(watch_signals(Rc::clone(&daemon), signals));

    // A detaching parent waits for the database, as in OVS, so that the next program of a script
    // finds the bridges.
    let exit = tokio::select! {
        exit = asked_to_exit(&daemon) => exit,
        () = configured.notified() => {
            process.complete().context("cannot finish detaching")?;
            asked_to_exit(&daemon).await
        }
    };
    if let Some(replies) = replies {
        replies.written(LAST_REPLIES).await;
    }
    finish(&daemon, exit);
    Ok(())
}

/// Waits until the daemon is asked to stop.
async fn asked_to_exit(daemon: &Shared) -> Exit {
    let stop = Rc::clone(&daemon.borrow().stop);
    loop {
        let asked = daemon.borrow().exit;
        match asked {
            Some(exit) => return exit,
            None => stop.notified().await,
        }
    }
}

/// Builds the daemon from the command line.
fn assemble(args: &Args, dirs: &Dirs) -> Result<(Shared, Arc<Notify>)> {
    let clock = Clock::new();
    let (sender, events, bell) = event_channel();
    // Where dummies replace all types, OVS names the datapath after the type of dummy bridges.
    // `=system` leaves "netdev" as it is.
    let name = match args.dummy {
        DummyLevel::Off => "netdev@ovs-netdev",
        DummyLevel::New | DummyLevel::Override => "dummy@ovs-dummy",
        DummyLevel::System => "system@ovs-system",
    };
    let config = datapath_userspace::Config {
        upcall_share: upcall_share(args.dummy, None),
        ct_upcall_share: upcall_share(args.dummy, None),
        ..datapath_userspace::Config::default()
    };
    // In dummy mode everything runs on this thread, in order, so that tests are exact.
    let threads = args.dummy == DummyLevel::Off;
    if !threads {
        openflow::action::allow_debug_actions();
    }
    // With BPF the table of connections may be an earlier daemon's. It is taken over when the
    // database says so: the earlier daemon has ended by then.
    let userspace = match threads {
        true => UserspaceDatapath::without_connections(name, clock.clone(), config),
        false => UserspaceDatapath::new(name, clock.clone(), config),
    };
    // The tiers above userspace, fastest first.
    let tiers = vec![datapath_tc::provider_slot(), datapath_bpf::provider_slot()];
    let placed = threads.then(|| PlacedDatapath::new(userspace.clone(), tiers));
    // The kernel's datapath joins when the database asks for it.
    let coupled = placed.clone().map(|placed| CoupledDatapath::new(placed));
    let datapath: Arc<dyn Datapath> = match &coupled {
        Some(coupled) => coupled.clone(),
        None => userspace.clone(),
    };
    let underlay = Arc::new(Underlay::new(clock.clone()));
    let switch = Switch::new(datapath, clock.clone(), sender, FLOW_LIMIT, threads)
        .context("cannot start the revalidator thread")?;
    let configuration =
        Configuration::start(args, dirs).context("cannot connect to the database")?;
    let daemon = Daemon::new(
        switch,
        userspace,
        placed,
        coupled,
        underlay,
        Services::default(),
        configuration,
        clock,
        args,
        dirs.clone(),
        events,
    );
    Ok((Rc::new(RefCell::new(daemon)), bell))
}

async fn watch_database(daemon: Shared, configured: Rc<Notify>) {
    loop {
        let changed = daemon.borrow().configuration.changed();
        changed.await;
        // A database without an Open_vSwitch row asks for nothing, and that is in force.
        if reconfigure(&daemon) || daemon.borrow().configuration.is_ready() {
            configured.notify_one();
        }
        daemon.borrow_mut().stir(); // the database may have gone, too
    }
}

async fn watch_events(daemon: Shared, bell: Arc<Notify>) {
    loop {
        bell.notified().await;
        loop {
            let more = {
                let mut d = daemon.borrow_mut();
                d.publish_and_wake();
                d.has_events()
            };
            // Waiting for a bell that has rung does not let other tasks run, and packets can ring the
            // bell without end. So other tasks get their turn even when the bell has rung again.
            tokio::task::yield_now().await;
            if !more {
                break;
            }
        }
    }
}

async fn watch_clock(daemon: Shared) {
    loop {
        // A stopped clock (dummy mode) moves only by `time/warp`, which does this work itself.
        if !daemon.borrow().clock.is_stopped() {
            daemon.borrow_mut().tick();
        }
        status_tick(&daemon);
        rest(&daemon).await;
    }
}

/// Sleeps until work is due by the clock. Where there is something to poll, or a step may have made
/// work due, it sleeps for a tick.
async fn rest(daemon: &Shared) {
    let due = daemon.borrow().time_until_next_deadline();
    let is_over = match due.filter(|rest| *rest > TICK) {
        Some(rest) => !is_stirred(daemon, rest).await,
        None => false,
    };
    if !is_over {
        pause(daemon).await;
    }
}

/// Sleeps for a tick, and does the work of connections that falls due in that time: a rate limit
/// releases packets every few milliseconds, and keeps only a limited number of them.
async fn pause(daemon: &Shared) {
    let end = Instant::now() + TICK;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return; // however often `activity` is rung
        }
        let due = {
            let d = daemon.borrow();
            let at = d.connections.deadline().filter(|_| !d.clock.is_stopped());
            at.map(|at| Duration::from_millis(at.since(d.clock.now()) + 1).max(LEAST_SLEEP))
        };
        if let Some(due) = due.filter(|due| *due < left) {
            tokio::time::sleep(due).await;
            daemon.borrow_mut().run_connections();
        } else if is_stirred(daemon, left).await {
            // Connections may have work now. A short sleep bounds how often that is checked.
            tokio::time::sleep(LEAST_SLEEP).await;
        } else {
            return;
        }
    }
}

/// Sleeps until `activity` is rung. Returns false when it is not rung within `longest`.
async fn is_stirred(daemon: &Shared, longest: Duration) -> bool {
    let activity = {
        let mut d = daemon.borrow_mut();
        d.is_resting = true;
        Rc::clone(&d.activity)
    };
    let is_stirred = tokio::time::timeout(longest, activity.notified()).await.is_ok();
    daemon.borrow_mut().is_resting = false;
    is_stirred
}

async fn watch_links(daemon: Shared) {
    if daemon.borrow().dummy != DummyLevel::Off {
        return; // dummies say themselves when they change
    }
    if let Err(error) = follow_links(&daemon).await {
        tracing::warn!(target: "netdev_linux", "link changes will be seen late, by polling: {error}");
    }
}

async fn follow_links(daemon: &Shared) -> std::io::Result<()> {
    let mut monitor = netdev::LinkMonitor::new()?;
    let fd = readable(monitor.poll_fd())?;
    loop {
        let mut ready = fd.readable().await?;
        let events = monitor.events()?;
        ready.clear_ready();
        if !events.is_empty() {
            reread_ports(daemon);
        }
    }
}

fn reread_ports(daemon: &Shared) {
    let mut d = daemon.borrow_mut();
    d.switch.counters.port_rereads += 1;
    d.refresh_ports();
    d.publish_and_wake();
    drop(d);
    links_changed(daemon);
}

/// Checks the links that change without events.
async fn poll_links(daemon: Shared) {
    let mut interval = daemon.borrow().configuration.link_polls();
    loop {
        let pause = *interval.borrow_and_update();
        let changed = interval.changed();
        let is_over = match pause {
            Some(pause) => tokio::time::timeout(pause, changed).await.unwrap_or(Ok(())).is_err(),
            None => changed.await.is_err(),
        };
        if is_over {
            return;
        }
        let has_changed = {
            let d = daemon.borrow();
            d.configuration.has_changed_link(&d.switch)
        };
        if has_changed {
            reread_ports(&daemon);
        }
    }
}

/// Follows changes at the other ends of veth ports, which decide whether XDP may send to them.
async fn watch_ends(daemon: Shared) {
    let Some(placed) = daemon.borrow().placed.clone() else { return };
    if let Err(error) = follow_ends(&placed).await {
        tracing::warn!(target: "netdev_linux", "changes at other ends of veths will be seen late, by polling: {error}");
    }
}

async fn follow_ends(placed: &PlacedDatapath) -> std::io::Result<()> {
    let mut monitor = netdev::NetnsMonitor::new()?;
    let fd = readable(monitor.poll_fd())?;
    loop {
        let mut ready = fd.readable().await?;
        let changed = monitor.changed()?;
        ready.clear_ready();
        match changed {
            Some(ends) => placed.ends_changed(&ends),
            None => placed.ends_lost(),
        }
    }
}

/// Returns a registration that waits for `fd` to become readable. The caller keeps `fd` open for
/// longer than the registration.
#[expect(
    deprecated,
    reason = "safe code cannot call its successor; what that asks for holds here: the owner of \
              the descriptor is declared before the registration"
)]
pub(crate) fn readable(fd: BorrowedFd<'_>) -> std::io::Result<AsyncFd<RawFd>> {
    AsyncFd::with_interest(fd.as_raw_fd(), Interest::READABLE)
}

/// Attaches ports to their tiers, and detaches programs, after the reconfiguration that asked for it.
/// After each part, which takes some 10 ms, other tasks get their turn.
async fn work_off_postponed(daemon: Shared) {
    let Some(placed) = daemon.borrow().placed.clone() else { return };
    let postponed = Rc::clone(&daemon.borrow().postponed);
    loop {
        postponed.notified().await;
        while placed.work_off() {
            tokio::time::sleep(BETWEEN_PARTS).await;
        }
    }
}

async fn watch_signals(daemon: Shared, signals: Signals) {
    let fd = match readable(signals.as_fd()) {
        Ok(fd) => fd,
        Err(error) => {
            tracing::error!(target: "fatal_signal", "cannot wait for signals ({error})");
            return;
        }
    };
    while let Ok(mut ready) = fd.readable().await {
        let set = signals.take();
        ready.clear_ready();
        if set.hangup()
            && let Err(error) = vlog::logger().reopen()
        {
            tracing::warn!(target: "vlog", "cannot reopen the log file ({error})");
        }
        if let Some(signal) = set.describe_termination() {
            tracing::warn!(target: "fatal_signal", "terminating with {signal}");
            daemon.borrow_mut().request_exit(Exit { cleanup: false });
        }
    }
}

fn finish(daemon: &Shared, exit: Exit) {
    if exit.cleanup {
        daemon.borrow_mut().remove_bridges();
    }
    let daemon = daemon.borrow();
    match &daemon.placed {
        // Without bridges there are no flows that could go on.
        Some(placed) if daemon.switch.bridges().next().is_none() => {
            placed.cleanup();
            daemon.configuration.remove_pins();
            if let Some(kernel) = daemon.coupled.as_ref().and_then(|coupled| coupled.kernel()) {
                kernel.cleanup();
            }
        }
        _ => daemon.switch.datapath().shutdown(),
    }
}
