//! The bucket rules of kohya-ss/sd-scripts, in its own float64 arithmetic.
//!
//! Source: sd-scripts 0.10.1, `library/model_util.py` `make_bucket_resolutions` and `library/train_util.py`
//! `BucketManager`. Every rounding is part of the contract: `int(x + 0.5)` cuts towards zero, `//` on whole numbers
//! rounds down, and `numpy.argmin` keeps the first of equals in the sorted list of buckets.
//!
//! Refuses settings on which the trainer stops with an assertion, and pictures on which it divides by zero or
//! makes a bucket without width.

use super::{Assignment, BucketRule, NoBucket};
use crate::units::Size;

/// Longest side of a resolution or a bucket that is taken as meant, in pixels.
const LONGEST_SIDE: u32 = 65_535;

/// sd-scripts' bucket options, as a dataset description gives them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `resolution`: its area is the cap on buckets, roughly; without buckets it is the one size.
    pub resolution: Size,
    /// `min_bucket_reso`, in pixels; rounded down to a multiple of `step`.
    pub min_bucket: u32,
    /// `max_bucket_reso`, in pixels; rounded up to a multiple of `step`.
    pub max_bucket: u32,
    /// `bucket_reso_steps`, in pixels.
    pub step: u32,
    /// False for `bucket_no_upscale`: then `min_bucket` and `max_bucket` shape no bucket.
    pub upscale: bool,
    /// `enable_bucket`; false puts every picture into the resolution, enlarged where it must be.
    pub enabled: bool,
}

/// sd-scripts' `BucketManager` after its buckets are made.
#[derive(Clone, Debug)]
pub struct SdScriptsBuckets {
    settings: Settings,
    predefined: Vec<Size>,
}

impl SdScriptsBuckets {
    /// The rule for `settings`; the error is a usage text with the actual and the allowed value.
    pub fn new(settings: Settings) -> Result<Self, String> {
        let Settings { resolution, upscale, enabled, .. } = settings;
        ensure_side("resolution", resolution.width.min(resolution.height))?;
        ensure_side("resolution", resolution.width.max(resolution.height))?;
        if !enabled {
            return Ok(Self { settings, predefined: vec![resolution] });
        }
        let settings = rounded_to_step(settings)?;
        ensure_limits(&settings)?;
        let predefined = if upscale { predefined_buckets(&settings)? } else { Vec::new() };
        Ok(Self { settings, predefined })
    }

    /// `min_bucket_reso` as used, in pixels: rounded down to the step, on which the trainer only warns.
    pub fn min_bucket(&self) -> u32 {
        self.settings.min_bucket
    }

    /// `max_bucket_reso` as used, in pixels: rounded up to the step, on which the trainer only warns.
    pub fn max_bucket(&self) -> u32 {
        self.settings.max_bucket
    }

    /// The buckets that exist before any picture is seen, sorted by width, then height; none without upscaling,
    /// where each picture makes its own.
    pub fn predefined(&self) -> &[Size] {
        &self.predefined
    }

    fn assign_predefined(&self, source: Size) -> Result<Assignment, NoBucket> {
        let bucket = self.closest_bucket(source);
        let (width, height) = (f64::from(source.width), f64::from(source.height));
        let scale = if source.aspect_ratio() > bucket.aspect_ratio() {
            f64::from(bucket.height) / height
        } else {
            f64::from(bucket.width) / width
        };
        let resized = size_of(width * scale, height * scale).ok_or_else(|| extreme(source, bucket))?;
        Ok(Assignment::centred(bucket, resized))
    }

    fn closest_bucket(&self, source: Size) -> Size {
        if self.predefined.contains(&source) {
            return source;
        }
        let aspect_ratio = source.aspect_ratio();
        let mut best = (f64::INFINITY, self.settings.resolution);
        for &bucket in &self.predefined {
            let error = (bucket.aspect_ratio() - aspect_ratio).abs();
            if error < best.0 {
                best = (error, bucket);
            }
        }
        best.1
    }

    fn assign_without_upscale(&self, source: Size) -> Result<Assignment, NoBucket> {
        let step = self.settings.step;
        let resized = if source.area() > self.settings.resolution.area() {
            self.shrink_to_area(source).ok_or_else(|| self.no_bucket(source))?
        } else {
            source
        };
        let bucket = Size::new(resized.width - resized.width % step, resized.height - resized.height % step);
        if bucket.is_empty() {
            return Err(self.no_bucket(source));
        }
        Ok(Assignment::centred(bucket, resized))
    }

    /// The scaled size with one side on the step; of the two ways, the one whose bucket is closer to the aspect
    /// ratio. `None` where the trainer divides by zero.
    fn shrink_to_area(&self, source: Size) -> Option<Size> {
        let aspect_ratio = source.aspect_ratio();
        let area = self.settings.resolution.area() as f64;
        let ideal_width = (area * aspect_ratio).sqrt();
        let ideal_height = area / ideal_width;

        let width = self.floor_to_step(ideal_width);
        let height_for_width = self.floor_to_step(width / aspect_ratio);
        let height = self.floor_to_step(ideal_height);
        let width_for_height = self.floor_to_step(height * aspect_ratio);
        if height_for_width == 0.0 || height == 0.0 {
            return None;
        }

        let error_by_width = (width / height_for_width - aspect_ratio).abs();
        let error_by_height = (width_for_height / height - aspect_ratio).abs();
        if error_by_width < error_by_height {
            size_of(width, width / aspect_ratio)
        } else {
            size_of(height * aspect_ratio, height)
        }
    }

