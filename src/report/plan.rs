//! The plan, as `plan`, `status` and `bake --dry-run` show it.

use crate::plan::{BucketRow, Collected, Plan, PlannedSample, Status};
use crate::problem::{Kind, Problem, Severity};
use crate::recipe::{Posterior, Recipe};
use crate::store::Locations;
use crate::units::{Size, human_bytes, printable};
use crate::vae::{Budget, Step};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Write;

/// Samples with the same status and reasons that are listed before only their number is given.
const LISTED: usize = 5;

/// A plan with what it was made from.
pub struct PlanReport<'a> {
    plan: &'a Plan,
    recipe: &'a Recipe,
    locations: &'a Locations,
    budget: Option<&'a Budget>,
    problems: Vec<Problem>,
}

/// Problems of the scan and of the plan, without repeats.
///
/// Of the scan's warnings those stay out that the conventions say better: what happens to alpha, orientation, colour
/// profile and bit depth.
pub fn problems(plan: &Plan, collected: &Collected) -> Vec<Problem> {
    let said_better = |problem: &&Problem| {
        problem.severity == Severity::Warning
            && matches!(problem.kind, Kind::Alpha | Kind::Oriented | Kind::Icc | Kind::BitDepth)
    };
    let of_scan = collected.problems.iter().filter(|problem| !said_better(problem));
    let mut seen = HashSet::new();
    of_scan.chain(&plan.problems).filter(|problem| seen.insert(*problem)).cloned().collect()
}

impl<'a> PlanReport<'a> {
    /// Makes the report of `plan`; without weights there is no `budget`, and what an encode takes is left out.
    pub fn new(
        plan: &'a Plan,
        collected: &Collected,
        recipe: &'a Recipe,
        locations: &'a Locations,
        budget: Option<&'a Budget>,
    ) -> Self {
        Self { plan, recipe, locations, budget, problems: problems(plan, collected) }
    }

    /// All problems, those of the scan first.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Buckets, totals, and why things are stale, for people.
    pub fn text(&self, verbose: bool) -> String {
        let mut text = String::new();
        for (target, settings) in &self.plan.settings {
            let shown = ["resolution", "bucket-step", "upscale", "flip", "resize"];
            let settings: Vec<_> = shown.iter().filter_map(|&k| settings.get(k).map(|v| format!("{k} {v}"))).collect();
            let _ = writeln!(text, "for {} · {} · {}", target.name(), self.recipe.family.name(), settings.join(" · "));
        }
        self.write_buckets(&mut text);
        self.write_states(&mut text, verbose);
        let totals = self.plan.totals();
        let _ = write!(
            text,
            "fresh {}, stale {}, missing {}, damaged {}, foreign {}, orphans {}; latents take {}",
            totals.fresh,
            totals.stale,
            totals.missing,
            totals.damaged,
            totals.foreign,
            totals.orphans,
            human_bytes(totals.latent_bytes)
        );
        for divergence in &self.plan.divergences {
            let _ = write!(text, "\n{}", divergence.text());
        }
        if !self.plan.weights_known {
            text += "\nno --vae given: everything but the weights was compared";
        }
        text
    }

    fn write_buckets(&self, text: &mut String) {
        let memory = if self.budget.is_some() { "  peak memory" } else { "" };
        let _ = writeln!(text, "{:>12}  {:>7}  {:>8}  {:>8}{memory}", "bucket", "images", "repeats", "batches");
        for row in &self.plan.buckets {
            let BucketRow { reso, images, repeats, batches, .. } = row;
            let mark = if row.underfilled { "  under-filled" } else { "" };
            let step = self.budget.map_or_else(String::new, |budget| step_text(&budget.planned(*reso)));
            let _ = writeln!(text, "{:>12}  {images:>7}  {repeats:>8}  {batches:>8}{step}{mark}", reso.to_string());
        }
    }

    /// What the encoder takes for each bucket, the largest first.
    fn cache_batch_json(&self) -> Vec<Value> {
        let Some(budget) = self.budget else { return Vec::new() };
        let sizes: BTreeSet<(u64, Size)> = self.plan.buckets.iter().map(|row| (row.reso.area(), row.reso)).collect();
        let row = |(area, size): (u64, Size)| {
            let Step { tile, piece, batch, peak_bytes, .. } = budget.planned(size);
            json!({
                "area": area,
                "bucket": size,
                "batch": batch,
                "peak_bytes": peak_bytes,
                "tiled": tile.is_some(),
                "tile": tile.map(|_| piece),
            })
        };
        sizes.into_iter().rev().map(row).collect()
    }

