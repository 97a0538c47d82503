//! Which caption belongs to which image, and whether it can be read.
//!
//! A caption has its image's path with the extension exchanged: `a.b.jpg` has `a.b.txt`, never `a.txt`. Of several
//! extensions the first that exists wins. Only UTF-8 is read; other encodings are named, never guessed.

use super::path::{stem, with_suffix};
use super::read::{self, Failure};
use crate::problem::{Kind, Problem};
use crate::units::display_path;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// Extensions that captions usually have, for a hint when the ones asked for are not there.
const USUAL: [&str; 4] = [".txt", ".caption", ".TXT", ".tags"];
/// Longest file that is checked as a caption.
const MAX_CAPTION_BYTES: u64 = 1 << 20;

/// What a trainer that reads captions strictly ends with an error at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// Bytes that are no UTF-8.
    NotUtf8,
    /// A file of no byte.
    NoByte,
    /// A file that the system does not give.
    Unreadable,
}

/// The extensions to look for, in order, each with its dot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaptionExt(Vec<String>);

impl CaptionExt {
    /// Takes extensions with or without their dot, as sd-scripts does; empty ones are dropped.
    pub fn new(extensions: &[String]) -> Self {
        let dotted = |text: &String| if text.starts_with('.') { text.clone() } else { format!(".{text}") };
        Self(
            extensions
                .iter()
                .map(|text| text.trim().to_owned())
                .filter(|text| !text.is_empty())
                .map(|text| dotted(&text))
                .collect(),
        )
    }

    /// The caption file of `image`, relative as `image` is.
    pub fn caption_of(&self, root: &Path, image: &Path) -> Option<PathBuf> {
        self.0.iter().map(|extension| with_suffix(&stem(image), extension)).find(|path| root.join(path).is_file())
    }

    /// The extensions as a list for people.
    fn listed(&self) -> String {
        self.0.join(", ")
    }

    /// A file of a usual extension, not asked for, that lies where the caption of `image` would.
    fn unasked(&self, root: &Path, image: &Path) -> Option<&'static str> {
        let unasked = USUAL.into_iter().filter(|usual| !self.0.iter().any(|asked| asked == usual));
        unasked.into_iter().find(|usual| root.join(with_suffix(&stem(image), usual)).is_file())
    }

    /// The warning that `image` has no caption, and the usual extension under which one lies there.
    pub(super) fn missing(&self, root: &Path, image: &Path) -> (Problem, Option<&'static str>) {
        let unasked = self.unasked(root, image);
        let mut message = format!("has no caption with {}", self.listed());
        if let Some(usual) = unasked {
            message.push_str(&format!("; a {usual} file exists"));
        }
        let problem = Problem::warning(display_path(image), Kind::CaptionMissing, message);
        match unasked {
            Some(usual) => (problem.with_hint(format!("--caption-ext {usual}")), unasked),
            None => (problem, None),
        }
    }

    /// The warning that none of `images` images has a caption though others lie there, as (extension, count).
    pub(super) fn none_found(&self, images: usize, unasked: &[(&str, usize)]) -> Option<Problem> {
        let found: Vec<String> = unasked.iter().map(|(usual, count)| format!("{count} {usual} files exist")).collect();
        let (best, _) = unasked.iter().max_by_key(|(_, count)| *count)?;
        let message = format!("0 of {images} captions with {}; {}", self.listed(), found.join(", "));
        let hint = format!("--caption-ext {best}");
        Some(Problem::warning(".", Kind::CaptionMissing, message).with_hint(hint))
    }

    /// Warnings for caption files among `others` that belong to none of `images`.
    pub(super) fn orphans(&self, images: &[PathBuf], others: &[PathBuf]) -> Vec<Problem> {
        let stems: HashSet<PathBuf> = images.iter().map(|image| stem(image)).collect();
        let is_orphan = |path: &PathBuf| {
            let name = path.as_os_str().as_encoded_bytes();
            let fits = |extension: &&String| {
                name.strip_suffix(extension.as_bytes()).is_some_and(|stem| !stem.is_empty() && !stem.ends_with(b"/"))
            };
            let mut fitting = self.0.iter().filter(fits).peekable();
            fitting.peek().is_some() && !fitting.any(|extension| stems.contains(&without_suffix(path, extension)))
        };
        let orphan = |path: &PathBuf| {
            Problem::warning(display_path(path), Kind::OrphanCaption, "has no image of the same name beside it")
        };
        others.iter().filter(|path| is_orphan(path)).map(orphan).collect()
    }
}

