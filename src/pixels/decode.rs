//! From the bytes of an image file to a [`Raster`] of 8 bits a channel, the values that Pillow gives.
//!
//! JPEG goes through libjpeg, the rest through the `image` crate; of an animation the first frame counts. The number
//! of declared pixels is checked before anything is decoded, whatever the format. A file that is cut or corrupt is
//! refused: half a picture is no picture.
//!
//! Pillow's values but for two kinds of TIFF, where a sample may be off by one level: CMYK, and JPEG inside. Palette and
//! gray-with-alpha TIFF are refused as unsupported. Unlike Pillow, a tRNS chunk counts for 16-bit gray too.

use super::format::Format;
use super::raster::Raster;
use super::refusal::Refusal;
use super::{jpeg, segments};
use crate::problem::Kind;
use crate::recipe::Decoder;
use crate::units::Size;
use image::{ColorType, DynamicImage, ImageDecoder, ImageError, ImageFormat, ImageReader, Limits};
use std::io::Cursor;

/// Most pixels that a file may declare: twice Pillow's `MAX_IMAGE_PIXELS` of 89,478,485, the bound over which Pillow
/// raises `DecompressionBombError`.
pub const MAX_PIXELS: u64 = 178_956_970;

/// A picture as stored in its file: not yet turned upright, its colours untouched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// What the content is.
    pub format: Format,
    /// 8 bits a channel: gray, RGB, or RGBA (gray with alpha too). 16-bit samples are cut to their high byte.
    pub raster: Raster,
    /// The embedded ICC profile, not interpreted.
    pub icc: Option<Vec<u8>>,
    /// The samples of a picture of 16-bit gray, for trainers that clip them.
    pub gray16: Option<Vec<u16>>,
}

impl Decoded {
    /// The picture as Pillow's `convert("RGB")` makes it of 16-bit gray: values over 255 become 255. Other pictures
    /// are as in [`raster`](Self::raster).
    pub fn into_clipped(self) -> Raster {
        let Some(gray) = self.gray16 else { return self.raster };
        let mut raster = self.raster;
        let colours = raster.channels.min(3);
        for (pixel, value) in raster.data.chunks_exact_mut(raster.channels).zip(gray) {
            pixel[..colours].fill(value.min(255) as u8);
        }
        raster
    }
}

/// Decodes the first frame of an image file as [`Decoder::Pillow`] does.
///
/// # Errors
/// A [`Refusal`] of kind `empty` (no bytes), `not-image` (no known signature), `unsupported` (AVIF, JPEG XL, HEIC,
/// and rare variants of the others), `too-large` (more than [`MAX_PIXELS`] declared) or `damaged` (cut, corrupt).
pub fn decode(bytes: &[u8]) -> Result<Decoded, Refusal> {
    decode_as(bytes, Decoder::Pillow)
}

/// Like [`decode`], with the values of `decoder`.
///
/// A JPEG is refused where libjpeg refuses it, whatever the decoder: zune-jpeg gives gray for what is missing.
///
/// # Errors
/// As [`decode`].
pub fn decode_as(bytes: &[u8], decoder: Decoder) -> Result<Decoded, Refusal> {
    if bytes.is_empty() {
        return Err(Refusal::new(Kind::Empty, "holds 0 bytes"));
    }
    let Some(format) = Format::sniff(bytes) else {
        return Err(Refusal::new(Kind::NotImage, "holds no image: its content has no known signature"));
    };
    match format {
        Format::Jpeg => match decoder {
            Decoder::Pillow => decode_jpeg(bytes),
            Decoder::ImageCrate => {
                jpeg::decode(bytes)?;
                decode_other(bytes, format, ImageFormat::Jpeg, decoder)
            }
        },
        Format::Png => decode_other(bytes, format, ImageFormat::Png, decoder),
        Format::WebP => {
            ensure_whole_riff(bytes)?;
            decode_other(bytes, format, ImageFormat::WebP, decoder)
        }
        Format::Bmp => decode_other(bytes, format, ImageFormat::Bmp, decoder),
        Format::Tiff => decode_other(bytes, format, ImageFormat::Tiff, decoder),
        Format::Gif => decode_other(bytes, format, ImageFormat::Gif, decoder),
        Format::Avif | Format::Jxl | Format::Heic => {
            Err(Refusal::unsupported(format!("{} is not read: convert it to PNG or JPEG", format.name())))
        }
    }
}

fn decode_jpeg(bytes: &[u8]) -> Result<Decoded, Refusal> {
    let jpeg::Jpeg { size, channels, data } = jpeg::decode(bytes)?;
    let raster = match channels {
        4 => {
            let rgb: Vec<[u8; 3]> = data.as_chunks::<4>().0.iter().map(|&ink| inverted_cmyk_to_rgb(ink)).collect();
            Raster { size, channels: 3, data: rgb.into_flattened() }
        }
        _ => Raster { size, channels, data },
    };
    Ok(Decoded { format: Format::Jpeg, raster, icc: segments::icc_profile(bytes), gray16: None })
}

/// Pillow's conversion of a CMYK JPEG, which it takes as inverted (255 is no ink, Adobe's way) whatever its markers
/// say: light × (255 − black), divided by 255 with rounding, without any profile.
fn inverted_cmyk_to_rgb([c, m, y, k]: [u8; 4]) -> [u8; 3] {
    let light = u32::from(k);
    [c, m, y].map(|kept| {
        let ink = (255 - u32::from(kept)) * light + 128;
        // At most 255 * 255, so the difference stays within 0..=light.
        (light - (((ink >> 8) + ink) >> 8)) as u8
    })
}

