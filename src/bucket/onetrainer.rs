//! The bucket rule of Nerogar/OneTrainer, which is mgds', in Python's float arithmetic.
//!
//! Source: mgds at 3a6994ad, `pipelineModules/AspectBucketing.py` and, without buckets, `SingleAspectCalculation.py`.
//! Nine aspect ratios from 1:1 to 1:4 and their inverses, at the area of the resolution, each side rounded to the
//! quantization: a bucket may be over that area. Every picture is scaled to cover the bucket whose height / width is
//! nearest to its own. Rounding is Python's: half to even.
//!
//! Of two buckets that are equally near the trainer takes the one that its list has first, and that list comes out of a
//! Python `set` of tuples: its order follows from CPython's hashes, which `SetOfPairs` follows.

use super::{Assignment, BucketRule, NoBucket};
use crate::units::Size;

/// The input aspects, as (height, width); each is taken the other way round, too.
const ASPECTS: [(f64, f64); 9] =
    [(1.0, 1.0), (1.0, 1.25), (1.0, 1.5), (1.0, 1.75), (1.0, 2.0), (1.0, 2.5), (1.0, 3.0), (1.0, 3.5), (1.0, 4.0)];

/// Longest side of a resolution that is taken as meant, in pixels.
const LONGEST_SIDE: u32 = 65_535;

/// What sizes there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settings {
    /// Aspect bucketing at the area of a square.
    Buckets {
        /// Side of the square, in pixels.
        resolution: u32,
        /// The model's quantization, in pixels.
        quantization: u32,
    },
    /// A resolution written as WxH: one bucket, its sides rounded to the quantization.
    Fixed {
        /// As written.
        resolution: Size,
        /// The model's quantization, in pixels.
        quantization: u32,
    },
    /// Aspect bucketing switched off: one square.
    Square {
        /// Its side, in pixels.
        resolution: u32,
    },
}

/// OneTrainer's buckets for one resolution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OneTrainerBuckets {
    /// In the order of the trainer's list.
    buckets: Vec<Size>,
}

impl OneTrainerBuckets {
    /// The rule for `settings`; the error is a usage text with the actual and the allowed value.
    pub fn new(settings: Settings) -> Result<Self, String> {
        let buckets = match settings {
            Settings::Buckets { resolution, quantization } => {
                ensure(resolution, quantization)?;
                automatic(resolution, quantization)
            }
            Settings::Fixed { resolution, quantization } => {
                ensure(resolution.width.max(resolution.height), quantization)?;
                let side = |side: u32| quantized(f64::from(side), quantization);
                vec![Size::new(side(resolution.width), side(resolution.height))]
            }
            Settings::Square { resolution } => {
                ensure(resolution, 1)?;
                vec![Size::new(resolution, resolution)]
            }
        };
        if let Some(bucket) = buckets.iter().find(|bucket| bucket.is_empty()) {
            return Err(format!("the resolution is too small for the step: it makes a bucket of {bucket}"));
        }
        Ok(Self { buckets })
    }

    /// All buckets there are, in the order of the trainer's list.
    pub fn buckets(&self) -> &[Size] {
        &self.buckets
    }

    fn nearest(&self, source: Size) -> Size {
        let aspect = height_by_width(source);
        let mut best = (f64::INFINITY, self.buckets[0]);
        for &bucket in &self.buckets {
            let error = (height_by_width(bucket) - aspect).abs();
            if error < best.0 {
                best = (error, bucket);
            }
        }
        best.1
    }
}

impl BucketRule for OneTrainerBuckets {
    fn assign(&self, source: Size) -> Result<Assignment, NoBucket> {
        if source.is_empty() {
            return Err(NoBucket::empty(source));
        }
        let bucket = self.nearest(source);
        let resized = cover(source, bucket).ok_or_else(|| too_long(source, bucket))?;
        Ok(Assignment::centred(bucket, resized))
    }
}

/// The size that covers `bucket`: one side is the bucket's, the other is rounded.
fn cover(source: Size, bucket: Size) -> Option<Size> {
    let rounded = |side: u32, scale: f64| {
        let pixels = (f64::from(side) * scale).round_ties_even();
        (pixels <= f64::from(u32::MAX)).then_some(pixels as u32)
    };
    if height_by_width(source) > height_by_width(bucket) {
        let scale = f64::from(bucket.width) / f64::from(source.width);
        Some(Size::new(bucket.width, rounded(source.height, scale)?))
    } else {
        let scale = f64::from(bucket.height) / f64::from(source.height);
        Some(Size::new(rounded(source.width, scale)?, bucket.height))
    }
}

fn height_by_width(size: Size) -> f64 {
    f64::from(size.height) / f64::from(size.width)
}

fn quantized(side: f64, quantization: u32) -> u32 {
    (side / f64::from(quantization)).round_ties_even() as u32 * quantization
}

/// `__create_automatic_buckets`.
fn automatic(resolution: u32, quantization: u32) -> Vec<Size> {
    let resolution = f64::from(resolution);
    let sides = ASPECTS.map(|(h, w)| {
        let root = (h * w).sqrt();
        (h / root * resolution, w / root * resolution)
    });
    let inverted = sides.map(|(h, w)| (w, h));
    let mut set = SetOfPairs::new();
    for (h, w) in sides.into_iter().chain(inverted) {
        set.insert((quantized(h, quantization), quantized(w, quantization)));
    }
    set.in_order().map(|(h, w)| Size::new(w, h)).collect()
}

