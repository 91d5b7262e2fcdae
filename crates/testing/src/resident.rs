// SPDX-License-Identifier: Apache-2.0
//! A process that keeps a network namespace alive.

use crate::Netns;
use std::io;
use std::process::{Child, Command, Stdio};

/// A process in a namespace, as in any container. The switch finds the namespace of the other end
/// of a veth by its processes. The process ends when this value is dropped, and with the thread
/// that made it.
#[derive(Debug)]
pub struct Resident(Child);

impl Resident {
    /// Starts it, and returns when it is there.
    ///
    /// # Errors
    /// When it cannot be started: util-linux is not installed.
    pub fn of(netns: &Netns) -> io::Result<Resident> {
        let mut child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .args(netns.enter())
            .args(["sh", "-c", "echo; exec sleep infinity"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut out = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let resident = Resident(child);
        io::Read::read_exact(&mut out, &mut [0])?;
        Ok(resident)
    }
}

impl Drop for Resident {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
