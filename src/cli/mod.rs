//! The command line: flags, `prebake.toml`, and what reaches the terminal.

pub(crate) mod args;
pub(crate) mod bars;
pub(crate) mod config;
pub(crate) mod recipe;
pub(crate) mod ui;
