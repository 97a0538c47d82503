//! The encoder as candle operations. Field names equal diffusers' names, so `vb.pp(…)` reads like the checkpoint.
//!
//! Structure after diffusers `models/autoencoders/vae.py` (`Encoder`) and `models/resnet.py` (0.32). Shapes are
//! (N, C, H, W) throughout. Values are taken by value where a block can drop them early: an activation of the first
//! level is 512 MiB at 1024².

use crate::vae::layout::{EncoderLayout, NORM_GROUPS};
use candle_core::{D, DType, Device, Result, Tensor};
use candle_nn::VarBuilder;
use candle_nn::ops::softmax_last_dim;

/// diffusers `resnet_eps` and the attention's `eps` in this encoder.
const NORM_EPS: f64 = 1e-6;

/// Elements of one block of attention scores; bounds the scores at 16 MiB of f32 whatever the image's size.
pub(super) const SCORE_BLOCK: usize = 1 << 22;

pub(super) struct CandleEncoder {
    conv_in: Conv2d,
    down_blocks: Vec<DownBlock>,
    mid_block: MidBlock,
    conv_norm_out: GroupNorm,
    conv_out: Conv2d,
    quant_conv: Option<Conv2d>,
}

impl CandleEncoder {
    /// Takes the tensors that [`EncoderLayout::tensors`] lists out of `vb`.
    pub(super) fn new(layout: &EncoderLayout, vb: VarBuilder) -> Result<Self> {
        let (encoder, channels, moments) = (vb.pp("encoder"), &layout.block_out_channels, 2 * layout.latent_channels);
        let (first, last) = (channels[0], channels[channels.len() - 1]);
        let down = |level: usize| {
            let into = channels[level.saturating_sub(1)];
            let halves = level + 1 < channels.len();
            DownBlock::new(into, channels[level], layout.layers_per_block, halves, encoder.pp("down_blocks").pp(level))
        };
        Ok(Self {
            conv_in: Conv2d::new(3, first, 3, encoder.pp("conv_in"))?,
            down_blocks: (0..channels.len()).map(down).collect::<Result<_>>()?,
            mid_block: MidBlock::new(last, layout.mid_attention, encoder.pp("mid_block"))?,
            conv_norm_out: GroupNorm::new(last, encoder.pp("conv_norm_out"))?,
            conv_out: Conv2d::new(last, moments, 3, encoder.pp("conv_out"))?,
            quant_conv: layout.quant_conv.then(|| Conv2d::new(moments, moments, 1, vb.pp("quant_conv"))).transpose()?,
        })
    }

    /// (N, 3, H, W) in [-1, 1] → (N, 2·latent, H/8, W/8): means, then log-variances, unclamped.
    pub(super) fn forward(&self, pixels: Tensor) -> Result<Tensor> {
        let mut x = self.conv_in.forward(&pixels)?;
        for block in &self.down_blocks {
            x = block.forward(x)?;
        }
        x = self.mid_block.forward(x)?;
        x = self.conv_norm_out.forward(&x)?.silu()?;
        x = self.conv_out.forward(&x)?;
        match &self.quant_conv {
            Some(quant_conv) => quant_conv.forward(&x),
            None => Ok(x),
        }
    }
}

struct DownBlock {
    resnets: Vec<Resnet>,
    /// Weights at `downsamplers.0.conv`.
    downsampler: Option<Conv2d>,
}

impl DownBlock {
    fn new(into: usize, out: usize, layers: usize, halves: bool, vb: VarBuilder) -> Result<Self> {
        let resnet = |layer| Resnet::new(if layer == 0 { into } else { out }, out, vb.pp("resnets").pp(layer));
        let downsampler = || Conv2d::halving(out, vb.pp("downsamplers").pp(0).pp("conv"));
        Ok(Self {
            resnets: (0..layers).map(resnet).collect::<Result<_>>()?,
            downsampler: halves.then(downsampler).transpose()?,
        })
    }

