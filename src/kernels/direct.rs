//! Convolutions as sums of products over their taps: for few channels, and 1 × 1.

use super::cpu::{load, store};
use super::gemm::{Group, PANEL, Panels, Sums, accumulate, in_groups};
use super::moments::{Moments, measure, merge_parts};
use super::{Cpu, Shape};
use pulp::{Simd, WithSimd};
use rayon::prelude::*;

/// Pixels that one task makes, and that one pass over the weights makes.
const PIXELS_A_TASK: usize = 768;
const PIXELS_A_PASS: usize = 96;

/// Taps of a convolution: `side` × `side` around each pixel, an odd number. Beyond the picture are zeros.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    side: usize,
}

impl Window {
    /// One tap.
    pub(crate) const POINT: Self = Self { side: 1 };
    /// A pixel and its eight neighbours.
    pub(crate) const SQUARE: Self = Self { side: 3 };
}

/// A convolution ready to run.
pub(crate) struct Direct {
    /// (taps · channels in, channels out)
    weight: Panels,
    bias: Vec<f32>,
    /// Pixels beyond the picture.
    zeros: Vec<f32>,
    window: Window,
}

impl Direct {
    /// Packs `weight`, (out, in, side, side) row-major as checkpoints have it.
    pub(crate) fn new(cpu: Cpu, weight: &[f32], bias: &[f32], window: Window) -> Self {
        let (taps, out) = (window.side * window.side, bias.len());
        let into = weight.len() / (taps * out);
        let at = |row: usize, column: usize| weight[(column * into + row % into) * taps + row / into];
        let weight = Panels::pack(cpu, taps * into, out, at);
        Self { weight, bias: bias.to_vec(), zeros: vec![0.0; window.side * into], window }
    }

    /// Shape of what comes out for a picture of `shape`.
    pub(crate) fn shape(&self, shape: Shape) -> Shape {
        Shape { channels: self.bias.len(), ..shape }
    }

    /// Convolves `x` of `shape` to `out`, or adds to what `out` holds; returns the moments of `out`'s channels.
    pub(crate) fn forward(&self, cpu: Cpu, x: &[f32], shape: Shape, out: &mut [f32], add: bool) -> Vec<Moments> {
        let channels = self.bias.len();
        let task = |(index, out): (usize, &mut [f32])| {
            cpu.run(Task { direct: self, x, shape, first: index * PIXELS_A_TASK, out, add })
        };
        let parts: Vec<_> = out.par_chunks_mut(PIXELS_A_TASK * channels).enumerate().map(task).collect();
        merge_parts(&parts, channels)
    }
}

/// A run of output pixels, in reading order.
struct Task<'a> {
    direct: &'a Direct,
    x: &'a [f32],
    shape: Shape,
    first: usize,
    out: &'a mut [f32],
    add: bool,
}

impl WithSimd for Task<'_> {
    type Output = Vec<Moments>;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Vec<Moments> {
        let Self { direct, x, shape, first, out, add } = self;
        let channels = direct.bias.len();
        for (pass, out) in out.chunks_mut(PIXELS_A_PASS * channels).enumerate() {
            let pixels = out.len() / channels;
            for panel in 0..direct.weight.count() {
                let first = first + pass * PIXELS_A_PASS;
                in_groups::<S>(pixels, &mut Pass { simd, direct, x, shape, first, out, add, panel });
            }
        }
        let mut moments = vec![Moments::default(); channels];
        measure(simd, out.chunks(64 * channels), &mut moments);
        moments
    }
}

struct Pass<'a, S> {
    simd: S,
    direct: &'a Direct,
    x: &'a [f32],
    shape: Shape,
    first: usize,
    out: &'a mut [f32],
    add: bool,
    panel: usize,
}

