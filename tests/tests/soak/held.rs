// SPDX-License-Identifier: Apache-2.0
//! The resources that the daemon holds.

use slipswitch_tests::harness::Switch;
use std::fmt;
use std::path::{Path, PathBuf};

/// Numbers of what a process has open, and its memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Kilobytes (`RssAnon`).
    pub memory: u64,
    pub threads: usize,
    pub descriptors: usize,
    /// Of the descriptors, those of BPF.
    pub maps: usize,
    pub programs: usize,
    pub links: usize,
    /// Files in the directory of pins.
    pub pins: usize,
    /// Network devices in the switch's namespace.
    pub devices: usize,
}

impl Held {
    /// Looks at the daemon.
    pub fn by(switch: &Switch) -> Held {
        let pid = switch.sandbox().read("ovs-vswitchd.pid");
        let process = PathBuf::from(format!("/proc/{}", pid.trim()));
        let status = text(&process.join("status"));
        let mut held = Held {
            memory: number(&status, "RssAnon:"),
            threads: number(&status, "Threads:") as usize,
            descriptors: entries(&process.join("fd")).len(),
            devices: switch.netns().sh("ip -o link").lines().count(),
            ..Held::default()
        };
        for info in entries(&process.join("fdinfo")) {
            let info = text(&info); // closed meanwhile: empty
            let has = |name: &str| usize::from(info.lines().any(|l| l.starts_with(name)));
            if has("link_type:") == 1 {
                held.links += 1;
            } else {
                held.maps += has("map_id:");
                held.programs += has("prog_id:");
            }
        }
        held.pins = pins(Path::new(switch.sandbox().dir()));
        held
    }

    /// The rest.
    pub fn without_memory(&self) -> Held {
        Held { memory: 0, ..self.clone() }
    }
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Held { memory, threads, descriptors, maps, programs, links, pins, devices } = self;
        write!(
            f,
            "{memory} kB, {threads} threads, {descriptors} descriptors ({maps} maps, {programs} \
             programs, {links} links), {pins} pins, {devices} devices"
        )
    }
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|e| e.path()).collect()
}

fn number(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|l| l.strip_prefix(name));
    let word = line.and_then(|l| l.split_whitespace().next()?.parse().ok());
    word.unwrap_or_else(|| panic!("no {name} in the daemon's status: {status}"))
}

/// Pins of the switch whose run directory this is.
fn pins(run: &Path) -> usize {
    entries(&process::Dirs::from_vars(|name| (name == "OVS_RUNDIR").then(|| run.into())).bpf_pins())
        .len()
}
