//! Paths as bytes and as text.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

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
    fn only_the_last_extension_is_cut() {
        assert_eq!(with_suffix(&stem(Path::new("one/a.b.jpg")), ".txt"), Path::new("one/a.b.txt"));
        assert_eq!(with_suffix(&stem(Path::new("plain")), ".txt"), Path::new("plain.txt"));
    }
}
