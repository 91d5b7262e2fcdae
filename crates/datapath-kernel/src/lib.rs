// SPDX-License-Identifier: Apache-2.0
//! The kernel's Open vSwitch datapath, `openvswitch.ko` (include/uapi/linux/openvswitch.h).
//!
//! [`KernelDatapath`] is a [`datapath::Datapath`] whose ports, megaflows and meters are the kernel's.
//! The kernel forwards packets; this crate answers upcalls and holds the list of megaflows.
//!
//! - [`keys`], [`actions`], [`cookie`]: matches, packets' keys, actions and userdata as attributes,
//!   and back. [`Numbering`] has the numbers of ports.
//! - [`family`], [`instance`], [`vport`], [`flow_message`], [`packet_message`], `meter`: the messages
//!   of each family.
//! - [`CoupledDatapath`]: the switch's own datapath and the kernel's as one.
//! - `handler`: threads that answer upcalls. The CPU that received a packet decides the thread.
//! - `port`: the control side of the devices.
//! - `inspection`: datapath and ports that another program deleted are made again.
//!
//! # Invariants
//!
//! - A megaflow in the kernel matches the same packets as the switch's. One that the kernel cannot
//!   express is refused ([`datapath::Refusal`]); its packets call up, each by itself.
//! - A megaflow that another program removed is put back by the next sweep, and its counts go on.
//! - A port, or the whole datapath, that another program deleted is made again, with the same numbers.
//! - No lock is held during an upcall.
//! - All readers are total.
//!
//! # Which side it errs on
//!
//! A packet whose actions the kernel lacks is dropped and counted
//! ([`datapath::DropReason::UnsupportedAction`]). The kernel limits the upcalls of a CPU by the
//! memory of a socket: packets beyond that are lost, and the kernel counts them.
#![forbid(unsafe_code)]

pub mod actions;
pub mod connections;
pub mod cookie;
mod coupled;
pub mod family;
pub mod flow_message;
mod handler;
mod inspection;
pub mod instance;
mod kernel_datapath;
pub mod keys;
mod meter;
mod nsh;
mod numbering;
pub mod packet_message;
mod port;
mod refused;
mod table;
#[cfg(test)]
mod tests;
pub mod vport;
mod zone_limits;

pub use coupled::{CoupledDatapath, NUMBERING};
pub use family::Unavailable;
pub use kernel_datapath::KernelDatapath;
pub use numbering::Numbering;
pub use port::has_tunnels;
pub use refused::Refused;