    /// (N, C, H, W) → (N, C', H/2, W/2), or (N, C', H, W) in the last level.
    fn forward(&self, mut x: Tensor) -> Result<Tensor> {
        for resnet in &self.resnets {
            x = resnet.forward(x)?;
        }
        let Some(downsampler) = &self.downsampler else { return Ok(x) };
        // Padded at the right and the bottom only, so that an even side halves exactly.
        x = x.pad_with_zeros(D::Minus1, 0, 1)?;
        x = x.pad_with_zeros(D::Minus2, 0, 1)?;
        downsampler.forward(&x)
    }
}

struct MidBlock {
    resnets: [Resnet; 2],
    attention: Option<Attention>,
}

impl MidBlock {
    fn new(channels: usize, attends: bool, vb: VarBuilder) -> Result<Self> {
        let resnet = |index: usize| Resnet::new(channels, channels, vb.pp("resnets").pp(index));
        Ok(Self {
            resnets: [resnet(0)?, resnet(1)?],
            attention: attends.then(|| Attention::new(channels, vb.pp("attentions").pp(0))).transpose()?,
        })
    }

    /// (N, C, H, W) → (N, C, H, W).
    fn forward(&self, x: Tensor) -> Result<Tensor> {
        let mut x = self.resnets[0].forward(x)?;
        if let Some(attention) = &self.attention {
            x = attention.forward(x)?;
        }
        self.resnets[1].forward(x)
    }
}

struct Resnet {
    norm1: GroupNorm,
    conv1: Conv2d,
    norm2: GroupNorm,
    conv2: Conv2d,
    conv_shortcut: Option<Conv2d>,
}

impl Resnet {
    fn new(into: usize, out: usize, vb: VarBuilder) -> Result<Self> {
        Ok(Self {
            norm1: GroupNorm::new(into, vb.pp("norm1"))?,
            conv1: Conv2d::new(into, out, 3, vb.pp("conv1"))?,
            norm2: GroupNorm::new(out, vb.pp("norm2"))?,
            conv2: Conv2d::new(out, out, 3, vb.pp("conv2"))?,
            conv_shortcut: (into != out).then(|| Conv2d::new(into, out, 1, vb.pp("conv_shortcut"))).transpose()?,
        })
    }

    /// (N, C, H, W) → (N, C', H, W).
    fn forward(&self, x: Tensor) -> Result<Tensor> {
        // Rebinding drops each intermediate as soon as the next one exists.
        let mut h = self.norm1.forward(&x)?;
        h = h.silu()?;
        h = self.conv1.forward(&h)?;
        h = self.norm2.forward(&h)?;
        h = h.silu()?;
        h = self.conv2.forward(&h)?;
        match &self.conv_shortcut {
            Some(conv_shortcut) => conv_shortcut.forward(&x)? + h,
            None => x + h,
        }
    }
}

struct Attention {
    group_norm: GroupNorm,
    to_q: Linear,
    to_k: Linear,
    to_v: Linear,
    to_out: Linear,
}

impl Attention {
    fn new(channels: usize, vb: VarBuilder) -> Result<Self> {
        let linear = |name: &str| Linear::new(channels, vb.pp(name));
        Ok(Self {
            group_norm: GroupNorm::new(channels, vb.pp("group_norm"))?,
            to_q: linear("to_q")?,
            to_k: linear("to_k")?,
            to_v: linear("to_v")?,
            to_out: linear("to_out.0")?,
        })
    }

