//! OpenCV `INTER_CUBIC`, a = −0.75, as its wheels for x86-64 run it; not antialiased.
//!
//! There Intel's IPP does the work where both sides have the four pixels that a tap needs: plain cubic convolution
//! in float32 without fixed point. Its code is not public, and sums that fall within a rounding of a half go one way or
//! the other with the vector width of the processor. The order of sums here is the portable one that gives the golden
//! pictures. Measured against cv2 4.10 on an AVX-512 machine: see `tests/data/resize/README.md`.
//!
//! Smaller pictures take OpenCV's own code: [`taps::cubic`].

use super::taps;
use crate::pixels::Raster;
use crate::units::Size;
use rayon::prelude::*;

/// Pixels a tap reaches over; IPP takes no smaller pictures.
const REACH: u32 = 4;

/// The four neighbours, held inside the picture, that make one target pixel.
pub(super) struct Neighbours {
    pub(super) positions: [usize; 4],
    pub(super) weights: [f32; 4],
}

/// Scales `source` to `to`; both without empty sides.
pub(super) fn resize(source: &Raster, to: Size) -> Raster {
    if source.size.width < REACH || source.size.height < REACH {
        return taps::cubic(source, to);
    }
    match source.channels {
        1 => convolve::<1>(source, to),
        3 => convolve::<3>(source, to),
        _ => convolve::<4>(source, to),
    }
}

/// The neighbours of each of `to` pixels along a side of `from` pixels; weights are rounded once, to float32.
pub(super) fn neighbours(from: u32, to: u32) -> Vec<Neighbours> {
    let scale = f64::from(from) / f64::from(to);
    let neighbours = |i: u32| {
        let position = (f64::from(i) + 0.5) * scale - 0.5;
        let whole = position.floor();
        let weights = weights(position - whole).map(|weight| weight as f32);
        let held = |offset: i64| (whole as i64 + offset).clamp(0, i64::from(from) - 1) as usize;
        Neighbours { positions: [-1, 0, 1, 2].map(held), weights }
    };
    (0..to).map(neighbours).collect()
}

/// Cubic convolution at distances 1 + x, x, 1 − x; the last weight is what is missing to one.
fn weights(x: f64) -> [f64; 4] {
    const A: f64 = -0.75;
    let far = ((A * (x + 1.0) - 5.0 * A) * (x + 1.0) + 8.0 * A) * (x + 1.0) - 4.0 * A;
    let near = ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0;
    let back = 1.0 - x;
    let next = ((A + 2.0) * back - (A + 3.0)) * back * back + 1.0;
    [far, near, next, 1.0 - far - near - next]
}

/// Rows are brought together first, since that sums neighbours in memory.
fn convolve<const CHANNELS: usize>(source: &Raster, to: Size) -> Raster {
    let columns = neighbours(source.size.width, to.width);
    let rows = neighbours(source.size.height, to.height);
    let mut out = Raster::zeroed(to, CHANNELS);
    let stride = out.stride();
    out.data.par_chunks_mut(stride).zip(&rows).with_min_len(8).for_each_init(
        || vec![0f32; source.stride()],
        |line, (target, row)| {
            blend_rows(row.positions.map(|y| source.row(y)), row.weights, line);
            sum_columns::<CHANNELS>(line, &columns, target);
        },
    );
    out
}

fn blend_rows(rows: [&[u8]; 4], weights: [f32; 4], line: &mut [f32]) {
    let [a, b, c, d] = rows;
    let [wa, wb, wc, wd] = weights;
    let (upper, lower) = (a.iter().zip(b), c.iter().zip(d));
    for (sum, ((&a, &b), (&c, &d))) in line.iter_mut().zip(upper.zip(lower)) {
        *sum = f32::from(a) * wa + f32::from(b) * wb + f32::from(c) * wc + f32::from(d) * wd;
    }
}

fn sum_columns<const CHANNELS: usize>(line: &[f32], columns: &[Neighbours], target: &mut [u8]) {
    let (pixels, _) = line.as_chunks::<CHANNELS>();
    let (target, _) = target.as_chunks_mut::<CHANNELS>();
    for (level, column) in target.iter_mut().zip(columns) {
        let [a, b, c, d] = column.positions.map(|x| pixels[x]);
        let [wa, wb, wc, wd] = column.weights;
        let sum = |i: usize| a[i] * wa + b[i] * wb + c[i] * wc + d[i] * wd;
        *level = std::array::from_fn(|i| sum(i).round_ties_even() as u8);
    }
}
