//! SimpleTuner's `multidatabackend.json`: a list of datasets, of which the local image sets are read.
//!
//! An entry that cannot be cached soundly (random or face crops, other storages, other media) is named as a problem and
//! left out; the run goes on with the others. Keys that are not known are named in one warning. Facts: `df` =
//! `helpers/data_backend/factory.py`, `ci` = `helpers/data_backend/config/image.py`.

use super::settings::{Options, pixel_area};
use super::{Records, recorded};
use crate::bucket::SimpleTunerBuckets;
use crate::bucket::simpletuner::{CropAspect, CropStyle, Resolution};
use crate::error::{Error, Result};
use crate::problem::{Kind, Problem};
use crate::recipe::Target;
use crate::store::read_regular;
use crate::trainers::description::{Description, Own, Subset, SubsetSettings};
use crate::units::Size;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Keys read here.
const HONOURED: [&str; 24] = [
    "id",
    "type",
    "dataset_type",
    "disabled",
    "disable",
    "instance_data_dir",
    "instance_data_root",
    "cache_dir_vae",
    "cache_file_suffix",
    "resolution",
    "resolution_type",
    "crop",
    "crop_style",
    "crop_aspect",
    "crop_aspect_buckets",
    "minimum_image_size",
    "maximum_image_size",
    "target_downsample_size",
    "minimum_aspect_ratio",
    "maximum_aspect_ratio",
    "repeats",
    "train_batch_size",
    "caption_strategy",
    "compress_cache",
];

/// Keys that shape no latent and no bucket.
const INERT: [&str; 30] = [
    "metadata_backend",
    "probability",
    "disable_validation",
    "preserve_data_backend_cache",
    "skip_file_discovery",
    "text_embeds",
    "image_embeds",
    "caption_filter_list",
    "caption_shuffle",
    "prepend_instance_prompt",
    "instance_prompt",
    "only_instance_prompt",
    "disable_multiline_split",
    "is_regularisation_data",
    "is_regularization_data",
    "timestep_sampling_offset",
    "start_epoch",
    "end_epoch",
    "start_step",
    "end_step",
    "read_batch_size",
    "write_batch_size",
    "vae_cache_ondemand",
    "hash_filenames",
    "delete_problematic_images",
    "delete_unwanted_images",
    "scan_for_errors",
    "ignore_epochs",
    "conditioning_data",
    "metadata_update_interval",
];

/// Kinds of entry that hold no pictures: caches of the trainer's own.
const NO_PICTURES: [&str; 5] =
    ["text_embeds", "image_embeds", "conditioning_image_embeds", "distillation_cache", "caption"];

/// Parses a dataset list; `None` when the text is no JSON list of objects with `dataset_type` or a local `type`.
pub fn parse(path: &Path, text: &str, working_dir: &Path) -> Option<Result<Description>> {
    let entries = match serde_json::from_str::<Value>(text) {
        Ok(Value::Array(entries)) => entries,
        Err(error) if is_json(path) && text.trim_start().starts_with('[') => {
            return Some(Err(Error::input(path, format!("is no valid JSON: {error}"))));
        }
        _ => return None,
    };
    let is_ours =
        |entry: &Value| entry.get("dataset_type").is_some() || entry.get("type").is_some_and(Value::is_string);
    if !entries.iter().any(is_ours) {
        return None;
    }
    let root = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_path_buf();
    Some(Reader { path, root, working_dir, unknown: BTreeSet::new(), warnings: Vec::new() }.read(&entries))
}

fn is_json(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"))
}

struct Reader<'a> {
    path: &'a Path,
    root: PathBuf,
    working_dir: &'a Path,
    unknown: BTreeSet<String>,
    warnings: Vec<String>,
}

