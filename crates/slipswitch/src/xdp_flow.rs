// SPDX-License-Identifier: Apache-2.0
//! `slipswitch xdp-flow`: filters of traffic control, of any program, run at XDP.

use crate::doctor::running_ports;
use crate::switch_dirs::SwitchDirs;
use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use datapath_bpf::XdpMode;
use serde_json::Value;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::DirEntry;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use xdp_flow::agent::{Agent, Settings};
use xdp_flow::program::Guard;

/// The command of the agent's control socket.
const SHOW: &str = "xdp-flow/show";
/// How long the agent may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often the switch is asked for its ports.
const ASK: Duration = Duration::from_secs(5);
/// The socket of an agent in its directory.
const SOCKET: &str = "slipswitch-xdp-flow.ctl";
/// The directories of systemd's agents (slipswitch-xdp-flow@.service): where they are, and how their
/// names begin.
const UNITS: (&str, &str) = ("/run", "slipswitch-xdp-flow-");

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true, after_help = AFTER)]
pub struct Options {
    #[command(subcommand)]
    command: Option<Command>,
    /// Devices whose ingress filters run at XDP
    #[arg(value_name = "DEVICE", required = true)]
    devices: Vec<String>,
    /// Start also where the kernel's functions cannot be watched (no BTF, or no CAP_PERFMON). Packets
    /// may then meet filters as they were before a change, until the agent has read it: for some 20
    /// milliseconds where the kernel reports the change, and 5 seconds where it does not
    #[arg(long)]
    stale_ok: bool,
    /// Run after the driver (generic XDP): for drivers without XDP
    #[arg(long)]
    generic: bool,
    /// Leave one packet of each filter to tc every SECONDS, so that programs see which filters are in
    /// use; 0 leaves none
    #[arg(long, value_name = "SECONDS", default_value_t = 1)]
    refresh: u32,
}

#[derive(Subcommand)]
enum Command {
    /// Report the filters that run at XDP, their packets, and why others do not
    Show {
        /// Only these devices
        #[arg(value_name = "DEVICE")]
        devices: Vec<String>,
        /// Answer in JSON, for programs
        #[arg(short, long)]
        json: bool,
    },
}

const AFTER: &str = "\
The agent watches the flower filters at the ingress of the devices, of any program (tc, Open
vSwitch with hw-offload, others), and runs those that it can at XDP. All other packets, and all
while a filter changes, are left to tc. When the agent ends, tc goes on alone.

Examples:
  slipswitch xdp-flow eth0 eth1         serves two devices until it is ended
  slipswitch xdp-flow show              what runs at XDP, and why the rest does not
  slipswitch xdp-flow show -j eth0      the same for programs

Redirects need targets that can send what XDP redirects: the reasons in `show` say what is missing.";

fn socket(dirs: &SwitchDirs) -> PathBuf {
    dirs.run_dir().join(SOCKET)
}

/// Returns the sockets of all agents: those of systemd are found when the command line names no
/// directory.
fn sockets(dirs: &SwitchDirs) -> Vec<PathBuf> {
    let mut all = vec![socket(dirs)];
    if !dirs.is_private() {
        all.extend(sockets_of_units(Path::new(UNITS.0)));
    }
    all
}

fn sockets_of_units(run: &Path) -> Vec<PathBuf> {
    let is_unit = |entry: &DirEntry| entry.file_name().as_bytes().starts_with(UNITS.1.as_bytes());
    let entries = std::fs::read_dir(run).into_iter().flatten().flatten().filter(is_unit);
    let mut found: Vec<PathBuf> =
        entries.map(|entry| entry.path().join(SOCKET)).filter(|socket| socket.exists()).collect();
    found.sort();
    found
}

/// Returns the ports of the switch of these directories, and of the system's.
fn switch_ports(dirs: &SwitchDirs) -> BTreeSet<String> {
    let system = dirs.is_private().then(|| SwitchDirs::new(None));
    let all = [Some(dirs), system.as_ref()].into_iter().flatten();
    all.flat_map(|dirs| running_ports(dirs).into_keys()).collect()
}

/// Refuses ports of the switch.
fn check_devices(devices: &[String], ports: &BTreeSet<String>) -> Result<()> {
    if let Some(port) = devices.iter().find(|device| ports.contains(*device)) {
        bail!(
            "{port} is a port of the switch, whose programs have its hooks: its flows run at XDP \
             without this (slipswitch doctor {port}), or take it out of its bridge first \
             (ovs-vsctl del-port {port})"
        );
    }
    Ok(())
}

pub fn run(dirs: &SwitchDirs, options: &Options) -> Result<()> {
    if let Some(Command::Show { devices, json }) = &options.command {
        return show(dirs, devices, *json);
    }
    check_devices(&options.devices, &switch_ports(dirs))?;
    if report(&socket(dirs)).is_ok() {
        bail!("an agent runs already with the directory {}", dirs.run_dir().display());
    }
    let mode = if options.generic { XdpMode::Generic } else { XdpMode::Driver };
    let settings = Settings {
        devices: options.devices.clone(),
        mode,
        guard: if options.stale_ok { Guard::StaleOk } else { Guard::Needed },
        refresh: Duration::from_secs(options.refresh.into()),
    };
    dirs.create()?;
    let agent = Agent::start(settings)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    let result = runtime.block_on(local.run_until(serve(dirs, agent)));
    // A switch that does not answer must not keep the agent.
    runtime.shutdown_background();
    result
}

/// Asks the switch for its ports again and again: devices may become ports.
async fn leave_ports_alone(dirs: SwitchDirs, agent: Rc<RefCell<Agent>>) {
    loop {
        tokio::time::sleep(ASK).await;
        let dirs = dirs.clone();
        if let Ok(ports) = tokio::task::spawn_blocking(move || switch_ports(&dirs)).await {
            agent.borrow_mut().set_switch_ports(ports);
        }
    }
}

