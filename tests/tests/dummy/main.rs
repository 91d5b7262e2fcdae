// SPDX-License-Identifier: Apache-2.0
//! The daemon in dummy mode, driven by Debian's tools: no privilege, no clock, exact counts.
//!
//! With `SLIPSWITCH_TEST_ORACLE=1` the same tests run against Debian's `ovs-vswitchd`, which
//! proves what they expect.

mod actions;
mod bfd;
mod controller;
mod fields;
mod flows;
mod groups;
mod listeners;
mod megaflows;
mod newer_commands;
mod normal;
mod openflow;
mod packets;
mod ports;
mod spanning_tree;
mod table_features;
mod timeouts;
mod vlan;
