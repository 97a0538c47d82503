//! Values of a `dataset_config`, by the fallback from subset to dataset to general.

use crate::error::{Error, Result};
use crate::recipe::Filter;
use crate::trainers::description::SubsetSettings;
use crate::units::Size;
use std::path::Path;
use toml::{Table, Value};

/// Subset, dataset, general: the first that has a key wins, a `false` too (`config_util.py:465`).
pub(super) struct Fallback<'a> {
    pub(super) file: &'a Path,
    pub(super) tables: [&'a Table; 3],
}

impl<'a> Fallback<'a> {
    pub(super) fn get(&self, key: &str) -> Option<&'a Value> {
        self.tables.iter().find_map(|table| table.get(key))
    }

    /// The subset alone: what the trainer takes from nowhere else.
    pub(super) fn own(&self) -> Self {
        Self { file: self.file, tables: [self.tables[0]; 3] }
    }

    pub(super) fn boolean(&self, key: &str) -> Result<Option<bool>> {
        self.read(key, "true or false", Value::as_bool)
    }

    pub(super) fn integer(&self, key: &str) -> Result<Option<i64>> {
        self.read(key, "a whole number", Value::as_integer)
    }

    pub(super) fn text(&self, key: &str) -> Result<Option<&'a str>> {
        self.read(key, "a text", Value::as_str)
    }

    /// What shapes latents and batches. `alpha_mask` has no fallback (`config_util.py:201`).
    pub(super) fn settings(&self) -> Result<SubsetSettings> {
        let side = |key: &str| self.read(key, "a number from 1", as_side);
        Ok(SubsetSettings {
            resolution: self.read("resolution", "a number or [width, height]", as_size)?,
            buckets: self.boolean("enable_bucket")?,
            min_bucket: side("min_bucket_reso")?,
            max_bucket: side("max_bucket_reso")?,
            bucket_step: side("bucket_reso_steps")?,
            upscale: self.boolean("bucket_no_upscale")?.map(|no| !no),
            batch: side("batch_size")?,
            flip: self.boolean("flip_aug")?,
            alpha_mask: self.own().boolean("alpha_mask")?,
            resize: self.read("resize_interpolation", FILTERS, |value| value.as_str().and_then(filter))?,
            ..SubsetSettings::default()
        })
    }

    fn read<T>(&self, key: &str, needed: &str, get: impl Fn(&'a Value) -> Option<T>) -> Result<Option<T>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let wrong = || Error::input(self.file, format!("`{key} = {value}`: {needed} is needed"));
        get(value).map(Some).ok_or_else(wrong)
    }
}

fn as_side(value: &Value) -> Option<u32> {
    value.as_integer().and_then(|side| u32::try_from(side).ok()).filter(|&side| side >= 1)
}

fn as_size(value: &Value) -> Option<Size> {
    match value {
        Value::Array(sides) if sides.len() == 2 => {
            as_side(&sides[0]).zip(as_side(&sides[1])).map(|(width, height)| Size::new(width, height))
        }
        scalar => as_side(scalar).map(|side| Size::new(side, side)),
    }
}

const FILTERS: &str = "lanczos, nearest, bilinear, linear, bicubic, cubic, area or box";

/// The names that the trainer takes in this file (`library/utils.py:330`).
fn filter(name: &str) -> Option<Filter> {
    Some(match name {
        "lanczos" => Filter::Lanczos,
        "nearest" => Filter::Nearest,
        "bilinear" | "linear" => Filter::Bilinear,
        "bicubic" | "cubic" => Filter::Bicubic,
        "area" => Filter::Area,
        "box" => Filter::Box,
        _ => return None,
    })
}
