//! `prebake plan`

use super::context::{Planned, plan_for};
use crate::cli::args::{PlanArgs, RecipeArgs};
use crate::cli::recipe::{budget, open_devices};
use crate::cli::ui::{Ui, exit};
use prebake::error::Result;
use prebake::problem::Problem;
use prebake::report::plan::PlanReport;
use prebake::units::display_path;
use serde_json::{Value, json};
use std::path::PathBuf;

pub(crate) fn run(args: &PlanArgs, ui: &Ui) -> Result<u8> {
    let planned = plan_for(&args.common, &args.recipe, ui)?;
    Ok(show(&planned, &args.recipe, ui))
}

/// Shows a plan and says whether it has findings.
pub(crate) fn show(planned: &Planned, args: &RecipeArgs, ui: &Ui) -> u8 {
    let Planned { plan, looked, resolved, locations } = planned;
    let budget = resolved.weights.as_ref().and_then(|weights| match open_devices(args, ui) {
        Ok((devices, precision)) => Some(budget(args, weights, &devices, precision)),
        Err(error) => {
            ui.remark(&format!("what an encode takes is not known: {error}"));
            None
        }
    });
    let report = PlanReport::new(plan, &looked.collected, &resolved.recipe, locations, budget.as_ref());
    ui.problems(report.problems());
    ui.result(&report.text(ui.is_verbose()));
    let mut json = report.json();
    for (name, value) in run_settings(args) {
        json["recipe"][name] = value;
    }
    ui.document(&json);
    if report.problems().iter().any(Problem::is_error) { exit::FINDINGS } else { exit::FINE }
}

/// Flags of the recipe that shape no latent and that the library's recipe does not hold.
fn run_settings(args: &RecipeArgs) -> [(&'static str, Value); 4] {
    let path = |path: &Option<PathBuf>| path.as_ref().map_or(Value::Null, |path| json!(display_path(path)));
    [
        ("vae", path(&args.vae)),
        ("out", path(&args.out)),
        ("device", json!(args.device.to_string())),
        ("cache-batch", args.cache_batch.0.map_or_else(|| json!("auto"), |batch| json!(batch))),
    ]
}
