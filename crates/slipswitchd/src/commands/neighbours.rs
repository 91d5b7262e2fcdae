// SPDX-License-Identifier: Apache-2.0
//! Neighbours of the underlay: `tnl/arp/` and `tnl/neigh/`, which are the same.

use super::{Answer, Commands};
use crate::daemon::Daemon;
use packet::Mac;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::time::Duration;
use underlay::{Neighbour, address_text};

/// Longest time for which a neighbour may stay, in seconds.
const MOST_AGING: u64 = 3600;
/// The head of the table.
const HEAD: &str = "IP                                            MAC                 Bridge\n\
    ==========================================================================\n";
/// Width of the column of IP addresses: `INET6_ADDRSTRLEN`.
const ADDRESS_WIDTH: usize = 46;

pub(super) fn register(commands: &Commands<'_>) {
    for kind in ["arp", "neigh"] {
        commands.show(&format!("tnl/{kind}/show"), "", 0, 0, |daemon, _| {
            Ok(show(&daemon.underlay.learned()))
        });
        commands.change(&format!("tnl/{kind}/set"), "BRIDGE IP MAC", 3, 3, |daemon, call| {
            set(daemon, call.args)
        });
        commands.change(&format!("tnl/{kind}/flush"), "", 0, 0, |daemon, _| {
            daemon.underlay.flush_neighbours();
            Ok("OK".to_owned())
        });
        commands.change(&format!("tnl/{kind}/aging"), "[SECS]", 0, 1, |daemon, call| {
            aging(daemon, call.arg(0))
        });
    }
    commands.change("tnl/neigh/retrans_time", "[MSECS]", 0, 1, |daemon, call| {
        retransmission_time(daemon, call.arg(0))
    });
}

fn show(neighbours: &[Neighbour]) -> String {
    let mut text = HEAD.to_owned();
    for neighbour in neighbours {
        let address = address_text(neighbour.address);
        let stale = if neighbour.is_expired { " STALE" } else { "" };
        let Neighbour { mac, device, .. } = neighbour;
        let _ = writeln!(text, "{address:ADDRESS_WIDTH$}{mac}   {device}{stale}");
    }
    text
}

fn set(daemon: &Daemon, args: &[String]) -> Answer {
    let [bridge, address, mac] = args else { return Err("bad IP address".to_owned()) };
    let address: IpAddr = address.parse().map_err(|_| "bad IP address")?;
    let mac: Mac = mac.parse().map_err(|_| "bad MAC address")?;
    daemon.underlay.learn(bridge, address.to_canonical(), mac);
    Ok("OK".to_owned())
}

/// Shows or sets the time between two questions for a neighbour, in milliseconds.
fn retransmission_time(daemon: &Daemon, milliseconds: Option<&str>) -> Answer {
    let Some(text) = milliseconds else {
        return Ok(daemon.underlay.retransmission().as_millis().to_string());
    };
    let pause = text.parse::<u32>().map_err(|_| "bad retrans_time value")?;
    let pause = Duration::from_millis(pause.into());
    if pause > daemon.underlay.aging() {
        return Err("retrans_time value cannot be greater than aging".to_owned());
    }
    daemon.underlay.set_retransmission(pause);
    Ok("OK".to_owned())
}

fn aging(daemon: &Daemon, seconds: Option<&str>) -> Answer {
    let Some(text) = seconds else {
        return Ok(daemon.underlay.aging().as_secs().to_string());
    };
    let seconds = text.parse::<u64>().ok().filter(|s| (1..=MOST_AGING).contains(s));
    daemon.underlay.set_aging(Duration::from_secs(seconds.ok_or("bad aging value")?));
    Ok("OK".to_owned())
}
