// SPDX-License-Identifier: Apache-2.0
//! Megaflows: `dump-flows`, `add-flow`, `mod-flow`, `get-flow`, `del-flow` and their like for
//! files of flows.
//!
//! No rule explains a flow that is added here. The next revalidation after a change of the tables
//! removes it, as in OVS.

use super::{Dpctl, INVALID, NO_ENTRY, TOO_LONG, Words, failure, named, no_datapath, require};
use crate::commands::Answer;
use crate::commands::flow_line::{LineStyle, TypeFilter, flow_line, stats_text};
use crate::commands::ports::PortNames;
use crate::daemon::Daemon;
use bridge::revalidator::Pass;
use datapath::{Actions, FlowDump, FlowStats, Megaflow, Refusal, Ufid};
use flow::text::odp::{self, OdpError};
use flow::{Field, Match};
use std::fmt::Write as _;

/// The longest file of flows that is read, in bytes.
const MAX_FILE: u64 = 256 << 20;

pub(super) fn register(dpctl: &Dpctl<'_>) {
    dpctl.add("dump-flows", 0, 6, |daemon, words| dump(daemon, words));
    dpctl.add("add-flow", 2, 3, |daemon, words| {
        let ([flow, actions], options) = words.exactly(daemon)?;
        put(daemon, Change::Add, flow, actions, &options)
    });
    dpctl.add("mod-flow", 2, 3, |daemon, words| {
        let ([flow, actions], options) = words.exactly(daemon)?;
        put(daemon, Change::Modify, flow, actions, &options)
    });
    dpctl.add("del-flow", 1, 2, |daemon, words| {
        let ([flow], options) = words.exactly(daemon)?;
        delete(daemon, flow, &options)
    });
    dpctl.add("get-flow", 1, 2, |daemon, words| {
        let ([text], options) = words.exactly(daemon)?;
        let ufid = text
            .strip_prefix("ufid:")
            .and_then(parse_ufid)
            .ok_or_else(|| failure("parsing flow ufid", INVALID))?;
        let flow =
            daemon.switch.datapath().flow(ufid).ok_or_else(|| failure("getting flow", NO_ENTRY))?;
        let names = options.by_name().then(|| PortNames::of_datapath(daemon));
        let style = LineStyle { verbose: options.verbose, names: names.as_ref(), dpctl: true };
        Ok(format!("{}\n", flow_line(&flow, daemon.clock.now(), style)))
    });
    for (name, change) in [("add-flows", Change::Add), ("mod-flows", Change::Modify)] {
        dpctl.add(name, 1, 2, move |daemon, words| {
            let ([file], options) = words.exactly(daemon)?;
            from_file(daemon, change, file, &options)
        });
    }
    dpctl.add("del-flows", 0, 2, |daemon, mut words| {
        require(daemon)?;
        words.skip_datapath(daemon);
        match std::mem::take(&mut words.rest).as_slice() {
            [] => {
                // First the flows that rules are credited for, then the others.
                daemon.switch.slow_path().pass(Pass::Purge);
                daemon.switch.datapath().flush();
                Ok(String::new())
            }
            [file] => from_file(daemon, Change::Delete, file, &words),
            _ => Err(no_datapath()),
        }
    });
}

/// `filter=`, `type=` and `pmd=`, in any order.
#[derive(Debug, Default)]
struct DumpFilter {
    matching: Option<Match>,
    types: Option<Vec<TypeFilter>>,
    /// The core of a packet thread, -1 for none (OVS's own number for the main thread is huge).
    thread: Option<i64>,
}

impl DumpFilter {
    fn parse(words: &[&str], names: &PortNames) -> Result<DumpFilter, String> {
        let mut filter = DumpFilter::default();
        for word in words {
            if let Some(text) = word.strip_prefix("filter=") {
                let matching =
                    flow::text::parse_match(&with_equals(text), &|name| names.number(name))
                        .map_err(|e| {
                            format!("ovs-vswitchd: Failed to parse filter ({text}: {e})\n")
                        })?;
                filter.matching = Some(matching);
            } else if let Some(text) = word.strip_prefix("type=") {
                let types = TypeFilter::parse_list(text)
                    .map_err(|bad| failure(&format!("Failed to parse type ({bad})"), INVALID))?;
                filter.types = Some(types);
            } else if let Some(text) = word.strip_prefix("pmd=") {
                let number = text
                    .parse()
                    .map_err(|_| failure(&format!("Failed to parse pmd ({text})"), INVALID))?;
                filter.thread = Some(number);
            } else {
                return Err(no_datapath());
            }
        }
        Ok(filter)
    }

