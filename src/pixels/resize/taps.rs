//! OpenCV's fixed-point filters: `INTER_LINEAR`, what `INTER_AREA` becomes where a side grows, and `INTER_CUBIC`
//! without IPP. None is antialiased.
//!
//! Source: OpenCV 4.10 `modules/imgproc/src/resize.cpp`: `resize`, `HResizeLinear`, `HResizeCubic`, `VResizeLinear`
//! of bytes, `VResizeCubicVec_32s8u` as compiled for SSE2. Weights have 11 fractional bits; columns are summed in
//! whole numbers, and each filter brings rows together in its own way.

use super::area;
use crate::pixels::Raster;
use crate::units::Size;
use rayon::prelude::*;

/// One as a weight.
pub(super) const ONE: f32 = 2048.0;

/// Rows of the target that one thread makes in a row, so that neighbours share resampled source rows.
const BAND: usize = 32;

/// The `K` source pixels, held inside the picture, that make one target pixel.
#[derive(Clone, Copy)]
pub(super) struct Taps<const K: usize> {
    pub(super) positions: [usize; K],
    /// In units of 1 / [`ONE`].
    pub(super) weights: [i32; K],
}

/// Brings `K` column-resampled rows together into levels.
pub(super) type Blend<const K: usize> = fn(&[&[i32]; K], &[i32; K], &mut [u8]);

/// OpenCV `INTER_LINEAR`; a shrink to exactly half is what `INTER_AREA` gives.
pub(super) fn linear(source: &Raster, to: Size) -> Raster {
    if area::whole_ratio(source.size, to) == Some((2, 2)) {
        return area::resize(source, to);
    }
    let columns = linear_taps(source.size.width, to.width, true);
    let rows = linear_taps(source.size.height, to.height, false);
    resample(source, &columns, &rows, blend_linear)
}

/// OpenCV `INTER_AREA` where a side grows: two taps whose weights jump rather than slide.
pub(super) fn area_enlarging(source: &Raster, to: Size) -> Raster {
    let columns = area_taps(source.size.width, to.width, true);
    let rows = area_taps(source.size.height, to.height, false);
    resample(source, &columns, &rows, blend_linear)
}

/// OpenCV `INTER_CUBIC`, a = −0.75, in its own fixed point: see [`cubic`](super::cubic) for where it runs.
pub(super) fn cubic(source: &Raster, to: Size) -> Raster {
    let columns = cubic_taps(source.size.width, to.width);
    let rows = cubic_taps(source.size.height, to.height);
    resample(source, &columns, &rows, blend_cubic)
}

/// Taps of the triangle. With `snapped`, as for columns, a position past the outermost centres is one whole pixel;
/// rows keep two weights there for the same pixel, which rounds differently.
pub(super) fn linear_taps(from: u32, to: u32, snapped: bool) -> Vec<Taps<2>> {
    let scale = scale(from, to);
    let tap = |i: u32| {
        let (whole, part) = centre(i, scale);
        two_taps(whole, part, from, snapped)
    };
    (0..to).map(tap).collect()
}

pub(super) fn area_taps(from: u32, to: u32, snapped: bool) -> Vec<Taps<2>> {
    let scale = scale(from, to);
    let inverse = f64::from(to) / f64::from(from);
    let tap = |i: u32| {
        let whole = (f64::from(i) * scale).floor();
        let part = ((f64::from(i) + 1.0) - (whole + 1.0) * inverse) as f32;
        let part = if part <= 0.0 { 0.0 } else { part - part.floor() };
        two_taps(whole as i64, part, from, snapped)
    };
    (0..to).map(tap).collect()
}

pub(super) fn cubic_taps(from: u32, to: u32) -> Vec<Taps<4>> {
    let scale = scale(from, to);
    let tap = |i: u32| {
        let (whole, part) = centre(i, scale);
        let weights = cubic_weights(part).map(to_fixed);
        Taps { positions: [-1, 0, 1, 2].map(|offset| held(whole + offset, from)), weights }
    };
    (0..to).map(tap).collect()
}

/// Source pixels a target pixel, by way of the inverse as OpenCV computes it.
pub(super) fn scale(from: u32, to: u32) -> f64 {
    1.0 / (f64::from(to) / f64::from(from))
}

/// Where the centre of target pixel `i` falls: the source pixel on its left and the way past that one's centre.
fn centre(i: u32, scale: f64) -> (i64, f32) {
    let position = ((f64::from(i) + 0.5) * scale - 0.5) as f32;
    let whole = position.floor();
    (whole as i64, position - whole)
}

fn two_taps(whole: i64, part: f32, from: u32, snapped: bool) -> Taps<2> {
    let outside = whole < 0 || whole >= i64::from(from) - 1;
    let part = if snapped && outside { 0.0 } else { part };
    Taps { positions: [whole, whole + 1].map(|x| held(x, from)), weights: [1.0 - part, part].map(to_fixed) }
}

