//! `prebake bake`

use super::context::{interruptible, plan_for};
use super::plan::show;
use crate::cli::args::BakeArgs;
use crate::cli::recipe::{budget, open_devices};
use crate::cli::ui::{Ui, exit};
use prebake::bake::{Bake, Encode, Engine, Options};
use prebake::error::{Error, IoContext, Result};
use prebake::problem::Problem;
use prebake::recipe::Precision;
use prebake::report;
use prebake::store::Lock;
use prebake::trainers::description::describe;
use prebake::vae::Weights;
use prebake::vae::device::Opened;
use std::sync::Arc;
use std::time::Instant;

pub(crate) fn run(args: &BakeArgs, ui: &Ui) -> Result<u8> {
    if args.recipe.vae.is_none() && !args.dry_run {
        return Err(no_weights());
    }
    ensure_baked(args)?;
    let started = Instant::now();
    let _lock = if args.dry_run { None } else { lock(args, ui)? };
    let mut planned = plan_for(&args.common, &args.recipe, ui)?;
    if args.dry_run {
        return Ok(show(&planned, &args.recipe, ui));
    }
    let (devices, precision) = open_devices(&args.recipe, ui)?;
    let Some(weights) = planned.resolved.weights.take() else { return Err(no_weights()) };
    // Before the encoder is loaded: the estimates count its weights.
    let budget = budget(&args.recipe, &weights, &devices, precision);
    let device_name = devices.iter().map(|opened| opened.name.as_str()).collect::<Vec<_>>().join(",");
    let engines = if planned.plan.needs_encoder() { load(weights, devices, precision)? } else { Vec::new() };
    let engines: Vec<&dyn Encode> = engines.iter().map(|engine| engine as &dyn Encode).collect();
    let options = Options { threads: planned.looked.threads, ram: args.ram, budget };
    let bake = Bake {
        plan: &planned.plan,
        collected: &planned.looked.collected,
        engines: &engines,
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
    let report = report::bake::BakeReport {
        summary: &summary,
        problems: &problems,
        device: &device_name,
        divergences: &planned.plan.divergences,
        setup: &planned.plan.setup,
        peak_rss: peak_rss(),
    };
    ui.result(&report.text());
    ui.document(&report.json());
    Ok(match () {
        () if summary.interrupted => exit::INTERRUPTED,
        () if problems.iter().any(Problem::is_error) => exit::FINDINGS,
        () => exit::FINE,
    })
}

/// The encoder on each device.
fn load(weights: Weights, devices: Vec<Opened>, precision: Precision) -> Result<Vec<Engine>> {
    let weights = Arc::new(weights);
    let engine = |Opened { device, name }| Engine::new(Arc::clone(&weights), device, name, precision);
    devices.into_iter().map(engine).collect()
}

/// Refuses trainers whose caches are not written.
fn ensure_baked(args: &BakeArgs) -> Result<()> {
    let Some(target) = args.recipe.targets.iter().find(|target| !target.is_baked()) else { return Ok(()) };
    let message = format!("--for {}: its buckets are planned, its caches are not written", target.name());
    Err(Error::usage(message, "use `prebake plan` for it"))
}

fn no_weights() -> Error {
    Error::usage("bake needs the VAE's weights", "--vae FILE: a VAE or a full checkpoint in safetensors")
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
