//! How much of a batch is padding, as a share of its positions, under the three ways of padding.

use super::Histogram;

/// Every example padded to `length`, longer ones cut to it: 1 − Σ min(own, length) / (n · length).
pub fn to_length(lengths: &Histogram, length: u32) -> f64 {
    let n = lengths.n();
    if n == 0 || length == 0 {
        return 0.0;
    }
    let kept = lengths.total() - lengths.beyond(length);
    1.0 - kept as f64 / (n as f64 * f64::from(length))
}

/// Random batches of `batch`, each padded to its longest: 1 − mean / M, with M, the expected longest, = Σₖ (1 − F(k)^batch) for
/// independent draws from the distribution F. No sampling: the sum runs over the histogram.
pub fn to_longest(lengths: &Histogram, batch: u32) -> f64 {
    let n = lengths.n() as f64;
    let (mut expected, mut seen, mut last) = (0.0, 0_u64, 0_u32);
    for (length, count) in lengths.iter() {
        // F is constant from `last` up to below `length`.
        let below = seen as f64 / n;
        expected += f64::from(length - last) * (1.0 - below.powf(f64::from(batch)));
        (seen, last) = (seen + count, length);
    }
    if expected == 0.0 { 0.0 } else { (1.0 - lengths.mean() / expected).max(0.0) }
}

/// Examples sorted by length and taken `batch` at a time, each batch padded to its longest.
pub fn grouped(lengths: &Histogram, batch: u32) -> f64 {
    let batch = u64::from(batch);
    let (mut padded, mut seen) = (0_u64, 0_u64);
    for (length, count) in lengths.iter() {
        let ends = (seen + count) / batch - seen / batch;
        padded += ends * batch * u64::from(length);
        seen += count;
    }
    padded += seen % batch * u64::from(lengths.max().unwrap_or(0));
    if padded == 0 { 0.0 } else { 1.0 - lengths.total() as f64 / padded as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_batch_of_one_wastes_nothing_unless_it_is_padded_to_a_length() {
        let lengths = Histogram::from_iter([10, 20, 40]);
        assert!(to_longest(&lengths, 1).abs() < 1e-12);
        assert_eq!(grouped(&lengths, 1), 0.0);
        assert!((to_length(&lengths, 20) - (1.0 - 50.0 / 60.0)).abs() < 1e-12);
        let none = Histogram::default();
        assert_eq!((to_length(&none, 8), to_longest(&none, 4), grouped(&none, 4)), (0.0, 0.0, 0.0));
    }

    proptest! {
        #[test]
        fn the_expected_longest_equals_that_of_every_pair(lengths in prop::collection::vec(1_u32..30, 1..20)) {
            let pairs = lengths.iter().flat_map(|a| lengths.iter().map(move |b| a.max(b)));
            let longest = pairs.map(|&max| f64::from(max)).sum::<f64>() / (lengths.len() * lengths.len()) as f64;
            let mean = lengths.iter().sum::<u32>() as f64 / lengths.len() as f64;
            let histogram: Histogram = lengths.iter().copied().collect();
            prop_assert!((to_longest(&histogram, 2) - (1.0 - mean / longest)).abs() < 1e-9);
        }

        #[test]
        fn groups_equal_the_chunks_of_the_sorted_list(mut lengths in prop::collection::vec(1_u32..30, 1..60), batch in 1_u32..9) {
            let histogram: Histogram = lengths.iter().copied().collect();
            lengths.sort_unstable();
            let padded: u32 = lengths.chunks(batch as usize).map(|c| c.len() as u32 * c[c.len() - 1]).sum();
            let expected = 1.0 - f64::from(lengths.iter().sum::<u32>()) / f64::from(padded);
            prop_assert!((grouped(&histogram, batch) - expected).abs() < 1e-12);
        }
    }
}
