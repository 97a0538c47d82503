//! Why an entry is stale, in words: the difference of two sets of key inputs, field by field.
//!
//! Key equality alone decides freshness; this module only explains. It refuses to guess: fields that follow from
//! another difference (the resized size from the resolution) are left out, and two keys that differ without a field
//! that differs are reported as just that.

use crate::recipe::key::{EncodeRecipe, KeyInputs, Space, Stored};
use crate::recipe::pixels::{Alpha, Colour, Decoder, PixelRecipe, Resample};
use crate::recipe::receipt::{EntryReceipt, Precision, Ran};
use crate::recipe::tile::Tile;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The context's name of the nominal resolution.
pub const RESOLUTION: &str = "resolution";

/// One difference, for people and for scripts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// The setting that differs: a flag's long name where there is one.
    pub field: String,
    /// Its value when the entry was made.
    pub was: String,
    /// Its value now.
    pub now: String,
    /// One line for people: `resolution 512 → 768`.
    pub text: String,
}

impl Reason {
    fn new(field: &str, was: impl Into<String>, now: impl Into<String>, text: impl Into<String>) -> Self {
        Self { field: field.into(), was: was.into(), now: now.into(), text: text.into() }
    }

    /// A difference told as `words was → now`.
    fn change(field: &str, words: &str, was: impl Into<String>, now: impl Into<String>) -> Self {
        let (was, now) = (was.into(), now.into());
        let text = format!("{words} {was} → {now}");
        Self::new(field, was, now, text)
    }

    /// A difference of values that mean nothing to people, hashes and the like.
    fn changed(field: &str, words: &str, was: impl ToString, now: impl ToString) -> Self {
        Self::new(field, was.to_string(), now.to_string(), format!("{words} changed"))
    }
}

/// The differences between what an entry was made from and what is wanted now; empty when there are none.
///
/// The weights are left out of it while `now` does not know them.
pub fn explain(
    was: &KeyInputs,
    was_context: &BTreeMap<String, String>,
    now: &KeyInputs,
    now_context: &BTreeMap<String, String>,
) -> Vec<Reason> {
    let mut reasons = Vec::new();
    if was.content != now.content {
        reasons.push(Reason::changed("content", "image content", was.content, now.content));
    }
    geometry(&mut reasons, &was.pixels, &now.pixels, was_context.get(RESOLUTION).zip(now_context.get(RESOLUTION)));
    colours(&mut reasons, &was.pixels, &now.pixels);
    if let (Some(was), Some(now)) = (&was.encode, &now.encode) {
        encode(&mut reasons, was, now);
    }
    stored(&mut reasons, was.stored, now.stored);
    revision(&mut reasons, "pixels-rev", "prebake's pixel code changed (pixels rev", was.pixels_rev, now.pixels_rev);
    revision(&mut reasons, "key-version", "prebake's key changed (key version", was.key_version, now.key_version);
    reasons
}

/// Like [`explain`] for an entry with a receipt, with one reason more: a key that does not follow from its inputs.
///
/// Empty when the keys are equal, and when nothing but unknown weights could differ.
pub fn explain_entry(was: &EntryReceipt, now: &KeyInputs, now_context: &BTreeMap<String, String>) -> Vec<Reason> {
    let key = now.key();
    if key == Some(was.key) {
        return Vec::new();
    }
    let mut reasons = explain(&was.inputs, &was.context, now, now_context);
    if let (Some(key), true) = (key, reasons.is_empty()) {
        let text = "the receipt does not match its key";
        reasons.push(Reason::new("key", was.key.to_hex(), key.to_hex(), text));
    }
    reasons
}

