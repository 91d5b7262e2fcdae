// SPDX-License-Identifier: Apache-2.0
//! Port mirrors of a bridge: configuration, and the form that translation reads
//! (ovs-vswitchd.conf.db(5), Mirror).

use crate::group::Count;
use crate::snapshot::BundleView;
use flow::Match;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Highest number of mirrors of a bridge: a [`MirrorSet`] has a bit for each.
pub const MAX_MIRRORS: usize = 32;

/// A set of mirrors of one bridge: bit N is the mirror at index N of [`Mirrors`].
pub type MirrorSet = u32;

/// Destination of a mirror's packets. `B` names a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MirrorOutput<B> {
    /// One bundle, which carries nothing else.
    Bundle(B),
    /// Each bundle that carries this VLAN.
    Vlan(u16),
}

/// A mirror as it is configured. Bundles have the names of their rows.
#[derive(Clone, Debug)]
pub struct Mirror {
    /// Name of the mirror, for messages.
    pub name: String,
    /// Bundles whose received packets are mirrored.
    pub sources: BTreeSet<String>,
    /// Bundles whose sent packets are mirrored.
    pub destinations: BTreeSet<String>,
    /// VLANs of the mirrored packets; 0 stands for no VLAN. Empty for all. Sorted.
    pub vlans: Vec<u16>,
    /// Match of the mirrored packets; `None` for all.
    pub filter: Option<Match>,
    /// Destination of the mirrored packets.
    pub output: MirrorOutput<String>,
    /// Bytes after which a mirrored packet is cut off; `None` for whole packets.
    pub snaplen: Option<u16>,
    /// Mirrored packets.
    pub stats: Arc<Count>,
}

impl Mirror {
    /// Returns true when both mirror the same packets to the same destination.
    pub fn is_same(&self, other: &Mirror) -> bool {
        fn parts(m: &Mirror) -> impl PartialEq {
            let selected = (&m.sources, &m.destinations, &m.vlans, &m.filter);
            (&m.name, selected, &m.output, m.snaplen)
        }
        parts(self) == parts(other)
    }
}

/// A mirror as translation reads it.
#[derive(Clone, Debug)]
pub(crate) struct MirrorView {
    /// VLANs of the mirrored packets; 0 stands for no VLAN. Empty for all. Sorted.
    pub vlans: Vec<u16>,
    /// Match of the mirrored packets; `None` for all.
    pub filter: Option<Match>,
    /// Destination; a bundle by its index in `BridgeView::bundles`.
    pub output: MirrorOutput<usize>,
    /// This mirror, and those with the same destination: a packet goes to it only once.
    pub same_output: MirrorSet,
    /// Bytes after which a mirrored packet is cut off; `None` for whole packets.
    pub snaplen: Option<u16>,
    /// Mirrored packets.
    pub stats: Arc<Count>,
}

/// The mirrors of a bridge as translation reads them.
#[derive(Clone, Debug, Default)]
pub struct Mirrors {
    mirrors: Vec<MirrorView>,
    /// For each bundle: mirrors of its received packets.
    sources: Vec<MirrorSet>,
    /// For each bundle: mirrors of its sent packets.
    destinations: Vec<MirrorSet>,
    /// For each bundle: whether it is reserved for mirrored packets.
    reserved: Vec<bool>,
}

impl Mirrors {
    /// Returns the view of `mirrors` over `bundles`. Names without a bundle select nothing; a mirror
    /// whose output bundle does not exist mirrors nothing. Mirrors after the first [`MAX_MIRRORS`]
    /// are left out.
    pub(crate) fn new(mirrors: &[Mirror], bundles: &[BundleView]) -> Mirrors {
        let mut view = Mirrors::default();
        if mirrors.is_empty() {
            return view;
        }
        view.sources = vec![0; bundles.len()];
        view.destinations = vec![0; bundles.len()];
        view.reserved = vec![false; bundles.len()];
        for mirror in mirrors {
            let output = match &mirror.output {
                MirrorOutput::Bundle(name) => {
                    let Some(index) = bundles.iter().position(|b| b.name == *name) else {
                        continue;
                    };
                    MirrorOutput::Bundle(index)
                }
                MirrorOutput::Vlan(vlan) => MirrorOutput::Vlan(*vlan),
            };
            if view.mirrors.len() == MAX_MIRRORS {
                break;
            }
            if let MirrorOutput::Bundle(index) = output {
                view.reserved.iter_mut().skip(index).take(1).for_each(|r| *r = true);
            }
            let bit: MirrorSet = 1 << view.mirrors.len();
            for (i, bundle) in bundles.iter().enumerate() {
                let mark = |sets: &mut [MirrorSet], names: &BTreeSet<String>| {
                    if names.contains(&bundle.name) {
                        sets.iter_mut().skip(i).take(1).for_each(|set| *set |= bit);
                    }
                };
                mark(&mut view.sources, &mirror.sources);
                mark(&mut view.destinations, &mirror.destinations);
            }
            view.mirrors.push(MirrorView {
                vlans: mirror.vlans.clone(),
                filter: mirror.filter,
                output,
                same_output: bit,
                snaplen: mirror.snaplen,
                stats: Arc::clone(&mirror.stats),
            });
        }
        let outputs: Vec<MirrorOutput<usize>> =
            view.mirrors.iter().map(|m| m.output.clone()).collect();
        for mirror in &mut view.mirrors {
            let same = outputs.iter().enumerate().filter(|(_, output)| **output == mirror.output);
            mirror.same_output = same.map(|(i, _)| 1 << i).sum();
        }
        view
    }

    /// Returns true when there are no mirrors.
    pub(crate) fn is_empty(&self) -> bool {
        self.mirrors.is_empty()
    }

    /// Returns the first mirror of `set`, and the set without it.
    pub(crate) fn first(&self, set: MirrorSet) -> Option<(&MirrorView, MirrorSet)> {
        let mirror = self.mirrors.get(set.trailing_zeros() as usize)?;
        Some((mirror, set & set.wrapping_sub(1)))
    }

    /// Returns the mirrors of packets that bundle `index` receives.
    pub(crate) fn of_source(&self, index: usize) -> MirrorSet {
        self.sources.get(index).copied().unwrap_or(0)
    }

    /// Returns the mirrors of packets that bundle `index` sends.
    pub(crate) fn of_destination(&self, index: usize) -> MirrorSet {
        self.destinations.get(index).copied().unwrap_or(0)
    }

    /// Returns true when bundle `index` is reserved for mirrored packets.
    pub(crate) fn reserves(&self, index: usize) -> bool {
        self.reserved.get(index).copied().unwrap_or(false)
    }
}
