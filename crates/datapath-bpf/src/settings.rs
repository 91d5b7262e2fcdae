// SPDX-License-Identifier: Apache-2.0
//! `struct settings` of `bpf/settings.h`: the constants of one variant of the programs.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::hash::Factors;
use crate::keys;
use crate::layout::{FACTORS, NEEDS_L3, PORT_WORDS, WORDS};
use crate::maps::Sizes;

/// Bit of the features: some flow matches on MPLS labels or changes them.
pub(crate) const FEATURE_MPLS: u32 = 1;
/// Bit of the features: some flow has a program, so offsets of layers are needed.
pub(crate) const FEATURE_LAYERS: u32 = 2;
/// Bit of the features: some port is `PORT_STACK`, so its packets are counted.
pub(crate) const FEATURE_STACK: u32 = 4;
/// Bit of the features: some flow has `FLOW_POP`.
pub(crate) const FEATURE_TUNNEL: u32 = 8;
/// Bit of the features: some flow has `FLOW_BOND`.
pub(crate) const FEATURE_BOND: u32 = 16;
/// Bit of the features: some flow begins with `OP_TUN_PUSH`.
pub(crate) const FEATURE_PUSH: u32 = 32;
/// Bits of all features.
pub(crate) const ALL_FEATURES: u32 = 0xffff;
/// Bits of every word of a key, and [`NEEDS_L3`].
pub(crate) const ALL_WORDS: u64 = ((1 << WORDS) - 1) | NEEDS_L3;

/// Bits of the words that are zero in packets from ports.
const METADATA_WORDS: u64 = ((1 << WORDS) - 1) & !((1 << PORT_WORDS) - 1);

/// `struct settings`; the header documents each field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs)]
pub struct VariantSettings {
    pub needs: u64,
    pub features: u32,
    pub bucket_mask: u32,
    pub shard_mask: u32,
    pub max_flows: u32,
    pub max_programs: u32,
    pub shards_atomic: u32,
    pub vlan_limit: u32,
    pub have_frags: u32,
    pub emc_lines: u32,
    pub generation: u32,
    pub emc_total: u32,
    pub cpus: u32,
    pub chains: u32,
    pub pad: u32,
    pub factors: Factors,
    pub union_mask: [u64; WORDS],
}

/// Fields and features that present flows need from programs. Partially ordered: a variant serves
/// smaller needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// Bit x: some flow matches on word x of the key. In addition [`NEEDS_L3`].
    pub words: u64,
    /// Features of the programs: `FEATURE_*` bits of `bpf/settings.h`.
    pub features: u32,
}

impl Needs {
    /// All words and all features.
    pub(crate) const ALL: Needs = Needs { words: ALL_WORDS, features: ALL_FEATURES };

    /// Returns true when a variant for `self` serves `other`. Lookup programs compare no words of
    /// metadata, which are zero in packets from ports.
    pub(crate) fn cover(self, other: Needs) -> bool {
        other.words & !self.words & !METADATA_WORDS == 0 && other.features & !self.features == 0
    }
}

/// The parameters of a variant of the lookup programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fit {
    /// Fields and features that flows need from programs.
    pub(crate) needs: Needs,
    /// The bitwise OR of all masks.
    pub(crate) union_mask: [u64; WORDS],
}

impl VariantSettings {
    /// Returns the settings of the full variant, which serves every flow. `generation` is the
    /// number of the variant, never 0. `have_frags` is the result of `load::have_frags`.
    pub fn full(
        sizes: &Sizes,
        factors: &Factors,
        generation: u32,
        have_frags: bool,
    ) -> VariantSettings {
        VariantSettings {
            needs: ALL_WORDS,
            features: ALL_FEATURES,
            bucket_mask: sizes.buckets - 1,
            shard_mask: sizes.shards - 1,
            max_flows: sizes.flows,
            max_programs: sizes.programs,
            shards_atomic: sizes.shards_atomic.into(),
            vlan_limit: flow::extract::vlan_limit() as u32, // at most VLANS
            have_frags: have_frags.into(),
            emc_lines: sizes.emc_lines,
            generation,
            emc_total: sizes.cpus * sizes.emc_lines,
            cpus: sizes.cpus,
            chains: sizes.chains,
            pad: 0,
            factors: *factors,
            union_mask: keys::signature(),
        }
    }

    /// Returns the settings of a variant with these parameters. `self` is those of the full
    /// variant.
    pub(crate) fn for_flows(&self, fit: &Fit, generation: u32) -> VariantSettings {
        VariantSettings {
            needs: fit.needs.words,
            features: fit.needs.features,
            union_mask: fit.union_mask,
            generation,
            ..*self
        }
    }
}

const _: () = assert!(size_of::<VariantSettings>() == 64 + 8 * (FACTORS + WORDS));
