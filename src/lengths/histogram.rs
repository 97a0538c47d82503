//! Exact counts by length; shards and threads merge by addition.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A share in millionths, so that ranks are whole numbers: 95 % of 20 is rank 19, never 20.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(u32);

impl Share {
    /// All of it.
    pub const ALL: Self = Self(1_000_000);

    /// Tenths of a percent.
    pub const fn permille(permille: u32) -> Self {
        Self(permille * 1000)
    }

    /// The nearest millionth of a fraction in (0, 1]; `None` outside.
    pub fn of(fraction: f64) -> Option<Self> {
        (fraction > 0.0 && fraction <= 1.0).then(|| Self(((fraction * 1e6).round() as u32).max(1)))
    }

    /// As a fraction.
    pub fn fraction(self) -> f64 {
        f64::from(self.0) / 1e6
    }

    /// ⌈share · n⌉.
    fn rank(self, n: u64) -> u64 {
        (u128::from(n) * u128::from(self.0)).div_ceil(1_000_000) as u64
    }
}

/// How often each length occurs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Histogram(BTreeMap<u32, u64>);

impl Histogram {
    /// Counts one length.
    pub fn add(&mut self, length: u32) {
        self.add_many(length, 1);
    }

    /// Counts `times` equal lengths.
    pub fn add_many(&mut self, length: u32, times: u64) {
        if times > 0 {
            *self.0.entry(length).or_default() += times;
        }
    }

    /// Adds what `other` counted.
    pub fn merge(&mut self, other: &Self) {
        other.iter().for_each(|(length, count)| self.add_many(length, count));
    }

    /// Lengths with their counts, ascending.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (u32, u64)> + '_ {
        self.0.iter().map(|(&length, &count)| (length, count))
    }

    /// Examples counted.
    pub fn n(&self) -> u64 {
        self.0.values().sum()
    }

    /// The sum of all lengths.
    pub fn total(&self) -> u64 {
        self.iter().map(|(length, count)| u64::from(length) * count).sum()
    }

    /// The shortest; `None` where nothing was counted.
    pub fn min(&self) -> Option<u32> {
        self.0.keys().next().copied()
    }

    /// The longest; `None` where nothing was counted.
    pub fn max(&self) -> Option<u32> {
        self.0.keys().next_back().copied()
    }

    /// The mean length; 0 where nothing was counted.
    pub fn mean(&self) -> f64 {
        let n = self.n();
        if n == 0 { 0.0 } else { self.total() as f64 / n as f64 }
    }

    /// The nearest-rank percentile, `sorted[⌈share · n⌉ − 1]`: an observed length within which at least that share of the
    /// examples lies (numpy's `inverted_cdf`).
    pub fn percentile(&self, share: Share) -> Option<u32> {
        let rank = share.rank(self.n()).max(1);
        let mut seen = 0;
        self.iter().find_map(|(length, count)| {
            seen += count;
            (seen >= rank).then_some(length)
        })
    }

    /// Examples of at most `length`.
    pub fn within(&self, length: u32) -> u64 {
        self.0.range(..=length).map(|(_, count)| count).sum()
    }

    /// Examples longer than `length`.
    pub fn over(&self, length: u32) -> u64 {
        self.n() - self.within(length)
    }

    /// Tokens beyond `length`, of all examples together.
    pub fn beyond(&self, length: u32) -> u64 {
        self.0.range(length..).map(|(&own, count)| u64::from(own - length) * count).sum()
    }

    /// The same with every length above `longest` counted as `longest`.
    pub fn clipped(&self, longest: u32) -> Self {
        let mut clipped = Self(self.0.range(..=longest).map(|(&length, &count)| (length, count)).collect());
        clipped.add_many(longest, self.over(longest));
        clipped
    }
}

impl FromIterator<u32> for Histogram {
    fn from_iter<I: IntoIterator<Item = u32>>(lengths: I) -> Self {
        let mut histogram = Self::default();
        lengths.into_iter().for_each(|length| histogram.add(length));
        histogram
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn percentiles_are_the_nearest_rank() {
        let lengths: Histogram = (1..=20).collect();
        let at = |permille| lengths.percentile(Share::permille(permille)).unwrap();
        assert_eq!([at(500), at(950), at(951), at(990), at(1000)], [10, 19, 20, 20, 20]);
        assert_eq!(Histogram::default().percentile(Share::ALL), None);
        // 0.07 · 100 is 7.000000000000001 in floating point.
        let hundred: Histogram = (1..=100).collect();
        assert_eq!(hundred.percentile(Share::of(0.07).unwrap()), Some(7));
        assert_eq!((Share::of(0.0), Share::of(1.1), Share::of(f64::NAN)), (None, None, None));
    }

    proptest! {
        #[test]
        fn all_equals_the_plain_list(mut lengths in prop::collection::vec(0_u32..40, 1..80), cut in 0_u32..50, ppm in 1_u32..=1_000_000) {
            let (left, right) = lengths.split_at(lengths.len() / 2);
            let mut merged: Histogram = left.iter().copied().collect();
            merged.merge(&right.iter().copied().collect());
            lengths.sort_unstable();
            let rank = (u64::from(ppm) * lengths.len() as u64).div_ceil(1_000_000).max(1);
            prop_assert_eq!(merged.percentile(Share(ppm)), Some(lengths[rank as usize - 1]));
            prop_assert_eq!(merged.within(cut), lengths.iter().filter(|&&l| l <= cut).count() as u64);
            prop_assert_eq!(merged.beyond(cut), lengths.iter().map(|&l| u64::from(l.saturating_sub(cut))).sum::<u64>());
            let clipped: Histogram = lengths.iter().map(|&l| l.min(cut)).collect();
            prop_assert_eq!(merged.clipped(cut), clipped);
        }
    }
}
