//! Repeats of regularization images, which balance the others of their dataset.

use super::Collected;
use crate::problem::{Kind, Problem};
use std::collections::BTreeSet;

/// Gives regularization images the repeats that sd-scripts gives them (`train_util.py:2166-2182`): they are taken in
/// their order until they count as often as the images that they balance, then each once more in turn. Those that are
/// never reached count nothing, and are named.
pub(super) fn balance(collected: &mut Collected) {
    let of_group = |subset: usize| collected.description.subsets[subset].settings.group;
    let groups: BTreeSet<_> = (0..collected.description.subsets.len()).map(of_group).collect();
    for group in groups {
        let (balancing, others) = members(collected, group);
        let repeats = |&sample: &usize| u64::from(collected.samples[sample].repeats);
        let wanted: u64 = others.iter().map(repeats).sum();
        let own: Vec<u64> = balancing.iter().map(repeats).collect();
        for (&sample, count) in balancing.iter().zip(shares(&own, wanted)) {
            collected.samples[sample].repeats = u32::try_from(count).unwrap_or(u32::MAX);
            if count == 0 {
                let path = collected.images[collected.samples[sample].image].path.clone();
                let message = "is one regularization image more than sd-scripts takes beside the others: not trained";
                collected.problems.push(Problem::warning(path, Kind::Unsupported, message));
            }
        }
    }
}

/// Samples of one dataset of the description: those that balance, and the others.
fn members(collected: &Collected, group: Option<u32>) -> (Vec<usize>, Vec<usize>) {
    let settings = |sample: usize| &collected.description.subsets[collected.samples[sample].subset].settings;
    let members = (0..collected.samples.len()).filter(|&sample| settings(sample).group == group);
    members.partition(|&sample| settings(sample).regularization == Some(true))
}

/// How often each of `own` repeats counts so that all together reach `wanted`.
fn shares(own: &[u64], wanted: u64) -> Vec<u64> {
    let mut shares = vec![0; own.len()];
    let mut reached = 0;
    for (share, &repeats) in shares.iter_mut().zip(own) {
        if reached >= wanted {
            return shares;
        }
        *share = repeats;
        reached += repeats;
    }
    if own.is_empty() {
        return shares;
    }
    let (missing, count) = (wanted.saturating_sub(reached), own.len() as u64);
    let more = |index: usize| missing / count + u64::from((index as u64) < missing % count);
    shares.iter_mut().enumerate().for_each(|(index, share)| *share += more(index));
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_count_as_often_as_the_others_and_the_surplus_never() {
        assert_eq!(shares(&[1, 1, 1], 7), [3, 2, 2]);
        assert_eq!(shares(&[2, 2], 6), [3, 3]);
        assert_eq!(shares(&[2, 2, 2], 3), [2, 2, 0]);
        assert_eq!(shares(&[1, 1], 0), [0, 0]);
        assert_eq!(shares(&[], 5), [0u64; 0]);
    }
}
