//! The conventions that artefacts follow, one file or folder each; adding a trainer is adding one here.
//!
//! [`Convention`] is the one seam: which images it reads, the bucket and pixel recipe of each, and the artefacts and
//! entries it wants for them. It decides everything and touches no file; [`crate::plan`] compares its wishes with what
//! lies in the cache, [`crate::bake`] fulfils them.

pub mod ai_toolkit;
pub mod description;
pub mod diffusion_pipe;
pub mod imagefolder;
pub mod musubi;
pub mod onetrainer;
pub mod sd_scripts;
pub mod simpletuner;
pub mod store;

pub use description::{Description, Listed, Own, Subset, SubsetSettings};

use crate::bucket::simpletuner::AspectTable;
use crate::bucket::{Assignment, NoBucket};
use crate::containers::{Array, Container};
use crate::dataset::{Image, Probe, Profile};
use crate::error::{Error, Result};
use crate::hash::EncoderId;
use crate::problem::{Kind, Problem};
use crate::recipe::{EntryKind, Family, Filter, KeyInputs, PixelRecipe, Recipe, Resample, Stored, Target};
use crate::units::Size;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Where one image goes under a convention.
#[derive(Clone, Debug, PartialEq)]
pub struct Placement {
    /// The size that the convention takes the image to have.
    pub source: Size,
    /// Bucket, resized size and crop.
    pub assignment: Assignment,
    /// The resolved pixel recipe of the unmirrored picture.
    pub pixels: PixelRecipe,
}

/// Where an artefact lives.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// Relative to the root of the dataset, or to `--out`.
    Beside {
        /// Where it is written.
        path: PathBuf,
        /// A name of earlier versions that the trainer still prefers, whatever model it was made for: ours is taken
        /// instead of `path`, another tool's is moved to the quarantine.
        older: Option<PathBuf>,
    },
    /// In the content-addressed store; the path follows from the key.
    Store,
}

/// One artefact that a convention wants for one image.
#[derive(Clone, Debug)]
pub struct WantedArtefact {
    /// Where it lives.
    pub place: Place,
    /// Its file format.
    pub container: Container,
    /// The entries wanted in it.
    pub entries: Vec<WantedEntry>,
}

/// One entry that a convention wants.
#[derive(Clone, Debug)]
pub struct WantedEntry {
    /// What it is.
    pub kind: EntryKind,
    /// Name of its tensor in the container.
    pub tensor: String,
    /// Shape of its tensor.
    pub shape: Vec<usize>,
    /// Everything that shapes it.
    pub inputs: KeyInputs,
    /// Further arrays that belong to it, by their names in the container.
    pub companions: BTreeMap<String, Array>,
}

/// How a trainer finds the cache file whose name gives an image its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Search {
    /// It does not: the size comes from elsewhere.
    None,
    /// In its folder by the beginning of the name, the image's own file before those of longer names.
    OwnFirst,
    /// By the beginning of the path, longest image name first, longest file name first, each file once.
    LongestFirst,
}

/// The hint of trainers that can be told not to enlarge.
const KEEP_SMALL: &str = "--no-upscale (in a dataset description bucket_no_upscale) keeps small images small";

/// One trainer's conventions with one subset's settings resolved.
pub trait Convention: Send + Sync {
    /// Whose conventions these are.
    fn target(&self) -> Target;

    /// Looks at all images of its subset before any is placed; `table` is what the subsets before it have settled.
    /// For trainers whose buckets hang on more than one picture.
    fn learn(&mut self, _images: &[&Image], _table: &mut AspectTable) {}

    /// Bucket, crop and pixel recipe of an image that was probed, or the problem that keeps it out.
    fn place(&self, image: &Image) -> Result<Placement, Problem>;

    /// What harms this image under the convention although it is baked: warnings.
    fn harms(&self, image: &Image) -> Vec<Problem>;

