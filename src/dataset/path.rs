//! Paths as bytes and as text.

use std::ffi::OsString;
use std::fmt::Write;
use std::path::{Component, Path, PathBuf};

/// A path for reports: `/`-separated, bytes that are not UTF-8 as `\xNN` with lower-case digits.
pub fn display_path(path: &Path) -> String {
    let mut text = String::new();
    for component in path.components() {
        let separate = !text.is_empty() && !text.ends_with('/');
        match component {
            Component::RootDir => text.push('/'),
            other => {
                if separate {
                    text.push('/');
                }
                push_bytes(&mut text, other.as_os_str().as_encoded_bytes());
            }
        }
    }
    text
}

fn push_bytes(text: &mut String, bytes: &[u8]) {
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            // Writing to a String cannot fail.
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
}

/// The bytes that stand for a path in the index, and by which paths are sorted.
pub(super) fn path_bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_encoded_bytes()
}

/// The path without its extension and the dot before it: what an image shares with its caption. Only the last
/// extension goes: `a.b.jpg` has the stem `a.b`.
pub(super) fn stem(path: &Path) -> PathBuf {
    path.with_extension("")
}

/// `stem` with `extension` (dot included) behind it, whatever dots the stem has.
pub(super) fn with_suffix(stem: &Path, extension: &str) -> PathBuf {
    let mut name = OsString::from(stem);
    name.push(extension);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_shown_with_slashes() {
        let path: PathBuf = ["one", "two", "ü.png"].iter().collect();
        assert_eq!(display_path(&path), "one/two/ü.png");
    }

    #[cfg(unix)]
    #[test]
    fn bytes_that_are_not_utf8_are_shown_in_hexadecimal() {
        use std::ffi::OsStr;
        use std::os::unix::ffi::OsStrExt;
        let path = Path::new("one").join(OsStr::from_bytes(b"caf\xe9\xff.png"));
        assert_eq!(display_path(&path), "one/caf\\xe9\\xff.png");
        assert_eq!(display_path(Path::new("/data/a.png")), "/data/a.png");
    }

    #[test]
    fn only_the_last_extension_is_cut() {
        assert_eq!(with_suffix(&stem(Path::new("one/a.b.jpg")), ".txt"), Path::new("one/a.b.txt"));
        assert_eq!(with_suffix(&stem(Path::new("plain")), ".txt"), Path::new("plain.txt"));
    }
}
