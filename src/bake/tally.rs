//! What happened in a run, entry by entry, and its summary by sample.

use super::Bake;
use super::backoff::Lowered;
use super::work::EntryId;
use crate::plan::PlannedSample;
use crate::problem::{Kind, Problem};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

/// What a run did.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Summary {
    /// Samples for which the encoder ran; one that several trainers want alike counts once.
    pub encoded: usize,
    /// Their paths, sorted.
    pub encoded_paths: Vec<String>,
    /// Samples whose latents were right already, or were made for another sample with the same content.
    pub reused: usize,
    /// Samples whose latents were taken from another artefact with the same key, or from what was made for another trainer.
    pub relinked: usize,
    /// Samples without an artefact now, with the reason.
    pub failed: Vec<Problem>,
    /// Pictures cached from a repetition in f32, after NaN or infinity.
    pub retried_f32: usize,
    /// Their paths, sorted.
    pub retried_f32_paths: Vec<String>,
    /// Times a batch was halved, or cut into tiles, because the encoder failed on it.
    pub batch_backoffs: usize,
    /// Buckets for which memory ran out, and what fitted then.
    pub backoffs: Vec<Lowered>,
    /// Pictures encoded in tiles.
    pub tiled: usize,
    /// Their paths, sorted.
    pub tiled_paths: Vec<String>,
    /// Wall time of the whole run, in seconds.
    pub seconds: f64,
    /// Time inside the encoder, in seconds, of all devices together.
    pub encode_seconds: f64,
    /// Encoded samples a second of wall time.
    pub images_per_second: f64,
    /// Artefacts that were written.
    pub written: usize,
    /// True when the run was asked to stop before its end.
    #[serde(skip)]
    pub interrupted: bool,
}

/// How an entry came into its artefact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Made {
    /// The encoder made it.
    Encoded,
    /// It was taken from another artefact, or from what was made for another one.
    Relinked,
    /// It needs no encoder: a mask.
    Computed,
}

/// What happened so far; written from the encoder's and the writers' threads.
#[derive(Default)]
pub(super) struct Outcome(Mutex<Tally>);

#[derive(Default)]
pub(super) struct Tally {
    /// Paths of pictures that were repeated in f32.
    pub(super) retried_f32: BTreeSet<String>,
    /// Paths of pictures that were encoded in tiles.
    pub(super) tiled: BTreeSet<String>,
    pub(super) batch_backoffs: usize,
    pub(super) lowered: Vec<Lowered>,
    pub(super) encode_seconds: f64,
    /// Entries that lie in their artefact now.
    pub(super) written: BTreeMap<EntryId, Made>,
    pub(super) written_artefacts: BTreeSet<usize>,
    failed: BTreeMap<EntryId, Problem>,
}

impl Outcome {
    pub(super) fn with<T>(&self, change: impl FnOnce(&mut Tally) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Marks an entry as failed; its first problem stays.
    pub(super) fn fail(&self, id: EntryId, problem: Problem) {
        self.with(|tally| {
            tally.failed.entry(id).or_insert(problem);
        });
    }

    /// The run as samples see it.
    pub(super) fn summarise(self, bake: &Bake<'_>, seconds: f64) -> Summary {
        let tally = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut summary = Summary {
            retried_f32: tally.retried_f32.len(),
            retried_f32_paths: tally.retried_f32.iter().cloned().collect(),
            batch_backoffs: tally.batch_backoffs,
            backoffs: tally.lowered.clone(),
            tiled: tally.tiled.len(),
            tiled_paths: tally.tiled.iter().cloned().collect(),
            encode_seconds: tally.encode_seconds,
            written: tally.written_artefacts.len(),
            interrupted: bake.cancel.is_cancelled(),
            seconds,
            ..Summary::default()
        };
        let mut encoded_paths = BTreeSet::new();
        for sample in &bake.plan.samples {
            match tally.fate(bake, sample) {
                Fate::Failed(problem) if !summary.failed.contains(&problem) => summary.failed.push(problem),
                Fate::Failed(_) | Fate::Unfinished => {}
                Fate::Encoded => {
                    summary.encoded += 1;
                    encoded_paths.insert(sample.path.clone());
                }
                Fate::Relinked => summary.relinked += 1,
                Fate::Reused => summary.reused += 1,
            }
        }
        summary.encoded_paths = encoded_paths.into_iter().collect();
        summary.images_per_second = if seconds > 0.0 { summary.encoded as f64 / seconds } else { 0.0 };
        summary
    }
}

enum Fate {
    Encoded,
    Relinked,
    Reused,
    Failed(Problem),
    /// Not reached before an interrupt.
    Unfinished,
}

impl Tally {
    fn fate(&self, bake: &Bake<'_>, sample: &PlannedSample) -> Fate {
        let image = bake.collected.samples[sample.sample].image;
        let own = || sample.entries.iter().map(|&(artefact, entry)| EntryId { artefact, entry });
        let planned = |id: EntryId| &bake.plan.artefacts[id.artefact].entries[id.entry];
        if let Some((id, problem)) = own().find_map(|id| Some((id, self.failed.get(&id)?))) {
            if planned(id).image == image || problem.path == sample.path {
                return Fate::Failed(problem.clone());
            }
            let message = format!("has the same content as `{}`, for which nothing could be cached", problem.path);
            return Fate::Failed(Problem::error(sample.path.clone(), problem.kind, message));
        }
        let is_there = |id: EntryId| !planned(id).is_to_be_made() || self.written.contains_key(&id);
        if !own().all(is_there) {
            if bake.cancel.is_cancelled() {
                return Fate::Unfinished;
            }
            return Fate::Failed(
                Problem::error(sample.path.clone(), Kind::Damaged, "was not written").with_hint("run again"),
            );
        }
        let made = |how: Made| own().any(|id| self.written.get(&id) == Some(&how) && planned(id).image == image);
        match () {
            () if made(Made::Encoded) => Fate::Encoded,
            () if made(Made::Relinked) => Fate::Relinked,
            () => Fate::Reused,
        }
    }
}
