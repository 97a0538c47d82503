//! `metadata.jsonl` and `metadata.csv` of the Hugging Face imagefolder: a row a picture, its file relative to the metadata.
//!
//! Belongs to no trainer. The file is in `file_name`, `image_file_name`, the one column whose name ends in `_file_name`,
//! or `image`; the caption in `text`, `caption` or `prompt`, else in a sidecar. A row that cannot be read is named by
//! its line.

use super::description::{Description, Subset};
use crate::dataset::Listed;
use crate::error::{Error, IoContext, Result};
use crate::pixels::Format;
use crate::problem::{Kind, Problem};
use crate::store::read_regular;
use std::collections::BTreeMap;
use std::path::Path;

/// Columns that hold a caption, the first that a row has wins.
const CAPTIONS: [&str; 3] = ["text", "caption", "prompt"];
/// Columns that hold the file, before any other `…_file_name`.
const FILES: [&str; 2] = ["file_name", "image_file_name"];
const SUFFIX: &str = "_file_name";

/// One row: its line from 1, and its columns or why it has none. Values that are no texts are none.
type Row = (usize, Result<BTreeMap<String, Option<String>>, String>);

/// Parses such metadata; `None` for other texts.
pub fn parse(path: &Path, text: &str, _working_dir: &Path) -> Option<Result<Description>> {
    let is_csv = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("csv"));
    let rows = if is_csv { csv_rows(text) } else { json_rows(text) };
    let first = rows.iter().find_map(|(_, row)| row.as_ref().ok())?;
    if !names_a_file(first) {
        return None;
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let (mut listed, mut problems) = (Vec::new(), Vec::new());
    for (line, row) in rows {
        match row.and_then(|columns| entry(&columns)) {
            Ok(entry) => listed.push(Listed { line: Some(line), ..entry }),
            Err(why) => problems.push(Problem::error(&*name, Kind::Damaged, format!("line {line}: {why}"))),
        }
    }
    let root = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_path_buf();
    let subset = Subset { recursive: false, repeats: Some(1), listed: Some(listed), ..Subset::plain(&root) };
    Some(Ok(Description { root, subsets: vec![subset], warnings: Vec::new(), problems }))
}

/// What the metadata directly in `folder` describes; none where there is none of this kind. JSON lines win over CSV, as
/// in the `datasets` library.
///
/// # Errors
/// A file that cannot be read.
pub fn of_folder(folder: &Path, working_dir: &Path) -> Result<Option<Description>> {
    for name in ["metadata.jsonl", "metadata.csv"] {
        let path = folder.join(name);
        if !path.is_file() {
            continue;
        }
        let text = String::from_utf8(read_regular(&path).at(&path)?);
        let text = text.map_err(|_| Error::input(&path, "is not UTF-8").with_hint("save it as UTF-8"))?;
        if let Some(described) = parse(&path, &text, working_dir) {
            let mut described = described?;
            described.warnings.push(format!("`{}` says which images there are, and their captions", path.display()));
            return Ok(Some(described));
        }
    }
    Ok(None)
}

fn names_a_file(columns: &BTreeMap<String, Option<String>>) -> bool {
    let by_name = |column: &String| column == FILES[0] || column.ends_with(SUFFIX);
    columns.keys().any(by_name) || columns.get("image").is_some_and(|image| image.as_deref().is_some_and(is_image_name))
}

fn is_image_name(text: &str) -> bool {
    Path::new(text).extension().and_then(|e| e.to_str()).and_then(Format::from_extension).is_some()
}

fn entry(columns: &BTreeMap<String, Option<String>>) -> Result<Listed, String> {
    let column = file_column(columns)?;
    let file = columns[column].as_deref().filter(|file| !file.trim().is_empty());
    let file = file.ok_or_else(|| format!("`{column}` is no text"))?;
    let caption = match CAPTIONS.iter().find_map(|name| Some((name, columns.get(*name)?))) {
        None => None,
        Some((_, Some(text))) => Some(text.clone()),
        Some((name, None)) => return Err(format!("`{name}` is no text")),
    };
    Ok(Listed { caption, ..Listed::new(file) })
}

fn file_column(columns: &BTreeMap<String, Option<String>>) -> Result<&str, String> {
    if let Some(name) = FILES.into_iter().find(|name| columns.contains_key(*name)) {
        return Ok(name);
    }
    let mut named = columns.keys().filter(|name| name.ends_with(SUFFIX));
    match (named.next(), named.next()) {
        (Some(one), None) => Ok(one),
        (Some(one), Some(other)) => Err(format!("names files in `{one}` and `{other}`: `file_name` is needed")),
        _ if columns.contains_key("image") => Ok("image"),
        _ => Err("has no `file_name`".to_owned()),
    }
}

fn json_rows(text: &str) -> Vec<Row> {
    let is_blank = |line: &str| line.trim().is_empty();
    let lines = text.lines().enumerate().filter(|(_, line)| !is_blank(line));
    lines.map(|(index, line)| (index + 1, json_row(line))).collect()
}

fn json_row(line: &str) -> Result<BTreeMap<String, Option<String>>, String> {
    let object: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(line).map_err(|error| format!("is no JSON object: {error}"))?;
    let present = object.into_iter().filter(|(_, value)| !value.is_null());
    Ok(present.map(|(name, value)| (name, value.as_str().map(str::to_owned))).collect())
}