/// `path` without `extension`, which its name ends with.
fn without_suffix(path: &Path, extension: &str) -> PathBuf {
    // Extensions with inner dots (`.en.txt`) are cut one part at a time.
    let mut cut = path.to_path_buf();
    for _ in extension.matches('.') {
        cut.set_extension("");
    }
    cut
}

/// What is wrong with a caption file, and what a strict reader trips over; `relative` is its path from `root`.
pub(super) fn check(root: &Path, relative: &Path) -> (Option<Problem>, Option<Flaw>) {
    let name = display_path(relative);
    match read::read_start(&root.join(relative), MAX_CAPTION_BYTES + 1) {
        Ok(bytes) => (check_bytes(&name, &bytes), flaw(&bytes)),
        Err(Failure::Unreadable(why)) => {
            (Some(Problem::warning(name, Kind::CaptionEncoding, why)), Some(Flaw::Unreadable))
        }
        // Neither comes of reading the start of a file.
        Err(Failure::Changing | Failure::TooLarge(_)) => (None, None),
    }
}

/// The words of a caption file at `relative` from `root`: without a byte order mark, with line feeds alone, without blanks at
/// its ends. `None` for what cannot be read as UTF-8 or is too long, which scanning names.
pub fn read_words(root: &Path, relative: &Path) -> Option<String> {
    let bytes = read::read_start(&root.join(relative), MAX_CAPTION_BYTES + 1).ok()?;
    if bytes.len() as u64 > MAX_CAPTION_BYTES {
        return None;
    }
    Some(words(&String::from_utf8(bytes).ok()?))
}

/// The words of a caption, as [`read_words`] gives them.
pub fn words(text: &str) -> String {
    text.strip_prefix('\u{feff}').unwrap_or(text).replace("\r\n", "\n").replace('\r', "\n").trim().to_owned()
}

fn flaw(bytes: &[u8]) -> Option<Flaw> {
    // A character cut by the end of what was read is none.
    let broken = std::str::from_utf8(bytes)
        .err()
        .is_some_and(|error| error.error_len().is_some() || bytes.len() as u64 <= MAX_CAPTION_BYTES);
    if broken { Some(Flaw::NotUtf8) } else { bytes.is_empty().then_some(Flaw::NoByte) }
}

/// What is wrong with a caption that the description of the image `name` holds.
pub(super) fn check_inline(name: &str, text: &str) -> Option<Problem> {
    let problem = check_bytes(name, text.as_bytes())?;
    Some(Problem { message: format!("its caption {}", problem.message), ..problem })
}

