//! Captions: what each text encoder of the family sees of them.

use super::{histogram, statistics, table};
use crate::problem::Problem;
use crate::text::captions::{Encoded, WINDOWED};
use crate::units::thousands;
use serde_json::{Map, Value, json};
use std::fmt::Write;

/// Captions that are listed with what they lose.
const LISTED: usize = 20;

/// Characters of a caption's lost words that are shown.
const SHOWN: usize = 80;

/// What became of a dataset's captions.
pub struct CaptionReport<'a> {
    /// By encoder, in the family's order.
    pub encoded: &'a [Encoded],
    /// Encoders without a tokenizer at hand: not counted.
    pub uncounted: &'a [&'static str],
    /// Problems found on the way.
    pub problems: &'a [Problem],
}

impl CaptionReport<'_> {
    /// Lengths, what is cut off and what to set, for people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (place, encoded) in self.encoded.iter().enumerate() {
            let encoder = &encoded.encoder;
            let is_same = |other: &&Encoded| (&other.lengths, other.encoder.limit) == (&encoded.lengths, encoder.limit);
            if let Some(other) = self.encoded[..place].iter().find(is_same) {
                let _ = writeln!(text, "{}: the same as {}", encoder.name, other.encoder.name);
                continue;
            }
            let _ = writeln!(
                text,
                "{}: sees {} tokens of a caption, and {} special ones around them that are not counted here",
                encoder.name, encoder.limit, encoder.specials
            );
            let _ = writeln!(text, "{}", table(&encoded.lengths));
            let _ = writeln!(text, "{}", histogram(&encoded.lengths));
            let _ = writeln!(text, "{}", over(encoded));
            for cut in encoded.cut.iter().take(LISTED) {
                let _ = writeln!(text, "  `{}` {} tokens, loses: {}", cut.path, cut.tokens, shortened(&cut.lost));
            }
            if encoded.cut.len() > LISTED {
                let _ = writeln!(text, "  … and {} more (--json lists them)", encoded.cut.len() - LISTED);
            }
            if encoder.windows {
                let [one, two, three, more] = encoded.by_windows();
                let _ = writeln!(text, "  windows of 75 needed: {one} need one, {two} two, {three} three, {more} more");
            }
            if let Some((flag, value)) = encoded.advice() {
                let _ = writeln!(text, "  recommended: --{flag} {value}");
            }
        }
        for name in self.uncounted {
            let _ = writeln!(text, "{name}: not counted, its tokenizer is not built in: --tokenizer DIR");
        }
        text.trim_end().to_owned()
    }

    /// The JSON of the contract.
    pub fn json(&self) -> Value {
        let advice: Map<String, Value> =
            self.encoded.iter().filter_map(Encoded::advice).map(|(flag, value)| (flag.into(), json!(value))).collect();
        json!({
            "encoders": self.encoded.iter().map(encoder_json).collect::<Vec<_>>(),
            "uncounted": self.uncounted,
            "recommend": advice,
            "problems": self.problems,
        })
    }
}

fn over(encoded: &Encoded) -> String {
    let (cut, n) = (encoded.cut.len() as u64, encoded.lengths.n());
    if cut == 0 {
        return "  all fit".to_owned();
    }
    let lost = encoded.lengths.beyond(encoded.encoder.limit);
    let percent = 100.0 * cut as f64 / n as f64;
    format!(
        "  {} of {} are over it ({percent:.1} %) and lose {} tokens:",
        thousands(cut),
        thousands(n),
        thousands(lost)
    )
}

fn shortened(lost: &str) -> String {
    let line = lost.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(SHOWN) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line,
    }
}

fn encoder_json(encoded: &Encoded) -> Value {
    let encoder = &encoded.encoder;
    let mut members = Map::new();
    members.insert("name".into(), json!(encoder.name));
    members.insert("limit".into(), json!(encoder.limit));
    members.insert("specials".into(), json!(encoder.specials));
    members.extend(statistics(&encoded.lengths));
    members.insert("over_limit".into(), json!(encoded.cut.len()));
    members.insert("over_limit_paths".into(), encoded.cut.iter().map(|cut| json!(cut.path)).collect());
    members.insert("cut".into(), json!(encoded.cut));
    members.insert("tokens_lost".into(), json!(encoded.lengths.beyond(encoder.limit)));
    if encoder.windows {
        let [one, two, three, more] = encoded.by_windows();
        let [a, b, c] = WINDOWED.map(|limit| limit.to_string());
        members.insert("windows".into(), json!({a: one, b: two, c: three, "more": more}));
    }
    members.insert("counted".into(), json!(encoded.counted));
    Value::Object(members)
}
