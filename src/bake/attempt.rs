//! One bucket's pictures through the encoder, whatever it takes: smaller batches, tiles, f32.

use super::backoff::{Backoff, Lowered};
use super::encode::Encode;
use crate::error::{Error, Result};
use crate::recipe::{Precision, Tile};
use crate::units::Size;
use crate::vae::tiles::{Tiling, cut};
use crate::vae::{Budget, Posterior, Step};
use std::collections::BTreeMap;

/// A finite posterior and how it came about.
pub(super) struct Encoded {
    pub(super) posterior: Posterior,
    pub(super) precision: Precision,
    /// Side of the tiles, if any.
    pub(super) tile: Option<u32>,
    pub(super) f32_retry: bool,
}

/// Why a picture has no posterior.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// Not even its smallest piece fits.
    Memory { why: String, hint: &'static str },
    /// The encoder failed on it for another reason.
    Encoder(String),
    /// NaN or infinity, in f32 too.
    NotFinite,
}

impl Failure {
    /// True where another device could succeed.
    pub(super) fn is_the_devices(&self) -> bool {
        !matches!(self, Self::NotFinite)
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Memory { why, .. } | Self::Encoder(why) => f.write_str(why),
            Self::NotFinite => f.write_str("NaN or infinity"),
        }
    }
}

/// The encoder with what was learnt of its memory in this run; that of f32 is learnt apart, since it needs more.
pub(super) struct Attempts<'a> {
    engine: &'a dyn Encode,
    tile: Tile,
    asked: Pass,
    exact: Pass,
}

/// One precision's back-off.
struct Pass {
    backoff: Backoff,
    /// Pictures of these buckets came through after memory ran out.
    lowered: BTreeMap<Size, Lowered>,
    /// Times that something was encoded again in smaller parts.
    halvings: usize,
}

impl<'a> Attempts<'a> {
    pub(super) fn new(engine: &'a dyn Encode, budget: &Budget) -> Self {
        let pass = |budget| Pass { backoff: Backoff::new(budget), lowered: BTreeMap::new(), halvings: 0 };
        Self { engine, tile: budget.tile, asked: pass(budget.clone()), exact: pass(budget.exact()) }
    }

    /// Times a batch was halved, or cut into tiles, because the encoder failed on it.
    pub(super) fn halvings(&self) -> usize {
        self.asked.halvings + self.exact.halvings
    }

    /// The buckets for which memory ran out, and what they were lowered to.
    pub(super) fn lowered(&self) -> impl Iterator<Item = &Lowered> {
        self.asked.lowered.values().chain(self.exact.lowered.values())
    }

    /// A finite posterior for each picture of `size`, or why there is none. What overflows is repeated in f32.
    pub(super) fn encode(&mut self, pictures: &[&[f32]], size: Size) -> Vec<Result<Encoded, Failure>> {
        let engine = self.engine;
        let mut run = |pixels: &[&[f32]], size| engine.encode(pixels, size);
        let results = self.asked.encode(&mut run, pictures, size);
        pictures.iter().zip(results).map(|(pixels, result)| self.finite(result, pixels, size)).collect()
    }

    fn finite(&mut self, result: Result<Attempted>, pixels: &[f32], size: Size) -> Result<Encoded, Failure> {
        let (posterior, tile) = result.map_err(|error| self.failure(&error))?;
        let precision = self.engine.precision();
        if posterior.is_finite() {
            return Ok(Encoded { posterior, precision, tile, f32_retry: false });
        }
        if precision == Precision::F32 {
            return Err(Failure::NotFinite);
        }
        let engine = self.engine;
        let mut run = |pixels: &[&[f32]], size| pixels.iter().map(|pixels| engine.encode_f32(pixels, size)).collect();
        let again = self.exact.encode(&mut run, &[pixels], size).remove(0);
        let (posterior, tile) = again.map_err(|error| self.failure(&error))?;
        if !posterior.is_finite() {
            return Err(Failure::NotFinite);
        }
        Ok(Encoded { posterior, precision: Precision::F32, tile, f32_retry: true })
    }