/// Refuses a WebP shorter than its RIFF header says, as libwebp does: the lossy decoder would fill in the last bytes.
fn ensure_whole_riff(webp: &[u8]) -> Result<(), Refusal> {
    let declared =
        webp.get(4..8).and_then(<[u8]>::first_chunk).map_or(0, |size| u64::from(u32::from_le_bytes(*size)) + 8);
    if (webp.len() as u64) < declared {
        return Err(Refusal::damaged(format!("WebP is cut: holds {} of {declared} bytes", webp.len())));
    }
    Ok(())
}

fn decode_other(bytes: &[u8], format: Format, as_format: ImageFormat, follow: Decoder) -> Result<Decoded, Refusal> {
    let refuse = |error: ImageError| refusal_of(format, &error);
    let mut reader = ImageReader::with_format(Cursor::new(bytes), as_format);
    // The pixel count below is the real limit; this one keeps metadata and scratch buffers within what a picture of
    // that many 16-bit RGBA pixels would take.
    let mut limits = Limits::no_limits();
    limits.max_alloc = Some(MAX_PIXELS * 8);
    reader.limits(limits);
    let mut decoder = reader.into_decoder().map_err(refuse)?;
    let (width, height) = decoder.dimensions();
    let size = Size::new(width, height);
    if size.area() > MAX_PIXELS {
        return Err(Refusal::too_large(size));
    }
    // A profile that cannot be read is as good as none: no pixel depends on it yet.
    let icc = decoder.icc_profile().ok().flatten();
    let is_gray16 = match decoder.color_type() {
        ColorType::L16 => true,
        ColorType::La16 => format == Format::Png && is_gray16_png(bytes),
        _ => false,
    };
    let picture = DynamicImage::from_decoder(decoder).map_err(refuse)?;
    let gray16 = if is_gray16 { gray16(&picture) } else { None };
    let (channels, data) = to_8_bit(picture, format, follow)?;
    Ok(Decoded { format, raster: Raster { size, channels, data }, icc, gray16 })
}

/// True for a PNG that stores 16-bit gray without an alpha channel, which a tRNS chunk may add: IHDR says so at a
/// fixed place.
fn is_gray16_png(bytes: &[u8]) -> bool {
    bytes.get(24..26) == Some(&[16, 0])
}

fn gray16(picture: &DynamicImage) -> Option<Vec<u16>> {
    match picture {
        DynamicImage::ImageLuma16(gray) => Some(gray.as_raw().clone()),
        DynamicImage::ImageLumaA16(gray) => Some(gray.as_raw().iter().copied().step_by(2).collect()),
        _ => None,
    }
}

/// Channels and samples in 8 bits. Of 16-bit samples Pillow's raw modes keep the high byte, the `image` crate rounds
/// (its `FromPrimitive<u16> for u8`).
fn to_8_bit(picture: DynamicImage, format: Format, decoder: Decoder) -> Result<(usize, Vec<u8>), Refusal> {
    let one = match decoder {
        Decoder::Pillow => |sample: u16| (sample >> 8) as u8,
        Decoder::ImageCrate => |sample: u16| ((u32::from(sample) + 128) / 257) as u8,
    };
    let high = |samples: Vec<u16>| samples.into_iter().map(one).collect();
    Ok(match picture {
        DynamicImage::ImageLuma8(gray) => (1, gray.into_raw()),
        DynamicImage::ImageLumaA8(gray) => (4, gray_alpha_to_rgba(&gray.into_raw())),
        DynamicImage::ImageRgb8(rgb) => (3, rgb.into_raw()),
        DynamicImage::ImageRgba8(rgba) => (4, rgba.into_raw()),
        DynamicImage::ImageLuma16(gray) => (1, high(gray.into_raw())),
        DynamicImage::ImageLumaA16(gray) => (4, gray_alpha_to_rgba(&high(gray.into_raw()))),
        DynamicImage::ImageRgb16(rgb) => (3, high(rgb.into_raw())),
        DynamicImage::ImageRgba16(rgba) => (4, high(rgba.into_raw())),
        _ => return Err(Refusal::unsupported(format!("{} with floating-point samples is not read", format.name()))),
    })
}

fn gray_alpha_to_rgba(pairs: &[u8]) -> Vec<u8> {
    pairs.as_chunks::<2>().0.iter().flat_map(|&[gray, alpha]| [gray, gray, gray, alpha]).collect()
}

/// Sorts the `image` crate's errors into the kinds of a report.
fn refusal_of(format: Format, error: &ImageError) -> Refusal {
    let name = format.name();
    match error {
        ImageError::Unsupported(what) => Refusal::unsupported(format!("this kind of {name} is not read: {what}")),
        ImageError::Limits(what) => {
            Refusal::new(Kind::TooLarge, format!("{name} asks for more memory than {MAX_PIXELS} pixels need: {what}"))
        }
        ImageError::IoError(cause) if cause.kind() == std::io::ErrorKind::UnexpectedEof => {
            Refusal::damaged(format!("{name} is cut: its data ends early"))
        }
        other => Refusal::damaged(format!("{name} is corrupt: {other}")),
    }
}
