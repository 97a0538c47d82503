//! `prebake`: parse, run one command, turn its outcome into an exit code.

mod cli;
mod commands;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    #[cfg(feature = "cudnn")]
    forbid_tf32();
    let arguments = match cli::config::expand(std::env::args_os().collect()) {
        Ok(arguments) => arguments,
        Err(error) => return cli::ui::fail_early(&error),
    };
    let cli = cli::args::Cli::parse_from(arguments);
    commands::run(cli)
}

/// From Ampere on cuDNN rounds the factors of f32 convolutions to ten bits, and candle has no switch for it. `f32` in a
/// receipt means f32, so this process goes without.
#[cfg(feature = "cudnn")]
fn forbid_tf32() {
    // SAFETY: the first statement of `main`: no other thread reads the environment yet.
    unsafe { std::env::set_var("NVIDIA_TF32_OVERRIDE", "0") };
}
