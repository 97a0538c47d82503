//! SimpleTuner's bucket rule, in its own float64 arithmetic.
//!
//! Source: SimpleTuner bc8e6ab7, `helpers/multiaspect/image.py` (`mi`) and
//! `helpers/image_manipulation/training_sample.py` (`ts`). Its roundings are Python's: `round` to even, `int` towards
//! zero. There is no cap on the area.
//!
//! The rule looks beyond one picture: by area, the first picture of a rounded aspect ratio fixes the size for all later
//! ones of that ratio (`mi:225-274`). So a rule [learns](SimpleTunerBuckets::learn) all pictures in the trainer's order
//! first; which of two sizes wins is then [known to be contested](SimpleTunerBuckets::is_contested).

use super::{Assignment, BucketRule, NoBucket};
use crate::units::{Rect, Size};
use std::collections::HashMap;

/// A size that buckets aim at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Resolution {
    /// `resolution_type: pixel`: the shorter edge, in pixels.
    Edge(u32),
    /// `resolution_type: area`: the area in millions of pixels.
    Megapixels(f64),
}

/// What the crop makes of the aspect ratio.
#[derive(Clone, Debug, PartialEq)]
pub enum CropAspect {
    /// `crop: false`, or `crop_aspect: preserve`: the picture's own, stepped to the alignment.
    Own,
    /// `crop_aspect: square`.
    Square,
    /// `crop_aspect: closest`, of these.
    Closest(Vec<f64>),
}

/// Which part of the scaled picture is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CropStyle {
    /// `center`, `centre`.
    Centre,
    /// `corner`: top left.
    Corner,
}

/// A dataset's options.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// `resolution` and `resolution_type`.
    pub resolution: Resolution,
    /// `--aspect_bucket_alignment`, in pixels: sides of buckets are multiples of it.
    pub alignment: u32,
    /// `crop_aspect`, where `crop` is on.
    pub aspect: CropAspect,
    /// `crop_style`.
    pub style: CropStyle,
    /// `target_downsample_size`, where `crop` is on and `maximum_image_size` is set too: scaled to before the crop.
    pub downsample: Option<Resolution>,
    /// `minimum_image_size`: edge or area below which a picture is left out.
    pub minimum: Option<Resolution>,
    /// `minimum_aspect_ratio`: buckets below are left out.
    pub minimum_aspect: Option<f64>,
    /// `maximum_aspect_ratio`: buckets above are left out.
    pub maximum_aspect: Option<f64>,
}

/// The trainer's table of sizes by resolution and rounded aspect ratio, which datasets of one run share.
#[derive(Clone, Debug, Default)]
pub struct AspectTable(HashMap<(u64, u64), Settled>);

#[derive(Clone, Copy, Debug)]
struct Settled {
    size: Size,
    /// Another picture of this ratio would have settled on another size.
    contested: bool,
}

impl AspectTable {
    fn get(&self, megapixels: f64, aspect: f64) -> Option<Settled> {
        self.0.get(&(megapixels.to_bits(), aspect.to_bits())).copied()
    }

    /// The first size of a ratio stays.
    fn settle(&mut self, megapixels: f64, aspect: f64, own: Size) -> Size {
        let first = Settled { size: own, contested: false };
        let settled = self.0.entry((megapixels.to_bits(), aspect.to_bits())).or_insert(first);
        settled.contested |= settled.size != own;
        settled.size
    }
}

/// The rule with what it has learnt.
#[derive(Clone, Debug)]
pub struct SimpleTunerBuckets {
    settings: Settings,
    table: AspectTable,
}

/// How a picture is scaled and cut, before the crop is placed.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Fit {
    target: Size,
    intermediary: Size,
    /// Of the target, rounded: the name of its bucket.
    aspect: f64,
}

/// Asks the table for the size of a resolution and ratio, given the picture's own.
type Lookup<'a> = &'a mut dyn FnMut(f64, f64, Size) -> Size;

