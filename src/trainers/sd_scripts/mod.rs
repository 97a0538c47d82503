//! kohya-ss/sd-scripts 0.10.1: its buckets, pixels, file names, arrays and scaling.
//!
//! Facts cite the trainer's files: `tu` = `library/train_util.py`, `sb` = `library/strategy_base.py`. The trainer
//! ignores EXIF orientation and colour profiles and cuts alpha off; this convention follows, or buckets and pixels
//! would not be the trainer's own, and [`SdScripts::harms`] names the files that suffer.

pub mod config;
mod harms;
mod info;
mod layout;
pub mod metadata;

use super::{Convention, Placement, Search, Subset, WantedArtefact, agree};
use crate::bucket::sd_scripts::Settings;
use crate::bucket::{BucketRule, SdScriptsBuckets};
use crate::containers::Dtype;
use crate::dataset::{Image, Probe, Stated};
use crate::error::{Error, Result};
use crate::hash::EncoderId;
use crate::problem::Problem;
use crate::recipe::{Alpha, Colour, Decoder, Family, Filter, PixelRecipe, Posterior, Recipe, Resample, Target};
use crate::units::Size;
use std::collections::BTreeMap;

/// Families whose caches are written for it.
const FAMILIES: [Family; 8] = [
    Family::Sd15,
    Family::Sdxl,
    Family::Sd3,
    Family::Flux,
    Family::Chroma,
    Family::Lumina2,
    Family::HunyuanImage,
    Family::Anima,
];

/// What the bucket step has to be a multiple of, in pixels: the least that any of a family's training scripts asserts
/// (`verify_bucket_reso_steps` in `train_network.py:175`, `sdxl_train.py:189`, `sd3_train.py:165`, `flux_train.py:151`,
/// `flux_train_network.py:95`, `lumina_train.py:157`, `hunyuan_image_train_network.py:352`, `anima_train.py:135`).
const fn step_unit(family: Family) -> u32 {
    match family {
        Family::Sd15 => 64,
        Family::Sdxl | Family::Chroma | Family::HunyuanImage => 32,
        Family::Sd3 => 8,
        _ => 16,
    }
}

/// The sd-scripts convention with its settings resolved.
pub struct SdScripts {
    family: Family,
    rule: SdScriptsBuckets,
    resolution: Size,
    resize: Filter,
    flip: bool,
    alpha_mask: bool,
    batch: u32,
    dtype: Dtype,
    posterior: Posterior,
    settings: BTreeMap<String, String>,
    /// The trainer's own flags for these settings, where no description of its own says them.
    flags: Option<String>,
}

impl SdScripts {
    /// Resolves the settings of `subset` under `recipe`: the description, else a flag, else the trainer's default
    /// (`config_util.py:103`, where the description wins over the trainer's command line as well).
    ///
    /// # Errors
    /// Flags that would give other pixels or buckets than the trainer's own, those that contradict the description
    /// among them; sizes that the trainer asserts against.
    pub fn new(subset: &Subset, recipe: &Recipe) -> Result<Self> {
        super::ensure_known(Target::SdScripts, recipe.family, &FAMILIES)?;
        refuse_other_pixels(recipe)?;
        let said = &subset.settings;
        let native = recipe.family.native_resolution();
        let resolution = agree("--resolution", recipe.resolution, "resolution", said.resolution)?;
        let resolution = resolution.unwrap_or(Size::new(native, native));
        let asked = Settings {
            resolution,
            min_bucket: agree("--min-bucket", recipe.min_bucket, "min_bucket_reso", said.min_bucket)?.unwrap_or(256),
            max_bucket: agree("--max-bucket", recipe.max_bucket, "max_bucket_reso", said.max_bucket)?.unwrap_or(1024),
            step: agree("--bucket-step", recipe.bucket_step, "bucket_reso_steps", said.bucket_step)?.unwrap_or(64),
            upscale: agree("--upscale", recipe.upscale, "bucket_no_upscale", said.upscale)?.unwrap_or(true),
            enabled: agree("--no-bucket", recipe.buckets, "enable_bucket", said.buckets)?
                .unwrap_or(subset.described_by != Some(Target::SdScripts)),
        };
        super::ensure_whole_latents(
            recipe.family,
            asked.enabled.then_some(asked.step),
            (!asked.enabled).then_some(resolution),
        )?;
        ensure_step(recipe.family, &asked)?;
        let settings = describe(&asked);
        let flags = (subset.described_by != Some(Target::SdScripts)).then(|| bucket_flags(&asked));
        let hint = "--min-bucket and --max-bucket set the range; the trainer's own are 256 and 1024";
        let rule = SdScriptsBuckets::new(asked).map_err(|message| Error::usage(message, hint))?;
        let mut convention = Self {
            family: recipe.family,
            rule,
            resolution,
            resize: agree("--resize", recipe.resize, "resize_interpolation", said.resize)?.unwrap_or(Filter::Auto),
            flip: agree("--flip", recipe.flip, "flip_aug", said.flip)?.unwrap_or(false),
            alpha_mask: agree("--alpha-mask", recipe.alpha_mask, "alpha_mask", said.alpha_mask)?.unwrap_or(false),
            batch: recipe.batch.or(said.batch).unwrap_or(1),
            dtype: recipe.store_dtype.unwrap_or(Dtype::F32),
            posterior: recipe.posterior,
            settings,
            flags,
        };
        for (name, value) in [
            ("flip", convention.flip.to_string()),
            ("alpha-mask", convention.alpha_mask.to_string()),
            ("resize", convention.resize.name().to_owned()),
            ("store-dtype", convention.dtype.name().to_owned()),
            ("batch", convention.batch.to_string()),
        ] {
            convention.settings.insert(name.to_owned(), value);
        }
        Ok(convention)
    }

