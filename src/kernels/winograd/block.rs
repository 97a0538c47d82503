//! One block of tiles: the steps from pixels to pixels.

use super::Normed;
use super::layout::{Area, Layout};
use super::tile::{OUT, Tile, WEIGHTS};
use super::weights::POINTS;
use crate::kernels::Shape;
use crate::kernels::cpu::{load, store};
use crate::kernels::gemm::{PANEL, Product, in_groups};
use pulp::Simd;
use std::marker::PhantomData;

/// A block and its working memory.
pub(super) struct Block<'a, T, S: Simd, const SIDE: usize> {
    simd: S,
    layout: &'a Layout,
    /// Output row and tile column that the block begins with.
    first_row: usize,
    first_column: usize,
    /// Tiles down and across.
    rows: usize,
    columns: usize,
    /// Normalised pixels under one row of tiles, (side, strip's width, into).
    strip: &'a mut [S::f32s],
    /// (side², tiles, into)
    inputs: &'a mut [S::f32s],
    /// (side², tiles, products)
    products: &'a mut [S::f32s],
    tile: PhantomData<T>,
}

impl<'a, T: Tile<SIDE>, S: Simd, const SIDE: usize> Block<'a, T, S, SIDE> {
    /// The block that writes `area`.
    #[inline(always)]
    pub(super) fn new(simd: S, layout: &'a Layout, area: &Area, scratch: &'a mut [f32]) -> Self {
        let vectors = S::as_mut_simd_f32s(scratch).0;
        let (strip, rest) = vectors.split_at_mut(layout.strip());
        let (inputs, products) = rest.split_at_mut(SIDE * SIDE * layout.input_step());
        let Area { first_row, first_column, .. } = *area;
        let (rows, columns) = (area.rows.len().div_ceil(OUT), layout.columns.min(layout.across - first_column));
        Self { simd, layout, first_row, first_column, rows, columns, strip, inputs, products, tile: PhantomData }
    }

    /// Fills `inputs` from the picture.
    #[inline(always)]
    pub(super) fn transform_inputs(&mut self, x: Normed) {
        for row in 0..self.rows {
            // The last rows of pixels are the first ones of the next row of tiles.
            let known = if row == 0 { 0 } else { SIDE - T::STEP };
            let row_len = self.layout.strip_width() * self.layout.into;
            self.strip.copy_within((SIDE - known) * row_len.., 0);
            for line in known..SIDE {
                self.fill_strip(x, row, line);
            }
            for column in 0..self.columns {
                self.transform_input(row * self.columns + column, column * T::STEP * self.layout.into);
            }
        }
    }

    /// Normalises line `line` of the strip under tile row `row`; zeros beyond the picture.
    #[inline(always)]
    fn fill_strip(&mut self, x: Normed, row: usize, line: usize) {
        let (Shape { height, width, channels }, into) = (x.shape, self.layout.into);
        let row_len = self.layout.strip_width() * into;
        let strip = &mut self.strip[line * row_len..][..row_len];
        // Places are as many more than a pixel's as the tile reaches beyond the picture's edge.
        let y = (self.first_row / OUT + row) * T::STEP + line;
        let left = self.first_column * T::STEP;
        let from = left.max(T::PAD) - T::PAD;
        let to = width.min((left + self.layout.strip_width()).saturating_sub(T::PAD));
        if y < T::PAD || y - T::PAD >= height {
            strip.fill(self.simd.splat_f32s(0.0));
            return;
        }
        let (head, rest) = strip.split_at_mut((from + T::PAD - left) * into);
        let (pixels, tail) = rest.split_at_mut((to - from) * into);
        head.fill(self.simd.splat_f32s(0.0));
        tail.fill(self.simd.splat_f32s(0.0));
        let row = (y - T::PAD) * width;
        let values = &x.values[(row + from) * channels..(row + to) * channels];
        match x.norm {
            Some(norm) => norm.activate(self.simd, values, pixels),
            None => spread(self.simd, values, channels, pixels),
        }
    }

    /// Transforms the tile whose first pixel lies at vector `from` of the strip.
    #[inline(always)]
    fn transform_input(&mut self, tile: usize, from: usize) {
        let (into, step) = (self.layout.into, self.layout.input_step());
        let row_len = self.layout.strip_width() * into;
        let zero = self.simd.splat_f32s(0.0);
        for c in 0..into {
            let mut half = [[zero; SIDE]; SIDE];
            for column in 0..SIDE {
                let mut line = [zero; SIDE];
                let pixels = self.strip[from + column * into + c..].iter().step_by(row_len);
                for (value, pixel) in line.iter_mut().zip(pixels) {
                    *value = *pixel;
                }
                for (half, value) in half.iter_mut().zip(T::input(self.simd, line)) {
                    half[column] = value;
                }
            }
            let mut places = self.inputs[tile * into + c..].iter_mut().step_by(step);
            for half in half {
                for (value, place) in T::input(self.simd, half).into_iter().zip(&mut places) {
                    *place = value;
                }
            }
        }
    }

