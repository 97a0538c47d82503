//! Group normalisation: moments of channels as they are written, and the affine map that they amount to.

use super::cpu::{load, store};
use super::silu::silu;
use super::{Aligned, Cpu};
use pulp::bytemuck::cast_slice;
use pulp::{Simd, WithSimd};
use rayon::prelude::*;

/// Pixels that one task normalises.
const PIXELS_A_TASK: usize = 1024;

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

/// x · scale + shift, channel by channel: what a group norm amounts to once its statistics are known.
pub(crate) struct Affine {
    scale: Aligned,
    shift: Aligned,
    channels: usize,
}

impl Affine {
    /// The group norm of `weight.len()` channels in `groups` equal groups; `moments` are those of each channel.
    pub(crate) fn group_norm(moments: &[Moments], groups: usize, weight: &[f32], bias: &[f32], epsilon: f64) -> Self {
        let channels = weight.len();
        // Kernels read whole vectors; 16 values are the widest.
        let padded = channels.next_multiple_of(16);
        let (mut scale, mut shift) = (Aligned::zeroed(padded), Aligned::zeroed(padded));
        let each = channels / groups;
        for (group, moments) in moments.chunks_exact(each).enumerate() {
            let all = moments.iter().fold(Moments::default(), |all, one| all.merge(*one));
            let factor = 1.0 / (all.deviations / all.count + epsilon).sqrt();
            for channel in group * each..(group + 1) * each {
                let slope = factor * f64::from(weight[channel]);
                scale[channel] = slope as f32;
                shift[channel] = (f64::from(bias[channel]) - all.mean * slope) as f32;
            }
        }
        Self { scale, shift, channels }
    }

    /// Maps whole `pixels` to `out`, SiLU applied, each pixel filled up with zeros to whole vectors.
    #[inline(always)]
    pub(super) fn activate<S: Simd>(&self, simd: S, pixels: &[f32], out: &mut [S::f32s]) {
        let vectors = self.channels.div_ceil(S::F32_LANES);
        let (scale, shift) = (S::as_simd_f32s(&self.scale).0, S::as_simd_f32s(&self.shift).0);
        for (pixel, out) in pixels.chunks_exact(self.channels).zip(out.chunks_exact_mut(vectors)) {
            let (whole, rest) = S::as_simd_f32s(pixel);
            for (((out, value), scale), shift) in out.iter_mut().zip(whole).zip(scale).zip(shift) {
                *out = silu(simd, simd.mul_add_e_f32s(*value, *scale, *shift));
            }
            if !rest.is_empty() {
                let (scale, shift) = (scale[vectors - 1], shift[vectors - 1]);
                out[vectors - 1] = silu(simd, simd.mul_add_e_f32s(load(simd, rest), scale, shift));
            }
        }
    }
}

/// Maps every pixel of `x`, (pixels, channels), to `out` of the same shape.
pub(crate) fn normalise(cpu: Cpu, x: &[f32], affine: &Affine, out: &mut [f32]) {
    struct Map<'a>(&'a [f32], &'a Affine, &'a mut [f32]);
    impl WithSimd for Map<'_> {
        type Output = ();
        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) {
            let Self(x, affine, out) = self;
            let (scale, shift) = (S::as_simd_f32s(&affine.scale).0, S::as_simd_f32s(&affine.shift).0);
            for (x, out) in x.chunks_exact(affine.channels).zip(out.chunks_exact_mut(affine.channels)) {
                for (c, (x, out)) in x.chunks(S::F32_LANES).zip(out.chunks_mut(S::F32_LANES)).enumerate() {
                    store(simd, out, simd.mul_add_e_f32s(load(simd, x), scale[c], shift[c]));
                }
            }
        }
    }
    let task = PIXELS_A_TASK * affine.channels;
    x.par_chunks(task).zip(out.par_chunks_mut(task)).for_each(|(x, out)| cpu.run(Map(x, affine, out)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::plain;
    use crate::kernels::samples::{far, values, widen};
    use proptest::prelude::*;

    fn measured(cpu: Cpu, x: &[f32], channels: usize) -> Vec<Moments> {
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

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn a_group_norm_equals_its_plain_twin(
            pixels in 1usize..700,
            groups in prop::sample::select(vec![1, 3, 32]),
            each in 1usize..4,
            seed: u64,
        ) {
            let channels = groups * each;
            let (x, weight, bias) = (values(seed, pixels * channels), values(seed + 1, channels), values(seed + 2, channels));
            let expected = plain::group_norm(&widen(&x), groups, &weight, &bias, 1e-3);
            for cpu in Cpu::all() {
                let affine = Affine::group_norm(&measured(cpu, &x, channels), groups, &weight, &bias, 1e-3);
                let mut out = vec![0.0; x.len()];
                normalise(cpu, &x, &affine, &mut out);
                prop_assert!(far(&out, &expected) < 2e-5, "{cpu:?}: {}", far(&out, &expected));
            }
        }
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