    /// What the user can do about images that are enlarged, as a hint.
    fn against_enlarging(&self) -> &'static str {
        "it always enlarges: leave small images out, or take a lower resolution"
    }

    /// What the trainer passes over among the images of `subset`: warnings.
    fn overlooks(&self, subset: &Subset, images: &[&Image]) -> Vec<Problem> {
        unread_captions(self.target(), subset, images).into_iter().collect()
    }

    /// How the trainer looks for this image's size among the names of cache files.
    fn search(&self, _image: &Image) -> Search {
        Search::OwnFirst
    }

    /// The artefacts wanted for a placed image.
    fn wanted(&self, image: &Image, placement: &Placement, encoder: Option<EncoderId>) -> Vec<WantedArtefact>;

    /// Settings by their long flag names, for reports and receipts.
    fn settings(&self) -> BTreeMap<String, String>;

    /// Images the training batch takes at once.
    fn batch(&self) -> u32;

    /// True when two images of one folder that differ only by extension would share one artefact.
    fn names_by_stem(&self) -> bool;

    /// Folders in which its artefacts lie, with a flag for all visible sub-folders; relative ones lie below the root.
    fn cache_folders(&self, subset: &Subset) -> Vec<(PathBuf, bool)> {
        match &subset.listed {
            None => vec![(subset.folder.clone(), subset.recursive)],
            Some(listed) => {
                let folders = listed.iter().filter_map(|listed| listed.path.parent());
                folders.collect::<BTreeSet<_>>().into_iter().map(|folder| (folder.to_path_buf(), false)).collect()
            }
        }
    }

    /// The folder, relative to the root, in which the trainer looks for this image's caches.
    fn folder(&self, image: &Image) -> PathBuf {
        image.relative.parent().map(Path::to_path_buf).unwrap_or_default()
    }

    /// Texts that the trainer writes into its artefacts' metadata, where the container has room for them.
    fn metadata(&self, _placement: &Placement) -> BTreeMap<String, String> {
        BTreeMap::new()
    }

    /// True when the trainer, reading `tensor`, would take `other` of the same file for a part of it.
    fn clashes(&self, _tensor: &str, _other: &str) -> bool {
        false
    }

    /// What the trainer does with a file of this layout in a folder of its caches although no image wants it; none
    /// where it does nothing.
    fn uses_unasked(&self, _file_name: &str) -> Option<&'static str> {
        None
    }

    /// What the user must set in the trainer so that it takes these caches; a line each, said at the end of a bake.
    fn setup(&self) -> Vec<String>;

    /// True for the file names that this layout gives its artefacts.
    fn names(&self, file_name: &str) -> bool;

    /// The area of the nominal resolution, in pixels.
    fn nominal_area(&self) -> u64;

    /// The image size that the trainer takes from this file name if it lies beside a sample of file stem `stem`.
    fn claims(&self, stem: &str, file_name: &str) -> Option<Size>;

    /// True when the trainer would take this file for the cache of a sample of file stem `stem`, though it is that of
    /// another image or none at all; asked under [`Search::OwnFirst`].
    fn mistakes(&self, stem: &str, file_name: &str) -> bool;

    /// True when today's settings give these pixels for this image at their geometry (size, crop, mirroring);
    /// `mask` tells the recipe of an alpha mask from that of latents.
    fn would_make(&self, image: &Image, pixels: &PixelRecipe, mask: bool) -> bool;
}

/// The convention of `target` with the settings of one subset.
///
/// # Errors
/// A usage error where a flag contradicts the trainer or another flag.
pub fn convention(target: Target, subset: &Subset, recipe: &Recipe) -> Result<Box<dyn Convention>> {
    Ok(match target {
        Target::Store => Box::new(store::Store::new(subset, recipe)?),
        Target::SdScripts => Box::new(sd_scripts::SdScripts::new(subset, recipe)?),
        Target::Musubi => Box::new(musubi::Musubi::new(subset, recipe)?),
        Target::SimpleTuner => Box::new(simpletuner::SimpleTuner::new(subset, recipe)?),
        Target::AiToolkit => Box::new(ai_toolkit::AiToolkit::new(subset, recipe)?),
        Target::OneTrainer => Box::new(onetrainer::OneTrainer::new(subset, recipe)?),
        Target::DiffusionPipe => Box::new(diffusion_pipe::DiffusionPipe::new(subset, recipe)?),
    })
}

/// Refuses a family whose caches are not written for the trainer.
fn ensure_known(target: Target, family: Family, known: &[Family]) -> Result<()> {
    if known.contains(&family) {
        return Ok(());
    }
    let names: Vec<_> = known.iter().map(|family| family.name()).collect();
    let message = format!("--family {}: no caches of it are written for {}", family.name(), target.name());
    Err(Error::usage(message, format!("--family {}", names.join(", "))))
}

/// The value of a setting. A flag that contradicts the description is refused: the trainer follows its description, and
/// would take latents of another size or filter for its own without a word.
fn agree<T: PartialEq>(flag: &str, asked: Option<T>, key: &str, said: Option<T>) -> Result<Option<T>> {
    match (asked, said) {
        (Some(asked), Some(said)) if asked != said => {
            let message = format!("{flag} contradicts `{key}` of the dataset's description, which the trainer follows");
            Err(Error::usage(message, format!("leave it out, or change `{key}` there")))
        }
        (asked, said) => Ok(said.or(asked)),
    }
}

