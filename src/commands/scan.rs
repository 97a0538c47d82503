//! `prebake scan`

use super::context::look;
use crate::cli::args::ScanArgs;
use crate::cli::ui::{Ui, exit};
use prebake::error::Result;
use prebake::problem::Problem;
use prebake::report::scan::ScanReport;

pub(crate) fn run(args: &ScanArgs, ui: &Ui) -> Result<u8> {
    let looked = look(&args.common, args.deep, ui)?;
    let report = ScanReport::new(&looked.collected);
    ui.problems(report.problems());
    ui.result(&report.text());
    ui.document(&report.json());
    Ok(if report.problems().iter().any(Problem::is_error) { exit::FINDINGS } else { exit::FINE })
}
