//! sd-scripts' fine-tuning metadata: a JSON object image key → `{caption?, tags?, image_size?}`, or lines of
//! `{image_path, caption?, tags?, image_size?}` (`tu:2242-2263`).
//!
//! The trainer ends with an error at the first entry that it cannot read; here each is named and the run goes on.

use super::config::root;
use crate::dataset::{Listed, Stated};
use crate::error::{Error, Result};
use crate::pixels::Format;
use crate::problem::{Kind, Problem};
use crate::trainers::description::{Description, Subset};
use crate::units::Size;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// How caption and tags become one text.
pub(super) struct Words<'a> {
    /// `caption_separator`.
    pub(super) separator: &'a str,
    /// `enable_wildcard`: each line of a caption is one of several.
    pub(super) wildcard: bool,
}

/// What metadata names.
pub(super) struct Entries {
    pub(super) listed: Vec<Listed>,
    /// Entries that cannot be read.
    pub(super) problems: Vec<Problem>,
}

/// Parses metadata given as the dataset itself, as `--in_json` of the trainer's command line; `None` for other texts.
///
/// Relative keys are looked for beside the file, then in the working directory. What the trainer takes from its command
/// line (resolution, buckets …) is left to the flags.
pub fn parse(path: &Path, text: &str, working_dir: &Path) -> Option<Result<Description>> {
    let lines = told_apart(text)?;
    let root = root(path);
    let locate = |key: &str| {
        let (key, beside) = (Path::new(key), root.join(key));
        let elsewhere = working_dir.join(key);
        let found = if !beside.exists() && elsewhere.exists() { elsewhere } else { beside };
        Ok((if key.is_absolute() { key.to_path_buf() } else { found }, key.is_absolute()))
    };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let words = Words { separator: ",", wildcard: false };
    let described = |Entries { listed, problems }| {
        let plain = Subset::plain(&root);
        let subset = Subset { recursive: false, repeats: Some(1), listed: Some(listed), ..plain };
        Description { root: root.clone(), subsets: vec![subset], warnings: Vec::new(), problems }
    };
    Some(read(text, lines, &name, &words, locate).map(described).map_err(|why| Error::input(path, why)))
}

/// True for lines, false for an object, none for texts that are not this metadata.
fn told_apart(text: &str) -> Option<bool> {
    if let Ok(object) = serde_json::from_str::<Map<String, Value>>(text)
        && !object.contains_key("image_path")
    {
        let fields = ["caption", "tags", "image_size", "train_resolution"];
        let is_entry = |(key, value): (&String, &Value)| {
            let named = value.as_object().is_some_and(|entry| fields.iter().any(|field| entry.contains_key(*field)));
            named || (value.is_object() && has_image_extension(Path::new(key)))
        };
        return object.iter().any(is_entry).then_some(false);
    }
    let first = text.lines().find_map(|line| serde_json::from_str::<Map<String, Value>>(line).ok())?;
    first.contains_key("image_path").then_some(true)
}

/// Reads metadata; `name` is the file as problems show it, `locate` gives a key's file, and whether the trainer looks
/// for a cache file that begins with the key.
///
/// # Errors
/// What stops the whole file, in words: it is no JSON object.
pub(super) fn read(
    text: &str,
    lines: bool,
    name: &str,
    words: &Words<'_>,
    locate: impl Fn(&str) -> std::result::Result<(PathBuf, bool), String>,
) -> std::result::Result<Entries, String> {
    let mut entries: BTreeMap<String, Listed> = BTreeMap::new();
    let mut problems = Vec::new();
    for (line, row) in rows(text, lines)? {
        let entry = row.and_then(|(key, fields)| {
            let listed = entry(&key, &fields, words, &locate).map_err(|why| format!("`{key}` {why}"))?;
            Ok((key, Listed { line, ..listed }))
        });
        match entry {
            // A key that comes again replaces what it said before.
            Ok((key, listed)) => drop(entries.insert(key, listed)),
            Err(why) => {
                let place = line.map_or_else(String::new, |line| format!("line {line}: "));
                let problem = Problem::error(name, Kind::Damaged, format!("{place}{why}"));
                problems.push(problem.with_hint("the trainer ends with an error at it"));
            }
        }
    }
    Ok(Entries { listed: entries.into_values().collect(), problems })
}