    /// The trainer's mapping of names to libraries (`library/utils.py:216`).
    fn resample(&self, source: Size, resized: Size) -> Option<Resample> {
        if source == resized {
            return None;
        }
        Some(match self.resize {
            Filter::Auto => super::area_or_lanczos(source, resized),
            Filter::Area => Resample::Cv2Area,
            Filter::Lanczos => Resample::PillowLanczos,
            Filter::Box => Resample::PillowBox,
            Filter::Bilinear => Resample::Cv2Linear,
            Filter::Bicubic => Resample::Cv2Cubic,
            Filter::Nearest => Resample::Cv2NearestExact,
        })
    }

    /// Alpha is cut off (`tu:2948`) unless it becomes the mask; then Pillow's filters mix it into the colours.
    fn alpha(&self, probe: &Probe, resample: Option<Resample>) -> Alpha {
        match (probe.transparent, resample) {
            (false, _) => Alpha::Opaque,
            (true, Some(filter)) if self.alpha_mask && filter.premultiplies() => Alpha::Keep,
            (true, _) => Alpha::Drop,
        }
    }
}

impl Convention for SdScripts {
    fn target(&self) -> Target {
        Target::SdScripts
    }

    fn place(&self, image: &Image) -> Result<Placement, Problem> {
        harms::ensure_trainable(image, self.family)?;
        let probe = super::probed(image)?;
        let source = image.stated.and_then(|stated| stated.size).unwrap_or_else(|| believed_size(probe));
        let assignment = self.rule.assign(source).map_err(|no| super::no_bucket(image, &no))?;
        let resample = self.resample(probe.size, assignment.resized);
        let pixels = PixelRecipe {
            decoder: Decoder::Pillow,
            orientation: 1,
            colour: Colour::AsStored,
            clip_gray16: clips_gray16(probe),
            alpha: self.alpha(probe, resample),
            resample,
            resized: assignment.resized,
            crop: assignment.crop,
            mirrored: false,
        };
        Ok(Placement { source, assignment, pixels })
    }

    fn against_enlarging(&self) -> &'static str {
        super::KEEP_SMALL
    }

    fn harms(&self, image: &Image) -> Vec<Problem> {
        harms::of_image(image, self.alpha_mask)
    }

    fn overlooks(&self, subset: &Subset, images: &[&Image]) -> Vec<Problem> {
        harms::unseen_folders(subset, images)
            .into_iter()
            .chain(super::unread_captions(Target::SdScripts, subset, images))
            .collect()
    }

    fn search(&self, image: &Image) -> Search {
        match image.stated {
            None => Search::OwnFirst,
            Some(Stated { size: None, by_full_path: true }) => Search::LongestFirst,
            Some(_) => Search::None,
        }
    }

    fn wanted(&self, image: &Image, placement: &Placement, encoder: Option<EncoderId>) -> Vec<WantedArtefact> {
        let (Some(content), Some(probe)) = (image.content, &image.probe) else { return Vec::new() };
        vec![layout::artefact(self, image, probe, content, placement, encoder)]
    }

    fn settings(&self) -> BTreeMap<String, String> {
        self.settings.clone()
    }

    fn batch(&self) -> u32 {
        self.batch
    }

    fn setup(&self) -> Vec<String> {
        let mut lines = vec!["train with --cache_latents --cache_latents_to_disk".to_owned()];
        if let Some(flags) = &self.flags {
            let on = [(self.flip, " --flip_aug"), (self.alpha_mask, " --alpha_mask")];
            let on: String = on.into_iter().filter_map(|(on, flag)| on.then_some(flag)).collect();
            lines.push(format!("and with {flags}{on}, or the same in its TOML"));
        }
        if self.resize != Filter::Auto {
            lines.push(format!("keep resize_interpolation = \"{}\" in the dataset's TOML", self.resize.name()));
        }
        lines
    }

    fn names_by_stem(&self) -> bool {
        true
    }

    fn nominal_area(&self) -> u64 {
        self.resolution.area()
    }

    fn names(&self, file_name: &str) -> bool {
        layout::names(self.family, file_name)
    }

    fn claims(&self, stem: &str, file_name: &str) -> Option<Size> {
        layout::claimed_size(self.family, stem, file_name)
    }

    fn mistakes(&self, stem: &str, file_name: &str) -> bool {
        layout::mistakes(self.family, stem, file_name)
    }

    fn would_make(&self, image: &Image, pixels: &PixelRecipe, mask: bool) -> bool {
        let Some(probe) = &image.probe else { return false };
        let resample = self.resample(probe.size, pixels.resized);
        let alpha = if mask { mask_alpha(probe) } else { self.alpha(probe, resample) };
        let clip_gray16 = clips_gray16(probe);
        let geometry =
            PixelRecipe { orientation: 1, colour: Colour::AsStored, clip_gray16, alpha, resample, ..pixels.clone() };
        geometry == *pixels
    }
}

