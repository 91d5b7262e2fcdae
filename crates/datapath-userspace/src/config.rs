// SPDX-License-Identifier: Apache-2.0
//! The configuration of a userspace datapath.

use std::time::Duration;

/// The CPU time that a port's upcalls may use continuously, and that all ports which demand more
/// divide among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpcallShare {
    /// CPU time per second. A port may accumulate that of five seconds. Zero: no limit.
    pub time: Duration,
    /// Upcalls may also use idle time of the busiest CPU, as far as the kernel reports it.
    pub uses_idle_cpu: bool,
}

/// The rule by which receive queues are assigned to packet threads (`other_config:pmd-rxq-assign`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RxqAssign {
    /// The busiest first, up and down the list of threads.
    #[default]
    Cycles,
    /// By name and number, whatever their load.
    RoundRobin,
    /// The busiest first, each to the thread with the least load.
    Group,
}

impl RxqAssign {
    /// All rules.
    pub const ALL: [RxqAssign; 3] = [RxqAssign::Cycles, RxqAssign::RoundRobin, RxqAssign::Group];

    /// Returns the word of the setting.
    pub fn name(self) -> &'static str {
        match self {
            RxqAssign::Cycles => "cycles",
            RxqAssign::RoundRobin => "roundrobin",
            RxqAssign::Group => "group",
        }
    }
}

/// When receive queues are assigned again by themselves (`other_config:pmd-auto-lb`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AutoBalance {
    /// The time between two attempts (`pmd-auto-lb-rebal-interval`).
    pub interval: Duration,
    /// The load of a thread from which an attempt is made, in percent (`pmd-auto-lb-load-threshold`).
    pub load: u8,
    /// The improvement of the variance of loads from which queues are moved, in percent
    /// (`pmd-auto-lb-improvement-threshold`).
    pub improvement: u8,
}

/// The configuration of a [`crate::UserspaceDatapath`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Maximum number of megaflows; more are refused with `TableFull`. This limit bounds memory;
    /// the limit that adapts to load is the bridge's.
    pub max_flows: usize,
    /// Maximum number of masks, since each makes lookups longer. More are refused with `MasksFull`,
    /// except for 64 masks of exact megaflows. With the default, a BPF table of default size has
    /// room for those too.
    pub max_masks: usize,
    /// Cores of the packet threads, one pinned thread each (`other_config:pmd-cpu-mask`). Empty:
    /// threads that run on any core, as many as the load needs.
    pub cores: Vec<usize>,
    /// The number of threads without a core, at most; 0 means 1.
    pub max_threads: usize,
    /// The rule by which receive queues are assigned again.
    pub rxq_assign: RxqAssign,
    /// A thread that serves a queue of `pmd-rxq-affinity` serves no other queues.
    pub rxq_isolate: bool,
    /// When queues are assigned again by themselves to threads with cores. `None`: never.
    pub auto_balance: Option<AutoBalance>,
    /// Number of receive queues of a device that can have several and whose port has no
    /// `options:n_rxq`; 0 means 1. Applies to ports added later.
    pub n_rxq: usize,
    /// The limit on the CPU time of each port's upcalls.
    pub upcall_share: UpcallShare,
    /// The limit on the CPU time of each port's packets that a faster tier passes on because their
    /// connection has to be tracked here.
    pub ct_upcall_share: UpcallShare,
    /// Number of entries of each packet thread's exact-match cache, rounded up to a power of two.
    pub cache_entries: usize,
    /// The owner of interfaces of internal ports, which then outlive the datapath because a faster
    /// tier goes on without it (see [`netdev::OpenSpec::persistent`]). `remove_port` and
    /// [`crate::UserspaceDatapath::cleanup`] delete them. `None`: they vanish with the datapath.
    /// Applies to ports added later.
    pub persistent_internal: Option<netdev::Owner>,
    /// System ports receive nothing until [`crate::UserspaceDatapath::set_receiving`], because
    /// programs of an earlier process may forward their packets already.
    pub open_muted: bool,
    /// Seed of the random numbers of the `sample` action.
    pub seed: u64,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            max_flows: 1 << 20,
            max_masks: 960,
            cores: Vec::new(),
            max_threads: 1,
            rxq_assign: RxqAssign::Cycles,
            rxq_isolate: true,
            auto_balance: None,
            n_rxq: 1,
            upcall_share: UpcallShare::default(),
            ct_upcall_share: UpcallShare::default(),
            cache_entries: 8192,
            persistent_internal: None,
            open_muted: false,
            seed: 0x5115_5317_c400,
        }
    }
}

impl Config {
    /// Parses a `pmd-cpu-mask` value: hexadecimal, lowest bit core 0, "0x" optional.
    ///
    /// # Errors
    ///
    /// A sentence for the log when the text is not such a number.
    pub fn cores_of_mask(mask: &str) -> Result<Vec<usize>, String> {
        let digits = mask.strip_prefix("0x").or_else(|| mask.strip_prefix("0X")).unwrap_or(mask);
        let mut cores = Vec::new();
        for (i, digit) in digits.chars().rev().enumerate() {
            let bits = digit.to_digit(16).ok_or_else(|| {
                format!(
                    "other_config:pmd-cpu-mask: \"{mask}\" is not a hexadecimal number, such as 0x6"
                )
            })?;
            cores.extend((0..4).filter(|b| bits >> b & 1 == 1).map(|b| i * 4 + b));
        }
        Ok(cores)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_name_cores() {
        assert_eq!(Config::cores_of_mask("0x6"), Ok(vec![1, 2]));
        assert_eq!(Config::cores_of_mask("101"), Ok(vec![0, 8]));
        assert_eq!(Config::cores_of_mask(""), Ok(vec![]));
        assert!(Config::cores_of_mask("0xg").is_err());
        assert_eq!(Config::cores_of_mask("80000000000000000000000000000000"), Ok(vec![127]));
    }
}
