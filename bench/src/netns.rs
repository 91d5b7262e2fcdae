// SPDX-License-Identifier: Apache-2.0
//! Devices in namespaces.

use anyhow::{Context, Result, anyhow};
use slipswitch_tests::harness::Netns;

/// Makes a veth pair `NAMEa`, `NAMEb` in one namespace, both up, and returns their interface
/// indexes: random ones, so that no other namespace has the same.
pub fn veth(netns: &Netns, name: &str) -> Result<[u32; 2]> {
    let near = fastrand::u32(1 << 29..1 << 30) & !1;
    let far = near + 1;
    let pair = format!("{name}a index {near} type veth peer name {name}b index {far}");
    let up = format!("ip link set {name}a up && ip link set {name}b up");
    run(netns, &format!("ip link add {pair} && {up}"))?;
    Ok([near, far])
}

pub fn ifindex(netns: &Netns, device: &str) -> Result<u32> {
    let text = run(netns, &format!("ip -o link show dev {device}"))?;
    let number = text.split(':').next().and_then(|n| n.trim().parse().ok());
    number.with_context(|| format!("no index in: {text}"))
}

/// Runs a line of shell in the namespace; its standard output.
///
/// # Errors
/// When it fails, with its output.
pub fn run(netns: &Netns, line: &str) -> Result<String> {
    let output = netns.run(line);
    if !output.ok() {
        return Err(anyhow!("{line}: {}", output.text().trim()));
    }
    Ok(output.stdout)
}
