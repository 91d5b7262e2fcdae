// SPDX-License-Identifier: Apache-2.0
//! The datapath without its bridges: `dpctl/`.
//!
//! These commands take the datapath's name (`netdev@ovs-netdev`) as a first word, which may be left
//! out, because there is one datapath. Its other names are those of the types that bridges may
//! have. Errors are prefixed with the program's name, as in OVS.

mod conntrack;
pub(super) mod flows;
mod fragments;
mod show;
mod sliced;
mod zone_limits;

use super::{ANY, Answer, Commands};
use crate::args::DummyLevel;
use crate::daemon::Daemon;
use datapath::Datapath;
use datapath_kernel::KernelDatapath;
use std::sync::Arc;
use unixctl::Invocation;

/// Options and words of a `dpctl/` command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Words<'a> {
    /// `-m`, `--more`.
    verbose: bool,
    /// `-s`, `--statistics`.
    statistics: bool,
    /// `--names`, `--no-names`; left out, names are shown when verbose.
    names: Option<bool>,
    /// `--may-create`: `mod-flow` may add.
    may_create: bool,
    /// `--clear`: `mod-flow` zeroes statistics.
    clear: bool,
    /// Words that are no options.
    rest: Vec<&'a str>,
}

impl<'a> Words<'a> {
    fn parse(args: &'a [String]) -> Result<Words<'a>, String> {
        let mut words = Words::default();
        for arg in args {
            match arg.as_str() {
                "-m" | "--more" => words.verbose = true,
                "-s" | "--statistics" => words.statistics = true,
                "--names" => words.names = Some(true),
                "--no-names" => words.names = Some(false),
                "--may-create" => words.may_create = true,
                "--clear" => words.clear = true,
                // The permissions of the socket decide on writing, not the command.
                "--read-only" => {}
                option if option.len() > 1 && option.starts_with('-') => {
                    return Err(format!("Unrecognized option {option}"));
                }
                word => words.rest.push(word),
            }
        }
        Ok(words)
    }

    fn by_name(&self) -> bool {
        self.names.unwrap_or(self.verbose)
    }

    /// Takes the datapath's name off the front, if it is there.
    fn skip_datapath(&mut self, daemon: &Daemon) {
        if self.rest.first().is_some_and(|name| is_datapath(daemon, name)) {
            self.rest.remove(0);
        }
    }

    /// The words after the datapath's name, which may be left out. Where there are `most` words,
    /// the first one must be that name.
    fn after_datapath(mut self, daemon: &Daemon, most: usize) -> Result<Vec<&'a str>, String> {
        require(daemon)?;
        self.skip_datapath(daemon);
        if self.rest.len() < most { Ok(self.rest) } else { Err(no_datapath()) }
    }

    /// Exactly `N` words after the datapath's name, which is left out or right.
    fn exactly<const N: usize>(
        mut self,
        daemon: &Daemon,
    ) -> Result<([&'a str; N], Words<'a>), String> {
        require(daemon)?;
        if self.rest.len() > N {
            self.skip_datapath(daemon);
        }
        match std::mem::take(&mut self.rest).try_into() {
            Ok(words) => Ok((words, self)),
            Err(_) => Err(no_datapath()),
        }
    }
}

/// True when there is a datapath: OVS has none without bridges.
fn exists(daemon: &Daemon) -> bool {
    daemon.switch.bridges().next().is_some()
}

/// True for a name of the datapath. Bridges of every `datapath_type` share it, so besides its own
/// name it has those of the types of its bridges.
fn is_datapath(daemon: &Daemon, name: &str) -> bool {
    let types: &[&str] = match name {
        _ if name == daemon.switch.datapath().name() => return exists(daemon),
        "netdev@ovs-netdev" => &["netdev"],
        "system@ovs-system" => &["", "system"],
        "dummy@ovs-dummy" => &["dummy"],
        _ => return false,
    };
    daemon.configuration.has_bridge_of_type(types)
}

/// Returns the kernel's datapath if that is its name. It has a table of connections of its own.
fn kernel_named<'a>(daemon: &'a Daemon, name: &str) -> Option<&'a Arc<KernelDatapath>> {
    let kernel = daemon.coupled.as_ref()?.kernel()?;
    (kernel.name() == name).then_some(kernel)
}

