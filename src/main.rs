//! `prebake`: parse, run one command, turn its outcome into an exit code.

mod cli;
mod commands;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = match cli::config::expand(std::env::args_os().collect()) {
        Ok(arguments) => arguments,
        Err(error) => return cli::ui::fail_early(&error),
    };
    let cli = cli::args::Cli::parse_from(arguments);
    commands::run(cli)
}
