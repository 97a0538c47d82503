//! Our own convention: upright, sRGB, composited, never enlarged unless asked; one content-addressed file an entry.

use super::{Convention, Place, Placement, Subset, WantedArtefact, WantedEntry};
use crate::bucket::store::Settings;
use crate::bucket::{BucketRule, StoreBuckets};
use crate::containers::{Container, Dtype};
use crate::dataset::{Image, Profile};
use crate::error::{Error, Result};
use crate::hash::EncoderId;
use crate::problem::{Kind, Problem};
use crate::recipe::{
    Alpha, Colour, Decoder, EntryKind, Family, Filter, KeyInputs, PixelRecipe, Posterior, Recipe, Resample, Stored,
    Target,
};
use crate::units::Size;
use std::collections::BTreeMap;

/// The `store` convention with its settings resolved.
pub struct Store {
    family: Family,
    rule: StoreBuckets,
    resolution: Size,
    max_area: u64,
    resize: Filter,
    orientation: bool,
    background: [u8; 3],
    icc: bool,
    flip: bool,
    batch: u32,
    dtype: Dtype,
    posterior: Posterior,
    settings: BTreeMap<String, String>,
}

impl Store {
    /// Resolves the settings of `subset` under `recipe`.
    ///
    /// # Errors
    /// `--alpha-mask`, which only a trainer's layout has; sizes that contradict each other.
    pub fn new(subset: &Subset, recipe: &Recipe) -> Result<Self> {
        let said = &subset.settings;
        if recipe.alpha_mask == Some(true) {
            let message = "--alpha-mask: the `store` layout has no loss masks";
            return Err(Error::usage(message, "leave it out, or use a trainer's layout: --for sd-scripts"));
        }
        let family = recipe.family;
        let native = family.native_resolution();
        let resolution = recipe.resolution.or(said.resolution).unwrap_or(Size::new(native, native));
        let max_area = recipe.max_area.unwrap_or(resolution.area());
        let buckets = recipe.buckets.or(said.buckets).unwrap_or(true);
        let step = recipe.bucket_step.or(said.bucket_step).unwrap_or(family.bucket_step());
        let stored = Stored::raw(recipe.store_dtype.unwrap_or(Dtype::F32));
        super::ensure_whole_stored(family, stored, buckets.then_some(step), (!buckets).then_some(resolution))?;
        let asked = Settings {
            max_area,
            step,
            min_bucket: recipe.min_bucket.or(said.min_bucket),
            max_bucket: recipe.max_bucket.or(said.max_bucket),
            upscale: recipe.upscale.or(said.upscale).unwrap_or(false),
            fixed: (!buckets).then_some(resolution),
        };
        let rule = StoreBuckets::new(asked).map_err(|message| Error::Usage { message, hint: None })?;
        let mut store = Self {
            family,
            rule,
            resolution,
            max_area,
            resize: recipe.resize.or(said.resize).unwrap_or(Filter::Auto),
            orientation: recipe.orientation.unwrap_or(true),
            background: recipe.background.unwrap_or([255; 3]),
            icc: recipe.icc.unwrap_or(true),
            flip: recipe.flip.or(said.flip).unwrap_or(false),
            batch: recipe.batch.or(said.batch).unwrap_or(1),
            dtype: recipe.store_dtype.unwrap_or(Dtype::F32),
            posterior: recipe.posterior,
            settings: BTreeMap::new(),
        };
        store.settings = store.describe(&asked);
        Ok(store)
    }

    fn describe(&self, rule: &Settings) -> BTreeMap<String, String> {
        let side = |value: Option<u32>| value.map_or_else(|| "none".to_owned(), |v| v.to_string());
        let [r, g, b] = self.background;
        let policy = |on: bool| if on { "apply" } else { "ignore" }.to_owned();
        BTreeMap::from([
            ("resolution".to_owned(), super::resolution_text(self.resolution)),
            ("max-area".to_owned(), self.max_area.to_string()),
            ("bucket-step".to_owned(), rule.step.to_string()),
            ("min-bucket".to_owned(), side(rule.min_bucket)),
            ("max-bucket".to_owned(), side(rule.max_bucket)),
            ("no-bucket".to_owned(), rule.fixed.is_some().to_string()),
            ("upscale".to_owned(), rule.upscale.to_string()),
            ("flip".to_owned(), self.flip.to_string()),
            ("alpha-mask".to_owned(), "false".to_owned()),
            ("resize".to_owned(), self.resize.name().to_owned()),
            ("orientation".to_owned(), policy(self.orientation)),
            ("background".to_owned(), format!("{r:02X}{g:02X}{b:02X}")),
            ("icc".to_owned(), policy(self.icc)),
            ("store-dtype".to_owned(), self.dtype.name().to_owned()),
            ("batch".to_owned(), self.batch.to_string()),
        ])
    }

