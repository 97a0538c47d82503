//! bghira/SimpleTuner: its buckets, pixels, cache names and latents, by the path that takes one picture at a time.
//!
//! Source: SimpleTuner bc8e6ab7, `helpers/image_manipulation/training_sample.py` (`ts`), `helpers/caching/vae.py` (`vae`),
//! `helpers/image_manipulation/load.py`, `helpers/data_backend/factory.py` (`df`). The trainer reads pictures with
//! `trainingsample` 0.3.2: the `image` crate decodes, OpenCV's `INTER_LINEAR` scales. It ignores EXIF orientation and
//! colour profiles and cuts alpha off; [`SimpleTuner::harms`] names the files that suffer. Two or more pictures of one
//! bucket that it happens to queue together it scales twice (`batched_training_samples.py:192`): what it then caches hangs
//! on chance, and is not followed.

pub mod config;
mod layout;
mod recorded;
mod settings;

pub use recorded::{Recorded, Records};
pub use settings::Options;

use super::{Convention, Placement, Subset, WantedArtefact};
use crate::bucket::simpletuner::AspectTable;
use crate::bucket::{Assignment, BucketRule, NoBucket, SimpleTunerBuckets};
use crate::containers::Dtype;
use crate::containers::torch::Gzip;
use crate::dataset::{Image, Probe, Profile};
use crate::error::{Error, Result};
use crate::hash::EncoderId;
use crate::problem::{Kind, Problem};
use crate::recipe::{Alpha, Colour, Decoder, Family, PixelRecipe, Posterior, Recipe, Resample, Target};
use crate::units::{Rect, Size};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Families whose caches are written for it.
const FAMILIES: [Family; 13] = [
    Family::Sd15,
    Family::Sdxl,
    Family::Sd3,
    Family::Flux,
    Family::Chroma,
    Family::Lumina2,
    Family::ZImage,
    Family::Flux2,
    Family::Flux2Klein4b,
    Family::Flux2Klein9b,
    Family::QwenImage,
    Family::Krea2,
    Family::Wan21,
];

/// The hint where sizes hang on the order in which the trainer sees the files.
const SCAN_FIRST: &str =
    "let SimpleTuner scan the dataset first: its aspect_ratio_bucket_metadata_*.json is then followed";

/// The SimpleTuner convention with its settings resolved.
pub struct SimpleTuner {
    family: Family,
    rule: SimpleTunerBuckets,
    options: Options,
    described: bool,
    batch: u32,
    dtype: Dtype,
    posterior: Posterior,
    settings: BTreeMap<String, String>,
}

impl SimpleTuner {
    /// Resolves the settings of `subset` under `recipe`: the description, else a flag, else the trainer's default.
    ///
    /// # Errors
    /// Flags that would give other pixels or buckets than the trainer's own, those that contradict the description among
    /// them; sizes out of the rule's range.
    pub fn new(subset: &Subset, recipe: &Recipe) -> Result<Self> {
        super::ensure_known(Target::SimpleTuner, recipe.family, &FAMILIES)?;
        settings::refuse_other_pixels(recipe)?;
        let options = settings::options(subset, recipe)?;
        let alignment = settings::alignment(recipe)?;
        super::ensure_whole_latents(recipe.family, Some(alignment), None)?;
        let rule = SimpleTunerBuckets::new(options.rule(alignment))
            .map_err(|message| Error::usage(message, "set `resolution` and the like in the dataset's JSON"))?;
        let dtype = recipe.store_dtype.unwrap_or(Dtype::Bf16);
        let batch = recipe.batch.or(subset.settings.batch).unwrap_or(1);
        let settings = settings::describe(&options, alignment, dtype, batch);
        let described = subset.described_by == Some(Target::SimpleTuner);
        Ok(Self {
            family: recipe.family,
            rule,
            options,
            described,
            batch,
            dtype,
            posterior: recipe.posterior,
            settings,
        })
    }

    /// The image's path below the dataset's folder.
    fn inside<'a>(&self, image: &'a Image) -> &'a Path {
        image.relative.strip_prefix(&self.options.base).unwrap_or(&image.relative)
    }

    fn recorded(&self, image: &Image) -> Option<&Recorded> {
        self.options.records.get(self.inside(image))
    }

    /// What the trainer has recorded it keeps, whatever became of the file since (`ts:167-195`).
    fn assign(&self, image: &Image, source: Size) -> Result<Assignment, NoBucket> {
        let Some(recorded) = self.recorded(image) else { return self.rule.assign(source) };
        let followed = self.rule.follow(recorded.original, recorded.target, recorded.intermediary)?;
        Ok(if self.options.crop { followed } else { recorded.cut(followed) })
    }
}

impl Convention for SimpleTuner {
    fn target(&self) -> Target {
        Target::SimpleTuner
    }

    /// Recorded pictures come first: the trainer has seen them before any other.
    fn learn(&mut self, images: &[&Image], table: &mut AspectTable) {
        let mut sources = Vec::new();
        for image in images {
            match (self.recorded(image), &image.probe) {
                (Some(recorded), _) => self.rule.recorded(recorded.target, table),
                (None, Some(probe)) => sources.push(probe.size),
                (None, None) => {}
            }
        }
        self.rule.learn(&sources, table);
    }

