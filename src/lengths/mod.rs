//! Token lengths of a dataset: exact histograms, and what each sequence length would cost and lose. Pure arithmetic.
//!
//! Definitions: an example that is longer than the sequence length is cut to it (or dropped, as the trainer has it). Its
//! answer is *cut* when it begins within the sequence length and ends beyond, and *lost* when it begins at or beyond it:
//! nothing of the example is then trained.

mod candidates;
mod histogram;
pub mod packing;
pub mod padding;
mod recommend;

pub use candidates::{Candidate, ladder};
pub use histogram::{Histogram, Share};
pub use recommend::{Limits, Reason, Recommendation, recommend};

use serde::{Deserialize, Serialize};

/// The part of an example that is trained on, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Tokens before its first token: the prompt.
    pub start: u32,
    /// Tokens up to and with its last token; over `start`.
    pub end: u32,
    /// Tokens that are trained on; fewer than `end - start` where several answers alternate with prompts.
    pub supervised: u32,
}

/// The length of one example, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Example {
    /// All tokens, special ones included.
    pub total: u32,
    /// Its answer, where it has one apart from the prompt.
    pub answer: Option<Answer>,
}

/// Lengths of many examples; merges by addition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lengths {
    /// All tokens of each example.
    pub total: Histogram,
    /// Tokens trained on, of examples with an answer.
    pub supervised: Histogram,
    /// Tokens before the answer, of examples with an answer.
    pub prompt: Histogram,
    /// Tokens up to and with the answer's last, of examples with an answer.
    pub answer_end: Histogram,
}

impl Lengths {
    /// Counts one example.
    pub fn add(&mut self, example: Example) {
        self.total.add(example.total);
        if let Some(answer) = example.answer {
            self.supervised.add(answer.supervised);
            self.prompt.add(answer.start);
            self.answer_end.add(answer.end);
        }
    }

    /// Adds what `other` counted.
    pub fn merge(&mut self, other: &Self) {
        self.total.merge(&other.total);
        self.supervised.merge(&other.supervised);
        self.prompt.merge(&other.prompt);
        self.answer_end.merge(&other.answer_end);
    }

    /// Answers of which nothing lies within `length`.
    pub fn answers_lost(&self, length: u32) -> u64 {
        self.prompt.n() - length.checked_sub(1).map_or(0, |last| self.prompt.within(last))
    }

    /// Answers of which a part lies beyond `length`, and a part within.
    pub fn answers_cut(&self, length: u32) -> u64 {
        self.answer_end.over(length) - self.answers_lost(length)
    }
}
