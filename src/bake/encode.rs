//! Batches of one bucket through the encoder, finite or not stored.

use super::Bake;
use super::attempt::{Attempts, Encoded, Failure};
use super::prepare::{self, Planes, prepare};
use super::tally::{Made, Outcome};
use super::work::{EntryId, Work};
use super::write::{Finished, MadeEntry, needs_encoder, with_writers};
use crate::containers::Array;
use crate::error::{Error, Result};
use crate::pipeline::{self, Limits, Permit};
use crate::plan::PlannedEntry;
use crate::problem::{Kind, Problem};
use crate::recipe::{EntryKind, Posterior, Precision, Ran, Stored};
use crate::trainers::WantedEntry;
use crate::units::Size;
use crate::vae::{self, Encoder, Weights};
use candle_core::Device;
use std::collections::HashMap;
use std::sync::OnceLock;
use std::time::Instant;

/// What a run needs of an encoder; the real one is [`Engine`].
pub trait Encode: Sync {
    /// Encodes (3, H, W) pictures of one size in [-1, 1].
    ///
    /// # Errors
    /// Device and memory failures, the latter such that [`Error::is_out_of_memory`] knows them: then less is tried at
    /// once. A picture that overflows gives a posterior that is not finite instead.
    fn encode(&self, pixels: &[&[f32]], size: Size) -> Result<Vec<vae::Posterior>>;

    /// The same in f32, for what overflowed.
    ///
    /// # Errors
    /// As [`Encode::encode`].
    fn encode_f32(&self, pixels: &[f32], size: Size) -> Result<vae::Posterior>;

    /// Arithmetic of [`Encode::encode`].
    fn precision(&self) -> Precision;

    /// `cpu`, `cuda:0` …
    fn device_name(&self) -> &str;
}

/// The VAE encoder on a device, with an f32 twin made when first needed.
pub struct Engine {
    weights: Weights,
    device: Device,
    name: String,
    precision: Precision,
    encoder: Encoder,
    exact: OnceLock<Encoder>,
}

impl Engine {
    /// Loads the encoder's tensors onto `device`.
    ///
    /// # Errors
    /// Weights that cannot be read, a device out of memory.
    pub fn new(weights: Weights, device: Device, name: String, precision: Precision) -> Result<Self> {
        let encoder = Encoder::new(&weights, &device, precision)?;
        Ok(Self { weights, device, name, precision, encoder, exact: OnceLock::new() })
    }
}

impl Encode for Engine {
    fn encode(&self, pixels: &[&[f32]], size: Size) -> Result<Vec<vae::Posterior>> {
        self.encoder.encode(pixels, size)
    }

    fn encode_f32(&self, pixels: &[f32], size: Size) -> Result<vae::Posterior> {
        let exact = match self.exact.get() {
            Some(exact) => exact,
            None => {
                let encoder = Encoder::new(&self.weights, &self.device, Precision::F32)?;
                self.exact.get_or_init(|| encoder)
            }
        };
        let mut posteriors = exact.encode(&[pixels], size)?;
        Ok(posteriors.remove(0))
    }

    fn precision(&self) -> Precision {
        self.precision
    }

    fn device_name(&self) -> &str {
        &self.name
    }
}

/// Runs all works through workers, encoder and writers.
pub(super) fn encode_all(bake: &Bake<'_>, works: &[Work], outcome: &Outcome) -> Result<()> {
    if works.is_empty() {
        return Ok(());
    }
    let latents = works.iter().flat_map(|work| &work.outputs).any(|(_, kind)| needs_encoder(*kind));
    if latents && bake.engine.is_none() {
        return Err(Error::usage("there is something to encode but no VAE", "--vae FILE"));
    }
    bake.progress.stage("bake", Some(works.len() as u64));
    let limits = Limits { threads: bake.options.threads, budget: bake.options.ram };
    with_writers(bake, outcome, |send| {
        let mut stage = Stage::new(bake, works, outcome, send);
        let cost = |work: &Work| prepare::cost(bake, work);
        let work = |work: &Work| prepare(bake, work);
        pipeline::run(works, &limits, bake.cancel, cost, work, |index, result, permit| {
            stage.take(index, result, permit)
        });
        if !bake.cancel.is_cancelled() {
            stage.flush();
        }
        stage.finish();
    })
}