impl<S: Simd> Pass<'_, S> {
    /// `count` neighbouring input pixels whose first lies under tap (`down`, `right`) of the output pixel at `place`;
    /// zeros for one beyond the picture's sides, and for any number of them beyond its top and bottom.
    #[inline(always)]
    fn pixels(&self, (row, column): (usize, usize), down: usize, right: usize, count: usize) -> &[f32] {
        let (pad, into) = (self.direct.window.side / 2, self.shape.channels);
        let (row, column) = ((row + down).wrapping_sub(pad), (column + right).wrapping_sub(pad));
        if row < self.shape.height && column < self.shape.width {
            &self.x[(row * self.shape.width + column) * into..][..count * into]
        } else {
            &self.direct.zeros[..count * into]
        }
    }

    /// Adds the products of the taps from (`down`, `right`) on, `count` of a row of taps in one go.
    #[inline(always)]
    fn add_taps<const ROWS: usize>(
        &self,
        sums: &mut Sums<S, ROWS>,
        places: &[(usize, usize); ROWS],
        (down, right, count): (usize, usize, usize),
    ) {
        let (side, into) = (self.direct.window.side, self.shape.channels);
        let mut rows = [self.x; ROWS];
        for (row, place) in rows.iter_mut().zip(places) {
            *row = self.pixels(*place, down, right, count);
        }
        let from = (down * side + right) * into;
        let panel = self.direct.weight.panel(self.panel, from, side * side * into - from);
        let (panel, soon) = S::as_simd_f32s(panel).0.split_at(count * into * PANEL);
        accumulate(self.simd, sums, rows, panel, soon);
    }
}

impl<S: Simd> Group for Pass<'_, S> {
    #[inline(always)]
    fn call<const ROWS: usize>(&mut self, first: usize) {
        let (simd, side, width) = (self.simd, self.direct.window.side, self.shape.width);
        let (mut places, mut inside) = ([(0, 0); ROWS], true);
        for (r, place) in places.iter_mut().enumerate() {
            let pixel = self.first + first + r;
            *place = (pixel / width, pixel % width);
            inside &= place.1 >= side / 2 && place.1 + side / 2 < width;
        }
        let mut sums: Sums<S, ROWS> = [[simd.splat_f32s(0.0); PANEL]; ROWS];
        // Pixels under a row of taps are neighbours, unless one lies beyond a side.
        let count = if inside { side } else { 1 };
        for tap in (0..side * side).step_by(count) {
            self.add_taps(&mut sums, &places, (tap / side, tap % side, count));
        }
        let channels = self.direct.bias.len();
        for (r, sums) in sums.iter().enumerate() {
            for (j, sum) in sums.iter().enumerate() {
                let from = (self.panel * PANEL + j) * S::F32_LANES;
                let to = channels.min(from + S::F32_LANES);
                if from >= to {
                    continue;
                }
                let mut sum = simd.add_f32s(*sum, load(simd, &self.direct.bias[from..to]));
                let out = &mut self.out[(first + r) * channels..][from..to];
                if self.add {
                    sum = simd.add_f32s(sum, load(simd, out));
                }
                store(simd, out, sum);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::plain;
    use crate::kernels::samples::{far, same_moments, values, widen};
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn a_convolution_equals_its_plain_twin(
            height in 1usize..20,
            width in 1usize..30,
            into in 1usize..40,
            out in 1usize..70,
            window in prop::sample::select(vec![Window::POINT, Window::SQUARE]),
            add: bool,
            seed: u64,
        ) {
            let shape = Shape { height, width, channels: into };
            let taps = window.side * window.side;
            let (x, weight, bias) = (values(seed, shape.len()), values(seed + 1, out * into * taps), values(seed + 2, out));
            let mut expected = plain::convolve(&widen(&x), shape, &weight, &bias, (window.side, 1, window.side / 2));
            if add {
                expected.iter_mut().for_each(|value| *value += 1.0);
            }
            for cpu in Cpu::all() {
                let direct = Direct::new(cpu, &weight, &bias, window);
                let mut got = vec![1.0; direct.shape(shape).len()];
                let moments = direct.forward(cpu, &x, shape, &mut got, add);
                prop_assert!(far(&got, &expected) < 1e-5, "{cpu:?}: {}", far(&got, &expected));
                prop_assert!(same_moments(&moments, &got));
            }
        }
    }
}
