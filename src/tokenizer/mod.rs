//! Tokenizers as counters: `tokenizer.json` files, and CLIP's and T5's inside the binary.
//!
//! Every count equals that of the `tokenizers` crate, on which transformers' fast tokenizers stand. Faster engines are
//! taken where the configuration allows it, and held against it on a sample of the very texts that are counted.

mod builtin;
mod checked;
mod chunks;
mod config;
pub mod encoders;
mod engine;

pub use builtin::BuiltIn;
pub use config::Config;
pub use engine::TokenCounter;

use crate::error::{Error, IoContext, Result};
use crate::hash::TextHash;
use aho_corasick::AhoCorasick;
use checked::Checked;
use chunks::{Chunks, Separable};
use engine::{Next, Reference};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Where a tokenizer comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Out of the binary.
    BuiltIn(BuiltIn),
    /// A `tokenizer.json`, or a folder that holds one.
    Path(PathBuf),
}

/// A tokenizer, ready to count.
pub struct Tokenizer {
    /// What reports call it.
    pub name: String,
    /// Of its `tokenizer.json`.
    pub hash: TextHash,
    /// What lies beside it.
    pub config: Config,
    /// Tokens in its vocabulary, added ones included.
    pub vocabulary: u64,
    /// Tokens that its post-processor puts around a text.
    pub specials: u32,
    /// Of these, before the text.
    pub begins: u32,
    /// Of these, behind the text.
    pub ends: u32,
    special_names: Option<AhoCorasick>,
    reference: Arc<tokenizers::Tokenizer>,
    counter: Box<dyn TokenCounter>,
    engine: &'static str,
}

impl Tokenizer {
    /// Loads a tokenizer, with its fastest engine or the reference alone.
    ///
    /// # Errors
    /// A file that is not there, cannot be read or is no `tokenizer.json`.
    pub fn load(source: &Source, reference_only: bool) -> Result<Self> {
        match source {
            Source::BuiltIn(built_in) => {
                let name = built_in.name().to_owned();
                Self::parse(Path::new(&name), built_in.json(), name.clone(), Config::default(), reference_only)
            }
            Source::Path(path) => {
                let file = if path.is_dir() { path.join("tokenizer.json") } else { path.clone() };
                let json = read(path, &file)?;
                let config = Config::beside(file.parent().unwrap_or(Path::new(".")))?;
                Self::parse(&file, json, crate::units::display_path(path), config, reference_only)
            }
        }
    }

    fn parse(path: &Path, json: String, name: String, config: Config, reference_only: bool) -> Result<Self> {
        let wrong = |why: String| {
            Error::input(path, format!("is no tokenizer.json that can be read: {why}"))
                .with_hint("save_pretrained of a fast tokenizer writes one")
        };
        // Both engines take their time over a large vocabulary, so they load side by side.
        let (fast, reference) = std::thread::scope(|scope| {
            let fast = scope.spawn(|| if reference_only { Fast::None } else { Fast::of(&json) });
            let reference = tokenizers::Tokenizer::from_bytes(&json);
            (fast.join().unwrap_or(Fast::None), reference)
        });
        let mut reference = reference.map_err(|error| wrong(error.to_string()))?;
        // A length that was set for one training run would hide what is cut.
        reference.with_truncation(None).map_err(|error| wrong(error.to_string()))?;
        reference.with_padding(None);
        let around = |special| reference.encode_fast("a", special).map_err(|error| wrong(error.to_string()));
        let (bare, whole) = (around(false)?, around(true)?);
        let specials = (whole.len() - bare.len()) as u32;
        let place = whole.get_ids().windows(bare.len().max(1)).position(|ids| ids == bare.get_ids());
        let begins = place.map_or(specials, |place| place as u32);
        let reference = Arc::new(reference);
        let (counter, engine) = fast.checked(&reference);
        Ok(Self {
            name,
            hash: TextHash::of(json.as_bytes()),
            config,
            vocabulary: reference.get_vocab_size(true) as u64,
            specials,
            begins,
            ends: specials - begins,
            special_names: special_names(&reference),
            reference,
            counter,
            engine,
        })
    }

