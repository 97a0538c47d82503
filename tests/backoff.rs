//! Back-off: what runs out of memory is encoded in smaller parts, once for all pictures of its area.

use crate::support::{self, Folder, Setting, tiny_vae};
use prebake::bake::{Encode, Engine, Summary};
use prebake::containers::Container;
use prebake::error::{Error, Result};
use prebake::progress::Cancel;
use prebake::recipe::{Precision, Receipt, Tile};
use prebake::units::Size;
use prebake::vae::{Budget, Posterior, Weights};
use serde_json::json;
use std::sync::Mutex;

/// An encoder with room for so many pixels at once that answers with the mean of each block of pixels.
struct Cramped {
    /// Pixels of a call that fit.
    pixels: u64,
    /// The same for [`Encode::encode_f32`].
    pixels_f32: u64,
    /// Gives NaN in its own precision.
    overflows: bool,
    /// Fails for another reason on pictures whose first value is above this.
    refuses_above: f32,
    /// Size and batch of each call, and whether it was one in f32.
    calls: Mutex<Vec<(Size, usize, bool)>>,
}

impl Cramped {
    fn new(pixels: u64) -> Self {
        Self { pixels, pixels_f32: pixels, overflows: false, refuses_above: 2.0, calls: Mutex::default() }
    }

    fn call(&self, pixels: &[&[f32]], size: Size, exact: bool) -> Result<Vec<Posterior>> {
        self.calls.lock().unwrap().push((size, pixels.len(), exact));
        let room = if exact { self.pixels_f32 } else { self.pixels };
        if size.area() * pixels.len() as u64 > room {
            let text = "DriverError(CUDA_ERROR_OUT_OF_MEMORY, \"out of memory\")";
            return Err(Error::Tensor(candle_core::Error::Msg(text.into())));
        }
        if pixels.iter().any(|picture| picture[0] > self.refuses_above) {
            return Err(Error::Tensor(candle_core::Error::Msg("a kernel broke".into())));
        }
        Ok(pixels.iter().map(|picture| blocks(picture, size, self.overflows && !exact)).collect())
    }

    fn calls(&self) -> Vec<(Size, usize, bool)> {
        std::mem::take(&mut *self.calls.lock().unwrap())
    }
}

/// Four channels of the first pixel of each 8 × 8 block: what tiles agree on exactly.
fn blocks(picture: &[f32], size: Size, overflows: bool) -> Posterior {
    let (width, height) = (size.width as usize, size.height as usize);
    let value = |i: usize| picture[(i / (width / 8) % (height / 8)) * 8 * width + i % (width / 8) * 8];
    let mut mean: Vec<f32> = (0..4 * (width / 8) * (height / 8)).map(value).collect();
    if overflows {
        mean[0] = f32::NAN;
    }
    Posterior { logvar: vec![-10.0; mean.len()], mean, shape: [4, height / 8, width / 8] }
}

impl Encode for Cramped {
    fn encode(&self, pixels: &[&[f32]], size: Size) -> Result<Vec<Posterior>> {
        self.call(pixels, size, false)
    }

    fn encode_f32(&self, pixels: &[f32], size: Size) -> Result<Posterior> {
        Ok(self.call(&[pixels], size, true)?.remove(0))
    }

    fn precision(&self) -> Precision {
        Precision::Bf16
    }

    fn device_name(&self) -> &str {
        "cramped"
    }
}

/// The real encoder on a device that has room for so many pixels.
struct Choking {
    engine: Engine,
    room: Cramped,
}

impl Encode for Choking {
    fn encode(&self, pixels: &[&[f32]], size: Size) -> Result<Vec<Posterior>> {
        self.room.call(pixels, size, false).and_then(|_| self.engine.encode(pixels, size))
    }

    fn encode_f32(&self, pixels: &[f32], size: Size) -> Result<Posterior> {
        self.engine.encode_f32(pixels, size)
    }

    fn precision(&self) -> Precision {
        self.engine.precision()
    }

    fn device_name(&self) -> &str {
        self.engine.device_name()
    }
}

fn tiny_engine() -> Engine {
    let weights = Weights::open(&tiny_vae()).unwrap();
    Engine::new(weights, candle_core::Device::Cpu, "cpu".into(), Precision::F32).unwrap()
}

