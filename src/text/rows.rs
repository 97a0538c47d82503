//! Files as streams of rows, each one JSON value in bytes: JSONL, JSON, CSV, TSV, Parquet and plain text, packed with gzip or
//! zstd or not. Never more than a few rows are held.

use crate::error::{Error, IoContext, Result};
use flate2::read::MultiGzDecoder;
use parquet::file::reader::{FileReader, SerializedFileReader};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// One row: where it begins, and its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    /// Physical line from 1; in Parquet, the row.
    pub(super) line: u64,
    /// JSON, or blank.
    pub(super) json: Vec<u8>,
}

/// What a file holds, by its extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Container {
    /// A JSON value a line.
    Jsonl,
    /// An array of JSON values, or an object that has one.
    Json,
    /// Values between these bytes, the columns' names in the first line.
    Table(u8),
    /// Columns.
    Parquet,
    /// A text a line.
    Lines,
}

/// How a file is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Packing {
    None,
    Gzip,
    Zstd,
}

/// Extensions that are read, for hints.
pub const KNOWN: &str = "jsonl, ndjson, json, csv, tsv, parquet and txt are read, each packed as .gz or .zst, too";

/// What the extensions of `path` say; `None` for others.
pub fn container(path: &Path) -> Option<Container> {
    identify(path).map(|(container, _)| container)
}

fn identify(path: &Path) -> Option<(Container, Packing)> {
    let lower = path.file_name()?.to_str()?.to_ascii_lowercase();
    let (name, packing) = match lower.rsplit_once('.') {
        Some((name, "gz")) => (name, Packing::Gzip),
        Some((name, "zst")) => (name, Packing::Zstd),
        _ => (lower.as_str(), Packing::None),
    };
    let container = match name.rsplit_once('.')?.1 {
        "jsonl" | "ndjson" => Container::Jsonl,
        "json" => Container::Json,
        "csv" => Container::Table(b','),
        "tsv" => Container::Table(b'\t'),
        "parquet" => Container::Parquet,
        "txt" => Container::Lines,
        _ => return None,
    };
    Some((container, packing))
}

/// Rows, or what ends the file early.
pub(super) type Rows = Box<dyn Iterator<Item = Result<Row>> + Send>;

/// Opens a file; `read` counts the bytes that were taken from the disk.
///
/// # Errors
/// A file that cannot be opened, is of no known kind, or begins as no such file does.
pub(super) fn open(path: &Path, read: &Arc<AtomicU64>) -> Result<Rows> {
    let (container, packing) =
        identify(path).ok_or_else(|| Error::input(path, "is of no kind that is read").with_hint(KNOWN))?;
    let file = File::open(path).at(path)?;
    if container == Container::Parquet && packing == Packing::None {
        return parquet_rows(path, file, read);
    }
    let counted = Counted { inner: file, read: Arc::clone(read) };
    let unpacked: Box<dyn Read + Send> = match packing {
        Packing::None => Box::new(counted),
        Packing::Gzip => Box::new(MultiGzDecoder::new(counted)),
        Packing::Zstd => Box::new(zstd::Decoder::new(counted).at(path)?),
    };
    let source = BufReader::with_capacity(1 << 18, unpacked);
    let path = path.to_path_buf();
    match container {
        Container::Jsonl => Ok(Box::new(Lines { source, path, line: 0, as_text: false })),
        Container::Lines => Ok(Box::new(Lines { source, path, line: 0, as_text: true })),
        Container::Json => json_rows(source, path),
        Container::Table(delimiter) => table_rows(source, path, delimiter),
        Container::Parquet => {
            Err(Error::input(&path, "is Parquet inside another packing").with_hint("unpack it: Parquet packs itself"))
        }
    }
}

struct Counted<R> {
    inner: R,
    read: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let n = self.inner.read(buffer)?;
        self.read.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
}

/// The byte order mark that some editors write.
const MARK: &[u8] = b"\xef\xbb\xbf";

