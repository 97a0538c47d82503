//! `prebake.toml`: the same settings by their long flag names. They are put before the flags typed, which win.

use clap::CommandFactory;
use prebake::error::{Error, IoContext, Result};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// Looked for beside DATASET.
const FILE_NAME: &str = "prebake.toml";

/// The arguments with the settings of the config file put in behind the subcommand.
///
/// # Errors
/// A file that cannot be read or is no table of flags of any subcommand.
pub(crate) fn expand(arguments: Vec<OsString>) -> Result<Vec<OsString>> {
    let Some((command, file)) = locate(&arguments) else { return Ok(arguments) };
    let text = std::fs::read_to_string(&file).at(&file)?;
    let table: Table = text.parse().map_err(|e| Error::input(&file, format!("is no valid TOML: {e}")))?;
    let mut expanded = arguments;
    let settings = settings(&file, &table, &expanded[command].to_string_lossy())?;
    expanded.splice(command + 1..command + 1, settings);
    Ok(expanded)
}

/// The position of the subcommand, and the config file that applies.
fn locate(arguments: &[OsString]) -> Option<(usize, PathBuf)> {
    let command = arguments.iter().position(|a| super::args::Cli::command().find_subcommand(a).is_some())?;
    let after = &arguments[command + 1..];
    let given = after.iter().enumerate().find_map(|(i, argument)| {
        let text = argument.to_string_lossy();
        match text.strip_prefix("--config") {
            Some("") => after.get(i + 1).map(PathBuf::from),
            Some(rest) => rest.strip_prefix('=').map(PathBuf::from),
            None => None,
        }
    });
    let beside = || after.iter().map(Path::new).filter(|p| p.is_dir()).map(|p| p.join(FILE_NAME)).find(|p| p.is_file());
    let beside_file = || {
        after
            .iter()
            .map(Path::new)
            .filter(|p| is_description(p))
            .map(|p| p.with_file_name(FILE_NAME))
            .find(|p| p.is_file())
    };
    Some((command, given.or_else(beside).or_else(beside_file)?))
}

fn is_description(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "toml") && path.is_file() && path.file_name() != Some(FILE_NAME.as_ref())
}

/// Flags of `command`; those of other subcommands are left out, unknown ones refused.
fn settings(file: &Path, table: &Table, command: &str) -> Result<Vec<OsString>> {
    let cli = super::args::Cli::command();
    let takes_value = |key: &str| {
        let argument = cli.get_subcommands().flat_map(clap::Command::get_arguments).find(|a| a.get_long() == Some(key));
        argument.is_some_and(|argument| argument.get_action().takes_values())
    };
    let has = |sub: &clap::Command, key: &str| sub.get_arguments().any(|argument| argument.get_long() == Some(key));
    let mut arguments = Vec::new();
    for (key, value) in table {
        if !cli.get_subcommands().any(|sub| has(sub, key)) || key == "config" {
            let message = format!("`{key}` is no setting");
            return Err(Error::input(file, message).with_hint("keys are long flag names: resolution = 768"));
        }
        if !cli.get_subcommands().any(|sub| sub.get_name() == command && has(sub, key)) {
            continue;
        }
        let text = match value {
            Value::Boolean(on) if takes_value(key) => Some(on.to_string()),
            Value::Boolean(true) => None,
            Value::Boolean(false) => continue,
            Value::Array(items) => Some(items.iter().map(plain).collect::<Vec<_>>().join(",")),
            other => Some(plain(other)),
        };
        arguments.push(match text {
            None => OsString::from(format!("--{key}")),
            Some(text) => OsString::from(format!("--{key}={text}")),
        });
    }
    Ok(arguments)
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
