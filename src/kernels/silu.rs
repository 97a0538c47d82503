//! exp and SiLU on vectors.

use pulp::Simd;

/// e^x to within 2 units in the last place; x is clamped to ±87, where f32 holds e^x as a normal number.
#[inline(always)]
pub(super) fn exp<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    // 1.5 · 2^23: adding it rounds to an integer, which then stands in the sum's low bits.
    const ROUNDER: f32 = 12_582_912.0;
    // ln 2 in two parts, the first exact in few bits (Cephes `expf`).
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    // Of e^r on ±ln 2 / 2, highest power first: the least greatest relative error, 2e-9 before rounding.
    const POLYNOMIAL: [f32; 7] = [1.383_684_4e-3, 8.374_816e-3, 4.166_822_5e-2, 0.166_664_2, 0.499_999_9, 1.0, 1.0];
    let x = clamp(simd, x, simd.splat_f32s(-87.0), simd.splat_f32s(87.0));
    let rounder = simd.splat_f32s(ROUNDER);
    let shifted = simd.mul_add_e_f32s(x, simd.splat_f32s(std::f32::consts::LOG2_E), rounder);
    let n = simd.sub_f32s(shifted, rounder);
    let r = simd.mul_add_e_f32s(n, simd.splat_f32s(-LN_2_HIGH), x);
    let r = simd.mul_add_e_f32s(n, simd.splat_f32s(-LN_2_LOW), r);
    let mut p = simd.splat_f32s(POLYNOMIAL[0]);
    for factor in &POLYNOMIAL[1..] {
        p = simd.mul_add_e_f32s(p, r, simd.splat_f32s(*factor));
    }
    let exponent = simd.wrapping_dyn_shl_u32s(simd.transmute_u32s_f32s(shifted), simd.splat_u32s(23));
    let power = simd.transmute_f32s_u32s(simd.add_u32s(exponent, simd.splat_u32s(127 << 23)));
    simd.mul_f32s(p, power)
}

/// `x` between `low` and `high`; NaN stays NaN, so that an overflow is found in the end.
#[inline(always)]
fn clamp<S: Simd>(simd: S, x: S::f32s, low: S::f32s, high: S::f32s) -> S::f32s {
    if S::IS_SCALAR {
        // Rust's own maximum of a NaN and a number is the number.
        let x = simd.select_f32s(simd.less_than_f32s(x, low), low, x);
        simd.select_f32s(simd.less_than_f32s(high, x), high, x)
    } else {
        // In this order of operands x86 and ARM hand a NaN on.
        simd.min_f32s(high, simd.max_f32s(low, x))
    }
}

/// 1 / x to within 2 units in the last place, for normal x > 0 whose inverse is normal.
///
/// Newton's steps from a guess made of the bits (error 12 %, squared by each step): a vector division takes longer
/// than all of them.
#[inline(always)]
fn reciprocal<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    let two = simd.splat_f32s(2.0);
    let bits = simd.sub_u32s(simd.splat_u32s(0x7ef3_11c7), simd.transmute_u32s_f32s(x));
    let mut inverse = simd.transmute_f32s_u32s(bits);
    for _ in 0..3 {
        inverse = simd.mul_f32s(inverse, simd.negate_mul_add_e_f32s(x, inverse, two));
    }
    inverse
}

/// x · sigmoid(x).
#[inline(always)]
pub(super) fn silu<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    let one = simd.splat_f32s(1.0);
    simd.mul_f32s(x, reciprocal(simd, simd.add_f32s(one, exp(simd, simd.neg_f32s(x)))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::cpu::{load, store};
    use crate::kernels::{Cpu, plain};
    use pulp::WithSimd;

    struct Map<'a>(&'a mut [f32], bool);

    impl WithSimd for Map<'_> {
        type Output = ();
        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) {
            for values in self.0.chunks_mut(S::F32_LANES) {
                let x = load(simd, values);
                store(simd, values, if self.1 { silu(simd, x) } else { exp(simd, x) });
            }
        }
    }

    #[test]
    fn both_are_exact_to_a_few_units_in_the_last_place() {
        let inputs: Vec<f32> = (-88_000..=88_000).map(|i| i as f32 / 1000.0).collect();
        for cpu in Cpu::all() {
            let (mut exps, mut silus) = (inputs.clone(), inputs.clone());
            cpu.run(Map(&mut exps, false));
            cpu.run(Map(&mut silus, true));
            for ((&x, &exp), &silu) in inputs.iter().zip(&exps).zip(&silus) {
                let wide = f64::from(x);
                let exact = wide.clamp(-87.0, 87.0).exp();
                assert!((f64::from(exp) / exact - 1.0).abs() < 3e-7, "{cpu:?}: exp({x}) = {exp}");
                let exact = plain::silu(wide);
                let off = (f64::from(silu) - exact).abs();
                assert!(off < 4e-7 * exact.abs() + 1e-36, "{cpu:?}: silu({x}) = {silu}, not {exact}");
            }
        }
    }

    #[test]
    fn what_is_not_finite_does_not_come_out_as_a_number() {
        for cpu in Cpu::all() {
            let mut values = [f32::NAN, f32::INFINITY, 1e38, -1e38];
            cpu.run(Map(&mut values, true));
            assert!(values[0].is_nan() && !values[1].is_finite(), "{cpu:?}: {values:?}");
            assert!((values[2] / 1e38 - 1.0).abs() < 1e-6 && values[3].abs() < 10.0, "{cpu:?}: {values:?}");
            let mut values = [f32::NAN; 1];
            cpu.run(Map(&mut values, false));
            assert!(values[0].is_nan(), "{cpu:?}: {values:?}");
        }
    }
}
