//! Bucket rules: which size a picture is scaled to, and which rectangle of it is kept.
//!
//! Owns the one decision that scan, plan, bake and verify share. Numbers in, numbers out: no file, no pixel, no
//! report. Refuses sources for which a rule has no bucket, with the actual and the allowed value.
//!
//! | module | whose rule |
//! |---|---|
//! | [`ai_toolkit`] | ostris/ai-toolkit, number for number |
//! | [`diffusion_pipe`] | tdrussell/diffusion-pipe, number for number |
//! | [`musubi`] | kohya-ss/musubi-tuner, number for number |
//! | [`onetrainer`] | Nerogar/OneTrainer, number for number |
//! | [`sd_scripts`] | kohya-ss/sd-scripts, number for number |
//! | [`simpletuner`] | bghira/SimpleTuner, number for number; its table by aspect ratio is learnt first |
//! | [`store`] | our own: a hard cap on the area, nothing enlarged unless asked, least loss to the crop |

pub mod ai_toolkit;
pub mod diffusion_pipe;
pub mod musubi;
pub mod onetrainer;
pub mod sd_scripts;
pub mod simpletuner;
pub mod store;

pub use ai_toolkit::AiToolkitBuckets;
pub use diffusion_pipe::DiffusionPipeBuckets;
pub use musubi::MusubiBuckets;
pub use onetrainer::OneTrainerBuckets;
pub use sd_scripts::SdScriptsBuckets;
pub use simpletuner::SimpleTunerBuckets;
pub use store::StoreBuckets;

use crate::problem::Kind;
use crate::units::{Rect, Size};

/// What becomes of one picture: scaled to `resized`, then cut to `crop`, whose size is `bucket`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The size the encoder sees.
    pub bucket: Size,
    /// The size after scaling; at least `bucket` in both directions.
    pub resized: Size,
    /// The rectangle kept of the scaled picture: `bucket` in size, centred, left and top rounded down.
    pub crop: Rect,
}

impl Assignment {
    /// Keeps the middle of `resized`, as numpy's and Python's `//` centre it.
    fn centred(bucket: Size, resized: Size) -> Self {
        let left = resized.width.saturating_sub(bucket.width) / 2;
        let top = resized.height.saturating_sub(bucket.height) / 2;
        Self { bucket, resized, crop: Rect::new(left, top, bucket) }
    }

    /// The larger of the two factors by which the sides of `source` change; above 1 the picture is enlarged.
    pub fn upscale(&self, source: Size) -> f64 {
        let horizontal = f64::from(self.resized.width) / f64::from(source.width);
        let vertical = f64::from(self.resized.height) / f64::from(source.height);
        horizontal.max(vertical)
    }

    /// The share of the scaled picture that the crop cuts away, 0 up to (not including) 1.
    pub fn crop_loss(&self) -> f64 {
        1.0 - self.bucket.area() as f64 / self.resized.area() as f64
    }
}

/// Why a picture has no bucket; the text is one lower-case line with the actual and the allowed value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoBucket {
    /// A side is shorter than the shortest legal one, and enlarging is not allowed.
    TooSmall(String),
    /// No legal bucket for this aspect ratio.
    ExtremeAspect(String),
}

impl NoBucket {
    /// The kind under which reports list it.
    pub fn kind(&self) -> Kind {
        match self {
            Self::TooSmall(_) => Kind::TooSmall,
            Self::ExtremeAspect(_) => Kind::ExtremeAspect,
        }
    }

    /// The actual and the allowed value.
    pub fn message(&self) -> &str {
        match self {
            Self::TooSmall(message) | Self::ExtremeAspect(message) => message,
        }
    }

    fn empty(source: Size) -> Self {
        Self::TooSmall(format!("{source} pixels, at least 1x1 is needed"))
    }

    fn side_under(source: Size, shortest: Size) -> Self {
        Self::TooSmall(format!("{source} pixels, at least {shortest} is needed where nothing is enlarged"))
    }
}

/// A rule that finds the bucket of a picture from its size alone.
///
/// `source` is the size the trainer in question takes the picture for: upright or as stored is the caller's choice.
pub trait BucketRule: Send + Sync {
    /// The bucket of a picture of `source` pixels.
    fn assign(&self, source: Size) -> Result<Assignment, NoBucket>;
}
