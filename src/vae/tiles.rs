//! A picture in overlapping tiles, and one posterior from those of its tiles.
//!
//! As diffusers' `tiled_encode`, tiles overlap by a quarter at least, and moments are blended linearly in latent space.
//! Unlike there all tiles have one size: the last one of a row ends with the picture, and the slack goes into the
//! overlaps, so that no tile is a sliver whose group norms see next to nothing. Each tile's norms see only that tile
//! all the same, so a blended latent is another one than the untiled: with the random weights of the sample VAE a photo
//! of 512 × 512 in tiles of 256 is off by 0.60 of the latents' standard deviation (root mean square), a pattern whose
//! tiles all look alike by 0.09 (`tests/tiling.rs`, 2026-12-01). Trained weights were not measured.

use crate::units::{Rect, Size};
use crate::vae::Posterior;

/// Where the tiles of a picture lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tiling {
    size: Size,
    tile: Size,
    /// Pixels of a latent's side.
    stride: u32,
    /// First columns, in latents, rising.
    columns: Vec<usize>,
    /// First rows, in latents, rising.
    rows: Vec<usize>,
}

impl Tiling {
    /// Tiles of `side` pixels over a picture of `size`; cut to the picture in a direction in which it is smaller.
    ///
    /// `size` and `side` are multiples of `stride`, the encoder's, none of them 0.
    pub fn new(size: Size, side: u32, stride: u32) -> Self {
        let tile = piece(size, Some(side));
        let [columns, rows] = [(size.width, tile.width), (size.height, tile.height)]
            .map(|(length, tile)| starts((length / stride) as usize, (tile / stride) as usize));
        Self { size, tile, stride, columns, rows }
    }

    /// The size that all tiles have, in pixels.
    pub fn tile(&self) -> Size {
        self.tile
    }

    /// The tiles, row by row, in pixels.
    pub fn rects(&self) -> Vec<Rect> {
        let pixel = |latent: usize| latent as u32 * self.stride;
        let row = |&top: &usize| self.columns.iter().map(move |&left| Rect::new(pixel(left), pixel(top), self.tile));
        self.rows.iter().flat_map(row).collect()
    }

    /// One posterior from those of [`Tiling::rects`], in their order: means and log-variances blended linearly where
    /// tiles overlap. What is not finite in a tile is not finite in the picture.
    pub fn blend(&self, tiles: &[Posterior]) -> Posterior {
        let channels = tiles.first().map_or(0, |tile| tile.shape[0]);
        let shape = [channels, self.latents(self.size.height), self.latents(self.size.width)];
        let count = shape.iter().product();
        let mut whole = Posterior { mean: vec![0.0; count], logvar: vec![0.0; count], shape };
        let across = weights(&self.columns, self.latents(self.tile.width), shape[2]);
        let down = weights(&self.rows, self.latents(self.tile.height), shape[1]);
        for (index, tile) in tiles.iter().enumerate() {
            let (row, column) = (index / self.columns.len(), index % self.columns.len());
            let at = [self.rows[row], self.columns[column]];
            for (part, whole) in [(&tile.mean, &mut whole.mean), (&tile.logvar, &mut whole.logvar)] {
                add(whole, shape, part, at, &down[row], &across[column]);
            }
        }
        let [low, high] = Posterior::LOGVAR_RANGE;
        whole.logvar.iter_mut().for_each(|value| *value = value.clamp(low, high));
        whole
    }

    fn latents(&self, pixels: u32) -> usize {
        (pixels / self.stride) as usize
    }
}

/// What the encoder gets in one piece of a picture of `size`: all of it, or one tile.
pub fn piece(size: Size, tile: Option<u32>) -> Size {
    let side = tile.unwrap_or(u32::MAX);
    Size::new(size.width.min(side), size.height.min(side))
}

