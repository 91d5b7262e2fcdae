//! The same commands given to both daemons, and what came of them compared.

use super::switch::dummy_bridge_line;
use super::{Kind, Mode, Options, Output, Switch, normalise};
use std::fmt::Write;

/// Ports of the bridge that each scenario starts with.
const PORTS: u32 = 4;

/// A list of shell commands, one to a line, for a switch in dummy mode with a stopped clock, a
/// bridge `br0` and four dummy ports `p1` to `p4`. Lines may use:
///
/// - `vsctl`, `ofctl`, `appctl`: short for `ovs-vsctl`, ...;
/// - `receive PORT PACKET`: for `ovs-appctl netdev-dummy/receive`;
/// - `trace FLOW`: for `ovs-appctl ofproto/trace br0`.
///
/// Empty lines and lines that start with `#` are left out. A line ending in `\` goes on.
#[derive(Clone, Copy, Debug)]
pub struct Scenario<'a> {
    /// The commands.
    pub script: &'a str,
}

/// Differences that are meant, each with its reason; one that is in neither output is ignored.
#[derive(Clone, Copy, Debug)]
struct Allowed {
    /// A text in what the oracle writes to either output and the `exit N` behind them...
    real: &'static str,
    /// ... and what Slipswitch writes in its place.
    ours: &'static str,
    /// Why.
    reason: &'static str,
}

const ALLOWED: &[Allowed] = &[];

const PRELUDE: &str = "
vsctl() { ovs-vsctl \"$@\"; }
ofctl() { ovs-ofctl \"$@\"; }
appctl() { ovs-appctl \"$@\"; }
trace() { ovs-appctl ofproto/trace br0 \"$@\"; }
receive() { ovs-appctl netdev-dummy/receive \"$@\"; }
";

/// Runs the scenario on both daemons; with `SLIPSWITCH_TEST_ORACLE` twice on the oracle, which
/// shows whether a scenario gives the same each time.
///
/// # Panics
/// When they differ: the panic's text has each command with both outputs.
pub fn compare(scenario: Scenario) {
    let real = scenario.run(Kind::RealOvs);
    let ours = scenario.run(Kind::under_test());
    let mut report = String::new();
    for ((line, real), (_, ours)) in real.iter().zip(&ours) {
        let (mut real, ours) = (rendered(real), rendered(ours));
        for allowed in ALLOWED {
            real = real.replace(allowed.real, allowed.ours);
        }
        if real != ours {
            let _ = write!(report, "$ {line}\n{}", difference(&real, &ours));
        }
    }
    let allowed: String =
        ALLOWED.iter().map(|a| format!("{} for {}: {}\n", a.ours, a.real, a.reason)).collect();
    assert!(
        report.is_empty(),
        "- is Open vSwitch, + is Slipswitch:\n{report}\nthese differences are allowed:\n{allowed}"
    );
}

impl Scenario<'_> {
    /// Runs it on one daemon: each command with what it wrote, normalised.
    pub fn run(&self, kind: Kind) -> Vec<(String, Output)> {
        let switch = Switch::with(Options { kind, mode: Mode::Dummy, arguments: Vec::new() });
        switch.vsctl(&dummy_bridge_line("br0", PORTS));
        switch.appctl("time/stop");
        switch.place().write("prelude", PRELUDE);
        let dir = switch.place().dir().display().to_string();
        let clean = |text: String| normalise(&text, &dir);
        let run = |line: String| {
            let output = switch.sh(&format!(". ./prelude\n{line}"));
            let output =
                Output { stdout: clean(output.stdout), stderr: clean(output.stderr), code: output.code };
            (line, output)
        };
        self.lines().into_iter().map(run).collect()
    }

    fn lines(&self) -> Vec<String> {
        let joined = self.script.replace("\\\n", " ");
        joined
            .lines()
            .map(str::trim)
            .filter(|l| !l.is_empty() && !l.starts_with('#'))
            .map(str::to_owned)
            .collect()
    }
}

/// Both outputs of a command and how it ended, as one text.
fn rendered(output: &Output) -> String {
    let end = output.code.map_or_else(|| "killed".to_owned(), |code| format!("exit {code}"));
    format!("{}{}{end}\n", output.stdout, output.stderr)
}

/// Both texts, line by line.
fn difference(real: &str, ours: &str) -> String {
    let mut text = String::new();
    let (real, ours): (Vec<&str>, Vec<&str>) = (real.lines().collect(), ours.lines().collect());
    for (sign, line) in align(&real, &ours) {
        let _ = writeln!(text, "{sign} {line}");
    }
    text
}

/// The shortest way from one list of lines to the other, by the longest common subsequence.
fn align<'a>(a: &[&'a str], b: &[&'a str]) -> Vec<(char, &'a str)> {
    let mut common = vec![vec![0_usize; b.len() + 1]; a.len() + 1];
    let at = |table: &Vec<Vec<usize>>, i: usize, j: usize| {
        table.get(i).and_then(|r| r.get(j)).copied().unwrap_or(0)
    };
    for (i, x) in a.iter().enumerate().rev() {
        for (j, y) in b.iter().enumerate().rev() {
            let value = if x == y {
                at(&common, i + 1, j + 1) + 1
            } else {
                at(&common, i + 1, j).max(at(&common, i, j + 1))
            };
            if let Some(cell) = common.get_mut(i).and_then(|r| r.get_mut(j)) {
                *cell = value;
            }
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut out = Vec::new();
    loop {
        match (a.get(i), b.get(j)) {
            (Some(x), Some(y)) if x == y => {
                out.push((' ', *x));
                (i, j) = (i + 1, j + 1);
            }
            (Some(x), y) if y.is_none() || at(&common, i + 1, j) >= at(&common, i, j + 1) => {
                out.push(('-', *x));
                i += 1;
            }
            (_, Some(y)) => {
                out.push(('+', *y));
                j += 1;
            }
            _ => return out,
        }
    }
}