impl SimpleTunerBuckets {
    /// The rule for `settings`; the error is a usage text with the actual and the allowed value.
    pub fn new(settings: Settings) -> Result<Self, String> {
        if settings.alignment == 0 {
            return Err("the bucket alignment is 0 pixels, at least 1 is needed".into());
        }
        let sizes = [Some(settings.resolution), settings.downsample, settings.minimum];
        if let Some(wrong) = sizes.into_iter().flatten().find(|size| !size.is_sound()) {
            return Err(format!("a size of {wrong} is out of range: 1 to 65535 pixels, or 0.001 to 4000 megapixels"));
        }
        match settings.minimum {
            // `metadata/backends/base.py:1262` raises for every picture.
            Some(Resolution::Megapixels(minimum)) if minimum > 5.0 => {
                Err(format!("minimum_image_size is {minimum} megapixels, at most 5 are allowed by the trainer"))
            }
            _ => Ok(Self { settings, table: AspectTable::default() }),
        }
    }

    /// The settings it was made with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// `resolution` as an edge: of the area it stands for, on the alignment (`ts:215-253`).
    pub fn square_edge(&self) -> u32 {
        match self.settings.resolution {
            Resolution::Edge(edge) => edge,
            Resolution::Megapixels(_) => self.stepped(self.target_area().sqrt()),
        }
    }

    /// Takes a bucket that the trainer has recorded: its size is that of its ratio from now on.
    pub fn recorded(&self, bucket: Size, table: &mut AspectTable) {
        let aspect = rounded_aspect(bucket);
        if let (Resolution::Megapixels(megapixels), true) = (self.settings.resolution, aspect != 1.0) {
            table.settle(megapixels, aspect, bucket);
        }
    }

    /// Learns the pictures in the order in which the trainer sees them; `table` holds what earlier datasets of the run
    /// have settled.
    pub fn learn(&mut self, sources: &[Size], table: &mut AspectTable) {
        let firsts: Vec<Option<Fit>> = sources.iter().map(|&source| self.scan(source, table)).collect();
        for (&source, first) in sources.iter().zip(firsts) {
            if let (Some(first), CropAspect::Closest(_)) = (first, &self.settings.aspect) {
                let mut settle = |megapixels, aspect, own| table.settle(megapixels, aspect, own);
                self.fit_aspect(source, first.aspect, &mut settle);
            }
        }
        self.table = table.clone();
    }

    fn scan(&self, source: Size, table: &mut AspectTable) -> Option<Fit> {
        if source.is_empty() || self.is_under_minimum(source) {
            return None;
        }
        let mut settle = |megapixels, aspect, own| table.settle(megapixels, aspect, own);
        let fit = self.first_fit(source, &mut settle).ok()?;
        self.scaled(source, fit, &mut settle);
        Some(fit)
    }

    /// True when the bucket depends on which picture of its ratio the trainer sees first.
    pub fn is_contested(&self, source: Size) -> bool {
        let mut contested = false;
        let mut look = |megapixels, aspect, own| {
            let settled = self.table.get(megapixels, aspect);
            contested |= settled.is_some_and(|settled| settled.contested);
            settled.map_or(own, |settled| settled.size)
        };
        if let Ok(fit) = self.fit(source, &mut look) {
            self.scaled(source, fit, &mut look);
        }
        contested
    }

    /// What becomes of a picture of which the trainer has recorded `target` and `intermediary`.
    pub fn follow(&self, source: Size, target: Size, intermediary: Size) -> Result<Assignment, NoBucket> {
        let mut look = self.looking();
        let mut fit = Fit { target, intermediary, aspect: rounded_aspect(target) };
        if let CropAspect::Closest(_) = self.settings.aspect {
            // When it encodes, the trainer places the picture again, by the ratio that it recorded (`ts:294`).
            fit = self.fit_aspect(source, fit.aspect, &mut look).ok_or_else(|| flat(source))?;
        }
        self.place(source, fit, &mut look)
    }

    fn looking(&self) -> impl FnMut(f64, f64, Size) -> Size {
        |megapixels, aspect, own| self.table.get(megapixels, aspect).map_or(own, |settled| settled.size)
    }

    /// What the trainer encodes: with `closest` it places every picture twice, the second time by the first bucket's
    /// ratio.
    fn fit(&self, source: Size, look: Lookup<'_>) -> Result<Fit, NoBucket> {
        let first = self.first_fit(source, look)?;
        self.ensure_kept(source, first.aspect)?;
        match self.settings.aspect {
            CropAspect::Closest(_) => self.fit_aspect(source, first.aspect, look).ok_or_else(|| flat(source)),
            _ => Ok(first),
        }
    }

