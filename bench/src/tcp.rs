//! TCP between two namespaces over plain veth pairs.

use crate::args::Plan;
use crate::link::tcx_ingress;
use crate::measure::{Contender, Rounds, Series, rounds};
use crate::netns::{ifindex, run as sh};
use crate::object::{Hook, Load, Programs};
use crate::pin::{Cpus, pin};
use crate::report::{Figure, Goal, Relation, Report};
use anyhow::{Context, Result, anyhow};
use slipswitch_tests::harness::{Host, Kind, Mode, Netns, Switch};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

const GROUP: &str = "tcp";
const GBITS: &str = "Gbit/s";
/// Addresses of the sender and of the receiver, in each setting's own namespaces.
const ADDRESSES: [&str; 2] = ["10.0.0.1/24", "10.0.0.2/24"];
const PORT: u16 = 5201;
/// Scatter (MAD over median) that is too wide.
const WIDE: f64 = 0.05;
/// Until the window is open.
const WARM_UP: Duration = Duration::from_millis(300);
/// For the first connection: a switch may still be learning.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of one write, as much as a GSO packet takes several times over.
const CHUNK: usize = 512 << 10;
const SILENCE: Duration = Duration::from_secs(5);

/// Two hosts and what is between them.
struct Setting {
    name: &'static str,
    hosts: [Host; 2],
    /// What has to live as long.
    held: Held,
}

enum Held {
    Redirect { _links: Vec<OwnedFd>, _netns: Netns },
    Bridge { _netns: Netns },
    Switch { switch: Box<Switch> },
}

