// SPDX-License-Identifier: Apache-2.0
//! Numbers in `other_config` of the tables QoS and Queue.

use super::QosOptions;

/// The options of a row, and complaints about those that are no numbers.
pub(super) struct Options<'a> {
    pub(super) map: &'a QosOptions,
    /// Name of the row in complaints.
    pub(super) place: String,
    pub(super) complaints: &'a mut Vec<String>,
}

impl Options<'_> {
    /// Returns a number. `None`: the row has none, or an invalid one.
    pub(super) fn number(&mut self, key: &str) -> Option<u64> {
        let text = self.map.get(key)?;
        let number = text.trim().parse().ok();
        if number.is_none() {
            let place = &self.place;
            self.complaints
                .push(format!("{place}: other_config:{key} \"{text}\" is not a number, ignored"));
        }
        number
    }

    /// Returns a number that is neither absent nor zero, which stands for the default.
    pub(super) fn positive(&mut self, key: &str) -> Option<u64> {
        self.number(key).filter(|number| *number != 0)
    }

    /// Returns a number of 32 bits; a larger one is cut to the largest.
    pub(super) fn word(&mut self, key: &str, default: u32) -> u32 {
        self.positive(key).map_or(default, |n| u32::try_from(n).unwrap_or(u32::MAX))
    }
}
