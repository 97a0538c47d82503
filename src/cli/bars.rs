//! The library's progress as bars, as JSON lines, or not at all.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use prebake::progress::Progress;
use std::io::Write;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// JSON lines come no faster than this.
const JSON_INTERVAL: Duration = Duration::from_millis(200);

/// Draws the progress of one command.
pub(crate) enum Reporter {
    /// Nobody watches.
    Silent,
    /// Bars on stderr.
    Bars(Mutex<ProgressBar>),
    /// One JSON object a line on stderr.
    Json(Mutex<JsonStage>),
}

#[derive(Default)]
pub(crate) struct JsonStage {
    name: &'static str,
    done: u64,
    total: Option<u64>,
    last: Option<Instant>,
}

impl Reporter {
    pub(crate) fn silent() -> Self {
        Self::Silent
    }

    pub(crate) fn bars() -> Self {
        Self::Bars(Mutex::new(ProgressBar::hidden()))
    }

    pub(crate) fn json() -> Self {
        Self::Json(Mutex::default())
    }

    /// Takes the bar away, so that text can follow.
    pub(crate) fn clear(&self) {
        if let Self::Bars(bar) = self {
            bar.lock().unwrap_or_else(PoisonError::into_inner).finish_and_clear();
        }
    }
}

fn bar(name: &'static str, total: Option<u64>) -> ProgressBar {
    let template = match total {
        Some(_) => "{prefix:>6} {wide_bar} {human_pos}/{human_len}  {per_sec}  {eta} left",
        None => "{prefix:>6} {spinner} {human_pos}  {per_sec}",
    };
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr()).with_style(style).with_prefix(name);
    bar.enable_steady_tick(Duration::from_millis(250));
    bar
}

impl JsonStage {
    fn line(&mut self) {
        self.last = Some(Instant::now());
        let line = serde_json::json!({"stage": self.name, "done": self.done, "total": self.total});
        let _ = writeln!(std::io::stderr(), "{line}");
    }
}

impl Progress for Reporter {
    fn stage(&self, name: &'static str, total: Option<u64>) {
        match self {
            Self::Silent => {}
            Self::Bars(current) => {
                let mut current = current.lock().unwrap_or_else(PoisonError::into_inner);
                current.finish_and_clear();
                *current = bar(name, total);
            }
            Self::Json(stage) => {
                let mut stage = stage.lock().unwrap_or_else(PoisonError::into_inner);
                *stage = JsonStage { name, done: 0, total, last: None };
                stage.line();
            }
        }
    }

    fn advance(&self, count: u64) {
        match self {
            Self::Silent => {}
            Self::Bars(bar) => bar.lock().unwrap_or_else(PoisonError::into_inner).inc(count),
            Self::Json(stage) => {
                let mut stage = stage.lock().unwrap_or_else(PoisonError::into_inner);
                stage.done += count;
                let finished = Some(stage.done) == stage.total;
                if finished || stage.last.is_none_or(|last| last.elapsed() >= JSON_INTERVAL) {
                    stage.line();
                }
            }
        }
    }

    fn say(&self, message: &str) {
        match self {
            Self::Bars(bar) => {
                bar.lock().unwrap_or_else(PoisonError::into_inner).suspend(|| {
                    let _ = writeln!(std::io::stderr(), "{message}");
                });
            }
            _ => {
                let _ = writeln!(std::io::stderr(), "{message}");
            }
        }
    }
}
