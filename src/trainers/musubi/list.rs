//! musubi-tuner's list of images: JSON lines of `image_path` and `caption` (`ds:276-370`).

use super::config::Reader;
use crate::dataset::Listed;
use crate::error::{Error, IoContext, Result};
use crate::store::read_regular;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The images of a list, each once: the trainer has one cache for a file however often it is listed, and trains it so.
///
/// # Errors
/// A line that is no JSON object with an image and a caption, at which the trainer stops; control images.
pub(super) fn read(reader: &mut Reader<'_>, file: &Path) -> Result<Vec<Listed>> {
    let text = String::from_utf8(read_regular(file).at(file)?);
    let text = text.map_err(|_| Error::input(file, "is no UTF-8 text, which a list of images has to be"))?;
    let mut order: Vec<Listed> = Vec::new();
    let mut seen: BTreeMap<PathBuf, usize> = BTreeMap::new();
    for (index, line) in text.lines().enumerate() {
        let line_number = index + 1;
        let (image, caption) = entry(line).map_err(|why| Error::input(file, format!("line {line_number}: {why}")))?;
        let listed = Listed { caption: Some(caption), line: Some(line_number), ..Listed::new(reader.resolve(&image)) };
        match seen.get(&listed.path) {
            // Its text cache is written twice, too, and the later caption stays.
            Some(&first) => {
                let warning = format!("`{}` line {line_number}: `{image}` is listed again: ", file.display());
                reader.warnings.push(warning + "musubi-tuner trains it once, with the later caption");
                order[first] = listed;
            }
            None => {
                seen.insert(listed.path.clone(), order.len());
                order.push(listed);
            }
        }
    }
    Ok(order)
}

/// Image and caption of a line, or what is wrong with it.
fn entry(line: &str) -> Result<(String, String), String> {
    let entry: Map<String, Value> = serde_json::from_str(line)
        .map_err(|error| format!("is no JSON object, at which musubi-tuner stops: {error}"))?;
    if let Some(key) = entry.keys().find(|key| *key == "control_path" || key.starts_with("control_path_")) {
        return Err(format!("`{key}`: caches for control images are not written"));
    }
    let text = |key: &str| entry.get(key).and_then(Value::as_str).map(str::to_owned);
    let image = text("image_path").or_else(|| text("image_path_0")).ok_or("has no `image_path` (a text)")?;
    Ok((image, text("caption").ok_or("has no `caption` (a text)")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_an_image_and_its_caption() {
        let read = |line: &str| entry(line);
        assert_eq!(read(r#"{"image_path":"a.png","caption":"x"}"#), Ok(("a.png".into(), "x".into())));
        assert_eq!(read(r#"{"image_path_0":"a.png","caption":""}"#), Ok(("a.png".into(), String::new())));
        assert_eq!(read(r#"{"image_path":"a.png"}"#), Err("has no `caption` (a text)".into()));
        assert_eq!(read(r#"{"caption":"x"}"#), Err("has no `image_path` (a text)".into()));
        assert!(read("").unwrap_err().starts_with("is no JSON object"));
        let control = read(r#"{"image_path":"a.png","caption":"x","control_path_1":"c.png"}"#);
        assert_eq!(control, Err("`control_path_1`: caches for control images are not written".into()));
    }
}
