// SPDX-License-Identifier: Apache-2.0
//! The directories of a switch, and the programs that are run for it.

use anyhow::{Context, Result, bail};
use process::Dirs;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// How long the daemon may take to answer.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(30);

/// The directories of one switch.
#[derive(Clone)]
pub struct SwitchDirs {
    dirs: Dirs,
    private: bool,
}

impl SwitchDirs {
    /// Returns directories with all files in `dir`, or in the directories of the environment.
    pub fn new(dir: Option<&Path>) -> SwitchDirs {
        let mut dirs = Dirs::from_env();
        if let Some(dir) = dir {
            let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
            dirs.run.clone_from(&dir);
            dirs.log.clone_from(&dir);
            dirs.db = dir;
        }
        SwitchDirs { dirs, private: dir.is_some() }
    }

    /// Makes the directories that are missing.
    pub fn create(&self) -> Result<()> {
        for dir in [&self.dirs.run, &self.dirs.log, &self.dirs.db] {
            std::fs::DirBuilder::new()
                .recursive(true)
                .mode(0o755)
                .create(dir)
                .with_context(|| format!("cannot make the directory {}", dir.display()))?;
        }
        Ok(())
    }

    /// True when the command line names the directory.
    pub fn is_private(&self) -> bool {
        self.private
    }

    /// The directory of sockets and pidfiles.
    pub fn run_dir(&self) -> &Path {
        &self.dirs.run
    }

    /// The database's socket.
    pub fn db_socket(&self) -> PathBuf {
        self.dirs.run.join("db.sock")
    }

    /// The database's file.
    pub fn db_file(&self) -> PathBuf {
        self.dirs.db.join("conf.db")
    }

    /// The database's schema, from Debian's openvswitch-switch.
    pub fn schema(&self) -> PathBuf {
        self.dirs.pkgdata.join("vswitch.ovsschema")
    }

    /// The pidfile of `program`.
    pub fn pidfile(&self, program: &str) -> PathBuf {
        self.dirs.run.join(format!("{program}.pid"))
    }

    /// The log file of `program`.
    pub fn logfile(&self, program: &str) -> PathBuf {
        self.dirs.log.join(format!("{program}.log"))
    }

    /// True when a database server answers.
    pub fn db_answers(&self) -> bool {
        UnixStream::connect(self.db_socket()).is_ok()
    }

    /// The process id of `program`, when it runs here.
    pub fn running(&self, program: &str) -> Option<i32> {
        process::read_pidfile(&self.pidfile(program)).ok()
    }

    /// Where the switch pins its BPF objects.
    pub fn pins(&self) -> PathBuf {
        self.dirs.bpf_pins()
    }

    /// Has the running daemon carry out a command.
    pub fn appctl(&self, command: &str, args: &[&str]) -> Result<String> {
        let socket = unixctl::client::socket_path(&self.dirs.run, "ovs-vswitchd")
            .with_context(|| format!("no switch runs in {}", self.dirs.run.display()))?;
        unixctl::client::call_socket(&socket, command, args, Some(PATIENCE))
            .map_err(|error| anyhow::anyhow!("{}", error.to_string().trim_end()))
    }

    /// Returns the variable that a shell must export for the tools to find this switch; `None` when
    /// they find it without.
    pub fn exports(&self) -> Option<String> {
        self.private.then(|| format!("export OVS_RUNDIR={}", self.dirs.run.display()))
    }

    /// `program` with `args`, run for this switch; its output is part of the error if it fails.
    pub fn run(&self, program: &str, args: &[&str]) -> Result<String> {
        let output =
            self.command(program).args(args).stdin(Stdio::null()).output().with_context(|| {
                format!("cannot run {program}; it comes with Debian's openvswitch-switch")
            })?;
        if !output.status.success() {
            let words = String::from_utf8_lossy(&output.stderr);
            bail!("{program} failed ({}): {}", output.status, words.trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// `program`, with the environment that names these directories.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .env("OVS_RUNDIR", &self.dirs.run)
            .env("OVS_LOGDIR", &self.dirs.log)
            .env("OVS_DBDIR", &self.dirs.db);
        command
    }
}