/// Why an entry is left out: what is wrong, and the way out.
type Refusal = (String, &'static str);

impl Reader<'_> {
    fn read(mut self, entries: &[Value]) -> Result<Description> {
        let (mut subsets, mut problems) = (Vec::new(), Vec::new());
        for entry in entries {
            let entry = entry.as_object().ok_or_else(|| Error::input(self.path, "holds an entry that is no object"))?;
            if !holds_pictures(entry) {
                continue;
            }
            match self.subset(entry) {
                Ok(subset) => subsets.push(subset),
                Err((message, hint)) => {
                    let id = entry.get("id").and_then(Value::as_str).unwrap_or("an entry without id");
                    let shown = crate::units::display_path(self.path);
                    problems
                        .push(Problem::error(shown, Kind::Unsupported, format!("`{id}`: {message}")).with_hint(hint));
                }
            }
        }
        if subsets.is_empty() {
            let message = problems.first().map_or("holds no dataset of images", |problem| problem.message.as_str());
            return Err(Error::input(self.path, message).with_hint("local datasets of dataset_type image are read"));
        }
        if !self.unknown.is_empty() {
            let keys: Vec<_> = self.unknown.into_iter().collect();
            let warning = format!("`{}`: these keys are not honoured: {}", self.path.display(), keys.join(", "));
            self.warnings.push(warning);
        }
        Ok(Description { root: self.root, subsets, warnings: self.warnings, problems })
    }

    fn subset(&mut self, entry: &Map<String, Value>) -> Result<Subset, Refusal> {
        ensure_cacheable(entry)?;
        let known = |key: &str| HONOURED.contains(&key) || INERT.contains(&key);
        self.unknown.extend(entry.keys().filter(|key| !known(key)).cloned());
        let id = text(entry, "id")?.ok_or_else(|| ("has no `id`".to_owned(), "give it one"))?;
        let folder = match text(entry, "instance_data_dir")? {
            None => text(entry, "instance_data_root")?,
            folder => folder,
        };
        let missing =
            |key: &str| (format!("has no `{key}`"), "a local dataset needs instance_data_dir and cache_dir_vae");
        let folder = folder.ok_or_else(|| missing("instance_data_dir"))?.trim().trim_end_matches('/');
        let base = self.base_of(folder);
        let cache = base.join(text(entry, "cache_dir_vae")?.ok_or_else(|| missing("cache_dir_vae"))?);
        let mut options = Options::new(self.shown(&base.join(folder)), self.shown(&cache), resolution(entry)?);
        read_crop(entry, &mut options)?;
        read_limits(entry, &mut options)?;
        options.compress = boolean(entry, "compress_cache")?;
        let suffix = text(entry, "cache_file_suffix")?.unwrap_or(id);
        options.records = self.records(&base.join(folder), folder, suffix)?;
        self.warn_of_draws(id, entry, &options)?;
        let caption_ext = self.caption_ext(id, entry)?;
        Ok(Subset {
            folder: base.join(folder),
            recursive: true,
            repeats: Some(whole(entry, "repeats")?.unwrap_or(0).saturating_add(1)),
            caption_ext,
            described_by: Some(Target::SimpleTuner),
            listed: None,
            settings: settings(entry, options)?,
        })
    }

    /// The trainer takes relative folders from its working directory; people keep them beside the file, too.
    fn base_of(&self, folder: &str) -> PathBuf {
        if self.root.join(folder).is_dir() { self.root.clone() } else { self.working_dir.to_path_buf() }
    }

    /// As images are told: relative to the root where it lies in it.
    fn shown(&self, path: &Path) -> PathBuf {
        path.strip_prefix(&self.root).unwrap_or(path).to_path_buf()
    }

    /// The trainer's own record of the dataset, if there is one.
    fn records(&self, folder: &Path, said: &str, suffix: &str) -> Result<Records, Refusal> {
        let file = folder.join(format!("aspect_ratio_bucket_metadata_{suffix}.json"));
        if !file.exists() {
            return Ok(Records::new());
        }
        let wrong = |what: String| {
            let message = format!("`{}` {what}", file.display());
            (message, "delete it, and let SimpleTuner scan the dataset again")
        };
        let text = read_regular(&file).map_err(|error| wrong(format!("cannot be read: {error}")))?;
        let text = String::from_utf8(text).map_err(|_| wrong("is not UTF-8".to_owned()))?;
        let absolute = [std::path::absolute(folder), folder.canonicalize()];
        let mut names: Vec<PathBuf> = absolute.into_iter().flatten().collect();
        names.extend([PathBuf::from(said), folder.to_path_buf()]);
        recorded::read(&text, &names).map_err(wrong)
    }

    /// Without `crop` the trainer still cuts what stepping to the alignment leaves over, and by default it draws where.
    fn warn_of_draws(&mut self, id: &str, entry: &Map<String, Value>, options: &Options) -> Result<(), Refusal> {
        let is_drawn = text(entry, "crop_style")?.is_none_or(|style| style == "random");
        if !options.crop && is_drawn && options.records.is_empty() {
            self.warnings.push(format!(
                "`{}`: `{id}` leaves to chance which pixels beyond the bucket are cut; the middle is kept: set crop_style \
                 to center, so that SimpleTuner tells its model the same",
                self.path.display()
            ));
        }
        Ok(())
    }

    /// Captions are read from `.txt` files; of the trainer's other sources nothing is checked.
    fn caption_ext(&mut self, id: &str, entry: &Map<String, Value>) -> Result<Vec<String>, Refusal> {
        let strategy = text(entry, "caption_strategy")?.unwrap_or("textfile");
        if strategy != "textfile" {
            let shown = self.path.display();
            self.warnings.push(format!("`{shown}`: `{id}` has captions by `{strategy}`, which are not looked at"));
        }
        Ok(vec![".txt".to_owned()])
    }
}

