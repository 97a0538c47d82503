//! tdrussell/diffusion-pipe: buckets only; its caches are not written.
//!
//! Its caches are pickled blobs behind a fingerprint of an arrow dataset, both made by Python libraries' internals. Planned
//! are size, bucket and crop as it has them (see [`crate::bucket::diffusion_pipe`]), with the aspect ratios of the
//! trainer's example (`examples/dataset.toml`): 7 of them from 0.5 to 2. Its pictures keep their stored orientation and are
//! laid over white (`models/base.py:41`).

use super::{Convention, Placement, Subset, WantedArtefact};
use crate::bucket::diffusion_pipe::{Ratios, Settings};
use crate::bucket::{BucketRule, DiffusionPipeBuckets};
use crate::dataset::Image;
use crate::error::{Error, Result};
use crate::hash::EncoderId;
use crate::problem::{Kind, Problem};
use crate::recipe::{Alpha, Colour, Decoder, Family, PixelRecipe, Recipe, Resample, Target};
use crate::units::Size;
use std::collections::BTreeMap;

/// `min_ar`, `max_ar` and `num_ar_buckets` of the trainer's example.
const RATIOS: Ratios = Ratios::Spaced { min: 0.5, max: 2.0, count: 7 };

/// The diffusion-pipe convention with its settings resolved.
pub struct DiffusionPipe {
    rule: DiffusionPipeBuckets,
    resolution: Size,
    batch: u32,
    settings: BTreeMap<String, String>,
}

impl DiffusionPipe {
    /// Resolves the settings of `subset` under `recipe`.
    ///
    /// # Errors
    /// Flags that its buckets have no counterpart for.
    pub fn new(subset: &Subset, recipe: &Recipe) -> Result<Self> {
        super::ensure_plain_buckets(Target::DiffusionPipe, recipe)?;
        let said = &subset.settings;
        let native = recipe.family.native_resolution();
        let resolution = recipe.resolution.or(said.resolution).unwrap_or(Size::new(native, native));
        let multiple = recipe.bucket_step.unwrap_or(multiple(recipe.family));
        let buckets = recipe.buckets.or(said.buckets).unwrap_or(true);
        let asked = if resolution.width == resolution.height {
            let ratios = if buckets { RATIOS } else { Ratios::Square };
            Settings::Ratios { resolution: f64::from(resolution.width), ratios, multiple }
        } else {
            Settings::Sizes { sizes: vec![(resolution, 1)], multiple }
        };
        let rule = DiffusionPipeBuckets::new(asked).map_err(|message| Error::Usage { message, hint: None })?;
        let batch = recipe.batch.or(said.batch).unwrap_or(1);
        let settings = BTreeMap::from([
            ("resolution".to_owned(), super::resolution_text(resolution)),
            ("bucket-step".to_owned(), multiple.to_string()),
            ("no-bucket".to_owned(), (rule.buckets().len() == 1).to_string()),
            ("upscale".to_owned(), "true".to_owned()),
            ("orientation".to_owned(), "ignore".to_owned()),
            ("icc".to_owned(), "ignore".to_owned()),
            ("batch".to_owned(), batch.to_string()),
        ]);
        Ok(Self { rule, resolution, batch, settings })
    }
}

impl Convention for DiffusionPipe {
    fn target(&self) -> Target {
        Target::DiffusionPipe
    }

    fn place(&self, image: &Image) -> Result<Placement, Problem> {
        let probe = super::probed(image)?;
        let source = probe.size;
        let assignment = self.rule.assign(source).map_err(|no| super::no_bucket(image, &no))?;
        let pixels = PixelRecipe {
            decoder: Decoder::Pillow,
            orientation: 1,
            colour: Colour::AsStored,
            clip_gray16: false,
            alpha: if probe.transparent { Alpha::Composite([255; 3]) } else { Alpha::Opaque },
            resample: (source != assignment.resized).then_some(Resample::PillowBicubic),
            resized: assignment.resized,
            crop: assignment.crop,
            mirrored: false,
        };
        Ok(Placement { source, assignment, pixels })
    }

    fn harms(&self, image: &Image) -> Vec<Problem> {
        let mut harms = super::plain_harms(image, Target::DiffusionPipe);
        let turned = image.probe.as_ref().map(|probe| probe.orientation).filter(|&orientation| orientation != 1);
        harms.extend(turned.map(|orientation| {
            let message =
                format!("has EXIF orientation {orientation}, which diffusion-pipe ignores: it is trained as stored");
            let hint = "rotate the pixels and remove the tag";
            Problem::warning(image.path.clone(), Kind::Oriented, message).with_hint(hint)
        }));
        harms
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

/// `pixels_round_to_multiple` of each model, in pixels (`models/base.py:218`, `models/hunyuan_image.py:47`).
fn multiple(family: Family) -> u32 {
    match family {
        Family::HunyuanImage => 32,
        _ => 16,
    }
}