/// Measures.
///
/// # Errors
/// When not even the limit can be measured.
pub fn run(report: &mut Report, plan: Plan, cpus: Cpus) -> Result<()> {
    report.note(format!(
        "tcp: one connection; the sender's thread is pinned to CPU {}, the receiver's to CPU {}; \
         daemons are not pinned. Devices are as the kernel makes them.",
        cpus.traffic, cpus.other
    ));
    let bare = redirect()?;
    let mut settings = vec![bare];
    for name in [BRIDGE, SLIPSWITCH, USERSPACE] {
        eprintln!("tcp: setting up {name}");
        match crate::attempt(|| make(name)).and_then(|s| s.ready().map(|()| s)) {
            Ok(setting) => settings.push(setting),
            Err(e) => report.miss(format!("{GROUP} {name}"), format!("{e:#}")),
        }
    }
    let names: Vec<&str> = settings.iter().map(|s| s.name).collect();
    eprintln!("tcp: {}", names.join(", "));
    let mut contenders: Vec<Contender<'_>> = settings
        .iter()
        .map(|s| Box::new(move || s.throughput(plan, cpus)) as Contender<'_>)
        .collect();
    let rounds = rounds(plan, WIDE, &mut contenders)?;
    drop(contenders);
    for setting in &settings {
        if let Some(tiers) = setting.tiers() {
            report.note(format!("tcp: {} at the end: {tiers}.", setting.name));
        }
    }
    figures(report, &names, &rounds);
    Ok(())
}

const BARE: &str = "bare tcx redirect";
const BRIDGE: &str = "Linux bridge";
const SLIPSWITCH: &str = "Slipswitch";
const USERSPACE: &str = "Slipswitch, bpf-offload=false";

fn figures(report: &mut Report, names: &[&str], rounds: &Rounds) {
    let of = |name: &str| -> Option<&Series> {
        names.iter().position(|n| *n == name).and_then(|at| rounds.series.get(at))
    };
    let mut add = |name: &str, label: String, limit: &str, goal| {
        let (Some(measured), Some(bound)) = (of(name), of(limit)) else { return };
        report.add(Figure {
            group: GROUP,
            name: label,
            unit: GBITS,
            measured: measured.clone(),
            limit: Some((limit.to_owned(), bound.clone(), Relation::Share)),
            goal,
            absolute: false,
            taken: rounds.taken,
            unsteady: rounds.unsteady,
        });
    };
    add(BRIDGE, BRIDGE.into(), BARE, None);
    add(SLIPSWITCH, SLIPSWITCH.into(), BARE, Some(Goal::AtLeast(0.90)));
    add(SLIPSWITCH, SLIPSWITCH.into(), BRIDGE, Some(Goal::AtLeast(1.0)));
    add(USERSPACE, USERSPACE.into(), BARE, None);
}

fn make(name: &'static str) -> Result<Setting> {
    match name {
        BRIDGE => bridge(),
        _ => slipswitch(name),
    }
}

/// A redirect at tcx from each end's device to the other's.
fn redirect() -> Result<Setting> {
    let netns = Netns::new();
    let hosts = hosts(&netns);
    let devices = [ifindex(&netns, "v1")?, ifindex(&netns, "v2")?];
    let links = netns.with(move || {
        let [left, right] = devices;
        let mut links = Vec::new();
        for (from, to) in [(left, right), (right, left)] {
            let load = Load { hook: Hook::Tc, flows: 1, output: to, frags: false };
            let programs = Programs::load(load)?;
            links.push(tcx_ingress(programs.program("bare")?.as_fd(), from)?);
        }
        anyhow::Ok(links)
    })?;
    Ok(Setting { name: BARE, hosts, held: Held::Redirect { _links: links, _netns: netns } })
}

fn bridge() -> Result<Setting> {
    let netns = Netns::new();
    let hosts = hosts(&netns);
    sh(
        &netns,
        "ip link add br0 type bridge && ip link set br0 up && \
         ip link set v1 master br0 && ip link set v2 master br0",
    )?;
    Ok(Setting { name: BRIDGE, hosts, held: Held::Bridge { _netns: netns } })
}

fn slipswitch(name: &'static str) -> Result<Setting> {
    let switch = Switch::start(Kind::Slipswitch, Mode::Real);
    if name == USERSPACE {
        switch.vsctl("set Open_vSwitch . other_config:bpf-offload=false");
    }
    switch.vsctl("add-br br0");
    let hosts =
        [switch.host_on("br0", "v1", ADDRESSES[0]), switch.host_on("br0", "v2", ADDRESSES[1])];
    Ok(Setting { name, hosts, held: Held::Switch { switch: Box::new(switch) } })
}

fn hosts(netns: &Netns) -> [Host; 2] {
    [Host::new(netns, "v1", ADDRESSES[0]), Host::new(netns, "v2", ADDRESSES[1])]
}

impl Setting {
    /// Waits until the hosts reach each other.
    fn ready(&self) -> Result<()> {
        let [sender, receiver] = &self.hosts;
        anyhow::ensure!(
            sender.reaches(receiver.address(), PATIENCE),
            "the hosts do not reach each other"
        );
        Ok(())
    }

    /// What the switch says of its tiers, when the traffic has just ended.
    fn tiers(&self) -> Option<String> {
        let Held::Switch { switch } = &self.held else { return None };
        let text = switch.sh("ovs-appctl dpctl/offload-stats-show").stdout;
        let lines: Vec<&str> = text.lines().skip(1).map(str::trim).collect();
        Some(lines.join("; "))
    }

    /// What one connection carries during the plan's window.
    fn throughput(&self, plan: Plan, cpus: Cpus) -> Result<f64> {
        let [sender, receiver] = &self.hosts;
        let address = SocketAddr::new(receiver.address().parse()?, PORT);
        let (ready, listens) = std::sync::mpsc::channel();
        let window = plan.window();
        let receiving = receiver.netns.spawn(move || {
            pin(cpus.other)?;
            let listener = TcpListener::bind(address)?;
            ready.send(()).ok();
            let (stream, _) = listener.accept()?;
            receive(stream, window)
        });
        let listening = listens.recv_timeout(SILENCE).is_ok();
        let sending = sender.netns.spawn(move || {
            pin(cpus.traffic)?;
            anyhow::ensure!(listening, "the receiver does not listen");
            send(TcpStream::connect_timeout(&address, SILENCE).context("connecting")?)
        });
        let sent = sending.join().map_err(|_| anyhow!("the sender panicked"))?;
        if let Err(e) = sent {
            // Whoever still waits for the connection gets one that ends at once.
            receiver
                .netns
                .with(move || TcpStream::connect_timeout(&address, SILENCE).map(drop))
                .ok();
            return Err(e.context(self.name));
        }
        let received = receiving.join().map_err(|_| anyhow!("the receiver panicked"))?;
        received.context(self.name)
    }
}

/// Gbit/s that arrive in the window; then the connection is closed.
fn receive(mut stream: TcpStream, window: Duration) -> Result<f64> {
    stream.set_read_timeout(Some(SILENCE))?;
    let mut buffer = vec![0; CHUNK];
    let warm = Instant::now();
    while warm.elapsed() < WARM_UP {
        anyhow::ensure!(stream.read(&mut buffer)? > 0, "the sender ended");
    }
    let (begin, mut bytes) = (Instant::now(), 0);
    while begin.elapsed() < window {
        let read = stream.read(&mut buffer).context("receiving")?;
        anyhow::ensure!(read > 0, "the sender ended");
        bytes += read;
    }
    Ok(bytes as f64 * 8.0 / begin.elapsed().as_secs_f64() / 1e9)
}

/// Sends until the receiver closes.
fn send(mut stream: TcpStream) -> Result<()> {
    stream.set_write_timeout(Some(SILENCE))?;
    let buffer = vec![0x5a; CHUNK];
    loop {
        match stream.write(&buffer) {
            Ok(_) => {}
            Err(e) if matches!(e.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => {
                return Ok(());
            }
            Err(e) => return Err(e).context("sending"),
        }
    }
}
