// SPDX-License-Identifier: Apache-2.0
//! The commands `vlog/*`, which every daemon has.

use std::sync::Arc;

use vlog::Logger;

use crate::registry::Registry;

/// Adds `vlog/set`, `vlog/list`, `vlog/list-pattern`, `vlog/enable-rate-limit`,
/// `vlog/disable-rate-limit`, `vlog/reopen` and `vlog/close` for `logger`.
pub fn add_vlog_commands(registry: &Registry, logger: &Arc<Logger>) {
    let own = || Arc::clone(logger);
    let any = usize::MAX;
    let l = own();
    registry.add("vlog/set", "{spec | PATTERN:destination:pattern}", 0, any, move |call| {
        l.set_command(call.args)
    });
    let l = own();
    registry.add("vlog/list", "", 0, 0, move |_| Ok(l.list()));
    let l = own();
    registry.add("vlog/list-pattern", "", 0, 0, move |_| Ok(l.list_pattern()));
    let l = own();
    registry.add("vlog/enable-rate-limit", "[module]...", 0, any, move |call| {
        l.set_rate_limits(true, call.args)
    });
    let l = own();
    registry.add("vlog/disable-rate-limit", "[module]...", 0, any, move |call| {
        l.set_rate_limits(false, call.args)
    });
    let l = own();
    registry.add("vlog/reopen", "", 0, 0, move |_| l.reopen());
    let l = own();
    registry.add("vlog/close", "", 0, 0, move |_| l.close());
}