fn describe(asked: &Settings) -> BTreeMap<String, String> {
    BTreeMap::from([
        ("resolution".to_owned(), super::resolution_text(asked.resolution)),
        ("max-area".to_owned(), asked.resolution.area().to_string()),
        ("bucket-step".to_owned(), asked.step.to_string()),
        ("min-bucket".to_owned(), asked.min_bucket.to_string()),
        ("max-bucket".to_owned(), asked.max_bucket.to_string()),
        ("no-bucket".to_owned(), (!asked.enabled).to_string()),
        ("upscale".to_owned(), asked.upscale.to_string()),
        ("orientation".to_owned(), "ignore".to_owned()),
        ("icc".to_owned(), "ignore".to_owned()),
    ])
}

/// The trainer's command line for these buckets (`tu:4600-4660`).
fn bucket_flags(asked: &Settings) -> String {
    let resolution = format!("--resolution {},{}", asked.resolution.width, asked.resolution.height);
    if !asked.enabled {
        return resolution;
    }
    let (min, max, step) = (asked.min_bucket, asked.max_bucket, asked.step);
    let buckets = format!("--enable_bucket --min_bucket_reso {min} --max_bucket_reso {max} --bucket_reso_steps {step}");
    format!("{resolution} {buckets}{}", if asked.upscale { "" } else { " --bucket_no_upscale" })
}

/// Refuses a bucket step that the trainer's scripts assert against.
fn ensure_step(family: Family, asked: &Settings) -> Result<()> {
    let unit = step_unit(family);
    if !asked.enabled || asked.step.is_multiple_of(unit) {
        return Ok(());
    }
    let message = format!(
        "--bucket-step {}: sd-scripts trains {} with multiples of {unit} only (bucket_reso_steps)",
        asked.step,
        family.name()
    );
    Err(Error::usage(message, format!("--bucket-step {}", asked.step.next_multiple_of(unit))))
}

/// Refuses what the trainer cannot do: its own pixels would differ from the cached ones.
fn refuse_other_pixels(recipe: &Recipe) -> Result<()> {
    let refuse = |flag: &str, hint: &str| {
        let message = format!("{flag}: sd-scripts itself would get other pixels or buckets");
        Err(Error::usage(message, hint))
    };
    if recipe.orientation == Some(true) {
        return refuse("--orientation apply", "rotate the files themselves, or use --for store");
    }
    if recipe.icc == Some(true) {
        return refuse("--icc apply", "convert the files to sRGB themselves, or use --for store");
    }
    if recipe.background.is_some() {
        return refuse("--background", "flatten the files themselves, or use --alpha-mask (the trainer's alpha_mask)");
    }
    if recipe.max_area.is_some() {
        return refuse("--max-area", "the trainer's cap is its resolution: use --resolution");
    }
    if recipe.store_dtype == Some(Dtype::Bf16) {
        return Err(Error::usage("--store-dtype bf16: numpy's format has no bf16", "use f32 or f16"));
    }
    Ok(())
}

/// Pillow's conversion of 16-bit gray clips (`tu:2948`, `Image.convert`).
fn clips_gray16(probe: &Probe) -> bool {
    probe.gray && probe.bits == 16
}

/// A mask comes from the alpha channel, where there is something in it.
fn mask_alpha(probe: &Probe) -> Alpha {
    if probe.transparent { Alpha::Keep } else { Alpha::Opaque }
}

/// The size that imagesize 1.4.1, the trainer's pinned header reader, reports: one pixel short in each direction for
/// extended WebP, and never turned by EXIF. It names the cache file and chooses the bucket (`tu:1478`).
fn believed_size(probe: &Probe) -> Size {
    let Size { width, height } = probe.size;
    if probe.extended_webp { Size::new(width.saturating_sub(1), height.saturating_sub(1)) } else { probe.size }
}
