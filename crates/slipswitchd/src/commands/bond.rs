// SPDX-License-Identifier: Apache-2.0
//! Bonds (`bond/`, and the datapath's tables of them).

use super::packet_threads::NO_DATAPATH;
use super::{Commands, texts};
use crate::daemon::Daemon;
use bridge::bond::{BUCKETS, Bond, Mode, source_hash};
use packet::Mac;
use std::fmt::Write as _;

const NO_BOND: &str = "no such bond";

pub(super) fn register(commands: &Commands<'_>) {
    commands.show("bond/list", "", 0, 0, |daemon, _| {
        let mut out = "bond\ttype\trecircID\tmembers\n".to_owned();
        for (name, bond) in bonds(daemon) {
            let members: Vec<&str> = bond.members().iter().map(|m| m.name.as_str()).collect();
            // A String takes all writes.
            let _ = writeln!(out, "{name}\t{}\t0\t{}", bond.settings().mode, members.join(", "));
        }
        Ok(out)
    });
    commands.show("bond/show", "[port]", 0, 1, |daemon, call| {
        texts(bonds(daemon), call.arg(0), NO_BOND, |name, bond| text(daemon, name, bond))
    });
    commands.change("bond/set-active-member", "port member", 2, 2, |daemon, call| {
        let (bond, member) = (call.arg(0).unwrap_or_default(), call.arg(1).unwrap_or_default());
        let is_changed = daemon.switch.set_active_member(bond, member)?;
        Ok(if is_changed { "done" } else { "no change" }.to_owned())
    });
    for (name, is_enabled) in [("bond/enable-member", true), ("bond/disable-member", false)] {
        commands.change(name, "port member", 2, 2, move |daemon, call| {
            let (bond, member) = (call.arg(0).unwrap_or_default(), call.arg(1).unwrap_or_default());
            daemon.switch.set_member_enabled(bond, member, is_enabled)?;
            Ok(if is_enabled { "enabled" } else { "disabled" }.to_owned())
        });
    }
    for command in ["set-active", "enable", "disable"] {
        let [alias, name] = ["slave", "member"].map(|word| format!("bond/{command}-{word}"));
        commands.registry.add_alias(&alias, &name);
    }
    commands.change("bond/migrate", "port hash member", 3, 3, |daemon, call| {
        let [bond, hash, member] = [0, 1, 2].map(|at| call.arg(at).unwrap_or_default());
        match bonds(daemon).find(|(name, _)| *name == bond) {
            None => return Err(NO_BOND.to_owned()),
            Some((_, bond)) if bond.settings().mode != Mode::BalanceSlb => {
                return Err("not an SLB bond".to_owned());
            }
            Some(_) => {}
        }
        if !hash.bytes().all(|digit| digit.is_ascii_digit()) {
            return Err("bad hash".to_owned());
        }
        let bucket = bucket(hash);
        daemon.switch.migrate_bucket(bond, bucket, member)?;
        Ok("migrated".to_owned())
    });
    commands.show("dpif-netdev/bond-show", "[dp]", 0, 1, |daemon, call| {
        let datapath = daemon.switch.datapath();
        match call.arg(0) {
            Some(name)
                if name != datapath.name() && !datapath.name().ends_with(&format!("@{name}")) =>
            {
                Err(NO_DATAPATH.to_owned())
            }
            _ => Ok(datapath.bonds().map(tables).unwrap_or_default()),
        }
    });
    commands.show("bond/hash", "mac [vlan] [basis]", 1, 3, |_, call| {
        // As in OVS a number ends where its digits end.
        let number = |at: usize, error: &str| match call.arg(at) {
            None => Ok(0),
            Some(text) => leading_number(text).ok_or_else(|| error.to_owned()),
        };
        let vlan = number(1, "invalid vlan")? as u16;
        let basis = number(2, "invalid basis")?;
        let mac: Mac = call
            .arg(0)
            .and_then(|text| text.parse().ok())
            .ok_or_else(|| "invalid mac".to_owned())?;
        Ok((source_hash(mac, vlan, basis) as usize % BUCKETS).to_string())
    });
}

/// Returns the bucket for digits; it is one of 256, and digits above that are cut off.
fn bucket(digits: &str) -> u8 {
    digits.bytes().fold(0u8, |all, digit| all.wrapping_mul(10).wrapping_add(digit - b'0'))
}

