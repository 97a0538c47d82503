//! What the user asks for: one [`Recipe`] a run, with every default that does not depend on a sample already chosen.

use crate::containers::Dtype;
use crate::recipe::key::Posterior;
use crate::recipe::receipt::Precision;
use crate::recipe::tile::Tile;
use crate::units::Size;
use serde::{Deserialize, Serialize};

/// Whose layout and conventions artefacts follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// Our own content-addressed layout.
    Store,
    /// kohya-ss/sd-scripts.
    SdScripts,
}

impl Target {
    /// Its name on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::SdScripts => "sd-scripts",
        }
    }
}

/// Model families whose VAE encoders are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Family {
    Sd15,
    Sdxl,
    Sd3,
    Flux,
}

impl Family {
    /// Its name on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sd15 => "sd15",
            Self::Sdxl => "sdxl",
            Self::Sd3 => "sd3",
            Self::Flux => "flux",
        }
    }

    /// Channels of a latent.
    pub const fn latent_channels(self) -> usize {
        match self {
            Self::Sd15 | Self::Sdxl => 4,
            Self::Sd3 | Self::Flux => 16,
        }
    }

    /// The side of the square the model was trained at, in pixels.
    pub const fn native_resolution(self) -> u32 {
        match self {
            Self::Sd15 => 512,
            Self::Sdxl | Self::Sd3 | Self::Flux => 1024,
        }
    }

    /// Bucket step of the `store` convention, in pixels: 64 for the U-Net families, and for the transformers the 32
    /// that sd-scripts' LoRA trainers assert (`sd3_train_network.py:64`, `flux_train_network.py:95`).
    pub const fn bucket_step(self) -> u32 {
        match self {
            Self::Sd15 | Self::Sdxl => 64,
            Self::Sd3 | Self::Flux => 32,
        }
    }

    /// Pixels a latent element spans in each direction.
    pub const fn stride(self) -> u32 {
        8
    }
}

/// A resize filter by the name users give it; which library's it is depends on the [`Target`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Filter {
    /// The target's own choice.
    Auto,
    Area,
    Lanczos,
    Box,
    Bilinear,
    Bicubic,
    Nearest,
}

impl Filter {
    /// Its name on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Area => "area",
            Self::Lanczos => "lanczos",
            Self::Box => "box",
            Self::Bilinear => "bilinear",
            Self::Bicubic => "bicubic",
            Self::Nearest => "nearest",
        }
    }
}

/// What the command line asks for; `None` means the target's or the dataset description's own value.
#[derive(Clone, Debug, PartialEq)]
pub struct Recipe {
    /// Whose layout and conventions.
    pub targets: Vec<Target>,
    /// Model family.
    pub family: Family,
    /// Nominal size; its area is the cap unless `max_area` says otherwise.
    pub resolution: Option<Size>,
    /// Hard cap on a bucket's area, in pixels.
    pub max_area: Option<u64>,
    /// Bucket sides are multiples of this many pixels.
    pub bucket_step: Option<u32>,
    /// Smallest bucket side, in pixels.
    pub min_bucket: Option<u32>,
    /// Largest bucket side, in pixels.
    pub max_bucket: Option<u32>,
    /// False for one bucket, the resolution itself.
    pub buckets: Option<bool>,
    /// May images be enlarged to fill a bucket.
    pub upscale: Option<bool>,
    /// Also bake the mirrored image.
    pub flip: Option<bool>,
    /// Keep alpha as a loss mask.
    pub alpha_mask: Option<bool>,
    /// Resize filter.
    pub resize: Option<Filter>,
    /// Undo EXIF orientation.
    pub orientation: Option<bool>,
    /// Colour under transparency.
    pub background: Option<[u8; 3]>,
    /// Convert embedded profiles to sRGB.
    pub icc: Option<bool>,
    /// Training batch, gradient accumulation and GPUs: for under-filled buckets only.
    pub batch: Option<u32>,
    /// Gradient accumulation steps.
    pub grad_accum: u32,
    /// Training GPUs.
    pub gpus: u32,
    /// Dtype in the artefact; the target's own if absent.
    pub store_dtype: Option<Dtype>,
    /// Least precision of the encoder's arithmetic that is accepted; `None` accepts any.
    pub precision: Option<Precision>,
    /// Whether pictures may be tiled, and how finely.
    pub tile: Tile,
    /// What is cached of the posterior.
    pub posterior: Posterior,
    /// Encode again what another tool cached.
    pub rebuild_foreign: bool,
}