    /// sd-scripts' `round_to_steps`: to the nearest pixel, then down to the step.
    fn floor_to_step(&self, x: f64) -> f64 {
        let pixels = (x + 0.5).floor();
        pixels - pixels % f64::from(self.settings.step)
    }

    fn no_bucket(&self, source: Size) -> NoBucket {
        let step = self.settings.step;
        if source.width.min(source.height) < step {
            return NoBucket::side_under(source, Size::new(step, step));
        }
        let resolution = self.settings.resolution;
        NoBucket::ExtremeAspect(format!(
            "{source} pixels scaled to the area of {resolution} leave a side under {step} pixels, one bucket step"
        ))
    }
}

impl BucketRule for SdScriptsBuckets {
    fn assign(&self, source: Size) -> Result<Assignment, NoBucket> {
        if source.is_empty() {
            Err(NoBucket::empty(source))
        } else if self.settings.enabled && !self.settings.upscale {
            self.assign_without_upscale(source)
        } else {
            self.assign_predefined(source)
        }
    }
}

/// sd-scripts' `crop_ltrb`, in pixels: where the whole picture would lie inside its bucket, not what is cut.
///
/// Left, top, right, bottom; left and top rounded down, right and bottom fractional. `source` must have both sides.
pub fn crop_ltrb(bucket: Size, source: Size) -> [f64; 4] {
    let (bucket_width, bucket_height) = (f64::from(bucket.width), f64::from(bucket.height));
    let aspect_ratio = source.aspect_ratio();
    let (width, height) = if bucket.aspect_ratio() > aspect_ratio {
        (bucket_height * aspect_ratio, bucket_height)
    } else {
        (bucket_width, bucket_width / aspect_ratio)
    };
    let left = ((bucket_width - width) / 2.0).floor();
    let top = ((bucket_height - height) / 2.0).floor();
    [left, top, left + width, top + height]
}

/// `int(x + 0.5)` of both sides; `None` beyond the range of [`Size`].
fn size_of(width: f64, height: f64) -> Option<Size> {
    let to_pixels = |x: f64| {
        let pixels = (x + 0.5).floor();
        (pixels <= f64::from(u32::MAX)).then_some(pixels as u32)
    };
    Some(Size::new(to_pixels(width)?, to_pixels(height)?))
}

fn extreme(source: Size, bucket: Size) -> NoBucket {
    NoBucket::ExtremeAspect(format!(
        "{source} pixels scaled to cover the bucket {bucket} would have a side over {} pixels",
        u32::MAX
    ))
}

fn ensure_side(name: &str, side: u32) -> Result<(), String> {
    if (1..=LONGEST_SIDE).contains(&side) {
        return Ok(());
    }
    Err(format!("{name} has a side of {side} pixels, allowed are 1 to {LONGEST_SIDE}"))
}

fn rounded_to_step(settings: Settings) -> Result<Settings, String> {
    let Settings { min_bucket, max_bucket, step, .. } = settings;
    ensure_side("bucket step", step)?;
    ensure_side("largest bucket", max_bucket)?;
    Ok(Settings { min_bucket: min_bucket / step * step, max_bucket: max_bucket.next_multiple_of(step), ..settings })
}

fn ensure_limits(settings: &Settings) -> Result<(), String> {
    let Settings { resolution, min_bucket, max_bucket, .. } = *settings;
    let (short, long) = (resolution.width.min(resolution.height), resolution.width.max(resolution.height));
    if min_bucket > short {
        return Err(format!(
            "smallest bucket side {min_bucket} is over the resolution {resolution}, at most {short} is allowed"
        ));
    }
    if max_bucket < long {
        return Err(format!(
            "largest bucket side {max_bucket} is under the resolution {resolution}, at least {long} is needed"
        ));
    }
    Ok(())
}

/// `make_bucket_resolutions`: for each width on the step the tallest height under the area, both ways round, and
/// the square, which may be under the smallest side.
fn predefined_buckets(settings: &Settings) -> Result<Vec<Size>, String> {
    let Settings { resolution, min_bucket, max_bucket, step, .. } = *settings;
    if min_bucket == 0 {
        return Err(format!("smallest bucket side is under the bucket step, at least {step} is needed"));
    }
    let area = resolution.area();
    let square = area.isqrt() as u32 / step * step;
    let mut buckets = vec![Size::new(square, square)];
    let mut width = min_bucket;
    while width <= max_bucket {
        let tallest = (area / u64::from(width)).min(u64::from(max_bucket)) as u32;
        let height = tallest / step * step;
        if height >= min_bucket {
            buckets.extend([Size::new(width, height), Size::new(height, width)]);
        }
        width += step;
    }
    buckets.sort_unstable();
    buckets.dedup();
    Ok(buckets)
}