    /// Whether a flow passes: it agrees with the filter where both look.
    fn admits(&self, flow: &FlowDump) -> bool {
        let matching = &flow.flow.matching;
        let agrees = self.matching.as_ref().is_none_or(|wanted| {
            let looks =
                matching.mask().words().iter().zip(wanted.mask().words()).map(|(a, b)| a & b);
            let values = matching.key().words().iter().zip(wanted.key().words());
            values.zip(looks).all(|((a, b), mask)| (a ^ b) & mask == 0)
        });
        agrees && self.types.as_ref().is_none_or(|types| types.iter().any(|t| t.admits(flow)))
    }
}

/// `in_port(1),tcp` as `in_port=1,tcp`: OVS reads both as the same.
fn with_equals(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut depth = 0usize;
    let mut named = false; // an "=" was seen in this item
    for c in text.chars() {
        match c {
            '(' if depth == 0 && !named => {
                depth = 1;
                out.push('=');
                continue;
            }
            ')' if depth == 1 && !named => {
                depth = 0;
                continue;
            }
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            '=' if depth == 0 => named = true,
            ',' if depth == 0 => named = false,
            _ => {}
        }
        out.push(c);
    }
    out
}

fn dump(daemon: &Daemon, mut words: Words<'_>) -> Answer {
    require(daemon)?;
    let datapath = named(daemon, words.rest.first().copied());
    words.skip_datapath(daemon);
    let names = PortNames::of_datapath(daemon);
    let filter = DumpFilter::parse(&words.rest, &names)?;
    // All threads share one table: it is shown as the main thread's.
    if filter.thread.is_some_and(|core| core >= 0) {
        return Ok(String::new());
    }
    let shown = words.by_name().then_some(&names);
    let style = LineStyle { verbose: words.verbose, names: shown, dpctl: true };
    let now = daemon.clock.now();
    let mut out = String::new();
    for flow in datapath.dump().iter().filter(|f| filter.admits(f)) {
        if out.is_empty() && filter.thread.is_none() {
            out.push_str("flow-dump from the main thread:\n");
        }
        out.push_str(&flow_line(flow, now, style));
        out.push('\n');
    }
    Ok(out)
}

/// A change to a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Add,
    Modify,
    Delete,
}

/// `01234567-89ab-cdef-0123-456789abcdef`, perhaps with `0x` in front, or a plain number.
fn parse_ufid(text: &str) -> Option<Ufid> {
    let digits: String =
        text.trim().trim_start_matches("0x").chars().filter(|c| *c != '-').collect();
    let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit());
    is_number.then(|| u128::from_str_radix(&digits, 16).ok().map(Ufid)).flatten()
}

/// Takes `ufid:…`, and a comma or blank after it, off the front of a flow.
pub(in crate::commands) fn split_ufid(text: &str) -> Result<(Option<Ufid>, &str), String> {
    let Some(rest) = text.trim_start().strip_prefix("ufid:") else { return Ok((None, text)) };
    let (ufid, flow) = rest.split_at(rest.find([',', ' ']).unwrap_or(rest.len()));
    let ufid = parse_ufid(ufid).ok_or_else(|| format!("bad ufid \"{ufid}\""))?;
    Ok((Some(ufid), flow.trim_start_matches([',', ' '])))
}

/// Reads a flow in datapath syntax. An error is what is wrong, and the system's text for it.
fn parse_flow(
    daemon: &Daemon,
    text: &str,
) -> Result<(Option<Ufid>, Match), (String, &'static str)> {
    let names = PortNames::of_datapath(daemon);
    let (ufid, flow) = split_ufid(text).map_err(|e| (e, INVALID))?;
    let (key, mut mask) = odp::parse(flow, &|name| names.number(name)).map_err(|e| match e {
        OdpError::TooLong(_) => (e.to_string(), TOO_LONG),
        e => (e.to_string(), INVALID),
    })?;
    // A megaflow matches these exactly: packets come from a port, in a round, as Ethernet.
    for field in [Field::InPortOxm, Field::RecircId, Field::PacketType] {
        mask.set_exact(field);
    }
    Ok((ufid, Match::new(&key, &mask)))
}