    /// `calculate_target_size` without recorded metadata (`ts:587-650`).
    fn first_fit(&self, source: Size, look: Lookup<'_>) -> Result<Fit, NoBucket> {
        let own = rounded_aspect(source);
        let aspect = match &self.settings.aspect {
            CropAspect::Own => own,
            CropAspect::Square => {
                let edge = self.square_edge();
                let fit = self.calculate(1.0, self.settings.resolution, source, look).ok_or_else(|| flat(source))?;
                return Ok(self.squared(Fit { target: Size::new(edge, edge), aspect: 1.0, ..fit }));
            }
            // Python's `min` keeps the first of equals.
            CropAspect::Closest(aspects) => aspects.iter().copied().fold(f64::NAN, |best, aspect| {
                if (aspect - own).abs() < (best - own).abs() || best.is_nan() { aspect } else { best }
            }),
        };
        self.fit_aspect(source, aspect, look).ok_or_else(|| flat(source))
    }

    fn fit_aspect(&self, source: Size, aspect: f64, look: Lookup<'_>) -> Option<Fit> {
        let fit = self.calculate(aspect, self.settings.resolution, source, look)?;
        let fit = self.squared(Fit { aspect: rounded_aspect(fit.target), ..fit });
        let edge = self.square_edge();
        let target = if fit.aspect == 1.0 { Size::new(edge, edge) } else { fit.target };
        Some(Fit { target, ..fit })
    }

    /// `correct_intermediary_square_size`: what is nearly square is stretched rather than left too small.
    fn squared(&self, fit: Fit) -> Fit {
        let edge = self.square_edge();
        let small = fit.aspect == 1.0 && fit.intermediary.width < edge;
        Fit { intermediary: if small { Size::new(edge, edge) } else { fit.intermediary }, ..fit }
    }

    /// `None` where the trainer divides by zero, or where a side has more pixels than there are numbers.
    fn calculate(&self, aspect: f64, resolution: Resolution, source: Size, look: Lookup<'_>) -> Option<Fit> {
        match resolution {
            Resolution::Edge(edge) => self.by_edge(aspect, f64::from(edge), source),
            Resolution::Megapixels(megapixels) => self.by_area(aspect, megapixels, source, look),
        }
    }

    /// `calculate_new_size_by_pixel_edge` (`mi:129-177`).
    fn by_edge(&self, aspect: f64, edge: f64, source: Size) -> Option<Fit> {
        let raw = source.aspect_ratio();
        let (width, height) =
            if source.width < source.height { (edge, divided(edge, aspect)?) } else { ((edge * aspect).trunc(), edge) };
        let target = Size::new(self.stepped(width), self.stepped(height));
        let (target_width, target_height) = (f64::from(target.width), f64::from(target.height));
        let (width, height) = if raw >= 1.0 {
            let height = target_height.max(height);
            let width = (height * raw).trunc();
            if width < target_width { (target_width, (target_width / raw).trunc()) } else { (width, height) }
        } else {
            let width = target_width.max(width);
            let height = (width / raw).trunc();
            if height < target_height { ((target_height * raw).trunc(), target_height) } else { (width, height) }
        };
        Some(Fit { target, intermediary: size_of(width, height)?, aspect: rounded_aspect(target) })
    }

    /// `calculate_new_size_by_pixel_area` (`mi:179-281`).
    fn by_area(&self, aspect: f64, megapixels: f64, source: Size, look: Lookup<'_>) -> Option<Fit> {
        let edge = self.stepped((megapixels * 1e6).sqrt().trunc());
        if aspect == 1.0 && source.width == source.height {
            let square = Size::new(edge, edge);
            return Some(Fit { target: square, intermediary: square, aspect });
        }
        let (raw, root) = (source.aspect_ratio(), aspect.sqrt());
        let own = Size::new(self.stepped(f64::from(edge) * root), self.stepped(quotient(f64::from(edge), root)?));
        let intermediary = if own.width < own.height {
            (f64::from(own.width), (f64::from(own.width) / raw).trunc())
        } else {
            ((f64::from(own.height) * raw).trunc(), f64::from(own.height))
        };
        let aspect = rounded_aspect(own);
        let target = look(megapixels, aspect, own);
        let intermediary = grown(intermediary, target, raw);
        Some(Fit { target, intermediary: size_of(intermediary.0, intermediary.1)?, aspect })
    }

