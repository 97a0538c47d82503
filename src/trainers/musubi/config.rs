//! musubi-tuner's `dataset_config` in TOML or JSON (`dataset/config_utils.py`, cited as `cu`): dataset → general → default.
//!
//! Told from sd-scripts' by its keys: images and caches are named by a dataset itself, which has no subsets. Keys that
//! the trainer does not know are named in one warning. Datasets whose caches hold more than a picture's latents (control
//! images, layers, video) are refused.

use super::list;
use crate::error::{Error, Result};
use crate::problem::{Kind, Problem};
use crate::recipe::Target;
use crate::trainers::description::{Description, Own, Subset, SubsetSettings};
use crate::units::Size;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

type Table = Map<String, Value>;

/// Keys of `[general]` and of a dataset (`cu:112-119`).
const SHARED: [&str; 6] =
    ["caption_extension", "batch_size", "num_repeats", "resolution", "enable_bucket", "bucket_no_upscale"];

/// Keys of a dataset that say which one it is; one of them makes the file musubi-tuner's.
const OWN: [&str; 5] =
    ["image_directory", "image_jsonl_file", "cache_directory", "video_directory", "video_jsonl_file"];

/// Keys of a dataset that change no picture's latent by themselves (`cu:120-132`).
const WITHOUT_EFFECT: [&str; 5] =
    ["multiple_target", "fp_latent_window_size", "fp_1f_no_post", "no_resize_control", "control_resolution"];

/// Keys whose datasets have other caches, and what they are.
const REFUSED: [(&str, &str); 5] = [
    ("video_directory", "videos"),
    ("video_jsonl_file", "videos"),
    ("control_directory", "control images"),
    ("fp_1f_clean_indices", "one-frame training"),
    ("fp_1f_target_index", "one-frame training"),
];

/// Extensions that the trainer lists and that are not read here (`mu:21-32`).
const UNREAD: [&str; 4] = ["avif", "AVIF", "jxl", "JXL"];

/// Parses a dataset_config; `None` when the text is none of musubi-tuner's.
pub fn parse(path: &Path, text: &str, working_dir: &Path) -> Option<Result<Description>> {
    let json = path.extension().is_some_and(|e| e.eq_ignore_ascii_case("json"));
    let document: Value = if json {
        serde_json::from_str(text).ok()?
    } else {
        serde_json::to_value(text.parse::<toml::Table>().ok()?).ok()?
    };
    let datasets: Vec<&Table> = document.get("datasets")?.as_array()?.iter().filter_map(Value::as_object).collect();
    let mine = datasets.iter().any(|dataset| OWN.iter().any(|key| dataset.contains_key(*key)));
    if !mine || datasets.iter().any(|dataset| dataset.contains_key("subsets")) {
        return None;
    }
    Some(
        Reader { path, working_dir, unknown: BTreeSet::new(), warnings: Vec::new(), problems: Vec::new() }
            .read(&document),
    )
}

pub(super) struct Reader<'a> {
    pub(super) path: &'a Path,
    pub(super) working_dir: &'a Path,
    unknown: BTreeSet<String>,
    pub(super) warnings: Vec<String>,
    problems: Vec<Problem>,
}