/// One picture waiting for its batch.
struct Waiting {
    work: usize,
    kind: EntryKind,
    pixels: Vec<f32>,
}

/// The encoder's side of the queue: collects a batch of one bucket, encodes it, hands finished artefacts on.
struct Stage<'a> {
    bake: &'a Bake<'a>,
    works: &'a [Work],
    outcome: &'a Outcome,
    send: &'a mut dyn FnMut(Finished),
    size: Size,
    batch: Vec<Waiting>,
    permits: Vec<Permit>,
    /// The encoder; none where masks alone are made.
    attempts: Option<Attempts<'a>>,
    /// For each artefact and bucket the entries still to come, and those that are there. One bucket's entries are
    /// written together; the next one's may come hours later.
    pending: HashMap<(usize, Size), (usize, Finished)>,
}

impl<'a> Stage<'a> {
    fn new(bake: &'a Bake<'a>, works: &'a [Work], outcome: &'a Outcome, send: &'a mut dyn FnMut(Finished)) -> Self {
        let mut pending: HashMap<(usize, Size), (usize, Finished)> = HashMap::new();
        for work in works {
            for (id, _) in &work.outputs {
                let key = (id.artefact, work.pixels.crop.size);
                pending.entry(key).or_insert_with(|| (0, Finished::new(id.artefact))).0 += 1;
            }
        }
        let (size, batch, permits) = (Size::new(0, 0), Vec::new(), Vec::new());
        let attempts = bake.engine.map(|engine| Attempts::new(engine, &bake.options.budget));
        Self { bake, works, outcome, send, size, batch, permits, attempts, pending }
    }

    fn take(&mut self, index: usize, result: Result<Planes, Problem>, permit: Permit) {
        let work = &self.works[index];
        if work.pixels.crop.size != self.size {
            self.flush();
            self.size = work.pixels.crop.size;
        }
        match result {
            Err(problem) => self.fail(index, None, &problem),
            Ok(planes) => {
                if let Some(mask) = &planes.mask {
                    self.deliver(index, EntryKind::AlphaMask, None, |_| mask.clone());
                }
                let waits = [(EntryKind::Latents, planes.plain), (EntryKind::LatentsFlipped, planes.mirrored)];
                let before = self.batch.len();
                for (kind, pixels) in waits {
                    self.batch.extend(pixels.map(|pixels| Waiting { work: index, kind, pixels }));
                }
                if self.batch.len() > before {
                    self.permits.push(permit);
                }
            }
        }
        if self.attempts.as_ref().is_none_or(|attempts| self.batch.len() >= attempts.pictures(self.size)) {
            self.flush();
        }
        self.bake.progress.advance(1);
    }

    /// Encodes what waits, and lets its bytes go.
    fn flush(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        if let Some(attempts) = self.attempts.as_mut().filter(|_| !batch.is_empty()) {
            let start = Instant::now();
            let pixels: Vec<&[f32]> = batch.iter().map(|waiting| waiting.pixels.as_slice()).collect();
            let results = attempts.encode(&pixels, self.size);
            let spent = start.elapsed().as_secs_f64();
            self.outcome.with(|tally| tally.encode_seconds += spent);
            for (waiting, result) in batch.iter().zip(results) {
                match result {
                    Ok(encoded) => self.deliver_posterior(waiting, &encoded),
                    Err(failure) => {
                        let problem = self.problem(waiting, failure);
                        self.fail(waiting.work, Some(waiting.kind), &problem);
                    }
                }
            }
        }
        self.permits.clear();
    }

    /// Tells the outcome what had to be lowered for want of memory.
    fn finish(&self) {
        let Some(attempts) = &self.attempts else { return };
        self.outcome.with(|tally| {
            tally.batch_backoffs += attempts.halvings();
            tally.lowered.extend(attempts.lowered());
        });
    }