    fn place(&self, image: &Image) -> Result<Placement, Problem> {
        let source = super::probed(image)?.size;
        layout::ensure_named(image)?;
        let assignment = self.assign(image, source).map_err(|no| super::no_bucket(image, &no))?;
        let pixels = self.pixels(super::probed(image)?, assignment.resized, assignment.crop);
        Ok(Placement { source, assignment, pixels })
    }

    fn against_enlarging(&self) -> &'static str {
        "minimum_image_size in the dataset's JSON leaves small images out"
    }

    fn harms(&self, image: &Image) -> Vec<Problem> {
        let Some(probe) = &image.probe else { return Vec::new() };
        let mut harms = harms_of_file(image, probe);
        match self.recorded(image) {
            Some(recorded) if recorded.original != probe.size => {
                let message = format!(
                    "is {} now, and {} in SimpleTuner's metadata, by which it is scaled and cut all the same",
                    probe.size, recorded.original
                );
                let warning = Problem::warning(image.path.clone(), Kind::Contested, message);
                harms
                    .push(warning.with_hint("delete the dataset's aspect_ratio_bucket_*.json, so that it looks again"));
            }
            None if self.rule.is_contested(probe.size) => {
                let message = "has a bucket that hangs on the order in which SimpleTuner first sees the files";
                let warning = Problem::warning(image.path.clone(), Kind::Contested, message);
                harms.push(warning.with_hint(SCAN_FIRST));
            }
            _ => {}
        }
        harms
    }

    /// Beside captions: that sizes hang on the order of the scan is what the trainer's alignments below 64 are prone to.
    fn overlooks(&self, subset: &Subset, images: &[&Image]) -> Vec<Problem> {
        let alignment = self.rule.settings().alignment;
        let is_prone = alignment < settings::ALIGNMENT && images.iter().any(|image| self.recorded(image).is_none());
        let message = format!(
            "buckets are aligned to {alignment} pixels: below 64, SimpleTuner's may hang on the order in which it first sees \
             the files"
        );
        let warning = Problem::warning(".", Kind::Contested, message).with_hint(SCAN_FIRST);
        super::unread_captions(Target::SimpleTuner, subset, images)
            .into_iter()
            .chain(is_prone.then_some(warning))
            .collect()
    }

    fn wanted(&self, image: &Image, placement: &Placement, encoder: Option<EncoderId>) -> Vec<WantedArtefact> {
        let Some(content) = image.content else { return Vec::new() };
        layout::artefact(self, image, content, placement, encoder).into_iter().collect()
    }

    fn settings(&self) -> BTreeMap<String, String> {
        self.settings.clone()
    }

    fn batch(&self) -> u32 {
        self.batch
    }

    fn setup(&self) -> Vec<String> {
        settings::setup(&self.options, self.described, self.rule.settings().alignment, self.dtype)
    }

    fn names_by_stem(&self) -> bool {
        true
    }

    fn cache_folders(&self, _subset: &Subset) -> Vec<(PathBuf, bool)> {
        vec![(self.options.cache.clone(), true)]
    }

    fn nominal_area(&self) -> u64 {
        let edge = u64::from(self.rule.square_edge());
        edge * edge
    }

    fn names(&self, file_name: &str) -> bool {
        layout::is_name(file_name)
    }

    fn claims(&self, _stem: &str, _file_name: &str) -> Option<Size> {
        None
    }

    fn mistakes(&self, _stem: &str, _file_name: &str) -> bool {
        false
    }

    /// One file holds one entry here, so no other geometry ever lies beside a wanted one.
    fn would_make(&self, _image: &Image, _pixels: &PixelRecipe, _mask: bool) -> bool {
        false
    }
}

impl SimpleTuner {
    fn pixels(&self, probe: &Probe, resized: Size, crop: Rect) -> PixelRecipe {
        PixelRecipe {
            decoder: Decoder::ImageCrate,
            orientation: 1,
            colour: Colour::AsStored,
            clip_gray16: false,
            alpha: if probe.transparent { Alpha::Drop } else { Alpha::Opaque },
            resample: (probe.size != resized).then_some(Resample::Cv2Linear),
            resized,
            crop,
            mirrored: false,
        }
    }

    /// A gzipped file is taken where the trainer may expect one; see [`Options::compress`].
    fn gzip(&self) -> Gzip {
        match self.options.compress {
            Some(true) => Gzip::Write,
            Some(false) => Gzip::Never,
            None => Gzip::Read,
        }
    }
}

fn harms_of_file(image: &Image, probe: &Probe) -> Vec<Problem> {
    let mut harms = Vec::new();
    let mut warn = |kind, message: String, hint: &str| {
        harms.push(Problem::warning(image.path.clone(), kind, message).with_hint(hint));
    };
    if probe.transparent {
        let message = "has transparency, which SimpleTuner cuts off: colours hidden under it are trained";
        warn(Kind::Alpha, message.to_owned(), "flatten the image");
    }
    if probe.orientation != 1 {
        let orientation = probe.orientation;
        let message = format!("has EXIF orientation {orientation}, which SimpleTuner loses: it is trained as stored");
        warn(Kind::Oriented, message, "rotate the pixels and remove the tag");
    }
    if probe.profile == Profile::Other {
        let message = "has a colour profile that is not sRGB, which SimpleTuner ignores";
        warn(Kind::Icc, message.to_owned(), "convert the image to sRGB");
    }
    if probe.bits > 8 {
        let message = format!("has {} bits a channel, which SimpleTuner rounds to 8", probe.bits);
        warn(Kind::BitDepth, message, "convert the image to 8 bits a channel");
    }
    harms
}
