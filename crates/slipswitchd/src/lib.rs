// SPDX-License-Identifier: Apache-2.0
//! The switch daemon, in the place of `ovs-vswitchd`: arguments, threads and wiring.
//!
//! One control thread owns all state ([`daemon`]); packet threads belong to the datapath, and
//! one revalidator thread to the switch. [`run`] puts them together; [`config`] makes the
//! switch what the database says; [`openflow`] is where controllers and `ovs-ofctl` come in;
//! [`commands`] answers `ovs-appctl`; [`features`] says what the
//! datapath can do; `routing` follows the kernel's routes for tunnels.
#![forbid(unsafe_code)]

pub mod args;
mod collectors;
pub mod commands;
pub mod config;
pub mod daemon;
pub mod features;
pub mod openflow;
mod routing;
pub mod run;
mod usage;
mod zone_limits;
