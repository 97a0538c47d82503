//! What the trainer has recorded of a dataset's pictures: `aspect_ratio_bucket_metadata_ID.json` in its folder.
//!
//! Source: `helpers/metadata/backends/discovery.py:343-360`, `ts:167-195`. A picture that is recorded keeps its sizes
//! for ever, so they are followed; one that is not gets its bucket from the rule.

use crate::bucket::Assignment;
use crate::units::{Rect, Size};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Records by the picture's path below the dataset's folder.
pub type Records = BTreeMap<PathBuf, Recorded>;

/// One picture's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The size that it had.
    pub original: Size,
    /// The size that the encoder sees.
    pub target: Size,
    /// The size to which it is scaled before the cut.
    pub intermediary: Size,
    /// Left and top of the cut.
    pub corner: (u32, u32),
}

impl Recorded {
    /// Cuts where the record says, as long as that lies in the picture: without `crop` the trainer draws the place anew
    /// whenever it encodes, and tells the model the recorded one.
    pub(super) fn cut(&self, followed: Assignment) -> Assignment {
        let (left, top) = self.corner;
        let fits = |start: u32, side: u32, all: u32| start.checked_add(side).is_some_and(|end| end <= all);
        let (bucket, resized) = (followed.bucket, followed.resized);
        if !fits(left, bucket.width, resized.width) || !fits(top, bucket.height, resized.height) {
            return followed;
        }
        Assignment { crop: Rect::new(left, top, bucket), ..followed }
    }
}

/// Reads the records of the dataset in `folder`, known to the trainer as one of `names`; pictures of which it says less
/// than all are left out, as the trainer does (`ts:172`). The error says what is wrong with the text.
pub(super) fn read(text: &str, names: &[PathBuf]) -> Result<Records, String> {
    let document: Value = serde_json::from_str(text).map_err(|error| format!("is no valid JSON: {error}"))?;
    let Value::Object(entries) = document else { return Err("is no JSON object".into()) };
    let below =
        |path: &str| names.iter().find_map(|name| Path::new(path).strip_prefix(name).ok().map(Path::to_path_buf));
    Ok(entries.iter().filter_map(|(path, entry)| Some((below(path)?, record(entry)?))).collect())
}

fn record(entry: &Value) -> Option<Recorded> {
    let pair = |key: &str| {
        let [first, second] = entry.get(key)?.as_array()?.as_slice() else { return None };
        // Python writes some sizes as 64.0.
        let number = |value: &Value| value.as_f64().filter(|v| v.fract() == 0.0 && (0.0..65_536.0).contains(v));
        Some((number(first)? as u32, number(second)? as u32))
    };
    let size = |key: &str| pair(key).map(|(width, height)| Size::new(width, height)).filter(|size| !size.is_empty());
    entry.get("aspect_ratio")?;
    let (top, left) = pair("crop_coordinates")?;
    Some(Recorded {
        original: size("original_size")?,
        target: size("target_size")?,
        intermediary: size("intermediary_size")?,
        corner: (left, top),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_found_by_the_path_below_the_folder_and_only_when_whole() {
        let text = r#"{
            "/data/set/sub/a.png": {"original_size": [300, 200], "target_size": [192, 128], "intermediary_size": [195.0, 130],
                                    "crop_coordinates": [1, 2], "aspect_ratio": 1.5},
            "/data/set/b.png": {"original_size": [300, 200], "target_size": [192, 128], "aspect_ratio": 1.5},
            "/elsewhere/c.png": {}
        }"#;
        let records = read(text, &[PathBuf::from("set"), PathBuf::from("/data/set")]).unwrap();
        assert_eq!(records.len(), 1);
        let a = records[Path::new("sub/a.png")];
        assert_eq!((a.original, a.target), (Size::new(300, 200), Size::new(192, 128)));
        assert_eq!((a.intermediary, a.corner), (Size::new(195, 130), (2, 1)));
        assert!(read("[]", &[]).is_err() && read("{", &[]).is_err());
    }

    #[test]
    fn a_recorded_corner_that_lies_outside_is_not_followed() {
        let size = Size::new;
        let centred = Assignment { bucket: size(64, 64), resized: size(70, 64), crop: Rect::new(3, 0, size(64, 64)) };
        let with = |corner| Recorded { original: size(1, 1), target: size(64, 64), intermediary: size(70, 64), corner };
        assert_eq!(with((6, 0)).cut(centred).crop, Rect::new(6, 0, size(64, 64)));
        assert_eq!(with((7, 0)).cut(centred), centred);
    }
}