/// Returns the number that the text begins with, modulo 2^32.
fn leading_number(text: &str) -> Option<u32> {
    let digits = text.trim_start().trim_start_matches('+');
    let end = digits.bytes().take_while(u8::is_ascii_digit).count();
    let digits = digits.get(..end).filter(|digits| !digits.is_empty())?;
    Some(
        digits
            .bytes()
            .fold(0u32, |all, digit| all.wrapping_mul(10).wrapping_add(u32::from(digit - b'0'))),
    )
}

/// Returns the member of each bucket of the datapath's bonds, as Open vSwitch shows it.
fn tables(bonds: &dyn datapath::Bonds) -> String {
    let ids = bonds.ids();
    let mut out = if ids.is_empty() { String::new() } else { "Bonds:\n".to_owned() };
    for (id, table) in ids.into_iter().filter_map(|id| Some((id, bonds.table(id)?))) {
        // A String takes all writes.
        let _ = writeln!(out, "  bond-id {id}:");
        for (bucket, member) in table.buckets.iter().enumerate() {
            let member = member.unwrap_or(datapath::PortNo::NONE).0;
            let _ = writeln!(out, "    bucket {bucket} - member {member}");
        }
    }
    out
}

/// The bonds of all bridges.
fn bonds(daemon: &Daemon) -> impl Iterator<Item = (&str, &Bond)> {
    daemon.switch.bridges().flat_map(|bridge| bridge.bonds())
}

fn text(daemon: &Daemon, name: &str, bond: &Bond) -> String {
    let now = daemon.clock.now();
    let settings = bond.settings();
    let mut out = format!(
        "---- {name} ----\n\
         bond_mode: {}\n\
         bond may use recirculation: no, Recirc-ID : -1\n\
         bond-hash-basis: {}\n\
         lb_output action: {}, bond-id: {}\n",
        settings.mode,
        settings.basis as i64,
        if bond.datapath_id().is_some() { "enabled" } else { "disabled" },
        bond.datapath_id().map_or(-1, i64::from),
    );
    // A String takes all writes.
    if settings.mode == Mode::BalanceSlb {
        let _ = writeln!(out, "all members active: {}", settings.all_members_active);
    }
    let _ = writeln!(
        out,
        "updelay: {} ms\ndowndelay: {} ms",
        settings.updelay_ms, settings.downdelay_ms
    );
    if bond.is_balanced() {
        let left = bond.next_rebalance().0 - now.0;
        let _ = writeln!(out, "next rebalance: {left} ms");
    }
    let primary = settings.primary.as_deref();
    let is_missing = primary.is_some_and(|name| bond.member(name).is_none());
    let mac = bond.active_mac();
    let holder = bond.members().iter().find(|m| m.mac == mac);
    let _ = write!(
        out,
        "lacp_status: {}\n\
         lacp_fallback_ab: {}\n\
         active-backup primary: {}{}\n\
         active member mac: {}({})\n",
        bond.lacp(),
        settings.falls_back,
        primary.unwrap_or("<none>"),
        if is_missing { " (no such member)" } else { "" },
        Mac(mac),
        holder.map_or("none", |m| &m.name),
    );
    let active = bond.active().map(|m| m.number);
    let mut members: Vec<_> = bond.members().iter().collect();
    members.sort_by(|a, b| a.name.cmp(&b.name));
    for member in members {
        let state = if member.is_enabled { "enabled" } else { "disabled" };
        let _ = writeln!(out, "\nmember {}: {state}", member.name);
        if active == Some(member.number) {
            out.push_str("  active member\n");
        }
        if let Some(at) = member.changes_at {
            let delay = if member.is_enabled { "downdelay" } else { "updelay" };
            let _ = writeln!(out, "  {delay} expires in {} ms", at.0 - now.0);
        }
        let _ = writeln!(out, "  may_enable: {}", member.may_enable);
        if !bond.is_balanced() {
            continue;
        }
        let buckets = bond.buckets();
        for bucket in (0..=u8::MAX).filter(|b| buckets.assigned(*b) == Some(member.number)) {
            let load = buckets.load(bucket) / 1024;
            if load > 0 {
                let _ = writeln!(out, "  hash {bucket}: {load} kB load");
            }
        }
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_end_where_their_digits_end() {
        assert_eq!(leading_number("12x"), Some(12));
        assert_eq!(leading_number(" +7"), Some(7));
        assert_eq!(leading_number("x"), None);
        assert_eq!((bucket("255"), bucket("256"), bucket("1000")), (255, 0, 232));
    }
}
