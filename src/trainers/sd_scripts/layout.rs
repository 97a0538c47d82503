//! File and array names, shapes and scaling of sd-scripts' latent caches (`strategy_*.py`, `sb:598-637`).

use super::SdScripts;
use crate::bucket::sd_scripts::crop_ltrb;
use crate::containers::{Array, Container, Dtype};
use crate::dataset::{Image, Probe};
use crate::hash::{ContentHash, EncoderId};
use crate::recipe::{EntryKind, Family, KeyInputs, PixelRecipe, Stored};
use crate::trainers::{Place, Placement, WantedArtefact, WantedEntry};
use crate::units::Size;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The end of a family's cache file names (`strategy_sd.py:100`, `strategy_flux.py:190` …).
fn suffix(family: Family) -> &'static str {
    match family {
        Family::Sd15 => "_sd.npz",
        Family::Sdxl => "_sdxl.npz",
        Family::Sd3 => "_sd3.npz",
        Family::Flux | Family::Chroma => "_flux.npz",
        Family::Lumina2 => "_lumina.npz",
        Family::HunyuanImage => "_hi.npz",
        Family::Anima => "_anima.npz",
        other => unreachable!("{} is refused when the settings are resolved", other.name()),
    }
}

/// True where array names carry the latent's size, so that one file holds several.
pub(super) fn is_multi_resolution(family: Family) -> bool {
    !matches!(family, Family::Sd15 | Family::Sdxl)
}

/// How latents are stored: raw, but for those that the trainer scales inside its encoder (`flux_models.py:348,406`, which
/// Lumina 2 and Chroma share; `qwen_image_autoencoder_kl.py:1215`).
fn stored(family: Family, dtype: Dtype) -> Stored {
    match family {
        Family::Flux | Family::Chroma | Family::Lumina2 | Family::Anima => family.scaled(dtype),
        _ => Stored::raw(dtype),
    }
}

/// The one artefact of an image.
pub(super) fn artefact(
    settings: &SdScripts,
    image: &Image,
    probe: &Probe,
    content: ContentHash,
    placement: &Placement,
    encoder: Option<EncoderId>,
) -> WantedArtefact {
    let bucket = placement.assignment.bucket;
    let stored = stored(settings.family, settings.dtype);
    let [channels, h, w] = settings.family.latent_shape(stored, bucket);
    let sized = if is_multi_resolution(settings.family) { format!("_{h}x{w}") } else { String::new() };
    let latent = |kind: EntryKind| {
        let pixels = PixelRecipe { mirrored: kind == EntryKind::LatentsFlipped, ..placement.pixels.clone() };
        WantedEntry {
            kind,
            tensor: format!("{}{sized}", kind.name()),
            shape: vec![channels, h, w],
            inputs: KeyInputs::latent(content, pixels, encoder, settings.posterior, stored),
            companions: BTreeMap::new(),
        }
    };
    let mut plain = latent(EntryKind::Latents);
    plain.companions = companions(&sized, bucket, probe.size);
    let mut entries = vec![plain];
    if settings.flip {
        entries.push(latent(EntryKind::LatentsFlipped));
    }
    if settings.alpha_mask {
        entries.push(mask(&sized, content, probe, placement));
    }
    let stem = image.relative.with_extension("");
    let older = (!is_multi_resolution(settings.family)).then(|| append(&stem, ".npz"));
    let size = placement.source;
    let name = format!("_{:04}x{:04}{}", size.width, size.height, suffix(settings.family));
    WantedArtefact { place: Place::Beside { path: append(&stem, &name), older }, container: Container::Npz, entries }
}

/// `original_size` is the decoded picture's (`tu:2968`), `crop_ltrb` the fitted picture's place in the bucket (`tu:348`).
fn companions(sized: &str, bucket: Size, decoded: Size) -> BTreeMap<String, Array> {
    let original = Array::from_i64(&[i64::from(decoded.width), i64::from(decoded.height)]);
    let crop = Array::from_f64(&crop_ltrb(bucket, decoded));
    BTreeMap::from([(format!("original_size{sized}"), original), (format!("crop_ltrb{sized}"), crop)])
}

/// The loss mask: alpha / 255 in f32, (H, W) of the bucket in pixels; ones without alpha (`tu:3024`).
fn mask(sized: &str, content: ContentHash, probe: &Probe, placement: &Placement) -> WantedEntry {
    let bucket = placement.assignment.bucket;
    let pixels = PixelRecipe { alpha: super::mask_alpha(probe), ..placement.pixels.clone() };
    WantedEntry {
        kind: EntryKind::AlphaMask,
        tensor: format!("{}{sized}", EntryKind::AlphaMask.name()),
        shape: vec![bucket.height as usize, bucket.width as usize],
        inputs: KeyInputs::mask(content, pixels, Stored::raw(Dtype::F32)),
        companions: BTreeMap::new(),
    }
}

