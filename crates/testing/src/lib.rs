// SPDX-License-Identifier: Apache-2.0
//! For tests: what they owe to the machine that they run on.
//!
//! Nothing outlives a test, however its program ends, `SIGKILL` included. Network namespaces
//! ([`Netns`]) and BPF file systems ([`BpfFs`]) have no name and go with the last descriptor.
//! Directories ([`directory`], [`Home`]) are removed by a process that waits for the program's end
//! ([`Guard`]), which before that ends every process that has one of them as its `OVS_RUNDIR`.

#![forbid(unsafe_code)]

mod bpf;
mod bpffs;
mod cargo;
mod guard;
mod home;
mod netns;
mod output;
mod resident;
mod skip;
mod wait;

pub use bpf::compile_bpf;
pub use bpffs::BpfFs;
pub use cargo::cargo;
pub use guard::Guard;
pub use home::{Home, directory};
pub use netns::{Netns, in_namespace, in_namespace_as_root};
pub use output::Output;
pub use resident::Resident;
pub use skip::{skip, without_privilege, without_root, without_tool};
pub use wait::{patient, wait_for, wait_until};

pub use tempfile::TempDir;
