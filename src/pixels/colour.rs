//! Embedded ICC profiles: which ones matter, and their conversion to sRGB.

use super::raster::Raster;
use super::refusal::Refusal;
use crate::problem::Kind;
use moxcms::{ColorProfile, DataColorSpace, Layout, RenderingIntent, Transform8BitExecutor, TransformOptions};
use std::sync::Arc;

/// True for a profile whose conversion to sRGB would change no colour by more than two levels of 255.
///
/// Asked of the conversion itself, not of names: the many profiles called sRGB differ in the last digits of their
/// primaries and in how they spell the curve. The colours tried are a lattice of 9 steps a channel, or all grays.
/// A profile that cannot be read is not sRGB.
pub fn is_srgb(profile: &[u8]) -> bool {
    let Ok(profile) = ColorProfile::new_from_slice(profile) else { return false };
    let (layout, probes) = match profile.color_space {
        DataColorSpace::Rgb => (Layout::Rgb, lattice()),
        DataColorSpace::Gray => (Layout::Gray, (0..=255).collect()),
        _ => return false,
    };
    let Ok(converted) = convert(&profile, &probes, layout) else { return false };
    let repeats = 3 / layout.channels();
    let stored = probes.iter().flat_map(|&value| std::iter::repeat_n(value, repeats));
    converted.iter().zip(stored).all(|(&got, stored)| got.abs_diff(stored) <= 2)
}

/// True for a profile that [`to_srgb`] can apply to a picture: one for RGB, or one for gray to a gray picture.
pub fn is_applicable(profile: &[u8], gray: bool) -> bool {
    let Ok(profile) = ColorProfile::new_from_slice(profile) else { return false };
    let layout = match profile.color_space {
        DataColorSpace::Rgb => Layout::Rgb,
        DataColorSpace::Gray if gray => Layout::Gray,
        _ => return false,
    };
    transform_to_srgb(&profile, layout, Layout::Rgb).is_some()
}

/// Every combination of nine values a channel, black and white included.
fn lattice() -> Vec<u8> {
    const STEPS: [u8; 9] = [0, 32, 64, 96, 128, 160, 192, 224, 255];
    let greens_and_blues = |red| STEPS.into_iter().flat_map(move |green| STEPS.map(|blue| [red, green, blue]));
    STEPS.into_iter().flat_map(greens_and_blues).flatten().collect()
}

/// Converts a picture from its profile's colours to sRGB, 8 bits to 8 bits; alpha passes untouched.
///
/// The perceptual intent where the profile has one, else relative colorimetric. A gray picture with an RGB profile is
/// converted as RGB of equal channels; a gray profile on colours, and a CMYK profile on what has become RGB while it
/// was decoded, cannot be applied.
///
/// # Errors
/// Of kind `icc`, with the reason.
pub fn to_srgb(picture: Raster, profile: &[u8]) -> Result<Raster, Refusal> {
    let profile = ColorProfile::new_from_slice(profile)
        .map_err(|error| refused(format!("its colour profile cannot be read: {error}")))?;
    match (profile.color_space, picture.channels) {
        (DataColorSpace::Rgb, 1) => {
            let rgb: Vec<u8> = picture.data.iter().flat_map(|&gray| [gray; 3]).collect();
            Ok(Raster { size: picture.size, channels: 3, data: convert(&profile, &rgb, Layout::Rgb)? })
        }
        (DataColorSpace::Rgb, 3) => Ok(Raster { data: convert(&profile, &picture.data, Layout::Rgb)?, ..picture }),
        (DataColorSpace::Rgb, _) => Ok(Raster { data: convert(&profile, &picture.data, Layout::Rgba)?, ..picture }),
        (DataColorSpace::Gray, 1) => {
            let rgb = convert(&profile, &picture.data, Layout::Gray)?;
            Ok(Raster { data: rgb.into_iter().step_by(3).collect(), ..picture })
        }
        (DataColorSpace::Gray, 4) if is_gray(&picture) => {
            let gray: Vec<u8> = picture.data.iter().copied().step_by(4).collect();
            let rgb = convert(&profile, &gray, Layout::Gray)?;
            let mut data = picture.data;
            for (pixel, rgb) in data.as_chunks_mut::<4>().0.iter_mut().zip(rgb.as_chunks::<3>().0) {
                pixel[..3].copy_from_slice(rgb);
            }
            Ok(Raster { data, ..picture })
        }
        (DataColorSpace::Gray, _) => Err(refused("its colour profile is for gray, its pixels are coloured")),
        (DataColorSpace::Cmyk, _) => {
            Err(refused("its colour profile is for CMYK inks, which are RGB once decoded: it cannot be applied"))
        }
        (space, _) => Err(refused(format!("its colour profile is for {space:?}, and its pixels are not"))),
    }
}

