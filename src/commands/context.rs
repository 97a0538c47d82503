//! What every command starts with: the dataset scanned, the recipe resolved, the plan built.

use crate::cli::args::{Common, RecipeArgs};
use crate::cli::recipe::{Resolved, resolve};
use crate::cli::ui::Ui;
use prebake::error::{Error, IoContext, Result};
use prebake::plan::{self, Collected, Plan, Request};
use prebake::progress::Cancel;
use prebake::store::{Index, Locations};
use prebake::trainers::description::describe;
use std::sync::OnceLock;

/// Captions looked for unless a flag or the dataset's description says otherwise.
const CAPTION_EXT: [&str; 2] = [".txt", ".caption"];

/// A dataset that was looked at.
pub(crate) struct Looked {
    pub(crate) collected: Collected,
    pub(crate) index: Index,
    pub(crate) cancel: Cancel,
    pub(crate) threads: usize,
}

/// Scans DATASET.
///
/// # Errors
/// A dataset that cannot be read at all, or an interrupt.
pub(crate) fn look(common: &Common, deep: bool, ui: &Ui) -> Result<Looked> {
    let threads = start_threads(common);
    let working_dir = std::env::current_dir().at(".")?;
    let description = describe(&common.dataset, &working_dir)?;
    for warning in &description.warnings {
        ui.remark(&format!("warning: {warning}"));
    }
    let (index, warning) = Index::open(&description.root);
    if let Some(warning) = warning {
        ui.remark(&format!("warning: {warning}"));
    }
    let cancel = interruptible();
    let given: Vec<String> = common.caption_ext.iter().map(|e| dotted(e)).collect();
    let defaults: Vec<String> = CAPTION_EXT.map(str::to_owned).to_vec();
    let options =
        plan::CollectOptions { caption_ext: (!given.is_empty()).then_some(given), default_caption_ext: defaults, deep };
    let collected = plan::collect(description, &options, &index, ui.progress(), &cancel)?;
    report_trouble(&index, ui);
    if cancel.is_cancelled() {
        return Err(Error::Interrupted);
    }
    Ok(Looked { collected, index, cancel, threads })
}

/// Starts the CPU workers; how many there are.
pub(crate) fn start_threads(common: &Common) -> usize {
    let threads = common.threads.map_or_else(all_cores, |threads| threads as usize);
    // Fails only where a pool exists already, which is then as good.
    let _ = rayon::ThreadPoolBuilder::new().num_threads(threads).build_global();
    threads
}

/// A plan and all it was made from.
pub(crate) struct Planned {
    pub(crate) looked: Looked,
    pub(crate) resolved: Resolved,
    pub(crate) locations: Locations,
    pub(crate) plan: Plan,
}

/// Scans DATASET, resolves the recipe and builds the plan.
///
/// # Errors
/// As [`look`], and flags that contradict each other, the weights or a trainer.
pub(crate) fn plan_for(common: &Common, args: &RecipeArgs, ui: &Ui) -> Result<Planned> {
    let looked = look(common, false, ui)?;
    let resolved = resolve(args, &looked.index)?;
    if let Some(assumption) = &resolved.assumption {
        ui.remark(assumption);
    }
    let locations = Locations::new(looked.collected.description.root.clone(), args.out.clone());
    let request = Request {
        collected: &looked.collected,
        recipe: &resolved.recipe,
        encoder: resolved.encoder,
        locations: &locations,
        index: &looked.index,
        progress: ui.progress(),
    };
    let plan = plan::build(&request)?;
    report_trouble(&looked.index, ui);
    Ok(Planned { looked, resolved, locations, plan })
}

/// Writes the index; trouble with it costs time, never a result.
pub(crate) fn report_trouble(index: &Index, ui: &Ui) {
    if let Some(trouble) = index.flush() {
        ui.remark(&format!("warning: {trouble}"));
    }
}

fn dotted(extension: &str) -> String {
    if extension.starts_with('.') { extension.to_owned() } else { format!(".{extension}") }
}

fn all_cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The flag that Ctrl-C raises; a second Ctrl-C ends the process at once.
pub(crate) fn interruptible() -> Cancel {
    static CANCEL: OnceLock<Cancel> = OnceLock::new();
    let cancel = CANCEL.get_or_init(|| {
        let cancel = Cancel::default();
        let raised = cancel.clone();
        // Without a handler the default one ends the process; artefacts are atomic, so nothing is torn then either.
        let _ = ctrlc::set_handler(move || {
            if raised.is_cancelled() {
                #[allow(clippy::exit, reason = "the user asked twice")]
                std::process::exit(i32::from(crate::cli::ui::exit::INTERRUPTED));
            }
            raised.cancel();
        });
        cancel
    });
    cancel.clone()
}
