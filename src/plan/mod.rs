//! The plan: every sample, the artefacts it should have, what lies in the cache, and what has to be done about it.
//!
//! `plan`, `status` and `bake` share it; nothing is encoded that it does not list. Reading the cache is the only I/O.

mod buckets;
mod collect;
mod decide;
mod divergence;
mod drafts;
mod judge;
mod mistakes;
mod place;
mod regularization;
mod shelf;
mod summary;

pub use buckets::BucketRow;
pub use collect::{CollectOptions, Collected, Sample, collect};
pub use decide::{Request, build};
pub use divergence::Divergence;

use crate::containers::Container;
use crate::hash::Key;
use crate::problem::Problem;
use crate::recipe::staleness::Reason;
use crate::recipe::{EntryKind, Target};
use crate::trainers::{Placement, WantedEntry};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

/// What is to be done for a dataset under a recipe.
#[derive(Debug, Default)]
pub struct Plan {
    /// One for each sample and target, in the dataset's order; those with an error are left out.
    pub samples: Vec<PlannedSample>,
    /// One for each file of the cache that is wanted, in the order of the samples.
    pub artefacts: Vec<PlannedArtefact>,
    /// Artefacts of ours that nothing wants, by path.
    pub orphans: Vec<PathBuf>,
    /// Files whose name the trainer would take for the cache of a sample here, though they give it another size or were
    /// made for who knows which model; `bake` removes those of ours and moves others to the quarantine.
    pub superseded: BTreeSet<PathBuf>,
    /// Problems of samples and files.
    pub problems: Vec<Problem>,
    /// Images, repeats and batches by bucket.
    pub buckets: Vec<BucketRow>,
    /// The resolved settings of each target's first subset, by long flag names.
    pub settings: BTreeMap<Target, BTreeMap<String, String>>,
    /// Where two targets want different pixels of the same images.
    pub divergences: Vec<Divergence>,
    /// What the user must set in each trainer so that it takes these caches.
    pub setup: BTreeMap<Target, Vec<String>>,
    /// False where no weights were given: keys are unknown, and everything but the weights was compared.
    pub weights_known: bool,
    /// The largest nominal area asked for, in pixels.
    pub nominal_area: u64,
}

/// One sample under one target.
#[derive(Debug)]
pub struct PlannedSample {
    /// Index into [`Collected::samples`].
    pub sample: usize,
    /// The image's path as reports show it.
    pub path: String,
    /// Whose conventions.
    pub target: Target,
    /// Bucket, crop and pixel recipe.
    pub placement: Placement,
    /// Key of the latents; none without weights.
    pub key: Option<Key>,
    /// The artefact of the latents, as reports show it; none for the store while keys are unknown.
    pub artefact: Option<String>,
    /// The worst status of its entries.
    pub status: Status,
    /// Why it is stale or damaged.
    pub reasons: Vec<Reason>,
    /// Index of its convention, for the planner.
    convention: usize,
    /// Its entries: index into [`Plan::artefacts`], index into their entries.
    pub entries: Vec<(usize, usize)>,
}

/// The state of an entry, an artefact or a sample in the cache, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Matches its key.
    Fresh,
    /// Made by another tool: cannot be verified.
    Foreign,
    /// Should exist.
    Missing,
    /// Does not match, with reasons.
    Stale,
    /// Cannot be read, or fails its checksum.
    Damaged,
}

impl Status {
    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
            Self::Foreign => "foreign",
            Self::Missing => "missing",
            Self::Stale => "stale",
            Self::Damaged => "damaged",
        }
    }
}

/// One file of the cache that is wanted.
#[derive(Debug)]
pub struct PlannedArtefact {
    /// Whose layout it belongs to.
    pub target: Target,
    /// Index of its convention, for the planner.
    convention: usize,
    /// Where it lies; none for the store while keys are unknown.
    pub path: Option<PathBuf>,
    /// Its file format.
    pub container: Container,
    /// Texts that the trainer writes into its metadata.
    pub metadata: BTreeMap<String, String>,
    /// The wanted entries.
    pub entries: Vec<PlannedEntry>,
    /// Tensors in the file that must go: switched off, made from other inputs, or left behind by another tool.
    pub drops: Vec<String>,
}

impl PlannedArtefact {
    /// True when the file has to be written.
    pub fn needs_writing(&self) -> bool {
        !self.drops.is_empty() || self.entries.iter().any(PlannedEntry::is_to_be_made)
    }
}

/// One wanted entry and what is to be done for it.
#[derive(Debug)]
pub struct PlannedEntry {
    /// What is wanted.
    pub wanted: WantedEntry,
    /// Its key; none without weights.
    pub key: Option<Key>,
    /// Index among the dataset's images.
    pub image: usize,
    /// What lies there.
    pub status: Status,
    /// Why it is stale or damaged.
    pub reasons: Vec<Reason>,
    /// What `bake` does.
    pub action: Action,
    /// For the receipt: path and settings at this time.
    pub context: Arc<BTreeMap<String, String>>,
}

impl PlannedEntry {
    /// True when this run has to put it into its artefact.
    pub fn is_to_be_made(&self) -> bool {
        self.action != Action::Keep
    }
}

/// What `bake` does for an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing.
    Keep,
    /// Takes the payload of an entry with the same key from another artefact, or follows from the raw mean there.
    Relink {
        /// The artefact that holds it.
        from: PathBuf,
        /// Its file format.
        container: Container,
        /// The tensor there.
        tensor: String,
        /// Its key: the entry's own, or that of the raw mean ([`KeyInputs::raw`](crate::recipe::KeyInputs::raw)).
        key: Key,
    },
    /// Takes the payload that this run builds for an entry with the same key.
    Follow {
        /// Index into [`Plan::artefacts`].
        artefact: usize,
        /// Index into its entries.
        entry: usize,
    },
    /// Computes it.
    Build,
}

/// How many samples are in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[allow(missing_docs)]
pub struct Totals {
    pub fresh: usize,
    pub stale: usize,
    pub missing: usize,
    pub damaged: usize,
    pub foreign: usize,
    pub orphans: usize,
    /// Bytes of the wanted tensors, headers and receipts not counted.
    pub latent_bytes: u64,
}

impl Plan {
    /// Counts samples by status, and the bytes that all wanted tensors take.
    pub fn totals(&self) -> Totals {
        let mut totals = Totals { orphans: self.orphans.len(), ..Totals::default() };
        for sample in &self.samples {
            match sample.status {
                Status::Fresh => totals.fresh += 1,
                Status::Stale => totals.stale += 1,
                Status::Missing => totals.missing += 1,
                Status::Damaged => totals.damaged += 1,
                Status::Foreign => totals.foreign += 1,
            }
        }
        let tensors = self.artefacts.iter().flat_map(|artefact| &artefact.entries);
        totals.latent_bytes = tensors.map(|entry| entry.wanted.bytes()).sum();
        totals
    }

    /// True when a latent has to be computed, or may have to be: a relink whose source is gone is encoded.
    pub fn needs_encoder(&self) -> bool {
        let entries = self.artefacts.iter().flat_map(|artefact| &artefact.entries);
        entries.into_iter().any(|entry| entry.is_to_be_made() && entry.wanted.kind != EntryKind::AlphaMask)
    }

    /// True when every sample is fresh (another tool's caches are not known to be), nothing has to be moved away, and no
    /// sample has an error.
    pub fn is_fresh(&self) -> bool {
        let fresh = self.samples.iter().all(|sample| sample.status == Status::Fresh);
        fresh && self.superseded.is_empty() && !self.problems.iter().any(Problem::is_error)
    }
}
