// SPDX-License-Identifier: Apache-2.0
//! Open vSwitch of the distribution, with the kernel's datapath, and with its own over three kinds
//! of devices.

use super::Between;
use super::hugepages::Hugepages;
use super::vswitch::{Recipe, Vswitch};
use crate::pin::Cpus;
use anyhow::{Result, ensure};
use slipswitch_tests::harness::{Kind, Mode, Options, Switch};
use std::path::Path;
use std::process::Command;

/// Where Debian's openvswitch-switch-dpdk puts the daemon.
pub const DPDK: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
/// Starts the program that it is given first in place of the one that comes next, under the name
/// that the tools look for.
const BEFORE_DPDK: [&str; 4] =
    ["bash", "-c", r#"daemon=$1; shift 2; exec -a ovs-vswitchd "$daemon" "$@""#, "bash"];
/// Hugepages of 2 MiB for OVS-DPDK.
const PAGES: u64 = 512;
/// Megabytes of these that the daemon takes at its start.
const MEMORY: u64 = 768;
/// For all of them: no flow has to give way because of limits or of rarely being met.
const LIMITS: &str = "other_config:flow-limit=400000 other_config:max-idle=60000";
/// For its own datapath: the signature match cache is there for what the exact match cache cannot
/// hold.
const CACHE: &str = "other_config:smc-enable=true";
/// Over plain devices it takes large segments and unfinished checksums by AF_PACKET, and hands them on.
const SEGMENTS: &str = "other_config:userspace-tso-enable=true";
/// Of daemons whose polling thread alone is pinned.
const LOOSE: &str = "its other threads are where the kernel puts them";
/// The kernel's datapath.
const MODULE: &str = "openvswitch";

/// With the datapath of the kernel's module.
///
/// # Errors
/// When this kernel has none.
///
/// # Panics
/// When the daemon does not start.
pub fn kernel(cpus: Cpus) -> Result<Vswitch> {
    // Without the module there may be no modprobe either; it is seen below.
    let _ = Command::new("modprobe").args(["-q", MODULE]).status();
    let there = Path::new("/sys/module").join(MODULE).exists();
    ensure!(there, "this kernel has no module {MODULE}: make bench-kernel takes one that has");
    Ok(on_plain_devices("system", LIMITS, LIMITS, cpus))
}

/// On plain devices, by AF_PACKET, which the main thread polls.
///
/// # Panics
/// When the daemon does not start.
pub fn af_packet(cpus: Cpus, between: Between) -> Vswitch {
    let settings = format!("{LIMITS} {CACHE}");
    let prepare = match between {
        Between::Frames => settings.clone(),
        Between::Hosts => format!("{settings} {SEGMENTS}"),
    };
    on_plain_devices("netdev", &prepare, &format!("{settings}, {SEGMENTS} between hosts"), cpus)
}

fn on_plain_devices(datapath: &'static str, prepare: &str, settings: &str, cpus: Cpus) -> Vswitch {
    let before = vec!["taskset".into(), "-c".into(), cpus.other.to_string()];
    let kernel_datapath = datapath == "system";
    let options = Options::new(Kind::RealOvs, Mode::Real);
    Vswitch::new(Recipe {
        switch: Switch::with(Options { before, kernel_datapath, ..options }),
        prepare: format!("set Open_vSwitch . {prepare}"),
        datapath,
        interface: Box::new(|_| String::new()),
        settings: format!("{settings}; the daemon is on CPU {}", cpus.other),
        tier: None,
        held: None,
    })
}

/// On AF_XDP sockets.
///
/// # Panics
/// When the daemon does not start.
pub fn af_xdp(cpus: Cpus) -> Vswitch {
    let switch = Switch::start(Kind::RealOvs, Mode::Real);
    let threads = pmd(cpus);
    Vswitch::new(Recipe {
        switch,
        prepare: format!("set Open_vSwitch . {LIMITS} {CACHE} {threads}"),
        datapath: "netdev",
        interface: Box::new(|_| "type=afxdp options:n_rxq=1 options:xdp-mode=native".into()),
        settings: format!(
            "{LIMITS} {CACHE} {threads}; type=afxdp options:n_rxq=1 options:xdp-mode=native (veth has \
             no zero copy); {LOOSE}"
        ),
        tier: None,
        held: None,
    })
}

/// On DPDK's AF_XDP devices.
///
/// # Errors
/// When it is not installed, or there are no hugepages.
///
/// # Panics
/// When the daemon does not start.
pub fn dpdk(cpus: Cpus) -> Result<Vswitch> {
    ensure!(Path::new(DPDK).exists(), "there is no {DPDK}: apt install openvswitch-switch-dpdk");
    let pages = Hugepages::reserve(PAGES)?;
    let before = [BEFORE_DPDK.as_slice(), &[DPDK]].concat().into_iter().map(str::to_owned);
    let before = before.collect();
    let switch = Switch::with(Options { before, ..Options::new(Kind::RealOvs, Mode::Real) });
    let threads = pmd(cpus);
    let extra = "--no-pci --in-memory --no-telemetry";
    let vswitch = Vswitch::new(Recipe {
        switch,
        prepare: format!(
            "set Open_vSwitch . {LIMITS} {CACHE} {threads} other_config:dpdk-init=true \
             other_config:dpdk-socket-mem={MEMORY} 'other_config:dpdk-extra=\"{extra}\"'"
        ),
        datapath: "netdev",
        interface: Box::new(|name| format!("type=dpdk options:dpdk-devargs={}", devargs(name))),
        settings: format!(
            "{LIMITS} {CACHE} {threads}, {MEMORY} MiB of hugepages, {extra}; type=dpdk \
             options:dpdk-devargs={}; {LOOSE}",
            devargs("PORT")
        ),
        tier: None,
        held: Some(pages),
    });
    Ok(vswitch)
}

/// The polling thread has the CPU that traffic is not on.
fn pmd(cpus: Cpus) -> String {
    format!("other_config:pmd-cpu-mask={:#x}", 1u64 << cpus.other)
}

/// DPDK's driver over AF_XDP sockets: the one over AF_PACKET moves less here, and with
/// `qdisc_bypass` it sometimes stops sending for good.
fn devargs(port: &str) -> String {
    format!("net_af_xdp_{port},iface={port}")
}
