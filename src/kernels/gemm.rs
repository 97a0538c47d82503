//! The inner product of everything: a few rows times a panel of columns, sums held in registers.

use super::{Aligned, Cpu};
use pulp::Simd;
use rayon::prelude::*;
use std::ops::Deref;

/// Vectors of columns in a panel.
///
/// With 6 rows (16 registers) or 12 (32 registers) the sums fill the registers, and a step loads 2 vectors and 6 or
/// 12 broadcasts for 12 or 24 multiply-adds: the multiply-add units are the limit, not the loads.
pub(super) const PANEL: usize = 2;

/// A (depth, columns) matrix as panels of neighbouring columns: (columns / width, depth, width), the last panel filled
/// up with zeros; `width` is [`Cpu::panel_width`]. The values lie in `V`.
pub(crate) struct Panels<V = Aligned> {
    values: V,
    depth: usize,
    columns: usize,
    width: usize,
}

impl Panels {
    /// Packs the matrix whose element in row `k` and column `n` is `at(k, n)`.
    pub(crate) fn pack(cpu: Cpu, depth: usize, columns: usize, at: impl Fn(usize, usize) -> f32 + Sync) -> Self {
        let mut values = Aligned::zeroed(packed_len(cpu, depth, columns));
        Panels::pack_into(cpu, depth, columns, at, &mut values);
        Self { values, depth, columns, width: cpu.panel_width() }
    }
}

/// Values of a packed (depth, columns) matrix.
fn packed_len(cpu: Cpu, depth: usize, columns: usize) -> usize {
    depth * columns.next_multiple_of(cpu.panel_width())
}

impl<'a> Panels<&'a [f32]> {
    /// Packs as [`Panels::pack`] does, into the first [`packed_len`] of `values`.
    pub(crate) fn pack_into(
        cpu: Cpu,
        depth: usize,
        columns: usize,
        at: impl Fn(usize, usize) -> f32 + Sync,
        values: &'a mut [f32],
    ) -> Self {
        let width = cpu.panel_width();
        let values = &mut values[..packed_len(cpu, depth, columns)];
        values.par_chunks_exact_mut(depth * width).enumerate().for_each(|(panel, values)| {
            for (k, row) in values.chunks_exact_mut(width).enumerate() {
                let filled = columns.min((panel + 1) * width) - panel * width;
                let (row, rest) = row.split_at_mut(filled);
                row.iter_mut().enumerate().for_each(|(n, value)| *value = at(k, panel * width + n));
                rest.fill(0.0);
            }
        });
        Self { values, depth, columns, width }
    }

    /// What [`Panels::pack_into`] has packed there.
    pub(crate) fn packed(cpu: Cpu, depth: usize, columns: usize, values: &'a [f32]) -> Self {
        Self { values: &values[..packed_len(cpu, depth, columns)], depth, columns, width: cpu.panel_width() }
    }
}

impl<V: Deref<Target = [f32]>> Panels<V> {
    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    pub(super) fn columns(&self) -> usize {
        self.columns
    }

    /// Panels of the matrix.
    pub(super) fn count(&self) -> usize {
        self.columns.div_ceil(self.width)
    }

    /// Rows `from..from + depth` of one panel.
    #[inline(always)]
    pub(super) fn panel(&self, index: usize, from: usize, depth: usize) -> &[f32] {
        &self.values[(index * self.depth + from) * self.width..][..depth * self.width]
    }
}

/// Sums of `ROWS` rows over the columns of one panel.
pub(super) type Sums<S, const ROWS: usize> = [[<S as Simd>::f32s; PANEL]; ROWS];

/// Adds to `sums[r][j]` the product of `rows[r]` and column vector `j` of `panel`.
///
/// `panel` is (depth, PANEL) vectors; each row has at least `depth` values. On the way, as many vectors at the start of
/// `soon` are fetched into the cache: the processor's own prefetching stops at every page of 4 KiB.
#[inline(always)]
pub(super) fn accumulate<S: Simd, const ROWS: usize>(
    simd: S,
    sums: &mut Sums<S, ROWS>,
    rows: [&[f32]; ROWS],
    panel: &[S::f32s],
    soon: &[S::f32s],
) {
    let (panel, _) = panel.as_chunks::<PANEL>();
    let mut rows = rows;
    for row in &mut rows {
        *row = &row[..panel.len()];
    }
    let mut local = *sums;
    for (k, columns) in panel.iter().enumerate() {
        prefetch(soon.as_ptr().wrapping_add(k));
        for r in 0..ROWS {
            let value = simd.splat_f32s(rows[r][k]);
            for j in 0..PANEL {
                local[r][j] = simd.mul_add_e_f32s(value, columns[j], local[r][j]);
            }
        }
    }
    *sums = local;
}

/// Hints that the cache line at `address` is read soon; any address will do.
#[inline(always)]
fn prefetch<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch never faults, whatever the address.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T1 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// What is done to a group of neighbouring rows.
pub(super) trait Group {
    /// Works on rows `first..first + ROWS`.
    fn call<const ROWS: usize>(&mut self, first: usize);
}

/// Splits `0..rows` into groups as large as the registers allow, and one smaller for the rest.
#[inline(always)]
pub(super) fn in_groups<S: Simd>(rows: usize, op: &mut impl Group) {
    let full = if S::REGISTER_COUNT >= 32 { 12 } else { 6 };
    let mut first = 0;
    while rows - first >= full {
        if S::REGISTER_COUNT >= 32 {
            op.call::<12>(first)
        } else {
            op.call::<6>(first)
        }
        first += full;
    }
    match rows - first {
        0 => {}
        1 => op.call::<1>(first),
        2 => op.call::<2>(first),
        3 => op.call::<3>(first),
        4 => op.call::<4>(first),
        5 => op.call::<5>(first),
        6 => op.call::<6>(first),
        7 => op.call::<7>(first),
        8 => op.call::<8>(first),
        9 => op.call::<9>(first),
        10 => op.call::<10>(first),
        _ => op.call::<11>(first),
    }
}

/// Rows of a matrix times one panel, stored: `out[r] = left[r] · panel`.
pub(super) struct Product<'a, S: Simd> {
    pub(super) simd: S,
    /// Rows of `depth` values, `left_step` apart.
    pub(super) left: &'a [f32],
    pub(super) left_step: usize,
    pub(super) depth: usize,
    /// (depth, PANEL) vectors.
    pub(super) panel: &'a [S::f32s],
    /// The panel that comes next.
    pub(super) soon: &'a [S::f32s],
    /// Rows of which PANEL vectors are written, `out_step` vectors apart.
    pub(super) out: &'a mut [S::f32s],
    pub(super) out_step: usize,
    /// Whether what `out` holds is added to.
    pub(super) add: bool,
}

impl<S: Simd> Group for Product<'_, S> {
    #[inline(always)]
    fn call<const ROWS: usize>(&mut self, first: usize) {
        let mut rows = [self.left; ROWS];
        let mut sums: Sums<S, ROWS> = [[self.simd.splat_f32s(0.0); PANEL]; ROWS];
        for r in 0..ROWS {
            rows[r] = &self.left[(first + r) * self.left_step..][..self.depth];
            if self.add {
                sums[r].copy_from_slice(&self.out[(first + r) * self.out_step..][..PANEL]);
            }
        }
        // Each group fetches its share.
        let soon = &self.soon[self.soon.len().min(first / ROWS * self.depth)..];
        accumulate(self.simd, &mut sums, rows, self.panel, soon);
        for (r, sums) in sums.iter().enumerate() {
            self.out[(first + r) * self.out_step..][..PANEL].copy_from_slice(sums);
        }
    }
}
