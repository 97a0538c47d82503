//! Places every sample under every target's convention, and names what the placement does to it.

use super::Collected;
use crate::bucket::simpletuner::AspectTable;
use crate::dataset::Image;
use crate::error::Result;
use crate::problem::{Kind, Problem};
use crate::recipe::{Recipe, Target};
use crate::trainers::{Convention, Placement, Subset, convention};
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::PathBuf;

/// Share of the resized picture above which a crop is named: beyond what stepping to a bucket costs by itself.
const CROP_LOSS_NAMED: f64 = 0.2;

/// A sample that has a bucket.
pub(super) struct Placed {
    pub(super) sample: usize,
    pub(super) convention: usize,
    pub(super) placement: Placement,
}

/// One convention for each target and subset.
pub(super) struct Conventions {
    all: Vec<Box<dyn Convention>>,
    targets: Vec<Target>,
    subsets: usize,
}

impl Conventions {
    /// Resolves the settings of every target and subset; a usage error where flags contradict a trainer.
    pub(super) fn resolve(collected: &Collected, recipe: &Recipe) -> Result<Self> {
        let subsets = &collected.description.subsets;
        let mut all = Vec::new();
        for &target in &recipe.targets {
            let mut table = AspectTable::default();
            for (index, subset) in subsets.iter().enumerate() {
                let mut convention = convention(target, subset, recipe)?;
                convention.learn(&images_of(collected, index), &mut table);
                all.push(convention);
            }
        }
        Ok(Self { all, targets: recipe.targets.clone(), subsets: subsets.len() })
    }

    pub(super) fn get(&self, index: usize) -> &dyn Convention {
        self.all[index].as_ref()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &dyn Convention> {
        self.all.iter().map(AsRef::as_ref)
    }

    /// Folders in which a target's artefacts lie, with a flag for all visible sub-folders.
    pub(super) fn cache_folders(&self, target: Target, subsets: &[Subset]) -> BTreeSet<(PathBuf, bool)> {
        let all = self.all.iter().zip(subsets.iter().cycle()).filter(|(convention, _)| convention.target() == target);
        all.flat_map(|(convention, subset)| convention.cache_folders(subset)).collect()
    }

    fn index(&self, target: usize, subset: usize) -> usize {
        target * self.subsets + subset
    }
}

/// Usable images of a subset, in the dataset's order.
fn images_of(collected: &Collected, subset: usize) -> Vec<&Image> {
    let own = collected.samples.iter().filter(|sample| sample.subset == subset);
    own.map(|sample| &collected.images[sample.image]).filter(|image| image.usable).collect()
}

/// Places all samples, target by target in the dataset's order.
pub(super) fn place_all(collected: &Collected, conventions: &Conventions) -> (Vec<Placed>, Vec<Problem>) {
    let mut placed = Vec::new();
    let mut problems = Vec::new();
    for target in 0..conventions.targets.len() {
        let collisions = collisions(collected, conventions, target);
        let results: Vec<_> = collected
            .samples
            .par_iter()
            .enumerate()
            .filter(|(_, sample)| collected.images[sample.image].usable)
            .map(|(index, sample)| {
                let image = &collected.images[sample.image];
                let convention = conventions.index(target, sample.subset);
                if let Some(problem) = collisions.get(&sample.image) {
                    return Err(problem.clone());
                }
                let placement = conventions.get(convention).place(image)?;
                Ok((Placed { sample: index, convention, placement }, image))
            })
            .collect();
        problems.extend(overlooked(collected, conventions, target));
        for result in results {
            match result {
                Err(problem) => problems.push(problem),
                Ok((one, image)) => {
                    problems.extend(conventions.get(one.convention).harms(image));
                    problems.extend(consequences(
                        image,
                        &one.placement,
                        conventions.get(one.convention).against_enlarging(),
                    ));
                    placed.push(one);
                }
            }
        }
    }
    (placed, problems)
}

/// What the target passes over in each subset.
fn overlooked(collected: &Collected, conventions: &Conventions, target: usize) -> Vec<Problem> {
    let mut images: Vec<Vec<&Image>> = vec![Vec::new(); conventions.subsets];
    for sample in &collected.samples {
        images[sample.subset].push(&collected.images[sample.image]);
    }
    let of_subset = |(index, images): (usize, &Vec<&Image>)| {
        let convention = conventions.get(conventions.index(target, index));
        convention.overlooks(&collected.description.subsets[index], images)
    };
    images.iter().enumerate().flat_map(of_subset).collect()
}

/// Images with caches in one folder whose names differ only by extension or folder, where the target's artefacts are
/// named by the stem.
fn collisions(collected: &Collected, conventions: &Conventions, target: usize) -> BTreeMap<usize, Problem> {
    let mut stems: BTreeMap<(PathBuf, OsString), BTreeSet<usize>> = BTreeMap::new();
    for sample in &collected.samples {
        let convention = conventions.get(conventions.index(target, sample.subset));
        let image = &collected.images[sample.image];
        let relative = &image.relative;
        let seen = image.usable && convention.names_by_stem() && convention.place(image).is_ok();
        if let (true, Some(stem)) = (seen, relative.file_stem()) {
            stems.entry((convention.folder(image), stem.to_owned())).or_default().insert(sample.image);
        }
    }
    let distinct =
        |images: &BTreeSet<usize>| images.iter().map(|&i| &collected.images[i].relative).collect::<BTreeSet<_>>();
    let mut problems = BTreeMap::new();
    for images in stems.into_values().filter(|images| distinct(images).len() > 1) {
        let names: Vec<_> = images.iter().map(|&i| collected.images[i].path.as_str()).collect();
        for &image in &images {
            let others: Vec<_> = names.iter().filter(|name| **name != collected.images[image].path).copied().collect();
            let message = format!(
                "shares its cache file with `{}`: {} names caches by the stem",
                others.join("`, `"),
                conventions.targets[target].name()
            );
            let problem = Problem::error(collected.images[image].path.clone(), Kind::StemCollision, message);
            problems.insert(image, problem.with_hint("rename one of them"));
        }
    }
    problems
}

/// What the placement does to the picture; `against_enlarging` is the hint where it is enlarged.
fn consequences(image: &Image, placement: &Placement, against_enlarging: &str) -> Vec<Problem> {
    let assignment = &placement.assignment;
    let mut problems = Vec::new();
    let factor = assignment.upscale(placement.source);
    if factor > 1.0 {
        let by =
            if factor < 1.1 { format!("by {:.1} %", (factor - 1.0) * 100.0) } else { format!("{factor:.2} times") };
        let message = format!("is enlarged {by} to fill its bucket {}", assignment.bucket);
        problems.push(Problem::warning(image.path.clone(), Kind::Enlarged, message).with_hint(against_enlarging));
    }
    let loss = assignment.crop_loss();
    if loss > CROP_LOSS_NAMED {
        let message = format!("loses {:.0} % of the picture to the crop into {}", loss * 100.0, assignment.bucket);
        problems.push(Problem::warning(image.path.clone(), Kind::CropLoss, message));
    }
    problems
}