/// The datapath that a command is about: one of the two where the kernel's is in use and `name` is
/// of one, else both as one.
fn named<'d>(daemon: &'d Daemon, name: Option<&str>) -> &'d dyn Datapath {
    let coupled = daemon.coupled.as_ref();
    let kernel = coupled.and_then(|coupled| coupled.kernel());
    match (coupled, kernel, name) {
        (Some(_), Some(kernel), Some(name)) if name == kernel.name() => &**kernel,
        (Some(coupled), Some(_), Some(name)) if name == coupled.name() => &**coupled.own(),
        _ => &**daemon.switch.datapath(),
    }
}

/// Why the datapath called `name` cannot be opened, in the words of OVS where the kernel has no
/// datapath: a name without a type is one of the kernel's.
fn opening_error(daemon: &Daemon, name: &str) -> &'static str {
    match name.split_once('@').map_or("system", |(kind, _)| kind) {
        "system" if !daemon.disable_system => NO_ENTRY,
        "netdev" => NO_DEVICE,
        "dummy" if daemon.dummy != DummyLevel::Off => NO_DEVICE,
        _ => NO_TYPE,
    }
}

fn require(daemon: &Daemon) -> Result<(), String> {
    if exists(daemon) { Ok(()) } else { Err(no_datapath()) }
}

/// An error in the shape of OVS's: its name, what failed, and why.
fn failure(what: &str, why: &str) -> String {
    format!("ovs-vswitchd: {what} ({why})\n")
}

fn no_datapath() -> String {
    failure("datapath not found", INVALID)
}

const INVALID: &str = "Invalid argument";
const NOT_PERMITTED: &str = "Operation not permitted";
const NO_DEVICE: &str = "No such device";
const NOT_SUPPORTED: &str = "Operation not supported";
const TOO_LONG: &str = "Argument list too long";
const NO_ENTRY: &str = "No such file or directory";
/// There is no type of datapaths by the name's first part.
const NO_TYPE: &str = "Address family not supported by protocol";
/// Ports and datapaths come from the database alone.
const FROM_DATABASE: &str = "ports and datapaths are what the database says; use ovs-vsctl";

/// All commands, as `dpctl/list-commands` lists them.
const USAGES: [(&str, &str); 42] = [
    ("add-dp", "dp [iface...]"),
    ("del-dp", "dp"),
    ("add-if", "dp iface..."),
    ("del-if", "dp iface..."),
    ("set-if", "dp iface..."),
    ("dump-dps", ""),
    ("show", "[-s] [dp...]"),
    ("dump-flows", "[-m] [--names] [dp] [filter=..] [type=..] [pmd=..]"),
    ("add-flow", "[dp] flow actions"),
    ("mod-flow", "[dp] flow actions"),
    ("get-flow", "[dp] ufid"),
    ("del-flow", "[dp] flow"),
    ("add-flows", "[dp] file"),
    ("mod-flows", "[dp] file"),
    ("del-flows", "[dp] [file]"),
    ("offload-stats-show", "[dp]"),
    ("dump-conntrack", "[-m] [-s] [dp] [zone=N]"),
    ("dump-conntrack-exp", "[dp] [zone=N]"),
    ("flush-conntrack", "[dp] [zone=N] [ct-orig-tuple] [ct-reply-tuple]"),
    ("cache-get-size", "[dp]"),
    ("cache-set-size", "dp cache <size>"),
    ("ct-stats-show", "[dp] [zone=N]"),
    ("ct-bkts", "[dp] [gt=N]"),
    ("ct-set-maxconns", "[dp] maxconns"),
    ("ct-get-maxconns", "[dp]"),
    ("ct-get-nconns", "[dp]"),
    ("ct-enable-tcp-seq-chk", "[dp]"),
    ("ct-disable-tcp-seq-chk", "[dp]"),
    ("ct-get-tcp-seq-chk", "[dp]"),
    ("ct-set-sweep-interval", "[dp] ms"),
    ("ct-get-sweep-interval", "[dp]"),
    ("ct-set-limits", "[dp] [default=L] [zone=N,limit=L]..."),
    ("ct-del-limits", "[dp] zone=N1[,N2]..."),
    ("ct-get-limits", "[dp] [zone=N1[,N2]...]"),
    ("ipf-set-enabled", "[dp] v4|v6"),
    ("ipf-set-disabled", "[dp] v4|v6"),
    ("ipf-set-min-frag", "[dp] v4|v6 minfragment"),
    ("ipf-set-max-nfrags", "[dp] maxfrags"),
    ("ipf-get-status", "[dp]"),
    ("list-commands", ""),
    ("parse-actions", "actions"),
    ("normalize-actions", "actions"),
];

