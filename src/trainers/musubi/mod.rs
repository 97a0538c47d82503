//! kohya-ss/musubi-tuner: its buckets, pixels, file and tensor names, for single pictures.
//!
//! Facts cite the trainer's files under `src/musubi_tuner` at 30c658c4: `ivd` = `dataset/image_video_dataset.py`, `ds` =
//! `dataset/datasources.py`, `mu` = `dataset/media_utils.py`. The trainer ignores EXIF orientation and colour profiles
//! and cuts alpha off; this convention follows, or buckets and pixels would not be the trainer's own, and
//! [`Musubi::harms`] names the files that suffer.
//!
//! It trains on every cache file in its folder, whether an image of that name is still there or not (`ivd:489-548`). So
//! what no image wants must not stay there: [`Musubi::uses_unasked`].

pub mod config;
mod layout;
mod list;

use super::{Convention, Own, Placement, Subset, WantedArtefact, agree};
use crate::bucket::musubi::Settings;
use crate::bucket::{Assignment, BucketRule, MusubiBuckets};
use crate::containers::Dtype;
use crate::dataset::{Image, Probe, Profile};
use crate::error::{Error, Result};
use crate::hash::EncoderId;
use crate::pixels::Format;
use crate::problem::{Kind, Problem};
use crate::recipe::{Alpha, Colour, Decoder, Filter, PixelRecipe, Posterior, Recipe, Resample, Target};
use crate::units::Size;
use layout::Architecture;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Extensions that the trainer lists, all lower or all upper case only (`mu:21`); AVIF and JPEG XL are not read here.
const EXTENSIONS: [&str; 5] = ["png", "jpg", "jpeg", "webp", "bmp"];

/// `resolution` where a description is silent (`dataset/config_utils.py:35`).
const DEFAULT_RESOLUTION: Size = Size::new(960, 544);

/// The musubi-tuner convention with its settings resolved.
pub struct Musubi {
    architecture: Architecture,
    rule: MusubiBuckets,
    asked: Settings,
    cache_directory: Option<PathBuf>,
    /// Its own description lists the images, so its settings need not be said again.
    described: bool,
    /// Captions come with the list of images, not from files beside them.
    captions_listed: bool,
    batch: u32,
    dtype: Dtype,
    posterior: Posterior,
}

impl Musubi {
    /// Resolves the settings of `subset` under `recipe`: the description, else a flag, else the trainer's default.
    ///
    /// # Errors
    /// A family whose caches it does not have; flags that would give other pixels or buckets than the trainer's own,
    /// those that contradict the description among them; sizes on which it stops.
    pub fn new(subset: &Subset, recipe: &Recipe) -> Result<Self> {
        let architecture = Architecture::of(recipe.family)?;
        let described = subset.described_by == Some(Target::Musubi);
        refuse_other_pixels(recipe, architecture.step)?;
        let asked = settings(subset, recipe, described, architecture.step)?;
        ensure_encodable(&architecture, &asked)?;
        let hint = "give a larger --resolution";
        let rule = MusubiBuckets::new(asked).map_err(|message| Error::usage(message, hint))?;
        let cache_directory = match &subset.settings.own {
            Own::Musubi { cache_directory } => Some(cache_directory.clone()),
            _ => None,
        };
        ensure_globbed(cache_directory.as_deref().unwrap_or(&subset.folder))?;
        Ok(Self {
            rule,
            asked,
            cache_directory,
            described,
            captions_listed: subset.listed.is_some(),
            batch: recipe.batch.or(subset.settings.batch).unwrap_or(1),
            dtype: recipe.store_dtype.unwrap_or(architecture.dtype),
            posterior: recipe.posterior,
            architecture,
        })
    }

