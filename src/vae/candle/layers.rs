//! The layers that the blocks are made of.

use crate::vae::layout::NORM_GROUPS;
use candle_core::{DType, Device, Result, Tensor};
use candle_nn::VarBuilder;

/// diffusers `resnet_eps` and the attention's `eps` in these encoders.
const NORM_EPS: f64 = 1e-6;

/// The least root of a sum of squares that is divided by (`torch.nn.functional.normalize`'s `eps`).
const NORMALISE_EPS: f64 = 1e-12;

pub(super) struct Linear {
    /// (C in, C out), transposed once.
    weight: Tensor,
    bias: Tensor,
}

impl Linear {
    pub(super) fn new(channels: usize, vb: VarBuilder) -> Result<Self> {
        let weight = vb.get((channels, channels), "weight")?.t()?.contiguous()?;
        Ok(Self { weight, bias: vb.get(channels, "bias")? })
    }

    /// (N, T, C) → (N, T, C).
    pub(super) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (n, t, c) = x.dims3()?;
        matmul(&x.reshape((n * t, c))?, &self.weight)?.broadcast_add(&self.bias)?.reshape((n, t, c))
    }
}

pub(super) struct Conv2d {
    weight: Tensor,
    /// (1, C, 1, 1)
    bias: Tensor,
    padding: usize,
    stride: usize,
}

impl Conv2d {
    /// `side` × `side` taps, the size kept.
    pub(super) fn new(into: usize, out: usize, side: usize, vb: VarBuilder) -> Result<Self> {
        let weight = vb.get((out, into, side, side), "weight")?;
        let bias = vb.get(out, "bias")?.reshape((1, out, 1, 1))?;
        Ok(Self { weight, bias, padding: side / 2, stride: 1 })
    }

    /// 3 × 3 taps on every other pixel of an input that its caller has padded.
    pub(super) fn halving(channels: usize, vb: VarBuilder) -> Result<Self> {
        Ok(Self { padding: 0, stride: 2, ..Self::new(channels, channels, 3, vb)? })
    }

    pub(super) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (padding, stride) = (self.padding, self.stride);
        let product = in_supported_dtype(x, &self.weight, |x, weight| x.conv2d(weight, padding, stride, 1, 1))?;
        product.broadcast_add(&self.bias)
    }
}

/// The norm of a network.
pub(super) enum Norm {
    Group(GroupNorm),
    Rms(RmsNorm),
}

impl Norm {
    /// By groups of channels, or pixel by pixel.
    pub(super) fn new(channels: usize, by_pixel: bool, vb: VarBuilder) -> Result<Self> {
        Ok(if by_pixel { Self::Rms(RmsNorm::new(channels, vb)?) } else { Self::Group(GroupNorm::new(channels, vb)?) })
    }

    /// (N, C, H, W) → (N, C, H, W); statistics and arithmetic in f32 for half types too.
    pub(super) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        match self {
            Self::Group(norm) => norm.forward(x),
            Self::Rms(norm) => norm.forward(x),
        }
    }
}

pub(super) struct RmsNorm {
    /// (1, C, 1, 1), f32: gamma times √C.
    scale: Tensor,
}

impl RmsNorm {
    pub(super) fn new(channels: usize, vb: VarBuilder) -> Result<Self> {
        let gamma = vb.get(channels, "weight")?.to_dtype(DType::F32)?.reshape((1, channels, 1, 1))?;
        Ok(Self { scale: (gamma * (channels as f64).sqrt())? })
    }

    pub(super) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let wide = x.to_dtype(DType::F32)?;
        let root = wide.sqr()?.sum_keepdim(1)?.sqrt()?.maximum(NORMALISE_EPS)?;
        // Rebinding drops each intermediate as soon as the next one exists.
        let mut normed = wide.broadcast_div(&root)?;
        drop(wide);
        normed = normed.broadcast_mul(&self.scale)?;
        normed.to_dtype(x.dtype())
    }
}

pub(super) struct GroupNorm {
    /// (1, groups, C / groups), f32
    weight: Tensor,
    /// (1, C, 1, 1), f32
    bias: Tensor,
}

