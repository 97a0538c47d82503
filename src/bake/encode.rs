//! Batches of one bucket through the encoders, one on each device, finite or not stored.

use super::Bake;
use super::attempt::Attempts;
use super::batch::{Batch, Collector};
use super::deliver::Delivery;
use super::prepare::{self, prepare};
use super::queue::{Queue, Seat};
use super::tally::Outcome;
use super::work::{EntryId, Work};
use super::write::{needs_encoder, with_writers};
use crate::error::{Error, Result};
use crate::pipeline::{self, Limits};
use crate::recipe::{Precision, Space};
use crate::units::Size;
use crate::vae::space::BatchNorm;
use crate::vae::{self, Encoder, Weights};
use candle_core::Device;
use std::sync::{Arc, OnceLock};
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

    /// The batch norm that comes with the encoder; most have none.
    fn batch_norm(&self) -> Option<&BatchNorm> {
        None
    }
}

/// The VAE encoder on a device, with an f32 twin made when first needed.
pub struct Engine {
    weights: Arc<Weights>,
    device: Device,
    name: String,
    precision: Precision,
    encoder: Encoder,
    exact: OnceLock<Encoder>,
    batch_norm: Option<BatchNorm>,
}

impl Engine {
    /// Loads the encoder's tensors onto `device`; the engines of several devices may share the weights.
    ///
    /// # Errors
    /// Weights that cannot be read, a device out of memory.
    pub fn new(weights: impl Into<Arc<Weights>>, device: Device, name: String, precision: Precision) -> Result<Self> {
        let weights = weights.into();
        let encoder = Encoder::new(&weights, &device, precision)?;
        let batch_norm = weights.batch_norm();
        Ok(Self { weights, device, name, precision, encoder, exact: OnceLock::new(), batch_norm })
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

    fn batch_norm(&self) -> Option<&BatchNorm> {
        self.batch_norm.as_ref()
    }
}

/// Runs all works through workers, devices and writers.
///
/// Each device has a thread that loads nothing, decodes nothing and writes nothing: it takes the next batch, whose pixels
/// lie ready, from the queue they share.
pub(super) fn encode_all(bake: &Bake<'_>, works: &[Work], outcome: &Outcome) -> Result<()> {
    if works.is_empty() {
        return Ok(());
    }
    let latents = works.iter().flat_map(|work| &work.outputs).any(|(_, kind)| needs_encoder(*kind));
    if latents && bake.engines.is_empty() {
        return Err(Error::usage("there is something to encode but no VAE", "--vae FILE"));
    }
    ensure_statistics(bake, works)?;
    bake.progress.stage("bake", Some(works.len() as u64));
    with_writers(bake, outcome, |send| {
        let delivery = Delivery::new(bake, works, outcome, send);
        // A batch ready for each device while it encodes another.
        let queue = Queue::new(bake.engines.len());
        std::thread::scope(|scope| {
            for (device, &engine) in bake.engines.iter().enumerate() {
                let (seat, delivery) = (queue.seat(device), &delivery);
                scope.spawn(move || serve(bake, engine, seat, delivery, outcome));
            }
            let _closing = Closing(&queue);
            collect(bake, works, &delivery, &|batch| queue.push(batch));
        });
    })
}

/// Refuses to encode for hours what cannot be stored in the end.
fn ensure_statistics(bake: &Bake<'_>, works: &[Work]) -> Result<()> {
    let stored = |id: EntryId| bake.plan.artefacts[id.artefact].entries[id.entry].wanted.inputs.stored;
    let asked = works.iter().flat_map(|work| &work.outputs).any(|(id, _)| stored(*id).space == Space::BatchNormed);
    if !asked || bake.engines.iter().all(|engine| engine.batch_norm().is_some()) {
        return Ok(());
    }
    let message = "the VAE file has no batch norm statistics (`bn.running_mean`, `bn.running_var`), and these caches hold \
                   normalised latents";
    Err(Error::usage(message, "use the VAE file that comes with Flux.2"))
}

/// Decodes on the workers, and hands the batches on in order.
fn collect(bake: &Bake<'_>, works: &[Work], delivery: &Delivery<'_>, hand_on: &dyn Fn(Batch)) {
    let limits = Limits { threads: bake.options.threads, budget: bake.options.ram };
    let mut collector = Collector::new(delivery, &bake.options.budget, bake.progress, hand_on);
    let cost = |work: &Work| prepare::cost(bake, work);
    let work = |work: &Work| prepare(bake, work);
    pipeline::run(works, &limits, bake.cancel, cost, work, |index, result, permit| {
        collector.take(index, result, permit);
    });
    if !bake.cancel.is_cancelled() {
        collector.flush();
    }
}

/// One device's thread: batch by batch until none is left.
fn serve(bake: &Bake<'_>, engine: &dyn Encode, mut seat: Seat<'_, Batch>, delivery: &Delivery<'_>, outcome: &Outcome) {
    let mut attempts = Attempts::new(engine, &bake.options.budget);
    let mut has_failed = false;
    while let Some(mut batch) = seat.next(bake.cancel) {
        let results = timed(outcome, || attempts.encode(&batch.pixels(), batch.size));
        let mut refused = Vec::new();
        for (waiting, result) in std::mem::take(&mut batch.waiting).into_iter().zip(results) {
            match result {
                Ok(encoded) => delivery.posterior(waiting.work, waiting.kind, &encoded, engine.device_name()),
                Err(failure) if failure.is_the_devices() && seat.can_give_back() => refused.push((waiting, failure)),
                Err(failure) => delivery.unencodable(waiting.work, waiting.kind, failure),
            }
        }
        if let Some((_, failure)) = refused.first() {
            if !std::mem::replace(&mut has_failed, true) {
                let message = format!("warning: {} failed: {failure}; another device tries", engine.device_name());
                bake.progress.say(&message);
            }
            batch.waiting = refused.into_iter().map(|(waiting, _)| waiting).collect();
            seat.give_back(batch);
        } else {
            bake.progress.advance(batch.permits.len() as u64);
        }
    }
    outcome.with(|tally| {
        tally.batch_backoffs += attempts.halvings();
        tally.lowered.extend(attempts.lowered());
    });
}

fn timed<T>(outcome: &Outcome, encode: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let results = encode();
    let spent = start.elapsed().as_secs_f64();
    outcome.with(|tally| tally.encode_seconds += spent);
    results
}

/// Lets the devices go when nothing more comes, after a panic too.
struct Closing<'a>(&'a Queue<Batch>);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}
