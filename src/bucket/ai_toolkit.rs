//! The bucket rule of ostris/ai-toolkit, in Python's float arithmetic.
//!
//! Source: ai-toolkit 0.12.26, `toolkit/buckets.py:17` (the bucket) and `toolkit/dataloader_mixins.py:216` (size before
//! the crop, and the crop). There is no list of buckets: each picture gets the size on the step that is closest in area
//! to the picture, or to the resolution's square if that is smaller. Only a strip thinner than one step goes over that
//! square, and nothing is enlarged beyond the next step.
//!
//! Refuses pictures that the trainer's `scale` leaves without a side, on which it divides by zero.

use super::{Assignment, BucketRule, NoBucket};
use crate::units::Size;
use std::hint::black_box;

/// Longest side of a resolution or a step that is taken as meant, in pixels.
const LONGEST_SIDE: u32 = 65_535;

/// A dataset's settings that decide its buckets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// `resolution`, in pixels: the side of the square whose area is the cap.
    pub resolution: u32,
    /// The model's bucket divisibility, in pixels; `bucket_tolerance` of the dataset is overwritten with it
    /// (`data_loader.py:395`).
    pub step: u32,
    /// `scale`: both sides are multiplied by it, and cut to whole pixels, before anything else; 1 by default.
    pub scale: f64,
    /// `square_crop`: one bucket, the resolution's square.
    pub square_crop: bool,
}

/// ai-toolkit's rule for one dataset.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AiToolkitBuckets {
    settings: Settings,
}

impl AiToolkitBuckets {
    /// The rule for `settings`; the error is a usage text with the actual and the allowed value.
    pub fn new(settings: Settings) -> Result<Self, String> {
        for (name, side) in [("resolution", settings.resolution), ("bucket step", settings.step)] {
            if !(1..=LONGEST_SIDE).contains(&side) {
                return Err(format!("{name} is {side} pixels, allowed are 1 to {LONGEST_SIDE}"));
            }
        }
        if !(settings.scale > 0.0 && settings.scale.is_finite()) {
            return Err(format!("scale is {}, a number over 0 is needed", settings.scale));
        }
        Ok(Self { settings })
    }

    /// `int(side * scale)` of both sides; none where nothing is left of one, or too much for a picture.
    fn scaled(&self, source: Size) -> Option<Size> {
        let side = |pixels: u32| whole(f64::from(pixels) * self.settings.scale).filter(|&pixels| pixels > 0);
        Some(Size::new(side(source.width)?, side(source.height)?))
    }

    /// `get_bucket_for_image_size`.
    fn bucket(&self, source: Size) -> Option<Size> {
        let step = f64::from(self.settings.step);
        let cap = u64::from(self.settings.resolution) * u64::from(self.settings.resolution);
        let target = source.area().min(cap);
        let scaler = power_half(target as f64 / source.area() as f64);
        let width = f64::from(source.width) * scaler / step;
        let height = f64::from(source.height) * scaler / step;
        let on_step = |steps: f64| whole(steps * step);
        let candidates = [
            (width.floor(), height.floor()),
            (width.floor(), height.ceil()),
            (width.ceil(), height.floor()),
            (width.ceil(), height.ceil()),
        ];
        let mut best: Option<(u64, Size)> = None;
        for (columns, rows) in candidates {
            let size = Size::new(on_step(columns)?, on_step(rows)?);
            let error = size.area().abs_diff(target);
            // The first of equals, as Python's min keeps it.
            if !size.is_empty() && size.area() <= cap && best.is_none_or(|(least, _)| error < least) {
                best = Some((error, size));
            }
        }
        let thinnest = || Some(Size::new(on_step(width.floor().max(1.0))?, on_step(height.floor().max(1.0))?));
        best.map_or_else(thinnest, |(_, size)| Some(size))
    }
}

