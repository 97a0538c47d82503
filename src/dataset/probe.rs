//! One image file's bytes → what is known of it without training on it, and whether it is whole.
//!
//! The container is walked, not decoded. Pixels are decoded only where nothing else can tell: for transparency, where
//! there is an alpha channel; where an end marker is missing (a JPEG that lacks just its last two bytes decodes whole
//! and is no problem, one that lacks rows is damaged); for TIFF and rare variants of other formats, which may not be
//! read at all; and for everything in a deep scan.

use super::read;
use super::structure::{self, Facts};
use crate::pixels::colour::{is_applicable, is_srgb};
use crate::pixels::orient::upright_size;
use crate::pixels::{Format, MAX_PIXELS, decode, is_transparent};
use crate::problem::{Kind, Problem};
use crate::units::Size;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Raised whenever the same bytes would give another [`Probed`]: what an older version remembered is then read anew.
pub const PROBE_REV: u32 = 2;

/// What a file's bytes told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probed {
    /// [`PROBE_REV`] of the code that found it out.
    pub rev: u32,
    /// Every pixel was decoded.
    pub deep: bool,
    /// What the header says; `None` where no size could be had.
    pub probe: Option<Probe>,
    /// What is wrong with the file itself; without the warnings of [`hazards`](super::hazards).
    pub problems: Vec<Problem>,
}

/// What an image file says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// By content, whatever the extension.
    pub format: Format,
    /// As stored in the header, before orientation; both sides at least 1.
    pub size: Size,
    /// EXIF orientation, 1–8; an absent or illegal tag counts as 1.
    pub orientation: u8,
    /// Bits a channel; 8 for palettes.
    pub bits: u8,
    /// Holds no colour.
    pub gray: bool,
    /// Has an alpha channel, or a colour or palette entry that is transparent.
    pub alpha_channel: bool,
    /// That transparency belongs to one colour or to palette entries (PNG's tRNS), not to an alpha channel.
    pub keyed_alpha: bool,
    /// Some pixel is not opaque. Never true without [`alpha_channel`](Self::alpha_channel).
    pub transparent: bool,
    /// The embedded colour profile.
    pub profile: Profile,
    /// Frames of an animation or pages, at least 1.
    pub frames: u32,
    /// WebP with an extended header, whose size imagesize 1.4.1 (and so sd-scripts) reads one too small a side.
    pub extended_webp: bool,
}

/// Which colours an image says its values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// Says nothing.
    None,
    /// sRGB, by a profile or by PNG's `sRGB` chunk.
    Srgb,
    /// A profile that would change colours.
    Other,
    /// A profile that cannot be applied: it is for CMYK inks, for gray on a coloured picture, or cannot be read.
    Unusable,
}

impl Probe {
    /// The size after the orientation is undone.
    pub fn upright(&self) -> Size {
        upright_size(self.size, self.orientation)
    }
}

/// Probes a file held in memory; `name` is its path as shown in problems, and its extension is compared with the
/// content. `deep` decodes every pixel.
pub fn probe(name: &str, bytes: &[u8], deep: bool) -> Probed {
    let mut probed = Probed { rev: PROBE_REV, deep, probe: None, problems: Vec::new() };
    if bytes.is_empty() {
        probed.problems.push(Problem::error(name, Kind::Empty, "holds 0 bytes"));
        return probed;
    }
    let Some(format) = Format::sniff(bytes) else {
        let message = format!("holds {}, not an image", describe(bytes));
        probed.problems.push(Problem::error(name, Kind::NotImage, message));
        return probed;
    };
    let named = Path::new(name).extension().and_then(|extension| extension.to_str());
    let misnamed = named.filter(|text| !text.is_empty() && Format::from_extension(text) != Some(format));
    if !format.is_decodable() {
        probed.problems.push(not_decodable(name, format, misnamed));
        return probed;
    }
    let (facts, verdict) = structure::walk(format, bytes);
    if !facts.size.is_empty() {
        probed.probe = Some(to_probe(format, &facts));
    }
    if let Some(problem) = check(name, bytes, format, &facts, verdict, &mut probed) {
        probed.problems.push(problem);
    }
    if let Some(extension) = misnamed {
        let message = format!("holds {}, though named .{extension}", format.name());
        probed.problems.push(Problem::warning(name, Kind::WrongExtension, message));
    }
    probed
}

