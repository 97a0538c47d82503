//! `prebake pixels`

use super::context::plan_for;
use crate::cli::args::PixelsArgs;
use crate::cli::ui::{Ui, exit};
use image::codecs::png::PngEncoder;
use image::{ExtendedColorType, ImageEncoder};
use prebake::error::{Error, IoContext, Result};
use prebake::pixels::{self, Refusal};
use prebake::plan;
use prebake::problem::{Kind, Problem};
use prebake::progress::Progress;
use prebake::report;
use prebake::store::{publish, read_regular};
use rayon::prelude::*;
use serde_json::json;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

pub(crate) fn run(args: &PixelsArgs, ui: &Ui) -> Result<u8> {
    let planned = plan_for(&args.common, &args.recipe, ui)?;
    std::fs::create_dir_all(&args.output).at(&args.output)?;
    ensure_outside(&args.output, &planned.looked.collected.description.root)?;
    let several = planned.resolved.recipe.targets.len() > 1;
    ui.progress().stage("pixels", Some(planned.plan.samples.len() as u64));
    let written: Vec<_> = planned
        .plan
        .samples
        .par_iter()
        .zip(file_names(&planned.plan.samples, several))
        .filter(|_| !planned.looked.cancel.is_cancelled())
        .map(|(sample, name)| {
            let done = write(sample, &planned.looked.collected, &args.output.join(&name));
            ui.progress().advance(1);
            (sample, name, done)
        })
        .collect();
    let mut problems = report::plan::problems(&planned.plan, &planned.looked.collected);
    let mut files = Vec::new();
    for (sample, name, done) in written {
        match done {
            Ok(()) => {
                let bucket = sample.placement.assignment.bucket;
                files.push(json!({"path": sample.path, "for": sample.target, "png": name, "bucket": bucket}));
            }
            Err(Failure::Sample(refusal)) => {
                problems.push(Problem::error(sample.path.clone(), refusal.kind, refusal.message));
            }
            Err(Failure::Run(error)) => return Err(error),
        }
    }
    if planned.looked.cancel.is_cancelled() {
        return Err(Error::Interrupted);
    }
    ui.problems(&problems);
    ui.result(&format!("{} pictures in `{}`", files.len(), args.output.display()));
    ui.document(&json!({"written": files.len(), "files": files, "problems": problems}));
    Ok(if problems.iter().any(Problem::is_error) { exit::FINDINGS } else { exit::FINE })
}

/// Pictures written into the dataset would be samples of it from then on.
fn ensure_outside(output: &Path, root: &Path) -> Result<()> {
    let (output, root) = (output.canonicalize().at(output)?, root.canonicalize().at(root)?);
    let inside = output.strip_prefix(&root).ok();
    let hidden = |path: &Path| path.iter().any(|part| part.as_encoded_bytes().starts_with(b"."));
    if inside.is_some_and(|path| !hidden(path)) {
        let message = "--output lies in the dataset: its pictures would become samples";
        return Err(Error::usage(message, "give a folder outside of DATASET"));
    }
    Ok(())
}

/// `a/b.jpg` → `a__b.jpg.png`; with several targets their name comes first. A name that is taken, by an image at
/// another resolution say, gets a number.
fn file_names(samples: &[plan::PlannedSample], several: bool) -> Vec<PathBuf> {
    let mut taken: HashMap<String, usize> = HashMap::new();
    let name = |sample: &plan::PlannedSample| {
        let flat = sample.path.replace('/', "__");
        let base = if several { format!("{}__{flat}", sample.target.name()) } else { flat };
        let times = taken.entry(base.clone()).or_default();
        *times += 1;
        PathBuf::from(if *times == 1 { format!("{base}.png") } else { format!("{base}__{times}.png") })
    };
    samples.iter().map(name).collect()
}

/// What kept a picture from being written.
enum Failure {
    /// The image gives no pixels.
    Sample(Refusal),
    /// The PNG could not be written.
    Run(Error),
}

fn write(sample: &plan::PlannedSample, collected: &plan::Collected, png: &Path) -> Result<(), Failure> {
    let image = &collected.images[collected.samples[sample.sample].image];
    let unreadable = |error| Failure::Sample(Refusal::new(Kind::Damaged, format!("cannot be read: {error}")));
    let bytes = read_regular(&collected.file(image)).map_err(unreadable)?;
    let prepared = pixels::prepare(&bytes, &sample.placement.pixels).map_err(Failure::Sample)?;
    let (width, height) = (prepared.size.width, prepared.size.height);
    let mut encoded = Vec::new();
    let encoder = PngEncoder::new(&mut encoded);
    let written = encoder.write_image(&prepared.rgb, width, height, ExtendedColorType::Rgb8);
    written.map_err(|error| Failure::Run(Error::input(png, error.to_string())))?;
    publish(png, &encoded).map(drop).map_err(Failure::Run)
}
