//! The outcome of `bake`.

use crate::bake::Summary;
use crate::problem::Problem;
use crate::units::human_bytes;
use serde_json::{Value, json};

/// What `bake` did, with what only the binary knows.
pub struct BakeReport<'a> {
    /// Counts and times.
    pub summary: &'a Summary,
    /// Problems of the plan and of this run.
    pub problems: &'a [Problem],
    /// `cpu`, `cuda:0` …
    pub device: &'a str,
    /// Highest resident size, in bytes; 0 if unknown.
    pub peak_rss: u64,
}

impl BakeReport<'_> {
    /// One or two lines for people.
    pub fn text(&self) -> String {
        let s = self.summary;
        let mut text = format!("encoded {}, reused {}, relinked {}", s.encoded, s.reused, s.relinked);
        let errors = self.problems.iter().filter(|problem| problem.is_error()).count();
        if errors > 0 {
            text += &format!(", failed {errors}");
        }
        text += &format!(" in {:.1} s on {}", s.seconds, self.device);
        if s.encoded > 0 {
            text += &format!(" ({:.2} images/s, {:.1} s in the encoder", s.images_per_second, s.encode_seconds);
            if self.peak_rss > 0 {
                text += &format!(", peak memory {}", human_bytes(self.peak_rss));
            }
            text += ")";
        }
        if s.retried_f32 > 0 {
            text += &format!("\n{} repeated in f32: the encoder overflowed in the precision asked for", s.retried_f32);
        }
        if s.interrupted {
            text += "\ninterrupted: what is finished is kept, the next run goes on from there";
        }
        text
    }

    /// The JSON of the contract.
    pub fn json(&self) -> Value {
        let mut json = serde_json::to_value(self.summary).expect("a summary is plain data");
        json["failed"] = json!(self.problems.iter().filter(|problem| problem.is_error()).collect::<Vec<_>>());
        json["problems"] = json!(self.problems);
        json["device"] = json!(self.device);
        json["peak_rss_bytes"] = json!(self.peak_rss);
        json["peak_device_bytes"] = Value::Null;
        json
    }
}
