//! `prebake bake`

use super::context::{interruptible, plan_for};
use super::plan::show;
use crate::cli::args::BakeArgs;
use crate::cli::recipe::{cache_batch, open_devices};
use crate::cli::ui::{Ui, exit};
use prebake::bake::{Bake, Encode, Engine, Options};
use prebake::error::{Error, IoContext, Result};
use prebake::problem::Problem;
use prebake::report;
use prebake::store::Lock;
use prebake::trainers::description::describe;
use std::time::Instant;

pub(crate) fn run(args: &BakeArgs, ui: &Ui) -> Result<u8> {
    if args.recipe.vae.is_none() && !args.dry_run {
        return Err(Error::usage(
            "bake needs the VAE's weights",
            "--vae FILE: a VAE or a full checkpoint in safetensors",
        ));
    }
    let started = Instant::now();
    let _lock = if args.dry_run { None } else { lock(args, ui)? };
    let mut planned = plan_for(&args.common, &args.recipe, ui)?;
    if args.dry_run {
        return Ok(show(&planned, &args.recipe, ui));
    }
    let (selection, precision) = open_devices(&args.recipe)?;
    if let Some(fallback) = &selection.fallback {
        ui.remark(fallback);
    }
    let (device, device_name) = (selection.devices[0].device.clone(), selection.devices[0].name.clone());
    let weights = planned.resolved.weights.take().filter(|_| planned.plan.needs_encoder());
    let engine = weights.map(|weights| Engine::new(weights, device, device_name.clone(), precision)).transpose()?;
    let options =
        Options { threads: planned.looked.threads, ram: args.ram, cache_batch: cache_batch(&args.recipe, &selection) };
    let bake = Bake {
        plan: &planned.plan,
        collected: &planned.looked.collected,
        engine: engine.as_ref().map(|engine| engine as &dyn Encode),
        options: &options,
        locations: &planned.locations,
        index: &planned.looked.index,
        progress: ui.progress(),
        cancel: &planned.looked.cancel,
        started,
    };
    let mut problems = report::plan::problems(&planned.plan, &planned.looked.collected);
    let summary = bake.run().inspect_err(|_| ui.problems(&problems))?;
    problems.extend(summary.failed.iter().cloned());
    ui.problems(&problems);
    let report =
        report::bake::BakeReport { summary: &summary, problems: &problems, device: &device_name, peak_rss: peak_rss() };
    ui.result(&report.text());
    ui.document(&report.json());
    Ok(match () {
        () if summary.interrupted => exit::INTERRUPTED,
        () if problems.iter().any(Problem::is_error) => exit::FINDINGS,
        () => exit::FINE,
    })
}

/// Waits until no other bake runs on the dataset, so that none encodes what the other is about to.
fn lock(args: &BakeArgs, ui: &Ui) -> Result<Option<Lock>> {
    let root = describe(&args.common.dataset, &std::env::current_dir().at(".")?)?.root;
    let cancel = interruptible();
    let waiting = || ui.remark("another bake runs on this dataset: waiting for it to end");
    let lock = Lock::acquire(&root, &cancel, waiting);
    if cancel.is_cancelled() { Err(Error::Interrupted) } else { Ok(lock) }
}

/// The highest resident size of this process so far, in bytes; 0 where the system does not tell.
fn peak_rss() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").trim().parse::<u64>().ok());
    kib.map_or(0, |kib| kib * 1024)
}
