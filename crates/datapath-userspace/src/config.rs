// SPDX-License-Identifier: Apache-2.0
//! Settings.

use crate::budget::UpcallShare;

/// Settings of a [`crate::UserspaceDatapath`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Megaflows that the table holds at most; more are refused with `TableFull`. The limit that
    /// adapts to load is the bridge's; this one bounds memory.
    pub max_flows: usize,
    /// Masks that the table has at most, as each makes lookups longer; more are refused with
    /// `MasksFull`, but for some dozens of exact megaflows. The default leaves a BPF table with
    /// its default room for those, too.
    pub max_masks: usize,
    /// Cores for packet threads, one pinned thread each (`other_config:pmd-cpu-mask`); empty for
    /// one thread that runs anywhere.
    pub cores: Vec<usize>,
    /// Receive queues of devices that can have several, when the port's `options:n_rxq` does not
    /// say (`0` is 1). Applies to ports added later.
    pub n_rxq: usize,
    /// What misses of a port may cost on end.
    pub upcall_share: UpcallShare,
    /// Entries of each packet thread's exact-match cache, rounded up to a power of two.
    pub cache_entries: usize,
    /// Interfaces of internal ports outlive the datapath (see [`netdev::OpenSpec::persistent`]),
    /// for when a faster tier goes on without us; the name is their owner's. `remove_port` and
    /// [`crate::UserspaceDatapath::cleanup`] delete them. Applies to ports added later.
    pub persistent_internal: Option<netdev::Owner>,
    /// System ports receive nothing until [`crate::UserspaceDatapath::set_receiving`]: programs
    /// that an earlier process left may take their packets already.
    pub open_muted: bool,
    /// Seed of `sample`'s generators.
    pub seed: u64,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            max_flows: 1 << 20,
            max_masks: 960,
            cores: Vec::new(),
            n_rxq: 1,
            upcall_share: UpcallShare::default(),
            cache_entries: 8192,
            persistent_internal: None,
            open_muted: false,
            seed: 0x5115_5317_c400,
        }
    }
}

impl Config {
    /// The cores of a `pmd-cpu-mask` value: hexadecimal, lowest bit core 0, "0x" optional.
    ///
    /// # Errors
    ///
    /// A sentence for the log when the text is no such number.
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
