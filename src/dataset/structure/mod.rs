//! What the bytes of an image file say of it without decoding a pixel, and whether the file is whole.
//!
//! One walk a container, over its segments, chunks or blocks from the first to the last. A walk owns the facts of the
//! header and the verdict "cut" or "corrupt" where the container shows it; it refuses to guess what only decoded
//! pixels could tell. Every walk is total: any bytes give an answer, in time linear in their number and without an
//! allocation that a header could inflate.
//!
//! | module | what shows that a file is whole |
//! |---|---|
//! | [`jpeg`] | its end marker behind at least one scan |
//! | [`png`] | `IEND`, and the checksum of every chunk |
//! | [`webp`] | as many bytes as the RIFF header says, every chunk inside |
//! | [`gif`] | every block ended, at least one frame |
//! | [`bmp`] | as many bytes of pixels as the header asks for |
//! | [`tiff`] | every strip or tile inside the file |

mod bmp;
mod bytes;
mod gif;
mod ifd;
mod jpeg;
mod png;
mod tiff;
mod webp;

use crate::pixels::Format;
use crate::units::Size;

/// What a container's structure says; filled as far as a walk came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    /// As declared; a zero side where no header was found.
    pub size: Size,
    /// 1–8 (TIFF 6.0 tag 274); 1 where the tag is absent or illegal.
    pub orientation: u8,
    /// Bits a sample; 8 for palettes.
    pub bits: u8,
    /// No colour.
    pub gray: bool,
    /// An alpha channel, a transparent palette entry or colour.
    pub alpha_channel: bool,
    /// The transparency is a colour's or palette entry's, not a channel's.
    pub keyed_alpha: bool,
    /// The ICC profile, not interpreted; `Some(vec![])` for one that cannot be read.
    pub icc: Option<Vec<u8>>,
    /// The file says by other means than a profile that it is sRGB.
    pub says_srgb: bool,
    /// Frames or pages, at least 1.
    pub frames: u32,
    /// A WebP with an extended header.
    pub extended_webp: bool,
    /// Only the decoder can tell whether the picture is whole and of a kind that is read.
    pub undecided: bool,
}

impl Default for Facts {
    fn default() -> Self {
        Self {
            size: Size::new(0, 0),
            orientation: 1,
            bits: 8,
            gray: false,
            alpha_channel: false,
            keyed_alpha: false,
            icc: None,
            says_srgb: false,
            frames: 1,
            extended_webp: false,
            undecided: false,
        }
    }
}

/// Why a file is not whole: what comes after "JPEG is " in a report.
type Fault = String;

/// Walks `bytes` as `format` says. The facts hold whatever was read before a fault; formats that are not decoded have
/// none.
pub(super) fn walk(format: Format, bytes: &[u8]) -> (Facts, Result<(), Fault>) {
    let mut facts = Facts::default();
    let verdict = match format {
        Format::Jpeg => jpeg::walk(bytes, &mut facts),
        Format::Png => png::walk(bytes, &mut facts),
        Format::WebP => webp::walk(bytes, &mut facts),
        Format::Gif => gif::walk(bytes, &mut facts),
        Format::Bmp => bmp::walk(bytes, &mut facts),
        Format::Tiff => tiff::walk(bytes, &mut facts),
        Format::Avif | Format::Jxl | Format::Heic => Ok(()),
    };
    let verdict = match verdict {
        Ok(()) if format.is_decodable() && facts.size.is_empty() => Err(corrupt("it declares a side of 0 pixels")),
        other => other,
    };
    (facts, verdict)
}

/// A file that ends before `what`.
fn cut(what: &str) -> Fault {
    format!("cut: the file ends {what}")
}

/// A file that contradicts its format.
fn corrupt(what: impl std::fmt::Display) -> Fault {
    format!("corrupt: {what}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::path::Path;

    const SAMPLES: [&str; 12] = [
        "hazards/anim.gif",
        "hazards/anim.webp",
        "hazards/cmyk.jpg",
        "hazards/gray16.png",
        "hazards/icc_swapped.png",
        "hazards/orient6.jpg",
        "hazards/orient6.png",
        "hazards/palette_trns.png",
        "hazards/plain.bmp",
        "hazards/progressive.jpg",
        "hazards/rgba_hidden.png",
        "cases/s12-wrong-extension/data/webp_named.jpg",
    ];

    fn sample(index: usize) -> Vec<u8> {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
        std::fs::read(data.join(SAMPLES[index])).expect("the sample is part of the tests")
    }

    fn tiff() -> Vec<u8> {
        let mut file = std::io::Cursor::new(Vec::new());
        image::RgbImage::new(7, 5).write_to(&mut file, image::ImageFormat::Tiff).expect("writes to memory");
        file.into_inner()
    }

    #[test]
    fn every_walk_finds_the_intact_samples_whole() {
        for (index, name) in SAMPLES.iter().enumerate() {
            let bytes = sample(index);
            let format = Format::sniff(&bytes).expect(name);
            assert_eq!(walk(format, &bytes).1, Ok(()), "{name}");
        }
        let (facts, verdict) = walk(Format::Tiff, &tiff());
        assert_eq!((facts.size, facts.bits, verdict), (Size::new(7, 5), 8, Ok(())));
    }

    #[test]
    fn every_prefix_of_a_file_gets_a_verdict_and_none_is_called_whole_without_its_pixels() {
        for (index, name) in SAMPLES.iter().enumerate() {
            let bytes = sample(index);
            let format = Format::sniff(&bytes).expect(name);
            for length in 0..bytes.len() - 1 {
                let (facts, verdict) = walk(format, &bytes[..length]);
                assert!(verdict.is_err() || facts.undecided, "{name} cut at {length}");
            }
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_a_walk_panic(
            which in 0..=SAMPLES.len(),
            edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
            keep in any::<prop::sample::Index>(),
        ) {
            let mut bytes = if which < SAMPLES.len() { sample(which) } else { tiff() };
            let format = Format::sniff(&bytes).expect("the sample is an image");
            for (at, value) in edits {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
            bytes.truncate(keep.index(bytes.len()) + 1);
            let _ = walk(format, &bytes);
        }

        #[test]
        fn noise_makes_no_walk_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            for format in [Format::Jpeg, Format::Png, Format::WebP, Format::Gif, Format::Bmp, Format::Tiff] {
                let _ = walk(format, &bytes);
            }
        }
    }
}
