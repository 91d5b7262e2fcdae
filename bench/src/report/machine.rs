// SPDX-License-Identifier: Apache-2.0
//! The machine of a run, its kernel, and the versions of the compared software.

use crate::system::DPDK;
use indexmap::IndexMap;
use std::process::Command;

/// Facts by name, in the order in which they are shown.
pub type Facts = IndexMap<String, String>;

/// Names of facts, and lines of shell that print them.
const FACTS: [(&str, &str); 10] = [
    ("date", "date -u '+%Y-%m-%d %H:%M UTC'"),
    (
        "CPU",
        "lscpu | sed -n 's/^Model name: *//p; s/^Hypervisor vendor: */in a virtual machine of /p'",
    ),
    ("cores", "echo $(nproc --all) at $(sed -n '/^cpu MHz/ { s/.*: //p; q }' /proc/cpuinfo) MHz"),
    ("caches", r"lscpu | sed -n 's/^\(L[1-9].*\) cache: */\1 /p'"),
    ("memory", r#"awk '/^MemTotal/ { printf "%.1f GiB", $2 / 2 ^ 20 }' /proc/meminfo"#),
    ("kernel", "uname -r"),
    ("mitigations", "cd /sys/devices/system/cpu/vulnerabilities && grep -v '^Not affected' *"),
    ("load before", "cat /proc/loadavg"),
    ("distribution", r#". /etc/os-release && echo "$PRETTY_NAME""#),
    ("Open vSwitch", "ovs-vswitchd --version"),
];

/// Reads the facts of this machine; "unknown" where that fails.
pub fn facts() -> Facts {
    let dpdk = format!("{DPDK} --version");
    let facts = FACTS.into_iter().chain([("OVS-DPDK", dpdk.as_str())]);
    let mut facts: Facts = facts.map(|(name, line)| (name.to_owned(), said(line))).collect();
    facts.insert("Slipswitch".to_owned(), slipswitch());
    facts
}

/// The output of a line of shell, on one line.
fn said(line: &str) -> String {
    let output = Command::new("sh").args(["-c", line]).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let text = text.unwrap_or_default();
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    if lines.is_empty() { "unknown".into() } else { lines.join(", ") }
}

/// Version and commit.
fn slipswitch() -> String {
    let (version, source) = (env!("CARGO_PKG_VERSION"), env!("CARGO_MANIFEST_DIR"));
    let describe = "describe --always --exclude='*' --abbrev=12 --dirty=' with changes'";
    let commit = said(&format!("git -C '{source}' {describe}"));
    let build = if cfg!(debug_assertions) { ", NOT OPTIMISED" } else { "" };
    format!("{version}, commit {commit}{build}")
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
        assert!(!facts["mitigations"].contains(":Not affected"), "{facts:?}");
    }
}
