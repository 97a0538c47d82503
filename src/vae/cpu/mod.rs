//! The encoder in f32 on the CPU: our kernels over planned buffers, one picture at a time.
//!
//! An activation is (H, W, C). Norms are applied by the convolution behind them as it reads; the statistics of group
//! norms come from whoever wrote the activation. `candle` is the plain twin: tests hold both against each other.

mod layers;
mod load;
mod plan;
mod run;

use crate::error::{Error, Result};
use crate::kernels::{self, Aligned, Cpu, Direct, Stride, Window, Winograd};
use crate::units::Size;
use crate::vae::Weights;
use crate::vae::layout::EncoderLayout;
use layers::{Attention, DownBlock, NormLayer, Resnet};
use load::Source;
use plan::Plan;
use run::Run;
use std::sync::{Mutex, PoisonError};

/// The packed encoder. Field names equal the canonical names.
pub(super) struct CpuEncoder {
    cpu: Cpu,
    layout: EncoderLayout,
    conv_in: Direct,
    down_blocks: Vec<DownBlock>,
    mid_resnets: [Resnet; 2],
    mid_attention: Option<Attention>,
    conv_norm_out: NormLayer,
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
            conv_in: source.direct("encoder.conv_in", Window::SQUARE),
            down_blocks: (0..levels).map(|level| source.down_block(&layout, level)).collect(),
            mid_resnets: [0, 1].map(|index| source.resnet(&format!("encoder.mid_block.resnets.{index}"))),
            mid_attention: layout.mid_attention.then(|| source.attention("encoder.mid_block.attentions.0")),
            conv_norm_out: source.norm("encoder.conv_norm_out"),
            conv_out: source.winograd("encoder.conv_out", Stride::One),
            quant_conv: layout.quant_conv.then(|| source.direct("quant_conv", Window::POINT)),
            buffers: Mutex::default(),
            layout,
        }
    }

    /// (3, H, W) in [-1, 1] → (2·latent, H, W) in latents: means, then log-variances, unclamped. Sides are multiples of the
    /// layout's stride.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] when memory has no room for the activations.
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
        if self.layout.network.unshuffles() {
            run.add_means(&plan);
        }
        if let Some(quant_conv) = &self.quant_conv {
            run.quant_conv(quant_conv, &plan);
        }
        Ok(run.planes())
    }

    /// Values of the largest convolution's transformed weights.
    fn points(&self) -> usize {
        let resnets = self.down_blocks.iter().flat_map(|block| &block.resnets).chain(&self.mid_resnets);
        let downsamplers = self.down_blocks.iter().filter_map(|block| Some(block.downsampler.as_ref()?.conv()));
        let convs =
            resnets.flat_map(|resnet| [&resnet.conv1, &resnet.conv2]).chain(downsamplers).chain([&self.conv_out]);
        convs.map(Winograd::points).max().unwrap_or(0)
    }
}

/// Bytes beside the packed weights that [`CpuEncoder::forward`] keeps for a picture of `size`, rayon's threads included;
/// `None` where a count overflows.
pub(super) fn working_bytes(layout: &EncoderLayout, size: Size) -> Option<u64> {
    let (cpu, plan) = (Cpu::detect(), Plan::new(layout, size)?);
    let widest = layout.block_out_channels.iter().copied().max()?;
    let points = Winograd::points_of(cpu, widest, widest);
    let threads = rayon::current_num_threads() * kernels::working_bytes(cpu, widest);
    let values = plan.len.checked_add(points)?;
    u64::try_from(values.checked_mul(size_of::<f32>())?.checked_add(threads)?).ok()
}

fn too_large(size: Size) -> Error {
    Error::OutOfMemory { message: format!("memory has no room for the activations of a picture of {size}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vae::candle::CandleEncoder;
    use crate::vae::made_weights::{self, Style};
    use crate::vae::posterior::standard_normal;
    use candle_core::{DType, Device, Tensor};
    use candle_nn::VarBuilder;
    use std::path::Path;

    fn weights(name: &str) -> Weights {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/vae");
        Weights::open(&data.join(format!("{name}.safetensors"))).unwrap()
    }

    fn made(net: &str) -> Weights {
        let dir = tempfile::TempDir::new().unwrap();
        Weights::open(&made_weights::write(dir.path(), &made_weights::tensors(net, Style::Original))).unwrap()
    }

    /// Whatever the shape, thin ones too, and after a larger picture has left its values in the buffers.
    #[test]
    fn the_encoder_equals_its_plain_twin() {
        let kl = ["sdxl_tiny_f16", "flux_tiny_f16", "tiny16_ldm_f16"];
        let all = kl.map(|name| (name, weights(name))).into_iter();
        for (name, weights) in all.chain(["flux2", "wan", "hunyuan"].map(|name| (name, made(name)))) {
            let encoder = CpuEncoder::new(&weights);
            let vb =
                VarBuilder::from_tensors(weights.load(&Device::Cpu, DType::F32).unwrap(), DType::F32, &Device::Cpu);
            let twin = CandleEncoder::new(weights.layout(), vb).unwrap();
            let stride = weights.layout().stride() as usize;
            for (width, height) in [(21, 17), (1, 1), (1, 25), (25, 1), (9, 5)] {
                let side = |eighths: usize| (8 * eighths).next_multiple_of(stride);
                let (width, height) = (side(width), side(height));
                let pixels = standard_normal(&[7; 32], 3 * width * height);
                let got = encoder.forward(&pixels, Size::new(width as u32, height as u32)).unwrap();
                let x = Tensor::from_vec(pixels, (1, 3, height, width), &Device::Cpu).unwrap();
                let expected = twin.forward(x).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
                let worst = got.iter().zip(&expected).map(|(got, expected)| (got - expected).abs());
                let worst = worst.fold(0.0, f32::max);
                assert!(got.len() == expected.len() && worst < 1e-4, "{name} {width}x{height}: {worst}");
            }
        }
    }

    #[test]
    fn a_picture_beyond_all_memory_is_an_error_that_says_so() {
        let weights = weights("tiny4_ldm_f16");
        let encoder = CpuEncoder::new(&weights);
        let error = encoder.forward(&[], Size::new(u32::MAX - 7, u32::MAX - 7)).unwrap_err();
        assert!(error.is_out_of_memory(), "{error}");
        assert_eq!(working_bytes(weights.layout(), Size::new(u32::MAX - 7, u32::MAX - 7)), None);
    }
}
