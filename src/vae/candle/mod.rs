//! The encoder as candle operations. Field names equal the canonical names, so `vb.pp(…)` reads like the checkpoint.
//!
//! Structure after diffusers `models/autoencoders/vae.py` (`Encoder`) and `models/resnet.py` (0.32), and of 0.42
//! `autoencoder_kl_wan.py` and `autoencoder_kl_hunyuanimage.py`. Shapes are
//! (N, C, H, W) throughout. Values are taken by value where a block can drop them early: an activation of the first
//! level is 512 MiB at 1024².

mod layers;

use crate::vae::layout::{EncoderLayout, Network, UNSHUFFLED};
use candle_core::{D, DType, Result, Tensor};
use candle_nn::VarBuilder;
use candle_nn::ops::softmax_last_dim;
use layers::{Conv2d, Linear, Norm, matmul};

/// Elements of one block of attention scores; bounds the scores at 16 MiB of f32 whatever the image's size.
pub(super) const SCORE_BLOCK: usize = 1 << 22;

pub(super) struct CandleEncoder {
    conv_in: Conv2d,
    down_blocks: Vec<DownBlock>,
    mid_block: MidBlock,
    conv_norm_out: Norm,
    conv_out: Conv2d,
    /// True where means of what the head reads are added to what it makes.
    head_shortcut: bool,
    quant_conv: Option<Conv2d>,
}

impl CandleEncoder {
    /// Takes the tensors that [`EncoderLayout::tensors`] lists out of `vb`.
    pub(super) fn new(layout: &EncoderLayout, vb: VarBuilder) -> Result<Self> {
        let (encoder, channels, moments) = (vb.pp("encoder"), &layout.block_out_channels, 2 * layout.latent_channels);
        let (first, last, network) = (channels[0], channels[channels.len() - 1], layout.network);
        let down = |level: usize| DownBlock::new(layout, level, encoder.pp("down_blocks").pp(level));
        Ok(Self {
            conv_in: Conv2d::new(3, first, 3, encoder.pp("conv_in"))?,
            down_blocks: (0..channels.len()).map(down).collect::<Result<_>>()?,
            mid_block: MidBlock::new(network, last, layout.mid_attention, encoder.pp("mid_block"))?,
            conv_norm_out: Norm::new(last, network.norms_by_pixel(), encoder.pp("conv_norm_out"))?,
            conv_out: Conv2d::new(last, moments, 3, encoder.pp("conv_out"))?,
            head_shortcut: network.unshuffles(),
            quant_conv: layout.quant_conv.then(|| Conv2d::new(moments, moments, 1, vb.pp("quant_conv"))).transpose()?,
        })
    }

    /// (N, 3, H, W) in [-1, 1] → (N, 2·latent, H, W) in latents: means, then log-variances, unclamped.
    pub(super) fn forward(&self, pixels: Tensor) -> Result<Tensor> {
        let mut x = self.conv_in.forward(&pixels)?;
        for block in &self.down_blocks {
            x = block.forward(x)?;
        }
        x = self.mid_block.forward(x)?;
        let head = self.conv_out.forward(&self.conv_norm_out.forward(&x)?.silu()?)?;
        x = if self.head_shortcut { (&head + group_means(&x, head.dim(1)?)?)? } else { head };
        match &self.quant_conv {
            Some(quant_conv) => quant_conv.forward(&x),
            None => Ok(x),
        }
    }
}

struct DownBlock {
    resnets: Vec<Resnet>,
    downsampler: Option<Downsampler>,
}

impl DownBlock {
    fn new(layout: &EncoderLayout, level: usize, vb: VarBuilder) -> Result<Self> {
        let (network, out) = (layout.network, layout.block_out_channels[level]);
        let resnet = |layer| {
            let into = if layer == 0 { layout.into(level) } else { out };
            Resnet::new(network, into, out, vb.pp("resnets").pp(layer))
        };
        let downsampler = |halved| Downsampler::new(network, out, halved, vb.pp("downsamplers").pp(0).pp("conv"));
        Ok(Self {
            resnets: (0..layout.layers_per_block).map(resnet).collect::<Result<_>>()?,
            downsampler: layout.halved(level).map(downsampler).transpose()?,
        })
    }

    /// (N, C, H, W) → (N, C', H/2, W/2), or (N, C', H, W) in the last level.
    fn forward(&self, mut x: Tensor) -> Result<Tensor> {
        for resnet in &self.resnets {
            x = resnet.forward(x)?;
        }
        match &self.downsampler {
            Some(downsampler) => downsampler.forward(x),
            None => Ok(x),
        }
    }
}

/// Weights at `downsamplers.0.conv`.
enum Downsampler {
    Strided(Conv2d),
    Unshuffled(Conv2d),
}

