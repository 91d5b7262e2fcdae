// SPDX-License-Identifier: Apache-2.0
//! `slipswitch xdp-flow`: filters of traffic control, of any program, run at XDP.

use crate::switch_dirs::SwitchDirs;
use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use datapath_bpf::XdpMode;
use serde_json::Value;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use xdp_flow::agent::{Agent, Settings};
use xdp_flow::program::Guard;

/// The command of the agent's control socket.
const SHOW: &str = "xdp-flow/show";
/// How long the agent may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true, after_help = AFTER)]
pub struct Options {
    #[command(subcommand)]
    command: Option<Command>,
    /// Devices whose ingress filters run at XDP
    #[arg(value_name = "DEVICE", required = true)]
    devices: Vec<String>,
    /// Start also where the kernel's functions cannot be watched (no BTF, or no CAP_PERFMON): for some
    /// milliseconds after a change, packets may then meet filters as they were before
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
    dirs.run_dir().join("slipswitch-xdp-flow.ctl")
}

pub fn run(dirs: &SwitchDirs, options: &Options) -> Result<()> {
    if let Some(Command::Show { devices, json }) = &options.command {
        return show(dirs, devices, *json);
    }
    if report(dirs).is_ok() {
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
    runtime.block_on(local.run_until(serve(dirs, agent)))
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

/// Asks the agent.
fn report(dirs: &SwitchDirs) -> Result<Value> {
    let arguments: [&str; 0] = [];
    let text = unixctl::client::call_socket(&socket(dirs), SHOW, &arguments, Some(PATIENCE))?;
    Ok(serde_json::from_str(&text)?)
}

fn show(dirs: &SwitchDirs, devices: &[String], json: bool) -> Result<()> {
    let mut report = report(dirs).with_context(|| {
        format!("no agent answers at {} (slipswitch xdp-flow DEVICE)", socket(dirs).display())
    })?;
    if let Some(all) = report["devices"].as_array_mut() {
        let has = |device: &Value, name: &String| device["name"] == name.as_str();
        if let Some(missing) = devices.iter().find(|name| !all.iter().any(|d| has(d, name))) {
            bail!("the agent does not serve {missing}");
        }
        all.retain(|device| devices.is_empty() || devices.iter().any(|name| has(device, name)));
    }
    match json {
        true => println!("{report:#}"),
        false => print!("{}", xdp_flow::report::text(&report)),
    }
    Ok(())
}

/// Returns the devices that a running agent serves, and the number of their filters at XDP.
pub fn served(dirs: &SwitchDirs) -> BTreeMap<String, usize> {
    let Ok(report) = report(dirs) else { return BTreeMap::new() };
    let of = |device: &Value| {
        let filters = device["filters"].as_array().into_iter().flatten();
        let count = filters.filter(|filter| filter["at_xdp"] == true).count();
        (device["name"].as_str().unwrap_or_default().to_owned(), count)
    };
    report["devices"].as_array().into_iter().flatten().map(of).collect()
}