type Row = (Option<usize>, std::result::Result<(String, Map<String, Value>), String>);

fn rows(text: &str, lines: bool) -> std::result::Result<Vec<Row>, String> {
    if !lines {
        let object: Map<String, Value> =
            serde_json::from_str(text).map_err(|error| format!("is no JSON object of image keys: {error}"))?;
        return Ok(object.into_iter().map(|(key, value)| (None, of_key(key, value))).collect());
    }
    Ok(text.lines().enumerate().map(|(index, line)| (Some(index + 1), of_line(line))).collect())
}

fn of_key(key: String, value: Value) -> std::result::Result<(String, Map<String, Value>), String> {
    match value {
        Value::Object(fields) => Ok((key, fields)),
        _ => Err(format!("`{key}` has no object of its own")),
    }
}

fn of_line(line: &str) -> std::result::Result<(String, Map<String, Value>), String> {
    if line.trim().is_empty() {
        return Err("is blank".to_owned());
    }
    let fields: Map<String, Value> =
        serde_json::from_str(line).map_err(|error| format!("is no JSON object: {error}"))?;
    let key = fields.get("image_path").and_then(Value::as_str).ok_or("has no `image_path` (a text)")?;
    Ok((key.to_owned(), fields))
}

fn entry(
    key: &str,
    fields: &Map<String, Value>,
    words: &Words<'_>,
    locate: &impl Fn(&str) -> std::result::Result<(PathBuf, bool), String>,
) -> std::result::Result<Listed, String> {
    let (path, by_full_path) = locate(key)?;
    if !has_image_extension(&path) && !path.exists() {
        return Err("has no file of exactly this name; the trainer adds no extension".to_owned());
    }
    let caption = words.joined(text(fields, "caption")?, text(fields, "tags")?);
    let stated = Some(Stated { size: size(fields)?, by_full_path });
    Ok(Listed { caption: Some(caption), stated, ..Listed::new(path) })
}

fn has_image_extension(path: &Path) -> bool {
    path.extension().and_then(|e| e.to_str()).and_then(Format::from_extension).is_some()
}

fn text<'v>(fields: &'v Map<String, Value>, key: &str) -> std::result::Result<Option<&'v str>, String> {
    match fields.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(format!("has `{key}: {other}`: a text is needed")),
    }
}

fn size(fields: &Map<String, Value>) -> std::result::Result<Option<Size>, String> {
    let value = fields.get("image_size").filter(|value| !value.is_null());
    let side = |value: &Value| value.as_u64().and_then(|side| u32::try_from(side).ok()).filter(|&side| side >= 1);
    let Some(value) = value else { return Ok(None) };
    let sides = value.as_array().filter(|sides| sides.len() == 2);
    let size = sides.and_then(|sides| Some(Size::new(side(&sides[0])?, side(&sides[1])?)));
    size.map(Some).ok_or_else(|| format!("has `image_size: {value}`: [width, height] is needed"))
}

