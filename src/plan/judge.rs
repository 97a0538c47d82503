//! Holds what is wanted in one file against what lies there.

use super::{PlannedArtefact, Status};
use crate::containers::Dtype;
use crate::dataset::Image;
use crate::hash::Key;
use crate::recipe::staleness::{self, Reason};
use crate::recipe::{EntryKind, EntryReceipt, KeyInputs, Recipe};
use crate::store::lookup::Found;
use crate::trainers::{Convention, WantedEntry};
use std::collections::BTreeMap;

/// Gives every entry of the artefact its status and reasons, and the artefact its drops.
pub(super) fn judge(
    artefact: &mut PlannedArtefact,
    found: &Found,
    recipe: &Recipe,
    convention: &dyn Convention,
    images: &[Image],
) {
    for entry in &mut artefact.entries {
        (entry.status, entry.reasons) = status_of(&entry.wanted, entry.key, found, recipe, convention, &entry.context);
    }
    artefact.drops = drops(artefact, found, convention, images);
}

fn status_of(
    wanted: &WantedEntry,
    key: Option<Key>,
    found: &Found,
    recipe: &Recipe,
    convention: &dyn Convention,
    context: &BTreeMap<String, String>,
) -> (Status, Vec<Reason>) {
    match found {
        Found::Missing => (Status::Missing, Vec::new()),
        Found::Damaged(why) => (Status::Damaged, vec![broken(why)]),
        Found::Foreign(arrays) => foreign(wanted, lying(wanted, arrays, convention), recipe),
        Found::Ours { receipt, damaged, foreign: others } => {
            if let Some((_, why)) = damaged.iter().find(|(tensor, _)| *tensor == wanted.tensor) {
                return (Status::Damaged, vec![broken(why)]);
            }
            match lying(wanted, &receipt.entries, convention) {
                Some(entry) => ours(wanted, key, entry, recipe, context),
                None => foreign(wanted, lying(wanted, others, convention), recipe),
            }
        }
    }
}

/// What lies in a file for a wish: under its name, else under one that the trainer takes for the same.
fn lying<'a, T>(wanted: &WantedEntry, all: &'a BTreeMap<String, T>, convention: &dyn Convention) -> Option<&'a T> {
    let named = || all.iter().find(|(name, _)| convention.clashes(&wanted.tensor, name)).map(|(_, other)| other);
    all.get(&wanted.tensor).or_else(named)
}

fn broken(why: &str) -> Reason {
    Reason { field: "artefact".into(), was: "damaged".into(), now: "rebuilt".into(), text: why.to_owned() }
}

/// Another tool's array can be held against its shape alone.
fn foreign(wanted: &WantedEntry, array: Option<&(Dtype, Vec<usize>)>, recipe: &Recipe) -> (Status, Vec<Reason>) {
    let Some((dtype, shape)) = array else { return (Status::Missing, Vec::new()) };
    if *shape != wanted.shape || !matches!(dtype, Dtype::F32 | Dtype::F16 | Dtype::Bf16) {
        let (was, now) = (format!("{} {shape:?}", dtype.name()), format!("{:?}", wanted.shape));
        let text = format!("another tool's {} is {was}, the bucket needs {now}", wanted.tensor);
        return (Status::Stale, vec![Reason { field: "shape".into(), was, now, text }]);
    }
    if recipe.rebuild_foreign {
        let text = "made by another tool, to be rebuilt".to_owned();
        let reason = Reason { field: "foreign".into(), was: "keep".into(), now: "rebuild".into(), text };
        return (Status::Stale, vec![reason]);
    }
    (Status::Foreign, Vec::new())
}

fn ours(
    wanted: &WantedEntry,
    key: Option<Key>,
    entry: &EntryReceipt,
    recipe: &Recipe,
    context: &BTreeMap<String, String>,
) -> (Status, Vec<Reason>) {
    let same = match key {
        Some(key) => key == entry.key,
        None => wanted.inputs.key_without_weights() == entry.inputs.key_without_weights(),
    };
    if !same {
        return (Status::Stale, staleness::explain_entry(entry, &wanted.inputs, context));
    }
    let coarse =
        entry.ran.as_ref().map(|ran| staleness::explain_ran(ran, recipe.precision, recipe.tile)).unwrap_or_default();
    if !coarse.is_empty() {
        return (Status::Stale, coarse);
    }
    for (name, array) in &wanted.companions {
        if entry.arrays.get(name) != Some(&array.checksum()) {
            let text = format!("{name} differs");
            return (Status::Stale, vec![Reason { field: name.clone(), was: String::new(), now: String::new(), text }]);
        }
    }
    (Status::Fresh, Vec::new())
}

