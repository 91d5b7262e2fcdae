// SPDX-License-Identifier: Apache-2.0
//! `slipswitch up`.

use crate::switch_dirs::SwitchDirs;
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
pub fn run(dirs: &SwitchDirs, options: &Options) -> Result<()> {
    dirs.create()?;
    if dirs.db_answers() {
        println!("ovsdb-server answers on {}", dirs.db_socket().display());
    } else {
        start_database(dirs)?;
        println!(
            "started ovsdb-server on {}, database {}",
            dirs.db_socket().display(),
            dirs.db_file().display()
        );
    }
    if let Some(pid) = dirs.running("ovs-vswitchd").filter(|pid| is_alive(*pid)) {
        println!("the switch daemon runs already, pid {pid}");
    } else {
        start_daemon(dirs, options)?;
        let pid =
            dirs.running("ovs-vswitchd").map_or_else(String::new, |pid| format!(", pid {pid}"));
        println!("started slipswitchd{pid}, log {}", dirs.logfile("ovs-vswitchd").display());
    }
    if let Some(exports) = dirs.exports() {
        println!("for ovs-vsctl, ovs-ofctl and ovs-appctl:\n  {exports}");
    }
    Ok(())
}

fn is_alive(pid: i32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

fn start_database(dirs: &SwitchDirs) -> Result<()> {
    let (file, schema) = (dirs.db_file(), dirs.schema());
    let (file, schema) = (text(&file)?, text(&schema)?);
    if !dirs.db_file().exists() {
        if !dirs.schema().exists() {
            bail!("{schema} is missing; install Debian's openvswitch-switch");
        }
        dirs.run("ovsdb-tool", &["create", file, schema]).context("cannot make the database")?;
    } else if dirs.run("ovsdb-tool", &["needs-conversion", file, schema])?.trim() == "yes" {
        dirs.run("ovsdb-tool", &["convert", file, schema])
            .context("cannot bring the database up to date")?;
    }
    let pidfile = format!("--pidfile={}", dirs.pidfile("ovsdb-server").display());
    let logfile = format!("--log-file={}", dirs.logfile("ovsdb-server").display());
    let remote = format!("--remote=punix:{}", dirs.db_socket().display());
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
    dirs.run("ovsdb-server", &arguments).context("cannot start the database server")?;
    // Debian's start script sets this column; the daemon does not.
    let version = dirs.run("ovs-vsctl", &["--version"])?;
    let version = version.split_whitespace().nth(3).unwrap_or("unknown").to_owned();
    let db = format!("--db=unix:{}", dirs.db_socket().display());
    let set = format!("ovs-version={version}");
    dirs.run(
        "ovs-vsctl",
        &[&db, "--no-wait", "--", "init", "--", "set", "Open_vSwitch", ".", &set],
    )?;
    Ok(())
}

fn start_daemon(dirs: &SwitchDirs, options: &Options) -> Result<()> {
    let daemon = match &options.daemon {
        Some(path) => path.clone(),
        None => beside_this_program("slipswitchd").unwrap_or_else(|| PathBuf::from("slipswitchd")),
    };
    let output = dirs
        .command(&daemon)
        .arg(format!("unix:{}", dirs.db_socket().display()))
        .args(["--pidfile", "--detach", "--log-file", "-vconsole:emer", "-vsyslog:off"])
        .args(&options.arguments)
        .output()
        .with_context(|| {
            format!("cannot run {}; build it with cargo build --release", daemon.display())
        })?;
    if !output.status.success() {
        let log = dirs.logfile("ovs-vswitchd");
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
