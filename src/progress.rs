//! Progress and cancellation as the library sees them; the binary draws the bars.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Receives the progress of one run. Methods are called from many threads.
pub trait Progress: Sync {
    /// A stage begins: `scan`, `plan`, `bake` …, with its number of items if known.
    fn stage(&self, name: &'static str, total: Option<u64>);
    /// `count` more items of the current stage are done.
    fn advance(&self, count: u64);
    /// Something worth saying happened; bars must not be torn by it.
    fn say(&self, message: &str);
}

/// Progress that nobody watches.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn stage(&self, _name: &'static str, _total: Option<u64>) {}
    fn advance(&self, _count: u64) {}
    fn say(&self, _message: &str) {}
}

/// A flag that asks a run to stop after the items in hand. Clones share the flag.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Asks the run to stop.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// True once a stop was asked for.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
