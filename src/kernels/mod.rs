//! CPU kernels of the encoder: f32 arithmetic over plain buffers, generic over the instruction set.
//!
//! A picture is (H, W, C), row-major: a pixel's channels lie together, so that vectors run along channels and a
//! product of a few pixels with a weight matrix reads both in order. All kernels take any channel count and any size.
//! Each is written once over [`pulp::Simd`] (AVX-512, AVX2 + FMA, NEON, scalar; found at run time), splits its work
//! over rayon's threads in a way that depends on sizes alone, and so gives the same bits for any number of threads.
//! Different instruction sets may differ in the last bits, since their sums are grouped differently.
//!
//! `plain` holds the twin of each kernel, in f64 and without tricks; the tests hold both against each other.

mod aligned;
mod attention;
mod cpu;
mod direct;
mod gemm;
mod moments;
mod norm;
#[cfg(test)]
mod plain;
#[cfg(test)]
mod samples;
mod scratch;
mod silu;
mod unshuffle;
mod winograd;

pub(crate) use aligned::Aligned;
pub(crate) use attention::attend;
pub(crate) use cpu::Cpu;
pub(crate) use direct::{Direct, Window};
pub(crate) use gemm::Panels;
pub(crate) use moments::Moments;
pub(crate) use norm::{Affine, Norm, Rms, normalise};
pub(crate) use unshuffle::{add_means, unshuffle};
pub(crate) use winograd::{Normed, Stride, Winograd, working_bytes};

/// Rows, columns and channels of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) height: usize,
    pub(crate) width: usize,
    pub(crate) channels: usize,
}

impl Shape {
    /// Values of a picture of this shape.
    pub(crate) fn len(self) -> usize {
        self.height * self.width * self.channels
    }
}