struct Lines<R> {
    source: R,
    path: PathBuf,
    line: u64,
    as_text: bool,
}

impl<R: BufRead> Iterator for Lines<R> {
    type Item = Result<Row>;

    fn next(&mut self) -> Option<Result<Row>> {
        let mut bytes = Vec::new();
        match self.source.read_until(b'\n', &mut bytes).at(&self.path) {
            Err(error) => return Some(Err(error)),
            Ok(0) => return None,
            Ok(_) => {}
        }
        self.line += 1;
        if self.line == 1 && bytes.starts_with(MARK) {
            bytes.drain(..MARK.len());
        }
        while matches!(bytes.last(), Some(b'\n' | b'\r')) {
            bytes.pop();
        }
        if self.as_text && !bytes.is_empty() {
            bytes = object([("text", &bytes[..])]);
        }
        Some(Ok(Row { line: self.line, json: bytes }))
    }
}

/// A JSON object of texts. Bytes that are no UTF-8 stay as they are, so that whoever parses it names the row.
fn object<'a>(members: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Vec<u8> {
    let mut out = vec![b'{'];
    for (i, (name, bytes)) in members.into_iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        out.extend(serde_json::to_vec(name).expect("a text can be written"));
        out.push(b':');
        match std::str::from_utf8(bytes) {
            Ok(text) => out.extend(serde_json::to_vec(text).expect("a text can be written")),
            Err(_) => out.extend([b"\"", bytes, b"\""].concat()),
        }
    }
    out.push(b'}');
    out
}

/// A file called `.json`: an array of rows, an object with such an array in one of its keys, or JSON by the line.
fn json_rows(source: BufReader<Box<dyn Read + Send>>, path: PathBuf) -> Result<Rows> {
    let mut elements = Elements { source, path, line: 1, ended: false };
    elements.skip_mark()?;
    let is_array = match elements.skip_blanks()? {
        Some(b'[') => {
            elements.bite()?;
            true
        }
        Some(b'{') => elements.enter_object()?,
        _ => false,
    };
    if !is_array {
        let lines = Lines { line: elements.line - 1, path: elements.path, source: elements.source, as_text: false };
        return Ok(Box::new(lines));
    }
    Ok(Box::new(elements))
}

/// The elements of a JSON array, cut out without parsing them.
struct Elements<R> {
    source: R,
    path: PathBuf,
    line: u64,
    ended: bool,
}

impl<R: BufRead> Elements<R> {
    fn peek(&mut self) -> Result<Option<u8>> {
        Ok(self.source.fill_buf().at(&self.path)?.first().copied())
    }

    fn bite(&mut self) -> Result<Option<u8>> {
        let byte = self.peek()?;
        if let Some(byte) = byte {
            self.line += u64::from(byte == b'\n');
            self.source.consume(1);
        }
        Ok(byte)
    }

    fn skip_mark(&mut self) -> Result<()> {
        if self.source.fill_buf().at(&self.path)?.starts_with(MARK) {
            self.source.consume(MARK.len());
        }
        Ok(())
    }

    fn skip_blanks(&mut self) -> Result<Option<u8>> {
        while let Some(byte) = self.peek()? {
            if !byte.is_ascii_whitespace() {
                return Ok(Some(byte));
            }
            self.bite()?;
        }
        Ok(None)
    }

    /// At the `{` of a file: enters `{"key": [`, where that is how it begins, and says so; else takes nothing.
    fn enter_object(&mut self) -> Result<bool> {
        let head = self.source.fill_buf().at(&self.path)?;
        let Some(length) = array_behind_key(head) else { return Ok(false) };
        self.line += head[..length].iter().filter(|&&byte| byte == b'\n').count() as u64;
        self.source.consume(length);
        Ok(true)
    }

