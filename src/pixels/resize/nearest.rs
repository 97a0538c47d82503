//! OpenCV `INTER_NEAREST_EXACT`: the source pixel under the centre of each target pixel, in 16.16 fixed point.
//!
//! Source: OpenCV 4.10 `modules/imgproc/src/resize.cpp`, `resizeNN_bitexact`. There the positions are 32-bit and
//! overflow for sides over 32,767 pixels; here they do not.

use crate::pixels::Raster;
use crate::units::Size;
use rayon::prelude::*;

/// Scales `source` to `to`; both without empty sides.
pub(super) fn resize(source: &Raster, to: Size) -> Raster {
    let columns = positions(source.size.width, to.width);
    let rows = positions(source.size.height, to.height);
    let channels = source.channels;
    let mut out = Raster::zeroed(to, channels);
    let stride = out.stride();
    out.data.par_chunks_mut(stride).zip(&rows).with_min_len(16).for_each(|(target, &y)| {
        let row = source.row(y);
        for (pixel, &x) in target.chunks_exact_mut(channels).zip(&columns) {
            pixel.copy_from_slice(&row[x * channels..(x + 1) * channels]);
        }
    });
    out
}

/// For each of `to` pixels the one of `from` that it shows.
pub(super) fn positions(from: u32, to: u32) -> Vec<usize> {
    let (from, to) = (i64::from(from), i64::from(to));
    let step = ((from << 16) + to / 2) / to;
    // An odd side has a middle pixel, which has to land in the middle.
    let first = step / 2 - from % 2;
    (0..to).map(|i| ((step * i + first) >> 16).clamp(0, from - 1) as usize).collect()
}
