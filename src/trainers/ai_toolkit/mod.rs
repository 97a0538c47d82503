//! ostris/ai-toolkit 0.12.26: its buckets, pixels, cache names and scaling; jobs as datasets.
//!
//! Facts cite the trainer's files: `dm` = `toolkit/dataloader_mixins.py`, `dl` = `toolkit/data_loader.py`. The trainer
//! undoes EXIF orientation, cuts alpha off, ignores colour profiles, mirrors, resizes with Pillow's bicubic and crops
//! (`dm:894-939`). A cache is taken if its name exists (`dm:1937`), whatever is in it; and a file that cannot be read makes
//! the trainer train another picture in its place, so what is damaged is always written anew.

mod arch;
pub mod job;
mod name;
mod yaml;

pub use job::JobSettings;

use super::agree;
use super::{Convention, Own, Place, Placement, Subset, WantedArtefact, WantedEntry};
use crate::bucket::ai_toolkit::Settings;
use crate::bucket::{AiToolkitBuckets, BucketRule};
use crate::containers::{Container, Dtype};
use crate::dataset::{Image, Probe, Profile};
use crate::error::{Error, Result};
use crate::hash::EncoderId;
use crate::pixels::orient;
use crate::problem::{Kind, Problem};
use crate::recipe::{
    Alpha, Colour, Decoder, EntryKind, Family, Filter, KeyInputs, PixelRecipe, Posterior, Recipe, Resample, Target,
};
use crate::units::Size;
use arch::Arch;
use name::Flips;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// Extensions that the trainer lists, in any case (`dl:39`).
const EXTENSIONS: [&str; 4] = ["jpg", "jpeg", "png", "webp"];

/// A folder of this name holds pictures that the trainer makes itself and leaves out (`dl:450`).
const CONTROLS: &str = "_controls";

/// A dataset's resolution in a job that says none (`config_modules.py:954`), in pixels.
const JOB_RESOLUTION: u32 = 512;

/// The ai-toolkit convention with its settings resolved.
pub struct AiToolkit {
    family: Family,
    arch: &'static Arch,
    latent_space: String,
    rule: AiToolkitBuckets,
    resolution: u32,
    flips: Vec<Flips>,
    described: bool,
    caching: bool,
    batch: u32,
    dtype: Dtype,
    posterior: Posterior,
    settings: BTreeMap<String, String>,
}

impl AiToolkit {
    /// Resolves the settings of `subset` under `recipe`: the job, else a flag, else the trainer's default.
    ///
    /// # Errors
    /// A family or arch whose caches are not written; flags that would give other pixels or buckets than the trainer's
    /// own, or that contradict the job.
    pub fn new(subset: &Subset, recipe: &Recipe) -> Result<Self> {
        refuse_other_pixels(recipe)?;
        let said = &subset.settings;
        let own = match &said.own {
            Own::AiToolkit(own) => own.clone(),
            _ => JobSettings::default(),
        };
        let family = recipe.family;
        let arch = arch::resolve(family, own.arch.as_deref())?;
        let described = subset.described_by == Some(Target::AiToolkit);
        let resolution = square(agree("--resolution", recipe.resolution, "resolution", said.resolution)?)?;
        let resolution = resolution.unwrap_or(if described { JOB_RESOLUTION } else { family.native_resolution() });
        let step = agree("--bucket-step", recipe.bucket_step, "arch", Some(arch.step))?.unwrap_or(arch.step);
        super::ensure_whole_latents(family, Some(step), own.square_crop.then_some(Size::new(resolution, resolution)))?;
        let asked = Settings { resolution, step, scale: own.scale.unwrap_or(1.0), square_crop: own.square_crop };
        let rule = AiToolkitBuckets::new(asked).map_err(|message| Error::Usage { message, hint: None })?;
        let flip_x = agree("--flip", recipe.flip, "flip_x", said.flip)?.unwrap_or(false);
        let mut convention = Self {
            family,
            arch,
            latent_space: own.latent_space.unwrap_or_else(|| arch.latent_space.to_owned()),
            rule,
            resolution,
            flips: copies(flip_x, own.flip_y),
            described,
            caching: own.caching,
            batch: recipe.batch.or(said.batch).unwrap_or(1),
            dtype: recipe.store_dtype.unwrap_or(Dtype::F32),
            posterior: recipe.posterior,
            settings: BTreeMap::new(),
        };
        convention.settings = convention.describe(&asked, flip_x, own.flip_y);
        Ok(convention)
    }

