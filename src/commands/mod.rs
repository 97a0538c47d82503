//! One short file a subcommand: options → library → terminal.

mod bake;
mod context;
mod pixels;
mod plan;
mod scan;
mod status;
mod tokens;

use crate::cli::args::{Cli, Command, Common};
use crate::cli::ui::Ui;
use prebake::error::Result;
use std::process::ExitCode;

/// Runs the command and turns its outcome into an exit code.
pub(crate) fn run(cli: Cli) -> ExitCode {
    match cli.command {
        Command::Scan(args) => with_ui(&args.common, |ui| scan::run(&args, ui)),
        Command::Tokens(args) => with_ui(&args.common, |ui| tokens::run(&args, ui)),
        Command::Plan(args) => with_ui(&args.common, |ui| plan::run(&args, ui)),
        Command::Bake(args) => with_ui(&args.common, |ui| bake::run(&args, ui)),
        Command::Status(args) => with_ui(&args.common, |ui| status::run(&args, ui)),
        Command::Pixels(args) => with_ui(&args.common, |ui| pixels::run(&args, ui)),
    }
}

fn with_ui(common: &Common, command: impl FnOnce(&Ui) -> Result<u8>) -> ExitCode {
    let ui = Ui::new(common);
    match command(&ui) {
        Ok(code) => {
            ui.progress().clear();
            ExitCode::from(code)
        }
        Err(error) => ui.failure(&error),
    }
}
