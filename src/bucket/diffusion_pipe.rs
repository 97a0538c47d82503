//! The bucket rule of tdrussell/diffusion-pipe, in numpy's and Python's float arithmetic.
//!
//! Source: diffusion-pipe at 8f83dbf2, `utils/dataset.py` (`DirectoryDataset`, `ARBucketDataset`), `models/base.py`
//! (`ImageOps.fit`). A picture goes to the aspect ratio that is nearest in logarithm; that ratio and the resolution's
//! area give the bucket, each side rounded to the model's multiple, so that a bucket may be over the area. Explicit
//! size buckets are taken as they are. Every picture is scaled to cover its bucket.
//!
//! Ratios are rounded to three digits, sorted and freed of doubles before they are used (`dataset.py:74`). For size
//! buckets the trainer then takes the position in that sorted list for the position in its list of sizes, which is
//! sorted otherwise: it picks the wrong size unless the sizes were given in the order of their ratios. Followed here,
//! since it is what the trainer does.

use super::{Assignment, BucketRule, NoBucket};
use crate::units::Size;
use std::cmp::Reverse;

/// Longest side of a resolution or a bucket that is taken as meant, in pixels.
const LONGEST_SIDE: u32 = 65_535;

/// Most aspect ratios that are taken as meant.
const MOST_RATIOS: u32 = 10_000;

/// The aspect ratios (width / height) that pictures are sorted into.
#[derive(Clone, Debug, PartialEq)]
pub enum Ratios {
    /// `enable_ar_bucket` is off: squares only.
    Square,
    /// `min_ar`, `max_ar`, `num_ar_buckets`: evenly spaced in logarithm.
    Spaced {
        /// The smallest ratio.
        min: f64,
        /// The largest ratio.
        max: f64,
        /// How many, the two among them.
        count: u32,
    },
    /// `ar_buckets`: these.
    Listed(Vec<f64>),
}

/// What sizes there are, for one resolution of a directory.
#[derive(Clone, Debug, PartialEq)]
pub enum Settings {
    /// Aspect bucketing.
    Ratios {
        /// One of `resolutions`, in pixels: the side of a square with the buckets' area.
        resolution: f64,
        /// The ratios.
        ratios: Ratios,
        /// The model's multiple (`pixels_round_to_multiple`), in pixels.
        multiple: u32,
    },
    /// `size_buckets`, in the description's order.
    Sizes {
        /// Each with its number of frames; pictures go to those of one frame. At least one.
        sizes: Vec<(Size, u32)>,
        /// The multiple to which the loader rounds them once more (`models/base.py:171`), in pixels.
        multiple: u32,
    },
}

/// diffusion-pipe's buckets for one resolution of a directory.
#[derive(Clone, Debug, PartialEq)]
pub struct DiffusionPipeBuckets {
    /// Logarithms of the ratios, ascending.
    log_ratios: Vec<f64>,
    /// The bucket of each; none where it is for videos.
    buckets: Vec<Option<Size>>,
}

impl DiffusionPipeBuckets {
    /// The rule for `settings`; the error is a usage text with the actual and the allowed value.
    pub fn new(settings: Settings) -> Result<Self, String> {
        let (ratios, buckets) = match settings {
            Settings::Ratios { resolution, ratios, multiple } => {
                let ratios = sorted(ratios_of(ratios)?);
                let buckets = ratios.iter().map(|&ratio| Some(bucket(resolution, ratio, multiple))).collect();
                (ratios, buckets)
            }
            Settings::Sizes { mut sizes, multiple } => {
                sizes.sort_by_key(|&(_, frames)| Reverse(frames));
                let ratios = sorted(sizes.iter().map(|(size, _)| rounded_by_numpy(size.aspect_ratio())).collect());
                let rounded = |side: u32| to_multiple(f64::from(side), multiple);
                let bucket = |(size, frames): (Size, u32)| {
                    (frames <= 1).then(|| Size::new(rounded(size.width), rounded(size.height)))
                };
                (ratios, sizes.into_iter().map(bucket).collect::<Vec<_>>())
            }
        };
        let wrong = |size: &&Size| size.is_empty() || size.width.max(size.height) > LONGEST_SIDE;
        if let Some(bucket) = buckets.iter().flatten().find(wrong) {
            return Err(format!("the settings make a bucket of {bucket}, sides of 1 to {LONGEST_SIDE} are allowed"));
        }
        if buckets.is_empty() || ratios.iter().any(|ratio| !(ratio.is_finite() && *ratio > 0.0)) {
            return Err("aspect ratios over 0 are needed, at least one".to_owned());
        }
        Ok(Self { log_ratios: ratios.iter().map(|ratio| ratio.ln()).collect(), buckets })
    }

    /// The bucket of each ratio, or the size buckets as rounded; none for those of videos.
    pub fn buckets(&self) -> &[Option<Size>] {
        &self.buckets
    }

    fn nearest(&self, source: Size) -> Option<Size> {
        let log_ratio = source.aspect_ratio().ln();
        let mut best = (f64::INFINITY, None);
        for (known, bucket) in self.log_ratios.iter().zip(&self.buckets) {
            let error = (log_ratio - known).abs();
            if bucket.is_some() && error < best.0 {
                best = (error, *bucket);
            }
        }
        best.1
    }
}

impl BucketRule for DiffusionPipeBuckets {
    fn assign(&self, source: Size) -> Result<Assignment, NoBucket> {
        if source.is_empty() {
            return Err(NoBucket::empty(source));
        }
        let Some(bucket) = self.nearest(source) else {
            return Err(NoBucket::ExtremeAspect(format!("{source} pixels: all size buckets in reach are for videos")));
        };
        let resized = cover(source, bucket).ok_or_else(|| too_long(source, bucket))?;
        Ok(Assignment::centred(bucket, resized))
    }
}

