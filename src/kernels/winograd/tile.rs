//! The transforms of Winograd's minimal filtering, one dimension at a time.
//!
//! F(m, 3) makes m neighbouring outputs of a 3-tap filter from m + 2 inputs with m + 2 products instead of 3 m: inputs
//! and taps are seen as polynomials, multiplied at m + 1 points and infinity, and interpolated. In two dimensions
//! F(4 × 4) takes 36 products for 16 outputs where the plain sum takes 144 (Lavin and Gray 2015). The
//! matrices follow from the points (Cook and Toom); `tests` hold each against the plain sum.

use pulp::Simd;

/// Outputs along a tile's side, m.
pub(super) const OUT: usize = 4;
/// Inputs and products along a tile's side, m + 2.
pub(super) const SIDE: usize = OUT + 2;
/// Products of a tile.
pub(super) const POINTS: usize = SIDE * SIDE;

/// A vector for each place along a side of a tile.
pub(super) type Line<S> = [<S as Simd>::f32s; SIDE];

/// The taps' values at the points 0, 1, -1, 2, -2 and infinity.
#[inline(always)]
pub(super) fn taps<S: Simd>(simd: S, [a, b, c]: [S::f32s; 3]) -> Line<S> {
    let even = simd.add_f32s(a, c);
    let even_2 = simd.mul_add_e_f32s(simd.splat_f32s(4.0), c, a);
    let odd_2 = times(simd, 2.0, b);
    [
        times(simd, 1.0 / 4.0, a),
        times(simd, -1.0 / 6.0, simd.add_f32s(even, b)),
        times(simd, -1.0 / 6.0, simd.sub_f32s(even, b)),
        times(simd, 1.0 / 24.0, simd.add_f32s(even_2, odd_2)),
        times(simd, 1.0 / 24.0, simd.sub_f32s(even_2, odd_2)),
        c,
    ]
}

/// The inputs' values at the points.
#[inline(always)]
pub(super) fn input<S: Simd>(simd: S, [a, b, c, d, e, f]: Line<S>) -> Line<S> {
    let (even, odd) = (add_times(simd, -4.0, c, e), add_times(simd, -4.0, b, d));
    let (even_2, odd_2) = (simd.sub_f32s(e, c), simd.sub_f32s(d, b));
    [
        add_times(simd, 4.0, a, add_times(simd, -5.0, c, e)),
        simd.add_f32s(even, odd),
        simd.sub_f32s(even, odd),
        add_times(simd, 2.0, odd_2, even_2),
        add_times(simd, -2.0, odd_2, even_2),
        add_times(simd, 4.0, b, add_times(simd, -5.0, d, f)),
    ]
}

/// The outputs out of the products at the points.
#[inline(always)]
pub(super) fn output<S: Simd>(simd: S, [a, b, c, d, e, f]: Line<S>) -> [S::f32s; OUT] {
    let (even, odd) = (simd.add_f32s(b, c), simd.sub_f32s(b, c));
    let (even_2, odd_2) = (simd.add_f32s(d, e), simd.sub_f32s(d, e));
    [
        simd.add_f32s(simd.add_f32s(a, even), even_2),
        add_times(simd, 2.0, odd_2, odd),
        add_times(simd, 4.0, even_2, even),
        simd.add_f32s(add_times(simd, 8.0, odd_2, odd), f),
    ]
}

/// factor · value.
#[inline(always)]
fn times<S: Simd>(simd: S, factor: f32, value: S::f32s) -> S::f32s {
    simd.mul_f32s(simd.splat_f32s(factor), value)
}

/// factor · value + to.
#[inline(always)]
fn add_times<S: Simd>(simd: S, factor: f32, value: S::f32s, to: S::f32s) -> S::f32s {
    simd.mul_add_e_f32s(simd.splat_f32s(factor), value, to)
}