/// Why an entry ran less exactly than is wanted now; empty when it satisfies the request.
///
/// `precision` is the least that is accepted, `None` accepts any; f32 satisfies bf16. `tile` likewise: an untiled entry
/// satisfies every request, and how much memory there is today makes nothing stale.
pub fn explain_ran(ran: &Ran, precision: Option<Precision>, tile: Tile) -> Vec<Reason> {
    let mut reasons = Vec::new();
    let effective = if ran.f32_retry { Precision::F32 } else { ran.precision };
    if let Some(wanted) = precision.filter(|&wanted| effective < wanted) {
        reasons.push(Reason::change("dtype", "encoder precision", effective.name(), wanted.name()));
    }
    if ran.tiled && !tile.accepts(ran.tile) {
        let was = ran.tile.map_or("in tiles".to_owned(), |side| format!("in tiles of {side}"));
        let now = match tile {
            Tile::Side(side) => format!("in tiles of {side} or larger"),
            Tile::Auto | Tile::Off => "in one piece".to_owned(),
        };
        reasons.push(Reason::change("tile", "encoded", was, now));
    }
    reasons
}

/// The differences between two pixel recipes, for a picture that two targets prepare.
pub fn explain_pixels(one: &PixelRecipe, other: &PixelRecipe) -> Vec<Reason> {
    let mut reasons = Vec::new();
    geometry(&mut reasons, one, other, None);
    colours(&mut reasons, one, other);
    reasons
}

/// Orientation, sizes, crop and filter; `resolutions` are the nominal ones then and now.
fn geometry(reasons: &mut Vec<Reason>, was: &PixelRecipe, now: &PixelRecipe, resolutions: Option<(&String, &String)>) {
    if was.orientation != now.orientation {
        let (was, now) = (orientation(was.orientation), orientation(now.orientation));
        reasons.push(Reason::change("orientation", "orientation", was, now));
    }
    let sizes_differ = was.resized != now.resized || was.crop != now.crop;
    if let Some((was, now)) = resolutions.filter(|(was, now)| sizes_differ && was != now) {
        reasons.push(Reason::change("resolution", "resolution", was, now));
    }
    if was.crop.size != now.crop.size {
        reasons.push(Reason::change("bucket", "bucket", was.crop.size.to_string(), now.crop.size.to_string()));
    }
    // The size before the crop and the crop follow from what is above; alone they are news.
    if reasons.is_empty() && was.resized != now.resized {
        reasons.push(Reason::change("resized", "resized to", was.resized.to_string(), now.resized.to_string()));
    }
    if reasons.is_empty() && was.crop != now.crop {
        let edges = |pixels: &PixelRecipe| format!("{:?}", <[u32; 4]>::from(pixels.crop));
        reasons.push(Reason::change("crop", "crop", edges(was), edges(now)));
    }
    if was.mirrored != now.mirrored {
        let name = |mirrored| if mirrored { "mirrored" } else { "as seen" };
        reasons.push(Reason::change("mirrored", "picture", name(was.mirrored), name(now.mirrored)));
    }
    filter(reasons, was.resample, now.resample);
}

/// A filter that began or ceased to run is a consequence of the sizes, and said only where no size differs.
fn filter(reasons: &mut Vec<Reason>, was: Option<Resample>, now: Option<Resample>) {
    let both_ran = was.is_some() && now.is_some();
    if was != now && (both_ran || reasons.is_empty()) {
        reasons.push(Reason::change("resize", "resize filter", filter_name(was), filter_name(now)));
    }
}

fn colours(reasons: &mut Vec<Reason>, was: &PixelRecipe, now: &PixelRecipe) {
    if was.decoder != now.decoder {
        reasons.push(Reason::change("decoder", "decoded as by", decoder(was.decoder), decoder(now.decoder)));
    }
    if was.colour != now.colour {
        reasons.push(Reason::change("icc", "colour profile", colour(was.colour), colour(now.colour)));
    }
    if was.clip_gray16 != now.clip_gray16 {
        let name = |clips| if clips { "clipped at 255" } else { "high byte" };
        reasons.push(Reason::change("gray16", "16-bit gray", name(was.clip_gray16), name(now.clip_gray16)));
    }
    if let (Alpha::Composite(was), Alpha::Composite(now)) = (was.alpha, now.alpha) {
        if was != now {
            reasons.push(Reason::change("background", "background", hex(was), hex(now)));
        }
    } else if was.alpha != now.alpha {
        reasons.push(Reason::change("alpha", "alpha", alpha(was.alpha), alpha(now.alpha)));
    }
}