    fn resample(&self, source: Size, resized: Size) -> Option<Resample> {
        if source == resized {
            return None;
        }
        Some(match self.resize {
            Filter::Auto => super::area_or_lanczos(source, resized),
            Filter::Area => Resample::Cv2Area,
            Filter::Lanczos => Resample::PillowLanczos,
            Filter::Box => Resample::PillowBox,
            Filter::Bilinear => Resample::PillowBilinear,
            Filter::Bicubic => Resample::PillowBicubic,
            Filter::Nearest => Resample::Cv2NearestExact,
        })
    }
}

impl Convention for Store {
    fn target(&self) -> Target {
        Target::Store
    }

    fn place(&self, image: &Image) -> Result<Placement, Problem> {
        let probe = super::probed(image)?;
        let source = if self.orientation { probe.upright() } else { probe.size };
        let assignment = self.rule.assign(source).map_err(|no| super::no_bucket(image, &no))?;
        let pixels = PixelRecipe {
            decoder: Decoder::Pillow,
            orientation: if self.orientation { probe.orientation } else { 1 },
            colour: match probe.profile {
                Profile::Other if self.icc => Colour::IccToSrgb,
                _ => Colour::AsStored,
            },
            clip_gray16: false,
            alpha: if probe.transparent { Alpha::Composite(self.background) } else { Alpha::Opaque },
            resample: self.resample(source, assignment.resized),
            resized: assignment.resized,
            crop: assignment.crop,
            mirrored: false,
        };
        Ok(Placement { source, assignment, pixels })
    }

    fn overlooks(&self, _subset: &Subset, _images: &[&Image]) -> Vec<Problem> {
        Vec::new()
    }

    fn against_enlarging(&self) -> &'static str {
        super::KEEP_SMALL
    }

    fn harms(&self, image: &Image) -> Vec<Problem> {
        let Some(probe) = &image.probe else { return Vec::new() };
        let mut harms = Vec::new();
        let mut warn = |kind, message: String| harms.push(Problem::warning(image.path.clone(), kind, message));
        let [r, g, b] = self.background;
        if probe.transparent {
            warn(Kind::Alpha, format!("has transparency; it is laid over the background {r:02X}{g:02X}{b:02X}"));
        }
        if probe.orientation != 1 {
            let what = if self.orientation { "it is turned upright" } else { "it is trained as stored" };
            warn(Kind::Oriented, format!("has EXIF orientation {}; {what}", probe.orientation));
        }
        if probe.profile == Profile::Other {
            let what = if self.icc { "it is converted to sRGB" } else { "it is ignored" };
            warn(Kind::Icc, format!("has a colour profile that is not sRGB; {what}"));
        }
        if probe.profile == Profile::Unusable {
            let message = "has a colour profile that cannot be applied to it; its values are taken as they are";
            warn(Kind::Icc, message.to_owned());
        }
        if probe.bits > 8 {
            warn(Kind::BitDepth, format!("has {} bits a channel; the high 8 are used", probe.bits));
        }
        harms
    }

    fn wanted(&self, image: &Image, placement: &Placement, encoder: Option<EncoderId>) -> Vec<WantedArtefact> {
        let Some(content) = image.content else { return Vec::new() };
        let bucket = placement.assignment.bucket;
        let kinds: &[EntryKind] =
            if self.flip { &[EntryKind::Latents, EntryKind::LatentsFlipped] } else { &[EntryKind::Latents] };
        let entry = |&kind: &EntryKind| {
            let pixels = PixelRecipe { mirrored: kind == EntryKind::LatentsFlipped, ..placement.pixels.clone() };
            let stored = Stored::raw(self.dtype);
            let inputs = KeyInputs::latent(content, pixels, encoder, self.posterior, stored);
            let shape = self.family.latent_shape(stored, bucket).to_vec();
            let entry = WantedEntry { kind, tensor: "latents".to_owned(), shape, inputs, companions: BTreeMap::new() };
            WantedArtefact { place: Place::Store, container: Container::Safetensors, entries: vec![entry] }
        };
        kinds.iter().map(entry).collect()
    }

    fn settings(&self) -> BTreeMap<String, String> {
        self.settings.clone()
    }

    fn batch(&self) -> u32 {
        self.batch
    }

    fn setup(&self) -> Vec<String> {
        Vec::new()
    }

    fn names_by_stem(&self) -> bool {
        false
    }

    fn nominal_area(&self) -> u64 {
        self.resolution.area()
    }

    fn names(&self, file_name: &str) -> bool {
        file_name.ends_with(".safetensors")
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
