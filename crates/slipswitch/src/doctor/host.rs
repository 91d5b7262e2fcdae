// SPDX-License-Identifier: Apache-2.0
//! The host: its kernel, its BPF compiler, and the daemon.

use crate::switch_dirs::SwitchDirs;
use std::io;

/// Whether the kernel compiles BPF programs (`net.core.bpf_jit_enable`).
const COMPILER: &str = "/proc/sys/net/core/bpf_jit_enable";

/// Properties of a host that tiers depend on.
pub(super) struct Host {
    /// The kernel's release.
    pub kernel: String,
    pub compiler: Compiler,
    /// The directory of pinned BPF objects, and the number of them.
    pub pins: (String, usize),
    /// The daemon's process, when it runs.
    pub daemon: Option<i32>,
    /// The daemon, or a daemon with the rights of this program, gets an event when the other end of
    /// a veth pair changes.
    pub hears_other_ends: bool,
    /// The tunnel devices of the kernel that help the running daemon's tunnels, and the reasons why
    /// others are missing.
    pub tunnels: Vec<String>,
}

/// State of the kernel's BPF compiler.
pub(super) enum Compiler {
    On,
    Off,
    /// The file with the state cannot be read, for this reason.
    Unknown(String),
}

impl Host {
    /// Reads the properties of this host.
    pub fn look(dirs: &SwitchDirs) -> Host {
        let daemon = dirs.running("ovs-vswitchd");
        let process = daemon.map_or_else(|| "self".to_owned(), |pid| pid.to_string());
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        let pins = dirs.pins();
        Host {
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            compiler: Compiler::of(std::fs::read_to_string(COMPILER)),
            pins: (pins.display().to_string(), std::fs::read_dir(pins).map_or(0, Iterator::count)),
            daemon,
            hears_other_ends: datapath_bpf::hears_other_ends(&status),
            tunnels: match dirs.appctl("slipswitch/tunnel-helpers", &[]) {
                Ok(text) => text.lines().map(str::to_owned).collect(),
                Err(_) => Vec::new(), // no daemon
            },
        }
    }

    /// The daemon's state in words.
    pub fn daemon_text(&self) -> String {
        self.daemon.map_or_else(|| "does not run".to_owned(), |pid| format!("runs (process {pid})"))
    }
}

impl Compiler {
    fn of(setting: io::Result<String>) -> Compiler {
        match setting {
            Ok(text) if text.trim() == "0" => Compiler::Off,
            Ok(_) => Compiler::On,
            Err(error) => Compiler::Unknown(format!("{COMPILER} cannot be read: {error}")),
        }
    }

    /// The state in one word, for programs.
    pub fn name(&self) -> &'static str {
        match self {
            Compiler::On => "on",
            Compiler::Off => "off",
            Compiler::Unknown(_) => "unknown",
        }
    }

    /// The state and what would change it, for people.
    pub fn text(&self) -> String {
        match self {
            Compiler::On => "on".to_owned(),
            Compiler::Off => {
                "off: BPF programs are interpreted; sysctl net.core.bpf_jit_enable=1".to_owned()
            }
            Compiler::Unknown(why) => format!("unknown ({why})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_that_cannot_be_read_is_unknown() {
        assert_eq!(Compiler::of(Ok("1\n".to_owned())).name(), "on");
        assert_eq!(Compiler::of(Ok("0\n".to_owned())).name(), "off");
        let hidden = Compiler::of(Err(io::Error::from(io::ErrorKind::NotFound)));
        assert_eq!(hidden.name(), "unknown");
        assert!(hidden.text().starts_with("unknown (/proc/sys/net/core/bpf_jit_enable cannot"));
    }
}