impl Downsampler {
    fn new(network: Network, channels: usize, halved: usize, vb: VarBuilder) -> Result<Self> {
        Ok(if network.unshuffles() {
            Self::Unshuffled(Conv2d::new(channels, halved, 3, vb)?)
        } else {
            Self::Strided(Conv2d::halving(channels, vb)?)
        })
    }

    /// (N, C, H, W) → (N, C', H/2, W/2).
    fn forward(&self, mut x: Tensor) -> Result<Tensor> {
        match self {
            Self::Strided(conv) => {
                // Padded at the right and the bottom only, so that an even side halves exactly.
                x = x.pad_with_zeros(D::Minus1, 0, 1)?;
                x = x.pad_with_zeros(D::Minus2, 0, 1)?;
                conv.forward(&x)
            }
            Self::Unshuffled(conv) => {
                let h = unshuffled(&conv.forward(&x)?)?;
                let channels = h.dim(1)?;
                h + group_means(&unshuffled(&x)?, channels)?
            }
        }
    }
}

/// (N, C, H, W) → (N, 4·C, H/2, W/2): the four pixels of each 2×2 block, in reading order, one behind the other.
fn unshuffled(x: &Tensor) -> Result<Tensor> {
    let (n, c, h, w) = x.dims4()?;
    let blocks = x.reshape(vec![n, c, h / 2, 2, w / 2, 2])?;
    blocks.permute(vec![0, 3, 5, 1, 2, 4])?.contiguous()?.reshape((n, UNSHUFFLED * c, h / 2, w / 2))
}

/// (N, C, H, W) → (N, `groups`, H, W): means of neighbouring channels.
fn group_means(x: &Tensor, groups: usize) -> Result<Tensor> {
    let (n, c, h, w) = x.dims4()?;
    x.reshape((n, groups, c / groups, h * w))?.mean(2)?.reshape((n, groups, h, w))
}

struct MidBlock {
    resnets: [Resnet; 2],
    attention: Option<Attention>,
}

impl MidBlock {
    fn new(network: Network, channels: usize, attends: bool, vb: VarBuilder) -> Result<Self> {
        let resnet = |index: usize| Resnet::new(network, channels, channels, vb.pp("resnets").pp(index));
        Ok(Self {
            resnets: [resnet(0)?, resnet(1)?],
            attention: attends.then(|| Attention::new(network, channels, vb.pp("attentions").pp(0))).transpose()?,
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
    norm1: Norm,
    conv1: Conv2d,
    norm2: Norm,
    conv2: Conv2d,
    conv_shortcut: Option<Conv2d>,
}

impl Resnet {
    fn new(network: Network, into: usize, out: usize, vb: VarBuilder) -> Result<Self> {
        let by_pixel = network.norms_by_pixel();
        Ok(Self {
            norm1: Norm::new(into, by_pixel, vb.pp("norm1"))?,
            conv1: Conv2d::new(into, out, 3, vb.pp("conv1"))?,
            norm2: Norm::new(out, by_pixel, vb.pp("norm2"))?,
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
    group_norm: Norm,
    to_q: Linear,
    to_k: Linear,
    to_v: Linear,
    to_out: Linear,
}

impl Attention {
    fn new(network: Network, channels: usize, vb: VarBuilder) -> Result<Self> {
        let linear = |name: &str| Linear::new(channels, vb.pp(name));
        Ok(Self {
            group_norm: Norm::new(channels, network.norms_by_pixel(), vb.pp("group_norm"))?,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vae::Weights;
    use crate::vae::made_weights::{self, Style};
    use candle_core::Device;

    /// In f32, which only GPUs run through here: the networks that `tests/data/vae/networks.py` made.
    #[test]
    fn means_and_log_variances_equal_those_of_diffusers() {
        for net in ["flux2", "wan", "hunyuan"] {
            let dir = tempfile::TempDir::new().unwrap();
            let tensors = made_weights::tensors(net, Style::Diffusers);
            let weights = Weights::open(&made_weights::write(dir.path(), &tensors)).unwrap();
            let loaded = weights.load(&Device::Cpu, DType::F32).unwrap();
            let vb = VarBuilder::from_tensors(loaded, DType::F32, &Device::Cpu);
            let encoder = CandleEncoder::new(weights.layout(), vb).unwrap();
            for golden in made_weights::goldens(net) {
                let shape = (1, 3, golden.height, golden.width);
                let pixels = Tensor::from_vec(golden.pixels, shape, &Device::Cpu).unwrap();
                let moments = encoder.forward(pixels).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
                let off = made_weights::difference(&moments, &[golden.mean, golden.logvar].concat());
                assert!(off <= 2e-4, "{net} {}x{}: off by {off:e}", golden.height, golden.width);
            }
        }
    }
}
