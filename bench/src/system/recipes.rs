// SPDX-License-Identifier: Apache-2.0
//! How each daemon is started and set: Slipswitch, and Open vSwitch of the distribution with the
//! kernel's datapath and with its own over three kinds of devices.

use super::hugepages::Hugepages;
use super::vswitch::Vswitch;
use super::{Between, Tier};
use crate::pin::Cpus;
use anyhow::{Result, ensure};
use slipswitch_tests::harness::{Kind, Mode, Options, Switch};
use std::path::Path;
use std::process::Command;

/// Where Debian's openvswitch-switch-dpdk puts the daemon.
pub const DPDK: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
/// Starts the first program that it is given in place of the second, under the name that the tools
/// look for.
const BEFORE_DPDK: [&str; 4] =
    ["bash", "-c", r#"daemon=$1; shift 2; exec -a ovs-vswitchd "$daemon" "$@""#, "bash"];
/// Hugepages of 2 MiB for OVS-DPDK.
const PAGES: u64 = 512;
/// Megabytes of hugepages that the daemon takes at its start.
const MEMORY: u64 = 768;
/// No megaflow is removed because of limits or because it is rarely used.
const LIMITS: &str = "other_config:flow-limit=400000 other_config:max-idle=60000";
/// The size of Slipswitch's BPF flow table.
const BPF: &str = "other_config:bpf-max-flows=524288";
/// For Open vSwitch's own datapath: the signature match cache takes the flows that the exact match
/// cache cannot hold.
const CACHE: &str = "other_config:smc-enable=true";
/// Over plain devices Open vSwitch takes large segments and unfinished checksums by AF_PACKET, and
/// hands them on.
const SEGMENTS: &str = "other_config:userspace-tso-enable=true";
/// Ports on AF_XDP sockets.
const AF_XDP: &str = "type=afxdp options:xdp-mode=native";
/// For daemons of which only the polling thread is pinned.
const LOOSE: &str = "its other threads are where the kernel puts them";
/// The kernel's datapath.
const MODULE: &str = "openvswitch";

/// Slipswitch on the CPU that traffic is not on, with ports of one tier.
pub fn slipswitch(tier: Tier, cpus: Cpus) -> Vswitch {
    with_ports(format!("other_config:tier={}", tier.name()), tier, cpus)
}

/// Slipswitch on AF_XDP sockets, which its userspace datapath reads.
pub fn slipswitch_af_xdp(cpus: Cpus) -> Vswitch {
    with_ports(AF_XDP.to_owned(), Tier::Userspace, cpus)
}

fn with_ports(port: String, tier: Tier, cpus: Cpus) -> Vswitch {
    let before = on_cpu(cpus);
    let switch = Switch::with(Options { before, ..Options::new(Kind::Slipswitch, Mode::Real) });
    Vswitch {
        tier: Some(tier),
        settings: format!("{LIMITS} {BPF}; {port}; the daemon is on CPU {}", cpus.other),
        interface: Box::new(move |_| port.clone()),
        ..Vswitch::new(switch, &format!("{LIMITS} {BPF}"), "netdev")
    }
}

/// Open vSwitch with the datapath of the kernel's module.
pub fn ovs_kernel(cpus: Cpus) -> Result<Vswitch> {
    // Without the module there may be no modprobe either, so only the result is checked.
    let _ = Command::new("modprobe").args(["-q", MODULE]).status();
    let there = Path::new("/sys/module").join(MODULE).exists();
    ensure!(there, "this kernel has no module {MODULE}: make bench-kernel takes one that has");
    Ok(on_plain_devices("system", LIMITS, LIMITS, cpus))
}

/// Open vSwitch on plain devices, by AF_PACKET, which its main thread polls.
pub fn ovs_af_packet(cpus: Cpus, between: Between) -> Vswitch {
    let settings = format!("{LIMITS} {CACHE}");
    let columns = match between {
        Between::Frames => settings.clone(),
        Between::Hosts => format!("{settings} {SEGMENTS}"),
    };
    let settings = format!("{settings}, {SEGMENTS} between hosts");
    on_plain_devices("netdev", &columns, &settings, cpus)
}

fn on_plain_devices(datapath: &str, columns: &str, settings: &str, cpus: Cpus) -> Vswitch {
    let (before, kernel_datapath) = (on_cpu(cpus), datapath == "system");
    let options = Options::new(Kind::RealOvs, Mode::Real);
    let switch = Switch::with(Options { before, kernel_datapath, ..options });
    let settings = format!("{settings}; the daemon is on CPU {}", cpus.other);
    Vswitch { settings, ..Vswitch::new(switch, columns, datapath) }
}

/// Open vSwitch on AF_XDP sockets.
pub fn ovs_af_xdp(cpus: Cpus) -> Vswitch {
    let port = format!("{AF_XDP} options:n_rxq=1");
    let columns = format!("{LIMITS} {CACHE} {}", polling_thread(cpus));
    Vswitch {
        settings: format!("{columns}; {port} (veth has no zero copy); {LOOSE}"),
        interface: Box::new(move |_| port.clone()),
        ..Vswitch::new(Switch::start(Kind::RealOvs, Mode::Real), &columns, "netdev")
    }
}

/// Open vSwitch on DPDK's AF_XDP devices.
pub fn ovs_dpdk(cpus: Cpus) -> Result<Vswitch> {
    ensure!(Path::new(DPDK).exists(), "there is no {DPDK}: apt install openvswitch-switch-dpdk");
    let pages = Hugepages::reserve(PAGES)?;
    let before = [BEFORE_DPDK.as_slice(), &[DPDK]].concat().into_iter().map(str::to_owned);
    let before = before.collect();
    let switch = Switch::with(Options { before, ..Options::new(Kind::RealOvs, Mode::Real) });
    let settings = format!("{LIMITS} {CACHE} {}", polling_thread(cpus));
    let extra = "--no-pci --in-memory --no-telemetry";
    let columns = format!(
        "{settings} other_config:dpdk-init=true other_config:dpdk-socket-mem={MEMORY} \
         'other_config:dpdk-extra=\"{extra}\"'"
    );
    let port = dpdk_port("PORT");
    Ok(Vswitch {
        interface: Box::new(dpdk_port),
        settings: format!("{settings}, {MEMORY} MiB of hugepages, {extra}; {port}; {LOOSE}"),
        _hugepages: Some(pages),
        ..Vswitch::new(switch, &columns, "netdev")
    })
}

/// Starts a daemon on the CPU that traffic is not on.
fn on_cpu(cpus: Cpus) -> Vec<String> {
    vec!["taskset".into(), "-c".into(), cpus.other.to_string()]
}

/// Puts the polling thread on the CPU that traffic is not on.
fn polling_thread(cpus: Cpus) -> String {
    format!("other_config:pmd-cpu-mask={:#x}", 1u64 << cpus.other)
}

/// DPDK's driver over AF_XDP sockets: the driver over AF_PACKET forwards less here, and with
/// `qdisc_bypass` it sometimes stops sending permanently.
fn dpdk_port(port: &str) -> String {
    format!("type=dpdk options:dpdk-devargs=net_af_xdp_{port},iface={port}")
}