fn ensure(resolution: u32, quantization: u32) -> Result<(), String> {
    for (name, side) in [("resolution", resolution), ("bucket step", quantization)] {
        if !(1..=LONGEST_SIDE).contains(&side) {
            return Err(format!("{name} is {side} pixels, allowed are 1 to {LONGEST_SIDE}"));
        }
    }
    Ok(())
}

fn too_long(source: Size, bucket: Size) -> NoBucket {
    NoBucket::ExtremeAspect(format!(
        "{source} pixels scaled to cover the bucket {bucket} would have a side over {} pixels",
        u32::MAX
    ))
}

/// A set of pairs of whole numbers that is iterated in the order of CPython's `set` of tuples (3.8 to 3.14).
///
/// Open addressing over a power of two, ten slots in a row before the next probe (`Objects/setobject.c`); a pair's hash
/// is xxHash's rounds over its numbers (`Objects/tupleobject.c`), which are their own hashes.
struct SetOfPairs {
    slots: Vec<Option<(u32, u32)>>,
    used: usize,
}

impl SetOfPairs {
    const SMALLEST: usize = 8;
    const LINEAR_PROBES: usize = 9;
    const PERTURB_SHIFT: u32 = 5;

    fn new() -> Self {
        Self { slots: vec![None; Self::SMALLEST], used: 0 }
    }

    fn insert(&mut self, pair: (u32, u32)) {
        let slot = self.slot_for(pair);
        if self.slots[slot].replace(pair).is_some() {
            return;
        }
        self.used += 1;
        let mask = self.slots.len() - 1;
        if self.used * 5 >= mask * 3 {
            self.grow(self.used * 4);
        }
    }

    /// The slot that holds the pair, or the first free one on its way.
    fn slot_for(&self, pair: (u32, u32)) -> usize {
        let mask = self.slots.len() - 1;
        let mut perturb = hash_of(pair);
        let mut at = perturb as usize & mask;
        loop {
            let last = if at + Self::LINEAR_PROBES <= mask { at + Self::LINEAR_PROBES } else { at };
            if let Some(slot) = (at..=last).find(|&slot| self.slots[slot].is_none_or(|other| other == pair)) {
                return slot;
            }
            perturb >>= Self::PERTURB_SHIFT;
            at = at.wrapping_mul(5).wrapping_add(1).wrapping_add(perturb as usize) & mask;
        }
    }

    fn grow(&mut self, over: usize) {
        let old = std::mem::replace(&mut self.slots, vec![None; (over + 1).next_power_of_two().max(Self::SMALLEST)]);
        for pair in old.into_iter().flatten() {
            let slot = self.slot_for(pair);
            self.slots[slot] = Some(pair);
        }
    }

    fn in_order(self) -> impl Iterator<Item = (u32, u32)> {
        self.slots.into_iter().flatten()
    }
}

/// CPython's hash of a tuple of two whole numbers, 64 bits.
fn hash_of((first, second): (u32, u32)) -> u64 {
    const PRIME_1: u64 = 11_400_714_785_074_694_791;
    const PRIME_2: u64 = 14_029_467_366_897_019_727;
    const PRIME_5: u64 = 2_870_177_450_012_600_261;
    const LENGTH: u64 = 2;
    let round =
        |acc: u64, lane: u64| acc.wrapping_add(lane.wrapping_mul(PRIME_2)).rotate_left(31).wrapping_mul(PRIME_1);
    let acc = round(round(PRIME_5, first.into()), second.into());
    acc.wrapping_add(LENGTH ^ (PRIME_5 ^ 3_527_539))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_hashes_as_cpython_hashes_a_tuple() {
        // What `hash((1, 2))` and so on print in CPython 3.12.
        assert_eq!(hash_of((1, 2)) as i64, -3_550_055_125_485_641_917);
        assert_eq!(hash_of((512, 512)) as i64, -2_916_134_870_333_626_973);
        assert_eq!(hash_of((1024, 256)) as i64, 5_949_207_600_163_218_107);
    }

    #[test]
    fn buckets_come_in_the_order_of_the_trainers_list() {
        let rule = OneTrainerBuckets::new(Settings::Buckets { resolution: 512, quantization: 64 }).unwrap();
        let in_order: Vec<[u32; 2]> = rule.buckets().iter().map(|&bucket| bucket.into()).collect();
        // What `list(set(...))` of the trainer's function gives in CPython 3.12, turned to width, height.
        let list = [
            [1024, 256],
            [320, 832],
            [512, 512],
            [448, 640],
            [576, 448],
            [320, 896],
            [704, 384],
            [640, 448],
            [256, 1024],
            [448, 576],
            [832, 320],
            [896, 320],
            [384, 704],
            [960, 256],
            [256, 960],
        ];
        assert_eq!(in_order, list);
    }

    #[test]
    fn a_resolution_too_small_for_its_step_is_a_usage_text() {
        let refused = OneTrainerBuckets::new(Settings::Buckets { resolution: 32, quantization: 64 }).unwrap_err();
        assert!(refused.starts_with("the resolution is too small for the step: it makes a bucket of "), "{refused}");
    }

    #[test]
    fn no_size_at_all_panics() {
        let rule = OneTrainerBuckets::new(Settings::Buckets { resolution: 1024, quantization: 8 }).unwrap();
        for (width, height) in [(1, 1), (u32::MAX, 1), (1, u32::MAX), (u32::MAX, u32::MAX)] {
            let _ = rule.assign(Size::new(width, height));
        }
    }
}
