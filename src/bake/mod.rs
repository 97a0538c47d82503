//! Runs a [`Plan`]: relinks what lies elsewhere, decodes ahead, encodes batch by batch, writes behind.
//!
//! ```text
//! works, largest bucket first ─▶ decode workers ─▶ byte-bounded queue ─▶ batches of one bucket ─▶ devices ─▶ writers
//! ```
//! Shutdown order: workers end with the works or a cancel, the devices with the last batch, the writers when the
//! devices hang up. What one device fails on another tries once. A failed sample is a problem in the summary; a failed write ends the run, with what is finished kept.

mod attempt;
mod backoff;
mod batch;
mod deliver;
mod encode;
mod prepare;
mod queue;
mod relink;
mod tally;
mod work;
mod write;

pub use backoff::Lowered;
pub use encode::{Encode, Engine};
pub use tally::Summary;

use crate::error::Result;
use crate::plan::{Collected, Plan};
use crate::progress::{Cancel, Progress};
use crate::recipe::Target;
use crate::store::door::{ensure_writable, sweep_temporaries};
use crate::store::{Index, Locations};
use crate::vae::Budget;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Instant;
use tally::Outcome;

/// Limits of one run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Decode workers.
    pub threads: usize,
    /// Bytes of decoded pictures in flight.
    pub ram: u64,
    /// What goes to the encoder at once; it lowers that itself where memory runs out.
    pub budget: Budget,
}

/// Everything a run works with.
pub struct Bake<'a> {
    /// What is to be done.
    pub plan: &'a Plan,
    /// The images.
    pub collected: &'a Collected,
    /// The encoder, once for each device, all in one precision; a plan that builds no latents does without.
    pub engines: &'a [&'a dyn Encode],
    /// Limits.
    pub options: &'a Options,
    /// Where artefacts live.
    pub locations: &'a Locations,
    /// What is known of files.
    pub index: &'a Index,
    /// Told about each finished image.
    pub progress: &'a dyn Progress,
    /// Asks for an early end.
    pub cancel: &'a Cancel,
    /// When the run began, scan and plan included.
    pub started: Instant,
}

impl Bake<'_> {
    /// Runs the plan.
    ///
    /// # Errors
    /// A write that failed (disk full, no permission): everything finished before is kept.
    pub fn run(&self) -> Result<Summary> {
        self.prepare_folders()?;
        let outcome = Outcome::default();
        let fallen = relink::relink(self, &outcome)?;
        let works = work::works(self.plan, &fallen);
        encode::encode_all(self, &works, &outcome)?;
        relink::follow(self, &outcome)?;
        if !self.cancel.is_cancelled() {
            write::remove_superseded(self)?;
        }
        if let Some(trouble) = self.index.flush() {
            self.progress.say(&format!("warning: {trouble}"));
        }
        Ok(outcome.summarise(self, self.started.elapsed().as_secs_f64()))
    }

    /// Makes sure that the places to write in can be written, before hours of encoding; removes temporaries that
    /// killed runs left there.
    fn prepare_folders(&self) -> Result<()> {
        let writing = || self.plan.artefacts.iter().filter(|artefact| artefact.needs_writing());
        let folders: BTreeSet<&Path> = writing().filter_map(|artefact| artefact.path.as_deref()?.parent()).collect();
        for folder in &folders {
            sweep_temporaries(folder);
        }
        if writing().any(|artefact| artefact.target == Target::Store) {
            ensure_writable(&self.locations.store())?;
        }
        let beside = writing().filter(|artefact| artefact.target != Target::Store);
        let beside: BTreeSet<&Path> = beside.filter_map(|artefact| artefact.path.as_deref()?.parent()).collect();
        beside.into_iter().try_for_each(ensure_writable)
    }
}