    fn element(&mut self) -> Result<Option<Row>> {
        let first = loop {
            match self.skip_blanks()? {
                Some(b',') => {
                    self.bite()?;
                }
                other => break other,
            }
        };
        if matches!(first, None | Some(b']')) {
            self.ended = true;
            let broken = Error::input(&self.path, "ends before its array of rows does");
            return if first.is_none() { Err(broken.with_hint("write the file again")) } else { Ok(None) };
        }
        let line = self.line;
        let (mut json, mut depth, mut in_text, mut escaped) = (Vec::new(), 0_u32, false, false);
        while let Some(byte) = self.peek()? {
            if !in_text && depth == 0 && matches!(byte, b',' | b']') {
                break;
            }
            match byte {
                _ if escaped => escaped = false,
                b'\\' if in_text => escaped = true,
                b'"' => in_text = !in_text,
                b'{' | b'[' if !in_text => depth += 1,
                b'}' | b']' if !in_text => depth = depth.saturating_sub(1),
                _ => {}
            }
            json.push(byte);
            self.bite()?;
        }
        Ok(Some(Row { line, json }))
    }
}

/// The length of `{"key": [` at the start of `head`, the key being one under which people keep rows.
fn array_behind_key(head: &[u8]) -> Option<usize> {
    let blanks = |at: usize| head[at..].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
    let quote = 1 + blanks(1);
    let rest = head[quote..].strip_prefix(b"\"")?;
    let key = ["data", "rows", "train", "examples", "instances"]
        .into_iter()
        .find(|key| rest.strip_prefix(key.as_bytes()).is_some_and(|behind| behind.starts_with(b"\"")))?;
    let colon = quote + key.len() + 2;
    let colon = colon + blanks(colon);
    let open = colon + 1 + blanks(head.get(colon).filter(|&&byte| byte == b':').map(|_| colon + 1)?);
    (head.get(open) == Some(&b'[')).then_some(open + 1)
}

impl<R: BufRead> Iterator for Elements<R> {
    type Item = Result<Row>;

    fn next(&mut self) -> Option<Result<Row>> {
        if self.ended {
            return None;
        }
        let element = self.element().transpose();
        self.ended |= matches!(element, Some(Err(_)));
        element
    }
}

fn table_rows(source: BufReader<Box<dyn Read + Send>>, path: PathBuf, delimiter: u8) -> Result<Rows> {
    let mut reader = csv::ReaderBuilder::new().delimiter(delimiter).flexible(true).from_reader(source);
    let broken = |path: &Path, error: &csv::Error| {
        let line = error.position().map_or(String::new(), |position| format!("line {}: ", position.line()));
        Error::input(path, format!("{line}{error}"))
    };
    let header = reader.byte_headers().map_err(|error| broken(&path, &error))?;
    let mut names: Vec<String> = header.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    if let Some(first) = names.first_mut() {
        *first = first.trim_start_matches('\u{feff}').to_owned();
    }
    Ok(Box::new(reader.into_byte_records().map(move |record| {
        let record = record.map_err(|error| broken(&path, &error))?;
        let line = record.position().map_or(0, csv::Position::line);
        let cells = names.iter().zip(record.iter()).map(|(name, cell)| (name.as_str(), cell));
        Ok(Row { line, json: object(cells) })
    })))
}

