// SPDX-License-Identifier: Apache-2.0
//! Fuzz targets: each is an ordinary function over bytes that panics when an invariant is
//! violated.
//!
//! The same functions run in two places. `fuzz/fuzz_targets` links them with libFuzzer
//! (`cargo xtask fuzz`, a nightly compiler). `tests/replay.rs` here runs them on stable, over
//! the seeds, over what fuzzing has collected (`fuzz/corpora`) and over every input that once
//! failed (`fuzz/regressions`).
//!
//! A target is deterministic, touches neither network nor clock, and leaves nothing: the
//! same bytes give the same run. Targets that are about long-lived state (a bridge, a control
//! socket) make a new one for each input, or keep only state that no input can change.
#![forbid(unsafe_code)]

mod adoption;
mod bench;
mod bfd;
mod bpdu;
mod ccm;
mod connection_adoption;
mod database;
mod difference;
mod flow_text;
mod fragments;
mod igmp_mld;
mod input;
mod kernel_datapath;
mod lacp;
mod lldp;
mod netlink;
mod nsh;
mod odp_text;
mod openflow;
mod options;
mod ovsdb;
pub mod pack;
mod packet;
mod rewrite;
pub mod seeds;
mod session;
mod tlv_table;
mod tracking;
mod translation;
mod tunnel;
mod tuple;
mod unixctl;
mod words;

/// One thing that is fuzzed.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Name of the libFuzzer binary, of its corpus and of the folder of its regressions.
    pub name: &'static str,
    /// Runs it; panics where an invariant does not hold.
    pub run: fn(&[u8]),
    /// Real inputs to start from.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Words of its language, for a fuzzer to put into inputs.
    pub words: fn() -> Vec<&'static str>,
    /// Longer inputs are not tried, in bytes.
    pub longest: usize,
}

/// All of them.
pub const TARGETS: &[Target] = &[
    Target {
        name: "packet",
        run: packet::run,
        seeds: seeds::packets,
        words: words::none,
        longest: 2048,
    },
    Target {
        name: "rewrite",
        run: rewrite::run,
        seeds: seeds::rewrites,
        words: words::none,
        longest: 2048,
    },
    Target {
        name: "openflow",
        run: openflow::run,
        seeds: seeds::messages,
        words: words::none,
        longest: 4096,
    },
    Target {
        name: "session",
        run: session::run,
        seeds: seeds::sessions,
        words: words::none,
        longest: 8192,
    },
    Target {
        name: "flow_text",
        run: flow_text::run,
        seeds: seeds::flow_texts,
        words: words::openflow,
        longest: 1024,
    },
    Target {
        name: "odp_text",
        run: odp_text::run,
        seeds: seeds::odp_texts,
        words: words::odp,
        longest: 1024,
    },
    Target {
        name: "ovsdb",
        run: ovsdb::run,
        seeds: seeds::conversations,
        words: words::ovsdb,
        longest: 8192,
    },
    Target {
        name: "unixctl",
        run: unixctl::run,
        seeds: seeds::requests,
        words: words::json,
        longest: 1024,
    },
    Target {
        name: "kernel_datapath",
        run: kernel_datapath::run,
        seeds: seeds::kernel_messages,
        words: words::none,
        longest: 2048,
    },
    Target {
        name: "netlink",
        run: netlink::run,
        seeds: seeds::datagrams,
        words: words::none,
        longest: 2048,
    },
    Target {
        name: "translation",
        run: translation::run,
        seeds: seeds::pipelines,
        words: words::none,
        longest: 2048,
    },
    Target {
        name: "adoption",
        run: adoption::run,
        seeds: seeds::adoptions,
        words: words::none,
        longest: 1024,
    },
    Target {
        name: "connection_adoption",
        run: connection_adoption::run,
        seeds: seeds::connection_adoptions,
        words: words::none,
        longest: 2048,
    },
    Target {
        name: "igmp_mld",
        run: igmp_mld::run,
        seeds: igmp_mld::seeds,
        words: words::none,
        longest: 512,
    },
    Target { name: "nsh", run: nsh::run, seeds: nsh::seeds, words: words::none, longest: 512 },
    Target { name: "bfd", run: bfd::run, seeds: bfd::seeds, words: words::none, longest: 2048 },
    Target { name: "ccm", run: ccm::run, seeds: ccm::seeds, words: words::none, longest: 2048 },
    Target { name: "bpdu", run: bpdu::run, seeds: bpdu::seeds, words: words::none, longest: 4096 },
    Target {
        name: "tunnel",
        run: tunnel::run,
        seeds: seeds::tunnels,
        words: words::none,
        longest: 512,
    },
    Target {
        name: "options",
        run: options::run,
        seeds: seeds::options,
        words: words::options,
        longest: 512,
    },
    Target { name: "lacp", run: lacp::run, seeds: lacp::seeds, words: words::none, longest: 1024 },
    Target { name: "lldp", run: lldp::run, seeds: lldp::seeds, words: words::none, longest: 2048 },
    Target {
        name: "tlv_table",
        run: tlv_table::run,
        seeds: tlv_table::seeds,
        words: words::none,
        longest: 1024,
    },
    Target {
        name: "tuple",
        run: tuple::run,
        seeds: seeds::tuples,
        words: words::none,
        longest: 2048,
    },
    Target {
        name: "fragments",
        run: fragments::run,
        seeds: seeds::fragments,
        words: words::none,
        longest: 1024,
    },
    Target {
        name: "tracking",
        run: tracking::run,
        seeds: seeds::trackings,
        words: words::helpers,
        longest: 2048,
    },
];

/// The target of that name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|t| t.name == name)
}

/// Runs the target of that name.
///
/// # Panics
/// When an invariant does not hold, or there is no such target.
pub fn run(name: &str, bytes: &[u8]) {
    let target = target(name).expect("binaries are named after targets");
    (target.run)(bytes);
}
