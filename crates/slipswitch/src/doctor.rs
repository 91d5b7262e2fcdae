// SPDX-License-Identifier: Apache-2.0
//! `slipswitch doctor`: the tiers that this kernel and each interface have, the reason why each
//! other tier is missing, and the change that would add it.
//!
//! The running switch reports on its own ports. For any other interface, the doctor lists the tiers
//! that a switch would try. Nothing is changed.

mod host;
mod show;

use crate::switch_dirs::SwitchDirs;
use crate::xdp_flow;
use anyhow::{Result, bail};
use clap::Args;
use datapath_bpf::{SurveySettings, TierReport, survey};
use host::Host;
use std::cell::LazyCell;
use std::collections::BTreeMap;
use std::path::PathBuf;

#[derive(Args)]
pub struct Options {
    /// Interfaces to check; by default all of this network namespace, without those that a switch
    /// made for itself
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
    /// Report everything: the host, and a line for each tier of each interface
    #[arg(short, long)]
    verbose: bool,
    /// Answer in JSON, for programs
    #[arg(long, conflicts_with = "verbose")]
    json: bool,
}

/// Facts about an interface.
struct Interface {
    name: String,
    /// A running switch has it as a port, and reports where its flows run.
    is_port: bool,
    /// Its tiers, fastest first.
    tiers: Vec<TierState>,
    /// Further lines about it.
    more: Vec<String>,
    /// Number of its tc filters that `slipswitch xdp-flow` runs at XDP; `None`: it does not serve the
    /// interface.
    xdp_flow: Option<usize>,
}

/// One tier of an interface.
struct TierState {
    name: String,
    is_possible: bool,
    /// How the tier would run flows, or why it does not and what would change that.
    detail: String,
}

impl Interface {
    /// The tier that takes the port's packets now; `None` when no switch has the interface.
    fn in_use(&self) -> Option<&str> {
        let fastest = self.tiers.iter().find(|tier| tier.is_possible);
        fastest.filter(|_| self.is_port).map(|tier| tier.name.as_str())
    }

    /// Returns the fastest tier that the interface does not have, which is worth a change.
    fn lacks(&self) -> Option<&TierState> {
        self.tiers.first().filter(|tier| !tier.is_possible)
    }
}

impl Options {
    /// Returns true when an option replaces a setting of the database.
    fn is_hypothetical(&self) -> bool {
        self.tier.is_some() || self.xdp_mode.is_some() || self.object.is_some()
    }
}

pub fn run(dirs: &SwitchDirs, options: &Options) -> Result<()> {
    let links = netdev::link::list()?;
    let all: Vec<String> = links.into_iter().map(|l| l.name).filter(|n| n != "lo").collect();
    let is_own = |name: &str| {
        placement::is_miss_device(name)
            || netdev::is_tunnel_device(name)
            || netdev::is_segmenter(name)
    };
    let is_other = |name: &&String| !is_own(name);
    let others: Vec<String> = all.iter().filter(is_other).cloned().collect();
    let names = if options.interfaces.is_empty() { &others } else { &options.interfaces };
    if let Some(missing) = names.iter().find(|n| !all.contains(n)) {
        bail!("there is no interface {missing} in this network namespace (ip link lists them)");
    }
    let running = running_ports(dirs);
    let enabled = LazyCell::new(|| !is_switched_off(dirs));
    let look = |name: &String| match running.get(name) {
        Some(lines) if !options.is_hypothetical() => port(name, lines),
        _ => interface(&settings(dirs, name, options, *enabled), name),
    };
    let mut interfaces: Vec<Interface> = names.iter().map(look).collect();
    let served = xdp_flow::served(dirs);
    for interface in &mut interfaces {
        interface.xdp_flow = served.get(&interface.name).copied();
    }
    let host = Host::look(dirs);
    print!(
        "{}",
        match () {
            () if options.json => show::json(&host, &interfaces)?,
            () if options.verbose => show::details(&host, &interfaces),
            () => show::table(&host, &interfaces),
        }
    );
    Ok(())
}

/// Returns the settings of an interface. The command line overrides the database.
/// `enabled`: places of flows in the kernel are not switched off.
fn settings(dirs: &SwitchDirs, name: &str, options: &Options, enabled: bool) -> SurveySettings {
    let [object, tier, mode, kind] = row(dirs, name).unwrap_or_default();
    let defaults = SurveySettings::default();
    SurveySettings {
        enabled,
        tier: options.tier.clone().or(tier),
        mode: options.xdp_mode.clone().or(mode),
        object: options.object.clone().or(object.map(PathBuf::from)),
        kind: kind.unwrap_or(defaults.kind),
        pins: dirs.pins(),
    }
}

