//! How much goes to the encoder at once: the batch, and the tiles of what does not fit. `plan` shows it, `bake` does it.

use crate::recipe::{Precision, Tile};
use crate::units::Size;
use crate::vae::layout::EncoderLayout;
use crate::vae::tiles::{Tiling, piece};
use crate::vae::{capacity, memory};

/// Tile sides that `auto` chooses from, in pixels. Few, so that the memory that happens to be free seldom shows in a
/// latent; each the half or three quarters of a usual one.
const LADDER: [u32; 7] = [2048, 1536, 1024, 768, 512, 384, Tile::LEAST];

/// The largest batch that `auto` takes on a GPU, where more brings little.
const LARGEST_BATCH: usize = 8;

/// Pixels at once on a GPU whose free memory is unknown: one picture of 1024 × 1024 or several smaller ones.
const BLIND_PIXELS: u64 = 1024 * 1024;

/// What decides how much goes to the encoder at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Of the encoder.
    pub layout: EncoderLayout,
    /// Its arithmetic.
    pub precision: Precision,
    /// True where the pictures of a batch are encoded one after the other, as on the CPU: convolutions fill all cores
    /// with one picture, so a batch gains nothing there.
    pub one_by_one: bool,
    /// Bytes that an encode can have; `None` where nobody tells, and then everything is taken to fit.
    pub available: Option<u64>,
    /// Images per encoder call, at least 1; `None` is `auto`.
    pub cache_batch: Option<usize>,
    /// What is asked for of tiling.
    pub tile: Tile,
}

/// What goes to the encoder at once for one bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Side of the tiles, in pixels; `None` where pictures go in one piece.
    pub tile: Option<u32>,
    /// What goes in: the picture, or one tile.
    pub piece: Size,
    /// Pieces a call.
    pub batch: usize,
    /// Estimated peak bytes of that, weights included.
    pub peak_bytes: u64,
    /// Pixels of a latent's side.
    stride: u32,
}

impl Step {
    /// Pictures that are worth collecting for a call: tiles of one picture make batches by themselves.
    pub fn pictures(&self) -> usize {
        if self.tile.is_some() { 1 } else { self.batch }
    }

    /// The tiles of a picture of `size`; `None` where it goes in one piece.
    pub fn tiling(&self, size: Size) -> Option<Tiling> {
        self.tile.map(|side| Tiling::new(size, side, self.stride))
    }
}

impl Budget {
    /// What is planned for pictures of `size`.
    pub fn planned(&self, size: Size) -> Step {
        self.step(size, &|_| usize::MAX)
    }

    /// What to do with pictures of `size` where `room` says how many pieces of a size a call can hold, 0 for none.
    ///
    /// The largest piece that `room` holds, whole pictures first; if it holds none, the smallest piece alone.
    pub fn step(&self, size: Size, room: &dyn Fn(Size) -> usize) -> Step {
        let candidates = self.candidates(size);
        let tile = candidates.iter().copied().find(|&tile| room(piece(size, tile)) > 0);
        let tile = tile.unwrap_or_else(|| candidates.last().copied().flatten());
        let piece = piece(size, tile);
        let batch = self.batch(piece).min(room(piece)).max(1);
        Step { tile, piece, batch, peak_bytes: self.peak(piece, batch), stride: self.layout.stride() }
    }

    /// The same limits for what is repeated in f32, one picture at a time.
    pub fn exact(&self) -> Self {
        Self { precision: Precision::F32, cache_batch: Some(1), ..self.clone() }
    }

    /// Tile sides to try, best first, never empty; `None` is the whole picture. Of what `auto` could do, that which is
    /// known not to fit is left out, but for the smallest tiles.
    fn candidates(&self, size: Size) -> Vec<Option<u32>> {
        let longest = size.width.max(size.height);
        match self.tile {
            Tile::Off => vec![None],
            Tile::Side(side) => {
                // Tiles of that side or larger are asked for; a latent of some encoders spans more than its step.
                let side = side.checked_next_multiple_of(self.layout.stride()).unwrap_or(u32::MAX);
                vec![(longest > side).then_some(side)]
            }
            Tile::Auto => {
                let tiles = LADDER.iter().copied().filter(|&side| side < longest).map(Some);
                let all: Vec<_> = std::iter::once(None).chain(tiles).collect();
                let fits = |&tile: &Option<u32>| self.fits(piece(size, tile));
                let first = all.iter().position(fits).unwrap_or(all.len() - 1);
                all[first..].to_vec()
            }
        }
    }

    fn batch(&self, piece: Size) -> usize {
        match self.cache_batch {
            Some(batch) => batch.max(1),
            None if self.one_by_one => 1,
            None => (2..=LARGEST_BATCH).take_while(|&batch| self.is_worth_a_batch(piece, batch)).last().unwrap_or(1),
        }
    }

    fn is_worth_a_batch(&self, piece: Size, batch: usize) -> bool {
        match self.available {
            Some(available) => self.peak(piece, batch) <= available,
            None => piece.area() * batch as u64 <= BLIND_PIXELS,
        }
    }