    fn failure(&self, error: &Error) -> Failure {
        if !error.is_out_of_memory() {
            return Failure::Encoder(error.to_string());
        }
        let hint = match self.tile {
            Tile::Off => "--tile auto, or a smaller --resolution",
            Tile::Side(_) => "--tile auto or a smaller side, or a smaller --resolution",
            Tile::Auto => "a smaller --resolution, or --device cpu",
        };
        Failure::Memory { why: error.to_string(), hint }
    }
}

/// A posterior, finite or not, and the side of its tiles.
type Attempted = (Posterior, Option<u32>);

/// Encodes pieces of one size.
type Run<'r> = dyn FnMut(&[&[f32]], Size) -> Result<Vec<Posterior>> + 'r;

impl Pass {
    /// One result a picture. Out of memory, less is tried at once, and that is remembered; on any other failure a batch
    /// is halved, down to single pictures, so that one costs only itself.
    fn encode(&mut self, run: &mut Run<'_>, pictures: &[&[f32]], size: Size) -> Vec<Result<Attempted>> {
        let mut results = Vec::with_capacity(pictures.len());
        while results.len() < pictures.len() {
            let step = self.backoff.step(size);
            let rest = &pictures[results.len()..];
            let batch = &rest[..rest.len().min(step.pictures())];
            match attempt(run, batch, size, &step) {
                Ok(posteriors) => {
                    self.lowered.extend(self.backoff.lowered(size).map(|lowered| (size, lowered)));
                    results.extend(posteriors.into_iter().map(|posterior| Ok((posterior, step.tile))));
                }
                Err((error, at_once)) if error.is_out_of_memory() => {
                    if self.backoff.failed(size, &step, at_once) {
                        self.halvings += 1;
                    } else {
                        results.push(Err(error));
                    }
                }
                Err(_) if batch.len() > 1 => {
                    self.halvings += 1;
                    let (first, second) = batch.split_at(batch.len() / 2);
                    results.extend(self.encode(run, first, size));
                    results.extend(self.encode(run, second, size));
                }
                Err((error, _)) => results.push(Err(error)),
            }
        }
        results
    }
}

/// One posterior a picture as `step` says, or the error and how many pieces were in the call that failed.
fn attempt(run: &mut Run<'_>, batch: &[&[f32]], size: Size, step: &Step) -> Result<Vec<Posterior>, (Error, usize)> {
    match step.tiling(size) {
        None => call(run, batch, size),
        Some(tiling) => batch.iter().map(|pixels| in_tiles(run, pixels, &tiling, size, step)).collect(),
    }
}

fn in_tiles(
    run: &mut Run<'_>,
    pixels: &[f32],
    tiling: &Tiling,
    size: Size,
    step: &Step,
) -> Result<Posterior, (Error, usize)> {
    let mut posteriors = Vec::new();
    for rects in tiling.rects().chunks(step.batch) {
        let tiles: Vec<Vec<f32>> = rects.iter().map(|&rect| cut(pixels, size, rect)).collect();
        let tiles: Vec<&[f32]> = tiles.iter().map(Vec::as_slice).collect();
        posteriors.extend(call(run, &tiles, tiling.tile())?);
    }
    Ok(tiling.blend(&posteriors))
}

fn call(run: &mut Run<'_>, pieces: &[&[f32]], size: Size) -> Result<Vec<Posterior>, (Error, usize)> {
    let missing =
        || Error::Device { message: "the encoder gave another number of posteriors than pictures".into(), hint: None };
    match run(pieces, size) {
        Ok(posteriors) if posteriors.len() == pieces.len() => Ok(posteriors),
        Ok(_) => Err((missing(), pieces.len())),
        Err(error) => Err((error, pieces.len())),
    }
}
