// SPDX-License-Identifier: Apache-2.0
//! A daemon that does nothing, for the tests of this crate: it starts as its arguments say, waits
//! for SIGTERM, and can fail or crash on request.

use std::path::PathBuf;
use std::process::ExitCode;

use process::{Daemon, DaemonOptions, Signals, User};

fn main() -> ExitCode {
    vlog::init("sleeper");
    let mut options = DaemonOptions::default();
    let mut fail = None;
    for arg in std::env::args().skip(1) {
        match arg.split_once('=').unwrap_or((&arg, "")) {
            ("--detach", _) => options.detach = true,
            ("--monitor", _) => options.monitor = true,
            ("--no-chdir", _) => options.no_chdir = true,
            ("--overwrite-pidfile", _) => options.overwrite_pidfile = true,
            ("--pidfile", path) => options.pidfile = Some(PathBuf::from(path)),
            ("--fail", status) => fail = status.parse::<u8>().ok(),
            ("--user", user) => match User::parse(user) {
                Ok(user) => options.user = Some(user),
                Err(error) => {
                    vlog::fatal("daemon_unix", &error.to_string());
                    return ExitCode::FAILURE;
                }
            },
            _ => return ExitCode::from(64),
        }
    }
    let run = || -> Result<ExitCode, Box<dyn std::error::Error>> {
        let mut daemon = Daemon::start(&options)?;
        let signals = Signals::install()?;
        if let Some(status) = fail {
            eprintln!("sleeper: failing as asked");
            return Ok(ExitCode::from(status));
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
        daemon.complete()?;
        loop {
            let set = signals.wait();
            if set.terminate() {
                return Ok(ExitCode::SUCCESS);
            }
            if set.hangup() {
                std::process::abort();
            }
        }
    };
    match run() {
        Ok(code) => code,
        Err(error) => {
            vlog::fatal("daemon_unix", &error.to_string());
            ExitCode::FAILURE
        }
    }
}
