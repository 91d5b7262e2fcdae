//! The command line.

use clap::{Parser, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

const AFTER: &str = "\
Figures:
  cost   nanoseconds of the switch's programs over a bare redirect, by BPF_PROG_RUN, at XDP and
         at tc: one flow, 65,536 flows in random order, 128 masks in steady state
  udp    60-byte UDP through two veth pairs at XDP, as a share of a bare devmap redirect:
         1, 1,024, 65,536 and 262,144 flows, a rule for each. Generator, switch and sink share
         one core, as NAPI runs where the generator does
  tcp    TCP between two namespaces over plain veth pairs, as a share of a bare redirect at
         tcx: the Linux bridge, Slipswitch, and Slipswitch without BPF (bpf-offload=false)
  table  262,144 flows put into the BPF flow table, swept for statistics, and removed, against
         plain memory of the same size
  idle   CPU that the daemon uses without traffic and with traffic of 10,000 flows in a fast
         tier

Every figure stands beside its limit, measured in the same run: pinned, interleaved (limit,
switch, limit, switch, ...), repeated. A figure is the median over the rounds of what a round's
measurements say about each other; MAD is the median distance from the median. Measurements
that scatter too widely are taken again, at most twice, and marked with ~ if they still do.

It needs root, clang at build time, and for tcp and idle Debian's openvswitch packages. All
traffic is in network namespaces of its own; nothing stays behind. It exits with 1 when a goal
is missed and with 2 when a figure could not be measured.

Examples:
  cargo run --release -p slipswitch-bench
  cargo run --release -p slipswitch-bench -- cost udp --repeat 15 --json figures.json
  cargo run --release -p slipswitch-bench -- tcp --quick";

/// Measures Slipswitch against the limits of the machine it runs on.
#[derive(Debug, Parser)]
#[command(name = "slipswitch-bench", version, after_help = AFTER)]
pub struct Args {
    /// What to measure
    #[arg(value_enum, default_values_t = [Group::All])]
    pub groups: Vec<Group>,
    /// Rounds of each measurement [default: 9, or 3 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: Option<u32>,
    /// Shorter rounds and fewer of them: a first look, not a result
    #[arg(long)]
    pub quick: bool,
    /// Also write the figures, with every sample, to FILE
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Figures that are measured together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Group {
    /// Program cost over a bare redirect
    Cost,
    /// Small packets at XDP
    Udp,
    /// TCP between namespaces
    Tcp,
    /// Flow table operations
    Table,
    /// CPU of a daemon that has little to do
    Idle,
    /// All of these
    All,
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Rounds.
    pub repeat: u32,
    /// Shorter rounds.
    pub quick: bool,
}

impl Args {
    /// True when `group` was asked for.
    pub fn wants(&self, group: Group) -> bool {
        self.groups.iter().any(|g| *g == group || *g == Group::All)
    }

    /// How much to measure.
    pub fn plan(&self) -> Plan {
        let rounds = if self.quick { 3 } else { 9 };
        Plan { repeat: self.repeat.unwrap_or(rounds), quick: self.quick }
    }
}

impl Plan {
    /// How long traffic is looked at in one round.
    pub fn window(&self) -> Duration {
        Duration::from_millis(if self.quick { 300 } else { 1000 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn without_names_all_is_measured() {
        let args = Args::parse_from(["bench"]);
        assert!(args.wants(Group::Cost) && args.wants(Group::Idle));
        let args = Args::parse_from(["bench", "udp", "tcp", "--quick"]);
        assert!(args.wants(Group::Udp) && !args.wants(Group::Cost));
        assert_eq!(args.plan().repeat, 3);
    }
}
