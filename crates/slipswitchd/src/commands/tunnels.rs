// SPDX-License-Identifier: Apache-2.0
//! Tables for tunnels (`ovs/route/`, `tnl/`): there are no tunnels yet, so all tables are empty.

use super::Commands;
use std::net::IpAddr;

const NO_TUNNELS: &str = "there are no tunnels yet";
const NEIGHBOURS: &str = "IP                                            MAC                 Bridge\n\
    ==========================================================================\n";

pub(super) fn register(commands: &Commands<'_>) {
    commands.fixed("ovs/route/show", "", 0, 0, Ok("Route Table:\n"));
    commands.show("ovs/route/lookup", "ip_addr [pkt_mark=mark]", 1, 2, |_, call| {
        let address = call.arg(0).and_then(|a| a.parse::<IpAddr>().ok());
        Err(match (address, call.arg(1)) {
            (None, _) => "Invalid parameters",
            (_, Some(mark)) if !is_mark(mark) => "Invalid pkt_mark",
            _ => "Not found",
        }
        .to_owned())
    });
    commands.show(
        "ovs/route/add",
        "ip_addr/prefix_len out_br_name [gw] [pkt_mark=mark]",
        2,
        4,
        |_, call| match call.arg(0) {
            Some(prefix) if is_prefix(prefix) => super::unsupported(call.command, NO_TUNNELS),
            _ => Err("Invalid parameters".to_owned()),
        },
    );
    commands.show("ovs/route/del", "ip_addr/prefix_len [pkt_mark=mark]", 1, 2, |_, call| {
        Err(match (call.arg(0), call.arg(1)) {
            (Some(prefix), _) if !is_prefix(prefix) => "Invalid parameters",
            (_, Some(mark)) if !is_mark(mark) => "Invalid pkt_mark",
            _ => "Not found",
        }
        .to_owned())
    });
    for kind in ["arp", "neigh"] {
        commands.fixed(&format!("tnl/{kind}/show"), "", 0, 0, Ok(NEIGHBOURS));
        commands.fixed(&format!("tnl/{kind}/flush"), "", 0, 0, Ok("OK"));
        commands.unsupported(&format!("tnl/{kind}/set"), "BRIDGE IP MAC", 3, 3, NO_TUNNELS);
        commands.show(&format!("tnl/{kind}/aging"), "[SECS]", 0, 1, |_, call| match call.arg(0) {
            None => Ok("900".to_owned()),
            Some(_) => super::unsupported(call.command, NO_TUNNELS),
        });
    }
    commands.show("tnl/egress_port_range", "min max", 0, 2, |_, call| {
        if call.args.len() < 2 {
            return Ok("Tunnel UDP source port range: 32768-61000\n".to_owned());
        }
        super::unsupported(call.command, NO_TUNNELS)
    });
    commands.fixed("tnl/ports/show", "-v", 0, 1, Ok("Listening ports:\n"));
    commands.fixed("ofproto/list-tunnels", "", 0, 0, Ok(""));
}

/// `pkt_mark=N`, in any base of C.
fn is_mark(text: &str) -> bool {
    let Some(number) = text.strip_prefix("pkt_mark=") else { return false };
    match number.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).is_ok(),
        None => number.parse::<u32>().is_ok(),
    }
}

/// `ADDRESS/LENGTH`.
fn is_prefix(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else { return false };
    match (address.parse(), length.parse::<u8>()) {
        (Ok(IpAddr::V4(_)), Ok(length)) => length <= 32,
        (Ok(IpAddr::V6(_)), Ok(length)) => length <= 128,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters() {
        for good in ["1.1.1.0/24", "0.0.0.0/0", "fe80::/128"] {
            assert!(is_prefix(good), "{good}");
        }
        for bad in ["x", "1.1.1.1", "1.1.1.0/33", "fe80::/129", "1.1.1.0/x", "/"] {
            assert!(!is_prefix(bad), "{bad}");
        }
        assert!(is_mark("pkt_mark=1") && is_mark("pkt_mark=0xffffffff"));
        assert!(!is_mark("1") && !is_mark("pkt_mark=") && !is_mark("pkt_mark=0x100000000"));
    }
}