    /// What becomes of transparency. Pillow multiplies the colours of an RGBA picture by alpha while it enlarges it;
    /// then alpha is cut off (`cache_latents.py:295-302`). All other kinds lose it first (`ds:224`).
    fn alpha(probe: &Probe, resample: Option<Resample>) -> Alpha {
        match (probe.transparent, resample) {
            (false, _) => Alpha::Opaque,
            (true, Some(filter)) if is_rgba(probe) && filter.premultiplies() => Alpha::Keep,
            (true, _) => Alpha::Drop,
        }
    }
}

impl Convention for Musubi {
    fn target(&self) -> Target {
        Target::Musubi
    }

    fn place(&self, image: &Image) -> Result<Placement, Problem> {
        ensure_listed(image)?;
        if image.caption.is_none() && !self.captions_listed {
            let message = "has no caption: musubi-tuner leaves the image out";
            return Err(Problem::error(image.path.clone(), Kind::CaptionMissing, message)
                .with_hint("write one beside it, with the caption_extension of the dataset"));
        }
        let probe = super::probed(image)?;
        let assignment = self.rule.assign(probe.size).map_err(|no| super::no_bucket(image, &no))?;
        let resample = resample(probe.size, &assignment);
        let pixels = PixelRecipe {
            decoder: Decoder::Pillow,
            orientation: 1,
            colour: Colour::AsStored,
            clip_gray16: probe.gray && probe.bits == 16 && !is_rgba(probe),
            alpha: Self::alpha(probe, resample),
            resample,
            resized: assignment.resized,
            crop: assignment.crop,
            mirrored: false,
        };
        Ok(Placement { source: probe.size, assignment, pixels })
    }

    fn against_enlarging(&self) -> &'static str {
        super::KEEP_SMALL
    }

    fn harms(&self, image: &Image) -> Vec<Problem> {
        image.probe.as_ref().map(|probe| harms(&image.path, probe)).unwrap_or_default()
    }

    fn wanted(&self, image: &Image, placement: &Placement, encoder: Option<EncoderId>) -> Vec<WantedArtefact> {
        let Some(content) = image.content else { return Vec::new() };
        vec![layout::artefact(self, image, content, placement, encoder)]
    }

    fn settings(&self) -> BTreeMap<String, String> {
        let Settings { resolution, step, enabled, upscale } = self.asked;
        let settings = [
            ("resolution", super::resolution_text(resolution)),
            ("max-area", resolution.area().to_string()),
            ("bucket-step", step.to_string()),
            ("no-bucket", (!enabled).to_string()),
            ("upscale", upscale.to_string()),
            ("orientation", "ignore".to_owned()),
            ("icc", "ignore".to_owned()),
            ("resize", Filter::Auto.name().to_owned()),
            ("flip", "false".to_owned()),
            ("alpha-mask", "false".to_owned()),
            ("store-dtype", self.dtype.name().to_owned()),
            ("batch", self.batch.to_string()),
        ];
        settings.map(|(name, value)| (name.to_owned(), value)).into()
    }

    fn batch(&self) -> u32 {
        self.batch
    }

    fn names_by_stem(&self) -> bool {
        true
    }

    fn cache_folders(&self, subset: &Subset) -> Vec<(PathBuf, bool)> {
        match &self.cache_directory {
            Some(folder) => vec![(folder.clone(), false)],
            None => vec![(subset.folder.clone(), subset.recursive)],
        }
    }

    fn folder(&self, image: &Image) -> PathBuf {
        let beside = || image.relative.parent().map(Path::to_path_buf).unwrap_or_default();
        self.cache_directory.clone().unwrap_or_else(beside)
    }

    fn metadata(&self, placement: &Placement) -> BTreeMap<String, String> {
        self.architecture.metadata(placement.source)
    }

    fn clashes(&self, tensor: &str, other: &str) -> bool {
        tensor != other && layout::is_target(other)
    }

    fn uses_unasked(&self, file_name: &str) -> Option<&'static str> {
        self.architecture.uses_unasked(file_name)
    }

    fn setup(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if !self.described {
            let Settings { resolution, enabled, upscale, .. } = self.asked;
            let Size { width, height } = resolution;
            lines.push(format!(
                "give each folder of images a [[datasets]] with resolution = [{width}, {height}], enable_bucket = \
                 {enabled}, bucket_no_upscale = {}, a caption_extension, and as cache_directory the folder of its caches",
                !upscale
            ));
        }
        lines.extend(self.architecture.setup());
        lines
    }

    fn nominal_area(&self) -> u64 {
        self.asked.resolution.area()
    }

    fn names(&self, file_name: &str) -> bool {
        self.architecture.names(file_name)
    }

    fn claims(&self, stem: &str, file_name: &str) -> Option<Size> {
        self.architecture.claimed_size(stem, file_name)
    }

    /// Stems are compared whole.
    fn mistakes(&self, _stem: &str, _file_name: &str) -> bool {
        false
    }

    /// A file holds one latent: all that lie in it would be read into one batch (`dataset/bucket.py:253-270`).
    fn would_make(&self, _image: &Image, _pixels: &PixelRecipe, _mask: bool) -> bool {
        false
    }
}

