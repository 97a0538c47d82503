//! Captions against the windows of a family's text encoders: how many tokens each has, and the words that are cut off.

use crate::error::{Error, Result};
use crate::hash::{FieldHasher, TextHash};
use crate::lengths::{Histogram, Share};
use crate::progress::{Cancel, Progress};
use crate::store::Index;
use crate::tokenizer::Tokenizer;
use crate::tokenizer::encoders::TextEncoder;
use rayon::prelude::*;
use serde::Serialize;

/// Content tokens that sd-scripts' `--max_token_length` allows for SD 1.5 and SDXL, in windows of 75.
pub const WINDOWED: [u32; 3] = [75, 150, 225];

/// Lengths that trainers offer for T5, its end token included.
const T5_LENGTHS: [u32; 3] = [128, 256, 512];

/// The share of the captions that a recommended `--max_token_length` fits.
const FITTING: Share = Share::permille(990);

/// A caption with the image that it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caption {
    /// The image's path, as reports have it.
    pub path: String,
    /// Its words, as the trainer reads them.
    pub text: String,
}

/// A caption that is longer than what an encoder sees.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cut {
    /// The image's path.
    pub path: String,
    /// Its content tokens.
    pub tokens: u32,
    /// The words from the first token on that the encoder does not see.
    pub lost: String,
}

/// Captions through one text encoder.
#[derive(Clone, Debug, PartialEq)]
pub struct Encoded {
    /// The encoder, with the limit that was counted against.
    pub encoder: TextEncoder,
    /// Content tokens a caption: special ones not counted.
    pub lengths: Histogram,
    /// Captions over the limit, by path.
    pub cut: Vec<Cut>,
    /// Captions that were counted in this run; the others were remembered.
    pub counted: u64,
}

impl Encoded {
    /// Captions that need one, two and three windows of 75 tokens, and those that need more.
    pub fn by_windows(&self) -> [u64; 4] {
        let mut counts = [0; 4];
        for (length, count) in self.lengths.iter() {
            counts[WINDOWED.iter().position(|&limit| length <= limit).unwrap_or(3)] += count;
        }
        counts
    }

    /// The shortest setting that fits nearly all, for encoders whose window can be chosen: the trainer's flag and value.
    pub fn advice(&self) -> Option<(&'static str, u32)> {
        let shortest = |of: [u32; 3], needed: u32| of.into_iter().find(|&length| length >= needed).unwrap_or(of[2]);
        if self.encoder.windows {
            return Some(("max_token_length", shortest(WINDOWED, self.lengths.percentile(FITTING)?)));
        }
        let is_t5 = self.encoder.name.starts_with("t5");
        is_t5.then(|| Some(("t5xxl_max_token_length", shortest(T5_LENGTHS, self.lengths.max()? + 1)))).flatten()
    }
}

/// Counts all captions for one encoder.
///
/// # Errors
/// Engines that differ, an interrupt.
pub fn count(
    captions: &[Caption],
    encoder: TextEncoder,
    tokenizer: &Tokenizer,
    index: &Index,
    progress: &dyn Progress,
    cancel: &Cancel,
) -> Result<Encoded> {
    progress.stage("tokens", Some(captions.len() as u64));
    let counts: Vec<(u32, bool)> = captions
        .par_iter()
        .map(|caption| {
            if cancel.is_cancelled() {
                return Err(Error::Interrupted);
            }
            let counted = one(caption, tokenizer, index)?;
            progress.advance(1);
            Ok(counted)
        })
        .collect::<Result<_>>()?;
    let over = captions.iter().zip(&counts).filter(|(_, (tokens, _))| *tokens > encoder.limit);
    let mut cut = over
        .map(|(caption, &(tokens, _))| cut_off(caption, tokens, encoder.limit, tokenizer))
        .collect::<Result<Vec<_>>>()?;
    cut.sort_by(|a, b| a.path.cmp(&b.path));
    let counted = counts.iter().filter(|(_, remembered)| !remembered).count() as u64;
    Ok(Encoded { encoder, lengths: counts.into_iter().map(|(tokens, _)| tokens).collect(), cut, counted })
}

/// Content tokens of a caption, and whether they were remembered.
fn one(caption: &Caption, tokenizer: &Tokenizer, index: &Index) -> Result<(u32, bool)> {
    let mut hasher = FieldHasher::new("prebake caption tokens");
    let key = TextHash(hasher.bytes("tokenizer", &tokenizer.hash.0).text("caption", &caption.text).finish());
    if let Some(known) = index.counted(&key).and_then(|bytes| bytes.try_into().ok()) {
        return Ok((u32::from_le_bytes(known), true));
    }
    let tokens = tokenizer.count(&caption.text).map_err(|why| miscounted(caption, why))?;
    index.remember_count(key, tokens.to_le_bytes().to_vec());
    Ok((tokens, false))
}

fn cut_off(caption: &Caption, tokens: u32, limit: u32, tokenizer: &Tokenizer) -> Result<Cut> {
    let beyond = tokenizer.beyond(&caption.text, limit).map_err(|why| miscounted(caption, why))?;
    let lost = beyond.map(|range| caption.text[range].to_owned()).unwrap_or_default();
    Ok(Cut { path: caption.path.clone(), tokens, lost })
}

fn miscounted(caption: &Caption, why: String) -> Error {
    Error::input(&caption.path, format!("its caption: {why}"))
        .with_hint("--tokenizer-engine reference counts with the slow engine alone")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::Silent;
    use crate::recipe::Family;
    use crate::tokenizer::{BuiltIn, Source, encoders};

    fn caption(path: &str, words: usize) -> Caption {
        Caption { path: path.into(), text: vec!["cat"; words].join(" ") }
    }

    #[test]
    fn captions_over_the_window_are_told_with_the_words_that_are_lost_and_remembered() {
        let tokenizer = Tokenizer::load(&Source::BuiltIn(BuiltIn::Clip), false).unwrap();
        let encoder = encoders::of(Family::Sdxl)[0];
        let captions = [caption("b.png", 77), caption("a.png", 75), caption("c.png", 0), caption("d.png", 76)];
        let index = Index::in_memory();
        let count = || count(&captions, encoder, &tokenizer, &index, &Silent, &Cancel::default()).unwrap();
        let first = count();
        let cut: Vec<_> = first.cut.iter().map(|cut| (cut.path.as_str(), cut.tokens, cut.lost.as_str())).collect();
        assert_eq!(cut, [("b.png", 77, "cat cat"), ("d.png", 76, "cat")]);
        assert_eq!((first.by_windows(), first.advice()), ([2, 2, 0, 0], Some(("max_token_length", 150))));
        assert_eq!((first.counted, count().counted), (4, 0));
    }
}