    /// What is not fresh, grouped by status and reasons.
    fn write_states(&self, text: &mut String, verbose: bool) {
        let mut groups: BTreeMap<(Status, String), Vec<&PlannedSample>> = BTreeMap::new();
        for sample in self.plan.samples.iter().filter(|sample| sample.status != Status::Fresh) {
            let reasons: Vec<_> = sample.reasons.iter().map(|reason| reason.text.as_str()).collect();
            groups.entry((sample.status, reasons.join("; "))).or_default().push(sample);
        }
        for ((status, reasons), samples) in groups {
            let status = status.name();
            let why = if reasons.is_empty() { String::new() } else { format!(": {reasons}") };
            let _ = writeln!(text, "{} {status}{why}", samples.len());
            let listed = if verbose { samples.len() } else { LISTED.min(samples.len()) };
            for sample in &samples[..listed] {
                let _ = writeln!(text, "    {}", printable(&sample.path));
            }
            if listed < samples.len() {
                let _ = writeln!(text, "    … and {} more (-v lists them)", samples.len() - listed);
            }
        }
    }

    /// The JSON of the contract.
    pub fn json(&self) -> Value {
        let nominal = self.plan.nominal_area;
        let largest = self.plan.samples.iter().map(|sample| sample.placement.assignment.bucket.area()).max();
        json!({
            "recipe": self.recipe_json(),
            "samples": self.plan.samples.iter().map(sample_json).collect::<Vec<_>>(),
            "orphans": self.plan.orphans.iter().map(|path| self.locations.display(path)).collect::<Vec<_>>(),
            "problems": self.problems,
            "buckets": self.plan.buckets,
            "divergences": self.plan.divergences,
            "setup": self.plan.setup,
            "totals": self.plan.totals(),
            "weights_compared": self.plan.weights_known,
            "advice": {"cache_batch": self.cache_batch_json(), "largest_bucket_area": largest, "nominal_area": nominal},
        })
    }

    /// Every setting by its long flag name; those of the first target, and each target's own under its name.
    fn recipe_json(&self) -> Value {
        let recipe = self.recipe;
        let mut json = json!({
            "for": recipe.targets,
            "family": recipe.family,
            "grad-accum": recipe.grad_accum,
            "gpus": recipe.gpus,
            "dtype": recipe.precision.map_or("auto", crate::recipe::Precision::name),
            "tile": typed("tile", &recipe.tile.to_string()),
            "posterior": if recipe.posterior == Posterior::Mean { "mean" } else { "sample" },
            "seed": if let Posterior::Sample { seed } = recipe.posterior { json!(seed) } else { Value::Null },
            "foreign": if recipe.rebuild_foreign { "rebuild" } else { "keep" },
        });
        for target in recipe.targets.iter().rev() {
            let Some(settings) = self.plan.settings.get(target) else { continue };
            let typed = settings.iter().map(|(name, text)| (name.clone(), typed(name, text)));
            let typed: serde_json::Map<String, Value> = typed.collect();
            for (name, value) in &typed {
                json[name] = value.clone();
            }
            json[target.name()] = Value::Object(typed);
        }
        json
    }
}

/// `2.4 GiB`, with the batch and tiles where there are any.
fn step_text(step: &Step) -> String {
    let batch = if step.batch > 1 { format!(", {} at once", step.batch) } else { String::new() };
    let tiles = if step.tile.is_some() { format!(" in tiles of {}", step.piece) } else { String::new() };
    format!("  {}{tiles}{batch}", human_bytes(step.peak_bytes))
}

/// A setting's text as JSON: numbers, booleans and `none` as such; a colour stays a text even if it is all digits.
fn typed(name: &str, text: &str) -> Value {
    match (text, text.parse::<u64>()) {
        _ if name == "background" => json!(text),
        ("true", _) => json!(true),
        ("false", _) => json!(false),
        ("none", _) => Value::Null,
        (_, Ok(number)) => json!(number),
        _ => json!(text),
    }
}

fn sample_json(sample: &PlannedSample) -> Value {
    let (placement, assignment) = (&sample.placement, &sample.placement.assignment);
    json!({
        "path": sample.path,
        "for": sample.target,
        "width": placement.source.width,
        "height": placement.source.height,
        "bucket": assignment.bucket,
        "resized": assignment.resized,
        "crop": assignment.crop,
        "upscale": assignment.upscale(placement.source),
        "crop_loss": assignment.crop_loss(),
        "key": sample.key,
        "artefact": sample.artefact,
        "status": sample.status,
        "reasons": sample.reasons,
    })
}
