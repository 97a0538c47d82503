//! The recommended sequence length, and why.

use super::{Lengths, Share};
use crate::units::thousands;
use serde::Serialize;
use std::fmt;

/// Answers wholly lost above this share gate a recommendation.
const LOST_AT_MOST: Share = Share::permille(1);

/// How much longer, in percent, a sequence may be to lose nothing at all.
const ALL_WITHIN: u64 = 125;

/// How many times longer, and so as much more memory, a sequence may be to keep answers.
const ANSWERS_WITHIN: u64 = 2;

/// What the recommendation heeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Share of the examples that have to fit.
    pub coverage: Share,
    /// Lengths are rounded up to a multiple of it; at least 1.
    pub multiple: u32,
    /// The model's longest sequence, where it is known.
    pub longest: Option<u32>,
}

/// One step of the way to the length.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Reason {
    /// The share asked for fits within `percentile` tokens.
    Coverage {
        /// The share, as a fraction.
        share: f64,
        /// The nearest-rank percentile.
        percentile: u32,
        /// It, rounded up.
        rounded: u32,
    },
    /// The longest example is so near that all are covered.
    CoversAll {
        /// The longest example.
        max: u32,
    },
    /// Raised so that fewer answers are lost.
    KeepsAnswers {
        /// The length before.
        from: u32,
        /// Answers wholly lost there.
        lost: u64,
    },
    /// Held at the model's limit.
    Limit {
        /// The model's longest sequence.
        longest: u32,
    },
    /// More answers are lost than the gate allows, and keeping them costs more than it is allowed to.
    AnswersLost {
        /// Answers wholly lost.
        lost: u64,
        /// Examples with an answer.
        of: u64,
        /// The length that would keep all but one in a thousand.
        needed: u32,
    },
    /// Few long examples hold many of the tokens.
    HeavyTail {
        /// Share of the tokens beyond the length.
        tokens: f64,
    },
}

impl Reason {
    /// True for what must not be overlooked.
    pub fn is_alarm(&self) -> bool {
        matches!(self, Self::AnswersLost { .. })
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Coverage { share, percentile, rounded } => {
                let percent = (share * 1e4).round() / 100.0;
                write!(f, "{percent} % of the examples have at most {} tokens", thousands(percentile.into()))?;
                if rounded == percentile { Ok(()) } else { write!(f, ", rounded up to {}", thousands(rounded.into())) }
            }
            Self::CoversAll { max } => {
                write!(f, "the longest has {}, so near that all are covered", thousands(max.into()))
            }
            Self::KeepsAnswers { from, lost } => write!(
                f,
                "at {} tokens {} answers would be lost whole: raised until at most 0.1 % are",
                thousands(from.into()),
                thousands(lost)
            ),
            Self::Limit { longest } => write!(f, "held at the model's limit of {}", thousands(longest.into())),
            Self::AnswersLost { lost, of, needed } => write!(
                f,
                "{} of {} answers are lost whole, since their prompts alone fill the sequence: shorten or drop these \
                 examples; keeping all but 0.1 % would take {} tokens",
                thousands(lost),
                thousands(of),
                thousands(needed.into())
            ),
            Self::HeavyTail { tokens } => write!(
                f,
                "the few longer ones hold {:.0} % of the tokens: split long documents rather than raise the length",
                tokens * 100.0
            ),
        }
    }
}

/// The length to train with.
#[derive(Clone, Debug, PartialEq)]
pub struct Recommendation {
    /// In tokens.
    pub sequence_len: u32,
    /// The way to it, in order.
    pub reasons: Vec<Reason>,
}

/// The length for `lengths`: the percentile of the coverage asked for, rounded up; the longest example's where that is at
/// most a quarter longer; up to twice the length where fewer than one answer in a thousand is then lost; never over the
/// model's limit. `None` without examples. One outlier raises nothing: it would have to be near.
pub fn recommend(lengths: &Lengths, limits: &Limits) -> Option<Recommendation> {
    let percentile = lengths.total.percentile(limits.coverage)?;
    let (max, multiple) = (lengths.total.max()?, limits.multiple.max(1));
    let rounded = |length: u32| length.max(1).checked_next_multiple_of(multiple).unwrap_or(u32::MAX);
    let allowed = |length: u32| limits.longest.is_none_or(|longest| length <= longest);
    let mut length = rounded(percentile);
    let share = limits.coverage.fraction();
    let mut reasons = vec![Reason::Coverage { share, percentile, rounded: length }];
    if max > length && allowed(max) && u64::from(max) * 100 <= u64::from(length) * ALL_WITHIN {
        length = rounded(max);
        reasons.push(Reason::CoversAll { max });
    }
    length = gate(lengths, length, rounded, limits.longest, &mut reasons);
    if let Some(longest) = limits.longest.filter(|&longest| length > longest) {
        length = longest;
        reasons.push(Reason::Limit { longest });
    }
    alarms(lengths, length, rounded, &mut reasons);
    Some(Recommendation { sequence_len: length, reasons })
}

