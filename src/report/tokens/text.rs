//! A text dataset: its lengths, what each sequence length would do to it, and the one to train with.

use super::{columns, histogram, statistics, table};
use crate::lengths::{Candidate, Reason, Recommendation};
use crate::text::{Counted, Long};
use crate::tokenizer::Tokenizer;
use crate::units::{human_bytes, thousands};
use serde_json::{Map, Value, json};
use std::fmt::Write;

/// Examples over the recommended length that are named.
const NAMED: usize = 5;

/// Padding of random batches from which on packing is recommended.
const PACK_FROM: f64 = 0.1;

/// What the user trains with now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Current {
    /// Sequence length, in tokens.
    pub sequence_len: u32,
    /// Examples in a batch of one GPU.
    pub batch: u32,
}

impl Current {
    /// Positions in one batch, to which activation memory is about proportional.
    fn positions(self) -> u64 {
        u64::from(self.sequence_len) * u64::from(self.batch)
    }
}

/// What became of a text dataset.
pub struct TextReport<'a> {
    /// The counts.
    pub counted: &'a Counted,
    /// What they were counted with.
    pub tokenizer: &'a Tokenizer,
    /// The model's longest sequence, where it is known.
    pub longest: Option<u32>,
    /// Sequence lengths compared, ascending; the recommended one among them.
    pub candidates: &'a [Candidate],
    /// The length to train with; none without examples.
    pub recommendation: Option<&'a Recommendation>,
    /// Training batch of the candidates.
    pub batch: u32,
    /// What the user trains with now.
    pub current: Option<Current>,
}