fn held(position: i64, from: u32) -> usize {
    position.clamp(0, i64::from(from) - 1) as usize
}

/// Cubic convolution at distances 1 + x, x, 1 − x; the last weight is what is missing to one.
fn cubic_weights(x: f32) -> [f32; 4] {
    const A: f32 = -0.75;
    let far = ((A * (x + 1.0) - 5.0 * A) * (x + 1.0) + 8.0 * A) * (x + 1.0) - 4.0 * A;
    let near = ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0;
    let back = 1.0 - x;
    let next = ((A + 2.0) * back - (A + 3.0)) * back * back + 1.0;
    [far, near, next, 1.0 - far - near - next]
}

fn to_fixed(weight: f32) -> i32 {
    (weight * ONE).round_ties_even() as i32
}

fn resample<const K: usize>(source: &Raster, columns: &[Taps<K>], rows: &[Taps<K>], blend: Blend<K>) -> Raster {
    match source.channels {
        1 => resample_channels::<K, 1>(source, columns, rows, blend),
        3 => resample_channels::<K, 3>(source, columns, rows, blend),
        _ => resample_channels::<K, 4>(source, columns, rows, blend),
    }
}

fn resample_channels<const K: usize, const CHANNELS: usize>(
    source: &Raster,
    columns: &[Taps<K>],
    rows: &[Taps<K>],
    blend: Blend<K>,
) -> Raster {
    let mut out = Raster::zeroed(Size::new(columns.len() as u32, rows.len() as u32), CHANNELS);
    let stride = out.stride();
    out.data.par_chunks_mut(stride * BAND).zip(rows.par_chunks(BAND)).for_each(|(band, rows)| {
        // Source row y lives in slot y % K; the rows of one tap are neighbours, so they never share a slot.
        let mut slots: [(Option<usize>, Vec<i32>); K] = std::array::from_fn(|_| (None, vec![0; stride]));
        for (target, taps) in band.chunks_exact_mut(stride).zip(rows) {
            for y in taps.positions {
                let (held, sums) = &mut slots[y % K];
                if *held != Some(y) {
                    sum_columns::<K, CHANNELS>(source.row(y), columns, sums);
                    *held = Some(y);
                }
            }
            let lines = taps.positions.map(|y| slots[y % K].1.as_slice());
            blend(&lines, &taps.weights, target);
        }
    });
    out
}

fn sum_columns<const K: usize, const CHANNELS: usize>(row: &[u8], columns: &[Taps<K>], sums: &mut [i32]) {
    let (pixels, _) = row.as_chunks::<CHANNELS>();
    let (sums, _) = sums.as_chunks_mut::<CHANNELS>();
    for (sum, taps) in sums.iter_mut().zip(columns) {
        let mut total = [0i32; CHANNELS];
        for (&x, &weight) in taps.positions.iter().zip(&taps.weights) {
            for (sum, &level) in total.iter_mut().zip(&pixels[x]) {
                *sum += i32::from(level) * weight;
            }
        }
        *sum = total;
    }
}

/// Drops 4 bits before and 16 after each product, then rounds the last 2: OpenCV's way to stay in 16-bit lanes.
pub(super) fn blend_linear(lines: &[&[i32]; 2], weights: &[i32; 2], target: &mut [u8]) {
    for ((level, &upper), &lower) in target.iter_mut().zip(lines[0]).zip(lines[1]) {
        let sum = ((weights[0] * (upper >> 4)) >> 16) + ((weights[1] * (lower >> 4)) >> 16);
        *level = ((sum + 2) >> 2).clamp(0, 255) as u8;
    }
}

/// Levels that OpenCV's vector loop makes at a time; what is left at the end of a row is rounded otherwise.
const CUBIC_LANES: usize = 8;

/// Sums rows in float32 from the last to the first and rounds halves to even; the end of a row in whole numbers.
pub(super) fn blend_cubic(lines: &[&[i32]; 4], weights: &[i32; 4], target: &mut [u8]) {
    let [a, b, c, d] = *lines;
    let [wa, wb, wc, wd] = weights.map(|weight| weight as f32 / (ONE * ONE));
    let vectors = target.len() / CUBIC_LANES * CUBIC_LANES;
    let (body, tail) = target.split_at_mut(vectors);
    let (upper, lower) = (a.iter().zip(b), c.iter().zip(d));
    for (level, ((&a, &b), (&c, &d))) in body.iter_mut().zip(upper.zip(lower)) {
        let sum = a as f32 * wa + (b as f32 * wb + (c as f32 * wc + d as f32 * wd));
        *level = sum.round_ties_even() as u8;
    }
    for (level, i) in tail.iter_mut().zip(vectors..) {
        let sum = a[i] * weights[0] + b[i] * weights[1] + c[i] * weights[2] + d[i] * weights[3];
        *level = ((sum + (1 << 21)) >> 22).clamp(0, 255) as u8;
    }
}
