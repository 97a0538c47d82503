//! sd-scripts' `dataset_config` in TOML: general → dataset → subset fallback, the keys that shape a latent or a batch.
//!
//! Keys that are not honoured are named in one warning. What cannot be cached soundly (`random_crop`, `color_aug`) is
//! refused, as the trainer itself refuses to cache with it.

use crate::error::{Error, Result};
use crate::recipe::{Filter, Target};
use crate::trainers::description::{Description, Subset, SubsetSettings};
use crate::units::Size;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// Keys read here; all others are named in the warning.
const HONOURED: [&str; 14] = [
    "resolution",
    "enable_bucket",
    "min_bucket_reso",
    "max_bucket_reso",
    "bucket_reso_steps",
    "bucket_no_upscale",
    "batch_size",
    "image_dir",
    "num_repeats",
    "caption_extension",
    "flip_aug",
    "alpha_mask",
    "resize_interpolation",
    "subsets",
];

/// Keys that make every epoch's pixels differ; the trainer asserts against them when it caches (`tu:1099`).
const UNCACHEABLE: [&str; 2] = ["random_crop", "color_aug"];

/// Parses a dataset_config; `None` when the text is no TOML with `[[datasets]]`.
pub fn parse(path: &Path, text: &str, working_dir: &Path) -> Option<Result<Description>> {
    let document = match text.parse::<Table>() {
        Ok(document) => document,
        Err(error) if looks_like_toml(path) => {
            return Some(Err(Error::input(path, format!("is no valid TOML: {}", one_line(&error.to_string())))));
        }
        Err(_) => return None,
    };
    let datasets = document.get("datasets")?;
    Some(Reader { path, working_dir, unhonoured: BTreeSet::new(), warnings: Vec::new() }.read(&document, datasets))
}

fn looks_like_toml(path: &Path) -> bool {
    path.extension().is_some_and(|e| e.eq_ignore_ascii_case("toml"))
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

struct Reader<'a> {
    path: &'a Path,
    working_dir: &'a Path,
    unhonoured: BTreeSet<String>,
    warnings: Vec<String>,
}

