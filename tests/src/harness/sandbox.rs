// SPDX-License-Identifier: Apache-2.0
//! A directory in which a switch lives.
//!
//! The pins of the switch in bpffs are removed with it: links with their pins, programs and maps
//! with both.

use super::Output;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use testing::Home;

/// Seconds after which one of the OVS tools gives up.
const TOOL_TIMEOUT: &str = "30";

/// A directory of its own, removed when dropped together with the processes that belong to it.
#[derive(Debug)]
pub struct Sandbox {
    home: Home,
}

impl Sandbox {
    /// Makes an empty directory and its guard.
    ///
    /// # Panics
    /// When the directory for temporary files cannot be written to.
    #[expect(clippy::new_without_default, reason = "it makes a directory and a process")]
    pub fn new() -> Sandbox {
        Sandbox { home: Home::new(|dir| vec![pins(dir)]) }
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        self.home.dir()
    }

    /// Where a switch of this sandbox pins its BPF objects.
    pub fn pins(&self) -> PathBuf {
        pins(self.dir())
    }

    /// A file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir().join(name)
    }

    /// A file's text, empty when there is no such file.
    pub fn read(&self, name: &str) -> String {
        std::fs::read(self.file(name))
            .map(|b| String::from_utf8_lossy(&b).into_owned())
            .unwrap_or_default()
    }

    /// Writes a file and returns its path.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.file(name);
        std::fs::write(&path, text)
            .unwrap_or_else(|e| panic!("cannot write {}: {e}", path.display()));
        path
    }

    /// Points `command` to this sandbox: OVS's directories, the working directory, a plain
    /// environment. The command's standard input is empty.
    pub fn set_environment(&self, command: &mut Command) {
        for variable in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"] {
            command.env(variable, self.dir());
        }
        let path = std::env::var("PATH").unwrap_or_default();
        command
            .env("PATH", format!("{path}:/usr/sbin:/sbin"))
            .env("OVS_CTL_TIMEOUT", TOOL_TIMEOUT)
            .env("LC_ALL", "C")
            .env_remove("OVS_PKGDATADIR")
            .env_remove("OVS_SYSLOG_METHOD")
            .current_dir(self.dir())
            .stdin(Stdio::null());
    }

    /// Runs a line of shell here.
    ///
    /// # Panics
    /// When there is no shell.
    pub fn sh(&self, line: &str) -> Output {
        let mut command = Command::new("sh");
        command.args(["-c", line]);
        self.set_environment(&mut command);
        command.output().expect("there is a shell").into()
    }
}

fn pins(run: &Path) -> PathBuf {
    process::Dirs::from_vars(|name| (name == "OVS_RUNDIR").then(|| run.into())).bpf_pins()
}
