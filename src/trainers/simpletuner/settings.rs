//! A dataset's options, resolved from its description, the flags and the trainer's defaults.

use super::Records;
use crate::bucket::simpletuner::{CropAspect, CropStyle, Resolution, Settings};
use crate::containers::Dtype;
use crate::error::{Error, Result};
use crate::recipe::{Family, Filter, Recipe};
use crate::trainers::{Own, Subset, agree, resolution_text};
use crate::units::Size;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The trainer's `--aspect_bucket_alignment`, in pixels.
pub(super) const ALIGNMENT: u32 = 64;

/// Where caches go when no description names a folder.
const CACHE: &str = "simpletuner-vae";

/// What one entry of `multidatabackend.json` says of pixels and places.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// `instance_data_dir`; relative to the root where it lies in it.
    pub base: PathBuf,
    /// `cache_dir_vae`; relative to the root where it lies in it.
    pub cache: PathBuf,
    /// `resolution` under `resolution_type`.
    pub resolution: Resolution,
    /// `crop`; without it only what stepping to the alignment leaves over is cut.
    pub crop: bool,
    /// `crop_aspect`; read where `crop` is on.
    pub aspect: CropAspect,
    /// `crop_style`.
    pub style: CropStyle,
    /// `target_downsample_size`, where `crop` is on and `maximum_image_size` is set.
    pub downsample: Option<Resolution>,
    /// `minimum_image_size`.
    pub minimum: Option<Resolution>,
    /// `minimum_aspect_ratio`.
    pub minimum_aspect: Option<f64>,
    /// `maximum_aspect_ratio`.
    pub maximum_aspect: Option<f64>,
    /// `compress_cache`: whether the trainer gzips. Where it is silent, the trainer's `--compress_disk_cache` decides,
    /// which is not known here: plain files are right either way.
    pub compress: Option<bool>,
    /// What the trainer has recorded of the dataset's pictures.
    pub records: Records,
}

impl Options {
    /// The trainer's defaults for a dataset at `base` with its caches in `cache`.
    pub(super) fn new(base: PathBuf, cache: PathBuf, resolution: Resolution) -> Self {
        Self {
            base,
            cache,
            resolution,
            crop: false,
            aspect: CropAspect::Own,
            style: CropStyle::Centre,
            downsample: None,
            minimum: None,
            minimum_aspect: None,
            maximum_aspect: None,
            compress: None,
            records: Records::new(),
        }
    }

    /// The bucket rule's settings.
    pub(super) fn rule(&self, alignment: u32) -> Settings {
        Settings {
            resolution: self.resolution,
            alignment,
            aspect: self.aspect.clone(),
            style: self.style,
            downsample: self.downsample,
            minimum: self.minimum,
            minimum_aspect: self.minimum_aspect,
            maximum_aspect: self.maximum_aspect,
        }
    }
}

/// `resolution_type: pixel_area`: the area of the square with this edge, in millions of pixels (`df:2963-2990`).
pub(super) fn pixel_area(edge: f64) -> Resolution {
    Resolution::Megapixels(edge * edge / 1e6)
}

/// The options of `subset`.
pub(super) fn options(subset: &Subset, recipe: &Recipe) -> Result<Options> {
    let resolution = agree("--resolution", recipe.resolution, "resolution", subset.settings.resolution)?;
    if let Own::SimpleTuner(options) = &subset.settings.own {
        return Ok((**options).clone());
    }
    let native = recipe.family.native_resolution();
    let size = resolution.unwrap_or(Size::new(native, native));
    if size.width != size.height {
        let message = format!("--resolution {size}: SimpleTuner's resolution is one number");
        return Err(Error::usage(message, "--resolution 1024"));
    }
    Ok(Options::new(PathBuf::new(), PathBuf::from(CACHE), pixel_area(f64::from(size.width))))
}

/// The alignment that a family's model sets over the user's (`check_user_config` of `helpers/models/*/model.py`).
fn forced_alignment(family: Family) -> Option<u32> {
    match family {
        Family::Sdxl | Family::Sd3 | Family::Flux | Family::Lumina2 => Some(64),
        Family::Flux2 | Family::Flux2Klein4b | Family::Flux2Klein9b => Some(16),
        Family::Wan21 => Some(32),
        _ => None,
    }
}

/// Bucket sides are multiples of it.
pub(super) fn alignment(recipe: &Recipe) -> Result<u32> {
    match (recipe.bucket_step, forced_alignment(recipe.family)) {
        (Some(asked), Some(forced)) if asked != forced => {
            let family = recipe.family.name();
            let message =
                format!("--bucket-step {asked}: SimpleTuner aligns the buckets of {family} to {forced} pixels");
            Err(Error::usage(message, format!("leave it out, or --bucket-step {forced}")))
        }
        (asked, forced) => Ok(asked.or(forced).unwrap_or(ALIGNMENT)),
    }
}

