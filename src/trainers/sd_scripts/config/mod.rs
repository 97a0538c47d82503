//! sd-scripts' `dataset_config`, TOML or JSON: general → dataset → subset fallback, DreamBooth and fine-tuning subsets.
//!
//! Keys that the trainer refuses and those that shape no latent are named, each in one warning. What cannot be cached
//! soundly (`random_crop`, `color_aug`) is refused, as the trainer itself refuses to cache with it.

mod keys;
mod values;

use super::info;
use super::metadata::{self, Words};
use crate::error::{Error, IoContext, Result};
use crate::problem::{Kind, Problem};
use crate::recipe::Target;
use crate::store::read_regular;
use crate::trainers::description::{Description, Subset};
use crate::units::display_path;
use keys::{Level, Style, Unread};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use toml::{Table, Value};
use values::Fallback;

/// Keys that make every epoch's pixels differ; the trainer asserts against them when it caches (`tu:1099`).
const UNCACHEABLE: [&str; 2] = ["random_crop", "color_aug"];

/// Parses a dataset_config; `None` when the text is no TOML or JSON with `datasets` of `subsets`.
pub fn parse(path: &Path, text: &str, working_dir: &Path) -> Option<Result<Description>> {
    let document = match document(path, text)? {
        Ok(document) => document,
        Err(error) => return Some(Err(error)),
    };
    let datasets = document.get("datasets")?;
    if is_another_trainers(datasets) {
        return None;
    }
    let reader = Reader { path, working_dir, unread: Unread::default(), warnings: Vec::new(), problems: Vec::new() };
    Some(reader.read(&document, datasets))
}