fn put(
    daemon: &mut Daemon,
    change: Change,
    flow: &str,
    actions: &str,
    options: &Words<'_>,
) -> Answer {
    let (ufid, matching) = parse_flow(daemon, flow)
        .map_err(|(e, errno)| failure(&format!("parsing flow key ({e})"), errno))?;
    let names = PortNames::of_datapath(daemon);
    let parsed = datapath::text::parse(actions, &|name| names.number(name).map(datapath::PortNo))
        .map_err(|e| failure(&format!("parsing actions: {e}"), INVALID))?;
    let actions: Actions = parsed.into();
    let ufid = ufid.unwrap_or_else(|| daemon.switch.slow_path().megaflows.ufid(&matching));
    let datapath = daemon.switch.datapath();
    let before = datapath.flow(ufid).map(|f| f.stats);
    let modified = change == Change::Modify && !options.clear && datapath.modify(ufid, &actions);
    if !modified {
        if change == Change::Modify && before.is_none() && !options.may_create {
            return Err(failure("updating flow table", NO_ENTRY));
        }
        if change == Change::Modify && before.is_some() {
            daemon.switch.slow_path().remove(ufid);
        }
        datapath
            .install(&Megaflow { ufid, matching, actions })
            .map_err(|refusal| failure("updating flow table", refusal_text(refusal)))?;
        daemon.switch.slow_path().expect_unknown_flows();
    }
    Ok(statistics(daemon, before.unwrap_or_default(), options))
}

/// Errors that the kernel's datapath has, then ours.
fn refusal_text(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::Exists => "File exists",
        Refusal::TableFull => "No space left on device",
        other => other.name(),
    }
}

fn delete(daemon: &mut Daemon, flow: &str, options: &Words<'_>) -> Answer {
    let (ufid, matching) = parse_flow(daemon, flow).map_err(|(e, errno)| failure(&e, errno))?;
    let slow = daemon.switch.slow_path();
    let ufid = ufid.unwrap_or_else(|| slow.megaflows.ufid(&matching));
    let Some(before) = daemon.switch.datapath().flow(ufid) else {
        return Err(failure("deleting flow", NO_ENTRY) + "Perhaps you need to specify a UFID?\n");
    };
    slow.remove(ufid);
    Ok(statistics(daemon, before.stats, options))
}

fn statistics(daemon: &Daemon, stats: FlowStats, options: &Words<'_>) -> String {
    if !options.statistics {
        return String::new();
    }
    format!("{}\n", stats_text(stats, daemon.clock.now()))
}

/// A line of a file: what to do, the flow, the actions. `None` for an empty line or a comment.
fn parse_line(line: &str, default: Change) -> Option<(Change, &str, &str)> {
    let mut line = line.split('#').next().unwrap_or_default().trim();
    let mut change = default;
    for (word, named) in
        [("add", Change::Add), ("modify", Change::Modify), ("delete", Change::Delete)]
    {
        if let Some(rest) = line.strip_prefix(word)
            && rest.starts_with(char::is_whitespace)
        {
            (change, line) = (named, rest.trim_start());
            break;
        }
    }
    if line.is_empty() {
        return None;
    }
    // As dumped, `..., actions:LIST`; or the list is the last word.
    let (flow, actions) = match line.split_once("actions:") {
        Some((flow, actions)) => (flow, actions),
        None => {
            let end = last_blank(line);
            match end {
                Some(at) if change != Change::Delete => line.split_at(at),
                _ => (line, ""),
            }
        }
    };
    // Statistics of a dump are not part of the flow.
    let flow = flow.split(", packets:").next().unwrap_or_default();
    // The place where it ran is no part of it, either.
    let actions = actions.split(", offloaded:").next().unwrap_or_default();
    Some((change, flow.trim().trim_end_matches(','), actions.trim()))
}

/// The last white space outside parentheses.
fn last_blank(text: &str) -> Option<usize> {
    let mut depth = 0usize;
    let mut at = None;
    for (i, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            c if c.is_whitespace() && depth == 0 => at = Some(i),
            _ => {}
        }
    }
    at
}

