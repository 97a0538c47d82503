//! The outcome of `bake`.

use crate::bake::{Lowered, Summary};
use crate::plan::Divergence;
use crate::problem::Problem;
use crate::recipe::Target;
use crate::units::{human_bytes, printable};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Paths that a line names before only their number is given.
const LISTED: usize = 5;

/// What `bake` did, with what only the binary knows.
pub struct BakeReport<'a> {
    /// Counts and times.
    pub summary: &'a Summary,
    /// Problems of the plan and of this run.
    pub problems: &'a [Problem],
    /// `cpu`, `cuda:0` …
    pub device: &'a str,
    /// Where two targets wanted different pixels.
    pub divergences: &'a [Divergence],
    /// What to set in each trainer so that it takes the caches.
    pub setup: &'a BTreeMap<Target, Vec<String>>,
    /// Highest resident size, in bytes; 0 if unknown.
    pub peak_rss: u64,
}

impl BakeReport<'_> {
    /// One line for people, and one more for each thing that did not go as planned.
    pub fn text(&self) -> String {
        let s = self.summary;
        let mut text = format!("encoded {}, reused {}, relinked {}", s.encoded, s.reused, s.relinked);
        let errors = self.problems.iter().filter(|problem| problem.is_error()).count();
        if errors > 0 {
            text += &format!(", failed {errors}");
        }
        text += &format!(" in {:.1} s on {}", s.seconds, self.device);
        if s.encoded > 0 {
            text += &format!(" ({:.2} images/s, {:.1} s in the encoder", s.images_per_second, s.encode_seconds);
            if self.peak_rss > 0 {
                text += &format!(", peak memory {}", human_bytes(self.peak_rss));
            }
            text += ")";
        }
        if s.retried_f32 > 0 {
            let paths = listed(&s.retried_f32_paths);
            text += &format!(
                "\n{} repeated in f32, the encoder overflowed in the precision asked for: {paths}",
                s.retried_f32
            );
        }
        if s.tiled > 0 {
            let paths = listed(&s.tiled_paths);
            text += &format!("\n{} encoded in tiles, which gives other latents than one piece does: {paths}", s.tiled);
        }
        for lowered in &s.backoffs {
            text += &format!("\nout of memory: {}", lowered_in_words(lowered));
        }
        if s.interrupted {
            text += "\ninterrupted: what is finished is kept, the next run goes on from there";
        }
        for divergence in self.divergences {
            text += &format!("\n{}", divergence.text());
        }
        for (target, line) in self.setup.iter().flat_map(|(target, lines)| lines.iter().map(move |line| (target, line)))
        {
            text += &format!("\n{}: {line}", target.name());
        }
        text
    }

    /// The JSON of the contract, with what to set in each trainer, the paths that were repeated in f32 or tiled, and the back-offs by bucket.
    pub fn json(&self) -> Value {
        let mut json = serde_json::to_value(self.summary).expect("a summary is plain data");
        json["failed"] = json!(self.problems.iter().filter(|problem| problem.is_error()).collect::<Vec<_>>());
        json["problems"] = json!(self.problems);
        json["device"] = json!(self.device);
        json["peak_rss_bytes"] = json!(self.peak_rss);
        json["divergences"] = json!(self.divergences);
        json["setup"] = json!(self.setup);
        json["peak_device_bytes"] = Value::Null;
        json
    }
}

/// The first few paths, and how many more there are.
fn listed(paths: &[String]) -> String {
    let mut names: Vec<_> = paths.iter().take(LISTED).map(|path| format!("`{}`", printable(path))).collect();
    if paths.len() > LISTED {
        names.push(format!("and {} more", paths.len() - LISTED));
    }
    names.join(", ")
}

/// `1024x1024 went from batch 8 to batch 2`.
fn lowered_in_words(lowered: &Lowered) -> String {
    let step = |batch: usize, tile: Option<u32>| match tile {
        None => format!("batch {batch}"),
        Some(side) => format!("tiles of {side}, {batch} at once"),
    };
    let from = step(lowered.from_batch, lowered.from_tile);
    format!("{} went from {from} to {}", lowered.bucket, step(lowered.to_batch, lowered.to_tile))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Size;

    #[test]
    fn what_was_lowered_tiled_or_repeated_is_said_with_bucket_and_file() {
        let (bucket, from_batch, from_tile) = (Size::new(1024, 1024), 8, None);
        let lowered = |to_batch, to_tile| Lowered { bucket, from_batch, from_tile, to_batch, to_tile };
        let names = |count: usize| (0..count).map(|i| format!("{i}.png")).collect::<Vec<_>>();
        let summary = Summary {
            retried_f32: 1,
            retried_f32_paths: vec!["cats/a.png".into()],
            tiled: 7,
            tiled_paths: names(7),
            backoffs: vec![lowered(2, None), lowered(1, Some(512))],
            ..Summary::default()
        };
        let text = BakeReport {
            summary: &summary,
            problems: &[],
            device: "cuda:0",
            divergences: &[],
            setup: &BTreeMap::new(),
            peak_rss: 0,
        }
        .text();
        let lines: Vec<_> = text.lines().skip(1).collect();
        assert_eq!(
            lines,
            [
                "1 repeated in f32, the encoder overflowed in the precision asked for: `cats/a.png`",
                "7 encoded in tiles, which gives other latents than one piece does: \
                 `0.png`, `1.png`, `2.png`, `3.png`, `4.png`, and 2 more",
                "out of memory: 1024x1024 went from batch 8 to batch 2",
                "out of memory: 1024x1024 went from batch 8 to tiles of 512, 1 at once",
            ]
        );
    }
}
