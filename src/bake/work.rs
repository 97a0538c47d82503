//! The works of a run: one for each distinct picture to prepare, ordered so that one bucket's pictures come together.

use crate::plan::{Action, Plan};
use crate::recipe::{EntryKind, PixelRecipe};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::collections::HashMap;

/// An entry of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct EntryId {
    /// Index into the plan's artefacts.
    pub(super) artefact: usize,
    /// Index into its entries.
    pub(super) entry: usize,
}

/// One picture to prepare and what is made from it.
#[derive(Clone, Debug)]
pub(super) struct Work {
    /// Index among the images.
    pub(super) image: usize,
    /// The unmirrored pixel recipe.
    pub(super) pixels: PixelRecipe,
    /// Entries to make from it.
    pub(super) outputs: Vec<(EntryId, EntryKind)>,
}

/// Works of all entries that have to be built, `fallen` (relinks that failed) included; the largest bucket area first
/// (what does not fit in memory fails early), then bucket by bucket, then in the plan's order.
pub(super) fn works(plan: &Plan, fallen: &BTreeSet<EntryId>) -> Vec<Work> {
    let mut works: Vec<Work> = Vec::new();
    let mut by_picture: HashMap<(usize, PixelRecipe), usize> = HashMap::new();
    for (a, artefact) in plan.artefacts.iter().enumerate() {
        for (e, entry) in artefact.entries.iter().enumerate() {
            let id = EntryId { artefact: a, entry: e };
            if entry.action != Action::Build && !fallen.contains(&id) {
                continue;
            }
            let pixels = PixelRecipe { mirrored: false, ..entry.wanted.inputs.pixels.clone() };
            let index = *by_picture.entry((entry.image, pixels.clone())).or_insert_with(|| {
                works.push(Work { image: entry.image, pixels, outputs: Vec::new() });
                works.len() - 1
            });
            works[index].outputs.push((id, entry.wanted.kind));
        }
    }
    works.sort_by_key(|work| {
        let bucket = work.pixels.crop.size;
        (Reverse(bucket.area()), bucket)
    });
    works
}
