// SPDX-License-Identifier: Apache-2.0
//! BFD (`bfd/`).

use super::{Commands, forced, texts};
use bridge::bridge::Bridge;

pub(super) fn register(commands: &Commands<'_>) {
    commands.show("bfd/show", "[interface]", 0, 1, |daemon, call| {
        let now = daemon.clock.now();
        let all = daemon.switch.bridges().flat_map(Bridge::bfds);
        let has_name = call.arg(0).is_some();
        texts(all, call.arg(0), "no such bfd object", |name, bfd| match has_name {
            true => bfd.details(now),
            false => format!("---- {name} ----\n{}", bfd.details(now)),
        })
    });
    let usage = "[interface] normal|false|true";
    commands.change("bfd/set-forwarding", usage, 1, 2, |daemon, call| {
        let (interface, forced) = forced(&call)?;
        match daemon.switch.force_bfd(interface, forced) {
            true => Ok("OK".to_owned()),
            false => Err("no such BFD object".to_owned()),
        }
    });
}
