//! Training files of text: rows found out, written out as a trainer would, and counted in parallel with bounded memory.
//!
//! `rows` cuts files into rows, `shape` says what they are, `example` counts one (by `template` where it is a
//! conversation), `block` is what one thread takes at a time and what is remembered between runs.

mod block;
pub mod captions;
mod example;
mod json;
mod rows;
mod shape;
mod template;

pub use example::Chat;
pub use json::Json;
pub use rows::{Container, KNOWN, container};
pub use shape::{Found, LOOKED_AT, Shape, detect};
pub use template::{CHATML, Template};

use crate::error::{Error, Result};
use crate::hash::{FieldHasher, TextHash};
use crate::lengths::Lengths;
use crate::problem::{Kind, Problem};
use crate::progress::{Cancel, Progress};
use crate::store::Index;
use crate::tokenizer::Tokenizer;
use crate::units::display_path;
use block::{Block, Blocks};
use example::Counting;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Longest examples that are named.
const LONGEST: usize = 20;

/// Raised when the same rows may give other counts: what was remembered before is then not found.
const COUNTS_REV: u64 = 1;

/// What is counted, and how.
pub struct Request<'a> {
    /// The files, each of rows of the same kind.
    pub files: &'a [PathBuf],
    /// The tokenizer.
    pub tokenizer: &'a Tokenizer,
    /// How conversations are written out; without it, rows that are conversations are an error.
    pub chat: Option<ChatSource<'a>>,
    /// What rows are, where it is not to be found out.
    pub shape: Option<Shape>,
    /// A column to read as text.
    pub field: Option<&'a str>,
    /// Whether one token is counted for the end of a sequence where the tokenizer adds none.
    pub end: bool,
    /// Whether instructions and prompts are written out as conversations.
    pub as_chat: bool,
    /// Where counts are remembered.
    pub index: &'a Index,
}

/// How conversations are written out.
#[derive(Clone, Copy)]
pub enum ChatSource<'a> {
    /// By a template.
    Template(&'a Template),
    /// Their contents alone, one after the other.
    Contents,
}

/// One of the longest examples.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Long {
    /// Its file.
    pub path: String,
    /// Its line, or row in Parquet.
    pub line: u64,
    /// Its tokens.
    pub tokens: u32,
}

/// What a dataset's rows came to.
#[derive(Debug)]
pub struct Counted {
    /// What they are.
    pub found: Found,
    /// Their lengths.
    pub lengths: Lengths,
    /// Rows that gave no example, with the reason; by file and line.
    pub problems: Vec<Problem>,
    /// The longest examples, the longest first.
    pub longest: Vec<Long>,
    /// Examples whose own text holds a special token's name, which tokenizers take for the token.
    pub with_specials: u64,
    /// Examples that were counted in this run; the others were remembered.
    pub counted: u64,
    /// Bytes of the files.
    pub bytes: u64,
}

/// What a block came to; rows are counted from its first, so that it is the same wherever it lies.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Tally {
    lengths: Lengths,
    refused: Vec<(usize, Kind, String)>,
    longest: Vec<(u32, usize)>,
    with_specials: u64,
}

/// Everything so far, with files and lines.
#[derive(Default)]
struct Sum {
    lengths: Lengths,
    problems: Vec<Problem>,
    longest: Vec<Long>,
    with_specials: u64,
    counted: u64,
}