/// The shortest length at which at most [`LOST_AT_MOST`] of the answers are lost whole.
fn keeping_answers(lengths: &Lengths, rounded: impl Fn(u32) -> u32) -> Option<u32> {
    let kept = Share::of(1.0 - LOST_AT_MOST.fraction())?;
    Some(rounded(lengths.prompt.percentile(kept)?.checked_add(1)?))
}

fn gate(
    lengths: &Lengths,
    length: u32,
    rounded: impl Fn(u32) -> u32,
    longest: Option<u32>,
    reasons: &mut Vec<Reason>,
) -> u32 {
    let bound = longest.unwrap_or(u32::MAX);
    match keeping_answers(lengths, rounded) {
        Some(needed)
            if needed > length && needed <= bound && u64::from(needed) <= u64::from(length) * ANSWERS_WITHIN =>
        {
            reasons.push(Reason::KeepsAnswers { from: length, lost: lengths.answers_lost(length) });
            needed
        }
        _ => length,
    }
}

fn alarms(lengths: &Lengths, length: u32, rounded: impl Fn(u32) -> u32, reasons: &mut Vec<Reason>) {
    if let Some(needed) = keeping_answers(lengths, rounded).filter(|&needed| needed > length) {
        let (lost, of) = (lengths.answers_lost(length), lengths.prompt.n());
        reasons.push(Reason::AnswersLost { lost, of, needed });
    }
    let tokens = lengths.total.beyond(length) as f64 / (lengths.total.total() as f64).max(1.0);
    if tokens > 0.1 {
        reasons.push(Reason::HeavyTail { tokens });
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Answer, Example};
    use super::*;

    const LIMITS: Limits = Limits { coverage: Share::permille(950), multiple: 64, longest: None };

    fn of(examples: impl IntoIterator<Item = (u32, u32)>) -> Lengths {
        let mut lengths = Lengths::default();
        for (start, end) in examples {
            lengths.add(Example { total: end, answer: Some(Answer { start, end, supervised: end - start }) });
        }
        lengths
    }

    fn length(lengths: &Lengths, limits: Limits) -> u32 {
        recommend(lengths, &limits).unwrap().sequence_len
    }

    #[test]
    fn the_percentile_is_rounded_up_to_the_multiple() {
        let lengths = of((0..100).map(|i| (10, 100 + 20 * i)));
        assert_eq!(length(&lengths, LIMITS), 2112, "p95 is 1980, rounded to 1984; all end at 2080, which is near");
        let skewed = of((0..100).map(|i| (10, if i < 96 { 100 + i } else { 3000 })));
        assert_eq!(length(&skewed, LIMITS), 256, "p95 is 194");
    }

    #[test]
    fn one_outlier_among_fifty_raises_nothing_and_is_told_with_what_it_would_take() {
        let outlier = of((0..50).map(|i| (20, 80 + i)).chain([(29_000, 30_000)]));
        let recommended = recommend(&outlier, &LIMITS).unwrap();
        assert_eq!(recommended.sequence_len, 128);
        let alarm = recommended.reasons.iter().find(|reason| reason.is_alarm()).unwrap();
        assert_eq!(*alarm, Reason::AnswersLost { lost: 1, of: 51, needed: 29_056 });
        let plain = of((0..50).map(|i| (20, 80 + i)).chain([(20, 30_000)]));
        assert!(!recommend(&plain, &LIMITS).unwrap().reasons.iter().any(Reason::is_alarm), "its answer begins early");
    }

    #[test]
    fn answers_that_would_be_lost_raise_it_up_to_twofold() {
        let near = of((0..100).map(|i| if i < 96 { (20, 250) } else { (400, 900) }));
        let recommended = recommend(&near, &LIMITS).unwrap();
        assert_eq!(recommended.sequence_len, 448);
        assert!(recommended.reasons.contains(&Reason::KeepsAnswers { from: 256, lost: 4 }));
        let limited = Limits { longest: Some(300), ..LIMITS };
        assert_eq!(length(&near, limited), 256, "what keeps them is over the model's limit");
        let far = of((0..100).map(|i| if i < 96 { (20, 250) } else { (600, 900) }));
        assert_eq!(length(&far, LIMITS), 256);
    }

    #[test]
    fn the_models_limit_holds_even_between_multiples() {
        let lengths = of((0..100).map(|i| (10, 1000 + i)));
        assert_eq!(length(&lengths, Limits { longest: Some(700), ..LIMITS }), 700);
        assert_eq!(recommend(&Lengths::default(), &LIMITS), None);
    }
}
