//! Normalisation: of groups of channels by their moments, or of each pixel by itself.

use super::cpu::{load, store};
use super::moments::Moments;
use super::silu::silu;
use super::{Aligned, Cpu};
use pulp::{Simd, WithSimd};
use rayon::prelude::*;

/// Pixels that one task normalises.
const PIXELS_A_TASK: usize = 1024;

/// A norm that is ready to be applied to an activation.
pub(crate) enum Norm<'a> {
    /// A group norm whose statistics are known.
    Affine(Affine),
    /// Each pixel by its own root mean square.
    Rms(&'a Rms),
}

impl Norm<'_> {
    /// Maps whole `pixels` to `out`, SiLU applied, each pixel filled up with zeros to whole vectors.
    #[inline(always)]
    pub(super) fn activate<S: Simd>(&self, simd: S, pixels: &[f32], out: &mut [S::f32s]) {
        match self {
            Self::Affine(affine) => affine.activate(simd, pixels, out),
            Self::Rms(rms) => rms.activate(simd, pixels, out),
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
        let (mut scale, mut shift) = (Aligned::zeroed(padded(channels)), Aligned::zeroed(padded(channels)));
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

    #[inline(always)]
    fn activate<S: Simd>(&self, simd: S, pixels: &[f32], out: &mut [S::f32s]) {
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

/// x · gamma / the root of the mean of x² over a pixel's channels: PyTorch's `normalize` times √C, with its floor under
/// the root of the sum.
pub(crate) struct Rms {
    /// √C · gamma, filled up with zeros.
    scale: Aligned,
    channels: usize,
}

impl Rms {
    /// The least root of a sum of squares that is divided by (`torch.nn.functional.normalize`'s `eps`).
    const FLOOR: f32 = 1e-12;

    /// For `gamma.len()` channels.
    pub(crate) fn new(gamma: &[f32]) -> Self {
        let channels = gamma.len();
        let mut scale = Aligned::zeroed(padded(channels));
        let root = (channels as f64).sqrt();
        scale.iter_mut().zip(gamma).for_each(|(scale, gamma)| *scale = (root * f64::from(*gamma)) as f32);
        Self { scale, channels }
    }

    /// What the values of `pixel` are multiplied with before [`Rms::scale`].
    #[inline(always)]
    fn factor<S: Simd>(simd: S, pixel: &[f32]) -> S::f32s {
        let (whole, rest) = S::as_simd_f32s(pixel);
        let rest = if rest.is_empty() { simd.splat_f32s(0.0) } else { load(simd, rest) };
        let mut sum = simd.mul_f32s(rest, rest);
        for value in whole {
            sum = simd.mul_add_e_f32s(*value, *value, sum);
        }
        // Not `max`, which would take the floor for a NaN.
        let root = simd.reduce_sum_f32s(sum).sqrt();
        simd.splat_f32s(1.0 / if root < Self::FLOOR { Self::FLOOR } else { root })
    }

    #[inline(always)]
    fn activate<S: Simd>(&self, simd: S, pixels: &[f32], out: &mut [S::f32s]) {
        let vectors = self.channels.div_ceil(S::F32_LANES);
        let scale = S::as_simd_f32s(&self.scale).0;
        for (pixel, out) in pixels.chunks_exact(self.channels).zip(out.chunks_exact_mut(vectors)) {
            let factor = Self::factor(simd, pixel);
            let (whole, rest) = S::as_simd_f32s(pixel);
            for ((out, value), scale) in out.iter_mut().zip(whole).zip(scale) {
                *out = silu(simd, simd.mul_f32s(simd.mul_f32s(*value, factor), *scale));
            }
            if !rest.is_empty() {
                let value = simd.mul_f32s(load(simd, rest), factor);
                out[vectors - 1] = silu(simd, simd.mul_f32s(value, scale[vectors - 1]));
            }
        }
    }
}

/// Channels filled up to whole vectors, of which 16 values are the widest: kernels read no less.
fn padded(channels: usize) -> usize {
    channels.next_multiple_of(16)
}

/// Norms every pixel of `x`, (pixels, channels), to `out` of the same shape; no SiLU.
pub(crate) fn normalise(cpu: Cpu, x: &[f32], norm: &Norm, out: &mut [f32]) {
    struct Map<'a>(&'a [f32], &'a Norm<'a>, &'a mut [f32]);
    impl WithSimd for Map<'_> {
        type Output = ();
        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) {
            let Self(x, norm, out) = self;
            match norm {
                Norm::Affine(affine) => {
                    let (scale, shift) = (S::as_simd_f32s(&affine.scale).0, S::as_simd_f32s(&affine.shift).0);
                    let map = |_, c: usize, x| simd.mul_add_e_f32s(x, scale[c], shift[c]);
                    map_pixels(simd, x, affine.channels, out, |_| (), map);
                }
                Norm::Rms(rms) => {
                    let scale = S::as_simd_f32s(&rms.scale).0;
                    let map = |factor, c: usize, x| simd.mul_f32s(simd.mul_f32s(x, factor), scale[c]);
                    map_pixels(simd, x, rms.channels, out, |pixel| Rms::factor(simd, pixel), map);
                }
            }
        }
    }
    let channels = match norm {
        Norm::Affine(affine) => affine.channels,
        Norm::Rms(rms) => rms.channels,
    };
    let task = PIXELS_A_TASK * channels;
    x.par_chunks(task).zip(out.par_chunks_mut(task)).for_each(|(x, out)| cpu.run(Map(x, norm, out)));
}

/// Writes `map(of(pixel), index, vector)` of each vector of each pixel.
#[inline(always)]
fn map_pixels<S: Simd, T: Copy>(
    simd: S,
    x: &[f32],
    channels: usize,
    out: &mut [f32],
    of: impl Fn(&[f32]) -> T,
    map: impl Fn(T, usize, S::f32s) -> S::f32s,
) {
    for (x, out) in x.chunks_exact(channels).zip(out.chunks_exact_mut(channels)) {
        let of = of(x);
        for (c, (x, out)) in x.chunks(S::F32_LANES).zip(out.chunks_mut(S::F32_LANES)).enumerate() {
            store(simd, out, map(of, c, load(simd, x)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::moments::tests::measured;
    use crate::kernels::plain;
    use crate::kernels::samples::{far, values, widen};
    use proptest::prelude::*;

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
                normalise(cpu, &x, &Norm::Affine(affine), &mut out);
                prop_assert!(far(&out, &expected) < 2e-5, "{cpu:?}: {}", far(&out, &expected));
            }
        }

        #[test]
        fn an_rms_norm_equals_its_plain_twin(pixels in 1usize..300, channels in 1usize..70, seed: u64) {
            let (mut x, gamma) = (values(seed, pixels * channels), values(seed + 1, channels));
            x[..channels].fill(0.0);
            let expected = plain::rms_norm(&widen(&x), &gamma);
            for cpu in Cpu::all() {
                let rms = Rms::new(&gamma);
                let mut out = vec![f32::NAN; x.len()];
                normalise(cpu, &x, &Norm::Rms(&rms), &mut out);
                prop_assert!(far(&out, &expected) < 1e-6, "{cpu:?}: {}", far(&out, &expected));
            }
        }
    }

    #[test]
    fn a_pixel_that_is_not_finite_stays_so() {
        for cpu in Cpu::all() {
            let mut out = [0.0; 6];
            normalise(cpu, &[1.0, f32::NAN, 2.0, 1e30, 1.0, 1.0], &Norm::Rms(&Rms::new(&[1.0; 3])), &mut out);
            assert!(out[..3].iter().all(|value| value.is_nan()), "{cpu:?}: {out:?}");
        }
    }
}
