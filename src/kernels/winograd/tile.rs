//! The transforms of Winograd's minimal filtering, one dimension at a time.
//!
//! F(m, r) makes m neighbouring outputs of an r-tap filter from m + r - 1 inputs with as many products, instead of m · r:
//! inputs and taps are seen as polynomials, multiplied at m + r - 2 points and infinity, and interpolated. In two
//! dimensions F(4 × 4, 3 × 3) takes 36 products for 16 outputs where the plain sum takes 144 (Lavin and Gray 2015). The
//! matrices follow from the points (Cook and Toom).

use pulp::Simd;

/// Outputs along a tile's side, m.
pub(super) const OUT: usize = 4;

/// Different weights along a side: each product belongs to one.
pub(super) const WEIGHTS: usize = 6;

/// A 3-tap filter that makes [`OUT`] outputs from `SIDE` inputs with `SIDE` products.
pub(super) trait Tile<const SIDE: usize>: Send + Sync + 'static {
    /// Inputs from a tile's first to the next one's.
    const STEP: usize;
    /// Inputs before the first output's place.
    const PAD: usize;

    /// What products are made with, out of the taps.
    fn taps<S: Simd>(simd: S, taps: [S::f32s; 3]) -> [S::f32s; WEIGHTS];
    /// Which of [`Tile::taps`] product `product` is made with.
    fn weight(product: usize) -> usize;
    /// What is multiplied, out of the inputs.
    fn input<S: Simd>(simd: S, inputs: [S::f32s; SIDE]) -> [S::f32s; SIDE];
    /// The outputs out of the products.
    fn output<S: Simd>(simd: S, products: [S::f32s; SIDE]) -> [S::f32s; OUT];
}

/// Every output: F(4, 3) at 0, 1, -1, 2, -2 and infinity.
pub(super) struct Same;

impl Tile<6> for Same {
    const STEP: usize = OUT;
    const PAD: usize = 1;

    #[inline(always)]
    fn taps<S: Simd>(simd: S, [a, b, c]: [S::f32s; 3]) -> [S::f32s; WEIGHTS] {
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

    #[inline(always)]
    fn weight(product: usize) -> usize {
        product
    }

    #[inline(always)]
    fn input<S: Simd>(simd: S, [a, b, c, d, e, f]: [S::f32s; 6]) -> [S::f32s; 6] {
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

    #[inline(always)]
    fn output<S: Simd>(simd: S, [a, b, c, d, e, f]: [S::f32s; 6]) -> [S::f32s; OUT] {
        let (even, odd) = (simd.add_f32s(b, c), simd.sub_f32s(b, c));
        let (even_2, odd_2) = (simd.add_f32s(d, e), simd.sub_f32s(d, e));
        [
            simd.add_f32s(simd.add_f32s(a, even), even_2),
            add_times(simd, 2.0, odd_2, odd),
            add_times(simd, 4.0, even_2, even),
            simd.add_f32s(add_times(simd, 8.0, odd_2, odd), f),
        ]
    }
}

/// Every other output, of inputs right of it: the even inputs through F(4, 2) at 0, 1, -1, 2 and infinity, the odd ones
/// times the middle tap. 81 products for 16 outputs instead of 144.
pub(super) struct Halving;

impl Tile<9> for Halving {
    const STEP: usize = 2 * OUT;
    const PAD: usize = 0;

    #[inline(always)]
    fn taps<S: Simd>(simd: S, [a, b, c]: [S::f32s; 3]) -> [S::f32s; WEIGHTS] {
        [
            times(simd, 1.0 / 2.0, a),
            times(simd, -1.0 / 2.0, simd.add_f32s(a, c)),
            times(simd, -1.0 / 6.0, simd.sub_f32s(a, c)),
            times(simd, 1.0 / 6.0, add_times(simd, 2.0, c, a)),
            c,
            b,
        ]
    }

    #[inline(always)]
    fn weight(product: usize) -> usize {
        product.min(5)
    }

    #[inline(always)]
    fn input<S: Simd>(simd: S, [a, p, b, q, c, r, d, s, e]: [S::f32s; 9]) -> [S::f32s; 9] {
        let high = simd.sub_f32s(d, b);
        [
            add_times(simd, 2.0, simd.sub_f32s(a, c), high),
            add_times(simd, -2.0, b, simd.sub_f32s(d, c)),
            add_times(simd, 2.0, b, add_times(simd, -3.0, c, d)),
            high,
            add_times(simd, -2.0, high, simd.sub_f32s(e, c)),
            p,
            q,
            r,
            s,
        ]
    }

    #[inline(always)]
    fn output<S: Simd>(simd: S, [a, b, c, d, e, p, q, r, s]: [S::f32s; 9]) -> [S::f32s; OUT] {
        let (even, odd) = (simd.add_f32s(b, c), simd.sub_f32s(b, c));
        [
            simd.add_f32s(simd.add_f32s(a, even), simd.add_f32s(d, p)),
            add_times(simd, 2.0, d, simd.add_f32s(odd, q)),
            add_times(simd, 4.0, d, simd.add_f32s(even, r)),
            add_times(simd, 8.0, d, simd.add_f32s(simd.add_f32s(odd, e), s)),
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
