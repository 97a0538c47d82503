//! Halving a picture without losing a value: its pixels become channels. And shortcuts over means of channels.

use super::moments::{Moments, measure, merge_parts};
use super::{Cpu, Shape};
use pulp::{Simd, WithSimd};
use rayon::prelude::*;

/// Pixels that one task adds to.
const PIXELS_A_TASK: usize = 1024;

/// The four pixels of each 2 × 2 block of `h`, (H, W, C'), one behind the other, as (H/2, W/2, 4·C'), plus the means of
/// `x`, (H, W, C), in C' groups of neighbouring channels, laid out alike. C' divides C; sides are even.
///
/// Returns the moments of `out`'s channels.
pub(crate) fn unshuffle(cpu: Cpu, h: &[f32], x: &[f32], shape: Shape, out: &mut [f32]) -> Vec<Moments> {
    let channels = 4 * (h.len() / (shape.height * shape.width));
    let task = |(row, out): (usize, &mut [f32])| cpu.run(Row { h, x, shape, row, out, channels });
    let parts: Vec<_> = out.par_chunks_mut(shape.width / 2 * channels).enumerate().map(task).collect();
    merge_parts(&parts, channels)
}

/// One row of what comes out.
struct Row<'a> {
    h: &'a [f32],
    x: &'a [f32],
    shape: Shape,
    row: usize,
    out: &'a mut [f32],
    /// Of what comes out.
    channels: usize,
}

impl WithSimd for Row<'_> {
    type Output = Vec<Moments>;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Vec<Moments> {
        let Self { h, x, shape, row, out, channels } = self;
        for (column, out) in out.chunks_exact_mut(channels).enumerate() {
            for (part, out) in out.chunks_exact_mut(channels / 4).enumerate() {
                let pixel = (2 * row + part / 2) * shape.width + 2 * column + part % 2;
                out.copy_from_slice(&h[pixel * channels / 4..][..channels / 4]);
                add_pixel(&x[pixel * shape.channels..][..shape.channels], out);
            }
        }
        let mut moments = vec![Moments::default(); channels];
        measure(simd, out.chunks(64 * channels), &mut moments);
        moments
    }
}

/// Adds to each pixel of `out` the means of the same pixel of `x`, (pixels, `channels`), in as many groups of
/// neighbouring channels as `out` has channels, `groups`; that divides `channels`.
pub(crate) fn add_means(x: &[f32], channels: usize, out: &mut [f32], groups: usize) {
    let tasks = x.par_chunks(PIXELS_A_TASK * channels).zip(out.par_chunks_mut(PIXELS_A_TASK * groups));
    tasks.for_each(|(x, out)| {
        x.chunks_exact(channels).zip(out.chunks_exact_mut(groups)).for_each(|(x, out)| add_pixel(x, out));
    });
}

#[inline(always)]
fn add_pixel(x: &[f32], out: &mut [f32]) {
    let each = x.len() / out.len();
    let share = 1.0 / each as f32;
    for (group, out) in x.chunks_exact(each).zip(out) {
        *out += share * group.iter().sum::<f32>();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::samples::{same_moments, values};

    /// Index by index, as einops writes it: `b c (h r) (w s) -> b (r s c) h w`.
    #[test]
    fn pixels_become_channels_with_the_means_of_the_shortcut_added() {
        for (height, width, channels, each) in [(2, 2, 4, 1), (6, 10, 12, 2), (4, 2, 40, 4)] {
            let (shape, narrow) = (Shape { height, width, channels }, channels / each);
            let (h, x) = (values(1, height * width * narrow), values(2, shape.len()));
            for cpu in Cpu::all() {
                let mut out = vec![f32::NAN; height * width * narrow];
                let moments = unshuffle(cpu, &h, &x, shape, &mut out);
                for (i, got) in out.iter().enumerate() {
                    let (pixel, k) = (i / (4 * narrow), i % (4 * narrow));
                    let (row, column, r, s) =
                        (pixel / (width / 2), pixel % (width / 2), k / (2 * narrow), k / narrow % 2);
                    let from = (2 * row + r) * width + 2 * column + s;
                    let mean = (0..each).map(|g| x[from * channels + k % narrow * each + g]).sum::<f32>() / each as f32;
                    assert!((got - h[from * narrow + k % narrow] - mean).abs() < 1e-6, "{cpu:?} {shape:?} at {i}");
                }
                assert!(same_moments(&moments, &out), "{cpu:?} {shape:?}");
            }
        }
    }

    #[test]
    fn means_are_added_pixel_by_pixel() {
        let mut out = [1.0, 2.0, 3.0, 4.0];
        add_means(&[1.0, 3.0, 5.0, 7.0, -1.0, -3.0, 0.0, 4.0], 4, &mut out, 2);
        assert_eq!(out, [3.0, 8.0, 1.0, 6.0]);
    }
}
