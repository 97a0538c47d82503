//! Counts by pieces between blanks, each remembered: captions and prose repeat their words.
//!
//! Only for tokenizers whose configuration shows that no token reaches over a blank: CLIP's pre-tokenizer drops them, T5's
//! begins a new piece at each. Then a text's count is the sum of its pieces' counts.

use super::engine::TokenCounter;
use serde::Deserialize;
use serde_json::Value;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};
use tokenizers::Normalizer;

/// Shards of the memory, so that threads seldom wait for each other.
const SHARDS: usize = 64;

/// Pieces that a shard remembers before it starts anew; together about 60 MB of words.
const PIECES: usize = 16_384;

/// Longer pieces are counted and forgotten.
const LONGEST: usize = 64;

/// CLIP's pre-tokenizer patterns, as converted by transformers until 4 and from 5 on: all between matches is dropped,
/// and no match holds white space.
const CLIP_PATTERNS: [&str; 2] = [
    r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+",
    r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+",
];

/// A counter that remembers the counts of pieces.
pub(super) struct Chunks {
    inner: Box<dyn TokenCounter>,
    how: Separable,
    hasher: RandomState,
    shards: Vec<Mutex<HashMap<Box<str>, u32>>>,
}

impl Chunks {
    /// Wraps `inner`, whose texts can be counted by pieces, `how` says which.
    pub(super) fn new(inner: Box<dyn TokenCounter>, how: Separable) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self { inner, how, hasher: RandomState::new(), shards }
    }

    /// The count of what lies between blanks; CLIP's own cuts are made where they are plain to see.
    fn between_blanks(&self, piece: &str) -> Result<u32, String> {
        // "<|" may begin the name of a special token, which is matched before anything is cut.
        if !self.how.is_clip || !piece.is_ascii() || piece.contains("<|") {
            return self.piece(piece);
        }
        clip_words(piece).try_fold(0_u32, |sum, word| Ok(sum.saturating_add(self.piece(word)?)))
    }

    fn piece(&self, piece: &str) -> Result<u32, String> {
        if piece.len() > LONGEST {
            return self.inner.count(piece);
        }
        let shard = &self.shards[self.hasher.hash_one(piece) as usize % SHARDS];
        if let Some(&count) = shard.lock().unwrap_or_else(PoisonError::into_inner).get(piece) {
            return Ok(count);
        }
        let count = self.inner.count(piece)?;
        let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
        if shard.len() >= PIECES {
            shard.clear();
        }
        shard.insert(piece.into(), count);
        Ok(count)
    }
}

impl TokenCounter for Chunks {
    fn count(&self, text: &str) -> Result<u32, String> {
        let mut pieces = pieces(text, self.how.blanks);
        pieces.try_fold(0_u32, |sum, piece| Ok(sum.saturating_add(self.between_blanks(piece)?)))
    }
}

/// The text cut at `blanks`, empty pieces left out; only between characters that [stand alone](stands_alone), so that no
/// normalizer joins a blank with a neighbour or strips what ends or begins a piece.
fn pieces<'a>(text: &'a str, blanks: &'static [char]) -> impl Iterator<Item = &'a str> {
    let mut rest = text.trim_start_matches(blanks);
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let behind = |at: usize| rest[at..].trim_start_matches(blanks);
        let is_cut = |&(at, _): &(usize, &str)| {
            let (before, next) = (rest[..at].chars().next_back(), behind(at).chars().next());
            before.is_some_and(stands_alone) && next.is_none_or(stands_alone)
        };
        let end = rest.match_indices(blanks).find(is_cut).map_or(rest.len(), |(at, _)| at);
        let piece = &rest[..end];
        rest = behind(end);
        Some(piece)
    })
}

/// True for characters that are surely no white space, no mark and no part of anything before them: visible ASCII, the
/// letters of Latin, Greek and Cyrillic, kana, CJK and Hangul.
fn stands_alone(c: char) -> bool {
    let letters =
        matches!(c, '\u{c0}'..='\u{24f}' | '\u{391}'..='\u{3ff}' | '\u{400}'..='\u{481}' | '\u{48a}'..='\u{52f}');
    let wide = matches!(c, '\u{3041}'..='\u{3096}' | '\u{30a1}'..='\u{30fa}' | '\u{4e00}'..='\u{9fff}' | '\u{ac00}'..='\u{d7a3}');
    c.is_ascii_graphic() || letters || wide
}

/// ASCII text cut as CLIP's pattern cuts it: endings behind an apostrophe, runs of letters, single digits, runs of anything
/// else but white space.
fn clip_words(piece: &str) -> impl Iterator<Item = &str> {
    let mut rest = piece;
    std::iter::from_fn(move || {
        rest = rest.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '\u{b}');
        let first = rest.bytes().next()?;
        let run = |of: fn(u8) -> bool| rest.bytes().take_while(|&byte| of(byte)).count();
        let length = match ending(rest) {
            Some(length) => length,
            None if first.is_ascii_alphabetic() => run(|byte| byte.is_ascii_alphabetic()),
            None if first.is_ascii_digit() => 1,
            None => run(|byte| !byte.is_ascii_alphanumeric() && !byte.is_ascii_whitespace() && byte != 0x0b),
        };
        let (word, behind) = rest.split_at(length);
        rest = behind;
        Some(word)
    })
}

/// The length of an English ending at the start of `text`: `'s`, `'re` and the like.
fn ending(text: &str) -> Option<usize> {
    let endings = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d"];
    let is_there = |ending: &&str| text.get(..ending.len()).is_some_and(|start| start.eq_ignore_ascii_case(ending));
    endings.iter().find(|ending| is_there(ending)).map(|ending| ending.len())
}

