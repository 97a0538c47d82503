//! How a picture is cut into blocks of tiles, and where a block's values lie in the working memory.

use super::tile::{OUT, Tile};
use crate::kernels::gemm::PANEL;
use crate::kernels::{Cpu, Shape};

/// Products of a block, a channel: 48 tiles of 36. Enough that the weights, read once for each block, do not limit; few
/// enough that what is multiplied stays in the second-level cache.
const PRODUCTS: usize = 48 * 36;

/// Blocks that a small picture is cut into, and the tiles of a block below which none is made for that: the weights are
/// read once for each.
const SMALL_BLOCKS: usize = 8;
const LEAST: usize = 24;

/// Rows of tiles in a block. Each shares rows of pixels with the next, and those are normalised once.
const TILE_ROWS: usize = 4;

/// How a picture is cut, and where a block's values lie in a thread's working memory; lengths in vectors.
pub(super) struct Layout {
    pub(super) shape: Shape,
    pub(super) out: Shape,
    pub(super) lanes: usize,
    /// Inputs and products along a tile's side, and inputs from one tile to the next.
    side: usize,
    step: usize,
    /// Tiles in a row of the picture; rows and columns of tiles in a block.
    pub(super) across: usize,
    rows: usize,
    pub(super) columns: usize,
    /// Vectors of a pixel before and after.
    pub(super) into: usize,
    pub(super) products: usize,
}

impl Layout {
    /// For a picture of `shape` that becomes one of `out`.
    pub(super) fn new<T: Tile<SIDE>, const SIDE: usize>(cpu: Cpu, shape: Shape, out: Shape) -> Self {
        let lanes = cpu.lanes();
        let across = out.width.div_ceil(OUT);
        let rows = TILE_ROWS.min(out.height.div_ceil(OUT));
        // Tiles with more products are fewer, those of a small picture still make a few blocks for several threads, and
        // blocks are of equal width rather than the last one narrow.
        let few = (across * out.height.div_ceil(OUT)).div_ceil(SMALL_BLOCKS).max(LEAST);
        let most = (few.min(PRODUCTS / (SIDE * SIDE)) / rows).max(1);
        let columns = across.div_ceil(across.div_ceil(most));
        let (into, products) = (shape.channels.div_ceil(lanes), out.channels.div_ceil(PANEL * lanes) * PANEL);
        Self { shape, out, lanes, side: SIDE, step: T::STEP, across, rows, columns, into, products }
    }

    /// Cuts the output into what each block writes.
    pub(super) fn areas<'a>(&self, out: &'a mut [f32]) -> Vec<Area<'a>> {
        let (row, block) = (self.out.width * self.out.channels, self.columns * OUT * self.out.channels);
        let mut all = Vec::new();
        for (index, rows) in out.chunks_mut(self.rows * OUT * row).enumerate() {
            let area = |column| Area {
                first_row: index * self.rows * OUT,
                first_column: column * self.columns,
                rows: Vec::with_capacity(self.rows * OUT),
            };
            let mut areas: Vec<Area> = (0..row.div_ceil(block)).map(area).collect();
            for row in rows.chunks_mut(row) {
                areas.iter_mut().zip(row.chunks_mut(block)).for_each(|(area, part)| area.rows.push(part));
            }
            all.extend(areas);
        }
        all
    }

    /// Values of a block's working memory.
    pub(super) fn scratch(&self) -> usize {
        (self.strip() + self.side * self.side * (self.input_step() + self.product_step())) * self.lanes
    }

    /// Pixels of a strip's row: what a row of the block's tiles reads.
    pub(super) fn strip_width(&self) -> usize {
        self.columns * self.step + self.side - self.step
    }

    pub(super) fn strip(&self) -> usize {
        self.side * self.strip_width() * self.into
    }

    /// From a product's inputs to the next one's. A cache line more than they need: steps of 4 KiB would put all products'
    /// values for one tile in the same few lines of the first-level cache.
    pub(super) fn input_step(&self) -> usize {
        self.rows * self.columns * self.into + 16 / self.lanes
    }

    pub(super) fn product_step(&self) -> usize {
        self.rows * self.columns * self.products + 16 / self.lanes
    }
}

/// What a block writes: parts of neighbouring rows of the output.
pub(super) struct Area<'a> {
    /// Output row of the first part, and tile column that all begin with.
    pub(super) first_row: usize,
    pub(super) first_column: usize,
    pub(super) rows: Vec<&'a mut [f32]>,
}