impl Reader<'_> {
    fn read(mut self, document: &Table, datasets: &Value) -> Result<Description> {
        let empty = Table::new();
        let general = match document.get("general") {
            None => &empty,
            Some(value) => self.table("general", value)?,
        };
        self.note_keys(general);
        let unknown = document.keys().filter(|key| !["general", "datasets"].contains(&key.as_str())).cloned();
        self.unhonoured.extend(unknown);
        let mut subsets = Vec::new();
        for dataset in self.array("datasets", datasets)? {
            let dataset = self.table("datasets", dataset)?;
            self.note_keys(dataset);
            let Some(list) = dataset.get("subsets") else {
                return Err(self.wrong("a [[datasets]] has no [[datasets.subsets]]"));
            };
            let mut taken = BTreeSet::new();
            for subset in self.array("subsets", list)? {
                let subset = self.table("subsets", subset)?;
                self.note_keys(subset);
                let subset = self.subset(&Fallback([subset, dataset, general]))?;
                // A folder given twice in one dataset is ignored by the trainer; the first one counts (`tu:2124`).
                subsets.extend(subset.filter(|subset| taken.insert(subset.folder.clone())));
            }
        }
        let root = self.path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_path_buf();
        let mut warnings = self.warnings;
        if !self.unhonoured.is_empty() {
            let keys: Vec<_> = self.unhonoured.into_iter().collect();
            warnings.push(format!("`{}`: these keys are not honoured: {}", self.path.display(), keys.join(", ")));
        }
        Ok(Description { root, subsets, warnings, problems: Vec::new() })
    }

    /// One subset; none where the trainer ignores it (`num_repeats` below 1, `tu:2117`).
    fn subset(&mut self, keys: &Fallback<'_>) -> Result<Option<Subset>> {
        if let Some(key) = UNCACHEABLE.iter().find(|key| keys.get(key) == Some(&Value::Boolean(true))) {
            return Err(self.wrong(&format!("`{key} = true` cannot be cached: every epoch sees other pixels")));
        }
        for key in ["metadata_file", "conditioning_data_dir"] {
            if keys.0[0].contains_key(key) {
                return Err(self.wrong(&format!("subsets with `{key}` are not read yet")));
            }
        }
        let repeats = self.integer(keys, "num_repeats")?.unwrap_or(1);
        let Some(Value::String(folder)) = keys.0[0].get("image_dir") else {
            return Err(self.wrong("a subset has no `image_dir` (a text)"));
        };
        if repeats < 1 {
            let shown = self.path.display();
            self.warnings
                .push(format!("`{shown}`: `{folder}` is left out, as the trainer does: num_repeats is {repeats}"));
            return Ok(None);
        }
        let extension = self.text(keys, "caption_extension")?.unwrap_or(".caption");
        let dotted = if extension.starts_with('.') { extension.to_owned() } else { format!(".{extension}") };
        Ok(Some(Subset {
            folder: self.resolve(folder),
            recursive: false,
            repeats: Some(repeats.try_into().unwrap_or(u32::MAX)),
            caption_ext: vec![dotted],
            described_by: Some(Target::SdScripts),
            settings: self.settings(keys)?,
            listed: None,
        }))
    }

    fn settings(&self, keys: &Fallback<'_>) -> Result<SubsetSettings> {
        let side = |key: &str| -> Result<Option<u32>> {
            let Some(value) = self.integer(keys, key)? else { return Ok(None) };
            let wrong = || self.wrong(&format!("`{key} = {value}`: a number from 1 is needed"));
            u32::try_from(value).ok().filter(|&v| v >= 1).map(Some).ok_or_else(wrong)
        };
        Ok(SubsetSettings {
            resolution: self.resolution(keys)?,
            buckets: self.boolean(keys, "enable_bucket")?,
            min_bucket: side("min_bucket_reso")?,
            max_bucket: side("max_bucket_reso")?,
            bucket_step: side("bucket_reso_steps")?,
            upscale: self.boolean(keys, "bucket_no_upscale")?.map(|no| !no),
            batch: side("batch_size")?,
            flip: self.boolean(keys, "flip_aug")?,
            alpha_mask: self.boolean(&Fallback([keys.0[0], keys.0[0], keys.0[0]]), "alpha_mask")?,
            resize: self.filter(keys)?,
        })
    }

    fn resolution(&self, keys: &Fallback<'_>) -> Result<Option<Size>> {
        let side = |value: &Value| value.as_integer().and_then(|v| u32::try_from(v).ok()).filter(|&v| v >= 1);
        let Some(value) = keys.get("resolution") else { return Ok(None) };
        let size = match value {
            Value::Array(sides) if sides.len() == 2 => {
                side(&sides[0]).zip(side(&sides[1])).map(|(width, height)| Size::new(width, height))
            }
            scalar => side(scalar).map(|side| Size::new(side, side)),
        };
        size.map(Some)
            .ok_or_else(|| self.wrong(&format!("`resolution = {value}`: a number or [width, height] is needed")))
    }

    /// The names that the trainer takes in this file (`library/utils.py:330`).
    fn filter(&self, keys: &Fallback<'_>) -> Result<Option<Filter>> {
        let Some(name) = self.text(keys, "resize_interpolation")? else { return Ok(None) };
        Ok(Some(match name {
            "lanczos" => Filter::Lanczos,
            "nearest" => Filter::Nearest,
            "bilinear" | "linear" => Filter::Bilinear,
            "bicubic" | "cubic" => Filter::Bicubic,
            "area" => Filter::Area,
            "box" => Filter::Box,
            _ => {
                let allowed = "lanczos, nearest, bilinear, linear, bicubic, cubic, area or box";
                return Err(self.wrong(&format!("`resize_interpolation = \"{name}\"`: {allowed} is needed")));
            }
        }))
    }

    /// The trainer takes relative folders from its working directory; people keep them beside the file.
    fn resolve(&self, folder: &str) -> PathBuf {
        let beside = self.path.parent().unwrap_or(Path::new("")).join(folder);
        if beside.is_dir() { beside } else { self.working_dir.join(folder) }
    }

    fn note_keys(&mut self, table: &Table) {
        let other =
            table.keys().filter(|key| !HONOURED.contains(&key.as_str()) && !UNCACHEABLE.contains(&key.as_str()));
        self.unhonoured.extend(other.cloned());
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

    fn boolean(&self, keys: &Fallback<'_>, key: &str) -> Result<Option<bool>> {
        let wrong = |value: &Value| self.wrong(&format!("`{key} = {value}`: true or false is needed"));
        keys.get(key).map(|value| value.as_bool().ok_or_else(|| wrong(value))).transpose()
    }

    fn integer(&self, keys: &Fallback<'_>, key: &str) -> Result<Option<i64>> {
        let wrong = |value: &Value| self.wrong(&format!("`{key} = {value}`: a whole number is needed"));
        keys.get(key).map(|value| value.as_integer().ok_or_else(|| wrong(value))).transpose()
    }

    fn text<'v>(&self, keys: &Fallback<'v>, key: &str) -> Result<Option<&'v str>> {
        let wrong = |value: &Value| self.wrong(&format!("`{key} = {value}`: a text is needed"));
        keys.get(key).map(|value| value.as_str().ok_or_else(|| wrong(value))).transpose()
    }
}