/// Rows below a header; a row with another number of fields than it is named.
fn csv_rows(text: &str) -> Vec<Row> {
    let mut records = csv_records(text.trim_start_matches('\u{feff}')).into_iter();
    let Some((_, header)) = records.next() else { return Vec::new() };
    let row = |fields: Vec<String>| {
        if fields.len() != header.len() {
            return Err(format!("has {} fields, the header {}", fields.len(), header.len()));
        }
        let present = header.iter().cloned().zip(fields).filter(|(_, field)| !field.is_empty());
        Ok(present.map(|(name, field)| (name, Some(field))).collect())
    };
    records.map(|(line, fields)| (line, row(fields))).collect()
}

/// Records of RFC 4180 with the line on which each begins; blank lines are none. A quoted field may hold commas, line
/// breaks and doubled quotes.
fn csv_records(text: &str) -> Vec<(usize, Vec<String>)> {
    let (mut records, mut fields, mut field) = (Vec::new(), Vec::new(), String::new());
    let (mut line, mut begun, mut quoted) = (1, 1, false);
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        line += usize::from(character == '\n');
        match character {
            '"' if quoted && characters.peek() == Some(&'"') => field.extend(characters.next()),
            '"' if quoted => quoted = false,
            '"' if field.is_empty() => quoted = true,
            ',' if !quoted => fields.push(std::mem::take(&mut field)),
            '\r' if !quoted && characters.peek() == Some(&'\n') => {}
            '\n' if !quoted => {
                if !(fields.is_empty() && field.is_empty()) {
                    fields.push(std::mem::take(&mut field));
                    records.push((begun, std::mem::take(&mut fields)));
                }
                begun = line;
            }
            other => field.push(other),
        }
    }
    if !(fields.is_empty() && field.is_empty()) {
        fields.push(field);
        records.push((begun, fields));
    }
    records
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, text: &str) -> (Vec<Listed>, Vec<String>) {
        let description = parse(&Path::new("data").join(name), text, Path::new("")).unwrap().unwrap();
        assert_eq!(description.root, Path::new("data"));
        assert_eq!(description.subsets[0].described_by, None);
        let messages = description.problems.into_iter().map(|problem| format!("{}: {}", problem.path, problem.message));
        (description.subsets[0].listed.clone().unwrap(), messages.collect())
    }

    fn shown(listed: &[Listed]) -> Vec<(&str, Option<&str>, usize)> {
        listed.iter().map(|l| (l.path.to_str().unwrap(), l.caption.as_deref(), l.line.unwrap())).collect()
    }

    #[test]
    fn rows_name_files_and_captions_and_bad_ones_are_named_by_line() {
        let text = "{\"file_name\": \"a.png\", \"text\": \"a dog\"}\n\n{\"file_name\": \"b.png\"}\nnonsense\n\
                    {\"file_name\": \"c.png\", \"caption\": 5}\n{\"text\": \"x\"}\n{\"file_name\": 3}";
        let (listed, problems) = read("metadata.jsonl", text);
        assert_eq!(shown(&listed), [("a.png", Some("a dog"), 1), ("b.png", None, 3)]);
        assert_eq!(
            problems[1..],
            [
                "metadata.jsonl: line 5: `caption` is no text",
                "metadata.jsonl: line 6: has no `file_name`",
                "metadata.jsonl: line 7: `file_name` is no text",
            ]
        );
        assert!(problems[0].starts_with("metadata.jsonl: line 4: is no JSON object: "), "{}", problems[0]);
    }

    #[test]
    fn the_file_may_stand_in_other_columns() {
        for (column, wanted) in [("image_file_name", "a.png"), ("photo_file_name", "a.png"), ("image", "a.png")] {
            let (listed, _) = read("metadata.jsonl", &format!("{{\"{column}\": \"a.png\", \"prompt\": \"p\"}}"));
            assert_eq!(shown(&listed), [(wanted, Some("p"), 1)], "{column}");
        }
        let (_, problems) = read("metadata.jsonl", "{\"in_file_name\": \"a.png\", \"out_file_name\": \"b.png\"}");
        assert!(problems[0].contains("names files in `in_file_name` and `out_file_name`"), "{}", problems[0]);
    }

    #[test]
    fn csv_has_quoted_fields_over_several_lines() {
        let text = "file_name,text\r\na.png,\"two\nlines, \"\"quoted\"\"\"\r\nb.png,plain\r\nc.png\r\n\r\nd.png,\r\n";
        let (listed, problems) = read("metadata.csv", text);
        let wanted = [("a.png", Some("two\nlines, \"quoted\""), 2), ("b.png", Some("plain"), 4), ("d.png", None, 7)];
        assert_eq!(shown(&listed), wanted);
        assert_eq!(problems, ["metadata.csv: line 5: has 1 fields, the header 2"]);
    }

    #[test]
    fn other_texts_are_no_imagefolder() {
        for (name, text) in [
            ("a.jsonl", "{\"image_path\": \"a.png\"}"),
            ("a.jsonl", "{\"image\": \"not a file\"}"),
            ("a.csv", "x,y\n1,2"),
            ("a.toml", "x = 1"),
            ("a.json", "[]"),
        ] {
            assert!(parse(Path::new(name), text, Path::new("")).is_none(), "{text}");
        }
    }
}
