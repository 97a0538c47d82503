//! Random values for the kernels' tests, and how far results are apart.

use super::Moments;
use super::plain;

/// Values in [-1, 1) that depend on `seed` alone.
pub(super) fn values(seed: u64, len: usize) -> Vec<f32> {
    let mut state = seed ^ 0x9e37_79b9_7f4a_7c15;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 40
    };
    (0..len).map(|_| next() as f32 / (1 << 23) as f32 - 1.0).collect()
}

pub(super) fn widen(values: &[f32]) -> Vec<f64> {
    values.iter().map(|value| f64::from(*value)).collect()
}

/// The greatest difference, over the root mean square of what is expected (at least 1e-3); infinite for NaN.
pub(super) fn far(got: &[f32], expected: &[f64]) -> f64 {
    assert_eq!(got.len(), expected.len());
    let square = expected.iter().map(|value| value * value).sum::<f64>() / expected.len() as f64;
    let worst = got.iter().zip(expected).map(|(got, expected)| (f64::from(*got) - expected).abs());
    let worst = worst.fold(0.0, |worst: f64, off| if off.is_nan() { f64::INFINITY } else { worst.max(off) });
    worst / square.sqrt().max(1e-3)
}

/// True if `moments` are those of the channels of `x`.
pub(super) fn same_moments(moments: &[Moments], x: &[f32]) -> bool {
    let count = (x.len() / moments.len()) as f64;
    moments.iter().zip(plain::moments(&widen(x), moments.len())).all(|(got, (mean, variance))| {
        let close = |a: f64, b: f64| (a - b).abs() < 1e-5 * (1.0 + b.abs());
        got.count == count && close(got.mean, mean) && close(got.deviations / count, variance)
    })
}
