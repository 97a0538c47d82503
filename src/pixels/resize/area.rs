//! OpenCV `INTER_AREA`: each target pixel is the mean of the source area under it.
//!
//! Source: OpenCV 4.10 `modules/imgproc/src/resize.cpp`: `computeResizeAreaTab`, `ResizeArea_Invoker`,
//! `ResizeAreaFast_Invoker`. In general the mean is summed in float32, columns before rows, in the order of the
//! source; no term may move. Whole ratios sum whole numbers instead. Where a side grows OpenCV interpolates.

use super::taps;
use crate::pixels::Raster;
use crate::units::Size;
use rayon::prelude::*;

/// Rows of the target that one thread makes in a row, so that a source row under two of them is summed once.
const BAND: usize = 32;

/// A part of a source pixel narrower than this is left out.
const SLIVER: f64 = 1e-3;

/// The source pixels under one target pixel: `weights[i]` goes with source pixel `first + i`.
pub(super) struct Cover {
    pub(super) first: usize,
    pub(super) weights: Vec<f32>,
}

/// Scales `source` to `to`; both without empty sides.
pub(super) fn resize(source: &Raster, to: Size) -> Raster {
    if taps::scale(source.size.width, to.width) < 1.0 || taps::scale(source.size.height, to.height) < 1.0 {
        return taps::area_enlarging(source, to);
    }
    match (whole_ratio(source.size, to), source.channels) {
        (Some(ratio), _) => means_of_blocks(source, to, ratio),
        (None, 1) => means::<1>(source, to),
        (None, 3) => means::<3>(source, to),
        (None, _) => means::<4>(source, to),
    }
}

/// Both ratios of the sides if OpenCV takes them for whole numbers; some large whole ratios miss by a rounding.
pub(super) fn whole_ratio(from: Size, to: Size) -> Option<(usize, usize)> {
    let whole = |from, to| {
        let scale = taps::scale(from, to);
        let nearest = scale.round_ties_even();
        ((scale - nearest).abs() < f64::EPSILON && nearest >= 1.0).then_some(nearest as usize)
    };
    Some((whole(from.width, to.width)?, whole(from.height, to.height)?))
}

/// The source pixels under each of `to` pixels along a side of `from` pixels.
pub(super) fn covers(from: u32, to: u32) -> Vec<Cover> {
    let scale = taps::scale(from, to);
    let length = f64::from(from);
    let cover = |i: u32| {
        let start = f64::from(i) * scale;
        let end = start + scale;
        let width = scale.min(length - start);
        let last = end.floor().min(length - 1.0);
        let full = start.ceil().min(last);

        let mut weights = Vec::new();
        let mut first = full as usize;
        if full - start > SLIVER {
            first -= 1;
            weights.push(((full - start) / width) as f32);
        }
        weights.extend((full as usize..last as usize).map(|_| (1.0 / width) as f32));
        if end - last > SLIVER {
            weights.push(((end - last).min(1.0).min(width) / width) as f32);
        }
        Cover { first, weights }
    };
    (0..to).map(cover).collect()
}

fn means<const CHANNELS: usize>(source: &Raster, to: Size) -> Raster {
    let columns = covers(source.size.width, to.width);
    let rows = covers(source.size.height, to.height);
    let mut out = Raster::zeroed(to, CHANNELS);
    let stride = out.stride();
    out.data.par_chunks_mut(stride * BAND).zip(rows.par_chunks(BAND)).for_each(|(band, rows)| {
        let mut line = (usize::MAX, vec![0f32; stride]);
        let mut sums = vec![0f32; stride];
        for (target, cover) in band.chunks_exact_mut(stride).zip(rows) {
            sums.fill(0.0);
            for (y, &weight) in (cover.first..).zip(&cover.weights) {
                if line.0 != y {
                    sum_columns::<CHANNELS>(source.row(y), &columns, &mut line.1);
                    line.0 = y;
                }
                for (sum, value) in sums.iter_mut().zip(&line.1) {
                    *sum += weight * value;
                }
            }
            for (level, sum) in target.iter_mut().zip(&sums) {
                *level = sum.round_ties_even() as u8;
            }
        }
    });
    out
}

fn sum_columns<const CHANNELS: usize>(row: &[u8], columns: &[Cover], sums: &mut [f32]) {
    let (pixels, _) = row.as_chunks::<CHANNELS>();
    let (sums, _) = sums.as_chunks_mut::<CHANNELS>();
    for (sum, cover) in sums.iter_mut().zip(columns) {
        let mut total = [0f32; CHANNELS];
        for (pixel, &weight) in pixels[cover.first..].iter().zip(&cover.weights) {
            for (sum, &level) in total.iter_mut().zip(pixel) {
                *sum += f32::from(level) * weight;
            }
        }
        *sum = total;
    }
}

/// Means of blocks of whole pixels, `ratio` wide and high.
fn means_of_blocks(source: &Raster, to: Size, ratio: (usize, usize)) -> Raster {
    let (across, down) = ratio;
    let channels = source.channels;
    let mut out = Raster::zeroed(to, channels);
    let stride = out.stride();
    let share = 1.0 / (across * down) as f32;
    // 2 x 2 rounds halves up, in whole numbers; every other block in float32, halves to even.
    let to_level = |sum: u32| match ratio {
        (2, 2) => ((sum + 2) >> 2) as u8,
        _ => (sum as f32 * share).round_ties_even() as u8,
    };
    out.data.par_chunks_mut(stride).enumerate().with_min_len(8).for_each_init(
        || vec![0u32; source.stride()],
        |sums, (y, target)| {
            sums.fill(0);
            for row in y * down..(y + 1) * down {
                for (sum, &level) in sums.iter_mut().zip(source.row(row)) {
                    *sum += u32::from(level);
                }
            }
            for (pixel, block) in target.chunks_exact_mut(channels).zip(sums.chunks_exact(across * channels)) {
                for (c, level) in pixel.iter_mut().enumerate() {
                    *level = to_level(block[c..].iter().step_by(channels).sum());
                }
            }
        },
    );
    out
}