fn from_file(daemon: &mut Daemon, default: Change, path: &str, options: &Words<'_>) -> Answer {
    let text = std::fs::metadata(path)
        .and_then(|m| {
            if m.len() > MAX_FILE || !m.is_file() {
                return Err(std::io::Error::other(format!(
                    "not a file of at most {MAX_FILE} bytes"
                )));
            }
            std::fs::read_to_string(path)
        })
        .map_err(|e| failure(&format!("Opening file \"{path}\" failed"), &os_text(&e)))?;
    let (mut out, mut problems) = (String::new(), String::new());
    for (number, line) in (1usize..).zip(text.lines()) {
        let Some((change, flow, actions)) = parse_line(line, default) else { continue };
        let answer = match change {
            Change::Delete => delete(daemon, flow, options),
            _ => put(daemon, change, flow, actions, options),
        };
        match answer {
            Ok(text) => out.push_str(&text),
            Err(error) => {
                let _ = write!(problems, "{path}:{number}: {error}"); // a String takes all writes
            }
        }
    }
    if problems.is_empty() { Ok(out) } else { Err(problems) }
}

/// An error of the operating system in its own words, without Rust's addition.
fn os_text(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn identities() {
        let text = "3b87d006-1d5a-42d5-a2cf-dc90bda579c0";
        assert_eq!(parse_ufid(text).map(|u| u.to_string()).as_deref(), Some(text));
        for bad in ["", "foo", "0x", "123456789012345678901234567890123"] {
            assert_eq!(parse_ufid(bad), None, "{bad}");
        }
        assert_eq!(split_ufid("in_port(1)"), Ok((None, "in_port(1)")));
        assert_eq!(split_ufid("ufid:5, in_port(1)"), Ok((Some(Ufid(5)), "in_port(1)")));
        assert_eq!(split_ufid("ufid:5"), Ok((Some(Ufid(5)), "")));
        assert!(split_ufid("ufid:z,in_port(1)").is_err());
    }

    #[test]
    fn lines_of_files() {
        assert_eq!(parse_line("", Change::Add), None);
        assert_eq!(parse_line(" # nothing", Change::Add), None);
        assert_eq!(
            parse_line("in_port(1),eth() 2", Change::Add),
            Some((Change::Add, "in_port(1),eth()", "2"))
        );
        assert_eq!(
            parse_line("modify in_port(1),eth() set(x(a, b)),2", Change::Add),
            Some((Change::Modify, "in_port(1),eth()", "set(x(a, b)),2"))
        );
        assert_eq!(
            parse_line("delete ufid:5, in_port(1)", Change::Add),
            Some((Change::Delete, "ufid:5, in_port(1)", ""))
        );
        assert_eq!(
            parse_line(
                "in_port(1),eth(), packets:0, bytes:0, used:never, actions:2,3, offloaded:no, dp:userspace",
                Change::Add
            ),
            Some((Change::Add, "in_port(1),eth()", "2,3"))
        );
    }

    #[test]
    fn parentheses_are_equal_signs() {
        for (given, read) in [
            ("in_port(1),tcp", "in_port=1,tcp"),
            ("tcp,in_port=1", "tcp,in_port=1"),
            ("packet_type=(0,0),in_port(p1)", "packet_type=(0,0),in_port=p1"),
            ("in_port((", "in_port=("),
        ] {
            assert_eq!(with_equals(given), read);
        }
    }

    #[test]
    fn filters() {
        let names = PortNames::default();
        let error = |words: &[&str]| DumpFilter::parse(words, &names).map(|_| ()).unwrap_err();
        assert_eq!(
            error(&["filter=xx"]),
            "ovs-vswitchd: Failed to parse filter (xx: unknown field xx)\n"
        );
        assert_eq!(
            error(&["type=foo"]),
            "ovs-vswitchd: Failed to parse type (foo) (Invalid argument)\n"
        );
        assert_eq!(error(&["nope"]), "ovs-vswitchd: datapath not found (Invalid argument)\n");
        assert!(DumpFilter::parse(&["pmd=-1", "type=ovs,tc", "filter=tcp"], &names).is_ok());
        assert!(DumpFilter::parse(&["pmd=x"], &names).is_err());
    }

    proptest! {
        #[test]
        fn any_line_is_read_or_not(line in "\\PC*") {
            let _ = parse_line(&line, Change::Add);
            let _ = split_ufid(&line);
            let _ = DumpFilter::parse(&[&format!("filter={line}")], &PortNames::default());
        }
    }
}