    /// True where a piece alone is worth a try. A GPU refuses cleanly what it has no room for, and its peak is an upper
    /// estimate: tiles, which change the latent, are for what was refused. The CPU's system swaps or kills instead.
    fn fits(&self, piece: Size) -> bool {
        !self.one_by_one || self.available.is_none_or(|available| self.peak(piece, 1) <= available)
    }

    fn peak(&self, piece: Size, batch: usize) -> u64 {
        let peak = if self.one_by_one { memory::peak_bytes } else { capacity::peak_bytes };
        peak(&self.layout, piece, batch, self.precision)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn budget(tile: Tile, available: Option<u64>) -> Budget {
        let layout = EncoderLayout::sdxl();
        Budget { layout, precision: Precision::F32, one_by_one: true, available, cache_batch: None, tile }
    }

    fn tile(budget: &Budget, width: u32, height: u32) -> Option<u32> {
        budget.planned(Size::new(width, height)).tile
    }

    #[test]
    fn auto_tiles_only_what_does_not_fit_and_in_the_largest_tiles_that_do() {
        let roomy = budget(Tile::Auto, Some(4 * GIB));
        assert_eq!(tile(&roomy, 1024, 1024), None);
        let peak = roomy.planned(Size::new(1024, 1024)).peak_bytes;
        assert_eq!(tile(&budget(Tile::Auto, Some(peak)), 1024, 1024), None, "to the byte");
        let tight = budget(Tile::Auto, Some(peak - 1));
        assert_eq!(tile(&tight, 1024, 1024), Some(768));
        assert!(tight.planned(Size::new(1024, 1024)).peak_bytes < peak);
        assert_eq!(tile(&tight, 768, 768), None);
        assert_eq!(tile(&tight, 1536, 640), None, "it is the area that counts");
        assert_eq!(tile(&budget(Tile::Auto, Some(GIB / 8 * 5)), 1024, 1024), Some(512));
        assert_eq!(tile(&budget(Tile::Auto, Some(1)), 1024, 1024), Some(256), "nothing fits: the smallest is tried");
        assert_eq!(tile(&budget(Tile::Auto, Some(1)), 256, 192), None);
        assert_eq!(tile(&budget(Tile::Auto, None), 8192, 8192), None);
    }

    #[test]
    fn a_side_tiles_everything_larger_and_off_nothing() {
        let forced = budget(Tile::Side(512), Some(64 * GIB));
        assert_eq!((tile(&forced, 512, 512), tile(&forced, 520, 64)), (None, Some(512)));
        assert_eq!(forced.planned(Size::new(520, 64)).piece, Size::new(512, 64));
        assert_eq!(tile(&budget(Tile::Off, Some(1)), 4096, 4096), None);
    }

    #[test]
    fn a_side_is_rounded_up_to_whole_latents() {
        let mut budget = budget(Tile::Side(264), None);
        assert_eq!(tile(&budget, 1024, 1024), Some(264));
        budget.layout = EncoderLayout::hunyuan_image();
        let step = budget.planned(Size::new(1024, 1024));
        assert_eq!((step.tile, step.tiling(Size::new(1024, 1024)).unwrap().tile()), (Some(288), Size::new(288, 288)));
        assert_eq!(tile(&budget, 288, 288), None);
    }

    #[test]
    fn the_cpu_takes_one_picture_a_gpu_what_fits_up_to_a_cap() {
        let size = Size::new(512, 512);
        let mut budget = budget(Tile::Auto, Some(64 * GIB));
        assert_eq!(budget.planned(size).batch, 1);
        budget.one_by_one = false;
        assert_eq!(budget.planned(size).batch, LARGEST_BATCH);
        budget.available = Some(budget.peak(size, 3));
        assert_eq!(budget.planned(size).batch, 3);
        budget.available = None;
        assert_eq!(budget.planned(size).batch, 4);
        assert_eq!(budget.planned(Size::new(1536, 1536)).batch, 1);
        budget.cache_batch = Some(16);
        assert_eq!(budget.planned(size).batch, 16, "a number that was asked for stands until it fails");
    }

    #[test]
    fn a_batch_in_one_call_needs_its_activations_a_batch_one_by_one_does_not() {
        let (size, mut budget) = (Size::new(512, 512), budget(Tile::Auto, None));
        let growth = |budget: &Budget| budget.peak(size, 4) - budget.peak(size, 1);
        assert!(growth(&budget) < 1 << 20);
        budget.one_by_one = false;
        assert!(growth(&budget) > 3 * 4 * 128 * 4 * size.area());
    }

    #[test]
    fn room_lowers_the_batch_and_then_the_piece() {
        let mut budget = budget(Tile::Auto, None);
        (budget.cache_batch, budget.one_by_one) = (Some(8), false);
        let size = Size::new(1024, 1024);
        let step = |most: u64, count| budget.step(size, &move |p: Size| if p.area() <= most { count } else { 0 });
        let shape = |step: Step| (step.tile, step.batch, step.pictures());
        assert_eq!(shape(step(u64::MAX, 3)), (None, 3, 3));
        assert_eq!(shape(step(size.area() - 1, 2)), (Some(768), 2, 1));
        assert_eq!(shape(step(0, 0)), (Some(256), 1, 1));
    }
}