fn refused(reason: impl Into<String>) -> Refusal {
    Refusal::new(Kind::Icc, reason)
}

/// Converts samples of `from` to RGB, or RGBA to RGBA.
fn convert(profile: &ColorProfile, samples: &[u8], from: Layout) -> Result<Vec<u8>, Refusal> {
    let to = if from == Layout::Rgba { Layout::Rgba } else { Layout::Rgb };
    let transform = transform_to_srgb(profile, from, to);
    let transform = transform.ok_or_else(|| refused("its colour profile has no way to sRGB"))?;
    let mut out = vec![0; samples.len() / from.channels() * to.channels()];
    transform.transform(samples, &mut out).map_err(|error| refused(format!("its colour profile fails: {error}")))?;
    Ok(out)
}

/// True for RGBA whose three colours are equal everywhere.
fn is_gray(picture: &Raster) -> bool {
    picture.data.as_chunks::<4>().0.iter().all(|[r, g, b, _]| r == g && g == b)
}

fn transform_to_srgb(profile: &ColorProfile, from: Layout, to: Layout) -> Option<Arc<Transform8BitExecutor>> {
    let srgb = ColorProfile::new_srgb();
    [RenderingIntent::Perceptual, RenderingIntent::RelativeColorimetric].into_iter().find_map(|rendering_intent| {
        let options = TransformOptions { rendering_intent, ..TransformOptions::default() };
        profile.create_transform_8bit(from, &srgb, to, options).ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Size;
    use moxcms::{ToneReprCurve, curve_from_gamma};

    fn encoded(profile: &ColorProfile) -> Vec<u8> {
        profile.encode().unwrap()
    }

    fn row(channels: usize, data: &[u8]) -> Raster {
        Raster { size: Size::new((data.len() / channels) as u32, 1), channels, data: data.to_vec() }
    }

    fn kind_of(picture: Raster, profile: &[u8]) -> Kind {
        to_srgb(picture, profile).unwrap_err().kind
    }

    #[test]
    fn srgb_is_known_however_it_is_spelled_and_its_neighbours_are_not_srgb() {
        assert!(is_srgb(&encoded(&ColorProfile::new_srgb())));
        // The curve as a table of 1024 entries, as in the profile that most cameras embed.
        let curve = |i: u16| {
            let v = f64::from(i) / 1023.0;
            let linear = if v <= 0.04045 { v / 12.92 } else { ((v + 0.055) / 1.055).powf(2.4) };
            (linear * 65535.0).round() as u16
        };
        let table = ToneReprCurve::Lut((0..1024).map(curve).collect());
        let mut tabled = ColorProfile::new_srgb();
        tabled.cicp = None;
        (tabled.red_trc, tabled.green_trc, tabled.blue_trc) = (Some(table.clone()), Some(table.clone()), Some(table));
        assert!(is_srgb(&encoded(&tabled)));
        for other in [ColorProfile::new_display_p3(), ColorProfile::new_adobe_rgb(), ColorProfile::new_pro_photo_rgb()]
        {
            assert!(!is_srgb(&encoded(&other)));
        }
        assert!(!is_srgb(&encoded(&ColorProfile::new_gray_with_gamma(1.8))));
        assert!(!is_srgb(b"not a profile"));
    }

    /// Adobe RGB (1998) to sRGB in f64: gamma 563/256, both white points D65, primaries as the standards print them.
    fn adobe_to_srgb(pixel: [u8; 3]) -> [f64; 3] {
        const ADOBE_TO_XYZ: [[f64; 3]; 3] = [
            [0.5766690429, 0.1855582379, 0.1882286462],
            [0.2973449753, 0.6273635663, 0.0752914585],
            [0.0270313614, 0.0706888525, 0.9913375368],
        ];
        const XYZ_TO_SRGB: [[f64; 3]; 3] = [
            [3.2404541621, -1.5371385128, -0.4985314096],
            [-0.9692660305, 1.8760108454, 0.0415560175],
            [0.0556434310, -0.2040259135, 1.0572251882],
        ];
        let times =
            |matrix: [[f64; 3]; 3], v: [f64; 3]| matrix.map(|row| row[0] * v[0] + row[1] * v[1] + row[2] * v[2]);
        let linear = pixel.map(|v| (f64::from(v) / 255.0).powf(563.0 / 256.0));
        times(XYZ_TO_SRGB, times(ADOBE_TO_XYZ, linear)).map(|v| {
            let v = v.clamp(0.0, 1.0);
            255.0 * if v <= 0.0031308 { 12.92 * v } else { 1.055 * v.powf(1.0 / 2.4) - 0.055 }
        })
    }

    #[test]
    fn adobe_rgb_converts_as_the_formulas_say_and_alpha_passes() {
        let profile = encoded(&ColorProfile::new_adobe_rgb());
        let pixels: Vec<[u8; 4]> = lattice().as_chunks::<3>().0.iter().map(|&[r, g, b]| [r, g, b, r ^ g]).collect();
        let got = to_srgb(row(4, pixels.as_flattened()), &profile).unwrap();
        for (from, to) in pixels.iter().zip(got.data.as_chunks::<4>().0) {
            let exact = adobe_to_srgb([from[0], from[1], from[2]]);
            for channel in 0..3 {
                let off = (f64::from(to[channel]) - exact[channel]).abs();
                assert!(off <= 1.0, "{from:?} became {to:?}, exactly {exact:?}");
            }
            assert_eq!(to[3], from[3]);
        }
    }

    #[test]
    fn a_gray_profile_converts_gray_with_and_without_alpha_and_refuses_colours() {
        let linear = encoded(&ColorProfile::new_gray_with_gamma(1.0));
        // A linear half is 187.5 of 255 in sRGB.
        let gray = to_srgb(row(1, &[0, 128, 255]), &linear).unwrap();
        assert_eq!((gray.channels, &gray.data[..]), (1, &[0, 188, 255][..]));
        let with_alpha = to_srgb(row(4, &[128, 128, 128, 7]), &linear).unwrap();
        assert_eq!(with_alpha.data, [188, 188, 188, 7]);
        assert_eq!(kind_of(row(3, &[1, 2, 3]), &linear), Kind::Icc);
        assert_eq!(kind_of(row(4, &[1, 2, 3, 4]), &linear), Kind::Icc);
    }

    #[test]
    fn gray_with_an_rgb_profile_is_converted_as_rgb() {
        let mut linear = ColorProfile::new_srgb();
        linear.cicp = None;
        let curve = Some(curve_from_gamma(1.0));
        (linear.red_trc, linear.green_trc, linear.blue_trc) = (curve.clone(), curve.clone(), curve);
        let got = to_srgb(row(1, &[128]), &encoded(&linear)).unwrap();
        assert_eq!((got.channels, &got.data[..]), (3, &[188, 188, 188][..]));
    }

    #[test]
    fn no_damaged_profile_panics() {
        let whole = encoded(&ColorProfile::new_adobe_rgb());
        assert_eq!(kind_of(row(3, &[1, 2, 3]), &whole[..100]), Kind::Icc);
        for at in 0..whole.len() {
            for flip in [0x01, 0x40, 0xff] {
                let mut profile = whole.clone();
                profile[at] ^= flip;
                is_srgb(&profile);
                for channels in [1, 3, 4] {
                    let _ = to_srgb(row(channels, &vec![9; channels]), &profile);
                }
            }
        }
    }
}
