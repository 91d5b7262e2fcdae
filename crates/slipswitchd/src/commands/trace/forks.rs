// SPDX-License-Identifier: Apache-2.0
//! The traces of the copies of a packet that `ct(table=N)` sends back to the tables. No tracker is
//! asked: `--ct-next` says in which state each copy comes back.

use super::arguments::Arguments;
use super::{TraceInput, Traced, step};
use crate::daemon::Daemon;
use bridge::trace::Fork;
use flow::{Key, ct_state};
use openflow::action::{Nat, NatAddresses, NatSide};
use std::collections::VecDeque;
use std::fmt::Write as _;

/// Number of copies that one command traces: a pipeline may send each copy to `ct` again.
const MAX_FORKS: usize = 4096;
/// The line above and below the heading of a copy.
const RULE: &str =
    "===============================================================================";

/// Returns the traces of the copies that `first` sends back, and of their copies, in the order in
/// which a datapath would meet them.
pub(super) fn text(daemon: &Daemon, mut first: Traced, arguments: &Arguments<'_>) -> String {
    let mut out = String::new();
    let mut states = arguments.ct_next.iter().copied();
    let mut queue: VecDeque<Fork> = first.tracer.take_forks().into();
    let mut has_failed = first.translation.error.is_some();
    for _ in 0..MAX_FORKS {
        let Some(fork) = queue.pop_front() else { return out };
        let blank = if has_failed { "\n\n" } else { "\n" };
        let _ = write!(out, "{blank}{RULE}\nrecirc({:#x})", fork.recirc_id());
        let mut key = fork.key;
        match states.next() {
            Some(state) => {
                let names = flags_text(state);
                let _ = write!(out, " - resume conntrack with ct_state={names}");
                key.ct_state = state;
            }
            None => {
                out.push_str(
                    " - resume conntrack with default ct_state=trk|new (use --ct-next to customize)",
                );
                key.ct_state = ct_state::TRK | ct_state::NEW;
            }
        }
        out.push('\n');
        if let Some(nat) = &fork.nat {
            translate_addresses(nat, &mut key, &mut out);
        }
        let _ = writeln!(out, "{RULE}\n");
        let input = TraceInput {
            bridge: first.bridge,
            in_port: first.in_port,
            key,
            invalid_options: false,
        };
        let mut traced = step(daemon, arguments, input, first.packet.clone(), None);
        out.push_str(&traced.text());
        has_failed = traced.translation.error.is_some();
        let room = MAX_FORKS.saturating_sub(queue.len());
        queue.extend(traced.tracer.take_forks().into_iter().take(room));
    }
    if !queue.is_empty() {
        // With the spelling of Open vSwitch, which scripts may look for.
        let _ = write!(
            out,
            "\n{RULE}\nTrace reached the recirculation limit.  Sopping the trace here.\n\
             Queued but not processed: {} recirculations.\n",
            queue.len()
        );
    }
    out
}

/// The names of the flags of a state, `0` for none.
fn flags_text(state: u8) -> String {
    let names: Vec<&str> = ct_state::names(state).collect();
    if names.is_empty() { "0".to_owned() } else { names.join("|") }
}

/// Gives the copy the first address and port of the range, so that it meets the flows that a
/// translated packet meets.
fn translate_addresses(nat: &Nat, key: &mut Key, out: &mut String) {
    let ends = |key: &Key| match nat.addresses {
        NatAddresses::Any => String::new(),
        NatAddresses::V4(..) => format!(
            "nw_src={},tp_src={},nw_dst={},tp_dst={}",
            std::net::Ipv4Addr::from_bits(key.nw_src.get()),
            key.tp_src,
            std::net::Ipv4Addr::from_bits(key.nw_dst.get()),
            key.tp_dst
        ),
        NatAddresses::V6(..) => format!(
            "ipv6_src=[{}],tp_src={},ipv6_dst=[{}],tp_dst={}",
            std::net::Ipv6Addr::from(key.ipv6_src),
            key.tp_src,
            std::net::Ipv6Addr::from(key.ipv6_dst),
            key.tp_dst
        ),
    };
    let _ =
        writeln!(out, "Replacing src/dst IP/ports to simulate NAT:\n Initial flow: {}", ends(key));
    let port = nat.ports.map(|(first, _)| first);
    if let Some(side) = nat.side {
        let (v4, v6, l4) = match side {
            NatSide::Source => (&mut key.nw_src, &mut key.ipv6_src, &mut key.tp_src),
            NatSide::Destination => (&mut key.nw_dst, &mut key.ipv6_dst, &mut key.tp_dst),
        };
        match nat.addresses {
            NatAddresses::Any => {}
            NatAddresses::V4(first, _) => v4.set(first.to_bits()),
            NatAddresses::V6(first, _) => *v6 = first.octets(),
        }
        if let Some(port) = port.filter(|_| nat.addresses != NatAddresses::Any) {
            l4.set(port);
        }
    }
    let _ = writeln!(out, " Modified flow: {}", ends(key));
}
