// SPDX-License-Identifier: Apache-2.0
//! A shell that outlives the program and cleans up after it.

use std::ffi::OsStr;
use std::io;
use std::process::{Child, ChildStdout, Command, Stdio};

/// Runs a script that waits for the end of its standard input, whose other end only this program
/// holds, and then undoes what was done: when this is dropped, which waits for it, and however
/// the program ends.
#[derive(Debug)]
pub struct Guard(Child);

impl Guard {
    /// Runs `script` in sh, in a session of its own, with `arguments` from `$1` on. It should
    /// ignore signals of the terminal. Its output goes to `stdout`.
    ///
    /// # Errors
    /// When it cannot be started; setsid is part of util-linux.
    pub fn start(script: &str, arguments: &[&OsStr], stdout: Stdio) -> io::Result<Guard> {
        let mut command = Command::new("setsid");
        command.args(["sh", "-c", script, "guard"]).args(arguments);
        command.stdin(Stdio::piped()).stdout(stdout).stderr(Stdio::null()).spawn().map(Guard)
    }

    /// The pipe with the script's output, if `stdout` was a pipe. Returns it once.
    pub fn output(&mut self) -> Option<ChildStdout> {
        self.0.stdout.take()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}
