// SPDX-License-Identifier: Apache-2.0
//! Delays in log-linear buckets, as the programs of `bpf/sink.h` count them.

/// Number of bits below the highest set bit that distinguish buckets.
const FINE: u32 = 5;
pub const BUCKETS: usize = 1024;

/// How many delays fell into each bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram(pub Vec<u64>);

impl Histogram {
    /// The delays since `earlier`.
    pub fn since(&self, earlier: &Histogram) -> Histogram {
        Histogram(
            self.0.iter().zip(&earlier.0).map(|(now, then)| now.wrapping_sub(*then)).collect(),
        )
    }

    /// The number of delays.
    pub fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Nanoseconds that this share of the delays (0.5: half of them) do not exceed, to some
    /// three percent; `None` when there are none.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let rank = (self.count() as f64 * share).ceil().max(1.0) as u64;
        let mut below = 0;
        let at = self.0.iter().position(|count| {
            below += count;
            below >= rank
        })?;
        Some(middle(at))
    }
}

/// The middle of a bucket, in nanoseconds.
fn middle(bucket: usize) -> f64 {
    let parts = 1 << FINE;
    if bucket < parts {
        return bucket as f64;
    }
    let shift = bucket / parts - 1;
    let low = ((parts + bucket % parts) as u64) << shift;
    low as f64 + ((1u64 << shift) - 1) as f64 / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `bucket_of` in `bpf/sink.h`.
    fn bucket(delay: u64) -> usize {
        match delay.checked_ilog2() {
            Some(log) if log >= FINE => {
                let part = (delay >> (log - FINE)) & ((1 << FINE) - 1);
                (((log - FINE + 1) as usize) << FINE) + part as usize
            }
            _ => delay as usize,
        }
    }

    #[test]
    fn buckets_are_narrow_and_in_order() {
        let delays = (0..35).flat_map(|log| [1u64 << log, (1 << log) + (1 << log) / 3]);
        let mut last = 0;
        for delay in delays {
            let at = bucket(delay);
            assert!(at >= last, "{delay}");
            last = at;
            let error = (middle(at) - delay as f64).abs() / delay as f64;
            assert!(error <= 0.032, "{delay} is in a bucket around {}", middle(at));
        }
    }

    #[test]
    fn quantiles_find_the_rank() {
        let mut counts = Histogram(vec![0; BUCKETS]);
        assert_eq!(counts.quantile(0.5), None);
        counts.0[3] = 98;
        counts.0[7] = 1;
        counts.0[bucket(1000)] = 1;
        assert_eq!(counts.quantile(0.5), Some(3.0));
        assert_eq!(counts.quantile(0.99), Some(7.0));
        assert!(counts.quantile(0.999).unwrap() > 980.0);
        let earlier = Histogram(vec![0; BUCKETS]);
        assert_eq!(counts.since(&earlier).count(), 100);
    }
}
