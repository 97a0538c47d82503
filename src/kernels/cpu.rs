//! The instruction set that kernels run on.

use super::gemm::PANEL;
use pulp::{Arch, Simd, WithSimd};

/// An instruction set of this machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cpu(Arch);

impl Cpu {
    /// The widest that this machine has.
    pub(crate) fn detect() -> Self {
        Self(Arch::new())
    }

    /// Each that this machine has, scalar included.
    #[cfg(test)]
    pub(crate) fn all() -> Vec<Self> {
        let mut all = vec![Self(Arch::new()), Self(Arch::Scalar)];
        #[cfg(target_arch = "x86_64")]
        all.extend(pulp::x86::V3::try_new().map(|simd| Self(Arch::V3(simd))));
        all
    }

    /// Runs `op` compiled for this instruction set.
    #[inline]
    pub(super) fn run<Op: WithSimd>(self, op: Op) -> Op::Output {
        self.0.dispatch(op)
    }

    /// Values of a vector.
    pub(crate) fn lanes(self) -> usize {
        struct Lanes;
        impl WithSimd for Lanes {
            type Output = usize;
            #[inline(always)]
            fn with_simd<S: Simd>(self, _: S) -> usize {
                S::F32_LANES
            }
        }
        self.run(Lanes)
    }

    /// Columns of a weight panel.
    pub(super) fn panel_width(self) -> usize {
        PANEL * self.lanes()
    }
}

/// The first vector of `values`, filled up with zeros where they are fewer than a vector.
#[inline(always)]
pub(super) fn load<S: Simd>(simd: S, values: &[f32]) -> S::f32s {
    match S::as_simd_f32s(values).0.first() {
        Some(vector) => *vector,
        None => simd.partial_load_f32s(values),
    }
}

/// Writes `vector`, or as much of it as fits, to the start of `values`.
#[inline(always)]
pub(super) fn store<S: Simd>(simd: S, values: &mut [f32], vector: S::f32s) {
    match S::as_mut_simd_f32s(values).0.first_mut() {
        Some(first) => *first = vector,
        None => simd.partial_store_f32s(values, vector),
    }
}
