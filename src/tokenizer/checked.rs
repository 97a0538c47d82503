//! A fast engine that proves itself on the texts at hand.

use super::engine::TokenCounter;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The first texts, all of which are counted twice.
const FIRST: u64 = 64;

/// From there on one in so many is.
const EVERY: u64 = 509;

/// Texts that are counted twice at most.
const ENOUGH: u64 = 256;

/// Bytes of a text that are compared: the reference is slow.
const LENGTH: usize = 16 * 1024;

/// Counts with `fast`, and a sample of the texts with the reference, too.
pub(super) struct Checked {
    pub(super) fast: Box<dyn TokenCounter>,
    pub(super) reference: Arc<dyn TokenCounter>,
    pub(super) seen: AtomicU64,
}

impl Checked {
    /// Compares both engines on a text that is one of the sample.
    fn check(&self, text: &str) -> Result<(), String> {
        let seen = self.seen.fetch_add(1, Ordering::Relaxed);
        let is_sampled = seen < FIRST || (seen.is_multiple_of(EVERY) && seen / EVERY < ENOUGH - FIRST);
        if !is_sampled {
            return Ok(());
        }
        let head = head_of(text);
        let (fast, reference) = (self.fast.count(head)?, self.reference.count(head)?);
        if fast == reference {
            return Ok(());
        }
        let shown: String = head.chars().take(60).collect();
        Err(format!(
            "the fast engine counts {fast} tokens, the reference {reference}, in the text that begins {shown:?}"
        ))
    }
}

/// As much of the text as is compared.
fn head_of(text: &str) -> &str {
    let end = (0..=LENGTH.min(text.len())).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
    &text[..end]
}

impl TokenCounter for Checked {
    fn count(&self, text: &str) -> Result<u32, String> {
        self.check(text)?;
        self.fast.count(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Bytes(usize);

    impl TokenCounter for Bytes {
        fn count(&self, text: &str) -> Result<u32, String> {
            Ok(text.len().min(self.0) as u32)
        }
    }

    #[test]
    fn a_difference_is_told_with_the_text() {
        let (fast, reference) = (Box::new(Bytes(5)), Arc::new(Bytes(usize::MAX)));
        let checked = Checked { fast, reference, seen: AtomicU64::new(0) };
        assert_eq!(checked.count("short"), Ok(5));
        let told = checked.count("longer").unwrap_err();
        assert_eq!(told, "the fast engine counts 5 tokens, the reference 6, in the text that begins \"longer\"");
    }
}
