//! 3 × 3 convolutions through Winograd's minimal filtering; of stride 1 with the norm and SiLU before them in one go.
//!
//! A task takes a block of tiles. It normalises the pixels under them (so that no activation is ever stored), transforms
//! each tile's inputs, multiplies all tiles with the weights at each point, and transforms the products back.

mod block;
mod layout;
mod tile;
mod weights;

pub(crate) use weights::Winograd;

use super::moments::{Moments, measure, merge_parts};
use super::norm::Norm;
use super::scratch::{rounded, with_scratch};
use super::{Cpu, Shape};
use block::Block;
use layout::{Area, Layout};
use pulp::{Simd, WithSimd};
use rayon::prelude::*;
use std::marker::PhantomData;
use tile::{Halving, Same, Tile};

/// A picture, and the norm that is applied to it on the way, with SiLU.
#[derive(Clone, Copy)]
pub(crate) struct Normed<'a> {
    pub(crate) values: &'a [f32],
    pub(crate) shape: Shape,
    pub(crate) norm: Option<&'a Norm<'a>>,
}

/// Pixels from one output's place to the next one's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stride {
    /// Taps lie around each pixel.
    One,
    /// Taps lie right and down from every other pixel, so that an even side halves exactly.
    Two,
}

impl Stride {
    /// A side of the output for one of the input.
    fn divide(self, side: usize) -> usize {
        match self {
            Self::One => side,
            Self::Two => side / 2,
        }
    }
}

/// Bytes that a thread keeps for layers of at most `channels` in and out, whatever the picture.
pub(crate) fn working_bytes(cpu: Cpu, channels: usize) -> usize {
    // A flat picture's blocks are wider.
    let shapes = [1, 1 << 20].map(|height| Shape { height, width: 1 << 20, channels });
    let scratch = |shape| {
        Layout::new::<Same, 6>(cpu, shape, shape).scratch().max(Layout::new::<Halving, 9>(cpu, shape, shape).scratch())
    };
    rounded(shapes.map(scratch).into_iter().max().unwrap_or(0)) * size_of::<f32>()
}

impl Winograd {
    /// Shape of what comes out for a picture of `shape`.
    pub(crate) fn shape(&self, shape: Shape) -> Shape {
        let divide = |side| self.stride().divide(side);
        Shape { height: divide(shape.height), width: divide(shape.width), channels: self.channels_out() }
    }

    /// Convolves SiLU(norm(`x`)), zeros beyond its edges, to `out`, or adds to what `out` holds.
    ///
    /// `points` are this layer's weights as [`Winograd::transform`] makes them. Returns the moments of `out`'s channels.
    pub(crate) fn forward(&self, cpu: Cpu, x: Normed, points: &[f32], out: &mut [f32], add: bool) -> Vec<Moments> {
        match self.stride() {
            Stride::One => self.forward_with::<Same, 6>(cpu, x, points, out, add),
            Stride::Two => self.forward_with::<Halving, 9>(cpu, x, points, out, add),
        }
    }

    fn forward_with<T: Tile<SIDE>, const SIDE: usize>(
        &self,
        cpu: Cpu,
        x: Normed,
        points: &[f32],
        out: &mut [f32],
        add: bool,
    ) -> Vec<Moments> {
        let layout = Layout::new::<T, SIDE>(cpu, x.shape, self.shape(x.shape));
        let task = |area: Area| {
            with_scratch(layout.scratch(), |scratch| {
                let (layout, tile) = (&layout, PhantomData);
                cpu.run(Task::<T, SIDE> { weights: self, x, points, layout, area, add, scratch, tile })
            })
        };
        let parts: Vec<_> = layout.areas(out).into_par_iter().map(task).collect();
        merge_parts(&parts, self.channels_out())
    }
}

/// One block of tiles.
struct Task<'a, T, const SIDE: usize> {
    weights: &'a Winograd,
    x: Normed<'a>,
    points: &'a [f32],
    layout: &'a Layout,
    area: Area<'a>,
    add: bool,
    scratch: &'a mut [f32],
    tile: PhantomData<T>,
}

