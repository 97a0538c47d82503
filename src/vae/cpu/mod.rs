//! The encoder in f32 on the CPU: our kernels over planned buffers, one picture at a time.
//!
//! An activation is (H, W, C). Group norms are applied by the convolution behind them as it reads; their statistics
//! come from whoever wrote the activation. `candle_encoder` is the plain twin: tests hold both against each other.

mod layers;
mod load;
mod plan;
mod run;

use crate::error::{Error, Result};
use crate::kernels::{Aligned, Cpu, Direct, Window, Winograd};
use crate::units::Size;
use crate::vae::Weights;
use crate::vae::layout::EncoderLayout;
use layers::{Attention, DownBlock, GroupNorm, Resnet};
use load::Source;
use plan::Plan;
use run::Run;
use std::sync::{Mutex, PoisonError};

/// The packed encoder. Field names equal diffusers' names.
pub(super) struct CpuEncoder {
    cpu: Cpu,
    layout: EncoderLayout,
    conv_in: Direct,
    down_blocks: Vec<DownBlock>,
    mid_resnets: [Resnet; 2],
    mid_attention: Option<Attention>,
    conv_norm_out: GroupNorm,
    conv_out: Winograd,
    quant_conv: Option<Direct>,
    /// Kept from picture to picture, as large as the largest one needed.
    buffers: Mutex<Buffers>,
}

#[derive(Default)]
struct Buffers {
    activations: Aligned,
    /// Transformed weights of the convolution at hand.
    points: Aligned,
}

impl CpuEncoder {
    /// Packs the encoder's weights, widened to f32.
    pub(super) fn new(weights: &Weights) -> Self {
        let layout = weights.layout().clone();
        let source = Source { weights, cpu: Cpu::detect() };
        let levels = layout.block_out_channels.len();
        Self {
            cpu: source.cpu,
            conv_in: source.direct("encoder.conv_in", Window::SAME),
            down_blocks: (0..levels).map(|level| source.down_block(&layout, level)).collect(),
            mid_resnets: [0, 1].map(|index| source.resnet(&format!("encoder.mid_block.resnets.{index}"))),
            mid_attention: layout.mid_attention.then(|| source.attention("encoder.mid_block.attentions.0")),
            conv_norm_out: source.norm("encoder.conv_norm_out"),
            conv_out: source.winograd("encoder.conv_out"),
            quant_conv: layout.quant_conv.then(|| source.direct("quant_conv", Window::POINT)),
            buffers: Mutex::default(),
            layout,
        }
    }

    /// (3, H, W) in [-1, 1] → (2·latent, H/8, W/8): means, then log-variances, unclamped. Sides are multiples of 8.
    ///
    /// # Errors
    /// [`Error::Device`] when memory has no room for the activations.
    pub(super) fn forward(&self, pixels: &[f32], size: Size) -> Result<Vec<f32>> {
        let plan = Plan::new(&self.layout, size).ok_or_else(|| too_large(size))?;
        // A picture that panicked has left nothing that the next one reads.
        let mut buffers = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        let Buffers { activations, points } = &mut *buffers;
        activations.grow(plan.len).and_then(|()| points.grow(self.points())).ok_or_else(|| too_large(size))?;
        let mut run = Run::new(self.cpu, activations, points);
        run.take_picture(pixels, size, &plan.pixels);
        run.conv_in(&self.conv_in, &plan);
        for (block, places) in self.down_blocks.iter().zip(&plan.levels) {
            run.down_block(block, places);
        }
        run.resnet(&self.mid_resnets[0], &plan.mid[0]);
        if let Some(attention) = &self.mid_attention {
            run.attention(attention, &plan.attention);
        }
        run.resnet(&self.mid_resnets[1], &plan.mid[1]);
        run.conv_out(&self.conv_norm_out, &self.conv_out, &plan);
        if let Some(quant_conv) = &self.quant_conv {
            run.quant_conv(quant_conv, &plan);
        }
        Ok(run.planes())
    }

    /// Values of the largest convolution's transformed weights.
    fn points(&self) -> usize {
        let resnets = self.down_blocks.iter().flat_map(|block| &block.resnets).chain(&self.mid_resnets);
        let convs = resnets.flat_map(|resnet| [&resnet.conv1, &resnet.conv2]).chain([&self.conv_out]);
        convs.map(Winograd::points).max().unwrap_or(0)
    }
}

fn too_large(size: Size) -> Error {
    Error::Device {
        message: format!("memory has no room for the activations of a picture of {size}"),
        hint: Some("lower `--max-area`".into()),
    }
}