    /// The picture's problem, with its file.
    fn problem(&self, waiting: &Waiting, failure: Failure) -> Problem {
        let path = self.path_of(waiting.work);
        match failure {
            Failure::NotFinite => {
                let message = "the encoder gives NaN or infinity for it, in f32 too; nothing is cached for it";
                let hint = "check the VAE file; for SDXL there is a VAE fixed for half precision";
                Problem::error(path, Kind::Nan, message).with_hint(hint)
            }
            Failure::Memory { why, hint } => {
                let message = format!("does not fit in memory at {}: {why}", self.size);
                Problem::error(path, Kind::TooLarge, message).with_hint(hint)
            }
            Failure::Encoder(why) => {
                Problem::error(path, Kind::Damaged, format!("could not be encoded at {}: {why}", self.size))
            }
        }
    }

    fn path_of(&self, work: usize) -> String {
        self.bake.collected.images[self.works[work].image].path.clone()
    }

    fn deliver_posterior(&mut self, waiting: &Waiting, encoded: &Encoded) {
        let posterior = &encoded.posterior;
        let ran = self.ran(encoded);
        let path = self.path_of(waiting.work);
        self.outcome.with(|tally| {
            tally.tiled.extend(ran.tiled.then(|| path.clone()));
            tally.retried_f32.extend(ran.f32_retry.then_some(path));
        });
        let values = |entry: &PlannedEntry| match entry.wanted.inputs.encode.as_ref().map(|encode| encode.posterior) {
            Some(Posterior::Sample { .. }) => {
                let key = entry.key.expect("an entry without a key is never made: bake asks for weights first");
                posterior.sample(&key.0)
            }
            _ => posterior.mean.clone(),
        };
        self.deliver(waiting.work, waiting.kind, Some(&ran), values);
    }

    fn ran(&self, encoded: &Encoded) -> Ran {
        Ran {
            precision: encoded.precision,
            tiled: encoded.tile.is_some(),
            tile: encoded.tile,
            f32_retry: encoded.f32_retry,
            device: self.bake.engine.map(Encode::device_name).unwrap_or_default().to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    /// Stores the values of one kind in every entry of the work that wants it.
    fn deliver(&mut self, work: usize, kind: EntryKind, ran: Option<&Ran>, values: impl Fn(&PlannedEntry) -> Vec<f32>) {
        let how = if needs_encoder(kind) { Made::Encoded } else { Made::Computed };
        for &(id, _) in self.works[work].outputs.iter().filter(|(_, k)| *k == kind) {
            let entry = &self.bake.plan.artefacts[id.artefact].entries[id.entry];
            let array = stored_array(&entry.wanted, values(entry));
            if array.has_non_finite() {
                let message = format!("its latents do not fit into {}", array.dtype.name());
                let problem = Problem::error(self.path_of(work), Kind::Nan, message).with_hint("--store-dtype f32");
                self.outcome.fail(id, problem);
                self.arrive(id, None);
            } else {
                self.arrive(id, Some(MadeEntry { entry: id.entry, array, ran: ran.cloned(), how }));
            }
        }
    }

    fn fail(&mut self, work: usize, kind: Option<EntryKind>, problem: &Problem) {
        for &(id, of_kind) in &self.works[work].outputs {
            if kind.is_none_or(|kind| kind == of_kind) {
                self.outcome.fail(id, problem.clone());
                self.arrive(id, None);
            }
        }
    }

    /// Counts an entry of an artefact; the last one of its bucket sends what is there to the writers. That is done
    /// when all failed, too: what the file holds of them is outdated, and a trainer would use it.
    fn arrive(&mut self, id: EntryId, made: Option<MadeEntry>) {
        let key = (id.artefact, self.size);
        let Some((left, finished)) = self.pending.get_mut(&key) else { return };
        finished.made.extend(made);
        *left -= 1;
        if *left == 0
            && let Some((_, finished)) = self.pending.remove(&key)
        {
            (self.send)(finished);
        }
    }
}

/// The tensor as it is stored: shifted and scaled in f32, then rounded to its dtype.
fn stored_array(wanted: &WantedEntry, mut values: Vec<f32>) -> Array {
    let stored = wanted.inputs.stored;
    if stored != Stored::raw(stored.dtype) {
        let (shift, scale) = (stored.shift as f32, stored.scale as f32);
        values.iter_mut().for_each(|value| *value = scale * (*value - shift));
    }
    Array::from_f32(stored.dtype, wanted.shape.clone(), &values)
}
