//! Model families: which autoencoder a family trains on, and what its diffusion model takes for a latent.

use crate::containers::Dtype;
use crate::recipe::key::{Space, Stored};
use crate::units::Size;
use serde::{Deserialize, Serialize};

/// Model families whose VAE encoders are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum Family {
    Sd15,
    Sdxl,
    Sd3,
    Flux,
    Chroma,
    Lumina2,
    ZImage,
    /// Flux.2 \[dev\].
    Flux2,
    #[serde(rename = "flux2-klein-4b")]
    Flux2Klein4b,
    #[serde(rename = "flux2-klein-9b")]
    Flux2Klein9b,
    QwenImage,
    Krea2,
    Anima,
    /// Wan 2.1, single frames.
    Wan21,
    /// HunyuanImage 2.1.
    HunyuanImage,
}

/// Networks that encode pictures. Families that share one may still have different weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Autoencoder {
    /// Stable Diffusion's KL encoder with 4 latent channels.
    Kl4,
    /// The same network with 16: SD3, Flux.
    Kl16,
    /// The same network with 32, and a batch norm over patches of 2x2 behind it: Flux.2.
    Kl32,
    /// Wan 2.1's causal video encoder, on one frame.
    Wan,
    /// HunyuanImage 2.1's.
    HunyuanImage,
}

impl Autoencoder {
    /// Channels of its posterior's mean.
    pub const fn channels(self) -> usize {
        match self {
            Self::Kl4 => 4,
            Self::Kl16 | Self::Wan => 16,
            Self::Kl32 => 32,
            Self::HunyuanImage => 64,
        }
    }

    /// Pixels that a latent element spans in each direction.
    pub const fn stride(self) -> u32 {
        match self {
            Self::HunyuanImage => 32,
            Self::Kl4 | Self::Kl16 | Self::Kl32 | Self::Wan => 8,
        }
    }

    /// What people call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kl4 => "a KL encoder with 4 latent channels",
            Self::Kl16 => "a KL encoder with 16 latent channels",
            Self::Kl32 => "a KL encoder with 32 latent channels",
            Self::Wan => "Wan 2.1's encoder",
            Self::HunyuanImage => "HunyuanImage 2.1's encoder",
        }
    }
}

impl Family {
    /// All families, in the order in which they are listed to people.
    pub const ALL: [Self; 15] = [
        Self::Sd15,
        Self::Sdxl,
        Self::Sd3,
        Self::Flux,
        Self::Chroma,
        Self::Lumina2,
        Self::ZImage,
        Self::Flux2,
        Self::Flux2Klein4b,
        Self::Flux2Klein9b,
        Self::QwenImage,
        Self::Krea2,
        Self::Anima,
        Self::Wan21,
        Self::HunyuanImage,
    ];

    /// Its name on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sd15 => "sd15",
            Self::Sdxl => "sdxl",
            Self::Sd3 => "sd3",
            Self::Flux => "flux",
            Self::Chroma => "chroma",
            Self::Lumina2 => "lumina2",
            Self::ZImage => "z-image",
            Self::Flux2 => "flux2",
            Self::Flux2Klein4b => "flux2-klein-4b",
            Self::Flux2Klein9b => "flux2-klein-9b",
            Self::QwenImage => "qwen-image",
            Self::Krea2 => "krea2",
            Self::Anima => "anima",
            Self::Wan21 => "wan21",
            Self::HunyuanImage => "hunyuan-image",
        }
    }

    /// The network that encodes for it.
    pub const fn autoencoder(self) -> Autoencoder {
        match self {
            Self::Sd15 | Self::Sdxl => Autoencoder::Kl4,
            Self::Sd3 | Self::Flux | Self::Chroma | Self::Lumina2 | Self::ZImage => Autoencoder::Kl16,
            Self::Flux2 | Self::Flux2Klein4b | Self::Flux2Klein9b => Autoencoder::Kl32,
            Self::QwenImage | Self::Krea2 | Self::Anima | Self::Wan21 => Autoencoder::Wan,
            Self::HunyuanImage => Autoencoder::HunyuanImage,
        }
    }

    /// The side of the square the model was trained at, in pixels.
    pub const fn native_resolution(self) -> u32 {
        match self {
            Self::Sd15 => 512,
            Self::HunyuanImage => 2048,
            _ => 1024,
        }
    }

    /// Bucket step of the `store` convention, in pixels: 64 for the U-Net families, and for the transformers the 32
    /// that sd-scripts' LoRA trainers assert (`sd3_train_network.py:64`, `flux_train_network.py:95`).
    pub const fn bucket_step(self) -> u32 {
        match self {
            Self::Sd15 | Self::Sdxl => 64,
            _ => 32,
        }
    }

    /// The latent as its diffusion model takes it, in `dtype`: the constants of the models' published VAE configs
    /// (`scaling_factor`, `shift_factor`, `latents_mean`, `latents_std`, `batch_norm_eps`).
    pub const fn scaled(self, dtype: Dtype) -> Stored {
        let (shift, scale) = match self {
            Self::Sd15 => (0.0, 0.18215),
            Self::Sdxl => (0.0, 0.13025),
            Self::Sd3 => (0.0609, 1.5305),
            Self::Flux | Self::Chroma | Self::Lumina2 | Self::ZImage => (0.1159, 0.3611),
            Self::HunyuanImage => (0.0, 0.75289),
            _ => (0.0, 1.0),
        };
        let space = match self.autoencoder() {
            Autoencoder::Kl32 => Space::BatchNormed,
            Autoencoder::Wan => Space::Wan,
            _ => Space::Affine,
        };
        Stored { dtype, shift, scale, space }
    }

    /// Pixels that an element of a latent spans in each direction as `stored` has it: sides are multiples of it.
    pub const fn stride(self, stored: Stored) -> u32 {
        self.autoencoder().stride() * stored.space.patch()
    }

    /// Shape of a latent of a picture of `size` as `stored` has it: (C, H, W).
    pub const fn latent_shape(self, stored: Stored, size: Size) -> [usize; 3] {
        let (channels, stride) = (self.autoencoder().channels(), self.autoencoder().stride());
        let (h, w) = ((size.height / stride) as usize, (size.width / stride) as usize);
        stored.space.shape([channels, h, w])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_patched_needs_twice_the_stride() {
        let scaled = |family: Family| (family.scaled(Dtype::F32).space, family.stride(family.scaled(Dtype::F32)));
        assert_eq!(scaled(Family::Flux2), (Space::BatchNormed, 16));
        assert_eq!(scaled(Family::QwenImage), (Space::Wan, 8));
        assert_eq!(scaled(Family::HunyuanImage), (Space::Affine, 32));
        assert_eq!(Family::Flux2.stride(Stored::raw(Dtype::F32)), 8);
    }

    #[test]
    fn a_latent_has_the_shape_that_its_space_gives_it() {
        let size = Size::new(96, 64);
        let shape = |family: Family, stored| family.latent_shape(stored, size);
        assert_eq!(shape(Family::Flux2, Family::Flux2.scaled(Dtype::F32)), [128, 4, 6]);
        assert_eq!(shape(Family::Flux2, Stored::raw(Dtype::F32)), [32, 8, 12]);
        assert_eq!(shape(Family::HunyuanImage, Family::HunyuanImage.scaled(Dtype::F32)), [64, 2, 3]);
        assert_eq!(shape(Family::Anima, Family::Anima.scaled(Dtype::F32)), [16, 8, 12]);
    }

    #[test]
    fn names_are_those_that_receipts_have() {
        for family in Family::ALL {
            assert_eq!(serde_json::to_value(family).unwrap(), family.name());
        }
    }
}