/// Returns `options:bpf-object`, `other_config:tier` and `xdp-mode`, and `type` of an Interface
/// row; `None` without a database or without the row.
fn row(dirs: &SwitchDirs, name: &str) -> Option<[Option<String>; 4]> {
    let columns = ["options:bpf-object", "other_config:tier", "other_config:xdp-mode", "type"];
    columns_of(dirs, "Interface", name, columns)
}

/// Returns true when a database answers and `other_config:bpf-offload` is false in it.
fn is_switched_off(dirs: &SwitchDirs) -> bool {
    let value = columns_of(dirs, "Open_vSwitch", ".", ["other_config:bpf-offload"]);
    value.is_some_and(|[value]| value.is_some_and(|word| word.eq_ignore_ascii_case("false")))
}

/// Returns columns of a row, or elements of columns; `None` for an empty column.
fn columns_of<const N: usize>(
    dirs: &SwitchDirs,
    table: &str,
    row: &str,
    columns: [&str; N],
) -> Option<[Option<String>; N]> {
    let get = ["--timeout=5", "--if-exists", "get", table, row];
    let arguments: Vec<&str> = get.into_iter().chain(columns).collect();
    let text = dirs.db_answers().then(|| dirs.run("ovs-vsctl", &arguments))?.ok()?;
    let values: Vec<_> = text
        .lines()
        .map(|line| line.trim().trim_matches('"'))
        .map(|value| (!value.is_empty()).then(|| value.to_owned()))
        .collect();
    values.try_into().ok()
}

/// Returns the tiers that this host would allow an interface that is no port.
fn interface(settings: &SurveySettings, name: &str) -> Interface {
    let state = |report: &TierReport| {
        let (is_possible, detail) = match &report.state {
            Ok(how) => (true, how.clone()),
            Err(reason) => (false, reason.to_string()),
        };
        TierState { name: report.tier.name().to_owned(), is_possible, detail }
    };
    Interface {
        name: name.to_owned(),
        is_port: false,
        tiers: survey(name, settings).iter().map(state).collect(),
        more: settings
            .object
            .iter()
            .flat_map(|path| datapath_bpf::about_object(path, None))
            .map(|line| line.to_string())
            .collect(),
        xdp_flow: None,
    }
}

/// A port of the running switch, from the lines of `slipswitch/tiers`: a tier's name, "yes" or
/// "no", the detail; or something else about the port.
fn port(name: &str, lines: &[String]) -> Interface {
    let mut port = Interface {
        name: name.to_owned(),
        is_port: true,
        tiers: Vec::new(),
        more: Vec::new(),
        xdp_flow: None,
    };
    for line in lines {
        let mut words = line.splitn(2, ' ');
        let tier = words.next().unwrap_or_default();
        let rest = words.next().unwrap_or_default().trim_start();
        let (answer, detail) = rest.split_once(' ').unwrap_or((rest, ""));
        match answer {
            "yes" | "no" => port.tiers.push(TierState {
                name: tier.to_owned(),
                is_possible: answer == "yes",
                detail: detail.trim().to_owned(),
            }),
            _ => port.more.push(line.clone()),
        }
    }
    port
}

/// Returns the report of a running switch on its ports: lines by port.
pub fn running_ports(dirs: &SwitchDirs) -> BTreeMap<String, Vec<String>> {
    let Some(text) = dirs.appctl("slipswitch/tiers", &[]).ok() else { return BTreeMap::new() };
    let mut ports: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut port = String::new();
    for line in text.lines() {
        match line.strip_prefix("  ") {
            None => line.clone_into(&mut port),
            Some(line) => ports.entry(port.clone()).or_default().push(line.to_owned()),
        }
    }
    ports
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_port_are_read() {
        let lines = [
            "xdp        no   device-kind (this is a veth)",
            "tcx        yes  attached by a tcx link",
            "userspace  yes",
            "others at XDP do not redirect to it: hook-busy (x)",
        ];
        let port = port("p1", &lines.map(str::to_owned));
        assert_eq!(port.in_use(), Some("tcx"));
        assert_eq!(port.lacks().map(|tier| tier.name.as_str()), Some("xdp"));
        assert_eq!(port.tiers.len(), 3);
        assert_eq!(port.more, ["others at XDP do not redirect to it: hook-busy (x)"]);
    }
}