/// Tensors in the file that nobody wants and that must not stay: a trainer would use them in silence.
///
/// Ours go when they are switched off or outdated; an entry of another resolution stays where the trainer keeps
/// several in one file and today's settings would make it again. Another tool's mirrored latents and masks go where
/// they lie beside latents of ours: they belong to latents that are no longer there. So does what the trainer would take
/// for a part of ours.
fn drops(artefact: &PlannedArtefact, found: &Found, convention: &dyn Convention, images: &[Image]) -> Vec<String> {
    let (Some(first), Found::Ours { .. } | Found::Foreign(_)) = (artefact.entries.first(), found) else {
        return Vec::new();
    };
    let wanted = |tensor: &str| artefact.entries.iter().any(|entry| entry.wanted.tensor == tensor);
    let mut drops = Vec::new();
    if let Found::Ours { receipt, damaged, .. } = found {
        let image = &images[first.image];
        let stays = |tensor: &String, entry: &EntryReceipt| {
            !damaged.iter().any(|(name, _)| name == tensor)
                && is_of_another_size(tensor, artefact)
                && would_be_made_again(&first.wanted.inputs, &entry.inputs, convention, image)
        };
        let outdated = receipt.entries.iter().filter(|(tensor, entry)| !wanted(tensor) && !stays(tensor, entry));
        drops.extend(outdated.map(|(tensor, _)| tensor.clone()));
    }
    let others = match found {
        Found::Ours { foreign, .. } | Found::Foreign(foreign) => foreign,
        _ => return drops,
    };
    if let Found::Ours { receipt, .. } = found
        && receipt.entries.values().any(|entry| entry.inputs.content != first.wanted.inputs.content)
    {
        // The file holds latents of an earlier picture; what a trainer added beside them is of that picture, too.
        let of_picture = |name: &&String| name.starts_with("latents") || name.starts_with("alpha_mask");
        drops.extend(others.keys().filter(of_picture).filter(|name| !wanted(name)).cloned());
    }
    let latents =
        artefact.entries.iter().filter(|e| e.wanted.kind == EntryKind::Latents && e.status != Status::Foreign);
    for entry in latents.clone() {
        let clashing = others.keys().filter(|name| convention.clashes(&entry.wanted.tensor, name) && !wanted(name));
        drops.extend(clashing.filter(|name| !drops.contains(name)).cloned().collect::<Vec<_>>());
    }
    for suffix in latents.map(|entry| entry.wanted.sized_suffix()) {
        for kind in [EntryKind::LatentsFlipped, EntryKind::AlphaMask] {
            let tensor = format!("{}{suffix}", kind.name());
            if others.contains_key(&tensor) && !wanted(&tensor) && !drops.contains(&tensor) {
                drops.push(tensor);
            }
        }
    }
    drops
}

/// True when the tensor's name carries a latent size (`_16x24`) that no wanted tensor has.
fn is_of_another_size(tensor: &str, artefact: &PlannedArtefact) -> bool {
    let size = tensor.rsplit_once('_').map(|(_, size)| size).filter(|size| size.contains('x'));
    size.is_some_and(|size| {
        let suffix = format!("_{size}");
        artefact.entries.iter().all(|entry| entry.wanted.sized_suffix() != suffix)
    })
}

/// True when `was` differs from `now` in nothing but geometry, and today's settings give its pixels at that geometry.
fn would_be_made_again(now: &KeyInputs, was: &KeyInputs, convention: &dyn Convention, image: &Image) -> bool {
    let same_encode = match (&now.encode, &was.encode) {
        (Some(now), Some(was)) => {
            let blind = now.encoder.is_none();
            now.posterior == was.posterior
                && now.encoder_rev == was.encoder_rev
                && (blind || now.encoder == was.encoder)
        }
        // A mask has no encoder; its picture has to be the same.
        _ => was.encode.is_none(),
    };
    same_encode
        && (was.encode.is_none() || now.stored == was.stored)
        && (now.key_version, now.pixels_rev, now.content) == (was.key_version, was.pixels_rev, was.content)
        && convention.would_make(image, &was.pixels, was.encode.is_none())
}