fn to_probe(format: Format, facts: &Facts) -> Probe {
    let profile = match &facts.icc {
        Some(profile) if is_srgb_remembered(profile) => Profile::Srgb,
        Some(profile) if is_applicable(profile, facts.gray) => Profile::Other,
        Some(_) => Profile::Unusable,
        None if facts.says_srgb => Profile::Srgb,
        None => Profile::None,
    };
    Probe {
        format,
        size: facts.size,
        orientation: facts.orientation,
        bits: facts.bits,
        gray: facts.gray,
        alpha_channel: facts.alpha_channel,
        keyed_alpha: facts.keyed_alpha,
        transparent: false,
        profile,
        frames: facts.frames,
        extended_webp: facts.extended_webp,
    }
}

/// [`is_srgb`], asked once for each of the few profiles that a dataset's pictures share: it tries a lattice of colours.
fn is_srgb_remembered(profile: &[u8]) -> bool {
    /// More distinct profiles than this are judged anew each time.
    const MOST: usize = 1024;
    static JUDGED: Mutex<BTreeMap<[u8; 32], bool>> = Mutex::new(BTreeMap::new());
    let identity = *blake3::hash(profile).as_bytes();
    // Each entry is whole or absent, so a map left behind by a panic is as good as new.
    let judged = || JUDGED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(&verdict) = judged().get(&identity) {
        return verdict;
    }
    let verdict = is_srgb(profile);
    let mut judged = judged();
    if judged.len() < MOST {
        judged.insert(identity, verdict);
    }
    verdict
}

/// Judges a file by its structure and, where that does not tell, by its pixels.
fn check(
    name: &str,
    bytes: &[u8],
    format: Format,
    facts: &Facts,
    verdict: Result<(), String>,
    probed: &mut Probed,
) -> Option<Problem> {
    let pixels = facts.size.area();
    if pixels > MAX_PIXELS {
        let message = format!("declares {} = {pixels} pixels, at most {MAX_PIXELS} are decoded", facts.size);
        return Some(Problem::error(name, Kind::TooLarge, message).with_hint("scale it down"));
    }
    if let Err(fault) = verdict {
        let message = format!("{} is {fault}", format.name());
        return Some(Problem::error(name, Kind::Damaged, message).with_hint("fetch or export it again"));
    }
    if !(probed.deep || facts.undecided || facts.alpha_channel) {
        return None;
    }
    // Four bytes a pixel, decoded.
    let _turn = read::picture_turn(pixels.saturating_mul(4));
    match decode(bytes) {
        Ok(decoded) => {
            if let Some(probe) = &mut probed.probe {
                probe.transparent = facts.alpha_channel && is_transparent(&decoded.raster);
            }
            None
        }
        Err(refusal) => Some(Problem::error(name, refusal.kind, refusal.message)),
    }
}

fn not_decodable(name: &str, format: Format, misnamed: Option<&str>) -> Problem {
    let though = misnamed.map(|extension| format!(", though named .{extension}")).unwrap_or_default();
    let message = format!("holds {}{though}; this format is not read", format.name());
    Problem::error(name, Kind::Unsupported, message).with_hint("convert it to PNG or JPEG, e.g. `magick FILE FILE.png`")
}

