// SPDX-License-Identifier: Apache-2.0
//! Tunnels (`tnl/ports/`, `tnl/egress_port_range`): there are none yet, so all tables are empty.

use super::Commands;

const NO_TUNNELS: &str = "there are no tunnels yet";

pub(super) fn register(commands: &Commands<'_>) {
    commands.show("tnl/egress_port_range", "min max", 0, 2, |_, call| {
        if call.args.len() < 2 {
            return Ok("Tunnel UDP source port range: 32768-61000\n".to_owned());
        }
        super::unsupported(call.command, NO_TUNNELS)
    });
    commands.fixed("tnl/ports/show", "-v", 0, 1, Ok("Listening ports:\n"));
    commands.fixed("ofproto/list-tunnels", "", 0, 0, Ok(""));
}
