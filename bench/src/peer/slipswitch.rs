// SPDX-License-Identifier: Apache-2.0
//! This switch, on one tier.

use super::Tier;
use super::vswitch::{Recipe, Vswitch};
use crate::pin::Cpus;
use slipswitch_tests::harness::{Kind, Mode, Options, Switch};

/// No flow has to give way because of limits or of rarely being met, as with the others.
const SIZES: &str = "other_config:flow-limit=400000 other_config:max-idle=60000 \
     other_config:bpf-max-flows=524288";

/// Starts the daemon on the CPU that traffic is not on; ports get the tier.
///
/// # Panics
/// When it does not start.
pub fn start(tier: Tier, cpus: Cpus) -> Vswitch {
    let before = vec!["taskset".into(), "-c".into(), cpus.other.to_string()];
    let switch = Switch::with(Options { before, ..Options::new(Kind::Slipswitch, Mode::Real) });
    let name = tier.name();
    Vswitch::new(Recipe {
        switch,
        prepare: format!("set Open_vSwitch . {SIZES}"),
        datapath: "netdev",
        interface: Box::new(move |_| format!("other_config:tier={name}")),
        settings: format!("{SIZES}; other_config:tier={name}; the daemon is on CPU {}", cpus.other),
        tier: Some(tier),
        held: None,
    })
}
