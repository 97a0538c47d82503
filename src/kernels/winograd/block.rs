//! One block of tiles: where its values lie in the working memory, and the steps that fill them.

use super::Normed;
use super::tile::{self, OUT, POINTS, SIDE};
use crate::kernels::cpu::{load, store};
use crate::kernels::gemm::{PANEL, Product, in_groups};
use crate::kernels::norm::{Moments, measure};
use crate::kernels::{Cpu, Shape};
use pulp::Simd;

/// Tiles of a block: enough that the weights, read once for each block, do not limit; few enough that what a point
/// multiplies stays in the second-level cache.
const TILES: usize = 48;

/// Rows of tiles in a block. Each shares two rows of pixels with the next, and those are normalised once.
const TILE_ROWS: usize = 4;

/// How a picture is cut, and where a block's values lie in a thread's working memory; lengths in vectors.
pub(super) struct Layout {
    shape: Shape,
    channels_out: usize,
    lanes: usize,
    /// Tiles in a row of the picture, and in a row of a block.
    across: usize,
    columns: usize,
    /// Vectors of a pixel before and after.
    into: usize,
    products: usize,
}

impl Layout {
    pub(super) fn new(cpu: Cpu, shape: Shape, channels_out: usize) -> Self {
        let lanes = cpu.lanes();
        let across = shape.width.div_ceil(OUT);
        // Blocks of equal width rather than a narrow last one.
        let columns = across.div_ceil(across.div_ceil(TILES / TILE_ROWS));
        let (into, products) = (shape.channels.div_ceil(lanes), channels_out.div_ceil(PANEL * lanes) * PANEL);
        Self { shape, channels_out, lanes, across, columns, into, products }
    }

    /// Output rows of a task.
    pub(super) fn task_rows(&self) -> usize {
        TILE_ROWS * OUT
    }

    /// First tile column of each block.
    pub(super) fn blocks(&self) -> impl Iterator<Item = usize> + use<> {
        (0..self.across).step_by(self.columns)
    }

    /// Values of a block's working memory.
    pub(super) fn scratch(&self) -> usize {
        (self.strip() + POINTS * (self.input_step() + self.product_step())) * self.lanes
    }

    /// Pixels of a strip's row: what a row of the block's tiles reads.
    fn strip_width(&self) -> usize {
        self.columns * OUT + 2
    }

    fn strip(&self) -> usize {
        SIDE * self.strip_width() * self.into
    }

    /// From a point's inputs to the next one's. A cache line more than they need: steps of 4 KiB would put all points'
    /// values for one tile in the same few lines of the first-level cache.
    fn input_step(&self) -> usize {
        TILE_ROWS * self.columns * self.into + 16 / self.lanes
    }

    fn product_step(&self) -> usize {
        TILE_ROWS * self.columns * self.products + 16 / self.lanes
    }
}

/// The block at `first_column` of a task, and its working memory.
pub(super) struct Block<'a, S: Simd> {
    simd: S,
    layout: &'a Layout,
    /// Output row of the picture that the task's output begins with.
    first_row: usize,
    first_column: usize,
    /// Tiles down and across.
    rows: usize,
    columns: usize,
    /// Normalised pixels under one row of tiles, (side, strip's width, into).
    strip: &'a mut [S::f32s],
    /// (points, tiles, into)
    inputs: &'a mut [S::f32s],
    /// (points, tiles, products)
    products: &'a mut [S::f32s],
}

impl<'a, S: Simd> Block<'a, S> {
    /// The block at tile column `first_column` of a task whose output has `len` values from row `first_row` on.
    #[inline(always)]
    pub(super) fn new(
        simd: S,
        layout: &'a Layout,
        first_row: usize,
        first_column: usize,
        len: usize,
        scratch: &'a mut [f32],
    ) -> Self {
        let vectors = S::as_mut_simd_f32s(scratch).0;
        let (strip, rest) = vectors.split_at_mut(layout.strip());
        let (inputs, products) = rest.split_at_mut(POINTS * layout.input_step());
        let rows = (len / (layout.shape.width * layout.channels_out)).div_ceil(OUT);
        let columns = layout.columns.min(layout.across - first_column);
        Self { simd, layout, first_row, first_column, rows, columns, strip, inputs, products }
    }

