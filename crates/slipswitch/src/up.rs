// SPDX-License-Identifier: Apache-2.0
//! `slipswitch up`.

use crate::place::Place;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

/// Options of `slipswitch up`.
#[derive(clap::Args)]
pub struct Options {
    /// The daemon to start; by default slipswitchd in the directory of this program, or on PATH
    #[arg(long, value_name = "FILE")]
    daemon: Option<PathBuf>,
    /// Further arguments for the daemon, after `--`
    #[arg(last = true, value_name = "ARGUMENT")]
    arguments: Vec<String>,
}

/// Starts what does not run yet.
pub fn run(place: &Place, options: &Options) -> Result<()> {
    place.create()?;
    if place.db_answers() {
        println!("ovsdb-server answers on {}", place.db_socket().display());
    } else {
        start_database(place)?;
        println!(
            "started ovsdb-server on {}, database {}",
            place.db_socket().display(),
            place.db_file().display()
        );
    }
    if let Some(pid) = place.running("ovs-vswitchd").filter(|pid| is_alive(*pid)) {
        println!("the switch daemon runs already, pid {pid}");
    } else {
        start_daemon(place, options)?;
        let pid =
            place.running("ovs-vswitchd").map_or_else(String::new, |pid| format!(", pid {pid}"));
        println!("started slipswitchd{pid}, log {}", place.logfile("ovs-vswitchd").display());
    }
    if let Some(exports) = place.exports() {
        println!("for ovs-vsctl, ovs-ofctl and ovs-appctl:\n  {exports}");
    }
    Ok(())
}

fn is_alive(pid: i32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

fn start_database(place: &Place) -> Result<()> {
    let (file, schema) = (place.db_file(), place.schema());
    let (file, schema) = (text(&file)?, text(&schema)?);
    if !place.db_file().exists() {
        if !place.schema().exists() {
            bail!("{schema} is missing; install Debian's openvswitch-switch");
        }
        place.run("ovsdb-tool", &["create", file, schema]).context("cannot make the database")?;
    } else if place.run("ovsdb-tool", &["needs-conversion", file, schema])?.trim() == "yes" {
        place
            .run("ovsdb-tool", &["convert", file, schema])
            .context("cannot bring the database up to date")?;
    }
    let pidfile = format!("--pidfile={}", place.pidfile("ovsdb-server").display());
    let logfile = format!("--log-file={}", place.logfile("ovsdb-server").display());
    let remote = format!("--remote=punix:{}", place.db_socket().display());
    let arguments = [
        file,
        &remote,
        "--remote=db:Open_vSwitch,Open_vSwitch,manager_options",
        "--private-key=db:Open_vSwitch,SSL,private_key",
        "--certificate=db:Open_vSwitch,SSL,certificate",
        "--bootstrap-ca-cert=db:Open_vSwitch,SSL,ca_cert",
        "--no-chdir",
        "--detach",
        "-vconsole:emer",
        "-vsyslog:off",
        &pidfile,
        &logfile,
    ];
    place.run("ovsdb-server", &arguments).context("cannot start the database server")?;
    // Debian's start script sets this column; the daemon does not.
    let version = place.run("ovs-vsctl", &["--version"])?;
    let version = version.split_whitespace().nth(3).unwrap_or("unknown").to_owned();
    let db = format!("--db=unix:{}", place.db_socket().display());
    let set = format!("ovs-version={version}");
    place.run(
        "ovs-vsctl",
        &[&db, "--no-wait", "--", "init", "--", "set", "Open_vSwitch", ".", &set],
    )?;
    Ok(())
}

fn start_daemon(place: &Place, options: &Options) -> Result<()> {
    let daemon = match &options.daemon {
        Some(path) => path.clone(),
        None => beside_this_program("slipswitchd").unwrap_or_else(|| PathBuf::from("slipswitchd")),
    };
    let output = place
        .command(&daemon)
        .arg(format!("unix:{}", place.db_socket().display()))
        .args(["--pidfile", "--detach", "--log-file", "-vconsole:emer", "-vsyslog:off"])
        .args(&options.arguments)
        .output()
        .with_context(|| {
            format!("cannot run {}; build it with cargo build --release", daemon.display())
        })?;
    if !output.status.success() {
        let log = place.logfile("ovs-vswitchd");
        bail!(
            "{} did not start ({}): {}\nits log: {}",
            daemon.display(),
            output.status,
            String::from_utf8_lossy(&output.stderr).trim(),
            log.display()
        );
    }
    Ok(())
}

fn beside_this_program(name: &str) -> Option<PathBuf> {
    let path = std::env::current_exe().ok()?.with_file_name(name);
    path.exists().then_some(path)
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is not valid UTF-8", path.display()))
}
