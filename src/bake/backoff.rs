//! What ran out of memory is not tried again: how much the device was seen not to hold, and what follows for each bucket.
//!
//! A call of n pieces that does not fit limits calls with pieces of that area, or a larger one, to half of n; one piece
//! alone that does not fit means smaller pieces, that is tiles. No later call holds as many pixels as one that did not
//! fit, unless it is a single piece. The limits hold until the run ends.
//!
//! That is for devices that say so when their memory is full. On the CPU the system ends the process instead, hence the
//! tiles that [`Budget`] plans beforehand.

use crate::units::Size;
use crate::vae::{Budget, Step};
use serde::Serialize;
use std::collections::BTreeMap;

/// The steps of a run, lowered by what failed.
pub(super) struct Backoff {
    budget: Budget,
    /// Most pieces a call, by the area of a piece in pixels from which on that holds.
    limits: BTreeMap<u64, usize>,
    /// The fewest pixels in a call that did not fit.
    too_many: u64,
}

/// What a bucket was lowered to, for the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Lowered {
    /// Whose pictures.
    pub bucket: Size,
    /// Images per encoder call as planned.
    pub from_batch: usize,
    /// Side of the tiles as planned, if any.
    pub from_tile: Option<u32>,
    /// Images, or tiles, per encoder call that fit.
    pub to_batch: usize,
    /// Side of the tiles that fit, if any.
    pub to_tile: Option<u32>,
}

impl Backoff {
    pub(super) fn new(budget: Budget) -> Self {
        Self { budget, limits: BTreeMap::new(), too_many: u64::MAX }
    }

    /// What to do with pictures of `size` now.
    pub(super) fn step(&self, size: Size) -> Step {
        self.budget.step(size, &|piece| self.room(piece))
    }

    /// Remembers that `at_once` pieces of `step` did not fit; false when there is nothing smaller to try for `size`.
    pub(super) fn failed(&mut self, size: Size, step: &Step, at_once: usize) -> bool {
        let limit = self.limits.entry(step.piece.area()).or_insert(usize::MAX);
        *limit = (*limit).min(at_once / 2);
        self.too_many = self.too_many.min(step.piece.area().saturating_mul(at_once as u64));
        at_once > 1 || self.step(size).piece != step.piece
    }

    /// How `size` differs from what was planned for it.
    pub(super) fn lowered(&self, bucket: Size) -> Option<Lowered> {
        let (from, to) = (self.budget.planned(bucket), self.step(bucket));
        (from != to).then_some(Lowered {
            bucket,
            from_batch: from.batch,
            from_tile: from.tile,
            to_batch: to.batch,
            to_tile: to.tile,
        })
    }

    fn room(&self, piece: Size) -> usize {
        let limit = self.limits.range(..=piece.area()).map(|(_, &most)| most).min().unwrap_or(usize::MAX);
        let below = (self.too_many - 1) / piece.area().max(1);
        limit.min(usize::try_from(below).unwrap_or(usize::MAX).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::{Precision, Tile};
    use crate::vae::EncoderLayout;

    fn backoff(tile: Tile, cache_batch: usize) -> Backoff {
        let layout = EncoderLayout::kl(&[32, 64, 128, 128], 1, 4, true);
        let (precision, cache_batch) = (Precision::Bf16, Some(cache_batch));
        Backoff::new(Budget { layout, precision, one_by_one: false, available: None, cache_batch, tile })
    }

    /// Fails calls of more than `most` pixels until one fits, or nothing smaller is left; counts the failures.
    fn settle(backoff: &mut Backoff, size: Size, most: u64) -> (usize, Option<(Option<u32>, usize)>) {
        for failures in 0..100 {
            let step = backoff.step(size);
            if step.piece.area() * step.batch as u64 <= most {
                return (failures, Some((step.tile, step.batch)));
            }
            if !backoff.failed(size, &step, step.batch) {
                return (failures + 1, None);
            }
        }
        panic!("it never settles");
    }

    const SIZE: Size = Size::new(1024, 1024);

    #[test]
    fn a_batch_is_halved_down_to_one_and_then_tiled() {
        let mut backoff = backoff(Tile::Auto, 8);
        assert_eq!(settle(&mut backoff, SIZE, 3 << 20), (2, Some((None, 2))));
        assert_eq!(settle(&mut backoff, SIZE, (1 << 20) - 1), (2, Some((Some(768), 1))));
    }

    #[test]
    fn what_worked_is_where_that_area_and_larger_ones_start() {
        let mut backoff = backoff(Tile::Auto, 8);
        assert_eq!(settle(&mut backoff, SIZE, 3 << 20).0, 2);
        assert_eq!(settle(&mut backoff, SIZE, 3 << 20), (0, Some((None, 2))));
        assert_eq!(settle(&mut backoff, Size::new(1088, 1024), 3 << 20), (0, Some((None, 2))));
        assert_eq!(
            settle(&mut backoff, Size::new(896, 1152), 3 << 20),
            (1, Some((None, 2))),
            "fewer pixels than failed"
        );
        assert_eq!(backoff.step(Size::new(512, 512)).batch, 8, "what is smaller is not lowered");
    }

    #[test]
    fn a_picture_that_does_not_fit_alone_lowers_larger_ones_to_tiles() {
        let mut backoff = backoff(Tile::Auto, 1);
        assert_eq!(settle(&mut backoff, SIZE, 1 << 19), (2, Some((Some(512), 1))));
        assert_eq!(settle(&mut backoff, Size::new(2048, 1024), 1 << 19), (0, Some((Some(512), 1))));
    }

    #[test]
    fn off_and_a_side_go_no_lower_than_they_say() {
        assert_eq!(settle(&mut backoff(Tile::Off, 2), SIZE, 1000), (2, None));
        assert_eq!(settle(&mut backoff(Tile::Side(512), 1), SIZE, 1000), (1, None));
        assert_eq!(settle(&mut backoff(Tile::Side(512), 1), Size::new(512, 512), 1000), (1, None));
    }

    #[test]
    fn where_nothing_fits_each_picture_costs_one_more_try_and_no_loop() {
        let mut backoff = backoff(Tile::Auto, 1);
        assert_eq!(settle(&mut backoff, SIZE, 1000), (5, None));
        assert_eq!(settle(&mut backoff, SIZE, 1000), (1, None));
        assert_eq!(settle(&mut backoff, Size::new(256, 256), 1000), (1, None));
    }

    #[test]
    fn a_report_names_what_was_planned_and_what_fits() {
        let mut backoff = backoff(Tile::Auto, 8);
        assert_eq!(backoff.lowered(SIZE), None);
        let _ = settle(&mut backoff, SIZE, 1 << 19);
        let lowered = backoff.lowered(SIZE).unwrap();
        assert_eq!((lowered.from_batch, lowered.from_tile, lowered.to_tile), (8, None, Some(512)));
    }
}
