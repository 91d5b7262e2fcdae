// SPDX-License-Identifier: Apache-2.0
//! Translation of groups: choice of buckets, their actions, and their liveness.

use super::actions::ordered_set;
use super::context::{Context, Freeze};
use super::hash::{hash_chosen, hash_fields, score};
use crate::effect::Effect;
use crate::group::{Bucket, Group, GroupKind, Selection};
use crate::trace::Kind;
use crate::translate::{MAX_BUCKETS, TranslationError};
use openflow::PortNo;
use openflow::action::HashFields;
use std::sync::Arc;

/// Highest nesting of groups that watch groups.
const MAX_LIVENESS_DEPTH: u32 = 128;
/// Value of `watch_group` for no group (OFPG_ANY).
const NO_GROUP: u32 = u32::MAX;

impl Context<'_> {
    pub(super) fn run_group(&mut self, group: &Arc<Group>, last: bool) {
        if !self.may_recurse() || !self.may_run(group) {
            return;
        }
        let was_in_group = std::mem::replace(&mut self.in_group, true);
        match group.kind {
            // A group of kind "indirect" has one bucket, unless others were inserted.
            GroupKind::All | GroupKind::Indirect => {
                self.effect(|| Effect::AllBuckets(Arc::clone(group)));
                let only = group.kind == GroupKind::Indirect && group.buckets.len() == 1;
                for bucket in &group.buckets {
                    self.run_bucket(bucket, last && only);
                }
            }
            GroupKind::FastFailover => {
                let chosen = self.first_live(group, 0);
                if let Some(bucket) = chosen.and_then(|i| group.buckets.get(i)) {
                    self.report(Kind::Detail, || format!("using bucket {}", bucket.id));
                }
                self.run_chosen(group, chosen, last);
            }
            GroupKind::Select => {
                let chosen = self.select(group);
                self.run_chosen(group, chosen, last);
            }
        }
        self.in_group = was_in_group;
    }

    /// Counts the buckets of a group that is about to run. Returns false when one translation has
    /// run too many: chains of groups with many buckets would otherwise take too long.
    fn may_run(&mut self, group: &Group) -> bool {
        let buckets = u32::try_from(group.buckets.len()).unwrap_or(u32::MAX);
        self.buckets = self.buckets.saturating_add(buckets).saturating_add(1);
        if self.buckets > MAX_BUCKETS {
            self.fail(TranslationError::TooManyResubmits, || {
                format!("over {MAX_BUCKETS} buckets of groups")
            });
        }
        self.buckets <= MAX_BUCKETS
    }

    /// Runs the chosen bucket and counts it. A group without a live bucket counts nothing.
    fn run_chosen(&mut self, group: &Arc<Group>, chosen: Option<usize>, last: bool) {
        let Some((place, bucket)) = chosen.and_then(|i| group.buckets.get(i).map(|b| (i, b)))
        else {
            self.report(Kind::Detail, || "no live bucket".to_string());
            return;
        };
        if self.freeze.is_none() {
            self.effect(|| Effect::Bucket { group: Arc::clone(group), bucket: place });
        }
        self.run_bucket(bucket, last);
    }

    /// Runs a bucket's action set on a copy of the packet.
    fn run_bucket(&mut self, bucket: &Bucket, last: bool) {
        let key = self.key;
        let was_mpls = self.was_mpls;
        let list = ordered_set(&bucket.actions);
        self.enter(Kind::Bucket, || format!("bucket {}", bucket.id));
        self.depth += 1;
        self.isolated(|ctx| {
            ctx.do_actions(&list, last);
            if ctx.freeze.is_some() {
                // Only the bucket continues later. The action set runs here.
                let stack = ctx.stack.clone();
                let action_set = std::mem::take(&mut ctx.action_set);
                ctx.finish_freezing();
                ctx.stack = stack;
                ctx.action_set = action_set;
            }
        });
        self.depth -= 1;
        self.leave();
        // The changes that a bucket makes to the packet are undone after the group, and `exit` in a
        // bucket does not end the list that contains the group.
        self.key = key;
        self.was_mpls = was_mpls;
        self.exit = false;
        // Too many labels, or a header that does not suit, do not end it either; limits of the whole
        // translation do.
        use TranslationError::{TooManyMplsLabels, UnsupportedPacketType};
        self.error = self.error.filter(|e| !matches!(e, TooManyMplsLabels | UnsupportedPacketType));
    }

    fn bucket_is_live(&mut self, group: &Group, bucket: usize) -> bool {
        group.buckets.get(bucket).is_some_and(|b| self.is_live(b, 0))
    }

    /// Returns the first live bucket of a group; the trace reports the dead buckets before it.
    fn first_live(&mut self, group: &Group, depth: u32) -> Option<usize> {
        group.buckets.iter().position(|bucket| {
            let live = self.is_live(bucket, depth);
            if !live {
                self.report(Kind::Detail, || not_live_text(bucket));
            }
            live
        })
    }

    /// Returns true when a bucket is live. Groups may watch each other: [`MAX_LIVENESS_DEPTH`]
    /// levels deep, and after [`MAX_BUCKETS`] checks in one translation, watched groups no longer
    /// count.
    fn is_live(&mut self, bucket: &Bucket, depth: u32) -> bool {
        self.asked_buckets = self.asked_buckets.saturating_add(1);
        let (port, group) = watched(bucket);
        if port.is_none() && group.is_none() {
            return true;
        }
        if port.is_some_and(|p| self.port(p).is_some_and(|p| p.live)) {
            return true;
        }
        let may_ask = depth < MAX_LIVENESS_DEPTH && self.asked_buckets < MAX_BUCKETS;
        let group = group.filter(|_| may_ask);
        let group = group.and_then(|g| self.bridge.groups.get(&g).map(Arc::clone));
        group.is_some_and(|g| self.first_live(&g, depth + 1).is_some())
    }

    /// Chooses the bucket of a select group for this packet. Returns `None` when no bucket is live,
    /// and when the packet must come back first, hashed or without its labels (the pipeline is then
    /// frozen).
    fn select(&mut self, group: &Arc<Group>) -> Option<usize> {
        if self.freeze_again_for_mpls() {
            return None;
        }
        match &group.selection {
            Selection::Default => self.select_by_datapath(group, true, 0),
            Selection::DpHash { basis, algorithm } => {
                self.select_by_datapath(group, *algorithm == 1, *basis)
            }
            // As in OVS the hash without fields is the one that predates `dp_hash`.
            Selection::Hash { fields, .. } if fields.is_empty() => {
                let hash = hash_fields(HashFields::SymmetricL4, 0, &self.key, &mut self.mask);
                self.select_by_score(group, hash)
            }
            Selection::Hash { basis, fields } => {
                let hash = hash_chosen(fields, (*basis).into(), &self.key, &mut self.mask);
                self.select_by_score(group, hash)
            }
        }
    }

    /// Returns the live bucket with the highest score. As in OVS it is the last live one when no
    /// live bucket has a weight.
    fn select_by_score(&mut self, group: &Arc<Group>, hash: u32) -> Option<usize> {
        let mut best: Option<(u64, usize)> = None;
        let mut weightless = None;
        for (i, bucket) in group.buckets.iter().enumerate() {
            if !self.bucket_is_live(group, i) {
                continue;
            }
            let value = u64::from(score(hash, bucket.id) & 0xffff) * u64::from(bucket.weight);
            self.report(Kind::Detail, || format!("bucket {}: score {value}", bucket.id));
            if bucket.weight == 0 {
                weightless = Some(i);
            } else if best.is_none_or(|(s, _)| value > s) {
                best = Some((value, i));
            }
        }
        let chosen = best.map(|(_, i)| i).or(weightless);
        if let Some(bucket) = chosen.and_then(|i| group.buckets.get(i)) {
            self.report(Kind::Detail, || format!("using bucket {}", bucket.id));
        }
        chosen
    }

    /// Chooses a bucket by the datapath's hash of the packet. There is one megaflow for each value
    /// of the hash bits in use.
    fn select_by_datapath(
        &mut self,
        group: &Arc<Group>,
        symmetric: bool,
        basis: u32,
    ) -> Option<usize> {
        let Some(shares) = &group.shares else {
            // No weights, or weights that are too unequal for so few hash values.
            let hash = hash_fields(HashFields::SymmetricL4, basis, &self.key, &mut self.mask);
            return self.select_by_score(group, hash);
        };
        if !self.hashed {
            self.start_freezing(Freeze {
                hash: Some((symmetric, basis)),
                again: true,
                ..Freeze::default()
            });
            return None;
        }
        // The number of shares is a power of two. The first live bucket from the packet's share on
        // is chosen.
        let low = shares.len() - 1;
        self.mask.0.dp_hash.set(self.mask.0.dp_hash.get() | low as u32);
        let start = self.key.dp_hash.get() as usize & low;
        let chosen = (0..shares.len())
            .filter_map(|i| shares.get((start + i) & low).copied())
            .find(|b| self.bucket_is_live(group, *b));
        if let Some(bucket) = chosen.and_then(|i| group.buckets.get(i)) {
            self.report(Kind::Detail, || format!("using bucket {}", bucket.id));
        }
        chosen
    }
}

/// Returns the port and the group that a bucket's liveness depends on.
fn watched(bucket: &Bucket) -> (Option<PortNo>, Option<u32>) {
    let port = (bucket.watch_port != PortNo::NONE).then_some(bucket.watch_port);
    let group = (bucket.watch_group != NO_GROUP).then_some(bucket.watch_group);
    (port, group)
}

fn not_live_text(bucket: &Bucket) -> String {
    let (port, group) = watched(bucket);
    let reasons = [port.map(|p| format!("port {p}")), group.map(|g| format!("group {g}"))];
    let reasons: Vec<String> = reasons.into_iter().flatten().collect();
    format!("bucket {}: not live due to {}", bucket.id, reasons.join(" and "))
}
