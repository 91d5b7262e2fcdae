// SPDX-License-Identifier: Apache-2.0
//! BFD (`bfd/`).

use super::{Commands, texts};

pub(super) fn register(commands: &Commands<'_>) {
    commands.show("bfd/show", "[interface]", 0, 1, |daemon, call| {
        let now = daemon.clock.now();
        let ports = daemon.switch.bridges().flat_map(|bridge| bridge.ports.values());
        let all = ports.filter_map(|port| Some((port.name.as_str(), port.bfd.as_ref()?)));
        let has_name = call.arg(0).is_some();
        texts(all, call.arg(0), "no such bfd object", |name, bfd| match has_name {
            true => bfd.details(now),
            false => format!("---- {name} ----\n{}", bfd.details(now)),
        })
    });
    let usage = "[interface] normal|false|true";
    commands.change("bfd/set-forwarding", usage, 1, 2, |daemon, call| {
        let word = call.args.last().map(|word| word.to_ascii_lowercase());
        let forced = match word.as_deref() {
            Some("true") => Some(true),
            Some("false") => Some(false),
            Some("normal") => None,
            _ => return Err("unknown fault string".to_owned()),
        };
        let name = call.arg(0).filter(|_| call.args.len() > 1);
        match daemon.switch.force_bfd(name, forced) {
            true => Ok("OK".to_owned()),
            false => Err("no such BFD object".to_owned()),
        }
    });
}
