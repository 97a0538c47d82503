//! Our own bucket rule: a hard cap on the area, nothing enlarged unless asked, least loss to the crop.
//!
//! The ideal is the uncropped picture at the largest scale that the cap, the longest legal side and (without
//! upscaling) the picture itself allow. Of the legal buckets within one step of the ideal the one wins that keeps
//! the greatest share of the picture; then the larger; then the wider.
//!
//! Whole numbers throughout, so no platform rounds otherwise; a portrait is solved as the landscape it mirrors, so
//! mirrored pictures get mirrored buckets.
//!
//! Refuses pictures with a side under the shortest legal one (without upscaling).

use super::{Assignment, BucketRule, NoBucket};
use crate::units::Size;
use std::cmp::Ordering;

/// What buckets are legal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Hard cap on a bucket's area, in pixels.
    pub max_area: u64,
    /// Bucket sides are multiples of this many pixels.
    pub step: u32,
    /// Shortest side of a bucket, in pixels, rounded up to the step; one step if absent.
    pub min_bucket: Option<u32>,
    /// Longest side of a bucket, in pixels, rounded down to the step; as the cap allows if absent.
    pub max_bucket: Option<u32>,
    /// May pictures be enlarged; then they are, up to the cap.
    pub upscale: bool,
    /// One size for all pictures.
    pub fixed: Option<Size>,
}

/// The rule for checked settings.
#[derive(Clone, Copy, Debug)]
pub struct StoreBuckets {
    settings: Settings,
    shortest: u32,
    longest: u32,
}

impl StoreBuckets {
    /// The rule for `settings`; the error is a usage text with the actual and the allowed value.
    pub fn new(settings: Settings) -> Result<Self, String> {
        let Settings { max_area, step, min_bucket, max_bucket, fixed, .. } = settings;
        if step == 0 {
            return Err("bucket step is 0 pixels, at least 1 is needed".into());
        }
        let Some(shortest) = min_bucket.unwrap_or(step).max(1).checked_next_multiple_of(step) else {
            return Err(format!("smallest bucket side rounded up to the step {step} is over {} pixels", u32::MAX));
        };
        // Beside the longest side the shortest still fits under the cap, so a side lifted to the shortest is legal.
        let room = (max_area / u64::from(shortest)).min(u64::from(u32::MAX)) as u32;
        let longest = max_bucket.unwrap_or(u32::MAX).min(room) / step * step;
        if u64::from(shortest).pow(2) > max_area {
            return Err(format!("the cap of {max_area} pixels is under the smallest bucket {shortest}x{shortest}"));
        }
        if longest < shortest {
            return Err(format!("largest bucket side {longest} is under the smallest {shortest}"));
        }
        if let Some(size) = fixed {
            ensure_fixed(size, &settings)?;
        }
        Ok(Self { settings, shortest, longest })
    }

    /// The shortest side of a bucket as used, in pixels.
    pub fn min_bucket(&self) -> u32 {
        self.shortest
    }

    /// The longest side of a bucket as used, in pixels: a multiple of the step that the cap leaves room for.
    pub fn max_bucket(&self) -> u32 {
        self.longest
    }

    /// The best legal bucket for a landscape or square picture.
    fn landscape_bucket(&self, source: Size) -> Option<Size> {
        let [widths, heights] = self.around_ideal(source);
        let mut best: Option<Size> = None;
        for height in heights.map(|side| self.clamped(side)) {
            for width in widths.map(|side| self.clamped(side)) {
                let bucket = Size::new(width, height);
                if self.is_legal(bucket, source) && best.is_none_or(|other| prefers(bucket, other, source)) {
                    best = Some(bucket);
                }
            }
        }
        best
    }

    /// The sides of the ideal, rounded down and up to the step: widths, then heights. In pixels, not yet limited.
    fn around_ideal(&self, source: Size) -> [[u64; 2]; 2] {
        let (width, height) = (u128::from(source.width), u128::from(source.height));
        let (area, step) = (u128::from(self.settings.max_area), u128::from(self.settings.step));
        let widest = if self.settings.upscale { self.longest } else { self.longest.min(source.width) };
        let widest = u128::from(widest);
        if widest * widest * height <= area * width {
            return [around(widest, 1, step), around(widest * height, width, step)];
        }
        [around_root(area * width, height, step), around_root(area * height, width, step)]
    }

    fn clamped(&self, side: u64) -> u32 {
        side.clamp(u64::from(self.shortest), u64::from(self.longest)) as u32
    }

