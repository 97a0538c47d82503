//! Names, shapes and scaling of SimpleTuner's latent caches: one bare tensor a `.pt` (`vae:678-703`, `vae:1290-1390`).

use super::SimpleTuner;
use crate::containers::Container;
use crate::containers::torch::TENSOR;
use crate::dataset::Image;
use crate::hash::{ContentHash, EncoderId};
use crate::problem::{Kind, Problem};
use crate::recipe::{EntryKind, Family, KeyInputs};
use crate::trainers::{Place, Placement, WantedArtefact, WantedEntry};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::Path;

/// Hexadecimal digits of a name.
const DIGITS: usize = 64;

/// The one artefact of an image; none for a name that has no UTF-8, which [`ensure_named`] has refused.
pub(super) fn artefact(
    settings: &SimpleTuner,
    image: &Image,
    content: ContentHash,
    placement: &Placement,
    encoder: Option<EncoderId>,
) -> Option<WantedArtefact> {
    let stored = settings.family.scaled(settings.dtype);
    let [channels, h, w] = settings.family.latent_shape(stored, placement.assignment.bucket);
    // Wan's latents keep their one frame (`vae:1054-1090`).
    let shape = if settings.family == Family::Wan21 { vec![channels, 1, h, w] } else { vec![channels, h, w] };
    let inside = settings.inside(image);
    let name = file_name(inside)?;
    let path = settings.options.cache.join(inside.parent().unwrap_or(Path::new(""))).join(name);
    let entry = WantedEntry {
        kind: EntryKind::Latents,
        tensor: TENSOR.to_owned(),
        shape,
        inputs: KeyInputs::latent(content, placement.pixels.clone(), encoder, settings.posterior, stored),
        companions: BTreeMap::new(),
    };
    let place = Place::Beside { path, older: None };
    Some(WantedArtefact { place, container: Container::Torch(settings.gzip()), entries: vec![entry] })
}

/// The SHA-256 of the stem in UTF-8 (`vae:691`; names are hashed whatever the description says, `df:634`).
fn file_name(image: &Path) -> Option<String> {
    let stem = image.file_stem()?.to_str()?;
    let digest = Sha256::digest(stem.as_bytes());
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    Some(format!("{hex}.pt"))
}

/// Python cannot encode other names, and the trainer ends there.
pub(super) fn ensure_named(image: &Image) -> Result<(), Problem> {
    if file_name(&image.relative).is_some() {
        return Ok(());
    }
    let message = "has a name that is not UTF-8, for which SimpleTuner finds no cache name";
    Err(Problem::error(image.path.clone(), Kind::Unsupported, message).with_hint("rename it"))
}

/// True for the names that [`artefact`] gives.
pub(super) fn is_name(file_name: &str) -> bool {
    let digits = file_name.strip_suffix(".pt").unwrap_or("");
    digits.len() == DIGITS && digits.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_the_hash_of_the_stem_alone() {
        let a = "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb.pt";
        for path in ["a.png", "sub/a.jpg"] {
            assert_eq!(file_name(Path::new(path)).as_deref(), Some(a));
        }
        let dotted = file_name(Path::new("a.b.png")).unwrap();
        assert_eq!(dotted, file_name(Path::new("a.b")).map(|_| file_name(Path::new("a.b.webp")).unwrap()).unwrap());
        assert!(is_name(a) && is_name(&dotted) && dotted != a);
        assert!(!is_name("a.pt") && !is_name(&a.to_uppercase()) && !is_name(&a[..64]));
    }
}
