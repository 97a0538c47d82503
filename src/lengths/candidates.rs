//! One row of the table: what a sequence length fits, cuts, wastes and costs.

use super::packing::{Packing, first_fit_decreasing};
use super::{Lengths, Share, padding};
use serde::Serialize;
use std::collections::BTreeSet;

/// Sequence lengths that people choose by habit.
const USUAL: [u32; 6] = [256, 512, 1024, 2048, 4096, 8192];

/// Shares of the examples that candidates cover.
const COVERED: [Share; 4] = [Share::permille(900), Share::permille(950), Share::permille(990), Share::ALL];

/// What a sequence length does to a dataset.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Candidate {
    /// The sequence length, in tokens.
    pub len: u32,
    /// Examples that fit whole, as a share.
    pub fit: f64,
    /// Examples that are longer: cut, or dropped where the trainer drops.
    pub cut: u64,
    /// Tokens within, as a share of all.
    pub token_fit: f64,
    /// Tokens beyond.
    pub tokens_cut: u64,
    /// Answers that are cut but not lost.
    pub answers_cut: u64,
    /// Answers of which nothing is left.
    pub answers_lost: u64,
    /// Share of padding where every example is padded to the sequence length.
    pub padding_waste: f64,
    /// Share of padding where random batches are padded to their longest example: an expectation.
    pub padding_waste_longest: f64,
    /// Share of padding where batches group examples of like length.
    pub padding_waste_grouped: f64,
    /// Share of tokens in packed sequences, by first-fit-decreasing.
    pub packing_efficiency: f64,
    /// Packed sequences.
    pub packed_sequences: u64,
    /// Examples in a packed sequence, on average.
    pub examples_per_sequence: f64,
}

impl Candidate {
    /// Measures the sequence length `len` (at least 1) with training batches of `batch` examples.
    pub fn measure(lengths: &Lengths, len: u32, batch: u32) -> Self {
        let total = &lengths.total;
        let (n, tokens) = (total.n(), total.total());
        let clipped = total.clipped(len);
        let Packing { bins, efficiency, examples_per_bin } = first_fit_decreasing(&clipped, len);
        let share = |part: u64, of: u64| if of == 0 { 1.0 } else { part as f64 / of as f64 };
        let tokens_cut = total.beyond(len);
        Self {
            len,
            fit: share(total.within(len), n),
            cut: total.over(len),
            token_fit: share(tokens - tokens_cut, tokens),
            tokens_cut,
            answers_cut: lengths.answers_cut(len),
            answers_lost: lengths.answers_lost(len),
            padding_waste: padding::to_length(total, len),
            padding_waste_longest: padding::to_longest(&clipped, batch),
            padding_waste_grouped: padding::grouped(&clipped, batch),
            packing_efficiency: efficiency,
            packed_sequences: bins,
            examples_per_sequence: examples_per_bin,
        }
    }
}

/// The lengths to compare: those that cover 90, 95, 99 and 100 % rounded up to `multiple`, the usual powers of two up to
/// the first that covers all, and `more`; none over `longest`, ascending.
pub fn ladder(lengths: &Lengths, multiple: u32, longest: Option<u32>, more: &[u32]) -> Vec<u32> {
    let rounded = |length: u32| length.max(1).checked_next_multiple_of(multiple.max(1)).unwrap_or(length);
    let covering = COVERED.iter().filter_map(|&share| lengths.total.percentile(share)).map(rounded);
    let max = lengths.total.max().unwrap_or(0);
    let usual = USUAL.iter().enumerate().filter(|&(i, _)| i == 0 || USUAL[i - 1] < max).map(|(_, &length)| length);
    let bound = |length: u32| longest.map_or(length, |longest| length.min(longest));
    covering.chain(usual).chain(more.iter().copied()).map(bound).collect::<BTreeSet<_>>().into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Answer, Example};
    use super::*;

    #[test]
    fn an_answer_is_lost_where_it_begins_at_the_sequence_length_and_cut_where_it_ends_beyond() {
        let mut lengths = Lengths::default();
        for (start, end) in [(10, 20), (19, 21), (20, 30), (5, 40)] {
            let answer = Answer { start, end, supervised: end - start };
            lengths.add(Example { total: end, answer: Some(answer) });
        }
        lengths.add(Example { total: 100, answer: None });
        let row = Candidate::measure(&lengths, 20, 2);
        assert_eq!((row.cut, row.answers_cut, row.answers_lost), (4, 2, 1));
        assert_eq!((row.fit, row.tokens_cut), (0.2, 1 + 10 + 20 + 80));
    }

    #[test]
    fn the_ladder_stops_at_the_models_limit_and_at_the_first_length_that_covers_all() {
        let mut lengths = Lengths::default();
        (1..=100).for_each(|length| lengths.add(Example { total: length * 10, answer: None }));
        assert_eq!(ladder(&lengths, 64, None, &[]), [256, 512, 960, 1024]);
        assert_eq!(ladder(&lengths, 64, Some(600), &[320]), [256, 320, 512, 600]);
    }
}