/// Refuses what the trainer cannot do: its own pixels or buckets would differ from the cached ones.
pub(super) fn refuse_other_pixels(recipe: &Recipe) -> Result<()> {
    let refused = [
        (recipe.orientation == Some(true), "--orientation apply", "rotate the files themselves"),
        (recipe.icc == Some(true), "--icc apply", "convert the files to sRGB themselves"),
        (recipe.background.is_some(), "--background", "flatten the files themselves"),
        (recipe.max_area.is_some(), "--max-area", "its buckets have no cap: use --resolution"),
        (recipe.min_bucket.is_some(), "--min-bucket", "set minimum_image_size in the dataset's JSON"),
        (recipe.max_bucket.is_some(), "--max-bucket", "its buckets have no longest side"),
        (recipe.buckets == Some(false), "--no-bucket", "set `crop` and `crop_aspect: square` in the dataset's JSON"),
        (
            recipe.upscale == Some(false),
            "--no-upscale",
            "it always enlarges: set minimum_image_size in the dataset's JSON",
        ),
        (recipe.flip == Some(true), "--flip", "it has no mirrored latents"),
        (recipe.alpha_mask == Some(true), "--alpha-mask", "its masks are a dataset of their own"),
        (recipe.resize.is_some_and(|filter| filter != Filter::Auto), "--resize", "it has one filter, OpenCV's linear"),
    ];
    match refused.into_iter().find(|(refused, ..)| *refused) {
        None => Ok(()),
        Some((_, flag, hint)) => {
            Err(Error::usage(format!("{flag}: SimpleTuner itself would get other pixels or buckets"), hint))
        }
    }
}

/// Settings for reports and receipts.
pub(super) fn describe(options: &Options, alignment: u32, dtype: Dtype, batch: u32) -> BTreeMap<String, String> {
    let resolution = match options.resolution {
        Resolution::Edge(edge) => resolution_text(Size::new(edge, edge)),
        area @ Resolution::Megapixels(_) => area.to_string(),
    };
    let crop = match (&options.aspect, options.style, options.crop) {
        (_, _, false) => "none".to_owned(),
        (aspect, style, true) => format!("{} {}", aspect_text(aspect), style_text(style)),
    };
    let limit = |limit: Option<Resolution>| limit.map_or_else(|| "none".to_owned(), |limit| limit.to_string());
    BTreeMap::from([
        ("resolution".to_owned(), resolution),
        ("bucket-step".to_owned(), alignment.to_string()),
        ("crop".to_owned(), crop),
        ("downsample".to_owned(), limit(options.downsample)),
        ("minimum".to_owned(), limit(options.minimum)),
        ("orientation".to_owned(), "ignore".to_owned()),
        ("icc".to_owned(), "ignore".to_owned()),
        ("store-dtype".to_owned(), dtype.name().to_owned()),
        ("batch".to_owned(), batch.to_string()),
    ])
}

fn aspect_text(aspect: &CropAspect) -> &'static str {
    match aspect {
        CropAspect::Own => "preserve",
        CropAspect::Square => "square",
        CropAspect::Closest(_) => "closest",
    }
}

fn style_text(style: CropStyle) -> &'static str {
    match style {
        CropStyle::Centre => "center",
        CropStyle::Corner => "corner",
    }
}

/// What the user must set in the trainer.
pub(super) fn setup(options: &Options, described: bool, alignment: u32, dtype: Dtype) -> Vec<String> {
    let mut lines = Vec::new();
    if !described {
        let (cache, area) = (options.cache.display(), options.resolution);
        let edge = match area {
            Resolution::Edge(edge) => f64::from(edge),
            Resolution::Megapixels(megapixels) => (megapixels * 1e6).sqrt().round(),
        };
        lines.push(format!(
            "in multidatabackend.json give the dataset's folder as \"instance_data_dir\", its `{cache}` (below --out, where \
             that is given) as \"cache_dir_vae\", \"resolution\": {edge}, \"resolution_type\": \"pixel_area\", \"crop\": false"
        ));
    }
    let name = match dtype {
        Dtype::F16 => "fp16",
        Dtype::F32 => "fp32",
        _ => "bf16",
    };
    lines.push(format!("train with --vae_dtype {name} --aspect_bucket_alignment {alignment}"));
    if alignment < ALIGNMENT {
        lines.push(format!(
            "with an alignment of {alignment} the bucket of a ratio hangs on which picture SimpleTuner sees first: let it scan \
             first, prebake follows its aspect_ratio_bucket_metadata_*.json"
        ));
    }
    lines.push("leave vae_cache_clear_each_epoch off, or SimpleTuner deletes these caches and encodes anew".to_owned());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_that_set_their_alignment_refuse_another() {
        assert_eq!(forced_alignment(Family::Flux2), Some(16));
        assert_eq!(forced_alignment(Family::Sd15), None);
    }

    #[test]
    fn an_alignment_below_64_is_warned_of() {
        let options = Options::new(PathBuf::new(), PathBuf::from("cache"), pixel_area(1024.0));
        let lines = |alignment| setup(&options, true, alignment, Dtype::Bf16);
        assert_eq!((lines(64).len(), lines(16).len()), (2, 3));
        assert_eq!(lines(64)[0], "train with --vae_dtype bf16 --aspect_bucket_alignment 64");
    }
}