/// The tiny encoder's, on a device that takes batches and does not tell its memory.
pub(crate) fn budget(tile: Tile, cache_batch: usize) -> Budget {
    let layout = Weights::open(&tiny_vae()).unwrap().layout().clone();
    let (precision, cache_batch) = (Precision::Bf16, Some(cache_batch));
    Budget { layout, precision, one_by_one: false, available: None, cache_batch, tile }
}

/// Bakes the folder with an encoder of the test's own.
fn bake(folder: &Folder, engine: &dyn Encode, budget: Budget) -> Summary {
    support::bake(folder, Setting { engines: &[engine], budget, threads: 1, cancel: Cancel::default() })
}

/// `count` pictures of 512 × 512 with captions.
fn squares(count: u32) -> Folder {
    let folder = Folder::new();
    for i in 0..count {
        folder.picture(&format!("{i}.png"), 512, 512, i);
        folder.write(&format!("{i}.txt"), "a");
    }
    folder
}

fn receipts(folder: &Folder) -> Vec<Receipt> {
    let read = |bytes: &[u8]| Container::Safetensors.read(bytes).unwrap().receipt.unwrap();
    folder.artefacts().iter().map(|(_, bytes)| Receipt::from_json(&read(bytes)).unwrap()).collect()
}

/// (tiled, side of the tiles, repeated in f32) of each entry.
pub(crate) fn ran(folder: &Folder) -> Vec<(bool, Option<u32>, bool)> {
    let receipts = receipts(folder);
    let entries = receipts.iter().flat_map(|receipt| receipt.entries.values());
    entries.map(|entry| entry.ran.as_ref().map(|ran| (ran.tiled, ran.tile, ran.f32_retry)).unwrap()).collect()
}

pub(crate) const SQUARE: Size = Size::new(512, 512);

#[test]
fn a_batch_that_runs_out_of_memory_is_halved_once_and_not_again() {
    let folder = squares(6);
    let engine = Cramped::new(2 * SQUARE.area());
    let summary = bake(&folder, &engine, budget(Tile::Auto, 4));
    let batches: Vec<_> = engine.calls().iter().map(|&(_, batch, _)| batch).collect();
    assert_eq!(batches, [4, 2, 2, 2], "the second bucketful starts with what worked");
    assert_eq!((summary.encoded, summary.batch_backoffs, summary.tiled), (6, 1, 0));
    let json = serde_json::to_value(&summary).unwrap();
    let lowered = json!([{"bucket": [512, 512], "from_batch": 4, "from_tile": null, "to_batch": 2, "to_tile": null}]);
    assert_eq!(json["backoffs"], lowered);
    assert!(ran(&folder).iter().all(|&ran| ran == (false, None, false)));
}

#[test]
fn a_picture_that_does_not_fit_alone_is_tiled_and_its_receipt_says_so() {
    let folder = squares(2);
    let engine = Cramped::new(300 * 300);
    let summary = bake(&folder, &engine, budget(Tile::Auto, 2));
    let pieces: Vec<_> = engine.calls().iter().map(|&(size, batch, _)| (size.width, batch)).collect();
    let tiles = [&[(256, 2)][..], &[(256, 1); 18]].concat();
    assert_eq!(pieces, [&[(512, 2), (512, 1), (384, 1)], &tiles[..]].concat());
    assert_eq!((summary.encoded, summary.tiled, summary.batch_backoffs), (2, 2, 4));
    assert_eq!(summary.tiled_paths, ["0.png", "1.png"]);
    assert_eq!(summary.backoffs[0].to_tile, Some(256));
    assert_eq!(ran(&folder), [(true, Some(256), false); 2]);
    let tiled = folder.artefacts();
    let roomy = Cramped::new(u64::MAX);
    assert_eq!(bake(&folder, &roomy, budget(Tile::Auto, 2)).encoded, 0, "more memory makes nothing stale");
    assert_eq!(bake(&folder, &roomy, budget(Tile::Off, 2)).encoded, 2, "asked for untiled, it does");
    let values = |bytes: &[u8]| Container::Safetensors.read(bytes).unwrap().arrays.remove("latents").unwrap().bytes;
    for ((_, tiled), (_, whole)) in tiled.iter().zip(folder.artefacts()) {
        let pairs = values(tiled).into_iter().zip(values(&whole)).collect::<Vec<_>>();
        let float = |part: &[(u8, u8)], pick: fn(&(u8, u8)) -> u8| {
            f32::from_le_bytes(part.iter().map(pick).collect::<Vec<_>>().try_into().unwrap())
        };
        let near = |part: &[(u8, u8)]| (float(part, |p| p.0) - float(part, |p| p.1)).abs() < 1e-6;
        assert!(pairs.chunks_exact(4).all(near), "tiles that agree give what one piece gives");
    }
}

