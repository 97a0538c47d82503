//! Which image format the bytes of a file are; content decides, the extension is only compared with it.

use serde::{Deserialize, Serialize};

/// An image format that is recognised, though not always decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// JPEG, baseline or progressive; multi-picture files too, of which the first picture counts.
    Jpeg,
    /// PNG and APNG.
    Png,
    /// WebP: lossy, lossless or animated.
    WebP,
    /// Windows bitmap.
    Bmp,
    /// TIFF.
    Tiff,
    /// GIF.
    Gif,
    /// AVIF: recognised, not decoded.
    Avif,
    /// JPEG XL: recognised, not decoded.
    Jxl,
    /// HEIF with HEVC: recognised, not decoded.
    Heic,
}

impl Format {
    /// Recognises the format by its first bytes; 64 are always enough. `None` is not an image that is known here.
    pub fn sniff(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [0xff, 0xd8, 0xff, ..] => Some(Self::Jpeg),
            [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some(Self::Png),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some(Self::WebP),
            [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some(Self::Gif),
            // Classic TIFF (42) and BigTIFF (43), in both byte orders.
            [b'I', b'I', 42 | 43, 0, ..] | [b'M', b'M', 0, 42 | 43, ..] => Some(Self::Tiff),
            // A bare codestream, and the signature box of ISO/IEC 18181-2.
            [0xff, 0x0a, ..] | [0, 0, 0, 12, b'J', b'X', b'L', b' ', b'\r', b'\n', 0x87, b'\n', ..] => Some(Self::Jxl),
            [b'B', b'M', ..] => is_bitmap(bytes).then_some(Self::Bmp),
            [_, _, _, _, b'f', b't', b'y', b'p', ..] => sniff_heif(bytes),
            _ => None,
        }
    }

    /// The format that a file extension (without the dot, in any case) stands for.
    pub fn from_extension(extension: &str) -> Option<Self> {
        match extension.to_ascii_lowercase().as_str() {
            "jpg" | "jpeg" | "jpe" | "jfif" => Some(Self::Jpeg),
            "png" | "apng" => Some(Self::Png),
            "webp" => Some(Self::WebP),
            "bmp" | "dib" => Some(Self::Bmp),
            "tif" | "tiff" => Some(Self::Tiff),
            "gif" => Some(Self::Gif),
            "avif" => Some(Self::Avif),
            "jxl" => Some(Self::Jxl),
            "heic" | "heif" | "hif" => Some(Self::Heic),
            _ => None,
        }
    }

    /// The format's name as people write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Jpeg => "JPEG",
            Self::Png => "PNG",
            Self::WebP => "WebP",
            Self::Bmp => "BMP",
            Self::Tiff => "TIFF",
            Self::Gif => "GIF",
            Self::Avif => "AVIF",
            Self::Jxl => "JPEG XL",
            Self::Heic => "HEIC",
        }
    }

    /// True for the formats whose pixels can be had.
    pub const fn is_decodable(self) -> bool {
        !matches!(self, Self::Avif | Self::Jxl | Self::Heic)
    }
}

/// Tells a bitmap from a text that begins with `BM`, by the size field of the header that must follow.
fn is_bitmap(bytes: &[u8]) -> bool {
    // Core, the OS/2 forms, info headers version 1 to 5.
    const HEADER_SIZES: [u8; 8] = [12, 16, 40, 52, 56, 64, 108, 124];
    matches!(bytes.get(14..18), Some(&[size, 0, 0, 0]) if HEADER_SIZES.contains(&size))
}

/// Reads the brands of an ISO base media `ftyp` box: an AVIF brand anywhere wins over the generic `mif1`.
fn sniff_heif(bytes: &[u8]) -> Option<Format> {
    let declared = u32::from_be_bytes(bytes.first_chunk().copied()?) as usize;
    let body = bytes.get(8..declared.min(bytes.len())).unwrap_or_default();
    // The second word is the minor version, which no brand is spelled like.
    let brands = || body.chunks_exact(4);
    if brands().any(|brand| matches!(brand, b"avif" | b"avis")) {
        return Some(Format::Avif);
    }
    const HEVC: [&[u8]; 8] = [b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"];
    brands().any(|brand| HEVC.contains(&brand)).then_some(Format::Heic)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extensions_are_compared_without_case() {
        for extension in ["jpg", "JPG", "JpEg", "jfif"] {
            assert_eq!(Format::from_extension(extension), Some(Format::Jpeg), "{extension}");
        }
        assert_eq!(Format::from_extension("txt"), None);
        assert_eq!(Format::from_extension(""), None);
    }

    #[test]
    fn a_text_that_begins_with_bm_is_no_bitmap() {
        assert_eq!(Format::sniff(b"BMW for sale, nearly new"), None);
        assert_eq!(Format::sniff(b"BM"), None);
    }

    #[test]
    fn a_generic_heif_brand_with_an_avif_brand_beside_it_is_avif() {
        assert_eq!(Format::sniff(b"\0\0\0\x18ftypmif1\0\0\0\0mif1avif"), Some(Format::Avif));
        assert_eq!(Format::sniff(b"\0\0\0\x18ftypmif1\0\0\0\0mif1heic"), Some(Format::Heic));
        assert_eq!(Format::sniff(b"\0\0\0\x18ftypisom\0\0\0\0isommp42"), None);
    }

    #[test]
    fn no_prefix_of_a_signature_panics() {
        for whole in [&b"\0\0\0\x18ftypmif1\0\0\0\0mif1heic"[..], b"RIFF\0\0\0\0WEBP", b"\x89PNG\r\n\x1a\n", b"BM"] {
            for length in 0..whole.len() {
                let _ = Format::sniff(&whole[..length]);
            }
        }
    }

    #[test]
    fn formats_are_spelled_in_lower_case_in_reports() {
        assert_eq!(serde_json::to_string(&Format::WebP).unwrap(), "\"webp\"");
    }
}
