//! The encoder as callers see it: pictures in, posteriors out.

use crate::error::{Error, Result};
use crate::recipe::Precision;
use crate::units::Size;
use crate::vae::candle_encoder::CandleEncoder;
use crate::vae::cpu::CpuEncoder;
use crate::vae::layout::EncoderLayout;
use crate::vae::posterior::Posterior;
use crate::vae::{STRIDE, Weights};
use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;

/// An encoder in memory, on one device, in one precision.
pub struct Encoder {
    network: Network,
    layout: EncoderLayout,
    device: Device,
    dtype: DType,
}

enum Network {
    /// f32 on the CPU.
    Cpu(CpuEncoder),
    /// Everything else.
    Candle(CandleEncoder),
}

impl Encoder {
    /// Loads the encoder's tensors onto `device`, rounded to nearest even where `precision` is narrower than the file.
    ///
    /// Half precisions round every weight and activation; group norms and the softmax run in f32. On the CPU F16
    /// products run in f16, BF16 products in f32 with a rounded result; both are slower than F32 there.
    ///
    /// # Errors
    /// [`Error::Tensor`] when the device has no room.
    pub fn new(weights: &Weights, device: &Device, precision: Precision) -> Result<Self> {
        let dtype = match precision {
            Precision::Bf16 => DType::BF16,
            Precision::F16 => DType::F16,
            Precision::F32 => DType::F32,
        };
        let layout = weights.layout().clone();
        let network = if device.is_cpu() && precision == Precision::F32 {
            Network::Cpu(CpuEncoder::new(weights))
        } else {
            let vb = VarBuilder::from_tensors(weights.load(device, dtype)?, dtype, device);
            Network::Candle(CandleEncoder::new(&layout, vb)?)
        };
        weights.release_pages();
        Ok(Self { network, layout, device: device.clone(), dtype })
    }

    /// Encodes pictures of one size, each (3, H, W) row-major in [-1, 1], to a posterior each, in order.
    ///
    /// On the CPU pictures are encoded one by one: a batch is no faster there, and so a posterior's bits depend
    /// neither on the batch nor on the number of threads. In f32 a mean is within 2e-4 of diffusers' on the same
    /// weights.
    ///
    /// # Errors
    /// [`Error::Usage`] for a side that is zero or not a multiple of [`STRIDE`], and for a picture of another length
    /// than 3·H·W; [`Error::OutOfMemory`] for a picture too large for the device's kernels; [`Error::Tensor`] when
    /// memory runs out.
    pub fn encode(&self, pixels: &[&[f32]], size: Size) -> Result<Vec<Posterior>> {
        ensure_shape(pixels, size)?;
        let at_once = self.images_at_once(size)?;
        let mut posteriors = Vec::with_capacity(pixels.len());
        for images in pixels.chunks(at_once) {
            posteriors.extend(self.encode_at_once(images, size)?);
        }
        Ok(posteriors)
    }

    fn encode_at_once(&self, images: &[&[f32]], size: Size) -> Result<Vec<Posterior>> {
        let (width, height) = (size.width as usize, size.height as usize);
        let moments = match &self.network {
            Network::Cpu(encoder) => {
                let moments: Vec<_> = images.iter().map(|image| encoder.forward(image, size)).collect::<Result<_>>()?;
                moments.concat()
            }
            Network::Candle(encoder) => {
                let input = Tensor::from_vec(images.concat(), (images.len(), 3, height, width), &self.device)?;
                let moments = encoder.forward(input.to_dtype(self.dtype)?)?;
                moments.to_dtype(DType::F32)?.flatten_all()?.to_vec1::<f32>()?
            }
        };
        let shape = [self.layout.latent_channels, height / STRIDE, width / STRIDE];
        let each = 2 * shape.iter().product::<usize>();
        Ok(moments.chunks_exact(each).map(|moments| Posterior::from_moments(moments, shape)).collect())
    }

    fn images_at_once(&self, size: Size) -> Result<usize> {
        if self.device.is_cpu() {
            return Ok(1);
        }
        match usize::try_from(ADDRESSABLE_ELEMENTS / self.layout.largest_columns(size)) {
            Ok(0) | Err(_) => Err(Error::OutOfMemory {
                message: format!("a picture of {size} is too large to be encoded on this device in one piece"),
            }),
            Ok(images) => Ok(images),
        }
    }
}

/// candle's CUDA kernels count elements in 32 bits and wrap silently (candle 0.11.1, `Im2Col`).
const ADDRESSABLE_ELEMENTS: u64 = u32::MAX as u64;

impl EncoderLayout {
    /// Elements of the largest unrolled 3 × 3 convolution input of one picture of `size`, which is not empty.
    fn largest_columns(&self, size: Size) -> u64 {
        let level = |(level, pair): (usize, &[usize])| {
            let channels = pair.iter().copied().max().unwrap_or(0) as u64;
            size.area().div_ceil(1 << (2 * level)).saturating_mul(9 * channels)
        };
        let first = self.block_out_channels.chunks(1).take(1).enumerate().map(level).max().unwrap_or(0);
        // A level's first resnet reads the channels of the level above at its own size.
        let others = self.block_out_channels.windows(2).enumerate().map(|(i, pair)| level((i + 1, pair))).max();
        first.max(others.unwrap_or(0)).max(1)
    }
}

fn ensure_shape(pixels: &[&[f32]], size: Size) -> Result<()> {
    let stride = STRIDE as u32;
    let fail = |message| Err(Error::Usage { message, hint: None });
    if size.is_empty() || !size.width.is_multiple_of(stride) || !size.height.is_multiple_of(stride) {
        return fail(format!(
            "a picture of {size} cannot be encoded, allowed are sides that are multiples of {stride}"
        ));
    }
    match pixels.iter().find(|image| image.len() as u64 != 3 * size.area()) {
        None => Ok(()),
        Some(image) => fail(format!("a picture of {size} has {} values, allowed are {}", image.len(), 3 * size.area())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_columns_are_those_of_the_first_level() {
        let layout = EncoderLayout {
            block_out_channels: vec![128, 256, 512, 512],
            layers_per_block: 2,
            latent_channels: 4,
            quant_conv: true,
            mid_attention: true,
        };
        assert_eq!(layout.largest_columns(Size::new(1024, 1024)), 1024 * 1024 * 128 * 9);
        assert_eq!(ADDRESSABLE_ELEMENTS / layout.largest_columns(Size::new(1024, 1024)), 3);
        assert_eq!(ADDRESSABLE_ELEMENTS / layout.largest_columns(Size::new(2048, 2048)), 0);
    }
}
