//! Sizes, rectangles and byte counts: the units every room shares.

use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::path::{Component, Path};

/// Width and height in pixels. Serialises as `[width, height]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "[u32; 2]", into = "[u32; 2]")]
pub struct Size {
    /// Columns, in pixels.
    pub width: u32,
    /// Rows, in pixels.
    pub height: u32,
}

impl Size {
    /// A size of `width` × `height` pixels.
    pub const fn new(width: u32, height: u32) -> Self {
        Self { width, height }
    }

    /// Pixels covered; never overflows.
    pub const fn area(self) -> u64 {
        self.width as u64 * self.height as u64
    }

    /// Width divided by height (always this way round); infinite for a zero height.
    pub fn aspect_ratio(self) -> f64 {
        f64::from(self.width) / f64::from(self.height)
    }

    /// The size after a quarter turn.
    pub const fn transposed(self) -> Self {
        Self::new(self.height, self.width)
    }

    /// True when a side is zero.
    pub const fn is_empty(self) -> bool {
        self.width == 0 || self.height == 0
    }
}

impl From<[u32; 2]> for Size {
    fn from([width, height]: [u32; 2]) -> Self {
        Self { width, height }
    }
}

impl From<Size> for [u32; 2] {
    fn from(size: Size) -> Self {
        [size.width, size.height]
    }
}

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}x{}", self.width, self.height)
    }
}

/// A rectangle in pixels, origin top left. Serialises as `[left, top, right, bottom]`, right and bottom exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "[u32; 4]", into = "[u32; 4]")]
pub struct Rect {
    /// First column kept.
    pub left: u32,
    /// First row kept.
    pub top: u32,
    /// Columns and rows kept.
    pub size: Size,
}

impl Rect {
    /// The rectangle of `size` whose top left corner is (`left`, `top`).
    pub const fn new(left: u32, top: u32, size: Size) -> Self {
        Self { left, top, size }
    }

    /// The whole of a picture of `size`.
    pub const fn whole(size: Size) -> Self {
        Self::new(0, 0, size)
    }
}

impl From<[u32; 4]> for Rect {
    fn from([left, top, right, bottom]: [u32; 4]) -> Self {
        let size = Size::new(right.saturating_sub(left), bottom.saturating_sub(top));
        Self { left, top, size }
    }
}

impl From<Rect> for [u32; 4] {
    fn from(rect: Rect) -> Self {
        let (right, bottom) = (rect.left + rect.size.width, rect.top + rect.size.height);
        [rect.left, rect.top, right, bottom]
    }
}

/// Parses a byte count: digits with an optional `K`, `M`, `G`, `T` and an optional `iB` or `B`; all powers of 1024.
///
/// Returns `None` for anything else, a fraction included.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// A number with commas between its thousands.
pub fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Writes a byte count for people: `512 B`, `3.4 MiB`.
pub fn human_bytes(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

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

/// Text for a terminal on one line: control characters, a file name's among them, are escaped.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { c.escape_default().to_string() } else { c.to_string() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

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
    fn byte_counts_are_powers_of_1024_with_or_without_the_i() {
        assert_eq!(parse_bytes("4GiB"), Some(4 << 30));
        assert_eq!(parse_bytes("4g"), Some(4 << 30));
        assert_eq!(parse_bytes("512"), Some(512));
        assert_eq!(parse_bytes("1.5G"), None);
        assert_eq!(parse_bytes("GiB"), None);
        assert_eq!(parse_bytes("99999999999T"), None);
    }

    #[test]
    fn a_rectangle_serialises_as_its_four_edges() {
        let rect = Rect::new(3, 5, Size::new(10, 20));
        assert_eq!(<[u32; 4]>::from(rect), [3, 5, 13, 25]);
        assert_eq!(Rect::from([3, 5, 13, 25]), rect);
    }
}
