// SPDX-License-Identifier: Apache-2.0
//! Bonds (`bond/`): bundles of several ports. One member that is up carries the traffic. While the
//! primary member is up, it is that member.

use super::Commands;
use bridge::bridge::Bridge;
use bridge::port::{Bundle, Port};
use packet::Mac;
use std::fmt::Write as _;

const NO_BOND: &str = "no such bond";
const ONE_ACTIVE: &str =
    "other_config:bond-primary is active whenever it is up, any other member until it goes down";

pub(super) fn register(commands: &Commands<'_>) {
    commands.show("bond/list", "", 0, 0, |daemon, _| {
        let mut out = "bond\ttype\trecircID\tmembers\n".to_owned();
        for (bridge, bond) in daemon.switch.bridges().flat_map(bonds) {
            let names: Vec<&str> = members(bridge, bond).map(|p| p.name.as_str()).collect();
            // A String takes all writes.
            let _ = writeln!(out, "{}\tactive-backup\t0\t{}", bond.settings.name, names.join(", "));
        }
        Ok(out)
    });
    commands.show("bond/show", "[port]", 0, 1, |daemon, call| {
        let mut out = String::new();
        let mut found = false;
        for (bridge, bond) in daemon.switch.bridges().flat_map(bonds) {
            if call.arg(0).is_none_or(|name| name == bond.settings.name) {
                found = true;
                out.push_str(&bond_text(bridge, bond));
            }
        }
        if call.arg(0).is_some() && !found {
            return Err(NO_BOND.to_owned());
        }
        Ok(out)
    });
    for (name, usage, n) in [
        ("bond/disable-member", "port member", 2),
        ("bond/enable-member", "port member", 2),
        ("bond/migrate", "port hash member", 3),
        ("bond/set-active-member", "port member", 2),
    ] {
        commands.show(name, usage, n, n, |daemon, call| {
            let is_bond = |name| {
                daemon.switch.bridges().flat_map(bonds).any(|(_, b)| b.settings.name == name)
            };
            match call.arg(0) {
                Some(name) if is_bond(name) => super::unsupported(call.command, ONE_ACTIVE),
                _ => Err(NO_BOND.to_owned()),
            }
        });
    }
    commands.unsupported(
        "bond/hash",
        "mac [vlan] [basis]",
        1,
        3,
        "no bond spreads its traffic by a hash yet",
    );
}

/// The bonds of a bridge, each with the bridge.
fn bonds(bridge: &Bridge) -> impl Iterator<Item = (&Bridge, &Bundle)> {
    bridge.bonds().map(move |bond| (bridge, bond))
}

fn members<'a>(bridge: &'a Bridge, bond: &'a Bundle) -> impl Iterator<Item = &'a Port> {
    bond.interfaces.iter().filter_map(|name| bridge.port_by_name(name))
}

fn bond_text(bridge: &Bridge, bond: &Bundle) -> String {
    let active = bridge.active_member(bond);
    let primary = bond.primary.as_deref();
    let is_member = |name: &str| members(bridge, bond).any(|m| m.name == name);
    let mut out = format!(
        "---- {} ----\n\
         bond_mode: active-backup\n\
         bond may use recirculation: no, Recirc-ID : -1\n\
         bond-hash-basis: 0\n\
         lb_output action: disabled, bond-id: -1\n\
         updelay: 0 ms\n\
         downdelay: 0 ms\n\
         lacp_status: off\n\
         lacp_fallback_ab: false\n\
         active-backup primary: {}{}\n\
         active member mac: {}({})\n\n",
        bond.settings.name,
        primary.unwrap_or("<none>"),
        if primary.is_none_or(is_member) { "" } else { " (no such member)" },
        Mac(active.map_or([0; 6], |p| p.status.mac)),
        active.map_or("none", |p| &p.name),
    );
    for member in members(bridge, bond) {
        let up = member.is_up();
        let _ =
            writeln!(out, "member {}: {}", member.name, if up { "enabled" } else { "disabled" });
        if active.is_some_and(|a| a.number == member.number) {
            out.push_str("  active member\n");
        }
        let _ = writeln!(out, "  may_enable: {up}\n");
    }
    out
}