/// Counts all rows of all files.
///
/// # Errors
/// A file that cannot be read on, rows of no known kind, conversations without a template, engines that differ, an
/// interrupt.
pub fn count(request: &Request<'_>, progress: &dyn Progress, cancel: &Cancel) -> Result<Counted> {
    let found = find_out(request)?;
    let counting = counting(request, found.shape)?;
    let settings = settings(request, found.shape);
    let sizes: u64 = request.files.iter().filter_map(|path| path.metadata().ok()).map(|metadata| metadata.len()).sum();
    progress.stage("tokens", Some(sizes));
    let mut sum = Sum::default();
    for (file, path) in request.files.iter().enumerate() {
        let read = Arc::new(AtomicU64::new(0));
        let told = AtomicU64::new(0);
        let blocks = Blocks { file, rows: rows::open(path, &read)? };
        let parts = blocks.par_bridge().map(|block| -> Result<Sum> {
            if cancel.is_cancelled() {
                return Err(Error::Interrupted);
            }
            let sum = one_block(&block?, &counting, &settings, request);
            let now = read.load(Ordering::Relaxed);
            progress.advance(now.saturating_sub(told.fetch_max(now, Ordering::Relaxed)));
            sum
        });
        sum = sum.and(parts.try_reduce(Sum::default, |a, b| Ok(a.and(b)))?);
    }
    sum.problems.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    let Sum { lengths, problems, longest, with_specials, counted } = sum;
    Ok(Counted { found, lengths, problems, longest, with_specials, counted, bytes: sizes })
}

/// Columns by which descriptions of images name their files.
const IMAGES: [&str; 4] = ["file_name", "image_file_name", "image_path", "image"];

/// True for a file whose first rows are of a known kind and name no image.
pub fn looks_like_rows(path: &Path) -> bool {
    let Ok(rows) = rows::open(path, &Arc::default()) else { return false };
    let first: Vec<Json> = rows.take(20).filter_map(|row| Json::parse(&row.ok()?.json).ok()).collect();
    detect(&first).is_ok() && !first.iter().any(|row| IMAGES.iter().any(|column| row.get(column).is_some()))
}

/// What the first rows of the first file are.
fn find_out(request: &Request<'_>) -> Result<Found> {
    let first = request.files.first().ok_or_else(|| Error::usage("no file is given", "prebake tokens train.jsonl"))?;
    let rows = rows::open(first, &Arc::default())?;
    let mut looked_at = Vec::new();
    for row in rows.take(LOOKED_AT) {
        if let Ok(json) = Json::parse(&row?.json) {
            looked_at.push(json);
        }
    }
    let of = looked_at.len();
    if let Some(shape) = request.shape.or(request.field.map(|_| Shape::Text)) {
        let fits = |row: &&Json| request.field.map_or_else(|| shape.fits(row), |field| row.get(field).is_some());
        return Ok(Found { shape, rows: looked_at.iter().filter(fits).count(), of });
    }
    detect(&looked_at).map_err(|columns| {
        let seen = if columns.is_empty() {
            "no row is an object".to_owned()
        } else {
            format!("it has {}", columns.join(", "))
        };
        Error::input(first, format!("has columns of no known format: {seen}"))
            .with_hint("--field NAME reads a column as text, --format says what rows are")
    })
}

fn counting<'a>(request: &Request<'a>, shape: Shape) -> Result<Counting<'a>> {
    let is_chat = matches!(shape, Shape::Messages | Shape::Conversations | Shape::Evals)
        || (request.as_chat && matches!(shape, Shape::Alpaca | Shape::Completion));
    let chat = match request.chat {
        Some(ChatSource::Template(template)) => Chat::Template(template),
        Some(ChatSource::Contents) => Chat::Contents,
        None if is_chat && request.field.is_none() => {
            let message =
                format!("rows are conversations, and the tokenizer `{}` has no chat template", request.tokenizer.name);
            let hint = "--tokenizer DIR with a chat_template.jinja or tokenizer_config.json, or --chat-template FILE, chatml, \
                        or none to count the contents alone";
            return Err(Error::usage(message, hint));
        }
        None => Chat::None,
    };
    Ok(Counting {
        tokenizer: request.tokenizer,
        chat,
        shape,
        field: request.field,
        end: request.end,
        as_chat: request.as_chat,
    })
}