    fn describe(&self, rule: &Settings, flip_x: bool, flip_y: bool) -> BTreeMap<String, String> {
        let resolution = self.resolution;
        BTreeMap::from([
            ("resolution".to_owned(), resolution.to_string()),
            ("max-area".to_owned(), (u64::from(resolution) * u64::from(resolution)).to_string()),
            ("bucket-step".to_owned(), rule.step.to_string()),
            ("no-bucket".to_owned(), rule.square_crop.to_string()),
            ("scale".to_owned(), rule.scale.to_string()),
            ("arch".to_owned(), self.arch.name.to_owned()),
            ("latent-space".to_owned(), self.latent_space.clone()),
            ("flip".to_owned(), flip_x.to_string()),
            ("flip-y".to_owned(), flip_y.to_string()),
            ("alpha-mask".to_owned(), "false".to_owned()),
            ("resize".to_owned(), Filter::Bicubic.name().to_owned()),
            ("orientation".to_owned(), "apply".to_owned()),
            ("icc".to_owned(), "ignore".to_owned()),
            ("store-dtype".to_owned(), self.dtype.name().to_owned()),
            ("batch".to_owned(), self.batch.to_string()),
        ])
    }

    /// (C, H, W), for video models (C, 1, H, W), in the scaled space that the trainer caches.
    fn entry(&self, placement: &Placement, inputs: KeyInputs) -> WantedEntry {
        let [channels, h, w] = self.family.latent_shape(inputs.stored, placement.assignment.bucket);
        let shape = if self.arch.frames { vec![channels, 1, h, w] } else { vec![channels, h, w] };
        WantedEntry {
            kind: EntryKind::Latents,
            tensor: "latent".to_owned(),
            shape,
            inputs,
            companions: BTreeMap::new(),
        }
    }
}

impl Convention for AiToolkit {
    fn target(&self) -> Target {
        Target::AiToolkit
    }

    fn place(&self, image: &Image) -> Result<Placement, Problem> {
        ensure_listed(image)?;
        let probe = super::probed(image)?;
        let source = probe.upright();
        let assignment = self.rule.assign(source).map_err(|no| super::no_bucket(image, &no))?;
        let pixels = PixelRecipe {
            decoder: Decoder::Pillow,
            orientation: probe.orientation,
            colour: Colour::AsStored,
            clip_gray16: clips_gray16(probe),
            alpha: if probe.transparent { Alpha::Drop } else { Alpha::Opaque },
            resample: (source != assignment.resized).then_some(Resample::PillowBicubic),
            resized: assignment.resized,
            crop: assignment.crop,
            mirrored: false,
        };
        Ok(Placement { source, assignment, pixels })
    }

    fn harms(&self, image: &Image) -> Vec<Problem> {
        let Some(probe) = &image.probe else { return Vec::new() };
        let mut harms = Vec::new();
        let mut warn = |kind, message: String, hint: &str| {
            harms.push(Problem::warning(image.path.clone(), kind, message).with_hint(hint));
        };
        if probe.transparent {
            let message = "has transparency, which ai-toolkit cuts off: colours hidden under it are trained";
            warn(Kind::Alpha, message.to_owned(), "flatten the image, or train with alpha_mask: true");
        }
        if probe.profile == Profile::Other {
            let message = "has a colour profile that is not sRGB, which ai-toolkit ignores";
            warn(Kind::Icc, message.to_owned(), "convert the image to sRGB");
        }
        if probe.bits > 8 {
            let gray = "is 16-bit gray, which the trainer's loader clips at 255: it is nearly white";
            let rgb = format!("has {} bits a channel; the high 8 are used", probe.bits);
            let message = if probe.gray { gray.to_owned() } else { rgb };
            warn(Kind::BitDepth, message, "convert the image to 8 bits a channel");
        }
        harms
    }

