//! Resampling as the trainers' libraries do it, level for level.
//!
//! Owns the filters of OpenCV 4.10 and Pillow 13 that trainers use, on 8-bit pictures; every rounding of theirs is
//! part of the contract, since a level more or less is another latent. Refuses nothing: an empty side, on either
//! end, gives a picture of zeros.
//!
//! | module | filters |
//! |---|---|
//! | [`area`] | OpenCV `INTER_AREA` where neither side grows |
//! | [`cubic`] | OpenCV `INTER_CUBIC` |
//! | [`taps`] | OpenCV `INTER_LINEAR`, `INTER_AREA` where a side grows, `INTER_CUBIC` of the smallest pictures |
//! | [`nearest`] | OpenCV `INTER_NEAREST_EXACT` |
//! | [`pillow`] | Pillow `LANCZOS`, `BICUBIC`, `BILINEAR`, `BOX` |
//! | [`alpha`] | Pillow's way from straight to multiplied alpha and back |
//!
//! Rows are shared out to threads; the bytes do not depend on their number. `plain` holds a slow, obvious twin of
//! each filter for the tests.

mod alpha;
mod area;
mod cubic;
mod nearest;
mod pillow;
#[cfg(test)]
mod plain;
mod taps;

use crate::pixels::Raster;
use crate::recipe::Resample;
use crate::units::Size;

/// Scales `source` to `to` with `filter`; a picture that already has this size is copied.
///
/// With 4 channels Pillow's filters multiply colour by alpha before and divide after; OpenCV's treat the four alike.
pub fn resize(source: &Raster, to: Size, filter: Resample) -> Raster {
    if source.size == to {
        return source.clone();
    }
    if source.size.is_empty() || to.is_empty() {
        return Raster::zeroed(to, source.channels);
    }
    match filter {
        Resample::Cv2Area => area::resize(source, to),
        Resample::Cv2Linear => taps::linear(source, to),
        Resample::Cv2Cubic => cubic::resize(source, to),
        Resample::Cv2NearestExact => nearest::resize(source, to),
        Resample::PillowLanczos => pillow_resize(source, to, &pillow::LANCZOS),
        Resample::PillowBicubic => pillow_resize(source, to, &pillow::BICUBIC),
        Resample::PillowBilinear => pillow_resize(source, to, &pillow::BILINEAR),
        Resample::PillowBox => pillow_resize(source, to, &pillow::BOX),
    }
}

fn pillow_resize(source: &Raster, to: Size, kernel: &pillow::Kernel) -> Raster {
    if source.channels != 4 {
        return pillow::resize(source, to, kernel);
    }
    let mut resized = pillow::resize(&alpha::multiplied(source), to, kernel);
    alpha::divide(&mut resized);
    resized
}
