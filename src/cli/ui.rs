//! What reaches the terminal: decided once, here.

use super::args::{ColorChoice, Common, ProgressChoice};
use super::bars::Reporter;
use prebake::error::Error;
use prebake::problem::{Problem, Severity};
use prebake::units::printable;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

/// Exit codes of the contract.
pub(crate) mod exit {
    /// All well, warnings included.
    pub(crate) const FINE: u8 = 0;
    /// Finished, with errors on some samples, or `--check` not fresh.
    pub(crate) const FINDINGS: u8 = 1;
    /// Could not do it.
    pub(crate) const FAILURE: u8 = 2;
    /// Interrupted; what was finished is kept.
    pub(crate) const INTERRUPTED: u8 = 130;
}

/// Warnings of one kind that are listed before only their number is given; `--verbose` lists all.
const LISTED: usize = 5;

/// Rows with errors of one kind that are listed; a file may have a million of them.
const ROWS_LISTED: usize = 20;

/// Decides what is said where.
pub(crate) struct Ui {
    json: bool,
    quiet: bool,
    verbose: bool,
    colour: bool,
    reporter: Reporter,
}

impl Ui {
    pub(crate) fn new(common: &Common) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let colour = match common.color {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => terminal && !no_color,
        };
        let reporter = match common.progress {
            ProgressChoice::None => Reporter::silent(),
            ProgressChoice::Json => Reporter::json(),
            ProgressChoice::Bars => Reporter::bars(),
            ProgressChoice::Auto if terminal && !common.quiet => Reporter::bars(),
            ProgressChoice::Auto => Reporter::silent(),
        };
        Self { json: common.json, quiet: common.quiet, verbose: common.verbose, colour, reporter }
    }

    /// Where the library reports its progress.
    pub(crate) fn progress(&self) -> &Reporter {
        &self.reporter
    }

    /// True when every warning and reason is to be listed.
    pub(crate) fn is_verbose(&self) -> bool {
        self.verbose
    }

    /// A result for people: on stdout, or on stderr beside a JSON document.
    pub(crate) fn result(&self, text: &str) {
        self.reporter.clear();
        if self.json {
            if !self.quiet {
                write_stderr(text);
            }
        } else {
            // A reader that left (`| head`) is no failure.
            let _ = writeln!(std::io::stdout(), "{text}");
        }
    }

    /// The JSON document, if one was asked for.
    pub(crate) fn document(&self, value: &serde_json::Value) {
        if self.json {
            self.reporter.clear();
            let _ = writeln!(std::io::stdout(), "{value:#}");
        }
    }

    /// A remark beside the result.
    pub(crate) fn remark(&self, text: &str) {
        if !self.quiet {
            self.reporter.clear();
            write_stderr(text);
        }
    }

    /// Problems by severity, each kind's first few; errors are always all listed.
    pub(crate) fn problems(&self, problems: &[Problem]) {
        self.reporter.clear();
        let mut sorted: Vec<&Problem> = problems.iter().collect();
        sorted.sort_by(|a, b| (a.severity, a.kind, &a.path, a.line).cmp(&(b.severity, b.kind, &b.path, b.line)));
        for group in sorted.chunk_by(|a, b| (a.severity, a.kind) == (b.severity, b.kind)) {
            let severity = group[0].severity;
            if self.quiet && severity != Severity::Error {
                continue;
            }
            let listed = match severity {
                Severity::Error if group[0].line.is_some() => ROWS_LISTED,
                Severity::Error => group.len(),
                _ => LISTED,
            };
            let shown = if self.verbose { group.len() } else { listed.min(group.len()) };
            for problem in &group[..shown] {
                self.problem(problem);
            }
            if shown < group.len() {
                let rest = group.len() - shown;
                write_stderr(&format!("  … and {rest} more like this (-v lists them)"));
            }
            if let Some(hint) = group.iter().find_map(|problem| problem.hint.as_deref()) {
                write_stderr(&format!("  {}: {hint}", self.paint("36", "hint")));
            }
        }
    }

    fn problem(&self, problem: &Problem) {
        let severity = match problem.severity {
            Severity::Error => self.paint("31", "error"),
            Severity::Warning => self.paint("33", "warning"),
            Severity::Note => self.paint("34", "note"),
        };
        let line = problem.line.map(|line| format!("line {line} ")).unwrap_or_default();
        let place =
            if problem.path.is_empty() { String::new() } else { format!("`{}` {line}", printable(&problem.path)) };
        write_stderr(&format!("{severity}: {place}{}", printable(&problem.message)));
    }

    /// An error that ended the command.
    pub(crate) fn failure(&self, error: &Error) -> ExitCode {
        self.reporter.clear();
        write_stderr(&format!("{}: {error}", self.paint("31", "error")));
        if let Some(hint) = error.hint() {
            write_stderr(&format!("{}: {hint}", self.paint("36", "hint")));
        }
        ExitCode::from(if matches!(error, Error::Interrupted) { exit::INTERRUPTED } else { exit::FAILURE })
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// An error from before the flags are known.
pub(crate) fn fail_early(error: &Error) -> ExitCode {
    write_stderr(&format!("error: {error}"));
    if let Some(hint) = error.hint() {
        write_stderr(&format!("hint: {hint}"));
    }
    ExitCode::from(exit::FAILURE)
}

fn write_stderr(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