    fn wanted(&self, image: &Image, placement: &Placement, encoder: Option<EncoderId>) -> Vec<WantedArtefact> {
        let Some(content) = image.content else { return Vec::new() };
        let copy = |&flips: &Flips| {
            let orientation = turned(placement.pixels.orientation, flips);
            let pixels = PixelRecipe { orientation, ..placement.pixels.clone() };
            let stored = self.family.scaled(self.dtype);
            let inputs = KeyInputs::latent(content, pixels, encoder, self.posterior, stored);
            let path = name::cache_path(&image.relative, &placement.assignment, &self.latent_space, flips);
            let entries = vec![self.entry(placement, inputs)];
            WantedArtefact { place: Place::Beside { path, older: None }, container: Container::Safetensors, entries }
        };
        self.flips.iter().map(copy).collect()
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

    fn cache_folders(&self, subset: &Subset) -> Vec<(PathBuf, bool)> {
        let Some(listed) = &subset.listed else { return vec![(subset.folder.clone(), subset.recursive)] };
        let folders: BTreeSet<_> = listed.iter().filter_map(|listed| listed.path.parent()).collect();
        folders.into_iter().map(|folder| (folder.join(name::FOLDER), false)).collect()
    }

    fn setup(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if !self.caching {
            lines.push("set `cache_latents_to_disk: true` for the dataset in ai-toolkit's job".to_owned());
        }
        if !self.described {
            let (resolution, arch) = (self.resolution, self.arch.name);
            lines.push(format!("set `resolution: {resolution}` there, and `arch: {arch}` for the model"));
            if self.flips.len() > 1 {
                lines.push("set `flip_x: true` there".to_owned());
            }
        }
        lines
    }

    fn names(&self, file_name: &str) -> bool {
        name::is_cache_name(file_name)
    }

    fn nominal_area(&self) -> u64 {
        u64::from(self.resolution) * u64::from(self.resolution)
    }

    /// Names are hashes, so none is mistaken for another's.
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

/// The picture and its mirrored copies: `flip_y` also copies what `flip_x` copied (`dl:584-608`).
fn copies(flip_x: bool, flip_y: bool) -> Vec<Flips> {
    let all = [(false, false), (true, false), (false, true), (true, true)];
    let wanted = all.into_iter().filter(|&(x, y)| (flip_x || !x) && (flip_y || !y));
    wanted.map(|(x, y)| Flips { x, y }).collect()
}

/// Mirroring comes before the resize and the crop (`dm:924`), so it is one more turn of the stored picture.
fn turned(orientation: u8, flips: Flips) -> u8 {
    let sideways = if flips.x { orient::then_mirrored(orientation) } else { orientation };
    if flips.y { orient::then_upside_down(sideways) } else { sideways }
}

/// Resolutions are the sides of squares.
fn square(resolution: Option<Size>) -> Result<Option<u32>> {
    match resolution {
        Some(size) if size.width != size.height => {
            let message = format!("--resolution {size}: ai-toolkit's resolution is one number");
            Err(Error::usage(message, "give the side of the square that has the wanted area: --resolution 768"))
        }
        other => Ok(other.map(|size| size.width)),
    }
}

/// Refuses what the trainer cannot do: its own pixels would differ from the cached ones.
fn refuse_other_pixels(recipe: &Recipe) -> Result<()> {
    let flags = [
        (recipe.orientation == Some(false), "--orientation ignore", "the trainer always turns pictures upright"),
        (recipe.icc == Some(true), "--icc apply", "convert the files to sRGB themselves, or use --for store"),
        (recipe.background.is_some(), "--background", "flatten the files themselves, or use --for store"),
        (recipe.max_area.is_some(), "--max-area", "the trainer's cap is its resolution: use --resolution"),
        (recipe.min_bucket.is_some(), "--min-bucket", "the trainer has no shortest side: leave it out"),
        (recipe.max_bucket.is_some(), "--max-bucket", "the trainer has no longest side: leave it out"),
        (recipe.buckets == Some(false), "--no-bucket", "give a job with square_crop: true instead"),
        (recipe.upscale == Some(true), "--upscale", "the trainer enlarges to the next step only: leave it out"),
        (recipe.upscale == Some(false), "--no-upscale", "the trainer enlarges to the next step: leave it out"),
        (recipe.alpha_mask == Some(true), "--alpha-mask", "the trainer reads masks from the pictures: leave it out"),
        (
            recipe.resize.is_some_and(|filter| !matches!(filter, Filter::Auto | Filter::Bicubic)),
            "--resize",
            "the trainer's filter is bicubic: leave it out",
        ),
    ];
    match flags.into_iter().find(|(given, ..)| *given) {
        None => Ok(()),
        Some((_, flag, hint)) => {
            Err(Error::usage(format!("{flag}: ai-toolkit itself would get other pixels, buckets or names"), hint))
        }
    }
}

/// The trainer lists files by extension, and leaves out what lies directly in a folder of its own pictures.
fn ensure_listed(image: &Image) -> Result<(), Problem> {
    let folder = image.relative.parent().and_then(|folder| folder.file_name());
    if folder.is_some_and(|folder| folder == CONTROLS) {
        let message = format!("lies in `{CONTROLS}`, which ai-toolkit leaves out");
        return Err(Problem::note(image.path.clone(), Kind::Unsupported, message));
    }
    let extension = image.relative.extension().and_then(|e| e.to_str()).unwrap_or("").to_ascii_lowercase();
    if EXTENSIONS.contains(&extension.as_str()) {
        return Ok(());
    }
    let message = format!("ai-toolkit does not list the extension `.{extension}`: it never sees this file");
    let hint = "convert it to .png, .jpg, .jpeg or .webp";
    Err(Problem::error(image.path.clone(), Kind::Unsupported, message).with_hint(hint))
}

/// Pillow's conversion of 16-bit gray clips (`dm:911`, `Image.convert`).
fn clips_gray16(probe: &Probe) -> bool {
    probe.gray && probe.bits == 16
}
