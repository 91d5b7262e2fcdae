//! This switch, on one tier.

use super::Tier;
use super::vswitch::{Recipe, Vswitch};
use crate::pin::Cpus;
use slipswitch_tests::harness::{Kind, Mode, Options, Switch};

/// Starts the daemon on the CPU that traffic is not on; ports get the tier.
///
/// # Panics
/// When it does not start.
pub fn start(tier: Tier, cpus: Cpus) -> Vswitch {
    let before = vec!["taskset".into(), "-c".into(), cpus.other.to_string()];
    let switch = Switch::with(Options { before, ..Options::new(Kind::Slipswitch, Mode::Real) });
    let tier = tier.name();
    Vswitch::new(Recipe {
        switch,
        prepare: String::new(),
        interface: Box::new(move |_| format!("other_config:tier={tier}")),
        settings: format!("other_config:tier={tier}; the daemon is on CPU {}", cpus.other),
        shows: "slipswitch/tiers",
    })
}