    /// The size that the picture has when it is cut: with `target_downsample_size` not the intermediary one, unless
    /// nothing is to be resized (`ts:452-475`, `ts:522-570`).
    fn scaled(&self, source: Size, fit: Fit, look: Lookup<'_>) -> Option<Size> {
        let Some(downsample) = self.settings.downsample.filter(|_| self.is_resized(source, fit.target)) else {
            return Some(fit.intermediary);
        };
        let size = self.calculate(rounded_aspect(source), downsample, source, look)?.intermediary;
        let (width, height) = (f64::from(size.width), f64::from(size.height));
        let target = (f64::from(fit.target.width), f64::from(fit.target.height));
        if width < target.0 {
            size_of(target.0, (height * (target.0 / width)).trunc())
        } else if height < target.1 {
            size_of((width * (target.1 / height)).trunc(), target.1)
        } else {
            Some(size)
        }
    }

    fn is_resized(&self, source: Size, target: Size) -> bool {
        match self.settings.resolution {
            Resolution::Edge(edge) => source != Size::new(edge, edge),
            Resolution::Megapixels(_) => {
                source.area() as f64 != self.target_area()
                    || source.width < target.width
                    || source.height < target.height
            }
        }
    }

    fn place(&self, source: Size, fit: Fit, look: Lookup<'_>) -> Result<Assignment, NoBucket> {
        let resized = self.scaled(source, fit, look).ok_or_else(|| flat(source))?;
        let bucket = fit.target;
        if resized.width < bucket.width || resized.height < bucket.height {
            return Err(NoBucket::ExtremeAspect(format!(
                "{source} pixels are scaled to {resized}, less than the bucket {bucket} that the trainer cuts of it"
            )));
        }
        let centred = Assignment::centred(bucket, resized);
        Ok(match self.settings.style {
            CropStyle::Centre => centred,
            CropStyle::Corner => Assignment { crop: Rect::new(0, 0, bucket), ..centred },
        })
    }

    /// Common areas stand for the squares that people mean by them (`ts:225-243`).
    fn target_area(&self) -> f64 {
        const MEANT: [(f64, u32); 5] = [(0.25, 512), (0.5, 768), (1.0, 1024), (2.0, 1536), (4.0, 2048)];
        match self.settings.resolution {
            Resolution::Edge(edge) => f64::from(edge),
            Resolution::Megapixels(megapixels) => {
                let meant = MEANT.into_iter().find(|(near, _)| (megapixels - near).abs() < 0.05);
                meant.map_or(megapixels * 1e6, |(_, edge)| f64::from(edge) * f64::from(edge))
            }
        }
    }

    /// `_round_to_nearest_multiple`: to even, at least one step.
    fn stepped(&self, pixels: f64) -> u32 {
        let step = f64::from(self.settings.alignment);
        ((pixels / step).round_ties_even() * step).max(step) as u32
    }

    /// `meets_resolution_requirements` (`metadata/backends/base.py:1161`).
    fn is_under_minimum(&self, source: Size) -> bool {
        let shorter = f64::from(source.width.min(source.height));
        match self.settings.minimum {
            None => false,
            Some(Resolution::Edge(edge)) => shorter < f64::from(edge),
            Some(Resolution::Megapixels(megapixels)) => {
                let area = megapixels * 1e6;
                let square = self.settings.aspect == CropAspect::Square && shorter < area.sqrt().floor();
                square || (source.area() as f64) < area
            }
        }
    }

    fn ensure_kept(&self, source: Size, aspect: f64) -> Result<(), NoBucket> {
        let (low, high) = (self.settings.minimum_aspect, self.settings.maximum_aspect);
        let out = |what: &str, limit: f64| {
            NoBucket::ExtremeAspect(format!(
                "{source} pixels go to the bucket of aspect ratio {aspect}, which the trainer leaves out: {what} is {limit}"
            ))
        };
        match (low.filter(|&low| aspect < low), high.filter(|&high| aspect > high)) {
            (Some(low), _) => Err(out("minimum_aspect_ratio", low)),
            (_, Some(high)) => Err(out("maximum_aspect_ratio", high)),
            _ => Ok(()),
        }
    }
}

