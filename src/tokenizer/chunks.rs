//! Counts by pieces between spaces, each remembered: captions and prose repeat their words.
//!
//! Only for tokenizers whose configuration shows that no token reaches over an ASCII space: CLIP's pre-tokenizer drops
//! them, T5's begins a new piece at each. Then a text's count is the sum of its pieces' counts.

use super::engine::TokenCounter;
use serde_json::Value;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};

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
pub(super) struct Chunks<C> {
    inner: C,
    hasher: RandomState,
    shards: Vec<Mutex<HashMap<Box<str>, u32>>>,
}

impl<C: TokenCounter> Chunks<C> {
    /// Wraps `inner`, whose configuration [`is_separable`].
    pub(super) fn new(inner: C) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self { inner, hasher: RandomState::new(), shards }
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

impl<C: TokenCounter> TokenCounter for Chunks<C> {
    fn count(&self, text: &str) -> Result<u32, String> {
        pieces(text).try_fold(0_u32, |sum, piece| Ok(sum.saturating_add(self.piece(piece)?)))
    }
}

/// The text cut at ASCII spaces, empty pieces left out. Not cut before what may combine with a space: a combining mark
/// after it, or anything else that is neither ASCII nor a letter or digit.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        rest = rest.trim_start_matches(' ');
        if rest.is_empty() {
            return None;
        }
        let is_cut = |&(at, _): &(usize, &str)| {
            let next = rest[at..].trim_start_matches(' ').chars().next();
            next.is_none_or(|next| next.is_ascii() || next.is_alphanumeric())
        };
        let end = rest.match_indices(' ').find(is_cut).map_or(rest.len(), |(at, _)| at);
        let (piece, behind) = rest.split_at(end);
        rest = behind;
        Some(piece)
    })
}

/// True when the configuration, a parsed `tokenizer.json`, lets a text be counted by its pieces between ASCII spaces.
pub(super) fn is_separable(config: &Value) -> bool {
    let normalizers = steps(&config["normalizer"], "normalizers");
    let pre_tokenizers = steps(&config["pre_tokenizer"], "pretokenizers");
    let kinds: Vec<_> = pre_tokenizers.iter().map(|step| kind(step)).collect();
    let splits = match kinds[..] {
        ["Metaspace"] => is_metaspace(pre_tokenizers[0]),
        ["WhitespaceSplit", "Metaspace"] => is_metaspace(pre_tokenizers[1]),
        ["Split", "ByteLevel"] => is_clips(pre_tokenizers[0], pre_tokenizers[1]),
        _ => false,
    };
    splits && normalizers.into_iter().all(keeps_pieces_apart)
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
        let cut = |text| pieces(text).collect::<Vec<_>>();
        assert_eq!(cut("  a cat,  1girl\tsolo \n"), ["a", "cat,", "1girl\tsolo", "\n"]);
        assert_eq!(cut("a \u{301}b c"), ["a \u{301}b", "c"]);
        assert_eq!(cut("日本 é 👍 x"), ["日本", "é 👍", "x"]);
        assert_eq!(cut("   "), [""; 0]);
    }

    #[test]
    fn only_configurations_that_show_it_are_counted_by_pieces() {
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
