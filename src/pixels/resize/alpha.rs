//! Pillow's conversions between straight alpha (`RGBA`) and colour multiplied by alpha (`RGBa`).
//!
//! Source: Pillow 13 `src/libImaging/Convert.c` (`rgba2rgbA`, `rgbA2rgba`) and `ImagingUtils.h` (`MULDIV255`).

use crate::pixels::Raster;

/// Colour times alpha / 255, rounded to nearest; `source` has 4 channels.
pub(super) fn multiplied(source: &Raster) -> Raster {
    let mut out = source.clone();
    for pixel in out.data.chunks_exact_mut(4) {
        let alpha = u32::from(pixel[3]);
        for colour in &mut pixel[..3] {
            // (x + 128) * 257 >> 16 in two shifts: x / 255 to nearest for all products of two bytes.
            let product = u32::from(*colour) * alpha + 128;
            *colour = (((product >> 8) + product) >> 8) as u8;
        }
    }
    out
}

/// Colour times 255 / alpha, rounded down and held at 255; colour under alpha 0 stays as it is.
pub(super) fn divide(raster: &mut Raster) {
    for pixel in raster.data.chunks_exact_mut(4) {
        let alpha = u32::from(pixel[3]);
        if alpha == 0 || alpha == 255 {
            continue;
        }
        for colour in &mut pixel[..3] {
            *colour = (u32::from(*colour) * 255 / alpha).min(255) as u8;
        }
    }
}
