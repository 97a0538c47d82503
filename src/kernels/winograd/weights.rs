//! The weights of a 3 × 3 convolution, packed once and transformed for a layer's turn.

use super::Stride;
use super::tile::{Halving, Same, Tile, WEIGHTS};
use crate::kernels::gemm::PANEL;
use crate::kernels::{Aligned, Cpu};
use pulp::{Simd, WithSimd};
use rayon::prelude::*;
use std::marker::PhantomData;

/// Taps of the convolution.
const TAPS: usize = 9;

/// Different weights of a tile's products.
pub(super) const POINTS: usize = WEIGHTS * WEIGHTS;

/// A 3 × 3 convolution.
///
/// The transformed weights are 4 times as large as these, so they are made when the
/// layer's turn comes.
pub(crate) struct Winograd {
    /// (panels, channels in, taps, panel's width)
    taps: Aligned,
    bias: Vec<f32>,
    into: usize,
    width: usize,
    stride: Stride,
}

impl Winograd {
    /// Packs `weight`, (out, in, 3, 3) row-major as checkpoints have it.
    pub(crate) fn new(cpu: Cpu, weight: &[f32], bias: &[f32], stride: Stride) -> Self {
        let (width, into, out) = (cpu.panel_width(), weight.len() / (TAPS * bias.len()), bias.len());
        let mut taps = Aligned::zeroed(out.div_ceil(width) * into * TAPS * width);
        taps.par_chunks_exact_mut(into * TAPS * width).enumerate().for_each(|(panel, taps)| {
            for (row, values) in taps.chunks_exact_mut(width).enumerate() {
                let columns = panel * width..out.min((panel + 1) * width);
                values.iter_mut().zip(columns).for_each(|(value, n)| *value = weight[n * into * TAPS + row]);
            }
        });
        Self { taps, bias: bias.to_vec(), into, width, stride }
    }

    pub(super) fn stride(&self) -> Stride {
        self.stride
    }

    pub(super) fn bias(&self) -> &[f32] {
        &self.bias
    }

    pub(crate) fn channels_out(&self) -> usize {
        self.bias.len()
    }

    /// Values of the transformed weights.
    pub(crate) fn points(&self) -> usize {
        self.taps.len() / TAPS * POINTS
    }

    /// The same for a layer of `into` and `out` channels.
    pub(crate) fn points_of(cpu: Cpu, into: usize, out: usize) -> usize {
        POINTS * into * out.next_multiple_of(cpu.panel_width())
    }

    /// Transforms the weights to (panels, points, channels in, panel's width).
    pub(crate) fn transform(&self, cpu: Cpu, points: &mut [f32]) {
        match self.stride {
            Stride::One => self.transform_with::<Same, 6>(cpu, points),
            Stride::Two => self.transform_with::<Halving, 9>(cpu, points),
        }
    }

    fn transform_with<T: Tile<SIDE>, const SIDE: usize>(&self, cpu: Cpu, points: &mut [f32]) {
        let taps = self.taps.par_chunks_exact(self.into * TAPS * self.width);
        let panels = points.par_chunks_exact_mut(self.into * POINTS * self.width);
        let into = self.into;
        taps.zip(panels).for_each(|(taps, points)| cpu.run(Panel::<T, SIDE> { taps, points, into, tile: PhantomData }));
    }
}

struct Panel<'a, T, const SIDE: usize> {
    taps: &'a [f32],
    points: &'a mut [f32],
    into: usize,
    tile: PhantomData<T>,
}

impl<T: Tile<SIDE>, const SIDE: usize> WithSimd for Panel<'_, T, SIDE> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let taps = S::as_simd_f32s(self.taps).0;
        let points = S::as_mut_simd_f32s(self.points).0;
        let zero = simd.splat_f32s(0.0);
        for (channel, taps) in taps.chunks_exact(TAPS * PANEL).enumerate() {
            for j in 0..PANEL {
                let tap = |row: usize, column: usize| taps[(row * 3 + column) * PANEL + j];
                let mut columns = [[zero; 3]; WEIGHTS];
                for column in 0..3 {
                    let line = T::taps(simd, [tap(0, column), tap(1, column), tap(2, column)]);
                    for (columns, value) in columns.iter_mut().zip(line) {
                        columns[column] = value;
                    }
                }
                for (row, taps) in columns.into_iter().enumerate() {
                    for (column, value) in T::taps(simd, taps).into_iter().enumerate() {
                        points[((row * WEIGHTS + column) * self.into + channel) * PANEL + j] = value;
                    }
                }
            }
        }
    }
}