impl Reader<'_> {
    fn read(mut self, document: &Value) -> Result<Description> {
        let empty = Table::new();
        let general = match document.get("general") {
            None => &empty,
            Some(value) => value.as_object().ok_or_else(|| self.wrong("`general` is no table"))?,
        };
        self.note_keys(general, &[]);
        let others = document.as_object().into_iter().flat_map(Map::keys);
        self.unknown.extend(others.filter(|key| !["general", "datasets"].contains(&key.as_str())).cloned());
        let mut subsets = Vec::new();
        let mut taken = BTreeMap::new();
        for (number, dataset) in document["datasets"].as_array().into_iter().flatten().enumerate() {
            let dataset = dataset.as_object().ok_or_else(|| self.wrong("a dataset is no table"))?;
            let subset = self.subset(&Fallback([dataset, general]))?;
            self.ensure_own_caches(&mut taken, number + 1, &subset)?;
            // An image with no repeats is in no batch (`ivd:553`).
            subsets.extend(Some(subset).filter(|subset| subset.repeats != Some(0)));
        }
        let mut warnings = self.warnings;
        if !self.unknown.is_empty() {
            let keys: Vec<_> = self.unknown.into_iter().collect();
            let keys = keys.join(", ");
            warnings
                .push(format!("`{}`: musubi-tuner stops at keys that it does not know: {keys}", self.path.display()));
        }
        Ok(Description { root: root(self.path).to_path_buf(), subsets, warnings, problems: self.problems })
    }

    fn subset(&mut self, keys: &Fallback<'_>) -> Result<Subset> {
        let dataset = keys.0[0];
        self.note_keys(dataset, &[&OWN[..], &WITHOUT_EFFECT, &REFUSED.map(|(key, _)| key)].concat());
        self.refuse_other_caches(dataset)?;
        let repeats = self.integer(keys, "num_repeats")?.unwrap_or(1);
        let own = Fallback([dataset, dataset]);
        let caches = self.text(&own, "cache_directory")?;
        let repeats = Some(u32::try_from(repeats.max(0)).unwrap_or(u32::MAX));
        if repeats == Some(0) {
            let shown = self.path.display();
            self.warnings
                .push(format!("`{shown}`: a dataset is left out, as the trainer does: num_repeats is below 1"));
        }
        let subset = Subset {
            folder: root(self.path).to_path_buf(),
            recursive: false,
            repeats,
            caption_ext: Vec::new(),
            described_by: Some(Target::Musubi),
            settings: self.settings(keys)?,
            listed: None,
        };
        match (self.text(&own, "image_directory")?, self.text(&own, "image_jsonl_file")?) {
            (Some(folder), _) => self.of_folder(subset, folder, caches, keys),
            (None, Some(list)) => self.of_list(subset, list, caches),
            (None, None) => Err(self.wrong("a dataset has neither `image_directory` nor `image_jsonl_file`")),
        }
    }

    /// Images of a folder; caches lie beside them unless said otherwise (`ivd:341`).
    fn of_folder(&mut self, subset: Subset, name: &str, caches: Option<&str>, keys: &Fallback<'_>) -> Result<Subset> {
        let folder = self.resolve(name);
        let caches = caches.map_or_else(|| folder.clone(), |caches| self.resolve_caches(caches, name));
        let Some(extension) = self.text(keys, "caption_extension")? else {
            return Err(self.wrong("`caption_extension` is missing: musubi-tuner finds no captions without it"));
        };
        if !extension.starts_with('.') {
            let message = format!("`caption_extension = \"{extension}\"`: musubi-tuner puts it right behind the stem");
            return Err(self.wrong(&message).with_hint(format!("caption_extension = \".{extension}\"")));
        }
        self.name_unread(&folder);
        let caption_ext = vec![extension.to_owned()];
        Ok(Subset { folder, caption_ext, settings: self.cached_in(&caches, subset.settings), ..subset })
    }

    /// Images of a list; without a folder of their own the trainer has no place for caches (`ivd:160`).
    fn of_list(&mut self, subset: Subset, name: &str, caches: Option<&str>) -> Result<Subset> {
        let Some(caches) = caches else {
            return Err(self.wrong("a dataset with `image_jsonl_file` needs a `cache_directory`"));
        };
        let file = self.resolve(name);
        let listed = Some(list::read(self, &file)?);
        let settings = self.cached_in(&self.resolve_caches(caches, name), subset.settings);
        Ok(Subset { listed, settings, folder: root(&file).to_path_buf(), ..subset })
    }

    fn cached_in(&self, caches: &Path, settings: SubsetSettings) -> SubsetSettings {
        let root = root(self.path);
        let bases = [Some(root.to_path_buf()), std::path::absolute(root).ok()];
        let below = bases.iter().flatten().find_map(|base| caches.strip_prefix(base).ok());
        let cache_directory = below.unwrap_or(caches).components().collect();
        SubsetSettings { own: Own::Musubi { cache_directory }, ..settings }
    }

    /// The trainer stops where two datasets share caches (`cu:286-292`): it would train each on both.
    fn ensure_own_caches(&self, taken: &mut BTreeMap<PathBuf, usize>, number: usize, subset: &Subset) -> Result<()> {
        let Own::Musubi { cache_directory } = &subset.settings.own else { return Ok(()) };
        match taken.insert(cache_directory.clone(), number) {
            None => Ok(()),
            Some(first) => {
                let folder = cache_directory.display();
                let message = format!("datasets {first} and {number} both keep caches in `{folder}`");
                Err(self
                    .wrong(&message)
                    .with_hint("give each a cache_directory of its own; the default is its images'"))
            }
        }
    }

    fn refuse_other_caches(&self, dataset: &Table) -> Result<()> {
        if let Some((key, what)) = REFUSED.iter().find(|(key, _)| dataset.contains_key(*key)) {
            return Err(self.wrong(&format!("`{key}`: caches for {what} are not written")));
        }
        if dataset.get("multiple_target") == Some(&Value::Bool(true)) {
            return Err(self.wrong("`multiple_target = true`: caches for layered images are not written"));
        }
        Ok(())
    }

    fn settings(&self, keys: &Fallback<'_>) -> Result<SubsetSettings> {
        let batch = self.integer(keys, "batch_size")?;
        let wrong = |batch: i64| self.wrong(&format!("`batch_size = {batch}`: a number from 1 is needed"));
        let counted = |batch: i64| u32::try_from(batch).ok().filter(|&b| b >= 1).ok_or_else(|| wrong(batch));
        Ok(SubsetSettings {
            resolution: self.resolution(keys)?,
            buckets: self.boolean(keys, "enable_bucket")?,
            upscale: self.boolean(keys, "bucket_no_upscale")?.map(|no| !no),
            batch: batch.map(counted).transpose()?,
            ..SubsetSettings::default()
        })
    }

    fn resolution(&self, keys: &Fallback<'_>) -> Result<Option<Size>> {
        let side = |value: &Value| value.as_u64().and_then(|v| u32::try_from(v).ok()).filter(|&v| v >= 1);
        let Some(value) = keys.get("resolution") else { return Ok(None) };
        let size = match value.as_array().map(Vec::as_slice) {
            Some([width, height]) => side(width).zip(side(height)).map(|(width, height)| Size::new(width, height)),
            Some(_) => None,
            None => side(value).map(|side| Size::new(side, side)),
        };
        let message = || format!("`resolution = {value}`: a number or [width, height] is needed");
        size.map(Some).ok_or_else(|| self.wrong(&message()))
    }

    /// The trainer takes relative paths from its working directory; people keep them beside the file.
    pub(super) fn resolve(&self, name: &str) -> PathBuf {
        let beside = root(self.path).join(name);
        if beside.exists() { beside } else { self.working_dir.join(name) }
    }

    /// A folder of caches may not be there yet; then it lies where the images of `beside` were found.
    fn resolve_caches(&self, name: &str, beside: &str) -> PathBuf {
        let by_file = root(self.path);
        let there = by_file.join(name).exists() || (Path::new(beside).is_relative() && by_file.join(beside).exists());
        if there { by_file.join(name) } else { self.working_dir.join(name) }
    }

    /// Names images that the trainer would train on and that cannot be read here.
    fn name_unread(&mut self, folder: &Path) {
        let Ok(entries) = std::fs::read_dir(folder) else { return };
        let paths = entries.flatten().map(|entry| entry.path());
        let mut paths: Vec<_> = paths.filter(|p| UNREAD.iter().any(|e| p.extension() == Some(e.as_ref()))).collect();
        paths.sort();
        let problem = |path: PathBuf| {
            let shown = crate::units::display_path(path.strip_prefix(root(self.path)).unwrap_or(&path));
            Problem::error(shown, Kind::Unsupported, "is AVIF or JPEG XL, which is not read: it gets no cache")
                .with_hint("convert it to PNG")
        };
        let problems: Vec<_> = paths.into_iter().map(problem).collect();
        self.problems.extend(problems);
    }

    fn note_keys(&mut self, table: &Table, more: &[&str]) {
        let known = |key: &str| SHARED.contains(&key) || more.contains(&key);
        self.unknown.extend(table.keys().filter(|key| !known(key)).cloned());
    }

    pub(super) fn wrong(&self, message: &str) -> Error {
        Error::input(self.path, message)
    }

    fn boolean(&self, keys: &Fallback<'_>, key: &str) -> Result<Option<bool>> {
        let wrong = |value: &Value| self.wrong(&format!("`{key} = {value}`: true or false is needed"));
        keys.get(key).map(|value| value.as_bool().ok_or_else(|| wrong(value))).transpose()
    }

    fn integer(&self, keys: &Fallback<'_>, key: &str) -> Result<Option<i64>> {
        let wrong = |value: &Value| self.wrong(&format!("`{key} = {value}`: a whole number is needed"));
        keys.get(key).map(|value| value.as_i64().ok_or_else(|| wrong(value))).transpose()
    }

    fn text<'v>(&self, keys: &Fallback<'v>, key: &str) -> Result<Option<&'v str>> {
        let wrong = |value: &Value| self.wrong(&format!("`{key} = {value}`: a text is needed"));
        keys.get(key).map(|value| value.as_str().ok_or_else(|| wrong(value))).transpose()
    }
}

/// The folder of a file.
fn root(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Dataset, general: the first that has a key wins, a `false` too (`cu:252-264`).
struct Fallback<'a>([&'a Table; 2]);

impl<'a> Fallback<'a> {
    fn get(&self, key: &str) -> Option<&'a Value> {
        self.0.iter().find_map(|table| table.get(key).filter(|value| !value.is_null()))
    }
}