    /// Fills `inputs` from the picture.
    #[inline(always)]
    pub(super) fn transform_inputs(&mut self, x: Normed) {
        for row in 0..self.rows {
            // The last two rows of pixels are the first two of the next row of tiles.
            let known = if row == 0 { 0 } else { 2 };
            let row_len = self.layout.strip_width() * self.layout.into;
            self.strip.copy_within((SIDE - known) * row_len.., 0);
            for line in known..SIDE {
                self.fill_strip(x, row, line);
            }
            for column in 0..self.columns {
                self.transform_input(row * self.columns + column, column * OUT * self.layout.into);
            }
        }
    }

    /// Normalises line `line` of the strip under tile row `row`; zeros beyond the picture.
    #[inline(always)]
    fn fill_strip(&mut self, x: Normed, row: usize, line: usize) {
        let (Shape { height, width, channels }, into) = (x.shape, self.layout.into);
        let row_len = self.layout.strip_width() * into;
        let strip = &mut self.strip[line * row_len..][..row_len];
        // One more than the pixel's place, since the first lies one up and left of the tile.
        let (y, left) = (self.first_row + row * OUT + line, self.first_column * OUT);
        let from = left.max(1) - 1;
        let to = width.min((left + self.layout.strip_width()).saturating_sub(1));
        if y == 0 || y > height {
            strip.fill(self.simd.splat_f32s(0.0));
            return;
        }
        let before = from + 1 - left;
        let (head, rest) = strip.split_at_mut(before * into);
        let (pixels, tail) = rest.split_at_mut((to - from) * into);
        head.fill(self.simd.splat_f32s(0.0));
        tail.fill(self.simd.splat_f32s(0.0));
        let values = &x.values[((y - 1) * width + from) * channels..((y - 1) * width + to) * channels];
        x.norm.activate(self.simd, values, pixels);
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
                for (half, value) in half.iter_mut().zip(tile::input(self.simd, line)) {
                    half[column] = value;
                }
            }
            let mut places = self.inputs[tile * into + c..].iter_mut().step_by(step);
            for half in half {
                for (value, place) in tile::input(self.simd, half).into_iter().zip(&mut places) {
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
        for point in 0..POINTS {
            let inputs = &self.inputs[point * self.layout.input_step()..][..tiles * into];
            let left = pulp::bytemuck::cast_slice::<S::f32s, f32>(inputs);
            for panel in 0..products / PANEL {
                let out = &mut self.products[point * self.layout.product_step() + panel * PANEL..];
                let at = |panel: usize, point: usize| &points[(panel * POINTS + point) * depth * PANEL..];
                let soon =
                    if panel + 1 < products / PANEL { at(panel + 1, point) } else { at(0, (point + 1) % POINTS) };
                let (panel, soon) = (&at(panel, point)[..depth * PANEL], &soon[..depth * PANEL]);
                let (simd, left_step, out_step) = (self.simd, into * lanes, products);
                in_groups::<S>(
                    tiles,
                    &mut Product { simd, left, left_step, depth, panel, soon, out, out_step, add: false },
                );
            }
        }
    }

    /// Writes each tile's outputs, `bias` added, to the task's output.
    #[inline(always)]
    pub(super) fn transform_outputs(&self, bias: &[f32], out: &mut [f32], add: bool) {
        let Shape { width, .. } = self.layout.shape;
        let channels = self.layout.channels_out;
        for tile in 0..self.rows * self.columns {
            let (row, column) = (tile / self.columns * OUT, (self.first_column + tile % self.columns) * OUT);
            let down = OUT.min(out.len() / (width * channels) - row);
            let right = OUT.min(width - column);
            for c in 0..channels.div_ceil(S::F32_LANES) {
                let here = c * S::F32_LANES..channels.min((c + 1) * S::F32_LANES);
                let bias = load(self.simd, &bias[here.clone()]);
                let values = self.transform_output(tile, c);
                for (y, values) in values.iter().enumerate().take(down) {
                    let pixels = &mut out[((row + y) * width + column) * channels + here.start..];
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
            for (half, value) in half.iter_mut().zip(tile::output(self.simd, line)) {
                half[column] = value;
            }
        }
        let mut whole = [[zero; OUT]; OUT];
        for (whole, half) in whole.iter_mut().zip(half) {
            *whole = tile::output(self.simd, half);
        }
        whole
    }

    /// Merges the moments of what the block has written.
    #[inline(always)]
    pub(super) fn measure(&self, out: &[f32], moments: &mut [Moments]) {
        let (width, channels) = (self.layout.shape.width, self.layout.channels_out);
        let end = width.min((self.first_column + self.columns) * OUT);
        let columns = self.first_column * OUT * channels..end * channels;
        let segments = out.chunks_exact(width * channels).map(|row| &row[columns.clone()]);
        measure(self.simd, segments, moments);
    }
}
