//! What `scan` found: the JSON of the command line's contract, and a text for people.

use crate::dataset::{Dataset, Image, display_path};
use crate::pixels::Format;
use crate::problem::{Kind, Problem, Severity};
use crate::units::{Size, human_bytes};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;

/// How many files a text names for one kind of warning; errors are all named.
const NAMED: usize = 10;

/// The document of `scan --json`. Paths are relative to the dataset, `/`-separated, bytes that are not UTF-8 as `\xNN`.
#[derive(Clone, Debug, Serialize)]
pub struct ScanReport<'a> {
    /// How many files were taken for images.
    pub images: usize,
    /// How many caption files belong to an image.
    pub captions: usize,
    /// Bytes of all image files.
    pub bytes: u64,
    /// One a file taken for an image, unusable ones included.
    pub samples: Vec<SampleReport<'a>>,
    /// Everything that is wrong, by file.
    pub problems: &'a [Problem],
    /// Groups of images with the same bytes.
    pub duplicates: &'a [Vec<String>],
}

/// One image of a [`ScanReport`]. What is unknown of a damaged file is null.
#[derive(Clone, Debug, Serialize)]
pub struct SampleReport<'a> {
    /// The image.
    pub path: &'a str,
    /// Columns as stored in the header.
    pub width: Option<u32>,
    /// Rows as stored in the header.
    pub height: Option<u32>,
    /// The size after orientation.
    pub upright: Option<Size>,
    /// EXIF orientation, 1–8.
    pub orientation: Option<u8>,
    /// The format of the content.
    pub format: Option<Format>,
    /// BLAKE3 of the file, 64 hexadecimal digits.
    pub content_hash: Option<String>,
    /// The caption file.
    pub caption_path: Option<String>,
}

impl<'a> ScanReport<'a> {
    /// The report of a dataset.
    pub fn of(dataset: &'a Dataset) -> Self {
        Self {
            images: dataset.images.len(),
            captions: dataset.captions,
            bytes: dataset.bytes,
            samples: dataset.images.iter().map(SampleReport::of).collect(),
            problems: &dataset.problems,
            duplicates: &dataset.duplicates,
        }
    }
}

impl<'a> SampleReport<'a> {
    fn of(image: &'a Image) -> Self {
        let probe = image.probe.as_ref();
        Self {
            path: &image.path,
            width: probe.map(|probe| probe.size.width),
            height: probe.map(|probe| probe.size.height),
            upright: probe.map(|probe| probe.upright()),
            orientation: probe.map(|probe| probe.orientation),
            format: probe.map(|probe| probe.format),
            content_hash: image.content.map(|content| content.to_hex()),
            caption_path: image.caption.as_deref().map(display_path),
        }
    }
}

/// The report as text: a summary, then the problems by severity and kind with the files they concern. Ends with a
/// line break; holds no control characters but line breaks, whatever the files are called.
pub fn text(dataset: &Dataset) -> String {
    let usable = dataset.images.iter().filter(|image| image.usable).count();
    let mut out = format!(
        "{} ({usable} usable), {}, {}\n",
        counted(dataset.images.len(), "image"),
        counted(dataset.captions, "caption"),
        human_bytes(dataset.bytes)
    );
    let mut groups: BTreeMap<(Severity, Kind), Vec<&Problem>> = BTreeMap::new();
    for problem in &dataset.problems {
        groups.entry((problem.severity, problem.kind)).or_default().push(problem);
    }
    for ((severity, kind), problems) in groups {
        push_group(&mut out, severity, kind, &problems);
    }
    out
}

/// `1 image`, `2 images`.
fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn push_group(out: &mut String, severity: Severity, kind: Kind, problems: &[&Problem]) {
    let shown = if severity == Severity::Error { problems.len() } else { problems.len().min(NAMED) };
    // Writing to a String cannot fail.
    let _ = writeln!(out, "\n{}: {} ({})", word(&severity), word(&kind), problems.len());
    for problem in &problems[..shown] {
        let _ = writeln!(out, "  `{}` {}", printable(&problem.path), printable(&problem.message));
    }
    if shown < problems.len() {
        let _ = writeln!(out, "  … and {} more", problems.len() - shown);
    }
    let mut hints: Vec<&str> = problems.iter().filter_map(|problem| problem.hint.as_deref()).collect();
    hints.sort_unstable();
    hints.dedup();
    for hint in hints {
        let _ = writeln!(out, "  hint: {}", printable(hint));
    }
}

/// The word that stands for a severity or kind in JSON.
fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        // Both are enums of bare names, which serialise as strings.
        _ => String::new(),
    }
}

/// Escapes control characters: a file name must not move the cursor or begin a line.
fn printable(text: &str) -> String {
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::{Probe, Profile};
    use crate::hash::ContentHash;
    use std::path::PathBuf;

    fn dataset() -> Dataset {
        let probe = Probe {
            format: Format::Jpeg,
            size: Size::new(64, 48),
            orientation: 6,
            bits: 8,
            gray: false,
            alpha_channel: false,
            transparent: false,
            profile: Profile::None,
            frames: 1,
            extended_webp: false,
        };
        let good = Image {
            path: "a.jpg".to_owned(),
            relative: "a.jpg".into(),
            content: Some(ContentHash::of(b"a")),
            probe: Some(probe),
            caption: Some("a.txt".into()),
            usable: true,
        };
        let bad = Image {
            path: "b\n.jpg".to_owned(),
            relative: "b\n.jpg".into(),
            content: None,
            probe: None,
            caption: None,
            usable: false,
        };
        let problems = vec![
            Problem::warning("a.jpg", Kind::Oriented, "has EXIF orientation 6"),
            Problem::error("b\n.jpg", Kind::Damaged, "JPEG is cut").with_hint("fetch it again"),
        ];
        let root = PathBuf::from("data");
        Dataset { root, images: vec![good, bad], captions: 1, bytes: 2048, hidden: 0, problems, duplicates: vec![] }
    }

    #[test]
    fn the_json_holds_the_fields_of_the_contract() {
        let json = serde_json::to_value(ScanReport::of(&dataset())).unwrap();
        assert_eq!(
            (json["images"].as_u64(), json["captions"].as_u64(), json["bytes"].as_u64()),
            (Some(2), Some(1), Some(2048))
        );
        let sample = serde_json::json!({
            "path": "a.jpg", "width": 64, "height": 48, "upright": [48, 64], "orientation": 6, "format": "jpeg",
            "content_hash": ContentHash::of(b"a").to_hex(), "caption_path": "a.txt",
        });
        assert_eq!(json["samples"][0], sample);
        assert!(json["samples"][1]["width"].is_null() && json["samples"][1]["content_hash"].is_null());
        assert_eq!(json["problems"][1]["kind"], "damaged");
    }

    #[test]
    fn the_text_puts_errors_first_and_escapes_file_names() {
        let wanted = "2 images (1 usable), 1 caption, 2.0 KiB\n\n\
            error: damaged (1)\n  `b\\n.jpg` JPEG is cut\n  hint: fetch it again\n\n\
            warning: oriented (1)\n  `a.jpg` has EXIF orientation 6\n";
        assert_eq!(text(&dataset()), wanted);
    }
}