    /// One head over all pixels: (N, C, H, W) → (N, C, H, W), the input added.
    fn forward(&self, x: Tensor) -> Result<Tensor> {
        let (n, c, h, w) = x.dims4()?;
        // (N, C, H, W) → (N, H·W, C)
        let tokens = self.group_norm.forward(&x)?.reshape((n, c, h * w))?.transpose(1, 2)?.contiguous()?;
        let query = (self.to_q.forward(&tokens)? * (c as f64).powf(-0.5))?;
        let key = self.to_k.forward(&tokens)?.transpose(1, 2)?.contiguous()?;
        let value = self.to_v.forward(&tokens)?;
        drop(tokens);
        let attended = self.to_out.forward(&attend(&query, &key, &value)?)?;
        // (N, H·W, C) → (N, C, H, W)
        attended.transpose(1, 2)?.reshape((n, c, h, w))? + x
    }
}

/// softmax(query · key) · value by blocks of query rows: query, value (N, T, C), key (N, C, T) → (N, T, C).
///
/// Rows are independent, so the blocks change no result; the whole (T, T) matrix would take 1 GiB at 1024². The
/// softmax is in f32 for half types too, as diffusers' `upcast_softmax` has it here.
fn attend(query: &Tensor, key: &Tensor, value: &Tensor) -> Result<Tensor> {
    let tokens = query.dim(1)?;
    let rows = (SCORE_BLOCK / tokens).clamp(1, tokens);
    let block = |start: usize| {
        let query = query.narrow(1, start, rows.min(tokens - start))?.contiguous()?;
        let scores = matmul(&query, key)?.to_dtype(DType::F32)?;
        matmul(&softmax_last_dim(&scores)?.to_dtype(value.dtype())?, value)
    };
    let blocks = (0..tokens).step_by(rows).map(block).collect::<Result<Vec<_>>>()?;
    Tensor::cat(&blocks, 1)
}

struct Linear {
    /// (C in, C out), transposed once.
    weight: Tensor,
    bias: Tensor,
}

impl Linear {
    fn new(channels: usize, vb: VarBuilder) -> Result<Self> {
        let weight = vb.get((channels, channels), "weight")?.t()?.contiguous()?;
        Ok(Self { weight, bias: vb.get(channels, "bias")? })
    }

    /// (N, T, C) → (N, T, C).
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (n, t, c) = x.dims3()?;
        matmul(&x.reshape((n * t, c))?, &self.weight)?.broadcast_add(&self.bias)?.reshape((n, t, c))
    }
}

struct Conv2d {
    weight: Tensor,
    /// (1, C, 1, 1)
    bias: Tensor,
    padding: usize,
    stride: usize,
}

impl Conv2d {
    /// `side` × `side` taps, the size kept.
    fn new(into: usize, out: usize, side: usize, vb: VarBuilder) -> Result<Self> {
        let weight = vb.get((out, into, side, side), "weight")?;
        let bias = vb.get(out, "bias")?.reshape((1, out, 1, 1))?;
        Ok(Self { weight, bias, padding: side / 2, stride: 1 })
    }

    /// 3 × 3 taps on every other pixel of an input that its caller has padded.
    fn halving(channels: usize, vb: VarBuilder) -> Result<Self> {
        Ok(Self { padding: 0, stride: 2, ..Self::new(channels, channels, 3, vb)? })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (padding, stride) = (self.padding, self.stride);
        let product = in_supported_dtype(x, &self.weight, |x, weight| x.conv2d(weight, padding, stride, 1, 1))?;
        product.broadcast_add(&self.bias)
    }
}

struct GroupNorm {
    /// (1, groups, C / groups), f32
    weight: Tensor,
    /// (1, C, 1, 1), f32
    bias: Tensor,
}

impl GroupNorm {
    fn new(channels: usize, vb: VarBuilder) -> Result<Self> {
        let get = |name| vb.get(channels, name)?.to_dtype(DType::F32);
        Ok(Self {
            weight: get("weight")?.reshape((1, NORM_GROUPS, channels / NORM_GROUPS))?,
            bias: get("bias")?.reshape((1, channels, 1, 1))?,
        })
    }

    /// (N, C, H, W) → (N, C, H, W); statistics and arithmetic in f32 for half types too.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
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

fn matmul(a: &Tensor, b: &Tensor) -> Result<Tensor> {
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
