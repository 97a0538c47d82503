//! The weights of a 3 × 3 convolution, packed once and transformed for a layer's turn.

use super::tile::{self, POINTS, SIDE};
use crate::kernels::gemm::PANEL;
use crate::kernels::{Aligned, Cpu};
use pulp::{Simd, WithSimd};
use rayon::prelude::*;

/// Taps of the convolution.
const TAPS: usize = 9;

/// A 3 × 3 convolution of stride 1 behind a group norm and SiLU.
///
/// The transformed weights are 4 times as large as these, so they are made when the
/// layer's turn comes.
pub(crate) struct Winograd {
    /// (panels, channels in, taps, panel's width)
    taps: Aligned,
    bias: Vec<f32>,
    into: usize,
    width: usize,
}

impl Winograd {
    /// Packs `weight`, (out, in, 3, 3) row-major as checkpoints have it.
    pub(crate) fn new(cpu: Cpu, weight: &[f32], bias: &[f32]) -> Self {
        let (width, into, out) = (cpu.panel_width(), weight.len() / (TAPS * bias.len()), bias.len());
        let mut taps = Aligned::zeroed(out.div_ceil(width) * into * TAPS * width);
        taps.par_chunks_exact_mut(into * TAPS * width).enumerate().for_each(|(panel, taps)| {
            for (row, values) in taps.chunks_exact_mut(width).enumerate() {
                let columns = panel * width..out.min((panel + 1) * width);
                values.iter_mut().zip(columns).for_each(|(value, n)| *value = weight[n * into * TAPS + row]);
            }
        });
        Self { taps, bias: bias.to_vec(), into, width }
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

    /// Transforms the weights to (panels, points, channels in, panel's width).
    pub(crate) fn transform(&self, cpu: Cpu, points: &mut [f32]) {
        let taps = self.taps.par_chunks_exact(self.into * TAPS * self.width);
        let panels = points.par_chunks_exact_mut(self.into * POINTS * self.width);
        let into = self.into;
        taps.zip(panels).for_each(|(taps, points)| cpu.run(Panel { taps, points, into }));
    }
}

struct Panel<'a> {
    taps: &'a [f32],
    points: &'a mut [f32],
    into: usize,
}

impl WithSimd for Panel<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let taps = S::as_simd_f32s(self.taps).0;
        let points = S::as_mut_simd_f32s(self.points).0;
        let zero = simd.splat_f32s(0.0);
        for (channel, taps) in taps.chunks_exact(TAPS * PANEL).enumerate() {
            for j in 0..PANEL {
                let tap = |row: usize, column: usize| taps[(row * 3 + column) * PANEL + j];
                let mut columns = [[zero; 3]; SIDE];
                for column in 0..3 {
                    let line = tile::taps(simd, [tap(0, column), tap(1, column), tap(2, column)]);
                    for (columns, value) in columns.iter_mut().zip(line) {
                        columns[column] = value;
                    }
                }
                for (row, taps) in columns.into_iter().enumerate() {
                    for (column, value) in tile::taps(simd, taps).into_iter().enumerate() {
                        points[((row * SIDE + column) * self.into + channel) * PANEL + j] = value;
                    }
                }
            }
        }
    }
}
