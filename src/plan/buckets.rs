//! Buckets as the trainer will see them: images, repeats, batches, and who sits in an under-filled one.

use super::place::Conventions;
use super::{Collected, PlannedSample};
use crate::problem::{Kind, Problem};
use crate::recipe::Target;
use crate::units::Size;
use serde::Serialize;
use std::collections::BTreeMap;

/// One bucket of one target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BucketRow {
    /// Whose bucket.
    #[serde(rename = "for")]
    pub target: Target,
    /// Width and height in pixels.
    pub reso: Size,
    /// Images in it.
    pub images: usize,
    /// Images times their repeats.
    pub repeats: u64,
    /// Batches an epoch has from it, a short last one included.
    pub batches: u64,
    /// Repeats that a trainer which drops short batches never sees.
    pub lost: u64,
    /// True when it holds fewer than one full step of batch × accumulation × GPUs.
    pub underfilled: bool,
    /// The images of an under-filled bucket.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
}

/// The training step that buckets are measured against.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) grad_accum: u32,
    pub(super) gpus: u32,
}

/// The bucket table, by target and size, and a warning for each image in an under-filled bucket.
///
/// Subsets of one description may differ in their training batch; each batch size has rows of its own.
pub(super) fn table(
    samples: &[PlannedSample],
    collected: &Collected,
    conventions: &Conventions,
    step: Step,
) -> (Vec<BucketRow>, Vec<Problem>) {
    let mut groups: BTreeMap<(Target, Size, u32), Vec<&PlannedSample>> = BTreeMap::new();
    for sample in samples {
        let batch = conventions.get(sample.convention).batch();
        let key = (sample.target, sample.placement.assignment.bucket, batch);
        groups.entry(key).or_default().push(sample);
    }
    let mut problems = Vec::new();
    let mut rows = Vec::new();
    for ((target, reso, batch), members) in groups {
        let repeats: u64 = members.iter().map(|m| u64::from(collected.samples[m.sample].repeats)).sum();
        let batch = u64::from(batch.max(1));
        let full = batch * u64::from(step.grad_accum.max(1)) * u64::from(step.gpus.max(1));
        let underfilled = repeats < full;
        let paths: Vec<String> =
            if underfilled { members.iter().map(|m| m.path.clone()).collect() } else { Vec::new() };
        let message = format!("its bucket {reso} holds {repeats} of the {full} that one step takes");
        problems.extend(paths.iter().map(|path| Problem::warning(path.clone(), Kind::Underfilled, message.clone())));
        let (images, batches, lost) = (members.len(), repeats.div_ceil(batch), repeats % full);
        rows.push(BucketRow { target, reso, images, repeats, batches, lost, underfilled, paths });
    }
    (rows, problems)
}