/// False for entries that the trainer leaves out, and for its caches.
fn holds_pictures(entry: &Map<String, Value>) -> bool {
    let on = |key: &str| entry.get(key).and_then(Value::as_bool) == Some(true);
    let kind = entry.get("dataset_type").and_then(Value::as_str).unwrap_or("image");
    !on("disabled") && !on("disable") && !NO_PICTURES.contains(&kind)
}

fn ensure_cacheable(entry: &Map<String, Value>) -> Result<(), Refusal> {
    let storage = text(entry, "type")?.unwrap_or("local");
    if storage != "local" {
        return Err((
            format!("type `{storage}` is not read, only `local`"),
            "download the pictures, and use type local",
        ));
    }
    let kind = text(entry, "dataset_type")?.unwrap_or("image");
    if kind != "image" {
        return Err((format!("dataset_type `{kind}` is not read, only `image`"), "SimpleTuner encodes it itself"));
    }
    if let Some(metadata) = text(entry, "metadata_backend")?.filter(|m| !["discovery", "json"].contains(m)) {
        let message = format!("metadata_backend `{metadata}` is not read, only `discovery`");
        return Err((message, "SimpleTuner encodes it itself"));
    }
    if entry.get("vae_cache_disable").and_then(Value::as_bool) == Some(true) {
        return Err(("vae_cache_disable is on: SimpleTuner reads no cache".to_owned(), "switch it off"));
    }
    Ok(())
}

/// The trainer's default is the area of a square of 1024 pixels.
fn resolution(entry: &Map<String, Value>) -> Result<Resolution, Refusal> {
    let value = number(entry, "resolution")?.unwrap_or(1024.0);
    measured(entry, "resolution", value)
}

/// A size under the entry's `resolution_type` (`df:2963-2990`).
fn measured(entry: &Map<String, Value>, key: &str, value: f64) -> Result<Resolution, Refusal> {
    match text(entry, "resolution_type")?.unwrap_or("pixel_area") {
        "pixel" if value.fract() == 0.0 && (1.0..=65_535.0).contains(&value) => Ok(Resolution::Edge(value as u32)),
        "pixel" => {
            Err((format!("`{key}` is {value}, a whole number of pixels is needed"), "`resolution_type` is pixel"))
        }
        "area" => Ok(Resolution::Megapixels(value)),
        "pixel_area" => Ok(pixel_area(value)),
        other => Err((format!("resolution_type is `{other}`"), "it is pixel, area or pixel_area")),
    }
}

/// `ci:112-116`, `df:522-560`. Without `crop` only what stepping leaves over is cut, by default wherever a draw says: there
/// the middle is as good as any other place.
fn read_crop(entry: &Map<String, Value>, options: &mut Options) -> Result<(), Refusal> {
    options.crop = boolean(entry, "crop")?.unwrap_or(false);
    let style = text(entry, "crop_style")?.unwrap_or("random");
    if !options.crop && style != "face" {
        options.style = if style == "corner" { CropStyle::Corner } else { CropStyle::Centre };
        return Ok(());
    }
    options.style = match style {
        "center" | "centre" => CropStyle::Centre,
        "corner" => CropStyle::Corner,
        "random" => {
            let message =
                "crop_style `random` (the default of `crop`) cannot be cached soundly: the crop is drawn anew";
            return Err((message.to_owned(), "set crop_style to center"));
        }
        "face" => return Err(("crop_style `face` is not made here".to_owned(), "set crop_style to center")),
        other => return Err((format!("crop_style is `{other}`"), "center, centre or corner are read")),
    };
    options.aspect = match text(entry, "crop_aspect")?.unwrap_or("square") {
        "square" => CropAspect::Square,
        "preserve" => CropAspect::Own,
        "closest" => CropAspect::Closest(aspects(entry)?),
        "random" => {
            let message = "crop_aspect `random` cannot be cached soundly: the bucket is drawn";
            return Err((message.to_owned(), "set crop_aspect to closest"));
        }
        other => return Err((format!("crop_aspect is `{other}`"), "square, preserve or closest are read")),
    };
    Ok(())
}

