//! The bucket rule of kohya-ss/musubi-tuner, in its own float64 arithmetic.
//!
//! Source: musubi-tuner 30c658c4, `dataset/bucket.py:74-121` (`BucketSelector`) and `dataset/media_utils.py:101-137`
//! (`resize_image_to_bucket`). Every rounding is part of the contract: `int(x + 0.5)` cuts towards zero, `//` on whole
//! numbers rounds down, and `numpy.argmin` keeps the first of equals in the sorted list of buckets.
//!
//! Refuses settings on which the trainer divides by zero, and pictures of which it keeps nothing.

use super::{Assignment, BucketRule, NoBucket};
use crate::units::Size;

/// Longest side of a resolution that is taken as meant, in pixels.
const LONGEST_SIDE: u32 = 65_535;

/// musubi-tuner's bucket options, as a dataset description gives them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `resolution`: its area is the cap on buckets; without buckets it is the one size, on the step or not.
    pub resolution: Size,
    /// Bucket sides are multiples of this many pixels; the model's architecture decides (`bucket.py:37-72`).
    pub step: u32,
    /// `enable_bucket`; false puts every picture into the resolution.
    pub enabled: bool,
    /// False for `bucket_no_upscale`, which counts with buckets only (`bucket.py:88`).
    pub upscale: bool,
}

/// musubi-tuner's `BucketSelector`.
#[derive(Clone, Debug)]
pub struct MusubiBuckets {
    settings: Settings,
    buckets: Vec<Size>,
}

impl MusubiBuckets {
    /// The rule for `settings`; the error is a usage text with the actual and the allowed value.
    pub fn new(settings: Settings) -> Result<Self, String> {
        let Settings { resolution, step, enabled, upscale } = settings;
        for side in [resolution.width, resolution.height] {
            if !(1..=LONGEST_SIDE).contains(&side) {
                return Err(format!("resolution has a side of {side} pixels, allowed are 1 to {LONGEST_SIDE}"));
            }
        }
        if step == 0 {
            return Err("bucket step is 0 pixels, at least 1 is needed".to_owned());
        }
        let buckets = if enabled { sorted_buckets(resolution.area(), step)? } else { vec![resolution] };
        Ok(Self { settings: Settings { upscale: upscale || !enabled, ..settings }, buckets })
    }

    /// All buckets, sorted by width, then height.
    pub fn buckets(&self) -> &[Size] {
        &self.buckets
    }

    /// The bucket of a picture; a side of 0 where the trainer rounds it away (`bucket.py:107`).
    fn bucket(&self, source: Size) -> Size {
        let Settings { resolution, step, upscale, .. } = self.settings;
        if !upscale && source.area() <= resolution.area() {
            return Size::new(source.width - source.width % step, source.height - source.height % step);
        }
        let aspect_ratio = source.aspect_ratio();
        let mut best = (f64::INFINITY, resolution);
        for &bucket in &self.buckets {
            let error = (bucket.aspect_ratio() - aspect_ratio).abs();
            if error < best.0 {
                best = (error, bucket);
            }
        }
        best.1
    }
}

impl BucketRule for MusubiBuckets {
    fn assign(&self, source: Size) -> Result<Assignment, NoBucket> {
        if source.is_empty() {
            return Err(NoBucket::empty(source));
        }
        let bucket = self.bucket(source);
        if bucket.is_empty() {
            return Err(NoBucket::side_under(source, Size::new(self.settings.step, self.settings.step)));
        }
        let resized = cover(source, bucket).ok_or_else(|| {
            NoBucket::ExtremeAspect(format!(
                "{source} pixels scaled to cover the bucket {bucket} would have a side over {} pixels",
                u32::MAX
            ))
        })?;
        Ok(Assignment::centred(bucket, resized))
    }
}

/// For each width from half the square's side the tallest height under the area, both ways round (`bucket.py:91-103`).
fn sorted_buckets(area: u64, step: u32) -> Result<Vec<Size>, String> {
    let floored = |side: u64| (side - side % u64::from(step)) as u32;
    let square = (area as f64).sqrt() as u64;
    let narrowest = floored(square / 2);
    if narrowest == 0 {
        let least = 2 * u64::from(step);
        return Err(format!("resolution has {area} pixels, at least {least}x{least} are needed for buckets"));
    }
    let mut buckets = Vec::new();
    for width in (narrowest..square as u32 + step).step_by(step as usize) {
        let height = floored(area / u64::from(width));
        buckets.extend([Size::new(width, height), Size::new(height, width)]);
    }
    buckets.sort_unstable();
    buckets.dedup();
    Ok(buckets)
}

/// `source` scaled by the larger of the two factors, each side `int(x + 0.5)`; `None` beyond the range of [`Size`].
fn cover(source: Size, bucket: Size) -> Option<Size> {
    let (width, height) = (f64::from(source.width), f64::from(source.height));
    let scale = (f64::from(bucket.width) / width).max(f64::from(bucket.height) / height);
    let scaled = |side: f64| {
        let pixels = (side * scale + 0.5).floor();
        (pixels <= f64::from(u32::MAX)).then_some(pixels as u32)
    };
    Some(Size::new(scaled(width)?, scaled(height)?))
}
