//! CPU that a daemon uses when there is little for it to do.

use crate::args::Plan;
use crate::cpu_time::of_process;
use crate::generator::{TARGET, Traffic, source};
use crate::measure::Series;
use crate::netns::{Pair, veth};
use crate::object::{Hook, Load, Programs, attached, seen};
use crate::pin::Cpus;
use crate::report::{Figure, Goal, Report};
use anyhow::{Context, Result, bail, ensure};
use libbpf_rs::MapHandle;
use slipswitch_tests::harness::{Kind, Mode, Switch, wait_until};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

const GROUP: &str = "idle";
/// Flows, with a rule each.
const FLOWS: u32 = 10_000;
/// How long flows may take to come to a fast tier.
const SETTLE: Duration = Duration::from_secs(30);
/// After the last change, until the daemon has done what it puts off.
const QUIET: Duration = Duration::from_secs(3);

/// Measures.
///
/// # Errors
/// When the daemon does not start.
pub fn run(report: &mut Report, plan: Plan, cpus: Cpus) -> Result<()> {
    report.note("idle: CPU time of all of the daemon's threads, as the scheduler counts it.");
    let switch = Switch::start(Kind::Slipswitch, Mode::Real);
    switch.vsctl("add-br br0 -- set bridge br0 fail_mode=secure");
    thread::sleep(QUIET);
    eprintln!("idle: no traffic");
    let mut alone = Series::default();
    for _ in 0..samples(plan) {
        alone.0.push(usage(pid(&switch)?, span(plan))?);
    }
    report.add(figure("daemon without traffic", alone, None));
    eprintln!("idle: {FLOWS} flows");
    let name = "daemon with traffic of 10K flows in a fast tier";
    match crate::attempt(|| busy(plan, cpus, &switch)) {
        Ok((usage, rate, hook)) => {
            report.add(figure(name, usage, Some(Goal::AtMost(1.0))));
            report.note(format!("idle: the traffic was {:.2} Mpps at {hook}.", rate.median()));
        }
        Err(e) => report.miss(format!("{GROUP} {name}"), format!("{e:#}")),
    }
    Ok(())
}

fn figure(name: &str, measured: Series, goal: Option<Goal>) -> Figure {
    Figure {
        group: GROUP,
        name: name.into(),
        unit: "%",
        measured,
        limit: None,
        goal,
        absolute: true,
        taken: 1,
        unsteady: false,
    }
}

fn samples(plan: Plan) -> u32 {
    if plan.quick { 1 } else { 3 }
}

fn span(plan: Plan) -> Duration {
    Duration::from_secs(if plan.quick { 3 } else { 10 })
}

/// CPU that the daemon uses under traffic, in percent; the millions of packets a second, and the
/// hook that they meet first.
///
/// Two pairs of veth: `pb` and `qa` are ports of the switch. Traffic arrives on the first, a sink
/// is behind the second.
fn busy(plan: Plan, cpus: Cpus, switch: &Switch) -> Result<(Series, Series, &'static str)> {
    let netns = switch.netns();
    let (front, back) = (veth(netns, "p")?, veth(netns, "q")?);
    switch.vsctl(
        "add-port br0 pb -- set interface pb ofport_request=1 -- \
         add-port br0 qa -- set interface qa ofport_request=2",
    );
    rules(switch);
    thread::sleep(QUIET);
    let watch = Watch { pid: pid(switch)?, run: switch.place().dir().to_owned(), plan };
    let traffic = netns.spawn(move || crate::attempt(|| under_traffic(cpus, front, back, &watch)));
    traffic.join().unwrap_or_else(|_| bail!("a thread panicked"))
}

/// To be called in the switch's namespace.
fn under_traffic(
    cpus: Cpus,
    front: Pair,
    back: Pair,
    watch: &Watch,
) -> Result<(Series, Series, &'static str)> {
    let load = Load { hook: Hook::Xdp, flows: FLOWS, output: 0, frags: false };
    let programs = Programs::load(load)?;
    programs.set_flows(FLOWS)?;
    let _sink = programs.attach_xdp("sink", back.far)?;
    // Frames meet XDP when they come through the pair; else they begin at the port, as skbs.
    let at_xdp = attached(Hook::Xdp, front.far).is_some();
    if at_xdp {
        programs.set_way(0, front.near)?;
    }
    let traffic = Traffic {
        programs: &programs,
        program: if at_xdp { "generate" } else { "arrive" },
        ifindex: if at_xdp { front.near } else { front.far },
        flows: FLOWS,
        sink: programs.map("seen")?,
        cpus,
    };
    let (used, rate) = traffic.run(|sink| watch.look(sink))?;
    Ok((used, rate, if at_xdp { "XDP" } else { "tcx" }))
}

/// What the watching thread needs to know of the daemon.
struct Watch {
    pid: u32,
    run: PathBuf,
    plan: Plan,
}

impl Watch {
    fn look(&self, sink: &MapHandle) -> Result<(Series, Series)> {
        let mut held = String::new();
        let fast = wait_until(SETTLE, || {
            thread::sleep(Duration::from_secs(1));
            let (fast, all) = self.tiers();
            held = format!("{fast} of {all} megaflows are in a fast tier");
            fast >= FLOWS as usize
        });
        ensure!(fast, "{held} after {} s", SETTLE.as_secs());
        thread::sleep(QUIET);
        let (mut used, mut rate) = (Series::default(), Series::default());
        for _ in 0..samples(self.plan) {
            let (begin, before) = (Instant::now(), seen(sink)?);
            used.0.push(usage(self.pid, span(self.plan))?);
            let packets = seen(sink)? - before;
            rate.0.push(packets as f64 / begin.elapsed().as_secs_f64() / 1e6);
        }
        Ok((used, rate))
    }

    /// Megaflows in a faster tier than the base, and all.
    fn tiers(&self) -> (usize, usize) {
        let output = Command::new("ovs-appctl")
            .args(["dpctl/dump-flows", "-m"])
            .env("OVS_RUNDIR", &self.run)
            .output();
        let text = output.map(|o| String::from_utf8_lossy(&o.stdout).into_owned());
        let text = text.unwrap_or_default();
        let lines = || text.lines().filter(|l| l.contains("actions:"));
        let fast = lines().filter(|l| l.contains("dp:tcx") || l.contains("dp:xdp")).count();
        (fast, lines().count())
    }
}

fn pid(switch: &Switch) -> Result<u32> {
    let text = switch.place().read("ovs-vswitchd.pid");
    text.trim().parse().with_context(|| format!("the pidfile says {text:?}"))
}

/// Percent of one CPU that all threads of a process use during `span`.
fn usage(pid: u32, span: Duration) -> Result<f64> {
    let (begin, before) = (Instant::now(), of_process(pid)?);
    thread::sleep(span);
    let used = of_process(pid)?.saturating_sub(before);
    Ok(used.as_secs_f64() / begin.elapsed().as_secs_f64() * 100.0)
}

/// A rule each, exact in what identifies a flow.
fn rules(switch: &Switch) {
    let mut text = String::new();
    for flow in 0..FLOWS {
        let source = source(flow);
        let _ = writeln!(
            text,
            "priority=10,in_port=1,udp,nw_src={source},nw_dst={TARGET},tp_src=4000,tp_dst=5000 \
             actions=output:2"
        );
    }
    switch.flows("br0", &text);
}