/// The part of a (3, H, W) picture of `size` that lies in `rect`, as (3, h, w).
pub fn cut(pixels: &[f32], size: Size, rect: Rect) -> Vec<f32> {
    let width = size.width as usize;
    let (left, top) = (rect.left as usize, rect.top as usize);
    let (columns, rows) = (rect.size.width as usize, rect.size.height as usize);
    let mut part = Vec::with_capacity(3 * columns * rows);
    for plane in pixels.chunks_exact(width * size.height as usize) {
        for row in plane.chunks_exact(width).skip(top).take(rows) {
            part.extend_from_slice(&row[left..left + columns]);
        }
    }
    part
}

/// First latents of the fewest tiles that cover `length` with an overlap of a quarter or more, spread evenly.
fn starts(length: usize, tile: usize) -> Vec<usize> {
    let slack = length - tile;
    let stride = (tile - tile.div_ceil(4)).max(1);
    let steps = slack.div_ceil(stride);
    (0..=steps).map(|step| (slack * step).checked_div(steps).unwrap_or(0)).collect()
}

/// For each tile of an axis the weights of its latents: a ramp over each overlap; at each latent they sum to 1.
fn weights(starts: &[usize], tile: usize, length: usize) -> Vec<Vec<f32>> {
    let overlap = |first: usize| (starts[first] + tile - starts[first + 1]) as f64 + 1.0;
    let raw = |index: usize, at: usize| {
        let up = if index == 0 { 1.0 } else { (at + 1) as f64 / overlap(index - 1) };
        let down = if index + 1 == starts.len() { 1.0 } else { (tile - at) as f64 / overlap(index) };
        up.min(1.0) * down.min(1.0)
    };
    let mut sums = vec![0.0; length];
    for (index, &start) in starts.iter().enumerate() {
        (0..tile).for_each(|at| sums[start + at] += raw(index, at));
    }
    let row =
        |(index, &start): (usize, &usize)| (0..tile).map(|at| (raw(index, at) / sums[start + at]) as f32).collect();
    starts.iter().enumerate().map(row).collect()
}