#[test]
fn where_not_even_a_tile_fits_each_picture_is_named_and_the_run_goes_on() {
    let folder = squares(2);
    folder.picture("small.png", 192, 192, 9);
    let summary = bake(&folder, &Cramped::new(200 * 200), budget(Tile::Auto, 1));
    assert_eq!((summary.encoded, summary.failed.len()), (1, 2));
    let problem = &summary.failed[0];
    assert_eq!((problem.path.as_str(), problem.kind.name().as_str()), ("0.png", "too-large"));
    assert!(problem.message.starts_with("does not fit in memory at 512x512: "), "{}", problem.message);
    let summary = bake(&folder, &Cramped::new(300 * 300), budget(Tile::Off, 1));
    assert_eq!(summary.failed[0].hint.as_deref(), Some("--tile auto, or a smaller --resolution"));
}

#[test]
fn another_failure_costs_its_picture_alone_and_lowers_nothing() {
    let folder = Folder::new();
    for (i, name) in ["a.png", "b.png", "c.png", "d.png"].into_iter().enumerate() {
        let shade = if name == "c.png" { 255 } else { 10 * i as u8 };
        image::RgbImage::from_pixel(512, 512, image::Rgb([shade; 3])).save(folder.join(name)).unwrap();
    }
    let engine = Cramped { refuses_above: 0.9, ..Cramped::new(u64::MAX) };
    let summary = bake(&folder, &engine, budget(Tile::Auto, 4));
    let batches: Vec<_> = engine.calls().iter().map(|&(_, batch, _)| batch).collect();
    assert_eq!(batches, [4, 2, 2, 1, 1]);
    assert_eq!((summary.encoded, summary.batch_backoffs, summary.backoffs.len()), (3, 2, 0));
    assert_eq!(summary.failed[0].path, "c.png");
    assert!(summary.failed[0].message.contains("a kernel broke"), "{}", summary.failed[0].message);
}

#[test]
fn a_repetition_in_f32_takes_the_same_way_down_and_is_named() {
    let folder = squares(2);
    let engine = Cramped { overflows: true, pixels_f32: 300 * 300, ..Cramped::new(u64::MAX) };
    let summary = bake(&folder, &engine, budget(Tile::Auto, 2));
    assert_eq!((summary.encoded, summary.retried_f32, summary.tiled), (2, 2, 2));
    assert_eq!(summary.retried_f32_paths, ["0.png", "1.png"]);
    assert_eq!(ran(&folder), [(true, Some(256), true); 2]);
    let wide: Vec<_> = engine.calls().into_iter().filter(|&(size, _, exact)| exact && size.width > 256).collect();
    assert_eq!(wide, [(SQUARE, 1, true), (Size::new(384, 384), 1, true)], "the second picture starts with tiles");
}

#[test]
fn too_little_memory_at_the_start_tiles_without_a_failure() {
    let folder = squares(1);
    let engine = tiny_engine();
    let whole = Budget { one_by_one: true, precision: Precision::F32, cache_batch: None, ..budget(Tile::Auto, 1) };
    let available = Some(whole.planned(SQUARE).peak_bytes - 1);
    let summary = bake(&folder, &engine, Budget { available, ..whole });
    assert_eq!((summary.encoded, summary.tiled, summary.batch_backoffs), (1, 1, 0));
    assert_eq!(ran(&folder), [(true, Some(384), false)]);
}

#[test]
fn the_real_encoder_gives_after_a_failure_what_it_gives_when_asked_for_these_tiles() {
    let latents = |bytes: &[u8]| Container::Safetensors.read(bytes).unwrap().arrays.remove("latents").unwrap().bytes;
    let baked = |tile, room: u64| {
        let folder = Folder::new();
        folder.picture("a.png", 832, 64, 1);
        let engine = Choking { engine: tiny_engine(), room: Cramped::new(room) };
        let summary = bake(&folder, &engine, budget(tile, 1));
        assert_eq!((summary.encoded, summary.tiled), (1, 1));
        (latents(&folder.artefacts()[0].1), summary.batch_backoffs)
    };
    let (asked, none) = baked(Tile::Side(256), u64::MAX);
    let (after, failures) = baked(Tile::Auto, 300 * 64);
    assert_eq!((none, failures), (0, 4), "832, 768, 512 and 384 wide fail first");
    assert!(asked == after);
}