fn encode(reasons: &mut Vec<Reason>, was: &EncodeRecipe, now: &EncodeRecipe) {
    if now.encoder.is_some() && was.encoder != now.encoder {
        let id = |encode: &EncodeRecipe| encode.encoder.map_or("unknown".to_owned(), |id| id.to_string());
        reasons.push(Reason::changed("vae", "VAE weights", id(was), id(now)));
    }
    if was.posterior != now.posterior {
        reasons.push(Reason::change("posterior", "posterior", was.posterior.to_string(), now.posterior.to_string()));
    }
    revision(reasons, "encoder-rev", "prebake's encoder changed (encoder rev", was.encoder_rev, now.encoder_rev);
}

fn stored(reasons: &mut Vec<Reason>, was: Stored, now: Stored) {
    if was.dtype != now.dtype {
        reasons.push(Reason::change("store-dtype", "stored dtype", was.dtype.name(), now.dtype.name()));
    }
    if (was.shift, was.scale, was.space) != (now.shift, now.scale, now.space) {
        let formula = |stored: Stored| match stored.space {
            Space::Affine => format!("(z - {}) * {}", stored.shift, stored.scale),
            Space::BatchNormed => "patches through the VAE's batch norm".to_owned(),
            Space::Wan => "(z - mean) / deviation by channel".to_owned(),
        };
        reasons.push(Reason::change("scaling", "stored scaling", formula(was), formula(now)));
    }
}

/// `words` ends inside a bracket that is closed here.
fn revision(reasons: &mut Vec<Reason>, field: &str, words: &str, was: u32, now: u32) {
    if was != now {
        reasons.push(Reason::new(field, was.to_string(), now.to_string(), format!("{words} {was} → {now})")));
    }
}

fn decoder(decoder: Decoder) -> &'static str {
    match decoder {
        Decoder::Pillow => "Pillow",
        Decoder::ImageCrate => "the image crate",
    }
}

fn orientation(value: u8) -> String {
    match value {
        1 => "as stored".into(),
        other => format!("EXIF {other} applied"),
    }
}

fn colour(colour: Colour) -> &'static str {
    match colour {
        Colour::AsStored => "as stored",
        Colour::IccToSrgb => "sRGB",
    }
}

fn alpha(alpha: Alpha) -> String {
    match alpha {
        Alpha::Opaque => "opaque".into(),
        Alpha::Drop => "dropped".into(),
        Alpha::Composite(rgb) => format!("over {}", hex(rgb)),
        Alpha::Keep => "kept as mask".into(),
    }
}

fn hex([r, g, b]: [u8; 3]) -> String {
    format!("{r:02X}{g:02X}{b:02X}")
}

