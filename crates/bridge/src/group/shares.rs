// SPDX-License-Identifier: Apache-2.0
//! The distribution of hash values over the buckets of a select group.
//!
//! Open vSwitch logs its choice at level DBG in module `ofproto_dpif`; these are its texts.

use super::{Bucket, Selection};

/// Least number of hash values.
const LEAST: u64 = 16;
/// Highest number of hash values.
const MOST: u64 = 256;
/// Module of the log.
const MODULE: &str = "ofproto_dpif";

/// Returns the bucket of each value of the datapath's hash, and logs how the group `id` chooses.
/// `None` when the group chooses by other fields, or its weights allow no such distribution.
pub(super) fn of_group(id: u32, selection: &Selection, buckets: &[Bucket]) -> Option<Vec<usize>> {
    tracing::debug!(target: MODULE, "Constructing select group {id}");
    let algorithm = match selection {
        Selection::Default => {
            tracing::debug!(target: MODULE, "No selection method specified. Trying dp_hash.");
            1
        }
        Selection::DpHash { algorithm, .. } => {
            tracing::debug!(target: MODULE, "Selection method specified: dp_hash.");
            *algorithm
        }
        Selection::Hash { fields, .. } => {
            tracing::debug!(target: MODULE, "Selection method specified: hash.");
            if fields.is_empty() {
                tracing::debug!(
                    target: MODULE,
                    "No hash fields. Falling back to default hash method."
                );
            } else {
                let names: Vec<&str> = fields.iter().map(|(field, _)| field.name()).collect();
                tracing::debug!(target: MODULE, "Hash fields: {}", names.join(","));
            }
            return None;
        }
    };
    let shares = of_buckets(buckets);
    match &shares {
        Some(shares) => tracing::debug!(
            target: MODULE,
            "Use dp_hash with {} hash values using algorithm {algorithm}.",
            shares.len()
        ),
        None => tracing::debug!(target: MODULE, "Falling back to default hash method."),
    }
    shares
}

fn of_buckets(buckets: &[Bucket]) -> Option<Vec<usize>> {
    if buckets.is_empty() {
        tracing::debug!(target: MODULE, "  Don't apply dp_hash method without buckets.");
        return None;
    }
    let weights: Vec<u64> = buckets.iter().map(|b| b.weight.into()).collect();
    let total: u64 = weights.iter().sum();
    let Some(least) = weights.iter().copied().filter(|w| *w > 0).min() else {
        tracing::debug!(target: MODULE, "  Total weight is zero. No active buckets.");
        return None;
    };
    tracing::debug!(target: MODULE, "  Minimum weight: {least}, total weight: {total}");
    let values = total.div_ceil(least).next_power_of_two().max(LEAST);
    if values > MOST {
        tracing::debug!(target: MODULE, "  Too many hash values required: {values}");
        return None;
    }
    tracing::debug!(target: MODULE, "  Using {values} hash values:");
    let (shares, hits) = distribute(&weights, values);
    for ((bucket, weight), hits) in buckets.iter().zip(&weights).zip(&hits) {
        let target = (values * weight) as f64 / total as f64;
        tracing::debug!(
            target: MODULE,
            "  Bucket {}: weight={weight}, target={target:.2} hits={hits}",
            bucket.id
        );
    }
    Some(shares)
}

/// Gives `values` seats to the weights in proportion (Webster's method). Returns the weight (index)
/// of each seat, and the seats of each weight. One of the weights must be positive.
fn distribute(weights: &[u64], values: u64) -> (Vec<usize>, Vec<u64>) {
    let mut taken = vec![0u64; weights.len()];
    let mut shares = Vec::with_capacity(values as usize);
    for _ in 0..values {
        // Highest weight / (2 * taken + 1), compared without division; the first of equals.
        let mut best = 0;
        for i in 1..weights.len() {
            let value = |i: usize| (weights[i], 2 * taken[i] + 1); // i < weights.len() == taken.len()
            let ((wi, di), (wb, db)) = (value(i), value(best));
            if wi * db > wb * di {
                best = i;
            }
        }
        taken[best] += 1; // best < weights.len(): there is a positive weight
        shares.push(best);
    }
    (shares, taken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use openflow::PortNo;
    use std::sync::Arc;

    fn shares(weights: &[u16]) -> Option<Vec<usize>> {
        let buckets: Vec<Bucket> = weights
            .iter()
            .zip(0..)
            .map(|(&weight, id)| Bucket {
                id,
                weight,
                watch_port: PortNo::NONE,
                watch_group: u32::MAX,
                actions: Arc::from([]),
                stats: Arc::default(),
            })
            .collect();
        of_buckets(&buckets)
    }

    #[test]
    fn shares_follow_weights() {
        let count =
            |w: &[u16], i| shares(w).map(|s| (s.iter().filter(|x| **x == i).count(), s.len()));
        assert_eq!(count(&[1, 1], 0), Some((8, 16)));
        assert_eq!(count(&[3, 1], 0), Some((12, 16)));
        assert_eq!(count(&[0, 5], 0), Some((0, 16)));
        let unequal = [5, 10, 25, 60, 0];
        let of_each: Vec<_> = (0..5).map(|i| count(&unequal, i)).collect();
        assert_eq!(of_each, [2, 3, 8, 19, 0].map(|hits| Some((hits, 32))));
        assert_eq!(shares(&[0, 0]), None);
        assert_eq!(shares(&[]), None);
        assert_eq!(shares(&[1, 1000]), None);
        assert_eq!(count(&[1, 255], 0), Some((1, 256)));
    }
}
