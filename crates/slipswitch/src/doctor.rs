// SPDX-License-Identifier: Apache-2.0
//! `slipswitch doctor`: which tiers this kernel and each interface have, why not the others, and
//! what would change that.
//!
//! Ports of a running switch are asked of the switch, which knows; of other interfaces it is
//! said what would be tried. Nothing is changed.

use crate::place::Place;
use anyhow::{Result, bail};
use clap::Args;
use datapath_bpf::{SurveySettings, TierReport, survey};
use std::cell::LazyCell;
use std::collections::BTreeMap;
use std::path::PathBuf;

#[derive(Args)]
pub struct Options {
    /// Interfaces to look at; all of this network namespace but what a switch made for itself when
    /// none is named
    #[arg(value_name = "INTERFACE")]
    interfaces: Vec<String>,
    /// Answer as for an Interface row with other_config:tier=TIER (auto, xdp, tcx, userspace)
    #[arg(long, value_name = "TIER")]
    tier: Option<String>,
    /// Answer as for an Interface row with other_config:xdp-mode=MODE (native, generic)
    #[arg(long, value_name = "MODE")]
    xdp_mode: Option<String>,
    /// Answer as for an Interface row with options:bpf-object=FILE
    #[arg(long, value_name = "FILE")]
    object: Option<PathBuf>,
}

impl Options {
    /// Something is asked that need not be so.
    fn is_hypothetical(&self) -> bool {
        self.tier.is_some() || self.xdp_mode.is_some() || self.object.is_some()
    }
}

pub fn run(place: &Place, options: &Options) -> Result<()> {
    let links = netdev::link::list()?;
    let all: Vec<String> = links.into_iter().map(|l| l.name).filter(|n| n != "lo").collect();
    let is_other = |name: &&String| !placement::is_miss_device(name);
    let others: Vec<String> = all.iter().filter(is_other).cloned().collect();
    let names = if options.interfaces.is_empty() { &others } else { &options.interfaces };
    if let Some(missing) = names.iter().find(|n| !all.contains(n)) {
        bail!("there is no interface {missing} in this network namespace (ip link lists them)");
    }
    let running = running_ports(place);
    let enabled = LazyCell::new(|| !is_switched_off(place));
    print!("{}", host(place));
    for name in names {
        println!();
        match running.get(name) {
            Some(lines) if !options.is_hypothetical() => {
                println!("{name} (a port of the running switch)\n{}", lines.trim_end());
            }
            _ => print!("{}", interface(&settings(place, name, options, *enabled), name)),
        }
    }
    Ok(())
}

/// The kernel, and what of it matters.
fn host(place: &Place) -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let jit = match read("/proc/sys/net/core/bpf_jit_enable").as_str() {
        "0" => "off: BPF programs are interpreted; sysctl net.core.bpf_jit_enable=1",
        "" => "cannot be read",
        _ => "on",
    };
    let mut out = format!(
        "kernel            {}\nBPF compiler      {jit}\n",
        read("/proc/sys/kernel/osrelease")
    );
    let pinned = std::fs::read_dir(place.pins()).map_or(0, Iterator::count);
    let pins = match pinned {
        0 => "nothing is pinned there".to_owned(),
        n => format!("{n} objects are pinned: flows go on while the daemon is away"),
    };
    out += &format!("pins              {} ({pins})\n", place.pins().display());
    let daemon = match place.running("ovs-vswitchd") {
        Some(pid) => format!("runs (process {pid})"),
        None => "does not run".to_owned(),
    };
    out += &format!("daemon            {daemon}\n");
    out += &format!("other ends        {}\n", other_ends(place.running("ovs-vswitchd")));
    out
}

/// How soon the daemon, or one that ran like this program, hears of what other ends of veths do.
fn other_ends(daemon: Option<i32>) -> &'static str {
    let process = daemon.map_or_else(|| "self".to_owned(), |pid| pid.to_string());
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    if datapath_bpf::hears_other_ends(&status) {
        "what veths' other ends do is heard at once"
    } else {
        "what veths' other ends do is looked for each 5 s: with CAP_NET_BROADCAST it is heard at once"
    }
}

/// What the database says of an interface, under what the command line says. `enabled`: places of
/// flows in the kernel are not switched off.
fn settings(place: &Place, name: &str, options: &Options, enabled: bool) -> SurveySettings {
    let [object, tier, mode, kind] = row(place, name).unwrap_or_default();
    let defaults = SurveySettings::default();
    SurveySettings {
        enabled,
        tier: options.tier.clone().or(tier),
        mode: options.xdp_mode.clone().or(mode),
        object: options.object.clone().or(object.map(PathBuf::from)),
        kind: kind.unwrap_or(defaults.kind),
        pins: place.pins(),
    }
}

/// `options:bpf-object`, `other_config:tier` and `xdp-mode`, and `type` of an Interface row, when
/// a database answers and has it.
fn row(place: &Place, name: &str) -> Option<[Option<String>; 4]> {
    let columns = ["options:bpf-object", "other_config:tier", "other_config:xdp-mode", "type"];
    columns_of(place, "Interface", name, columns)
}

/// `other_config:bpf-offload` of the Open_vSwitch row, when a database answers, is false.
fn is_switched_off(place: &Place) -> bool {
    let value = columns_of(place, "Open_vSwitch", ".", ["other_config:bpf-offload"]);
    value.is_some_and(|[value]| value.is_some_and(|word| word.eq_ignore_ascii_case("false")))
}

/// Columns of a row, or elements of them; `None` where there is nothing.
fn columns_of<const N: usize>(
    place: &Place,
    table: &str,
    row: &str,
    columns: [&str; N],
) -> Option<[Option<String>; N]> {
    let get = ["--timeout=5", "--if-exists", "get", table, row];
    let arguments: Vec<&str> = get.into_iter().chain(columns).collect();
    let text = place.db_answers().then(|| place.run("ovs-vsctl", &arguments))?.ok()?;
    let values: Vec<_> = text
        .lines()
        .map(|line| line.trim().trim_matches('"'))
        .map(|value| (!value.is_empty()).then(|| value.to_owned()))
        .collect();
    values.try_into().ok()
}

fn interface(settings: &SurveySettings, name: &str) -> String {
    let mut out = format!("{name}\n");
    out.extend(survey(name, settings).iter().map(line));
    for line in settings.object.iter().flat_map(|path| datapath_bpf::about_object(path, None)) {
        out += &format!("  {line}\n");
    }
    out
}

fn line(report: &TierReport) -> String {
    match &report.state {
        Ok(how) => format!("  {:<10} yes  {how}\n", report.tier.name()),
        Err(reason) => format!("  {:<10} no   {reason}\n", report.tier.name()),
    }
}

/// What a running switch says of its ports: lines by port.
fn running_ports(place: &Place) -> BTreeMap<String, String> {
    let Some(text) = place.appctl("slipswitch/tiers", &[]).ok() else { return BTreeMap::new() };
    let mut ports = BTreeMap::new();
    let mut port = None;
    for line in text.lines() {
        match line.strip_prefix("  ") {
            None => port = Some(line.to_owned()),
            Some(_) => {
                if let Some(port) = &port {
                    let lines: &mut String = ports.entry(port.clone()).or_default();
                    lines.push_str(line);
                    lines.push('\n');
                }
            }
        }
    }
    ports
}
