//! What the user asks for: one [`Recipe`] a run, with every default that does not depend on a sample already chosen.

use crate::containers::Dtype;
use crate::recipe::family::Family;
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
    /// ostris/ai-toolkit.
    AiToolkit,
    /// kohya-ss/musubi-tuner.
    Musubi,
    /// bghira/SimpleTuner.
    #[serde(rename = "simpletuner")]
    SimpleTuner,
    /// Nerogar/OneTrainer; its buckets only.
    #[serde(rename = "onetrainer")]
    OneTrainer,
    /// tdrussell/diffusion-pipe; its buckets only.
    DiffusionPipe,
}

impl Target {
    /// All, in the order in which they are listed to people.
    pub const ALL: [Self; 7] = [
        Self::Store,
        Self::SdScripts,
        Self::AiToolkit,
        Self::Musubi,
        Self::SimpleTuner,
        Self::OneTrainer,
        Self::DiffusionPipe,
    ];

    /// Its name on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::SdScripts => "sd-scripts",
            Self::AiToolkit => "ai-toolkit",
            Self::Musubi => "musubi",
            Self::SimpleTuner => "simpletuner",
            Self::OneTrainer => "onetrainer",
            Self::DiffusionPipe => "diffusion-pipe",
        }
    }

    /// False for those whose buckets are planned but whose caches are not written.
    pub const fn is_baked(self) -> bool {
        !matches!(self, Self::OneTrainer | Self::DiffusionPipe)
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
