//! First-fit-decreasing packing of whole examples into sequences of one length, over the histogram.

use super::Histogram;

/// What packing gives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Packing {
    /// Sequences needed.
    pub bins: u64,
    /// Tokens in them, as a share of their positions.
    pub efficiency: f64,
    /// Examples in a sequence, on average.
    pub examples_per_bin: f64,
}

/// Neighbouring bins with the same room left.
#[derive(Clone, Copy, Debug)]
struct Run {
    room: u32,
    bins: u64,
}

/// Packs `lengths`, none longer than `capacity`, into as many bins as first-fit-decreasing needs.
///
/// The very bins of the textbook algorithm (longest first, each into the first bin with room), but equal lengths go in
/// together and neighbouring bins that are alike are one run, so the work follows the number of distinct lengths.
///
/// # Panics
/// If `capacity` is 0 or a length is over it.
pub fn first_fit_decreasing(lengths: &Histogram, capacity: u32) -> Packing {
    assert!(capacity > 0 && lengths.max().is_none_or(|max| max <= capacity), "lengths have to be clipped first");
    let mut runs: Vec<Run> = Vec::new();
    for (length, count) in lengths.iter().rev().filter(|(length, _)| *length > 0) {
        let rest = fill(&mut runs, length, count);
        open(&mut runs, length, rest, capacity);
    }
    let bins: u64 = runs.iter().map(|run| run.bins).sum();
    let share = |whole: f64, of: f64| if of == 0.0 { 0.0 } else { whole / of };
    Packing {
        bins,
        efficiency: share(lengths.total() as f64, bins as f64 * f64::from(capacity)),
        examples_per_bin: share(lengths.n() as f64, bins as f64),
    }
}

/// Puts examples into the open bins, in order; how many found no room.
fn fill(runs: &mut Vec<Run>, length: u32, mut count: u64) -> u64 {
    let mut at = 0;
    while count > 0 && at < runs.len() {
        let run = runs[at];
        let each = u64::from(run.room / length);
        if each == 0 {
            at += 1;
            continue;
        }
        let full = run.bins.min(count / each);
        let extra = if full < run.bins { count % each } else { 0 };
        count -= full * each + extra;
        let parts = [
            Run { room: run.room - (each as u32) * length, bins: full },
            Run { room: run.room - (extra as u32) * length, bins: u64::from(extra > 0) },
            Run { room: run.room, bins: run.bins - full - u64::from(extra > 0) },
        ];
        let parts: Vec<Run> = parts.into_iter().filter(|part| part.bins > 0).collect();
        at += parts.len();
        let place = at - parts.len();
        runs.splice(place..=place, parts);
    }
    count
}

/// New bins for what found no room.
fn open(runs: &mut Vec<Run>, length: u32, count: u64, capacity: u32) {
    let each = u64::from(capacity / length);
    let (full, extra) = (count / each, count % each);
    if full > 0 {
        runs.push(Run { room: capacity - (each as u32) * length, bins: full });
    }
    if extra > 0 {
        runs.push(Run { room: capacity - (extra as u32) * length, bins: 1 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn plain(mut lengths: Vec<u32>, capacity: u32) -> u64 {
        lengths.sort_unstable_by(|a, b| b.cmp(a));
        let mut rooms: Vec<u32> = Vec::new();
        for length in lengths {
            match rooms.iter_mut().find(|room| **room >= length) {
                Some(room) => *room -= length,
                None => rooms.push(capacity - length),
            }
        }
        rooms.len() as u64
    }

    #[test]
    fn halves_and_quarters_fill_their_bins() {
        let packing = first_fit_decreasing(&Histogram::from_iter([50, 50, 25, 25, 25, 25]), 100);
        assert_eq!((packing.bins, packing.efficiency, packing.examples_per_bin), (2, 1.0, 3.0));
        assert_eq!(first_fit_decreasing(&Histogram::default(), 8).bins, 0);
    }

    proptest! {
        #[test]
        fn as_many_bins_as_one_example_at_a_time(lengths in prop::collection::vec(1_u32..=24, 0..120), capacity in 24_u32..60) {
            let histogram: Histogram = lengths.iter().copied().collect();
            prop_assert_eq!(first_fit_decreasing(&histogram, capacity).bins, plain(lengths, capacity));
        }
    }
}
