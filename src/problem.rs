//! What is wrong with one file, as data: reports list problems, they never stop a run.

use serde::{Deserialize, Serialize};

/// How bad a problem is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// This sample gets no artefact.
    Error,
    /// The sample is baked, but something about it harms training.
    Warning,
    /// Worth knowing.
    Note,
}

/// The kinds of problem, spelled in reports as in the contract of the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Cut or corrupt.
    Damaged,
    /// Zero bytes.
    Empty,
    /// Named like an image, holds something else.
    NotImage,
    /// An image of a format, or a kind of file, that is not read.
    Unsupported,
    /// Declares more pixels than are decoded.
    TooLarge,
    /// Smaller than one bucket step, and enlarging is not allowed.
    TooSmall,
    /// No legal bucket for this aspect ratio.
    ExtremeAspect,
    /// Two samples would share one artefact.
    StemCollision,
    /// The encoder gave NaN or infinity, in f32 too.
    Nan,
    /// A caption that is not UTF-8.
    CaptionEncoding,
    /// No caption file.
    CaptionMissing,
    /// A caption without a word.
    CaptionEmpty,
    /// A caption without an image.
    OrphanCaption,
    /// Transparency, and what happens to it.
    Alpha,
    /// An orientation tag, and what happens to it.
    Oriented,
    /// A colour profile other than sRGB, and what happens to it.
    Icc,
    /// More than 8 bits a channel.
    BitDepth,
    /// More than one frame; the first is used.
    Animated,
    /// The extension names another format than the content.
    WrongExtension,
    /// Byte for byte the same as another image.
    Duplicate,
    /// Enlarged to fill its bucket.
    Enlarged,
    /// Loses much of the picture to the crop.
    CropLoss,
    /// Which bucket it gets depends on the order in which the trainer comes across the files.
    Contested,
    /// Sits in a bucket with fewer images than a batch.
    Underfilled,
    /// Hidden files and folders left out.
    Hidden,
    /// A cache made by another tool: it cannot be verified.
    Foreign,
    /// A row of a training file that is no JSON.
    Malformed,
    /// A line of a training file without anything.
    Blank,
    /// A row whose columns or values are not those of its format.
    BadRow,
    /// An example of which nothing would be trained.
    NoAnswer,
    /// A conversation that the chat template refuses.
    TemplateRefused,
    /// A text that two engines count differently.
    Miscounted,
}

impl Kind {
    /// Its name in reports.
    pub fn name(self) -> String {
        match serde_json::to_value(self) {
            Ok(serde_json::Value::String(name)) => name,
            other => unreachable!("a unit variant serialises as a string, not {other:?}"),
        }
    }
}

/// One problem of one file.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Problem {
    /// Relative to the dataset, `/`-separated, bytes that are not UTF-8 as `\xNN`.
    pub path: String,
    /// What kind of problem.
    pub kind: Kind,
    /// How bad.
    pub severity: Severity,
    /// Actual and allowed value, lower case, one line.
    pub message: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub hint: Option<String>,
    /// Physical line of a file of rows, from 1.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub line: Option<u64>,
}

impl Problem {
    /// An error: this sample gets no artefact.
    pub fn error(path: impl Into<String>, kind: Kind, message: impl Into<String>) -> Self {
        Self { path: path.into(), kind, severity: Severity::Error, message: message.into(), hint: None, line: None }
    }

    /// A warning: baked, but harmful to training.
    pub fn warning(path: impl Into<String>, kind: Kind, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(path, kind, message) }
    }

    /// A note.
    pub fn note(path: impl Into<String>, kind: Kind, message: impl Into<String>) -> Self {
        Self { severity: Severity::Note, ..Self::error(path, kind, message) }
    }

    /// The same problem with a way out.
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The same problem in one line of its file.
    pub fn at_line(mut self, line: u64) -> Self {
        self.line = Some(line);
        self
    }

    /// True when the sample gets no artefact.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}
