//! From a posterior to the writers: what each entry stores of it, and which entries go into a file together.

use super::Bake;
use super::attempt::{Encoded, Failure};
use super::tally::{Made, Outcome};
use super::work::{EntryId, Work};
use super::write::{Finished, MadeEntry, needs_encoder};
use crate::containers::Array;
use crate::plan::PlannedEntry;
use crate::problem::{Kind, Problem};
use crate::recipe::{EntryKind, Posterior, Ran};
use crate::trainers::WantedEntry;
use crate::units::Size;
use crate::vae::space;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Takes results from any thread, in any order, and hands finished artefacts on.
pub(super) struct Delivery<'a> {
    bake: &'a Bake<'a>,
    works: &'a [Work],
    outcome: &'a Outcome,
    send: &'a (dyn Fn(Finished) + Sync),
    /// For each artefact and bucket the entries still to come, and those that are there. One bucket's entries are
    /// written together; the next one's may come hours later.
    pending: Mutex<HashMap<(usize, Size), (usize, Finished)>>,
}

impl<'a> Delivery<'a> {
    pub(super) fn new(
        bake: &'a Bake<'a>,
        works: &'a [Work],
        outcome: &'a Outcome,
        send: &'a (dyn Fn(Finished) + Sync),
    ) -> Self {
        let mut pending: HashMap<(usize, Size), (usize, Finished)> = HashMap::new();
        for work in works {
            for (id, _) in &work.outputs {
                let key = (id.artefact, work.pixels.crop.size);
                pending.entry(key).or_insert_with(|| (0, Finished::new(id.artefact))).0 += 1;
            }
        }
        Self { bake, works, outcome, send, pending: Mutex::new(pending) }
    }

    /// The bucket of a work.
    pub(super) fn size_of(&self, work: usize) -> Size {
        self.works[work].pixels.crop.size
    }

    /// Stores a loss mask, (H, W) in [0, 1].
    pub(super) fn mask(&self, work: usize, mask: &[f32]) {
        self.deliver(work, EntryKind::AlphaMask, None, |_| Ok(mask.to_vec()));
    }

