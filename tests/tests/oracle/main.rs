// SPDX-License-Identifier: Apache-2.0
//! The same commands given to Slipswitch and to Debian's `ovs-vswitchd`; whatever they write
//! must be the same. See `Scenario` in the harness for the language of the scripts.

/// Makes a test of each script.
macro_rules! scenarios {
    ($($name:ident: $script:expr;)*) => {
        $(
            #[test]
            fn $name() {
                slipswitch_tests::harness::compare(slipswitch_tests::harness::Scenario { script: $script });
            }
        )*
    };
}

mod actions;
mod bfd;
mod bonds;
mod cfm;
mod commands;
mod connections;
mod conntrack;
mod database;
mod export;
mod flows;
mod found;
mod lldp;
mod megaflows;
mod mirrors;
mod multicast;
mod normal;
mod nsh;
mod openflow;
mod spanning_tree;
mod tunnels;
