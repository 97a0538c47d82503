//! softmax(query · keys) · values without the matrix of all scores.

use super::Cpu;
use super::gemm::{PANEL, Panels, Product, in_groups};
use super::scratch::with_scratch;
use super::silu::exp;
use pulp::{Simd, WithSimd};
use rayon::prelude::*;

/// Query rows of a task: the keys and values are read once for each.
const QUERIES: usize = 96;
/// Keys whose scores are held at a time; a multiple of every panel's width.
const KEYS: usize = 256;

/// One head: `query` is (T, C), scaled already; `keys` is (C, T), `values` (T, C); `out` is (T, C).
///
/// The running maximum and sum of each row are corrected from block to block of keys (Milakov and Gimelshein 2018),
/// so that a thread holds QUERIES × KEYS scores whatever T is.
pub(crate) fn attend(cpu: Cpu, query: &[f32], keys: &Panels<&[f32]>, values: &Panels<&[f32]>, out: &mut [f32]) {
    let channels = values.columns();
    let tasks = query.par_chunks(QUERIES * keys.depth()).zip(out.par_chunks_mut(QUERIES * channels));
    tasks.for_each(|(query, out)| {
        let padded = values.count() * cpu.panel_width();
        with_scratch(QUERIES * (KEYS + padded), |scratch| {
            let (scores, sums) = scratch.split_at_mut(QUERIES * KEYS);
            cpu.run(Task { query, keys, values, out, scores, sums });
        });
    });
}

struct Task<'a> {
    query: &'a [f32],
    keys: &'a Panels<&'a [f32]>,
    values: &'a Panels<&'a [f32]>,
    out: &'a mut [f32],
    scores: &'a mut [f32],
    /// Weighted sums of values, (rows, C filled up to whole panels).
    sums: &'a mut [f32],
}

/// What a row knows of the keys so far.
#[derive(Clone, Copy)]
struct Running {
    maximum: f32,
    total: f32,
}

impl WithSimd for Task<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let rows = self.query.len() / self.keys.depth();
        let mut running = [Running { maximum: f32::NEG_INFINITY, total: 0.0 }; QUERIES];
        self.sums.fill(0.0);
        for first in (0..self.keys.columns()).step_by(KEYS) {
            let keys = KEYS.min(self.keys.columns() - first);
            self.score(simd, rows, first, keys);
            for (row, running) in running[..rows].iter_mut().enumerate() {
                self.weigh(simd, row, keys, running);
            }
            self.add_values(simd, rows, first, keys);
        }
        let (channels, padded) = (self.values.columns(), self.sums.len() / QUERIES);
        let rows = self.out.chunks_exact_mut(channels).zip(self.sums.chunks_exact(padded)).zip(&running);
        for ((out, sums), running) in rows {
            let factor = 1.0 / running.total;
            out.iter_mut().zip(sums).for_each(|(out, sum)| *out = sum * factor);
        }
    }
}

