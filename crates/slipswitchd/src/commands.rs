// SPDX-License-Identifier: Apache-2.0
//! `ovs-appctl` commands: requests of people and scripts to a running switch.
//!
//! Every command of `ovs-vswitchd` 3.1 is here, and some of later versions. A command answers in OVS's words, order and number
//! formats (recorded from the real program, and compared with it by tests), or with a refusal:
//! `NAME: not supported by Slipswitch: REASON`. Additions of Slipswitch are further lines or fields
//! at the end.
//!
//! A command runs on the control thread, borrows the daemon for one synchronous step, and, when
//! it changed something, ends the step with [`Daemon::publish_and_wake`]. Only `revalidator/wait`
//! and the commands that visit all connections answer later.
//!
//! | module | commands |
//! |---|---|
//! | `autoattach` | `autoattach/` |
//! | `bfd` | `bfd/` |
//! | `bond` | `bond/` |
//! | `bridges` | `bridge/`, `ofproto/list`, `dpif/` |
//! | `cfm` | `cfm/` |
//! | `coverage` | `coverage/`, `memory/` |
//! | `dpctl` | `dpctl/` |
//! | `dummy` | `netdev-dummy/`, `time/` (dummy mode only) |
//! | `fdb` | `fdb/`, `mdb/` |
//! | `implementations` | `odp-execute/`, `dpif-netdev/dpif-impl-`, `dpif-netdev/miniflow-parser-` |
//! | `lacp` | `lacp/` |
//! | `neighbours` | `tnl/arp/`, `tnl/neigh/` |
//! | `packet_threads` | `dpif-netdev/` |
//! | `qos` | `qos/` |
//! | `routes` | `ovs/route/` |
//! | `spanning_tree` | `stp/`, `rstp/` |
//! | `trace` | `ofproto/trace`, `ofproto/trace-packet-out` |
//! | `tunnels` | `tnl/ports/`, `tnl/egress_port_range`, `slipswitch/tunnel-helpers` |
//! | `upcalls` | `upcall/`, `revalidator/` |

mod autoattach;
mod bfd;
mod bond;
mod bridges;
mod cfm;
mod coverage;
mod dpctl;
mod dummy;
mod explain;
mod fdb;
mod flow_line;
mod implementations;
mod lacp;
mod neighbours;
mod packet_threads;
mod ports;
mod qos;
mod routes;
mod spanning_tree;
mod tiers;
mod trace;
mod tunnel_mtu;
mod tunnels;
mod upcalls;

use crate::args::DummyLevel;
use crate::daemon::{Daemon, Exit, Shared};
use serde_json::Value;
use std::rc::Rc;
use unixctl::{Invocation, Registry};

/// The answer to a command: its text, or the text of an error.
type Answer = Result<String, String>;

/// Any number of words.
const ANY: usize = usize::MAX;

/// Adds every command to `registry`. Must be called within a `tokio` `LocalSet`, because the
/// rates of `coverage/show` are sampled by a task.
pub fn register(registry: &Registry, daemon: &Shared) {
    let commands = Commands { registry, daemon };
    unixctl::add_vlog_commands(registry, vlog::logger());
    commands.change("exit", "[--cleanup]", 0, 1, |daemon, call| {
        daemon.request_exit(Exit { cleanup: call.arg(0) == Some("--cleanup") });
        Ok(String::new())
    });
    autoattach::register(&commands);
    bfd::register(&commands);
    bond::register(&commands);
    implementations::register(&commands);
    lacp::register(&commands);
    bridges::register(&commands);
    cfm::register(&commands);
    coverage::register(&commands);
    dpctl::register(&commands);
    explain::register(&commands);
    tiers::register(&commands);
    fdb::register(&commands);
    neighbours::register(&commands);
    packet_threads::register(&commands);
    qos::register(&commands);
    routes::register(&commands);
    spanning_tree::register(&commands);
    trace::register(&commands);
    tunnels::register(&commands);
    upcalls::register(&commands);
    if daemon.borrow().dummy != DummyLevel::Off {
        dummy::register(&commands);
    }
}

/// The registry to which commands are added, and the daemon on which they work.
struct Commands<'a> {
    registry: &'a Registry,
    daemon: &'a Shared,
}

/// Returns the texts of all things with names, or of the one called `wanted`; `missing` if there is
/// none.
fn texts<'a, T>(
    all: impl Iterator<Item = (&'a str, T)>,
    wanted: Option<&str>,
    missing: &str,
    text: impl Fn(&'a str, T) -> String,
) -> Answer {
    let mut found = all
        .filter(|(name, _)| wanted.is_none_or(|wanted| wanted == *name))
        .map(|(name, thing)| text(name, thing))
        .peekable();
    match wanted.is_some() && found.peek().is_none() {
        true => Err(missing.to_owned()),
        false => Ok(found.collect()),
    }
}

/// Reads the arguments `[interface] normal|false|true` of a command that overrides what a protocol
/// finds: the interface, and the state; `None` for the real one.
fn forced<'a>(call: &Invocation<'a>) -> Result<(Option<&'a str>, Option<bool>), String> {
    let word = call.args.last().map(|word| word.to_ascii_lowercase());
    let forced = match word.as_deref() {
        Some("true") => Some(true),
        Some("false") => Some(false),
        Some("normal") => None,
        _ => return Err("unknown fault string".to_owned()),
    };
    let [interface, _] = call.args else { return Ok((None, forced)) };
    Ok((Some(interface), forced))
}

