//! `prebake plan`

use super::context::{Planned, plan_for};
use crate::cli::args::PlanArgs;
use crate::cli::ui::{Ui, exit};
use prebake::error::Result;
use prebake::problem::Problem;
use prebake::report::plan::PlanReport;

pub(crate) fn run(args: &PlanArgs, ui: &Ui) -> Result<u8> {
    let planned = plan_for(&args.common, &args.recipe, ui)?;
    Ok(show(&planned, ui))
}

/// Shows a plan and says whether it has findings.
pub(crate) fn show(planned: &Planned, ui: &Ui) -> u8 {
    let report =
        PlanReport::new(&planned.plan, &planned.looked.collected, &planned.resolved.recipe, &planned.locations);
    ui.problems(report.problems());
    ui.result(&report.text(ui.is_verbose()));
    ui.document(&report.json());
    if report.problems().iter().any(Problem::is_error) { exit::FINDINGS } else { exit::FINE }
}