/// Serves until a signal ends it.
async fn serve(dirs: &SwitchDirs, agent: Agent) -> Result<()> {
    let agent = Rc::new(RefCell::new(agent));
    let registry = unixctl::Registry::new(env!("CARGO_PKG_VERSION"));
    let shown = Rc::clone(&agent);
    registry.add(SHOW, "", 0, 0, move |_| {
        Ok(xdp_flow::report::json(&mut shown.borrow_mut()).to_string())
    });
    let server =
        unixctl::Server::bind(&socket(dirs), registry).context("cannot open the control socket")?;
    tokio::task::spawn_local(server.run());
    tokio::task::spawn_local(leave_ports_alone(dirs.clone(), Rc::clone(&agent)));
    let (mut end, mut interrupt) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let mut failure = String::new();
    loop {
        let pause = match agent.borrow_mut().step() {
            Ok(pause) => {
                failure.clear();
                pause
            }
            Err(error) => {
                let words = format!("all packets pass to tc: {error}");
                if failure != words {
                    eprintln!("slipswitch: {words}");
                    failure = words;
                }
                xdp_flow::agent::HEARTBEAT
            }
        };
        tokio::select! {
            _ = end.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// Asks an agent.
fn report(socket: &Path) -> Result<Value> {
    let arguments: [&str; 0] = [];
    let text = unixctl::client::call_socket(socket, SHOW, &arguments, Some(PATIENCE))?;
    Ok(serde_json::from_str(&text)?)
}

/// Asks all agents, and puts their reports together; `None` when none answers.
fn reports(dirs: &SwitchDirs) -> Option<Value> {
    merge(sockets(dirs).iter().filter_map(|socket| report(socket).ok()))
}

/// Puts reports of agents together; `None` for no report.
fn merge(reports: impl Iterator<Item = Value>) -> Option<Value> {
    reports.reduce(|mut all, mut more| {
        all["current"] = (all["current"] == true && more["current"] == true).into();
        if let (Some(all), Some(more)) =
            (all["devices"].as_array_mut(), more["devices"].as_array_mut())
        {
            all.append(more);
        }
        all
    })
}

fn show(dirs: &SwitchDirs, devices: &[String], json: bool) -> Result<()> {
    let mut report = reports(dirs).with_context(|| {
        let asked: Vec<String> =
            sockets(dirs).iter().map(|socket| socket.display().to_string()).collect();
        format!("no agent answers at {} (slipswitch xdp-flow DEVICE)", asked.join(", "))
    })?;
    if let Some(all) = report["devices"].as_array_mut() {
        let has = |device: &Value, name: &String| device["name"] == name.as_str();
        if let Some(missing) = devices.iter().find(|name| !all.iter().any(|d| has(d, name))) {
            bail!("no agent serves {missing}");
        }
        all.retain(|device| devices.is_empty() || devices.iter().any(|name| has(device, name)));
    }
    match json {
        true => println!("{report:#}"),
        false => print!("{}", xdp_flow::report::text(&report)),
    }
    Ok(())
}

/// Returns the devices that running agents serve, and the number of their filters at XDP.
pub fn served(dirs: &SwitchDirs) -> BTreeMap<String, usize> {
    let Some(report) = reports(dirs) else { return BTreeMap::new() };
    let of = |device: &Value| {
        let filters = device["filters"].as_array().into_iter().flatten();
        let count = filters.filter(|filter| filter["at_xdp"] == true).count();
        (device["name"].as_str().unwrap_or_default().to_owned(), count)
    };
    report["devices"].as_array().into_iter().flatten().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_agents_of_systemd_are_found() {
        let run = testing::directory();
        for name in
            ["slipswitch-xdp-flow-eth1", "slipswitch-xdp-flow-eth0", "slipswitch-xdp-flow-x", "y"]
        {
            std::fs::create_dir(run.path().join(name)).expect("a directory");
        }
        for name in ["slipswitch-xdp-flow-eth1", "slipswitch-xdp-flow-eth0", "y"] {
            std::fs::write(run.path().join(name).join(SOCKET), "").expect("a file");
        }
        let of = |name: &str| run.path().join(name).join(SOCKET);
        let expected = [of("slipswitch-xdp-flow-eth0"), of("slipswitch-xdp-flow-eth1")];
        assert_eq!(sockets_of_units(run.path()), expected);
        assert!(sockets_of_units(Path::new("/no/such/directory")).is_empty());
        let named = SwitchDirs::new(Some(run.path()));
        assert_eq!(sockets(&named), [run.path().join(SOCKET)]);
    }

    #[test]
    fn reports_are_put_together() {
        let one =
            |name: &str, current: bool| json!({"current": current, "devices": [{"name": name}]});
        let all = merge([one("eth0", true), one("eth1", false)].into_iter());
        let expected = json!({"current": false, "devices": [{"name": "eth0"}, {"name": "eth1"}]});
        assert_eq!(all, Some(expected));
        assert_eq!(merge([one("eth0", true)].into_iter()), Some(one("eth0", true)));
        assert_eq!(merge([].into_iter()), None);
    }

    #[test]
    fn ports_of_the_switch_are_refused() {
        let devices = ["eth0".to_owned(), "eth1".to_owned()];
        let ports = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        assert!(check_devices(&devices, &ports(&["eth2"])).is_ok());
        let error = check_devices(&devices, &ports(&["eth1", "eth2"])).unwrap_err().to_string();
        assert!(error.starts_with("eth1 is a port of the switch"), "{error}");
    }
}