impl GroupNorm {
    pub(super) fn new(channels: usize, vb: VarBuilder) -> Result<Self> {
        let get = |name| vb.get(channels, name)?.to_dtype(DType::F32);
        Ok(Self {
            weight: get("weight")?.reshape((1, NORM_GROUPS, channels / NORM_GROUPS))?,
            bias: get("bias")?.reshape((1, channels, 1, 1))?,
        })
    }

    /// (N, C, H, W) → (N, C, H, W); statistics and arithmetic in f32 for half types too.
    pub(super) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (n, c, h, w) = x.dims4()?;
        let grouped = x.reshape((n, NORM_GROUPS, c / NORM_GROUPS * h, w))?.to_dtype(DType::F32)?;
        let centred = grouped.broadcast_sub(&group_mean(&grouped)?.unsqueeze(3)?)?;
        drop(grouped);
        let variance = group_mean(&centred.sqr()?)?;
        // (N, groups, 1) · (1, groups, C / groups): one pass over the picture for both factors.
        let scale = (variance + NORM_EPS)?.sqrt()?.recip()?.broadcast_mul(&self.weight)?.reshape((n, c, 1, 1))?;
        let scaled = centred.reshape((n, c, h, w))?.broadcast_mul(&scale)?;
        drop(centred);
        scaled.broadcast_add(&self.bias)?.to_dtype(x.dtype())
    }
}

/// (N, groups, rows, W) → (N, groups, 1), f32. Row by row in f32, the rows' means in f64: one f32 sum over a million
/// values, of a plain sky say, loses four digits.
fn group_mean(x: &Tensor) -> Result<Tensor> {
    x.mean(3)?.to_dtype(DType::F64)?.mean_keepdim(2)?.to_dtype(DType::F32)
}

pub(super) fn matmul(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    in_supported_dtype(a, b, Tensor::matmul)
}

/// Runs `product` in the operands' dtype, or, for bf16 on the CPU, whose products candle 0.11 lacks, in f32 with the
/// result rounded back: operands and results are bf16 as on a GPU, which accumulates in f32 as well.
fn in_supported_dtype(a: &Tensor, b: &Tensor, product: impl Fn(&Tensor, &Tensor) -> Result<Tensor>) -> Result<Tensor> {
    match (a.dtype(), a.device()) {
        (DType::BF16, Device::Cpu) => {
            product(&a.to_dtype(DType::F32)?, &b.to_dtype(DType::F32)?)?.to_dtype(DType::BF16)
        }
        _ => product(a, b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A plain sky with a faint gradient, the picture on which one f32 sum goes wrong, against statistics in f64.
    #[test]
    fn the_norm_of_a_large_plain_surface_keeps_its_digits() {
        const SIDE: usize = 512;
        let values: Vec<f32> = (0..SIDE * SIDE).map(|i| 0.9 + 1e-3 * ((i % 97) as f32 / 97.0)).collect();
        let planes: Vec<f32> = values.iter().copied().cycle().take(32 * values.len()).collect();
        let x = Tensor::from_vec(planes, (1, 32, SIDE, SIDE), &Device::Cpu).unwrap();
        let ones = Tensor::ones((1, 32, 1), DType::F32, &Device::Cpu).unwrap();
        let zeros = Tensor::zeros((1, 32, 1, 1), DType::F32, &Device::Cpu).unwrap();
        let got = GroupNorm { weight: ones, bias: zeros }.forward(&x).unwrap();
        let got: Vec<f32> = got.get(0).unwrap().get(0).unwrap().flatten_all().unwrap().to_vec1().unwrap();
        let exact = values.iter().map(|&value| f64::from(value));
        let mean = exact.clone().sum::<f64>() / values.len() as f64;
        let variance = exact.clone().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len() as f64;
        let worst =
            exact.zip(got).map(|(value, got)| ((value - mean) / (variance + NORM_EPS).sqrt() - f64::from(got)).abs());
        // Subtracting a mean rounded to f32 costs up to 6e-8 / 6e-4 here; a plain f32 sum costs 100 times as much.
        assert!(worst.fold(0.0, f64::max) < 2e-4);
    }
}
