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