fn filter_name(filter: Option<Resample>) -> &'static str {
    match filter {
        None => "none",
        Some(Resample::Cv2Area) => "cv2-area",
        Some(Resample::Cv2Linear) => "cv2-linear",
        Some(Resample::Cv2Cubic) => "cv2-cubic",
        Some(Resample::Cv2NearestExact) => "cv2-nearest-exact",
        Some(Resample::PillowLanczos) => "pillow-lanczos",
        Some(Resample::PillowBicubic) => "pillow-bicubic",
        Some(Resample::PillowBilinear) => "pillow-bilinear",
        Some(Resample::PillowBox) => "pillow-box",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::containers::Dtype;
    use crate::hash::{ContentHash, EncoderId, Key};
    use crate::recipe::key::Posterior;
    use crate::units::{Rect, Size};

    fn inputs() -> KeyInputs {
        let pixels = PixelRecipe {
            decoder: Decoder::Pillow,
            orientation: 1,
            colour: Colour::AsStored,
            clip_gray16: false,
            alpha: Alpha::Composite([255; 3]),
            resample: Some(Resample::Cv2Area),
            resized: Size::new(768, 512),
            crop: Rect::new(128, 0, Size::new(512, 512)),
            mirrored: false,
        };
        let encoder = Some(EncoderId([7; 32]));
        KeyInputs::latent(ContentHash::of(b"a"), pixels, encoder, Posterior::Mean, Stored::raw(Dtype::F32))
    }

    fn context(resolution: &str) -> BTreeMap<String, String> {
        BTreeMap::from([(RESOLUTION.to_owned(), resolution.to_owned()), ("path".to_owned(), "a.png".to_owned())])
    }

    fn texts(reasons: &[Reason]) -> Vec<&str> {
        reasons.iter().map(|reason| reason.text.as_str()).collect()
    }

    #[test]
    fn each_input_that_changes_the_key_is_told_in_words() {
        type Change = (&'static str, fn(&mut KeyInputs));
        let changes: &[Change] = &[
            ("image content changed", |i| i.content = ContentHash::of(b"b")),
            ("orientation as stored → EXIF 6 applied", |i| i.pixels.orientation = 6),
            ("colour profile as stored → sRGB", |i| i.pixels.colour = Colour::IccToSrgb),
            ("16-bit gray high byte → clipped at 255", |i| i.pixels.clip_gray16 = true),
            ("background FFFFFF → 000000", |i| i.pixels.alpha = Alpha::Composite([0; 3])),
            ("alpha over FFFFFF → kept as mask", |i| i.pixels.alpha = Alpha::Keep),
            ("alpha over FFFFFF → dropped", |i| i.pixels.alpha = Alpha::Drop),
            ("resize filter cv2-area → pillow-lanczos", |i| i.pixels.resample = Some(Resample::PillowLanczos)),
            ("resize filter cv2-area → none", |i| i.pixels.resample = None),
            ("bucket 512x512 → 640x448", |i| i.pixels.crop.size = Size::new(640, 448)),
            ("resized to 768x512 → 769x512", |i| i.pixels.resized.width = 769),
            ("crop [128, 0, 640, 512] → [0, 0, 512, 512]", |i| i.pixels.crop.left = 0),
            ("picture as seen → mirrored", |i| i.pixels.mirrored = true),
            ("VAE weights changed", |i| i.encode.as_mut().unwrap().encoder = Some(EncoderId([8; 32]))),
            ("posterior mean → sample (seed 1)", |i| {
                i.encode.as_mut().unwrap().posterior = Posterior::Sample { seed: 1 }
            }),
            ("prebake's encoder changed (encoder rev 1 → 2)", |i| i.encode.as_mut().unwrap().encoder_rev = 2),
            ("stored dtype f32 → bf16", |i| i.stored.dtype = Dtype::Bf16),
            ("stored scaling (z - 0) * 1 → (z - 0.1159) * 0.3611", |i| {
                i.stored = Stored { dtype: Dtype::F32, shift: 0.1159, scale: 0.3611, space: Space::Affine }
            }),
            ("prebake's pixel code changed (pixels rev 1 → 2)", |i| i.pixels_rev = 2),
            ("prebake's key changed (key version 1 → 2)", |i| i.key_version = 2),
        ];
        for (text, change) in changes {
            let mut now = inputs();
            (now.pixels_rev, now.key_version) = (1, 1);
            now.encode.as_mut().unwrap().encoder_rev = 1;
            let was = now.clone();
            change(&mut now);
            assert_eq!(texts(&explain(&was, &context("512"), &now, &context("512"))), [*text]);
        }
    }

    #[test]
    fn another_resolution_is_named_with_the_bucket_and_without_what_follows_from_it() {
        let mut now = inputs();
        now.pixels.resized = Size::new(1152, 768);
        now.pixels.crop = Rect::new(192, 0, Size::new(768, 768));
        now.pixels.resample = None;
        let reasons = explain(&inputs(), &context("512"), &now, &context("768"));
        assert_eq!(texts(&reasons), ["resolution 512 → 768", "bucket 512x512 → 768x768"]);
        assert_eq!(
            (reasons[0].field.as_str(), reasons[0].was.as_str(), reasons[0].now.as_str()),
            ("resolution", "512", "768")
        );
    }

    #[test]
    fn a_resolution_that_moves_nothing_is_no_reason() {
        assert_eq!(explain(&inputs(), &context("512"), &inputs(), &context("512x512")), []);
    }

    #[test]
    fn without_weights_everything_but_the_weights_is_compared() {
        let mut now = inputs();
        now.encode.as_mut().unwrap().encoder = None;
        assert_eq!(explain_entry(&receipt(&inputs()), &now, &context("512")), []);
        now.stored.dtype = Dtype::F16;
        assert_eq!(texts(&explain_entry(&receipt(&inputs()), &now, &context("512"))), ["stored dtype f32 → f16"]);
    }

    #[test]
    fn a_key_that_does_not_follow_from_its_inputs_is_said_to_be_so() {
        let mut was = receipt(&inputs());
        assert_eq!(explain_entry(&was, &inputs(), &context("512")), []);
        was.key = Key([9; 32]);
        let reasons = explain_entry(&was, &inputs(), &context("512"));
        assert_eq!(texts(&reasons), ["the receipt does not match its key"]);
    }

    fn receipt(inputs: &KeyInputs) -> EntryReceipt {
        EntryReceipt {
            key: inputs.key().unwrap(),
            inputs: inputs.clone(),
            ran: None,
            arrays: BTreeMap::new(),
            dtype: Dtype::F32,
            shape: vec![4, 64, 64],
            context: context("512"),
        }
    }

    #[test]
    fn an_entry_satisfies_a_request_for_less_and_never_for_more() {
        let ran = |precision, tiled: bool, f32_retry| Ran {
            precision,
            tiled,
            tile: tiled.then_some(512),
            f32_retry,
            device: "cpu".into(),
            version: "0.1.0".into(),
        };
        let exact = ran(Precision::F32, false, false);
        for wanted in [None, Some(Precision::Bf16), Some(Precision::F16), Some(Precision::F32)] {
            assert_eq!(explain_ran(&exact, wanted, Tile::Off), []);
        }
        let coarse = ran(Precision::Bf16, true, false);
        assert_eq!(explain_ran(&coarse, None, Tile::Auto), []);
        assert_eq!(explain_ran(&coarse, None, Tile::Side(512)), []);
        assert_eq!(explain_ran(&exact, None, Tile::Side(256)), [], "an untiled latent is better than any tiled one");
        assert_eq!(
            texts(&explain_ran(&coarse, None, Tile::Side(768))),
            ["encoded in tiles of 512 → in tiles of 768 or larger"]
        );
        assert_eq!(
            texts(&explain_ran(&coarse, Some(Precision::F32), Tile::Off)),
            ["encoder precision bf16 → f32", "encoded in tiles of 512 → in one piece"]
        );
        assert_eq!(explain_ran(&ran(Precision::Bf16, false, true), Some(Precision::F32), Tile::Off), []);
    }

    #[test]
    fn a_reason_serialises_as_the_command_line_promises() {
        let reason = Reason::change("resolution", "resolution", "512", "768");
        let json = r#"{"field":"resolution","was":"512","now":"768","text":"resolution 512 → 768"}"#;
        assert_eq!(serde_json::to_string(&reason).unwrap(), json);
    }
}