/// What bytes without a known signature look like.
fn describe(bytes: &[u8]) -> &'static str {
    let start = &bytes[..bytes.len().min(512)];
    let text = match std::str::from_utf8(start) {
        Ok(text) => text,
        // A character cut by the limit is no sign against text.
        Err(error) if error.error_len().is_none() => std::str::from_utf8(&start[..error.valid_up_to()]).unwrap_or(""),
        Err(_) => "",
    };
    let lower = text.trim_start_matches('\u{feff}').trim_start().to_ascii_lowercase();
    if ["<!doctype html", "<html", "<head"].iter().any(|tag| lower.starts_with(tag)) {
        return "an HTML page";
    }
    if start.iter().all(|&byte| byte == 0) {
        return "zeros";
    }
    let is_text = !lower.is_empty() && !lower.chars().any(|c| c.is_control() && !c.is_whitespace());
    if is_text { "text" } else { "data of no known image format" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hazard(name: &str) -> Vec<u8> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/hazards");
        std::fs::read(folder.join(name)).expect("the file is part of the tests")
    }

    fn kinds(probed: &Probed) -> Vec<Kind> {
        probed.problems.iter().map(|problem| problem.kind).collect()
    }

    #[test]
    fn transparency_counts_only_where_a_pixel_shows_it() {
        for (name, transparent) in [("rgba_hidden.png", true), ("palette_trns.png", true), ("plain.bmp", false)] {
            let probe = probe(name, &hazard(name), false).probe.expect(name);
            assert_eq!(probe.transparent, transparent, "{name}");
        }
        let mut opaque = std::io::Cursor::new(Vec::new());
        let white = image::RgbaImage::from_pixel(4, 4, image::Rgba([255; 4]));
        white.write_to(&mut opaque, image::ImageFormat::Png).unwrap();
        let probe = probe("a.png", opaque.get_ref(), false).probe.unwrap();
        assert_eq!((probe.alpha_channel, probe.transparent), (true, false));
    }

    #[test]
    fn what_is_no_image_is_described() {
        for (bytes, word) in [(&b"<!DOCTYPE html><p>404"[..], "HTML"), (b"just words", "text"), (&[0; 9], "zeros")] {
            let probed = probe("a.png", bytes, false);
            assert_eq!(kinds(&probed), [Kind::NotImage]);
            assert!(probed.problems[0].message.contains(word), "{}", probed.problems[0].message);
        }
        assert_eq!(kinds(&probe("a.png", b"", false)), [Kind::Empty]);
    }

    #[test]
    fn a_phone_picture_named_jpg_is_unsupported_not_damaged() {
        let probed = probe("IMG_1.jpg", &hazard("photo.heic"), false);
        assert_eq!(kinds(&probed), [Kind::Unsupported]);
        assert_eq!(probed.problems[0].message, "holds HEIC, though named .jpg; this format is not read");
        assert!(probed.problems[0].hint.is_some());
    }

    #[test]
    fn content_decides_and_the_extension_is_compared_without_case() {
        let bytes = hazard("png_named.jpg");
        let probed = probe("a.JPG", &bytes, false);
        assert_eq!(probed.probe.unwrap().format, Format::Png);
        assert_eq!(kinds(&probed), [Kind::WrongExtension]);
        assert_eq!(kinds(&probe("a.PNG", &bytes, false)), []);
        assert_eq!(kinds(&probe("bare", &bytes, false)), []);
    }

    #[test]
    fn too_many_pixels_are_told_by_the_header_and_the_size_is_kept() {
        let probed = probe("bomb.png", &hazard("bomb_25000.png"), true);
        assert_eq!(kinds(&probed), [Kind::TooLarge]);
        assert_eq!(probed.probe.unwrap().size, Size::new(25000, 25000));
    }

    #[test]
    fn picture_data_that_contradicts_its_header_shows_only_in_a_deep_scan() {
        // The frame header says twice the rows that the scan holds; the end marker is there.
        let mut bytes = hazard("gray.jpg");
        let frame = bytes.windows(2).position(|pair| pair == [0xff, 0xc0]).unwrap();
        bytes[frame + 6] *= 2;
        assert_eq!(kinds(&probe("a.jpg", &bytes, false)), []);
        assert_eq!(kinds(&probe("a.jpg", &bytes, true)), [Kind::Damaged]);
    }

    #[test]
    fn what_was_found_out_survives_json() {
        for name in ["orient6.jpg", "icc_swapped.png", "anim.webp", "truncated.png", "photo.avif"] {
            let probed = probe(name, &hazard(name), false);
            let json = serde_json::to_string(&probed).unwrap();
            assert_eq!(serde_json::from_str::<Probed>(&json).unwrap(), probed, "{name}");
        }
    }
}