/// Subset, dataset, general: the first that has a key wins, a `false` too (`config_util.py:465`).
struct Fallback<'a>([&'a Table; 3]);

impl<'a> Fallback<'a> {
    fn get(&self, key: &str) -> Option<&'a Value> {
        self.0.iter().find_map(|table| table.get(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Description> {
        parse(Path::new("data/set.toml"), text, Path::new("/home/me")).expect("a dataset config")
    }

    #[test]
    fn a_subset_falls_back_to_its_dataset_then_to_general() {
        let text = r#"
            [general]
            enable_bucket = true
            flip_aug = true
            caption_extension = "txt"
            bucket_no_upscale = true
            [[datasets]]
            resolution = [768, 512]
            batch_size = 4
            [[datasets.subsets]]
            image_dir = "a"
            flip_aug = false
            alpha_mask = true
            num_repeats = 3
            [[datasets.subsets]]
            image_dir = "b"
            resize_interpolation = "cubic"
            [[datasets]]
            resolution = 512
            enable_bucket = false
            [[datasets.subsets]]
            image_dir = "a"
        "#;
        let subsets = read(text).unwrap().subsets;
        assert_eq!(subsets.len(), 3);
        let first = &subsets[0];
        assert_eq!(first.folder, Path::new("/home/me/a"));
        assert_eq!((first.repeats, first.recursive), (Some(3), false));
        assert_eq!(first.caption_ext, [".txt"]);
        assert_eq!(first.settings.resolution, Some(Size::new(768, 512)));
        assert_eq!((first.settings.flip, first.settings.alpha_mask), (Some(false), Some(true)));
        assert_eq!(
            (first.settings.buckets, first.settings.upscale, first.settings.batch),
            (Some(true), Some(false), Some(4))
        );
        assert_eq!(subsets[1].settings.flip, Some(true));
        assert_eq!(subsets[1].settings.alpha_mask, None);
        assert_eq!(subsets[1].settings.resize, Some(Filter::Bicubic));
        assert_eq!(subsets[2].settings.buckets, Some(false));
        assert_eq!(subsets[2].settings.resolution, Some(Size::new(512, 512)));
    }

    #[test]
    fn the_trainers_own_defaults_hold_where_the_file_is_silent() {
        let subset = &read("[[datasets]]\n[[datasets.subsets]]\nimage_dir = \"a\"").unwrap().subsets[0];
        assert_eq!(subset.caption_ext, [".caption"]);
        assert_eq!((subset.settings.buckets, subset.described_by), (None, Some(Target::SdScripts)));
        assert_eq!(subset.repeats, Some(1));
    }

    #[test]
    fn unhonoured_keys_are_named_and_uncacheable_ones_refused() {
        let text =
            "[general]\nshuffle_caption = true\n[[datasets]]\n[[datasets.subsets]]\nimage_dir = \"a\"\nis_reg = true";
        assert_eq!(
            read(text).unwrap().warnings,
            ["`data/set.toml`: these keys are not honoured: is_reg, shuffle_caption"]
        );
        let text = "[[datasets]]\nrandom_crop = true\n[[datasets.subsets]]\nimage_dir = \"a\"";
        assert!(read(text).unwrap_err().to_string().contains("random_crop"));
    }

    #[test]
    fn a_wrong_value_names_the_key_the_value_and_what_is_allowed() {
        let text = "[[datasets]]\nresolution = \"big\"\n[[datasets.subsets]]\nimage_dir = \"a\"";
        let message = read(text).unwrap_err().to_string();
        assert_eq!(message, "`data/set.toml`: `resolution = \"big\"`: a number or [width, height] is needed");
    }

    #[test]
    fn other_texts_are_no_dataset_config() {
        assert!(parse(Path::new("a.json"), "{}", Path::new("")).is_none());
        assert!(parse(Path::new("a.toml"), "x = 1", Path::new("")).is_none());
        assert!(parse(Path::new("a.toml"), "x = ", Path::new("")).is_some_and(|r| r.is_err()));
    }
}