fn append(stem: &Path, tail: &str) -> PathBuf {
    let mut name = stem.as_os_str().to_owned();
    name.push(tail);
    PathBuf::from(name)
}

/// True for the file names of this family's caches, the older `STEM.npz` of SD and SDXL left out.
pub(super) fn names(family: Family, file_name: &str) -> bool {
    file_name.ends_with(suffix(family))
}

/// The size in `STEM_<digits>x<digits><suffix>`: the trainer takes an image's size from such a name (`tu:2002`).
pub(super) fn claimed_size(family: Family, stem: &str, file_name: &str) -> Option<Size> {
    let size = file_name.strip_prefix(stem)?.strip_suffix(suffix(family))?;
    let (width, height) = size.strip_prefix('_')?.split_once('x')?;
    let side = |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten();
    Some(Size::new(side(width)?, side(height)?))
}

/// True when the trainer takes `file_name` for the cache of `stem` though it is another image's: it goes by the beginning
/// of the name (`tu:2002-2034`), so `photo_1` finds `photo_1024x0768_sdxl.npz`. A file of a longer stem does no harm: names
/// are sorted without their sizes, so the image's own comes first. A file of this very stem without a size ends the run.
pub(super) fn mistakes(family: Family, stem: &str, file_name: &str) -> bool {
    let Some(name) = file_name.strip_suffix(suffix(family)).filter(|name| name.starts_with(stem)) else { return false };
    match name.rsplit_once('_') {
        _ if name == stem => true,
        None => false,
        Some((owner, _)) if owner == stem => claimed_size(family, stem, file_name).is_none(),
        Some((owner, _)) => owner.len() < stem.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_ends_where_anothers_size_begins_is_mistaken() {
        let mistaken = |stem, name| mistakes(Family::Sdxl, stem, name);
        assert!(mistaken("photo_1", "photo_1024x0768_sdxl.npz"));
        assert!(mistaken("img1_0", "img1_0200x0150_sdxl.npz"));
        assert!(!mistaken("img1", "img10_0200x0150_sdxl.npz"));
        assert!(!mistaken("photo", "photo_1024x0768_sdxl.npz"));
        assert!(!mistaken("photo_2", "photo_1024x0768_sdxl.npz"));
        assert!(!mistaken("photo_1", "photo_1_0200x0300_sdxl.npz"));
        assert!(!mistaken("photo_1", "photo_1024x0768_flux.npz"));
        assert!(mistaken("photo", "photo_notes_sdxl.npz"), "no size can be read from it");
        assert!(mistaken("photo", "photo_sdxl.npz"));
    }

    #[test]
    fn each_family_has_the_trainers_file_name_sizes_and_scale() {
        let scaled = |family| stored(family, Dtype::F32) != Stored::raw(Dtype::F32);
        for (family, end, sized, is_scaled) in [
            (Family::Sd15, "_sd.npz", false, false),
            (Family::Sdxl, "_sdxl.npz", false, false),
            (Family::Sd3, "_sd3.npz", true, false),
            (Family::Flux, "_flux.npz", true, true),
            (Family::Chroma, "_flux.npz", true, true),
            (Family::Lumina2, "_lumina.npz", true, true),
            (Family::HunyuanImage, "_hi.npz", true, false),
            (Family::Anima, "_anima.npz", true, true),
        ] {
            assert_eq!((suffix(family), is_multi_resolution(family), scaled(family)), (end, sized, is_scaled));
        }
        let size = Size::new(832, 1216);
        let shape = |family: Family| family.latent_shape(stored(family, Dtype::F32), size);
        assert_eq!(shape(Family::HunyuanImage), [64, 38, 26]);
        assert_eq!(shape(Family::Anima), [16, 152, 104]);
        assert_eq!(shape(Family::Lumina2), [16, 152, 104]);
    }

    #[test]
    fn only_a_name_of_this_very_stem_and_family_claims_an_image() {
        let claimed = |family, name| claimed_size(family, "img1", name);
        assert_eq!(claimed(Family::Sdxl, "img1_0200x0150_sdxl.npz"), Some(Size::new(200, 150)));
        assert_eq!(claimed(Family::Sdxl, "img10_0200x0150_sdxl.npz"), None);
        assert_eq!(claimed(Family::Sdxl, "img1_0200x0150_sd.npz"), None);
        assert_eq!(claimed(Family::Sd15, "img1_x0150_sd.npz"), None);
        assert_eq!(claimed(Family::Sdxl, "img1.npz"), None);
        assert_eq!(claimed(Family::Sdxl, "img1_b_0200x0150_sdxl.npz"), None);
    }
}
