//! The transforms of Winograd's minimal filtering, one dimension at a time.
//!
//! F(m, 3) makes m neighbouring outputs of a 3-tap filter from m + 2 inputs with m + 2 products instead of 3 m: inputs
//! and taps are seen as polynomials, multiplied at m + 1 points and infinity, and interpolated. In two dimensions
//! F(4 × 4) takes 36 products for 16 outputs where the plain sum takes 144 (Lavin and Gray 2015). The
//! matrices follow from the points (Cook and Toom); `tests` hold each against the plain sum.

use pulp::Simd;

/// The most inputs of a tile along one side.
pub(super) const MAX_SIDE: usize = 8;

/// A vector for each place along one side of a tile; those beyond [`Tile::SIDE`] have no meaning.
pub(super) type Line<S> = [<S as Simd>::f32s; MAX_SIDE];

/// One choice of m and of points.
pub(super) trait Tile: Send + Sync + 'static {
    /// Outputs along a side, m.
    const OUT: usize;
    /// Inputs and products along a side, m + 2.
    const SIDE: usize = Self::OUT + 2;

    /// The taps' values at the points.
    fn taps<S: Simd>(simd: S, taps: [S::f32s; 3]) -> Line<S>;
    /// The inputs' values at the points.
    fn input<S: Simd>(simd: S, input: Line<S>) -> Line<S>;
    /// The outputs out of the products at the points; the first [`Tile::OUT`] count.
    fn output<S: Simd>(simd: S, products: Line<S>) -> Line<S>;
}

/// F(4, 3) at 0, ±1, ±2 and infinity.
pub(super) struct F4;

impl Tile for F4 {
    const OUT: usize = 4;

    #[inline(always)]
    fn taps<S: Simd>(simd: S, [a, b, c]: [S::f32s; 3]) -> Line<S> {
        let zero = simd.splat_f32s(0.0);
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
            zero,
            zero,
        ]
    }

    #[inline(always)]
    fn input<S: Simd>(simd: S, [a, b, c, d, e, f, ..]: Line<S>) -> Line<S> {
        let zero = simd.splat_f32s(0.0);
        let (even, odd) = (add_times(simd, -4.0, c, e), add_times(simd, -4.0, b, d));
        let (even_2, odd_2) = (simd.sub_f32s(e, c), simd.sub_f32s(d, b));
        [
            add_times(simd, 4.0, a, add_times(simd, -5.0, c, e)),
            simd.add_f32s(even, odd),
            simd.sub_f32s(even, odd),
            add_times(simd, 2.0, odd_2, even_2),
            add_times(simd, -2.0, odd_2, even_2),
            add_times(simd, 4.0, b, add_times(simd, -5.0, d, f)),
            zero,
            zero,
        ]
    }

    #[inline(always)]
    fn output<S: Simd>(simd: S, [a, b, c, d, e, f, ..]: Line<S>) -> Line<S> {
        let zero = simd.splat_f32s(0.0);
        let (even, odd) = (simd.add_f32s(b, c), simd.sub_f32s(b, c));
        let (even_2, odd_2) = (simd.add_f32s(d, e), simd.sub_f32s(d, e));
        [
            simd.add_f32s(simd.add_f32s(a, even), even_2),
            add_times(simd, 2.0, odd_2, odd),
            add_times(simd, 4.0, even_2, even),
            simd.add_f32s(add_times(simd, 8.0, odd_2, odd), f),
            zero,
            zero,
            zero,
            zero,
        ]
    }
}

/// F(6, 3) at 0, ±1, ±2, ±1/2 and infinity.
pub(super) struct F6;

impl Tile for F6 {
    const OUT: usize = 6;

    #[inline(always)]
    fn taps<S: Simd>(simd: S, [a, b, c]: [S::f32s; 3]) -> Line<S> {
        let even = simd.add_f32s(a, c);
        let (even_2, odd_2) = (add_times(simd, 4.0, c, a), times(simd, 2.0, b));
        let (even_half, odd_half) = (add_times(simd, 4.0, a, c), times(simd, 2.0, b));
        [
            a,
            times(simd, -2.0 / 9.0, simd.add_f32s(even, b)),
            times(simd, -2.0 / 9.0, simd.sub_f32s(even, b)),
            times(simd, 1.0 / 90.0, simd.add_f32s(even_2, odd_2)),
            times(simd, 1.0 / 90.0, simd.sub_f32s(even_2, odd_2)),
            times(simd, 8.0 / 45.0, simd.add_f32s(even_half, odd_half)),
            times(simd, 8.0 / 45.0, simd.sub_f32s(even_half, odd_half)),
            c,
        ]
    }

    #[inline(always)]
    fn input<S: Simd>(simd: S, [a, b, c, d, e, f, g, h]: Line<S>) -> Line<S> {
        let even = add_times(simd, -4.25, e, simd.add_f32s(c, g));
        let odd = add_times(simd, -4.25, d, simd.add_f32s(b, f));
        let even_2 = add_times(simd, 0.25, c, add_times(simd, -1.25, e, g));
        let odd_2 = add_times(simd, 0.5, b, add_times(simd, -2.5, d, times(simd, 2.0, f)));
        let even_half = add_times(simd, 4.0, c, add_times(simd, -5.0, e, g));
        let odd_half = add_times(simd, 2.0, b, add_times(simd, -2.5, d, times(simd, 0.5, f)));
        [
            add_times(simd, 5.25, simd.sub_f32s(e, c), simd.sub_f32s(a, g)),
            simd.add_f32s(even, odd),
            simd.sub_f32s(even, odd),
            simd.add_f32s(even_2, odd_2),
            simd.sub_f32s(even_2, odd_2),
            simd.add_f32s(even_half, odd_half),
            simd.sub_f32s(even_half, odd_half),
            add_times(simd, 5.25, simd.sub_f32s(d, f), simd.sub_f32s(h, b)),
        ]
    }

    #[inline(always)]
    fn output<S: Simd>(simd: S, [a, b, c, d, e, f, g, h]: Line<S>) -> Line<S> {
        let zero = simd.splat_f32s(0.0);
        let (even, odd) = (simd.add_f32s(b, c), simd.sub_f32s(b, c));
        let (even_2, odd_2) = (simd.add_f32s(d, e), simd.sub_f32s(d, e));
        let (even_half, odd_half) = (simd.add_f32s(f, g), simd.sub_f32s(f, g));
        [
            simd.add_f32s(simd.add_f32s(a, even), simd.add_f32s(even_2, even_half)),
            add_times(simd, 0.5, odd_half, add_times(simd, 2.0, odd_2, odd)),
            add_times(simd, 0.25, even_half, add_times(simd, 4.0, even_2, even)),
            add_times(simd, 0.125, odd_half, add_times(simd, 8.0, odd_2, odd)),
            add_times(simd, 1.0 / 16.0, even_half, add_times(simd, 16.0, even_2, even)),
            simd.add_f32s(add_times(simd, 1.0 / 32.0, odd_half, add_times(simd, 32.0, odd_2, odd)), h),
            zero,
            zero,
        ]
    }
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
