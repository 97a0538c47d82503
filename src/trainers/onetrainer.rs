//! Nerogar/OneTrainer: buckets only; its caches are not written.
//!
//! The trainer rebuilds its cache folder as a whole from the sorted list of all images and wipes it by default, so a file
//! beside an image means nothing to it. Planned are size, bucket and crop as it has them (`mgds`, see
//! [`crate::bucket::onetrainer`]), for the quantization of the family's model.

use super::{Convention, Placement, Subset, WantedArtefact};
use crate::bucket::onetrainer::Settings;
use crate::bucket::{BucketRule, OneTrainerBuckets};
use crate::dataset::Image;
use crate::error::{Error, Result};
use crate::hash::EncoderId;
use crate::problem::Problem;
use crate::recipe::{Alpha, Colour, Decoder, Family, PixelRecipe, Recipe, Resample, Target};
use crate::units::Size;
use std::collections::BTreeMap;

/// The OneTrainer convention with its settings resolved.
pub struct OneTrainer {
    rule: OneTrainerBuckets,
    resolution: Size,
    batch: u32,
    settings: BTreeMap<String, String>,
}

impl OneTrainer {
    /// Resolves the settings of `subset` under `recipe`.
    ///
    /// # Errors
    /// Flags that its buckets have no counterpart for; a resolution too small for the quantization.
    pub fn new(subset: &Subset, recipe: &Recipe) -> Result<Self> {
        super::ensure_plain_buckets(Target::OneTrainer, recipe)?;
        let said = &subset.settings;
        let native = recipe.family.native_resolution();
        let resolution = recipe.resolution.or(said.resolution).unwrap_or(Size::new(native, native));
        let quantization = recipe.bucket_step.unwrap_or(quantization(recipe.family));
        let buckets = recipe.buckets.or(said.buckets).unwrap_or(true);
        let side = resolution.width;
        let asked = match (resolution.width == resolution.height, buckets) {
            (true, true) => Settings::Buckets { resolution: side, quantization },
            (true, false) => Settings::Square { resolution: side },
            (false, _) => Settings::Fixed { resolution, quantization },
        };
        let rule = OneTrainerBuckets::new(asked).map_err(|message| Error::Usage { message, hint: None })?;
        let batch = recipe.batch.or(said.batch).unwrap_or(1);
        let settings = BTreeMap::from([
            ("resolution".to_owned(), super::resolution_text(resolution)),
            ("bucket-step".to_owned(), quantization.to_string()),
            ("no-bucket".to_owned(), (!matches!(asked, Settings::Buckets { .. })).to_string()),
            ("upscale".to_owned(), "true".to_owned()),
            ("orientation".to_owned(), "apply".to_owned()),
            ("icc".to_owned(), "ignore".to_owned()),
            ("batch".to_owned(), batch.to_string()),
        ]);
        Ok(Self { rule, resolution, batch, settings })
    }
}

impl Convention for OneTrainer {
    fn target(&self) -> Target {
        Target::OneTrainer
    }

    fn place(&self, image: &Image) -> Result<Placement, Problem> {
        let probe = super::probed(image)?;
        let source = probe.upright();
        let assignment = self.rule.assign(source).map_err(|no| super::no_bucket(image, &no))?;
        let pixels = PixelRecipe {
            decoder: Decoder::Pillow,
            orientation: probe.orientation,
            colour: Colour::AsStored,
            clip_gray16: false,
            alpha: if probe.transparent { Alpha::Drop } else { Alpha::Opaque },
            // The trainer's filter works on floats (`ScaleCropImage.py:42`); nothing is made with it here.
            resample: (source != assignment.resized).then_some(Resample::PillowBilinear),
            resized: assignment.resized,
            crop: assignment.crop,
            mirrored: false,
        };
        Ok(Placement { source, assignment, pixels })
    }

    fn harms(&self, image: &Image) -> Vec<Problem> {
        super::plain_harms(image, Target::OneTrainer)
    }

    fn wanted(&self, _image: &Image, _placement: &Placement, _encoder: Option<EncoderId>) -> Vec<WantedArtefact> {
        Vec::new()
    }

    fn settings(&self) -> BTreeMap<String, String> {
        self.settings.clone()
    }

    fn batch(&self) -> u32 {
        self.batch
    }

    fn names_by_stem(&self) -> bool {
        false
    }

    fn setup(&self) -> Vec<String> {
        Vec::new()
    }

    fn names(&self, _file_name: &str) -> bool {
        false
    }

    fn nominal_area(&self) -> u64 {
        self.resolution.area()
    }

    fn claims(&self, _stem: &str, _file_name: &str) -> Option<Size> {
        None
    }

    fn mistakes(&self, _stem: &str, _file_name: &str) -> bool {
        false
    }

    fn would_make(&self, _image: &Image, _pixels: &PixelRecipe, _mask: bool) -> bool {
        false
    }
}

/// The `aspect_bucketing_quantization` of each model's data loader, in pixels.
fn quantization(family: Family) -> u32 {
    match family {
        Family::Sd15 => 8,
        _ => 64,
    }
}