fn parquet_rows(path: &Path, file: File, read: &Arc<AtomicU64>) -> Result<Rows> {
    let broken = |path: &Path, error: &parquet::errors::ParquetError| {
        Error::input(path, format!("cannot be read as Parquet: {error}"))
    };
    let length = file.metadata().at(path)?.len();
    let reader = SerializedFileReader::new(file).map_err(|error| broken(path, &error))?;
    let total = reader.metadata().file_metadata().num_rows().max(1) as u64;
    let rows = reader.into_iter();
    let (path, read) = (path.to_path_buf(), Arc::clone(read));
    Ok(Box::new(rows.zip(1_u64..).map(move |(row, number)| {
        read.fetch_add(length * number / total - length * (number - 1) / total, Ordering::Relaxed);
        let row = row.map_err(|error| broken(&path, &error))?;
        let json = serde_json::to_vec(&row.to_json_value()).expect("a JSON value can be written");
        Ok(Row { line: number, json })
    })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write;
    use tempfile::TempDir;

    fn rows_of(name: &str, bytes: &[u8]) -> Vec<(u64, String)> {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        let read = Arc::default();
        let rows: Result<Vec<_>> = open(&path, &read).unwrap().collect();
        assert_eq!(read.load(Ordering::Relaxed), bytes.len() as u64, "all is read, and nothing twice");
        rows.unwrap().into_iter().map(|row| (row.line, String::from_utf8(row.json).unwrap())).collect()
    }

    fn of(rows: &[(u64, &str)]) -> Vec<(u64, String)> {
        rows.iter().map(|&(line, json)| (line, json.to_owned())).collect()
    }

    #[test]
    fn lines_keep_their_numbers_whatever_ends_them() {
        let text = "\u{feff}{\"a\": \"x\u{2028}y\"}\r\n\r\n{}\n[1]".as_bytes();
        assert_eq!(rows_of("t.jsonl", text), of(&[(1, "{\"a\": \"x\u{2028}y\"}"), (2, ""), (3, "{}"), (4, "[1]")]));
        assert_eq!(
            rows_of("t.txt", b"one \"x\"\n\ntwo"),
            of(&[(1, r#"{"text":"one \"x\""}"#), (2, ""), (3, r#"{"text":"two"}"#)])
        );
    }

    #[test]
    fn an_array_is_cut_into_its_elements_wherever_it_lies() {
        let array = b"[\n  {\"a\": \"],\\\"}\", \"b\": [1, {}]},\n\n  {}, null\n]";
        let expected = of(&[(2, "{\"a\": \"],\\\"}\", \"b\": [1, {}]}"), (4, "{}"), (4, "null\n")]);
        assert_eq!(rows_of("t.json", array), expected);
        let inside = [&b"{ \"data\" : "[..], array, b"}"].concat();
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("t.json");
        fs::write(&path, inside).unwrap();
        let rows: Vec<_> = open(&path, &Arc::default()).unwrap().map(|row| row.unwrap().line).collect();
        assert_eq!(rows, [2, 4, 4]);
        assert_eq!(rows_of("t.json", b"{\"a\": 1}\n{\"a\": 2}\n"), of(&[(1, "{\"a\": 1}"), (2, "{\"a\": 2}")]));
        fs::write(&path, "[{}, ").unwrap();
        let cut = open(&path, &Arc::default()).unwrap().last().unwrap().unwrap_err();
        assert!(cut.to_string().ends_with("ends before its array of rows does"));
    }

    #[test]
    fn tables_take_their_names_from_the_first_line_and_count_lines_inside_quotes() {
        let table = b"\xef\xbb\xbfprompt,completion\n\"a\nb\",c\nd,\"e \"\"f\"\"\"\n";
        let expected =
            of(&[(2, r#"{"prompt":"a\nb","completion":"c"}"#), (4, r#"{"prompt":"d","completion":"e \"f\""}"#)]);
        assert_eq!(rows_of("t.csv", table), expected);
        assert_eq!(rows_of("t.tsv", b"text\na, b\n"), of(&[(2, r#"{"text":"a, b"}"#)]));
    }

    #[test]
    fn packed_files_are_unpacked_on_the_way() {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(b"{}\n[]\n").unwrap();
        assert_eq!(rows_of("t.jsonl.gz", &gzip.finish().unwrap()), of(&[(1, "{}"), (2, "[]")]));
        let zstd = zstd::encode_all(&b"text\nx\n"[..], 1).unwrap();
        assert_eq!(rows_of("t.csv.zst", &zstd), of(&[(2, r#"{"text":"x"}"#)]));
    }

    #[test]
    fn other_files_are_refused_with_what_is_read() {
        let error = open(Path::new("train.xlsx"), &Arc::default()).err().unwrap();
        assert_eq!(error.to_string(), "`train.xlsx`: is of no kind that is read");
        assert_eq!((container(Path::new("a.b.JSONL.gz")), container(Path::new("a"))), (Some(Container::Jsonl), None));
    }
}
