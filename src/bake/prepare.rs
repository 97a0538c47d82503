//! A decode worker's job: the file's bytes, held against their hash, to the encoder's input.

use super::Bake;
use super::work::Work;
use crate::dataset::Image;
use crate::hash::ContentHash;
use crate::pipeline::Cost;
use crate::pixels::{self, Prepared, Refusal};
use crate::problem::{Kind, Problem};
use crate::recipe::EntryKind;
use crate::store::read_regular;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What one work gives: f32 planes, each present if an output needs it.
pub(super) struct Planes {
    /// (3, H, W) in [-1, 1].
    pub(super) plain: Option<Vec<f32>>,
    /// The same, mirrored left to right.
    pub(super) mirrored: Option<Vec<f32>>,
    /// (H, W) in [0, 1].
    pub(super) mask: Option<Vec<f32>>,
}

/// Bytes a work holds: the file's pixels in RGBA beside a resized copy, and the planes, which alone are left of it.
pub(super) fn cost(bake: &Bake<'_>, work: &Work) -> Cost {
    let source = bake.collected.images[work.image].probe.as_ref().map_or(0, |probe| probe.size.area());
    let planes = work.outputs.len() as u64 * 12 * work.pixels.crop.size.area();
    Cost { working: 2 * 4 * source + 4 * work.pixels.resized.area() + planes, waiting: planes }
}

/// Reads, checks and prepares one picture. A decoder that panics costs this sample, not the run.
pub(super) fn prepare(bake: &Bake<'_>, work: &Work) -> Result<Planes, Problem> {
    let image = &bake.collected.images[work.image];
    catch_unwind(AssertUnwindSafe(|| planes(bake, image, work))).unwrap_or_else(|_| {
        let message = "its decoder broke down; nothing is cached for it";
        Err(Problem::error(image.path.clone(), Kind::Damaged, message))
    })
}

fn planes(bake: &Bake<'_>, image: &Image, work: &Work) -> Result<Planes, Problem> {
    let damaged = |message: String| Problem::error(image.path.clone(), Kind::Damaged, message);
    let file = bake.collected.file(image);
    let bytes = read_regular(&file).map_err(|error| damaged(format!("cannot be read: {error}")))?;
    if image.content != Some(ContentHash::of(&bytes)) {
        let message = "changed while prebake was running; nothing is cached for it".to_owned();
        return Err(damaged(message).with_hint("run again"));
    }
    let refused = |refusal: Refusal| Problem::error(image.path.clone(), refusal.kind, refusal.message);
    let prepared = pixels::prepare(&bytes, &work.pixels).map_err(refused)?;
    drop(bytes);
    let wants = |kind: EntryKind| work.outputs.iter().any(|(_, k)| *k == kind);
    let mask = wants(EntryKind::AlphaMask).then(|| mask_plane(&prepared));
    let plain = wants(EntryKind::Latents).then(|| prepared.to_chw());
    let mirrored = wants(EntryKind::LatentsFlipped).then(|| prepared.into_mirrored().to_chw());
    Ok(Planes { plain, mirrored, mask })
}

/// Alpha / 255 in f32; ones where the picture has none (`train_util.py:3024`).
fn mask_plane(prepared: &Prepared) -> Vec<f32> {
    match &prepared.mask {
        Some(mask) => mask.iter().map(|&alpha| f32::from(alpha) / 255.0).collect(),
        None => vec![1.0; prepared.size.area() as usize],
    }
}