fn settings(subset: &Subset, recipe: &Recipe, described: bool, step: u32) -> Result<Settings> {
    let said = &subset.settings;
    let native = recipe.family.native_resolution();
    let default = if described { DEFAULT_RESOLUTION } else { Size::new(native, native) };
    // Where the trainer's own description is silent, its default is what it says.
    let said_buckets = said.buckets.or(described.then_some(false));
    let said_upscale = said.upscale.or(described.then_some(true));
    let said_resolution = said.resolution.or(described.then_some(default));
    let enabled = agree("--no-bucket", recipe.buckets, "enable_bucket", said_buckets)?.unwrap_or(true);
    Ok(Settings {
        resolution: agree("--resolution", recipe.resolution, "resolution", said_resolution)?.unwrap_or(default),
        step,
        enabled,
        upscale: agree("--upscale", recipe.upscale, "bucket_no_upscale", said_upscale)?.unwrap_or(true) || !enabled,
    })
}

/// Refuses what the trainer cannot do: its own pixels would differ from the cached ones.
fn refuse_other_pixels(recipe: &Recipe, step: u32) -> Result<()> {
    let cannot = [
        (recipe.orientation == Some(true), "--orientation apply", "rotate the files themselves, or use --for store"),
        (recipe.icc == Some(true), "--icc apply", "convert the files to sRGB themselves, or use --for store"),
        (recipe.background.is_some(), "--background", "flatten the files themselves, or use --for store"),
        (recipe.max_area.is_some(), "--max-area", "the trainer's cap is its resolution: use --resolution"),
        (recipe.min_bucket.is_some(), "--min-bucket", "the trainer's buckets follow from --resolution alone"),
        (recipe.max_bucket.is_some(), "--max-bucket", "the trainer's buckets follow from --resolution alone"),
        (recipe.bucket_step.is_some_and(|asked| asked != step), "--bucket-step", "the trainer's step is 16"),
        (recipe.resize.is_some_and(|asked| asked != Filter::Auto), "--resize", "the trainer chooses its filter itself"),
        (recipe.flip == Some(true), "--flip", "the trainer has no mirrored latents: leave it out"),
        (recipe.alpha_mask == Some(true), "--alpha-mask", "the trainer has no loss masks: leave it out"),
    ];
    match cannot.into_iter().find(|(asked, ..)| *asked) {
        None => Ok(()),
        Some((_, flag, hint)) => {
            Err(Error::usage(format!("{flag}: musubi-tuner itself would get other pixels, buckets or latents"), hint))
        }
    }
}