/// What `ImageOps.fit` scales the whole picture to. It cuts the source first, at fractions of a pixel, so here the longer
/// side is the nearest whole pixel.
fn cover(source: Size, bucket: Size) -> Option<Size> {
    let (width, height) = (f64::from(source.width), f64::from(source.height));
    let factor = (f64::from(bucket.width) / width).max(f64::from(bucket.height) / height);
    let side = |side: f64, least: u32| {
        let pixels = (side * factor).round();
        (pixels <= f64::from(u32::MAX)).then(|| (pixels as u32).max(least))
    };
    Some(Size::new(side(width, bucket.width)?, side(height, bucket.height)?))
}

/// `ARBucketDataset.cache_latents`: the area's sides at this ratio, each to the nearest multiple.
fn bucket(resolution: f64, ratio: f64, multiple: u32) -> Size {
    let area = resolution * resolution;
    let width = (area * ratio).sqrt();
    Size::new(to_multiple(width, multiple), to_multiple(area / width, multiple))
}

/// `int(round(x / multiple) * multiple)`, half to even.
fn to_multiple(side: f64, multiple: u32) -> u32 {
    ((side / f64::from(multiple)).round_ties_even() * f64::from(multiple)) as u32
}

/// Ratios rounded to three digits: those that numpy made by numpy, those of the description by Python.
fn ratios_of(ratios: Ratios) -> Result<Vec<f64>, String> {
    match ratios {
        Ratios::Square => Ok(vec![1.0]),
        Ratios::Listed(ratios) => Ok(ratios.into_iter().map(rounded_by_python).collect()),
        Ratios::Spaced { min, max, count } => {
            if !(1..=MOST_RATIOS).contains(&count) {
                return Err(format!("{count} aspect ratios, allowed are 1 to {MOST_RATIOS}"));
            }
            if !(min > 0.0 && min.is_finite() && max > 0.0 && max.is_finite()) {
                return Err(format!("aspect ratios from {min} to {max}, numbers over 0 are needed"));
            }
            Ok(geometric(min, max, count).into_iter().map(rounded_by_numpy).collect())
        }
    }
}

/// `numpy.geomspace`: powers of ten of evenly spaced logarithms, both ends exact.
fn geometric(start: f64, stop: f64, count: u32) -> Vec<f64> {
    let (from, to) = (start.log10(), stop.log10());
    let step = (to - from) / f64::from(count.max(2) - 1);
    let mut values: Vec<f64> = (0..count).map(|index| 10f64.powf(f64::from(index) * step + from)).collect();
    values[0] = start;
    if let (Some(last), true) = (values.last_mut(), count > 1) {
        *last = stop;
    }
    values
}

/// `numpy.float64.__round__(3)`: by a product and a quotient.
fn rounded_by_numpy(x: f64) -> f64 {
    (x * 1000.0).round_ties_even() / 1000.0
}

/// `round(x, 3)` of a Python float: the decimal that is nearest to its exact value, half to even.
fn rounded_by_python(x: f64) -> f64 {
    format!("{x:.3}").parse().unwrap_or(x)
}

fn sorted(mut ratios: Vec<f64>) -> Vec<f64> {
    ratios.sort_by(f64::total_cmp);
    ratios.dedup();
    ratios
}

fn too_long(source: Size, bucket: Size) -> NoBucket {
    NoBucket::ExtremeAspect(format!(
        "{source} pixels scaled to cover the bucket {bucket} would have a side over {} pixels",
        u32::MAX
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_rounded_as_python_and_numpy_round_them() {
        // round(0.0625, 3), round(2.6755, 3), round(1.0005, 3); numpy.float64 gives 2.676 and 1.0.
        assert_eq!([0.0625, 2.6755, 1.0005].map(rounded_by_python), [0.062, 2.675, 1.0]);
        assert_eq!([0.0625, 2.6755, 1.0005].map(rounded_by_numpy), [0.062, 2.676, 1.0]);
    }

    #[test]
    fn equal_ratios_count_once() {
        let ratios = Ratios::Listed(vec![1.5, 1.0, 1.5004]);
        let rule = DiffusionPipeBuckets::new(Settings::Ratios { resolution: 512.0, ratios, multiple: 16 }).unwrap();
        assert_eq!(rule.buckets(), [Some(Size::new(512, 512)), Some(Size::new(624, 416))]);
    }

    #[test]
    fn settings_on_which_the_trainer_fails_are_usage_texts() {
        let refused = |ratios| {
            DiffusionPipeBuckets::new(Settings::Ratios { resolution: 512.0, ratios, multiple: 16 }).unwrap_err()
        };
        let none = refused(Ratios::Spaced { min: 0.5, max: 2.0, count: 0 });
        assert_eq!(none, "0 aspect ratios, allowed are 1 to 10000");
        let negative = refused(Ratios::Spaced { min: -0.5, max: 2.0, count: 3 });
        assert_eq!(negative, "aspect ratios from -0.5 to 2, numbers over 0 are needed");
        assert!(refused(Ratios::Listed(Vec::new())).starts_with("aspect ratios over 0"));
        assert!(refused(Ratios::Listed(vec![1e-9])).starts_with("the settings make a bucket of"));
    }

    #[test]
    fn no_size_at_all_panics() {
        let ratios = Ratios::Spaced { min: 0.1, max: 10.0, count: 9 };
        let rule = DiffusionPipeBuckets::new(Settings::Ratios { resolution: 768.0, ratios, multiple: 32 }).unwrap();
        for (width, height) in [(1, 1), (u32::MAX, 1), (1, u32::MAX), (u32::MAX, u32::MAX)] {
            let _ = rule.assign(Size::new(width, height));
        }
    }
}