impl Commands<'_> {
    /// Adds a command that changes nothing.
    fn show(
        &self,
        name: &str,
        usage: &str,
        min: usize,
        max: usize,
        answer: impl Fn(&Daemon, Invocation<'_>) -> Answer + 'static,
    ) {
        let daemon = Rc::clone(self.daemon);
        self.registry.add(name, usage, min, max, move |call| answer(&daemon.borrow(), call));
    }

    /// Adds a command that may change something.
    fn change(
        &self,
        name: &str,
        usage: &str,
        min: usize,
        max: usize,
        answer: impl Fn(&mut Daemon, Invocation<'_>) -> Answer + 'static,
    ) {
        let daemon = Rc::clone(self.daemon);
        self.registry.add(name, usage, min, max, move |call| {
            let mut daemon = daemon.borrow_mut();
            let answer = answer(&mut daemon, call);
            daemon.publish_and_wake();
            answer
        });
    }

    /// Adds an answer in JSON to a command that changes nothing.
    fn json(
        &self,
        name: &str,
        answer: impl Fn(&Daemon, Invocation<'_>) -> Result<Value, String> + 'static,
    ) {
        let daemon = Rc::clone(self.daemon);
        self.registry.add_json(name, move |call| answer(&daemon.borrow(), call));
    }

    /// Adds a command with a constant answer.
    fn fixed(&self, name: &str, usage: &str, min: usize, max: usize, answer: Result<&str, &str>) {
        let answer = answer.map(str::to_owned).map_err(str::to_owned);
        self.registry.add(name, usage, min, max, move |_| answer.clone());
    }

    /// Adds a command that is not supported, with the reason.
    fn unsupported(&self, name: &str, usage: &str, min: usize, max: usize, reason: &'static str) {
        self.registry.add(name, usage, min, max, move |call| unsupported(call.command, reason));
    }
}

/// The answer of a command that this switch does not have.
fn unsupported(name: &str, reason: &str) -> Answer {
    Err(format!("{name}: not supported by Slipswitch: {reason}"))
}

/// A frame that looks like `key`, with `payload`. As in OVS, segments that open or end a TCP
/// connection carry none.
fn compose(key: &flow::Key, payload: &[u8]) -> packet::Packet {
    const SYN_FIN_RST: u16 = 0x7;
    const TCP: u8 = 6;
    let bare = key.nw_proto == TCP && key.tcp_flags.get() & SYN_FIN_RST != 0;
    flow::compose(key, if bare { &[] } else { payload })
}

/// The reason why text is no packet in hexadecimal, in OVS's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum HexError {
    /// Something that is no pair of hexadecimal digits.
    #[error("Trailing garbage in packet data")]
    Garbage,
    /// Fewer bytes than an Ethernet header has.
    #[error("Packet data too short for Ethernet")]
    Short,
}

/// Reads bytes in hexadecimal; white space may stand between them.
fn parse_hex(text: &str) -> Result<Vec<u8>, HexError> {
    let digits: Vec<char> = text.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    let mut bytes = Vec::with_capacity(digits.len() / 2);
    for pair in digits.chunks(2) {
        let [high, low] = pair else { return Err(HexError::Garbage) };
        let value = high.to_digit(16).zip(low.to_digit(16)).map(|(h, l)| h * 16 + l);
        bytes.push(value.and_then(|v| u8::try_from(v).ok()).ok_or(HexError::Garbage)?);
    }
    Ok(bytes)
}

/// Reads a frame in hexadecimal.
fn parse_frame(text: &str) -> Result<packet::Packet, HexError> {
    let bytes = parse_hex(text)?;
    if bytes.len() < 14 {
        return Err(HexError::Short);
    }
    Ok(packet::Packet::from_slice(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn frames() {
        let text = "505400000007 505400000005 0800 45";
        assert_eq!(parse_frame(text).map(|p| p.len()), Ok(15));
        let message = |text: &str| parse_frame(text).map(|_| ()).unwrap_err().to_string();
        assert_eq!(message("50540000000750540000000508"), "Packet data too short for Ethernet");
        assert_eq!(message("zz"), "Trailing garbage in packet data");
        assert_eq!(message("aab"), "Trailing garbage in packet data");
        assert_eq!(message("+1"), "Trailing garbage in packet data");
    }

    proptest! {
        #[test]
        fn any_text_is_a_frame_or_not(text in "\\PC*") {
            let _ = parse_frame(&text);
        }
    }
}
