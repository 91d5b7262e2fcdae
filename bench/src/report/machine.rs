// SPDX-License-Identifier: Apache-2.0
//! The machine of a run, its kernel, and the versions of the compared software.

use crate::topology::CONGESTION_CONTROL;
use indexmap::IndexMap;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Facts by name, in the order in which they are shown.
pub type Facts = IndexMap<String, String>;

/// Reads the facts of this machine; "unknown" where that fails.
pub fn facts() -> Facts {
    let unknown = || "unknown".to_owned();
    let facts = [
        ("date", said("date", &["-u", "+%Y-%m-%d %H:%M UTC"])),
        ("CPU", field("/proc/cpuinfo", "model name").map(|model| with_hypervisor(&model))),
        ("cores", Some(cores())),
        ("caches", Some(caches())),
        ("memory", field("/proc/meminfo", "MemTotal").and_then(|total| memory(&total))),
        ("kernel", read("/proc/sys/kernel/osrelease")),
        ("mitigations", Some(mitigations(Path::new("/sys/devices/system/cpu/vulnerabilities")))),
        ("BPF JIT", read("/proc/sys/net/core/bpf_jit_enable").map(|on| jit(&on))),
        ("clock source", read("/sys/devices/system/clocksource/clocksource0/current_clocksource")),
        ("TCP", Some(tcp())),
        ("load before", read("/proc/loadavg")),
        ("distribution", field_by("/etc/os-release", "PRETTY_NAME", '=')),
        ("Slipswitch", Some(slipswitch())),
        ("Open vSwitch", said("ovs-vswitchd", &["--version"])),
        ("OVS-DPDK", said(crate::system::DPDK, &["--version"])),
    ];
    facts.into_iter().map(|(n, fact)| (n.to_owned(), fact.unwrap_or_else(unknown))).collect()
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn field(path: &str, name: &str) -> Option<String> {
    field_by(path, name, ':')
}

/// The first value of a name in a file of `NAME SEPARATOR VALUE`.
fn field_by(path: &str, name: &str, separator: char) -> Option<String> {
    let text = read(path)?;
    let values = text.lines().filter_map(|line| line.split_once(separator));
    let value = values.filter(|(n, _)| n.trim() == name).map(|(_, value)| value).next()?;
    Some(value.trim().trim_matches('"').to_owned())
}

/// The output of a program, on one line.
fn said(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let words: Vec<&str> = text.lines().map(str::trim).collect();
    (output.status.success() && !words.is_empty()).then(|| words.join(", "))
}

fn with_hypervisor(model: &str) -> String {
    let flags = field("/proc/cpuinfo", "flags").unwrap_or_default();
    let guest = flags.split(' ').any(|flag| flag == "hypervisor");
    if guest { format!("{model}, in a virtual machine") } else { model.to_owned() }
}

fn cores() -> String {
    let text = read("/proc/cpuinfo").unwrap_or_default();
    let count = text.lines().filter(|l| l.starts_with("processor")).count();
    let mhz = field("/proc/cpuinfo", "cpu MHz").unwrap_or_else(|| "unknown".into());
    format!("{count} at {mhz} MHz")
}

fn caches() -> String {
    let index = |n| format!("/sys/devices/system/cpu/cpu0/cache/index{n}");
    let sizes = (0..4).filter_map(|n| {
        let level = read(&format!("{}/level", index(n)))?;
        let kind = read(&format!("{}/type", index(n)))?;
        let size = read(&format!("{}/size", index(n)))?;
        let kind =
            if kind == "Unified" { String::new() } else { format!(" {}", kind.to_lowercase()) };
        Some(format!("L{level}{kind} {size}"))
    });
    let sizes: Vec<String> = sizes.collect();
    if sizes.is_empty() { "unknown".into() } else { sizes.join(", ") }
}

/// From `24684432 kB`.
fn memory(total: &str) -> Option<String> {
    let kib: f64 = total.split(' ').next()?.parse().ok()?;
    Some(format!("{:.1} GiB", kib / f64::from(1 << 20)))
}

/// Every mitigation that is in force, and the number of the others.
fn mitigations(dir: &Path) -> String {
    let mut in_force = Vec::new();
    let mut others = 0;
    let mut entries: Vec<_> = fs::read_dir(dir).into_iter().flatten().flatten().collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let state = fs::read_to_string(entry.path()).unwrap_or_default();
        match state.trim() {
            "Not affected" => others += 1,
            state => in_force.push(format!("{}: {state}", entry.file_name().to_string_lossy())),
        }
    }
    if in_force.is_empty() && others == 0 {
        return "unknown".into();
    }
    in_force.push(format!("not affected by {others} others"));
    in_force.join("; ")
}

fn tcp() -> String {
    let of_machine = read("/proc/sys/net/ipv4/tcp_congestion_control");
    let of_machine = of_machine.unwrap_or_else(|| "unknown".into());
    format!("{CONGESTION_CONTROL} at hosts (this machine's own is {of_machine})")
}

fn jit(on: &str) -> String {
    match on {
        "0" => "off".into(),
        "1" => "on".into(),
        other => format!("bpf_jit_enable={other}"),
    }
}

/// Version and, where the source is under git, the commit.
fn slipswitch() -> String {
    let version = env!("CARGO_PKG_VERSION");
    let source = env!("CARGO_MANIFEST_DIR");
    let git = |arguments: &[&str]| said("git", &[&["-C", source], arguments].concat());
    let build = if cfg!(debug_assertions) { ", NOT OPTIMISED" } else { "" };
    match git(&["rev-parse", "--short=12", "HEAD"]) {
        Some(commit) => {
            let changed = git(&["status", "--porcelain", "--untracked-files=no"]).is_some();
            let changed = if changed { " with changes" } else { "" };
            format!("{version}, commit {commit}{changed}{build}")
        }
        None => format!("{version}{build}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_kernel_cores_and_memory() {
        let facts = facts();
        assert!(facts["kernel"].contains('.'), "{facts:?}");
        assert!(!facts["cores"].starts_with('0'), "{facts:?}");
        assert!(facts["memory"].ends_with("GiB"), "{facts:?}");
        assert!(facts["date"].ends_with("UTC"), "{facts:?}");
    }

    #[test]
    fn only_mitigations_in_force_are_named() {
        let dir = testing::directory();
        fs::write(dir.path().join("meltdown"), "Not affected\n").unwrap();
        fs::write(dir.path().join("spectre_v2"), "Mitigation: Retpolines\n").unwrap();
        let text = mitigations(dir.path());
        assert_eq!(text, "spectre_v2: Mitigation: Retpolines; not affected by 1 others");
        assert_eq!(mitigations(&dir.path().join("none")), "unknown");
    }
}
