//! The outcome of `scan`.

use crate::dataset::Image;
use crate::plan::Collected;
use crate::problem::{Kind, Problem, Severity};
use crate::units::human_bytes;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;

/// What is in a dataset.
pub struct ScanReport<'a> {
    collected: &'a Collected,
}

impl<'a> ScanReport<'a> {
    /// The report of a scanned dataset.
    pub fn new(collected: &'a Collected) -> Self {
        Self { collected }
    }

    /// Counts, formats and problems by kind, for people.
    pub fn text(&self) -> String {
        let Collected { images, captions, bytes, problems, duplicates, .. } = self.collected;
        let usable = images.iter().filter(|image| image.usable).count();
        let mut text =
            format!("{} images ({}), {captions} captions, {usable} usable", images.len(), human_bytes(*bytes));
        let mut formats: BTreeMap<&str, usize> = BTreeMap::new();
        for probe in images.iter().filter_map(|image| image.probe.as_ref()) {
            *formats.entry(probe.format.name()).or_default() += 1;
        }
        let formats: Vec<_> = formats.into_iter().map(|(name, count)| format!("{count} {name}")).collect();
        let _ = write!(text, "\nformats: {}", formats.join(", "));
        if !duplicates.is_empty() {
            let _ = write!(text, "\n{} groups of images with the same content", duplicates.len());
        }
        let count = |severity| problems.iter().filter(|problem| problem.severity == severity).count();
        let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
        let _ = write!(text, "\n{errors} errors, {warnings} warnings");
        let mut kinds: BTreeMap<Kind, usize> = BTreeMap::new();
        for problem in problems.iter().filter(|problem| problem.severity != Severity::Note) {
            *kinds.entry(problem.kind).or_default() += 1;
        }
        for (kind, count) in kinds {
            let _ = write!(text, "\n{count:>7}  {}", kind.name());
        }
        text
    }

    /// The JSON of the contract.
    pub fn json(&self) -> Value {
        let Collected { images, captions, bytes, problems, duplicates, .. } = self.collected;
        json!({
            "images": images.len(),
            "captions": captions,
            "bytes": bytes,
            "samples": images.iter().map(sample_json).collect::<Vec<_>>(),
            "problems": problems,
            "duplicates": duplicates,
        })
    }

    /// All problems.
    pub fn problems(&self) -> &[Problem] {
        &self.collected.problems
    }
}

fn sample_json(image: &Image) -> Value {
    let probe = image.probe.as_ref();
    json!({
        "path": image.path,
        "width": probe.map(|probe| probe.size.width),
        "height": probe.map(|probe| probe.size.height),
        "upright": probe.map(crate::dataset::Probe::upright),
        "orientation": probe.map(|probe| probe.orientation),
        "format": probe.map(|probe| probe.format.name()),
        "content_hash": image.content,
        "caption_path": image.caption.as_deref().map(crate::units::display_path),
    })
}