impl BucketRule for AiToolkitBuckets {
    fn assign(&self, source: Size) -> Result<Assignment, NoBucket> {
        if source.is_empty() {
            return Err(NoBucket::empty(source));
        }
        let scaled = self.scaled(source).ok_or_else(|| no_side(source, self.settings.scale))?;
        let square = Size::new(self.settings.resolution, self.settings.resolution);
        let bucket = if self.settings.square_crop { Some(square) } else { self.bucket(scaled) };
        let fitted = bucket.and_then(|bucket| Some((bucket, cover(scaled, bucket)?)));
        let (bucket, resized) = fitted.ok_or_else(|| too_long(source))?;
        Ok(Assignment::centred(bucket, resized))
    }
}

/// The size that covers `bucket`: both sides by the larger factor, rounded up, so that a side may come out one pixel
/// longer than its bucket.
fn cover(source: Size, bucket: Size) -> Option<Size> {
    let (width, height) = (f64::from(source.width), f64::from(source.height));
    let factor = (f64::from(bucket.width) / width).max(f64::from(bucket.height) / height);
    Some(Size::new(whole((width * factor).ceil())?, whole((height * factor).ceil())?))
}

/// Python's `x ** 0.5`, which is C's `pow`. It differs from a square root in the last bit once in a thousand times, and
/// a compiler that sees the constant makes a square root of it.
fn power_half(x: f64) -> f64 {
    x.powf(black_box(0.5))
}

/// Cut to whole pixels; none beyond the range of [`Size`].
fn whole(pixels: f64) -> Option<u32> {
    (0.0..=f64::from(u32::MAX)).contains(&pixels).then_some(pixels as u32)
}

fn no_side(source: Size, scale: f64) -> NoBucket {
    NoBucket::TooSmall(format!("{source} pixels times the dataset's scale {scale} leave a side without a pixel"))
}

fn too_long(source: Size) -> NoBucket {
    NoBucket::ExtremeAspect(format!(
        "{source} pixels scaled to their bucket would have a side over {} pixels",
        u32::MAX
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assign(settings: Settings, width: u32, height: u32) -> Result<Assignment, NoBucket> {
        AiToolkitBuckets::new(settings).unwrap().assign(Size::new(width, height))
    }

    fn at_512() -> Settings {
        Settings { resolution: 512, step: 16, scale: 1.0, square_crop: false }
    }

    #[test]
    fn scale_shrinks_the_picture_before_its_bucket_is_chosen() {
        let half = Settings { scale: 0.5, ..at_512() };
        let assignment = assign(half, 641, 481).unwrap();
        assert_eq!((assignment.bucket, assignment.resized), (Size::new(320, 240), Size::new(320, 240)));
        assert!(matches!(assign(half, 1, 300), Err(NoBucket::TooSmall(_))));
    }

    #[test]
    fn a_square_crop_keeps_the_middle_of_the_longer_side() {
        let square = Settings { square_crop: true, ..at_512() };
        let assignment = assign(square, 300, 200).unwrap();
        assert_eq!((assignment.bucket, assignment.resized), (Size::new(512, 512), Size::new(768, 512)));
        assert_eq!((assignment.crop.left, assignment.crop.top), (128, 0));
    }

    #[test]
    fn settings_out_of_range_are_usage_texts() {
        let refused = |settings| AiToolkitBuckets::new(settings).unwrap_err();
        let no_step = refused(Settings { step: 0, ..at_512() });
        assert_eq!(no_step, "bucket step is 0 pixels, allowed are 1 to 65535");
        let negative = refused(Settings { scale: -1.0, ..at_512() });
        assert_eq!(negative, "scale is -1, a number over 0 is needed");
    }

    #[test]
    fn no_size_at_all_panics() {
        for (width, height) in [(1, 1), (u32::MAX, 1), (1, u32::MAX), (u32::MAX, u32::MAX), (20_000, 1)] {
            let _ = assign(at_512(), width, height);
            let _ = assign(Settings { square_crop: true, scale: 3.7, ..at_512() }, width, height);
        }
    }
}