impl Words<'_> {
    /// Tags behind the caption, or behind each of its lines (`tu:2319-2342`).
    fn joined(&self, caption: Option<&str>, tags: Option<&str>) -> String {
        let caption = caption.unwrap_or("");
        let Some(tags) = tags else { return caption.to_owned() };
        if self.wildcard {
            let tags = tags.replace('\n', self.separator);
            let lines = caption.split('\n').filter(|line| !line.trim().is_empty());
            return lines.map(|line| format!("{line}{}{tags}", self.separator)).collect::<Vec<_>>().join("\n");
        }
        match (caption.is_empty(), tags.is_empty()) {
            (_, true) => caption.to_owned(),
            (true, false) => tags.to_owned(),
            (false, false) => format!("{caption}{}{tags}", self.separator),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: Words<'_> = Words { separator: ",", wildcard: false };

    fn entries(text: &str, lines: bool) -> Entries {
        let locate = |key: &str| Ok((Path::new("/data").join(key), Path::new(key).is_absolute()));
        read(text, lines, "meta.json", &WORDS, locate).unwrap()
    }

    #[test]
    fn caption_and_tags_are_joined_as_the_trainer_joins_them() {
        let joined = |wildcard, caption, tags| Words { separator: ";", wildcard }.joined(caption, tags);
        assert_eq!(joined(false, Some("a dog"), Some("1girl, red")), "a dog;1girl, red");
        assert_eq!(joined(false, None, Some("red")), "red");
        assert_eq!(joined(false, Some("a dog"), Some("")), "a dog");
        assert_eq!(joined(false, None, None), "");
        assert_eq!(joined(true, Some("one\n \ntwo"), Some("x\ny")), "one;x;y\ntwo;x;y");
        assert_eq!(joined(true, None, Some("x")), "", "tags are added to lines, and there is none");
    }

    #[test]
    fn an_object_of_keys_gives_files_captions_and_believed_sizes() {
        let text = r#"{"a.png": {"caption": "x", "tags": "y", "image_size": [200, 150]}, "/far/b.png": {}}"#;
        let found = entries(text, false);
        assert!(found.problems.is_empty());
        let [far, near] = &found.listed[..] else { panic!() };
        assert_eq!((near.path.to_str(), near.caption.as_deref()), (Some("/data/a.png"), Some("x,y")));
        assert_eq!(near.stated, Some(Stated { size: Some(Size::new(200, 150)), by_full_path: false }));
        assert_eq!((far.path.to_str(), far.caption.as_deref()), (Some("/far/b.png"), Some("")));
        assert_eq!(far.stated, Some(Stated { size: None, by_full_path: true }));
    }

    #[test]
    fn bad_lines_are_named_by_number_and_the_others_are_read() {
        let text = concat!(
            "{\"image_path\": \"a.png\", \"caption\": \"first\"}\n",
            "{\"image_path\": \"a.png\", \"caption\": \"again\"}\n",
            "\n",
            "{\"caption\": \"x\"}\n",
            "{\"image_path\": \"b.png\", \"image_size\": [0, 5]}\n",
            "{\"image_path\": \"c.png\", \"tags\": [\"x\"]}\n",
            "{\"image_path\": \"d\"}\n",
            "{\"image_path\": \"e.png\"\n",
        );
        let found = entries(text, true);
        let [only] = &found.listed[..] else { panic!("{:?}", found.listed) };
        assert_eq!((only.caption.as_deref(), only.line), (Some("again"), Some(2)));
        let messages: Vec<_> = found.problems.iter().map(|problem| problem.message.as_str()).collect();
        assert_eq!(
            messages[..5],
            [
                "line 3: is blank",
                "line 4: has no `image_path` (a text)",
                "line 5: `b.png` has `image_size: [0,5]`: [width, height] is needed",
                "line 6: `c.png` has `tags: [\"x\"]`: a text is needed",
                "line 7: `d` has no file of exactly this name; the trainer adds no extension",
            ]
        );
        assert!(messages[5].starts_with("line 8: is no JSON object: "), "{}", messages[5]);
    }

    #[test]
    fn other_json_is_not_taken_for_metadata() {
        assert_eq!(told_apart(r#"{"a": {"caption": "x"}}"#), Some(false));
        assert_eq!(told_apart(r#"{"a.png": {}}"#), Some(false));
        assert_eq!(told_apart("{\"image_path\": \"a\"}"), Some(true));
        assert_eq!(told_apart("{\"image_path\": \"a\"}\nnonsense"), Some(true));
        for text in [r#"{"job": "extension", "config": {"name": "x"}}"#, "[]", "{\"file_name\": \"a.png\"}", "x = 1"] {
            assert_eq!(told_apart(text), None, "{text}");
        }
    }
}