impl BucketRule for SimpleTunerBuckets {
    /// Of pictures that were not learnt, each has the size that it would have as the first of its ratio.
    fn assign(&self, source: Size) -> Result<Assignment, NoBucket> {
        if source.is_empty() {
            return Err(NoBucket::empty(source));
        }
        if let Some(minimum) = self.settings.minimum.filter(|_| self.is_under_minimum(source)) {
            let message = format!("{source} pixels, the trainer leaves it out: minimum_image_size is {minimum}");
            return Err(NoBucket::TooSmall(message));
        }
        let mut look = self.looking();
        let fit = self.fit(source, &mut look)?;
        self.place(source, fit, &mut look)
    }
}

impl Resolution {
    fn is_sound(self) -> bool {
        match self {
            Self::Edge(edge) => (1..=65_535).contains(&edge),
            Self::Megapixels(megapixels) => (0.001..=4000.0).contains(&megapixels),
        }
    }
}

impl std::fmt::Display for Resolution {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Edge(edge) => write!(f, "{edge} pixels"),
            Self::Megapixels(megapixels) => write!(f, "{megapixels} megapixels"),
        }
    }
}

/// `W / H` rounded to 2 places as Python's `round` does, ties to even (`--aspect_bucket_rounding`'s default).
fn rounded_aspect(size: Size) -> f64 {
    let aspect = size.aspect_ratio();
    // A tie has an odd number of eighths: only then is the third place an exact 5.
    let eighths = aspect * 8.0;
    if eighths.fract() == 0.0 && eighths % 2.0 != 0.0 {
        return (aspect * 100.0).round_ties_even() / 100.0;
    }
    format!("{aspect:.2}").parse().expect("a decimal number is a number")
}

/// The intermediary size, grown where it would be smaller than the target: by one side's lack (`mi:241-256`).
fn grown((width, height): (f64, f64), target: Size, raw: f64) -> (f64, f64) {
    let (target_width, target_height) = (f64::from(target.width), f64::from(target.height));
    if target_width > width {
        (target_width, height + ((target_width - width) / raw).trunc())
    } else if target_height > height {
        (width + ((target_height - height) * raw).trunc(), target_height)
    } else {
        (width, height)
    }
}

fn quotient(dividend: f64, divisor: f64) -> Option<f64> {
    (divisor != 0.0).then(|| dividend / divisor)
}

fn divided(dividend: f64, divisor: f64) -> Option<f64> {
    quotient(dividend, divisor).map(f64::trunc)
}

fn size_of(width: f64, height: f64) -> Option<Size> {
    let side = |x: f64| (0.0..=f64::from(u32::MAX)).contains(&x).then_some(x as u32);
    Some(Size::new(side(width)?, side(height)?))
}

fn flat(source: Size) -> NoBucket {
    let message = format!("{source} pixels: the trainer cannot place so extreme an aspect ratio and skips the picture");
    NoBucket::ExtremeAspect(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aspect_ratios_are_rounded_as_python_rounds_them() {
        for (width, height, expected) in [
            (1, 8, 0.12),
            (3, 8, 0.38),
            (5, 8, 0.62),
            (1080, 1920, 0.56),
            (16, 4096, 0.0),
            (9, 8, 1.12),
            (201, 200, 1.0),
        ] {
            assert_eq!(rounded_aspect(Size::new(width, height)), expected, "{width}/{height}");
        }
        assert_eq!(rounded_aspect(Size::new(20_000, 1)), 20_000.0);
    }

    #[test]
    fn the_first_picture_of_a_ratio_fixes_the_size_for_all_of_them_and_the_rest_are_contested() {
        let settings = Settings {
            resolution: Resolution::Megapixels(1.048576),
            alignment: 16,
            aspect: CropAspect::Own,
            style: CropStyle::Centre,
            downsample: None,
            minimum: None,
            minimum_aspect: None,
            maximum_aspect: None,
        };
        let (one, other, third) = (Size::new(1080, 1920), Size::new(1085, 1920), Size::new(1024, 1024));
        let bucket = |order: &[Size], source| {
            let mut rule = SimpleTunerBuckets::new(settings.clone()).unwrap();
            rule.learn(order, &mut AspectTable::default());
            (rule.assign(source).unwrap().bucket, rule.is_contested(source))
        };
        let alone = |source| bucket(&[source], source).0;
        if alone(one) != alone(other) {
            assert_eq!(bucket(&[one, other], other), (alone(one), true));
            assert_eq!(bucket(&[other, one], one), (alone(other), true));
        }
        assert_eq!(bucket(&[one, other, third], third), (Size::new(1024, 1024), false));
    }
}