impl<T: Tile<SIDE>, const SIDE: usize> WithSimd for Task<'_, T, SIDE> {
    type Output = Vec<Moments>;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Vec<Moments> {
        let Self { weights, x, points, layout, mut area, add, scratch, .. } = self;
        let mut block = Block::<T, S, SIDE>::new(simd, layout, &area, scratch);
        block.transform_inputs(x);
        block.multiply(points);
        block.transform_outputs(weights.bias(), &mut area.rows, add);
        let mut moments = vec![Moments::default(); weights.channels_out()];
        measure(simd, area.rows.iter().map(|row| &**row), &mut moments);
        moments
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::norm::{Affine, Rms};
    use crate::kernels::plain;
    use crate::kernels::samples::{far, same_moments, values, widen};
    use proptest::prelude::*;

    /// The layer and its twin on one random picture, after a group norm or an RMS norm.
    fn check(shape: Shape, out: usize, stride: Stride, add: bool, seed: u64) -> Result<(), TestCaseError> {
        check_norm(shape, out, stride, add, false, seed)?;
        check_norm(shape, out, stride, add, true, seed)
    }

    fn check_norm(
        shape: Shape,
        out: usize,
        stride: Stride,
        add: bool,
        by_pixel: bool,
        seed: u64,
    ) -> Result<(), TestCaseError> {
        let into = shape.channels;
        let (x, weight, bias) = (values(seed, shape.len()), values(seed + 1, out * into * 9), values(seed + 2, out));
        let (slope, shift) = (values(seed + 3, into), values(seed + 4, into));
        let normed = if by_pixel {
            plain::rms_norm(&widen(&x), &slope)
        } else {
            plain::group_norm(&widen(&x), 1, &slope, &shift, 1e-3)
        };
        let activated: Vec<f64> = normed.iter().map(|value| plain::silu(*value)).collect();
        // As in the encoder: what halves is not normed.
        let mut expected = match stride {
            Stride::One => plain::convolve(&activated, shape, &weight, &bias, (3, 1, 1)),
            Stride::Two => plain::convolve(&widen(&x), shape, &weight, &bias, (3, 2, 0)),
        };
        if add {
            expected.iter_mut().for_each(|value| *value += 1.0);
        }
        let channels = plain::moments(&widen(&x), into).into_iter().map(|(mean, variance)| {
            let count = (shape.height * shape.width) as f64;
            Moments { count, mean, deviations: variance * count }
        });
        let rms = Rms::new(&slope);
        let affine = Affine::group_norm(&channels.collect::<Vec<_>>(), 1, &slope, &shift, 1e-3);
        let norm = if by_pixel { Norm::Rms(&rms) } else { Norm::Affine(affine) };
        let norm = (stride == Stride::One).then_some(&norm);
        for cpu in Cpu::all() {
            let layer = Winograd::new(cpu, &weight, &bias, stride);
            let mut points = vec![f32::NAN; layer.points()];
            layer.transform(cpu, &mut points);
            let mut got = vec![1.0; layer.shape(shape).len()];
            let moments = layer.forward(cpu, Normed { values: &x, shape, norm }, &points, &mut got, add);
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
            stride in prop::sample::select(vec![Stride::One, Stride::Two]),
            add: bool,
            seed: u64,
        ) {
            let even = |side: usize| if stride == Stride::Two { 2 * side } else { side };
            check(Shape { height: even(height), width: even(width), channels }, out, stride, add, seed)?;
        }
    }

    #[test]
    fn pictures_wider_than_a_block_and_one_pixel_thin_are_right() {
        for (height, width) in [(1, 200), (200, 1), (1, 1), (17, 131)] {
            check(Shape { height, width, channels: 5 }, 33, Stride::One, true, 7).unwrap();
            check(Shape { height: 2 * height, width: 2 * width, channels: 5 }, 33, Stride::Two, false, 7).unwrap();
        }
    }
}
