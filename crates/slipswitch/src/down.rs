// SPDX-License-Identifier: Apache-2.0
//! `slipswitch down`.

use crate::switch_dirs::SwitchDirs;
use anyhow::{Result, bail};
use std::path::Path;
use std::time::{Duration, Instant};

/// Options of `slipswitch down`.
#[derive(clap::Args)]
pub struct Options {
    /// Also remove what a plain stop leaves for a restart: internal devices and flows
    #[arg(long)]
    cleanup: bool,
}

/// How long a program may take to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// Stops the daemon, then the database server that has its pidfile here.
pub fn run(dirs: &SwitchDirs, options: &Options) -> Result<()> {
    let exit: &[&str] = if options.cleanup { &["exit", "--cleanup"] } else { &["exit"] };
    stop(dirs, "ovs-vswitchd", exit)?;
    stop(dirs, "ovsdb-server", &["exit"])
}

fn stop(dirs: &SwitchDirs, program: &str, exit: &[&str]) -> Result<()> {
    let Some(pid) = dirs.running(program) else {
        println!("{program} does not run here");
        return Ok(());
    };
    let target = format!(
        "--target={}",
        dirs.pidfile(program).with_file_name(format!("{program}.{pid}.ctl")).display()
    );
    let arguments: Vec<&str> =
        std::iter::once(target.as_str()).chain(exit.iter().copied()).collect();
    dirs.run("ovs-appctl", &arguments)?;
    let start = Instant::now();
    while Path::new(&format!("/proc/{pid}")).exists() {
        if start.elapsed() > PATIENCE {
            bail!(
                "{program} (pid {pid}) was asked to exit, but still runs after {} s",
                PATIENCE.as_secs()
            );
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    println!("stopped {program}, pid {pid}");
    Ok(())
}