    /// Multiplies the inputs at each point with the weights there.
    #[inline(always)]
    pub(super) fn multiply(&mut self, points: &[f32]) {
        let Layout { into, products, lanes, .. } = *self.layout;
        let (tiles, depth) = (self.rows * self.columns, self.layout.shape.channels);
        let points = S::as_simd_f32s(points).0;
        for product in 0..SIDE * SIDE {
            let inputs = &self.inputs[product * self.layout.input_step()..][..tiles * into];
            let left = pulp::bytemuck::cast_slice::<S::f32s, f32>(inputs);
            for panel in 0..products / PANEL {
                let out = &mut self.products[product * self.layout.product_step() + panel * PANEL..];
                let at = |panel: usize, product: usize| {
                    let point = T::weight(product / SIDE) * WEIGHTS + T::weight(product % SIDE);
                    &points[(panel * POINTS + point) * depth * PANEL..][..depth * PANEL]
                };
                let last = panel + 1 == products / PANEL;
                let soon = if last { at(0, (product + 1) % (SIDE * SIDE)) } else { at(panel + 1, product) };
                let (panel, simd, left_step, out_step) = (at(panel, product), self.simd, into * lanes, products);
                let mut product = Product { simd, left, left_step, depth, panel, soon, out, out_step, add: false };
                in_groups::<S>(tiles, &mut product);
            }
        }
    }

    /// Writes each tile's outputs, `bias` added, to the rows of the block's area.
    #[inline(always)]
    pub(super) fn transform_outputs(&self, bias: &[f32], out: &mut [&mut [f32]], add: bool) {
        let channels = self.layout.out.channels;
        for tile in 0..self.rows * self.columns {
            let (row, column) = (tile / self.columns * OUT, tile % self.columns * OUT);
            let right = out[row].len() / channels - column;
            for c in 0..channels.div_ceil(S::F32_LANES) {
                let here = c * S::F32_LANES..channels.min((c + 1) * S::F32_LANES);
                let bias = load(self.simd, &bias[here.clone()]);
                let values = self.transform_output(tile, c);
                for (values, out) in values.iter().zip(&mut out[row..]) {
                    let pixels = &mut out[column * channels + here.start..];
                    for (value, pixel) in values.iter().zip(pixels.chunks_mut(channels)).take(right) {
                        let pixel = &mut pixel[..here.len()];
                        let mut value = self.simd.add_f32s(*value, bias);
                        if add {
                            value = self.simd.add_f32s(value, load(self.simd, pixel));
                        }
                        store(self.simd, pixel, value);
                    }
                }
            }
        }
    }

    /// Outputs (down, right) of one vector of channels.
    #[inline(always)]
    fn transform_output(&self, tile: usize, c: usize) -> [[S::f32s; OUT]; OUT] {
        let step = self.layout.product_step();
        let zero = self.simd.splat_f32s(0.0);
        let mut half = [[zero; SIDE]; OUT];
        for column in 0..SIDE {
            let mut line = [zero; SIDE];
            let from = column * step + tile * self.layout.products + c;
            for (value, product) in line.iter_mut().zip(self.products[from..].iter().step_by(SIDE * step)) {
                *value = *product;
            }
            for (half, value) in half.iter_mut().zip(T::output(self.simd, line)) {
                half[column] = value;
            }
        }
        let mut whole = [[zero; OUT]; OUT];
        for (whole, half) in whole.iter_mut().zip(half) {
            *whole = T::output(self.simd, half);
        }
        whole
    }
}

/// Copies whole `pixels` to `out`, each filled up with zeros to whole vectors.
#[inline(always)]
fn spread<S: Simd>(simd: S, pixels: &[f32], channels: usize, out: &mut [S::f32s]) {
    for (pixel, out) in pixels.chunks_exact(channels).zip(out.chunks_exact_mut(channels.div_ceil(S::F32_LANES))) {
        for (values, out) in pixel.chunks(S::F32_LANES).zip(out) {
            *out = load(simd, values);
        }
    }
}