/// One size for all may be off the step; what the encoder cannot halve to the end, or the trainer's script stops at
/// (`cache_latents.py:222`, `zimage_cache_latents.py:59`), is refused.
fn ensure_encodable(architecture: &Architecture, asked: &Settings) -> Result<()> {
    if asked.enabled {
        return Ok(());
    }
    let Settings { resolution, .. } = asked;
    let (multiple, least) = (architecture.multiple, architecture.least);
    let whole = |side: u32| side >= least && side.is_multiple_of(multiple);
    if whole(resolution.width) && whole(resolution.height) {
        return Ok(());
    }
    let message = format!(
        "resolution {resolution} without buckets: latents for `{}` need multiples of {multiple} pixels, at least {least}",
        architecture.short
    );
    Err(Error::usage(message, format!("use multiples of {multiple}, or enable_bucket")))
}

/// The trainer looks for caches with a pattern made of the folder's name as it stands (`ivd:493`).
fn ensure_globbed(folder: &Path) -> Result<()> {
    let name = folder.to_string_lossy();
    if !name.contains(['[', '*', '?']) {
        return Ok(());
    }
    let message = "musubi-tuner takes `[`, `*` and `?` in a folder of caches for a pattern: it would find none there";
    Err(Error::input(folder, message).with_hint("rename the folder, or set another cache_directory"))
}

/// The trainer lists files by extension, all lower or all upper case (`mu:21`, `mu:58`).
fn ensure_listed(image: &Image) -> Result<(), Problem> {
    let extension = image.relative.extension().and_then(|e| e.to_str()).unwrap_or("");
    if EXTENSIONS.iter().any(|&e| extension == e || extension == e.to_uppercase()) {
        return Ok(());
    }
    let message = format!("musubi-tuner does not list the extension `.{extension}`: it never sees this file");
    let hint = "rename it to .png .jpg .jpeg .webp or .bmp, all lower or all upper case";
    Err(Problem::error(image.path.clone(), Kind::Unsupported, message).with_hint(hint))
}

/// Pillow's Lanczos where the larger factor enlarges, else OpenCV's area (`mu:119-131`).
fn resample(source: Size, assignment: &Assignment) -> Option<Resample> {
    let bucket = assignment.bucket;
    let enlarges = bucket.width > source.width || bucket.height > source.height;
    let filter = if enlarges { Resample::PillowLanczos } else { Resample::Cv2Area };
    (source != assignment.resized).then_some(filter)
}

/// True for what Pillow opens as RGBA: an alpha channel beside colours, and 16-bit gray with alpha, but neither 8-bit
/// gray with alpha (`LA`) nor a transparent colour or palette entry.
fn is_rgba(probe: &Probe) -> bool {
    let channel = probe.alpha_channel && !probe.keyed_alpha;
    channel && (!probe.gray || (probe.format == Format::Png && probe.bits == 16))
}

fn harms(path: &str, probe: &Probe) -> Vec<Problem> {
    let mut harms = Vec::new();
    let mut warn = |kind, message: String, hint: &str| {
        harms.push(Problem::warning(path, kind, message).with_hint(hint));
    };
    if probe.transparent {
        let message = "has transparency, which musubi-tuner cuts off: colours hidden under it are trained";
        warn(Kind::Alpha, message.to_owned(), "flatten the image");
    }
    if probe.orientation != 1 {
        let orientation = probe.orientation;
        let message =
            format!("has EXIF orientation {orientation}, which musubi-tuner ignores: it is trained as stored");
        warn(Kind::Oriented, message, "rotate the pixels and remove the tag");
    }
    if probe.profile == Profile::Other {
        let message = "has a colour profile that is not sRGB, which musubi-tuner ignores";
        warn(Kind::Icc, message.to_owned(), "convert the image to sRGB");
    }
    if probe.bits > 8 {
        let gray = "is 16-bit gray, which the trainer's loader clips at 255: it is nearly white";
        let high = format!("has {} bits a channel; the high 8 are used", probe.bits);
        let message = if probe.gray && !is_rgba(probe) { gray.to_owned() } else { high };
        warn(Kind::BitDepth, message, "convert the image to 8 bits a channel");
    }
    harms
}
