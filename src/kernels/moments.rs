//! Moments of channels, taken as an activation is written.

use super::cpu::load;
use pulp::Simd;
use pulp::bytemuck::cast_slice;

/// Count, mean and sum of squared deviations from it.
///
/// Mergeable in f64 (Chan, Golub and LeVeque 1979). Sums of squares would lose the variance of a plain sky, whose
/// mean is a thousand times its deviation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Moments {
    pub(crate) count: f64,
    pub(crate) mean: f64,
    pub(crate) deviations: f64,
}

impl Moments {
    /// The moments of both sets of values together.
    pub(crate) fn merge(self, other: Self) -> Self {
        let count = self.count + other.count;
        if count == 0.0 {
            return self;
        }
        let apart = other.mean - self.mean;
        Self {
            count,
            mean: self.mean + apart * other.count / count,
            deviations: self.deviations + other.deviations + apart * apart * self.count * other.count / count,
        }
    }
}

/// The moments of `channels` channels of a picture out of those of its parts, merged in order.
pub(super) fn merge_parts(parts: &[Vec<Moments>], channels: usize) -> Vec<Moments> {
    let mut all = vec![Moments::default(); channels];
    for part in parts {
        all.iter_mut().zip(part).for_each(|(all, part)| *all = all.merge(*part));
    }
    all
}

/// Merges into `moments` those of each channel over `segments`, runs of whole pixels of `channels` values.
///
/// Differences from the first pixel are summed in f32, a few hundred at most, which loses nothing that f32 activations
/// have; a segment should have at most 64 pixels or so.
#[inline(always)]
pub(super) fn measure<'a, S: Simd>(
    simd: S,
    segments: impl Iterator<Item = &'a [f32]> + Clone,
    moments: &mut [Moments],
) {
    let channels = moments.len();
    for (index, moments) in moments.chunks_mut(S::F32_LANES).enumerate() {
        let here = index * S::F32_LANES..index * S::F32_LANES + moments.len();
        let Some(pivot) = segments.clone().find(|segment| !segment.is_empty()) else { return };
        let pivot = load(simd, &pivot[here.clone()]);
        let zero = simd.splat_f32s(0.0);
        let (mut count, mut sum, mut squares) = (0, zero, zero);
        for segment in segments.clone() {
            let (mut part, mut part_squares) = (zero, zero);
            for pixel in segment.chunks_exact(channels) {
                let difference = simd.sub_f32s(load(simd, &pixel[here.clone()]), pivot);
                part = simd.add_f32s(part, difference);
                part_squares = simd.mul_add_e_f32s(difference, difference, part_squares);
            }
            count += segment.len() / channels;
            (sum, squares) = (simd.add_f32s(sum, part), simd.add_f32s(squares, part_squares));
        }
        let vectors = [pivot, sum, squares];
        let lanes = cast_slice::<S::f32s, f32>(&vectors);
        let of = |vector: usize, lane: usize| f64::from(lanes[vector * S::F32_LANES + lane]);
        for (lane, moments) in moments.iter_mut().enumerate() {
            let (count, mean) = (f64::from(count as u32), of(1, lane) / f64::from(count as u32));
            let deviations = (of(2, lane) - count * mean * mean).max(0.0);
            *moments = moments.merge(Moments { count, mean: of(0, lane) + mean, deviations });
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::kernels::samples::widen;
    use crate::kernels::{Cpu, plain};
    use pulp::WithSimd;

    pub(in crate::kernels) fn measured(cpu: Cpu, x: &[f32], channels: usize) -> Vec<Moments> {
        struct Measure<'a>(&'a [f32], usize);
        impl WithSimd for Measure<'_> {
            type Output = Vec<Moments>;
            #[inline(always)]
            fn with_simd<S: Simd>(self, simd: S) -> Vec<Moments> {
                let mut moments = vec![Moments::default(); self.1];
                measure(simd, self.0.chunks(64 * self.1), &mut moments);
                moments
            }
        }
        let parts: Vec<_> = x.chunks(256 * channels).map(|part| cpu.run(Measure(part, channels))).collect();
        merge_parts(&parts, channels)
    }

    /// A plain sky with a faint gradient: one f32 sum over it, or a difference of two sums, goes wrong in four digits.
    #[test]
    fn the_moments_of_a_large_plain_surface_keep_their_digits() {
        let channels = 3;
        let x: Vec<f32> = (0..512 * 512 * channels).map(|i| 0.9 + 1e-3 * ((i / channels % 97) as f32 / 97.0)).collect();
        let expected = plain::moments(&widen(&x), channels);
        for cpu in Cpu::all() {
            for (moments, (mean, variance)) in measured(cpu, &x, channels).iter().zip(&expected) {
                assert!((moments.mean - mean).abs() < 1e-9, "{cpu:?}: {} for {mean}", moments.mean);
                let ratio = moments.deviations / moments.count / variance;
                assert!((ratio - 1.0).abs() < 1e-5, "{cpu:?}: {ratio}");
            }
        }
    }
}