    /// Stores what `device` made of a picture.
    pub(super) fn posterior(&self, work: usize, kind: EntryKind, encoded: &Encoded, device: &str) {
        let ran = Ran {
            precision: encoded.precision,
            tiled: encoded.tile.is_some(),
            tile: encoded.tile,
            f32_retry: encoded.f32_retry,
            device: device.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let path = self.path_of(work);
        self.outcome.with(|tally| {
            tally.tiled.extend(ran.tiled.then(|| path.clone()));
            tally.retried_f32.extend(ran.f32_retry.then_some(path));
        });
        let posterior = &encoded.posterior;
        let norm = self.bake.engines.iter().find_map(|engine| engine.batch_norm());
        let values = |entry: &PlannedEntry| {
            let inputs = &entry.wanted.inputs;
            let latent = match inputs.encode.as_ref().map(|encode| encode.posterior) {
                Some(Posterior::Sample { .. }) => {
                    let key = entry.key.expect("an entry without a key is never made: bake asks for weights first");
                    posterior.sample(&key.0)
                }
                _ => posterior.mean.clone(),
            };
            space::put(inputs.stored.space, latent, posterior.shape, norm)
        };
        self.deliver(work, kind, Some(&ran), values);
    }

    /// Records why the encoder gave nothing for a picture.
    pub(super) fn unencodable(&self, work: usize, kind: EntryKind, failure: Failure) {
        let (path, size) = (self.path_of(work), self.size_of(work));
        let problem = match failure {
            Failure::NotFinite => {
                let message = "the encoder gives NaN or infinity for it, in f32 too; nothing is cached for it";
                let hint = "check the VAE file; for SDXL there is a VAE fixed for half precision";
                Problem::error(path, Kind::Nan, message).with_hint(hint)
            }
            Failure::Memory { why, hint } => {
                let message = format!("does not fit in memory at {size}: {why}");
                Problem::error(path, Kind::TooLarge, message).with_hint(hint)
            }
            Failure::Encoder(why) => {
                Problem::error(path, Kind::Damaged, format!("could not be encoded at {size}: {why}"))
            }
        };
        self.fail(work, Some(kind), &problem);
    }

    /// Records a problem of a work's entries, of one kind or all.
    pub(super) fn fail(&self, work: usize, kind: Option<EntryKind>, problem: &Problem) {
        for &(id, of_kind) in &self.works[work].outputs {
            if kind.is_none_or(|kind| kind == of_kind) {
                self.outcome.fail(id, problem.clone());
                self.arrive(work, id, None);
            }
        }
    }

    /// Stores the values of one kind in every entry of the work that wants it.
    fn deliver(
        &self,
        work: usize,
        kind: EntryKind,
        ran: Option<&Ran>,
        values: impl Fn(&PlannedEntry) -> Result<Vec<f32>, String>,
    ) {
        let mut how = if needs_encoder(kind) { Made::Encoded } else { Made::Computed };
        for &(id, _) in self.works[work].outputs.iter().filter(|(_, k)| *k == kind) {
            let entry = &self.bake.plan.artefacts[id.artefact].entries[id.entry];
            match self.array(work, entry, values(entry)) {
                Ok(array) => {
                    self.arrive(work, id, Some(MadeEntry { entry: id.entry, array, ran: ran.cloned(), how }));
                    // The others take what was made for the first.
                    how = if how == Made::Encoded { Made::Relinked } else { how };
                }
                Err(problem) => {
                    self.outcome.fail(id, problem);
                    self.arrive(work, id, None);
                }
            }
        }
    }

    fn array(&self, work: usize, entry: &PlannedEntry, values: Result<Vec<f32>, String>) -> Result<Array, Problem> {
        let wrong = |why| Problem::error(self.path_of(work), Kind::Damaged, format!("cannot be stored: {why}"));
        let array = stored_array(&entry.wanted, values.map_err(wrong)?);
        if array.has_non_finite() {
            let message = format!("its latents do not fit into {}", array.dtype.name());
            return Err(Problem::error(self.path_of(work), Kind::Nan, message).with_hint("--store-dtype f32"));
        }
        Ok(array)
    }

    fn path_of(&self, work: usize) -> String {
        self.bake.collected.images[self.works[work].image].path.clone()
    }

    /// Counts an entry of an artefact; the last one of its bucket sends what is there to the writers. That is done
    /// when all failed, too: what the file holds of them is outdated, and a trainer would use it.
    fn arrive(&self, work: usize, id: EntryId, made: Option<MadeEntry>) {
        if let Some(mut finished) = self.count(work, id, made) {
            // Devices finish in any order; the writers need not know.
            finished.made.sort_by_key(|made| made.entry);
            (self.send)(finished);
        }
    }

    /// The artefact's new entries of this bucket, if this was the last of them.
    fn count(&self, work: usize, id: EntryId, made: Option<MadeEntry>) -> Option<Finished> {
        let key = (id.artefact, self.size_of(work));
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        let (left, finished) = pending.get_mut(&key)?;
        finished.made.extend(made);
        *left -= 1;
        if *left > 0 {
            return None;
        }
        pending.remove(&key).map(|(_, finished)| finished)
    }
}

/// The tensor as it is stored: `values`, in their space, shifted and scaled in f32, then rounded to its dtype.
pub(super) fn stored_array(wanted: &WantedEntry, mut values: Vec<f32>) -> Array {
    let stored = wanted.inputs.stored;
    if (stored.shift, stored.scale) != (0.0, 1.0) {
        let (shift, scale) = (stored.shift as f32, stored.scale as f32);
        values.iter_mut().for_each(|value| *value = scale * (*value - shift));
    }
    Array::from_f32(stored.dtype, wanted.shape.clone(), &values)
}
