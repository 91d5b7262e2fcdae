// SPDX-License-Identifier: Apache-2.0
//! The slow path: `upcall/` and `revalidator/`.

use super::Commands;
use bridge::revalidator::Pass;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::task::{spawn_blocking, spawn_local};

pub(super) fn register(commands: &Commands<'_>) {
    let terse = Rc::new(Cell::new(true));
    let is_terse = Rc::clone(&terse);
    commands.show("upcall/show", "", 0, 0, move |daemon, _| {
        if daemon.switch.bridges().next().is_none() {
            return Ok(String::new()); // OVS has no datapath then
        }
        let slow = daemon.switch.slow_path();
        let state = &slow.revalidator;
        let flows = slow.megaflows.len();
        Ok(format!(
            "{}:\n\
             \x20 flows         : (current {flows}) (avg {}) (max {}) (limit {})\n\
             \x20 dump duration : {}ms\n\
             \x20 ufid enabled : {}\n\
             \n\
             \x20 1: (keys {flows})\n",
            daemon.switch.datapath().name(),
            state.average_flows.load(Ordering::Relaxed),
            state.max_flows.load(Ordering::Relaxed),
            slow.flow_limit.load(Ordering::Relaxed),
            state.last_pass().unwrap_or_default().as_millis().max(1),
            is_terse.get(),
        ))
    });
    for (name, on, text) in [
        ("upcall/disable-megaflows", false, "megaflows disabled"),
        ("upcall/enable-megaflows", true, "megaflows enabled"),
    ] {
        commands.change(name, "", 0, 0, move |daemon, _| {
            let slow = daemon.switch.slow_path();
            slow.megaflows_enabled.store(on, Ordering::Relaxed);
            slow.pass(Pass::Purge);
            Ok(text.to_owned())
        });
    }
    // Passes read no more than counters and identities in any case: the setting is only shown.
    for (name, on, text) in [
        ("upcall/disable-ufid", false, "Datapath dumping tersely using UFID disabled"),
        (
            "upcall/enable-ufid",
            true,
            "Datapath dumping tersely using UFID enabled for supported datapaths",
        ),
    ] {
        let terse = Rc::clone(&terse);
        commands.show(name, "", 0, 0, move |_, _| {
            terse.set(on);
            Ok(text.to_owned())
        });
    }
    commands.show("upcall/set-flow-limit", "flow-limit-number", 1, 1, |daemon, call| {
        let text = call.arg(0).unwrap_or_default();
        let limit: usize =
            text.parse().ok().filter(|limit| u32::try_from(*limit).is_ok()).ok_or_else(|| {
                format!("bad flow limit \"{text}\": a number below 4294967296 is expected")
            })?;
        daemon.switch.slow_path().flow_limit.store(limit, Ordering::Relaxed);
        Ok(format!("set flow_limit to {limit}\n"))
    });

    commands.change("revalidator/purge", "", 0, 0, |daemon, _| {
        daemon.switch.slow_path().pass(Pass::Purge);
        daemon.after_pass();
        Ok(String::new())
    });
    for (name, paused) in [("revalidator/pause", true), ("revalidator/resume", false)] {
        commands.change(name, "", 0, 0, move |daemon, _| {
            daemon.switch.pause_revalidation(paused);
            Ok(String::new())
        });
    }
    let daemon = Rc::clone(commands.daemon);
    commands.registry.add_deferred("revalidator/wait", "", 0, 0, move |_, reply| {
        let daemon = Rc::clone(&daemon);
        let (slow, threads) = {
            let mut d = daemon.borrow_mut();
            d.publish_and_wake(); // the pass must see earlier changes
            (Arc::clone(d.switch.slow_path()), d.switch.has_revalidator_thread())
        };
        if !threads {
            slow.pass(Pass::Full);
            daemon.borrow_mut().after_pass();
            return reply.ok("");
        }
        // A whole pass on another thread: this thread handles events of packets meanwhile.
        spawn_local(async move {
            match spawn_blocking(move || slow.pass(Pass::Full)).await {
                Ok(()) => {
                    daemon.borrow_mut().after_pass();
                    reply.ok("");
                }
                Err(error) => reply.error(format!("the pass over megaflows failed ({error})")),
            }
        });
    });
}