    fn is_legal(&self, bucket: Size, source: Size) -> bool {
        let covered = bucket.width <= source.width && bucket.height <= source.height;
        bucket.area() <= self.settings.max_area && (self.settings.upscale || covered)
    }

    fn bucket(&self, source: Size) -> Result<Size, NoBucket> {
        let (shortest, longest) = (self.shortest, self.longest);
        let least = self.settings.fixed.unwrap_or(Size::new(shortest, shortest));
        if !self.settings.upscale && (source.width < least.width || source.height < least.height) {
            return Err(NoBucket::side_under(source, least));
        }
        if let Some(fixed) = self.settings.fixed {
            return Ok(fixed);
        }
        let found = if source.width >= source.height {
            self.landscape_bucket(source)
        } else {
            self.landscape_bucket(source.transposed()).map(Size::transposed)
        };
        found.ok_or_else(|| {
            NoBucket::ExtremeAspect(format!(
                "{source} pixels fit no bucket with sides from {shortest} to {longest} and at most {} pixels",
                self.settings.max_area
            ))
        })
    }
}

impl BucketRule for StoreBuckets {
    fn assign(&self, source: Size) -> Result<Assignment, NoBucket> {
        if source.is_empty() {
            return Err(NoBucket::empty(source));
        }
        let bucket = self.bucket(source)?;
        let resized = cover(source, bucket).ok_or_else(|| {
            NoBucket::ExtremeAspect(format!(
                "{source} pixels scaled to cover the bucket {bucket} would have a side over {} pixels",
                u32::MAX
            ))
        })?;
        Ok(Assignment::centred(bucket, resized))
    }
}

fn ensure_fixed(size: Size, settings: &Settings) -> Result<(), String> {
    let Settings { max_area, step, .. } = *settings;
    if size.is_empty() || !size.width.is_multiple_of(step) || !size.height.is_multiple_of(step) {
        return Err(format!("the one bucket {size} has a side that is no multiple of the step {step}"));
    }
    if size.area() > max_area {
        return Err(format!("the one bucket {size} has {} pixels, the cap allows {max_area}", size.area()));
    }
    Ok(())
}

/// `numerator / denominator` rounded down and up to the step.
fn around(numerator: u128, denominator: u128, step: u128) -> [u64; 2] {
    let unit = denominator * step;
    [numerator / unit * step, numerator.div_ceil(unit) * step].map(saturated)
}

/// The square root of `numerator / denominator` rounded down and up to the step.
fn around_root(numerator: u128, denominator: u128, step: u128) -> [u64; 2] {
    let below = (numerator / (denominator * step * step)).isqrt() * step;
    let above = if below * below * denominator == numerator { below } else { below + step };
    [below, above].map(saturated)
}

fn saturated(side: u128) -> u64 {
    u64::try_from(side).unwrap_or(u64::MAX)
}

fn prefers(bucket: Size, other: Size, source: Size) -> bool {
    let larger = || bucket.area().cmp(&other.area());
    let wider = || bucket.width.cmp(&other.width);
    compare_kept(bucket, other, source).then_with(larger).then_with(wider) == Ordering::Greater
}

/// Which of two buckets keeps the greater share of the picture after the crop.
///
/// The share is the smaller of the two side factors over the larger, compared as products of whole numbers.
fn compare_kept(bucket: Size, other: Size, source: Size) -> Ordering {
    let parts = |size: Size| {
        let by_width = u128::from(size.width) * u128::from(source.height);
        let by_height = u128::from(size.height) * u128::from(source.width);
        (by_width.min(by_height), by_width.max(by_height))
    };
    let (kept, scaled) = parts(bucket);
    let (other_kept, other_scaled) = parts(other);
    // Each factor is under 2^64, so the products stay in u128.
    (kept * other_scaled).cmp(&(other_kept * scaled))
}

/// The size of `source` scaled just to cover `bucket`: one side equal, the other rounded half up.
fn cover(source: Size, bucket: Size) -> Option<Size> {
    let (width, height) = (u64::from(source.width), u64::from(source.height));
    let (bucket_width, bucket_height) = (u64::from(bucket.width), u64::from(bucket.height));
    if bucket_width * height >= bucket_height * width {
        Some(Size::new(bucket.width, scaled_side(bucket_width * height, width)?))
    } else {
        Some(Size::new(scaled_side(bucket_height * width, height)?, bucket.height))
    }
}

fn scaled_side(numerator: u64, denominator: u64) -> Option<u32> {
    let half_up = (2 * u128::from(numerator) + u128::from(denominator)) / (2 * u128::from(denominator));
    u32::try_from(half_up).ok()
}