/// The hash of all that counts depend on besides the rows.
fn settings(request: &Request<'_>, shape: Shape) -> TextHash {
    let template = match request.chat {
        Some(ChatSource::Template(template)) => template.hash.to_hex(),
        Some(ChatSource::Contents) => "contents".to_owned(),
        None => String::new(),
    };
    let hash = FieldHasher::new("prebake token settings")
        .int("revision", COUNTS_REV)
        .bytes("tokenizer", &request.tokenizer.hash.0)
        .text("template", &template)
        .text("shape", shape.name())
        .text("field", request.field.unwrap_or_default())
        .int("end", u64::from(request.end))
        .int("as_chat", u64::from(request.as_chat))
        .finish();
    TextHash(hash)
}

fn one_block(block: &Block, counting: &Counting<'_>, settings: &TextHash, request: &Request<'_>) -> Result<Sum> {
    let key = block.key(settings);
    let known = request.index.counted(&key).and_then(|packed| unpack(&packed));
    let path = display_path(&request.files[block.file]);
    let (tally, counted) = match known {
        Some(tally) => (tally, 0),
        None => {
            let tally = tally(block, counting);
            if let Some((row, _, why)) = tally.refused.iter().find(|(_, kind, _)| *kind == Kind::Miscounted) {
                let line = block.rows[*row].line;
                return Err(Error::input(&request.files[block.file], format!("line {line}: {why}"))
                    .with_hint("--tokenizer-engine reference counts with the slow engine alone"));
            }
            request.index.remember_count(key, pack(&tally));
            let counted = tally.lengths.total.n();
            (tally, counted)
        }
    };
    let line = |row: usize| block.rows[row].line;
    let problem = |(row, kind, why): (usize, Kind, String)| match kind {
        Kind::Blank => Problem::warning(path.clone(), kind, why).at_line(line(row)),
        _ => Problem::error(path.clone(), kind, why).at_line(line(row)),
    };
    let long = |(tokens, row): (u32, usize)| Long { path: path.clone(), line: line(row), tokens };
    Ok(Sum {
        lengths: tally.lengths,
        problems: tally.refused.into_iter().map(problem).collect(),
        longest: tally.longest.into_iter().map(long).collect(),
        with_specials: tally.with_specials,
        counted,
    })
}

fn tally(block: &Block, counting: &Counting<'_>) -> Tally {
    let mut tally = Tally::default();
    for (index, row) in block.rows.iter().enumerate() {
        if row.json.iter().all(u8::is_ascii_whitespace) {
            tally.refused.push((index, Kind::Blank, "is blank".into()));
            continue;
        }
        let parsed = Json::parse(&row.json).map_err(|why| (Kind::Malformed, why));
        match parsed.and_then(|json| counting.measure(&json)) {
            Err((kind, why)) => tally.refused.push((index, kind, why)),
            Ok(example) => {
                tally.lengths.add(example);
                tally.longest.push((example.total, index));
                tally.with_specials += u64::from(counting.tokenizer.names_special(&row.json));
            }
        }
    }
    tally.longest.sort_by_key(|&(tokens, row)| (std::cmp::Reverse(tokens), row));
    tally.longest.truncate(LONGEST);
    tally
}

impl Sum {
    fn and(mut self, other: Self) -> Self {
        self.lengths.merge(&other.lengths);
        self.problems.extend(other.problems);
        self.longest.extend(other.longest);
        self.longest.sort_by(|a, b| (b.tokens, &a.path, a.line).cmp(&(a.tokens, &b.path, b.line)));
        self.longest.truncate(LONGEST);
        self.with_specials += other.with_specials;
        self.counted += other.counted;
        self
    }
}

fn pack(tally: &Tally) -> Vec<u8> {
    let json = serde_json::to_vec(tally).expect("numbers and texts can be written");
    zstd::encode_all(&json[..], 1).expect("memory can be written to")
}

fn unpack(packed: &[u8]) -> Option<Tally> {
    serde_json::from_slice(&zstd::decode_all(packed).ok()?).ok()
}
