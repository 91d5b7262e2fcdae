// SPDX-License-Identifier: Apache-2.0
//! `slipswitch`: the user's tool. It starts and stops a switch, and reports where flows run and
//! why. For everything else there are `ovs-vsctl`, `ovs-ofctl` and `ovs-appctl`.
#![forbid(unsafe_code)]

mod doctor;
mod down;
mod explain;
mod switch_dirs;
mod up;
mod xdp_flow;

use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;
use switch_dirs::SwitchDirs;

#[derive(Parser)]
#[command(name = "slipswitch", version, about = "Starts, stops and explains a Slipswitch virtual switch", after_help = AFTER)]
struct Cli {
    /// Keep sockets, pidfiles, logs and the database in DIR, instead of where OVS_RUNDIR,
    /// OVS_LOGDIR and OVS_DBDIR (or Debian's defaults) say
    #[arg(long, value_name = "DIR", global = true)]
    dir: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start ovsdb-server, unless one answers, and then the switch daemon, unless it runs
    Up(up::Options),
    /// Stop the switch daemon, and the ovsdb-server if `up` started it
    Down(down::Options),
    /// Report the tiers that this kernel and each interface have, why others are missing, and
    /// what would change that
    Doctor(doctor::Options),
    /// Report what happens to a packet: its translation, the megaflow and the rule that needs
    /// each field of it, the tier where it runs, and why it is not a faster one
    Explain(explain::Options),
    /// Run filters of traffic control, of any program, at XDP; or show those that run there
    XdpFlow(xdp_flow::Options),
}

const AFTER: &str = "\
Examples:
  slipswitch up                         the system's switch, in /var/run/openvswitch
  slipswitch up --dir /tmp/sw           a switch of one's own; prints what to export
  ovs-vsctl add-br br0                  the ordinary tools drive it
  slipswitch doctor eth0                which tiers eth0 could be on, and why not the others
  slipswitch explain --bridge br0 in_port=p1,icmp
  slipswitch xdp-flow eth0              runs eth0's tc filters at XDP
  slipswitch down --dir /tmp/sw         stops it again

The daemon itself is slipswitchd; it takes ovs-vswitchd's command line.";

fn main() -> ExitCode {
    let cli = Cli::parse();
    let dirs = SwitchDirs::new(cli.dir.as_deref());
    let result = match cli.command {
        Command::Up(options) => up::run(&dirs, &options),
        Command::Down(options) => down::run(&dirs, &options),
        Command::Doctor(options) => doctor::run(&dirs, &options),
        Command::Explain(options) => explain::run(&dirs, &options),
        Command::XdpFlow(options) => xdp_flow::run(&dirs, &options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("slipswitch: {error:#}");
            ExitCode::FAILURE
        }
    }
}