/// What is wrong with a caption of these bytes.
pub fn check_bytes(name: &str, bytes: &[u8]) -> Option<Problem> {
    let encoding = |message: String| Problem::warning(name, Kind::CaptionEncoding, message);
    let to_utf8 = |from: &str| format!("save it as UTF-8, e.g. `iconv -f {from} -t UTF-8`");
    if bytes.len() as u64 > MAX_CAPTION_BYTES {
        return Some(encoding(format!("holds more than {MAX_CAPTION_BYTES} bytes, too many for a caption")));
    }
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        let order = if bytes[0] == 0xff { "UTF-16LE" } else { "UTF-16BE" };
        return Some(encoding(format!("is {order}, not UTF-8")).with_hint(to_utf8("UTF-16")));
    }
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let at = error.valid_up_to();
            let message = format!("is not UTF-8: byte 0x{:02x} at offset {at}", bytes[at]);
            return Some(encoding(message).with_hint(to_utf8("ENCODING")));
        }
    };
    let words = text.strip_prefix('\u{feff}');
    if words.unwrap_or(text).trim().is_empty() {
        return Some(Problem::warning(name, Kind::CaptionEmpty, "holds no word"));
    }
    if let Some(at) = text.find('\0') {
        return Some(encoding(format!("holds a zero byte at offset {at}")));
    }
    let mark = "begins with a byte order mark, which some trainers keep as a character";
    words.map(|_| Problem::note(name, Kind::CaptionEncoding, mark))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::Severity;

    fn extensions(list: &[&str]) -> CaptionExt {
        CaptionExt::new(&list.iter().map(|&text| text.to_owned()).collect::<Vec<_>>())
    }

    fn paths(list: &[&str]) -> Vec<PathBuf> {
        list.iter().map(PathBuf::from).collect()
    }

    #[test]
    fn the_first_extension_that_exists_wins_and_dots_in_names_stay() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a.b.txt", "a.b.caption", "a.txt", "only.caption"] {
            std::fs::write(folder.path().join(name), "x").unwrap();
        }
        let of = |image: &str, list: &[&str]| extensions(list).caption_of(folder.path(), Path::new(image));
        assert_eq!(of("a.b.jpg", &["txt", ".caption"]), Some("a.b.txt".into()));
        assert_eq!(of("a.b.jpg", &[".caption", ".txt"]), Some("a.b.caption".into()));
        assert_eq!(of("only.png", &[".txt", ".caption"]), Some("only.caption".into()));
        assert_eq!(of("a.c.jpg", &[".txt"]), None);
    }

    #[test]
    fn an_encoding_is_named_with_the_byte_and_its_place() {
        let message = |bytes: &[u8]| check_bytes("a.txt", bytes).map(|problem| (problem.kind, problem.message));
        let encoding = |text: &str| Some((Kind::CaptionEncoding, text.to_owned()));
        assert_eq!(message("Zoë’s café".as_bytes()), None);
        assert_eq!(message(b"Zoe\x92s"), encoding("is not UTF-8: byte 0x92 at offset 3"));
        assert_eq!(message(b"\xff\xfea\0"), encoding("is UTF-16LE, not UTF-8"));
        assert_eq!(message(b"\xfe\xff\0a"), encoding("is UTF-16BE, not UTF-8"));
        assert_eq!(message(b"a\0b"), encoding("holds a zero byte at offset 1"));
        assert_eq!(check_bytes("a.txt", b"\xef\xbb\xbfwords").unwrap().severity, Severity::Note);
    }

    #[test]
    fn white_space_and_a_lone_byte_order_mark_are_empty() {
        for bytes in [&b""[..], b" \r\n\t", b"\xef\xbb\xbf", "\u{a0}\u{3000}".as_bytes()] {
            assert_eq!(check_bytes("a.txt", bytes).unwrap().kind, Kind::CaptionEmpty);
        }
    }

    #[test]
    fn words_come_without_marks_and_carriage_returns() {
        let folder = tempfile::tempdir().unwrap();
        let read = |bytes: &[u8]| {
            std::fs::write(folder.path().join("a.txt"), bytes).unwrap();
            read_words(folder.path(), Path::new("a.txt"))
        };
        assert_eq!(read("\u{feff}one,\r\ntwo\r\n \u{a0}".as_bytes()).as_deref(), Some("one,\ntwo"));
        assert_eq!((read(b"").as_deref(), read(b"caf\xe9"), read(b"\xff\xfea\0")), (Some(""), None, None));
    }

    #[test]
    fn only_captions_without_an_image_are_orphans() {
        let images = paths(&["a.b.jpg", "one/x.png"]);
        let others = paths(&["a.txt", "a.b.txt", "a.b.caption", "one/x.txt", "x.txt", "notes.md"]);
        let found = extensions(&[".txt", ".caption"]).orphans(&images, &others);
        let named: Vec<_> = found.iter().map(|problem| problem.path.as_str()).collect();
        assert_eq!(named, ["a.txt", "x.txt"]);
    }
}
