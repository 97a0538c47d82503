//! Group norm, SiLU and a 3 × 3 convolution in one go, through Winograd's minimal filtering.
//!
//! A task takes some rows of tiles. Block by block it normalises the pixels under them (so that no activation is ever
//! stored), transforms each tile's inputs, multiplies all tiles of the block with the weights at each point, and
//! transforms the products back.

mod block;
mod tile;
mod weights;

pub(crate) use weights::Winograd;

use super::norm::{Affine, Moments, merge_channels};
use super::scratch::with_scratch;
use super::{Cpu, Shape};
use block::{Block, Layout};
use pulp::{Simd, WithSimd};
use rayon::prelude::*;

/// A picture and the group norm to apply to it on the way.
#[derive(Clone, Copy)]
pub(crate) struct Normed<'a> {
    pub(crate) values: &'a [f32],
    pub(crate) shape: Shape,
    pub(crate) norm: &'a Affine,
}

impl Winograd {
    /// Convolves SiLU(norm(`x`)), zeros beyond its edges, to `out`, or adds to what `out` holds.
    ///
    /// `points` are this layer's weights as [`Winograd::transform`] makes them. Returns the moments of `out`'s channels.
    pub(crate) fn forward(&self, cpu: Cpu, x: Normed, points: &[f32], out: &mut [f32], add: bool) -> Vec<Moments> {
        let layout = Layout::new(cpu, x.shape, self.channels_out());
        let task = |(index, out): (usize, &mut [f32])| {
            with_scratch(layout.scratch(), |scratch| {
                let first_row = index * layout.task_rows();
                cpu.run(Task { weights: self, x, points, layout: &layout, first_row, out, add, scratch })
            })
        };
        let task_len = layout.task_rows() * x.shape.width * self.channels_out();
        let parts: Vec<_> = out.par_chunks_mut(task_len).enumerate().map(task).collect();
        parts.iter().fold(vec![Moments::default(); self.channels_out()], |all, part| merge_channels(all, part))
    }
}

/// Some rows of tiles over the whole width.
struct Task<'a> {
    weights: &'a Winograd,
    x: Normed<'a>,
    points: &'a [f32],
    layout: &'a Layout,
    /// Output row that `out` begins with.
    first_row: usize,
    out: &'a mut [f32],
    add: bool,
    scratch: &'a mut [f32],
}

impl WithSimd for Task<'_> {
    type Output = Vec<Moments>;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Vec<Moments> {
        let Self { weights, x, points, layout, first_row, out, add, scratch, .. } = self;
        let mut moments = vec![Moments::default(); weights.channels_out()];
        for first_column in layout.blocks() {
            let mut block = Block::<S>::new(simd, layout, first_row, first_column, out.len(), scratch);
            block.transform_inputs(x);
            block.multiply(points);
            block.transform_outputs(weights.bias(), out, add);
            block.measure(out, &mut moments);
        }
        moments
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::plain;
    use crate::kernels::samples::{far, same_moments, values, widen};
    use proptest::prelude::*;

    /// The layer and its twin on one random picture.
    fn check(shape: Shape, out: usize, add: bool, seed: u64) -> Result<(), TestCaseError> {
        let into = shape.channels;
        let (x, weight, bias) = (values(seed, shape.len()), values(seed + 1, out * into * 9), values(seed + 2, out));
        let (slope, shift) = (values(seed + 3, into), values(seed + 4, into));
        let normed = plain::group_norm(&widen(&x), 1, &slope, &shift, 1e-3);
        let activated: Vec<f64> = normed.iter().map(|value| plain::silu(*value)).collect();
        let mut expected = plain::convolve(&activated, shape, &weight, &bias, (3, 1, 1));
        if add {
            expected.iter_mut().for_each(|value| *value += 1.0);
        }
        let channels: Vec<Moments> = plain::moments(&widen(&x), into)
            .iter()
            .map(|&(mean, variance)| {
                let count = (shape.height * shape.width) as f64;
                Moments { count, mean, deviations: variance * count }
            })
            .collect();
        let norm = Affine::group_norm(&channels, 1, &slope, &shift, 1e-3);
        for cpu in Cpu::all() {
            let layer = Winograd::new(cpu, &weight, &bias);
            let mut points = vec![f32::NAN; layer.points()];
            layer.transform(cpu, &mut points);
            let mut got = vec![1.0; shape.height * shape.width * out];
            let moments = layer.forward(cpu, Normed { values: &x, shape, norm: &norm }, &points, &mut got, add);
            prop_assert!(far(&got, &expected) < 5e-5, "{cpu:?}: {}", far(&got, &expected));
            prop_assert!(same_moments(&moments, &got));
        }
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn a_layer_equals_its_plain_twin(
            height in 1usize..40,
            width in 1usize..40,
            channels in 1usize..40,
            out in 1usize..70,
            add: bool,
            seed: u64,
        ) {
            check(Shape { height, width, channels }, out, add, seed)?;
        }
    }

    #[test]
    fn pictures_wider_than_a_block_and_one_pixel_thin_are_right() {
        for (height, width) in [(1, 200), (200, 1), (1, 1), (17, 131)] {
            check(Shape { height, width, channels: 5 }, 33, true, 7).unwrap();
        }
    }
}
