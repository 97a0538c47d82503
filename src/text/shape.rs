//! What the rows of a dataset are, by their columns.

use super::json::Json;
use std::collections::BTreeMap;

/// Rows that are looked at to find out.
pub const LOOKED_AT: usize = 1000;

/// What a row is; the order is that in which kinds are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Shape {
    /// `input_ids`, and `labels` of which -100 is not trained on.
    Tokenised,
    /// `messages` of `role` and `content`.
    Messages,
    /// `conversations` of `from` and `value`.
    Conversations,
    /// `instruction` and `output`, with `input`, `system` and `history` where there are any.
    Alpaca,
    /// `prompt` with `chosen` and `rejected`.
    Preference,
    /// `prompt` or `question` with `completion`, `response` or `answer`.
    Completion,
    /// `input` messages with an `ideal` answer, as OpenAI's evals have them.
    Evals,
    /// `segments` of `label` and `text`.
    Segments,
    /// `text` or `content`.
    Text,
}

impl Shape {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Tokenised,
        Self::Messages,
        Self::Conversations,
        Self::Alpaca,
        Self::Preference,
        Self::Completion,
        Self::Evals,
        Self::Segments,
        Self::Text,
    ];

    /// As `--format` has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tokenised => "tokenised",
            Self::Messages => "messages",
            Self::Conversations => "conversations",
            Self::Alpaca => "alpaca",
            Self::Preference => "preference",
            Self::Completion => "completion",
            Self::Evals => "evals",
            Self::Segments => "segments",
            Self::Text => "text",
        }
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|shape| shape.name() == name)
    }

    /// True when `row` has the columns of this kind, of the kinds of value that it needs.
    pub fn fits(self, row: &Json) -> bool {
        let is_list = |key| row.get(key).is_some_and(|value| value.list().is_some());
        let is_text = |key| row.get(key).is_some_and(|value| value.text().is_some());
        let has = |key| row.get(key).is_some();
        match self {
            Self::Tokenised => is_list("input_ids"),
            Self::Messages => is_list("messages"),
            Self::Conversations => is_list("conversations"),
            Self::Alpaca => has("instruction") && has("output"),
            Self::Preference => has("chosen") && has("rejected"),
            Self::Completion => first_of(row, &PROMPTS).is_some() && first_of(row, &COMPLETIONS).is_some(),
            Self::Evals => is_list("input") && has("ideal"),
            Self::Segments => is_list("segments"),
            Self::Text => is_text("text") || is_text("content"),
        }
    }
}

/// Columns that hold what is asked.
pub(super) const PROMPTS: [&str; 2] = ["prompt", "question"];
/// Columns that hold what is answered.
pub(super) const COMPLETIONS: [&str; 3] = ["completion", "response", "answer"];
/// Columns that hold a text.
pub(super) const TEXTS: [&str; 2] = ["text", "content"];

/// The first of these columns that a row has.
pub(super) fn first_of<'a>(row: &'a Json, columns: &[&str]) -> Option<&'a Json> {
    columns.iter().find_map(|column| row.get(column))
}

/// What the first rows turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// What most of them are.
    pub shape: Shape,
    /// How many of those that were looked at.
    pub rows: usize,
    /// How many were looked at, objects all of them.
    pub of: usize,
}

/// Finds out what rows are: the kind that fits most of them, of equals the first in order. `Err` with the columns that
/// were seen, where none fits.
pub fn detect(rows: &[Json]) -> Result<Found, Vec<String>> {
    let objects: Vec<&Json> = rows.iter().filter(|row| matches!(row, Json::Object(_))).collect();
    let mut counts: BTreeMap<Shape, usize> = BTreeMap::new();
    for row in &objects {
        if let Some(shape) = Shape::ALL.into_iter().find(|shape| shape.fits(row)) {
            *counts.entry(shape).or_default() += 1;
        }
    }
    let best = counts.into_iter().max_by_key(|&(shape, count)| (count, std::cmp::Reverse(shape)));
    best.map(|(shape, rows)| Found { shape, rows, of: objects.len() }).ok_or_else(|| {
        let mut columns: Vec<String> = Vec::new();
        for name in objects.iter().flat_map(|row| row.keys()) {
            if !columns.iter().any(|known| known == name) {
                columns.push(name.to_owned());
            }
        }
        columns
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(rows: &[&str]) -> Result<Shape, Vec<String>> {
        let rows: Vec<Json> = rows.iter().map(|row| Json::parse(row.as_bytes()).unwrap()).collect();
        detect(&rows).map(|found| found.shape)
    }

    #[test]
    fn columns_tell_what_rows_are() {
        assert_eq!(found(&[r#"{"input_ids": [1], "messages": []}"#]), Ok(Shape::Tokenised));
        assert_eq!(found(&[r#"{"conversations": []}"#]), Ok(Shape::Conversations));
        assert_eq!(found(&[r#"{"instruction": "a", "input": "", "output": "b", "text": "ab"}"#]), Ok(Shape::Alpaca));
        assert_eq!(found(&[r#"{"prompt": "a", "chosen": "b", "rejected": "c"}"#]), Ok(Shape::Preference));
        assert_eq!(found(&[r#"{"question": "a", "answer": "b"}"#]), Ok(Shape::Completion));
        assert_eq!(found(&[r#"{"input": [], "ideal": "b"}"#]), Ok(Shape::Evals));
        assert_eq!(found(&[r#"{"segments": []}"#]), Ok(Shape::Segments));
        assert_eq!(found(&[r#"{"content": "a"}"#]), Ok(Shape::Text));
    }

    #[test]
    fn the_most_frequent_wins_and_none_is_told_by_its_columns() {
        let text = r#"{"text": "a"}"#;
        assert_eq!(found(&[text, r#"{"messages": []}"#, text, "[1]"]), Ok(Shape::Text));
        let columns = found(&[r#"{"b": 1, "a": 2}"#, r#"{"c": 1, "a": 1}"#]).unwrap_err();
        assert_eq!(columns, ["b", "a", "c"]);
    }
}