impl Task<'_> {
    /// Scores of all rows with keys `first..first + keys`; those beyond the last key are minus infinity.
    #[inline(always)]
    fn score<S: Simd>(&mut self, simd: S, rows: usize, first: usize, keys: usize) {
        let (width, depth) = (PANEL * S::F32_LANES, self.keys.depth());
        let panels = keys.div_ceil(width);
        for panel in 0..panels {
            let out = &mut S::as_mut_simd_f32s(self.scores).0[panel * PANEL..];
            let soon = if panel + 1 < panels {
                self.keys.panel(first / width + panel + 1, 0, depth)
            } else {
                self.values.panel(0, first, keys)
            };
            let soon = S::as_simd_f32s(soon).0;
            let panel = S::as_simd_f32s(self.keys.panel(first / width + panel, 0, depth)).0;
            let (left, out_step) = (self.query, KEYS / S::F32_LANES);
            in_groups::<S>(
                rows,
                &mut Product { simd, left, left_step: depth, depth, panel, soon, out, out_step, add: false },
            );
        }
        for row in self.scores.chunks_exact_mut(KEYS) {
            row[keys..keys.next_multiple_of(width)].fill(f32::NEG_INFINITY);
        }
    }

    /// Turns a row's scores into weights e^(score - maximum), and rescales what was summed under a lower maximum.
    #[inline(always)]
    fn weigh<S: Simd>(&mut self, simd: S, row: usize, keys: usize, running: &mut Running) {
        let scores = S::as_mut_simd_f32s(&mut self.scores[row * KEYS..][..keys.next_multiple_of(S::F32_LANES)]).0;
        let mut highest = simd.splat_f32s(f32::NEG_INFINITY);
        for score in scores.iter() {
            highest = simd.max_f32s(highest, *score);
        }
        let maximum = running.maximum.max(simd.reduce_max_f32s(highest));
        let (pivot, mut total) = (simd.splat_f32s(maximum), simd.splat_f32s(0.0));
        for score in scores.iter_mut() {
            *score = exp(simd, simd.sub_f32s(*score, pivot));
            total = simd.add_f32s(total, *score);
        }
        if maximum > running.maximum {
            let factor = (running.maximum - maximum).exp();
            running.total *= factor;
            let padded = self.sums.len() / QUERIES;
            for sum in S::as_mut_simd_f32s(&mut self.sums[row * padded..][..padded]).0 {
                *sum = simd.mul_f32s(*sum, simd.splat_f32s(factor));
            }
        }
        *running = Running { maximum, total: running.total + simd.reduce_sum_f32s(total) };
    }

    #[inline(always)]
    fn add_values<S: Simd>(&mut self, simd: S, rows: usize, first: usize, keys: usize) {
        let out_step = self.values.count() * PANEL;
        for panel in 0..self.values.count() {
            let out = &mut S::as_mut_simd_f32s(self.sums).0[panel * PANEL..];
            let soon = S::as_simd_f32s(self.values.panel((panel + 1) % self.values.count(), first, keys)).0;
            let panel = S::as_simd_f32s(self.values.panel(panel, first, keys)).0;
            let left = &*self.scores;
            in_groups::<S>(
                rows,
                &mut Product { simd, left, left_step: KEYS, depth: keys, panel, soon, out, out_step, add: true },
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::plain;
    use crate::kernels::samples::{far, values};
    use proptest::prelude::*;

    fn check(tokens: usize, channels: usize, spread: f32, seed: u64) -> Result<(), TestCaseError> {
        let mut query = values(seed, tokens * channels);
        query.iter_mut().for_each(|value| *value *= spread);
        let (keys, values) = (values(seed + 1, tokens * channels), values(seed + 2, tokens * channels));
        let expected = plain::attend(&query, &keys, &values, channels);
        for cpu in Cpu::all() {
            // More than is needed and full of NaN: neither what lies behind nor the panels' filling may count.
            let room = (tokens + 32) * (channels + 32);
            let (mut packed_keys, mut packed_values) = (vec![f32::NAN; room], vec![f32::NAN; room]);
            let keys = Panels::pack_into(cpu, channels, tokens, |k, n| keys[n * channels + k], &mut packed_keys);
            let values = Panels::pack_into(cpu, tokens, channels, |k, n| values[k * channels + n], &mut packed_values);
            let mut got = vec![f32::NAN; tokens * channels];
            attend(cpu, &query, &keys, &values, &mut got);
            prop_assert!(far(&got, &expected) < 5e-5, "{cpu:?}: {}", far(&got, &expected));
        }
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn attention_equals_its_plain_twin(
            tokens in 1usize..300,
            channels in 1usize..48,
            spread in 0.01f32..8.0,
            seed: u64,
        ) {
            check(tokens, channels, spread, seed)?;
        }
    }

    #[test]
    fn scores_far_below_zero_and_far_apart_do_not_vanish() {
        check(700, 3, 60.0, 3).unwrap();
    }
}
