// SPDX-License-Identifier: Apache-2.0
//! The command line.

/// Feed random inputs to the decoders, the bridge and the datapaths, under libFuzzer
///
/// Needs a nightly compiler (`rustup toolchain install nightly --profile minimal`) and a C++
/// compiler. Each target starts from real inputs and from those in `fuzz/corpora`; new
/// inputs go to the target directory, under `fuzz`. Inputs that fail are named at the end: fix the
/// cause, and keep the input in `fuzz/regressions/TARGET`, in hexadecimal after a line that says
/// why it is there. Tests on stable replay corpora and regressions.
///
/// The whole run is `cargo xtask fuzz all --minutes 30`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Targets, or all [default: all]
    pub target: Vec<String>,

    /// Minutes for each target
    #[arg(long, short, value_name = "N", default_value_t = 10,
          value_parser = clap::value_parser!(u64).range(..=10_000))]
    pub minutes: u64,

    /// List the targets and run nothing
    #[arg(long)]
    pub list: bool,

    /// At the end, make the corpora of all targets as small as they can be without losing
    /// coverage, and keep them in `fuzz/corpora`
    #[arg(long, conflicts_with = "list")]
    pub keep: bool,

    /// Watch memory too, with AddressSanitizer: half as fast, for the crates with unsafe code
    #[arg(long)]
    pub address: bool,
}
