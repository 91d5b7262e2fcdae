// SPDX-License-Identifier: Apache-2.0
//! Devices in namespaces.

use anyhow::{Context, Result, anyhow};
use slipswitch_tests::harness::Netns;

/// A veth pair whose ends are in one namespace, both up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Interface index of the end that traffic is sent into.
    pub near: u32,
    /// Interface index of the end where it arrives.
    pub far: u32,
}

/// Makes a pair `NAMEa`, `NAMEb` with random interface indexes, so that no other namespace has the
/// same.
pub fn veth(netns: &Netns, name: &str) -> Result<Pair> {
    let near = fastrand::u32(1 << 29..1 << 30) & !1;
    let pair = Pair { near, far: near + 1 };
    run(
        netns,
        &format!(
            "ip link add {name}a index {near} type veth peer name {name}b index {} && \
             ip link set {name}a up && ip link set {name}b up",
            pair.far
        ),
    )?;
    Ok(pair)
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