/// Refuses flags that trainers have no counterpart for whose buckets alone are planned.
fn ensure_plain_buckets(target: Target, recipe: &Recipe) -> Result<()> {
    let flags = [
        (recipe.max_area.is_some(), "--max-area"),
        (recipe.min_bucket.is_some(), "--min-bucket"),
        (recipe.max_bucket.is_some(), "--max-bucket"),
        (recipe.upscale == Some(false), "--no-upscale"),
        (recipe.background.is_some(), "--background"),
        (recipe.icc == Some(true), "--icc apply"),
        (recipe.orientation.is_some(), "--orientation"),
        (recipe.resize.is_some_and(|filter| filter != Filter::Auto), "--resize"),
        (recipe.flip == Some(true), "--flip"),
        (recipe.alpha_mask == Some(true), "--alpha-mask"),
    ];
    match flags.into_iter().find(|(given, _)| *given) {
        None => Ok(()),
        Some((_, flag)) => Err(Error::usage(format!("{flag}: {} has no such setting", target.name()), "leave it out")),
    }
}

/// Captions of metadata that belongs to another program: the trainer looks for files beside the images.
fn unread_captions(target: Target, subset: &Subset, images: &[&Image]) -> Option<Problem> {
    let is_own = subset.described_by.is_some() || images.iter().any(|image| image.stated.is_some());
    let count = images.iter().filter(|image| image.inline.is_some()).count();
    let name = target.name();
    let message = format!("{count} captions lie in metadata that {name} does not read: it trains without them");
    let hint = format!("write each caption to a file beside its image, or give {name} metadata of its own");
    (!is_own && count > 0).then(|| Problem::warning(".", Kind::CaptionMissing, message).with_hint(hint))
}

/// What harms an image under a trainer that ignores colour profiles, where transparency is cut off or laid over white.
fn plain_harms(image: &Image, target: Target) -> Vec<Problem> {
    let Some(probe) = &image.probe else { return Vec::new() };
    let mut harms = Vec::new();
    if probe.transparent {
        let what = if target == Target::DiffusionPipe { "is laid over white" } else { "is cut off" };
        let message = format!("has transparency, which {what} by {}", target.name());
        harms.push(Problem::warning(image.path.clone(), Kind::Alpha, message));
    }
    if probe.profile == Profile::Other {
        let message = format!("has a colour profile that is not sRGB, which {} ignores", target.name());
        harms.push(Problem::warning(image.path.clone(), Kind::Icc, message).with_hint("convert the image to sRGB"));
    }
    harms
}

/// A resolution as people write it: `512` for a square, else `WxH`.
fn resolution_text(resolution: Size) -> String {
    if resolution.width == resolution.height { resolution.width.to_string() } else { resolution.to_string() }
}

/// sd-scripts' automatic filter (`utils.py:216`), which `store` shares: OpenCV's area where no side grows, else
/// Pillow's Lanczos.
fn area_or_lanczos(source: Size, resized: Size) -> Resample {
    if source.width >= resized.width && source.height >= resized.height {
        Resample::Cv2Area
    } else {
        Resample::PillowLanczos
    }
}

/// Latents are whole only where bucket sides are multiples of the encoder's stride.
fn ensure_whole_latents(family: Family, step: Option<u32>, fixed: Option<Size>) -> Result<()> {
    ensure_multiples(family, family.autoencoder().stride(), step, fixed)
}

/// The same for latents as they are `stored`, of which an element may span a patch.
fn ensure_whole_stored(family: Family, stored: Stored, step: Option<u32>, fixed: Option<Size>) -> Result<()> {
    ensure_multiples(family, family.stride(stored), step, fixed)
}

fn ensure_multiples(family: Family, stride: u32, step: Option<u32>, fixed: Option<Size>) -> Result<()> {
    let wrong = |what: String| {
        let message = format!("{what}: latents of {} need multiples of {stride} pixels", family.name());
        Error::usage(message, format!("use a multiple of {stride}"))
    };
    let whole = |side: u32| side > 0 && side.is_multiple_of(stride);
    if let Some(step) = step.filter(|&step| !whole(step)) {
        return Err(wrong(format!("--bucket-step {step}")));
    }
    if let Some(size) = fixed.filter(|size| !whole(size.width) || !whole(size.height)) {
        return Err(wrong(format!("--resolution {size} without buckets")));
    }
    Ok(())
}

/// The probe of an image, or the problem that it has none.
fn probed(image: &Image) -> Result<&Probe, Problem> {
    let message = "could not be read; see the other problems of this file";
    image.probe.as_ref().ok_or_else(|| Problem::error(image.path.clone(), Kind::Damaged, message))
}

/// Why an image has no bucket, as a problem of that image.
fn no_bucket(image: &Image, reason: &NoBucket) -> Problem {
    Problem::error(image.path.clone(), reason.kind(), reason.message())
}

impl WantedEntry {
    /// What its tensor's name has after its kind: the latent size where the layout names it (`_16x24`), else nothing.
    pub fn sized_suffix(&self) -> &str {
        self.tensor.strip_prefix(self.kind.name()).unwrap_or("")
    }

    /// Bytes of its tensor.
    pub fn bytes(&self) -> u64 {
        self.shape.iter().product::<usize>() as u64 * self.inputs.stored.dtype.size() as u64
    }
}
