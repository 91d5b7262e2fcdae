// SPDX-License-Identifier: Apache-2.0
//! Changes of megaflows in the log, shown with `vlog/set dpif_netdev:dbg`, in the format of
//! OVS's dpif-netdev.
//!
//! OVS names the packet that caused a flow (`ufid`) and the flow itself (`mega_ufid`). A flow
//! has one identity here, which stands in both places.

use crate::megaflow::Flow;
use datapath::text::format_plain;
use datapath::{Action, Megaflow, Ufid};
use flow::Match;
use flow::text::odp;
use std::fmt;
use vlog::RateLimit;

/// Lines of each kind: 600 a minute, in a burst of at most 600, as OVS has it.
static ADDED: RateLimit = RateLimit::new(600, 600);
static MODIFIED: RateLimit = RateLimit::new(600, 600);
static DELETED: RateLimit = RateLimit::new(600, 600);

/// A flow's identity and key, with port numbers.
struct Key<'a>(Ufid, &'a Match);

impl fmt::Display for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Key(ufid, matching) = self;
        let style = odp::Style { verbose: false };
        let key = odp::format(matching.key(), matching.mask(), style, &|_| None);
        write!(f, "ufid:{ufid} mega_ufid:{ufid} {key}")
    }
}

/// Logs a flow that was installed.
pub(crate) fn added(flow: &Megaflow) {
    vlog::debug_rl!(
        ADDED,
        target: "dpif_netdev",
        "flow_add: {}, actions:{}",
        Key(flow.ufid, &flow.matching),
        format_plain(&flow.actions)
    );
}

/// Logs a flow whose actions were replaced.
pub(crate) fn modified(flow: &Flow, old: &[Action], new: &[Action]) {
    vlog::debug_rl!(
        MODIFIED,
        target: "dpif_netdev",
        "flow_mod: {}, old_actions:{}, actions:{}",
        Key(flow.ufid, &flow.matching()),
        format_plain(old),
        format_plain(new)
    );
}

/// Logs a flow that was removed, with the actions that it had.
pub(crate) fn deleted(flow: &Flow, actions: &[Action]) {
    vlog::debug_rl!(
        DELETED,
        target: "dpif_netdev",
        "flow_del: {}, actions:{}",
        Key(flow.ufid, &flow.matching()),
        format_plain(actions)
    );
}