/// Adds a tile's (C, h, w) `part` at (row, column) `at` of the (C, H, W) `whole`, weighted by row and by column.
fn add(whole: &mut [f32], shape: [usize; 3], part: &[f32], at: [usize; 2], down: &[f32], across: &[f32]) {
    let [_, height, width] = shape;
    for (index, row) in part.chunks_exact(across.len()).enumerate() {
        let (channel, y) = (index / down.len(), index % down.len());
        let start = (channel * height + at[0] + y) * width + at[1];
        for ((sum, value), weight) in whole[start..].iter_mut().zip(row).zip(across) {
            *sum += down[y] * weight * value;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A posterior whose latents say where in the picture they lie.
    fn ramp(rect: Rect) -> Posterior {
        ramp_of(rect, 8)
    }

    fn ramp_of(rect: Rect, stride: u32) -> Posterior {
        let latents = |pixels: u32| (pixels / stride) as usize;
        let [width, height] = [latents(rect.size.width), latents(rect.size.height)];
        let [left, top] = [latents(rect.left), latents(rect.top)];
        let value = |i: usize| ((i / width % height + top) * 1000 + i % width + left) as f32;
        let mean: Vec<f32> = (0..4 * width * height).map(value).collect();
        let logvar = mean.iter().map(|value| value / 1e6).collect();
        Posterior { mean, logvar, shape: [4, height, width] }
    }

    #[test]
    fn tiles_cover_the_picture_and_overlap_by_a_quarter_or_more() {
        for (width, height) in [(512, 512), (1024, 768), (520, 264), (2048, 256), (1016, 600)] {
            for side in [256, 264, 384, 512] {
                let tiling = Tiling::new(Size::new(width, height), side, 8);
                for (starts, tile, length) in
                    [(&tiling.columns, tiling.tile.width, width), (&tiling.rows, tiling.tile.height, height)]
                {
                    let (tile, length) = (tiling.latents(tile), tiling.latents(length));
                    assert_eq!((starts[0], starts[starts.len() - 1] + tile), (0, length));
                    let quarter = |pair: &[usize]| 4 * (pair[0] + tile - pair[1]) >= tile && pair[0] < pair[1];
                    assert!(starts.windows(2).all(quarter), "{width}x{height} in {side}: {starts:?}");
                }
            }
        }
    }

    #[test]
    fn a_picture_no_larger_than_a_tile_is_one_tile() {
        let tiling = Tiling::new(Size::new(256, 192), 256, 8);
        assert_eq!((tiling.rects(), tiling.tile()), (vec![Rect::whole(Size::new(256, 192))], Size::new(256, 192)));
        let wide = Tiling::new(Size::new(512, 192), 256, 8);
        assert_eq!((wide.rects().len(), wide.tile()), (3, Size::new(256, 192)));
    }

    #[test]
    fn tiles_that_agree_blend_into_what_they_agree_on() {
        for (size, side) in [(Size::new(512, 512), 256), (Size::new(1024, 768), 512), (Size::new(520, 264), 256)] {
            let tiling = Tiling::new(size, side, 8);
            let tiles: Vec<_> = tiling.rects().into_iter().map(ramp).collect();
            let (whole, wanted) = (tiling.blend(&tiles), ramp(Rect::whole(size)));
            assert_eq!(whole.shape, wanted.shape);
            let near = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-6 * b.abs().max(1e-3);
            assert!(whole.mean.iter().zip(&wanted.mean).all(near) && whole.logvar.iter().zip(&wanted.logvar).all(near));
        }
    }

    #[test]
    fn tiles_of_an_encoder_with_larger_latents_start_at_its_latents() {
        let size = Size::new(1024, 608);
        let tiling = Tiling::new(size, 256, 32);
        let whole = |rect: &Rect| rect.left.is_multiple_of(32) && rect.top.is_multiple_of(32);
        assert!(tiling.rects().iter().all(whole));
        let tiles: Vec<_> = tiling.rects().into_iter().map(|rect| ramp_of(rect, 32)).collect();
        let (whole, wanted) = (tiling.blend(&tiles), ramp_of(Rect::whole(size), 32));
        assert_eq!(whole.shape, [4, 19, 32]);
        assert!(whole.mean.iter().zip(&wanted.mean).all(|(a, b)| (a - b).abs() <= 1e-6 * b.abs().max(1e-3)));
    }

    #[test]
    fn in_an_overlap_the_share_of_a_tile_falls_linearly() {
        let weights = weights(&[0, 24], 32, 56);
        assert!(weights[0][..24].iter().all(|&w| w == 1.0));
        for k in 0..8 {
            assert!((weights[0][24 + k] - (8 - k) as f32 / 9.0).abs() < 1e-6);
            assert!((weights[0][24 + k] + weights[1][k] - 1.0).abs() < 1e-6);
        }
    }

    #[test]
    fn what_is_not_finite_in_a_tile_is_not_finite_in_the_picture() {
        let tiling = Tiling::new(Size::new(512, 512), 256, 8);
        let mut tiles: Vec<_> = tiling.rects().into_iter().map(ramp).collect();
        tiles[4].mean[7] = f32::NAN;
        assert!(!tiling.blend(&tiles).is_finite());
    }

    #[test]
    fn a_cut_holds_the_pixels_of_its_rectangle_in_all_planes() {
        let size = Size::new(24, 16);
        let pixels: Vec<f32> = (0..3 * 24 * 16).map(|i| i as f32).collect();
        let part = cut(&pixels, size, Rect::new(8, 8, Size::new(16, 8)));
        assert_eq!(part.len(), 3 * 16 * 8);
        assert_eq!(
            (part[0], part[16], part[128]),
            ((8 * 24 + 8) as f32, (9 * 24 + 8) as f32, (24 * 16 + 8 * 24 + 8) as f32)
        );
    }
}