    /// Tokens of `text` without those that the post-processor puts around it.
    ///
    /// # Errors
    /// What the engine says, or that it differs from the reference.
    pub fn count(&self, text: &str) -> Result<u32, String> {
        self.counter.count(text)
    }

    /// What counts: `tokenizers`, `tokenizers by pieces` or `tokenizers 1.0.0-rc.3`.
    pub fn engine(&self) -> &'static str {
        self.engine
    }

    /// The ids of `text`, with those that the post-processor puts around it if `special`.
    ///
    /// # Errors
    /// What the tokenizer says.
    pub fn ids(&self, text: &str, special: bool) -> Result<Vec<u32>, String> {
        let encoding = self.reference.encode_fast(text, special).map_err(|error| error.to_string())?;
        Ok(encoding.get_ids().to_vec())
    }

    /// The bytes of `text` from the first to the last token beyond `limit`; `None` where all fit.
    ///
    /// # Errors
    /// What the tokenizer says.
    pub fn beyond(&self, text: &str, limit: u32) -> Result<Option<Range<usize>>, String> {
        let encoding = self.reference.encode(text, false).map_err(|error| error.to_string())?;
        let cut = encoding.get_offsets().get(limit as usize..).unwrap_or_default();
        Ok(cut.first().map(|first| first.0..cut.last().map_or(first.1, |last| last.1)))
    }

    /// True where a text holds the name of a special token: it is taken for that token, not for its letters.
    pub fn names_special(&self, text: &[u8]) -> bool {
        self.special_names.as_ref().is_some_and(|names| names.is_match(text))
    }
}

/// Finds the names of special tokens.
fn special_names(tokenizer: &tokenizers::Tokenizer) -> Option<AhoCorasick> {
    let added = tokenizer.get_added_tokens_decoder();
    let names: Vec<&str> = added.values().filter(|token| token.special).map(|token| token.content.as_str()).collect();
    AhoCorasick::new(names).ok()
}

fn read(asked: &Path, file: &Path) -> Result<String> {
    match fs::read_to_string(file) {
        Ok(json) => Ok(json),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && asked.is_dir() => {
            Err(Error::input(asked, "holds no tokenizer.json")
                .with_hint("AutoTokenizer.from_pretrained(…).save_pretrained(…) writes one for a fast tokenizer"))
        }
        Err(error) => Err(error).at(file),
    }
}

/// The engine that a configuration allows besides the reference.
enum Fast {
    /// Pieces of the text, counted by the reference or its successor.
    Chunks(Separable, Option<Box<Next>>),
    Next(Box<Next>),
    None,
}

impl Fast {
    fn of(json: &str) -> Self {
        let head: Option<chunks::Head> = serde_json::from_str(json).ok();
        let next = Next::load(json).map(Box::new);
        match head.and_then(|head| head.separable()) {
            Some(how) => Self::Chunks(how, next),
            None => next.map_or(Self::None, Self::Next),
        }
    }

    /// The counter, held against the reference as it counts, and its name.
    fn checked(self, reference: &Arc<tokenizers::Tokenizer>) -> (Box<dyn TokenCounter>, &'static str) {
        let plain = || Reference(Arc::clone(reference));
        let checked = |fast: Box<dyn TokenCounter>| {
            Box::new(Checked { fast, reference: Arc::new(plain()), seen: AtomicU64::new(0) })
        };
        match self {
            Self::None => (Box::new(plain()), "tokenizers"),
            Self::Chunks(how, next) => {
                let name = if next.is_some() { "tokenizers 1.0.0-rc.3 by pieces" } else { "tokenizers by pieces" };
                let inner = match next {
                    Some(next) => next as Box<dyn TokenCounter>,
                    None => Box::new(plain()),
                };
                (checked(Box::new(Chunks::new(inner, how.widened(reference)))), name)
            }
            Self::Next(next) => (checked(next), "tokenizers 1.0.0-rc.3"),
        }
    }
}
