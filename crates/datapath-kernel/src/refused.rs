// SPDX-License-Identifier: Apache-2.0
//! Reasons for which the kernel's datapath cannot have a megaflow.

use datapath::Refusal;

/// Why a megaflow cannot be expressed to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// For counters.
    pub refusal: Refusal,
    /// For people.
    pub words: &'static str,
}

impl Refused {
    /// A match that the kernel cannot express.
    pub(crate) fn key(words: &'static str) -> Refused {
        Refused { refusal: Refusal::UnsupportedKey, words }
    }

    /// An action that there is none for.
    pub(crate) fn action(words: &'static str) -> Refused {
        Refused { refusal: Refusal::UnsupportedAction, words }
    }
}
