//! Counting engines behind one trait: the reference, which is the crate that Python's `tokenizers` is made of, and its
//! successor, which counts the same many times as fast where it loads the tokenizer.

use std::cell::RefCell;
use std::sync::Arc;
use tokenizers_next::pipeline::{EncodeOptions, PipelineToken, PipelineTokenizer};

/// Counts the tokens of a text; what the post-processor adds around it is not counted, special tokens in it are.
pub trait TokenCounter: Send + Sync {
    /// Tokens of `text`.
    ///
    /// # Errors
    /// What the engine says.
    fn count(&self, text: &str) -> Result<u32, String>;
}

/// The reference.
pub(super) struct Reference(pub(super) Arc<tokenizers::Tokenizer>);

impl TokenCounter for Reference {
    fn count(&self, text: &str) -> Result<u32, String> {
        let encoding = self.0.encode_fast(text, false).map_err(|error| error.to_string())?;
        Ok(u32::try_from(encoding.len()).unwrap_or(u32::MAX))
    }
}

/// tokenizers 1.0.0-rc.3: 20 to 50 times as fast on byte-level BPE.
pub(super) struct Next {
    tokenizer: PipelineTokenizer,
    options: EncodeOptions,
}

impl Next {
    /// Loads a `tokenizer.json`; `None` for what this release cannot load or run.
    pub(super) fn load(json: &str) -> Option<Self> {
        let canonical = tokenizers_next::canonicalize_str(json).ok()?;
        let tokenizer = tokenizers_next::from_json(&canonical).ok()?;
        let next = Self { tokenizer, options: EncodeOptions { add_special_tokens: false, ..EncodeOptions::default() } };
        // Some configurations load and then fail on the first text that they have to split.
        next.count("It's 2 tokens, or more: déjà vu…").ok()?;
        Some(next)
    }
}

thread_local! {
    static TOKENS: RefCell<Vec<PipelineToken>> = const { RefCell::new(Vec::new()) };
}

impl TokenCounter for Next {
    fn count(&self, text: &str) -> Result<u32, String> {
        TOKENS.with_borrow_mut(|tokens| {
            tokens.clear();
            self.tokenizer.encode_into(text, &self.options, tokens).map_err(|error| error.to_string())?;
            Ok(u32::try_from(tokens.len()).unwrap_or(u32::MAX))
        })
    }
}