/// The words of `dpctl/NAME`, from [`USAGES`].
fn usage(name: &str) -> &'static str {
    USAGES.iter().find(|(n, _)| *n == name).map_or("", |(_, usage)| usage)
}

/// The registry to which `dpctl/` commands are added.
struct Dpctl<'a>(&'a Commands<'a>);

impl Dpctl<'_> {
    /// Adds `dpctl/NAME`; its usage is in [`USAGES`].
    fn add(
        &self,
        name: &'static str,
        min: usize,
        max: usize,
        answer: impl Fn(&mut Daemon, Words<'_>) -> Answer + 'static,
    ) {
        let run = move |daemon: &mut Daemon, call: Invocation<'_>| {
            answer(daemon, Words::parse(call.args)?)
        };
        self.0.change(&format!("dpctl/{name}"), usage(name), min, max, run);
    }

    /// Adds `dpctl/NAME` that this switch does not have.
    fn refuse(&self, name: &'static str, min: usize, max: usize, reason: &'static str) {
        self.add(name, min, max, move |_, _| super::unsupported(&format!("dpctl/{name}"), reason));
    }
}

pub(super) fn register(commands: &Commands<'_>) {
    let dpctl = Dpctl(commands);
    conntrack::register(&dpctl);
    flows::register(&dpctl);
    fragments::register(&dpctl);
    show::register(&dpctl);
    zone_limits::register(&dpctl);
    dpctl.refuse("add-dp", 1, ANY, FROM_DATABASE);
    for (name, min, max) in [("del-dp", 1, 1), ("add-if", 2, ANY), ("del-if", 2, ANY)] {
        dpctl.add(name, min, max, move |daemon, words| {
            if let Some(dp) = words.rest.first().filter(|dp| !is_datapath(daemon, dp)) {
                return Err(failure("opening datapath", opening_error(daemon, dp)));
            }
            super::unsupported(&format!("dpctl/{name}"), FROM_DATABASE)
        });
    }
    dpctl.add("list-commands", 0, ANY, |_, _| {
        let lines = USAGES.iter().map(|(name, usage)| format!("  dpctl/{name:<23} {usage}\n"));
        Ok(std::iter::once("The available commands are:\n".to_owned()).chain(lines).collect())
    });
    dpctl.add("parse-actions", 1, ANY, |daemon, words| {
        let names = super::ports::PortNames::of_datapath(daemon);
        let number = |name: &str| names.number(name).map(datapath::PortNo);
        words
            .rest
            .iter()
            .map(|text| match datapath::text::parse(text, &number) {
                Ok(actions) => Ok(format!("{}\n", datapath::text::format_plain(&actions))),
                Err(error) => Err(failure(&format!("odp_actions_from_string: {error}"), INVALID)),
            })
            .collect()
    });
    dpctl.refuse("normalize-actions", 2, ANY, "actions are kept as they were given");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn options_may_stand_anywhere() {
        let args = owned("-m a --no-names b -s --may-create");
        let words = Words::parse(&args).unwrap();
        assert!(words.verbose && words.statistics && words.may_create && !words.clear);
        assert!(!words.by_name());
        assert_eq!(words.rest, ["a", "b"]);
        assert!(Words::parse(&owned("-m")).unwrap().by_name());
        assert_eq!(Words::parse(&owned("x --zero")), Err("Unrecognized option --zero".to_owned()));
        assert_eq!(Words::parse(&owned("-")).unwrap().rest, ["-"]);
    }

    #[test]
    fn names_are_listed_once() {
        for (i, (name, _)) in USAGES.iter().enumerate() {
            assert!(USAGES.iter().skip(i + 1).all(|(other, _)| other != name), "{name}");
        }
    }
}
