//! `prebake status`

use super::context::plan_for;
use super::plan::show;
use crate::cli::args::StatusArgs;
use crate::cli::ui::{Ui, exit};
use prebake::error::Result;

pub(crate) fn run(args: &StatusArgs, ui: &Ui) -> Result<u8> {
    let planned = plan_for(&args.common, &args.recipe, ui)?;
    let findings = show(&planned, &args.recipe, ui);
    let stale = args.check && !planned.plan.is_fresh();
    Ok(if stale { exit::FINDINGS } else { findings })
}
