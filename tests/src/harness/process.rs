// SPDX-License-Identifier: Apache-2.0
//! A process that a test has started and that dies with it.

use super::{Netns, Output, Sandbox, wait_for, wait_until};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

/// A running program whose output goes to files in its sandbox. It dies with the *thread* that
/// started it, and when this value is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
}

impl Process {
    /// Starts `program` with `arguments`, in the namespace if one is given. Its outputs go to
    /// `NAME.out` and `NAME.err` in `sandbox`.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start(
        sandbox: &Sandbox,
        netns: Option<&Netns>,
        name: &str,
        program: &str,
        arguments: &[&str],
    ) -> Process {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]);
        if let Some(netns) = netns {
            command.args(netns.enter());
        }
        command.arg(program).args(arguments);
        sandbox.set_environment(&mut command);
        let file = |suffix| {
            let path = sandbox.file(&format!("{name}.{suffix}"));
            let file = std::fs::File::options().create(true).append(true).open(&path);
            Stdio::from(file.unwrap_or_else(|e| panic!("cannot open {}: {e}", path.display())))
        };
        command.stdout(file("out")).stderr(file("err"));
        Process { child: command.spawn().expect("setpriv is part of util-linux") }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended; `None` while it runs.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Waits for its end.
    pub fn wait(&mut self, timeout: Duration) -> Option<ExitStatus> {
        wait_for(timeout, || self.ended())
    }

    /// Sends it a signal, named as `kill` has it (`TERM`).
    pub fn signal(&self, name: &str) {
        let _ = Command::new("kill").args([&format!("-{name}"), &self.pid().to_string()]).output();
    }

    /// Ends it at once.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs a program to its end; after `timeout` it is killed and has no exit code.
///
/// # Panics
/// When it cannot be started.
pub fn run_limited(
    sandbox: &Sandbox,
    netns: Option<&Netns>,
    line: &str,
    timeout: Duration,
) -> Output {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let name = format!("limited{}", NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
    let mut process = Process::start(sandbox, netns, &name, "sh", &["-c", line]);
    let mut status = None;
    wait_until(timeout, || {
        status = process.ended();
        status.is_some()
    });
    process.kill();
    Output {
        stdout: sandbox.read(&format!("{name}.out")),
        stderr: sandbox.read(&format!("{name}.err")),
        code: status.and_then(|s| s.code()),
    }
}