/// The file as a table; an error only where it is named like TOML and is none.
fn document(path: &Path, text: &str) -> Option<Result<Table>> {
    if let Ok(json) = serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(text) {
        let table = json.get("datasets").is_some().then(|| Value::try_from(json).ok());
        return match table?? {
            Value::Table(table) => Some(Ok(table)),
            _ => None,
        };
    }
    match text.parse::<Table>() {
        Ok(table) => Some(Ok(table)),
        Err(error) if path.extension().is_some_and(|e| e.eq_ignore_ascii_case("toml")) => {
            Some(Err(Error::input(path, format!("is no valid TOML: {}", one_line(&error.to_string())))))
        }
        Err(_) => None,
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// True for datasets without subsets that say where their files are by themselves, as musubi-tuner's do.
fn is_another_trainers(datasets: &Value) -> bool {
    let tables = || datasets.as_array().into_iter().flatten().filter_map(Value::as_table);
    let places = |table: &Table| table.keys().any(|key| key.ends_with("_directory") || key.ends_with("_jsonl_file"));
    tables().all(|table| !table.contains_key("subsets")) && tables().any(places)
}

struct Reader<'a> {
    path: &'a Path,
    working_dir: &'a Path,
    unread: Unread,
    warnings: Vec<String>,
    problems: Vec<Problem>,
}

impl Reader<'_> {
    fn read(mut self, document: &Table, datasets: &Value) -> Result<Description> {
        let empty = Table::new();
        let general = match document.get("general") {
            None => &empty,
            Some(value) => self.table("general", value)?,
        };
        self.unread.note(Level::General, general);
        for name in document.keys().filter(|key| !["general", "datasets"].contains(&key.as_str())) {
            self.unread.note_table(name);
        }
        let mut subsets = Vec::new();
        for (index, dataset) in self.array("datasets", datasets)?.iter().enumerate() {
            let dataset = self.table("datasets", dataset)?;
            for mut subset in self.dataset(dataset, general)? {
                subset.settings.group = u32::try_from(index).ok();
                subsets.push(subset);
            }
        }
        let shown = self.path.display().to_string();
        let warnings = self.warnings.into_iter().chain(self.unread.warnings(&shown)).collect();
        Ok(Description { root: root(self.path), subsets, warnings, problems: self.problems })
    }

    fn dataset(&mut self, dataset: &Table, general: &Table) -> Result<Vec<Subset>> {
        let Some(list) = dataset.get("subsets") else {
            return Err(self.wrong("a [[datasets]] has no [[datasets.subsets]]"));
        };
        let tables = self.array("subsets", list)?.iter().map(|subset| self.table("subsets", subset));
        let tables = tables.collect::<Result<Vec<_>>>()?;
        let style = self.style(&tables)?;
        self.unread.note(Level::Dataset(style), dataset);
        let (mut subsets, mut taken) = (Vec::new(), BTreeSet::new());
        for table in tables {
            self.unread.note(Level::Subset(style), table);
            let keys = Fallback { file: self.path, tables: [table, dataset, general] };
            if let Some(key) = UNCACHEABLE.iter().find(|key| keys.get(key) == Some(&Value::Boolean(true))) {
                return Err(self.wrong(&format!("`{key} = true` cannot be cached: every epoch sees other pixels")));
            }
            let place = self.place(&keys, style)?;
            let repeats = keys.integer("num_repeats")?.unwrap_or(1);
            if repeats < 1 {
                let shown = self.path.display();
                let why = format!("`{shown}`: `{place}` is left out, as the trainer does: num_repeats is {repeats}");
                self.warnings.push(why);
            } else if taken.insert(place) {
                // A folder given twice in one dataset is ignored by the trainer; the first one counts (`tu:2124`).
                let subset = self.subset(&keys, place, style)?;
                subsets.extend(subset.map(|subset| Subset { repeats: u32::try_from(repeats).ok(), ..subset }));
            }
        }
        Ok(subsets)
    }

    /// Which schema the trainer holds a dataset against (`config_util.py:317-333`).
    fn style(&self, subsets: &[&Table]) -> Result<Style> {
        if subsets.iter().any(|subset| subset.contains_key("conditioning_data_dir")) {
            return Err(self
                .wrong("ControlNet subsets (`conditioning_data_dir`) are not read")
                .with_hint("give the folder itself, with the resolution and bucket flags of the training"));
        }
        let described = subsets.iter().filter(|subset| subset.contains_key("metadata_file")).count();
        match described {
            0 => Ok(Style::DreamBooth),
            n if n == subsets.len() => Ok(Style::FineTuning),
            _ => Err(self
                .wrong("subsets with and without `metadata_file` lie in one [[datasets]]")
                .with_hint("the trainer wants them in datasets of their own")),
        }
    }

    /// The key that tells subsets apart: the folder, or the metadata file.
    fn place<'v>(&self, keys: &Fallback<'v>, style: Style) -> Result<&'v str> {
        let key = if style == Style::DreamBooth { "image_dir" } else { "metadata_file" };
        keys.own().text(key)?.ok_or_else(|| self.wrong(&format!("a subset has no `{key}` (a text)")))
    }

    /// One subset; none where the trainer goes on without it.
    fn subset(&mut self, keys: &Fallback<'_>, place: &str, style: Style) -> Result<Option<Subset>> {
        let plain = Subset { recursive: false, described_by: Some(Target::SdScripts), ..Subset::plain(Path::new("")) };
        let subset = Subset { settings: keys.settings()?, ..plain };
        match style {
            Style::DreamBooth => self.dreambooth(keys, place, subset),
            Style::FineTuning => self.fine_tuning(keys, place, subset).map(Some),
        }
    }

    fn dreambooth(&mut self, keys: &Fallback<'_>, place: &str, mut subset: Subset) -> Result<Option<Subset>> {
        subset.folder = self.resolve(place, Path::is_dir);
        if !subset.folder.is_dir() {
            let message = "is an `image_dir` of the dataset's description, and is no folder: the trainer leaves it out";
            let hint = "folders are looked for beside the description, then in the working directory";
            let shown = display_path(&subset.folder);
            self.problems.push(Problem::error(shown, Kind::Unsupported, message).with_hint(hint));
            return Ok(None);
        }
        let extension = keys.text("caption_extension")?.unwrap_or(".caption");
        let dotted = if extension.starts_with('.') { extension.to_owned() } else { format!(".{extension}") };
        subset.caption_ext = vec![dotted];
        subset.settings.class_tokens = keys.text("class_tokens")?.map(str::to_owned);
        subset.settings.regularization = keys.own().boolean("is_reg")?;
        if keys.boolean("cache_info")?.unwrap_or(false) {
            let wildcard = keys.boolean("enable_wildcard")?.unwrap_or(false);
            let asked = info::Asked { subset: &subset, place, root: &root(self.path), wildcard };
            if let Some(found) = info::read(&asked, self.working_dir)? {
                subset.listed = Some(found.listed);
                self.problems.extend(found.problems);
                self.warn_of_split(keys);
            }
        }
        Ok(Some(subset))
    }

    /// With both, the trainer pairs shuffled images with captions in the old order (`tu:2061`).
    fn warn_of_split(&mut self, keys: &Fallback<'_>) {
        let split = keys.get("validation_split").and_then(|v| v.as_float().or(v.as_integer().map(|v| v as f64)));
        if split.is_some_and(|split| split > 0.0) {
            let why = "`cache_info` with `validation_split` gives images the captions of others";
            self.warnings.push(format!("`{}`: {why}: leave one out", self.path.display()));
        }
    }

    fn fine_tuning(&mut self, keys: &Fallback<'_>, place: &str, subset: Subset) -> Result<Subset> {
        let file = self.resolve(place, Path::is_file);
        let image_dir = keys.own().text("image_dir")?;
        let folder = image_dir.map(|folder| self.resolve(folder, Path::is_dir));
        let words = Words {
            separator: keys.text("caption_separator")?.unwrap_or(","),
            wildcard: keys.boolean("enable_wildcard")?.unwrap_or(false),
        };
        let text = String::from_utf8(read_regular(&file).at(&file)?);
        let text = text.map_err(|_| Error::input(&file, "is not UTF-8"))?;
        let name = display_path(file.strip_prefix(root(self.path)).unwrap_or(&file));
        let by_name = image_dir == Some("");
        let locate = |key: &str| match (&folder, Path::new(key).is_absolute()) {
            (_, true) => Ok((PathBuf::from(key), true)),
            (Some(folder), false) => Ok((folder.join(key), by_name)),
            (None, false) => Err("is a relative path, and the subset has no `image_dir`".to_owned()),
        };
        let lines = place.ends_with(".jsonl");
        let found = metadata::read(&text, lines, &name, &words, locate).map_err(|why| Error::input(&file, why))?;
        self.problems.extend(found.problems);
        let folder = folder.or_else(|| file.parent().map(Path::to_path_buf)).unwrap_or_default();
        Ok(Subset { folder, listed: Some(found.listed), ..subset })
    }

    /// The trainer takes relative paths from its working directory; people keep them beside the file.
    fn resolve(&self, place: &str, is_there: impl Fn(&Path) -> bool) -> PathBuf {
        let beside = root(self.path).join(place);
        if is_there(&beside) { beside } else { self.working_dir.join(place) }
    }

    fn wrong(&self, message: &str) -> Error {
        Error::input(self.path, message)
    }

    fn table<'v>(&self, name: &str, value: &'v Value) -> Result<&'v Table> {
        value.as_table().ok_or_else(|| self.wrong(&format!("`{name}` is no table")))
    }

    fn array<'v>(&self, name: &str, value: &'v Value) -> Result<&'v Vec<Value>> {
        value.as_array().ok_or_else(|| self.wrong(&format!("`{name}` is no array of tables ([[{name}]])")))
    }
}

/// The folder of a description.
pub(super) fn root(path: &Path) -> PathBuf {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_path_buf()
}

#[cfg(test)]
mod tests;
