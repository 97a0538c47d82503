//! The encoder as callers see it: pictures in, posteriors out.

use crate::error::{Error, Result};
use crate::recipe::Precision;
use crate::units::Size;
use crate::vae::Weights;
use crate::vae::candle::CandleEncoder;
use crate::vae::capacity::images_at_once;
use crate::vae::cpu::CpuEncoder;
use crate::vae::layout::EncoderLayout;
use crate::vae::posterior::Posterior;
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
    Cpu(Box<CpuEncoder>),
    /// Everything else.
    Candle(Box<CandleEncoder>),
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
            Network::Cpu(Box::new(CpuEncoder::new(weights)))
        } else {
            let vb = VarBuilder::from_tensors(weights.load(device, dtype)?, dtype, device);
            Network::Candle(Box::new(CandleEncoder::new(&layout, vb)?))
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
    /// [`Error::Usage`] for a side that is zero or not a multiple of the layout's stride, and for a picture of another length
    /// than 3·H·W; [`Error::OutOfMemory`] for a picture too large for the device's kernels; [`Error::Tensor`] when
    /// memory runs out.
    pub fn encode(&self, pixels: &[&[f32]], size: Size) -> Result<Vec<Posterior>> {
        ensure_shape(pixels, size, self.layout.stride())?;
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
                // Each goes up from where it was decoded and is joined there: the host puts no batch together.
                let upload = |image: &&[f32]| Tensor::from_slice(image, (1, 3, height, width), &self.device);
                let input = Tensor::cat(&images.iter().map(upload).collect::<candle_core::Result<Vec<_>>>()?, 0)?;
                let moments = encoder.forward(input.to_dtype(self.dtype)?)?;
                moments.to_dtype(DType::F32)?.flatten_all()?.to_vec1::<f32>()?
            }
        };
        let stride = self.layout.stride() as usize;
        let shape = [self.layout.latent_channels, height / stride, width / stride];
        let each = 2 * shape.iter().product::<usize>();
        Ok(moments.chunks_exact(each).map(|moments| Posterior::from_moments(moments, shape)).collect())
    }

    fn images_at_once(&self, size: Size) -> Result<usize> {
        if self.device.is_cpu() {
            return Ok(1);
        }
        match images_at_once(&self.layout, size, !cfg!(feature = "cudnn")) {
            0 => Err(Error::OutOfMemory {
                message: format!("a picture of {size} is too large to be encoded on this device in one piece"),
            }),
            images => Ok(usize::try_from(images).unwrap_or(usize::MAX)),
        }
    }
}

fn ensure_shape(pixels: &[&[f32]], size: Size, stride: u32) -> Result<()> {
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