impl TextReport<'_> {
    fn chosen(&self) -> Option<&Candidate> {
        let length = self.recommendation?.sequence_len;
        self.candidates.iter().find(|candidate| candidate.len == length)
    }

    /// Examples over the recommended length among the longest.
    fn over(&self) -> impl Iterator<Item = &Long> {
        let length = self.recommendation.map_or(u32::MAX, |recommendation| recommendation.sequence_len);
        self.counted.longest.iter().filter(move |long| long.tokens > length)
    }

    /// How many times less activation memory a candidate takes than what is trained with now; under 1 where more.
    fn times_less(&self, candidate: &Candidate) -> Option<f64> {
        let own = Current { sequence_len: candidate.len, batch: self.batch };
        Some(self.current?.positions() as f64 / own.positions() as f64)
    }

    /// Bytes of one copy of the logits of a batch in f32.
    fn logits(&self, candidate: &Candidate) -> u64 {
        u64::from(candidate.len) * u64::from(self.batch) * self.tokenizer.vocabulary * 4
    }

    fn packs(&self) -> bool {
        let waste = |candidate: &Candidate| candidate.padding_waste_longest.max(candidate.padding_waste) > PACK_FROM;
        self.chosen().is_some_and(waste)
    }

    /// Lengths, the table of candidates, the recommendation with its reasons and what to write where, for people.
    pub fn text(&self) -> String {
        let Counted { found, lengths, with_specials, counted, .. } = self.counted;
        let mut text = format!(
            "{} by {}: {} (as are {} of the first {} rows)\n",
            self.tokenizer.name,
            self.tokenizer.engine(),
            found.shape.name(),
            thousands(found.rows as u64),
            thousands(found.of as u64)
        );
        let _ = writeln!(text, "tokens of an example, special ones included:\n{}", table(&lengths.total));
        if lengths.prompt.n() > 0 {
            let _ = writeln!(text, "of them trained on, in examples with an answer:\n{}", table(&lengths.supervised));
        }
        let _ = writeln!(text, "{}", histogram(&lengths.total));
        if *with_specials > 0 {
            let _ = writeln!(text, "{} examples name a special token in their own text", thousands(*with_specials));
        }
        let _ = writeln!(text, "{}", self.table());
        if let Some(recommendation) = self.recommendation {
            self.recommended(recommendation, &mut text);
        }
        let remembered = lengths.total.n() - counted;
        if remembered > 0 {
            let _ = writeln!(text, "counted {}, remembered {}", thousands(*counted), thousands(remembered));
        }
        text.trim_end().to_owned()
    }

    fn recommended(&self, recommendation: &Recommendation, text: &mut String) {
        let length = recommendation.sequence_len;
        let _ = writeln!(text, "recommended sequence length: {length}");
        for reason in &recommendation.reasons {
            let mark = if reason.is_alarm() { "! " } else { "  " };
            let _ = writeln!(text, "{mark}{reason}");
        }
        let Some(chosen) = self.chosen() else { return };
        let named: Vec<_> = self.over().take(NAMED).collect();
        for long in &named {
            let _ = writeln!(text, "  `{}`:{} has {} tokens", long.path, long.line, thousands(long.tokens.into()));
        }
        if chosen.cut > named.len() as u64 && !named.is_empty() {
            let _ = writeln!(text, "  … and {} more are longer", thousands(chosen.cut - named.len() as u64));
        }
        if let (Some(current), Some(times)) = (self.current, self.times_less(chosen)) {
            let Current { sequence_len, batch } = current;
            let (times, what) = if times >= 1.0 { (times, "less") } else { (1.0 / times, "more") };
            let _ = writeln!(
                text,
                "{times:.1} times {what} activation memory at {length}x{} than at {sequence_len}x{batch}",
                self.batch
            );
        }
        let logits = human_bytes(self.logits(chosen));
        let _ = writeln!(
            text,
            "logits of a batch in f32: {logits} for each copy ({} tokens in the vocabulary)",
            thousands(self.tokenizer.vocabulary)
        );
        for (trainer, lines) in self.snippets(length) {
            let _ = writeln!(text, "{trainer}: {}", lines.join(", "));
        }
    }

    fn table(&self) -> String {
        let mut head: Vec<String> = [
            "len",
            "fit",
            "cut",
            "tokens kept",
            "answers cut",
            "lost",
            "pad to len",
            "to longest",
            "grouped",
            "packed",
        ]
        .map(str::to_owned)
        .to_vec();
        head.extend(self.current.map(|_| "memory".to_owned()));
        let percent = |share: f64| format!("{:.1} %", share * 100.0);
        let row = |candidate: &Candidate| {
            let mut cells = vec![
                thousands(candidate.len.into()),
                percent(candidate.fit),
                thousands(candidate.cut),
                percent(candidate.token_fit),
                thousands(candidate.answers_cut),
                thousands(candidate.answers_lost),
                percent(candidate.padding_waste),
                percent(candidate.padding_waste_longest),
                percent(candidate.padding_waste_grouped),
                percent(candidate.packing_efficiency),
            ];
            cells.extend(self.times_less(candidate).map(|times| format!("1/{times:.2}")));
            cells
        };
        let mut rows = vec![head];
        rows.extend(self.candidates.iter().map(row));
        columns(&rows)
    }

    /// What to set in each trainer, by its own keys.
    fn snippets(&self, length: u32) -> Vec<(&'static str, Vec<String>)> {
        let packs = self.packs();
        let batch = if packs { 1 } else { self.batch };
        let lost = self.chosen().is_some_and(|chosen| chosen.answers_lost > 0);
        // Truncation keeps what it can of an answer; an example whose answer is gone is better dropped.
        let strategy = if lost { "drop" } else { "truncate" };
        vec![
            (
                "axolotl",
                vec![
                    format!("sequence_len: {length}"),
                    format!("excess_length_strategy: {strategy}"),
                    format!("sample_packing: {packs}"),
                    format!("pad_to_sequence_len: {packs}"),
                    format!("micro_batch_size: {batch}"),
                ],
            ),
            (
                "llama-factory",
                vec![
                    format!("cutoff_len: {length}"),
                    format!("packing: {packs}"),
                    format!("per_device_train_batch_size: {batch}"),
                ],
            ),
            (
                "trl",
                vec![
                    format!("max_length: {length}"),
                    format!("packing: {packs}"),
                    format!("per_device_train_batch_size: {batch}"),
                ],
            ),
            (
                "torchtune",
                vec![
                    format!("tokenizer.max_seq_len: {length}"),
                    format!("dataset.packed: {packs}"),
                    format!("batch_size: {batch}"),
                ],
            ),
            ("unsloth", vec![format!("max_seq_length: {length}"), format!("per_device_train_batch_size: {batch}")]),
        ]
    }

    /// The JSON of the contract.
    pub fn json(&self) -> Value {
        let Counted { found, lengths, problems, longest, with_specials, counted, bytes } = self.counted;
        let mut encoder = Map::new();
        encoder.insert("name".into(), json!(self.tokenizer.name));
        encoder.insert("engine".into(), json!(self.tokenizer.engine()));
        encoder.insert("hash".into(), json!(self.tokenizer.hash));
        encoder.insert("vocabulary".into(), json!(self.tokenizer.vocabulary));
        encoder.insert("limit".into(), json!(self.longest));
        encoder.extend(statistics(&lengths.total));
        let over = self.longest.map_or(0, |limit| lengths.total.over(limit));
        encoder.insert("over_limit".into(), json!(over));
        let over: Vec<_> =
            longest.iter().filter(|long| self.longest.is_some_and(|limit| long.tokens > limit)).collect();
        encoder.insert(
            "over_limit_paths".into(),
            over.iter().map(|long| json!(format!("{}:{}", long.path, long.line))).collect(),
        );
        json!({
            "encoders": [encoder],
            "format": {"name": found.shape.name(), "rows": found.rows, "of": found.of},
            "prompt": statistics(&lengths.prompt),
            "supervised": statistics(&lengths.supervised),
            "longest": longest,
            "with_special_tokens": with_specials,
            "counted": counted,
            "remembered": lengths.total.n() - counted,
            "bytes": bytes,
            "recommend": self.recommendation.map(|recommendation| self.recommend_json(recommendation)),
            "problems": problems,
        })
    }

    fn recommend_json(&self, recommendation: &Recommendation) -> Value {
        let snippets: Map<String, Value> = self
            .snippets(recommendation.sequence_len)
            .into_iter()
            .map(|(name, lines)| (name.into(), json!(lines)))
            .collect();
        let candidate = |candidate: &Candidate| {
            let mut row = serde_json::to_value(candidate).expect("numbers can be written");
            row["logits_bytes"] = json!(self.logits(candidate));
            row["memory_times_less"] = json!(self.times_less(candidate));
            row
        };
        json!({
            "sequence_len": recommendation.sequence_len,
            "coverage": self.chosen().map(|chosen| chosen.fit),
            "reasons": recommendation.reasons.iter().map(|reason| reason.to_string()).collect::<Vec<_>>(),
            "alarms": recommendation.reasons.iter().filter(|reason| Reason::is_alarm(reason)).map(|reason| reason.to_string()).collect::<Vec<_>>(),
            "over": self.over().collect::<Vec<_>>(),
            "batch": self.batch,
            "memory_times_less": self.chosen().and_then(|chosen| self.times_less(chosen)),
            "candidates": self.candidates.iter().map(candidate).collect::<Vec<_>>(),
            "snippets": snippets,
        })
    }
}
