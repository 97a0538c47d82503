//! From decoded pictures, in the order of the works, to batches of one bucket.

use super::deliver::Delivery;
use super::prepare::Planes;
use crate::pipeline::Permit;
use crate::problem::Problem;
use crate::progress::Progress;
use crate::recipe::EntryKind;
use crate::units::Size;
use crate::vae::Budget;

/// One picture waiting for a device.
pub(super) struct Waiting {
    pub(super) work: usize,
    pub(super) kind: EntryKind,
    /// (3, H, W) in [-1, 1].
    pub(super) pixels: Vec<f32>,
}

/// Pictures of one bucket that go to a device together; all pictures of a work are in one batch.
pub(super) struct Batch {
    pub(super) size: Size,
    pub(super) waiting: Vec<Waiting>,
    /// One for each work, held until its pictures are encoded.
    pub(super) permits: Vec<Permit>,
}

impl Batch {
    /// The pictures' values, as an encoder takes them.
    pub(super) fn pixels(&self) -> Vec<&[f32]> {
        self.waiting.iter().map(|waiting| waiting.pixels.as_slice()).collect()
    }
}

/// Collects batches. Which pictures share one depends on their order and the budget alone, not on how fast devices are,
/// so that several devices give what one gives.
pub(super) struct Collector<'a> {
    delivery: &'a Delivery<'a>,
    budget: &'a Budget,
    progress: &'a dyn Progress,
    /// Where a full batch goes; may wait.
    hand_on: &'a dyn Fn(Batch),
    batch: Batch,
}

impl<'a> Collector<'a> {
    pub(super) fn new(
        delivery: &'a Delivery<'a>,
        budget: &'a Budget,
        progress: &'a dyn Progress,
        hand_on: &'a dyn Fn(Batch),
    ) -> Self {
        let batch = Batch { size: Size::new(0, 0), waiting: Vec::new(), permits: Vec::new() };
        Self { delivery, budget, progress, hand_on, batch }
    }

    /// Takes the next work's pictures, or its problem.
    pub(super) fn take(&mut self, work: usize, result: Result<Planes, Problem>, permit: Permit) {
        let size = self.delivery.size_of(work);
        if size != self.batch.size {
            self.flush();
            self.batch.size = size;
        }
        let pictures = match result {
            Ok(planes) => self.pictures(work, planes),
            Err(problem) => {
                self.delivery.fail(work, None, &problem);
                Vec::new()
            }
        };
        if pictures.is_empty() {
            self.progress.advance(1);
            return;
        }
        self.batch.waiting.extend(pictures);
        self.batch.permits.push(permit);
        if self.batch.waiting.len() >= self.budget.planned(size).pictures() {
            self.flush();
        }
    }

    /// Hands on what waits.
    pub(super) fn flush(&mut self) {
        if !self.batch.waiting.is_empty() {
            let empty = Batch { size: self.batch.size, waiting: Vec::new(), permits: Vec::new() };
            (self.hand_on)(std::mem::replace(&mut self.batch, empty));
        }
    }

    /// What of a work needs the encoder; its mask needs none, and is delivered.
    fn pictures(&self, work: usize, planes: Planes) -> Vec<Waiting> {
        if let Some(mask) = &planes.mask {
            self.delivery.mask(work, mask);
        }
        let of_kind = |kind| move |pixels| Waiting { work, kind, pixels };
        let plain = planes.plain.map(of_kind(EntryKind::Latents));
        plain.into_iter().chain(planes.mirrored.map(of_kind(EntryKind::LatentsFlipped))).collect()
    }
}