fn aspects(entry: &Map<String, Value>) -> Result<Vec<f64>, Refusal> {
    let needed = || ("crop_aspect_buckets is no list of numbers over 0".to_owned(), "crop_aspect closest needs it");
    let list = entry.get("crop_aspect_buckets").and_then(Value::as_array).filter(|list| !list.is_empty());
    let aspect =
        |value: &Value| value.as_f64().or_else(|| value.get("aspect")?.as_f64()).filter(|&aspect| aspect > 0.0);
    list.ok_or_else(needed)?.iter().map(|value| aspect(value).ok_or_else(needed)).collect()
}

fn read_limits(entry: &Map<String, Value>, options: &mut Options) -> Result<(), Refusal> {
    let size = |key: &str| -> Result<Option<Resolution>, Refusal> {
        number(entry, key)?.filter(|&value| value > 0.0).map(|value| measured(entry, key, value)).transpose()
    };
    options.minimum = size("minimum_image_size")?;
    let (maximum, downsample) = (size("maximum_image_size")?, size("target_downsample_size")?);
    if maximum.is_some() && downsample.is_none() {
        let message = "maximum_image_size is set without target_downsample_size";
        return Err((message.to_owned(), "SimpleTuner refuses that, too"));
    }
    options.downsample = downsample.filter(|_| options.crop && maximum.is_some());
    options.minimum_aspect = number(entry, "minimum_aspect_ratio")?;
    options.maximum_aspect = number(entry, "maximum_aspect_ratio")?;
    Ok(())
}

/// What other targets read of it, too.
fn settings(entry: &Map<String, Value>, options: Options) -> Result<SubsetSettings, Refusal> {
    let rule =
        SimpleTunerBuckets::new(options.rule(64)).map_err(|message| (message, "change it in the dataset's JSON"))?;
    let edge = rule.square_edge();
    Ok(SubsetSettings {
        resolution: Some(Size::new(edge, edge)),
        batch: whole(entry, "train_batch_size")?.filter(|&batch| batch > 0),
        own: Own::SimpleTuner(Box::new(options)),
        ..SubsetSettings::default()
    })
}

/// A key's value; null and an empty text count as absent, as the trainer takes them.
fn value<'v>(entry: &'v Map<String, Value>, key: &str) -> Option<&'v Value> {
    entry.get(key).filter(|value| !value.is_null() && value.as_str() != Some(""))
}

fn wrong(key: &str, value: &Value, needed: &'static str) -> Refusal {
    (format!("`{key}` is {value}"), needed)
}

fn text<'v>(entry: &'v Map<String, Value>, key: &str) -> Result<Option<&'v str>, Refusal> {
    let read = |value: &'v Value| value.as_str().ok_or_else(|| wrong(key, value, "a text is needed"));
    value(entry, key).map(read).transpose()
}

fn boolean(entry: &Map<String, Value>, key: &str) -> Result<Option<bool>, Refusal> {
    let read = |value: &Value| value.as_bool().ok_or_else(|| wrong(key, value, "true or false is needed"));
    value(entry, key).map(read).transpose()
}

fn number(entry: &Map<String, Value>, key: &str) -> Result<Option<f64>, Refusal> {
    let read = |value: &Value| value.as_f64().ok_or_else(|| wrong(key, value, "a number is needed"));
    value(entry, key).map(read).transpose()
}

fn whole(entry: &Map<String, Value>, key: &str) -> Result<Option<u32>, Refusal> {
    let number = |value: &Value| value.as_u64().and_then(|value| u32::try_from(value).ok());
    let read = |value: &Value| number(value).ok_or_else(|| wrong(key, value, "a whole number from 0 is needed"));
    value(entry, key).map(read).transpose()
}
