// SPDX-License-Identifier: Apache-2.0
//! Commands about objects that this switch does not have: they answer as OVS does where none is
//! configured, and refuse to change anything.

use super::Commands;

pub(super) fn register(commands: &Commands<'_>) {
    for name in ["autoattach/show-isid", "autoattach/statistics", "autoattach/status"] {
        commands.fixed(name, "[bridge]", 0, 1, Ok(""));
    }
    // Without a name, all objects are shown: none. With a name, there is no such object.
    for (name, usage, error) in [
        ("cfm/show", "[interface]", "no such CFM object"),
        ("stp/show", "[bridge]", "no such stp object"),
        ("rstp/show", "[bridge]", "No such RSTP object"),
    ] {
        commands.show(name, usage, 0, 1, move |_, call| match call.arg(0) {
            None => Ok(String::new()),
            Some(_) => Err(error.to_owned()),
        });
    }
    for (name, error) in [("stp/tcn", "no such stp object"), ("rstp/tcn", "No such RSTP object")] {
        commands.show(name, "[bridge]", 0, 1, move |_, call| match call.arg(0) {
            None => Ok("OK".to_owned()),
            Some(_) => Err(error.to_owned()),
        });
    }
    commands.show(
        "cfm/set-fault",
        "[interface] normal|false|true",
        1,
        2,
        move |_, call| match call.args.last().map(String::as_str) {
            Some("normal" | "true" | "false") if call.args.len() == 1 => Ok("OK".to_owned()),
            Some("normal" | "true" | "false") => Err("no such CFM object".to_owned()),
            _ => Err("unknown fault string".to_owned()),
        },
    );
    for (name, usage, min, max) in [
        ("odp-execute/action-impl-set", "name", 1, 1),
        ("dpif-netdev/dpif-impl-set", "dpif_implementation_name", 1, 1),
        (
            "dpif-netdev/miniflow-parser-set",
            "[-pmd core] miniflow_implementation_name [study_pkt_cnt]",
            1,
            5,
        ),
    ] {
        commands.unsupported(name, usage, min, max, "there is one implementation only, \"scalar\"");
    }
    commands.fixed(
        "odp-execute/action-impl-show",
        "",
        0,
        0,
        Ok("Available Actions implementations:\n  scalar (available: Yes, active: Yes)\n"),
    );
    commands.fixed(
        "dpif-netdev/dpif-impl-get",
        "",
        0,
        0,
        Ok("Available DPIF implementations:\n  dpif_scalar (pmds: none)\n"),
    );
    commands.fixed(
        "dpif-netdev/miniflow-parser-get",
        "",
        0,
        0,
        Ok("Available MFEX implementations:\n  scalar (available: True pmds: none)\n"),
    );
}