/// How a text can be counted by pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Separable {
    /// Characters that no token reaches over.
    blanks: &'static [char],
    /// Whether CLIP's pattern cuts what is between them.
    is_clip: bool,
}

/// ASCII's blanks that people write.
const BLANKS: &[char] = &[' ', '\n', '\t', '\r'];

impl Separable {
    const CLIP: Self = Self { blanks: BLANKS, is_clip: true };

    /// Pieces between spaces, and between the other blanks if `tokenizer` makes spaces of them.
    pub(super) fn widened(self, tokenizer: &tokenizers::Tokenizer) -> Self {
        let makes_spaces = || {
            let mut text = tokenizers::NormalizedString::from("x\ny\tz\rx");
            tokenizer.get_normalizer()?.normalize(&mut text).ok()?;
            Some(text.get() == "x y z x")
        };
        if makes_spaces() == Some(true) { Self { blanks: BLANKS, ..self } } else { self }
    }
}

/// The parts of a `tokenizer.json` that say how a text is cut up; the vocabulary is passed over.
#[derive(Deserialize)]
pub(super) struct Head {
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
}

impl Head {
    /// How a text can be counted by its pieces, if it can.
    pub(super) fn separable(&self) -> Option<Separable> {
        let normalizers = steps(&self.normalizer, "normalizers");
        let pre_tokenizers = steps(&self.pre_tokenizer, "pretokenizers");
        let kinds: Vec<_> = pre_tokenizers.iter().map(|step| kind(step)).collect();
        let how = match kinds[..] {
            ["Metaspace"] if is_metaspace(pre_tokenizers[0]) => Separable { blanks: &[' '], is_clip: false },
            ["WhitespaceSplit", "Metaspace"] if is_metaspace(pre_tokenizers[1]) => {
                Separable { blanks: &[' '], is_clip: false }
            }
            ["Split", "ByteLevel"] if is_clips(pre_tokenizers[0], pre_tokenizers[1]) => Separable::CLIP,
            _ => return None,
        };
        normalizers.into_iter().all(keeps_pieces_apart).then_some(how)
    }
}

/// The members of a sequence, or the one step; none for null.
fn steps<'a>(step: &'a Value, members: &str) -> Vec<&'a Value> {
    match (step, step[members].as_array()) {
        (Value::Null, _) => Vec::new(),
        (_, Some(members)) => members.iter().collect(),
        (step, None) => vec![step],
    }
}

fn kind(step: &Value) -> &str {
    step["type"].as_str().unwrap_or_default()
}

fn is_metaspace(step: &Value) -> bool {
    let always = step["prepend_scheme"].as_str().map_or(step["add_prefix_space"] != false, |scheme| scheme == "always");
    always && step["split"] != false
}

fn is_clips(split: &Value, byte_level: &Value) -> bool {
    let pattern = split["pattern"]["Regex"].as_str().unwrap_or_default();
    CLIP_PATTERNS.contains(&pattern)
        && split["behavior"] == "Removed"
        && split["invert"] == true
        && byte_level["add_prefix_space"] == false
}

/// True for what changes a piece whatever lies beyond the spaces around it.
fn keeps_pieces_apart(step: &Value) -> bool {
    match kind(step) {
        "NFC" | "NFKC" | "NFD" | "NFKD" | "Lowercase" | "Precompiled" | "Strip" => true,
        "Replace" => {
            let (pattern, content) = (step["pattern"]["Regex"].as_str(), step["content"].as_str());
            matches!((pattern, content), (Some(r"\s+" | " {2,}"), Some(" ")) | (Some(" {2,}"), Some("▁")))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_text_is_cut_at_spaces_but_not_before_what_may_combine_with_one() {
        let cut = |text| pieces(text, BLANKS).collect::<Vec<_>>();
        assert_eq!(cut("  a cat,  1girl\tsolo \n"), ["a", "cat,", "1girl", "solo"]);
        assert_eq!(cut("a \u{301}b c"), ["a \u{301}b", "c"]);
        assert_eq!(cut("日本 é 👍 x"), ["日本", "é 👍 x"]);
        assert_eq!(cut("a\u{85} b\u{b} c"), ["a\u{85} b\u{b} c"], "ends of pieces may be stripped");
        assert_eq!(cut("a \u{711}b"), ["a \u{711}b"], "a mark, though it counts as a letter");
        assert_eq!(cut("   "), [""; 0]);
        assert_eq!(pieces("a\tb c", &[' ']).collect::<Vec<_>>(), ["a\tb", "c"]);
    }

    #[test]
    fn ascii_is_cut_as_clips_pattern_cuts_it() {
        let cut = |text| clip_words(text).collect::<Vec<_>>();
        assert_eq!(cut("don't:(a12)'S\t'x''re"), ["don", "'t", ":(", "a", "1", "2", ")'", "S", "'", "x", "''", "re"]);
        assert_eq!(cut("'LL've"), ["'LL", "'ve"]);
        assert_eq!(cut("\n\u{b}"), [""; 0]);
    }

    #[test]
    fn only_configurations_that_show_it_are_counted_by_pieces() {
        let is_separable =
            |config: &Value| serde_json::from_value::<Head>(config.clone()).unwrap().separable().is_some();
        let metaspace = |scheme: &str| json!({"pre_tokenizer": {"type": "Metaspace", "prepend_scheme": scheme}});
        assert!(is_separable(&metaspace("always")));
        assert!(!is_separable(&metaspace("first")), "only the first piece begins with the mark");
        let mut odd = metaspace("always");
        odd["normalizer"] = json!({"type": "Replace", "pattern": {"String": "a b"}, "content": "c"});
        assert!(!is_separable(&odd));
        assert!(!is_separable(&json!({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}})));
        assert!(!is_separable(&json!({"pre_tokenizer": null})));
    }
}
